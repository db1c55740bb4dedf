// A look at the folder of followed files: which files are still there, which were replaced, which are new.
//
//   list --> known by inode: still itself?  --no--> its bytes are lost for now: a part without a file
//        --> lost parts: has an unknown file their first bytes? It is a copy, or packed: read on there
//        --> unknown files: new, or a copy that is being made
#include "tail_internal.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_lost(const reef_part *part) {
    return !part->sight.device && !part->sight.inode;
}

// ---- known files ---------------------------------------------------------------------------------

static size_t find(const reef_listing *list, const reef_sight *sight) {
    for (size_t i = 0; i < list->count; i++)
        if (reef_sight_same(&list->items[i], sight)) return i;
    return SIZE_MAX;
}

// Its file was cut, or its inode belongs to a new file, which is as unknown as any other: what it was stays in
// the table without a file.
static void lose(reef_followed *set, reef_part *part) {
    reef_part_shut(part);
    part->sight.device = part->sight.inode = 0;
    part->listed = false;
    part->missed_ms = set->now_ms;
    set->marked = false;
}

// What of it unpacks is read.
static void say_broken(reef_followed *set, const reef_part *part) {
    reef_followed_say(set, "source_broken",
                      "'%.100s' of '%.100s' does not unpack to its end: only what does is read",
                      part->sight.name, set->folder);
}

static bool is_cut(const reef_part *part) {
    return !part->packed && part->sight.size < part->offset;
}

// The part and what is at its inode now.
static reef_look check_known(reef_followed *set, reef_part *part, const reef_sight *sight) {
    bool changed = !part->looked || part->sight.size != sight->size ||
                   part->sight.written_ns != sight->written_ns;
    if (!part->looked || part->sight.size != sight->size || strcmp(part->sight.name, sight->name))
        part->still_ms = set->now_ms;
    part->sight = *sight;
    part->listed = true;
    part->missed_ms = 0;
    if (!changed) return REEF_LOOK_DONE;
    int code = reef_part_open(part, dirfd(set->open));
    if (code == ENOENT || code == ESTALE) return REEF_LOOK_AGAIN;
    if (!code) code = is_cut(part) ? ENODATA : reef_part_check_head(part);
    bool lost = code == ENODATA;
    if (!code && part->packed && !part->looked && !part->old) code = reef_part_measure(part);
    if (lost) {
        lose(set, part);
    } else if (code && code != ENODATA) {
        reef_followed_denied(set, sight->name, code);
        if (part->packed) reef_part_shut(part); // its stream keeps the error
        part->looked = false;                   // look again once it can be read
    } else {
        if (code) say_broken(set, part);
        if (!part->packed && sight->size > part->offset) part->old = false; // written to after all
        part->looked = true;
        if (!part->packed)
            reef_followed_grow_head(set, part, sight->size); // copies are known by it
    }
    return REEF_LOOK_DONE;
}

static reef_look look_at_known(reef_followed *set, reef_listing *list) {
    reef_look result = REEF_LOOK_DONE;
    size_t open = 0;
    for (size_t i = 0; result == REEF_LOOK_DONE && i < set->count; i++) {
        reef_part *part = &set->parts[i];
        size_t at = find(list, &part->sight);
        if (at == SIZE_MAX && part->listed) part->still_ms = set->now_ms;
        if (at == SIZE_MAX && !part->missed_ms) part->missed_ms = set->now_ms;
        part->listed = false;
        if (at == SIZE_MAX) continue;
        result = check_known(set, part, &list->items[at]);
        list->taken[at] = !is_lost(part);
        reef_followed_spare(part, &open);
    }
    return result;
}

// ---- lost ones -----------------------------------------------------------------------------------

// The part's bytes are in this file too: read on in it.
static void move_into(reef_followed *set, reef_part *part, reef_part *file) {
    reef_part_shut(part);
    part->sight = file->sight;
    part->fd = file->fd;
    part->zip = file->zip;
    part->packed = file->packed;
    part->size = file->size;
    part->last_byte = file->last_byte;
    part->listed = part->looked = true;
    part->missed_ms = 0;
    part->still_ms = set->now_ms;
    set->marked = false;
}

// Whether an unknown file may have the bytes of a lost part, by names. In a folder small files are often alike:
// there only what packing or cutting leaves behind counts.
static bool may_have(const reef_followed *set,
                     const reef_part *part,
                     const reef_listing *list,
                     size_t at) {
    const char *name = list->items[at].name;
    bool same_place = part->fd < 0 && !is_lost(part) && part->head_bytes == REEF_HEAD_BYTES_MAX;
    if (list->taken[at]) return false;
    if (at == list->live) return same_place; // its file system is known by another number now
    if (!set->folder_kind) return true;
    if (!strcmp(name, part->sight.name)) return same_place;
    return reef_name_is_kin(name, part->sight.name) && (is_lost(part) || reef_name_is_packed(name));
}

