// Consolidation on real pools: states before the range stay to the bit, what was learned in it
// stays within a bound, training continues from it as from any commit, and every failure leaves the
// pool as it was.
#include "distil.h"
#include "kind_memories.h"
#include "lifelong.h"
#include "trainer_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEXT_BYTES 6000
#define PROBE_BYTES 2000
#define RISE_MAX 0.15 // bits per byte that consolidation may cost on text of the same kind

static reef_config tiny_config(void) {
    reef_config config = lifelong_config();
    config.side_new = 5;
    config.gate_decay = 0.9f;
    choose(&config, "boundaries", "given");
    return config;
}

static void seal(lifelong *f) {
    reef_error err;
    ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
}

// Kinds 0 to 3 sealed as generations 0 to 3, and kind 4 open.
static void make_four(lifelong *f, size_t threads, const reef_config *config) {
    reef_error err;
    ok(reef_pool_init(f->pool, config, &err), &err);
    open_pool(f, threads);
    for (int kind = 0; kind < 4; kind++) {
        feed_kind(f, kind, TEXT_BYTES, 1);
        seal(f);
    }
    feed_kind(f, 4, TEXT_BYTES, 1);
    commit(f);
}

static lifelong_mould four; // by tiny_config, on one thread

static void start(lifelong *f, size_t threads) {
    reef_config config = tiny_config();
    if (threads == 1 && four.dir[0] != '\0') {
        lifelong_copy(f, &four, 1);
        return;
    }
    make_four(f, threads, &config);
    if (threads == 1) lifelong_keep(f, &four);
}

static int discard_four(void **state) {
    (void)state;
    lifelong_discard(&four);
    return 0;
}

// As if the test started again: another pool of its own.
static void start_again(lifelong *f, size_t threads) {
    close_pool(f);
    temp_dir_remove(f->pool);
    start(f, threads);
}

static reef_consolidation_options range(uint32_t first, uint32_t last) {
    return (reef_consolidation_options){.first = first, .last = last, .steps = 60};
}

static void consolidate(lifelong *f,
                        reef_consolidation_options options,
                        reef_consolidation *report) {
    reef_error err;
    ok(reef_trainer_consolidate(f->trainer, &options, report, &err), &err);
}

static void consolidate_only(lifelong *f, reef_consolidation_options options) {
    reef_consolidation report;
    consolidate(f, options, &report);
    reef_consolidation_release(&report);
}

static reef_commit last_commit(const lifelong *f) {
    reef_error err;
    reef_txn *txn = NULL;
    reef_commit out;
    ok(reef_txn_begin(&txn, f->store, REEF_TXN_READ, &err), &err);
    ok(reef_commit_read(txn, &out, &err), &err);
    reef_txn_abort(txn);
    return out;
}

static double bits_of(const lifelong *f, const char *as_of, int kind, float *logits) {
    reef_error err;
    reef_model *model = NULL;
    reef_score score = {0};
    uint8_t probe[PROBE_BYTES];
    lifelong_text(probe, sizeof(probe), kind, 99);
    ok(reef_model_open(&model, f->store, as_of, &(reef_model_options){.threads = 1}, &err), &err);
    ok(reef_model_score(model, probe, sizeof(probe), NULL, &score, NULL, NULL, &err), &err);
    if (logits != NULL) ok(reef_model_logits(model, probe, sizeof(probe), logits, &err), &err);
    reef_model_close(model);
    return score.bits_per_byte;
}

static float *probe_logits(void) {
    float *logits = calloc(PROBE_BYTES * REEF_VOCAB, sizeof(*logits));
    assert_non_null(logits);
    return logits;
}

#define LOGIT_BYTES (PROBE_BYTES * REEF_VOCAB * sizeof(float))

// ---- what stays ---------------------------------------------------------------------------------

