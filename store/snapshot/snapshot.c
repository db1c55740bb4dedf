// Snapshots: named points in the history of the pool.
//
// Sealed generations never change, so a snapshot only counts them; of the open generation it keeps
// a copy under a pseudo-generation (generation_copy.c), which belongs to no root hash of the pool.
// The copy's own root stands in its generation record, so that a check can tell whether it is
// complete.
//
// A restore in place (pool_restore.c) removes sealed generations. The snapshot that it makes of the
// state before holds copies of those too: it shares the first `shared_count` sealed generations
// only.
#include "store_internal.h"

#include "reef_byte_order.h"
#include "reef_fail_point.h"
#include "reef_snapshot.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// snapshots, 68 bytes, little-endian:
//   0 commit u64   8 step u64   16 stream bytes u64   24 wall clock ms u64   32 root, 16 bytes
//   48 sealed count u32   52 open generation u32   56 copy u32 (0: no generation was open)
//   60 shared count u32   64 kept u32 (0: all sealed ones are shared)
#define SNAPSHOT_BYTES 68

static void snapshot_encode(const reef_snapshot *snapshot, uint8_t out[SNAPSHOT_BYTES]) {
    reef_put_le64(out, snapshot->commit);
    reef_put_le64(out + 8, snapshot->step);
    reef_put_le64(out + 16, snapshot->stream_bytes);
    reef_put_le64(out + 24, snapshot->unix_ms);
    memcpy(out + 32, snapshot->root, REEF_HASH_BYTES);
    reef_put_le32(out + 48, snapshot->sealed_count);
    reef_put_le32(out + 52, snapshot->open_generation);
    reef_put_le32(out + 56, snapshot->copy);
    reef_put_le32(out + 60, snapshot->shared_count);
    reef_put_le32(out + 64, snapshot->kept);
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
                           .copy = reef_get_le32(in + 56),
                           .shared_count = reef_get_le32(in + 60),
                           .kept = reef_get_le32(in + 64)};
    memcpy(out->root, in + 32, REEF_HASH_BYTES);
    size_t length = strnlen(name, REEF_NAME_BYTES_MAX);
    memcpy(out->name, name, length);
    out->name[length] = '\0';
}

static reef_status snapshot_parse(const reef_view *view,
                                  const char *name,
                                  reef_snapshot *out,
                                  reef_error *err) {
    if (view->bytes != SNAPSHOT_BYTES)
        return reef_fail(err, REEF_ERR_CORRUPT, "snapshot %s has %zu bytes instead of %d", name,
                         view->bytes, SNAPSHOT_BYTES);
    snapshot_decode(view->data, name, out);
    // Restoring counts up to these numbers, so a valid checksum is not enough.
    if (out->sealed_count > REEF_GENERATION_COUNT_MAX || out->open_generation != out->sealed_count)
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "snapshot %s says %" PRIu32
                         " sealed generations, and that generation %" PRIu32
                         " was open; a pool has at most %u, the open one last",
                         name, out->sealed_count, out->open_generation, REEF_GENERATION_COUNT_MAX);
    // Copies exist exactly where something is not shared.
    if (out->shared_count > out->sealed_count ||
        (out->shared_count < out->sealed_count) != (out->kept != 0))
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "snapshot %s shares %" PRIu32 " of %" PRIu32 " sealed generations", name,
                         out->shared_count, out->sealed_count);
    return REEF_OK;
}

uint32_t reef_snapshot_records(const reef_snapshot *snapshot, uint32_t generation) {
    if (generation >= snapshot->sealed_count) return snapshot->copy;
    if (generation < snapshot->shared_count) return generation;
    return snapshot->kept + (generation - snapshot->shared_count);
}

