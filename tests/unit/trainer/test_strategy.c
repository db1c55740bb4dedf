// What each strategy promises, on real pools: what trains and what stands still, what a step reads,
// that penalties have the gradients they say, and that the stream alone decides the bits of all of
// them.
#include "batch.h"
#include "gradcheck.h"
#include "lifelong.h"
#include "step.h"
#include "strategy.h"
#include "trainer_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TASK_BYTES 6400
#define FIRST_KIND "abcdefgh" // letters of lifelong_text's kind 0

static const char *const BASELINES[] = {"finetune", "replay", "ewc",           "lwf",
                                        "joint",    "grid",   "sparse-memory", NULL};

static reef_config tiny_config(void) {
    reef_config config = lifelong_config();
    config.rehearse = 4;
    config.adapters = 16;
    config.sparse_slots = 5;
    return config;
}

static int setup(void **state) {
    lifelong_setup(state);
    lifelong *f = *state;
    f->config = tiny_config();
    return 0;
}

static void make_baseline(lifelong *f, const char *strategy, const char *boundaries) {
    choose(&f->config, "strategy", strategy);
    choose(&f->config, "boundaries", boundaries);
    make_pool(f, 2);
}

static void boundary(lifelong *f) {
    reef_error err;
    ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
}

static reef_generation *gen_of(const lifelong *f) {
    return reef_open_generation(f->trainer);
}

// First task, a boundary, and the pool as it is then.
static void first_task(lifelong *f, const char *strategy) {
    make_baseline(f, strategy, "given");
    feed_kind(f, 0, TASK_BYTES + 1, 1);
    boundary(f);
    assert_int_equal(status_of(f).task, 1);
}

// ---- what stands still --------------------------------------------------------------------------

// Everything that trains, to compare with later: tensors, then the rows of each layer.
typedef struct picture {
    float *values;
    float *rows[REEF_LAYER_COUNT_MAX];
} picture;

static void *copy_of(const void *data, size_t bytes) {
    void *copy = malloc(bytes + 1);
    assert_non_null(copy);
    return memcpy(copy, data, bytes);
}

static picture take(const reef_generation *generation) {
    picture of = {.values = copy_of(generation->values, generation->value_count * sizeof(float))};
    for (uint32_t l = 0; l < 2; l++)
        of.rows[l] = copy_of(generation->expert_tables[l].experts,
                             generation->expert_tables[l].expert_count *
                                 generation->expert_tables[l].row_values * sizeof(float));
    return of;
}

static void drop(picture *of) {
    free(of->values);
    for (uint32_t l = 0; l < 2; l++) free(of->rows[l]);
}

static bool tensor_changed(const picture *before,
                           const reef_generation *generation,
                           const reef_tensor *tensor) {
    return memcmp(before->values + (tensor->data - generation->values), tensor->data,
                  tensor->count * sizeof(float)) != 0;
}

static bool row_changed(const picture *before,
                        const reef_expert_table *table,
                        uint32_t l,
                        size_t n) {
    size_t at = n * table->row_values;
    return memcmp(before->rows[l] + at, table->experts + at, table->row_values * sizeof(float)) !=
           0;
}

static size_t rows_changed(const picture *before, const reef_expert_table *table, uint32_t l) {
    size_t count = 0;
    for (size_t n = 0; n < table->expert_count; n++) count += row_changed(before, table, l, n);
    return count;
}

// ---- finetune, joint ----------------------------------------------------------------------------

static void finetune_changes_every_tensor_and_keeps_one_generation(void **state) {
    lifelong *f = *state;
    f->config.warmup = 20;
    first_task(f, "finetune");
    picture before = take(gen_of(f));
    assert_int_equal(f->trainer->reservoir.young_seen, 0); // rehearsal's sample restarts
    assert_int_equal(f->trainer->drift.count, 0);
    feed_kind(f, 1, 64, 2);
    assert_true(f->trainer->learning_rate < 0.06f * f->config.learning_rate); // warms up again
    feed_kind(f, 1, TASK_BYTES, 3);
    const reef_generation *generation = gen_of(f);
    for (size_t i = 0; i < generation->tensor_count; i++)
        if (!tensor_changed(&before, generation, &generation->tensors[i]))
            fail_msg("%s stood still", generation->tensors[i].name);
    for (uint32_t l = 0; l < 2; l++)
        assert_true(rows_changed(&before, &generation->expert_tables[l], l) >
                    generation->expert_tables[l].expert_count / 2);
    assert_int_equal(f->trainer->network.generation_count, 1);
    drop(&before);
}

// One of two bytes in a row is not a space.
static bool is_of_first_kind(const uint8_t *window) {
    return strchr(FIRST_KIND, window[0]) != NULL || strchr(FIRST_KIND, window[1]) != NULL;
}

static void joint_searches_no_boundary_and_rehearses_the_whole_past(void **state) {
    lifelong *f = *state;
    reef_error err;
    make_baseline(f, "joint", "drift");
    feed_kind(f, 0, 12000, 1);
    size_t old = 0;
    for (int i = 0; i < 20; i++) {
        feed_kind(f, 1, 64, (uint32_t)i);
        for (size_t w = 0; w < f->config.rehearse; w++)
            old += is_of_first_kind(f->trainer->tokens + (f->config.batch + w) * 16);
    }
    assert_true(old > 60); // of 80: nearly all of the past is of the first kind
    feed_kind(f, 1, 12000, 1);
    assert_int_equal(status_of(f).task, 0);
    assert_int_equal(f->trainer->network.generation_count, 1);
    assert_int_equal(reef_trainer_seal(f->trainer, NULL, NULL, &err), REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "joint, which has no boundaries"));
}

