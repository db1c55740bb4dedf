// See warm_start.h. Draws are functions of seed, generation and layer.
#include "warm_start.h"

#include "batch.h"
#include "branch_trial.h"
#include "events.h"
#include "generation.h"
#include "growth_policy.h"
#include "reef_random.h"
#include "row_exchange.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM_CANDIDATE = 301, STREAM_CHOICE = 302, STREAMS_A_LAYER = 8 };

#define CANDIDATES_MIN 1024 // halves of queries that the sub-keys of one table are chosen from
#define CANDIDATES_MAX 4096 // unless the table has more

// The sums over the probed batches of one start.
typedef struct start {
    reef_trainer *trainer;
    uint64_t seed;
    size_t probes, candidates; // candidates of one table; a multiple of `probes`
    size_t tables; // of sub-keys, that each half of a query has: one for all heads, or one for each
    float *halves[REEF_LAYER_COUNT_MAX][2]; // (tables, candidates, d_key / 2) for each half
    uint32_t **uses;                        // (generations, layers) -> (N) how often it was chosen
} start;

bool reef_start_is_due(const reef_trainer *trainer) {
    const reef_config *config = &trainer->network.config;
    return trainer->generation_step == 0 && !trainer->branched &&
           reef_open_generation(trainer)->info.generation > 0 &&
           (config->subkeys_new != REEF_SUBKEYS_NEW_RANDOM || config->copy_experts > 0 ||
            (config->weigh_older && reef_config_retrieving_layers(config) > 0) ||
            config->branch_new == REEF_BRANCH_NEW_TRIAL);
}

// ---- memory -------------------------------------------------------------------------------------

static void release_start(start *s) {
    const reef_network *network = &s->trainer->network;
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++)
        for (size_t table = 0; table < 2; table++) free(s->halves[l][table]);
    for (size_t i = 0; s->uses != NULL && i < network->generation_count * network->config.layers;
         i++)
        free(s->uses[i]);
    free(s->uses);
}

static size_t candidate_count(size_t side, size_t probes) {
    size_t count = 4 * side;
    if (count < CANDIDATES_MIN) count = CANDIDATES_MIN;
    if (count > CANDIDATES_MAX) count = CANDIDATES_MAX;
    if (count < side) count = side;
    return (count + probes - 1) / probes * probes;
}

static reef_status allocate_start(start *s, reef_error *err) {
    const reef_network *network = &s->trainer->network;
    const reef_config *config = &network->config;
    // One block per layer and half, allocated only for what the configuration asks.
    bool ok =
        (s->uses = calloc(network->generation_count * config->layers, sizeof(*s->uses))) != NULL;
    for (uint32_t l = 0; ok && l < config->layers; l++) {
        if (!reef_layer_retrieves(config, l)) continue;
        size_t floats = s->tables * s->candidates * (config->d_key / 2);
        for (size_t half = 0; half < 2; half++)
            ok = ok && (s->halves[l][half] = calloc(floats, sizeof(float))) != NULL;
        for (size_t g = 0; config->copy_experts > 0 && g < network->generation_count; g++) {
            size_t N = network->generations[g]->expert_tables[l].expert_count;
            ok = ok && (s->uses[g * config->layers + l] = calloc(N, sizeof(uint32_t))) != NULL;
        }
    }
    return ok ? REEF_OK : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to start a generation");
}

// ---- sub-keys -----------------------------------------------------------------------------------

// Which of a layer's tables: of half 0 or 1 of the queries, and of the heads that meet it.
typedef struct table_of {
    uint32_t l;
    size_t half, number;
} table_of;

// Streams of one table lie 2 apart: one for candidates, one for the choice.
static uint64_t stream_of(const table_of *table, uint64_t stream) {
    return stream + (uint64_t)(table->l * STREAMS_A_LAYER + table->half) * 1024 + 2 * table->number;
}

// Halves of queries as they meet the sub-keys in training, each scaled to length 1: only directions
// count.
static void gather_table(start *s, const table_of *table, size_t number) {
    const reef_config *config = &s->trainer->network.config;
    // Every probed batch contributes the same number of candidates, so that none dominates.
    size_t half = config->d_key / 2, each = s->candidates / s->probes;
    const reef_activations_table *routed =
        &s->trainer->acts.expert_tables[s->trainer->network.generation_count - 1][table->l];
    size_t queries = reef_batch_tokens(config) * config->heads / s->tables;
    float *halves = s->halves[table->l][table->half] + table->number * s->candidates * half;
    // The index counts candidates over all batches: a draw depends on seed and index, not on the
    // order in which layers are visited.
    for (size_t i = number * each; i < (number + 1) * each; i++) {
        size_t query =
            (size_t)reef_random_below(s->seed, stream_of(table, STREAM_CANDIDATE), i, queries);
        const float *from = routed->tape.query +
                            (query * s->tables + table->number) * config->d_key +
                            table->half * half;
        // Scores are inner products, so the length of a query scales all keys alike and says
        // nothing about which key it needs.
        float length = sqrtf(reef_dot(half, from, from));
        for (size_t d = 0; d < half; d++)
            halves[i * half + d] = length > 0.0f ? from[d] / length : 0.0f;
    }
}

