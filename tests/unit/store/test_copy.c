// Standalone copies of a pool: what they hold, beside a writer too, and that a copy that cannot be
// made leaves nothing behind.
#include "reef_pool_check.h"
#include "reef_snapshot.h"
#include "reef_store.h"

#include <signal.h>
#include <sys/wait.h>

#include "data_file.h"
#include "pool.h"
#include "small_disk.h"
#include "test.h"

#define BLOCKS 40u
#define BLOCK_BYTES 20000

typedef struct copies {
    pool_fixture *pool;
    char to[TEMP_DIR_BYTES];
} copies;

static int setup(void **state) {
    copies *c = room(sizeof(*c));
    assert_int_equal(pool_setup((void **)&c->pool), 0);
    temp_dir_join(c->to, c->pool->directory, "copy");
    *state = c;
    return 0;
}

static int teardown(void **state) {
    copies *c = *state;
    assert_int_equal(pool_teardown((void **)&c->pool), 0);
    return 0;
}

static void put_blocks(reef_txn *txn, uint32_t generation, uint32_t count, uint64_t seed) {
    uint8_t payload[BLOCK_BYTES];
    for (uint32_t block = 0; block < count; block++) {
        fill(payload, sizeof(payload), seed + block);
        pool_put(txn, &(reef_key){.db = REEF_DB_EXPERTS, .generation = generation, .block = block},
                 payload, sizeof(payload));
    }
    pool_put(txn, &(reef_key){.db = REEF_DB_TENSORS, .generation = generation, .name = "w_q"},
             payload, 77);
    pool_put(txn, &(reef_key){.db = REEF_DB_MEMORY, .generation = generation, .name = "tables"},
             payload, 3000);
}

// A sealed generation and an open one, a snapshot, an event, and pages that are free again.
static reef_commit write_pool(reef_store *store) {
    reef_snapshot snapshot;
    reef_txn *txn = pool_begin(store, REEF_TXN_WRITE);
    pool_open_generation(txn, 0);
    put_blocks(txn, 0, BLOCKS, 1);
    must(reef_generation_seal(txn, 0, 5, 500, &why));
    pool_open_generation(txn, 1);
    put_blocks(txn, 1, BLOCKS, 100);
    must(reef_timeline_append(txn, "{\"event\": \"test\"}", &why));
    pool_commit(txn, 1);
    txn = pool_begin(store, REEF_TXN_WRITE);
    must(reef_snapshot_create(txn, "kept", &snapshot, &why));
    for (uint32_t block = 3; block < BLOCKS; block++) {
        const reef_key key = {.db = REEF_DB_EXPERTS, .generation = 1, .block = block};
        must(reef_record_delete(txn, &key, &why));
    }
    pool_commit(txn, 2);
    txn = pool_begin(store, REEF_TXN_WRITE);
    must(reef_snapshot_remove(txn, "kept", &why));
    must(reef_snapshot_create(txn, "again", &snapshot, &why));
    return pool_commit(txn, 3);
}

static uint64_t file_bytes(const char *pool) {
    data_bytes file = data_file_load(pool);
    free(file.data);
    return file.bytes;
}

static void assert_absent(const char *path) {
    struct stat info;
    assert_int_not_equal(lstat(path, &info), 0);
}

static size_t entries_of(const char *path) {
    size_t count = 0;
    DIR *directory = opendir(path);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) count++;
    closedir(directory);
    return count - 2;
}

#define FIXTURE_TEST(name) TEST_WITH(name, setup, teardown, copies *c)

FIXTURE_TEST(a_copy_holds_the_last_commit_in_fewer_pages) {
    reef_commit copied, last = write_pool(c->pool->store);
    must(reef_store_copy(c->pool->store, c->to, &copied, &why));
    assert_int_equal(copied.number, last.number);
    assert_int_equal(copied.step, 3);
    assert_memory_equal(copied.root, last.root, sizeof(last.root));
    assert_true(file_bytes(c->to) < file_bytes(c->pool->path) * 3 / 4);

    reef_check_report source = pool_check(c->pool->store);
    reef_store *copy = pool_open(c->to, false, true);
    reef_check_report report = pool_check(copy);
    assert_int_equal(report.records, source.records);
    assert_int_equal(report.bytes, source.bytes);
    assert_int_equal(report.snapshots, 1);
    assert_memory_equal(report.root, source.root, sizeof(source.root));

    // It is a pool of its own: commits there do not appear here.
    reef_txn *txn = pool_begin(copy, REEF_TXN_WRITE);
    put_blocks(txn, 1, 1, 7);
    assert_int_equal(pool_commit(txn, 4).number, last.number + 1);
    reef_store_close(copy);
    txn = pool_begin(c->pool->store, REEF_TXN_READ);
    must(reef_commit_read(txn, &copied, &why));
    assert_int_equal(copied.number, last.number);
    reef_txn_abort(txn);
}

FIXTURE_TEST(a_pool_without_a_commit_can_be_copied) {
    reef_commit copied = {.number = 9};
    assert_int_equal(mkdir(c->to, 0700), 0); // an empty directory will do
    must(reef_store_copy(c->pool->store, c->to, &copied, &why));
    assert_int_equal(copied.number, 0);
    reef_store *copy = pool_open(c->to, false, true);
    write_pool(copy);
    pool_check(copy);
    reef_store_close(copy);
}

