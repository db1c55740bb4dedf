// See bench_kinds.h.
#include "bench_kinds.h"

#include "bench_text.h"
#include "cli_alloc.h"
#include "cli_progress.h"
#include "reef_clock.h"
#include "reef_kinds.h"
#include "reef_model.h"
#include "reef_trainer.h"
#include "scratch_pool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FEED_BYTES 65536 // between two updates of the progress bar
#define EARLY_BYTES 4096 // a generation may begin before the kind, at the change within a piece
#define LATE_BYTES 8192  // and so far behind it
#define HELD_BYTES_MAX 65536
#define PIECES_BYTES 150000 // in all
#define PASSED_MAX 65536    // of what passed a memory by, enough of a context

typedef struct kinds_run {
    const reef_kinds_plan *plan;
    reef_kinds_findings *found;
    reef_bench_directory directory;
    char *pool; // its path
    reef_config config;
    reef_store *store;
    reef_trainer *trainer;
    reef_model *model;
    reef_cli_progress progress;
    uint64_t done;
    uint64_t random;
} kinds_run;

// ---- texts --------------------------------------------------------------------------------------

static size_t draw(kinds_run *run, size_t below) {
    // Knuth's MMIX generator: the same orders on every machine.
    run->random = run->random * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(run->random >> 33) % below;
}

static void shuffle(kinds_run *run, size_t *order, size_t count) {
    for (size_t i = 0; i < count; i++) order[i] = i;
    for (size_t i = count; i > 1; i--) {
        size_t other = draw(run, i), swap = order[i - 1];
        order[i - 1] = order[other];
        order[other] = swap;
    }
}

static reef_status read_texts(kinds_run *run, reef_error *err) {
    const reef_kinds_plan *plan = run->plan;
    size_t *order = reef_cli_alloc(plan->kind_count, sizeof(*order));
    reef_status status = REEF_OK;
    shuffle(run, order, plan->kind_count);
    for (size_t i = 0; i < plan->kind_count && status == REEF_OK; i++) {
        reef_bench_kind *kind = &run->found->kinds[i];
        const char *train = plan->paths[2 * order[i]], *held = plan->paths[2 * order[i] + 1];
        status =
            reef_bench_text_read(train, plan->train_bytes, &kind->train, &kind->train_bytes, err);
        if (status == REEF_OK)
            status =
                reef_bench_text_read(held, HELD_BYTES_MAX, &kind->held, &kind->held_bytes, err);
        if (status == REEF_OK && kind->held_bytes < 4)
            status = reef_fail(err, REEF_ERR_INVALID, "%.160s is too short to be divided", held);
        kind->name = reef_bench_text_name(train);
        kind->begins = run->found->stream_bytes;
        run->found->stream_bytes += kind->train_bytes;
    }
    free(order);
    return status;
}

static const uint8_t *last_quarter(const reef_bench_kind *kind, size_t *count) {
    *count = kind->held_bytes - kind->held_bytes / 4 * 3;
    return kind->held + kind->held_bytes / 4 * 3;
}

// ---- the pool -----------------------------------------------------------------------------------

static reef_status make_pool(kinds_run *run, reef_error *err) {
    reef_config *config = &run->config;
    reef_config_default_made(config);
    reef_status status = reef_config_set(config, "boundaries", "contexts", err);
    config->net_share = 0.0f;
    reef_config_fit(config);
    if (run->plan->memory_bytes > 0) config->context_memory = (uint32_t)run->plan->memory_bytes;
    if (status == REEF_OK) status = reef_config_check_new(config, err);
    if (status == REEF_OK) status = reef_bench_directory_new(&run->directory, err);
    if (status != REEF_OK) return status;
    run->pool = reef_cli_format("%s/kinds.pool", run->directory.path);
    status = reef_pool_init(run->pool, config, err);
    if (status == REEF_OK)
        status = reef_store_open(&run->store, run->pool, &(reef_store_options){.write = true}, err);
    const reef_trainer_options options = {.threads = run->plan->threads};
    return status == REEF_OK ? reef_trainer_open(&run->trainer, run->store, &options, err) : status;
}

