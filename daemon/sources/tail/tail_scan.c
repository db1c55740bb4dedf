// One scan of the folder of followed files: which files are still there, which were replaced, which
// are new.
//
//   list --> known by inode: same contents?  --no--> lost for now: an entry without a file
//        --> lost entries: an unknown file with their first bytes is a copy: continue in it
//        --> unknown files: new, or a partial copy
#include "tail_internal.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_lost(const reef_tail_file *file_entry) {
    return !file_entry->file_id.device && !file_entry->file_id.inode;
}

// ---- opening ------------------------------------------------------------------------------------

// Open an unknown file as an entry of its own. 0, or the errno for which it or its first bytes
// cannot be read.
static int open_unknown(reef_tail *tail, reef_tail_file *file_entry, const reef_file_id *file_id) {
    uint8_t head[REEF_HEAD_BYTES_MAX];
    reef_tail_file_init(file_entry);
    // Its flags are set before opening can fail: it is in the listing of this scan.
    file_entry->file_id = *file_id;
    file_entry->is_gzip = reef_name_is_gzip(file_id->name);
    file_entry->listed = file_entry->opened_once = true;
    file_entry->unchanged_since_ms = tail->now_ms;
    file_entry->size = file_id->size;
    int code = reef_tail_file_open(file_entry, dirfd(tail->dir));
    // A file may be listed and opened, yet fail to read, such as on a broken disk.
    if (!code && pread(file_entry->fd, head, sizeof(head), 0) < 0) {
        code = errno;
        reef_tail_file_close(file_entry); // its bytes cannot be compared
    }
    if (code && code != ENOENT && code != ESTALE) reef_tail_denied(tail, file_id->name, code);
    return code;
}

// Does the file begin with the head of the entry?
static bool has_head_of(reef_tail_file *file, const reef_tail_file *file_entry) {
    uint64_t hash = 0;
    return file_entry->head_bytes &&
           reef_tail_file_hash(file, file_entry->head_bytes, &hash) == 0 &&
           hash == file_entry->head;
}

// ---- known files --------------------------------------------------------------------------------

static size_t listing_index(const reef_listing *list, const reef_file_id *file_id) {
    for (size_t i = 0; i < list->count; i++)
        if (reef_file_id_same(&list->items[i], file_id)) return i;
    return SIZE_MAX;
}

// The file was truncated, or a new file has its inode. The entry stays in the table without a file,
// until an unknown file turns out to have its bytes.
static void detach(reef_tail *tail, reef_tail_file *file_entry) {
    reef_tail_file_close(file_entry);
    file_entry->file_id.device = file_entry->file_id.inode = 0;
    file_entry->listed = false;
    file_entry->missing_since_ms = tail->now_ms;
    tail->checkpoint_current = false;
}

// Reading continues with whatever decompresses.
static void report_broken(reef_tail *tail, const reef_tail_file *file_entry) {
    reef_tail_report(tail, "source_broken",
                     "'%.100s' of '%.100s' does not decompress to its end: only what does is read",
                     file_entry->file_id.name, tail->folder);
}

static bool is_truncated(const reef_tail_file *file_entry) {
    return !file_entry->is_gzip && file_entry->file_id.size < file_entry->offset;
}

