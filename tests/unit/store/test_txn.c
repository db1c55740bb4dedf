// Transactions: a long random history against a plain array, abort, one writer, growth of the map,
// stores and readers that share one pool.
#include "reef_store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pool.h"
#include "test.h"

// ---- a random history ---------------------------------------------------------------------------

#define KINDS 10
#define KEYS (13 * KINDS)
#define NAMES 5

typedef struct model_record {
    bool present;
    reef_dtype dtype;
    size_t bytes;
    uint64_t seed; // of the payload
} model_record;

typedef struct model {
    model_record records[KEYS];
} model;

static reef_key model_key(uint32_t i) {
    static const char *const names[NAMES] = {"a", "ab", "b", "z/long name with spaces", "\xc3\xa4"};
    uint32_t n = i / KINDS;
    switch (i % KINDS) {
    case 0:
        return (reef_key){.db = REEF_DB_EXPERTS, .generation = n % 3, .layer = n % 2, .block = n};
    case 1:
        return (reef_key){.db = REEF_DB_MOMENTS, .generation = n % 3, .layer = n % 2, .block = n};
    case 2:
        return (reef_key){.db = REEF_DB_MOMENTS, .generation = n / NAMES, .name = names[n % NAMES]};
    case 3:
        return (reef_key){
            .db = REEF_DB_TENSORS, .generation = n / NAMES, .name = names[n % NAMES], .block = n};
    case 4:
        return (reef_key){.db = REEF_DB_JOURNAL, .name = names[n % NAMES], .sequence = n};
    case 5:
        return (reef_key){.db = REEF_DB_FLAGS, .block = n * 0x01010101u};
    case 6:
        return (reef_key){.db = REEF_DB_USAGE, .level = n % 2, .window = n, .layer = n};
    case 7:
        return (reef_key){.db = REEF_DB_META, .name = names[n % NAMES]}; // keys repeat: see below
    case 8:
        return (reef_key){
            .db = REEF_DB_MEMORY, .generation = n % 3, .name = names[n % NAMES], .block = n};
    default:
        return (reef_key){
            .db = REEF_DB_SERIES, .name = names[n % NAMES], .level = n, .sequence = n};
    }
}

// A key that an earlier index has already is left out of the history.
static bool model_key_repeats(uint32_t i) {
    return i % KINDS == 7 && i / KINDS >= NAMES;
}

static size_t draw_size(uint64_t *random) {
    switch (draw_int(random, 0, 4)) {
    case 0:
        return 0;
    case 1:
        return (size_t)draw_int(random, 1, 64);
    case 2:
        return (size_t)draw_int(random, 65, 2100);
    case 3:
        return (size_t)draw_int(random, 2000, 9000);
    default:
        return (size_t)draw_int(random, 9000, 70000);
    }
}

static void random_change(reef_txn *txn, model *m, uint64_t *random, uint8_t *payload) {
    uint32_t i = (uint32_t)draw_int(random, 0, KEYS - 1);
    const reef_key key = model_key(i);
    model_record *record = &m->records[i];
    if (model_key_repeats(i)) return;
    int choice = draw_int(random, 0, 9);
    if (choice < 3) {
        must(reef_record_delete(txn, &key, &why));
        *record = (model_record){0};
        return;
    }
    if (choice > 3 || !record->present) // else the same again
        *record = (model_record){.present = true,
                                 .dtype = (reef_dtype)draw_int(random, REEF_BYTES, REEF_JSON),
                                 .bytes = draw_size(random),
                                 .seed = draw_bits(random)};
    fill(payload, record->bytes, record->seed);
    must(reef_record_put(txn, &key, record->dtype, payload, record->bytes, &why));
}

static void assert_equals_model(reef_txn *txn, const model *m, uint8_t *payload) {
    for (uint32_t i = 0; i < KEYS; i++) {
        const reef_key key = model_key(i);
        const model_record *record = &m->records[i];
        reef_view view;
        if (model_key_repeats(i)) continue;
        reef_status status = reef_record_view(txn, &key, &view, &why);
        assert_int_equal(status, record->present ? REEF_OK : REEF_ERR_NOT_FOUND);
        if (!record->present) continue;
        fill(payload, record->bytes, record->seed);
        assert_int_equal(view.bytes, record->bytes);
        assert_int_equal(view.dtype, record->dtype);
        if (view.bytes > 0) assert_memory_equal(view.data, payload, view.bytes);
    }
}

