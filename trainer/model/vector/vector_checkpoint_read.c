// A generation of a vector model, read from its records.
#include "vector_checkpoint.h"

reef_key reef_vector_record_key(reef_db db, uint32_t generation, const char *name) {
    return (reef_key){.db = db, .generation = generation, .name = name};
}

reef_status reef_vector_record_read(reef_txn *txn,
                                    reef_db db,
                                    uint32_t generation,
                                    const char *name,
                                    void *data,
                                    size_t bytes,
                                    reef_error *err) {
    reef_key key = reef_vector_record_key(db, generation, name);
    char none;
    return reef_record_read(txn, &key, bytes > 0 ? data : &none, bytes, err);
}

// Rows in a matrix of floats that is stored under a name.
reef_status reef_vector_record_rows(reef_txn *txn,
                                    uint32_t generation,
                                    const char *name,
                                    size_t width,
                                    size_t *out,
                                    reef_error *err) {
    reef_view view;
    reef_key key = reef_vector_record_key(REEF_DB_TENSORS, generation, name);
    reef_status status = reef_record_view(txn, &key, &view, err);
    if (status != REEF_OK) return status;
    if (view.bytes % (width * 4) != 0)
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "%s of generation %u has %zu bytes, no whole rows of %zu", name,
                         generation, view.bytes, width * 4);
    *out = view.bytes / (width * 4);
    return REEF_OK;
}

bool reef_vector_block_next(const reef_vector_generation *generation, reef_vector_block *b) {
    size_t width = generation->row_values, each = reef_block_rows(width * sizeof(float));
    size_t first = (size_t)b->index * each;
    if (first >= generation->rows) return false;
    size_t left = generation->rows - first;
    *b = (reef_vector_block){b->index + 1, first * width, (left < each ? left : each) * width};
    return true;
}

reef_key reef_vector_block_key(reef_db db, uint32_t generation, const reef_vector_block *b) {
    return (reef_key){.db = db, .generation = generation, .block = b->index - 1};
}

static reef_status get_experts(reef_txn *txn,
                               uint32_t records,
                               reef_vector_generation *generation,
                               reef_error *err) {
    for (reef_vector_block b = {0}; reef_vector_block_next(generation, &b);) {
        reef_key key = reef_vector_block_key(REEF_DB_EXPERTS, records, &b);
        reef_status status =
            reef_record_read(txn, &key, generation->experts + b.at, b.count * sizeof(float), err);
        if (status != REEF_OK) return status;
    }
    return REEF_OK;
}

reef_status reef_vector_load_generation(reef_vector_network *network,
                                        reef_txn *txn,
                                        uint32_t records,
                                        reef_error *err) {
    reef_vector_generation *generation = NULL;
    size_t C = 0, gates = 0, gate_width = reef_vector_gate_shape(&network->config).padded;
    double values[3];
    reef_status status = reef_vector_network_reserve(network, network->generation_count + 1, err);
    if (status == REEF_OK) status = reef_vector_generation_new(&generation, &network->config, err);
    if (status != REEF_OK) return status;
    network->generations[network->generation_count++] = generation;
    size_t D = generation->inputs * sizeof(float), width = generation->shape.padded;
    status = reef_vector_record_rows(txn, records, "labels", 1, &C, err);
    if (status == REEF_OK && C > REEF_CLASS_COUNT_MAX)
        return reef_fail(err, REEF_ERR_CORRUPT, "generation %u has %zu classes", records, C);
    if (status == REEF_OK)
        status = reef_vector_record_rows(txn, records, "gate_weights", gate_width, &gates, err);
    if (status == REEF_OK)
        status = reef_vector_head_size(&generation->head, C, width, gates, gate_width, err);
    if (status == REEF_OK)
        status = reef_vector_record_read(txn, REEF_DB_TENSORS, records, "mean", generation->mean, D,
                                         err);
    if (status == REEF_OK)
        status = reef_vector_record_read(txn, REEF_DB_TENSORS, records, "scale", generation->scale,
                                         D, err);
    if (status == REEF_OK)
        status = reef_vector_record_read(txn, REEF_DB_TENSORS, records, "w_up",
                                         generation->head.w_up, C * width * sizeof(float), err);
    if (status == REEF_OK)
        status =
            reef_vector_record_read(txn, REEF_DB_TENSORS, records, "gate_weights",
                                    generation->head.gate, gates * gate_width * sizeof(float), err);
    if (status == REEF_OK)
        status = reef_vector_record_read(txn, REEF_DB_TENSORS, records, "head", values,
                                         sizeof(values), err);
    // Classes only ever join: those of an earlier generation are the first of a later one's.
    if (status == REEF_OK && C >= network->class_count) {
        status = reef_vector_record_read(txn, REEF_DB_TENSORS, records, "labels", network->labels,
                                         C * sizeof(int32_t), err);
        network->class_count = C;
    }
    if (status == REEF_OK) status = get_experts(txn, records, generation, err);
    if (status != REEF_OK) return status;
    generation->drawn = values[0] != 0.0;
    generation->head.sharpness = (float)values[1];
    generation->reference = values[2];
    generation->experts_stored = true;
    return REEF_OK;
}
