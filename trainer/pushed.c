// What sources that are pushed into need of the trainer; the journal itself is the store's (store/journal.c).
//
// A snapshot has the cursors of its time, and the ids of what it was trained on. What was trained after it is gone with the
// state that is given up, and gone from the journal but for the batch that was half trained. So when a cursor goes
// back the journal moves along, and the restored state goes on with the first byte of it that it does not have.
#include "trainer_internal.h"

#include <string.h>

reef_status reef_trainer_journal(reef_trainer *trainer,
                                 reef_journal_batch *batches,
                                 size_t batch_count,
                                 reef_error *err) {
    for (size_t i = 0; i < batch_count; i++)
        batches[i].cursor = reef_trainer_cursor(trainer, batches[i].source);
    // No transaction of ours may hold the map while the writer needs to enlarge it.
    reef_residency_let_go(&trainer->residency);
    reef_status status =
        reef_journal_append(trainer->store, batches, batch_count, &trainer->last_commit, err);
    // What was journalled is, whatever becomes of the rows: a client that is told of a failure sends it again. Where
    // they are not found now, they are looked for before the next batch, which says so.
    (void)!reef_trainer_hold(trainer, NULL);
    return status;
}

static const char *name_of(const json_t *item) {
    return json_string_value(json_object_get(item, "name"));
}

static const json_t *find(const json_t *sources, const char *name) {
    size_t i;
    json_t *item;
    json_array_foreach(sources, i, item) {
        const char *found = name_of(item);
        if (found != NULL && strcmp(found, name) == 0) return item;
    }
    return NULL;
}

static uint64_t cursor_in(const json_t *sources, const char *name) {
    return (uint64_t)json_integer_value(json_object_get(find(sources, name), "cursor"));
}

static bool is_pushed(const char *name) {
    return name != NULL && strlen(name) <= REEF_NAME_BYTES_MAX &&
           strncmp(name, REEF_PUSH_PREFIX, strlen(REEF_PUSH_PREFIX)) == 0;
}

// A source that a state does not know was never read there: its cursor is 0.
reef_status reef_pushed_move(reef_txn *txn,
                             const reef_snapshot *snapshot,
                             const json_t *before,
                             const json_t *after,
                             reef_error *err) {
    size_t i;
    json_t *item;
    reef_status status = REEF_OK;
    json_array_foreach(before, i, item) {
        const char *name = name_of(item);
        if (status == REEF_OK && is_pushed(name))
            status = reef_journal_move(txn, name, snapshot, cursor_in(before, name),
                                       cursor_in(after, name), err);
    }
    json_array_foreach(after, i, item) {
        const char *name = name_of(item);
        if (status == REEF_OK && is_pushed(name) && find(before, name) == NULL)
            status = reef_journal_move(txn, name, snapshot, 0, cursor_in(after, name), err);
    }
    return status;
}
