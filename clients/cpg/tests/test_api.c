/* Every function of libcpg in one process, as a program of corosync uses it: only <corosync/cpg.h> is
 * included, so it runs on corosync's own library as well. `COROSYNC=1` says that it does. With `absent`
 * it is run where no daemon or agent is. */
#include <corosync/cpg.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "check.h"

/* ---- what callbacks were told ---- */

struct change {
	struct cpg_address members[128], left[128], joined[128];
	size_t member_count, left_count, joined_count;
};

static struct {
	int changes, messages, totems;
	struct change last;
	unsigned char *bytes;
	size_t length, total;
	uint32_t nodeid, pid;
	uint32_t totem_nodes;
	int first_was_change;
	cpg_handle_t to_finalize;
} told;

static void forget(void)
{
	free(told.bytes);
	memset(&told, 0, sizeof told);
}

static void deliver(cpg_handle_t handle, const struct cpg_name *group, uint32_t nodeid, uint32_t pid, void *msg,
		    size_t length)
{
	(void)handle, (void)group;
	told.messages++;
	told.total += length;
	told.nodeid = nodeid;
	told.pid = pid;
	CHECK((uintptr_t)msg % 8 == 0);
	free(told.bytes);
	told.bytes = malloc(length + 1);
	memcpy(told.bytes, msg, length);
	told.length = length;
	if (told.to_finalize)
		EXPECT(cpg_finalize(told.to_finalize), CS_OK);
}

static void change(cpg_handle_t handle, const struct cpg_name *group, const struct cpg_address *members, size_t count,
		   const struct cpg_address *left, size_t lefts, const struct cpg_address *joined, size_t joins)
{
	(void)handle, (void)group;
	if (!told.messages && !told.changes)
		told.first_was_change = 1;
	told.changes++;
	memcpy(told.last.members, members, count * sizeof *members);
	memcpy(told.last.left, left, lefts * sizeof *left);
	memcpy(told.last.joined, joined, joins * sizeof *joined);
	told.last.member_count = count;
	told.last.left_count = lefts;
	told.last.joined_count = joins;
}

static void totem(cpg_handle_t handle, struct cpg_ring_id ring, uint32_t count, const uint32_t *nodes)
{
	(void)handle;
	CHECK(ring.nodeid && count && nodes[0]);
	CHECK(told.changes >= 1);
	told.totems++;
	told.totem_nodes = count;
}

static cpg_callbacks_t callbacks = { .cpg_deliver_fn = deliver, .cpg_confchg_fn = change };

static struct cpg_name name_of(const char *text, size_t length)
{
	struct cpg_name name = { .length = (uint32_t)length };
	memcpy(name.value, text, length);
	return name;
}

static struct cpg_name named(const char *text)
{
	return name_of(text, strlen(text));
}

static cpg_handle_t initialized(void)
{
	cpg_handle_t handle = 0;
	EXPECT(cpg_initialize(&handle, &callbacks), CS_OK);
	return handle;
}

static cs_error_t join(cpg_handle_t handle, const struct cpg_name *group)
{
	cs_error_t result;
	/* A leave of this process may be under way. */
	for (int i = 0; (result = cpg_join(handle, group)) == CS_ERR_TRY_AGAIN && i < 500; i++)
		usleep(10000);
	return result;
}

static cs_error_t mcast(cpg_handle_t handle, cpg_guarantee_t type, const void *bytes, size_t length)
{
	struct iovec vector = { (void *)bytes, length };
	cs_error_t result;
	for (int i = 0; (result = cpg_mcast_joined(handle, type, &vector, 1)) == CS_ERR_TRY_AGAIN && i < 5000; i++)
		usleep(1000);
	return result;
}

/* Corosync's library says CS_OK, and its daemon drops the message. */
static void cannot_speak(cpg_handle_t handle)
{
	cs_error_t result = mcast(handle, CPG_TYPE_AGREED, "x", 1);
	CHECK(result == CS_ERR_NOT_EXIST || (getenv("COROSYNC") && result == CS_OK));
}

