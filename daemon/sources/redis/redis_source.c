// Redis Streams as a source; see redis_internal.h.
//
//   read --> something left of the last reply? took
//      '---> XREAD ... after the last id --> entries --> took
//                ^                     '--> none in a second --.
//                '---------------------------------------------'
//
// Nothing is asked for while the queue is full. While the group is asked something, none is an
// answer at once: what is sent on the connection behind an XREAD that waits, waits as long.
#include "redis_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLY_BYTES_WANTED ((size_t)256 << 10)
#define BLOCK_MS "1000"

// ---- the read position --------------------------------------------------------------------------

bool reef_redis_id_copy(char to[REDIS_ID_BYTES], const char *id) {
    uint64_t ms = 0, number = 0;
    char end = 0;
    if (strlen(id) >= REDIS_ID_BYTES ||
        sscanf(id, "%" SCNu64 "-%" SCNu64 "%c", &ms, &number, &end) != 2)
        return false;
    strcpy(to, id);
    return true;
}

int reef_redis_id_compare(const char *a, const char *b) {
    uint64_t ms[2] = {0, 0}, number[2] = {0, 0};
    (void)sscanf(a, "%" SCNu64 "-%" SCNu64, &ms[0], &number[0]);
    (void)sscanf(b, "%" SCNu64 "-%" SCNu64, &ms[1], &number[1]);
    if (ms[0] != ms[1]) return ms[0] < ms[1] ? -1 : 1;
    return number[0] == number[1] ? 0 : number[0] < number[1] ? -1 : 1;
}

// The entry that has byte `ahead`, counted from the byte that the checkpoint describes.
static bool find_checkpoint(reef_redis_position *out, json_t *checkpoint, uint64_t ahead) {
    const char *after = NULL;
    json_int_t ordinal = 0, skip = 0;
    json_t *entries = NULL, *item = NULL;
    size_t i = 0;
    // The record is ours, but it comes from a file: every member is checked.
    if (json_unpack(checkpoint, "{s: s, s: I, s: I, s: o}", "after", &after, "ordinal", &ordinal,
                    "skip", &skip, "entries", &entries) ||
        skip < 0 || !reef_redis_id_copy(out->last, after))
        return false;
    out->ordinal = ordinal < 0 ? REDIS_UNKNOWN : ordinal;
    // `skip` bytes of the first entry were trained before the checkpoint was made.
    uint64_t left = ahead + (uint64_t)skip;
    json_array_foreach(entries, i, item) {
        const char *id = NULL;
        json_int_t bytes = 0;
        if (json_unpack(item, "[s, I]", &id, &bytes) || bytes < 0) return false;
        // The position lies inside this entry: its id and offset are kept, and reading starts with
        // it.
        if (left < (uint64_t)bytes) { // in part, or not at all
            out->half_bytes = (size_t)left;
            return left == 0 || reef_redis_id_copy(out->half, id);
        }
        left -= (uint64_t)bytes;
        if (!reef_redis_id_copy(out->last, id)) return false;
        // Ordinals count entries since the stream began; they tell how many were lost.
        if (out->ordinal != REDIS_UNKNOWN) out->ordinal++;
    }
    return left == 0;
}

static bool find_position(reef_redis_position *out, const reef_input_offset *offset) {
    *out = (reef_redis_position){.last = "0-0", .ordinal = REDIS_UNKNOWN};
    json_t *checkpoint =
        offset->checkpoint != NULL ? json_loads(offset->checkpoint, 0, NULL) : NULL;
    bool found =
        checkpoint != NULL && find_checkpoint(out, checkpoint, offset->cursor - offset->begin);
    json_decref(checkpoint);
    return found;
}

