// What clients and log shippers push, as lines; see push.h.
//
// Text is taken as it is, and so is a field called "text". Any other field, and the lines of Loki
// and OpenTelemetry, are entries of a log: each becomes one line, as entry_line.h writes it.
// A message that begins with a time of its own gets no other one before it.
#include "push.h"

#include "entry_line.h"
#include "reef_json_build.h"
#include "reef_push_journal.h"
#include "reef_watch.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define ROOM_FIRST 4096
#define TIME_MIN_MS INT64_C(946684800000) // the year 2000; no log is older
#define JSON_FLAGS (JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL)
#define COUNT(list) (sizeof(list) / sizeof(*(list)))

/** A batch that is being built, and the record that is being parsed. */
typedef struct maker {
    const reef_ingest_form *form;
    reef_ingest_notes *notes;
    reef_ingested *all; // (source_count, at least 1)
    size_t *rooms;      // (the same)
    size_t part;        // of these, where the record goes
    const char *unit;   // "line" or "record"
    uint64_t number;    // of it, from 1
} maker;

void reef_ingested_release(reef_ingested *ingested) {
    free(ingested->bytes);
    *ingested = (reef_ingested){0};
}

static size_t part_count(const reef_ingest_form *form) {
    return form->source_count > 0 ? form->source_count : 1;
}

static reef_status no_memory(reef_error *err) {
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a batch");
}

