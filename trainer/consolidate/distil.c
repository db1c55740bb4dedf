// The samples: windows of the reservoir, the teacher's distribution of the next byte on them, and
// the student's steps, which are ordinary training steps with another gradient of the logits.
//
// The student is trained where one of the old generations fires, and held to silence where its gate
// leaks onto other text. Its target is the mean of the true byte and the teacher's distribution.
// Where an old generation fires on text of a later one, that text teaches too, with the later one
// on top: it was trained on top of just that.
#include "distil.h"

#include "batch.h"
#include "gate_refit.h"
#include "reef_random.h"
#include "step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TEACHER_SHARE 0.5f // of the target
#define WARMUP_SHARE 0.05  // of the steps, over which the rate rises; then it falls to 0
enum { STREAM_DISTIL_SAMPLE = 401, STREAM_SILENCE = 402 };

typedef struct distiller {
    const reef_distil *distil;
    // a trainer of all other generations and, last, the new one; no stream, no store
    reef_trainer student;
    reef_generation **generations; // of its model: the pool's, but the last two
    reef_generation *open;         // sealed twin of the pool's open generation; the last but one
    reef_generation *fresh;        // the new one
    const reef_network *teacher;
    size_t *taught, *silent; // indices in `samples`
    size_t taught_count, silent_count;
    uint8_t *fire;  // (generations, rows) where the teacher's take part
    float *margins; // (T) scratch
    size_t stride;  // rows of a batch
} distiller;

uint32_t reef_distil_owner(const reef_network *network, uint32_t generation) {
    while (generation + 1 < network->generation_count &&
           reef_generation_is_empty(&network->generations[generation]->info))
        generation++;
    return generation;
}

// `size` in tokens.
static const uint8_t *sample_bytes(const distiller *s, const reef_sample *sample, size_t *size) {
    const reef_reservoir *reservoir = &s->distil->trainer->reservoir;
    *size = reservoir->sizes[sample->slot] / reservoir->token_bytes;
    return reservoir->bytes + sample->slot * reservoir->window_bytes;
}

// ---- the gate -----------------------------------------------------------------------------------

static void list_windows(const distiller *s,
                         reef_gate_windows *out,
                         const uint8_t **bytes,
                         size_t *sizes,
                         const size_t *indices,
                         size_t count,
                         size_t from,
                         size_t step) {
    size_t n = 0;
    // `step` 2 takes every other window: one half fits the gate, the other calibrates its
    // threshold. Calibrating on the fitting half would underestimate the leak.
    for (size_t i = from; i < count; i += step) {
        const reef_sample *sample = &s->distil->samples[indices[i]];
        bytes[n] = sample_bytes(s, sample, &sizes[n]);
        n++;
    }
    *out = (reef_gate_windows){.count = n, .bytes = bytes, .sizes = sizes};
}

static reef_status fit_gate(const distiller *s, reef_generation *generation, reef_error *err) {
    // One allocation for three lists, each as long as all windows: no list can be longer.
    size_t most = s->taught_count + s->silent_count;
    const uint8_t **bytes = calloc(3 * most, sizeof(*bytes));
    size_t *sizes = calloc(3 * most, sizeof(*sizes));
    reef_status status = REEF_OK;
    if (bytes == NULL || sizes == NULL) {
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to list %zu windows", most);
        goto cleanup;
    }
    reef_gate_windows fit_on, calibrate, young;
    list_windows(s, &fit_on, bytes, sizes, s->silent, s->silent_count, 0, 2);
    list_windows(s, &calibrate, bytes + most, sizes + most, s->silent, s->silent_count, 1, 2);
    list_windows(s, &young, bytes + 2 * most, sizes + 2 * most, s->taught, s->taught_count, 0, 1);
    // Generations first to last leave the model: what is older than the new one is older than them.
    status = reef_generation_fit_gate(generation, s->distil->trainer, s->distil->first, &fit_on,
                                      &calibrate, &young, err);

cleanup:
    free(bytes);
    free(sizes);
    return status;
}

// ---- one batch ----------------------------------------------------------------------------------

