// The gate of a generation as records.
#include "checkpoint_internal.h"

#include <math.h>

reef_status reef_checkpoint_put_gate(reef_txn *txn,
                                     const reef_generation *generation,
                                     reef_error *err) {
    uint32_t g = generation->info.generation;
    // Generation 0 has no gate, and neither has a generation of a layer.
    if (g == 0 || generation->gate.weights == NULL) return REEF_OK;
    const reef_gate *gate = &generation->gate;
    float values[REEF_GATE_VALUES] = {
        gate->bias,      gate->decay,           gate->start,
        gate->threshold, generation->gate_leak, generation->gate_detect,
        gate->prior};
    reef_status status =
        reef_checkpoint_put_tensor(txn, g, "gate", REEF_F32, values, sizeof(values), err);
    if (status != REEF_OK) return status;
    return reef_checkpoint_put_tensor(txn, g, "gate_weights", REEF_F32, gate->weights,
                                      REEF_GATE_WEIGHTS * sizeof(float), err);
}

static void set_gate(reef_generation *generation, const float values[REEF_GATE_VALUES]) {
    generation->gate.bias = values[0];
    generation->gate.decay = values[1];
    generation->gate.start = values[2];
    generation->gate.threshold = values[3];
    generation->gate_leak = values[4];
    generation->gate_detect = values[5];
    generation->gate.prior = values[6];
}

reef_status reef_checkpoint_read_gate(reef_txn *txn,
                                      uint32_t records,
                                      reef_generation *generation,
                                      reef_error *err) {
    if (generation->info.generation == 0 || generation->gate.weights == NULL) return REEF_OK;
    float values[REEF_GATE_VALUES];
    reef_status status =
        reef_checkpoint_read_tensor(txn, records, "gate", values, sizeof(values), err);
    if (status != REEF_OK) return status;
    set_gate(generation, values);
    return reef_checkpoint_read_tensor(txn, records, "gate_weights", generation->gate.weights,
                                       REEF_GATE_WEIGHTS * sizeof(float), err);
}

reef_status reef_gate_leak_read(reef_txn *txn, uint32_t generation, double *out, reef_error *err) {
    float values[REEF_GATE_VALUES];
    *out = (double)NAN;
    reef_status status =
        reef_checkpoint_read_tensor(txn, generation, "gate", values, sizeof(values), err);
    if (status == REEF_ERR_NOT_FOUND) return REEF_OK;
    if (status == REEF_OK) *out = (double)values[4];
    return status;
}
