// From contexts to bit histories, and back when the byte is known.
//
// A context that was followed by at most two bytes has them in its cell, and the trees that the
// bits need are drawn from it for the time of a byte. With a third byte the trees are stored.
#include "predictor.h"

#include <string.h>

enum { CELLS, TREES }; // of the tables of a replay

static uint8_t *slot_line(reef_lines *slots, uint32_t lines_log2, uint64_t key) {
    return reef_lines_at(slots, reef_slot_line_of(key, lines_log2));
}

// Of context `i`. In a replay a line that has yet to come up to date is left as it is.
static reef_slot *take_slot(reef_predictor *p, size_t i, uint64_t key) {
    size_t at = reef_slot_line_of(key, p->slot_lines_log2);
    if (p->replay != NULL && !reef_replay_has(p->replay, TREES, at)) return &p->own_slots[i];
    return reef_slot_take(reef_lines_at(&p->slots, at), key, p->table);
}

// Histories of a nibble along the paths of two symbols of four bits.
//
// What a pair's history says of the choice between the two is the history of the bit in which they
// first differ. Before it both agree, and every visit counts; behind it each has its own visits.
static void draw_paths(const reef_histories *table,
                       uint8_t history,
                       uint32_t first,
                       uint32_t second,
                       bool has_first,
                       bool has_second,
                       uint8_t *nodes) {
    uint32_t zeros = table->zeros[history], ones = table->ones[history], a = 1, b = 1;
    uint32_t both = zeros + ones;
    if (both > REEF_HISTORY_RUN_MAX) both = REEF_HISTORY_RUN_MAX;
    for (int bit = 3; bit >= 0; bit--) {
        uint32_t bit_a = first >> bit & 1, bit_b = second >> bit & 1;
        if (has_first && has_second && a == b) {
            if (bit_a == bit_b)
                nodes[a - 1] = table->run[both][bit_a];
            else
                nodes[a - 1] = bit_a == 0 ? history : table->mirror[history];
        } else {
            if (has_first) nodes[a - 1] = table->run[zeros][bit_a];
            if (has_second) nodes[b - 1] = table->run[ones][bit_b];
        }
        a = a * 2 + bit_a;
        b = b * 2 + bit_b;
    }
}

// The trees of a cell with one byte or two: of the upper nibble, or (`upper` >= 0) of the lower
// ones that follow an upper one.
static void draw_cell(
    const reef_histories *table, const reef_cell_line *line, int cell, int upper, uint8_t *nodes) {
    uint8_t history = line->history[cell], first = line->first[cell], second = line->second[cell];
    bool has_second = table->ones[history] > 0;
    memset(nodes, 0, REEF_SLOT_NODES);
    if (upper < 0)
        draw_paths(table, history, first >> 4, second >> 4, true, has_second, nodes);
    else
        draw_paths(table, history, first & 15, second & 15, first >> 4 == upper,
                   has_second && second >> 4 == upper, nodes);
}

// A tree in the trial's copy of its line, which is what the table's line would become.
static uint8_t *try_tree(reef_predictor *p, uint64_t key) {
    reef_trial_lines *trial = p->trial;
    size_t at = reef_slot_line_of(key, p->slot_lines_log2), k = 0;
    while (k < trial->count && trial->at[k] != at) k++;
    if (k == trial->count) {
        trial->at[trial->count++] = at;
        memcpy(trial->bytes[k], reef_lines_peek(&p->slots, at), REEF_LINE_BYTES);
    }
    return reef_slot_take(trial->bytes[k], key, p->table)->history;
}

// Histories of a stored tree, to be read and written; of what does not learn a copy.
static uint8_t *open_tree(reef_predictor *p, size_t i, uint64_t key) {
    bool learns = !p->frozen && !p->expected_byte.trusted;
    if (learns && p->trial != NULL) return try_tree(p, key);
    if (learns) return take_slot(p, i, key)->history;
    const uint8_t *line = reef_lines_peek(&p->slots, reef_slot_line_of(key, p->slot_lines_log2));
    const reef_slot *slot = reef_slot_find((uint8_t *)(uintptr_t)line, key);
    if (slot == NULL)
        memset(p->own_slots[i].history, 0, REEF_SLOT_NODES);
    else
        memcpy(p->own_slots[i].history, slot->history, REEF_SLOT_NODES);
    return p->own_slots[i].history;
}

