// A memory as a few arrays of bytes and the blocks of its text, and a memory from them.
//
// Tables, text and mixers are stored as they lie in memory, little-endian; all else that lives
// between two bytes is in the header. Contexts of the next byte are computed again.
//
//   header   offset  size
//                 0     4  "RMEM"
//                 4     4  version: 7
//                 8     8  bytes_max
//                16     8  learned bytes
//                24    16  log2 of the lines of cells, of trees, and of each index of matches
//                40     4  bytes of the part "mixer"
//                44     4  bytes of the part "net"; 0: no net has spoken
//                48     8  bound of the text
//                56     8  the last eight bytes, the newest lowest
//                64    16  positions of the first bytes of the line and of the line above
//                80    52  what position.h says, 13 words: word, has_letter, words[2], first_word,
//                          gap, folded, shape, long_shape, template, field_hash, last_field_hash,
//                          field
//               132     4  zero
//               136    80  two matches of 40 bytes: at, found, hash (8 each), length, misses,
//                          follows, zero (4 each)
#include "memory_internal.h"

#include "reef_byte_order.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "parts are little-endian");
// No padding: every byte of a part is written.
static_assert(sizeof(reef_mix_state) ==
                  4 * 256 * (REEF_CONTEXTS + 1) + 4 * REEF_MATCHES * REEF_MATCH_STATES + 256 +
                      2 * REEF_WEIGHT_SETS * REEF_INPUTS +
                      4 * 256 * REEF_MATCH_CLASSES * REEF_SETS +
                      4 * REEF_SSE_STEPS * (1 << REEF_SSE_LOG2) + 2 * REEF_CONTEXTS + (2 << 16) +
                      sizeof(reef_expected_state),
              "the mixer has no padding");
static_assert(sizeof(reef_expected_state) == 4 * REEF_CONTEXTS * REEF_EXPECTED_STATES +
                                                 8 * REEF_MATCHES * REEF_MATCH_STATES +
                                                 2 * REEF_EXPECTED_WEIGHT_SETS * REEF_INPUTS +
                                                 4 * REEF_EXPECTED_LAST * REEF_EXPECTED_SETS +
                                                 4 * REEF_SSE_STEPS * (1 << REEF_SSE_LOG2) +
                                                 4 * 8 * 32 + 4 * 8 * REEF_DIVERGENCES,
              "the state of expected bytes has no padding");
static_assert(sizeof(reef_net_state) == 8 + sizeof(((reef_net_state *)0)->chance) +
                                            UINT64_C(2) * REEF_NET_WEIGHT_SETS * REEF_INPUTS +
                                            UINT64_C(4) * 256 * (REEF_NET_SETS + 1) +
                                            UINT64_C(4) * REEF_SSE_STEPS * (1 << REEF_SSE_LOG2),
              "the net's state has no padding");

#define MAGIC 0x4D454D52u // "RMEM"

enum {
    PART_HEADER,
    PART_TEXT,
    PART_TEXT_BLOCKS,
    PART_CELLS,
    PART_TREES,
    PART_INDEX,
    PART_MIXER = PART_INDEX + REEF_MATCHES,
    PART_NET,
    PARTS,
};

static const char *const NAMES[PARTS] = {
    [PART_HEADER] = "header",
    [PART_TEXT] = "text",
    [PART_TEXT_BLOCKS] = REEF_TEXT_BLOCKS_NAME,
    [PART_CELLS] = "cells",
    [PART_TREES] = "trees",
    [PART_INDEX] = "index",
    [PART_INDEX + 1] = "long index",
    [PART_MIXER] = "mixer",
    [PART_NET] = "net",
};

// ---- the header ---------------------------------------------------------------------------------

static uint8_t *put32(uint8_t *at, uint32_t value) {
    reef_put_le32(at, value);
    return at + 4;
}

static uint8_t *put64(uint8_t *at, uint64_t value) {
    reef_put_le64(at, value);
    return at + 8;
}

static uint32_t net_bytes(const reef_predictor *p) {
    return p->net != NULL ? (uint32_t)sizeof(*p->net) : 0;
}

// Reading and writing walk the same list.
void reef_position_words(reef_position *position, uint32_t *words[REEF_POSITION_WORDS]) {
    uint32_t *const list[REEF_POSITION_WORDS] = {
        &position->word,       NULL, // has_letter
        &position->words[0],   &position->words[1],
        &position->first_word, &position->gap,
        &position->folded,     &position->shape,
        &position->long_shape, &position->template,
        &position->field_hash, &position->last_field_hash,
        &position->field,
    };
    memcpy(words, list, sizeof(list));
}

