// See routes.h.
#include "routes.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *path, *type;
    reef_ingest_format format;
} TYPES[] = {
    {REEF_HTTP_INGEST_PATH, "text/plain", REEF_INGEST_TEXT},
    {REEF_HTTP_INGEST_PATH, "application/jsonl", REEF_INGEST_JSONL},
    {REEF_HTTP_INGEST_PATH, "application/x-ndjson", REEF_INGEST_JSONL},
    {REEF_HTTP_INGEST_PATH, "application/x-jsonlines", REEF_INGEST_JSONL},
    {REEF_HTTP_INGEST_PATH, "application/json", REEF_INGEST_JSON},
    {REEF_HTTP_LOKI_PATH, "application/json", REEF_INGEST_LOKI},
    {REEF_HTTP_OTLP_PATH, "application/json", REEF_INGEST_OTLP},
};

static const char *header(const reef_http_request *request, const char *name) {
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

// Up to its end, or that of a word of it.
static bool is_below(const char *path, const char *root) {
    const size_t bytes = strlen(root);
    return strncmp(path, root, bytes) == 0 && (path[bytes] == '/' || path[bytes] == '\0');
}

bool reef_http_is_push(const char *path) {
    for (size_t i = 0; i < sizeof(TYPES) / sizeof(*TYPES); i++)
        if (is_below(path, TYPES[i].path)) return true;
    return false;
}

bool reef_http_packing(reef_packing *out, const reef_http_request *request) {
    static const char *const NAMES[] = {"identity", "gzip", "zstd"};
    const char *how = header(request, MHD_HTTP_HEADER_CONTENT_ENCODING);
    *out = REEF_PACKING_NONE;
    if (how == NULL || *how == '\0') return true;
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(*NAMES); i++) {
        if (strcasecmp(how, NAMES[i]) != 0) continue;
        *out = (reef_packing)i;
        return true;
    }
    return false;
}

// Without its parameters, such as charset. A form is refused: what sends it may have taken out the
// line ends.
static reef_status take_type(reef_push_batch *batch,
                             const reef_http_request *request,
                             unsigned *code,
                             reef_error *err) {
    const char *type = header(request, MHD_HTTP_HEADER_CONTENT_TYPE);
    const bool is_ingest = is_below(request->path, REEF_HTTP_INGEST_PATH);
    // Without a type it is text, as curl and most loggers send it.
    if (type == NULL && is_ingest) return REEF_OK;
    if (type == NULL) type = "";
    size_t bytes = strcspn(type, "; \t");
    for (size_t i = 0; i < sizeof(TYPES) / sizeof(*TYPES); i++) {
        // Compared without parameters: "text/plain; charset=utf-8" is text/plain.
        if (!is_below(request->path, TYPES[i].path) || strlen(TYPES[i].type) != bytes ||
            strncasecmp(type, TYPES[i].type, bytes) != 0)
            continue;
        batch->format = TYPES[i].format;
        return REEF_OK;
    }
    *code = MHD_HTTP_UNSUPPORTED_MEDIA_TYPE;
    if (!is_ingest)
        return reef_fail(err, REEF_ERR_INVALID,
                         "Content-Type '%.60s' is not taken: protobuf, with or without snappy, is "
                         "not read here; let your shipper send JSON (application/json)",
                         type);
    return reef_fail(err, REEF_ERR_INVALID,
                     "Content-Type '%.60s' is not taken: send text/plain, application/jsonl or "
                     "application/json (curl: -H 'Content-Type: text/plain' --data-binary @FILE)",
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

const char *reef_http_push_source(const reef_http_request *request) {
    const char *rest = request->path + strlen(REEF_HTTP_INGEST_PATH);
    if (is_below(request->path, REEF_HTTP_INGEST_PATH)) return *rest == '/' ? rest + 1 : NULL;
    return MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, "source");
}

reef_status reef_http_ingest(reef_push_batch **out,
                             reef_http_request *request,
                             unsigned *code,
                             reef_error *err) {
    *out = NULL;
    *code = MHD_HTTP_BAD_REQUEST;
    const char *name = reef_http_push_source(request);
    const char *field =
        MHD_lookup_connection_value(request->connection, MHD_GET_ARGUMENT_KIND, "field");
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
    if (status == REEF_OK)
        status = take_word(batch->source, sizeof(batch->source), name, "the source's name", err);
    if (status == REEF_OK)
        status = take_word(batch->field, sizeof(batch->field), field, "field in the query", err);
    if (status == REEF_OK && field != NULL && batch->format == REEF_INGEST_TEXT)
        status = reef_fail(err, REEF_ERR_INVALID,
                           "field in the query is for records of JSON: text has none");
    if (status != REEF_OK) {
        reef_push_batch_free(batch);
        return status;
    }
    (void)reef_http_packing(&batch->packing, request); // known: it was looked at with the header
    // No copy: the body moves into the batch.
    batch->body = request->body;
    batch->body_bytes = request->body_bytes;
    request->body = NULL; // the batch's now
    request->body_bytes = request->body_room = 0;
    *out = batch;
    return REEF_OK;
}
