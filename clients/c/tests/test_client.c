/* The library: with a peer that says what a script has, and with a real agent if ANTIPHON_BIN is set. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "antiphon.h"
#include "link.h"
#include "real.h"

/* ---- a peer with a script ---- */

/* Takes one connection, answers its hello, says the rest after so many further lines, and ends when it
 * is to. */
struct peer {
	int listener;
	int lines;
	const char *says;
	size_t repeat;
	bool stays, resumes;
	const char *until; /* if it stays: it ends when it was told this, or nothing for 5 s */
	char heard[8192];  /* of what it was told first */
	char path[108];
	pthread_t thread;
};

static void say(int fd, const char *text)
{
	size_t length = strlen(text);
	while (length) {
		ssize_t put = send(fd, text, length, MSG_NOSIGNAL);
		if (put <= 0)
			return;
		text += put;
		length -= (size_t)put;
	}
}

#define WELCOME(more)                                                                                             \
	"{\"event\":\"reply\",\"op\":\"hello\",\"id\":1,\"welcome\":{\"client\":\"t\",\"node\":\"n\"," \
	"\"cluster\":\"c\",\"build\":\"b\"" more "}}\n"

static void *run_peer(void *of)
{
	struct peer *peer = of;
	int fd = accept(peer->listener, NULL, NULL), lines = 0;
	size_t heard = 0;
	char c;
	while (lines <= peer->lines && read(fd, &c, 1) == 1) {
		if (heard + 1 < sizeof peer->heard)
			peer->heard[heard++] = c;
		if (c != '\n')
			continue;
		if (!lines++)
			say(fd, peer->resumes ? WELCOME(",\"resume\":\"KEY\"") : WELCOME(""));
	}
	for (size_t i = 0; i < peer->repeat; i++)
		say(fd, peer->says);
	if (peer->until)
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){ .tv_sec = 5 }, sizeof(struct timeval));
	while (peer->stays && !(peer->until && strstr(peer->heard, peer->until)) && read(fd, &c, 1) == 1)
		if (heard + 1 < sizeof peer->heard)
			peer->heard[heard++] = c;
	close(fd);
	close(peer->listener);
	return NULL;
}

static antiphon *connected_with(struct peer *peer, int grace_ms)
{
	static int number;
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	snprintf(peer->path, sizeof peer->path, "/tmp/antiphon-test-%d-%d", (int)getpid(), number++);
	strcpy(address.sun_path, peer->path);
	peer->listener = socket(AF_UNIX, SOCK_STREAM, 0);
	if (bind(peer->listener, (struct sockaddr *)&address, sizeof address) || listen(peer->listener, 1)) {
		perror(peer->path);
		exit(1);
	}
	pthread_create(&peer->thread, NULL, run_peer, peer);
	antiphon_error error;
	const antiphon_options options = { .size = sizeof options, .name = "t", .grace_ms = grace_ms };
	antiphon *client = antiphon_connect_with(peer->path, &options, 5000, &error);
	if (!client) {
		fprintf(stderr, "connect: %s\n", error.reason);
		exit(1);
	}
	return client;
}

static antiphon *connected(struct peer *peer)
{
	return connected_with(peer, 0);
}

static void end_peer(struct peer *peer, antiphon *client)
{
	antiphon_drop(client);
	pthread_join(peer->thread, NULL);
	unlink(peer->path);
}

static void what_waits_is_told_that_the_connection_is_over(void)
{
	struct peer peer = { .lines = 2, .says = "{\"event\":\"refused\",\"group\":null,\"reason\":\"go away\",\"fatal\":true}\n",
			     .repeat = 1 };
	antiphon *client = connected(&peer);
	antiphon_error error;
	antiphon_event *event;
	uint64_t lock = antiphon_start(client, &(antiphon_request){ .op = ANTIPHON_LOCK, .name = "x", .within_ms = -1 }, &error);
	uint64_t get = antiphon_start(client, &(antiphon_request){ .op = ANTIPHON_GET, .name = "m", .key = "k" }, &error);
	CHECK(lock && get);
	MUST(antiphon_wait(client, get, 5000, &event, &error) == 0 && event->error.code == ANTIPHON_CONNECTION);
	CHECK(event->error.ran == ANTIPHON_RAN_MAYBE && !strcmp(event->error.reason, "go away"));
	antiphon_event_free(event);
	MUST(antiphon_next(client, 0, &event, &error) == 1 && event->kind == ANTIPHON_REPLY && event->id == lock);
	antiphon_event_free(event);
	MUST(antiphon_next(client, 0, &event, &error) == 1 && event->kind == ANTIPHON_CLOSED);
	CHECK(!strcmp(event->cause, "go away"));
	antiphon_event_free(event);
	CHECK(antiphon_next(client, -1, &event, &error) == -1 && error.code == ANTIPHON_CONNECTION);
	CHECK(!antiphon_start(client, &(antiphon_request){ .op = ANTIPHON_MEMBERS }, &error));
	CHECK(error.code == ANTIPHON_CONNECTION && error.ran == ANTIPHON_RAN_NO);
	CHECK(antiphon_send(client, "g", "x", 1, 0, &error) == -1 && error.code == ANTIPHON_CONNECTION);
	end_peer(&peer, client);
}

