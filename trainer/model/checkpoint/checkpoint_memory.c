// The context memory of a generation as records of `memory`:
//
//   PART, block    its tables, a part (reef_memory_parts) in blocks of REEF_BLOCK_BYTES_MAX bytes,
//                  the last one shorter
//   mark           position behind the last byte that the tables learned, u64, and the chain there
//   tail, block    of an open generation: what was learned since, in blocks as above; see
//                  memory/generation_memory.c
//
// When tables are written is decided by the commits, so none of this is in the root hash while a
// generation is open: the chain is, as part of the trainer's state. Sealed, it has no tail, and all
// of it is in the generation's root.
#include "checkpoint_internal.h"
#include "reef_model.h"

#include <stdlib.h>
#include <string.h>

#define TAIL_NAME "tail"
#define MARK_NAME "mark"
#define PARTS_MAX 16

typedef struct mark {
    uint64_t next;
    uint8_t chain[REEF_HASH_BYTES];
} mark;
_Static_assert(sizeof(mark) == 24, "as it is stored");

static reef_key key_of(uint32_t records, const char *name, uint32_t block) {
    return (reef_key){.db = REEF_DB_MEMORY, .generation = records, .name = name, .block = block};
}

// In blocks; an empty payload is one empty block.
static reef_status put_blocks(reef_txn *txn,
                              uint32_t records,
                              const char *name,
                              const uint8_t *data,
                              size_t bytes,
                              reef_error *err) {
    reef_status status = REEF_OK;
    size_t at = 0;
    for (uint32_t block = 0; status == REEF_OK && (at < bytes || block == 0); block++) {
        size_t size = bytes - at < REEF_BLOCK_BYTES_MAX ? bytes - at : REEF_BLOCK_BYTES_MAX;
        reef_key key = key_of(records, name, block);
        status = reef_record_put(txn, &key, REEF_BYTES, data + at, size, err);
        at += size;
    }
    return status;
}

static bool is_stored(reef_txn *txn, const reef_key *key) {
    reef_view view;
    return reef_record_view(txn, key, &view, NULL) != REEF_ERR_NOT_FOUND;
}

static reef_status delete_tail(reef_txn *txn, uint32_t records, reef_error *err) {
    reef_status status = REEF_OK;
    reef_key key = key_of(records, TAIL_NAME, 0);
    for (; status == REEF_OK && is_stored(txn, &key); key.block++)
        status = reef_record_delete(txn, &key, err);
    return status;
}

static reef_status put_tables(reef_txn *txn, const reef_generation *generation, reef_error *err) {
    const reef_generation_memory *m = &generation->memory;
    uint32_t g = generation->info.generation;
    reef_memory_part parts[PARTS_MAX];
    mark here = {.next = m->next};
    memcpy(here.chain, m->chain, sizeof(here.chain));
    reef_memory_parts(m->memory, parts);
    reef_status status = delete_tail(txn, g, err);
    for (size_t i = 0; status == REEF_OK && i < reef_memory_part_count(); i++)
        status = put_blocks(txn, g, parts[i].name, parts[i].data, parts[i].bytes, err);
    reef_key key = key_of(g, MARK_NAME, 0);
    if (status == REEF_OK)
        status = reef_record_put(txn, &key, REEF_BYTES, &here, sizeof(here), err);
    return status;
}

reef_status reef_checkpoint_put_memory(reef_txn *txn,
                                       reef_generation *generation,
                                       reef_error *err) {
    reef_generation_memory *m = &generation->memory;
    m->checkpoint_put = false; // the transaction of an earlier attempt may have failed
    if (m->memory == NULL) return REEF_OK;
    if (generation->open && m->tail_bytes == 0) return REEF_OK;
    if (generation->open && !reef_generation_memory_is_due(m))
        return put_blocks(txn, generation->info.generation, TAIL_NAME, m->tail, m->tail_bytes, err);
    reef_status status = put_tables(txn, generation, err);
    m->checkpoint_put = status == REEF_OK;
    return status;
}

// ---- reading ------------------------------------------------------------------------------------

typedef struct stored {
    reef_txn *txn;
    uint32_t records;
} stored;

