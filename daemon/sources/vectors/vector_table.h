// All examples of one file or pair of files, in the order in which they stand there; what a spec
// chooses of them, and in which order they are served, is for vectors.c.
//
// A table knows all labels. Vectors are read one at a time, from wherever they are.
#ifndef REEF_VECTOR_TABLE_H
#define REEF_VECTOR_TABLE_H

#include "gzip_file.h"
#include "reef_error.h"
#include "vector_spec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REEF_VECTOR_ROWS_MAX ((uint64_t)UINT32_MAX)

typedef enum reef_vector_element {
    REEF_VECTOR_U1,
    REEF_VECTOR_I1,
    REEF_VECTOR_U2,
    REEF_VECTOR_I2,
    REEF_VECTOR_U4,
    REEF_VECTOR_I4,
    REEF_VECTOR_U8,
    REEF_VECTOR_I8,
    REEF_VECTOR_F4,
    REEF_VECTOR_F8,
} reef_vector_element;

/** Numbers of one type in a file, as rows. */
typedef struct reef_vector_array {
    reef_vector_file file;
    reef_vector_element element;
    bool big_endian;
    uint64_t rows, columns; // columns: all dimensions but the first; 1 when there is only one
    uint64_t offset;        // of the first number
    uint64_t image[2];      // rows and columns of each row, where it has three dimensions; else 0
} reef_vector_array;

/** Lines of a text file. */
typedef struct reef_vector_lines {
    reef_vector_file file;
    uint64_t *starts; // (rows + 1) where the row's line begins; the last one: the end of the file
    uint64_t capacity;
    char *line; // the one read last, with a final zero
    size_t line_capacity;
} reef_vector_lines;

typedef struct reef_vector_table reef_vector_table;

/**
 * What a format makes of a line: its label and its vector. The line is changed.
 *
 * number  of the line, from 1, for messages
 * vector  (width) written, or NULL: then only checked, and the first one decides the table's width
 */
typedef reef_status (*reef_vector_parse)(reef_vector_table *table,
                                         char *line,
                                         uint64_t number,
                                         float *vector,
                                         int32_t *label,
                                         reef_error *err);

struct reef_vector_table {
    const reef_vector_spec *spec; // not owned
    uint64_t rows;
    size_t width;
    double scale, divisor; // a value is stored as value * scale / divisor
    int32_t *labels;       // (rows)
    /** Write the vector of one row. */
    reef_status (*read)(reef_vector_table *table, uint64_t row, float *vector, reef_error *err);
    // idx, npy
    reef_vector_array array;
    size_t column_first; // of the vector in an array's row: 1 when a label stands before it
    uint8_t *numbers;    // one row as it stands in the file
    // csv, jsonl
    reef_vector_lines lines;
    char separator;
    size_t label_column; // SIZE_MAX: none
    size_t field_count;  // csv: of every line
    char **fields;       // csv: (field_count) of one line
    char **names;        // csv: (name_count) labels that are words; NULL: labels are numbers
    size_t name_count;
    reef_vector_parse parse;
};

/**
 * Open and check the file or files of `spec`, which must live longer. Close it also when this
 * fails.
 */
REEF_MUST_CHECK reef_status reef_vector_table_open(reef_vector_table *table,
                                                   const reef_vector_spec *spec,
                                                   reef_error *err);
void reef_vector_table_close(reef_vector_table *table); // accepts the zeroed table
/** Forget what was unpacked until it is read again. */
void reef_vector_table_rest(reef_vector_table *table);

// ---- idx_npy.c ------------------------------------------------------------------------------

REEF_MUST_CHECK reef_status reef_vector_array_open(reef_vector_array *array,
                                                   const char *path,
                                                   bool npy,
                                                   reef_error *err);
/** Tables of idx and npy files. */
REEF_MUST_CHECK reef_status reef_vector_arrays_open(reef_vector_table *table, reef_error *err);
/** The same where table->array.file is open already. */
REEF_MUST_CHECK reef_status reef_vector_arrays_begin(reef_vector_table *table, reef_error *err);

// ---- text_table.c ------------------------------------------------------------------------------

/** The first line that is not blank, in lines->line, and its number. INVALID if there is none. */
REEF_MUST_CHECK reef_status reef_vector_lines_first(reef_vector_table *table,
                                                    uint64_t *number,
                                                    reef_error *err);
/**
 * Parse every line after number `skipped` once with table->parse, and remember labels and offsets.
 * Blank lines are not rows. From then on table->read parses the line of a row again.
 */
REEF_MUST_CHECK reef_status reef_vector_lines_scan(reef_vector_table *table,
                                                   uint64_t skipped,
                                                   reef_error *err);

// ---- csv.c, jsonl.c ----------------------------------------------------------------

REEF_MUST_CHECK reef_status reef_vector_csv_open(reef_vector_table *table, reef_error *err);
REEF_MUST_CHECK reef_status reef_vector_jsonl_open(reef_vector_table *table, reef_error *err);

/** Store a value, scaled. False if it is not a finite float. */
bool reef_vector_store(const reef_vector_table *table, double value, float *out);

#endif
