// Preloaded into `reef` and `reefd` (LD_PRELOAD): notes every change of a pool's data file, every
// sync, and every commit that LMDB has reported as done, in the file $REEF_WATCH_LOG.
//
// An event is noted when the call has returned, so what stands before an EVENT_COMMIT had happened
// when the program could tell others of the commit. A call that fails is not noted. With
// $REEF_WATCH_CLOCK every commit moves the wall clock on by as many seconds, so that minutes of
// usage grow old in a moment.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): for RTLD_NEXT.
#define _GNU_SOURCE
#include "event.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <lmdb.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define DATA_FILE "/data.mdb"
#define FILES_MAX 64
#define HEADER_BYTES 48 // of a record
#define COMMIT_BYTES 56 // of the payload of meta "commit": number first, root hash last
#define ROOT_BYTES 16

#define REAL(type, name)                                                                           \
    static type real;                                                                              \
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, name)

static int log_fd = -1;
static uint64_t named[FILES_MAX]; // files whose EVENT_NAME was written
static size_t named_count;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; // protects both, and the order of events
static long clock_step;
static _Atomic long clock_ahead; // seconds

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("REEF_WATCH_LOG");
    const char *step = getenv("REEF_WATCH_CLOCK");
    const char *ahead = getenv("REEF_WATCH_AHEAD");
    if (step != NULL) clock_step = strtol(step, NULL, 10);
    if (ahead != NULL) clock_ahead = strtol(ahead, NULL, 10);
    if (path == NULL) return;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) abort();
    log_fd = fcntl(fd, F_DUPFD_CLOEXEC, 500); // out of the way of the standard descriptors
    if (log_fd < 0) abort();
    close(fd);
}

static void note(
    event_kind kind, uint64_t file, uint64_t offset, const struct iovec *payload, int count) {
    struct iovec parts[IOV_MAX];
    event_header header = {.kind = (uint32_t)kind, .file = file, .offset = offset};
    if (count + 1 > IOV_MAX) abort();
    size_t bytes = 0;
    for (int i = 0; i < count; i++) {
        parts[i + 1] = payload[i];
        bytes += payload[i].iov_len;
    }
    header.payload_bytes = (uint32_t)bytes;
    parts[0] = (struct iovec){.iov_base = &header, .iov_len = sizeof(header)};
    // Not through the C library, where this would be seen as well.
    long done = syscall(SYS_writev, log_fd, parts, count + 1);
    if (done != (long)(sizeof(header) + bytes)) abort();
}

static void note_text(event_kind kind, uint64_t file, const char *text) {
    struct iovec part = {.iov_base = (void *)text, .iov_len = strlen(text)};
    note(kind, file, 0, &part, 1);
}

// The path of a descriptor of a pool's data file or of a directory; false for anything else.
static bool path_of(int fd, char path[PATH_MAX], struct stat *info) {
    char link[64];
    if (log_fd < 0 || fd == log_fd || fstat(fd, info) != 0) return false;
    if (!S_ISREG(info->st_mode) && !S_ISDIR(info->st_mode)) return false;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t bytes = readlink(link, path, PATH_MAX - 1);
    if (bytes < 0) return false;
    path[bytes] = '\0';
    if (S_ISDIR(info->st_mode)) return true;
    size_t suffix = strlen(DATA_FILE);
    return (size_t)bytes > suffix && strcmp(path + (size_t)bytes - suffix, DATA_FILE) == 0;
}

static void name_file(uint64_t file, const char *path) {
    for (size_t i = 0; i < named_count; i++)
        if (named[i] == file) return;
    if (named_count == FILES_MAX) abort();
    named[named_count++] = file;
    note_text(EVENT_NAME, file, path);
}

// Is it a data file? Then `mutex` is held until leave().
static bool enter(int fd, uint64_t *file) {
    char path[PATH_MAX];
    struct stat info;
    if (!path_of(fd, path, &info) || !S_ISREG(info.st_mode)) return false;
    *file = info.st_ino;
    pthread_mutex_lock(&mutex);
    name_file(*file, path);
    return true;
}

static void leave(void) {
    pthread_mutex_unlock(&mutex);
}

static void note_write(int fd, uint64_t at, const struct iovec *parts, int count, ssize_t done) {
    uint64_t file;
    if (done <= 0 || !enter(fd, &file)) return;
    struct iovec written[IOV_MAX];
    size_t left = (size_t)done;
    int used = 0;
    for (; used < count && left > 0; used++) {
        written[used] = parts[used];
        if (written[used].iov_len > left) written[used].iov_len = left;
        left -= written[used].iov_len;
    }
    int flags = fcntl(fd, F_GETFL);
    note(flags & O_DSYNC ? EVENT_WRITE_NOW : EVENT_WRITE, file, at, written, used);
    leave();
}

static uint64_t position(int fd) {
    off_t at = lseek(fd, 0, SEEK_CUR);
    return at < 0 ? 0 : (uint64_t)at;
}

