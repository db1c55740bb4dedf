// Dense tensors of a generation and their moments, as records.
#include "checkpoint_internal.h"

#include <string.h>

static reef_status put_floats(reef_txn *txn,
                              uint32_t generation,
                              const char *name,
                              const float *data,
                              size_t count,
                              reef_error *err) {
    reef_key key = reef_tensor_key(REEF_DB_TENSORS, generation, name);
    return reef_record_put(txn, &key, REEF_F32, data, count * sizeof(*data), err);
}

static reef_status read_floats(reef_txn *txn,
                               uint32_t generation,
                               const char *name,
                               float *data,
                               size_t count,
                               reef_error *err) {
    reef_key key = reef_tensor_key(REEF_DB_TENSORS, generation, name);
    return reef_record_read(txn, &key, data, count * sizeof(*data), err);
}

reef_status reef_checkpoint_put_tensors(reef_txn *txn,
                                        const reef_generation *generation,
                                        reef_error *err) {
    for (size_t i = 0; i < generation->tensor_count; i++) {
        const reef_tensor *tensor = &generation->tensors[i];
        // As with experts: averages are the model, raw weights are training's.
        const float *values = tensor->average != NULL ? tensor->average : tensor->data;
        reef_status status =
            put_floats(txn, generation->info.generation, tensor->name, values, tensor->count, err);
        if (status != REEF_OK) return status;
    }
    return REEF_OK;
}

reef_status reef_checkpoint_put_tensor_moments(reef_txn *txn,
                                               const reef_generation *generation,
                                               float *buffer,
                                               reef_error *err) {
    for (size_t i = 0; i < generation->tensor_count; i++) {
        const reef_tensor *tensor = &generation->tensors[i];
        // Frozen and sealed tensors have no moments.
        if (tensor->adam_m == NULL) continue;
        size_t bytes = tensor->count * sizeof(float);
        memcpy(buffer, tensor->adam_m, bytes);
        memcpy(buffer + tensor->count, tensor->adam_v, bytes);
        // Copied even where no average is kept; reef_moment_planes says how much of the buffer is
        // written.
        memcpy(buffer + 2 * tensor->count, tensor->data, bytes);
        reef_key key = reef_tensor_key(REEF_DB_MOMENTS, generation->info.generation, tensor->name);
        reef_status status = reef_record_put(txn, &key, REEF_F32, buffer,
                                             reef_moment_planes(tensor->average) * bytes, err);
        if (status != REEF_OK) return status;
    }
    return REEF_OK;
}

reef_status reef_checkpoint_read_tensors(reef_txn *txn,
                                         uint32_t records,
                                         reef_generation *generation,
                                         reef_error *err) {
    for (size_t i = 0; i < generation->tensor_count; i++) {
        reef_tensor *tensor = &generation->tensors[i];
        reef_status status =
            read_floats(txn, records, tensor->name, tensor->data, tensor->count, err);
        if (status != REEF_OK) return status;
    }
    return REEF_OK;
}

reef_status reef_checkpoint_read_or_zero(
    reef_txn *txn, const reef_key *key, void *out, size_t bytes, reef_error *err) {
    reef_status status = reef_record_read(txn, key, out, bytes, err);
    if (status != REEF_ERR_NOT_FOUND) return status;
    memset(out, 0, bytes);
    return REEF_OK;
}

reef_status reef_checkpoint_read_moments(reef_txn *txn,
                                         const reef_key *key,
                                         float *buffer,
                                         size_t bytes,
                                         const float *weights,
                                         size_t floats,
                                         bool averaged,
                                         reef_error *err) {
    reef_status status = reef_record_read(txn, key, buffer, bytes, err);
    // A generation that has not trained since it was made: moments start at zero.
    if (status != REEF_ERR_NOT_FOUND) return status;
    memset(buffer, 0, bytes);
    // Without a record the stored weights are the raw ones.
    if (averaged) memcpy(buffer + 2 * floats, weights, floats * sizeof(float));
    return REEF_OK;
}

reef_status reef_checkpoint_read_tensor_moments(
    reef_txn *txn, uint32_t records, reef_generation *generation, float *buffer, reef_error *err) {
    for (size_t i = 0; i < generation->tensor_count; i++) {
        reef_tensor *tensor = &generation->tensors[i];
        if (tensor->adam_m == NULL) continue;
        size_t bytes = tensor->count * sizeof(float);
        reef_key key = reef_tensor_key(REEF_DB_MOMENTS, records, tensor->name);
        reef_status status = reef_checkpoint_read_moments(
            txn, &key, buffer, reef_moment_planes(tensor->average) * bytes, tensor->data,
            tensor->count, tensor->average != NULL, err);
        if (status != REEF_OK) return status;
        memcpy(tensor->adam_m, buffer, bytes);
        memcpy(tensor->adam_v, buffer + tensor->count, bytes);
        if (tensor->average == NULL) continue;
        memcpy(tensor->average, tensor->data, bytes);
        memcpy(tensor->data, buffer + 2 * tensor->count, bytes);
    }
    return REEF_OK;
}
