// Opening what is not a pool, not ours, or broken: a clear error each time, and never a signal.
#define _DEFAULT_SOURCE // for usleep

#include "check.h"
#include "record.h"
#include "reef_byte_order.h"
#include "reef_pool_check.h"
#include "reef_store.h"

#include <lmdb.h>

#include <errno.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data_file.h"
#include "pool.h"
#include "pool_version.h"
#include "test.h"

static const reef_store_options reading = {0};
static const reef_store_options writing = {.write = true};
static const reef_store_options creating = {.create = true, .write = true};

static void must_not_open(const char *path,
                          const reef_store_options *options,
                          reef_status expected,
                          const char *part) {
    reef_store *store = (reef_store *)&why; // must become NULL
    must_fail(reef_store_open(&store, path, options, &why), expected, part);
    assert_null(store);
}

static void write_file(const char *path, const void *data, size_t bytes) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    if (bytes > 0) assert_int_equal(write(fd, data, bytes), bytes);
    close(fd);
}

static int directory_setup(void **state) {
    pool_fixture *f = room(sizeof(*f));
    temp_dir_new(f->directory);
    temp_dir_join(f->path, f->directory, "pool");
    *state = f;
    return 0;
}

// ---- no pool ------------------------------------------------------------------------------------

#define NO_POOL_TEST(name) TEST_WITH(name, directory_setup, pool_teardown, pool_fixture *f)

NO_POOL_TEST(a_missing_pool_is_not_found) {
    must_not_open(f->path, &reading, REEF_ERR_NOT_FOUND, f->path);
    must_not_open(f->path, &writing, REEF_ERR_NOT_FOUND, f->path);
    must_not_open("", &reading, REEF_ERR_INVALID, "empty");
    char below[TEMP_DIR_BYTES];
    temp_dir_join(below, f->path, "deeper");
    must_not_open(below, &creating, REEF_ERR_NOT_FOUND, below); // parents are not made
}

