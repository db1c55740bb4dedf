// When and how a pool grows, policy by policy: boundaries stand at the byte where they should,
// whatever the cuts, commits and restarts; what a new generation begins with changes no output;
// budgets hold.
#include "enlarge.h"
#include "growth_policy.h"
#include "lifelong.h"
#include "trainer_internal.h"
#include "warm_start.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARK "== END"
enum { BATCH = LIFELONG_BATCH };

static void feed_from(lifelong *f, const char *source, const uint8_t *bytes, size_t count) {
    reef_error err;
    size_t taken;
    ok(reef_trainer_feed(f->trainer, source, bytes, count, &taken, NULL, &err), &err);
    assert_int_equal(taken, count);
}

static void feed_line(lifelong *f, const char *text) {
    feed(f, (const uint8_t *)text, strlen(text));
}

static const reef_generation *gen_of(const lifelong *f, size_t g) {
    assert_true(g < f->trainer->network.generation_count);
    return f->trainer->network.generations[g];
}

// ---- the stream alone decides -------------------------------------------------------------------

// The root after `stream`, fed in cuts of `cut` bytes, committed after every `every` of them, and
// with `reopen` thrown away and taken up from the pool after every other commit.
static void root_of_run(const reef_config *config,
                        const uint8_t *stream,
                        size_t count,
                        size_t threads,
                        size_t cut,
                        size_t every,
                        bool reopen,
                        size_t *generation_count,
                        uint8_t root[REEF_HASH_BYTES]) {
    void *state = NULL;
    lifelong_setup(&state);
    lifelong *f = state;
    f->config = *config;
    make_pool(f, threads);
    size_t cuts = 0;
    for (size_t at = 0; at < count;) {
        size_t size = count - at < cut ? count - at : cut;
        feed(f, stream + at, size);
        at += size;
        if (++cuts % every != 0) continue;
        commit(f);
        if (!reopen || cuts / every % 2 == 0) continue;
        if (at < count) feed(f, stream + at, 1); // lost with the process: not committed
        close_pool(f);
        open_pool(f, threads);
        assert_int_equal(reef_trainer_cursor(f->trainer, "test"), at);
    }
    reef_commit last = commit(f);
    memcpy(root, last.root, REEF_HASH_BYTES);
    *generation_count = f->trainer->network.generation_count;
    lifelong_teardown(&state);
}

// generation_count  0: as many as there are, but more than one
static void assert_the_stream_decides(const reef_config *config,
                                      const uint8_t *stream,
                                      size_t count,
                                      size_t generation_count) {
    uint8_t expected[REEF_HASH_BYTES], root[REEF_HASH_BYTES];
    size_t found;
    root_of_run(config, stream, count, 1, count, 1, false, &found, expected);
    if (generation_count > 0)
        assert_int_equal(found, generation_count);
    else
        assert_true(found > 1);
    root_of_run(config, stream, count, 3, 1, 970, true, &found, root); // byte after byte
    assert_memory_equal(expected, root, sizeof(root));
}

static void the_stream_alone_decides_under_every_policy(void **state) {
    (void)state;
    static const struct run {
        const char *settings[5][2];
        size_t generation_count;
    } RUNS[] = {
        {{{"boundaries", "budget"}, {"boundary_bytes", "4200"}, {"subkeys_new", "queries"}}, 4},
        {{{"boundaries", "capacity"}, {"capacity_uses", "100"}, {"copy_experts", "5"}}, 0},
        {{{"size_new", "auto"}, {"subkeys_new", "queries"}, {"copy_experts", "5"}}, 3},
        {{{"growth", "in_place"}}, 1},
        {{{"experts_max", "104"}}, 2},
    };
    enum { PART = 5000, TOTAL = 3 * PART };
    uint8_t stream[TOTAL];
    for (int kind = 0; kind < 3; kind++) lifelong_text(stream + kind * PART, PART, kind, 7);
    for (size_t i = 0; i < sizeof(RUNS) / sizeof(*RUNS); i++) {
        reef_config config = lifelong_config();
        for (size_t s = 0; s < 5 && RUNS[i].settings[s][0] != NULL; s++)
            choose(&config, RUNS[i].settings[s][0], RUNS[i].settings[s][1]);
        assert_the_stream_decides(&config, stream, TOTAL, RUNS[i].generation_count);
    }
}

// ---- budget -------------------------------------------------------------------------------------

