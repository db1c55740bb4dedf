// Reading sealed records again, piece by piece: all of them are met, damage is named, and nothing
// is written.
#include "page_reader.h"
#include "record.h"
#include "reef_byte_order.h"
#include "reef_pool_check.h"
#include "reef_snapshot.h"
#include "reef_store.h"

#include <lmdb.h>

#include "data_file.h"
#include "pool.h"
#include "test.h"

#define PAGE 4096
#define BLOCKS 60
#define LARGE 9000
#define MOMENTS 7
#define MEMORIES 4

// Generations 0 and 1 sealed, 2 open, and a snapshot with a copy of 2.
static void make_pool(pool_fixture *f) {
    uint8_t payload[LARGE];
    reef_snapshot snapshot;
    for (uint32_t g = 0; g < 3; g++) {
        reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
        pool_open_generation(txn, g);
        for (uint32_t b = 0; b < BLOCKS; b++) {
            fill(payload, sizeof(payload), 1000 * g + b);
            pool_put(txn, &(reef_key){.db = REEF_DB_EXPERTS, .generation = g, .block = b}, payload,
                     LARGE);
            pool_put(txn, &(reef_key){.db = REEF_DB_FLAGS, .generation = g, .block = b}, payload,
                     64);
            const reef_key memory = {
                .db = REEF_DB_MEMORY, .generation = g, .name = "tables", .block = b};
            if (b < MEMORIES) pool_put(txn, &memory, payload, LARGE);
        }
        pool_put(txn, &(reef_key){.db = REEF_DB_TENSORS, .generation = g, .name = "head"}, payload,
                 300);
        for (uint32_t b = 0; g == 2 && b < MOMENTS; b++)
            pool_put(txn, &(reef_key){.db = REEF_DB_MOMENTS, .generation = g, .block = b}, payload,
                     500 + b);
        if (g < 2) must(reef_generation_seal(txn, g, g, 100 * g, &why));
        pool_commit(txn, g);
    }
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    must(reef_snapshot_create(txn, "kept", &snapshot, &why));
    pool_commit(txn, 3);
}
#define SEALED_RECORDS (3 * (2 * BLOCKS + 1 + MEMORIES) + MOMENTS)

typedef struct findings {
    size_t count;
    char last[300];
} findings;

static void on_damage(void *context, const reef_key *key, const char *what) {
    findings *found = context;
    found->count++;
    snprintf(found->last, sizeof(found->last), "%s", what);
}

// Pieces until a pass ends, at most.
static size_t pass(reef_store *store, reef_scrub *scrub, uint64_t piece, findings *found) {
    size_t pieces = 0;
    *found = (findings){0};
    for (uint64_t before = scrub->passes; scrub->passes == before; pieces++) {
        uint64_t bytes = 0;
        must(reef_store_scrub(store, scrub, piece, 5000 + pieces, on_damage, found, &bytes, &why));
        assert_true(bytes <= piece + LARGE + REEF_RECORD_HEADER_BYTES);
        assert_true(pieces < 10000);
    }
    return pieces;
}

POOL_TEST(a_pass_meets_every_sealed_record_once) {
    findings found;
    make_pool(f);
    for (uint64_t piece = 1; piece < 10000000; piece *= 50) { // a record a piece, up to all at once
        reef_scrub scrub = {0};
        size_t pieces = pass(f->store, &scrub, piece, &found);
        assert_int_equal(found.count, 0);
        assert_int_equal(scrub.last_records, SEALED_RECORDS);
        assert_true(scrub.last_bytes > (uint64_t)3 * BLOCKS * LARGE);
        assert_int_equal(scrub.last_damaged, 0);
        assert_int_equal(scrub.last_ms, 5000 + pieces - 1);
        assert_int_equal(scrub.next_bytes, 0);
        assert_true(piece > 1000 ? pieces < SEALED_RECORDS : pieces >= SEALED_RECORDS);
        pass(f->store, &scrub, piece, &found); // and again from the beginning
        assert_int_equal(scrub.passes, 2);
        assert_int_equal(scrub.last_records, SEALED_RECORDS);
    }
}