static void drift_makes_a_task_where_generations_would_open_one(void **state) {
    lifelong *f = *state;
    make_baseline(f, "finetune", "drift");
    feed_kind(f, 0, 12000, 1);
    feed_kind(f, 1, 6000, 1);
    reef_trainer_status status = status_of(f);
    assert_int_equal(status.task, 1);
    assert_int_equal(status.generation, 0);
    uint64_t at = f->trainer->strategy.task_at;
    assert_true(at >= 12000 - 64 && at <= 12000 + 4 * 64);
    bool told = false;
    for (size_t i = 0; i < f->trainer->event_count; i++)
        told = told || (strstr(f->trainer->events[i], "\"event\": \"boundary\"") != NULL &&
                        strstr(f->trainer->events[i], "\"reason\": \"drift\"") != NULL &&
                        strstr(f->trainer->events[i], "\"task\": 1") != NULL);
    assert_true(told);
}

// Windows of 17 bytes: window w of the stream has kind w % 2, and its last byte is a target alone.
static void cut_windows_end_in_their_own_target(void **state) {
    lifelong *f = *state;
    uint8_t stream[40 * 17 + 1] = {0};
    for (uint32_t w = 0; w < 40; w++) lifelong_text(stream + w * 17, 17, (int)(w % 2), w);
    choose(&f->config, "cut_windows", "true");
    make_baseline(f, "joint", "drift");
    feed(f, stream, 1); // a batch is trained with the byte after it
    for (size_t step = 0; step < 10; step++) {
        const uint8_t *batch = stream + step * 4 * 17;
        feed(f, batch + 1, 4 * 17);
        assert_int_equal(f->trainer->step, step + 1);
        for (size_t w = 0; w < 4; w++) {
            assert_memory_equal(f->trainer->tokens + w * 16, batch + w * 17, 16);
            assert_memory_equal(f->trainer->targets + w * 16, batch + w * 17 + 1, 16);
        }
        // What it rehearses are windows of the stream, too: never of both kinds.
        assert_int_equal(f->trainer->rehearse_windows, step == 0 ? 0 : f->config.rehearse);
        for (size_t w = 4; w < 4 + f->trainer->rehearse_windows; w++) {
            size_t letters = 0;
            for (size_t t = 0; t < 16; t++)
                letters += strchr(FIRST_KIND, f->trainer->targets[w * 16 + t]) != NULL;
            assert_true(letters == 0 || letters >= 8);
        }
    }
    assert_int_equal(f->trainer->stream_bytes, 40 * 17);
}

// ---- replay -------------------------------------------------------------------------------------

// How many of the windows that the last step trained on are of the first kind of text.
static size_t old_windows(const lifelong *f, size_t trained) {
    size_t T = f->config.context, count = 0;
    for (size_t w = 0; w < trained; w++) {
        const uint8_t *window = f->trainer->tokens + w * T;
        size_t letters = 0;
        for (size_t t = 0; t < T; t++) letters += strchr(FIRST_KIND, window[t]) != NULL;
        assert_true(letters == 0 || letters >= T / 2); // no window is of both
        count += letters > 0;
    }
    return count;
}

static void assert_share(lifelong *f, size_t trained, size_t old) {
    first_task(f, "replay");
    feed_kind(f, 1, 64 * 4, 9); // rehearsal has something to draw from
    for (uint32_t i = 0; i < 30; i++) {
        feed_kind(f, 1, 64, i);
        assert_int_equal(f->config.batch + f->trainer->rehearse_windows, trained);
        assert_int_equal(old_windows(f, trained), old);
    }
}

static void replay_takes_rehearsals_windows(void **state) {
    lifelong *f = *state;
    f->config.replay_share = 0.25f;
    assert_share(f, 8, 2);
}

static void replay_adds_windows_where_rehearsal_has_too_few_windows(void **state) {
    lifelong *f = *state;
    f->config.replay_share = 0.75f;
    assert_share(f, 16, 12);
}

// Of the windows of `steps` steps, those of old data; how many were trained is written.
static size_t count_old(lifelong *f, uint32_t steps, size_t *trained) {
    size_t old = 0;
    *trained = 0;
    for (uint32_t i = 0; i < steps; i++) {
        feed_kind(f, 1, 64, i);
        size_t windows = f->config.batch + f->trainer->rehearse_windows;
        old += old_windows(f, windows);
        *trained += windows;
    }
    return old;
}

// Four windows of the stream and one of rehearsal: a share of 0.25 is no whole number of windows.
static void replay_has_its_share_of_trained_windows_over_time(void **state) {
    static const float SHARES[] = {0.1f, 0.25f, 0.3f, 0.5f, 0.77f};
    (void)state;
    for (size_t i = 0; i < sizeof(SHARES) / sizeof(*SHARES); i++) {
        void *own = NULL;
        setup(&own);
        lifelong *f = own;
        f->config.rehearse = 1;
        f->config.replay_share = SHARES[i];
        first_task(f, "replay");
        feed_kind(f, 1, 64 * 4, 9); // rehearsal has something to draw from
        size_t trained, old = count_old(f, 57, &trained);
        double wanted = (double)SHARES[i] * (double)trained;
        if (fabs((double)old - wanted) > 1.0)
            fail_msg("share %g: %zu of %zu windows are old", (double)SHARES[i], old, trained);
        lifelong_teardown(&own);
    }
}

