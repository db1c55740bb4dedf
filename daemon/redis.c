// Redis Streams as a source; see redis.h.
//
//   read --> something left of the last reply? took
//      '---> XREAD ... after the last id --> entries --> took
//                ^                     '--> none in a second --.
//                '---------------------------------------------'
//
// Nothing is asked for while the queue is full. Once a second XINFO says how far ahead the stream is, and whether
// entries were removed before they were read.
#include "redis.h"

#include "redis_link.h"
#include "redis_url.h"
#include "source_name.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ID_BYTES 48     // two numbers of 20 digits
#define ENTRIES_MAX 256 // of one XREAD
#define REPLY_BYTES_WANTED ((size_t)256 << 10)
#define BLOCK_MS "1000"
#define UNKNOWN (-1)

typedef struct reef_redis_entry {
    char id[ID_BYTES];
    size_t bytes;
} reef_redis_entry;

typedef struct reef_redis {
    reef_input *input;
    reef_redis_url url;
    reef_redis_link *link;
    // the next XREAD
    char last[ID_BYTES]; // the last entry that was got
    int64_t ordinal;     // of it among all entries that were ever added, or UNKNOWN
    size_t wanted;       // entries to ask for
    bool reading;        // XREAD is out
    bool asked;          // the reader waits for bytes
    uint8_t *at;
    size_t room;
    // what was got and not given
    reef_redis_entry entries[ENTRIES_MAX];
    size_t entry_count, entry; // `entry` is the next to be given, from its byte `skip` on
    size_t skip;
    uint8_t *bytes;
    size_t byte_count, byte; // `byte` is the next to be given
    char after[ID_BYTES];    // the entry before `entry`
    int64_t after_ordinal;
    // of an entry that was accepted in part before the process began
    char half[ID_BYTES];
    size_t half_bytes;
    // what the server says
    int64_t length, waiting; // entries; or UNKNOWN
    char newest[ID_BYTES];
    bool behind; // said
    bool unfit;  // said: entries without the field
} reef_redis;

// ---- opening -------------------------------------------------------------------------------------

static reef_status on_open(reef_input *input, const char *rest, reef_error *err) {
    reef_redis *redis = calloc(1, sizeof(*redis));
    if (!redis) return reef_fail(err, REEF_NO_MEMORY, "no memory for a source");
    reef_status status = reef_redis_url_parse(&redis->url, rest, err);
    if (status != REEF_OK) {
        free(redis);
        return status;
    }
    redis->input = input;
    redis->ordinal = redis->after_ordinal = redis->length = redis->waiting = UNKNOWN;
    redis->wanted = 16;
    strcpy(redis->last, "0-0");
    strcpy(redis->after, "0-0");
    input->state = redis;
    // Neither the pool nor a message may hold the password.
    input->label = redis->url.clean;
    reef_source_name(input->name, REEF_INPUT_NAME_BYTES_MAX, redis->url.clean,
                     strlen(redis->url.clean));
    return REEF_OK;
}

static reef_status on_check(reef_input *input, const reef_config *config, reef_error *err) {
    return reef_input_check_text(input, config, err);
}

static bool copy_id(char to[ID_BYTES], const char *id) {
    uint64_t ms = 0, number = 0;
    char end = 0;
    if (strlen(id) >= ID_BYTES || sscanf(id, "%" SCNu64 "-%" SCNu64 "%c", &ms, &number, &end) != 2)
        return false;
    strcpy(to, id);
    return true;
}

static int compare_ids(const char *a, const char *b) {
    uint64_t ms[2] = {0, 0}, number[2] = {0, 0};
    (void)sscanf(a, "%" SCNu64 "-%" SCNu64, &ms[0], &number[0]);
    (void)sscanf(b, "%" SCNu64 "-%" SCNu64, &ms[1], &number[1]);
    if (ms[0] != ms[1]) return ms[0] < ms[1] ? -1 : 1;
    return number[0] == number[1] ? 0 : number[0] < number[1] ? -1 : 1;
}