// Compare an entry with what its inode holds now.
static reef_tail_scan_state check_known(reef_tail *tail,
                                        reef_tail_file *file_entry,
                                        const reef_file_id *file_id) {
    // Size or time of change differ from the last scan, or it has never been opened.
    bool changed = !file_entry->opened_once || file_entry->file_id.size != file_id->size ||
                   file_entry->file_id.written_ns != file_id->written_ns;
    if (!file_entry->opened_once || file_entry->file_id.size != file_id->size ||
        strcmp(file_entry->file_id.name, file_id->name) != 0)
        file_entry->unchanged_since_ms = tail->now_ms;
    file_entry->file_id = *file_id;
    file_entry->listed = true;
    file_entry->missing_since_ms = 0;
    if (!changed) return REEF_TAIL_SCAN_DONE;
    int code = reef_tail_file_open(file_entry, dirfd(tail->dir));
    // Renamed or replaced since the listing: the whole listing is stale.
    if (code == ENOENT || code == ESTALE) return REEF_TAIL_SCAN_AGAIN;
    // Shorter than what was read, or with another beginning: the bytes that were read are not in
    // this file any more.
    if (!code) code = is_truncated(file_entry) ? ENODATA : reef_tail_file_check_head(file_entry);
    bool lost = code == ENODATA;
    if (!code && file_entry->is_gzip && !file_entry->opened_once && !file_entry->drained)
        code = reef_tail_file_measure(file_entry);
    if (lost) {
        // scan_lost then looks for a copy of its bytes under another name.
        detach(tail, file_entry);
    } else if (code && code != ENODATA) {
        reef_tail_denied(tail, file_id->name, code);
        if (file_entry->is_gzip) reef_tail_file_close(file_entry); // its stream keeps the error
        file_entry->opened_once = false; // check again once it can be read
    } else {
        if (code) report_broken(tail, file_entry);
        // A drained file that grows again is read again.
        if (!file_entry->is_gzip && file_id->size > file_entry->offset) file_entry->drained = false;
        file_entry->opened_once = true;
        if (!file_entry->is_gzip)
            reef_tail_grow_head(tail, file_entry, file_id->size); // copies are recognised by it
    }
    return REEF_TAIL_SCAN_DONE;
}

static reef_tail_scan_state scan_known(reef_tail *tail, reef_listing *list) {
    reef_tail_scan_state result = REEF_TAIL_SCAN_DONE;
    size_t open = 0;
    for (size_t i = 0; result == REEF_TAIL_SCAN_DONE && i < tail->count; i++) {
        reef_tail_file *file_entry = &tail->files[i];
        // Found by device and inode, whatever its name is now.
        size_t at = listing_index(list, &file_entry->file_id);
        if (at == SIZE_MAX && file_entry->listed) file_entry->unchanged_since_ms = tail->now_ms;
        // A file that is not listed may only be missing for the moment of a rename.
        if (at == SIZE_MAX && !file_entry->missing_since_ms)
            file_entry->missing_since_ms = tail->now_ms;
        file_entry->listed = false;
        if (at == SIZE_MAX) continue;
        result = check_known(tail, file_entry, &list->items[at]);
        // A file that was found is not a new one; a lost entry leaves its inode free for others.
        list->known[at] = !is_lost(file_entry);
        reef_tail_limit_open(file_entry, &open);
    }
    return result;
}

// ---- lost files ---------------------------------------------------------------------------------

// This file has the entry's bytes too: continue in it.
static void move_into(reef_tail *tail, reef_tail_file *file_entry, reef_tail_file *file) {
    // The old descriptor may be of a deleted file; the new one has the same bytes under a name.
    reef_tail_file_close(file_entry);
    file_entry->file_id = file->file_id;
    file_entry->fd = file->fd;
    file_entry->zip = file->zip;
    file_entry->is_gzip = file->is_gzip;
    file_entry->size = file->size;
    file_entry->last_byte = file->last_byte;
    file_entry->listed = file_entry->opened_once = true;
    file_entry->missing_since_ms = 0;
    file_entry->unchanged_since_ms = tail->now_ms;
    // The next read needs a checkpoint that names the new file.
    tail->checkpoint_current = false;
}

// By its name, may an unknown file be a copy of a lost entry? Small files of a folder often begin
// alike, so there only names count that compression or truncation leave behind.
static bool may_be_copy(const reef_tail *tail,
                        const reef_tail_file *file_entry,
                        const reef_listing *list,
                        size_t at) {
    const char *name = list->items[at].name;
    bool same_after_restart =
        // After a restart there is no descriptor, and a file system may have another device number.
        // Then a file of the same name continues the entry if a head of full length matches.
        file_entry->fd < 0 && !is_lost(file_entry) && file_entry->head_bytes == REEF_HEAD_BYTES_MAX;
    if (list->known[at]) return false;
    if (at == list->active) return same_after_restart;
    if (!tail->is_directory) return true;
    if (strcmp(name, file_entry->file_id.name) == 0) return same_after_restart;
    // app.log.1.gz may be a copy of app.log; other.log may not, even if both begin alike.
    return reef_name_shares_stem(name, file_entry->file_id.name) &&
           (is_lost(file_entry) || reef_name_is_gzip(name));
}

