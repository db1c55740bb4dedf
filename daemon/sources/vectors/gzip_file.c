// See gzip_file.h. A packed file cannot be read from the middle, and its checksum stands at its
// end: it is unpacked into memory as a whole, once, which also finds damage before anything is
// trained on.
#include "gzip_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define UNPACKED_BYTES_MAX ((size_t)4 << 30)
#define UNPACKED_BYTES_FIRST ((size_t)1 << 20)
#define PIECE_BYTES (1u << 20) // what zlib is asked for at once

static reef_status open_regular(reef_vector_file *file, reef_error *err) {
    struct stat state;
    // Non-blocking, or a pipe without a writer would hold us here; for files it means nothing.
    file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file->fd < 0)
        return reef_fail(err, REEF_ERR_NOT_FOUND, "cannot read '%.160s': %s; check %s", file->path,
                         strerror(errno), errno == EACCES ? "its permissions" : "the path");
    if (fstat(file->fd, &state) != 0)
        return reef_fail(err, REEF_ERR_IO, "cannot stat '%.160s': %s", file->path, strerror(errno));
    if (!S_ISREG(state.st_mode))
        return reef_fail(err, REEF_ERR_NOT_FOUND, "cannot read '%.160s': it is not a regular file",
                         file->path);
    // The size at opening; a file that shrinks later is reported as changed.
    file->bytes = (uint64_t)state.st_size;
    return REEF_OK;
}

static reef_status read_plain(
    const reef_vector_file *file, uint64_t offset, uint8_t *bytes, size_t count, reef_error *err) {
    // pread may return less than asked.
    for (size_t done = 0; done < count;) {
        ssize_t got = pread(file->fd, bytes + done, count - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return reef_fail(err, REEF_ERR_IO, "cannot read '%.160s' at byte %" PRIu64 ": %s",
                             file->path, offset + done, strerror(errno));
        // The promised bytes are gone.
        if (got == 0)
            return reef_fail(err, REEF_ERR_CORRUPT,
                             "'%.160s' ends at byte %" PRIu64 ", but had %" PRIu64
                             " when it was opened: it shrank while it was read",
                             file->path, offset + done, file->bytes);
        done += (size_t)got;
    }
    return REEF_OK;
}

// ---- gzip ---------------------------------------------------------------------------------------

static reef_status fail_damaged(const reef_vector_file *file,
                                size_t at,
                                const char *why,
                                reef_error *err) {
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "cannot unpack '%.120s': %s after %zu unpacked bytes; "
                     "the gzip file is cut or damaged, fetch it again",
                     file->path, why, at);
}

// Room for more of the content; on failure what is there stays the file's.
static reef_status make_room(reef_vector_file *file, size_t *capacity, reef_error *err) {
    // Bounded, because a small packed file may unpack to more than memory.
    if (*capacity >= UNPACKED_BYTES_MAX)
        return reef_fail(
            err, REEF_ERR_INVALID,
            "'%.120s' unpacks to more than %zu bytes, which are held in memory: unpack "
            "it with gunzip and give the plain file",
            file->path, UNPACKED_BYTES_MAX);
    size_t wanted = *capacity ? 2 * *capacity : UNPACKED_BYTES_FIRST;
    uint8_t *grown = realloc(file->content, wanted);
    if (grown == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory: %zu bytes to unpack '%.120s'", wanted,
                         file->path);
    file->content = grown;
    *capacity = wanted;
    return REEF_OK;
}

static reef_status unpack_all(reef_vector_file *file,
                              gzFile packed,
                              size_t *bytes,
                              reef_error *err) {
    size_t capacity = 0;
    // zlib reads a piece at a time; the content is kept as a whole, since rows are read in any
    // order.
    for (*bytes = 0;;) {
        if (*bytes == capacity) {
            reef_status status = make_room(file, &capacity, err);
            if (status != REEF_OK) return status;
        }
        size_t room = capacity - *bytes;
        int got = gzread(packed, file->content + *bytes,
                         room < PIECE_BYTES ? (unsigned)room : PIECE_BYTES);
        int code = Z_OK;
        const char *why = gzerror(packed, &code);
        if (got < 0) return fail_damaged(file, *bytes, why, err);
        *bytes += (size_t)got;
        // A file that was cut ends like any other, but for this.
        if (got == 0) return code == Z_BUF_ERROR ? fail_damaged(file, *bytes, why, err) : REEF_OK;
    }
}

static reef_status unpack(reef_vector_file *file, size_t *bytes, reef_error *err) {
    // A second descriptor: gzdopen takes it over and closes it.
    int fd = open(file->path, O_RDONLY | O_CLOEXEC);
    gzFile packed = fd >= 0 ? gzdopen(fd, "rb") : NULL;
    if (packed == NULL) {
        if (fd >= 0) close(fd);
        return reef_fail(err, REEF_ERR_IO, "cannot unpack '%.160s': %s", file->path,
                         strerror(errno));
    }
    reef_status status = unpack_all(file, packed, bytes, err);
    (void)gzclose(packed); // it was only read
    if (status != REEF_OK) reef_vector_file_rest(file);
    return status;
}

static reef_status unpack_again(reef_vector_file *file, reef_error *err) {
    size_t bytes = 0;
    reef_status status = unpack(file, &bytes, err);
    if (status != REEF_OK || bytes == file->bytes) return status;
    reef_vector_file_rest(file);
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "'%.120s' unpacks to %zu bytes now, but to %" PRIu64
                     " when it was opened: it was replaced",
                     file->path, bytes, file->bytes);
}

// ---- life ---------------------------------------------------------------------------------------

reef_status reef_vector_file_open(reef_vector_file *file, const char *path, reef_error *err) {
    *file = (reef_vector_file){.fd = -1, .path = strdup(path)};
    if (file->path == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a path");
    uint8_t magic[2] = {0};
    size_t bytes = 0;
    reef_status status = open_regular(file, err);
    // Packed or plain is decided by the first two bytes, not by the name.
    if (status == REEF_OK && file->bytes >= sizeof(magic))
        status = read_plain(file, 0, magic, sizeof(magic), err);
    file->packed = magic[0] == 0x1f && magic[1] == 0x8b;
    if (status == REEF_OK && file->packed) {
        status = unpack(file, &bytes, err);
        file->bytes = bytes;
    }
    if (status != REEF_OK) reef_vector_file_close(file);
    return status;
}

reef_status reef_vector_file_lend(
    reef_vector_file *file, const char *name, const uint8_t *bytes, size_t count, reef_error *err) {
    *file = (reef_vector_file){.fd = -1, .path = strdup(name), .bytes = count, .lent = true};
    if (file->path == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a name");
    file->content = (uint8_t *)bytes; // only read
    return REEF_OK;
}

void reef_vector_file_rest(reef_vector_file *file) {
    if (file->lent) return;
    free(file->content);
    file->content = NULL;
}

void reef_vector_file_close(reef_vector_file *file) {
    if (file->path != NULL && file->fd >= 0) close(file->fd);
    reef_vector_file_rest(file);
    free(file->path);
    *file = (reef_vector_file){.fd = -1};
}

reef_status reef_vector_file_read(
    reef_vector_file *file, uint64_t offset, void *bytes, size_t count, reef_error *err) {
    assert(offset <= file->bytes && count <= file->bytes - offset);
    if (!file->packed && !file->lent) return read_plain(file, offset, bytes, count, err);
    reef_status status = file->content != NULL ? REEF_OK : unpack_again(file, err);
    if (status == REEF_OK) memcpy(bytes, file->content + offset, count);
    return status;
}
