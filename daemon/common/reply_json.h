// The JSON of replies: {"ok": true, "result": ...} and {"ok": false, "error": ...}, and of a commit
// in them.
#ifndef REEF_REPLY_JSON_H
#define REEF_REPLY_JSON_H

#include "training_thread.h"

#include <jansson.h>

/** {"ok": true, "result": ...}; takes the reference. */
json_t *reef_reply_result(json_t *result);

/** {"ok": false, "error": {...}} */
json_t *reef_reply_error(const reef_error *err);

/** A commit as it appears in answers. */
json_t *reef_commit_json(const reef_commit_view *view);

/** A count of any size that JSON can hold. */
json_t *reef_json_count(uint64_t value);

/** "root": the hash in hexadecimal. */
void reef_json_set_root(json_t *object, const uint8_t root[REEF_HASH_BYTES]);

#endif
