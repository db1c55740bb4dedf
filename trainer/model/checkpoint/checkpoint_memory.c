// The context memory of a generation as records of `memory`:
//
//   PART, block    its tables, a part (reef_memory_parts) in blocks of REEF_BLOCK_BYTES_MAX bytes,
//                  the last one shorter, each packed (zero_runs.c); of a part without bytes none.
//                  Blocks of cells, trees and indexes are slices: before the packed bytes there is
//                  what the memory had learned when it was as in this slice, u64
//   mark           position behind the last byte that the tables learned, u64, and the chain there;
//                  packed like the parts
//   tail, block    of an open generation: what was learned since, in such blocks as it is; see
//                  memory/generation_memory.c
//   log, block     of an open generation that is stored in slices: see checkpoint_slices.c
//
// A visit (generation_memory.h) has the same records in `visits`, under its holder and its kind.
//
// When tables are written is decided by the commits, so none of this is in the root hash while a
// generation is open: the chain is, as part of the trainer's state. Sealed, it has no tail, and all
// of it is in the generation's root.
#include "checkpoint_internal.h"
#include "reef_byte_order.h"
#include "reef_model.h"
#include "reef_shard.h"

#include <stdlib.h>
#include <string.h>

#define TAIL_NAME "tail"
#define SLICE_HEAD_BYTES sizeof(uint64_t)

_Static_assert(REEF_SLICE_BYTES == REEF_BLOCK_BYTES_MAX, "a slice is a block");

// Parts that are stored in slices; see reef_memory_tables.
static const char *const TABLES[REEF_MEMORY_TABLES] = {"cells", "trees", "index", "long index"};

