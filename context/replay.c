// See reef_replay.h: tables of different times are brought up to the present.
//
// Bytes are taken a few at a time: first the hashes of all of them, whose lines are asked for, and
// then their lines, which are there by then. No line needs to know another one, so each thread has
// slices of its own.
#include "memory_internal.h"
#include "reef_byte_order.h"
#include "reef_replay.h"
#include "reef_system.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static_assert(REEF_MEMORY_TABLES == REEF_TABLES, "all tables have slices");
static_assert(REEF_CONTEXTS <= 24, "contexts have a bit each in three bytes");

#define AHEAD 16 // bytes

// One byte, as the log has it.
typedef struct step {
    uint64_t hashes[REEF_CONTEXTS];
    uint64_t match_hashes[REEF_MATCHES];
    uint64_t at; // learned before it
    uint32_t trees, met;
    uint8_t byte, way;
    size_t event_count;
    reef_log_event events[REEF_CONTEXTS];
} step;

typedef struct reading {
    const reef_text_ring *text; // all of it, as of now
    reef_text_ring past;        // what had been read of it by then
    reef_position position;
    uint64_t match_hashes[REEF_MATCHES];
    uint32_t trees, met;
    uint16_t *followers;
    const uint8_t *at, *end;
    uint64_t learned;
} reading;

// What one thread does: every so many slices of each table, of all blocks.
typedef struct share {
    const reef_memory *memory;
    const uint64_t *const *slices;
    const reef_log_block *blocks;
    size_t count;
    uint32_t number, of;
    reef_status status;
    reef_error error;
} share;

static reef_status fail_corrupt(reef_error *err) {
    return reef_fail(err, REEF_ERR_CORRUPT, "a log of what a memory learned is malformed");
}

reef_status reef_log_block_begin(const uint8_t *block,
                                 size_t bytes,
                                 uint64_t *out,
                                 reef_error *err) {
    if (bytes < REEF_LOG_HEAD_BYTES) return fail_corrupt(err);
    *out = reef_get_le64(block);
    return REEF_OK;
}

// ---- the log ------------------------------------------------------------------------------------

static reef_status read_head(
    reading *r, const reef_predictor *p, const uint8_t *block, size_t bytes, reef_error *err) {
    uint32_t *words[REEF_POSITION_WORDS];
    reef_status status = reef_log_block_begin(block, bytes, &r->learned, err);
    if (status != REEF_OK) return status;
    uint64_t since = p->learned_bytes - r->learned;
    if (r->learned > p->learned_bytes || since > p->text.kept) return fail_corrupt(err);
    r->text = &p->text;
    r->past = p->text;
    r->past.end -= since;
    r->past.kept -= since;
    r->position.bytes = reef_get_le64(block + 8);
    r->position.line = reef_get_le64(block + 16);
    r->position.line_above = reef_get_le64(block + 24);
    reef_position_words(&r->position, words);
    for (size_t i = 0; i < REEF_POSITION_WORDS; i++) {
        uint32_t word = reef_get_le32(block + 32 + 4 * i);
        if (words[i] != NULL)
            *words[i] = word;
        else
            r->position.has_letter = word != 0;
    }
    r->met = reef_get_le32(block + 84);
    for (size_t k = 0; k < REEF_MATCHES; k++)
        r->match_hashes[k] = reef_get_le64(block + 88 + 8 * k);
    r->at = block + REEF_LOG_HEAD_BYTES;
    r->end = block + bytes;
    return REEF_OK;
}

// `count` bytes as a number; *right becomes false where there are not so many.
static uint32_t get(reading *r, uint32_t count, bool *right) {
    uint32_t value = 0;
    if ((size_t)(r->end - r->at) < count) {
        *right = false;
        return 0;
    }
    for (uint32_t i = 0; i < count; i++) value |= (uint32_t)r->at[i] << 8 * i;
    r->at += count;
    return value;
}

static void get_events(reading *r, step *s, bool *right) {
    s->event_count = get(r, 1, right);
    *right &= s->event_count <= REEF_CONTEXTS;
    for (size_t i = 0; *right && i < s->event_count; i++) {
        uint32_t event = get(r, 4, right);
        s->events[i] = (reef_log_event){(uint8_t)event, (uint8_t)(event >> 8),
                                        (uint8_t)(event >> 16), (uint8_t)(event >> 24)};
        *right &= s->events[i].context < REEF_CONTEXTS &&
                  (i == 0 || s->events[i].context > s->events[i - 1].context);
    }
}