// The entry that has byte `ahead` of what the mark describes.
static bool find_place(reef_redis *redis, json_t *mark, uint64_t ahead) {
    const char *after = NULL;
    json_int_t ordinal = 0, skip = 0;
    json_t *entries = NULL, *item = NULL;
    size_t i = 0;
    if (json_unpack(mark, "{s: s, s: I, s: I, s: o}", "after", &after, "ordinal", &ordinal, "skip",
                    &skip, "entries", &entries) ||
        skip < 0 || !copy_id(redis->last, after))
        return false;
    redis->ordinal = ordinal < 0 ? UNKNOWN : ordinal;
    uint64_t left = ahead + (uint64_t)skip;
    json_array_foreach(entries, i, item) {
        const char *id = NULL;
        json_int_t bytes = 0;
        if (json_unpack(item, "[s, I]", &id, &bytes) || bytes < 0) return false;
        if (left < (uint64_t)bytes) { // in part, or not at all
            redis->half_bytes = (size_t)left;
            return left == 0 || copy_id(redis->half, id);
        }
        left -= (uint64_t)bytes;
        if (!copy_id(redis->last, id)) return false;
        if (redis->ordinal != UNKNOWN) redis->ordinal++;
    }
    return left == 0;
}

static reef_status on_seek(reef_input *input, const reef_input_place *place, reef_error *err) {
    reef_redis *redis = input->state;
    if (!place->cursor) return REEF_OK;
    json_t *mark = place->mark ? json_loads(place->mark, 0, NULL) : NULL;
    bool found = mark && find_place(redis, mark, place->cursor - place->begin);
    json_decref(mark);
    strcpy(redis->after, redis->last);
    redis->after_ordinal = redis->ordinal;
    if (found) return REEF_OK;
    return reef_fail(err, REEF_CORRUPT,
                     "the pool has read %" PRIu64
                     " bytes of '%.120s' and does not know after which "
                     "entry: give the stream another name, such as by another field or db",
                     place->cursor, redis->url.clean);
}

// ---- giving --------------------------------------------------------------------------------------

// Where byte `skip` of `entry` lies, for the `count` bytes from there on.
static char *make_mark(const reef_redis *redis, size_t count) {
    json_t *entries = json_array();
    size_t covered = 0;
    for (size_t i = redis->entry; entries && covered < count + redis->skip; i++) {
        const reef_redis_entry *entry = &redis->entries[i];
        if (json_array_append_new(entries,
                                  json_pack("[s, I]", entry->id, (json_int_t)entry->bytes))) {
            json_decref(entries);
            return NULL;
        }
        covered += entry->bytes;
    }
    json_t *mark = json_pack("{s: s, s: I, s: I, s: o}", "after", redis->after, "ordinal",
                             (json_int_t)redis->after_ordinal, "skip", (json_int_t)redis->skip,
                             "entries", entries);
    char *text = mark ? json_dumps(mark, JSON_COMPACT) : NULL;
    json_decref(mark);
    return text;
}

static void advance(reef_redis *redis, size_t count) {
    redis->byte += count;
    redis->skip += count;
    while (redis->entry < redis->entry_count && redis->skip >= redis->entries[redis->entry].bytes) {
        redis->skip -= redis->entries[redis->entry].bytes;
        strcpy(redis->after, redis->entries[redis->entry++].id);
        if (redis->after_ordinal != UNKNOWN) redis->after_ordinal++;
    }
}

static void fail(reef_redis *redis, const char *what) {
    reef_error err;
    (void)reef_fail(&err, REEF_NO_MEMORY, "no memory for %s of '%.150s'", what, redis->url.clean);
    redis->asked = false;
    reef_input_failed(redis->input, &err);
}

static void answer(reef_redis *redis) {
    size_t left = redis->byte_count - redis->byte;
    size_t count = left < redis->room ? left : redis->room;
    char *mark = make_mark(redis, count);
    if (!mark) {
        fail(redis, "a mark");
        return;
    }
    memcpy(redis->at, redis->bytes + redis->byte, count);
    advance(redis, count);
    redis->asked = false;
    reef_input_took(redis->input, count, mark);
}

