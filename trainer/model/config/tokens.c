// Tokens of a stream: bytes, or ids of a vocabulary in two bytes each. What comes from outside is looked at here,
// once, before anything takes it for the number of a row.
#include "reef_config.h"

#include <inttypes.h>

reef_status reef_tokens_check(const reef_config *config,
                              const char *name,
                              uint64_t offset,
                              const uint8_t *bytes,
                              size_t count,
                              reef_error *err) {
    size_t each = reef_token_bytes(config);
    if (each == 1) return REEF_OK; // every byte is one
    for (size_t t = 0; t < count / each; t++) {
        uint32_t id = reef_token_at(bytes, each, t);
        if (id < config->vocab) continue;
        uint64_t at = offset + t * each;
        return reef_fail(err, REEF_ERR_INVALID,
                         "%.120s has the id %" PRIu32 " as token %" PRIu64 ", at byte %" PRIu64
                         ", but the pool's vocab is %" PRIu32 ": ids are 0 to %" PRIu32,
                         name, id, at / each, at, config->vocab, config->vocab - 1);
    }
    if (count % each == 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "%.120s ends within a token, after byte %" PRIu64 ": with vocab %" PRIu32
                     " a token is an id of two bytes, little-endian",
                     name, offset + count, config->vocab);
}
