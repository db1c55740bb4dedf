// A standalone copy of a pool: what its last commit holds, in as few pages as that takes.
//
// Made like a new pool, as a whole or not at all (store.c). `change` runs before the move
// into place. LMDB reads the pool in a transaction of its own, so a writer can commit meanwhile.
// The copy is believed when it opens, its root hash follows from what it holds, and it is that of
// the source.
#include "pool_file.h"
#include "reef_fail_point.h"
#include "store_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- where to -----------------------------------------------------------------------------------

// The directory that `to` is, or would be made in; -1 if neither exists.
static int directory_of(const char *to) {
    int fd = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) return fd;
    char *copy = strdup(to); // dirname may cut it
    if (copy != NULL) fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(copy);
    return fd;
}

static bool is_same(const struct stat *one, const struct stat *other) {
    return one->st_dev == other->st_dev && one->st_ino == other->st_ino;
}

// Is the directory `fd`, which is closed, the pool's or one below it? Upwards, as far as can be
// seen: a path may be written in many ways.
static bool lies_inside(int fd, const struct stat *pool) {
    struct stat here = {0}, above = {0};
    bool inside = false, top = fd < 0 || fstat(fd, &here) != 0;
    while (!top && !inside) {
        inside = is_same(&here, pool);
        int next = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(fd);
        fd = next;
        // At the root directory, .. leads to itself.
        top = fd < 0 || fstat(fd, &above) != 0 || is_same(&above, &here);
        here = above;
    }
    if (fd >= 0) close(fd);
    return inside;
}

reef_status reef_store_check_copy(const char *path, const char *to, reef_error *err) {
    struct stat pool;
    if (*to == '\0')
        return reef_fail(err, REEF_ERR_INVALID, "cannot copy pool %s: the target's path is empty",
                         path);
    // Where one of them is missing, opening or making it says so.
    if (stat(path, &pool) != 0 || !lies_inside(directory_of(to), &pool))
        return reef_store_check_new(to, err);
    return reef_fail(err, REEF_ERR_INVALID,
                     "cannot copy pool %.80s to %.80s, "
                     "which lies inside it: choose a path beside it",
                     path, to);
}

// ---- copying ------------------------------------------------------------------------------------

static reef_status data_write(reef_store *store, const char *to, int fd, reef_error *err) {
    MDB_env *lmdb = reef_environment_lmdb(store->environment);
    int code = mdb_env_copyfd2(lmdb, fd, MDB_CP_COMPACT);
    if (code == 0 && fsync(fd) != 0) code = errno; // LMDB leaves that to its caller
    if (code == 0) return REEF_OK;
    // A compact copy walks the trees, and LMDB notices when pages are missing from them.
    if (code == MDB_INCOMPATIBLE)
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "cannot copy pool %s: its trees do not account for all of its pages; "
                         "check it with reef verify",
                         store->path);
    if (code == EAGAIN) // LMDB writes in a thread of its own, which it could not start
        return reef_fail(err, REEF_ERR_NO_MEMORY,
                         "no memory for a thread that writes a copy of pool %s", store->path);
    // A compact copy takes at most as much.
    return reef_lmdb_fail(to, code, reef_lmdb_used_bytes(lmdb), "write a copy", err);
}