static void states_before_the_range_stay_to_the_bit(void **state) {
    lifelong *f = *state;
    float *before[2] = {probe_logits(), probe_logits()}, *after = probe_logits();
    start(f, 1);
    bits_of(f, "0", 2, before[0]);
    bits_of(f, "1", 2, before[1]);
    consolidate_only(f, range(2, 3));
    bits_of(f, "0", 2, after);
    assert_memory_equal(before[0], after, LOGIT_BYTES);
    bits_of(f, "1", 2, after);
    assert_memory_equal(before[1], after, LOGIT_BYTES);
    bits_of(f, "3", 2, after);
    assert_memory_not_equal(before[1], after, LOGIT_BYTES); // the new one does something
    free(before[0]);
    free(before[1]);
    free(after);
}

static void what_was_learned_stays_within_a_bound(void **state) {
    lifelong *f = *state;
    reef_consolidation report;
    double before[5], untaught[5];
    start(f, 1);
    for (int kind = 0; kind < 5; kind++) {
        before[kind] = bits_of(f, "now", kind, NULL);
        untaught[kind] = bits_of(f, "0", kind, NULL);
    }
    reef_consolidation_options options = range(1, 3);
    options.steps = 0; // as many as there are by default
    consolidate(f, options, &report);
    for (int kind = 0; kind < 5; kind++) {
        double after = bits_of(f, "now", kind, NULL);
        if (!(after < before[kind] + RISE_MAX))
            fail_msg("kind %d: %.4f before, %.4f after", kind, before[kind], after);
        // The bound means something: without what was learned the loss is far above it.
        if (kind >= 1 && kind <= 3) assert_true(untaught[kind] > before[kind] + 4 * RISE_MAX);
    }
    assert_int_equal(report.loss_count, 4); // of 1 to 3, and of the open one
    for (size_t i = 0; i < report.loss_count; i++) {
        assert_int_equal(report.losses[i].generation, 1 + i);
        assert_true(report.losses[i].bytes > 0);
        assert_true(report.losses[i].after < report.losses[i].before + RISE_MAX);
    }
    assert_int_equal(report.merged, 3);
    assert_int_equal(report.side, 5);
    assert_int_equal(report.experts_before, 3 * 2 * 25);
    assert_int_equal(report.experts_after, 2 * 25);
    assert_true(report.bytes_after < report.bytes_before);
    assert_true(report.gate_detect > 0.9 && report.gate_leak <= 0.01);
    // What gave way has no file of its own any more; what stands for it has.
    reef_error err;
    char path[TEMP_DIR_BYTES];
    const reef_export_options force = {.force = true};
    temp_dir_join(path, f->dir, "file");
    assert_int_equal(reef_generation_export(f->store, 1, path, &force, NULL, &err),
                     REEF_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "generation 1 was consolidated into a later one"));
    ok(reef_generation_export(f->store, 3, path, &force, NULL, &err), &err);
    reef_consolidation_release(&report);
    assert_sound(f);
}

// Bits per byte, as evaluated, of what is measured on: every eighth old window of a generation's
// text.
static double held_out_bits(const lifelong *f, uint32_t generation, uint64_t *scored) {
    reef_error err;
    reef_model *model = NULL;
    const reef_reservoir *sample = &f->trainer->reservoir;
    double bits = 0.0;
    size_t seen = 0;
    *scored = 0;
    ok(reef_model_open(&model, f->store, "now", &(reef_model_options){.threads = 1}, &err), &err);
    for (size_t slot = 0; slot < sample->old_slots; slot++) {
        if (sample->sizes[slot] < 2 || sample->generations[slot] != generation) continue;
        if (seen++ % 8 != 1) continue;
        reef_score score = {0};
        ok(reef_model_score(model, sample->bytes + slot * sample->window_bytes, sample->sizes[slot],
                            NULL, &score, NULL, NULL, &err),
           &err);
        bits += score.bits;
        *scored += score.bytes;
    }
    reef_model_close(model);
    return bits / (double)*scored;
}

