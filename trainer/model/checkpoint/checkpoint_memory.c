// The context memory of a generation as records of `memory`:
//
//   PART, block    a part (reef_memory_parts) that is no table, in blocks of REEF_BLOCK_BYTES_MAX
//                  bytes, the last one shorter, each packed (zero_runs.c); of a part without bytes
//                  none
//   text blocks    names of the full blocks of its text, not packed; the blocks are in `text`
//                  under these names, and the part "text" has the bytes after them
//   slices, log    its tables: see checkpoint_slices.c
//   mark           position behind the last byte that the tables learned, u64, and the chain there;
//                  packed like the parts
//   tail, block    of an open generation: what was learned since, in such blocks as it is; see
//                  memory/generation_memory.c
//
// A visit (generation_memory.h) has the same records in `visits`, under its holder and its kind.
//
// When tables are written is decided by the commits, so none of this is in the root hash while a
// generation is open: the chain is, as part of the trainer's state. Sealed, it has no tail, and its
// mark is in the generation's root.
#include "checkpoint_internal.h"
#include "reef_byte_order.h"
#include "reef_model.h"
#include "reef_shard.h"

#include <stdlib.h>
#include <string.h>

#define TAIL_NAME "tail"
#define BLOCK_BYTES REEF_TEXT_BLOCK_BYTES

_Static_assert(REEF_SLICE_BYTES == REEF_BLOCK_BYTES_MAX, "a slice is a block");

// In the order of reef_memory_tables.
static const char *const TABLES[REEF_MEMORY_TABLES] = {"cells", "trees", "index", "long index"};

int reef_checkpoint_table(const char *name) {
    for (int t = 0; t < REEF_MEMORY_TABLES; t++)
        if (strcmp(TABLES[t], name) == 0) return t;
    return -1;
}

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

// Lists do not pack, and the store reads them.
static bool is_plain(const char *name) {
    return strcmp(name, REEF_TEXT_LIST) == 0 || strcmp(name, REEF_SLICE_LIST) == 0 ||
           strcmp(name, REEF_LOG_LIST) == 0;
}

static reef_status read_plain(
    const reef_key *key, const reef_view *view, void *out, size_t bytes, reef_error *err) {
    if (view->bytes != bytes)
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "memory (generation %u, %s, block %u) has %zu bytes instead of %zu",
                         key->generation, key->name, key->block, view->bytes, bytes);
    memcpy(out, view->data, bytes);
    return REEF_OK;
}

reef_status reef_checkpoint_read_block(
    reef_txn *txn, const reef_key *key, void *out, size_t bytes, reef_error *err) {
    reef_view view;
    reef_status status = reef_record_view(txn, key, &view, err);
    if (status != REEF_OK) return status;
    return is_plain(key->name) ? read_plain(key, &view, out, bytes, err)
                               : unpack(key, &view, out, bytes, err);
}

reef_status reef_checkpoint_new_packed(uint8_t **out, reef_error *err) {
    *out = malloc(reef_zero_runs_bound(REEF_BLOCK_BYTES_MAX));
    return *out != NULL ? REEF_OK
                        : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a block of a memory");
}

