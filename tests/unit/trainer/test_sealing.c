// Sealing: what rounding a generation's rows does and costs, what is measured and reported, and
// that sealed generations are exact from then on.
#include "lifelong_process.h"
#include "test.h"
#include "trainer_internal.h"

#include <math.h>

#define LOGIT_BYTES LIFELONG_LOGIT_BYTES

// Rows of 3 * 16 values: 512 of them as floats are the most that fit a block, whatever their type.
#define GLU_BLOCK_ROWS 512

static void assert_rows_are_stored_as(const lifelong *f, uint32_t g, reef_dtype dtype) {
    size_t side = g == 0 ? f->config.side : f->config.side;
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    for (uint32_t layer = 0; layer < f->config.layers; layer++) {
        size_t left = side * side;
        for (uint32_t block = 0; left > 0; block++) {
            size_t rows = left < GLU_BLOCK_ROWS ? left : GLU_BLOCK_ROWS;
            reef_key key = {.db = REEF_DB_EXPERTS, .generation = g, .layer = layer, .block = block};
            reef_view view;
            must(reef_record_view(txn, &key, &view, &why));
            assert_int_equal(view.dtype, dtype);
            assert_int_equal(view.bytes, rows * (dtype == REEF_I8 ? 4 + 3 * 16 : 4 * 3 * 16));
            left -= rows;
        }
    }
    reef_txn_abort(txn);
    assert_int_equal(generation_of(f, g).dtype, dtype);
}

static void assert_exact_once_rounded(lifelong *f, const char *seal_dtype, reef_dtype dtype) {
    reef_sealing sealing;
    reef_commit last, again;
    float *open = new_logits(), *sealed = new_logits(), *second = new_logits(),
          *later = new_logits();
    choose(&f->config, "expert", "glu");
    choose(&f->config, "score", "sigmoid");
    choose(&f->config, "seal_dtype", seal_dtype);
    make_pool(f, 2);
    feed_kind(f, 0, 12000, 1);
    commit(f);
    logits_of(f->store, "0", 0, open);
    must(reef_trainer_seal(f->trainer, NULL, &sealing, &why));
    assert_int_equal(sealing.generation, 0);
    assert_int_equal(sealing.dtype, dtype);
    assert_true(sealing.loss_bytes > 1000);
    assert_true(sealing.loss_before != sealing.loss_after);
    assert_true(fabs(sealing.loss_before - sealing.loss_after) < 0.01);
    assert_rows_are_stored_as(f, 0, dtype);
    assert_rows_are_stored_as(f, 1, REEF_F32); // the open one
    logits_of(f->store, "0", 0, sealed);
    assert_memory_not_equal(open, sealed, LOGIT_BYTES);

    feed_kind(f, 1, 12000, 1);                                  // the next one trains on top of it
    must(reef_trainer_seal(f->trainer, "f32", &sealing, &why)); // for this one only
    assert_int_equal(sealing.dtype, REEF_F32);
    assert_rows_are_stored_as(f, 1, REEF_F32);
    logits_of(f->store, "0", 0, later);
    assert_memory_equal(sealed, later, LOGIT_BYTES);
    logits_of(f->store, "1", 1, second);
    uint8_t root[REEF_HASH_BYTES];
    memcpy(root, generation_of(f, 0).root, sizeof(root));
    feed_kind(f, 2, 3000, 1);
    last = commit(f);
    open_again(f, 1);
    again = commit(f);
    assert_memory_equal(last.root, again.root, REEF_HASH_BYTES);
    assert_memory_equal(root, generation_of(f, 0).root, sizeof(root));
    assert_sound(f);
    feed_kind(f, 2, 3000, 2);
    must(reef_trainer_seal(f->trainer, NULL, &sealing, &why));
    assert_int_equal(sealing.dtype, dtype);
    close_pool(f);
    logits_in_new_process(f, "0", 0, later);
    assert_memory_equal(sealed, later, LOGIT_BYTES);
    logits_in_new_process(f, "1", 1, later);
    assert_memory_equal(second, later, LOGIT_BYTES);
}

