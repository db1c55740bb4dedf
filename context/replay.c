// See reef_replay.h: tables of different times are brought up to the present.
//
// Bytes are taken a few at a time: first the hashes of all of them, whose lines are asked for, and
// then their lines, which are there by then.
#include "memory_internal.h"
#include "reef_byte_order.h"
#include "reef_kernels.h"
#include "reef_replay.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static_assert(REEF_MEMORY_TABLES == REEF_TABLES, "all tables have slices");
static_assert(REEF_CONTEXTS <= 24, "contexts have a bit each in three bytes");

#define AHEAD 16 // bytes
#define PARTS_MAX 8

// One byte, as the log has it.
typedef struct step {
    uint64_t hashes[REEF_CONTEXTS];
    uint64_t match_hashes[REEF_MATCHES];
    uint64_t at;                // learned before it
    uint32_t trees, met, cells; // cells: contexts whose line is to learn it
    uint8_t byte, way;
    size_t event_count;
    reef_log_event events[REEF_CONTEXTS];
} step;

typedef struct reading {
    const reef_text *text; // all of it, as of now
    reef_text past;        // what had been read of it by then
    reef_position position;
    uint64_t match_hashes[REEF_MATCHES];
    uint32_t trees, met;
    uint16_t *followers;
    const uint8_t *at, *end;
    uint64_t learned;
} reading;

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
    if (r->learned > p->learned_bytes || since > p->text.end - p->text.begin)
        return fail_corrupt(err);
    r->text = &p->text;
    r->past = p->text;
    r->past.end -= since;
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
    if (!reef_match_entry(index, s->match_hashes[k], REEF_MATCH_SHORTEST[k], s->at + 1, &entry) ||
        !reef_replay_has(replay, REEF_TABLE_INDEX + k, entry / REEF_MATCH_ENTRIES))
        return NULL;
    return (uint32_t *)(void *)index->own + entry;
}

