// The life of generations: a boundary seals one and opens the next, grids grow.
#include "boundary.h"
#include "batch.h"
#include "events.h"
#include "kind_memories.h"
#include "room.h"
#include "trainer_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE_BYTES 16384 // of the kind's last text that sealing measures its loss on

// ---- loss of a sealing --------------------------------------------------------------------------

typedef struct sample {
    uint8_t bytes[SAMPLE_BYTES];
    size_t count;
} sample;

// What the open kind learned last. Nothing without a memory, which keeps it.
static reef_status take_sample(reef_trainer *trainer, sample *out, reef_error *err) {
    reef_generation_memory *memory = NULL;
    out->count = 0;
    // Sealing changes nothing of a memory, and without a net there is nothing else to measure.
    if (!reef_has_net(trainer) || trainer->memory.lane == NULL) return REEF_OK;
    reef_status status = reef_open_kind_load(trainer, &memory, err);
    if (status == REEF_OK && memory->memory != NULL)
        out->count = reef_memory_text(memory->memory, out->bytes, SAMPLE_BYTES);
    return status;
}

// Loss of the sample by the first generation and `fires`, as they are evaluated. `loss` is NaN and
// `scored` 0 without a sample.
static reef_status measure_sample(reef_trainer *trainer,
                                  const sample *of,
                                  size_t fires,
                                  double *loss,
                                  uint64_t *scored,
                                  reef_error *err) {
    const size_t each = reef_batch_bytes(&trainer->network.config);
    double nats = 0.0;
    *loss = NAN;
    *scored = 0;
    for (size_t at = 0; at < of->count; at += each) {
        size_t windows = reef_batch_place_text(trainer, of->bytes + at, of->count - at);
        size_t tokens = windows * trainer->network.config.context;
        if (windows == 0) break;
        const reef_batch batch = reef_batch_make(trainer, windows, fires, false);
        reef_status status =
            reef_network_forward(&trainer->net.acts, &trainer->network, trainer->workers, &batch,
                                 REEF_PASS_EVALUATE, err);
        if (status != REEF_OK) return status;
        for (size_t t = 0; t < tokens; t++) nats += trainer->net.acts.loss[t];
        *scored += tokens;
    }
    if (*scored > 0) *loss = nats / REEF_LN2 / (double)*scored;
    return REEF_OK;
}

// ---- a boundary ---------------------------------------------------------------------------------

reef_status reef_growth_next(reef_generation **out,
                             const reef_trainer *trainer,
                             const reef_generation_record *last,
                             const reef_generation *open,
                             uint32_t side,
                             reef_error *err) {
    const reef_config *config = &trainer->network.config;
    // Ids continue where the last generation ends, so an expert's id is unique in the pool for
    // ever.
    reef_generation_record info = {
        .generation = last->generation + 1,
        .parent = last->generation,
        .side = side,
        .first_id = last->first_id + (uint64_t)last->side * last->side,
        .dtype = REEF_F32,
        .opened_step = trainer->step,
        .opened_at = trainer->stream_bytes,
    };
    *out = NULL;
    if (info.generation >= REEF_GENERATION_COUNT_MAX)
        return reef_fail(err, REEF_ERR_FULL, "the pool has %u generations, the most there can be",
                         info.generation);
    reef_status status = reef_generation_new(out, config, &info, open->division, err);
    if (status == REEF_OK) reef_generation_initialise(*out, config, open);
    return status;
}

// JSON of a loss that there may be none of.
static const char *loss_text(const reef_sealing *sealing, double loss, char text[32]) {
    snprintf(text, 32, "%.17g", loss);
    return sealing->loss_bytes > 0 ? text : "null";
}

static reef_status report_boundary(reef_trainer *trainer,
                                   const reef_opening *opening,
                                   const reef_sealing *sealing,
                                   double bits, // of its last batches, a byte; NaN: not known
                                   reef_error *err) {
    // The boundary has happened in memory by now: the sealed generation stands before the open one.
    const reef_generation *sealed =
        trainer->network.generations[trainer->network.generation_count - 2];
    const reef_generation *open = reef_open_generation(trainer);
    char before[32], after[32], median[32] = "null";
    if (!isnan(bits)) snprintf(median, sizeof(median), "%.4f", bits);
    reef_status status = reef_state_event(
        trainer, err, "seal",
        "\"sealed\": %u, \"reason\": \"%s\", \"bits_per_byte\": %s, \"dtype\": \"%s\", "
        "\"loss_bytes\": %llu, \"loss_before\": %s, \"loss_after\": %s",
        sealed->info.generation, opening->reason, median, reef_rows_dtype_text(sealing->dtype),
        (unsigned long long)sealing->loss_bytes, loss_text(sealing, sealing->loss_before, before),
        loss_text(sealing, sealing->loss_after, after));
    if (status != REEF_OK) return status;
    return reef_state_event(trainer, err, "open", "\"reason\": \"%s\", \"side\": %u",
                            opening->reason, open->info.side);
}

