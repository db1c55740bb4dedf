// Vectors from files: every format against values written by hand, the choices of a spec, the
// stream cut anywhere, and messages about faulty files that name the position.
#include "reef_vectors.h"
#include "temp_dir.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#define EXAMPLES 6
#define PIXELS 4

typedef struct files {
    char directory[TEMP_DIR_BYTES];
    char path[TEMP_DIR_BYTES], labels[TEMP_DIR_BYTES]; // of the files that are written next
    char spec[3 * TEMP_DIR_BYTES];
} files;

static int setup(void **state) {
    files *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    temp_dir_new(f->directory);
    temp_dir_join(f->path, f->directory, "vectors");
    temp_dir_join(f->labels, f->directory, "labels");
    *state = f;
    return 0;
}

static int teardown(void **state) {
    files *f = *state;
    temp_dir_remove(f->directory);
    free(f);
    return 0;
}

// ---- writing files ------------------------------------------------------------------------------

static void write_bytes(const char *path, const void *bytes, size_t count) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static void write_words(const char *path, const char *text) {
    write_bytes(path, text, strlen(text));
}

static void write_packed(const char *path, const void *bytes, size_t count) {
    gzFile file = gzopen(path, "wb9");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, bytes, (unsigned)count), count);
    assert_int_equal(gzclose(file), Z_OK);
}

static const uint8_t IMAGES[] = {0,  0,  8,  3,  0,  0,  0,  6,  0,   0,  0,  2,  0,  0,
                                 0,  2,  0,  1,  2,  3,  10, 11, 12,  13, 20, 21, 22, 23,
                                 30, 31, 32, 33, 40, 41, 42, 43, 255, 51, 0,  53};
static const uint8_t LABELS[] = {0, 0, 8, 1, 0, 0, 0, 6, 7, 0, 1, 7, 0, 2};

static void write_idx(const files *f, bool packed) {
    (packed ? write_packed : write_bytes)(f->path, IMAGES, sizeof(IMAGES));
    (packed ? write_packed : write_bytes)(f->labels, LABELS, sizeof(LABELS));
}

// A .npy file of version 1.0.
static void write_npy(const char *path, const char *dict, const void *numbers, size_t bytes) {
    uint8_t *file = calloc(10 + strlen(dict) + bytes, 1);
    memcpy(file, "\x93NUMPY\x01\x00", 8);
    file[8] = (uint8_t)strlen(dict);
    memcpy(file + 10, dict, strlen(dict));
    memcpy(file + 10 + strlen(dict), numbers, bytes);
    write_bytes(path, file, 10 + strlen(dict) + bytes);
    free(file);
}

static void cut_file(const char *path, size_t bytes_less) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    uint8_t bytes[4096];
    size_t count = fread(bytes, 1, sizeof(bytes), file);
    fclose(file);
    assert_true(count > bytes_less && count < sizeof(bytes));
    write_bytes(path, bytes, count - bytes_less);
}

// ---- reading them -------------------------------------------------------------------------------

static const char *spec_of(files *f, const char *kind, bool labels, const char *options) {
    snprintf(f->spec, sizeof(f->spec), "%s:%s%s%s%s", kind, f->path, labels ? "," : "",
             labels ? f->labels : "", options);
    return f->spec;
}

static reef_vectors *must_open(const char *spec) {
    reef_error err = {0};
    reef_vectors *vectors = NULL;
    if (reef_vectors_open(&vectors, spec, 0, 0, &err) != REEF_OK) fail_msg("%s", err.message);
    return vectors;
}

// Opening fails, with this status and all of these words in the message.
static void refuse(const char *spec, reef_status status, const char *word, const char *other) {
    reef_error err = {0};
    reef_vectors *vectors = NULL;
    reef_status got = reef_vectors_open(&vectors, spec, 0, 0, &err);
    assert_null(vectors);
    if (got != status || strstr(err.message, word) == NULL || strstr(err.message, other) == NULL)
        fail_msg("%s: status %d, '%s' lacks '%s' or '%s'", spec, got, err.message, word, other);
}

typedef struct examples {
    uint64_t count;
    uint32_t width;
    float *values;
    int32_t *labels;
} examples;

static examples read_all(const char *spec) {
    reef_error err = {0};
    reef_vectors *vectors = must_open(spec);
    examples all = {.count = reef_vectors_count(vectors), .width = reef_vectors_width(vectors)};
    all.values = calloc((size_t)all.count * all.width, sizeof(float));
    all.labels = calloc((size_t)all.count, sizeof(int32_t));
    reef_status status =
        reef_vectors_read(vectors, 0, (size_t)all.count, all.values, all.labels, &err);
    if (status != REEF_OK) fail_msg("%s", err.message);
    reef_vectors_close(vectors);
    return all;
}

static void release(examples *all) {
    free(all->values);
    free(all->labels);
}

// Read everything and compare with (count, width) values and `count` labels.
static void expect(
    const char *spec, uint64_t count, uint32_t width, const float *values, const int32_t *labels) {
    examples all = read_all(spec);
    assert_int_equal(all.count, count);
    assert_int_equal(all.width, width);
    for (uint64_t i = 0; i < count; i++) {
        assert_int_equal(all.labels[i], labels[i]);
        for (uint32_t k = 0; k < width; k++)
            if (all.values[i * width + k] != values[i * width + k])
                fail_msg("%s: value %u of %u is %g, not %g", spec, (unsigned)k, (unsigned)i,
                         (double)all.values[i * width + k], (double)values[i * width + k]);
    }
    release(&all);
}

