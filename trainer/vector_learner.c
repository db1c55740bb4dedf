// The stream of a vector model: batches, the drift test, boundaries.
//
// A batch is scored before it is learned. Errors count for the drift test only on labels that the head
// knows well ("mature"), so new classes open no generation, they widen the head. What is borne with is
// half of the open generation's skill, which lies between the errors it usually makes and those of
// guessing; errors beyond that add up, example by example, and the sum is never below zero (Page 1954).
// Where it last was zero is where a change began, if there is one: what comes before is learned, what
// comes after is held back. At BOUNDARY_EXCESS the generation is sealed, and the held examples are the
// first of the next one. A hundred examples of the next domain, learned by mistake, would teach the old
// head enough of it to hide the change (seen with permuted digits): so the place matters.
//
//   carry:  [ released | held back ....... | next batch | not a batch yet ]
//
// A batch that the open generation does not explain but all generations together do is of a domain that
// came back: sealed generations do not learn, so it is skipped.
#include "learner.h"
#include "random.h"
#include "vector_sums.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RIVAL_BATCH 64        // examples of the stream in a step of the rivals of generations
#define BOUNDARY_EXCESS 64.0  // errors beyond what is borne with that make a boundary
#define SUSPICIOUS_EXCESS 8.0 // errors beyond it at which examples are held back
#define HELD_BATCHES_MIN 2    // that make a boundary, so that one bad batch alone never does
#define HELD_BATCHES_MAX 8    // then they are learned: whatever it is, it is no clear change
#define MATURE_EXAMPLES 256   // of a label in the head's solution, and at least
#define MATURE_SHARE 0.25     // this share of an even part of all examples
#define EXPECT_EXAMPLES 256   // tested ones, before anything is expected
#define SKILL_MIN 0.25        // of the way from guessing to no error, before drift is looked for
#define EXPLAINED_SHARE 0.125 // of the way from what is expected to guessing
#define CLASS_GROWTH 4        // solve again when a class has so many times more examples,
#define CLASS_EXAMPLES_MIN 32 // and so many,
#define SOLVE_GROWTH 1.25     // or all have grown so much
#define MEMORY_STREAM 410     // of random numbers

// ---- records -------------------------------------------------------------------------------------

static int32_t record_label(const uint8_t *record) {
    int32_t label;
    memcpy(&label, record, sizeof label);
    return label;
}

static reef_status check_record(const uint8_t *record, size_t D, uint64_t number, reef_error *err) {
    int32_t label = record_label(record);
    if (label < -1)
        return reef_fail(err, REEF_INVALID,
                         "example %" PRIu64
                         " of the stream has the label %d; labels are 0 or more, "
                         "or -1 for none",
                         number, label);
    for (size_t d = 0; d < D; d++) {
        float value;
        memcpy(&value, record + REEF_VECTOR_LABEL_BYTES + d * sizeof value, sizeof value);
        if (!isfinite(value))
            return reef_fail(err, REEF_INVALID,
                             "example %" PRIu64
                             " of the stream has %f in column %zu (both from 0); "
                             "values must be finite: leave such examples out or fill the gap",
                             number, (double)value, d);
    }
    return REEF_OK;
}

// Class of a label, the next new one when it was never seen.
static reef_status class_of(reef_vector_net *net, int32_t label, int32_t *out, reef_error *err) {
    *out = -1;
    if (label < 0) return REEF_OK;
    for (size_t c = 0; c < net->class_count && *out < 0; c++)
        if (net->labels[c] == label) *out = (int32_t)c;
    if (*out >= 0) return REEF_OK;
    if (net->class_count == REEF_CLASS_COUNT_MAX)
        return reef_fail(err, REEF_FULL,
                         "label %d would be the pool's class number %zu, and %d is the most", label,
                         net->class_count + 1, REEF_CLASS_COUNT_MAX);
    *out = (int32_t)net->class_count;
    net->labels[net->class_count++] = label;
    return REEF_OK;
}