static void replay_of_a_third_task_draws_from_both_before(void **state) {
    lifelong *f = *state;
    f->config.replay_share = 0.5f;
    first_task(f, "replay");
    feed_kind(f, 1, TASK_BYTES, 2);
    boundary(f);
    size_t first = 0, windows = 0;
    for (uint32_t i = 0; i < 40; i++, windows += 4) {
        feed_kind(f, 1, 64, i);
        for (size_t w = 4; w < 8; w++) first += is_of_first_kind(f->trainer->tokens + w * 16);
    }
    assert_true(first > windows / 4 && first < windows * 3 / 4);
}

static double loss_on(lifelong *f, int kind) {
    reef_error err;
    reef_model *model = NULL;
    reef_score score = {0};
    uint8_t probe[LIFELONG_PROBE_BYTES];
    ok(reef_trainer_commit(f->trainer, NULL, &err), &err);
    lifelong_text(probe, sizeof(probe), kind, 99);
    ok(reef_model_open(&model, f->store, NULL, &(reef_model_options){.threads = 1}, &err), &err);
    ok(reef_model_score(model, probe, sizeof(probe), NULL, &score, NULL, NULL, &err), &err);
    reef_model_close(model);
    return score.bits_per_byte;
}

static double forgotten(const char *strategy) {
    void *state = NULL;
    setup(&state);
    lifelong *f = state;
    make_baseline(f, strategy, "drift");
    feed_kind(f, 0, 12000, 1);
    double before = loss_on(f, 0);
    feed_kind(f, 1, 12000, 1);
    double after = loss_on(f, 0);
    assert_int_equal(status_of(f).task, 1);
    lifelong_teardown(&state);
    return after - before;
}

static void finetune_forgets_more_than_replay(void **state) {
    (void)state;
    double finetune = forgotten("finetune"), replay = forgotten("replay");
    if (!(finetune > 1.0 && replay < 0.5 * finetune))
        fail_msg("finetune forgot %.3f bits per byte, replay %.3f", finetune, replay);
}

// ---- elastic weight consolidation ---------------------------------------------------------------

typedef struct penalty {
    size_t count;
    const float *values, *anchor, *fisher;
    double weight;
} penalty;

static double penalty_of(void *context) {
    const penalty *p = context;
    double sum = 0.0;
    for (size_t i = 0; i < p->count; i++) {
        double away = (double)p->values[i] - (double)p->anchor[i];
        sum += 0.5 * p->weight * (double)p->fisher[i] * away * away;
    }
    return sum;
}

// Bring everything to unit scale and away from the anchor.
static void spread(float *values, float *fisher, size_t count) {
    for (size_t i = 0; i < count; i++) {
        values[i] += 0.1f * (float)((int)(i % 7) - 3);
        fisher[i] = 0.5f + 0.1f * (float)(i % 5);
    }
}

static void ewc_penalty_of_dense_tensors_has_the_gradient_it_says(void **state) {
    lifelong *f = *state;
    f->config.ewc_weight = 3.0f;
    first_task(f, "ewc");
    reef_generation *generation = gen_of(f);
    const reef_strategy *strategy = &f->trainer->strategy;
    spread(generation->values, strategy->fisher.values, generation->value_count);
    reef_ewc_pull_dense(f->trainer);
    for (size_t i = 0; i < generation->tensor_count; i++) {
        const reef_tensor *tensor = &generation->tensors[i];
        if (tensor->grad == NULL) continue;
        size_t at = (size_t)(tensor->data - generation->values),
               count = tensor->count < 50 ? tensor->count : 50;
        penalty p = {count, tensor->data, strategy->anchor.values + at,
                     strategy->fisher.values + at, 3.0};
        double error =
            gradcheck_error_max(count, tensor->data, tensor->grad, GRADCHECK_STEP, penalty_of, &p);
        if (!(error < GRADCHECK_LIMIT)) fail_msg("%s: error %g", tensor->name, error);
    }
}

// With beta1 of zero, the first moment is the gradient.
static void ewc_penalty_of_rows_has_the_gradient_it_says(void **state) {
    lifelong *f = *state;
    f->config.ewc_weight = 3.0f;
    first_task(f, "ewc");
    reef_generation *generation = gen_of(f);
    reef_expert_table *table = &generation->expert_tables[1];
    reef_strategy *strategy = &f->trainer->strategy;
    reef_expert_shape shape = reef_generation_expert_shape(&f->config, 1);
    size_t count = table->expert_count * table->row_values;
    spread(table->experts, strategy->fisher.rows[1], count);
    float *values = copy_of(table->experts, count * sizeof(float));
    reef_network_update update = {0};
    reef_ewc_pull_rows(f->trainer, &update);
    uint32_t indices[4] = {3, 5, 3, 30};
    float x[16] = {0}, d_y[16] = {0}, gate[4] = {0}, factors[8] = {0}; // no loss, just the penalty
    reef_expert_pairs *pairs = &f->trainer->acts.pairs;
    reef_expert_pairs_sort(pairs, f->trainer->workers, 1, shape.P, indices, NULL);
    reef_expert_update rows = {.adam = {1e-3f, 0.0f, 0.9f, 1e-8f}, .pull = update.pulls[1]};
    reef_experts_update(f->trainer->workers, &shape, table->experts, &table->moments, pairs, x, d_y,
                        gate, factors, &rows);
    for (size_t i = 0; i < 3; i++) {
        size_t at = (size_t)((uint32_t[]){3, 5, 30}[i]) * table->row_values;
        penalty p = {table->row_values, values + at, strategy->anchor.rows[1] + at,
                     strategy->fisher.rows[1] + at, 3.0};
        assert_true(gradcheck_error_max(table->row_values, values + at, table->moments.adam_m + at,
                                        GRADCHECK_STEP, penalty_of, &p) < GRADCHECK_LIMIT);
    }
    // A row that the step does not meet stays where it is.
    assert_memory_equal(values + 4 * table->row_values, table->experts + 4 * table->row_values,
                        table->row_values * sizeof(float));
    free(values);
}