// 0, ENODATA when it has not, or the errno of a read.
static int check_bytes(reef_part *file, const reef_part *part) {
    if (!reef_part_has_head_of(file, part)) return ENODATA;
    int code = file->packed ? reef_part_measure(file) : 0;
    if (code) return code;
    bool has = file->size >= part->offset && (part->fd < 0 || file->size >= part->size);
    return has ? 0 : ENODATA;
}

// Not because of what the file is, or of who may read it.
static bool may_pass(int code) {
    return code == EIO || code == ETIMEDOUT || code == EMFILE || code == ENFILE || code == ENOMEM;
}

// Plain files first: a packed one that is still being made stands beside its plain original.
static bool find_bytes(reef_followed *set, reef_part *part, reef_listing *list) {
    for (int packed = 0; part->head_bytes && packed < 2; packed++)
        for (size_t i = 0; i < list->count; i++) {
            if (reef_name_is_packed(list->items[i].name) != (packed == 1)) continue;
            if (!may_have(set, part, list, i)) continue;
            reef_part file;
            int code = reef_followed_open_unknown(set, &file, &list->items[i]);
            if (!code) {
                code = check_bytes(&file, part);
                if (may_pass(code)) reef_followed_denied(set, file.sight.name, code);
            }
            if (!code) {
                move_into(set, part, &file);
                list->taken[i] = true;
                return true;
            }
            if (may_pass(code)) part->missed_ms = set->now_ms; // it may be this one
            reef_part_release(&file);
        }
    return false;
}

static void say_loss(reef_followed *set, const reef_part *part) {
    uint64_t known = part->size > part->upto ? part->size : part->upto;
    known = known > part->offset ? known - part->offset : 0;
    bool cut = is_lost(part);
    if (part->old || (set->folder_kind && !cut && !known)) return;
    reef_followed_say(set, "source_loss",
                      "'%.100s' of '%.100s' was %s after %" PRIu64
                      " of its bytes were read, and no "
                      "copy of it is there: %" PRIu64
                      " bytes that it had are lost, and whatever was added to it unseen",
                      part->sight.name[0] ? part->sight.name : "a file", set->folder,
                      cut ? "cut or replaced" : "removed", part->offset, known);
}

// A folder that is listed while names in it are moved may not show a file that is there all the time, and a file
// that is being packed is between two names. So it takes a while until one counts as gone.
static void look_for_lost(reef_followed *set, reef_listing *list) {
    for (size_t i = set->count; i-- > 0;) {
        reef_part *part = &set->parts[i];
        if (part->listed || find_bytes(set, part, list)) continue;
        if (set->now_ms - part->missed_ms < REEF_SETTLE_MS) continue;
        if (part->fd >= 0) { // deleted, and still ours to read
            bool over = part->offset >= part->size && !part->newline &&
                        reef_followed_settled(set, part->still_ms, &part->sight);
            if (!over) continue;
        } else if (part->offset || part->head_bytes) {
            say_loss(set, part);
        }
        reef_followed_remove(set, i);
    }
}

// ---- all of it -----------------------------------------------------------------------------------

static void put_live_last(reef_followed *set, const reef_listing *list) {
    set->live = false;
    if (list->live == SIZE_MAX) return;
    for (size_t i = 0; i < set->count; i++) {
        if (!reef_sight_same(&set->parts[i].sight, &list->items[list->live])) continue;
        reef_part live = set->parts[i];
        memmove(&set->parts[i], &set->parts[i + 1], (set->count - i - 1) * sizeof(live));
        set->parts[set->count - 1] = live;
        set->live = true;
        return;
    }
}

// A packed file may be known as new only after plain ones that are younger.
static void sort_unread(reef_followed *set) {
    size_t end = set->count - (set->live ? 1 : 0), first = end;
    while (first && !set->parts[first - 1].offset && !set->parts[first - 1].upto) first--;
    if (!set->folder_kind && first + 1 < end)
        qsort(&set->parts[first], end - first, sizeof(*set->parts), reef_part_compare_age);
}

// A moment without the file is part of a rotation.
static void look_for_live(reef_followed *set, const reef_listing *list) {
    if (set->folder_kind) return;
    if (list->live != SIZE_MAX) {
        if (set->waiting)
            reef_followed_say(set, "source_back", "'%.120s/%.120s' is there", set->folder,
                              set->name);
        set->waiting = false;
        set->waiting_since_ms = 0;
        return;
    }
    if (!set->waiting_since_ms) set->waiting_since_ms = set->now_ms;
    if (set->waiting || set->now_ms - set->waiting_since_ms < REEF_SETTLE_MS) return;
    set->waiting = true;
    reef_followed_say(set, "source_waits", "'%.120s/%.120s' does not exist; it is waited for",
                      set->folder, set->name);
}

