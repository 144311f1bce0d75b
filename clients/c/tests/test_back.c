/* Coming back: with an agent that is a script, and with a real one behind a relay that cuts connections
 * where it likes, if ANTIPHON_BIN is set. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include "antiphon.h"
#include "real.h"

/* ---- an agent that is a script ---- */

struct script {
	void (*plays)(struct script *);
	const char *key; /* of the first welcome */
	size_t cut;	 /* for the script */
	int listener, fd;
	char *in, *line; /* `line` is the last one, and what is behind it up to `end` is still to be heard */
	size_t begin, end;
	volatile bool may_go, is_heard;
	unsigned long took; /* what the client said last of it */
	char path[108];
	pthread_t thread;
};

static void say_bytes(struct script *script, const char *bytes, size_t length)
{
	while (length) {
		ssize_t put = send(script->fd, bytes, length, MSG_NOSIGNAL);
		if (put <= 0)
			return;
		bytes += put;
		length -= (size_t)put;
	}
}

static void say(struct script *script, const char *text)
{
	say_bytes(script, text, strlen(text));
}

#define MOST_HEARD ((size_t)8 << 20)

/* The next line of the client that counts, without its end; "" if there is none. */
static const char *hear(struct script *script)
{
	for (;;) {
		char *end;
		while (!(end = memchr(script->in + script->begin, '\n', script->end - script->begin))) {
			ssize_t got = recv(script->fd, script->in + script->end, MOST_HEARD - script->end, 0);
			if (got <= 0)
				return "";
			script->end += (size_t)got;
		}
		*end = 0;
		script->line = script->in + script->begin;
		script->begin = (size_t)(end - script->in) + 1;
		if (sscanf(script->line, "{\"took\":{\"lines\":%lu", &script->took) != 1)
			return script->line;
	}
}

static bool hears(struct script *script, const char *begin)
{
	const char *line = hear(script);
	bool does = !strncmp(line, begin, strlen(begin));
	if (!does)
		fprintf(stderr, "expected %s, came \"%.200s\"\n", begin, line);
	return does;
}

static bool is_silent(struct script *script, int ms)
{
	struct pollfd fd = { .fd = script->fd, .events = POLLIN };
	return script->begin == script->end && poll(&fd, 1, ms) == 0;
}

static void take(struct script *script)
{
	script->fd = accept(script->listener, NULL, NULL);
	script->begin = script->end = 0;
}

static void cut(struct script *script)
{
	close(script->fd);
}

#define NAMES "\"client\":\"t\",\"node\":\"n\",\"cluster\":\"c\",\"build\":\"b\",\"resume\":\"KEY\""
#define REPLY "{\"event\":\"reply\",\"op\":\"x\",\"id\":"
#define RESUMES "{\"hello\":{\"name\":\"t\",\"grace\":\"3000ms\",\"resume\":\"KEY\",\"lines\":"

static void welcome(struct script *script)
{
	CHECK(hears(script, "{\"hello\":{\"name\":\"t\",\"grace\":\""));
	say(script, "{\"event\":\"reply\",\"op\":\"hello\",\"id\":1,\"welcome\":{" NAMES "}}\n");
}

static void welcome_again(struct script *script, const char *resumed)
{
	char line[256];
	snprintf(line, sizeof line, "{\"event\":\"reply\",\"op\":\"hello\",\"welcome\":{" NAMES "%s%s}}\n",
		 *resumed ? ",\"resumed\":" : "", resumed);
	say(script, line);
}

static void listens(struct script *script)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	strcpy(address.sun_path, script->path);
	unlink(script->path);
	script->listener = socket(AF_UNIX, SOCK_STREAM, 0);
	if (bind(script->listener, (struct sockaddr *)&address, sizeof address) || listen(script->listener, 1)) {
		perror(script->path);
		exit(1);
	}
}

static void *run(void *of)
{
	struct script *script = of;
	script->in = malloc(MOST_HEARD);
	script->plays(script);
	return NULL;
}

static antiphon *connects_as(struct script *script, const char *name, int grace_ms)
{
	static int number;
	snprintf(script->path, sizeof script->path, "/tmp/antiphon-back-%d-%d", (int)getpid(), number++);
	listens(script);
	pthread_create(&script->thread, NULL, run, script);
	antiphon_error error;
	const antiphon_options options = { .size = sizeof options, .name = name, .grace_ms = grace_ms };
	antiphon *client = antiphon_connect_with(script->path, &options, 10000, &error);
	if (!client) {
		fprintf(stderr, "connect: %s\n", error.reason);
		exit(1);
	}
	return client;
}

static antiphon *connects(struct script *script, int grace_ms)
{
	return connects_as(script, "t", grace_ms);
}

static void ends(struct script *script)
{
	pthread_join(script->thread, NULL);
	if (script->listener >= 0)
		close(script->listener);
	unlink(script->path);
	free(script->in);
}