static void a_call_that_waits_keeps_events_up_to_the_bound(void)
{
	struct peer peer = { .lines = 1, .repeat = 20000, .stays = true,
			     .says = "{\"event\":\"message\",\"group\":\"g\",\"view\":\"1.1.0\",\"sender\":\"n/t\",\"seq\":1,\"payload\":\"hello\"}\n" };
	antiphon *client = connected(&peer);
	antiphon_set_queue_bytes(client, 1 << 20);
	antiphon_error error;
	antiphon_value value;
	CHECK(antiphon_get(client, "m", "k", true, 5000, &value, &error) == -1);
	CHECK(error.code == ANTIPHON_UNAVAILABLE && error.ran == ANTIPHON_RAN_MAYBE);
	/* One event has about 500 bytes here, and some 256 KiB are read at once. */
	CHECK(antiphon_pending(client) > 1000 && antiphon_pending(client) < 5000);
	antiphon_event *event;
	size_t count = 0;
	while (count < 20000 && antiphon_next(client, 5000, &event, &error) == 1) {
		CHECK(event->kind == ANTIPHON_MESSAGE && event->data.length == 5 && !strcmp(event->sender, "n/t"));
		antiphon_event_free(event);
		count++;
	}
	CHECK(count == 20000);
	end_peer(&peer, client);
}

#define BUNDLE(payloads)                                                                    \
	"{\"event\":\"bundle\",\"group\":\"g\",\"view\":\"1.1.0\",\"sender\":\"n/t\",\"seq\":7," \
	"\"safe\":true,\"payloads\":[" payloads "]}\n"

static void a_bundle_is_told_as_messages_with_their_parts(void)
{
	struct peer peer = { .lines = 1, .repeat = 1, .stays = true,
			     .says = BUNDLE("\"one\",{\"base64\":\"/wD+\"},\"\",\"gr\\u00fc\\u00dfe\"")
				     "{\"event\":\"message\",\"group\":\"g\",\"seq\":8,\"part\":3,\"payload\":\"x\"}\n"
				     "{\"event\":\"reply\",\"op\":\"join\",\"id\":2}\n" };
	static const antiphon_bytes told[] = { { "one", 3 }, { "\xff\0\xfe", 3 }, { "", 0 }, { "gr\xc3\xbc\xc3\x9f" "e", 7 } };
	antiphon *client = connected(&peer);
	antiphon_error error;
	antiphon_event *event;
	CHECK(!antiphon_join(client, "g", 5000, &error) && antiphon_pending(client) == 5);
	for (uint32_t part = 0; part < 4; part++) {
		MUST(antiphon_next(client, 5000, &event, &error) == 1 && event->kind == ANTIPHON_MESSAGE);
		CHECK(event->seq == 7 && event->part == part && event->safe && event->data.length == told[part].length);
		CHECK(!memcmp(event->data.bytes, told[part].bytes, told[part].length + 1));
		CHECK(!strcmp(event->sender, "n/t") && !strcmp(event->name, "g") && !strcmp(event->view, "1.1.0"));
		antiphon_event_free(event);
	}
	MUST(antiphon_next(client, 5000, &event, &error) == 1 && event->seq == 8 && event->part == 3);
	antiphon_event_free(event);
	end_peer(&peer, client);
	CHECK(strstr(peer.heard, "{\"join\":{\"group\":\"g\",\"bundles\":true,\"id\":2}}\n") != NULL);
}

static void a_bundle_is_taken_apart_as_it_is_read_and_comes_before_the_end(void)
{
	static char says[16384] = BUNDLE("\"x\"");
	char *end = strstr(says, "]}");
	for (int i = 1; i < 3000; i++)
		end += sprintf(end, ",\"x\"");
	strcpy(end, "]}\n");
	struct peer peer = { .lines = 1, .repeat = 1, .says = says };
	antiphon *client = connected(&peer);
	antiphon_set_queue_bytes(client, 1 << 19);
	antiphon_error error;
	antiphon_event *event;
	uint64_t lock = antiphon_start(client, &(antiphon_request){ .op = ANTIPHON_LOCK, .name = "x", .within_ms = -1 }, &error);
	CHECK(antiphon_wait(client, lock, 5000, &event, &error) == -1 && error.code == ANTIPHON_UNAVAILABLE);
	CHECK(antiphon_pending(client) == 3000);
	for (uint32_t part = 0; part < 3000; part++) {
		MUST(antiphon_next(client, 5000, &event, &error) == 1 && event->kind == ANTIPHON_MESSAGE && event->part == part);
		antiphon_event_free(event);
	}
	MUST(antiphon_next(client, 5000, &event, &error) == 1 && event->kind == ANTIPHON_REPLY && event->id == lock);
	antiphon_event_free(event);
	end_peer(&peer, client);
}

