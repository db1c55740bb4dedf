// reef-lab peer: passes of one PEER layer, and retrieval with and without its first pass.
//
// The layer and a rival alternate, and every figure is the median of its repetitions, so that other
// load on the machine affects all of them alike.
#include "cli_format.h"
#include "cli_progress.h"
#include "lab.h"
#include "lab_layer.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RUNS_MAX 2 // with one thread, and with all
#define ROUNDS_MAX 100

static const reef_cli_option OPTIONS[] = {
    {"side", "N", "sub-keys per side; N * N experts (default: 1024)"},
    {"d-model", "N", "width of a token (default: 256)"},
    {"heads", "N", "heads (default: 8)"},
    {"topk", "N", "experts per head (default: 16)"},
    {"d-key", "N", "width of a query (default: 128)"},
    {"tokens", "N", "tokens of one pass (default: 2048)"},
    {"repeat", "N", "repetitions of each pass; the median counts (default: 5)"},
    {"rival", "SCRIPT", "Python script that measures the same layer otherwise"},
    {"rounds", "N", "how often the layer and the rival are measured in turn (default: 1)"},
    {0},
};

const reef_cli_manual reef_lab_peer_manual = {
    .about =
        "Measures one PEER layer with random weights outside any pool, with one thread and with\n"
        "all: retrieval, forward, forward and backward, and a whole training step. Then retrieval\n"
        "with the first pass in bytes that leaves most sub-keys out, and with all of them scored,\n"
        "in turns: ids and weights must be the same to the bit.\n"
        "\n"
        "A rival is run as `/usr/bin/python3 SCRIPT SIDE D_MODEL TOKENS sparse THREADS` and\n"
        "prints lines `NAME  SECONDS s  RATE tok/s` for retrieve, forward, forward+backward and\n"
        "train step (+Adam). Our gradients of experts are part of the step, not of forward and\n"
        "backward, so there is no ratio for the latter.",
    .options = OPTIONS,
    .example = "reef-lab peer --side 512 --threads 2 --json\n"
               "reef-lab peer --rival research/torch/peer.py --rounds 3",
};

enum { PASS_RETRIEVE, PASS_FORWARD, PASS_BACKWARD, PASS_STEP, PASS_COUNT };

static const struct {
    const char *name, *key, *rival; // for people, for programs, and in a rival's lines
    reef_lab_pass *run;
} PASSES[PASS_COUNT] = {
    {"retrieval", "retrieval", "retrieve", reef_lab_layer_retrieve},
    {"forward", "forward", "forward", reef_lab_layer_forward},
    {"forward and backward", "forward_backward", "forward+backward", reef_lab_layer_backward},
    {"training step", "step", "train step (+Adam)", reef_lab_layer_step},
};

#define STAGE_LIST(X)                                                                              \
    X(retrieval)                                                                                   \
    X(experts)                                                                                     \
    X(loss)                                                                                        \
    X(experts_backward)                                                                            \
    X(retrieval_backward)                                                                          \
    X(sort)                                                                                        \
    X(experts_update)                                                                              \
    X(retrieval_update)

static const char *const STAGES[] = {
#define STAGE_NAME(field) #field,
    STAGE_LIST(STAGE_NAME)
#undef STAGE_NAME
};

#define STAGE_COUNT (sizeof(STAGES) / sizeof(STAGES[0]))

/** One repetition, or the medians of many: all fields are doubles, in one order. */
typedef struct sample {
    double pass[PASS_COUNT];   // seconds
    double stage[STAGE_COUNT]; // of the training step
} sample;

#define SAMPLE_FIELDS (sizeof(sample) / sizeof(double))

typedef struct run {
    size_t threads;
    reef_thread_pool *workers;
    sample *samples; // (rounds * repeat)
    size_t count;
    sample median;
} run;

