// Made-up images of a few classes that are easy to tell apart, as files of several formats.
//
// Include after <cmocka.h>; needs zlib.
#ifndef VECTOR_FILES_H
#define VECTOR_FILES_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#define BLOB_SIDE 4
#define BLOB_PIXELS (BLOB_SIDE * BLOB_SIDE)
#define BLOB_CLASSES 4

static inline uint32_t blob_draw(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

/** One image of a class: its pattern of light and dark, with noise. */
static inline void blob_make(uint8_t pixels[BLOB_PIXELS], int class, uint64_t *seed) {
    static const uint16_t PATTERNS[BLOB_CLASSES] = {0x0ff0, 0xf00f, 0xaaaa, 0x33cc};
    for (int i = 0; i < BLOB_PIXELS; i++)
        pixels[i] =
            (uint8_t)((PATTERNS[class] >> i & 1 ? 170 : 60) + (int)(blob_draw(seed) % 80) - 40);
}

/**
 * `count` images and labels as a pair of gzip IDX files; the class of image i is first + i %
 * classes.
 */
static inline void blob_write_idx(
    const char *images, const char *labels, uint32_t count, int first, int classes, uint64_t seed) {
    uint8_t head[16] = {
        0, 0,         8, 3, 0, 0,        (uint8_t)(count >> 8), (uint8_t)count, 0, 0,
        0, BLOB_SIDE, 0, 0, 0, BLOB_SIDE};
    gzFile image_file = gzopen(images, "wb"), label_file = gzopen(labels, "wb");
    assert_non_null(image_file);
    assert_non_null(label_file);
    assert_int_equal(gzwrite(image_file, head, 16), 16);
    head[3] = 1;
    assert_int_equal(gzwrite(label_file, head, 8), 8);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t pixels[BLOB_PIXELS], label = (uint8_t)(first + (int)i % classes);
        blob_make(pixels, label, &seed);
        assert_int_equal(gzwrite(image_file, pixels, BLOB_PIXELS), BLOB_PIXELS);
        assert_int_equal(gzwrite(label_file, &label, 1), 1);
    }
    assert_int_equal(gzclose(image_file), Z_OK);
    assert_int_equal(gzclose(label_file), Z_OK);
}

/**
 * The same as CSV with a header, pixels as fractions, the label in the column "class" at the front.
 */
static inline void blob_write_csv(
    const char *path, uint32_t count, int first, int classes, uint64_t seed) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "class");
    for (int i = 0; i < BLOB_PIXELS; i++) fprintf(file, ",pixel%d", i);
    for (uint32_t i = 0; i < count; i++) {
        uint8_t pixels[BLOB_PIXELS];
        int label = first + (int)i % classes;
        blob_make(pixels, label, &seed);
        fprintf(file, "\n%d", label);
        for (int k = 0; k < BLOB_PIXELS; k++) fprintf(file, ",%.9g", pixels[k] / 255.0);
    }
    assert_int_equal(fclose(file), 0);
}

#endif
