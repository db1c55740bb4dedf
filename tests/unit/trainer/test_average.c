// Averaged weights: what is averaged and stored, and that readers evaluate and sealing keeps it.
#include "boundary.h"
#include "lifelong.h"
#include "optimiser.h"
#include "test.h"
#include "trainer_internal.h"

#include <math.h>

#define LOGIT_BYTES ((size_t)LIFELONG_PROBE_BYTES * REEF_VOCAB * sizeof(float))

static int setup(void **state) {
    lifelong_setup(state);
    lifelong *f = *state;
    forget_memories(f); // what is averaged is the net
    return 0;
}

static reef_generation *gen_of(const lifelong *f) {
    return reef_open_generation(f->trainer);
}

static void seal(lifelong *f) {
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
}

static float *floats(size_t count) {
    float *out = room(count * sizeof(*out));
    return out;
}

// Is everything of `weights` the same as in `averages`?
static bool same(const float *weights, const float *averages, size_t count) {
    return memcmp(weights, averages, count * sizeof(*weights)) == 0;
}

static bool averages_are_the_weights(const reef_generation *generation) {
    bool all = true;
    for (size_t i = 0; i < generation->tensor_count; i++) {
        const reef_tensor *tensor = &generation->tensors[i];
        if (tensor->average != NULL)
            all = all && same(tensor->data, tensor->average, tensor->count);
    }
    for (uint32_t l = 0; l < 2; l++) {
        const reef_expert_table *table = &generation->expert_tables[l];
        all = all &&
              same(table->experts, table->moments.average, table->expert_count * table->row_values);
    }
    return all;
}

// ---- what is averaged ---------------------------------------------------------------------------

// A second record of the averages of the open generation, in double.
typedef struct plain {
    double *values, *rows[2];
    uint32_t *counts[2];
    uint64_t steps;
} plain;

static void plain_init(plain *p, const reef_generation *generation) {
    *p = (plain){.values = calloc(generation->value_count, sizeof(*p->values))};
    assert_non_null(p->values);
    for (size_t i = 0; i < generation->value_count; i++)
        p->values[i] = (double)generation->values[i];
    for (uint32_t l = 0; l < 2; l++) {
        const reef_expert_table *table = &generation->expert_tables[l];
        size_t count = table->expert_count * table->row_values;
        p->rows[l] = calloc(count, sizeof(double));
        p->counts[l] = calloc(table->expert_count, sizeof(uint32_t));
        assert_true(p->rows[l] != NULL && p->counts[l] != NULL);
        for (size_t i = 0; i < count; i++) p->rows[l][i] = (double)table->experts[i];
    }
}

static void plain_release(plain *p) {
    free(p->values);
    for (uint32_t l = 0; l < 2; l++) {
        free(p->rows[l]);
        free(p->counts[l]);
    }
}

static void plain_move(double *average, const float *weights, size_t count, uint64_t updates) {
    double share = fmax((double)REEF_AVERAGE_RATE, 1 / (1 + 0.1 * (double)updates));
    if (updates == 1) share = 1;
    for (size_t i = 0; i < count; i++) average[i] += share * ((double)weights[i] - average[i]);
}

static void plain_step(plain *p, const lifelong *f) {
    const reef_generation *generation = gen_of(f);
    if (f->trainer->generation_step == p->steps) return;
    assert_int_equal(f->trainer->generation_step, ++p->steps);
    plain_move(p->values, generation->values, generation->value_count, p->steps);
    for (uint32_t l = 0; l < 2; l++) {
        const reef_expert_table *table = &generation->expert_tables[l];
        size_t row = table->row_values;
        for (size_t n = 0; n < table->expert_count; n++) {
            if (table->moments.counts[n] == p->counts[l][n]) continue;
            assert_int_equal(table->moments.counts[n], ++p->counts[l][n]);
            plain_move(p->rows[l] + n * row, table->experts + n * row, row, p->counts[l][n]);
        }
    }
}

static void assert_close(const double *expected, const float *average, size_t count) {
    for (size_t i = 0; i < count; i++) assert_true(fabs(expected[i] - (double)average[i]) < 1e-5);
}

#define FIXTURE_TEST(name) TEST_WITH(name, setup, lifelong_teardown, lifelong *f)