static void expect_labels(const char *spec, uint64_t count, const int32_t *labels) {
    examples all = read_all(spec);
    assert_int_equal(all.count, count);
    for (uint64_t i = 0; i < count; i++) assert_int_equal(all.labels[i], labels[i]);
    release(&all);
}

// ---- formats ------------------------------------------------------------------------------------

static void idx_pixels_become_fractions_plain_and_packed(void **state) {
    files *f = *state;
    float pixels[EXAMPLES * PIXELS];
    int32_t labels[EXAMPLES];
    for (size_t i = 0; i < EXAMPLES * PIXELS; i++) pixels[i] = (float)IMAGES[16 + i] / 255.0f;
    for (size_t i = 0; i < EXAMPLES; i++) labels[i] = LABELS[8 + i];
    for (int packed = 0; packed < 2; packed++) {
        write_idx(f, packed != 0);
        expect(spec_of(f, "idx", true, ""), EXAMPLES, PIXELS, pixels, labels);
    }
    const int32_t none[EXAMPLES] = {-1, -1, -1, -1, -1, -1};
    expect(spec_of(f, "idx", false, ""), EXAMPLES, PIXELS, pixels, none);
}

static void idx_holds_other_numbers_too(void **state) {
    files *f = *state;
    const uint8_t floats[] = {0, 0, 0x0d, 2,    0, 0, 0,    2, 0, 0,
                              0, 1, 0x3f, 0xc0, 0, 0, 0xc0, 0, 0, 0}; // 1.5, -2
    const uint8_t whole[] = {0, 0, 0x0c, 1, 0, 0, 0, 2, 0, 0, 1, 0, 0xff, 0xff, 0xff, 0xff};
    const uint8_t short_whole[] = {0, 0, 0x0b, 2, 0, 0, 0, 2, 0, 0, 0, 1, 0xff, 0xfe, 1, 2};
    write_bytes(f->path, floats, sizeof(floats));
    write_bytes(f->labels, whole, sizeof(whole));
    expect(spec_of(f, "idx", true, ""), 2, 1, (const float[]){1.5f, -2},
           (const int32_t[]){256, -1});
    expect(spec_of(f, "idx", true, "?scale=4"), 2, 1, (const float[]){6, -8},
           (const int32_t[]){256, -1});
    write_bytes(f->path, short_whole, sizeof(short_whole));
    expect(spec_of(f, "idx", true, ""), 2, 1, (const float[]){-2, 258}, (const int32_t[]){256, -1});
}

#define DICT(descr, shape)                                                                         \
    "{'descr': '" descr "', 'fortran_order': False, 'shape': " shape ", }    \n"

static void npy_arrays_with_labels_beside_and_inside(void **state) {
    files *f = *state;
    const float x[] = {1, 2.5f, -3, 4, 5, 6};
    const int64_t y[] = {4, 0};
    const double last[] = {0.5, 0.25, 9, 1, 2, 8};
    write_npy(f->path, DICT("<f4", "(2, 3)"), x, sizeof(x));
    write_npy(f->labels, DICT("<i8", "(2,)"), y, sizeof(y));
    expect(spec_of(f, "npy", true, ""), 2, 3, x, (const int32_t[]){4, 0});
    expect(spec_of(f, "npy", false, ""), 2, 3, x, (const int32_t[]){-1, -1});
    write_npy(f->path, DICT("<f8", "(2, 3)"), last, sizeof(last));
    expect(spec_of(f, "npy", false, "?label=last"), 2, 2, (const float[]){0.5f, 0.25f, 1, 2},
           (const int32_t[]){9, 8});
    write_npy(f->path, DICT("<i4", "(2, 3)"), (const int32_t[]){7, 1, 2, 6, 3, 4}, 24);
    expect(spec_of(f, "npy", false, "?label=first"), 2, 2, (const float[]){1, 2, 3, 4},
           (const int32_t[]){7, 6});
    write_npy(f->path, DICT("|u1", "(2, 1, 2)"), (const uint8_t[]){0, 255, 51, 102}, 4);
    expect(spec_of(f, "npy", true, ""), 2, 2, (const float[]){0, 1, 51 / 255.0f, 102 / 255.0f},
           (const int32_t[]){4, 0});
    expect(spec_of(f, "npy", true, "?scale=1"), 2, 2, (const float[]){0, 255, 51, 102},
           (const int32_t[]){4, 0});
    write_npy(f->path, DICT(">i2", "(2, 1)"), (const uint8_t[]){1, 2, 0xff, 0xff}, 4);
    expect(spec_of(f, "npy", true, ""), 2, 1, (const float[]){258, -1}, (const int32_t[]){4, 0});
}