// `count` more bytes at the end of the part, not yet written.
static reef_status extend(maker *m, size_t count, uint8_t **at, reef_error *err) {
    reef_ingested *out = &m->all[m->part];
    // It must fit in memory several times.
    if (count > REEF_PUSH_UNPACKED_BYTES_MAX - out->count) {
        m->notes->too_large = true;
        return reef_fail(err, REEF_ERR_INVALID, "the batch has more than %u bytes: send several",
                         REEF_PUSH_UNPACKED_BYTES_MAX);
    }
    size_t room = m->rooms[m->part] > 0 ? m->rooms[m->part] : ROOM_FIRST;
    // Doubling; a batch is built record by record.
    while (room < out->count + count) room *= 2;
    if (room != m->rooms[m->part]) {
        uint8_t *grown = realloc(out->bytes, room);
        if (grown == NULL) return no_memory(err);
        out->bytes = grown;
        m->rooms[m->part] = room;
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
    reef_status status = extend(m, bytes + !ended, &at, err);
    if (status != REEF_OK) return status;
    if (bytes > 0) memcpy(at, text, bytes);
    if (!ended) at[bytes] = '\n';
    return REEF_OK;
}

static reef_status parse_text(maker *m, const uint8_t *body, size_t bytes, reef_error *err) {
    reef_ingested *out = &m->all[0];
    if (bytes == 0) return REEF_OK;
    reef_status status = add_text(m, (const char *)body, bytes, err);
    for (size_t i = 0; status == REEF_OK && i < out->count; i++)
        out->records += out->bytes[i] == '\n';
    return status;
}

// ---- entries of a log ---------------------------------------------------------------------------

// The first of these that is a time: those of systemd's journal, of OpenTelemetry, and the usual
// ones. The number of digits tells seconds, milli-, micro- and nanoseconds since 1970 apart.
static int64_t time_of(const json_t *record) {
    static const char *const NAMES[] = {"_SOURCE_REALTIME_TIMESTAMP",
                                        "__REALTIME_TIMESTAMP",
                                        "timeUnixNano",
                                        "observedTimeUnixNano",
                                        "time",
                                        "timestamp",
                                        "@timestamp",
                                        "ts",
                                        "date"};
    for (size_t i = 0; i < COUNT(NAMES); i++) {
        const json_t *value = json_object_get(record, NAMES[i]);
        char number[40] = "";
        const char *text = json_is_string(value) ? json_string_value(value) : number;
        if (json_is_integer(value))
            snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        if (json_is_real(value) && json_real_value(value) > 0 && json_real_value(value) < 1e10)
            snprintf(number, sizeof(number), "%.6f", json_real_value(value));
        int64_t ms = 0;
        // Near 1970 lie those that have no year.
        if (reef_line_time((const uint8_t *)text, strlen(text), 0, &ms) && ms >= TIME_MIN_MS)
            return ms;
    }
    return -1;
}

static void copy_word(char *out,
                      const json_t *record,
                      const char *const *names,
                      size_t name_count) {
    out[0] = '\0';
    for (size_t i = 0; i < name_count && out[0] == '\0'; i++) {
        const json_t *value = json_object_get(record, names[i]);
        if (json_is_string(value))
            snprintf(out, REEF_ENTRY_NAME_BYTES_MAX, "%s", json_string_value(value));
        else if (json_is_integer(value))
            snprintf(out, REEF_ENTRY_NAME_BYTES_MAX, "%" JSON_INTEGER_FORMAT,
                     json_integer_value(value));
    }
}

// At its beginning, or in a line of JSON.
static bool has_time(const char *text, size_t bytes) {
    const uint8_t *line = (const uint8_t *)text;
    int64_t ms = 0;
    if (bytes > 0 && text[0] == '{') return reef_line_time(line, bytes, 0, &ms);
    return reef_line_text_at(line, bytes) > 0;
}

// `record` has what else is known of the message; NULL: nothing.
static reef_status add_entry(
    maker *m, const json_t *record, int64_t time_ms, const json_t *message, reef_error *err) {
    static const char *const NAMES[] = {"SYSLOG_IDENTIFIER", "_COMM", "PROGRAM", "ident"};
    static const char *const PIDS[] = {"_PID", "SYSLOG_PID", "PID", "pid"};
    const char *text = json_string_value(message);
    const size_t bytes = json_string_length(message);
    char head[REEF_ENTRY_HEAD_BYTES_MAX];
    char name[REEF_ENTRY_NAME_BYTES_MAX], pid[REEF_ENTRY_NAME_BYTES_MAX];
    size_t head_bytes = 0;
    uint8_t *at = NULL;
    if (!has_time(text, bytes)) {
        copy_word(name, record, NAMES, COUNT(NAMES));
        copy_word(pid, record, PIDS, COUNT(PIDS));
        head_bytes = reef_entry_head(head, time_ms < 0 ? -1 : time_ms * 1000, name, pid);
    }
    reef_status status = extend(m, head_bytes + reef_entry_message(NULL, text, bytes), &at, err);
    if (status != REEF_OK) return status;
    memcpy(at, head, head_bytes);
    (void)reef_entry_message(at + head_bytes, text, bytes);
    m->all[m->part].records++;
    return REEF_OK;
}

// ---- records of any fields ----------------------------------------------------------------------

// The text of a record, or NULL; *name is that of its field.
static const json_t *text_of(const maker *m, const json_t *record, const char **name) {
    static const char *const NAMES[] = {"message", "log", "text", "MESSAGE"};
    for (size_t i = 0; i < COUNT(NAMES); i++) {
        *name = m->form->field != NULL ? m->form->field : NAMES[i];
        const json_t *value = json_object_get(record, *name);
        if (json_is_string(value)) return value;
    }
    return NULL;
}

static reef_status add_record(maker *m, const json_t *record, reef_error *err) {
    const char *name = NULL;
    const json_t *text = text_of(m, record, &name);
    char why[160];
    if (!json_is_object(record))
        return bad_record(m, "no object such as {\"message\": \"...\"}", err);
    if (text == NULL) {
        const bool named = m->form->field != NULL;
        snprintf(
            why, sizeof(why), "no \"%.60s\" that is a string%s", named ? m->form->field : "message",
            named ? "" : ", nor \"log\", \"text\" or \"MESSAGE\": ?field= over HTTP names another");
        return bad_record(m, why, err);
    }
    if (strcmp(name, "text") != 0) return add_entry(m, record, time_of(record), text, err);
    m->all[0].records++;
    return add_text(m, json_string_value(text), json_string_length(text), err);
}

static reef_status no_json(const maker *m, const json_error_t *fault, reef_error *err) {
    char why[128];
    if (reef_json_no_memory(fault)) return no_memory(err);
    snprintf(why, sizeof(why), "no JSON: %.80s", fault->text);
    return bad_record(m, why, err);
}

static size_t blanks(const char *at, size_t bytes, const char *which) {
    size_t count = 0;
    // A zero byte is not blank.
    while (count < bytes && at[count] != '\0' && strchr(which, at[count]) != NULL) count++;
    return count;
}

static reef_status parse_lines(maker *m, const char *body, size_t bytes, reef_error *err) {
    reef_status status = REEF_OK;
    m->unit = "line";
    while (status == REEF_OK && bytes > 0) {
        // The last line need not end in a newline.
        const char *end = memchr(body, '\n', bytes);
        size_t length = end != NULL ? (size_t)(end - body) : bytes;
        m->number++;
        if (blanks(body, length, " \t\r") < length) {
            json_error_t fault;
            json_t *record = json_loadb(body, length, JSON_FLAGS, &fault);
            status = record != NULL ? add_record(m, record, err) : no_json(m, &fault, err);
            json_decref(record);
        }
        body += length + (end != NULL);
        bytes -= length + (end != NULL);
    }
    return status;
}

static reef_status add_value(maker *m, const json_t *value, reef_error *err) {
    if (!json_is_array(value)) {
        m->number++;
        return add_record(m, value, err);
    }
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < json_array_size(value); i++) {
        m->number++;
        status = add_record(m, json_array_get(value, i), err);
    }
    return status;
}

