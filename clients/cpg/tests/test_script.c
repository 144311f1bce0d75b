/* What no real agent does at will: an agent that is a script says its lines in an order that a program has to bear.
 * Only <corosync/cpg.h> is included of the library. */
#include <corosync/cpg.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.h"

/* ---- an agent that is a script ---- */

static struct {
	int listener, fd;
	char in[65536], *line; /* `line` is the last one; what is behind it up to `end` is still to be heard */
	size_t begin, end;
	unsigned long long id, lock_id; /* of the last line, and of the last one that asked for a lock */
	int has_entry;			/* the member has put its entry to the map */
	char client[64], path[108];
	pthread_t thread;
} agent;

/* `$ID` and `$LOCK` stand for these ids, `$ME` for the member, `$0` for NUL. All of it goes in one segment. */
static void say(const char *text)
{
	char out[8192], *to = out;
	while (*text) {
		if (!strncmp(text, "$ID", 3))
			to += sprintf(to, "%llu", agent.id), text += 3;
		else if (!strncmp(text, "$LOCK", 5))
			to += sprintf(to, "%llu", agent.lock_id), text += 5;
		else if (!strncmp(text, "$ME", 3))
			to += sprintf(to, "n/%s", agent.client), text += 3;
		else if (!strncmp(text, "$0", 2))
			*to++ = 0, text += 2;
		else
			*to++ = *text++;
	}
	CHECK(send(agent.fd, out, (size_t)(to - out), MSG_NOSIGNAL) == to - out);
}

/* The next line, without its end; "" if there is none within the time. */
static const char *hear(void)
{
	char *end;
	while (!(end = memchr(agent.in + agent.begin, '\n', agent.end - agent.begin))) {
		ssize_t got = recv(agent.fd, agent.in + agent.end, sizeof agent.in - agent.end, 0);
		if (got <= 0)
			return "";
		agent.end += (size_t)got;
	}
	*end = 0;
	agent.line = agent.in + agent.begin;
	agent.begin = (size_t)(end - agent.in) + 1;
	const char *id = strstr(agent.line, "\"id\":");
	if (id)
		agent.id = strtoull(id + strlen("\"id\":"), NULL, 10);
	if (!strncmp(agent.line, "{\"lock\":", strlen("{\"lock\":")))
		agent.lock_id = agent.id;
	return agent.line;
}

static int hears(const char *begin)
{
	const char *line = hear();
	int does = !strncmp(line, begin, strlen(begin));
	if (!does) {
		fprintf(stderr, "expected %s, came \"%.200s\"\n", begin, line);
		failed = 1;
	}
	return does;
}

#define GRANT(token) "{\"event\":\"reply\",\"op\":\"lock\",\"id\":$LOCK,\"token\":" token "}\n"
#define REPLY(more) "{\"event\":\"reply\",\"op\":\"x\",\"id\":$ID" more "}\n"
#define VIEW(group) "{\"event\":\"view\",\"group\":\"cpg/" group "\",\"members\":[\"n/cpg-7-7\",\"$ME\"],\"joined\":[\"$ME\"],\"left\":[],\"crashed\":[]}\n"
#define MESSAGE(...) MESSAGE_OF(__VA_ARGS__)
#define MESSAGE_OF(group, length, bytes) "{\"event\":\"message\",\"group\":\"cpg/" group "\",\"sender\":\"n/cpg-7-7\",\"seq\":1,\"payload\":{\"bytes\":" length "}}\n" bytes
#define LEFT(group) "{\"event\":\"group_left\",\"group\":\"cpg/" group "\"}\n"