// ---- entries -------------------------------------------------------------------------------------

static const redisReply *field_of(const redisReply *fields, const char *name) {
    for (size_t i = 0; i + 1 < fields->elements; i += 2) {
        const redisReply *key = fields->element[i], *value = fields->element[i + 1];
        if (key->type == REDIS_REPLY_STRING && value->type == REDIS_REPLY_STRING &&
            key->len == strlen(name) && !memcmp(key->str, name, key->len))
            return value;
    }
    return NULL;
}

// Bytes of the entry that are read: its text as far as it is not too long, and a newline; none without a text.
static size_t entry_bytes(const redisReply *text) {
    if (!text) return 0;
    return (text->len < REEF_REDIS_ENTRY_BYTES_MAX ? text->len : REEF_REDIS_ENTRY_BYTES_MAX) + 1;
}

static void tell_unfit(reef_redis *redis, const char *id, const redisReply *text) {
    if (!text && !redis->unfit) {
        reef_input_warn(redis->input, "source_unfit",
                        "entry %s of '%.150s' has no field '%.60s'; such entries are passed over",
                        id, redis->url.clean, redis->url.field);
        redis->unfit = true;
    } else if (text && text->len > REEF_REDIS_ENTRY_BYTES_MAX) {
        reef_input_warn(redis->input, "source_loss",
                        "entry %s of '%.150s' has %zu bytes: those after %zu are left out", id,
                        redis->url.clean, (size_t)text->len, REEF_REDIS_ENTRY_BYTES_MAX);
    }
}

static bool is_entry(const redisReply *item) {
    return item->type == REDIS_REPLY_ARRAY && item->elements == 2 &&
           item->element[0]->type == REDIS_REPLY_STRING &&
           item->element[1]->type == REDIS_REPLY_ARRAY;
}

static void add_entry(reef_redis *redis, const redisReply *item) {
    reef_redis_entry *entry = &redis->entries[redis->entry_count];
    if (!is_entry(item) || !copy_id(entry->id, item->element[0]->str)) return;
    const redisReply *text = field_of(item->element[1], redis->url.field);
    tell_unfit(redis, entry->id, text);
    entry->bytes = entry_bytes(text);
    if (text) {
        memcpy(redis->bytes + redis->byte_count, text->str, entry->bytes - 1);
        redis->bytes[redis->byte_count + entry->bytes - 1] = '\n';
        redis->byte_count += entry->bytes;
    }
    redis->entry_count++;
    strcpy(redis->last, entry->id);
    if (redis->ordinal != UNKNOWN) redis->ordinal++;
}

// The rest of an entry that was accepted in part, when the process had ended between.
static void finish_half(reef_redis *redis) {
    if (!redis->half_bytes) return;
    if (!strcmp(redis->half, redis->entries[0].id)) {
        advance(redis, redis->half_bytes);
    } else {
        reef_input_warn(redis->input, "source_loss",
                        "entry %s of '%.150s' was removed when %zu of its bytes had been read",
                        redis->half, redis->url.clean, redis->half_bytes);
    }
    redis->half_bytes = 0;
}

// So many that a reply is about as large as a read of the queue.
static void adapt(reef_redis *redis) {
    size_t mean = redis->byte_count / redis->entry_count + 1;
    size_t wanted = REPLY_BYTES_WANTED / mean + 1;
    if (wanted > 2 * redis->wanted)
        wanted = 2 * redis->wanted; // one large entry may follow small ones
    redis->wanted = wanted < ENTRIES_MAX ? wanted : ENTRIES_MAX;
}