static size_t line_of_cell(const reef_predictor *p, uint64_t hash) {
    return reef_cell_line_of(hash, p->cell_lines_log2);
}

static size_t line_of_slot(const reef_predictor *p, uint64_t key) {
    return reef_slot_line_of(key, p->slot_lines_log2);
}

void reef_trees_prefetch(reef_predictor *p, uint64_t *hashes) {
    uint32_t last_two = p->position.bytes & 0xFFFF;
    reef_contexts_hash(&p->position, &p->text, p->state->followers[last_two], hashes);
    for (size_t i = 0; i < REEF_CONTEXTS; i++) {
        __builtin_prefetch(reef_lines_peek(&p->cells, line_of_cell(p, hashes[i])));
        // A context that had trees for the last byte will mostly have some for the next. Waiting
        // for its cell to say so would be a second miss after the first.
        if (p->kinds[i] == REEF_CONTEXT_TREES)
            __builtin_prefetch(reef_lines_peek(
                &p->slots, line_of_slot(p, reef_slot_key(reef_cell_name(hashes[i])))));
    }
}

static void find_cells(reef_predictor *p) {
    p->orders_known = p->known_count = p->tree_count = 0;
    for (size_t i = 0; i < REEF_CONTEXTS; i++) {
        size_t at = line_of_cell(p, p->hashes[i]);
        // Frozen sessions and trials read the lines of the memory itself, and write to none.
        bool reads = p->frozen || p->trial != NULL;
        uint8_t *bytes = reads ? (uint8_t *)(uintptr_t)reef_lines_peek(&p->cells, at)
                               : reef_lines_at(&p->cells, at);
        reef_cell_line *line = (reef_cell_line *)(void *)bytes;
        int cell = reef_cell_find(line, reef_cell_check(p->hashes[i]));
        p->lines[i] = line;
        p->cells_at[i] = cell;
        if (cell < 0)
            p->kinds[i] = REEF_CONTEXT_NEW;
        else
            p->kinds[i] =
                line->history[cell] == REEF_CELL_TREES ? REEF_CONTEXT_TREES : REEF_CONTEXT_PAIR;
        if (cell < 0) continue;
        p->orders_known += i < REEF_ORDERS;
        p->known[p->known_count++] = (uint8_t)i;
        if (p->kinds[i] == REEF_CONTEXT_TREES) p->trees[p->tree_count++] = (uint8_t)i;
        if (p->kinds[i] == REEF_CONTEXT_TREES)
            __builtin_prefetch(reef_lines_peek(
                &p->slots, line_of_slot(p, reef_slot_key(reef_cell_name(p->hashes[i])))));
    }
}

void reef_trees_prefetch_lower(reef_predictor *p) {
    // Three bits of the upper nibble decide the line; the fourth is not known yet.
    uint32_t upper = (p->bits & 7) << 1;
    for (size_t k = 0; k < p->tree_count; k++) {
        size_t i = p->trees[k];
        uint64_t key = reef_slot_key_lower(reef_cell_name(p->hashes[i]), upper);
        __builtin_prefetch(reef_lines_peek(&p->slots, line_of_slot(p, key)));
    }
}

static void open_nodes(reef_predictor *p, int upper) {
    for (size_t k = 0; k < p->known_count; k++) {
        size_t i = p->known[k];
        if (p->kinds[i] == REEF_CONTEXT_TREES) {
            uint64_t name = reef_cell_name(p->hashes[i]);
            uint64_t key =
                upper < 0 ? reef_slot_key(name) : reef_slot_key_lower(name, (uint32_t)upper);
            p->nodes[i] = open_tree(p, i, key);
        } else {
            p->nodes[i] = p->own_slots[i].history;
            draw_cell(p->table, p->lines[i], p->cells_at[i], upper, p->nodes[i]);
        }
    }
}

