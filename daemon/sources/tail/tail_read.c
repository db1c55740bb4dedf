// A read pass over followed files: a scan of the folder, and then how much of each file is read
// until the next one; see tail.h.
#include "tail_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>

#define SCANS_MAX 5 // in a row, while names are being moved
// A file of a folder that had nothing new for so long is closed.
#define OPEN_IDLE_MS (uint64_t)60000

static uint64_t monotonic_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    // Never 0, which means "not set" in missing_since_ms and waiting_since_ms.
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000 + 1;
}

static int64_t wall_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// Is the file active? Then its last line may still get its end.
static bool may_still_grow(const reef_tail *tail, size_t at) {
    return tail->is_directory ? tail->files[at].listed : tail->active && at == tail->count - 1;
}

// 0, or an errno for which the sizes cannot be known now.
static int stat_file(reef_tail *tail, reef_tail_file *entry) {
    struct stat state;
    // Gzip files do not grow, and drained ones were read to their end.
    if (entry->is_gzip || entry->drained) return 0;
    // The size in the listing equals the read position, so the file need not be opened to learn
    // that nothing was added.
    if (entry->fd < 0 && entry->listed && entry->opened_once &&
        entry->file_id.size == entry->offset) {
        entry->size = entry->offset;
        return 0;
    }
    int code = reef_tail_file_open(entry, tail->dir != NULL ? dirfd(tail->dir) : AT_FDCWD);
    if (code) return code;
    if (fstat(entry->fd, &state) != 0) return errno;
    // A file that has grown is not settled.
    if ((uint64_t)state.st_size != entry->size) entry->unchanged_since_ms = tail->now_ms;
    entry->size = (uint64_t)state.st_size;
    int64_t ctime_ns = entry->file_id.ctime_ns;
    reef_file_id now;
    reef_file_id_of(&now, entry->file_id.name, &state);
    // Never back: some file systems report a coarser ctime through fstat.
    entry->file_id.ctime_ns = now.ctime_ns > ctime_ns ? now.ctime_ns : ctime_ns;
    return 0;
}

// Does a finished file end within a line, and was no newline added yet?
static bool lacks_newline(reef_tail_file *entry) {
    uint8_t last = '\n';
    if (!entry->pass_end || (entry->newline_added && entry->pass_end == entry->offset))
        return false;
    return reef_tail_file_read(entry, &last, 1, entry->pass_end - 1) == 1 && last != '\n';
}

static bool is_finished(const reef_tail *tail, size_t at) {
    const reef_tail_file *entry = &tail->files[at];
    return !may_still_grow(tail, at) &&
           (entry->is_gzip || reef_tail_settled(tail, entry->unchanged_since_ms, &entry->file_id));
}

// How much of a file this pass returns. A last line without its end waits, unless the line is too
// long or the file is finished.
static void plan_file_read(reef_tail *tail, size_t at) {
    reef_tail_file *entry = &tail->files[at];
    bool finished = is_finished(tail, at);
    entry->pass_end = entry->offset;
    entry->add_newline = false;
    // Nothing to read.
    if (entry->drained || (entry->size <= entry->offset && !finished)) return;
    if (reef_tail_file_open(entry, tail->dir != NULL ? dirfd(tail->dir) : AT_FDCWD)) return;
    errno = 0;
    int64_t end = reef_tail_file_line_end(entry, entry->offset, entry->size);
    if (end < 0) { // truncated by now, or its disk fails
        reef_tail_report_failed(tail, entry, errno);
        return;
    }
    // A line longer than the bound is delivered in pieces.
    bool all = finished || entry->size > (uint64_t)end + REEF_LINE_BYTES_MAX;
    if (entry->size > entry->offset) entry->pass_end = all ? entry->size : (uint64_t)end;
    entry->add_newline = finished && lacks_newline(entry);
    int code = reef_tail_file_note_seen(entry, entry->pass_end);
    if (!code) return;
    // Another file by now, which the next scan sees, or its disk fails.
    if (code != ENODATA) reef_tail_report_failed(tail, entry, code);
    entry->pass_end = entry->offset;
    entry->add_newline = false;
}

static bool has_range(const reef_tail_file *entry) {
    return entry->pass_end > entry->offset || entry->add_newline;
}

static void mark_drained(reef_tail *tail, size_t at) {
    reef_tail_file *entry = &tail->files[at];
    // Files of a folder may be written again at any time, so they are never drained.
    if (tail->is_directory || entry->drained || !entry->listed) return;
    if (!is_finished(tail, at) || !reef_tail_is_read(entry)) return;
    entry->drained = true;
}