static reef_status fetch_part(
    void *context, const char *name, void *into, size_t bytes, reef_error *err) {
    const stored *from = context;
    reef_status status = REEF_OK;
    size_t at = 0;
    for (uint32_t block = 0; status == REEF_OK && (at < bytes || block == 0); block++) {
        size_t size = bytes - at < REEF_BLOCK_BYTES_MAX ? bytes - at : REEF_BLOCK_BYTES_MAX;
        reef_key key = key_of(from->records, name, block);
        status = reef_record_read(from->txn, &key, (uint8_t *)into + at, size, err);
        at += size;
    }
    return status;
}

static reef_status read_tail(reef_txn *txn,
                             uint32_t records,
                             reef_generation_memory *m,
                             reef_error *err) {
    reef_key key = key_of(records, TAIL_NAME, 0);
    for (;; key.block++) {
        reef_view view;
        reef_status status = reef_record_view(txn, &key, &view, err);
        if (status == REEF_ERR_NOT_FOUND) return REEF_OK;
        if (status != REEF_OK) return status;
        uint8_t *larger = realloc(m->unlearned, m->unlearned_bytes + view.bytes + 1);
        if (larger == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the tail of a memory");
        m->unlearned = larger;
        memcpy(m->unlearned + m->unlearned_bytes, view.data, view.bytes);
        m->unlearned_bytes += view.bytes;
    }
}

static reef_status read_tables(reef_txn *txn,
                               uint32_t records,
                               reef_generation_memory *m,
                               reef_error *err) {
    stored from = {txn, records};
    mark here;
    reef_key key = key_of(records, MARK_NAME, 0);
    reef_status status = reef_record_read(txn, &key, &here, sizeof(here), err);
    // No table was due yet, or the generation has no memory: its number alone came from a file.
    if (status == REEF_ERR_NOT_FOUND) return REEF_OK;
    if (status == REEF_OK) status = reef_memory_restore(&m->memory, fetch_part, &from, err);
    if (status == REEF_ERR_NOT_FOUND) status = REEF_ERR_CORRUPT; // a part of a memory that is there
    if (status != REEF_OK) return status;
    m->next = here.next;
    memcpy(m->chain, here.chain, sizeof(m->chain));
    m->checkpoint_bytes = reef_memory_learned_bytes(m->memory);
    return REEF_OK;
}

reef_status reef_checkpoint_read_memory(reef_txn *txn,
                                        uint32_t records,
                                        reef_generation *generation,
                                        reef_error *err) {
    reef_status status = read_tables(txn, records, &generation->memory, err);
    return status == REEF_OK ? read_tail(txn, records, &generation->memory, err) : status;
}

// ---- facts --------------------------------------------------------------------------------------

// NULL data where it is not stored.
static reef_status view_part(
    reef_txn *txn, uint32_t records, const char *name, reef_view *view, reef_error *err) {
    reef_key key = key_of(records, name, 0);
    *view = (reef_view){0};
    reef_status status = reef_record_view(txn, &key, view, err);
    if (status != REEF_ERR_NOT_FOUND) return status;
    *view = (reef_view){0};
    return REEF_OK;
}

reef_status reef_memory_stats_read(reef_txn *txn,
                                   uint32_t generation,
                                   reef_memory_stats *out,
                                   reef_error *err) {
    reef_generation_memory tail = {0};
    reef_view header, cells, trees;
    uint64_t learned = 0;
    *out = (reef_memory_stats){0};
    // Of a large table the first block, which is an eighth of a megabyte, stands for all.
    reef_status status = view_part(txn, generation, "header", &header, err);
    if (status == REEF_OK) status = view_part(txn, generation, "cells", &cells, err);
    if (status == REEF_OK) status = view_part(txn, generation, "trees", &trees, err);
    if (status == REEF_OK && header.data != NULL)
        status = reef_memory_stored_stats(header.data, header.bytes, cells.data, cells.bytes,
                                          trees.data, trees.bytes, out, err);
    if (status == REEF_OK) status = read_tail(txn, generation, &tail, err);
    if (status == REEF_OK)
        status = reef_generation_memory_tail_learned(tail.unlearned, tail.unlearned_bytes, &learned,
                                                     err);
    out->learned_bytes += learned;
    reef_generation_memory_release(&tail);
    return status;
}