typedef struct peer {
    reef_lab_layer_options layer;
    uint64_t repeat, rounds;
    run runs[RUNS_MAX]; // with one thread first
    size_t run_count;
    size_t touched; // experts that a pass chose
    double loss_before, loss_after;
    const char *script;          // of the rival, or NULL
    double (*rates)[PASS_COUNT]; // (rounds) tokens per second of the rival
    size_t rate_count;
    double rival[PASS_COUNT]; // medians
    reef_error rival_error;   // the first failure ends its rounds
    bool first_pass, same;    // retrieval: there is one with this size; ids and weights are equal
    double first_seconds, all_seconds;
} peer;

static const run *run_all(const peer *p) {
    return &p->runs[p->run_count - 1];
}

static double tokens_per_s(const peer *p, double seconds) {
    return (double)p->layer.tokens / seconds;
}

static double rival_ratio(const peer *p, size_t pass) {
    if (p->rate_count == 0) return NAN;
    return tokens_per_s(p, run_all(p)->median.pass[pass]) / p->rival[pass];
}

// ---- the rival ----------------------------------------------------------------------------------

// `NAME  SECONDS s  RATE tok/s`: the name is followed by a space, and a number.
static void read_rate(const char *line, const char *name, double *rate) {
    double seconds, found;
    size_t length = strlen(name);
    if (strncmp(line, name, length) == 0 &&
        sscanf(line + length, " %lf s %lf tok/s", &seconds, &found) == 2)
        *rate = found;
}

static void measure_rival(peer *p) {
    if (p->script == NULL || p->rival_error.status != REEF_OK) return;
    const size_t values[] = {p->layer.shape.side, p->layer.shape.d_model, p->layer.tokens,
                             run_all(p)->threads};
    char numbers[4][24], *text, *rest = NULL;
    for (size_t i = 0; i < 4; i++) snprintf(numbers[i], sizeof(numbers[i]), "%zu", values[i]);
    const char *const arguments[] = {p->script, numbers[0], numbers[1], numbers[2],
                                     "sparse",  numbers[3], NULL};
    double *rates = p->rates[p->rate_count];
    if (reef_lab_python_run(&text, arguments, &p->rival_error) != REEF_OK) return;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        for (size_t pass = 0; pass < PASS_COUNT; pass++)
            read_rate(line, PASSES[pass].rival, &rates[pass]);
    free(text);
    p->rate_count++;
    for (size_t pass = 0; pass < PASS_COUNT; pass++) {
        if (rates[pass] > 0) continue;
        reef_fail(&p->rival_error, REEF_ERR_IO,
                  "%.120s printed no line '%s  SECONDS s  RATE tok/s'", p->script,
                  PASSES[pass].rival);
        p->rate_count = 0;
        return;
    }
}

// ---- passes -------------------------------------------------------------------------------------

static reef_status take_sample(reef_lab_layer *layer,
                               reef_thread_pool *workers,
                               sample *out,
                               reef_error *err) {
    reef_lab_seconds seconds = {0};
    for (size_t pass = 0; pass < PASS_COUNT; pass++) {
        reef_status status = PASSES[pass].run(layer, workers, &seconds, err);
        if (status != REEF_OK) return status;
        out->pass[pass] = reef_lab_seconds_sum(&seconds);
    }
    size_t at = 0;
#define STAGE_COPY(field) out->stage[at++] = seconds.field;
    STAGE_LIST(STAGE_COPY)
#undef STAGE_COPY
    return REEF_OK;
}

// All numbers of threads in each repetition: a slow minute of the machine then hits all alike.
static reef_status measure_round(peer *p, reef_lab_layer *layer, reef_error *err) {
    for (uint64_t i = 0; i < p->repeat; i++)
        for (size_t r = 0; r < p->run_count; r++) {
            run *one = &p->runs[r];
            reef_status status = take_sample(layer, one->workers, &one->samples[one->count++], err);
            if (status != REEF_OK) return status;
        }
    measure_rival(p);
    return REEF_OK;
}