// Some shippers send an array, and some one object behind the other.
static reef_status parse_values(maker *m, const char *body, size_t bytes, reef_error *err) {
    static const char BLANK[] = " \t\r\n";
    reef_status status = REEF_OK;
    size_t at = blanks(body, bytes, BLANK);
    while (status == REEF_OK && at < bytes) {
        json_error_t fault;
        json_t *value =
            json_loadb(body + at, bytes - at, JSON_FLAGS | JSON_DISABLE_EOF_CHECK, &fault);
        if (value != NULL) {
            at += (size_t)fault.position;
            at += blanks(body + at, bytes - at, BLANK);
            status = add_value(m, value, err);
        } else {
            m->number++;
            status = no_json(m, &fault, err);
        }
        json_decref(value);
    }
    return status;
}

// ---- streams with labels ------------------------------------------------------------------------

// Which source a stream goes to, by the names it may have; NULL among them is passed over.
static reef_status choose_part(maker *m, const char *const names[2], reef_error *err) {
    const reef_ingest_form *form = m->form;
    m->part = 0;
    if (form->source_count == 0) return REEF_OK;
    for (size_t k = 0; k < 2; k++)
        for (m->part = 0; names[k] != NULL && m->part < form->source_count; m->part++)
            if (strcmp(form->sources[m->part], names[k]) == 0) return REEF_OK;
    m->part = form->other;
    if (m->part < form->source_count) return REEF_OK;
    const char *name = names[0] != NULL ? names[0] : names[1] != NULL ? names[1] : "no name";
    return reef_fail(err, REEF_ERR_NOT_FOUND,
                     "a stream of '%.60s': reefd has no source push: of this name, and none called "
                     "'%s' for all others",
                     name, form->format == REEF_INGEST_LOKI ? "loki" : "otlp");
}

// [TIME in nanoseconds, LINE] or [TIME, LINE, {...}]
static reef_status add_loki_value(maker *m, const json_t *value, reef_error *err) {
    const char *time = json_string_value(json_array_get(value, 0));
    const json_t *line = json_array_get(value, 1);
    int64_t ms = -1;
    m->number++;
    if (time == NULL || !json_is_string(line))
        return bad_record(m, "no [\"NANOSECONDS\", \"LINE\"]", err);
    if (!reef_line_time((const uint8_t *)time, strlen(time), 0, &ms) || ms < TIME_MIN_MS) ms = -1;
    m->notes->all_timed &= ms >= 0;
    return add_entry(m, NULL, ms, line, err);
}

