// The whole model's backward against finite differences of its forward, and what generations
// promise about each other: opening one changes nothing, a silent one costs not one bit.
#include "activations.h"
#include "small_model.h"

static int setup(void **state) {
    *state = model_with("gelu", "softmax");
    return 0;
}

static int teardown(void **state) {
    free_model(*state);
    return 0;
}

#define FIXTURE_TEST(name) TEST_WITH(name, setup, teardown, model_fixture *f)

FIXTURE_TEST(first_generation_backward_agrees_with_finite_differences) {
    check_all_gradients(f);
}

PLAIN_TEST(every_kind_and_score_has_a_true_gradient) {
    static const char *const EXPERTS[] = {"gelu", "relu", "glu"};
    static const char *const SCORES[] = {"softmax", "sigmoid", "relu"};
    for (size_t i = 0; i < 9; i++) {
        model_fixture *f = model_with(EXPERTS[i / 3], SCORES[i % 3]);
        check_all_gradients(f);
        free_model(f);
    }
}

FIXTURE_TEST(later_generation_backward_agrees_with_finite_differences) {
    check_later_generation(f, REEF_F32);
}

// Gradients pass through rows of int8 as through others.
PLAIN_TEST(a_generation_on_top_of_rounded_ones_has_a_true_gradient) {
    model_fixture *f = model_with("glu", "softmax");
    check_later_generation(f, REEF_I8);
    free_model(f);
}

// Corrections are merged for evaluation, and added for training: both compute the same.
PLAIN_TEST(a_text_is_corrected_by_the_generation_that_fires) {
    model_fixture *f = small_model((const char *const[]){"batch_norm", "false", NULL});
    size_t count = f->rows * REEF_VOCAB;
    float *alone = room(count * sizeof(*alone));
    f->batch.weight = NULL;
    for (uint32_t g = 1; g < 3; g++) {
        add_open_generation(f);
        stir(f->network.generations[g], &f->config);
    }
    reef_generation_fold(f->network.generations[2], &f->config);
    f->batch.fires = 2;
    forward(f, REEF_PASS_EVALUATE);
    memcpy(alone, f->acts.logits, count * sizeof(*alone));
    forward(f, REEF_PASS_TRAIN);
    for (size_t i = 0; i < count; i++) assert_float_equal(f->acts.logits[i], alone[i], 1e-4f);
    // It reads nothing of what generation 1 corrects.
    for (size_t i = 0; i < f->network.generations[1]->tensor_count; i++)
        for (size_t j = 0; j < f->network.generations[1]->tensors[i].count; j++)
            f->network.generations[1]->tensors[i].data[j] += 0.1f;
    f->network.generations[1]->merged_is_fresh = false;
    forward(f, REEF_PASS_EVALUATE);
    assert_memory_equal(alone, f->acts.logits, count * sizeof(*alone));
    f->batch.fires = 1;
    forward(f, REEF_PASS_EVALUATE);
    assert_memory_not_equal(alone, f->acts.logits, REEF_VOCAB * sizeof(*alone));
    free_model(f);
}

enum { ROW = 3 * 12 }; // values

// Each value as the nearest multiple of a 127th of its row's largest.
static void round_row(float *row) {
    float most = 0.0f;
    for (size_t i = 0; i < ROW; i++) most = fmaxf(most, fabsf(row[i]));
    float scale = most / 127.0f;
    for (size_t i = 0; i < ROW; i++) row[i] = scale * rintf(row[i] / scale);
}

// What the sealed rows compute is what an open generation with rounded rows would.
PLAIN_TEST(sealing_rounds_each_row_once) {
    model_fixture *f = model_with("glu", "relu");
    reef_generation *open = f->network.generations[0];
    size_t count = f->rows * REEF_VOCAB, values = open->expert_tables[0].expert_count * ROW;
    float *expected = room(count * sizeof(*expected));
    f->batch.weight = NULL;
    reef_generation_fold(open, &f->config);
    forward(f, REEF_PASS_EVALUATE);
    memcpy(expected, f->acts.logits, count * sizeof(*expected));
    reef_generation *sealed = NULL;
    float *kept[2]; // of layers 0 and 2: "pdp"
    for (size_t i = 0; i < 2; i++) {
        float *rows = open->expert_tables[2 * i].experts;
        kept[i] = malloc(values * sizeof(*rows));
        assert_non_null(kept[i]);
        memcpy(kept[i], rows, values * sizeof(*rows));
        for (size_t n = 0; n < values; n += ROW) round_row(rows + n);
    }
    forward(f, REEF_PASS_EVALUATE);
    assert_memory_not_equal(expected, f->acts.logits, count * sizeof(*expected));
    memcpy(expected, f->acts.logits, count * sizeof(*expected));
    for (size_t i = 0; i < 2; i++) {
        memcpy(open->expert_tables[2 * i].experts, kept[i], values * sizeof(float));
        free(kept[i]);
    }

    memset(open->expert_tables[0].dirty, 0, open->expert_tables[0].expert_count);
    must(reef_generation_make_sealed(&sealed, open, &f->config, REEF_I8, &why));
    assert_int_equal(sealed->info.dtype, REEF_I8);
    assert_null(sealed->expert_tables[0].experts);
    assert_null(memchr(sealed->expert_tables[0].dirty, 0, sealed->expert_tables[0].expert_count));
    reef_generation_free(open);
    f->network.generations[0] = sealed;
    reef_activations_forget_generation(&f->acts, 0);
    forward(f, REEF_PASS_EVALUATE);
    // A row's sum is multiplied by its scale, and not each of its values.
    for (size_t j = 0; j < count; j++) assert_float_equal(f->acts.logits[j], expected[j], 1e-5f);
    free_model(f);
}

