// See routes.h.
#include "routes.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *type;
    reef_ingest_format format;
} TYPES[] = {
    {"text/plain", REEF_INGEST_TEXT},
    {"application/jsonl", REEF_INGEST_JSONL},
    {"application/x-ndjson", REEF_INGEST_JSONL},
    {"application/x-jsonlines", REEF_INGEST_JSONL},
};

static const char *header(const reef_http_request *request, const char *name) {
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

// Without its parameters, such as charset. A form is refused: what sends it may have taken out the
// line ends.
static reef_status take_type(reef_push_batch *batch,
                             const reef_http_request *request,
                             unsigned *code,
                             reef_error *err) {
    const char *type = header(request, MHD_HTTP_HEADER_CONTENT_TYPE);
    // Without a type it is text, as curl and most loggers send it.
    if (type == NULL) return REEF_OK;
    size_t bytes = strcspn(type, "; \t");
    for (size_t i = 0; i < sizeof(TYPES) / sizeof(*TYPES); i++) {
        // Compared without parameters: "text/plain; charset=utf-8" is text/plain.
        if (strlen(TYPES[i].type) != bytes || strncasecmp(type, TYPES[i].type, bytes) != 0)
            continue;
        batch->format = TYPES[i].format;
        return REEF_OK;
    }
    *code = MHD_HTTP_UNSUPPORTED_MEDIA_TYPE;
    return reef_fail(err, REEF_ERR_INVALID,
                     "Content-Type '%.60s' is not taken: send text/plain or application/jsonl "
                     "(curl: -H 'Content-Type: text/plain' --data-binary @FILE)",
                     type);
}

static reef_status take_word(
    char *out, size_t room, const char *word, const char *what, reef_error *err) {
    if (word == NULL) return REEF_OK;
    size_t bytes = strlen(word);
    // Names and ids appear in logs, in JSON and in record keys: printable, no spaces.
    bool plain = bytes > 0 && bytes < room;
    for (size_t i = 0; plain && i < bytes; i++) plain = word[i] > ' ' && word[i] <= '~';
    if (!plain)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%s is not a word of 1 to %zu printable characters without a space", what,
                         room - 1);
    memcpy(out, word, bytes + 1);
    return REEF_OK;
}

reef_status reef_http_ingest(reef_push_batch **out,
                             reef_http_request *request,
                             unsigned *code,
                             reef_error *err) {
    *out = NULL;
    *code = MHD_HTTP_BAD_REQUEST;
    const char *name = request->path + strlen(REEF_HTTP_INGEST_PATH);
    reef_push_batch *batch = calloc(1, sizeof(*batch));
    if (batch == NULL) {
        // The default for everything that is wrong with the request itself.
        *code = MHD_HTTP_INTERNAL_SERVER_ERROR;
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a batch");
    }
    // Everything about the batch is checked before the body is taken over.
    reef_status status = take_type(batch, request, code, err);
    if (status == REEF_OK)
        status = take_word(batch->id, sizeof(batch->id), header(request, "Reef-Batch-Id"),
                           "Reef-Batch-Id", err);
    if (status == REEF_OK && *name == '/')
        status =
            take_word(batch->source, sizeof(batch->source), name + 1, "the source's name", err);
    if (status != REEF_OK) {
        reef_push_batch_free(batch);
        return status;
    }
    // No copy: the body moves into the batch.
    batch->body = request->body;
    batch->body_bytes = request->body_bytes;
    request->body = NULL; // the batch's now
    request->body_bytes = request->body_room = 0;
    *out = batch;
    return REEF_OK;
}
