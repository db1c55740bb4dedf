// A walk over one database in all shards of a pool: each has a cursor, and the one on the least key
// is where the walk stands. Records that a shard has and does not own, copies of rank 0's, are
// passed over.
#include "shard_view.h"

#include <stdlib.h>
#include <string.h>

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
