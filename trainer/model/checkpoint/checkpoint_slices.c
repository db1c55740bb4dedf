// The tables of a context memory, slice by slice, and the log of a large one that learns.
//
//   slices    list of pairs u64: (the commit before the list was begun, 0), then of each slice of
//             cells, trees, index and long index what the memory had learned when it was as it is,
//             and the number of the block that has it, packed (zero_runs.c)
//   log       of one whose slices are of different times, list of pairs: the position of the first
//             byte of a block, and its number
//
// A commit writes all slices of a small memory. Of a large one it writes some, whose turn it is,
// and a table that has doubled whole. So each slice is read as it was at its own time, and the log
// leads from there to the commit. In a round (reef_generation_memory_round) every slice has had its
// turn, so the log is about as long. Before a process ends, and with a seal, old slices are written
// out of turn, so that the log to be replayed is short (reef_trainer_rest).
//
// Blocks are shared with the lists of other states (reef_block_put): a seal, a snapshot, or a kind
// that comes back copies these lists.
#include "checkpoint_internal.h"
#include "reef_byte_order.h"

#include <stdlib.h>
#include <string.h>

#define OLD_AT_ONCE 256
#define PAIR_BYTES (2 * sizeof(uint64_t))

// What a commit writes of a memory.
typedef struct writing {
    reef_txn *txn;
    const reef_key *prefix;
    const reef_generation_memory *m;
    uint64_t learned, shared_to;
    reef_memory_slices *later; // as it will be stored
    bool learns;               // false: it is sealed
    reef_memory_part tables[REEF_MEMORY_TABLES];
    uint8_t *packed;
} writing;

// ---- slices -------------------------------------------------------------------------------------

static reef_status put_slice(const writing *w, size_t t, size_t i, reef_error *err) {
    size_t at = i * REEF_SLICE_BYTES;
    size_t bytes = reef_zero_runs_pack(w->packed, (const uint8_t *)w->tables[t].data + at,
                                       reef_checkpoint_block_bytes(w->tables[t].bytes, at));
    w->later->learned[t][i] = w->learned;
    return reef_block_put(w->txn, &w->later->numbers[t][i], w->shared_to, w->packed, bytes, err);
}

// A table that has doubled has other slices.
static reef_status resize(const writing *w, size_t t, reef_error *err) {
    reef_memory_slices *later = w->later;
    reef_status status = REEF_OK;
    if (later->bytes[t] == w->tables[t].bytes) return REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < later->count[t]; i++)
        status = reef_block_drop(w->txn, later->numbers[t][i], w->shared_to, err);
    return status == REEF_OK ? reef_memory_slices_resize(later, t, w->tables[t].bytes, err)
                             : status;
}

static reef_status put_table(const writing *w, size_t t, reef_error *err) {
    reef_status status = resize(w, t, err);
    for (size_t i = 0; status == REEF_OK && i < w->later->count[t]; i++)
        status = put_slice(w, t, i, err);
    return status;
}

static reef_status put_next(const writing *w, reef_error *err) {
    size_t i = w->later->next++ % reef_memory_slices_count(w->later), t = 0;
    for (; i >= w->later->count[t]; t++) i -= w->later->count[t];
    if (w->later->learned[t][i] == w->learned) return REEF_OK; // with its table
    return put_slice(w, t, i, err);
}

// Slices that are old. Of a memory that learns, some with each commit: the pages that they replace
// are then free for the next ones. Of a sealed one all: it is read as it is for ever.
static reef_status put_old(const writing *w, reef_error *err) {
    uint64_t most = reef_generation_memory_rest_bytes(w->m);
    size_t count_max = w->learns ? OLD_AT_ONCE : reef_memory_slices_count(w->later);
    reef_status status = REEF_OK;
    size_t count = 0;
    for (size_t t = 0; t < REEF_MEMORY_TABLES; t++)
        for (size_t i = 0; count < count_max && i < w->later->count[t]; i++) {
            if (w->learned - w->later->learned[t][i] < most) continue;
            status = put_slice(w, t, i, err);
            if (status != REEF_OK) return status;
            count++;
        }
    return REEF_OK;
}

