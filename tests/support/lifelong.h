// A small pool that learns one kind of text after another: what the tests of the lifelong loop
// begin with.
#ifndef LIFELONG_H
#define LIFELONG_H

#include "pool.h"
#include "reef_context.h"
#include "reef_kinds.h"
#include "reef_trainer.h"

enum { LIFELONG_BATCH = 64, LIFELONG_PROBE_BYTES = 400, LIFELONG_SAID_BYTES = 65536 };

#define LIFELONG_LOGIT_BYTES (LIFELONG_PROBE_BYTES * REEF_VOCAB * sizeof(float))

typedef struct lifelong {
    char dir[TEMP_DIR_BYTES];
    char pool[TEMP_DIR_BYTES];
    reef_config config;
    reef_store *store;
    reef_trainer *trainer;
    void (*on_open)(reef_trainer *trainer); // NULL, or what a test changes of every trainer
    char said[LIFELONG_SAID_BYTES];         // events of the trainer, a line each
} lifelong;

/**
 * The pool that `reef init` makes, small: batches of LIFELONG_BATCH bytes, two layers of 36 and
 * later 16 experts, kinds told apart by context memories of the smallest bound.
 */
static inline reef_config lifelong_config(void) {
    reef_config config;
    reef_config_default(&config);
    config.layers = 2;
    config.d_model = 16;
    config.attention_heads = 2;
    config.context = 16;
    config.heads = 2;
    config.topk = 2;
    config.d_key = 8;
    config.side = 6;
    config.learning_rate = 5e-3f;
    config.memory = REEF_MEMORY_BYTES_MIN;
    return config;
}

/**
 * Endless text of a kind, 0 to 4: words of three letters in a random order, from the kind's own
 * alphabet.
 */
static inline void lifelong_text(uint8_t *out, size_t count, int kind, uint32_t seed) {
    static const char *const alphabets[] = {"abcdefgh", "01234567", "QRSTUVWX", "ijklmnop",
                                            "!#$%&()*"};
    uint32_t state = seed * 2654435761u + 1u;
    for (size_t i = 0; i < count; i++) {
        if (i % 4 == 0) state = state * 1664525u + 1013904223u;
        size_t word = state >> 27;
        size_t letter = (word * 3 + i % 4 * (1 + word % 2)) % 8;
        out[i] = i % 4 == 3 ? ' ' : (uint8_t)alphabets[kind][letter];
    }
}

static inline void choose(reef_config *config, const char *name, const char *value) {
    must(reef_config_set(config, name, value, &why));
}

static inline int lifelong_setup(void **state) {
    lifelong *f = room(sizeof(*f));
    f->config = lifelong_config();
    temp_dir_new(f->dir);
    temp_dir_join(f->pool, f->dir, "pool");
    *state = f;
    return 0;
}

static inline void close_trainer(lifelong *f) {
    reef_trainer_close(f->trainer);
    f->trainer = NULL;
}

static inline void close_pool(lifelong *f) {
    close_trainer(f);
    reef_store_close(f->store);
    f->store = NULL;
}

/** Close the pool, and remove it from the disk. */
static inline void remove_pool(lifelong *f) {
    close_pool(f);
    temp_dir_remove(f->pool);
}

/**
 * Write "zz" over the first digits of the first text behind `member`, a hash, in the state of an
 * open generation: by its length alone it is a hash still. With a commit.
 */
static inline void damage_hash_in_state(reef_store *store,
                                        uint32_t generation,
                                        const char *member) {
    reef_view view;
    reef_commit last;
    const reef_key key = {.db = REEF_DB_TENSORS, .generation = generation, .name = "state"};
    reef_txn *txn = pool_begin(store, REEF_TXN_WRITE);
    must(reef_commit_read(txn, &last, &why));
    must(reef_record_view(txn, &key, &view, &why));
    char *text = malloc(view.bytes + 1);
    assert_non_null(text);
    memcpy(text, view.data, view.bytes);
    text[view.bytes] = '\0';
    char *at = strstr(text, member);
    assert_non_null(at);
    at = strchr(at + strlen(member), '"');
    assert_non_null(at);
    assert_int_equal(strspn(at + 1, "0123456789abcdef"), 2 * REEF_HASH_BYTES);
    memcpy(at + 1, "zz", 2);
    must(reef_record_put(txn, &key, REEF_BYTES, text, view.bytes, &why));
    last.step++;
    must(reef_txn_commit(txn, &last, &why));
    free(text);
}

static inline int lifelong_teardown(void **state) {
    lifelong *f = *state;
    close_pool(f);
    temp_dir_remove(f->dir);
    return 0;
}

static inline void lifelong_on_event(void *context, const char *json) {
    lifelong *f = context;
    size_t used = strlen(f->said);
    snprintf(f->said + used, sizeof(f->said) - used, "%s\n", json);
}

static inline size_t times_said(const lifelong *f, const char *words) {
    size_t count = 0;
    for (const char *at = f->said; (at = strstr(at, words)) != NULL; at++) count++;
    return count;
}

static inline void open_pool(lifelong *f, size_t threads) {
    reef_trainer_options options = {
        .threads = threads, .on_event = lifelong_on_event, .context = f};
    f->store = pool_open(f->pool, false, true);
    must(reef_trainer_open(&f->trainer, f->store, &options, &why));
    if (f->on_open != NULL) f->on_open(f->trainer);
}

static inline void open_again(lifelong *f, size_t threads) {
    close_pool(f);
    open_pool(f, threads);
}

