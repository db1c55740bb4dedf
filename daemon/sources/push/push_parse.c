// See push_parse.h.
#include "push_parse.h"

#include "reef_push_journal.h"
#include "reef_store.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_FIRST 4096

/** A batch that is being built, and the record that is being parsed. */
typedef struct maker {
    reef_ingested *out;
    size_t room;
    const char *unit; // "line" or "record"
    uint64_t number;  // of it, from 1
} maker;

void reef_ingested_release(reef_ingested *ingested) {
    free(ingested->bytes);
    *ingested = (reef_ingested){0};
}

static reef_status too_much(reef_error *err) {
    return reef_fail(err, REEF_ERR_INVALID, "the batch has more than %u bytes: send several",
                     REEF_JOURNAL_BATCH_BYTES_MAX);
}

// `count` more bytes at the end of the batch, not yet written.
static reef_status extend(maker *m, size_t count, uint8_t **at, reef_error *err) {
    reef_ingested *out = m->out;
    // One batch is one journal transaction and must fit in memory several times.
    if (count > REEF_JOURNAL_BATCH_BYTES_MAX - out->count) return too_much(err);
    size_t room = m->room ? m->room : ROOM_FIRST;
    // Doubling; a batch is built record by record.
    while (room < out->count + count) room *= 2;
    if (room != m->room) {
        uint8_t *grown = realloc(out->bytes, room);
        if (grown == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a batch");
        out->bytes = grown;
        m->room = room;
    }
    *at = out->bytes + out->count;
    out->count += count;
    return REEF_OK;
}

static reef_status bad_record(const maker *m, const char *why, reef_error *err) {
    return reef_fail(err, REEF_ERR_INVALID, "%s %" PRIu64 ": %.160s", m->unit, m->number, why);
}

// ---- text ---------------------------------------------------------------------------------------

static reef_status add_text(maker *m, const char *text, size_t bytes, reef_error *err) {
    uint8_t *at = NULL;
    bool ended = bytes > 0 && text[bytes - 1] == '\n';
    if (bytes > REEF_JOURNAL_BATCH_BYTES_MAX) return too_much(err);
    reef_status status = extend(m, bytes + !ended, &at, err);
    if (status != REEF_OK) return status;
    if (bytes > 0) memcpy(at, text, bytes);
    if (!ended) at[bytes] = '\n';
    return REEF_OK;
}

static reef_status parse_text(maker *m, const uint8_t *body, size_t bytes, reef_error *err) {
    if (bytes == 0) return REEF_OK;
    reef_status status = add_text(m, (const char *)body, bytes, err);
    for (size_t i = 0; status == REEF_OK && i < m->out->count; i++)
        m->out->records += m->out->bytes[i] == '\n';
    return status;
}

// ---- JSON ---------------------------------------------------------------------------------------

static reef_status add_object(maker *m, const json_t *object, reef_error *err) {
    const json_t *text = json_object_get(object, "text");
    m->out->records++;
    if (!json_is_object(object)) return bad_record(m, "no object such as {\"text\": \"...\"}", err);
    if (!json_is_string(text)) return bad_record(m, "no \"text\" that is a string", err);
    return add_text(m, json_string_value(text), json_string_length(text), err);
}

static reef_status add_line(maker *m, const char *line, size_t bytes, reef_error *err) {
    json_error_t fault;
    bool blank = true;
    // A zero byte is not blank.
    for (size_t i = 0; i < bytes && blank; i++) blank = strchr(" \t\r", line[i]) != NULL && line[i];
    if (blank) return REEF_OK;
    // JSON_ALLOW_NUL: text of a record may contain \u0000.
    json_t *object = json_loadb(line, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &fault);
    if (object == NULL) {
        char why[128];
        snprintf(why, sizeof(why), "no JSON: %.80s", fault.text);
        return bad_record(m, why, err);
    }
    reef_status status = add_object(m, object, err);
    json_decref(object);
    return status;
}

static reef_status parse_lines(maker *m, const char *body, size_t bytes, reef_error *err) {
    reef_status status = REEF_OK;
    m->unit = "line";
    while (status == REEF_OK && bytes > 0) {
        // The last line need not end in a newline.
        const char *end = memchr(body, '\n', bytes);
        size_t length = end != NULL ? (size_t)(end - body) : bytes;
        m->number++;
        status = add_line(m, body, length, err);
        body += length + (end != NULL);
        bytes -= length + (end != NULL);
    }
    return status;
}

// ---- the whole ----------------------------------------------------------------------------------

static reef_status finish_batch(maker *m, reef_status status, reef_error *err) {
    if (status == REEF_OK && m->out->count == 0)
        status = reef_fail(err, REEF_ERR_INVALID, "nothing was pushed: the batch is empty");
    if (status != REEF_OK) reef_ingested_release(m->out);
    return status;
}

reef_status reef_ingest_parse(reef_ingested *out,
                              reef_ingest_format format,
                              const uint8_t *body,
                              size_t bytes,
                              reef_error *err) {
    *out = (reef_ingested){0};
    maker m = {.out = out};
    reef_status status = REEF_OK;
    // All formats fill the same batch; finish_batch releases it after an error.
    switch (format) {
    case REEF_INGEST_TEXT:
        status = parse_text(&m, body, bytes, err);
        break;
    case REEF_INGEST_JSONL:
        status = parse_lines(&m, (const char *)body, bytes, err);
        break;
    }
    return finish_batch(&m, status, err);
}
