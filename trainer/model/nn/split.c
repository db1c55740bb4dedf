// See nn_internal.h.
#include "nn_internal.h"

#include "reef_system.h"

#include <assert.h>
#include <string.h>

// ---- windows ------------------------------------------------------------------------------------

typedef struct share {
    void (*work)(void *context, size_t window);
    void *context;
    size_t first;
} share;

static void run_own(void *context, size_t piece) {
    const share *of = context;
    of->work(of->context, of->first + piece);
}

void reef_split_run(reef_ranks *ranks,
                    reef_thread_pool *workers,
                    size_t windows,
                    void (*work)(void *context, size_t window),
                    void *context) {
    if (ranks == NULL) {
        reef_thread_pool_run(workers, windows, work, context);
        return;
    }
    share of = {.work = work, .context = context};
    size_t end;
    reef_ranks_share(ranks, reef_ranks_rank(ranks), windows, &of.first, &end);
    reef_thread_pool_run(workers, end - of.first, run_own, &of);
}

reef_ranks_array reef_split_rows(const reef_config *config, float *base, size_t width) {
    size_t bytes = config->context * width * sizeof(*base);
    return (reef_ranks_array){.base = base, .stride = bytes, .bytes = bytes};
}

void reef_split_mask(const reef_ranks *ranks, size_t windows, uint8_t *active) {
    size_t first, end;
    if (ranks == NULL) return;
    reef_ranks_share(ranks, reef_ranks_rank(ranks), windows, &first, &end);
    memset(active, 0, first);
    memset(active + end, 0, windows - end);
}

reef_status reef_split_agree(reef_ranks *ranks, reef_status status, reef_error *err) {
    uint8_t outcomes[REEF_RANKS_MAX];
    size_t count = reef_ranks_count(ranks);
    if (ranks == NULL) return status;
    outcomes[reef_ranks_rank(ranks)] = (uint8_t)status;
    const reef_ranks_array each = {.base = outcomes, .stride = 1, .bytes = 1};
    reef_ranks_gather(ranks, count, 1, &each);
    for (size_t r = 0; r < count; r++) {
        if (outcomes[r] == REEF_OK) continue;
        if (status != REEF_OK) return (reef_status)outcomes[r]; // its own message says more
        return reef_fail(err, (reef_status)outcomes[r],
                         "rank %zu failed in its share of the step: its log says why", r);
    }
    return REEF_OK;
}

// ---- gradients of weights -----------------------------------------------------------------------

// Columns of a product's x and d_y that some tiles of it read; nothing where end is 0.
typedef struct columns {
    size_t x_first, x_end, d_y_first, d_y_end;
} columns;

static columns columns_of(const reef_weight_product *products,
                          size_t product,
                          size_t first_tile,
                          size_t end_tile) {
    columns of = {SIZE_MAX, 0, SIZE_MAX, 0};
    for (size_t tile = first_tile; tile < end_tile; tile++) {
        reef_weight_tile at = reef_weight_tile_at(products, tile);
        if (at.product != product) continue;
        if (at.row < of.x_first) of.x_first = at.row;
        if (at.row + at.rows > of.x_end) of.x_end = at.row + at.rows;
        if (at.column < of.d_y_first) of.d_y_first = at.column;
        if (at.column + at.columns > of.d_y_end) of.d_y_end = at.column + at.columns;
    }
    if (of.x_end == 0) of = (columns){0};
    return of;
}

// Columns first .. end - 1 of some rows, between the array and the message; returns the floats
// behind them there.
static float *copy_columns(float *message,
                           bool into_array,
                           const float *array,
                           size_t width,
                           size_t first_row,
                           size_t end_row,
                           size_t first,
                           size_t end) {
    size_t bytes = (end - first) * sizeof(*message);
    for (size_t row = first_row; bytes > 0 && row < end_row; row++, message += end - first) {
        // Arrays of other ranks' windows are ours to fill: a product only reads them otherwise.
        float *at = (float *)(uintptr_t)(array + row * width + first);
        if (into_array)
            memcpy(at, message, bytes);
        else
            memcpy(message, at, bytes);
    }
    return message;
}

typedef struct gradients {
    reef_ranks *ranks;
    size_t context, windows, count, tiles;
    const reef_weight_product *products;
} gradients;

// Floats of a row that the tiles of `rank` read.
static size_t row_floats(const gradients *of, size_t rank) {
    size_t first, end, floats = 0;
    reef_ranks_share(of->ranks, rank, of->tiles, &first, &end);
    for (size_t i = 0; i < of->count; i++) {
        columns read = columns_of(of->products, i, first, end);
        floats += read.x_end - read.x_first + read.d_y_end - read.d_y_first;
    }
    return floats;
}

