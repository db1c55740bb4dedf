// What a check reads, what it may leave out, and what it reports about saving what was lost. Pools
// are real and are damaged in their file.
#include "check.h"
#include "page_reader.h"
#include "record.h"
#include "reef_byte_order.h"
#include "reef_pool_check.h"
#include "reef_snapshot.h"
#include "reef_store.h"
#include "reef_usage.h"
#include "store_internal.h"

#include <lmdb.h>

#include "damaged_record.h"
#include "data_file.h"
#include "pool.h"
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define PAGE 4096
#define BLOCKS 40
#define LARGE 9000
#define SMALL 200

static const reef_key sealed_key = {.db = REEF_DB_EXPERTS, .generation = 0, .block = 7};
static const reef_key open_key = {.db = REEF_DB_EXPERTS, .generation = 1, .block = 3};
static const reef_key changed_key = {.db = REEF_DB_EXPERTS, .generation = 1, .block = 4};

// Payloads differ from record to record, and are known again by their key.
static uint64_t seed_of(const reef_key *key) {
    return 1000 * (key->db + 20 * (uint64_t)(key->generation + 1)) + key->block;
}

static void put_filled(reef_txn *txn, const reef_key *key, size_t bytes, uint64_t seed) {
    uint8_t payload[LARGE];
    fill(payload, sizeof(payload), seed);
    pool_put(txn, key, payload, bytes);
}

static reef_key memory_key(uint32_t generation) {
    return (reef_key){.db = REEF_DB_MEMORY, .generation = generation, .name = "tables", .block = 2};
}

static void put_generation(reef_txn *txn, uint32_t generation, uint32_t blocks) {
    for (uint32_t b = 0; b < blocks; b++) {
        const reef_key rows = {.db = REEF_DB_EXPERTS, .generation = generation, .block = b};
        const reef_key flags = {.db = REEF_DB_FLAGS, .generation = generation, .block = b};
        put_filled(txn, &rows, LARGE, seed_of(&rows));
        put_filled(txn, &flags, SMALL, seed_of(&flags));
    }
    const reef_key memory = memory_key(generation);
    put_filled(txn, &memory, LARGE, seed_of(&memory));
}

// Generation 0 sealed, 1 open; snapshot "kept", after which one block of the open generation
// changed.
static void make_pool(pool_fixture *f) {
    reef_snapshot snapshot;
    const uint64_t totals[8] = {5, 50, 0, 0, 7, 70, 1, 10};
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_open_generation(txn, 0);
    put_generation(txn, 0, BLOCKS);
    pool_commit(txn, 1);
    txn = pool_begin(f->store, REEF_TXN_WRITE);
    must(reef_generation_seal(txn, 0, 1, 100, &why));
    pool_open_generation(txn, 1);
    put_generation(txn, 1, 10);
    must(reef_usage_put(txn, 1, 0, 4, 4, totals, 1000, &why));
    pool_commit(txn, 2);
    txn = pool_begin(f->store, REEF_TXN_WRITE);
    must(reef_snapshot_create(txn, "kept", &snapshot, &why));
    pool_commit(txn, 2);
    txn = pool_begin(f->store, REEF_TXN_WRITE);
    put_filled(txn, &changed_key, LARGE, 99);
    must(reef_timeline_append(txn, "{\"event\": \"test\"}", &why));
    pool_commit(txn, 3);
    pool_close(f);
}

typedef struct findings {
    size_t damages;
    char damage[300]; // the last one
} findings;

static void on_damage(void *context, const char *what) {
    findings *found = context;
    found->damages++;
    snprintf(found->damage, sizeof(found->damage), "%s", what);
}

static reef_check_report verify(const pool_fixture *f,
                                reef_check_options options,
                                findings *found) {
    reef_check_report report;
    findings ignored;
    if (found == NULL) found = &ignored;
    *found = (findings){0};
    options.on_damage = on_damage;
    options.context = found;
    must(reef_store_verify(f->path, &options, &report, &why));
    assert_int_equal(report.damaged, found->damages);
    return report;
}

