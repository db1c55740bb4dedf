// A directory of a test's own, under ${TMPDIR:-/tmp}, and its removal with all that is in it.
#ifndef TEMP_DIR_H
#define TEMP_DIR_H

#include <assert.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEMP_DIR_BYTES 512

/** `directory/name`, in place. */
static inline void temp_dir_join(char out[TEMP_DIR_BYTES],
                                 const char *directory,
                                 const char *name) {
    int length = snprintf(out, TEMP_DIR_BYTES, "%s/%s", directory, name);
    assert(length > 0 && length < TEMP_DIR_BYTES);
}

static inline void temp_dir_new(char out[TEMP_DIR_BYTES]) {
    const char *base = getenv("TMPDIR");
    temp_dir_join(out, base == NULL || *base == '\0' ? "/tmp" : base, "reef-test-XXXXXX");
    const char *made = mkdtemp(out);
    assert(made != NULL);
}

/** Remove a file or a tree; links are removed, not followed. */
static inline void temp_dir_remove(const char *path) {
    struct stat info;
    if (lstat(path, &info) != 0) return;
    if (!S_ISDIR(info.st_mode)) {
        (void)unlink(path);
        return;
    }
    DIR *directory = opendir(path);
    assert(directory != NULL);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        char child[TEMP_DIR_BYTES];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        temp_dir_join(child, path, entry->d_name);
        temp_dir_remove(child);
    }
    closedir(directory);
    (void)rmdir(path);
}

#endif