static char *make_checkpoint(const reef_redis *redis, size_t count) {
    json_t *entries = json_array();
    size_t covered = 0;
    // Entries are listed until they cover the bytes that are handed out.
    for (size_t i = redis->entry; entries != NULL && covered < count + redis->skip; i++) {
        const reef_redis_entry *entry = &redis->entries[i];
        if (json_array_append_new(entries,
                                  json_pack("[s, I]", entry->id, (json_int_t)entry->bytes))) {
            json_decref(entries);
            return NULL;
        }
        covered += entry->bytes;
    }
    json_t *checkpoint = json_pack("{s: s, s: I, s: I, s: o}", "after", redis->after, "ordinal",
                                   (json_int_t)redis->after_ordinal, "skip",
                                   (json_int_t)redis->skip, "entries", entries);
    char *text = checkpoint != NULL ? json_dumps(checkpoint, JSON_COMPACT) : NULL;
    json_decref(checkpoint);
    return text;
}

// ---- an entry as bytes --------------------------------------------------------------------------
//
// A text and a newline. What they are depends on the entry and the URL alone, so they are the same
// whenever they are read.

static bool is_entry(const redisReply *item) {
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

static size_t entry_room(const reef_redis *redis, const redisReply *item) {
    const redisReply *value = is_entry(item) ? field_of(item, field_name(redis)) : NULL;
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

static size_t write_entry(reef_redis *redis, const redisReply *item, uint8_t *at) {
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

// ---- opening ------------------------------------------------------------------------------------

static reef_status on_check_spec(reef_input *input, const char *rest, reef_error *err) {
    reef_redis_url url;
    reef_status status = reef_redis_url_parse(&url, rest, err);
    if (status != REEF_OK) return status;
    // Neither the pool nor a message may hold the password.
    reef_source_name(input->name, REEF_INPUT_NAME_BYTES_MAX, url.clean, strlen(url.clean));
    reef_redis_url_release(&url);
    return REEF_OK;
}

static reef_status on_open(reef_input *input, const char *rest, reef_error *err) {
    reef_redis *redis = calloc(1, sizeof(*redis));
    if (redis == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a source");
    reef_status status = reef_redis_url_parse(&redis->url, rest, err);
    if (status != REEF_OK) {
        free(redis);
        return status;
    }
    redis->input = input;
    // Unknown until XINFO has answered.
    redis->ordinal = redis->after_ordinal = redis->length = redis->waiting = REDIS_UNKNOWN;
    redis->wanted = 16;
    // "0-0" is before every entry.
    strcpy(redis->last, "0-0");
    strcpy(redis->after, "0-0");
    strcpy(redis->settled, "0-0");
    strcpy(redis->group.upto, "0-0");
    input->state = redis;
    // The label is printed and logged; the password is not part of it.
    input->label = redis->url.clean;
    return REEF_OK;
}

static reef_status on_seek(reef_input *input, const reef_input_offset *offset, reef_error *err) {
    reef_redis *redis = input->state;
    reef_redis_position found;
    // A source that was never read starts at its first entry.
    if (!offset->cursor) return REEF_OK;
    if (!find_position(&found, offset))
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "the pool has read %" PRIu64
                         " bytes of '%.120s' and does not know after which "
                         "entry: give the stream another name, such as by another field or db",
                         offset->cursor, redis->url.clean);
    // Reading continues after the last complete entry. One that was read in part is fetched again.
    strcpy(redis->last, found.last);
    strcpy(redis->after, found.last);
    strcpy(redis->settled, found.last);
    redis->ordinal = redis->after_ordinal = found.ordinal;
    strcpy(redis->half, found.half);
    redis->half_bytes = found.half_bytes;
    // The group is sent what the pool has, in case the last acknowledgement was lost.
    reef_redis_group_settled(redis, &found);
    return REEF_OK;
}

// ---- giving -------------------------------------------------------------------------------------

static void advance(reef_redis *redis, size_t count) {
    redis->byte += count;
    redis->skip += count;
    while (redis->entry < redis->entry_count && redis->skip >= redis->entries[redis->entry].bytes) {
        redis->skip -= redis->entries[redis->entry].bytes;
        strcpy(redis->after, redis->entries[redis->entry++].id);
        if (redis->after_ordinal != REDIS_UNKNOWN) redis->after_ordinal++;
    }
}

static void fail_no_memory(reef_redis *redis, const char *what) {
    reef_error err;
    (void)reef_fail(&err, REEF_ERR_NO_MEMORY, "no memory for %s of '%.150s'", what,
                    redis->url.clean);
    redis->asked = false;
    reef_input_failed(redis->input, &err);
}

static void reply_bytes(reef_redis *redis) {
    // At most what the loop asked for; the rest waits for the next call.
    size_t left = redis->byte_count - redis->byte;
    size_t count = left < redis->room ? left : redis->room;
    // The checkpoint describes exactly these bytes, so it is made before they are handed over.
    char *checkpoint = make_checkpoint(redis, count);
    if (checkpoint == NULL) {
        fail_no_memory(redis, "a checkpoint");
        return;
    }
    memcpy(redis->at, redis->bytes + redis->byte, count);
    advance(redis, count);
    redis->asked = false;
    reef_input_took(redis->input, count, checkpoint);
}

// ---- entries ------------------------------------------------------------------------------------

static void add_entry(reef_redis *redis, const redisReply *item) {
    reef_redis_entry *entry = &redis->entries[redis->entry_count];
    if (!is_entry(item) || !reef_redis_id_copy(entry->id, item->element[0]->str)) return;
    entry->bytes = write_entry(redis, item, redis->bytes + redis->byte_count);
    redis->byte_count += entry->bytes;
    redis->entry_count++;
    strcpy(redis->last, entry->id);
    if (redis->ordinal != REDIS_UNKNOWN) redis->ordinal++;
}

static bool half_is_gone(reef_redis *redis, const redisReply *items) {
    if (!redis->half_bytes) return false;
    if (items == NULL || !items->elements) return false; // the server may get it yet
    const redisReply *first = items->element[0];
    return !is_entry(first) || strcmp(redis->half, first->element[0]->str) != 0;
}

// It was removed.
static void warn_lost_half(reef_redis *redis) {
    reef_input_warn(redis->input, "source_loss",
                    "entry %s of '%.150s' was removed when %zu of its bytes had been read",
                    redis->half, redis->url.clean, redis->half_bytes);
}

// The rest of an entry that was accepted in part, when the process had ended between.
static void finish_half(reef_redis *redis) {
    if (redis->half_bytes && strcmp(redis->half, redis->entries[0].id) == 0)
        advance(redis, redis->half_bytes);
    redis->half_bytes = 0;
}

// So many that a reply is about as large as a read of the queue.
static void adapt(reef_redis *redis) {
    size_t mean = redis->byte_count / redis->entry_count + 1;
    size_t wanted = REPLY_BYTES_WANTED / mean + 1;
    if (wanted > 2 * redis->wanted)
        wanted = 2 * redis->wanted; // one large entry may follow small ones
    redis->wanted = wanted < REDIS_ENTRIES_MAX ? wanted : REDIS_ENTRIES_MAX;
}

// `items` is NULL if the reply has none.
static bool take_entries(reef_redis *redis, const redisReply *items) {
    size_t bytes = 0;
    // Room for all entries at once: the reply is freed when this callback returns.
    size_t count = items != NULL ? items->elements : 0;
    for (size_t i = 0; i < count; i++) bytes += entry_room(redis, items->element[i]);
    free(redis->bytes);
    redis->bytes = malloc(bytes + 1);
    redis->entry_count = redis->entry = redis->skip = redis->byte = redis->byte_count = 0;
    if (redis->bytes == NULL) return false;
    if (half_is_gone(redis, items)) warn_lost_half(redis);
    // A reply may hold more entries than asked for, but never more than this array.
    for (size_t i = 0; i < count && redis->entry_count < REDIS_ENTRIES_MAX; i++)
        add_entry(redis, items->element[i]);
    if (!redis->entry_count) return true;
    // The next COUNT follows the size of entries, so that replies stay near the queue's room.
    adapt(redis);
    reef_redis_group_claim(redis);
    finish_half(redis);
    advance(redis, 0); // over entries without a byte
    return true;
}

// ---- asking -------------------------------------------------------------------------------------

static void read_entries(reef_redis *redis);

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
    // An answer means that the server is there again after a failure.
    reef_redis_link_works(redis->link);
    if (!take_entries(redis, items_of(reply)))
        fail_no_memory(redis, "entries");
    else
        read_entries(redis);
}

static void read_entries(reef_redis *redis) {
    // One request at a time: entries are taken in order.
    if (!redis->asked || redis->reading) return;
    // Buffered bytes first.
    if (redis->byte < redis->byte_count) {
        reply_bytes(redis);
        return;
    }
    if (redis->link == NULL || !reef_redis_link_ready(redis->link)) return;
    char count[24];
    snprintf(count, sizeof(count), "%zu", redis->wanted);
    const char *words[8] = {"XREAD", "COUNT", count};
    int used = 3;
    // BLOCK would keep this connection, and an acknowledgement behind it, waiting for new entries.
    if (!redis->group.asked) { // or what it waits for would come after the reply of this
        words[used++] = "BLOCK";
        words[used++] = BLOCK_MS;
    }
    words[used++] = "STREAMS";
    words[used++] = redis->url.stream;
    words[used++] = redis->last;
    redis->reading = true;
    reef_redis_link_send(redis->link, on_entries, used, words);
}

// ---- the link -----------------------------------------------------------------------------------

static void on_ready(void *context) {
    reef_redis *redis = context;
    reef_redis_group_begin(redis);
    reef_redis_info_request(redis);
    read_entries(redis);
}

static void on_lost(void *context) {
    reef_redis *redis = context;
    redis->reading = false;
    redis->group.asked = false;
}

static void on_tick(void *context) {
    reef_redis_info_request(context); // a reply behind one that blocks comes a little later
    reef_redis_group_tick(context);
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
    // The connection is made when bytes are wanted for the first time.
    if (redis->link == NULL)
        redis->link = reef_redis_link_open(&(reef_redis_link_options){.loop = input->loop,
                                                                      .url = &redis->url,
                                                                      .on_ready = on_ready,
                                                                      .on_lost = on_lost,
                                                                      .on_tick = on_tick,
                                                                      .on_word = on_word,
                                                                      .context = redis});
    if (redis->link == NULL)
        fail_no_memory(redis, "a connection");
    else
        read_entries(redis);
}

static void on_stop(reef_input *input) {
    reef_redis *redis = input->state;
    reef_redis_link_close(redis->link);
    redis->link = NULL;
    redis->asked = false;
}

static void on_settled(reef_input *input, const reef_input_offset *offset) {
    reef_redis *redis = input->state;
    reef_redis_position found;
    if (!find_position(&found, offset)) return;
    strcpy(redis->settled, found.last);
    reef_redis_group_settled(redis, &found);
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
    return value == REDIS_UNKNOWN ? json_null() : json_integer(value);
}

static json_t *on_status(const reef_input *input) {
    const reef_redis *redis = input->state;
    bool ready = redis->link != NULL && reef_redis_link_ready(redis->link);
    json_t *acknowledged = reef_json_known(redis->url.group != NULL, redis->group.acknowledged);
    return json_pack("{s: b, s: s, s: s, s: o, s: o, s: I, s: o}", "connected", ready, "last_id",
                     redis->last, "committed_id", redis->settled, "entries", known(redis->length),
                     "entries_waiting", known(redis->waiting), "entries_unfit",
                     (json_int_t)redis->unfit, "entries_acknowledged", acknowledged);
}

const reef_input_kind reef_redis_kind = {.scheme = "redis",
                                         .live = true,
                                         .again = true,
                                         .check_spec = on_check_spec,
                                         .open = on_open,
                                         .seek = on_seek,
                                         .read = on_read,
                                         .stop = on_stop,
                                         .settled = on_settled,
                                         .close = on_close,
                                         .status = on_status};
