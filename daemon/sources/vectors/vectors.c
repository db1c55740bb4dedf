// Which examples of a table are served, in which order, and as which bytes; see reef_vectors.h.
//
//   file order -> classes -> permutations -> shuffle -> skip -> first
//
// The record that was made last is kept, because reads of the stream are cut anywhere.
#include "reef_vectors.h"

#include "reef_random.h"
#include "vector_record.h"
#include "vector_spec.h"
#include "vector_table.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NO_RECORD UINT64_MAX
// Streams of random numbers below a spec's seeds.
#define STREAM_SHUFFLE 1
#define STREAM_PERMUTE 2

struct reef_vectors {
    reef_vector_spec spec;
    reef_vector_table table;
    uint64_t count;
    uint32_t *rows; // (count) of the table, in the order served; NULL: first_row and those after it
    uint64_t first_row;
    uint32_t *order;       // (permutations, width) value i of a vector is value order[i] in the
                           // file; NULL: i
    float *vector;         // (width) as it stands in the file
    float *values;         // (width) as it is served
    uint8_t *record;       // (record bytes)
    uint64_t record_index; // of the example in `record`, or NO_RECORD
};

bool reef_vectors_is_spec(const char *spec) {
    return reef_vector_kind_of(spec) != REEF_VECTOR_KIND_COUNT;
}

static size_t permutations(const reef_vectors *vectors) {
    return vectors->spec.permutes.count;
}

// ---- choosing -----------------------------------------------------------------------------------

static bool is_chosen(const reef_vector_spec *spec, int32_t label) {
    bool chosen = spec->classes.count == 0;
    for (size_t i = 0; i < spec->classes.count; i++)
        chosen |= label >= 0 && spec->classes.items[i] == (uint64_t)label;
    return chosen;
}

// Fisher and Yates: every order is as likely as every other.
static void shuffle(uint32_t *items, uint64_t count, uint64_t seed, uint64_t stream) {
    for (uint64_t i = count; i > 1; i--) {
        uint64_t k = reef_random_below(seed, stream, i, i);
        uint32_t last = items[i - 1];
        items[i - 1] = items[k];
        items[k] = last;
    }
}

// An entry is a row of the table, and counts rows * p more when permutation p is to be served.
static reef_status list_rows(reef_vectors *vectors, reef_error *err) {
    const reef_vector_table *table = &vectors->table;
    // Permuted copies follow each other: the whole file in one order of columns, then in the next.
    const size_t copies = permutations(vectors) > 1 ? permutations(vectors) : 1;
    // Entries are 32 bits, since there is one for each example in memory.
    if (table->rows > UINT32_MAX / copies)
        return reef_fail(err, REEF_ERR_INVALID,
                         "'%.120s' asks for %zu permutations of %" PRIu64
                         " examples, more than 2^32 in all: give fewer",
                         vectors->spec.text, copies, table->rows);
    vectors->rows = malloc((size_t)table->rows * copies * sizeof(*vectors->rows));
    if (vectors->rows == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to choose from %" PRIu64 " examples",
                         table->rows);
    vectors->count = 0;
    for (uint64_t p = 0; p < copies; p++)
        for (uint64_t row = 0; row < table->rows; row++)
            if (is_chosen(&vectors->spec, table->labels[row]))
                vectors->rows[vectors->count++] = (uint32_t)(table->rows * p + row);
    // The order depends on the seed alone.
    if (vectors->spec.shuffled)
        shuffle(vectors->rows, vectors->count, vectors->spec.shuffle, STREAM_SHUFFLE);
    return REEF_OK;
}

