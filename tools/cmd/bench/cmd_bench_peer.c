// reef bench peer: one PEER layer by itself, against the machine's limits and against a baseline;
// what sealing, half the bytes and wider kernels are worth.
#include "bench_peer.h"
#include "cli_format.h"
#include "commands.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS_MAX 100

static const reef_cli_option OPTIONS[] = {
    {"side", "N", "sub-keys per side; N * N experts (default: 1024)"},
    {"d-model", "N", "width of a token (default: 256)"},
    {"heads", "N", "heads (default: 8)"},
    {"topk", "N", "experts per head (default: 16)"},
    {"d-key", "N", "width of a query (default: 128)"},
    {"tokens", "N", "tokens of one pass (default: 2048)"},
    {"repeat", "N", "repetitions of each pass; the median counts (default: 5)"},
    {"only", "PARTS", "what to measure of layer,retrieval,sealed90,bf16,int8,avx2 (default: all)"},
    {"rival", "SCRIPT", "Python script that measures the same layer otherwise"},
    {"rounds", "N", "how often the layer and the baseline are measured in turn (default: 1)"},
    {0},
};

const reef_cli_manual reef_bench_peer_manual = {
    .about =
        "Measures one PEER layer with random weights outside any pool, in six parts:\n"
        "\n"
        "layer     with one thread and with all: "
        "retrieval, forward, forward and backward, a whole\n"
        "          training step, and beside them what "
        "the machine does at most: matrix products at\n"
        "          the layer's shapes, reading in order, "
        "and gathering rows as a random router chooses\n"
        "          them; of several forms of a product's "
        "tiles and of gathering the fastest counts. The\n"
        "          composite limit of a forward pass is "
        "its products at the measured rate plus the rows\n"
        "          of all its selections, repeated ones too, "
        "at the rate of gathering from huge pages,\n"
        "          where the same share of rows is repeated.\n"
        "retrieval with the first pass in bytes that leaves most sub-keys out, "
        "and with all of them scored;\n"
        "          beside them the products of BLAS alone. Ids and weights must be the same to the "
        "bit.\n"
        "sealed90  a training step over ten generations "
        "of a tenth of the experts each, all of them on\n"
        "          every token: all open, "
        "against nine sealed and one open, with sealed rows in f32 and\n"
        "          in bf16; and where the time of the sealed ones goes.\n"
        "bf16      a forward pass with rows in bf16 against rows in f32, "
        "the whole and the experts' part,\n"
        "          and how far the outputs differ.\n"
        "int8      the same with rows in int8.\n"
        "avx2      where the kernels are of AVX-512: the program runs itself with those of AVX2.\n"
        "\n"
        "A baseline is run as `/usr/bin/python3 SCRIPT SIDE "
        "D_MODEL TOKENS sparse THREADS` and prints lines\n"
        "`NAME  SECONDS s  RATE tok/s` for retrieve, "
        "forward, forward+backward and train step (+Adam);\n"
        "heads, topk and d_key are the script's own. "
        "Our gradients of experts are part of the step, not\n"
        "of forward and backward, so there is no ratio for the latter. tools/bench/torch/peer.py "
        "of\n"
        "Reef's sources is such a script.",
    .options = OPTIONS,
    .example = "reef bench peer\n"
               "reef bench peer --only layer --side 32 --d-model 32 --tokens 128 --repeat 3\n"
               "reef bench peer --side 512 --threads 2 --repeat 9 --json\n"
               "reef bench peer --only sealed90,bf16\n"
               "reef bench peer --only layer --rival tools/bench/torch/peer.py --rounds 2",
};

// ---- options ------------------------------------------------------------------------------------

static const struct {
    const char *name;
    reef_peer_section part;
} PARTS[] = {{"layer", PEER_LAYER}, {"retrieval", PEER_RETRIEVAL}, {"sealed90", PEER_SEALED},
             {"bf16", PEER_BF16},   {"int8", PEER_INT8},           {"avx2", PEER_AVX2}};

#define PART_COUNT (sizeof(PARTS) / sizeof(PARTS[0]))

static unsigned part_named(const char *word, size_t length) {
    for (size_t i = 0; i < PART_COUNT; i++)
        if (strlen(PARTS[i].name) == length && strncmp(word, PARTS[i].name, length) == 0)
            return PARTS[i].part;
    return 0;
}

// Words with commas between them; everything without the option.
static reef_status read_parts(const char *words, unsigned *parts, reef_error *err) {
    *parts = 0;
    // Without the option every part is measured.
    for (size_t i = 0; words == NULL && i < PART_COUNT; i++) *parts |= PARTS[i].part;
    while (words != NULL) {
        size_t length = strcspn(words, ",");
        unsigned part = part_named(words, length);
        // The word is cut in the message, as it may be the whole of a wrong command line.
        if (part == 0)
            return reef_fail(err, REEF_ERR_INVALID,
                             "--only has '%.*s'; choose of layer,retrieval,sealed90,bf16,int8,avx2",
                             (int)(length < 64 ? length : 64), words);
        *parts |= part;
        // No comma after the last word.
        words = words[length] == ',' ? words + length + 1 : NULL;
    }
    // The kernels are compared by the layer's figures, so one needs the other.
    if ((*parts & PEER_AVX2) && !(*parts & PEER_LAYER))
        return reef_fail(err, REEF_ERR_INVALID,
                         "--only avx2 has nothing to compare with without layer");
    return REEF_OK;
}

