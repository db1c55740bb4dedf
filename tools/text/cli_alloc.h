// Memory and text of a program that ends when memory runs out.
#ifndef REEF_CLI_ALLOC_H
#define REEF_CLI_ALLOC_H

#include <stddef.h>

/** Cells of memory, zeroed. A tool that runs out of memory reports it and ends with 71. */
void *reef_cli_alloc(size_t count, size_t bytes);
/** The same for text: a copy of what printf would write. */
char *reef_cli_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