static antiphon_event *next(antiphon *client)
{
	static antiphon_event none = { .name = "", .cause = "" };
	antiphon_event *event;
	antiphon_error error;
	return antiphon_next(client, 10000, &event, &error) == 1 ? event : &none;
}

static void comes(antiphon *client, antiphon_kind kind, const char *text, int line)
{
	antiphon_event *event = next(client);
	const char *said = event->kind == ANTIPHON_MESSAGE ? event->data.bytes : event->name ? event->name : "";
	if (event->kind != kind || strcmp(said, text)) {
		fprintf(stderr, "line %d: expected kind %d, %s; came %d, %s (%s)\n", line, kind, text, event->kind, said,
			event->cause ? event->cause : event->error.reason);
		failed = 1;
	}
	if (event->kind)
		antiphon_event_free(event);
}
#define COMES(client, kind, text) comes(client, kind, text, __LINE__)

/* ---- the same client ---- */

#define E(text) "{\"event\":\"message\",\"group\":\"g\",\"view\":\"1\",\"sender\":\"n/t\",\"seq\":1,\"payload\":\"" text "\"}\n"

static void cuts_within_what_it_says(struct script *script)
{
	take(script);
	welcome(script);
	CHECK(hears(script, "{\"send\":{\"group\":\"g\",\"payload\":\"one\"}}"));
	CHECK(hears(script, "{\"send\":{\"group\":\"g\",\"payload\":\"two\"}}"));
	CHECK(hears(script, "{\"send\":{\"group\":\"g\",\"payload\":\"three\"}}"));
	/* It says that it took two of them. */
	say(script, E("a") "\n" E("b") "{\"event\":\"took\",\"lines\":2}\n");
	say_bytes(script, E("c"), script->cut);
	cut(script);
	take(script);
	/* A line counts only whole, and `took` not at all. */
	bool whole = script->cut == strlen(E("c"));
	CHECK(hears(script, whole ? RESUMES "4}}" : RESUMES "3}}"));
	welcome_again(script, "3");
	CHECK(hears(script, "{\"send\":{\"group\":\"g\",\"payload\":\"three\"}}"));
	if (!whole)
		say(script, E("c"));
	say(script, "{\"event\":\"took\",\"lines\":2}\n"); /* that was on its way */
	say(script, E("d"));
	CHECK(hears(script, "{\"send\":{\"group\":\"g\",\"payload\":\"four\"}}"));
	say(script, E("e"));
	CHECK(hears(script, "{\"leave\":{}}"));
	cut(script);
}

static void a_line_that_was_cut_short_comes_once(void)
{
	antiphon_error error;
	for (size_t at = 0; at <= strlen(E("c")); at += at < 12 || at + 8 > strlen(E("c")) ? 1 : 7) {
		struct script script = { .plays = cuts_within_what_it_says, .cut = at };
		antiphon *client = connects(&script, 3000);
		CHECK(!antiphon_send(client, "g", "one", 3, 0, &error) && !antiphon_send(client, "g", "two", 3, 0, &error));
		CHECK(!antiphon_send(client, "g", "three", 5, 0, &error));
		COMES(client, ANTIPHON_MESSAGE, "a");
		COMES(client, ANTIPHON_MESSAGE, "b");
		COMES(client, ANTIPHON_MESSAGE, "c");
		COMES(client, ANTIPHON_MESSAGE, "d");
		CHECK(!antiphon_send(client, "g", "four", 4, 0, &error));
		COMES(client, ANTIPHON_MESSAGE, "e");
		CHECK(!antiphon_close(client, 5000));
		ends(&script);
	}
}

static void says_and_hears_bundles(struct script *script)
{
	take(script);
	welcome(script);
	say(script, "{\"event\":\"bundle\",\"group\":\"g\",\"seq\":1,\"payloads\":[\"a\",\"b\",\"c\"]}\n");
	CHECK(hears(script, "{\"send_bundle\":{\"group\":\"g\",\"payloads\":[\"one\",\"two\"]}}"));
	cut(script);
	take(script);
	CHECK(hears(script, RESUMES "2}}"));
	welcome_again(script, "2");
	say(script, E("d"));
	CHECK(hears(script, "{\"leave\":{}}"));
	cut(script);
}

static void a_bundle_counts_as_one_line(void)
{
	struct script script = { .plays = says_and_hears_bundles };
	antiphon *client = connects(&script, 3000);
	const antiphon_bytes payloads[] = { { "one", 3 }, { "two", 3 } };
	antiphon_error error;
	COMES(client, ANTIPHON_MESSAGE, "a");
	CHECK(!antiphon_send_bundle(client, "g", payloads, 2, 0, &error));
	COMES(client, ANTIPHON_MESSAGE, "b");
	COMES(client, ANTIPHON_MESSAGE, "c");
	COMES(client, ANTIPHON_MESSAGE, "d");
	CHECK(!antiphon_close(client, 5000));
	ends(&script);
}