static reef_status count_record(void *context,
                                const reef_key *key,
                                const reef_view *view,
                                reef_error *err) {
    (void)key, (void)view, (void)err;
    (*(size_t *)context)++;
    return REEF_OK;
}

// Records of the model in a database, of one generation or (UINT32_MAX) of all.
static size_t model_count(const model *m, reef_db db, uint32_t generation) {
    size_t count = 0;
    for (uint32_t i = 0; i < KEYS; i++) {
        const reef_key key = model_key(i);
        bool wanted = generation == UINT32_MAX || key.generation == generation;
        if (m->records[i].present && key.db == db && wanted) count++;
    }
    return count;
}

static size_t pool_count(reef_txn *txn, reef_db db, uint32_t generation) {
    size_t count = 0;
    must(reef_record_scan(txn, db, generation, count_record, &count, &why));
    return count;
}

static void assert_scans_agree(reef_txn *txn, const model *m) {
    static const reef_db by_generation[] = {REEF_DB_TENSORS, REEF_DB_EXPERTS, REEF_DB_MOMENTS,
                                            REEF_DB_FLAGS,   REEF_DB_USAGE,   REEF_DB_MEMORY};
    for (reef_db db = 0; db < REEF_DB_COUNT; db++) {
        if (db == REEF_DB_SUMS) continue;        // no records
        size_t own = db == REEF_DB_META ? 2 : 0; // format and commit
        assert_int_equal(pool_count(txn, db, UINT32_MAX), model_count(m, db, UINT32_MAX) + own);
    }
    for (size_t i = 0; i < sizeof(by_generation) / sizeof(by_generation[0]); i++) {
        for (uint32_t generation = 0; generation < 4; generation++)
            assert_int_equal(pool_count(txn, by_generation[i], generation),
                             model_count(m, by_generation[i], generation));
    }
}

POOL_TEST(a_random_history_equals_a_plain_array) {
    enum { TRANSACTIONS = 120 };
    static model committed;
    static model working;
    uint8_t *payload = room(70000);
    uint64_t random = 42;
    uint64_t commits = 1;
    memset(&committed, 0, sizeof(committed));
    pool_commit(pool_begin(f->store, REEF_TXN_WRITE), 0);
    for (int i = 0; i < TRANSACTIONS; i++) {
        reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
        working = committed;
        for (int changes = draw_int(&random, 0, 60); changes > 0; changes--)
            random_change(txn, &working, &random, payload);
        assert_equals_model(txn, &working, payload); // a transaction sees its own changes
        if (draw_int(&random, 0, 3) == 0) {
            reef_txn_abort(txn);
        } else {
            assert_int_equal(pool_commit(txn, (uint64_t)i).number, ++commits);
            committed = working;
        }
        if (draw_int(&random, 0, 9) == 0) pool_reopen(f);
        pool_check(f->store);
        txn = pool_begin(f->store, REEF_TXN_READ);
        assert_equals_model(txn, &committed, payload);
        assert_scans_agree(txn, &committed);
        reef_txn_abort(txn);
    }
}

// ---- commits ------------------------------------------------------------------------------------

POOL_TEST(a_commit_is_read_back_and_counted) {
    reef_commit back;
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    must_fail(reef_commit_read(txn, &back, &why), REEF_ERR_NOT_FOUND, "no commit yet");
    reef_txn_abort(txn);
    for (uint64_t i = 1; i < 4; i++) {
        txn = pool_begin(f->store, REEF_TXN_WRITE);
        pool_put(txn, &(reef_key){.db = REEF_DB_MOMENTS, .block = (uint32_t)i}, "12345", 5);
        reef_commit made = pool_commit(txn, 10 * i);
        pool_reopen(f);
        txn = pool_begin(f->store, REEF_TXN_READ);
        must(reef_commit_read(txn, &back, &why));
        reef_txn_abort(txn);
        assert_true(back.number == i && back.step == 10 * i && back.stream_bytes == 1000 * i);
        assert_true(back.unix_ms == 1 && back.bytes_written == 5);
        assert_memory_equal(back.root, made.root, REEF_HASH_BYTES);
    }
    assert_int_equal(pool_check(f->store).commits, 3);
}

