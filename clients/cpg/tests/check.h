/* What the tests say of what does not hold. */
#ifndef CPG_TESTS_CHECK_H
#define CPG_TESTS_CHECK_H

#include "../../c/tests/check.h"

#define EXPECT(call, code)                                                                             \
	do {                                                                                           \
		cs_error_t got = (call);                                                               \
		if (got != (code)) {                                                                   \
			fprintf(stderr, "%s:%d: %s gave %d, not %d\n", __FILE__, __LINE__, #call, got, code); \
			failed = 1;                                                                    \
		}                                                                                      \
	} while (0)

#endif
