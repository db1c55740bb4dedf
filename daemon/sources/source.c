// Sources by their kinds, and the reader on the loop; see reef_source.h.
//
// The free space of a queue is lent to the read itself, so bytes of files are never copied
// on the way:
//
//   resume --> reef_training_space --> read --> reef_input_took --> reef_training_fill --> resume
//                                         '---> reef_input_ended --> the queue's next source
#include "reef_source.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- names --------------------------------------------------------------------------------------

#define HASH_DIGITS 16

// FNV-1a, only to tell long names apart.
static uint64_t name_hash(const char *text, size_t bytes) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    return hash;
}

void reef_source_name(char *out, size_t max, const char *text, size_t bytes) {
    // Jansson decides what is UTF-8: the name becomes part of JSON and of a record key.
    json_t *json = json_stringn(text, bytes);
    bool plain = json != NULL && bytes <= max;
    json_decref(json);
    if (plain) {
        memcpy(out, text, bytes);
        out[bytes] = 0;
        return;
    }
    // Too long, or not UTF-8: a hash keeps it unique and the end of the path keeps it readable.
    size_t room = max - HASH_DIGITS - 2;
    size_t kept = bytes > room ? room : bytes;
    snprintf(out, max + 1, "#%016" PRIx64 "-%.*s", name_hash(text, bytes), (int)kept,
             text + bytes - kept);
    // A cut may fall inside a character.
    for (char *at = out; *at; at++)
        if ((unsigned char)*at >= 0x80) *at = '?';
}

// ---- specs --------------------------------------------------------------------------------------

void reef_input_close(reef_input *input) {
    if (input->kind != NULL && input->state != NULL) input->kind->close(input);
    input->state = NULL;
    free(input->rest);
    input->rest = NULL;
}

reef_status reef_input_seek(reef_input *input, const reef_input_offset *offset, reef_error *err) {
    input->offset = offset->cursor;
    return input->kind->seek(input, offset, err);
}

// ---- answers ------------------------------------------------------------------------------------

// Whether a client waits for the reply. After a stop nobody does.
static bool is_awaited(reef_input *input) {
    assert(input->busy);
    input->busy = false;
    return !input->stopped;
}

void reef_input_took(reef_input *input, size_t count, char *checkpoint) {
    if (!is_awaited(input)) {
        free(checkpoint);
        return;
    }
    uint64_t begin = input->offset;
    input->offset += count;
    if (input->bytes != REEF_BYTES_UNKNOWN && input->bytes < input->offset)
        input->bytes = input->offset;
    input->sink->took(input, count, begin, checkpoint);
}

void reef_input_ended(reef_input *input) {
    if (is_awaited(input)) input->sink->ended(input);
}

void reef_input_failed(reef_input *input, const reef_error *err) {
    if (is_awaited(input)) input->sink->failed(input, err);
}

void reef_input_warn(reef_input *input, const char *event, const char *format, ...) {
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    reef_report_warning(input->report, event, "%s", text);
}
