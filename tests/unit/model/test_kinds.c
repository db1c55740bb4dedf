// Every kind of feed-forward network in a whole model: gradients, thread counts, what evaluation
// may read, and the size of each.
#include "activations.h"
#include "small_model.h"

#include <stdio.h>

#define SETTINGS_MAX 16

// Nets of each kind alone, of all together, and every option that a layer that retrieves has. Seven
// tokens a window and three experts that take four each: odd, unequal sizes.
static const char *const NETS[][SETTINGS_MAX] = {
    {"layers", "2", "ffw", "k", "heads", "3", "topk", "2", "batch_norm", "false"},
    {"layers", "2", "ffw", "m", "moe_experts", "3"},
    {"layers", "4", "ffw", "pkdm", "moe_experts", "3", "subkeys", "head", "expert", "glu"},
};
enum { NET_COUNT = sizeof(NETS) / sizeof(*NETS) };

PLAIN_TEST(a_first_generation_of_every_kind_has_a_true_gradient) {
    for (size_t i = 0; i < NET_COUNT; i++) {
        model_fixture *f = small_model(NETS[i]);
        check_all_gradients(f);
        free_model(f);
    }
}

// Sealed values and mixtures pass gradients on; mixtures by thresholds, without anything that was
// kept.
PLAIN_TEST(a_later_generation_on_top_of_every_kind_has_a_true_gradient) {
    for (size_t i = 0; i < NET_COUNT; i++) {
        model_fixture *f = small_model(NETS[i]);
        check_later_generation(f, i == 0 ? REEF_I8 : REEF_F32);
        free_model(f);
    }
}

PLAIN_TEST(scores_of_values_have_a_true_gradient) {
    static const char *const SCORES[] = {"sigmoid", "relu"};
    for (size_t i = 0; i < 2; i++) {
        model_fixture *f =
            small_model((const char *const[]){"layers", "2", "ffw", "kd", "score", SCORES[i],
                                              "subkeys", i ? "head" : "shared", NULL});
        check_all_gradients(f);
        free_model(f);
    }
}

// ---- threads ------------------------------------------------------------------------------------

// A step of training of all kinds together: all weights, moments and rows that it leaves, one after
// the other.
static float *step_with(size_t threads, size_t *count) {
    reef_thread_pool *workers = NULL;
    model_fixture *f = small_model(NETS[2]);
    const reef_generation *generation = f->network.generations[0];
    assert_int_equal(reef_thread_pool_new(&workers, threads, NULL), REEF_OK);
    must(reef_network_forward(&f->acts, &f->network, workers, &f->batch, REEF_PASS_TRAIN, &why));
    reef_network_update update = {.adam = {1e-3f, 0.9f, 0.98f, 1e-8f}, .average_rate = 0.1f};
    reef_network_backward(&f->acts, &f->network, workers, &f->batch, &update);
    *count = 2 * generation->value_count;
    for (uint32_t l = 0; l < 4; l++)
        *count +=
            generation->expert_tables[l].expert_count * generation->expert_tables[l].row_values;
    float *all = room(*count * sizeof(*all)), *at = all;
    memcpy(at, generation->values, generation->value_count * sizeof(*at));
    at += generation->value_count;
    for (size_t i = 0; i < generation->tensor_count; i++)
        if (generation->tensors[i].grad != NULL) {
            memcpy(at, generation->tensors[i].grad, generation->tensors[i].count * sizeof(*at));
            at += generation->tensors[i].count;
        }
    at = all + 2 * generation->value_count;
    for (uint32_t l = 0; l < 4; l++) {
        size_t values =
            generation->expert_tables[l].expert_count * generation->expert_tables[l].row_values;
        if (values > 0) memcpy(at, generation->expert_tables[l].experts, values * sizeof(*at));
        at += values;
    }
    reef_thread_pool_free(workers);
    free_model(f);
    return all;
}

PLAIN_TEST(any_number_of_threads_gives_the_same_bits) {
    size_t count, again;
    float *alone = step_with(1, &count);
    for (size_t threads = 2; threads <= 4; threads++) {
        float *together = step_with(threads, &again);
        assert_int_equal(count, again);
        assert_memory_equal(alone, together, count * sizeof(*alone));
        free(together);
    }
    free(alone);
}

// ---- what a token depends on --------------------------------------------------------------------

// Bytes from `from` on of all windows are others; every logit before them must stay, with
// thresholds that let in much and little.
PLAIN_TEST(later_bytes_change_no_earlier_logit) {
    for (size_t i = 0; i < NET_COUNT; i++) {
        model_fixture *f = small_model(NETS[i]);
        size_t T = f->config.context, row = REEF_VOCAB;
        float *before = room(f->rows * row * sizeof(*before));
        f->batch.weight = NULL;
        reef_generation_fold(f->network.generations[0], &f->config);
        for (size_t from = 1; from < T; from++) {
            float shift = 0.05f * (float)from - 0.2f;
            for (uint32_t l = 0; l < f->config.layers; l++)
                for (size_t e = 0;
                     f->network.generations[0]->weights.blocks[l].moe.threshold != NULL && e < 3;
                     e++)
                    f->network.generations[0]->weights.blocks[l].moe.threshold[e] =
                        1.0f / 3 + shift;
            forward(f, REEF_PASS_EVALUATE);
            memcpy(before, f->acts.logits, f->rows * row * sizeof(*before));
            for (size_t w = 0; w < WINDOWS; w++)
                for (size_t t = from; t < T; t++) f->tokens[w * T + t] ^= (uint8_t)(1 + from + t);
            forward(f, REEF_PASS_EVALUATE);
            for (size_t w = 0; w < WINDOWS; w++) {
                size_t at = w * T * row, end = at + from * row;
                assert_memory_equal(before + at, f->acts.logits + at, from * row * sizeof(*before));
                assert_memory_not_equal(before + end, f->acts.logits + end, row * sizeof(*before));
            }
        }
        free_model(f);
    }
}

