// See generation_memory.h.
//
//   segment   u32  count of bytes; its highest bit: predictions follow
//             u64  position in the stream of the first byte
//             (count) bytes
//             (count) reef_net_prediction, 18 bytes each
#define XXH_STATIC_LINKING_ONLY // for hash states on the stack
#include "generation_memory.h"

#include <xxhash.h>

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SEGMENT_HEADER_BYTES 12
#define SEGMENT_HAS_NET (UINT32_C(1) << 31)
_Static_assert(sizeof(reef_net_prediction) == 18, "as it is stored");

// After a crash the tail is learned again: of a memory of 64 MiB in some two seconds. While the
// memory is small its tables are cheap to write, so that the tail stays a share of what it learned.
// Of a large one they are not: then it is a share of what it takes, so that for each byte that is
// learned at most some 130 bytes of tables are written.
#define TAIL_LEARNED_MIN (UINT64_C(32) << 10)
#define TAIL_LEARNED_MAX (UINT64_C(512) << 10)
#define TAIL_SHARE 2
#define TAIL_BYTES_MAX (UINT64_C(4) << 20)
#define TAIL_LEARNED_SHARE 128 // of the bytes that the memory takes, where that is more
#define TAIL_BYTES_SHARE 16
#define ROUND_MAX (UINT64_C(64) << 20)
#define ROUND_SHARE 64 // of the bound, where that is less: the text reaches back over two rounds
// Mixers, which are written with slices, have some megabytes.
#define ROUND_PARTS 4
#define TAIL_IN_SLICES_MAX (UINT64_C(64) << 10)
#define REST_PARTS 8 // and so at most eight times as much is written as while it learns

#define LARGE (UINT64_C(32) << 20)
#define LARGE_SHARE 4 // of the bound, where that is less

void reef_generation_memory_release(reef_generation_memory *m) {
    reef_memory_free(m->memory);
    free(m->tail);
    free(m->unlearned);
    reef_memory_slices_free(m->slices);
    reef_memory_slices_free(m->slices_put);
    *m = (reef_generation_memory){0};
}

void reef_generation_memory_move(reef_generation_memory *to, reef_generation_memory *from) {
    *to = *from;
    *from = (reef_generation_memory){0};
}

static reef_status reserve_tail(reef_generation_memory *m, size_t more, reef_error *err) {
    size_t needed = m->tail_bytes + more, capacity = m->tail_capacity;
    if (needed <= capacity) return REEF_OK;
    while (capacity < needed) capacity = capacity > 0 ? 2 * capacity : 65536;
    uint8_t *tail = realloc(m->tail, capacity);
    if (tail == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu bytes that were learned",
                         capacity);
    m->tail = tail;
    m->tail_capacity = capacity;
    return REEF_OK;
}

static void extend_chain(reef_generation_memory *m, const uint8_t *segment, size_t bytes) {
    XXH3_state_t state;
    XXH128_canonical_t canonical;
    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, m->chain, sizeof(m->chain));
    XXH3_128bits_update(&state, segment, bytes);
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
    memcpy(m->chain, canonical.digest, sizeof(m->chain));
}

reef_status reef_generation_memory_learn(reef_generation_memory *m,
                                         uint64_t bytes_max,
                                         uint64_t begin,
                                         const uint8_t *bytes,
                                         size_t count,
                                         const reef_net_prediction *net,
                                         float *bits,
                                         reef_error *err) {
    uint32_t header = (uint32_t)count | (net != NULL ? SEGMENT_HAS_NET : 0);
    size_t net_bytes = net != NULL ? count * sizeof(*net) : 0,
           size = SEGMENT_HEADER_BYTES + count + net_bytes;
    // Room first, so that the tail never lacks what the tables have.
    reef_status status = reserve_tail(m, size, err);
    if (status == REEF_OK && m->memory == NULL)
        status = reef_memory_new(&m->memory, &(reef_memory_options){.bytes_max = bytes_max}, err);
    if (status == REEF_OK && reef_memory_slices_in_turns(m->slices) &&
        !reef_memory_is_logged(m->memory))
        status = reef_memory_log(m->memory, err);
    if (status == REEF_OK) status = reef_memory_learn(m->memory, bytes, count, net, bits, err);
    if (status != REEF_OK) return status;
    m->rests = false;
    uint8_t *segment = m->tail + m->tail_bytes;
    memcpy(segment, &header, sizeof(header));
    memcpy(segment + sizeof(header), &begin, sizeof(begin));
    memcpy(segment + SEGMENT_HEADER_BYTES, bytes, count);
    if (net != NULL) memcpy(segment + SEGMENT_HEADER_BYTES + count, net, net_bytes);
    extend_chain(m, segment, size);
    m->tail_bytes += size;
    m->next = begin + count;
    return REEF_OK;
}

