// The promises of the lifelong loop, on real pools: as-of is exact to the bit for ever, the stream alone
// decides the bits (not threads, cuts, commits or restarts), boundaries are found, a domain that comes
// back is recognised, frozen experts stand still.
#include "learner.h"
#include "lifelong.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *program; // this test, to be run again as another process

static reef_config tiny_config(void) {
    reef_config config = lifelong_config();
    config.gate_decay = 0.9f;
    return config;
}

static int setup(void **state) {
    lifelong_setup(state);
    lifelong *f = *state;
    f->config = tiny_config();
    return 0;
}

#define LOGIT_BYTES (LIFELONG_PROBE_BYTES * REEF_VOCAB * sizeof(float))

// Another process: open the pool, write the logits as of a generation to a file.
static int write_logits(const char *pool, const char *as_of, const char *kind, const char *path) {
    reef_error err;
    reef_store *store = NULL;
    float *logits = calloc(LIFELONG_PROBE_BYTES * REEF_VOCAB, sizeof *logits);
    if (reef_store_open(&store, pool, &(reef_store_options){0}, &err) != REEF_OK) return 1;
    logits_of(store, as_of, atoi(kind), logits);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(logits, 1, LOGIT_BYTES, file) != LOGIT_BYTES || fclose(file) != 0)
        return 1;
    reef_store_close(store);
    free(logits);
    return 0;
}

static void logits_in_new_process(const lifelong *f, const char *as_of, int kind, float *out) {
    char path[TEMP_DIR_BYTES], kind_text[8];
    temp_dir_join(path, f->dir, "logits");
    snprintf(kind_text, sizeof kind_text, "%d", kind);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        execl(program, program, "logits", f->pool, as_of, kind_text, path, (char *)NULL);
        _exit(127);
    }
    int result;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result) && WEXITSTATUS(result) == 0);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(out, 1, LOGIT_BYTES, file), LOGIT_BYTES);
    fclose(file);
}

static void as_of_is_bit_identical_for_ever(void **state) {
    lifelong *f = *state;
    reef_error err;
    float *sealed[2] = {new_logits(), new_logits()}, *later = new_logits();
    make_pool(f, 2);
    for (int g = 0; g < 2; g++) {
        feed_kind(f, g, 12000, 1);
        ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
        logits_of(f->store, g == 0 ? "0" : "1", g, sealed[g]);
    }
    feed_kind(f, 2, 12000, 1);
    commit(f);
    close_pool(f);
    logits_in_new_process(f, "0", 0, later);
    assert_memory_equal(sealed[0], later, LOGIT_BYTES);
    logits_in_new_process(f, "1", 1, later);
    assert_memory_equal(sealed[1], later, LOGIT_BYTES);
    logits_in_new_process(f, "now", 2, later);
    logits_in_new_process(f, "0", 2, sealed[0]);
    assert_memory_not_equal(sealed[0], later, LOGIT_BYTES); // something was learned in between
    free(sealed[0]);
    free(sealed[1]);
    free(later);
}

static void todays_output_is_the_old_one_where_no_newer_gate_fires(void **state) {
    lifelong *f = *state;
    reef_error err;
    float *before = new_logits(), *now = new_logits();
    make_pool(f, 1);
    feed_kind(f, 0, 12000, 1);
    ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
    logits_of(f->store, "0", 0, before);
    feed_kind(f, 1, 12000, 1);
    commit(f);
    logits_of(f->store, "now", 0, now);
    assert_memory_equal(before, now, LOGIT_BYTES);
    logits_of(f->store, "0", 1, before);
    logits_of(f->store, "now", 1, now);
    assert_memory_not_equal(before, now, LOGIT_BYTES);
    free(before);
    free(now);
}

// The root after a stream with two changes, fed in cuts of `cut` bytes, committed every `every` cuts,
// and with `reopen` thrown away after every third commit and taken up from the pool.
static void root_of_run(const reef_config *config,
                        size_t threads,
                        size_t cut,
                        size_t every,
                        bool reopen,
                        uint8_t root[REEF_HASH_BYTES]) {
    void *state = NULL;
    setup(&state);
    lifelong *f = state;
    f->config = *config;
    enum { PART = 9000, TOTAL = 3 * PART };
    uint8_t *stream = malloc(TOTAL);
    for (int kind = 0; kind < 3; kind++) lifelong_text(stream + kind * PART, PART, kind, 7);
    f->config.gate_decay = 0.995f; // longer than the start of a stream weighs
    make_pool(f, threads);
    reef_commit last;
    size_t cuts = 0, commits = 0;
    for (size_t at = 0; at < TOTAL;) {
        size_t count = TOTAL - at < cut ? TOTAL - at : cut;
        feed(f, stream + at, count);
        at += count;
        if (++cuts % every != 0) continue;
        last = commit(f);
        if (!reopen || ++commits % 3 != 0) continue;
        if (at < TOTAL) feed(f, stream + at, 1); // lost with the process: not committed
        close_pool(f);
        open_pool(f, threads);
        assert_int_equal(reef_trainer_cursor(f->trainer, "test"), at);
        reef_commit again; // what was read back is what was written
        again = commit(f);
        assert_memory_equal(last.root, again.root, REEF_HASH_BYTES);
    }
    last = commit(f);
    assert_int_equal(status_of(f).generation, 2); // the boundaries were found
    memcpy(root, last.root, REEF_HASH_BYTES);
    free(stream);
    lifelong_teardown(&state);
}

