// A generation in memory: made, freed, looked into.
#include "generation.h"
#include "generation_internal.h"
#include "reef_huge_page.h"
#include "reef_shard.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(REEF_SIDE_MAX == REEF_GENERATION_SIDE_MAX, "router and store agree");

// Memory for all rows that are here. Of a whole table they are one block.
static bool allocate_rows(reef_expert_table *table) {
    size_t row_bytes = reef_row_bytes(table->rows.dtype, table->row_values);
    const reef_row_share *share = &table->share;
    bool divided = share->count > 1;
    size_t block_rows = (size_t)1 << share->block_shift;
    size_t blocks = divided ? (table->expert_count + block_rows - 1) / block_rows : 1;
    table->memory = reef_huge_page_new(table->row_count, row_bytes);
    table->experts = table->rows.dtype == REEF_F32 ? table->memory : NULL;
    table->blocks = calloc(blocks, sizeof(*table->blocks));
    if (table->memory == NULL || table->blocks == NULL) return false;
    table->block_count = blocks;
    for (size_t b = share->first; b < blocks; b += divided ? share->count : 1)
        table->blocks[b] =
            (const char *)table->memory + reef_row_place(share, b * block_rows) * row_bytes;
    table->rows =
        (reef_expert_rows){.dtype = table->rows.dtype,
                           .block_shift = divided ? share->block_shift : REEF_EXPERT_ONE_BLOCK,
                           .blocks = table->blocks};
    return true;
}

static reef_row_share share_of(reef_row_division division, uint32_t layer, size_t row_values) {
    reef_row_share share = {.count = division.count > 1 ? division.count : 1};
    // As blocks of records are numbered, so that a rank stores what it has.
    while ((uint32_t)1 << share.block_shift < reef_block_rows(row_values * sizeof(float)))
        share.block_shift++;
    if (share.count > 1)
        while (reef_shard_owner(layer, share.first, share.count) != division.rank) share.first++;
    return share;
}

static void release_rows(reef_expert_table *table) {
    reef_huge_page_free(table->memory, table->row_count,
                        reef_row_bytes(table->rows.dtype, table->row_values));
    free(table->blocks);
    free(table->last_block);
    table->memory = table->last_block = NULL;
    table->experts = NULL;
    table->blocks = NULL;
    table->block_count = 0;
    table->rows.blocks = NULL;
}

reef_status reef_generation_allocate_rows(reef_generation *generation, reef_error *err) {
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++) {
        reef_expert_table *table = &generation->expert_tables[l];
        if (table->expert_count == 0 || table->memory != NULL || allocate_rows(table)) continue;
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the rows of %zu experts",
                         table->expert_count);
    }
    return REEF_OK;
}

void reef_generation_drop_rows(reef_generation *generation) {
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++)
        if (generation->expert_tables[l].expert_count > 0)
            release_rows(&generation->expert_tables[l]);
}

static reef_status allocate_table(reef_expert_table *table,
                                  const reef_generation *generation,
                                  uint32_t layer,
                                  const reef_expert_shape *shape,
                                  bool averages,
                                  reef_error *err) {
    size_t N = (size_t)generation->info.side * generation->info.side;
    table->share = share_of(generation->division, layer, reef_expert_row_values(shape));
    table->row_count = reef_rows_here(&table->share, N);
    size_t values = table->row_count * reef_expert_row_values(shape);
    reef_dtype dtype = generation->info.dtype;
    // Only sealed rows are rounded.
    assert(dtype == REEF_F32 || (dtype == REEF_I8 && !generation->open));
    table->expert_count = N;
    table->row_values = reef_expert_row_values(shape);
    table->rows.dtype = dtype;
    bool ok = true;
    // A sealed generation gets its rows when it is loaded, or reads them in place.
    if (generation->open) {
        ok = allocate_rows(table);
        table->flags = calloc(N, 1);
        table->dirty = calloc(N, 1);
        table->usage = calloc(N, sizeof(reef_usage));
        // Huge pages: a step touches rows all over these arrays, and page-table misses would cost
        // more than the arithmetic.
        table->moments.adam_m = reef_huge_page_new(values, sizeof(float));
        table->moments.adam_v = reef_huge_page_new(values, sizeof(float));
        if (averages) table->moments.average = reef_huge_page_new(values, sizeof(float));
        // One more: of many ranks one may have no row at all.
        table->moments.counts = calloc(table->row_count + 1, sizeof(uint32_t));
        ok = ok && table->flags != NULL && table->dirty != NULL && table->usage != NULL &&
             table->moments.adam_m != NULL && table->moments.adam_v != NULL &&
             (table->moments.average != NULL || !averages) && table->moments.counts != NULL;
    }
    if (ok) return REEF_OK;
    size_t planes = generation->open ? (averages ? 4 : 3) : 1; // rows, moments, averages
    return reef_fail(err, REEF_ERR_NO_MEMORY,
                     "no memory for %zu experts of width %zu: their rows%s take %.1f GB in layer "
                     "%" PRIu32 "; several ranks can have a part each, see reef shards --help",
                     table->row_count, shape->D, generation->open ? " and moments" : "",
                     1e-9 * (double)(planes * values * sizeof(float)), layer);
}