// All that is written, in the order of the table above.
static void write_header(reef_memory *memory) {
    reef_predictor *p = &memory->predictor;
    const reef_memory_sizes sizes = reef_memory_sizes_of(memory);
    uint8_t *at = memory->header;
    uint32_t *words[REEF_POSITION_WORDS];
    at = put32(at, MAGIC);
    at = put32(at, REEF_MEMORY_VERSION);
    at = put64(at, sizes.bytes_max);
    at = put64(at, sizes.learned_bytes);
    for (size_t t = 0; t < REEF_TABLES; t++) at = put32(at, sizes.lines_log2[t]);
    at = put32(at, (uint32_t)sizeof(*p->state));
    at = put32(at, net_bytes(p));
    at = put64(at, sizes.text_max);
    at = put64(at, p->position.bytes);
    at = put64(at, p->position.line);
    at = put64(at, p->position.line_above);
    reef_position_words(&p->position, words);
    for (size_t i = 0; i < REEF_POSITION_WORDS; i++)
        at = put32(at, words[i] != NULL ? *words[i] : p->position.has_letter);
    at = put32(at, 0);
    for (size_t k = 0; k < REEF_MATCHES; k++) {
        const reef_match *match = &p->matches[k];
        at = put64(at, match->at);
        at = put64(at, match->found);
        at = put64(at, match->hash);
        at = put32(at, match->length);
        at = put32(at, match->misses);
        at = put32(at, match->follows);
        at = put32(at, 0);
    }
    assert(at == memory->header + REEF_MEMORY_HEADER_BYTES);
}

typedef struct header {
    reef_memory_sizes sizes;
    reef_position position;
    reef_match matches[REEF_MATCHES];
    uint32_t mixer_bytes, net_bytes;
} header;

static uint32_t get32(const uint8_t **at) {
    uint32_t value = reef_get_le32(*at);
    *at += 4;
    return value;
}

static uint64_t get64(const uint8_t **at) {
    uint64_t value = reef_get_le64(*at);
    *at += 8;
    return value;
}

static reef_status fail_corrupt(size_t part, const char *what, reef_error *err) {
    return reef_fail(err, REEF_ERR_CORRUPT, "part %s of a memory: %s", NAMES[part], what);
}

// `zeros` collects what must be zero or one, so that each bit of a header means something.
static bool get_flag(const uint8_t **at, uint32_t *zeros) {
    uint32_t value = get32(at);
    *zeros |= value & ~1u;
    return value & 1;
}

static void get_position(const uint8_t **at, header *h, uint32_t *zeros) {
    uint32_t *words[REEF_POSITION_WORDS];
    h->position.bytes = get64(at);
    h->position.line = get64(at);
    h->position.line_above = get64(at);
    reef_position_words(&h->position, words);
    for (size_t i = 0; i < REEF_POSITION_WORDS; i++)
        if (words[i] != NULL)
            *words[i] = get32(at);
        else
            h->position.has_letter = get_flag(at, zeros);
    *zeros |= get32(at);
}

static void get_matches(const uint8_t **at, reef_match *matches, uint32_t *zeros) {
    for (size_t k = 0; k < REEF_MATCHES; k++) {
        reef_match *match = &matches[k];
        match->at = get64(at);
        match->found = get64(at);
        match->hash = get64(at);
        match->length = get32(at);
        match->misses = get32(at);
        match->follows = get_flag(at, zeros);
        *zeros |= get32(at);
    }
}

static reef_status check_values(const header *h, reef_error *err) {
    if (!reef_memory_sizes_are_possible(&h->sizes))
        return fail_corrupt(PART_HEADER, "sizes outside their bounds", err);
    if (h->mixer_bytes != sizeof(reef_mix_state) ||
        (h->net_bytes != 0 && h->net_bytes != sizeof(reef_net_state)))
        return fail_corrupt(PART_HEADER, "a mixer of another size", err);
    const uint64_t end = h->sizes.learned_bytes;
    if (h->position.line > end || h->position.line_above > h->position.line)
        return fail_corrupt(PART_HEADER, "a line that cannot be", err);
    for (size_t k = 0; k < REEF_MATCHES; k++)
        if (h->matches[k].length > REEF_MATCH_LENGTH_MAX ||
            h->matches[k].misses > REEF_MATCH_MISSES + 1)
            return fail_corrupt(PART_HEADER, "a match that cannot be", err);
    return REEF_OK;
}

