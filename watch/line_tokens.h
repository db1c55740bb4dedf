// What a line says: its words, without what differs from line to line.
#ifndef REEF_LINE_TOKENS_H
#define REEF_LINE_TOKENS_H

#include "line_head.h"
#include "reef_watch.h"
#include <stdbool.h>

#define REEF_TOKENS_MAX 40     // of a line; what is behind them is not looked at
#define REEF_TOKEN_VARIABLE 1u // hash of every number, id, address and time

/** Part of a line: (bytes) from `at` on. */
typedef struct reef_token {
    uint32_t hash;
    uint16_t at, bytes;
    bool is_number; // of a few digits, which stays a word: 404
} reef_token;

typedef struct reef_line_tokens {
    reef_token tokens[REEF_TOKENS_MAX];
    size_t count;
    size_t words; // that are not variable
    reef_severity severity;
} reef_line_tokens;

/**
 * The tokens of a line of at most REEF_WATCH_LINE_BYTES_MAX bytes. Its head is left out.
 *
 * A word has letters only; a number of up to three digits, such as a status, is a word too.
 * Variable is all else that has digits, a path with a query, a long run without spaces, and the
 * name of a month or a day beside a number.
 */
void reef_line_tokens_read(const uint8_t *line,
                           size_t count,
                           const reef_line_head *head,
                           reef_line_tokens *out);

/** A word such as "INFO" or "error" by itself. */
bool reef_is_level(const uint8_t *word, size_t count);

#endif
