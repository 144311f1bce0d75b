/* Which groups there are in the cluster, and their members: for iterations, and for groups that a handle
 * is not in.
 *
 * The agent lists no groups. So each member that has joined holds a lock of its own name, and writes its
 * group into the map `cpg`. A process that lists reads the map and asks for each lock, without waiting:
 * one that is free is that of a member that is gone, whose entry is removed. Of groups that this process
 * is in, the views count. */
#ifndef CPG_LIST_H
#define CPG_LIST_H

#include <corosync/cpg.h>

cs_error_t list_members(const struct cpg_name *group, struct cpg_address *members, int *count);
/* Ends the iterations of a handle. */
void list_forget(cpg_handle_t handle);

#endif
