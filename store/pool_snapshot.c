// Snapshots: named points in the history of the pool.
//
// Sealed generations never change, so a snapshot only counts them; of the open generation it keeps a
// copy under a pseudo-generation, which belongs to no root hash of the pool. The copy's own root stands
// in its generation record, so that a check can tell whether it is complete.
#include "store_private.h"

#include "store_bytes.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// snapshots, 60 bytes, little-endian:
//   0 commit u64   8 step u64   16 stream bytes u64   24 wall clock ms u64   32 root, 16 bytes
//   48 sealed count u32   52 open generation u32   56 copy u32 (0: no generation was open)
#define SNAPSHOT_BYTES 60

static void snapshot_encode(const reef_snapshot *snapshot, uint8_t out[SNAPSHOT_BYTES]) {
    reef_put_le64(out, snapshot->commit);
    reef_put_le64(out + 8, snapshot->step);
    reef_put_le64(out + 16, snapshot->stream_bytes);
    reef_put_le64(out + 24, snapshot->unix_ms);
    memcpy(out + 32, snapshot->root, REEF_HASH_BYTES);
    reef_put_le32(out + 48, snapshot->sealed_count);
    reef_put_le32(out + 52, snapshot->open_generation);
    reef_put_le32(out + 56, snapshot->copy);
}

static void snapshot_decode(const uint8_t in[SNAPSHOT_BYTES],
                            const char *name,
                            reef_snapshot *out) {
    *out = (reef_snapshot){.commit = reef_get_le64(in),
                           .step = reef_get_le64(in + 8),
                           .stream_bytes = reef_get_le64(in + 16),
                           .unix_ms = reef_get_le64(in + 24),
                           .sealed_count = reef_get_le32(in + 48),
                           .open_generation = reef_get_le32(in + 52),
                           .copy = reef_get_le32(in + 56)};
    memcpy(out->root, in + 32, REEF_HASH_BYTES);
    size_t length = strnlen(name, REEF_NAME_BYTES_MAX);
    memcpy(out->name, name, length);
    out->name[length] = '\0';
}

