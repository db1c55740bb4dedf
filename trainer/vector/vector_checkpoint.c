// Records of a vector model, all little-endian as this machine holds them; N padded, and G' the
// padded width of the gate, as in vector.h:
//
//   tensors    mean, scale       (D) floats
//              w_up              (C, padded N) floats
//              labels            (C) int32: of the pool's classes that the generation knows
//              gate_weights      (generations, G') floats; empty where there is no gate
//              head              drawn (0 or 1), sharpness of the gate, reference (3 doubles)
//              vector            JSON: where learning stands; open generation only
//   experts    layer 0, block    rows [w_down, bias]
//   moments    layer 0, block    a tile of the gram matrix; layer 1 of the gate's, of sealed
//              generations;
//                                layer 2 of the gate's, of the open one
//              moment, means     (C', padded N) and (generations, G') floats
//              w_up, gate_weights   of the last solution on schedule (tensors hold that of all
//                                   examples)
//   moments    layer 0, block    of baselines: adam_m then adam_v of a block of experts
//              w_up              adam_m then adam_v
//   reservoir  slot              generation, size (uint32), 0 (uint64), the record
//
// Moments are of the open generation only. JSON and reservoir: vector_state.c.
#include "vector_checkpoint.h"
#include "events.h"
#include "ridge_sums.h"
#include "trainer_internal.h"
#include "vector_state.h"

#include <stdlib.h>
#include <string.h>

enum { LAYER_GRAM, LAYER_GATE_SEALED, LAYER_GATE_OPEN };

static reef_status put_floats(reef_txn *txn,
                              reef_db db,
                              uint32_t generation,
                              const char *name,
                              const void *data,
                              size_t bytes,
                              reef_error *err) {
    reef_key key = reef_vector_record_key(db, generation, name);
    // A matrix without rows may have no memory.
    return reef_record_put(txn, &key, REEF_F32, bytes > 0 ? data : "", bytes, err);
}

// ---- experts ------------------------------------------------------------------------------------

static reef_status put_experts(reef_txn *txn,
                               uint32_t number,
                               const reef_vector_generation *generation,
                               reef_error *err) {
    for (reef_vector_block b = {0}; reef_vector_block_next(generation, &b);) {
        reef_key key = reef_vector_block_key(REEF_DB_EXPERTS, number, &b);
        reef_status status = reef_record_put(txn, &key, REEF_F32, generation->experts + b.at,
                                             b.count * sizeof(float), err);
        if (status != REEF_OK) return status;
    }
    return REEF_OK;
}

// ---- a generation -------------------------------------------------------------------------------

static reef_status put_generation(reef_txn *txn,
                                  const reef_vector *vector,
                                  uint32_t g,
                                  const reef_vector_head *head,
                                  reef_error *err) {
    const reef_vector_generation *generation = vector->network.generations[g];
    size_t D = generation->inputs * sizeof(float), C = head->class_count;
    size_t gate_width = reef_vector_gate_shape(&vector->network.config).padded;
    // Three small numbers share a record.
    double values[3] = {generation->drawn ? 1.0 : 0.0, (double)head->sharpness,
                        generation->reference};
    reef_status status = put_floats(txn, REEF_DB_TENSORS, g, "mean", generation->mean, D, err);
    if (status == REEF_OK)
        status = put_floats(txn, REEF_DB_TENSORS, g, "scale", generation->scale, D, err);
    if (status == REEF_OK)
        status = put_floats(txn, REEF_DB_TENSORS, g, "w_up", head->w_up,
                            C * generation->shape.padded * sizeof(float), err);
    if (status == REEF_OK)
        status = put_floats(txn, REEF_DB_TENSORS, g, "labels", vector->network.labels,
                            C * sizeof(int32_t), err);
    if (status == REEF_OK)
        status = put_floats(txn, REEF_DB_TENSORS, g, "gate_weights", head->gate,
                            head->gate_count * gate_width * sizeof(float), err);
    if (status == REEF_OK)
        status = put_floats(txn, REEF_DB_TENSORS, g, "head", values, sizeof(values), err);
    // Experts are drawn once and never change, so they are written once.
    if (status == REEF_OK && !generation->experts_stored)
        status = put_experts(txn, g, generation, err);
    return status;
}

// ---- sums ---------------------------------------------------------------------------------------

