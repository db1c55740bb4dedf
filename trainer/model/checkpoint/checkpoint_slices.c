// A large context memory that learns: what a commit writes of it, where its tail is long.
//
//   header, mark, mixer, net   as they are
//   text                       blocks in which bytes came
//   cells, trees, index ...    some slices, whose turn it is; a table that has doubled whole
//   log, 0                     number of the first block, and how many there are: u32 each
//   log, block                 what was decided, from before the oldest slice on (reef_replay.h)
//
// So each slice is read as it was at its own time, and the log leads from there to the commit. In a
// round (reef_generation_memory_round) every slice has had its turn, so the log is about as long.
#include "checkpoint_internal.h"
#include "reef_byte_order.h"

#include <stdlib.h>
#include <string.h>

#define LOG_NAME "log"
#define LOG_HEAD_BYTES 8

// What a commit writes of a memory.
typedef struct writing {
    reef_txn *txn;
    const reef_key *prefix;
    const reef_generation_memory *m;
    uint64_t learned;
    reef_memory_slices *later; // as it will be stored
    uint8_t *packed;
} writing;

static reef_status put_slice(
    const writing *w, const reef_memory_part *table, size_t t, size_t slice, reef_error *err) {
    w->later->learned[t][slice] = w->learned;
    return reef_checkpoint_put_block(w->txn, w->prefix, table, (uint32_t)slice, w->learned,
                                     w->packed, err);
}

// ---- what is as it is now -----------------------------------------------------------------------

// Bytes first .. last - 1 of a ring that is stored as a part.
static reef_status put_range(const writing *w,
                             const reef_memory_part *part,
                             uint64_t first,
                             uint64_t last,
                             reef_error *err) {
    reef_status status = REEF_OK;
    for (uint64_t block = first / REEF_BLOCK_BYTES_MAX;
         status == REEF_OK && block * REEF_BLOCK_BYTES_MAX < last; block++)
        status = reef_checkpoint_put_block(w->txn, w->prefix, part, (uint32_t)block, w->learned,
                                           w->packed, err);
    return status;
}

// Blocks that have bytes from position `since` on. Before a text goes round in its ring, the part
// ends with it.
static reef_status put_text(const writing *w,
                            const reef_memory_part *text,
                            uint64_t since,
                            reef_error *err) {
    uint64_t kept = text->bytes, count = w->learned - since;
    if (count >= kept) return put_range(w, text, 0, kept, err);
    uint64_t end = w->learned % kept == 0 ? kept : w->learned % kept;
    if (count <= end) return put_range(w, text, end - count, end, err);
    reef_status status = put_range(w, text, 0, end, err);
    return status == REEF_OK ? put_range(w, text, kept - (count - end), kept, err) : status;
}

static reef_status put_others(const writing *w, reef_error *err) {
    reef_memory_records list;
    reef_status status = REEF_OK;
    reef_generation_memory_list(w->m, &list);
    for (size_t i = 0; status == REEF_OK && i < list.count; i++) {
        const reef_memory_part *part = &list.records[i];
        if (reef_checkpoint_is_sliced(part->name)) continue;
        if (strcmp(part->name, "text") == 0)
            status = put_text(w, part, w->later->stored, err);
        else
            status = reef_checkpoint_put_part(w->txn, w->prefix, part, w->learned, w->packed, err);
    }
    return status;
}

// ---- slices -------------------------------------------------------------------------------------

// A table that has doubled has other slices.
static reef_status put_doubled(const writing *w, const reef_memory_part *tables, reef_error *err) {
    reef_status status = REEF_OK;
    for (size_t t = 0; status == REEF_OK && t < REEF_MEMORY_TABLES; t++) {
        if (w->later->bytes[t] == tables[t].bytes) continue;
        status = reef_memory_slices_resize(w->later, t, tables[t].bytes, w->learned, err);
        for (size_t i = 0; status == REEF_OK && i < w->later->count[t]; i++)
            status = put_slice(w, &tables[t], t, i, err);
    }
    return status;
}

