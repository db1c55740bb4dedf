// See vector_fields.h. Places and filters are taken some at a time, so that what is computed stays
// in the cache and on the stack.
#include "vector_fields.h"

#include "reef_kernels.h"

#include <math.h>
#include <string.h>

#define PLACES_AT_ONCE 64
#define FILTERS_AT_ONCE 128
#define FIELD_VALUES_MAX (REEF_VECTOR_FIELD * REEF_VECTOR_FIELD + 1) // and the 1 of the bias
#define REGIONS_MAX (REEF_VECTOR_REGIONS * REEF_VECTOR_REGIONS)
// Of a field's variance, where that of all pixels is 1: fields that are nearly even stay so,
// instead of showing their noise. Chosen on parts of the training sets of MNIST and Fashion-MNIST.
#define EVEN_VARIANCE 0.1f

// ---- geometry -----------------------------------------------------------------------------------

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

static reef_vector_side side_of(size_t pixels) {
    reef_vector_side side = {.pixels = pixels, .field = smaller(pixels, REEF_VECTOR_FIELD)};
    size_t free = pixels - side.field;
    side.step = free / REEF_VECTOR_PLACES_MAX + 1;
    side.places = free / side.step + 1;
    side.regions = smaller(side.places, REEF_VECTOR_REGIONS);
    return side;
}

reef_vector_fields reef_vector_fields_of(const reef_config *config) {
    reef_vector_fields fields = {0};
    if (!reef_config_is_image(config)) return fields;
    fields.down = side_of(config->inputs / config->image_columns);
    fields.across = side_of(config->image_columns);
    fields.values = fields.down.field * fields.across.field;
    fields.regions = fields.down.regions * fields.across.regions;
    fields.filters = ((size_t)config->side * config->side + fields.regions - 1) / fields.regions;
    return fields;
}

size_t reef_vector_row_count(const reef_config *config) {
    return reef_config_is_image(config) ? reef_vector_fields_of(config).filters
                                        : (size_t)config->side * config->side;
}

size_t reef_vector_row_values(const reef_config *config) {
    return reef_config_is_image(config) ? reef_vector_fields_of(config).values + 1
                                        : (size_t)config->inputs + 1;
}

static size_t region_of(const reef_vector_side *side, size_t place) {
    return place * side->regions / side->places;
}

// How many places of one side lie in a region.
static size_t places_in(const reef_vector_side *side, size_t region) {
    size_t count = 0;
    for (size_t p = 0; p < side->places; p++) count += region_of(side, p) == region;
    return count;
}

// ---- fields -------------------------------------------------------------------------------------

// The field at one place, centred and divided by its deviation; the last value 1.
static void read_field(const reef_vector_fields *f,
                       size_t place,
                       float *field,
                       const float *image) {
    size_t top = place / f->across.places * f->down.step;
    size_t left = place % f->across.places * f->across.step;
    float sum = 0.0f, squares = 0.0f;
    for (size_t i = 0; i < f->down.field; i++)
        memcpy(field + i * f->across.field, image + (top + i) * f->across.pixels + left,
               f->across.field * sizeof(*field));
    for (size_t i = 0; i < f->values; i++) sum += field[i];
    float mean = sum / (float)f->values;
    for (size_t i = 0; i < f->values; i++) {
        field[i] -= mean;
        squares += field[i] * field[i];
    }
    float scale = 1.0f / sqrtf(squares / (float)f->values + EVEN_VARIANCE);
    for (size_t i = 0; i < f->values; i++) field[i] *= scale;
    field[f->values] = 1.0f;
}

// Fields at `count` places from `first` on.
static void read_fields(
    const reef_vector_fields *f, size_t first, size_t count, float *fields, const float *image) {
    for (size_t p = 0; p < count; p++)
        read_field(f, first + p, fields + p * (f->values + 1), image);
}

