// The router's memory: what a forward leaves behind, and the scratch of forward and backward.
//
// What always holds: one block per tape, carved here by one list of every array and its size, so
// that neither pass allocates. Scratch is cut into slots that pieces borrow while they run; pages
// of slots that never run at once are never touched.
#include "router_internal.h"

#include "kernels_internal.h"

#include <assert.h>
#include <stdlib.h>

enum { ALIGNMENT = 64 };
// Slots are claimed in one 64-bit mask, see router.c.
enum { SLOTS_MAX = 64 };
// Rows of a score tile. A product packs all sub-keys once per tile, so that many rows pay even
// where a tile outgrows the second-level cache: at side 4096 retrieval takes 123 us a token with 64
// rows of a power of two floats, 116 with rows spread as below, 110 with 128 rows and no less with
// 256 (Zen 4, one thread). The bound in bytes, of both tables' tiles, is for memory: of grids
// beyond side 8192.
enum { TILE_BYTES = 8 * 1024 * 1024, TILE_ROWS_MIN = 64, TILE_ROWS_MAX = 128 };

static size_t router_tape_least(size_t a, size_t b) {
    return a < b ? a : b;
}

static size_t router_tape_most(size_t a, size_t b) {
    return a > b ? a : b;
}

reef_status reef_router_shape_check(const reef_router_shape *shape, reef_error *err) {
    const struct {
        const char *name;
        size_t value, max;
    } sizes[] = {
        {"d_model", shape->d_model, REEF_WIDTH_MAX},
        {"head_count", shape->head_count, REEF_HEAD_COUNT_MAX},
        {"d_key", shape->d_key, REEF_WIDTH_MAX},
        {"side", shape->side, REEF_SIDE_MAX},
        {"topk", shape->topk, REEF_SIDE_MAX},
    };
    // Bounds keep every product of sizes below within size_t.
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        if (sizes[i].value == 0 || sizes[i].value > sizes[i].max)
            return reef_fail(err, REEF_ERR_INVALID, "%s is %zu; choose 1 to %zu", sizes[i].name,
                             sizes[i].value, sizes[i].max);
    // Product keys: a query has two halves.
    if (shape->d_key % 2 != 0)
        return reef_fail(
            err, REEF_ERR_INVALID,
            "d_key is %zu; choose an even number, each half meets one table of sub-keys",
            shape->d_key);
    // Of each side at most `side` sub-keys can be among the best.
    if (shape->topk > shape->side)
        return reef_fail(err, REEF_ERR_INVALID,
                         "topk is %zu but there are %zu sub-keys a side; choose at most as many",
                         shape->topk, shape->side);
    if (shape->score != REEF_SCORE_SOFTMAX && shape->score != REEF_SCORE_SIGMOID &&
        shape->score != REEF_SCORE_RELU)
        return reef_fail(err, REEF_ERR_INVALID,
                         "there is no score function %d; choose softmax (%d), sigmoid (%d) or "
                         "relu (%d)",
                         (int)shape->score, REEF_SCORE_SOFTMAX, REEF_SCORE_SIGMOID,
                         REEF_SCORE_RELU);
    return REEF_OK;
}

// The next `bytes` of the block at `*offset`; NULL while the block is only measured.
static void *carve(unsigned char *block, size_t *offset, size_t bytes) {
    void *array = block == NULL ? NULL : block + *offset;
    // Each array on its own cache lines: threads write to neighbouring slots.
    *offset += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return array;
}

// Rows of a tile begin an odd number of cache lines apart. Those a power of two apart would share a
// few sets of the caches: at side 1024 the products then take 1.1 times as long.
static size_t spread_stride(size_t side) {
    const size_t line = ALIGNMENT / sizeof(float);
    return ((side + line - 1) / line | 1) * line;
}

size_t reef_tape_group_count(size_t piece_count) {
    return router_tape_least(piece_count, TAPE_GROUPS_MAX);
}

