// The structure of the data file: a sound one is never blamed, whatever was done to the pool; each
// kind of damage to what holds records together is found, and its page, database and first record
// are named.
#include "check.h"
#include "reef_byte_order.h"
#include "reef_pool_check.h"
#include "reef_store.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data_file.h"
#include "pool.h"
#include "test.h"

#define PAGE 4096
#define LARGE_BYTES 30000

// ---- sound files --------------------------------------------------------------------------------

// Records of all sizes come, change and go, so that pages are split, merged, freed and used again.
static void change_at_random(reef_txn *txn, uint64_t *random, const uint8_t *payload) {
    for (int i = draw_int(random, 1, 40); i > 0; i--) {
        reef_key key = {.db = REEF_DB_FLAGS, .block = (uint32_t)draw_int(random, 0, 150)};
        char name[REEF_NAME_BYTES_MAX + 1];
        if (draw_int(random, 0, 2) == 0) {
            memset(name, 'a' + draw_int(random, 0, 3), sizeof(name));
            name[draw_int(random, 1, REEF_NAME_BYTES_MAX)] = '\0'; // keys of many lengths
            key = (reef_key){.db = REEF_DB_TENSORS, .name = name, .block = key.block % 20};
        }
        if (draw_int(random, 0, 2) == 0) {
            must(reef_record_delete(txn, &key, &why));
        } else {
            int bytes = draw_int(random, 0, 3) == 0 ? draw_int(random, 1900, LARGE_BYTES)
                                                    : draw_int(random, 0, 300);
            pool_put(txn, &key, payload + draw_int(random, 0, 50), (size_t)bytes);
        }
    }
}

POOL_TEST(a_sound_file_is_never_blamed) {
    enum { COMMITS = 150 };
    static uint8_t payload[LARGE_BYTES + 100];
    uint64_t random = 5;
    reef_txn *reader = NULL; // keeps pages from reuse, now and then
    fill(payload, sizeof(payload), 1);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_open_generation(txn, 0);
    pool_commit(txn, 1);
    for (uint64_t step = 2; step < COMMITS; step++) {
        txn = pool_begin(f->store, REEF_TXN_WRITE);
        change_at_random(txn, &random, payload);
        if (draw_int(&random, 0, 9) == 0)
            reef_txn_abort(txn);
        else
            pool_commit(txn, step);
        if (draw_int(&random, 0, 4) == 0) {
            reef_txn_abort(reader);
            reader = draw_int(&random, 0, 1) ? pool_begin(f->store, REEF_TXN_READ) : NULL;
        }
        if (step % 3 == 0) pool_check(f->store);
        if (step % 50 == 0 && reader == NULL) pool_reopen(f);
    }
    reef_txn_abort(reader);
    pool_check(f->store);
}

POOL_TEST(a_copy_without_free_pages_is_sound) {
    static uint8_t payload[LARGE_BYTES + 100];
    char to[TEMP_DIR_BYTES];
    uint64_t random = 6;
    fill(payload, sizeof(payload), 1);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_open_generation(txn, 0);
    for (int i = 0; i < 10; i++) change_at_random(txn, &random, payload);
    pool_commit(txn, 1);
    temp_dir_join(to, f->directory, "copy");
    must(reef_store_copy(f->store, to, NULL, &why));
    reef_store *copy = pool_open(to, false, true);
    pool_check(copy);
    txn = pool_begin(copy, REEF_TXN_WRITE);
    change_at_random(txn, &random, payload);
    pool_commit(txn, 2);
    pool_check(copy);
    reef_store_close(copy);
}

// ---- damaged ones -------------------------------------------------------------------------------

typedef struct lines {
    int count;
    char text[8192];
} lines;

static void on_damage(void *context, const char *what) {
    lines *l = context;
    size_t used = strlen(l->text);
    l->count++;
    snprintf(l->text + used, sizeof(l->text) - used, "%s\n", what);
}

// A pool with a tree of two levels, large values and free pages; closed, its file in memory.
static data_bytes make_file(pool_fixture *f) {
    static uint8_t payload[LARGE_BYTES];
    fill(payload, sizeof(payload), 3);
    for (uint32_t step = 1; step <= 3; step++) {
        reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
        if (step == 1) pool_open_generation(txn, 0);
        for (uint32_t i = 0; i < 100; i++)
            pool_put(txn, &(reef_key){.db = REEF_DB_FLAGS, .block = i}, payload + step, 200);
        pool_put(txn, &(reef_key){.db = REEF_DB_EXPERTS, .block = 7}, payload + step,
                 LARGE_BYTES - 9);
        pool_commit(txn, step);
    }
    pool_check(f->store);
    pool_close(f);
    return data_file_load(f->path);
}