// Flip a bit of a payload that is this seed's, wherever the record's bytes stand after a key of
// `number`.
static size_t flip(const pool_fixture *f, uint64_t seed, ptrdiff_t byte, uint32_t generation) {
    uint8_t payload[32];
    uint8_t number[4];
    size_t flipped = 0;
    fill(payload, sizeof(payload), seed);
    reef_put_le32(number, generation); // in the record's header
    data_bytes file = data_file_load(f->path);
    for (size_t at = 0; (at = data_file_find(&file, at, payload, 32)) != SIZE_MAX; at++) {
        if (memcmp(file.data + at - REEF_RECORD_HEADER_BYTES + 8, number, 4) != 0) continue;
        file.data[(ptrdiff_t)at + byte] ^= 16;
        flipped++;
    }
    data_file_replace(f->path, &file);
    return flipped;
}

// ---- pages --------------------------------------------------------------------------------------

POOL_TEST(every_page_of_a_sound_pool_is_used_once_or_free) {
    uint64_t random = 3;
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_open_generation(txn, 0);
    pool_commit(txn, 0);
    for (uint32_t round = 1; round < 60; round++) {
        txn = pool_begin(f->store, REEF_TXN_WRITE);
        for (int i = 0; i < 12; i++) {
            reef_key key = {.db = REEF_DB_EXPERTS, .block = (uint32_t)draw_int(&random, 0, 300)};
            if (draw_int(&random, 0, 3) == 0)
                must(reef_record_delete(txn, &key, &why));
            else
                put_filled(txn, &key, (size_t)draw_int(&random, 0, LARGE), draw_bits(&random));
        }
        if (round % 7 == 0)
            reef_txn_abort(txn);
        else
            pool_commit(txn, round);
        reef_check_report report = pool_check(f->store);
        assert_int_equal(report.pages, report.pages_used + report.pages_free);
        assert_int_equal(report.pages_lost, 0);
        assert_true(report.pages_used * PAGE == report.used_bytes);
        if (round % 10 == 0) pool_reopen(f);
    }
}

// All that a reader can get from the file, as one hash; 0 when LMDB gives an error.
static uint64_t content_of(const char *path) {
    uint64_t sum = 1469598103934665603u;
    MDB_env *env = NULL;
    MDB_txn *txn = NULL;
    int code = mdb_env_create(&env);
    if (code == 0) code = mdb_env_set_maxdbs(env, REEF_DB_COUNT);
    if (code == 0) code = mdb_env_open(env, path, MDB_RDONLY, 0600);
    if (code == 0) code = mdb_txn_begin(env, NULL, MDB_RDONLY, &txn);
    for (reef_db db = 0; code == 0 && db < REEF_DB_COUNT; db++) {
        MDB_dbi dbi;
        MDB_cursor *cursor = NULL;
        MDB_val key, value;
        code = mdb_dbi_open(txn, reef_db_name(db), 0, &dbi);
        if (code == 0) code = mdb_cursor_open(txn, dbi, &cursor);
        for (int next = MDB_FIRST; code == 0; next = MDB_NEXT) {
            code = mdb_cursor_get(cursor, &key, &value, (MDB_cursor_op)next);
            for (size_t i = 0; code == 0 && i < key.mv_size; i++)
                sum = (sum ^ ((uint8_t *)key.mv_data)[i]) * 1099511628211u;
            for (size_t i = 0; code == 0 && i < value.mv_size; i++)
                sum = (sum ^ ((uint8_t *)value.mv_data)[i]) * 1099511628211u;
        }
        if (code == MDB_NOTFOUND) code = 0;
        if (cursor != NULL) mdb_cursor_close(cursor);
    }
    if (txn != NULL) mdb_txn_abort(txn);
    mdb_env_close(env);
    return code == 0 ? sum : 0;
}