static bool is_letter_or_digit(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

reef_status reef_name_check(const char *name,
                            const char *what,
                            const char *numbers_name,
                            reef_error *err) {
    size_t length = name == NULL ? 0 : strnlen(name, REEF_NAME_BYTES_MAX + 1);
    bool good = length >= 1 && length <= REEF_NAME_BYTES_MAX && is_letter_or_digit(name[0]);
    for (size_t i = 0; good && i < length; i++)
        good = is_letter_or_digit(name[i]) || strchr("._-", name[i]) != NULL;
    if (!good)
        return reef_fail(err, REEF_ERR_INVALID,
                         "\"%.64s\" is not a name for %s: 1 to %d letters, digits, and after the "
                         "first also . _ -",
                         name == NULL ? "" : name, what, REEF_NAME_BYTES_MAX);
    if (strspn(name, "0123456789") == length)
        return reef_fail(err, REEF_ERR_INVALID, "%s is not a name for %s: numbers name %s", name,
                         what, numbers_name);
    return REEF_OK;
}

reef_status reef_snapshot_name_check(const char *name, reef_error *err) {
    // One argument, --as-of, takes generations, snapshots and the word now.
    reef_status status = reef_name_check(name, "a snapshot", "generations", err);
    if (status == REEF_OK && strcmp(name, "now") == 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "now is not a name for a snapshot: it names the last commit");
    return status;
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
    reef_view view;
    reef_status status = reef_record_view(txn, &key, &view, err);
    if (status == REEF_ERR_NOT_FOUND ||
        status == REEF_ERR_INVALID) { // INVALID: nothing has such a key
        const char *quote = reef_snapshot_name_check(name, NULL) == REEF_OK ? "" : "\"";
        return reef_fail(err, REEF_ERR_NOT_FOUND, "pool %s has no snapshot %s%.64s%s",
                         txn->store->path, quote, name == NULL ? "" : name, quote);
    }
    return status == REEF_OK ? snapshot_parse(&view, name, out, err) : status;
}

// Of one whose record cannot be read the name alone is known. It may need every generation.
static reef_snapshot snapshot_without_record(const char *name) {
    reef_snapshot snapshot = {.damaged = true, .shared_count = UINT32_MAX};
    snprintf(snapshot.name, sizeof(snapshot.name), "%s", name);
    return snapshot;
}

static reef_status snapshot_at(reef_txn *txn,
                               const reef_cursor *cursor,
                               reef_snapshot *out,
                               reef_error *err) {
    reef_key key;
    reef_view view;
    char name[REEF_NAME_BYTES_MAX + 1];
    reef_status status = reef_key_decode(REEF_DB_SNAPSHOTS, cursor->key.mv_data,
                                         cursor->key.mv_size, &key, name, err);
    if (status != REEF_OK) return status;
    status = reef_record_verify(txn, REEF_DB_SNAPSHOTS, cursor, &key, name, &view, err);
    if (status == REEF_OK) status = snapshot_parse(&view, name, out, err);
    if (status != REEF_ERR_CORRUPT) return status;
    *out = snapshot_without_record(name);
    return REEF_OK;
}

reef_status reef_snapshot_scan(reef_txn *txn,
                               reef_snapshot_visit visit,
                               void *context,
                               reef_error *err) {
    reef_cursor cursor;
    reef_status status = reef_cursor_open(&cursor, txn, REEF_DB_SNAPSHOTS, NULL, 0, err);
    while (status == REEF_OK && !cursor.done) {
        reef_snapshot snapshot;
        status = snapshot_at(txn, &cursor, &snapshot, err);
        if (status == REEF_OK) status = visit(context, &snapshot, err);
        if (status == REEF_OK) status = reef_cursor_next(&cursor, txn, err);
    }
    reef_cursor_close(&cursor);
    return status;
}

// ---- finding one by the beginning of its name, or of its root -----------------------------------

#define ROOT_DIGITS_MIN 4 // fewer are more likely a name that was mistyped

typedef struct candidates {
    const char *prefix;
    bool by_root; // otherwise by name
    size_t count;
    reef_snapshot first;
    char names[160]; // as many as fit, for the message
} candidates;

static reef_status on_candidate(void *context, const reef_snapshot *snapshot, reef_error *err) {
    (void)err;
    candidates *c = context;
    char root[2 * REEF_HASH_BYTES + 1];
    // A damaged record has no root to compare.
    if (c->by_root && snapshot->damaged) return REEF_OK;
    reef_hash_format(snapshot->root, root);
    if (strncmp(c->by_root ? root : snapshot->name, c->prefix, strlen(c->prefix)) != 0)
        return REEF_OK;
    if (c->count++ == 0) c->first = *snapshot;
    size_t used = strlen(c->names);
    if (used + strlen(snapshot->name) + sizeof(", ...") < sizeof(c->names))
        snprintf(c->names + used, sizeof(c->names) - used, "%s%s", used == 0 ? "" : ", ",
                 snapshot->name);
    else if (used < 3 || strcmp(c->names + used - 3, "...") != 0)
        snprintf(c->names + used, sizeof(c->names) - used, ", ...");
    return REEF_OK;
}

reef_status reef_snapshot_find(reef_txn *txn,
                               const char *name,
                               reef_snapshot *out,
                               reef_error *err) {
    candidates c = {.prefix = name == NULL ? "" : name};
    reef_status status = reef_snapshot_read(txn, name, out, err);
    if (status != REEF_ERR_NOT_FOUND || *c.prefix == '\0') return status;
    status = reef_snapshot_scan(txn, on_candidate, &c, err);
    // Names win: a root is tried only where no name begins like that.
    c.by_root = c.count == 0 && strlen(c.prefix) >= ROOT_DIGITS_MIN;
    if (status == REEF_OK && c.by_root) status = reef_snapshot_scan(txn, on_candidate, &c, err);
    if (status != REEF_OK) return status;
    if (c.count == 0) return reef_snapshot_read(txn, name, out, err); // again, for the message
    if (c.count > 1)
        return reef_fail(err, REEF_ERR_INVALID, "%.64s may be any of %zu snapshots: %s", name,
                         c.count, c.names);
    if (c.first.damaged) return reef_snapshot_read(txn, c.first.name, out, err); // what it is
    *out = c.first;
    return REEF_OK;
}

// ---- creating -----------------------------------------------------------------------------------

static reef_status next_copy(reef_txn *txn, uint32_t *out, reef_error *err) {
    uint32_t last = 0;
    reef_status status = reef_db_last_u32(txn, REEF_DB_GENERATIONS, UINT32_MAX, &last, err);
    if (status != REEF_OK && status != REEF_ERR_NOT_FOUND) return status;
    *out = last < REEF_SNAPSHOT_GENERATION ? REEF_SNAPSHOT_GENERATION : last + 1;
    if (*out < UINT32_MAX) return REEF_OK;
    return reef_fail(err, REEF_ERR_FULL, "pool %s has no number left for a snapshot",
                     txn->store->path);
}

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
    if (status == REEF_ERR_NOT_FOUND) return REEF_OK;
    if (status != REEF_OK) return status;
    return reef_fail(err, REEF_ERR_INVALID, "pool %s already has a snapshot %s, of commit %" PRIu64,
                     txn->store->path, name, other.commit);
}