/* One callback after the other, until so many messages were told. */
static void until_messages(cpg_handle_t handle, int count)
{
	while (told.messages < count && !failed)
		EXPECT(cpg_dispatch(handle, CS_DISPATCH_ONE), CS_OK);
}

static int is_readable(cpg_handle_t handle, int timeout_ms)
{
	struct pollfd fd = { .events = POLLIN };
	EXPECT(cpg_fd_get(handle, &fd.fd), CS_OK);
	return poll(&fd, 1, timeout_ms) == 1;
}

/* ---- stories ---- */

static void bad_handles_are_told(void)
{
	struct cpg_name group = named("g"), *out = &group;
	struct cpg_address list[128];
	cpg_iteration_handle_t iteration;
	cpg_flow_control_state_t flow;
	unsigned int node;
	uint32_t size;
	int fd, count = 128;
	void *pointer = NULL;
	cpg_handle_t bad = 0x7777777;
	EXPECT(cpg_finalize(bad), CS_ERR_BAD_HANDLE);
	EXPECT(cpg_fd_get(bad, &fd), CS_ERR_BAD_HANDLE);
	EXPECT(cpg_max_atomic_msgsize_get(bad, &size), CS_ERR_BAD_HANDLE);
	EXPECT(cpg_context_get(bad, &pointer), CS_ERR_BAD_HANDLE);
	EXPECT(cpg_context_set(bad, pointer), CS_ERR_BAD_HANDLE);
	EXPECT(cpg_dispatch(bad, CS_DISPATCH_ALL), CS_ERR_BAD_HANDLE);
	EXPECT(cpg_join(bad, &group), CS_ERR_BAD_HANDLE);
	EXPECT(cpg_leave(bad, &group), CS_ERR_BAD_HANDLE);
	EXPECT(mcast(bad, CPG_TYPE_AGREED, "x", 1), CS_ERR_BAD_HANDLE);
	EXPECT(cpg_membership_get(bad, out, list, &count), CS_ERR_BAD_HANDLE);
	EXPECT(cpg_local_get(bad, &node), CS_ERR_BAD_HANDLE);
	EXPECT(cpg_flow_control_state_get(bad, &flow), CS_ERR_BAD_HANDLE);
	EXPECT(cpg_zcb_alloc(bad, 10, &pointer), CS_ERR_BAD_HANDLE);
	EXPECT(cpg_iteration_initialize(bad, CPG_ITERATION_ALL, NULL, &iteration), CS_ERR_BAD_HANDLE);
}

static void what_is_not_joined_cannot_speak(void)
{
	struct cpg_name group = named("test-not-joined");
	cpg_handle_t handle = initialized();
	unsigned int node = 0;
	uint32_t size = 0;
	void *context = NULL;
	EXPECT(cpg_local_get(handle, &node), CS_OK);
	CHECK(node);
	EXPECT(cpg_max_atomic_msgsize_get(handle, &size), CS_OK);
	CHECK(size > 500000);
	EXPECT(cpg_context_set(handle, &group), CS_OK);
	EXPECT(cpg_context_get(handle, &context), CS_OK);
	CHECK(context == &group);
	cannot_speak(handle);
	EXPECT(cpg_leave(handle, &group), CS_ERR_NOT_EXIST);
	group.length = CPG_MAX_NAME_LENGTH + 1;
	EXPECT(cpg_join(handle, &group), CS_ERR_NAME_TOO_LONG);
	EXPECT(cpg_dispatch(handle, CS_DISPATCH_ALL), CS_OK);
	EXPECT(cpg_dispatch(handle, CS_DISPATCH_ONE_NONBLOCKING), CS_ERR_TRY_AGAIN);
	CHECK(!is_readable(handle, 0));
	EXPECT(cpg_finalize(handle), CS_OK);
	EXPECT(cpg_finalize(handle), CS_ERR_BAD_HANDLE);
	EXPECT(cpg_dispatch(handle, CS_DISPATCH_ALL), CS_ERR_BAD_HANDLE);
}

