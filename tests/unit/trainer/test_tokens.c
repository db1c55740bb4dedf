// Streams of token ids: the gradients of a vocabulary larger than a byte, the lifelong loop on ids
// of two bytes each, and the refusal of invalid ids.
#include "activations.h"
#include "lifelong.h"
#include "small_model.h"
#include "trainer_internal.h"

#include <math.h>

#define IDS 300       // a vocabulary that is not a power of two, and more than a byte holds
#define PART 6000     // tokens
#define PROBE 400     // tokens
#define LOST_MAX 0.25 // bits per token that a domain may lose to a later one

static int setup_ids(void **state) {
    lifelong_setup(state);
    lifelong *f = *state;
    f->config.vocab = IDS;
    return 0;
}

// Text of a kind with other ids for its bytes: every kind has its own, below and above 256. To be
// freed.
static uint8_t *ids_of(int kind, size_t tokens, uint32_t seed) {
    uint8_t *text = malloc(tokens), *out = malloc(2 * tokens);
    assert_true(text != NULL && out != NULL);
    lifelong_text(text, tokens, kind, seed);
    for (size_t t = 0; t < tokens; t++) {
        unsigned id = text[t] * 7u % IDS; // 7 and 300 have no divisor in common
        out[2 * t] = (uint8_t)id;
        out[2 * t + 1] = (uint8_t)(id >> 8);
    }
    free(text);
    return out;
}

static void feed_ids(lifelong *f, int kind, size_t tokens, uint32_t seed) {
    uint8_t *ids = ids_of(kind, tokens, seed);
    feed(f, ids, 2 * tokens);
    free(ids);
}

static void seal(lifelong *f) {
    reef_error err;
    ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
}

static reef_model *model_of(const lifelong *f, const char *as_of) {
    reef_error err;
    reef_model *model = NULL;
    ok(reef_model_open(&model, f->store, as_of, &(reef_model_options){.threads = 2}, &err), &err);
    return model;
}

static double bits_of(const lifelong *f, const char *as_of, int kind) {
    reef_error err;
    reef_model *model = model_of(f, as_of);
    reef_score score = {0};
    uint8_t *ids = ids_of(kind, PROBE, 99);
    ok(reef_model_score(model, ids, 2 * (size_t)PROBE, NULL, &score, NULL, NULL, &err), &err);
    assert_int_equal(score.bytes, PROBE - 1);
    free(ids);
    reef_model_close(model);
    return score.bits_per_byte;
}

static void assert_refused(reef_status status, const reef_error *err, const char *words) {
    assert_int_equal(status, REEF_ERR_INVALID);
    if (strstr(err->message, words) == NULL) fail_msg("no '%s' in: %s", words, err->message);
}

// ---- gradients ----------------------------------------------------------------------------------

static model_fixture *ids_model(const char *ffw) {
    return small_model(
        (const char *const[]){"vocab", "300", "previous_bytes", "1", "ffw", ffw, NULL});
}

static void a_vocabulary_of_ids_has_true_gradients(void **state) {
    *state = ids_model("pdp");
    check_all_gradients(*state);
    teardown(state);
    *state = ids_model("pdp");
    check_later_generation(*state, REEF_F32);
    teardown(state);
}