// 0 when it has the bytes, ENODATA when not, or the errno of a read.
static int check_bytes(reef_tail_file *file, const reef_tail_file *file_entry) {
    if (!has_head_of(file, file_entry)) return ENODATA;
    int code = file->is_gzip ? reef_tail_file_measure(file) : 0;
    if (code) return code;
    bool has =
        file->size >= file_entry->offset && (file_entry->fd < 0 || file->size >= file_entry->size);
    return has ? 0 : ENODATA;
}

// Transient errors depend neither on the file nor on its permissions.
static bool is_transient(int code) {
    return code == EIO || code == ETIMEDOUT || code == EMFILE || code == ENFILE || code == ENOMEM;
}

// Plain files first: while a compressor runs, the plain original still exists beside its output.
static bool find_copy(reef_tail *tail, reef_tail_file *file_entry, reef_listing *list) {
    for (int gzip = 0; file_entry->head_bytes && gzip < 2; gzip++)
        for (size_t i = 0; i < list->count; i++) {
            if (reef_name_is_gzip(list->items[i].name) != (gzip == 1)) continue;
            if (!may_be_copy(tail, file_entry, list, i)) continue;
            reef_tail_file file;
            int code = open_unknown(tail, &file, &list->items[i]);
            if (!code) {
                code = check_bytes(&file, file_entry);
                // A transient error, such as EIO, decides nothing: the file may still be the copy.
                if (is_transient(code)) reef_tail_denied(tail, file.file_id.name, code);
            }
            if (!code) {
                move_into(tail, file_entry, &file);
                list->known[i] = true;
                return true;
            }
            if (is_transient(code))
                file_entry->missing_since_ms = tail->now_ms; // it may be this one
            reef_tail_file_close(&file);
        }
    return false;
}

static void report_loss(reef_tail *tail, const reef_tail_file *file_entry) {
    uint64_t end =
        file_entry->size > file_entry->pass_end ? file_entry->size : file_entry->pass_end;
    uint64_t unread = end > file_entry->offset ? end - file_entry->offset : 0;
    bool truncated = is_lost(file_entry);
    if (file_entry->drained || (tail->is_directory && !truncated && !unread)) return;
    reef_tail_report(tail, "source_loss",
                     "'%.100s' of '%.100s' was %s after %" PRIu64 " of its bytes were read, and no "
                     "copy was found: %" PRIu64
                     " unread bytes are lost, and any that were added after the last scan",
                     file_entry->file_id.name[0] ? file_entry->file_id.name : "a file",
                     tail->folder, truncated ? "truncated or replaced" : "removed",
                     file_entry->offset, unread);
}

// readdir during a rename may miss a file that exists, and a compressor has no finished name for a
// while. So a file counts as gone only after REEF_SETTLE_MS.
static void scan_lost(reef_tail *tail, reef_listing *list) {
    for (size_t i = tail->count; i-- > 0;) {
        // Deleted and compressed elsewhere: its bytes may be in one of the new files.
        reef_tail_file *file_entry = &tail->files[i];
        if (file_entry->listed || find_copy(tail, file_entry, list)) continue;
        if (tail->now_ms - file_entry->missing_since_ms < REEF_SETTLE_MS) continue;
        // An open descriptor of a deleted file is still readable to its end.
        if (file_entry->fd >= 0) {
            bool finished =
                file_entry->offset >= file_entry->size && !file_entry->add_newline &&
                reef_tail_settled(tail, file_entry->unchanged_since_ms, &file_entry->file_id);
            if (!finished) continue;
        } else if (file_entry->offset || file_entry->head_bytes) {
            // No descriptor and no copy: bytes that were not read are lost.
            report_loss(tail, file_entry);
        }
        reef_tail_remove(tail, i);
    }
}

// ---- unknown files ------------------------------------------------------------------------------
//
// An unknown file is new, or a copy of a known one, perhaps a partial one.