static void several_payloads_are_said_in_one_line_and_refused_one_by_one(void)
{
	struct peer peer = { .lines = 2, .repeat = 1, .stays = true,
			     .says = "{\"event\":\"refused\",\"group\":\"g\",\"reason\":\"no\",\"request\":{\"send_bundle\":"
				     "{\"group\":\"g\",\"payloads\":[\"p\",{\"base64\":\"/w==\"}]}}}\n"
				     "{\"event\":\"reply\",\"op\":\"send_bundle\",\"id\":2}\n" };
	static const antiphon_bytes payloads[] = { { "one", 3 }, { "\xff\0\xfe", 3 }, { NULL, 0 } };
	static const char *const not_sent[] = { "p", "\xff" };
	antiphon *client = connected(&peer);
	antiphon_error error;
	antiphon_event *event;
	CHECK(!antiphon_send_bundle(client, "g", payloads, 2, 0, &error));
	CHECK(!antiphon_send_bundle_wait(client, "g", payloads, 3, ANTIPHON_SAFE, 5000, &error));
	for (int part = 0; part < 2; part++) {
		MUST(antiphon_next(client, 5000, &event, &error) == 1 && event->kind == ANTIPHON_NOT_SENT);
		CHECK(!strcmp(event->name, "g") && !strcmp(event->cause, "no") && !strcmp(event->data.bytes, not_sent[part]));
		antiphon_event_free(event);
	}
	CHECK(antiphon_send_bundle(client, "g", payloads, 0, 0, &error) == -1 && error.code == ANTIPHON_INVALID);
	static const char zeros[2 << 20];
	const antiphon_bytes large[] = { { zeros, sizeof zeros }, { zeros, 1 } };
	CHECK(antiphon_send_bundle(client, "g", large, 2, 0, &error) == -1 && error.code == ANTIPHON_REFUSED);
	end_peer(&peer, client);
	CHECK(strstr(peer.heard, "{\"send_bundle\":{\"group\":\"g\",\"payloads\":[\"one\",{\"base64\":\"/wD+\"}]}}\n"
				 "{\"send_bundle\":{\"group\":\"g\",\"payloads\":[\"one\",{\"base64\":\"/wD+\"},\"\"],"
				 "\"safe\":true,\"id\":2}}\n") != NULL);
}

/* The replies of a client that comes back have the names of what was asked, and all else besides. */
static void a_client_that_comes_back_is_told_all_that_nodes_answered(void)
{
	struct peer peer = { .lines = 2, .repeat = 1, .stays = true, .resumes = true,
			     .says = "{\"event\":\"reply\",\"op\":\"call\",\"id\":2,\"replies\":{\"a\":\"yes\",\"c\":"
				     "{\"base64\":\"/w==\"}},\"failures\":{\"b\":{\"code\":\"lost\",\"reason\":\"it is gone\","
				     "\"ran\":\"maybe\",\"payload\":\"left\"}}}\n"
				     "{\"event\":\"why\",\"node\":\"b\",\"facts\":[\"joined\",\"was slow\",\"left\"]}\n" };
	antiphon *client = connected_with(&peer, 3000);
	antiphon_error error;
	antiphon_event *event;
	const antiphon_request call = { .op = ANTIPHON_CALL, .name = "g", .key = "v", .to = "all", .data = { "?", 1 } };
	uint64_t asked = antiphon_start(client, &call, &error);
	uint64_t why = antiphon_start(client, &(antiphon_request){ .op = ANTIPHON_WHY, .name = "b" }, &error);
	MUST(asked == 2 && !antiphon_wait(client, asked, 5000, &event, &error) && event->answer_count == 3);
	CHECK(!strcmp(event->name, "g") && !strcmp(event->answers[0].node, "a") && !event->answers[0].error.code);
	CHECK(!strcmp(event->answers[0].data.bytes, "yes") && !strcmp(event->answers[1].data.bytes, "\xff"));
	CHECK(!strcmp(event->answers[2].node, "b") && event->answers[2].error.code == ANTIPHON_LOST);
	CHECK(!strcmp(event->answers[2].error.reason, "it is gone") && !strcmp(event->answers[2].data.bytes, "left"));
	antiphon_event_free(event);
	MUST(!antiphon_wait(client, why, 5000, &event, &error) && event->facts.count == 3);
	CHECK(!strcmp(event->name, "b") && !strcmp(event->facts.names[0], "joined"));
	CHECK(!strcmp(event->facts.names[1], "was slow") && !strcmp(event->facts.names[2], "left"));
	antiphon_event_free(event);
	end_peer(&peer, client);
}

static void an_answer_that_the_agent_does_not_take_is_refused(void)
{
	struct peer peer = { .lines = 4, .stays = true };
	static char large[(1 << 20) + 1];
	antiphon *client = connected(&peer);
	antiphon_error error;
	memset(large, 'x', sizeof large);
	CHECK(antiphon_answer(client, 1, large, 59745, &error) == -1 && error.code == ANTIPHON_REFUSED);
	CHECK(strstr(error.reason, "at most 59744 bytes") && error.ran == ANTIPHON_RAN_NO);
	CHECK(!antiphon_answer(client, 1, large, 59744, &error));
	/* From now on it may be one to a command. */
	MUST(antiphon_start(client, &(antiphon_request){ .op = ANTIPHON_SERVE_COMMAND, .key = "v" }, &error));
	CHECK(!antiphon_answer(client, 2, large, 59745, &error));
	CHECK(antiphon_answer(client, 3, large, sizeof large, &error) == -1 && error.code == ANTIPHON_REFUSED);
	end_peer(&peer, client);
}

