// Old states are given up on command, between two commits of training.
#include "commit.h"
#include "events.h"
#include "trainer_internal.h"

#include <inttypes.h>

typedef struct pruning {
    uint32_t keep_last;
    reef_pruning *out;
} pruning;

static reef_status prune(void *context, reef_txn *txn, reef_error *err) {
    const pruning *p = context;
    return reef_states_prune(txn, p->keep_last, false, p->out, err);
}

static reef_status count_prunable(const reef_trainer *trainer, const pruning *p, reef_error *err) {
    reef_txn *txn = NULL;
    reef_status status = reef_txn_begin(&txn, trainer->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_states_prune(txn, p->keep_last, true, p->out, err);
    reef_txn_abort(txn);
    return status;
}

reef_status reef_trainer_prune(
    reef_trainer *trainer, uint32_t keep_last, bool dry_run, reef_pruning *out, reef_error *err) {
    pruning p = {keep_last, out};
    reef_status status = count_prunable(trainer, &p, err);
    if (status != REEF_OK || dry_run || out->visits == 0) return status;
    size_t events = trainer->unstored.event_count;
    status = reef_state_event(trainer, err, "prune",
                              "\"keep_last\": %" PRIu32 ", \"states\": %" PRIu32
                              ", \"visits\": %" PRIu64 ", \"bytes\": %" PRIu64,
                              keep_last, out->states, out->visits, out->bytes);
    if (status == REEF_OK) status = reef_trainer_commit_after(trainer, prune, &p, err);
    if (status == REEF_OK) (void)!reef_trainer_repin(trainer, NULL); // as in commit.c
    if (status != REEF_OK) reef_state_drop_events(trainer, events);
    return status;
}
