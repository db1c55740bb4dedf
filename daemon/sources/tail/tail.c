// Followed files as one stream: open, seek, and read bytes of the present read pass; see tail.h.
#include "tail.h"

#include "tail_internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    entry->offset += wanted;
    reef_tail_file_note_read(entry);
    entry->newline_added = false;
    *count = wanted;
    return true;
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
    if (!read_file(tail, entry, buffer, room, count)) {
        free(text);
        // The plan is void: it was made for a file that has changed since.
        reef_tail_drop_read_pass(tail);
        return REEF_OK;
    }
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
    reef_tail_file *entry = reef_tail_next_file(tail);
    reef_status status = REEF_OK;
    // A plan that is seconds old may miss a rotation.
    if (entry != NULL && !tail->first_pass && reef_tail_scan_is_old(tail)) {
        status = reef_tail_rescan(tail, err);
        entry = reef_tail_next_file(tail);
    }
    // Twice: when a file has changed under an older pass, scan and read again at once.
    for (int i = 0; status == REEF_OK && *count == 0 && i < 2; i++) {
        bool first = entry == NULL || tail->first_pass || i > 0;
        if (first) {
            status = reef_tail_begin_read_pass(tail, err);
            entry = reef_tail_next_file(tail);
        }
        if (status != REEF_OK || entry == NULL) break;
        status = read_next(tail, entry, first, buffer, room, count, checkpoint, err);
    }
    return status;
}

uint64_t reef_tail_unread(const reef_tail *tail) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < tail->count; i++) bytes += reef_tail_unread_of(&tail->files[i]);
    return bytes;
}

size_t reef_tail_count(const reef_tail *tail) {
    return tail->count;
}

const char *reef_tail_folder(const reef_tail *tail) {
    return tail->folder;
}