static reef_tail_candidate *candidate_of(reef_tail *tail, const reef_file_id *file_id) {
    // Candidates stay over several scans: only time shows whether a copy is finished.
    for (size_t i = 0; i < tail->candidate_count; i++)
        if (reef_file_id_same(&tail->candidates[i].file_id, file_id)) return &tail->candidates[i];
    if (tail->candidate_count == tail->candidate_capacity) {
        size_t capacity = tail->candidate_capacity ? 2 * tail->candidate_capacity : 8;
        reef_tail_candidate *larger = realloc(tail->candidates, capacity * sizeof(*larger));
        if (larger == NULL) return NULL;
        tail->candidates = larger;
        tail->candidate_capacity = capacity;
    }
    tail->candidates[tail->candidate_count] =
        (reef_tail_candidate){.file_id = *file_id, .unchanged_since_ms = tail->now_ms};
    return &tail->candidates[tail->candidate_count++];
}

// After a scan: drop the candidates that it did not see.
static void forget_candidates(reef_tail *tail) {
    size_t kept = 0;
    for (size_t i = 0; i < tail->candidate_count; i++) {
        if (!tail->candidates[i].seen) continue;
        tail->candidates[kept] = tail->candidates[i];
        tail->candidates[kept++].seen = false;
    }
    tail->candidate_count = kept;
}

static bool has_known_head(const reef_tail *tail, reef_tail_file *file) {
    bool found = false;
    for (size_t i = 0; !found && i < tail->count; i++) found = has_head_of(file, &tail->files[i]);
    return found;
}

typedef enum file_verdict { NEW, COPY, LATER, NEVER } file_verdict;

// COPY when the other file contains this one, judged by the first and the last bytes.
static file_verdict compare_files(reef_tail *tail, reef_tail_file *file, reef_tail_file *other) {
    uint8_t a[REEF_HEAD_BYTES_MAX], b[REEF_HEAD_BYTES_MAX];
    size_t count = file->size < sizeof(a) ? file->size : sizeof(a);
    uint64_t from = file->size - count;
    // A smaller file cannot contain a larger one, and another beginning is another file.
    if (file->size > other->size || !has_head_of(file, other)) return NEW;
    if (other->fd < 0 && reef_tail_file_open(other, dirfd(tail->dir)))
        return other->drained ? COPY : NEW;
    // The last bytes are compared as well: logs often begin alike.
    ssize_t got = reef_tail_file_read(file, a, count, from);
    ssize_t got_other = reef_tail_file_read(other, b, count, from);
    if ((got < 0 && !file->is_gzip) || (got_other < 0 && !other->is_gzip)) return LATER;
    bool same = got == (ssize_t)count && got_other == got && memcmp(a, b, count) == 0;
    return same ? COPY : NEW;
}

// copytruncate, or compression that keeps its original, adds no new bytes. In a folder a copy is a
// file of its own.
static file_verdict compare_with_all(reef_tail *tail, reef_tail_file *file) {
    file_verdict found = NEW;
    for (size_t i = 0; found == NEW && !tail->is_directory && i < tail->count; i++)
        found = compare_files(tail, file, &tail->files[i]);
    return found;
}

// A file that may be the unfinished output of a copier or compressor waits until it is quiet.
static file_verdict classify_unknown(reef_tail *tail, reef_tail_file *file) {
    bool known_head = has_known_head(tail, file);
    // A file below the size of a head cannot be distinguished from a copy that has just begun.
    bool small = file->size < REEF_HEAD_BYTES_MAX && !tail->is_directory;
    if (!file->is_gzip && !known_head && !small) return NEW;
    reef_tail_candidate *candidate = candidate_of(tail, &file->file_id);
    if (candidate == NULL) return LATER;
    candidate->seen = true;
    // It still grows, so its writer is not finished.
    if (candidate->file_id.size != file->file_id.size) candidate->unchanged_since_ms = tail->now_ms;
    candidate->file_id = file->file_id;
    candidate->no_known_head = !known_head;
    // A broken gzip file is reported once and never again.
    if (candidate->broken) return NEVER;
    if (!reef_tail_settled(tail, candidate->unchanged_since_ms, &file->file_id)) return LATER;
    int code = file->is_gzip ? reef_tail_file_measure(file) : 0;
    if (code && code != ENODATA) {
        reef_tail_denied(tail, file->file_id.name, code);
        return LATER;
    }
    // Decompression failed although nobody writes it any more.
    if (code) {
        candidate->broken = true;
        reef_tail_report(tail, "source_broken",
                         "'%.100s' of '%.100s' does not decompress to its end, and is not read",
                         file->file_id.name, tail->folder);
        return NEVER;
    }
    return compare_with_all(tail, file);
}