NO_POOL_TEST(the_pool_of_somebody_else_says_whose_it_is) {
    reef_store *store = NULL;
    must(reef_store_open(&store, f->path, &creating, &why));
    reef_store_close(store);
    char data[TEMP_DIR_BYTES];
    temp_dir_join(data, f->path, "data.mdb");
    assert_int_equal(chmod(f->directory, 0755), 0);
    assert_int_equal(chmod(f->path, 0755), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (geteuid() == 0 && setuid(65534) != 0) _exit(3);
        if (geteuid() != 65534 && chmod(data, 0) != 0) _exit(4);
        bool refused = reef_store_open(&store, f->path, &reading, &why) == REEF_ERR_IO;
        _exit(refused && strstr(why.message, "it is owned by ") != NULL &&
                      strstr(why.message, ", mode 0") != NULL
                  ? 0
                  : 5);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

NO_POOL_TEST(what_is_no_pool_is_invalid) {
    char file[TEMP_DIR_BYTES];
    must_not_open(f->directory, &reading, REEF_ERR_INVALID, "has no data.mdb");
    write_file(f->path, "text", 4);
    must_not_open(f->path, &reading, REEF_ERR_INVALID, "not a directory");
    must_not_open(f->path, &creating, REEF_ERR_INVALID, f->path);
    unlink(f->path);
    assert_int_equal(mkdir(f->path, 0700), 0);
    temp_dir_join(file, f->path, "data.mdb");
    write_file(file, "", 0);
    must_not_open(f->path, &reading, REEF_ERR_INVALID, "not an LMDB file");
    write_file(file, "short", 5);
    must_not_open(f->path, &reading, REEF_ERR_INVALID, "not an LMDB file");
    uint8_t garbage[20000];
    fill(garbage, sizeof(garbage), 1);
    write_file(file, garbage, sizeof(garbage));
    must_not_open(f->path, &reading, REEF_ERR_INVALID, "not an LMDB file");
    must_not_open(f->path, &writing, REEF_ERR_INVALID, "not an LMDB file");
    unlink(file);
    assert_int_equal(mkdir(file, 0700), 0);
    must_not_open(f->path, &reading, REEF_ERR_INVALID, "not a regular file");
}

NO_POOL_TEST(an_lmdb_environment_of_another_program_is_invalid) {
    assert_int_equal(mkdir(f->path, 0700), 0);
    MDB_env *env = raw_open(f->path);
    mdb_env_close(env);
    must_not_open(f->path, &reading, REEF_ERR_INVALID, "no database meta");
    env = raw_open(f->path);
    raw_put(env, "other", "k", 1, "v", 1);
    mdb_env_close(env);
    must_not_open(f->path, &writing, REEF_ERR_INVALID, "no database meta");
    env = raw_open(f->path);
    raw_put(env, "meta", "k", 1, "v", 1);
    mdb_env_close(env);
    must_not_open(f->path, &writing, REEF_ERR_CORRUPT, "its format version is lost");
}

// ---- what a process left that died while it made a pool -----------------------------------------

static bool exists(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0;
}

// A directory as it is when the process dies just before the data file is moved to its place.
static void leave_unfinished(const pool_fixture *f, char staging[TEMP_DIR_BYTES]) {
    char file[TEMP_DIR_BYTES];
    temp_dir_join(staging, f->path, "unfinished");
    assert_int_equal(mkdir(f->path, 0700), 0);
    assert_int_equal(mkdir(staging, 0700), 0);
    temp_dir_join(file, f->path, "writer.lock");
    write_file(file, "1\n", 2);
    temp_dir_join(file, staging, "data.mdb");
    write_file(file, "half of a pool", 14);
}

NO_POOL_TEST(what_a_dead_creator_left_is_cleared) {
    char staging[TEMP_DIR_BYTES], file[TEMP_DIR_BYTES];
    leave_unfinished(f, staging);
    must_not_open(f->path, &reading, REEF_ERR_INVALID, "has no data.mdb");
    reef_store *store = pool_open(f->path, true, true);
    pool_check(store);
    reef_store_close(store);
    assert_false(exists(staging));

    // It died after the move: the pool is whole, and the next writer clears what is left.
    assert_int_equal(mkdir(staging, 0700), 0);
    temp_dir_join(file, staging, "lock.mdb");
    write_file(file, "", 0);
    reef_store_close(pool_open(f->path, false, false));
    assert_true(exists(staging)); // readers change nothing
    reef_store_close(pool_open(f->path, false, true));
    assert_false(exists(staging));
}

NO_POOL_TEST(what_is_not_of_a_creator_stays) {
    char staging[TEMP_DIR_BYTES], file[TEMP_DIR_BYTES], data[TEMP_DIR_BYTES];
    leave_unfinished(f, staging);
    temp_dir_join(data, staging, "data.mdb");
    temp_dir_join(file, staging, "letter");
    write_file(file, "dear", 4);
    must(reef_store_check_new(f->path, &why));
    must_not_open(f->path, &creating, REEF_ERR_INVALID, "choose another directory");
    assert_true(exists(file));
    assert_true(exists(data));
    temp_dir_join(file, f->path, "letter");
    write_file(file, "dear", 4);
    must_fail(reef_store_check_new(f->path, &why), REEF_ERR_INVALID, "not empty");
    must_not_open(f->path, &creating, REEF_ERR_INVALID, "not empty");
    assert_true(exists(file));
}

static void make_link(const pool_fixture *f, const char *name, const char *target) {
    char path[TEMP_DIR_BYTES];
    temp_dir_join(path, f->path, name);
    assert_int_equal(symlink(target, path), 0);
}

// It leads to a user's file: maybe the only pool.
NO_POOL_TEST(a_link_of_the_name_of_what_is_left_is_not_followed) {
    char victim[TEMP_DIR_BYTES], file[TEMP_DIR_BYTES];
    temp_dir_join(victim, f->directory, "victim");
    reef_store_close(pool_open(victim, true, true));
    reef_store_close(pool_open(f->path, true, true));
    make_link(f, "unfinished", victim);
    reef_store_close(pool_open(f->path, false, true));
    reef_store *store = pool_open(victim, false, true);
    pool_check(store);
    reef_store_close(store);
    temp_dir_join(file, f->path, "data.mdb");
    assert_int_equal(unlink(file), 0);
    temp_dir_join(file, f->path, "lock.mdb");
    assert_int_equal(unlink(file), 0);
    must_not_open(f->path, &creating, REEF_ERR_INVALID, "choose another directory");
    store = pool_open(victim, false, false);
    pool_check(store);
    reef_store_close(store);
}

// Moved there by hand, and in use.
NO_POOL_TEST(a_pool_of_the_name_of_what_is_left_stays_while_it_is_written) {
    char other[TEMP_DIR_BYTES], inner[TEMP_DIR_BYTES];
    temp_dir_join(other, f->directory, "other");
    temp_dir_join(inner, f->path, "unfinished");
    reef_store_close(pool_open(f->path, true, true));
    reef_store_close(pool_open(other, true, true));
    assert_int_equal(rename(other, inner), 0);
    reef_store *store = pool_open(inner, false, true);
    reef_store_close(pool_open(f->path, false, true));
    pool_check(store);
    reef_store_close(store);
    reef_store_close(pool_open(inner, false, false));
}

NO_POOL_TEST(no_pool_is_made_inside_a_pool) {
    char inner[TEMP_DIR_BYTES], link[TEMP_DIR_BYTES], empty[TEMP_DIR_BYTES];
    reef_store_close(pool_open(f->path, true, true));
    temp_dir_join(inner, f->path, "unfinished");
    must_not_open(inner, &creating, REEF_ERR_INVALID, "the directory above it is a pool");
    must_fail(reef_store_check_new(inner, &why), REEF_ERR_INVALID, "above it is a pool");
    must_fail(reef_store_check_output(inner, &why), REEF_ERR_INVALID, "is a pool");
    assert_false(exists(inner));
    temp_dir_join(link, f->directory, "link");
    temp_dir_join(empty, f->path, "empty");
    assert_int_equal(mkdir(empty, 0700), 0);
    assert_int_equal(symlink(empty, link), 0);
    must_not_open(link, &creating, REEF_ERR_INVALID, "the directory above it is a pool");
    assert_int_equal(rmdir(empty), 0);
}

// What a program prints that was started without standard output or error: into no file of the
// pool.
NO_POOL_TEST(no_file_of_a_pool_gets_a_standard_descriptor) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) close(fd);
        reef_store *store = NULL;
        int failed = reef_store_open(&store, f->path, &creating, NULL) != REEF_OK;
        char byte = 'x';
        failed |= read(STDIN_FILENO, &byte, 1) != -1 || errno != EBADF;
        failed |= write(STDOUT_FILENO, &byte, 1) != -1 || errno != EBADF;
        failed |= write(STDERR_FILENO, &byte, 1) != -1 || errno != EBADF;
        reef_store_close(store);
        _exit(failed);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    reef_store *store = pool_open(f->path, false, true);
    pool_check(store);
    reef_store_close(store);
}