static void one_joins_speaks_and_leaves(void)
{
	struct cpg_name group = named("test-joins"), other = named("test-other");
	cpg_handle_t handle = initialized(), second = initialized();
	unsigned int node = 0;
	forget();
	cpg_local_get(handle, &node);
	EXPECT(join(handle, &group), CS_OK);
	/* Before anything was dispatched, and it is told that it is in first. */
	EXPECT(mcast(handle, CPG_TYPE_AGREED, "first", 6), CS_OK);
	EXPECT(cpg_join(handle, &group), CS_ERR_EXIST);
	EXPECT(cpg_join(second, &group), CS_ERR_EXIST);
	until_messages(handle, 1);
	CHECK(told.first_was_change && told.changes == 1 && told.length == 6 && !strcmp((char *)told.bytes, "first"));
	CHECK(told.nodeid == node && told.pid == (uint32_t)getpid());
	CHECK(told.last.member_count == 1 && told.last.joined_count == 1 && told.last.left_count == 0);
	CHECK(told.last.members->nodeid == node && told.last.members->pid == (uint32_t)getpid());
	CHECK(told.last.joined->reason == CPG_REASON_JOIN && told.last.joined->pid == (uint32_t)getpid());

	/* Each guarantee, pieces, nothing at all, bytes that are no text, and a buffer without a copy. */
	struct iovec pieces[] = { { "ab", 2 }, { NULL, 0 }, { "\0c", 2 }, { "\xff", 1 } };
	EXPECT(cpg_mcast_joined(handle, CPG_TYPE_FIFO, pieces, 4), CS_OK);
	until_messages(handle, 2);
	CHECK(told.length == 5 && !memcmp(told.bytes, "ab\0c\xff", 5));
	EXPECT(mcast(handle, CPG_TYPE_SAFE, "", 0), CS_OK);
	until_messages(handle, 3);
	CHECK(told.length == 0);
	EXPECT(mcast(handle, CPG_TYPE_UNORDERED, "u", 1), CS_OK);
	until_messages(handle, 4);
	CHECK(told.length == 1 && *told.bytes == 'u');
	void *buffer = NULL;
	EXPECT(cpg_zcb_alloc(handle, 5000, &buffer), CS_OK);
	memset(buffer, 0xee, 5000);
	EXPECT(cpg_zcb_mcast_joined(handle, CPG_TYPE_AGREED, buffer, 5000), CS_OK);
	EXPECT(cpg_zcb_free(handle, buffer), CS_OK);
	until_messages(handle, 5);
	CHECK(told.length == 5000 && told.bytes[0] == 0xee && told.bytes[4999] == 0xee);

	cpg_flow_control_state_t flow = CPG_FLOW_CONTROL_ENABLED;
	EXPECT(cpg_flow_control_state_get(handle, &flow), CS_OK);
	CHECK(flow == CPG_FLOW_CONTROL_DISABLED);

	/* It is out when it is told so, and may come into another group then. */
	EXPECT(mcast(handle, CPG_TYPE_AGREED, "last", 4), CS_OK);
	EXPECT(cpg_leave(handle, &group), CS_OK);
	cannot_speak(handle);
	EXPECT(cpg_leave(handle, &group), CS_ERR_NOT_EXIST);
	while (told.changes < 2)
		EXPECT(cpg_dispatch(handle, CS_DISPATCH_ONE), CS_OK);
	CHECK(told.messages == 6 && told.length == 4);
	CHECK(told.last.left_count == 1 && told.last.left->reason == CPG_REASON_LEAVE && told.last.left->nodeid == node);
	CHECK(told.last.member_count == 0 && told.last.joined_count == 0);
	/* There a handle is in one group in all its life: the second join waits for ever. */
	if (!getenv("COROSYNC")) {
		EXPECT(join(handle, &other), CS_OK);
		EXPECT(join(second, &group), CS_OK);
	}
	EXPECT(cpg_finalize(second), CS_OK);
	EXPECT(cpg_finalize(handle), CS_OK);
}

