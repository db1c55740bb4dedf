// The dashboard's files, which are part of the program.
#ifndef REEF_DASHBOARD_H
#define REEF_DASHBOARD_H

#include <stddef.h>

typedef struct reef_page_file {
    const char *path, *type;
    const unsigned char *bytes;
    const unsigned *count;
} reef_page_file;

/** The file of a path, or NULL. */
const reef_page_file *reef_page_find(const char *path);

#endif
