// How far ahead a Redis Stream is, once a second by XINFO, and whether entries were removed before
// they were read.
#include "redis_internal.h"

#include <inttypes.h>
#include <string.h>

static const redisReply *lag_member(const redisReply *reply, const char *name) {
    for (size_t i = 0; i + 1 < reply->elements; i += 2)
        if (reply->element[i]->type == REDIS_REPLY_STRING &&
            strcmp(reply->element[i]->str, name) == 0)
            return reply->element[i + 1];
    return NULL;
}

static int64_t lag_number(const redisReply *reply, const char *name) {
    const redisReply *value = lag_member(reply, name);
    return value != NULL && value->type == REDIS_REPLY_INTEGER ? value->integer : REDIS_UNKNOWN;
}

// Entries are removed from the front, and so those removed beyond our number were never read.
static void detect_loss(reef_redis *redis, int64_t removed, const char *first) {
    if (redis->ordinal == REDIS_UNKNOWN || removed <= redis->ordinal) return;
    reef_input_warn(redis->input, "source_loss",
                    "%" PRId64 " entries of '%.150s' after %s were removed before they were read; "
                    "the first that is left is %s",
                    removed - redis->ordinal, redis->url.clean, redis->last, first);
    redis->ordinal = removed;
}

static void detect_trimmed(reef_redis *redis, int64_t added) {
    bool behind = reef_redis_id_compare(redis->newest, redis->last) < 0;
    if (behind && !redis->behind)
        reef_input_warn(redis->input, "source_behind",
                        "the newest entry of '%.150s' is %s, but %s was read: the server has lost "
                        "entries, or another one answers; entries come once ids are larger",
                        redis->url.clean, redis->newest, redis->last);
    redis->behind = behind;
    if (behind) redis->ordinal = added;
}

// Reading decides whether the connection works: XINFO may be allowed where XREAD is not. While
// nothing is read, as when the queue is full, only this reply shows it.
static void note_reply(reef_redis *redis) {
    if (!redis->reading) reef_redis_link_works(redis->link);
}

static void on_info(void *context, const redisReply *reply) {
    reef_redis *redis = context;
    // A stream that does not exist yet is an empty one.
    if (reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "ERR no such key", 15) == 0) {
        note_reply(redis); // a stream that nobody has written to
        redis->length = redis->waiting = 0;
        strcpy(redis->newest, "0-0");
        if (strcmp(redis->last, "0-0") == 0) redis->ordinal = 0;
        return;
    }
    // Another type under this key is an error that only an operator can mend.
    if (reply->type != REDIS_REPLY_ARRAY) {
        reef_redis_link_refuse(redis->link,
                               reply->str != NULL ? reply->str : "XINFO is not answered");
        return;
    }
    note_reply(redis);
    const redisReply *newest = lag_member(reply, "last-generated-id");
    const redisReply *first = lag_member(reply, "first-entry");
    // Redis 6 has no entries-added; loss is then detected by ids alone.
    int64_t added = lag_number(reply, "entries-added"); // since Redis 7
    redis->length = lag_number(reply, "length");
    if (newest == NULL || newest->type != REDIS_REPLY_STRING ||
        !reef_redis_id_copy(redis->newest, newest->str) || added == REDIS_UNKNOWN ||
        redis->length == REDIS_UNKNOWN)
        return;
    // XTRIM and MAXLEN remove entries; whether unread ones went is decided below.
    detect_trimmed(redis, added);
    bool some = first != NULL && first->type == REDIS_REPLY_ARRAY && first->elements == 2 &&
                first->element[0]->type == REDIS_REPLY_STRING;
    const char *front = some ? first->element[0]->str : "none";
    // Everything was read: the two counts can be aligned.
    if (strcmp(redis->newest, redis->last) == 0) redis->ordinal = added;
    // What was gone before the first request never belonged to this source.
    if (strcmp(redis->last, "0-0") == 0 && redis->ordinal == REDIS_UNKNOWN)
        redis->ordinal = added - redis->length;
    // The oldest entry is newer than the last one read: some between them are gone.
    if (!some || reef_redis_id_compare(front, redis->last) > 0)
        detect_loss(redis, added - redis->length, front);
    // Nothing is buffered, so the checkpoint's ordinal is the current one.
    if (redis->byte == redis->byte_count) redis->after_ordinal = redis->ordinal;
    redis->waiting = redis->ordinal == REDIS_UNKNOWN ? REDIS_UNKNOWN : added - redis->ordinal;
}

void reef_redis_info_request(reef_redis *redis) {
    reef_redis_link_send(redis->link, on_info, 3,
                         (const char *[]){"XINFO", "STREAM", redis->url.stream});
}