static void messages_of_all_sizes_come_whole_and_in_order(void)
{
	static const size_t sizes[] = { 1, 7, 63, 64, 127, 128, 5000, 16383, 16384, 32000, 32760, 32768, 40000, 200000, 1000000,
					1048569, 1048570, 3000000 };
	struct cpg_name group = named("test-sizes");
	cpg_handle_t handle = initialized();
	forget();
	EXPECT(join(handle, &group), CS_OK);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !failed; i++) {
		unsigned char *bytes = malloc(sizes[i]);
		for (size_t at = 0; at < sizes[i]; at++)
			bytes[at] = (unsigned char)(at * 7 + i);
		EXPECT(mcast(handle, CPG_TYPE_AGREED, bytes, sizes[i]), CS_OK);
		EXPECT(mcast(handle, CPG_TYPE_AGREED, "behind it", 9), CS_OK);
		until_messages(handle, (int)i * 2 + 1);
		if (told.length != sizes[i] || memcmp(told.bytes, bytes, sizes[i])) {
			fprintf(stderr, "%zu bytes came as %zu, or as others\n", sizes[i], told.length);
			failed = 1;
		}
		until_messages(handle, (int)i * 2 + 2);
		CHECK(told.length == 9);
		free(bytes);
	}
	EXPECT(cpg_finalize(handle), CS_OK);
}

static void the_descriptor_is_readable_while_something_is_there(void)
{
	struct cpg_name group = named("test-poll");
	cpg_handle_t handle = initialized();
	forget();
	EXPECT(join(handle, &group), CS_OK);
	for (int i = 0; i < 100; i++)
		EXPECT(mcast(handle, CPG_TYPE_AGREED, "hello", 5), CS_OK);
	for (int i = 0; i < 101 && !failed; i++) {
		CHECK(is_readable(handle, 5000));
		/* At most one, and never more than is there. */
		int before = told.messages + told.changes;
		cs_error_t result = cpg_dispatch(handle, CS_DISPATCH_ONE_NONBLOCKING);
		CHECK(result == CS_OK || result == CS_ERR_TRY_AGAIN);
		int now = told.messages + told.changes;
		CHECK(now == before + (result == CS_OK));
		i -= result != CS_OK;
	}
	CHECK(told.messages == 100 && told.changes == 1);
	/* What else the agent says is no callback; then nothing is there. */
	usleep(200000);
	EXPECT(cpg_dispatch(handle, CS_DISPATCH_ALL), CS_OK);
	CHECK(!is_readable(handle, 0));
	EXPECT(cpg_finalize(handle), CS_OK);
}

static int has_entry(cpg_handle_t handle, cpg_iteration_type_t type, const struct cpg_name *of, const struct cpg_name *group,
		     uint32_t nodeid, uint32_t pid, int *count)
{
	struct cpg_iteration_description_t entry;
	cpg_iteration_handle_t iteration;
	cs_error_t result;
	int found = 0;
	*count = 0;
	EXPECT(cpg_iteration_initialize(handle, type, of, &iteration), CS_OK);
	while ((result = cpg_iteration_next(iteration, &entry)) == CS_OK) {
		++*count;
		found += entry.group.length == group->length && !memcmp(entry.group.value, group->value, group->length) &&
			 entry.nodeid == nodeid && entry.pid == pid;
	}
	CHECK(result == CS_ERR_NO_SECTIONS);
	EXPECT(cpg_iteration_finalize(iteration), CS_OK);
	return found;
}

