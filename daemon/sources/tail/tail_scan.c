// One scan of the folder of followed files: which files are still there, which were replaced, which
// are new.
//
//   list --> known by inode: same contents?  --no--> lost: an entry without a file
//        --> missing and lost entries: an unknown file with their bytes is a copy: continue in it
//        --> unknown files: new, or a partial copy
//
// tail_internal.h says what the states mean.
#include "tail_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CUT_SAID_MS 60000

// ---- opening ------------------------------------------------------------------------------------

// Open an unknown file. 0, or the errno for which it or its first bytes cannot be read.
static int open_unknown(reef_tail *tail, reef_tail_file *found, const reef_file_id *file_id) {
    uint8_t prefix[REEF_PREFIX_BYTES_MAX];
    reef_tail_file_init(found);
    // Its flags are set before opening can fail: it is in the listing of this scan.
    found->file_id = *file_id;
    memcpy(found->begun_as, file_id->name, sizeof(found->begun_as));
    found->is_gzip = reef_name_is_gzip(file_id->name);
    found->listed = found->opened_once = true;
    found->unchanged_since_ms = tail->now_ms;
    found->size = file_id->size;
    int code = reef_tail_file_open(found, dirfd(tail->dir));
    // A file may be listed and opened, yet fail to read, such as on a broken disk.
    if (!code && pread(found->fd, prefix, sizeof(prefix), 0) < 0) {
        code = errno;
        reef_tail_file_close(found); // its bytes cannot be compared
    }
    if (code && code != ENOENT && code != ESTALE)
        reef_tail_report_denied(tail, file_id->name, code);
    return code;
}

static bool begins_like(const reef_tail_file *entry, reef_tail_file *found) {
    uint64_t hash = 0;
    return entry->prefix_bytes && reef_tail_file_hash(found, 0, entry->prefix_bytes, &hash) == 0 &&
           hash == entry->prefix_hash;
}

// ---- known files --------------------------------------------------------------------------------

// The file was truncated, or a new file has its inode. The entry stays in the table without a file,
// until an unknown file turns out to have its bytes.
static void mark_lost(reef_tail *tail, reef_tail_file *entry) {
    reef_tail_file_close(entry);
    entry->file_id.device = entry->file_id.inode = 0;
    entry->listed = false;
    entry->missing_since_ms = tail->now_ms;
}

// Reading continues with whatever decompresses.
static void report_broken(reef_tail *tail, const reef_tail_file *entry) {
    reef_tail_report(tail, "source_broken",
                     "'%.100s' of '%.100s' does not decompress to its end: only what does is read",
                     entry->file_id.name, tail->folder);
}

// Is the inode's file still the one that was read? 0, ENODATA when not, or the errno of a read.
static int check_content(reef_tail_file *entry, bool same_mtime) {
    // A packed file is written once. One that was read to its end is not unpacked at each start.
    bool as_before = entry->is_gzip && entry->drained && same_mtime;
    return as_before ? reef_tail_file_check_prefix(entry) : reef_tail_file_check(entry);
}

// Compare an entry with what its inode holds now.
static reef_tail_scan_state check_known(reef_tail *tail,
                                        reef_tail_file *entry,
                                        const reef_file_id *file_id) {
    // Size or mtime differ from the last scan, or it has never been opened.
    bool same_mtime = entry->file_id.mtime_ns == file_id->mtime_ns;
    bool changed = !entry->opened_once || entry->file_id.size != file_id->size || !same_mtime;
    if (!entry->opened_once || entry->file_id.size != file_id->size ||
        strcmp(entry->file_id.name, file_id->name) != 0)
        entry->unchanged_since_ms = tail->now_ms;
    entry->file_id = *file_id;
    entry->listed = true;
    entry->missing_since_ms = 0;
    if (!changed) return REEF_TAIL_SCAN_DONE;
    int code = reef_tail_file_open(entry, dirfd(tail->dir));
    // Renamed or replaced since the listing: the whole listing is stale.
    if (code == ENOENT || code == ESTALE) return REEF_TAIL_SCAN_AGAIN;
    // Its first bytes are others, or those where reading ended, or it is shorter: the bytes that
    // were read are not in this file any more.
    if (!code) code = check_content(entry, same_mtime);
    bool lost = code == ENODATA;
    if (!code && entry->is_gzip && !entry->opened_once && !entry->drained)
        code = reef_tail_file_measure(entry);
    if (lost) {
        // scan_missing then looks for a copy of its bytes under another name.
        mark_lost(tail, entry);
    } else if (code && code != ENODATA) {
        reef_tail_report_denied(tail, file_id->name, code);
        if (entry->is_gzip) reef_tail_file_close(entry); // its stream keeps the error
        entry->opened_once = false;                      // check again once it can be read
    } else {
        if (code) report_broken(tail, entry);
        // A drained file that grows again is read again.
        if (!entry->is_gzip && file_id->size > entry->offset) entry->drained = false;
        entry->opened_once = true;
        if (!entry->is_gzip)
            reef_tail_extend_prefix(entry, file_id->size); // copies are recognised by it
    }
    return REEF_TAIL_SCAN_DONE;
}