PLAIN_TEST(a_window_does_not_depend_on_its_neighbours) {
    model_fixture *f = small_model(NETS[2]);
    size_t T = f->config.context, row = T * REEF_VOCAB;
    float *alone = room(row * sizeof(*alone));
    f->batch.weight = NULL;
    reef_generation_fold(f->network.generations[0], &f->config);
    forward(f, REEF_PASS_EVALUATE);
    memcpy(alone, f->acts.logits + row, row * sizeof(*alone));
    for (size_t t = 0; t < T; t++) f->tokens[t] = 200;
    forward(f, REEF_PASS_EVALUATE);
    assert_memory_equal(alone, f->acts.logits + row, row * sizeof(*alone));
    memmove(f->tokens, f->tokens + T, T); // now it is the first
    forward(f, REEF_PASS_EVALUATE);
    assert_memory_equal(alone, f->acts.logits, row * sizeof(*alone));
    free_model(f);
}

// ---- sealing and growing ------------------------------------------------------------------------

PLAIN_TEST(opening_a_generation_changes_no_bit) {
    model_fixture *f = small_model(NETS[2]);
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
        for (size_t i = 0; i < count; i++) assert_true(before[i] == f->acts.logits[i]);
    }
    // A mixture is the first generation's alone.
    assert_non_null(reef_generation_find(f->network.generations[0], "block3.moe_threshold"));
    assert_null(reef_generation_find(f->network.generations[1], "block3.w_moe_router"));
    free_model(f);
}

PLAIN_TEST(growing_keeps_rows_and_sub_keys_of_every_head) {
    reef_generation *grown = NULL;
    model_fixture *f = small_model(NETS[2]); // tables for each of two heads, of d_key 6
    const reef_generation *open = f->network.generations[0];
    must(reef_generation_grow(&grown, open, &f->config, 8, &why));
    for (uint32_t l = 0; l < 2; l++) {
        const reef_expert_table *table = &grown->expert_tables[l], *old = &open->expert_tables[l];
        size_t row = l == 0 ? 3 * 12 : 12, w_up = l == 0 ? 12 : 0;
        assert_int_equal(table->row_values, row);
        assert_int_equal(table->expert_count, 64);
        assert_memory_equal(table->experts, old->experts, 25 * row * sizeof(float));
        for (size_t n = 25; n < 64; n++) // the new ones are silent
            for (size_t d = 0; d < 12; d++) assert_true(table->experts[n * row + w_up + d] == 0.0f);
        const reef_router_params *now = &grown->weights.routers[l];
        assert_memory_equal(now->sub_keys_a, open->weights.routers[l].sub_keys_a,
                            5 * 2 * 3 * sizeof(float));
        bool same = true; // drawn, each head's its own
        for (size_t d = 0; d < 3; d++)
            same = same && now->sub_keys_b[7 * 6 + d] == now->sub_keys_b[7 * 6 + 3 + d];
        assert_false(same);
    }
    assert_memory_equal(grown->weights.blocks[3].moe.w_in, open->weights.blocks[3].moe.w_in,
                        3 * 12 * 10 * sizeof(float));
    assert_memory_equal(grown->weights.blocks[3].moe.threshold,
                        open->weights.blocks[3].moe.threshold, 3 * sizeof(float));
    reef_generation_free(grown);
    free_model(f);
}

PLAIN_TEST(an_expert_of_a_mixture_takes_a_share_of_the_tokens) {
    reef_config config;
    reef_config_default(&config); // 8 experts, windows of 128
    assert_int_equal(reef_moe_capacity(&config), 16);
    config.context = 100; // 12.5
    assert_int_equal(reef_moe_capacity(&config), 13);
    config.moe_experts = 1;
    assert_int_equal(reef_moe_capacity(&config), 100);
    config.moe_experts = 1024;
    assert_int_equal(reef_moe_capacity(&config), 1);
}

PLAIN_TEST(letters_have_names_and_say_what_retrieves) {
    static const char *const NAMES[] = {"peer", "pkm", "dense", "moe"};
    reef_config config;
    reef_config_default(&config);
    config.layers = 4;
    strcpy(config.ffw, "pkdm");
    for (uint32_t l = 0; l < 4; l++) {
        assert_string_equal(reef_ffw_text(reef_layer_ffw(&config, l)), NAMES[l]);
        assert_int_equal(reef_layer_retrieves(&config, l), l < 2);
    }
    assert_int_equal(reef_config_retrieving_layers(&config), 2);
    strcpy(config.ffw, "k"); // one letter is that of all
    assert_int_equal(reef_config_retrieving_layers(&config), 4);
    assert_int_equal(reef_layer_ffw(&config, 3), REEF_FFW_PKM);
}

RUN_TESTS
