// A branch: the open generation begins as a copy of a sealed one. The pool's function and the
// sealed one stay the same, to the bit; the copy is the requested one; and the stream decides what
// becomes of it.
#include "branch.h"
#include "lifelong.h"
#include "model_internal.h"
#include "reef_pool_check.h"

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

enum { PART = 60 * LIFELONG_BATCH, LOGITS = LIFELONG_PROBE_BYTES * REEF_VOCAB };

static const reef_generation *gen_of(const lifelong *f, size_t g) {
    assert_true(g < f->trainer->network.generation_count);
    return f->trainer->network.generations[g];
}

static void seal(lifelong *f) {
    reef_error err;
    ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
}

// Generations 0 to 2 sealed, each with a kind of its own and the last one of them larger; 3 open
// and new.
static void make_sealed(lifelong *f, size_t threads) {
    choose(&f->config, "boundaries", "given");
    make_pool(f, threads);
    for (int kind = 0; kind < 3; kind++) {
        feed_kind(f, kind, PART, 3);
        if (kind == 1) {
            reef_error err;
            ok(reef_trainer_grow(f->trainer, 5, &err), &err);
        }
        seal(f);
    }
}

static reef_branch branch(lifelong *f, uint32_t from) {
    reef_error err;
    reef_branch out;
    ok(reef_trainer_branch(f->trainer, from, false, &out, &err), &err);
    return out;
}

static float *logits_as_of(lifelong *f, const char *as_of, int kind) {
    float *logits = new_logits();
    logits_of(f->store, as_of, kind, logits);
    return logits;
}

static void assert_same(const float *a, const float *b) {
    assert_memory_equal(a, b, (size_t)LOGITS * sizeof(*a));
}

// ---- the function -------------------------------------------------------------------------------

// What three kinds of text get right now and as of each sealed generation.
typedef struct picture {
    float *now[3], *then[3];
} picture;

static picture take(lifelong *f) {
    static const char *const STATES[] = {"0", "1", "2"};
    picture p;
    for (int kind = 0; kind < 3; kind++) {
        p.now[kind] = logits_as_of(f, NULL, kind);
        p.then[kind] = logits_as_of(f, STATES[kind], kind);
    }
    return p;
}

static void drop(picture *p) {
    for (int kind = 0; kind < 3; kind++) {
        free(p->now[kind]);
        free(p->then[kind]);
    }
}

static void expect_function_kept(lifelong *f, uint32_t from) {
    reef_generation_record before = gen_of(f, from)->info;
    uint8_t root[REEF_HASH_BYTES];
    reef_error err;
    reef_txn *txn = NULL;
    reef_generation_record info;
    ok(reef_txn_begin(&txn, f->store, REEF_TXN_READ, &err), &err);
    ok(reef_generation_read(txn, from, &info, &err), &err);
    reef_txn_abort(txn);
    memcpy(root, info.root, sizeof(root));
    picture old = take(f);
    branch(f, from);
    picture new = take(f);
    for (int kind = 0; kind < 3; kind++) {
        assert_same(old.now[kind], new.now[kind]);
        assert_same(old.then[kind], new.then[kind]);
    }
    drop(&new);
    feed_kind(f, 3, PART, 4);
    commit(f);
    new = take(f);
    for (int kind = 0; kind < 3; kind++) assert_same(old.then[kind], new.then[kind]);
    drop(&new);
    drop(&old);
    ok(reef_txn_begin(&txn, f->store, REEF_TXN_READ, &err), &err);
    ok(reef_generation_read(txn, from, &info, &err), &err);
    reef_txn_abort(txn);
    assert_memory_equal(root, info.root, sizeof(root));
    assert_int_equal(gen_of(f, from)->info.side, before.side);
    reef_check_report report;
    ok(reef_store_check(f->store, NULL, NULL, &report, &err), &err);
    assert_int_equal(report.damaged, 0);
}

static void a_branch_leaves_the_function_and_what_is_sealed_as_they_are(void **state) {
    lifelong *f = *state;
    make_sealed(f, 1);
    expect_function_kept(f, 1);
}

static void a_branch_without_gates_changes_nothing_either(void **state) {
    lifelong *f = *state;
    choose(&f->config, "gate", "off");
    make_sealed(f, 1);
    expect_function_kept(f, 2);
}

