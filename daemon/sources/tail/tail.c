// Followed files as a stream: the table, and what is given of it; see followed.h.
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

// ---- the table -----------------------------------------------------------------------------------

bool reef_followed_word_take(reef_followed *set, reef_followed_word *word) {
    if (!set->word_count) return false;
    *word = set->words[set->word_first];
    set->word_first = (set->word_first + 1) % REEF_FOLLOWED_WORDS_MAX;
    set->word_count--;
    return true;
}

// ---- opening -------------------------------------------------------------------------------------

// "a/b/*.log" is the folder a/b and a pattern, "a/b" a folder when it is one.
static reef_status split_path(reef_followed *set, const char *path, reef_error *err) {
    struct stat state;
    bool is_folder = stat(path, &state) == 0 && S_ISDIR(state.st_mode);
    if (is_folder && !set->folder_kind)
        return reef_fail(err, REEF_ERR_INVALID,
                         "cannot follow '%.150s': it is a folder; dir:%.150s follows its files",
                         path, path);
    const char *slash = strrchr(path, '/');
    if (is_folder) {
        set->folder = strdup(path);
        return set->folder ? REEF_OK
                           : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for '%s'", path);
    }
    const char *name = slash ? slash + 1 : path;
    size_t bytes = slash ? (size_t)(slash - path) : 0;
    if (!*name || strlen(name) > NAME_MAX)
        return reef_fail(err, REEF_ERR_INVALID, "'%.200s' names no file that could be followed",
                         path);
    set->name = strdup(name);
    set->folder = slash ? strndup(path, bytes ? bytes : 1) : strdup(".");
    if (!set->name || !set->folder)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for '%s'", path);
    return REEF_OK;
}

reef_status reef_followed_open(reef_followed **out,
                               const char *path,
                               bool folder,
                               reef_error *err) {
    *out = NULL;
    if (!*path) return reef_fail(err, REEF_ERR_INVALID, "the source names no path to follow");
    reef_followed *set = calloc(1, sizeof(*set));
    if (!set) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to follow '%s'", path);
    set->folder_kind = folder;
    set->resumed = true;
    reef_status status = split_path(set, path, err);
    if (status == REEF_OK && folder && set->name && access(set->folder, F_OK) != 0)
        status = reef_fail(err, REEF_ERR_NOT_FOUND, "cannot look into '%.150s': %s; check the path",
                           set->folder, strerror(errno));
    if (status == REEF_OK && folder && set->name && !strpbrk(set->name, "*?["))
        status = reef_fail(err, REEF_ERR_NOT_FOUND,
                           "'%.150s' is no folder: give dir:FOLDER, dir:FOLDER/PATTERN or, for one "
                           "file, follow:PATH",
                           path);
    if (status == REEF_OK) {
        *out = set;
        set = NULL;
    }
    reef_followed_close(set);
    return status;
}

void reef_followed_close(reef_followed *set) {
    if (!set) return;
    while (set->count) reef_followed_remove(set, set->count - 1);
    if (set->open) closedir(set->open);
    free(set->parts);
    free(set->suspects);
    free(set->folder);
    free(set->name);
    free(set);
}

// Move on by what the pool has accepted since the mark: through the ranges of its round, and then on in the last.
static void skip(reef_followed *set, uint64_t bytes) {
    reef_part *last = NULL;
    for (size_t i = 0; i < set->count; i++) {
        reef_part *part = &set->parts[i];
        uint64_t range = part->upto - part->offset;
        if (!range && !part->newline) continue;
        last = part;
        uint64_t count = bytes < range ? bytes : range;
        part->offset += count;
        bytes -= count;
        if (count == range && bytes && part->newline) {
            part->ended = true;
            bytes--;
        }
    }
    if (last) last->offset += bytes;
}