static bool has_room(reef_tail *tail, size_t found) {
    bool room = tail->count + found < REEF_DIR_FILES_MAX;
    if (!room && !tail->reported_full)
        reef_tail_report(tail, "source_full",
                         "'%.200s' has more than %d files: others are read when some of these are "
                         "gone",
                         tail->folder, REEF_DIR_FILES_MAX);
    tail->reported_full = !room;
    return room;
}

// The active file comes first: with copytruncate its copy may exist already, and it is about to be
// truncated.
static bool add_active(reef_tail *tail, reef_listing *list) {
    reef_tail_file file;
    size_t at = list->active;
    if (at == SIZE_MAX || list->known[at] || !has_room(tail, 0)) return true;
    if (open_unknown(tail, &file, &list->items[at])) return true;
    list->known[at] = true;
    reef_tail_grow_head(tail, &file, file.size);
    if (reef_tail_insert(tail, tail->count, &file)) return true;
    reef_tail_file_close(&file);
    return false;
}

// Unknown files, oldest first, none of them open yet. Returns their number.
static size_t find_unknown(const reef_listing *list, reef_tail_file *out) {
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++) {
        if (list->known[i] || !list->matches[i] || i == list->active || !list->items[i].size)
            continue;
        reef_tail_file_init(&out[count]);
        out[count++].file_id = list->items[i];
    }
    qsort(out, count, sizeof(*out), reef_tail_file_compare_age);
    return count;
}

// Was the file renamed since it was listed? In a folder the next scan finds it. Rotated files have
// an order, so there the scan starts again before a younger file is added.
static bool is_moved(const reef_tail *tail, int code) {
    return !tail->is_directory && (code == ENOENT || code == ESTALE);
}

// Classify all files before the first is added, so that none counts as a copy of another new one.
// When the table is nearly full, the oldest files are added.
static reef_tail_scan_state scan_new(reef_tail *tail, reef_listing *list) {
    // One more than needed when the folder is empty, since calloc(0) may be NULL.
    reef_tail_file *found = calloc(list->count ? list->count : 1, sizeof(*found));
    size_t count = 0, open = 0;
    if (found == NULL || !add_active(tail, list)) {
        free(found);
        return REEF_TAIL_SCAN_NO_MEMORY;
    }
    // In reading order.
    size_t unknown = find_unknown(list, found);
    bool moved = false;
    for (size_t i = 0; i < unknown && !moved && has_room(tail, count); i++) {
        reef_file_id file_id = found[i].file_id;
        reef_tail_file *file = &found[count];
        int code = open_unknown(tail, file, &file_id);
        file_verdict verdict = code ? LATER : classify_unknown(tail, file);
        moved = is_moved(tail, code);
        // A copy counts as read: its bytes were read from its original.
        if (verdict == COPY) {
            file->offset = file->pass_end = file->size;
            file->drained = true;
        }
        if (verdict == NEW || verdict == COPY) {
            reef_tail_limit_open(file, &open);
            count++;
        } else {
            reef_tail_file_close(file);
        }
    }
    // Added together, after all were classified.
    size_t added = 0, first = tail->count;
    while (!moved && added < count && reef_tail_insert(tail, first + added, &found[added])) added++;
    reef_tail_scan_state result = added == count ? REEF_TAIL_SCAN_DONE : REEF_TAIL_SCAN_NO_MEMORY;
    if (moved) result = REEF_TAIL_SCAN_AGAIN;
    // Files that were not added are classified again at the next scan.
    while (added < count) reef_tail_file_close(&found[added++]);
    free(found);
    return result;
}