static void losses_are_those_of_evaluation(void **state) {
    lifelong *f = *state;
    reef_consolidation report;
    uint64_t scored;
    start(f, 1);
    double before = held_out_bits(f, 4, &scored); // of the open generation, averages and all
    consolidate(f, range(1, 2), &report);
    double after = held_out_bits(f, 4, &scored);
    const reef_consolidation_loss *loss = &report.losses[report.loss_count - 1];
    assert_int_equal(loss->generation, 4);
    assert_int_equal(loss->bytes, scored);
    assert_true(scored > 0);
    assert_true(fabs(loss->before - before) < 1e-9);
    assert_true(fabs(loss->after - after) < 1e-9);
    reef_consolidation_release(&report);
}

static void the_open_generation_and_its_optimiser_are_not_touched(void **state) {
    lifelong *f = *state;
    start(f, 1);
    const reef_generation *open = reef_open_generation(f->trainer);
    size_t values = open->value_count;
    float *before = malloc(4 * values * sizeof(*before));
    assert_non_null(before);
    memcpy(before, open->values, values * sizeof(*before));
    memcpy(before + values, open->training + values,
           3 * values * sizeof(*before)); // moments and averages
    consolidate_only(f, range(1, 2));
    assert_ptr_equal(reef_open_generation(f->trainer), open);
    assert_memory_equal(before, open->values, values * sizeof(*before));
    assert_memory_equal(before + values, open->training + values, 3 * values * sizeof(*before));
    free(before);
}

static void numbers_in_between_are_given_up_and_say_so(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_model *model = NULL;
    start(f, 1);
    consolidate_only(f, range(1, 2));
    assert_int_equal(reef_model_open(&model, f->store, "1", NULL, &err), REEF_ERR_NOT_FOUND);
    assert_non_null(strstr(err.message, "consolidated into generation 2"));
    assert_null(model);
    assert_true(isfinite(bits_of(f, "2", 1, NULL)));
    assert_true(isfinite(bits_of(f, "3", 1, NULL)));
}

static void what_is_consolidated_can_be_consolidated_again(void **state) {
    lifelong *f = *state;
    reef_consolidation report;
    reef_error err;
    start(f, 1);
    consolidate_only(f, range(1, 2));
    reef_consolidation_options gone = range(1, 1);
    assert_int_equal(reef_trainer_consolidate(f->trainer, &gone, &report, &err), REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "consolidated into generation 2 already"));
    reef_consolidation_release(&report);
    consolidate(f, range(2, 3), &report);
    assert_int_equal(report.merged, 2);
    reef_consolidation_release(&report);
    for (int kind = 1; kind <= 3; kind++)
        assert_true(bits_of(f, "now", kind, NULL) < bits_of(f, "0", kind, NULL) - RISE_MAX);
    assert_sound(f);
}

// ---- what goes on -------------------------------------------------------------------------------

static void training_goes_on_and_a_restart_leaves_no_trace(void **state) {
    lifelong *f = *state;
    reef_commit straight;
    start(f, 1);
    consolidate_only(f, range(1, 3));
    feed_kind(f, 4, 3000, 7);
    seal(f);
    feed_kind(f, 1, 3000, 8);
    straight = commit(f);
    start_again(f, 1);
    consolidate_only(f, range(1, 3));
    close_pool(f);
    open_pool(f, 1);
    feed_kind(f, 4, 3000, 7);
    seal(f);
    close_pool(f);
    open_pool(f, 1);
    feed_kind(f, 1, 3000, 8);
    assert_memory_equal(commit(f).root, straight.root, REEF_HASH_BYTES);
    assert_sound(f);
}

static void the_number_of_threads_leaves_no_trace(void **state) {
    lifelong *f = *state;
    reef_commit one;
    start(f, 1);
    consolidate_only(f, range(1, 3));
    one = last_commit(f);
    start_again(f, 3);
    consolidate_only(f, range(1, 3));
    assert_memory_equal(last_commit(f).root, one.root, REEF_HASH_BYTES);
}

