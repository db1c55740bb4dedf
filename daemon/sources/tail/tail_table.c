// The table of followed files, oldest first, and the events that wait to be reported on the loop.
#include "tail.h"

#include "tail_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
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

bool reef_tail_is_lost(const reef_tail_file *entry) {
    return !entry->file_id.device && !entry->file_id.inode;
}

bool reef_tail_is_read(const reef_tail_file *entry) {
    return entry->refused || (entry->offset >= entry->size && !entry->add_newline);
}

uint64_t reef_tail_unread_of(const reef_tail_file *entry) {
    if (entry->refused) return 0;
    // A rescan that may not open the file sets `size` to `offset`; the plan keeps its range.
    uint64_t end = entry->size > entry->pass_end ? entry->size : entry->pass_end;
    // NUL up to the end of the file waits, and is nothing to be read.
    if (entry->zeros_from == entry->offset && entry->zeros_end >= end) return 0;
    return end > entry->offset ? end - entry->offset : 0;
}

void reef_tail_drop_read_pass(reef_tail *tail) {
    for (size_t i = 0; i < tail->count; i++) {
        tail->files[i].pass_end = tail->files[i].offset;
        tail->files[i].add_newline = false;
    }
}

// ---- events -------------------------------------------------------------------------------------

void reef_tail_report(reef_tail *tail, const char *event, const char *format, ...) {
    // Further events are only counted, so that one scan cannot flood the log.
    if (tail->event_count == REEF_TAIL_EVENTS_MAX) {
        tail->events_dropped++;
        return;
    }
    size_t at = (tail->event_first + tail->event_count++) % REEF_TAIL_EVENTS_MAX;
    reef_tail_event *queued = &tail->events[at];
    va_list arguments;
    snprintf(queued->event, sizeof(queued->event), "%s", event);
    va_start(arguments, format);
    vsnprintf(queued->text, sizeof(queued->text), format, arguments);
    va_end(arguments);
}

bool reef_tail_event_take(reef_tail *tail, reef_tail_event *out) {
    // The queue is empty now, so there is room to report how many were dropped.
    if (tail->event_count == 0 && tail->events_dropped > 0) {
        size_t dropped = tail->events_dropped;
        tail->events_dropped = 0;
        reef_tail_report(tail, "source_events", "%zu more events of '%.200s' are not shown",
                         dropped, tail->folder);
    }
    if (tail->event_count == 0) return false;
    *out = tail->events[tail->event_first];
    tail->event_first = (tail->event_first + 1) % REEF_TAIL_EVENTS_MAX;
    tail->event_count--;
    return true;
}

void reef_tail_report_denied(reef_tail *tail, const char *name, int code) {
    if (!tail->reported_denied)
        reef_tail_report(tail, "source_denied", "cannot read '%.120s/%.120s': %s; retrying",
                         tail->folder, name, strerror(code));
    tail->reported_denied = tail->denied_now = true;
}

void reef_tail_report_failed(reef_tail *tail, const reef_tail_file *entry, int code) {
    if (!code || code == EINTR) return; // there was less to read
    reef_tail_report_denied(tail, entry->file_id.name, code);
    tail->failed = true;
}

// ---- checkpoints --------------------------------------------------------------------------------
//
// Checkpoints of followed files: the table as JSON.
//
//   {"files": [[device, inode, offset, pass_end, prefix_bytes, "prefix_hash", seen_end, "seen_hash",
//              mtime_ns, flags, name, begun_as], ...]}
//
// Hashes: 16 hexadecimal digits. flags is a string with n (add_newline), e (newline_added),
// p (is_gzip), o (drained), r (refused) and u (not judged, though bytes of it were passed over).
// `begun_as` is empty where it is the name. Bytes of the read pass are those from `offset` to
// `pass_end` of each file, one file after another.

static json_t *encode_file(const reef_tail_file *entry) {
    char prefix[17], seen[17], flags[7];
    size_t count = 0;
    // Hashes as 16 hex digits: JSON integers are signed.
    snprintf(prefix, sizeof(prefix), "%016" PRIx64, entry->prefix_hash);
    snprintf(seen, sizeof(seen), "%016" PRIx64, entry->seen_hash);
    // One letter per flag keeps the record short; a folder may hold thousands of files.
    if (entry->add_newline) flags[count++] = 'n';
    if (entry->newline_added) flags[count++] = 'e';
    if (entry->is_gzip) flags[count++] = 'p';
    if (entry->drained) flags[count++] = 'o';
    if (entry->refused) flags[count++] = 'r';
    if (entry->offset && !entry->judged) flags[count++] = 'u';
    flags[count] = 0;
    // An empty name is found again by inode and prefix.
    json_t *name = json_string(entry->file_id.name); // NULL when it is not UTF-8
    const bool renamed = strcmp(entry->begun_as, entry->file_id.name) != 0;
    json_t *begun_as = json_string(renamed ? entry->begun_as : "");
    return json_pack("[I, I, I, I, i, s, I, s, I, s, o, o]", (json_int_t)entry->file_id.device,
                     (json_int_t)entry->file_id.inode, (json_int_t)entry->offset,
                     (json_int_t)entry->pass_end, (int)entry->prefix_bytes, prefix,
                     (json_int_t)entry->seen_end, seen, (json_int_t)entry->file_id.mtime_ns, flags,
                     name != NULL ? name : json_string(""),
                     begun_as != NULL ? begun_as : json_string(""));
}