static void a_branch_of_the_first_generation_changes_nothing_either(void **state) {
    lifelong *f = *state;
    make_sealed(f, 1);
    expect_function_kept(f, 0);
}

static void a_branch_where_several_may_answer_changes_nothing_either(void **state) {
    lifelong *f = *state;
    choose(&f->config, "fire_max", "2");
    make_sealed(f, 1);
    expect_function_kept(f, 1);
}

// ---- what is copied -----------------------------------------------------------------------------

static void expect_copy(const lifelong *f, uint32_t from, bool whole) {
    const reef_generation *old = gen_of(f, from), *open = reef_open_generation(f->trainer);
    size_t D = f->config.d_model;
    assert_int_equal(open->info.side, old->info.side);
    assert_int_equal(open->info.parent, from);
    for (uint32_t l = 0; l < f->config.layers; l++) {
        const reef_expert_table *a = &old->expert_tables[l], *b = &open->expert_tables[l];
        size_t keys = (size_t)old->info.side * (f->config.d_key / 2) * sizeof(float);
        assert_int_equal(a->expert_count, b->expert_count);
        assert_memory_equal(old->weights.routers[l].sub_keys_a, open->weights.routers[l].sub_keys_a,
                            keys);
        assert_memory_equal(old->weights.routers[l].sub_keys_b, open->weights.routers[l].sub_keys_b,
                            keys);
        for (size_t n = 0; n < a->expert_count; n++) {
            const float *from_row = a->experts + n * a->row_values;
            const float *row = b->experts + n * b->row_values;
            assert_memory_equal(from_row, row, D * sizeof(float));
            for (size_t d = D; d < 2 * D; d++) assert_true(row[d] == (whole ? from_row[d] : 0.0f));
            assert_int_equal(b->usage[n].count, 0);
        }
        assert_memory_equal(b->moments.average, b->experts,
                            b->expert_count * b->row_values * sizeof(float));
    }
    if (from == 0) return;
    const reef_tensor *head = reef_generation_find(open, "delta_head");
    const reef_tensor *old_head = reef_generation_find(old, "delta_head");
    for (size_t i = 0; i < head->count; i++)
        assert_true(head->data[i] == (whole ? old_head->data[i] : 0.0f));
}

static void a_branch_copies_all_where_one_generation_answers(void **state) {
    lifelong *f = *state;
    make_sealed(f, 1);
    reef_branch made = branch(f, 2); // of another side than the open one had
    assert_true(made.whole);
    assert_int_equal(made.from, 2);
    assert_int_equal(made.generation, 3);
    assert_int_equal(made.side, 4);
    assert_int_equal(made.experts, 2 * 16);
    expect_copy(f, 2, true);
    made = branch(f, 1); // again, and larger
    assert_int_equal(made.side, 5);
    expect_copy(f, 1, true);
    assert_int_equal(times_said(f, "\"event\": \"branch\""), 2);
    close_pool(f);
    open_pool(f, 1);
    expect_copy(f, 1, true);
}

static void a_branch_begins_silent_where_both_might_answer(void **state) {
    lifelong *f = *state;
    choose(&f->config, "fire_max", "2");
    make_sealed(f, 1);
    assert_false(branch(f, 1).whole);
    expect_copy(f, 1, false);
    assert_false(branch(f, 0).whole);
    expect_copy(f, 0, false);
}

static void a_branch_reads_rows_of_bf16(void **state) {
    lifelong *f = *state;
    choose(&f->config, "seal_dtype", "bf16");
    make_sealed(f, 1);
    branch(f, 2);
    const reef_expert_table *old = &gen_of(f, 2)->expert_tables[1];
    const reef_expert_table *new = &reef_open_generation(f->trainer)->expert_tables[1];
    const reef_bf16 *rows = old->rows.blocks[0];
    size_t other = 0;
    for (size_t i = 0; i < old->expert_count * old->row_values; i++) {
        uint32_t bits;
        memcpy(&bits, &new->experts[i], sizeof(bits));
        assert_int_equal(bits, (uint32_t)rows[i] << 16);
        other += bits != 0;
    }
    assert_true(other > 0);
}

// Loss of a whole branch with its gate forced open, as training does, on its origin's own kind of
// text: that of a copy, not that of a new generation.
static double first_bits(lifelong *f, int kind) {
    feed_kind(f, kind, LIFELONG_BATCH + 1, 77);
    return status_of(f).last_bits_per_byte;
}

