// Keys, headers and hashes of records: pure functions between structs and bytes.
//
// A record is a header and a payload. Integers of the header are little-endian, those of keys
// big-endian, so that LMDB's byte order is numeric order.
//
//   offset size
//        0    4  magic "REEF"
//        4    1  schema, 1
//        5    1  kind: the number of the database in REEF_DB_LIST
//        6    1  dtype
//        7    1  zero
//        8    4  generation  (this and the next two: of the key, zero where it has none)
//       12    4  layer
//       16    4  block
//       20    4  zero
//       24    8  commit that wrote the record
//       32    8  payload bytes
//       40    8  XXH3-64 over bytes 0 to 39, the key, and the content hash
//       48       payload
//
// The content hash is XXH3-128 over kind, dtype (one byte each), key and payload. The payload is
// read once for it, and the header's checksum covers the payload through it. LMDB starts a large
// value 16 bytes into a page, so a large payload begins at a multiple of 64.
//
// Keys, per database (u32 and u64 big-endian, a name ends with a zero byte and contains none, so no
// key is a prefix of another and names sort like strings):
//
//   meta, snapshots   name
//   tensors, memory   generation u32, name, block u32
//   experts, flags    generation u32, layer u32, block u32
//   visits            generation u32, kind u32 (layer), name\0, block u32
//   moments           generation u32, 0x00, layer u32, block u32    of expert rows
//                     generation u32, 0x01, name, block u32         of a tensor
//   usage             level u32, window u64, generation u32, layer u32, block u32
//   generations       generation u32
//   journal           name, sequence u64
//   timeline          sequence u64
//   series            name, level u32, sequence u64
//   sums              kind u8, key of the record                    (value: commit u64, content
//                     hash)
#define XXH_STATIC_LINKING_ONLY // for hash states on the stack
#include "record.h"

#include "reef_byte_order.h"

#include <xxhash.h>

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

// ---- databases ----------------------------------------------------------------------------------

static const struct {
    const char *name;
    bool hashed;
} databases[REEF_DB_COUNT] = {
#define DB_ROW(upper, lower, hashed) [REEF_DB_##upper] = {#lower, hashed},
    REEF_DB_LIST(DB_ROW)
#undef DB_ROW
};

const char *reef_db_name(reef_db db) {
    assert(db < REEF_DB_COUNT);
    return databases[db].name;
}

reef_db reef_db_named(const void *name, size_t bytes) {
    reef_db db = 0;
    while (db < REEF_DB_COUNT &&
           (strlen(databases[db].name) != bytes || memcmp(databases[db].name, name, bytes) != 0))
        db++;
    return db;
}

bool reef_db_hashed(reef_db db) {
    assert(db < REEF_DB_COUNT);
    return databases[db].hashed;
}

bool reef_db_summed(reef_db db) {
    return db != REEF_DB_JOURNAL && db != REEF_DB_SERIES && db != REEF_DB_SUMS;
}

bool reef_db_has_records(reef_db db) {
    return (unsigned)db < REEF_DB_COUNT && db != REEF_DB_SUMS;
}

bool reef_db_by_generation(reef_db db) {
    return db == REEF_DB_TENSORS || db == REEF_DB_EXPERTS || db == REEF_DB_MOMENTS ||
           db == REEF_DB_FLAGS || db == REEF_DB_GENERATIONS || db == REEF_DB_MEMORY ||
           db == REEF_DB_VISITS;
}

bool reef_db_in_generation(reef_db db) {
    return reef_db_by_generation(db) && db != REEF_DB_GENERATIONS;
}

#define RECORD_MAGIC 0x46454552u // "REEF" in the file
#define RECORD_SCHEMA 1

// Tensors are stored as the machine has them; the format says little-endian.
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "pools are little-endian");

// ---- keys ---------------------------------------------------------------------------------------

typedef enum key_field {
    END,
    NAME,
    GENERATION,
    LAYER,
    KIND, // instead of a layer
    BLOCK,
    LEVEL,
    WINDOW,
    SEQUENCE,
    TAG_ROWS,  // a zero byte: what follows is layer and block
    TAG_TENSOR // a byte of one: what follows is a name
} key_field;