// What rank `from` has of its windows for the tiles of rank `to`.
static void copy_rows(const gradients *of, float *message, bool receive, size_t from, size_t to) {
    size_t first, end, first_window, end_window;
    reef_ranks_share(of->ranks, to, of->tiles, &first, &end);
    reef_ranks_share(of->ranks, from, of->windows, &first_window, &end_window);
    for (size_t i = 0; i < of->count; i++) {
        const reef_weight_product *product = of->products + i;
        columns read = columns_of(of->products, i, first, end);
        message =
            copy_columns(message, receive, product->x, product->in, first_window * of->context,
                         end_window * of->context, read.x_first, read.x_end);
        message =
            copy_columns(message, receive, product->d_y, product->out, first_window * of->context,
                         end_window * of->context, read.d_y_first, read.d_y_end);
    }
}

static size_t share_windows(const gradients *of, size_t rank) {
    size_t first, end;
    reef_ranks_share(of->ranks, rank, of->windows, &first, &end);
    return end - first;
}

// Exchange, between what fills the room to send and what empties the other one.
static void exchange_packed(const gradients *of, double began) {
    reef_ranks_note_packing(of->ranks, reef_seconds() - began);
    reef_ranks_exchange(of->ranks);
}

static void exchange_rows(const gradients *of) {
    double start = reef_seconds();
    size_t own = reef_ranks_rank(of->ranks), ranks = reef_ranks_count(of->ranks);
    size_t sizes[REEF_RANKS_MAX], own_row = row_floats(of, own);
    for (size_t r = 0; r < ranks; r++)
        sizes[r] =
            r == own ? 0 : share_windows(of, own) * of->context * row_floats(of, r) * sizeof(float);
    reef_ranks_message *send = reef_ranks_room(of->ranks, false, sizes);
    for (size_t r = 0; r < ranks; r++)
        if (r != own) copy_rows(of, send[r].bytes, false, own, r);
    for (size_t r = 0; r < ranks; r++)
        sizes[r] = r == own ? 0 : share_windows(of, r) * of->context * own_row * sizeof(float);
    reef_ranks_message *receive = reef_ranks_room(of->ranks, true, sizes);
    exchange_packed(of, start);
    start = reef_seconds();
    for (size_t r = 0; r < ranks; r++)
        if (r != own) copy_rows(of, receive[r].bytes, true, r, own);
    reef_ranks_note_packing(of->ranks, reef_seconds() - start);
}

static size_t tile_floats(const gradients *of, size_t rank) {
    size_t first, end, floats = 0;
    reef_ranks_share(of->ranks, rank, of->tiles, &first, &end);
    for (; first < end; first++) {
        reef_weight_tile at = reef_weight_tile_at(of->products, first);
        floats += at.rows * at.columns;
    }
    return floats;
}

static void copy_tiles(const gradients *of, float *message, bool receive, size_t rank) {
    size_t first, end;
    reef_ranks_share(of->ranks, rank, of->tiles, &first, &end);
    for (; first < end; first++) {
        reef_weight_tile at = reef_weight_tile_at(of->products, first);
        const reef_weight_product *product = of->products + at.product;
        message = copy_columns(message, receive, product->d_w, product->out, at.row,
                               at.row + at.rows, at.column, at.column + at.columns);
    }
}

static void exchange_tiles(const gradients *of) {
    double start = reef_seconds();
    size_t own = reef_ranks_rank(of->ranks), ranks = reef_ranks_count(of->ranks);
    size_t sizes[REEF_RANKS_MAX] = {0};
    sizes[own] = tile_floats(of, own) * sizeof(float);
    reef_ranks_message *send = reef_ranks_room(of->ranks, false, sizes);
    copy_tiles(of, send[own].bytes, false, own);
    for (size_t r = 0; r < ranks; r++) send[r] = send[own];
    for (size_t r = 0; r < ranks; r++) sizes[r] = r == own ? 0 : tile_floats(of, r) * sizeof(float);
    reef_ranks_message *receive = reef_ranks_room(of->ranks, true, sizes);
    exchange_packed(of, start);
    start = reef_seconds();
    for (size_t r = 0; r < ranks; r++)
        if (r != own) copy_tiles(of, receive[r].bytes, true, r);
    reef_ranks_note_packing(of->ranks, reef_seconds() - start);
}

void reef_split_gradients(reef_ranks *ranks,
                          reef_thread_pool *workers,
                          const reef_config *config,
                          size_t windows,
                          size_t count,
                          const reef_weight_product *products) {
    size_t rows = windows * config->context, first, end;
    if (ranks == NULL) {
        reef_weight_gradients(workers, rows, count, products);
        return;
    }
    const gradients of = {.ranks = ranks,
                          .context = config->context,
                          .windows = windows,
                          .count = count,
                          .tiles = reef_weight_tile_count(count, products),
                          .products = products};
    exchange_rows(&of);
    reef_ranks_share(ranks, reef_ranks_rank(ranks), of.tiles, &first, &end);
    reef_weight_gradients_of(workers, rows, products, first, end);
    exchange_tiles(&of);
}
