// The integrity check: walks everything and continues after damage.
//
// First the structure of the file, page by page, before LMDB follows it (page_check.c). Then record
// by record: it finds flipped bits (checksum) and stale or lost records (`sums`); over all it finds
// a wrong root hash, sealed generations that changed, and snapshots that lack what they reference.
// What LMDB reads is mapped, and a disk that fails is SIGBUS here: reef_store_verify runs this in a
// child.
//
// Pages are of one state, which takes one transaction. All else is true of a commit and of the next
// one, by itself: a record and its sum, a generation and its root, a snapshot and its copies, a
// layer and its windows. It therefore works in steps (reef_txn_renew), each on the last commit, so
// that no walk keeps a writer from reusing pages.
#include "check.h"

#include "reef_byte_order.h"
#include "reef_pool_check.h"
#include "reef_snapshot.h"

#define XXH_STATIC_LINKING_ONLY // for hash states on the stack
#include <xxhash.h>

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- findings -----------------------------------------------------------------------------------

static void keep_damaged_key(reef_check *c, const reef_key *key, const char *what) {
    if (c->damaged_count == REEF_DAMAGED_MAX) return;
    reef_damaged *d = &c->damaged[c->damaged_count++];
    *d = (reef_damaged){.key = *key};
    if (key->name != NULL) {
        snprintf(d->name, sizeof(d->name), "%s", key->name);
        d->key.name = d->name;
    }
    snprintf(d->what, sizeof(d->what), "%s", what);
}

void reef_check_damage(reef_check *c, const reef_key *key, const char *format, ...) {
    char what[sizeof(((reef_error *)0)->message)];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    c->report->damaged++;
    if (key != NULL) keep_damaged_key(c, key, what);
    // Where one page stands in place of another its keys are all wrong alike: that is said once.
    if (key == NULL && strcmp(what, c->last_said) == 0) return;
    snprintf(c->last_said, sizeof(c->last_said), "%s", what);
    if (c->options->on_damage != NULL) c->options->on_damage(c->options->context, what);
}

void reef_check_stop(reef_check *c, const reef_error *reason) {
    if (reason->status != REEF_ERR_NO_MEMORY) reef_check_damage(c, NULL, "%s", reason->message);
    if (c->stopped.status == REEF_OK) c->stopped = *reason;
}

static bool is_same_record(const reef_key *a, const reef_key *b) {
    reef_key_bytes one, other;
    return a->db == b->db && reef_key_encode(a, &one, NULL) == REEF_OK &&
           reef_key_encode(b, &other, NULL) == REEF_OK && one.bytes == other.bytes &&
           memcmp(one.data, other.data, one.bytes) == 0;
}

// A record already found damaged is not reported again.
static bool is_reported(const reef_check *c, const reef_key *key) {
    for (size_t i = 0; key != NULL && i < c->damaged_count; i++)
        if (is_same_record(key, &c->damaged[i].key)) return true;
    return false;
}

void reef_check_unreadable(reef_check *c, const reef_key *key, const reef_error *reason) {
    if (reason->status == REEF_ERR_NO_MEMORY)
        reef_check_stop(c, reason);
    else if (!is_reported(c, key))
        reef_check_damage(c, key, "%s", reason->message);
}

// The record of a generation could not be read.
static void unreadable_generation(reef_check *c, uint32_t generation, const reef_error *reason) {
    const reef_key key = {.db = REEF_DB_GENERATIONS, .generation = generation};
    reef_check_unreadable(c, &key, reason);
}

// What the commit of the step stores about itself. Damage of its record is reported once.
static void read_commit(reef_check *c, bool first) {
    reef_error reason;
    reef_status status = reef_commit_read(c->txn, &c->commit, &reason);
    c->committed = status == REEF_OK;
    if (!c->committed) c->commit = (reef_commit){0};
    // With a damaged record no commit number can be called too new.
    c->last_commit = c->committed || status == REEF_ERR_NOT_FOUND ? c->commit.number : UINT64_MAX;
    if (first && status != REEF_OK && status != REEF_ERR_NOT_FOUND)
        reef_check_unreadable(c, &reef_commit_key, &reason);
    status = reef_txn_generations_load(c->txn, &reason);
    if (first && status != REEF_OK && c->txn->generation_count > 0)
        unreadable_generation(c, c->txn->generation_count - 1, &reason);
    else if (first && status != REEF_OK)
        reef_check_unreadable(c, NULL, &reason);
}

