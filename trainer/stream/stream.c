// From accepted bytes to trained batches.
//
// A batch is scored before it is trained on. While the drift test finds its loss in range, it is
// trained at once. An anomalous batch is deferred, and so are the batches after it. Either enough
// of them are anomalous: that is a boundary. The generation is sealed as it was before the first of
// them, and they become the first batches of the next one. Or the losses return to their range:
// then the deferred batches are trained in order, as if nothing had happened. So nothing ever has
// to be rolled back, and nothing is lost.
//
//   pending:  | deferred batch | deferred batch | next batch | part of a batch ...
//             ^ stream_bytes, gating            ^ ahead
//
// A batch that is anomalous to the open generation may be of a kind that came back. If the older
// generations, under their own gates, score it in the range of their own data, the memory of that
// kind learns it (kind_memories.h); without context memories nobody does. That condition matters
// where a gate claims what it has never seen: English, to a gate that knows it from comments in
// source code only. A batch in range is tested in the same way where the open generation's gate
// would leave most of it to the older ones: to a generation whose batches vary much hardly anything
// is anomalous. With `boundaries` `contexts` the memories decide instead (recognition.h).
//
// A marker line (marker_line.h) is a boundary at exactly its offset. Deferred batches are trained
// before it. The rest, fewer bytes than a batch and its next byte, goes with the marker line.
// Generations on both sides see nothing of each other's data, and all gates restart behind it,
// since another stream begins there. A marker line before anything was trained since the last
// boundary is only taken out of the stream.
#include "stream.h"
#include "batch.h"
#include "by_contexts.h"
#include "growth_policy.h"
#include "kind_memories.h"
#include "memory_step.h"
#include "pending.h"
#include "recognition.h"
#include "step.h"
#include "trainer_internal.h"
#include "warm_start.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Most of so many batches in a row have to be of the new kind where a change begins.
#define CHANGE_BATCHES 8
// Deferring ends when a third of a boundary's worth of batches are normal.
#define NORMAL_SHARE 3

static size_t ready_bytes(const reef_trainer *trainer) {
    const reef_config *config = &trainer->network.config;
    size_t batches = reef_recognises_by_contexts(trainer) ? reef_piece_batches(config) : 1;
    return reef_pending_deferred_bytes(trainer) + batches * reef_batch_bytes(config) +
           reef_token_bytes(config);
}

static bool batch_is_ready(const reef_trainer *trainer) {
    return reef_pending_usable_bytes(trainer) >= ready_bytes(trainer);
}

// Train on the first deferred batches without testing them again.
static reef_status train_deferred(reef_trainer *trainer,
                                  size_t count,
                                  size_t *steps,
                                  reef_error *err) {
    trainer->deferred_batches -= count;
    if (trainer->deferred_batches > 0)
        memmove(trainer->deferred_bits, trainer->deferred_bits + count,
                trainer->deferred_batches * sizeof(*trainer->deferred_bits));
    // The gates continue where training stands, not where testing had come to.
    reef_status status = reef_gating_copy(&trainer->ahead, &trainer->gating, err);
    trainer->ahead.cusum = 0.0; // they count as the open generation's
    for (size_t i = 0; status == REEF_OK && i < count; i++) {
        double bits;
        ++*steps;
        if (!reef_has_net(trainer)) {
            status = reef_pending_memorise(trainer, err);
            continue;
        }
        reef_pending_begin_net(trainer);
        status = reef_step_forward(trainer, trainer->pending, &trainer->ahead, &bits, err);
        if (status == REEF_OK) status = reef_pending_train(trainer, bits, err);
    }
    return reef_pending_settle(trainer, status, err);
}

static reef_status release_deferred(reef_trainer *trainer, size_t *steps, reef_error *err) {
    trainer->anomalous = 0;
    return train_deferred(trainer, trainer->deferred_batches, steps, err);
}

