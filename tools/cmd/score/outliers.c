// See outliers.h.
#include "outliers.h"
#include "cli_pool.h"
#include "reef_system.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define REOPEN_SHARE 10.0 // of the time at most one part in so many goes to reading commits
#define MAD_TO_SIGMA 1.4826
// bits per byte: a stream of equal lines has no spread, and rounding must not stand out
#define SIGMA_MIN 0.05

// ---- scores -------------------------------------------------------------------------------------

static reef_status open_model(reef_follow_scorer *scorer, reef_error *err) {
    double begin = reef_seconds();
    reef_status status =
        reef_cli_model_open(&scorer->model, scorer->cli, scorer->store, scorer->as_of, err);
    scorer->opened = reef_seconds();
    scorer->took = scorer->opened - begin;
    return status;
}

reef_status reef_follow_scorer_open(reef_follow_scorer *scorer,
                                    const reef_cli_call *cli,
                                    reef_store *store,
                                    reef_error *err) {
    *scorer = (reef_follow_scorer){.cli = cli, .store = store};
    reef_status status = reef_cli_as_of(cli, store, scorer->as_of, err);
    if (status == REEF_OK) status = open_model(scorer, err);
    if (status != REEF_OK) return status;
    // A piece is half a window, so that each byte has at least half a window before it.
    scorer->piece = reef_model_config(scorer->model)->context / 2;
    scorer->text = reef_cli_alloc(2 * scorer->piece, 1);
    scorer->bits = reef_cli_alloc(2 * scorer->piece, sizeof(*scorer->bits));
    scorer->recent = reef_cli_alloc(REEF_FOLLOW_RECENT, 1);
    scorer->recent_bits = reef_cli_alloc(REEF_FOLLOW_RECENT, sizeof(*scorer->recent_bits));
    return REEF_OK;
}

void reef_follow_scorer_close(reef_follow_scorer *scorer) {
    reef_model_close(scorer->model);
    free(scorer->text);
    free(scorer->bits);
    free(scorer->recent);
    free(scorer->recent_bits);
    *scorer = (reef_follow_scorer){0};
}

// A model that was just opened reads the last bytes again, so that its memories know what the
// stream was about.
static reef_status read_again(reef_follow_scorer *scorer, reef_error *err) {
    if (scorer->recent_count == 0) return REEF_OK;
    return reef_model_score_next(scorer->model, scorer->recent, 0, scorer->recent_count,
                                 scorer->recent_bits, err);
}

static void keep_recent(reef_follow_scorer *scorer, const uint8_t *bytes, size_t count) {
    size_t room = REEF_FOLLOW_RECENT;
    if (count > room) {
        bytes += count - room;
        count = room;
    }
    size_t kept = scorer->recent_count + count > room ? room - count : scorer->recent_count;
    memmove(scorer->recent, scorer->recent + scorer->recent_count - kept, kept);
    memcpy(scorer->recent + kept, bytes, count);
    scorer->recent_count = kept + count;
}

// Scores what was added behind `before` bytes of the two pieces in memory. A generation that is
// read in place can be given up by a restore: the model is then opened again, at the present state.
static reef_status score_text(reef_follow_scorer *scorer, size_t before, reef_error *err) {
    size_t count = scorer->used - before;
    reef_status status = reef_model_score_next(scorer->model, scorer->text, before, count,
                                               scorer->bits + before, err);
    if (status != REEF_ERR_BUSY) return status;
    reef_model_close(scorer->model);
    scorer->model = NULL;
    // As of the same state, if one was given.
    status = open_model(scorer, err);
    if (status == REEF_OK) status = read_again(scorer, err);
    return status != REEF_OK ? status
                             : reef_model_score_next(scorer->model, scorer->text, before, count,
                                                     scorer->bits + before, err);
}

reef_status reef_follow_score(
    reef_follow_scorer *scorer, const uint8_t *bytes, size_t count, float *bits, reef_error *err) {
    size_t piece = scorer->piece;
    while (count > 0) {
        if (scorer->used == 2 * piece) {
            // The second piece is full: it becomes the context of the next.
            memcpy(scorer->text, scorer->text + piece, piece);
            scorer->used = piece;
        }
        // The first piece of the stream has none before it.
        size_t end = scorer->used < piece ? piece : 2 * piece, first = scorer->used;
        // Never across a piece, so that the scores do not depend on how the bytes arrive.
        size_t taken = end - first < count ? end - first : count;
        memcpy(scorer->text + first, bytes, taken);
        scorer->used += taken;
        bytes += taken;
        count -= taken;
        reef_status status = score_text(scorer, first, err);
        if (status != REEF_OK) return status;
        keep_recent(scorer, scorer->text + first, taken);
        // Only the new bytes: the context was scored before.
        memcpy(bits, scorer->bits + first, taken * sizeof(*bits));
        bits += taken;
    }
    return REEF_OK;
}

reef_status reef_follow_renew(reef_follow_scorer *scorer, reef_error *err) {
    reef_txn *txn = NULL;
    reef_commit commit;
    // A fixed state has no newer commit.
    if (strcmp(scorer->as_of, "now") != 0) return REEF_OK;
    // Opening takes time: it is repeated only after a multiple of it, so that it stays a small
    // share.
    if (reef_seconds() - scorer->opened < REOPEN_SHARE * scorer->took) return REEF_OK;
    reef_status status = reef_txn_begin(&txn, scorer->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_commit_read(txn, &commit, err);
    reef_txn_abort(txn);
    // The same commit is the same model.
    if (status != REEF_OK || commit.number == reef_model_commit(scorer->model)->number)
        return status;
    reef_model_close(scorer->model);
    scorer->model = NULL;
    // Counted for the summary.
    scorer->renewed++;
    status = open_model(scorer, err);
    return status == REEF_OK ? read_again(scorer, err) : status;
}

// ---- outliers -----------------------------------------------------------------------------------

void reef_follow_usual_init(reef_follow_usual *usual, size_t window, double threshold) {
    *usual = (reef_follow_usual){.window = window, .threshold = threshold};
    usual->values = reef_cli_alloc(window, sizeof(*usual->values));
    usual->sorted = reef_cli_alloc(window, sizeof(*usual->sorted));
}

void reef_follow_usual_release(reef_follow_usual *usual) {
    free(usual->values);
    free(usual->sorted);
    *usual = (reef_follow_usual){0};
}

static int by_value(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double median_of_sorted(const reef_follow_usual *usual) {
    size_t half = usual->count / 2;
    return usual->count % 2 ? usual->sorted[half]
                            : (usual->sorted[half - 1] + usual->sorted[half]) / 2;
}

double reef_follow_distance(reef_follow_usual *usual, double surprise) {
    if (usual->count < FOLLOW_LINES_MIN) return NAN;
    memcpy(usual->sorted, usual->values, usual->count * sizeof(*usual->sorted));
    qsort(usual->sorted, usual->count, sizeof(*usual->sorted), by_value);
    double median = median_of_sorted(usual);
    for (size_t i = 0; i < usual->count; i++) usual->sorted[i] = fabs(usual->sorted[i] - median);
    qsort(usual->sorted, usual->count, sizeof(*usual->sorted), by_value);
    return (surprise - median) / fmax(MAD_TO_SIGMA * median_of_sorted(usual), SIGMA_MIN);
}

void reef_follow_usual_add(reef_follow_usual *usual, double surprise) {
    usual->values[usual->next] = surprise;
    usual->next = (usual->next + 1) % usual->window;
    if (usual->count < usual->window) usual->count++;
}
