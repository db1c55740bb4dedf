// The context memory of a generation as records of `memory`:
//
//   PART, block    its tables, a part (reef_memory_parts) in blocks of REEF_BLOCK_BYTES_MAX bytes,
//                  the last one shorter, each packed (zero_runs.c); of a part without bytes none
//   mark           position behind the last byte that the tables learned, u64, and the chain there;
//                  packed like the parts
//   tail, block    of an open generation: what was learned since, in such blocks as it is; see
//                  memory/generation_memory.c
//
// A visit (generation_memory.h) has the same records in `visits`, under its holder and its kind.
//
// When tables are written is decided by the commits, so none of this is in the root hash while a
// generation is open: the chain is, as part of the trainer's state. Sealed, it has no tail, and all
// of it is in the generation's root.
#include "checkpoint_internal.h"
#include "reef_model.h"
#include "reef_shard.h"

#include <stdlib.h>
#include <string.h>

#define TAIL_NAME "tail"

static reef_key key_of(const reef_key *prefix, const char *name, uint32_t block) {
    reef_key key = *prefix;
    key.name = name;
    key.block = block;
    return key;
}

static reef_key memory_key(uint32_t records) {
    return (reef_key){.db = REEF_DB_MEMORY, .generation = records};
}

static size_t block_bytes(size_t bytes, size_t at) {
    return bytes - at < REEF_BLOCK_BYTES_MAX ? bytes - at : REEF_BLOCK_BYTES_MAX;
}

// ---- packed records -----------------------------------------------------------------------------

static reef_status unpack(
    const reef_key *key, const reef_view *view, void *out, size_t bytes, reef_error *err) {
    if (reef_zero_runs_unpack(out, bytes, view->data, view->bytes)) return REEF_OK;
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "memory (generation %u, %s, block %u) does not unpack to %zu bytes",
                     key->generation, key->name, key->block, bytes);
}

reef_status reef_checkpoint_read_packed(
    reef_txn *txn, const reef_key *key, void *out, size_t bytes, reef_error *err) {
    reef_view view;
    reef_status status = reef_record_view(txn, key, &view, err);
    return status == REEF_OK ? unpack(key, &view, out, bytes, err) : status;
}

// Memory for one packed block.
static reef_status new_packed(uint8_t **out, reef_error *err) {
    *out = malloc(reef_zero_runs_bound(REEF_BLOCK_BYTES_MAX));
    return *out != NULL ? REEF_OK
                        : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a block of a memory");
}

// The first block of a part; NULL where it is not stored.
typedef struct block {
    uint8_t *data; // owned
    size_t bytes;
} block;

static reef_status read_first(
    reef_txn *txn, const reef_key *prefix, const char *name, block *out, reef_error *err) {
    const reef_key key = key_of(prefix, name, 0);
    reef_view view;
    reef_status status = reef_record_view(txn, &key, &view, err);
    if (status == REEF_ERR_NOT_FOUND) return REEF_OK;
    if (status != REEF_OK) return status;
    out->bytes = reef_zero_runs_length(view.data, view.bytes);
    out->data = malloc(out->bytes + 1);
    if (out->data == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a block of %zu bytes", out->bytes);
    return reef_checkpoint_read_packed(txn, &key, out->data, out->bytes, err);
}

// ---- writing ------------------------------------------------------------------------------------

static reef_status put_packed(reef_txn *txn,
                              const reef_key *prefix,
                              const reef_memory_part *part,
                              uint8_t *packed,
                              reef_error *err) {
    const uint8_t *data = part->data;
    reef_status status = REEF_OK;
    reef_key key = key_of(prefix, part->name, 0);
    for (size_t at = 0; status == REEF_OK && at < part->bytes; key.block++) {
        size_t size = block_bytes(part->bytes, at);
        // Every rank of a divided pool has the memory; its owner writes a block.
        if (!reef_shard_is_elsewhere(txn, &key)) {
            size_t stored = reef_zero_runs_pack(packed, data + at, size);
            status = reef_record_put(txn, &key, REEF_BYTES, packed, stored, err);
        }
        at += size;
    }
    return status;
}

reef_status reef_checkpoint_put_tail(reef_txn *txn,
                                     const reef_key *prefix,
                                     const reef_generation_memory *m,
                                     reef_error *err) {
    reef_status status = REEF_OK;
    reef_key key = key_of(prefix, TAIL_NAME, 0);
    for (size_t at = 0; status == REEF_OK && at < m->tail_bytes; key.block++) {
        size_t size = block_bytes(m->tail_bytes, at);
        status = reef_record_put(txn, &key, REEF_BYTES, m->tail + at, size, err);
        at += size;
    }
    return status;
}

bool reef_checkpoint_is_stored(reef_txn *txn, const reef_key *key) {
    reef_view view;
    return reef_record_view(txn, key, &view, NULL) != REEF_ERR_NOT_FOUND;
}

bool reef_checkpoint_has_tables(reef_txn *txn, const reef_key *prefix) {
    reef_key key = key_of(prefix, REEF_MEMORY_POSITION_NAME, 0);
    return reef_checkpoint_is_stored(txn, &key);
}

bool reef_checkpoint_has_tail(reef_txn *txn, const reef_key *prefix) {
    reef_key key = key_of(prefix, TAIL_NAME, 0);
    return reef_checkpoint_is_stored(txn, &key);
}

static reef_status delete_tail(reef_txn *txn, const reef_key *prefix, reef_error *err) {
    reef_status status = REEF_OK;
    reef_key key = key_of(prefix, TAIL_NAME, 0);
    for (; status == REEF_OK && reef_checkpoint_is_stored(txn, &key); key.block++)
        status = reef_record_delete(txn, &key, err);
    return status;
}

static reef_status fail_unreadable(const reef_key *prefix, const char *why, reef_error *err) {
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "the memory of generation %u cannot be stored, it could not be read back: %s",
                     prefix->generation, why);
}

