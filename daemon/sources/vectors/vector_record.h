// One example as it stands in the stream of a vector model: an int32 label and `inputs` 32-bit
// floats, all little-endian, as docs/PROTOCOL.md has it under "Vectors". Pure functions.
#ifndef REEF_VECTOR_RECORD_H
#define REEF_VECTOR_RECORD_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REEF_VECTOR_WHY_BYTES 120
#define REEF_VECTOR_NO_LABEL (-1)

/** Bytes of one record. */
size_t reef_vector_record_size(size_t inputs);
void reef_vector_record_write(uint8_t *at, int32_t label, size_t inputs, const float *values);

/**
 * The same from JSON: `vector` a list of numbers, `label` a whole number, -1 or null for none, or
 * NULL. False if it is not an example of such a model, with the reason in `why`; the bytes at `at`
 * are then undefined.
 */
bool reef_vector_record_json(uint8_t *at,
                             size_t inputs,
                             const json_t *vector,
                             const json_t *label,
                             char why[REEF_VECTOR_WHY_BYTES]);
/** The same from the bytes of little-endian floats. */
bool reef_vector_record_floats(uint8_t *at,
                               size_t inputs,
                               const void *bytes,
                               size_t count,
                               int32_t label,
                               char why[REEF_VECTOR_WHY_BYTES]);

#endif
