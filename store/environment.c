// One LMDB environment per pool and process, shared by every open store.
//
// LMDB forbids opening an environment twice in a process: closing one would clear the reader slots
// and drop the POSIX locks of the other. So open pools stand in a list, found by the inode of the
// data file, and stores count references. What always holds: at most one store of the list has the
// writer lock; at most one write transaction runs; the map is changed or reopened only while no
// transaction of this process is active.
//
//                    commit fails                     begin, nobody active
//   open  ------------------------------->  broken  ------------------------>  open
//     |   put finds the map full                         begin(write), nobody active
//     +---------------------------------->  map_full  ----------------------->  open, twice the map
#define _XOPEN_SOURCE 700 // for realpath, which POSIX has since 2008 and glibc hides without this
#include "store_internal.h"

#include "pool_file.h"
#include "record.h"
#include "reef_pool_check.h"
#include "stable_map.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAP_BYTES_DEFAULT (UINT64_C(64) << 30)
#define MAP_BYTES_MODEST (UINT64_C(1) << 30) // the smallest size that is tried
#define MAP_BYTES_MIN (UINT64_C(1) << 20)
#define BEGIN_ATTEMPTS_MAX 1000 // of one millisecond each, while others stand in the way

struct reef_environment {
    reef_environment *next;
    pid_t pid; // an entry that came through fork() is not ours
    dev_t device;
    ino_t inode;
    char *path;
    unsigned references; // protected by the list's mutex, like writer_fd
    int writer_fd;       // -1: no store of this process may write
    bool no_sync;        // as the first store wished
    MDB_env *lmdb;       // NULL only after a reopening failed; changes only while active == 0
    MDB_dbi dbis[REEF_DB_COUNT];
    pthread_mutex_t mutex; // protects all below
    uint32_t active;       // transactions of this process
    bool writing;          // one of them is the write transaction
    bool broken, map_full;
    uint64_t map_bytes;
    uint64_t read_count, read_ns_max; // read transactions that have ended
    reef_stable_map lent;
};

static pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;
static reef_environment *list; // protected by list_mutex

reef_status reef_environment_fail(const reef_environment *environment,
                                  int code,
                                  uint64_t bytes_needed,
                                  const char *doing,
                                  reef_error *err) {
    return reef_lmdb_fail(environment->path, code, bytes_needed, doing, err);
}

// ---- opening LMDB -------------------------------------------------------------------------------

static volatile sig_atomic_t lmdb_aborted;

// LMDB would print, and abort after this has returned; a library does not print.
static void on_lmdb_assert(MDB_env *lmdb, const char *message) {
    (void)lmdb;
    (void)message;
    lmdb_aborted = 1;
    abort();
}

bool reef_store_lmdb_aborted(void) {
    return lmdb_aborted != 0;
}

static reef_status databases_open(reef_environment *environment, reef_error *err) {
    MDB_txn *txn = NULL;
    const char *path = environment->path;
    int code = mdb_txn_begin(environment->lmdb, NULL, MDB_RDONLY, &txn);
    if (code != 0) return reef_environment_fail(environment, code, 0, "begin a transaction", err);
    reef_status status = REEF_OK;
    // `meta` is the first: its format says whether the others are as here. A read transaction
    // suffices, since reef init has made all of them.
    for (reef_db db = 0; status == REEF_OK && db < REEF_DB_COUNT; db++) {
        MDB_dbi *dbi = &environment->dbis[db];
        code = mdb_dbi_open(txn, reef_db_name(db), 0, dbi);
        if (code == MDB_NOTFOUND) // its name was damaged, or one that hides it
            status = reef_fail(err, REEF_ERR_CORRUPT, "pool %s: database %s is missing", path,
                               reef_db_name(db));
        else if (code != 0)
            status = reef_environment_fail(environment, code, 0, "open the databases", err);
        else if (db == REEF_DB_META)
            status = reef_format_check(path, txn, *dbi, err);
    }
    if (status != REEF_OK) {
        mdb_txn_abort(txn);
        return status;
    }
    code = mdb_txn_commit(txn); // an abort would close the handles again
    return code == 0 ? REEF_OK
                     : reef_environment_fail(environment, code, 0, "open the databases", err);
}

static void lmdb_close(reef_environment *environment) {
    mdb_env_close(environment->lmdb); // accepts NULL
    environment->lmdb = NULL;
}