static void groups_and_members_are_listed(void)
{
	struct cpg_name group = named("test-listed"), long_name = { .length = 128 }, none = named("test-nobody");
	memset(long_name.value, 'n', 128);
	struct cpg_address list[128];
	int count = 128;
	cpg_handle_t handle = initialized(), other = initialized();
	cpg_iteration_handle_t iteration;
	unsigned int node = 0;
	uint32_t pid = (uint32_t)getpid();
	cpg_local_get(handle, &node);
	EXPECT(join(handle, &group), CS_OK);
	EXPECT(join(other, &long_name), CS_OK);
	EXPECT(cpg_dispatch(handle, CS_DISPATCH_ONE), CS_OK);
	EXPECT(cpg_dispatch(other, CS_DISPATCH_ONE), CS_OK);
	EXPECT(cpg_membership_get(handle, &group, list, &count), CS_OK);
	CHECK(count == 1 && list->nodeid == node && list->pid == pid);
	EXPECT(cpg_membership_get(handle, &none, list, &count), CS_OK);
	CHECK(count == 0);
	EXPECT(cpg_membership_get(handle, &long_name, list, &count), CS_OK);
	CHECK(count == 1 && list->pid == pid);
	CHECK(has_entry(handle, CPG_ITERATION_ALL, NULL, &group, node, pid, &count) == 1 && count >= 2);
	CHECK(has_entry(handle, CPG_ITERATION_ALL, NULL, &long_name, node, pid, &count) == 1);
	CHECK(has_entry(handle, CPG_ITERATION_ONE_GROUP, &group, &group, node, pid, &count) == 1 && count == 1);
	CHECK(has_entry(handle, CPG_ITERATION_ONE_GROUP, &none, &none, node, pid, &count) == 0 && count == 0);
	CHECK(has_entry(handle, CPG_ITERATION_NAME_ONLY, NULL, &group, 0, 0, &count) == 1);
	EXPECT(cpg_iteration_initialize(handle, CPG_ITERATION_ONE_GROUP, NULL, &iteration), CS_ERR_INVALID_PARAM);
	EXPECT(cpg_iteration_initialize(handle, CPG_ITERATION_ALL, &group, &iteration), CS_ERR_INVALID_PARAM);
	EXPECT(cpg_iteration_initialize(handle, CPG_ITERATION_ALL, NULL, NULL), CS_ERR_INVALID_PARAM);
	EXPECT(cpg_finalize(handle), CS_OK);
	EXPECT(cpg_finalize(other), CS_OK);
}

static void the_model_has_a_context_and_tells_the_ring(void)
{
	struct cpg_name group = named("test-model");
	cpg_model_v1_data_t model = { .model = CPG_MODEL_V1, .cpg_deliver_fn = deliver, .cpg_confchg_fn = change,
				      .cpg_totem_confchg_fn = totem, .flags = CPG_MODEL_V1_DELIVER_INITIAL_TOTEM_CONF };
	cpg_handle_t handle = 0;
	void *context = NULL;
	forget();
	EXPECT(cpg_model_initialize(&handle, (cpg_model_t)77, (cpg_model_data_t *)&model, NULL), CS_ERR_INVALID_PARAM);
	EXPECT(cpg_model_initialize(&handle, CPG_MODEL_V1, (cpg_model_data_t *)&model, &group), CS_OK);
	EXPECT(cpg_context_get(handle, &context), CS_OK);
	CHECK(context == &group);
	EXPECT(join(handle, &group), CS_OK);
	for (int i = 0; i < 500 && (!told.totems || !told.changes); i++) {
		EXPECT(cpg_dispatch(handle, CS_DISPATCH_ALL), CS_OK);
		usleep(10000);
	}
	CHECK(told.changes == 1 && told.totems == 1 && told.totem_nodes >= 1);
	EXPECT(cpg_finalize(handle), CS_OK);
}

static void *dispatch_on(void *of)
{
	cs_error_t result = cpg_dispatch(*(cpg_handle_t *)of, CS_DISPATCH_BLOCKING);
	return (void *)(uintptr_t)result;
}

static cpg_handle_t counted_handle;
static uint32_t next_number;

static void count_numbers(cpg_handle_t handle, const struct cpg_name *group, uint32_t nodeid, uint32_t pid, void *msg,
			  size_t length)
{
	(void)handle, (void)group, (void)nodeid, (void)pid;
	uint32_t number;
	CHECK(length == 64);
	memcpy(&number, msg, sizeof number);
	if (number == next_number)
		__atomic_store_n(&next_number, number + 1, __ATOMIC_SEQ_CST);
	else
		failed = 1;
}

