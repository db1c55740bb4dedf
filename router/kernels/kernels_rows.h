// The kernels over gathered rows, for one type of row: kernels_vector.h includes this for float
// and for int8. It defines ROW, how a vector of it is loaded as floats, how the functions
// are named, and ROW_SCALED where a row begins with its scale.
#ifdef ROW_SCALED
#define ROW_VALUES(row) ((row) + REEF_I8_SCALE_BYTES)
#define ROW_TIMES_SCALE(value, row) ((value)*reef_i8_scale(row))
#define ROW_HEAD REEF_I8_SCALE_BYTES
#else
#define ROW_VALUES(row) (row)
#define ROW_TIMES_SCALE(value, row) (value)
#define ROW_HEAD 0
#endif

// Four sums hide the latency of the fused multiply-add.
static inline float ROW_NAME(dot_row)(size_t D, const ROW *row, const float *x) {
    vec sum0 = {0}, sum1 = {0}, sum2 = {0}, sum3 = {0};
    size_t d = 0;
    for (; d + 4 * VEC_FLOATS <= D; d += 4 * VEC_FLOATS) {
        sum0 += ROW_LOAD(row + d) * load(x + d);
        sum1 += ROW_LOAD(row + d + VEC_FLOATS) * load(x + d + VEC_FLOATS);
        sum2 += ROW_LOAD(row + d + 2 * VEC_FLOATS) * load(x + d + 2 * VEC_FLOATS);
        sum3 += ROW_LOAD(row + d + 3 * VEC_FLOATS) * load(x + d + 3 * VEC_FLOATS);
    }
    for (; d + VEC_FLOATS <= D; d += VEC_FLOATS) sum0 += ROW_LOAD(row + d) * load(x + d);
    // To sum1, since sum0 has just been added to.
    if (d < D) sum1 += ROW_LOAD_SOME(D - d, row + d) * load_some(D - d, x + d);
    return sum_lanes((sum0 + sum1) + (sum2 + sum3));
}

static inline void ROW_NAME(axpy_row)(size_t D, float *y, float alpha, const ROW *row) {
    vec factor = broadcast(alpha);
    size_t d = 0;
    for (; d + VEC_FLOATS <= D; d += VEC_FLOATS)
        store(y + d, load(y + d) + factor * ROW_LOAD(row + d));
    if (d < D)
        store_some(D - d, y + d, load_some(D - d, y + d) + factor * ROW_LOAD_SOME(D - d, row + d));
}

// Into the second-level cache: the first one tracks too few lines that are under way, and what
// waits for it holds up the rows that are computed with. A forward of 128 rows of 2 KB takes 14 us
// this way, 22 us with prefetches into the first level (262,144 experts, one thread, AVX-512 on Zen
// 4).
REEF_PREFETCH_ONLY static inline void ROW_NAME(prefetch_row)(const ROW *row, size_t span) {
    for (size_t d = 0; d < span + ROW_HEAD; d += LINE_BYTES / sizeof(ROW))
        __builtin_prefetch(row + d, 0, 2);
}

static void ROW_NAME(dot_rows)(size_t K,
                               size_t D,
                               float *out,
                               const float *x,
                               const ROW *const *rows,
                               size_t offset,
                               size_t span) {
    for (size_t k = 0; k < K && k < PREFETCH_ROWS; k++) ROW_NAME(prefetch_row)(rows[k], span);
    for (size_t k = 0; k < K; k++) {
        // Rows lie scattered in memory; the hardware prefetcher cannot guess the next one.
        if (k + PREFETCH_ROWS < K) ROW_NAME(prefetch_row)(rows[k + PREFETCH_ROWS], span);
        out[k] = ROW_TIMES_SCALE(ROW_NAME(dot_row)(D, ROW_VALUES(rows[k]) + offset, x), rows[k]);
    }
}

// `count` vectors of y, which stay in registers while all rows pass.
static inline void ROW_NAME(add_rows)(
    size_t count, size_t K, float *y, const float *alpha, const ROW *const *rows, size_t offset) {
    vec sum[8];
    for (size_t i = 0; i < count; i++) sum[i] = load(y + i * VEC_FLOATS);
    for (size_t k = 0; k < K; k++) {
        const ROW *row = ROW_VALUES(rows[k]) + offset;
        vec factor = broadcast(ROW_TIMES_SCALE(alpha[k], rows[k]));
        for (size_t i = 0; i < count; i++) sum[i] += factor * ROW_LOAD(row + i * VEC_FLOATS);
    }
    for (size_t i = 0; i < count; i++) store(y + i * VEC_FLOATS, sum[i]);
}

// In the order k = 0 .. K-1 for each element: the bits of one axpy per row.
static void ROW_NAME(axpy_rows)(
    size_t K, size_t D, float *y, const float *alpha, const ROW *const *rows, size_t offset) {
    size_t d = 0;
    // Eight vectors of sums fit the registers of both instruction sets.
    for (; d + 8 * VEC_FLOATS <= D; d += 8 * VEC_FLOATS)
        ROW_NAME(add_rows)(8, K, y + d, alpha, rows, offset + d);
    for (; d + 4 * VEC_FLOATS <= D; d += 4 * VEC_FLOATS)
        ROW_NAME(add_rows)(4, K, y + d, alpha, rows, offset + d);
    for (; d + VEC_FLOATS <= D; d += VEC_FLOATS)
        ROW_NAME(add_rows)(1, K, y + d, alpha, rows, offset + d);
    if (d == D) return;
    for (size_t k = 0; k < K; k++) {
        const float share = ROW_TIMES_SCALE(alpha[k], rows[k]);
        ROW_NAME(axpy_row)(D - d, y + d, share, ROW_VALUES(rows[k]) + offset + d);
    }
}

#undef ROW
#undef ROW_LOAD
#undef ROW_LOAD_SOME
#undef ROW_NAME
#undef ROW_VALUES
#undef ROW_TIMES_SCALE
#undef ROW_HEAD
#undef ROW_SCALED