static int lmdb_map(reef_environment *environment, bool read_only) {
    int code = mdb_env_create(&environment->lmdb);
    if (code != 0) return code;
    mdb_env_set_assert(environment->lmdb, on_lmdb_assert);
    code = mdb_env_set_maxdbs(environment->lmdb, REEF_DB_COUNT);
    if (code == 0) code = mdb_env_set_maxreaders(environment->lmdb, REEF_READERS_MAX);
    if (code == 0) code = mdb_env_set_mapsize(environment->lmdb, environment->map_bytes);
    // Readers open for writing as well: a writer of this process may come to share the environment.
    unsigned flags =
        MDB_NOTLS | (read_only ? MDB_RDONLY : 0) | (environment->no_sync ? MDB_NOSYNC : 0);
    if (code == 0) code = mdb_env_open(environment->lmdb, environment->path, flags, 0600);
    return code;
}

static reef_status lmdb_open(reef_environment *environment, reef_error *err) {
    bool read_only = false;
    reef_status status = reef_pool_lock_reserve(environment->path, &read_only, err);
    if (status != REEF_OK) return status;
    int code = lmdb_map(environment, read_only);
    // A reader without the right to write the lock file opens without registering.
    if (code == EACCES || code == EROFS) {
        lmdb_close(environment);
        read_only = true;
        code = lmdb_map(environment, true);
    }
    // Little address space (ulimit -v, or a tool such as valgrind, which says EINVAL): take less of
    // it.
    while ((code == ENOMEM || code == EINVAL) && environment->map_bytes > MAP_BYTES_MODEST) {
        lmdb_close(environment);
        environment->map_bytes /= 2;
        code = lmdb_map(environment, read_only);
    }
    if (code != 0) {
        lmdb_close(environment);
        if (code == ENOMEM)
            return reef_fail(err, REEF_ERR_NO_MEMORY,
                             "no memory to map pool %s into %" PRIu64 " bytes of address space",
                             environment->path, environment->map_bytes);
        return reef_environment_fail(environment, code, 0, "open the data", err);
    }
    // Unregistered readers are not seen by a writer, which would reuse their pages.
    if (read_only && (status = reef_writer_absent(environment->path, err)) != REEF_OK) {
        lmdb_close(environment);
        return status;
    }
    MDB_envinfo info;
    if (mdb_env_info(environment->lmdb, &info) == 0) environment->map_bytes = info.me_mapsize;
    mdb_reader_check(environment->lmdb, &(int){0}); // slots of processes that died
    status = databases_open(environment, err);
    if (status != REEF_OK) lmdb_close(environment);
    return status;
}

// ---- the list -----------------------------------------------------------------------------------

static void environment_free(reef_environment *environment) {
    if (environment == NULL) return;
    lmdb_close(environment);
    reef_stable_map_release(&environment->lent);
    reef_writer_unlock(environment->writer_fd);
    pthread_mutex_destroy(&environment->mutex);
    free(environment->path);
    free(environment);
}

static reef_status environment_new(reef_environment **out,
                                   const char *path,
                                   uint64_t map_bytes,
                                   reef_error *err) {
    *out = calloc(1, sizeof(**out));
    if (*out == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "out of memory while opening pool %s", path);
    (*out)->pid = getpid();
    (*out)->writer_fd = -1;
    pthread_mutex_init(&(*out)->mutex, NULL);
    if (map_bytes == 0) map_bytes = MAP_BYTES_DEFAULT;
    if (map_bytes < MAP_BYTES_MIN) map_bytes = MAP_BYTES_MIN;
    const uint64_t granule = 65536; // LMDB wants whole pages, of whatever size they are
    (*out)->map_bytes = (map_bytes + granule - 1) / granule * granule;
    // The absolute path: the environment may be reopened after the process has changed directory.
    (*out)->path = realpath(path, NULL);
    if ((*out)->path != NULL) return REEF_OK;
    int code = errno;
    environment_free(*out);
    *out = NULL;
    return reef_lmdb_fail(path, code, 0, "resolve the path", err);
}

static reef_environment *list_find(dev_t device, ino_t inode) {
    for (reef_environment *e = list; e != NULL; e = e->next)
        if (e->pid == getpid() && e->device == device && e->inode == inode) return e;
    return NULL;
}

static void list_remove(const reef_environment *environment) {
    for (reef_environment **p = &list; *p != NULL; p = &(*p)->next) {
        if (*p == environment) {
            *p = environment->next;
            return;
        }
    }
}

