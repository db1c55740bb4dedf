// Rows of a stored generation that are read where they lie in the store's map.
#include "checkpoint_internal.h"

#include <stdlib.h>

// A layer's last block may be short, and short records lie at any even address: it is copied.
static reef_status copy_last_block(
    reef_peer *peer, const reef_persist_block *b, reef_txn *txn, size_t bytes, reef_error *err) {
    reef_key key = reef_persist_block_key(b, REEF_DB_EXPERTS);
    peer->last_block = malloc(bytes);
    if (peer->last_block == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a block of %zu bytes", bytes);
    peer->blocks[b->index] = peer->last_block;
    return reef_record_read(txn, &key, peer->last_block, bytes, err);
}

static reef_status locate_layer(reef_peer *peer,
                                reef_persist_blocks *all,
                                reef_txn *txn,
                                reef_error *err) {
    size_t each = peer->row_values * reef_rows_value_bytes(peer->rows.dtype);
    peer->block_count = (peer->expert_count + all->block_rows - 1) / all->block_rows;
    peer->blocks = calloc(peer->block_count, sizeof *peer->blocks);
    if (peer->blocks == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the places of %zu blocks",
                         peer->block_count);
    for (reef_persist_block b; reef_persist_block_next(all, &b);) {
        reef_key key = reef_persist_block_key(&b, REEF_DB_EXPERTS);
        size_t bytes = b.rows * each;
        bool last = b.index + 1 == peer->block_count;
        reef_status status =
            last ? copy_last_block(peer, &b, txn, bytes, err)
                 : reef_record_locate(txn, &key, bytes, &peer->blocks[b.index], err);
        if (status != REEF_OK) return status;
    }
    uint32_t shift = 0;
    while ((uint32_t)1 << shift < all->block_rows) shift++;
    peer->rows = (reef_expert_rows){peer->rows.dtype, shift, peer->blocks};
    return REEF_OK;
}

reef_status reef_persist_locate(reef_gen *gen,
                                reef_txn *txn,
                                const reef_config *config,
                                reef_error *err) {
    for (uint32_t l = 0; l < config->layers; l++) {
        reef_peer *peer = &gen->peers[l];
        if (peer->expert_count == 0) continue;
        reef_persist_blocks all =
            reef_persist_blocks_of(config, gen->info.generation, l, peer->expert_count, NULL);
        reef_status status = locate_layer(peer, &all, txn, err);
        if (status != REEF_OK) return status;
    }
    return REEF_OK;
}