static void csv_with_and_without_header(void **state) {
    files *f = *state;
    const float values[] = {1, 2, 3, 4};
    const int32_t labels[] = {5, 6};
    write_words(f->path, "1,2,5\n3,4,6\n");
    expect(spec_of(f, "csv", false, ""), 2, 2, values, labels);
    write_words(f->path, "a,b,label\n1,2,5\n3,4,6"); // no line end at the end
    expect(spec_of(f, "csv", false, ""), 2, 2, values, labels);
    write_words(f->path, "\xef\xbb\xbf\"cl\"\"ass\";a;b\r\n\r\n5.0;1;2\r\n\"6\"; 3 ;4e0\r\n\r\n");
    expect(spec_of(f, "csv", false, "?label=cl\"ass"), 2, 2, values, labels);
    expect(spec_of(f, "csv", false, "?label=first"), 2, 2, values, labels);
    expect(spec_of(f, "csv", false, "?label=0"), 2, 2, values, labels);
    write_words(f->path, "1\t5\t2\n3\t6\t4\n");
    expect(spec_of(f, "csv", false, "?label=1"), 2, 2, values, labels);
    write_words(f->path, "0,1,2\n1,5,2\n3,6,4\n"); // numbers as names of columns
    expect(spec_of(f, "csv", false, "?header=yes&label=1"), 2, 2, values, labels);
    write_words(f->path, "1,2\n3,4\n");
    expect(spec_of(f, "csv", false, "?label=none"), 2, 2, values, (const int32_t[]){-1, -1});
    write_words(f->path, "1,2,\n3,4,-1\n");
    expect(spec_of(f, "csv", false, ""), 2, 2, values, (const int32_t[]){-1, -1});
    write_words(f->path, "255,0,1\n");
    expect(spec_of(f, "csv", false, "?scale=1/255"), 1, 2, (const float[]){1, 0},
           (const int32_t[]){1});
}

static void csv_labels_may_be_words_that_are_listed(void **state) {
    files *f = *state;
    write_words(f->path, "length,kind\n1,rose\n2,\"tulip\"\n3,rose\n");
    expect(spec_of(f, "csv", false, "?names=tulip,rose"), 3, 1, (const float[]){1, 2, 3},
           (const int32_t[]){1, 0, 1});
    expect(spec_of(f, "csv", false, "?names=tulip,rose&classes=1"), 2, 1, (const float[]){1, 3},
           (const int32_t[]){1, 1});
}

static void json_lines_with_and_without_labels(void **state) {
    files *f = *state;
    write_words(f->path, "{\"vector\": [1, -2.5], \"label\": 3, \"name\": \"x\"}\n\n"
                         "{\"label\": null, \"vector\": [0, 1e-3]}\r\n{\"vector\": [4, 5]}");
    expect(spec_of(f, "jsonl", false, ""), 3, 2, (const float[]){1, -2.5f, 0, 1e-3f, 4, 5},
           (const int32_t[]){3, -1, -1});
}

// ---- what a spec chooses ------------------------------------------------------------------------

static void classes_skip_and_first_cut_in_that_order(void **state) {
    files *f = *state;
    write_idx(f, true); // labels 7 0 1 7 0 2
    expect_labels(spec_of(f, "idx", true, "?classes=7,2"), 3, (const int32_t[]){7, 7, 2});
    expect_labels(spec_of(f, "idx", true, "?skip=2&classes=7,2"), 1, (const int32_t[]){2});
    expect_labels(spec_of(f, "idx", true, "?first=2&classes=2,0"), 2, (const int32_t[]){0, 0});
    expect_labels(spec_of(f, "idx", true, "?first=2&skip=1"), 2, (const int32_t[]){0, 1});
    expect_labels(spec_of(f, "idx", true, "?first=100"), 6, (const int32_t[]){7, 0, 1, 7, 0, 2});
    refuse(spec_of(f, "idx", true, "?classes=9"), REEF_ERR_INVALID, "chooses no example", "has 6");
    refuse(spec_of(f, "idx", true, "?skip=6"), REEF_ERR_INVALID, "chooses no example", "skip");
    refuse(spec_of(f, "idx", true, "?skip=7"), REEF_ERR_INVALID, "chooses no example", "skip");
}

#define MANY 500

static void write_numbered(const files *f) {
    FILE *file = fopen(f->path, "w");
    assert_non_null(file);
    for (int i = 0; i < MANY; i++) fprintf(file, "%d,%d,%d,%d\n", i, i + 1000, i + 2000, i % 10);
    assert_int_equal(fclose(file), 0);
}

// Every example once, with its own label, and in another order than the file's.
static void a_shuffle_is_an_order_and_the_seed_decides_it(void **state) {
    files *f = *state;
    write_numbered(f);
    examples one = read_all(spec_of(f, "csv", false, "?shuffle=1"));
    examples again = read_all(spec_of(f, "csv", false, "?shuffle=1"));
    examples two = read_all(spec_of(f, "csv", false, "?shuffle=2"));
    int seen[MANY] = {0}, in_place = 0, same = 0;
    assert_int_equal(one.count, MANY);
    for (int i = 0; i < MANY; i++) {
        int row = (int)one.values[3 * i];
        seen[row]++;
        assert_int_equal(one.labels[i], row % 10);
        assert_true(one.values[3 * i + 2] == (float)(row + 2000));
        in_place += row == i;
        same += one.values[3 * i] == two.values[3 * i];
    }
    for (int i = 0; i < MANY; i++) assert_int_equal(seen[i], 1);
    assert_true(in_place < 10 && same < 10); // one is expected of either
    assert_memory_equal(one.values, again.values, MANY * 3 * sizeof(float));
    // What skip and first leave of one order are its parts.
    examples tail = read_all(spec_of(f, "csv", false, "?shuffle=1&skip=400"));
    examples head = read_all(spec_of(f, "csv", false, "?shuffle=1&first=400"));
    assert_memory_equal(head.values, one.values, 400 * 3 * sizeof(float));
    assert_memory_equal(tail.values, one.values + 400 * 3, 100 * 3 * sizeof(float));
    release(&one);
    release(&again);
    release(&two);
    release(&head);
    release(&tail);
}

