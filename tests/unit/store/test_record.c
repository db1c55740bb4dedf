// Records: keys keep their order, payloads come back, rules on keys hold, equal content is not
// rewritten. Errors: statuses have texts and exit codes.
#include "record.h"
#include "reef_store.h"

#include "pool.h"
#include "test.h"

static const reef_key sample_keys[] = {
    {.db = REEF_DB_META, .name = "config"},
    {.db = REEF_DB_TENSORS, .generation = 3, .name = "w_q", .block = 2},
    {.db = REEF_DB_EXPERTS, .generation = 1, .layer = 2, .block = 3},
    {.db = REEF_DB_MOMENTS, .generation = 7, .layer = 5, .block = 6},
    {.db = REEF_DB_MOMENTS, .generation = 7, .name = "w_q"},
    {.db = REEF_DB_FLAGS, .generation = 1, .layer = 2, .block = 3},
    {.db = REEF_DB_USAGE,
     .level = 2,
     .window = UINT64_MAX,
     .generation = 1,
     .layer = 1,
     .block = 9},
    {.db = REEF_DB_FLAGS, .block = UINT32_MAX},
    {.db = REEF_DB_JOURNAL, .name = "a source", .sequence = 1},
    {.db = REEF_DB_TIMELINE, .sequence = UINT64_MAX},
    {.db = REEF_DB_SERIES, .name = "loss", .level = 1, .sequence = 12},
    {.db = REEF_DB_MEMORY, .generation = 3, .name = "tables", .block = 2},
};
#define SAMPLE_COUNT (sizeof(sample_keys) / sizeof(sample_keys[0]))

static void assert_same_key(const reef_key *a, const reef_key *b) {
    assert_int_equal(a->db, b->db);
    assert_int_equal(a->generation, b->generation);
    assert_int_equal(a->layer, b->layer);
    assert_int_equal(a->block, b->block);
    assert_int_equal(a->level, b->level);
    assert_true(a->window == b->window && a->sequence == b->sequence);
    assert_int_equal(a->name == NULL, b->name == NULL);
    if (a->name != NULL) assert_string_equal(a->name, b->name);
}

PLAIN_TEST(keys_survive_encoding) {
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        reef_key_bytes bytes;
        reef_key back;
        char name[REEF_NAME_BYTES_MAX + 1];
        must(reef_key_encode(&sample_keys[i], &bytes, &why));
        must(reef_key_decode(sample_keys[i].db, bytes.data, bytes.bytes, &back, name, &why));
        assert_same_key(&sample_keys[i], &back);
        for (size_t cut = 0; cut < bytes.bytes; cut++)
            assert_int_equal(reef_key_decode(sample_keys[i].db, bytes.data, cut, &back, name, NULL),
                             REEF_ERR_CORRUPT);
    }
}

static int compare_bytes(const reef_key *a, const reef_key *b) {
    reef_key_bytes x;
    reef_key_bytes y;
    must(reef_key_encode(a, &x, &why));
    must(reef_key_encode(b, &y, &why));
    int order = memcmp(x.data, y.data, x.bytes < y.bytes ? x.bytes : y.bytes);
    return order != 0 ? order : (x.bytes > y.bytes) - (x.bytes < y.bytes);
}

PLAIN_TEST(encoded_keys_sort_like_their_fields) {
    const reef_key ascending[] = {
        {.db = REEF_DB_TENSORS, .generation = 0, .name = "b", .block = 700},
        {.db = REEF_DB_TENSORS, .generation = 1, .name = "a"},
        {.db = REEF_DB_TENSORS, .generation = 1, .name = "a", .block = 256},
        {.db = REEF_DB_TENSORS,
         .generation = 1,
         .name = "a.b"}, // a prefix sorts before what it begins
        {.db = REEF_DB_TENSORS, .generation = 1, .name = "ab"},
        {.db = REEF_DB_TENSORS, .generation = 255, .name = "a"},
        {.db = REEF_DB_TENSORS, .generation = 256, .name = "a"},
        {.db = REEF_DB_TENSORS, .generation = REEF_SNAPSHOT_GENERATION, .name = "a"},
    };
    for (size_t i = 0; i + 1 < sizeof(ascending) / sizeof(ascending[0]); i++)
        assert_true(compare_bytes(&ascending[i], &ascending[i + 1]) < 0);
}