static void cuts_within_what_it_hears(struct script *script)
{
	take(script);
	welcome(script);
	CHECK(hears(script, "{\"get\":"));
	while (script->end < 1 << 20)
		script->end += (size_t)recv(script->fd, script->in + script->end, 100000, 0);
	cut(script);
	/* Twice: it breaks again before it is welcome. */
	take(script);
	CHECK(hears(script, RESUMES "1}}"));
	cut(script);
	take(script);
	CHECK(hears(script, RESUMES "1}}"));
	welcome_again(script, "1");
	CHECK(hears(script, "{\"get\":{\"map\":\"m\",\"key\":\"k\",\"id\":2}}"));
	CHECK(hears(script, "{\"send\":{\"group\":\"g\",\"payload\":\"xxxx") && strlen(script->line) > 1900000);
	CHECK(is_silent(script, 100)); /* beyond 1 MiB it waits */
	say(script, "{\"event\":\"took\",\"lines\":3}\n");
	CHECK(hears(script, "{\"add\":"));
	say(script, REPLY "2,\"value\":\"v\",\"version\":7}\n" REPLY "3,\"value\":5}\n");
	CHECK(!*hear(script));
	cut(script);
}

static void what_was_written_in_part_is_written_whole(void)
{
	struct script script = { .plays = cuts_within_what_it_hears };
	antiphon *client = connects(&script, 3000);
	antiphon_error error;
	antiphon_event *reply;
	char *bytes = malloc(1900000);
	int64_t sum = 0;
	memset(bytes, 'x', 1900000);
	uint64_t id = antiphon_start(client, &(antiphon_request){ .op = ANTIPHON_GET, .name = "m", .key = "k" }, &error);
	CHECK(id == 2 && !antiphon_send(client, "g", bytes, 1900000, 0, &error));
	CHECK(!antiphon_add(client, "c", 1, 10000, &sum, &error) && sum == 5);
	MUST(!antiphon_wait(client, id, 10000, &reply, &error) && reply->has_value && reply->version == 7);
	antiphon_event_free(reply);
	free(bytes);
	antiphon_drop(client);
	ends(&script);
}

static void takes_late(struct script *script)
{
	int lines = 0;
	take(script);
	welcome(script);
	/* 1 MiB and a line. */
	while (lines < 11 && hears(script, "{\"send\":"))
		lines++;
	CHECK(is_silent(script, 300));
	say(script, "{\"event\":\"took\",\"lines\":12}\n");
	while (lines < 20 && hears(script, "{\"send\":"))
		lines++;
	for (int i = 0; i < 1000; i++)
		say(script, E("a"));
	CHECK(hears(script, "{\"add\":"));
	CHECK(script->took > 1001 - 256 && script->took <= 1001);
	cut(script);
	take(script);
	CHECK(hears(script, RESUMES "1001}}"));
	welcome_again(script, "22");
	say(script, REPLY "2,\"value\":5}\n");
	CHECK(!*hear(script));
	cut(script);
}

static void both_ends_say_what_they_took_and_sending_waits_for_it(void)
{
	struct script script = { .plays = takes_late };
	antiphon *client = connects(&script, 3000);
	antiphon_error error;
	char *bytes = malloc(100000);
	int64_t sum = 0;
	memset(bytes, 'x', 100000);
	for (int i = 0; i < 20; i++)
		CHECK(!antiphon_send(client, "g", bytes, 100000, 0, &error));
	for (int i = 0; i < 1000; i++)
		COMES(client, ANTIPHON_MESSAGE, "a");
	CHECK(!antiphon_add(client, "c", 1, 10000, &sum, &error) && sum == 5);
	free(bytes);
	antiphon_drop(client);
	ends(&script);
}

#define SEND "{\"send\":{\"group\":\"g\",\"payload\":\""

static void takes_a_mebibyte_late(struct script *script)
{
	take(script);
	welcome(script);
	CHECK(hears(script, SEND "xxx"));
	script->is_heard = true;
	CHECK(is_silent(script, 300));
	say(script, "{\"event\":\"took\",\"lines\":2}\n");
	CHECK(hears(script, SEND "two\"}}"));
	CHECK(!*hear(script));
	cut(script);
}

static void no_line_follows_while_a_mebibyte_is_not_confirmed(void)
{
	struct script script = { .plays = takes_a_mebibyte_late };
	antiphon *client = connects(&script, 3000);
	antiphon_error error;
	static char bytes[1 << 20];
	size_t others = strlen("{\"hello\":{\"name\":\"t\",\"grace\":\"3000ms\",\"id\":1}}\n" SEND "\"}}\n");
	memset(bytes, 'x', sizeof bytes);
	CHECK(!antiphon_send(client, "g", bytes, sizeof bytes - others, 0, &error)); /* which makes a mebibyte of all */
	while (!script.is_heard)
		poll(NULL, 0, 1);
	CHECK(!antiphon_send(client, "g", "two", 3, 0, &error));
	antiphon_drop(client);
	ends(&script);
}

