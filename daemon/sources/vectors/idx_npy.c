// Vectors as numbers in a row: IDX (the format of MNIST) and NumPy's .npy.
//
//   IDX   offset 0  two zero bytes        NPY   offset 0  \x93 N U M P Y
//                2  type                             6  version, two bytes: 1.0, 2.0 or 3.0
//                3  number of dimensions             8  bytes of the header: u16, from 2.0 on u32
//                4  a u32 per dimension                 the header: a Python dict as text
//                   numbers; all big-endian             numbers; descr says which, and their order
#include "reef_vectors.h"
#include "vector_table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define IDX_DIMENSIONS_MAX 8
#define NPY_HEADER_BYTES_MAX 65536
#define NPY_MAGIC_BYTES 6
#define LABELS_AT_ONCE 4096
#define PIXEL_MAX 255

static size_t element_bytes(reef_vector_element element) {
    static const uint8_t BYTES[] = {1, 1, 2, 2, 4, 4, 8, 8, 4, 8};
    return BYTES[element];
}

// Rows and columns from dimensions; false when they are beyond our bounds.
static bool take_shape(reef_vector_array *array, size_t count, const uint64_t *dimensions) {
    array->rows = dimensions[0];
    array->columns = 1;
    for (size_t i = 1; i < count; i++) {
        if (dimensions[i] && array->columns > REEF_VECTOR_WIDTH_MAX / dimensions[i]) return false;
        array->columns *= dimensions[i];
    }
    for (size_t i = 0; count == 3 && i < 2; i++) array->image[i] = dimensions[1 + i];
    return array->rows <= REEF_VECTOR_ROWS_MAX;
}

static reef_status too_large(const char *path, reef_error *err) {
    return reef_fail(err, REEF_ERR_INVALID,
                     "'%.100s' has sizes beyond %" PRIu64 " examples of %u values, or is damaged",
                     path, REEF_VECTOR_ROWS_MAX, REEF_VECTOR_WIDTH_MAX);
}

static reef_status check_size(const reef_vector_array *array, reef_error *err) {
    const char *path = array->file.path;
    // Rows and columns are bounded by take_shape, so the product fits in 64 bits.
    uint64_t wanted = array->offset + array->rows * array->columns * element_bytes(array->element);
    // An empty array is refused here, and not at the first read.
    if (!array->rows || !array->columns)
        return reef_fail(err, REEF_ERR_INVALID,
                         "'%.160s' holds no numbers: its header has a dimension of 0", path);
    // The exact size: a file with bytes left over has another type or shape than its header says.
    if (array->file.bytes == wanted) return REEF_OK;
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "'%.100s' has %" PRIu64 " bytes, but %" PRIu64 " x %" PRIu64
                     " numbers of %zu bytes after its header make %" PRIu64 ": the file %s",
                     path, array->file.bytes, array->rows, array->columns,
                     element_bytes(array->element), wanted,
                     array->file.bytes < wanted ? "was cut" : "has something after them");
}

// ---- IDX ----------------------------------------------------------------------------------------

static bool idx_element(uint8_t type, reef_vector_element *element) {
    // The type codes of the IDX format (LeCun's MNIST page).
    switch (type) {
    case 0x08:
        *element = REEF_VECTOR_U1;
        return true;
    case 0x09:
        *element = REEF_VECTOR_I1;
        return true;
    case 0x0b:
        *element = REEF_VECTOR_I2;
        return true;
    case 0x0c:
        *element = REEF_VECTOR_I4;
        return true;
    case 0x0d:
        *element = REEF_VECTOR_F4;
        return true;
    case 0x0e:
        *element = REEF_VECTOR_F8;
        return true;
    default:
        return false;
    }
}

static reef_status not_idx(const char *path, const uint8_t *magic, reef_error *err) {
    return reef_fail(
        err, REEF_ERR_INVALID,
        "'%.120s' is not an IDX file: it begins with %02x %02x %02x %02x, not with 00 00, a "
        "type from 08 to 0e and a number of dimensions",
        path, magic[0], magic[1], magic[2], magic[3]);
}