void reef_trees_find(reef_predictor *p) {
    memcpy(p->hashes, p->next_hashes, sizeof(p->hashes));
    find_cells(p);
}

void reef_trees_open(reef_predictor *p) {
    open_nodes(p, -1);
}

void reef_trees_open_lower(reef_predictor *p) {
    open_nodes(p, (int)(p->bits & 15));
}

void reef_trees_catch_up(reef_predictor *p) {
    const uint32_t bits = p->bits;
    open_nodes(p, -1);
    for (uint32_t at = 0; at < p->bit; at++) {
        uint32_t bit = bits >> (p->bit - 1 - at) & 1, depth = at % 4;
        p->bits = bits >> (p->bit - at); // as it was before that bit
        uint32_t node = 1u << depth | (p->bits & ((1u << depth) - 1));
        if (at == 4) reef_trees_open_lower(p);
        for (size_t k = 0; k < p->tree_count && !p->frozen; k++) {
            uint8_t *history = &p->nodes[p->trees[k]][node - 1];
            *history = p->table->next[*history][bit];
        }
    }
    p->bits = bits;
}

static void learn_nibble(const reef_histories *table, uint8_t *nodes, uint32_t nibble) {
    for (uint32_t bit = 4, node = 1; bit-- > 0;) {
        uint32_t b = nibble >> bit & 1;
        nodes[node - 1] = table->next[nodes[node - 1]][b];
        node = node * 2 + b;
    }
}

// A third byte: what the cell says of two becomes trees, and they learn it.
static void store_trees(reef_predictor *p, size_t i, uint8_t byte) {
    reef_cell_line *line = p->lines[i];
    int cell = p->cells_at[i];
    uint64_t name = reef_cell_name(p->hashes[i]);
    uint8_t nodes[REEF_SLOT_NODES];
    if (p->log != NULL)
        p->log->events[p->log->event_count++] = (reef_log_event){
            (uint8_t)i, line->history[cell], line->first[cell], line->second[cell]};
    draw_cell(p->table, line, cell, -1, nodes);
    learn_nibble(p->table, nodes, byte >> 4);
    memcpy(take_slot(p, i, reef_slot_key(name))->history, nodes, sizeof(nodes));
    const uint8_t uppers[3] = {line->first[cell] >> 4, line->second[cell] >> 4, byte >> 4};
    for (int k = 0; k < 3; k++) {
        if ((k > 0 && uppers[k] == uppers[0]) || (k > 1 && uppers[k] == uppers[1])) continue;
        draw_cell(p->table, line, cell, uppers[k], nodes);
        if (uppers[k] == byte >> 4) learn_nibble(p->table, nodes, byte & 15);
        memcpy(take_slot(p, i, reef_slot_key_lower(name, uppers[k]))->history, nodes,
               sizeof(nodes));
    }
    line->history[cell] = REEF_CELL_TREES;
    line->first[cell] = byte;
    line->second[cell] = 1;
}

// Long contexts that were followed by another byte each time mostly never come back, and trees
// would push out those of contexts that do. They wait until one of two bytes has come twice.
static bool has_pattern(const reef_predictor *p, size_t i, uint8_t history) {
    return i <= REEF_CONTEXT_ORDER_3 || p->table->zeros[history] + p->table->ones[history] > 2;
}

static void learn_pair(reef_predictor *p, size_t i, uint8_t byte) {
    reef_cell_line *line = p->lines[i];
    int cell = p->cells_at[i];
    uint8_t *history = &line->history[cell];
    if (byte == line->first[cell]) {
        *history = p->table->next[*history][0];
    } else if (p->table->ones[*history] == 0) {
        line->second[cell] = byte;
        *history = p->table->next[*history][1];
    } else if (byte == line->second[cell]) {
        *history = p->table->next[*history][1];
    } else if (has_pattern(p, i, *history)) {
        store_trees(p, i, byte);
    } else { // the older byte makes room
        line->first[cell] = line->second[cell];
        line->second[cell] = byte;
    }
}

