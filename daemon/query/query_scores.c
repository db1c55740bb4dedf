// Queries of the query thread; see query_thread.h. Each is a short read of the pool, or one pass of
// the model over a text whose size the routes have bounded.
#include "query_thread.h"

#include "reef_log.h"
#include "reef_pool_json.h"
#include "reef_scored_lines.h"
#include "reef_snapshot.h"
#include "reef_timeline_json.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GENERATE_BYTES_DEFAULT 256
#define GENERATE_BYTES_MAX 4096
#define LINES_MAX 65536 // of a body that is scored: each is reported by itself
#define EVENTS_DEFAULT 100
#define POINTS_DEFAULT 500
#define COUNT_MAX 100000

reef_status reef_query_count(const reef_query *query,
                             const char *name,
                             uint64_t fallback,
                             uint64_t least,
                             uint64_t most,
                             uint64_t *out,
                             reef_error *err) {
    const char *text = json_string_value(json_object_get(query->arguments, name));
    *out = fallback;
    // Not given: the fallback.
    if (text == NULL) return REEF_OK;
    char *end = NULL;
    unsigned long long value = strtoull(text, &end, 10);
    // Like the command line: a whole number, nothing before or after it.
    if (text[0] < '0' || text[0] > '9' || *end || value < least || value > most)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%s=%.40s is not a whole number from %" PRIu64 " to %" PRIu64, name, text,
                         least, most);
    *out = value;
    return REEF_OK;
}

// The reply says which state it is, also where a moment was asked for.
static reef_status model_of(reef_query_thread *queries,
                            reef_query *query,
                            reef_model **model,
                            reef_error *err) {
    reef_status status = REEF_OK;
    if (query->lent != NULL)
        *model = query->lent; // of now
    else
        status = reef_query_thread_model(queries, query->as_of, model, err);
    if (status == REEF_OK && query->lent == NULL)
        snprintf(query->as_of, sizeof(query->as_of), "%s", reef_query_thread_state(queries));
    return status;
}

static void set_state(json_t *object, const reef_query *query, const reef_model *model) {
    json_object_set_new(object, "as_of", reef_json_text(query->as_of));
    json_object_set_new(object, "commit", reef_json_count(reef_model_commit(model)->number));
    size_t count;
    const reef_lost_kind *lost = reef_model_lost_kinds(model, &count);
    if (count == 0) return;
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(
            list, json_pack("{s:o, s:o, s:s}", "kind", reef_json_count(lost[i].kind), "whole_to",
                            reef_json_count(lost[i].whole_to), "what", lost[i].what));
    json_object_set_new(object, "lost_kinds", list);
}

// ---- score --------------------------------------------------------------------------------------

// One record a line; the end of a line is predicted, too, and belongs to it.
static reef_status set_records(json_t *object,
                               const reef_line_scorer *scorer,
                               const reef_query *query,
                               const float *bits,
                               size_t line_count,
                               reef_error *err) {
    reef_scored_line *lines = malloc(line_count * sizeof(*lines));
    if (lines == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu lines", line_count);
    json_t *records = json_array();
    reef_lines_score(scorer, query->body, bits, query->body_bytes, lines);
    for (size_t i = 0; i < line_count; i++) {
        const reef_scored_line *l = &lines[i];
        json_array_append_new(records, json_pack("{s:I, s:I, s:o, s:o, s:o}", "offset",
                                                 (json_int_t)l->offset, "bytes",
                                                 (json_int_t)(l->bytes + l->ended), "bits",
                                                 reef_json_number(l->bits), "bits_per_byte",
                                                 reef_json_number(reef_scored_line_rate(l)),
                                                 "score", reef_json_number(l->score)));
    }
    free(lines);
    json_object_set_new(object, "records", records);
    return REEF_OK;
}

static json_t *surprise_json(size_t count, const float *bits) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, reef_json_number((double)bits[i]));
    return list;
}

