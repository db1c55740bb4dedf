// Two pools that were one until generation 0 was sealed, and a generation that leaves one of them
// as a file.
#ifndef TRANSFER_H
#define TRANSFER_H

#include "lifelong.h"
#include "test.h"
#include "trainer_internal.h"
#include "whole_file.h"

#define TEXT_BYTES 6000 // that a generation learns from

static const reef_import_options DRY = {.dry_run = true};

typedef struct pair {
    lifelong *a, *b;                                  // one until generation 0 was sealed
    char file[TEMP_DIR_BYTES], other[TEMP_DIR_BYTES]; // two paths for files
} pair;

static inline int setup(void **state) {
    pair *p = calloc(1, sizeof(*p));
    assert_non_null(p);
    lifelong_setup((void **)&p->a);
    lifelong_setup((void **)&p->b);
    p->a->config.side_new = 5;
    p->a->config.gate_decay = 0.9f;
    choose(&p->a->config, "boundaries", "given");
    temp_dir_join(p->file, p->a->dir, "one.safetensors");
    temp_dir_join(p->other, p->a->dir, "two.safetensors");
    *state = p;
    return 0;
}

static inline int teardown(void **state) {
    pair *p = *state;
    lifelong_teardown((void **)&p->a);
    lifelong_teardown((void **)&p->b);
    free(p);
    return 0;
}

static inline void seal(lifelong *f) {
    reef_error err;
    ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
}

static inline void learn(lifelong *f, int kind) {
    feed_kind(f, kind, TEXT_BYTES, 1);
    seal(f);
}

static inline void export_one(lifelong *f, uint32_t generation, const char *path) {
    reef_error err;
    ok(reef_generation_export(f->store, generation, path, NULL, NULL, &err), &err);
}

static inline reef_import import_one(lifelong *f, const char *path) {
    reef_error err;
    reef_import import;
    ok(reef_trainer_import(f->trainer, path, NULL, &import, &err), &err);
    return import;
}

/**
 * Both know kind 0; a has learned kind 1 since, as generation 1, which is in the file. Both are
 * open.
 */
static inline void start(pair *p) {
    reef_error err;
    make_pool(p->a, 1);
    learn(p->a, 0);
    ok(reef_store_copy(p->a->store, p->b->pool, NULL, &err), &err);
    learn(p->a, 1);
    export_one(p->a, 1, p->file);
    open_pool(p->b, 1);
}

static inline reef_commit last_commit(lifelong *f) {
    reef_error err;
    reef_commit out;
    reef_txn *txn = NULL;
    ok(reef_txn_begin(&txn, f->store, REEF_TXN_READ, &err), &err);
    ok(reef_commit_read(txn, &out, &err), &err);
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

/** Of a file in the safetensors format. */
static inline size_t header_bytes(const uint8_t *data) {
    size_t bytes = 0;
    for (size_t i = 8; i > 0; i--) bytes = bytes << 8 | data[i - 1];
    return bytes;
}

#endif