static void rows_are_rounded_where_the_pool_rounds_them(void **state) {
    lifelong *f = *state;
    reef_config config = tiny_config();
    config.seal_dtype = REEF_SEAL_BF16;
    make_four(f, 1, &config);
    double before = bits_of(f, "now", 2, NULL);
    reef_consolidation_options options = range(1, 3);
    options.steps = 0; // as many as there are by default
    consolidate_only(f, options);
    assert_int_equal(f->trainer->network.generations[3]->info.dtype, REEF_BF16);
    assert_true(bits_of(f, "now", 2, NULL) < before + RISE_MAX);
    assert_sound(f);
}

static void rows_that_are_read_in_place_give_the_same_bits(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_commit copied;
    start(f, 1);
    consolidate_only(f, range(1, 3));
    copied = last_commit(f);
    start_again(f, 1);
    close_pool(f);
    ok(reef_store_open(&f->store, f->pool, &(reef_store_options){.write = true}, &err), &err);
    ok(reef_trainer_open(&f->trainer, f->store,
                         &(reef_trainer_options){.threads = 1, .memory_bytes = 4096}, &err),
       &err);
    assert_true(f->trainer->residency.in_place);
    consolidate_only(f, range(1, 3));
    assert_memory_equal(last_commit(f).root, copied.root, REEF_HASH_BYTES);
    feed_kind(f, 4, 500, 3);
}

// ---- with context memories ----------------------------------------------------------------------

static void start_with_memories(lifelong *f, size_t threads, const char *share) {
    reef_config config = tiny_config();
    choose(&config, "context_memory", "4194304");
    choose(&config, "net_share", share);
    make_four(f, threads, &config);
}

// What the text that generation `of` learned costs by the memory of generation `by`.
static double bits_by_memory(const lifelong *f, uint32_t by, int of, uint64_t *learned) {
    reef_error err;
    reef_txn *txn = NULL;
    reef_generation_memory memory = {0};
    reef_memory_session *session = NULL;
    uint8_t text[TEXT_BYTES];
    float bits[TEXT_BYTES];
    double sum = 0.0;
    lifelong_text(text, sizeof(text), of, 1);
    ok(reef_txn_begin(&txn, f->store, REEF_TXN_READ, &err), &err);
    ok(reef_checkpoint_read_memory(txn, by, &memory, &err), &err);
    reef_txn_abort(txn);
    ok(reef_memory_session_open(&session, memory.memory, true, &err), &err);
    ok(reef_memory_session_read(session, text, sizeof(text), NULL, bits, &err), &err);
    for (size_t i = 0; i < sizeof(text); i++) sum += (double)bits[i];
    *learned = reef_memory_learned_bytes(memory.memory);
    reef_memory_session_close(session);
    reef_generation_memory_release(&memory);
    return sum / TEXT_BYTES;
}

static void expect_memories_kept(lifelong *f, const char *share) {
    uint64_t learned, sum = 0;
    double before[4];
    reef_consolidation report;
    start_with_memories(f, 1, share);
    for (uint32_t g = 1; g < 4; g++) {
        before[g] = bits_by_memory(f, g, (int)g, &learned);
        sum += learned;
    }
    consolidate(f, range(1, 3), &report);
    if (share[0] == '0') assert_int_equal(report.steps, 0);
    // Whose text lies in the rings is learned once, and whole.
    for (uint32_t g = 1; g < 4; g++) {
        double after = bits_by_memory(f, 3, (int)g, &learned);
        print_message("generation %u: %.3f bits before, %.3f after\n", g, before[g], after);
        assert_true(after < before[g] + RISE_MAX);
    }
    assert_in_range(learned, sum, sum + report.taught_bytes / 4);
    assert_true(report.bytes_after < report.bytes_before);
    assert_true(report.bytes_after > 1048576 + 923904); // the weights of a gate and of a mixer
    reef_consolidation_release(&report);
    assert_null(f->trainer->network.generations[3]->memory.memory); // it is stored
    assert_sound(f);
    reef_commit once = last_commit(f);
    close_pool(f);
    open_pool(f, 1);
    feed_kind(f, 1, TEXT_BYTES, 7);
    seal(f);
    // Again, and one that was consolidated already.
    consolidate_only(f, range(3, 4));
    assert_true(bits_by_memory(f, 4, 1, &learned) < before[1] + RISE_MAX);
    assert_sound(f);
    close_pool(f);
    temp_dir_remove(f->pool);
    start_with_memories(f, 3, share);
    consolidate_only(f, range(1, 3));
    assert_memory_equal(last_commit(f).root, once.root, REEF_HASH_BYTES);
}

