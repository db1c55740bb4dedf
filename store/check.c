// The integrity check: walks everything one read transaction sees and goes on after damage.
//
// Record by record it finds flipped bits (checksum) and stale or lost records (`sums`); over all it
// finds a wrong root hash, sealed generations that changed, and snapshots that lack what they
// reference. It reads every page LMDB knows of, so a file that ends too early is SIGBUS here:
// reef_store_verify runs this in a child.
#include "store_private.h"

#include "store_bytes.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct check {
    reef_txn *txn;
    void (*on_damage)(void *context, const char *what);
    void *context;
    reef_check_report *report;
    reef_error stopped; // the first walk that could not go on
    uint64_t last_commit;
} check;

static void damage(check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void damage(check *c, const char *format, ...) {
    char what[sizeof(((reef_error *)0)->message)];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    c->report->damaged++;
    if (c->on_damage != NULL) c->on_damage(c->context, what);
}

// LMDB could not read on: the rest of this walk is unknown, the other walks may still succeed.
static void stop(check *c, const reef_error *reason) {
    damage(c, "%s", reason->message);
    if (c->stopped.status == REEF_OK) c->stopped = *reason;
}

// ---- records -------------------------------------------------------------------------------------

static void check_record(check *c, reef_db db, const reef_cursor *cursor) {
    reef_key key;
    reef_view view;
    reef_error reason;
    char name[REEF_NAME_BYTES_MAX + 1];
    c->report->records++;
    c->report->bytes += cursor->value.mv_size;
    if (reef_record_verify(c->txn, db, cursor, &key, name, &view, &reason) != REEF_OK) {
        damage(c, "%s", reason.message);
        return;
    }
    char text[REEF_KEY_TEXT_BYTES];
    reef_key_format(&key, text);
    if (view.commit > c->last_commit)
        damage(c, "%s: written by commit %" PRIu64 ", but the last commit is %" PRIu64, text,
               view.commit, c->last_commit);
    if (db == REEF_DB_MOMENTS && key.generation < c->txn->sealed_count)
        damage(c, "%s: a sealed generation has optimiser state", text);
    if (db == REEF_DB_GENERATIONS && key.generation < REEF_SNAPSHOT_GENERATION)
        c->report->generations++;
}

static void check_database(check *c, reef_db db) {
    reef_cursor cursor;
    reef_error reason;
    reef_status status = reef_cursor_open(&cursor, c->txn, db, NULL, 0, &reason);
    while (status == REEF_OK && !cursor.done) {
        check_record(c, db, &cursor);
        status = reef_cursor_next(&cursor, c->txn, &reason);
    }
    reef_cursor_close(&cursor);
    if (status != REEF_OK) stop(c, &reason);
}

// Every entry of sums needs its record: else a record was lost.
static void check_sum(check *c, const reef_cursor *cursor) {
    const uint8_t *data = cursor->key.mv_data;
    size_t bytes = cursor->key.mv_size;
    reef_key key;
    reef_error reason;
    char name[REEF_NAME_BYTES_MAX + 1];
    char text[REEF_KEY_TEXT_BYTES];
    if (bytes < 1 || data[0] >= REEF_DB_SUMS || !reef_db_summed((reef_db)data[0])) {
        damage(c, "a key of %zu bytes in sums is malformed", bytes);
        return;
    }
    if (reef_key_decode((reef_db)data[0], data + 1, bytes - 1, &key, name, &reason) != REEF_OK) {
        damage(c, "sums: %s", reason.message);
        return;
    }
    MDB_val lookup = {.mv_size = bytes - 1, .mv_data = (uint8_t *)cursor->key.mv_data + 1};
    MDB_val value;
    int code =
        mdb_get(c->txn->lmdb, reef_environment_dbi(c->txn->environment, key.db), &lookup, &value);
    if (code == 0) return; // compared when the record was walked over
    reef_key_format(&key, text);
    if (code == MDB_NOTFOUND) {
        damage(c, "%s: sums has an entry for it, but the record is lost", text);
    } else {
        (void)reef_environment_fail(c->txn->environment, code, 0, "look up a record", &reason);
        damage(c, "%s: %s", text, reason.message);
    }
}

static void check_sums(check *c) {
    reef_cursor cursor;
    reef_error reason;
    reef_status status = reef_cursor_open(&cursor, c->txn, REEF_DB_SUMS, NULL, 0, &reason);
    while (status == REEF_OK && !cursor.done) {
        check_sum(c, &cursor);
        status = reef_cursor_next(&cursor, c->txn, &reason);
    }
    reef_cursor_close(&cursor);
    if (status != REEF_OK) stop(c, &reason);
}

// ---- roots and references ------------------------------------------------------------------------

static void check_root(check *c, const reef_commit *commit) {
    reef_error reason;
    uint8_t root[REEF_HASH_BYTES];
    if (reef_root_hash(c->txn, commit->step, commit->stream_bytes, root, &reason) != REEF_OK) {
        damage(c, "%s", reason.message);
    } else if (memcmp(root, commit->root, REEF_HASH_BYTES) != 0) {
        char have[2 * REEF_HASH_BYTES + 1];
        char want[2 * REEF_HASH_BYTES + 1];
        reef_hash_format(root, have);
        reef_hash_format(commit->root, want);
        damage(c, "the root hash is %s, commit %" PRIu64 " recorded %s", have, commit->number,
               want);
    }
}

static void check_generation_root(check *c, const reef_generation *generation) {
    reef_error reason;
    uint8_t root[REEF_HASH_BYTES];
    if (reef_generation_root(c->txn, generation->generation, root, &reason) != REEF_OK)
        damage(c, "%s", reason.message);
    else if (memcmp(root, generation->root, REEF_HASH_BYTES) != 0)
        damage(c,
               "generation %" PRIu32
               ": its records differ from the root it was sealed or copied with",
               generation->generation);
}

static void check_generations(check *c) {
    for (uint32_t i = 0; i < c->txn->generation_count; i++) {
        reef_generation generation;
        reef_error reason;
        if (reef_generation_read(c->txn, i, &generation, &reason) != REEF_OK)
            damage(c, "%s", reason.message);
        else if (generation.sealed)
            check_generation_root(c, &generation);
        else if (i + 1 < c->txn->generation_count)
            damage(c, "generation %" PRIu32 " is open, but it is not the last", i);
    }
}

static void check_copy(check *c, const reef_snapshot *snapshot, uint32_t number) {
    reef_generation copy;
    reef_error reason;
    if (reef_generation_read(c->txn, number, &copy, &reason) != REEF_OK)
        damage(c, "snapshot %s: %s", snapshot->name, reason.message);
    else
        check_generation_root(c, &copy);
}

static void check_snapshot(check *c, const reef_snapshot *snapshot) {
    c->report->snapshots++;
    if (snapshot->shared_count > c->txn->sealed_count)
        damage(c, "snapshot %s shares %" PRIu32 " sealed generations, the pool has %" PRIu32,
               snapshot->name, snapshot->shared_count, c->txn->sealed_count);
    if (snapshot->commit > c->last_commit)
        damage(c, "snapshot %s is of commit %" PRIu64 ", but the last commit is %" PRIu64,
               snapshot->name, snapshot->commit, c->last_commit);
    for (uint32_t g = snapshot->shared_count; g < snapshot->sealed_count; g++)
        check_copy(c, snapshot, reef_snapshot_records(snapshot, g));
    if (snapshot->copy != 0) check_copy(c, snapshot, snapshot->copy); // 0: no generation was open
}

// Not reef_snapshot_scan, which ends at the first damaged one: here the walk goes on.
static void check_snapshots(check *c) {
    reef_cursor cursor;
    reef_error reason;
    reef_status status = reef_cursor_open(&cursor, c->txn, REEF_DB_SNAPSHOTS, NULL, 0, &reason);
    while (status == REEF_OK && !cursor.done) {
        reef_key key;
        char name[REEF_NAME_BYTES_MAX + 1];
        reef_snapshot snapshot;
        // Damage of the record itself was reported by the walk over all records.
        if (reef_key_decode(REEF_DB_SNAPSHOTS, cursor.key.mv_data, cursor.key.mv_size, &key, name,
                            NULL) == REEF_OK &&
            reef_snapshot_read(c->txn, name, &snapshot, NULL) == REEF_OK)
            check_snapshot(c, &snapshot);
        status = reef_cursor_next(&cursor, c->txn, &reason);
    }
    reef_cursor_close(&cursor);
    if (status != REEF_OK) stop(c, &reason);
}

// ---- the whole -----------------------------------------------------------------------------------

static void measure(check *c) {
    MDB_env *lmdb = reef_environment_lmdb(c->txn->environment);
    MDB_envinfo info;
    MDB_stat stat;
    uint64_t pages = 2; // the meta pages
    if (mdb_env_info(lmdb, &info) != 0 || mdb_env_stat(lmdb, &stat) != 0) return;
    // LMDB's own trees are 0, the free list, and 1, the list of databases.
    for (MDB_dbi dbi = 0; dbi < 2; dbi++) {
        if (mdb_stat(c->txn->lmdb, dbi, &stat) == 0)
            pages += stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages;
    }
    for (reef_db db = 0; db < REEF_DB_COUNT; db++) {
        if (mdb_stat(c->txn->lmdb, reef_environment_dbi(c->txn->environment, db), &stat) == 0)
            pages += stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages;
    }
    c->report->used_bytes = pages * stat.ms_psize;
    c->report->file_bytes = ((uint64_t)info.me_last_pgno + 1) * stat.ms_psize;
}

static void check_all(check *c) {
    reef_commit commit = {0};
    reef_error reason;
    reef_status status = reef_commit_read(c->txn, &commit, &reason);
    bool committed = status == REEF_OK;
    if (!committed && status != REEF_NOT_FOUND) damage(c, "%s", reason.message);
    c->last_commit = committed ? commit.number : status == REEF_NOT_FOUND ? 0 : UINT64_MAX;
    c->report->commits = commit.number;
    memcpy(c->report->root, commit.root, REEF_HASH_BYTES);
    if (reef_txn_generations_load(c->txn, &reason) != REEF_OK) damage(c, "%s", reason.message);

    for (reef_db db = 0; db < REEF_DB_SUMS; db++) check_database(c, db);
    check_sums(c);
    check_generations(c);
    check_snapshots(c);
    if (committed) check_root(c, &commit);
    measure(c);
}

reef_status reef_store_check(reef_store *store,
                             void (*on_damage)(void *context, const char *what),
                             void *context,
                             reef_check_report *report,
                             reef_error *err) {
    *report = (reef_check_report){0};
    check c = {.on_damage = on_damage, .context = context, .report = report};
    reef_status status = reef_txn_begin(&c.txn, store, REEF_TXN_READ, err);
    if (status != REEF_OK) return status;
    check_all(&c);
    reef_txn_abort(c.txn); // a read has nothing to commit
    if (c.stopped.status == REEF_OK) return REEF_OK;
    return reef_fail(err, REEF_CORRUPT, "the check of pool %s could not go on: %.160s",
                     reef_store_path(store), c.stopped.message);
}
