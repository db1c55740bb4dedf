// See npy_file.h.
//
//   0    6 bytes  \x93NUMPY
//   6    2 bytes  1, 0: the version
//   8    2 bytes  little-endian: bytes of the header, padding and newline included
//   10            {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }, padded so that data
//                 begins at a multiple of 64
#include "npy_file.h"
#include "cli_pool.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define PREFIX_BYTES 10
#define ALIGNMENT 64
#define HEADER_BYTES_MAX 192 // four dimensions of 64 bits

static reef_status fail_write(const reef_npy_file *file, reef_error *err) {
    return reef_cli_write_failed(file->path, errno, err);
}

reef_status reef_npy_create(reef_npy_file *file,
                            const char *path,
                            bool force,
                            const char *kind,
                            size_t rank,
                            const uint64_t *shape,
                            reef_error *err) {
    char header[HEADER_BYTES_MAX] = "\x93NUMPY\x01";
    size_t at = PREFIX_BYTES;
    *file = (reef_npy_file){.path = path};
    // O_EXCL: an existing array is replaced only with --force.
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (force ? O_TRUNC : O_EXCL), 0666);
    if (fd < 0 && errno == EEXIST)
        return reef_fail(err, REEF_ERR_INVALID,
                         "cannot write %.160s: it exists; choose another name", path);
    file->out = fd < 0 ? NULL : fdopen(fd, "wb");
    if (file->out == NULL) {
        // The descriptor is ours until fdopen() has it.
        if (fd >= 0) (void)close(fd);
        return fail_write(file, err);
    }
    at += (size_t)snprintf(header + at, sizeof(header) - at,
                           "{'descr': '%s', 'fortran_order': False, 'shape': (", kind);
    // A trailing comma makes a tuple of one number valid Python.
    for (size_t i = 0; i < rank; i++)
        at += (size_t)snprintf(header + at, sizeof(header) - at, "%" PRIu64 ",%s", shape[i],
                               i + 1 < rank ? " " : "");
    at += (size_t)snprintf(header + at, sizeof(header) - at, "), }");
    // Padded to the alignment, with a newline at the end (NumPy's format, version 1.0).
    size_t whole = (at + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    memset(header + at, ' ', whole - at);
    header[whole - 1] = '\n';
    // Length of the rest of the header, little-endian.
    header[8] = (char)((whole - PREFIX_BYTES) & 0xff);
    header[9] = (char)((whole - PREFIX_BYTES) >> 8);
    return reef_npy_write(file, header, whole, err);
}

reef_status reef_npy_write(reef_npy_file *file, const void *data, size_t bytes, reef_error *err) {
    return fwrite(data, 1, bytes, file->out) == bytes ? REEF_OK : fail_write(file, err);
}

reef_status reef_npy_finish(reef_npy_file *file, reef_error *err) {
    bool whole = fflush(file->out) == 0;
    reef_status status = whole ? REEF_OK : fail_write(file, err);
    if (status != REEF_OK) return status;
    (void)fclose(file->out);
    file->out = NULL;
    return REEF_OK;
}

void reef_npy_abandon(reef_npy_file *file) {
    if (file->out == NULL) return;
    (void)fclose(file->out);
    (void)unlink(file->path);
    file->out = NULL;
}