/* Says welcome, and that the first join is done. */
static void begin(void)
{
	struct timeval most = { .tv_sec = 8 };
	agent.fd = accept(agent.listener, NULL, NULL);
	setsockopt(agent.fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
	CHECK(hears("{\"hello\":{\"name\":") && sscanf(agent.line, "{\"hello\":{\"name\":\"%63[^\"]", agent.client) == 1);
	char welcome[256];
	snprintf(welcome, sizeof welcome, REPLY(",\"welcome\":{\"client\":\"%s\",\"node\":\"n\",\"cluster\":\"c\",\"build\":\"b\"}"), agent.client);
	say(welcome);
	hears("{\"join\":{\"bytes\":true,\"group\":\"cpg/g1\"");
	say(REPLY("") VIEW("g1"));
	hears("{\"lock\":{\"name\":\"n/cpg-");
	/* Another one may have the lock for a moment. */
	CHECK(!strstr(agent.line, "within"));
}

static void hears_entry(const char *group)
{
	hears("{\"put\":{\"map\":\"cpg\",\"key\":\"n/cpg-");
	CHECK(strstr(agent.line, group) != NULL);
	__atomic_store_n(&agent.has_entry, 1, __ATOMIC_SEQ_CST);
}

static void takes_into_second(void)
{
	hears("{\"join\":{\"bytes\":true,\"group\":\"cpg/g2\"");
	say(REPLY("") VIEW("g2"));
	hears("{\"lock\":{\"name\":\"n/cpg-");
	say(GRANT("78"));
	hears_entry("\"value\":\"g2\"");
}

static void *run(void *plays)
{
	((void (*)(void))plays)();
	while (*hear())
		;
	close(agent.fd);
	return NULL;
}

/* ---- a program ---- */

/* What callbacks were told, a word for each. */
static char told[1024];

static void tell(const struct cpg_name *group, const char *what, size_t length)
{
	size_t at = strlen(told);
	snprintf(told + at, sizeof told - at, "%s%.*s:%.*s", at ? " " : "", (int)group->length, group->value, (int)length, what);
}

static void deliver(cpg_handle_t handle, const struct cpg_name *group, uint32_t nodeid, uint32_t pid, void *msg, size_t length)
{
	(void)handle, (void)nodeid, (void)pid;
	tell(group, msg, length);
}

static struct cpg_name first = { .length = 2, .value = "g1" }, second = { .length = 2, .value = "g2" };
static int joins_when_it_left;

static void change(cpg_handle_t handle, const struct cpg_name *group, const struct cpg_address *members, size_t count,
		   const struct cpg_address *left, size_t lefts, const struct cpg_address *joined, size_t joins)
{
	(void)members, (void)left, (void)joined;
	if (lefts && joins_when_it_left)
		EXPECT(cpg_join(handle, &second), CS_OK);
	tell(group, lefts ? "left" : joins ? "joined" : "?", 6);
	CHECK(count == (lefts ? 1 : 2));
}

static cpg_callbacks_t callbacks = { .cpg_deliver_fn = deliver, .cpg_confchg_fn = change };

/* A handle that has joined g1. */
static cpg_handle_t joined_first(void (*plays)(void))
{
	static int number;
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	cpg_handle_t handle = 0;
	*told = 0;
	agent.begin = agent.end = 0;
	agent.has_entry = 0;
	snprintf(agent.path, sizeof agent.path, "/tmp/antiphon-cpg-%d-%d", (int)getpid(), number++);
	strcpy(address.sun_path, agent.path);
	agent.listener = socket(AF_UNIX, SOCK_STREAM, 0);
	if (bind(agent.listener, (struct sockaddr *)&address, sizeof address) || listen(agent.listener, 1)) {
		perror(agent.path);
		exit(1);
	}
	setenv("ANTIPHON_SOCKET", agent.path, 1);
	pthread_create(&agent.thread, NULL, run, (void *)plays);
	EXPECT(cpg_initialize(&handle, &callbacks), CS_OK);
	EXPECT(cpg_join(handle, &first), CS_OK);
	return handle;
}

static void dispatch_one(cpg_handle_t handle)
{
	struct pollfd fd = { .events = POLLIN };
	EXPECT(cpg_fd_get(handle, &fd.fd), CS_OK);
	for (int i = 0; i < 100 && poll(&fd, 1, 5000) == 1; i++)
		if (cpg_dispatch(handle, CS_DISPATCH_ONE_NONBLOCKING) == CS_OK)
			return;
	CHECK(!"a callback came in time");
}

static void dispatch_until_it_has_an_entry(cpg_handle_t handle)
{
	for (int i = 0; i < 5000 && !__atomic_load_n(&agent.has_entry, __ATOMIC_SEQ_CST); i++) {
		EXPECT(cpg_dispatch(handle, CS_DISPATCH_ALL), CS_OK);
		usleep(1000);
	}
	CHECK(agent.has_entry);
}

static void is_told(const char *words)
{
	if (!strcmp(told, words))
		return;
	fprintf(stderr, "told \"%s\", not \"%s\"\n", told, words);
	failed = 1;
}

static void ends(cpg_handle_t handle)
{
	EXPECT(cpg_finalize(handle), CS_OK);
	pthread_join(agent.thread, NULL);
	close(agent.listener);
	unlink(agent.path);
}

/* ---- stories ---- */

static void grants_the_lock_behind_the_leave(void)
{
	begin();
	hears("{\"leave\":{\"group\":\"cpg/g1\"");
	say(GRANT("77"));
	hears("{\"unlock\":{\"token\":77,\"name\":\"n/cpg-");
	say(LEFT("g1"));
	takes_into_second();
}

/* From the first group to the second, where the member gets its entry. */
static void has_an_entry_in_the_second(void (*plays)(void))
{
	cpg_handle_t handle = joined_first(plays);
	EXPECT(cpg_leave(handle, &first), CS_OK);
	dispatch_one(handle);
	dispatch_one(handle);
	EXPECT(cpg_join(handle, &second), CS_OK);
	dispatch_one(handle);
	dispatch_until_it_has_an_entry(handle);
	is_told("g1:joined g1:left g2:joined");
	ends(handle);
}

static void a_lock_that_is_granted_behind_the_leave_is_given_back(void)
{
	has_an_entry_in_the_second(grants_the_lock_behind_the_leave);
}

static void grants_the_lock_in_the_next_group(void)
{
	begin();
	hears("{\"leave\":{\"group\":\"cpg/g1\"");
	say(LEFT("g1"));
	hears("{\"join\":{\"bytes\":true,\"group\":\"cpg/g2\"");
	say(REPLY("") VIEW("g2") GRANT("77"));
	hears_entry("\"value\":\"g2\"");
}

static void a_lock_that_is_granted_in_the_next_group_is_kept_for_it(void)
{
	has_an_entry_in_the_second(grants_the_lock_in_the_next_group);
}

static void says_all_that_is_left_at_once(void)
{
	begin();
	say(GRANT("77"));
	hears_entry("\"value\":\"g1\"");
	hears("{\"leave\":{\"group\":\"cpg/g1\"");
	hears("{\"remove\":{\"map\":\"cpg\",\"key\":\"n/cpg-");
	hears("{\"unlock\":{\"token\":77,\"name\":\"n/cpg-");
	say(MESSAGE("g1", "4", "mone") MESSAGE("g1", "4", "mtwo") LEFT("g1"));
	takes_into_second();
	say(MESSAGE("g2", "6", "mthree"));
}

/* One message of what is left is told, and the rest is read. */
static cpg_handle_t left_first(void (*plays)(void))
{
	cpg_handle_t handle = joined_first(plays);
	dispatch_until_it_has_an_entry(handle);
	EXPECT(cpg_leave(handle, &first), CS_OK);
	dispatch_one(handle);
	is_told("g1:joined g1:one");
	return handle;
}

static void a_group_is_told_under_its_own_name_to_its_end(void)
{
	cpg_handle_t handle = left_first(says_all_that_is_left_at_once);
	EXPECT(cpg_join(handle, &second), CS_ERR_BUSY);
	dispatch_one(handle);
	EXPECT(cpg_join(handle, &second), CS_ERR_BUSY);
	dispatch_one(handle);
	EXPECT(cpg_join(handle, &second), CS_OK);
	dispatch_one(handle);
	dispatch_one(handle);
	is_told("g1:joined g1:one g1:two g1:left g2:joined g2:three");
	ends(handle);
}

/* The first 2 of 8 bytes; and the last 6. */
#define FIRST_PART "12", "\xfa\1\10$0$0$0$0$0$0$0ab"
#define LAST_PART "8", "\xfa\2cdefgh"

static void says_parts_of_two_messages(void)
{
	begin();
	say(GRANT("77"));
	hears_entry("\"value\":\"g1\"");
	hears("{\"leave\":{\"group\":\"cpg/g1\"");
	hears("{\"remove\":{\"map\":\"cpg\",\"key\":\"n/cpg-");
	hears("{\"unlock\":{\"token\":77,\"name\":\"n/cpg-");
	say(MESSAGE("g1", "4", "mone") MESSAGE("g1", FIRST_PART) LEFT("g1"));
	takes_into_second();
	say(MESSAGE("g2", LAST_PART) MESSAGE("g2", "6", "mth"));
	poll(NULL, 0, 20);
	say("ree" MESSAGE("other", "2", "no") MESSAGE("g2", "5", "mfour"));
}

static void the_parts_of_a_message_are_of_one_group(void)
{
	cpg_handle_t handle = left_first(says_parts_of_two_messages);
	dispatch_one(handle);
	EXPECT(cpg_join(handle, &second), CS_OK);
	dispatch_one(handle);
	dispatch_one(handle);
	dispatch_one(handle);
	is_told("g1:joined g1:one g1:left g2:joined g2:three g2:four");
	ends(handle);
}

static void the_callback_that_tells_the_leave_may_join(void)
{
	joins_when_it_left = 1;
	cpg_handle_t handle = left_first(says_all_that_is_left_at_once);
	for (int i = 0; i < 4; i++)
		dispatch_one(handle);
	joins_when_it_left = 0;
	is_told("g1:joined g1:one g1:two g1:left g2:joined g2:three");
	ends(handle);
}

int main(void)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} stories[] = {
		{ "a_lock_that_is_granted_behind_the_leave_is_given_back", a_lock_that_is_granted_behind_the_leave_is_given_back },
		{ "a_lock_that_is_granted_in_the_next_group_is_kept_for_it", a_lock_that_is_granted_in_the_next_group_is_kept_for_it },
		{ "a_group_is_told_under_its_own_name_to_its_end", a_group_is_told_under_its_own_name_to_its_end },
		{ "the_parts_of_a_message_are_of_one_group", the_parts_of_a_message_are_of_one_group },
		{ "the_callback_that_tells_the_leave_may_join", the_callback_that_tells_the_leave_may_join },
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