static void assert_the_stream_decides(const reef_config *config) {
    uint8_t expected[REEF_HASH_BYTES], root[REEF_HASH_BYTES];
    root_of_run(config, 1, 27000, 1, false, expected);
    root_of_run(config, 2, 27000, 1, false, root); // threads
    assert_memory_equal(expected, root, sizeof root);
    root_of_run(config, 3, 997, 5, false, root); // cuts and commits
    assert_memory_equal(expected, root, sizeof root);
    root_of_run(config, 8, 313, 3, true, root); // restarts
    assert_memory_equal(expected, root, sizeof root);
}

static void the_stream_alone_decides_the_bits(void **state) {
    (void)state;
    reef_config config = tiny_config();
    assert_the_stream_decides(&config);
}

static void it_does_for_gated_experts_that_are_rounded_too(void **state) {
    (void)state;
    reef_config config = tiny_config();
    choose(&config, "expert", "glu");
    choose(&config, "score", "sigmoid");
    choose(&config, "seal_dtype", "bf16");
    assert_the_stream_decides(&config);
}

static void every_kind_and_score_learns(void **state) {
    (void)state;
    static const char *const EXPERTS[] = {"gelu", "relu", "glu"};
    static const char *const SCORES[] = {"softmax", "sigmoid", "relu"};
    for (size_t i = 0; i < 9; i++) {
        void *own = NULL;
        setup(&own);
        lifelong *f = own;
        choose(&f->config, "expert", EXPERTS[i / 3]);
        choose(&f->config, "score", SCORES[i % 3]);
        make_pool(f, 1);
        feed_kind(f, 0, 20 * 64, 3);
        double early = status_of(f).bits_per_byte;
        feed_kind(f, 0, 60 * 64, 4);
        double late = status_of(f).bits_per_byte;
        assert_true(isfinite(early) && early < 9.0);
        assert_true(late < early - 0.5);
        lifelong_teardown(&own);
    }
}

// ---- sealing -------------------------------------------------------------------------------------

static reef_generation generation_of(const lifelong *f, uint32_t g) {
    reef_error err;
    reef_txn *txn = NULL;
    reef_generation info;
    ok(reef_txn_begin(&txn, f->store, REEF_TXN_READ, &err), &err);
    ok(reef_generation_read(txn, g, &info, &err), &err);
    reef_txn_abort(txn);
    return info;
}

// Rows of 3 * 16 values: 512 of them as floats are the most that fit a block, whatever their type.
#define GLU_BLOCK_ROWS 512

static void assert_rows_are_stored_as(const lifelong *f, uint32_t g, reef_dtype dtype) {
    reef_error err;
    reef_txn *txn = NULL;
    size_t side = g == 0 ? f->config.side : f->config.side_new;
    ok(reef_txn_begin(&txn, f->store, REEF_TXN_READ, &err), &err);
    for (uint32_t layer = 0; layer < f->config.layers; layer++) {
        size_t left = side * side;
        for (uint32_t block = 0; left > 0; block++) {
            size_t rows = left < GLU_BLOCK_ROWS ? left : GLU_BLOCK_ROWS;
            reef_key key = {.db = REEF_DB_EXPERTS, .generation = g, .layer = layer, .block = block};
            reef_view view;
            ok(reef_record_view(txn, &key, &view, &err), &err);
            assert_int_equal(view.dtype, dtype);
            assert_int_equal(view.bytes, rows * 3 * 16 * (dtype == REEF_BF16 ? 2 : 4));
            left -= rows;
        }
    }
    reef_txn_abort(txn);
    assert_int_equal(generation_of(f, g).dtype, dtype);
}

static void assert_sound(const lifelong *f) {
    reef_error err;
    reef_check_report report;
    ok(reef_store_check(f->store, NULL, NULL, &report, &err), &err);
    assert_int_equal(report.damaged, 0);
}

