// Tables that line up.
#ifndef REEF_CLI_TABLE_H
#define REEF_CLI_TABLE_H

#include <stdio.h>

typedef struct reef_cli_table reef_cli_table;

/**
 * `columns` has one letter per column: '<' for text, '>' for numbers; `headings` one word for each.
 */
reef_cli_table *reef_cli_table_new(const char *columns, const char *const *headings);
void reef_cli_table_free(reef_cli_table *table);
/** Add the next cell, printable as reef_cli_printable makes it; rows fill from left to right. */
void reef_cli_table_cell(reef_cli_table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void reef_cli_table_print(const reef_cli_table *table, FILE *out);

#endif
