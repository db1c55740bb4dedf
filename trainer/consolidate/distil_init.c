// What a consolidated generation starts from. Query networks descend from each other, so a sub-key
// means about the same in all of them: each old generation gives the sub-keys that were used most,
// side by side in one grid, with the experts that lie where its own meet. Experts where sub-keys of
// two generations meet are new and silent.
#include "distil.h"

#include "generation.h"

#include <stdlib.h>
#include <string.h>

typedef struct ranked {
    uint64_t count;
    uint32_t key;
} ranked;

static int most_used_first(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->count != y->count) return x->count < y->count ? 1 : -1;
    return (x->key > y->key) - (x->key < y->key);
}

static int ascending(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

// The `wanted` sub-keys of each table whose experts were chosen most, in the order of the table.
static void choose_keys(
    const reef_usage *usage, uint32_t side, uint32_t wanted, ranked *a, ranked *b) {
    // Experts are the cells of a square: row i of table a, column j of table b. A sub-key is as
    // useful as the uses of its whole row or column.
    for (uint32_t i = 0; i < side; i++) a[i] = b[i] = (ranked){.key = i};
    for (uint64_t id = 0; id < (uint64_t)side * side; id++) {
        uint32_t i, j;
        reef_expert_pair_of((reef_expert_id)id, &i, &j);
        a[i].count += usage[id].count;
        b[j].count += usage[id].count;
    }
    // The first sort ranks by use, the second puts the winners back in table order. So the same
    // winners give the same layout, whatever order qsort left equal counts in.
    qsort(a, side, sizeof(*a), most_used_first);
    qsort(b, side, sizeof(*b), most_used_first);
    qsort(a, wanted, sizeof(*a), ascending);
    qsort(b, wanted, sizeof(*b), ascending);
}

// Sub-keys and experts of one layer of one generation, to `at` of both tables and the square there.
static void give_layer(const reef_config *config,
                       reef_generation *student,
                       const reef_generation *from,
                       uint32_t layer,
                       uint32_t at,
                       uint32_t count,
                       const ranked *a,
                       const ranked *b) {
    // Copied sub-keys keep their pairing: expert (i, j) of the copy meets the queries that (a[i],
    // b[j]) met.
    reef_router_shape shape = reef_generation_shape(config, student->info.side);
    size_t key = reef_router_key_row(&shape);
    const reef_router_params *old = &from->weights.routers[layer];
    reef_router_params *router = &student->weights.routers[layer];
    reef_expert_table *table = &student->expert_tables[layer];
    for (uint32_t i = 0; i < count; i++) {
        memcpy(router->sub_keys_a + (at + i) * key, old->sub_keys_a + a[i].key * key,
               key * sizeof(float));
        memcpy(router->sub_keys_b + (at + i) * key, old->sub_keys_b + b[i].key * key,
               key * sizeof(float));
        for (uint32_t j = 0; j < count; j++) {
            // Rows are read as floats whatever their stored type, since the student trains in f32.
            size_t to = (size_t)reef_expert_id_of(at + i, at + j) * table->row_values;
            reef_expert_table_row_read(&from->expert_tables[layer],
                                       reef_expert_id_of(a[i].key, b[j].key), 0, table->row_values,
                                       table->experts + to);
        }
    }
}

static reef_status give_experts(const reef_config *config,
                                reef_generation *student,
                                const reef_generation *from,
                                uint32_t at,
                                uint32_t count,
                                reef_txn *txn,
                                reef_error *err) {
    uint32_t side = from->info.side;
    size_t N = (size_t)side * side;
    reef_usage *usage = calloc(N, sizeof(*usage));
    ranked *keys = calloc(2 * (size_t)side, sizeof(*keys));
    reef_status status = REEF_OK;
    if (usage == NULL || keys == NULL)
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to rank %zu experts", N);
    // Layers are ranked separately: in each one other experts are in use.
    for (uint32_t l = 0; status == REEF_OK && l < config->layers; l++) {
        if (!reef_layer_retrieves(config, l)) continue;
        status = reef_usage_read(txn, from->info.generation, l, N, usage, err);
        if (status != REEF_OK) break;
        choose_keys(usage, side, count, keys, keys + side);
        give_layer(config, student, from, l, at, count, keys, keys + side);
    }
    free(usage);
    free(keys);
    return status;
}

// The student's tensor becomes the mean of the old ones, such as deltas of the embedding.
static void mean_tensor(const reef_distil *distil, reef_generation *student, const char *name) {
    const reef_tensor *to = reef_generation_find(student, name);
    const reef_network *network = &distil->trainer->network;
    float share = 0.0f;
    for (uint32_t g = distil->first; g <= distil->last; g++)
        share += reef_generation_is_empty(&network->generations[g]->info) ? 0.0f : 1.0f;
    for (uint32_t g = distil->first; g <= distil->last; g++) {
        if (reef_generation_is_empty(&network->generations[g]->info)) continue;
        reef_axpy(to->count, to->data, 1.0f / share,
                  reef_generation_find(network->generations[g], name)->data);
    }
}

static bool ends_with(const char *name, const char *end) {
    size_t length = strlen(name), last = strlen(end);
    return length > last && strcmp(name + length - last, end) == 0;
}

// Adapters have no common coordinates that a mean could be taken in: those of the last one, and
// with them what it makes of older experts.
static void give_adapters(reef_generation *student, const reef_generation *from) {
    for (size_t i = 0; i < student->tensor_count; i++) {
        const reef_tensor *to = &student->tensors[i];
        if (!ends_with(to->name, "_down") && !ends_with(to->name, "_up") &&
            strstr(to->name, ".delta_") == NULL)
            continue;
        memcpy(to->data, reef_generation_find(from, to->name)->data, to->count * sizeof(*to->data));
    }
}

// Sub-keys that each old generation may give: equal shares of the side, and no more than it has.
static uint32_t quota(
    const reef_network *network, uint32_t first, uint32_t last, uint32_t g, uint32_t left) {
    uint32_t successors = 0, side = network->generations[g]->info.side;
    for (uint32_t i = g > first ? g : first; i <= last; i++)
        successors += !reef_generation_is_empty(&network->generations[i]->info);
    uint32_t share = left / successors;
    return share < side ? share : side;
}

reef_status reef_distil_start(const reef_distil *distil,
                              reef_generation *student,
                              reef_error *err) {
    const reef_network *network = &distil->trainer->network;
    const reef_config *config = &network->config;
    reef_txn *txn = NULL;
    uint32_t at = 0;
    reef_status status = reef_txn_begin(&txn, distil->trainer->store, REEF_TXN_READ, err);
    // Each old generation gets a band of both tables, as wide as its share of use. Bands follow
    // each other along the diagonal; the cells beside it stay random and pair sub-keys of different
    // generations.
    for (uint32_t g = distil->first; status == REEF_OK && g <= distil->last; g++) {
        const reef_generation *from = network->generations[g];
        if (reef_generation_is_empty(&from->info)) continue;
        uint32_t count = quota(network, distil->first, distil->last, g, distil->side - at);
        status = give_experts(config, student, from, at, count, txn, err);
        at += count;
    }
    reef_txn_abort(txn);
    if (status != REEF_OK) return status;
    // Embedding, head and position corrections are added where a generation fires. Their mean is a
    // fair start for one that fires where any of them did.
    mean_tensor(distil, student, "delta_embedding");
    mean_tensor(distil, student, "delta_head");
    if (config->adapt_position) mean_tensor(distil, student, "delta_position");
    // Adapters of different generations live in different low-rank bases and cannot be averaged:
    // the newest one's are taken.
    give_adapters(student, network->generations[distil->last]);
    return REEF_OK;
}