static reef_status add_loki(maker *m, const json_t *body, reef_error *err) {
    const json_t *streams = json_object_get(body, "streams"), *stream, *value;
    reef_status status = REEF_OK;
    size_t i, k;
    if (!json_is_array(streams))
        return reef_fail(err, REEF_ERR_INVALID, "no \"streams\" that is an array");
    json_array_foreach(streams, i, stream) {
        const json_t *labels = json_object_get(stream, "stream");
        const json_t *values = json_object_get(stream, "values");
        if (!json_is_object(labels) || !json_is_array(values))
            return reef_fail(err, REEF_ERR_INVALID,
                             "stream %zu: no {\"stream\": {...}, \"values\": [...]}", i + 1);
        const char *const names[] = {json_string_value(json_object_get(labels, "service_name")),
                                     json_string_value(json_object_get(labels, "job"))};
        if (json_array_size(values) > 0) status = choose_part(m, names, err);
        for (k = 0; status == REEF_OK && k < json_array_size(values); k++) {
            value = json_array_get(values, k);
            status = add_loki_value(m, value, err);
        }
        if (status != REEF_OK) return status;
    }
    return REEF_OK;
}

// ---- OpenTelemetry ------------------------------------------------------------------------------

static json_t *plain_value(const json_t *any);

// A list of {"key": ..., "value": ...} as an object.
static json_t *plain_object(const json_t *list) {
    json_t *object = json_object(), *one;
    size_t i;
    json_array_foreach(list, i, one) {
        const char *key = json_string_value(json_object_get(one, "key"));
        if (key != NULL) reef_json_set(&object, key, plain_value(json_object_get(one, "value")));
    }
    return object;
}

static json_t *plain_array(const json_t *list) {
    json_t *array = json_array(), *one;
    size_t i;
    json_array_foreach(list, i, one) reef_json_append(&array, plain_value(one));
    return array;
}

// What stands in {"stringValue": ...} and the like; JSON's null where nothing does. NULL: no
// memory.
static json_t *plain_value(const json_t *any) {
    static const char *const PLAIN[] = {"stringValue", "boolValue", "intValue", "doubleValue",
                                        "bytesValue"};
    const json_t *array = json_object_get(any, "arrayValue");
    const json_t *object = json_object_get(any, "kvlistValue");
    if (array != NULL) return plain_array(json_object_get(array, "values"));
    if (object != NULL) return plain_object(json_object_get(object, "values"));
    for (size_t i = 0; i < COUNT(PLAIN); i++) {
        json_t *value = json_object_get(any, PLAIN[i]);
        if (value != NULL) return json_incref(value);
    }
    return json_null();
}

// A body of several fields is its text, or all of it as JSON.
static reef_status add_body(maker *m, const json_t *record, const json_t *body, reef_error *err) {
    const char *name = NULL;
    const int64_t ms = time_of(record);
    const json_t *text = json_is_string(body) ? body : text_of(m, body, &name);
    m->notes->all_timed &= ms >= 0;
    if (text != NULL) return add_entry(m, NULL, ms, text, err);
    char *all = json_dumps(body, JSON_COMPACT | JSON_ENCODE_ANY);
    json_t *line = all != NULL ? json_string(all) : NULL;
    reef_status status = line != NULL ? add_entry(m, NULL, ms, line, err) : no_memory(err);
    json_decref(line);
    free(all);
    return status;
}

static reef_status add_log(maker *m, const json_t *record, reef_error *err) {
    m->number++;
    if (!json_is_object(record)) return bad_record(m, "no object", err);
    json_t *body = plain_value(json_object_get(record, "body"));
    reef_status status = REEF_OK;
    if (body == NULL)
        status = no_memory(err);
    else if (json_is_null(body))
        m->notes->empty++;
    else
        status = add_body(m, record, body, err);
    json_decref(body);
    return status;
}

