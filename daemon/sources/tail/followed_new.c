// Unknown files of a folder that is followed: new ones, and copies that are being made; see followed_look.c.
#include "tail_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