static void is_away_for_a_moment(struct script *script)
{
	take(script);
	welcome(script);
	cut(script);
	close(script->listener);
	poll(NULL, 0, 250);
	listens(script);
	take(script);
	CHECK(hears(script, RESUMES "1}}"));
	welcome_again(script, "1");
	say(script, E("back"));
	CHECK(hears(script, "{\"send\":{\"group\":\"g\",\"payload\":\"meanwhile\"}}"));
	CHECK(hears(script, "{\"leave\":{}}"));
	cut(script);
}

static void on_event(antiphon *client, const antiphon_event *event, void *user)
{
	(void)client;
	if (event->kind == ANTIPHON_MESSAGE && !strcmp(event->data.bytes, "back"))
		*(bool *)user = true;
}

/* A program that does nothing but poll the descriptor that it was given first. */
static void a_program_that_polls_comes_back(void)
{
	struct script script = { .plays = is_away_for_a_moment };
	antiphon *client = connects(&script, 3000);
	antiphon_error error;
	struct pollfd fd = { .fd = antiphon_fd(client), .events = POLLIN };
	bool is_back = false, said = false;
	int rounds = 0;
	while (!is_back && rounds++ < 100 && !failed) {
		int ready = poll(&fd, 1, 5000);
		CHECK(ready == 1 && antiphon_fd(client) == fd.fd);
		CHECK(antiphon_dispatch(client, on_event, &is_back, &error) >= 0);
		if (!said)
			CHECK(!antiphon_send(client, "g", "meanwhile", 9, 0, &error));
		said = true;
	}
	CHECK(rounds < 30); /* it sleeps between tries */
	CHECK(poll(&fd, 1, 0) == 0);
	CHECK(!antiphon_close(client, 5000));
	ends(&script);
}

static void says_nonsense(struct script *script)
{
	take(script);
	welcome(script);
	cut(script);
	take(script);
	CHECK(hears(script, RESUMES "1}}"));
	welcome_again(script, "2");
	CHECK(!*hear(script));
	cut(script);
}

static void an_agent_that_took_more_than_it_was_sent_is_none(void)
{
	struct script script = { .plays = says_nonsense };
	antiphon *client = connects(&script, 3000);
	COMES(client, ANTIPHON_CLOSED, "");
	antiphon_drop(client);
	ends(&script);
}

static void says_a_line_without_end(struct script *script)
{
	static const char much[1 << 20];
	take(script);
	welcome(script);
	for (int i = 0; i < 66; i++)
		say_bytes(script, much, sizeof much);
	struct pollfd fd = { .fd = script->listener, .events = POLLIN };
	CHECK(poll(&fd, 1, 300) == 0); /* else it would be sent the same line again, for ever */
	cut(script);
}

static void a_line_that_is_too_long_ends_the_connection(void)
{
	struct script script = { .plays = says_a_line_without_end };
	antiphon *client = connects(&script, 3000);
	antiphon_event *event = next(client);
	CHECK(event->kind == ANTIPHON_CLOSED && strstr(event->cause, "longer than this library takes"));
	if (event->kind)
		antiphon_event_free(event);
	antiphon_drop(client);
	ends(&script);
}

/* ---- a new client ---- */