// One bit anywhere: the check finds it, or no reader can tell that it was ever flipped.
POOL_TEST(every_flipped_bit_that_a_reader_can_meet_is_found) {
    enum { ROUNDS = 250 };
    uint64_t random = 17;
    int found = 0;
    make_pool(f);
    uint64_t content = content_of(f->path);
    assert_true(content != 0);
    data_bytes file = data_file_load(f->path);
    for (int round = 0; round < ROUNDS; round++) {
        reef_check_report report;
        // Half of them in the first bytes of a page, where its header and offsets are.
        size_t page = (size_t)draw_int(&random, 0, (int)(file.bytes / PAGE) - 1);
        size_t at = page * PAGE + (size_t)draw_int(&random, 0, round % 2 ? PAGE - 1 : 40);
        uint8_t bit = (uint8_t)(1u << draw_int(&random, 0, 7));
        file.data[at] ^= bit;
        data_file_save(f->path, &file, file.bytes);
        file.data[at] ^= bit;
        reef_status status = reef_store_verify(f->path, NULL, &report, &why);
        if (status != REEF_OK || report.damaged > 0) {
            found++;
            continue;
        }
        if (content_of(f->path) != content)
            fail_msg("round %d: byte %zu of page %zu, bit %d: a reader sees it, the check does not",
                     round, at % PAGE, page, bit);
    }
    assert_true(found > ROUNDS / 4);
    data_file_replace(f->path, &file);
}

POOL_TEST(a_free_list_that_names_a_page_in_use_is_found) {
    reef_pages pages;
    findings found;
    make_pool(f);
    must(reef_pages_open(&pages, f->path, &why));
    must(reef_pages_meta(&pages, &why));
    reef_pages_close(&pages);
    data_bytes file = data_file_load(f->path);
    reef_page_tree tree;
    reef_page_node node;
    reef_page_tree_parse(pages.free_tree, &tree);
    const uint8_t *leaf = file.data + tree.root * PAGE;
    assert_int_equal(reef_page_flags(leaf), PAGE_LEAF);
    assert_true(reef_page_node_parse(leaf, PAGE, 0, false, &node) && node.value_bytes >= 16);
    reef_page_tree_parse(pages.main_tree, &tree);
    reef_put_le64(file.data + (node.value - file.data) + 8, tree.root);
    data_file_replace(f->path, &file);
    reef_check_report report = verify(f, (reef_check_options){.quick = true}, &found);
    assert_int_equal(report.damaged, 1);
    char expected[80];
    snprintf(expected, sizeof(expected), "it lists page %d as free, which is in use",
             (int)tree.root);
    assert_non_null(strstr(found.damage, expected));
    assert_int_equal(report.pages_lost, 1); // the page that it named before
}

// ---- less than everything -----------------------------------------------------------------------

POOL_TEST(a_quick_check_hashes_no_sealed_payload_and_all_else) {
    findings found;
    const reef_check_options quick = {.quick = true};
    make_pool(f);
    reef_check_report report = verify(f, quick, NULL);
    assert_int_equal(report.damaged, 0);
    assert_int_equal(report.hashed_records, 0);
    // Generation 0, and the copy of generation 1 with its usage; memory of both.
    assert_int_equal(report.sealed_records, 2 * BLOCKS + 2 * 10 + 1 + 2);
    reef_check_report whole = verify(f, (reef_check_options){0}, NULL);
    assert_int_equal(whole.hashed_records, whole.sealed_records);
    assert_int_equal(whole.hashed_bytes, whole.sealed_bytes);
    assert_int_equal(whole.records, report.records);
    assert_int_equal(whole.usage_windows, 1);

    assert_int_equal(flip(f, seed_of(&sealed_key), 100, 0), 1);
    assert_int_equal(verify(f, quick, NULL).damaged, 0);
    assert_int_equal(verify(f, (reef_check_options){0}, NULL).damaged, 1);
    for (ptrdiff_t byte = -REEF_RECORD_HEADER_BYTES; byte < 0; byte++) { // all of a header
        if (byte >= 8 - REEF_RECORD_HEADER_BYTES && byte < 12 - REEF_RECORD_HEADER_BYTES)
            continue; // by which `flip` finds the record again
        assert_int_equal(flip(f, seed_of(&sealed_key), byte, 0), 1);
        assert_int_equal(verify(f, quick, &found).damaged, 1);
        assert_non_null(strstr(found.damage, "experts (generation 0, layer 0, block 7)"));
        (void)flip(f, seed_of(&sealed_key), byte, 0);
    }
    assert_true(flip(f, seed_of(&open_key), 100, 1) > 0);
    assert_int_equal(verify(f, quick, &found).damaged, 1);
    assert_non_null(strstr(found.damage, "experts (generation 1, layer 0, block 3)"));
}