static reef_status put_next(const writing *w, const reef_memory_part *tables, reef_error *err) {
    size_t i = w->later->next++ % reef_memory_slices_count(w->later), t = 0;
    for (; i >= w->later->count[t]; t++) i -= w->later->count[t];
    if (w->later->learned[t][i] == w->learned) return REEF_OK; // with its table
    return put_slice(w, &tables[t], t, i, err);
}

static reef_status put_turns(const writing *w, const reef_memory_part *tables, reef_error *err) {
    uint64_t since = w->learned - w->later->stored, round = reef_generation_memory_round(w->m),
             count = reef_memory_slices_count(w->later), turns = count;
    if (since < round) turns = (count * since + round - 1) / round;
    reef_status status = REEF_OK;
    for (; status == REEF_OK && turns > 0; turns--) status = put_next(w, tables, err);
    return status;
}

// ---- the log ------------------------------------------------------------------------------------

static reef_key log_key(const reef_key *prefix, uint32_t block) {
    return reef_checkpoint_memory_key(prefix, LOG_NAME, block);
}

static reef_status put_log_head(const writing *w, reef_error *err) {
    const reef_key key = log_key(w->prefix, 0);
    uint8_t head[LOG_HEAD_BYTES];
    reef_put_le32(head, w->later->first);
    reef_put_le32(head + 4, (uint32_t)w->later->block_count);
    return reef_record_put(w->txn, &key, REEF_BYTES, head, sizeof(head), err);
}

static reef_status put_log(const writing *w, reef_error *err) {
    reef_memory_slices *s = w->later;
    size_t count;
    const reef_log_block *blocks = reef_memory_log_blocks(w->m->memory, &count);
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < count; i++) {
        const reef_key key = log_key(w->prefix, s->open + (uint32_t)i);
        status = reef_record_put(w->txn, &key, REEF_BYTES, blocks[i].bytes, blocks[i].count, err);
        if (status == REEF_OK && s->open + i == s->first + s->block_count)
            status = reef_memory_slices_add_block(s, blocks[i].begin, err);
    }
    s->open += (uint32_t)(count - 1);
    return status;
}

// Blocks that all slices are younger than.
static reef_status drop_log(const writing *w, reef_error *err) {
    reef_memory_slices *s = w->later;
    uint64_t oldest = reef_memory_slices_oldest(s);
    reef_status status = REEF_OK;
    size_t dropped = 0;
    for (; status == REEF_OK && dropped + 1 < s->block_count && s->begins[dropped + 1] <= oldest;
         dropped++) {
        const reef_key key = log_key(w->prefix, s->first++);
        status = reef_record_delete(w->txn, &key, err);
    }
    s->block_count -= dropped;
    memmove(s->begins, s->begins + dropped, s->block_count * sizeof(*s->begins));
    return status;
}

reef_status reef_checkpoint_delete_log(reef_txn *txn, const reef_key *prefix, reef_error *err) {
    const reef_key head = log_key(prefix, 0);
    reef_view view;
    reef_status status = reef_record_view(txn, &head, &view, err);
    if (status == REEF_ERR_NOT_FOUND) return REEF_OK;
    // Of a damaged one the blocks are not known: they stay, and nobody reads them.
    uint32_t first = 0, count = 0;
    if (status == REEF_OK && view.bytes == LOG_HEAD_BYTES) {
        first = reef_get_le32(view.data);
        count = reef_get_le32((const uint8_t *)view.data + 4);
    }
    status = reef_record_delete(txn, &head, err);
    for (uint32_t i = 0; status == REEF_OK && i < count; i++) {
        const reef_key key = log_key(prefix, first + i);
        status = reef_record_delete(txn, &key, err);
    }
    return status;
}

// ---- a commit -----------------------------------------------------------------------------------

static reef_status put_all(const writing *w, bool turns, reef_error *err) {
    reef_memory_part tables[REEF_MEMORY_TABLES];
    reef_status status = REEF_OK;
    reef_memory_tables(w->m->memory, tables);
    if (turns) status = put_others(w, err);
    if (status == REEF_OK && turns) status = put_doubled(w, tables, err);
    if (status == REEF_OK && turns) status = put_turns(w, tables, err);
    if (status == REEF_OK) status = put_log(w, err);
    if (status == REEF_OK) status = drop_log(w, err);
    if (status == REEF_OK) status = put_log_head(w, err);
    w->later->stored = w->learned;
    return status;
}