/* Another thread dispatches; all messages come once and in order, and it ends when the handle does. */
static void a_thread_dispatches_while_another_sends(void)
{
	struct cpg_name group = named("test-threads");
	cpg_callbacks_t counts = { .cpg_deliver_fn = count_numbers };
	pthread_t thread;
	void *result = NULL;
	uint32_t message[16] = { 0 }, sent;
	EXPECT(cpg_initialize(&counted_handle, &counts), CS_OK);
	EXPECT(join(counted_handle, &group), CS_OK);
	pthread_create(&thread, NULL, dispatch_on, &counted_handle);
	for (sent = 0; sent < 100000 && !failed; sent++) {
		message[0] = sent;
		EXPECT(mcast(counted_handle, CPG_TYPE_AGREED, message, sizeof message), CS_OK);
	}
	for (int i = 0; i < 3000 && __atomic_load_n(&next_number, __ATOMIC_SEQ_CST) < sent; i++)
		usleep(10000);
	if (next_number != sent) {
		fprintf(stderr, "%u of %u messages came\n", next_number, sent);
		failed = 1;
	}
	EXPECT(cpg_finalize(counted_handle), CS_OK);
	/* There the thread waits for ever. */
	if (getenv("COROSYNC"))
		return;
	pthread_join(thread, &result);
	CHECK((uintptr_t)result == CS_OK);
}

/* Threads that send until they are told that they may not; at last that they have to stop. */
static struct {
	cpg_handle_t handle;
	size_t length;
	useconds_t pause_us;
	pthread_t threads[4];
	int taken, refused, stop, in_first, in_second, lefts, ends;
} senders;

static void *send_on(void *unused)
{
	char message[2000] = "first";
	struct iovec vector = { message, senders.length };
	cs_error_t result = CS_OK;
	while ((result == CS_OK || result == CS_ERR_TRY_AGAIN) && !__atomic_load_n(&senders.stop, __ATOMIC_SEQ_CST)) {
		result = cpg_mcast_joined(senders.handle, CPG_TYPE_AGREED, &vector, 1);
		if (result == CS_OK)
			__atomic_add_fetch(&senders.taken, 1, __ATOMIC_SEQ_CST);
		if (senders.pause_us)
			usleep(senders.pause_us);
	}
	if (result != CS_OK && result != CS_ERR_TRY_AGAIN)
		__atomic_add_fetch(&senders.refused, 1, __ATOMIC_SEQ_CST);
	return unused;
}

static void count_senders(cpg_handle_t handle, const struct cpg_name *group, uint32_t nodeid, uint32_t pid, void *msg,
			  size_t length)
{
	(void)handle, (void)nodeid, (void)pid, (void)msg;
	int is_second = group->length == strlen("test-second");
	if (length < senders.length)
		senders.ends++;
	else if (is_second)
		senders.in_second++;
	else
		senders.in_first++;
}

static void count_lefts(cpg_handle_t handle, const struct cpg_name *group, const struct cpg_address *members, size_t count,
			const struct cpg_address *left, size_t lefts, const struct cpg_address *joined, size_t joins)
{
	(void)handle, (void)group, (void)members, (void)count, (void)left, (void)joined, (void)joins;
	senders.lefts += (int)lefts;
}

/* They have said something, and go on. */
static void begin_to_send(const char *group_name, size_t length, useconds_t pause_us)
{
	struct cpg_name group = named(group_name);
	cpg_callbacks_t counts = { .cpg_deliver_fn = count_senders, .cpg_confchg_fn = count_lefts };
	memset(&senders, 0, sizeof senders);
	senders.length = length;
	senders.pause_us = pause_us;
	EXPECT(cpg_initialize(&senders.handle, &counts), CS_OK);
	EXPECT(join(senders.handle, &group), CS_OK);
	for (size_t i = 0; i < sizeof senders.threads / sizeof *senders.threads; i++)
		pthread_create(&senders.threads[i], NULL, send_on, NULL);
	while (__atomic_load_n(&senders.taken, __ATOMIC_SEQ_CST) < 100)
		usleep(100);
}

static void all_are_refused(void)
{
	int count = sizeof senders.threads / sizeof *senders.threads;
	for (int i = 0; i < count; i++)
		pthread_join(senders.threads[i], NULL);
	CHECK(senders.refused == count);
}