static void take_medians(peer *p) {
    for (size_t r = 0; r < p->run_count; r++)
        for (size_t i = 0; i < SAMPLE_FIELDS; i++)
            ((double *)&p->runs[r].median)[i] = reef_lab_median(
                (const double *)p->runs[r].samples + i, p->runs[r].count, SAMPLE_FIELDS);
    for (size_t pass = 0; p->rate_count > 0 && pass < PASS_COUNT; pass++)
        p->rival[pass] = reef_lab_median(&p->rates[0][pass], p->rate_count, PASS_COUNT);
}

static reef_status measure_passes(peer *p, reef_lab_layer *layer, reef_error *err) {
    sample ignored;
    reef_cli_progress progress;
    // Pages, caches, OpenBLAS and the workers settle; nothing of it counts.
    reef_status status = REEF_OK;
    for (size_t r = 0; r < p->run_count && status == REEF_OK; r++)
        status = take_sample(layer, p->runs[r].workers, &ignored, err);
    p->loss_before = reef_lab_layer_loss(layer);
    reef_cli_progress_start(&progress, "measuring", p->rounds, "rounds");
    for (uint64_t round = 0; round < p->rounds && status == REEF_OK; round++) {
        status = measure_round(p, layer, err);
        reef_cli_progress_show(&progress, round + 1);
    }
    reef_cli_progress_end(&progress);
    if (status != REEF_OK) return status;
    p->loss_after = reef_lab_layer_loss(layer);
    p->touched = reef_lab_layer_touched(layer);
    take_medians(p);
    return REEF_OK;
}

// ---- retrieval ----------------------------------------------------------------------------------

static reef_status retrieve(
    peer *p, reef_lab_layer *layer, bool all, double *seconds, reef_error *err) {
    reef_lab_seconds parts;
    reef_lab_layer_score_all(layer, all);
    reef_status status = reef_lab_layer_retrieve(layer, run_all(p)->workers, &parts, err);
    *seconds = parts.retrieval;
    return status;
}

// Both ways in turns; ids and weights of every turn are compared.
static reef_status measure_retrieval(peer *p, reef_lab_layer *layer, reef_error *err) {
    const reef_router_tape *tape = reef_lab_layer_tape(layer);
    const size_t count = p->layer.tokens * p->layer.shape.head_count * p->layer.shape.topk;
    reef_expert_id *indices = reef_cli_alloc(count, sizeof(*indices));
    float *gate = reef_cli_alloc(count, sizeof(*gate));
    double *seconds[2];
    for (size_t all = 0; all < 2; all++) seconds[all] = reef_cli_alloc(p->repeat, sizeof(double));
    reef_status status = REEF_OK;
    p->first_pass = tape->coarse != NULL;
    p->same = true;
    for (uint64_t i = 0; i < p->repeat && status == REEF_OK; i++) {
        status = retrieve(p, layer, true, &seconds[1][i], err);
        memcpy(indices, tape->indices, count * sizeof(*indices));
        memcpy(gate, tape->gate, count * sizeof(*gate));
        if (status == REEF_OK) status = retrieve(p, layer, false, &seconds[0][i], err);
        p->same = p->same && memcmp(indices, tape->indices, count * sizeof(*indices)) == 0 &&
                  memcmp(gate, tape->gate, count * sizeof(*gate)) == 0;
    }
    p->first_seconds = reef_lab_median(seconds[0], p->repeat, 1);
    p->all_seconds = reef_lab_median(seconds[1], p->repeat, 1);
    for (size_t all = 0; all < 2; all++) free(seconds[all]);
    free(indices);
    free(gate);
    return status;
}

// ---- answers ------------------------------------------------------------------------------------

