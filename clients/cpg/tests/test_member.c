/* A member that does what lines of standard input say and prints what it is told: only <corosync/cpg.h>
 * is included.
 *
 *     join NAME | leave | visit NAME | send COUNT SIZE | say TEXT | safe TEXT | members | list | node | finalize | busy MS
 *
 * `visit` joins and leaves, with nothing between them. `busy` does nothing for a while, as a program does
 * that is at something else. */
#include <corosync/cpg.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static cpg_handle_t handle;
static struct cpg_name group;

static void print_list(const char *what, const struct cpg_address *list, size_t count)
{
	printf(", \"%s\": [", what);
	for (size_t i = 0; i < count; i++)
		printf("%s[%u, %u, %u]", i ? ", " : "", list[i].nodeid, list[i].pid, list[i].reason);
	printf("]");
}

static void deliver(cpg_handle_t of, const struct cpg_name *name, uint32_t nodeid, uint32_t pid, void *msg, size_t length)
{
	(void)of, (void)name;
	/* Numbered ones are long: their number is enough. */
	size_t shown = length < 24 ? length : 24;
	printf("{\"event\": \"message\", \"from\": [%u, %u], \"length\": %zu, \"text\": \"%.*s\"}\n", nodeid, pid, length,
	       (int)strnlen(msg, shown), (char *)msg);
}

static void change(cpg_handle_t of, const struct cpg_name *name, const struct cpg_address *members, size_t count,
		   const struct cpg_address *left, size_t lefts, const struct cpg_address *joined, size_t joins)
{
	(void)of;
	printf("{\"event\": \"change\", \"group\": \"%.*s\"", (int)name->length, name->value);
	print_list("members", members, count);
	print_list("left", left, lefts);
	print_list("joined", joined, joins);
	printf("}\n");
}

static void totem(cpg_handle_t of, struct cpg_ring_id ring, uint32_t count, const uint32_t *nodes)
{
	(void)of;
	printf("{\"event\": \"ring\", \"seq\": %llu, \"nodes\": [", (unsigned long long)ring.seq);
	for (uint32_t i = 0; i < count; i++)
		printf("%s%u", i ? ", " : "", nodes[i]);
	printf("]}\n");
}

static cs_error_t mcast(cpg_guarantee_t type, const char *bytes, size_t length)
{
	struct iovec vectors[] = { { (void *)bytes, length / 2 }, { (void *)(bytes + length / 2), length - length / 2 } };
	cs_error_t result;
	while ((result = cpg_mcast_joined(handle, type, vectors, 2)) == CS_ERR_TRY_AGAIN)
		cpg_dispatch(handle, CS_DISPATCH_ALL);
	return result;
}

static cs_error_t obey(char *line)
{
	char word[16] = "", rest[200] = "";
	sscanf(line, "%15s %199[^\n]", word, rest);
	if (!strcmp(word, "join") || !strcmp(word, "visit")) {
		cs_error_t result;
		group.length = (uint32_t)strlen(rest);
		memcpy(group.value, rest, group.length);
		while ((result = cpg_join(handle, &group)) == CS_ERR_TRY_AGAIN)
			usleep(10000);
		return result == CS_OK && *word == 'v' ? cpg_leave(handle, &group) : result;
	}
	if (!strcmp(word, "leave"))
		return cpg_leave(handle, &group);
	if (!strcmp(word, "say"))
		return mcast(CPG_TYPE_AGREED, rest, strlen(rest));
	if (!strcmp(word, "safe"))
		return mcast(CPG_TYPE_SAFE, rest, strlen(rest));
	if (!strcmp(word, "finalize"))
		return cpg_finalize(handle);
	if (!strcmp(word, "busy")) {
		usleep((useconds_t)atoi(rest) * 1000);
		return CS_OK;
	}
	if (!strcmp(word, "send")) {
		unsigned count = 0, size = 0;
		cs_error_t result = CS_OK;
		sscanf(rest, "%u %u", &count, &size);
		char *bytes = calloc(1, size + 24);
		for (unsigned i = 0; i < count && result == CS_OK; i++) {
			snprintf(bytes, 24, "%u", i);
			result = mcast(CPG_TYPE_AGREED, bytes, size);
		}
		free(bytes);
		return result;
	}
	if (!strcmp(word, "node")) {
		unsigned int node = 0;
		cs_error_t result = cpg_local_get(handle, &node);
		printf("{\"event\": \"node\", \"node\": %u, \"pid\": %d}\n", node, (int)getpid());
		return result;
	}
	if (!strcmp(word, "members")) {
		struct cpg_address list[CPG_MEMBERS_MAX];
		int count = CPG_MEMBERS_MAX;
		struct cpg_name of = { .length = (uint32_t)strlen(rest) };
		memcpy(of.value, rest, of.length);
		cs_error_t result = cpg_membership_get(handle, &of, list, &count);
		printf("{\"event\": \"members\"");
		print_list("members", list, result == CS_OK ? (size_t)count : 0);
		printf("}\n");
		return result;
	}
	if (!strcmp(word, "list")) {
		struct cpg_iteration_description_t one;
		cpg_iteration_handle_t iteration;
		cs_error_t result = cpg_iteration_initialize(handle, CPG_ITERATION_ALL, NULL, &iteration);
		printf("{\"event\": \"list\", \"list\": [");
		for (int i = 0; result == CS_OK && cpg_iteration_next(iteration, &one) == CS_OK; i++)
			printf("%s[\"%.*s\", %u, %u]", i ? ", " : "", (int)one.group.length, one.group.value, one.nodeid, one.pid);
		printf("]}\n");
		cpg_iteration_finalize(iteration);
		return result;
	}
	return CS_ERR_INVALID_PARAM;
}

int main(void)
{
	cpg_model_v1_data_t model = { .model = CPG_MODEL_V1, .cpg_deliver_fn = deliver, .cpg_confchg_fn = change,
				      .cpg_totem_confchg_fn = totem, .flags = CPG_MODEL_V1_DELIVER_INITIAL_TOTEM_CONF };
	struct pollfd fds[2] = { { .fd = 0, .events = POLLIN }, { .events = POLLIN } };
	setvbuf(stdin, NULL, _IONBF, 0);
	cs_error_t result = cpg_model_initialize(&handle, CPG_MODEL_V1, (cpg_model_data_t *)&model, NULL);
	if (result == CS_OK)
		result = cpg_fd_get(handle, &fds[1].fd);
	printf("{\"event\": \"ready\", \"result\": %d}\n", result);
	while (result == CS_OK) {
		char line[300];
		fflush(stdout);
		if (poll(fds, 2, -1) < 0)
			continue;
		if (fds[1].revents) {
			cs_error_t dispatched = cpg_dispatch(handle, CS_DISPATCH_ALL);
			if (dispatched != CS_OK) {
				printf("{\"event\": \"over\", \"result\": %d}\n", dispatched);
				fds[1].fd = -1;
			}
		}
		if (!fds[0].revents)
			continue;
		if (!fgets(line, sizeof line, stdin))
			return 0;
		cs_error_t obeyed = obey(line);
		printf("{\"event\": \"did\", \"what\": \"%.*s\", \"result\": %d}\n", (int)strcspn(line, "\n"), line, obeyed);
	}
	return 1;
}
