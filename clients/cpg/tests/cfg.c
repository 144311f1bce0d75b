/* What corosync-cpgtool asks of libcfg, which would need corosync itself. Here no node has an address. */
#include <stddef.h>
#include <stdint.h>

enum { CS_OK = 1, CS_ERR_NOT_EXIST = 12 };

int corosync_cfg_initialize(uint64_t *handle, const void *callbacks);
int corosync_cfg_get_node_addrs(uint64_t handle, unsigned node, size_t most, int *count, void *addresses);
int corosync_cfg_finalize(uint64_t handle);

int corosync_cfg_initialize(uint64_t *handle, const void *callbacks)
{
	(void)callbacks;
	*handle = 1;
	return CS_OK;
}

int corosync_cfg_get_node_addrs(uint64_t handle, unsigned node, size_t most, int *count, void *addresses)
{
	(void)handle, (void)node, (void)most, (void)addresses;
	*count = 0;
	return CS_ERR_NOT_EXIST;
}

int corosync_cfg_finalize(uint64_t handle)
{
	(void)handle;
	return CS_OK;
}