static void a_memory_learns_again_what_is_left_of_the_text(void **state) {
    expect_memories_kept(*state, "1");
}

static void and_where_there_is_no_net(void **state) {
    expect_memories_kept(*state, "0");
}

// Of a quarter of each text, which was learned whole.
static void without_a_net_the_cost_by_memories_is_told_before(void **state) {
    lifelong *f = *state;
    reef_consolidation plan, done;
    start_with_memories(f, 1, "0");
    reef_consolidation_options options = range(1, 3);
    options.dry_run = true;
    consolidate(f, options, &plan);
    assert_int_equal(plan.memory_count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        const reef_consolidation_memory *one = &plan.memories[i];
        assert_int_equal(one->generation, i + 1);
        assert_in_range(one->bytes, TEXT_BYTES / 4 - 64, TEXT_BYTES / 4 + 64);
        // Kinds without a context in common do not help each other, and one memory has all of them.
        assert_true(one->apart > 0.3 && one->apart < 2.0);
        assert_true(one->together > one->apart - 0.05 && one->together < one->apart + 0.5);
    }
    options.dry_run = false;
    consolidate(f, options, &done);
    assert_memory_equal(done.memories, plan.memories, 3 * sizeof(*plan.memories));
    reef_consolidation_release(&plan);
    reef_consolidation_release(&done);
}

// Text of a kind as its memory keeps it. The caller's to free.
static uint8_t *kept_text(const lifelong *f, uint32_t kind, size_t *count, uint64_t *learned) {
    reef_error err;
    const reef_memory *memory = NULL;
    ok(reef_kinds_memory(f->trainer, kind, &memory, &err), &err);
    assert_non_null(memory);
    *learned = reef_memory_learned_bytes(memory);
    *count = reef_memory_text(memory, NULL, 0);
    uint8_t *text = malloc(*count);
    assert_non_null(text);
    assert_int_equal(reef_memory_text(memory, text, *count), *count);
    return text;
}

static bool has(const uint8_t *text, size_t count, const uint8_t *part, size_t part_bytes) {
    for (size_t at = 0; at + part_bytes <= count; at++)
        if (memcmp(text + at, part, part_bytes) == 0) return true;
    return false;
}

