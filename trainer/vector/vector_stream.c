// The stream of a vector model: what is learned, deferred and skipped; boundaries.
//
// A batch is scored before it is learned, and its errors are tested for drift (vector_drift.c).
// What precedes the position where a change may have begun is learned, what follows is deferred. At
// BOUNDARY_EXCESS the generation is sealed, and the deferred examples are the first of the next
// one. A hundred examples of the next domain, learned by mistake, would teach the old head enough
// of it to hide the change (seen with permuted digits): so the position matters.
//
//   pending:  [ released | deferred ........ | next batch | not a batch yet ]
//
// A batch that is anomalous to the open generation, but in range of all generations together, is of
// a domain that came back: sealed generations do not learn, so it is skipped.
#include "vector_stream.h"
#include "events.h"
#include "loss_history.h"
#include "reef_random.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define BASELINE_BATCH 64      // examples of the stream in a step of the baselines
#define BOUNDARY_EXCESS 64.0   // errors beyond the tolerated ones that make a boundary
#define ANOMALOUS_EXCESS 8.0   // such errors at which examples are deferred
#define DEFERRED_BATCHES_MIN 2 // that make a boundary, so that one bad batch alone never does
#define DEFERRED_BATCHES_MAX 8 // then they are learned: the change is not clear
#define CLASS_GROWTH 4         // solve again when a class has so many times more examples,
#define CLASS_EXAMPLES_MIN 32  // and so many,
#define SOLVE_GROWTH 1.25      // or all have grown so much
#define MEMORY_STREAM 410      // of random numbers

// ---- learning -----------------------------------------------------------------------------------

// A uniform sample of everything learned (Vitter 1985, algorithm R).
static void offer_memory(reef_trainer *trainer, const uint8_t *bytes, size_t rows) {
    reef_vector *vector = trainer->vector;
    reef_vector_memory *memory = &vector->memory;
    size_t each = reef_vector_record_bytes(&vector->network.config);
    for (size_t i = 0; i < rows && memory->slots > 0; i++) {
        // Only labelled examples teach a gate.
        if (vector->classes[i] < 0) continue;
        // The first ones fill the slots; later ones replace a random slot with probability slots /
        // seen.
        uint64_t slot = memory->seen < memory->slots
                            ? memory->seen
                            : reef_random_below(vector->network.config.seed, MEMORY_STREAM,
                                                memory->seen, memory->seen + 1);
        memory->seen++;
        if (slot >= memory->slots) continue;
        memcpy(memory->records + slot * each, bytes + i * each, each);
        memory->generations[slot] = reef_open_generation(trainer)->info.generation;
        // Only changed slots are written at the next commit.
        memory->dirty[slot] = true;
    }
}

static bool solve_is_due(const reef_vector *vector) {
    if ((double)vector->examples >= SOLVE_GROWTH * (double)vector->solved_examples)
        return vector->examples > vector->solved_examples;
    for (size_t c = 0; c < vector->network.class_count; c++)
        if (vector->class_examples[c] >= CLASS_EXAMPLES_MIN &&
            vector->class_examples[c] >= CLASS_GROWTH * vector->solved_class_examples[c])
            return true;
    return false;
}

static reef_status learn_sums(reef_trainer *trainer,
                              const uint8_t *bytes,
                              size_t rows,
                              reef_error *err) {
    reef_vector *vector = trainer->vector;
    reef_status status = reef_vector_sums_widen(vector, vector->network.class_count, err);
    if (status != REEF_OK) return status;
    // From the second generation on the gate's features are needed as well.
    if (vector->network.generation_count > 1) reef_vector_batch_gate(trainer, rows);
    reef_vector_sums_add(vector, trainer->workers, rows);
    offer_memory(trainer, bytes, rows);
    // Solving costs cubic time in the experts; it is due when the examples have grown by a share.
    if (!solve_is_due(vector)) return REEF_OK;
    status = reef_vector_solve(vector, trainer->workers, &reef_vector_open(vector)->head, err);
    vector->solved_examples = vector->examples;
    memcpy(vector->solved_class_examples, vector->class_examples, sizeof(vector->class_examples));
    return status;
}

