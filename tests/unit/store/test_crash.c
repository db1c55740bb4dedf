// The process dies, or the disk is full, in the middle of a commit: the pool is in the state of a
// whole commit, and continues to work.
#include "reef_store.h"

#include <errno.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>

#include "pool.h"
#include "test.h"

// ---- a history that follows from the commit's number --------------------------------------------

#define RECORDS 40
#define RECORD_BYTES_MAX 20000

static reef_key history_key(uint32_t i) {
    static const reef_db dbs[] = {REEF_DB_EXPERTS, REEF_DB_FLAGS, REEF_DB_MOMENTS, REEF_DB_TENSORS};
    reef_key key = {.db = dbs[i % 4], .block = i};
    if (key.db == REEF_DB_TENSORS) key.name = "w";
    return key;
}

// What commit number n does to record i: nothing, delete it, or write a payload of its own.
typedef enum deed { NOTHING, DELETE, WRITE } deed;

static deed history_deed(uint64_t n, uint32_t i, uint64_t *seed, size_t *bytes) {
    uint64_t random = 1000 * n + i;
    uint64_t draw = draw_bits(&random) % 8;
    *seed = draw_bits(&random);
    *bytes = (size_t)(draw_bits(&random) % (i % 2 ? RECORD_BYTES_MAX : 300));
    return draw < 4 ? NOTHING : draw == 4 ? DELETE : WRITE;
}

// Commit number n. Used in children: no assertions, only a status.
static reef_status history_commit(reef_store *store,
                                  uint64_t n,
                                  uint8_t *payload,
                                  reef_error *err) {
    reef_txn *txn = NULL;
    reef_commit commit = {.step = n};
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_WRITE, err);
    for (uint32_t i = 0; status == REEF_OK && i < RECORDS; i++) {
        const reef_key key = history_key(i);
        uint64_t seed;
        size_t bytes;
        deed what = history_deed(n, i, &seed, &bytes);
        if (what == DELETE) status = reef_record_delete(txn, &key, err);
        if (what != WRITE) continue;
        fill(payload, bytes, seed);
        status = reef_record_put(txn, &key, REEF_BYTES, payload, bytes, err);
    }
    if (status == REEF_OK) return reef_txn_commit(txn, &commit, err);
    reef_txn_abort(txn);
    return status;
}

// The pool holds exactly what commits 1 .. n made; returns n.
static uint64_t assert_history(reef_store *store, uint8_t *payload) {
    reef_commit last = {0};
    reef_txn *txn = pool_begin(store, REEF_TXN_READ);
    reef_status status = reef_commit_read(txn, &last, &why);
    if (status != REEF_ERR_NOT_FOUND) must(status);
    for (uint32_t i = 0; i < RECORDS; i++) {
        const reef_key key = history_key(i);
        reef_view view;
        uint64_t seed = 0;
        size_t bytes = 0;
        uint64_t n = last.number;
        while (n > 0 && history_deed(n, i, &seed, &bytes) == NOTHING) n--;
        bool present = n > 0 && history_deed(n, i, &seed, &bytes) == WRITE;
        status = reef_record_view(txn, &key, &view, &why);
        assert_int_equal(status, present ? REEF_OK : REEF_ERR_NOT_FOUND);
        if (!present) continue;
        fill(payload, bytes, seed);
        assert_int_equal(view.bytes, bytes);
        if (bytes > 0) assert_memory_equal(view.data, payload, bytes);
    }
    reef_txn_abort(txn);
    return last.number;
}

// ---- killed -------------------------------------------------------------------------------------

// Commits until it is killed, and reports after each.
static int child_commits(const char *path, int told) {
    reef_store *store = NULL;
    reef_txn *txn = NULL;
    reef_commit last = {0};
    static uint8_t payload[RECORD_BYTES_MAX];
    if (reef_store_open(&store, path, &(reef_store_options){.write = true}, &why) != REEF_OK)
        return 1;
    if (reef_txn_begin(&txn, store, REEF_TXN_READ, &why) != REEF_OK) return 2;
    if (reef_commit_read(txn, &last, &why) > REEF_ERR_NOT_FOUND) return 3;
    reef_txn_abort(txn);
    for (uint64_t n = last.number + 1;; n++) {
        if (history_commit(store, n, payload, &why) != REEF_OK) return 4;
        if (write(told, &n, sizeof(n)) != sizeof(n)) return 5;
    }
}

static void pause_us(long microseconds) {
    nanosleep(&(struct timespec){.tv_nsec = 1000 * microseconds}, NULL);
}