/* What it says that it takes comes in the group that it was said in. */
static void what_is_taken_while_another_thread_leaves_is_of_its_group(void)
{
	struct cpg_name first = named("test-first"), second = named("test-second");
	for (int round = 0; round < 60 && !failed && !getenv("COROSYNC"); round++) {
		/* A member leaves when nothing is under way, so there are moments without. */
		begin_to_send("test-first", 20, 300);
		EXPECT(cpg_leave(senders.handle, &first), CS_OK);
		while (!senders.lefts && !failed)
			EXPECT(cpg_dispatch(senders.handle, CS_DISPATCH_ONE), CS_OK);
		all_are_refused();
		EXPECT(join(senders.handle, &second), CS_OK);
		EXPECT(mcast(senders.handle, CPG_TYPE_AGREED, "end", 3), CS_OK);
		while (!senders.ends && !failed)
			EXPECT(cpg_dispatch(senders.handle, CS_DISPATCH_ONE), CS_OK);
		if (senders.in_first != senders.taken || senders.in_second) {
			fprintf(stderr, "of %d messages %d came, and %d in the next group\n", senders.taken, senders.in_first,
				senders.in_second);
			failed = 1;
		}
		EXPECT(cpg_finalize(senders.handle), CS_OK);
	}
}

static void *stop_senders(void *unused)
{
	for (int i = 0; i < 800 && !__atomic_load_n(&senders.ends, __ATOMIC_SEQ_CST); i++)
		usleep(10000);
	__atomic_store_n(&senders.stop, 1, __ATOMIC_SEQ_CST);
	return unused;
}

/* It does not wait for a moment in which nobody sends, but says that they may not. */
static void other_threads_that_send_are_ended(int by_finalize)
{
	struct cpg_name group = named("test-ended");
	pthread_t dispatcher, stopper;
	begin_to_send("test-ended", 2000, 0);
	pthread_create(&dispatcher, NULL, dispatch_on, &senders.handle);
	pthread_create(&stopper, NULL, stop_senders, NULL);
	if (!by_finalize)
		EXPECT(cpg_leave(senders.handle, &group), CS_OK);
	else
		EXPECT(cpg_finalize(senders.handle), CS_OK);
	CHECK(!__atomic_load_n(&senders.stop, __ATOMIC_SEQ_CST));
	all_are_refused();
	__atomic_store_n(&senders.ends, 1, __ATOMIC_SEQ_CST);
	pthread_join(stopper, NULL);
	if (!by_finalize)
		EXPECT(cpg_finalize(senders.handle), CS_OK);
	pthread_join(dispatcher, NULL);
}

static void a_thread_leaves_or_ends_the_handle_while_others_send(void)
{
	if (getenv("COROSYNC"))
		return;
	other_threads_that_send_are_ended(0);
	other_threads_that_send_are_ended(1);
}

static void *end_soon(void *of)
{
	usleep(1000000);
	__atomic_store_n(&senders.ends, 1, __ATOMIC_SEQ_CST);
	EXPECT(cpg_finalize(*(cpg_handle_t *)of), CS_OK);
	return NULL;
}

static void a_dispatch_that_does_not_wait_does_not_wait_for_another_thread(void)
{
	struct cpg_name group = named("test-waits");
	cpg_callbacks_t counts = { .cpg_deliver_fn = count_numbers };
	cpg_handle_t handle = 0;
	pthread_t dispatcher, ender;
	uint32_t message[16] = { 0 };
	if (getenv("COROSYNC"))
		return;
	next_number = senders.ends = 0;
	EXPECT(cpg_initialize(&handle, &counts), CS_OK);
	EXPECT(join(handle, &group), CS_OK);
	pthread_create(&dispatcher, NULL, dispatch_on, &handle);
	EXPECT(mcast(handle, CPG_TYPE_AGREED, message, sizeof message), CS_OK);
	while (!__atomic_load_n(&next_number, __ATOMIC_SEQ_CST))
		usleep(1000);
	pthread_create(&ender, NULL, end_soon, &handle);
	EXPECT(cpg_dispatch(handle, CS_DISPATCH_ALL), CS_OK);
	EXPECT(cpg_dispatch(handle, CS_DISPATCH_ONE_NONBLOCKING), CS_ERR_TRY_AGAIN);
	CHECK(!__atomic_load_n(&senders.ends, __ATOMIC_SEQ_CST));
	pthread_join(ender, NULL);
	pthread_join(dispatcher, NULL);
}

