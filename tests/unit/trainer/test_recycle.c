// Experts that nothing chooses are reset: which ones, what becomes of them and their optimiser
// state, that they are chosen again, and that the stream alone decides.
#include "expert_recycling.h"
#include "lifelong.h"
#include "trainer_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WINDOW = 20 * LIFELONG_BATCH };

// A grid so large for two letters of a kind that most sub-keys are far from every query.
static void make_recycling(lifelong *f, const char *after, size_t threads) {
    choose(&f->config, "boundaries", "given");
    choose(&f->config, "side", "24");
    choose(&f->config, "recycle_after", after);
    make_pool(f, threads);
}

static reef_generation *open_gen(const lifelong *f) {
    return reef_open_generation(f->trainer);
}

// Put the sub-keys of `count` rows of table a of every layer where no query goes, and teach their
// experts something.
static void hide_rows(lifelong *f, uint32_t count) {
    reef_generation *generation = open_gen(f);
    size_t half = f->config.d_key / 2;
    for (uint32_t l = 0; l < f->config.layers; l++) {
        float *keys = generation->weights.routers[l].sub_keys_a;
        for (size_t i = 0; i < count * half; i++) keys[i] = 0.0f;
        reef_expert_table *table = &generation->expert_tables[l];
        for (size_t n = 0; n < table->expert_count; n++) {
            uint32_t i, j;
            reef_expert_pair_of((reef_expert_id)n, &i, &j);
            if (i >= count) continue;
            for (size_t v = 0; v < table->row_values; v++) {
                table->experts[n * table->row_values + v] = 3.0f;
                table->moments.adam_m[n * table->row_values + v] = 2.0f;
                table->moments.adam_v[n * table->row_values + v] = 5.0f;
                table->moments.average[n * table->row_values + v] = 4.0f;
            }
            table->moments.counts[n] = 7;
        }
    }
}

static bool is_hidden(size_t n, uint32_t count) {
    uint32_t i, j;
    reef_expert_pair_of((reef_expert_id)n, &i, &j);
    return i < count;
}

static void expect_new_row(const lifelong *f, const reef_expert_table *table, size_t n) {
    size_t D = f->config.d_model, first = n * table->row_values;
    double down = 0.0;
    for (size_t d = 0; d < table->row_values; d++) {
        float value = table->experts[first + d];
        assert_true(table->moments.adam_m[first + d] == 0.0f);
        assert_true(table->moments.adam_v[first + d] == 0.0f);
        assert_true(table->moments.average[first + d] == value);
        if (d < D) down += (double)value * (double)value;
        if (d >= D) assert_true(value == 0.0f);
    }
    assert_true(down > 0.1 && down < 10.0); // N(0, 1/D): 1 on average
    assert_int_equal(table->moments.counts[n], 0);
    assert_int_equal(table->dirty[n], 1);
}

