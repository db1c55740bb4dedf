// Two pools that were one until generation 0 was sealed, and a generation that leaves one of them
// in a pool of its own.
#ifndef TRANSFER_H
#define TRANSFER_H

#include "lifelong.h"
#include "test.h"
#include "trainer_internal.h"

#define TEXT_BYTES 6000 // that a generation learns from

static const reef_import_options DRY = {.dry_run = true};

typedef struct pair {
    lifelong *a, *b;                                 // one until generation 0 was sealed
    char one[TEMP_DIR_BYTES], other[TEMP_DIR_BYTES]; // two paths for pools of one generation
} pair;

static inline int setup(void **state) {
    pair *p = room(sizeof(*p));
    lifelong_setup((void **)&p->a);
    lifelong_setup((void **)&p->b);
    choose(&p->a->config, "boundaries", "given");
    temp_dir_join(p->one, p->a->dir, "one");
    temp_dir_join(p->other, p->a->dir, "other");
    *state = p;
    return 0;
}

static inline int teardown(void **state) {
    pair *p = *state;
    lifelong_teardown((void **)&p->a);
    lifelong_teardown((void **)&p->b);
    return 0;
}

static inline void seal(lifelong *f) {
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
}

static inline void learn(lifelong *f, int kind) {
    feed_kind(f, kind, TEXT_BYTES, 1);
    seal(f);
}

/** A generation as it was sealed, in a pool at `path`. */
static inline void extract(lifelong *f, uint32_t generation, const char *path) {
    must(reef_generation_extract(f->store, generation, path, &why));
}

/** Take in the last generation of the pool at `path`, as it was sealed. */
static inline reef_status import_of(lifelong *f,
                                    const char *path,
                                    const reef_import_options *options,
                                    reef_import *import,
                                    reef_error *err) {
    reef_store *from = NULL;
    reef_txn *txn = NULL;
    uint32_t count = 0;
    reef_import_options chosen = options != NULL ? *options : (reef_import_options){0};
    chosen.as_sealed = true;
    reef_status status = reef_store_open(&from, path, NULL, err);
    if (status == REEF_OK) status = reef_txn_begin(&txn, from, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_generation_count(txn, &count, err);
    reef_txn_abort(txn);
    if (status == REEF_OK)
        status = reef_trainer_import(f->trainer, from, count - 1, &chosen, import, err);
    reef_store_close(from);
    return status;
}

static inline reef_import import_one(lifelong *f, const char *path) {
    reef_import import;
    must(import_of(f, path, NULL, &import, &why));
    return import;
}

/**
 * Both know kind 0; a has learned kind 1 since, as generation 1, which is in the pool `one`. Both
 * are open.
 */
static inline void start(pair *p) {
    make_pool(p->a, 1);
    learn(p->a, 0);
    must(reef_store_copy(p->a->store, p->b->pool, NULL, &why));
    learn(p->a, 1);
    extract(p->a, 1, p->one);
    open_pool(p->b, 1);
}

static inline reef_commit last_commit(lifelong *f) {
    reef_commit out;
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_commit_read(txn, &out, &why));
    reef_txn_abort(txn);
    return out;
}

/** Are the logits of a text of one kind the same bits as of these two states? */
static inline bool same_logits(
    reef_store *one, const char *one_as_of, reef_store *other, const char *other_as_of, int kind) {
    float *x = new_logits(), *y = new_logits();
    logits_of(one, one_as_of, kind, x);
    logits_of(other, other_as_of, kind, y);
    bool same = memcmp(x, y, (size_t)LIFELONG_PROBE_BYTES * REEF_VOCAB * sizeof(*x)) == 0;
    return same;
}

typedef struct record_list {
    uint8_t *bytes;
    size_t count;
} record_list;

static inline reef_status add_record(void *context,
                                     const reef_key *key,
                                     const reef_view *view,
                                     reef_error *err) {
    record_list *list = context;
    list->bytes = realloc(list->bytes, list->count + view->bytes + 1);
    assert_non_null(list->bytes);
    memcpy(list->bytes + list->count, view->data, view->bytes);
    list->count += view->bytes;
    return REEF_OK;
}

// Blocks of memories have other numbers in another pool.
static inline record_list records_of(reef_store *store, uint32_t generation) {
    static const reef_db parts[] = {REEF_DB_TENSORS, REEF_DB_EXPERTS, REEF_DB_FLAGS};
    const reef_key mark = {.db = REEF_DB_MEMORY, .generation = generation, .name = "mark"};
    record_list list = {0};
    reef_view view;
    reef_txn *txn = pool_begin(store, REEF_TXN_READ);
    if (reef_record_view(txn, &mark, &view, NULL) == REEF_OK)
        must(add_record(&list, &mark, &view, &why));
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
        must(reef_record_scan(txn, parts[i], generation, add_record, &list, &why));
    reef_txn_abort(txn);
    return list;
}

/** Are the records of two sealed generations the same, whatever their numbers? */
static inline bool same_records(reef_store *one,
                                uint32_t generation,
                                reef_store *other,
                                uint32_t of_other) {
    record_list x = records_of(one, generation), y = records_of(other, of_other);
    bool same = x.count > 0 && x.count == y.count && memcmp(x.bytes, y.bytes, x.count) == 0;
    free(x.bytes);
    free(y.bytes);
    return same;
}

#endif
