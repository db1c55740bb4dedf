// The memory behind its handle.
#ifndef REEF_MEMORY_INTERNAL_H
#define REEF_MEMORY_INTERNAL_H

#include "predictor.h"
#include "reef_context.h"

struct reef_memory {
    reef_predictor predictor;
    uint64_t bytes_max;
};

#endif