static void a_budget_ends_a_generation_at_the_batch_that_reaches_it(void **state) {
    lifelong *f = *state;
    choose(&f->config, "boundaries", "budget");
    choose(&f->config, "boundary_bytes", "1000"); // 15.6 batches
    make_pool(f, 1);
    feed_kind(f, 0, 16 * BATCH, 3); // the last batch lacks its next byte
    assert_int_equal(status_of(f).generation, 0);
    feed_kind(f, 0, 1, 3);
    assert_int_equal(status_of(f).generation, 1);
    assert_int_equal(gen_of(f, 0)->info.sealed_at, 16 * BATCH);
    feed_kind(f, 0, 5 * BATCH, 3);
    reef_error err;
    ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err); // the count restarts
    feed_kind(f, 0, 16 * BATCH, 3);
    assert_int_equal(gen_of(f, 2)->info.opened_at, 21 * BATCH);
    assert_int_equal(gen_of(f, 3)->info.opened_at, 37 * BATCH);
    assert_int_equal(times_said(f, "\"event\": \"open\", "), 3);
    assert_int_equal(times_said(f, "\"reason\": \"budget\", \"side\""), 2);
}

// ---- capacity -----------------------------------------------------------------------------------

static double full_share(const lifelong *f, uint64_t uses) {
    const reef_generation *open = reef_open_generation(f->trainer);
    size_t full = 0, count = 0;
    for (uint32_t l = 0; l < f->config.layers; l++)
        for (size_t n = 0; n < open->expert_tables[l].expert_count; n++, count++)
            full += open->expert_tables[l].usage[n].count >= uses;
    return (double)full / (double)count;
}

static void a_generation_ends_once_enough_of_its_experts_are_full(void **state) {
    lifelong *f = *state;
    choose(&f->config, "boundaries", "given");
    make_pool(f, 1);
    // The usage at each check, from a pool that nothing ends.
    enum { LOOKS = 6 };
    double shares[LOOKS];
    uint8_t stream[LOOKS * 32 * BATCH + 1];
    lifelong_text(stream, sizeof(stream), 0, 3);
    feed(f, stream, 1);
    for (size_t look = 0; look < LOOKS; look++) {
        feed(f, stream + 1 + look * 32 * BATCH, 32 * BATCH);
        assert_int_equal(status_of(f).generation_step, (look + 1) * 32);
        shares[look] = full_share(f, 700);
    }
    close_pool(f);
    temp_dir_remove(f->pool);
    size_t due = 0;
    while (due < LOOKS && shares[due] < 0.5) due++;
    assert_true(due > 0 && due < LOOKS);

    choose(&f->config, "boundaries", "capacity");
    choose(&f->config, "capacity_uses", "700");
    choose(&f->config, "capacity_share", "0.5");
    make_pool(f, 1);
    feed(f, stream, (due + 1) * 32 * BATCH);
    assert_int_equal(status_of(f).generation, 0);
    feed(f, stream + (due + 1) * 32 * BATCH, 1);
    assert_int_equal(status_of(f).generation, 1);
    assert_int_equal(status_of(f).opened_at, (due + 1) * 32 * BATCH);
    assert_int_equal(times_said(f, "\"reason\": \"capacity\""), 2);
}

// ---- marks --------------------------------------------------------------------------------------