bool reef_check_release_reader(reef_check *c, bool *renewed) {
    reef_error reason;
    *renewed = false;
    if (c->ended.status != REEF_OK) return false;
    if (reef_txn_renew(c->txn, renewed, &reason) != REEF_OK) {
        c->ended = reason;
        return false;
    }
    // Another commit from here on: what is compared with it is read again.
    if (*renewed) read_commit(c, false);
    return true;
}

// ---- records ------------------------------------------------------------------------------------

// Chosen by key and seed alone, so that a sample can be taken again.
static bool is_in_sample(const reef_check *c, reef_db db, const MDB_val *key) {
    double share = c->options->sample;
    if (c->options->quick) return false;
    if (share <= 0 || share >= 1) return true;
    uint64_t seed = XXH3_64bits_withSeed(&(uint8_t){(uint8_t)db}, 1, c->options->seed);
    return (double)XXH3_64bits_withSeed(key->mv_data, key->mv_size, seed) < share * 0x1p64;
}

// The same, of something that the reason does not name.
static void unreadable_of(reef_check *c,
                          const reef_key *key,
                          const char *what,
                          const reef_error *reason) {
    reef_error named;
    (void)!reef_fail(&named, reason->status, "%s: %s", what, reason->message);
    reef_check_unreadable(c, key, &named);
}

static reef_status verify_record(reef_check *c,
                                 const reef_cursor *cursor,
                                 const reef_key *key,
                                 reef_view *view,
                                 reef_error *reason) {
    reef_key again;
    char name[REEF_NAME_BYTES_MAX + 1];
    bool sealed = reef_record_is_sealed(c->txn, key);
    bool hashed = !sealed || is_in_sample(c, key->db, &cursor->key);
    // Counted apart, so that the report shows how much of it a sample has hashed.
    if (sealed) {
        c->report->sealed_records++;
        c->report->sealed_bytes += cursor->value.mv_size;
        c->report->hashed_records += hashed;
        c->report->hashed_bytes += hashed ? cursor->value.mv_size : 0;
    }
    return hashed ? reef_record_verify(c->txn, key->db, cursor, &again, name, view, reason)
                  : reef_record_verify_header(c->txn, cursor, key, view, reason);
}

static void check_record(reef_check *c, reef_db db, const reef_cursor *cursor) {
    reef_key key;
    reef_view view;
    reef_error reason;
    char name[REEF_NAME_BYTES_MAX + 1];
    // Counted before anything can fail, so that the total is of all records.
    c->report->records++;
    c->report->bytes += cursor->value.mv_size;
    // Without its key nothing else can be checked.
    if (reef_key_decode(db, cursor->key.mv_data, cursor->key.mv_size, &key, name, &reason) !=
        REEF_OK) {
        reef_check_unreadable(c, NULL, &reason);
        return;
    }
    if (verify_record(c, cursor, &key, &view, &reason) != REEF_OK) {
        reef_check_unreadable(c, &key, &reason);
        return;
    }
    char text[REEF_KEY_TEXT_BYTES];
    reef_key_format(&key, text);
    // A record from the future was written by a commit that was lost.
    if (view.commit > c->last_commit)
        reef_check_damage(c, &key,
                          "%s: written by commit %" PRIu64 ", but the last commit is %" PRIu64,
                          text, view.commit, c->last_commit);
    // Moments are dropped when a generation is sealed.
    if (db == REEF_DB_MOMENTS && key.generation < c->txn->sealed_count)
        reef_check_damage(c, NULL, "%s: a sealed generation has optimiser state", text);
    // Generations of snapshots have numbers of their own and are not counted.
    if (db == REEF_DB_GENERATIONS && key.generation < REEF_SNAPSHOT_GENERATION)
        c->report->generations++;
}