#define KEY_FIELDS_MAX 6 // with END

typedef const key_field *key_layout;

static const key_field layouts[REEF_DB_COUNT][KEY_FIELDS_MAX] = {
    [REEF_DB_META] = {NAME},
    [REEF_DB_TENSORS] = {GENERATION, NAME, BLOCK},
    [REEF_DB_EXPERTS] = {GENERATION, LAYER, BLOCK},
    [REEF_DB_MOMENTS] = {GENERATION, TAG_ROWS, LAYER, BLOCK},
    [REEF_DB_FLAGS] = {GENERATION, LAYER, BLOCK},
    [REEF_DB_USAGE] = {LEVEL, WINDOW, GENERATION, LAYER, BLOCK},
    [REEF_DB_GENERATIONS] = {GENERATION},
    [REEF_DB_SNAPSHOTS] = {NAME},
    [REEF_DB_JOURNAL] = {NAME, SEQUENCE},
    [REEF_DB_TIMELINE] = {SEQUENCE},
    [REEF_DB_SERIES] = {NAME, LEVEL, SEQUENCE},
    [REEF_DB_MEMORY] = {GENERATION, NAME, BLOCK},
    [REEF_DB_VISITS] = {GENERATION, KIND, NAME, BLOCK},
    [REEF_DB_TEXT] = {NAME},
    [REEF_DB_BLOCKS] = {SEQUENCE},
};
static const key_field tensor_moments_layout[KEY_FIELDS_MAX] = {GENERATION, TAG_TENSOR, NAME,
                                                                BLOCK};

static key_layout layout_of(reef_db db, bool named) {
    return db == REEF_DB_MOMENTS && named ? tensor_moments_layout : layouts[db];
}

static uint64_t field_value(const reef_key *key, key_field field) {
    switch (field) {
    case GENERATION:
        return key->generation;
    case LAYER:
    case KIND:
        return key->layer;
    case BLOCK:
        return key->block;
    case LEVEL:
        return key->level;
    case WINDOW:
        return key->window;
    case SEQUENCE:
        return key->sequence;
    // NAME and the tags have no number.
    default:
        return 0;
    }
}

static void field_set(reef_key *key, key_field field, uint64_t value) {
    switch (field) {
    case GENERATION:
        key->generation = (uint32_t)value;
        break;
    case LAYER:
    case KIND:
        key->layer = (uint32_t)value;
        break;
    case BLOCK:
        key->block = (uint32_t)value;
        break;
    case LEVEL:
        key->level = (uint32_t)value;
        break;
    case WINDOW:
        key->window = value;
        break;
    case SEQUENCE:
        key->sequence = value;
        break;
    // NAME and the tags have no number.
    default:
        break;
    }
}

static const char *field_text(key_field field) {
    static const char *const texts[] = {
        [NAME] = "name",     [GENERATION] = "generation", [LAYER] = "layer",
        [KIND] = "kind",     [BLOCK] = "block",           [LEVEL] = "level",
        [WINDOW] = "window", [SEQUENCE] = "sequence"};
    return texts[field];
}

static size_t field_bytes(key_field field) {
    if (field == WINDOW || field == SEQUENCE) return 8;
    return field == TAG_ROWS || field == TAG_TENSOR ? 1 : 4;
}

static bool layout_has(key_layout layout, key_field field) {
    for (size_t i = 0; layout[i] != END; i++)
        if (layout[i] == field || (layout[i] == KIND && field == LAYER)) return true;
    return false;
}

static reef_status name_check(reef_db db, const char *name, reef_error *err) {
    size_t length = name == NULL ? 0 : strnlen(name, REEF_NAME_BYTES_MAX + 1);
    if (length == 0)
        return reef_fail(err, REEF_ERR_INVALID, "a key of %s needs a name", reef_db_name(db));
    if (length > REEF_NAME_BYTES_MAX)
        return reef_fail(err, REEF_ERR_INVALID, "name \"%.16s...\" for %s is longer than %d bytes",
                         name, reef_db_name(db), REEF_NAME_BYTES_MAX);
    return REEF_OK;
}