// `frozen` of a request: an argument, or of a body false, true or "alone"; NULL: not given.
static reef_status reading_of(const json_t *frozen, reef_memory_reading *out, reef_error *err) {
    static const char *const WORDS[] = {"0", "1", "alone"};
    const char *text = json_is_string(frozen)                    ? json_string_value(frozen)
                       : json_is_true(frozen)                    ? "1"
                       : json_is_false(frozen) || frozen == NULL ? "0"
                                                                 : "";
    for (*out = REEF_READ_ADAPTING; *out <= REEF_READ_ALONE; ++*out)
        if (strcmp(text, WORDS[*out]) == 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "frozen is not 0, 1 or alone (in JSON false, true or \"alone\")");
}

reef_status reef_query_score(reef_query_thread *queries, reef_query *query, reef_error *err) {
    reef_model *model;
    const reef_line_scorer *scorer;
    reef_score score = {0};
    // A single byte has nothing that could be predicted from it.
    if (query->body_bytes < 2)
        return reef_fail(err, REEF_ERR_INVALID,
                         "the body has %zu bytes: a loss needs a byte to predict and one before it",
                         query->body_bytes);
    const size_t lines = reef_lines_count(query->body, query->body_bytes);
    // The reply has an object per line; a body of newlines would be mostly JSON.
    if (lines > LINES_MAX)
        return reef_fail(err, REEF_ERR_INVALID,
                         "the body has %zu lines; at most %d are scored at once", lines, LINES_MAX);
    uint64_t per_byte;
    reef_memory_reading reading;
    reef_status status = reef_query_count(query, "per_byte", 0, 0, 1, &per_byte, err);
    if (status == REEF_OK)
        status = reading_of(json_object_get(query->arguments, "frozen"), &reading, err);
    if (status == REEF_OK) status = model_of(queries, query, &model, err);
    if (status != REEF_OK) return status;
    float *bits = malloc(query->body_bytes * sizeof(*bits));
    if (bits == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to score %zu bytes",
                         query->body_bytes);
    // The model is kept for the next query, which sets this again.
    reef_model_set_reading(model, reading);
    // The body is one text, and its gates read it as a stream.
    status = reef_model_score(model, query->body, query->body_bytes, bits, &score, NULL, NULL, err);
    if (status == REEF_OK) status = reef_model_line_scorer(model, &scorer, err);
    if (status == REEF_OK) {
        query->result = json_object();
        set_state(query->result, query, model);
        json_object_set_new(query->result, "bytes", reef_json_count(score.bytes));
        json_object_set_new(query->result, "bits", reef_json_number(score.bits));
        json_object_set_new(query->result, "bits_per_byte", reef_json_number(score.bits_per_byte));
        status = set_records(query->result, scorer, query, bits, lines, err);
        if (per_byte)
            json_object_set_new(query->result, "surprise", surprise_json(query->body_bytes, bits));
    }
    free(bits);
    return status;
}

// ---- generate -----------------------------------------------------------------------------------

typedef struct generation_request {
    const char *prompt;
    size_t prompt_bytes, count;
    reef_memory_reading reading;
    reef_sampling sampling;
} generation_request;

// The body as an object.
static reef_status parse_body(reef_query *query, json_t **out, reef_error *err) {
    json_error_t why;
    // Duplicate keys are refused, as in every JSON that comes from outside.
    *out = json_loadb((const char *)query->body, query->body_bytes, JSON_REJECT_DUPLICATES, &why);
    if (json_is_object(*out)) return REEF_OK;
    reef_status status = reef_fail(err, REEF_ERR_INVALID, "the body is not a JSON object%s%s",
                                   *out != NULL ? "" : ": ",
                                   *out != NULL        ? ""
                                   : query->body_bytes ? why.text
                                                       : "it is empty");
    json_decref(*out);
    *out = NULL;
    return status;
}

// A client that has left is computed for no longer.
static bool on_byte(void *context, uint8_t byte) {
    reef_query *query = context;
    (void)byte;
    return !atomic_load(&query->abandoned);
}