POOL_TEST(a_sample_is_chosen_by_its_seed) {
    size_t caught = 0, records = 0;
    enum { SEEDS = 40 };
    make_pool(f);
    assert_int_equal(flip(f, seed_of(&sealed_key), 100, 0), 1);
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        const reef_check_options sample = {.sample = 0.25, .seed = seed};
        reef_check_report first = verify(f, sample, NULL), second = verify(f, sample, NULL);
        assert_int_equal(first.damaged, second.damaged);
        assert_int_equal(first.hashed_records, second.hashed_records);
        assert_int_equal(first.hashed_bytes, second.hashed_bytes);
        caught += first.damaged;
        records += first.hashed_records;
    }
    // 102 sealed records: 25.5 of them each time, and the damaged one in every fourth.
    assert_in_range(records, SEEDS * 21, SEEDS * 30);
    assert_in_range(caught, 3, 20);
}

// ---- turns --------------------------------------------------------------------------------------

static reef_store *open_in_turns(const char *path, uint64_t renew_us) {
    reef_store *store = NULL;
    const reef_store_options options = {.damaged = true, .renew_us = renew_us};
    must(reef_store_open(&store, path, &options, &why));
    return store;
}

static reef_check_report check_in_turns(const char *path, uint64_t renew_us, findings *found) {
    reef_check_report report;
    reef_store *store = open_in_turns(path, renew_us);
    *found = (findings){0};
    must(reef_store_check(store, &(reef_check_options){.on_damage = on_damage, .context = found},
                          &report, &why));
    assert_int_equal(report.damaged, found->damages);
    reef_store_close(store);
    return report;
}

POOL_TEST(a_check_in_steps_finds_what_one_read_finds) {
    findings few, many;
    make_pool(f);
    for (int damaged = 0; damaged < 2; damaged++) {
        reef_check_report whole = check_in_turns(f->path, UINT32_MAX, &few);
        reef_check_report turns = check_in_turns(f->path, 1, &many);
        assert_int_equal(whole.reads, 2); // that of the pages, and all the rest
        assert_true(turns.reads > turns.records);
        assert_true(turns.longest_read_ms > 0);
        assert_int_equal(turns.damaged, whole.damaged);
        assert_int_equal(turns.records, whole.records);
        assert_int_equal(turns.bytes, whole.bytes);
        assert_int_equal(turns.sealed_records, whole.sealed_records);
        assert_int_equal(turns.generations, whole.generations);
        assert_int_equal(turns.snapshots, whole.snapshots);
        assert_int_equal(turns.usage_windows, whole.usage_windows);
        assert_int_equal(turns.commits, 4);
        assert_memory_equal(turns.root, whole.root, REEF_HASH_BYTES);
        assert_string_equal(many.damage, few.damage);
        assert_int_equal(turns.damaged, 2 * damaged);
        assert_true(flip(f, seed_of(&sealed_key), 100, 0) > 0);
        assert_true(flip(f, seed_of(&open_key), 100, 1) > 0);
    }
}

typedef struct checking {
    const char *path;
    atomic_bool stop;
    atomic_int checks, failed;
    uint64_t damaged, commits, commits_first;
    char damage[300];
} checking;

static void *check_often(void *context) {
    checking *c = context;
    reef_store *store = NULL;
    const reef_store_options options = {.renew_us = 1};
    if (reef_store_open(&store, c->path, &options, NULL) != REEF_OK) c->failed++;
    while (store != NULL && !c->stop) {
        findings found = {0};
        reef_check_report report;
        reef_status status = reef_store_check(
            store, &(reef_check_options){.on_damage = on_damage, .context = &found}, &report, &why);
        if (status == REEF_ERR_BUSY) continue; // the writer never paused
        if (status != REEF_OK || found.damages > 0) {
            memcpy(c->damage, status != REEF_OK ? why.message : found.damage, sizeof(why.message));
            c->failed++;
        }
        if (c->checks++ == 0) c->commits_first = report.commits;
        c->commits = report.commits;
    }
    reef_store_close(store);
    return NULL;
}