static reef_status learn_steps(reef_trainer *trainer,
                               const uint8_t *bytes,
                               size_t rows,
                               reef_error *err) {
    reef_vector *vector = trainer->vector;
    reef_status status = reef_vector_baseline_step(trainer, rows, err);
    if (status != REEF_OK) return status;
    for (size_t i = 0; i < rows; i++) vector->examples += vector->classes[i] >= 0;
    // Afterwards: replayed examples belong to the past. The step leaves the classes of the batch in
    // `labels`.
    offer_memory(trainer, bytes, rows);
    return REEF_OK;
}

// The first `rows` pending examples have been dealt with.
static void drop_examples(reef_trainer *trainer, size_t rows) {
    reef_vector *vector = trainer->vector;
    size_t bytes = rows * reef_vector_record_bytes(&trainer->network.config);
    trainer->pending_bytes -= bytes;
    memmove(trainer->pending, trainer->pending + bytes, trainer->pending_bytes);
    trainer->stream_bytes += bytes;
    vector->untested = vector->untested > rows ? vector->untested - rows : 0;
}

// Learn the first pending batch; its hidden units and errors are known.
static reef_status learn(reef_trainer *trainer,
                         size_t rows,
                         const reef_vector_tally *t,
                         reef_error *err) {
    reef_vector *vector = trainer->vector;
    reef_status status = vector->baseline ? learn_steps(trainer, trainer->pending, rows, err)
                                          : learn_sums(trainer, trainer->pending, rows, err);
    // A failed step left the sums half added; the caller breaks the trainer.
    if (status != REEF_OK) return status;
    reef_vector_tally_remember(vector, t);
    // Consumed before counting the step: the point of the loss ends where the stream stands.
    drop_examples(trainer, rows);
    trainer->step++;
    trainer->generation_step++;
    return t->labelled > 0 ? reef_series_add(trainer, trainer->last_bits, err) : REEF_OK;
}

// ---- boundaries ---------------------------------------------------------------------------------

static void release_deferred(reef_vector *vector) {
    vector->deferred = 0;
    vector->deferred_batches = 0;
    vector->excess = 0.0;
}

reef_status reef_vector_check_boundary(const reef_trainer *trainer, reef_error *err) {
    const reef_vector *vector = trainer->vector;
    // A generation without a labelled example has no solution to seal.
    if (vector->examples == 0)
        return reef_fail(
            err, REEF_ERR_INVALID,
            "generation %" PRIu32
            " is open and has learned no labelled example yet; there is nothing to seal",
            reef_open_generation(trainer)->info.generation);
    return REEF_OK;
}

reef_status reef_vector_boundary(reef_trainer *trainer, const char *reason, reef_error *err) {
    reef_vector *vector = trainer->vector;
    reef_generation *info = reef_open_generation(trainer);
    reef_vector_generation *open = reef_vector_open(vector);
    // Read before the history is reset.
    double expected = reef_vector_expected_errors(vector);
    reef_status status = reef_vector_check_boundary(trainer, err);
    // Solved once more from everything: a sealed head is the best solution of its data.
    if (status == REEF_OK) status = reef_vector_solve(vector, trainer->workers, &open->head, err);
    if (status != REEF_OK) return status;
    open->reference = isnan(expected) ? 0.0 : expected;
    reef_vector_sums_seal(vector);
    vector->served_is_new = false;
    vector->history = vector->next = 0;
    // The record changes only now, when nothing can be refused any more.
    info->open = false;
    info->info.sealed = true;
    info->info.sealed_step = trainer->step;
    info->info.sealed_at = trainer->stream_bytes;
    status = reef_vector_open_generation(trainer, err);
    if (status != REEF_OK) {
        reef_trainer_break(trainer, status);
        return status;
    }
    release_deferred(vector);
    vector->untested = 0; // by command, amid released examples: they are the new generation's
    trainer->generation_step = trainer->boundary_step = 0;
    trainer->boundary_at = trainer->stream_bytes;
    status = reef_state_event(trainer, err, "seal",
                              "\"sealed\": %u, \"reason\": \"%s\", \"error_rate\": %.4f",
                              info->info.generation, reason, open->reference);
    if (status != REEF_OK) return status;
    return reef_state_event(trainer, err, "open", "\"reason\": \"%s\", \"side\": %u", reason,
                            trainer->network.config.side);
}