static void a_mark_is_a_boundary_at_exactly_its_place(void **state) {
    lifelong *f = *state;
    choose(&f->config, "boundaries", "given");
    choose(&f->config, "boundary_mark", MARK);
    make_pool(f, 1);
    feed_kind(f, 0, 1000, 3);
    feed_line(f, "\n" MARK "X\n" MARK MARK "\n " MARK "\n== EN\n\n"); // none of these
    uint64_t before = 1000 + 1 + 8 + 13 + 8 + 6 + 1, behind = before + 7;
    feed_line(f, MARK);
    assert_int_equal(status_of(f).generation, 0); // the line may continue
    feed_line(f, "\n");
    assert_int_equal(status_of(f).generation, 1);
    reef_trainer_status status = status_of(f);
    assert_int_equal(status.opened_at, behind);
    assert_int_equal(status.stream_bytes, behind);
    assert_int_equal(status.pending_bytes, 0);
    uint64_t trained = (before - 1) / BATCH * BATCH; // the last byte has no next one
    assert_int_equal(status.step * BATCH, trained);
    assert_int_equal(status.not_learned_bytes, behind - trained);
    assert_int_equal(times_said(f, "\"reason\": \"mark\""), 2);
    feed_kind(f, 1, BATCH + 1, 3);
    assert_int_equal(f->trainer->reservoir.young_seen, 1);
    uint8_t first[BATCH];
    lifelong_text(first, BATCH, 1, 3);
    size_t slot = f->trainer->reservoir.old_slots;
    assert_memory_equal(f->trainer->reservoir.bytes + slot * BATCH, first, BATCH);
    // Behind the next one the gates read as from the beginning of a stream.
    reef_gate_state fresh;
    memset(&fresh, 0, sizeof(fresh));
    reef_gate_reset(&gen_of(f, 1)->gate, &fresh);
    assert_true(f->trainer->gating.states[1].count > fresh.count);
    feed_line(f, "\n" MARK "\n");
    assert_int_equal(f->trainer->network.generation_count, 3);
    assert_int_equal(f->trainer->gating.states[1].count, fresh.count);
    assert_int_equal(f->trainer->ahead.states[1].count, fresh.count);
}

// The sealed generation is the one that a command makes where the whole batches end.
static void before_a_mark_whole_batches_are_trained_and_nothing_else(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_generation_record marked, commanded;
    reef_txn *txn = NULL;
    uint8_t text[1000];
    lifelong_text(text, sizeof(text), 0, 3);
    choose(&f->config, "boundaries", "given");
    choose(&f->config, "boundary_mark", MARK);
    for (int command = 0; command < 2; command++) {
        make_pool(f, 1);
        feed(f, text, sizeof(text));
        if (command)
            ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
        else
            feed_line(f, "\n" MARK "\n");
        commit(f);
        ok(reef_txn_begin(&txn, f->store, REEF_TXN_READ, &err), &err);
        ok(reef_generation_read(txn, 0, command ? &commanded : &marked, &err), &err);
        reef_txn_abort(txn);
        close_pool(f);
        temp_dir_remove(f->pool);
    }
    assert_true(marked.sealed && commanded.sealed);
    assert_memory_equal(marked.root, commanded.root, REEF_HASH_BYTES);
}

static void marks_do_not_depend_on_cuts_and_restarts(void **state) {
    (void)state;
    enum { PART = 1500 };
    uint8_t stream[3 * PART + 200];
    size_t count = 0;
    for (int kind = 0; kind < 3; kind++) {
        lifelong_text(stream + count, PART, kind, 7);
        count += PART;
        const char *lines = kind == 1 ? "\n" MARK "\n" MARK "\n" MARK "!\n" : "\n" MARK "\n== E\n";
        memcpy(stream + count, lines, strlen(lines));
        count += strlen(lines);
    }
    for (int tiny = 0; tiny < 2; tiny++) {
        reef_config config = lifelong_config();
        choose(&config, "boundary_mark", MARK);
        choose(&config, "subkeys_new", "queries");
        if (tiny) { // several batches may hide in what looks like a marker
            config.batch = 1;
            config.context = 2;
            config.rehearse = 0;
            choose(&config, "boundaries", "given");
        }
        assert_the_stream_decides(&config, stream, count, 4);
    }
}

static void a_mark_before_anything_was_trained_is_only_taken_out(void **state) {
    lifelong *f = *state;
    uint8_t roots[2][REEF_HASH_BYTES];
    choose(&f->config, "boundaries", "given");
    choose(&f->config, "boundary_mark", MARK);
    uint8_t text[40 * BATCH];
    lifelong_text(text, sizeof(text), 0, 3);
    make_pool(f, 1);
    feed_line(f, MARK "\n");
    feed(f, text, 20);
    feed_line(f, "\n" MARK "\n" MARK "\n");
    assert_int_equal(status_of(f).pending_bytes, 21);
    assert_int_equal(status_of(f).not_learned_bytes, 21);
    feed(f, text, 10 * BATCH);
    assert_int_equal(status_of(f).generation, 0);
    assert_int_equal(times_said(f, "mark"), 0);
    // The model is that of the stream without the marks.
    float *with = calloc(LIFELONG_PROBE_BYTES * REEF_VOCAB, sizeof(*with));
    float *without = calloc(LIFELONG_PROBE_BYTES * REEF_VOCAB, sizeof(*without));
    assert_non_null(with);
    assert_non_null(without);
    memcpy(roots[0], commit(f).root, REEF_HASH_BYTES);
    logits_of(f->store, "now", 0, with);
    close_pool(f);
    temp_dir_remove(f->pool);
    make_pool(f, 1);
    feed(f, text, 20);
    feed_line(f, "\n");
    feed(f, text, 10 * BATCH);
    commit(f);
    logits_of(f->store, "now", 0, without);
    assert_memory_equal(with, without, LIFELONG_PROBE_BYTES * REEF_VOCAB * sizeof(*with));
    free(with);
    free(without);
}