LIFELONG_TEST(a_rounded_generation_is_exact_from_then_on) {
    assert_exact_once_rounded(f, "int8", REEF_I8);
}

// Bits per byte of the newest net on what the open kind learned last, in whole windows.
static double loss_of_sample(const lifelong *f,
                             const char *as_of,
                             uint32_t kind,
                             uint64_t *scored) {
    static uint8_t text[16384];
    reef_model *model = model_of(f->store, as_of);
    size_t count = reef_model_text(model, kind, text, sizeof(text));
    float *logits = room(count * REEF_VOCAB * sizeof(*logits));
    must(reef_model_logits(model, text, count, logits, &why));
    reef_model_close(model);
    *scored = (count - 1) / f->config.context * f->config.context;
    double bits = 0.0;
    for (size_t t = 0; t < *scored; t++) {
        double sum = 0.0;
        const float *row = logits + t * REEF_VOCAB;
        for (size_t v = 0; v < REEF_VOCAB; v++) sum += exp((double)row[v]);
        bits += log2(sum) - (double)row[text[t + 1]] / log(2.0);
    }
    return bits / (double)*scored;
}

LIFELONG_TEST(sealing_measures_what_evaluation_would) {
    static const char *const AS_OF[] = {"0", "1"};
    give_boundaries(f);
    f->config.net_share = 1.0f;
    make_pool(f, 2);
    for (uint32_t g = 0; g < 2; g++) {
        reef_sealing sealing;
        uint64_t scored;
        feed_kind(f, (int)g, 12000, 1);
        commit(f);
        double open = loss_of_sample(f, AS_OF[g], g, &scored);
        must(reef_trainer_seal(f->trainer, "int8", &sealing, &why));
        assert_int_equal(sealing.loss_bytes, scored);
        assert_true(fabs(sealing.loss_before - open) < 1e-5);
        double sealed = loss_of_sample(f, AS_OF[g], g, &scored);
        assert_true(fabs(sealing.loss_after - sealed) < 1e-5);
    }
}

LIFELONG_TEST(sealing_as_it_is_costs_not_one_bit) {
    reef_sealing sealing;
    make_pool(f, 2);
    for (int g = 0; g < 2; g++) { // the second one with an older generation below
        feed_kind(f, g, 12000, 1);
        must(reef_trainer_seal(f->trainer, NULL, &sealing, &why));
        assert_int_equal(sealing.generation, g);
        assert_true(isfinite(sealing.loss_before) && sealing.loss_before > 0.0);
        assert_true(sealing.loss_before == sealing.loss_after);
    }
}