static bool take_entries(reef_redis *redis, const redisReply *items) {
    size_t bytes = 0;
    for (size_t i = 0; i < items->elements; i++)
        if (is_entry(items->element[i]))
            bytes += entry_bytes(field_of(items->element[i]->element[1], redis->url.field));
    free(redis->bytes);
    redis->bytes = malloc(bytes + 1);
    redis->entry_count = redis->entry = redis->skip = redis->byte = redis->byte_count = 0;
    if (!redis->bytes) return false;
    for (size_t i = 0; i < items->elements && redis->entry_count < ENTRIES_MAX; i++)
        add_entry(redis, items->element[i]);
    if (!redis->entry_count) return true;
    adapt(redis);
    finish_half(redis);
    advance(redis, 0); // over entries without a byte
    return true;
}

// ---- asking --------------------------------------------------------------------------------------

static void read_on(reef_redis *redis);

// [[stream, [[id, [field, value, ...]], ...]]], or nothing
static const redisReply *items_of(const redisReply *reply) {
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 1) return NULL;
    const redisReply *stream = reply->element[0];
    if (stream->type != REDIS_REPLY_ARRAY || stream->elements != 2) return NULL;
    return stream->element[1]->type == REDIS_REPLY_ARRAY ? stream->element[1] : NULL;
}

static void on_entries(void *context, const redisReply *reply) {
    reef_redis *redis = context;
    redis->reading = false;
    if (reply->type == REDIS_REPLY_ERROR) {
        reef_redis_link_refuse(redis->link, reply->str);
        return;
    }
    reef_redis_link_works(redis->link);
    const redisReply *items = items_of(reply);
    if (items && !take_entries(redis, items))
        fail(redis, "entries");
    else
        read_on(redis);
}

static void read_on(reef_redis *redis) {
    if (!redis->asked || redis->reading) return;
    if (redis->byte < redis->byte_count) {
        answer(redis);
        return;
    }
    if (!redis->link || !reef_redis_link_ready(redis->link)) return;
    char count[24];
    snprintf(count, sizeof(count), "%zu", redis->wanted);
    redis->reading = true;
    reef_redis_link_send(redis->link, on_entries, 8,
                         (const char *[]){"XREAD", "COUNT", count, "BLOCK", BLOCK_MS, "STREAMS",
                                          redis->url.stream, redis->last});
}

// ---- how far ahead the stream is -----------------------------------------------------------------

static const redisReply *member(const redisReply *reply, const char *name) {
    for (size_t i = 0; i + 1 < reply->elements; i += 2)
        if (reply->element[i]->type == REDIS_REPLY_STRING && !strcmp(reply->element[i]->str, name))
            return reply->element[i + 1];
    return NULL;
}

static int64_t number(const redisReply *reply, const char *name) {
    const redisReply *value = member(reply, name);
    return value && value->type == REDIS_REPLY_INTEGER ? value->integer : UNKNOWN;
}

// Entries are removed from the front, and so those removed beyond our number were never read.
static void look_for_loss(reef_redis *redis, int64_t removed, const char *first) {
    if (redis->ordinal == UNKNOWN || removed <= redis->ordinal) return;
    reef_input_warn(redis->input, "source_loss",
                    "%" PRId64 " entries of '%.150s' after %s were removed before they were read; "
                    "the first that is left is %s",
                    removed - redis->ordinal, redis->url.clean, redis->last, first);
    redis->ordinal = removed;
}

static void look_behind(reef_redis *redis, int64_t added) {
    bool behind = compare_ids(redis->newest, redis->last) < 0;
    if (behind && !redis->behind)
        reef_input_warn(redis->input, "source_behind",
                        "the newest entry of '%.150s' is %s, but %s was read: the server has lost "
                        "entries, or another one answers; entries come once ids are larger",
                        redis->url.clean, redis->newest, redis->last);
    redis->behind = behind;
    if (behind) redis->ordinal = added;
}