NO_POOL_TEST(whether_a_pool_can_be_made_is_known_before) {
    char deeper[TEMP_DIR_BYTES];
    must(reef_store_check_new(f->path, &why));
    temp_dir_join(deeper, f->path, "deeper");
    must_fail(reef_store_check_new(deeper, &why), REEF_ERR_NOT_FOUND, "No such file");
    write_file(f->path, "", 0);
    must_fail(reef_store_check_new(deeper, &why), REEF_ERR_NOT_FOUND, "Not a directory");
}

// Another user who may write to the directory could have us write to any file of ours.
NO_POOL_TEST(files_of_a_pool_that_are_links_are_refused) {
    char precious[TEMP_DIR_BYTES], file[TEMP_DIR_BYTES];
    struct stat info;
    temp_dir_join(precious, f->directory, "precious");
    write_file(precious, "precious", 8);
    assert_int_equal(mkdir(f->path, 0700), 0);
    make_link(f, "writer.lock", precious);
    must_not_open(f->path, &creating, REEF_ERR_INVALID, "is a link");
    temp_dir_join(file, f->path, "writer.lock");
    (void)unlink(file);
    (void)rmdir(f->path);
    reef_store_close(pool_open(f->path, true, true));
    assert_int_equal(unlink(file), 0);
    make_link(f, "writer.lock", precious);
    must_not_open(f->path, &writing, REEF_ERR_INVALID, "is a link");
    assert_int_equal(unlink(file), 0);
    assert_int_equal(mkfifo(file, 0600), 0);
    must_not_open(f->path, &writing, REEF_ERR_INVALID, "not a regular file");
    assert_int_equal(unlink(file), 0);
    temp_dir_join(file, f->path, "lock.mdb");
    assert_int_equal(unlink(file), 0);
    make_link(f, "lock.mdb", precious);
    must_not_open(f->path, &reading, REEF_ERR_INVALID, "is a link");
    must_not_open(f->path, &writing, REEF_ERR_INVALID, "is a link");
    assert_int_equal(stat(precious, &info), 0);
    assert_int_equal(info.st_size, 8);
}

