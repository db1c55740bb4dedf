// Arrays as files for NumPy: format 1.0, little-endian, C order.
#ifndef REEF_NPY_FILE_H
#define REEF_NPY_FILE_H

#include "cli.h"

typedef struct reef_npy_file {
    FILE *out; // NULL: none is open
    const char *path;
} reef_npy_file;

/**
 * Begin a file of `rank` dimensions (at most 4). `kind` is NumPy's word for its numbers, such as
 * "<f4" or "<i8". Errors: INVALID it exists, and `force` is not set; IO.
 */
REEF_MUST_CHECK reef_status reef_npy_create(reef_npy_file *file,
                                            const char *path,
                                            bool force,
                                            const char *kind,
                                            size_t rank,
                                            const uint64_t *shape,
                                            reef_error *err);
/** The next bytes of its data, which the caller has in the order of the shape. */
REEF_MUST_CHECK reef_status reef_npy_write(reef_npy_file *file,
                                           const void *data,
                                           size_t bytes,
                                           reef_error *err);
/** All was written. */
REEF_MUST_CHECK reef_status reef_npy_finish(reef_npy_file *file, reef_error *err);
/** Give up, and remove what there is of it. Does nothing once it was finished. */
void reef_npy_abandon(reef_npy_file *file);

#endif