static void must_say(const pool_fixture *f, const char *part) {
    lines l = {0};
    reef_check_report report = {0};
    const reef_check_options options = {.on_damage = on_damage, .context = &l};
    must(reef_check_pages_of(f->path, &options, &report, &why));
    assert_int_equal(report.damaged, l.count);
    if (strstr(l.text, part) == NULL) fail_msg("\"%s\" is not in: %s", part, l.text);
}

static void must_say_of(
    pool_fixture *f, const data_bytes *file, size_t at, uint8_t byte, const char *part) {
    uint8_t before = file->data[at];
    file->data[at] = byte;
    data_file_save(f->path, file, file->bytes);
    must_say(f, part);
    file->data[at] = before;
}

static size_t newest_meta(const data_bytes *file) {
    return reef_get_le64(file->data + PAGE + 144) > reef_get_le64(file->data + 144) ? PAGE : 0;
}

// The node of a database in the one page that lists them; its tree is 8 bytes and the name further
// on.
static size_t database_at(const data_bytes *file, const char *name) {
    size_t page = PAGE * reef_get_le64(file->data + newest_meta(file) + 128);
    size_t bytes = strlen(name);
    for (size_t at = page; at + bytes < page + PAGE; at++)
        if (memcmp(file->data + at, name, bytes) == 0 && file->data[at - 2] == bytes) return at - 8;
    fail_msg("no database %s", name);
    return 0;
}

POOL_TEST(damage_to_a_tree_is_found_and_named) {
    data_bytes file = make_file(f);
    size_t tree = database_at(&file, "flags") + 8 + 5;
    size_t root = PAGE * reef_get_le64(file.data + tree + 40); // a branch
    assert_int_equal(file.data[root + 10], 1);
    size_t last_node =
        root + file.data[root + 18] + 256u * file.data[root + 19]; // of its second child
    uint64_t child = file.data[last_node] + 256u * file.data[last_node + 1];
    size_t leaf = PAGE * child;
    char named[64];
    snprintf(named, sizeof(named), "page %d of flags (from flags (generation 0, layer 0, block ",
             (int)child);

    must_say_of(f, &file, leaf, file.data[leaf] ^ 1, named);           // its number
    must_say_of(f, &file, leaf + 10, 0, named);                        // kind
    must_say_of(f, &file, leaf + 12, file.data[leaf + 12] ^ 2, named); // a node less or more
    must_say_of(f, &file, leaf + 14, file.data[leaf + 14] ^ 2, named); // where nodes begin
    must_say_of(f, &file, leaf + 16, file.data[leaf + 16] ^ 2, named); // where the first one is
    size_t node = leaf + file.data[leaf + 16] + 256u * file.data[leaf + 17];
    must_say_of(f, &file, node, file.data[node] ^ 8, named);         // bytes of its value
    must_say_of(f, &file, node + 4, 2, named);                       // flags
    must_say_of(f, &file, node + 8 + 3, 9, "keys are out of order"); // generation
    must_say_of(f, &file, last_node, 200, "where it has no page");
    must_say_of(f, &file, last_node + 8 + 3, 9, "keys are out of order"); // a separator
    must_say_of(f, &file, tree + 6, 1, "its tree has another depth");
    must_say_of(f, &file, tree + 4, 4, "the record of flags in the list of databases");
    must_say_of(f, &file, tree + 32, file.data[tree + 32] ^ 1,
                "the record of flags in the list of databases");
    free(file.data);
}

POOL_TEST(damage_to_large_values_is_found_and_named) {
    data_bytes file = make_file(f);
    size_t tree = database_at(&file, "experts") + 8 + 7;
    size_t leaf = PAGE * reef_get_le64(file.data + tree + 40);
    size_t node = leaf + file.data[leaf + 16] + 256u * file.data[leaf + 17];
    size_t number_at = node + 8 + 12;
    size_t large = PAGE * reef_get_le64(file.data + number_at);
    const char *named = "of experts (from experts (generation 0, layer 0, block 7) on)";
    must_say_of(f, &file, large, file.data[large] ^ 1, named);
    must_say_of(f, &file, large + 10, 2, named);
    must_say_of(f, &file, large + 12, file.data[large + 12] - 1, named);
    must_say_of(f, &file, large + 12, file.data[large + 12] + 1, "used twice");
    must_say_of(f, &file, number_at, file.data[number_at] ^ 1, named);
    free(file.data);
}

POOL_TEST(damage_to_the_free_list_is_found) {
    data_bytes file = make_file(f);
    size_t leaf = PAGE * reef_get_le64(file.data + newest_meta(&file) + 80);
    size_t node = leaf + file.data[leaf + 16] + 256u * file.data[leaf + 17];
    size_t list = node + 8 + 8;
    size_t tree = database_at(&file, "flags") + 8 + 5;
    must_say_of(f, &file, list, 0, "neither used nor free"); // no pages any more
    must_say_of(f, &file, list + 1, 1, "of the free list: a list of free pages does not fit");
    must_say_of(f, &file, list + 7, 1,
                "the free list: a list of free pages does not fit its record");
    must_say_of(f, &file, list + 8, file.data[tree + 40],
                "of the free list: it lists page");        // the root of flags
    must_say_of(f, &file, newest_meta(&file) + 64 + 6, 32, // its count of overflow pages
                "the record of the free list in the newest meta page is damaged");
    free(file.data);
}

