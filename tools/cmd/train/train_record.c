// See train_record.h. The record is kept as JSON between two runs, with all digits, so that what
// was measured before an interruption can still be compared to the bit.
#include "train_record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void add_point(reef_train_record *record, reef_train_point point) {
    point.scores = reef_cli_alloc(record->domain_count, sizeof(*point.scores));
    for (size_t j = 0; j < record->domain_count; j++) point.scores[j].value = NAN;
    record->points[record->point_count++] = point;
}

void reef_train_record_init(reef_train_record *record,
                            const reef_train_stream *stream,
                            size_t domain_count,
                            const uint64_t *offsets,
                            size_t offset_count) {
    *record = (reef_train_record){.domain_count = domain_count};
    // At most one point before, one after each file, and the offsets of each.
    record->points =
        reef_cli_alloc(1 + stream->count * (1 + offset_count), sizeof(*record->points));
    // The first row is the model before any training.
    add_point(record, (reef_train_point){.row = true});
    for (size_t i = 0; i < stream->count; i++) {
        uint64_t start = stream->starts[i], end = stream->starts[i + 1];
        for (size_t k = 0; k < offset_count; k++)
            // Offsets behind the end of a short file are left out.
            if (start + offsets[k] < end)
                add_point(record, (reef_train_point){.file = i, .at = start + offsets[k]});
        // Row i is the state after file i.
        add_point(record, (reef_train_point){.row = true, .file = i + 1, .at = end});
    }
}

static void release_scores(reef_train_point *point, size_t count) {
    for (size_t j = 0; j < count; j++) free(point->scores[j].fire_share);
    free(point->scores);
}

void reef_train_record_release(reef_train_record *record) {
    for (size_t i = 0; i < record->point_count; i++)
        release_scores(&record->points[i], record->domain_count);
    for (size_t s = 0; s < record->sealed_count; s++) {
        free(record->sealed[s].then);
        free(record->sealed[s].now);
    }
    free(record->points);
    free(record->sealed);
    *record = (reef_train_record){0};
}

reef_train_sealed *reef_train_record_add_sealed(reef_train_record *record,
                                                uint32_t generation,
                                                uint64_t at) {
    // Generations are sealed rarely, so growing by one is enough.
    reef_train_sealed *grown = reef_cli_alloc(record->sealed_count + 1, sizeof(*grown));
    if (record->sealed_count > 0)
        memcpy(grown, record->sealed, record->sealed_count * sizeof(*grown));
    free(record->sealed);
    record->sealed = grown;
    reef_train_sealed *sealed = &record->sealed[record->sealed_count++];
    *sealed = (reef_train_sealed){.generation = generation,
                                  .at = at,
                                  .then = reef_cli_alloc(record->domain_count, sizeof(double)),
                                  .now = reef_cli_alloc(record->domain_count, sizeof(double))};
    // Not a number until it is measured.
    for (size_t j = 0; j < record->domain_count; j++) sealed->then[j] = sealed->now[j] = NAN;
    return sealed;
}

// ---- as JSON ------------------------------------------------------------------------------------

static json_t *reals_json(const double *values, size_t count) {
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++) json_array_append_new(array, reef_cli_real(values[i]));
    return array;
}

static json_t *point_json(const reef_train_point *point, size_t domains) {
    json_t *values = json_array(), *shares = json_array();
    for (size_t j = 0; j < domains; j++) {
        const reef_eval_score *score = &point->scores[j];
        json_array_append_new(values, reef_cli_real(score->value));
        json_array_append_new(shares, reals_json(score->fire_share, score->generation_count));
    }
    return json_pack("{s:s, s:I, s:I, s:o, s:o, s:o}", "kind", point->row ? "row" : "transient",
                     "file", (json_int_t)point->file, "at", (json_int_t)point->at, "seconds",
                     reef_cli_real(point->seconds), "values", values, "fire_share", shares);
}

json_t *reef_train_record_json(const reef_train_record *record) {
    json_t *points = json_array(), *sealed = json_array();
    for (size_t i = 0; i < record->point_count; i++)
        // Only what was measured is stored: the plan has the rest.
        if (record->points[i].done)
            json_array_append_new(points, point_json(&record->points[i], record->domain_count));
    for (size_t s = 0; s < record->sealed_count; s++) {
        const reef_train_sealed *one = &record->sealed[s];
        json_array_append_new(sealed,
                              json_pack("{s:I, s:I, s:o, s:o}", "generation",
                                        (json_int_t)one->generation, "at", (json_int_t)one->at,
                                        "then", reals_json(one->then, record->domain_count), "now",
                                        reals_json(one->now, record->domain_count)));
    }
    // Everything needed to continue the run in another process.
    return json_pack("{s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "pool_unix_ms",
                     (json_int_t)record->pool_unix_ms, "first_generation",
                     (json_int_t)record->first_generation, "stream_base",
                     (json_int_t)record->stream_base, "placed_from",
                     (json_int_t)record->placed_from, "seconds", reef_cli_real(record->seconds),
                     "cpu_seconds", reef_cli_real(record->cpu_seconds), "seconds_measuring",
                     reef_cli_real(record->seconds_measuring), "points", points, "sealed", sealed);
}