reef_status reef_memory_learn_batch(const reef_config *config,
                                    reef_generation_memory *memory,
                                    const uint8_t *bytes,
                                    uint64_t begin,
                                    const reef_net_prediction *predictions,
                                    float *bits,
                                    reef_error *err) {
    uint64_t bytes_max = config->memory;
    reef_status status = REEF_OK;
    // A batch is learned by its targets, which the net spoke about. Its first byte is one of them
    // only where the batch before it was learned as well.
    if (memory->memory == NULL || memory->next != begin + 1)
        status = reef_generation_memory_learn(memory, bytes_max, begin, bytes, 1, NULL, NULL, err);
    if (status != REEF_OK) return status;
    return reef_generation_memory_learn(memory, bytes_max, begin + 1, bytes + 1,
                                        (size_t)config->batch * config->context, predictions, bits,
                                        err);
}

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

// By what a memory takes that has learned so much.
static uint64_t learned_bound(const reef_memory *memory, uint64_t learned) {
    uint64_t bound = larger(learned / TAIL_SHARE, TAIL_LEARNED_MIN),
             most = larger(TAIL_LEARNED_MAX, reef_memory_bytes(memory) / TAIL_LEARNED_SHARE);
    return bound < most ? bound : most;
}

// Learned since the oldest of its tables was stored.
static uint64_t since_oldest(const reef_generation_memory *m) {
    bool in_turns = reef_memory_slices_in_turns(m->slices);
    uint64_t oldest = in_turns ? reef_memory_slices_oldest(m->slices) : m->checkpoint_bytes;
    return reef_memory_learned_bytes(m->memory) - oldest;
}

bool reef_generation_memory_is_due(const reef_generation_memory *m) {
    if (m->memory == NULL) return false;
    if (m->adopted) return true;
    uint64_t learned = reef_memory_learned_bytes(m->memory) - m->checkpoint_bytes;
    if (m->rests && since_oldest(m) >= reef_generation_memory_rest_bytes(m)) return true;
    if (reef_memory_slices_in_turns(m->slices)) {
        uint64_t part = reef_generation_memory_round(m) / ROUND_PARTS;
        return learned >= (part < TAIL_IN_SLICES_MAX ? part : TAIL_IN_SLICES_MAX);
    }
    return learned >= learned_bound(m->memory, m->checkpoint_bytes) ||
           m->tail_bytes >= larger(TAIL_BYTES_MAX, reef_memory_bytes(m->memory) / TAIL_BYTES_SHARE);
}

bool reef_generation_memory_is_large(const reef_generation_memory *m) {
    reef_memory_part tables[REEF_MEMORY_TABLES];
    uint64_t bytes = 0, share = reef_memory_bytes_max(m->memory) / LARGE_SHARE;
    reef_memory_tables(m->memory, tables);
    for (size_t t = 0; t < REEF_MEMORY_TABLES; t++) bytes += tables[t].bytes;
    return bytes >= (share < LARGE ? share : LARGE);
}

uint64_t reef_generation_memory_round(const reef_generation_memory *m) {
    uint64_t round = learned_bound(m->memory, reef_memory_learned_bytes(m->memory)),
             most = reef_memory_bytes_max(m->memory) / ROUND_SHARE;
    if (most > ROUND_MAX) most = ROUND_MAX;
    return round < most ? round : most;
}

void reef_generation_memory_rest(reef_generation_memory *m) {
    m->rests = m->memory != NULL;
}

uint64_t reef_generation_memory_rest_bytes(const reef_generation_memory *m) {
    return reef_generation_memory_round(m) / REST_PARTS;
}

static reef_status cut_short(reef_error *err) {
    return reef_fail(err, REEF_ERR_CORRUPT, "the tail of a context memory ends within a segment");
}