// The folder cannot be read: files that are open are, and no other counts as gone.
static void say_away(reef_followed *set, int code) {
    char many[128];
    snprintf(many, sizeof(many),
             "it holds more names than the %d that are looked at: move old ones away",
             REEF_FOLDER_NAMES_MAX);
    if (code != set->away)
        reef_followed_say(set, "source_away", "cannot look into '%.200s': %s; it is tried again",
                          set->folder, code == E2BIG ? many : strerror(code));
    set->away = code;
}

reef_look reef_followed_look(reef_followed *set) {
    reef_listing list;
    set->denied_now = false;
    int code = reef_listing_make(&list, set);
    reef_look result = code == ENOMEM ? REEF_LOOK_NO_MEMORY : REEF_LOOK_DONE;
    if (code) {
        say_away(set, code);
    } else if (list.moved) {
        result = REEF_LOOK_AGAIN;
    } else {
        set->away = 0;
        result = look_at_known(set, &list);
        if (result == REEF_LOOK_DONE) look_for_lost(set, &list);
        if (result == REEF_LOOK_DONE) result = reef_followed_look_for_new(set, &list);
        put_live_last(set, &list);
        sort_unread(set);
        look_for_live(set, &list);
        reef_followed_forget_suspects(set);
        if (set->denied && !set->denied_now && !set->failed && result == REEF_LOOK_DONE) {
            reef_followed_say(set, "source_back",
                              "what could not be read of '%.200s' is gone or can", set->folder);
            set->denied = false;
        }
    }
    reef_listing_release(&list);
    return result;
}

// ---- followed new -------------------------------------------------------------------------------
//
// Unknown files of a folder that is followed: new ones, and copies that are being made; see followed_look.c.

int reef_followed_open_unknown(reef_followed *set, reef_part *part, const reef_sight *sight) {
    uint8_t head[REEF_HEAD_BYTES_MAX];
    reef_part_init(part);
    part->sight = *sight;
    part->packed = reef_name_is_packed(sight->name);
    part->listed = part->looked = true;
    part->still_ms = set->now_ms;
    part->size = sight->size;
    int code = reef_part_open(part, dirfd(set->open));
    if (!code && pread(part->fd, head, sizeof(head), 0) < 0) {
        code = errno;
        reef_part_shut(part); // whose bytes it has cannot be seen
    }
    if (code && code != ENOENT && code != ESTALE) reef_followed_denied(set, sight->name, code);
    return code;
}

bool reef_part_has_head_of(reef_part *file, const reef_part *part) {
    uint64_t hash = 0;
    return part->head_bytes && reef_part_hash(file, part->head_bytes, &hash) == 0 &&
           hash == part->head;
}

static reef_suspect *suspect(reef_followed *set, const reef_sight *sight) {
    for (size_t i = 0; i < set->suspect_count; i++)
        if (reef_sight_same(&set->suspects[i].sight, sight)) return &set->suspects[i];
    if (set->suspect_count == set->suspect_room) {
        size_t room = set->suspect_room ? 2 * set->suspect_room : 8;
        reef_suspect *larger = realloc(set->suspects, room * sizeof(*larger));
        if (!larger) return NULL;
        set->suspects = larger;
        set->suspect_room = room;
    }
    set->suspects[set->suspect_count] = (reef_suspect){.sight = *sight, .still_ms = set->now_ms};
    return &set->suspects[set->suspect_count++];
}

void reef_followed_forget_suspects(reef_followed *set) {
    size_t kept = 0;
    for (size_t i = 0; i < set->suspect_count; i++) {
        if (!set->suspects[i].seen) continue;
        set->suspects[kept] = set->suspects[i];
        set->suspects[kept++].seen = false;
    }
    set->suspect_count = kept;
}

static bool has_twin(const reef_followed *set, reef_part *file) {
    bool found = false;
    for (size_t i = 0; !found && i < set->count; i++)
        found = reef_part_has_head_of(file, &set->parts[i]);
    return found;
}

typedef enum verdict { NEW, COPY, LATER, NEVER } verdict;

// COPY when all that is in the file is in the other one too, as far as first and last bytes tell.
static verdict compare(reef_followed *set, reef_part *file, reef_part *other) {
    uint8_t a[REEF_HEAD_BYTES_MAX], b[REEF_HEAD_BYTES_MAX];
    size_t count = file->size < sizeof(a) ? file->size : sizeof(a);
    uint64_t from = file->size - count;
    if (file->size > other->size || !reef_part_has_head_of(file, other)) return NEW;
    if (other->fd < 0 && reef_part_open(other, dirfd(set->open))) return other->old ? COPY : NEW;
    ssize_t got = reef_part_read(file, a, count, from);
    ssize_t got_other = reef_part_read(other, b, count, from);
    if ((got < 0 && !file->packed) || (got_other < 0 && !other->packed)) return LATER;
    bool same = got == (ssize_t)count && got_other == got && memcmp(a, b, count) == 0;
    return same ? COPY : NEW;
}