// Rows of the batch from the records at `bytes`, the last piece filled up with zeros.
static reef_status read_batch(reef_vector *vector,
                              const uint8_t *bytes,
                              size_t rows,
                              reef_error *err) {
    size_t D = vector->net.config.inputs, each = reef_vector_record_bytes(&vector->net.config);
    memset(vector->vectors, 0, REEF_VECTOR_BATCH_MAX * D * sizeof(float));
    for (size_t i = 0; i < rows; i++) {
        const uint8_t *record = bytes + i * each;
        reef_status status = class_of(&vector->net, record_label(record), &vector->classes[i], err);
        if (status != REEF_OK) return status;
        memcpy(vector->vectors + i * D, record + REEF_VECTOR_LABEL_BYTES, D * sizeof(float));
    }
    return REEF_OK;
}

// ---- scores --------------------------------------------------------------------------------------

typedef struct scoring {
    const reef_vector *vector;
    const reef_vector_gen *gen;
    float *hidden; // (rows, padded of `shape`)
    const reef_ridge_shape *shape;
    float *scores; // (rows, classes of the head); NULL for none
} scoring;

static void score_piece(void *context, size_t piece) {
    const scoring *s = context;
    size_t from = piece * REEF_VECTOR_PIECE, D = s->gen->inputs, width = s->shape->padded;
    size_t C = s->gen->head.class_count;
    float *z = s->vector->z + from * (D + 1), *hidden = s->hidden + from * width;
    reef_vector_standardise(s->gen, REEF_VECTOR_PIECE, z, s->vector->vectors + from * D);
    reef_vector_hidden(s->gen, s->shape->size, width, hidden, z);
    if (s->scores == NULL || C == 0) return;
    reef_gemm(false, true, REEF_VECTOR_PIECE, C, width, 1.0f, hidden, width, s->gen->head.w_up,
              width, 0.0f, s->scores + from * C, C);
}

static size_t pieces_of(size_t rows) {
    return (rows + REEF_VECTOR_PIECE - 1) / REEF_VECTOR_PIECE;
}

// Hidden units and scores of the batch by the open generation alone; draws its experts at first.
static void score_batch(reef_trainer *trainer, size_t rows) {
    reef_vector *vector = trainer->vector;
    reef_vector_gen *open = reef_vector_open(vector);
    if (!open->drawn)
        reef_vector_gen_draw(open, &vector->net.config,
                             reef_open_generation(trainer)->info.generation, rows, vector->vectors);
    scoring s = {vector, open, vector->hidden, &open->shape, vector->scores};
    reef_workers_run(trainer->workers, pieces_of(rows), score_piece, &s);
}

static bool is_mature(const reef_vector *vector, int32_t class) {
    if (class < 0) return false;
    double even = (double)vector->solved_examples / (double)vector->net.class_count;
    double count = (double)vector->solved_class_examples[class];
    return count >= MATURE_EXAMPLES && count >= MATURE_SHARE * even;
}

typedef struct tally {
    uint32_t labelled, wrong;      // of all
    uint32_t mature, mature_wrong; // of labels that are known well
} tally;

// scores (rows, C)
static tally count_errors(const reef_vector *vector, size_t rows, size_t C, const float *scores) {
    tally t = {0};
    for (size_t i = 0; i < rows; i++) {
        int32_t class = vector->classes[i];
        if (class < 0) continue;
        bool wrong = C == 0 || reef_vector_best(C, scores + i * C) != (size_t) class;
        t.labelled++;
        t.wrong += wrong;
        if (!is_mature(vector, class)) continue;
        t.mature++;
        t.mature_wrong += wrong;
    }
    return t;
}

// Errors on the batch's mature labels when all generations answer under their gate.
static reef_status count_errors_together(reef_vector *vector,
                                         size_t rows,
                                         tally *out,
                                         reef_error *err) {
    const reef_vector_net *net = &vector->net;
    if (vector->scratch == NULL)
        vector->scratch = malloc(reef_vector_mix_floats(net) * sizeof *vector->scratch);
    if (net->gen_count > vector->weights_capacity) {
        free(vector->weights);
        vector->weights_capacity = 0;
        vector->weights = malloc(REEF_VECTOR_PIECE * net->gen_count * sizeof *vector->weights);
    }
    if (!vector->scratch || !vector->weights)
        return reef_fail(err, REEF_NO_MEMORY, "no memory for %zu generations", net->gen_count);
    vector->weights_capacity = net->gen_count;
    for (size_t from = 0; from < rows; from += REEF_VECTOR_PIECE)
        reef_vector_mix(net, vector->scores + from * net->class_count, vector->weights,
                        vector->vectors + from * net->config.inputs, vector->scratch);
    *out = count_errors(vector, rows, net->class_count, vector->scores);
    return REEF_OK;
}

