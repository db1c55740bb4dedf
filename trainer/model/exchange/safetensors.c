// See safetensors.h.
#include "safetensors.h"

#include "reef_json_build.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LENGTH_BYTES 8
#define ALIGNMENT 8 // of the data
#define METADATA "__metadata__"

static const struct {
    const char *name;
    reef_dtype dtype;
    uint64_t bytes;
} TYPES[] = {
    {"F32", REEF_F32, 4},
    {"I8", REEF_I8, 1},
    {"U8", REEF_BYTES, 1},
    {"I64", REEF_U64, 8}, // counts: PyTorch has no 64 bits without a sign
};
#define TYPE_COUNT (sizeof(TYPES) / sizeof(*TYPES))

static size_t type_of(reef_dtype dtype) {
    size_t i = 0;
    while (i < TYPE_COUNT && TYPES[i].dtype != dtype) i++;
    assert(i < TYPE_COUNT);
    return i;
}

uint64_t reef_safetensor_bytes(const reef_safetensor *tensor) {
    uint64_t bytes = TYPES[type_of(tensor->dtype)].bytes;
    for (size_t i = 0; i < tensor->rank; i++)
        if (__builtin_mul_overflow(bytes, tensor->shape[i], &bytes)) return UINT64_MAX;
    return bytes;
}

static reef_status fail_errno(reef_error *err, int code, const char *doing, const char *path) {
    reef_status status = code == ENOSPC || code == EDQUOT    ? REEF_ERR_FULL
                         : code == ENOENT || code == ENOTDIR ? REEF_ERR_NOT_FOUND
                         : code == EACCES || code == EISDIR  ? REEF_ERR_NOT_FOUND
                         : code == ENOMEM                    ? REEF_ERR_NO_MEMORY
                                                             : REEF_ERR_IO;
    return reef_fail(err, status, "cannot %s %.160s: %s", doing, path, strerror(code));
}

static reef_status no_memory(reef_error *err, const char *path) {
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the file %.160s", path);
}

// ---- writing ------------------------------------------------------------------------------------

struct reef_safetensors_writer {
    char *path, *part;
    FILE *file; // of `part`; it exists as long as this is not NULL
    uint64_t bytes_left;
};

static json_t *shape_json(const reef_safetensor *tensor) {
    json_t *shape = json_array();
    for (size_t i = 0; i < tensor->rank; i++)
        reef_json_append(&shape, json_integer((json_int_t)tensor->shape[i]));
    return shape;
}