POOL_TEST(an_aborted_transaction_leaves_nothing) {
    reef_view view;
    const reef_key key = {.db = REEF_DB_META, .name = "x"};
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_put(txn, &key, "x", 1);
    must(reef_record_view(txn, &key, &view, &why));
    reef_txn_abort(txn);
    reef_txn_abort(NULL);
    txn = pool_begin(f->store, REEF_TXN_READ);
    must_fail(reef_record_view(txn, &key, &view, &why), REEF_ERR_NOT_FOUND, "meta (name x)");
    reef_txn_abort(txn);
    pool_check(f->store);
}

POOL_TEST(read_transactions_and_readers_cannot_write) {
    reef_txn *none = NULL;
    reef_commit commit = {0};
    const reef_key key = {.db = REEF_DB_META, .name = "x"};
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    must_fail(reef_record_put(txn, &key, REEF_BYTES, "x", 1, &why), REEF_ERR_INVALID,
              "cannot write");
    must_fail(reef_record_delete(txn, &key, &why), REEF_ERR_INVALID, "cannot write");
    must_fail(reef_generation_put(txn, &(reef_generation_record){.side = 1}, &why),
              REEF_ERR_INVALID, "cannot write");
    must_fail(reef_timeline_append(txn, "{}", &why), REEF_ERR_INVALID, "cannot write");
    must_fail(reef_txn_commit(txn, &commit, &why), REEF_ERR_INVALID, "cannot write"); // uses it up
    reef_store *reader = pool_open(f->path, false, false);
    must_fail(reef_txn_begin(&none, reader, REEF_TXN_WRITE, &why), REEF_ERR_INVALID,
              "reading only");
    assert_null(none);
    reef_store_close(reader);
}

// ---- sharing ------------------------------------------------------------------------------------

POOL_TEST(a_second_writer_of_this_process_is_refused) {
    reef_store *second = NULL;
    char pid[32];
    snprintf(pid, sizeof(pid), "by process %ld", (long)getpid());
    must_fail(reef_store_open(&second, f->path, &(reef_store_options){.write = true}, &why),
              REEF_ERR_BUSY, pid);
    assert_non_null(strstr(why.message, f->path));
    assert_null(second);
    pool_reopen(f); // the lock goes with the writer
    pool_check(f->store);
}

POOL_TEST(a_second_write_transaction_is_refused) {
    reef_txn *second = NULL;
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    must_fail(reef_txn_begin(&second, f->store, REEF_TXN_WRITE, &why), REEF_ERR_BUSY,
              "already running");
    reef_txn_abort(txn);
    reef_txn_abort(pool_begin(f->store, REEF_TXN_WRITE));
}

// Runs in a forked child, with what the parent wants to know as exit code.
static int child_opens_writer(const char *path, const char *pid) {
    reef_store *store = NULL;
    reef_status status = reef_store_open(&store, path, &(reef_store_options){.write = true}, &why);
    if (status != REEF_ERR_BUSY) return 1;
    return strstr(why.message, pid) != NULL && strstr(why.message, path) != NULL ? 0 : 2;
}

static int exit_code_of(pid_t child) {
    int how = 0;
    while (waitpid(child, &how, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(how) ? WEXITSTATUS(how) : 1000 + WTERMSIG(how);
}

POOL_TEST(a_second_writer_of_another_process_is_refused) {
    char pid[32];
    snprintf(pid, sizeof(pid), "by process %ld", (long)getpid());
    pid_t child = fork();
    if (child == 0) _exit(child_opens_writer(f->path, pid));
    assert_int_equal(exit_code_of(child), 0);
    reef_txn_abort(pool_begin(f->store, REEF_TXN_WRITE)); // and the writer is not disturbed
}

// Programs fork while they have a pool, and the child has a copy of its descriptors.
POOL_TEST(a_forked_child_does_not_keep_the_writer_lock) {
    int ends[2];
    char byte;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1); // lives until the parent has asserted, or died
    }
    close(ends[0]);
    pool_reopen(f);
    close(ends[1]);
    assert_int_equal(exit_code_of(child), 0);
    reef_txn_abort(pool_begin(f->store, REEF_TXN_WRITE));
}