// One life of a pool: rows change and go, snapshots come and go, the open generation is sealed.
static void change_something(pool_fixture *f, uint64_t *random, uint32_t round, uint32_t *open) {
    reef_snapshot snapshot;
    char name[16];
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    for (int i = 0; i < 6; i++) {
        reef_key key = {.db = i % 2 ? REEF_DB_EXPERTS : REEF_DB_MOMENTS,
                        .generation = *open,
                        .block = (uint32_t)draw_int(random, 0, 12)};
        if (draw_int(random, 0, 4) == 0)
            must(reef_record_delete(txn, &key, &why));
        else
            put_filled(txn, &key, (size_t)draw_int(random, 1, LARGE), draw_bits(random));
    }
    const uint64_t totals[8] = {round, 10 * (uint64_t)round, 0, 0, round, 7, 1, 10};
    must(reef_usage_put(txn, *open, 0, 4, 4, totals, 1000 * (uint64_t)round, &why));
    snprintf(name, sizeof(name), "s%u", round);
    if (round % 5 == 0) must(reef_snapshot_create(txn, name, &snapshot, &why));
    snprintf(name, sizeof(name), "s%u", round - 2);
    if (round % 5 == 2) must(reef_snapshot_remove(txn, name, &why));
    if (round % 16 == 15) {
        must(reef_generation_seal(txn, *open, round, 100 * (uint64_t)round, &why));
        pool_open_generation(txn, ++*open);
    }
    pool_commit(txn, round);
}

