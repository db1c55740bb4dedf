// The table of followed files, oldest first: insert and remove entries, extend prefixes, limit
// open descriptors.
#include "tail.h"

#include "tail_internal.h"

#include <stdlib.h>
#include <string.h>

bool reef_tail_insert(reef_tail *tail, size_t at, const reef_tail_file *entry) {
    if (tail->count == tail->capacity) {
        // Doubling; files come and go with every rotation.
        size_t capacity = tail->capacity ? 2 * tail->capacity : 8;
        reef_tail_file *larger = realloc(tail->files, capacity * sizeof(*larger));
        if (larger == NULL) return false;
        tail->files = larger;
        tail->capacity = capacity;
    }
    memmove(&tail->files[at + 1], &tail->files[at], (tail->count - at) * sizeof(*entry));
    tail->files[at] = *entry;
    tail->count++;
    return true;
}

void reef_tail_remove(reef_tail *tail, size_t at) {
    reef_tail_file_close(&tail->files[at]);
    tail->count--;
    memmove(&tail->files[at], &tail->files[at + 1], (tail->count - at) * sizeof(*tail->files));
}

void reef_tail_extend_prefix(reef_tail_file *entry, uint64_t size) {
    uint64_t bytes = size < REEF_PREFIX_BYTES_MAX ? size : REEF_PREFIX_BYTES_MAX;
    if (bytes > entry->prefix_bytes && entry->fd >= 0)
        (void)reef_tail_file_extend_prefix(entry, (uint32_t)bytes);
}

void reef_tail_limit_open(reef_tail_file *entry, size_t *open) {
    if (entry->fd < 0) return;
    if (*open < REEF_TAIL_OPEN_MAX || !entry->listed)
        ++*open;
    else
        reef_tail_file_close(entry);
}

// ctime also changes on a rename. A clock set back leaves ctime in the future; so also use our
// monotonic time.
bool reef_tail_settled(const reef_tail *tail,
                       uint64_t unchanged_since_ms,
                       const reef_file_id *file_id) {
    return tail->wall_ns - file_id->ctime_ns >= (int64_t)REEF_SETTLE_MS * 1000000 ||
           tail->now_ms - unchanged_since_ms >= REEF_SETTLE_MS;
}

bool reef_tail_is_read(const reef_tail_file *entry) {
    return entry->offset >= entry->size && !entry->add_newline;
}

uint64_t reef_tail_unread_of(const reef_tail_file *entry) {
    // A rescan that may not open the file sets `size` to `offset`; the plan keeps its range.
    uint64_t end = entry->size > entry->pass_end ? entry->size : entry->pass_end;
    return end > entry->offset ? end - entry->offset : 0;
}

void reef_tail_drop_read_pass(reef_tail *tail) {
    for (size_t i = 0; i < tail->count; i++) {
        tail->files[i].pass_end = tail->files[i].offset;
        tail->files[i].add_newline = false;
    }
}
