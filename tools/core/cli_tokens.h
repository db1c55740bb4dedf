// Bytes of text, or ids.
#ifndef REEF_CLI_TOKENS_H
#define REEF_CLI_TOKENS_H

#include "cli_pool.h"
#include "reef_error.h"
#include "reef_trainer.h"

#include <stdbool.h>

/** Are the pool's tokens ids of a vocabulary, and no bytes of text? */
bool reef_cli_has_ids(const reef_config *config);
/**
 * What a loss is counted by: "byte" or "token"; names of figures for programs, and words for
 * people.
 */
const char *reef_cli_token_word(const reef_config *config);
const char *reef_cli_bits_name(const reef_config *config);       // "bits_per_byte"
const char *reef_cli_bits_words(const reef_config *config);      // "bits per byte"
const char *reef_cli_perplexity_name(const reef_config *config); // "perplexity_per_byte"
/**
 * INVALID unless the file holds two or more whole tokens of the vocabulary; the file is released
 * then.
 */
REEF_MUST_CHECK reef_status reef_cli_tokens_check(reef_cli_file *file,
                                                  const reef_config *config,
                                                  reef_error *err);
/** Read such a file. */
REEF_MUST_CHECK reef_status reef_cli_tokens_read(reef_cli_file *file,
                                                 const char *path,
                                                 const reef_config *config,
                                                 reef_error *err);
/** INVALID if tokens are not bytes. */
REEF_MUST_CHECK reef_status reef_cli_pool_wants_bytes(const reef_cli_pool *pool, reef_error *err);

#endif
