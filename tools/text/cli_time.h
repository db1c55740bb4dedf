// Times as people type them.
#ifndef REEF_CLI_TIME_H
#define REEF_CLI_TIME_H

#include <stdbool.h>
#include <stdint.h>

/**
 * A moment as people write it, such as 2024-05-01T12:00 or 3h, in ms since 1970; false where it is
 * none.
 */
bool reef_cli_time_parse(const char *text, uint64_t now_ms, uint64_t *out);
#endif
