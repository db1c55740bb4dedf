// Restore a snapshot, in place or in a new directory.
//
// The store brings the records back (pool_restore.c). Left to do here is what the store cannot
// know: whether training can continue from the snapshot at all, and the history, which no snapshot
// holds. Points of the loss behind the last state that the pool and the snapshot share are removed,
// since training will write others there; events stay, because they happened, and one more says
// what was done (lineage.c). What waits in the journal still waits (pool_restore.c).
//
// The first snapshots hold no moments. A language model then continues with a new optimiser state,
// without windows of the stream that the snapshot has not seen.
#include "commit.h"
#include "loss_history.h"
#include "reef_fail_point.h"
#include "reef_push_journal.h"
#include "reef_snapshot.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct restoring {
    const char *name;    // as it was given; later the snapshot's own
    const char *keep_as; // NULL in a copy
    bool dry_run;
    reef_restoration *out;
} restoring;

// ---- what the store leaves to do ----------------------------------------------------------------

// Delete points of the loss that do not lead to the restored state, also those of another line that
// lie before it in the stream. If the timeline cannot be read, delete all: it is unknown which lead
// there, and the restore must not fail.
static reef_status forget_losses(reef_txn *txn, const reef_snapshot *snapshot, reef_error *err) {
    reef_lineage lineage;
    uint64_t shared = 0;
    reef_status status = reef_lineage_read(&lineage, txn, err);
    if (status != REEF_OK && status != REEF_ERR_CORRUPT) return status;
    if (status == REEF_OK)
        shared = reef_lineage_shared(&lineage, snapshot->commit, snapshot->stream_bytes);
    reef_lineage_release(&lineage);
    status = reef_series_forget_after(txn, shared, err);
    return status == REEF_OK ? reef_visit_log_forget_after(txn, shared, err) : status;
}

// ---- pushed sources -----------------------------------------------------------------------------
//
// A snapshot holds the cursors of its time and the ids of the batches that it was trained on. The
// journal (store/journal) may have dropped batches that were trained later. So when a cursor goes
// back, the journal's positions move with it: the restored state continues with the first byte
// that it has not seen and that is still there.

static const char *name_of(const json_t *item) {
    return json_string_value(json_object_get(item, "name"));
}

static const json_t *find_source(const json_t *sources, const char *name) {
    size_t i;
    json_t *item;
    json_array_foreach(sources, i, item) {
        const char *found = name_of(item);
        if (found != NULL && strcmp(found, name) == 0) return item;
    }
    return NULL;
}

static uint64_t cursor_in(const json_t *sources, const char *name) {
    return (uint64_t)json_integer_value(json_object_get(find_source(sources, name), "cursor"));
}

static bool is_pushed(const char *name) {
    return name != NULL && strlen(name) <= REEF_NAME_BYTES_MAX &&
           strncmp(name, REEF_PUSH_PREFIX, strlen(REEF_PUSH_PREFIX)) == 0;
}

// A source that a state does not know was never read there: its cursor is 0.
static reef_status move_journals(reef_txn *txn,
                                 const reef_snapshot *snapshot,
                                 const json_t *before,
                                 const json_t *after,
                                 reef_error *err) {
    size_t i;
    json_t *item;
    reef_status status = REEF_OK;
    // A source that the snapshot does not know goes back to its first byte.
    json_array_foreach(before, i, item) {
        const char *name = name_of(item);
        if (status == REEF_OK && is_pushed(name))
            status = reef_journal_move(txn, name, snapshot, cursor_in(after, name), err);
    }
    // A source that only the snapshot knows was removed since; its journal starts at the snapshot's
    // cursor.
    json_array_foreach(after, i, item) {
        const char *name = name_of(item);
        if (status == REEF_OK && is_pushed(name) && find_source(before, name) == NULL)
            status = reef_journal_move(txn, name, snapshot, cursor_in(after, name), err);
    }
    return status;
}

// ---- the restore -------------------------------------------------------------------------------

static reef_status write_restore_event(reef_txn *txn, const restoring *r, reef_error *err) {
    const reef_snapshot *snapshot = &r->out->plan.snapshot;
    char text[512], kept[REEF_NAME_BYTES_MAX + 32] = "";
    if (r->keep_as != NULL) snprintf(kept, sizeof(kept), ", \"kept_as\": \"%s\"", r->keep_as);
    snprintf(text, sizeof(text),
             "{\"event\": \"restore\", \"unix_ms\": %" PRIu64 ", \"step\": %" PRIu64
             ", \"stream_bytes\": %" PRIu64 ", \"generation\": %" PRIu32
             ", \"name\": \"%s\", \"commit\": %" PRIu64 "%s}",
             reef_unix_ms(), snapshot->step, snapshot->stream_bytes, snapshot->open_generation,
             snapshot->name, snapshot->commit, kept);
    return reef_timeline_append(txn, text, err);
}

