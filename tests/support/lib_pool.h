// A directory of a test's own, and pools in it by libreef: what tests of libreef share.
#ifndef LIB_POOL_H
#define LIB_POOL_H

#include <reef/reef.h>

#include "checked.h"
#include "temp_dir.h"

#define WITHIN(directory, name)                                                                    \
    char name[TEMP_DIR_BYTES];                                                                     \
    temp_dir_join(name, directory, #name)

static inline int make_directory(void **state) {
    char *directory = malloc(TEMP_DIR_BYTES);
    temp_dir_new(directory);
    *state = directory;
    return 0;
}

static inline int remove_directory(void **state) {
    temp_dir_remove(*state);
    free(*state);
    return 0;
}

/** A test with a directory of its own. */
#define DIRECTORY_TEST(name) TEST_WITH(name, make_directory, remove_directory, char *directory)

static inline reef_pool *lib_pool_open(const char *path,
                                       int write,
                                       const char *as_of,
                                       int threads) {
    reef_pool *pool;
    const reef_pool_options options = {
        .size = sizeof(options), .write = write, .as_of = as_of, .threads = (uint32_t)threads};
    must(reef_pool_open(&pool, path, &options, &why));
    return pool;
}

#endif
