// All shards of a pool that is divided, read as one pool.
//
//   DIR/rank-0   all that is not divided, and what rank 0 owns
//   DIR/rank-K   what rank K owns; of the rest a copy that is not read
//
// A read of it is one LMDB read of each shard. They begin together and are kept only if all are of
// one epoch, with one root: then `sums` of any shard speaks for all. Between the first rank's
// commit and that of rank 0, which commits last, shards are at two epochs, and the read begins
// again. A read that waited for the others instead would keep the later epoch, which does not count
// yet and may be undone (reef_store_step_back).
#include "shard_view.h"

#include "pool_file.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define AGREE_MS_DEFAULT 60000 // a commit of all ranks to slow disks
#define AGREE_PAUSE_NS 2000000

// ---- which shards are there ---------------------------------------------------------------------

char *reef_view_shard_path(const char *path, uint32_t rank) {
    char name[32];
    (void)snprintf(name, sizeof(name), "rank-%" PRIu32, rank);
    return reef_pool_file_path(path, name);
}

static bool holds_data(const char *path) {
    struct stat info;
    char *file = reef_pool_file_path(path, "data.mdb");
    bool holds = file != NULL && stat(file, &info) == 0;
    free(file);
    return holds;
}

static bool is_shard_at(const char *path, uint32_t rank) {
    char *shard = reef_view_shard_path(path, rank);
    bool is = shard != NULL && holds_data(shard);
    free(shard);
    return is;
}

typedef struct present {
    uint32_t least, greatest;
    size_t count;
} present;

static present find_shards(const char *path) {
    present found = {.least = UINT32_MAX};
    DIR *directory = opendir(path);
    if (directory == NULL) return found;
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        uint32_t rank;
        char name[32], rest;
        if (sscanf(entry->d_name, "rank-%" SCNu32 "%c", &rank, &rest) != 1) continue;
        (void)snprintf(name, sizeof(name), "rank-%" PRIu32, rank);
        if (strcmp(name, entry->d_name) != 0 || !is_shard_at(path, rank)) continue;
        if (rank < found.least) found.least = rank;
        if (rank > found.greatest) found.greatest = rank;
        found.count++;
    }
    closedir(directory);
    return found;
}

bool reef_view_is_at(const char *path) {
    return !holds_data(path) && find_shards(path).count > 0;
}

// ---- open and close -----------------------------------------------------------------------------

static reef_status no_memory(const char *path, reef_error *err) {
    return reef_fail(err, REEF_ERR_NO_MEMORY, "out of memory while opening the shards of %s", path);
}

static reef_status open_part(reef_store *store,
                             const char *path,
                             uint32_t rank,
                             const reef_store_options *options,
                             reef_error *err) {
    reef_view_part *part = &store->parts[store->part_count];
    part->path = reef_view_shard_path(path, rank);
    if (part->path == NULL) return no_memory(path, err);
    reef_status status = REEF_OK;
    if (!holds_data(part->path))
        status = reef_fail(err, REEF_ERR_NOT_FOUND,
                           "the shard of rank %" PRIu32 " is missing: there is no pool at %.160s",
                           rank, part->path);
    if (status == REEF_OK)
        status = reef_environment_open(&part->environment, part->path,
                                       &(reef_environment_options){.damaged = options->damaged,
                                                                   .no_sync = options->no_sync,
                                                                   .map_bytes = options->map_bytes},
                                       err);
    if (status == REEF_OK)
        store->part_count++;
    else
        free(part->path);
    return status;
}

// A read of one shard by itself.
static reef_txn read_of_part(reef_store *own, const reef_view_part *part, MDB_txn *lmdb) {
    *own = (reef_store){.environment = part->environment, .path = part->path};
    return (reef_txn){.store = own,
                      .environment = part->environment,
                      .lmdb = lmdb,
                      .mode = REEF_TXN_READ,
                      .division_count = 1};
}

static reef_status read_first(const reef_view_part *part, reef_shard_card *out, reef_error *err) {
    MDB_txn *lmdb = NULL;
    reef_store own;
    reef_status status = reef_environment_begin(part->environment, false, &lmdb, err);
    if (status != REEF_OK) return status;
    reef_txn txn = read_of_part(&own, part, lmdb);
    status = reef_shard_card_read(&txn, out, err);
    mdb_txn_abort(lmdb);
    reef_environment_end(part->environment, false);
    return status;
}