// A field that the database does not have would be lost silently: refuse it.
static reef_status unused_fields_check(const reef_key *key, key_layout layout, reef_error *err) {
    static const key_field numbers[] = {GENERATION, LAYER, BLOCK, LEVEL, WINDOW, SEQUENCE};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (field_value(key, numbers[i]) != 0 && !layout_has(layout, numbers[i]))
            return reef_fail(err, REEF_ERR_INVALID, "a key of %s has no %s, but it is %" PRIu64,
                             reef_db_name(key->db), field_text(numbers[i]),
                             field_value(key, numbers[i]));
    }
    if (key->name != NULL && !layout_has(layout, NAME))
        return reef_fail(err, REEF_ERR_INVALID, "a key of %s has no name, but it is \"%.64s\"",
                         reef_db_name(key->db), key->name);
    return REEF_OK;
}

reef_status reef_key_encode(const reef_key *key, reef_key_bytes *out, reef_error *err) {
    // Sums are written by the store itself, never by key.
    if (!reef_db_has_records(key->db))
        return reef_fail(err, REEF_ERR_INVALID, "database %d holds no records", (int)key->db);
    key_layout layout = layout_of(key->db, key->name != NULL);
    // A field that this database does not use must be zero: else two keys would be one record.
    reef_status status = unused_fields_check(key, layout, err);
    if (status == REEF_OK && layout_has(layout, NAME)) status = name_check(key->db, key->name, err);
    if (status != REEF_OK) return status;

    // Big-endian fields, so that LMDB's order of bytes is the order of numbers.
    uint8_t *p = out->data;
    for (size_t i = 0; layout[i] != END; i++) {
        switch (layout[i]) {
        // With its final zero, so that a name sorts before its extensions.
        case NAME: {
            size_t bytes = strlen(key->name) + 1;
            memcpy(p, key->name, bytes);
            p += bytes;
            continue;
        }
        // A tag separates rows and tensors, which share a database.
        case TAG_ROWS:
            *p = 0;
            break;
        case TAG_TENSOR:
            *p = 1;
            break;
        case WINDOW:
        case SEQUENCE:
            reef_put_be64(p, field_value(key, layout[i]));
            break;
        default:
            reef_put_be32(p, (uint32_t)field_value(key, layout[i]));
            break;
        }
        p += field_bytes(layout[i]);
    }
    out->bytes = (size_t)(p - out->data);
    assert(out->bytes <= REEF_KEY_BYTES_MAX);
    return REEF_OK;
}

static bool name_decode(const uint8_t **p, const uint8_t *end, reef_key *out, char *name) {
    size_t left = (size_t)(end - *p);
    const uint8_t *zero =
        memchr(*p, 0, left < REEF_NAME_BYTES_MAX + 1 ? left : REEF_NAME_BYTES_MAX + 1);
    if (zero == NULL || zero == *p) return false;
    memcpy(name, *p, (size_t)(zero - *p) + 1);
    out->name = name;
    *p = zero + 1;
    return true;
}

reef_status reef_key_decode(reef_db db,
                            const void *data,
                            size_t bytes,
                            reef_key *out,
                            char name[REEF_NAME_BYTES_MAX + 1],
                            reef_error *err) {
    assert(reef_db_has_records(db));
    const uint8_t *p = data;
    const uint8_t *end = p + bytes;
    // Moments of experts and of tensors share a database; their tag follows the generation.
    key_layout layout = layout_of(db, bytes > 4 && p[4] == 1);
    *out = (reef_key){.db = db};
    for (size_t i = 0; layout[i] != END; i++) {
        if (layout[i] == NAME) {
            if (!name_decode(&p, end, out, name)) goto malformed;
            continue;
        }
        size_t width = field_bytes(layout[i]);
        if ((size_t)(end - p) < width) goto malformed;
        if (width == 1) {
            if (*p != (layout[i] == TAG_TENSOR ? 1 : 0)) goto malformed;
        } else {
            field_set(out, layout[i], width == 8 ? reef_get_be64(p) : reef_get_be32(p));
        }
        p += width;
    }
    // With bytes left over, two stored keys would stand for the same record.
    if (p == end) return REEF_OK;
malformed:
    return reef_fail(err, REEF_ERR_CORRUPT, "a key of %zu bytes in %s is malformed", bytes,
                     reef_db_name(db));
}

