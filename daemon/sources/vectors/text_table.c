// Text files with a row per line. Every line is parsed when the file is opened, so that a bad one
// is found before anything is trained on. Only the offset of each is kept, 8 bytes a row.
#include "vector_table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES 65536
#define LINE_BYTES_MAX ((size_t)64 << 20)
#define ROWS_FIRST 1024

// Reads lines one after the other.
typedef struct line_reader {
    reef_vector_lines *lines;
    uint64_t next;   // offset of the next line
    uint64_t start;  // of the one read last
    uint64_t number; // of the one read last, from 1
    uint64_t at;     // where the bytes in `piece` come from
    size_t have;
    uint8_t piece[PIECE_BYTES];
} line_reader;

static reef_status line_room(reef_vector_lines *lines, size_t bytes, reef_error *err) {
    if (bytes + 1 <= lines->line_capacity) return REEF_OK;
    size_t capacity = 2 * (bytes + 1);
    char *grown = bytes > LINE_BYTES_MAX ? NULL : realloc(lines->line, capacity);
    if (grown == NULL)
        return reef_fail(err, bytes > LINE_BYTES_MAX ? REEF_ERR_INVALID : REEF_ERR_NO_MEMORY,
                         "'%.120s' has a line of more than %zu bytes", lines->file.path, bytes - 1);
    lines->line = grown;
    lines->line_capacity = capacity;
    return REEF_OK;
}

static reef_status load_piece(line_reader *reader, uint64_t offset, reef_error *err) {
    uint64_t left = reader->lines->file.bytes - offset;
    reader->at = offset;
    reader->have = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
    return reef_vector_file_read(&reader->lines->file, offset, reader->piece, reader->have, err);
}

// The next line, without its end, in lines->line; *found is false at the end of the file.
static reef_status next_line(line_reader *reader, bool *found, reef_error *err) {
    reef_vector_lines *lines = reader->lines;
    size_t length = 0;
    *found = reader->next < lines->file.bytes;
    if (!*found) return REEF_OK;
    // Where the line begins is kept, so that a row can be read again without reading the file.
    reader->start = reader->next;
    reader->number++;
    // A line may cross pieces of the file.
    for (bool ended = false; !ended && reader->next < lines->file.bytes;) {
        bool inside = reader->next >= reader->at && reader->next < reader->at + reader->have;
        reef_status status = inside ? REEF_OK : load_piece(reader, reader->next, err);
        if (status != REEF_OK) return status;
        const uint8_t *from = reader->piece + (reader->next - reader->at);
        size_t rest = (size_t)(reader->at + reader->have - reader->next);
        const uint8_t *end = memchr(from, '\n', rest);
        size_t count = end != NULL ? (size_t)(end - from) : rest;
        status = line_room(lines, length + count, err);
        if (status != REEF_OK) return status;
        memcpy(lines->line + length, from, count);
        length += count;
        ended = end != NULL;
        reader->next += count + ended;
    }
    // Files from Windows end lines with two characters.
    if (length && lines->line[length - 1] == '\r') length--;
    reef_status status = line_room(lines, length, err); // an empty line has no memory yet
    if (status != REEF_OK) return status;
    lines->line[length] = '\0';
    // A zero byte means that this is not text at all.
    if (memchr(lines->line, '\0', length) != NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "'%.120s' line %" PRIu64 " has a zero byte: no text", lines->file.path,
                         reader->number);
    return REEF_OK;
}

static bool is_blank(const char *line) {
    return line[strspn(line, " \t\r")] == '\0';
}

static reef_status no_rows(const reef_vector_lines *lines, reef_error *err) {
    return reef_fail(err, REEF_ERR_INVALID, "'%.160s' has no line with an example",
                     lines->file.path);
}

