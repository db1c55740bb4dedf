// A memory that learns a stream: its tables, and how they grow with it. How large they become, and
// when, is in memory_sizes.c.
#include "memory_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define GROWTH_EVERY 4096 // bytes of the stream from one look at the sizes to the next

static reef_lines *table_of(reef_predictor *p, reef_memory_table table) {
    if (table == REEF_TABLE_CELLS) return &p->cells;
    return table == REEF_TABLE_TREES ? &p->slots : &p->index[table - REEF_TABLE_INDEX];
}

reef_memory_sizes reef_memory_sizes_of(const reef_memory *memory) {
    const reef_predictor *p = &memory->predictor;
    reef_memory_sizes sizes = {
        .bytes_max = memory->bytes_max,
        .text_max = p->text.bound,
        .learned_bytes = p->learned_bytes,
        .lines_log2 = {p->cell_lines_log2, p->slot_lines_log2},
    };
    for (size_t k = 0; k < REEF_MATCHES; k++)
        sizes.lines_log2[REEF_TABLE_INDEX + k] = (uint32_t)__builtin_ctzll(p->index[k].count);
    return sizes;
}

static reef_status make_tables(reef_predictor *p, const reef_memory_sizes *sizes, reef_error *err) {
    reef_text_init(&p->text, sizes->text_max);
    reef_status status = reef_text_announce(&p->text, sizes->learned_bytes, err);
    for (reef_memory_table t = 0; status == REEF_OK && t < REEF_TABLES; t++)
        status = reef_lines_init(table_of(p, t), (size_t)1 << sizes->lines_log2[t], err);
    if (status != REEF_OK) return status;
    p->learned_bytes = sizes->learned_bytes;
    p->cell_lines_log2 = sizes->lines_log2[REEF_TABLE_CELLS];
    p->slot_lines_log2 = sizes->lines_log2[REEF_TABLE_TREES];
    p->state = malloc(sizeof(*p->state));
    if (p->state == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a memory's mixer");
    return REEF_OK;
}

reef_status reef_memory_make(reef_memory **out, const reef_memory_sizes *sizes, reef_error *err) {
    *out = NULL;
    reef_memory *memory = calloc(1, sizeof(*memory));
    if (memory == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a memory");
    memory->bytes_max = sizes->bytes_max;
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
    const reef_memory_options none = {0}, *given = options != NULL ? options : &none;
    uint64_t bytes_max = given->bytes_max > 0 ? given->bytes_max : REEF_MEMORY_BYTES_DEFAULT;
    if (bytes_max < REEF_MEMORY_BYTES_MIN || bytes_max > REEF_MEMORY_BYTES_MAX)
        return reef_fail(err, REEF_ERR_INVALID,
                         "a context memory takes %llu to %llu bytes, not %" PRIu64,
                         REEF_MEMORY_BYTES_MIN, REEF_MEMORY_BYTES_MAX, bytes_max);
    uint64_t text_max = given->text_max > 0 ? given->text_max : reef_memory_text_max(bytes_max);
    const reef_memory_sizes sizes = reef_memory_sizes_first(bytes_max, text_max);
    if (!reef_memory_sizes_are_possible(&sizes))
        return reef_fail(err, REEF_ERR_INVALID,
                         "a context memory keeps blocks of %llu bytes of its text, from %llu to "
                         "%llu bytes, not %" PRIu64,
                         REEF_TEXT_BLOCK_BYTES, REEF_MEMORY_TEXT_MIN, REEF_MEMORY_TEXT_MAX,
                         text_max);
    reef_memory *memory = NULL;
    reef_status status = reef_memory_make(&memory, &sizes, err);
    if (status != REEF_OK) return status;
    reef_mix_state_init(memory->predictor.state);
    reef_predictor_begin(&memory->predictor);
    *out = memory;
    return REEF_OK;
}

reef_status reef_memory_new_with_mixer(reef_memory **out, const reef_memory *of, reef_error *err) {
    reef_status status =
        reef_memory_new(out, &(reef_memory_options){.bytes_max = of->bytes_max}, err);
    if (status != REEF_OK) return status;
    reef_mix_state *to = (*out)->predictor.state;
    const reef_mix_state *from = of->predictor.state;
    memcpy(to->chance, from->chance, sizeof(to->chance));
    memcpy(to->order_0_chance, from->order_0_chance, sizeof(to->order_0_chance));
    memcpy(to->match, from->match, sizeof(to->match));
    memcpy(to->weights, from->weights, sizeof(to->weights));
    memcpy(to->last_weights, from->last_weights, sizeof(to->last_weights));
    memcpy(to->sse, from->sse, sizeof(to->sse));
    to->expected = from->expected;
    return REEF_OK;
}

void reef_memory_free(reef_memory *memory) {
    if (memory == NULL) return;
    reef_predictor *p = &memory->predictor;
    for (reef_memory_table t = 0; t < REEF_TABLES; t++) reef_lines_release(table_of(p, t));
    reef_text_release(&p->text);
    free(p->state);
    free(p->net);
    reef_learn_log_free(p->log);
    free(memory->difference);
    free(memory);
}

// ---- growth -------------------------------------------------------------------------------------

static reef_status double_table(reef_predictor *p, reef_memory_table table, reef_error *err) {
    reef_lines larger, *old = table_of(p, table);
    reef_status status = reef_lines_init(&larger, 2 * old->count, err);
    if (status != REEF_OK) return status;
    if (table == REEF_TABLE_CELLS)
        reef_cells_double(&larger, old, p->table);
    else if (table == REEF_TABLE_TREES)
        reef_slots_double(&larger, old, &p->cells, p->table);
    else
        reef_match_index_double(&larger, old);
    reef_lines_release(old);
    *old = larger;
    p->cell_lines_log2 += table == REEF_TABLE_CELLS;
    p->slot_lines_log2 += table == REEF_TABLE_TREES;
    return REEF_OK;
}

static reef_status grow(reef_memory *memory, reef_error *err) {
    reef_status status = REEF_OK;
    while (status == REEF_OK) {
        reef_memory_sizes sizes = reef_memory_sizes_of(memory);
        reef_memory_table next = reef_memory_sizes_grow(&sizes);
        if (next == REEF_TABLES) break;
        status = double_table(&memory->predictor, next, err);
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
        if (status == REEF_OK && p->log != NULL) status = reef_learn_log_reserve(p->log, p, err);
        if (status == REEF_OK)
            status = reef_predictor_code(p, bytes[i], net == NULL ? NULL : net + i,
                                         reef_inputs_sampled(p) ? &memory->inputs : NULL,
                                         bits == NULL ? NULL : bits + i, err);
        if (status != REEF_OK) return status;
    }
    return REEF_OK;
}

// ---- what was decided ---------------------------------------------------------------------------

reef_status reef_memory_log(reef_memory *memory, reef_error *err) {
    reef_memory_log_end(memory);
    memory->predictor.log = calloc(1, sizeof(*memory->predictor.log));
    if (memory->predictor.log == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a log of what is learned");
    return reef_learn_log_reserve(memory->predictor.log, &memory->predictor, err);
}

void reef_memory_log_end(reef_memory *memory) {
    reef_learn_log_free(memory->predictor.log);
    memory->predictor.log = NULL;
}

bool reef_memory_is_logged(const reef_memory *memory) {
    return memory->predictor.log != NULL;
}

const reef_log_block *reef_memory_log_blocks(const reef_memory *memory, size_t *count) {
    *count = memory->predictor.log->count;
    return memory->predictor.log->blocks;
}

void reef_memory_log_drop(reef_memory *memory) {
    reef_learn_log *log = memory->predictor.log;
    for (size_t i = 0; i + 1 < log->count; i++) free(log->blocks[i].bytes);
    log->blocks[0] = log->blocks[log->count - 1];
    log->count = 1;
}

// ---- what is known of it ------------------------------------------------------------------------

uint64_t reef_memory_learned_bytes(const reef_memory *memory) {
    return memory->predictor.learned_bytes;
}

size_t reef_memory_text(const reef_memory *memory, uint8_t *out, size_t count) {
    const reef_text *text = &memory->predictor.text;
    uint64_t kept = text->end - text->begin;
    if (out == NULL) return kept;
    if (count > kept) count = kept;
    for (size_t done = 0; done < count;) {
        uint64_t position = text->end - (count - done),
                 left = REEF_TEXT_BLOCK_BYTES - position % REEF_TEXT_BLOCK_BYTES;
        size_t size = left < count - done ? left : count - done;
        memcpy(out + done, reef_text_find(text, position), size);
        done += size;
    }
    return count;
}

const uint8_t *reef_memory_text_block(const reef_memory *memory,
                                      size_t block,
                                      const uint8_t **name) {
    const reef_text *text = &memory->predictor.text;
    if (block >= reef_text_full(text)) return NULL;
    *name = text->names + block * REEF_TEXT_NAME_BYTES;
    return text->blocks[block].bytes;
}

void reef_memory_text_lend(reef_memory *memory, size_t block, const uint8_t *bytes) {
    reef_text_lend(&memory->predictor.text, block, bytes);
}

bool reef_memory_text_is_lent(const reef_memory *memory, size_t block) {
    return memory->predictor.text.blocks[block].own == NULL;
}

reef_status reef_memory_text_copy(reef_memory *memory, reef_error *err) {
    reef_text *text = &memory->predictor.text;
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < reef_text_full(text); i++)
        if (text->blocks[i].own == NULL)
            status = reef_text_copy(text, i, text->blocks[i].bytes, err);
    return status;
}

uint64_t reef_memory_cells_used(const uint8_t *lines, size_t count) {
    uint64_t used = 0;
    for (size_t at = 0; at < count; at++) {
        const reef_cell_line *line =
            (const reef_cell_line *)(const void *)(lines + at * REEF_LINE_BYTES);
        for (size_t i = 0; i < REEF_CELLS_A_LINE; i++) used += line->check[i] != 0;
    }
    return used;
}

uint64_t reef_memory_trees_used(const uint8_t *lines, size_t count) {
    const reef_slot *slots = (const reef_slot *)(const void *)lines;
    uint64_t used = 0;
    for (size_t i = 0; i < count * REEF_SLOTS_A_LINE; i++) used += slots[i].check != 0;
    return used;
}

uint64_t reef_memory_bytes_max(const reef_memory *memory) {
    return memory->bytes_max;
}

// Without its text.
static uint64_t fixed_bytes(const reef_memory *memory) {
    const reef_predictor *p = &memory->predictor;
    const reef_memory_sizes sizes = reef_memory_sizes_of(memory);
    return reef_memory_sizes_bytes(&sizes) + sizeof(*p->state) +
           (p->net != NULL ? sizeof(*p->net) : 0);
}

uint64_t reef_memory_bytes(const reef_memory *memory) {
    return fixed_bytes(memory) + reef_text_bytes(&memory->predictor.text);
}

void reef_memory_read_stats(const reef_memory *memory, reef_memory_stats *out) {
    const reef_predictor *p = &memory->predictor;
    *out = (reef_memory_stats){
        .learned_bytes = p->learned_bytes,
        .bytes = fixed_bytes(memory),
        .bytes_max = memory->bytes_max,
        .cells = p->cells.count * REEF_CELLS_A_LINE,
        .trees = p->slots.count * REEF_SLOTS_A_LINE,
        .cells_used = reef_memory_cells_used(p->cells.own, p->cells.count),
        .trees_used = reef_memory_trees_used(p->slots.own, p->slots.count),
        .text_bytes = p->text.end - p->text.begin,
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
    if (input == REEF_PREDICTION_ORDER_0) return "order 0";
    if (input == REEF_INPUT_NET) return "net";
    if (input == REEF_PREDICTION_EXPECTED) return "expected byte";
    return input == REEF_PREDICTION_MATCH ? "match" : "long match";
}
