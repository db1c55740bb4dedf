// What a source goes by in the pool: its text as given, or where that is too long or no JSON text,
// a hash of it and as much of its end as fits.
#ifndef REEF_SOURCE_NAME_H
#define REEF_SOURCE_NAME_H

#include <stddef.h>

/** Write at most `max` bytes (at least 32) and a final zero. */
void reef_source_name(char *out, size_t max, const char *text, size_t bytes);

#endif
