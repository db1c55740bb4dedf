// Context memories for tests: what is expected to succeed fails the test where it does not.
#ifndef CONTEXT_MEMORY_H
#define CONTEXT_MEMORY_H

#include "checked.h"
#include "reef_context.h"

/** Of that bound; 0: the default. */
static inline reef_memory *new_memory(uint64_t bytes_max) {
    reef_memory *memory = NULL;
    must(reef_memory_new(&memory, &(reef_memory_options){.bytes_max = bytes_max}, &why));
    return memory;
}

static inline void learn(reef_memory *memory,
                         const uint8_t *bytes,
                         size_t count,
                         const reef_net_prediction *net,
                         float *bits) {
    must(reef_memory_learn(memory, bytes, count, net, bits, &why));
}

static inline reef_memory_session *open_session(const reef_memory *memory,
                                                reef_memory_reading reading) {
    reef_memory_session *session = NULL;
    must(reef_memory_session_open(&session, memory, reading, &why));
    return session;
}

#endif