// Where the teacher's generations take part in the T tokens at `at` of a window, which is read from
// its start. With `own`, it is the model as the text's own generation was trained: forced open, and
// those after it silent.
static reef_status teacher_fires(
    distiller *s, size_t w, uint32_t own, const uint8_t *bytes, size_t at, reef_error *err) {
    size_t T = s->teacher->config.context;
    reef_trainer *trainer = s->distil->trainer;
    reef_batch batch;
    bool answered;
    // Read from the start of the window, not from `at`: evidence of a gate adds up over hundreds of
    // bytes, and would be missing at its first token.
    reef_status status = reef_step_read(trainer, s->teacher, bytes, at + T, &batch, &answered, err);
    if (status != REEF_OK) return status;
    for (size_t g = 1; g < s->teacher->generation_count; g++) {
        uint8_t *fire = s->fire + g * s->stride + w * T;
        memcpy(fire, reef_step_read_fire(trainer, g) + at, T);
        // The sample is a text of generation `own`. As of that generation later ones did not exist,
        // so they are silent.
        if (g >= own) memset(fire, g == own, T);
    }
    return REEF_OK;
}

static bool is_replaced(const reef_distil *d, size_t g) {
    return g >= d->first && g <= d->last;
}

static uint8_t *student_fire(const distiller *s, size_t g, size_t w) {
    return s->student.fire + g * s->stride + w * s->teacher->config.context;
}

// The student's other generations fire as the teacher's.
static void others_fire(distiller *s, size_t w) {
    size_t T = s->teacher->config.context, mine = 1;
    for (size_t g = 1; g < s->teacher->generation_count; g++)
        if (!is_replaced(s->distil, g))
            memcpy(student_fire(s, mine++, w), s->fire + g * s->stride + w * T, T);
}

// The new one fires where one of those it replaces does.
static void fresh_fires(distiller *s, size_t w) {
    size_t T = s->teacher->config.context;
    uint8_t *mine = student_fire(s, s->student.network.generation_count - 1, w);
    memset(mine, 0, T);
    for (size_t g = s->distil->first; g <= s->distil->last; g++)
        for (size_t t = 0; t < T; t++) mine[t] |= s->fire[g * s->stride + w * T + t];
}

static void add_distil_sample(distiller *s, size_t w, const uint8_t *bytes) {
    const reef_config *config = &s->distil->trainer->network.config;
    size_t each = reef_token_bytes(config), size = config->context * each;
    memcpy(s->student.tokens + w * size, bytes, size);
    memcpy(s->student.targets + w * size, bytes + each, size);
}

static reef_status add_samples(distiller *s, size_t w, uint64_t counter, reef_error *err) {
    const reef_distil *d = s->distil;
    const reef_config *config = &d->trainer->network.config;
    size_t size, T = config->context, each = reef_token_bytes(config);
    // Two draws per window, numbered by the step: which windows a run sees depends on the seed and
    // the step alone, not on threads or restarts.
    uint64_t drawn = reef_random_below(config->seed, STREAM_DISTIL_SAMPLE, 2 * counter,
                                       (uint64_t)s->taught_count);
    const reef_sample *sample = &d->samples[s->taught[drawn]];
    const uint8_t *bytes = sample_bytes(s, sample, &size);
    size_t at =
        (size_t)reef_random_below(config->seed, STREAM_DISTIL_SAMPLE, 2 * counter + 1, size - T);
    add_distil_sample(s, w, bytes + at * each);
    reef_status status = teacher_fires(s, w, sample->generation, bytes, at, err);
    others_fire(s, w);
    fresh_fires(s, w);
    return status;
}

