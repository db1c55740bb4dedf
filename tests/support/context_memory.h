// Context memories for tests: what is expected to succeed fails the test where it does not.
#ifndef CONTEXT_MEMORY_H
#define CONTEXT_MEMORY_H

#include "checked.h"
#include "draw.h"
#include "reef_context.h"

#include <stdlib.h>
#include <string.h>

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

/** All that is stored of them is equal. */
static inline void assert_same_parts(reef_memory *a, reef_memory *b) {
    reef_memory_part left[16], right[16];
    assert_true(reef_memory_part_count() <= 16);
    reef_memory_parts(a, left);
    reef_memory_parts(b, right);
    for (size_t i = 0; i < reef_memory_part_count(); i++) {
        assert_string_equal(left[i].name, right[i].name);
        if (left[i].bytes != right[i].bytes ||
            (left[i].bytes > 0 && memcmp(left[i].data, right[i].data, left[i].bytes) != 0))
            fail_msg("part %s", left[i].name);
    }
}

/** The full blocks of its text, one after the other; to be freed. NULL: there are none. */
static inline uint8_t *copy_text_blocks(const reef_memory *memory) {
    const uint8_t *name, *block;
    uint8_t *copy = NULL;
    for (size_t i = 0; (block = reef_memory_text_block(memory, i, &name)) != NULL; i++) {
        copy = realloc(copy, (i + 1) * REEF_TEXT_BLOCK_BYTES);
        assert_non_null(copy);
        memcpy(copy + i * REEF_TEXT_BLOCK_BYTES, block, REEF_TEXT_BLOCK_BYTES);
    }
    return copy;
}

/** What a net says that is right eight times of ten, and nothing of a third of the text. */
static inline void draw_useful_net(uint64_t *seed,
                                   const uint8_t *bytes,
                                   size_t count,
                                   reef_net_prediction *net) {
    for (size_t i = 0; i < count; i++) {
        net[i].tokens = (uint16_t)(i / 100 % 3 == 0 ? 0 : 1 + i % 90);
        for (int bit = 0; bit < 8; bit++) {
            bool right = draw_int(seed, 0, 9) > 1, one = bytes[i] >> (7 - bit) & 1;
            net[i].odds[bit] = (int16_t)(one == right ? 600 : -600);
        }
    }
}

#endif