static void a_rounded_generation_is_exact_from_then_on(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_sealing sealing;
    reef_commit last, again;
    float *open = new_logits(), *sealed = new_logits(), *second = new_logits(),
          *later = new_logits();
    choose(&f->config, "expert", "glu");
    choose(&f->config, "score", "sigmoid");
    choose(&f->config, "seal_dtype", "bf16");
    make_pool(f, 2);
    feed_kind(f, 0, 12000, 1);
    commit(f);
    logits_of(f->store, "0", 0, open);
    ok(reef_trainer_seal(f->trainer, NULL, &sealing, &err), &err);
    assert_int_equal(sealing.generation, 0);
    assert_int_equal(sealing.dtype, REEF_BF16);
    assert_true(sealing.loss_bytes > 1000);
    assert_true(sealing.loss_before != sealing.loss_after);
    assert_true(fabs(sealing.loss_before - sealing.loss_after) < 0.01);
    assert_rows_are_stored_as(f, 0, REEF_BF16);
    assert_rows_are_stored_as(f, 1, REEF_F32); // the open one
    logits_of(f->store, "0", 0, sealed);
    assert_memory_not_equal(open, sealed, LOGIT_BYTES);

    feed_kind(f, 1, 12000, 1); // the next one trains on top of it
    ok(reef_trainer_seal(f->trainer, "f32", &sealing, &err), &err); // for this one only
    assert_int_equal(sealing.dtype, REEF_F32);
    assert_rows_are_stored_as(f, 1, REEF_F32);
    logits_of(f->store, "0", 0, later);
    assert_memory_equal(sealed, later, LOGIT_BYTES);
    logits_of(f->store, "1", 1, second);
    uint8_t root[REEF_HASH_BYTES];
    memcpy(root, generation_of(f, 0).root, sizeof root);
    feed_kind(f, 2, 3000, 1);
    last = commit(f);
    close_pool(f);
    open_pool(f, 1);
    again = commit(f);
    assert_memory_equal(last.root, again.root, REEF_HASH_BYTES);
    assert_memory_equal(root, generation_of(f, 0).root, sizeof root);
    assert_sound(f);
    feed_kind(f, 2, 3000, 2);
    ok(reef_trainer_seal(f->trainer, NULL, &sealing, &err), &err);
    assert_int_equal(sealing.dtype, REEF_BF16);
    close_pool(f);
    logits_in_new_process(f, "0", 0, later);
    assert_memory_equal(sealed, later, LOGIT_BYTES);
    logits_in_new_process(f, "1", 1, later);
    assert_memory_equal(second, later, LOGIT_BYTES);
    free(open);
    free(sealed);
    free(second);
    free(later);
}

// Bits per byte of the last commit's model on the windows of the open generation's sample.
static double loss_of_sample(const lifelong *f, const char *as_of, uint64_t *scored) {
    reef_error err;
    reef_txn *txn = NULL;
    reef_model *model = NULL;
    reef_reservoir sample;
    double bits = 0.0;
    ok(reef_reservoir_init(&sample, &f->config, &err), &err);
    ok(reef_txn_begin(&txn, f->store, REEF_TXN_READ, &err), &err);
    ok(reef_persist_load_reservoir(txn, &sample, &err), &err);
    reef_txn_abort(txn);
    ok(reef_model_open(&model, f->store, as_of, &(reef_model_options){.threads = 1}, &err), &err);
    *scored = 0;
    for (size_t slot = sample.old_slots; slot < sample.slots; slot++) {
        reef_score score = {0};
        const uint8_t *bytes = sample.bytes + slot * sample.window_bytes;
        if (sample.sizes[slot] == 0) continue;
        ok(reef_model_score(model, bytes, sample.sizes[slot], NULL, &score, NULL, NULL, &err),
           &err);
        bits += score.bits;
        *scored += score.bytes;
    }
    reef_model_close(model);
    reef_reservoir_release(&sample);
    return bits / (double)*scored;
}

static void sealing_measures_what_evaluation_would(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_sealing sealing;
    uint64_t scored;
    make_pool(f, 2);
    feed_kind(f, 0, 12000, 1);
    commit(f);
    double open = loss_of_sample(f, "0", &scored);
    ok(reef_trainer_seal(f->trainer, "bf16", &sealing, &err), &err);
    assert_int_equal(sealing.loss_bytes, scored);
    assert_true(fabs(sealing.loss_before - open) < 1e-9);

    // The sample is gone from the pool by now: another pool seals the same bits, step by step.
    void *own = NULL;
    setup(&own);
    lifelong *twin = own;
    choose(&twin->config, "seal_dtype", "bf16");
    make_pool(twin, 1);
    feed_kind(twin, 0, 12000, 1);
    reef_sealing again;
    ok(reef_trainer_seal(twin->trainer, NULL, &again, &err), &err);
    assert_true(again.loss_before == sealing.loss_before);
    assert_true(again.loss_after == sealing.loss_after);
    lifelong_teardown(&own);
}

// Three windows are too few to fit a gate, so it never fires by itself.
static void sealing_measures_with_the_gate_forced_open(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_sealing sealing;
    uint64_t scored;
    f->config.warmup = 1;
    make_pool(f, 1);
    feed_kind(f, 0, 12000, 1);
    ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
    feed_kind(f, 1, 2 * 64 + 40, 1); // half a batch is left of the first kind
    commit(f);
    double silent = loss_of_sample(f, "1", &scored);
    assert_true(silent == loss_of_sample(f, "0", &scored));
    ok(reef_trainer_seal(f->trainer, NULL, &sealing, &err), &err);
    assert_int_equal(sealing.loss_bytes, scored);
    assert_true(sealing.loss_before < silent - 0.001); // it has learned something of them
    assert_true(sealing.loss_before == sealing.loss_after);
}