POOL_TEST(bad_keys_are_refused) {
    char long_name[REEF_NAME_BYTES_MAX + 2];
    memset(long_name, 'x', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    const struct {
        reef_key key;
        const char *part;
    } cases[] = {
        {{.db = REEF_DB_META}, "needs a name"},
        {{.db = REEF_DB_META, .name = ""}, "needs a name"},
        {{.db = REEF_DB_META, .name = long_name}, "longer than 64"},
        {{.db = REEF_DB_META, .name = "a", .block = 1}, "has no block"},
        {{.db = REEF_DB_META, .name = "commit"}, "kept by the store"},
        {{.db = REEF_DB_META, .name = "format"}, "kept by the store"},
        {{.db = REEF_DB_EXPERTS, .name = "a"}, "has no name"},
        {{.db = REEF_DB_MEMORY}, "needs a name"},
        {{.db = REEF_DB_MEMORY, .name = "a", .layer = 1}, "has no layer"},
        {{.db = REEF_DB_MEMORY, .generation = REEF_SNAPSHOT_GENERATION, .name = "a"},
         "at most 65536"},
        {{.db = REEF_DB_EXPERTS, .sequence = 5}, "has no sequence"},
        {{.db = REEF_DB_EXPERTS, .generation = REEF_SNAPSHOT_GENERATION}, "at most 65536"},
        {{.db = REEF_DB_GENERATIONS, .generation = 0}, "kept by the store"},
        {{.db = REEF_DB_SNAPSHOTS, .name = "s"}, "kept by the store"},
        {{.db = REEF_DB_SUMS}, "holds no records"},
        {{.db = REEF_DB_COUNT}, "holds no records"},
    };
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        must_fail(reef_record_put(txn, &cases[i].key, REEF_BYTES, "x", 1, &why), REEF_ERR_INVALID,
                  cases[i].part);
        must_fail(reef_record_delete(txn, &cases[i].key, &why), REEF_ERR_INVALID, cases[i].part);
    }
    long_name[REEF_NAME_BYTES_MAX] = '\0'; // the longest that fits
    pool_put(txn, &(reef_key){.db = REEF_DB_META, .name = long_name}, "x", 1);
    pool_commit(txn, 1); // refusals do not spoil the transaction
    pool_check(f->store);
}

POOL_TEST(payloads_of_all_types_and_sizes_come_back) {
    static const size_t sizes[] = {0,
                                   1,
                                   2,
                                   3,
                                   7,
                                   47,
                                   48,
                                   63,
                                   64,
                                   100,
                                   1000,
                                   1950,
                                   2039,
                                   2040,
                                   4031,
                                   4032,
                                   4033,
                                   4096,
                                   65535,
                                   65536,
                                   65537,
                                   131071,
                                   REEF_BLOCK_BYTES_MAX,
                                   1 << 20};
    enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };
    uint8_t *payload = room(1 << 20);
    for (int dtype = REEF_BYTES; dtype <= REEF_JSON; dtype++) {
        reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
        for (uint32_t i = 0; i < SIZES; i++) {
            const reef_key key = {.db = REEF_DB_EXPERTS, .layer = (uint32_t)dtype, .block = i};
            fill(payload, sizes[i], i);
            must(reef_record_put(txn, &key, (reef_dtype)dtype, payload, sizes[i], &why));
        }
        pool_commit(txn, (uint64_t)dtype);
    }
    pool_reopen(f);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    for (int dtype = REEF_BYTES; dtype <= REEF_JSON; dtype++) {
        for (uint32_t i = 0; i < SIZES; i++) {
            const reef_key key = {.db = REEF_DB_EXPERTS, .layer = (uint32_t)dtype, .block = i};
            reef_view view;
            fill(payload, sizes[i], i);
            must(reef_record_view(txn, &key, &view, &why));
            assert_int_equal(view.bytes, sizes[i]);
            assert_int_equal(view.dtype, dtype);
            assert_int_equal(view.commit, dtype + 1);
            if (sizes[i] > 0) assert_memory_equal(view.data, payload, sizes[i]);
            // LMDB puts what is larger than half a page on pages of its own.
            if (sizes[i] >= 4096) assert_int_equal((uintptr_t)view.data % 64, 0);
        }
    }
    reef_txn_abort(txn);
    pool_check(f->store);
}