// The segment at the beginning of `left` bytes. size: written; of all of it
static reef_status read_segment(const uint8_t *tail,
                                size_t left,
                                uint64_t *begin,
                                size_t *count,
                                bool *has_net,
                                size_t *size,
                                reef_error *err) {
    uint32_t header;
    if (left < SEGMENT_HEADER_BYTES) return cut_short(err);
    memcpy(&header, tail, sizeof(header));
    memcpy(begin, tail + sizeof(header), sizeof(*begin));
    *has_net = (header & SEGMENT_HAS_NET) != 0;
    *count = header & ~SEGMENT_HAS_NET;
    size_t each = *has_net ? 1 + sizeof(reef_net_prediction) : 1;
    if ((left - SEGMENT_HEADER_BYTES) / each < *count) return cut_short(err);
    *size = SEGMENT_HEADER_BYTES + *count * each;
    return REEF_OK;
}

reef_status reef_generation_memory_tail_learned(const uint8_t *tail,
                                                size_t tail_bytes,
                                                uint64_t *learned,
                                                reef_error *err) {
    *learned = 0;
    for (size_t at = 0, count = 0, size = 0; at < tail_bytes; at += size) {
        uint64_t begin = 0;
        bool has_net = false;
        reef_status status =
            read_segment(tail + at, tail_bytes - at, &begin, &count, &has_net, &size, err);
        if (status != REEF_OK) return status;
        *learned += count;
    }
    return REEF_OK;
}

static reef_status replay(reef_generation_memory *m, uint64_t bytes_max, reef_error *err) {
    const uint8_t *tail = m->unlearned;
    size_t left = m->unlearned_bytes;
    reef_status status = REEF_OK;
    while (status == REEF_OK && left > 0) {
        uint64_t begin = 0;
        bool has_net = false;
        size_t count = 0, size = 0;
        status = read_segment(tail, left, &begin, &count, &has_net, &size, err);
        if (status != REEF_OK) return status;
        // Copied out: where predictions begin depends on the number of bytes before them.
        reef_net_prediction *net = has_net ? malloc((count + 1) * sizeof(*net)) : NULL;
        if (has_net && net == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a tail of %zu bytes", left);
        if (has_net) memcpy(net, tail + SEGMENT_HEADER_BYTES + count, count * sizeof(*net));
        status = reef_generation_memory_learn(m, bytes_max, begin, tail + SEGMENT_HEADER_BYTES,
                                              count, net, NULL, err);
        free(net);
        tail += size;
        left -= size;
    }
    return status;
}

static reef_status replay_log(reef_generation_memory *m,
                              struct reef_thread_pool *workers,
                              reef_error *err) {
    reef_memory_slices *s = m->slices;
    if (s == NULL || s->unread == NULL) return REEF_OK;
    reef_status status = reef_memory_replay(m->memory, (const uint64_t *const *)s->learned,
                                            s->unread, s->log_count, workers, err);
    for (size_t i = 0; i < s->log_count; i++) free(s->unread[i].bytes);
    free(s->unread);
    s->unread = NULL;
    return status;
}

reef_status reef_generation_memory_catch_up(reef_generation_memory *m,
                                            uint64_t bytes_max,
                                            struct reef_thread_pool *workers,
                                            reef_error *err) {
    reef_status status = replay_log(m, workers, err);
    if (status == REEF_OK) status = replay(m, bytes_max, err);
    free(m->unlearned);
    m->unlearned = NULL;
    m->unlearned_bytes = 0;
    if (status != REEF_OK || !m->chain_is_known ||
        memcmp(m->chain, m->known_chain, sizeof(m->chain)) == 0)
        return status;
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "what a kind went on to learn, up to position %" PRIu64
                     " of the stream, is not what it is said to be",
                     m->next);
}

void reef_generation_memory_settle(reef_generation_memory *m) {
    if (!m->checkpoint_put) return;
    m->checkpoint_put = m->adopted = m->rests = false;
    m->checkpoint_bytes = reef_memory_learned_bytes(m->memory);
    m->tail_bytes = 0;
    reef_memory_slices_free(m->slices);
    m->slices = m->slices_put;
    m->slices_put = NULL;
    if (!reef_memory_slices_in_turns(m->slices))
        reef_memory_log_end(m->memory);
    else if (reef_memory_is_logged(m->memory))
        reef_memory_log_drop(m->memory);
}

