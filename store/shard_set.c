// All shards of a pool, made together: as a whole or not at all.
//
//   NEW.unfinished/          locked: nobody else makes shards here
//   NEW.unfinished/rank-K/   each a pool, made like any other (store.c)
//   NEW/                     its name when all of them are on the disk
//
// So a directory NEW has all shards of one pool, whenever the process died. The sources are not
// changed.
#include "pool_file.h"
#include "reef_fail_point.h"
#include "reef_shard.h"
#include "shard_view.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define UNFINISHED ".unfinished"

static reef_status fail_errno(const char *doing, const char *path, reef_error *err) {
    return reef_fail(err, errno == ENOSPC ? REEF_ERR_FULL : REEF_ERR_IO, "cannot %s %.200s: %s",
                     doing, path, strerror(errno));
}

static reef_status no_memory(reef_error *err) {
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the names of shards");
}

// ---- what is left of a process that died --------------------------------------------------------

// Only what this file makes: anything else stays, and is then in the way.
static void sweep(const char *unfinished) {
    for (uint32_t rank = 0;; rank++) {
        char *shard = reef_view_shard_path(unfinished, rank);
        struct stat info;
        if (shard == NULL || stat(shard, &info) != 0) {
            free(shard);
            return;
        }
        char *lock = reef_pool_file_path(shard, "lock.mdb");
        if (lock != NULL) (void)unlink(lock);
        reef_pool_directory_unmake(shard, true);
        free(lock);
        free(shard);
    }
}

static reef_status make_unfinished(const char *path, int *fd, reef_error *err) {
    if (mkdir(path, 0700) != 0 && errno != EEXIST) return fail_errno("create", path, err);
    *fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0) return fail_errno("open", path, err);
    if (flock(*fd, LOCK_EX | LOCK_NB) != 0)
        return reef_fail(err, REEF_ERR_BUSY, "another process is making shards in %.200s", path);
    sweep(path);
    return REEF_OK;
}

// ---- all of them --------------------------------------------------------------------------------

static reef_status make_round(uint32_t round,
                              uint32_t count,
                              const char *directory,
                              reef_shard_maker make,
                              void *context,
                              reef_error *err) {
    reef_status status = REEF_OK;
    for (uint32_t rank = 0; status == REEF_OK && rank < count; rank++) {
        char *path = reef_view_shard_path(directory, rank);
        status = path == NULL ? no_memory(err) : make(context, round, rank, path, err);
        free(path);
        if (status == REEF_OK) REEF_FAIL_POINT(SHARD_MADE);
    }
    return status;
}

// `to` without slashes at its end, and what it is called before it is whole.
static char *unfinished_path(const char *to) {
    size_t length = strlen(to);
    while (length > 1 && to[length - 1] == '/') length--;
    char *unfinished = malloc(length + sizeof(UNFINISHED));
    if (unfinished == NULL) return NULL;
    memcpy(unfinished, to, length);
    memcpy(unfinished + length, UNFINISHED, sizeof(UNFINISHED));
    return unfinished;
}

reef_status reef_shards_create(const char *to,
                               uint32_t count,
                               uint32_t rounds,
                               reef_shard_maker make,
                               void *context,
                               reef_error *err) {
    int fd = -1;
    char *unfinished = unfinished_path(to);
    if (unfinished == NULL) return no_memory(err);
    reef_status status = make_unfinished(unfinished, &fd, err);
    bool ours = status == REEF_OK;
    for (uint32_t round = 0; status == REEF_OK && round < rounds; round++)
        status = make_round(round, count, unfinished, make, context, err);
    if (status == REEF_OK && fsync(fd) != 0 && errno != EINVAL)
        status = fail_errno("sync", unfinished, err);
    if (status == REEF_OK) REEF_FAIL_POINT(SHARDS_MADE);
    // Within one directory, so that NEW appears whole or not at all.
    if (status == REEF_OK && rename(unfinished, to) != 0) status = fail_errno("create", to, err);
    if (status == REEF_OK)
        status = reef_parent_sync(to, err);
    else if (ours) {
        sweep(unfinished);
        (void)rmdir(unfinished);
    }
    if (fd >= 0) close(fd);
    free(unfinished);
    return status;
}

reef_status reef_shard_draw(reef_shard *shard, reef_error *err) {
    ssize_t got = getrandom(shard->pool, sizeof(shard->pool), 0);
    if (got == (ssize_t)sizeof(shard->pool)) return REEF_OK;
    return reef_fail(err, REEF_ERR_IO, "the system has no random numbers");
}

// ---- of other pools -----------------------------------------------------------------------------

typedef struct division {
    reef_store *const *sources;
    size_t source_count;
    reef_shard shard;
    reef_shard_making *out;
} division;

static reef_status make_shard(
    void *context, uint32_t round, uint32_t rank, const char *path, reef_error *err) {
    division *d = context;
    (void)round;
    d->shard.rank = rank;
    return reef_shard_make(d->sources, d->source_count, &d->shard, path, &d->out[rank], err);
}

static reef_status plan_all(reef_store *const *sources,
                            size_t source_count,
                            uint32_t count,
                            reef_shard_making *out,
                            reef_error *err) {
    reef_shard shard = {.count = count};
    reef_status status = REEF_OK;
    for (; status == REEF_OK && shard.rank < count; shard.rank++)
        status = reef_shard_make(sources, source_count, count == 1 ? NULL : &shard, NULL,
                                 &out[shard.rank], err);
    return status;
}

reef_status reef_shards_make(reef_store *const *sources,
                             size_t source_count,
                             uint32_t count,
                             const char *to,
                             bool dry_run,
                             reef_shard_making *out,
                             reef_error *err) {
    reef_status status = reef_store_check_new(to, err);
    for (size_t i = 0; status == REEF_OK && i < source_count; i++)
        status = reef_store_check_copy(reef_store_path(sources[i]), to, err);
    if (status == REEF_OK) status = reef_shards_check(sources, source_count, err);
    if (status != REEF_OK) return status;
    if (dry_run) return plan_all(sources, source_count, count, out, err);
    if (count == 1) return reef_shard_make(sources, source_count, NULL, to, &out[0], err);
    // Epochs begin again.
    division d = {
        .sources = sources, .source_count = source_count, .shard = {.count = count}, .out = out};
    status = reef_shard_draw(&d.shard, err);
    return status == REEF_OK ? reef_shards_create(to, count, 1, make_shard, &d, err) : status;
}