POOL_TEST(a_check_in_steps_blames_nothing_that_a_writer_does_meanwhile) {
    enum { ROUNDS = 200, CHECKS = 4, ROUNDS_MAX = 4000 };
    uint64_t random = 5;
    uint32_t open = 0;
    pthread_t thread;
    checking c = {.path = f->path};
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_open_generation(txn, 0);
    pool_commit(txn, 0);
    assert_int_equal(pthread_create(&thread, NULL, check_often, &c), 0);
    for (uint32_t round = 5; round < ROUNDS || (c.checks < CHECKS && round < ROUNDS_MAX); round++) {
        change_something(f, &random, round, &open);
        if (round > 100) nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    c.stop = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (c.failed > 0) fail_msg("%d of %d checks failed: %s", c.failed, c.checks, c.damage);
    assert_true(c.checks >= CHECKS);
    assert_true(c.commits > c.commits_first);
    pool_check(f->store);
}

// ---- usage --------------------------------------------------------------------------------------

POOL_TEST(windows_that_exceed_the_totals_are_found) {
    findings found;
    const reef_usage_use uses[] = {{.expert = 0, .count = 5, .score = 50}};
    const reef_usage_use more[] = {{.expert = 2, .count = 1, .score = 0}};
    const reef_usage_use beyond[] = {{.expert = 70000, .count = 1, .score = 1}};
    const uint64_t totals[8] = {10, 100, 0, 0, 7, 70, 1, 10};
    make_pool(f);
    f->store = pool_open(f->path, false, true);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    must(reef_record_put(txn, &(reef_key){.db = REEF_DB_USAGE, .generation = 1}, REEF_U64, totals,
                         sizeof(totals), &why));
    must(reef_usage_add(txn, 1, 0, 1, uses, 2000, &why));
    pool_commit(txn, 4);
    pool_check(f->store); // up to the totals, and no further
    txn = pool_begin(f->store, REEF_TXN_WRITE);
    must(reef_usage_add(txn, 1, 0, 1, more, 3000, &why));
    pool_commit(txn, 5);
    reef_check_report report = verify(f, (reef_check_options){.quick = true}, &found);
    assert_int_equal(report.damaged, 1);
    assert_non_null(strstr(found.damage, "usage of generation 1, layer 0: windows say expert 2 was "
                                         "chosen 8 times"));
    txn = pool_begin(f->store, REEF_TXN_WRITE);
    must(reef_usage_add(txn, 1, 0, 1, beyond, 4000, &why));
    pool_commit(txn, 6);
    assert_int_equal(verify(f, (reef_check_options){0}, &found).damaged, 2);
    assert_non_null(strstr(found.damage, "expert 70000 was chosen 1 times"));
}

// ---- what helps ---------------------------------------------------------------------------------

static void expect(const pool_fixture *f, reef_remedy_kind kind, const char *name) {
    findings found;
    reef_check_report report = verify(f, (reef_check_options){0}, &found);
    assert_true(report.damaged > 0);
    if (report.remedy.kind != kind || strcmp(report.remedy.name, name) != 0)
        fail_msg("%d '%s' helps against: %s", report.remedy.kind, report.remedy.name, found.damage);
}

// The pool goes on after make_pool.
static void go_on(pool_fixture *f, void (*change)(reef_txn *txn)) {
    f->store = pool_open(f->path, false, true);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    change(txn);
    pool_commit(txn, 5);
    pool_close(f);
}

POOL_TEST(a_sound_pool_needs_nothing) {
    findings found;
    make_pool(f);
    assert_int_equal(verify(f, (reef_check_options){0}, &found).remedy.kind, REEF_REMEDY_NOTHING);
}

POOL_TEST(what_the_snapshot_has_not_is_restored_from_it) {
    make_pool(f);
    assert_true(flip(f, seed_of(&open_key), 100, 1) > 0);
    assert_int_equal(verify(f, (reef_check_options){0}, NULL).remedy.stream_bytes, 200);
    expect(f, REEF_REMEDY_RESTORE, "kept");
}

POOL_TEST(what_is_lost_of_a_sealed_generation_no_snapshot_that_shares_it_can_restore) {
    make_pool(f);
    assert_int_equal(flip(f, seed_of(&sealed_key), 100, 0), 1);
    expect(f, REEF_REMEDY_COPY, "");
}

// A bit of a sealed generation's memory, of the open one's, and of its copy in the snapshot.
POOL_TEST(damaged_memory_is_its_kinds_alone) {
    findings found;
    const reef_key sealed = memory_key(0), opened = memory_key(1);
    make_pool(f);
    assert_int_equal(flip(f, seed_of(&sealed), 100, 0), 1);
    assert_int_equal(verify(f, (reef_check_options){0}, &found).damaged, 1);
    assert_non_null(strstr(found.damage, "memory (generation 0, name tables, block 2)"));
    expect(f, REEF_REMEDY_RECOVER, "");
    assert_int_equal(flip(f, seed_of(&sealed), 100, 0), 1); // whole again
    assert_true(flip(f, seed_of(&opened), 100, 1) > 0);
    expect(f, REEF_REMEDY_RECOVER, "");
    assert_true(flip(f, seed_of(&opened), 100, 1) > 0);
    assert_int_equal(flip(f, seed_of(&opened), 100, REEF_SNAPSHOT_GENERATION), 1);
    expect(f, REEF_REMEDY_REMOVE, "kept");
}

// A lost write whose record and sum are both of an earlier state: only the root shows it.
static void replace_sealed_memory(reef_txn *txn) {
    const reef_key mark = {.db = REEF_DB_MEMORY, .name = "mark"};
    must(reef_record_store(txn, &mark, REEF_BYTES, "other", 5, &why));
}

POOL_TEST(sealed_memory_that_is_not_what_was_sealed_is_found_by_its_root) {
    findings found;
    make_pool(f);
    go_on(f, replace_sealed_memory);
    verify(f, (reef_check_options){0}, &found);
    assert_int_equal(found.damages, 1);
    assert_non_null(strstr(found.damage, "generation 0: its records differ from the root"));
}

static void make_later(reef_txn *txn) {
    reef_snapshot snapshot;
    must(reef_snapshot_create(txn, "later", &snapshot, &why));
}

POOL_TEST(the_newest_sound_snapshot_is_restored) {
    make_pool(f);
    go_on(f, make_later);
    assert_int_equal(flip(f, 99, 100, 1), 1);
    expect(f, REEF_REMEDY_RESTORE, "later");
    assert_int_equal(flip(f, 99, 100, REEF_SNAPSHOT_GENERATION + 1), 1);
    expect(f, REEF_REMEDY_RESTORE, "kept");
    // Nothing that is restored mends what another snapshot has lost.
    assert_int_equal(flip(f, 99, 100, 1), 1);
    expect(f, REEF_REMEDY_REMOVE, "later");
}

POOL_TEST(a_snapshot_whose_copy_is_damaged_is_not_restored) {
    const reef_key other = {.db = REEF_DB_EXPERTS, .generation = 1, .block = 5};
    make_pool(f);
    assert_true(flip(f, seed_of(&open_key), 100, 1) > 0);
    assert_int_equal(flip(f, seed_of(&other), 100, REEF_SNAPSHOT_GENERATION), 1);
    expect(f, REEF_REMEDY_COPY, "");
}

static void put_sealed_usage(reef_txn *txn) {
    put_filled(txn, &(reef_key){.db = REEF_DB_USAGE, .generation = 0}, SMALL, 77);
}

POOL_TEST(usage_of_a_shared_generation_is_mended_by_no_snapshot) {
    make_pool(f);
    go_on(f, put_sealed_usage);
    assert_int_equal(flip(f, 77, 50, 0), 1);
    expect(f, REEF_REMEDY_COPY, "");
}

static void make_places(reef_txn *txn) {
    reef_snapshot snapshot;
    put_filled(txn, &(reef_key){.db = REEF_DB_JOURNAL, .name = "dir:logs"}, SMALL, 61);
    put_filled(txn, &(reef_key){.db = REEF_DB_JOURNAL, .name = "turns"}, SMALL, 62);
    must(reef_snapshot_create(txn, "later", &snapshot, &why));
}

static void change_places(reef_txn *txn) {
    put_filled(txn, &(reef_key){.db = REEF_DB_JOURNAL, .name = "dir:logs"}, SMALL, 71);
    put_filled(txn, &(reef_key){.db = REEF_DB_JOURNAL, .name = "turns"}, SMALL, 72);
}

static void remove_later(reef_txn *txn) {
    must(reef_snapshot_remove(txn, "later", &why));
}

static void restore_later(reef_txn *txn) {
    reef_restore_plan restored;
    must(reef_snapshot_restore(txn, "later", NULL, &restored, &why));
}

// Read positions of live sources and the state of the scheduler: a snapshot that has them restores
// them, one that has lost them can still be removed.
POOL_TEST(positions_are_restored_from_a_snapshot_that_has_them) {
    findings found;
    make_pool(f);
    go_on(f, make_places);
    go_on(f, change_places);
    assert_true(flip(f, 71, 50, 0) > 0);
    assert_true(flip(f, 72, 50, 0) > 0);
    expect(f, REEF_REMEDY_RESTORE, "later");
    go_on(f, restore_later);
    verify(f, (reef_check_options){0}, &found);
    assert_int_equal(found.damages, 0);
}

POOL_TEST(a_snapshot_that_lost_a_read_position_can_be_removed) {
    findings found;
    make_pool(f);
    go_on(f, make_places);
    go_on(f, change_places);
    for (uint64_t seed = 61; seed <= 62; seed++) {
        assert_true(flip(f, seed, 50, 0) > 0);
        expect(f, REEF_REMEDY_REMOVE, "later");
        assert_true(flip(f, 99, 100, 1) > 0);
        expect(f, REEF_REMEDY_RESTORE, "kept");
        assert_true(flip(f, 99, 100, 1) > 0); // whole again
        if (seed == 61) assert_true(flip(f, seed, 50, 0) > 0);
    }
    go_on(f, remove_later);
    verify(f, (reef_check_options){0}, &found);
    assert_int_equal(found.damages, 0);
}

static void put_many(reef_txn *txn) {
    for (uint32_t b = 0; b <= REEF_DAMAGED_MAX; b++)
        put_filled(txn, &(reef_key){.db = REEF_DB_MOMENTS, .generation = 1, .block = b}, SMALL, 33);
}

POOL_TEST(with_more_findings_than_are_kept_only_a_copy_helps) {
    make_pool(f);
    go_on(f, put_many);
    // Pages that were split keep the beginnings of records that moved: no byte behind those 32 is
    // surely theirs.
    assert_true(flip(f, 33, 5, 1) > REEF_DAMAGED_MAX);
    expect(f, REEF_REMEDY_COPY, "");
}

static void put_meta(reef_txn *txn) {
    put_filled(txn, &(reef_key){.db = REEF_DB_META, .name = "other"}, SMALL, 55);
    must(reef_scrub_put(txn, &(reef_scrub){.passes = 0x1122334455667788, .last_ms = 0x99887766},
                        &why));
}

POOL_TEST(without_meta_nothing_is_whole_but_scrubs_are_not_needed) {
    static const uint8_t scrub[] = {0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0x66, 0x77};
    make_pool(f);
    go_on(f, put_meta);
    data_bytes file = data_file_load(f->path);
    size_t at = data_file_find(&file, 0, scrub, sizeof(scrub));
    assert_true(at != SIZE_MAX);
    file.data[at] ^= 1;
    data_file_replace(f->path, &file);
    expect(f, REEF_REMEDY_NOTHING, "");
    assert_true(flip(f, seed_of(&open_key), 100, 1) > 0);
    expect(f, REEF_REMEDY_RESTORE, "kept");
    assert_int_equal(flip(f, 55, 50, 0), 1);
    expect(f, REEF_REMEDY_COPY, "");
}

// Generation 0 sealed and kept while nothing was open; 1 sealed, 2 open.
POOL_TEST(a_snapshot_without_an_open_generation_is_not_restored) {
    reef_snapshot snapshot;
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_open_generation(txn, 0);
    put_generation(txn, 0, 5);
    must(reef_generation_seal(txn, 0, 1, 100, &why));
    pool_commit(txn, 1);
    txn = pool_begin(f->store, REEF_TXN_WRITE);
    must(reef_snapshot_create(txn, "closed", &snapshot, &why));
    pool_commit(txn, 1);
    txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_open_generation(txn, 1);
    put_generation(txn, 1, 5);
    must(reef_generation_seal(txn, 1, 1, 100, &why));
    pool_open_generation(txn, 2);
    const reef_key rows = {.db = REEF_DB_EXPERTS, .generation = 2, .block = 1};
    put_generation(txn, 2, 5);
    pool_commit(txn, 2);
    pool_close(f);
    assert_int_equal(flip(f, seed_of(&rows), 100, 2), 1);
    expect(f, REEF_REMEDY_COPY, "");
}

static reef_key copy_record(const pool_fixture *f) {
    reef_snapshot snapshot;
    reef_store *store = pool_open(f->path, false, false);
    reef_txn *txn = pool_begin(store, REEF_TXN_READ);
    must(reef_snapshot_read(txn, "kept", &snapshot, &why));
    reef_txn_abort(txn);
    reef_store_close(store);
    return (reef_key){.db = REEF_DB_GENERATIONS, .generation = snapshot.copy};
}

static void put_moments(reef_txn *txn) {
    for (uint32_t b = 0; b < BLOCKS; b++) {
        const reef_key key = {.db = REEF_DB_MOMENTS, .generation = 1, .block = b};
        put_filled(txn, &key, SMALL, 7 + b);
    }
}

// The walk, the check of all generations and that of the snapshots meet it, and what else is there
// is as it should be.
POOL_TEST(a_damaged_generation_is_reported_once_and_the_last_one_as_open) {
    make_pool(f);
    go_on(f, put_moments);
    data_bytes sound = data_file_load(f->path);
    const reef_key damaged[] = {{.db = REEF_DB_GENERATIONS, .generation = 0},
                                {.db = REEF_DB_GENERATIONS, .generation = 1},
                                copy_record(f),
                                {.db = REEF_DB_META, .name = REEF_COMMIT_NAME}};
    for (size_t i = 0; i < sizeof(damaged) / sizeof(damaged[0]); i++) {
        findings found = {0};
        record_damage(f->path, &damaged[i]);
        verify(f, (reef_check_options){0}, &found);
        if (found.damages != 1) fail_msg("%zu of one record: %s", found.damages, found.damage);
        data_file_save(f->path, &sound, sound.bytes);
    }
    free(sound.data);
}

RUN_TESTS