static void experts_that_nothing_chose_are_reset_and_nothing_else(void **state) {
    lifelong *f = *state;
    enum { HIDDEN = 5 };
    make_recycling(f, "0", 1); // never by itself: the test says when
    f->trainer->network.config.recycle_after = WINDOW;
    reef_generation *generation = open_gen(f);
    for (uint32_t l = 0; l < 2; l++) {
        generation->expert_tables[l].used_before =
            calloc(generation->expert_tables[l].expert_count, sizeof(uint64_t));
        assert_non_null(generation->expert_tables[l].used_before);
    }
    hide_rows(f, HIDDEN);
    feed_kind(f, 0, WINDOW - LIFELONG_BATCH + 1, 2); // one step less than a window
    assert_int_equal(status_of(f).recycled_experts, 0);
    assert_int_equal(times_said(f, "\"event\": \"recycle\""), 0);
    generation->expert_tables[0].flags[reef_expert_id_of(2, 3)] =
        1; // frozen: neither it nor its sub-keys move
    float key[2][4];
    memcpy(key[0], generation->weights.routers[0].sub_keys_a + 2 * 4, sizeof(key[0]));
    for (uint32_t l = 0; l < 2; l++)
        memset(generation->expert_tables[l].dirty, 0, generation->expert_tables[l].expert_count);
    feed_kind(f, 0, LIFELONG_BATCH, 3);
    assert_int_equal(times_said(f, "\"event\": \"recycle\""), 1);
    size_t new = 0, used = 0;
    for (uint32_t l = 0; l < 2; l++) {
        const reef_expert_table *table = &generation->expert_tables[l];
        for (size_t n = 0; n < table->expert_count; n++) {
            assert_true(table->used_before[n] == table->usage[n].count);
            if (table->usage[n].count > 0) {
                used++;
                assert_true(table->moments.counts[n] > 0); // it keeps what it learned
            } else if (table->flags[n] != 0) {
                assert_true(table->experts[n * table->row_values] == 3.0f);
                assert_int_equal(table->moments.counts[n], 7);
            } else {
                new ++;
                expect_new_row(f, table, n);
            }
            if (is_hidden(n, HIDDEN)) assert_int_equal(table->usage[n].count, 0);
        }
    }
    assert_true(used > 0 && new >= 2 * HIDDEN * 24 - 1);
    assert_int_equal(status_of(f).recycled_experts, new);
    memcpy(key[1], generation->weights.routers[0].sub_keys_a + 2 * 4, sizeof(key[1]));
    assert_memory_equal(key[0], key[1], sizeof(key[0])); // of the frozen expert
    for (uint32_t i = 0; i < HIDDEN; i++) {
        const float *moved = generation->weights.routers[1].sub_keys_a + i * 4;
        assert_true(reef_dot(4, moved, moved) > 0.0f);
    }
}

// Which rows of table a have an expert that was used since the pool was made.
static void rows_in_use(const reef_expert_table *table, bool out[24]) {
    memset(out, 0, 24 * sizeof(*out));
    for (size_t n = 0; n < table->expert_count; n++) {
        uint32_t i, j;
        reef_expert_pair_of((reef_expert_id)n, &i, &j);
        out[i] |= table->usage[n].count > 0;
    }
}

static void a_moved_sub_key_is_as_long_as_those_in_use(void **state) {
    lifelong *f = *state;
    enum { HIDDEN = 5 };
    char after[24];
    snprintf(after, sizeof(after), "%d", WINDOW);
    make_recycling(f, after, 1);
    hide_rows(f, HIDDEN); // zeros, which a mean over all rows would have in it
    feed_kind(f, 0, WINDOW + 1, 2);
    assert_int_equal(times_said(f, "\"event\": \"recycle\""), 1);
    for (uint32_t l = 0; l < 2; l++) {
        bool used[24];
        double sum = 0.0, count = 0.0;
        const float *keys = open_gen(f)->weights.routers[l].sub_keys_a;
        rows_in_use(&open_gen(f)->expert_tables[l], used);
        for (size_t i = 0; i < 24; i++) {
            if (!used[i]) continue;
            sum += sqrt((double)reef_dot(4, keys + 4 * i, keys + 4 * i));
            count++;
        }
        assert_true(count > 0.0 && count < 24.0);
        for (size_t i = 0; i < 24; i++) {
            if (used[i]) continue;
            double length = sqrt((double)reef_dot(4, keys + 4 * i, keys + 4 * i));
            assert_true(fabs(length - sum / count) < 1e-3 * sum / count);
        }
    }
}