static void the_end_of_a_source_ends_its_last_line(void **state) {
    lifelong *f = *state;
    choose(&f->config, "boundaries", "given");
    choose(&f->config, "boundary_mark", MARK);
    make_pool(f, 1);
    uint8_t text[300];
    lifelong_text(text, sizeof(text), 0, 3);
    feed_from(f, "one", text, sizeof(text));
    feed_from(f, "one", (const uint8_t *)"\n" MARK, 7);
    feed_from(f, "two", text, 0); // no byte of it yet
    assert_int_equal(status_of(f).generation, 0);
    commit(f);
    close_pool(f);
    open_pool(f, 1);
    feed_from(f, "two", text, sizeof(text));
    assert_int_equal(status_of(f).generation, 1);
    assert_int_equal(status_of(f).opened_at, 307);
    // The beginning of a marker is text if the source ends in it, and does not continue in the
    // next.
    feed_from(f, "two", (const uint8_t *)"\n== ", 4);
    feed_from(f, "three", (const uint8_t *)"END\n", 4);
    assert_int_equal(status_of(f).generation, 1);
    assert_int_equal(status_of(f).stream_bytes + status_of(f).pending_bytes, 300 + 7 + 300 + 8);
}

static void under_drift_a_mark_trains_what_was_deferred_first(void **state) {
    lifelong *f = *state;
    choose(&f->config, "boundary_mark", MARK);
    make_pool(f, 1);
    feed_kind(f, 0, 6000, 3);
    uint64_t step = status_of(f).step;
    feed_kind(f, 1, 3 * BATCH, 3);              // too few for a boundary
    assert_true(status_of(f).step <= step + 1); // that in which the change is
    assert_true(status_of(f).anomalous >= 2);
    feed_line(f, "\n" MARK "\n");
    assert_int_equal(status_of(f).step, step + 3);
    assert_int_equal(status_of(f).anomalous, 0);
    assert_int_equal(status_of(f).generation, 1);
    assert_int_equal(status_of(f).opened_at, 6000 + 3 * BATCH + 8);
}

// ---- growing in place ---------------------------------------------------------------------------

static void in_place_a_boundary_adds_as_many_experts_under_the_same_ids(void **state) {
    lifelong *f = *state;
    uint8_t text[2100];
    lifelong_text(text, sizeof(text), 0, 3);
    choose(&f->config, "boundaries", "given");
    make_pool(f, 1);
    feed(f, text, 16 * BATCH + 1);
    size_t row = f->trainer->network.generations[0]->expert_tables[0].row_values, old = 36;
    float *rows = malloc(2 * old * row * sizeof(*rows));
    assert_non_null(rows);
    for (size_t l = 0; l < 2; l++)
        memcpy(rows + l * old * row, gen_of(f, 0)->expert_tables[l].experts,
               old * row * sizeof(*rows));
    close_pool(f);
    temp_dir_remove(f->pool);

    choose(&f->config, "boundaries", "budget");
    choose(&f->config, "boundary_bytes", "1024");
    choose(&f->config, "growth", "in_place");
    make_pool(f, 1);
    feed(f, text, 16 * BATCH + 1);
    assert_int_equal(f->trainer->network.generation_count, 1);
    assert_int_equal(gen_of(f, 0)->info.side, 8); // 6 * 6 + 4 * 4 experts, rounded up to a square
    for (size_t l = 0; l < 2; l++) {
        const float *now = gen_of(f, 0)->expert_tables[l].experts;
        assert_memory_equal(now, rows + l * old * row, old * row * sizeof(*rows));
        for (size_t n = old; n < 64; n++) // the new ones are silent
            for (size_t d = 16; d < 32; d++) assert_true(now[n * row + d] == 0.0f);
    }
    assert_int_equal(times_said(f, "\"event\": \"grow\""), 1);
    assert_int_equal(times_said(f, "\"reason\": \"budget\", \"side_before\": 6, \"side\": 8"), 1);
    commit(f);
    close_pool(f);
    open_pool(f, 1); // the budget counts from the growth, not from the opening
    feed(f, text + 16 * BATCH + 1, 16 * BATCH - 1);
    assert_int_equal(gen_of(f, 0)->info.side, 8);
    feed(f, text + 32 * BATCH, 1);
    assert_int_equal(gen_of(f, 0)->info.side, 9); // 64 + 16, rounded up
    free(rows);
}

