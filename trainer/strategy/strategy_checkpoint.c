// What a baseline keeps beside the model, as records: arrays of 32-bit values under the open
// generation in `moments`, because they are used like moments. They count for the root hash;
// resuming needs them and evaluation does not.
//
//   ewc.anchor, ewc.fisher                  one float per value of the dense tensors, in their
//                                           order
//   ewc.anchor.blockN, ewc.fisher.blockN    rows of the experts of layer N
//   lwf.NAME                                tensors of the teacher, as of a sealed generation
//   lwf.blockN.experts                      its rows
//   sparse.blockN                           windows of the background that used each expert
//                                           (uint32)
//
// Arrays are cut into blocks of 32,768 values. They change at boundaries only.
#include "strategy.h"
#include "trainer_internal.h"

#include <stdio.h>
#include <string.h>

#define BLOCK_VALUES ((size_t)32768)

typedef struct kept_array {
    char name[REEF_NAME_BYTES_MAX + 1];
    reef_dtype dtype; // REEF_F32 or REEF_U32
    void *data;
    size_t count;
} kept_array;

typedef reef_status (*array_visit)(reef_txn *txn,
                                   uint32_t generation,
                                   const kept_array *array,
                                   reef_error *err);

static kept_array layer_array(
    const char *format, uint32_t l, reef_dtype dtype, void *data, size_t count) {
    kept_array array = {.dtype = dtype, .data = data, .count = count};
    char layer[16];
    const char *star = strchr(format, '*'); // where the layer's number stands
    snprintf(layer, sizeof(layer), "%u", l);
    snprintf(array.name, sizeof(array.name), "%.*s%s%s", (int)(star - format), format, layer,
             star + 1);
    return array;
}

static reef_status visit_layers(reef_txn *txn,
                                const reef_generation *generation,
                                const char *format,
                                float *const *rows,
                                array_visit visit,
                                reef_error *err) {
    reef_status status = REEF_OK;
    for (uint32_t l = 0; status == REEF_OK && l < REEF_LAYER_COUNT_MAX; l++) {
        const reef_expert_table *table = &generation->expert_tables[l];
        if (table->expert_count == 0) continue;
        // The format has a star where the layer's number goes.
        kept_array array =
            layer_array(format, l, REEF_F32, rows[l], table->expert_count * table->row_values);
        status = visit(txn, generation->info.generation, &array, err);
    }
    return status;
}

static reef_status visit_shadow(reef_txn *txn,
                                const reef_generation *generation,
                                const char *name,
                                const char *layers,
                                const reef_shadow *shadow,
                                array_visit visit,
                                reef_error *err) {
    // Dense tensors are one array with the generation's own layout.
    kept_array array = {
        .dtype = REEF_F32, .data = shadow->values, .count = generation->value_count};
    snprintf(array.name, sizeof(array.name), "%s", name);
    reef_status status = visit(txn, generation->info.generation, &array, err);
    return status == REEF_OK ? visit_layers(txn, generation, layers, shadow->rows, visit, err)
                             : status;
}

static reef_status visit_teacher(reef_txn *txn,
                                 const reef_generation *teacher,
                                 array_visit visit,
                                 reef_error *err) {
    float *rows[REEF_LAYER_COUNT_MAX];
    // Rows are visited through a list of pointers, since visit_layers serves shadows and teachers
    // alike.
    for (uint32_t l = 0; l < REEF_LAYER_COUNT_MAX; l++) rows[l] = teacher->expert_tables[l].experts;
    for (size_t i = 0; i < teacher->tensor_count; i++) {
        const reef_tensor *tensor = &teacher->tensors[i];
        kept_array array = {.dtype = REEF_F32, .data = tensor->data, .count = tensor->count};
        // Names are cut to fit a record key; those of tensors are shorter than that.
        snprintf(array.name, sizeof(array.name), "lwf.%.*s", (int)sizeof(array.name) - 5,
                 tensor->name);
        reef_status status = visit(txn, teacher->info.generation, &array, err);
        if (status != REEF_OK) return status;
    }
    return visit_layers(txn, teacher, "lwf.block*.experts", rows, visit, err);
}