// Rows of both tables: of the token itself, and of the one before. Where an id never stands,
// nothing.
static void an_ids_rows_get_its_gradient_and_no_other(void **state) {
    model_fixture *f = ids_model("d");
    *state = f;
    size_t D = f->config.d_model, kept = 0, tried = 0, used = 0;
    f->choices = calloc(1, sizeof(*f->choices));
    assert_non_null(f->choices);
    loss(f);
    const reef_network_update update = {.adam = {.epsilon = 1.0f}};
    reef_network_backward(&f->acts, &f->network, NULL, &f->batch, &update);
    float *values = f->network.generations[0]->weights.embedding,
          *gradient = f->network.generations[0]->grads.embedding;
    for (size_t id = 0; id < 2 * (size_t)IDS; id++) {
        bool stands = false;
        for (size_t t = 0; t < f->rows; t++)
            stands |= reef_token_at(f->tokens, 2, t) == id % IDS &&
                      (id < IDS || (t + 1) % f->config.context != 0);
        used += stands;
        if (stands)
            assert_true(worst_error(f, D, values + id * D, gradient + id * D, 5, &kept, &tried) <
                        ERROR_MAX);
        for (size_t d = 0; d < D && !stands; d++) assert_true(gradient[id * D + d] == 0.0f);
    }
    assert_true(used >= 10 && used <= 12); // six ids
    assert_int_equal(kept, tried);         // a dense model chooses nothing
    teardown(state);
}

// ---- the stream ---------------------------------------------------------------------------------

static void ids_are_learned_sealed_and_kept(void **state) {
    lifelong *f = *state;
    make_pool(f, 2);
    feed_ids(f, 0, PART, 1);
    commit(f);
    reef_source_loss loss_of;
    assert_true(reef_trainer_source_loss(f->trainer, "test", &loss_of));
    assert_int_equal(loss_of.scored, (PART - 1) / LIFELONG_BATCH * LIFELONG_BATCH);
    double fresh = bits_of(f, "now", 1), learned = bits_of(f, "now", 0);
    assert_true(learned < 0.5 * log2(IDS));
    assert_true(fresh > log2(IDS) - 1);
    feed_ids(f, 1, PART, 1); // the drift test finds the change
    reef_trainer_status now = status_of(f);
    assert_int_equal(now.generation, 1);
    assert_true(now.opened_at > 2 * PART - 4 * 2 * LIFELONG_BATCH);
    assert_true(now.opened_at < 2 * PART + 2 * LIFELONG_BATCH);
    assert_int_equal(now.stream_bytes % (2 * LIFELONG_BATCH), 0);
    assert_int_equal(now.stream_bytes + now.pending_bytes, 4 * PART);
    commit(f);
    assert_true(bits_of(f, "0", 0) == bits_of(f, "now", 0)); // to the bit
    assert_true(fabs(bits_of(f, "now", 0) - learned) < LOST_MAX);
    assert_true(bits_of(f, "now", 1) < 0.5 * log2(IDS));
    assert_true(bits_of(f, "0", 1) > bits_of(f, "now", 1) + 2);
    feed_ids(f, 0, 40 * LIFELONG_BATCH, 2); // a domain that came back
    assert_int_equal(status_of(f).generation, 1);
    assert_true(status_of(f).not_learned_bytes > 0);
    assert_int_equal(status_of(f).not_learned_bytes % (2 * LIFELONG_BATCH), 0);
}

static void losses_belong_to_the_source_of_their_token(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_source_loss one, two;
    uint8_t *ids = ids_of(0, 300, 1);
    make_pool(f, 1);
    ok(reef_trainer_feed(f->trainer, "one", ids, 2 * 100, NULL, NULL, &err), &err);
    ok(reef_trainer_feed(f->trainer, "two", ids + 2 * 100, 2 * 200, NULL, NULL, &err), &err);
    assert_true(reef_trainer_source_loss(f->trainer, "one", &one));
    assert_true(reef_trainer_source_loss(f->trainer, "two", &two));
    assert_int_equal(one.scored, 99); // all but the first
    assert_int_equal(two.scored, 4 * LIFELONG_BATCH - 99);
    free(ids);
}

// What a gate is fitted on is counted in tokens.
static void windows_of_the_reservoir_are_whole_tokens(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_reservoir_lists lists;
    make_pool(f, 1);
    feed_ids(f, 0, PART, 1);
    const reef_reservoir *reservoir = &f->trainer->reservoir;
    ok(reef_reservoir_lists_init(&lists, reservoir, 1, NULL, &err), &err);
    assert_true(lists.old_fit.count > 10);
    assert_int_equal(lists.old_fit.sizes[0], f->config.reservoir_window / 2);
    for (size_t t = 0; t < lists.old_fit.sizes[0]; t++)
        assert_true(reef_token_at(lists.old_fit.bytes[0], 2, t) < IDS);
    reef_reservoir_lists_release(&lists);
}