static void in_place_a_drift_grows_once(void **state) {
    lifelong *f = *state;
    choose(&f->config, "growth", "in_place");
    make_pool(f, 1);
    feed_kind(f, 0, 12000, 3);
    feed_kind(f, 1, 6000, 3);
    assert_int_equal(f->trainer->network.generation_count, 1);
    assert_int_equal(times_said(f, "\"reason\": \"drift\", \"side_before\": 6, \"side\": 8"), 1);
    assert_int_equal(times_said(f, "\"event\": \"grow\""), 1);
    assert_int_equal(status_of(f).stream_bytes + status_of(f).pending_bytes, 18000);
    assert_true(status_of(f).pending_bytes <= BATCH);
}

// ---- size ---------------------------------------------------------------------------------------

static void what_is_further_away_gets_a_larger_side(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_opening near, far, none;
    uint8_t text[6 * BATCH + 1];
    choose(&f->config, "size_new", "auto");
    choose(&f->config, "side_new", "12");
    make_pool(f, 1);
    feed_kind(f, 0, 12000, 3);
    lifelong_text(text, sizeof(text), 0, 5);
    ok(reef_policy_size(f->trainer, "drift", text, 6 * BATCH, &near, &err), &err);
    lifelong_text(text, sizeof(text), 1, 5);
    ok(reef_policy_size(f->trainer, "drift", text, 6 * BATCH, &far, &err), &err);
    ok(reef_policy_size(f->trainer, "drift", text, 0, &none, &err), &err);
    assert_true(near.distance < 0.1 && near.unclaimed == 1.0 && near.gap < 0.3);
    assert_true(far.distance > 0.6 && far.distance <= 1.0 && far.gap > 2.0);
    assert_in_range(near.side, 6, 7);
    assert_in_range(far.side, 13, 24);
    assert_int_equal(none.side, 12); // nothing is known of it
    assert_true(isnan(none.distance));
    uint64_t step = status_of(f).step;
    feed_kind(f, 1, 8 * BATCH, 5);
    assert_int_equal(gen_of(f, 1)->info.side, far.side);
    assert_int_equal(times_said(f, "\"unclaimed\": 1.0000, \"distance\": "), 1);
    assert_true(status_of(f).step > step);
    // What an older gate claims is nearer than what none does.
    feed_kind(f, 1, 12000, 6);
    reef_opening claimed;
    lifelong_text(text, sizeof(text), 1, 7);
    ok(reef_policy_size(f->trainer, "drift", text, 6 * BATCH, &claimed, &err), &err);
    assert_true(claimed.unclaimed < 0.9);
    // Data that gates claim is half as far as the same data that none does.
    reef_gate *gate = &f->trainer->network.generations[1]->gate;
    lifelong_text(text, sizeof(text), 2, 7);
    gate->threshold = -1e30f;
    ok(reef_policy_size(f->trainer, "drift", text, 6 * BATCH, &near, &err), &err);
    gate->threshold = 1e30f;
    ok(reef_policy_size(f->trainer, "drift", text, 6 * BATCH, &far, &err), &err);
    assert_true(near.unclaimed == 0.0 && far.unclaimed == 1.0);
    double left = 8.0 - status_of(f).bits_per_byte; // to a model that knows nothing
    assert_true(near.gap > 0.5 && far.gap > 0.5);
    assert_true(fabs(near.distance - 0.5 * fmin(near.gap / left, 1.0)) < 1e-9);
    assert_true(fabs(far.distance - fmin(far.gap / left, 1.0)) < 1e-9);
}