static void forgets_it(struct script *script)
{
	take(script);
	welcome(script);
	CHECK(hears(script, "{\"join\":{\"group\":\"g\"") && hears(script, "{\"join\":{\"group\":\"h\""));
	CHECK(hears(script, "{\"join\":{\"group\":\"left\"") && hears(script, "{\"serve\":{\"group\":\"g\",\"verb\":\"v\""));
	CHECK(hears(script, "{\"watch\":") && hears(script, "{\"lock\":") && hears(script, "{\"lead\":"));
	CHECK(hears(script, "{\"lock\":{\"name\":\"free\"") && hears(script, "{\"serve_command\":"));
	say(script, REPLY "2}\n" REPLY "3}\n" REPLY "4}\n" REPLY "5}\n" REPLY "6}\n" REPLY "7,\"token\":77}\n");
	say(script, REPLY "8,\"token\":88}\n" REPLY "9,\"token\":99}\n" REPLY "10}\n");
	CHECK(hears(script, "{\"unlock\":"));
	say(script, REPLY "11}\n");
	say(script, "{\"event\":\"request\",\"group\":\"g\",\"request\":1,\"verb\":\"v\",\"from\":\"n\",\"payload\":\"?\",\"within_ms\":9}\n");
	CHECK(hears(script, "{\"get\":") && hears(script, "{\"leave\":{\"group\":\"left\""));
	cut(script);
	/* Its name is taken still, as it seems. */
	take(script);
	CHECK(hears(script, RESUMES "12}}"));
	script->is_heard = true;
	while (!script->may_go)
		poll(NULL, 0, 1);
	say(script, "{\"event\":\"reply\",\"op\":\"hello\",\"error\":{\"code\":\"refused\",\"reason\":\"taken\",\"ran\":\"no\"}}\n");
	CHECK(hears(script, "{\"leave\":{}}") && !*hear(script));
	cut(script);
	take(script);
	CHECK(hears(script, RESUMES "12}}"));
	welcome_again(script, "");
	CHECK(hears(script, "{\"join\":{\"group\":\"g\",\"bundles\":true,\"id\":15}}"));
	CHECK(hears(script, "{\"join\":{\"group\":\"h\",\"bundles\":true,\"id\":16}}"));
	CHECK(hears(script, "{\"serve\":{\"group\":\"g\",\"verb\":\"v\",\"id\":17}}"));
	CHECK(hears(script, "{\"serve_command\":{\"verb\":\"c\",\"id\":18}}"));
	say(script, REPLY "15}\n" REPLY "16,\"error\":{\"code\":\"refused\",\"reason\":\"full\",\"ran\":\"no\"}}\n");
	say(script, REPLY "17}\n" REPLY "18}\n" E("new"));
	say(script, "{\"event\":\"request\",\"group\":\"g\",\"request\":1,\"verb\":\"v\",\"from\":\"n\",\"payload\":\"?\",\"within_ms\":9}\n");
	CHECK(hears(script, "{\"answer\":{\"request\":1,\"payload\":\"new\",\"id\":19}}"));
	/* It counts anew: its hello, four lines, an answer; a welcome, four replies, two events. */
	cut(script);
	take(script);
	CHECK(hears(script, RESUMES "7}}"));
	welcome_again(script, "5");
	CHECK(hears(script, "{\"answer\":{\"request\":1,\"payload\":\"new\",\"id\":19}}"));
	CHECK(!*hear(script));
	cut(script);
}

static void a_new_client_knows_what_it_lost_and_asks_for_the_rest(void)
{
	struct script script = { .plays = forgets_it };
	antiphon *client = connects(&script, 3000);
	antiphon_error error;
	antiphon_event *event;
	static const antiphon_request requests[] = {
		{ .op = ANTIPHON_JOIN, .name = "g" },	   { .op = ANTIPHON_JOIN, .name = "h" },
		{ .op = ANTIPHON_JOIN, .name = "left" },   { .op = ANTIPHON_SERVE, .name = "g", .key = "v" },
		{ .op = ANTIPHON_WATCH, .name = "m" },	   { .op = ANTIPHON_LOCK, .name = "x", .within_ms = -1 },
		{ .op = ANTIPHON_LEAD, .name = "job" },	   { .op = ANTIPHON_LOCK, .name = "free", .within_ms = -1 },
		{ .op = ANTIPHON_SERVE_COMMAND, .key = "c" },
	};
	for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
		CHECK(antiphon_start(client, &requests[i], &error) == i + 2);
	for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
		MUST(!antiphon_wait(client, i + 2, 10000, &event, &error) && !event->error.code);
		antiphon_event_free(event);
	}
	CHECK(!antiphon_unlock(client, "free", 99, 10000, &error));
	event = next(client);
	CHECK(event->kind == ANTIPHON_REQUEST && event->id == 1);
	antiphon_event_free(event);
	uint64_t get = antiphon_start(client, &(antiphon_request){ .op = ANTIPHON_GET, .name = "m", .key = "k" }, &error);
	CHECK(antiphon_start(client, &(antiphon_request){ .op = ANTIPHON_LEAVE, .name = "left" }, &error));
	/* The break is noticed when nothing comes any more, and then this is surely not taken. */
	for (int i = 0; i < 100 && !script.is_heard; i++)
		CHECK(antiphon_next(client, 100, &event, &error) == 0);
	uint64_t late = antiphon_start(client, &(antiphon_request){ .op = ANTIPHON_ADD, .name = "c", .by = 1 }, &error);
	script.may_go = true;
	MUST(late && antiphon_wait(client, late, 10000, &event, &error) == 0);
	CHECK(event->error.code == ANTIPHON_CONNECTION && event->error.ran == ANTIPHON_RAN_NO);
	antiphon_event_free(event);
	event = next(client);
	CHECK(event->kind == ANTIPHON_REPLY && event->id == get && event->error.code == ANTIPHON_CONNECTION);
	CHECK(event->error.ran == ANTIPHON_RAN_MAYBE && strstr(event->error.reason, "new client"));
	antiphon_event_free(event);
	COMES(client, ANTIPHON_REPLY, ""); /* to the leave */
	event = next(client);
	CHECK(event->kind == ANTIPHON_LOST_LOCK && !strcmp(event->name, "x") && event->token == 77 && event->id == 7);
	CHECK(strstr(event->cause, "new client"));
	antiphon_event_free(event);
	COMES(client, ANTIPHON_LOST_LEAD, "job");
	event = next(client);
	CHECK(event->kind == ANTIPHON_LOST_WATCH && !strcmp(event->name, "m") && event->id == 6);
	antiphon_event_free(event);
	COMES(client, ANTIPHON_RESYNC, "g");
	COMES(client, ANTIPHON_RESYNC, "h");
	COMES(client, ANTIPHON_LEFT, "left");
	COMES(client, ANTIPHON_LOST_GROUP, "h");
	COMES(client, ANTIPHON_MESSAGE, "new");
	/* Requests of both are told apart. */
	CHECK(antiphon_answer(client, 1, "old", 3, &error) == -1 && error.code == ANTIPHON_NOT_HELD);
	event = next(client);
	CHECK(event->kind == ANTIPHON_REQUEST && event->id == 2);
	CHECK(!antiphon_answer(client, event->id, "new", 3, &error));
	antiphon_event_free(event);
	CHECK(antiphon_next(client, 300, &event, &error) == 0);
	antiphon_drop(client);
	ends(&script);
}

