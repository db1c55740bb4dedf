// See train_stream.h. Sources are opened by the daemon's own code, so that both take the same names
// and keep the same cursors.
#include "train_stream.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define READ_BYTES 65536

static reef_status open_one(reef_train_stream *stream, const char *spec, reef_error *err) {
    if (strcmp(spec, "-") == 0)
        // Standard input cannot be read again after an interrupt.
        return reef_fail(err, REEF_ERR_INVALID,
                         "standard input cannot be read again after a restart: "
                         "train on files, or use reefd --source -");
    // The order of matching files could change between two calls.
    if (strncmp(spec, "glob:", 5) == 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "'%.100s' is a pattern that reefd expands; "
                         "for reef train the shell does: give %.100s without quotes",
                         spec, spec + 5);
    reef_input *file = &stream->files[stream->count++];
    reef_status status = reef_input_open(file, spec, err);
    // Only the kind is named: the rest of the words may hold a password.
    if (file->kind != NULL && file->kind->read_now == NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "a source %.*s: has no end: give files, "
                         "or let reefd read it (reefd --source)",
                         (int)strcspn(spec, ":"), spec);
    if (status != REEF_OK) return status;
    // By the name under which the pool keeps its position, so that two spellings are found.
    for (size_t i = 0; i + 1 < stream->count; i++)
        if (strcmp(file->name, stream->files[i].name) == 0)
            return reef_fail(err, REEF_ERR_INVALID,
                             "the file '%.160s' is given twice; each is read once", spec);
    // Where the next file begins.
    stream->starts[stream->count] = stream->starts[stream->count - 1] + file->bytes;
    return REEF_OK;
}

reef_status reef_train_stream_open(reef_train_stream *stream,
                                   char **specs,
                                   size_t count,
                                   reef_error *err) {
    *stream = (reef_train_stream){.files = reef_cli_alloc(count, sizeof(*stream->files)),
                                  .starts = reef_cli_alloc(count + 1, sizeof(*stream->starts)),
                                  .buffer = reef_cli_alloc(READ_BYTES, 1)};
    reef_status status = REEF_OK;
    for (size_t i = 0; i < count && status == REEF_OK; i++)
        status = open_one(stream, specs[i], err);
    // An empty stream would end as a success that did nothing.
    if (status == REEF_OK && reef_train_stream_bytes(stream) == 0)
        status =
            reef_fail(err, REEF_ERR_NOT_FOUND, "the stream is empty: %s%.160s has not one byte",
                      count > 1 ? "none of the files from " : "", specs[0]);
    return status;
}

// The pool keeps its sources in the order in which they were first read. The files that were read
// must have the same order here.
static reef_status check_order(const reef_train_stream *stream,
                               const reef_trainer *trainer,
                               reef_error *err) {
    const char *before = NULL; // the last file so far that was read
    for (size_t i = 0; i < stream->count; i++) {
        const char *name = stream->files[i].name;
        // Not read yet, so its position is free.
        if (reef_trainer_cursor(trainer, name) == 0) continue;
        if (before != NULL &&
            reef_trainer_source_index(trainer, name) < reef_trainer_source_index(trainer, before))
            return reef_fail(err, REEF_ERR_INVALID,
                             "the pool has read '%.70s' before '%.70s': "
                             "give the files in the order in which they were trained",
                             name, before);
        before = name;
    }
    return REEF_OK;
}

static reef_status seek_once(reef_train_stream *stream,
                             const reef_trainer *trainer,
                             reef_error *err) {
    for (size_t i = 0; i < stream->count; i++) {
        uint64_t cursor = reef_trainer_cursor(trainer, stream->files[i].name);
        // Also checks that the beginning of the file has not changed.
        reef_status status =
            reef_input_seek(&stream->files[i], &(reef_input_offset){.cursor = cursor}, err);
        if (status != REEF_OK) return status;
        // A file is read only after those before it: otherwise an earlier one has grown.
        if (cursor > 0 && stream->at != stream->starts[i])
            return reef_fail(err, REEF_ERR_INVALID,
                             "the pool has read '%.120s', but not all of the files before it: give "
                             "the files in the order in which they were trained",
                             stream->files[i].name);
        stream->at += cursor;
    }
    return REEF_OK;
}

reef_status reef_train_stream_seek(reef_train_stream *stream,
                                   const reef_trainer *trainer,
                                   reef_error *err) {
    stream->at = 0;
    reef_status status = seek_once(stream, trainer, err);
    return status != REEF_OK ? status : check_order(stream, trainer, err);
}

void reef_train_stream_release(reef_train_stream *stream) {
    for (size_t i = 0; i < stream->count; i++) reef_input_close(&stream->files[i]);
    free(stream->files);
    free(stream->starts);
    free(stream->buffer);
    *stream = (reef_train_stream){0};
}

uint64_t reef_train_stream_bytes(const reef_train_stream *stream) {
    return stream->starts[stream->count];
}

// The file that holds the next byte.
static size_t next_file(const reef_train_stream *stream) {
    size_t file = 0;
    while (file + 1 < stream->count && stream->at >= stream->starts[file + 1]) file++;
    return file;
}

reef_status reef_train_stream_read(reef_train_stream *stream,
                                   const char **name,
                                   const uint8_t **bytes,
                                   size_t *count,
                                   reef_error *err) {
    size_t i = next_file(stream);
    reef_input *file = &stream->files[i];
    // Never across a file.
    uint64_t end = stream->starts[i + 1], offset = stream->at - stream->starts[i];
    size_t want = end - stream->at < READ_BYTES ? (size_t)(end - stream->at) : READ_BYTES;
    reef_status status = file->kind->read_now(file, offset, stream->buffer, want, count, err);
    if (status != REEF_OK) return status;
    *name = file->name;
    *bytes = stream->buffer;
    // read_now() returns nothing only at the end of the file, which cannot be here.
    if (*count > 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "reading '%.160s' at byte %" PRIu64 ": the file shrank while it was read",
                     file->label, offset);
}