// ---- the Fisher information ----

// One parameter, and the mean over sampled windows of its squared derivative by differences.
typedef struct slope {
    float *value;
    double sum;
} slope;

static slope asked; // visits have no context

static double window_loss(reef_trainer *trainer) {
    reef_error err;
    reef_batch batch = {.windows = 1,
                        .tokens = trainer->tokens,
                        .targets = trainer->targets,
                        .fire = trainer->fire};
    ok(reef_network_forward(&trainer->acts, &trainer->network, trainer->workers, &batch,
                            REEF_PASS_TRAIN, &err),
       &err);
    double sum = 0.0;
    for (size_t t = 0; t < trainer->network.config.context; t++) sum += trainer->acts.loss[t];
    return sum / (double)trainer->network.config.context;
}

static reef_status add_slope(reef_trainer *trainer, reef_error *err) {
    (void)err;
    const float middle = *asked.value;
    volatile float above = middle + 4e-3f, below = middle - 4e-3f;
    *asked.value = above;
    double loss_above = window_loss(trainer);
    *asked.value = below;
    double loss_below = window_loss(trainer);
    *asked.value = middle;
    double derivative = (loss_above - loss_below) / ((double)above - (double)below);
    asked.sum += derivative * derivative;
    return REEF_OK;
}

static void assert_fisher(lifelong *f, float *value, float fisher) {
    reef_error err;
    size_t count;
    asked = (slope){.value = value};
    ok(reef_strategy_sample(f->trainer, 256, add_slope, &count, &err), &err);
    assert_true(count > 50);
    double mean = asked.sum / (double)count;
    if (!(fabs(mean - (double)fisher) < 0.05 * mean))
        fail_msg("mean squared slope %g, Fisher information %g", mean, (double)fisher);
}

static size_t largest(const float *values, size_t count) {
    size_t best = 0;
    for (size_t i = 0; i < count; i++)
        if (values[i] > values[best]) best = i;
    return best;
}

// Of parameters behind the last choice of experts only: if another expert is chosen, differences of
// the loss are not a slope.
static void ewc_fisher_is_the_mean_squared_slope_of_windows(void **state) {
    lifelong *f = *state;
    first_task(f, "ewc");
    reef_generation *generation = gen_of(f);
    const char *const names[] = {"head", "norm_scale", "norm_shift"};
    for (size_t i = 0; i < 3; i++) {
        const reef_tensor *tensor = reef_generation_find(generation, names[i]);
        const float *fisher =
            f->trainer->strategy.fisher.values + (tensor->data - generation->values);
        size_t at = largest(fisher, tensor->count);
        assert_fisher(f, tensor->data + at, fisher[at]);
    }
    const float *fisher = f->trainer->strategy.fisher.rows[1];
    size_t at = largest(fisher, generation->expert_tables[1].expert_count *
                                    generation->expert_tables[1].row_values);
    assert_fisher(f, generation->expert_tables[1].experts + at, fisher[at]);
}

// How far the parameters went in the second task, in the metric of the first one's Fisher
// information.
static double distance(float weight) {
    void *state = NULL;
    setup(&state);
    lifelong *f = state;
    f->config.ewc_weight = weight;
    first_task(f, "ewc");
    feed_kind(f, 1, TASK_BYTES, 2);
    const reef_generation *generation = gen_of(f);
    const reef_strategy *strategy = &f->trainer->strategy;
    penalty dense = {generation->value_count, generation->values, strategy->anchor.values,
                     strategy->fisher.values, 1.0};
    double sum = penalty_of(&dense);
    for (uint32_t l = 0; l < 2; l++) {
        const reef_expert_table *table = &generation->expert_tables[l];
        penalty rows = {table->expert_count * table->row_values, table->experts,
                        strategy->anchor.rows[l], strategy->fisher.rows[l], 1.0};
        sum += penalty_of(&rows);
    }
    lifelong_teardown(&state);
    return sum;
}

static void ewc_of_a_large_weight_keeps_what_mattered(void **state) {
    (void)state;
    double loose = distance(0.0f), tight = distance(1e7f);
    if (!(loose > 0.0 && tight < 0.05 * loose))
        fail_msg("distance %g without the penalty, %g with it", loose, tight);
}

// ---- learning without forgetting ----------------------------------------------------------------

enum { V = 11 };

typedef struct distilled {
    float student[V], teacher[V];
    float temperature;
} distilled;

static double plain_divergence(void *context) {
    const distilled *d = context;
    double p[V], q[V], sum_p = 0.0, sum_q = 0.0, loss = 0.0;
    for (size_t v = 0; v < V; v++) {
        sum_p += p[v] = exp((double)d->teacher[v] / (double)d->temperature);
        sum_q += q[v] = exp((double)d->student[v] / (double)d->temperature);
    }
    for (size_t v = 0; v < V; v++) loss += p[v] / sum_p * log(p[v] / sum_p / (q[v] / sum_q));
    return 5.0 * loss;
}