static reef_status generate(reef_model *model,
                            reef_query *query,
                            const generation_request *asked,
                            reef_error *err) {
    size_t count = asked->count;
    // Never zero bytes, since malloc(0) may be NULL.
    uint8_t *out = calloc(count + 1, 1);
    if (out == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu bytes", count);
    reef_sampling sampling = asked->sampling;
    sampling.on_byte = on_byte;
    sampling.context = query;
    // The model is kept for the next query, which sets this again.
    reef_model_set_reading(model, asked->reading);
    reef_status status = reef_model_generate(model, (const uint8_t *)asked->prompt,
                                             asked->prompt_bytes, count, &sampling, out, err);
    if (status == REEF_OK) {
        for (size_t i = 0; i < count; i++)
            // A zero byte cannot stand in the JSON string that is made from a C string.
            if (!out[i]) out[i] = '?'; // text ends at a zero
        query->result = json_object();
        set_state(query->result, query, model);
        json_object_set_new(query->result, "bytes", reef_json_count(count));
        json_object_set_new(query->result, "text", reef_json_text((const char *)out));
    }
    free(out);
    return status;
}

// `asked` points into the body.
static reef_status parse_generation(json_t *body, generation_request *asked, reef_error *err) {
    json_error_t why;
    json_int_t count = GENERATE_BYTES_DEFAULT, seed = 1;
    double temperature = 1, top_p = 1;
    json_t *frozen = NULL; // part of the body
    // All parameters at once, each with its default; unknown ones are refused.
    if (json_unpack_ex(body, &why, JSON_STRICT, "{s:s%, s?I, s?I, s?F, s?F, s?o}", "prompt",
                       &asked->prompt, &asked->prompt_bytes, "bytes", &count, "seed", &seed,
                       "temperature", &temperature, "top_p", &top_p, "frozen", &frozen))
        return reef_fail(err, REEF_ERR_INVALID, "the body is not understood: %s", why.text);
    if (asked->prompt_bytes < 1)
        return reef_fail(err, REEF_ERR_INVALID,
                         "the prompt is empty: give at least a byte to continue from");
    if (count < 1 || count > GENERATE_BYTES_MAX)
        return reef_fail(err, REEF_ERR_INVALID,
                         "bytes %" JSON_INTEGER_FORMAT " is not from 1 to %d", count,
                         GENERATE_BYTES_MAX);
    // Negated comparisons refuse NaN.
    if (!(temperature >= 0 && temperature <= 100) || !(top_p > 0 && top_p <= 1))
        return reef_fail(err, REEF_ERR_INVALID,
                         "temperature %g is not in [0, 100], or top_p %g not in (0, 1]",
                         temperature, top_p);
    reef_status status = reading_of(frozen, &asked->reading, err);
    if (status != REEF_OK) return status;
    // Of no share at all generation makes the whole.
    float share = fmaxf((float)top_p, FLT_MIN);
    asked->count = (size_t)count;
    asked->sampling =
        (reef_sampling){.seed = (uint64_t)seed, .temperature = (float)temperature, .top_p = share};
    return REEF_OK;
}

reef_status reef_query_generate(reef_query_thread *queries, reef_query *query, reef_error *err) {
    json_t *body;
    reef_model *model = NULL;
    generation_request asked = {0};
    reef_status status = parse_body(query, &body, err);
    if (status != REEF_OK) return status;
    status = parse_generation(body, &asked, err);
    if (status == REEF_OK) status = model_of(queries, query, &model, err);
    if (status == REEF_OK) status = generate(model, query, &asked, err);
    json_decref(body);
    return status;
}

// ---- records of the pool ------------------------------------------------------------------------

static reef_status read_generations(reef_txn *txn, json_t *result, reef_error *err) {
    reef_config config;
    uint32_t count;
    reef_status status = reef_config_read(txn, &config, err);
    if (status == REEF_OK) status = reef_generation_count(txn, &count, err);
    if (status != REEF_OK) return status;
    // Records are read in one transaction, so parents and children agree.
    reef_generation_record *all = calloc(count, sizeof(*all));
    if (all == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %u generations", count);
    for (uint32_t g = 0; status == REEF_OK && g < count; g++)
        status = reef_generation_read(txn, g, &all[g], err);
    json_t *list = json_array();
    for (uint32_t g = 0; status == REEF_OK && g < count; g++)
        json_array_append_new(
            list, reef_generation_json(&all[g], reef_config_retrieving_layers(&config)));
    json_object_set_new(result, "generations", list);
    free(all);
    return status;
}

static reef_status on_snapshot(void *context, const reef_snapshot *snapshot, reef_error *err) {
    json_t *result = context;
    (void)err;
    if (snapshot->damaged)
        json_array_append_new(json_object_get(result, "damaged"), reef_json_text(snapshot->name));
    else
        json_array_append_new(json_object_get(result, "snapshots"), reef_snapshot_json(snapshot));
    return REEF_OK;
}

static reef_status begin_query(reef_query_thread *queries,
                               reef_query *query,
                               reef_txn **txn,
                               reef_error *err) {
    query->result = json_object();
    return reef_txn_begin(txn, reef_query_thread_store(queries), REEF_TXN_READ, err);
}

reef_status reef_query_generations(reef_query_thread *queries, reef_query *query, reef_error *err) {
    reef_txn *txn = NULL;
    reef_status status = begin_query(queries, query, &txn, err);
    if (status == REEF_OK) status = read_generations(txn, query->result, err);
    reef_txn_abort(txn);
    return status;
}

reef_status reef_query_kinds(reef_query_thread *queries, reef_query *query, reef_error *err) {
    reef_txn *txn = NULL;
    reef_kind_list list = {0};
    uint64_t most = 0;
    reef_status status = reef_query_count(query, "visits", 0, 0, REEF_VISITS_MAX, &most, err);
    if (status == REEF_OK) status = begin_query(queries, query, &txn, err);
    if (status == REEF_OK) status = reef_kind_list_read(txn, &list, err);
    reef_txn_abort(txn);
    if (status != REEF_OK) return status;
    json_t *visits = json_array();
    // Older visits are kept as sums, which have no single position in the stream.
    for (size_t i = list.visit_count > most ? list.visit_count - most : 0; i < list.visit_count;
         i++)
        if (list.visits[i].count == 1)
            json_array_append_new(visits, reef_kind_visit_json(&list.visits[i]));
    json_object_set_new(query->result, "kinds", reef_kind_list_json(&list));
    json_object_set_new(query->result, "visits", visits);
    reef_kind_list_release(&list);
    return REEF_OK;
}

reef_status reef_query_snapshots(reef_query_thread *queries, reef_query *query, reef_error *err) {
    reef_txn *txn = NULL;
    reef_status status = begin_query(queries, query, &txn, err);
    json_object_set_new(query->result, "snapshots", json_array());
    json_object_set_new(query->result, "damaged", json_array());
    if (status == REEF_OK) status = reef_snapshot_scan(txn, on_snapshot, query->result, err);
    reef_txn_abort(txn);
    return status;
}

// The end of a list of what happened. All of it is read: what is undone, or became of an incident,
// is known only at the end.
static reef_status query_last(reef_query_thread *queries,
                              reef_query *query,
                              const char *member,
                              reef_status (*read)(reef_txn *txn, json_t *list, reef_error *err),
                              reef_error *err) {
    reef_txn *txn = NULL;
    uint64_t last;
    reef_status status = reef_query_count(query, "last", EVENTS_DEFAULT, 1, COUNT_MAX, &last, err);
    if (status != REEF_OK) return status;
    json_t *list = json_array();
    status = begin_query(queries, query, &txn, err);
    if (status == REEF_OK) status = read(txn, list, err);
    reef_txn_abort(txn);
    json_t *shown = json_array();
    size_t count = json_array_size(list);
    for (size_t i = count > last ? count - last : 0; i < count; i++)
        json_array_append(shown, json_array_get(list, i));
    json_decref(list);
    json_object_set_new(query->result, member, shown);
    return status;
}

reef_status reef_query_timeline(reef_query_thread *queries, reef_query *query, reef_error *err) {
    return query_last(queries, query, "events", reef_timeline_json, err);
}

reef_status reef_query_incidents(reef_query_thread *queries, reef_query *query, reef_error *err) {
    return query_last(queries, query, "incidents", reef_incidents_json, err);
}

reef_status reef_query_changes(reef_query_thread *queries, reef_query *query, reef_error *err) {
    reef_txn *txn = NULL;
    json_t *change = NULL, *changes = json_array();
    uint64_t next;
    reef_status status = reef_query_count(query, "next", 1, 1, COUNT_MAX, &next, err);
    if (status == REEF_OK) status = begin_query(queries, query, &txn, err);
    if (status == REEF_OK) status = reef_incident_change(txn, &next, &change, err);
    while (status == REEF_OK && change != NULL) {
        json_array_append_new(changes, change);
        next++;
        status = reef_incident_change(txn, &next, &change, err);
    }
    reef_txn_abort(txn);
    if (query->result != NULL) json_object_set_new(query->result, "next", reef_json_count(next));
    if (query->result != NULL) json_object_set(query->result, "changes", changes);
    json_decref(changes);
    return status;
}

// The series in `points` equal parts of the stream, each the mean over it.
typedef struct series {
    reef_point *points;
    size_t count, room;
    uint64_t from, to; // positions in the stream: from < position <= to
} series;

static reef_status on_point(void *context, const reef_point *point, reef_error *err) {
    series *all = context;
    // Half-open: a point belongs to the range that its batch ends in.
    if (point->stream_bytes <= all->from || point->stream_bytes > all->to) return REEF_OK;
    // Doubling; a long history has hundreds of thousands of points.
    if (all->count == all->room) {
        size_t room = all->room ? 2 * all->room : 4096;
        reef_point *points = realloc(all->points, room * sizeof(*points));
        if (points == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu points", room);
        all->points = points;
        all->room = room;
    }
    all->points[all->count++] = *point;
    return REEF_OK;
}

static json_t *mean_point(const reef_point *points, size_t count) {
    double sum = 0, batches = 0, low = INFINITY, high = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        double loss = (double)points[i].bits_per_byte;
        // A point of level n is the mean of FOLD^n batches, and weighs as many.
        double share = pow(REEF_SERIES_FOLD, points[i].level);
        sum += share * loss;
        batches += share;
        low = fmin(low, loss);
        high = fmax(high, loss);
    }
    const reef_point *last = &points[count - 1];
    return json_pack("{s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "step", (json_int_t)last->step,
                     "stream_bytes", (json_int_t)last->stream_bytes, "generation",
                     (json_int_t)last->generation, "batches", (json_int_t)batches, "loss",
                     reef_json_number(sum / batches), "low", reef_json_number(low), "high",
                     reef_json_number(high));
}

// A part that no batch ends in has no point.
static json_t *cut_series(const series *all, uint64_t parts) {
    json_t *list = json_array();
    if (all->count == 0) return list;
    uint64_t from = all->points[0].stream_bytes, to = all->points[all->count - 1].stream_bytes;
    // Plus one, so that the last point falls into the last part.
    double width = (double)(to - from + 1) / (double)parts;
    for (size_t first = 0, end; first < all->count; first = end) {
        // Parts are equal stretches of the stream, not equal numbers of points.
        uint64_t part = (uint64_t)((double)(all->points[first].stream_bytes - from) / width);
        for (end = first + 1; end < all->count; end++)
            if ((uint64_t)((double)(all->points[end].stream_bytes - from) / width) != part) break;
        json_array_append_new(list, mean_point(all->points + first, end - first));
    }
    return list;
}

reef_status reef_query_series(reef_query_thread *queries, reef_query *query, reef_error *err) {
    reef_txn *txn = NULL;
    series all = {0};
    uint64_t wanted;
    reef_status status =
        reef_query_count(query, "points", POINTS_DEFAULT, 1, COUNT_MAX, &wanted, err);
    if (status == REEF_OK)
        status = reef_query_count(query, "from", 0, 0, INT64_MAX, &all.from, err);
    if (status == REEF_OK)
        status = reef_query_count(query, "to", INT64_MAX, 0, INT64_MAX, &all.to, err);
    if (status == REEF_OK && all.from > all.to)
        status = reef_fail(err, REEF_ERR_INVALID, "from=%" PRIu64 " lies behind to=%" PRIu64,
                           all.from, all.to);
    if (status != REEF_OK) return status;
    status = begin_query(queries, query, &txn, err);
    if (status == REEF_OK) status = reef_series_scan(txn, on_point, &all, err);
    reef_txn_abort(txn);
    json_object_set_new(query->result, "points", cut_series(&all, wanted));
    free(all.points);
    return status;
}