// The copies that a snapshot holds: of the sealed generations that it does not share, then of the
// open one.
static reef_status make_copies(reef_txn *txn, reef_snapshot *snapshot, reef_error *err) {
    reef_status status = REEF_OK;
    for (uint32_t g = snapshot->shared_count; status == REEF_OK && g < txn->generation_count; g++) {
        uint32_t copy = 0;
        status = next_copy(txn, &copy, err);
        if (status == REEF_OK) status = reef_generation_copy(txn, g, copy, err);
        // Copies of sealed ones have consecutive numbers, so the first finds them all.
        if (g >= snapshot->sealed_count)
            snapshot->copy = copy;
        else if (g == snapshot->shared_count)
            snapshot->kept = copy;
    }
    return status;
}

// Half of a change must not be committed.
static reef_status spoil(reef_txn *txn, reef_status status, const char *name, const char *what) {
    reef_error reason;
    (void)reef_fail(&reason, status, "snapshot %s was not %s", name, what);
    if (txn->failure.status == REEF_OK) txn->failure = reason;
    return status;
}

reef_status reef_snapshot_make(
    reef_txn *txn, const char *name, uint32_t shared_max, reef_snapshot *out, reef_error *err) {
    reef_snapshot snapshot = {0};
    reef_status status = reef_txn_writable(txn, err);
    if (status == REEF_OK) status = reef_snapshot_name_check(name, err);
    if (status == REEF_OK) status = name_is_free(txn, name, err);
    if (status == REEF_OK) status = snapshot_origin(txn, &snapshot, err);
    if (status != REEF_OK) return status;
    memcpy(snapshot.name, name, strlen(name) + 1);
    snapshot.sealed_count = txn->sealed_count;
    snapshot.shared_count = shared_max < txn->sealed_count ? shared_max : txn->sealed_count;
    snapshot.open_generation = txn->sealed_count;

    REEF_FAIL_POINT(SNAPSHOT_BEGUN);
    bool changed = txn->hashed_changed; // copies are not in the root hash, so they change nothing
    status = make_copies(txn, &snapshot, err);
    if (status == REEF_OK) status = reef_offsets_keep(txn, snapshot.copy, err);
    REEF_FAIL_POINT(SNAPSHOT_COPIED);
    if (status == REEF_OK) status = snapshot_store(txn, &snapshot, err);
    REEF_FAIL_POINT(SNAPSHOT_STORED);
    txn->hashed_changed = changed;
    if (status != REEF_OK) return spoil(txn, status, name, "completed");
    // The root of this commit exists only at its end; reef_snapshots_finish writes it in.
    if (changed) txn->snapshot_unfinished = true;
    *out = snapshot;
    return REEF_OK;
}

