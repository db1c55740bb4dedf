// Layout of a record on disk: its key, its header, its two hashes. Private to the store.
#ifndef REEF_RECORD_H
#define REEF_RECORD_H

#include "reef_store.h"

#define REEF_RECORD_HEADER_BYTES 48
// The longest key: moments of a tensor: generation, tag, name with its final zero, part.
#define REEF_KEY_BYTES_MAX (4 + 1 + REEF_NAME_BYTES_MAX + 1 + 4 + 8)
#define REEF_SUM_KEY_BYTES_MAX (1 + REEF_KEY_BYTES_MAX)
#define REEF_SUM_BYTES 24                          // commit number and content hash
#define REEF_PAYLOAD_BYTES_MAX (UINT32_C(1) << 30) // LMDB's own limit is 4 GiB
#define REEF_COMMIT_NAME "commit"                  // the meta record of the last commit
#define REEF_COMMIT_BYTES 56                       // its payload
#define REEF_FORMAT_NAME "format"                  // the meta record of the format version
#define REEF_KEY_TEXT_BYTES 176                    // a key in words, with its final zero

/** A key as LMDB sees it. */
typedef struct reef_key_bytes {
    uint8_t data[REEF_KEY_BYTES_MAX];
    size_t bytes;
} reef_key_bytes;

const char *reef_db_name(reef_db db);
/** The database of that name; REEF_DB_COUNT: none. */
reef_db reef_db_named(const void *name, size_t bytes);
/** Does the database belong to the root hash? */
bool reef_db_hashed(reef_db db);
/** Do its records have an entry in `sums`? All but journal and series, which are short-lived. */
bool reef_db_summed(reef_db db);
/** Is it a database of records? `sums` is none, and a number from a file may be of no database. */
bool reef_db_has_records(reef_db db);
/** Does its key begin with a generation? */
bool reef_db_by_generation(reef_db db);
/** Does it hold what a generation consists of? All of these but the list of generations. */
bool reef_db_in_generation(reef_db db);

/** INVALID names the field that is missing, too long, or set although the database has none. */
REEF_MUST_CHECK reef_status reef_key_encode(const reef_key *key,
                                            reef_key_bytes *out,
                                            reef_error *err);

/**
 * The inverse. out->name points into `name`, or is NULL. CORRUPT if the bytes are not such a key.
 */
REEF_MUST_CHECK reef_status reef_key_decode(reef_db db,
                                            const void *data,
                                            size_t bytes,
                                            reef_key *out,
                                            char name[REEF_NAME_BYTES_MAX + 1],
                                            reef_error *err);

/** A key in words: "experts (generation 1, layer 0, block 3)". */
void reef_key_format(const reef_key *key, char out[REEF_KEY_TEXT_BYTES]);

/** XXH3-128 over database, dtype, key and payload: equal content, equal hash, whenever written. */
void reef_record_content_hash(reef_db db,
                              const reef_key_bytes *key,
                              reef_dtype dtype,
                              const void *payload,
                              size_t bytes,
                              uint8_t out[REEF_HASH_BYTES]);

/** Fill a record's header; `content` is its content hash. */
void reef_record_header_write(uint8_t header[REEF_RECORD_HEADER_BYTES],
                              const reef_key *key,
                              const reef_key_bytes *encoded,
                              reef_dtype dtype,
                              uint64_t commit,
                              size_t bytes,
                              const uint8_t content[REEF_HASH_BYTES]);

/**
 * Check a stored record against its key and checksum and lend its payload.
 *
 * content  written: the content hash, computed from the bytes as they are
 */
REEF_MUST_CHECK reef_status reef_record_parse(const reef_key *key,
                                              const reef_key_bytes *encoded,
                                              const void *record,
                                              size_t record_bytes,
                                              reef_view *out,
                                              uint8_t content[REEF_HASH_BYTES],
                                              reef_error *err);

/** The same without reading the payload, whose content hash is taken to be `content`. */
REEF_MUST_CHECK reef_status reef_record_parse_header(const reef_key *key,
                                                     const reef_key_bytes *encoded,
                                                     const void *record,
                                                     size_t record_bytes,
                                                     const uint8_t content[REEF_HASH_BYTES],
                                                     reef_view *out,
                                                     reef_error *err);

#endif