static reef_status put_tiles(reef_txn *txn,
                             uint32_t generation,
                             uint32_t layer,
                             const reef_ridge_shape *shape,
                             const float *gram,
                             reef_error *err) {
    size_t floats = reef_ridge_tile_floats(shape);
    // One record per tile: a commit of a large matrix never needs one huge value.
    for (size_t tile = 0; tile < reef_ridge_tile_count(shape); tile++) {
        reef_key key = {.db = REEF_DB_MOMENTS,
                        .generation = generation,
                        .layer = layer,
                        .block = (uint32_t)tile};
        reef_status status =
            reef_record_put(txn, &key, REEF_F32, gram + tile * floats, floats * sizeof(float), err);
        if (status != REEF_OK) return status;
    }
    return REEF_OK;
}

static reef_status get_tiles(reef_txn *txn,
                             uint32_t generation,
                             uint32_t layer,
                             const reef_ridge_shape *shape,
                             float *gram,
                             reef_error *err) {
    size_t floats = reef_ridge_tile_floats(shape);
    for (size_t tile = 0; tile < reef_ridge_tile_count(shape); tile++) {
        reef_key key = {.db = REEF_DB_MOMENTS,
                        .generation = generation,
                        .layer = layer,
                        .block = (uint32_t)tile};
        reef_status status =
            reef_record_read(txn, &key, gram + tile * floats, floats * sizeof(float), err);
        if (status != REEF_OK) return status;
    }
    return REEF_OK;
}

typedef reef_status (*move_matrix)(reef_txn *txn,
                                   uint32_t generation,
                                   const char *name,
                                   float *data,
                                   size_t bytes,
                                   reef_error *err);
typedef reef_status (*move_gram)(reef_txn *txn,
                                 uint32_t generation,
                                 uint32_t layer,
                                 const reef_ridge_shape *shape,
                                 float *gram,
                                 reef_error *err);

static reef_status put_matrix(reef_txn *txn,
                              uint32_t generation,
                              const char *name,
                              float *data,
                              size_t bytes,
                              reef_error *err) {
    return put_floats(txn, REEF_DB_MOMENTS, generation, name, data, bytes, err);
}

static reef_status get_matrix(reef_txn *txn,
                              uint32_t generation,
                              const char *name,
                              float *data,
                              size_t bytes,
                              reef_error *err) {
    return reef_vector_record_read(txn, REEF_DB_MOMENTS, generation, name, data, bytes, err);
}

static reef_status put_gram(reef_txn *txn,
                            uint32_t generation,
                            uint32_t layer,
                            const reef_ridge_shape *shape,
                            float *gram,
                            reef_error *err) {
    return put_tiles(txn, generation, layer, shape, gram, err);
}

// One list of what there is, for both directions.
static reef_status move_sums(
    reef_txn *txn, reef_vector *vector, move_matrix matrix, move_gram gram, reef_error *err) {
    reef_vector_generation *open = reef_vector_open(vector);
    uint32_t g = (uint32_t)(vector->network.generation_count - 1);
    size_t row = open->shape.padded * sizeof(float);
    size_t gate_row = vector->gate.shape.padded * sizeof(float);
    reef_status status = gram(txn, g, LAYER_GRAM, &open->shape, vector->gram, err);
    // Generation 0 has no gate and no sums for one.
    if (status == REEF_OK && g > 0)
        status = gram(txn, g, LAYER_GATE_SEALED, &vector->gate.shape, vector->gate.sealed, err);
    if (status == REEF_OK && g > 0)
        status = gram(txn, g, LAYER_GATE_OPEN, &vector->gate.shape, vector->gate.open, err);
    if (status == REEF_OK)
        status = matrix(txn, g, "moment", vector->moment, vector->moment_classes * row, err);
    if (status == REEF_OK)
        status = matrix(txn, g, "means", vector->gate.means,
                        vector->network.generation_count * gate_row, err);
    if (status == REEF_OK)
        status = matrix(txn, g, "w_up", open->head.w_up, open->head.class_count * row, err);
    if (status == REEF_OK)
        status =
            matrix(txn, g, "gate_weights", open->head.gate, open->head.gate_count * gate_row, err);
    return status;
}

// ---- moments of baselines -----------------------------------------------------------------------

