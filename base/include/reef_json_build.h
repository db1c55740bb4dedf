// Building JSON that may not be half of it: jansson leaves out what finds no memory, and says so
// once. Here what could not be put in takes the whole with it, so that only the end needs a check.
#ifndef REEF_JSON_BUILD_H
#define REEF_JSON_BUILD_H

#include <jansson.h>
#include <stdbool.h>

/** How programs get numbers: seconds since 1970 have 13 digits with their milliseconds. */
#define REEF_JSON_DIGITS JSON_REAL_PRECISION(15)

/** Append a new value to *list; without memory *list becomes NULL and stays so. */
static inline void reef_json_append(json_t **list, json_t *value) {
    if (json_array_append_new(*list, value) == 0) return; // NULL in either place is refused
    json_decref(*list);
    *list = NULL;
}

/** The same for a member of *object. */
static inline void reef_json_set(json_t **object, const char *name, json_t *value) {
    if (json_object_set_new(*object, name, value) == 0) return;
    json_decref(*object);
    *object = NULL;
}

/** Was a text not parsed for want of memory? Where jansson gives no reason, that is it. */
static inline bool reef_json_no_memory(const json_error_t *fault) {
    return fault->text[0] == '\0' || json_error_code(fault) == json_error_out_of_memory;
}

#endif