static void prefetch(reef_predictor *p, const uint64_t *const *slices, step *s) {
    const reef_replay replay = {slices, s->at};
    s->cells = reef_trees_replay_prefetch(&replay, p, s->hashes, s->trees, s->byte);
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

static void learn(reef_predictor *p, const uint64_t *const *slices, const step *s) {
    const reef_replay replay = {slices, s->at};
    p->replay = &replay;
    memcpy(p->hashes, s->hashes, sizeof(p->hashes));
    for (size_t i = 0; i < REEF_CONTEXTS; i++)
        p->state->met_again[i] = (s->met >> i & 1) != 0 ? 65535 : 0;
    reef_trees_replay_find(p, s->cells, s->trees);
    p->expected_byte.trusted = false;
    if (s->trees != 0) learn_bits(p, s->byte, s->way);
    p->expected_byte.trusted = s->way == REEF_LOG_FORESEEN;
    reef_trees_replay_end_byte(p, s->byte, s->cells, s->events, s->event_count);
    for (size_t k = 0; k < REEF_MATCHES; k++) {
        uint32_t *entry = entry_of(p, &replay, s, k);
        if (entry != NULL) *entry = (uint32_t)(s->at + 1);
    }
    p->replay = NULL;
}

static reef_status replay_all(reef_predictor *p,
                              const uint64_t *const *slices,
                              reading *r,
                              reef_error *err) {
    static _Thread_local step steps[AHEAD];
    while (r->at < r->end && r->learned < p->learned_bytes) {
        size_t count = 0;
        for (; count < AHEAD && r->at < r->end && r->learned < p->learned_bytes; count++) {
            if (!read_step(r, &steps[count])) return fail_corrupt(err);
            prefetch(p, slices, &steps[count]);
        }
        for (size_t i = 0; i < count; i++) learn(p, slices, &steps[i]);
    }
    return r->at == r->end ? REEF_OK : fail_corrupt(err);
}

// ---- parts --------------------------------------------------------------------------------------

// What one thread does: of all blocks the slices that are its own, for which it reads all of the
// log.
typedef struct part {
    const reef_log_block *blocks;
    size_t count;
    // What learning changes beside the tables is as of now: it is changed in copies.
    reef_predictor predictor;
    reef_mix_state state;
    uint16_t followers[1 << 16];
    uint64_t *slices[REEF_MEMORY_TABLES]; // owned: as in reef_memory_replay, of others never
    reef_status status;
    reef_error err;
} part;

static void free_parts(part **parts, size_t count) {
    for (size_t i = 0; i < count && parts[i] != NULL; i++) {
        for (size_t t = 0; t < REEF_MEMORY_TABLES; t++) free(parts[i]->slices[t]);
        free(parts[i]);
    }
}

// Part `number` of `of`: each slice belongs to one.
static part *new_part(const reef_memory *memory,
                      const uint64_t *const *slices,
                      size_t number,
                      size_t of) {
    reef_memory_part tables[REEF_MEMORY_TABLES];
    part *p = calloc(1, sizeof(*p));
    bool whole = p != NULL;
    reef_memory_tables(memory, tables);
    for (size_t t = 0; whole && t < REEF_MEMORY_TABLES; t++) {
        size_t count = (tables[t].bytes + REEF_SLICE_BYTES - 1) / REEF_SLICE_BYTES;
        p->slices[t] = malloc(count * sizeof(*p->slices[t]));
        whole = p->slices[t] != NULL;
        for (size_t i = 0; whole && i < count; i++)
            p->slices[t][i] = i % of == number ? slices[t][i] : UINT64_MAX;
    }
    if (!whole) {
        free_parts(&p, 1);
        return NULL;
    }
    p->predictor = memory->predictor;
    p->predictor.state = &p->state;
    p->predictor.log = NULL;
    return p;
}

static void replay_part(void *context, size_t number) {
    part *p = ((part **)context)[number];
    reading r = {.followers = p->followers};
    for (size_t i = 0; p->status == REEF_OK && i < p->count; i++) {
        const reef_log_block *block = &p->blocks[i];
        memset(p->followers, 0, sizeof(p->followers));
        p->status = read_head(&r, &p->predictor, block->bytes, block->count, &p->err);
        if (p->status == REEF_OK)
            p->status = replay_all(&p->predictor, (const uint64_t *const *)p->slices, &r, &p->err);
    }
}

reef_status reef_memory_replay(reef_memory *memory,
                               const uint64_t *const *slices,
                               const reef_log_block *blocks,
                               size_t count,
                               reef_thread_pool *workers,
                               reef_error *err) {
    part *parts[PARTS_MAX] = {NULL};
    size_t threads = workers != NULL ? reef_thread_pool_count(workers) : 1;
    size_t part_count = threads < PARTS_MAX ? threads : PARTS_MAX;
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < part_count; i++) {
        parts[i] = new_part(memory, slices, i, part_count);
        if (parts[i] == NULL)
            status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to replay a log");
        else
            parts[i]->blocks = blocks, parts[i]->count = count;
    }
    if (status == REEF_OK) reef_thread_pool_run(workers, part_count, replay_part, parts);
    // All of them read the same log.
    if (status == REEF_OK && parts[0]->status != REEF_OK)
        status = reef_fail(err, parts[0]->status, "%s", parts[0]->err.message);
    free_parts(parts, part_count);
    return status;
}

void reef_memory_tables(const reef_memory *memory, reef_memory_part *tables) {
    const reef_predictor *p = &memory->predictor;
    const reef_lines *lines[REEF_MEMORY_TABLES] = {&p->cells, &p->slots, &p->index[0],
                                                   &p->index[1]};
    for (size_t t = 0; t < REEF_MEMORY_TABLES; t++)
        tables[t] = (reef_memory_part){reef_memory_table_name(t), lines[t]->own,
                                       lines[t]->count * REEF_LINE_BYTES};
}