// Rotation by copying, or packing whose original stays: nothing in it is new. In a folder a copy is a file.
static verdict compare_all(reef_followed *set, reef_part *file) {
    verdict found = NEW;
    for (size_t i = 0; found == NEW && !set->folder_kind && i < set->count; i++)
        found = compare(set, file, &set->parts[i]);
    return found;
}

// A file waits while it may be the work of a copier or packer.
static verdict judge(reef_followed *set, reef_part *file) {
    bool twin = has_twin(set, file);
    bool small =
        file->size < REEF_HEAD_BYTES_MAX && !set->folder_kind; // a copy that has just begun
    if (!file->packed && !twin && !small) return NEW;
    reef_suspect *mind = suspect(set, &file->sight);
    if (!mind) return LATER;
    mind->seen = true;
    if (mind->sight.size != file->sight.size) mind->still_ms = set->now_ms;
    mind->sight = file->sight;
    mind->alone = !twin;
    if (mind->broken) return NEVER;
    if (!reef_followed_settled(set, mind->still_ms, &file->sight)) return LATER;
    int code = file->packed ? reef_part_measure(file) : 0;
    if (code && code != ENODATA) {
        reef_followed_denied(set, file->sight.name, code);
        return LATER;
    }
    if (code) {
        mind->broken = true;
        reef_followed_say(set, "source_broken",
                          "'%.100s' of '%.100s' does not unpack to its end, and is not read",
                          file->sight.name, set->folder);
        return NEVER;
    }
    return compare_all(set, file);
}

static bool has_room(reef_followed *set, size_t found) {
    bool room = set->count + found < REEF_DIR_FILES_MAX;
    if (!room && !set->full)
        reef_followed_say(set, "source_full",
                          "'%.200s' has more than %d files: others are read when some of these are "
                          "gone",
                          set->folder, REEF_DIR_FILES_MAX);
    set->full = !room;
    return room;
}

// First of all: a copy of it may be there already, and it is about to be cut.
static bool add_live(reef_followed *set, reef_listing *list) {
    reef_part file;
    size_t at = list->live;
    if (at == SIZE_MAX || list->taken[at] || !has_room(set, 0)) return true;
    if (reef_followed_open_unknown(set, &file, &list->items[at])) return true;
    list->taken[at] = true;
    reef_followed_grow_head(set, &file, file.size);
    if (reef_followed_insert(set, set->count, &file)) return true;
    reef_part_release(&file);
    return false;
}

// Oldest first, none of them opened yet. Returns their number.
static size_t find_unknown(const reef_listing *list, reef_part *out) {
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++) {
        if (list->taken[i] || !list->ours[i] || i == list->live || !list->items[i].size) continue;
        reef_part_init(&out[count]);
        out[count++].sight = list->items[i];
    }
    qsort(out, count, sizeof(*out), reef_part_compare_age);
    return count;
}

// Renamed since it was listed. In a folder it is found by its new name; what is rotated has an order, and is older than
// what was added.
static bool is_moved(const reef_followed *set, int code) {
    return !set->folder_kind && (code == ENOENT || code == ESTALE);
}

// Judge all before one is added: they are not each other's twins. Where there is no room for all, it is for the oldest.
reef_look reef_followed_look_for_new(reef_followed *set, reef_listing *list) {
    reef_part *found = calloc(list->count ? list->count : 1, sizeof(*found));
    size_t count = 0, open = 0;
    if (!found || !add_live(set, list)) {
        free(found);
        return REEF_LOOK_NO_MEMORY;
    }
    size_t unknown = find_unknown(list, found);
    bool moved = false;
    for (size_t i = 0; i < unknown && !moved && has_room(set, count); i++) {
        reef_sight sight = found[i].sight;
        reef_part *file = &found[count];
        int code = reef_followed_open_unknown(set, file, &sight);
        verdict what = code ? LATER : judge(set, file);
        moved = is_moved(set, code);
        if (what == COPY) {
            file->offset = file->upto = file->size;
            file->old = true;
        }
        if (what == NEW || what == COPY) {
            reef_followed_spare(file, &open);
            count++;
        } else {
            reef_part_release(file);
        }
    }
    size_t added = 0, first = set->count;
    while (!moved && added < count && reef_followed_insert(set, first + added, &found[added]))
        added++;
    reef_look result = added == count ? REEF_LOOK_DONE : REEF_LOOK_NO_MEMORY;
    if (moved) result = REEF_LOOK_AGAIN;
    while (added < count) reef_part_release(&found[added++]);
    free(found);
    return result;
}