static void who_asked_is_told_that_its_answer_was_refused(void)
{
	static const char told[] = "{\"answer\":{\"request\":7,\"payload\":\"long\",\"id\":2}}\n"
				   "{\"answer\":{\"request\":8,\"payload\":\"late\",\"id\":3}}\n"
				   "{\"answer\":{\"request\":7,\"error\":\"it is too long\"}}\n";
	for (int grace_ms = 0; grace_ms <= 3000; grace_ms += 3000) {
		struct peer peer = { .lines = 2, .repeat = 1, .stays = true, .resumes = grace_ms > 0, .until = "long\"}}\n",
				     .says = "{\"event\":\"reply\",\"op\":\"answer\",\"id\":2,\"error\":{\"code\":\"refused\","
					     "\"reason\":\"it is too long\",\"ran\":\"no\"}}\n"
					     "{\"event\":\"reply\",\"op\":\"answer\",\"id\":3,\"error\":{\"code\":\"not_held\","
					     "\"reason\":\"its time is over\",\"ran\":\"no\"}}\n"
					     "{\"event\":\"suspended\",\"group\":\"g\"}\n" };
		antiphon *client = connected_with(&peer, grace_ms);
		antiphon_error error;
		antiphon_event *event;
		CHECK(!antiphon_answer(client, 7, "long", 4, &error) && !antiphon_answer(client, 8, "late", 4, &error));
		/* The program hears nothing of it. */
		MUST(antiphon_next(client, 5000, &event, &error) == 1 && event->kind == ANTIPHON_SUSPENDED);
		antiphon_event_free(event);
		end_peer(&peer, client);
		CHECK(strstr(peer.heard, told) != NULL);
	}
}

static void what_was_not_sent_may_come_without_what_it_said(void)
{
	/* And without a reason, which the agent always gives. */
	struct peer peer = { .lines = 0, .repeat = 1, .stays = true,
			     .says = "{\"event\":\"refused\",\"group\":\"g\",\"request\":{\"send_bundle\":{\"group\":\"g\","
				     "\"payloads\":[\"x\"]}}}\n"
				     "{\"event\":\"refused\",\"group\":\"g\",\"reason\":\"no\",\"request\":{\"send_bundle\":"
				     "{\"group\":\"g\"}}}\n"
				     "{\"event\":\"refused\",\"group\":\"g\",\"reason\":\"no\",\"request\":{\"send\":"
				     "{\"group\":\"g\"}}}\n" };
	antiphon *client = connected(&peer);
	antiphon_error error;
	antiphon_event *event;
	for (int i = 0; i < 3; i++) {
		MUST(antiphon_next(client, 5000, &event, &error) == 1 && event->kind == ANTIPHON_NOT_SENT);
		CHECK(!strcmp(event->name, "g") && event->has_value == !i && event->data.length == !i);
		CHECK(i ? !strcmp(event->cause, "no") : !event->cause);
		antiphon_event_free(event);
	}
	end_peer(&peer, client);
}

static void a_line_that_is_no_json_to_the_agent_ends_what_waits(void)
{
	struct peer peer = { .lines = 1, .repeat = 1, .stays = true,
			     .says = "{\"event\":\"error\",\"reason\":\"not JSON\",\"request\":\"{add\"}\n" };
	antiphon *client = connected(&peer);
	antiphon_error error;
	int64_t sum;
	CHECK(antiphon_add(client, "c", 1, 5000, &sum, &error) == -1 && error.code == ANTIPHON_CONNECTION);
	CHECK(!strcmp(error.reason, "not JSON") && error.ran == ANTIPHON_RAN_MAYBE);
	end_peer(&peer, client);
}

static void who_could_not_say_that_it_leaves_is_told_so(void)
{
	for (int grace_ms = 0; grace_ms <= 3000; grace_ms += 3000) {
		struct peer peer = { .lines = 0, .resumes = grace_ms > 0 };
		antiphon *client = connected_with(&peer, grace_ms);
		pthread_join(peer.thread, NULL);
		/* The agent waits only for a client that comes back. */
		CHECK(antiphon_close(client, 5000) == (grace_ms ? -1 : 0));
		unlink(peer.path);
	}
}

static void a_host_that_goes_without_a_word_is_noticed(void)
{
	static const struct {
		int level, name, value;
	} options[] = { { SOL_SOCKET, SO_KEEPALIVE, 1 },    { IPPROTO_TCP, TCP_NODELAY, 1 },
			{ IPPROTO_TCP, TCP_KEEPIDLE, 60 }, { IPPROTO_TCP, TCP_KEEPINTVL, 10 },
			{ IPPROTO_TCP, TCP_KEEPCNT, 6 } };
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof address;
	struct link link;
	char text[32], reason[256];
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(!bind(listener, (struct sockaddr *)&address, size) && !listen(listener, 2));
	CHECK(!getsockname(listener, (struct sockaddr *)&address, &size));
	snprintf(text, sizeof text, "127.0.0.1:%d", ntohs(address.sin_port));
	CHECK(link_open(&link, text, 5000, reason, sizeof reason));
	for (int again = 0; again < 2; again++) {
		for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
			int value = 0;
			size = sizeof value;
			CHECK(!getsockopt(link.fd, options[i].level, options[i].name, &value, &size));
			CHECK(value == options[i].value);
		}
		link_close(&link);
		CHECK(again || link_again(&link));
	}
	close(listener);
}

