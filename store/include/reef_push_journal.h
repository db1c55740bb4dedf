// The journal: bytes that clients pushed, kept until a commit of training contains them.
//
// A batch is on disk before its client gets an answer, so a killed daemon loses none. The id that a
// client gives to a batch makes sending it again harmless.
//
// Errors and threads: see reef_store.h.
#ifndef REEF_PUSH_JOURNAL_H
#define REEF_PUSH_JOURNAL_H

#include "reef_snapshot.h"
#include "reef_store.h"

#define REEF_PUSH_PREFIX "push:"   // the name of a source that is pushed into begins so
#define REEF_JOURNAL_IDS_MAX 1024u // last batches of a source whose ids are known, trained or not
#define REEF_JOURNAL_ID_BYTES_MAX 128u // of one id
#define REEF_JOURNAL_BATCH_BYTES_MAX (1u << 20)
#define REEF_JOURNAL_ENTRY_BYTES 256u // what a batch counts for against bytes_max, beside its bytes

/** Bytes that a client pushed. They stay the caller's. */
typedef struct reef_journal_batch {
    const char *source; // its name, REEF_PUSH_PREFIX and more
    uint64_t cursor; // of the trainer: where the source's journal begins when it has no entry yet
    uint64_t bytes_max; // the batch is refused when more would wait for training than so many
    const uint8_t *bytes;
    size_t count;   // 1 to REEF_JOURNAL_BATCH_BYTES_MAX
    const char *id; // up to REEF_JOURNAL_ID_BYTES_MAX; NULL or "": none
    uint64_t unix_ms;
    // the answer
    reef_error error; // OK; INVALID sizes, or an id that other bytes had; BUSY bytes_max
    bool duplicate; // a batch of this id and these bytes was journalled before: nothing was written
    bool trained; // BUSY, and the cursor has passed all that waits: a commit of training makes room
    // In the source, of the byte after the batch, or after the one before; of one that was trained
    // before a snapshot was restored, some position that the cursor has passed.
    uint64_t position;
} reef_journal_batch;

/**
 * Journal the batches in their order, all in one transaction of its own, with step and position of
 * the last commit. The reason why a batch is refused is its own `error`; the others are stored,
 * but where one was BUSY, those of its source that follow it here are as well.
 *
 * commit  written when something was; may be NULL
 *
 * Errors (nothing is journalled): FULL, IO, CORRUPT, those of reef_txn_begin. The root hash does
 * not change.
 */
REEF_API REEF_MUST_CHECK reef_status reef_journal_append(reef_store *store,
                                                         reef_journal_batch *batches,
                                                         size_t batch_count,
                                                         reef_commit *commit,
                                                         reef_error *err);

/**
 * The bytes of a source from `position` on, as many as wait and fit, in a read transaction of its
 * own.
 *
 * bytes  (room) written
 * count  written; 0: nothing waits
 *
 * Errors: CORRUPT an entry is damaged, or does not reach back to `position`, or ends before it.
 */
REEF_API REEF_MUST_CHECK reef_status reef_journal_read(reef_store *store,
                                                       const char *source,
                                                       uint64_t position,
                                                       uint8_t *bytes,
                                                       size_t room,
                                                       size_t *count,
                                                       reef_error *err);

/**
 * Remove the bytes of entries that lie wholly before `cursor`, as part of a write transaction: the
 * one that commits this cursor. Of the last REEF_JOURNAL_IDS_MAX entries all but the bytes stays. A
 * source without a journal is fine.
 *
 * Errors: CORRUPT names the entry; FULL, as reef_record_put.
 */
REEF_API REEF_MUST_CHECK reef_status reef_journal_trim(reef_txn *txn,
                                                       const char *source,
                                                       uint64_t cursor,
                                                       reef_error *err);

/**
 * The trainer's cursor of a source has gone to `to` without training: a snapshot was restored.
 *
 * Ids are known then of batches that the snapshot's state has as a whole, and of those that wait.
 * Batches that the journal still holds, and the state does not have, are trained at `to`: neither
 * lost nor trained twice.
 *
 * snapshot  that was restored
 *
 * Errors: CORRUPT the journal was never read so far; the list of ids is damaged.
 */
REEF_API REEF_MUST_CHECK reef_status reef_journal_move(
    reef_txn *txn, const char *source, const reef_snapshot *snapshot, uint64_t to, reef_error *err);

/** A source's journal. Positions are the source's; zero where it has no entry. */
typedef struct reef_journal_stat {
    uint64_t entries;       // that wait, wholly or in part
    uint64_t begin, end;    // of what they hold
    uint64_t entries_known; // with those whose id alone is left
    uint64_t last_ms;       // when the last one was accepted
} reef_journal_stat;

REEF_API REEF_MUST_CHECK reef_status reef_journal_survey(reef_txn *txn,
                                                         const char *source,
                                                         reef_journal_stat *out,
                                                         reef_error *err);

#endif