static reef_status allocate_folded(reef_generation *generation,
                                   const reef_config *config,
                                   reef_error *err) {
    // The folded query is the trained one with batch norm multiplied in, so evaluation needs one
    // product.
    size_t width = (size_t)config->heads * config->d_key;
    size_t each = (config->d_model + 1) * width;
    generation->folded_values = calloc(config->layers * each, sizeof(float));
    if (generation->folded_values == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for folded queries");
    for (uint32_t l = 0; l < config->layers; l++) {
        if (!reef_layer_retrieves(config, l)) continue;
        reef_router_params *folded = &generation->folded[l];
        folded->w_query = generation->folded_values + l * each;
        folded->query_bias = folded->w_query + config->d_model * width;
        // Sub-keys are shared with the trained router; folding does not change them.
        folded->sub_keys_a = generation->weights.routers[l].sub_keys_a;
        folded->sub_keys_b = generation->weights.routers[l].sub_keys_b;
    }
    return REEF_OK;
}

reef_status reef_generation_new(reef_generation **out,
                                const reef_config *config,
                                const reef_generation_record *info,
                                reef_row_division division,
                                reef_error *err) {
    *out = NULL;
    reef_status status = REEF_OK;
    reef_generation *generation = calloc(1, sizeof(*generation));
    if (generation == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for generation %u", info->generation);
    generation->info = *info;
    generation->open = !info->sealed;
    generation->division = division;
    // Counted first, so that all dense values are one block: they are cleared, copied and hashed as
    // one.
    reef_generation_count_tensors(generation, config);
    generation->tensors = calloc(generation->tensor_count, sizeof(*generation->tensors));
    generation->values = calloc(generation->value_count, sizeof(*generation->values));
    bool averages = !reef_config_is_layer(config);
    if (generation->open)
        // Gradient and both moments of every dense value, and its average where one is kept.
        generation->training =
            calloc((averages ? 4 : 3) * generation->value_count, sizeof(*generation->training));
    if (generation->tensors == NULL || generation->values == NULL ||
        (generation->open && generation->training == NULL)) {
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu parameters",
                           generation->value_count);
        goto cleanup;
    }
    reef_generation_lay_out(generation, config);

    for (uint32_t l = 0; l < config->layers; l++) {
        if (!reef_layer_retrieves(config, l)) continue;
        reef_expert_shape experts = reef_generation_expert_shape(config, l);
        status =
            allocate_table(&generation->expert_tables[l], generation, l, &experts, averages, err);
        if (status != REEF_OK) goto cleanup;
    }
    if (generation->open) {
        status = allocate_folded(generation, config, err);
        if (status != REEF_OK) goto cleanup;
    }
    *out = generation;
    generation = NULL; // the caller owns it now

cleanup:
    reef_generation_free(generation);
    return status;
}

static void release_tables(reef_expert_table *table) {
    size_t values = table->row_count * table->row_values;
    release_rows(table);
    free(table->flags);
    free(table->dirty);
    free(table->usage);
    reef_huge_page_free(table->moments.adam_m, values, sizeof(float));
    reef_huge_page_free(table->moments.adam_v, values, sizeof(float));
    reef_huge_page_free(table->moments.average, values, sizeof(float));
    free(table->moments.counts);
    *table = (reef_expert_table){0};
}

void reef_generation_release_visits(reef_generation *generation) {
    for (size_t i = 0; i < generation->visit_count; i++)
        reef_generation_memory_release(&generation->visits[i].memory);
    free(generation->visits);
    generation->visits = NULL;
    generation->visit_count = 0;
}

void reef_generation_free(reef_generation *generation) {
    if (generation == NULL) return;
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++)
        release_tables(&generation->expert_tables[l]);
    reef_generation_memory_release(&generation->memory);
    reef_generation_release_visits(generation);
    free(generation->merged_values);
    free(generation->folded_values);
    free(generation->training);
    free(generation->values);
    free(generation->tensors);
    free(generation);
}