FIXTURE_TEST(averages_follow_a_plain_record_of_them) {
    plain p;
    make_pool(f, 2);
    const reef_generation *generation = gen_of(f);
    assert_true(averages_are_the_weights(generation));
    plain_init(&p, generation);
    uint32_t most = 0;
    for (uint32_t i = 0; i < 1250; i++) {
        feed_kind(f, 0, LIFELONG_BATCH, i);
        plain_step(&p, f);
    }
    assert_int_equal(p.steps, 1249);
    for (size_t i = 0; i < generation->tensor_count; i++) {
        const reef_tensor *tensor = &generation->tensors[i];
        bool statistics =
            strstr(tensor->name, "bn_mean") != NULL || strstr(tensor->name, "bn_var") != NULL;
        assert_int_equal(tensor->average == NULL, statistics);
        if (statistics) continue;
        assert_close(p.values + (tensor->data - generation->values), tensor->average,
                     tensor->count);
        assert_false(same(tensor->data, tensor->average, tensor->count));
    }
    for (uint32_t l = 0; l < 2; l++) {
        const reef_expert_table *table = &generation->expert_tables[l];
        assert_close(p.rows[l], table->moments.average, table->expert_count * table->row_values);
        for (size_t n = 0; n < table->expert_count; n++)
            most = p.counts[l][n] > most ? p.counts[l][n] : most;
    }
    assert_true(most > 1000); // from 990 updates on, the rate itself is the share
    plain_release(&p);
}

// ---- what is stored -----------------------------------------------------------------------------

// The payload of a record, copied.
static char *stored(const lifelong *f, const reef_key *key, size_t bytes) {
    char *out = room(bytes);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    reef_status status = reef_record_read(txn, key, out, bytes, &why); // of exactly that size
    reef_txn_abort(txn);
    must(status);
    return out;
}

static void assert_records(const lifelong *f) {
    const reef_generation *generation = gen_of(f);
    const size_t planes = 3; // of moments: those two, and what training moves
    for (size_t i = 0; i < generation->tensor_count; i++) {
        const reef_tensor *tensor = &generation->tensors[i];
        size_t bytes = tensor->count * sizeof(float);
        reef_key key = {.db = REEF_DB_TENSORS, .name = tensor->name};
        char *values = stored(f, &key, bytes);
        assert_memory_equal(values, tensor->average ? tensor->average : tensor->data, bytes);
        if (tensor->adam_m == NULL) continue;
        assert_non_null(tensor->average);
        key.db = REEF_DB_MOMENTS;
        char *moments = stored(f, &key, planes * bytes);
        assert_memory_equal(moments, tensor->adam_m, bytes);
        assert_memory_equal(moments + bytes, tensor->adam_v, bytes);
        assert_memory_equal(moments + 2 * bytes, tensor->data, bytes);
    }
    for (uint32_t l = 0; l < 2; l++) {
        const reef_expert_table *table = &generation->expert_tables[l];
        size_t N = table->expert_count, bytes = N * table->row_values * sizeof(float);
        reef_key key = {.db = REEF_DB_EXPERTS, .layer = l};
        char *rows = stored(f, &key, bytes);
        assert_memory_equal(rows, table->moments.average, bytes);
        key.db = REEF_DB_MOMENTS;
        char *moments = stored(f, &key, planes * bytes + N * sizeof(uint32_t));
        assert_memory_equal(moments, table->moments.adam_m, bytes);
        assert_memory_equal(moments + bytes, table->moments.adam_v, bytes);
        assert_memory_equal(moments + 2 * bytes, table->experts, bytes);
        assert_memory_equal(moments + planes * bytes, table->moments.counts, N * sizeof(uint32_t));
    }
}

FIXTURE_TEST(what_is_stored_are_the_averages) {
    make_pool(f, 2);
    feed_kind(f, 0, 6000, 1);
    commit(f);
    assert_records(f);
}

FIXTURE_TEST(readers_evaluate_the_averages) {
    float *averaged = new_logits(), *raw = new_logits(), *then = new_logits();
    make_pool(f, 1);
    feed_kind(f, 0, 6000, 1);
    commit(f);
    logits_of(f->store, "now", 0, averaged);
    must(reef_trainer_snapshot(f->trainer, "then", NULL, &why));

    // The same with weights in the place of their averages is another model.
    reef_generation *open = gen_of(f);
    reef_generation_average_reset(open);
    for (uint32_t l = 0; l < 2; l++)
        memset(open->expert_tables[l].dirty, 1, open->expert_tables[l].expert_count);
    commit(f);
    logits_of(f->store, "now", 0, raw);
    assert_memory_not_equal(averaged, raw, LOGIT_BYTES);

    // A snapshot holds averages as well, and keeps them.
    feed_kind(f, 1, 2000, 1);
    commit(f);
    logits_of(f->store, "then", 0, then);
    assert_memory_equal(averaged, then, LOGIT_BYTES);
}

// ---- interruptions ------------------------------------------------------------------------------

static void pause_here(lifelong *f, bool reopen, size_t threads) {
    commit(f);
    if (!reopen) return;
    feed_kind(f, 3, 700, 9); // is forgotten
    open_again(f, threads);
}