static inline void make_pool(lifelong *f, size_t threads) {
    must(reef_pool_init(f->pool, &f->config, &why));
    open_pool(f, threads);
}

/**
 * A pool with which several tests of a program begin. It is made once, and the others get a copy of
 * its last commit. The caller removes it when the tests have ended.
 */
typedef struct lifelong_mould {
    char dir[TEMP_DIR_BYTES]; // "" before it is made
} lifelong_mould;

/** Keep what f has committed as the mould. */
static inline void lifelong_keep(const lifelong *f, lifelong_mould *mould) {
    char pool[TEMP_DIR_BYTES];
    temp_dir_new(mould->dir);
    temp_dir_join(pool, mould->dir, "pool");
    must(reef_store_copy(f->store, pool, NULL, &why));
}

/** Open a copy of the mould as f's pool, which must not be there yet. */
static inline void lifelong_copy(lifelong *f, const lifelong_mould *mould, size_t threads) {
    char pool[TEMP_DIR_BYTES];
    temp_dir_join(pool, mould->dir, "pool");
    reef_store *store = pool_open(pool, false, false);
    must(reef_store_copy(store, f->pool, NULL, &why));
    reef_store_close(store);
    open_pool(f, threads);
}

static inline void lifelong_discard(lifelong_mould *mould) {
    if (mould->dir[0] != '\0') temp_dir_remove(mould->dir);
    mould->dir[0] = '\0';
}

static inline void feed(lifelong *f, const uint8_t *bytes, size_t count) {
    size_t taken;
    must(reef_trainer_feed(f->trainer, "test", bytes, count, &taken, NULL, &why));
    assert_int_equal(taken, count);
}

static inline void feed_kind(lifelong *f, int kind, size_t count, uint32_t seed) {
    uint8_t *bytes = room(count);
    lifelong_text(bytes, count, kind, seed);
    feed(f, bytes, count);
}

static inline reef_commit commit(lifelong *f) {
    reef_commit out;
    must(reef_trainer_commit(f->trainer, &out, &why));
    return out;
}

static inline reef_trainer_status status_of(const lifelong *f) {
    reef_trainer_status status;
    reef_trainer_status_read(f->trainer, &status);
    return status;
}

/** Every checksum, page and root hash of the pool. */
static inline void assert_sound(const lifelong *f) {
    (void)pool_check(f->store);
}

static inline reef_generation_record generation_of(const lifelong *f, uint32_t number) {
    reef_generation_record out;
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_generation_read(txn, number, &out, &why));
    reef_txn_abort(txn);
    return out;
}

static inline void keep_kinds(const reef_kind_list *list) {
    keep(list->kinds);
    keep(list->visits);
}

/** The kinds that there are now; the list lasts to the end of the program. */
static inline reef_kind_list kinds_of(reef_store *store) {
    reef_kind_list list;
    reef_txn *txn = pool_begin(store, REEF_TXN_READ);
    must(reef_kind_list_read(txn, &list, &why));
    reef_txn_abort(txn);
    keep_kinds(&list);
    return list;
}

/** A model of one thread, as of any state; the caller closes it. */
static inline reef_model *model_of(reef_store *store, const char *as_of) {
    reef_model *model = NULL;
    must(reef_model_open(&model, store, as_of, &(reef_model_options){.threads = 1}, &why));
    return model;
}

/** Logits (LIFELONG_PROBE_BYTES, REEF_VOCAB) of a text of one kind, as of any state. */
static inline void logits_of(reef_store *store, const char *as_of, int kind, float *out) {
    uint8_t probe[LIFELONG_PROBE_BYTES];
    reef_model *model = model_of(store, as_of);
    lifelong_text(probe, sizeof(probe), kind, 99);
    must(reef_model_logits(model, probe, sizeof(probe), out, &why));
    reef_model_close(model);
}

/** Where a test needs a kind to begin at a known place: at a seal, or a marker line. */
static inline void give_boundaries(lifelong *f) {
    choose(&f->config, "boundaries", "given");
}

/**
 * A net alone, of a test that is about its losses and gates: kinds begin where the test says so.
 */
static inline void forget_memories(lifelong *f) {
    choose(&f->config, "memory", "0");
    choose(&f->config, "net_share", "1");
    give_boundaries(f);
}

/** The open generation is sealed, and what follows is of another kind. */
static inline void next_kind(lifelong *f) {
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
}

/** A setup: pools of memories alone, which tell kinds apart by contexts. */
static inline int lifelong_setup_kinds(void **state) {
    lifelong_setup(state);
    lifelong *f = *state;
    choose(&f->config, "net_share", "0");
    return 0;
}

/** A test with a directory of its own, in which it makes its pool; and one of memories alone. */
#define LIFELONG_TEST(name) TEST_WITH(name, lifelong_setup, lifelong_teardown, lifelong *f)
#define KINDS_TEST(name) TEST_WITH(name, lifelong_setup_kinds, lifelong_teardown, lifelong *f)

/** What a text of a kind costs as of any state, in bits, its context memories included. */
static inline double bits_as_of(const lifelong *f, const char *as_of, int kind) {
    reef_score score = {0};
    uint8_t probe[LIFELONG_PROBE_BYTES];
    reef_model *model = model_of(f->store, as_of);
    lifelong_text(probe, sizeof(probe), kind, 99);
    must(reef_model_score(model, probe, sizeof(probe), NULL, &score, NULL, NULL, &why));
    reef_model_close(model);
    return score.bits;
}

static inline float *new_logits(void) {
    return room(LIFELONG_LOGIT_BYTES);
}

#endif