POOL_TEST(stores_of_one_process_share_a_pool) {
    reef_view view;
    const reef_key key = {.db = REEF_DB_META, .name = "x"};
    reef_store *readers[2] = {pool_open(f->path, false, false), pool_open(f->path, false, false)};
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_put(txn, &key, "1", 1);
    pool_commit(txn, 1);
    reef_txn *old = pool_begin(readers[0], REEF_TXN_READ);
    reef_store_close(readers[1]);  // must not take the reader slot of the other away
    for (int i = 0; i < 20; i++) { // enough commits to use old pages again
        txn = pool_begin(f->store, REEF_TXN_WRITE);
        pool_put(txn, &key, &i, sizeof(i));
        pool_commit(txn, 2);
    }
    must(reef_record_view(old, &key, &view, &why));
    assert_int_equal(view.bytes, 1);
    reef_txn_abort(old);
    reef_store_close(f->store); // the writer leaves first, the reader stays
    f->store = NULL;
    txn = pool_begin(readers[0], REEF_TXN_READ);
    must(reef_record_view(txn, &key, &view, &why));
    assert_int_equal(view.bytes, sizeof(int));
    reef_txn_abort(txn);
    f->store = pool_open(f->path, false, true);
    reef_store_close(readers[0]);
    pool_check(f->store);
}

#define ROUND_RECORDS 20

static void put_round(reef_txn *txn, uint64_t round) {
    uint64_t payload[600]; // larger and smaller than half a page
    for (uint32_t i = 0; i < ROUND_RECORDS; i++) {
        for (size_t j = 0; j < 600; j++) payload[j] = round;
        pool_put(txn, &(reef_key){.db = REEF_DB_EXPERTS, .block = i}, payload, i % 2 ? 4800 : 80);
    }
}

// All records of one transaction must be of one round. Returns a complaint, or NULL.
static const char *read_round(reef_store *store, uint64_t *round) {
    reef_txn *txn = NULL;
    const char *complaint = NULL;
    if (reef_txn_begin(&txn, store, REEF_TXN_READ, &why) != REEF_OK) return "begin";
    for (uint32_t i = 0; complaint == NULL && i < ROUND_RECORDS; i++) {
        reef_view view;
        uint64_t first;
        if (reef_record_view(txn, &(reef_key){.db = REEF_DB_EXPERTS, .block = i}, &view, &why) !=
            REEF_OK) {
            complaint = "view";
            break;
        }
        memcpy(&first, view.data, sizeof(first));
        if (i == 0) *round = first;
        if (first != *round) complaint = "mixed rounds";
    }
    reef_txn_abort(txn);
    return complaint;
}

#define ROUNDS 60

static int child_reads_rounds(const char *path) {
    reef_store *store = NULL;
    uint64_t round = 0;
    uint64_t before = 0;
    if (reef_store_open(&store, path, &(reef_store_options){0}, &why) != REEF_OK) return 1;
    while (round < ROUNDS) {
        if (read_round(store, &round) != NULL) return 2;
        if (round < before) return 3; // time runs forward
        before = round;
    }
    reef_store_close(store);
    return 0;
}

POOL_TEST(a_reader_in_another_process_sees_whole_commits) {
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    put_round(txn, 1);
    pool_commit(txn, 1);
    pid_t child = fork();
    if (child == 0) {
        (void)alarm(60); // a child that never sees the last round
        _exit(child_reads_rounds(f->path));
    }
    for (uint64_t round = 2; round <= ROUNDS; round++) {
        txn = pool_begin(f->store, REEF_TXN_WRITE);
        put_round(txn, round);
        pool_commit(txn, round);
    }
    assert_int_equal(exit_code_of(child), 0);
    pool_check(f->store);
}

typedef struct reading_thread {
    reef_store *store;
    const char *complaint;
} reading_thread;

static void *read_rounds(void *context) {
    reading_thread *t = context;
    for (uint64_t round = 0; t->complaint == NULL && round < ROUNDS;)
        t->complaint = read_round(t->store, &round);
    return NULL;
}

POOL_TEST(threads_read_one_store_while_it_is_written) {
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    reading_thread contexts[THREADS];
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    put_round(txn, 1);
    pool_commit(txn, 1);
    for (int i = 0; i < THREADS; i++) {
        contexts[i] = (reading_thread){.store = f->store};
        assert_int_equal(pthread_create(&threads[i], NULL, read_rounds, &contexts[i]), 0);
    }
    for (uint64_t round = 2; round <= ROUNDS; round++) {
        txn = pool_begin(f->store, REEF_TXN_WRITE);
        put_round(txn, round);
        pool_commit(txn, round);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        if (contexts[i].complaint != NULL) fail_msg("%s", contexts[i].complaint);
    }
    pool_check(f->store);
}

