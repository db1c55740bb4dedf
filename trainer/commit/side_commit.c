// Records of others beside training: with every commit, or in a transaction between two.
//
// What is written has to be outside of the root hash, which stays that of the last commit. No transaction of ours
// may hold the map while the writer needs to enlarge it, so rows that are read in place are let go first.
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
    if (status == REEF_OK) trainer->last_commit = commit;
    return status;
}

reef_status reef_trainer_write(reef_trainer *trainer,
                               reef_trainer_writer writer,
                               void *context,
                               reef_error *err) {
    reef_residency_let_go(&trainer->residency);
    reef_status status = write_and_commit(trainer, writer, context, err);
    if (status == REEF_OK) (void)!reef_trainer_hold(trainer, NULL); // as in commit.c
    return status;
}