static reef_key memory_key(uint32_t records) {
    return (reef_key){.db = REEF_DB_MEMORY, .generation = records};
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

// A slice, and what had been learned by then.
static reef_status unpack_slice(const reef_key *key,
                                const reef_view *view,
                                void *out,
                                size_t bytes,
                                uint64_t *learned,
                                reef_error *err) {
    reef_view packed = *view;
    size_t head = view->bytes < SLICE_HEAD_BYTES ? view->bytes : SLICE_HEAD_BYTES;
    packed.data = (const uint8_t *)view->data + head;
    packed.bytes = view->bytes - head;
    *learned = head == SLICE_HEAD_BYTES ? reef_get_le64(view->data) : 0;
    return unpack(key, &packed, out, bytes, err);
}

bool reef_checkpoint_is_sliced(const char *name) {
    for (size_t t = 0; t < REEF_MEMORY_TABLES; t++)
        if (strcmp(TABLES[t], name) == 0) return true;
    return false;
}

reef_status reef_checkpoint_read_block(
    reef_txn *txn, const reef_key *key, void *out, size_t bytes, reef_error *err) {
    uint64_t learned;
    reef_view view;
    if (!reef_checkpoint_is_sliced(key->name))
        return reef_checkpoint_read_packed(txn, key, out, bytes, err);
    reef_status status = reef_record_view(txn, key, &view, err);
    return status == REEF_OK ? unpack_slice(key, &view, out, bytes, &learned, err) : status;
}

reef_status reef_checkpoint_new_packed(uint8_t **out, reef_error *err) {
    *out = malloc(SLICE_HEAD_BYTES + reef_zero_runs_bound(REEF_BLOCK_BYTES_MAX));
    return *out != NULL ? REEF_OK
                        : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a block of a memory");
}

// How many bytes a block becomes.
static size_t length_of(const char *name, const reef_view *view) {
    size_t head = reef_checkpoint_is_sliced(name) ? SLICE_HEAD_BYTES : 0;
    if (view->bytes < head) return 0;
    return reef_zero_runs_length((const uint8_t *)view->data + head, view->bytes - head);
}

// The first block of a part; NULL where it is not stored.
typedef struct block {
    uint8_t *data; // owned
    size_t bytes;
} block;

static reef_status read_first(
    reef_txn *txn, const reef_key *prefix, const char *name, block *out, reef_error *err) {
    const reef_key key = reef_checkpoint_memory_key(prefix, name, 0);
    reef_view view;
    reef_status status = reef_record_view(txn, &key, &view, err);
    if (status == REEF_ERR_NOT_FOUND) return REEF_OK;
    if (status != REEF_OK) return status;
    out->bytes = length_of(name, &view);
    out->data = malloc(out->bytes + 1);
    if (out->data == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a block of %zu bytes", out->bytes);
    return reef_checkpoint_read_block(txn, &key, out->data, out->bytes, err);
}

// ---- writing ------------------------------------------------------------------------------------

reef_status reef_checkpoint_put_block(reef_txn *txn,
                                      const reef_key *prefix,
                                      const reef_memory_part *part,
                                      uint32_t number,
                                      uint64_t learned,
                                      uint8_t *packed,
                                      reef_error *err) {
    const reef_key key = reef_checkpoint_memory_key(prefix, part->name, number);
    size_t at = (size_t)number * REEF_BLOCK_BYTES_MAX, head = 0;
    // Every rank of a divided pool has the memory; its owner writes a block.
    if (reef_shard_is_elsewhere(txn, &key)) return REEF_OK;
    if (reef_checkpoint_is_sliced(part->name)) {
        head = SLICE_HEAD_BYTES;
        reef_put_le64(packed, learned);
    }
    head += reef_zero_runs_pack(packed + head, (const uint8_t *)part->data + at,
                                reef_checkpoint_block_bytes(part->bytes, at));
    return reef_record_put(txn, &key, REEF_BYTES, packed, head, err);
}

reef_status reef_checkpoint_put_part(reef_txn *txn,
                                     const reef_key *prefix,
                                     const reef_memory_part *part,
                                     uint64_t learned,
                                     uint8_t *packed,
                                     reef_error *err) {
    reef_status status = REEF_OK;
    for (uint32_t i = 0; status == REEF_OK && i < reef_slices_of(part->bytes); i++)
        status = reef_checkpoint_put_block(txn, prefix, part, i, learned, packed, err);
    return status;
}

reef_status reef_checkpoint_put_tail(reef_txn *txn,
                                     const reef_key *prefix,
                                     const reef_generation_memory *m,
                                     reef_error *err) {
    reef_status status = REEF_OK;
    reef_key key = reef_checkpoint_memory_key(prefix, TAIL_NAME, 0);
    for (size_t at = 0; status == REEF_OK && at < m->tail_bytes; key.block++) {
        size_t size = reef_checkpoint_block_bytes(m->tail_bytes, at);
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
    reef_key key = reef_checkpoint_memory_key(prefix, REEF_MEMORY_POSITION_NAME, 0);
    return reef_checkpoint_is_stored(txn, &key);
}

bool reef_checkpoint_has_tail(reef_txn *txn, const reef_key *prefix) {
    reef_key key = reef_checkpoint_memory_key(prefix, TAIL_NAME, 0);
    return reef_checkpoint_is_stored(txn, &key);
}

static reef_status delete_tail(reef_txn *txn, const reef_key *prefix, reef_error *err) {
    reef_status status = REEF_OK;
    reef_key key = reef_checkpoint_memory_key(prefix, TAIL_NAME, 0);
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
reef_status reef_checkpoint_check_written(reef_txn *txn, const reef_key *prefix, reef_error *err) {
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
        const reef_key key = reef_checkpoint_memory_key(prefix, parts[i].name, last);
        reef_view view;
        if (reef_shard_is_elsewhere(txn, &key)) continue;
        status = reef_record_view(txn, &key, &view, err);
        if (status == REEF_OK &&
            length_of(parts[i].name, &view) !=
                reef_checkpoint_block_bytes(parts[i].bytes, (size_t)last * REEF_BLOCK_BYTES_MAX))
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
    reef_status status = reef_checkpoint_new_packed(&packed, err);
    if (status == REEF_OK) status = delete_tail(txn, prefix, err);
    if (status == REEF_OK) status = reef_checkpoint_delete_log(txn, prefix, err);
    for (size_t i = 0; status == REEF_OK && i < list.count; i++)
        status = reef_checkpoint_put_part(txn, prefix, &list.records[i],
                                          reef_memory_learned_bytes(m->memory), packed, err);
    free(packed);
    return status == REEF_OK ? reef_checkpoint_check_written(txn, prefix, err) : status;
}

static reef_status delete_tables(reef_txn *txn,
                                 const reef_key *prefix,
                                 const reef_generation_memory *m,
                                 reef_error *err) {
    reef_memory_part parts[REEF_MEMORY_RECORDS_MAX];
    reef_status status = REEF_OK;
    reef_memory_parts(m->memory, parts);
    for (size_t i = 0; i < reef_memory_part_count(); i++) {
        reef_key key = reef_checkpoint_memory_key(prefix, parts[i].name, 0);
        for (; status == REEF_OK && reef_checkpoint_is_stored(txn, &key); key.block++)
            status = reef_record_delete(txn, &key, err);
    }
    return status;
}

void reef_checkpoint_begin_put(reef_generation_memory *m) {
    m->checkpoint_put = false; // the transaction of an earlier attempt may have failed
    reef_memory_slices_free(m->slices_put);
    m->slices_put = NULL;
}

reef_status reef_checkpoint_put_learning(reef_txn *txn,
                                         const reef_key *prefix,
                                         reef_generation_memory *m,
                                         reef_status (*clear)(reef_txn *txn,
                                                              const reef_key *prefix,
                                                              const reef_generation_memory *m,
                                                              reef_error *err),
                                         reef_error *err) {
    // Ranks of a divided pool write all at once.
    bool divided = reef_shard_check_whole(txn, NULL) != REEF_OK;
    reef_status status = REEF_OK;
    if (!reef_generation_memory_is_due(m)) return reef_checkpoint_put_tail(txn, prefix, m, err);
    if (m->slices != NULL && !m->adopted && !divided) {
        status = delete_tail(txn, prefix, err);
        if (status == REEF_OK) status = reef_checkpoint_put_slices(txn, prefix, m, err);
        m->checkpoint_put = status == REEF_OK;
        return status;
    }
    // What is stored may be more, and damaged.
    if (m->adopted) status = clear(txn, prefix, m, err);
    if (status == REEF_OK) status = reef_checkpoint_put_tables(txn, prefix, m, err);
    if (status == REEF_OK && reef_generation_memory_is_large(m) && !divided)
        status = reef_checkpoint_begin_slices(txn, prefix, m, err);
    m->checkpoint_put = status == REEF_OK;
    return status;
}

reef_status reef_checkpoint_put_memory(reef_txn *txn,
                                       reef_generation *generation,
                                       reef_error *err) {
    reef_generation_memory *m = &generation->memory;
    const reef_key prefix = memory_key(generation->info.generation);
    reef_checkpoint_begin_put(m);
    if (m->memory == NULL) return REEF_OK;
    if (generation->open) return reef_checkpoint_put_learning(txn, &prefix, m, delete_tables, err);
    reef_status status = reef_checkpoint_put_tables(txn, &prefix, m, err);
    m->checkpoint_put = status == REEF_OK;
    return status;
}

// ---- reading ------------------------------------------------------------------------------------

typedef struct stored {
    reef_txn *txn;
    const reef_key *prefix;
    reef_memory_slices *slices; // of the memory that is read
} stored;

// A part that is being read.
typedef struct part {
    uint8_t *into;
    size_t bytes;
    uint64_t *learned; // of its slices; NULL: it has none
} part;

static reef_status unpack_block(void *context,
                                const reef_key *key,
                                const reef_view *view,
                                reef_error *err) {
    const part *p = context;
    size_t at = (size_t)key->block * REEF_BLOCK_BYTES_MAX,
           size = reef_checkpoint_block_bytes(p->bytes, at);
    if (p->learned == NULL) return unpack(key, view, p->into + at, size, err);
    return unpack_slice(key, view, p->into + at, size, &p->learned[key->block], err);
}

static reef_status fetch_part(
    void *context, const char *name, void *into, size_t bytes, reef_error *err) {
    const stored *from = context;
    const reef_key key = reef_checkpoint_memory_key(from->prefix, name, 0);
    part p = {into, bytes, NULL};
    uint32_t blocks = (uint32_t)reef_slices_of(bytes);
    for (size_t t = 0; t < REEF_MEMORY_TABLES; t++) {
        if (strcmp(name, TABLES[t]) != 0) continue;
        reef_status status = reef_memory_slices_resize(from->slices, t, bytes, 0, err);
        if (status != REEF_OK) return status;
        p.learned = from->slices->learned[t];
    }
    return reef_records_gather(from->txn, &key, blocks, unpack_block, &p, err);
}

reef_status reef_checkpoint_read_tail(reef_txn *txn,
                                      const reef_key *prefix,
                                      reef_generation_memory *m,
                                      reef_error *err) {
    reef_key key = reef_checkpoint_memory_key(prefix, TAIL_NAME, 0);
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
    // No table was due yet, or the generation has no memory.
    if (!reef_checkpoint_has_tables(txn, prefix)) return REEF_OK;
    stored from = {txn, prefix, calloc(1, sizeof(*from.slices))};
    if (from.slices == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the slices of a memory");
    reef_status status = reef_generation_memory_restore(m, fetch_part, &from, err);
    if (status == REEF_OK)
        status = reef_checkpoint_read_log(txn, prefix, from.slices,
                                          reef_memory_learned_bytes(m->memory), err);
    // Without a log all of them are of the same time.
    if (status == REEF_OK && from.slices->block_count > 0)
        m->slices = from.slices;
    else
        reef_memory_slices_free(from.slices);
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
                   key = reef_checkpoint_memory_key(&prefix, REEF_MEMORY_POSITION_NAME, 0);
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
