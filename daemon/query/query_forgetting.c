// The matrix of forgetting; see query_thread.h. What a kind had learned last when its generation
// was sealed, in bits a byte by that state, by those after it and now.
#include "query_thread.h"

#include "reef_log.h"
#include "reef_states.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIDE_MAX 24 // of the matrix: the newest generations, and now
#define COLUMN_BYTES 4096
#define SLICE_NS 80000000u   // of work on one question; what has begun is finished
#define KEPT_NS 10000000000u // that a row's model waits for the next question
#define PAUSE_SHARE 20       // of the time at most one part in so many
#define PAUSE_SHARE_SEALED 5 // where a generation has been sealed since

typedef struct column {
    uint32_t generation;
    uint8_t bytes[COLUMN_BYTES];
    size_t count;
} column;

struct reef_forgetting {
    uint32_t first, end; // the generations that may have a row and a column
    column columns[SIDE_MAX];
    size_t column_count;
    bool gone[SIDE_MAX];                   // pruned away: no such state
    double values[SIDE_MAX + 1][SIDE_MAX]; // by state and column; NaN: not known
    size_t row, at;                        // the cell that is measured next
    uint64_t commit;
    reef_model *model; // of the row that is being measured, or NULL
    uint64_t worked_ns, finished_ns;
};

static size_t row_count(const reef_forgetting *f) {
    return f->end - f->first; // as of each but the open one, and now
}

static bool is_complete(const reef_forgetting *f) {
    return f->row == row_count(f);
}

void reef_forgetting_free(reef_forgetting *forgetting) {
    if (forgetting == NULL) return;
    reef_model_close(forgetting->model);
    free(forgetting);
}

void reef_forgetting_unpin(reef_forgetting *f) {
    if (f == NULL || f->model == NULL) return;
    reef_model_unpin(f->model);
    if (uv_hrtime() - f->finished_ns < KEPT_NS) return;
    reef_model_close(f->model);
    f->model = NULL;
}

// ---- the sample ---------------------------------------------------------------------------------

static bool has_column(const reef_forgetting *f, uint32_t generation) {
    for (size_t c = 0; c < f->column_count; c++)
        if (f->columns[c].generation == generation) return true;
    return false;
}

// What kinds have learned by the state of a row, and no row before it could tell.
static void add_columns(reef_forgetting *f, uint32_t newest) {
    for (uint32_t g = f->first; g <= newest && f->column_count < SIDE_MAX; g++) {
        column *to = &f->columns[f->column_count];
        if (has_column(f, g)) continue;
        to->generation = g;
        to->count = reef_model_text(f->model, g, to->bytes, COLUMN_BYTES);
        if (to->count >= 2) f->column_count++;
    }
}

static reef_status note_generations(reef_txn *txn, reef_forgetting *f, reef_error *err) {
    bool *kept = NULL;
    reef_status status = reef_states_kept(txn, &kept, &f->end, err);
    if (status != REEF_OK) return status;
    f->first = f->end > SIDE_MAX ? f->end - SIDE_MAX : 0;
    for (uint32_t g = f->first; g < f->end; g++) f->gone[g - f->first] = !kept[g];
    free(kept);
    return REEF_OK;
}