// LMDB knows of no reader there, and the writer would use its pages again.
NO_POOL_TEST(behind_a_read_only_mount_a_pool_is_not_read_while_it_is_written) {
    char view[TEMP_DIR_BYTES];
    reef_store_close(pool_open(f->path, true, true));
    temp_dir_join(view, f->directory, "view");
    assert_int_equal(mkdir(view, 0700), 0);
    if (mount(f->path, view, NULL, MS_BIND, NULL) != 0) {
        print_message("skipped: nothing can be mounted here (%s)\n", strerror(errno));
        skip();
    }
    int code = mount(NULL, view, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL);
    pid_t child = fork(); // another process: in this one the two would share an environment
    if (child == 0) {
        reef_store *store = NULL;
        _exit(reef_store_open(&store, f->path, &writing, NULL) == REEF_OK && pause() ? 0 : 1);
    }
    reef_store *store = NULL;
    reef_status status = REEF_OK;
    for (int i = 0; i < 1000 && status != REEF_ERR_BUSY; i++) { // until it has the lock
        usleep(10000);
        status = reef_store_open(&store, view, &reading, &why);
        if (status == REEF_OK) reef_store_close(store);
    }
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
    reef_status after = reef_store_open(&store, view, &reading, NULL);
    reef_store_close(store);
    (void)umount(view);
    assert_int_equal(code, 0);
    assert_int_equal(status, REEF_ERR_BUSY);
    assert_non_null(strstr(why.message, "read-only mount"));
    assert_int_equal(after, REEF_OK);
}

NO_POOL_TEST(a_pool_of_the_name_of_what_is_left_stays) {
    char inner[TEMP_DIR_BYTES];
    temp_dir_join(inner, f->path, "unfinished");
    assert_int_equal(mkdir(f->path, 0700), 0);
    reef_store_close(pool_open(inner, true, true));
    must_fail(reef_store_check_new(f->path, &why), REEF_ERR_INVALID, "not empty");
    must_not_open(f->path, &creating, REEF_ERR_INVALID, "not empty");
    reef_store *store = pool_open(inner, false, true);
    pool_check(store);
    reef_store_close(store);
}

// ---- another version ----------------------------------------------------------------------------

