/* What the tests say of what does not hold. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>

static int failed;

#define CHECK(what)                                                                     \
	do {                                                                            \
		if (!(what)) {                                                          \
			fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #what); \
			failed = 1;                                                     \
		}                                                                       \
	} while (0)

#define EXPECT(call, code)                                                                             \
	do {                                                                                           \
		cs_error_t got = (call);                                                               \
		if (got != (code)) {                                                                   \
			fprintf(stderr, "%s:%d: %s gave %d, not %d\n", __FILE__, __LINE__, #call, got, code); \
			failed = 1;                                                                    \
		}                                                                                      \
	} while (0)

#endif
