// Acknowledging to a consumer group; see redis_internal.h.
//
//   got        --> XCLAIM ... FORCE JUSTID LASTID    they are pending: read, and in no commit yet
//   committed  --> XPENDING ... up to the last one --> XACK --.
//                      ^                                      |  while there are more
//                      '--------------------------------------'
//
// The pool alone stores the read position (XREAD); the state of the group is never read for it. So
// a group that was removed, moved or acknowledged by others changes nothing that is trained. What
// is to be acknowledged is asked of the server, not remembered: an XACK that was lost is made up
// for after the next commit, or in the next run.
#include "redis_internal.h"

#include <inttypes.h>
#include <string.h>

#define SWEEP_MAX 256 // entries of one XACK
#define SWEEP_TEXT "256"

static bool can_acknowledge(const reef_redis *redis) {
    return redis->url.group != NULL && redis->link != NULL && reef_redis_link_ready(redis->link);
}

// A group that cannot be acknowledged does not stop reading.
static void on_refusal(reef_redis *redis, const char *why) {
    bool gone = strncmp(why, "NOGROUP", 7) == 0,
         empty =
             strstr(why, "no such key") != NULL || strstr(why, "requires the key to exist") != NULL;
    redis->group.there = false; // made again in a second
    if (gone || empty || redis->group.reported) return;
    reef_input_warn(redis->input, "source_unacknowledged",
                    "group '%.60s' of '%.120s' cannot be acknowledged: %.120s; reading continues",
                    redis->url.group, redis->url.clean, why);
    redis->group.reported = true;
}

// ---- acknowledging ------------------------------------------------------------------------------

static void sweep(reef_redis *redis);

static void on_acknowledged(void *context, const redisReply *reply) {
    reef_redis *redis = context;
    redis->group.asked = false;
    if (reply->type == REDIS_REPLY_INTEGER) {
        redis->group.acknowledged += (uint64_t)reply->integer;
        redis->group.reported = false;
        sweep(redis);
    } else if (reply->type == REDIS_REPLY_ERROR) {
        on_refusal(redis, reply->str);
    }
}

// [[id, consumer, ms, times], ...]
static void acknowledge(reef_redis *redis, const redisReply *pending) {
    const char *words[3 + SWEEP_MAX] = {"XACK", redis->url.stream, redis->url.group};
    // XPENDING returns ids with their consumers; only the ids go into XACK.
    int count = 3;
    for (size_t i = 0; i < pending->elements && count < 3 + SWEEP_MAX; i++) {
        const redisReply *item = pending->element[i];
        if (item->type == REDIS_REPLY_ARRAY && item->elements > 0 &&
            item->element[0]->type == REDIS_REPLY_STRING)
            words[count++] = item->element[0]->str;
    }
    if (count == 3) return;
    // A sweep is bounded, so that a backlog of millions is acknowledged piece by piece.
    redis->group.due = true; // there may be more
    redis->group.asked = true;
    reef_redis_link_send(redis->link, on_acknowledged, count, words);
}

static void on_pending(void *context, const redisReply *reply) {
    reef_redis *redis = context;
    redis->group.asked = false;
    if (reply->type == REDIS_REPLY_ERROR)
        on_refusal(redis, reply->str);
    else if (reply->type == REDIS_REPLY_ARRAY)
        acknowledge(redis, reply);
    sweep(redis);
}

static void sweep(reef_redis *redis) {
    reef_redis_group *group = &redis->group;
    if (!group->there || group->asked || !group->due || !can_acknowledge(redis)) return;
    group->due = false;
    group->asked = true;
    reef_redis_link_send(redis->link, on_pending, 7,
                         (const char *[]){"XPENDING", redis->url.stream, redis->url.group, "-",
                                          group->upto, SWEEP_TEXT, redis->url.consumer});
}

void reef_redis_group_settled(reef_redis *redis, const reef_redis_position *position) {
    if (redis->url.group == NULL) return;
    strcpy(redis->group.upto, position->last);
    redis->group.due = true;
    sweep(redis);
}

// ---- pending ------------------------------------------------------------------------------------

static void on_claimed(void *context, const redisReply *reply) {
    if (reply->type == REDIS_REPLY_ERROR) on_refusal(context, reply->str);
}

void reef_redis_group_claim(reef_redis *redis) {
    // Only entries whose bytes are being read are claimed; claiming more would hide them from other
    // consumers.
    if (!redis->group.there || !redis->entry_count || !can_acknowledge(redis)) return;
    const char *words[5 + REDIS_ENTRIES_MAX + 4] = {"XCLAIM", redis->url.stream, redis->url.group,
                                                    redis->url.consumer, "0"};
    int count = 5;
    for (size_t i = 0; i < redis->entry_count; i++) // what was passed over is in no commit
        if (redis->entries[i].bytes) words[count++] = redis->entries[i].id;
    if (count == 5) return;
    // FORCE creates the pending entry where another consumer never saw it; JUSTID keeps the payload
    // out of the reply.
    words[count++] = "FORCE";
    words[count++] = "JUSTID";
    // LASTID moves the group's position, so that XINFO GROUPS shows the real lag.
    words[count++] = "LASTID";
    words[count++] = redis->last;
    reef_redis_link_send(redis->link, on_claimed, count, words);
}

// ---- the group ----------------------------------------------------------------------------------

static void on_made(void *context, const redisReply *reply) {
    reef_redis *redis = context;
    if (reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "BUSYGROUP", 9) != 0) {
        on_refusal(redis, reply->str);
        return;
    }
    redis->group.there = true; // which does not decide whether it may be acknowledged
    redis->group.due = true;   // what was not acknowledged before
    sweep(redis);
}

static void make_ack(reef_redis *redis) {
    if (can_acknowledge(redis))
        reef_redis_link_send(
            redis->link, on_made, 5,
            (const char *[]){"XGROUP", "CREATE", redis->url.stream, redis->url.group, "0"});
}

void reef_redis_group_begin(reef_redis *redis) {
    redis->group.there = redis->group.asked = false;
    make_ack(redis);
}

void reef_redis_group_tick(reef_redis *redis) {
    if (!redis->group.there)
        make_ack(redis);
    else
        sweep(redis);
}

// ---- how far ahead it is ------------------------------------------------------------------------
//
// Once a second by XINFO; and whether entries were removed before they were read.

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
