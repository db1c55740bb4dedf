// Pools for tests: a fixture with an empty pool open for writing, and what is done with any pool.
#ifndef POOL_H
#define POOL_H

#include "checked.h"
#include "draw.h"
#include "reef_pool_check.h"
#include "reef_store.h"
#include "temp_dir.h"

#include <fcntl.h>

typedef struct pool_fixture {
    char directory[TEMP_DIR_BYTES]; // of the test; removed with it
    char path[TEMP_DIR_BYTES];      // of the pool
    reef_store *store;              // open for writing
} pool_fixture;

static inline reef_store *pool_open(const char *path, bool create, bool write) {
    reef_store *store = NULL;
    must(reef_store_open(&store, path, &(reef_store_options){.create = create, .write = write},
                         &why));
    return store;
}

static inline reef_txn *pool_begin(reef_store *store, reef_txn_mode mode) {
    reef_txn *txn = NULL;
    must(reef_txn_begin(&txn, store, mode, &why));
    return txn;
}

static inline reef_commit pool_commit(reef_txn *txn, uint64_t step) {
    reef_commit commit = {.step = step, .stream_bytes = 100 * step, .unix_ms = 1};
    must(reef_txn_commit(txn, &commit, &why));
    return commit;
}

static inline void pool_put(reef_txn *txn, const reef_key *key, const void *payload, size_t bytes) {
    must(reef_record_put(txn, key, REEF_BYTES, payload, bytes, &why));
}

static inline void on_unexpected_damage(void *context, const char *what) {
    print_error("damage: %s\n", what);
}

/** The pool checks clean; returns what was looked at. */
static inline reef_check_report pool_check(reef_store *store) {
    reef_check_report report;
    must(reef_store_check(store, &(reef_check_options){.on_damage = on_unexpected_damage}, &report,
                          &why));
    assert_int_equal(report.damaged, 0);
    return report;
}

static inline void pool_open_generation(reef_txn *txn, uint32_t number) {
    const reef_generation_record generation = {.generation = number,
                                               .parent = number == 0 ? 0 : number - 1,
                                               .side = 4,
                                               .first_id = 16 * (uint64_t)number,
                                               .dtype = REEF_F32,
                                               .opened_step = 10 * (uint64_t)number};
    must(reef_generation_put(txn, &generation, &why));
}

static inline void fill(uint8_t *out, size_t bytes, uint64_t seed) {
    for (size_t i = 0; i < bytes; i++) out[i] = (uint8_t)(draw_bits(&seed) >> 32);
}

static inline int pool_setup(void **state) {
    pool_fixture *f = room(sizeof(*f));
    temp_dir_new(f->directory);
    temp_dir_join(f->path, f->directory, "pool");
    f->store = pool_open(f->path, true, true);
    *state = f;
    return 0;
}

static inline int pool_teardown(void **state) {
    pool_fixture *f = *state;
    reef_store_close(f->store);
    temp_dir_remove(f->directory);
    return 0;
}

/** A test in an empty pool of its own. */
#define POOL_TEST(name) TEST_WITH(name, pool_setup, pool_teardown, pool_fixture *f)

static inline void pool_close(pool_fixture *f) {
    reef_store_close(f->store);
    f->store = NULL;
}

/** Close the fixture's pool and open it again. */
static inline void pool_reopen(pool_fixture *f) {
    pool_close(f);
    f->store = pool_open(f->path, false, true);
}

#endif
