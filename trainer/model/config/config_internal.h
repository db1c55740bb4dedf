// The inside of the configuration, shared by the files that make it up:
//
//   config_table.c  the table: every field, its default, its bounds and its help
//   config_field.c  the value of one field, within its bounds
//                   and a field by its name, or the one that was probably meant
//   config_check.c  values that must fit together, and what new pools choose by them
//   config_json.c   the text of a configuration, and its record in a pool
#ifndef REEF_CONFIG_INTERNAL_H
#define REEF_CONFIG_INTERNAL_H

#include "reef_config.h"

// Name of the `meta` record that reef_config_put writes and reef_config_read reads: the JSON text
// of reef_config_format, dtype REEF_JSON, without a final zero.
#define REEF_CONFIG_RECORD "config"

// `type` of a reef_config_field.
#define REEF_FIELD_TEXT "text"
#define REEF_FIELD_CHOICE "text" // of a few words, and an enum in memory
#define REEF_FIELD_INTEGER "integer"
#define REEF_FIELD_BOOLEAN "boolean"
#define REEF_FIELD_NUMBER "number"

// config_field.c

bool reef_config_field_is(const reef_config_field *field, const char *type);
uint64_t reef_config_field_integer(const reef_config *config, const reef_config_field *field);
float reef_config_field_number(const reef_config *config, const reef_config_field *field);
bool reef_config_field_boolean(const reef_config *config, const reef_config_field *field);
const char *reef_config_field_text(const reef_config *config, const reef_config_field *field);

/** Set a field to a value of its type. INVALID names the field, the value and what is allowed. */
REEF_MUST_CHECK reef_status reef_config_field_set_integer(reef_config *config,
                                                          const reef_config_field *field,
                                                          uint64_t value,
                                                          reef_error *err);
REEF_MUST_CHECK reef_status reef_config_field_set_number(reef_config *config,
                                                         const reef_config_field *field,
                                                         double value,
                                                         reef_error *err);
REEF_MUST_CHECK reef_status reef_config_field_set_text(reef_config *config,
                                                       const reef_config_field *field,
                                                       const char *value,
                                                       reef_error *err);
/** The same of a value as people write it. */
REEF_MUST_CHECK reef_status reef_config_field_set(reef_config *config,
                                                  const reef_config_field *field,
                                                  const char *value,
                                                  reef_error *err);
/** Is the value of a field that need not have been set by these within its bounds? */
REEF_MUST_CHECK reef_status reef_config_field_check(const reef_config *config,
                                                    const reef_config_field *field,
                                                    reef_error *err);

/** INVALID, with the name that is closest to this one, which no field has. */
REEF_MUST_CHECK reef_status reef_config_name_unknown(const char *name, reef_error *err);

// config_json.c

/** Write the record of a pool that holds its configuration. */
REEF_MUST_CHECK reef_status reef_config_put(reef_txn *txn,
                                            const reef_config *config,
                                            reef_error *err);

#endif