NO_POOL_TEST(another_format_is_refused_with_both_numbers) {
    reef_store_close(pool_open(f->path, true, true));
    put_format(f->path, 0, true);
    must_not_open(f->path, &reading, REEF_ERR_VERSION, "has format 0, this program reads format 7");
    put_format(f->path, 8, true);
    must_not_open(f->path, &reading, REEF_ERR_VERSION, "has format 8, this program reads format 7");
    must_not_open(f->path, &writing, REEF_ERR_VERSION, f->path);
    put_format(f->path, 9, false);
    must_not_open(f->path, &reading, REEF_ERR_CORRUPT, "meta (name format)");
    put_format(f->path, REEF_FORMAT_VERSION, true);
    reef_store *store = pool_open(f->path, false, true);
    pool_check(store);
    reef_store_close(store);
}

static void drop_database(const char *path, const char *name) {
    MDB_env *env = raw_open(path);
    MDB_txn *txn = NULL;
    MDB_dbi dbi;
    assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, name, 0, &dbi), 0);
    assert_int_equal(mdb_drop(txn, dbi, 1), 0);
    assert_int_equal(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
}

// Development versions had fewer databases at first.
NO_POOL_TEST(a_pool_of_a_development_version_says_which_commit_reads_it) {
    static const char *const LACKED[] = {NULL, "visits", "memory"};
    reef_store_close(pool_open(f->path, true, true));
    for (uint32_t version = 3; version > 0; version--) {
        char text[80];
        if (LACKED[3 - version] != NULL) drop_database(f->path, LACKED[3 - version]);
        put_format(f->path, version, true);
        snprintf(text, sizeof(text), "has format %u, of a development version", version);
        must_not_open(f->path, &reading, REEF_ERR_VERSION, text);
        must_not_open(f->path, &writing, REEF_ERR_VERSION, "commit eef11647 reads it");
    }
    put_format(f->path, REEF_FORMAT_VERSION, true);
    must_not_open(f->path, &reading, REEF_ERR_CORRUPT, "database memory is missing");
}

NO_POOL_TEST(another_lmdb_version_is_refused) {
    reef_store_close(pool_open(f->path, true, true));
    data_bytes file = data_file_load(f->path);
    file.data[20] = 9;
    data_file_save(f->path, &file, file.bytes);
    must_not_open(f->path, &reading, REEF_ERR_CORRUPT,
                  "the first meta page"); // the other has another one
    file.data[4096 + 20] = 9;
    data_file_save(f->path, &file, file.bytes);
    must_not_open(f->path, &reading, REEF_ERR_VERSION, "LMDB format 9");
    free(file.data);
}

static void make_pool(const char *path, uint32_t records);

enum { PAGE = 4096, MAIN = 88 };

// Where the meta page of the last transaction is.
static size_t newest_meta(const data_bytes *file) {
    return reef_get_le64(file->data + PAGE + 144) > reef_get_le64(file->data + 144) ? PAGE : 0;
}

// They say how LMDB compares keys: with another order it finds nothing where something is.
NO_POOL_TEST(a_tree_with_other_flags_is_corrupt) {
    enum { FREE = 40, FLAGS = 4 };
    make_pool(f->path, 20);
    data_bytes file = data_file_load(f->path);
    const size_t newest = newest_meta(&file);
    size_t list = PAGE * (size_t)reef_get_le64(file.data + newest + MAIN + 40);
    size_t flags = data_file_find(&file, list, "flags", 5); // its name; the tree is behind it
    assert_true(flags < list + PAGE);
    const size_t places[] = {newest + MAIN + FLAGS, newest + FREE + FLAGS, flags + 5 + FLAGS};
    for (size_t i = 0; i < 3; i++)
        for (int bit = 0; bit < 16; bit++) {
            size_t at = places[i] + (size_t)bit / 8;
            file.data[at] ^= (uint8_t)(1 << bit % 8);
            data_file_save(f->path, &file, file.bytes);
            must_not_open(f->path, bit % 2 ? &reading : &writing, REEF_ERR_CORRUPT,
                          i < 2 ? "the newest meta page is damaged"
                                : "what the list of databases says of flags is damaged");
            file.data[at] ^= (uint8_t)(1 << bit % 8);
        }
    data_file_replace(f->path, &file);
    reef_store_close(pool_open(f->path, false, true));
}

