// The listing of a folder, and which of its names belong to a source.
#include "tail_internal.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static bool ends_with(const char *name, const char *end) {
    size_t bytes = strlen(name), end_bytes = strlen(end);
    return bytes >= end_bytes && strcmp(name + (bytes - end_bytes), end) == 0;
}

bool reef_name_is_gzip(const char *name) {
    return ends_with(name, ".gz");
}

// Without .gz, and then without a number at its end.
static size_t stem_bytes(const char *name) {
    size_t bytes = strlen(name);
    if (reef_name_is_gzip(name)) bytes -= 3;
    size_t digits = bytes;
    while (digits && isdigit((unsigned char)name[digits - 1])) digits--;
    if (digits > 1 && digits < bytes && strchr(".-_", name[digits - 1]) != NULL) bytes = digits - 1;
    return bytes;
}

bool reef_name_shares_stem(const char *name, const char *of) {
    return strncmp(name, of, stem_bytes(of)) == 0;
}

// Files of other compressors: reef does not decompress them, and they are not text.
static bool is_foreign(const char *name) {
    return ends_with(name, ".bz2") || ends_with(name, ".xz") || ends_with(name, ".zst") ||
           ends_with(name, ".lz4");
}

// app.log.1, app.log-20260131.gz, app.log.old; not app.log.lock or app.log2.
static bool is_rotated(const char *name, const char *base) {
    size_t bytes = strlen(base);
    if (strncmp(name, base, bytes) != 0) return false;
    const char *end = name + bytes;
    if (*end != '.' && *end != '-' && *end != '_') return false;
    return (isdigit((unsigned char)end[1]) && !is_foreign(name) && !ends_with(name, ".tmp")) ||
           strcmp(end, ".old") == 0 || strcmp(end, ".old.gz") == 0;
}

static bool name_matches(const reef_tail *tail, const char *name) {
    if (!tail->is_directory) return strcmp(name, tail->name) == 0 || is_rotated(name, tail->name);
    if (tail->name != NULL) return fnmatch(tail->name, name, FNM_PERIOD) == 0;
    return name[0] != '.' && !reef_name_is_gzip(name) && !is_foreign(name);
}