// Kind 1 learns more than its memory keeps as text (256 KiB of the smallest), the last of it when
// it came back. All windows of kinds 1 and 2 are taught here.
static void what_a_text_of_several_visits_has_is_learned_once(void **state) {
    enum { FIRST = 150000, BACK = 130000, OTHER = 10000 };
    lifelong *f = *state;
    reef_error err;
    reef_config config = lifelong_config();
    uint8_t *texts[2];
    size_t counts[2], sample_count = 0;
    uint64_t learned[2], missing = 0, early = 0;
    choose(&config, "context_memory", "4194304");
    choose(&config, "boundaries", "contexts");
    choose(&config, "rehearse", "0");
    choose(&config, "net_share", "0");
    ok(reef_pool_init(f->pool, &config, &err), &err);
    open_pool(f, 1);
    feed_kind(f, 0, OTHER, 1);
    feed_kind(f, 1, FIRST, 2);
    feed_kind(f, 2, OTHER, 3);
    for (uint32_t visit = 0; visit < 2; visit++) {
        feed_kind(f, 1, BACK / 2, 4 + visit);
        feed_kind(f, 3, OTHER, 6 + visit);
    }
    commit(f);
    assert_int_equal(status_of(f).generation, 3);
    const reef_reservoir *reservoir = &f->trainer->reservoir;
    reef_sample *samples = calloc(reservoir->old_slots, sizeof(*samples));
    assert_non_null(samples);
    for (uint32_t i = 0; i < 2; i++) texts[i] = kept_text(f, i + 1, &counts[i], &learned[i]);
    assert_true(counts[0] < learned[0] && learned[0] > FIRST + BACK - 4096);
    assert_true(counts[1] == learned[1]);
    for (size_t slot = 0; slot < reservoir->old_slots; slot++) {
        const uint8_t *window = reservoir->bytes + slot * reservoir->window_bytes;
        uint32_t g = reservoir->generations[slot];
        if (reservoir->sizes[slot] == 0 || g < 1 || g > 2) continue;
        samples[sample_count++] = (reef_sample){.slot = slot, .generation = g, .taught = true};
        if (!has(texts[g - 1], counts[g - 1], window, reservoir->sizes[slot]))
            missing += reservoir->sizes[slot];
        else if (g == 1)
            early++; // in the text, and long before its end
    }
    assert_true(missing > 0 && early > 10);
    const reef_distil distil = {.trainer = f->trainer,
                                .first = 1,
                                .last = 2,
                                .samples = samples,
                                .sample_count = sample_count};
    reef_generation_memory memory = {0};
    ok(reef_distil_memory(&distil, &memory, &err), &err);
    assert_int_equal(reef_memory_learned_bytes(memory.memory), missing + counts[0] + counts[1]);
    reef_generation_memory_release(&memory);
    for (int i = 0; i < 2; i++) free(texts[i]);
    free(samples);
    // And as a whole.
    consolidate_only(f, range(1, 2));
    assert_true(bits_of(f, "now", 1, NULL) < 4.0);
    assert_sound(f);
}

// ---- what goes wrong ----------------------------------------------------------------------------

static void a_dry_run_changes_nothing_and_says_what_would_be(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_consolidation report;
    start(f, 1);
    ok(reef_trainer_snapshot(f->trainer, "kept", NULL, &err), &err);
    reef_commit before = last_commit(f);
    reef_consolidation_options options = {.first = 1, .last = 2, .dry_run = true};
    consolidate(f, options, &report);
    reef_commit after = last_commit(f);
    assert_int_equal(after.number, before.number);
    assert_memory_equal(after.root, before.root, REEF_HASH_BYTES);
    assert_int_equal(report.merged, 2);
    assert_int_equal(report.later, 1);
    assert_int_equal(report.experts_before, 2 * 2 * 25);
    assert_int_equal(report.experts_after, 2 * 25);
    assert_int_equal(report.snapshot_count, 1);
    assert_string_equal(report.snapshots[0], "kept");
    assert_true(report.steps >= 200 && report.taught_bytes > 0);
    assert_true(report.fired_after <= report.fired_before && report.fired_before > 0.5);
    assert_true(isfinite(report.losses[0].before) && isnan(report.losses[0].after));
    assert_int_equal(report.memory_count, 0);
    reef_consolidation_release(&report);
}

static void refused(lifelong *f, reef_consolidation_options options, const char *words) {
    reef_error err;
    reef_consolidation report;
    for (int dry = 0; dry < 2; dry++) {
        options.dry_run = dry == 1;
        assert_int_equal(reef_trainer_consolidate(f->trainer, &options, &report, &err),
                         REEF_ERR_INVALID);
        if (strstr(err.message, words) == NULL)
            fail_msg("expected '%s' in: %s", words, err.message);
        reef_consolidation_release(&report);
    }
}