static void show(kinds_run *run, uint64_t bytes) {
    run->done += bytes;
    reef_cli_progress_show(&run->progress, run->done);
}

static reef_status learn(kinds_run *run, const uint8_t *bytes, size_t count, reef_error *err) {
    for (size_t at = 0, taken = 0; at < count; at += taken) {
        size_t piece = count - at < FEED_BYTES ? count - at : FEED_BYTES;
        reef_status status =
            reef_trainer_feed(run->trainer, "kinds", bytes + at, piece, &taken, NULL, err);
        if (status != REEF_OK) return status;
        show(run, taken);
    }
    return REEF_OK;
}

static reef_status learn_all(kinds_run *run, reef_error *err) {
    reef_status status = REEF_OK;
    double begin = reef_seconds();
    for (size_t i = 0; status == REEF_OK && i < run->found->kind_count; i++)
        status = learn(run, run->found->kinds[i].train, run->found->kinds[i].train_bytes, err);
    if (status == REEF_OK) status = reef_trainer_commit(run->trainer, NULL, err);
    run->found->learn_seconds = reef_seconds() - begin;
    return status;
}

// ---- what it found ------------------------------------------------------------------------------

// A kind whose beginning the generation stands for, and which has none yet.
static reef_bench_kind *kind_at(reef_kinds_findings *f, uint64_t opened_at) {
    for (size_t i = 0; i < f->kind_count; i++) {
        reef_bench_kind *kind = &f->kinds[i];
        if (!kind->is_found && opened_at + EARLY_BYTES >= kind->begins &&
            opened_at <= kind->begins + LATE_BYTES)
            return kind;
    }
    return NULL;
}

static reef_status find_boundaries(kinds_run *run, reef_error *err) {
    reef_kinds_findings *f = run->found;
    reef_trainer_status trainer;
    struct stat file;
    reef_txn *txn = NULL;
    reef_trainer_status_read(run->trainer, &trainer);
    f->generations = (size_t)trainer.generation + 1;
    reef_status status = reef_txn_begin(&txn, run->store, REEF_TXN_READ, err);
    for (uint32_t g = 0; status == REEF_OK && g < f->generations; g++) {
        reef_generation_record info;
        status = reef_generation_read(txn, g, &info, err);
        if (status != REEF_OK) break;
        reef_bench_kind *kind = kind_at(f, info.opened_at);
        if (kind == NULL) {
            f->invented++;
            continue;
        }
        kind->is_found = true;
        kind->late = (int64_t)info.opened_at - (int64_t)kind->begins;
        f->found++;
    }
    reef_txn_abort(txn);
    char *data = reef_cli_format("%s/data.mdb", run->pool);
    if (stat(data, &file) == 0) f->pool_bytes = (uint64_t)file.st_blocks * 512;
    free(data);
    // The first kind begins with the pool.
    f->found -= f->kinds[0].is_found;
    return status;
}

// ---- bits ---------------------------------------------------------------------------------------

static reef_status open_model(kinds_run *run, reef_error *err) {
    const reef_model_options options = {.threads = run->plan->threads};
    reef_model_close(run->model);
    run->model = NULL;
    return reef_model_open(&run->model, run->store, NULL, &options, err);
}

static reef_status read_pool(kinds_run *run, bool later, reef_error *err) {
    reef_kinds_findings *f = run->found;
    reef_status status = open_model(run, err);
    double begin = reef_seconds();
    for (size_t i = 0; status == REEF_OK && i < f->kind_count; i++) {
        reef_bench_kind *kind = &f->kinds[i];
        reef_score score = {0};
        size_t count;
        const uint8_t *text = last_quarter(kind, &count);
        status = reef_model_score(run->model, text, count, NULL, &score, NULL, NULL, err);
        *(later ? &kind->later : &kind->bits) = score.bits_per_byte;
        show(run, count);
        if (!later) f->read_bytes += count;
    }
    if (!later) f->read_seconds = reef_seconds() - begin;
    return status;
}

