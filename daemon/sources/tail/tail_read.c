// A read pass over followed files: a scan of the folder, and then how much of each file is read
// until the next one; see tail.h.
#include "tail_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>

#define SCANS_MAX 5 // in a row, while names are being moved
// A file of a folder that had nothing new for so long is closed.
#define OPEN_IDLE_MS (uint64_t)60000

static uint64_t clock_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000 + 1;
}

static int64_t clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static bool is_live(const reef_tail *tail, size_t at) {
    return tail->folder_kind ? tail->files[at].listed : tail->live && at == tail->count - 1;
}

// 0, or an errno for which the sizes cannot be known now.
static int measure_file(reef_tail *tail, reef_tail_file *file_entry) {
    struct stat state;
    // Packed files do not grow; old ones are done with.
    if (file_entry->packed || file_entry->old) return 0;
    // The listing's size was taken after the file was opened last, and says that nothing came.
    if (file_entry->fd < 0 && file_entry->listed && file_entry->scanned &&
        file_entry->file_id.size == file_entry->offset) {
        file_entry->size = file_entry->offset;
        return 0;
    }
    int code = reef_tail_file_open(file_entry, tail->open != NULL ? dirfd(tail->open) : AT_FDCWD);
    if (code) return code;
    if (fstat(file_entry->fd, &state) != 0) return errno;
    // A file that still grows is being written; it is not over yet.
    if ((uint64_t)state.st_size != file_entry->size) file_entry->still_ms = tail->now_ms;
    file_entry->size = (uint64_t)state.st_size;
    int64_t changed_ns = file_entry->file_id.changed_ns;
    reef_file_id now;
    reef_file_id_of(&now, file_entry->file_id.name, &state);
    // Never back: some file systems report a modification time with less precision through fstat.
    file_entry->file_id.changed_ns = now.changed_ns > changed_ns ? now.changed_ns : changed_ns;
    return 0;
}

// A file that is over ends within a line, and no newline was added yet.
static bool lacks_newline(reef_tail_file *file_entry) {
    uint8_t last = '\n';
    if (!file_entry->upto || (file_entry->ended && file_entry->upto == file_entry->offset))
        return false;
    return reef_tail_file_read(file_entry, &last, 1, file_entry->upto - 1) == 1 && last != '\n';
}

// How much of a file this pass returns. A last line without its end waits, unless the line is too
// long or nobody writes the file any more.
static void plan_file_read(reef_tail *tail, size_t at) {
    // Over: nobody writes it any more, so even an unfinished last line may be taken.
    reef_tail_file *file_entry = &tail->files[at];
    bool over =
        !is_live(tail, at) &&
        (file_entry->packed || reef_tail_settled(tail, file_entry->still_ms, &file_entry->file_id));
    file_entry->upto = file_entry->offset;
    file_entry->newline = false;
    // Nothing new, or done with.
    if (file_entry->old || (file_entry->size <= file_entry->offset && !over)) return;
    if (reef_tail_file_open(file_entry, tail->open != NULL ? dirfd(tail->open) : AT_FDCWD)) return;
    errno = 0;
    int64_t end = reef_tail_file_line_end(file_entry, file_entry->offset, file_entry->size);
    if (end < 0) { // cut by now, or its disk fails
        reef_tail_failed(tail, file_entry, errno);
        return;
    }
    // A line longer than the bound is delivered in pieces.
    bool all = over || file_entry->size > (uint64_t)end + REEF_LINE_BYTES_MAX;
    if (file_entry->size > file_entry->offset)
        file_entry->upto = all ? file_entry->size : (uint64_t)end;
    file_entry->newline = over && lacks_newline(file_entry);
    if (file_entry->newline) tail->checkpointed = false;
}

bool reef_tail_file_has_range(const reef_tail_file *file_entry) {
    return file_entry->upto > file_entry->offset || file_entry->newline;
}

static void retire(reef_tail *tail, size_t at) {
    reef_tail_file *file_entry = &tail->files[at];
    bool over = !tail->folder_kind && !is_live(tail, at) &&
                file_entry->size <= file_entry->offset && !file_entry->newline && !file_entry->old;
    bool settled =
        file_entry->packed || reef_tail_settled(tail, file_entry->still_ms, &file_entry->file_id);
    if (!over || !settled || !file_entry->listed) return;
    file_entry->old = true;
    tail->checkpointed = false;
}

static void close_idle(reef_tail *tail) {
    for (size_t i = 0; i < tail->count; i++) {
        reef_tail_file *file_entry = &tail->files[i];
        bool idle = file_entry->old ||
                    (tail->folder_kind && tail->now_ms - file_entry->still_ms > OPEN_IDLE_MS);
        if (idle && file_entry->listed && !reef_tail_file_has_range(file_entry))
            reef_tail_file_shut(file_entry);
    }
}