static reef_status read_header(const uint8_t *bytes, header *h, reef_error *err) {
    const uint8_t *at = bytes;
    uint32_t zeros = 0;
    memset(h, 0, sizeof(*h));
    if (get32(&at) != MAGIC) return fail_corrupt(PART_HEADER, "not one of a memory", err);
    uint32_t version = get32(&at);
    if (version != REEF_MEMORY_VERSION)
        return reef_fail(err, REEF_ERR_VERSION,
                         "part header of a memory: version %" PRIu32 ", where %d is known", version,
                         REEF_MEMORY_VERSION);
    // All fields first, checks after: check_values compares fields with each other.
    h->sizes.bytes_max = get64(&at);
    h->sizes.learned_bytes = get64(&at);
    for (size_t t = 0; t < REEF_TABLES; t++) h->sizes.lines_log2[t] = get32(&at);
    h->mixer_bytes = get32(&at);
    h->net_bytes = get32(&at);
    h->sizes.text_max = get64(&at);
    get_position(&at, h, &zeros);
    get_matches(&at, h->matches, &zeros);
    assert(at == bytes + REEF_MEMORY_HEADER_BYTES);
    if (zeros != 0) return fail_corrupt(PART_HEADER, "bytes that must be zero are not", err);
    return check_values(h, err);
}

// ---- what is in the parts -----------------------------------------------------------------------

static bool is_history(const reef_histories *table, uint8_t history) {
    return history < table->count;
}

static reef_status check_cells(const reef_predictor *p, reef_error *err) {
    bool right = true;
    for (size_t at = 0; at < p->cells.count && right; at++) {
        const reef_cell_line *line =
            (const reef_cell_line *)(const void *)reef_lines_peek(&p->cells, at);
        right = line->hand < REEF_CELLS_A_LINE;
        for (size_t i = 0; i < REEF_CELLS_A_LINE; i++)
            right &= line->history[i] == REEF_CELL_TREES || is_history(p->table, line->history[i]);
    }
    return right ? REEF_OK : fail_corrupt(PART_CELLS, "a cell that cannot be", err);
}

static reef_status check_trees(const reef_predictor *p, reef_error *err) {
    bool right = true;
    for (size_t at = 0; at < p->slots.count && right; at++) {
        const reef_slot *slots = (const reef_slot *)(const void *)reef_lines_peek(&p->slots, at);
        for (size_t i = 0; i < REEF_SLOTS_A_LINE; i++)
            for (size_t k = 0; k < REEF_SLOT_NODES; k++)
                right &= is_history(p->table, slots[i].history[k]);
    }
    return right ? REEF_OK : fail_corrupt(PART_TREES, "a history that cannot be", err);
}

static bool are_last_weights(const int32_t *weights, size_t count) {
    bool right = true;
    for (size_t i = 0; i < count; i++)
        right &= weights[i] >= -REEF_LAST_WEIGHT_MAX && weights[i] <= REEF_LAST_WEIGHT_MAX;
    return right;
}

static reef_status check_mixers(const reef_predictor *p, reef_error *err) {
    bool right = are_last_weights(p->state->last_weights[0],
                                  sizeof(p->state->last_weights) / sizeof(int32_t));
    right &= are_last_weights(p->state->expected.last_weights[0],
                              sizeof(p->state->expected.last_weights) / sizeof(int32_t));
    for (size_t i = 0; i < sizeof(p->state->order_0); i++)
        right &= is_history(p->table, p->state->order_0[i]);
    if (!right) return fail_corrupt(PART_MIXER, "values that cannot be", err);
    if (p->net == NULL) return REEF_OK;
    right =
        p->net->bytes <= p->learned_bytes &&
        are_last_weights(p->net->last_weights[0], sizeof(p->net->last_weights) / sizeof(int32_t));
    return right ? REEF_OK : fail_corrupt(PART_NET, "values that cannot be", err);
}

// ---- the parts ----------------------------------------------------------------------------------

const char *reef_memory_table_name(size_t table) {
    return NAMES[PART_CELLS + table];
}

size_t reef_memory_part_count(void) {
    return PARTS;
}

static reef_memory_part lines_part(size_t part, const reef_lines *lines) {
    return (reef_memory_part){NAMES[part], lines->own, lines->count * REEF_LINE_BYTES};
}