static reef_tail_scan_state scan_known(reef_tail *tail, reef_listing *list) {
    reef_tail_scan_state result = REEF_TAIL_SCAN_DONE;
    size_t open = 0;
    for (size_t i = 0; result == REEF_TAIL_SCAN_DONE && i < tail->count; i++) {
        reef_tail_file *entry = &tail->files[i];
        // Found by device and inode, under any name.
        size_t at = reef_listing_find(list, &entry->file_id);
        if (at == SIZE_MAX && entry->listed) entry->unchanged_since_ms = tail->now_ms;
        if (at == SIZE_MAX && !entry->missing_since_ms) entry->missing_since_ms = tail->now_ms;
        entry->listed = false;
        if (at == SIZE_MAX) continue;
        result = check_known(tail, entry, &list->items[at]);
        // A lost entry leaves its inode to a new file.
        list->known[at] = !reef_tail_is_lost(entry);
        reef_tail_limit_open(entry, &open);
    }
    return result;
}

// ---- missing and lost files ---------------------------------------------------------------------

// `found` has the entry's bytes too: continue in it.
static void move_into(reef_tail *tail, reef_tail_file *entry, const reef_tail_file *found) {
    if (found->size < entry->seen_end) {
        reef_tail_report(tail, "source_loss",
                         "'%.100s' of '%.100s' was truncated, and its copy '%.100s' ends before "
                         "its last %" PRIu64 " bytes: they are lost",
                         entry->file_id.name, tail->folder, found->file_id.name,
                         entry->size - found->size);
        tail->losses.lost_bytes += entry->size - found->size;
        entry->seen_end = entry->read_end;
        entry->seen_hash = entry->read_hash;
        reef_tail_drop_read_pass(tail);
    }
    // The old descriptor may be of a deleted file; the new one has the same bytes under a name.
    reef_tail_file_close(entry);
    entry->file_id = found->file_id;
    entry->fd = found->fd;
    entry->zip = found->zip;
    entry->is_gzip = found->is_gzip;
    entry->size = found->size;
    entry->listed = entry->opened_once = true;
    entry->missing_since_ms = 0;
    entry->unchanged_since_ms = tail->now_ms;
}

// By its name, may an unknown file be a copy of a missing or lost entry? Small files of a folder
// often begin alike, so there only names count that compression or truncation leave behind.
static bool may_be_copy(const reef_tail *tail,
                        const reef_tail_file *entry,
                        const reef_listing *list,
                        size_t at) {
    const char *name = list->items[at].name;
    // After a restart there is no descriptor, and a file system may have another device number.
    // Then a file of the same name continues the entry if a prefix of full length matches. Another
    // inode of the same device is another file.
    bool same_after_restart = entry->fd < 0 && !reef_tail_is_lost(entry) &&
                              entry->file_id.device != list->items[at].device &&
                              entry->prefix_bytes == REEF_PREFIX_BYTES_MAX;
    if (list->known[at]) return false;
    if (at == list->active) return same_after_restart;
    if (!tail->is_directory) return true;
    if (strcmp(name, entry->file_id.name) == 0) return same_after_restart;
    // app.log.1.gz may be a copy of app.log; other.log may not, even if both begin alike.
    return reef_name_shares_stem(name, entry->file_id.name) &&
           (reef_tail_is_lost(entry) || reef_name_is_gzip(name));
}