const reef_tensor *reef_generation_find(const reef_generation *generation, const char *name) {
    for (size_t i = 0; i < generation->tensor_count; i++)
        if (strcmp(generation->tensors[i].name, name) == 0) return &generation->tensors[i];
    return NULL;
}

// A row of an expert's values.
void reef_expert_table_row_read(
    const reef_expert_table *table, size_t n, size_t from, size_t count, float *out) {
    const reef_expert_rows *rows = &table->rows;
    uint64_t id = n, block = id >> rows->block_shift; // 64 bits wide: the shift may be 32
    // Rows lie in blocks of 2^block_shift; the shift is 32 where all are in one.
    assert(rows->blocks[block] != NULL); // another rank's row
    size_t row = (size_t)(id - (block << rows->block_shift));
    if (rows->dtype == REEF_F32) {
        memcpy(out, (const float *)rows->blocks[block] + row * table->row_values + from,
               count * sizeof(*out));
        return;
    }
    const int8_t *whole =
        (const int8_t *)rows->blocks[block] + row * reef_row_bytes(REEF_I8, table->row_values);
    for (size_t i = 0; i < count; i++)
        out[i] = reef_i8_scale(whole) * (float)whole[REEF_I8_SCALE_BYTES + from + i];
}

// ---- copying ------------------------------------------------------------------------------------

void reef_generation_copy_tensors(reef_generation *to, const reef_generation *from, bool moments) {
    for (size_t i = 0; i < to->tensor_count; i++) {
        reef_tensor *tensor = &to->tensors[i];
        const reef_tensor *old = reef_generation_find(from, tensor->name);
        if (old == NULL) continue;
        // After growth tensors differ in size; the common prefix is what both have.
        size_t count = old->count < tensor->count ? old->count : tensor->count;
        reef_floats_copy(tensor->data, old->data, count);
        if (!moments || tensor->adam_m == NULL) continue;
        reef_floats_copy(tensor->adam_m, old->adam_m, count);
        reef_floats_copy(tensor->adam_v, old->adam_v, count);
        if (tensor->average != NULL) reef_floats_copy(tensor->average, old->average, count);
    }
}

// ---- model --------------------------------------------------------------------------------------
//
// The list of generations that make up a model.

reef_status reef_network_reserve(reef_network *network, size_t count, reef_error *err) {
    if (count <= network->generation_capacity) return REEF_OK;
    reef_generation **generations = realloc(network->generations, count * sizeof(*generations));
    if (generations == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu generations", count);
    network->generations = generations;
    network->generation_capacity = count;
    return REEF_OK;
}

reef_status reef_network_append(reef_network *network,
                                reef_generation *generation,
                                reef_error *err) {
    reef_status status = reef_network_reserve(network, network->generation_count + 1, err);
    if (status == REEF_OK)
        network->generations[network->generation_count++] = generation;
    else
        reef_generation_free(generation);
    return status;
}

void reef_network_release(reef_network *network) {
    for (size_t g = 0; g < network->generation_count; g++)
        reef_generation_free(network->generations[g]);
    free(network->generations);
    *network = (reef_network){0};
}

size_t reef_network_net_of(const reef_network *network, uint32_t kind) {
    size_t newest = kind;
    for (size_t g = kind; g < network->generation_count; g++)
        if (reef_generation_kind(&network->generations[g]->info) == kind) newest = g;
    return newest;
}

uint64_t reef_network_parameter_count(const reef_network *network) {
    uint64_t count = 0;
    for (size_t g = 0; g < network->generation_count; g++) {
        count += network->generations[g]->value_count;
        for (uint32_t l = 0; l < network->config.layers; l++)
            count += (uint64_t)network->generations[g]->expert_tables[l].expert_count *
                     network->generations[g]->expert_tables[l].row_values;
    }
    return count;
}