// An idle file is drained or, in a folder, had nothing new for OPEN_IDLE_MS.
static void close_idle(reef_tail *tail) {
    for (size_t i = 0; i < tail->count; i++) {
        reef_tail_file *entry = &tail->files[i];
        bool idle = entry->drained ||
                    (tail->is_directory && tail->now_ms - entry->unchanged_since_ms > OPEN_IDLE_MS);
        if (idle && entry->listed && !has_range(entry)) reef_tail_file_close(entry);
    }
}

static int stat_all(reef_tail *tail) {
    int code = 0;
    size_t open = 0;
    // Newest first, so earlier writes to older files are already visible.
    for (size_t i = tail->count; code == 0 && i-- > 0;) {
        code = stat_file(tail, &tail->files[i]);
        reef_tail_limit_open(&tail->files[i], &open);
        // One file without permission must not stop the others.
        if (code == EACCES || code == EPERM || code == EMFILE || code == ENFILE) {
            reef_tail_report_denied(tail, tail->files[i].file_id.name, code);
            tail->files[i].size = tail->files[i].offset;
            code = 0;
        } else if (code && (tail->folder_errno || !tail->files[i].listed)) {
            // A missing file, or one whose folder cannot be read, keeps its last known size.
            code = 0;
        }
    }
    return code;
}

// Is there a candidate whose position in the order is not known yet? It may belong before all files
// of the table.
static bool has_unordered_candidate(const reef_tail *tail) {
    bool found = false;
    for (size_t i = 0; !tail->is_directory && i < tail->candidate_count; i++)
        found |= !tail->candidates[i].broken &&
                 (tail->first_pass || tail->candidates[i].no_known_prefix);
    return found;
}

// The rest of a rotated file, with its last line, comes before anything newer.
static void plan_read_pass(reef_tail *tail) {
    // While something is unclear, such as a rename under way, nothing newer may be delivered: order
    // is part of the stream.
    bool blocked = has_unordered_candidate(tail);
    size_t open = 0;
    tail->failed = false;
    for (size_t i = 0; i < tail->count; i++) {
        reef_tail_file *entry = &tail->files[i];
        // The size of a gzip file is not known until it was decompressed once.
        bool unmeasured = entry->is_gzip && entry->listed && !entry->opened_once && !entry->drained;
        plan_file_read(tail, i);
        reef_tail_extend_prefix(entry, entry->size);
        if (!unmeasured) mark_drained(tail, i);
        reef_tail_limit_open(entry, &open);
        // Without a prefix, a replacement of the file would go unnoticed.
        if (blocked || unmeasured || !entry->prefix_bytes) {
            entry->pass_end = entry->offset;
            entry->add_newline = false;
        }
        bool unreachable = entry->fd < 0 && entry->missing_since_ms;
        // All files after one with unread bytes wait for it; the files of `dir:` are independent.
        blocked |= !tail->is_directory &&
                   (entry->pass_end < entry->size || unreachable || unmeasured) && !entry->drained;
    }
}

reef_tail_file *reef_tail_next_file(reef_tail *tail) {
    for (size_t i = 0; i < tail->count; i++)
        if (has_range(&tail->files[i])) return &tail->files[i];
    return NULL;
}

// Scan until no rename ran meanwhile; `complete` is false if one ran during every scan.
static reef_status scan(reef_tail *tail, bool *complete, reef_error *err) {
    reef_tail_scan_state result = REEF_TAIL_SCAN_AGAIN;
    // Each attempt takes a new time: settling is measured from it.
    for (int i = 0; result == REEF_TAIL_SCAN_AGAIN && i < SCANS_MAX; i++) {
        tail->now_ms = monotonic_ms();
        tail->wall_ns = wall_ns();
        result = reef_tail_scan(tail);
        if (result == REEF_TAIL_SCAN_DONE && stat_all(tail)) result = REEF_TAIL_SCAN_AGAIN;
    }
    *complete = result == REEF_TAIL_SCAN_DONE;
    if (result == REEF_TAIL_SCAN_NO_MEMORY)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to follow the files of '%s'",
                         tail->folder);
    return REEF_OK;
}

bool reef_tail_scan_is_old(const reef_tail *tail) {
    return monotonic_ms() - tail->now_ms >= REEF_TAIL_SCAN_MS;
}

reef_status reef_tail_rescan(reef_tail *tail, reef_error *err) {
    bool complete = false;
    return scan(tail, &complete, err);
}

reef_status reef_tail_begin_read_pass(reef_tail *tail, reef_error *err) {
    bool complete = false;
    reef_status status = scan(tail, &complete, err);
    if (status == REEF_OK && complete)
        plan_read_pass(tail);
    else
        reef_tail_drop_read_pass(tail); // the next scan may succeed
    close_idle(tail);
    if (reef_tail_next_file(tail) != NULL) tail->first_pass = false;
    return status;
}
