// The state of the trainer as one transaction: a commit, what goes before it, a snapshot along with
// it.
#include "commit.h"
#include "events.h"
#include "kind_memories.h"
#include "reef_fail_point.h"
#include "reef_pool_check.h"
#include "reef_snapshot.h"
#include "watching.h"

#include <string.h>

static reef_status write_all(reef_trainer *trainer,
                             reef_txn *txn,
                             uint64_t unix_ms,
                             reef_error *err) {
    // The order is that of the reader's trust: generations first, then what refers to them. Within
    // one transaction it matters only to the fail points, where tests kill the process.
    reef_status status = reef_watching_leave_sealed(trainer, txn, err);
    if (status == REEF_OK) status = reef_generations_put(trainer, txn, unix_ms, err);
    if (status == REEF_OK) status = reef_kinds_put_visits(trainer, txn, err);
    REEF_FAIL_POINT(COMMIT_MODEL);
    if (status == REEF_OK) status = reef_state_put(trainer, txn, err);
    REEF_FAIL_POINT(COMMIT_STATE);
    if (status == REEF_OK) status = reef_state_put_history(trainer, txn, err);
    if (status == REEF_OK) status = reef_kernels_put(txn, err);
    // Only if the scrubber has reported something since: otherwise the commit must leave the
    // record, and with it the root of the pool's metadata, as it was.
    if (status == REEF_OK && trainer->unstored.scrub_known)
        status = reef_scrub_put(txn, &trainer->unstored.scrub, err);
    return status;
}

// Nothing is dirty any more.
static void settle(reef_trainer *trainer, const reef_commit *commit) {
    reef_kinds_take_slices(trainer);
    reef_generations_committed(trainer);
    reef_kinds_note_commit(trainer);
    reef_state_forget_history(trainer);
    trainer->committed_step = trainer->step;
    trainer->last_commit = *commit;
}

static reef_status make_commit(reef_trainer *trainer,
                               reef_trainer_writer prelude,
                               void *context,
                               const char *snapshot_name,
                               reef_snapshot *snapshot,
                               reef_commit *out,
                               reef_error *err) {
    double start = reef_seconds();
    size_t events = trainer->unstored.event_count;
    uint64_t over = 0;
    reef_txn *txn = NULL;
    // Step and stream position name the commit for people and for snapshots. The time is not part
    // of any root hash, so equal streams give equal roots at any hour.
    reef_commit commit = {
        .step = trainer->step, .stream_bytes = trainer->stream_bytes, .unix_ms = reef_unix_ms()};
    // After a step that ended half way the weights in memory are wrong. They must never become the
    // pool's state, so a broken trainer fails here.
    reef_status status = reef_trainer_check_whole(trainer, err);
    if (status == REEF_OK) status = reef_pool_over(trainer, &over, err);
    if (status == REEF_OK) status = reef_txn_begin(&txn, trainer->store, REEF_TXN_WRITE, err);
    if (status != REEF_OK) return status;
    reef_epoch_share(trainer, txn);
    REEF_FAIL_POINT(COMMIT_BEGUN);
    status = reef_pool_bound(trainer, txn, over, err);
    if (status == REEF_OK && prelude != NULL) status = prelude(context, txn, err);
    if (status == REEF_OK) status = write_all(trainer, txn, commit.unix_ms, err);
    // In the same transaction, so that no other commit can come between the state and its snapshot.
    if (status == REEF_OK && snapshot_name != NULL)
        status = reef_snapshot_create(txn, snapshot_name, snapshot, err);
    // And its event, of which a refused name causes none.
    if (status == REEF_OK && snapshot_name != NULL)
        status = reef_state_event(trainer, err, "snapshot", "\"name\": \"%s\"", snapshot_name);
    if (status == REEF_OK && snapshot_name != NULL)
        status = reef_timeline_append(
            txn, trainer->unstored.events[trainer->unstored.event_count - 1], err);
    // Source checkpoints belong to this state: written apart, a crash in between would train bytes
    // twice or lose them.
    if (status == REEF_OK && trainer->on_commit != NULL)
        status = trainer->on_commit(trainer->commit_context, txn, err);
    if (status == REEF_OK) status = reef_epoch_put(trainer, txn, err);
    if (status != REEF_OK) {
        reef_txn_abort(txn);
        reef_state_drop_events(trainer, events);
        return status;
    }
    // LMDB makes it durable here: an fsync of the data, then of the meta page. Everything after
    // this line is bookkeeping in memory.
    status = reef_txn_commit(txn, &commit, err);
    trainer->seconds.commit += reef_seconds() - start;
    if (status != REEF_OK) {
        reef_state_drop_events(trainer, events);
        return status;
    }
    settle(trainer, &commit);
    reef_epoch_made(trainer);
    if (out != NULL) *out = commit;
    return REEF_OK;
}