static void a_permutation_is_the_same_for_every_example(void **state) {
    files *f = *state;
    FILE *file = fopen(f->path, "w");
    assert_non_null(file);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 40; k++) fprintf(file, "%d%c", 100 * i + k, k < 39 ? ',' : '\n');
    assert_int_equal(fclose(file), 0);
    examples one = read_all(spec_of(f, "csv", false, "?label=none&permute=3"));
    examples two = read_all(spec_of(f, "csv", false, "?label=none&permute=4"));
    int seen[40] = {0}, in_place = 0, same = 0;
    for (int k = 0; k < 40; k++) {
        int place = (int)one.values[k];
        seen[place]++;
        in_place += place == k;
        same += one.values[k] == two.values[k];
        for (int i = 1; i < 3; i++) assert_true(one.values[40 * i + k] == (float)(100 * i + place));
    }
    for (int k = 0; k < 40; k++) assert_int_equal(seen[k], 1);
    assert_true(in_place < 10 && same < 10);
    release(&one);
    release(&two);
}

static void several_permutations_are_served_one_after_the_other_or_mixed(void **state) {
    files *f = *state;
    write_numbered(f);
    examples one = read_all(spec_of(f, "csv", false, "?classes=1,2&permute=3"));
    examples two = read_all(spec_of(f, "csv", false, "?classes=1,2&permute=9"));
    examples both = read_all(spec_of(f, "csv", false, "?classes=1,2&permute=3,9"));
    size_t values = one.count * one.width;
    assert_true(one.count > 1);
    assert_int_equal(both.count, one.count + two.count);
    assert_memory_equal(both.values, one.values, values * sizeof(float));
    assert_memory_equal(both.values + values, two.values, values * sizeof(float));

    examples mixed = read_all(spec_of(f, "csv", false, "?classes=1,2&permute=3,9&shuffle=4"));
    assert_int_equal(mixed.count, both.count);
    size_t found = 0, in_place = 0;
    for (size_t i = 0; i < both.count; i++) {
        size_t k = 0, row = both.width * sizeof(float);
        const float *wanted = both.values + i * both.width;
        while (k < mixed.count && memcmp(mixed.values + k * both.width, wanted, row) != 0) k++;
        found += k < mixed.count && mixed.labels[k] == both.labels[i];
        in_place += k == i;
    }
    assert_int_equal(found, both.count);
    assert_true(in_place < both.count / 2);
    release(&one);
    release(&two);
    release(&both);
    release(&mixed);
}

// ---- the stream ---------------------------------------------------------------------------------

