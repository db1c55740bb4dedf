// The read position of a Redis Stream; see redis_internal.h for its checkpoints.
#include "redis_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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

bool reef_redis_position_find(reef_redis_position *out, const reef_input_offset *offset) {
    *out = (reef_redis_position){.last = "0-0", .ordinal = REDIS_UNKNOWN};
    json_t *checkpoint =
        offset->checkpoint != NULL ? json_loads(offset->checkpoint, 0, NULL) : NULL;
    bool found =
        checkpoint != NULL && find_checkpoint(out, checkpoint, offset->cursor - offset->begin);
    json_decref(checkpoint);
    return found;
}

char *reef_redis_checkpoint_make(const reef_redis *redis, size_t count) {
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