POOL_TEST(meta_pages_that_do_not_belong_together_are_found) {
    data_bytes file = make_file(f);
    size_t newest = newest_meta(&file);
    must_say_of(f, &file, newest + 144, file.data[newest + 144] + 1,
                "the meta pages: transactions");
    must_say_of(f, &file, newest + 144, file.data[newest + 144] + 8,
                "the meta pages: transactions");
    must_say_of(f, &file, newest, 7, "its header is damaged");
    must_say_of(f, &file, newest + 8, 7, ""); // bytes that are never read
    free(file.data);
}

static void must_be_refused(
    pool_fixture *f, const data_bytes *file, size_t at, uint8_t byte, const char *part) {
    reef_check_report report = {0};
    uint8_t before = file->data[at];
    file->data[at] = byte;
    data_file_save(f->path, file, file->bytes);
    must_fail(reef_check_pages_of(f->path, &(reef_check_options){0}, &report, &why),
              REEF_ERR_CORRUPT, part);
    file->data[at] = before;
}

POOL_TEST(meta_pages_that_lead_nowhere_are_refused) {
    data_bytes file = make_file(f);
    must_be_refused(f, &file, 10, 2, "the first meta page"); // its kind
    must_be_refused(f, &file, PAGE + 10, 2, "the second meta page");
    must_be_refused(f, &file, PAGE + 16, 2, "the second meta page");
    // LMDB takes the size of pages from the meta page of the newest commit.
    must_be_refused(f, &file, PAGE + 41, 0x20, "have pages of 4096 and of 8192 bytes");
    free(file.data);
}

// ---- beside a writer ----------------------------------------------------------------------------

POOL_TEST(a_commit_in_the_meantime_is_the_one_that_is_checked) {
    reef_pages pages;
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_open_generation(txn, 0);
    pool_commit(txn, 1);
    reef_txn *held = pool_begin(f->store, REEF_TXN_READ);
    const uint64_t before = mdb_txn_id(held->lmdb);
    txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_put(txn, &(reef_key){.db = REEF_DB_FLAGS}, "one", 3);
    pool_commit(txn, 2);
    must(reef_pages_open(&pages, f->path, &why));
    must(reef_pages_pin(&pages, f->store, &held, &why));
    assert_int_equal(mdb_txn_id(held->lmdb), before + 1);
    assert_int_equal(pages.transaction, before + 1);
    reef_txn_abort(held);
    reef_pages_close(&pages);
}

// The child's side: commits that free pages and use them again, until it is killed.
static void change_for_ever(const char *path) {
    static uint8_t payload[LARGE_BYTES + 100];
    reef_store *store = NULL;
    uint64_t random = 9;
    (void)alarm(200); // whatever becomes of the test
    reef_status status = reef_store_open(&store, path, &(reef_store_options){.write = true}, &why);
    for (uint64_t step = 2; status == REEF_OK; step++) {
        reef_txn *txn = NULL;
        reef_commit commit = {.step = step, .unix_ms = 1};
        status = reef_txn_begin(&txn, store, REEF_TXN_WRITE, &why);
        for (int i = 0; status == REEF_OK && i < 10; i++)
            status = reef_record_put(
                txn, &(reef_key){.db = REEF_DB_FLAGS, .block = (uint32_t)draw_int(&random, 0, 60)},
                REEF_BYTES, payload, (size_t)draw_int(&random, 0, 9000), &why);
        if (status == REEF_OK) status = reef_txn_commit(txn, &commit, &why);
    }
    fprintf(stderr, "writer: %s\n", why.message);
    _exit(1);
}

POOL_TEST(a_check_beside_a_writer_blames_nothing) {
    enum { CHECKS = 60 };
    int how = 0;
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_open_generation(txn, 0);
    uint64_t first = pool_commit(txn, 1).number, last = first;
    pool_close(f);
    pid_t writer = fork();
    if (writer == 0) change_for_ever(f->path);
    assert_true(writer > 0);
    for (int i = 0; i < CHECKS; i++) {
        reef_check_report report;
        must(reef_store_verify(f->path, &(reef_check_options){.on_damage = on_unexpected_damage},
                               &report, &why));
        assert_int_equal(report.damaged, 0);
        assert_int_equal(report.pages_lost, 0);
        assert_true(report.commits >= last);
        last = report.commits;
    }
    assert_int_equal(waitpid(writer, &how, WNOHANG), 0); // it still writes
    assert_int_equal(kill(writer, SIGKILL), 0);
    assert_int_equal(waitpid(writer, &how, 0), writer);
    assert_true(last > first);
}

RUN_TESTS
