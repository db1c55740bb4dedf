// See learn_log.h.
#include "learn_log.h"

#include "predictor.h"
#include "reef_byte_order.h"

#include <stdlib.h>
#include <string.h>

static uint32_t contexts_met(const reef_predictor *p) {
    uint32_t met = 0;
    for (uint32_t i = 0; i < REEF_CONTEXTS; i++)
        met |= (uint32_t)reef_trees_are_met_again(p, i) << i;
    return met;
}

// As of the byte to come.
static void write_head(uint8_t *out, const reef_predictor *p, uint32_t met) {
    reef_position position = p->position;
    uint32_t *words[REEF_POSITION_WORDS];
    reef_put_le64(out, p->learned_bytes);
    reef_put_le64(out + 8, position.bytes);
    reef_put_le64(out + 16, position.line);
    reef_put_le64(out + 24, position.line_above);
    reef_position_words(&position, words);
    for (size_t i = 0; i < REEF_POSITION_WORDS; i++)
        reef_put_le32(out + 32 + 4 * i, words[i] != NULL ? *words[i] : position.has_letter);
    reef_put_le32(out + 84, met);
    for (size_t k = 0; k < REEF_MATCHES; k++) reef_put_le64(out + 88 + 8 * k, p->matches[k].hash);
}

static reef_status begin_block(reef_learn_log *log, const reef_predictor *p, reef_error *err) {
    if (log->count == log->capacity) {
        size_t capacity = log->capacity == 0 ? 4 : 2 * log->capacity;
        reef_log_block *blocks = realloc(log->blocks, capacity * sizeof(*blocks));
        if (blocks == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu blocks of a log",
                             capacity);
        log->blocks = blocks;
        log->capacity = capacity;
    }
    uint8_t *bytes = malloc(REEF_SLICE_BYTES);
    if (bytes == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a block of a log");
    log->trees = 0;
    log->met = contexts_met(p);
    memset(log->pairs, 0, sizeof(log->pairs));
    write_head(bytes, p, log->met);
    log->blocks[log->count++] = (reef_log_block){bytes, REEF_LOG_HEAD_BYTES, p->learned_bytes};
    return REEF_OK;
}

reef_status reef_learn_log_reserve(reef_learn_log *log, const reef_predictor *p, reef_error *err) {
    if (log->count > 0 &&
        log->blocks[log->count - 1].count + REEF_LOG_RECORD_MAX <= REEF_SLICE_BYTES)
        return REEF_OK;
    return begin_block(log, p, err);
}

static uint8_t *put24(uint8_t *at, uint32_t value) {
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
    at[2] = (uint8_t)(value >> 16);
    return at + 3;
}

static uint8_t *put_events(uint8_t *at, reef_learn_log *log) {
    *at++ = (uint8_t)log->event_count;
    memcpy(at, log->events, log->event_count * sizeof(*log->events));
    at += log->event_count * sizeof(*log->events);
    log->event_count = 0;
    return at;
}

void reef_learn_log_put(reef_learn_log *log,
                        const reef_predictor *p,
                        uint32_t way,
                        uint32_t last_two,
                        uint32_t followers) {
    reef_log_block *block = &log->blocks[log->count - 1];
    uint8_t *flags = block->bytes + block->count, *at = flags + 1;
    uint32_t met = contexts_met(p), trees = 0;
    uint64_t *pairs = &log->pairs[last_two / 64], pair = UINT64_C(1) << last_two % 64;
    *flags = (uint8_t)way;
    if (met != log->met) {
        *flags |= REEF_LOG_MET;
        at = put24(at, met);
        log->met = met;
    }
    if ((*pairs & pair) == 0) {
        *flags |= REEF_LOG_FOLLOWERS;
        *at++ = (uint8_t)followers;
        *at++ = (uint8_t)(followers >> 8);
        *pairs |= pair;
    }
    if (way != REEF_LOG_FORESEEN) {
        for (size_t k = 0; k < p->tree_count; k++) trees |= 1u << p->trees[k];
        if (trees == log->trees)
            *flags |= REEF_LOG_SAME;
        else
            at = put24(at, trees);
        log->trees = trees;
    }
    if (log->event_count > 0) {
        *flags |= REEF_LOG_STORED;
        at = put_events(at, log);
    }
    block->count = (size_t)(at - block->bytes);
}

void reef_learn_log_free(reef_learn_log *log) {
    if (log == NULL) return;
    for (size_t i = 0; i < log->count; i++) free(log->blocks[i].bytes);
    free(log->blocks);
    free(log);
}