static double sum_of(const float *bits, size_t count) {
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) sum += (double)bits[i];
    return sum;
}

// A memory that learned the kind alone, and knows that a text is of that kind.
static reef_status read_own(kinds_run *run, reef_bench_kind *kind, reef_error *err) {
    reef_kinds_findings *f = run->found;
    const reef_memory_options options = {.bytes_max = run->config.context_memory};
    reef_memory_session *session = NULL;
    size_t count;
    const uint8_t *text = last_quarter(kind, &count);
    float *bits = reef_cli_alloc(count, sizeof(*bits));
    double begin = reef_seconds();
    reef_status status = reef_memory_new(&kind->memory, &options, err);
    if (status == REEF_OK)
        status = reef_memory_learn(kind->memory, kind->train, kind->train_bytes, NULL, NULL, err);
    f->own_learn_seconds += reef_seconds() - begin;
    if (status == REEF_OK) status = reef_memory_session_open(&session, kind->memory, false, err);
    begin = reef_seconds();
    if (status == REEF_OK) status = reef_memory_session_read(session, text, count, NULL, bits, err);
    f->own_read_seconds += reef_seconds() - begin;
    // The first byte has no context, and the pool does not count it either.
    if (status == REEF_OK) kind->own = sum_of(bits + 1, count - 1) / (double)(count - 1);
    reef_memory_session_close(session);
    free(bits);
    show(run, kind->train_bytes + count);
    return status;
}

// ---- pieces -------------------------------------------------------------------------------------

// By a kind's own memory, whose session lets pieces of others pass by.
static reef_status read_among(reef_bench_kind *kind,
                              const uint8_t *text,
                              size_t before,
                              size_t count,
                              float *bits,
                              reef_error *err) {
    size_t passed = before - kind->met < PASSED_MAX ? before - kind->met : PASSED_MAX;
    reef_status status = REEF_OK;
    if (kind->session == NULL)
        status = reef_memory_session_open(&kind->session, kind->memory, false, err);
    if (status == REEF_OK)
        status = reef_memory_session_skip(kind->session, text + before - passed, passed, err);
    kind->met = before + count;
    return status == REEF_OK
               ? reef_memory_session_read(kind->session, text + before, count, NULL, bits, err)
               : status;
}

// A kind that has a piece left which nobody has read, and is not the one before it.
static reef_bench_kind *next_kind(kinds_run *run, const reef_bench_kind *last) {
    reef_kinds_findings *f = run->found;
    size_t first = draw(run, f->kind_count), count;
    for (size_t i = 0; i < f->kind_count; i++) {
        reef_bench_kind *kind = &f->kinds[(first + i) % f->kind_count];
        (void)last_quarter(kind, &count);
        if (kind != last && count - kind->pieces_read >= run->plan->piece_bytes) return kind;
    }
    return NULL;
}

// Score one piece as a separate text, with the pool and with its own kind's memory, each in a new
// session.
static reef_status read_alone(
    kinds_run *run, reef_bench_kind *kind, const uint8_t *piece, float *bits, reef_error *err) {
    reef_kinds_findings *f = run->found;
    size_t count = (size_t)run->plan->piece_bytes;
    reef_score score = {0};
    reef_status status = reef_model_score(run->model, piece, count, NULL, &score, NULL, NULL, err);
    f->alone_bits += score.bits;
    f->alone_bytes += score.bytes;
    if (status == REEF_OK && kind->alone == NULL)
        status = reef_memory_session_open(&kind->alone, kind->memory, false, err);
    if (status != REEF_OK) return status;
    reef_memory_session_reset(kind->alone);
    status = reef_memory_session_read(kind->alone, piece, count, NULL, bits, err);
    f->alone_own += sum_of(bits + 1, count - 1); // the first byte is not scored
    return status;
}

