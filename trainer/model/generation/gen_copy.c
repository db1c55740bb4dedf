// What one generation takes over from another: tensors, gate.
#include "generation_internal.h"

void reef_gen_copy_tensors(reef_gen *to, const reef_gen *from, bool moments) {
    for (size_t i = 0; i < to->tensor_count; i++) {
        reef_tensor *tensor = &to->tensors[i];
        const reef_tensor *old = reef_gen_find(from, tensor->name);
        if (old == NULL) continue;
        size_t count = old->count < tensor->count ? old->count : tensor->count;
        reef_floats_copy(tensor->data, old->data, count);
        if (!moments || tensor->adam_m == NULL) continue;
        reef_floats_copy(tensor->adam_m, old->adam_m, count);
        reef_floats_copy(tensor->adam_v, old->adam_v, count);
        if (tensor->average != NULL) reef_floats_copy(tensor->average, old->average, count);
    }
}

void reef_gen_gate_copy(reef_gen *to, const reef_gen *from) {
    to->gate_leak = from->gate_leak;
    to->gate_detect = from->gate_detect;
    if (from->gate.weights == NULL) return;
    float *weights = to->gate.weights;
    reef_floats_copy(weights, from->gate.weights, REEF_GATE_WEIGHTS);
    to->gate = from->gate;
    to->gate.weights = weights;
}
