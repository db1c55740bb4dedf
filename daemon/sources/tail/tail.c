// Followed files as one stream: opening, seeking, read passes and their bytes; see tail.h.
#include "tail.h"

#include "tail_internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SCANS_MAX 5 // in a row, while names are being moved
// A file of a folder that had nothing new for so long is closed.
#define OPEN_IDLE_MS (uint64_t)60000

// ---- opening ------------------------------------------------------------------------------------

// "a/b/*.log" is the folder a/b and a pattern, "a/b" a folder when it is one.
static reef_status split_path(reef_tail *tail, const char *path, reef_error *err) {
    struct stat state;
    bool is_folder = stat(path, &state) == 0 && S_ISDIR(state.st_mode);
    // `follow:` is for one path; a folder needs a kind that has an order for its files.
    if (is_folder && !tail->is_directory)
        return reef_fail(err, REEF_ERR_INVALID,
                         "cannot follow '%.150s': it is a folder; dir:%.150s follows its files",
                         path, path);
    const char *slash = strrchr(path, '/');
    if (is_folder) {
        tail->folder = strdup(path);
        return tail->folder != NULL
                   ? REEF_OK
                   : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for '%s'", path);
    }
    const char *name = slash != NULL ? slash + 1 : path;
    size_t bytes = slash != NULL ? (size_t)(slash - path) : 0;
    if (!*name || strlen(name) > NAME_MAX)
        return reef_fail(err, REEF_ERR_INVALID, "'%.200s' names no file that could be followed",
                         path);
    // A path without a slash is in the current folder.
    tail->name = strdup(name);
    tail->folder = slash != NULL ? strndup(path, bytes ? bytes : 1) : strdup(".");
    if (tail->name == NULL || tail->folder == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for '%s'", path);
    return REEF_OK;
}

reef_status reef_tail_open(reef_tail **out, const char *path, bool folder, reef_error *err) {
    *out = NULL;
    if (!*path) return reef_fail(err, REEF_ERR_INVALID, "the source names no path to follow");
    reef_tail *tail = calloc(1, sizeof(*tail));
    if (tail == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to follow '%s'", path);
    tail->is_directory = folder;
    // No read pass with bytes has begun in this process. The ranges of a loaded checkpoint are not
    // read as a plan: the first read scans, and every candidate blocks (has_unordered_candidate).
    tail->first_pass = true;
    reef_status status = split_path(tail, path, err);
    // A folder that does not exist is refused: it is most likely a typo.
    if (status == REEF_OK && folder && tail->name != NULL && access(tail->folder, F_OK) != 0)
        status = reef_fail(err, REEF_ERR_NOT_FOUND, "cannot open '%.150s': %s; check the path",
                           tail->folder, strerror(errno));
    // A pattern may match nothing today; a plain name that does not exist is refused.
    if (status == REEF_OK && folder && tail->name != NULL && strpbrk(tail->name, "*?[") == NULL)
        status = reef_fail(err, REEF_ERR_NOT_FOUND,
                           "'%.150s' is not a folder: give dir:FOLDER, "
                           "dir:FOLDER/PATTERN or, for one file, follow:PATH",
                           path);
    if (status == REEF_OK) {
        *out = tail;
        tail = NULL;
    }
    reef_tail_close(tail);
    return status;
}

void reef_tail_close(reef_tail *tail) {
    if (tail == NULL) return;
    while (tail->count) reef_tail_remove(tail, tail->count - 1);
    if (tail->dir != NULL) closedir(tail->dir);
    free(tail->files);
    free(tail->candidates);
    free(tail->folder);
    free(tail->name);
    free(tail);
}

// Skip the bytes that the pool has accepted since the checkpoint: ranges of its read pass.
// False when the pass has fewer.
static bool skip_accepted(reef_tail *tail, uint64_t bytes) {
    for (size_t i = 0; i < tail->count; i++) {
        reef_tail_file *entry = &tail->files[i];
        uint64_t range = entry->pass_end - entry->offset;
        uint64_t count = bytes < range ? bytes : range;
        entry->offset += count;
        if (count) entry->newline_added = false;
        bytes -= count;
        // A newline that was added to an unfinished last line counts as one accepted byte.
        if (count == range && bytes && entry->add_newline) {
            entry->newline_added = true;
            bytes--;
        }
    }
    return bytes == 0;
}

reef_status reef_tail_seek(reef_tail *tail, const reef_input_offset *offset, reef_error *err) {
    if (!offset->cursor) return REEF_OK;
    // The pool stores our checkpoints in the same commit as the bytes, so its absence is damage, or
    // the source's name was that of another kind of source before.
    if (offset->checkpoint == NULL)
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "the pool has read %" PRIu64
                         " bytes of '%.150s' and has no checkpoint for them: give the source "
                         "another name",
                         offset->cursor, tail->folder);
    reef_status status = reef_tail_checkpoint_load(tail, offset->checkpoint, err);
    if (status == REEF_OK && !skip_accepted(tail, offset->cursor - offset->begin))
        status = reef_fail(err, REEF_ERR_CORRUPT,
                           "the stored checkpoint of '%.150s' ends before byte %" PRIu64
                           ", up to which it was read",
                           tail->folder, offset->cursor);
    return status;
}

// ---- a read pass --------------------------------------------------------------------------------
//
// A scan of the folder, and then how much of each file is read until the next one.

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
    if (entry->is_gzip || entry->drained || entry->refused) return 0;
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

static void note_zeros(reef_tail *tail, reef_tail_file *entry, uint64_t count) {
    tail->losses.zero_bytes += count;
    reef_tail_file_note_read(entry);
    if (tail->reported_zeros) return;
    tail->reported_zeros = true;
    reef_tail_report(tail, "source_zeros",
                     "'%.100s' of '%.100s' has %" PRIu64 " bytes of NUL before byte %" PRIu64
                     ", as a hole that its writer left: they are not learned, and others are only "
                     "counted",
                     entry->file_id.name, tail->folder, count, entry->offset);
}

// NUL at the end of a piece may be the beginning of a run.
static uint64_t piece_end(reef_tail_file *entry, uint64_t end) {
    uint8_t last[REEF_ZEROS_MIN];
    if (reef_tail_file_read(entry, last, sizeof(last), end - sizeof(last)) != sizeof(last))
        return entry->offset;
    for (size_t i = sizeof(last); i > 0 && !last[i - 1]; i--) end--;
    return end;
}

// Is the file text? False while that is not known, or it is not: nothing of it is returned.
static bool is_text(reef_tail *tail, reef_tail_file *entry, uint64_t end, bool finished) {
    uint8_t head[REEF_TEXT_HEAD_BYTES];
    if (entry->judged || end == entry->offset) return !entry->refused;
    size_t room = end - entry->offset < sizeof(head) ? end - entry->offset : sizeof(head);
    ssize_t count = reef_tail_file_read(entry, head, room, entry->offset);
    if (count != (ssize_t)room) return false;
    const char *kind = reef_text_kind(head, (size_t)count, finished, &entry->judged);
    if (kind == NULL) return entry->judged;
    entry->refused = true;
    reef_tail_report(tail, "source_refused", "'%.100s' of '%.100s' is %s and is not read%s",
                     entry->file_id.name, tail->folder, kind,
                     reef_text_advice(entry->file_id.name));
    return false;
}

// How much of a file this pass returns. A last line without its end waits, unless the line is too
// long or the file is finished.
static void plan_file_read(reef_tail *tail, size_t at) {
    reef_tail_file *entry = &tail->files[at];
    bool finished = is_finished(tail, at);
    entry->pass_end = entry->offset;
    entry->add_newline = false;
    // Nothing to read.
    if (entry->drained || entry->refused || (entry->size <= entry->offset && !finished)) return;
    if (reef_tail_file_open(entry, tail->dir != NULL ? dirfd(tail->dir) : AT_FDCWD)) return;
    errno = 0;
    uint64_t text_end = 0, zeros = 0;
    bool readable = reef_tail_zeros_plan(entry, finished, &text_end, &zeros);
    if (zeros) note_zeros(tail, entry, zeros);
    if (readable && !is_text(tail, entry, text_end, finished)) text_end = entry->offset;
    int64_t end = readable ? reef_tail_file_line_end(entry, entry->offset, text_end) : -1;
    if (end < 0) { // truncated by now, or its disk fails
        reef_tail_report_failed(tail, entry, errno);
        return;
    }
    // A line longer than the bound is delivered in pieces.
    bool piece = !finished && text_end > (uint64_t)end + REEF_LINE_BYTES_MAX;
    entry->pass_end = finished ? text_end : (uint64_t)end;
    if (piece) entry->pass_end = piece_end(entry, text_end);
    entry->add_newline |= finished && text_end == entry->size && lacks_newline(entry);
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
        bool idle = entry->drained || entry->refused ||
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
        // All files after one with unread bytes wait for it; the files of `dir:` are independent,
        // and nothing waits for bytes that were overwritten: more may come over the next ones.
        blocked |= !tail->is_directory && !reef_tail_is_lost(entry) && !entry->refused &&
                   (entry->pass_end < entry->size || unreachable || unmeasured) && !entry->drained;
    }
}