static uint32_t read_u32(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void check_stream(const char *spec) {
    reef_error err = {0};
    examples all = read_all(spec);
    reef_vectors *vectors = must_open(spec);
    size_t record = reef_vectors_record_bytes(vectors), count = 0;
    size_t bytes = (size_t)reef_vectors_stream_bytes(vectors);
    assert_int_equal(record, 4 + 4 * all.width);
    assert_int_equal(bytes, all.count * record);
    uint8_t *whole = calloc(bytes + 1, 1), *piece = calloc(bytes + 1, 1);
    assert_int_equal(reef_vectors_read_bytes(vectors, 0, whole, bytes + 1, &count, &err), REEF_OK);
    assert_int_equal(count, bytes);
    for (uint64_t i = 0; i < all.count; i++) {
        assert_int_equal((int32_t)read_u32(whole + i * record), all.labels[i]);
        for (uint32_t k = 0; k < all.width; k++) {
            uint32_t bits = read_u32(whole + i * record + 4 + 4 * k);
            assert_memory_equal(&bits, &all.values[i * all.width + k], 4);
        }
    }
    // From any byte on, also backwards, and after a rest.
    for (size_t offset = bytes; offset <= bytes; offset -= 3) {
        size_t room = 1 + offset % (2 * record), left = bytes - offset;
        if (offset % 11 == 0) reef_vectors_rest(vectors);
        assert_int_equal(reef_vectors_read_bytes(vectors, offset, piece, room, &count, &err),
                         REEF_OK);
        assert_int_equal(count, room < left ? room : left);
        assert_memory_equal(piece, whole + offset, count);
        if (offset < 3) break;
    }
    free(whole);
    free(piece);
    reef_vectors_close(vectors);
    release(&all);
}

static void the_stream_may_be_cut_anywhere(void **state) {
    files *f = *state;
    write_idx(f, false);
    check_stream(spec_of(f, "idx", true, "?shuffle=5&permute=1,2"));
    write_idx(f, true);
    check_stream(spec_of(f, "idx", true, ""));
    write_numbered(f);
    check_stream(spec_of(f, "csv", false, "?classes=1,2&first=20"));
    write_words(f->path, "{\"vector\": [1], \"label\": 3}\n{\"vector\": [2]}\n");
    check_stream(spec_of(f, "jsonl", false, ""));
}

// ---- what is wrong ------------------------------------------------------------------------------

static void specs_that_make_no_sense_are_refused(void **state) {
    files *f = *state;
    write_idx(f, false);
    assert_true(reef_vectors_is_spec("csv:x") && !reef_vectors_is_spec("csv.txt"));
    assert_false(reef_vectors_is_spec("file:x"));
    refuse("data.csv", REEF_ERR_INVALID, "names no vectors", "csv:FILE");
    refuse("csv:", REEF_ERR_INVALID, "names no file", "csv:");
    refuse("idx:a,", REEF_ERR_INVALID, "names no file", "comma");
    refuse("idx:a,b,c", REEF_ERR_INVALID, "more than two files", "idx:");
    refuse(spec_of(f, "idx", true, "?clases=1"), REEF_ERR_INVALID, "unknown option 'clases'",
           "known are");
    refuse(spec_of(f, "idx", true, "?label=1"), REEF_ERR_INVALID, "not an option of idx", "label");
    refuse(spec_of(f, "idx", true, "?first"), REEF_ERR_INVALID, "needs a value", "first");
    refuse(spec_of(f, "idx", true, "?first=1&first=2"), REEF_ERR_INVALID, "given twice", "first");
    refuse(spec_of(f, "idx", true, "?first=-1"), REEF_ERR_INVALID, "first=-1", "whole number");
    refuse(spec_of(f, "idx", true, "?classes=1,x"), REEF_ERR_INVALID, "classes=1,x",
           "list of labels");
    refuse(spec_of(f, "idx", true, "?permute=1,"), REEF_ERR_INVALID, "permute=1,",
           "a seed, or a list");
    refuse(spec_of(f, "idx", true, "?scale=0"), REEF_ERR_INVALID, "scale=0", "not 0");
    refuse(spec_of(f, "idx", true, "?scale=1/"), REEF_ERR_INVALID, "scale=1/", "fraction");
    refuse(spec_of(f, "csv", false, "?header=maybe"), REEF_ERR_INVALID, "header=maybe",
           "yes or no");
    refuse(spec_of(f, "npy", true, "?label=last"), REEF_ERR_INVALID, "labels twice", "column");
}

static void files_that_cannot_be_read_are_named(void **state) {
    files *f = *state;
    refuse(spec_of(f, "csv", false, ""), REEF_ERR_NOT_FOUND, f->path, "No such file");
    write_idx(f, false);
    temp_dir_remove(f->labels);
    refuse(spec_of(f, "idx", true, ""), REEF_ERR_NOT_FOUND, f->labels, "No such file");
    snprintf(f->spec, sizeof(f->spec), "jsonl:%s", f->directory);
    refuse(f->spec, REEF_ERR_NOT_FOUND, f->directory, "regular file");
}

static void damaged_idx_is_refused(void **state) {
    files *f = *state;
    write_idx(f, false);
    cut_file(f->path, 1);
    refuse(spec_of(f, "idx", true, ""), REEF_ERR_CORRUPT, "has 39 bytes",
           "make 40: the file was cut");
    write_idx(f, false);
    write_bytes(f->labels, LABELS, 6);
    refuse(spec_of(f, "idx", true, ""), REEF_ERR_CORRUPT, f->labels, "middle of its header");
    write_bytes(f->labels, LABELS, 3);
    refuse(spec_of(f, "idx", true, ""), REEF_ERR_CORRUPT, f->labels, "only 3 bytes");
    uint8_t more[sizeof(LABELS) + 1] = {0};
    memcpy(more, LABELS, sizeof(LABELS));
    write_bytes(f->labels, more, sizeof(more));
    refuse(spec_of(f, "idx", true, ""), REEF_ERR_CORRUPT, f->labels, "something after them");
    more[7] = 7; // a seventh label
    write_bytes(f->labels, more, sizeof(more));
    refuse(spec_of(f, "idx", true, ""), REEF_ERR_INVALID, "has 6 examples", "has 7 labels");
    write_words(f->labels, "this is text");
    refuse(spec_of(f, "idx", true, ""), REEF_ERR_INVALID, "not an IDX file", "74 68 69 73");
    const uint8_t floats[] = {0, 0, 0x0d, 1, 0, 0, 0, 1, 0x3f, 0, 0, 0}; // 0.5
    write_bytes(f->labels, floats, sizeof(floats));
    write_bytes(f->path, floats, sizeof(floats));
    refuse(spec_of(f, "idx", true, ""), REEF_ERR_INVALID, "label 0 (from 0) is 0.5",
           "whole number");
    write_idx(f, false);
    snprintf(f->spec, sizeof(f->spec), "idx:%s,%s", f->labels, f->path);
    refuse(f->spec, REEF_ERR_INVALID, "4 numbers per example", "wrong way round");
    const uint8_t empty[] = {0, 0, 8, 2, 0, 0, 0, 0, 0, 0, 0, 4};
    write_bytes(f->path, empty, sizeof(empty));
    refuse(spec_of(f, "idx", false, ""), REEF_ERR_INVALID, "holds no numbers", "dimension of 0");
    const uint8_t huge[] = {0, 0, 8, 3, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    write_bytes(f->path, huge, sizeof(huge));
    refuse(spec_of(f, "idx", false, ""), REEF_ERR_INVALID, "beyond", "values");
}

static void damaged_gzip_is_refused(void **state) {
    files *f = *state;
    write_idx(f, true);
    cut_file(f->path, 9);
    refuse(spec_of(f, "idx", true, ""), REEF_ERR_CORRUPT, f->path, "cut or damaged");
    write_idx(f, true);
    cut_file(f->labels, 2); // only its checksum is not whole
    refuse(spec_of(f, "idx", true, ""), REEF_ERR_CORRUPT, f->labels, "cut or damaged");
    write_idx(f, true);
    FILE *file = fopen(f->path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, -6, SEEK_END), 0); // within the checksum
    int byte = fgetc(file);
    assert_int_equal(fseek(file, -6, SEEK_END), 0);
    assert_int_not_equal(fputc(byte ^ 1, file), EOF);
    assert_int_equal(fclose(file), 0);
    refuse(spec_of(f, "idx", true, ""), REEF_ERR_CORRUPT, f->path, "incorrect data check");
}

static void damaged_npy_is_refused(void **state) {
    files *f = *state;
    const float x[] = {1, 2, 3, 4};
    write_npy(f->path, DICT("<f4", "(2, 2)"), x, sizeof(x) - 1);
    refuse(spec_of(f, "npy", false, ""), REEF_ERR_CORRUPT, f->path, "was cut");
    write_npy(f->path, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }", x, sizeof(x));
    refuse(spec_of(f, "npy", false, ""), REEF_ERR_INVALID, "Fortran order", "ascontiguousarray");
    write_npy(f->path, DICT("<c8", "(2,)"), x, sizeof(x));
    refuse(spec_of(f, "npy", false, ""), REEF_ERR_INVALID, "type '<c8'", "astype");
    write_npy(f->path, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (4,), }", x,
              sizeof(x));
    refuse(spec_of(f, "npy", false, ""), REEF_ERR_INVALID, "type [('a'", "astype");
    write_npy(f->path, DICT("<f4", "()"), x, 4);
    refuse(spec_of(f, "npy", false, ""), REEF_ERR_INVALID, "its shape", "(60000, 784)");
    write_npy(f->path, "{}", x, 0);
    refuse(spec_of(f, "npy", false, ""), REEF_ERR_INVALID, "in which order", ".npy");
    write_words(f->path, "1,2,3\n4,5,6\n7,8,9\n");
    refuse(spec_of(f, "npy", false, ""), REEF_ERR_INVALID, f->path, "NUMPY");
    write_bytes(f->path, "\x93NUMPY\x01\x00\xff\xff{}", 12);
    refuse(spec_of(f, "npy", false, ""), REEF_ERR_CORRUPT, f->path, "header");
    write_npy(f->path, DICT("<f4", "(4,)"), x, sizeof(x));
    refuse(spec_of(f, "npy", false, "?label=last"), REEF_ERR_INVALID, "one number per example",
           "no vector");
    refuse(spec_of(f, "npy", false, "?label=2"), REEF_ERR_INVALID, "label=2",
           "first, last or none");
}