static reef_status read_idx_header(reef_vector_array *array, reef_error *err) {
    uint8_t header[4 + 4 * IDX_DIMENSIONS_MAX] = {0};
    reef_vector_file *file = &array->file;
    // Two zero bytes, a type, and the number of dimensions.
    if (file->bytes < 4)
        return reef_fail(err, REEF_ERR_CORRUPT, "'%.120s' has only %" PRIu64 " bytes: no IDX file",
                         file->path, file->bytes);
    reef_status status = reef_vector_file_read(file, 0, header, 4, err);
    if (status != REEF_OK) return status;
    size_t dimensions = header[3];
    if (header[0] || header[1] || !idx_element(header[2], &array->element) || !dimensions ||
        dimensions > IDX_DIMENSIONS_MAX)
        return not_idx(file->path, header, err);
    // Each dimension is four bytes; the data follows at once.
    array->offset = 4 + 4 * dimensions;
    if (file->bytes < array->offset)
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "'%.120s' was cut: it ends in the middle of its header", file->path);
    status = reef_vector_file_read(file, 4, header + 4, 4 * dimensions, err);
    if (status != REEF_OK) return status;
    // Sizes are big-endian, and so are the values.
    uint64_t sizes[IDX_DIMENSIONS_MAX];
    for (size_t i = 0; i < dimensions; i++) {
        const uint8_t *at = header + 4 + 4 * i;
        sizes[i] = (uint64_t)at[0] << 24 | (uint64_t)at[1] << 16 | (uint64_t)at[2] << 8 | at[3];
    }
    array->big_endian = true;
    return take_shape(array, dimensions, sizes) ? REEF_OK : too_large(file->path, err);
}

// ---- NPY ----------------------------------------------------------------------------------------

static reef_status npy_unfit(const char *path, const char *why, reef_error *err) {
    return reef_fail(err, REEF_ERR_INVALID, "'%.120s' cannot be read as a .npy file: %s", path,
                     why);
}

// The text after 'key': in the dict, or NULL.
static const char *npy_value(const char *dict, const char *key) {
    const char *at = strstr(dict, key);
    if (at == NULL) return NULL;
    at += strlen(key);
    at += strspn(at, " ");
    if (*at != ':') return NULL;
    at++;
    return at + strspn(at, " ");
}

static bool npy_element(const char *type, reef_vector_element *element) {
    static const char *const TYPES[] = {"u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"};
    for (int i = 0; i <= REEF_VECTOR_F8; i++)
        if (strncmp(type, TYPES[i], 2) == 0 && (type[2] == '\'' || type[2] == '"')) {
            *element = (reef_vector_element)i;
            return true;
        }
    return false;
}

static reef_status take_descr(reef_vector_array *array, const char *descr, reef_error *err) {
    // numpy writes '<f4': byte order, kind and size.
    bool quoted = descr != NULL && (*descr == '\'' || *descr == '"');
    bool ordered = quoted && descr[1] && strchr("<>|=", descr[1]) != NULL;
    if (ordered && npy_element(descr + 2, &array->element)) {
        array->big_endian = descr[1] == '>';
        return REEF_OK;
    }
    return reef_fail(err, REEF_ERR_INVALID,
                     "'%.100s' holds numbers of type %.*s: known are whole numbers of 1 to 8 bytes "
                     "and floats of 4 and 8; convert it with numpy's astype('float32')",
                     array->file.path, descr != NULL ? (int)strcspn(descr, ",}") : 0,
                     descr != NULL ? descr : "");
}

// "(60000, 28, 28)"
static reef_status take_npy_shape(reef_vector_array *array, const char *shape, reef_error *err) {
    uint64_t sizes[IDX_DIMENSIONS_MAX];
    size_t count = 0;
    // A Python tuple of at most a few numbers; one dimension has a comma and nothing behind it.
    if (shape != NULL && *shape == '(') {
        for (shape++; count < IDX_DIMENSIONS_MAX && *shape >= '0' && *shape <= '9'; count++) {
            char *end = NULL;
            sizes[count] = strtoull(shape, &end, 10);
            shape = end + strspn(end, ", ");
        }
    }
    if (!count || *shape != ')')
        return npy_unfit(array->file.path, "its shape is not a list of sizes such as (60000, 784)",
                         err);
    return take_shape(array, count, sizes) ? REEF_OK : too_large(array->file.path, err);
}

static reef_status take_dict(reef_vector_array *array, const char *dict, reef_error *err) {
    const char *order = npy_value(dict, "'fortran_order'");
    if (order == NULL || (strncmp(order, "True", 4) != 0 && strncmp(order, "False", 5) != 0))
        return npy_unfit(array->file.path, "its header does not say in which order it is", err);
    if (order[0] == 'T')
        return npy_unfit(array->file.path,
                         "it is in Fortran order; save it again after numpy's ascontiguousarray",
                         err);
    reef_status status = take_descr(array, npy_value(dict, "'descr'"), err);
    if (status == REEF_OK) status = take_npy_shape(array, npy_value(dict, "'shape'"), err);
    return status;
}