static void ranges_that_cannot_be_are_refused(void **state) {
    lifelong *f = *state;
    start(f, 1);
    reef_commit before = last_commit(f);
    refused(f, range(0, 2), "generation 0 holds the backbone");
    refused(f, range(2, 1), "not a range");
    refused(f, range(1, 9), "not a range");
    refused(f, range(2, 4), "generation 4 is open");
    refused(f, range(2, 2), "it takes two");
    reef_consolidation_options options = range(1, 2);
    options.side = 8;
    refused(f, options, "side 7 at most");
    options.side = 1;
    refused(f, options, "topk");
    assert_int_equal(last_commit(f).number, before.number);
    assert_sound(f);
}

static void a_reservoir_without_their_text_is_an_error(void **state) {
    lifelong *f = *state;
    reef_config config = tiny_config();
    config.reservoir_bytes = 64 * 16;
    make_four(f, 1, &config);
    refused(f, range(1, 2), "a larger reservoir_bytes");
    assert_false(reef_generation_is_empty(&f->trainer->network.generations[1]->info));
}

static void windows_as_short_as_the_context_teach_nothing(void **state) {
    lifelong *f = *state;
    reef_config config = tiny_config();
    config.reservoir_window = config.context;
    config.rehearse = 0;
    make_four(f, 1, &config);
    refused(f, range(1, 2), "a larger reservoir_window");
    assert_sound(f);
}

static void before_a_generation_is_sealed_there_are_none_to_consolidate(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_config config = tiny_config();
    ok(reef_pool_init(f->pool, &config, &err), &err);
    open_pool(f, 1);
    refused(f, range(1, 2), "no generation is sealed yet");
}

static void a_snapshot_is_in_the_way_until_it_may_go(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_consolidation report;
    start(f, 1);
    ok(reef_trainer_snapshot(f->trainer, "kept", NULL, &err), &err);
    reef_commit before = last_commit(f);
    reef_consolidation_options options = range(1, 2);
    assert_int_equal(reef_trainer_consolidate(f->trainer, &options, &report, &err),
                     REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "snapshot kept needs"));
    reef_consolidation_release(&report);
    assert_memory_equal(last_commit(f).root, before.root, REEF_HASH_BYTES);
    assert_true(isfinite(bits_of(f, "kept", 1, NULL)));
    options.drop_snapshots = true;
    consolidate_only(f, options);
    reef_model *model = NULL;
    assert_int_equal(reef_model_open(&model, f->store, "kept", NULL, &err), REEF_ERR_NOT_FOUND);
    assert_sound(f);
}

// A snapshot from before the range was sealed shares none of it.
static void a_snapshot_of_before_stays_as_it_is(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_config config = tiny_config();
    float *before = probe_logits(), *after = probe_logits();
    ok(reef_pool_init(f->pool, &config, &err), &err);
    open_pool(f, 1);
    for (int kind = 0; kind < 4; kind++) {
        feed_kind(f, kind, TEXT_BYTES, 1);
        if (kind == 1) ok(reef_trainer_snapshot(f->trainer, "early", NULL, &err), &err);
        seal(f);
    }
    bits_of(f, "early", 1, before);
    consolidate_only(f, range(1, 3));
    bits_of(f, "early", 1, after);
    assert_memory_equal(before, after, LOGIT_BYTES);
    assert_sound(f);
    free(before);
    free(after);
}

static void die(void *context, uint64_t step, uint64_t steps, double bits) {
    (void)context, (void)bits;
    if (2 * step >= steps) raise(SIGKILL);
}

static void a_kill_in_the_middle_leaves_the_old_pool(void **state) {
    lifelong *f = *state;
    start(f, 1);
    reef_commit before = last_commit(f);
    close_pool(f);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        reef_consolidation report;
        reef_error err;
        reef_consolidation_options options = range(1, 3);
        options.progress = die;
        open_pool(f, 1);
        (void)!reef_trainer_consolidate(f->trainer, &options, &report, &err);
        _exit(0);
    }
    int result;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFSIGNALED(result) && WTERMSIG(result) == SIGKILL);
    open_pool(f, 1);
    assert_memory_equal(last_commit(f).root, before.root, REEF_HASH_BYTES);
    assert_sound(f);
    assert_true(isfinite(bits_of(f, "1", 1, NULL)));
    consolidate_only(f, range(1, 3));
    assert_sound(f);
}