// How many shards there have to be: any of them knows.
static reef_status count_shards(const char *path,
                                const reef_store_options *options,
                                uint32_t *count,
                                reef_error *err) {
    const present found = find_shards(path);
    reef_view_part only;
    reef_store one = {.parts = &only};
    reef_shard_card card = {0};
    reef_status status = open_part(&one, path, found.least, options, err);
    if (status != REEF_OK) return status;
    status = read_first(&only, &card, err);
    if (status == REEF_OK && card.shard.count == 0)
        status = reef_fail(err, REEF_ERR_INVALID,
                           "%.80s holds whole pools of several ranks: give one of them, %.100s",
                           path, only.path);
    *count = card.shard.count;
    if (status == REEF_OK && found.greatest >= *count)
        status = reef_fail(err, REEF_ERR_INVALID,
                           "%.100s/rank-%" PRIu32 " is none of the %" PRIu32
                           " shards that rank-%" PRIu32 " is one of: take it away",
                           path, found.greatest, *count, found.least);
    reef_environment_close(only.environment, false);
    free(only.path);
    return status;
}

reef_status reef_view_count(const char *path, uint32_t *count, reef_error *err) {
    return count_shards(path, &(reef_store_options){.damaged = true}, count, err);
}

static reef_status refuse_writer(const char *path, uint32_t count, reef_error *err) {
    return reef_fail(err, REEF_ERR_INVALID,
                     "%.70s holds the %" PRIu32 " shards of a pool, which can be read so; what "
                     "changes it needs its ranks (mpirun -n %" PRIu32 " reefd --pool %.70s) or a "
                     "whole pool (reef shards DIR NEW --to 1)",
                     path, count, count, path);
}

reef_status reef_view_open(reef_store *store,
                           const char *path,
                           const reef_store_options *options,
                           reef_error *err) {
    uint32_t count = 0;
    reef_status status = count_shards(path, options, &count, err);
    if (status == REEF_OK && options->write) status = refuse_writer(path, count, err);
    if (status != REEF_OK) return status;
    store->parts = calloc(count, sizeof(*store->parts));
    if (store->parts == NULL) return no_memory(path, err);
    for (uint32_t rank = 0; status == REEF_OK && rank < count; rank++)
        status = open_part(store, path, rank, options, err);
    if (status == REEF_OK) {
        store->environment = store->parts[0].environment;
        store->agree_ms = options->agree_ms > 0 ? options->agree_ms : AGREE_MS_DEFAULT;
    }
    if (status != REEF_OK) reef_view_close(store);
    return status;
}

void reef_view_close(reef_store *store) {
    for (uint32_t p = 0; p < store->part_count; p++) {
        reef_environment_close(store->parts[p].environment, false);
        free(store->parts[p].path);
    }
    free(store->parts);
    store->parts = NULL;
    store->part_count = 0;
}

// ---- transactions -------------------------------------------------------------------------------

void reef_view_end(reef_txn *txn) {
    for (uint32_t p = 0; txn->parts != NULL && p < txn->store->part_count; p++) {
        if (txn->parts[p] == NULL) continue;
        mdb_txn_abort(txn->parts[p]);
        reef_environment_end(txn->store->parts[p].environment, false);
    }
    free(txn->parts);
    txn->parts = NULL;
    txn->lmdb = NULL;
}

static reef_status begin_each(reef_txn *txn, reef_error *err) {
    const reef_store *store = txn->store;
    reef_status status = REEF_OK;
    txn->parts = calloc(store->part_count, sizeof(MDB_txn *));
    if (txn->parts == NULL) return no_memory(store->path, err);
    for (uint32_t p = 0; status == REEF_OK && p < store->part_count; p++)
        status = reef_environment_begin(store->parts[p].environment, false, &txn->parts[p], err);
    txn->lmdb = txn->parts[0];
    return status;
}

static reef_status compare_each(const reef_txn *txn, bool *another_epoch, reef_error *err) {
    const reef_store *store = txn->store;
    reef_shard_card first = {0}, one;
    reef_status status = REEF_OK;
    *another_epoch = false;
    for (uint32_t p = 0; status == REEF_OK && p < store->part_count; p++) {
        reef_store own;
        reef_txn part = read_of_part(&own, &store->parts[p], txn->parts[p]);
        status = reef_shard_card_read(&part, &one, err);
        if (p == 0) first = one;
        if (status == REEF_OK)
            status = reef_shard_card_compare(&first, &one, p, store->part_count, own.path,
                                             another_epoch, err);
    }
    return status;
}

// Is a rank there that may still commit the epoch?
static bool is_trained(const reef_store *store) {
    bool trained = false;
    for (uint32_t p = 0; !trained && p < store->part_count; p++)
        trained = reef_writer_is_here(store->parts[p].path);
    return trained;
}

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

reef_status reef_view_begin(reef_txn *txn, reef_error *err) {
    uint64_t until = now_ms() + txn->store->agree_ms;
    bool trained = true;
    for (;;) {
        bool another_epoch = false;
        reef_status status = begin_each(txn, err);
        if (status == REEF_OK) status = compare_each(txn, &another_epoch, err);
        if (status == REEF_OK) return REEF_OK;
        reef_view_end(txn);
        // With nobody there before this look, nothing has changed since and nothing will.
        if (!another_epoch || !trained || now_ms() >= until) return status;
        trained = is_trained(txn->store);
        nanosleep(&(struct timespec){.tv_nsec = AGREE_PAUSE_NS}, NULL);
    }
}