// Pieces of held-out texts in a random order, each once: as one text, and each by itself.
static reef_status read_pieces(kinds_run *run, reef_error *err) {
    reef_kinds_findings *f = run->found;
    size_t piece = (size_t)run->plan->piece_bytes, length = 0, count;
    uint8_t *text = reef_cli_alloc(PIECES_BYTES, 1);
    float *own = reef_cli_alloc(PIECES_BYTES, sizeof(*own));
    float *bits = reef_cli_alloc(piece, sizeof(*bits));
    reef_score score = {0};
    reef_status status = REEF_OK;
    reef_bench_kind *kind = NULL;
    while (status == REEF_OK && length + piece <= PIECES_BYTES &&
           (kind = next_kind(run, kind)) != NULL) {
        // Only the last quarter of a kind's text was held out.
        memcpy(text + length, last_quarter(kind, &count) + kind->pieces_read, piece);
        kind->pieces_read += piece;
        status = read_among(kind, text, length, piece, own + length, err);
        if (status == REEF_OK) status = read_alone(run, kind, text + length, bits, err);
        length += piece;
        show(run, piece);
    }
    // The pool reads all pieces as one text. A text's first byte has no loss: hence own + 1.
    if (status == REEF_OK && length > 1) {
        status = reef_model_score(run->model, text, length, NULL, &score, NULL, NULL, err);
        f->pieces_bits = score.bits_per_byte;
        f->pieces_own = sum_of(own + 1, length - 1) / (double)(length - 1);
        f->pieces_bytes = length;
        f->alone_bits /= (double)f->alone_bytes;
        f->alone_own /= (double)f->alone_bytes;
    }
    free(text);
    free(own);
    free(bits);
    return status;
}

// ---- all kinds come back ------------------------------------------------------------------------

// What a kind of the pool has learned of some bytes of the stream.
static uint64_t learned_of(const reef_kind_visit *visit, uint64_t from, uint64_t to) {
    uint64_t begin = visit->from > from ? visit->from : from;
    uint64_t end = visit->to < to ? visit->to : to;
    return visit->count == 1 && begin < end ? end - begin : 0;
}

// The kind that has learned most of a text.
static void find_learner(const reef_kind_list *list,
                         size_t kinds,
                         reef_bench_kind *kind,
                         uint64_t *learned) {
    memset(learned, 0, kinds * sizeof(*learned));
    kind->learner = 0;
    for (size_t v = 0; v < list->visit_count; v++) {
        const reef_kind_visit *visit = &list->visits[v];
        learned[visit->kind] += learned_of(visit, kind->begins, kind->begins + kind->train_bytes);
        if (learned[visit->kind] > learned[kind->learner]) kind->learner = visit->kind;
    }
}

