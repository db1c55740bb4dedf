// Marks of followed files: the table as JSON.
//
//   {"files": [[device, inode, offset, upto, head bytes, "head, 16 hex digits", flags, name], ...]}
//
// flags is a string with n (newline), e (ended), p (packed) and o (old). Bytes of the round are those from `offset` to `upto`
// of each file in turn; bytes after the round follow in the last file that has such.
#include "tail_internal.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *pack_part(const reef_part *part) {
    char head[17], flags[5];
    size_t count = 0;
    snprintf(head, sizeof(head), "%016" PRIx64, part->head);
    if (part->newline) flags[count++] = 'n';
    if (part->ended) flags[count++] = 'e';
    if (part->packed) flags[count++] = 'p';
    if (part->old) flags[count++] = 'o';
    flags[count] = 0;
    json_t *name = json_string(part->sight.name); // NULL when it is not UTF-8
    return json_pack("[I, I, I, I, i, s, s, o]", (json_int_t)part->sight.device,
                     (json_int_t)part->sight.inode, (json_int_t)part->offset,
                     (json_int_t)part->upto, (int)part->head_bytes, head, flags,
                     name ? name : json_string(""));
}

char *reef_followed_mark(const reef_followed *set) {
    json_t *files = json_array();
    json_t *mark = json_object();
    bool whole = files && mark;
    for (size_t i = 0; whole && i < set->count; i++)
        whole = json_array_append_new(files, pack_part(&set->parts[i])) == 0;
    whole = whole && json_object_set(mark, "files", files) == 0;
    char *text = whole ? json_dumps(mark, JSON_COMPACT) : NULL;
    json_decref(files);
    json_decref(mark);
    return text;
}

static bool unpack_part(reef_part *part, json_t *item) {
    json_int_t device = 0, inode = 0, offset = 0, upto = 0;
    int head_bytes = 0;
    const char *head = NULL, *flags = NULL, *name = NULL;
    reef_part_init(part);
    if (json_unpack(item, "[I, I, I, I, i, s, s, s!]", &device, &inode, &offset, &upto, &head_bytes,
                    &head, &flags, &name))
        return false;
    if (offset < 0 || upto < offset || head_bytes < 0 || head_bytes > REEF_HEAD_BYTES_MAX)
        return false;
    char *end = NULL;
    part->head = strtoull(head, &end, 16);
    if (*end || end != head + 16) return false;
    part->sight.device = (uint64_t)device;
    part->sight.inode = (uint64_t)inode;
    part->offset = (uint64_t)offset;
    part->upto = (uint64_t)upto;
    part->size = part->upto;
    part->head_bytes = (uint32_t)head_bytes;
    strncpy(part->sight.name, name, NAME_MAX); // the last byte stays zero
    part->ended = strchr(flags, 'e');
    part->newline = strchr(flags, 'n');
    part->packed = strchr(flags, 'p');
    part->old = strchr(flags, 'o');
    return true;
}

reef_status reef_followed_unmark(reef_followed *set, const char *mark, reef_error *err) {
    json_t *object = json_loads(mark, 0, NULL);
    json_t *files = json_object_get(object, "files");
    size_t count = json_array_size(files);
    bool good = count > 0 && count <= REEF_DIR_FILES_MAX;
    bool memory = true;
    for (size_t i = 0; good && memory && i < count; i++) {
        reef_part part;
        good = unpack_part(&part, json_array_get(files, i));
        memory = !good || reef_followed_insert(set, i, &part);
    }
    json_decref(object);
    if (!memory)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the files of '%s'", set->folder);
    if (!good)
        return reef_fail(
            err, REEF_ERR_CORRUPT,
            "the pool's mark of where reading of '%.150s' stands is not one of followed "
            "files: give the source another name",
            set->folder);
    return REEF_OK;
}
