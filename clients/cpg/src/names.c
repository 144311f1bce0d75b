#include "names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

uint32_t node_id(const char *name, size_t length)
{
	/* FNV-1a: well spread also for names that differ in their last character. */
	uint32_t hash = 2166136261u;
	for (size_t i = 0; i < length; i++)
		hash = (hash ^ (unsigned char)name[i]) * 16777619u;
	/* Node ids of corosync are positive as signed numbers, too: programs print and parse them so. */
	hash = (hash ^ hash >> 31) & 0x7fffffff;
	return hash ? hash : 1;
}

static bool is_plain(const struct cpg_name *group)
{
	for (uint32_t i = 0; i < group->length; i++)
		if ((unsigned char)group->value[i] < 0x20 || (unsigned char)group->value[i] == 0x7f)
			return false;
	/* Control characters above ASCII begin with 0xc2 and 0x80 to 0x9f. */
	for (uint32_t i = 0; i + 1 < group->length; i++)
		if ((unsigned char)group->value[i] == 0xc2 && (unsigned char)group->value[i + 1] < 0xa0)
			return false;
	return utf8_prefix(group->value, group->length) == group->length;
}

void group_name(const struct cpg_name *group, char name[GROUP_BYTES])
{
	if (sizeof "cpg/" + group->length <= GROUP_BYTES && is_plain(group)) {
		snprintf(name, GROUP_BYTES, "cpg/%.*s", (int)group->length, group->value);
		return;
	}
	/* 128 bits, so that two groups of one cluster do not meet by chance. */
	unsigned __int128 hash = (unsigned __int128)0x6c62272e07bb0142u << 64 | 0x62b821756295c58du;
	const unsigned __int128 prime = (unsigned __int128)1 << 88 | 0x13b;
	for (uint32_t i = 0; i < group->length; i++)
		hash = (hash ^ (unsigned char)group->value[i]) * prime;
	snprintf(name, GROUP_BYTES, "cpg#%016llx%016llx", (unsigned long long)(hash >> 64), (unsigned long long)hash);
}

bool member_address(const char *member, struct cpg_address *address, size_t *node_length)
{
	/* A client's name has no slash; a node's may have. */
	const char *slash = strrchr(member, '/');
	if (!slash || strncmp(slash, "/cpg-", 5))
		return false;
	char *end;
	unsigned long pid = strtoul(slash + 5, &end, 10);
	if (end == slash + 5 || *end != '-' || pid > UINT32_MAX)
		return false;
	*node_length = (size_t)(slash - member);
	*address = (struct cpg_address){ .nodeid = node_id(member, *node_length), .pid = (uint32_t)pid };
	return true;
}

bool same_group(const struct cpg_name *one, const struct cpg_name *other)
{
	return one->length == other->length && !memcmp(one->value, other->value, one->length);
}
