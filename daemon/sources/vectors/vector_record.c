// See vector_record.h.
#include "vector_record.h"

#include "reef_trainer.h"
#include "reef_vectors.h"
#include "vector_spec.h"
#include "vector_table.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t reef_vector_record_size(size_t inputs) {
    return REEF_VECTOR_LABEL_BYTES + sizeof(float) * inputs;
}

static void put_u32(uint8_t *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> 8 * i);
}

static void put_value(uint8_t *record, size_t i, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    put_u32(record + REEF_VECTOR_LABEL_BYTES + sizeof(float) * i, bits);
}

void reef_vector_record_write(uint8_t *at, int32_t label, size_t inputs, const float *values) {
    put_u32(at, (uint32_t)label);
    for (size_t i = 0; i < inputs; i++) put_value(at, i, values[i]);
}

static bool is_not(char why[REEF_VECTOR_WHY_BYTES], const char *text) {
    snprintf(why, REEF_VECTOR_WHY_BYTES, "%s", text);
    return false;
}

static bool has_width(size_t width, size_t inputs, char why[REEF_VECTOR_WHY_BYTES]) {
    if (width != inputs)
        snprintf(why, REEF_VECTOR_WHY_BYTES, "the vector has %zu values, but the pool takes %zu",
                 width, inputs);
    return width == inputs;
}

static const char NO_FLOAT[] = "a value of the vector is not a number that a float can hold";

bool reef_vector_record_json(uint8_t *at,
                             size_t inputs,
                             const json_t *vector,
                             const json_t *label,
                             char why[REEF_VECTOR_WHY_BYTES]) {
    int32_t number = REEF_VECTOR_NO_LABEL;
    if (label != NULL && !json_is_null(label) &&
        !(json_is_number(label) && reef_vector_label(json_number_value(label), &number)))
        return is_not(why, "the label is not a whole number from 0 on, and neither null nor -1");
    // Messages are texts without numbers of lines: the caller knows where the record came from.
    if (!json_is_array(vector)) return is_not(why, "no \"vector\" that is a list of numbers");
    if (!has_width(json_array_size(vector), inputs, why)) return false;
    put_u32(at, (uint32_t)number);
    for (size_t i = 0; i < inputs; i++) {
        const json_t *item = json_array_get(vector, i);
        // An integer beyond a float becomes infinite and is refused.
        float value = json_is_number(item) ? (float)json_number_value(item) : NAN;
        if (!isfinite(value)) return is_not(why, NO_FLOAT);
        put_value(at, i, value);
    }
    return true;
}

bool reef_vector_record_floats(uint8_t *at,
                               size_t inputs,
                               const void *bytes,
                               size_t count,
                               int32_t label,
                               char why[REEF_VECTOR_WHY_BYTES]) {
    // Raw floats have no length of their own; a remainder means that the sender used another type.
    if (count % sizeof(float)) return is_not(why, "the vector is not a list of 32-bit floats");
    if (!has_width(count / sizeof(float), inputs, why)) return false;
    put_u32(at, (uint32_t)label);
    for (size_t i = 0; i < inputs; i++) {
        const uint8_t *from = (const uint8_t *)bytes + sizeof(float) * i;
        // Little-endian, on any machine.
        uint32_t bits = (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 |
                        (uint32_t)from[3] << 24;
        float value;
        memcpy(&value, &bits, sizeof(value));
        if (!isfinite(value)) return is_not(why, NO_FLOAT);
        put_value(at, i, value);
    }
    return true;
}

bool reef_vector_store(const reef_vector_table *table, double value, float *out) {
    *out = (float)(value * table->scale / table->divisor);
    return isfinite(*out) != 0;
}