static bool read_step(reading *r, step *s) {
    bool right = true;
    int known = 0;
    uint32_t flags = get(r, 1, &right), last_two = r->position.bytes & 0xFFFF;
    s->at = r->learned;
    s->way = (uint8_t)(flags & 15);
    s->byte = reef_text_at(r->text, r->past.end, &known);
    if (!known || s->way > REEF_LOG_FORESEEN) return false;
    if (flags & REEF_LOG_MET) r->met = get(r, 3, &right);
    if (flags & REEF_LOG_FOLLOWERS) r->followers[last_two] = (uint16_t)get(r, 2, &right);
    s->met = r->met;
    s->trees = 0;
    if (s->way != REEF_LOG_FORESEEN) {
        if (!(flags & REEF_LOG_SAME)) r->trees = get(r, 3, &right);
        s->trees = r->trees;
    }
    s->event_count = 0;
    if (flags & REEF_LOG_STORED) get_events(r, s, &right);
    // And one byte further, in the order of learning.
    reef_contexts_hash(&r->position, &r->past, r->followers[last_two], s->hashes);
    r->followers[last_two] = (uint16_t)(r->followers[last_two] << 8 | s->byte);
    r->past.end++;
    r->past.kept++;
    reef_position_step(&r->position, &r->past, s->byte);
    for (size_t k = 0; k < REEF_MATCHES; k++)
        s->match_hashes[k] = r->match_hashes[k] =
            reef_match_hash(r->match_hashes[k], REEF_MATCH_SHORTEST[k], s->byte);
    r->learned++;
    return right && (s->trees >> REEF_CONTEXTS) == 0;
}

// ---- lines --------------------------------------------------------------------------------------

// The entry that a byte has in an index that is to learn it, or NULL.
static uint32_t *entry_of(reef_predictor *p, const reef_replay *replay, const step *s, size_t k) {
    size_t entry;
    reef_lines *index = &p->index[k];
    if (!reef_match_entry(index, s->match_hashes[k], REEF_MATCH_SHORTEST[k], &entry) ||
        !reef_replay_has(replay, REEF_TABLE_INDEX + k, entry / REEF_MATCH_ENTRIES))
        return NULL;
    return (uint32_t *)(void *)index->own + entry;
}

static reef_replay replay_of(const share *of, const step *s) {
    return (reef_replay){of->slices, s->at, of->number, of->of};
}

static void prefetch(reef_predictor *p, const share *of, const step *s) {
    const reef_replay replay = replay_of(of, s);
    reef_trees_replay_prefetch(&replay, p, s->hashes, s->trees, s->byte);
    for (size_t k = 0; k < REEF_MATCHES; k++) {
        const uint32_t *entry = entry_of(p, &replay, s, k);
        if (entry != NULL) __builtin_prefetch(entry, 1);
    }
}

// The bits that a contradiction made it learn at once, and then the others. See
// reef_predictor_update: these read all histories of a bit before one changes.
static void learn_bits(reef_predictor *p, uint32_t byte, uint32_t at_once) {
    p->bits = 256u >> (8 - at_once) | byte >> (8 - at_once);
    p->bit = at_once;
    if (at_once > 0)
        reef_trees_catch_up(p);
    else
        reef_trees_open(p);
    for (; p->bit < 8; p->bit++) {
        uint32_t bit = byte >> (7 - p->bit) & 1, depth = p->bit % 4;
        uint32_t node = 1u << depth | (p->bits & ((1u << depth) - 1));
        if (p->bit == 4) reef_trees_open_lower(p);
        for (size_t k = 0; k < p->tree_count; k++)
            p->histories[p->trees[k]] = p->nodes[p->trees[k]][node - 1];
        for (size_t k = 0; k < p->tree_count; k++) {
            size_t i = p->trees[k];
            p->nodes[i][node - 1] = p->table->next[p->histories[i]][bit];
        }
        p->bits = p->bits << 1 | bit;
    }
}