static void what_is_no_line_ends_the_connection(void)
{
	struct peer peer = { .lines = 0, .repeat = 1, .stays = true,
			     .says = "{\"event\":\"of a newer agent\",\"x\":[1]}\nHTTP/1.1 400 Bad Request\n" };
	antiphon *client = connected(&peer);
	antiphon_error error;
	antiphon_event *event;
	MUST(antiphon_next(client, 5000, &event, &error) == 1 && event->kind == ANTIPHON_CLOSED);
	CHECK(strstr(event->cause, "cannot read") != NULL);
	antiphon_event_free(event);
	end_peer(&peer, client);
}

static void a_lock_that_is_granted_too_late_is_given_back(void)
{
	struct peer peer = { .lines = 2, .repeat = 1, .stays = true,
			     .says = "{\"event\":\"reply\",\"op\":\"lock\",\"id\":2,\"token\":77}\n"
				     "{\"event\":\"suspended\",\"group\":\"g\"}\n" };
	antiphon *client = connected(&peer);
	antiphon_error error;
	antiphon_event *event;
	uint64_t id = antiphon_start(client, &(antiphon_request){ .op = ANTIPHON_LOCK, .name = "till", .within_ms = -1 }, &error);
	CHECK(id == 2);
	CHECK(antiphon_wait(client, id, 50, &event, &error) == -1 && error.code == ANTIPHON_TIMEOUT);
	antiphon_forget(client, id); /* its cancel is the second line: now the lock is granted */
	MUST(antiphon_next(client, 5000, &event, &error) == 1 && event->kind == ANTIPHON_SUSPENDED);
	antiphon_event_free(event);
	CHECK(antiphon_next(client, 0, &event, &error) == 0);
	end_peer(&peer, client);
	CHECK(strstr(peer.heard, "{\"unlock\":{\"name\":\"till\",\"token\":77}}\n") != NULL);
}

static void no_event(antiphon *client, const antiphon_event *event, void *user)
{
	(void)client, (void)user;
	fprintf(stderr, "an event of kind %d came\n", event->kind);
	failed = 1;
}

/* The program asks for the lock or the leadership, waits no more, polls the descriptor, dispatches, and polls again. */
static void the_grant_crosses_the_cancel(antiphon_op op, const char *says, const char *gives_back, int grace_ms)
{
	struct peer peer = { .lines = 2, .repeat = 1, .stays = true, .says = says, .until = gives_back, .resumes = grace_ms > 0 };
	antiphon *client = connected_with(&peer, grace_ms);
	antiphon_error error;
	antiphon_event *event;
	struct pollfd fd = { .fd = antiphon_fd(client), .events = POLLIN };
	uint64_t id = antiphon_start(client, &(antiphon_request){ .op = op, .name = "till", .within_ms = -1 }, &error);
	CHECK(antiphon_wait(client, id, 50, &event, &error) == -1 && error.code == ANTIPHON_TIMEOUT);
	antiphon_forget(client, id);
	CHECK(poll(&fd, 1, 5000) == 1 && !antiphon_pending(client));
	CHECK(!antiphon_dispatch(client, no_event, NULL, &error));
	pthread_join(peer.thread, NULL);
	CHECK(strstr(peer.heard, gives_back) != NULL);
	antiphon_drop(client);
	unlink(peer.path);
}

#define GRANTED(op) \
	"{\"event\":\"reply\",\"op\":\"" op "\",\"id\":2,\"token\":77}\n{\"event\":\"reply\",\"op\":\"cancel\",\"id\":3}\n"

static void what_is_granted_too_late_is_given_back_without_a_further_call(void)
{
	for (int grace_ms = 0; grace_ms <= 3000; grace_ms += 3000) {
		the_grant_crosses_the_cancel(ANTIPHON_LEAD, GRANTED("lead"), "{\"resign\":{\"name\":\"till\",\"token\":77}}\n", grace_ms);
		the_grant_crosses_the_cancel(ANTIPHON_LOCK, GRANTED("lock"), "{\"unlock\":{\"name\":\"till\",\"token\":77}}\n", grace_ms);
	}
}

static void bad_addresses_say_what_is_wrong(void)
{
	static const char *const addresses[] = { "", "host", "host:", ":1", "host:x", "unix:" };
	antiphon_error error;
	for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
		CHECK(!antiphon_connect(addresses[i], NULL, 1000, &error));
		CHECK(error.code == ANTIPHON_INVALID && *error.reason);
	}
	CHECK(!antiphon_connect("/tmp/there-is-no-such-socket", NULL, 1000, &error) && error.code == ANTIPHON_CONNECTION);
	CHECK(strstr(error.reason, "/tmp/there-is-no-such-socket") != NULL);
}

/* ---- a real agent ---- */

