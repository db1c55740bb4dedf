// What reef watch PATH... follows: paths as people give them, and sources as reefd takes them.
#ifndef REEF_LIVE_SOURCES_H
#define REEF_LIVE_SOURCES_H

#include "reef_error.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct reef_live_sources {
    char **specs; // owned; (count) "follow:PATH", "journal:...", or "-"
    size_t count, capacity;
} reef_live_sources;

/**
 * The logs that are there now, each once: files, those of directories and of patterns. Rotated
 * names are read with the log that they are of; what is compressed or no text is left out, and said
 * on standard error where it was named itself.
 *
 * Errors: NOT_FOUND a path or pattern without a file; INVALID neither file nor directory, a journal:
 * that names nothing, standard input beside others, more than reefd takes; IO.
 */
REEF_MUST_CHECK reef_status reef_live_sources_find(reef_live_sources *out,
                                                   char *const *paths,
                                                   size_t count,
                                                   reef_error *err);
void reef_live_sources_release(reef_live_sources *sources);
bool reef_live_sources_equal(const reef_live_sources *a, const reef_live_sources *b);

#endif