void reef_vector_fields_scale(const reef_vector_fields *f,
                              size_t rows,
                              float *filters,
                              const float *z) {
    float fields[PLACES_AT_ONCE * FIELD_VALUES_MAX], seen[PLACES_AT_ONCE * FILTERS_AT_ONCE];
    size_t places = f->down.places * f->across.places, width = f->values + 1;
    for (size_t n = 0; n < f->filters; n += FILTERS_AT_ONCE) {
        size_t N = smaller(FILTERS_AT_ONCE, f->filters - n);
        double squares[FILTERS_AT_ONCE] = {0};
        for (size_t i = 0; i < rows; i++)
            for (size_t p = 0; p < places; p += PLACES_AT_ONCE) {
                size_t P = smaller(PLACES_AT_ONCE, places - p);
                read_fields(f, p, P, fields, z + i * (f->down.pixels * f->across.pixels + 1));
                // Without the bias: its column is left out of the product.
                reef_gemm(false, true, P, N, f->values, 1.0f, fields, width, filters + n * width,
                          width, 0.0f, seen, N);
                for (size_t k = 0; k < P * N; k++)
                    squares[k % N] += (double)seen[k] * (double)seen[k];
            }
        for (size_t k = 0; k < N; k++) {
            double size = sqrt(squares[k] / (double)(rows * places));
            // Images without any contrast say nothing of how large responses will be.
            float scale = (float)(1.0 / (size > 0.0 ? size : sqrt((double)f->values)));
            for (size_t d = 0; d < f->values; d++) filters[(n + k) * width + d] *= scale;
        }
    }
}

// ---- experts ------------------------------------------------------------------------------------

// sums (R, N) of ReLUs over the places of each region, by N filters.
static void sum_regions(
    const reef_vector_fields *f, size_t N, float *sums, const float *filters, const float *image) {
    float fields[PLACES_AT_ONCE * FIELD_VALUES_MAX], seen[PLACES_AT_ONCE * FILTERS_AT_ONCE];
    size_t places = f->down.places * f->across.places, width = f->values + 1;
    memset(sums, 0, f->regions * N * sizeof(*sums));
    for (size_t first = 0; first < places; first += PLACES_AT_ONCE) {
        size_t P = smaller(PLACES_AT_ONCE, places - first);
        read_fields(f, first, P, fields, image);
        reef_gemm(false, true, P, N, width, 1.0f, fields, width, filters, width, 0.0f, seen, N);
        for (size_t p = 0; p < P; p++) {
            size_t down = region_of(&f->down, (first + p) / f->across.places);
            size_t across = region_of(&f->across, (first + p) % f->across.places);
            float *sum = sums + (down * f->across.regions + across) * N;
            const float *row = seen + p * N;
            for (size_t n = 0; n < N; n++) sum[n] += row[n] > 0.0f ? row[n] : 0.0f;
        }
    }
}

void reef_vector_fields_hidden(const reef_vector_fields *f,
                               size_t rows,
                               size_t count,
                               size_t stride,
                               float *hidden,
                               const float *filters,
                               const float *z) {
    float sums[REGIONS_MAX * FILTERS_AT_ONCE], share[REGIONS_MAX];
    size_t R = f->regions, wanted = (count + R - 1) / R;
    for (size_t r = 0; r < R; r++)
        share[r] = 1.0f / (float)(places_in(&f->down, r / f->across.regions) *
                                  places_in(&f->across, r % f->across.regions));
    for (size_t i = 0; i < rows; i++)
        for (size_t n = 0; n < wanted; n += FILTERS_AT_ONCE) {
            size_t N = smaller(FILTERS_AT_ONCE, wanted - n);
            float *out = hidden + i * stride + n * R;
            sum_regions(f, N, sums, filters + n * (f->values + 1),
                        z + i * (f->down.pixels * f->across.pixels + 1));
            // The last filter's experts may be fewer than the regions.
            for (size_t k = 0; k < N * R && n * R + k < count; k++)
                out[k] = sums[k % R * N + k / R] * share[k % R];
        }
}