static reef_status read_kinds(kinds_run *run, reef_kind_list *list, reef_error *err) {
    reef_txn *txn = NULL;
    reef_status status = reef_txn_begin(&txn, run->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_kind_list_read(txn, list, err);
    reef_txn_abort(txn);
    return status;
}

static reef_status find_learners(kinds_run *run, reef_error *err) {
    reef_kinds_findings *f = run->found;
    reef_kind_list list = {0};
    reef_status status = read_kinds(run, &list, err);
    uint64_t *learned = reef_cli_alloc(f->generations, sizeof(*learned));
    for (size_t i = 0; status == REEF_OK && i < f->kind_count; i++)
        find_learner(&list, f->generations, &f->kinds[i], learned);
    free(learned);
    reef_kind_list_release(&list);
    return status;
}

// Who learned the texts that came back, in this order, behind the stream?
static reef_status count_back(kinds_run *run, const size_t *order, reef_error *err) {
    reef_kinds_findings *f = run->found;
    reef_kind_list list = {0};
    reef_status status = read_kinds(run, &list, err);
    for (size_t k = 0; status == REEF_OK && k < list.count; k++)
        if (list.kinds[k].kind >= f->generations) f->strange_bytes += list.kinds[k].learned_bytes;
    uint64_t from = f->stream_bytes;
    for (size_t i = 0; status == REEF_OK && i < f->kind_count; i++) {
        const reef_bench_kind *kind = &f->kinds[order[i]];
        uint64_t to = from + kind->held_bytes / 4 * 3;
        for (size_t v = 0; v < list.visit_count; v++)
            if (list.visits[v].kind == kind->learner)
                f->same_bytes += learned_of(&list.visits[v], from, to);
        from = to;
    }
    reef_kind_list_release(&list);
    return status;
}

static reef_status come_back(kinds_run *run, reef_error *err) {
    reef_kinds_findings *f = run->found;
    reef_trainer_status after;
    size_t *order = reef_cli_alloc(f->kind_count, sizeof(*order));
    reef_status status = find_learners(run, err);
    shuffle(run, order, f->kind_count);
    for (size_t i = 0; status == REEF_OK && i < f->kind_count; i++) {
        const reef_bench_kind *kind = &f->kinds[order[i]];
        status = learn(run, kind->held, kind->held_bytes / 4 * 3, err);
        f->back_bytes += kind->held_bytes / 4 * 3;
    }
    if (status == REEF_OK) status = reef_trainer_commit(run->trainer, NULL, err);
    reef_trainer_status_read(run->trainer, &after);
    f->back_generations = (size_t)after.generation + 1 - f->generations;
    if (status == REEF_OK) status = count_back(run, order, err);
    free(order);
    return status;
}

// ---- the whole ----------------------------------------------------------------------------------

static uint64_t all_bytes(const reef_kinds_findings *f) {
    uint64_t bytes = 2 * f->stream_bytes + PIECES_BYTES;
    for (size_t i = 0; i < f->kind_count; i++) bytes += 2 * f->kinds[i].held_bytes;
    return bytes;
}

static void summarise(reef_kinds_findings *f) {
    double part = 1.0 / (double)f->kind_count;
    f->forgetting_max = -INFINITY;
    for (size_t i = 0; i < f->kind_count; i++) {
        const reef_bench_kind *kind = &f->kinds[i];
        f->own += part * kind->own;
        f->bits += part * kind->bits;
        f->later += part * kind->later;
        f->forgetting_max = fmax(f->forgetting_max, kind->later - kind->bits);
    }
}

static reef_status measure(kinds_run *run, reef_error *err) {
    reef_kinds_findings *f = run->found;
    reef_status status = make_pool(run, err);
    reef_cli_progress_start(&run->progress, "kinds", all_bytes(f), "B");
    if (status == REEF_OK) status = learn_all(run, err);
    if (status == REEF_OK) status = find_boundaries(run, err);
    for (size_t i = 0; status == REEF_OK && i < f->kind_count; i++)
        status = read_own(run, &f->kinds[i], err);
    if (status == REEF_OK) status = read_pool(run, false, err);
    if (status == REEF_OK) status = read_pieces(run, err);
    if (status == REEF_OK) status = come_back(run, err);
    if (status == REEF_OK) status = read_pool(run, true, err);
    reef_cli_progress_end(&run->progress);
    if (status == REEF_OK) summarise(f);
    return status;
}

void reef_bench_kinds_release(reef_kinds_findings *found) {
    for (size_t i = 0; i < found->kind_count; i++) {
        free(found->kinds[i].name);
        free(found->kinds[i].train);
        free(found->kinds[i].held);
        reef_memory_session_close(found->kinds[i].session);
        reef_memory_session_close(found->kinds[i].alone);
        reef_memory_free(found->kinds[i].memory);
    }
    free(found->kinds);
    *found = (reef_kinds_findings){0};
}

reef_status reef_bench_kinds_run(const reef_kinds_plan *plan,
                                 reef_kinds_findings *found,
                                 reef_error *err) {
    kinds_run run = {.plan = plan, .found = found, .random = plan->seed};
    *found = (reef_kinds_findings){.kind_count = plan->kind_count};
    found->kinds = reef_cli_alloc(plan->kind_count, sizeof(*found->kinds));
    reef_status status = read_texts(&run, err);
    if (status == REEF_OK) status = measure(&run, err);
    reef_model_close(run.model);
    reef_trainer_close(run.trainer);
    reef_store_close(run.store);
    reef_bench_directory_remove(&run.directory);
    free(run.pool);
    return status;
}
