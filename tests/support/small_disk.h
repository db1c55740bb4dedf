// A file system of a few megabytes, to fill it. Mounting needs root: without, tests skip and say
// so.
//
#ifndef SMALL_DISK_H
#define SMALL_DISK_H

#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

/** Mount on the directory `path`; `size` such as "2m". False when that is not allowed here. */
static inline bool small_disk_mount(const char *path, const char *size) {
    char options[32];
    snprintf(options, sizeof(options), "size=%s", size);
    if (mount("tmpfs", path, "tmpfs", 0, options) == 0) return true;
    print_message("skipped: a small file system cannot be mounted here (%s)\n", strerror(errno));
    return false;
}

static inline void small_disk_unmount(const char *path) {
    (void)umount(path);
}

/** Take all the room that is left. */
static inline void small_disk_fill(const char *filler) {
    static const char BLOCK[4096];
    int fd = open(filler, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    while (write(fd, BLOCK, sizeof(BLOCK)) > 0) {
    }
    assert_int_equal(errno, ENOSPC);
    close(fd);
}

#endif