static void no_more_experts_are_made_than_the_budget_allows(void **state) {
    lifelong *f = *state;
    reef_error err;
    choose(&f->config, "boundaries", "budget");
    choose(&f->config, "boundary_bytes", "640");
    choose(&f->config, "experts_max", "125"); // 2 layers of 36; then 16, 4 and 4 each
    make_pool(f, 1);
    feed_kind(f, 0, 80 * BATCH, 3);
    static const uint32_t SIDES[] = {6, 4, 2, 2};
    assert_int_equal(f->trainer->network.generation_count, 4);
    for (size_t g = 0; g < 4; g++) assert_int_equal(gen_of(f, g)->info.side, SIDES[g]);
    assert_int_equal(status_of(f).experts, 120);
    assert_int_equal(times_said(f, "\"event\": \"full\""), 1);
    assert_int_equal(times_said(f, "\"experts\": 120, \"experts_max\": 125"), 1);
    assert_int_equal(status_of(f).step, 79); // it continues to train
    commit(f);
    close_pool(f);
    open_pool(f, 1);
    feed_kind(f, 0, 20 * BATCH, 4);
    assert_int_equal(times_said(f, "\"event\": \"full\""), 1);
    assert_int_equal(reef_trainer_seal(f->trainer, NULL, NULL, &err), REEF_ERR_FULL);
    assert_non_null(strstr(err.message, "120 experts"));
    assert_int_equal(reef_trainer_grow(f->trainer, 3, &err), REEF_ERR_FULL);
    assert_non_null(strstr(err.message, "experts_max 125"));
    assert_int_equal(status_of(f).experts, 120);
}

static void under_drift_a_full_pool_trains_what_it_would_have_deferred(void **state) {
    lifelong *f = *state;
    choose(&f->config, "experts_max", "72");
    make_pool(f, 1);
    feed_kind(f, 0, 12000, 3);
    feed_kind(f, 1, 6000, 3);
    assert_int_equal(status_of(f).generation, 0);
    assert_int_equal(times_said(f, "\"event\": \"full\""), 1);
    assert_int_equal(status_of(f).not_learned_bytes, 0);
    assert_true(status_of(f).pending_bytes <= BATCH);
    feed_kind(f, 2, 6000, 3);
    assert_int_equal(times_said(f, "\"event\": \"full\""), 1);
    assert_true(status_of(f).pending_bytes <= BATCH);
}

// ---- the start ----------------------------------------------------------------------------------

static void assert_is_a_direction(const float *key, size_t half, size_t d_key) {
    double squares = 0.0;
    for (size_t d = 0; d < half; d++) squares += (double)key[d] * (double)key[d];
    assert_true(fabs(squares - (double)half / (3.0 * (double)d_key)) < 1e-5);
}

// Is this w_down (and w_gate) that of any expert of the layer in generation 0? Rounded as its rows
// are.
static bool is_a_copy(const lifelong *f, uint32_t l, const float *row) {
    const reef_expert_table *old = &gen_of(f, 0)->expert_tables[l];
    for (size_t n = 0; n < old->expert_count; n++) {
        bool same = true;
        for (size_t i = 0; same && i < old->row_values; i++) {
            float value;
            if (old->rows.dtype == REEF_F32) {
                value = old->experts[n * old->row_values + i];
            } else {
                uint32_t bits = (uint32_t)((const reef_bf16 *)old->memory)[n * old->row_values + i]
                                << 16;
                memcpy(&value, &bits, sizeof(value));
            }
            bool up = i >= 16 && i < 32;
            same = up ? row[i] == 0.0f : row[i] == value;
        }
        if (same) return true;
    }
    return false;
}

