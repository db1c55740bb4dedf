// The kinds of text in a pool, for people: what each is called, what it has learned, and when.
//
// A kind begins with a generation and has its number. Where it comes back it is visited: its
// context memory continues to learn (docs/LEARNING.md, "A kind that comes back").
//
// Threads and errors of what takes a trainer: see reef_trainer.h. Lists are read in a transaction,
// which any thread may have, and then belong to the caller.
#ifndef REEF_KINDS_H
#define REEF_KINDS_H

#include "reef_model.h"
#include "reef_states.h"
#include "reef_trainer.h"

#include <math.h>

// Single visits that a pool keeps; of older ones each kind has sums.
#define REEF_VISITS_MAX 4096

#define REEF_KIND_NONE UINT32_MAX

/** Bytes of the stream that one kind learned without another in between. */
typedef struct reef_kind_visit {
    uint32_t kind;
    uint32_t count;    // visits that it stands for: more than 1 where only their sum is kept
    uint64_t from, to; // positions in the stream
    uint64_t learned;  // bytes
    double bits;       // sum of what they cost before they were learned; NaN: not known
} reef_kind_visit;

/** Bits per byte of a visit; NaN where it has learned nothing, or that is not known. */
static inline double reef_kind_visit_loss(const reef_kind_visit *visit) {
    return visit->learned > 0 ? visit->bits / (double)visit->learned : (double)NAN;
}

typedef struct reef_kind_facts {
    uint32_t kind;                      // the number of the generation that it began with
    char name[REEF_NAME_BYTES_MAX + 1]; // "": none was given
    bool is_open;                       // that generation is open
    uint32_t merged_into;               // REEF_KIND_NONE: it was not; else it learns no more
    bool is_damaged;                    // what its memory has learned cannot be read
    bool is_current;                    // what comes next is its, unless it is another's
    uint64_t began_at;                  // position in the stream
    uint64_t began_ms;      // when that was, since 1970, by reef_kind_list_date; 0: not known
    uint64_t learned_bytes; // by its memory, in all; 0 without context memories
    uint64_t learned_at;    // position behind the last of them
    // From the history. Pools have none of what was learned before there was one, nor after `reef
    // snapshot restore` into another directory; of that a kind that never came back has one visit.
    uint64_t visit_count;
    uint64_t visited_bytes;
    double first_loss, last_loss; // of the first visit and of the last; NaN: not known
} reef_kind_facts;

typedef struct reef_kind_list {
    reef_kind_facts *kinds; // owned; by number
    size_t count;
    reef_kind_visit *visits; // owned; the sums by kind, then single ones, oldest first
    size_t visit_count;
    bool has_memories; // else kinds have learned nothing that is counted, and have no visits
} reef_kind_list;

/**
 * The kinds of the last commit.
 *
 * Errors: CORRUPT names the record; NO_MEMORY. After an error there is nothing to release.
 */
REEF_API REEF_MUST_CHECK reef_status reef_kind_list_read(reef_txn *txn,
                                                         reef_kind_list *out,
                                                         reef_error *err);
/**
 * The kinds of a state: as_of as of reef_model_open. Their history ends where the state stands in
 * the stream; sums of old visits are cut in proportion. In the state of a sealed generation no kind
 * is open or current, and names are those of now. A snapshot has the names of its time.
 *
 * Errors: NOT_FOUND no such state; those of reef_kind_list_read.
 */
REEF_API REEF_MUST_CHECK reef_status reef_kind_list_read_as_of(reef_txn *txn,
                                                               const char *as_of,
                                                               reef_kind_list *out,
                                                               reef_error *err);
/**
 * Fill in when kinds began, from the timeline (of kinds that were imported it is not known).
 * Errors: CORRUPT names the event, NO_MEMORY: the times are then unspecified, and the rest stays.
 */
REEF_API REEF_MUST_CHECK reef_status reef_kind_list_date(reef_kind_list *list,
                                                         reef_txn *txn,
                                                         reef_error *err);
REEF_API void reef_kind_list_release(reef_kind_list *list); // accepts zeros

/** The kind of that number, which is not its index in the list; NULL if there is none. */
REEF_API const reef_kind_facts *reef_kind_list_find(const reef_kind_list *list, uint32_t kind);
/** Its name; "" if it has none, or there is no such kind. */
REEF_API const char *reef_kind_list_name(const reef_kind_list *list, uint32_t kind);

/**
 * The kind that a word names, by its name or its number. Errors: NOT_FOUND says which there are.
 */
REEF_API REEF_MUST_CHECK reef_status reef_kind_find(const reef_kind_list *list,
                                                    const char *word,
                                                    uint32_t *out,
                                                    reef_error *err);

/**
 * Is it 1 to 64 letters, digits, and after the first also . _ - and no decimal number? INVALID says
 * so.
 */
REEF_API REEF_MUST_CHECK reef_status reef_kind_name_check(const char *name, reef_error *err);

/**
 * Name a kind, and commit. Names are part of the state: an older one has those that it had.
 *
 * name  "": it has none any more
 *
 * Errors: INVALID no name, or another kind has it; NOT_FOUND no such kind; those of a commit. After
 * an error it is called as before.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_kind_name(
    reef_trainer *trainer, uint32_t kind, const char *name, bool dry_run, reef_error *err);

/**
 * Give up old states (reef_states_prune), with a commit where there is something to give up.
 *
 * Errors: those of reef_states_prune and of a commit. After an error nothing is given up.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_prune(
    reef_trainer *trainer, uint32_t keep_last, bool dry_run, reef_pruning *out, reef_error *err);

/** A damaged kind, and what is left of it. */
typedef struct reef_kind_recovery {
    reef_lost_kind lost; // whole_to 0: nothing is left, and it begins anew
    uint64_t learned;    // bytes that are left of what it had learned
} reef_kind_recovery;

/**
 * Damaged kinds go on from what is whole of them, and one of which nothing is whole begins anew.
 * Commits where there are any. Other kinds and earlier states stay as they are.
 *
 * out, count  written: free *out, on failure too
 *
 * The trainer was opened with `recovers_kinds`, and can only be closed afterwards. Errors: INVALID
 * a model without kinds, or a divided pool; those of reading memories and of a commit.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_kinds_recover(
    reef_trainer *trainer, bool dry_run, reef_kind_recovery **out, size_t *count, reef_error *err);

#endif