// Copies of experts begin with these, and so do nets of kinds that come back.
PLAIN_TEST(rows_of_sealed_experts_are_read_as_floats) {
    static const reef_dtype dtypes[] = {REEF_F32, REEF_I8};
    for (size_t d = 0; d < 2; d++) {
        model_fixture *f = model_with("glu", "sigmoid");
        reef_generation *open = f->network.generations[0], *sealed = NULL;
        float before[3 * 12], read[3 * 12], most = 0.0f;
        assert_int_equal(open->expert_tables[0].row_values, 3 * 12);
        memcpy(before, open->expert_tables[0].experts + 3 * 12, sizeof(before)); // of row 1
        for (size_t i = 0; i < 3 * 12; i++) most = fmaxf(most, fabsf(before[i]));
        must(reef_generation_make_sealed(&sealed, open, &f->config, dtypes[d], &why));
        reef_expert_table_row_read(&sealed->expert_tables[0], 1, 5, 3 * 12 - 5, read + 5);
        for (size_t i = 5; i < 3 * 12; i++) // half a step, and rounding
            assert_true(fabsf(read[i] - before[i]) < most / 253.0f);
        reef_generation_free(open);
        f->network.generations[0] = sealed;
        free_model(f);
    }
}

FIXTURE_TEST(opening_a_generation_changes_no_bit) {
    size_t count = f->rows * REEF_VOCAB;
    float *before = room(count * sizeof(*before));
    f->batch.weight = NULL;
    reef_generation_fold(f->network.generations[0], &f->config);
    forward(f, REEF_PASS_EVALUATE);
    memcpy(before, f->acts.logits, count * sizeof(*before));
    add_open_generation(f);
    for (int fires = 0; fires < 2; fires++) {
        f->batch.fires = (size_t)fires;
        reef_generation_fold(f->network.generations[1], &f->config);
        forward(f, REEF_PASS_EVALUATE);
        if (fires) // zero was added: -0 may have become 0
            for (size_t i = 0; i < count; i++) assert_true(before[i] == f->acts.logits[i]);
        else
            assert_memory_equal(before, f->acts.logits, count * sizeof(*before));
    }
}

FIXTURE_TEST(a_silent_generation_touches_no_bit) {
    size_t count = f->rows * REEF_VOCAB;
    float *before = room(count * sizeof(*before));
    f->batch.weight = NULL;
    reef_generation_fold(f->network.generations[0], &f->config);
    forward(f, REEF_PASS_EVALUATE);
    memcpy(before, f->acts.logits, count * sizeof(*before));
    add_open_generation(f);
    stir(f->network.generations[1], &f->config);
    reef_generation_fold(f->network.generations[1], &f->config);
    forward(f, REEF_PASS_EVALUATE);
    assert_memory_equal(before, f->acts.logits, count * sizeof(*before));
    f->batch.fires = 1;
    forward(f, REEF_PASS_EVALUATE);
    assert_memory_not_equal(before, f->acts.logits, REEF_VOCAB * sizeof(*before));
}

FIXTURE_TEST(a_window_does_not_depend_on_its_neighbours) {
    size_t row = (size_t)f->config.context * REEF_VOCAB;
    float *alone = room(row * sizeof(*alone));
    f->batch.weight = NULL;
    reef_generation_fold(f->network.generations[0], &f->config);
    forward(f, REEF_PASS_EVALUATE);
    memcpy(alone, f->acts.logits + row, row * sizeof(*alone));
    for (size_t t = 0; t < f->config.context; t++) f->tokens[t] = 200; // the first window
    forward(f, REEF_PASS_EVALUATE);
    assert_memory_equal(alone, f->acts.logits + row, row * sizeof(*alone));
    memmove(f->tokens, f->tokens + f->config.context, f->config.context); // now it is the first
    forward(f, REEF_PASS_EVALUATE);
    assert_memory_equal(alone, f->acts.logits, row * sizeof(*alone));
}

FIXTURE_TEST(growing_in_place_keeps_experts_and_their_ids) {
    reef_generation *grown = NULL;
    const reef_generation *open = f->network.generations[0];
    assert_int_equal(reef_generation_grow(&grown, open, &f->config, 5, &why), REEF_ERR_INVALID);
    must(reef_generation_grow(&grown, open, &f->config, 8, &why));
    assert_int_equal(grown->expert_tables[0].expert_count, 64);
    assert_memory_equal(grown->expert_tables[0].experts, open->expert_tables[0].experts,
                        25 * 2 * 12 * sizeof(float));
    const reef_tensor *keys = reef_generation_find(grown, "block2.sub_keys_b"),
                      *old = reef_generation_find(open, "block2.sub_keys_b");
    assert_int_equal(keys->count, 8 * 3);
    assert_memory_equal(keys->data, old->data, 5 * 3 * sizeof(float));
    for (size_t i = 25 * 24; i < 64 * 24; i += 24) // the new experts are silent
        for (size_t d = 12; d < 24; d++)
            assert_true(grown->expert_tables[0].experts[i + d] == 0.0f);
    reef_generation_free(grown);
}

RUN_TESTS