static void sealing_as_it_is_costs_not_one_bit(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_sealing sealing;
    make_pool(f, 2);
    for (int g = 0; g < 2; g++) { // the second one with a gate, and an older generation below
        feed_kind(f, g, 12000, 1);
        ok(reef_trainer_seal(f->trainer, NULL, &sealing, &err), &err);
        assert_int_equal(sealing.generation, g);
        assert_true(isfinite(sealing.loss_before) && sealing.loss_before > 0.0);
        assert_true(sealing.loss_before == sealing.loss_after);
    }
}

// Sum of squares of what the first step left in the first moments: (1 - beta1) * clipped gradient.
// `least` is the smallest share of a tensor.
static double moment_squares(const reef_gen *gen, double *least) {
    double sum = 0.0;
    *least = INFINITY;
    for (size_t i = 0; i < gen->tensor_count; i++) {
        const reef_tensor *tensor = &gen->tensors[i];
        double squares = 0.0;
        if (tensor->adam_m == NULL) continue;
        for (size_t j = 0; j < tensor->count; j++)
            squares += (double)tensor->adam_m[j] * (double)tensor->adam_m[j];
        if (squares < *least) *least = squares;
        sum += squares;
    }
    *least /= sum;
    return sum;
}

static void the_norm_of_all_tensors_together_is_bounded(void **state) {
    lifelong *f = *state;
    double least;
    f->config.clip = 0.001f;
    make_pool(f, 2);
    feed_kind(f, 0, 4 * 16 + 1, 1); // one step
    assert_int_equal(status_of(f).step, 1);
    double norm = sqrt(moment_squares(f->trainer->net.gens[0], &least));
    double bound = (1.0 - (double)f->config.beta1) * (double)f->config.clip;
    assert_true(least > 2e-6); // whichever is left out shows as 1e-6 or more
    assert_true(fabs(norm / bound - 1.0) < 3e-7);
}

static void an_unknown_type_of_rows_is_refused(void **state) {
    lifelong *f = *state;
    reef_error err;
    make_pool(f, 1);
    feed_kind(f, 0, 4000, 3);
    assert_int_equal(reef_trainer_seal(f->trainer, "f16", NULL, &err), REEF_INVALID);
    assert_non_null(strstr(err.message, "must be f32 or bf16"));
    assert_int_equal(status_of(f).generation, 0);
}

// Seals whose event has `words`, as the timeline tells them.
typedef struct seal_count {
    const char *words;
    size_t seals, matching;
} seal_count;

static reef_status count_seal(void *context,
                              const reef_key *key,
                              const reef_view *view,
                              reef_error *err) {
    (void)key;
    (void)err;
    seal_count *count = context;
    char text[1024] = "";
    memcpy(text, view->data, view->bytes < sizeof text ? view->bytes : sizeof text - 1);
    bool seal = strstr(text, "\"event\": \"seal\"") != NULL;
    count->seals += seal;
    count->matching += seal && strstr(text, count->words) != NULL;
    return REEF_OK;
}

static void assert_one_seal_says(const lifelong *f, const char *words) {
    reef_error err;
    reef_txn *txn = NULL;
    seal_count count = {.words = words};
    ok(reef_txn_begin(&txn, f->store, REEF_TXN_READ, &err), &err);
    ok(reef_record_scan(txn, REEF_DB_TIMELINE, UINT32_MAX, count_seal, &count, &err), &err);
    reef_txn_abort(txn);
    assert_int_equal(count.seals, 1);
    assert_int_equal(count.matching, 1);
}

static void a_boundary_that_is_found_rounds_and_measures_as_well(void **state) {
    lifelong *f = *state;
    choose(&f->config, "expert", "glu");
    choose(&f->config, "seal_dtype", "bf16");
    f->config.side = 24; // two blocks
    make_pool(f, 1);
    feed_kind(f, 0, 12000, 3);
    feed_kind(f, 1, 2000, 3);
    commit(f);
    assert_int_equal(status_of(f).generation, 1);
    assert_rows_are_stored_as(f, 0, REEF_BF16);
    assert_one_seal_says(f, "\"reason\": \"drift\"");
    assert_one_seal_says(f, "\"dtype\": \"bf16\"");
    assert_one_seal_says(f, "\"loss_before\": ");
}