// Numbers of binary files are only seen when they are read.
static void numbers_that_are_not_finite_are_refused_with_their_position(void **state) {
    files *f = *state;
    const float x[] = {1, 2, 3, NAN};
    const double large[] = {1, 1e300};
    reef_error err = {0};
    float values[4];
    write_npy(f->path, DICT("<f4", "(2, 2)"), x, sizeof(x));
    reef_vectors *vectors = must_open(spec_of(f, "npy", false, ""));
    assert_int_equal(reef_vectors_read(vectors, 0, 1, values, NULL, &err), REEF_OK);
    assert_int_equal(reef_vectors_read(vectors, 1, 1, values, NULL, &err), REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "value 1 of example 1"));
    assert_non_null(strstr(err.message, f->path));
    reef_vectors_close(vectors);
    write_npy(f->path, DICT("<f8", "(1, 2)"), large, sizeof(large));
    vectors = must_open(spec_of(f, "npy", false, ""));
    assert_int_equal(reef_vectors_read(vectors, 0, 1, values, NULL, &err), REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "1e+300"));
    reef_vectors_close(vectors);
}

static void damaged_csv_is_refused_with_its_line(void **state) {
    static const struct {
        const char *text, *options, *word, *other;
    } CASES[] = {
        {"", "", "no line with an example", ""},
        {"a,b,label\n\n", "", "no line with an example", ""},
        {"1,2,3\n1,2\n", "", "line 2 has 2 values", "have 3"},
        {"1,2,3\n\n1,2,3,4\n", "", "line 3 has 4 values", "have 3"},
        {"1,2,3\n1,x,3\n", "", "line 2, column 1", "is not a finite number"},
        {"1,,3\n", "", "line 1, column 1", "is not a finite number"},
        {"1,2,3\n1,nan,3\n", "", "line 2, column 1", "is not a finite number"},
        {"1,2,3\n1,1e39,3\n", "", "line 2, column 1", "is not a finite number"},
        {"1,b,label\n1,2,3\n", "", "line 1, column 1", "header=yes"},
        {"1,2,rose\n", "", "line 1: the label is no", "names="},
        {"1,2,1.5\n", "", "line 1: the label is no", "whole number"},
        {"1,2,-2\n", "", "line 1: the label is no", "whole number"},
        {"1,2,3000000000\n", "", "line 1: the label is no", "whole number"},
        {"1,2,rose\n", "?names=lily,tulip", "line 1: the label is none", "lily,tulip"},
        {"a,b,c\n1,2,3\n", "?label=species", "no column 'species'", "header"},
        {"1,2,3\n", "?label=species", "no column 'species'", "no header line"},
        {"1,2,3\n", "?label=3", "no column '3'", "0 to 2"},
        {"1\n", "", "0 columns beside the label", ""},
        {"1,\"2,3\n", "", "quotation mark", "line 1"},
        {"1,2,3\n1,\"2,3\n", "", "quotation mark", "line 2"},
    };
    files *f = *state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(*CASES); i++) {
        write_words(f->path, CASES[i].text);
        refuse(spec_of(f, "csv", false, CASES[i].options), REEF_ERR_INVALID, CASES[i].word,
               CASES[i].other);
    }
    write_bytes(f->path, "1,2,3\n1,\0,3\n", 12);
    refuse(spec_of(f, "csv", false, ""), REEF_ERR_INVALID, "line 2", "zero byte");
}

