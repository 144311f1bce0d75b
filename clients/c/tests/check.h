/* A check that says what does not hold, and goes on. */
#ifndef ANTIPHON_TESTS_CHECK_H
#define ANTIPHON_TESTS_CHECK_H

#include <stdio.h>

static int failed;

#define CHECK(what)                                                                     \
	do {                                                                            \
		if (!(what)) {                                                          \
			fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #what); \
			failed = 1;                                                     \
		}                                                                       \
	} while (0)

#endif