reef_status reef_vector_refresh(reef_trainer *trainer, reef_error *err) {
    reef_vector *vector = trainer->vector;
    // A label may be new although its example was not learned.
    bool is_same = vector->examples == vector->served_examples &&
                   vector->served.class_count == vector->network.class_count;
    if (vector->baseline || vector->examples == 0 || is_same) return REEF_OK;
    reef_status status = reef_vector_solve(vector, trainer->workers, &vector->served, err);
    if (status != REEF_OK) return status;
    vector->served_examples = vector->examples;
    vector->served_is_new = true;
    return REEF_OK;
}

// ---- the stream ---------------------------------------------------------------------------------

// Small at first, so that a short stream is learned too; from then on as large as keeps products
// fast.
static size_t batch_rows(const reef_vector *vector) {
    if (vector->baseline) return BASELINE_BATCH;
    uint64_t rows = vector->examples;
    // All examples that experts are drawn from come in one batch.
    uint32_t draw_from = vector->network.config.draw_from;
    if (draw_from > 0 && !reef_vector_open(vector)->drawn) return draw_from;
    if (rows < REEF_VECTOR_BATCH_MIN) return REEF_VECTOR_BATCH_MIN;
    return rows > REEF_VECTOR_BATCH_MAX ? REEF_VECTOR_BATCH_MAX : (size_t)rows;
}

static reef_status skip_examples(reef_trainer *trainer,
                                 size_t rows,
                                 const reef_vector_tally *t,
                                 reef_error *err) {
    trainer->not_learned_bytes += rows * reef_vector_record_bytes(&trainer->network.config);
    drop_examples(trainer, rows);
    return t->labelled > 0 ? reef_series_add(trainer, trainer->last_bits, err) : REEF_OK;
}

// Learn the first `rows` pending examples without testing them again.
static void settle_deferred(reef_vector *vector, size_t rows) {
    release_deferred(vector);
    vector->untested = rows;
}

// Defer a batch that is anomalous to every generation, and decide about all deferred ones.
static reef_status defer_batch(reef_trainer *trainer, size_t rows, double excess, reef_error *err) {
    reef_vector *vector = trainer->vector;
    vector->deferred += rows;
    vector->deferred_batches++;
    vector->excess = excess;
    if (excess >= BOUNDARY_EXCESS && vector->deferred_batches >= DEFERRED_BATCHES_MIN)
        return reef_vector_boundary(trainer, "drift", err);
    if (vector->deferred_batches == DEFERRED_BATCHES_MAX) settle_deferred(vector, vector->deferred);
    return REEF_OK;
}

// Decide about the batch after the deferred ones, which has been scored.
static reef_status judge_batch(reef_trainer *trainer,
                               size_t rows,
                               const reef_vector_tally *t,
                               reef_error *err) {
    reef_vector *vector = trainer->vector;
    double limit = reef_vector_errors_tolerated(vector);
    size_t zero = rows, deferred = vector->deferred;
    double excess = 0.0;
    bool in_range;
    // While released examples are trained, or before enough is known, drift is not tested.
    if (vector->untested == 0 && limit <= 1.0)
        excess = reef_vector_excess(vector, rows, limit, vector->excess, &zero);
    if (excess < ANOMALOUS_EXCESS && deferred == 0) return learn(trainer, rows, t, err);
    // Nothing anomalous up to the end of the batch.
    if (excess < ANOMALOUS_EXCESS) zero = rows;
    if (zero > 0) { // up to there all is well; the rest is tested again
        settle_deferred(vector, deferred + zero);
        return REEF_OK;
    }
    // The costliest test comes last: all generations score the batch under their gates.
    reef_status status = reef_vector_is_in_range(vector, rows, &in_range, err);
    if (status != REEF_OK) return status;
    if (!in_range) return defer_batch(trainer, rows, excess, err);
    // A domain that some generation knows is not learned again.
    if (deferred == 0) return skip_examples(trainer, rows, t, err);
    settle_deferred(vector, deferred); // they straddled the change; this batch follows them again
    return REEF_OK;
}

// The answers to the batch after the deferred ones, by source.
static void count_answers(reef_trainer *trainer, size_t rows) {
    reef_vector *vector = trainer->vector;
    size_t each = reef_vector_record_bytes(&trainer->network.config);
    size_t C = reef_vector_open(vector)->head.class_count;
    for (size_t i = 0; i < rows; i++) {
        int32_t class = vector->classes[i];
        bool right =
            C > 0 && class >= 0 && reef_vector_best(C, vector->scores + i * C) == (size_t) class;
        // Negative marks an example without a label; the counter skips it.
        vector->wrong[i] = class < 0 ? -1.0 : right ? 0.0 : 1.0;
    }
    reef_prequential_count(trainer, trainer->stream_bytes + vector->deferred * each, each,
                           vector->wrong, 1.0, rows);
}

