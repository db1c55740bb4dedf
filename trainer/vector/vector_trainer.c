// What a trainer of a vector model consists of, and the opening of its generations.
#include "ridge_sums.h"
#include "trainer_internal.h"

#include <stdlib.h>
#include <string.h>

// ---- memory -------------------------------------------------------------------------------------

static reef_status memory_init(reef_vector *vector, reef_error *err) {
    const reef_config *config = &vector->network.config;
    reef_vector_memory *memory = &vector->memory;
    // One slot more than configured: memory 0 is allowed, and calloc(0) may return NULL.
    memory->slots = config->memory;
    memory->records = calloc(memory->slots + 1, reef_vector_record_bytes(config));
    memory->generations = malloc((memory->slots + 1) * sizeof(*memory->generations));
    memory->dirty = calloc(memory->slots + 1, sizeof(*memory->dirty));
    if (memory->records == NULL || memory->generations == NULL || memory->dirty == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a sample of %zu examples",
                         memory->slots);
    // 0xff.. in every slot is UINT32_MAX: empty.
    memset(memory->generations, 0xff, memory->slots * sizeof(*memory->generations));
    return REEF_OK;
}

static reef_status batch_init(reef_vector *vector, reef_error *err) {
    // Sized for the largest batch and padded to whole pieces and tiles, so that kernels need no
    // tails.
    size_t rows = REEF_VECTOR_BATCH_MAX, D = vector->network.config.inputs;
    reef_ridge_shape shape =
        reef_ridge_shape_of((size_t)vector->network.config.side * vector->network.config.side);
    reef_ridge_shape gate = reef_vector_gate_shape(&vector->network.config);
    vector->vectors = calloc(rows * D, sizeof(float));
    vector->z = calloc(rows * (D + 1), sizeof(float));
    vector->hidden = calloc(rows * shape.padded, sizeof(float));
    // Baselines have no gate; their gradients of all hidden units lie there.
    size_t gate_width = vector->baseline ? shape.padded : gate.padded;
    vector->gate_hidden = calloc(rows * gate_width, sizeof(float));
    vector->wrong = calloc(rows, sizeof(*vector->wrong));
    vector->scores = calloc(rows * REEF_CLASS_COUNT_MAX, sizeof(float));
    vector->classes = calloc(rows, sizeof(*vector->classes));
    if (vector->vectors != NULL && vector->z != NULL && vector->hidden != NULL &&
        vector->gate_hidden != NULL && vector->scores != NULL && vector->classes != NULL &&
        vector->wrong != NULL)
        return REEF_OK;
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a batch of %zu vectors", rows);
}

reef_status reef_vector_start(reef_trainer *trainer, reef_error *err) {
    reef_vector *vector = calloc(1, sizeof(*vector));
    if (vector == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a vector model");
    trainer->vector = vector;
    vector->network.config = trainer->network.config;
    reef_status status = reef_thread_pool_new(&trainer->workers, trainer->options.threads, err);
    if (status == REEF_OK) status = memory_init(vector, err);
    if (status == REEF_OK) status = batch_init(vector, err);
    if (status == REEF_OK && !vector->baseline) status = reef_vector_sums_init(vector, err);
    return status;
}

void reef_vector_free(reef_vector *vector) {
    if (vector == NULL) return;
    // free() accepts NULL, so this also frees a trainer whose opening failed at any point.
    float *floats[] = {vector->gram,           vector->moment,      vector->gate.sealed,
                       vector->gate.open,      vector->gate.means,  vector->adam.experts_m,
                       vector->adam.experts_v, vector->adam.w_up_m, vector->adam.w_up_v,
                       vector->vectors,        vector->z,           vector->hidden,
                       vector->gate_hidden,    vector->scores,      vector->weights,
                       vector->scratch,        vector->factor,      vector->solution,
                       vector->solve_scratch};
    for (size_t i = 0; i < sizeof(floats) / sizeof(*floats); i++) free(floats[i]);
    reef_vector_network_release(&vector->network);
    reef_vector_head_release(&vector->served);
    free(vector->memory.records);
    free(vector->memory.generations);
    free(vector->memory.dirty);
    free(vector->classes);
    free(vector->wrong);
    free(vector);
}

// ---- generations --------------------------------------------------------------------------------

// The store's idea of a generation: numbers and sizes, no tensors of a language model.
static reef_status append_info(reef_trainer *trainer, reef_error *err) {
    const reef_config *config = &trainer->network.config;
    reef_generation *generation = calloc(1, sizeof(*generation));
    if (generation == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a generation");
    generation->open = true;
    generation->info = (reef_generation_record){.side = config->side,
                                                .dtype = REEF_F32,
                                                .opened_step = trainer->step,
                                                .opened_at = trainer->stream_bytes};
    // As in a language model: numbers and ids continue, the parent is the generation before.
    if (trainer->network.generation_count > 0) {
        const reef_generation *before = reef_open_generation(trainer);
        generation->info.generation = before->info.generation + 1;
        generation->info.parent = before->info.generation;
        generation->info.first_id =
            before->info.first_id + (uint64_t)before->info.side * before->info.side;
    }
    return reef_network_append(&trainer->network, generation, err);
}

// Until the new generation's gate is known, that of the one before decides: the new one has no say
// yet.
static reef_status inherit_gate(reef_vector_generation *generation,
                                const reef_vector *vector,
                                reef_error *err) {
    if (vector->network.generation_count == 0) return REEF_OK;
    const reef_vector_head *before = &reef_vector_open(vector)->head;
    size_t width = vector->gate.shape.padded;
    // No classes yet: only the gate's part is inherited.
    reef_status status = reef_vector_head_size(&generation->head, 0, generation->shape.padded,
                                               before->gate_count, width, err);
    if (status != REEF_OK) return status;
    generation->head.sharpness = before->sharpness;
    if (before->gate_count > 0)
        memcpy(generation->head.gate, before->gate, before->gate_count * width * sizeof(float));
    return REEF_OK;
}

reef_status reef_vector_open_generation(reef_trainer *trainer, reef_error *err) {
    reef_vector *vector = trainer->vector;
    reef_vector_generation *generation = NULL;
    // Checked before memory is made.
    if (trainer->network.generation_count >= REEF_GENERATION_COUNT_MAX)
        return reef_fail(err, REEF_ERR_FULL, "the pool has %zu generations, the most there can be",
                         trainer->network.generation_count);
    reef_status status =
        reef_vector_network_reserve(&vector->network, vector->network.generation_count + 1, err);
    if (status == REEF_OK)
        status = reef_vector_generation_new(&generation, &trainer->network.config, err);
    if (status == REEF_OK) status = inherit_gate(generation, vector, err);
    if (status == REEF_OK) status = append_info(trainer, err);
    if (status != REEF_OK) {
        reef_vector_generation_free(generation);
        return status;
    }
    // Both lists, records and vectors, grow together; the vector list is the one that passes read.
    vector->network.generations[vector->network.generation_count++] = generation;
    return vector->baseline ? REEF_OK : reef_vector_sums_generation(vector, err);
}