static void names_it_anew(struct script *script)
{
	take(script);
	CHECK(hears(script, "{\"hello\":{\"grace\":\"3000ms\",\"id\":1}}"));
	say(script, "{\"event\":\"reply\",\"op\":\"hello\",\"id\":1,\"welcome\":{\"client\":\"c1\",\"node\":\"n\","
		    "\"cluster\":\"c\",\"build\":\"b\",\"resume\":\"KEY\"}}\n");
	CHECK(hears(script, "{\"join\":"));
	say(script, REPLY "2}\n");
	cut(script);
	take(script);
	CHECK(hears(script, "{\"hello\":{\"grace\":\"3000ms\",\"resume\":\"KEY\",\"lines\":2}}"));
	say(script, "{\"event\":\"reply\",\"op\":\"hello\",\"welcome\":{\"client\":\"c2\",\"node\":\"n\","
		    "\"cluster\":\"c\",\"build\":\"b\",\"resume\":\"KEY\"}}\n");
	CHECK(hears(script, "{\"join\":"));
	say(script, REPLY "3}\n");
	CHECK(!*hear(script));
	cut(script);
}

static void a_new_client_does_not_insist_on_a_name_that_the_agent_gave(void)
{
	struct script script = { .plays = names_it_anew };
	antiphon *client = connects_as(&script, NULL, 3000);
	antiphon_error error;
	const char *name = antiphon_name(client), *member = antiphon_member(client);
	CHECK(!strcmp(name, "c1") && !strcmp(member, "n/c1"));
	CHECK(!antiphon_join(client, "g", 10000, &error));
	COMES(client, ANTIPHON_RESYNC, "g");
	CHECK(!strcmp(antiphon_name(client), "c2") && !strcmp(antiphon_member(client), "n/c2"));
	CHECK(!strcmp(name, "c1") && !strcmp(member, "n/c1")); /* they stand */
	antiphon_drop(client);
	ends(&script);
}

#define UNAVAILABLE ",\"error\":{\"code\":\"unavailable\",\"reason\":\"no majority\",\"ran\":\"maybe\"}}\n"

static void gives_back_nothing_for_sure(struct script *script)
{
	take(script);
	welcome(script);
	CHECK(hears(script, "{\"lock\":"));
	say(script, REPLY "2,\"token\":77}\n");
	CHECK(hears(script, "{\"lead\":"));
	say(script, REPLY "3,\"token\":88}\n");
	CHECK(hears(script, "{\"lead\":"));
	say(script, REPLY "4,\"token\":99}\n");
	CHECK(hears(script, "{\"unlock\":"));
	say(script, REPLY "5" UNAVAILABLE);
	CHECK(hears(script, "{\"resign\":"));
	say(script, REPLY "6" UNAVAILABLE);
	CHECK(hears(script, "{\"resign\":"));
	say(script, REPLY "7" UNAVAILABLE);
	cut(script);
	take(script);
	CHECK(hears(script, RESUMES "7}}"));
	welcome_again(script, "");
	CHECK(!*hear(script));
	cut(script);
}