static void distillation_agrees_with_finite_differences(void **state) {
    (void)state;
    const float temperatures[] = {0.5f, 1.0f, 3.0f};
    for (size_t i = 0; i < 3; i++) {
        distilled d = {.temperature = temperatures[i]};
        float gradient[V] = {0};
        for (size_t v = 0; v < V; v++) {
            d.student[v] = sinf((float)v * 1.7f);
            d.teacher[v] = cosf((float)v * 0.9f);
        }
        double loss = reef_distill(V, gradient, d.student, d.teacher, d.temperature, 5.0f);
        assert_true(fabs(5.0 * loss - plain_divergence(&d)) < 1e-9);
        assert_true(gradcheck_error_max(V, d.student, gradient, GRADCHECK_STEP, plain_divergence,
                                        &d) < GRADCHECK_LIMIT);
        assert_true(fabs(reef_distill(V, NULL, d.teacher, d.teacher, 2.0f, 1.0f)) < 1e-12);
    }
}

// Cross-entropy plus distillation of one token.
typedef struct token_loss {
    const float *student, *teacher;
    uint8_t target;
    const reef_config *config;
} token_loss;

static double loss_of_token(void *context) {
    const token_loss *of = context;
    double top = -INFINITY, sum = 0.0;
    for (size_t v = 0; v < REEF_VOCAB; v++) top = fmax(top, (double)of->student[v]);
    for (size_t v = 0; v < REEF_VOCAB; v++) sum += exp((double)of->student[v] - top);
    double entropy = top + log(sum) - (double)of->student[of->target];
    return entropy +
           (double)of->config->lwf_weight * reef_distill(REEF_VOCAB, NULL, of->student, of->teacher,
                                                         of->config->lwf_temperature, 1.0f);
}

static void lwf_gradient_of_a_step_is_that_of_both_losses(void **state) {
    lifelong *f = *state;
    reef_error err;
    uint8_t text[65];
    double bits;
    f->config.lwf_weight = 2.0f;
    first_task(f, "lwf");
    feed_kind(f, 1, 1280, 2); // so that teacher and student differ
    lifelong_text(text, sizeof(text), 1, 5);
    reef_trainer *trainer = f->trainer;
    ok(reef_step_forward(trainer, text, &trainer->ahead, &bits, &err), &err);
    float *gradient = copy_of(trainer->acts.logits, 4 * 16 * REEF_VOCAB * sizeof(float));
    reef_batch batch = {.windows = f->config.batch + trainer->rehearse_windows,
                        .tokens = trainer->tokens,
                        .targets = trainer->targets,
                        .fire = trainer->fire};
    ok(reef_network_forward(&trainer->acts, &trainer->network, trainer->workers, &batch,
                            REEF_PASS_TRAIN, &err),
       &err); // no weights: the logits stay
    double rows = 16.0 * (double)batch.windows, apart = 0.0;
    for (size_t t = 3; t < 64; t += 13) {
        float *student = trainer->acts.logits + t * REEF_VOCAB;
        const float *teacher = trainer->strategy.listened.logits + t * REEF_VOCAB;
        token_loss of = {student, teacher, trainer->targets[t], &f->config};
        for (size_t v = 0; v < REEF_VOCAB; v++) {
            gradient[t * REEF_VOCAB + v] *= (float)rows;
            apart = fmax(apart, fabs((double)(student[v] - teacher[v])));
        }
        assert_true(gradcheck_error_max(REEF_VOCAB, student, gradient + t * REEF_VOCAB,
                                        GRADCHECK_STEP, loss_of_token, &of) < GRADCHECK_LIMIT);
    }
    assert_true(apart > 0.1);
    free(gradient);
}

static void lwf_teacher_is_the_model_of_the_boundary_for_ever(void **state) {
    lifelong *f = *state;
    reef_error err;
    uint8_t text[17];
    float logits[17 * REEF_VOCAB];
    first_task(f, "lwf");
    ok(reef_trainer_snapshot(f->trainer, "then", NULL, &err), &err);
    picture before = take(f->trainer->strategy.teacher);
    feed_kind(f, 1, TASK_BYTES, 2);
    ok(reef_trainer_commit(f->trainer, NULL, &err), &err);
    close_pool(f);
    open_pool(f, 1);
    const reef_generation *teacher = f->trainer->strategy.teacher;
    assert_memory_equal(before.values, teacher->values, teacher->value_count * sizeof(float));
    for (uint32_t l = 0; l < 2; l++)
        assert_int_equal(rows_changed(&before, &teacher->expert_tables[l], l), 0);
    // What it says is what evaluation as of the boundary says.
    lifelong_text(text, sizeof(text), 0, 7);
    reef_model *model = NULL;
    ok(reef_model_open(&model, f->store, "then", &(reef_model_options){.threads = 1}, &err), &err);
    ok(reef_model_logits(model, text, sizeof(text), logits, &err), &err);
    reef_model_close(model);
    reef_network network = {
        .config = f->config, .generation_count = 1, .generations = &f->trainer->strategy.teacher};
    reef_batch batch = {.windows = 1, .tokens = text, .fire = f->trainer->fire};
    ok(reef_network_forward(&f->trainer->strategy.listened, &network, f->trainer->workers, &batch,
                            REEF_PASS_EVALUATE, &err),
       &err);
    assert_memory_equal(logits, f->trainer->strategy.listened.logits,
                        16 * REEF_VOCAB * sizeof(float));
    drop(&before);
}

