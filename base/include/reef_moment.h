// Moments and lengths of time as people type them.
#ifndef REEF_MOMENT_H
#define REEF_MOMENT_H

#include <stdbool.h>
#include <stdint.h>

/** What a moment's text names, in ms since 1970: a day has a beginning and an end. */
typedef struct reef_moment {
    uint64_t first, last; // both belong to it
} reef_moment;

/**
 * Read a moment; false if the text names none.
 *
 *   2026-11-16            a day
 *   2026-11-16 12:00      a minute, also 2026-11-16T12:00
 *   2026-11-16 12:00:30   a second
 *   yesterday, today      days
 *   3h, "3h ago"          back from `now_ms`, in s, m, h, d or w: a moment without length
 *
 * Times are local; with Z behind a minute or a second they are UTC. Other forms are refused: half
 * understood, a text would silently name another moment.
 */
bool reef_moment_parse(const char *text, uint64_t now_ms, reef_moment *out);

/**
 * Read a length of time, "90s", "5m", "1h", "30d" or "2w", of up to nine digits; false if the text
 * does not begin with one.
 *
 * rest  written: what follows it
 */
bool reef_span_parse(const char *text, const char **rest, uint64_t *seconds);

#endif
