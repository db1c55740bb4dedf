// A file that is followed; see followed_part.h.
#include "tail_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define BLOCK_BYTES 65536

static int64_t nanoseconds(struct timespec time) {
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

void reef_sight_of(reef_sight *sight, const char *name, const struct stat *state) {
    *sight = (reef_sight){.device = (uint64_t)state->st_dev,
                          .inode = (uint64_t)state->st_ino,
                          .size = (uint64_t)state->st_size,
                          .written_ns = nanoseconds(state->st_mtim),
                          .changed_ns = nanoseconds(state->st_ctim)};
    snprintf(sight->name, sizeof(sight->name), "%s", name);
}

bool reef_sight_same(const reef_sight *a, const reef_sight *b) {
    return a->inode == b->inode && a->device == b->device && (a->inode || a->device);
}

void reef_part_init(reef_part *part) {
    *part = (reef_part){.fd = -1};
}

void reef_part_shut(reef_part *part) {
    if (part->zip) gzclose(part->zip);
    if (part->fd >= 0) close(part->fd);
    part->zip = NULL;
    part->fd = -1;
}

void reef_part_release(reef_part *part) {
    reef_part_shut(part);
}

static bool open_zip(reef_part *part) {
    int copy = fcntl(part->fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) return false;
    part->zip = gzdopen(copy, "rb");
    if (!part->zip) close(copy);
    return part->zip != NULL;
}

int reef_part_open(reef_part *part, int folder) {
    if (part->fd >= 0) return 0;
    struct stat state;
    // Non-blocking: by now the name may be a pipe without a writer, which would hold us here.
    int fd = openat(folder, part->sight.name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return errno;
    reef_sight sight;
    int code = fstat(fd, &state) != 0 ? errno : 0;
    if (!code) reef_sight_of(&sight, part->sight.name, &state);
    if (!code && (!S_ISREG(state.st_mode) || !reef_sight_same(&sight, &part->sight))) code = ESTALE;
    if (code) {
        close(fd);
        return code;
    }
    part->fd = fd;
    if (part->packed && !open_zip(part)) {
        reef_part_shut(part);
        return ENOMEM;
    }
    return 0;
}

static ssize_t read_zip(reef_part *part, uint8_t *at, size_t room, uint64_t from) {
    if ((uint64_t)gztell(part->zip) != from && gzseek(part->zip, (z_off_t)from, SEEK_SET) < 0)
        return -1;
    return gzread(part->zip, at, (unsigned)(room > INT_MAX ? INT_MAX : room));
}

ssize_t reef_part_read(reef_part *part, uint8_t *at, size_t room, uint64_t from) {
    if (part->packed) return read_zip(part, at, room, from);
    size_t done = 0;
    while (done < room) {
        ssize_t count = pread(part->fd, at + done, room - done, (off_t)(from + done));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return -1;
        if (count == 0) break;
        done += (size_t)count;
    }
    return (ssize_t)done;
}

// What does not unpack is another file, or broken; what cannot be read may be neither.
static int zip_error(reef_part *part) {
    int code = Z_OK, error = errno;
    (void)gzerror(part->zip, &code);
    return code == Z_ERRNO && error ? error : ENODATA;
}

int reef_part_measure(reef_part *part) {
    uint8_t block[BLOCK_BYTES];
    uint64_t size = 0;
    ssize_t count = 0;
    errno = 0;
    do {
        count = read_zip(part, block, sizeof(block), size);
        if (count <= 0) break;
        part->last_byte = block[count - 1];
        size += (uint64_t)count;
    } while (size < REEF_UNPACK_BYTES_MAX);
    int code = Z_OK, failed = count < 0 ? zip_error(part) : 0;
    (void)gzerror(part->zip, &code);
    // A file that was cut reads as one that ends, with this code; one that is not packed is read as it is.
    bool whole = count == 0 && (code == Z_OK || code == Z_STREAM_END) && !gzdirect(part->zip);
    gzclearerr(part->zip);
    if (failed && failed != ENODATA) return failed; // its size is not known
    part->size = size;
    return whole ? 0 : ENODATA;
}

int reef_part_hash(reef_part *part, uint32_t count, uint64_t *hash) {
    uint8_t head[REEF_HEAD_BYTES_MAX];
    errno = 0;
    ssize_t got = reef_part_read(part, head, count, 0);
    if (got < 0) return part->packed ? zip_error(part) : errno;
    if (got != (ssize_t)count) return ENODATA;
    *hash = XXH3_64bits(head, count);
    return 0;
}

// Both hashes are of one read: between two the file could be cut, and the longer one be that of a new file.
bool reef_part_head_grow(reef_part *part, uint32_t count) {
    uint8_t head[REEF_HEAD_BYTES_MAX];
    if (reef_part_read(part, head, count, 0) != (ssize_t)count) return false;
    if (part->head_bytes && XXH3_64bits(head, part->head_bytes) != part->head) return false;
    part->head = XXH3_64bits(head, count);
    part->head_bytes = count;
    return true;
}

int reef_part_check_head(reef_part *part) {
    uint64_t hash = 0;
    if (!part->head_bytes) return 0;
    int code = reef_part_hash(part, part->head_bytes, &hash);
    return !code && hash != part->head ? ENODATA : code;
}

static int64_t after_last_newline(const uint8_t *block, size_t count) {
    while (count && block[count - 1] != '\n') count--;
    return (int64_t)count;
}

int64_t reef_part_line_end(reef_part *part, uint64_t from, uint64_t to) {
    uint8_t block[BLOCK_BYTES];
    while (to > from) {
        uint64_t begin = to - from > BLOCK_BYTES ? to - BLOCK_BYTES : from;
        if (reef_part_read(part, block, to - begin, begin) != (ssize_t)(to - begin)) return -1;
        int64_t end = after_last_newline(block, to - begin);
        if (end) return (int64_t)begin + end;
        to = begin;
    }
    return (int64_t)from;
}