// Every eighth context of each kind gets a cell whatever it is worth, so that what it is worth can
// be seen.
#define SAMPLED_CHECKS 8
#define MET_AGAIN_STEP 256 // contexts over which it is averaged
#define MET_AGAIN_MIN 32768

static bool is_sampled(uint32_t check) {
    return check % SAMPLED_CHECKS == 0;
}

static void count_met_again(reef_predictor *p, size_t i) {
    uint16_t *share = &p->state->met_again[i];
    int32_t target = p->kinds[i] == REEF_CONTEXT_NEW ? 0 : 65535;
    *share = (uint16_t)(*share + (target - *share) / MET_AGAIN_STEP);
}

bool reef_trees_are_met_again(const reef_predictor *p, size_t context) {
    return p->state->met_again[context] >= MET_AGAIN_MIN;
}

// Does a new context get a cell? Where cells are short, not if few of its kind are ever met again,
// as the lines' templates in prose, nor if the byte was foreseen without it.
static bool is_worth_a_cell(const reef_predictor *p, size_t i, uint32_t check, bool foreseen) {
    if (!reef_cell_line_is_crowded(p->lines[i])) return true;
    return !foreseen && (is_sampled(check) || reef_trees_are_met_again(p, i));
}

static void learn_context(reef_predictor *p, size_t i, uint8_t byte, bool foreseen) {
    reef_cell_line *line = p->lines[i];
    uint32_t check = reef_cell_check(p->hashes[i]);
    int cell = p->cells_at[i];
    if (is_sampled(check)) count_met_again(p, i);
    if (p->kinds[i] == REEF_CONTEXT_NEW) {
        if (!is_worth_a_cell(p, i, check, foreseen)) return;
        // Another context of this byte may have made the same cell meanwhile.
        if (reef_cell_find(line, check) >= 0) return;
        cell = reef_cell_insert(line, check, p->table);
        line->first[cell] = byte;
        line->second[cell] = 0;
        line->history[cell] = p->table->run[1][0];
    } else if (line->check[cell] != check) {
        return; // it made room for a new context of this byte
    } else if (p->kinds[i] == REEF_CONTEXT_PAIR) {
        // The cell may have turned into trees under another context with this hash.
        if (line->history[cell] != REEF_CELL_TREES) learn_pair(p, i, byte);
    } else if (line->first[cell] == byte) {
        if (line->second[cell] < 255) line->second[cell]++;
    } else {
        line->first[cell] = byte;
        line->second[cell] = 1;
    }
}

void reef_trees_end_byte(reef_predictor *p, uint8_t byte) {
    const bool foreseen = p->expected_byte.trusted; // and it came: another one ends the trust
    for (size_t i = 0; i < REEF_CONTEXTS; i++) learn_context(p, i, byte, foreseen);
}

// ---- replay -------------------------------------------------------------------------------------

uint32_t reef_trees_replay_prefetch(const reef_replay *replay,
                                    const reef_predictor *p,
                                    const uint64_t *hashes,
                                    uint32_t trees,
                                    uint8_t byte) {
    uint32_t cells = 0;
    for (size_t i = 0; i < REEF_CONTEXTS; i++) {
        size_t at = line_of_cell(p, hashes[i]);
        if (!reef_replay_has(replay, CELLS, at)) continue;
        __builtin_prefetch(p->cells.own + at * REEF_LINE_BYTES, 1);
        cells |= UINT32_C(1) << i;
    }
    for (; trees != 0; trees &= trees - 1) {
        uint64_t name = reef_cell_name(hashes[__builtin_ctz(trees)]);
        const uint64_t keys[2] = {reef_slot_key(name), reef_slot_key_lower(name, byte >> 4)};
        for (size_t k = 0; k < 2; k++) {
            size_t at = line_of_slot(p, keys[k]);
            if (reef_replay_has(replay, TREES, at))
                __builtin_prefetch(p->slots.own + at * REEF_LINE_BYTES, 1);
        }
    }
    return cells;
}