static reef_status defer_batch(reef_trainer *trainer,
                               double bits,
                               bool anomalous,
                               reef_error *err) {
    if (trainer->deferred_batches == trainer->deferred_capacity) {
        // Growth by doubling; drift_hold bounds how many batches are ever deferred.
        size_t capacity = 2 * trainer->deferred_capacity + 64;
        double *deferred_bits = realloc(trainer->deferred_bits, capacity * sizeof(*deferred_bits));
        if (deferred_bits == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to defer %zu batches", capacity);
        trainer->deferred_bits = deferred_bits;
        trainer->deferred_capacity = capacity;
    }
    // Each loss is kept: where exactly the change lies is decided when enough have been seen.
    trainer->deferred_bits[trainer->deferred_batches++] = bits;
    trainer->anomalous += anomalous;
    return REEF_OK;
}

// How many of the deferred batches still belong to what came before: an odd passage may lead up to
// the change. The change is where the loss first stays nearer to that of the later deferred batches
// than to what was normal.
static reef_status before_change(const reef_trainer *trainer, size_t *out, reef_error *err) {
    // The later half is taken as the new normal, because it is the part that is certainly behind
    // the change.
    size_t count = trainer->deferred_batches, half = count / 2;
    double normal, spread, *later = malloc((count - half) * sizeof(*later));
    if (later == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to find a boundary");
    reef_drift_level(&trainer->drift, &normal, &spread);
    memcpy(later, trainer->deferred_bits + half, (count - half) * sizeof(*later));
    // Half way between the two levels: a batch above it is more like the later ones.
    double middle = 0.5 * (normal + reef_median(later, (uint32_t)(count - half)));
    free(later);
    *out = 0;
    for (size_t first = 0; first < count; first++) {
        // One bad batch is not a change: most of the following ones must be above the middle too.
        size_t above = 0, run = count - first < CHANGE_BATCHES ? count - first : CHANGE_BATCHES;
        for (size_t i = 0; i < run; i++) above += trainer->deferred_bits[first + i] > middle;
        if (trainer->deferred_bits[first] <= middle || 2 * above <= run) continue;
        *out = first > 0 ? first - 1 : 0; // the change may be within the batch before
        break;
    }
    return REEF_OK;
}

static reef_status boundary(reef_trainer *trainer, size_t *steps, reef_error *err) {
    size_t before = 0;
    reef_status status = before_change(trainer, &before, err);
    if (status == REEF_OK) status = train_deferred(trainer, before, steps, err);
    if (status != REEF_OK) return status;
    status = reef_policy_boundary(trainer, "drift", trainer->pending,
                                  reef_pending_deferred_bytes(trainer), err);
    return status == REEF_OK ? release_deferred(trainer, steps, err) : status;
}

// The newest generation that fires on a token was trained on top of the older ones, and answers.
static size_t newest_firing(const reef_trainer *trainer, size_t t) {
    size_t g = trainer->network.generation_count - 1;
    while (g > 0 && !reef_step_fires(trainer, g, t)) g--;
    return g;
}

// What the generations that answer a batch were like when they were sealed: the mean over its
// tokens. False where the open one answers them all.
static bool reference_of(const reef_trainer *trainer, double *median, double *spread) {
    const reef_network *network = &trainer->network;
    size_t count = reef_batch_tokens(&network->config), open = network->generation_count - 1,
           old = 0;
    *median = *spread = 0.0;
    for (size_t t = 0; t < count; t++) {
        size_t g = newest_firing(trainer, t);
        if (g == open) continue;
        *median += network->generations[g]->reference_median;
        *spread += network->generations[g]->reference_spread;
        old++;
    }
    // Without a token for an older generation there is no range to compare with.
    if (old == 0) return false;
    *median /= (double)old;
    *spread /= (double)old;
    return true;
}

// Read a batch with every gate deciding, from `gating` on. Is its loss below `forced_bits`, that of
// the open generation with its gate forced open? Is it in the range that the older generations had
// on their own data? The CUSUM after this batch is written to `sum`. The losses of this reading
// are left in the pass, and their mean in `bits`.
static reef_status test_older_range(reef_trainer *trainer,
                                    const uint8_t *bytes,
                                    const reef_gating *gating,
                                    double forced_bits,
                                    double *bits,
                                    double *sum,
                                    bool *out,
                                    reef_error *err) {
    const reef_config *config = &trainer->network.config;
    double median, spread;
    reef_status status = reef_step_task_free(trainer, bytes, gating, bits, err);
    // A batch for which no older generation fires cannot be in their range.
    *out = status == REEF_OK && reference_of(trainer, &median, &spread);
    if (!*out) return status;
    double limit = reef_drift_limit(median, spread, config);
    *sum = reef_drift_cusum(trainer->ahead.cusum, *bits, median, spread, config);
    // In range: as good as on their own data, better than the open generation forced open, and
    // without a build-up of small excesses.
    *out = *bits <= fmin(limit, forced_bits) && *sum <= limit - median;
    return REEF_OK;
}

// Is this batch of a domain that came back? An anomalous one is tested twice: with the gates as the
// stream left them, and with all gates at the beginning of a stream. The reason: the open one's
// mean stays high for some hundred bytes after its domain has ended. The training batch has to be
// read again. `bits` is its loss, and becomes that of the reading by which it was recognised.
static reef_status is_recognised(reef_trainer *trainer,
                                 const uint8_t *bytes,
                                 bool anomalous,
                                 double *bits,
                                 bool *out,
                                 reef_error *err) {
    double forced_bits = *bits, read_bits = *bits;
    double sum = trainer->ahead.cusum, again = sum;
    reef_status status =
        test_older_range(trainer, bytes, &trainer->before, forced_bits, &read_bits, &sum, out, err);
    // Only an anomalous batch gets the second reading; it costs a pass and a fresh set of gates.
    if (status == REEF_OK && !*out && anomalous) {
        reef_gating fresh = {0};
        status = reef_gating_init(&fresh, &trainer->network, err);
        if (status == REEF_OK)
            status =
                test_older_range(trainer, bytes, &fresh, forced_bits, &read_bits, &again, out, err);
        reef_gating_release(&fresh);
        // The smaller CUSUM of the two readings counts, since recognising is what is asked.
        if (again < sum) sum = again;
    }
    trainer->ahead.cusum = sum;
    if (*out) *bits = read_bits;
    return status;
}

// The same, but losses are counted from the reading that answers it: recognised text does not
// belong to the open generation.
static reef_status recognise(reef_trainer *trainer,
                             const uint8_t *bytes,
                             bool anomalous,
                             double *bits,
                             bool *out,
                             reef_error *err) {
    uint64_t begin = trainer->stream_bytes + reef_pending_deferred_bytes(trainer);
    size_t size = reef_batch_tokens(&trainer->network.config) * sizeof(*trainer->acts.loss);
    *out = false;
    // With one generation there is no older one to recognise it.
    if (trainer->network.generation_count == 1) {
        reef_step_count_losses(trainer, begin, false);
        return REEF_OK;
    }
    // The losses of the forced reading are kept aside: if the batch is not recognised they are the
    // ones to count.
    double *forced = malloc(size); // another reading replaces them
    if (forced == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a batch's losses");
    memcpy(forced, trainer->acts.loss, size);
    reef_status status = is_recognised(trainer, bytes, anomalous, bits, out, err);
    if (!*out) memcpy(trainer->acts.loss, forced, size);
    free(forced);
    if (status == REEF_OK)
        reef_step_count_losses(trainer, begin,
                               *out && trainer->deferred_batches == 0 &&
                                   !reef_kinds_may_return(trainer));
    return status;
}

// The older generation that answers most of the batch which was just recognised.
static uint32_t recognised_kind(const reef_trainer *trainer) {
    const reef_network *network = &trainer->network;
    size_t count = reef_batch_tokens(&network->config), most = 0;
    uint32_t kind = 0;
    for (size_t g = 0; g + 1 < network->generation_count; g++) {
        size_t answered = 0;
        for (size_t t = 0; t < count; t++) answered += newest_firing(trainer, t) == g;
        if (answered <= most) continue;
        most = answered;
        kind = network->generations[g]->info.generation;
    }
    return kind;
}

// A generation that came from a file has steps behind it, but no history to compare a batch with.
static bool watches_drift(const reef_trainer *trainer) {
    const reef_config *config = &trainer->network.config;
    uint32_t window = trainer->drift.window, warmup = config->drift_warmup;
    return config->boundaries == REEF_BOUNDARIES_DRIFT && reef_task_step(trainer) >= warmup &&
           trainer->drift.count >= (warmup < window ? warmup : window);
}

static bool is_anomalous(const reef_trainer *trainer, double bits) {
    const reef_config *config = &trainer->network.config;
    if (!watches_drift(trainer)) return false;
    double median, spread;
    reef_drift_level(&trainer->drift, &median, &spread);
    return bits > reef_drift_limit(median, spread, config);
}

// Would most of the batch, whose forward pass has just been run, be answered by older generations?
static bool is_left_to_older(const reef_trainer *trainer) {
    return watches_drift(trainer) &&
           2 * trainer->open_claims < reef_batch_tokens(&trainer->network.config);
}

// A batch that nothing speaks against. `net`: its forward pass has just been run.
static reef_status train_and_grow(reef_trainer *trainer, bool net, double bits, reef_error *err) {
    reef_status status =
        net ? reef_pending_train(trainer, bits, err) : reef_pending_memorise(trainer, err);
    status = reef_pending_settle(trainer, status, err);
    if (status != REEF_OK) return status;
    const char *reason = reef_policy_due(trainer);
    return reason == NULL ? REEF_OK : reef_policy_boundary(trainer, reason, NULL, 0, err);
}

// Forward of the same batch once more, after another pass has overwritten its activations.
static reef_status read_again(reef_trainer *trainer,
                              const uint8_t *bytes,
                              double *bits,
                              reef_error *err) {
    reef_status status = reef_gating_copy(&trainer->ahead, &trainer->before, err);
    return status == REEF_OK ? reef_step_forward(trainer, bytes, &trainer->ahead, bits, err)
                             : status;
}

// How many anomalous batches make a boundary. A foreign page in a long book is not a new book: the
// change has to last for a share of what the generation has seen.
static uint32_t confirm_batches(const reef_trainer *trainer) {
    const reef_config *config = &trainer->network.config;
    uint64_t batches = reef_task_step(trainer);
    // Where the net learned a share of the batches, those of the memory count as well.
    if (config->net_share < 1.0f)
        batches = (trainer->stream_bytes - reef_task_at(trainer)) / reef_batch_bytes(config);
    double share = (double)config->drift_share * (double)batches;
    uint32_t asked = share < config->drift_hold ? (uint32_t)share : config->drift_hold;
    return asked > config->drift_confirm ? asked : config->drift_confirm;
}

// Decide about a batch that was tested. The deferred ones, if any, stand before it.
static reef_status defer_tested(
    reef_trainer *trainer, double bits, bool anomalous, size_t *steps, reef_error *err) {
    uint32_t confirm = confirm_batches(trainer);
    reef_status status = defer_batch(trainer, bits, anomalous, err);
    if (status != REEF_OK) return status;
    if (reef_policy_is_full(trainer))
        return release_deferred(trainer, steps, err); // there is nothing to wait for
    if (trainer->anomalous >= confirm) return boundary(trainer, steps, err);
    // Too many normal batches among the deferred ones: it was an odd passage, not a change.
    size_t normal = trainer->deferred_batches - trainer->anomalous;
    if (normal * NORMAL_SHARE > confirm) return release_deferred(trainer, steps, err);
    return REEF_OK;
}

// The memory alone learns. Once its own loss was anomalous, or a boundary is under way, a batch is
// tested before it is learned: by the memory, since there is no net.
static reef_status next_without_net(reef_trainer *trainer, size_t *steps, reef_error *err) {
    double bits = 0.0;
    if (trainer->memory_was_anomalous || trainer->deferred_batches > 0) {
        const uint8_t *bytes = trainer->pending + reef_pending_deferred_bytes(trainer);
        reef_status status = reef_memory_step_probe(trainer, bytes, &bits, err);
        if (status != REEF_OK) return status;
        bool anomalous = is_anomalous(trainer, bits);
        if (anomalous || trainer->deferred_batches > 0)
            return defer_tested(trainer, bits, anomalous, steps, err);
    }
    ++*steps;
    return train_and_grow(trainer, false, bits, err);
}

// ---- the next decision --------------------------------------------------------------------------

// Test the batch after the deferred ones and decide about it.
static reef_status next_batch(reef_trainer *trainer, size_t *steps, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    uint32_t confirm = confirm_batches(trainer);
    if (reef_recognises_by_contexts(trainer)) return reef_by_contexts_next(trainer, steps, err);
    // A boundary that failed, for instance without memory, is tried again before more is read.
    if (trainer->anomalous >= confirm) return boundary(trainer, steps, err);
    if (!reef_has_net(trainer)) return next_without_net(trainer, steps, err);
    if (config->net_share < 1.0f && !trainer->memory_was_anomalous &&
        trainer->deferred_batches == 0 &&
        !reef_pending_is_for_net(trainer, trainer->stream_bytes)) {
        ++*steps;
        return train_and_grow(trainer, false, 0.0, err);
    }
    const uint8_t *bytes = trainer->pending + reef_pending_deferred_bytes(trainer);
    double bits;
    reef_status status = reef_gating_copy(&trainer->before, &trainer->ahead, err);
    // A generation that was opened without data starts with the first batch that it gets.
    if (status == REEF_OK && reef_start_is_due(trainer))
        status = reef_start_generation(trainer, bytes, reef_batch_bytes(config), err);
    if (status == REEF_OK) status = reef_step_forward(trainer, bytes, &trainer->ahead, &bits, err);
    if (status != REEF_OK) return status;
    bool anomalous = is_anomalous(trainer, bits), recognised = false;
    // A batch in range is tested against the older ones only if the open generation's gate would
    // leave it to them.
    bool asks = anomalous || is_left_to_older(trainer);
    if (asks)
        status = recognise(trainer, bytes, anomalous, &bits, &recognised, err);
    else
        reef_step_count_losses(trainer,
                               trainer->stream_bytes + reef_pending_deferred_bytes(trainer), false);
    if (status != REEF_OK) return status;
    trainer->last_bits = bits;
    // Batches deferred before it straddled the change; this one is tested again after them.
    if (recognised)
        return trainer->deferred_batches > 0
                   ? release_deferred(trainer, steps, err)
                   : reef_pending_give(trainer, recognised_kind(trainer), bits, steps, err);
    // A batch in range ends a build-up of evidence.
    if (!anomalous) trainer->ahead.cusum = 0.0;
    // The common path: nothing deferred, nothing anomalous. One forward and one backward pass.
    if (!anomalous && trainer->deferred_batches == 0) {
        // Recognising read the batch with every gate deciding; training needs it with the open one
        // forced.
        if (asks) status = read_again(trainer, bytes, &bits, err);
        ++*steps;
        return status == REEF_OK ? train_and_grow(trainer, true, bits, err) : status;
    }
    return defer_tested(trainer, bits, anomalous, steps, err);
}

// All gates at the beginning of a stream.
static reef_status restart_gates(reef_trainer *trainer, reef_error *err) {
    reef_gating_release(&trainer->gating);
    reef_status status = reef_gating_init(&trainer->gating, &trainer->network, err);
    return status == REEF_OK ? reef_gating_copy(&trainer->ahead, &trainer->gating, err) : status;
}

// The pending bytes end in a marker line, and no batch before it is ready.
static reef_status boundary_at_marker(reef_trainer *trainer, size_t *steps, reef_error *err) {
    // What was deferred before the marker line belongs to the generation that ends here.
    reef_status status = reef_recognises_by_contexts(trainer)
                             ? reef_by_contexts_end(trainer, steps, err)
                             : release_deferred(trainer, steps, err);
    if (status != REEF_OK) return status;
    bool grows = reef_task_step(trainer) > 0;
    // The marker line is not trained. With a boundary everything pending goes with it: it is less
    // than a batch, and is of the old domain.
    size_t gone = grows ? trainer->pending_bytes : trainer->marker.line_bytes;
    trainer->marker.line_bytes = 0;
    trainer->pending_bytes -= gone;
    trainer->stream_bytes += gone;
    trainer->not_learned_bytes += gone;
    if (!grows) return REEF_OK;
    status = restart_gates(trainer, err);
    return status == REEF_OK ? reef_policy_boundary(trainer, "mark", NULL, 0, err) : status;
}

// Are the ids within the vocabulary that these bytes, the next of the stream, end? Nothing of them
// is taken otherwise.
static reef_status check_ids(const reef_trainer *trainer,
                             const reef_source *source,
                             uint64_t offset,
                             const uint8_t *bytes,
                             size_t count,
                             reef_error *err) {
    const reef_config *config = &trainer->network.config;
    bool half = trainer->pending_bytes % 2 != 0; // the pending bytes end within a token
    if (reef_token_bytes(config) == 1 || count == 0) return REEF_OK;
    // Two bytes make a token. A source must continue at an even offset where the last one stopped
    // inside a token.
    if (half && offset % 2 == 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "source %.160s begins a token, but the one before it ended within one: "
                         "ids take two bytes each",
                         source->name);
    // The token that began in the previous call is completed and checked first.
    uint8_t first[2] = {half ? trainer->pending[trainer->pending_bytes - 1] : 0, bytes[0]};
    reef_status status = REEF_OK;
    if (half) status = reef_tokens_check(config, source->name, offset - 1, first, 2, err);
    size_t whole = (count - half) / 2 * 2;
    return status == REEF_OK
               ? reef_tokens_check(config, source->name, offset + half, bytes + half, whole, err)
               : status;
}

// Accept bytes until a batch is ready or a marker line has been read; counts them in `taken`.
static reef_status accept_bytes(reef_trainer *trainer,
                                const reef_source *source,
                                const uint8_t *bytes,
                                size_t count,
                                size_t *taken,
                                reef_error *err) {
    const char *text = trainer->network.config.boundary_mark;
    // Only what the next batch lacks is accepted: a failing batch must not have swallowed bytes
    // beyond it.
    size_t need = ready_bytes(trainer) - reef_pending_usable_bytes(trainer);
    // Maybe before: a line that turns out not to be a marker adds its bytes at once.
    if (count > need) count = need;
    reef_status status = check_ids(trainer, source, source->cursor + *taken, bytes, count, err);
    if (status == REEF_OK)
        status = reef_trainer_reserve_pending(trainer, trainer->pending_bytes + count, err);
    if (status != REEF_OK) return status;
    memcpy(trainer->pending + trainer->pending_bytes, bytes, count);
    if (text[0] == '\0') {
        trainer->pending_bytes += count;
        *taken += count;
        return REEF_OK;
    }
    // Byte by byte, because a marker line may end anywhere, and bytes behind it belong to the next
    // generation.
    for (size_t i = 0; i < count && !batch_is_ready(trainer) && trainer->marker.line_bytes == 0;
         i++) {
        reef_marker_line_read(&trainer->marker, text, bytes[i]);
        trainer->pending_bytes++;
        ++*taken;
    }
    return REEF_OK;
}

// A refused boundary has not begun. After any other failure a batch may be half counted, with gates
// ahead of it, or what follows a step has not been done: read on from here it would be another
// model.
static reef_status settled(reef_trainer *trainer, reef_status status) {
    if (status != REEF_OK && status != REEF_ERR_INVALID && status != REEF_ERR_FULL)
        reef_trainer_break(trainer, status);
    return status;
}

reef_status reef_stream_push(reef_trainer *trainer,
                             const reef_source *source,
                             const uint8_t *bytes,
                             size_t count,
                             size_t *taken,
                             size_t *steps,
                             reef_error *err) {
    reef_status status = REEF_OK;
    *taken = *steps = 0;
    // Batches first: bytes are accepted only when no decision is open.
    while (status == REEF_OK && *steps == 0) {
        if (batch_is_ready(trainer))
            status = settled(trainer, next_batch(trainer, steps, err));
        else if (trainer->marker.line_bytes > 0)
            status = settled(trainer, boundary_at_marker(trainer, steps, err));
        else if (*taken < count)
            status = accept_bytes(trainer, source, bytes + *taken, count - *taken, taken, err);
        else
            break;
    }
    return status;
}
