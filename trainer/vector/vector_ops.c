// A trainer of a vector model: what trainer_ops.h asks of it.
#include "trainer_internal.h"
#include "trainer_ops.h"
#include "vector.h"

#include <math.h>
#include <string.h>

static reef_status no_gating(reef_trainer *trainer, reef_error *err) {
    (void)trainer, (void)err; // its gates are solved with the heads, and read no stream
    return REEF_OK;
}

static reef_status no_state(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    (void)trainer, (void)txn, (void)err; // the generations' records hold everything
    return REEF_OK;
}

static void release_vector(reef_trainer *trainer) {
    reef_vector_free(trainer->vector);
}

static reef_status pin_vector(reef_trainer *trainer, reef_error *err) {
    (void)trainer, (void)err; // copied into memory when it is opened
    return REEF_OK;
}

static reef_status push_records(reef_trainer *trainer,
                                const reef_source *source,
                                const uint8_t *bytes,
                                size_t count,
                                size_t *taken,
                                size_t *steps,
                                reef_error *err) {
    (void)source; // records have no marker lines
    return reef_vector_push(trainer, bytes, count, taken, steps, err);
}

static reef_status reset_vector_lookahead(reef_trainer *trainer, reef_error *err) {
    (void)trainer, (void)err; // reef_vector_boundary itself handles the deferred examples
    return REEF_OK;
}

static reef_status put_vector(reef_trainer *trainer,
                              reef_txn *txn,
                              uint64_t unix_ms,
                              reef_error *err) {
    (void)unix_ms; // its generations have no time of sealing of their own
    return reef_vector_put(trainer, txn, err);
}

// ---- sealing ------------------------------------------------------------------------------------

static reef_status check_vector_dtype(const char *seal_dtype, reef_error *err) {
    if (seal_dtype == NULL || strcmp(seal_dtype, "f32") == 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "rows of a vector model stay f32 when they are sealed; not %.16s", seal_dtype);
}

static reef_status check_vector_seal(reef_trainer *trainer,
                                     const char *seal_dtype,
                                     uint32_t *side,
                                     reef_error *err) {
    *side = trainer->network.config.side;
    reef_status status = check_vector_dtype(seal_dtype, err);
    return status == REEF_OK ? reef_vector_check_boundary(trainer, err) : status;
}

static reef_status seal_vector(reef_trainer *trainer,
                               const char *seal_dtype,
                               reef_sealing *out,
                               reef_error *err) {
    uint32_t generation = reef_open_generation(trainer)->info.generation;
    reef_status status = check_vector_dtype(seal_dtype, err);
    if (status == REEF_OK) status = reef_vector_boundary(trainer, "command", err);
    if (status == REEF_OK) status = reef_trainer_commit(trainer, NULL, err);
    // Loss before and after does not apply: rows stay f32, so sealing changes no prediction.
    if (status == REEF_OK && out != NULL)
        *out = (reef_sealing){.generation = generation,
                              .dtype = REEF_F32,
                              .loss_before = (double)NAN,
                              .loss_after = (double)NAN};
    return status;
}

static reef_status check_vector_grow(const reef_trainer *trainer, reef_error *err) {
    (void)trainer, (void)err; // never called: no_growth
    return REEF_OK;
}

static void vector_grown(reef_trainer *trainer) {
    (void)trainer; // never called: no_growth
}

// ---- status -------------------------------------------------------------------------------------

static void describe_vector(const reef_trainer *trainer, reef_trainer_status *out) {
    const reef_vector *vector = trainer->vector;
    out->anomalous = vector->deferred_batches;
    out->bits_per_byte = reef_vector_expected_errors(vector);
    // Until enough labels were tested, the last batch's errors are the best there is.
    if (isnan(out->bits_per_byte)) out->bits_per_byte = trainer->last_bits;
    out->experts_open = vector->network.generations[0]->expert_count;
    out->experts = out->experts_open * vector->network.generation_count;
}

const reef_trainer_ops reef_vector_ops = {
    .allocate = reef_vector_start,
    .first_generation = reef_vector_open_generation,
    .load_generations = reef_vector_load,
    .start_gating = no_gating,
    .load_state = no_state,
    .release = release_vector,
    .pin = pin_vector,
    .push = push_records,
    .reset_lookahead = reset_vector_lookahead,
    .put_generations = put_vector,
    .put_state = no_state,
    .committed = reef_vector_settle,
    .seal_check = check_vector_seal,
    .seal = seal_vector,
    .grow_check = check_vector_grow,
    .grown = vector_grown,
    .describe = describe_vector,
    .no_branch = "a vector model cannot branch: its experts are drawn once and learn nothing that "
                 "could be copied",
    .no_import = "a vector model cannot import a generation: its gate is solved together with "
                 "those of the others",
    .no_freeze = "experts of a vector model cannot be frozen or thawed: they are drawn once and "
                 "stay as they are; seal the generation to open another",
    .no_growth = "experts of a vector model cannot be added: they are drawn once and stay as they "
                 "are; seal the generation to open another",
};
