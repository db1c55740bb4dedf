// Context memories for tests: what is expected to succeed fails the test where it does not.
#ifndef CONTEXT_MEMORY_H
#define CONTEXT_MEMORY_H

#include "reef_context.h"
#include "test.h"

static inline void must(reef_status status, const reef_error *err) {
    if (status != REEF_OK) fail_msg("%s: %s", reef_status_text(status), err->message);
}

/** Of that bound; 0: the default. */
static inline reef_memory *new_memory(uint64_t bytes_max) {
    reef_error err;
    reef_memory *memory = NULL;
    must(reef_memory_new(&memory, &(reef_memory_options){.bytes_max = bytes_max}, &err), &err);
    return memory;
}

static inline void learn(reef_memory *memory,
                         const uint8_t *bytes,
                         size_t count,
                         const reef_net_prediction *net,
                         float *bits) {
    reef_error err;
    must(reef_memory_learn(memory, bytes, count, net, bits, &err), &err);
}

static inline reef_memory_session *open_session(const reef_memory *memory, bool frozen) {
    reef_error err;
    reef_memory_session *session = NULL;
    must(reef_memory_session_open(&session, memory, frozen, &err), &err);
    return session;
}

#endif
