// Vectors from JSON Lines: {"vector": [0.5, 1], "label": 3}. The label may be missing or null;
// other members are left alone.
#include "reef_vectors.h"
#include "vector_table.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

static reef_status bad_line(const reef_vector_table *table,
                            uint64_t number,
                            const char *why,
                            reef_error *err) {
    return reef_fail(err, REEF_ERR_INVALID, "'%.80s' line %" PRIu64 ": %.100s",
                     table->lines.file.path, number, why);
}

static reef_status take_vector(
    reef_vector_table *table, const json_t *vector, uint64_t number, float *out, reef_error *err) {
    size_t count = json_array_size(vector);
    if (!json_is_array(vector) || !count)
        return bad_line(table, number, "no \"vector\" that is a list of numbers", err);
    // The first line decides the width.
    if (!table->width && count <= REEF_VECTOR_WIDTH_MAX) table->width = count;
    if (count != table->width)
        return reef_fail(err, REEF_ERR_INVALID,
                         "'%.100s' line %" PRIu64 ": the vector has %zu values, but %zu are %s",
                         table->lines.file.path, number, count,
                         table->width ? table->width : (size_t)REEF_VECTOR_WIDTH_MAX,
                         table->width ? "what the lines before it have" : "the most there can be");
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(vector, i);
        float stored = 0;
        // A number that is not a finite float after scaling is refused like a word.
        if (!json_is_number(value) || !reef_vector_store(table, json_number_value(value), &stored))
            return reef_fail(err, REEF_ERR_INVALID,
                             "'%.100s' line %" PRIu64 ": value %zu (from 0) of the vector is not a "
                             "number that a float can hold",
                             table->lines.file.path, number, i);
        if (out != NULL) out[i] = stored;
    }
    return REEF_OK;
}

static reef_status take_object(reef_vector_table *table,
                               const json_t *object,
                               uint64_t number,
                               float *vector,
                               int32_t *label,
                               reef_error *err) {
    if (!json_is_object(object))
        return bad_line(table, number, "no object such as {\"vector\": [0.5, 1], \"label\": 3}",
                        err);
    const json_t *given = json_object_get(object, "label");
    *label = -1;
    // null and -1 both mean no label.
    if (given != NULL && !json_is_null(given) &&
        !(json_is_number(given) && reef_vector_label(json_number_value(given), label)))
        return bad_line(table, number,
                        "the label is not a whole number from 0 on, and neither null nor -1", err);
    return take_vector(table, json_object_get(object, "vector"), number, vector, err);
}

static reef_status parse_line(reef_vector_table *table,
                              char *line,
                              uint64_t number,
                              float *vector,
                              int32_t *label,
                              reef_error *err) {
    json_error_t fault;
    // Duplicate keys are refused: which one counts differs between parsers.
    json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, &fault);
    if (object == NULL) {
        char why[128];
        // A message may end in a log, which has nothing of what is trained on: "... near 'its
        // words'".
        char *near = strstr(fault.text, " near ");
        if (near != NULL) *near = '\0';
        snprintf(why, sizeof(why), "no JSON: %.60s, at byte %d", fault.text, fault.position);
        return bad_line(table, number, why, err);
    }
    reef_status status = take_object(table, object, number, vector, label, err);
    json_decref(object);
    return status;
}

reef_status reef_vector_jsonl_open(reef_vector_table *table, reef_error *err) {
    reef_status status = reef_vector_file_open(&table->lines.file, table->spec->path, err);
    if (status != REEF_OK) return status;
    table->parse = parse_line;
    return reef_vector_lines_scan(table, 0, err);
}
