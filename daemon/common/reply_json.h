// The JSON of replies: errors, and a commit.
#ifndef REEF_REPLY_JSON_H
#define REEF_REPLY_JSON_H

#include "training_thread.h"

#include <jansson.h>

/** {"error": {"status": ..., "message": ...}} */
json_t *reef_reply_error(const reef_error *err);

/** A commit as it appears in answers. */
json_t *reef_commit_json(const reef_commit_view *view);

/** A count of any size that JSON can hold. */
json_t *reef_json_count(uint64_t value);

/** "root": the hash in hexadecimal. */
void reef_json_set_root(json_t *object, const uint8_t root[REEF_HASH_BYTES]);

#endif
