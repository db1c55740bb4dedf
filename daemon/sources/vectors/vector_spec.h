// The text that names vectors, taken apart; reef_vectors.h says what may stand in it.
#ifndef REEF_VECTOR_SPEC_H
#define REEF_VECTOR_SPEC_H

#include "reef_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// the kind's name
#define REEF_VECTOR_KIND_LIST(X)                                                                   \
    X(IDX, "idx")                                                                                  \
    X(NPY, "npy")                                                                                  \
    X(CSV, "csv")                                                                                  \
    X(JSONL, "jsonl")

typedef enum reef_vector_kind {
#define REEF_VECTOR_KIND_ENUM(name, text) REEF_VECTOR_##name,
    REEF_VECTOR_KIND_LIST(REEF_VECTOR_KIND_ENUM)
#undef REEF_VECTOR_KIND_ENUM
        REEF_VECTOR_KIND_COUNT
} reef_vector_kind;

typedef enum reef_vector_header {
    REEF_HEADER_FIND,
    REEF_HEADER_YES,
    REEF_HEADER_NO
} reef_vector_header;

typedef struct reef_vector_list {
    uint64_t *items;
    size_t count; // 0: not given
} reef_vector_list;

typedef struct reef_vector_spec {
    char *text;  // as given
    char *words; // the memory of the strings below
    reef_vector_kind kind;
    const char *path, *labels; // labels: the second path, NULL if not given
    const char *label, *names; // options; NULL when not given
    reef_vector_header header;
    bool scaled;
    double scale, divisor;     // values become value * scale / divisor
    reef_vector_list classes;  // empty: all
    reef_vector_list permutes; // seeds, one per permutation; empty: as it stands
    bool shuffled;
    uint64_t shuffle;     // the seed
    uint64_t skip, first; // first: UINT64_MAX when not given
} reef_vector_spec;

/** The kind that a text begins with, or REEF_VECTOR_KIND_COUNT. */
reef_vector_kind reef_vector_kind_of(const char *text);
/** INVALID names the part of the spec that is wrong, and what may stand there. */
REEF_MUST_CHECK reef_status reef_vector_spec_parse(reef_vector_spec *spec,
                                                   const char *text,
                                                   reef_error *err);
void reef_vector_spec_release(reef_vector_spec *spec); // accepts the zeroed spec

/** A label from a number: whole, -1 (none) or more. False when it is neither. */
bool reef_vector_label(double value, int32_t *label);

#endif
