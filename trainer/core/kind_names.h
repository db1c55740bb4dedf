// What people call kinds: part of the trainer's state, so that an older state has its own names.
#ifndef REEF_KIND_NAMES_H
#define REEF_KIND_NAMES_H

#include "reef_kinds.h"

#include <jansson.h>

typedef struct reef_kind_name {
    uint32_t kind;
    char text[REEF_NAME_BYTES_MAX + 1];
} reef_kind_name;

/** By kind; those without a name are left out. */
typedef struct reef_kind_names {
    reef_kind_name *all; // owned
    size_t count;
} reef_kind_names;

void reef_kind_names_release(reef_kind_names *names); // accepts zeros
/** "": it has none. */
const char *reef_kind_names_of(const reef_kind_names *names, uint32_t kind);

/** Errors: NO_MEMORY; then there is nothing to release. */
REEF_MUST_CHECK reef_status reef_kind_names_copy(reef_kind_names *out,
                                                 const reef_kind_names *names,
                                                 reef_error *err);

/** Name one of them; "": it has none any more. Errors: NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_kind_names_set(reef_kind_names *names,
                                                uint32_t kind,
                                                const char *text,
                                                reef_error *err);

/** What is called so from `kind` on has another number: `by` more. */
void reef_kind_names_shift(reef_kind_names *names, uint32_t kind, int by);

/** The member "kind_names" of the trainer's state; left out where there are none. */
void reef_kind_names_set_state(const reef_kind_names *names, json_t **state);
/** Errors: CORRUPT, NO_MEMORY; then there is nothing to release. */
REEF_MUST_CHECK reef_status reef_kind_names_load(reef_kind_names *out,
                                                 const json_t *state,
                                                 reef_error *err);

#endif