reef_status reef_snapshot_create(reef_txn *txn,
                                 const char *name,
                                 reef_snapshot *out,
                                 reef_error *err) {
    return reef_snapshot_make(txn, name, UINT32_MAX, out, err);
}

// A damaged snapshot may have copied anything.
static reef_status note_commit(void *context, const reef_snapshot *snapshot, reef_error *err) {
    uint64_t *newest = context;
    (void)err;
    if (snapshot->damaged) *newest = UINT64_MAX;
    if (snapshot->commit > *newest) *newest = snapshot->commit;
    return REEF_OK;
}

reef_status reef_blocks_shared_to(reef_txn *txn, uint64_t *out, reef_error *err) {
    // One that this transaction makes has the number of its commit at the end.
    *out = txn->snapshot_unfinished ? txn->commit : 0;
    return reef_snapshot_scan(txn, note_commit, out, err);
}

// ---- removing -----------------------------------------------------------------------------------

static reef_status remove_copies(reef_txn *txn, const reef_snapshot *snapshot, reef_error *err) {
    reef_status status = REEF_OK;
    for (uint32_t g = snapshot->shared_count; status == REEF_OK && g < snapshot->sealed_count; g++)
        status = reef_generation_remove(txn, reef_snapshot_records(snapshot, g), err);
    if (status == REEF_OK && snapshot->copy != 0)
        status = reef_generation_remove(txn, snapshot->copy, err);
    return status == REEF_OK ? reef_offsets_drop(txn, snapshot->copy, err) : status;
}

// The first number from *number on under which anything of a copy lies.
static reef_status next_number(reef_txn *txn, uint32_t *number, bool *found, reef_error *err) {
    uint8_t from[4];
    uint32_t least = UINT32_MAX;
    reef_put_be32(from, *number);
    *found = false;
    // A copy may have records in some databases only, so all are searched.
    for (reef_db db = 0; db < REEF_DB_COUNT; db++) {
        reef_cursor cursor;
        if (!reef_db_by_generation(db)) continue;
        reef_status status = reef_cursor_open(&cursor, txn, db, from, sizeof(from), err);
        if (status == REEF_OK && !cursor.done && cursor.key.mv_size >= sizeof(from)) {
            uint32_t its = reef_get_be32(cursor.key.mv_data);
            if (its < least) least = its;
            *found = true;
        }
        reef_cursor_close(&cursor);
        if (status != REEF_OK) return status;
    }
    *number = least;
    return REEF_OK;
}

