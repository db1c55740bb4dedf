// Calls of Reef that must succeed, and calls that must be refused: must(reef_x(.., &why)).
//
// They use assertions of cmocka, so they belong into the test's own process;
// a forked child checks statuses itself and ends with _exit.
#ifndef CHECKED_H
#define CHECKED_H

#include "test.h"
#ifndef REEF_H // which has the library's own reef_error
#include "reef_error.h"
#endif

/** What the last call of this thread that failed says. */
static _Thread_local reef_error why;

/** The call succeeded. Otherwise the test fails at this line, with what the call said. */
#define must(...) must_at((__VA_ARGS__), __FILE__, __LINE__)

static inline void must_at(reef_status status, const char *file, int line) {
    if (status == REEF_OK) return;
    print_error("%s: %s\n", reef_status_text(status), why.message);
    _fail(file, line);
}

/** The call failed with this status, and its message contains `part`. */
#define must_fail(...) must_fail_at(__FILE__, __LINE__, __VA_ARGS__)

static inline void must_fail_at(
    const char *file, int line, reef_status status, reef_status expected, const char *part) {
    if (status == expected && why.status == expected && strstr(why.message, part) != NULL) return;
    print_error("%s instead of %s with \"%s\": %s\n", reef_status_text(status),
                reef_status_text(expected), part, status == REEF_OK ? "" : why.message);
    _fail(file, line);
}

#endif
