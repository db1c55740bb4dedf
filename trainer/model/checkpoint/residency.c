// See residency.h.
#include "residency.h"

#include "checkpoint.h"
#include "checkpoint_internal.h"
#include "reef_shard.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GIB ((uint64_t)1 << 30)
#define PIN_SHARE 20.0 // times longer pinned than it took to find the rows

static uint64_t machine_bytes(void) {
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : GIB;
}

void reef_residency_init(reef_residency *residency, reef_store *store, uint64_t memory_bytes) {
    *residency = (reef_residency){
        .store = store, .memory_bytes = memory_bytes > 0 ? memory_bytes : machine_bytes()};
}

void reef_residency_release(reef_residency *residency) {
    reef_residency_unpin(residency);
    reef_row_prefetch_free(residency->prefetch);
    *residency = (reef_residency){0};
}

// ---- the decision -------------------------------------------------------------------------------

static uint64_t row_bytes(const reef_config *config, const reef_generation_record *info) {
    uint64_t bytes = 0; // of an expert in every layer
    for (uint32_t l = 0; l < config->layers; l++) {
        reef_expert_shape shape = reef_generation_expert_shape(config, l);
        if (reef_layer_retrieves(config, l))
            bytes += reef_row_bytes(info->dtype, reef_expert_row_values(&shape));
    }
    return bytes * info->side * info->side;
}

static void decide_in_place(reef_residency *residency, uint64_t sealed_bytes) {
    residency->in_place = sealed_bytes > residency->memory_bytes / 2;
}

reef_status reef_residency_decide(reef_residency *residency,
                                  reef_txn *txn,
                                  const reef_config *config,
                                  uint32_t sealed_count,
                                  reef_error *err) {
    uint64_t bytes = 0;
    for (uint32_t g = 0; g < sealed_count; g++) {
        reef_generation_record info;
        reef_status status = reef_generation_read(txn, g, &info, err);
        if (status != REEF_OK) return status;
        // Open rows change and are always copied; they do not count.
        if (info.sealed) bytes += row_bytes(config, &info);
    }
    decide_in_place(residency, bytes);
    return REEF_OK;
}

// ---- in place -----------------------------------------------------------------------------------

// Take in where the rows of a layer lie: what a pager has to cover, a span for each file that the
// pool is read from. The last block of a layer is not in the map.
static void widen(reef_map_span *spans,
                  size_t count,
                  uint32_t layer,
                  const reef_expert_table *table) {
    size_t bytes = reef_row_bytes(table->rows.dtype, table->row_values) << table->rows.block_shift;
    for (size_t b = 0; b + 1 < table->block_count; b++) {
        const uint8_t *at = table->blocks[b];
        reef_map_span *all = &spans[reef_shard_owner(layer, (uint32_t)b, (uint32_t)count)];
        if (at == NULL) continue; // another rank's
        if (all->first == NULL || at < all->first) all->first = at;
        if (all->end == NULL || at + bytes > all->end) all->end = at + bytes;
    }
}

static bool is_in_place(const reef_generation *generation) {
    return !generation->open && generation->stored;
}