// Let a child commit, kill it after a while; returns the last commit that it said was done.
static uint64_t run_and_kill(const char *path, long microseconds) {
    int told[2];
    int how = 0;
    uint64_t last = 0;
    assert_int_equal(pipe(told), 0);
    pid_t child = fork();
    if (child == 0) {
        close(told[0]);
        _exit(child_commits(path, told[1]));
    }
    close(told[1]);
    // The clock starts with the first commit, so that slow starts (sanitizers) kill in commits as
    // well.
    assert_int_equal(read(told[0], &last, sizeof(last)), sizeof(last));
    pause_us(microseconds);
    kill(child, SIGKILL);
    for (uint64_t n; read(told[0], &n, sizeof(n)) == sizeof(n);) last = n;
    close(told[0]);
    while (waitpid(child, &how, 0) < 0 && errno == EINTR) {
    }
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL); // it had no other reason to end
    return last;
}

POOL_TEST(a_commit_is_whole_or_absent_after_a_kill) {
    enum { ROUNDS = 25 };
    static uint8_t payload[RECORD_BYTES_MAX];
    uint64_t random = 8;
    uint64_t before = 0;
    pool_close(f);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t told = run_and_kill(f->path, draw_int(&random, 0, 15000));
        f->store = pool_open(f->path, false, true); // the dead writer's lock is gone
        uint64_t number = assert_history(f->store, payload);
        assert_true(number == told || number == told + 1); // what was acknowledged stays
        assert_true(number > before);
        before = number;
        pool_check(f->store);
        pool_close(f);
    }
    f->store = pool_open(f->path, false, true);
}

// Killed while it held a read transaction: its slot must not keep pages from reuse for ever.
POOL_TEST(a_killed_reader_does_not_make_the_pool_grow) {
    static uint8_t payload[RECORD_BYTES_MAX];
    int ready[2];
    char byte;
    uint64_t n = 1;
    must(history_commit(f->store, n++, payload, &why));
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        reef_store *store = NULL;
        reef_txn *txn = NULL;
        if (reef_store_open(&store, f->path, &(reef_store_options){0}, &why) != REEF_OK) _exit(1);
        if (reef_txn_begin(&txn, store, REEF_TXN_READ, &why) != REEF_OK) _exit(2);
        if (write(ready[1], "!", 1) != 1) _exit(3);
        for (;;) pause_us(100000);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    kill(child, SIGKILL);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    }
    close(ready[0]);
    close(ready[1]);
    pool_reopen(f); // checks the reader table
    for (; n < 20; n++) must(history_commit(f->store, n, payload, &why));
    uint64_t settled = pool_check(f->store).file_bytes;
    for (; n < 120; n++) must(history_commit(f->store, n, payload, &why));
    assert_true(pool_check(f->store).file_bytes < 2 * settled);
    assert_int_equal(assert_history(f->store, payload), 119);
}

POOL_TEST(a_pool_is_made_whole_or_not_at_all) {
    enum { ROUNDS = 15, ROUNDS_MAX = 60, POOLS = 200 };
    uint64_t random = 4;
    int whole = 0;
    // A slow disk may not finish one pool in the time of the first rounds: later ones last longer.
    for (int round = 0; round < ROUNDS || (whole == 0 && round < ROUNDS_MAX); round++) {
        char path[TEMP_DIR_BYTES];
        char name[32];
        pid_t child = fork();
        for (int i = 0; child == 0 && i < POOLS; i++) {
            reef_store *store = NULL;
            snprintf(name, sizeof(name), "%d-%d", round, i);
            temp_dir_join(path, f->directory, name);
            const reef_store_options options = {.create = true, .write = true};
            if (reef_store_open(&store, path, &options, NULL) != REEF_OK) _exit(1);
            reef_store_close(store);
        }
        if (child == 0) _exit(0);
        pause_us(draw_int(&random, 2000, 20000) * (1 + round / ROUNDS * 4));
        kill(child, SIGKILL);
        while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
        }
        for (int i = 0; i < POOLS; i++) {
            reef_store *store = NULL;
            snprintf(name, sizeof(name), "%d-%d", round, i);
            temp_dir_join(path, f->directory, name);
            reef_status status =
                reef_store_open(&store, path, &(reef_store_options){.write = true}, &why);
            if (status == REEF_ERR_NOT_FOUND) break;
            if (status != REEF_OK) {
                must_fail(status, REEF_ERR_INVALID, "has no data.mdb");
                continue;
            }
            whole++;
            pool_check(store);
            reef_store_close(store);
        }
    }
    assert_true(whole > 0);
}

// ---- a full disk --------------------------------------------------------------------------------

// A small file system of the test's own. Only the superuser can mount one.
static bool disk_mount(pool_fixture *f) {
    return geteuid() == 0 && mount("reef-test", f->directory, "tmpfs", 0, "size=6m") == 0;
}

static int disk_setup(void **state) {
    pool_fixture *f = room(sizeof(*f));
    temp_dir_new(f->directory);
    temp_dir_join(f->path, f->directory, "pool");
    if (disk_mount(f)) f->store = pool_open(f->path, true, true);
    *state = f;
    return 0;
}

static int disk_teardown(void **state) {
    pool_fixture *f = *state;
    bool mounted = f->store != NULL;
    reef_store_close(f->store);
    if (mounted) (void)umount2(f->directory, MNT_DETACH);
    temp_dir_remove(f->directory);
    return 0;
}

