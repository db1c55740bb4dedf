// Memory and text of a program that ends when memory runs out.
#include "cli_alloc.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define EXIT_NO_MEMORY 71 // EX_OSERR

static void out_of_memory(void) {
    fputs("reef: out of memory\n", stderr);
    exit(EXIT_NO_MEMORY);
}

void *reef_cli_alloc(size_t count, size_t bytes) {
    void *memory = calloc(count ? count : 1, bytes ? bytes : 1);
    if (memory == NULL) out_of_memory();
    return memory;
}

char *reef_cli_format(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    assert(length >= 0);
    char *text = reef_cli_alloc((size_t)length + 1, 1);
    va_start(arguments, format);
    vsnprintf(text, (size_t)length + 1, format, arguments);
    va_end(arguments);
    return text;
}