static reef_status put_turns(const writing *w, reef_error *err) {
    reef_status status = REEF_OK;
    for (size_t t = 0; status == REEF_OK && t < REEF_MEMORY_TABLES; t++)
        if (w->later->bytes[t] != w->tables[t].bytes) status = put_table(w, t, err);
    uint64_t since = w->learned - w->later->stored, round = reef_generation_memory_round(w->m),
             count = reef_memory_slices_count(w->later), turns = count;
    if (since < round) turns = (count * since + round - 1) / round;
    for (; status == REEF_OK && turns > 0; turns--) status = put_next(w, err);
    return status == REEF_OK && (w->m->rests || !w->learns) ? put_old(w, err) : status;
}

// ---- the log ------------------------------------------------------------------------------------

static reef_status put_log(const writing *w, reef_error *err) {
    reef_memory_slices *s = w->later;
    reef_status status = REEF_OK;
    size_t count = 0;
    if (!reef_memory_is_logged(w->m->memory)) return REEF_OK; // it has learned nothing since
    const reef_log_block *blocks = reef_memory_log_blocks(w->m->memory, &count);
    for (size_t i = 0; status == REEF_OK && i < count; i++) {
        if (s->open + i == s->log_count)
            status = reef_memory_slices_add_log(s, blocks[i].begin, 0, err);
        if (status == REEF_OK)
            status = reef_block_put(w->txn, &s->log_numbers[s->open + i], w->shared_to,
                                    blocks[i].bytes, blocks[i].count, err);
    }
    s->open += count - 1;
    return status;
}

// Blocks that all slices are younger than.
static reef_status drop_log(const writing *w, reef_error *err) {
    reef_memory_slices *s = w->later;
    uint64_t oldest = reef_memory_slices_oldest(s);
    reef_status status = REEF_OK;
    size_t gone = 0;
    for (; status == REEF_OK && gone + 1 < s->log_count && gone < s->open &&
           s->begins[gone + 1] <= oldest;
         gone++)
        status = reef_block_drop(w->txn, s->log_numbers[gone], w->shared_to, err);
    if (gone == 0) return status;
    s->log_count -= gone;
    s->open -= gone;
    memmove(s->begins, s->begins + gone, s->log_count * sizeof(*s->begins));
    memmove(s->log_numbers, s->log_numbers + gone, s->log_count * sizeof(*s->log_numbers));
    return status;
}

// ---- lists --------------------------------------------------------------------------------------

static uint8_t *put_pair(uint8_t *at, uint64_t first, uint64_t second) {
    reef_put_le64(at, first);
    reef_put_le64(at + sizeof(first), second);
    return at + PAIR_BYTES;
}

// In pieces, of which none stays that it has no more.
static reef_status put_list(
    const writing *w, const char *name, const uint8_t *pairs, size_t count, reef_error *err) {
    const reef_memory_part list = {name, pairs, count * PAIR_BYTES};
    reef_status status = reef_checkpoint_put_part(w->txn, w->prefix, &list, w->packed, err);
    reef_key beyond =
        reef_checkpoint_memory_key(w->prefix, name, (uint32_t)reef_slices_of(list.bytes));
    for (; status == REEF_OK && reef_checkpoint_is_stored(w->txn, &beyond); beyond.block++)
        status = reef_record_delete(w->txn, &beyond, err);
    return status;
}