// The sealed twin of the open generation, whose weights are its averages by now, and the generation
// after it.
static reef_status seal_open(reef_trainer *trainer,
                             const reef_opening *opening,
                             const sample *text,
                             reef_sealing *out,
                             reef_generation **sealed,
                             reef_generation **next,
                             reef_error *err) {
    reef_network *network = &trainer->network;
    reef_generation *open = reef_open_generation(trainer);
    // It copies the open generation's unfolded query, so it must come before sealing folds it.
    reef_status status = reef_growth_next(next, trainer, &open->info, open, opening->side, err);
    if (status == REEF_OK)
        status = reef_network_reserve(network, network->generation_count + 1, err);
    // Measured before and after sealing: with int8 rows or folded queries the loss may move, and
    // the difference is reported.
    if (status == REEF_OK)
        status = measure_sample(trainer, text, network->generation_count - 1, &out->loss_before,
                                &out->loss_bytes, err);
    if (status != REEF_OK) return status;
    open->info.sealed_step = trainer->step;
    open->info.sealed_at = trainer->stream_bytes;
    return reef_generation_make_sealed(sealed, open, &network->config, out->dtype, err);
}

// Losses are of the sealed generation's text: the next one collects its own.
static void reset_for_next_generation(reef_trainer *trainer) {
    trainer->stream.recent = (reef_recent_losses){0};
    trainer->generation_step = 0;
    trainer->full = false;
    if (!trainer->kinds.keeps) trainer->kinds.current = reef_open_kind(trainer);
}

// After the generations were swapped. A failure cannot be undone here: the open one is gone.
static reef_status begin_next(reef_trainer *trainer,
                              const reef_opening *opening,
                              const sample *text,
                              reef_generation *sealed,
                              reef_sealing *out,
                              reef_error *err) {
    // What older kinds learned while it was open is sealed with it.
    reef_status status = reef_kinds_seal_visits(trainer, sealed, err);
    if (status == REEF_OK)
        status = measure_sample(trainer, text, trainer->network.generation_count - 2,
                                &out->loss_after, &out->loss_bytes, err);
    if (status != REEF_OK) return status;
    double bits = reef_recent_losses_median(&trainer->stream.recent);
    reset_for_next_generation(trainer);
    return report_boundary(trainer, opening, out, bits, err);
}

// Memory only: the next commit writes the sealed generation and the new one in one transaction, so
// a full disk or a crash here costs nothing. An error after the generations were swapped (no
// memory) leaves a trainer that is only good for reef_trainer_close: `broken` keeps it from
// learning on and from every commit.
reef_status reef_growth_boundary(reef_trainer *trainer,
                                 const reef_opening *opening,
                                 reef_dtype dtype,
                                 reef_sealing *out,
                                 reef_error *err) {
    const reef_config *config = &trainer->network.config;
    reef_network *network = &trainer->network;
    reef_generation *open = reef_open_generation(trainer), *sealed = NULL, *next = NULL;
    sample text;
    reef_status status = take_sample(trainer, &text, err);
    if (status != REEF_OK) return status;
    *out = (reef_sealing){.generation = open->info.generation, .dtype = dtype};
    reef_generation_exchange(open, config); // as it is evaluated, and stays
    status = seal_open(trainer, opening, &text, out, &sealed, &next, err);
    if (status != REEF_OK) {
        reef_generation_exchange(open, config); // it continues to train
        reef_generation_free(sealed);
        reef_generation_free(next);
        return status;
    }
    // Drop tapes of the open generation's shape under this number; the sealed one gets its own when
    // it first fires.
    reef_activations_forget_generation(&trainer->net.acts, network->generation_count - 1);
    reef_generation_free(open);
    network->generations[network->generation_count - 1] = sealed; // the model owns both now
    network->generations[network->generation_count++] = next;
    status = begin_next(trainer, opening, &text, sealed, out, err);
    if (status != REEF_OK) reef_trainer_break(trainer, status);
    return status;
}

// From here on no boundary is looked for, unless something makes room again.
static reef_status report_full(reef_trainer *trainer, const char *reason, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    trainer->full = true;
    return reef_state_event(trainer, err, "full",
                            "\"reason\": \"%s\", \"experts\": %" PRIu64
                            ", \"experts_max\": %" PRIu64 ", \"kinds\": %" PRIu32
                            ", \"kinds_max\": %" PRIu32,
                            reason, reef_room_experts(trainer), config->experts_max,
                            reef_room_kinds(trainer), config->kinds_max);
}

reef_status reef_growth_begin(reef_trainer *trainer, const char *reason, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    const reef_opening opening = {.reason = reason, .side = config->side};
    reef_sealing sealing;
    // A full pool continues to learn in the open generation; the event says so once.
    if (!reef_room_for_generation(trainer)) return report_full(trainer, reason, err);
    return reef_growth_boundary(trainer, &opening, reef_generation_seal_dtype(config), &sealing,
                                err);
}

// ---- growth in place ----------------------------------------------------------------------------

reef_status reef_growth_enlarge(reef_trainer *trainer, uint32_t side, reef_error *err) {
    reef_generation *open = reef_open_generation(trainer), *grown = NULL;
    uint32_t before = open->info.side;
    if (side > REEF_SIDE_MAX)
        return reef_fail(err, REEF_ERR_INVALID, "side %u is more than the %u sub-keys there can be",
                         side, REEF_SIDE_MAX);
    // A larger copy is made before the old one goes: without memory for it the trainer stays as it
    // is.
    reef_status status = reef_generation_grow(&grown, open, &trainer->network.config, side, err);
    if (status != REEF_OK) return status;
    reef_generation_memory_move(&grown->memory, &open->memory);
    // Tapes are sized by the side; those of the old shape are freed and made again at the next
    // pass.
    reef_activations_forget_generation(&trainer->net.acts, trainer->network.generation_count - 1);
    reef_generation_free(open);
    trainer->network.generations[trainer->network.generation_count - 1] = grown;
    return reef_state_event(trainer, err, "grow",
                            "\"reason\": \"command\", \"side_before\": %u, \"side\": %u", before,
                            side);
}