// ---- the drift test ------------------------------------------------------------------------------

static double share_expected(const reef_vector *vector) {
    uint64_t errors = 0, tested = 0;
    for (uint32_t i = 0; i < vector->history; i++) {
        errors += vector->errors[i];
        tested += vector->tested[i];
    }
    return tested < EXPECT_EXAMPLES ? (double)NAN : (double)errors / (double)tested;
}

double reef_vector_expected_errors(const reef_vector *vector) {
    return share_expected(vector);
}

static double guessing(const reef_vector *vector) {
    size_t C = reef_vector_open(vector)->head.class_count;
    return C == 0 ? 0.0 : 1.0 - 1.0 / (double)C;
}

// Share of errors that is borne with; above 1 while drift is not looked for.
static double borne(const reef_vector *vector) {
    double expected = share_expected(vector), guess = guessing(vector);
    if (strcmp(vector->net.config.boundaries, "drift") != 0 || vector->rival) return 2.0;
    if (!(expected <= (1.0 - SKILL_MIN) * guess)) return 2.0; // NaN too
    return 0.5 * (expected + guess);
}

// Are the batch's errors no more than is to be expected when its domain is known to some generation?
static reef_status is_explained(reef_vector *vector, size_t rows, bool *out, reef_error *err) {
    *out = false;
    if (vector->net.gen_count == 1) return REEF_OK;
    tally together;
    double expected = share_expected(vector);
    for (size_t g = 0; g + 1 < vector->net.gen_count; g++)
        expected = fmax(expected, vector->net.gens[g]->reference);
    reef_status status = count_errors_together(vector, rows, &together, err);
    double limit = expected + EXPLAINED_SHARE * fmax(0.0, guessing(vector) - expected);
    *out = status == REEF_OK && (double)together.mature_wrong <= limit * (double)together.mature;
    return status;
}

static void remember_errors(reef_vector *vector, const tally *t) {
    if (t->mature == 0) return;
    vector->errors[vector->next] = t->mature_wrong;
    vector->tested[vector->next] = t->mature;
    vector->next = (vector->next + 1) % REEF_VECTOR_DRIFT_WINDOW;
    if (vector->history < REEF_VECTOR_DRIFT_WINDOW) vector->history++;
}

// ---- learning ------------------------------------------------------------------------------------

// A uniform sample of everything learned (Vitter 1985, algorithm R).
static void offer_memory(reef_trainer *trainer, const uint8_t *bytes, size_t rows) {
    reef_vector *vector = trainer->vector;
    reef_vector_memory *memory = &vector->memory;
    size_t each = reef_vector_record_bytes(&vector->net.config);
    for (size_t i = 0; i < rows && memory->slots > 0; i++) {
        if (vector->classes[i] < 0) continue;
        uint64_t slot = memory->seen < memory->slots
                            ? memory->seen
                            : reef_random_below(vector->net.config.seed, MEMORY_STREAM,
                                                memory->seen, memory->seen + 1);
        memory->seen++;
        if (slot >= memory->slots) continue;
        memcpy(memory->records + slot * each, bytes + i * each, each);
        memory->generations[slot] = reef_open_generation(trainer)->info.generation;
        memory->dirty[slot] = true;
    }
}