static reef_status put_lists(const writing *w, reef_error *err) {
    const reef_memory_slices *s = w->later;
    size_t count = 1 + reef_memory_slices_count(s);
    uint8_t *pairs = malloc((count + s->log_count) * PAIR_BYTES), *at = pairs;
    if (pairs == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the slices of a memory");
    at = put_pair(at, s->since, 0);
    for (size_t t = 0; t < REEF_MEMORY_TABLES; t++)
        for (size_t i = 0; i < s->count[t]; i++)
            at = put_pair(at, s->learned[t][i], s->numbers[t][i]);
    const uint8_t *log = at;
    for (size_t i = 0; i < s->log_count; i++) at = put_pair(at, s->begins[i], s->log_numbers[i]);
    reef_status status = put_list(w, REEF_SLICE_LIST, pairs, count, err);
    if (status == REEF_OK) status = put_list(w, REEF_LOG_LIST, log, s->log_count, err);
    free(pairs);
    return status;
}

// ---- a commit -----------------------------------------------------------------------------------

// Where the list began elsewhere, its blocks are that one's as well.
static reef_status begin(reef_memory_slices **out,
                         reef_txn *txn,
                         const reef_key *prefix,
                         const reef_generation_memory *m,
                         reef_error *err) {
    reef_status status = REEF_OK;
    if (m->slices != NULL && !m->adopted)
        status = reef_memory_slices_copy(out, m->slices, err);
    else if ((*out = calloc(1, sizeof(**out))) == NULL)
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the slices of a memory");
    if (status == REEF_OK && !reef_checkpoint_has_tables(txn, prefix))
        (*out)->since = reef_blocks_now(txn) - 1;
    return status;
}

static reef_status put_all(writing *w, reef_error *err) {
    reef_status status = REEF_OK;
    bool in_turns = reef_memory_slices_in_turns(w->later);
    if (in_turns) status = put_turns(w, err);
    for (size_t t = 0; !in_turns && status == REEF_OK && t < REEF_MEMORY_TABLES; t++)
        status = put_table(w, t, err);
    // From now on in turns.
    if (status == REEF_OK && !in_turns && w->learns && reef_generation_memory_is_large(w->m)) {
        status = reef_memory_log(w->m->memory, err);
        in_turns = true;
    }
    if (status == REEF_OK && in_turns) status = put_log(w, err);
    if (status == REEF_OK) status = drop_log(w, err);
    w->later->stored = w->learned;
    return status == REEF_OK ? put_lists(w, err) : status;
}

reef_status reef_checkpoint_put_slices(reef_txn *txn,
                                       const reef_key *prefix,
                                       reef_generation_memory *m,
                                       bool learns,
                                       reef_error *err) {
    writing w = {txn, prefix, m, .learned = reef_memory_learned_bytes(m->memory), .learns = learns};
    reef_status status = begin(&w.later, txn, prefix, m, err);
    m->slices_put = w.later;
    if (status == REEF_OK) status = reef_blocks_shared_to(txn, &w.shared_to, err);
    if (status == REEF_OK) status = reef_checkpoint_new_packed(&w.packed, err);
    if (status != REEF_OK) return status;
    if (w.later->since > w.shared_to) w.shared_to = w.later->since;
    reef_memory_tables(m->memory, w.tables);
    status = put_all(&w, err);
    free(w.packed);
    return status;
}

// ---- reading ------------------------------------------------------------------------------------

static reef_status fail_list(const reef_key *prefix, const char *name, reef_error *err) {
    return reef_fail(err, REEF_ERR_CORRUPT, "memory (generation %u, %s) is malformed",
                     prefix->generation, name);
}

// All of a list; NULL where there is none.
static reef_status read_list(reef_txn *txn,
                             const reef_key *prefix,
                             const char *name,
                             uint8_t **out,
                             size_t *count,
                             reef_error *err) {
    reef_key key = reef_checkpoint_memory_key(prefix, name, 0);
    size_t bytes = 0;
    *out = NULL;
    for (;; key.block++) {
        reef_view piece;
        reef_status status = reef_record_view(txn, &key, &piece, err);
        *count = bytes / PAIR_BYTES;
        if (status == REEF_ERR_NOT_FOUND)
            return bytes % PAIR_BYTES == 0 ? REEF_OK : fail_list(prefix, name, err);
        if (status != REEF_OK) return status;
        uint8_t *larger = realloc(*out, bytes + piece.bytes + 1);
        if (larger == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a list of %zu bytes", bytes);
        memcpy(larger + bytes, piece.data, piece.bytes);
        *out = larger;
        bytes += piece.bytes;
    }
}

static void take_slices(reef_memory_slices *slices, const uint8_t *pairs) {
    slices->since = reef_get_le64(pairs);
    for (size_t t = 0; t < REEF_MEMORY_TABLES; t++)
        for (size_t i = 0; i < slices->count[t]; i++) {
            pairs += PAIR_BYTES;
            slices->learned[t][i] = reef_get_le64(pairs);
            slices->numbers[t][i] = reef_get_le64(pairs + sizeof(uint64_t));
        }
}

reef_status reef_checkpoint_read_slices(reef_txn *txn,
                                        const reef_key *prefix,
                                        const reef_memory_part *parts,
                                        reef_memory_slices *slices,
                                        reef_error *err) {
    uint8_t *pairs = NULL;
    size_t count = 0;
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < reef_memory_part_count(); i++) {
        int table = reef_checkpoint_table(parts[i].name);
        if (table >= 0)
            status = reef_memory_slices_resize(slices, (size_t)table, parts[i].bytes, err);
    }
    if (status == REEF_OK) status = read_list(txn, prefix, REEF_SLICE_LIST, &pairs, &count, err);
    if (status == REEF_OK && count != 1 + reef_memory_slices_count(slices))
        status = fail_list(prefix, REEF_SLICE_LIST, err);
    if (status == REEF_OK) take_slices(slices, pairs);
    free(pairs);
    return status;
}

reef_status reef_checkpoint_read_slice(
    reef_txn *txn, uint64_t number, void *out, size_t bytes, reef_error *err) {
    const reef_key key = reef_block_key(number);
    return reef_checkpoint_read_packed(txn, &key, out, bytes, err);
}

static reef_status read_block(reef_txn *txn,
                              uint64_t number,
                              reef_log_block *out,
                              reef_error *err) {
    const reef_key key = reef_block_key(number);
    reef_view view;
    reef_status status = reef_record_view(txn, &key, &view, err);
    if (status == REEF_OK) status = reef_log_block_begin(view.data, view.bytes, &out->begin, err);
    if (status != REEF_OK) return status;
    out->bytes = malloc(view.bytes);
    if (out->bytes == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a block of a log");
    memcpy(out->bytes, view.data, view.bytes);
    out->count = view.bytes;
    return REEF_OK;
}

static reef_status read_blocks(reef_txn *txn,
                               reef_memory_slices *slices,
                               const uint8_t *pairs,
                               size_t count,
                               reef_error *err) {
    reef_status status = REEF_OK;
    slices->unread = calloc(count, sizeof(*slices->unread));
    if (slices->unread == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a log of %zu blocks", count);
    for (size_t i = 0; status == REEF_OK && i < count; i++) {
        uint64_t begin = reef_get_le64(pairs + i * PAIR_BYTES),
                 number = reef_get_le64(pairs + i * PAIR_BYTES + sizeof(uint64_t));
        status = reef_memory_slices_add_log(slices, begin, number, err);
        if (status == REEF_OK) status = read_block(txn, number, &slices->unread[i], err);
    }
    return status;
}

reef_status reef_checkpoint_read_log(reef_txn *txn,
                                     const reef_key *prefix,
                                     reef_memory_slices *slices,
                                     uint64_t learned,
                                     reef_error *err) {
    uint8_t *pairs = NULL;
    size_t count = 0;
    reef_status status = read_list(txn, prefix, REEF_LOG_LIST, &pairs, &count, err);
    if (status == REEF_OK && count > learned + 1) status = fail_list(prefix, REEF_LOG_LIST, err);
    if (status == REEF_OK && count > 0) status = read_blocks(txn, slices, pairs, count, err);
    free(pairs);
    slices->open = slices->log_count;
    slices->stored = learned;
    return status;
}
