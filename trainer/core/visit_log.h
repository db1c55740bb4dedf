// Which kind learned what, visit by visit, and what it cost: a history for people, in `series`.
// Like the history of the loss it is no part of the root hash, and nothing depends on it.
#ifndef REEF_VISIT_LOG_H
#define REEF_VISIT_LOG_H

#include "reef_kinds.h"

typedef struct reef_visits {
    reef_kind_visit *all; // owned
    size_t count, capacity;
} reef_visits;

typedef struct reef_visit_log {
    reef_visits visits; // those of the last record, if it is known, and since
    bool is_known;      // the pool's last record has been read
    uint64_t sequence;  // of the record that the first of them is in
} reef_visit_log;

/** A kind has learned `bytes` up to position `to`, at `bits` in all. NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_visit_log_add(
    reef_visit_log *log, uint32_t kind, uint64_t to, uint64_t bytes, double bits, reef_error *err);

/** Write what is new into the transaction of a commit; of what is too much the sums are kept. */
REEF_MUST_CHECK reef_status reef_visit_log_put(reef_visit_log *log, reef_txn *txn, reef_error *err);

/** That commit succeeded. */
void reef_visit_log_settle(reef_visit_log *log);
void reef_visit_log_release(reef_visit_log *log);

/**
 * The sums by kind, then single visits, oldest first. Owned by the caller. Errors: CORRUPT.
 */
REEF_MUST_CHECK reef_status reef_visit_log_read(reef_txn *txn,
                                                reef_kind_visit **out,
                                                size_t *count,
                                                reef_error *err);

/**
 * Leave of a visit what lies before a position in the stream. One that continues behind it is cut
 * there, and so are sums, at the same mean loss. Returns false where nothing is left.
 */
bool reef_visit_cut(reef_kind_visit *visit, uint64_t stream_bytes);

/** Forget what lies after a committed position in the stream (reef_visit_cut). */
REEF_MUST_CHECK reef_status reef_visit_log_forget_after(reef_txn *txn,
                                                        uint64_t stream_bytes,
                                                        reef_error *err);

#endif
