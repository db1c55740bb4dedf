// What a pool's tokens are to people: bytes of a text, or ids that no line or word is made of.
#include "cli_tokens.h"
#include "cli_pool.h"

#include <inttypes.h>

bool reef_cli_has_ids(const reef_config *config) {
    return reef_token_bytes(config) != 1;
}

const char *reef_cli_token_word(const reef_config *config) {
    return reef_cli_has_ids(config) ? "token" : "byte";
}

const char *reef_cli_bits_name(const reef_config *config) {
    return reef_cli_has_ids(config) ? "bits_per_token" : "bits_per_byte";
}

const char *reef_cli_bits_words(const reef_config *config) {
    return reef_cli_has_ids(config) ? "bits per token" : "bits per byte";
}

const char *reef_cli_perplexity_name(const reef_config *config) {
    return reef_cli_has_ids(config) ? "perplexity_per_token" : "perplexity_per_byte";
}

reef_status reef_cli_pool_wants_bytes(const reef_cli_pool *pool, reef_error *err) {
    if (!reef_cli_has_ids(&pool->config)) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "this reads text of bytes, but %.100s has token ids (vocab %" PRIu32
                     "), which have no lines or words: reef eval gives their loss",
                     reef_store_path(pool->store), pool->config.vocab);
}

reef_status reef_cli_tokens_check(reef_cli_file *file, const reef_config *config, reef_error *err) {
    reef_status status = reef_tokens_check(config, file->path, 0, file->bytes, file->count, err);
    if (status == REEF_OK && file->count / reef_token_bytes(config) < 2)
        status = reef_fail(err, REEF_ERR_INVALID,
                           "%.160s has %zu token id: a loss needs one to predict and one before it",
                           file->path, file->count / reef_token_bytes(config));
    if (status != REEF_OK) reef_cli_file_release(file);
    return status;
}

reef_status reef_cli_tokens_read(reef_cli_file *file,
                                 const char *path,
                                 const reef_config *config,
                                 reef_error *err) {
    reef_status status = reef_cli_text_read(file, path, err);
    return status == REEF_OK ? reef_cli_tokens_check(file, config, err) : status;
}
