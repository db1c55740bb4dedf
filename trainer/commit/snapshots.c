// Snapshots of a trainer's pool are taken and let go of, and both are told.
#include "trainer_internal.h"
#include "reef_fail_point.h"

reef_status reef_trainer_snapshot(reef_trainer *trainer,
                                  const char *name,
                                  reef_snapshot *out,
                                  reef_error *err) {
    reef_snapshot unused;
    // The snapshot is of the commit before it plus what is dirty: first bring both together, so that
    // the commit it names is the state it holds.
    reef_status status = reef_trainer_commit(trainer, NULL, err);
    if (status == REEF_OK)
        status = reef_trainer_commit_with(trainer, name, out == NULL ? &unused : out, NULL, err);
    if (status != REEF_OK) return status;
    REEF_FAIL_POINT(SNAPSHOT_COMMITTED);
    // Told only now: a name that was refused is no event.
    status = reef_state_event(trainer, err, "snapshot", "\"name\": \"%s\"", name);
    return status == REEF_OK ? reef_trainer_commit(trainer, NULL, err) : status;
}

typedef struct removal {
    char (*names)[REEF_NAME_BYTES_MAX + 1];
    size_t count;
} removal;

static reef_status remove_snapshots(void *context, reef_txn *txn, reef_error *err) {
    const removal *r = context;
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < r->count; i++)
        status = reef_snapshot_remove(txn, r->names[i], err);
    return status;
}

reef_status reef_trainer_snapshots_remove(reef_trainer *trainer,
                                          char (*names)[REEF_NAME_BYTES_MAX + 1],
                                          size_t count,
                                          reef_error *err) {
    removal r = {.names = names, .count = count};
    reef_status status = reef_trainer_commit_after(trainer, remove_snapshots, &r, err);
    // Told only now, as of a snapshot that was made.
    for (size_t i = 0; status == REEF_OK && i < count; i++)
        status = reef_state_event(trainer, err, "snapshot_remove", "\"name\": \"%s\"", names[i]);
    return status == REEF_OK ? reef_trainer_commit(trainer, NULL, err) : status;
}