void reef_trees_replay_find(reef_predictor *p, uint32_t cells, uint32_t trees) {
    memset(p->lines, 0, sizeof(p->lines));
    for (; cells != 0; cells &= cells - 1) {
        size_t i = (size_t)__builtin_ctz(cells), at = line_of_cell(p, p->hashes[i]);
        p->lines[i] = (reef_cell_line *)(void *)reef_lines_at(&p->cells, at);
        p->cells_at[i] = reef_cell_find(p->lines[i], reef_cell_check(p->hashes[i]));
    }
    // Trees alone are learned bit by bit; what their cells say is not asked.
    for (p->known_count = 0; trees != 0; trees &= trees - 1) {
        uint8_t i = (uint8_t)__builtin_ctz(trees);
        p->kinds[i] = REEF_CONTEXT_TREES;
        p->known[p->known_count] = p->trees[p->known_count] = i;
        p->known_count++;
    }
    p->tree_count = p->known_count;
}

static reef_context_state kind_of(const reef_cell_line *line, int cell) {
    if (cell < 0) return REEF_CONTEXT_NEW;
    return line->history[cell] == REEF_CELL_TREES ? REEF_CONTEXT_TREES : REEF_CONTEXT_PAIR;
}

// The cell is of another time, but not all of its trees may be.
static void replay_event(reef_predictor *p, const reef_log_event *event, uint8_t byte) {
    reef_cell_line line = {.first = {event->first}, .second = {event->second}};
    line.history[0] = event->history;
    p->lines[event->context] = &line;
    p->cells_at[event->context] = 0;
    store_trees(p, event->context, byte);
    p->lines[event->context] = NULL;
}

void reef_trees_replay_end_byte(
    reef_predictor *p, uint8_t byte, uint32_t cells, const reef_log_event *events, size_t count) {
    const bool foreseen = p->expected_byte.trusted;
    uint32_t left = cells;
    // As it was when the byte began.
    for (uint32_t own = cells; own != 0; own &= own - 1) {
        size_t i = (size_t)__builtin_ctz(own);
        p->kinds[i] = kind_of(p->lines[i], p->cells_at[i]);
    }
    for (size_t k = 0; k < count; k++) left |= UINT32_C(1) << events[k].context;
    for (; left != 0; left &= left - 1) {
        size_t i = (size_t)__builtin_ctz(left);
        bool has_event = count > 0 && events->context == i;
        if (p->lines[i] != NULL)
            learn_context(p, i, byte, foreseen);
        else
            replay_event(p, events, byte);
        events += has_event;
        count -= has_event;
    }
}

static void move_tree(reef_lines *to, reef_lines *from, uint64_t key, const reef_histories *table) {
    uint32_t to_log2 = (uint32_t)__builtin_ctzll(to->count);
    const reef_slot *old = reef_slot_find(slot_line(from, to_log2 - 1, key), key);
    if (old == NULL) return;
    reef_slot *new = reef_slot_take(slot_line(to, to_log2, key), key, table);
    memcpy(new->history, old->history, REEF_SLOT_NODES);
}

// A slot does not know its context, but the cells do: those with trees lead to all of them.
void reef_slots_double(reef_lines *to,
                       reef_lines *from,
                       const reef_lines *cells,
                       const reef_histories *table) {
    uint32_t cell_log2 = (uint32_t)__builtin_ctzll(cells->count);
    for (size_t at = 0; at < cells->count; at++) {
        const reef_cell_line *line =
            (const reef_cell_line *)(const void *)reef_lines_peek(cells, at);
        for (int i = 0; i < REEF_CELLS_A_LINE; i++) {
            if (line->history[i] != REEF_CELL_TREES) continue;
            uint64_t name = reef_cell_name_at(at, cell_log2, line->check[i]);
            move_tree(to, from, reef_slot_key(name), table);
            for (uint32_t nibble = 0; nibble < 16; nibble++)
                move_tree(to, from, reef_slot_key_lower(name, nibble), table);
        }
    }
}