static void without_a_sample_there_is_no_loss(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_txn *txn = NULL;
    reef_commit last;
    reef_sealing sealing;
    make_pool(f, 1);
    feed_kind(f, 0, 4000, 3);
    last = commit(f);
    reef_trainer_close(f->trainer);
    ok(reef_txn_begin(&txn, f->store, REEF_TXN_WRITE, &err), &err);
    for (uint32_t slot = 0; slot < 1024; slot++) {
        reef_key key = {.db = REEF_DB_RESERVOIR, .block = slot};
        ok(reef_record_delete(txn, &key, &err), &err);
    }
    ok(reef_txn_commit(txn, &last, &err), &err);
    ok(reef_trainer_open(&f->trainer, f->store, NULL, &err), &err);
    ok(reef_trainer_seal(f->trainer, "bf16", &sealing, &err), &err);
    assert_int_equal(sealing.loss_bytes, 0);
    assert_true(isnan(sealing.loss_before) && isnan(sealing.loss_after));
    assert_one_seal_says(f, "\"loss_before\": null, \"loss_after\": null");
}

static void a_boundary_is_found_where_the_stream_changes(void **state) {
    lifelong *f = *state;
    make_pool(f, 1);
    feed_kind(f, 0, 12000, 3);
    assert_int_equal(status_of(f).generation, 0);
    double before = status_of(f).bits_per_byte;
    feed_kind(f, 1, 8 * 64, 3); // a boundary's worth and a little
    assert_int_equal(status_of(f).generation, 1);
    assert_true(status_of(f).bits_per_byte > before + 1.0); // a history of its own
    feed_kind(f, 1, 6000 - 8 * 64, 4);
    reef_trainer_status status = status_of(f);
    assert_int_equal(status.generation, 1);
    uint64_t batch = f->config.batch * f->config.context;
    assert_true(status.opened_at + batch > 12000 && status.opened_at < 12000 + batch);
    assert_int_equal(status.stream_bytes + status.carried_bytes, 18000); // nothing is lost
}

// 187 batches trained, an eighth of them asked for: 15 foreign ones are a page in the same book, which is
// then trained like the rest; 40 are another book.
static void a_change_has_to_last_for_a_share_of_what_was_seen(void **state) {
    lifelong *f = *state;
    uint64_t batch = f->config.batch * f->config.context;
    f->config.drift_share = 0.125f;
    make_pool(f, 1);
    feed_kind(f, 0, 12000, 3);
    feed_kind(f, 1, 15 * batch, 3);
    assert_int_equal(status_of(f).generation, 0);
    assert_int_equal(status_of(f).suspicious, 15); // of which drift_confirm would be 6
    feed_kind(f, 0, 2000, 4);
    reef_trainer_status status = status_of(f);
    assert_int_equal(status.generation, 0);
    assert_int_equal(status.suspicious, 0);
    assert_true(status.carried_bytes <= batch); // all of it is trained
    assert_int_equal(status.stream_bytes + status.carried_bytes, 14000 + 15 * batch);
    feed_kind(f, 1, 40 * batch, 4);
    assert_int_equal(status_of(f).generation, 1);
}

// Batches that are a quarter of another kind are suspicious, but nearer to what was normal than to the text
// that follows: they are trained into the old generation.
static void an_odd_passage_before_the_change_stays_with_what_was(void **state) {
    lifelong *f = *state;
    uint64_t window = f->config.context, batch = f->config.batch * window;
    make_pool(f, 1);
    feed_kind(f, 0, 188 * batch, 3);
    for (uint32_t i = 0; i < 4; i++) {
        feed_kind(f, 0, 3 * window, 10 + i);
        feed_kind(f, 1, window, 20 + i);
    }
    feed_kind(f, 1, 3 * window, 4);
    assert_true(status_of(f).suspicious >= 3);
    feed_kind(f, 1, 20 * batch, 3);
    reef_trainer_status status = status_of(f);
    assert_int_equal(status.generation, 1);
    assert_int_equal(status.opened_at, 191 * batch); // the last of them may hold the change
    assert_int_equal(status.stream_bytes + status.carried_bytes, 212 * batch + 3 * window);
}

static void what_is_always_enough_bounds_the_share(void **state) {
    lifelong *f = *state;
    f->config.drift_share = 1.0f;
    f->config.drift_hold = 8;
    make_pool(f, 1);
    feed_kind(f, 0, 12000, 3);
    feed_kind(f, 1, 7 * 64, 3);
    assert_int_equal(status_of(f).generation, 0);
    feed_kind(f, 1, 3 * 64, 4);
    assert_int_equal(status_of(f).generation, 1);
}

static void a_generation_without_training_is_not_sealed(void **state) {
    lifelong *f = *state;
    reef_error err;
    make_pool(f, 1);
    assert_int_equal(reef_trainer_seal(f->trainer, NULL, NULL, &err), REEF_INVALID);
    feed_kind(f, 0, 4000, 3);
    ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
    assert_int_equal(reef_trainer_seal(f->trainer, NULL, NULL, &err), REEF_INVALID);
    assert_int_equal(status_of(f).generation, 1);
}

