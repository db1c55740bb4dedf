// See memory_texts.h.
#include "memory_texts.h"

#include "posterior.h"
#include "recall.h"

#include <assert.h>
#include <stdlib.h>

#define END_MAX ((size_t)1 << 16)

reef_status reef_kept_text_read(reef_kept_text *out, const reef_memory *memory, reef_error *err) {
    size_t count = reef_memory_text(memory, NULL, 0);
    *out = (reef_kept_text){.bytes = malloc(count + 1), .count = count};
    if (out->bytes == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu bytes of text", count);
    (void)reef_memory_text(memory, out->bytes, count);
    return REEF_OK;
}

reef_kept_text reef_kept_text_last(const reef_kept_text *text, size_t max) {
    size_t count = text->count < max ? text->count : max;
    return (reef_kept_text){text->bytes + text->count - count, count};
}

void reef_kept_text_split(const reef_kept_text *text, reef_kept_text *begin, reef_kept_text *end) {
    *end = reef_kept_text_last(text, text->count / 4 < END_MAX ? text->count / 4 : END_MAX);
    *begin = (reef_kept_text){text->bytes, text->count - end->count};
}

reef_status reef_kept_text_learn(reef_generation_memory *memory,
                                 uint64_t bytes_max,
                                 const reef_kept_text *text,
                                 reef_error *err) {
    return reef_generation_memory_learn(memory, bytes_max, memory->next, text->bytes, text->count,
                                        NULL, NULL, err);
}

static reef_status read_apart(reef_memory_session *const *sessions,
                              size_t count,
                              const reef_kept_text *text,
                              double *bits,
                              reef_error *err) {
    reef_posterior posterior = {0};
    reef_status status = REEF_OK;
    for (uint32_t k = 0; k < count; k++) reef_posterior_join(&posterior, k, NULL, 0);
    reef_posterior_joined(&posterior);
    for (size_t i = 0; status == REEF_OK && i < text->count; i++) {
        float each[REEF_RUNNING_MAX];
        for (size_t k = 0; status == REEF_OK && k < count; k++) {
            reef_memory_session_set_learning(sessions[k],
                                             posterior.weights[k] >= REEF_RECALL_ADAPT_WEIGHT);
            status = reef_memory_session_read(sessions[k], text->bytes + i, 1, NULL, &each[k], err);
        }
        if (status == REEF_OK) *bits += reef_posterior_read(&posterior, each);
    }
    return status;
}

reef_status reef_kept_text_apart(const reef_memory *const *memories,
                                 size_t count,
                                 const reef_kept_text *text,
                                 double *bits,
                                 reef_error *err) {
    reef_memory_session *sessions[REEF_RUNNING_MAX] = {NULL};
    reef_status status = REEF_OK;
    assert(count <= REEF_RUNNING_MAX);
    *bits = 0.0;
    for (size_t k = 0; status == REEF_OK && k < count; k++)
        status = reef_memory_session_open(&sessions[k], memories[k], false, err);
    if (status == REEF_OK) status = read_apart(sessions, count, text, bits, err);
    for (size_t k = 0; k < count; k++) reef_memory_session_close(sessions[k]);
    return status;
}

reef_status reef_kept_text_together(const reef_memory *memory,
                                    const reef_kept_text *text,
                                    double *bits,
                                    reef_error *err) {
    reef_memory_session *session = NULL;
    reef_status status = reef_memory_session_open(&session, memory, false, err);
    *bits = 0.0;
    for (size_t i = 0; status == REEF_OK && i < text->count; i++) {
        float surprise = 0.0f;
        status = reef_memory_session_read(session, text->bytes + i, 1, NULL, &surprise, err);
        *bits += (double)surprise;
    }
    reef_memory_session_close(session);
    return status;
}