static int measure_all(reef_tail *tail) {
    int code = 0;
    size_t open = 0;
    // Newest first: what was written to an older file before something in a newer one is then seen
    // as well.
    for (size_t i = tail->count; code == 0 && i-- > 0;) {
        code = measure_file(tail, &tail->files[i]);
        reef_tail_spare(&tail->files[i], &open);
        // One file without permission must not stop the others.
        if (code == EACCES || code == EPERM || code == EMFILE || code == ENFILE) {
            reef_tail_denied(tail, tail->files[i].file_id.name, code);
            tail->files[i].size = tail->files[i].offset;
            code = 0;
            // A file that is gone, or of a folder that is away, has no size; what was known stays.
        } else if (code && (tail->away || !tail->files[i].listed)) {
            code = 0;
        }
    }
    return code;
}

// A file whose position in the order is not known yet may come before all that is there.
static bool unsure(const reef_tail *tail) {
    bool found = false;
    for (size_t i = 0; !tail->folder_kind && i < tail->candidate_count; i++)
        found |= !tail->candidates[i].broken && (tail->resumed || tail->candidates[i].alone);
    return found;
}

// The rest of a line that a rotated file ends in comes before anything newer.
static void plan_read_pass(reef_tail *tail) {
    // While something is unclear, such as a rename under way, nothing newer may be delivered: order
    // is part of the stream.
    bool hold_back = unsure(tail);
    size_t open = 0;
    tail->failed = false;
    for (size_t i = 0; i < tail->count; i++) {
        reef_tail_file *file_entry = &tail->files[i];
        // How much a packed file has is not known before it could be read to its end.
        bool unknown =
            file_entry->packed && file_entry->listed && !file_entry->scanned && !file_entry->old;
        plan_file_read(tail, i);
        reef_tail_grow_head(tail, file_entry, file_entry->size);
        // A file that is read to its end and over leaves the table.
        if (!unknown) retire(tail, i);
        reef_tail_spare(file_entry, &open);
        // Without a fingerprint it could be exchanged unseen.
        if (hold_back || unknown || !file_entry->head_bytes) {
            file_entry->upto = file_entry->offset;
            file_entry->newline = false;
        }
        bool missed = file_entry->fd < 0 && file_entry->missed_ms;
        // Everything behind an unread rest waits for it; in a folder of independent files nothing
        // waits.
        hold_back |= !tail->folder_kind &&
                     (file_entry->upto < file_entry->size || missed || unknown) && !file_entry->old;
    }
}

void reef_tail_drop_read_pass(reef_tail *tail) {
    for (size_t i = 0; i < tail->count; i++) {
        tail->files[i].upto = tail->files[i].offset;
        tail->files[i].newline = false;
    }
}

reef_tail_file *reef_tail_next_file(reef_tail *tail) {
    for (size_t i = 0; i < tail->count; i++)
        if (reef_tail_file_has_range(&tail->files[i])) return &tail->files[i];
    return NULL;
}

// Scan until no name was moved meanwhile; `whole` is false if every scan met a rename.
static reef_status scan(reef_tail *tail, bool *whole, reef_error *err) {
    reef_tail_scan_state result = REEF_TAIL_SCAN_AGAIN;
    // Each attempt takes a new time: settling is measured from it.
    for (int i = 0; result == REEF_TAIL_SCAN_AGAIN && i < SCANS_MAX; i++) {
        tail->now_ms = clock_ms();
        tail->clock_ns = clock_ns();
        result = reef_tail_scan(tail);
        if (result == REEF_TAIL_SCAN_DONE && measure_all(tail)) result = REEF_TAIL_SCAN_AGAIN;
    }
    *whole = result == REEF_TAIL_SCAN_DONE;
    if (result == REEF_TAIL_SCAN_NO_MEMORY)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to follow the files of '%s'",
                         tail->folder);
    return REEF_OK;
}

bool reef_tail_scan_is_old(const reef_tail *tail) {
    return clock_ms() - tail->now_ms >= REEF_TAIL_SCAN_MS;
}

reef_status reef_tail_rescan(reef_tail *tail, reef_error *err) {
    bool whole = false;
    return scan(tail, &whole, err);
}

reef_status reef_tail_begin_read_pass(reef_tail *tail, reef_error *err) {
    bool whole = false;
    reef_status status = scan(tail, &whole, err);
    if (status == REEF_OK && whole)
        plan_read_pass(tail);
    else
        reef_tail_drop_read_pass(tail); // the next scan may succeed
    close_idle(tail);
    if (reef_tail_next_file(tail) != NULL) tail->resumed = false;
    return status;
}