// Commits as fast as it can until it is killed.
static void write_for_ever(const char *path) {
    reef_store *store = NULL;
    uint8_t payload[BLOCK_BYTES];
    if (reef_store_open(&store, path, &(reef_store_options){.write = true}, NULL) != REEF_OK)
        _exit(1);
    for (uint64_t step = 4;; step++) {
        reef_txn *txn = NULL;
        if (reef_txn_begin(&txn, store, REEF_TXN_WRITE, NULL) != REEF_OK) _exit(2);
        for (uint32_t block = 0; block < BLOCKS; block++) {
            const reef_key key = {.db = REEF_DB_EXPERTS, .generation = 1, .block = block};
            fill(payload, sizeof(payload), step + block);
            if (reef_record_put(txn, &key, REEF_BYTES, payload, sizeof(payload), NULL) != REEF_OK)
                _exit(3);
        }
        reef_commit commit = {.step = step};
        if (reef_txn_commit(txn, &commit, NULL) != REEF_OK) _exit(4);
    }
}

FIXTURE_TEST(copies_are_made_while_another_process_commits) {
    reef_commit copied, last = write_pool(c->pool->store);
    reef_store_close(c->pool->store);
    c->pool->store = NULL;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) write_for_ever(c->pool->path);
    c->pool->store = pool_open(c->pool->path, false, false);
    uint64_t first = 0;
    for (int i = 0; i < 40 && (i < 4 || last.number < first + 3); i++) {
        must(reef_store_copy(c->pool->store, c->to, &copied, &why));
        assert_true(copied.number >= last.number);
        if (first == 0) first = copied.number;
        last = copied;
        reef_store *copy = pool_open(c->to, false, false);
        assert_memory_equal(pool_check(copy).root, copied.root, sizeof(copied.root));
        reef_store_close(copy);
        temp_dir_remove(c->to);
    }
    assert_int_equal(waitpid(child, NULL, WNOHANG), 0); // it has not failed
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(last.number >= first + 3);
}

FIXTURE_TEST(where_something_is_nothing_is_written) {
    char inside[TEMP_DIR_BYTES], other[TEMP_DIR_BYTES], link[TEMP_DIR_BYTES];
    reef_store *store = c->pool->store;
    write_pool(store);
    temp_dir_join(inside, c->pool->path, "copy");
    must_fail(reef_store_copy(store, inside, NULL, &why), REEF_ERR_INVALID, "lies inside it");
    assert_absent(inside);
    must_fail(reef_store_copy(store, c->pool->path, NULL, &why), REEF_ERR_INVALID,
              "lies inside it");
    temp_dir_join(link, c->pool->directory, "link");
    assert_int_equal(symlink(c->pool->path, link), 0);
    temp_dir_join(inside, link, "copy");
    must_fail(reef_store_copy(store, inside, NULL, &why), REEF_ERR_INVALID, "lies inside it");
    must_fail(reef_store_copy(store, "", NULL, &why), REEF_ERR_INVALID, "empty");
    temp_dir_join(other, c->to, "deeper");
    must_fail(reef_store_copy(store, other, NULL, &why), REEF_ERR_NOT_FOUND, "No such file");
    assert_absent(c->to);

    assert_int_equal(mkdir(c->to, 0700), 0);
    assert_int_equal(mkdir(other, 0700), 0);
    must_fail(reef_store_copy(store, c->to, NULL, &why), REEF_ERR_INVALID, "not empty");
    assert_int_equal(entries_of(c->to), 1);
    assert_int_equal(rmdir(other), 0);
    must(reef_store_copy(store, c->to, NULL, &why));
    must_fail(reef_store_copy(store, c->to, NULL, &why), REEF_ERR_INVALID, "not empty");
    temp_dir_remove(c->to);
    int fd = open(c->to, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    close(fd);
    must_fail(reef_store_copy(store, c->to, NULL, &why), REEF_ERR_INVALID, "a file");
    pool_check(store);
}

FIXTURE_TEST(on_a_full_disk_nothing_is_left) {
    // No room for a page, for all of the data, and for the lock file that comes after it.
    static const char *const sizes[] = {"4k", "512k", "1m"};
    write_pool(c->pool->store);
    assert_int_equal(mkdir(c->to, 0700), 0);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char to[TEMP_DIR_BYTES];
        if (!small_disk_mount(c->to, sizes[i])) skip();
        temp_dir_join(to, c->to, "copy");
        reef_status status = reef_store_copy(c->pool->store, to, NULL, &why);
        size_t left = entries_of(c->to);
        small_disk_unmount(c->to);
        if (status != REEF_ERR_FULL) fail_msg("%s: %s", sizes[i], status == 0 ? "" : why.message);
        assert_true(strstr(why.message, "disk is full") || strstr(why.message, "No space left"));
        assert_int_equal(left, 0);
    }
    pool_check(c->pool->store);
}

// The content hash of a record of the open generation, as `sums` has it: the trees are sound, the
// root is not.
static void damage_sum(const char *pool) {
    static const uint8_t entry[] = {REEF_DB_TENSORS, 0, 0, 0, 1, 'w', '_', 'q', 0, 0, 0, 0, 0};
    data_bytes file = data_file_load(pool);
    size_t found = 0;
    for (size_t at = 0; (at = data_file_find(&file, at, entry, sizeof(entry))) != SIZE_MAX; at++) {
        file.data[at + sizeof(entry) + 8] ^= 1;
        found++;
    }
    assert_true(found > 0);
    data_file_replace(pool, &file);
}

FIXTURE_TEST(what_does_not_have_its_root_is_no_copy) {
    write_pool(c->pool->store);
    reef_store_close(c->pool->store);
    c->pool->store = NULL;
    damage_sum(c->pool->path);
    c->pool->store = pool_open(c->pool->path, false, true);
    must_fail(reef_store_copy(c->pool->store, c->to, NULL, &why), REEF_ERR_CORRUPT, "root hash");
    assert_absent(c->to);
}

RUN_TESTS
