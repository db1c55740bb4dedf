// A memory that learns a stream: its tables, and how they grow with it.
//
// It begins small. Whenever the stream has grown so that the next size stays below
// BYTES_A_BYTE times the bytes learned, and below the bound, a table doubles: cells first, then
// slots. So what a memory takes, and what it knows, depends on the stream alone. A wide memory,
// which has further contexts, takes more for a byte.
#include "memory_internal.h"

#include <inttypes.h>
#include <stdlib.h>

#define BYTES_A_BYTE 24
#define WIDE_BYTES_A_BYTE 96
#define GROWTH_EVERY 4096 // bytes of the stream from one look at the sizes to the next
#define INDEX_ENTRIES_A_LINE (REEF_LINE_BYTES / sizeof(uint32_t))
#define TEXT_FIRST (1u << 16)

// The mixers, and some more. Numbers and not sizes: growth is a function of the stream alone, on
// every machine. What a net's bytes need comes beside the bound.
#define EXPECTED_BYTES 797440
#define MIXER_BYTES (925576 + EXPECTED_BYTES)
#define WIDE_BYTES 261152 // beside them, of a wide memory

// Of the bound, for the text and for each index of matches.
#define TEXT_SHARE 16
#define INDEX_SHARE 16

bool reef_memory_is_wide(uint64_t bytes_max) {
    return bytes_max > REEF_MEMORY_BYTES_NARROW;
}

static uint64_t mixer_bytes(uint64_t bytes_max) {
    return MIXER_BYTES + (reef_memory_is_wide(bytes_max) ? WIDE_BYTES : 0);
}

static size_t lines_bytes(const reef_lines *lines) {
    return lines->count * REEF_LINE_BYTES;
}

static uint64_t bytes_of(const reef_memory *memory) {
    const reef_predictor *p = &memory->predictor;
    uint64_t bytes = mixer_bytes(memory->bytes_max) + lines_bytes(&p->cells) +
                     lines_bytes(&p->slots) + p->text.capacity;
    for (size_t k = 0; k < REEF_MATCHES; k++) bytes += lines_bytes(&p->index[k]);
    return bytes;
}

static uint32_t power_of_two_below(uint64_t x) {
    uint32_t power = 1;
    while (2ull * power <= x) power *= 2;
    return power;
}

// It doubles when it is full and another byte comes.
static uint32_t text_capacity(uint64_t bytes_max, uint64_t learned_bytes) {
    uint32_t bound = power_of_two_below(bytes_max / TEXT_SHARE), capacity = TEXT_FIRST;
    while (capacity < bound && capacity < learned_bytes) capacity *= 2;
    return capacity;
}

uint64_t reef_memory_text_bytes(const reef_memory_sizes *sizes) {
    uint64_t capacity = text_capacity(sizes->bytes_max, sizes->learned_bytes);
    return sizes->learned_bytes < capacity ? sizes->learned_bytes : capacity;
}

uint64_t reef_memory_sizes_bytes(const reef_memory_sizes *sizes) {
    uint64_t lines = (1ull << sizes->cell_lines_log2) + (1ull << sizes->slot_lines_log2);
    for (size_t k = 0; k < REEF_MATCHES; k++) lines += 1ull << sizes->index_lines_log2[k];
    return mixer_bytes(sizes->bytes_max) + lines * REEF_LINE_BYTES +
           text_capacity(sizes->bytes_max, sizes->learned_bytes);
}