// Every entry of sums needs its record: else a record was lost.
static void check_sum(reef_check *c, reef_db sums, const reef_cursor *cursor) {
    (void)sums;
    const uint8_t *data = cursor->key.mv_data;
    size_t bytes = cursor->key.mv_size;
    reef_key key;
    reef_error reason;
    char name[REEF_NAME_BYTES_MAX + 1];
    char text[REEF_KEY_TEXT_BYTES];
    if (bytes < 1 || data[0] >= REEF_DB_COUNT || !reef_db_summed((reef_db)data[0])) {
        reef_check_damage(c, NULL, "a key of %zu bytes in sums is malformed", bytes);
        return;
    }
    if (reef_key_decode((reef_db)data[0], data + 1, bytes - 1, &key, name, &reason) != REEF_OK) {
        unreadable_of(c, NULL, "sums", &reason);
        return;
    }
    // Only whether it is there: contents are compared by the walk over records.
    MDB_val lookup = {.mv_size = bytes - 1, .mv_data = (uint8_t *)cursor->key.mv_data + 1};
    MDB_val value;
    int code =
        mdb_get(c->txn->lmdb, reef_environment_dbi(c->txn->environment, key.db), &lookup, &value);
    if (code == 0) return; // compared when the record was walked over
    if (code == MDB_NOTFOUND && reef_shard_is_elsewhere(c->txn, &key)) return;
    reef_key_format(&key, text);
    if (code == MDB_NOTFOUND) {
        reef_check_damage(c, &key, "%s: sums has an entry for it, but the record is lost", text);
    } else {
        (void)reef_environment_fail(c->txn->environment, code, 0, "look up a record", &reason);
        unreadable_of(c, NULL, text, &reason);
    }
}

// ---- steps and walks ----------------------------------------------------------------------------

/** A walk over a database. */
typedef struct walk_in_steps {
    reef_cursor cursor;
    uint8_t last[REEF_SUM_KEY_BYTES_MAX]; // (last_bytes) the key before the cursor's
    size_t last_bytes;
    bool is_disordered;
} walk_in_steps;

static bool ascends(const walk_in_steps *w) {
    const size_t bytes = w->cursor.key.mv_size;
    const int order =
        memcmp(w->last, w->cursor.key.mv_data, w->last_bytes < bytes ? w->last_bytes : bytes);
    return order < 0 || (order == 0 && w->last_bytes < bytes);
}

// The next record, of the last commit if a step is over: the first one behind this one's key. Where
// keys do not ascend, because a page stands in place of another, a search may find again what was
// walked over, and never come to the end: such a walk stays one step.
static reef_status step(reef_check *c, reef_db db, walk_in_steps *w, reef_error *err) {
    bool renewed = false;
    if (w->cursor.key.mv_size >= sizeof(w->last) || !ascends(w)) w->is_disordered = true;
    if (!w->is_disordered) {
        w->last_bytes = w->cursor.key.mv_size;
        memcpy(w->last, w->cursor.key.mv_data, w->last_bytes);
        if (!reef_check_release_reader(c, &renewed)) return c->ended.status;
    }
    if (!renewed) return reef_cursor_next(&w->cursor, c->txn, err);
    uint8_t behind[REEF_SUM_KEY_BYTES_MAX]; // the least key that is greater
    memcpy(behind, w->last, w->last_bytes);
    behind[w->last_bytes] = 0;
    reef_cursor_close(&w->cursor);
    return reef_cursor_open(&w->cursor, c->txn, db, behind, w->last_bytes + 1, err);
}

static void walk(reef_check *c,
                 reef_db db,
                 void (*visit)(reef_check *c, reef_db db, const reef_cursor *cursor)) {
    walk_in_steps w = {.last_bytes = 0};
    reef_error reason;
    if (c->ended.status != REEF_OK) return;
    reef_status status = reef_cursor_open(&w.cursor, c->txn, db, NULL, 0, &reason);
    while (status == REEF_OK && !w.cursor.done) {
        visit(c, db, &w.cursor);
        status = step(c, db, &w, &reason);
    }
    reef_cursor_close(&w.cursor);
    // A check that has ended keeps its first reason.
    if (status != REEF_OK && c->ended.status == REEF_OK) reef_check_stop(c, &reason);
}

// ---- roots and references -----------------------------------------------------------------------