char *reef_tail_checkpoint(const reef_tail *tail) {
    json_t *files = json_array();
    json_t *checkpoint = json_object();
    bool complete = files != NULL && checkpoint != NULL;
    for (size_t i = 0; complete && i < tail->count; i++)
        complete = json_array_append_new(files, encode_file(&tail->files[i])) == 0;
    complete = complete && json_object_set(checkpoint, "files", files) == 0;
    char *text = complete ? json_dumps(checkpoint, JSON_COMPACT) : NULL;
    json_decref(files);
    json_decref(checkpoint);
    return text;
}

// All 16 digits, or the checkpoint is damaged.
static bool decode_hash(const char *text, uint64_t *hash) {
    char *end = NULL;
    *hash = strtoull(text, &end, 16);
    return !*end && end == text + 16;
}

static bool decode_file(reef_tail_file *entry, json_t *item) {
    json_int_t device = 0, inode = 0, offset = 0, pass_end = 0, seen_end = 0, mtime_ns = 0;
    int prefix_bytes = 0;
    const char *prefix = NULL, *seen = NULL, *flags = NULL, *name = NULL, *begun_as = NULL;
    reef_tail_file_init(entry);
    // "s!" ends the list: a record with more members is not one of ours.
    if (json_unpack(item, "[I, I, I, I, i, s, I, s, I, s, s, s!]", &device, &inode, &offset,
                    &pass_end, &prefix_bytes, &prefix, &seen_end, &seen, &mtime_ns, &flags, &name,
                    &begun_as))
        return false;
    // Numbers are checked before they are used as offsets.
    if (offset < 0 || pass_end < offset || prefix_bytes < 0 ||
        prefix_bytes > REEF_PREFIX_BYTES_MAX || seen_end < 0)
        return false;
    if (!decode_hash(prefix, &entry->prefix_hash) || !decode_hash(seen, &entry->seen_hash))
        return false;
    entry->file_id.device = (uint64_t)device;
    entry->file_id.inode = (uint64_t)inode;
    entry->offset = (uint64_t)offset;
    entry->pass_end = (uint64_t)pass_end;
    entry->seen_end = (uint64_t)seen_end;
    entry->file_id.mtime_ns = mtime_ns;
    // The size is that of the moment when the checkpoint was made, until the next scan.
    entry->size = entry->seen_end > entry->pass_end ? entry->seen_end : entry->pass_end;
    entry->prefix_bytes = (uint32_t)prefix_bytes;
    strncpy(entry->file_id.name, name, NAME_MAX); // the last byte stays zero
    strncpy(entry->begun_as, *begun_as ? begun_as : name, NAME_MAX);
    entry->newline_added = strchr(flags, 'e');
    entry->add_newline = strchr(flags, 'n');
    entry->is_gzip = strchr(flags, 'p');
    entry->drained = strchr(flags, 'o');
    entry->refused = strchr(flags, 'r');
    entry->judged = entry->refused || (entry->offset && strchr(flags, 'u') == NULL);
    return true;
}

reef_status reef_tail_checkpoint_load(reef_tail *tail, const char *checkpoint, reef_error *err) {
    json_t *object = json_loads(checkpoint, 0, NULL);
    json_t *files = json_object_get(object, "files");
    size_t count = json_array_size(files);
    // The bound is that of a folder; a longer list is damage.
    bool good = count > 0 && count <= REEF_DIR_FILES_MAX;
    bool memory = true;
    for (size_t i = 0; good && memory && i < count; i++) {
        reef_tail_file entry;
        good = decode_file(&entry, json_array_get(files, i));
        memory = !good || reef_tail_insert(tail, i, &entry);
    }
    json_decref(object);
    if (!memory)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the files of '%s'", tail->folder);
    if (!good)
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "the stored checkpoint of '%.150s' is not from follow: "
                         "or dir:, so give the source another name",
                         tail->folder);
    return REEF_OK;
}
