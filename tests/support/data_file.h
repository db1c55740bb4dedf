// Damaging a pool on purpose: bytes of its data file, while no process has it open.
#ifndef DATA_FILE_H
#define DATA_FILE_H

#include "temp_dir.h"

#include <assert.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct data_bytes {
    uint8_t *data;
    size_t bytes;
} data_bytes;

static inline void data_file_path(char out[TEMP_DIR_BYTES], const char *pool) {
    temp_dir_join(out, pool, "data.mdb");
}

static inline data_bytes data_file_load(const char *pool) {
    char path[TEMP_DIR_BYTES];
    struct stat info;
    data_file_path(path, pool);
    int fd = open(path, O_RDONLY);
    assert(fd >= 0 && fstat(fd, &info) == 0);
    data_bytes file = {.data = malloc((size_t)info.st_size), .bytes = (size_t)info.st_size};
    assert(file.data != NULL);
    for (size_t done = 0; done < file.bytes;) {
        ssize_t got = read(fd, file.data + done, file.bytes - done);
        assert(got > 0);
        done += (size_t)got;
    }
    close(fd);
    return file;
}

/** Replace the data file by the first `bytes` bytes of `file`. */
static inline void data_file_save(const char *pool, const data_bytes *file, size_t bytes) {
    char path[TEMP_DIR_BYTES];
    data_file_path(path, pool);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert(fd >= 0);
    for (size_t done = 0; done < bytes;) {
        ssize_t put = write(fd, file->data + done, bytes - done);
        assert(put > 0);
        done += (size_t)put;
    }
    close(fd);
}

/** Write the file back as it is in memory now, which ends. */
static inline void data_file_replace(const char *pool, data_bytes *file) {
    data_file_save(pool, file, file->bytes);
    free(file->data);
}

/** Where `pattern` stands in the file at or after `from`; SIZE_MAX when nowhere. */
static inline size_t data_file_find(const data_bytes *file,
                                    size_t from,
                                    const void *pattern,
                                    size_t bytes) {
    for (size_t i = from; i + bytes <= file->bytes; i++)
        if (memcmp(file->data + i, pattern, bytes) == 0) return i;
    return SIZE_MAX;
}

#endif