static reef_status list_add(reef_environment *environment, reef_error *err) {
    reef_status status =
        reef_pool_file_identify(environment->path, &environment->device, &environment->inode, err);
    if (status != REEF_OK) return status;
    environment->references = 1;
    environment->next = list;
    list = environment;
    return REEF_OK;
}

// Called with the list locked, as is the next. `writer_fd` is the lock if it is held already, else
// -1; it becomes the environment's.
static reef_status writer_take(reef_environment *environment, int *writer_fd, reef_error *err) {
    if (*writer_fd < 0) return reef_writer_lock(environment->path, &environment->writer_fd, err);
    environment->writer_fd = *writer_fd;
    *writer_fd = -1;
    return REEF_OK;
}

static reef_status share(reef_environment *environment,
                         bool write,
                         int *writer_fd,
                         reef_error *err) {
    if (write && environment->writer_fd >= 0)
        return reef_writer_busy(environment->path, (long)getpid(), err);
    reef_status status = write ? writer_take(environment, writer_fd, err) : REEF_OK;
    if (status == REEF_OK) environment->references++;
    return status;
}

static reef_status open_existing(reef_environment **out,
                                 const char *path,
                                 const reef_environment_options *options,
                                 int *writer_fd,
                                 reef_error *err) {
    dev_t device;
    ino_t inode;
    reef_environment *environment = NULL;
    reef_status status = reef_pool_file_identify(path, &device, &inode, err);
    if (status != REEF_OK) return status;
    // LMDB must not map one file twice in a process (fcntl locks would be lost), so an environment
    // is shared by inode.
    *out = list_find(device, inode);
    if (*out != NULL) return share(*out, options->write, writer_fd, err);

    // Refused before LMDB opens it: LMDB would create what is missing.
    status = reef_pool_file_check(path, err);
    if (status != REEF_OK) return status;
    status = environment_new(&environment, path, options->map_bytes, err);
    if (status != REEF_OK) return status;
    environment->no_sync = options->no_sync;
    // The writer's lock comes before the map: a second writer must not even sweep.
    if (options->write) status = writer_take(environment, writer_fd, err);
    // Leftovers of a process that died while making a file.
    if (status == REEF_OK && options->write) reef_pool_staging_sweep(environment->path);
    if (status == REEF_OK) status = lmdb_open(environment, err);
    if (status == REEF_OK && !options->damaged)
        status = reef_last_commit_check(environment->path, environment->lmdb,
                                        environment->dbis[REEF_DB_META], err);
    // Into the list last, so that nobody shares a half-opened one.
    if (status == REEF_OK) status = list_add(environment, err);
    if (status == REEF_OK) {
        *out = environment;
    } else {
        environment_free(environment);
    }
    return status;
}

// Around fork() no other thread holds the list: a child that opens a pool would wait for it for
// ever.
static void before_fork(void) {
    pthread_mutex_lock(&list_mutex);
}

static void after_fork(void) {
    pthread_mutex_unlock(&list_mutex);
}

// The child forgets, without touching their files, what the parent has open.
static void in_child(void) {
    for (reef_environment *e = list; e != NULL; e = e->next) {
        // Only the descriptor: the lock is the open file's, and stays with the parent's copy of it.
        if (e->writer_fd >= 0) close(e->writer_fd);
        e->writer_fd = -1;
    }
    list = NULL; // leaked on purpose: LMDB must not be closed by a process that did not open it
    pthread_mutex_unlock(&list_mutex);
}

static void heed_forks(void) {
    (void)pthread_atfork(before_fork, after_fork, in_child); // without memory for it: not heeded
}

reef_status reef_environment_open(reef_environment **out,
                                  const char *path,
                                  const reef_environment_options *options,
                                  reef_error *err) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int writer_fd = -1;
    reef_environment *environment = NULL;
    *out = NULL;
    (void)pthread_once(&once, heed_forks);
    if (options->create) { // before the list is locked: no write transaction runs under its mutex
        reef_status status = reef_pool_make(path, reef_pool_fill_empty, NULL, &writer_fd, err);
        if (status != REEF_OK) return status;
    }
    pthread_mutex_lock(&list_mutex);
    reef_status status = open_existing(&environment, path, options, &writer_fd, err);
    pthread_mutex_unlock(&list_mutex);
    reef_writer_unlock(writer_fd); // created to be read only, or not opened after all
    if (status == REEF_OK) *out = environment;
    return status;
}