static bool is_letter_or_digit(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static reef_status name_check(const char *name, reef_error *err) {
    size_t length = name == NULL ? 0 : strnlen(name, REEF_NAME_BYTES_MAX + 1);
    bool good = length >= 1 && length <= REEF_NAME_BYTES_MAX && is_letter_or_digit(name[0]);
    for (size_t i = 0; good && i < length; i++)
        good = is_letter_or_digit(name[i]) || strchr("._-", name[i]) != NULL;
    if (!good)
        return reef_fail(
            err, REEF_INVALID,
            "\"%.64s\" is no name for a snapshot: 1 to %d letters, digits, and after the "
            "first also . _ -",
            name == NULL ? "" : name, REEF_NAME_BYTES_MAX);
    if (strspn(name, "0123456789") == length)
        return reef_fail(err, REEF_INVALID,
                         "%s is no name for a snapshot: numbers name generations", name);
    if (strcmp(name, "now") == 0)
        return reef_fail(err, REEF_INVALID,
                         "now is no name for a snapshot: it names the last commit");
    return REEF_OK;
}

static reef_status snapshot_store(reef_txn *txn, const reef_snapshot *snapshot, reef_error *err) {
    const reef_key key = {.db = REEF_DB_SNAPSHOTS, .name = snapshot->name};
    uint8_t bytes[SNAPSHOT_BYTES];
    snapshot_encode(snapshot, bytes);
    return reef_record_store(txn, &key, REEF_BYTES, bytes, sizeof(bytes), err);
}

reef_status reef_snapshot_read(reef_txn *txn,
                               const char *name,
                               reef_snapshot *out,
                               reef_error *err) {
    const reef_key key = {.db = REEF_DB_SNAPSHOTS, .name = name};
    uint8_t bytes[SNAPSHOT_BYTES];
    if (name_check(name, NULL) != REEF_OK) // such a snapshot cannot have been made
        return reef_fail(err, REEF_NOT_FOUND, "pool %s has no snapshot \"%.64s\"", txn->store->path,
                         name == NULL ? "" : name);
    reef_status status = reef_record_read(txn, &key, bytes, sizeof(bytes), err);
    if (status == REEF_NOT_FOUND)
        return reef_fail(err, REEF_NOT_FOUND, "pool %s has no snapshot %s", txn->store->path, name);
    if (status == REEF_OK) snapshot_decode(bytes, name, out);
    return status;
}

typedef struct snapshot_walk {
    reef_snapshot_visit visit;
    void *context;
} snapshot_walk;

static reef_status on_snapshot(void *context,
                               const reef_key *key,
                               const reef_view *view,
                               reef_error *err) {
    const snapshot_walk *walk = context;
    reef_snapshot snapshot;
    uint8_t bytes[SNAPSHOT_BYTES];
    if (view->bytes != sizeof(bytes))
        return reef_fail(err, REEF_CORRUPT, "snapshot %s has %zu bytes instead of %d", key->name,
                         view->bytes, SNAPSHOT_BYTES);
    memcpy(bytes, view->data, sizeof(bytes));
    snapshot_decode(bytes, key->name, &snapshot);
    return walk->visit(walk->context, &snapshot, err);
}

reef_status reef_snapshot_scan(reef_txn *txn,
                               reef_snapshot_visit visit,
                               void *context,
                               reef_error *err) {
    snapshot_walk walk = {.visit = visit, .context = context};
    return reef_record_scan(txn, REEF_DB_SNAPSHOTS, UINT32_MAX, on_snapshot, &walk, err);
}

// ---- copying -------------------------------------------------------------------------------------

// A record lifted out of the map: a write may move small records within their page.
typedef struct lifted {
    uint8_t *data;
    size_t bytes, room;
} lifted;

static reef_status lift(lifted *out, const reef_view *view, reef_error *err) {
    if (out->room < view->bytes) {
        uint8_t *larger = realloc(out->data, view->bytes);
        if (larger == NULL)
            return reef_fail(err, REEF_NO_MEMORY, "out of memory for a record of %zu bytes",
                             view->bytes);
        out->data = larger;
        out->room = view->bytes;
    }
    if (view->bytes > 0) memcpy(out->data, view->data, view->bytes);
    out->bytes = view->bytes;
    return REEF_OK;
}

// Copy what one database holds of a generation. Each step seeks anew, just behind the last key: the
// copies go to far higher keys of the same tree, and no cursor has to survive that.
static reef_status copy_database(
    reef_txn *txn, reef_db db, uint32_t generation, uint32_t copy, reef_error *err) {
    lifted payload = {0};
    reef_key_bytes from = {.bytes = 4};
    reef_put_be32(from.data, generation);
    reef_status status = REEF_OK;
    for (bool found = true; found && status == REEF_OK;) {
        reef_cursor cursor;
        reef_key key;
        reef_view view;
        char name[REEF_NAME_BYTES_MAX + 1];
        found = false;
        status = reef_cursor_open(&cursor, txn, db, from.data, from.bytes, err);
        if (status == REEF_OK && !cursor.done && cursor.key.mv_size >= 4 &&
            reef_get_be32(cursor.key.mv_data) == generation) {
            found = true;
            status = reef_record_verify(txn, db, &cursor, &key, name, &view, err);
            if (status == REEF_OK) status = lift(&payload, &view, err);
        }
        reef_cursor_close(&cursor);
        if (!found || status != REEF_OK) break;
        status = reef_key_encode(&key, &from, err);
        from.data[from.bytes++] = 0; // the least key that is greater
        key.generation = copy;
        if (status == REEF_OK)
            status = reef_record_store(txn, &key, view.dtype, payload.data, payload.bytes, err);
    }
    free(payload.data);
    return status;
}

static reef_status copy_open_generation(reef_txn *txn,
                                        uint32_t generation,
                                        uint32_t copy,
                                        reef_error *err) {
    static const reef_db parts[] = {REEF_DB_TENSORS, REEF_DB_EXPERTS, REEF_DB_FLAGS};
    reef_generation record;
    reef_status status = reef_generation_read(txn, generation, &record, err);
    for (size_t i = 0; status == REEF_OK && i < sizeof(parts) / sizeof(parts[0]); i++)
        status = copy_database(txn, parts[i], generation, copy, err);
    if (status == REEF_OK) status = reef_generation_root(txn, copy, record.root, err);
    if (status != REEF_OK) return status;
    record.generation = copy;
    return reef_generation_store(txn, &record, err);
}

static reef_status next_copy(reef_txn *txn, uint32_t *out, reef_error *err) {
    uint32_t last = 0;
    reef_status status = reef_db_last_u32(txn, REEF_DB_GENERATIONS, UINT32_MAX, &last, err);
    if (status != REEF_OK && status != REEF_NOT_FOUND) return status;
    *out = last < REEF_SNAPSHOT_GENERATION ? REEF_SNAPSHOT_GENERATION : last + 1;
    if (*out < UINT32_MAX) return REEF_OK;
    return reef_fail(err, REEF_FULL, "pool %s has no number left for a snapshot", txn->store->path);
}

// ---- creating ------------------------------------------------------------------------------------

// Of which commit is it? Of the last one, if nothing has changed since; else of the one that this
// transaction will become, whose number is known now and whose root is filled in by its end.
static reef_status snapshot_origin(reef_txn *txn, reef_snapshot *out, reef_error *err) {
    if (txn->hashed_changed) {
        out->commit = txn->commit;
        return REEF_OK;
    }
    reef_commit last;
    reef_status status = reef_commit_read(txn, &last, err);
    if (status != REEF_OK) return status;
    out->commit = last.number;
    out->step = last.step;
    out->stream_bytes = last.stream_bytes;
    out->unix_ms = last.unix_ms;
    memcpy(out->root, last.root, REEF_HASH_BYTES);
    return REEF_OK;
}

static reef_status name_is_free(reef_txn *txn, const char *name, reef_error *err) {
    reef_snapshot other;
    reef_status status = reef_snapshot_read(txn, name, &other, err);
    if (status == REEF_NOT_FOUND) return REEF_OK;
    if (status != REEF_OK) return status;
    return reef_fail(err, REEF_INVALID, "pool %s already has a snapshot %s, of commit %" PRIu64,
                     txn->store->path, name, other.commit);
}

reef_status reef_snapshot_create(reef_txn *txn,
                                 const char *name,
                                 reef_snapshot *out,
                                 reef_error *err) {
    reef_snapshot snapshot = {0};
    reef_status status = reef_txn_writable(txn, err);
    if (status == REEF_OK) status = name_check(name, err);
    if (status == REEF_OK) status = name_is_free(txn, name, err);
    if (status == REEF_OK) status = snapshot_origin(txn, &snapshot, err);
    if (status != REEF_OK) return status;
    memcpy(snapshot.name, name, strlen(name) + 1);
    snapshot.sealed_count = txn->sealed_count;
    snapshot.open_generation = txn->sealed_count;

    bool changed = txn->hashed_changed; // the copy is not in the root hash, so it is no change
    if (txn->generation_count > txn->sealed_count) {
        status = next_copy(txn, &snapshot.copy, err);
        if (status == REEF_OK)
            status = copy_open_generation(txn, snapshot.open_generation, snapshot.copy, err);
    }
    if (status == REEF_OK) status = snapshot_store(txn, &snapshot, err);
    txn->hashed_changed = changed;
    if (status != REEF_OK) {
        // Half a copy must not be committed.
        reef_error reason;
        (void)reef_fail(&reason, status, "snapshot %s was not completed", name);
        if (txn->failure.status == REEF_OK) txn->failure = reason;
        return status;
    }
    if (changed) txn->snapshot_unfinished = true;
    *out = snapshot;
    return REEF_OK;
}

reef_status reef_snapshot_remove(reef_txn *txn, const char *name, reef_error *err) {
    reef_snapshot snapshot;
    reef_status status = reef_txn_writable(txn, err);
    if (status == REEF_OK) status = reef_snapshot_read(txn, name, &snapshot, err);
    if (status != REEF_OK) return status;
    bool changed = txn->hashed_changed; // neither snapshots nor their copies are in the root hash
    const reef_key copy = {.db = REEF_DB_GENERATIONS, .generation = snapshot.copy};
    const reef_key key = {.db = REEF_DB_SNAPSHOTS, .name = name};
    if (snapshot.copy != 0) status = reef_generation_drop(txn, snapshot.copy, err);
    if (status == REEF_OK && snapshot.copy != 0) status = reef_record_remove(txn, &copy, err);
    if (status == REEF_OK) status = reef_record_remove(txn, &key, err);
    txn->hashed_changed = changed;
    if (status == REEF_OK) return REEF_OK;
    reef_error reason; // half a snapshot must not be committed
    (void)reef_fail(&reason, status, "snapshot %s was not removed", name);
    if (txn->failure.status == REEF_OK) txn->failure = reason;
    return status;
}

reef_status reef_snapshots_finish(reef_txn *txn, const reef_commit *commit, reef_error *err) {
    reef_key_bytes from = {0};
    for (;;) { // seeks anew after each write, as copy_database does
        reef_cursor cursor;
        reef_key key;
        reef_view view;
        reef_snapshot snapshot;
        char name[REEF_NAME_BYTES_MAX + 1];
        reef_status status =
            reef_cursor_open(&cursor, txn, REEF_DB_SNAPSHOTS, from.data, from.bytes, err);
        bool found = status == REEF_OK && !cursor.done;
        if (found)
            status = reef_record_verify(txn, REEF_DB_SNAPSHOTS, &cursor, &key, name, &view, err);
        reef_cursor_close(&cursor);
        if (status != REEF_OK || !found) return status;
        status = reef_key_encode(&key, &from, err);
        from.data[from.bytes++] = 0;
        if (status == REEF_OK) status = reef_snapshot_read(txn, name, &snapshot, err);
        if (status == REEF_OK && snapshot.commit == commit->number) {
            snapshot.step = commit->step;
            snapshot.stream_bytes = commit->stream_bytes;
            snapshot.unix_ms = commit->unix_ms;
            memcpy(snapshot.root, commit->root, REEF_HASH_BYTES);
            status = snapshot_store(txn, &snapshot, err);
        }
        if (status != REEF_OK) return status;
    }
}