// Other text on which the student's gate leaks becomes a window of the retain term, as in training:
// the loss counts as that of old data.
static reef_status add_silence(
    distiller *s, size_t w, uint64_t step, size_t *count, reef_error *err) {
    const reef_distil *d = s->distil;
    const reef_config *config = &d->trainer->network.config;
    size_t T = config->context, each = reef_token_bytes(config), size;
    const reef_gate *gate = &s->fresh->gate;
    uint8_t *mine = student_fire(s, s->student.network.generation_count - 1, w);
    // Without a retain weight the loss ignores such windows; they would cost a pass for nothing.
    uint64_t candidates = config->retain_weight > 0.0f ? REEF_RETAIN_CANDIDATES : 0;
    *count = 0;
    if (s->silent_count == 0) return REEF_OK;
    for (uint64_t i = 0; i < candidates; i++) {
        uint64_t counter = step * REEF_RETAIN_CANDIDATES + i;
        const reef_sample *sample = &d->samples[s->silent[reef_random_below(
            config->seed, STREAM_SILENCE, counter, (uint64_t)s->silent_count)]];
        const uint8_t *bytes = sample_bytes(s, sample, &size);
        reef_gate_state state;
        reef_gate_reset(gate, &state);
        // The first leaking stretch of the first leaking candidate is taken. Searching for the
        // worst one would score every window at every step.
        for (size_t at = 0; at + T < size; at += T) {
            size_t fired = 0;
            reef_gate_score(gate, &state, T, bytes + at * each, s->margins);
            for (size_t t = 0; t < T; t++) fired += mine[t] = s->margins[t] > 0.0f;
            if (fired == 0) continue;
            *count = 1;
            add_distil_sample(s, w, bytes + at * each);
            // UINT32_MAX: no generation is the window's own, every gate decides for itself.
            reef_status status = teacher_fires(s, w, UINT32_MAX, bytes, at, err);
            others_fire(s, w);
            return status;
        }
    }
    return REEF_OK;
}

static reef_status teach(distiller *s, size_t windows, reef_error *err) {
    reef_batch batch = {
        .windows = windows,
        .tokens = s->student.tokens,
        .fire = s->fire,
        .fire_stride = s->stride,
    };
    return reef_network_forward(&s->distil->trainer->acts, s->teacher, s->student.workers, &batch,
                                REEF_PASS_EVALUATE, err);
}

// The forward left w (p - onehot), the gradient of w times the cross-entropy with the true token.
// With q = TEACHER_SHARE, the gradient for a mixed target becomes w (p - (1 - q) onehot - q
// teacher).
static void blend_window(void *context, size_t w) {
    distiller *s = context;
    const reef_config *config = &s->distil->trainer->network.config;
    size_t T = config->context, V = config->vocab, each = reef_token_bytes(config);
    // In place: the teacher's logits and the student's are both scratch of this pass.
    for (size_t t = w * T; t < (w + 1) * T; t++) {
        float *teacher = s->distil->trainer->acts.logits + t * V;
        float *gradient = s->student.acts.logits + t * V;
        float weight = s->student.weight[t] * TEACHER_SHARE;
        reef_softmax(V, teacher);
        reef_axpy(V, gradient, -weight, teacher);
        gradient[reef_token_at(s->student.targets, each, t)] += weight;
    }
}

static float rate_at(const reef_distil *d, uint64_t step) {
    double warmup = WARMUP_SHARE * (double)d->steps, done = (double)step;
    double rise = done < warmup ? (done + 1.0) / (warmup + 1.0) : 1.0;
    double fall = 1.0 - done / (double)d->steps;
    return d->trainer->network.config.learning_rate * (float)(rise * fall);
}

static reef_status step(distiller *s, uint64_t number, double *bits, reef_error *err) {
    const reef_distil *d = s->distil;
    reef_config *config = &s->student.network.config;
    size_t T = config->context, windows = (size_t)config->batch + config->rehearse;
    reef_status status = REEF_OK;
    for (size_t w = 0; status == REEF_OK && w < windows; w++)
        // Windows are numbered through all steps, so no two of them draw the same random numbers.
        status = add_samples(s, w, number * windows + w, err);
    if (status == REEF_OK) status = teach(s, windows, err);
    size_t retained = 0;
    if (status == REEF_OK) status = add_silence(s, windows, number, &retained, err);
    if (status != REEF_OK) return status;
    // Every token weighs the same, and windows of the retain term have no loss of their own.
    for (size_t i = 0; i < windows * T; i++) s->student.weight[i] = 1.0f / (float)(windows * T);
    memset(s->student.weight + windows * T, 0, retained * T * sizeof(float));
    reef_batch batch = {
        .windows = windows + retained,
        .retain_windows = retained,
        .tokens = s->student.tokens,
        .targets = s->student.targets,
        .weight = s->student.weight,
        .fire = s->student.fire,
        .fire_stride = s->stride,
    };
    status = reef_network_forward(&s->student.acts, &s->student.network, s->student.workers, &batch,
                                  REEF_PASS_TRAIN, err);
    if (status != REEF_OK) return status;
    reef_thread_pool_run(s->student.workers, windows, blend_window, s);
    // The optimiser reads from the trainer struct how many windows of each kind the step has.
    s->student.rehearse_windows = config->rehearse;
    s->student.retain_windows = retained;
    // The schedule is that of distillation, not of the stream; warm-up and decay of the config are
    // off.
    config->learning_rate = rate_at(d, number);
    reef_step_backward(&s->student);
    s->student.generation_step++;
    // forward left nats per token; people read bits per byte or per token.
    double nats = 0.0;
    for (size_t i = 0; i < windows * T; i++) nats += s->student.acts.loss[i];
    *bits = nats / log(2.0) / (double)(windows * T);
    return REEF_OK;
}