static void on_info(void *context, const redisReply *reply) {
    reef_redis *redis = context;
    if (reply->type == REDIS_REPLY_ERROR && !strncmp(reply->str, "ERR no such key", 15)) {
        reef_redis_link_works(redis->link); // a stream that nobody has written to
        redis->length = redis->waiting = 0;
        if (!strcmp(redis->last, "0-0")) redis->ordinal = 0;
        return;
    }
    if (reply->type != REDIS_REPLY_ARRAY) {
        reef_redis_link_refuse(redis->link, reply->str ? reply->str : "XINFO is not answered");
        return;
    }
    reef_redis_link_works(redis->link);
    const redisReply *newest = member(reply, "last-generated-id");
    const redisReply *first = member(reply, "first-entry");
    int64_t added = number(reply, "entries-added"); // since Redis 7
    redis->length = number(reply, "length");
    if (!newest || newest->type != REDIS_REPLY_STRING || !copy_id(redis->newest, newest->str) ||
        added == UNKNOWN || redis->length == UNKNOWN)
        return;
    look_behind(redis, added);
    bool some = first && first->type == REDIS_REPLY_ARRAY && first->elements == 2 &&
                first->element[0]->type == REDIS_REPLY_STRING;
    const char *front = some ? first->element[0]->str : "none";
    if (!strcmp(redis->newest, redis->last)) redis->ordinal = added;
    // What was gone before the first look was never this source's.
    if (!strcmp(redis->last, "0-0") && redis->ordinal == UNKNOWN)
        redis->ordinal = added - redis->length;
    if (!some || compare_ids(front, redis->last) > 0)
        look_for_loss(redis, added - redis->length, front);
    if (redis->byte == redis->byte_count) redis->after_ordinal = redis->ordinal;
    redis->waiting = redis->ordinal == UNKNOWN ? UNKNOWN : added - redis->ordinal;
}

static void ask_info(reef_redis *redis) {
    reef_redis_link_send(redis->link, on_info, 3,
                         (const char *[]){"XINFO", "STREAM", redis->url.stream});
}

// ---- the link ------------------------------------------------------------------------------------

static void on_ready(void *context) {
    reef_redis *redis = context;
    ask_info(redis);
    read_on(redis);
}

static void on_lost(void *context) {
    reef_redis *redis = context;
    redis->reading = false;
}

static void on_tick(void *context) {
    ask_info(context); // a reply behind one that blocks comes a little later
}

static void on_word(void *context, const char *event, const char *text) {
    const reef_redis *redis = context;
    reef_input_warn(redis->input, event, "%s", text);
}

static void on_read(reef_input *input, uint8_t *at, size_t room) {
    reef_redis *redis = input->state;
    redis->at = at;
    redis->room = room;
    redis->asked = true;
    if (!redis->link)
        redis->link = reef_redis_link_open(&(reef_redis_link_options){.loop = input->loop,
                                                                      .url = &redis->url,
                                                                      .on_ready = on_ready,
                                                                      .on_lost = on_lost,
                                                                      .on_tick = on_tick,
                                                                      .on_word = on_word,
                                                                      .context = redis});
    if (!redis->link)
        fail(redis, "a connection");
    else
        read_on(redis);
}

static void on_stop(reef_input *input) {
    reef_redis *redis = input->state;
    reef_redis_link_close(redis->link);
    redis->link = NULL;
    redis->asked = false;
}

static void on_close(reef_input *input) {
    reef_redis *redis = input->state;
    reef_redis_url_release(&redis->url);
    free(redis->bytes);
    free(redis);
    input->state = NULL;
    input->label = input->name;
}

static json_t *known(int64_t value) {
    return value == UNKNOWN ? json_null() : json_integer(value);
}

static json_t *on_status(const reef_input *input) {
    const reef_redis *redis = input->state;
    bool ready = redis->link && reef_redis_link_ready(redis->link);
    return json_pack("{s: b, s: s, s: o, s: o}", "connected", ready, "last_id", redis->last,
                     "entries", known(redis->length), "entries_waiting", known(redis->waiting));
}

const reef_input_kind reef_redis_kind = {.scheme = "redis",
                                         .live = true,
                                         .again = true,
                                         .open = on_open,
                                         .check = on_check,
                                         .seek = on_seek,
                                         .read = on_read,
                                         .stop = on_stop,
                                         .close = on_close,
                                         .status = on_status};
