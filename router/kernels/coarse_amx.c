// Coarse scores with the tiles of AMX: sixteen queries times sixteen keys an instruction, 64 bytes
// of each. The rest of the first pass is that of coarse_avx512.c.
//
// What always holds: tiles are used between a configuration and a release of the same call, so that
// no thread has tiles when it returns.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the C library's name.
#define _DEFAULT_SOURCE // syscall

#include "coarse.h"
#include "kernels_internal.h"

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    LANES = 16,      // sums in a row of a tile
    TILE_ROWS = 16,  // queries of a tile, and groups of four values
    TILE_BYTES = 64, // of a row
    TILE_COUNT = 8
};

// ---- permission ---------------------------------------------------------------------------------

#define ARCH_REQ_XCOMP_PERM 0x1023 // of arch_prctl
#define XFEATURE_TILE_DATA 18

// Tiles are eight kilobytes more to save for each thread that uses them, also for a handler of
// signals: Linux wants to be asked, and refuses where a thread has too small a stack for signals.
bool reef_coarse_amx_permitted(void) {
#if defined(SYS_arch_prctl)
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_TILE_DATA) == 0;
#else
    return false;
#endif
}

// ---- scores -------------------------------------------------------------------------------------

/** What the instruction that configures tiles reads: Intel's manual, volume 2, LDTILECFG. */
typedef struct tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_shapes;

// Numbers of tiles, which must be constants: of both halves of a block the keys and the sums.
#define TILE_QUERIES 0
#define TILE_KEYS_LOW 1
#define TILE_KEYS_HIGH 2
#define TILE_SUMS_LOW 3
#define TILE_SUMS_HIGH 4

static void set_shapes(size_t queries, size_t values) {
    tile_shapes shapes = {.palette = 1};
    shapes.row_bytes[TILE_QUERIES] = (uint16_t)values;
    shapes.rows[TILE_QUERIES] = (uint8_t)queries;
    for (size_t n = TILE_KEYS_LOW; n <= TILE_KEYS_HIGH; n++) {
        shapes.row_bytes[n] = TILE_BYTES;
        shapes.rows[n] = (uint8_t)(values / 4);
    }
    for (size_t n = TILE_SUMS_LOW; n <= TILE_SUMS_HIGH; n++) {
        shapes.row_bytes[n] = TILE_BYTES;
        shapes.rows[n] = (uint8_t)queries;
    }
    _tile_loadconfig(&shapes);
}

// Sums of one block of keys for the queries of a tile, of the low and the high keys.
static inline void multiply_block(size_t half,
                                  size_t values,
                                  const int8_t *bytes,
                                  const int8_t *queries,
                                  int32_t (*sums)[TILE_ROWS * LANES]) {
    _tile_zero(TILE_SUMS_LOW);
    _tile_zero(TILE_SUMS_HIGH);
    for (size_t d = 0; d < half; d += values) {
        const int8_t *keys = bytes + d * COARSE_KEYS;
        _tile_loadd(TILE_KEYS_LOW, keys, 2 * TILE_BYTES);
        _tile_loadd(TILE_KEYS_HIGH, keys + TILE_BYTES, 2 * TILE_BYTES);
        // Of one step only the queries' tile stays what it is for all keys.
        if (values < half) _tile_loadd(TILE_QUERIES, queries + d, (long)half);
        _tile_dpbssd(TILE_SUMS_LOW, TILE_QUERIES, TILE_KEYS_LOW);
        _tile_dpbssd(TILE_SUMS_HIGH, TILE_QUERIES, TILE_KEYS_HIGH);
    }
    _tile_stored(TILE_SUMS_LOW, sums[0], TILE_BYTES);
    _tile_stored(TILE_SUMS_HIGH, sums[1], TILE_BYTES);
}

// Of `count` queries, a constant or few.
static inline __attribute__((always_inline)) void store_block(size_t count,
                                                              __m512i shift,
                                                              int32_t (*sums)[TILE_ROWS * LANES],
                                                              int16_t *scores,
                                                              size_t stride) {
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    for (size_t n = 0; n < count; n++) {
        const __m512i low = _mm512_srav_epi32(_mm512_load_si512(sums[0] + n * LANES), shift);
        const __m512i high = _mm512_srav_epi32(_mm512_load_si512(sums[1] + n * LANES), shift);
        // In lanes of four of both.
        const __m512i both = _mm512_packs_epi32(low, high);
        _mm512_storeu_si512(scores + n * stride, _mm512_permutexvar_epi64(order, both));
    }
}

// Scores of the queries of one tile, a constant or few.
static inline __attribute__((always_inline)) void score_tile(const coarse_table *table,
                                                             size_t count,
                                                             const int8_t *queries,
                                                             int16_t *scores,
                                                             size_t stride) {
    // Two buffers: a block is stored while the next one is multiplied.
    _Alignas(64) int32_t sums[2][2][TILE_ROWS * LANES];
    const size_t half = table->half, values = half <= TILE_BYTES ? half : half / 2;
    const size_t blocks = (table->side + COARSE_KEYS - 1) / COARSE_KEYS;
    const __m512i shift = _mm512_set1_epi32(coarse_shift(half, 4));
    set_shapes(count, values);
    _tile_loadd(TILE_QUERIES, queries, (long)half);
    for (size_t block = 0; block <= blocks; block++) {
        if (block < blocks)
            multiply_block(half, values, table->bytes + block * COARSE_KEYS * half, queries,
                           sums[block % 2]);
        if (block > 0)
            store_block(count, shift, sums[(block - 1) % 2], scores + (block - 1) * COARSE_KEYS,
                        stride);
    }
    // Keys that fill the last block have zeros, and must score the least.
    for (size_t n = 0; n < count; n++)
        for (size_t i = table->side; i < blocks * COARSE_KEYS; i++)
            scores[n * stride + i] = INT16_MIN;
}

// Bytes without the 128 that makes them unsigned, which an instruction needs that this one is not.
static void take_queries(size_t count, size_t half, const uint32_t *groups, int8_t *queries) {
    const __m256i zero = _mm256_set1_epi8(INT8_MIN);
    for (size_t i = 0; i < count * half; i += sizeof(zero)) {
        const __mmask32 here =
            count * half - i < sizeof(zero) ? (1u << (count * half - i)) - 1 : ~0u;
        const __m256i bytes = _mm256_maskz_loadu_epi8(here, (const uint8_t *)groups + i);
        _mm256_mask_storeu_epi8(queries + i, here, _mm256_xor_si256(bytes, zero));
    }
}

void reef_coarse_scores_amx(const coarse_table *table,
                            size_t count,
                            const uint32_t *groups,
                            int16_t *scores,
                            size_t stride) {
    _Alignas(64) int8_t queries[TILE_ROWS * COARSE_HALF_MAX];
    const size_t half = table->half;
    for (size_t n = 0; n < count; n += TILE_ROWS) {
        const size_t rest = count - n, here = rest < TILE_ROWS ? rest : TILE_ROWS;
        take_queries(here, half, groups + n * (half / 4), queries);
        if (here == TILE_ROWS)
            score_tile(table, TILE_ROWS, queries, scores + n * stride, stride);
        else
            score_tile(table, here, queries, scores + n * stride, stride);
    }
    _tile_release();
}