static void without_drift_nothing_is_opened(void **state) {
    lifelong *f = *state;
    strcpy(f->config.boundaries, "given");
    make_pool(f, 1);
    feed_kind(f, 0, 8000, 3);
    feed_kind(f, 1, 8000, 3);
    assert_int_equal(status_of(f).generation, 0);
}

static void a_short_oddity_is_trained_on_and_opens_nothing(void **state) {
    lifelong *f = *state;
    make_pool(f, 1);
    feed_kind(f, 0, 12000, 3);
    feed_kind(f, 1, 3 * 64, 3); // half of what a boundary needs
    feed_kind(f, 0, 6000, 4);
    reef_trainer_status status = status_of(f);
    assert_int_equal(status.generation, 0);
    assert_true(status.carried_bytes <= 64);
    assert_int_equal(status.skipped_bytes, 0);
}

static void feed_a_domain_again(lifelong *f, float gate_decay) {
    f->config.gate_decay = gate_decay;
    make_pool(f, 1);
    feed_kind(f, 0, 16000, 3);
    feed_kind(f, 1, 16000, 3);
    assert_int_equal(status_of(f).generation, 1);
    float *before = new_logits(), *now = new_logits();
    commit(f);
    logits_of(f->store, "now", 1, before);
    feed_kind(f, 0, 4000, 5);
    reef_trainer_status status = status_of(f);
    assert_int_equal(status.generation, 1);
    assert_true(status.skipped_bytes > 3000);
    commit(f);
    logits_of(f->store, "now", 0, now);
    logits_of(f->store, "0", 0, before);
    assert_memory_equal(before, now, LOGIT_BYTES);
    free(before);
    free(now);
}

static void a_domain_that_comes_back_is_recognised(void **state) {
    feed_a_domain_again(*state, 0.9f);
}

// The open gate's mean stays high for longer than a boundary takes to be found.
static void it_is_recognised_although_the_open_gate_still_fires(void **state) {
    feed_a_domain_again(*state, 0.998f);
}

static void frozen_experts_do_not_change_by_one_bit(void **state) {
    lifelong *f = *state;
    reef_error err;
    uint64_t changed;
    reef_key key = {.db = REEF_DB_EXPERTS, .generation = 0, .layer = 1, .block = 0};
    size_t row = 2 * 16, count = 36 * row;
    float *before = calloc(count, sizeof *before), *after = calloc(count, sizeof *after);
    make_pool(f, 1);
    feed_kind(f, 0, 4000, 3);
    reef_freeze freeze = {.layer = 1, .first = 0, .last = 9, .dry_run = true};
    ok(reef_trainer_freeze(f->trainer, &freeze, &changed, &err), &err);
    assert_int_equal(changed, 10);
    freeze.dry_run = false;
    ok(reef_trainer_freeze(f->trainer, &freeze, &changed, &err), &err);
    assert_int_equal(changed, 10);
    reef_txn *txn = NULL;
    ok(reef_txn_begin(&txn, f->store, REEF_TXN_READ, &err), &err);
    ok(reef_record_read(txn, &key, before, count * sizeof *before, &err), &err);
    reef_txn_abort(txn);
    feed_kind(f, 0, 4000, 4);
    commit(f);
    ok(reef_txn_begin(&txn, f->store, REEF_TXN_READ, &err), &err);
    ok(reef_record_read(txn, &key, after, count * sizeof *after, &err), &err);
    reef_txn_abort(txn);
    assert_memory_equal(before, after, 10 * row * sizeof *before);
    assert_memory_not_equal(before + 10 * row, after + 10 * row, 26 * row * sizeof *before);
    freeze.first = 40;
    freeze.last = 50;
    assert_int_equal(reef_trainer_freeze(f->trainer, &freeze, &changed, &err), REEF_INVALID);
    free(before);
    free(after);
}

static void a_grown_generation_goes_on_learning(void **state) {
    lifelong *f = *state;
    reef_error err;
    make_pool(f, 2);
    feed_kind(f, 0, 6000, 3);
    assert_int_equal(reef_trainer_grow(f->trainer, 6, &err), REEF_INVALID);
    ok(reef_trainer_grow(f->trainer, 9, &err), &err);
    assert_int_equal(status_of(f).experts_open, 2 * 81);
    double before = status_of(f).bits_per_byte;
    feed_kind(f, 0, 6000, 4);
    assert_true(status_of(f).bits_per_byte < before);
    close_pool(f);
    open_pool(f, 1);
    assert_int_equal(status_of(f).experts_open, 2 * 81);
}

// How far today's output on old data is from the old one, where the new generation's gate must leak:
// both generations saw the same kind of text, and half of the old tokens may fire.
static double drift_on_leaking_tokens(float retain_weight) {
    void *state = NULL;
    setup(&state);
    lifelong *f = state;
    reef_error err;
    f->config.retain_weight = retain_weight;
    f->config.leak_max = 0.5f;
    strcpy(f->config.boundaries, "given");
    make_pool(f, 1);
    feed_kind(f, 0, 8000, 3);
    ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
    feed_kind(f, 0, 16000, 4);
    commit(f);
    float *before = new_logits(), *now = new_logits();
    logits_of(f->store, "0", 0, before);
    logits_of(f->store, "now", 0, now);
    double sum = 0.0;
    for (size_t i = 0; i < LIFELONG_PROBE_BYTES * REEF_VOCAB; i++)
        sum += fabs((double)now[i] - (double)before[i]);
    free(before);
    free(now);
    lifelong_teardown(&state);
    return sum;
}