void reef_environment_close(reef_environment *environment, bool write) {
    pthread_mutex_lock(&list_mutex);
    assert(environment->references > 0 && environment->pid == getpid());
    if (write) {
        reef_writer_unlock(environment->writer_fd);
        environment->writer_fd = -1;
    }
    // Handles of one pool share the map, and the last one unmaps it.
    if (--environment->references == 0) {
        assert(environment->active == 0); // a transaction outlived its store
        list_remove(environment);
        environment_free(environment);
    }
    pthread_mutex_unlock(&list_mutex);
}

const char *reef_environment_path(const reef_environment *environment) {
    return environment->path;
}

MDB_env *reef_environment_lmdb(const reef_environment *environment) {
    return environment->lmdb;
}

MDB_dbi reef_environment_dbi(const reef_environment *environment, reef_db db) {
    return environment->dbis[db];
}

const uint8_t *reef_environment_lend(reef_environment *environment,
                                     const void *mapped,
                                     size_t bytes) {
    MDB_stat stat;
    mdb_filehandle_t file;
    uint64_t number; // of its page, which begins with it
    if (mdb_env_stat(environment->lmdb, &stat) != 0 ||
        mdb_env_get_fd(environment->lmdb, &file) != 0)
        return NULL;
    size_t within = (uintptr_t)mapped % stat.ms_psize;
    const uint8_t *page = (const uint8_t *)mapped - within;
    memcpy(&number, page, sizeof(number));
    pthread_mutex_lock(&environment->mutex);
    const uint8_t *lent =
        reef_stable_map_find(&environment->lent, file, number * stat.ms_psize, within + bytes);
    pthread_mutex_unlock(&environment->mutex);
    return lent != NULL && memcmp(lent, page, within) == 0 ? lent + within : NULL;
}

// ---- transactions -------------------------------------------------------------------------------

static reef_status reopen(reef_environment *environment, reef_error *err) {
    lmdb_close(environment);
    reef_status status = reef_pool_file_check(environment->path, err);
    if (status == REEF_OK) status = lmdb_open(environment, err);
    environment->broken = status != REEF_OK;
    return status;
}

// Twice the map when less than a quarter of it is free: address space costs nothing, and a write
// transaction that runs out of it is lost.
static reef_status grow_if_needed(reef_environment *environment, reef_error *err) {
    MDB_envinfo info;
    if (mdb_env_info(environment->lmdb, &info) != 0) return REEF_OK;
    uint64_t used_bytes = reef_lmdb_used_bytes(environment->lmdb);
    uint64_t map_bytes = info.me_mapsize;
    if (!environment->map_full && used_bytes <= map_bytes - map_bytes / 4) return REEF_OK;
    environment->map_full = false;
    environment->map_bytes = 2 * map_bytes;
    if (mdb_env_set_mapsize(environment->lmdb, environment->map_bytes) == 0) return REEF_OK;
    // LMDB has released the old map by now; without more address space, take the same size again.
    environment->map_bytes = map_bytes;
    return reopen(environment, err);
}

typedef enum begin_outcome { BEGUN, AGAIN, FAILED } begin_outcome;

// Put the environment in order and count the transaction in.
static begin_outcome enter(reef_environment *environment, bool write, reef_error *err) {
    begin_outcome outcome = BEGUN;
    reef_status status = REEF_OK;
    pthread_mutex_lock(&environment->mutex);
    // LMDB would wait for its own thread for ever.
    if (write && environment->writing) {
        status = reef_fail(err, REEF_ERR_BUSY, "pool %s: a write transaction is already running",
                           environment->path);
        // A new map needs all read transactions of this process to end first.
    } else if (environment->active > 0 &&
               (environment->broken || (write && environment->map_full))) {
        outcome = AGAIN;
        (void)reef_fail(
            err, REEF_ERR_BUSY,
            "pool %s must be mapped again after a commit failed or the map was full, but "
            "read transactions are still running",
            environment->path);
        // Nobody reads: this is the moment to map again or to grow.
    } else if (environment->active == 0) {
        if (environment->broken || environment->lmdb == NULL) status = reopen(environment, err);
        if (status == REEF_OK && write) status = grow_if_needed(environment, err);
    }
    if (status != REEF_OK) outcome = FAILED;
    if (outcome == BEGUN) {
        // Counted under the lock, so that no other thread remaps in between.
        environment->active++;
        if (write) environment->writing = true;
    }
    pthread_mutex_unlock(&environment->mutex);
    return outcome;
}