POOL_TEST(records_are_located_without_being_read) {
    static uint8_t payload[20000];
    const reef_key key = {.db = REEF_DB_EXPERTS, .generation = 1, .layer = 2, .block = 3};
    const reef_key absent = {.db = REEF_DB_EXPERTS, .generation = 1, .layer = 2, .block = 4};
    reef_commit commit = {0};
    const void *at = NULL;
    for (size_t i = 0; i < sizeof(payload); i++) payload[i] = (uint8_t)(i * 7);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    must(reef_record_put(txn, &key, REEF_I8, payload, sizeof(payload), &why));
    must(reef_txn_commit(txn, &commit, &why));
    txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_record_locate(txn, &key, sizeof(payload), &at, &why));
    assert_memory_equal(at, payload, sizeof(payload));
    assert_int_equal((uintptr_t)at % 64, 0);
    must_fail(reef_record_locate(txn, &key, sizeof(payload) - 1, &at, &why), REEF_ERR_CORRUPT,
              "20000 bytes instead of 19999");
    assert_null(at);
    must_fail(reef_record_locate(txn, &absent, 1, &at, &why), REEF_ERR_NOT_FOUND, "block 4");
    reef_txn_abort(txn);
}

POOL_TEST(every_database_holds_records) {
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    for (uint32_t i = 0; i < SAMPLE_COUNT; i++) pool_put(txn, &sample_keys[i], &i, sizeof(i));
    pool_commit(txn, 1);
    txn = pool_begin(f->store, REEF_TXN_READ);
    for (uint32_t i = 0; i < SAMPLE_COUNT; i++) {
        uint32_t back = UINT32_MAX;
        must(reef_record_read(txn, &sample_keys[i], &back, sizeof(back), &why));
        assert_int_equal(back, i);
        must_fail(reef_record_read(txn, &sample_keys[i], &back, 3, &why), REEF_ERR_CORRUPT,
                  "has 4 bytes instead of 3");
    }
    reef_txn_abort(txn);
    pool_check(f->store);
}

POOL_TEST(a_missing_record_is_not_found_and_named) {
    reef_view view;
    const reef_key key = {.db = REEF_DB_TENSORS, .generation = 4, .name = "w_q"};
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    must_fail(reef_record_view(txn, &key, &view, &why), REEF_ERR_NOT_FOUND,
              "tensors (generation 4, name w_q, block 0)");
    assert_null(view.data);
    reef_txn_abort(txn);
}

POOL_TEST(equal_content_is_not_written_again) {
    for (size_t i = 0; i < SAMPLE_COUNT; i++) {
        reef_view view;
        reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
        pool_put(txn, &sample_keys[i], "content", 7);
        reef_commit first = pool_commit(txn, 1);
        assert_int_equal(first.bytes_written, 7);

        txn = pool_begin(f->store, REEF_TXN_WRITE);
        pool_put(txn, &sample_keys[i], "content", 7);
        reef_commit second = pool_commit(txn, 1);
        assert_int_equal(second.bytes_written, 0);
        assert_memory_equal(first.root, second.root, REEF_HASH_BYTES);

        txn = pool_begin(f->store, REEF_TXN_WRITE);
        must(reef_record_view(txn, &sample_keys[i], &view, &why));
        assert_int_equal(view.commit, first.number);
        must(reef_record_put(txn, &sample_keys[i], REEF_U32, "content", 7, &why)); // another type
        reef_commit third = pool_commit(txn, 1);
        assert_int_equal(third.bytes_written, 7);
    }
    pool_check(f->store);
}

PLAIN_TEST(blocks_have_the_largest_power_of_two_of_rows) {
    assert_int_equal(reef_block_rows(1), 131072);
    assert_int_equal(reef_block_rows(2 * 256 * sizeof(float)), 64);
    assert_int_equal(reef_block_rows(2 * 255 * sizeof(float)), 64);
    assert_int_equal(reef_block_rows(2 * 257 * sizeof(float)), 32);
    assert_int_equal(reef_block_rows(131072), 1);
    assert_int_equal(reef_block_rows(131073), 1);
    for (size_t row = 1; row < 140000; row += 37) {
        size_t rows = reef_block_rows(row);
        assert_true((rows & (rows - 1)) == 0 && (rows == 1 || rows * row <= REEF_BLOCK_BYTES_MAX));
        assert_true(2 * rows * row > REEF_BLOCK_BYTES_MAX);
    }
}

