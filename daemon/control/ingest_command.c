// Batches as JSON: the command of the socket, and the answers of socket and HTTP.
#include "push.h"
#include "reef_push_journal.h"
#include "reply_json.h"

#include <stdlib.h>
#include <string.h>

// RFC 4648 with padding, nothing else in between. False when it is not that.
static bool decode_base64(const char *text, size_t length, uint8_t *out, size_t *count) {
    static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    *count = 0;
    // Padding is required, so the length is a multiple of four.
    if (length % 4) return false;
    for (size_t i = 0; i < length; i += 4) {
        uint32_t bits = 0;
        int padding = 0;
        for (size_t k = 0; k < 4; k++) {
            char c = text[i + k];
            const char *digit = c ? memchr(DIGITS, c, 64) : NULL;
            // '=' only at the very end, and at most two of them.
            if (c == '=' && i + 4 == length && k >= 2)
                padding++;
            else if (digit == NULL || padding)
                return false;
            // A padding character counts as zero bits.
            bits = bits << 6 | (digit != NULL && c != '=' ? (uint32_t)(digit - DIGITS) : 0);
        }
        for (int k = 0; k < 3 - padding; k++) out[(*count)++] = (uint8_t)(bits >> (16 - 8 * k));
    }
    return true;
}

static reef_status take_text(reef_push_batch *batch, const json_t *text, reef_error *err) {
    batch->body_bytes = json_string_length(text);
    batch->body = malloc(batch->body_bytes + 1);
    if (batch->body == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a batch");
    memcpy(batch->body, json_string_value(text), batch->body_bytes);
    return REEF_OK;
}

static reef_status take_base64(reef_push_batch *batch, const json_t *text, reef_error *err) {
    size_t length = json_string_length(text);
    batch->body = malloc(length / 4 * 3 + 3);
    if (batch->body == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a batch");
    if (decode_base64(json_string_value(text), length, batch->body, &batch->body_bytes))
        return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "command 'ingest': \"base64\" is not base64 with padding");
}

static reef_status take_name(
    char *out, size_t room, const json_t *text, const char *what, reef_error *err) {
    if (text == NULL) return REEF_OK;
    size_t bytes = json_string_length(text); // 0 if it is not text
    if (bytes == 0 || bytes >= room)
        return reef_fail(err, REEF_ERR_INVALID,
                         "command 'ingest': \"%s\" is not a text of 1 to %zu bytes", what,
                         room - 1);
    memcpy(out, json_string_value(text), bytes + 1);
    return REEF_OK;
}

static reef_status take_content(reef_push_batch *batch, json_t *const content[3], reef_error *err) {
    int given = (content[0] != NULL) + (content[1] != NULL) + (content[2] != NULL);
    if (given == 1 && json_is_string(content[0])) return take_text(batch, content[0], err);
    if (given == 1 && json_is_string(content[1])) return take_base64(batch, content[1], err);
    if (given == 1 && json_is_array(content[2])) {
        batch->records = json_incref(content[2]);
        return REEF_OK;
    }
    return reef_fail(err, REEF_ERR_INVALID,
                     "command 'ingest' takes one of \"text\": "
                     "TEXT, \"base64\": TEXT and \"records\": [...]");
}

reef_status reef_push_batch_parse(reef_push_batch **out, const json_t *command, reef_error *err) {
    json_error_t why;
    const char *name = NULL;
    json_t *source = NULL, *id = NULL, *content[3] = {NULL};
    *out = NULL;
    // Exactly one of text, base64 and records has the data; take_content checks it.
    if (json_unpack_ex((json_t *)command, &why, JSON_STRICT, "{s:s, s?o, s?o, s?o, s?o, s?o}",
                       "command", &name, "source", &source, "id", &id, "text", &content[0],
                       "base64", &content[1], "records", &content[2]))
        return reef_fail(err, REEF_ERR_INVALID, "command 'ingest': %s", why.text);
    reef_push_batch *batch = calloc(1, sizeof(*batch));
    if (batch == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a batch");
    reef_status status = take_name(batch->source, sizeof(batch->source), source, "source", err);
    if (status == REEF_OK) status = take_name(batch->id, sizeof(batch->id), id, "id", err);
    if (status == REEF_OK) status = take_content(batch, content, err);
    // Ownership passes only when everything was right.
    if (status == REEF_OK) {
        *out = batch;
        batch = NULL; // the caller owns it now
    }
    reef_push_batch_free(batch);
    return status;
}

json_t *reef_push_result(const reef_push_batch *batch) {
    return json_pack("{s:s, s:I, s:I, s:b, s:I}", "source",
                     batch->input->name + strlen(REEF_PUSH_PREFIX), "accepted_bytes",
                     (json_int_t)batch->accepted_bytes, "records", (json_int_t)batch->record_count,
                     "duplicate", batch->duplicate, "position", (json_int_t)batch->position);
}

json_t *reef_push_failure(const reef_error *err, unsigned retry_ms) {
    json_t *failure = reef_reply_error(err);
    if (retry_ms)
        json_object_set_new(json_object_get(failure, "error"), "retry_ms", json_integer(retry_ms));
    return failure;
}