typedef struct meta_page {
    int fd;
    off_t transaction_at;
    uint64_t transaction;
    atomic_bool as_it_was;
} meta_page;

static void *put_back(void *context) {
    meta_page *page = context;
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    atomic_store(&page->as_it_was, true);
    if (pwrite(page->fd, &page->transaction, 8, page->transaction_at) != 8) abort();
    return NULL;
}

// What a reader meets that stands still between LMDB's two steps of a begin: the meta page of the
// last commit that it knows holds the next but one, while the disk takes that.
POOL_TEST(a_read_never_begins_on_a_commit_that_is_not_out) {
    enum { PAGE_BYTES = 4096, TRANSACTION_AT = 144 }; // of LMDB's meta pages
    char path[TEMP_DIR_BYTES];
    uint64_t transactions[2];
    pthread_t thread;
    for (uint64_t round = 1; round <= 2; round++) {
        reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
        put_round(txn, round);
        pool_commit(txn, round);
    }
    temp_dir_join(path, f->path, "data.mdb");
    meta_page page = {.fd = open(path, O_RDWR | O_CLOEXEC)};
    assert_true(page.fd >= 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pread(page.fd, &transactions[i], 8, i * PAGE_BYTES + TRANSACTION_AT), 8);
    int newer = transactions[1] > transactions[0];
    page.transaction = transactions[newer];
    page.transaction_at = newer * PAGE_BYTES + TRANSACTION_AT;
    uint64_t later = page.transaction + 2;
    assert_int_equal(pwrite(page.fd, &later, 8, page.transaction_at), 8);
    assert_int_equal(pthread_create(&thread, NULL, put_back, &page), 0);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    assert_true(atomic_load(&page.as_it_was));
    reef_txn_abort(txn);
    pthread_join(thread, NULL);
    close(page.fd);
}

// ---- the map ------------------------------------------------------------------------------------

// Opens with a small map before the writer grows its own, and has to follow.
static int child_follows_map(const char *path, int go) {
    reef_store *store = NULL;
    uint64_t round = 0;
    char byte;
    if (reef_store_open(&store, path, &(reef_store_options){.map_bytes = 1 << 20}, &why) != REEF_OK)
        return 1;
    if (read_round(store, &round) != NULL || round != 1) return 2;
    if (read(go, &byte, 1) != 1) return 3;
    if (read_round(store, &round) != NULL || round != 2) return 4;
    reef_store_close(store);
    return 0;
}

POOL_TEST(a_full_map_is_reported_and_larger_the_next_time) {
    enum { BYTES = 300000, RECORDS = 30 };
    uint8_t *payload = room(BYTES);
    int go[2];
    int full = 0;
    pool_close(f);
    must(reef_store_open(&f->store, f->path,
                         &(reef_store_options){.write = true, .map_bytes = 1 << 20}, &why));
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    put_round(txn, 1);
    pool_commit(txn, 1);
    assert_int_equal(pipe(go), 0);
    pid_t child = fork();
    if (child == 0) _exit(child_follows_map(f->path, go[0]));

    for (bool done = false; !done;
         full++) { // 9 MB in one transaction: from 1 MiB to 16 in four steps
        reef_status status = REEF_OK;
        assert_true(full < 10);
        txn = pool_begin(f->store, REEF_TXN_WRITE);
        for (uint32_t i = 0; status == REEF_OK && i < RECORDS; i++) {
            memcpy(payload, &i, sizeof(i));
            const reef_key key = {.db = REEF_DB_MOMENTS, .block = i};
            status = reef_record_put(txn, &key, REEF_BYTES, payload, BYTES, &why);
        }
        done = status == REEF_OK;
        if (done) {
            put_round(txn, 2);
            pool_commit(txn, 2);
        } else {
            reef_commit commit = {0};
            must_fail(status, REEF_ERR_FULL, "the map is full");
            must_fail(reef_txn_commit(txn, &commit, &why), REEF_ERR_FULL, "the map is full");
            pool_check(f->store); // nothing of it is there
        }
    }
    assert_true(full > 1);
    assert_int_equal(write(go[1], "!", 1), 1);
    assert_int_equal(exit_code_of(child), 0);
    for (uint32_t i = 0; i < 40;
         i++) { // small ones never meet the end: the map grows ahead of them
        txn = pool_begin(f->store, REEF_TXN_WRITE);
        pool_put(txn, &(reef_key){.db = REEF_DB_MOMENTS, .block = RECORDS + i}, payload, BYTES);
        pool_commit(txn, 3);
    }
    pool_check(f->store);
    close(go[0]);
    close(go[1]);
}