// The header with its length and padding, on the heap; NULL when out of memory.
static char *header_text(const json_t *metadata,
                         size_t tensor_count,
                         const reef_safetensor *tensors,
                         size_t *bytes) {
    char *text = NULL, *whole = NULL;
    json_t *header = json_pack("{s:O}", METADATA, metadata);
    bool complete = header != NULL;
    for (size_t i = 0; complete && i < tensor_count; i++) {
        const reef_safetensor *tensor = &tensors[i];
        // json_pack returns NULL without memory, and setting NULL fails: one check for all.
        json_t *one = json_pack("{s:s, s:o, s:[I, I]}", "dtype", TYPES[type_of(tensor->dtype)].name,
                                "shape", shape_json(tensor), "data_offsets",
                                (json_int_t)tensor->begin, (json_int_t)tensor->end);
        complete = json_object_set_new(header, tensor->name, one) == 0; // refuses NULL
    }
    if (complete) text = json_dumps(header, JSON_COMPACT);
    json_decref(header);
    if (text == NULL) return NULL;
    // Padded with spaces, so that the data begins at a multiple of eight and can be mapped.
    size_t length = strlen(text), padded = (length + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    *bytes = LENGTH_BYTES + padded;
    whole = malloc(*bytes);
    if (whole != NULL) {
        // The length is little-endian, whatever the machine.
        for (size_t i = 0; i < LENGTH_BYTES; i++) whole[i] = (char)(padded >> (8 * i));
        memset(whole + LENGTH_BYTES, ' ', padded);
        memcpy(whole + LENGTH_BYTES, text, length);
    }
    free(text);
    return whole;
}

static reef_status check_offset(const char *path, bool force, reef_error *err) {
    struct stat info;
    reef_status status = reef_store_check_output(path, err);
    if (status != REEF_OK) return status;
    if (stat(path, &info) != 0) return REEF_OK; // or creating says why not
    // A directory or device would be replaced or written to.
    if (!S_ISREG(info.st_mode))
        return reef_fail(err, REEF_ERR_INVALID,
                         "cannot write %.160s: it exists and is not a regular file", path);
    return force ? REEF_OK
                 : reef_fail(err, REEF_ERR_INVALID,
                             "cannot write %.160s: it exists; choose another name, or replace it "
                             "with --force",
                             path);
}

// ---- PART ---------------------------------------------------------------------------------------
//
// An export locks PART from its first byte until it is renamed or deleted. A PART without a lock
// was left by an export that was killed: it is overwritten, if it looks like one, since the name
// could be of another file.

#define PART_ATTEMPTS_MAX 10 // another export ends between two steps of this one
#define BEGINNING "{\"" METADATA "\":{"

// Empty, or the beginning of a file as this one will be, as far as it got.
static bool is_left_over(int fd) {
    char have[LENGTH_BYTES + sizeof(BEGINNING) - 1];
    ssize_t count = pread(fd, have, sizeof(have), 0);
    if (count < 0) return false;
    size_t begun = (size_t)count > LENGTH_BYTES ? (size_t)count - LENGTH_BYTES : 0;
    return memcmp(have + LENGTH_BYTES, BEGINNING, begun) == 0;
}

// Does PART still have this file's name? Whoever had it locked has renamed or removed it before
// letting go.
static bool is_still_there(const char *part, int fd) {
    struct stat there, here;
    return lstat(part, &there) == 0 && fstat(fd, &here) == 0 && there.st_dev == here.st_dev &&
           there.st_ino == here.st_ino;
}

static reef_status part_lock(reef_safetensors_writer *writer, int fd, reef_error *err) {
    struct stat info;
    if (fstat(fd, &info) != 0) return fail_errno(err, errno, "stat", writer->part);
    // Two exports to one name would write into one another; the lock lasts as long as the
    // descriptor.
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK
                   ? reef_fail(err, REEF_ERR_INVALID,
                               "cannot write %.80s: another export is writing %.80s", writer->path,
                               writer->part)
                   : fail_errno(err, errno, "lock", writer->part);
    // Only an own unfinished file is replaced: any other may belong to a user.
    if (S_ISREG(info.st_mode) && is_left_over(fd)) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "cannot write %.80s: %.80s exists and was not left by an export; move it away",
                     writer->path, writer->part);
}