// ---- the distiller ------------------------------------------------------------------------------

static void release_distiller(distiller *s) {
    reef_activations_release(&s->student.acts);
    reef_generation_free(s->open);
    reef_generation_free(s->fresh);
    free(s->generations);
    free(s->student.tokens);
    free(s->student.targets);
    free(s->student.weight);
    free(s->student.fire);
    free(s->student.margins);
    free(s->student.reading);
    free(s->taught);
    free(s->silent);
    free(s->fire);
    free(s->margins);
}

static reef_status allocate_distiller(distiller *s, reef_error *err) {
    const reef_distil *d = s->distil;
    const reef_config *config = &s->student.network.config;
    size_t windows = reef_step_windows(config), generations = s->teacher->generation_count;
    // The student replaces `last - first + 1` generations by one.
    size_t mine =
        generations - (d->last - d->first); // all but those that are replaced, and the new one
    s->stride = windows * config->context;
    s->generations = calloc(mine, sizeof(*s->generations));
    s->student.tokens = calloc(s->stride, reef_token_bytes(config));
    s->student.targets = calloc(s->stride, reef_token_bytes(config));
    s->student.weight = calloc(s->stride, sizeof(*s->student.weight));
    s->taught = calloc(d->sample_count + 1, sizeof(*s->taught));
    s->silent = calloc(d->sample_count + 1, sizeof(*s->silent));
    s->fire = calloc(generations, s->stride);
    s->margins = calloc(config->context, sizeof(*s->margins));
    // One check for all: release_distiller accepts whatever was allocated.
    if (s->generations == NULL || s->student.tokens == NULL || s->student.targets == NULL ||
        s->student.weight == NULL || s->taught == NULL || s->silent == NULL || s->fire == NULL ||
        s->margins == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to distil generations %u to %u",
                         d->first, d->last);
    reef_status status = reef_step_reserve(&s->student, mine, err);
    if (status == REEF_OK)
        status = reef_activations_init(&s->student.acts, config, windows, true, err);
    return status;
}

// The new generation, open: it replaces the last one, with the ids of all.
static reef_status enrol(distiller *s, reef_error *err) {
    const reef_distil *d = s->distil;
    const reef_network *network = &d->trainer->network;
    const reef_generation *oldest = network->generations[reef_distil_owner(network, d->first)];
    reef_generation_record info = network->generations[d->last]->info;
    // The new generation continues the lineage of the oldest that it replaces.
    info.parent = oldest->info.parent;
    info.first_id = oldest->info.first_id;
    info.side = d->side;
    info.dtype = REEF_F32;
    info.sealed = false;
    // The root of the last one is not its own; sealing computes a new one.
    memset(info.root, 0, sizeof(info.root));
    reef_status status = reef_generation_new(&s->fresh, &s->student.network.config, &info, err);
    if (status != REEF_OK) return status;
    // Queries start as those of the open generation; sub-keys, experts and deltas are then copied
    // from the merged ones.
    reef_generation_initialise(s->fresh, &s->student.network.config,
                               reef_open_generation(d->trainer));
    return reef_distil_start(d, s->fresh, err);
}