static reef_status restore(reef_txn *txn, const restoring *r, reef_error *err) {
    reef_restore_plan *plan = &r->out->plan;
    json_t *before = NULL, *after = NULL;
    // Cursors before and after are compared, so they are read on both sides of the restore.
    reef_status status = reef_state_sources(txn, &before, err);
    if (status == REEF_OK) status = reef_snapshot_restore(txn, r->name, r->keep_as, plan, err);
    const reef_snapshot *snapshot = &plan->snapshot;
    if (status == REEF_OK) status = reef_state_sources(txn, &after, err);
    if (status == REEF_OK) status = move_journals(txn, snapshot, before, after, err);
    json_decref(before);
    json_decref(after);
    if (status == REEF_OK) status = forget_losses(txn, snapshot, err);
    if (status == REEF_OK) status = write_restore_event(txn, r, err);
    // A test kills the process here: nothing is committed, and the pool is as it was.
    REEF_FAIL_POINT(RESTORE_REPORTED);
    return status;
}

static reef_status restore_and_commit(void *context, reef_store *store, reef_error *err) {
    const restoring *r = context;
    reef_txn *txn = NULL;
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_WRITE, err);
    if (status != REEF_OK) return status;
    status = restore(txn, r, err);
    // A dry run does the whole restore and then aborts it. So it refuses exactly what a restore
    // would refuse.
    if (status != REEF_OK || r->dry_run) {
        reef_txn_abort(txn);
        return status;
    }
    // Step and position of the snapshot, but the time of now: it is a new commit.
    r->out->commit = (reef_commit){.step = r->out->plan.snapshot.step,
                                   .stream_bytes = r->out->plan.snapshot.stream_bytes,
                                   .unix_ms = reef_unix_ms()};
    return reef_txn_commit(txn, &r->out->commit, err);
}

// ---- both ways ----------------------------------------------------------------------------------

// Look at the pool that is there; *last is its commit.
static reef_status plan_restore(reef_store *store,
                                const char *name,
                                reef_restoration *out,
                                reef_commit *last,
                                reef_error *err) {
    reef_txn *txn = NULL;
    *out = (reef_restoration){0};
    // Only a read transaction: planning must not block a writer.
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_snapshot_restore_plan(txn, name, &out->plan, err);
    if (status == REEF_OK) status = reef_commit_read(txn, last, err);
    reef_txn_abort(txn);
    return status;
}

reef_status reef_pool_restore(
    reef_store *store, const char *name, const char *to, reef_restoration *out, reef_error *err) {
    reef_commit last;
    reef_status status = plan_restore(store, name, out, &last, err);
    if (status != REEF_OK || to == NULL) return status;
    // The plan is written again during the restore, so the name is copied out of it first.
    char own[REEF_NAME_BYTES_MAX + 1];
    memcpy(own, out->plan.snapshot.name, sizeof(own));
    restoring r = {.name = own, .out = out};
    return reef_store_copy_changed(store, to, restore_and_commit, &r, err);
}

reef_status reef_pool_restore_in_place(
    reef_store *store, const char *name, bool dry_run, reef_restoration *out, reef_error *err) {
    reef_commit last;
    reef_status status = plan_restore(store, name, out, &last, err);
    if (status != REEF_OK) return status;
    char own[REEF_NAME_BYTES_MAX + 1];
    memcpy(own, out->plan.snapshot.name, sizeof(own));
    // The state that is left gets a name of its own first. A restore can be undone by restoring
    // that.
    snprintf(out->kept_as, sizeof(out->kept_as), "before-restore-%" PRIu64, last.number);
    restoring r = {.name = own, .keep_as = out->kept_as, .dry_run = dry_run, .out = out};
    return restore_and_commit(&r, store, err);
}

// ---- the journal of a trainer -------------------------------------------------------------------

reef_status reef_trainer_journal(reef_trainer *trainer,
                                 reef_journal_batch *batches,
                                 size_t batch_count,
                                 reef_error *err) {
    for (size_t i = 0; i < batch_count; i++)
        // Cursors are read now: a batch that is trained already must not be journalled as waiting.
        batches[i].cursor = reef_trainer_cursor(trainer, batches[i].source);
    // No transaction of ours may hold the map while the writer needs to enlarge it.
    reef_residency_unpin(&trainer->net.residency);
    reef_status status =
        reef_journal_append(trainer->store, batches, batch_count, &trainer->last_commit, err);
    // Journalled batches stand, whatever happens to the rows: a client that gets a failure sends
    // them again. If the rows cannot be located now, the next batch tries again and reports it.
    (void)!reef_trainer_pin(trainer, NULL);
    return status;
}
