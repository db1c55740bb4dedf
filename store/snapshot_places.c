// Where live sources stood at a snapshot: copies of their records in the journal.
//
//   NAME, sequence 0   where the next byte of a source lies, as of the last commit
//   NAME, sequence C   the same, as of the snapshot whose copy of the open generation has the number C
//
// Without them a restored state would have the cursor of its time and the place of a later one. The records of the
// turns, and of sources that are pushed into, are others (journal.c), and left alone.
#include "store_private.h"

#include <stdlib.h>
#include <string.h>

#define TURNS_NAME "turns"

static reef_key place_key(const char *source, uint64_t sequence) {
    return (reef_key){.db = REEF_DB_JOURNAL, .name = source, .sequence = sequence};
}

static bool has_place(const char *name) {
    return strcmp(name, TURNS_NAME) != 0 &&
           strncmp(name, REEF_PUSH_PREFIX, strlen(REEF_PUSH_PREFIX)) != 0;
}

// The next source that has a record, from `from` on, which is moved behind all of its records. Every step seeks anew: a
// write moves cursors.
static reef_status next_source(reef_txn *txn,
                               reef_key_bytes *from,
                               char name[REEF_NAME_BYTES_MAX + 1],
                               bool *found,
                               reef_error *err) {
    reef_status status = REEF_OK;
    *found = true;
    do {
        reef_cursor cursor;
        reef_key key = {0};
        status = reef_cursor_open(&cursor, txn, REEF_DB_JOURNAL, from->data, from->bytes, err);
        *found = status == REEF_OK && !cursor.done;
        if (*found)
            status = reef_key_decode(REEF_DB_JOURNAL, cursor.key.mv_data, cursor.key.mv_size, &key,
                                     name, err);
        reef_cursor_close(&cursor);
        if (!*found || status != REEF_OK) return status;
        const reef_key last = place_key(name, UINT64_MAX);
        status = reef_key_encode(&last, from, err);
        from->data[from->bytes++] = 0; // the least key that is greater
    } while (status == REEF_OK && !has_place(name));
    return status;
}

static reef_status remove_place(reef_txn *txn, const char *source, uint64_t at, reef_error *err) {
    const reef_key key = place_key(source, at);
    reef_view view;
    reef_status status = reef_record_view(txn, &key, &view, err);
    if (status == REEF_NOT_FOUND) return REEF_OK;
    return status == REEF_OK ? reef_record_remove(txn, &key, err) : status;
}

static reef_status copy_place(
    reef_txn *txn, const char *source, uint64_t from, uint64_t to, reef_error *err) {
    reef_key key = place_key(source, from);
    reef_view view;
    reef_status status = reef_record_view(txn, &key, &view, err);
    if (status == REEF_NOT_FOUND) return REEF_OK;
    if (status != REEF_OK) return status;
    void *payload = malloc(view.bytes + 1); // writing moves what lies in the map
    if (payload == NULL) return reef_fail(err, REEF_NO_MEMORY, "no memory for a source's place");
    memcpy(payload, view.data, view.bytes);
    key.sequence = to;
    status = reef_record_store(txn, &key, view.dtype, payload, view.bytes, err);
    free(payload);
    return status;
}

typedef reef_status (*place_step)(reef_txn *txn,
                                  const char *source,
                                  uint32_t copy,
                                  reef_error *err);

static reef_status of_all(reef_txn *txn, uint32_t copy, place_step step, reef_error *err) {
    reef_key_bytes from = {0};
    char name[REEF_NAME_BYTES_MAX + 1];
    bool found = copy != 0;
    reef_status status = REEF_OK;
    while (status == REEF_OK && found) {
        status = next_source(txn, &from, name, &found, err);
        if (status == REEF_OK && found) status = step(txn, name, copy, err);
    }
    return status;
}

static reef_status keep(reef_txn *txn, const char *source, uint32_t copy, reef_error *err) {
    return copy_place(txn, source, 0, copy, err);
}

static reef_status drop(reef_txn *txn, const char *source, uint32_t copy, reef_error *err) {
    return remove_place(txn, source, copy, err);
}

// A source that the snapshot does not know was never read then, and has no place.
static reef_status go_back(reef_txn *txn, const char *source, uint32_t copy, reef_error *err) {
    reef_status status = remove_place(txn, source, 0, err);
    return status == REEF_OK ? copy_place(txn, source, copy, 0, err) : status;
}

reef_status reef_places_keep(reef_txn *txn, uint32_t copy, reef_error *err) {
    return of_all(txn, copy, keep, err);
}

reef_status reef_places_drop(reef_txn *txn, uint32_t copy, reef_error *err) {
    return of_all(txn, copy, drop, err);
}

reef_status reef_places_restore(reef_txn *txn, uint32_t copy, reef_error *err) {
    return of_all(txn, copy, go_back, err);
}