PLAIN_TEST(messages_have_no_control_characters) {
    char text[REEF_KEY_TEXT_BYTES];
    reef_key_format(&(reef_key){.db = REEF_DB_JOURNAL, .name = "a\x1b[2Jb\n", .sequence = 3}, text);
    assert_string_equal(text, "journal (name a?[2Jb?, sequence 3)");
}

PLAIN_TEST(statuses_have_texts_and_exit_codes) {
    assert_string_equal(reef_status_text(REEF_OK), "ok");
    assert_string_equal(reef_status_text(REEF_ERR_NOT_FOUND), "not found");
    assert_int_equal(reef_status_exit_code(REEF_OK), 0);
    assert_int_equal(reef_status_exit_code(REEF_ERR_IO), 74);
    assert_int_equal(reef_fail(NULL, REEF_ERR_FULL, "nobody listens"), REEF_ERR_FULL);
    assert_int_equal(reef_fail(&why, REEF_ERR_FULL, "%d is %s", 7, "too much"), REEF_ERR_FULL);
    assert_string_equal(why.message, "7 is too much");
    assert_int_equal(reef_fail(&why, REEF_ERR_IO, "%0400d", 1),
                     REEF_ERR_IO); // longer than the message
    assert_int_equal(strlen(why.message), sizeof(why.message) - 1);
}

PLAIN_TEST(hashes_print_as_hexadecimal) {
    uint8_t hash[REEF_HASH_BYTES] = {0x00, 0x1f, 0xa0, [15] = 0xff};
    char text[2 * REEF_HASH_BYTES + 1];
    reef_hash_format(hash, text);
    assert_string_equal(text, "001fa0000000000000000000000000ff");
}

// The hash of one known record: a change here is a change of the format.
PLAIN_TEST(content_hash_and_header_stay_what_they_are) {
    const reef_key key = {.db = REEF_DB_EXPERTS, .generation = 1, .layer = 2, .block = 3};
    reef_key_bytes encoded;
    uint8_t content[REEF_HASH_BYTES];
    uint8_t header[REEF_RECORD_HEADER_BYTES];
    char text[2 * REEF_HASH_BYTES + 1];
    must(reef_key_encode(&key, &encoded, &why));
    assert_int_equal(encoded.bytes, 12);
    assert_memory_equal(encoded.data, "\0\0\0\1\0\0\0\2\0\0\0\3", 12);
    reef_record_content_hash(key.db, &encoded, REEF_F32, "payload", 7, content);
    reef_hash_format(content, text);
    assert_string_equal(text, "f265d041ed446c1b4190b992bcc13817");
    reef_record_header_write(header, &key, &encoded, REEF_F32, 9, 7, content);
    static const uint8_t expected[40] = {'R', 'E', 'E', 'F', 1, 2, 1, 0, 1, 0, 0, 0, 2, 0,
                                         0,   0,   3,   0,   0, 0, 0, 0, 0, 0, 9, 0, 0, 0,
                                         0,   0,   0,   0,   7, 0, 0, 0, 0, 0, 0, 0};
    assert_memory_equal(header, expected, sizeof(expected));
    reef_hash_format(header + 32, text); // payload bytes and checksum
    assert_string_equal(text, "07000000000000007182ae202387ba35");
}

PLAIN_TEST(a_hash_is_read_as_it_was_written_and_nothing_else_is_one) {
    static const char *const BAD[] = {"",
                                      "f265d041ed446c1b4190b992bcc1381",
                                      "f265d041ed446c1b4190b992bcc138170",
                                      "F265d041ed446c1b4190b992bcc13817",
                                      "zz65d041ed446c1b4190b992bcc13817",
                                      "f265d041ed446c1b 190b992bcc13817",
                                      "+265d041ed446c1b4190b992bcc13817"};
    uint8_t hash[REEF_HASH_BYTES], back[REEF_HASH_BYTES];
    char text[2 * REEF_HASH_BYTES + 1];
    for (size_t i = 0; i < REEF_HASH_BYTES; i++) hash[i] = (uint8_t)(17 * i + 1);
    reef_hash_format(hash, text);
    assert_true(reef_hash_parse(text, back));
    assert_memory_equal(back, hash, sizeof(hash));
    assert_false(reef_hash_parse(NULL, back));
    for (size_t i = 0; i < sizeof(BAD) / sizeof(*BAD); i++)
        assert_false(reef_hash_parse(BAD[i], back));
    assert_memory_equal(back, hash, sizeof(hash)); // untouched
}

RUN_TESTS