static void a_whole_branch_goes_on_from_what_its_origin_knows(void **state) {
    lifelong *f = *state;
    make_sealed(f, 1);
    branch(f, 1);
    double copied = first_bits(f, 1);
    close_pool(f);
    void *other = NULL;
    lifelong_setup(&other);
    lifelong *g = other;
    make_sealed(g, 1);
    double new = first_bits(g, 1);
    lifelong_teardown(&other);
    assert_true(copied < new - 0.5);
}

// ---- refusals -----------------------------------------------------------------------------------

static void refuse(lifelong *f, uint32_t from, reef_status status, const char *words) {
    reef_error err;
    size_t said = times_said(f, "\"event\": \"branch\"");
    assert_int_equal(reef_trainer_branch(f->trainer, from, true, NULL, &err), status);
    assert_int_equal(reef_trainer_branch(f->trainer, from, false, NULL, &err), status);
    if (strstr(err.message, words) == NULL) fail_msg("no '%s' in: %s", words, err.message);
    assert_int_equal(times_said(f, "\"event\": \"branch\""), said);
}

static void what_cannot_be_branched_is_refused(void **state) {
    lifelong *f = *state;
    reef_error err;
    make_sealed(f, 1);
    refuse(f, 3, REEF_ERR_INVALID, "it is open; only a sealed one");
    refuse(f, 9, REEF_ERR_NOT_FOUND, "the pool has 0 to 3");
    reef_branch plan;
    ok(reef_trainer_branch(f->trainer, 1, true, &plan, &err), &err); // changes nothing
    assert_int_equal(plan.side, 5);
    assert_int_equal(reef_open_generation(f->trainer)->info.side, 4);
    assert_int_equal(reef_open_generation(f->trainer)->info.parent, 2);
    feed_kind(f, 3, LIFELONG_BATCH + 1, 5);
    refuse(f, 1, REEF_ERR_INVALID, "steps, which would be lost; seal it first");
    seal(f);
    branch(f, 1);
    assert_int_equal(reef_open_generation(f->trainer)->info.generation, 4);
}

static void a_branch_keeps_to_the_bound_on_experts(void **state) {
    lifelong *f = *state;
    choose(&f->config, "experts_max", "186"); // 2 * (36 + 25 + 16 + 16): not one more
    make_sealed(f, 1);
    refuse(f, 1, REEF_ERR_FULL, "experts_max 186");
    branch(f, 2);
}

// ---- the stream alone decides -------------------------------------------------------------------

static void root_after_branch(size_t threads, bool reopen, uint8_t root[REEF_HASH_BYTES]) {
    void *state = NULL;
    lifelong_setup(&state);
    lifelong *f = state;
    choose(&f->config, "subkeys_new", "queries"); // must not touch the copy's sub-keys
    make_sealed(f, threads);
    branch(f, 1);
    if (reopen) {
        close_pool(f);
        open_pool(f, threads);
    }
    feed_kind(f, 4, PART, 8);
    assert_int_equal(times_said(f, "\"event\": \"start\", "), 2); // of generations 1 and 2
    memcpy(root, commit(f).root, REEF_HASH_BYTES);
    lifelong_teardown(&state);
}

static void a_branch_has_the_same_bits_for_any_threads_and_after_a_restart(void **state) {
    (void)state;
    uint8_t expected[REEF_HASH_BYTES], root[REEF_HASH_BYTES];
    root_after_branch(1, false, expected);
    root_after_branch(2, false, root);
    assert_memory_equal(expected, root, sizeof(root));
    root_after_branch(2, true, root);
    assert_memory_equal(expected, root, sizeof(root));
}

static void a_branch_goes_on_after_a_kill(void **state) {
    lifelong *f = *state;
    make_sealed(f, 1);
    close_pool(f);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        open_pool(f, 1);
        branch(f, 1);
        feed_kind(f, 4, PART / 2, 8); // lost with the process
        raise(SIGKILL);
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    open_pool(f, 1);
    expect_copy(f, 1, true);
    feed_kind(f, 4, PART, 8);
    reef_commit killed = commit(f);
    void *other = NULL;
    lifelong_setup(&other);
    lifelong *g = other;
    make_sealed(g, 1);
    branch(g, 1);
    feed_kind(g, 4, PART, 8);
    reef_commit whole = commit(g);
    assert_memory_equal(killed.root, whole.root, sizeof(whole.root));
    lifelong_teardown(&other);
}