reef_status reef_followed_seek(reef_followed *set, const reef_input_place *place, reef_error *err) {
    if (!place->cursor) return REEF_OK;
    if (!place->mark)
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "the pool has read %" PRIu64
                         " bytes of '%.150s' and does not know where they "
                         "lay: give the source another name",
                         place->cursor, set->folder);
    reef_status status = reef_followed_unmark(set, place->mark, err);
    if (status == REEF_OK) skip(set, place->cursor - place->begin);
    return status;
}

// ---- giving --------------------------------------------------------------------------------------

// Nothing is said of where bytes lie when they follow, in the same file, those given before.
static bool follows(const reef_followed *set, const reef_part *part) {
    bool only = true;
    for (size_t i = 0; i < set->count; i++)
        only &= &set->parts[i] == part || !reef_part_has_range(&set->parts[i]);
    return set->marked && only && part->sight.device == set->last_device &&
           part->sight.inode == set->last_inode;
}

// False when the file is not what it was when the round began: then there is another look.
static bool give(reef_followed *set, reef_part *part, uint8_t *at, size_t room, size_t *count) {
    uint64_t range = part->upto - part->offset;
    if (!range) {
        *at = '\n';
        *count = 1;
        part->newline = false;
        part->ended = true;
        return true;
    }
    if (part->fd < 0 && reef_part_open(part, set->open ? dirfd(set->open) : AT_FDCWD)) return false;
    size_t wanted = range < room ? (size_t)range : room;
    errno = 0;
    ssize_t got = reef_part_read(part, at, wanted, part->offset);
    if (got < 0) reef_followed_failed(set, part, errno);
    if (got != (ssize_t)wanted) return false;
    // Read before it was looked at: when it still begins as it did, these bytes were its own.
    int code = part->packed ? 0 : reef_part_check_head(part);
    if (code && code != ENODATA) reef_followed_failed(set, part, code);
    if (code) return false;
    part->offset += wanted;
    part->ended = false;
    *count = wanted;
    return true;
}

static reef_status give_next(reef_followed *set,
                             reef_part *part,
                             bool first,
                             uint8_t *at,
                             size_t room,
                             size_t *count,
                             char **mark,
                             reef_error *err) {
    bool due = first && !follows(set, part);
    char *text = due ? reef_followed_mark(set) : NULL;
    if (due && !text)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the mark of '%s'", set->folder);
    if (!give(set, part, at, room, count)) {
        free(text);
        reef_followed_drop_round(set);
        set->marked = false;
        return REEF_OK;
    }
    *mark = text;
    if (due) set->marked = true;
    for (size_t i = 0; due && i < set->count; i++)
        if (reef_part_has_range(&set->parts[i]) || &set->parts[i] == part) {
            set->last_device = set->parts[i].sight.device;
            set->last_inode = set->parts[i].sight.inode;
        }
    return REEF_OK;
}

reef_status reef_followed_read(
    reef_followed *set, uint8_t *at, size_t room, size_t *count, char **mark, reef_error *err) {
    assert(room > 0);
    *count = 0;
    *mark = NULL;
    reef_part *part = reef_followed_next_part(set);
    reef_status status = REEF_OK;
    if (part && !set->resumed && reef_followed_look_is_old(set)) {
        status = reef_followed_glance(set, err);
        part = reef_followed_next_part(set);
    }
    // Twice: a file that changed under a round that was begun earlier is looked at again at once.
    for (int i = 0; status == REEF_OK && *count == 0 && i < 2; i++) {
        bool first = !part || set->resumed || i > 0;
        if (first) {
            status = reef_followed_begin_round(set, err);
            part = reef_followed_next_part(set);
        }
        if (status != REEF_OK || !part) break;
        status = give_next(set, part, first, at, room, count, mark, err);
    }
    return status;
}

uint64_t reef_followed_unread(const reef_followed *set) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < set->count; i++) {
        const reef_part *part = &set->parts[i];
        uint64_t end = part->size > part->upto ? part->size : part->upto;
        bytes += end > part->offset ? end - part->offset : 0;
    }
    return bytes;
}

size_t reef_followed_count(const reef_followed *set) {
    return set->count;
}

const char *reef_followed_folder(const reef_followed *set) {
    return set->folder;
}
