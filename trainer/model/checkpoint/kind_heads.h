// The memories of a state's kinds: how far each had come, and where that is stored.
//
// The *head* of a kind is its memory with all visits up to the state (memory/visit.h), as the head
// of a branch is its newest commit. It has nothing to do with heads of retrieval. It is read
// from the last tables that are stored of it, in the newest holder that has some or else with the
// kind's own generation, and from the tails of all holders since.
#ifndef REEF_KIND_HEADS_H
#define REEF_KIND_HEADS_H

#include "as_of.h"
#include "visit.h"

/** One line of the record `kinds` of a holder, as it is stored. */
typedef struct reef_visit_entry {
    uint32_t kind, merged; // merged 1: the kind ends with this visit, which has no records
    uint64_t learned, next;
    uint8_t chain[REEF_HASH_BYTES];
    // Of the kind's memory as it was sealed, from which the visit continued: if the generation was
    // consolidated since, it is not this kind any more.
    uint8_t sealed_chain[REEF_HASH_BYTES];
} reef_visit_entry;
_Static_assert(sizeof(reef_visit_entry) == REEF_VISIT_BYTES, "as it is stored");

typedef struct reef_visit_list {
    reef_visit_entry *entries; // owned
    size_t count;
} reef_visit_list;

typedef struct reef_kind_heads {
    const reef_as_of *state;  // not owned
    reef_visit_list *holders; // owned; of generations 0 .. state->last
} reef_kind_heads;

/**
 * Who held what. Errors: CORRUPT a list is malformed. `state` must live as long; after an error
 * there is nothing to release.
 */
REEF_MUST_CHECK reef_status reef_kind_heads_read(reef_kind_heads *out,
                                                 reef_txn *txn,
                                                 const reef_as_of *state,
                                                 reef_error *err);
void reef_kind_heads_release(reef_kind_heads *heads); // accepts zeros

/** The newest visit of a kind, or its end; NULL: it never came back. */
const reef_visit_entry *reef_kind_heads_find(const reef_kind_heads *heads, uint32_t kind);

/** Key of the visits of a kind that a holder has: its records differ in name and block alone. */
reef_key reef_visit_key(const reef_kind_heads *heads, uint32_t holder, uint32_t kind);

/**
 * What the memory of a kind is read from, as of generation `last` of this state: from the holder
 * `base` on, or from the kind's own generation where that is `base`. Is all of it there? It is not
 * where the pool was pruned since (prune.c).
 */
bool reef_kind_heads_span(
    const reef_kind_heads *heads, reef_txn *txn, uint32_t last, uint32_t kind, uint32_t *base);

/**
 * Read the memory of a kind into one that has none: tables, and the tails to `unlearned`. Nothing
 * where the kind has learned nothing, or was merged into another.
 *
 * older_bytes  written; of the tail, what others than the last generation hold
 *
 * Errors: CORRUPT names the record; NOT_FOUND the pool was pruned of it.
 */
REEF_MUST_CHECK reef_status reef_kind_heads_load(const reef_kind_heads *heads,
                                                 reef_txn *txn,
                                                 uint32_t kind,
                                                 reef_generation_memory *out,
                                                 size_t *older_bytes,
                                                 reef_error *err);

#endif
