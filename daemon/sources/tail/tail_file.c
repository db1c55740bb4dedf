// A file that is followed; see tail_internal.h.
#include "tail_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define BLOCK_BYTES 65536

static int64_t nanoseconds(struct timespec time) {
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

void reef_file_id_of(reef_file_id *file_id, const char *name, const struct stat *state) {
    *file_id = (reef_file_id){.device = (uint64_t)state->st_dev,
                              .inode = (uint64_t)state->st_ino,
                              .size = (uint64_t)state->st_size,
                              .mtime_ns = nanoseconds(state->st_mtim),
                              .ctime_ns = nanoseconds(state->st_ctim)};
    snprintf(file_id->name, sizeof(file_id->name), "%s", name);
}

bool reef_file_id_same(const reef_file_id *a, const reef_file_id *b) {
    return a->inode == b->inode && a->device == b->device && (a->inode || a->device);
}

void reef_tail_file_init(reef_tail_file *file) {
    *file = (reef_tail_file){.fd = -1};
}

void reef_tail_file_close(reef_tail_file *file) {
    if (file->zip != NULL) gzclose(file->zip);
    if (file->fd >= 0) close(file->fd);
    file->zip = NULL;
    file->fd = -1;
}

static bool open_zip(reef_tail_file *file) {
    int copy = fcntl(file->fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) return false;
    file->zip = gzdopen(copy, "rb");
    if (file->zip == NULL) close(copy);
    return file->zip != NULL;
}

int reef_tail_file_open(reef_tail_file *file, int folder) {
    if (file->fd >= 0) return 0;
    struct stat state;
    // Non-blocking: by now the name may be a pipe without a writer, which would hold us here.
    int fd = openat(folder, file->file_id.name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return errno;
    reef_file_id file_id;
    // Checked after opening: between listing and opening the name may have gone to another file.
    int code = fstat(fd, &state) != 0 ? errno : 0;
    if (!code) reef_file_id_of(&file_id, file->file_id.name, &state);
    if (!code && (!S_ISREG(state.st_mode) || !reef_file_id_same(&file_id, &file->file_id)))
        code = ESTALE;
    if (code) {
        close(fd);
        return code;
    }
    file->fd = fd;
    // Without memory for the decompressor the descriptor is closed again; the next scan retries.
    if (file->is_gzip && !open_zip(file)) {
        reef_tail_file_close(file);
        return ENOMEM;
    }
    return 0;
}

static ssize_t read_zip(reef_tail_file *file, uint8_t *buffer, size_t room, uint64_t from) {
    if ((uint64_t)gztell(file->zip) != from && gzseek(file->zip, (z_off_t)from, SEEK_SET) < 0)
        return -1;
    return gzread(file->zip, buffer, (unsigned)(room > INT_MAX ? INT_MAX : room));
}

ssize_t reef_tail_file_read(reef_tail_file *file, uint8_t *buffer, size_t room, uint64_t from) {
    if (file->is_gzip) return read_zip(file, buffer, room, from);
    size_t done = 0;
    while (done < room) {
        ssize_t count = pread(file->fd, buffer + done, room - done, (off_t)(from + done));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) return -1;
        if (count == 0) break;
        done += (size_t)count;
    }
    return (ssize_t)done;
}

// ENODATA when the file does not decompress: it is broken or not gzip. A failed read says nothing
// about the content, so it returns its own errno.
static int zip_error(reef_tail_file *file) {
    int code = Z_OK, error = errno;
    (void)gzerror(file->zip, &code);
    return code == Z_ERRNO && error ? error : ENODATA;
}

int reef_tail_file_measure(reef_tail_file *file) {
    // The decompressed size is known only after decompressing all of it.
    uint8_t block[BLOCK_BYTES];
    uint64_t size = 0;
    ssize_t count = 0;
    errno = 0;
    do {
        count = read_zip(file, block, sizeof(block), size);
        if (count <= 0) break;
        size += (uint64_t)count;
        // A bound, because a small gzip file may decompress to terabytes.
    } while (size < REEF_UNPACK_BYTES_MAX);
    int code = Z_OK, failed = count < 0 ? zip_error(file) : 0;
    (void)gzerror(file->zip, &code);
    // zlib reads a truncated file to its end and reports the truncation through `code`; a file that
    // is not gzip is read unchanged.
    bool complete = count == 0 && (code == Z_OK || code == Z_STREAM_END) && !gzdirect(file->zip);
    gzclearerr(file->zip);
    if (failed && failed != ENODATA) return failed; // its size is not known
    file->size = size;
    return complete ? 0 : ENODATA;
}

int reef_tail_file_hash(reef_tail_file *file, uint64_t from, uint32_t count, uint64_t *hash) {
    uint8_t bytes[REEF_PREFIX_BYTES_MAX];
    errno = 0;
    ssize_t got = reef_tail_file_read(file, bytes, count, from);
    if (got < 0) return file->is_gzip ? zip_error(file) : errno;
    if (got != (ssize_t)count) return ENODATA;
    *hash = XXH3_64bits(bytes, count);
    return 0;
}

static int hash_before(reef_tail_file *file, uint64_t end, uint64_t *hash) {
    uint32_t count = end < REEF_PREFIX_BYTES_MAX ? (uint32_t)end : REEF_PREFIX_BYTES_MAX;
    return reef_tail_file_hash(file, end - count, count, hash);
}

// Both hashes come from one read. Between two reads the file could be truncated, and the longer
// hash would then be of new content.
bool reef_tail_file_extend_prefix(reef_tail_file *file, uint32_t count) {
    uint8_t prefix[REEF_PREFIX_BYTES_MAX];
    if (reef_tail_file_read(file, prefix, count, 0) != (ssize_t)count) return false;
    // NUL that is not passed over yet may be space that its writer has only reserved.
    while (count > file->offset && !prefix[count - 1]) count--;
    if (count <= file->prefix_bytes) return true;
    if (file->prefix_bytes && XXH3_64bits(prefix, file->prefix_bytes) != file->prefix_hash)
        return false;
    file->prefix_hash = XXH3_64bits(prefix, count);
    file->prefix_bytes = count;
    return true;
}

int reef_tail_file_check_prefix(reef_tail_file *file) {
    uint64_t hash = 0;
    if (!file->prefix_bytes) return 0;
    int code = reef_tail_file_hash(file, 0, file->prefix_bytes, &hash);
    return !code && hash != file->prefix_hash ? ENODATA : code;
}

int reef_tail_file_check_before(reef_tail_file *file, uint64_t end, uint64_t hash) {
    uint64_t found = 0;
    if (!end) return 0;
    int code = hash_before(file, end, &found);
    return !code && found != hash ? ENODATA : code;
}

int reef_tail_file_check(reef_tail_file *file) {
    int code = reef_tail_file_check_prefix(file);
    return code ? code : reef_tail_file_check_before(file, file->seen_end, file->seen_hash);
}

int reef_tail_file_note_seen(reef_tail_file *file, uint64_t end) {
    uint64_t hash = 0;
    if (end <= file->seen_end) return 0;
    int code = hash_before(file, end, &hash);
    // The older bytes after the newer: if they are as they were, no other file came in between. A
    // packed file is not written in place, and going back in it costs as much as all of it.
    if (!code && !file->is_gzip) code = reef_tail_file_check(file);
    if (code) return code;
    file->seen_end = end;
    file->seen_hash = hash;
    return 0;
}

void reef_tail_file_note_read(reef_tail_file *file) {
    // A packed file is never cut, and going back in it costs as much as all of it.
    if (!file->is_gzip && hash_before(file, file->offset, &file->read_hash) == 0)
        file->read_end = file->offset;
}

static int64_t after_last_newline(const uint8_t *block, size_t count) {
    while (count && block[count - 1] != '\n') count--;
    return (int64_t)count;
}

int64_t reef_tail_file_line_end(reef_tail_file *file, uint64_t from, uint64_t to) {
    uint8_t block[BLOCK_BYTES];
    // The end of a line that is given in pieces need not be found.
    const uint64_t first = from;
    if (to - from > REEF_LINE_BYTES_MAX + BLOCK_BYTES)
        from = to - REEF_LINE_BYTES_MAX - BLOCK_BYTES;
    while (to > from) {
        uint64_t begin = to - from > BLOCK_BYTES ? to - BLOCK_BYTES : from;
        if (reef_tail_file_read(file, block, to - begin, begin) != (ssize_t)(to - begin)) return -1;
        int64_t end = after_last_newline(block, to - begin);
        if (end) return (int64_t)begin + end;
        to = begin;
    }
    return (int64_t)first;
}
