// A round of followed files: a look at the folder, and then how much of each file is given until the next one; see
// followed.h.
#include "tail_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>

#define LOOKS_MAX 5 // in a row, while names are moved under our eyes
#define OPEN_IDLE_MS                                                                               \
    (uint64_t)60000 // a file of a folder that had nothing new for so long is closed

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

static bool is_live(const reef_followed *set, size_t at) {
    return set->folder_kind ? set->parts[at].listed : set->live && at == set->count - 1;
}

// 0, or an errno for which the sizes cannot be known now.
static int measure(reef_followed *set, reef_part *part) {
    struct stat state;
    if (part->packed || part->old) return 0;
    if (part->fd < 0 && part->listed && part->looked && part->sight.size == part->offset) {
        part->size = part->offset;
        return 0;
    }
    int code = reef_part_open(part, set->open ? dirfd(set->open) : AT_FDCWD);
    if (code) return code;
    if (fstat(part->fd, &state) != 0) return errno;
    if ((uint64_t)state.st_size != part->size) part->still_ms = set->now_ms;
    part->size = (uint64_t)state.st_size;
    int64_t changed_ns = part->sight.changed_ns;
    reef_sight now;
    reef_sight_of(&now, part->sight.name, &state);
    part->sight.changed_ns = now.changed_ns > changed_ns ? now.changed_ns : changed_ns;
    return 0;
}

// A file that is over ends within a line, and nothing was put there yet.
static bool lacks_newline(reef_part *part) {
    uint8_t last = '\n';
    if (!part->upto || (part->ended && part->upto == part->offset)) return false;
    return reef_part_read(part, &last, 1, part->upto - 1) == 1 && last != '\n';
}

// How much of a part this round gives. A last line without its end waits, unless the line is too long or
// nobody writes the file any more.
static void plan_part(reef_followed *set, size_t at) {
    reef_part *part = &set->parts[at];
    bool over = !is_live(set, at) &&
                (part->packed || reef_followed_settled(set, part->still_ms, &part->sight));
    part->upto = part->offset;
    part->newline = false;
    if (part->old || (part->size <= part->offset && !over)) return;
    if (reef_part_open(part, set->open ? dirfd(set->open) : AT_FDCWD)) return;
    errno = 0;
    int64_t end = reef_part_line_end(part, part->offset, part->size);
    if (end < 0) { // cut by now, or its disk fails
        reef_followed_failed(set, part, errno);
        return;
    }
    bool all = over || part->size > (uint64_t)end + REEF_LINE_BYTES_MAX;
    if (part->size > part->offset) part->upto = all ? part->size : (uint64_t)end;
    part->newline = over && lacks_newline(part);
    if (part->newline) set->marked = false;
}

bool reef_part_has_range(const reef_part *part) {
    return part->upto > part->offset || part->newline;
}

static void retire(reef_followed *set, size_t at) {
    reef_part *part = &set->parts[at];
    bool over = !set->folder_kind && !is_live(set, at) && part->size <= part->offset &&
                !part->newline && !part->old;
    bool settled = part->packed || reef_followed_settled(set, part->still_ms, &part->sight);
    if (!over || !settled || !part->listed) return;
    part->old = true;
    set->marked = false;
}

static void close_idle(reef_followed *set) {
    for (size_t i = 0; i < set->count; i++) {
        reef_part *part = &set->parts[i];
        bool idle = part->old || (set->folder_kind && set->now_ms - part->still_ms > OPEN_IDLE_MS);
        if (idle && part->listed && !reef_part_has_range(part)) reef_part_shut(part);
    }
}

// Newest first: what was written to an older file before something in a newer one was seen is seen as well.
static int measure_all(reef_followed *set) {
    int code = 0;
    size_t open = 0;
    for (size_t i = set->count; code == 0 && i-- > 0;) {
        code = measure(set, &set->parts[i]);
        reef_followed_spare(&set->parts[i], &open);
        if (code == EACCES || code == EPERM || code == EMFILE || code == ENFILE) {
            reef_followed_denied(set, set->parts[i].sight.name, code);
            set->parts[i].size = set->parts[i].offset;
            code = 0;
        } else if (code && (set->away || !set->parts[i].listed)) {
            code = 0;
        }
    }
    return code;
}

// A file whose place in the order is not known yet may come before all that is there.
static bool unsure(const reef_followed *set) {
    bool found = false;
    for (size_t i = 0; !set->folder_kind && i < set->suspect_count; i++)
        found |= !set->suspects[i].broken && (set->resumed || set->suspects[i].alone);
    return found;
}

// The rest of a line that a rotated file ends in comes before anything newer.
static void plan(reef_followed *set) {
    bool hold = unsure(set);
    size_t open = 0;
    set->failed = false;
    for (size_t i = 0; i < set->count; i++) {
        reef_part *part = &set->parts[i];
        // How much a packed file has is not known before it could be read to its end.
        bool unknown = part->packed && part->listed && !part->looked && !part->old;
        plan_part(set, i);
        reef_followed_grow_head(set, part, part->size);
        if (!unknown) retire(set, i);
        reef_followed_spare(part, &open);
        // Without a fingerprint it could be exchanged unseen.
        if (hold || unknown || !part->head_bytes) {
            part->upto = part->offset;
            part->newline = false;
        }
        bool missed = part->fd < 0 && part->missed_ms;
        hold |= !set->folder_kind && (part->upto < part->size || missed || unknown) && !part->old;
    }
}

void reef_followed_drop_round(reef_followed *set) {
    for (size_t i = 0; i < set->count; i++) {
        set->parts[i].upto = set->parts[i].offset;
        set->parts[i].newline = false;
    }
}

reef_part *reef_followed_next_part(reef_followed *set) {
    for (size_t i = 0; i < set->count; i++)
        if (reef_part_has_range(&set->parts[i])) return &set->parts[i];
    return NULL;
}

// Look until no name was moved meanwhile; `whole` is false when that did not come about.
static reef_status look(reef_followed *set, bool *whole, reef_error *err) {
    reef_look result = REEF_LOOK_AGAIN;
    for (int i = 0; result == REEF_LOOK_AGAIN && i < LOOKS_MAX; i++) {
        set->now_ms = clock_ms();
        set->clock_ns = clock_ns();
        result = reef_followed_look(set);
        if (result == REEF_LOOK_DONE && measure_all(set)) result = REEF_LOOK_AGAIN;
    }
    *whole = result == REEF_LOOK_DONE;
    if (result == REEF_LOOK_NO_MEMORY)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to follow the files of '%s'",
                         set->folder);
    return REEF_OK;
}

bool reef_followed_look_is_old(const reef_followed *set) {
    return clock_ms() - set->now_ms >= REEF_LOOK_MS;
}

reef_status reef_followed_glance(reef_followed *set, reef_error *err) {
    bool whole = false;
    return look(set, &whole, err);
}

reef_status reef_followed_begin_round(reef_followed *set, reef_error *err) {
    bool whole = false;
    reef_status status = look(set, &whole, err);
    if (status == REEF_OK && whole)
        plan(set);
    else
        reef_followed_drop_round(set); // the next look may have more luck
    close_idle(set);
    if (reef_followed_next_part(set)) set->resumed = false;
    return status;
}