static void a_start_from_the_data_changes_no_output(void **state) {
    (void)state;
    for (int rounded = 0; rounded < 2; rounded++) {
        void *own = NULL;
        lifelong_setup(&own);
        lifelong *f = own;
        reef_error err;
        choose(&f->config, "boundaries", "given");
        choose(&f->config, "subkeys_new", "queries");
        choose(&f->config, "copy_experts", "7");
        choose(&f->config, "weigh_older", "false"); // that part of a start may change some
        if (rounded) {
            choose(&f->config, "expert", "glu");
            choose(&f->config, "seal_dtype", "bf16");
        }
        make_pool(f, 2);
        feed_kind(f, 0, 6000, 3);
        ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
        assert_true(reef_start_is_due(f->trainer));
        const reef_generation *open = gen_of(f, 1);
        float drawn[16];
        memcpy(drawn, open->weights.routers[0].sub_keys_a, sizeof(drawn));
        uint8_t text[3 * BATCH + 1];
        lifelong_text(text, sizeof(text), 1, 3);
        ok(reef_start_generation(f->trainer, text, 3 * BATCH, &err), &err);
        assert_memory_not_equal(drawn, open->weights.routers[0].sub_keys_a, sizeof(drawn));
        for (uint32_t l = 0; l < 2; l++) {
            size_t copies = 0;
            for (size_t k = 0; k < 4; k++) {
                assert_is_a_direction(open->weights.routers[l].sub_keys_a + 4 * k, 4, 8);
                assert_is_a_direction(open->weights.routers[l].sub_keys_b + 4 * k, 4, 8);
            }
            for (size_t n = 0; n < 16; n++)
                copies += is_a_copy(
                    f, l, open->expert_tables[l].experts + n * open->expert_tables[l].row_values);
            assert_int_equal(copies, 7);
        }
        assert_int_equal(times_said(f, "\"subkeys\": \"queries\", \"copied\": 14, \"older\": true, "
                                       "\"bytes\": 192"),
                         1);

        // As evaluated with the new gate open everywhere: nothing that it adds is not zero.
        size_t count = LIFELONG_PROBE_BYTES * REEF_VOCAB;
        float *before = calloc(count, sizeof(*before)), *now = calloc(count, sizeof(*now));
        assert_non_null(before);
        assert_non_null(now);
        commit(f);
        logits_of(f->store, "0", 1, before);
        logits_of(f->store, "now", 1, now);
        assert_memory_equal(before, now, count * sizeof(*now));
        f->trainer->network.generations[1]->gate.threshold = -1.0f; // a mean of 0 lies above it
        commit(f);
        logits_of(f->store, "now", 1, now);
        for (size_t i = 0; i < count; i++) assert_true(before[i] == now[i]); // -0 may have become 0
        free(before);
        free(now);
        lifelong_teardown(&own);
    }
}

static void assert_weighs_older(const lifelong *f, float delta) {
    const reef_generation *open = gen_of(f, 1);
    for (uint32_t l = 0; l < f->config.layers; l++)
        for (size_t d = 0; d < f->config.d_model; d++)
            assert_true(open->weights.delta_older[l][d] == delta);
    char name[] = "block0.delta_older";
    const reef_tensor *tensor = reef_generation_find(open, name);
    assert_non_null(tensor);
    for (size_t d = 0; d < tensor->count; d++) assert_true(tensor->average[d] == delta);
}

static void a_start_leaves_out_older_experts_that_only_harm(void **state) {
    lifelong *f = *state;
    reef_error err;
    choose(&f->config, "boundaries", "given");
    make_pool(f, 2);
    feed_kind(f, 0, 6000, 3);
    ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
    uint8_t text[3 * BATCH + 1];
    lifelong_text(text, sizeof(text), 0, 4); // what they were trained for
    assert_true(reef_start_is_due(f->trainer));
    ok(reef_start_generation(f->trainer, text, 3 * BATCH, &err), &err);
    assert_weighs_older(f, 0.0f);
    assert_int_equal(times_said(f, "\"older\": true"), 1);
    for (uint32_t l = 0; l < f->config.layers; l++) { // now they say the opposite, and loudly
        const reef_expert_table *table = &gen_of(f, 0)->expert_tables[l];
        size_t D = f->config.d_model;
        for (size_t n = 0; n < table->expert_count; n++)
            for (size_t d = 0; d < D; d++) table->experts[n * table->row_values + D + d] *= -20.0f;
    }
    ok(reef_start_generation(f->trainer, text, 3 * BATCH, &err), &err);
    assert_weighs_older(f, -1.0f);
    assert_int_equal(times_said(f, "\"older\": false"), 1);
}

static void a_start_happens_once_and_at_the_first_batch(void **state) {
    lifelong *f = *state;
    reef_error err;
    choose(&f->config, "boundaries", "given");
    choose(&f->config, "subkeys_new", "queries");
    make_pool(f, 1);
    feed_kind(f, 0, 30 * BATCH + 1, 3);
    ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
    assert_int_equal(times_said(f, "\"event\": \"start\""), 0);
    close_pool(f);
    open_pool(f, 1);
    feed_kind(f, 1, BATCH, 3);
    assert_int_equal(times_said(f, "\"event\": \"start\""), 1);
    feed_kind(f, 1, 10 * BATCH, 3);
    assert_int_equal(times_said(f, "\"event\": \"start\""), 1);
    assert_false(reef_start_is_due(f->trainer));
}

