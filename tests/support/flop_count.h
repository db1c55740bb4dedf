// Counts the FLOPs that the kernels are asked for. The linker puts these between the model and the
// router (--wrap, see tests/CMakeLists.txt), so nothing of it is in what is shipped.
#ifndef FLOP_COUNT_H
#define FLOP_COUNT_H

#include <stdint.h>

typedef struct flop_count {
    uint64_t gemm, dot, axpy, dot_rows, axpy_rows; // a multiply and an add are 2
} flop_count;

/** What was counted since the last call; from then on, from zero. */
flop_count flop_count_take(void);

#endif