// How many bytes a block becomes.
static size_t length_of(const char *name, const reef_view *view) {
    return is_plain(name) ? view->bytes : reef_zero_runs_length(view->data, view->bytes);
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

reef_status reef_checkpoint_put_part(reef_txn *txn,
                                     const reef_key *prefix,
                                     const reef_memory_part *part,
                                     uint8_t *packed,
                                     reef_error *err) {
    reef_status status = REEF_OK;
    reef_key key = reef_checkpoint_memory_key(prefix, part->name, 0);
    for (size_t at = 0; status == REEF_OK && at < part->bytes; at += REEF_BLOCK_BYTES_MAX) {
        const uint8_t *data = (const uint8_t *)part->data + at;
        size_t bytes = reef_checkpoint_block_bytes(part->bytes, at);
        if (!is_plain(part->name)) {
            bytes = reef_zero_runs_pack(packed, data, bytes);
            data = packed;
        }
        status = reef_record_put(txn, &key, REEF_BYTES, data, bytes, err);
        key.block++;
    }
    return status;
}

// Store a full block. The pool lends it once the last commit's list names it: a block that only
// other states name may still be removed.
static reef_status put_text_block(reef_txn *txn,
                                  reef_generation_memory *m,
                                  size_t number,
                                  bool is_listed,
                                  bool *lent,
                                  reef_error *err) {
    const uint8_t *name, *bytes = reef_memory_text_block(m->memory, number, &name);
    char hex[REEF_TEXT_HEX_BYTES];
    const reef_key key = reef_text_key(name, hex);
    reef_lent found;
    reef_status status = reef_record_lend(txn, &key, BLOCK_BYTES, &found, err);
    *lent = status == REEF_OK && is_listed && found.stays;
    if (*lent) reef_memory_text_lend(m->memory, number, found.data);
    // A damaged one is mended.
    if (status == REEF_ERR_NOT_FOUND || status == REEF_ERR_CORRUPT)
        status = reef_record_put(txn, &key, REEF_BYTES, bytes, BLOCK_BYTES, err);
    return status;
}

static reef_status put_text(reef_txn *txn,
                            const reef_key *prefix,
                            reef_generation_memory *m,
                            reef_error *err) {
    const reef_key rest = reef_checkpoint_memory_key(prefix, "text", 0);
    uint64_t end = reef_memory_learned_bytes(m->memory),
             begin = end - reef_memory_text(m->memory, NULL, 0),
             at = m->text_lent > begin ? m->text_lent : begin,
             listed = m->slices != NULL && !m->adopted ? m->checkpoint_bytes : 0;
    reef_status status = REEF_OK;
    for (bool all_lent = true, lent; status == REEF_OK && at + BLOCK_BYTES <= end;
         at += BLOCK_BYTES) {
        status = put_text_block(txn, m, (size_t)((at - begin) / BLOCK_BYTES),
                                at + BLOCK_BYTES <= listed, &lent, err);
        all_lent &= lent;
        if (all_lent) m->text_lent = at + BLOCK_BYTES;
    }
    return status == REEF_OK && end % BLOCK_BYTES == 0 ? reef_record_delete(txn, &rest, err)
                                                       : status;
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

static reef_status check_part_written(reef_txn *txn,
                                      const reef_key *prefix,
                                      const reef_memory_part *part,
                                      reef_error *err) {
    uint32_t last = (uint32_t)((part->bytes - 1) / REEF_BLOCK_BYTES_MAX);
    const reef_key key = reef_checkpoint_memory_key(prefix, part->name, last);
    reef_view view;
    reef_status status = reef_record_view(txn, &key, &view, err);
    if (status != REEF_OK) return status;
    size_t bytes = reef_checkpoint_block_bytes(part->bytes, (size_t)last * REEF_BLOCK_BYTES_MAX);
    return length_of(part->name, &view) == bytes
               ? REEF_OK
               : fail_unreadable(prefix, "a part has another size than the header says", err);
}

// What was written must be what a reader will ask for. So the header is read back, by the reader's
// own rules, and of each part that it announces the last block: a memory that has outgrown what can
// be read never takes the place of one that can.
static reef_status check_written(reef_txn *txn,
                                 const reef_key *prefix,
                                 const reef_memory_slices *slices,
                                 reef_error *err) {
    block header = {0};
    reef_memory_part parts[REEF_MEMORY_RECORDS_MAX];
    reef_error reason;
    reef_status status = read_first(txn, prefix, "header", &header, err);
    if (status == REEF_OK &&
        reef_memory_stored_parts(header.data, header.bytes, parts, &reason) != REEF_OK)
        status = fail_unreadable(prefix, reason.message, err);
    free(header.data);
    for (size_t i = 0; status == REEF_OK && i < reef_memory_part_count(); i++) {
        int table = reef_checkpoint_table(parts[i].name);
        if (table >= 0 && slices->bytes[table] != parts[i].bytes)
            status = fail_unreadable(prefix, "a table has another size than the header says", err);
        else if (table < 0 && parts[i].bytes > 0)
            status = check_part_written(txn, prefix, &parts[i], err);
    }
    return status;
}

static reef_status put_parts(reef_txn *txn,
                             const reef_key *prefix,
                             const reef_generation_memory *m,
                             reef_error *err) {
    reef_memory_records list;
    uint8_t *packed = NULL;
    reef_generation_memory_list(m, &list);
    reef_status status = reef_checkpoint_new_packed(&packed, err);
    for (size_t i = 0; status == REEF_OK && i < list.count; i++)
        if (reef_checkpoint_table(list.records[i].name) < 0)
            status = reef_checkpoint_put_part(txn, prefix, &list.records[i], packed, err);
    free(packed);
    return status;
}

// Its tables, after which it has no tail. Slices before the mark, which says that there are some.
static reef_status put_checkpoint(reef_txn *txn,
                                  const reef_key *prefix,
                                  reef_generation_memory *m,
                                  bool learns,
                                  reef_error *err) {
    reef_status status = delete_tail(txn, prefix, err);
    if (status == REEF_OK) status = put_text(txn, prefix, m, err);
    if (status == REEF_OK) status = reef_checkpoint_put_slices(txn, prefix, m, learns, err);
    if (status == REEF_OK) status = put_parts(txn, prefix, m, err);
    if (status == REEF_OK) status = check_written(txn, prefix, m->slices_put, err);
    m->checkpoint_put = status == REEF_OK;
    return status;
}

static reef_status delete_all(reef_txn *txn,
                              const reef_key *prefix,
                              const reef_generation_memory *m,
                              reef_error *err) {
    reef_memory_part parts[REEF_MEMORY_RECORDS_MAX];
    const char *names[REEF_MEMORY_RECORDS_MAX + 3] = {REEF_MEMORY_POSITION_NAME, REEF_SLICE_LIST,
                                                      REEF_LOG_LIST};
    size_t count = 3;
    reef_status status = REEF_OK;
    reef_memory_parts(m->memory, parts);
    for (size_t i = 0; i < reef_memory_part_count(); i++) names[count++] = parts[i].name;
    for (size_t i = 0; i < count; i++) {
        reef_key key = reef_checkpoint_memory_key(prefix, names[i], 0);
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
    uint64_t unused;
    reef_status status = REEF_OK;
    if (!reef_generation_memory_is_due(m)) return reef_checkpoint_put_tail(txn, prefix, m, err);
    // What is stored may be more, and damaged: then it would stay, and be found, for ever.
    if (m->adopted) status = clear(txn, prefix, m, err);
    if (status == REEF_OK) status = put_checkpoint(txn, prefix, m, true, err);
    return status == REEF_OK && m->adopted
               ? reef_blocks_drop_unnamed(txn, NULL, NULL, false, &unused, err)
               : status;
}

reef_status reef_checkpoint_put_memory(reef_txn *txn,
                                       reef_generation *generation,
                                       reef_error *err) {
    reef_generation_memory *m = &generation->memory;
    const reef_key prefix = memory_key(generation->info.generation);
    reef_checkpoint_begin_put(m);
    if (m->memory == NULL) return REEF_OK;
    return generation->open ? reef_checkpoint_put_learning(txn, &prefix, m, delete_all, err)
                            : put_checkpoint(txn, &prefix, m, false, err);
}

// ---- reading ------------------------------------------------------------------------------------

typedef struct stored {
    reef_txn *txn;
    const reef_key *prefix;
    reef_memory_slices *slices; // of the memory that is read
    reef_generation_memory *memory;
} stored;

static reef_status fetch_table(const stored *from, size_t t, uint8_t *into, reef_error *err) {
    const reef_memory_slices *slices = from->slices;
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < slices->count[t]; i++) {
        size_t at = i * REEF_SLICE_BYTES;
        status = reef_checkpoint_read_slice(from->txn, slices->numbers[t][i], into + at,
                                            reef_checkpoint_block_bytes(slices->bytes[t], at), err);
    }
    return status;
}

static reef_status fetch_part(
    void *context, const char *name, void *into, size_t bytes, reef_error *err) {
    const stored *from = context;
    reef_key key = reef_checkpoint_memory_key(from->prefix, name, 0);
    int table = reef_checkpoint_table(name);
    reef_status status = REEF_OK;
    if (table >= 0) return fetch_table(from, (size_t)table, into, err);
    for (size_t at = 0; status == REEF_OK && at < bytes; at += REEF_BLOCK_BYTES_MAX) {
        status = reef_checkpoint_read_block(from->txn, &key, (uint8_t *)into + at,
                                            reef_checkpoint_block_bytes(bytes, at), err);
        key.block++;
    }
    return status;
}

static reef_status fetch_text(void *context,
                              size_t number,
                              const uint8_t *name,
                              const uint8_t **out,
                              bool *lent,
                              reef_error *err) {
    const stored *from = context;
    char hex[REEF_TEXT_HEX_BYTES];
    const reef_key key = reef_text_key(name, hex);
    reef_lent found = {0};
    (void)number;
    reef_status status = reef_record_lend(from->txn, &key, BLOCK_BYTES, &found, err);
    *out = found.data;
    *lent = found.stays;
    if (status != REEF_ERR_CORRUPT && status != REEF_ERR_NOT_FOUND) return status;
    from->memory->lacks_text = true;
    return from->memory->spares_text ? REEF_OK : status;
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

// The header says how many slices there are.
reef_status reef_checkpoint_read_sizes(reef_txn *txn,
                                       const reef_key *prefix,
                                       reef_memory_slices *slices,
                                       reef_error *err) {
    reef_memory_part parts[REEF_MEMORY_RECORDS_MAX];
    block header = {0};
    reef_status status = read_first(txn, prefix, "header", &header, err);
    if (status == REEF_OK) status = reef_memory_stored_parts(header.data, header.bytes, parts, err);
    free(header.data);
    return status == REEF_OK ? reef_checkpoint_read_slices(txn, prefix, parts, slices, err)
                             : status;
}

reef_status reef_checkpoint_read_tables(reef_txn *txn,
                                        const reef_key *prefix,
                                        reef_generation_memory *m,
                                        reef_error *err) {
    // No table was due yet, or the generation has no memory.
    if (!reef_checkpoint_has_tables(txn, prefix)) return REEF_OK;
    stored from = {txn, prefix, calloc(1, sizeof(*from.slices)), m};
    const reef_memory_reader reader = {fetch_part, fetch_text, &from};
    if (from.slices == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the slices of a memory");
    reef_status status = reef_checkpoint_read_sizes(txn, prefix, from.slices, err);
    if (status == REEF_OK) status = reef_generation_memory_restore(m, &reader, err);
    if (status == REEF_OK)
        status = reef_checkpoint_read_log(txn, prefix, from.slices,
                                          reef_memory_learned_bytes(m->memory), err);
    if (status == REEF_OK)
        m->slices = from.slices;
    else
        reef_memory_slices_free(from.slices);
    if (status == REEF_ERR_NOT_FOUND) status = REEF_ERR_CORRUPT; // a part of a memory that is there
    if (status != REEF_OK) return status;
    m->adopted = false;
    m->checkpoint_bytes = reef_memory_learned_bytes(m->memory);
    m->text_lent = m->lacks_text ? 0 : m->checkpoint_bytes / BLOCK_BYTES * BLOCK_BYTES;
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

// The first slice of a table, which is an eighth of a megabyte, stands for all.
static reef_status read_sample(reef_txn *txn,
                               const reef_memory_slices *slices,
                               const char *table,
                               block *out,
                               reef_error *err) {
    size_t t = (size_t)reef_checkpoint_table(table);
    out->bytes = reef_checkpoint_block_bytes(slices->bytes[t], 0);
    out->data = malloc(out->bytes + 1);
    if (out->data == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a block of %zu bytes", out->bytes);
    return reef_checkpoint_read_slice(txn, slices->numbers[t][0], out->data, out->bytes, err);
}

reef_status reef_checkpoint_read_stats(reef_txn *txn,
                                       const reef_key *prefix,
                                       reef_memory_stats *out,
                                       reef_error *err) {
    block header = {0}, cells = {0}, trees = {0};
    *out = (reef_memory_stats){0};
    if (!reef_checkpoint_has_tables(txn, prefix)) return REEF_OK;
    reef_memory_slices *slices = calloc(1, sizeof(*slices));
    if (slices == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the slices of a memory");
    reef_status status = read_first(txn, prefix, "header", &header, err);
    if (status == REEF_OK) status = reef_checkpoint_read_sizes(txn, prefix, slices, err);
    if (status == REEF_OK) status = read_sample(txn, slices, "cells", &cells, err);
    if (status == REEF_OK) status = read_sample(txn, slices, "trees", &trees, err);
    if (status == REEF_OK)
        status = reef_memory_stored_stats(header.data, header.bytes, cells.data, cells.bytes,
                                          trees.data, trees.bytes, out, err);
    reef_memory_slices_free(slices);
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
