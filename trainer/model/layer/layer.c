// Forward and backward of a layer by itself: the same router and experts that a model's passes
// call, generation by generation, on the caller's rows.
//
// What always holds: y of a row is summed over generations in their order, so as of g it has the
// bits that it had when g was the last. Sealed or evaluated generations are routed in whole pieces,
// padded if the caller's rows do not fill them, so its bits do not depend on the rows beside it.
// Batch statistics are those of the caller's rows alone, which are therefore not padded. Without a
// tape rows are computed in stretches, so memory is bounded.
#include "layer_internal.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { STRETCH_ROWS = 4096 }; // whole pieces

reef_status reef_layer_new(reef_layer **out, reef_error *err) {
    *out = calloc(1, sizeof(**out));
    if (*out == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a layer");
    static atomic_uint_fast64_t made;
    (*out)->number = ++made;
    return REEF_OK;
}

void reef_layer_free(reef_layer *layer) {
    if (layer == NULL) return;
    reef_layer_tape_release(&layer->scratch);
    reef_layer_collected_release(&layer->collected);
    reef_expert_pairs_release(&layer->pairs);
    free(layer);
}

// ---- one pass -----------------------------------------------------------------------------------

/** One generation's part of a pass over rows. */
typedef struct layer_pass {
    const reef_layer_view *view;
    const reef_generation *generation;
    const reef_expert_table *table;
    reef_layer_tape *tape;
    reef_layer_trace *trace;
    reef_router_shape router;
    reef_expert_shape experts;
    bool learns; // routed with batch statistics, and gets gradients
    size_t rows;
    const float *x, *d_y;
    float *y, *d_x;
    const uint8_t *active; // (rows) or NULL
} layer_pass;

static layer_pass pass_of(const reef_layer_view *view, reef_layer_tape *tape, size_t g) {
    const reef_generation *generation = view->network->generations[g];
    const reef_config *config = &view->network->config;
    return (layer_pass){
        .view = view,
        .generation = generation,
        .table = &generation->expert_tables[0],
        .tape = tape,
        .router = reef_generation_shape(config, generation->info.side),
        .experts = reef_generation_expert_shape(config, 0),
    };
}

static size_t piece_count(size_t rows) {
    return (rows + REEF_LAYER_PIECE - 1) / REEF_LAYER_PIECE;
}

static size_t piece_rows(const layer_pass *acts, size_t piece) {
    size_t rest = acts->rows - piece * REEF_LAYER_PIECE;
    return rest < REEF_LAYER_PIECE ? rest : REEF_LAYER_PIECE;
}

static bool is_any(const uint8_t *active, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (active[i]) return true;
    return false;
}

// The pieces in which the generation takes part; NULL where in all.
static const uint8_t *active_pieces(const layer_pass *acts) {
    if (acts->active == NULL || acts->learns) return NULL;
    uint8_t *pieces = acts->tape->piece_active;
    for (size_t p = 0; p < piece_count(acts->rows); p++)
        pieces[p] = is_any(acts->active + p * REEF_LAYER_PIECE, piece_rows(acts, p));
    return pieces;
}

// Is the router given whole pieces, though the caller's rows are none?
static bool is_padded(const layer_pass *acts) {
    return !acts->learns && acts->rows % REEF_LAYER_PIECE != 0;
}

static size_t routed_rows(const layer_pass *acts) {
    return is_padded(acts) ? piece_count(acts->rows) * REEF_LAYER_PIECE : acts->rows;
}

static reef_router_mode mode_of(const layer_pass *acts) {
    return acts->learns ? REEF_ROUTER_TRAIN : REEF_ROUTER_FOLDED;
}

static const reef_router_params *params_of(const layer_pass *acts) {
    return acts->generation->open && !acts->learns ? &acts->generation->folded[0]
                                                   : &acts->generation->weights.routers[0];
}

// The caller's rows and then zeros.
static const float *pad(const layer_pass *acts) {
    size_t D = acts->experts.D, floats = acts->rows * D;
    memcpy(acts->tape->x, acts->x, floats * sizeof(float));
    memset(acts->tape->x + floats, 0, (routed_rows(acts) - acts->rows) * D * sizeof(float));
    return acts->tape->x;
}

static void run_experts(const layer_pass *acts, void (*work)(void *context, size_t piece)) {
    reef_row_prefetch *prefetch = acts->table->memory == NULL ? acts->view->prefetch : NULL;
    const reef_row_prefetch_request request = {
        .rows = &acts->table->rows,
        .row_bytes = reef_row_bytes(acts->table->rows.dtype, acts->table->row_values),
        .tokens = acts->rows,
        .P = acts->experts.P,
        .indices = acts->trace->tape.indices,
        .active = acts->active,
    };
    if (prefetch != NULL) reef_row_prefetch_start(prefetch, &request);
    reef_thread_pool_run(acts->view->workers, piece_count(acts->rows), work, (void *)acts);
    if (prefetch != NULL) reef_row_prefetch_finish(prefetch);
}

// ---- forward ------------------------------------------------------------------------------------

static void forward_piece(void *context, size_t piece) {
    const layer_pass *acts = context;
    const reef_layer_trace *trace = acts->trace;
    size_t row = piece * REEF_LAYER_PIECE, P = acts->experts.P, D = acts->experts.D;
    size_t hidden = row * reef_expert_hidden_values(&acts->experts);
    reef_experts_forward(&acts->experts, piece_rows(acts, piece), acts->y + row * D,
                         trace->backward ? trace->hidden + hidden : NULL, acts->x + row * D,
                         trace->tape.indices + row * P, trace->tape.gate + row * P,
                         &acts->table->rows, acts->active == NULL ? NULL : acts->active + row);
}

static reef_status forward_generation(const layer_pass *acts, reef_error *err) {
    if (acts->active != NULL && !is_any(acts->active, acts->rows)) return REEF_OK;
    const uint8_t *pieces = active_pieces(acts);
    reef_status status = reef_router_forward(
        &acts->router, params_of(acts), mode_of(acts), acts->view->workers, routed_rows(acts),
        is_padded(acts) ? pad(acts) : acts->x, pieces, &acts->trace->tape, err);
    if (status != REEF_OK) return status;
    run_experts(acts, forward_piece);
    acts->trace->ran = true;
    return REEF_OK;
}

// `mask` is that of the first of these rows, and `stride` bytes lie between two generations.
static reef_status forward_rows(const reef_layer_view *view,
                                const reef_layer_choice *choice,
                                reef_layer_tape *tape,
                                bool keep,
                                size_t stride,
                                layer_pass rows,
                                reef_error *err) {
    size_t generations = choice->generations;
    reef_status status =
        reef_layer_tape_reserve(tape, view->network, generations, rows.rows, keep, err);
    if (status != REEF_OK) return status;
    memset(rows.y, 0, rows.rows * view->network->config.d_model * sizeof(*rows.y));
    for (size_t g = 0; status == REEF_OK && g < generations; g++) {
        layer_pass acts = pass_of(view, tape, g);
        acts.rows = rows.rows;
        acts.x = rows.x;
        acts.y = rows.y;
        acts.active = rows.active == NULL ? NULL : rows.active + g * stride;
        acts.learns = choice->train && acts.generation->open;
        status = reef_layer_tape_trace(&acts.trace, tape, view->network, g, rows.rows, keep, err);
        if (status == REEF_OK) status = forward_generation(&acts, err);
    }
    return status;
}

// A backward needs the mask after the caller may have given it up.
static reef_status keep_mask(reef_layer_tape *tape,
                             const reef_layer_choice *choice,
                             size_t rows,
                             reef_error *err) {
    free(tape->mask);
    tape->mask = NULL;
    if (choice->mask == NULL) return REEF_OK;
    tape->mask = malloc(choice->generations * rows);
    if (tape->mask == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a mask of %zu rows", rows);
    memcpy(tape->mask, choice->mask, choice->generations * rows);
    return REEF_OK;
}

static void note_forward(reef_layer_tape *tape,
                         const reef_layer_view *view,
                         const reef_layer_choice *choice,
                         size_t rows) {
    tape->rows = rows;
    tape->generations = choice->generations;
    tape->train = choice->train;
    tape->layer = view->layer->number;
    tape->version = view->layer->version;
    tape->filled = true;
}

static reef_status run_kept(const reef_layer_view *view,
                            const reef_layer_choice *choice,
                            size_t rows,
                            const float *x,
                            float *y,
                            reef_layer_tape *tape,
                            reef_error *err) {
    reef_status status =
        forward_rows(view, choice, tape, true, rows,
                     (layer_pass){.rows = rows, .x = x, .y = y, .active = choice->mask}, err);
    if (status == REEF_OK) status = keep_mask(tape, choice, rows, err);
    if (status == REEF_OK) note_forward(tape, view, choice, rows);
    return status;
}

static reef_status run_stretches(const reef_layer_view *view,
                                 const reef_layer_choice *choice,
                                 size_t rows,
                                 const float *x,
                                 float *y,
                                 reef_error *err) {
    size_t D = view->network->config.d_model;
    reef_status status = REEF_OK;
    for (size_t at = 0; status == REEF_OK && at < rows; at += STRETCH_ROWS) {
        size_t left = rows - at;
        layer_pass stretch = {.rows = left < STRETCH_ROWS ? left : STRETCH_ROWS,
                              .x = x + at * D,
                              .y = y + at * D,
                              .active = choice->mask == NULL ? NULL : choice->mask + at};
        status = forward_rows(view, choice, &view->layer->scratch, false, rows, stretch, err);
    }
    return status;
}

static bool overlap(const float *a, const float *b, size_t count) {
    uintptr_t at_a = (uintptr_t)a, at_b = (uintptr_t)b, bytes = count * sizeof(*a);
    return at_a < at_b + bytes && at_b < at_a + bytes;
}

static reef_status check_choice(const reef_layer_view *view,
                                reef_layer_choice *choice,
                                size_t rows,
                                const reef_layer_tape *tape,
                                reef_error *err) {
    size_t count = view->network->generation_count;
    if (choice->generations == 0) choice->generations = count;
    if (choice->generations > count)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%zu generations were asked for, but the layer has %zu",
                         choice->generations, count);
    if (rows > REEF_ROUTER_ROWS_MAX - REEF_LAYER_PIECE)
        return reef_fail(err, REEF_ERR_INVALID, "%zu rows are too many for one pass; at most %u",
                         rows, REEF_ROUTER_ROWS_MAX - REEF_LAYER_PIECE);
    if (choice->train && tape == NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "a forward that trains needs a tape for its backward");
    return REEF_OK;
}

reef_status reef_layer_run(const reef_layer_view *view,
                           const reef_layer_choice *choice,
                           size_t rows,
                           const float *x,
                           float *y,
                           reef_layer_tape *tape,
                           reef_error *err) {
    reef_layer_choice chosen = choice == NULL ? (reef_layer_choice){0} : *choice;
    reef_status status = check_choice(view, &chosen, rows, tape, err);
    if (status != REEF_OK) return status;
    if (rows == 0) { // which have no statistics
        if (tape != NULL) note_forward(tape, view, &chosen, 0);
        return REEF_OK;
    }
    if (overlap(x, y, rows * view->network->config.d_model))
        return reef_fail(err, REEF_ERR_INVALID,
                         "y of a forward lies in the memory of x; give another");
    reef_generation *last = view->network->generations[view->network->generation_count - 1];
    if (view->layer->fold_is_stale && last->open)
        reef_generation_fold(last, &view->network->config);
    view->layer->fold_is_stale = false;
    return tape != NULL ? run_kept(view, &chosen, rows, x, y, tape, err)
                        : run_stretches(view, &chosen, rows, x, y, err);
}

// ---- backward -----------------------------------------------------------------------------------

static void backward_piece(void *context, size_t piece) {
    const layer_pass *acts = context;
    const reef_layer_trace *trace = acts->trace;
    size_t row = piece * REEF_LAYER_PIECE, P = acts->experts.P, D = acts->experts.D;
    size_t hidden = row * reef_expert_hidden_values(&acts->experts);
    float *factors =
        acts->learns ? trace->factors + row * P * reef_expert_vectors(&acts->experts) : NULL;
    reef_experts_backward(&acts->experts, piece_rows(acts, piece), acts->d_x + row * D,
                          trace->d_gate + row * P, factors, acts->d_y + row * D,
                          trace->hidden + hidden, trace->tape.indices + row * P,
                          trace->tape.gate + row * P, &acts->table->rows,
                          acts->active == NULL ? NULL : acts->active + row);
}

static void backward_generation(const layer_pass *acts, reef_router_params *grads) {
    size_t D = acts->experts.D, P = acts->experts.P, rows = routed_rows(acts);
    const uint8_t *pieces = active_pieces(acts);
    bool padded = is_padded(acts);
    float *d_x = padded ? acts->tape->d_x : acts->d_x;
    run_experts(acts, backward_piece);
    if (padded) {
        memset(acts->trace->d_gate + acts->rows * P, 0, (rows - acts->rows) * P * sizeof(float));
        memset(d_x, 0, rows * D * sizeof(*d_x));
    }
    reef_router_backward(&acts->router, params_of(acts), mode_of(acts), acts->view->workers, rows,
                         padded ? pad(acts) : acts->x, pieces, &acts->trace->tape,
                         acts->trace->d_gate, d_x, grads);
    if (padded) reef_axpy(acts->rows * D, acts->d_x, 1.0f, d_x);
}

static reef_status check_tape(const reef_layer_view *view,
                              const reef_layer_tape *tape,
                              reef_error *err) {
    if (!tape->filled || tape->layer != view->layer->number)
        return reef_fail(err, REEF_ERR_INVALID,
                         "the tape has no forward of this layer to go back through; each backward "
                         "needs a forward of its own");
    if (tape->version != view->layer->version)
        return reef_fail(
            err, REEF_ERR_INVALID,
            "the layer has changed since the tape's forward; run the backward of every "
            "forward before the step");
    return REEF_OK;
}

static reef_status check_arrays(
    size_t rows, size_t D, const float *x, const float *d_y, const float *d_x, reef_error *err) {
    if (overlap(d_x, x, rows * D) || overlap(d_x, d_y, rows * D))
        return reef_fail(err, REEF_ERR_INVALID,
                         "d_x of a backward lies in the memory of x or d_y; give another");
    // One such value would spoil all parameters, and for good.
    for (size_t i = 0; i < rows * D; i++)
        if (!isfinite(d_y[i]))
            return reef_fail(err, REEF_ERR_INVALID, "the gradient of row %zu of %zu is not finite",
                             i / D, rows);
    return REEF_OK;
}

reef_status reef_layer_back(const reef_layer_view *view,
                            reef_layer_tape *tape,
                            const float *x,
                            const float *d_y,
                            float *d_x,
                            reef_error *err) {
    // A tape can be used for one backward pass, with the view that filled it.
    reef_status status = check_tape(view, tape, err);
    if (status != REEF_OK) return status;
    size_t rows = tape->rows, D = view->network->config.d_model;
    status = check_arrays(rows, D, x, d_y, d_x, err);
    // Reserved before anything is changed: a failure leaves gradients as they were.
    if (status == REEF_OK && tape->train) status = reef_layer_collect_reserve(view, rows, err);
    if (status != REEF_OK) return status;
    // From here on the tape is used up.
    tape->filled = false;
    if (rows == 0) return REEF_OK;
    // Generations add to it one after the other.
    memset(d_x, 0, rows * D * sizeof(*d_x));
    for (size_t g = 0; g < tape->generations; g++) {
        layer_pass acts = pass_of(view, tape, g);
        acts.trace = &tape->traces[g];
        // A generation that did not run adds nothing.
        if (!acts.trace->ran) continue;
        acts.rows = rows;
        acts.x = x;
        acts.d_y = d_y;
        acts.d_x = d_x;
        // Rows that did not reach this generation are masked.
        acts.active = tape->mask == NULL ? NULL : tape->mask + g * rows;
        // Only the open generation of a training pass has gradients.
        acts.learns = tape->train && acts.generation->open;
        backward_generation(&acts,
                            acts.learns ? &view->network->generations[g]->grads.routers[0] : NULL);
    }
    // The rows are kept until the step, which takes them in one batch.
    if (tape->train) reef_layer_collect(view, tape, x, d_y);
    return REEF_OK;
}
