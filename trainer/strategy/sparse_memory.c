// Sparse memory finetuning (Lin et al. 2025): the first task trains everything. After the first
// boundary only rows of experts train, and of these in each step the `sparse_slots` of a layer that
// the step uses much and old data uses little: TF-IDF with a step as the document and windows of
// old data as the corpus.
#include "batch.h"
#include "strategy.h"
#include "trainer_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BACKGROUND_WINDOWS_MAX 512 // Lin et al. take 1,000 batches

// ---- at a boundary ------------------------------------------------------------------------------

reef_status reef_sparse_prepare(reef_trainer *trainer, reef_error *err) {
    reef_strategy *strategy = &trainer->strategy;
    const reef_generation *generation = reef_open_generation(trainer);
    size_t most = 0;
    bool ok = true;
    // Arrays are per layer and sized by its experts; layers of another kind have none.
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++) {
        size_t N = generation->expert_tables[l].expert_count;
        if (N == 0) continue;
        free(strategy->background[l]);
        free(strategy->kept[l]);
        strategy->background[l] = calloc(N, sizeof(*strategy->background[l]));
        strategy->kept[l] = calloc(N, 1);
        ok = ok && strategy->background[l] != NULL && strategy->kept[l] != NULL;
        if (N > most) most = N;
    }
    free(strategy->slots);
    // Scratch for the ranking, large enough for the layer with most experts.
    strategy->slots = calloc(most + 1, sizeof(*strategy->slots));
    if (ok && strategy->slots != NULL) return REEF_OK;
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to count the uses of %zu experts", most);
}

// One more window of background that uses its experts; `kept` remembers which were counted.
static void count_layer(reef_trainer *trainer, uint32_t l) {
    reef_strategy *strategy = &trainer->strategy;
    const reef_config *config = &trainer->network.config;
    size_t pairs = (size_t)config->context * config->heads * config->topk;
    const reef_expert_id *indices = trainer->acts.expert_tables[0][l].tape.indices;
    uint8_t *counted = strategy->kept[l];
    memset(counted, 0, reef_open_generation(trainer)->expert_tables[l].expert_count);
    for (size_t i = 0; i < pairs; i++) {
        strategy->background[l][indices[i]] += !counted[indices[i]];
        counted[indices[i]] = 1;
    }
}

static reef_status count_window(reef_trainer *trainer, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    // No targets: only which experts are chosen matters, and no loss is computed.
    reef_batch batch = {
        .windows = 1,
        .tokens = trainer->tokens,
        .fire = trainer->fire,
        .fire_stride = reef_step_windows(config) * config->context,
    };
    reef_status status = reef_network_forward(&trainer->acts, &trainer->network, trainer->workers,
                                              &batch, REEF_PASS_EVALUATE, err);
    for (uint32_t l = 0; status == REEF_OK && l < config->layers; l++)
        if (reef_layer_retrieves(config, l)) count_layer(trainer, l);
    return status;
}

reef_status reef_sparse_boundary(reef_trainer *trainer, reef_error *err) {
    size_t count;
    reef_status status = reef_sparse_prepare(trainer, err);
    if (status != REEF_OK) return status;
    // Routes as it will from now on; what stands still is what is evaluated.
    reef_generation_average_adopt(reef_open_generation(trainer), &trainer->network.config);
    status = reef_strategy_sample(trainer, BACKGROUND_WINDOWS_MAX, count_window, &count, err);
    if (status == REEF_OK) trainer->strategy.background_windows = (uint32_t)count;
    return status;
}

// ---- in a step ----------------------------------------------------------------------------------

static int best_first(const void *a, const void *b) {
    const reef_scored_expert *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return (x->expert > y->expert) - (x->expert < y->expert);
}

size_t reef_sparse_choose(const reef_expert_pairs *pairs,
                          size_t expert_count,
                          const uint32_t *background,
                          uint32_t windows,
                          size_t slots,
                          const uint8_t *flags,
                          uint8_t *kept,
                          reef_scored_expert *scratch) {
    size_t count = 0;
    // 1 means frozen. Everything is frozen except what is chosen below.
    memset(kept, 1, expert_count);
    for (size_t at = 0, end; at < pairs->pair_count; at = end) {
        // Pairs are sorted by expert, so one run of them is all uses of one expert in this batch.
        end = reef_expert_pairs_end(pairs, at);
        reef_expert_id expert = reef_pair_expert(pairs->sorted[at]);
        if (flags != NULL && flags[expert]) continue;
        // TF-IDF (Sparck Jones 1972): much used now, rarely used in the background.
        double rarity = log(((double)windows + 1.0) / ((double)background[expert] + 1.0));
        scratch[count++] =
            (reef_scored_expert){.score = (double)(end - at) * rarity, .expert = expert};
    }
    // Equal scores are ordered by expert, so the choice does not depend on the sort.
    qsort(scratch, count, sizeof(*scratch), best_first);
    if (count > slots) count = slots;
    for (size_t i = 0; i < count; i++) kept[scratch[i].expert] = 0;
    return count;
}

const uint8_t *reef_sparse_freeze(void *context, uint32_t l, const reef_expert_pairs *pairs) {
    reef_trainer *trainer = context;
    reef_strategy *strategy = &trainer->strategy;
    const reef_expert_table *table = &reef_open_generation(trainer)->expert_tables[l];
    reef_sparse_choose(pairs, table->expert_count, strategy->background[l],
                       strategy->background_windows, trainer->network.config.sparse_slots,
                       table->flags, strategy->kept[l], strategy->slots);
    return strategy->kept[l];
}