static reef_status visit_background(reef_txn *txn,
                                    const reef_trainer *trainer,
                                    array_visit visit,
                                    reef_error *err) {
    const reef_generation *generation = reef_open_generation(trainer);
    reef_status status = REEF_OK;
    for (uint32_t l = 0; status == REEF_OK && l < REEF_LAYER_COUNT_MAX; l++) {
        if (generation->expert_tables[l].expert_count == 0) continue;
        kept_array array =
            layer_array("sparse.block*", l, REEF_U32, trainer->strategy.background[l],
                        generation->expert_tables[l].expert_count);
        status = visit(txn, generation->info.generation, &array, err);
    }
    return status;
}

static reef_status visit_arrays(reef_txn *txn,
                                const reef_trainer *trainer,
                                array_visit visit,
                                reef_error *err) {
    const reef_strategy *strategy = &trainer->strategy;
    const reef_generation *generation = reef_open_generation(trainer);
    reef_status status = REEF_OK;
    // One list of arrays per strategy serves writing, reading and deleting, so the three cannot
    // disagree.
    switch (strategy->kind) {
    case REEF_STRATEGY_EWC:
        status = visit_shadow(txn, generation, "ewc.anchor", "ewc.anchor.block*", &strategy->anchor,
                              visit, err);
        if (status != REEF_OK) return status;
        return visit_shadow(txn, generation, "ewc.fisher", "ewc.fisher.block*", &strategy->fisher,
                            visit, err);
    case REEF_STRATEGY_LWF:
        return visit_teacher(txn, strategy->teacher, visit, err);
    case REEF_STRATEGY_SPARSE_MEMORY:
        return visit_background(txn, trainer, visit, err);
    default:
        return REEF_OK;
    }
}

static size_t block_values(const kept_array *array, size_t first) {
    return array->count - first < BLOCK_VALUES ? array->count - first : BLOCK_VALUES;
}

static reef_key block_key(uint32_t generation, const kept_array *array, size_t first) {
    return (reef_key){.db = REEF_DB_MOMENTS,
                      .generation = generation,
                      .name = array->name,
                      .block = (uint32_t)(first / BLOCK_VALUES)};
}

static reef_status put_array(reef_txn *txn,
                             uint32_t generation,
                             const kept_array *array,
                             reef_error *err) {
    // Blocks of BLOCK_VALUES values: LMDB keeps large values in overflow pages, and a record must
    // fit in a few of them.
    for (size_t first = 0; first < array->count; first += BLOCK_VALUES) {
        reef_key key = block_key(generation, array, first);
        reef_status status =
            reef_record_put(txn, &key, array->dtype, (char *)array->data + 4 * first,
                            4 * block_values(array, first), err);
        if (status != REEF_OK) return status;
    }
    return REEF_OK;
}

static reef_status read_array(reef_txn *txn,
                              uint32_t generation,
                              const kept_array *array,
                              reef_error *err) {
    for (size_t first = 0; first < array->count; first += BLOCK_VALUES) {
        reef_key key = block_key(generation, array, first);
        reef_status status = reef_record_read(txn, &key, (char *)array->data + 4 * first,
                                              4 * block_values(array, first), err);
        if (status != REEF_OK) return status;
    }
    return REEF_OK;
}

reef_status reef_strategy_put(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    return trainer->strategy.dirty ? visit_arrays(txn, trainer, put_array, err) : REEF_OK;
}

// Memory for what visit_arrays fills.
static reef_status allocate_arrays(reef_trainer *trainer, reef_error *err) {
    reef_strategy *strategy = &trainer->strategy;
    const reef_generation *generation = reef_open_generation(trainer);
    reef_status status = REEF_OK;
    // Sizes follow from the open generation, which has been loaded by now.
    switch (strategy->kind) {
    case REEF_STRATEGY_EWC:
        status = reef_shadow_init(&strategy->anchor, generation, err);
        return status == REEF_OK ? reef_shadow_init(&strategy->fisher, generation, err) : status;
    case REEF_STRATEGY_LWF:
        return reef_lwf_prepare(trainer, err);
    case REEF_STRATEGY_SPARSE_MEMORY:
        return reef_sparse_prepare(trainer, err);
    default:
        return REEF_OK;
    }
}

reef_status reef_strategy_load(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    if (trainer->strategy.task == 0) return REEF_OK; // there has been no boundary
    reef_status status = allocate_arrays(trainer, err);
    if (status == REEF_OK) status = visit_arrays(txn, trainer, read_array, err);
    if (status == REEF_OK) reef_strategy_freeze(trainer);
    return status;
}