static reef_status make_tables(reef_predictor *p, const reef_memory_sizes *sizes, reef_error *err) {
    p->learned_bytes = sizes->learned_bytes;
    p->cell_lines_log2 = sizes->cell_lines_log2;
    p->slot_lines_log2 = sizes->slot_lines_log2;
    reef_status status = reef_lines_init(&p->cells, 1ull << p->cell_lines_log2, err);
    if (status == REEF_OK) status = reef_lines_init(&p->slots, 1ull << p->slot_lines_log2, err);
    for (size_t k = 0; status == REEF_OK && k < REEF_MATCHES; k++)
        status = reef_lines_init(&p->index[k], 1ull << sizes->index_lines_log2[k], err);
    if (status == REEF_OK)
        status = reef_text_init(&p->text, text_capacity(sizes->bytes_max, sizes->learned_bytes),
                                power_of_two_below(sizes->bytes_max / TEXT_SHARE), err);
    if (status != REEF_OK) return status;
    uint64_t kept = sizes->learned_bytes;
    p->text.kept = kept < p->text.capacity ? (uint32_t)kept : p->text.capacity;
    p->text.end = (uint32_t)sizes->learned_bytes;
    p->state = malloc(sizeof(*p->state));
    if (p->state == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a memory's mixer");
    if (!reef_memory_is_wide(sizes->bytes_max)) return REEF_OK;
    p->wide = malloc(sizeof(*p->wide));
    if (p->wide == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a memory's further contexts");
    return REEF_OK;
}

reef_status reef_memory_make(reef_memory **out, const reef_memory_sizes *sizes, reef_error *err) {
    *out = NULL;
    reef_memory *memory = calloc(1, sizeof(*memory));
    if (memory == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a memory");
    memory->bytes_max = sizes->bytes_max;
    memory->version = REEF_MEMORY_VERSION;
    // Its pages are there once it is stored.
    memory->difference = calloc(1, sizeof(*memory->difference));
    reef_status status = memory->difference != NULL
                             ? make_tables(&memory->predictor, sizes, err)
                             : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a memory");
    if (status != REEF_OK) {
        reef_memory_free(memory);
        return status;
    }
    *out = memory;
    return REEF_OK;
}

reef_status reef_memory_new(reef_memory **out,
                            const reef_memory_options *options,
                            reef_error *err) {
    *out = NULL;
    uint64_t bytes_max =
        options != NULL && options->bytes_max > 0 ? options->bytes_max : REEF_MEMORY_BYTES_DEFAULT;
    if (bytes_max < REEF_MEMORY_BYTES_MIN || bytes_max > REEF_MEMORY_BYTES_MAX)
        return reef_fail(err, REEF_ERR_INVALID,
                         "a context memory takes %llu to %llu bytes, not %" PRIu64,
                         REEF_MEMORY_BYTES_MIN, REEF_MEMORY_BYTES_MAX, bytes_max);
    const reef_memory_sizes sizes = {
        .bytes_max = bytes_max,
        .cell_lines_log2 = REEF_CELL_LINES_MIN_LOG2,
        .slot_lines_log2 = REEF_SLOT_LINES_MIN_LOG2,
        .index_lines_log2 = {REEF_INDEX_LINES_MIN_LOG2, REEF_INDEX_LINES_MIN_LOG2},
    };
    reef_memory *memory = NULL;
    reef_status status = reef_memory_make(&memory, &sizes, err);
    if (status != REEF_OK) return status;
    reef_mix_state_init(memory->predictor.state);
    if (memory->predictor.wide != NULL) reef_wide_state_init(memory->predictor.wide);
    reef_predictor_begin(&memory->predictor);
    *out = memory;
    return REEF_OK;
}

void reef_memory_free(reef_memory *memory) {
    if (memory == NULL) return;
    reef_predictor *p = &memory->predictor;
    reef_lines_release(&p->cells);
    reef_lines_release(&p->slots);
    for (size_t k = 0; k < REEF_MATCHES; k++) reef_lines_release(&p->index[k]);
    reef_text_release(&p->text);
    free(p->state);
    free(p->wide);
    free(p->net);
    free(memory->difference);
    free(memory);
}

// ---- growth -------------------------------------------------------------------------------------

static reef_status double_cells(reef_predictor *p, reef_error *err) {
    reef_lines larger;
    reef_status status = reef_lines_init(&larger, 2 * p->cells.count, err);
    if (status != REEF_OK) return status;
    reef_cells_double(&larger, &p->cells, p->table);
    reef_lines_release(&p->cells);
    p->cells = larger;
    p->cell_lines_log2++;
    return REEF_OK;
}

static reef_status double_slots(reef_predictor *p, reef_error *err) {
    reef_lines larger;
    reef_status status = reef_lines_init(&larger, 2 * p->slots.count, err);
    if (status != REEF_OK) return status;
    reef_slots_double(&larger, &p->slots, &p->cells, p->table);
    reef_lines_release(&p->slots);
    p->slots = larger;
    p->slot_lines_log2++;
    return REEF_OK;
}

static reef_status double_index(reef_predictor *p, size_t k, reef_error *err) {
    reef_lines larger, *old = &p->index[k];
    reef_status status = reef_lines_init(&larger, 2 * old->count, err);
    if (status != REEF_OK) return status;
    reef_match_index_double(&larger, old);
    reef_lines_release(old);
    *old = larger;
    return REEF_OK;
}

// May a table of so many bytes double?
static bool may_double(const reef_memory *memory, uint64_t bytes) {
    const reef_predictor *p = &memory->predictor;
    uint64_t larger = bytes_of(memory) + bytes;
    uint64_t bytes_a_byte = p->wide != NULL ? WIDE_BYTES_A_BYTE : BYTES_A_BYTE;
    // The text doubles by itself, whenever it is full: that must fit as well.
    if (p->text.capacity < p->text.bound) larger += p->text.capacity;
    // Tables begin to grow early, as if expected bytes took nothing: that was worth 0.01 bits.
    return larger <= memory->bytes_max &&
           larger <= bytes_a_byte * p->learned_bytes + EXPECTED_BYTES;
}

static reef_status grow(reef_memory *memory, reef_error *err) {
    reef_predictor *p = &memory->predictor;
    reef_status status = REEF_OK;
    for (size_t k = 0; status == REEF_OK && k < REEF_MATCHES; k++) {
        // An entry for every fourth byte: matches are long, and any of their bytes finds them.
        const reef_lines *index = &p->index[k];
        if (index->count * INDEX_ENTRIES_A_LINE * 4 <= p->learned_bytes &&
            2 * lines_bytes(index) <= memory->bytes_max / INDEX_SHARE &&
            may_double(memory, lines_bytes(index)))
            status = double_index(p, k, err);
    }
    while (status == REEF_OK) {
        bool cells = lines_bytes(&p->cells) <= lines_bytes(&p->slots);
        const reef_lines *next = cells ? &p->cells : &p->slots;
        if (!may_double(memory, lines_bytes(next))) break;
        if (cells && p->cell_lines_log2 == REEF_CELL_LINES_MAX_LOG2) break;
        status = cells ? double_cells(p, err) : double_slots(p, err);
    }
    return status;
}

// ---- learning -----------------------------------------------------------------------------------

reef_status reef_memory_learn(reef_memory *memory,
                              const uint8_t *bytes,
                              size_t count,
                              const reef_net_prediction *net,
                              float *bits,
                              reef_error *err) {
    reef_predictor *p = &memory->predictor;
    for (size_t i = 0; i < count; i++) {
        reef_status status = REEF_OK;
        // Decided before the byte, so that a failure leaves everything as it was.
        if (p->learned_bytes % GROWTH_EVERY == 0) status = grow(memory, err);
        if (status == REEF_OK)
            status = reef_predictor_code(p, bytes[i], net == NULL ? NULL : net + i,
                                         reef_inputs_sampled(p) ? &memory->inputs : NULL,
                                         bits == NULL ? NULL : bits + i, err);
        if (status != REEF_OK) return status;
    }
    return REEF_OK;
}

// ---- what is known of it ------------------------------------------------------------------------

uint64_t reef_memory_learned_bytes(const reef_memory *memory) {
    return memory->predictor.learned_bytes;
}

size_t reef_memory_text(const reef_memory *memory, uint8_t *out, size_t count) {
    const reef_text_ring *text = &memory->predictor.text;
    if (out == NULL) return text->kept;
    if (count > text->kept) count = text->kept;
    for (size_t i = 0; i < count; i++) {
        uint32_t position = text->end - (uint32_t)(count - i) - text->begin;
        out[i] = text->own[position & (text->capacity - 1)];
    }
    return count;
}

uint64_t reef_memory_cells_used(const uint8_t *lines, size_t count) {
    uint64_t used = 0;
    for (size_t at = 0; at < count; at++) {
        const reef_cell_line *line =
            (const reef_cell_line *)(const void *)(lines + at * REEF_LINE_BYTES);
        for (size_t i = 0; i < REEF_CELLS_A_LINE; i++)
            used += line->history[i] != REEF_HISTORY_NONE;
    }
    return used;
}

uint64_t reef_memory_trees_used(const uint8_t *lines, size_t count) {
    const reef_slot *slots = (const reef_slot *)(const void *)lines;
    uint64_t used = 0;
    for (size_t i = 0; i < count * REEF_SLOTS_A_LINE; i++) used += slots[i].check != 0;
    return used;
}

void reef_memory_read_stats(const reef_memory *memory, reef_memory_stats *out) {
    const reef_predictor *p = &memory->predictor;
    *out = (reef_memory_stats){
        .learned_bytes = p->learned_bytes,
        .bytes = bytes_of(memory) + (p->net != NULL ? reef_net_state_bytes(p->wide != NULL) : 0),
        .bytes_max = memory->bytes_max,
        .cells = p->cells.count * REEF_CELLS_A_LINE,
        .trees = p->slots.count * REEF_SLOTS_A_LINE,
        .cells_used = reef_memory_cells_used(p->cells.own, p->cells.count),
        .trees_used = reef_memory_trees_used(p->slots.own, p->slots.count),
        .text_bytes = p->text.kept,
    };
}

void reef_memory_inputs(const reef_memory *memory, double *shares, double *hits) {
    reef_inputs_read(&memory->inputs, shares, hits);
}

double reef_memory_lines_a_byte(const reef_memory *memory) {
    const reef_input_counts *counts = &memory->inputs;
    return counts->bytes > 0 ? (double)counts->lines / (double)counts->bytes : 0.0;
}

// Two inputs a context and a match; people see one.
size_t reef_memory_input_count(void) {
    return REEF_INPUT_NAMES;
}

const char *reef_memory_input_name(size_t input) {
    if (input < REEF_CONTEXTS) return reef_context_name(input);
    if (input >= REEF_INPUT_WIDE) return reef_context_name(REEF_CONTEXTS + input - REEF_INPUT_WIDE);
    if (input == REEF_PREDICTION_ORDER_0) return "order 0";
    if (input == REEF_INPUT_NET) return "net";
    if (input == REEF_PREDICTION_EXPECTED) return "expected byte";
    return input == REEF_PREDICTION_MATCH ? "match" : "long match";
}
