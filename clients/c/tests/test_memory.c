/* A program whose memory ends, at each place where the library asks for some: nothing is freed twice or used behind
 * its end, as `make sanitize` sees, and the program comes to the end of the connection. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.h"
#include "client.h"

/* ---- memory that ends, for the thread of the test ---- */

static _Thread_local long left = -1; /* so many are given yet; below 0: all */

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);

static bool is_given(void)
{
	return left < 0 || left-- > 0;
}

void *__wrap_malloc(size_t size)
{
	return is_given() ? __real_malloc(size) : NULL;
}

void *__wrap_calloc(size_t count, size_t size)
{
	return is_given() ? __real_calloc(count, size) : NULL;
}

void *__wrap_realloc(void *old, size_t size)
{
	return is_given() ? __real_realloc(old, size) : NULL;
}

/* ---- an agent that forgets its client with each connection, and names it anew ---- */

#define BUNDLE "{\"event\":\"bundle\",\"group\":\"g\",\"seq\":1,\"payloads\":[\"a\",\"b\",\"c\"]}\n"
#define WELCOME                                                                                              \
	"{\"event\":\"reply\",\"op\":\"hello\",\"id\":1,\"welcome\":{\"client\":\"c%d\",\"node\":\"n\","    \
	"\"cluster\":\"c\",\"build\":\"b\",\"resume\":\"KEY\"}}\n"

static int listener;
static char path[108];

static void say(int fd, const char *text)
{
	if (send(fd, text, strlen(text), MSG_NOSIGNAL) < 0)
		return;
}

static void *run(void *nothing)
{
	int fd, number = 0;
	while ((fd = accept(listener, NULL, NULL)) >= 0) {
		FILE *lines = fdopen(fd, "r");
		char line[1024], reply[256];
		bool goes_on = true;
		while (goes_on && fgets(line, sizeof line, lines)) {
			const char *id = strstr(line, "\"id\":");
			if (!strncmp(line, "{\"hello\"", 8)) {
				snprintf(reply, sizeof reply, WELCOME, ++number);
				say(fd, reply);
			} else if (id && !strstr(line, "{\"get\"") && !strstr(line, "\"late\"")) {
				snprintf(reply, sizeof reply, "{\"event\":\"reply\",\"id\":%ld,\"token\":%ld}\n", atol(id + 5), atol(id + 5));
				say(fd, reply);
			}
			/* With the get under way it ends, behind a bundle. */
			goes_on = !strstr(line, "{\"get\"");
		}
		say(fd, BUNDLE);
		fclose(lines);
	}
	return nothing;
}

static antiphon *connects(int grace_ms)
{
	const antiphon_options options = { .size = sizeof options, .grace_ms = grace_ms };
	return antiphon_connect_with(path, &options, 5000, NULL);
}

static const antiphon_request requests[] = {
	{ .op = ANTIPHON_JOIN, .name = "g" },  { .op = ANTIPHON_SERVE, .name = "g", .key = "v" },
	{ .op = ANTIPHON_WATCH, .name = "m" }, { .op = ANTIPHON_LOCK, .name = "x", .within_ms = -1 },
	{ .op = ANTIPHON_LEAD, .name = "job" }, { .op = ANTIPHON_GET, .name = "m", .key = "k" },
};

/* ---- stories, with so much memory ---- */

/* The connection is lost while a bundle is half told and an operation with a name waits. */
static void a_connection_is_lost_within_a_bundle(antiphon *client)
{
	antiphon_event *event;
	antiphon_start(client, &(antiphon_request){ .op = ANTIPHON_LOCK, .name = "late", .within_ms = -1 }, NULL);
	antiphon_start(client, &(antiphon_request){ .op = ANTIPHON_GET, .name = "m", .key = "k" }, NULL);
	while (left_of_bundle(client) != 2 && antiphon_next(client, 5000, &event, NULL) == 1)
		antiphon_event_free(event);
	lose(client, "it broke");
}

/* It has something of each kind, and comes back as a new client. */
static void a_client_comes_back_as_a_new_one(antiphon *client)
{
	antiphon_event *event;
	for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
		antiphon_start(client, &requests[i], NULL);
	/* Up to the group that it joins anew. */
	bool is_new = false;
	while (!is_new && antiphon_next(client, 100, &event, NULL) == 1) {
		is_new = event->kind == ANTIPHON_RESYNC;
		antiphon_event_free(event);
	}
}

static void ends_well(antiphon *client)
{
	antiphon_event *event;
	bool is_over = client->over;
	while (is_over && antiphon_next(client, 5000, &event, NULL) == 1)
		antiphon_event_free(event);
	antiphon_drop(client);
}

static void with_ever_more_memory(void (*story)(antiphon *), int grace_ms)
{
	bool is_enough = false;
	for (long given = 0; !is_enough && given < 1000; given++) {
		antiphon *client = connects(grace_ms);
		if (!client) {
			CHECK(!"connected");
			return;
		}
		left = given;
		story(client);
		is_enough = left > 0;
		left = -1;
		ends_well(client);
	}
	CHECK(is_enough);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	pthread_t thread;
	snprintf(path, sizeof path, "/tmp/antiphon-memory-%d", (int)getpid());
	strcpy(address.sun_path, path);
	listener = socket(AF_UNIX, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 5)) {
		perror(path);
		return 1;
	}
	pthread_create(&thread, NULL, run, NULL);
	with_ever_more_memory(a_connection_is_lost_within_a_bundle, 0);
	with_ever_more_memory(a_client_comes_back_as_a_new_one, 2000);
	shutdown(listener, SHUT_RDWR);
	pthread_join(thread, NULL);
	unlink(path);
	printf("memory: %s\n", failed ? "FAILED" : "passed");
	return failed;
}
