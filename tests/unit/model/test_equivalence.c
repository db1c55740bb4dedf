// The layers are those of the papers: what He 2024 says of PEER's relation to a dense network and
// to a search over all experts, and Lample et al. 2019 of theirs, holds for whole models.
#include "activations.h"
#include "small_model.h"

// Every tensor that both have becomes that of `from`.
static void copy_tensors(reef_generation *to, const reef_generation *from) {
    for (size_t i = 0; i < to->tensor_count; i++) {
        const reef_tensor *old = reef_generation_find(from, to->tensors[i].name);
        if (old == NULL) continue;
        assert_int_equal(old->count, to->tensors[i].count);
        memcpy(to->tensors[i].data, old->data, old->count * sizeof(*old->data));
    }
}

static double distance(const float *a, const float *b, size_t count) {
    double most = 0.0;
    for (size_t i = 0; i < count; i++) most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

// ---- one expert a head: a dense network ---------------------------------------------------------

enum { HEADS = 5, WIDTH = 12 };

// The dense network of one token: head i's expert is neuron i (He 2024, section 2).
static void assemble(reef_block *dense, const model_fixture *table, size_t row) {
    const reef_expert_table *pool = &table->network.generations[0]->expert_tables[0];
    const reef_router_tape *tape = &table->acts.expert_tables[0][0].tape;
    for (size_t h = 0; h < HEADS; h++) {
        const float *expert = pool->experts + tape->indices[row * HEADS + h] * pool->row_values;
        for (size_t d = 0; d < WIDTH; d++) {
            dense->w_ffw_in[d * HEADS + h] = expert[d];
            dense->w_ffw_out[h * WIDTH + d] = expert[WIDTH + d];
        }
    }
}

PLAIN_TEST(with_one_expert_a_head_peer_is_a_dense_network) {
    static const char *const SUBKEYS[] = {"shared", "head"};
    for (size_t i = 0; i < 2; i++) {
        model_fixture *table = small_model((const char *const[]){
            "layers", "1", "ffw", "p", "heads", "5", "topk", "1", "subkeys", SUBKEYS[i], NULL});
        model_fixture *dense =
            small_model((const char *const[]){"layers", "1", "ffw", "d", "d_ffw", "5", NULL});
        size_t different = 0;
        copy_tensors(dense->network.generations[0], table->network.generations[0]);
        table->batch.weight = dense->batch.weight = NULL; // logits, not their gradient
        forward(table, REEF_PASS_TRAIN);
        const reef_expert_id *chosen = table->acts.expert_tables[0][0].tape.indices;
        for (size_t row = 0; row < table->rows; row++) {
            size_t at = row * REEF_VOCAB;
            assemble(&dense->network.generations[0]->weights.blocks[0], table, row);
            forward(dense, REEF_PASS_TRAIN);
            assert_true(distance(table->acts.logits + at, dense->acts.logits + at, REEF_VOCAB) <
                        1e-6);
            different += memcmp(chosen, chosen + row * HEADS, HEADS * sizeof(*chosen)) != 0;
        }
        assert_true(different > table->rows / 2); // another network for other tokens
        free_model(table);
        free_model(dense);
    }
}

// ---- a search over all experts ------------------------------------------------------------------

typedef struct scored {
    double score;
    reef_expert_id id;
} scored;

static int best_first(const void *a, const void *b) {
    const scored *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static double dot(size_t count, const float *a, const float *b) {
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

static double gelu_plain(double x) {
    return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

// y += He 2024 eq. 1-3 for one head's query, by the inner products with all N keys.
static void search_all(const model_fixture *f, size_t row, size_t head, double *y) {
    const reef_generation *generation = f->network.generations[0];
    const reef_router_params *router = &generation->weights.routers[0];
    reef_router_shape shape = reef_generation_shape(&f->config, generation->info.side);
    size_t half = shape.d_key / 2, key_row = reef_router_key_row(&shape),
           N = shape.side * shape.side;
    size_t table = shape.head_keys ? head * half : 0;
    const float *x = f->acts.layers[0].norm2 + row * WIDTH;
    const float *query =
        f->acts.expert_tables[0][0].tape.query + (row * shape.head_count + head) * shape.d_key;
    scored *all = room(N * sizeof(*all));
    for (uint32_t n = 0; n < N; n++) {
        uint32_t i, j;
        reef_expert_pair_of(n, &i, &j);
        all[n].id = n;
        all[n].score = dot(half, query, router->sub_keys_a + i * key_row + table) +
                       dot(half, query + half, router->sub_keys_b + j * key_row + table);
    }
    qsort(all, N, sizeof(*all), best_first);
    double sum = 0.0;
    for (size_t k = 0; k < shape.topk; k++) sum += exp(all[k].score);
    for (size_t k = 0; k < shape.topk; k++) {
        const reef_expert_table *pool = &generation->expert_tables[0];
        const float *expert = pool->experts + all[k].id * pool->row_values;
        bool value = pool->row_values == WIDTH;
        double weight = exp(all[k].score) / sum;
        if (!value) weight *= gelu_plain(dot(WIDTH, expert, x));
        for (size_t d = 0; d < WIDTH; d++) y[d] += weight * (double)expert[d + (value ? 0 : WIDTH)];
    }
}

// After the one block, the residual stream is that before its FFW plus what the search gives.
PLAIN_TEST(product_keys_find_what_a_search_over_all_experts_does) {
    static const char *const CASES[][2] = {
        {"p", "shared"}, {"p", "head"}, {"k", "shared"}, {"k", "head"}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(*CASES); i++) {
        model_fixture *f =
            small_model((const char *const[]){"layers", "1", "ffw", CASES[i][0], "subkeys",
                                              CASES[i][1], "heads", "3", "topk", "4", NULL});
        f->batch.weight = NULL;
        forward(f, REEF_PASS_TRAIN);
        for (size_t row = 0; row < f->rows; row++) {
            double y[WIDTH] = {0};
            for (size_t h = 0; h < 3; h++) search_all(f, row, h, y);
            for (size_t d = 0; d < WIDTH; d++) {
                double before = (double)f->acts.layers[0].x_mid[row * WIDTH + d];
                double after = (double)f->acts.x[row * WIDTH + d];
                assert_true(fabs(before + y[d] - after) < 1e-5 * fmax(1.0, fabs(after)));
            }
        }
        free_model(f);
    }
}

// ---- an activation that is constant: a product-key memory ---------------------------------------

// A model of PEER layers whose experts answer 1 to every token: the first value of a token is 1 by
// its norm's shift, and all of w_down that is not 0.
static model_fixture *constant_peer(const char *score) {
    model_fixture *f = small_model(
        (const char *const[]){"layers", "2", "ffw", "p", "expert", "relu", "score", score, NULL});
    reef_generation *generation = f->network.generations[0];
    for (uint32_t l = 0; l < 2; l++) {
        generation->weights.blocks[l].norm2_scale[0] = 0.0f;
        generation->weights.blocks[l].norm2_shift[0] = 1.0f;
        for (size_t n = 0; n < generation->expert_tables[l].expert_count; n++) {
            float *row =
                generation->expert_tables[l].experts + n * generation->expert_tables[l].row_values;
            for (size_t d = 0; d < WIDTH; d++) row[d] = d == 0;
        }
    }
    return f;
}

// The memory whose values are those experts' w_up.
static model_fixture *memory_of(const model_fixture *table, const char *score) {
    model_fixture *f =
        small_model((const char *const[]){"layers", "2", "ffw", "k", "score", score, NULL});
    copy_tensors(f->network.generations[0], table->network.generations[0]);
    for (uint32_t l = 0; l < 2; l++)
        for (size_t n = 0; n < f->network.generations[0]->expert_tables[l].expert_count; n++)
            memcpy(f->network.generations[0]->expert_tables[l].experts + n * WIDTH,
                   table->network.generations[0]->expert_tables[l].experts + n * 2 * WIDTH + WIDTH,
                   WIDTH * sizeof(float));
    return f;
}

static void descend(model_fixture *f) {
    reef_network_update update = {.adam = {.learning_rate = 0.1f, .epsilon = 1.0f}};
    forward(f, REEF_PASS_TRAIN);
    reef_network_backward(&f->acts, &f->network, NULL, &f->batch, &update);
}

// Gradients of norm2 differ in the value that PEER's experts read.
static void assert_gradients_are_equal(const model_fixture *a, const model_fixture *b) {
    const reef_generation *generation = a->network.generations[0];
    for (size_t i = 0; i < generation->tensor_count; i++) {
        const reef_tensor *one = &generation->tensors[i];
        const reef_tensor *other = reef_generation_find(b->network.generations[0], one->name);
        if (one->grad == NULL) continue;
        size_t skipped = strstr(one->name, "norm2") != NULL;
        assert_non_null(other);
        assert_memory_equal(one->grad + skipped, other->grad + skipped,
                            (one->count - skipped) * sizeof(*one->grad));
    }
}

PLAIN_TEST(with_constant_activations_peer_is_a_product_key_memory) {
    static const char *const SCORES[] = {"softmax", "sigmoid", "relu"};
    for (size_t i = 0; i < 3; i++) {
        model_fixture *table = constant_peer(SCORES[i]), *memory = memory_of(table, SCORES[i]);
        size_t logits = table->rows * REEF_VOCAB * sizeof(float);
        descend(table);
        descend(memory);
        assert_memory_equal(table->acts.logits, memory->acts.logits,
                            logits); // their gradient by now
        assert_gradients_are_equal(table, memory);
        for (uint32_t l = 0; l < 2; l++) // values move as w_up does
            for (size_t n = 0; n < memory->network.generations[0]->expert_tables[l].expert_count;
                 n++)
                assert_memory_equal(
                    memory->network.generations[0]->expert_tables[l].experts + n * WIDTH,
                    table->network.generations[0]->expert_tables[l].experts + (2 * n + 1) * WIDTH,
                    WIDTH * sizeof(float));
        // Experts that read the token have no memory.
        stir(table->network.generations[0], &table->config);
        copy_tensors(memory->network.generations[0], table->network.generations[0]);
        forward(table, REEF_PASS_TRAIN);
        forward(memory, REEF_PASS_TRAIN);
        assert_memory_not_equal(table->acts.logits, memory->acts.logits, logits);
        free_model(table);
        free_model(memory);
    }
}

// ---- one expert that takes everything: a dense network ------------------------------------------

// Of one expert the softmax is 1.
PLAIN_TEST(a_mixture_of_one_expert_is_a_dense_network) {
    model_fixture *moe =
        small_model((const char *const[]){"layers", "2", "ffw", "m", "moe_experts", "1", NULL});
    model_fixture *dense = small_model((const char *const[]){"layers", "2", "ffw", "d", NULL});
    size_t matrix = WIDTH * (size_t)moe->config.d_ffw * sizeof(float);
    copy_tensors(moe->network.generations[0], dense->network.generations[0]);
    for (uint32_t l = 0; l < 2; l++) {
        reef_block *to = &moe->network.generations[0]->weights.blocks[l];
        const reef_block *from = &dense->network.generations[0]->weights.blocks[l];
        memcpy(to->moe.w_in, from->w_ffw_in, matrix);
        memcpy(to->moe.w_out, from->w_ffw_out, matrix);
        to->moe.threshold[0] = 1.0f;
    }
    moe->batch.weight = dense->batch.weight = NULL;
    for (int mode = REEF_PASS_EVALUATE; mode <= (int)REEF_PASS_TRAIN; mode++) {
        forward(moe, (reef_activations_mode)mode);
        forward(dense, (reef_activations_mode)mode);
        assert_true(distance(moe->acts.logits, dense->acts.logits, moe->rows * REEF_VOCAB) < 1e-5);
    }
    free_model(moe);
    free_model(dense);
}

RUN_TESTS