static reef_status next_batch(reef_trainer *trainer, size_t rows, size_t *steps, reef_error *err) {
    reef_vector *vector = trainer->vector;
    size_t each = reef_vector_record_bytes(&trainer->network.config);
    reef_status status =
        reef_vector_batch_read(vector, trainer->pending + vector->deferred * each, rows, err);
    if (status != REEF_OK) return status;
    reef_vector_batch_score(trainer, rows);
    reef_vector_tally t = reef_vector_tally_count(
        vector, rows, reef_vector_open(vector)->head.class_count, vector->scores);
    if (t.labelled > 0) trainer->last_bits = (double)t.wrong / (double)t.labelled;
    count_answers(trainer, rows);
    // The caller asks again at once, since releasing may have left a whole batch.
    *steps = 1; // the rest of the pending bytes may be a batch too
    return judge_batch(trainer, rows, &t, err);
}

// Accept up to `need` bytes; records are checked when their last byte has come, and a bad one is
// given back as far as it came in this call.
static reef_status accept_bytes(reef_trainer *trainer,
                                const uint8_t *bytes,
                                size_t count,
                                size_t need,
                                size_t *taken,
                                reef_error *err) {
    size_t each = reef_vector_record_bytes(&trainer->network.config);
    size_t before = trainer->pending_bytes, take = count < need ? count : need;
    reef_status status = reef_trainer_reserve_pending(trainer, before + take, err);
    if (status != REEF_OK) return status;
    memcpy(trainer->pending + before, bytes, take);
    // The record that these bytes complete, and all complete ones after it.
    for (size_t at = before / each; (at + 1) * each <= before + take; at++) {
        status =
            reef_vector_record_check(trainer->pending + at * each, trainer->network.config.inputs,
                                     (trainer->stream_bytes + at * each) / each, err);
        if (status == REEF_OK)
            status = reef_vector_label_check(&trainer->vector->network, trainer->pending, at, err);
        if (status == REEF_OK) continue;
        // Everything before the bad record stays accepted. The record itself is given back, so that
        // the caller can report where it is.
        *taken = at * each > before ? at * each - before : 0;
        trainer->pending_bytes = before + *taken;
        return status;
    }
    trainer->pending_bytes += take;
    *taken = take;
    return REEF_OK;
}

reef_status reef_vector_push(reef_trainer *trainer,
                             const uint8_t *bytes,
                             size_t count,
                             size_t *taken,
                             size_t *steps,
                             reef_error *err) {
    const reef_vector *vector = trainer->vector;
    size_t each = reef_vector_record_bytes(&trainer->network.config), rows = batch_rows(vector);
    *taken = *steps = 0;
    // Examples that were released end where the deferred part ended; a batch must not reach beyond
    // them.
    if (vector->untested > 0 && vector->untested < rows) rows = vector->untested;
    size_t end = (vector->deferred + rows) * each;
    reef_status status = REEF_OK;
    // A batch is accepted to its end before it is scored.
    if (trainer->pending_bytes < end)
        status = accept_bytes(trainer, bytes, count, end - trainer->pending_bytes, taken, err);
    if (status != REEF_OK || trainer->pending_bytes < end) return status;
    status = next_batch(trainer, rows, steps, err);
    // The batch is still pending, and may be in the sums or among the deferred ones already.
    if (status != REEF_OK) reef_trainer_break(trainer, status);
    return status;
}

reef_status reef_trainer_learn_pending(reef_trainer *trainer, reef_error *err) {
    reef_vector *vector = trainer->vector;
    reef_status status = reef_trainer_check_whole(trainer, err);
    if (status != REEF_OK || vector == NULL || vector->baseline || vector->examples == 0 ||
        vector->deferred > 0)
        return status;
    settle_deferred(vector,
                    trainer->pending_bytes / reef_vector_record_bytes(&trainer->network.config));
    for (size_t taken, steps; status == REEF_OK && vector->untested > 0;)
        status = reef_vector_push(trainer, NULL, 0, &taken, &steps, err);
    return status;
}
