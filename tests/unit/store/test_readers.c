// Readers beside a writer: many at once, killed ones, too many, and reads in steps.

#include "pool.h"
#include "small_disk.h"
#include "test.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { READERS = 64, READS = 40, COMMITS = 60, PAYLOAD = 65536 };

static const reef_key first_key = {.db = REEF_DB_META, .name = "first"};
static const reef_key second_key = {.db = REEF_DB_META, .name = "second"};

// Two records that are the same in every commit, and in no two commits.
static void write_both(pool_fixture *f, uint64_t step) {
    static uint8_t payload[PAYLOAD];
    fill(payload, sizeof(payload), step);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_put(txn, &first_key, payload, sizeof(payload));
    pool_put(txn, &second_key, payload, sizeof(payload));
    pool_commit(txn, step);
}

static void wait_us(long us) {
    nanosleep(&(struct timespec){.tv_nsec = 1000 * us}, NULL);
}

static off_t file_bytes(const pool_fixture *f) {
    char path[TEMP_DIR_BYTES + 16];
    struct stat info;
    snprintf(path, sizeof(path), "%s/data.mdb", f->path);
    assert_int_equal(stat(path, &info), 0);
    return info.st_size;
}

// ---- many ---------------------------------------------------------------------------------------

// In a child: 0 when both records were whole and the same in every read.
static int read_often(const char *path) {
    reef_store *store = NULL;
    if (reef_store_open(&store, path, NULL, NULL) != REEF_OK) return 1;
    uint64_t last = 0;
    for (int i = 0; i < READS; i++) {
        reef_txn *txn = NULL;
        reef_view first, second;
        reef_commit commit;
        if (reef_txn_begin(&txn, store, REEF_TXN_READ, NULL) != REEF_OK) return 2;
        if (reef_commit_read(txn, &commit, NULL) != REEF_OK || commit.number < last) return 3;
        if (reef_record_view(txn, &first_key, &first, NULL) != REEF_OK) return 4;
        if (reef_record_view(txn, &second_key, &second, NULL) != REEF_OK) return 5;
        if (first.bytes != PAYLOAD || memcmp(first.data, second.data, PAYLOAD) != 0) return 6;
        if (first.commit != commit.number) return 7;
        last = commit.number;
        reef_txn_abort(txn);
        wait_us(2000);
    }
    reef_store_close(store);
    return 0;
}

POOL_TEST(sixty_four_readers_each_see_whole_commits) {
    pid_t children[READERS];
    write_both(f, 1);
    for (int i = 0; i < READERS; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) _exit(read_often(f->path));
    }
    for (uint64_t step = 2; step < 2 + COMMITS; step++) write_both(f, step);
    for (int i = 0; i < READERS; i++) {
        int how;
        assert_int_equal(waitpid(children[i], &how, 0), children[i]);
        assert_true(WIFEXITED(how));
        assert_int_equal(WEXITSTATUS(how), 0);
    }
    assert_int_equal(pool_check(f->store).commits, 1 + COMMITS);
}

// ---- killed -------------------------------------------------------------------------------------

// A child with a read transaction on the last commit.
static pid_t start_reader(const pool_fixture *f) {
    int ready[2];
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        reef_store *store = NULL;
        reef_txn *txn = NULL;
        if (reef_store_open(&store, f->path, NULL, NULL) != REEF_OK) _exit(1);
        if (reef_txn_begin(&txn, store, REEF_TXN_READ, NULL) != REEF_OK) _exit(2);
        if (write(ready[1], "r", 1) != 1) _exit(3);
        for (;;) pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return child;
}

static void kill_reader(pid_t child) {
    int how;
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how));
}

static off_t growth_of_commits(pool_fixture *f) {
    off_t before = file_bytes(f);
    for (uint64_t step = 0; step < COMMITS; step++) write_both(f, 1000 + step);
    return file_bytes(f) - before;
}

POOL_TEST(a_killed_reader_keeps_no_page_from_reuse) {
    for (uint64_t step = 1; step < 8; step++) write_both(f, step);
    pid_t child = start_reader(f);
    kill_reader(child);
    assert_true(growth_of_commits(f) <= 4 * 2 * PAYLOAD);
    // While one lives, every commit takes new pages: so this test can tell.
    child = start_reader(f);
    assert_true(growth_of_commits(f) > (COMMITS - 8) * 2 * PAYLOAD);
    kill_reader(child);
    pool_check(f->store);
}

// ---- too many -----------------------------------------------------------------------------------

POOL_TEST(one_reader_too_many_is_refused) {
    reef_txn *readers[REEF_READERS_MAX + 1] = {NULL};
    size_t count = 0;
    reef_status status = REEF_OK;
    while (status == REEF_OK && count <= REEF_READERS_MAX) {
        status = reef_txn_begin(&readers[count], f->store, REEF_TXN_READ, &why);
        count += status == REEF_OK;
    }
    assert_int_equal(count, REEF_READERS_MAX);
    must_fail(status, REEF_ERR_BUSY, "all 1024 reader slots are taken by programs that read it");
    write_both(f, 1); // no writer waits for readers
    reef_txn_abort(readers[0]);
    must(reef_txn_begin(&readers[0], f->store, REEF_TXN_READ, &why));
    for (size_t i = 0; i < count; i++) reef_txn_abort(readers[i]);
}

