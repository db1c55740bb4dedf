// See recall.h.
#include "recall.h"
#include "activations.h"

#include <stdlib.h>
#include <string.h>

#define PIECE 4096        // bytes that one generation answers in one call
#define PASSED_MAX 65536u // of what passed a memory by, the last bytes are enough of a context

bool reef_recall_answers(const reef_network *network) {
    for (size_t g = 0; g < network->generation_count; g++)
        if (network->generations[g]->memory.memory != NULL) return true;
    return false;
}

void reef_recall_release(reef_recall *recall) {
    for (size_t g = 0; g < recall->generation_count; g++)
        reef_memory_session_close(recall->sessions[g]);
    free(recall->sessions);
    free(recall->read);
    free(recall->answered);
    free(recall->text);
    free(recall->bits);
    *recall = (reef_recall){.frozen = recall->frozen};
}

reef_status reef_recall_begin(reef_recall *recall, const reef_network *network, reef_error *err) {
    if (recall->generation_count != network->generation_count) {
        reef_recall_release(recall);
        size_t count = network->generation_count;
        recall->sessions = calloc(count, sizeof(*recall->sessions));
        recall->read = calloc(count, sizeof(*recall->read));
        recall->answered = calloc(count, sizeof(*recall->answered));
        recall->text = malloc(2 * (size_t)PASSED_MAX);
        recall->bits = calloc(PIECE, sizeof(*recall->bits));
        if (recall->sessions == NULL || recall->read == NULL || recall->answered == NULL ||
            recall->text == NULL || recall->bits == NULL) {
            reef_recall_release(recall);
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to read a text");
        }
        recall->generation_count = count;
    }
    for (size_t g = 0; g < recall->generation_count; g++) {
        if (recall->sessions[g] != NULL) reef_memory_session_reset(recall->sessions[g]);
        recall->read[g] = recall->answered[g] = 0;
    }
    recall->length = 0;
    recall->kept = 0;
    return REEF_OK;
}

void reef_recall_freeze(reef_recall *recall, bool frozen) {
    if (recall->frozen == frozen) return;
    reef_recall_release(recall); // sessions are of one kind or the other
    recall->frozen = frozen;
}

bool reef_recall_inputs(const reef_recall *recall, double *shares, double *hits) {
    size_t count = reef_memory_input_count();
    double all = 0.0, some_shares[REEF_MEMORY_INPUTS_MAX], some_hits[REEF_MEMORY_INPUTS_MAX];
    memset(shares, 0, count * sizeof(*shares));
    memset(hits, 0, count * sizeof(*hits));
    for (size_t g = 0; g < recall->generation_count; g++) all += (double)recall->answered[g];
    for (size_t g = 0; g < recall->generation_count; g++) {
        if (recall->answered[g] == 0) continue;
        double part = (double)recall->answered[g] / all;
        reef_memory_session_inputs(recall->sessions[g], some_shares, some_hits);
        for (size_t i = 0; i < count; i++) {
            shares[i] += part * some_shares[i];
            hits[i] += part * some_hits[i];
        }
    }
    return all > 0.0;
}

size_t reef_recall_generation(const reef_network *network,
                              const uint8_t *fire,
                              size_t stride,
                              size_t i) {
    size_t g = fire == NULL ? 0 : network->generation_count - 1;
    while (g > 0 && !fire[g * stride + i]) g--;
    return g;
}

// The session of a generation, which has met all of the text so far. NULL: it has no memory.
static reef_status session_of(reef_recall *recall,
                              const reef_network *network,
                              size_t g,
                              reef_memory_session **out,
                              reef_error *err) {
    const reef_memory *memory = network->generations[g]->memory.memory;
    *out = NULL;
    if (memory == NULL) return REEF_OK;
    reef_status status = REEF_OK;
    if (recall->sessions[g] == NULL)
        status = reef_memory_session_open(&recall->sessions[g], memory, recall->frozen, err);
    uint64_t passed = recall->length - recall->read[g];
    if (passed > PASSED_MAX) passed = PASSED_MAX;
    if (status == REEF_OK && passed > 0)
        status = reef_memory_session_skip(recall->sessions[g], recall->text + recall->kept - passed,
                                          (size_t)passed, err);
    if (status != REEF_OK) return status;
    recall->read[g] = recall->length;
    *out = recall->sessions[g];
    return REEF_OK;
}

// What was read is kept for the memories that did not answer it.
static void keep_text(reef_recall *recall, const uint8_t *bytes, size_t count) {
    recall->length += count;
    if (recall->kept + count > 2 * (size_t)PASSED_MAX) {
        memmove(recall->text, recall->text + recall->kept - PASSED_MAX, PASSED_MAX);
        recall->kept = PASSED_MAX;
    }
    memcpy(recall->text + recall->kept, bytes, count);
    recall->kept += count;
}

reef_status reef_recall_read(reef_recall *recall,
                             const reef_network *network,
                             const uint8_t *bytes,
                             size_t count,
                             const uint8_t *fire,
                             size_t stride,
                             const reef_net_prediction *predictions,
                             double *losses,
                             reef_error *err) {
    // A text that nobody began, since the memories were frozen or thawed within it, begins here.
    if (recall->generation_count == 0) {
        reef_status status = reef_recall_begin(recall, network, err);
        if (status != REEF_OK) return status;
    }
    for (size_t at = 0, end; at < count; at = end) {
        size_t g = reef_recall_generation(network, fire, stride, at);
        for (end = at + 1; end < count && end - at < PIECE; end++)
            if (reef_recall_generation(network, fire, stride, end) != g) break;
        reef_memory_session *session;
        reef_status status = session_of(recall, network, g, &session, err);
        if (status == REEF_OK && session != NULL) {
            status = reef_memory_session_read(session, bytes + at, end - at,
                                              predictions == NULL ? NULL : predictions + at,
                                              recall->bits, err);
            recall->read[g] = recall->length + (end - at);
            recall->answered[g] += end - at;
            for (size_t i = at; status == REEF_OK && i < end; i++)
                losses[i] = (double)recall->bits[i - at] * REEF_LN2;
        }
        if (status != REEF_OK) return status;
        keep_text(recall, bytes + at, end - at);
    }
    return REEF_OK;
}

reef_status reef_recall_distribution(reef_recall *recall,
                                     const reef_network *network,
                                     size_t generation,
                                     uint16_t tokens,
                                     float *p,
                                     reef_error *err) {
    double mixed[REEF_VOCAB];
    reef_memory_session *session;
    reef_status status = session_of(recall, network, generation, &session, err);
    if (status != REEF_OK || session == NULL) return status;
    status = reef_memory_session_distribution(session, p, tokens, mixed, err);
    for (size_t v = 0; status == REEF_OK && v < REEF_VOCAB; v++) p[v] = (float)mixed[v];
    return status;
}