static reef_status reader_new(line_reader **reader, reef_vector_table *table, reef_error *err) {
    *reader = calloc(1, sizeof(**reader));
    if (*reader == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to read lines");
    (*reader)->lines = &table->lines;
    return REEF_OK;
}

// A byte-order mark does not belong to the first value.
static void drop_mark(char *line) {
    if (strncmp(line, "\xef\xbb\xbf", 3) == 0) memmove(line, line + 3, strlen(line + 3) + 1);
}

reef_status reef_vector_lines_first(reef_vector_table *table, uint64_t *number, reef_error *err) {
    line_reader *reader = NULL;
    reef_status status = reader_new(&reader, table, err);
    bool found = true, blank = true;
    // Blank lines before the first are skipped.
    while (status == REEF_OK && found && blank) {
        status = next_line(reader, &found, err);
        if (status != REEF_OK || !found) break;
        // A byte order mark of UTF-8 is not part of the first value.
        if (reader->number == 1) drop_mark(table->lines.line);
        blank = is_blank(table->lines.line);
        *number = reader->number;
    }
    if (status == REEF_OK && blank) status = no_rows(&table->lines, err);
    free(reader);
    return status;
}

// ---- rows ---------------------------------------------------------------------------------------

static reef_status grow_lines(reef_vector_table *table, reef_error *err) {
    reef_vector_lines *lines = &table->lines;
    // One offset more than rows: the end of the last row is stored too.
    if (table->rows + 1 < lines->capacity) return REEF_OK;
    uint64_t capacity = lines->capacity ? 2 * lines->capacity : ROWS_FIRST;
    uint64_t *starts = realloc(lines->starts, (size_t)capacity * sizeof(*starts));
    if (starts != NULL) lines->starts = starts;
    // Labels stay in memory for every row; vectors are read from the file when they are needed.
    int32_t *labels =
        starts != NULL ? realloc(table->labels, (size_t)capacity * sizeof(*labels)) : NULL;
    if (labels != NULL) table->labels = labels;
    if (labels == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the %" PRIu64 " lines of '%.120s'",
                         capacity, lines->file.path);
    lines->capacity = capacity;
    return REEF_OK;
}

static reef_status add_row(reef_vector_table *table, const line_reader *reader, reef_error *err) {
    if (table->rows == REEF_VECTOR_ROWS_MAX)
        return reef_fail(err, REEF_ERR_INVALID, "'%.120s' has more than %" PRIu64 " lines",
                         table->lines.file.path, REEF_VECTOR_ROWS_MAX);
    reef_status status = grow_lines(table, err);
    if (status != REEF_OK) return status;
    if (reader->number == 1) drop_mark(table->lines.line);
    // Each line is parsed once at opening, so that a bad one is found before training begins.
    table->lines.starts[table->rows] = reader->start;
    status = table->parse(table, table->lines.line, reader->number, NULL,
                          &table->labels[table->rows], err);
    if (status == REEF_OK) table->rows++;
    return status;
}

// The line of a row again. Its number is not known any more, but it was good when the file was
// opened.
static reef_status read_row(reef_vector_table *table,
                            uint64_t row,
                            float *vector,
                            reef_error *err) {
    reef_vector_lines *lines = &table->lines;
    // Its length follows from where the next row begins.
    size_t bytes = (size_t)(lines->starts[row + 1] - lines->starts[row]);
    reef_status status = line_room(lines, bytes, err);
    if (status != REEF_OK) return status;
    status = reef_vector_file_read(&lines->file, lines->starts[row], lines->line, bytes, err);
    if (status != REEF_OK) return status;
    lines->line[bytes] = '\0';
    lines->line[strcspn(lines->line, "\r\n")] = '\0';
    drop_mark(lines->line);
    int32_t label = -1;
    reef_error why;
    status = table->parse(table, lines->line, 0, vector, &label, &why);
    // If the label changed, so may have the values: training must not see a mixture.
    if (status == REEF_OK && label == table->labels[row]) return REEF_OK;
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "'%.120s' changed while it was read: example %" PRIu64 " (from 0) is another",
                     lines->file.path, row);
}

reef_status reef_vector_lines_scan(reef_vector_table *table, uint64_t skipped, reef_error *err) {
    line_reader *reader = NULL;
    reef_status status = reader_new(&reader, table, err);
    bool found = true;
    while (status == REEF_OK && found) {
        status = next_line(reader, &found, err);
        // Lines that were read as the header are passed over.
        if (status != REEF_OK || !found || reader->number <= skipped) continue;
        if (!is_blank(table->lines.line)) status = add_row(table, reader, err);
    }
    free(reader);
    if (status == REEF_OK && !table->rows) status = no_rows(&table->lines, err);
    if (status != REEF_OK) return status;
    // The end of the file closes the last row.
    table->lines.starts[table->rows] = table->lines.file.bytes;
    table->read = read_row;
    return REEF_OK;
}