static reef_tail_file *next_file(reef_tail *tail) {
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

static bool scan_is_old(const reef_tail *tail) {
    return monotonic_ms() - tail->now_ms >= REEF_TAIL_SCAN_MS;
}

reef_status reef_tail_rescan(reef_tail *tail, reef_error *err) {
    bool complete = false;
    return scan(tail, &complete, err);
}

static reef_status begin_read_pass(reef_tail *tail, reef_error *err) {
    bool complete = false;
    reef_status status = scan(tail, &complete, err);
    if (status == REEF_OK && complete)
        plan_read_pass(tail);
    else
        reef_tail_drop_read_pass(tail); // the next scan may succeed
    close_idle(tail);
    if (next_file(tail) != NULL) tail->first_pass = false;
    return status;
}

// ---- reading ------------------------------------------------------------------------------------

// False when the file has changed since the pass began; the caller then scans again.
static bool read_file(
    reef_tail *tail, reef_tail_file *entry, uint8_t *buffer, size_t room, size_t *count) {
    uint64_t range = entry->pass_end - entry->offset;
    // The planned range is exhausted and the last line has no newline: add one, so that the next
    // file does not continue the line.
    if (!range) {
        *buffer = '\n';
        *count = 1;
        entry->add_newline = false;
        entry->newline_added = true;
        return true;
    }
    if (entry->fd < 0 &&
        reef_tail_file_open(entry, tail->dir != NULL ? dirfd(tail->dir) : AT_FDCWD))
        return false;
    // Exactly the planned bytes: a shorter read means that the file changed.
    size_t wanted = range < room ? (size_t)range : room;
    errno = 0;
    ssize_t got = reef_tail_file_read(entry, buffer, wanted, entry->offset);
    if (got < 0) reef_tail_report_failed(tail, entry, errno);
    if (got != (ssize_t)wanted) return false;
    // Checked after the bytes were read: if its first and last bytes still match, they belong to
    // this file and not to a replacement.
    int code = entry->is_gzip ? 0 : reef_tail_file_check(entry);
    if (code && code != ENODATA) reef_tail_report_failed(tail, entry, code);
    if (code) return false;
    ssize_t text = reef_tail_zeros_cut(entry, buffer, wanted, entry->offset);
    if (text < 0) reef_tail_report_failed(tail, entry, errno);
    if (text <= 0) return false;
    entry->before_zeros = (size_t)text < wanted;
    entry->offset += (size_t)text;
    reef_tail_file_note_read(entry);
    entry->newline_added = false;
    *count = (size_t)text;
    return true;
}

static void note_place(reef_tail *tail, const reef_tail_file *entry, uint64_t offset) {
    char path[PATH_MAX + NAME_MAX];
    const char *folder = strcmp(tail->folder, ".") != 0 ? tail->folder : "";
    const size_t bytes = strlen(folder);
    snprintf(path, sizeof(path), "%s%s%s", folder, bytes > 0 && folder[bytes - 1] != '/' ? "/" : "",
             entry->begun_as);
    const size_t room = sizeof(tail->place) - 1, count = strlen(path);
    const char *from = count > room ? path + (count - room) : path;
    while (from > path && ((uint8_t)*from & 0xc0) == 0x80) from++; // not amid a character
    memcpy(tail->place, from, strlen(from) + 1);
    tail->place_offset = offset;
}

static reef_status read_next(reef_tail *tail,
                             reef_tail_file *entry,
                             bool first,
                             uint8_t *buffer,
                             size_t room,
                             size_t *count,
                             char **checkpoint,
                             reef_error *err) {
    // The first bytes of a read pass need a checkpoint; it tells where the bytes of the pass lie,
    // and what its files end with, so that another file is not taken for one of them.
    char *text = first ? reef_tail_checkpoint(tail) : NULL;
    if (first && text == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the checkpoint of '%s'",
                         tail->folder);
    const uint64_t offset = entry->offset;
    if (!read_file(tail, entry, buffer, room, count)) {
        free(text);
        // The plan is void: it was made for a file that has changed since.
        reef_tail_drop_read_pass(tail);
        return REEF_OK;
    }
    note_place(tail, entry, offset);
    if (entry->given_to != tail->given) entry->given_from = tail->given;
    entry->given_to = tail->given += *count;
    // The bytes behind a run of NUL are of another pass, and come before those of other files.
    if (entry->before_zeros) reef_tail_drop_read_pass(tail);
    *checkpoint = text;
    return REEF_OK;
}

reef_status reef_tail_read(reef_tail *tail,
                           uint8_t *buffer,
                           size_t room,
                           size_t *count,
                           char **checkpoint,
                           reef_error *err) {
    assert(room > 0);
    *count = 0;
    *checkpoint = NULL;
    reef_tail_file *entry = next_file(tail);
    reef_status status = REEF_OK;
    // A plan that is seconds old may miss a rotation.
    if (entry != NULL && !tail->first_pass && scan_is_old(tail)) {
        status = reef_tail_rescan(tail, err);
        entry = next_file(tail);
    }
    // Twice: when a file has changed under an older pass, scan and read again at once.
    for (int i = 0; status == REEF_OK && *count == 0 && i < 2; i++) {
        bool first = entry == NULL || tail->first_pass || i > 0;
        if (first) {
            status = begin_read_pass(tail, err);
            entry = next_file(tail);
        }
        if (status != REEF_OK || entry == NULL) break;
        status = read_next(tail, entry, first, buffer, room, count, checkpoint, err);
    }
    return status;
}

void reef_tail_leave(reef_tail *tail, uint64_t dropped) {
    reef_error err;
    const uint64_t kept = tail->given > dropped ? tail->given - dropped : 0;
    (void)!reef_tail_rescan(tail, &err); // a table that is a second old does
    for (size_t i = 0; i < tail->count; i++) {
        const reef_tail_file *entry = &tail->files[i];
        if (entry->listed || tail->folder_errno) continue;
        uint64_t from = entry->given_from > kept ? entry->given_from : kept;
        uint64_t bytes = reef_tail_unread_of(entry);
        if (entry->given_to > from) bytes += entry->given_to - from;
        if (!bytes) continue;
        tail->losses.lost_bytes += bytes;
        reef_tail_report(tail, "source_loss",
                         "'%.100s' of '%.100s' has no name any more, and %" PRIu64
                         " of its bytes were not learned: the next start reads them only from a "
                         "copy",
                         entry->file_id.name[0] ? entry->file_id.name : "a file", tail->folder,
                         bytes);
    }
}

uint64_t reef_tail_unread(const reef_tail *tail) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < tail->count; i++) bytes += reef_tail_unread_of(&tail->files[i]);
    return bytes;
}

const char *reef_tail_place(const reef_tail *tail, uint64_t *offset) {
    *offset = tail->place_offset;
    return tail->place;
}

reef_tail_losses reef_tail_losses_read(const reef_tail *tail) {
    reef_tail_losses losses = tail->losses;
    for (size_t i = 0; i < tail->count; i++) losses.refused += tail->files[i].refused;
    return losses;
}

size_t reef_tail_count(const reef_tail *tail) {
    return tail->count;
}

const char *reef_tail_folder(const reef_tail *tail) {
    return tail->folder;
}