// Names come from outside, and messages go to terminals and logs.
static void name_format(const char *name, char out[REEF_NAME_BYTES_MAX + 1]) {
    size_t length = strnlen(name, REEF_NAME_BYTES_MAX);
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)name[i];
        out[i] = c < 0x20 || c == 0x7f ? '?' : name[i];
    }
    out[length] = '\0';
}

void reef_key_format(const reef_key *key, char out[REEF_KEY_TEXT_BYTES]) {
    key_layout layout = layout_of(key->db, key->name != NULL);
    int used = snprintf(out, REEF_KEY_TEXT_BYTES, "%s (", reef_db_name(key->db));
    const char *separator = "";
    for (size_t i = 0; layout[i] != END && used < REEF_KEY_TEXT_BYTES; i++) {
        char *end = out + used;
        size_t room = (size_t)(REEF_KEY_TEXT_BYTES - used);
        // The tag shows in the text already, by the name or its absence.
        if (layout[i] == TAG_ROWS || layout[i] == TAG_TENSOR) continue;
        if (layout[i] == NAME) {
            char name[REEF_NAME_BYTES_MAX + 1];
            name_format(key->name == NULL ? "" : key->name, name);
            used += snprintf(end, room, "%sname %s", separator, name);
        } else {
            used += snprintf(end, room, "%s%s %" PRIu64, separator, field_text(layout[i]),
                             field_value(key, layout[i]));
        }
        separator = ", ";
    }
    if (used < REEF_KEY_TEXT_BYTES - 1) memcpy(out + used, ")", 2);
}

// ---- hashes and headers -------------------------------------------------------------------------

void reef_record_content_hash(reef_db db,
                              const reef_key_bytes *key,
                              reef_dtype dtype,
                              const void *payload,
                              size_t bytes,
                              uint8_t out[REEF_HASH_BYTES]) {
    XXH3_state_t state;
    uint8_t kind[2] = {(uint8_t)db, (uint8_t)dtype};
    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, kind, sizeof(kind));
    XXH3_128bits_update(&state, key->data, key->bytes);
    if (bytes > 0) XXH3_128bits_update(&state, payload, bytes);
    // Canonical order of bytes, so that hashes are the same on every machine.
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state));
    memcpy(out, canonical.digest, REEF_HASH_BYTES);
}

static uint64_t header_checksum(const uint8_t *header,
                                const reef_key_bytes *key,
                                const uint8_t content[REEF_HASH_BYTES]) {
    uint8_t covered[40 + REEF_KEY_BYTES_MAX + REEF_HASH_BYTES];
    memcpy(covered, header, 40);
    memcpy(covered + 40, key->data, key->bytes);
    memcpy(covered + 40 + key->bytes, content, REEF_HASH_BYTES);
    return XXH3_64bits(covered, 40 + key->bytes + REEF_HASH_BYTES);
}

void reef_record_header_write(uint8_t header[REEF_RECORD_HEADER_BYTES],
                              const reef_key *key,
                              const reef_key_bytes *encoded,
                              reef_dtype dtype,
                              uint64_t commit,
                              size_t bytes,
                              const uint8_t content[REEF_HASH_BYTES]) {
    memset(header, 0, REEF_RECORD_HEADER_BYTES);
    reef_put_le32(header, RECORD_MAGIC);
    header[4] = RECORD_SCHEMA;
    header[5] = (uint8_t)key->db;
    header[6] = (uint8_t)dtype;
    reef_put_le32(header + 8, key->generation);
    reef_put_le32(header + 12, key->layer);
    reef_put_le32(header + 16, key->block);
    reef_put_le64(header + 24, commit);
    reef_put_le64(header + 32, bytes);
    // Last, since it covers the fields before it, the key and the content.
    reef_put_le64(header + 40, header_checksum(header, encoded, content));
}