static reef_status locate(reef_residency *residency, reef_network *network, reef_error *err) {
    size_t count = reef_store_part_count(residency->store);
    reef_map_span *spans = calloc(count, sizeof(*spans));
    if (spans == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the maps of %zu files", count);
    reef_status status = REEF_OK;
    for (size_t g = 0; status == REEF_OK && g < network->generation_count; g++) {
        reef_generation *generation = network->generations[g];
        if (!is_in_place(generation)) continue;
        // Rows that were copied before are freed before their addresses in the map are looked up:
        // both at once would not fit.
        reef_generation_drop_rows(generation);
        status = reef_checkpoint_locate(generation, residency->txn, &network->config, err);
        for (uint32_t l = 0; status == REEF_OK && l < network->config.layers; l++)
            widen(spans, count, l, &generation->expert_tables[l]);
    }
    if (status == REEF_OK) status = reef_row_prefetch_cover(residency->prefetch, spans, count, err);
    free(spans);
    return status;
}

// A sealed generation is the same for ever, but another process may go back to a snapshot and seal
// another one.
static reef_status check_same(const reef_residency *residency,
                              const reef_network *network,
                              reef_error *err) {
    for (size_t g = 0; g < network->generation_count; g++) {
        const reef_generation_record *info = &network->generations[g]->info;
        // Of a generation whose root changed the rows in the map are not ours any more.
        reef_generation_record now;
        if (!is_in_place(network->generations[g])) continue;
        reef_status status = reef_generation_read(residency->txn, info->generation, &now, err);
        if (status != REEF_OK) return status;
        if (memcmp(now.root, info->root, sizeof(now.root)) != 0)
            return reef_fail(err, REEF_ERR_BUSY,
                             "generation %u was given up while the model was in use; open it again",
                             info->generation);
    }
    return REEF_OK;
}

static reef_status begin_read(reef_residency *residency,
                              reef_network *network,
                              bool loaded,
                              reef_error *err) {
    double start = residency->pinned_since = reef_seconds();
    reef_status status = reef_txn_begin(&residency->txn, residency->store, REEF_TXN_READ, err);
    if (status == REEF_OK && loaded) status = check_same(residency, network, err);
    if (status == REEF_OK) status = locate(residency, network, err);
    if (status != REEF_OK) reef_residency_unpin(residency);
    residency->pin_seconds = reef_seconds() - start;
    return status;
}

reef_status reef_residency_pin(reef_residency *residency,
                               reef_network *network,
                               bool loaded,
                               reef_error *err) {
    uint64_t bytes = 0;
    for (size_t g = 0; g < network->generation_count; g++)
        if (is_in_place(network->generations[g]))
            bytes += row_bytes(&network->config, &network->generations[g]->info);
    // Once read in place, a pool stays so: sealed generations only grow in number.
    if (!residency->in_place) decide_in_place(residency, bytes);
    if (!residency->in_place) return REEF_OK;
    reef_status status = REEF_OK;
    // Made at the first need, since most pools fit into memory.
    if (residency->prefetch == NULL)
        status = reef_row_prefetch_new(&residency->prefetch, residency->memory_bytes, err);
    return status == REEF_OK ? begin_read(residency, network, loaded, err) : status;
}

reef_status reef_residency_renew(reef_residency *residency,
                                 reef_network *network,
                                 reef_error *err) {
    double limit = fmax(1e-3 * REEF_READ_MS_MAX, PIN_SHARE * residency->pin_seconds);
    bool recent = residency->txn != NULL && reef_seconds() - residency->pinned_since < limit;
    if (!residency->in_place || recent) return REEF_OK;
    reef_residency_unpin(residency);
    return begin_read(residency, network, true, err);
}

bool reef_residency_is_pinned(const reef_residency *residency) {
    return !residency->in_place || residency->txn != NULL;
}

void reef_residency_unpin(reef_residency *residency) {
    reef_txn_abort(residency->txn);
    residency->txn = NULL;
}

// ---- locate in place ----------------------------------------------------------------------------
//
// Rows of a stored generation that are read where they lie in the store's map.

// A layer's last block may be short, and short records lie at any even address: it is copied.
static reef_status copy_last_block(reef_expert_table *table,
                                   const reef_checkpoint_block *b,
                                   reef_txn *txn,
                                   size_t bytes,
                                   reef_error *err) {
    reef_key key = reef_checkpoint_block_key(b, REEF_DB_EXPERTS);
    table->last_block = malloc(bytes);
    if (table->last_block == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a block of %zu bytes", bytes);
    table->blocks[b->index] = table->last_block;
    return reef_record_read(txn, &key, table->last_block, bytes, err);
}

static reef_status locate_layer(reef_expert_table *table,
                                reef_checkpoint_blocks *all,
                                reef_txn *txn,
                                reef_error *err) {
    size_t each = reef_row_bytes(table->rows.dtype, table->row_values);
    // All blocks but the last are read where they lie.
    table->block_count = (table->expert_count + all->block_rows - 1) / all->block_rows;
    table->blocks = calloc(table->block_count, sizeof(*table->blocks));
    if (table->blocks == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the addresses of %zu blocks",
                         table->block_count);
    for (reef_checkpoint_block b; reef_checkpoint_block_next(all, &b);) {
        reef_key key = reef_checkpoint_block_key(&b, REEF_DB_EXPERTS);
        size_t bytes = b.rows * each;
        bool last = b.index + 1 == table->block_count;
        if (!reef_row_is_here(&table->share, b.first)) continue;
        // The last block is short: a kernel that reads whole vectors could run past the end of the
        // map, so it is copied.
        reef_status status =
            last ? copy_last_block(table, &b, txn, bytes, err)
                 : reef_record_locate(txn, &key, bytes, &table->blocks[b.index], err);
        if (status != REEF_OK) return status;
    }
    uint32_t shift = 0;
    // Blocks have a power of two of rows, so that finding a row is a shift and not a division.
    while ((uint32_t)1 << shift < all->block_rows) shift++;
    table->rows = (reef_expert_rows){
        .dtype = table->rows.dtype, .block_shift = shift, .blocks = table->blocks};
    return REEF_OK;
}

reef_status reef_checkpoint_locate(reef_generation *generation,
                                   reef_txn *txn,
                                   const reef_config *config,
                                   reef_error *err) {
    for (uint32_t l = 0; l < config->layers; l++) {
        reef_expert_table *table = &generation->expert_tables[l];
        if (table->expert_count == 0) continue;
        reef_checkpoint_blocks all = reef_checkpoint_blocks_of(config, generation->info.generation,
                                                               l, table->expert_count, NULL);
        reef_status status = locate_layer(table, &all, txn, err);
        if (status != REEF_OK) return status;
    }
    return REEF_OK;
}