static bool solve_is_due(const reef_vector *vector) {
    if ((double)vector->examples >= SOLVE_GROWTH * (double)vector->solved_examples)
        return vector->examples > vector->solved_examples;
    for (size_t c = 0; c < vector->net.class_count; c++)
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
    reef_status status = reef_vector_sums_widen(vector, vector->net.class_count, err);
    if (status != REEF_OK) return status;
    if (vector->net.gen_count > 1) {
        scoring s = {vector, vector->net.gens[0], vector->gate_hidden, &vector->gate.shape, NULL};
        reef_workers_run(trainer->workers, pieces_of(rows), score_piece, &s);
    }
    reef_vector_sums_add(vector, trainer->workers, rows);
    offer_memory(trainer, bytes, rows);
    if (!solve_is_due(vector)) return REEF_OK;
    status = reef_vector_solve(vector, trainer->workers, &reef_vector_open(vector)->head, err);
    vector->solved_examples = vector->examples;
    memcpy(vector->solved_class_examples, vector->class_examples, sizeof vector->class_examples);
    return status;
}

static reef_status learn_steps(reef_trainer *trainer,
                               const uint8_t *bytes,
                               size_t rows,
                               reef_error *err) {
    reef_vector *vector = trainer->vector;
    reef_status status = reef_vector_rival_step(trainer, rows, err);
    if (status != REEF_OK) return status;
    for (size_t i = 0; i < rows; i++) vector->examples += vector->classes[i] >= 0;
    // Afterwards: what is replayed is of the past. The step leaves the classes of the batch in place.
    offer_memory(trainer, bytes, rows);
    return REEF_OK;
}

// The first `rows` examples of the carry have been dealt with.
static void consume(reef_trainer *trainer, size_t rows) {
    reef_vector *vector = trainer->vector;
    size_t bytes = rows * reef_vector_record_bytes(&trainer->net.config);
    trainer->carry_bytes -= bytes;
    memmove(trainer->carry, trainer->carry + bytes, trainer->carry_bytes);
    trainer->stream_bytes += bytes;
    vector->untested = vector->untested > rows ? vector->untested - rows : 0;
}

// Learn the batch at the carry's beginning; its hidden units and errors are known.
static reef_status learn(reef_trainer *trainer, size_t rows, const tally *t, reef_error *err) {
    reef_vector *vector = trainer->vector;
    reef_status status = vector->rival ? learn_steps(trainer, trainer->carry, rows, err)
                                       : learn_sums(trainer, trainer->carry, rows, err);
    if (status != REEF_OK) return status;
    remember_errors(vector, t);
    consume(trainer, rows);
    trainer->step++;
    trainer->generation_step++;
    return t->labelled > 0 ? reef_series_add(trainer, trainer->last_bits, err) : REEF_OK;
}

// ---- boundaries ----------------------------------------------------------------------------------

static void let_go(reef_vector *vector) {
    vector->held = 0;
    vector->held_batches = 0;
    vector->excess = 0.0;
}

reef_status reef_vector_boundary(reef_trainer *trainer, const char *reason, reef_error *err) {
    reef_vector *vector = trainer->vector;
    reef_gen *info = reef_open_generation(trainer);
    reef_vector_gen *open = reef_vector_open(vector);
    double expected = share_expected(vector);
    if (vector->rival)
        return reef_fail(err, REEF_INVALID,
                         "strategy %s has one generation, which is never sealed; only pools of "
                         "strategy generations have boundaries",
                         vector->net.config.strategy);
    if (vector->examples == 0)
        return reef_fail(
            err, REEF_INVALID,
            "generation %" PRIu32
            " is open and has learned no labelled example yet; there is nothing to seal",
            info->info.generation);
    reef_status status = reef_vector_solve(vector, trainer->workers, &open->head, err);
    if (status != REEF_OK) return status;
    open->reference = isnan(expected) ? 0.0 : expected;
    reef_vector_sums_seal(vector);
    vector->served_is_new = false;
    vector->history = vector->next = 0;
    info->open = false;
    info->info.sealed = true;
    info->info.sealed_step = trainer->step;
    info->info.sealed_at = trainer->stream_bytes;
    status = reef_vector_open_generation(trainer, err);
    if (status != REEF_OK) return status;
    let_go(vector);
    vector->untested = 0; // by command, amid released examples: they are the new generation's
    trainer->generation_step = trainer->boundary_step = 0;
    trainer->boundary_at = trainer->stream_bytes;
    status = reef_state_event(trainer, err, "seal",
                              "\"sealed\": %u, \"reason\": \"%s\", \"error_rate\": %.4f",
                              info->info.generation, reason, open->reference);
    if (status != REEF_OK) return status;
    return reef_state_event(trainer, err, "open", "\"reason\": \"%s\", \"side\": %u", reason,
                            trainer->net.config.side);
}