static reef_status part_open(reef_safetensors_writer *writer, int *out, reef_error *err) {
    // Between open and lock another export may have finished and removed the file; then the next
    // attempt makes a new one.
    for (int i = 0; i < PART_ATTEMPTS_MAX; i++) {
        // Neither followed nor waited for, whatever lies there.
        int fd = open(writer->part, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
        if (fd < 0) return fail_errno(err, errno, "create", writer->part);
        reef_status status = part_lock(writer, fd, err);
        if (status == REEF_OK && is_still_there(writer->part, fd)) {
            *out = fd;
            return REEF_OK;
        }
        close(fd);
        if (status != REEF_OK) return status;
    }
    return reef_fail(err, REEF_ERR_BUSY, "cannot write %.160s: other exports come and go",
                     writer->path);
}

static reef_status part_create(reef_safetensors_writer *writer, reef_error *err) {
    int fd = -1;
    reef_status status = part_open(writer, &fd, err);
    if (status != REEF_OK) return status;
    if (ftruncate(fd, 0) != 0)
        status = fail_errno(err, errno, "empty", writer->part);
    else if ((writer->file = fdopen(fd, "wb")) == NULL)
        status = no_memory(err, writer->path);
    if (status == REEF_OK) return REEF_OK;
    // Nothing is left behind under the temporary name.
    (void)unlink(writer->part);
    close(fd);
    return status;
}

static reef_status write_bytes(reef_safetensors_writer *writer,
                               const void *data,
                               size_t bytes,
                               reef_error *err) {
    return fwrite(data, 1, bytes, writer->file) == bytes
               ? REEF_OK
               : fail_errno(err, errno, "write", writer->part);
}

static reef_status begin(reef_safetensors_writer *writer,
                         const char *path,
                         const char *header,
                         size_t header_bytes,
                         reef_error *err) {
    size_t size = strlen(path) + sizeof ".part";
    writer->path = strdup(path);
    writer->part = malloc(size);
    if (writer->path == NULL || writer->part == NULL) return no_memory(err, path);
    snprintf(writer->part, size, "%s.part", path);
    reef_status status = part_create(writer, err);
    return status == REEF_OK ? write_bytes(writer, header, header_bytes, err) : status;
}

reef_status reef_safetensors_create(reef_safetensors_writer **out,
                                    const char *path,
                                    bool force,
                                    const json_t *metadata,
                                    size_t tensor_count,
                                    const reef_safetensor *tensors,
                                    reef_error *err) {
    size_t header_bytes = 0;
    *out = NULL;
    reef_status status = check_offset(path, force, err);
    if (status != REEF_OK) return status;
    char *header = header_text(metadata, tensor_count, tensors, &header_bytes);
    reef_safetensors_writer *writer = calloc(1, sizeof(*writer));
    if (header == NULL || writer == NULL) {
        status = no_memory(err, path);
    } else if (header_bytes > LENGTH_BYTES + REEF_SAFETENSORS_HEADER_BYTES_MAX) {
        status = reef_fail(err, REEF_ERR_INVALID,
                           "cannot write %.120s: its header has %zu bytes of at most %u", path,
                           header_bytes - LENGTH_BYTES, REEF_SAFETENSORS_HEADER_BYTES_MAX);
    } else {
        // The last tensor's end is the amount that has to be written.
        writer->bytes_left = tensor_count == 0 ? 0 : tensors[tensor_count - 1].end;
        status = begin(writer, path, header, header_bytes, err);
    }
    free(header);
    if (status == REEF_OK)
        *out = writer; // the caller owns it now
    else
        reef_safetensors_abandon(writer);
    return status;
}

reef_status reef_safetensors_write(reef_safetensors_writer *writer,
                                   const void *data,
                                   size_t bytes,
                                   reef_error *err) {
    assert(bytes <= writer->bytes_left);
    writer->bytes_left -= bytes;
    return write_bytes(writer, data, bytes, err);
}

static reef_status parent_sync(const char *path, reef_error *err) {
    char *copy = strdup(path); // dirname may cut it
    if (copy == NULL) return no_memory(err, path);
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    reef_status status = REEF_OK;
    // Some file systems refuse to sync a directory (EINVAL): then there is nothing to be done.
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL))
        status = fail_errno(err, errno, "sync the directory of", path);
    if (fd >= 0) close(fd);
    free(copy);
    return status;
}

reef_status reef_safetensors_finish(reef_safetensors_writer *writer,
                                    uint64_t *file_bytes,
                                    reef_error *err) {
    // Every promised byte has been written; our own code would be wrong otherwise.
    assert(writer->bytes_left == 0);
    reef_status status = REEF_OK;
    struct stat info;
    // Data on the disk before the name: a crash leaves the old file or the new one, never a part.
    if (fflush(writer->file) != 0 || fsync(fileno(writer->file)) != 0 ||
        fstat(fileno(writer->file), &info) != 0) {
        status = fail_errno(err, errno, "write", writer->part);
        goto cleanup;
    }
    if (rename(writer->part, writer->path) != 0) {
        status = fail_errno(err, errno, "write", writer->path);
        goto cleanup;
    }
    (void)fclose(writer->file); // all of it is on the disk
    writer->file = NULL;
    // The rename itself is durable only with the directory.
    status = parent_sync(writer->path, err);
    if (file_bytes != NULL) *file_bytes = (uint64_t)info.st_size;

cleanup:
    reef_safetensors_abandon(writer);
    return status;
}

void reef_safetensors_abandon(reef_safetensors_writer *writer) {
    if (writer == NULL) return;
    if (writer->file != NULL) {
        (void)unlink(writer->part); // as long as it is locked
        (void)fclose(writer->file);
    }
    free(writer->path);
    free(writer->part);
    free(writer);
}