#define ADDRESS_SPACE_LIMIT (UINT64_C(8) << 30) // less than the 64 GiB that a pool asks for

static int child_with_little_address_space(const char *path) {
    const struct rlimit limit = {.rlim_cur = ADDRESS_SPACE_LIMIT, .rlim_max = ADDRESS_SPACE_LIMIT};
    reef_store *store = NULL;
    uint64_t round = 0;
    if (setrlimit(RLIMIT_AS, &limit) != 0) return 1;
    if (reef_store_open(&store, path, &(reef_store_options){0}, &why) != REEF_OK) return 2;
    return read_round(store, &round) == NULL && round == 1 ? 0 : 3;
}

// Sanitizers reserve terabytes, which no limit can allow for.
static bool process_is_vast(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL) return true;
    bool known = fscanf(file, "%lu", &pages) == 1;
    fclose(file);
    return !known || pages > ADDRESS_SPACE_LIMIT / 4096 + (UINT64_C(64) << 30) / 4096;
}

POOL_TEST(little_address_space_is_enough) {
    if (process_is_vast()) {
        print_message("skipped: this build reserves more address space than the test allows\n");
        skip();
    }
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    put_round(txn, 1);
    pool_commit(txn, 1);
    reef_store_close(f->store); // its map would count against the child's limit
    f->store = NULL;
    pid_t child = fork();
    if (child == 0) _exit(child_with_little_address_space(f->path));
    int code = exit_code_of(child);
    f->store = pool_open(f->path, false, true);
    assert_int_equal(code, 0);
}

// Only LMDB's own pages, which it writes as it commits, have no room any more: records of a page
// each, one fewer from pool to pool, until all can be put and the commit fails.
static reef_status put_pages(reef_store *store, uint32_t pages, bool *all_put, reef_error *err) {
    enum { BYTES = 4000 };
    static uint8_t payload[BYTES];
    reef_commit commit = {.step = 1};
    reef_status status = REEF_OK;
    reef_txn *txn = pool_begin(store, REEF_TXN_WRITE);
    for (uint32_t i = 0; status == REEF_OK && i < pages; i++) {
        memcpy(payload, &i, sizeof(i));
        const reef_key key = {.db = REEF_DB_MOMENTS, .block = i};
        status = reef_record_put(txn, &key, REEF_BYTES, payload, BYTES, err);
    }
    *all_put = status == REEF_OK;
    if (status == REEF_OK) return reef_txn_commit(txn, &commit, err);
    reef_txn_abort(txn);
    return status;
}

POOL_TEST(a_commit_that_finds_the_map_full_has_a_larger_one_the_next_time) {
    enum { MAP_BYTES = 1 << 20, PAGES = MAP_BYTES / 4096 };
    bool met = false, all_put = false;
    for (uint32_t pages = PAGES; !met && pages > PAGES / 2; pages--) {
        char name[16], path[TEMP_DIR_BYTES];
        snprintf(name, sizeof(name), "pages%u", pages);
        temp_dir_join(path, f->directory, name);
        reef_store *store = NULL;
        must(reef_store_open(
            &store, path,
            &(reef_store_options){.create = true, .write = true, .map_bytes = MAP_BYTES}, &why));
        reef_status status = put_pages(store, pages, &all_put, &why);
        // Of a record that did not fit the error says so.
        met = all_put && status == REEF_ERR_FULL && strstr(why.message, "cannot commit") != NULL;
        if (met) {
            must_fail(status, REEF_ERR_FULL, "the map is full");
            must(put_pages(store, pages, &all_put, &why));
            pool_check(store);
        } else if (all_put && status == REEF_OK) {
            fail_msg("with %u pages the commit has room already", pages);
        }
        reef_store_close(store);
    }
    assert_true(met);
}

RUN_TESTS