static reef_status read_npy_header(reef_vector_array *array, reef_error *err) {
    reef_vector_file *file = &array->file;
    uint8_t header[12] = {0};
    // A file shorter than the largest header is read as far as it goes.
    size_t got = file->bytes < sizeof(header) ? (size_t)file->bytes : sizeof(header);
    reef_status status = reef_vector_file_read(file, 0, header, got, err);
    if (status != REEF_OK) return status;
    if (got < sizeof(header) || memcmp(header, "\x93NUMPY", NPY_MAGIC_BYTES) != 0)
        return npy_unfit(file->path, "it does not begin with \\x93NUMPY", err);
    // Version 1 has a 16-bit header length, 2 and 3 have 32 bits.
    if (header[6] < 1 || header[6] > 3)
        return npy_unfit(file->path, "its version is none of 1.0, 2.0 and 3.0", err);
    uint64_t bytes = (uint64_t)header[8] | (uint64_t)header[9] << 8;
    if (header[6] > 1) bytes |= (uint64_t)header[10] << 16 | (uint64_t)header[11] << 24;
    uint64_t begin = header[6] > 1 ? 12 : 10;
    // A bound before the header is read into memory.
    if (bytes > NPY_HEADER_BYTES_MAX || begin + bytes > file->bytes)
        return reef_fail(err, REEF_ERR_CORRUPT, "'%.120s' was cut or damaged in its header",
                         file->path);
    // The header is a Python dictionary as text; only three of its members matter.
    char *dict = calloc((size_t)bytes + 1, 1);
    if (dict == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a header");
    status = reef_vector_file_read(file, begin, dict, (size_t)bytes, err);
    if (status == REEF_OK) status = take_dict(array, dict, err);
    free(dict);
    array->offset = begin + bytes;
    return status;
}

static reef_status read_header(reef_vector_array *array, bool npy, reef_error *err) {
    reef_status status = npy ? read_npy_header(array, err) : read_idx_header(array, err);
    return status == REEF_OK ? check_size(array, err) : status;
}

reef_status reef_vector_array_open(reef_vector_array *array,
                                   const char *path,
                                   bool npy,
                                   reef_error *err) {
    *array = (reef_vector_array){0};
    reef_status status = reef_vector_file_open(&array->file, path, err);
    if (status != REEF_OK) return status;
    status = read_header(array, npy, err);
    if (status != REEF_OK) reef_vector_file_close(&array->file);
    return status;
}

// ---- numbers ------------------------------------------------------------------------------------

static double idx_npy_number(const reef_vector_array *array, const uint8_t *at) {
    // Any byte order becomes one 64-bit number first; then the type says what it means.
    size_t bytes = element_bytes(array->element);
    uint64_t bits = 0;
    for (size_t i = 0; i < bytes; i++)
        bits |= (uint64_t)at[array->big_endian ? bytes - 1 - i : i] << 8 * i;
    uint32_t low = (uint32_t)bits;
    float single;
    double twice;
    // Unsigned types are the number itself.
    switch (array->element) {
    case REEF_VECTOR_I1:
        return (int8_t)bits;
    case REEF_VECTOR_I2:
        return (int16_t)bits;
    case REEF_VECTOR_I4:
        return (int32_t)bits;
    case REEF_VECTOR_I8:
        return (double)(int64_t)bits;
    case REEF_VECTOR_F4:
        memcpy(&single, &low, sizeof(single));
        return (double)single;
    case REEF_VECTOR_F8:
        memcpy(&twice, &bits, sizeof(twice));
        return twice;
    default:
        return (double)bits;
    }
}

static reef_status read_row(reef_vector_table *table,
                            uint64_t row,
                            float *vector,
                            reef_error *err) {
    reef_vector_array *array = &table->array;
    // The whole row is read, even where its first or last column is a label.
    size_t size = element_bytes(array->element), row_bytes = (size_t)array->columns * size;
    reef_status status = reef_vector_file_read(&array->file, array->offset + row * row_bytes,
                                               table->numbers, row_bytes, err);
    if (status != REEF_OK) return status;
    const uint8_t *at = table->numbers + table->column_first * size;
    for (size_t i = 0; i < table->width; i++) {
        double value = idx_npy_number(array, at + i * size);
        // After scaling a value may be infinite or not a number.
        if (!reef_vector_store(table, value, &vector[i]))
            return reef_fail(err, REEF_ERR_INVALID,
                             "'%.120s': value %zu of example %" PRIu64
                             " (both from 0) is %g, which "
                             "is not a finite float",
                             array->file.path, i, row, value);
    }
    return REEF_OK;
}

// ---- labels -------------------------------------------------------------------------------------

static reef_status take_label(reef_vector_table *table,
                              const reef_vector_array *array,
                              uint64_t row,
                              double value,
                              reef_error *err) {
    if (reef_vector_label(value, &table->labels[row])) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "'%.120s': label %" PRIu64 " (from 0) is %g: a label is a whole number from 0 "
                     "to %d, or -1 for none",
                     array->file.path, row, value, INT32_MAX);
}

