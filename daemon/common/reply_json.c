// See reply_json.h.
#include "reply_json.h"

#include <inttypes.h>

json_t *reef_json_count(uint64_t value) {
    return json_integer((json_int_t)value);
}

json_t *reef_reply_error(const reef_error *err) {
    json_t *error = json_object();
    json_object_set_new(error, "status", json_string(reef_status_text(err->status)));
    json_object_set_new(error, "message", reef_json_text(err->message));
    return json_pack("{s:o}", "error", error);
}

void reef_json_set_root(json_t *object, const uint8_t root[REEF_HASH_BYTES]) {
    char text[2 * REEF_HASH_BYTES + 1];
    reef_hash_format(root, text);
    json_object_set_new(object, "root", json_string(text));
}

json_t *reef_commit_json(const reef_commit_view *view) {
    json_t *object = json_object();
    json_object_set_new(object, "number", reef_json_count(view->commit.number));
    json_object_set_new(object, "step", reef_json_count(view->commit.step));
    json_object_set_new(object, "stream_bytes", reef_json_count(view->commit.stream_bytes));
    json_object_set_new(object, "unix_ms", reef_json_count(view->commit.unix_ms));
    reef_json_set_root(object, view->commit.root);
    json_object_set_new(object, "ms", reef_json_number(view->ms));
    return object;
}