static void a_reset_expert_is_left_alone_until_it_has_learned(void **state) {
    lifelong *f = *state;
    char after[24];
    snprintf(after, sizeof(after), "%d", WINDOW);
    make_recycling(f, after, 1);
    feed_kind(f, 0, WINDOW + 1, 2);
    assert_int_equal(times_said(f, "\"event\": \"recycle\""), 1);
    const uint64_t first = status_of(f).recycled_experts;
    const reef_expert_table *table = &open_gen(f)->expert_tables[0];
    const size_t bytes = table->expert_count * table->row_values * sizeof(float);
    float *rows = malloc(bytes);
    uint64_t *used[2];
    assert_non_null(rows);
    memcpy(rows, table->experts, bytes);
    for (uint32_t l = 0; l < 2; l++) {
        const reef_expert_table *each = &open_gen(f)->expert_tables[l];
        used[l] = calloc(each->expert_count, sizeof(**used));
        assert_non_null(used[l]);
        for (size_t n = 0; n < each->expert_count; n++) used[l][n] = each->usage[n].count;
    }
    feed_kind(f, 1, WINDOW, 3); // another kind: other experts are idle now
    uint64_t idle_again = 0, new_still = 0;
    for (uint32_t l = 0; l < 2; l++) {
        const reef_expert_table *each = &open_gen(f)->expert_tables[l];
        for (size_t n = 0; n < each->expert_count; n++) {
            if (each->usage[n].count != used[l][n]) continue;
            if (used[l][n] > 0) {
                idle_again++; // it had learned, and is reset
                expect_new_row(f, each, n);
            } else if (l == 0) {
                new_still++;
                assert_memory_equal(each->experts + n * each->row_values,
                                    rows + n * each->row_values, each->row_values * sizeof(float));
            }
        }
        free(used[l]);
    }
    assert_true(idle_again > 0 && new_still > 0);
    assert_int_equal(status_of(f).recycled_experts, first + idle_again);
    free(rows);
}

static uint64_t uses_of_rows(const lifelong *f, uint32_t count) {
    uint64_t uses = 0;
    for (uint32_t l = 0; l < f->config.layers; l++) {
        const reef_expert_table *table = &open_gen(f)->expert_tables[l];
        for (size_t n = 0; n < table->expert_count; n++)
            if (is_hidden(n, count)) uses += table->usage[n].count;
    }
    return uses;
}

static void recycled_experts_are_chosen_again(void **state) {
    lifelong *f = *state;
    enum { HIDDEN = 5 };
    char after[24];
    snprintf(after, sizeof(after), "%d", WINDOW);
    make_recycling(f, after, 1);
    hide_rows(f, HIDDEN);
    feed_kind(f, 0, WINDOW + 1, 2);
    assert_int_equal(times_said(f, "\"event\": \"recycle\""), 1);
    assert_int_equal(uses_of_rows(f, HIDDEN), 0);
    feed_kind(f, 0, WINDOW / 2, 3);
    assert_true(uses_of_rows(f, HIDDEN) > 0);
    // A pool that does not recycle never comes back to them.
    void *other = NULL;
    lifelong_setup(&other);
    lifelong *g = other;
    make_recycling(g, "0", 1);
    hide_rows(g, HIDDEN);
    feed_kind(g, 0, WINDOW + 1, 2);
    feed_kind(g, 0, WINDOW / 2, 3);
    assert_int_equal(uses_of_rows(g, HIDDEN), 0);
    assert_int_equal(status_of(g).recycled_experts, 0);
    lifelong_teardown(&other);
}

static void sealed_generations_are_not_touched(void **state) {
    lifelong *f = *state;
    reef_error err;
    choose(&f->config, "side_new", "24");
    make_recycling(f, "640", 1);
    feed_kind(f, 0, WINDOW, 2);
    ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
    float *before = new_logits(), *after = new_logits();
    logits_of(f->store, "0", 0, before);
    feed_kind(f, 1, 2 * WINDOW, 2);
    assert_true(times_said(f, "\"event\": \"recycle\"") > 1);
    commit(f);
    logits_of(f->store, "0", 0, after);
    assert_memory_equal(before, after, LIFELONG_PROBE_BYTES * REEF_VOCAB * sizeof(*before));
    free(before);
    free(after);
    reef_txn *txn = NULL; // and nothing of the window is left in what was sealed
    reef_view view;
    const reef_key key = {.db = REEF_DB_TENSORS, .generation = 0, .name = "block0.used"};
    ok(reef_txn_begin(&txn, f->store, REEF_TXN_READ, &err), &err);
    assert_int_equal(reef_record_view(txn, &key, &view, &err), REEF_ERR_NOT_FOUND);
    reef_txn_abort(txn);
}

