// See text_cost.h.
#include "text_cost.h"

#include <stdlib.h>

#define FIRST_BYTES 2048

reef_status reef_deferred_text_open(reef_deferred_text *out,
                                    const reef_memory *mixer,
                                    const uint8_t *bytes,
                                    size_t count,
                                    reef_error *err) {
    *out = (reef_deferred_text){.bytes = bytes, .count = count};
    out->anew = malloc(2 * count * sizeof(*out->anew));
    if (out->anew == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to read %zu bytes of text", count);
    out->known = out->anew + count;
    reef_memory *memory = NULL;
    reef_status status = reef_memory_new_with_mixer(&memory, mixer, err);
    if (status == REEF_OK) status = reef_memory_learn(memory, bytes, count, NULL, out->anew, err);
    reef_memory_free(memory);
    if (status != REEF_OK) reef_deferred_text_close(out);
    return status;
}

void reef_deferred_text_close(reef_deferred_text *text) {
    free(text->anew);
    *text = (reef_deferred_text){0};
}

static double sum_of(const float *bits, size_t from, size_t to) {
    double sum = 0.0;
    for (size_t i = from; i < to; i++) sum += (double)bits[i];
    return sum;
}

static double ratio_of(const reef_deferred_text *t, size_t from, size_t to) {
    return sum_of(t->known, from, to) / sum_of(t->anew, from, to);
}

reef_status reef_text_cost_read(const reef_deferred_text *text,
                                const reef_memory *memory,
                                reef_text_cost *out,
                                reef_error *err) {
    const size_t count = text->count, half = count / 2;
    reef_memory_session *session = NULL;
    *out = (reef_text_cost){.all = 1.0, .behind_first = 1.0, .halves = {1.0, 1.0}};
    if (memory == NULL) return REEF_OK;
    reef_status status = reef_memory_session_open(&session, memory, REEF_READ_ADAPTING, err);
    if (status == REEF_OK)
        status = reef_memory_session_read(session, text->bytes, count, NULL, text->known, err);
    reef_memory_session_close(session);
    if (status != REEF_OK) return status;
    out->all = ratio_of(text, 0, count);
    out->behind_first = ratio_of(text, count > FIRST_BYTES ? FIRST_BYTES : 0, count);
    out->halves[0] = ratio_of(text, 0, half);
    out->halves[1] = ratio_of(text, half, count);
    out->bits = sum_of(text->known, 0, count) / (double)count;
    return REEF_OK;
}