static reef_status choose_examples(reef_vectors *vectors, reef_error *err) {
    const reef_vector_spec *spec = &vectors->spec;
    vectors->count = vectors->table.rows;
    // Without a choice the rows are served in file order, and no list is made.
    if (spec->classes.count || spec->shuffled || permutations(vectors) > 1) {
        reef_status status = list_rows(vectors, err);
        if (status != REEF_OK) return status;
    }
    uint64_t found = vectors->count;
    // skip and first cut the stream after choosing and shuffling.
    vectors->first_row = spec->skip < found ? spec->skip : found;
    vectors->count -= vectors->first_row;
    if (vectors->count > spec->first) vectors->count = spec->first;
    // An empty stream is most likely a wrong class in the list.
    if (vectors->count) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "'%.120s' chooses no example: the file has %" PRIu64 ", and %" PRIu64
                     " of them have the requested classes; change classes, skip or first",
                     spec->text, vectors->table.rows, found);
}

static reef_status make_memory(reef_vectors *vectors, reef_error *err) {
    size_t width = vectors->table.width;
    vectors->vector = malloc(width * sizeof(*vectors->vector));
    vectors->values = malloc(width * sizeof(*vectors->values));
    vectors->record = malloc(reef_vectors_record_bytes(vectors));
    vectors->record_index = NO_RECORD;
    const reef_vector_list *permutes = &vectors->spec.permutes;
    // One permutation of columns for each seed.
    if (permutes->count) vectors->order = calloc(permutes->count * width, sizeof(*vectors->order));
    if (vectors->vector == NULL || vectors->values == NULL || vectors->record == NULL ||
        (permutes->count && vectors->order == NULL))
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a vector of %zu values", width);
    for (size_t p = 0; p < permutes->count; p++) {
        uint32_t *order = vectors->order + p * width;
        // Identity, then shuffled: the same seed gives the same order on any machine.
        for (size_t i = 0; i < width; i++) order[i] = (uint32_t)i;
        shuffle(order, width, permutes->items[p], STREAM_PERMUTE);
    }
    return REEF_OK;
}

// A file that does not say how its images lie is taken as it is.
static reef_status check_image(const reef_vectors *vectors,
                               uint32_t inputs,
                               uint32_t columns,
                               reef_error *err) {
    const uint64_t *image = vectors->table.array.image;
    if (columns == 0 || image[1] == 0 || image[1] == columns) return REEF_OK;
    return reef_fail(
        err, REEF_ERR_INVALID,
        "'%.100s' has images of %" PRIu64 " x %" PRIu64
        " values, but those of the pool are %" PRIu32 " x %" PRIu32
        ": give other data, or make a pool with --model vector --inputs %" PRIu64 "x%" PRIu64,
        vectors->spec.text, image[0], image[1], inputs / columns, columns, image[0], image[1]);
}

reef_status reef_vectors_check_width(const reef_vectors *vectors,
                                     uint32_t inputs,
                                     uint32_t image_columns,
                                     reef_error *err) {
    size_t width = vectors->table.width;
    if (width == inputs) return check_image(vectors, inputs, image_columns, err);
    return reef_fail(err, REEF_ERR_INVALID,
                     "'%.100s' has vectors of %zu values, but the pool takes %" PRIu32
                     ": give other data, or make a pool with --model vector --inputs %zu",
                     vectors->spec.text, width, inputs, width);
}