#define EACH(test) cmocka_unit_test_setup_teardown(test, lifelong_setup, lifelong_teardown)

// ---- with context memories ----------------------------------------------------------------------

static const reef_generation_memory *memory_of(const lifelong *f) {
    return &reef_open_generation(f->trainer)->memory;
}

// What a text of kind 1 costs by the memory of one generation alone.
static double bits_by_memory(const lifelong *f, uint32_t generation) {
    reef_error err;
    reef_model *model = NULL;
    reef_memory_session *session = NULL;
    uint8_t text[LIFELONG_PROBE_BYTES];
    float bits[LIFELONG_PROBE_BYTES];
    double sum = 0.0;
    lifelong_text(text, sizeof(text), 1, 99);
    ok(reef_model_open(&model, f->store, NULL, &(reef_model_options){.threads = 1}, &err), &err);
    const reef_memory *memory = model->network.generations[generation]->memory.memory;
    ok(reef_memory_session_open(&session, memory, false, &err), &err);
    ok(reef_memory_session_read(session, text, sizeof(text), NULL, bits, &err), &err);
    for (size_t i = 0; i < sizeof(text); i++) sum += (double)bits[i];
    reef_memory_session_close(session);
    reef_model_close(model);
    return sum;
}

// Branch generation 1 and learn more of its kind; `reopen` after each step.
static reef_commit branch_and_learn(lifelong *f, const char *share, bool reopen) {
    double before[3];
    remember(f);
    choose(&f->config, "net_share", share);
    make_sealed(f, 1);
    for (int kind = 0; kind < 3; kind++) before[kind] = bits_as_of(f, NULL, kind);
    assert_null(gen_of(f, 1)->memory.memory); // it is stored
    branch(f, 1);
    for (int kind = 0; kind < 3; kind++) assert_true(bits_as_of(f, NULL, kind) == before[kind]);
    assert_true(bits_by_memory(f, 3) == bits_by_memory(f, 1));
    uint64_t learned = reef_memory_learned_bytes(memory_of(f)->memory);
    assert_in_range(learned, PART - 2 * LIFELONG_BATCH, PART + LIFELONG_BATCH);
    for (uint32_t i = 0; i < 3; i++) {
        if (reopen) {
            close_pool(f);
            open_pool(f, 2);
        }
        feed_kind(f, 1, PART, 4 + i);
        commit(f);
    }
    assert_in_range(reef_memory_learned_bytes(memory_of(f)->memory),
                    learned + 3 * PART - 2 * LIFELONG_BATCH, learned + 3 * PART + LIFELONG_BATCH);
    seal(f);
    assert_true(bits_by_memory(f, 3) < bits_by_memory(f, 2));
    assert_true(bits_as_of(f, "2", 1) == before[1]);
    assert_sound(f);
    return commit(f);
}

static void expect_memory_goes_on(lifelong *f, const char *share) {
    reef_commit once = branch_and_learn(f, share, false);
    close_pool(f);
    temp_dir_remove(f->pool);
    f->said[0] = '\0';
    reef_commit again = branch_and_learn(f, share, true);
    assert_memory_equal(again.root, once.root, sizeof(once.root));
}

static void a_branch_goes_on_with_the_memory_of_its_origin(void **state) {
    expect_memory_goes_on(*state, "1");
}

static void and_where_there_is_no_net(void **state) {
    expect_memory_goes_on(*state, "0");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        EACH(a_branch_leaves_the_function_and_what_is_sealed_as_they_are),
        EACH(a_branch_without_gates_changes_nothing_either),
        EACH(a_branch_of_the_first_generation_changes_nothing_either),
        EACH(a_branch_where_several_may_answer_changes_nothing_either),
        EACH(a_branch_copies_all_where_one_generation_answers),
        EACH(a_branch_begins_silent_where_both_might_answer),
        EACH(a_branch_reads_rows_of_bf16),
        EACH(a_whole_branch_goes_on_from_what_its_origin_knows),
        EACH(what_cannot_be_branched_is_refused),
        EACH(a_branch_keeps_to_the_bound_on_experts),
        cmocka_unit_test(a_branch_has_the_same_bits_for_any_threads_and_after_a_restart),
        EACH(a_branch_goes_on_after_a_kill),
        EACH(a_branch_goes_on_with_the_memory_of_its_origin),
        EACH(and_where_there_is_no_net),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
