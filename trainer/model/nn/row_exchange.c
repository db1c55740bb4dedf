// See nn_internal.h.
#include "nn_internal.h"

#include "generation.h"
#include "reef_system.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

// ---- which rows ---------------------------------------------------------------------------------

typedef struct fetch {
    reef_ranks *ranks;
    const reef_expert_table *table;
    reef_fetched_rows *into;
    size_t row_bytes;
    size_t wanted[REEF_RANKS_MAX]; // rows that this rank asks each other one for
    size_t asked[REEF_RANKS_MAX];  // rows that each asks of this one
} fetch;

// Nobody can go on without: the others wait for these rows.
static void *grow(reef_ranks *ranks, void *block, size_t *capacity, size_t needed, size_t each) {
    if (needed <= *capacity) return block;
    free(block);
    block = malloc(needed * each);
    if (block == NULL) reef_ranks_end(ranks, "no memory for the rows of other ranks");
    *capacity = needed;
    return block;
}

static void begin(fetch *f, size_t pairs) {
    reef_fetched_rows *into = f->into;
    size_t N = f->table->expert_count;
    if (into->expert_count != N) {
        free(into->places);
        into->places = malloc(N * sizeof(*into->places));
        if (into->places == NULL)
            reef_ranks_end(f->ranks, "no memory for the places of other ranks' rows");
        memset(into->places, 0xff, N * sizeof(*into->places)); // REEF_ROW_NOT_FETCHED
        into->expert_count = N;
        into->count = 0;
    }
    for (size_t i = 0; i < into->count; i++) into->places[into->ids[i]] = REEF_ROW_NOT_FETCHED;
    into->count = 0;
    into->ids =
        grow(f->ranks, into->ids, &into->ids_capacity, pairs < N ? pairs : N, sizeof(*into->ids));
}

static size_t owner_of(const fetch *f, size_t id) {
    const reef_row_share *share = &f->table->share;
    // The owner of a block changes from one to the next as its number does.
    size_t block = id >> share->block_shift, own = reef_ranks_rank(f->ranks);
    return (block + own + share->count - share->first) % share->count;
}

// Each once, in the order in which they are met.
static void collect(fetch *f, size_t P, const reef_expert_id *indices) {
    reef_fetched_rows *into = f->into;
    for (size_t p = 0; p < P; p++) {
        reef_expert_id id = indices[p];
        if (reef_row_is_here(&f->table->share, id) || into->places[id] != REEF_ROW_NOT_FETCHED)
            continue;
        into->places[id] = 0; // set when all are known
        into->ids[into->count++] = id;
        f->wanted[owner_of(f, id)]++;
    }
}

// One owner after the other, so that each one's rows arrive as one stretch.
static void order_by_owner(fetch *f) {
    reef_fetched_rows *into = f->into;
    size_t next[REEF_RANKS_MAX], at = 0, count = reef_ranks_count(f->ranks);
    for (size_t r = 0; r < count; at += f->wanted[r++]) next[r] = at;
    for (size_t i = 0; i < into->count; i++)
        into->places[into->ids[i]] = (uint32_t)next[owner_of(f, into->ids[i])]++;
}

// ---- exchange -----------------------------------------------------------------------------------

static void exchange_counts(fetch *f) {
    size_t sizes[REEF_RANKS_MAX], count = reef_ranks_count(f->ranks);
    for (size_t r = 0; r < count; r++) sizes[r] = sizeof(uint32_t);
    reef_ranks_message *send = reef_ranks_room(f->ranks, false, sizes);
    reef_ranks_message *receive = reef_ranks_room(f->ranks, true, sizes);
    for (size_t r = 0; r < count; r++) {
        uint32_t wanted = (uint32_t)f->wanted[r];
        memcpy(send[r].bytes, &wanted, sizeof(wanted));
    }
    reef_ranks_exchange(f->ranks);
    for (size_t r = 0; r < count; r++) {
        uint32_t asked = 0;
        if (r != reef_ranks_rank(f->ranks)) memcpy(&asked, receive[r].bytes, sizeof(asked));
        f->asked[r] = asked;
    }
}