static reef_status copy_data_file(reef_store *store,
                                  const char *to,
                                  const char *staging,
                                  reef_error *err) {
    char *file = reef_pool_file_path(staging, "data.mdb");
    if (file == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "out of memory while copying pool %s",
                         store->path);
    int fd = open(file, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    reef_status status = REEF_OK;
    if (fd < 0)
        status = reef_lmdb_fail(to, errno, 0, "create a data file", err);
    else
        status = data_write(store, to, fd, err);
    // Some file systems report a full disk only here.
    if (fd >= 0 && close(fd) != 0 && status == REEF_OK)
        status = reef_lmdb_fail(to, errno, 0, "close the data file", err);
    free(file);
    return status;
}

// ---- comparing ----------------------------------------------------------------------------------

// Number 0 in a pool without any commit.
static reef_status last_commit(reef_store *store, reef_commit *out, reef_error *err) {
    *out = (reef_commit){0};
    reef_status status = reef_store_read_commit(store, out, err);
    return status == REEF_ERR_NOT_FOUND ? REEF_OK : status;
}

// The last commit of the copy, whose root hash must follow from its records.
static reef_status copied_commit(const char *staging,
                                 bool changes,
                                 reef_commit *out,
                                 reef_error *err) {
    reef_store *copy = NULL;
    reef_txn *txn = NULL;
    uint8_t root[REEF_HASH_BYTES];
    reef_status status = reef_store_open(&copy, staging, &(reef_store_options){0}, err);
    if (status != REEF_OK) return status;
    status = last_commit(copy, out, err);
    if (status == REEF_OK && out->number > 0) {
        status = reef_txn_begin(&txn, copy, REEF_TXN_READ, err);
        if (status == REEF_OK) status = reef_txn_generations_load(txn, err);
        // The change may take a last generation away whose record is damaged, or it fails
        // (reef_txn_begin).
        if (status == REEF_ERR_CORRUPT && changes && txn->generation_count > 0) status = REEF_OK;
        if (status == REEF_OK)
            status = reef_root_hash(txn, out->step, out->stream_bytes, root, err);
        if (status == REEF_OK && memcmp(root, out->root, sizeof(root)) != 0)
            status = reef_fail(err, REEF_ERR_CORRUPT,
                               "the copy's root hash is not that of its commit %" PRIu64
                               ": check the pool with reef verify",
                               out->number);
    }
    reef_txn_abort(txn);
    reef_store_close(copy);
    return status;
}

// A writer may have committed meanwhile: the copy is of the last commit before or of a later one.
static reef_status check_copy_is_whole(reef_store *store,
                                       const char *staging,
                                       bool changes,
                                       const reef_commit *before,
                                       reef_commit *copied,
                                       reef_error *err) {
    reef_commit after;
    reef_status status = copied_commit(staging, changes, copied, err);
    if (status == REEF_OK) status = last_commit(store, &after, err);
    if (status != REEF_OK) return status;
    bool same = copied->number >= before->number && copied->number <= after.number;
    // Equal numbers must mean equal states; in between no root is known to compare.
    if (copied->number == before->number)
        same = same && memcmp(copied->root, before->root, REEF_HASH_BYTES) == 0;
    if (copied->number == after.number)
        same = same && memcmp(copied->root, after.root, REEF_HASH_BYTES) == 0;
    return same ? REEF_OK
                : reef_fail(err, REEF_ERR_CORRUPT,
                            "the copy of pool %s is of commit %" PRIu64
                            " with another root hash, the pool is at commit %" PRIu64,
                            store->path, copied->number, after.number);
}

typedef struct copying {
    reef_store *store;
    const char *to;
    reef_commit copied;       // written
    reef_store_change change; // NULL: none
    void *context;
} copying;

// A reef_pool_fill.
static reef_status copy_into(void *context, const char *staging, reef_error *err) {
    copying *c = context;
    reef_commit before = {0};
    reef_txn *txn = NULL;
    reef_status status = last_commit(c->store, &before, err);
    // While it runs, no thread of this process remaps the environment.
    if (status == REEF_OK) status = reef_txn_begin(&txn, c->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = copy_data_file(c->store, c->to, staging, err);
    reef_txn_abort(txn);
    if (status != REEF_OK) return status;
    REEF_FAIL_POINT(COPY_WRITTEN);
    status = check_copy_is_whole(c->store, staging, c->change != NULL, &before, &c->copied, err);
    if (status != REEF_OK) return status;
    REEF_FAIL_POINT(COPY_COMPARED);
    return c->change == NULL ? REEF_OK : reef_pool_change(staging, c->change, c->context, err);
}

// A changed copy of one shard is refused before it is made.
static reef_status refuse_shard(reef_store *store, reef_error *err) {
    reef_txn *txn = NULL;
    reef_shard shard;
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_READ, err);
    if (status != REEF_OK) return status;
    status = reef_shard_read(txn, &shard, err);
    reef_txn_abort(txn);
    if (status == REEF_ERR_NOT_FOUND) return REEF_OK;
    return status == REEF_OK ? reef_shard_refuse_change(store->path, shard.rank, shard.count, err)
                             : status;
}

static reef_status copy_to(copying *c, reef_error *err) {
    if (c->store->part_count > 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%.120s holds the shards of a pool: reef shards %.60s NEW --to 1 makes a "
                         "whole pool of them",
                         c->store->path, c->store->path);
    reef_status status = c->change != NULL ? refuse_shard(c->store, err) : REEF_OK;
    if (status == REEF_OK)
        status = reef_store_check_copy(c->store->path, c->to != NULL ? c->to : "", err);
    return status == REEF_OK ? reef_pool_make(c->to, copy_into, c, NULL, err) : status;
}

reef_status reef_store_copy(reef_store *store,
                            const char *to,
                            reef_commit *commit,
                            reef_error *err) {
    copying c = {.store = store, .to = to};
    reef_status status = copy_to(&c, err);
    if (status == REEF_OK && commit != NULL) *commit = c.copied;
    return status;
}

reef_status reef_store_copy_changed(
    reef_store *store, const char *to, reef_store_change change, void *context, reef_error *err) {
    copying c = {.store = store, .to = to, .change = change, .context = context};
    return copy_to(&c, err);
}

// ---- one generation -----------------------------------------------------------------------------

typedef struct extraction {
    reef_txn *from;
    uint32_t generation;
} extraction;

static reef_status copy_config(reef_txn *from, reef_txn *into, reef_error *err) {
    static const reef_key key = {.db = REEF_DB_META, .name = "config"};
    reef_view view;
    reef_status status = reef_record_view(from, &key, &view, err);
    return status == REEF_OK ? reef_record_store(into, &key, view.dtype, view.data, view.bytes, err)
                             : status;
}

// A reef_store_change.
static reef_status extract_into(void *context, reef_store *store, reef_error *err) {
    const extraction *e = context;
    reef_txn *into = NULL;
    reef_commit commit;
    reef_status status = reef_txn_begin(&into, store, REEF_TXN_WRITE, err);
    if (status != REEF_OK) return status;
    status = reef_commit_read(e->from, &commit, err);
    if (status == REEF_OK) status = copy_config(e->from, into, err);
    if (status == REEF_OK) status = reef_generation_copy_into(e->from, e->generation, into, err);
    if (status == REEF_OK) return reef_txn_commit(into, &commit, err);
    reef_txn_abort(into);
    return status;
}

reef_status reef_generation_extract(reef_store *store,
                                    uint32_t generation,
                                    const char *to,
                                    reef_error *err) {
    extraction e = {.generation = generation};
    reef_generation_record record;
    reef_status status = reef_txn_begin(&e.from, store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_generation_read(e.from, generation, &record, err);
    if (status == REEF_OK && !record.sealed)
        status = reef_fail(err, REEF_ERR_INVALID, "generation %" PRIu32 " is open: seal it first",
                           generation);
    if (status == REEF_OK) status = reef_store_create(to, extract_into, &e, err);
    reef_txn_abort(e.from);
    return status;
}