// Also where they are to be read into.
static void list_parts(reef_memory *memory, reef_memory_part *parts) {
    const reef_predictor *p = &memory->predictor;
    parts[PART_HEADER] =
        (reef_memory_part){NAMES[PART_HEADER], memory->header, sizeof(memory->header)};
    parts[PART_TEXT] = (reef_memory_part){NAMES[PART_TEXT], reef_text_last(&p->text),
                                          p->text.end % REEF_TEXT_BLOCK_BYTES};
    parts[PART_TEXT_BLOCKS] = (reef_memory_part){NAMES[PART_TEXT_BLOCKS], p->text.names,
                                                 reef_text_full(&p->text) * REEF_TEXT_NAME_BYTES};
    parts[PART_CELLS] = lines_part(PART_CELLS, &p->cells);
    parts[PART_TREES] = lines_part(PART_TREES, &p->slots);
    for (size_t k = 0; k < REEF_MATCHES; k++)
        parts[PART_INDEX + k] = lines_part(PART_INDEX + k, &p->index[k]);
    parts[PART_MIXER] = (reef_memory_part){NAMES[PART_MIXER], p->state, sizeof(*p->state)};
    parts[PART_NET] = (reef_memory_part){NAMES[PART_NET], p->net, net_bytes(p)};
}

// Most of a young memory's mixer is as it was at the start. Stored as the exclusive or with that it
// has long runs of zeros, which take no space.
static void write_difference(reef_memory *memory) {
    uint64_t *out = (uint64_t *)(void *)memory->difference;
    const uint64_t *now = (const uint64_t *)(const void *)memory->predictor.state;
    reef_mix_state_init(memory->difference);
    for (size_t i = 0; i < sizeof(reef_mix_state) / sizeof(*out); i++) out[i] ^= now[i];
}

// And back: the state is that difference yet.
static void apply_difference(reef_memory *memory) {
    const uint64_t *first = (const uint64_t *)(const void *)memory->difference;
    uint64_t *out = (uint64_t *)(void *)memory->predictor.state;
    reef_mix_state_init(memory->difference);
    for (size_t i = 0; i < sizeof(reef_mix_state) / sizeof(*out); i++) out[i] ^= first[i];
}

void reef_memory_parts(reef_memory *memory, reef_memory_part *parts) {
    write_header(memory);
    list_parts(memory, parts);
    write_difference(memory);
    parts[PART_MIXER].data = memory->difference;
}

static reef_status fetch_text(reef_text *text, const reef_memory_reader *from, reef_error *err) {
    static const uint8_t zeros[REEF_TEXT_BLOCK_BYTES];
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < reef_text_full(text); i++) {
        const uint8_t *bytes = NULL;
        bool lent = false;
        status = from->fetch_text(from->context, i, text->names + i * REEF_TEXT_NAME_BYTES, &bytes,
                                  &lent, err);
        if (status != REEF_OK) return status;
        if (bytes != NULL && lent)
            reef_text_lend(text, i, bytes);
        else
            status = reef_text_copy(text, i, bytes != NULL ? bytes : zeros, err);
        if (status == REEF_OK && bytes == NULL) reef_text_name(text, i);
    }
    return status;
}

static reef_status fetch_parts(reef_memory *memory,
                               const reef_memory_reader *from,
                               reef_error *err) {
    reef_memory_part parts[PARTS];
    reef_status status = REEF_OK;
    list_parts(memory, parts);
    for (size_t i = PART_HEADER + 1; i < PARTS && status == REEF_OK; i++)
        if (parts[i].bytes > 0)
            // All are this memory's own, and not const.
            status = from->fetch(from->context, parts[i].name, (void *)(uintptr_t)parts[i].data,
                                 parts[i].bytes, err);
    return status == REEF_OK ? fetch_text(&memory->predictor.text, from, err) : status;
}

