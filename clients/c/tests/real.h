/* What the tests share: checks, and a real agent. */
#ifndef ANTIPHON_TESTS_REAL_H
#define ANTIPHON_TESTS_REAL_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* Without it what follows makes no sense. */
#define MUST(what)             \
	do {                   \
		CHECK(what);   \
		if (failed)    \
			exit(1); \
	} while (0)

static pid_t agent;
static char agent_address[128];

static void end_agent(void)
{
	if (agent > 0) {
		kill(agent, SIGKILL);
		waitpid(agent, NULL, 0);
	}
	agent = 0;
}

/* A node alone, with these further words of its command line, up to NULL. */
static void start_agent(const char *binary, const char *const *more)
{
	const char *words[32] = { binary, "agent", "--json", "--console", "none", "--cluster", "test-c", "--name", "a",
				  "--bind", "127.0.0.1:0", "--found", "--listen", "127.0.0.1:0" };
	for (size_t at = 14; more && *more && at < 31; at++)
		words[at] = *more++;
	static bool ends_it;
	if (!ends_it)
		atexit(end_agent);
	ends_it = true;
	int out[2];
	if (pipe(out))
		exit(1);
	agent = fork();
	if (!agent) {
		dup2(out[1], 1);
		close(out[0]);
		execv(binary, (char *const *)words);
		perror(binary);
		_exit(127);
	}
	close(out[1]);
	FILE *lines = fdopen(out[0], "r");
	char line[65536];
	*agent_address = 0;
	while (!*agent_address && fgets(line, sizeof line, lines)) {
		const char *serving = strstr(line, "\"serving\",\"addrs\":[\"");
		if (serving)
			sscanf(serving + strlen("\"serving\",\"addrs\":[\""), "%127[^\"]", agent_address);
	}
	if (!*agent_address) {
		fprintf(stderr, "%s has not said where it serves programs\n", binary);
		exit(1);
	}
	/* It goes on writing there. */
}

#endif
