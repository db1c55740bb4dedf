// See safetensors.h. What is read from a file is believed only after it was checked here.
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

// ---- reading ------------------------------------------------------------------------------------

static reef_status broken(const reef_safetensors *file, reef_error *err, const char *why) {
    return reef_fail(err, REEF_ERR_CORRUPT, "%.100s is not a whole safetensors file: %.120s",
                     file->path, why);
}

static reef_status broken_tensor(const reef_safetensors *file,
                                 reef_error *err,
                                 const char *name,
                                 const char *why) {
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "%.80s is not a whole safetensors file: tensor %.64s %.60s", file->path, name,
                     why);
}

static reef_status read_at(
    const reef_safetensors *file, uint64_t at, void *out, size_t bytes, reef_error *err) {
    char *to = out;
    // pread may return less than asked, at signals and on some file systems.
    while (bytes > 0) {
        ssize_t got = pread(file->fd, to, bytes, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail_errno(err, errno, "read", file->path);
        // The header promised more.
        if (got == 0) return broken(file, err, "it is shorter than its header says");
        to += got;
        at += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return REEF_OK;
}

static bool shape_parse(reef_safetensor *tensor, const json_t *shape) {
    size_t i;
    json_t *value;
    tensor->rank = json_array_size(shape);
    if (!json_is_array(shape) || tensor->rank > REEF_TENSOR_RANK_MAX) return false;
    json_array_foreach(shape, i, value) {
        if (!json_is_integer(value) || json_integer_value(value) < 0) return false;
        tensor->shape[i] = (uint64_t)json_integer_value(value);
    }
    return true;
}

static reef_status tensor_parse(reef_safetensors *file,
                                const char *name,
                                json_t *value,
                                reef_safetensor *tensor,
                                reef_error *err) {
    const char *type = NULL;
    json_t *shape = NULL;
    json_int_t begin = 0, end = 0;
    // Names become record keys.
    if (name[0] == '\0' || strlen(name) > REEF_NAME_BYTES_MAX)
        return broken_tensor(file, err, name, "has no name of 1 to 64 bytes");
    strcpy(tensor->name, name);
    if (json_unpack(value, "{s:s, s:o, s:[I, I!] !}", "dtype", &type, "shape", &shape,
                    "data_offsets", &begin, &end) != 0)
        return broken_tensor(file, err, name, "has more or less than dtype, shape, data_offsets");
    size_t i = 0;
    // Unknown types cannot be skipped: their size would be unknown.
    while (i < TYPE_COUNT && strcmp(TYPES[i].name, type) != 0) i++;
    if (i == TYPE_COUNT) return broken_tensor(file, err, name, "is none of F32, I8, U8 and I64");
    tensor->dtype = TYPES[i].dtype;
    if (!shape_parse(tensor, shape)) return broken_tensor(file, err, name, "has no known shape");
    if (begin < 0 || end < begin || (uint64_t)end > file->data_bytes)
        return broken_tensor(file, err, name, "lies outside of the data");
    tensor->begin = (uint64_t)begin;
    tensor->end = (uint64_t)end;
    // Offsets and shape say the same thing twice; a file in which they differ is broken.
    if (reef_safetensor_bytes(tensor) != tensor->end - tensor->begin)
        return broken_tensor(file, err, name, "has another size than its shape");
    return REEF_OK;
}

static reef_status metadata_parse(reef_safetensors *file, json_t *metadata, reef_error *err) {
    const char *name;
    json_t *value;
    if (!json_is_object(metadata)) return broken(file, err, METADATA " is not an object of texts");
    json_object_foreach(metadata, name, value) {
        if (!json_is_string(value)) return broken(file, err, METADATA " is not an object of texts");
    }
    file->metadata = json_incref(metadata);
    return REEF_OK;
}

static int by_offset(const void *a, const void *b) {
    const reef_safetensor *one = a, *other = b;
    if (one->begin != other->begin) return one->begin < other->begin ? -1 : 1;
    return (one->end > other->end) - (one->end < other->end);
}

static reef_status check_offsets(reef_safetensors *file, reef_error *err) {
    uint64_t at = 0;
    // Tensors may be listed in any order, but must cover the data exactly, as the format demands.
    qsort(file->tensors, file->tensor_count, sizeof(*file->tensors), by_offset);
    for (size_t i = 0; i < file->tensor_count; i++) {
        const reef_safetensor *tensor = &file->tensors[i];
        if (tensor->begin != at)
            return broken_tensor(file, err, tensor->name,
                                 tensor->begin < at ? "overlaps another one"
                                                    : "comes after a gap in the data");
        at = tensor->end;
    }
    return at == file->data_bytes ? REEF_OK
                                  : broken(file, err, "its data is longer than its tensors");
}

static reef_status header_parse(reef_safetensors *file, json_t *header, reef_error *err) {
    const char *name;
    json_t *value;
    reef_status status = REEF_OK;
    if (!json_is_object(header)) return broken(file, err, "its header is not a JSON object");
    file->tensors = calloc(json_object_size(header) + 1, sizeof(*file->tensors));
    if (file->tensors == NULL) return no_memory(err, file->path);
    // One tensor per member, besides the metadata.
    json_object_foreach(header, name, value) {
        status = strcmp(name, METADATA) == 0
                     ? metadata_parse(file, value, err)
                     : tensor_parse(file, name, value, &file->tensors[file->tensor_count++], err);
        if (status != REEF_OK) return status;
    }
    if (file->metadata == NULL) file->metadata = json_object();
    if (file->metadata == NULL) return no_memory(err, file->path);
    return check_offsets(file, err);
}

static reef_status header_read(reef_safetensors *file, reef_error *err) {
    struct stat info;
    uint8_t length[LENGTH_BYTES];
    uint64_t bytes = 0;
    json_error_t fault;
    if (fstat(file->fd, &info) != 0) return fail_errno(err, errno, "stat", file->path);
    if (!S_ISREG(info.st_mode))
        return reef_fail(err, REEF_ERR_INVALID, "cannot read %.160s: it is not a regular file",
                         file->path);
    // The size of the file bounds everything that its header claims.
    uint64_t file_bytes = (uint64_t)info.st_size;
    if (file_bytes < LENGTH_BYTES) return broken(file, err, "it has less than 8 bytes");
    reef_status status = read_at(file, 0, length, sizeof(length), err);
    if (status != REEF_OK) return status;
    for (size_t i = LENGTH_BYTES; i > 0; i--) bytes = bytes << 8 | length[i - 1];
    // A length of garbage would otherwise become an allocation.
    if (bytes > REEF_SAFETENSORS_HEADER_BYTES_MAX)
        return broken(file, err, "its header would be larger than 8 MiB");
    if (bytes > file_bytes - LENGTH_BYTES)
        return broken(file, err, "it is shorter than its header");
    char *text = malloc(bytes + 1);
    if (text == NULL) return no_memory(err, file->path);
    file->data_at = LENGTH_BYTES + bytes;
    file->data_bytes = file_bytes - file->data_at;
    status = read_at(file, LENGTH_BYTES, text, bytes, err);
    if (status == REEF_OK) {
        json_t *header = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &fault);
        status =
            header == NULL && reef_json_no_memory(&fault) ? no_memory(err, file->path)
            : header == NULL
                ? reef_fail(err, REEF_ERR_CORRUPT,
                            "%.100s is not a whole safetensors file: its header is not JSON: %.90s",
                            file->path, fault.text)
                : header_parse(file, header, err);
        json_decref(header);
    }
    free(text);
    return status;
}

reef_status reef_safetensors_open(reef_safetensors *file, const char *path, reef_error *err) {
    *file = (reef_safetensors){.fd = -1, .path = strdup(path)};
    reef_status status = REEF_OK;
    if (file->path == NULL) return no_memory(err, path);
    file->fd = open(path, O_RDONLY | O_CLOEXEC);
    status = file->fd < 0 ? fail_errno(err, errno, "open", path) : header_read(file, err);
    if (status != REEF_OK) reef_safetensors_close(file);
    return status;
}

void reef_safetensors_close(reef_safetensors *file) {
    if (file->path != NULL && file->fd >= 0) close(file->fd);
    json_decref(file->metadata);
    free(file->tensors);
    free(file->path);
    *file = (reef_safetensors){.fd = -1};
}

const reef_safetensor *reef_safetensors_find(const reef_safetensors *file, const char *name) {
    for (size_t i = 0; i < file->tensor_count; i++)
        if (strcmp(file->tensors[i].name, name) == 0) return &file->tensors[i];
    return NULL;
}

reef_status reef_safetensors_read(
    const reef_safetensors *file, uint64_t offset, void *out, size_t bytes, reef_error *err) {
    assert(bytes <= file->data_bytes && offset <= file->data_bytes - bytes);
    return read_at(file, file->data_at + offset, out, bytes, err);
}
