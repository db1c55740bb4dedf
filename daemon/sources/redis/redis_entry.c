// From an entry of a Redis Stream to bytes of ours: a text and a newline. What they are depends on
// the entry and the URL alone, so they are the same whenever they are read.
#include "redis_internal.h"

#include <string.h>

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
    return redis->url.field != NULL ? redis->url.field : "text";
}

// Its text as far as it is not too long, and a newline.
static size_t text_room(const redisReply *text) {
    return (text->len < REEF_REDIS_ENTRY_BYTES_MAX ? text->len : REEF_REDIS_ENTRY_BYTES_MAX) + 1;
}

size_t reef_redis_entry_room(const reef_redis *redis, const redisReply *item) {
    const redisReply *value = reef_redis_entry_is(item) ? field_of(item, field_name(redis)) : NULL;
    return value != NULL ? text_room(value) : 0;
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

size_t reef_redis_entry_write(reef_redis *redis, const redisReply *item, uint8_t *at) {
    const char *id = item->element[0]->str;
    const redisReply *value = field_of(item, field_name(redis));
    if (value != NULL) return write_text(redis, id, value, at);
    // An entry that cannot be used is counted and reported, and reading continues: one bad producer
    // must not stop the stream.
    if (redis->unfit++ == 0)
        reef_input_warn(redis->input, "source_unfit",
                        "entry %s of '%.150s' is passed over, as all such: it has no field '%.60s'",
                        id, redis->url.clean, field_name(redis));
    return 0;
}