static bool disk_is_missing(const pool_fixture *f) {
    if (f->store != NULL) return false;
    print_message("skipped: mounting a small tmpfs needs the superuser and CAP_SYS_ADMIN\n");
    return true;
}

// A file that takes all but about `left` bytes of the disk.
static void filler_write(const pool_fixture *f, uint64_t left) {
    char path[TEMP_DIR_BYTES];
    static uint8_t zeros[4096];
    temp_dir_join(path, f->directory, "filler");
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0);
    while (write(fd, zeros, sizeof(zeros)) == (ssize_t)sizeof(zeros)) {
    }
    off_t end = lseek(fd, 0, SEEK_END);
    assert_true(end >= 0);
    assert_int_equal(ftruncate(fd, (uint64_t)end > left ? end - (off_t)left : 0), 0);
    close(fd);
}

static void filler_remove(const pool_fixture *f) {
    char path[TEMP_DIR_BYTES];
    temp_dir_join(path, f->directory, "filler");
    unlink(path);
}

// More than the whole disk holds (what failed commits wrote stays in the file, as room for others),
// in records of half a page and of many.
static reef_status large_commit(reef_store *store, reef_error *err) {
    reef_txn *txn = NULL;
    reef_commit commit = {0};
    static uint8_t payload[50000];
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_WRITE, err);
    for (uint32_t i = 0; status == REEF_OK && i < 200; i++) {
        const reef_key key = {.db = REEF_DB_MOMENTS, .block = 1000000 + i};
        status =
            reef_record_put(txn, &key, REEF_BYTES, payload, i % 3 ? sizeof(payload) : 2000, err);
    }
    if (status == REEF_OK) return reef_txn_commit(txn, &commit, err);
    reef_txn_abort(txn);
    return status;
}

#define DISK_TEST(name) TEST_WITH(name, disk_setup, disk_teardown, pool_fixture *f)

DISK_TEST(a_full_disk_loses_nothing_and_works_again_with_room) {
    static uint8_t payload[RECORD_BYTES_MAX];
    uint64_t n = 1;
    int full = 0;
    if (disk_is_missing(f)) skip();
    for (; n < 8; n++) must(history_commit(f->store, n, payload, &why));
    for (uint64_t left = 0; left < 600000; left += 41000) { // ends in different parts of the commit
        filler_write(f, left);
        must_fail(large_commit(f->store, &why), REEF_ERR_FULL, "the disk is full");
        assert_int_equal(assert_history(f->store, payload), n - 1);
        // A small one may find room in pages that are free inside the file.
        reef_status status = history_commit(f->store, n, payload, &why);
        if (status == REEF_OK) {
            n++;
        } else {
            must_fail(status, REEF_ERR_FULL, "the disk is full");
            full++;
        }
        assert_int_equal(assert_history(f->store, payload), n - 1); // readable while full
        pool_check(f->store);
        filler_remove(f);
        must(history_commit(f->store, n, payload, &why)); // the same store continues
        n++;
        pool_check(f->store);
    }
    assert_true(full > 0);
    pool_reopen(f);
    assert_int_equal(assert_history(f->store, payload), n - 1);
}

DISK_TEST(a_pool_on_a_full_disk_opens) {
    static uint8_t payload[RECORD_BYTES_MAX];
    char file[TEMP_DIR_BYTES];
    if (disk_is_missing(f)) skip();
    must(history_commit(f->store, 1, payload, &why));
    filler_write(f, 0);
    pool_reopen(f);
    assert_int_equal(assert_history(f->store, payload), 1);
    pool_check(f->store);
    // Without LMDB's lock file, which it would fill through a map: an error, and no SIGBUS.
    pool_close(f);
    temp_dir_join(file, f->path, "lock.mdb");
    unlink(file);
    filler_write(f, 0);
    must_fail(reef_store_open(&f->store, f->path, &(reef_store_options){.write = true}, &why),
              REEF_ERR_FULL, "lock.mdb");
    filler_remove(f);
    f->store = pool_open(f->path, false, true);
    assert_int_equal(assert_history(f->store, payload), 1);
}

DISK_TEST(creating_on_a_full_disk_leaves_nothing_behind) {
    char path[TEMP_DIR_BYTES];
    reef_store *store = NULL;
    int refused = 0;
    if (disk_is_missing(f)) skip();
    temp_dir_join(path, f->directory, "second");
    for (uint64_t left = 0; store == NULL && left < 500000; left += 12288) {
        filler_write(f, left);
        const reef_store_options options = {.create = true, .write = true};
        reef_status status = reef_store_open(&store, path, &options, &why);
        if (status == REEF_OK) break; // enough room at last
        refused++;
        must_fail(status, REEF_ERR_FULL, path);
        assert_int_not_equal(access(path, F_OK), 0);
    }
    assert_non_null(store);
    assert_true(refused > 5);
    pool_check(store);
    reef_store_close(store);
}

RUN_TESTS
