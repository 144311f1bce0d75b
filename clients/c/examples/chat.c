/* Lines of standard input go to a group, what the group tells goes to standard output:
 *
 *     chat 127.0.0.1:7480 ann chat */
#include <antiphon.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

static void print(antiphon *client, const antiphon_event *event, void *unused)
{
	(void)client, (void)unused;
	if (event->kind == ANTIPHON_MESSAGE)
		printf("%s: %.*s\n", event->sender, (int)event->data.length, event->data.bytes);
	for (size_t i = 0; event->kind == ANTIPHON_VIEW && i < event->members.count; i++)
		printf("%s%s%s", i ? ", " : "here: ", event->members.names[i], i + 1 == event->members.count ? "\n" : "");
	if (event->kind == ANTIPHON_CLOSED || event->kind == ANTIPHON_LOST_GROUP)
		printf("it is over: %s\n", event->cause);
	fflush(stdout);
}

int main(int count, char **words)
{
	antiphon_error error;
	if (count != 4) {
		fprintf(stderr, "usage: %s ADDRESS NAME GROUP\n", words[0]);
		return 2;
	}
	antiphon *client = antiphon_connect(words[1], words[2], 5000, &error);
	if (!client || antiphon_join(client, words[3], 5000, &error)) {
		fprintf(stderr, "%s\n", error.reason);
		antiphon_drop(client);
		return 1;
	}
	setvbuf(stdin, NULL, _IONBF, 0); /* so that poll sees all that is unread */
	struct pollfd fds[] = { { .fd = 0, .events = POLLIN }, { .fd = antiphon_fd(client), .events = POLLIN } };
	while (antiphon_dispatch(client, print, NULL, &error) >= 0) {
		char line[4096];
		if (poll(fds, 2, antiphon_pending(client) ? 0 : -1) <= 0 || !fds[0].revents)
			continue;
		if (!fgets(line, sizeof line, stdin))
			break;
		if (antiphon_send(client, words[3], line, strcspn(line, "\n"), 0, &error))
			break;
	}
	antiphon_close(client, 5000);
	return 0;
}