static void a_callback_may_end_the_handle(void)
{
	struct cpg_name group = named("test-finalize");
	cpg_handle_t handle = initialized();
	forget();
	EXPECT(join(handle, &group), CS_OK);
	for (int i = 0; i < 10; i++)
		EXPECT(mcast(handle, CPG_TYPE_AGREED, "x", 1), CS_OK);
	told.to_finalize = handle;
	while (!told.messages)
		EXPECT(cpg_dispatch(handle, CS_DISPATCH_ONE), CS_OK);
	CHECK(told.messages == 1);
	EXPECT(cpg_dispatch(handle, CS_DISPATCH_ALL), CS_ERR_BAD_HANDLE);
	forget();
}

static void names_are_any_bytes(void)
{
	/* Different groups, although they look alike in some way. */
	struct cpg_name names[] = { name_of("n", 1), name_of("n\0", 2), name_of("N", 1), name_of("\xff\xfe", 2), name_of("", 0),
				    name_of("n/n", 3), { .length = 128 }, { .length = 128 } };
	enum { COUNT = sizeof names / sizeof *names };
	cpg_handle_t handles[COUNT];
	memset(names[6].value, 'x', 128);
	memset(names[7].value, 'x', 128);
	names[7].value[127] = 'y';
	for (int i = 0; i < COUNT; i++) {
		handles[i] = initialized();
		EXPECT(join(handles[i], &names[i]), CS_OK);
	}
	for (int i = 0; i < COUNT; i++) {
		forget();
		EXPECT(mcast(handles[i], CPG_TYPE_AGREED, "own", 3), CS_OK);
		until_messages(handles[i], 1);
		CHECK(told.messages == 1 && told.last.member_count == 1);
		EXPECT(cpg_dispatch(handles[i], CS_DISPATCH_ALL), CS_OK);
		CHECK(told.messages == 1);
	}
	for (int i = 0; i < COUNT; i++)
		EXPECT(cpg_finalize(handles[i]), CS_OK);
}

int main(int count, char **words)
{
	cpg_handle_t handle = 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (count > 1 && !strcmp(words[1], "absent")) {
		EXPECT(cpg_initialize(&handle, &callbacks), CS_ERR_LIBRARY);
		return failed;
	}
	static const struct {
		const char *name;
		void (*run)(void);
	} stories[] = {
		{ "bad_handles_are_told", bad_handles_are_told },
		{ "what_is_not_joined_cannot_speak", what_is_not_joined_cannot_speak },
		{ "one_joins_speaks_and_leaves", one_joins_speaks_and_leaves },
		{ "messages_of_all_sizes_come_whole_and_in_order", messages_of_all_sizes_come_whole_and_in_order },
		{ "the_descriptor_is_readable_while_something_is_there", the_descriptor_is_readable_while_something_is_there },
		{ "groups_and_members_are_listed", groups_and_members_are_listed },
		{ "the_model_has_a_context_and_tells_the_ring", the_model_has_a_context_and_tells_the_ring },
		{ "a_thread_dispatches_while_another_sends", a_thread_dispatches_while_another_sends },
		{ "what_is_taken_while_another_thread_leaves_is_of_its_group",
		  what_is_taken_while_another_thread_leaves_is_of_its_group },
		{ "a_thread_leaves_or_ends_the_handle_while_others_send", a_thread_leaves_or_ends_the_handle_while_others_send },
		{ "a_dispatch_that_does_not_wait_does_not_wait_for_another_thread",
		  a_dispatch_that_does_not_wait_does_not_wait_for_another_thread },
		{ "a_callback_may_end_the_handle", a_callback_may_end_the_handle },
		{ "names_are_any_bytes", names_are_any_bytes },
	};
	int any = 0;
	for (size_t i = 0; i < sizeof stories / sizeof *stories; i++) {
		failed = 0;
		stories[i].run();
		printf("  %s: %s\n", stories[i].name, failed ? "FAILED" : "passed");
		any |= failed;
	}
	return any;
}
