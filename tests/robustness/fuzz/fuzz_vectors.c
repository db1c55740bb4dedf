// Files of vectors: IDX, .npy, CSV and JSON Lines. Input: the kind, and options, as in a source
// ("csv?label=first", without the path) on the first line; then the file. A second file with
// labels, for idx and npy, follows after the bytes "\n--\n".
#include "fuzz.h"
#include "reef_vectors.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPEC_BYTES_MAX 1024
#define EXAMPLES_MAX 64 // that are read of a file
#define VALUES_MAX (1u << 16)

static const char SEPARATOR[] = "\n--\n";

static const uint8_t *find(const uint8_t *data, size_t size, const char *what, size_t bytes) {
    for (size_t i = 0; i + bytes <= size; i++)
        if (memcmp(data + i, what, bytes) == 0) return data + i;
    return NULL;
}

// What was opened can be read: values that are finite, records of one size, the same in any cut.
static void read_all(reef_vectors *vectors) {
    static float values[VALUES_MAX];
    static uint8_t whole[4 * VALUES_MAX], cut[4 * VALUES_MAX];
    reef_error err;
    int32_t labels[EXAMPLES_MAX];
    size_t width = reef_vectors_width(vectors), count = EXAMPLES_MAX, got, first;
    assert(width && reef_vectors_count(vectors));
    if (reef_vectors_count(vectors) < count) count = (size_t)reef_vectors_count(vectors);
    if (width * count > VALUES_MAX) return;
    reef_status status = reef_vectors_read(vectors, 0, count, values, labels, &err);
    if (status != REEF_OK) fuzz_failure(status, &err);
    for (size_t i = 0; status == REEF_OK && i < width * count; i++) assert(isfinite(values[i]));
    for (size_t i = 0; status == REEF_OK && i < count; i++) assert(labels[i] >= -1);
    reef_vectors_rest(vectors);
    if (reef_vectors_read_bytes(vectors, 0, whole, sizeof(whole), &got, &err) != REEF_OK) return;
    assert(reef_vectors_read_bytes(vectors, 0, cut, 7, &first, &err) == REEF_OK && first <= 7);
    assert(memcmp(whole, cut, first) == 0);
    assert(reef_vectors_read_bytes(vectors, first, cut + first, got - first, &first, &err) ==
           REEF_OK);
    assert(memcmp(whole, cut, got) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char *file, *labels;
    if (file == NULL) {
        file = fuzz_path("vectors");
        labels = fuzz_path("labels");
    }
    const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
    if (end == NULL || (size_t)(end - data) > SPEC_BYTES_MAX / 2) return 0;
    size_t kind = 0, spec_bytes = (size_t)(end - data);
    while (kind < spec_bytes && data[kind] != '?') kind++;
    if (memchr(data, 0, spec_bytes) != NULL) return 0;

    const uint8_t *body = end + 1, *stop = data + size;
    const uint8_t *second = find(body, (size_t)(stop - body), SEPARATOR, sizeof(SEPARATOR) - 1);
    fuzz_write(file, body, (size_t)((second != NULL ? second : stop) - body));
    if (second != NULL) {
        second += sizeof(SEPARATOR) - 1;
        fuzz_write(labels, second, (size_t)(stop - second));
    }
    char spec[SPEC_BYTES_MAX * 2];
    snprintf(spec, sizeof(spec), "%.*s:%s%s%s%.*s", (int)kind, (const char *)data, file,
             second != NULL ? "," : "", second != NULL ? labels : "", (int)(spec_bytes - kind),
             (const char *)data + kind);

    reef_vectors *vectors = NULL;
    reef_error err;
    if (!reef_vectors_is_spec(spec)) return 0; // reefd takes it for the name of a text
    reef_status status = reef_vectors_open(&vectors, spec, 0, 0, &err);
    assert((status == REEF_OK) == (vectors != NULL));
    if (status != REEF_OK)
        fuzz_failure(status, &err);
    else
        read_all(vectors);
    reef_vectors_close(vectors);
    return 0;
}