// A list that leads elsewhere lists nothing of ours; that of the commit before still does.
NO_POOL_TEST(a_lost_list_of_databases_is_corrupt_not_another_programs) {
    make_pool(f->path, 20);
    data_bytes file = data_file_load(f->path);
    const size_t newest = newest_meta(&file);
    size_t list = PAGE * (size_t)reef_get_le64(file.data + newest + MAIN + 40);
    size_t meta = data_file_find(&file, list, "meta", 4); // its name; the tree is behind it
    assert_true(meta < list + PAGE);
    memcpy(file.data + newest + MAIN + 40, file.data + meta + 4 + 40, 8); // its root
    data_file_save(f->path, &file, file.bytes);
    must_not_open(f->path, &reading, REEF_ERR_CORRUPT, "the list of databases, or what the newest");
    memcpy(file.data + newest + MAIN + 40, &(uint64_t){UINT64_MAX}, 8); // none
    data_file_replace(f->path, &file);
    must_not_open(f->path, &writing, REEF_ERR_CORRUPT, "the list of databases, or what the newest");
}

// One changed name also hides others, since LMDB searches the list by halves.
NO_POOL_TEST(a_database_with_a_damaged_name_is_corrupt) {
    make_pool(f->path, 20);
    data_bytes file = data_file_load(f->path);
    const size_t newest = newest_meta(&file);
    size_t list = PAGE * (size_t)reef_get_le64(file.data + newest + MAIN + 40);
    for (reef_db db = 0; db < REEF_DB_COUNT; db++) {
        const char *name = reef_db_name(db);
        size_t at = data_file_find(&file, list, name, strlen(name));
        assert_true(at < list + PAGE);
        for (size_t bit = 0; bit < 8 * strlen(name); bit++) {
            reef_store *store = NULL;
            file.data[at + bit / 8] ^= (uint8_t)(1 << bit % 8);
            data_file_save(f->path, &file, file.bytes);
            reef_status status = reef_store_open(&store, f->path, &reading, &why);
            // Without its meta a file could be any program's.
            bool named =
                status == REEF_ERR_CORRUPT || (db == REEF_DB_META && status == REEF_ERR_INVALID);
            if (!named)
                fail_msg("%s, bit %zu: %s: %s", name, bit, reef_status_text(status), why.message);
            file.data[at + bit / 8] ^= (uint8_t)(1 << bit % 8);
        }
    }
    data_file_replace(f->path, &file);
    reef_store_close(pool_open(f->path, false, true));
}

// ---- the last commit ----------------------------------------------------------------------------

static const reef_key commit_key = {.db = REEF_DB_META, .name = REEF_COMMIT_NAME};

NO_POOL_TEST(a_damaged_record_of_the_last_commit_is_corrupt) {
    static const uint8_t NAME[] = "commit";
    reef_check_report report;
    make_pool(f->path, 2);
    data_bytes file = data_file_load(f->path);
    // The record lies behind its key, in meta and in older copies of its page.
    for (size_t at = 0; (at = data_file_find(&file, at, NAME, sizeof(NAME))) != SIZE_MAX; at++)
        if (at + 7 + 60 < file.bytes && memcmp(file.data + at + 7, "REEF", 4) == 0)
            file.data[at + 7 + 56] ^= 4; // its step
    data_file_save(f->path, &file, file.bytes);
    must_not_open(f->path, &reading, REEF_ERR_CORRUPT, "meta (name commit): the record's checksum");
    must_not_open(f->path, &writing, REEF_ERR_CORRUPT, f->path);
    // The check reads it all the same.
    must(reef_store_verify(f->path, NULL, &report, &why));
    assert_true(report.damaged > 0 && report.records > 6);
    free(file.data);
}