static reef_status write_commit(reef_trainer *trainer,
                                reef_trainer_writer prelude,
                                void *context,
                                const char *snapshot_name,
                                reef_snapshot *snapshot,
                                reef_commit *out,
                                reef_error *err) {
    reef_error found; // the caller may not want it
    reef_status status =
        make_commit(trainer, prelude, context, snapshot_name, snapshot, out, &found);
    if (status == REEF_OK) return REEF_OK;
    reef_epoch_failed(trainer, status, &found);
    return reef_fail(err, status, "%s", found.message);
}

// A commit, and in the same transaction a snapshot where it has a name. No transaction of ours may
// hold the map while the writer needs to enlarge it.
static reef_status commit_with(reef_trainer *trainer,
                               const char *snapshot_name,
                               reef_snapshot *snapshot,
                               reef_commit *out,
                               reef_error *err) {
    reef_residency_unpin(&trainer->net.residency);
    reef_status status = write_commit(trainer, NULL, NULL, snapshot_name, snapshot, out, err);
    // The commit stands, whatever happens to the rows: their next reader locates them again, and
    // reports an error.
    if (status == REEF_OK) (void)!reef_trainer_repin(trainer, NULL);
    return status;
}

reef_status reef_trainer_commit_after(reef_trainer *trainer,
                                      reef_trainer_writer prelude,
                                      void *context,
                                      reef_error *err) {
    reef_residency_unpin(&trainer->net.residency);
    return write_commit(trainer, prelude, context, NULL, NULL, NULL, err);
}

reef_status reef_trainer_commit(reef_trainer *trainer, reef_commit *out, reef_error *err) {
    return commit_with(trainer, NULL, NULL, out, err);
}

reef_status reef_trainer_rest(reef_trainer *trainer, reef_error *err) {
    reef_status status = REEF_OK;
    while (status == REEF_OK && reef_kinds_rest(trainer))
        status = reef_trainer_commit(trainer, NULL, err);
    return status;
}

// ---- snapshots ----------------------------------------------------------------------------------
//
// Snapshots of a trainer's pool are made and removed; both are events of the timeline.

reef_status reef_trainer_snapshot(reef_trainer *trainer,
                                  const char *name,
                                  reef_snapshot *out,
                                  reef_error *err) {
    reef_snapshot unused;
    // The snapshot is of the commit before it plus unsaved changes: first commit these, so that the
    // commit it names is the state it holds.
    reef_status status = reef_trainer_commit(trainer, NULL, err);
    return status == REEF_OK ? commit_with(trainer, name, out == NULL ? &unused : out, NULL, err)
                             : status;
}

typedef struct removal {
    reef_trainer *trainer;
    char (*names)[REEF_NAME_BYTES_MAX + 1];
    size_t count;
} removal;

static reef_status remove_snapshots(void *context, reef_txn *txn, reef_error *err) {
    const removal *r = context;
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < r->count; i++)
        status = reef_snapshot_remove(txn, r->names[i], err);
    for (size_t i = 0; status == REEF_OK && i < r->count; i++)
        status =
            reef_state_event(r->trainer, err, "snapshot_remove", "\"name\": \"%s\"", r->names[i]);
    return status;
}

reef_status reef_trainer_snapshots_remove(reef_trainer *trainer,
                                          char (*names)[REEF_NAME_BYTES_MAX + 1],
                                          size_t count,
                                          reef_error *err) {
    removal r = {.trainer = trainer, .names = names, .count = count};
    return reef_trainer_commit_after(trainer, remove_snapshots, &r, err);
}