// ---- sparse memory finetuning -------------------------------------------------------------------

static reef_status count_plainly(reef_trainer *trainer, reef_error *err);
static uint32_t plain_background[2][36];

// Is expert n among the choices of window 0 in layer l?
static bool is_chosen(const reef_trainer *trainer, uint32_t l, uint32_t n, size_t windows) {
    size_t pairs = windows * trainer->network.config.context * 4;
    for (size_t i = 0; i < pairs; i++)
        if (trainer->acts.expert_tables[0][l].tape.indices[i] == n) return true;
    return false;
}

static reef_status count_plainly(reef_trainer *trainer, reef_error *err) {
    reef_batch batch = {.windows = 1, .tokens = trainer->tokens, .fire = trainer->fire};
    reef_status status = reef_network_forward(&trainer->acts, &trainer->network, trainer->workers,
                                              &batch, REEF_PASS_EVALUATE, err);
    for (uint32_t l = 0; l < 2; l++)
        for (uint32_t n = 0; n < 36; n++) plain_background[l][n] += is_chosen(trainer, l, n, 1);
    return status;
}

static double plain_score(
    const reef_trainer *trainer, uint32_t l, uint32_t n, size_t windows, size_t background) {
    size_t uses = 0, pairs = windows * trainer->network.config.context * 4;
    for (size_t i = 0; i < pairs; i++)
        uses += trainer->acts.expert_tables[0][l].tape.indices[i] == n;
    return (double)uses * log(((double)background + 1.0) / ((double)plain_background[l][n] + 1.0));
}

// The rows that a step must have changed: again and again the best that is left.
static void assert_best_changed(lifelong *f, const picture *before, size_t background) {
    const reef_trainer *trainer = f->trainer;
    size_t windows = f->config.batch + trainer->rehearse_windows;
    for (uint32_t l = 0; l < 2; l++) {
        const reef_expert_table *table = &gen_of(f)->expert_tables[l];
        bool taken[36] = {false};
        assert_int_equal(rows_changed(before, table, l), f->config.sparse_slots);
        for (size_t slot = 0; slot < f->config.sparse_slots; slot++) {
            uint32_t best = UINT32_MAX;
            double score = -INFINITY;
            for (uint32_t n = 0; n < 36; n++) {
                if (taken[n] || table->flags[n] || !is_chosen(trainer, l, n, windows)) continue;
                double mine = plain_score(trainer, l, n, windows, background);
                if (mine > score) best = n, score = mine;
            }
            assert_true(best != UINT32_MAX);
            taken[best] = true;
            if (!row_changed(before, table, l, best))
                fail_msg("layer %u: expert %u is the best that is left, but stood still", l, best);
        }
    }
}

static void sparse_memory_changes_the_rows_that_tf_idf_names(void **state) {
    lifelong *f = *state;
    reef_error err;
    size_t background;
    uint64_t changed;
    first_task(f, "sparse-memory");
    memset(plain_background, 0, sizeof(plain_background));
    ok(reef_strategy_sample(f->trainer, 512, count_plainly, &background, &err), &err);
    assert_int_equal(background, f->trainer->strategy.background_windows);
    for (uint32_t l = 0; l < 2; l++)
        assert_memory_equal(plain_background[l], f->trainer->strategy.background[l],
                            sizeof(plain_background[l]));
    picture start = take(gen_of(f));
    for (uint32_t i = 0; i < 12; i++) {
        // From the middle on some experts are frozen by hand as well.
        reef_freeze freeze = {.layer = -1, .first = 0, .last = 11};
        if (i == 6) ok(reef_trainer_freeze(f->trainer, &freeze, &changed, &err), &err);
        picture before = take(gen_of(f));
        feed_kind(f, 1, 64, i);
        assert_best_changed(f, &before, background);
        drop(&before);
    }
    const reef_generation *generation = gen_of(f);
    assert_memory_equal(start.values, generation->values, generation->value_count * sizeof(float));
    drop(&start);
}

static void sparse_memory_trains_everything_in_its_first_task(void **state) {
    lifelong *f = *state;
    make_baseline(f, "sparse-memory", "given");
    feed_kind(f, 0, 641, 1);
    picture before = take(gen_of(f));
    feed_kind(f, 0, 64, 2);
    const reef_generation *generation = gen_of(f);
    assert_true(tensor_changed(&before, generation, reef_generation_find(generation, "head")));
    assert_true(
        tensor_changed(&before, generation, reef_generation_find(generation, "block0.bn_mean")));
    assert_true(rows_changed(&before, &generation->expert_tables[0], 0) > f->config.sparse_slots);
    drop(&before);
}

// ---- grid ---------------------------------------------------------------------------------------

static void grid_adds_as_many_experts_as_a_generation_would(void **state) {
    (void)state;
    assert_int_equal(reef_grid_side(24, 24), 34); // 34^2 - 24^2 = 580 >= 576 > 33^2 - 24^2
    assert_int_equal(reef_grid_side(3, 4), 5);    // exactly
    assert_int_equal(reef_grid_side(64, 1), 65);  // at least one
    assert_int_equal(reef_grid_side(65535, 3), 65536);
}