POOL_TEST(without_sealed_records_there_is_no_pass) {
    reef_scrub scrub = {0};
    findings found = {0};
    uint64_t bytes = 1;
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_open_generation(txn, 0);
    pool_put(txn, &(reef_key){.db = REEF_DB_EXPERTS}, "rows", 4);
    pool_commit(txn, 1);
    for (int i = 0; i < 3; i++)
        must(reef_store_scrub(f->store, &scrub, 1000, 1, on_damage, &found, &bytes, &why));
    assert_int_equal(bytes, 0);
    assert_int_equal(scrub.passes + scrub.records + found.count, 0);
}

POOL_TEST(a_pass_continues_where_it_was_kept) {
    reef_scrub scrub = {0}, kept;
    findings found = {0};
    uint64_t bytes, root_before[2], root_after[2];
    make_pool(f);
    must(reef_store_scrub(f->store, &scrub, 200000, 7, on_damage, &found, &bytes, &why));
    assert_true(scrub.records > 0 && scrub.records < SEALED_RECORDS);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    reef_commit before;
    must(reef_commit_read(txn, &before, &why));
    must(reef_scrub_read(txn, &kept, &why));
    assert_int_equal(kept.records, 0); // nothing was kept yet
    reef_txn_abort(txn);
    txn = pool_begin(f->store, REEF_TXN_WRITE);
    must(reef_scrub_put(txn, &scrub, &why));
    reef_commit after = {.step = before.step, .stream_bytes = before.stream_bytes};
    must(reef_txn_commit(txn, &after, &why));
    memcpy(root_before, before.root, sizeof(root_before));
    memcpy(root_after, after.root, sizeof(root_after));
    assert_memory_equal(root_before, root_after, sizeof(root_after)); // no part of the root hash
    pool_check(f->store);
    pool_reopen(f);
    txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_scrub_read(txn, &kept, &why));
    reef_txn_abort(txn);
    assert_int_equal(kept.records, scrub.records);
    assert_int_equal(kept.began_ms, 7);
    assert_memory_equal(kept.next, scrub.next, scrub.next_bytes);
    pass(f->store, &kept, 1 << 20, &found);
    assert_int_equal(kept.last_records, SEALED_RECORDS); // none twice, none left out
}

POOL_TEST(damage_of_a_sealed_record_is_named_and_the_pass_goes_on) {
    uint8_t payload[32];
    findings found;
    reef_scrub scrub = {0};
    make_pool(f);
    pool_close(f);
    fill(payload, sizeof(payload), 1000 + 3); // generation 1, block 3: rows, flags and memory
    data_bytes file = data_file_load(f->path);
    size_t flipped = 0;
    for (size_t at = 0; (at = data_file_find(&file, at, payload, 32)) != SIZE_MAX; at++, flipped++)
        file.data[at + 20] ^= 2;
    assert_true(flipped >= 3);
    data_file_replace(f->path, &file);
    f->store = pool_open(f->path, false, true);
    pass(f->store, &scrub, 100000, &found);
    assert_int_equal(found.count, 3);
    assert_non_null(strstr(found.last, "memory (generation 1, name tables, block 3): the record's "
                                       "checksum does not match"));
    assert_int_equal(scrub.last_damaged, 3);
    assert_int_equal(scrub.last_records, SEALED_RECORDS);
}