#define STATS_EVERY_MIN (UINT64_C(16) << 10)
#define STATS_EVERY_MAX (UINT64_C(1) << 20)
#define STATS_SHARE 8

void reef_memory_refresh_stats(const reef_memory *memory, reef_memory_stats *seen) {
    uint64_t learned = reef_memory_learned_bytes(memory), every = seen->learned_bytes / STATS_SHARE;
    if (every < STATS_EVERY_MIN) every = STATS_EVERY_MIN;
    if (every > STATS_EVERY_MAX) every = STATS_EVERY_MAX;
    // A memory that has learned less than the last one is another memory.
    bool other = seen->learned_bytes == 0 || learned < seen->learned_bytes;
    if (other || learned - seen->learned_bytes >= every) reef_memory_read_stats(memory, seen);
}

// ---- as records ---------------------------------------------------------------------------------

_Static_assert(sizeof(reef_memory_position) == 24, "as it is stored");

static int by_name(const void *a, const void *b) {
    return strcmp(((const reef_memory_part *)a)->name, ((const reef_memory_part *)b)->name);
}

void reef_generation_memory_list(const reef_generation_memory *m, reef_memory_records *out) {
    reef_memory_part parts[REEF_MEMORY_RECORDS_MAX];
    assert(m->memory != NULL && reef_memory_part_count() < REEF_MEMORY_RECORDS_MAX);
    out->position.next = m->next;
    memcpy(out->position.chain, m->chain, sizeof(m->chain));
    out->records[0] =
        (reef_memory_part){REEF_MEMORY_POSITION_NAME, &out->position, sizeof(out->position)};
    out->count = 1;
    reef_memory_parts(m->memory, parts);
    for (size_t i = 0; i < reef_memory_part_count(); i++)
        if (parts[i].bytes > 0) out->records[out->count++] = parts[i];
    qsort(out->records, out->count, sizeof(*out->records), by_name);
}

const reef_memory_part *reef_memory_records_find(const reef_memory_records *records,
                                                 const char *name) {
    for (size_t i = 0; i < records->count; i++)
        if (strcmp(records->records[i].name, name) == 0) return &records->records[i];
    return NULL;
}

reef_status reef_generation_memory_restore(reef_generation_memory *m,
                                           const reef_memory_reader *from,
                                           reef_error *err) {
    reef_memory_position position;
    assert(m->memory == NULL);
    reef_status status =
        from->fetch(from->context, REEF_MEMORY_POSITION_NAME, &position, sizeof(position), err);
    if (status == REEF_OK) status = reef_memory_restore(&m->memory, from, err);
    if (status != REEF_OK) return status;
    m->next = position.next;
    memcpy(m->chain, position.chain, sizeof(m->chain));
    m->adopted = true;
    return REEF_OK;
}

// A memory, and its records.
typedef struct listed {
    const reef_generation_memory *memory;
    reef_memory_records records;
} listed;

static reef_status fetch_listed(
    void *context, const char *name, void *into, size_t bytes, reef_error *err) {
    (void)err; // a memory has what its own header says
    const listed *from = context;
    const reef_memory_part *part = reef_memory_records_find(&from->records, name);
    assert(part != NULL && part->bytes == bytes);
    memcpy(into, part->data, bytes);
    return REEF_OK;
}

// What the pool lends stays, whoever uses it.
static reef_status fetch_listed_text(void *context,
                                     size_t block,
                                     const uint8_t *name,
                                     const uint8_t **out,
                                     bool *lent,
                                     reef_error *err) {
    const listed *from = context;
    const uint8_t *unused;
    (void)name, (void)err;
    *out = reef_memory_text_block(from->memory->memory, block, &unused);
    *lent = reef_memory_text_is_lent(from->memory->memory, block);
    return REEF_OK;
}

reef_status reef_generation_memory_copy(reef_generation_memory *to,
                                        const reef_generation_memory *from,
                                        reef_error *err) {
    listed of = {.memory = from};
    reef_generation_memory_list(from, &of.records);
    const reef_memory_reader reader = {fetch_listed, fetch_listed_text, &of};
    reef_status status = reef_generation_memory_restore(to, &reader, err);
    if (status == REEF_OK) to->text_lent = from->text_lent;
    return status;
}