static reef_status put(reef_txn *txn,
                       const reef_key *prefix,
                       reef_generation_memory *m,
                       reef_memory_slices *later,
                       bool turns,
                       reef_error *err) {
    writing w = {txn, prefix, m, reef_memory_learned_bytes(m->memory), later, NULL};
    m->slices_put = later;
    reef_status status = reef_checkpoint_new_packed(&w.packed, err);
    if (status == REEF_OK) status = put_all(&w, turns, err);
    free(w.packed);
    return status;
}

reef_status reef_checkpoint_begin_slices(reef_txn *txn,
                                         const reef_key *prefix,
                                         reef_generation_memory *m,
                                         reef_error *err) {
    reef_memory_part tables[REEF_MEMORY_TABLES];
    reef_memory_slices *later = calloc(1, sizeof(*later));
    if (later == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the slices of a memory");
    later->first = later->open = 1;
    reef_memory_tables(m->memory, tables);
    reef_status status = reef_memory_log(m->memory, err);
    for (size_t t = 0; status == REEF_OK && t < REEF_MEMORY_TABLES; t++)
        status = reef_memory_slices_resize(later, t, tables[t].bytes,
                                           reef_memory_learned_bytes(m->memory), err);
    if (status == REEF_OK) return put(txn, prefix, m, later, false, err);
    reef_memory_slices_free(later);
    return status;
}

reef_status reef_checkpoint_put_slices(reef_txn *txn,
                                       const reef_key *prefix,
                                       reef_generation_memory *m,
                                       reef_error *err) {
    reef_memory_slices *later;
    reef_status status = reef_memory_slices_copy(&later, m->slices, err);
    if (status == REEF_OK) status = put(txn, prefix, m, later, true, err);
    return status == REEF_OK ? reef_checkpoint_check_written(txn, prefix, err) : status;
}

// ---- reading ------------------------------------------------------------------------------------

static reef_status fail_log(const reef_key *prefix, reef_error *err) {
    return reef_fail(err, REEF_ERR_CORRUPT, "memory (generation %u, " LOG_NAME ") is malformed",
                     prefix->generation);
}

static reef_status read_block(reef_txn *txn,
                              const reef_key *key,
                              reef_log_block *out,
                              reef_error *err) {
    reef_view view;
    reef_status status = reef_record_view(txn, key, &view, err);
    if (status == REEF_OK) status = reef_log_block_begin(view.data, view.bytes, &out->begin, err);
    if (status != REEF_OK) return status;
    out->bytes = malloc(view.bytes);
    if (out->bytes == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a block of a log");
    memcpy(out->bytes, view.data, view.bytes);
    out->count = view.bytes;
    return REEF_OK;
}

reef_status reef_checkpoint_read_log(reef_txn *txn,
                                     const reef_key *prefix,
                                     reef_memory_slices *slices,
                                     uint64_t learned,
                                     reef_error *err) {
    const reef_key head = log_key(prefix, 0);
    reef_view view;
    reef_status status = reef_record_view(txn, &head, &view, err);
    if (status == REEF_ERR_NOT_FOUND) return REEF_OK;
    if (status != REEF_OK) return status;
    if (view.bytes != LOG_HEAD_BYTES) return fail_log(prefix, err);
    uint32_t first = reef_get_le32(view.data),
             count = reef_get_le32((const uint8_t *)view.data + 4);
    if (first == 0 || count == 0 || count > learned + 1) return fail_log(prefix, err);
    slices->unread = calloc(count, sizeof(*slices->unread));
    if (slices->unread == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a log of %u blocks", count);
    for (uint32_t i = 0; i < count; i++) {
        const reef_key key = log_key(prefix, first + i);
        reef_log_block block = {0};
        status = read_block(txn, &key, &block, err);
        if (status == REEF_OK) status = reef_memory_slices_add_block(slices, block.begin, err);
        if (status != REEF_OK) {
            free(block.bytes);
            return status;
        }
        slices->unread[slices->block_count - 1] = block;
    }
    slices->first = first;
    slices->open = first + count;
    slices->stored = learned;
    return REEF_OK;
}