// ---- writes -------------------------------------------------------------------------------------

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at) {
    REAL(__typeof__(&pwrite), "pwrite");
    ssize_t done = real(fd, data, bytes, at);
    note_write(fd, (uint64_t)at, &(struct iovec){(void *)data, bytes}, 1, done);
    return done;
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t at) {
    return pwrite(fd, data, bytes, at);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    REAL(__typeof__(&pwritev), "pwritev");
    ssize_t done = real(fd, parts, count, at);
    note_write(fd, (uint64_t)at, parts, count, done);
    return done;
}

ssize_t write(int fd, const void *data, size_t bytes) {
    REAL(__typeof__(&write), "write");
    ssize_t done = real(fd, data, bytes);
    if (done > 0 && log_fd >= 0)
        note_write(fd, position(fd) - (uint64_t)done, &(struct iovec){(void *)data, bytes}, 1,
                   done);
    return done;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(__typeof__(&writev), "writev");
    ssize_t done = real(fd, parts, count);
    if (done > 0 && log_fd >= 0) note_write(fd, position(fd) - (uint64_t)done, parts, count, done);
    return done;
}

int ftruncate(int fd, off_t bytes) {
    REAL(__typeof__(&ftruncate), "ftruncate");
    uint64_t file;
    int code = real(fd, bytes);
    if (code == 0 && enter(fd, &file)) {
        note(EVENT_TRUNCATE, file, (uint64_t)bytes, NULL, 0);
        leave();
    }
    return code;
}

int ftruncate64(int fd, off64_t bytes) {
    return ftruncate(fd, bytes);
}

// ---- syncs --------------------------------------------------------------------------------------

static void note_sync(int fd) {
    char path[PATH_MAX];
    struct stat info;
    if (!path_of(fd, path, &info)) return;
    pthread_mutex_lock(&mutex);
    if (S_ISDIR(info.st_mode)) {
        note_text(EVENT_SYNC_DIR, info.st_ino, path);
    } else {
        name_file(info.st_ino, path);
        note(EVENT_SYNC, info.st_ino, 0, NULL, 0);
    }
    pthread_mutex_unlock(&mutex);
}

int fdatasync(int fd) {
    REAL(__typeof__(&fdatasync), "fdatasync");
    int code = real(fd);
    if (code == 0) note_sync(fd);
    return code;
}

int fsync(int fd) {
    REAL(__typeof__(&fsync), "fsync");
    int code = real(fd);
    if (code == 0) note_sync(fd);
    return code;
}

// Nothing here writes through a map: where that comes to be so, the replay must learn it first.
int msync(void *at, size_t bytes, int flags) {
    REAL(__typeof__(&msync), "msync");
    if (log_fd >= 0) note(EVENT_UNKNOWN, 0, 0, NULL, 0);
    return real(at, bytes, flags);
}

// ---- names --------------------------------------------------------------------------------------

int rename(const char *from, const char *to) {
    REAL(__typeof__(&rename), "rename");
    struct stat info;
    char path[PATH_MAX];
    bool ours = log_fd >= 0 && strlen(from) > strlen(DATA_FILE) &&
                strcmp(from + strlen(from) - strlen(DATA_FILE), DATA_FILE) == 0;
    int code = real(from, to);
    if (code == 0 && ours && stat(to, &info) == 0 && realpath(to, path) != NULL) {
        pthread_mutex_lock(&mutex);
        note_text(EVENT_RENAME, info.st_ino, path);
        pthread_mutex_unlock(&mutex);
    }
    return code;
}

// ---- commits and the clock ----------------------------------------------------------------------

// What the transaction leaves as the last commit: read in it, before it ends. Number 0 for none.
static void last_commit(MDB_txn *txn, uint64_t *number, uint8_t root[ROOT_BYTES]) {
    MDB_dbi meta;
    MDB_val key = {.mv_size = sizeof("commit"), .mv_data = "commit"}, value;
    *number = 0;
    memset(root, 0, ROOT_BYTES);
    if (mdb_dbi_open(txn, "meta", 0, &meta) != 0 || mdb_get(txn, meta, &key, &value) != 0) return;
    if (value.mv_size != HEADER_BYTES + COMMIT_BYTES) abort();
    const uint8_t *payload = (const uint8_t *)value.mv_data + HEADER_BYTES;
    memcpy(number, payload, sizeof(*number));
    memcpy(root, payload + COMMIT_BYTES - ROOT_BYTES, ROOT_BYTES);
}

// A read transaction's commit says the same of a commit that was done before.
int mdb_txn_commit(MDB_txn *txn) {
    REAL(__typeof__(&mdb_txn_commit), "mdb_txn_commit");
    uint64_t number = 0, file;
    uint8_t root[ROOT_BYTES];
    int fd = -1;
    if (log_fd >= 0) {
        (void)mdb_env_get_fd(mdb_txn_env(txn), &fd);
        last_commit(txn, &number, root);
    }
    int code = real(txn);
    if (code == 0 && fd >= 0 && enter(fd, &file)) {
        note(EVENT_COMMIT, file, number, &(struct iovec){root, sizeof(root)}, 1);
        leave();
        clock_ahead += clock_step;
    }
    return code;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(__typeof__(&clock_gettime), "clock_gettime");
    int code = real(clock, now);
    if (code == 0 && clock == CLOCK_REALTIME) now->tv_sec += clock_ahead;
    return code;
}
