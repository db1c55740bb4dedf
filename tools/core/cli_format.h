// Memory; numbers, text and tables for people.
#ifndef REEF_CLI_FORMAT_H
#define REEF_CLI_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/** Cells of memory, zeroed. A tool that runs out of memory reports it and ends with 71. */
void *reef_cli_alloc(size_t count, size_t bytes);
/** Room for one more cell behind `count`: the array, or one of twice its size in its place. */
void *reef_cli_grown(void *array, size_t count, size_t *capacity, size_t bytes);
/** Text on the heap: what printf would write. */
char *reef_cli_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
/** The same behind a text, which is replaced. */
void reef_cli_append(char **text, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define CLI_WORD_BYTES 40

/** 1,234,567 */
const char *reef_cli_count(uint64_t value, char out[CLI_WORD_BYTES]);
/** 1.4 MB */
const char *reef_cli_bytes(uint64_t bytes, char out[CLI_WORD_BYTES]);
/** 2 min 5 s */
const char *reef_cli_duration(double seconds, char out[CLI_WORD_BYTES]);
/**
 * The four greatest shares as percentages, with their numbers: "97.1 (12), 2.03 (0)". On the heap.
 */
char *reef_cli_shares(const double *shares, size_t count);
/** 2024-05-01 12:00:00, local time */
const char *reef_cli_time(uint64_t unix_ms, char out[CLI_WORD_BYTES]);

/** 32 digits of a hash of REEF_HASH_BYTES */
const char *reef_cli_hash(const uint8_t *hash, char out[CLI_WORD_BYTES]);

/** Those in words that last until the end of the block. */
#define CLI_WORDS ((char[CLI_WORD_BYTES]){0})
#define CLI_COUNT(value) reef_cli_count(value, CLI_WORDS)
#define CLI_BYTES(bytes) reef_cli_bytes(bytes, CLI_WORDS)
#define CLI_DURATION(seconds) reef_cli_duration(seconds, CLI_WORDS)
#define CLI_TIME(unix_ms) reef_cli_time(unix_ms, CLI_WORDS)
#define CLI_HASH(hash) reef_cli_hash(hash, CLI_WORDS)

/**
 * Bytes as text that any terminal shows: UTF-8 stays, what is not UTF-8 and control characters
 * become \xNN. Line ends stay with `lines`, and become \n without. On the heap.
 */
char *reef_cli_printable(const uint8_t *bytes, size_t count, bool lines);
/** UTF-8 text in at most so many columns, with an ellipsis where something was cut. On the heap. */
char *reef_cli_cut(const char *text, size_t columns);
/** Columns of UTF-8 text in a terminal: two of a wide character, none of an accent by itself. */
size_t reef_cli_width(const char *text);

/**
 * Whether text on standard output may have colours: on a terminal that has them, and not with
 * NO_COLOR.
 */
bool reef_cli_colours(void);

/** A table whose columns line up. */
typedef struct reef_cli_table reef_cli_table;

/**
 * `columns` has one letter per column: '<' for text, '>' for numbers; `headings` one word for each.
 */
reef_cli_table *reef_cli_table_new(const char *columns, const char *const *headings);
void reef_cli_table_free(reef_cli_table *table);
/** Add the next cell, printable as reef_cli_printable makes it; rows fill from left to right. */
void reef_cli_table_cell(reef_cli_table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/** The same of so many bytes of text, whatever they are. */
void reef_cli_table_text(reef_cli_table *table, const uint8_t *bytes, size_t count);
/** The same for several cells, with a tab between their formats; none of them may hold a tab. */
void reef_cli_table_cells(reef_cli_table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/** A number, or `otherwise` for NaN. */
void reef_cli_table_real(reef_cli_table *table, int decimals, double value, const char *otherwise);
/** Print to standard output, and free it. */
void reef_cli_table_show(reef_cli_table *table);
void reef_cli_table_print(const reef_cli_table *table, FILE *out);

#endif
