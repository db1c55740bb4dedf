// What the experts of an image see: fields, in which a filter is applied at many places.
//
//   image (rows, columns)      a field of 7 x 7 pixels is at each place of a grid; places lie in
//   +----------------------+   4 x 4 regions. A field is centred, and divided by its own deviation.
//   | +-----+              |   Each filter meets the field at every place:
//   | |field|   . . . .    |     relu(w_down . field + bias)
//   | +-----+              |   and expert n is the mean of that over one region: of filter n / R in
//   |    . . region . . .  |   region n % R, with R regions. So the experts of a filter see all of
//   +----------------------+   the image, and where in a region something is matters little.
//
// Random filters, contrast of fields and regions: Coates, Lee & Ng 2011. No size is chosen for the
// data: a small image has smaller fields and fewer regions, and in a large one places stand further
// apart.
#ifndef REEF_VECTOR_FIELDS_H
#define REEF_VECTOR_FIELDS_H

#include "reef_config.h"

#define REEF_VECTOR_FIELD 7       // pixels on a side of a field
#define REEF_VECTOR_REGIONS 4     // on a side of the image
#define REEF_VECTOR_PLACES_MAX 32 // on a side of the image

/** One of the two sides of an image. */
typedef struct reef_vector_side {
    size_t pixels;  // of the image
    size_t field;   // pixels of a field
    size_t step;    // pixels from one place to the next
    size_t places;  // at which a field stands
    size_t regions; // that places lie in: place p in region p * regions / places
} reef_vector_side;

/** How an image is seen; all zero where vectors are none. */
typedef struct reef_vector_fields {
    reef_vector_side down, across;
    size_t values;  // of a field, down * across
    size_t regions; // R, of the image
    size_t filters; // rows of w_down and bias; the last one's experts may be fewer than R
} reef_vector_fields;

reef_vector_fields reef_vector_fields_of(const reef_config *config);

/**
 * Give filters the size with which each one's response has deviation 1 over the fields of some
 * images.
 *
 * filters  (filters, values + 1) w_down and bias, changed in place; the bias is not part of it
 * z        images in rows of rows * columns + 1 values, standardised
 */
void reef_vector_fields_scale(const reef_vector_fields *fields,
                              size_t rows,
                              float *filters,
                              const float *z);

/**
 * Experts 0 .. count - 1 of some images.
 *
 * hidden  (rows, stride) written: `count` values each; what lies beyond stays
 * z       as above
 */
void reef_vector_fields_hidden(const reef_vector_fields *fields,
                               size_t rows,
                               size_t count,
                               size_t stride,
                               float *hidden,
                               const float *filters,
                               const float *z);

#endif