// What was written must be what a reader will ask for. So the header is read back, by the reader's
// own rules, and of each part that it announces the last block: a memory that has outgrown what can
// be read never takes the place of one that can.
static reef_status check_written(reef_txn *txn, const reef_key *prefix, reef_error *err) {
    block header = {0};
    reef_memory_part parts[REEF_MEMORY_RECORDS_MAX];
    reef_error reason;
    reef_status status = read_first(txn, prefix, "header", &header, err);
    if (status == REEF_OK &&
        reef_memory_stored_parts(header.data, header.bytes, parts, &reason) != REEF_OK)
        status = fail_unreadable(prefix, reason.message, err);
    free(header.data);
    for (size_t i = 0; status == REEF_OK && i < reef_memory_part_count(); i++) {
        if (parts[i].bytes == 0) continue;
        uint32_t last = (uint32_t)((parts[i].bytes - 1) / REEF_BLOCK_BYTES_MAX);
        const reef_key key = key_of(prefix, parts[i].name, last);
        reef_view view;
        if (reef_shard_is_elsewhere(txn, &key)) continue;
        status = reef_record_view(txn, &key, &view, err);
        if (status == REEF_OK &&
            reef_zero_runs_length(view.data, view.bytes) !=
                block_bytes(parts[i].bytes, (size_t)last * REEF_BLOCK_BYTES_MAX))
            status = fail_unreadable(prefix, "a part has another size than the header says", err);
    }
    return status;
}

reef_status reef_checkpoint_put_tables(reef_txn *txn,
                                       const reef_key *prefix,
                                       const reef_generation_memory *m,
                                       reef_error *err) {
    reef_memory_records list;
    uint8_t *packed = NULL;
    reef_generation_memory_list(m, &list);
    reef_status status = new_packed(&packed, err);
    if (status == REEF_OK) status = delete_tail(txn, prefix, err);
    for (size_t i = 0; status == REEF_OK && i < list.count; i++)
        status = put_packed(txn, prefix, &list.records[i], packed, err);
    free(packed);
    return status == REEF_OK ? check_written(txn, prefix, err) : status;
}

static reef_status delete_tables(reef_txn *txn,
                                 const reef_key *prefix,
                                 const reef_generation_memory *m,
                                 reef_error *err) {
    reef_memory_part parts[REEF_MEMORY_RECORDS_MAX];
    reef_status status = REEF_OK;
    reef_memory_parts(m->memory, parts);
    for (size_t i = 0; i < reef_memory_part_count(); i++) {
        reef_key key = key_of(prefix, parts[i].name, 0);
        for (; status == REEF_OK && reef_checkpoint_is_stored(txn, &key); key.block++)
            status = reef_record_delete(txn, &key, err);
    }
    return status;
}

reef_status reef_checkpoint_put_memory(reef_txn *txn,
                                       reef_generation *generation,
                                       reef_error *err) {
    reef_generation_memory *m = &generation->memory;
    const reef_key prefix = memory_key(generation->info.generation);
    m->checkpoint_put = false; // the transaction of an earlier attempt may have failed
    if (m->memory == NULL) return REEF_OK;
    if (generation->open && m->tail_bytes == 0 && !m->adopted) return REEF_OK;
    if (generation->open && !reef_generation_memory_is_due(m))
        return reef_checkpoint_put_tail(txn, &prefix, m, err);
    reef_status status = REEF_OK;
    // What is stored may be more, and damaged.
    if (generation->open && m->adopted) status = delete_tables(txn, &prefix, m, err);
    if (status == REEF_OK) status = reef_checkpoint_put_tables(txn, &prefix, m, err);
    m->checkpoint_put = status == REEF_OK;
    return status;
}

// ---- reading ------------------------------------------------------------------------------------

typedef struct stored {
    reef_txn *txn;
    const reef_key *prefix;
} stored;

// A part that is being read.
typedef struct part {
    uint8_t *into;
    size_t bytes;
} part;

static reef_status unpack_block(void *context,
                                const reef_key *key,
                                const reef_view *view,
                                reef_error *err) {
    const part *p = context;
    size_t at = (size_t)key->block * REEF_BLOCK_BYTES_MAX;
    return unpack(key, view, p->into + at, block_bytes(p->bytes, at), err);
}