// The commit of this step, which the report then describes.
static void check_root(reef_check *c) {
    const reef_commit *commit = &c->commit;
    reef_error reason;
    uint8_t root[REEF_HASH_BYTES];
    c->report->commits = commit->number;
    memcpy(c->report->root, commit->root, REEF_HASH_BYTES);
    // Without a commit record there is no root to compare with.
    if (!c->committed) return;
    if (reef_root_hash(c->txn, commit->step, commit->stream_bytes, root, &reason) != REEF_OK) {
        reef_check_unreadable(c, NULL, &reason);
    } else if (memcmp(root, commit->root, REEF_HASH_BYTES) != 0) {
        char have[2 * REEF_HASH_BYTES + 1];
        char want[2 * REEF_HASH_BYTES + 1];
        reef_hash_format(root, have);
        reef_hash_format(commit->root, want);
        reef_check_damage(c, NULL, "the root hash is %s, commit %" PRIu64 " recorded %s", have,
                          commit->number, want);
    }
}

static void check_generation_root(reef_check *c, const reef_generation_record *generation) {
    reef_error reason;
    uint8_t root[REEF_HASH_BYTES];
    const reef_key key = {.db = REEF_DB_GENERATIONS, .generation = generation->generation};
    if (reef_generation_root(c->txn, generation->generation, root, &reason) != REEF_OK)
        reef_check_unreadable(c, &key, &reason);
    // The root is all that shows a lost write whose record and sum are both of an earlier commit.
    else if (memcmp(root, generation->root, REEF_HASH_BYTES) != 0)
        reef_check_damage(c, &key,
                          "generation %" PRIu32
                          ": its records differ from the root it was sealed or copied with",
                          generation->generation);
}

static void check_generations(reef_check *c) {
    bool renewed;
    for (uint32_t i = 0; reef_check_release_reader(c, &renewed) && i < c->txn->generation_count;
         i++) {
        reef_generation_record generation;
        reef_error reason;
        if (reef_generation_read(c->txn, i, &generation, &reason) != REEF_OK)
            unreadable_generation(c, i, &reason);
        else if (generation.sealed)
            check_generation_root(c, &generation);
        // Generations are sealed in order, so only the last one may be open.
        else if (i + 1 < c->txn->generation_count)
            reef_check_damage(c, NULL, "generation %" PRIu32 " is open, but it is not the last", i);
    }
}

static void check_copy(reef_check *c, const reef_snapshot *snapshot, uint32_t number) {
    reef_generation_record copy;
    reef_error reason;
    char text[sizeof("snapshot ") + REEF_NAME_BYTES_MAX];
    const reef_key key = {.db = REEF_DB_GENERATIONS, .generation = number};
    snprintf(text, sizeof(text), "snapshot %s", snapshot->name);
    if (reef_generation_read(c->txn, number, &copy, &reason) != REEF_OK)
        unreadable_of(c, &key, text, &reason);
    else
        check_generation_root(c, &copy);
}

static void check_snapshot(reef_check *c, const reef_snapshot *snapshot) {
    c->report->snapshots++;
    if (snapshot->shared_count > c->txn->sealed_count)
        reef_check_damage(
            c, NULL, "snapshot %s shares %" PRIu32 " sealed generations, the pool has %" PRIu32,
            snapshot->name, snapshot->shared_count, c->txn->sealed_count);
    if (snapshot->commit > c->last_commit)
        reef_check_damage(c, NULL,
                          "snapshot %s is of commit %" PRIu64 ", but the last commit is %" PRIu64,
                          snapshot->name, snapshot->commit, c->last_commit);
    // Shared generations were checked with the pool; only the copies are the snapshot's own.
    for (uint32_t g = snapshot->shared_count; g < snapshot->sealed_count; g++)
        check_copy(c, snapshot, reef_snapshot_records(snapshot, g));
    if (snapshot->copy != 0) check_copy(c, snapshot, snapshot->copy); // 0: no generation was open
}

