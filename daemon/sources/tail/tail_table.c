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

bool reef_tail_insert(reef_tail *set, size_t at, const reef_tail_file *file_entry) {
    if (set->count == set->room) {
        // Doubling; files come and go with every rotation.
        size_t room = set->room ? 2 * set->room : 8;
        reef_tail_file *larger = realloc(set->files, room * sizeof(*larger));
        if (larger == NULL) return false;
        set->files = larger;
        set->room = room;
    }
    memmove(&set->files[at + 1], &set->files[at], (set->count - at) * sizeof(*file_entry));
    set->files[at] = *file_entry;
    set->count++;
    // The table changed, so the next bytes need a new checkpoint.
    set->marked = false;
    return true;
}

void reef_tail_remove(reef_tail *set, size_t at) {
    reef_tail_file_release(&set->files[at]);
    set->count--;
    memmove(&set->files[at], &set->files[at + 1], (set->count - at) * sizeof(*set->files));
    set->marked = false;
}

// By doubling, so that few checkpoints are due.
void reef_tail_grow_head(reef_tail *set, reef_tail_file *file_entry, uint64_t size) {
    uint64_t bytes = size < REEF_HEAD_BYTES_MAX ? size : REEF_HEAD_BYTES_MAX;
    bool due = bytes > file_entry->head_bytes &&
               (bytes == REEF_HEAD_BYTES_MAX || bytes >= 2 * (uint64_t)file_entry->head_bytes);
    if (due && file_entry->fd >= 0 && reef_tail_file_head_grow(file_entry, (uint32_t)bytes))
        set->marked = false;
}

void reef_tail_spare(reef_tail_file *file_entry, size_t *open) {
    if (file_entry->fd < 0) return;
    if (*open < REEF_TAIL_OPEN_MAX || !file_entry->listed)
        ++*open;
    else
        reef_tail_file_shut(file_entry);
}

void reef_tail_report(reef_tail *set, const char *event, const char *format, ...) {
    if (set->event_count == REEF_TAIL_EVENTS_MAX) return; // so many at once help nobody
    size_t at = (set->event_first + set->event_count++) % REEF_TAIL_EVENTS_MAX;
    reef_tail_event *word = &set->events[at];
    va_list arguments;
    snprintf(word->event, sizeof(word->event), "%s", event);
    va_start(arguments, format);
    vsnprintf(word->text, sizeof(word->text), format, arguments);
    va_end(arguments);
}

// The change of an inode counts renames too. A clock that was set back makes it lie ahead, for
// ever: hence ours.
bool reef_tail_settled(const reef_tail *set, uint64_t still_ms, const reef_file_id *file_id) {
    return set->clock_ns - file_id->changed_ns >= (int64_t)REEF_SETTLE_MS * 1000000 ||
           set->now_ms - still_ms >= REEF_SETTLE_MS;
}

void reef_tail_denied(reef_tail *set, const char *name, int code) {
    if (!set->denied)
        reef_tail_report(set, "source_denied", "cannot read '%.120s/%.120s': %s; it is tried again",
                         set->folder, name, strerror(code));
    set->denied = set->denied_now = true;
}

void reef_tail_failed(reef_tail *set, const reef_tail_file *file_entry, int code) {
    if (!code || code == EINTR) return; // there was less to read
    reef_tail_denied(set, file_entry->file_id.name, code);
    set->failed = true;
}