static void damaged_json_lines_are_refused_with_their_line(void **state) {
    static const struct {
        const char *text, *word, *other;
    } CASES[] = {
        {"\n \n", "no line with an example", ""},
        {"{\"vector\": [1]}\n{\"vector\": [1]", "line 2: no JSON", "byte"},
        {"[1, 2]\n", "line 1: no object", "vector"},
        {"{\"label\": 3}\n", "line 1: no \"vector\"", "list"},
        {"{\"vector\": []}\n", "line 1: no \"vector\"", "list"},
        {"{\"vector\": [1, \"2\"]}\n", "line 1: value 1", "not a number"},
        {"{\"vector\": [1, 1e39]}\n", "line 1: value 1", "float"},
        {"{\"vector\": [1, NaN]}\n", "line 1: no JSON", ""},
        {"{\"vector\": [1]}\n{\"vector\": [1, 2]}\n", "line 2: the vector has 2", "1 are"},
        {"{\"vector\": [1], \"label\": 0.5}\n", "line 1: the label", "whole number"},
        {"{\"vector\": [1], \"label\": \"a\"}\n", "line 1: the label", "whole number"},
        {"{\"vector\": [1], \"vector\": [2]}\n", "line 1: no JSON", "duplicate"},
    };
    files *f = *state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(*CASES); i++) {
        write_words(f->path, CASES[i].text);
        refuse(spec_of(f, "jsonl", false, ""), REEF_ERR_INVALID, CASES[i].word, CASES[i].other);
    }
}

// The content of a file may be confidential; its line number is enough to find it.
static void no_message_quotes_what_is_trained_on(void **state) {
    static const struct {
        const char *kind, *text, *options;
    } CASES[] = {
        {"csv", "1,2,3\n1,zyxwut,3\n", ""},
        {"csv", "1,2,zyxwut\n", ""},
        {"csv", "1,2,zyxwut\n", "?names=a,b"},
        {"jsonl", "{\"vector\": [1], zyxwut}\n", ""},
        {"jsonl", "{\"zyxwut\": 1, \"zyxwut\": 2}\n", ""},
        {"jsonl", "{\"vector\": [\"zyxwut\"]}\n", ""},
        {"jsonl", "\"zyxwut\"\n", ""},
    };
    files *f = *state;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(*CASES); i++) {
        reef_error err = {0};
        reef_vectors *vectors = NULL;
        write_words(f->path, CASES[i].text);
        assert_int_equal(reef_vectors_open(&vectors,
                                           spec_of(f, CASES[i].kind, false, CASES[i].options), 0, 0,
                                           &err),
                         REEF_ERR_INVALID);
        if (strstr(err.message, "zyx") != NULL) fail_msg("quoted: %s", err.message);
    }
}

static void another_width_is_refused_with_what_to_do(void **state) {
    files *f = *state;
    reef_error err = {0};
    reef_vectors *vectors = NULL;
    write_idx(f, false);
    const char *spec = spec_of(f, "idx", true, "");
    assert_int_equal(reef_vectors_open(&vectors, spec, 4, 0, &err), REEF_OK);
    reef_vectors_close(vectors);
    assert_int_equal(reef_vectors_open(&vectors, spec, 784, 0, &err), REEF_ERR_INVALID);
    assert_null(vectors);
    assert_non_null(strstr(err.message, "vectors of 4 values, but the pool takes 784"));
    assert_non_null(strstr(err.message, "--inputs 4"));
}