typedef struct claim {
    uint32_t number;
    bool claimed;
} claim;

// What one that cannot be read holds is not known: it may be this.
static reef_status on_claimer(void *context, const reef_snapshot *snapshot, reef_error *err) {
    claim *c = context;
    (void)err;
    c->claimed |= snapshot->damaged || snapshot->copy == c->number;
    for (uint32_t g = snapshot->shared_count; !c->claimed && g < snapshot->sealed_count; g++)
        c->claimed = reef_snapshot_records(snapshot, g) == c->number;
    return REEF_OK;
}

// Which copies a record that cannot be read spoke of is not known: they are among those that no
// other speaks of.
static reef_status remove_unclaimed(reef_txn *txn, reef_error *err) {
    uint32_t number = REEF_SNAPSHOT_GENERATION;
    bool found = true;
    reef_status status = next_number(txn, &number, &found, err);
    while (status == REEF_OK && found) {
        claim c = {.number = number};
        status = reef_snapshot_scan(txn, on_claimer, &c, err);
        if (status == REEF_OK && !c.claimed) status = reef_generation_remove(txn, number, err);
        if (status == REEF_OK && !c.claimed) status = reef_offsets_drop(txn, number, err);
        // Past the last number the search would wrap to the generations in use.
        if (number++ == UINT32_MAX) break;
        if (status == REEF_OK) status = next_number(txn, &number, &found, err);
    }
    return status;
}

reef_status reef_snapshot_remove(reef_txn *txn, const char *name, reef_error *err) {
    reef_snapshot snapshot;
    uint64_t unused;
    reef_status status = reef_txn_writable(txn, err);
    if (status != REEF_OK) return status;
    status = reef_snapshot_read(txn, name, &snapshot, err);
    // A damaged one can be removed too, or its copies would stay for ever.
    if (status == REEF_ERR_CORRUPT)
        snapshot = snapshot_without_record(name);
    else if (status != REEF_OK)
        return status;
    bool changed = txn->hashed_changed; // neither snapshots nor their copies are in the root hash
    const reef_key key = {.db = REEF_DB_SNAPSHOTS, .name = snapshot.name};
    status = reef_record_remove(txn, &key, err);
    if (status == REEF_OK)
        status = snapshot.damaged ? remove_unclaimed(txn, err) : remove_copies(txn, &snapshot, err);
    if (status == REEF_OK) status = reef_blocks_drop_unnamed(txn, NULL, NULL, false, &unused, err);
    REEF_FAIL_POINT(SNAPSHOT_REMOVED);
    txn->hashed_changed = changed;
    return status == REEF_OK ? REEF_OK : spoil(txn, status, snapshot.name, "removed");
}

reef_status reef_snapshots_finish(reef_txn *txn, const reef_commit *commit, reef_error *err) {
    reef_key_bytes from = {0};
    for (;;) { // seeks again after each write, as copy_database does
        reef_cursor cursor;
        reef_snapshot snapshot;
        reef_status status =
            reef_cursor_open(&cursor, txn, REEF_DB_SNAPSHOTS, from.data, from.bytes, err);
        bool found = status == REEF_OK && !cursor.done;
        if (found) status = snapshot_at(txn, &cursor, &snapshot, err);
        reef_cursor_close(&cursor);
        if (status != REEF_OK || !found) return status;
        const reef_key key = {.db = REEF_DB_SNAPSHOTS, .name = snapshot.name};
        status = reef_key_encode(&key, &from, err);
        from.data[from.bytes++] = 0;
        if (status == REEF_OK && !snapshot.damaged && snapshot.commit == commit->number) {
            snapshot.step = commit->step;
            snapshot.stream_bytes = commit->stream_bytes;
            snapshot.unix_ms = commit->unix_ms;
            memcpy(snapshot.root, commit->root, REEF_HASH_BYTES);
            status = snapshot_store(txn, &snapshot, err);
        }
        if (status != REEF_OK) return status;
    }
}