static void reals_read(const json_t *array, double *values, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(array, i);
        values[i] = json_is_number(value) ? json_number_value(value) : NAN;
    }
}

static void score_read(reef_eval_score *score, const json_t *value, const json_t *shares) {
    free(score->fire_share);
    score->value = json_is_number(value) ? json_number_value(value) : NAN;
    score->generation_count = (uint32_t)json_array_size(shares);
    score->fire_share = reef_cli_alloc(score->generation_count, sizeof(double));
    reals_read(shares, score->fire_share, score->generation_count);
}

static reef_train_point *find_point(reef_train_record *record, const json_t *object) {
    const char *kind = json_string_value(json_object_get(object, "kind"));
    json_int_t at = json_integer_value(json_object_get(object, "at"));
    json_int_t file = json_integer_value(json_object_get(object, "file"));
    for (size_t i = 0; kind != NULL && i < record->point_count; i++) {
        reef_train_point *point = &record->points[i];
        if ((json_int_t)point->at == at && (json_int_t)point->file == file &&
            point->row == (strcmp(kind, "row") == 0))
            return point;
    }
    return NULL;
}

reef_status reef_train_record_restore(reef_train_record *record,
                                      const json_t *measured,
                                      reef_error *err) {
    size_t index;
    const json_t *object;
    // Points are found by position, since the file may have been edited.
    json_array_foreach(json_object_get(measured, "points"), index, object) {
        reef_train_point *point = find_point(record, object);
        const json_t *values = json_object_get(object, "values");
        const json_t *shares = json_object_get(object, "fire_share");
        // Another set of domains, or a damaged file.
        if (point == NULL || json_array_size(values) != record->domain_count)
            return reef_fail(err, REEF_ERR_INVALID,
                             "measurement %zu is of no point of this run; choose another --results",
                             index);
        for (size_t j = 0; j < record->domain_count; j++)
            score_read(&point->scores[j], json_array_get(values, j), json_array_get(shares, j));
        point->seconds = json_number_value(json_object_get(object, "seconds"));
        point->done = true;
    }
    json_array_foreach(json_object_get(measured, "sealed"), index, object) {
        // Appended in the order of the file, which is that of sealing.
        reef_train_sealed *sealed = reef_train_record_add_sealed(
            record, (uint32_t)json_integer_value(json_object_get(object, "generation")),
            (uint64_t)json_integer_value(json_object_get(object, "at")));
        reals_read(json_object_get(object, "then"), sealed->then, record->domain_count);
        reals_read(json_object_get(object, "now"), sealed->now, record->domain_count);
    }
    // Members that are missing read as zero.
    record->first_generation =
        (uint32_t)json_integer_value(json_object_get(measured, "first_generation"));
    record->stream_base = (uint64_t)json_integer_value(json_object_get(measured, "stream_base"));
    record->placed_from = (uint64_t)json_integer_value(json_object_get(measured, "placed_from"));
    record->seconds = json_number_value(json_object_get(measured, "seconds"));
    record->cpu_seconds = json_number_value(json_object_get(measured, "cpu_seconds"));
    record->seconds_measuring = json_number_value(json_object_get(measured, "seconds_measuring"));
    return REEF_OK;
}

void reef_train_record_position(reef_train_record *record, const reef_train_stream *stream) {
    // The pool holds only these files, or none of them: then an earlier run's values hold, or none
    // are needed.
    bool plain = stream->base == 0 || stream->at == 0;
    if (plain)
        record->placed_from = 0;
    else if (record->stream_base != stream->base)
        record->placed_from = stream->at;
    record->stream_base = stream->base;
}

// The plan is what two runs must have in common to continue one another.
json_t *reef_train_plan_json(const reef_train_stream *stream,
                             const reef_eval_set *set,
                             const reef_train_record *record) {
    json_t *files = json_array(), *domains = json_array(), *at = json_array();
    // Sizes are part of it: a file that grew is another stream.
    for (size_t i = 0; i < stream->count; i++)
        json_array_append_new(
            files, json_pack("{s:o, s:I, s:I}", "file", reef_cli_path(stream->files[i].name),
                             "bytes", (json_int_t)(stream->starts[i + 1] - stream->starts[i]),
                             "starts_at", (json_int_t)stream->starts[i]));
    for (size_t j = 0; j < set->count; j++)
        json_array_append_new(domains, json_pack("{s:o, s:o, s:I}", "name",
                                                 reef_cli_path(set->domains[j].name), "file",
                                                 reef_cli_path(set->domains[j].path), "bytes",
                                                 (json_int_t)set->domains[j].file.count));
    for (size_t i = 0; i < record->point_count; i++)
        // Only the points between rows: the rows follow from the files.
        if (!record->points[i].row)
            json_array_append_new(at, json_integer((json_int_t)record->points[i].at));
    return json_pack("{s:o, s:o, s:o}", "files", files, "domains", domains, "transients_at", at);
}
