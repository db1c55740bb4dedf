// Tables that line up: every column is as wide as its widest cell, counted in columns of a
// terminal.
#include "cli_table.h"
#include "cli_format.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAST_COLUMNS_MIN 16 // less of a text says nothing: it is shown as a whole

struct reef_cli_table {
    char *alignment; // one letter per column
    size_t columns;
    char **cells; // row by row
    size_t count, capacity;
};

reef_cli_table *reef_cli_table_new(const char *columns, const char *const *headings) {
    assert(columns[0] != '\0');
    reef_cli_table *table = reef_cli_alloc(1, sizeof(*table));
    table->alignment = reef_cli_format("%s", columns);
    table->columns = strlen(columns);
    for (size_t c = 0; c < table->columns; c++) reef_cli_table_cell(table, "%s", headings[c]);
    return table;
}

void reef_cli_table_free(reef_cli_table *table) {
    if (table == NULL) return;
    for (size_t i = 0; i < table->count; i++) free(table->cells[i]);
    free(table->cells);
    free(table->alignment);
    free(table);
}

void reef_cli_table_cell(reef_cli_table *table, const char *format, ...) {
    // Doubled: some tables have thousands of cells.
    if (table->count == table->capacity) {
        size_t capacity = table->capacity ? 2 * table->capacity : 64;
        char **cells = reef_cli_alloc(capacity, sizeof(*cells));
        if (table->count > 0) memcpy(cells, table->cells, table->count * sizeof(*cells));
        free(table->cells);
        table->cells = cells;
        table->capacity = capacity;
    }
    va_list arguments;
    // Twice: once for the length, once for the text.
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *cell = reef_cli_alloc((size_t)length + 1, 1);
    va_start(arguments, format);
    vsnprintf(cell, (size_t)length + 1, format, arguments);
    va_end(arguments);
    // Cells may hold names of files, and a terminal would obey control characters.
    table->cells[table->count++] = reef_cli_printable((const uint8_t *)cell, (size_t)length, false);
    free(cell);
}

static size_t column_width(const reef_cli_table *table, size_t column) {
    size_t widest = 0;
    for (size_t i = column; i < table->count; i += table->columns) {
        size_t width = reef_cli_width(table->cells[i]);
        if (width > widest) widest = width;
    }
    return widest;
}

void reef_cli_table_print(const reef_cli_table *table, FILE *out) {
    assert(table->columns > 0);
    size_t *widths = reef_cli_alloc(table->columns, sizeof(*widths));
    // Widths of the whole table first: columns must line up.
    for (size_t c = 0; c < table->columns; c++) widths[c] = column_width(table, c);
    size_t before = 2 * (table->columns - 1), terminal = reef_cli_columns(out);
    for (size_t c = 0; c + 1 < table->columns; c++) before += widths[c];
    // Text in the last column takes what the terminal has left, and in a file as much as it needs.
    bool cuts = table->alignment[table->columns - 1] == '<' && terminal > before + LAST_COLUMNS_MIN;
    for (size_t i = 0; i < table->count; i++) {
        size_t column = i % table->columns;
        bool last = column + 1 == table->columns || i + 1 == table->count;
        bool is_cut = cuts && column + 1 == table->columns;
        char *cell = reef_cli_cut(table->cells[i], is_cut ? terminal - before : SIZE_MAX);
        bool right = table->alignment[column] == '>';
        size_t width = reef_cli_width(cell),
               pad = widths[column] > width ? widths[column] - width : 0;
        // No blanks at the end of a line.
        const char *gap = column && !(last && cell[0] == '\0') ? "  " : "";
        fprintf(out, "%s%*s%s", gap, right ? (int)pad : 0, "", cell);
        if (last)
            fputc('\n', out);
        else if (!right)
            fprintf(out, "%*s", (int)pad, "");
        free(cell);
    }
    free(widths);
}
