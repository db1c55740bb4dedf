// The memories of a state's kinds: how far each had come, and where that is stored.
//
// The *head* of a kind is its memory with all visits up to the state (generation_memory.h), as the
// head of a branch is its newest commit. It has nothing to do with heads of retrieval. It is read
// from the last tables that are stored of it, in the newest holder that has some or else with the
// kind's own generation, and from the tails of all holders since.
#ifndef REEF_KIND_HEADS_H
#define REEF_KIND_HEADS_H

#include "as_of.h"
#include "generation_memory.h"
#include "reef_model.h"

/** One line of the record `kinds` of a holder, as it is stored. */
typedef struct reef_visit_entry {
    uint32_t kind, merged; // merged 1: the kind ends with this visit, which has no records
    uint64_t learned, next;
    uint8_t chain[REEF_HASH_BYTES];
    // Of the kind's memory as it was sealed, from which the visit continued.
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
    // owned; (state->last + 1) each. Kinds whose own chain is damaged: their visits may be void,
    // and no memory is read from them. Holders whose list is damaged: what older kinds learned with
    // them is not known, and a memory is read from later tables alone.
    bool *doubtful, *unlisted;
} reef_kind_heads;

/**
 * Who held what. `state` must live as long; after an error there is nothing to release. Errors:
 * NO_MEMORY, IO.
 */
REEF_MUST_CHECK reef_status reef_kind_heads_read(reef_kind_heads *out,
                                                 reef_txn *txn,
                                                 const reef_as_of *state,
                                                 reef_error *err);
void reef_kind_heads_release(reef_kind_heads *heads); // accepts zeros

/** The newest visit of a kind, or its end; NULL: it never came back. */
const reef_visit_entry *reef_kind_heads_find(const reef_kind_heads *heads, uint32_t kind);

/** Is what the kind learned with some holder not known, since that one's list is damaged? */
bool reef_kind_heads_is_unlisted(const reef_kind_heads *heads, uint32_t kind);

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
 * Errors: CORRUPT names the kind and the record; NOT_FOUND the pool was pruned of it.
 */
REEF_MUST_CHECK reef_status reef_kind_heads_load(const reef_kind_heads *heads,
                                                 reef_txn *txn,
                                                 uint32_t kind,
                                                 reef_generation_memory *out,
                                                 size_t *older_bytes,
                                                 reef_error *err);

/** CORRUPT: the kind is damaged, which `what` says, and what can be done. */
REEF_MUST_CHECK reef_status reef_kind_fail_damaged(uint32_t kind,
                                                   const char *what,
                                                   reef_error *err);

/**
 * The same for who can do with less: where the memory is damaged, as it was as of the newest
 * generation before for which it is whole, with its tail learned; nothing where there is none.
 *
 * bytes_max  of the pool's memories
 * learns     learn the tail in any case: what it does not lead to is found by that alone
 * lost       written; what[0] is 0 where nothing was damaged
 *
 * Errors: NOT_FOUND as reef_kind_heads_load; NO_MEMORY; IO.
 */
REEF_MUST_CHECK reef_status reef_kind_heads_load_whole(const reef_kind_heads *heads,
                                                       reef_txn *txn,
                                                       uint32_t kind,
                                                       uint64_t bytes_max,
                                                       bool learns,
                                                       reef_generation_memory *out,
                                                       reef_lost_kind *lost,
                                                       reef_error *err);

#endif