// ---- held bytes ---------------------------------------------------------------------------------

static void seal_of(lifelong *f,
                    const uint8_t *stream,
                    size_t count,
                    reef_generation_record sealed[2]) {
    reef_error err;
    reef_txn *txn = NULL;
    make_pool(f, 1);
    feed(f, stream, count);
    commit(f);
    assert_int_equal(status_of(f).generation, 2);
    ok(reef_txn_begin(&txn, f->store, REEF_TXN_READ, &err), &err);
    for (uint32_t g = 0; g < 2; g++) ok(reef_generation_read(txn, g, &sealed[g], &err), &err);
    reef_txn_abort(txn);
    close_pool(f);
    temp_dir_remove(f->pool);
}

// However much is deferred when a boundary is found, the sealed generation is the same to the bit.
static void a_sealed_generation_has_never_seen_deferred_bytes(void **state) {
    lifelong *f = *state;
    enum { PART = 9000 };
    uint8_t stream[3 * PART];
    reef_generation_record found[2], other[2];
    for (int kind = 0; kind < 3; kind++) lifelong_text(stream + kind * PART, PART, kind, 7);
    seal_of(f, stream, sizeof(stream), found);
    for (int g = 1; g >= 0; g--) {
        // Other text of the same kind, from the byte after the last batch's last target on.
        size_t end = (size_t)found[g].sealed_at,
               from = end + 1 > (size_t)(g + 1) * PART ? end + 1 : (size_t)(g + 1) * PART;
        lifelong_text(stream + from, (size_t)(g + 2) * PART - from, g + 1, 8);
        seal_of(f, stream, sizeof(stream), other);
        assert_int_equal(other[g].sealed_at, end);
        assert_memory_equal(found[g].root, other[g].root, REEF_HASH_BYTES);
        if (g == 0) assert_memory_not_equal(found[1].root, other[1].root, REEF_HASH_BYTES);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_stream_alone_decides_under_every_policy),
        cmocka_unit_test_setup_teardown(a_budget_ends_a_generation_at_the_batch_that_reaches_it,
                                        lifelong_setup, lifelong_teardown),
        cmocka_unit_test_setup_teardown(a_generation_ends_once_enough_of_its_experts_are_full,
                                        lifelong_setup, lifelong_teardown),
        cmocka_unit_test_setup_teardown(a_mark_is_a_boundary_at_exactly_its_place, lifelong_setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(before_a_mark_whole_batches_are_trained_and_nothing_else,
                                        lifelong_setup, lifelong_teardown),
        cmocka_unit_test(marks_do_not_depend_on_cuts_and_restarts),
        cmocka_unit_test_setup_teardown(a_mark_before_anything_was_trained_is_only_taken_out,
                                        lifelong_setup, lifelong_teardown),
        cmocka_unit_test_setup_teardown(the_end_of_a_source_ends_its_last_line, lifelong_setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(under_drift_a_mark_trains_what_was_deferred_first,
                                        lifelong_setup, lifelong_teardown),
        cmocka_unit_test_setup_teardown(in_place_a_boundary_adds_as_many_experts_under_the_same_ids,
                                        lifelong_setup, lifelong_teardown),
        cmocka_unit_test_setup_teardown(in_place_a_drift_grows_once, lifelong_setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(what_is_further_away_gets_a_larger_side, lifelong_setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(no_more_experts_are_made_than_the_budget_allows,
                                        lifelong_setup, lifelong_teardown),
        cmocka_unit_test_setup_teardown(under_drift_a_full_pool_trains_what_it_would_have_deferred,
                                        lifelong_setup, lifelong_teardown),
        cmocka_unit_test(a_start_from_the_data_changes_no_output),
        cmocka_unit_test_setup_teardown(a_start_leaves_out_older_experts_that_only_harm,
                                        lifelong_setup, lifelong_teardown),
        cmocka_unit_test_setup_teardown(a_start_happens_once_and_at_the_first_batch, lifelong_setup,
                                        lifelong_teardown),
        cmocka_unit_test_setup_teardown(a_sealed_generation_has_never_seen_deferred_bytes,
                                        lifelong_setup, lifelong_teardown),
    };
    return cmocka_run_group_tests_name("trainer policy", tests, NULL, NULL);
}