// Another process made the map larger. Ours can follow as soon as nobody here uses it.
static void follow_map(reef_environment *environment) {
    pthread_mutex_lock(&environment->mutex);
    if (environment->active == 0 && environment->lmdb != NULL) {
        MDB_envinfo info;
        // A size of zero takes that of the file; a failure leaves no map at all.
        if (mdb_env_set_mapsize(environment->lmdb, 0) != 0)
            environment->broken = true;
        else if (mdb_env_info(environment->lmdb, &info) == 0)
            environment->map_bytes = info.me_mapsize;
    }
    pthread_mutex_unlock(&environment->mutex);
}

// LMDB begins a read in two steps: the number of the last commit, then the state in the meta page
// of that number. A reader that stands still in between for two commits gets the later state under
// the earlier number: one that the disk may not have yet, and that the next reader may not see.
// The newest page tells.
static int begin_read(MDB_env *lmdb, MDB_txn **out) {
    MDB_envinfo info;
    for (;;) {
        int code = mdb_txn_begin(lmdb, NULL, MDB_RDONLY, out);
        if (code == 0) code = mdb_env_info(lmdb, &info);
        if (code != 0 || info.me_last_txnid <= mdb_txn_id(*out) + 1) return code;
        mdb_txn_abort(*out);
    }
}

static begin_outcome begin_once(reef_environment *environment,
                                bool write,
                                MDB_txn **out,
                                reef_error *err) {
    begin_outcome outcome = enter(environment, write, err);
    if (outcome != BEGUN) return outcome;
    // A reader that was killed keeps its slot, and with it every page that was freed since, from
    // reuse. One pass over the table of slots, with a system call for each process in it: little
    // beside a commit.
    if (write) mdb_reader_check(environment->lmdb, &(int){0});
    int code =
        write ? mdb_txn_begin(environment->lmdb, NULL, 0, out) : begin_read(environment->lmdb, out);
    if (code == MDB_READERS_FULL) mdb_reader_check(environment->lmdb, &(int){0});
    if (code == 0) return BEGUN;
    (void)reef_environment_fail(environment, code, 0, "begin a transaction", err);
    if (code == MDB_PANIC) reef_environment_break(environment);
    reef_environment_end(environment, write);
    // Another process has grown the pool: this one maps as much and tries again.
    if (code == MDB_MAP_RESIZED) follow_map(environment);
    return code == MDB_MAP_RESIZED || code == MDB_READERS_FULL || code == MDB_PANIC ? AGAIN
                                                                                    : FAILED;
}

reef_status reef_environment_begin(reef_environment *environment,
                                   bool write,
                                   MDB_txn **out,
                                   reef_error *err) {
    reef_error reason = {.status = REEF_OK};
    *out = NULL;
    for (int i = 0; i < BEGIN_ATTEMPTS_MAX; i++) {
        begin_outcome outcome = begin_once(environment, write, out, &reason);
        if (outcome == BEGUN) return REEF_OK;
        if (outcome == FAILED) break;
        // Long enough for a short read to end, short beside a commit.
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return reef_fail(err, reason.status, "%s", reason.message);
}

void reef_environment_end(reef_environment *environment, bool write) {
    pthread_mutex_lock(&environment->mutex);
    assert(environment->active > 0);
    environment->active--;
    if (write) environment->writing = false;
    pthread_mutex_unlock(&environment->mutex);
}

void reef_environment_note_read(reef_environment *environment, uint64_t ns) {
    pthread_mutex_lock(&environment->mutex);
    environment->read_count++;
    if (ns > environment->read_ns_max) environment->read_ns_max = ns;
    pthread_mutex_unlock(&environment->mutex);
}

void reef_environment_read_stat(reef_environment *environment, reef_read_stat *out) {
    pthread_mutex_lock(&environment->mutex);
    *out = (reef_read_stat){.count = environment->read_count,
                            .longest_ms = (double)environment->read_ns_max / 1e6};
    pthread_mutex_unlock(&environment->mutex);
}

void reef_environment_break(reef_environment *environment) {
    pthread_mutex_lock(&environment->mutex);
    environment->broken = true;
    pthread_mutex_unlock(&environment->mutex);
}

void reef_environment_map_full(reef_environment *environment) {
    pthread_mutex_lock(&environment->mutex);
    environment->map_full = true;
    pthread_mutex_unlock(&environment->mutex);
}