static reef_status fetch_part(
    void *context, const char *name, void *into, size_t bytes, reef_error *err) {
    const stored *from = context;
    const reef_key key = key_of(from->prefix, name, 0);
    part p = {into, bytes};
    uint32_t blocks = (uint32_t)((bytes + REEF_BLOCK_BYTES_MAX - 1) / REEF_BLOCK_BYTES_MAX);
    return reef_records_gather(from->txn, &key, blocks, unpack_block, &p, err);
}

reef_status reef_checkpoint_read_tail(reef_txn *txn,
                                      const reef_key *prefix,
                                      reef_generation_memory *m,
                                      reef_error *err) {
    reef_key key = key_of(prefix, TAIL_NAME, 0);
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

reef_status reef_checkpoint_read_tables(reef_txn *txn,
                                        const reef_key *prefix,
                                        reef_generation_memory *m,
                                        reef_error *err) {
    stored from = {txn, prefix};
    // No table was due yet, or the generation has no memory.
    if (!reef_checkpoint_has_tables(txn, prefix)) return REEF_OK;
    reef_status status = reef_generation_memory_restore(m, fetch_part, &from, err);
    if (status == REEF_ERR_NOT_FOUND) status = REEF_ERR_CORRUPT; // a part of a memory that is there
    if (status != REEF_OK) return status;
    m->adopted = false;
    m->checkpoint_bytes = reef_memory_learned_bytes(m->memory);
    return REEF_OK;
}

reef_status reef_checkpoint_read_memory(reef_txn *txn,
                                        uint32_t records,
                                        reef_generation_memory *memory,
                                        reef_error *err) {
    const reef_key prefix = memory_key(records);
    reef_status status = reef_checkpoint_read_tables(txn, &prefix, memory, err);
    return status == REEF_OK ? reef_checkpoint_read_tail(txn, &prefix, memory, err) : status;
}

reef_status reef_checkpoint_read_chain(reef_txn *txn,
                                       uint32_t records,
                                       uint8_t chain[REEF_HASH_BYTES],
                                       reef_error *err) {
    reef_memory_position position;
    const reef_key prefix = memory_key(records),
                   key = key_of(&prefix, REEF_MEMORY_POSITION_NAME, 0);
    reef_status status = reef_checkpoint_read_packed(txn, &key, &position, sizeof(position), err);
    if (status == REEF_OK) memcpy(chain, position.chain, REEF_HASH_BYTES);
    return status;
}

// ---- stats --------------------------------------------------------------------------------------

// By the tail, which is not in the tables yet.
static reef_status add_tail(reef_txn *txn,
                            uint32_t generation,
                            uint64_t *learned,
                            reef_error *err) {
    reef_generation_memory tail = {0};
    uint64_t more = 0;
    const reef_key prefix = memory_key(generation);
    reef_status status = reef_checkpoint_read_tail(txn, &prefix, &tail, err);
    if (status == REEF_OK)
        status =
            reef_generation_memory_tail_learned(tail.unlearned, tail.unlearned_bytes, &more, err);
    *learned += more;
    reef_generation_memory_release(&tail);
    return status;
}

reef_status reef_memory_learned_read(reef_txn *txn,
                                     uint32_t generation,
                                     uint64_t *out,
                                     reef_error *err) {
    reef_memory_stats stats = {0};
    block header = {0};
    const reef_key prefix = memory_key(generation);
    reef_status status = read_first(txn, &prefix, "header", &header, err);
    if (status == REEF_OK && header.data != NULL)
        status = reef_memory_stored_stats(header.data, header.bytes, NULL, 0, NULL, 0, &stats, err);
    free(header.data);
    *out = stats.learned_bytes;
    return status == REEF_OK ? add_tail(txn, generation, out, err) : status;
}

reef_status reef_checkpoint_read_stats(reef_txn *txn,
                                       const reef_key *prefix,
                                       reef_memory_stats *out,
                                       reef_error *err) {
    block header = {0}, cells = {0}, trees = {0};
    *out = (reef_memory_stats){0};
    // Of a large table the first block, which is an eighth of a megabyte, stands for all.
    reef_status status = read_first(txn, prefix, "header", &header, err);
    if (status == REEF_OK) status = read_first(txn, prefix, "cells", &cells, err);
    if (status == REEF_OK) status = read_first(txn, prefix, "trees", &trees, err);
    if (status == REEF_OK && header.data != NULL)
        status = reef_memory_stored_stats(header.data, header.bytes, cells.data, cells.bytes,
                                          trees.data, trees.bytes, out, err);
    free(header.data);
    free(cells.data);
    free(trees.data);
    return status;
}

reef_status reef_memory_stats_read(reef_txn *txn,
                                   uint32_t generation,
                                   reef_memory_stats *out,
                                   reef_error *err) {
    const reef_key prefix = memory_key(generation);
    reef_status status = reef_checkpoint_read_stats(txn, &prefix, out, err);
    return status == REEF_OK ? add_tail(txn, generation, &out->learned_bytes, err) : status;
}