// What sums has of flags (generation 0, block 3), written over behind the store's back.
static void sum_replace(pool_fixture *f, const void *entry, size_t bytes) {
    reef_key_bytes encoded;
    uint8_t name[REEF_SUM_KEY_BYTES_MAX] = {REEF_DB_FLAGS};
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    must(reef_key_encode(&(reef_key){.db = REEF_DB_FLAGS, .block = 3}, &encoded, &why));
    memcpy(name + 1, encoded.data, encoded.bytes);
    pool_close(f);
    MDB_val key = {.mv_size = 1 + encoded.bytes, .mv_data = name};
    MDB_val value = {.mv_size = bytes, .mv_data = (void *)(uintptr_t)entry};
    assert_int_equal(mdb_env_create(&env), 0);
    assert_int_equal(mdb_env_set_maxdbs(env, REEF_DB_COUNT), 0);
    assert_int_equal(mdb_env_open(env, f->path, 0, 0600), 0);
    assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, "sums", 0, &dbi), 0);
    assert_int_equal(
        bytes == 0 ? mdb_del(txn, dbi, &key, NULL) : mdb_put(txn, dbi, &key, &value, 0), 0);
    assert_int_equal(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
    f->store = pool_open(f->path, false, true);
}

POOL_TEST(a_record_that_is_not_the_one_in_sums_is_found) {
    reef_key_bytes encoded;
    uint8_t payload[LARGE], entry[REEF_SUM_BYTES];
    const reef_key key = {.db = REEF_DB_FLAGS, .block = 3};
    make_pool(f);
    fill(payload, sizeof(payload), 3);
    must(reef_key_encode(&key, &encoded, &why));
    reef_record_content_hash(key.db, &encoded, REEF_BYTES, payload, 64, entry + 8);
    static const char *const WORDS[] = {NULL, "differs from its entry", "differs from its entry",
                                        "has no entry in sums"};
    for (int i = 0; i < 4; i++) { // as it is; a later commit; other content; no entry
        reef_scrub scrub = {0};
        findings found;
        reef_put_le64(entry, i == 1 ? 2 : 1);
        entry[8] ^= i == 2;
        sum_replace(f, entry, i == 3 ? 0 : sizeof(entry));
        pass(f->store, &scrub, 1 << 20, &found);
        assert_int_equal(found.count, WORDS[i] != NULL);
        if (WORDS[i] == NULL) continue;
        assert_non_null(strstr(found.last, "flags (generation 0, layer 0, block 3)"));
        assert_non_null(strstr(found.last, WORDS[i]));
        assert_int_equal(scrub.last_records, SEALED_RECORDS);
    }
}

POOL_TEST(a_small_piece_reads_few_records_however_little_they_hold) {
    enum { SMALL = 5000, AT_ONCE = 4096 };
    reef_scrub scrub = {0};
    findings found = {0};
    uint64_t bytes;
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_open_generation(txn, 0);
    for (uint32_t b = 0; b < SMALL; b++)
        pool_put(txn, &(reef_key){.db = REEF_DB_FLAGS, .block = b}, "f", 1);
    must(reef_generation_seal(txn, 0, 1, 1, &why));
    pool_commit(txn, 1);
    must(reef_store_scrub(f->store, &scrub, 1 << 30, 11, on_damage, &found, &bytes, &why));
    assert_int_equal(scrub.records, AT_ONCE);
    assert_int_equal(scrub.began_ms, 11);
    must(reef_store_scrub(f->store, &scrub, 1, 12, on_damage, &found, &bytes, &why));
    assert_int_equal(scrub.began_ms, 11); // of the pass, not of the piece
    assert_int_equal(scrub.passes, 0);
    must(reef_store_scrub(f->store, &scrub, 1 << 30, 13, on_damage, &found, &bytes, &why));
    assert_int_equal(scrub.last_records, SMALL);
    assert_int_equal(scrub.last_ms, 13);
    assert_int_equal(found.count, 0);
}

typedef struct search {
    const char *name;
    uint64_t root;
} search;

static reef_status on_database(void *context,
                               reef_pages *pages,
                               const reef_page_node *node,
                               reef_error *err) {
    search *s = context;
    (void)pages, (void)err;
    if (node->key_bytes == strlen(s->name) && memcmp(node->key, s->name, node->key_bytes) == 0)
        s->root = reef_get_le64(node->value + 40);
    return REEF_OK;
}

