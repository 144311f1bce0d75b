/* From CPG's names to the agent's, and back: node ids, members, groups. All are functions of names
 * alone, so that all members agree without a word. */
#ifndef CPG_NAMES_H
#define CPG_NAMES_H

#include <corosync/cpg.h>
#include <stdbool.h>

#define GROUP_BYTES 57 /* the longest name of a group of the agent, and NUL */

/* A node's id: a hash of its name, never 0. */
uint32_t node_id(const char *name, size_t length);
/* What a group is called at the agent: `cpg/NAME`, or `cpg#HASH` if the name is long or no plain text. */
void group_name(const struct cpg_name *group, char name[GROUP_BYTES]);
/* NODE/cpg-PID-NUMBER. False for a member that is no CPG program. `node_length`: that of the node's name. */
bool member_address(const char *member, struct cpg_address *address, size_t *node_length);
bool same_group(const struct cpg_name *one, const struct cpg_name *other);

#endif