// Rows, two moments and the table on small pages; better refused than ended by the system half way.
static reef_status check_memory(const reef_peer_plan *plan, reef_error *err) {
// Not every system can report its memory; there the check is left out.
#ifdef _SC_PHYS_PAGES
    double rows = (double)plan->shape.side * (double)plan->shape.side;
    double wanted = 4 * rows * 2 * (double)plan->shape.d_model * sizeof(float);
    double have = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    char need[CLI_WORD_BYTES], there[CLI_WORD_BYTES];
    if (have > 0 && wanted > have)
        return reef_fail(
            err, REEF_ERR_INVALID,
            "--side %zu and --d-model %zu take %s, and this machine has %s; choose less",
            plan->shape.side, plan->shape.d_model, reef_cli_bytes((uint64_t)wanted, need),
            reef_cli_bytes((uint64_t)have, there));
#else
    (void)plan;
    (void)err;
#endif
    return REEF_OK;
}

static reef_status read_plan(const reef_cli_call *cli, reef_peer_plan *plan, reef_error *err) {
    uint64_t side = 1024;
    *plan = (reef_peer_plan){
        .shape = {.d_model = 256, .head_count = 8, .topk = 16, .d_key = 128, .batch_norm = true},
        .tokens = 2048,
        .repeat = 5,
        .rounds = 1,
        .baseline = reef_cli_text(cli, "rival")};
    // Defaults first: an absent option leaves its number as it is.
    reef_status status = reef_cli_integer(cli, "side", 1, BENCH_SIDE_MAX, &side, err);
    if (status == REEF_OK) status = reef_bench_shape_read(cli, &plan->shape, &plan->tokens, err);
    if (status == REEF_OK)
        status = reef_cli_integer(cli, "repeat", 1, BENCH_REPEAT_MAX, &plan->repeat, err);
    if (status == REEF_OK)
        status = reef_cli_integer(cli, "rounds", 1, ROUNDS_MAX, &plan->rounds, err);
    if (status == REEF_OK) status = read_parts(reef_cli_text(cli, "only"), &plan->parts, err);
    if (status != REEF_OK) return status;
    plan->shape.side = (size_t)side;
    plan->piece_tokens = reef_bench_piece_tokens(plan->tokens);
    // The shape is checked with all its numbers together, as they bound one another.
    status = reef_router_shape_check(&plan->shape, err);
    return status == REEF_OK ? check_memory(plan, err) : status;
}

// ---- the command --------------------------------------------------------------------------------

// With one thread, and with all where those are more. What is never measured stays not a number.
static reef_status prepare_runs(reef_peer_plan *plan,
                                reef_peer_findings *f,
                                size_t threads,
                                reef_error *err) {
    for (size_t r = 0; r < PEER_RUNS_MAX; r++) {
        // NaN in every field: a figure that was not measured must not be read as zero.
        double *median = (double *)&f->runs[r].median;
        for (size_t i = 0; i < sizeof(reef_peer_sample) / sizeof(double); i++) median[i] = NAN;
    }
    reef_thread_pool *all = NULL;
    reef_status status = reef_thread_pool_new(&all, threads, err);
    if (status != REEF_OK) return status;
    // The number of threads that there really are, after the request has been met.
    plan->threads = reef_thread_pool_count(all);
    // One thread is measured apart only if more than one is used.
    f->run_count = plan->threads > 1 ? 2 : 1;
    // The last run is always the one with all threads.
    f->runs[f->run_count - 1].workers = all;
    if (f->run_count > 1) status = reef_thread_pool_new(&f->runs[0].workers, 1, err);
    for (size_t r = 0; r < f->run_count && status == REEF_OK; r++)
        f->runs[r].threads = reef_thread_pool_count(f->runs[r].workers);
    return status;
}

// One part after the other: each has the memory of the machine to itself.
static reef_status measure_parts(reef_peer_plan *plan,
                                 size_t threads,
                                 reef_peer_findings *f,
                                 reef_error *err) {
    f->load = reef_bench_load();
    reef_status status = prepare_runs(plan, f, threads, err);
    // On failure there may be no run, and with it no workers.
    reef_thread_pool *all = f->run_count > 0 ? reef_peer_run_all(f)->workers : NULL;
    if (status == REEF_OK && plan->parts & PEER_LAYER)
        status = reef_peer_layer_measure(plan, f, err);
    // The second process has the machine to itself as long as this one waits for it.
    if (status == REEF_OK && plan->parts & PEER_AVX2) reef_peer_avx2_measure(plan, &f->avx2);
    if (status == REEF_OK && plan->parts & PEER_RETRIEVAL)
        status = reef_peer_retrieval_measure(plan, all, &f->retrieval, err);
    if (status == REEF_OK && plan->parts & PEER_BF16)
        status = reef_peer_rounded_measure(plan, REEF_BF16, all, &f->bf16, err);
    if (status == REEF_OK && plan->parts & PEER_INT8)
        status = reef_peer_rounded_measure(plan, REEF_I8, all, &f->int8, err);
    if (status == REEF_OK && plan->parts & PEER_SEALED)
        status = reef_peer_sealed_measure(plan, all, &f->sealed, err);
    return status;
}

reef_status reef_cmd_bench_peer(reef_cli_call *cli, reef_error *err) {
    reef_peer_plan plan;
    reef_peer_findings f = {0};
    reef_status status = read_plan(cli, &plan, err);
    if (status == REEF_OK) status = measure_parts(&plan, cli->threads, &f, err);
    // One document or one set of tables: never both.
    if (status == REEF_OK && cli->json)
        status = reef_cli_reply(cli, reef_peer_json(&plan, &f), err);
    else if (status == REEF_OK)
        reef_peer_print(&plan, &f);
    // Released on failure too: both accept what was never made.
    reef_peer_layer_release(&f);
    for (size_t r = 0; r < PEER_RUNS_MAX; r++) reef_thread_pool_free(f.runs[r].workers);
    return status;
}