static void blocks_do_what_they_say(antiphon *client, antiphon *other)
{
	antiphon_error error;
	antiphon_value value;
	uint64_t v1, v2, zero = 0, token, second, first;
	int64_t sum;
	CHECK(!antiphon_get(client, "m", "k", true, 10000, &value, &error) && !value.exists);
	CHECK(!antiphon_put(client, "m", "k", "a\0b", 3, &zero, 0, 10000, &v1, &error));
	CHECK(antiphon_put(other, "m", "k", "x", 1, &zero, 0, 10000, NULL, &error) == -1);
	CHECK(error.code == ANTIPHON_CONFLICT && error.ran == ANTIPHON_RAN_NO && error.has_version && error.version == v1);
	CHECK(!antiphon_get(other, "m", "k", true, 10000, &value, &error) && value.exists && value.version == v1);
	CHECK(value.length == 3 && !memcmp(value.bytes, "a\0b", 4));
	antiphon_value_free(&value);
	CHECK(!antiphon_put(other, "m", "k", "c", 1, &v1, 300, 10000, &v2, &error) && v2 > v1);
	uint64_t watch;
	antiphon_event *event;
	CHECK(!antiphon_watch(client, "m", "k", NULL, 10000, &watch, &error));
	MUST(antiphon_next(client, 5000, &event, &error) == 1 && event->kind == ANTIPHON_WATCHING && event->number == 1);
	antiphon_event_free(event);
	MUST(antiphon_next(client, 5000, &event, &error) == 1 && event->kind == ANTIPHON_CHANGED && event->id == watch);
	CHECK(event->version == v2 && event->data.length == 1 && !event->gone);
	antiphon_event_free(event);
	MUST(antiphon_next(client, 5000, &event, &error) == 1 && event->kind == ANTIPHON_CHANGED);
	CHECK(event->gone && !strcmp(event->gone, "expired"));
	antiphon_event_free(event);
	CHECK(!antiphon_unwatch(client, watch, 10000, &error));
	CHECK(!antiphon_lock(client, "x", -1, &token, &error));
	CHECK(antiphon_lock(other, "x", 0, &second, &error) == -1 && error.code == ANTIPHON_TIMEOUT);
	/* One that waits no more holds nothing up. */
	uint64_t id = antiphon_start(other, &(antiphon_request){ .op = ANTIPHON_LOCK, .name = "x", .within_ms = -1 }, &error);
	antiphon_forget(other, id);
	CHECK(!antiphon_unlock(client, "x", token, 10000, &error));
	CHECK(antiphon_unlock(client, "x", token, 10000, &error) == -1 && error.code == ANTIPHON_NOT_HELD);
	CHECK(!antiphon_lock(client, "x", 5000, &second, &error) && second > token);
	CHECK(!antiphon_lead(client, "job", 10000, &token, &error));
	CHECK(!antiphon_resign(client, "job", token, NULL, 10000, &error));
	CHECK(!antiphon_add(client, "c", 5, 10000, &sum, &error) && !antiphon_add(other, "c", -7, 10000, &sum, &error) && sum == -2);
	CHECK(!antiphon_take_ids(client, 10, 10000, &first, &error) && !antiphon_take_ids(other, 1, 10000, &v1, &error));
	CHECK(v1 >= first + 10);
	antiphon_event *reply;
	CHECK(!antiphon_members(client, 10000, &reply, &error) && reply->node_count == 1 && !strcmp(reply->nodes->name, "a"));
	antiphon_event_free(reply);
	CHECK(!antiphon_why(client, "a", 10000, &reply, &error) && reply->facts.count >= 1);
	antiphon_event_free(reply);
	CHECK(antiphon_call(client, "desk", "nobody serves this", "a", "", 0, 3000, &reply, &error) == -1);
	antiphon_event_free(reply);
}

static void one_thread_serves_and_calls(antiphon *client, antiphon *other)
{
	antiphon_error error;
	antiphon_event *event;
	CHECK(!antiphon_serve(other, "desk", "echo", 10000, &error));
	uint64_t id = antiphon_start(client, &(antiphon_request){ .op = ANTIPHON_CALL, .name = "desk", .key = "echo", .to = "a",
								  .data = { "\xff\x01", 2 }, .within_ms = 5000 }, &error);
	MUST(antiphon_next(other, 5000, &event, &error) == 1 && event->kind == ANTIPHON_REQUEST && event->data.length == 2);
	CHECK(!antiphon_answer(other, event->id, event->data.bytes, event->data.length, &error));
	antiphon_event_free(event);
	MUST(!antiphon_wait(client, id, 5000, &event, &error) && event->answer_count == 1);
	CHECK(!event->answers->error.code && event->answers->data.length == 2 && !memcmp(event->answers->data.bytes, "\xff\x01", 2));
	antiphon_event_free(event);
}

static void count_event(antiphon *client, const antiphon_event *event, void *user)
{
	(void)client;
	size_t *counts = user;
	counts[event->kind]++;
}

struct counted {
	antiphon *client;
	size_t counts[32];
};

static void *take_4000(void *of)
{
	struct counted *counted = of;
	antiphon_event *event;
	while (counted->counts[ANTIPHON_MESSAGE] < 4000 && antiphon_next(counted->client, 20000, &event, NULL) == 1) {
		count_event(counted->client, event, counted->counts);
		antiphon_event_free(event);
	}
	return NULL;
}