// ---- the scan ----------------------------------------------------------------------------------

static void put_active_last(reef_tail *tail, const reef_listing *list) {
    tail->active = false;
    if (list->active == SIZE_MAX) return;
    for (size_t i = 0; i < tail->count; i++) {
        if (!reef_file_id_same(&tail->files[i].file_id, &list->items[list->active])) continue;
        reef_tail_file live = tail->files[i];
        memmove(&tail->files[i], &tail->files[i + 1], (tail->count - i - 1) * sizeof(live));
        tail->files[tail->count - 1] = live;
        tail->active = true;
        return;
    }
}

// A compressed file may be recognised as new only after younger plain ones: sort by age again.
static void sort_unread(reef_tail *tail) {
    size_t end = tail->count - (tail->active ? 1 : 0), first = end;
    while (first && !tail->files[first - 1].offset && !tail->files[first - 1].pass_end) first--;
    if (!tail->is_directory && first + 1 < end)
        qsort(&tail->files[first], end - first, sizeof(*tail->files), reef_tail_file_compare_age);
}

// During a rotation the path has no file for a moment, so its absence is reported late.
static void scan_active(reef_tail *tail, const reef_listing *list) {
    if (tail->is_directory) return;
    if (list->active != SIZE_MAX) {
        if (tail->reported_waiting)
            reef_tail_report(tail, "source_back", "'%.120s/%.120s' exists now", tail->folder,
                             tail->name);
        tail->reported_waiting = false;
        tail->waiting_since_ms = 0;
        return;
    }
    // The first moment without a file starts the clock; a rotation takes milliseconds.
    if (!tail->waiting_since_ms) tail->waiting_since_ms = tail->now_ms;
    if (tail->reported_waiting || tail->now_ms - tail->waiting_since_ms < REEF_SETTLE_MS) return;
    tail->reported_waiting = true;
    reef_tail_report(tail, "source_waits", "'%.120s/%.120s' does not exist; waiting for it",
                     tail->folder, tail->name);
}

// The folder cannot be read. Open files are still read, and no other file counts as gone.
static void report_unreadable(reef_tail *tail, int code) {
    char many[128];
    snprintf(many, sizeof(many),
             "it has more than the %d names that are scanned: move old ones away",
             REEF_FOLDER_NAMES_MAX);
    if (code != tail->folder_errno)
        reef_tail_report(tail, "source_away", "cannot read '%.200s': %s; retrying", tail->folder,
                         code == E2BIG ? many : strerror(code));
    tail->folder_errno = code;
}

reef_tail_scan_state reef_tail_scan(reef_tail *tail) {
    reef_listing list;
    // Permission errors are reported again only after a scan without any.
    tail->denied_now = false;
    int code = reef_listing_make(&list, tail);
    reef_tail_scan_state result = code == ENOMEM ? REEF_TAIL_SCAN_NO_MEMORY : REEF_TAIL_SCAN_DONE;
    // An unreadable folder does not end the source: a disk may be mounted again.
    if (code) {
        report_unreadable(tail, code);
    } else if (list.moved) {
        // Names moved while they were listed.
        result = REEF_TAIL_SCAN_AGAIN;
    } else {
        tail->folder_errno = 0;
        // Known files first, then lost ones, then new ones: each step leaves fewer files to the
        // next.
        result = scan_known(tail, &list);
        if (result == REEF_TAIL_SCAN_DONE) scan_lost(tail, &list);
        if (result == REEF_TAIL_SCAN_DONE) result = scan_new(tail, &list);
        // Reading order: rotated files, then the active one.
        put_active_last(tail, &list);
        sort_unread(tail);
        scan_active(tail, &list);
        forget_candidates(tail);
        // This scan read everything, so the earlier source_denied is over.
        if (tail->reported_denied && !tail->denied_now && !tail->failed &&
            result == REEF_TAIL_SCAN_DONE) {
            reef_tail_report(tail, "source_back", "all files of '%.200s' are readable again",
                             tail->folder);
            tail->reported_denied = false;
        }
    }
    reef_listing_release(&list);
    return result;
}