static reef_status add_scopes(maker *m, const json_t *resource, reef_error *err) {
    const json_t *scope, *record, *scopes = json_object_get(resource, "scopeLogs");
    reef_status status = REEF_OK;
    size_t i, k;
    json_array_foreach(scopes, i, scope) {
        const json_t *records = json_object_get(scope, "logRecords");
        json_array_foreach(records, k, record) {
            status = add_log(m, record, err);
            if (status != REEF_OK) return status;
        }
    }
    return status;
}

static reef_status add_otlp(maker *m, const json_t *body, reef_error *err) {
    const json_t *resource, *resources = json_object_get(body, "resourceLogs");
    reef_status status = REEF_OK;
    size_t i;
    if (!json_is_array(resources))
        return reef_fail(err, REEF_ERR_INVALID, "no \"resourceLogs\" that is an array");
    json_array_foreach(resources, i, resource) {
        json_t *of =
            plain_object(json_object_get(json_object_get(resource, "resource"), "attributes"));
        if (of == NULL) return no_memory(err);
        const char *const names[] = {json_string_value(json_object_get(of, "service.name")), NULL};
        status = choose_part(m, names, err);
        if (status == REEF_OK) status = add_scopes(m, resource, err);
        json_decref(of);
        if (status != REEF_OK) return status;
    }
    return REEF_OK;
}

static reef_status parse_whole(maker *m, const char *body, size_t bytes, reef_error *err) {
    json_error_t fault;
    json_t *whole = json_loadb(body, bytes, JSON_FLAGS, &fault);
    m->notes->all_timed = true;
    if (whole == NULL && reef_json_no_memory(&fault)) return no_memory(err);
    if (whole == NULL)
        return reef_fail(err, REEF_ERR_INVALID, "the body is no JSON: line %d: %.120s", fault.line,
                         fault.text);
    reef_status status =
        m->form->format == REEF_INGEST_LOKI ? add_loki(m, whole, err) : add_otlp(m, whole, err);
    json_decref(whole);
    if (m->notes->all_timed) {
        XXH128_hash_t hash = XXH3_128bits(body, bytes);
        m->notes->hash[0] = hash.high64;
        m->notes->hash[1] = hash.low64;
    }
    return status;
}

// ---- the whole ----------------------------------------------------------------------------------

static reef_status parse_body(maker *m, const uint8_t *body, size_t bytes, reef_error *err) {
    const char *text = (const char *)body;
    switch (m->form->format) {
    case REEF_INGEST_TEXT:
        return parse_text(m, body, bytes, err);
    case REEF_INGEST_JSONL:
        return parse_lines(m, text, bytes, err);
    case REEF_INGEST_JSON:
        return parse_values(m, text, bytes, err);
    case REEF_INGEST_LOKI:
    case REEF_INGEST_OTLP:
        break;
    }
    return parse_whole(m, text, bytes, err);
}

reef_status reef_ingest_parse(reef_ingested *out,
                              reef_ingest_notes *notes,
                              const reef_ingest_form *form,
                              const uint8_t *body,
                              size_t bytes,
                              reef_error *err) {
    maker m = {.form = form, .notes = notes, .all = out, .unit = "record"};
    uint8_t *unpacked = NULL;
    reef_status status = REEF_OK;
    *notes = (reef_ingest_notes){0};
    m.rooms = calloc(part_count(form), sizeof(*m.rooms));
    if (m.rooms == NULL) status = no_memory(err);
    if (status == REEF_OK && form->packing != REEF_PACKING_NONE) {
        status =
            reef_push_unpack(&unpacked, &bytes, &notes->too_large, form->packing, body, bytes, err);
        body = unpacked;
    }
    if (status == REEF_OK) status = parse_body(&m, body, bytes, err);
    if (status == REEF_OK && form->format < REEF_INGEST_LOKI && out->count == 0)
        status = reef_fail(err, REEF_ERR_INVALID, "nothing was pushed: the batch is empty");
    for (size_t i = 0; status != REEF_OK && i < part_count(form); i++)
        reef_ingested_release(&out[i]);
    free(unpacked);
    free(m.rooms);
    return status;
}
