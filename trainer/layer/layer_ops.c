// A trainer of a layer by itself: what trainer_ops.h asks of it. Its generations are those of a
// language model with nothing around the experts, so opening and committing are shared.
#include "generations.h"
#include "layer_trainer_internal.h"
#include "trainer_ops.h"

static reef_status allocate_layer(reef_trainer *trainer, reef_error *err) {
    reef_status status = reef_thread_pool_new(&trainer->workers, trainer->options.threads, err);
    return status == REEF_OK ? reef_layer_new(&trainer->layer, err) : status;
}

static reef_status no_gating(reef_trainer *trainer, reef_error *err) {
    (void)trainer, (void)err; // every generation takes part in every row
    return REEF_OK;
}

// Folded queries are not stored: the first forward pass makes them from what was loaded.
static reef_status load_layer_state(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    (void)txn, (void)err;
    trainer->layer->fold_is_stale = true;
    return REEF_OK;
}

static void release_layer(reef_trainer *trainer) {
    reef_layer_free(trainer->layer);
}

static reef_status push_nothing(reef_trainer *trainer,
                                const uint8_t *bytes,
                                size_t count,
                                size_t *taken,
                                size_t *steps,
                                reef_error *err) {
    (void)trainer, (void)bytes, (void)count;
    *taken = *steps = 0;
    return reef_kind_allows(reef_layer_ops.no_stream, err);
}

static reef_status reset_layer_lookahead(reef_trainer *trainer, reef_error *err) {
    (void)trainer, (void)err; // no batch is ever deferred
    return REEF_OK;
}

static reef_status put_layer_state(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    (void)trainer, (void)txn, (void)err; // gradients that are collected are not kept
    return REEF_OK;
}

static reef_status check_layer_seal(reef_trainer *trainer,
                                    const char *seal_dtype,
                                    uint32_t *side,
                                    reef_error *err) {
    reef_config config = trainer->network.config; // the pool's own stays as it is
    reef_status status = REEF_OK;
    *side = config.side_new;
    if (seal_dtype != NULL) status = reef_config_set(&config, "seal_dtype", seal_dtype, err);
    return status == REEF_OK ? reef_layer_check_room(trainer, config.side_new, err) : status;
}

static reef_status seal_layer(reef_trainer *trainer,
                              const char *seal_dtype,
                              reef_sealing *out,
                              reef_error *err) {
    return reef_trainer_layer_seal(trainer, 0, seal_dtype, out, err);
}

static reef_status check_layer_grow(const reef_trainer *trainer, reef_error *err) {
    if (trainer->layer->collected.rows == 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "gradients are collected; take the step or discard them before it grows");
}

static void layer_grown(reef_trainer *trainer) {
    trainer->layer->fold_is_stale = true;
    trainer->layer->version++; // tapes of before no longer fit
}

static void describe_layer(const reef_trainer *trainer, reef_trainer_status *out) {
    (void)trainer, (void)out; // it has no loss of its own
}

const reef_trainer_ops reef_layer_ops = {
    .allocate = allocate_layer,
    .first_generation = reef_generations_first,
    .load_generations = reef_generations_load,
    .start_gating = no_gating,
    .load_state = load_layer_state,
    .release = release_layer,
    .pin = reef_generations_pin,
    .push = push_nothing,
    .reset_lookahead = reset_layer_lookahead,
    .put_generations = reef_generations_put,
    .put_state = put_layer_state,
    .committed = reef_generations_committed,
    .seal_check = check_layer_seal,
    .seal = seal_layer,
    .grow_check = check_layer_grow,
    .grown = layer_grown,
    .describe = describe_layer,
    .no_stream = "the pool holds a layer by itself, which has no stream; a program that uses it "
                 "through libreef trains it",
    .no_import = "a layer by itself takes no generation of another pool: there is no gate to say "
                 "where it takes part",
};
