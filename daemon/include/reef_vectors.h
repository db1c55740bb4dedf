// Labelled vectors from files, as the byte stream of records that a vector model trains on.
//
// A spec says which file, and which of its examples in which order; it is also the name of the
// source in a pool, so equal specs mean equal streams:
//
//   idx:IMAGES[,LABELS]   IDX, plain or gzip; all values of an image are one vector
//   npy:X.npy[,Y.npy]     NumPy arrays in C order: X of shape (n, d) or (n, a, b, ...), Y of shape
//                         (n)
//   csv:FILE              a line per example, separated by commas, semicolons or tabs
//   jsonl:FILE            a line per example: {"vector": [0.5, 1], "label": 3}
//
// Options follow after a "?", joined by "&":
//
//   label=COLUMN     csv: a name from the header line or a number from 0; also first, last, none.
//                    Without it the last. npy without Y: first, last or none; without it none
//   names=A,B,C      csv: labels are these words, which stand for 0, 1, 2
//   header=yes|no    csv: whether the first line names the columns. Without it it does if no value
//                    beside the label is a number
//   scale=X          multiply every value by X, a number or a fraction such as 1/255. Without it
//                    unsigned bytes of idx and npy are pixels and become 0 to 1, other values stay
//   classes=0,1,4    only examples with these labels
//   shuffle=SEED     in an order drawn from the seed; otherwise in the order of the file
//   skip=N           leave out the first N of those chosen so far
//   first=N          and keep at most N
//   permute=SEED     exchange the places of a vector's values, for all examples alike. With several
//                    seeds (1,2,3) every example comes once in each permutation, one permutation
//                    after the other or, with shuffle, all mixed
//
// Unlabelled examples have the label -1. A label is a whole number, 0 or more.
#ifndef REEF_VECTORS_H
#define REEF_VECTORS_H

#include "reef_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REEF_VECTOR_WIDTH_MAX (1u << 20) // values of one vector

typedef struct reef_vectors reef_vectors;

/** Whether a source's text begins with one of the kinds above. */
REEF_API bool reef_vectors_is_spec(const char *spec);

/**
 * Open what `spec` names and check it: every line of a text file, sizes and labels of the others.
 *
 * inputs         values that a vector must have; 0: as many as there are
 * image_columns  as for reef_vectors_check_width
 *
 * Errors: INVALID a spec or file that is not as described above (the message names file and
 * position) or of another width; NOT_FOUND it cannot be read; CORRUPT a file that was cut or cannot
 * be unpacked; NO_MEMORY; IO. Threads: one at a time.
 */
REEF_API REEF_MUST_CHECK reef_status reef_vectors_open(
    reef_vectors **out, const char *spec, uint32_t inputs, uint32_t image_columns, reef_error *err);
REEF_API void reef_vectors_close(reef_vectors *vectors); // accepts NULL
/** Release what can be made again: a decompressed file. The next read decompresses it again. */
REEF_API void reef_vectors_rest(reef_vectors *vectors);

/** Values of one vector. */
REEF_API uint32_t reef_vectors_width(const reef_vectors *vectors);
/** Examples chosen; at least 1. */
REEF_API uint64_t reef_vectors_count(const reef_vectors *vectors);
/**
 * INVALID when a vector has not `inputs` values, or the file says that it is an image with other
 * rows than those of `image_columns` values, unless that is 0. The message says what to do.
 */
REEF_API REEF_MUST_CHECK reef_status reef_vectors_check_width(const reef_vectors *vectors,
                                                              uint32_t inputs,
                                                              uint32_t image_columns,
                                                              reef_error *err);

/**
 * Bytes of one record and of the whole stream: int32 label, then `width` floats, all little-endian.
 */
REEF_API size_t reef_vectors_record_bytes(const reef_vectors *vectors);
REEF_API uint64_t reef_vectors_stream_bytes(const reef_vectors *vectors);

/**
 * The next bytes of the stream from `offset` on, as many as fit and as there are.
 *
 * bytes  (room) written
 * count  written; 0 at the end
 *
 * Errors: INVALID a value that is not finite; CORRUPT the file is not what it was when it was
 * opened; IO.
 */
REEF_API REEF_MUST_CHECK reef_status reef_vectors_read_bytes(reef_vectors *vectors,
                                                             uint64_t offset,
                                                             uint8_t *bytes,
                                                             size_t room,
                                                             size_t *count,
                                                             reef_error *err);

/**
 * Examples `first` to `first + count - 1` of those chosen.
 *
 * values  (count, width) row-major, written
 * labels  (count) written; may be NULL
 */
REEF_API REEF_MUST_CHECK reef_status reef_vectors_read(reef_vectors *vectors,
                                                       uint64_t first,
                                                       size_t count,
                                                       float *values,
                                                       int32_t *labels,
                                                       reef_error *err);

#endif