reef_status reef_vector_refresh(reef_trainer *trainer, reef_error *err) {
    reef_vector *vector = trainer->vector;
    if (vector->rival || vector->examples == vector->served_examples) return REEF_OK;
    reef_status status = reef_vector_solve(vector, trainer->workers, &vector->served, err);
    if (status != REEF_OK) return status;
    vector->served_examples = vector->examples;
    vector->served_is_new = true;
    return REEF_OK;
}

// ---- the stream ----------------------------------------------------------------------------------

// Small at first, so that a short stream is learned too; from then on as large as keeps products fast.
static size_t batch_rows(const reef_vector *vector) {
    if (vector->rival) return RIVAL_BATCH;
    uint64_t rows = vector->examples;
    if (rows < REEF_VECTOR_BATCH_MIN) return REEF_VECTOR_BATCH_MIN;
    return rows > REEF_VECTOR_BATCH_MAX ? REEF_VECTOR_BATCH_MAX : (size_t)rows;
}

static reef_status skip(reef_trainer *trainer, size_t rows, const tally *t, reef_error *err) {
    trainer->skipped_bytes += rows * reef_vector_record_bytes(&trainer->net.config);
    consume(trainer, rows);
    return t->labelled > 0 ? reef_series_add(trainer, trainer->last_bits, err) : REEF_OK;
}

// Learn the carry's first `rows` examples without testing them again.
static void release(reef_vector *vector, size_t rows) {
    let_go(vector);
    vector->untested = rows;
}

// The sum of errors beyond `limit` over a batch, from `excess` on; *zero is after which example it was
// zero last, 0 when never.
static double accumulate(
    const reef_vector *vector, size_t rows, double limit, double excess, size_t *zero) {
    size_t C = reef_vector_open(vector)->head.class_count;
    *zero = 0;
    for (size_t i = 0; i < rows; i++) {
        int32_t class = vector->classes[i];
        if (is_mature(vector, class)) {
            bool wrong = reef_vector_best(C, vector->scores + i * C) != (size_t) class;
            excess = fmax(0.0, excess + (wrong ? 1.0 : 0.0) - limit);
        }
        if (excess == 0.0) *zero = i + 1;
    }
    return excess;
}

// Hold a batch back that nothing explains, and decide about all that are.
static reef_status hold(reef_trainer *trainer, size_t rows, double excess, reef_error *err) {
    reef_vector *vector = trainer->vector;
    vector->held += rows;
    vector->held_batches++;
    vector->excess = excess;
    if (excess >= BOUNDARY_EXCESS && vector->held_batches >= HELD_BATCHES_MIN)
        return reef_vector_boundary(trainer, "drift", err);
    if (vector->held_batches == HELD_BATCHES_MAX) release(vector, vector->held);
    return REEF_OK;
}

// Decide about the batch after the held ones, which has been scored.
static reef_status judge(reef_trainer *trainer, size_t rows, const tally *t, reef_error *err) {
    reef_vector *vector = trainer->vector;
    double limit = borne(vector);
    size_t zero = rows, held = vector->held;
    double excess = 0.0;
    bool explained;
    if (vector->untested == 0 && limit <= 1.0)
        excess = accumulate(vector, rows, limit, vector->excess, &zero);
    if (excess < SUSPICIOUS_EXCESS && held == 0) return learn(trainer, rows, t, err);
    if (excess < SUSPICIOUS_EXCESS) zero = rows;
    if (zero > 0) { // up to there all is well; the rest is looked at again
        release(vector, held + zero);
        return REEF_OK;
    }
    reef_status status = is_explained(vector, rows, &explained, err);
    if (status != REEF_OK) return status;
    if (!explained) return hold(trainer, rows, excess, err);
    if (held == 0) return skip(trainer, rows, t, err);
    release(vector, held); // they straddled the change; this batch comes again after them
    return REEF_OK;
}

