// Compaction of usage over time, between two commits of the trainer.
//
// The mechanism is the store's (store/usage_compact.c). What is added here: no transaction of ours may hold
// the map while the writer needs to enlarge it, so rows that are read in place are let go first.
#include "trainer_internal.h"

reef_status reef_trainer_compact(reef_trainer *trainer,
                                 reef_usage_compaction *out,
                                 reef_error *err) {
    uint64_t now = reef_unix_ms();
    bool due = false;
    *out = (reef_usage_compaction){0};
    reef_status status = reef_store_compact_due(trainer->store, now, &due, err);
    if (status != REEF_OK || !due) return status;
    reef_residency_let_go(&trainer->residency);
    status = reef_store_compact(trainer->store, now, out, &trainer->last_commit, err);
    if (status == REEF_OK) (void)!reef_trainer_hold(trainer, NULL); // as in commit.c
    return status;
}