// Labels from one column of an array: one at a time or, if the array has no other column, many at
// once.
static reef_status read_labels(reef_vector_table *table,
                               reef_vector_array *array,
                               size_t column,
                               reef_error *err) {
    uint8_t bytes[LABELS_AT_ONCE * sizeof(double)];
    size_t size = element_bytes(array->element), row_bytes = (size_t)array->columns * size;
    reef_status status = REEF_OK;
    for (uint64_t row = 0; row < table->rows && status == REEF_OK;) {
        // A file with one column has its labels side by side and is read in pieces; otherwise one
        // per row.
        uint64_t left = table->rows - row, most = array->columns == 1 ? LABELS_AT_ONCE : 1;
        size_t count = (size_t)(left < most ? left : most);
        uint64_t at = array->offset + row * row_bytes + column * size;
        status = reef_vector_file_read(&array->file, at, bytes, count * size, err);
        for (size_t i = 0; i < count && status == REEF_OK; i++)
            status = take_label(table, array, row++, idx_npy_number(array, bytes + i * size), err);
    }
    return status;
}

static reef_status open_labels(reef_vector_table *table, reef_error *err) {
    const reef_vector_spec *spec = table->spec;
    reef_vector_array array;
    reef_status status =
        reef_vector_array_open(&array, spec->labels, spec->kind == REEF_VECTOR_NPY, err);
    if (status != REEF_OK) return status;
    // Labels and examples must match in number, or every row after the first gap would have a wrong
    // label.
    if (array.columns != 1)
        status = reef_fail(err, REEF_ERR_INVALID,
                           "'%.100s' has %" PRIu64 " numbers per example: labels are one each (are "
                           "the two files of '%.60s' the wrong way round?)",
                           spec->labels, array.columns, spec->text);
    else if (array.rows != table->rows)
        status = reef_fail(err, REEF_ERR_INVALID,
                           "'%.90s' has %" PRIu64 " examples, but '%.90s' has %" PRIu64
                           " labels: they do not belong together",
                           spec->path, table->rows, spec->labels, array.rows);
    if (status == REEF_OK) status = read_labels(table, &array, 0, err);
    reef_vector_file_close(&array.file);
    return status;
}

// npy without a file of labels: in a column, or none.
static reef_status choose_label_column(reef_vector_table *table, reef_error *err) {
    // Arrays have no column names; a label may be the first or the last.
    const char *label = table->spec->label;
    table->label_column = SIZE_MAX;
    if (label == NULL || strcmp(label, "none") == 0) return REEF_OK;
    if (strcmp(label, "first") == 0) {
        table->label_column = 0;
        table->column_first = 1;
    } else if (strcmp(label, "last") == 0) {
        table->label_column = table->width - 1;
    } else {
        return reef_fail(err, REEF_ERR_INVALID,
                         "'label=%.60s' in '%.100s' is not first, last or none", label,
                         table->spec->text);
    }
    // Taking the only column as a label would leave no vector.
    if (table->width < 2)
        return reef_fail(err, REEF_ERR_INVALID,
                         "'%.160s' has one number per example: a label would leave no vector",
                         table->spec->path);
    table->width--;
    return REEF_OK;
}

reef_status reef_vector_arrays_open(reef_vector_table *table, reef_error *err) {
    reef_status status = reef_vector_file_open(&table->array.file, table->spec->path, err);
    return status == REEF_OK ? reef_vector_arrays_begin(table, err) : status;
}

reef_status reef_vector_arrays_begin(reef_vector_table *table, reef_error *err) {
    const reef_vector_spec *spec = table->spec;
    reef_vector_array *array = &table->array;
    reef_status status = read_header(array, spec->kind == REEF_VECTOR_NPY, err);
    if (status != REEF_OK) return status;
    table->read = read_row;
    table->rows = array->rows;
    table->width = (size_t)array->columns;
    // Bytes are pixels unless a scale was given: divided by 255, they fill 0 to 1.
    if (!spec->scaled && array->element == REEF_VECTOR_U1) table->divisor = PIXEL_MAX;
    status = choose_label_column(table, err);
    if (status != REEF_OK) return status;
    table->numbers = malloc((size_t)array->columns * element_bytes(array->element));
    table->labels = malloc((size_t)table->rows * sizeof(*table->labels));
    if (table->numbers == NULL || table->labels == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the labels of '%.160s'",
                         spec->path);
    // No label, until labels are read.
    for (uint64_t row = 0; row < table->rows; row++) table->labels[row] = -1;
    if (spec->labels != NULL) return open_labels(table, err);
    return table->label_column == SIZE_MAX ? REEF_OK
                                           : read_labels(table, array, table->label_column, err);
}