reef_status reef_vectors_open(reef_vectors **out,
                              const char *spec,
                              uint32_t inputs,
                              uint32_t image_columns,
                              reef_error *err) {
    *out = NULL;
    reef_vectors *vectors = calloc(1, sizeof(*vectors));
    if (vectors == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a source");
    reef_status status = reef_vector_spec_parse(&vectors->spec, spec, err);
    if (status == REEF_OK) status = reef_vector_table_open(&vectors->table, &vectors->spec, err);
    // Without a pool no width is given to compare with.
    if (status == REEF_OK && inputs)
        status = reef_vectors_check_width(vectors, inputs, image_columns, err);
    if (status == REEF_OK) status = choose_examples(vectors, err);
    if (status == REEF_OK) status = make_memory(vectors, err);
    if (status == REEF_OK) {
        *out = vectors;
        vectors = NULL; // the caller owns it now
    }
    reef_vectors_close(vectors);
    return status;
}

void reef_vectors_close(reef_vectors *vectors) {
    if (vectors == NULL) return;
    reef_vector_table_close(&vectors->table);
    reef_vector_spec_release(&vectors->spec);
    free(vectors->rows);
    free(vectors->order);
    free(vectors->vector);
    free(vectors->values);
    free(vectors->record);
    free(vectors);
}

void reef_vectors_rest(reef_vectors *vectors) {
    reef_vector_table_rest(&vectors->table);
}

// ---- what it is ---------------------------------------------------------------------------------

uint32_t reef_vectors_width(const reef_vectors *vectors) {
    return (uint32_t)vectors->table.width;
}

uint64_t reef_vectors_count(const reef_vectors *vectors) {
    return vectors->count;
}

size_t reef_vectors_record_bytes(const reef_vectors *vectors) {
    return reef_vector_record_size(vectors->table.width);
}

uint64_t reef_vectors_stream_bytes(const reef_vectors *vectors) {
    return vectors->count * reef_vectors_record_bytes(vectors);
}

// ---- reading ------------------------------------------------------------------------------------

static uint64_t row_of(const reef_vectors *vectors, uint64_t index) {
    uint64_t at = vectors->first_row + index;
    return vectors->rows != NULL ? vectors->rows[at] : at;
}

static reef_status read_one(
    reef_vectors *vectors, uint64_t index, float *values, int32_t *label, reef_error *err) {
    // The entry says which permutation and which row.
    const uint64_t entry = row_of(vectors, index);
    const uint64_t row = entry % vectors->table.rows;
    const size_t width = vectors->table.width, permutation = (size_t)(entry / vectors->table.rows);
    const uint32_t *order = vectors->order != NULL ? vectors->order + permutation * width : NULL;
    // A permuted vector is read aside first.
    float *from = order != NULL ? vectors->vector : values;
    reef_status status = vectors->table.read(&vectors->table, row, from, err);
    if (status != REEF_OK) return status;
    for (size_t i = 0; order != NULL && i < width; i++) values[i] = from[order[i]];
    *label = vectors->table.labels[row];
    return REEF_OK;
}

reef_status reef_vectors_read(reef_vectors *vectors,
                              uint64_t first,
                              size_t count,
                              float *values,
                              int32_t *labels,
                              reef_error *err) {
    // Callers cut to the stream's length.
    assert(first <= vectors->count && count <= vectors->count - first);
    reef_status status = REEF_OK;
    for (size_t i = 0; i < count && status == REEF_OK; i++) {
        int32_t label = -1;
        status = read_one(vectors, first + i, values + i * vectors->table.width, &label, err);
        if (labels != NULL) labels[i] = label;
    }
    return status;
}

static reef_status make_record(reef_vectors *vectors, uint64_t index, reef_error *err) {
    if (vectors->record_index == index) return REEF_OK;
    vectors->record_index = NO_RECORD;
    int32_t label = -1;
    reef_status status = read_one(vectors, index, vectors->values, &label, err);
    if (status != REEF_OK) return status;
    reef_vector_record_write(vectors->record, label, vectors->table.width, vectors->values);
    vectors->record_index = index;
    return REEF_OK;
}

reef_status reef_vectors_read_bytes(reef_vectors *vectors,
                                    uint64_t offset,
                                    uint8_t *bytes,
                                    size_t room,
                                    size_t *count,
                                    reef_error *err) {
    size_t record_bytes = reef_vectors_record_bytes(vectors);
    *count = 0;
    // Bytes may begin and end inside a record; each record is made once and copied from.
    while (*count < room && offset < reef_vectors_stream_bytes(vectors)) {
        reef_status status = make_record(vectors, offset / record_bytes, err);
        if (status != REEF_OK) return status;
        size_t at = (size_t)(offset % record_bytes), take = record_bytes - at;
        if (take > room - *count) take = room - *count;
        memcpy(bytes + *count, vectors->record + at, take);
        *count += take;
        offset += take;
    }
    return REEF_OK;
}
