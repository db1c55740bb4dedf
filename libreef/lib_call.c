// The frame of every call: the caller's locale and arithmetic, structs of any version, one call on
// a pool at a time.
#include "lib.h"

#include <string.h>
#include <unistd.h>

reef_status reef_lib_read_commit(reef_pool *pool, reef_commit *out, reef_error *err) {
    reef_txn *txn = NULL;
    reef_status status = reef_txn_begin(&txn, pool->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_commit_read(txn, out, err);
    reef_txn_abort(txn);
    return status;
}

static locale_t plain; // made once, for as long as the process lives

static void make_plain(void) {
    plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

void reef_lib_take_caller(reef_lib_caller *out) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, make_plain);
    out->locale = uselocale(plain); // without memory for it: none, which changes nothing
    // Rounding mode and flags of the caller must not change any bit of a result.
    (void)fegetenv(&out->arithmetic);
    (void)fesetenv(FE_DFL_ENV);
}

void reef_lib_give_back(const reef_lib_caller *caller) {
    (void)uselocale(caller->locale);
    (void)fesetenv(&caller->arithmetic);
}

static reef_status size_of(const void *theirs, const char *name, size_t *out, reef_error *err) {
    memcpy(out, theirs, sizeof(*out)); // the first field of all of them
    if (*out >= sizeof(size_t) && *out < 65536) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID, "%s has size %zu; set it to sizeof(%s)", name, *out,
                     name);
}

reef_status reef_lib_take(
    void *own, size_t own_bytes, const void *theirs, const char *name, reef_error *err) {
    size_t bytes;
    memset(own, 0, own_bytes);
    if (theirs == NULL) return REEF_OK;
    reef_status status = size_of(theirs, name, &bytes, err);
    // A caller built with an older header has fewer fields; the rest stays zero.
    if (status == REEF_OK) memcpy(own, theirs, bytes < own_bytes ? bytes : own_bytes);
    return status;
}

reef_status reef_lib_give(
    void *theirs, const void *own, size_t own_bytes, const char *name, reef_error *err) {
    size_t bytes, first = sizeof(bytes);
    reef_status status = size_of(theirs, name, &bytes, err);
    if (status != REEF_OK) return status;
    size_t shared = bytes < own_bytes ? bytes : own_bytes;
    memcpy((char *)theirs + first, (const char *)own + first, shared - first);
    // Fields that a newer header has and this library does not know are zero.
    if (bytes > shared) memset((char *)theirs + shared, 0, bytes - shared);
    return REEF_OK;
}

// A child of fork() has a copy of the handle, but not its threads; and LMDB is only for the process
// that opened it.
bool reef_lib_is_inherited(const reef_pool *pool) {
    return pool->pid != getpid();
}

reef_status reef_lib_enter(reef_pool *pool, reef_error *err) {
    if (reef_lib_is_inherited(pool))
        return reef_fail(
            err, REEF_ERR_INVALID,
            "pool %.120s was opened by process %ld, from which this one was forked: open "
            "it here as well",
            reef_store_path(pool->store), (long)pool->pid);
    // One call at a time: the trainer and the model are not for several threads.
    pthread_mutex_lock(&pool->lock);
    reef_lib_take_caller(&pool->caller);
    reef_gemm_claim();
    return REEF_OK;
}

void reef_lib_leave(reef_pool *pool) {
    reef_gemm_give_back();
    reef_lib_give_back(&pool->caller);
    pthread_mutex_unlock(&pool->lock);
}

reef_status reef_lib_check_writer(const reef_pool *pool, const char *what, reef_error *err) {
    if (pool->trainer != NULL) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "cannot %s: pool %.120s was opened for reading; open it with write set", what,
                     reef_store_path(pool->store));
}

void reef_lib_unpin(reef_pool *pool) {
    if (pool->model != NULL) reef_model_unpin(pool->model);
}