static void gates_of_ids_fire_on_their_own(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_gate_stats stats;
    float margins[2][PROBE];
    make_pool(f, 1);
    for (int kind = 0; kind < 2; kind++) {
        feed_ids(f, kind, PART, 1);
        seal(f);
    }
    reef_model *model = model_of(f, "now");
    for (int kind = 0; kind < 2; kind++) {
        uint8_t *ids = ids_of(kind, PROBE, 99);
        size_t fired = 0;
        ok(reef_model_gate_margins(model, 1, ids, 2 * (size_t)PROBE, &stats, margins[kind], &err),
           &err);
        for (size_t t = 0; t < PROBE; t++) fired += margins[kind][t] > 0.0f;
        assert_true(kind == 1 ? fired > PROBE * 9 / 10 : fired == 0);
        free(ids);
    }
    reef_model_close(model);
}

static void losses_are_those_of_the_logits(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_score score = {0};
    make_pool(f, 2);
    feed_ids(f, 0, PART, 1);
    commit(f);
    reef_model *model = model_of(f, "now");
    uint8_t *ids = ids_of(0, PROBE, 5);
    float *logits = calloc((size_t)PROBE * IDS, sizeof(*logits)), bits[PROBE];
    assert_non_null(logits);
    ok(reef_model_score(model, ids, 2 * (size_t)PROBE, bits, &score, NULL, NULL, &err), &err);
    ok(reef_model_logits(model, ids, 2 * (size_t)PROBE, logits, &err), &err);
    assert_float_equal(bits[0], log2(IDS), 1e-6);
    double all = 0;
    for (size_t t = 0; t + 1 < PROBE; t++) {
        double sum = 0, target = (double)logits[t * IDS + reef_token_at(ids, 2, t + 1)];
        for (size_t v = 0; v < IDS; v++) sum += exp((double)logits[t * IDS + v] - target);
        assert_float_equal((double)bits[t + 1], log2(sum), 1e-4);
        all += log2(sum);
    }
    assert_float_equal(score.bits, all, 1e-3);
    free(logits);
    free(ids);
    reef_model_close(model);
}

static void the_largest_vocabulary_is_scored(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_score score = {0};
    f->config.vocab = 65536;
    f->config.d_model = 4;
    f->config.context = 64;
    f->config.previous_bytes = 0;
    f->config.rehearse = 0; // windows of the reservoir are shorter
    make_pool(f, 2);
    uint8_t ids[2 * PROBE];
    for (size_t t = 0; t < PROBE; t++) {
        ids[2 * t] = t % 2 ? 0xff : (uint8_t)t;
        ids[2 * t + 1] = 0xff;
    }
    reef_model *model = model_of(f, "now");
    float bits[PROBE];
    ok(reef_model_score(model, ids, sizeof(ids), bits, &score, NULL, NULL, &err), &err);
    assert_true(bits[0] == 16.0f);
    assert_float_equal(score.bits_per_byte, 16, 1); // it knows nothing yet
    reef_model_close(model);
}