static void a_client_that_sends_much_reads_meanwhile(antiphon *client, antiphon *other)
{
	antiphon_error error;
	struct counted own = { .client = client }, others = { .client = other };
	pthread_t thread;
	char *bytes = calloc(1, 1048571);
	CHECK(!antiphon_join(client, "flood", 10000, &error) && !antiphon_join(other, "flood", 10000, &error));
	CHECK(antiphon_join(client, "flood", 10000, &error) == -1 && error.code == ANTIPHON_REFUSED);
	CHECK(antiphon_send_wait(client, "flood", bytes, 1048571, 0, 10000, &error) == -1 && error.code == ANTIPHON_REFUSED);
	pthread_create(&thread, NULL, take_4000, &others);
	/* 40 MB to a group with a window of 1 MiB: this thread takes events only when the handle is full
	 * of them. */
	memset(bytes, 'x', 10000);
	antiphon_set_queue_bytes(client, 4 << 20);
	int refused = 0;
	for (int i = 0; i < 4000 && !failed;) {
		antiphon_event *event;
		if (!antiphon_send(client, "flood", bytes, 10000, 0, &error)) {
			i++;
			continue;
		}
		CHECK(error.code == ANTIPHON_UNAVAILABLE && error.ran == ANTIPHON_RAN_NO);
		CHECK(antiphon_pending(client) > 100 && antiphon_next(client, 0, &event, &error) == 1);
		count_event(client, event, own.counts);
		antiphon_event_free(event);
		refused++;
	}
	CHECK(refused > 100);
	take_4000(&own);
	pthread_join(thread, NULL);
	CHECK(own.counts[ANTIPHON_MESSAGE] == 4000 && others.counts[ANTIPHON_MESSAGE] == 4000);
	CHECK(own.counts[ANTIPHON_VIEW] >= 1 && !own.counts[ANTIPHON_NOT_SENT] && !own.counts[ANTIPHON_LOST_GROUP]);
	free(bytes);
}

static void with_a_real_agent(const char *binary)
{
	start_agent(binary, NULL);
	antiphon_error error;
	antiphon *client = antiphon_connect(agent_address, "one", 10000, &error);
	antiphon *other = antiphon_connect(agent_address, "two", 10000, &error);
	CHECK(client && other && !strcmp(antiphon_member(client), "a/one"));
	CHECK(!antiphon_connect(agent_address, "one", 10000, &error) && error.code == ANTIPHON_REFUSED);
	if (!client || !other)
		return;
	blocks_do_what_they_say(client, other);
	one_thread_serves_and_calls(client, other);
	a_client_that_sends_much_reads_meanwhile(client, other);
	CHECK(!antiphon_close(client, 5000));
	antiphon_event *event;
	int next;
	while ((next = antiphon_next(other, 5000, &event, &error)) == 1 && !(event->kind == ANTIPHON_VIEW && event->left.count))
		antiphon_event_free(event);
	CHECK(next == 1);
	if (next != 1)
		return;
	CHECK( event->kind == ANTIPHON_VIEW && event->left.count == 1 && !strcmp(event->left.names[0], "a/one"));
	antiphon_event_free(event);
	end_agent();
	MUST(antiphon_next(other, 5000, &event, &error) == 1 && event->kind == ANTIPHON_CLOSED);
	antiphon_event_free(event);
	antiphon_drop(other);
}

/* ---- tokens, and commands of peers ---- */

static char folder[] = "/tmp/antiphon-test-c-XXXXXX", list[64], key_file[64];

static void with_a_token(const char *binary)
{
	char command[256], token[128] = "", token_file[64];
	snprintf(token_file, sizeof token_file, "%s/token", folder);
	snprintf(command, sizeof command, "%s key %s >/dev/null", binary, token_file);
	CHECK(!system(command));
	FILE *file = fopen(token_file, "r");
	while (file && fgets(token, sizeof token, file) && *token == '#')
		;
	token[strcspn(token, "\n")] = 0;
	if (file)
		fclose(file);
	start_agent(binary, (const char *const[]){ "--token-file", token_file, NULL });
	antiphon_error error;
	antiphon_options options = { .size = sizeof options, .name = "t", .token = token, .grace_ms = 1000 };
	antiphon *client = antiphon_connect_with(agent_address, &options, 10000, &error);
	CHECK(client && !strcmp(antiphon_member(client), "a/t"));
	if (client)
		CHECK(!antiphon_close(client, 5000));
	CHECK(!antiphon_connect(agent_address, "t", 10000, &error) && strstr(error.reason, "a token is asked for"));
	options.token = "0123456789abcdef0123456789abcdef";
	CHECK(!antiphon_connect_with(agent_address, &options, 10000, &error) && strstr(error.reason, "none of the agent's"));
	end_agent();
	unlink(token_file);
}