// ---- cursors ------------------------------------------------------------------------------------
//
// A walk over one database in all shards of a pool: each has a cursor, and the one on the least key
// is where the walk stands. Records that a shard has and does not own, copies of rank 0's, are
// passed over.

struct reef_view_cursor {
    reef_db db;
    uint32_t at; // whose record the walk stands on
    uint32_t count;
    reef_cursor each[]; // (count) without a view of their own
};

static bool is_owned(const reef_txn *txn, const reef_cursor *one, reef_db db, uint32_t part) {
    reef_key key;
    reef_error none;
    char name[REEF_NAME_BYTES_MAX + 1];
    // A key that cannot be read is nobody's: whoever meets it reports it.
    if (reef_key_decode(db, one->key.mv_data, one->key.mv_size, &key, name, &none) != REEF_OK)
        return true;
    return reef_view_part_of(txn, &key) == part;
}

// From where one shard's cursor stands on to the first record that the shard owns.
static reef_status settle(
    reef_view_cursor *view, const reef_txn *txn, uint32_t part, int code, reef_error *err) {
    reef_cursor *one = &view->each[part];
    while (code == 0 && !is_owned(txn, one, view->db, part))
        code = mdb_cursor_get(one->lmdb, &one->key, &one->value, MDB_NEXT);
    one->done = code != 0;
    if (code == 0 || code == MDB_NOTFOUND) return REEF_OK;
    return reef_environment_fail(txn->store->parts[part].environment, code, 0, "walk a database",
                                 err);
}

static int compare_keys(const MDB_val *a, const MDB_val *b) {
    size_t common = a->mv_size < b->mv_size ? a->mv_size : b->mv_size;
    int order = memcmp(a->mv_data, b->mv_data, common);
    return order != 0 ? order : (a->mv_size > b->mv_size) - (a->mv_size < b->mv_size);
}

static void stand_on_least(reef_cursor *cursor) {
    reef_view_cursor *view = cursor->view;
    const reef_cursor *least = NULL;
    for (uint32_t p = 0; p < view->count; p++) {
        const reef_cursor *one = &view->each[p];
        if (one->done || (least != NULL && compare_keys(&one->key, &least->key) >= 0)) continue;
        least = one;
        view->at = p;
    }
    cursor->done = least == NULL;
    if (least == NULL) return;
    cursor->key = least->key;
    cursor->value = least->value;
}

static reef_status open_each(reef_view_cursor *view,
                             const reef_txn *txn,
                             const void *from,
                             size_t from_bytes,
                             reef_error *err) {
    reef_status status = REEF_OK;
    for (uint32_t p = 0; status == REEF_OK && p < view->count; p++) {
        reef_cursor *one = &view->each[p];
        reef_environment *environment = txn->store->parts[p].environment;
        MDB_dbi dbi = reef_environment_dbi(environment, view->db);
        int code = mdb_cursor_open(txn->parts[p], dbi, &one->lmdb);
        if (code != 0) return reef_environment_fail(environment, code, 0, "walk a database", err);
        one->key = (MDB_val){.mv_size = from_bytes, .mv_data = (void *)(uintptr_t)from};
        code = mdb_cursor_get(one->lmdb, &one->key, &one->value,
                              from_bytes > 0 ? MDB_SET_RANGE : MDB_FIRST);
        status = settle(view, txn, p, code, err);
    }
    return status;
}

reef_status reef_view_cursor_open(reef_cursor *cursor,
                                  reef_txn *txn,
                                  reef_db db,
                                  const void *from,
                                  size_t from_bytes,
                                  reef_error *err) {
    uint32_t count = txn->store->part_count;
    *cursor = (reef_cursor){.done = true};
    cursor->view = calloc(1, sizeof(*cursor->view) + count * sizeof(reef_cursor));
    if (cursor->view == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to walk the shards of %s",
                         txn->store->path);
    cursor->view->db = db;
    cursor->view->count = count;
    reef_status status = open_each(cursor->view, txn, from, from_bytes, err);
    if (status == REEF_OK) stand_on_least(cursor);
    return status;
}

reef_status reef_view_cursor_next(reef_cursor *cursor, reef_txn *txn, reef_error *err) {
    reef_view_cursor *view = cursor->view;
    reef_cursor *one = &view->each[view->at];
    int code = mdb_cursor_get(one->lmdb, &one->key, &one->value, MDB_NEXT);
    reef_status status = settle(view, txn, view->at, code, err);
    stand_on_least(cursor);
    return status;
}

void reef_view_cursor_close(reef_cursor *cursor) {
    for (uint32_t p = 0; p < cursor->view->count; p++)
        if (cursor->view->each[p].lmdb != NULL) mdb_cursor_close(cursor->view->each[p].lmdb);
    free(cursor->view);
    cursor->view = NULL;
}