// The file may not grow: the transaction fails. Pool and trainer continue as if nothing had been
// tried.
static void a_commit_that_fails_leaves_pool_and_trainer_as_they_were(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_consolidation report;
    reef_consolidation_options options = range(1, 3);
    char data[TEMP_DIR_BYTES];
    struct stat info;
    struct rlimit limit, old;
    start(f, 1);
    feed_kind(f, 4, 1000, 5);
    reef_commit expected = commit(f);
    start_again(f, 1);
    temp_dir_join(data, f->pool, "data.mdb");
    assert_int_equal(stat(data, &info), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = old;
    limit.rlim_cur = 65536; // every write to the file beyond it fails
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    reef_status status = reef_trainer_consolidate(f->trainer, &options, &report, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    reef_consolidation_release(&report);
    assert_true(status == REEF_ERR_IO || status == REEF_ERR_FULL);
    assert_true(strlen(err.message) > 0);
    assert_false(reef_generation_is_empty(&f->trainer->network.generations[1]->info));
    assert_int_equal(f->trainer->event_count, 0);
    feed_kind(f, 4, 1000, 5);
    assert_memory_equal(commit(f).root, expected.root, REEF_HASH_BYTES);
    assert_sound(f);
}

static reef_status find_event(void *context,
                              const reef_key *key,
                              const reef_view *view,
                              reef_error *err) {
    (void)key, (void)err;
    static const char start_of[] = "{\"event\": \"consolidate\"";
    if (view->bytes > sizeof(start_of) && memcmp(view->data, start_of, sizeof(start_of) - 1) == 0)
        ++*(int *)context;
    return REEF_OK;
}

static void the_timeline_tells(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_txn *txn = NULL;
    int found = 0;
    start(f, 1);
    consolidate_only(f, range(1, 2));
    ok(reef_txn_begin(&txn, f->store, REEF_TXN_READ, &err), &err);
    ok(reef_record_scan(txn, REEF_DB_TIMELINE, UINT32_MAX, find_event, &found, &err), &err);
    reef_txn_abort(txn);
    assert_int_equal(found, 1);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, lifelong_setup, lifelong_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(states_before_the_range_stay_to_the_bit),
        TEST(what_was_learned_stays_within_a_bound),
        TEST(losses_are_those_of_evaluation),
        TEST(the_open_generation_and_its_optimiser_are_not_touched),
        TEST(numbers_in_between_are_given_up_and_say_so),
        TEST(what_is_consolidated_can_be_consolidated_again),
        TEST(training_goes_on_and_a_restart_leaves_no_trace),
        TEST(the_number_of_threads_leaves_no_trace),
        TEST(rows_are_rounded_where_the_pool_rounds_them),
        TEST(rows_that_are_read_in_place_give_the_same_bits),
        TEST(a_memory_learns_again_what_is_left_of_the_text),
        TEST(and_where_there_is_no_net),
        TEST(without_a_net_the_cost_by_memories_is_told_before),
        TEST(what_a_text_of_several_visits_has_is_learned_once),
        TEST(a_dry_run_changes_nothing_and_says_what_would_be),
        TEST(ranges_that_cannot_be_are_refused),
        TEST(a_reservoir_without_their_text_is_an_error),
        TEST(windows_as_short_as_the_context_teach_nothing),
        TEST(before_a_generation_is_sealed_there_are_none_to_consolidate),
        TEST(a_snapshot_is_in_the_way_until_it_may_go),
        TEST(a_snapshot_of_before_stays_as_it_is),
        TEST(a_kill_in_the_middle_leaves_the_old_pool),
        TEST(a_commit_that_fails_leaves_pool_and_trainer_as_they_were),
        TEST(the_timeline_tells),
    };
    return cmocka_run_group_tests(tests, NULL, discard_four);
}