// Sum of squares of what the first step left in the first moments: (1 - beta1) * clipped gradient.
// `least` is the smallest share of a tensor.
static double moment_squares(const reef_generation *generation, double *least) {
    double sum = 0.0;
    *least = INFINITY;
    for (size_t i = 0; i < generation->tensor_count; i++) {
        const reef_tensor *tensor = &generation->tensors[i];
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

LIFELONG_TEST(the_norm_of_all_tensors_together_is_bounded) {
    double least;
    f->config.clip = 0.001f;
    forget_memories(f); // losses and rates are those of the net
    make_pool(f, 2);
    feed_kind(f, 0, 4 * 16 + 1, 1); // one step
    assert_int_equal(status_of(f).step, 1);
    double norm = sqrt(moment_squares(f->trainer->network.generations[0], &least));
    double bound = (1.0 - (double)f->config.beta1) * (double)f->config.clip;
    assert_true(least > 8e-7); // whichever is left out shows as 4e-7 or more
    assert_true(fabs(norm / bound - 1.0) < 3e-7);
}

// As when memory runs out after the two generations' exchange.
LIFELONG_TEST(a_boundary_that_ended_half_way_is_never_kept) {
    size_t taken;
    uint8_t text[2 * LIFELONG_BATCH];
    make_pool(f, 1);
    feed_kind(f, 0, 3000, 1);
    reef_commit before = commit(f);
    uint64_t step = status_of(f).step;
    feed_kind(f, 0, 500, 2);
    reef_trainer_break(f->trainer, REEF_ERR_NO_MEMORY);
    lifelong_text(text, sizeof(text), 0, 3);
    must_fail(reef_trainer_feed(f->trainer, "test", text, sizeof(text), &taken, NULL, &why),
              REEF_ERR_NO_MEMORY, "close the pool and open it again");
    assert_int_equal(reef_trainer_commit(f->trainer, NULL, &why), REEF_ERR_NO_MEMORY);
    assert_int_equal(reef_trainer_seal(f->trainer, NULL, NULL, &why), REEF_ERR_NO_MEMORY);
    assert_int_equal(reef_trainer_snapshot(f->trainer, "half", NULL, &why), REEF_ERR_NO_MEMORY);
    open_again(f, 1);
    assert_int_equal(status_of(f).step, step);
    feed_kind(f, 0, 500, 2);
    assert_memory_not_equal(commit(f).root, before.root, sizeof(before.root));
    assert_sound(f);
}

LIFELONG_TEST(an_unknown_type_of_rows_is_refused) {
    make_pool(f, 1);
    feed_kind(f, 0, 4000, 3);
    must_fail(reef_trainer_seal(f->trainer, "f16", NULL, &why), REEF_ERR_INVALID,
              "must be f32 or int8");
    assert_int_equal(status_of(f).generation, 0);
}

// Seals whose event has `words`, in the timeline.
typedef struct seal_count {
    const char *words;
    size_t seals, matching;
} seal_count;

static reef_status count_seal(void *context,
                              const reef_key *key,
                              const reef_view *view,
                              reef_error *err) {
    seal_count *count = context;
    char text[1024] = "";
    memcpy(text, view->data, view->bytes < sizeof(text) ? view->bytes : sizeof(text) - 1);
    bool seal = strstr(text, "\"event\": \"seal\"") != NULL;
    count->seals += seal;
    count->matching += seal && strstr(text, count->words) != NULL;
    return REEF_OK;
}

static void assert_one_seal_says(const lifelong *f, const char *words) {
    seal_count count = {.words = words};
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_record_scan(txn, REEF_DB_TIMELINE, UINT32_MAX, count_seal, &count, &why));
    reef_txn_abort(txn);
    assert_int_equal(count.seals, 1);
    assert_int_equal(count.matching, 1);
}

LIFELONG_TEST(a_boundary_that_is_found_rounds_and_measures_as_well) {
    choose(&f->config, "expert", "glu");
    choose(&f->config, "seal_dtype", "int8");
    f->config.side = 24; // two blocks
    make_pool(f, 1);
    feed_kind(f, 0, 12000, 3);
    feed_kind(f, 1, 12000, 3);
    commit(f);
    assert_int_equal(status_of(f).generation, 1);
    assert_rows_are_stored_as(f, 0, REEF_I8);
    assert_one_seal_says(f, "\"reason\": \"contexts\"");
    assert_one_seal_says(f, "\"dtype\": \"int8\"");
    assert_one_seal_says(f, "\"loss_before\": ");
}

LIFELONG_TEST(without_a_memory_there_is_no_loss) {
    reef_sealing sealing;
    forget_memories(f);
    make_pool(f, 1);
    feed_kind(f, 0, 4000, 3);
    must(reef_trainer_seal(f->trainer, "int8", &sealing, &why));
    assert_int_equal(sealing.loss_bytes, 0);
    assert_true(isnan(sealing.loss_before) && isnan(sealing.loss_after));
    assert_one_seal_says(f, "\"loss_before\": null, \"loss_after\": null");
}

int main(int argc, char **argv) {
    int result;
    if (lifelong_is_other_process(argc, argv, &result)) return result;
    return test_run(NULL, NULL);
}