// Afterwards what each rank asks for lies in the room for receiving.
static const reef_ranks_message *exchange_ids(fetch *f) {
    size_t sizes[REEF_RANKS_MAX], count = reef_ranks_count(f->ranks);
    const reef_fetched_rows *into = f->into;
    for (size_t r = 0; r < count; r++) sizes[r] = f->wanted[r] * sizeof(*into->ids);
    reef_ranks_message *send = reef_ranks_room(f->ranks, false, sizes);
    reef_expert_id *first = send[0].bytes; // the messages lie one behind the other
    for (size_t i = 0; i < into->count; i++) first[into->places[into->ids[i]]] = into->ids[i];
    for (size_t r = 0; r < count; r++) sizes[r] = f->asked[r] * sizeof(*into->ids);
    const reef_ranks_message *receive = reef_ranks_room(f->ranks, true, sizes);
    reef_ranks_exchange(f->ranks);
    return receive;
}

static const unsigned char *row_at(const fetch *f, size_t id) {
    const reef_expert_rows *rows = &f->table->rows;
    const unsigned char *block = rows->blocks[id >> rows->block_shift];
    return block + (id & (((size_t)1 << rows->block_shift) - 1)) * f->row_bytes;
}

static void pack_rows(fetch *f, const reef_ranks_message *asked, reef_ranks_message *send) {
    for (size_t r = 0; r < reef_ranks_count(f->ranks); r++) {
        const reef_expert_id *ids = asked[r].bytes;
        unsigned char *to = send[r].bytes;
        for (size_t i = 0; i < f->asked[r]; i++, to += f->row_bytes)
            memcpy(to, row_at(f, ids[i]), f->row_bytes);
    }
}

static void exchange_rows(fetch *f, const reef_ranks_message *asked) {
    size_t sizes[REEF_RANKS_MAX], count = reef_ranks_count(f->ranks), bytes = 0;
    reef_fetched_rows *into = f->into;
    double start = reef_seconds();
    for (size_t r = 0; r < count; r++) sizes[r] = f->asked[r] * f->row_bytes;
    pack_rows(f, asked, reef_ranks_room(f->ranks, false, sizes));
    for (size_t r = 0; r < count; r++) bytes += sizes[r] = f->wanted[r] * f->row_bytes;
    // From here on the room with the numbers is that of the rows.
    const reef_ranks_message *receive = reef_ranks_room(f->ranks, true, sizes);
    into->rows = grow(f->ranks, into->rows, &into->bytes_capacity, bytes, 1);
    reef_ranks_note_packing(f->ranks, reef_seconds() - start);
    reef_ranks_exchange(f->ranks);
    start = reef_seconds();
    if (bytes > 0) memcpy(into->rows, receive[0].bytes, bytes);
    reef_ranks_note_packing(f->ranks, reef_seconds() - start);
}

void reef_rows_fetch(reef_activations *acts,
                     const reef_network *network,
                     size_t g,
                     uint32_t l,
                     size_t first,
                     size_t end) {
    const reef_expert_table *table = &network->generations[g]->expert_tables[l];
    reef_activations_table *tape = &acts->expert_tables[g][acts->layer_sets == 1 ? 0 : l];
    if (table->share.count <= 1) return;
    fetch f = {.ranks = acts->row_ranks,
               .table = table,
               .into = &tape->fetched,
               .row_bytes = reef_row_bytes(table->rows.dtype, table->row_values)};
    size_t T = acts->config->context, P = acts->plans[l].experts.P;
    double start = reef_seconds();
    begin(&f, (end - first) * T * P);
    for (size_t t = first * T; t < end * T; t++) collect(&f, P, tape->tape.indices + t * P);
    order_by_owner(&f);
    reef_ranks_note_packing(f.ranks, reef_seconds() - start);
    exchange_counts(&f);
    exchange_rows(&f, exchange_ids(&f));
}