static reef_status begin_matrix(reef_query_thread *queries,
                                reef_forgetting **out,
                                reef_error *err) {
    reef_txn *txn = NULL;
    reef_forgetting *f = calloc(1, sizeof(*f));
    if (f == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a matrix");
    for (size_t r = 0; r <= SIDE_MAX; r++)
        for (size_t c = 0; c < SIDE_MAX; c++) f->values[r][c] = (double)NAN;
    reef_commit commit;
    reef_status status = reef_txn_begin(&txn, reef_query_thread_store(queries), REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_commit_read(txn, &commit, err);
    if (status == REEF_OK) status = note_generations(txn, f, err);
    if (status == REEF_OK) f->commit = commit.number;
    reef_txn_abort(txn);
    if (status != REEF_OK) {
        reef_forgetting_free(f);
        return status;
    }
    *out = f;
    return REEF_OK;
}

// ---- measuring ----------------------------------------------------------------------------------

static reef_status score_sample(reef_model *model, const column *of, double *out, reef_error *err) {
    reef_score score = {0};
    reef_status status =
        reef_model_score(model, of->bytes, of->count, NULL, &score, NULL, NULL, err);
    *out = score.bits_per_byte;
    return status;
}

// The row's model, which lives as long as the row. Also of now: the one that is served may be
// older, and reads as the last question wanted it.
static reef_status open_row(reef_query_thread *queries,
                            reef_forgetting *f,
                            size_t row,
                            reef_error *err) {
    char as_of[16];
    bool now = row + 1 == row_count(f);
    if (f->model != NULL) return REEF_OK;
    snprintf(as_of, sizeof(as_of), "%zu", f->first + row);
    reef_status status = reef_query_thread_open(queries, now ? "now" : as_of, &f->model, err);
    if (status != REEF_OK) return status;
    if (now) f->commit = reef_model_commit(f->model)->number;
    add_columns(f, f->first + (uint32_t)row);
    return REEF_OK;
}

static reef_status measure_cell(reef_query_thread *queries, reef_forgetting *f, reef_error *err) {
    // The last row is the present state. One whose generation is gone keeps an empty row.
    bool known = f->row + 1 == row_count(f) || !f->gone[f->row];
    reef_status status = known ? open_row(queries, f, f->row, err) : REEF_OK;
    if (status == REEF_OK && known && f->at < f->column_count)
        status = score_sample(f->model, &f->columns[f->at], &f->values[f->row][f->at], err);
    if (status != REEF_OK) return status;
    if (known && ++f->at < f->column_count) return REEF_OK;
    // A row is finished: its model is closed before the next one is opened, so only one is in
    // memory.
    reef_model_close(f->model);
    f->model = NULL;
    f->at = 0;
    f->row++;
    return REEF_OK;
}

static reef_status measure_for_a_slice(reef_query_thread *queries,
                                       reef_forgetting *f,
                                       reef_error *err) {
    uint64_t begun = uv_hrtime();
    reef_status status = REEF_OK;
    // The pause until the next matrix begins with the last work, not with the last question.
    if (is_complete(f)) return REEF_OK;
    while (status == REEF_OK && !is_complete(f) && uv_hrtime() - begun < SLICE_NS)
        status = measure_cell(queries, f, err);
    f->worked_ns += uv_hrtime() - begun;
    f->finished_ns = uv_hrtime();
    return status;
}

// ---- answering ----------------------------------------------------------------------------------

static json_t *values_json(const reef_forgetting *f) {
    json_t *rows = json_array();
    for (size_t r = 0; r < row_count(f); r++) {
        json_t *row = json_array();
        for (size_t c = 0; c < f->column_count; c++)
            json_array_append_new(row, reef_json_number(f->values[r][c]));
        json_array_append_new(rows, row);
    }
    return rows;
}

static json_t *reef_matrix_json(const reef_forgetting *f) {
    json_t *rows = json_array(), *columns = json_array();
    for (size_t r = 0; r < row_count(f); r++)
        // Rows are states in order, the present last.
        json_array_append_new(rows, r + 1 < row_count(f) ? json_sprintf("%zu", f->first + r)
                                                         : json_string("now"));
    for (size_t c = 0; c < f->column_count; c++)
        json_array_append_new(columns, json_pack("{s:I, s:I}", "generation",
                                                 (json_int_t)f->columns[c].generation, "bytes",
                                                 (json_int_t)f->columns[c].count));
    return json_pack("{s:s, s:I, s:b, s:o, s:o, s:o}", "measure", "bits_per_byte", "commit",
                     (json_int_t)f->commit, "complete", is_complete(f), "as_of", rows, "columns",
                     columns, "values", values_json(f));
}

// Whether the pool has changed since, and enough time has passed to measure again.
static reef_status is_stale(reef_query_thread *queries,
                            const reef_forgetting *f,
                            bool *out,
                            reef_error *err) {
    reef_txn *txn = NULL;
    reef_commit commit;
    uint32_t generations;
    *out = true;
    // No matrix was measured yet.
    if (f == NULL) return REEF_OK;
    reef_status status = reef_txn_begin(&txn, reef_query_thread_store(queries), REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_commit_read(txn, &commit, err);
    if (status == REEF_OK) status = reef_generation_count(txn, &generations, err);
    reef_txn_abort(txn);
    if (status != REEF_OK) return status;
    // A new generation makes a new row; other commits only refresh the last one.
    bool sealed = generations != f->end;
    uint64_t share = sealed ? PAUSE_SHARE_SEALED : PAUSE_SHARE;
    // Recomputing takes seconds. It is repeated only after many times as long a pause, so that a
    // page left open does not eat the machine.
    bool unpinned = uv_hrtime() - f->finished_ns >= share * f->worked_ns;
    *out = (is_complete(f) || sealed) && unpinned && commit.number != f->commit;
    return REEF_OK;
}

reef_status reef_query_forgetting(reef_query_thread *queries, reef_query *query, reef_error *err) {
    reef_forgetting **kept = reef_query_thread_forgetting(queries);
    bool stale;
    reef_status status = is_stale(queries, *kept, &stale, err);
    if (status == REEF_OK && stale) {
        reef_forgetting_free(*kept);
        *kept = NULL;
        status = begin_matrix(queries, kept, err);
    }
    if (status == REEF_OK) status = measure_for_a_slice(queries, *kept, err);
    if (status == REEF_OK) query->result = reef_matrix_json(*kept);
    // One cell at a time: an error drops the matrix and the next request starts over.
    if (status == REEF_OK || *kept == NULL) return status;
    reef_forgetting_free(*kept); // such as a state that has gone since
    *kept = NULL;
    return status;
}