static void gather_halves(start *s, uint32_t l, size_t number) {
    for (size_t half = 0; half < 2; half++)
        for (size_t i = 0; i < s->tables; i++) gather_table(s, &(table_of){l, half, i}, number);
}

// Index of the first of `count` weights whose running sum exceeds `at`.
static size_t pick(const float *weights, size_t count, double at) {
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) {
        sum += (double)weights[i];
        if (sum > at) return i;
    }
    return count - 1;
}

// k-means++ seeding (Arthur & Vassilvitskii 2007): each further key is a candidate drawn by its
// squared distance to the nearest key so far. All get the length that random sub-keys have.
static reef_status spread_keys(start *s, const table_of *table, float *keys, reef_error *err) {
    const reef_config *config = &s->trainer->network.config;
    size_t S = reef_open_generation(s->trainer)->info.side, half = config->d_key / 2;
    const float *halves = s->halves[table->l][table->half] + table->number * s->candidates * half;
    uint64_t stream = stream_of(table, STREAM_CHOICE);
    // sqrt(half / (3 d_key)) is the length of a sub-key drawn uniformly as in generation_init.c.
    float length = sqrtf((float)half / (3.0f * (float)config->d_key));
    float *nearest = malloc(s->candidates * sizeof(*nearest));
    if (nearest == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to choose sub-keys");
    // The distance of unit vectors is 2 - 2 cos; keys start farther away than anything can be.
    for (size_t i = 0; i < s->candidates; i++) nearest[i] = 4.0f; // of two directions: at most 2^2
    for (size_t k = 0; k < S; k++) {
        double sum = 0.0;
        for (size_t i = 0; i < s->candidates; i++) sum += (double)nearest[i];
        double at = reef_random_unit(s->seed, stream, k);
        // A sum of zero means that every candidate is a key already; then any of them will do.
        size_t chosen = sum > 0.0 ? pick(nearest, s->candidates, at * sum)
                                  : (size_t)(at * (double)s->candidates);
        const float *key = halves + chosen * half;
        float *to = keys + (k * s->tables + table->number) * half;
        for (size_t d = 0; d < half; d++) to[d] = length * key[d];
        for (size_t i = 0; i < s->candidates; i++) {
            float distance = 2.0f - 2.0f * reef_dot(half, halves + i * half, key);
            // Rounding can make the distance of equal vectors slightly negative, and a negative
            // weight would break the draw.
            if (distance < nearest[i]) nearest[i] = distance > 0.0f ? distance : 0.0f;
        }
    }
    free(nearest);
    return REEF_OK;
}

static reef_status place_sub_keys(start *s, reef_error *err) {
    const reef_config *config = &s->trainer->network.config;
    reef_status status = REEF_OK;
    // Both tables of every head get keys of their own: heads ask different questions.
    for (uint32_t l = 0; status == REEF_OK && l < config->layers; l++) {
        if (!reef_layer_retrieves(config, l)) continue;
        reef_router_params *router = &reef_open_generation(s->trainer)->weights.routers[l];
        for (size_t i = 0; status == REEF_OK && i < s->tables; i++) {
            status = spread_keys(s, &(table_of){l, 0, i}, router->sub_keys_a, err);
            if (status == REEF_OK)
                status = spread_keys(s, &(table_of){l, 1, i}, router->sub_keys_b, err);
        }
    }
    return status;
}

// ---- copies -------------------------------------------------------------------------------------

// A rank that shares the pass chose for its own windows alone.
static void gather_choice(const start *s, reef_expert_id *indices, size_t each) {
    const reef_trainer *trainer = s->trainer;
    size_t windows =
        trainer->network.config.batch + trainer->rehearse_windows + trainer->retain_windows;
    size_t bytes = trainer->network.config.context * each * sizeof(*indices);
    const reef_ranks_array chosen = {indices, bytes, bytes};
    reef_ranks_gather(trainer->options.ranks, windows, 1, &chosen);
}

static void count_uses(start *s, uint32_t l) {
    const reef_network *network = &s->trainer->network;
    const reef_config *config = &network->config;
    size_t P = (size_t)config->heads * config->topk, rows = reef_batch_tokens(config);
    size_t stride = reef_step_windows(config) * config->context;
    for (size_t g = 0; g < network->generation_count; g++) {
        // `fire` is of the batch that was just run forward; generation 0 takes part everywhere.
        const uint8_t *fire = s->trainer->fire + g * stride;
        uint32_t *uses = s->uses[g * config->layers + l];
        // A generation that fired nowhere in the batch has no tape to read.
        if (g > 0 && memchr(fire, 1, rows) == NULL) continue;
        reef_expert_id *indices = s->trainer->acts.expert_tables[g][l].tape.indices;
        gather_choice(s, indices, P);
        for (size_t t = 0; t < rows; t++)
            for (size_t p = 0; (g == 0 || fire[t]) && p < P; p++) uses[indices[t * P + p]]++;
    }
}

typedef struct used {
    uint32_t uses, generation;
    size_t expert;
} used;

static int most_used_first(const void *a, const void *b) {
    const used *x = a, *y = b;
    if (x->uses != y->uses) return x->uses < y->uses ? 1 : -1;
    if (x->generation != y->generation) return x->generation < y->generation ? -1 : 1;
    return (x->expert > y->expert) - (x->expert < y->expert);
}

// The experts of generations [first, end) in layer l that were used at all, most used first.
static used *rank(const start *s, uint32_t l, size_t first, size_t end, size_t *count) {
    const reef_network *network = &s->trainer->network;
    // At least one element, so that malloc never returns NULL for an empty list.
    size_t most = 1;
    for (size_t g = first; g < end; g++)
        most += network->generations[g]->expert_tables[l].expert_count;
    used *list = malloc(most * sizeof(*list));
    *count = 0;
    if (list == NULL) return NULL;
    for (size_t g = first; g < end; g++) {
        const uint32_t *uses = s->uses[g * network->config.layers + l];
        for (size_t n = 0; n < network->generations[g]->expert_tables[l].expert_count; n++)
            // Unused experts are left out: copying one would waste a slot.
            if (uses[n] > 0) list[(*count)++] = (used){uses[n], (uint32_t)g, n};
    }
    qsort(list, *count, sizeof(*list), most_used_first);
    return list;
}

// The most used expert before is copied to where the new router chooses most, the second to where
// it chooses second most.
static reef_status copy_layer(start *s, uint32_t l, size_t *copied, reef_error *err) {
    const reef_network *network = &s->trainer->network;
    size_t last = network->generation_count - 1, old_count, new_count, D = network->config.d_model;
    reef_expert_table *table = &network->generations[last]->expert_tables[l];
    size_t count = 0;
    reef_row_copy *list = NULL;
    // Two rankings: which old experts the new data uses, and where the new router sends it.
    used *old = rank(s, l, 0, last, &old_count), *new = rank(s, l, last, last + 1, &new_count);
    reef_status status = REEF_OK;
    if (old == NULL || new == NULL) {
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to rank experts");
        goto cleanup;
    }
    while (count < network->config.copy_experts && count < old_count && count < new_count) count++;
    list = malloc((count + 1) * sizeof(*list));
    if (list == NULL) {
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to copy %zu experts", count);
        goto cleanup;
    }
    for (size_t i = 0; i < count; i++) {
        list[i] = (reef_row_copy){&network->generations[old[i].generation]->expert_tables[l],
                                  old[i].expert, table, new[i].expert};
        table->dirty[new[i].expert] = 1;
    }
    // w_down and w_gate are copied. w_up stays zero: the copy reads what the old expert reads and
    // adds nothing until it has learned.
    reef_rows_copy(s->trainer->acts.row_ranks, count, list, 0, D);
    if (table->row_values > 2 * D)
        reef_rows_copy(s->trainer->acts.row_ranks, count, list, 2 * D, table->row_values - 2 * D);
    *copied += count;

cleanup:
    free(list);
    free(old);
    free(new);
    return status;
}

// ---- older experts ------------------------------------------------------------------------------

static void weigh_older(const start *s, float factor) {
    const reef_config *config = &s->trainer->network.config;
    const reef_generation *open = reef_open_generation(s->trainer);
    for (uint32_t l = 0; l < config->layers; l++)
        for (size_t d = 0; open->weights.delta_older[l] != NULL && d < config->d_model; d++)
            open->weights.delta_older[l][d] = factor - 1.0f;
}

static void add_bits(void *context, size_t number, double bits) {
    double *sum = context;
    (void)number;
    *sum += bits;
}

// Experts of prose are noise on a genome: what they add can be unlearned, but that takes long.
// Whichever of all and nothing gives the smaller loss is where the weights of their sum begin.
static reef_status choose_older(
    const start *s, const uint8_t *fresh, size_t batches, bool *without, reef_error *err) {
    double all = 0.0, none = 0.0;
    reef_status status = reef_probe_walk(s->trainer, fresh, batches, add_bits, &all, NULL, err);
    weigh_older(s, 0.0f);
    if (status == REEF_OK)
        status = reef_probe_walk(s->trainer, fresh, batches, add_bits, &none, NULL, err);
    *without = status == REEF_OK && none < all;
    if (!*without) weigh_older(s, 1.0f);
    return status;
}

// ---- the start ----------------------------------------------------------------------------------

static void collect_queries(void *context, size_t number, double bits) {
    start *s = context;
    (void)bits;
    for (uint32_t l = 0; l < s->trainer->network.config.layers; l++)
        if (reef_layer_retrieves(&s->trainer->network.config, l)) gather_halves(s, l, number);
}

static void collect_uses(void *context, size_t number, double bits) {
    start *s = context;
    (void)number;
    (void)bits;
    for (uint32_t l = 0; l < s->trainer->network.config.layers; l++)
        if (reef_layer_retrieves(&s->trainer->network.config, l)) count_uses(s, l);
}

reef_status reef_start_generation(reef_trainer *trainer,
                                  const uint8_t *fresh,
                                  size_t fresh_bytes,
                                  reef_error *err) {
    const reef_config *config = &trainer->network.config;
    const reef_generation *open = reef_open_generation(trainer);
    // Fresh data is read in whole batches, as training will read it.
    size_t batches = fresh_bytes / reef_batch_bytes(config), copied = 0;
    bool queries = config->subkeys_new == REEF_SUBKEYS_NEW_QUERIES, without = false;
    start s = {
        .trainer = trainer,
        .seed = reef_random_bits(config->seed, 1, open->info.generation),
        .probes = reef_probe_count(batches),
    };
    reef_router_shape shape = reef_generation_shape(config, open->info.side);
    s.tables = reef_router_tables(&shape);
    s.candidates = candidate_count(open->info.side, s.probes);
    reef_status status = allocate_start(&s, err);
    // First walk: which queries the new data asks. Sub-keys are drawn among them before the choices
    // are counted.
    if (status == REEF_OK && queries) {
        status = reef_probe_walk(trainer, fresh, batches, collect_queries, &s, NULL, err);
        if (status == REEF_OK) status = place_sub_keys(&s, err);
    }
    // Another walk: which of the new experts are used depends on the sub-keys.
    if (status == REEF_OK && config->copy_experts > 0)
        status = reef_probe_walk(trainer, fresh, batches, collect_uses, &s, NULL, err);
    for (uint32_t l = 0; status == REEF_OK && config->copy_experts > 0 && l < config->layers; l++)
        if (reef_layer_ffw(config, l) == REEF_FFW_PEER) // a value has nothing but its w_up
            status = copy_layer(&s, l, &copied, err);
    // Third: with all older experts or with none. Each of these steps changes what the next one
    // measures, so their order is fixed.
    if (status == REEF_OK && config->weigh_older)
        status = choose_older(&s, fresh, batches, &without, err);
    release_start(&s);
    if (status != REEF_OK) return status;
    reef_generation_average_reset(reef_open_generation(trainer)); // it has not trained yet
    uint32_t origin = REEF_BRANCH_TRIAL_NONE;
    // Last, because a branch replaces the open generation with everything that was prepared above.
    if (config->branch_new == REEF_BRANCH_NEW_TRIAL)
        status = reef_branch_trial_choose(trainer, fresh, batches, &origin, err);
    if (status != REEF_OK) return status;
    char branch[32] = "null";
    if (origin != REEF_BRANCH_TRIAL_NONE) snprintf(branch, sizeof(branch), "%" PRIu32, origin);
    return reef_state_event(trainer, err, "start",
                            "\"subkeys\": \"%s\", \"copied\": %zu, \"older\": %s, \"bytes\": %zu, "
                            "\"branch\": %s",
                            reef_config_word(config, "subkeys_new"), copied,
                            without ? "false" : "true", batches * reef_batch_bytes(config), branch);
}