static void a_lock_is_not_held_after_unlock_and_a_job_is_led_until_it_is_handed_over(void)
{
	struct script script = { .plays = gives_back_nothing_for_sure };
	antiphon *client = connects(&script, 3000);
	antiphon_error error;
	uint64_t lock, job, other;
	MUST(!antiphon_lock(client, "x", -1, &lock, &error));
	MUST(!antiphon_lead(client, "job", 10000, &job, &error));
	MUST(!antiphon_lead(client, "other", 10000, &other, &error));
	CHECK(antiphon_unlock(client, "x", lock, 10000, &error) && error.code == ANTIPHON_UNAVAILABLE);
	CHECK(antiphon_resign(client, "job", job, NULL, 10000, &error) && error.code == ANTIPHON_UNAVAILABLE);
	CHECK(antiphon_resign(client, "other", other, "b", 10000, &error) && error.code == ANTIPHON_UNAVAILABLE);
	/* It comes back as a new client, which has lost what it held. */
	COMES(client, ANTIPHON_LOST_LEAD, "other");
	antiphon_event *event;
	CHECK(antiphon_next(client, 300, &event, &error) == 0);
	antiphon_drop(client);
	ends(&script);
}

static void ends_for_good(struct script *script)
{
	take(script);
	welcome(script);
	CHECK(hears(script, "{\"get\":"));
	close(script->listener);
	unlink(script->path);
	script->listener = -1;
	cut(script);
}

static int64_t now(void)
{
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	return (int64_t)at.tv_sec * 1000 + at.tv_nsec / 1000000;
}

static void who_cannot_come_back_in_time_is_told_so(void)
{
	struct script script = { .plays = ends_for_good };
	antiphon *client = connects(&script, 400);
	antiphon_error error;
	antiphon_value value;
	int64_t begin = now();
	CHECK(antiphon_get(client, "m", "k", false, 10000, &value, &error) == -1);
	CHECK(error.code == ANTIPHON_CONNECTION && error.ran == ANTIPHON_RAN_MAYBE);
	CHECK(strstr(error.reason, "could not come back within 400 ms: No such file"));
	CHECK(now() - begin >= 400 && now() - begin < 3000);
	COMES(client, ANTIPHON_CLOSED, "");
	antiphon_drop(client);
	ends(&script);
}

static void options_are_bounded(void)
{
	antiphon_options options = { .size = sizeof options, .grace_ms = 10001 };
	antiphon_error error;
	CHECK(!antiphon_connect_with("/tmp/x", &options, 1000, &error) && error.code == ANTIPHON_INVALID);
	options.grace_ms = -1;
	CHECK(!antiphon_connect_with("/tmp/x", &options, 1000, &error) && error.code == ANTIPHON_INVALID);
	options = (antiphon_options){ .name = "x" };
	CHECK(!antiphon_connect_with("/tmp/x", &options, 1000, &error) && error.code == ANTIPHON_INVALID);
}

/* ---- a relay before a real agent, which cuts ---- */

struct relay {
	char from[64], to[64];
	int listener;
	unsigned seed;
	int cuts;
	volatile bool ends;
	pthread_t thread;
};

static struct sockaddr_un at_path(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	return address;
}

/* Passes on what comes until so many bytes are on their way, or one end has closed. */
static void pass_on(const int fds[2], size_t most)
{
	char bytes[4096];
	while (most) {
		struct pollfd both[] = { { .fd = fds[0], .events = POLLIN }, { .fd = fds[1], .events = POLLIN } };
		poll(both, 2, -1);
		for (int i = 0; i < 2; i++) {
			if (!both[i].revents)
				continue;
			ssize_t got = recv(fds[i], bytes, sizeof bytes < most ? sizeof bytes : most, 0);
			if (got <= 0)
				return;
			most -= (size_t)got;
			for (ssize_t put = 0, sent; put < got; put += sent)
				if ((sent = send(fds[!i], bytes + put, (size_t)(got - put), MSG_NOSIGNAL)) <= 0)
					return;
		}
	}
}

static void *relays(void *of)
{
	struct relay *relay = of;
	struct sockaddr_un to = at_path(relay->to);
	while (!relay->ends) {
		int fds[] = { accept(relay->listener, NULL, NULL), socket(AF_UNIX, SOCK_STREAM, 0) };
		if (fds[0] >= 0 && !connect(fds[1], (struct sockaddr *)&to, sizeof to))
			pass_on(fds, relay->ends ? SIZE_MAX : 300 + (size_t)rand_r(&relay->seed) % 20000);
		close(fds[0]);
		close(fds[1]);
		relay->cuts++;
	}
	return NULL;
}

#define SAID 2000

/* What one client heard: of each of both the next number that is due. */
struct heard {
	const char *names[2];
	int next[2], replies, others;
};

static void count(antiphon *client, const antiphon_event *event, void *user)
{
	(void)client;
	struct heard *heard = user;
	heard->replies += event->kind == ANTIPHON_REPLY && !event->error.code;
	heard->others += event->kind != ANTIPHON_REPLY && event->kind != ANTIPHON_VIEW && event->kind != ANTIPHON_MESSAGE;
	if (event->cause)
		fprintf(stderr, "kind %d: %s\n", event->kind, event->cause);
	for (int i = 0; i < 2 && event->kind == ANTIPHON_MESSAGE; i++)
		if (!strcmp(event->sender, heard->names[i]))
			CHECK(atoi(event->data.bytes) == heard->next[i]++);
}