// The answers to the batch after the held ones, by source.
static void count_answers(reef_trainer *trainer, size_t rows) {
    reef_vector *vector = trainer->vector;
    size_t each = reef_vector_record_bytes(&trainer->net.config);
    size_t C = reef_vector_open(vector)->head.class_count;
    for (size_t i = 0; i < rows; i++) {
        int32_t class = vector->classes[i];
        bool right =
            C > 0 && class >= 0 && reef_vector_best(C, vector->scores + i * C) == (size_t) class;
        vector->wrong[i] = class < 0 ? -1.0 : right ? 0.0 : 1.0;
    }
    reef_prequential_count(trainer, trainer->stream_bytes + vector->held * each, each,
                           vector->wrong, 1.0, rows);
}

static reef_status next_batch(reef_trainer *trainer, size_t rows, size_t *steps, reef_error *err) {
    reef_vector *vector = trainer->vector;
    size_t each = reef_vector_record_bytes(&trainer->net.config);
    reef_status status = read_batch(vector, trainer->carry + vector->held * each, rows, err);
    if (status != REEF_OK) return status;
    score_batch(trainer, rows);
    tally t =
        count_errors(vector, rows, reef_vector_open(vector)->head.class_count, vector->scores);
    if (t.labelled > 0) trainer->last_bits = (double)t.wrong / (double)t.labelled;
    count_answers(trainer, rows);
    *steps = 1; // what is left in the carry may be a batch too
    return judge(trainer, rows, &t, err);
}

static reef_status reserve_carry(reef_trainer *trainer, size_t bytes, reef_error *err) {
    if (bytes <= trainer->carry_capacity) return REEF_OK;
    uint8_t *carry = realloc(trainer->carry, bytes);
    if (carry == NULL)
        return reef_fail(err, REEF_NO_MEMORY, "no memory to hold %zu bytes of the stream", bytes);
    trainer->carry = carry;
    trainer->carry_capacity = bytes;
    return REEF_OK;
}

// Accept up to `need` bytes; records are checked when their last byte has come, and a bad one is given
// back as far as it came in this call.
static reef_status accept(reef_trainer *trainer,
                          const uint8_t *bytes,
                          size_t count,
                          size_t need,
                          size_t *taken,
                          reef_error *err) {
    size_t each = reef_vector_record_bytes(&trainer->net.config), before = trainer->carry_bytes;
    size_t take = count < need ? count : need;
    reef_status status = reserve_carry(trainer, before + take, err);
    if (status != REEF_OK) return status;
    memcpy(trainer->carry + before, bytes, take);
    for (size_t at = before / each; (at + 1) * each <= before + take; at++) {
        status = check_record(trainer->carry + at * each, trainer->net.config.inputs,
                              (trainer->stream_bytes + at * each) / each, err);
        if (status == REEF_OK) continue;
        *taken = at * each > before ? at * each - before : 0;
        trainer->carry_bytes = before + *taken;
        return status;
    }
    trainer->carry_bytes += take;
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
    size_t each = reef_vector_record_bytes(&trainer->net.config), rows = batch_rows(vector);
    *taken = *steps = 0;
    if (vector->untested > 0 && vector->untested < rows) rows = vector->untested;
    size_t end = (vector->held + rows) * each;
    reef_status status = REEF_OK;
    if (trainer->carry_bytes < end)
        status = accept(trainer, bytes, count, end - trainer->carry_bytes, taken, err);
    if (status != REEF_OK || trainer->carry_bytes < end) return status;
    return next_batch(trainer, rows, steps, err);
}

reef_status reef_trainer_learn_rest(reef_trainer *trainer, reef_error *err) {
    reef_vector *vector = trainer->vector;
    reef_status status = REEF_OK;
    if (vector == NULL || vector->rival || vector->examples == 0 || vector->held > 0)
        return REEF_OK;
    release(vector, trainer->carry_bytes / reef_vector_record_bytes(&trainer->net.config));
    for (size_t taken, steps; status == REEF_OK && vector->untested > 0;)
        status = reef_vector_push(trainer, NULL, 0, &taken, &steps, err);
    return status;
}
