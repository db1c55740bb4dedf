// Checkpoints of followed files: the table as JSON.
//
//   {"files": [[device, inode, offset, upto, head bytes, "head, 16 hex digits", flags, name], ...]}
//
// flags is a string with n (newline), e (ended), p (packed) and o (old). Bytes of the read pass are
// those from `offset` to `upto` of each file, one file after another; bytes after the pass follow
// in the last file that has such.
#include "tail_internal.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *pack_file(const reef_tail_file *file_entry) {
    char head[17], flags[5];
    size_t count = 0;
    // The hash of the file's first bytes, as 16 hex digits: JSON integers are signed.
    snprintf(head, sizeof(head), "%016" PRIx64, file_entry->head);
    // One letter per flag keeps the record short; a folder may hold thousands of files.
    if (file_entry->newline) flags[count++] = 'n';
    if (file_entry->ended) flags[count++] = 'e';
    if (file_entry->packed) flags[count++] = 'p';
    if (file_entry->old) flags[count++] = 'o';
    flags[count] = 0;
    // An empty name is found again by inode and head.
    json_t *name = json_string(file_entry->file_id.name); // NULL when it is not UTF-8
    return json_pack("[I, I, I, I, i, s, s, o]", (json_int_t)file_entry->file_id.device,
                     (json_int_t)file_entry->file_id.inode, (json_int_t)file_entry->offset,
                     (json_int_t)file_entry->upto, (int)file_entry->head_bytes, head, flags,
                     name != NULL ? name : json_string(""));
}

char *reef_tail_checkpoint(const reef_tail *tail) {
    json_t *files = json_array();
    json_t *checkpoint = json_object();
    bool whole = files != NULL && checkpoint != NULL;
    for (size_t i = 0; whole && i < tail->count; i++)
        whole = json_array_append_new(files, pack_file(&tail->files[i])) == 0;
    whole = whole && json_object_set(checkpoint, "files", files) == 0;
    char *text = whole ? json_dumps(checkpoint, JSON_COMPACT) : NULL;
    json_decref(files);
    json_decref(checkpoint);
    return text;
}

static bool unpack_file(reef_tail_file *file_entry, json_t *item) {
    json_int_t device = 0, inode = 0, offset = 0, upto = 0;
    int head_bytes = 0;
    const char *head = NULL, *flags = NULL, *name = NULL;
    reef_tail_file_init(file_entry);
    // "s!" ends the list: a record with more members is of a later version.
    if (json_unpack(item, "[I, I, I, I, i, s, s, s!]", &device, &inode, &offset, &upto, &head_bytes,
                    &head, &flags, &name))
        return false;
    // Numbers are checked before they are used as offsets.
    if (offset < 0 || upto < offset || head_bytes < 0 || head_bytes > REEF_HEAD_BYTES_MAX)
        return false;
    char *end = NULL;
    // All 16 digits, or it is not a hash of ours.
    file_entry->head = strtoull(head, &end, 16);
    if (*end || end != head + 16) return false;
    file_entry->file_id.device = (uint64_t)device;
    file_entry->file_id.inode = (uint64_t)inode;
    file_entry->offset = (uint64_t)offset;
    file_entry->upto = (uint64_t)upto;
    // The size is that of the moment when the checkpoint was made, until the next scan.
    file_entry->size = file_entry->upto;
    file_entry->head_bytes = (uint32_t)head_bytes;
    strncpy(file_entry->file_id.name, name, NAME_MAX); // the last byte stays zero
    file_entry->ended = strchr(flags, 'e');
    file_entry->newline = strchr(flags, 'n');
    file_entry->packed = strchr(flags, 'p');
    file_entry->old = strchr(flags, 'o');
    return true;
}

reef_status reef_tail_checkpoint_load(reef_tail *tail, const char *checkpoint, reef_error *err) {
    json_t *object = json_loads(checkpoint, 0, NULL);
    json_t *files = json_object_get(object, "files");
    size_t count = json_array_size(files);
    // The bound is that of a folder; a longer list is damage.
    bool good = count > 0 && count <= REEF_DIR_FILES_MAX;
    bool memory = true;
    for (size_t i = 0; good && memory && i < count; i++) {
        reef_tail_file file_entry;
        good = unpack_file(&file_entry, json_array_get(files, i));
        memory = !good || reef_tail_insert(tail, i, &file_entry);
    }
    json_decref(object);
    if (!memory)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the files of '%s'", tail->folder);
    if (!good)
        return reef_fail(
            err, REEF_ERR_CORRUPT,
            "the pool's mark of where reading of '%.150s' stands is not one of followed "
            "files: give the source another name",
            tail->folder);
    return REEF_OK;
}
