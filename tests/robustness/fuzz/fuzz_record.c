// Keys and records as they lie in the file. Input: database, key length, key, where to change a
// record and by what, payload.
#include "fuzz.h"
#include "record.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

// Bytes that are a key are the bytes of that key.
static bool decode(reef_db db, const uint8_t *data, size_t bytes, reef_key *key, char *name) {
    reef_error err;
    reef_key_bytes encoded;
    char words[REEF_KEY_TEXT_BYTES];
    reef_status status = reef_key_decode(db, data, bytes, key, name, &err);
    if (status != REEF_OK) {
        assert(status == REEF_ERR_CORRUPT);
        fuzz_failure(status, &err);
        return false;
    }
    assert(reef_key_encode(key, &encoded, &err) == REEF_OK);
    assert(encoded.bytes == bytes && memcmp(encoded.data, data, bytes) == 0);
    reef_key_format(key, words);
    assert(memchr(words, 0, sizeof(words)) != NULL);
    return true;
}

static void parse(const reef_key *key,
                  const reef_key_bytes *encoded,
                  const void *record,
                  size_t bytes,
                  bool sound) {
    reef_error err;
    reef_view view;
    uint8_t content[REEF_HASH_BYTES];
    reef_status status = reef_record_parse(key, encoded, record, bytes, &view, content, &err);
    if (status != REEF_OK) fuzz_failure(status, &err);
    assert((status == REEF_OK) == sound);
    if (!sound) return;
    assert(view.bytes == bytes - REEF_RECORD_HEADER_BYTES);
    assert(reef_record_parse_header(key, encoded, record, bytes, content, &view, &err) == REEF_OK);
}

// A record is read back as it was written; one that was changed anywhere is found out.
static void round_trip(const reef_key *key, fuzz_input *input) {
    reef_error err;
    reef_key_bytes encoded;
    uint8_t content[REEF_HASH_BYTES];
    uint16_t place = fuzz_u16(input);
    uint8_t change = fuzz_u8(input);
    size_t payload = input->left, bytes = REEF_RECORD_HEADER_BYTES + payload;
    uint8_t *record = malloc(bytes);
    assert(record && reef_key_encode(key, &encoded, &err) == REEF_OK);
    if (payload) memcpy(record + REEF_RECORD_HEADER_BYTES, input->at, payload);
    reef_record_content_hash(key->db, &encoded, REEF_BYTES, record + REEF_RECORD_HEADER_BYTES,
                             payload, content);
    reef_record_header_write(record, key, &encoded, REEF_BYTES, place, payload, content);
    parse(key, &encoded, record, bytes, true);
    record[place % bytes] ^= change;
    parse(key, &encoded, record, bytes, change == 0);
    free(record);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input = {data, size};
    reef_key key;
    char name[REEF_NAME_BYTES_MAX + 1];
    size_t bytes;
    reef_db db = (reef_db)(fuzz_u8(&input) % (REEF_DB_COUNT - 1));
    if (db == REEF_DB_SUMS) db = REEF_DB_MEMORY; // the entries of sums are not records
    const uint8_t *at = fuzz_take(&input, fuzz_u8(&input), &bytes);
    if (!decode(db, at, bytes, &key, name)) return 0;
    reef_error err;
    reef_view view;
    reef_key_bytes encoded;
    uint8_t content[REEF_HASH_BYTES];
    assert(reef_key_encode(&key, &encoded, &err) == REEF_OK);
    // As it is: random bytes have no right checksum, and those that do would be a record.
    if (reef_record_parse(&key, &encoded, input.at, input.left, &view, content, &err) != REEF_OK)
        fuzz_failure(err.status, &err);
    round_trip(&key, &input);
    return 0;
}