// ---- the stream alone decides -------------------------------------------------------------------

static void root_of_run(
    size_t threads, size_t cut, bool reopen, uint64_t *recycled, uint8_t root[REEF_HASH_BYTES]) {
    enum { COUNT = 4 * WINDOW + 700 };
    static uint8_t bytes[COUNT];
    void *state = NULL;
    lifelong_setup(&state);
    lifelong *f = state;
    make_recycling(f, "1000", threads); // 16 batches, which no cut divides
    lifelong_text(bytes, COUNT / 2, 0, 5);
    lifelong_text(bytes + COUNT / 2, COUNT - COUNT / 2, 1, 5);
    for (size_t at = 0; at < COUNT; at += cut) {
        feed(f, bytes + at, COUNT - at < cut ? COUNT - at : cut);
        commit(f);
        if (!reopen) continue;
        close_pool(f);
        open_pool(f, threads);
    }
    *recycled = status_of(f).recycled_experts;
    memcpy(root, commit(f).root, REEF_HASH_BYTES);
    lifelong_teardown(&state);
}

static void recycling_has_the_same_bits_for_any_threads_cuts_and_restarts(void **state) {
    (void)state;
    uint8_t expected[REEF_HASH_BYTES], root[REEF_HASH_BYTES];
    uint64_t first, recycled;
    root_of_run(1, 100000, false, &first, expected);
    assert_true(first > 0);
    root_of_run(2, 100000, false, &recycled, root);
    assert_int_equal(recycled, first);
    assert_memory_equal(expected, root, sizeof(root));
    root_of_run(2, 330, true, &recycled, root);
    assert_int_equal(recycled, first);
    assert_memory_equal(expected, root, sizeof(root));
}

static void recycling_goes_on_after_a_kill(void **state) {
    lifelong *f = *state;
    uint8_t bytes[3 * WINDOW];
    lifelong_text(bytes, sizeof(bytes), 0, 6);
    make_recycling(f, "1000", 1);
    close_pool(f);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        open_pool(f, 1);
        feed(f, bytes, 1500); // one window and half of the next
        commit(f);
        feed(f, bytes + 1500, 1000);
        raise(SIGKILL);
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    open_pool(f, 2);
    assert_int_equal(reef_trainer_cursor(f->trainer, "test"), 1500);
    feed(f, bytes + 1500, sizeof(bytes) - 1500);
    reef_commit killed = commit(f);
    void *other = NULL;
    lifelong_setup(&other);
    lifelong *g = other;
    make_recycling(g, "1000", 1);
    feed(g, bytes, sizeof(bytes));
    reef_commit whole = commit(g);
    assert_memory_equal(killed.root, whole.root, sizeof(whole.root));
    assert_int_equal(status_of(f).recycled_experts, status_of(g).recycled_experts);
    lifelong_teardown(&other);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, lifelong_setup, lifelong_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        EACH(experts_that_nothing_chose_are_reset_and_nothing_else),
        EACH(a_moved_sub_key_is_as_long_as_those_in_use),
        EACH(a_reset_expert_is_left_alone_until_it_has_learned),
        EACH(recycled_experts_are_chosen_again),
        EACH(sealed_generations_are_not_touched),
        cmocka_unit_test(recycling_has_the_same_bits_for_any_threads_cuts_and_restarts),
        EACH(recycling_goes_on_after_a_kill),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
