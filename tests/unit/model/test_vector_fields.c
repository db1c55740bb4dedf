// Experts of images: fields, filters and regions against sums written out place by place, for
// images of all shapes.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "draw.h"
#include "vector_fields.h"

typedef struct shape {
    uint32_t rows, columns, side;
    size_t places_down, places_across, regions; // that are expected
} shape;

// From one pixel to images whose fields do not overlap; one side is not a multiple of the regions.
static const shape SHAPES[] = {
    {28, 28, 16, 22, 22, 16}, {1, 1, 3, 1, 1, 1},  {1, 60, 5, 1, 27, 4},     {5, 9, 4, 1, 3, 3},
    {8, 8, 7, 2, 2, 4},       {12, 7, 6, 6, 1, 4}, {100, 38, 9, 32, 32, 16},
};
#define SHAPE_COUNT (sizeof(SHAPES) / sizeof(SHAPES[0]))

static reef_vector_fields fields_of(const shape *s) {
    reef_config config;
    reef_config_default(&config);
    config.model = REEF_MODEL_VECTOR;
    config.inputs = s->rows * s->columns;
    config.image_columns = s->columns;
    config.side = s->side;
    return reef_vector_fields_of(&config);
}

static float *draw(uint64_t seed, size_t count) {
    float *values = malloc(count * sizeof(*values));
    assert_non_null(values);
    draw_floats(&seed, count, values, -1.0f, 1.0f);
    return values;
}

// What a filter says of the field at one place, with its bias or without: in double.
static double response(const reef_vector_fields *f,
                       const float *image,
                       const float *filter,
                       size_t down,
                       size_t across,
                       bool bias) {
    double sum = 0.0, squares = 0.0, product = 0.0;
    for (size_t pass = 0; pass < 3; pass++)
        for (size_t i = 0; i < f->down.field; i++)
            for (size_t j = 0; j < f->across.field; j++) {
                double value = (double)image[(down * f->down.step + i) * f->across.pixels +
                                             across * f->across.step + j];
                double off = value - sum / (double)f->values;
                if (pass == 0) sum += value;
                if (pass == 1) squares += off * off;
                if (pass == 2) product += off * (double)filter[i * f->across.field + j];
            }
    product /= sqrt(squares / (double)f->values + 0.1);
    return product + (bias ? (double)filter[f->values] : 0.0);
}

static double expert(const reef_vector_fields *f,
                     const float *image,
                     const float *filters,
                     size_t n) {
    double sum = 0.0;
    size_t places = 0, region = n % f->regions;
    for (size_t a = 0; a < f->down.places; a++)
        for (size_t b = 0; b < f->across.places; b++) {
            if (a * f->down.regions / f->down.places != region / f->across.regions) continue;
            if (b * f->across.regions / f->across.places != region % f->across.regions) continue;
            sum += fmax(0.0,
                        response(f, image, filters + n / f->regions * (f->values + 1), a, b, true));
            places++;
        }
    return sum / (double)places;
}

static void fields_cover_images_of_any_shape(void **state) {
    (void)state;
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        const shape *s = &SHAPES[i];
        reef_vector_fields f = fields_of(s);
        assert_int_equal(f.down.places, s->places_down);
        assert_int_equal(f.across.places, s->places_across);
        assert_int_equal(f.regions, s->regions);
        // The last field ends within the image, and within a step of its edge.
        size_t end = (f.down.places - 1) * f.down.step + f.down.field;
        assert_true(end <= s->rows && end + f.down.step > s->rows);
        assert_true(f.filters * f.regions >= s->side * s->side);
        assert_true((f.filters - 1) * f.regions < s->side * s->side);
    }
}

static void experts_are_means_over_the_places_of_their_region(void **state) {
    (void)state;
    enum { IMAGES = 3 };
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        reef_vector_fields f = fields_of(&SHAPES[i]);
        size_t N = (size_t)SHAPES[i].side * SHAPES[i].side, width = N + 5;
        size_t pixels = (size_t)SHAPES[i].rows * SHAPES[i].columns + 1;
        float *z = draw(7, IMAGES * pixels), *filters = draw(8, f.filters * (f.values + 1));
        float *hidden = draw(9, IMAGES * width);
        // All of them, and the first ones, as a gate reads them.
        for (size_t count = N; count > 0; count = count > 1 ? count / 3 : 0) {
            for (size_t k = 0; k < IMAGES * width; k++) hidden[k] = -7.0f;
            reef_vector_fields_hidden(&f, IMAGES, count, width, hidden, filters, z);
            for (size_t r = 0; r < IMAGES; r++)
                for (size_t n = 0; n < width; n++) {
                    double want = n < count ? expert(&f, z + r * pixels, filters, n) : -7.0;
                    assert_true(fabs((double)hidden[r * width + n] - want) < 1e-4);
                }
        }
        free(z);
        free(filters);
        free(hidden);
    }
}

static void filters_get_the_size_that_responses_are_told_by(void **state) {
    (void)state;
    enum { IMAGES = 2 };
    reef_vector_fields f = fields_of(&SHAPES[0]);
    size_t pixels = 28 * 28 + 1;
    float *z = draw(3, IMAGES * pixels), *filters = draw(4, f.filters * (f.values + 1));
    float *before = malloc(f.filters * (f.values + 1) * sizeof(*before));
    assert_non_null(before);
    memcpy(before, filters, f.filters * (f.values + 1) * sizeof(*before));
    reef_vector_fields_scale(&f, IMAGES, filters, z);
    for (size_t n = 0; n < f.filters; n++) {
        const float *filter = filters + n * (f.values + 1);
        double squares = 0.0;
        for (size_t r = 0; r < IMAGES; r++)
            for (size_t p = 0; p < 22 * 22; p++)
                squares += pow(response(&f, z + r * pixels, filter, p / 22, p % 22, false), 2.0);
        assert_true(fabs(squares / (IMAGES * 22 * 22) - 1.0) < 1e-3);
        // The bias stays.
        assert_true(filter[f.values] == before[n * (f.values + 1) + f.values]);
    }
    free(z);
    free(filters);
    free(before);
}

static void images_without_contrast_have_finite_experts(void **state) {
    (void)state;
    reef_vector_fields f = fields_of(&SHAPES[0]);
    size_t width = f.values + 1;
    float *z = calloc(28 * 28 + 1, sizeof(*z)), *filters = draw(4, f.filters * width);
    float hidden[256];
    assert_non_null(z);
    reef_vector_fields_scale(&f, 1, filters, z);
    reef_vector_fields_hidden(&f, 1, 256, 256, hidden, filters, z);
    for (size_t n = 0; n < 256; n++) {
        // A constant field becomes zero, which leaves the bias.
        float bias = filters[n / 16 * width + f.values];
        assert_true(fabsf(hidden[n] - fmaxf(0.0f, bias)) < 1e-5f);
    }
    free(z);
    free(filters);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_cover_images_of_any_shape),
        cmocka_unit_test(experts_are_means_over_the_places_of_their_region),
        cmocka_unit_test(filters_get_the_size_that_responses_are_told_by),
        cmocka_unit_test(images_without_contrast_have_finite_experts),
    };
    return cmocka_run_group_tests_name("model vector fields", tests, NULL, NULL);
}