static reef_status fill(reef_memory *memory,
                        const header *h,
                        const reef_memory_reader *from,
                        reef_error *err) {
    reef_predictor *p = &memory->predictor;
    if (h->net_bytes > 0) {
        p->net = malloc(sizeof(*p->net));
        if (p->net == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the weights of a net's bytes");
    }
    reef_status status = fetch_parts(memory, from, err);
    if (status != REEF_OK) return status;
    apply_difference(memory);
    reef_predictor_begin(p);
    p->position = h->position;
    memcpy(p->matches, h->matches, sizeof(p->matches));
    reef_trees_prefetch(p, p->next_hashes);
    status = check_cells(p, err);
    if (status == REEF_OK) status = check_trees(p, err);
    return status == REEF_OK ? check_mixers(p, err) : status;
}

reef_status reef_memory_restore(reef_memory **out,
                                const reef_memory_reader *from,
                                reef_error *err) {
    uint8_t bytes[REEF_MEMORY_HEADER_BYTES];
    reef_memory *memory = NULL;
    header h;
    *out = NULL;
    reef_status status = from->fetch(from->context, NAMES[PART_HEADER], bytes, sizeof(bytes), err);
    if (status == REEF_OK) status = read_header(bytes, &h, err);
    if (status == REEF_OK) status = reef_memory_make(&memory, &h.sizes, err);
    if (status == REEF_OK) status = fill(memory, &h, from, err);
    if (status != REEF_OK) {
        reef_memory_free(memory);
        return status;
    }
    *out = memory;
    return REEF_OK;
}

// ---- what is known of stored parts --------------------------------------------------------------

// The sizes that list_parts finds in a memory, by its header alone.
static void list_announced(const header *h, reef_memory_part *parts) {
    const reef_memory_sizes *s = &h->sizes;
    uint64_t bytes[PARTS] = {
        [PART_HEADER] = REEF_MEMORY_HEADER_BYTES,
        [PART_TEXT] = s->learned_bytes % REEF_TEXT_BLOCK_BYTES,
        [PART_TEXT_BLOCKS] =
            reef_memory_text_bytes(s) / REEF_TEXT_BLOCK_BYTES * REEF_TEXT_NAME_BYTES,
        [PART_MIXER] = h->mixer_bytes,
        [PART_NET] = h->net_bytes,
    };
    for (size_t t = 0; t < REEF_TABLES; t++)
        bytes[PART_CELLS + t] = (uint64_t)REEF_LINE_BYTES << s->lines_log2[t];
    for (size_t i = 0; i < PARTS; i++) parts[i] = (reef_memory_part){NAMES[i], NULL, bytes[i]};
}

reef_status reef_memory_stored_parts(const void *header_part,
                                     size_t header_bytes,
                                     reef_memory_part *parts,
                                     reef_error *err) {
    header h;
    if (header_bytes != REEF_MEMORY_HEADER_BYTES)
        return fail_corrupt(PART_HEADER, "it has another size", err);
    reef_status status = read_header(header_part, &h, err);
    if (status == REEF_OK) list_announced(&h, parts);
    return status;
}

// Contexts are hashed, so some lines of a table are a fair sample of all.
static uint64_t scale_up(uint64_t used, size_t lines, uint32_t lines_log2) {
    uint64_t all = 1ull << lines_log2;
    if (lines == 0 || lines >= all) return used;
    return (uint64_t)((double)used * ((double)all / (double)lines) + 0.5);
}

reef_status reef_memory_stored_stats(const void *header_part,
                                     size_t header_bytes,
                                     const void *cells,
                                     size_t cells_bytes,
                                     const void *trees,
                                     size_t trees_bytes,
                                     reef_memory_stats *out,
                                     reef_error *err) {
    header h;
    *out = (reef_memory_stats){0};
    if (header_bytes != REEF_MEMORY_HEADER_BYTES)
        return fail_corrupt(PART_HEADER, "it has another size", err);
    reef_status status = read_header(header_part, &h, err);
    if (status != REEF_OK) return status;
    const reef_memory_sizes *s = &h.sizes;
    const uint32_t cells_log2 = s->lines_log2[REEF_TABLE_CELLS],
                   trees_log2 = s->lines_log2[REEF_TABLE_TREES];
    // The tables may be samples: what is in use is counted in the lines that are there.
    size_t cell_lines = cells_bytes / REEF_LINE_BYTES, tree_lines = trees_bytes / REEF_LINE_BYTES;
    *out = (reef_memory_stats){
        .learned_bytes = s->learned_bytes,
        .bytes = reef_memory_sizes_bytes(s) + h.mixer_bytes + h.net_bytes,
        .bytes_max = s->bytes_max,
        .cells = (1ull << cells_log2) * REEF_CELLS_A_LINE,
        .trees = (1ull << trees_log2) * REEF_SLOTS_A_LINE,
        .cells_used = scale_up(reef_memory_cells_used(cells, cell_lines), cell_lines, cells_log2),
        .trees_used = scale_up(reef_memory_trees_used(trees, tree_lines), tree_lines, trees_log2),
        .text_bytes = reef_memory_text_bytes(s),
    };
    return REEF_OK;
}