// The root of a stream of three kinds fed in cuts of so many bytes, and with `reopen` taken up from
// the pool at some of them.
static void root_of_cuts(size_t cut, bool reopen, uint8_t root[REEF_HASH_BYTES]) {
    void *state = NULL;
    setup_ids(&state);
    lifelong *f = state;
    const size_t part = 2 * 4000, total = 3 * part;
    uint8_t *stream = malloc(total);
    assert_non_null(stream);
    for (int kind = 0; kind < 3; kind++) {
        uint8_t *ids = ids_of(kind, part / 2, 7);
        memcpy(stream + (size_t)kind * part, ids, part);
        free(ids);
    }
    make_pool(f, 2);
    for (size_t at = 0, cuts = 0; at < total; cuts++) {
        size_t count = total - at < cut ? total - at : cut;
        feed(f, stream + at, count);
        at += count;
        if (!reopen || cuts % 5 != 2) continue;
        commit(f);
        if (at < total) feed(f, stream + at, 1); // lost with the process
        close_pool(f);
        open_pool(f, 1);
        assert_int_equal(reef_trainer_cursor(f->trainer, "test"), at);
    }
    memcpy(root, commit(f).root, REEF_HASH_BYTES);
    assert_true(status_of(f).generation >= 1);
    free(stream);
    lifelong_teardown(&state);
}

static void cuts_within_tokens_and_restarts_leave_no_trace(void **state) {
    (void)state;
    uint8_t whole[REEF_HASH_BYTES], cut[REEF_HASH_BYTES];
    root_of_cuts(SIZE_MAX, false, whole);
    root_of_cuts(333, false, cut); // every other cut lies within a token
    assert_memory_equal(whole, cut, REEF_HASH_BYTES);
    root_of_cuts(1111, true, cut);
    assert_memory_equal(whole, cut, REEF_HASH_BYTES);
}

// ---- what is no id ------------------------------------------------------------------------------

static void a_bad_id_is_named_and_nothing_is_lost(void **state) {
    lifelong *f = *state;
    reef_error err;
    size_t taken;
    uint8_t clean[REEF_HASH_BYTES], *ids = ids_of(0, PART, 1);
    make_pool(f, 1);
    feed(f, ids, 2 * (size_t)PART);
    memcpy(clean, commit(f).root, sizeof(clean));
    close_pool(f);
    temp_dir_remove(f->pool);

    make_pool(f, 1);
    uint8_t low = ids[2 * 1500], high = ids[2 * 1500 + 1];
    ids[2 * 1500] = 0x2c; // 300
    ids[2 * 1500 + 1] = 0x01;
    reef_status status =
        reef_trainer_feed(f->trainer, "test", ids, 2 * (size_t)PART, &taken, NULL, &err);
    assert_refused(status, &err, "test has the id 300 as token 1500, at byte 3000");
    assert_refused(status, &err, "ids are 0 to 299");
    assert_true(taken < 3000 && taken >= 3000 - 4 * LIFELONG_BATCH);
    assert_int_equal(reef_trainer_cursor(f->trainer, "test"), taken);
    feed(f, ids + taken, 3001 - taken); // up to within the bad one
    status = reef_trainer_feed(f->trainer, "test", ids + 3001, 100, &taken, NULL, &err);
    assert_refused(status, &err, "test has the id 300 as token 1500, at byte 3000");
    assert_int_equal(taken, 0);
    commit(f);
    close_pool(f);
    temp_dir_remove(f->pool);

    make_pool(f, 1);
    ids[2 * 1500] = 0xff;
    ids[2 * 1500 + 1] = 0xff;
    assert_int_equal(
        reef_trainer_feed(f->trainer, "test", ids, 2 * (size_t)PART, &taken, NULL, &err),
        REEF_ERR_INVALID);
    ids[2 * 1500] = low;
    ids[2 * 1500 + 1] = high;
    feed(f, ids + taken, 2 * (size_t)PART - taken); // as if nothing had been
    assert_memory_equal(clean, commit(f).root, sizeof(clean));
    free(ids);
}

static void sources_change_between_tokens_only(void **state) {
    lifelong *f = *state;
    reef_error err;
    size_t taken;
    const uint8_t some[] = {1, 0, 2};
    make_pool(f, 1);
    feed(f, some, 3);
    assert_refused(reef_trainer_feed(f->trainer, "other", some, 2, &taken, NULL, &err), &err,
                   "source other begins a token, but the one before it ended within one");
    assert_int_equal(taken, 0);
    feed(f, some + 1, 1);
    ok(reef_trainer_feed(f->trainer, "other", some, 2, &taken, NULL, &err), &err);
}

