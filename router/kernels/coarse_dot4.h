// Coarse scores by an instruction that multiplies four bytes by four and adds them to a sum of 32
// bits (VNNI), included once by each file that has one. It defines the type `vec` of VEC_SUMS sums,
// vec_load, vec_set, vec_dot4(sum, unsigned bytes, signed bytes) and vec_store_shifted, and the
// function's name, DOT4_SCORES.
//
// Sums of all values need no chunks: of 128 they are below 2^21.
enum { DOT4_VECS = COARSE_KEYS / VEC_SUMS };

// COARSE_QUERIES queries and one block of keys, whose sums stay in registers.
static inline void dot4_block(size_t half,
                              int shift,
                              const int8_t *bytes,
                              const int32_t *totals,
                              const uint32_t *groups,
                              int16_t *scores,
                              size_t stride) {
    vec sums[COARSE_QUERIES][DOT4_VECS];
    for (size_t n = 0; n < COARSE_QUERIES; n++)
        for (size_t i = 0; i < DOT4_VECS; i++) sums[n][i] = vec_load(totals + i * VEC_SUMS);
    for (size_t d = 0; d < half; d += 4)
        for (size_t i = 0; i < DOT4_VECS; i++) {
            const vec keys = vec_load(bytes + d * COARSE_KEYS + i * sizeof(vec));
            for (size_t n = 0; n < COARSE_QUERIES; n++)
                sums[n][i] = vec_dot4(sums[n][i], vec_set(groups[(n * half + d) / 4]), keys);
        }
    for (size_t n = 0; n < COARSE_QUERIES; n++)
        for (size_t i = 0; i < DOT4_VECS; i++)
            vec_store_shifted(scores + n * stride + i * VEC_SUMS, sums[n][i], shift);
}

void DOT4_SCORES(const coarse_table *table,
                 size_t count,
                 const uint32_t *groups,
                 int16_t *scores,
                 size_t stride) {
    const size_t half = table->half;
    const int shift = coarse_shift(half, 4);
    for (size_t key = 0; key < table->side; key += COARSE_KEYS)
        for (size_t n = 0; n < count; n += COARSE_QUERIES)
            dot4_block(half, shift, table->bytes + key * half, table->totals + key,
                       groups + n * (half / 4), scores + n * stride + key, stride);
}