static bool is_dot(const char *name) {
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

// For a followed path only names that begin with its name are examined: its folder may hold much
// else.
static bool begins_like_path(const reef_tail *tail, const char *name) {
    return tail->is_directory || strncmp(name, tail->name, strlen(tail->name)) == 0;
}

static bool grow_listing(reef_listing *list) {
    if (list->count < list->capacity) return true;
    size_t capacity = list->capacity ? 2 * list->capacity : 64;
    // Three arrays grow together. Each new address is stored at once, so nothing leaks when a later
    // one fails.
    reef_file_id *items = realloc(list->items, capacity * sizeof(*items));
    if (items != NULL) list->items = items;
    bool *known = realloc(list->known, capacity * sizeof(*known));
    if (known != NULL) list->known = known;
    bool *matches = realloc(list->matches, capacity * sizeof(*matches));
    if (matches != NULL) list->matches = matches;
    if (items == NULL || known == NULL || matches == NULL) return false;
    list->capacity = capacity;
    return true;
}

size_t reef_listing_find(const reef_listing *list, const reef_file_id *file_id) {
    for (size_t i = 0; i < list->count; i++)
        if (reef_file_id_same(&list->items[i], file_id)) return i;
    return SIZE_MAX;
}

// Two names of one inode are one file. Its name is the followed path, or else a name that belongs
// to the source.
static bool add_name(reef_listing *list, const reef_tail *tail, const reef_file_id *file_id) {
    bool active = !tail->is_directory && strcmp(file_id->name, tail->name) == 0;
    bool matches = name_matches(tail, file_id->name);
    // Hard links and renames during the scan show one inode twice.
    size_t at = reef_listing_find(list, file_id);
    if (at == SIZE_MAX) {
        if (!grow_listing(list)) return false;
        at = list->count++;
        list->known[at] = false;
        list->matches[at] = false;
        list->items[at] = *file_id;
    }
    if (active || (matches && !list->matches[at])) list->items[at] = *file_id;
    list->matches[at] |= matches;
    if (active) list->active = at;
    return true;
}

static bool is_link(int folder, const char *name) {
    struct stat state;
    return fstatat(folder, name, &state, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(state.st_mode);
}

static bool is_known(const reef_tail *tail, const char *name) {
    for (size_t i = 0; i < tail->count; i++)
        if (tail->files[i].file_id.inode && strcmp(tail->files[i].file_id.name, name) == 0)
            return true;
    return false;
}

// For a name that stat fails for: 0 to skip it and scan the others, or the errno that ends the
// scan. A link into an unreadable directory is skipped, unless its name is in the table: such a
// file must not count as missing.
static int skip_unreadable(reef_tail *tail, const char *name, int code) {
    if (code == ENOENT || code == ELOOP || code == ENOTDIR)
        return 0; // deleted, or a link to nothing
    if (is_known(tail, name) || !is_link(dirfd(tail->dir), name)) return code;
    if (name_matches(tail, name)) reef_tail_report_denied(tail, name, code);
    return 0;
}

// A checksum of names and inodes, independent of their order.
static void add_to_name_sum(const reef_tail *tail, const struct dirent *dir_entry, uint64_t *sum) {
    if (name_matches(tail, dir_entry->d_name))
        *sum +=
            XXH3_64bits_withSeed(dir_entry->d_name, strlen(dir_entry->d_name), dir_entry->d_ino);
}

// List the names a second time: a file that was renamed during the first may be missing from it.
static int check_names(reef_listing *list, const reef_tail *tail, uint64_t sum) {
    struct dirent *dir_entry = NULL;
    uint64_t now = 0;
    rewinddir(tail->dir);
    errno = 0;
    while ((dir_entry = readdir(tail->dir))) add_to_name_sum(tail, dir_entry, &now);
    list->moved = now != sum;
    return errno;
}

int reef_listing_make(reef_listing *list, reef_tail *tail) {
    *list = (reef_listing){.active = SIZE_MAX};
    // The folder stays open until the next scan: files are opened relative to it, so a rename of
    // the folder itself does no harm.
    if (tail->dir != NULL) closedir(tail->dir);
    tail->dir = opendir(tail->folder);
    if (tail->dir == NULL) return errno;
    struct dirent *dir_entry = NULL;
    uint64_t sum = 0;
    int code = 0;
    for (size_t names = 0; !code;) {
        struct stat state;
        reef_file_id file_id;
        // readdir reports an error only through errno.
        errno = 0;
        dir_entry = readdir(tail->dir);
        if (dir_entry == NULL && errno) return errno;
        // A single file may have been renamed between two readdir calls; the checksum of the names
        // shows it.
        if (dir_entry == NULL) return tail->is_directory ? 0 : check_names(list, tail, sum);
        if (is_dot(dir_entry->d_name)) continue;
        // Bounded: a folder of millions of files would block the scan for minutes.
        if (names++ == REEF_FOLDER_NAMES_MAX) return E2BIG;
        if (!begins_like_path(tail, dir_entry->d_name)) continue;
        add_to_name_sum(tail, dir_entry, &sum);
        // Deleted since readdir, or a link to where we may not look: neither ends the scan.
        if (fstatat(dirfd(tail->dir), dir_entry->d_name, &state, 0)) {
            code = skip_unreadable(tail, dir_entry->d_name, errno);
            continue;
        }
        if (!S_ISREG(state.st_mode)) continue;
        reef_file_id_of(&file_id, dir_entry->d_name, &state);
        if (!add_name(list, tail, &file_id)) code = ENOMEM;
    }
    return code;
}

void reef_listing_release(reef_listing *list) {
    free(list->items);
    free(list->known);
    free(list->matches);
    *list = (reef_listing){.active = SIZE_MAX};
}

// The number of app.log.3.gz is 3. A larger one is older; other names count as 0.
static unsigned long rotation_number(const char *name) {
    const char *dot = name;
    unsigned long number = 0;
    while ((dot = strchr(dot, '.'))) {
        // Only a number at the end, or before .gz, counts: app.log.3 and app.log.3.gz, not
        // app.3.log.
        dot++;
        char *end = NULL;
        if (isdigit((unsigned char)*dot)) {
            unsigned long value = strtoul(dot, &end, 10);
            if (!*end || strcmp(end, ".gz") == 0) number = value;
        }
    }
    return number;
}

int reef_tail_file_compare_age(const void *a, const void *b) {
    const reef_file_id *x = &((const reef_tail_file *)a)->file_id,
                       *y = &((const reef_tail_file *)b)->file_id;
    if (x->mtime_ns != y->mtime_ns) return x->mtime_ns < y->mtime_ns ? -1 : 1;
    unsigned long m = rotation_number(x->name), n = rotation_number(y->name);
    if (m != n) return m > n ? -1 : 1;
    return strcmp(x->name, y->name);
}