static void texts_that_are_no_ids_are_refused(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_score score = {0};
    reef_sampling sampling = {0};
    uint8_t ids[] = {1, 0, 43, 1, 44, 1}, out[4];
    float values[3 * IDS];
    reef_gate_stats stats;
    make_pool(f, 1);
    feed_ids(f, 0, PART, 1);
    seal(f);
    reef_model *model = model_of(f, "now");
    ok(reef_model_score(model, ids, 4, NULL, &score, NULL, NULL, &err), &err); // 1 and 299
    assert_int_equal(score.bytes, 1);
    assert_refused(reef_model_score(model, ids, 2, NULL, &score, NULL, NULL, &err), &err,
                   "1 token ids has nothing to predict");
    assert_refused(reef_model_score(model, ids, 3, NULL, &score, NULL, NULL, &err), &err,
                   "the text ends within a token, after byte 3");
    assert_refused(reef_model_score(model, ids, 6, NULL, &score, NULL, NULL, &err), &err,
                   "the text has the id 300 as token 2, at byte 4");
    assert_refused(reef_model_logits(model, ids, 6, values, &err), &err, "id 300");
    assert_refused(reef_model_gate_margins(model, 1, ids, 6, &stats, values, &err), &err, "id 300");
    assert_refused(reef_model_generate(model, ids, 2, 4, &sampling, out, &err), &err,
                   "ids of a vocabulary of 300");
    reef_model_close(model);
}

// What a pool holds is not believed either: rows would be looked for outside the tables.
static void stored_ids_outside_the_vocabulary_are_damage(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_txn *txn = NULL;
    reef_commit made = {0};
    const uint8_t bad[] = {44, 1, 0};
    make_pool(f, 1);
    feed_ids(f, 0, PART, 1);
    commit(f);
    uint8_t slot[16 + 64] = {[4] = 64, [20] = 44, [21] = 1}; // generation, size, offset, window
    const struct {
        reef_key key;
        const void *bytes;
        size_t count;
        const char *words;
    } records[] = {
        {{.db = REEF_DB_TENSORS, .name = "carry"}, bad, 3, "part that waits has the id 300"},
        {{.db = REEF_DB_RESERVOIR, .block = 1}, slot, sizeof(slot), "reservoir has the id 300"},
    };
    for (size_t i = 0; i < 2; i++) {
        reef_view view;
        uint8_t before[512];
        size_t count;
        reef_trainer *trainer = NULL;
        reef_trainer_close(f->trainer);
        f->trainer = NULL;
        for (int back = 0; back < 2; back++) {
            ok(reef_txn_begin(&txn, f->store, REEF_TXN_WRITE, &err), &err);
            if (!back) {
                ok(reef_record_view(txn, &records[i].key, &view, &err), &err);
                assert_true((count = view.bytes) <= sizeof(before));
                memcpy(before, view.data, count);
            }
            ok(reef_record_put(txn, &records[i].key, REEF_BYTES, back ? before : records[i].bytes,
                               back ? count : records[i].count, &err),
               &err);
            ok(reef_txn_commit(txn, &made, &err), &err);
            reef_status status = reef_trainer_open(&trainer, f->store, NULL, &err);
            if (back) {
                ok(status, &err);
                reef_trainer_close(trainer);
                continue;
            }
            assert_int_equal(status, REEF_ERR_CORRUPT);
            if (strstr(err.message, records[i].words) == NULL) fail_msg("%s", err.message);
        }
    }
}

