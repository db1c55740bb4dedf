// A file as bytes, all at once.
//
#ifndef WHOLE_FILE_H
#define WHOLE_FILE_H

#include "test.h"

/** The file's bytes, kept. */
static inline void *whole_file_read(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long size = ftell(file);
    rewind(file);
    void *data = keep(malloc(size > 0 ? (size_t)size : 1));
    assert_non_null(data);
    *bytes = fread(data, 1, (size_t)size, file);
    assert_int_equal(*bytes, size);
    assert_int_equal(fclose(file), 0);
    return data;
}

/** Make or replace a file. */
static inline void whole_file_write(const char *path, const void *data, size_t bytes) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

#endif