// 0 when the file has the entry's bytes: the first, the last that were seen, and as many. Of a file
// that was cut, those that were returned: more may have come between the copy and the cut. ENODATA
// when not, or the errno of a read.
static int check_copy(const reef_tail_file *entry, reef_tail_file *found) {
    if (!begins_like(entry, found)) return ENODATA;
    int code = found->is_gzip ? reef_tail_file_measure(found) : 0;
    if (code) return code;
    if (reef_tail_is_lost(entry) && found->size < entry->seen_end)
        return found->size >= entry->offset && entry->offset && entry->read_end == entry->offset
                   ? reef_tail_file_check_before(found, entry->read_end, entry->read_hash)
                   : ENODATA;
    bool has = found->size >= entry->seen_end && (entry->fd < 0 || found->size >= entry->size);
    return has ? reef_tail_file_check_before(found, entry->seen_end, entry->seen_hash) : ENODATA;
}

// Transient errors depend neither on the file nor on its permissions.
static bool is_transient(int code) {
    return code == EIO || code == ETIMEDOUT || code == EMFILE || code == ENFILE || code == ENOMEM;
}

// Plain files first: while a compressor runs, the plain original still exists beside its output.
static bool continue_in_copy(reef_tail *tail, reef_tail_file *entry, reef_listing *list) {
    for (int gzip = 0; entry->prefix_bytes && gzip < 2; gzip++)
        for (size_t i = 0; i < list->count; i++) {
            if (reef_name_is_gzip(list->items[i].name) != (gzip == 1)) continue;
            if (!may_be_copy(tail, entry, list, i)) continue;
            reef_tail_file found;
            int code = open_unknown(tail, &found, &list->items[i]);
            if (!code) {
                code = check_copy(entry, &found);
                if (is_transient(code)) reef_tail_report_denied(tail, found.file_id.name, code);
            }
            if (!code) {
                move_into(tail, entry, &found);
                list->known[i] = true;
                return true;
            }
            // A transient error, such as EIO, decides nothing: this may still be the copy, so the
            // entry waits for as long as if it were missing since now.
            if (is_transient(code)) entry->missing_since_ms = tail->now_ms;
            reef_tail_file_close(&found);
        }
    return false;
}

static void report_loss(reef_tail *tail, const reef_tail_file *entry) {
    uint64_t unread = reef_tail_unread_of(entry);
    bool truncated = reef_tail_is_lost(entry);
    // A file of a folder that this process has seen read to its end may go without a word. Nobody
    // knows what was added to one that went, or was replaced, before this process looked.
    bool was_read = tail->is_directory && !truncated && !unread && entry->opened_once;
    if (entry->drained || entry->refused || was_read) return;
    tail->losses.lost_bytes += unread;
    // A file that is overwritten all the time is read as it is; one word a minute is enough.
    if (!unread) {
        if (tail->cut_said_ms && tail->now_ms - tail->cut_said_ms < CUT_SAID_MS) return;
        tail->cut_said_ms = tail->now_ms;
    }
    reef_tail_report(tail, "source_loss",
                     "'%.100s' of '%.100s' was %s after %" PRIu64 " of its bytes were read, and no "
                     "copy was found: %" PRIu64
                     " unread bytes are lost, and any that were added after the last scan",
                     entry->file_id.name[0] ? entry->file_id.name : "a file", tail->folder,
                     truncated ? "truncated or replaced" : "removed", entry->offset, unread);
}

// readdir during a rename may miss a file that exists, and a compressor has no finished name for a
// while. So an entry without a file is removed only after REEF_SETTLE_MS.
static void scan_missing(reef_tail *tail, reef_listing *list) {
    for (size_t i = tail->count; i-- > 0;) {
        reef_tail_file *entry = &tail->files[i];
        // It was renamed, copied or compressed: its bytes may be in an unknown file.
        if (entry->listed || continue_in_copy(tail, entry, list)) continue;
        if (tail->now_ms - entry->missing_since_ms < REEF_SETTLE_MS) continue;
        if (entry->fd >= 0) {
            // A deleted file is readable to its end, and its writer may still have it open.
            if (!reef_tail_is_read(entry)) continue;
            if (!reef_tail_settled(tail, entry->unchanged_since_ms, &entry->file_id)) continue;
        } else if (entry->offset || entry->prefix_bytes) {
            // No descriptor and no copy: bytes that were not read are lost.
            report_loss(tail, entry);
        }
        reef_tail_remove(tail, i);
    }
}