static void the_retain_term_keeps_what_leaks_small(void **state) {
    (void)state;
    double without = drift_on_leaking_tokens(0.0f), with = drift_on_leaking_tokens(100.0f);
    assert_true(without > 0.0);
    assert_true(with < 0.8 * without);
}

static void the_running_statistics_of_queries_move(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_txn *txn = NULL;
    float mean[16];
    reef_key key = {.db = REEF_DB_TENSORS, .generation = 0, .name = "block1.bn_mean"};
    make_pool(f, 1);
    feed_kind(f, 0, 4000, 3);
    commit(f);
    ok(reef_txn_begin(&txn, f->store, REEF_TXN_READ, &err), &err);
    ok(reef_record_read(txn, &key, mean, sizeof mean, &err), &err);
    reef_txn_abort(txn);
    size_t moved = 0;
    for (size_t i = 0; i < 16; i++) moved += mean[i] != 0.0f;
    assert_int_equal(moved, 16);
}

static void a_snapshot_keeps_its_state(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_snapshot snapshot;
    float *then = new_logits(), *later = new_logits();
    make_pool(f, 1);
    feed_kind(f, 0, 6000, 3);
    ok(reef_trainer_snapshot(f->trainer, "monday", &snapshot, &err), &err);
    logits_of(f->store, "now", 0, then);
    feed_kind(f, 0, 6000, 4);
    ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
    logits_of(f->store, "monday", 0, later);
    assert_memory_equal(then, later, LOGIT_BYTES);
    logits_of(f->store, "0", 0, later);
    assert_memory_not_equal(then, later, LOGIT_BYTES);
    reef_model *model;
    assert_int_equal(
        reef_model_open(&model, f->store, "tuesday", &(reef_model_options){.threads = 1}, &err),
        REEF_NOT_FOUND);
    assert_int_equal(
        reef_model_open(&model, f->store, "2", &(reef_model_options){.threads = 1}, &err),
        REEF_NOT_FOUND);
    free(then);
    free(later);
}

static void scoring_and_generating_agree_with_the_logits(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_model *model = NULL;
    uint8_t probe[LIFELONG_PROBE_BYTES], out[64], again[64];
    float *logits = new_logits(), bits[LIFELONG_PROBE_BYTES];
    make_pool(f, 1);
    feed_kind(f, 0, 9000, 3);
    commit(f);
    lifelong_text(probe, sizeof probe, 0, 99);
    ok(reef_model_open(&model, f->store, NULL, &(reef_model_options){.threads = 2}, &err), &err);
    ok(reef_model_logits(model, probe, sizeof probe, logits, &err), &err);
    reef_score score = {0};
    ok(reef_model_score(model, probe, sizeof probe, bits, &score, NULL, NULL, &err), &err);
    double total = 0.0;
    for (size_t t = 0; t + 1 < sizeof probe; t++) {
        const float *row = logits + t * REEF_VOCAB;
        double sum = 0.0;
        for (size_t v = 0; v < REEF_VOCAB; v++) sum += exp((double)row[v]);
        double expected = (log(sum) - (double)row[probe[t + 1]]) / log(2.0);
        assert_true(fabs(expected - (double)bits[t + 1]) < 1e-4);
        total += expected;
    }
    assert_true(fabs(total - score.bits) < 1e-2);
    assert_int_equal(score.bytes, sizeof probe - 1);
    assert_int_equal(reef_model_score(model, probe, 1, NULL, &score, NULL, NULL, &err),
                     REEF_INVALID);

    reef_sampling greedy = {.temperature = 0.0f};
    ok(reef_model_generate(model, probe, 12, sizeof out, &greedy, out, &err), &err);
    size_t best = 0;
    for (size_t v = 1; v < REEF_VOCAB; v++)
        if (logits[11 * REEF_VOCAB + v] > logits[11 * REEF_VOCAB + best]) best = v;
    assert_int_equal(out[0], best);
    reef_sampling sampling = {.seed = 5, .temperature = 1.0f, .top_p = 0.9f};
    ok(reef_model_generate(model, probe, 12, sizeof out, &sampling, out, &err), &err);
    ok(reef_model_generate(model, probe, 12, sizeof again, &sampling, again, &err), &err);
    assert_memory_equal(out, again, sizeof out);
    reef_model_close(model);
    free(logits);
}

