// Checkpoints of followed files: the table as JSON.
//
//   {"files": [[device, inode, offset, pass_end, prefix_bytes, "prefix_hash", seen_end, "seen_hash",
//              mtime_ns, flags, name], ...]}
//
// Hashes: 16 hexadecimal digits. flags is a string with n (add_newline), e (newline_added),
// p (is_gzip) and o (drained). Bytes of the read pass are those from `offset` to `pass_end` of each
// file, one file after another.
#include "tail_internal.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *encode_file(const reef_tail_file *entry) {
    char prefix[17], seen[17], flags[5];
    size_t count = 0;
    // Hashes as 16 hex digits: JSON integers are signed.
    snprintf(prefix, sizeof(prefix), "%016" PRIx64, entry->prefix_hash);
    snprintf(seen, sizeof(seen), "%016" PRIx64, entry->seen_hash);
    // One letter per flag keeps the record short; a folder may hold thousands of files.
    if (entry->add_newline) flags[count++] = 'n';
    if (entry->newline_added) flags[count++] = 'e';
    if (entry->is_gzip) flags[count++] = 'p';
    if (entry->drained) flags[count++] = 'o';
    flags[count] = 0;
    // An empty name is found again by inode and prefix.
    json_t *name = json_string(entry->file_id.name); // NULL when it is not UTF-8
    return json_pack("[I, I, I, I, i, s, I, s, I, s, o]", (json_int_t)entry->file_id.device,
                     (json_int_t)entry->file_id.inode, (json_int_t)entry->offset,
                     (json_int_t)entry->pass_end, (int)entry->prefix_bytes, prefix,
                     (json_int_t)entry->seen_end, seen, (json_int_t)entry->file_id.mtime_ns, flags,
                     name != NULL ? name : json_string(""));
}

char *reef_tail_checkpoint(const reef_tail *tail) {
    json_t *files = json_array();
    json_t *checkpoint = json_object();
    bool complete = files != NULL && checkpoint != NULL;
    for (size_t i = 0; complete && i < tail->count; i++)
        complete = json_array_append_new(files, encode_file(&tail->files[i])) == 0;
    complete = complete && json_object_set(checkpoint, "files", files) == 0;
    char *text = complete ? json_dumps(checkpoint, JSON_COMPACT) : NULL;
    json_decref(files);
    json_decref(checkpoint);
    return text;
}

// All 16 digits, or the checkpoint is damaged.
static bool decode_hash(const char *text, uint64_t *hash) {
    char *end = NULL;
    *hash = strtoull(text, &end, 16);
    return !*end && end == text + 16;
}

static bool decode_file(reef_tail_file *entry, json_t *item) {
    json_int_t device = 0, inode = 0, offset = 0, pass_end = 0, seen_end = 0, mtime_ns = 0;
    int prefix_bytes = 0;
    const char *prefix = NULL, *seen = NULL, *flags = NULL, *name = NULL;
    reef_tail_file_init(entry);
    // "s!" ends the list: a record with more members is not one of ours.
    if (json_unpack(item, "[I, I, I, I, i, s, I, s, I, s, s!]", &device, &inode, &offset, &pass_end,
                    &prefix_bytes, &prefix, &seen_end, &seen, &mtime_ns, &flags, &name))
        return false;
    // Numbers are checked before they are used as offsets.
    if (offset < 0 || pass_end < offset || prefix_bytes < 0 ||
        prefix_bytes > REEF_PREFIX_BYTES_MAX || seen_end < 0)
        return false;
    if (!decode_hash(prefix, &entry->prefix_hash) || !decode_hash(seen, &entry->seen_hash))
        return false;
    entry->file_id.device = (uint64_t)device;
    entry->file_id.inode = (uint64_t)inode;
    entry->offset = (uint64_t)offset;
    entry->pass_end = (uint64_t)pass_end;
    entry->seen_end = (uint64_t)seen_end;
    entry->file_id.mtime_ns = mtime_ns;
    // The size is that of the moment when the checkpoint was made, until the next scan.
    entry->size = entry->seen_end > entry->pass_end ? entry->seen_end : entry->pass_end;
    entry->prefix_bytes = (uint32_t)prefix_bytes;
    strncpy(entry->file_id.name, name, NAME_MAX); // the last byte stays zero
    entry->newline_added = strchr(flags, 'e');
    entry->add_newline = strchr(flags, 'n');
    entry->is_gzip = strchr(flags, 'p');
    entry->drained = strchr(flags, 'o');
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
        reef_tail_file entry;
        good = decode_file(&entry, json_array_get(files, i));
        memory = !good || reef_tail_insert(tail, i, &entry);
    }
    json_decref(object);
    if (!memory)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the files of '%s'", tail->folder);
    if (!good)
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "the stored checkpoint of '%.150s' is not from follow: "
                         "or dir:, so give the source another name",
                         tail->folder);
    return REEF_OK;
}