static void print_passes(const peer *p) {
    static const char *const HEADING[] = {"tokens/s", "1 thread", "all threads", "rival", "ratio"};
    char one[CLI_WORD_BYTES], all[CLI_WORD_BYTES], theirs[CLI_WORD_BYTES] = "-";
    reef_cli_table *table = reef_cli_table_new("<>>>>", HEADING);
    for (size_t pass = 0; pass < PASS_COUNT; pass++) {
        reef_cli_count((uint64_t)tokens_per_s(p, p->runs[0].median.pass[pass]), one);
        reef_cli_count((uint64_t)tokens_per_s(p, run_all(p)->median.pass[pass]), all);
        if (p->rate_count > 0) reef_cli_count((uint64_t)p->rival[pass], theirs);
        reef_cli_table_cell(table, "%s", PASSES[pass].name);
        reef_cli_table_cell(table, "%s", one);
        reef_cli_table_cell(table, "%s", all);
        reef_cli_table_cell(table, "%s", theirs);
        if (p->rate_count == 0 ||
            pass == PASS_BACKWARD) // theirs has the gradients of experts in it
            reef_cli_table_cell(table, "-");
        else
            reef_cli_table_cell(table, "%.2f", rival_ratio(p, pass));
    }
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

static void print_stages(const peer *p) {
    static const char *const HEADING[] = {"of a step, us a token", "1 thread", "all threads"};
    reef_cli_table *table = reef_cli_table_new("<>>", HEADING);
    for (size_t i = 0; i < STAGE_COUNT; i++) {
        reef_cli_table_cell(table, "%s", STAGES[i]);
        reef_cli_table_cell(table, "%.2f", 1e6 / tokens_per_s(p, p->runs[0].median.stage[i]));
        reef_cli_table_cell(table, "%.2f", 1e6 / tokens_per_s(p, run_all(p)->median.stage[i]));
    }
    putchar('\n');
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

static void print(const peer *p) {
    const reef_router_shape *shape = &p->layer.shape;
    char words[CLI_WORD_BYTES];
    reef_lab_machine_print(run_all(p)->threads);
    printf("layer     %zu x %zu experts of width %zu, %zu heads of %zu, d_key %zu\n", shape->side,
           shape->side, shape->d_model, shape->head_count, shape->topk, shape->d_key);
    printf("pass      %zu tokens choose %s experts\n\n", p->layer.tokens,
           reef_cli_count(p->touched, words));
    print_passes(p);
    print_stages(p);
    printf(
        "\nretrieval %.2f us a token %s first pass, %.2f with all sub-keys scored: %.2f times as "
        "fast; ids and weights are %s\n",
        1e6 / tokens_per_s(p, p->first_seconds), p->first_pass ? "with a" : "without a",
        1e6 / tokens_per_s(p, p->all_seconds), p->all_seconds / p->first_seconds,
        p->same ? "the same to the bit" : "NOT the same");
}

static json_t *run_json(const peer *p, const run *one) {
    json_t *object = json_pack("{s:I}", "threads", (json_int_t)one->threads);
    for (size_t pass = 0; pass < PASS_COUNT; pass++)
        json_object_set_new(object, PASSES[pass].key,
                            reef_cli_real(tokens_per_s(p, one->median.pass[pass])));
    json_t *stages = json_object();
    for (size_t i = 0; i < STAGE_COUNT; i++)
        json_object_set_new(stages, STAGES[i], reef_cli_real(one->median.stage[i]));
    json_object_set_new(object, "step_seconds_in", stages);
    return object;
}

static json_t *document(const peer *p) {
    const reef_router_shape *shape = &p->layer.shape;
    json_t *runs = json_array(), *rival = json_object();
    for (size_t r = 0; r < p->run_count; r++) json_array_append_new(runs, run_json(p, &p->runs[r]));
    for (size_t pass = 0; p->rate_count > 0 && pass < PASS_COUNT; pass++)
        json_object_set_new(rival, PASSES[pass].key, reef_cli_real(p->rival[pass]));
    json_t *retrieval = json_pack("{s:b, s:b, s:o, s:o}", "first_pass", p->first_pass, "same",
                                  p->same, "seconds", reef_cli_real(p->first_seconds),
                                  "all_scores_seconds", reef_cli_real(p->all_seconds));
    json_t *found = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "side",
        (json_int_t)shape->side, "d_model", (json_int_t)shape->d_model, "heads",
        (json_int_t)shape->head_count, "topk", (json_int_t)shape->topk, "d_key",
        (json_int_t)shape->d_key, "tokens", (json_int_t)p->layer.tokens, "repeat",
        (json_int_t)p->repeat, "rounds", (json_int_t)p->rounds, "touched_experts",
        (json_int_t)p->touched, "loss_before", reef_cli_real(p->loss_before), "loss_after",
        reef_cli_real(p->loss_after), "tokens_per_s", runs, "rival_tokens_per_s", rival,
        "rival_forward_ratio", reef_cli_real(rival_ratio(p, PASS_FORWARD)), "rival_step_ratio",
        reef_cli_real(rival_ratio(p, PASS_STEP)), "retrieval", retrieval);
    reef_lab_machine_json(found, run_all(p)->threads);
    return found;
}

// ---- the command --------------------------------------------------------------------------------

static reef_status read_options(const reef_cli_call *cli, peer *p, reef_error *err) {
    uint64_t side = 1024;
    reef_router_shape *shape = &p->layer.shape;
    reef_status status = reef_cli_integer(cli, "side", 1, LAB_SIDE_MAX, &side, err);
    if (status == REEF_OK)
        status = reef_lab_shape_read(cli, shape, &p->layer.tokens, &p->repeat, err);
    if (status == REEF_OK) status = reef_cli_integer(cli, "rounds", 1, ROUNDS_MAX, &p->rounds, err);
    shape->side = (size_t)side;
    if (status == REEF_OK) status = reef_router_shape_check(shape, err);
    return status == REEF_OK ? reef_lab_memory_check(shape, err) : status;
}

// With one thread, and with all where those are more.
static reef_status make_runs(peer *p, size_t threads, reef_error *err) {
    reef_thread_pool *all = NULL;
    reef_status status = reef_thread_pool_new(&all, threads, err);
    if (status != REEF_OK) return status;
    p->run_count = reef_thread_pool_count(all) > 1 ? 2 : 1;
    p->runs[p->run_count - 1].workers = all;
    if (p->run_count > 1) status = reef_thread_pool_new(&p->runs[0].workers, 1, err);
    for (size_t r = 0; r < p->run_count && status == REEF_OK; r++) {
        p->runs[r].threads = reef_thread_pool_count(p->runs[r].workers);
        p->runs[r].samples = reef_cli_alloc((size_t)(p->rounds * p->repeat), sizeof(sample));
    }
    p->rates = reef_cli_alloc((size_t)p->rounds, sizeof(*p->rates));
    return status;
}

reef_status reef_lab_peer(reef_cli_call *cli, reef_error *err) {
    peer p = {.layer = {.shape = {.d_model = 256,
                                  .head_count = 8,
                                  .topk = 16,
                                  .d_key = 128,
                                  .batch_norm = true},
                        .tokens = 2048},
              .repeat = 5,
              .rounds = 1,
              .script = reef_cli_text(cli, "rival")};
    reef_lab_layer *layer = NULL;
    reef_status status = read_options(cli, &p, err);
    if (status == REEF_OK) status = make_runs(&p, cli->threads, err);
    // The threads' memory is placed by the run with all of them, as it is in the daemon.
    if (status == REEF_OK) status = reef_lab_layer_new(&layer, &p.layer, run_all(&p)->workers, err);
    if (status == REEF_OK) status = measure_passes(&p, layer, err);
    if (status == REEF_OK) status = measure_retrieval(&p, layer, err);
    // A rival that fails is a warning: our own figures are still good.
    if (p.rival_error.status != REEF_OK)
        fprintf(stderr, "reef-lab: rival not measured: %s\n", p.rival_error.message);
    if (status == REEF_OK && cli->json)
        status = reef_cli_reply(cli, document(&p), err);
    else if (status == REEF_OK)
        print(&p);
    reef_lab_layer_free(layer);
    for (size_t r = 0; r < RUNS_MAX; r++) {
        free(p.runs[r].samples);
        reef_thread_pool_free(p.runs[r].workers);
    }
    free(p.rates);
    return status;
}