static void the_reservoir_is_a_uniform_sample(void **state) {
    (void)state;
    reef_error err;
    reef_config config = tiny_config();
    reef_reservoir reservoir;
    ok(reef_reservoir_init(&reservoir, &config, &err), &err);
    uint8_t window[64] = {0};
    enum { OFFERS = 20000 };
    for (uint64_t i = 0; i < OFFERS; i++)
        reef_reservoir_offer(&reservoir, i < OFFERS / 2 ? 0 : 1, i, window, 64);
    size_t old = 0, early = 0;
    for (size_t slot = 0; slot < reservoir.old_slots; slot++) {
        assert_int_equal(reservoir.sizes[slot], 64);
        old += reservoir.generations[slot] == 0;
        early += reservoir.offsets[slot] < OFFERS / 10;
    }
    // Binomial with 256 draws: five standard deviations are 40 and 24.
    assert_true(old > 88 && old < 168);
    assert_true(early > 1 && early < 50);
    reef_reservoir_lists lists;
    ok(reef_reservoir_lists_init(&lists, &reservoir, 1, &err), &err);
    assert_int_equal(lists.old_fit.count + lists.old_calibrate.count, old);
    assert_int_equal(lists.young.count, reservoir.slots - reservoir.old_slots);
    reef_reservoir_lists_release(&lists);
    reef_reservoir_rejuvenate(&reservoir);
    ok(reef_reservoir_lists_init(&lists, &reservoir, 2, &err), &err);
    assert_int_equal(lists.young.count, 0);
    assert_int_equal(lists.old_fit.count + lists.old_calibrate.count, reservoir.old_slots);
    reef_reservoir_lists_release(&lists);
    reef_reservoir_release(&reservoir);
}

static void the_drift_level_is_median_and_robust_spread(void **state) {
    (void)state;
    reef_error err;
    reef_drift drift;
    double median, spread;
    ok(reef_drift_init(&drift, 5, &err), &err);
    reef_drift_level(&drift, &median, &spread);
    assert_true(median == 0.0 && spread == 0.0);
    const double values[] = {9.0, 1.0, 2.0, 3.0, 4.0, 100.0}; // the 9 has left the ring
    for (size_t i = 0; i < 6; i++) reef_drift_push(&drift, values[i]);
    reef_drift_level(&drift, &median, &spread);
    assert_true(median == 3.0);
    assert_true(fabs(spread - 1.4826) < 1e-12); // deviations 2 1 0 1 97
    assert_true(reef_drift_at(&drift, 0) == 1.0 && reef_drift_at(&drift, 4) == 100.0);
    reef_drift_release(&drift);
}

int main(int argc, char **argv) {
    program = argv[0];
    if (argc == 6 && strcmp(argv[1], "logits") == 0)
        return write_logits(argv[2], argv[3], argv[4], argv[5]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(as_of_is_bit_identical_for_ever, setup, lifelong_teardown),
        cmocka_unit_test_setup_teardown(todays_output_is_the_old_one_where_no_newer_gate_fires,
                                        setup, lifelong_teardown),
        cmocka_unit_test(the_stream_alone_decides_the_bits),
        cmocka_unit_test(it_does_for_gated_experts_that_are_rounded_too),
        cmocka_unit_test(every_kind_and_score_learns),
        cmocka_unit_test_setup_teardown(a_rounded_generation_is_exact_from_then_on, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(sealing_measures_what_evaluation_would, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(sealing_measures_with_the_gate_forced_open, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(sealing_as_it_is_costs_not_one_bit, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(the_norm_of_all_tensors_together_is_bounded, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(an_unknown_type_of_rows_is_refused, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(a_boundary_that_is_found_rounds_and_measures_as_well, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(without_a_sample_there_is_no_loss, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(a_boundary_is_found_where_the_stream_changes, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(a_change_has_to_last_for_a_share_of_what_was_seen, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(an_odd_passage_before_the_change_stays_with_what_was, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(what_is_always_enough_bounds_the_share, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(a_generation_without_training_is_not_sealed, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(without_drift_nothing_is_opened, setup, lifelong_teardown),
        cmocka_unit_test_setup_teardown(a_short_oddity_is_trained_on_and_opens_nothing, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(a_domain_that_comes_back_is_recognised, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(it_is_recognised_although_the_open_gate_still_fires, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(the_running_statistics_of_queries_move, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(frozen_experts_do_not_change_by_one_bit, setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(a_grown_generation_goes_on_learning, setup,
                                        lifelong_teardown),
        cmocka_unit_test(the_retain_term_keeps_what_leaks_small),
        cmocka_unit_test_setup_teardown(a_snapshot_keeps_its_state, setup, lifelong_teardown),
        cmocka_unit_test_setup_teardown(scoring_and_generating_agree_with_the_logits, setup,
                                        lifelong_teardown),
        cmocka_unit_test(the_reservoir_is_a_uniform_sample),
        cmocka_unit_test(the_drift_level_is_median_and_robust_spread),
    };
    return cmocka_run_group_tests_name("trainer lifelong", tests, NULL, NULL);
}