static reef_status put_pair(reef_txn *txn,
                            const reef_key *key,
                            const float *m,
                            const float *v,
                            size_t count,
                            reef_error *err) {
    // Both moments share a record, so that neither can be there without the other.
    float *both = malloc((2 * count + 1) * sizeof(*both));
    if (both == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu moments", count);
    if (count > 0) {
        memcpy(both, m, count * sizeof(*both));
        memcpy(both + count, v, count * sizeof(*both));
    }
    reef_status status = reef_record_put(txn, key, REEF_F32, both, 2 * count * sizeof(*both), err);
    free(both);
    return status;
}

static reef_status get_pair(
    reef_txn *txn, const reef_key *key, float *m, float *v, size_t count, reef_error *err) {
    float *both = malloc((2 * count + 1) * sizeof(*both));
    if (both == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu moments", count);
    reef_status status = reef_record_read(txn, key, both, 2 * count * sizeof(*both), err);
    if (status == REEF_OK && count > 0) {
        memcpy(m, both, count * sizeof(*both));
        memcpy(v, both + count, count * sizeof(*both));
    }
    free(both);
    return status;
}

static reef_status put_adam(reef_txn *txn, const reef_vector *vector, reef_error *err) {
    const reef_vector_generation *generation = reef_vector_open(vector);
    const reef_vector_adam *adam = &vector->adam;
    reef_key name = reef_vector_record_key(REEF_DB_MOMENTS, 0, "w_up");
    // Nothing new since the last commit.
    if (adam->experts_m == NULL || generation->experts_stored) return REEF_OK;
    for (reef_vector_block b = {0}; reef_vector_block_next(generation, &b);) {
        reef_key key = reef_vector_block_key(REEF_DB_MOMENTS, 0, &b);
        reef_status status =
            put_pair(txn, &key, adam->experts_m + b.at, adam->experts_v + b.at, b.count, err);
        if (status != REEF_OK) return status;
    }
    return put_pair(txn, &name, adam->w_up_m, adam->w_up_v,
                    generation->head.class_count * generation->shape.padded, err);
}

static reef_status get_adam(reef_txn *txn, reef_vector *vector, reef_error *err) {
    const reef_vector_generation *generation = reef_vector_open(vector);
    reef_vector_adam *adam = &vector->adam;
    reef_key name = reef_vector_record_key(REEF_DB_MOMENTS, 0, "w_up");
    // Before the first step moments do not exist, nor do their records.
    if (generation->head.class_count == 0) return REEF_OK;
    reef_status status = reef_vector_baseline_widen(vector, generation->head.class_count, err);
    if (status != REEF_OK) return status;
    for (reef_vector_block b = {0}; reef_vector_block_next(generation, &b);) {
        reef_key key = reef_vector_block_key(REEF_DB_MOMENTS, 0, &b);
        status = get_pair(txn, &key, adam->experts_m + b.at, adam->experts_v + b.at, b.count, err);
        if (status != REEF_OK) return status;
    }
    return get_pair(txn, &name, adam->w_up_m, adam->w_up_v,
                    generation->head.class_count * generation->shape.padded, err);
}

// ---- a commit -----------------------------------------------------------------------------------

static reef_status put_sealed(reef_trainer *trainer, reef_txn *txn, size_t g, reef_error *err) {
    reef_generation_record info = trainer->network.generations[g]->info;
    reef_key key = reef_vector_state_key(info.generation);
    // A sealed generation's records may not be written. It is stored as open first and sealed by
    // the store at the end, which computes its root.
    info.sealed = false; // until everything is in place
    reef_status status = reef_generation_put(txn, &info, err);
    // What only training needs goes: its state and its drift history.
    if (status == REEF_OK) status = reef_state_delete(txn, info.generation, err);
    if (status == REEF_OK) status = reef_record_delete(txn, &key, err);
    if (status == REEF_OK)
        status = put_generation(txn, trainer->vector, (uint32_t)g,
                                &trainer->vector->network.generations[g]->head, err);
    if (status != REEF_OK) return status;
    return reef_generation_seal(txn, info.generation, info.sealed_step, info.sealed_at, err);
}

static reef_status put_open(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    reef_vector *vector = trainer->vector;
    uint32_t g = (uint32_t)(vector->network.generation_count - 1);
    // What is served is solved from all examples so far; training itself continues from the last
    // solution on schedule, so that commits do not change it.
    const reef_vector_head *head = vector->baseline || vector->examples == 0
                                       ? &reef_vector_open(vector)->head
                                       : &vector->served;
    reef_status status = reef_generation_put(txn, &trainer->network.generations[g]->info, err);
    if (status == REEF_OK) status = put_generation(txn, vector, g, head, err);
    if (status == REEF_OK)
        status = vector->baseline ? put_adam(txn, vector, err)
                                  : move_sums(txn, vector, put_matrix, put_gram, err);
    if (status == REEF_OK) status = reef_vector_state_put(txn, vector, err);
    return status;
}

reef_status reef_vector_put(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    reef_status status = reef_vector_refresh(trainer, err);
    for (size_t g = 0; status == REEF_OK && g + 1 < trainer->network.generation_count; g++)
        if (!trainer->network.generations[g]->stored) status = put_sealed(trainer, txn, g, err);
    if (status == REEF_OK) status = put_open(trainer, txn, err);
    if (status == REEF_OK) status = reef_vector_memory_put(txn, trainer->vector, err);
    return status;
}

void reef_vector_settle(reef_trainer *trainer) {
    reef_vector *vector = trainer->vector;
    for (size_t g = 0; g < trainer->network.generation_count; g++) {
        trainer->network.generations[g]->stored = !trainer->network.generations[g]->open;
        // Experts that are not drawn yet are stored as zeros, and change once.
        vector->network.generations[g]->experts_stored = vector->network.generations[g]->drawn;
    }
    if (vector->memory.slots > 0)
        memset(vector->memory.dirty, 0, vector->memory.slots * sizeof(*vector->memory.dirty));
}

// ---- opening ------------------------------------------------------------------------------------

static reef_status load_generations(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    uint32_t count;
    reef_status status = reef_generation_count(txn, &count, err);
    // The language model's struct has the store's record; tensors live in the vector network.
    for (uint32_t g = 0; status == REEF_OK && g < count; g++) {
        reef_generation *generation = calloc(1, sizeof(*generation));
        if (generation == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a generation");
        status = reef_generation_read(txn, g, &generation->info, err);
        generation->open = !generation->info.sealed;
        generation->stored = generation->info.sealed;
        if (status == REEF_OK)
            status = reef_network_append(&trainer->network, generation, err);
        else
            reef_generation_free(generation);
        if (status == REEF_OK)
            status = reef_vector_load_generation(&trainer->vector->network, txn, g, err);
    }
    if (status != REEF_OK) return status;
    if (count > 0 && reef_open_generation(trainer)->open) return REEF_OK;
    return reef_fail(err, REEF_ERR_CORRUPT, "pool %s has no open generation",
                     reef_store_path(trainer->store));
}

// The open generation's tensors hold what was solved for the commit; here comes the solution on
// schedule.
static reef_status load_sums(reef_vector *vector,
                             reef_txn *txn,
                             const reef_vector_head *sizes,
                             reef_error *err) {
    reef_vector_generation *open = reef_vector_open(vector);
    size_t G = vector->network.generation_count, gate_width = vector->gate.shape.padded;
    size_t moment_classes = vector->moment_classes;
    // The open generation's tensors are the served solution; the scheduled one follows from the
    // sums' own records.
    if (vector->examples > 0) {
        vector->served = open->head;
        open->head = (reef_vector_head){0};
    }
    vector->served_examples = vector->examples;
    vector->moment_classes = 0;
    reef_status status = reef_vector_sums_widen(vector, moment_classes, err);
    vector->gate.means = calloc(G * gate_width, sizeof(float));
    if (vector->gate.means == NULL)
        // Means have a row for every generation, whatever was sealed.
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu generations", G);
    if (status == REEF_OK)
        status = reef_vector_head_size(&open->head, sizes->class_count, open->shape.padded,
                                       sizes->gate_count, gate_width, err);
    open->head.sharpness = sizes->sharpness;
    if (status == REEF_OK) status = move_sums(txn, vector, get_matrix, get_tiles, err);
    return status;
}

reef_status reef_vector_load(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    reef_vector *vector = trainer->vector;
    reef_vector_head sizes = {0};
    reef_status status = load_generations(trainer, txn, err);
    if (status == REEF_OK) status = reef_vector_state_get(txn, vector, &sizes, err);
    if (status == REEF_OK)
        status =
            vector->baseline ? get_adam(txn, vector, err) : load_sums(vector, txn, &sizes, err);
    if (status == REEF_OK) status = reef_vector_memory_get(txn, vector, err);
    if (status != REEF_OK) return status;
    reef_vector_generation *open = reef_vector_open(vector);
    open->experts_stored = open->drawn;
    return REEF_OK;
}