static void with_commands(const char *binary)
{
	char command[256];
	snprintf(list, sizeof list, "%s/commands.toml", folder);
	snprintf(key_file, sizeof key_file, "%s/key", folder);
	snprintf(command, sizeof command, "%s key %s >/dev/null", binary, key_file);
	CHECK(!system(command));
	FILE *file = fopen(list, "w");
	fputs("version = 7\n[[verb]]\nname = \"flush\"\nfrom = \"all\"\nto = \"all\"\ndeliver = \"session\"\n"
	      "args.key = { type = \"text\", max-bytes = 200 }\nargs.depth = { type = \"integer\", min = -5, max = 10 }\n"
	      "args.now = { type = \"boolean\", default = false }\n", file);
	fclose(file);
	start_agent(binary, (const char *const[]){ "--key-file", key_file, "--commands", list, NULL });
	antiphon_error error;
	antiphon_event *event, *reply = NULL;
	antiphon *asks = antiphon_connect(agent_address, "asks", 10000, &error);
	antiphon *serves = antiphon_connect(agent_address, "serves", 10000, &error);
	if (!asks || !serves) {
		fprintf(stderr, "connect: %s\n", error.reason);
		exit(1);
	}
	const antiphon_arg args[] = { { "key", ANTIPHON_TEXT, .text = "/t\"\303\244" }, { "depth", ANTIPHON_INTEGER, .integer = -3 },
				      { "now", ANTIPHON_BOOLEAN, .integer = 1 } };
	CHECK(antiphon_command(asks, "flush", args, 3, "all", 5000, &reply, &error) == -1 && error.code == ANTIPHON_FAILED);
	MUST(reply && reply->answer_count == 1 && !strcmp(reply->answers->node, "a"));
	CHECK(reply && reply->answers->error.code == ANTIPHON_UNAVAILABLE && reply->answers->error.ran == ANTIPHON_RAN_NO);
	antiphon_event_free(reply);
	CHECK(!antiphon_serve_command(serves, "flush", 10000, &error));
	antiphon_request request = { .op = ANTIPHON_COMMAND, .key = "flush", .args = args, .arg_count = 3, .to = "one",
				     .way = "library", .within_ms = 10000 };
	uint64_t id = antiphon_start(asks, &request, &error);
	MUST(id && antiphon_next(serves, 10000, &event, &error) == 1 && event->kind == ANTIPHON_COMMANDED);
	CHECK(!strcmp(event->key, "flush") && !strcmp(event->sender, "a") && event->within_ms > 0 && event->arg_count == 3);
	for (size_t i = 0; i < event->arg_count; i++) { /* in the order of their names */
		const antiphon_arg *arg = &event->args[i], *as = &args[i == 0 ? 1 : i == 1 ? 0 : 2];
		CHECK(!strcmp(arg->name, as->name) && arg->type == as->type && arg->integer == as->integer);
		CHECK(arg->type != ANTIPHON_TEXT || !strcmp(arg->text, as->text));
	}
	CHECK(!antiphon_answer(serves, event->id, "forgotten", 9, &error));
	antiphon_event_free(event);
	MUST(!antiphon_wait(asks, id, 10000, &reply, &error) && !reply->error.code && reply->answer_count == 1);
	CHECK(!strcmp(reply->answers->node, "a") && !strcmp(reply->answers->data.bytes, "forgotten"));
	antiphon_event_free(reply);
	/* By name, as a list, and without waiting for it. */
	request.to = NULL;
	request.nodes = (const char *const[]){ "a", "nobody" };
	request.node_count = 2;
	request.no_reply = true;
	id = antiphon_start(asks, &request, &error);
	MUST(id && !antiphon_wait(asks, id, 10000, &reply, &error) && reply->answer_count == 1);
	CHECK(!strcmp(reply->answers->node, "nobody") && reply->answers->error.ran == ANTIPHON_RAN_NO);
	antiphon_event_free(reply);
	MUST(antiphon_next(serves, 10000, &event, &error) == 1 && event->kind == ANTIPHON_COMMANDED);
	CHECK(!antiphon_answer_error(serves, event->id, "no", &error));
	antiphon_event_free(event);
	/* What makes no sense is refused here or there. */
	const antiphon_arg bad[] = { { "key", ANTIPHON_TEXT, .integer = 1 } };
	CHECK(antiphon_command(asks, "flush", bad, 1, "a", 0, &reply, &error) == -1 && error.code == ANTIPHON_INVALID);
	CHECK(antiphon_command(asks, "melt", NULL, 0, "a", 0, &reply, &error) == -1 && error.ran == ANTIPHON_RAN_NO);
	antiphon_event_free(reply);
	CHECK(!antiphon_commands(asks, 10000, &reply, &error) && strstr(reply->data.bytes, "\"list\":7"));
	CHECK(*reply->data.bytes == '{' && reply->data.bytes[reply->data.length - 1] == '}');
	antiphon_event_free(reply);
	antiphon_drop(asks);
	antiphon_drop(serves);
	end_agent();
	unlink(list);
	unlink(key_file);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN); /* of the script's peer; the library needs it not */
	what_waits_is_told_that_the_connection_is_over();
	a_call_that_waits_keeps_events_up_to_the_bound();
	a_bundle_is_told_as_messages_with_their_parts();
	a_bundle_is_taken_apart_as_it_is_read_and_comes_before_the_end();
	several_payloads_are_said_in_one_line_and_refused_one_by_one();
	a_client_that_comes_back_is_told_all_that_nodes_answered();
	an_answer_that_the_agent_does_not_take_is_refused();
	who_asked_is_told_that_its_answer_was_refused();
	what_was_not_sent_may_come_without_what_it_said();
	a_line_that_is_no_json_to_the_agent_ends_what_waits();
	who_could_not_say_that_it_leaves_is_told_so();
	a_host_that_goes_without_a_word_is_noticed();
	what_is_no_line_ends_the_connection();
	a_lock_that_is_granted_too_late_is_given_back();
	what_is_granted_too_late_is_given_back_without_a_further_call();
	bad_addresses_say_what_is_wrong();
	const char *binary = getenv("ANTIPHON_BIN");
	if (binary) {
		with_a_real_agent(binary);
		CHECK(mkdtemp(folder));
		with_a_token(binary);
		with_commands(binary);
		rmdir(folder);
	}
	printf("client: %s%s\n", failed ? "FAILED" : "passed", binary ? "" : " (without an agent: ANTIPHON_BIN is not set)");
	return failed;
}