// The pool's open generation as it was committed, sealed, so that a pass treats it as any other.
// Without training state: what is stored as its weights is what is evaluated.
static reef_status copy_open(distiller *s, reef_error *err) {
    const reef_network *network = &s->distil->trainer->network;
    uint32_t number = (uint32_t)network->generation_count - 1;
    reef_config config = network->config;
    config.context_memory = 0; // its memory takes no part
    reef_txn *txn = NULL;
    reef_generation *copy = NULL;
    // From the pool instead of from memory: the commit before has just written it, and a sealed
    // copy has no optimiser state to leave out.
    reef_status status = reef_txn_begin(&txn, s->distil->trainer->store, REEF_TXN_READ, err);
    if (status != REEF_OK) return status;
    const reef_checkpoint_source source = {.number = number, .records = number};
    status = reef_checkpoint_load(&copy, txn, &config, &source, NULL, err);
    reef_txn_abort(txn);
    if (status == REEF_OK)
        status = reef_generation_make_sealed(&s->open, copy, &network->config, REEF_F32, err);
    reef_generation_free(copy);
    return status;
}

static void assemble_student(distiller *s) {
    reef_network *network = &s->student.network;
    network->generations = s->generations;
    for (size_t g = 0; g + 1 < s->teacher->generation_count; g++)
        if (!is_replaced(s->distil, g))
            network->generations[network->generation_count++] = s->teacher->generations[g];
    network->generations[network->generation_count++] = s->open;
    network->generations[network->generation_count++] = s->fresh;
    network->generation_capacity = network->generation_count;
}

static void sort_samples(distiller *s) {
    const reef_distil *d = s->distil;
    for (size_t i = 0; i < d->sample_count; i++) {
        const reef_sample *sample = &d->samples[i];
        if (!reef_sample_is_used(sample, d->trainer)) continue;
        if (sample->taught)
            s->taught[s->taught_count++] = i;
        else
            s->silent[s->silent_count++] = i;
    }
}

// The range of the new generation: the widest of the old ones.
static void inherit_reference(const reef_distil *d, reef_generation *generation) {
    const reef_network *network = &d->trainer->network;
    double most = -1.0;
    // The drift limit of a generation is its median loss plus a tolerance. The merged generation
    // serves all of their text, so the most tolerant of them is right for it.
    for (uint32_t g = d->first; g <= d->last; g++) {
        const reef_generation *old = network->generations[g];
        double limit =
            reef_drift_limit(old->reference_median, old->reference_spread, &network->config);
        if (reef_generation_is_empty(&old->info) || limit <= most) continue;
        most = limit;
        generation->reference_median = old->reference_median;
        generation->reference_spread = old->reference_spread;
    }
}

reef_status reef_distil_run(const reef_distil *distil, reef_generation **out, reef_error *err) {
    *out = NULL;
    distiller *s = calloc(1, sizeof(*s));
    if (s == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to distil generations");
    s->distil = distil;
    // The student is a reef_trainer without a pool: it has config, network and activations, which
    // is all that a step needs. The copy of the config may be changed freely.
    s->student.network.config = distil->trainer->network.config;
    s->student.network.config.warmup = 0; // the rate of each step is set by rate_at
    s->student.network.config.decay = UINT32_MAX;
    s->student.network.config.average =
        0.0f; // a rate that falls to 0 leaves nothing to average away
    s->student.network.config.context_memory = 0; // memories learn by themselves, afterwards
    s->student.workers = distil->trainer->workers;
    s->teacher = &distil->trainer->network;
    reef_status status = allocate_distiller(s, err);
    if (status != REEF_OK) goto cleanup;
    // Rows of sealed generations may lie in the map; whoever fetches them for the trainer fetches
    // them for the student.
    s->student.acts.prefetch = distil->trainer->acts.prefetch;
    sort_samples(s);
    status = enrol(s, err);
    // The gate is fitted before the experts learn, because it decides on which tokens they will
    // train.
    if (status == REEF_OK) status = fit_gate(s, s->fresh, err);
    if (status == REEF_OK) status = copy_open(s, err);
    if (status == REEF_OK) assemble_student(s);
    for (uint64_t n = 0; status == REEF_OK && n < distil->steps; n++) {
        double bits = 0.0;
        status = step(s, n, &bits, err);
        if (status == REEF_OK && distil->progress != NULL)
            distil->progress(distil->context, n + 1, distil->steps, bits);
    }
    if (status == REEF_OK) status = reef_distil_memory(distil, &s->fresh->memory, err);
    if (status != REEF_OK) goto cleanup;
    inherit_reference(distil, s->fresh);
    status =
        reef_generation_make_sealed(out, s->fresh, &s->student.network.config, distil->dtype, err);

cleanup:
    release_distiller(s);
    free(s);
    return status;
}
