// Memory of one forward of a layer by itself. It only ever grows: a tape that is used again for as
// many rows of layers with the same sizes allocates nothing.
#include "layer_internal.h"

#include <stdlib.h>
#include <string.h>

// Where no backward follows all generations but the first, whose sides are mostly the same, share
// one trace.
enum { SHARED_TRACES = 2 };

static size_t whole_pieces(size_t rows) {
    return (rows + REEF_LAYER_PIECE - 1) / REEF_LAYER_PIECE * REEF_LAYER_PIECE;
}

static void release_trace(reef_layer_trace *trace) {
    reef_router_tape_release(&trace->tape);
    free(trace->hidden);
    free(trace->d_gate);
    free(trace->factors);
    *trace = (reef_layer_trace){0};
}

void reef_layer_tape_release(reef_layer_tape *tape) {
    for (size_t g = 0; g < tape->trace_count; g++) release_trace(&tape->traces[g]);
    free(tape->traces);
    free(tape->x);
    free(tape->d_x);
    free(tape->piece_active);
    free(tape->mask);
    *tape = (reef_layer_tape){0};
}

reef_status reef_layer_tape_new(reef_layer_tape **out, reef_error *err) {
    *out = calloc(1, sizeof(**out));
    return *out != NULL ? REEF_OK : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a tape");
}

void reef_layer_tape_free(reef_layer_tape *tape) {
    if (tape == NULL) return;
    reef_layer_tape_release(tape);
    free(tape);
}

// A generation that grew, or a tape of more rows, needs another one; so does the first backward.
static bool trace_fits(const reef_layer_trace *trace,
                       const reef_generation *generation,
                       size_t rows,
                       bool keep) {
    bool learns = keep && generation->open;
    return trace->side == generation->info.side && trace->rows_max >= rows &&
           (trace->backward || !keep) && (trace->factors != NULL || !learns);
}

static reef_status make_trace(reef_layer_trace *trace,
                              const reef_config *config,
                              const reef_generation *generation,
                              size_t rows,
                              bool keep,
                              reef_error *err) {
    reef_router_shape shape = reef_generation_shape(config, generation->info.side);
    reef_expert_shape experts = reef_generation_expert_shape(config, 0);
    // Before the new arrays are made: both at once may not fit.
    release_trace(trace);
    reef_status status =
        reef_router_tape_init(&trace->tape, &shape, rows, REEF_LAYER_PIECE, keep, err);
    // Without a backward the tape is all. After an error rows_max 0 makes the next call try again.
    if (status != REEF_OK || !keep) {
        trace->side = generation->info.side;
        trace->rows_max = status == REEF_OK ? rows : 0;
        return status;
    }
    trace->hidden = malloc(rows * reef_expert_hidden_values(&experts) * sizeof(float));
    trace->d_gate = malloc(rows * experts.P * sizeof(float));
    // Factors are for the update of rows, and only the open generation has one.
    if (generation->open)
        trace->factors = malloc(rows * experts.P * reef_expert_vectors(&experts) * sizeof(float));
    if (trace->hidden == NULL || trace->d_gate == NULL ||
        (generation->open && trace->factors == NULL)) {
        release_trace(trace);
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a pass over %zu rows", rows);
    }
    // Last: trace_fits believes these, so they describe complete arrays only.
    trace->side = generation->info.side;
    trace->rows_max = rows;
    trace->backward = true;
    return REEF_OK;
}

static reef_status reserve_padded(reef_layer_tape *tape, size_t rows, size_t D, reef_error *err) {
    if (rows <= tape->padded_max) return REEF_OK;
    free(tape->x);
    free(tape->d_x);
    free(tape->piece_active);
    tape->padded_max = 0;
    tape->x = malloc(rows * D * sizeof(float));
    tape->d_x = malloc(rows * D * sizeof(float));
    tape->piece_active = malloc(rows / REEF_LAYER_PIECE);
    if (tape->x == NULL || tape->d_x == NULL || tape->piece_active == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a pass over %zu rows", rows);
    tape->padded_max = rows;
    return REEF_OK;
}

static bool is_for(const reef_layer_tape *tape,
                   const reef_router_shape *router,
                   const reef_expert_shape *experts) {
    const reef_router_shape *own = &tape->router;
    return own->d_model == router->d_model && own->head_count == router->head_count &&
           own->topk == router->topk && own->d_key == router->d_key &&
           own->batch_norm == router->batch_norm && own->head_keys == router->head_keys &&
           own->score == router->score && tape->experts.kind == experts->kind;
}

// The next forward may be of a layer of other sizes.
static void fit_to(reef_layer_tape *tape, const reef_config *config) {
    const reef_router_shape router = reef_generation_shape(config, 0);
    const reef_expert_shape experts = reef_generation_expert_shape(config, 0);
    if (is_for(tape, &router, &experts)) return;
    reef_layer_tape_release(tape);
    tape->router = router;
    tape->experts = experts;
}

reef_status reef_layer_tape_reserve(reef_layer_tape *tape,
                                    const reef_network *network,
                                    size_t generations,
                                    size_t rows,
                                    bool keep,
                                    reef_error *err) {
    size_t count = keep ? generations : SHARED_TRACES;
    tape->filled = false;
    fit_to(tape, &network->config);
    if (count > tape->trace_count) {
        reef_layer_trace *traces = realloc(tape->traces, count * sizeof(*traces));
        if (traces == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu generations", generations);
        memset(traces + tape->trace_count, 0, (count - tape->trace_count) * sizeof(*traces));
        tape->traces = traces;
        tape->trace_count = count;
    }
    for (size_t g = 0; g < tape->trace_count; g++) tape->traces[g].ran = false;
    return reserve_padded(tape, whole_pieces(rows), network->config.d_model, err);
}

reef_status reef_layer_tape_trace(reef_layer_trace **out,
                                  reef_layer_tape *tape,
                                  const reef_network *network,
                                  size_t g,
                                  size_t rows,
                                  bool keep,
                                  reef_error *err) {
    const reef_generation *generation = network->generations[g];
    size_t padded = whole_pieces(rows);
    *out = &tape->traces[keep || g == 0 ? g : SHARED_TRACES - 1];
    if (trace_fits(*out, generation, padded, keep)) return REEF_OK;
    return make_trace(*out, &network->config, generation, padded, keep, err);
}
