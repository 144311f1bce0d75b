/* Names: of nodes, groups and members. */
#include <stdio.h>
#include <string.h>

#include "names.h"
#include "check.h"

static const char *called(const char *bytes, uint32_t length)
{
	static char name[GROUP_BYTES];
	struct cpg_name group = { .length = length };
	memcpy(group.value, bytes, length);
	group_name(&group, name);
	return name;
}

int main(void)
{
	/* Pinned: nodes of different builds agree on them. */
	CHECK(node_id("a", 1) == 0x640c292d);
	CHECK(node_id("node-1", 6) != node_id("node-2", 6) && node_id("", 0));
	CHECK(!strcmp(called("tea", 3), "cpg/tea") && !strcmp(called("", 0), "cpg/"));
	CHECK(strlen(called("0123456789012345678901234567890123456789012345678901", 52)) == 56);
	CHECK(!strcmp(called("0123456789012345678901234567890123456789012345678901", 52) + 4, "0123456789012345678901234567890123456789012345678901"));
	CHECK(!strncmp(called("01234567890123456789012345678901234567890123456789012", 53), "cpg#", 4));
	CHECK(!strncmp(called("tea", 4), "cpg#", 4) && !strncmp(called("\xff", 1), "cpg#", 4));
	CHECK(!strncmp(called("\xc2\x85", 2), "cpg#", 4) && !strcmp(called("\xc3\x85", 2), "cpg/\xc3\x85"));
	CHECK(!strcmp(called("\0", 1), "cpg#d228cb69101a8caf78912b704e4a147f"));
	struct cpg_address address;
	size_t length;
	CHECK(member_address("rack/a/cpg-4711-3", &address, &length) && length == 6 && address.pid == 4711);
	CHECK(address.nodeid == node_id("rack/a", 6));
	CHECK(!member_address("a/ann", &address, &length) && !member_address("a/cpg-", &address, &length));
	CHECK(!member_address("a/cpg-x-1", &address, &length) && !member_address("a/cpg-12", &address, &length));
	CHECK(!member_address("a/cpg-99999999999-1", &address, &length));
	puts(failed ? "names: FAILED" : "names: passed");
	return failed;
}