// Damage of the record itself was reported by the walk over all records.
static void check_snapshot_at(reef_check *c, reef_db db, const reef_cursor *cursor) {
    reef_key key;
    char name[REEF_NAME_BYTES_MAX + 1];
    reef_snapshot snapshot;
    if (reef_key_decode(db, cursor->key.mv_data, cursor->key.mv_size, &key, name, NULL) ==
            REEF_OK &&
        reef_snapshot_read(c->txn, name, &snapshot, NULL) == REEF_OK)
        check_snapshot(c, &snapshot);
}

// ---- the whole ----------------------------------------------------------------------------------

static void on_also(void *context, const reef_key *key, const char *what) {
    reef_check *c = context;
    if (!is_reported(c, key)) reef_check_damage(c, key, "%s", what);
}

static void check_all(reef_check *c) {
    reef_error reason;
    bool renewed;
    read_commit(c, true);
    for (reef_db db = 0; db < REEF_DB_COUNT; db++)
        if (reef_db_has_records(db)) walk(c, db, check_record);
    // After the records: their contents were compared then, so here only lost ones are sought.
    walk(c, REEF_DB_SUMS, check_sum);
    check_generations(c);
    // Not reef_snapshot_scan, which is one step.
    walk(c, REEF_DB_SNAPSHOTS, check_snapshot_at);
    if (reef_check_release_reader(c, &renewed)) check_root(c);
    reef_check_usage(c);
    if (reef_check_release_reader(c, &renewed)) reef_check_journal(c);
    if (c->options->also != NULL && reef_check_release_reader(c, &renewed) &&
        c->options->also(c->txn, on_also, c, &reason) != REEF_OK)
        reef_check_unreadable(c, NULL, &reason);
    if (c->ended.status == REEF_OK) reef_check_remedy(c); // which depends on all that is damaged
}

// The pages of the newest commit. From here on c->txn holds it, or the first step.
static reef_status check_file(reef_check *c, reef_store *store, reef_error *err) {
    reef_pages pages;
    reef_status status = reef_pages_open(&pages, reef_environment_path(store->environment), err);
    if (status == REEF_OK) status = reef_pages_pin(&pages, store, &c->txn, err);
    if (status == REEF_OK) status = reef_check_pages(c, &pages, err);
    reef_pages_close(&pages);
    if (status != REEF_OK) return status;
    reef_txn_abort(c->txn);
    return reef_txn_begin(&c->txn, store, REEF_TXN_READ_RENEWED, err);
}

reef_status reef_check_pages_of(const char *path,
                                const reef_check_options *options,
                                reef_check_report *report,
                                reef_error *err) {
    reef_pages pages;
    reef_check c = {.options = options, .report = report};
    reef_status status = reef_pages_open(&pages, path, err);
    if (status == REEF_OK) status = reef_pages_meta(&pages, err);
    if (status == REEF_OK) status = reef_check_pages(&c, &pages, err);
    reef_pages_close(&pages);
    return status;
}

reef_status reef_store_check(reef_store *store,
                             const reef_check_options *options,
                             reef_check_report *report,
                             reef_error *err) {
    static const reef_check_options none = {0};
    *report = (reef_check_report){0};
    reef_check c = {.options = options != NULL ? options : &none, .report = report};
    reef_read_stat before, after;
    reef_store_read_stat(store, &before);
    c.damaged = calloc(REEF_DAMAGED_MAX, sizeof(*c.damaged));
    if (c.damaged == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a check");
    reef_status status = check_file(&c, store, err);
    if (status == REEF_OK) check_all(&c);
    reef_txn_abort(c.txn); // a read has nothing to commit
    free(c.damaged);
    reef_store_read_stat(store, &after);
    // Differences, as the counters run for as long as the store is open.
    report->reads = after.count - before.count;
    report->longest_read_ms = after.longest_ms;
    if (status == REEF_OK && c.ended.status != REEF_OK)
        return reef_fail(err, c.ended.status, "%s", c.ended.message);
    if (status != REEF_OK || c.stopped.status == REEF_OK) return status;
    return reef_fail(err,
                     c.stopped.status == REEF_ERR_NO_MEMORY ? REEF_ERR_NO_MEMORY : REEF_ERR_CORRUPT,
                     "the check of pool %s could not continue: %.160s", reef_store_path(store),
                     c.stopped.message);
}
