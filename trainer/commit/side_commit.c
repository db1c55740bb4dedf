// Records of others beside training: with every commit, or in a transaction between two.
//
// What is written has to be outside of the root hash, which stays that of the last commit. No
// transaction of ours may hold the map while the writer needs to enlarge it, so rows that are read
// in place are released first.
#include "events.h"
#include "reef_pool_check.h"
#include "reef_usage.h"
#include "trainer_internal.h"

void reef_trainer_on_commit(reef_trainer *trainer, reef_trainer_writer writer, void *context) {
    trainer->on_commit = writer;
    trainer->commit_context = context;
}

static reef_status write_and_commit(reef_trainer *trainer,
                                    reef_trainer_writer writer,
                                    void *context,
                                    reef_error *err) {
    reef_txn *txn = NULL;
    // Step and position are those of the last commit of training. What was trained since is not in
    // this transaction, and a reader must not believe that it is.
    reef_commit commit = {.step = trainer->last_commit.step,
                          .stream_bytes = trainer->last_commit.stream_bytes,
                          .unix_ms = reef_unix_ms()};
    reef_status status = reef_txn_begin(&txn, trainer->store, REEF_TXN_WRITE, err);
    if (status != REEF_OK) return status;
    status = writer(context, txn, err);
    if (status != REEF_OK) {
        reef_txn_abort(txn);
        return status;
    }
    status = reef_txn_commit(txn, &commit, err);
    // Training compares with the last commit to know whether another process wrote in between; this
    // one was ours.
    if (status == REEF_OK) trainer->last_commit = commit;
    return status;
}

reef_status reef_trainer_write(reef_trainer *trainer,
                               reef_trainer_writer writer,
                               void *context,
                               reef_error *err) {
    reef_residency_unpin(&trainer->net.residency);
    reef_status status = write_and_commit(trainer, writer, context, err);
    if (status == REEF_OK) (void)!reef_trainer_pin(trainer, NULL); // as in commit.c
    return status;
}

// ---- compact ------------------------------------------------------------------------------------
//
// Compaction of usage over time, between two commits of the trainer. The mechanism is the store's
// (store/usage_compact.c).

reef_status reef_trainer_compact(reef_trainer *trainer,
                                 reef_usage_compaction *out,
                                 reef_error *err) {
    // Compaction merges usage windows that are old enough. It is asked first, because a write
    // transaction that changes nothing still costs an fsync.
    uint64_t now = reef_unix_ms();
    bool due = false;
    *out = (reef_usage_compaction){0};
    reef_status status = reef_store_compact_due(trainer->store, now, &due, err);
    if (status != REEF_OK || !due) return status;
    // A pinned read transaction would keep the pages that compaction frees from being reused.
    reef_residency_unpin(&trainer->net.residency);
    status = reef_store_compact(trainer->store, now, out, &trainer->last_commit, err);
    if (status == REEF_OK) (void)!reef_trainer_pin(trainer, NULL); // as in commit.c
    return status;
}

// ---- scrub state --------------------------------------------------------------------------------
//
// What a check beside training found, kept with the trainer's own commits: a pool has one writer.
//
// It says when the pool was checked, so it is of the wall clock, and no part of the root hash;
// training never reads it.

void reef_trainer_set_scrub(reef_trainer *trainer, const reef_scrub *scrub) {
    trainer->unstored.scrub = *scrub;
    trainer->unstored.scrub_known = true;
}

// As it may stand between the quotes of JSON: names of records come from outside.
static void plain(const char *text, char *out, size_t room) {
    size_t i = 0;
    for (; text[i] && i + 1 < room; i++) {
        unsigned char c = (unsigned char)text[i];
        out[i] = c < 0x20 || c > 0x7e || c == '"' || c == '\\' ? '?' : text[i];
    }
    out[i] = '\0';
}

reef_status reef_trainer_note_damage(reef_trainer *trainer, const char *what, reef_error *err) {
    char text[256];
    plain(what, text, sizeof(text));
    return reef_state_event(trainer, err, "damage", "\"what\": \"%s\"", text);
}