static void learn(reef_predictor *p, const share *of, const step *s) {
    const reef_replay replay = replay_of(of, s);
    p->replay = &replay;
    memcpy(p->hashes, s->hashes, sizeof(p->hashes));
    for (size_t i = 0; i < REEF_CONTEXTS; i++)
        p->state->met_again[i] = (s->met >> i & 1) != 0 ? 65535 : 0;
    reef_trees_replay_find(p, s->trees);
    p->expected_byte.trusted = false;
    if (s->trees != 0) learn_bits(p, s->byte, s->way);
    p->expected_byte.trusted = s->way == REEF_LOG_FORESEEN;
    reef_trees_replay_end_byte(p, s->byte, s->events, s->event_count);
    for (size_t k = 0; k < REEF_MATCHES; k++) {
        uint32_t *entry = entry_of(p, &replay, s, k);
        if (entry != NULL) *entry = (uint32_t)(s->at + 1);
    }
    p->replay = NULL;
}

static reef_status replay_all(reef_predictor *p, const share *s, reading *r, reef_error *err) {
    step steps[AHEAD];
    while (r->at < r->end && r->learned < p->learned_bytes) {
        size_t count = 0;
        for (; count < AHEAD && r->at < r->end && r->learned < p->learned_bytes; count++) {
            if (!read_step(r, &steps[count])) return fail_corrupt(err);
            prefetch(p, s, &steps[count]);
        }
        for (size_t i = 0; i < count; i++) learn(p, s, &steps[i]);
    }
    return r->at == r->end ? REEF_OK : fail_corrupt(err);
}

// ---- shares -------------------------------------------------------------------------------------

static reef_status replay_blocks(const share *s, reef_predictor *p, reading *r, reef_error *err) {
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < s->count; i++) {
        status = read_head(r, p, s->blocks[i].bytes, s->blocks[i].count, err);
        if (status == REEF_OK) status = replay_all(p, s, r, err);
    }
    return status;
}

static void *replay_share(void *context) {
    share *s = context;
    reading r = {.followers = calloc(1 << 16, sizeof(*r.followers))};
    // The tables are the memory's own. What learning changes beside them is as of now: it is changed
    // in a copy.
    reef_predictor *p = malloc(sizeof(*p));
    reef_mix_state *state = malloc(sizeof(*state));
    if (p == NULL || state == NULL || r.followers == NULL) {
        s->status = reef_fail(&s->error, REEF_ERR_NO_MEMORY, "no memory to replay a log");
    } else {
        memcpy(p, &s->memory->predictor, sizeof(*p));
        p->state = state;
        p->log = NULL;
        s->status = replay_blocks(s, p, &r, &s->error);
    }
    free(p);
    free(state);
    free(r.followers);
    return NULL;
}

reef_status reef_memory_replay(reef_memory *memory,
                               const uint64_t *const *slices,
                               const reef_log_block *blocks,
                               size_t count,
                               uint32_t threads,
                               reef_error *err) {
    share shares[REEF_REPLAY_THREADS_MAX];
    pthread_t others[REEF_REPLAY_THREADS_MAX];
    bool started[REEF_REPLAY_THREADS_MAX] = {false};
    assert(threads > 0 && threads <= REEF_REPLAY_THREADS_MAX);
    for (uint32_t i = 0; i < threads; i++)
        shares[i] = (share){memory, slices, blocks, count, i, threads, REEF_OK, {0}};
    for (uint32_t i = 1; i < threads; i++)
        started[i] = reef_thread_start(&others[i], replay_share, &shares[i]) == 0;
    // Also what a thread was not to be had for.
    for (uint32_t i = 0; i < threads; i++)
        if (!started[i]) replay_share(&shares[i]);
    for (uint32_t i = 1; i < threads; i++)
        if (started[i]) pthread_join(others[i], NULL);
    for (uint32_t i = 0; i < threads; i++)
        if (shares[i].status != REEF_OK)
            return reef_fail(err, shares[i].status, "%s", shares[i].error.message);
    return REEF_OK;
}

void reef_memory_tables(const reef_memory *memory, reef_memory_part *tables) {
    const reef_predictor *p = &memory->predictor;
    const reef_lines *lines[REEF_MEMORY_TABLES] = {&p->cells, &p->slots, &p->index[0],
                                                   &p->index[1]};
    for (size_t t = 0; t < REEF_MEMORY_TABLES; t++)
        tables[t] = (reef_memory_part){reef_memory_table_name(t), lines[t]->own,
                                       lines[t]->count * REEF_LINE_BYTES};
}