static void through_many_cuts_each_message_comes_once(const char *binary)
{
	struct relay relay = { .seed = 7 };
	snprintf(relay.to, sizeof relay.to, "/tmp/antiphon-agent-%d", (int)getpid());
	snprintf(relay.from, sizeof relay.from, "/tmp/antiphon-relay-%d", (int)getpid());
	const char *const more[] = { "--socket", relay.to, NULL };
	start_agent(binary, more);
	struct sockaddr_un from = at_path(relay.from);
	relay.listener = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(!bind(relay.listener, (struct sockaddr *)&from, sizeof from) && !listen(relay.listener, 5));
	pthread_create(&relay.thread, NULL, relays, &relay);
	antiphon_error error = { 0 };
	const antiphon_options options = { .size = sizeof options, .name = "cut", .grace_ms = 10000 };
	antiphon *clients[] = { antiphon_connect_with(relay.from, &options, 20000, &error),
				antiphon_connect(relay.to, "whole", 20000, &error) };
	if (!clients[0] || !clients[1]) {
		fprintf(stderr, "connect: %s\n", error.reason);
		exit(1);
	}
	struct heard heard[2] = { { .names = { "a/cut", "a/whole" } }, { .names = { "a/cut", "a/whole" } } };
	for (int i = 0; i < 2; i++)
		CHECK(!antiphon_join(clients[i], "g", 20000, &error));
	antiphon_event *event;
	for (int there = 0; there < 2;) { /* both see both before one speaks */
		MUST(antiphon_next(clients[there], 20000, &event, &error) == 1);
		there += event->members.count == 2;
		antiphon_event_free(event);
	}
	for (int n = 0; n < SAID && !failed; n++) {
		char number[64];
		int length = snprintf(number, sizeof number, "%d", n);
		for (int i = 0; i < 2; i++)
			CHECK(!antiphon_send(clients[i], "g", number, (size_t)length, 0, &error));
		if (n % 20 == 0)
			CHECK(antiphon_start(clients[0], &(antiphon_request){ .op = ANTIPHON_ADD, .name = "c", .by = 1 },
					     &error));
		for (int i = 0; i < 2; i++)
			CHECK(antiphon_dispatch(clients[i], count, &heard[i], &error) >= 0);
	}
	int64_t sum = 0, begin = now();
	int came;
	for (int i = 0; i < 2; i++) {
		while ((heard[i].next[0] < SAID || heard[i].next[1] < SAID || (!i && heard[i].replies < SAID / 20)) &&
		       !failed && now() - begin < 60000 && (came = antiphon_next(clients[i], 1000, &event, &error)) >= 0) {
			if (!came)
				continue;
			count(clients[i], event, &heard[i]);
			antiphon_event_free(event);
		}
		CHECK(heard[i].next[0] == SAID && heard[i].next[1] == SAID && !heard[i].others);
	}
	CHECK(!antiphon_add(clients[1], "c", 0, 20000, &sum, &error) && sum == SAID / 20 && heard[0].replies == SAID / 20);
	relay.ends = true;
	CHECK(!antiphon_close(clients[0], 20000) && !antiphon_close(clients[1], 20000));
	shutdown(relay.listener, SHUT_RDWR);
	pthread_join(relay.thread, NULL);
	CHECK(relay.cuts > 10);
	unlink(relay.from);
	end_agent();
	unlink(relay.to);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN); /* of the script; the library needs it not */
	options_are_bounded();
	a_line_that_was_cut_short_comes_once();
	a_bundle_counts_as_one_line();
	what_was_written_in_part_is_written_whole();
	both_ends_say_what_they_took_and_sending_waits_for_it();
	no_line_follows_while_a_mebibyte_is_not_confirmed();
	a_program_that_polls_comes_back();
	an_agent_that_took_more_than_it_was_sent_is_none();
	a_line_that_is_too_long_ends_the_connection();
	a_new_client_knows_what_it_lost_and_asks_for_the_rest();
	a_new_client_does_not_insist_on_a_name_that_the_agent_gave();
	a_lock_is_not_held_after_unlock_and_a_job_is_led_until_it_is_handed_over();
	who_cannot_come_back_in_time_is_told_so();
	const char *binary = getenv("ANTIPHON_BIN");
	if (binary)
		through_many_cuts_each_message_comes_once(binary);
	printf("back: %s%s\n", failed ? "FAILED" : "passed", binary ? "" : " (without an agent: ANTIPHON_BIN is not set)");
	return failed;
}