// Lay out one slot at `block` (NULL: only measure) and return its bytes.
static size_t carve_slot(tape_slot *slot,
                         unsigned char *block,
                         const reef_router_shape *shape,
                         size_t tile_rows,
                         size_t tile_stride,
                         bool coarse) {
    const size_t kept = reef_pairs_kept(shape->side, shape->topk);
    const size_t tile_floats = tile_rows * tile_stride;
    // The list of arrays exists once: measuring and laying out walk the same calls, so the size is
    // always that of what is laid out.
    size_t at = 0;

    slot->tile_a = carve(block, &at, tile_floats * sizeof(float));
    slot->tile_b = carve(block, &at, tile_floats * sizeof(float));
    slot->best_a = carve(block, &at, tile_rows * kept * sizeof(float));
    slot->row_a = carve(block, &at, tile_rows * kept * sizeof(uint16_t));
    slot->decay = carve(block, &at, shape->topk * sizeof(float));
    slot->d_score = carve(block, &at, shape->topk * sizeof(float));
    slot->keys_a = carve(block, &at, shape->topk * sizeof(*slot->keys_a));
    slot->keys_b = carve(block, &at, shape->topk * sizeof(*slot->keys_b));
    slot->lists.side = shape->side;
    slot->lists.topk = shape->topk;
    slot->lists.score_b = carve(block, &at, kept * sizeof(float));
    slot->lists.row_b = carve(block, &at, kept * sizeof(uint16_t));
    slot->lists.length_a = slot->lists.length_b = kept;
    slot->lists.keys = carve(block, &at, shape->topk * sizeof(uint64_t));
    slot->lists.positions = carve(block, &at, shape->topk * sizeof(uint32_t));
    // As long as a side: with ties throughout, every row may take part.
    slot->lists.tied_a = carve(block, &at, shape->side * sizeof(uint16_t));
    slot->lists.tied_b = carve(block, &at, shape->side * sizeof(uint16_t));
    if (!coarse) return at;
    const size_t half = shape->d_key / 2, room = tile_rows * COARSE_ROOM;
    const size_t group = reef_kernels_coarse()->group;
    slot->length_a = carve(block, &at, tile_rows * sizeof(*slot->length_a));
    slot->coarse.groups = carve(block, &at, group * half / 2 * sizeof(uint32_t));
    slot->coarse.words = carve(block, &at, group * half * sizeof(int16_t));
    slot->coarse.scores =
        carve(block, &at, group * reef_coarse_padded(shape->side) * sizeof(int16_t));
    for (size_t side = 0; side < 2; side++) {
        slot->coarse.left[side] = carve(block, &at, tile_rows * sizeof(coarse_left));
        slot->coarse.rows[side] = carve(block, &at, room * sizeof(uint16_t));
        slot->coarse.scores_left[side] = carve(block, &at, room * sizeof(float));
    }
    return at;
}

tape_slot reef_tape_slot_at(const reef_router_tape *tape,
                            const reef_router_shape *shape,
                            size_t number) {
    assert(number < tape->slot_count);
    tape_slot slot;
    float *start = tape->scratch + number * tape->slot_floats;
    carve_slot(&slot, (unsigned char *)start, shape, tape->tile_rows, tape->tile_stride,
               tape->coarse != NULL);
    slot.lists.stairs = *tape->stairs;
    return slot;
}

// Views of the tables in bytes; what they hold is that of a forward's parameters.
static void carve_coarse(reef_router_tape *tape,
                         unsigned char *block,
                         size_t *at,
                         const reef_router_shape *shape) {
    const size_t count = 2 * reef_router_tables(shape), half = shape->d_key / 2;
    const size_t padded = reef_coarse_padded(shape->side);
    tape->coarse = carve(block, at, count * sizeof(*tape->coarse));
    for (size_t n = 0; n < count; n++) {
        int8_t *bytes = carve(block, at, padded * half);
        int16_t *starts = carve(block, at, coarse_chunks(half) * padded * sizeof(*starts));
        int32_t *totals = carve(block, at, padded * sizeof(*totals));
        int16_t *words = carve(block, at, shape->side * half * sizeof(*words));
        if (block == NULL) continue;
        tape->coarse[n] = (coarse_table){.side = shape->side,
                                         .half = half,
                                         .stride = reef_router_key_row(shape),
                                         .together = reef_kernels_coarse()->together,
                                         .bytes = bytes,
                                         .starts = starts,
                                         .totals = totals,
                                         .words = words};
    }
}

