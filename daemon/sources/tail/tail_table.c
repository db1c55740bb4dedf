// The table of followed files, oldest first: inserted, removed, and what is reported of them.
#include "tail.h"

#include "tail_internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool reef_followed_insert(reef_followed *set, size_t at, const reef_part *part) {
    if (set->count == set->room) {
        size_t room = set->room ? 2 * set->room : 8;
        reef_part *larger = realloc(set->parts, room * sizeof(*larger));
        if (!larger) return false;
        set->parts = larger;
        set->room = room;
    }
    memmove(&set->parts[at + 1], &set->parts[at], (set->count - at) * sizeof(*part));
    set->parts[at] = *part;
    set->count++;
    set->marked = false;
    return true;
}

void reef_followed_remove(reef_followed *set, size_t at) {
    reef_part_release(&set->parts[at]);
    set->count--;
    memmove(&set->parts[at], &set->parts[at + 1], (set->count - at) * sizeof(*set->parts));
    set->marked = false;
}

// By doubling, so that a mark is due only a few times.
void reef_followed_grow_head(reef_followed *set, reef_part *part, uint64_t size) {
    uint64_t bytes = size < REEF_HEAD_BYTES_MAX ? size : REEF_HEAD_BYTES_MAX;
    bool due = bytes > part->head_bytes &&
               (bytes == REEF_HEAD_BYTES_MAX || bytes >= 2 * (uint64_t)part->head_bytes);
    if (due && part->fd >= 0 && reef_part_head_grow(part, (uint32_t)bytes)) set->marked = false;
}

void reef_followed_spare(reef_part *part, size_t *open) {
    if (part->fd < 0) return;
    if (*open < REEF_FOLLOWED_OPEN_MAX || !part->listed)
        ++*open;
    else
        reef_part_shut(part);
}

void reef_followed_say(reef_followed *set, const char *event, const char *format, ...) {
    if (set->word_count == REEF_FOLLOWED_WORDS_MAX) return; // so many at once help nobody
    size_t at = (set->word_first + set->word_count++) % REEF_FOLLOWED_WORDS_MAX;
    reef_followed_word *word = &set->words[at];
    va_list arguments;
    snprintf(word->event, sizeof(word->event), "%s", event);
    va_start(arguments, format);
    vsnprintf(word->text, sizeof(word->text), format, arguments);
    va_end(arguments);
}

// The change of an inode counts renames too. A clock that was set back makes it lie ahead, for ever: hence ours.
bool reef_followed_settled(const reef_followed *set, uint64_t still_ms, const reef_sight *sight) {
    return set->clock_ns - sight->changed_ns >= (int64_t)REEF_SETTLE_MS * 1000000 ||
           set->now_ms - still_ms >= REEF_SETTLE_MS;
}

void reef_followed_denied(reef_followed *set, const char *name, int code) {
    if (!set->denied)
        reef_followed_say(set, "source_denied",
                          "cannot read '%.120s/%.120s': %s; it is tried again", set->folder, name,
                          strerror(code));
    set->denied = set->denied_now = true;
}

void reef_followed_failed(reef_followed *set, const reef_part *part, int code) {
    if (!code || code == EINTR) return; // there was less to read
    reef_followed_denied(set, part->sight.name, code);
    set->failed = true;
}