static uint64_t root_of(const char *path, const char *name) {
    reef_pages pages;
    reef_page_tree tree;
    search s = {.name = name};
    must(reef_pages_open(&pages, path, &why));
    must(reef_pages_meta(&pages, &why));
    reef_page_tree_parse(pages.main_tree, &tree);
    must(reef_pages_walk(&pages, tree.root, NULL, 0, on_database, &s, &why));
    reef_pages_close(&pages);
    assert_true(s.root > 1);
    return s.root;
}

POOL_TEST(behind_a_broken_tree_the_next_database_is_read) {
    reef_scrub scrub = {0};
    findings found;
    char file_path[TEMP_DIR_BYTES], expected[64];
    make_pool(f);
    uint64_t root = root_of(f->path, "experts");
    data_file_path(file_path, f->path);
    int fd = open(file_path, O_WRONLY);
    assert_int_equal(pwrite(fd, "junkjunkjunk", 12, (off_t)(root * PAGE)), 12);
    close(fd);
    pass(f->store, &scrub, 1 << 20, &found);
    snprintf(expected, sizeof(expected), "page %d of data.mdb is damaged", (int)root);
    assert_non_null(strstr(found.last, expected));
    assert_int_equal(scrub.last_damaged, found.count);
    // All but the rows: tensors before them, moments and flags behind them.
    assert_int_equal(scrub.last_records, SEALED_RECORDS - 3 * BLOCKS);
}

POOL_TEST(a_record_of_scrubs_of_a_wrong_length_is_damaged) {
    static const uint8_t BYTES[200] = {0};
    const size_t lengths[] = {0, 71, 72, 72 + 96, 72 + 97, 200};
    reef_scrub scrub;
    assert_int_equal(REEF_SCRUB_KEY_BYTES, 96);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
        pool_put(txn, &(reef_key){.db = REEF_DB_META, .name = "scrub"}, BYTES, lengths[i]);
        pool_commit(txn, i);
        txn = pool_begin(f->store, REEF_TXN_READ);
        bool right = lengths[i] >= 72 && lengths[i] <= 72 + 96;
        assert_int_equal(reef_scrub_read(txn, &scrub, &why), right ? REEF_OK : REEF_ERR_CORRUPT);
        reef_txn_abort(txn);
    }
}

// Whatever stands in the pages, an answer comes; the map is never touched.
POOL_TEST(broken_pages_are_findings) {
    enum { ROUNDS = 60 };
    uint64_t random = 5;
    size_t answered = 0;
    make_pool(f);
    char file_path[TEMP_DIR_BYTES];
    data_file_path(file_path, f->path);
    data_bytes file = data_file_load(f->path);
    for (int round = 0; round < ROUNDS; round++) {
        size_t page = (size_t)draw_int(&random, 2, (int)(file.bytes / PAGE) - 1);
        uint8_t junk[PAGE];
        fill(junk, sizeof(junk), draw_bits(&random));
        int fd = open(file_path, O_WRONLY);
        assert_int_equal(pwrite(fd, junk, PAGE, (off_t)(page * PAGE)), PAGE);
        reef_scrub scrub = {0};
        findings found = {0};
        bool ended = false;
        for (int i = 0; i < 1000 && !ended; i++) {
            uint64_t bytes;
            reef_status status =
                reef_store_scrub(f->store, &scrub, 1 << 20, 1, on_damage, &found, &bytes, &why);
            ended = status != REEF_OK || scrub.next_bytes == 0;
            answered += status != REEF_OK;
        }
        assert_true(ended);
        answered += found.count > 0;
        assert_int_equal(pwrite(fd, file.data + page * PAGE, PAGE, (off_t)(page * PAGE)), PAGE);
        close(fd);
    }
    assert_true(answered > ROUNDS / 2);
    free(file.data);
    pool_check(f->store);
}

RUN_TESTS