static void grid_trains_new_rows_and_sub_keys_only(void **state) {
    lifelong *f = *state;
    first_task(f, "grid");
    const reef_generation *generation = gen_of(f);
    assert_int_equal(generation->info.side, 8); // 6 * 6 + 4 * 4 = 52 <= 64
    picture before = take(generation);
    feed_kind(f, 1, TASK_BYTES, 2);
    for (size_t i = 0; i < generation->tensor_count; i++) {
        const reef_tensor *tensor = &generation->tensors[i];
        const float *old = before.values + (tensor->data - generation->values);
        size_t kept = strstr(tensor->name, "sub_keys") != NULL ? 6 * 4 : tensor->count;
        assert_memory_equal(old, tensor->data, kept * sizeof(float));
        for (size_t v = kept; v < tensor->count; v++) assert_true(old[v] != tensor->data[v]);
    }
    for (uint32_t l = 0; l < 2; l++) {
        const reef_expert_table *table = &generation->expert_tables[l];
        for (size_t n = 0; n < 36; n++) assert_false(row_changed(&before, table, l, n));
        assert_true(rows_changed(&before, table, l) > 14); // of 28
    }
    drop(&before);
    boundary(f); // what was new is old now
    before = take(gen_of(f));
    feed_kind(f, 0, TASK_BYTES, 4);
    for (size_t n = 0; n < 64; n++)
        assert_false(row_changed(&before, &gen_of(f)->expert_tables[0], 0, n));
    assert_true(rows_changed(&before, &gen_of(f)->expert_tables[0], 0) > 0);
    drop(&before);
}

static void grid_that_cannot_grow_says_so(void **state) {
    lifelong *f = *state;
    reef_error err;
    make_baseline(f, "grid", "given");
    feed_kind(f, 0, 641, 1);
    f->trainer->network.config.side_new = REEF_SIDE_MAX;
    assert_int_equal(reef_trainer_seal(f->trainer, NULL, NULL, &err), REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "more than the"));
    assert_int_equal(status_of(f).task, 0);
}

static void grid_keeps_within_the_bound_on_experts(void **state) {
    lifelong *f = *state;
    reef_error err;
    f->config.experts_max = 2 * 50; // 36 + 16 are too many in each layer, 36 + 4 are 49
    first_task(f, "grid");
    assert_int_equal(gen_of(f)->info.side, 7);
    feed_kind(f, 1, TASK_BYTES, 2);
    assert_int_equal(reef_trainer_seal(f->trainer, NULL, NULL, &err), REEF_ERR_FULL);
    assert_non_null(strstr(err.message, "experts_max 100"));
    assert_int_equal(status_of(f).task, 1);
    assert_int_equal(status_of(f).experts, 2 * 49);
}

static void grid_goes_on_training_where_its_policy_finds_no_room(void **state) {
    lifelong *f = *state;
    f->config.experts_max = 2 * 36;
    f->config.boundary_bytes = 1280;
    make_baseline(f, "grid", "budget");
    feed_kind(f, 0, 6401, 1);
    assert_int_equal(status_of(f).task, 0);
    assert_int_equal(status_of(f).experts, 2 * 36);
    assert_int_equal(status_of(f).stream_bytes, 6400);
    assert_true(f->trainer->full);
}

// ---- all of them --------------------------------------------------------------------------------

static void baselines_that_add_no_experts_have_boundaries_in_a_full_pool(void **state) {
    (void)state;
    for (size_t i = 0; BASELINES[i] != NULL; i++) {
        void *own = NULL;
        if (strcmp(BASELINES[i], "joint") == 0 || strcmp(BASELINES[i], "grid") == 0) continue;
        setup(&own);
        lifelong *f = own;
        f->config.experts_max = 2 * 36;
        first_task(f, BASELINES[i]);
        lifelong_teardown(&own);
    }
}

// The root after a stream with a change, fed in cuts of `cut` bytes, committed every third one, and
// with `reopen` thrown away after every other commit and taken up from the pool.
static uint32_t root_of_run(
    const char *strategy, size_t threads, size_t cut, bool reopen, uint8_t root[REEF_HASH_BYTES]) {
    enum { BEFORE = 6000, AFTER = 4000, COUNT = BEFORE + AFTER };
    static uint8_t bytes[COUNT];
    void *state = NULL;
    reef_error err;
    reef_commit commit;
    setup(&state);
    lifelong *f = state;
    make_baseline(f, strategy, "drift");
    close_pool(f);
    open_pool(f, threads);
    lifelong_text(bytes, BEFORE, 0, 1);
    lifelong_text(bytes + BEFORE, AFTER, 1, 1);
    size_t at = 0;
    for (size_t calls = 1; at < COUNT; calls++) {
        size_t count = COUNT - at < cut ? COUNT - at : cut;
        feed(f, bytes + at, count);
        at += count;
        if (calls % 3 != 0 && at < COUNT) continue;
        ok(reef_trainer_commit(f->trainer, &commit, &err), &err);
        if (!reopen || calls % 6 != 0 || at == COUNT) continue;
        feed(f, bytes + at, COUNT - at < 500 ? COUNT - at : 500); // lost again
        close_pool(f);
        open_pool(f, threads);
        assert_int_equal(reef_trainer_cursor(f->trainer, "test"), at);
    }
    memcpy(root, commit.root, REEF_HASH_BYTES);
    uint32_t tasks = status_of(f).task;
    lifelong_teardown(&state);
    return tasks;
}

