// Forward and backward of a layer by itself: the same router and experts that a model's passes call, generation
// by generation, on the caller's rows.
//
// What always holds: y of a row is summed over generations in their order, so as of g it has the bits that it had
// when g was the last; what is sealed or evaluated is routed in whole pieces, padded where the caller's rows are
// none, so its bits do not depend on the rows beside it. Batch statistics are those of the caller's rows alone,
// which are therefore not padded. Without a tape rows are computed in stretches, so memory is bounded.
#include "layer_internal.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { STRETCH_ROWS = 4096 }; // whole pieces

reef_status reef_layer_new(reef_layer **out, reef_error *err) {
    *out = calloc(1, sizeof **out);
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

// ---- one pass ------------------------------------------------------------------------------------

/** One generation's part of a pass over rows. */
typedef struct layer_pass {
    const reef_layer_view *view;
    const reef_gen *gen;
    const reef_peer *peer;
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
    const reef_gen *gen = view->net->gens[g];
    const reef_config *config = &view->net->config;
    return (layer_pass){
        .view = view,
        .gen = gen,
        .peer = &gen->peers[0],
        .tape = tape,
        .router = reef_gen_shape(config, gen->info.side),
        .experts = reef_gen_expert_shape(config, 0),
    };
}

static size_t piece_count(size_t rows) {
    return (rows + REEF_LAYER_PIECE - 1) / REEF_LAYER_PIECE;
}

static size_t piece_rows(const layer_pass *pass, size_t piece) {
    size_t rest = pass->rows - piece * REEF_LAYER_PIECE;
    return rest < REEF_LAYER_PIECE ? rest : REEF_LAYER_PIECE;
}

static bool is_any(const uint8_t *active, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (active[i]) return true;
    return false;
}

// The pieces in which the generation takes part; NULL where in all.
static const uint8_t *active_pieces(const layer_pass *pass) {
    if (pass->active == NULL || pass->learns) return NULL;
    uint8_t *pieces = pass->tape->piece_active;
    for (size_t p = 0; p < piece_count(pass->rows); p++)
        pieces[p] = is_any(pass->active + p * REEF_LAYER_PIECE, piece_rows(pass, p));
    return pieces;
}

// Is the router given whole pieces, though the caller's rows are none?
static bool is_padded(const layer_pass *pass) {
    return !pass->learns && pass->rows % REEF_LAYER_PIECE != 0;
}

static size_t routed_rows(const layer_pass *pass) {
    return is_padded(pass) ? piece_count(pass->rows) * REEF_LAYER_PIECE : pass->rows;
}

static reef_router_mode mode_of(const layer_pass *pass) {
    return pass->learns ? REEF_ROUTER_TRAIN : REEF_ROUTER_FOLDED;
}

static const reef_router_params *params_of(const layer_pass *pass) {
    return pass->gen->open && !pass->learns ? &pass->gen->folded[0]
                                            : &pass->gen->weights.routers[0];
}

// The caller's rows and then zeros.
static const float *pad(const layer_pass *pass) {
    size_t D = pass->experts.D, floats = pass->rows * D;
    memcpy(pass->tape->x, pass->x, floats * sizeof(float));
    memset(pass->tape->x + floats, 0, (routed_rows(pass) - pass->rows) * D * sizeof(float));
    return pass->tape->x;
}

static void run_experts(const layer_pass *pass, void (*work)(void *context, size_t piece)) {
    reef_pager *pager = pass->peer->memory == NULL ? pass->view->pager : NULL;
    const reef_pager_request request = {
        .rows = &pass->peer->rows,
        .row_bytes = pass->peer->row_values * reef_rows_value_bytes(pass->peer->rows.dtype),
        .tokens = pass->rows,
        .P = pass->experts.P,
        .indices = pass->trace->tape.indices,
        .active = pass->active,
    };
    if (pager != NULL) reef_pager_start(pager, &request);
    reef_workers_run(pass->view->workers, piece_count(pass->rows), work, (void *)pass);
    if (pager != NULL) reef_pager_finish(pager);
}

// ---- forward -------------------------------------------------------------------------------------

static void forward_piece(void *context, size_t piece) {
    const layer_pass *pass = context;
    const reef_layer_trace *trace = pass->trace;
    size_t row = piece * REEF_LAYER_PIECE, P = pass->experts.P, D = pass->experts.D;
    size_t hidden = row * reef_expert_hidden_values(&pass->experts);
    reef_experts_forward(&pass->experts, piece_rows(pass, piece), pass->y + row * D,
                         trace->backward ? trace->hidden + hidden : NULL, pass->x + row * D,
                         trace->tape.indices + row * P, trace->tape.gate + row * P,
                         &pass->peer->rows, pass->active == NULL ? NULL : pass->active + row);
}

static reef_status forward_generation(const layer_pass *pass, reef_error *err) {
    if (pass->active != NULL && !is_any(pass->active, pass->rows)) return REEF_OK;
    const uint8_t *pieces = active_pieces(pass);
    reef_status status = reef_router_forward(
        &pass->router, params_of(pass), mode_of(pass), pass->view->workers, routed_rows(pass),
        is_padded(pass) ? pad(pass) : pass->x, pieces, &pass->trace->tape, err);
    if (status != REEF_OK) return status;
    run_experts(pass, forward_piece);
    pass->trace->ran = true;
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
        reef_layer_tape_reserve(tape, view->net, generations, rows.rows, keep, err);
    if (status != REEF_OK) return status;
    memset(rows.y, 0, rows.rows * view->net->config.d_model * sizeof *rows.y);
    for (size_t g = 0; status == REEF_OK && g < generations; g++) {
        layer_pass pass = pass_of(view, tape, g);
        pass.rows = rows.rows;
        pass.x = rows.x;
        pass.y = rows.y;
        pass.active = rows.active == NULL ? NULL : rows.active + g * stride;
        pass.learns = choice->train && pass.gen->open;
        status = reef_layer_tape_trace(&pass.trace, tape, view->net, g, rows.rows, keep, err);
        if (status == REEF_OK) status = forward_generation(&pass, err);
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

static void fill(reef_layer_tape *tape,
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
    if (status == REEF_OK) fill(tape, view, choice, rows);
    return status;
}

static reef_status run_stretches(const reef_layer_view *view,
                                 const reef_layer_choice *choice,
                                 size_t rows,
                                 const float *x,
                                 float *y,
                                 reef_error *err) {
    size_t D = view->net->config.d_model;
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
    uintptr_t at_a = (uintptr_t)a, at_b = (uintptr_t)b, bytes = count * sizeof *a;
    return at_a < at_b + bytes && at_b < at_a + bytes;
}

static reef_status check_choice(const reef_layer_view *view,
                                reef_layer_choice *choice,
                                size_t rows,
                                const reef_layer_tape *tape,
                                reef_error *err) {
    size_t count = view->net->gen_count;
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
        if (tape != NULL) fill(tape, view, &chosen, 0);
        return REEF_OK;
    }
    if (overlap(x, y, rows * view->net->config.d_model))
        return reef_fail(err, REEF_ERR_INVALID,
                         "y of a forward lies in the memory of x; give another");
    reef_gen *last = view->net->gens[view->net->gen_count - 1];
    if (view->layer->fold_is_stale && last->open) reef_gen_fold(last, &view->net->config);
    view->layer->fold_is_stale = false;
    return tape != NULL ? run_kept(view, &chosen, rows, x, y, tape, err)
                        : run_stretches(view, &chosen, rows, x, y, err);
}

// ---- backward ------------------------------------------------------------------------------------

static void backward_piece(void *context, size_t piece) {
    const layer_pass *pass = context;
    const reef_layer_trace *trace = pass->trace;
    size_t row = piece * REEF_LAYER_PIECE, P = pass->experts.P, D = pass->experts.D;
    size_t hidden = row * reef_expert_hidden_values(&pass->experts);
    float *factors =
        pass->learns ? trace->factors + row * P * reef_expert_vectors(&pass->experts) : NULL;
    reef_experts_backward(&pass->experts, piece_rows(pass, piece), pass->d_x + row * D,
                          trace->d_gate + row * P, factors, pass->d_y + row * D,
                          trace->hidden + hidden, trace->tape.indices + row * P,
                          trace->tape.gate + row * P, &pass->peer->rows,
                          pass->active == NULL ? NULL : pass->active + row);
}

static void backward_generation(const layer_pass *pass, reef_router_params *grads) {
    size_t D = pass->experts.D, P = pass->experts.P, rows = routed_rows(pass);
    const uint8_t *pieces = active_pieces(pass);
    bool padded = is_padded(pass);
    float *d_x = padded ? pass->tape->d_x : pass->d_x;
    run_experts(pass, backward_piece);
    if (padded) {
        memset(pass->trace->d_gate + pass->rows * P, 0, (rows - pass->rows) * P * sizeof(float));
        memset(d_x, 0, rows * D * sizeof *d_x);
    }
    reef_router_backward(&pass->router, params_of(pass), mode_of(pass), pass->view->workers, rows,
                         padded ? pad(pass) : pass->x, pieces, &pass->trace->tape,
                         pass->trace->d_gate, d_x, grads);
    if (padded) reef_axpy(pass->rows * D, pass->d_x, 1.0f, d_x);
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
    reef_status status = check_tape(view, tape, err);
    if (status != REEF_OK) return status;
    size_t rows = tape->rows, D = view->net->config.d_model;
    status = check_arrays(rows, D, x, d_y, d_x, err);
    if (status == REEF_OK && tape->train) status = reef_layer_collect_reserve(view, rows, err);
    if (status != REEF_OK) return status;
    tape->filled = false;
    if (rows == 0) return REEF_OK;
    memset(d_x, 0, rows * D * sizeof *d_x);
    for (size_t g = 0; g < tape->generations; g++) {
        layer_pass pass = pass_of(view, tape, g);
        pass.trace = &tape->traces[g];
        if (!pass.trace->ran) continue;
        pass.rows = rows;
        pass.x = x;
        pass.d_y = d_y;
        pass.d_x = d_x;
        pass.active = tape->mask == NULL ? NULL : tape->mask + g * rows;
        pass.learns = tape->train && pass.gen->open;
        backward_generation(&pass, pass.learns ? &view->net->gens[g]->grads.routers[0] : NULL);
    }
    if (tape->train) reef_layer_collect(view, tape, x, d_y);
    return REEF_OK;
}