// Lay out the whole tape at `block` (NULL: only measure) and return its bytes.
static size_t lay_out_tape(reef_router_tape *tape,
                           unsigned char *block,
                           const reef_router_shape *shape,
                           bool backward,
                           bool coarse) {
    const size_t width = shape->head_count * shape->d_key;
    const size_t rows = tape->rows_max;
    const size_t chosen = rows * shape->head_count * shape->topk;
    const size_t groups = reef_tape_group_count(rows / tape->piece_rows);
    const size_t keys = 2 * shape->side * reef_router_key_row(shape);
    size_t at = 0;

    // The slots come first: the tape is released by their address.
    tape->scratch = carve(block, &at, tape->slot_count * tape->slot_floats * sizeof(float));
    tape->query = carve(block, &at, rows * width * sizeof(float));
    tape->indices = carve(block, &at, chosen * sizeof(reef_expert_id));
    tape->index_a = carve(block, &at, chosen * sizeof(uint16_t));
    tape->index_b = carve(block, &at, chosen * sizeof(uint16_t));
    tape->gate = carve(block, &at, chosen * sizeof(float));
    // Once: their powers cost as much as the choices of a small piece.
    pair_stairs *stairs = carve(block, &at, sizeof(*stairs));
    if (stairs != NULL) reef_pairs_stairs(shape->topk, stairs);
    tape->stairs = stairs;
    if (coarse) carve_coarse(tape, block, &at, shape);
    if (!backward) return at;
    if (shape->batch_norm) {
        tape->query_raw = carve(block, &at, rows * width * sizeof(float));
        tape->batch_mean = carve(block, &at, width * sizeof(float));
        tape->batch_var = carve(block, &at, width * sizeof(float));
    }
    // An evaluation ends above; a backward needs gradients per query and, of sub-keys, per group.
    tape->d_query = carve(block, &at, rows * width * sizeof(float));
    tape->piece_grads = carve(block, &at, groups * keys * sizeof(float));
    return at;
}

reef_status reef_router_tape_init(reef_router_tape *tape,
                                  const reef_router_shape *shape,
                                  size_t rows_max,
                                  size_t piece_rows,
                                  bool backward,
                                  reef_error *err) {
    // Valid for release also after an error.
    *tape = (reef_router_tape){0};
    reef_status status = reef_router_shape_check(shape, err);
    if (status != REEF_OK) return status;
    // Whole pieces, since each piece has one slot of gradients.
    if (rows_max == 0 || rows_max > REEF_ROUTER_ROWS_MAX || piece_rows == 0 ||
        rows_max % piece_rows != 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "a router tape of %zu rows in pieces of %zu: choose a whole number of "
                         "pieces and at most %u rows",
                         rows_max, piece_rows, REEF_ROUTER_ROWS_MAX);

    reef_router_tape laid_out = {.rows_max = rows_max, .piece_rows = piece_rows};
    // A tile of scores of both sides should stay in the second-level cache.
    size_t fitting = TILE_BYTES / (2 * shape->side * sizeof(float));
    laid_out.tile_rows = router_tape_least(router_tape_most(fitting, TILE_ROWS_MIN), TILE_ROWS_MAX);
    laid_out.tile_rows = router_tape_least(laid_out.tile_rows, piece_rows * shape->head_count);
    // Strides of a power of two would map all rows to the same cache sets.
    laid_out.tile_stride = spread_stride(shape->side);
    laid_out.slot_count = router_tape_least(rows_max / piece_rows, SLOTS_MAX);
    // Measured with a NULL base first: one allocation holds everything.
    tape_slot measured;
    const bool coarse = reef_coarse_fits(reef_kernels_coarse(), shape);
    laid_out.slot_floats =
        carve_slot(&measured, NULL, shape, laid_out.tile_rows, laid_out.tile_stride, coarse) /
        sizeof(float);

    size_t bytes = lay_out_tape(&laid_out, NULL, shape, backward, coarse);
    void *block = aligned_alloc(ALIGNMENT, bytes);
    if (block == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY,
                         "no memory: %zu bytes for a router tape of %zu rows", bytes, rows_max);
    // The same walk again, this time with addresses.
    lay_out_tape(&laid_out, block, shape, backward, coarse);
    *tape = laid_out;
    return REEF_OK;
}

void reef_router_tape_release(reef_router_tape *tape) {
    free(tape->scratch);
    *tape = (reef_router_tape){0};
}