static void the_stream_alone_decides_the_bits_of_every_strategy(void **state) {
    (void)state;
    uint8_t roots[sizeof(BASELINES) / sizeof(*BASELINES)][REEF_HASH_BYTES];
    for (size_t i = 0; BASELINES[i] != NULL; i++) {
        uint8_t interrupted[REEF_HASH_BYTES];
        uint32_t tasks = root_of_run(BASELINES[i], 1, 16000, false, roots[i]);
        assert_int_equal(tasks, strcmp(BASELINES[i], "joint") == 0 ? 0 : 1);
        assert_int_equal(root_of_run(BASELINES[i], 3, 777, true, interrupted), tasks);
        if (memcmp(roots[i], interrupted, REEF_HASH_BYTES) != 0)
            fail_msg("%s: another root with other threads, cuts and restarts", BASELINES[i]);
        // Strategies that do not differ would make all of this worth nothing.
        for (size_t j = 0; j < i; j++) assert_memory_not_equal(roots[i], roots[j], REEF_HASH_BYTES);
    }
}

static void snapshots_of_every_strategy_stay_what_they_were(void **state) {
    (void)state;
    const size_t bytes = LIFELONG_PROBE_BYTES * REEF_VOCAB * sizeof(float);
    float *then = malloc(bytes), *later = malloc(bytes);
    for (size_t i = 0; BASELINES[i] != NULL; i++) {
        reef_error err;
        void *own = NULL;
        setup(&own);
        lifelong *f = own;
        if (strcmp(BASELINES[i], "joint") == 0)
            make_baseline(f, "joint", "given");
        else
            first_task(f, BASELINES[i]);
        feed_kind(f, 1, 1280, 2);
        ok(reef_trainer_snapshot(f->trainer, "then", NULL, &err), &err);
        logits_of(f->store, "now", 0, then);
        feed_kind(f, 1, 2560, 3);
        ok(reef_trainer_commit(f->trainer, NULL, &err), &err);
        logits_of(f->store, "then", 0, later);
        assert_memory_equal(then, later, bytes);
        logits_of(f->store, "now", 0, later);
        assert_memory_not_equal(then, later, bytes);
        lifelong_teardown(&own);
    }
    free(then);
    free(later);
}

static void what_keeps_the_models_size_refuses_to_grow(void **state) {
    lifelong *f = *state;
    reef_error err;
    make_baseline(f, "lwf", "given");
    assert_int_equal(reef_trainer_grow(f->trainer, 8, &err), REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "the pool's strategy is lwf"));
    assert_non_null(strstr(err.message, "can grow"));
}

static void windows_that_a_strategy_cannot_read_are_refused(void **state) {
    (void)state;
    reef_error err;
    const char *const readers[] = {"replay", "ewc", "sparse-memory"};
    for (size_t i = 0; i < 3; i++) {
        reef_config config = tiny_config();
        ok(reef_config_set(&config, "strategy", readers[i], &err), &err);
        config.batch = 1;
        assert_int_equal(reef_config_check(&config, &err), REEF_ERR_INVALID);
        assert_non_null(strstr(err.message, readers[i]));
        assert_non_null(strstr(err.message, "batch to 2 or more"));
        config.batch = 2;
        ok(reef_config_check(&config, &err), &err);
    }
}

#define STRATEGY_TEST(test) cmocka_unit_test_setup_teardown(test, setup, lifelong_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        STRATEGY_TEST(finetune_changes_every_tensor_and_keeps_one_generation),
        STRATEGY_TEST(joint_searches_no_boundary_and_rehearses_the_whole_past),
        STRATEGY_TEST(cut_windows_end_in_their_own_target),
        STRATEGY_TEST(drift_makes_a_task_where_generations_would_open_one),
        STRATEGY_TEST(replay_takes_rehearsals_windows),
        cmocka_unit_test(replay_has_its_share_of_trained_windows_over_time),
        STRATEGY_TEST(replay_adds_windows_where_rehearsal_has_too_few_windows),
        STRATEGY_TEST(replay_of_a_third_task_draws_from_both_before),
        cmocka_unit_test(finetune_forgets_more_than_replay),
        STRATEGY_TEST(ewc_penalty_of_dense_tensors_has_the_gradient_it_says),
        STRATEGY_TEST(ewc_penalty_of_rows_has_the_gradient_it_says),
        STRATEGY_TEST(ewc_fisher_is_the_mean_squared_slope_of_windows),
        cmocka_unit_test(ewc_of_a_large_weight_keeps_what_mattered),
        cmocka_unit_test(distillation_agrees_with_finite_differences),
        STRATEGY_TEST(lwf_gradient_of_a_step_is_that_of_both_losses),
        STRATEGY_TEST(lwf_teacher_is_the_model_of_the_boundary_for_ever),
        STRATEGY_TEST(sparse_memory_changes_the_rows_that_tf_idf_names),
        STRATEGY_TEST(sparse_memory_trains_everything_in_its_first_task),
        cmocka_unit_test(grid_adds_as_many_experts_as_a_generation_would),
        STRATEGY_TEST(grid_trains_new_rows_and_sub_keys_only),
        STRATEGY_TEST(grid_that_cannot_grow_says_so),
        STRATEGY_TEST(grid_keeps_within_the_bound_on_experts),
        STRATEGY_TEST(grid_goes_on_training_where_its_policy_finds_no_room),
        cmocka_unit_test(baselines_that_add_no_experts_have_boundaries_in_a_full_pool),
        cmocka_unit_test(the_stream_alone_decides_the_bits_of_every_strategy),
        cmocka_unit_test(snapshots_of_every_strategy_stay_what_they_were),
        STRATEGY_TEST(what_keeps_the_models_size_refuses_to_grow),
        cmocka_unit_test(windows_that_a_strategy_cannot_read_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