NO_POOL_TEST(a_record_of_the_last_commit_that_is_too_short_is_corrupt) {
    reef_key_bytes encoded;
    uint8_t record[REEF_RECORD_HEADER_BYTES + 8] = {0}, content[REEF_HASH_BYTES];
    make_pool(f->path, 2);
    must(reef_key_encode(&commit_key, &encoded, &why));
    reef_record_content_hash(REEF_DB_META, &encoded, REEF_BYTES, record + REEF_RECORD_HEADER_BYTES,
                             8, content);
    reef_record_header_write(record, &commit_key, &encoded, REEF_BYTES, 3, 8, content);
    MDB_env *env = raw_open(f->path);
    raw_put(env, "meta", encoded.data, encoded.bytes, record, sizeof(record));
    mdb_env_close(env);
    must_not_open(f->path, &reading, REEF_ERR_CORRUPT,
                  "meta (name commit) has 8 bytes instead of 56");
}

// ---- creating -----------------------------------------------------------------------------------

NO_POOL_TEST(create_accepts_only_nothing_or_an_empty_directory) {
    struct stat info;
    char file[TEMP_DIR_BYTES];
    assert_int_equal(mkdir(f->path, 0755), 0);
    reef_store_close(
        pool_open(f->path, true, false)); // an empty one is fine; without keeping the lock
    must_not_open(f->path, &creating, REEF_ERR_INVALID, f->path);
    must_not_open(f->path, &creating, REEF_ERR_INVALID, "not empty");
    reef_store *store = pool_open(f->path, false, true);
    assert_string_equal(reef_store_path(store), f->path);
    pool_check(store);
    must_not_open(f->path, &creating, REEF_ERR_INVALID,
                  "not empty"); // nor does it harm an open one
    reef_store_close(store);

    temp_dir_join(file, f->directory, "second");
    reef_store_close(pool_open(file, true, true));
    assert_int_equal(stat(file, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    data_file_path(f->path, file);
    assert_int_equal(stat(f->path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
}

NO_POOL_TEST(the_writer_lock_holds_the_pid_while_it_is_held) {
    char file[TEMP_DIR_BYTES];
    char text[64] = "";
    char expected[64];
    reef_store *store = pool_open(f->path, true, true);
    temp_dir_join(file, f->path, "writer.lock");
    int fd = open(file, O_RDONLY);
    ssize_t length = read(fd, text, sizeof(text) - 1);
    snprintf(expected, sizeof(expected), "%ld\n", (long)getpid());
    assert_string_equal(text, expected);
    assert_int_equal(length, strlen(expected));
    reef_store_close(store);
    assert_int_equal(pread(fd, text, sizeof(text), 0), 0);
    close(fd);
}

// ---- truncated and broken files -----------------------------------------------------------------

static void make_pool(const char *path, uint32_t records) {
    reef_store *store = pool_open(path, true, true);
    uint8_t payload[9000];
    for (uint32_t round = 0; round < 3; round++) {
        reef_txn *txn = pool_begin(store, REEF_TXN_WRITE);
        if (round == 0) pool_open_generation(txn, 0);
        for (uint32_t i = 0; i < records; i++) {
            fill(payload, sizeof(payload), 100 * round + i);
            pool_put(txn, &(reef_key){.db = REEF_DB_EXPERTS, .block = i}, payload, sizeof(payload));
            pool_put(txn, &(reef_key){.db = REEF_DB_FLAGS, .block = i}, payload, 200);
            pool_put(txn, &(reef_key){.db = REEF_DB_MOMENTS, .block = i}, payload, 1000);
        }
        pool_commit(txn, round);
    }
    pool_check(store);
    reef_store_close(store);
}

NO_POOL_TEST(a_truncated_file_is_corrupt_at_every_length) {
    make_pool(f->path, 20);
    data_bytes file = data_file_load(f->path);
    for (size_t pages = file.bytes / 4096; pages-- > 2;) {
        data_file_save(f->path, &file, 4096 * pages + 77);
        must_not_open(f->path, pages % 2 ? &reading : &writing, REEF_ERR_CORRUPT, "pool");
    }
    data_file_save(f->path, &file, file.bytes - 1);
    must_not_open(f->path, &reading, REEF_ERR_CORRUPT, "is truncated");
    data_file_save(f->path, &file, 4096);
    must_not_open(f->path, &reading, REEF_ERR_CORRUPT, "second meta page");
    data_file_save(f->path, &file, file.bytes);
    reef_store *store = pool_open(f->path, false, true); // whole again
    pool_check(store);
    reef_store_close(store);
    free(file.data);
}

// LMDB never writes pages that a transaction took and gave back, so the file may end before its
// last.
NO_POOL_TEST(unwritten_free_pages_at_the_end_are_no_truncation) {
    enum { BYTES = 1 << 20 };
    uint8_t *payload = room(BYTES);
    MDB_envinfo info;
    make_pool(f->path, 10);
    reef_store *store = pool_open(f->path, false, true);
    reef_txn *txn = pool_begin(store, REEF_TXN_WRITE);
    pool_put(txn, &(reef_key){.db = REEF_DB_MOMENTS, .block = 100}, payload, BYTES);
    must(reef_record_delete(txn, &(reef_key){.db = REEF_DB_MOMENTS, .block = 100}, &why));
    pool_commit(txn, 10);
    reef_store_close(store);

    MDB_env *env = raw_open(f->path);
    assert_int_equal(mdb_env_info(env, &info), 0);
    mdb_env_close(env);
    data_bytes file = data_file_load(f->path);
    assert_true(file.bytes < info.me_last_pgno * 4096); // it does end early
    store = pool_open(f->path, false, true);
    pool_check(store);
    reef_store_close(store);
    data_file_save(f->path, &file, file.bytes / 2); // without pages that are in use
    must_not_open(f->path, &reading, REEF_ERR_CORRUPT, "is truncated");
    free(file.data);
}

static reef_status only_open(const char *path,
                             const reef_check_options *options,
                             reef_check_report *report,
                             reef_error *err) {
    (void)options, (void)report;
    reef_store *store = NULL;
    reef_status status = reef_store_open(&store, path, &reading, err);
    reef_store_close(store);
    return status;
}

NO_POOL_TEST(no_broken_page_makes_opening_raise_a_signal) {
    enum { ROUNDS = 300 };
    uint64_t random = 5;
    int refused = 0;
    const reef_check_options plain = {0};
    make_pool(f->path, 1); // few pages, so that opening reads many of them
    data_bytes file = data_file_load(f->path);
    data_bytes broken = {.data = malloc(file.bytes), .bytes = file.bytes};
    assert_non_null(broken.data);
    for (int round = 0; round < ROUNDS; round++) {
        reef_check_report report;
        memcpy(broken.data, file.data, file.bytes);
        // One page: its header, a stretch of it, or all of it. Often the meta pages.
        size_t page = (size_t)draw_int(&random, 0, 3) == 0
                          ? (size_t)draw_int(&random, 0, 1)
                          : (size_t)draw_int(&random, 2, (int)(file.bytes / 4096) - 1);
        size_t from = draw_int(&random, 0, 1) ? 0 : (size_t)draw_int(&random, 0, 4000);
        size_t count = draw_int(&random, 0, 1) ? (size_t)draw_int(&random, 1, 20) : 4096 - from;
        if (count > 4096 - from) count = 4096 - from;
        fill(broken.data + 4096 * page + from, count, draw_bits(&random));
        data_file_save(f->path, &broken, broken.bytes);
        reef_status status = reef_verify_in_child(f->path, only_open, &plain, &report, &why);
        if (status == REEF_OK) continue; // a page that opening does not read
        refused++;
        if (strstr(why.message, "ended") != NULL) fail_msg("round %d: %s", round, why.message);
    }
    assert_true(refused > ROUNDS / 5);
    free(broken.data);
    free(file.data);
}

RUN_TESTS