// A whole life, the open generation grown once on the way; its root.
static reef_commit live(lifelong *f, bool interrupted, size_t threads) {
    make_pool(f, threads);
    feed_kind(f, 0, 3000, 1);
    pause_here(f, interrupted, threads);
    feed_kind(f, 0, 3000, 2);
    seal(f);
    pause_here(f, interrupted, threads);
    feed_kind(f, 1, 2000, 3);
    pause_here(f, interrupted, threads);
    feed_kind(f, 1, 2000, 4);
    must(reef_trainer_grow(f->trainer, 8, &why));
    pause_here(f, interrupted, threads);
    feed_kind(f, 1, 2000, 5);
    seal(f);
    feed_kind(f, 2, 1000, 5);
    return commit(f);
}

FIXTURE_TEST(interruptions_and_threads_leave_no_trace) {
    reef_commit straight = live(f, false, 1);
    for (size_t threads = 1; threads <= 3; threads += 2) {
        void *own = NULL;
        setup(&own);
        lifelong *other = own;
        other->config = f->config;
        assert_memory_equal(live(other, true, threads).root, straight.root, REEF_HASH_BYTES);
        lifelong_teardown(&own);
    }
}

// ---- boundaries ---------------------------------------------------------------------------------

FIXTURE_TEST(sealing_keeps_what_was_evaluated) {
    float *open = new_logits(), *sealed = new_logits();
    const char *const AS_OF[] = {"0", "1"};
    make_pool(f, 2);
    for (int g = 0; g < 2; g++) {
        feed_kind(f, g, 6000, 1);
        commit(f);
        assert_false(averages_are_the_weights(gen_of(f)));
        logits_of(f->store, AS_OF[g], g, open);
        seal(f);
        logits_of(f->store, AS_OF[g], g, sealed);
        assert_memory_equal(open, sealed, LOGIT_BYTES);
        feed_kind(f, g + 1, 2000, 1);
        commit(f);
        logits_of(f->store, AS_OF[g], g, sealed);
        assert_memory_equal(open, sealed, LOGIT_BYTES);
    }
}

FIXTURE_TEST(a_boundary_that_fails_leaves_the_weights_that_train) {
    reef_sealing sealing;
    reef_opening opening = {.reason = "command", .side = 4};
    make_pool(f, 1);
    feed_kind(f, 0, 2000, 1);
    reef_generation *generation = gen_of(f);
    size_t rows =
        generation->expert_tables[1].expert_count * generation->expert_tables[1].row_values;
    float *values = floats(generation->value_count), *experts = floats(rows);
    memcpy(values, generation->values, generation->value_count * sizeof(*values));
    memcpy(experts, generation->expert_tables[1].experts, rows * sizeof(*experts));
    generation->info.generation = REEF_GENERATION_COUNT_MAX - 1; // there can be no further one
    assert_int_equal(reef_growth_boundary(f->trainer, &opening, REEF_F32, &sealing, &why),
                     REEF_ERR_FULL);
    generation->info.generation = 0;
    assert_ptr_equal(gen_of(f), generation);
    assert_true(same(values, generation->values, generation->value_count));
    assert_true(same(experts, generation->expert_tables[1].experts, rows));
    assert_false(averages_are_the_weights(generation));
}

// Averages of a generation begin at its first values.
FIXTURE_TEST(averages_begin_at_the_first_values) {
    make_pool(f, 1);
    feed_kind(f, 0, 4 * LIFELONG_BATCH + 1, 1); // nothing is left for the next generation
    seal(f);
    reef_generation *generation = gen_of(f);
    assert_true(averages_are_the_weights(generation));
    feed_kind(f, 1, LIFELONG_BATCH + 1, 1);
    assert_int_equal(f->trainer->generation_step, 1);
    assert_true(averages_are_the_weights(generation)); // the first update as well
    feed_kind(f, 1, LIFELONG_BATCH, 1);
    assert_false(averages_are_the_weights(generation));
}

FIXTURE_TEST(growth_keeps_averages_and_begins_new_ones) {
    reef_generation *grown = NULL;
    make_pool(f, 1);
    feed_kind(f, 0, 3000, 1);
    const reef_generation *old = gen_of(f);
    must(reef_generation_grow(&grown, old, &f->config, 8, &why));
    for (size_t i = 0; i < grown->tensor_count; i++) {
        const reef_tensor *tensor = &grown->tensors[i], *was = &old->tensors[i];
        if (tensor->average == NULL) continue;
        assert_true(same(tensor->average, was->average, was->count));
        assert_true(same(tensor->average + was->count, tensor->data + was->count,
                         tensor->count - was->count));
    }
    for (uint32_t l = 0; l < 2; l++) {
        const reef_expert_table *table = &grown->expert_tables[l];
        const float *average = table->moments.average;
        size_t kept = 36 * table->row_values, all = 64 * table->row_values;
        assert_true(same(average, old->expert_tables[l].moments.average, kept));
        assert_true(same(average + kept, table->experts + kept, all - kept));
    }
    reef_generation_free(grown);
}

RUN_TESTS