static void settings_that_do_not_go_with_ids_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *name, *value, *words;
    } CASES[] = {
        {"vocab", "1", "must be 2 to 65536"},
        {"vocab", "65537", "must be 2 to 65536"},
        {"boundary_mark", "---", "boundary_mark is a line of text"},
        {"reservoir_window", "63", "reservoir_window 63 is odd"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(*CASES); i++) {
        reef_error err;
        reef_config config = lifelong_config();
        config.vocab = IDS;
        reef_status status = reef_config_set(&config, CASES[i].name, CASES[i].value, &err);
        if (status == REEF_OK) status = reef_config_check(&config, &err);
        assert_refused(status, &err, CASES[i].words);
    }
    reef_error err;
    reef_config config = lifelong_config();
    config.vocab = 65536;
    config.d_model = 1024;
    assert_refused(reef_config_check(&config, &err), &err, "lower previous_bytes or d_model");
    choose(&config, "model", "layer");
    reef_config_reduce(&config);
    assert_int_equal(config.vocab, REEF_VOCAB);
}

// ---- everything else that reads the stream ------------------------------------------------------

static void policies_that_read_queries_and_losses_take_ids(void **state) {
    lifelong *f = *state;
    choose(&f->config, "gate", "ngram");
    make_pool(f, 2);
    for (int kind = 0; kind < 3; kind++) feed_ids(f, kind, PART, 1);
    assert_int_equal(status_of(f).generation, 2);
    commit(f);
    for (int kind = 0; kind < 3; kind++) assert_true(bits_of(f, "now", kind) < 0.6 * log2(IDS));
}

static void a_generation_of_ids_goes_from_pool_to_pool(void **state) {
    lifelong *f = *state;
    reef_error err;
    reef_import import;
    void *other_state = NULL;
    char path[TEMP_DIR_BYTES];
    setup_ids(&other_state);
    lifelong *other = other_state;
    make_pool(f, 1);
    make_pool(other, 1);
    feed_ids(f, 0, PART, 1);
    seal(f);
    feed_ids(other, 0, PART, 1);
    seal(other);
    feed_ids(f, 1, PART, 1);
    seal(f);
    temp_dir_join(path, f->dir, "one.safetensors");
    ok(reef_generation_export(f->store, 1, path, NULL, NULL, &err), &err);
    ok(reef_trainer_import(other->trainer, path, NULL, &import, &err), &err);
    assert_int_equal(import.generation, 1);
    assert_true(bits_of(f, "1", 1) == bits_of(other, "1", 1));
    lifelong_teardown(&other_state);

    setup_ids(&other_state);
    other = other_state;
    other->config.vocab = IDS + 1;
    make_pool(other, 1);
    feed_ids(other, 0, PART, 1);
    seal(other);
    assert_refused(reef_trainer_import(other->trainer, path, NULL, &import, &err), &err,
                   "with vocab 300, this one was made with 301");
    lifelong_teardown(&other_state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_ids, lifelong_teardown)
        cmocka_unit_test(a_vocabulary_of_ids_has_true_gradients),
        cmocka_unit_test(an_ids_rows_get_its_gradient_and_no_other),
        TEST(ids_are_learned_sealed_and_kept),
        TEST(losses_belong_to_the_source_of_their_token),
        TEST(windows_of_the_reservoir_are_whole_tokens),
        TEST(gates_of_ids_fire_on_their_own),
        TEST(losses_are_those_of_the_logits),
        TEST(the_largest_vocabulary_is_scored),
        cmocka_unit_test(cuts_within_tokens_and_restarts_leave_no_trace),
        TEST(a_bad_id_is_named_and_nothing_is_lost),
        TEST(sources_change_between_tokens_only),
        TEST(texts_that_are_no_ids_are_refused),
        TEST(stored_ids_outside_the_vocabulary_are_damage),
        cmocka_unit_test(settings_that_do_not_go_with_ids_are_refused),
        TEST(policies_that_read_queries_and_losses_take_ids),
        TEST(a_generation_of_ids_goes_from_pool_to_pool),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