static reef_status fail_damaged(const reef_key *key, const char *what, reef_error *err) {
    char text[REEF_KEY_TEXT_BYTES];
    reef_key_format(key, text);
    return reef_fail(err, REEF_ERR_CORRUPT, "%s: %s", text, what);
}

static reef_status header_parse(const reef_key *key,
                                const void *record,
                                size_t record_bytes,
                                uint8_t header[REEF_RECORD_HEADER_BYTES],
                                reef_view *out,
                                reef_error *err) {
    if (record_bytes < REEF_RECORD_HEADER_BYTES)
        return fail_damaged(key, "the record is shorter than its header", err);
    memcpy(header, record, REEF_RECORD_HEADER_BYTES); // small records sit at odd addresses
    if (reef_get_le32(header) != RECORD_MAGIC)
        return fail_damaged(key, "the record does not begin with REEF", err);
    if (header[4] != RECORD_SCHEMA || header[5] != (uint8_t)key->db || header[6] > REEF_I8)
        return fail_damaged(key, "schema, kind or dtype of the record's header is wrong", err);
    if (reef_get_le64(header + 32) != record_bytes - REEF_RECORD_HEADER_BYTES)
        return fail_damaged(key, "the record's length differs from its header", err);
    *out = (reef_view){.data = (const uint8_t *)record + REEF_RECORD_HEADER_BYTES,
                       .bytes = record_bytes - REEF_RECORD_HEADER_BYTES,
                       .dtype = (reef_dtype)header[6],
                       .commit = reef_get_le64(header + 24)};
    return REEF_OK;
}

reef_status reef_record_parse(const reef_key *key,
                              const reef_key_bytes *encoded,
                              const void *record,
                              size_t record_bytes,
                              reef_view *out,
                              uint8_t content[REEF_HASH_BYTES],
                              reef_error *err) {
    uint8_t header[REEF_RECORD_HEADER_BYTES];
    reef_status status = header_parse(key, record, record_bytes, header, out, err);
    if (status != REEF_OK) return status;
    reef_record_content_hash(key->db, encoded, out->dtype, out->data, out->bytes, content);
    if (reef_get_le64(header + 40) != header_checksum(header, encoded, content))
        return fail_damaged(key, "the record's checksum does not match its bytes", err);
    return REEF_OK;
}

reef_status reef_record_parse_header(const reef_key *key,
                                     const reef_key_bytes *encoded,
                                     const void *record,
                                     size_t record_bytes,
                                     const uint8_t content[REEF_HASH_BYTES],
                                     reef_view *out,
                                     reef_error *err) {
    uint8_t header[REEF_RECORD_HEADER_BYTES];
    reef_status status = header_parse(key, record, record_bytes, header, out, err);
    if (status != REEF_OK) return status;
    if (reef_get_le64(header + 40) != header_checksum(header, encoded, content))
        return fail_damaged(key, "the record's header does not match its entry in sums", err);
    return REEF_OK;
}

void reef_hash_format(const uint8_t hash[REEF_HASH_BYTES], char out[2 * REEF_HASH_BYTES + 1]) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < REEF_HASH_BYTES; i++) {
        out[2 * i] = digits[hash[i] >> 4];
        out[2 * i + 1] = digits[hash[i] & 15];
    }
    out[2 * REEF_HASH_BYTES] = '\0';
}

static uint8_t digit_of(char c) {
    return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

bool reef_hash_parse(const char *text, uint8_t out[REEF_HASH_BYTES]) {
    size_t digits = (size_t)2 * REEF_HASH_BYTES;
    if (text == NULL || strlen(text) != digits || strspn(text, "0123456789abcdef") != digits)
        return false;
    for (size_t i = 0; i < REEF_HASH_BYTES; i++)
        out[i] = (uint8_t)(digit_of(text[2 * i]) << 4 | digit_of(text[2 * i + 1]));
    return true;
}

uint32_t reef_block_rows(size_t row_bytes) {
    assert(row_bytes > 0);
    uint32_t rows = 1; // a row wider than a block still needs a slot
    while (2 * (size_t)rows * row_bytes <= REEF_BLOCK_BYTES_MAX) rows *= 2;
    return rows;
}