// ---- unknown files ------------------------------------------------------------------------------
//
// An unknown file is new, or a copy of one in the table, perhaps a partial one.

static reef_tail_candidate *find_or_add_candidate(reef_tail *tail, const reef_file_id *file_id) {
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

static bool has_known_prefix(const reef_tail *tail, reef_tail_file *found) {
    for (size_t i = 0; i < tail->count; i++)
        if (begins_like(&tail->files[i], found)) return true;
    return false;
}

typedef enum file_verdict {
    NEW,   // no entry has its bytes: it is read from the beginning
    COPY,  // an entry has its bytes: it counts as read
    LATER, // undecided: classified again by the next scan
    NEVER, // a broken gzip file
} file_verdict;

// COPY when the entry contains `found`, judged by the first and the last bytes.
static file_verdict compare_files(reef_tail *tail, reef_tail_file *entry, reef_tail_file *found) {
    uint8_t a[REEF_PREFIX_BYTES_MAX], b[REEF_PREFIX_BYTES_MAX];
    size_t count = found->size < sizeof(a) ? found->size : sizeof(a);
    uint64_t from = found->size - count;
    // A smaller file cannot contain a larger one, and another prefix is another file.
    if (found->size > entry->size || !begins_like(entry, found)) return NEW;
    int code = reef_tail_file_open(entry, dirfd(tail->dir));
    // Moved since the listing: the next scan finds it.
    if (!reef_tail_is_lost(entry) && (code == ENOENT || code == ESTALE)) return LATER;
    // Without the entry's file only all of its bytes can be recognised.
    if (code)
        return found->size == entry->seen_end &&
                       !reef_tail_file_check_before(found, entry->seen_end, entry->seen_hash)
                   ? COPY
                   : NEW;
    // The last bytes are compared as well: logs often begin alike.
    ssize_t got_found = reef_tail_file_read(found, a, count, from);
    ssize_t got_entry = reef_tail_file_read(entry, b, count, from);
    if ((got_found < 0 && !found->is_gzip) || (got_entry < 0 && !entry->is_gzip)) return LATER;
    bool same = got_found == (ssize_t)count && got_entry == got_found && memcmp(a, b, count) == 0;
    return same ? COPY : NEW;
}

// copytruncate, or compression that keeps its original, adds no new bytes. In a folder a copy is a
// file of its own.
static file_verdict compare_with_all(reef_tail *tail, reef_tail_file *found) {
    file_verdict verdict = NEW;
    for (size_t i = 0; verdict == NEW && !tail->is_directory && i < tail->count; i++)
        verdict = compare_files(tail, &tail->files[i], found);
    return verdict;
}

// A file that may be the unfinished output of a copier or compressor waits until it is settled.
static file_verdict classify_unknown(reef_tail *tail, reef_tail_file *found) {
    bool known_prefix = has_known_prefix(tail, found);
    // A file below the size of a full prefix may be a copy that has just begun.
    bool small = found->size < REEF_PREFIX_BYTES_MAX && !tail->is_directory;
    if (!found->is_gzip && !known_prefix && !small) return NEW;
    reef_tail_candidate *candidate = find_or_add_candidate(tail, &found->file_id);
    if (candidate == NULL) return LATER;
    candidate->seen = true;
    // It still grows, so it is not settled.
    if (candidate->file_id.size != found->file_id.size)
        candidate->unchanged_since_ms = tail->now_ms;
    candidate->file_id = found->file_id;
    candidate->no_known_prefix = !known_prefix;
    // A broken gzip file is reported once and never again.
    if (candidate->broken) return NEVER;
    if (!reef_tail_settled(tail, candidate->unchanged_since_ms, &found->file_id)) return LATER;
    int code = found->is_gzip ? reef_tail_file_measure(found) : 0;
    if (code && code != ENODATA) {
        reef_tail_report_denied(tail, found->file_id.name, code);
        return LATER;
    }
    // Decompression failed although nobody writes it any more.
    if (code) {
        candidate->broken = true;
        reef_tail_report(tail, "source_broken",
                         "'%.100s' of '%.100s' does not decompress to its end, and is not read",
                         found->file_id.name, tail->folder);
        return NEVER;
    }
    return compare_with_all(tail, found);
}

static bool has_room(reef_tail *tail, size_t more) {
    bool room = tail->count + more < REEF_DIR_FILES_MAX;
    if (!room && !tail->reported_full)
        reef_tail_report(tail, "source_full",
                         "'%.200s' has more than %d files: "
                         "others are read when some of these are gone",
                         tail->folder, REEF_DIR_FILES_MAX);
    tail->reported_full = !room;
    return room;
}

// The active file comes first: with copytruncate its copy may exist already, and it is about to be
// truncated.
static reef_tail_scan_state add_active(reef_tail *tail, reef_listing *list) {
    reef_tail_file found;
    size_t at = list->active;
    if (at == SIZE_MAX || list->known[at] || !has_room(tail, 0)) return REEF_TAIL_SCAN_DONE;
    // The next scan may open it.
    if (open_unknown(tail, &found, &list->items[at])) return REEF_TAIL_SCAN_DONE;
    list->known[at] = true;
    reef_tail_extend_prefix(&found, found.size);
    if (reef_tail_insert(tail, tail->count, &found)) return REEF_TAIL_SCAN_DONE;
    reef_tail_file_close(&found);
    return REEF_TAIL_SCAN_NO_MEMORY;
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
    reef_tail_file *files = calloc(list->count ? list->count : 1, sizeof(*files));
    size_t count = 0, open = 0; // of `files`, those to add
    if (files == NULL || add_active(tail, list) != REEF_TAIL_SCAN_DONE) {
        free(files);
        return REEF_TAIL_SCAN_NO_MEMORY;
    }
    // In reading order.
    size_t unknown = find_unknown(list, files);
    bool moved = false;
    for (size_t i = 0; i < unknown && !moved && has_room(tail, count); i++) {
        reef_file_id file_id = files[i].file_id;
        reef_tail_file *found = &files[count]; // count <= i: what is overwritten was classified
        int code = open_unknown(tail, found, &file_id);
        file_verdict verdict = code ? LATER : classify_unknown(tail, found);
        moved = is_moved(tail, code);
        // A copy counts as read: its bytes were read from its original.
        if (verdict == COPY) {
            found->offset = found->pass_end = found->size;
            found->drained = reef_tail_file_note_seen(found, found->size) == 0;
        }
        if (verdict == NEW || verdict == COPY) {
            reef_tail_limit_open(found, &open);
            count++;
        } else {
            reef_tail_file_close(found);
        }
    }
    // Added together, after all were classified.
    size_t added = 0, first = tail->count;
    while (!moved && added < count && reef_tail_insert(tail, first + added, &files[added])) added++;
    reef_tail_scan_state result = added == count ? REEF_TAIL_SCAN_DONE : REEF_TAIL_SCAN_NO_MEMORY;
    if (moved) result = REEF_TAIL_SCAN_AGAIN;
    // Files that were not added are classified again at the next scan.
    while (added < count) reef_tail_file_close(&files[added++]);
    free(files);
    return result;
}

// ---- the scan ----------------------------------------------------------------------------------

static void put_active_last(reef_tail *tail, const reef_listing *list) {
    tail->active = false;
    if (list->active == SIZE_MAX) return;
    for (size_t i = 0; i < tail->count; i++) {
        if (!reef_file_id_same(&tail->files[i].file_id, &list->items[list->active])) continue;
        reef_tail_file active = tail->files[i];
        memmove(&tail->files[i], &tail->files[i + 1], (tail->count - i - 1) * sizeof(active));
        tail->files[tail->count - 1] = active;
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
static void report_waiting(reef_tail *tail, const reef_listing *list) {
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

// The folder cannot be read. Open files are still read, and no file counts as missing.
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
        if (result == REEF_TAIL_SCAN_DONE) scan_missing(tail, &list);
        if (result == REEF_TAIL_SCAN_DONE) result = scan_new(tail, &list);
        // Reading order: rotated files, then the active one.
        put_active_last(tail, &list);
        sort_unread(tail);
        report_waiting(tail, &list);
        // An incomplete scan has not seen them all.
        if (result == REEF_TAIL_SCAN_DONE) forget_candidates(tail);
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