// ---- who they are -------------------------------------------------------------------------------

POOL_TEST(the_oldest_reader_is_named_and_how_far_it_is_behind) {
    reef_readers readers;
    write_both(f, 1);
    must(reef_store_readers(f->store, &readers, &why));
    assert_int_equal(readers.count, 0);
    assert_int_equal(readers.behind, 0);
    assert_int_equal(readers.oldest_pid, 0);
    pid_t child = start_reader(f);
    must(reef_store_readers(f->store, &readers, &why));
    assert_int_equal(readers.count, 1);
    assert_int_equal(readers.behind, 0);
    write_both(f, 2);
    write_both(f, 3);
    reef_txn *own = pool_begin(f->store, REEF_TXN_READ);
    write_both(f, 4);
    must(reef_store_readers(f->store, &readers, &why));
    assert_int_equal(readers.count, 2);
    assert_int_equal(readers.behind, 3);
    assert_int_equal(readers.oldest_pid, child);
    kill_reader(child);
    write_both(f, 5); // which frees the slot
    must(reef_store_readers(f->store, &readers, &why));
    assert_int_equal(readers.count, 1);
    assert_int_equal(readers.behind, 2);
    assert_int_equal(readers.oldest_pid, getpid());
    reef_txn_abort(own);
}

// ---- turns --------------------------------------------------------------------------------------

static uint64_t commit_seen(reef_txn *txn) {
    reef_commit commit;
    must(reef_commit_read(txn, &commit, &why));
    return commit.number;
}

POOL_TEST(a_read_in_steps_sees_what_was_committed_meanwhile) {
    reef_store *hasty = NULL, *patient = NULL;
    bool renewed = false;
    must(reef_store_open(&hasty, f->path, &(reef_store_options){.renew_us = 1}, &why));
    must(reef_store_open(&patient, f->path, &(reef_store_options){.renew_us = UINT32_MAX}, &why));
    write_both(f, 1);
    reef_txn *whole = pool_begin(hasty, REEF_TXN_READ);
    reef_txn *turns = pool_begin(hasty, REEF_TXN_READ_RENEWED);
    reef_txn *slow = pool_begin(patient, REEF_TXN_READ_RENEWED);
    reef_txn *usual = pool_begin(f->store, REEF_TXN_READ_RENEWED);
    write_both(f, 2);
    wait_us(1000);
    must(reef_txn_renew(whole, &renewed, &why));
    assert_false(renewed);
    assert_int_equal(commit_seen(whole), 1);
    must(reef_txn_renew(slow, &renewed, &why));
    assert_false(renewed);
    assert_int_equal(commit_seen(slow), 1);
    must(reef_txn_renew(turns, &renewed, &why));
    assert_true(renewed);
    assert_int_equal(commit_seen(turns), 2);
    wait_us(1000 * (REEF_READ_MS_MAX / 2 + 10));
    must(reef_txn_renew(usual, &renewed, &why));
    assert_true(renewed);
    assert_int_equal(commit_seen(usual), 2);
    reef_read_stat stat;
    reef_store_read_stat(f->store, &stat);
    assert_int_equal(stat.count, 2); // the two steps; nothing else has ended
    assert_true(stat.longest_ms >= REEF_READ_MS_MAX / 2);
    reef_txn_abort(whole);
    reef_txn_abort(turns);
    reef_txn_abort(slow);
    reef_txn_abort(usual);
    reef_store_read_stat(f->store, &stat);
    assert_int_equal(stat.count, 6);
    reef_store_close(hasty);
    reef_store_close(patient);
}

// ---- none can be told ---------------------------------------------------------------------------

// On a read-only file system LMDB has no table of readers, and lists none.
POOL_TEST(without_a_table_no_reader_is_counted) {
    char disk[TEMP_DIR_BYTES], path[TEMP_DIR_BYTES], table[TEMP_DIR_BYTES];
    reef_readers readers;
    temp_dir_join(disk, f->directory, "disk");
    temp_dir_join(path, disk, "pool");
    temp_dir_join(table, path, "lock.mdb");
    assert_int_equal(mkdir(disk, 0700), 0);
    if (!small_disk_mount(disk, "8m")) skip();
    reef_store_close(pool_open(path, true, true));
    int removed = unlink(table), remounted = mount(NULL, disk, NULL, MS_REMOUNT | MS_RDONLY, NULL);
    reef_store *store = NULL;
    reef_status opened = reef_store_open(&store, path, NULL, &why), listed = REEF_ERR_INVALID;
    if (opened == REEF_OK) listed = reef_store_readers(store, &readers, &why);
    reef_store_close(store);
    small_disk_unmount(disk);
    assert_true(removed == 0 && remounted == 0);
    must(opened);
    must(listed);
    assert_int_equal(readers.count, 0);
}

RUN_TESTS