static void images_that_lie_otherwise_are_refused(void **state) {
    files *f = *state;
    reef_error err = {0};
    reef_vectors *vectors = NULL;
    write_idx(f, false);
    const char *spec = spec_of(f, "idx", true, "");
    assert_int_equal(reef_vectors_open(&vectors, spec, 4, 2, &err), REEF_OK);
    reef_vectors_close(vectors);
    assert_int_equal(reef_vectors_open(&vectors, spec, 4, 4, &err), REEF_ERR_INVALID);
    assert_null(vectors);
    assert_non_null(strstr(err.message, "images of 2 x 2 values, but those of the pool are 1 x 4"));
    assert_non_null(strstr(err.message, "--inputs 2x2"));
    // A file that does not say how its images lie is taken as it is.
    write_words(f->path, "0,1,2,3,1\n4,5,6,7,0\n");
    assert_int_equal(reef_vectors_open(&vectors, spec_of(f, "csv", false, ""), 4, 4, &err),
                     REEF_OK);
    reef_vectors_close(vectors);
}

static void a_file_that_changes_is_found_out(void **state) {
    files *f = *state;
    reef_error err = {0};
    float values[8];
    write_idx(f, false);
    reef_vectors *vectors = must_open(spec_of(f, "idx", true, ""));
    cut_file(f->path, 5);
    assert_int_equal(reef_vectors_read(vectors, 3, 2, values, NULL, &err), REEF_ERR_CORRUPT);
    assert_non_null(strstr(err.message, "shrank"));
    reef_vectors_close(vectors);
    write_words(f->path, "1,2,3\n4,5,6\n");
    vectors = must_open(spec_of(f, "csv", false, ""));
    write_words(f->path, "1,2,3\n4,5,7\n");
    assert_int_equal(reef_vectors_read(vectors, 0, 1, values, NULL, &err), REEF_OK);
    assert_int_equal(reef_vectors_read(vectors, 1, 1, values, NULL, &err), REEF_ERR_CORRUPT);
    assert_non_null(strstr(err.message, "changed while it was read: example 1"));
    reef_vectors_close(vectors);
    write_idx(f, true);
    vectors = must_open(spec_of(f, "idx", true, ""));
    reef_vectors_rest(vectors);
    write_packed(f->path, IMAGES, sizeof(IMAGES) - 4);
    assert_int_equal(reef_vectors_read(vectors, 0, 1, values, NULL, &err), REEF_ERR_CORRUPT);
    assert_non_null(strstr(err.message, "unpacks to 36 bytes now"));
    reef_vectors_close(vectors);
}

// ---- real images --------------------------------------------------------------------------------

// Known of MNIST: how often each digit comes in the test images, and the mean of all their pixels.
static void mnist_is_what_it_is_known_to_be(void **state) {
    static const int DIGITS[] = {980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009};
    (void)state;
    const char *data = getenv("REEF_DATA_DIR");
    char spec[2 * TEMP_DIR_BYTES];
    snprintf(spec, sizeof(spec),
             "idx:%s/mnist/t10k-images-idx3-ubyte.gz,%s/mnist/t10k-labels-idx1-ubyte.gz",
             data != NULL ? data : "", data != NULL ? data : "");
    if (data == NULL || access(strchr(spec, ',') + 1, R_OK) != 0) {
        print_message("skipped: REEF_DATA_DIR names no directory with mnist\n");
        skip();
    }
    examples all = read_all(spec);
    assert_int_equal(all.count, 10000);
    assert_int_equal(all.width, 784);
    assert_int_equal(all.labels[0], 7);
    int seen[10] = {0};
    double sum = 0;
    for (size_t i = 0; i < 10000; i++) seen[all.labels[i]]++;
    for (size_t i = 0; i < (size_t)10000 * 784; i++) sum += (double)all.values[i];
    for (int i = 0; i < 10; i++) assert_int_equal(seen[i], DIGITS[i]);
    assert_true(fabs(sum / 7840000 - 0.1325) < 1e-4);
    release(&all);
}

#define WITH_FILES(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_FILES(idx_pixels_become_fractions_plain_and_packed),
        WITH_FILES(idx_holds_other_numbers_too),
        WITH_FILES(npy_arrays_with_labels_beside_and_inside),
        WITH_FILES(csv_with_and_without_header),
        WITH_FILES(csv_labels_may_be_words_that_are_listed),
        WITH_FILES(json_lines_with_and_without_labels),
        WITH_FILES(classes_skip_and_first_cut_in_that_order),
        WITH_FILES(a_shuffle_is_an_order_and_the_seed_decides_it),
        WITH_FILES(a_permutation_is_the_same_for_every_example),
        WITH_FILES(several_permutations_are_served_one_after_the_other_or_mixed),
        WITH_FILES(the_stream_may_be_cut_anywhere),
        WITH_FILES(specs_that_make_no_sense_are_refused),
        WITH_FILES(files_that_cannot_be_read_are_named),
        WITH_FILES(damaged_idx_is_refused),
        WITH_FILES(damaged_gzip_is_refused),
        WITH_FILES(damaged_npy_is_refused),
        WITH_FILES(numbers_that_are_not_finite_are_refused_with_their_position),
        WITH_FILES(damaged_csv_is_refused_with_its_line),
        WITH_FILES(damaged_json_lines_are_refused_with_their_line),
        WITH_FILES(no_message_quotes_what_is_trained_on),
        WITH_FILES(another_width_is_refused_with_what_to_do),
        WITH_FILES(images_that_lie_otherwise_are_refused),
        WITH_FILES(a_file_that_changes_is_found_out),
        cmocka_unit_test(mnist_is_what_it_is_known_to_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
