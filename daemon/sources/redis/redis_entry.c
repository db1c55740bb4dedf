// From an entry of a Redis Stream to bytes of ours: a text and a newline, or the record of a
// vector. What they are depends on the entry, the URL and the pool's model alone, so they are the
// same whenever they are read.
#include "redis_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LABEL_BYTES_MAX 16

bool reef_redis_entry_is(const redisReply *item) {
    return item->type == REDIS_REPLY_ARRAY && item->elements == 2 &&
           item->element[0]->type == REDIS_REPLY_STRING &&
           item->element[1]->type == REDIS_REPLY_ARRAY;
}

static const redisReply *field_of(const redisReply *item, const char *name) {
    const redisReply *fields = item->element[1];
    for (size_t i = 0; i + 1 < fields->elements; i += 2) {
        const redisReply *key = fields->element[i], *value = fields->element[i + 1];
        if (key->type == REDIS_REPLY_STRING && value->type == REDIS_REPLY_STRING &&
            key->len == strlen(name) && memcmp(key->str, name, key->len) == 0)
            return value;
    }
    return NULL;
}

static const char *field_name(const reef_redis *redis) {
    if (redis->url.field != NULL) return redis->url.field;
    return redis->vector_inputs ? "vector" : "text";
}

// Its text as far as it is not too long, and a newline.
static size_t text_room(const redisReply *text) {
    return (text->len < REEF_REDIS_ENTRY_BYTES_MAX ? text->len : REEF_REDIS_ENTRY_BYTES_MAX) + 1;
}

size_t reef_redis_entry_room(const reef_redis *redis, const redisReply *item) {
    const redisReply *value = reef_redis_entry_is(item) ? field_of(item, field_name(redis)) : NULL;
    if (value == NULL) return 0;
    return redis->vector_inputs ? reef_vector_record_size(redis->vector_inputs) : text_room(value);
}

static size_t write_text(reef_redis *redis, const char *id, const redisReply *text, uint8_t *at) {
    size_t bytes = text_room(text);
    memcpy(at, text->str, bytes - 1);
    at[bytes - 1] = '\n';
    if (text->len > REEF_REDIS_ENTRY_BYTES_MAX)
        reef_input_warn(redis->input, "source_loss",
                        "entry %s of '%.150s' has %zu bytes: those after %zu are left out", id,
                        redis->url.clean, (size_t)text->len, REEF_REDIS_ENTRY_BYTES_MAX);
    return bytes;
}

// Digits only; a missing field, "-1" and "null" mean no label.
static bool read_label(const redisReply *text, int32_t *label) {
    *label = REEF_VECTOR_NO_LABEL;
    if (text == NULL || strcmp(text->str, "-1") == 0 || strcmp(text->str, "null") == 0) return true;
    if (text->len == 0 || text->len > LABEL_BYTES_MAX ||
        strspn(text->str, "0123456789") != text->len)
        return false;
    long long number = strtoll(text->str, NULL, 10);
    *label = (int32_t)number;
    return number <= INT32_MAX;
}

static bool read_json(const reef_redis *redis,
                      const redisReply *value,
                      int32_t label,
                      uint8_t *at,
                      char why[REEF_VECTOR_WHY_BYTES]) {
    json_t *vector = json_loadb(value->str, value->len, 0, NULL);
    json_t *number = json_integer(label);
    bool good = reef_vector_record_json(at, redis->vector_inputs, vector, number, why);
    json_decref(vector);
    json_decref(number);
    return good;
}

static bool read_vector(const reef_redis *redis,
                        const redisReply *item,
                        const redisReply *value,
                        uint8_t *at,
                        char why[REEF_VECTOR_WHY_BYTES]) {
    int32_t label;
    const char *name = redis->url.label != NULL ? redis->url.label : "label";
    // The label must be valid even where the vector is not, or the message would blame the vector.
    if (!read_label(field_of(item, name), &label)) {
        snprintf(why, REEF_VECTOR_WHY_BYTES, "field '%.40s' is not a whole number from 0 on", name);
        return false;
    }
    // Raw floats are copied as they are; text is parsed as JSON.
    return redis->url.raw ? reef_vector_record_floats(at, redis->vector_inputs, value->str,
                                                      value->len, label, why)
                          : read_json(redis, value, label, at, why);
}

static void pass_over(reef_redis *redis, const char *id, const char *why) {
    if (redis->unfit++ == 0)
        reef_input_warn(redis->input, "source_unfit",
                        "entry %s of '%.150s' is passed over, as all such: %s", id,
                        redis->url.clean, why);
}

size_t reef_redis_entry_write(reef_redis *redis, const redisReply *item, uint8_t *at) {
    const char *id = item->element[0]->str;
    const redisReply *value = field_of(item, field_name(redis));
    char why[REEF_VECTOR_WHY_BYTES];
    // An entry that cannot be used is counted and reported, and reading continues: one bad producer
    // must not stop the stream.
    if (value == NULL) {
        snprintf(why, sizeof(why), "it has no field '%.60s'", field_name(redis));
    } else if (!redis->vector_inputs) {
        return write_text(redis, id, value, at);
    } else if (read_vector(redis, item, value, at, why)) {
        return reef_vector_record_size(redis->vector_inputs);
    }
    pass_over(redis, id, why);
    return 0;
}
