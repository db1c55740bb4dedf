// See generation.h.
#include "generation.h"

#include <assert.h>
#include <string.h>

void reef_expert_table_row_read(
    const reef_expert_table *table, size_t n, size_t from, size_t count, float *out) {
    const reef_expert_rows *rows = &table->rows;
    uint64_t id = n, block = id >> rows->block_shift; // 64 bits wide: the shift may be 32
    // Rows lie in blocks of 2^block_shift; the shift is 32 where all are in one.
    assert(rows->blocks[block] != NULL); // another rank's row
    size_t row = (size_t)(id - (block << rows->block_shift));
    if (rows->dtype == REEF_F32) {
        memcpy(out, (const float *)rows->blocks[block] + row * table->row_values + from,
               count * sizeof(*out));
        return;
    }
    const int8_t *whole =
        (const int8_t *)rows->blocks[block] + row * reef_row_bytes(REEF_I8, table->row_values);
    for (size_t i = 0; i < count; i++)
        out[i] = reef_i8_scale(whole) * (float)whole[REEF_I8_SCALE_BYTES + from + i];
}
