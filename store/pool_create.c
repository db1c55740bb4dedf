// Making a pool as a whole or not at all: a new one, a copy, or a copy that is changed first.
//
//   TO/               made, or found empty, or with what a process left that died at this
//   TO/writer.lock    taken: nobody else makes a pool here
//   TO/unfinished/    data.mdb is made here
//   TO/data.mdb       moved to its place when it is whole and on the disk: now TO is a pool
//
// So a data file that is in place is a whole pool, whenever the process died or the power failed.
#include "pool_create.h"

#include "pool_file.h"
#include "reef_fail_point.h"
#include "schema.h"

#include <stdlib.h>

static reef_status make_in_nursery(const char *path,
                                   reef_pool_fill fill,
                                   void *context,
                                   reef_error *err) {
    char *nursery = NULL;
    reef_status status = reef_pool_nursery_make(path, &nursery, err);
    if (status == REEF_OK) {
        REEF_FAIL_POINT(MAKE_BEGUN);
        status = fill(context, nursery, err);
    }
    if (status == REEF_OK) {
        REEF_FAIL_POINT(MAKE_FILLED);
        status = reef_pool_nursery_leave(path, nursery, err);
    }
    free(nursery);
    return status;
}

reef_status reef_pool_make(
    const char *path, reef_pool_fill fill, void *context, int *writer_fd, reef_error *err) {
    bool made = false;
    int fd = -1;
    if (writer_fd != NULL) *writer_fd = -1;
    reef_status status = reef_pool_directory_make(path, &made, err);
    if (status != REEF_OK) return status;
    status = reef_writer_lock(path, &fd, err);
    if (status == REEF_ERR_BUSY) return status; // another creator's directory by now
    // Two may meet in one empty directory: who gets the lock late finds a pool, and leaves it alone.
    bool locked = status == REEF_OK;
    if (locked) status = reef_pool_file_absent(path, err);
    bool ours = !locked || status == REEF_OK;
    if (status == REEF_OK) status = make_in_nursery(path, fill, context, err);
    if (ours && status != REEF_OK) reef_pool_directory_unmake(path, made);
    if (status == REEF_OK && writer_fd != NULL) {
        *writer_fd = fd; // the caller owns it now
        fd = -1;
    }
    reef_writer_unlock(fd);
    return status;
}

reef_status reef_pool_change(const char *path,
                             reef_store_change change,
                             void *context,
                             reef_error *err) {
    reef_store *store = NULL;
    reef_status status = reef_store_open(&store, path, &(reef_store_options){.write = true}, err);
    if (status == REEF_OK) status = change(context, store, err);
    reef_store_close(store);
    return status;
}

typedef struct creation {
    reef_store_change change;
    void *context;
} creation;

static reef_status fill_new(void *context, const char *nursery, reef_error *err) {
    const creation *c = context;
    reef_status status = reef_pool_fill_empty(NULL, nursery, err);
    return status == REEF_OK ? reef_pool_change(nursery, c->change, c->context, err) : status;
}

reef_status reef_store_create(const char *path,
                              reef_store_change change,
                              void *context,
                              reef_error *err) {
    creation c = {.change = change, .context = context};
    if (path == NULL || *path == '\0')
        return reef_fail(err, REEF_ERR_INVALID, "the pool's path is empty");
    return reef_pool_make(path, fill_new, &c, NULL, err);
}
