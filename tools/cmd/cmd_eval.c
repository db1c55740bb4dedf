// reef eval: loss on files, now or as of any earlier state; with --matrix, in every state.
#include "chart.h"
#include "cli_format.h"
#include "cli_pool.h"
#include "cli_progress.h"
#include "commands.h"
#include "matrix.h"
#include "reef_pool_json.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const reef_cli_option OPTIONS[] = {
    CLI_OPTION_AS_OF,
    {"matrix", NULL, "as of every generation, and now, with what was forgotten"},
    CLI_OPTION_FROZEN,
    {"kinds", NULL, "also draw which kind's context memory answered where in each file"},
    {"logits", "FILE.npy",
     "also write the logits of the one text by the newest net alone, (bytes, 256) floats; row i "
     "is about byte i + 1"},
    {"learned", "G,G,...",
     "with --matrix: the generation in which each file was learned (default: "
     "one after the other, where there are as many files as generations)"},
    {0},
};

const reef_cli_manual reef_eval_manual = {
    .about =
        "Reads each file as one stream and prints bits per byte, perplexity per byte, and the\n"
        "share of bytes that each kind answered. --as-of G is exactly the function that\n"
        "the model was when generation G was sealed. --matrix prints forgetting in both usual\n"
        "definitions: since best (Chaudhry 2018: the least loss of all earlier states, against\n"
        "now) and, where it is known when a file was learned, since learned (Lopez-Paz 2017: the\n"
        "negative of backward transfer).\n"
        "\n"
        "In a pool with context memories these adapt to each file as they read it, and forget it\n"
        "afterwards. With --frozen they do not: as in a language model that has been trained no\n"
        "count and no weight changes, and what the file said before is context, where matches\n"
        "find it. With --frozen=alone they do not find it either: what was learned alone answers.\n"
        "Other pools have nothing that adapts, and read the same with it. --verbose also prints\n"
        "what each input of their mixers was worth in a file, by its part of the log odds, and in\n"
        "which share of the bytes it had something to say; \"net\" is the net.\n"
        "\n"
        "Which memory answers is a matter of gates, or with boundaries contexts of how well each\n"
        "predicted so far; then the last column has the shares of bytes that each answered, and\n"
        "--kinds draws where. With --json it says how likely they were in the mean; libreef and\n"
        "Python have all candidates of each byte (answers).",
    .options = OPTIONS,
    .example = "reef eval reef.pool english.txt code.c\n"
               "reef eval reef.pool --as-of 0 english.txt\n"
               "reef eval reef.pool --frozen --verbose english.txt\n"
               "reef eval reef.pool --kinds mixed.txt\n"
               "reef eval reef.pool --logits logits.npy english.txt\n"
               "reef eval reef.pool --matrix english.txt code.c",
};

// ---- logits -------------------------------------------------------------------------------------
//
// The prediction of every byte of a text, for another program to compare: (bytes, 256) floats in a
// file of NumPy's format 1.0. Row i is about the byte after byte i, given those up to it.
//
//   0    6 bytes  \x93NUMPY
//   6    2 bytes  1, 0: the version
//   8    2 bytes  little-endian: bytes of the header, padding and newline included
//   10            {'descr': '<f4', 'fortran_order': False, 'shape': (2, 256,), }, padded so that
//                 data begins at a multiple of 64

#define LOGITS_MAX ((size_t)1 << 28) // 1 GiB: of 1 MiB of bytes
#define NPY_HEADER_BYTES 128
#define NPY_PREFIX_BYTES 10

static reef_status check_logits(const reef_cli_call *cli,
                                const reef_cli_file *files,
                                reef_error *err) {
    // Bounded, because the array is kept in memory: 256 floats a byte.
    size_t most = LOGITS_MAX / REEF_VOCAB;
    if (cli->operand_count != 1)
        return reef_fail(err, REEF_ERR_INVALID,
                         "--logits is of one text, and %zu were given; name one of them",
                         cli->operand_count);
    if (files[0].count <= most) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "%.120s has %zu bytes, and --logits is of at most %zu; take its beginning",
                     files[0].path, files[0].count, most);
}

static reef_status write_npy(const char *path, size_t rows, const float *values, reef_error *err) {
    char header[NPY_HEADER_BYTES] = "\x93NUMPY\x01";
    size_t count = rows * REEF_VOCAB, at = NPY_PREFIX_BYTES;
    header[8] = NPY_HEADER_BYTES - NPY_PREFIX_BYTES;
    at += (size_t)snprintf(header + at, sizeof(header) - at,
                           "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %d,), }", rows,
                           REEF_VOCAB);
    memset(header + at, ' ', sizeof(header) - at);
    header[sizeof(header) - 1] = '\n';
    // O_EXCL: an array that is there is never replaced.
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_EXCL, 0666);
    if (fd < 0 && errno == EEXIST)
        return reef_fail(err, REEF_ERR_INVALID,
                         "cannot write %.160s: it exists; choose another name", path);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "wb");
    bool whole = out != NULL && fwrite(header, 1, sizeof(header), out) == sizeof(header) &&
                 fwrite(values, sizeof(*values), count, out) == count && fflush(out) == 0;
    int code = errno;
    if (out != NULL) (void)fclose(out);
    if (out == NULL && fd >= 0) (void)close(fd); // it is ours until fdopen() has it
    if (whole) return REEF_OK;
    if (fd >= 0) (void)unlink(path);
    return reef_cli_write_failed(path, code, err);
}

static reef_status write_logits(const reef_cli_call *cli,
                                reef_model *model,
                                const reef_cli_file *files,
                                reef_error *err) {
    const char *path = reef_cli_text(cli, "logits");
    if (path == NULL) return REEF_OK;
    reef_status status = check_logits(cli, files, err);
    if (status != REEF_OK) return status;
    size_t count = files[0].count;
    float *logits = reef_cli_alloc(count * REEF_VOCAB, sizeof(*logits));
    status = reef_model_logits(model, files[0].bytes, count, logits, err);
    if (status == REEF_OK) status = write_npy(path, count, logits, err);
    free(logits);
    return status;
}

// ---- one state ----------------------------------------------------------------------------------

typedef struct file_score {
    reef_score score;
    double *fire_share;
    uint32_t *answered; // with --kinds, and how likely these were
    float *weights;
    const reef_kind_list *kinds; // their names, with --kinds
    bool recalled;               // by context memories, whose inputs were worth so much
    double shares[REEF_MEMORY_INPUTS_MAX], hits[REEF_MEMORY_INPUTS_MAX];
} file_score;

static void print_scores(const reef_cli_file *files,
                         const file_score *scores,
                         size_t count,
                         const reef_model *model) {
    const char *const HEADING[] = {"file", "bytes", "bits/byte", "perplexity/byte",
                                   "answered % by kind"};
    reef_cli_table *table = reef_cli_table_new("<>>><", HEADING);
    for (size_t i = 0; i < count; i++) {
        const reef_score *score = &scores[i].score;
        char *shares = reef_cli_shares(scores[i].fire_share, reef_model_generation_count(model));
        reef_cli_table_cell(table, "%s", files[i].path);
        reef_cli_table_cells(table, "%s\t%.4f\t%.3f\t%s", CLI_COUNT(score->bytes),
                             score->bits_per_byte, exp2(score->bits_per_byte), shares);
        free(shares);
    }
    reef_cli_table_show(table);
}

static reef_kinds_text kinds_of(const reef_cli_file *file, const file_score *score) {
    return (reef_kinds_text){
        .answered = score->answered,
        .weights = score->weights,
        .count = file->count,
        .bytes = file->count,
        .kinds = score->kinds,
    };
}

static json_t *kinds_json(const reef_kinds_text *text) {
    reef_kinds_row rows[REEF_KINDS_ROWS_MAX];
    size_t count = reef_kinds_rows(text, rows);
    json_t *kinds = json_array(), *runs = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(kinds, json_pack("{s:I, s:I}", "kind", (json_int_t)rows[i].kind,
                                               "bytes", (json_int_t)rows[i].parts));
    for (size_t from = 0, end; from < text->count; from = end) {
        double weight = 0.0;
        for (end = from; end < text->count && text->answered[end] == text->answered[from]; end++)
            weight += (double)text->weights[end];
        json_array_append_new(runs, json_pack("{s:I, s:I, s:f}", "from", (json_int_t)from, "kind",
                                              (json_int_t)text->answered[from], "weight",
                                              weight / (double)(end - from)));
    }
    return json_pack("{s:o, s:o}", "most", kinds, "runs", runs);
}

static json_t *score_json(const reef_cli_file *file,
                          const file_score *score,
                          uint32_t generations) {
    json_t *shares = json_array();
    for (uint32_t g = 0; g < generations; g++)
        json_array_append_new(shares, reef_cli_real(score->fire_share[g]));
    json_t *object =
        json_pack("{s:o, s:I, s:o, s:o, s:o, s:o}", "file", reef_cli_path(file->path), "bytes",
                  (json_int_t)score->score.bytes, "bits", reef_cli_real(score->score.bits),
                  "bits_per_byte", reef_cli_real(score->score.bits_per_byte), "perplexity_per_byte",
                  reef_cli_real(exp2(score->score.bits_per_byte)), "fire_share", shares);
    if (score->answered != NULL) {
        const reef_kinds_text text = kinds_of(file, score);
        json_object_set_new(object, "kinds", kinds_json(&text));
    }
    if (score->recalled)
        json_object_set_new(object, "inputs", reef_memory_inputs_json(score->shares, score->hits));
    return object;
}

// The input with the greatest share first; inputs that never predicted anything are left out.
static void print_inputs(const reef_cli_file *file, const file_score *score) {
    static const char *const HEADING[] = {"input", "share %", "known %"};
    size_t order[REEF_MEMORY_INPUTS_MAX], count = reef_memory_input_count();
    reef_cli_input_order(score->shares, order);
    reef_cli_table *table = reef_cli_table_new("<>>", HEADING);
    for (size_t i = 0; i < count; i++) {
        if (score->hits[order[i]] <= 0) continue;
        reef_cli_table_cells(table, "%s\t%.2f\t%.1f", reef_memory_input_name(order[i]),
                             100 * score->shares[order[i]], 100 * score->hits[order[i]]);
    }
    printf("\n%s:\n", file->path);
    reef_cli_table_show(table);
}

static void draw_kinds(const reef_cli_call *cli,
                       const reef_cli_file *files,
                       const file_score *scores) {
    for (size_t i = 0; i < cli->operand_count; i++) {
        const reef_kinds_text text = kinds_of(&files[i], &scores[i]);
        printf("\n%s:\n", files[i].path);
        reef_chart_kinds_print(stdout, &text);
    }
}

// What --frozen was, which opening the model has checked.
static json_t *frozen_json(const reef_cli_call *cli) {
    const char *text = reef_cli_text(cli, "frozen");
    return text == NULL || text[0] == '\0' ? json_boolean(text != NULL) : json_string(text);
}

static reef_status reply_eval(reef_cli_call *cli,
                              const char *as_of,
                              const reef_cli_file *files,
                              const file_score *scores,
                              const reef_model *model,
                              reef_error *err) {
    uint32_t generations = reef_model_generation_count(model);
    if (!cli->json) {
        print_scores(files, scores, cli->operand_count, model);
        for (size_t i = 0; cli->verbose && i < cli->operand_count; i++)
            if (scores[i].recalled) print_inputs(&files[i], &scores[i]);
        if (reef_cli_text(cli, "kinds") != NULL) draw_kinds(cli, files, scores);
        return REEF_OK;
    }
    json_t *array = json_array();
    for (size_t i = 0; i < cli->operand_count; i++)
        json_array_append_new(array, score_json(&files[i], &scores[i], generations));
    // `as_of` is repeated, so that a stored document says what it measured.
    return reef_cli_reply(
        cli,
        json_pack("{s:s, s:o, s:o}", "as_of", as_of, "frozen", frozen_json(cli), "files", array),
        err);
}

// Read all files. `list` is NULL without --kinds.
static reef_status score_files(const reef_cli_call *cli,
                               reef_model *model,
                               const reef_cli_file *files,
                               const reef_kind_list *list,
                               file_score *scores,
                               reef_error *err) {
    reef_status status = REEF_OK;
    uint64_t total = 0;
    // All files count into one bar, so that its ETA is for the whole command.
    for (size_t i = 0; i < cli->operand_count; i++) total += files[i].count;
    reef_cli_progress progress;
    reef_cli_progress_start(&progress, "evaluating", total, "B");
    for (size_t i = 0; i < cli->operand_count && status == REEF_OK; i++) {
        file_score *score = &scores[i];
        score->fire_share = reef_cli_alloc(reef_model_generation_count(model), sizeof(double));
        score->score.fire_share = score->fire_share;
        if (list != NULL) {
            score->kinds = list;
            score->answered = reef_cli_alloc(files[i].count, sizeof(uint32_t));
            score->weights = reef_cli_alloc(files[i].count, sizeof(float));
            score->score.answers =
                (reef_answers){.width = 1, .kinds = score->answered, .weights = score->weights};
        }
        status = reef_score_file(model, &files[i], &progress, NULL, &score->score, err);
        score->recalled = reef_model_inputs(model, score->shares, score->hits);
    }
    reef_cli_progress_end(&progress);
    return status;
}

static void release_scores(file_score *scores, size_t count) {
    for (size_t i = 0; scores != NULL && i < count; i++) {
        free(scores[i].fire_share);
        free(scores[i].answered);
        free(scores[i].weights);
    }
    free(scores);
}

static reef_status eval_once(reef_cli_call *cli,
                             reef_cli_pool *pool,
                             const reef_cli_file *files,
                             reef_error *err) {
    if (reef_cli_text(cli, "learned") != NULL)
        return reef_fail(err, REEF_ERR_INVALID, "--learned is about forgetting: it needs --matrix");
    char as_of[REEF_NAME_BYTES_MAX + 1];
    bool kinds = reef_cli_text(cli, "kinds") != NULL;
    reef_model *model = NULL;
    reef_kind_list list = {0};
    file_score *scores = NULL;
    // Opened first, so that a state that does not exist is reported before other mistakes.
    reef_status status = reef_cli_as_of(cli, pool->store, as_of, err);
    if (status == REEF_OK) status = reef_cli_model_open(&model, cli, pool->store, as_of, err);
    // Logits are written in a pass of their own, so that they can be compared with other programs.
    if (status == REEF_OK) status = write_logits(cli, model, files, err);
    if (status != REEF_OK) goto cleanup;
    if (kinds) status = reef_cli_kinds_read(pool, &list, err);
    if (status != REEF_OK) goto cleanup;
    scores = reef_cli_alloc(cli->operand_count, sizeof(*scores));
    status = score_files(cli, model, files, kinds ? &list : NULL, scores, err);
    // Nothing is printed before all files are read, so that a failure leaves no half table.
    if (status == REEF_OK) status = reply_eval(cli, as_of, files, scores, model, err);

cleanup:
    release_scores(scores, cli->operand_count);
    reef_kind_list_release(&list);
    reef_model_close(model);
    return status;
}

// ---- every state --------------------------------------------------------------------------------

// The generation in which each file was learned: the option --learned, or file j in generation j if
// the numbers agree, or MATRIX_UNKNOWN.
static reef_status read_learned(
    const reef_cli_call *cli, size_t generations, size_t *learned, size_t files, reef_error *err) {
    const char *text = reef_cli_text(cli, "learned");
    size_t count = 0;
    for (size_t j = 0; j < files; j++)
        learned[j] = text == NULL && generations == files ? j : MATRIX_UNKNOWN;
    for (const char *at = text; at != NULL; count++) {
        char *end;
        // strtoul takes signs, hence the check of the first character.
        unsigned long generation = strtoul(at, &end, 10);
        bool number = *at >= '0' && *at <= '9' && (*end == ',' || *end == '\0');
        if (!number || generation >= generations || count == files) {
            count = MATRIX_UNKNOWN;
            break;
        }
        learned[count] = generation;
        at = *end == ',' ? end + 1 : NULL;
    }
    // All or none: a shorter list would be a guess about the rest.
    if (text == NULL || count == files) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "--learned is '%.64s', but must be one generation, "
                     "0 to %zu, for each of %zu files",
                     text, generations - 1, files);
}

static json_t *figures_json(const reef_matrix *matrix,
                            double (*figure)(const reef_matrix *, size_t)) {
    json_t *array = json_array();
    for (size_t j = 0; j < matrix->columns; j++)
        json_array_append_new(array, reef_cli_real(figure(matrix, j)));
    return array;
}

static json_t *summary_json(const reef_matrix *matrix) {
    reef_matrix_summary summary = reef_matrix_summarise(matrix);
    return json_pack("{s:o, s:o, s:o, s:o}", "final_mean", reef_cli_real(summary.final_mean),
                     "forgetting_max", reef_cli_real(summary.forgetting_max), "forgetting_learned",
                     reef_cli_real(summary.forgetting_learned), "backward_transfer",
                     reef_cli_real(summary.backward_transfer));
}

static json_t *matrix_json(const reef_matrix *matrix, const reef_cli_file *files) {
    json_t *names = json_array();
    for (size_t j = 0; j < matrix->columns; j++)
        json_array_append_new(names, reef_cli_path(files[j].path));
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "files", names, "rows",
                     reef_matrix_row_names_json(matrix), "matrix", reef_matrix_json(matrix),
                     "forgetting", figures_json(matrix, reef_matrix_forgetting_max),
                     "forgetting_learned", figures_json(matrix, reef_matrix_forgetting_learned),
                     "figures", summary_json(matrix));
}

static void print_matrix(const reef_matrix *matrix, const reef_cli_file *files) {
    const char **names = reef_cli_alloc(matrix->columns, sizeof(*names));
    for (size_t j = 0; j < matrix->columns; j++) names[j] = files[j].path;
    reef_matrix_print(matrix, names);
    free(names);
}

static reef_status eval_matrix(reef_cli_call *cli,
                               reef_cli_pool *pool,
                               const reef_cli_file *files,
                               reef_error *err) {
    static const char *const ONE_STATE[] = {"as-of", "logits"};
    // Options of one state would silently apply to none here.
    for (size_t i = 0; i < sizeof(ONE_STATE) / sizeof(*ONE_STATE); i++)
        if (reef_cli_text(cli, ONE_STATE[i]) != NULL)
            return reef_fail(err, REEF_ERR_INVALID,
                             "--matrix evaluates every state: it takes no --%s", ONE_STATE[i]);
    size_t *learned = reef_cli_alloc(cli->operand_count, sizeof(*learned));
    reef_matrix matrix = {0};
    // Which state learned which file is needed before hours of evaluation.
    reef_status status =
        read_learned(cli, pool->generation_count, learned, cli->operand_count, err);
    if (status == REEF_OK)
        status = reef_matrix_measure(&matrix, cli, pool, files, cli->operand_count, err);
    // Forgetting is measured from those rows; the matrix keeps its own copy.
    if (status == REEF_OK) memcpy(matrix.learned, learned, cli->operand_count * sizeof(*learned));
    if (status == REEF_OK && cli->json)
        status = reef_cli_reply(cli, matrix_json(&matrix, files), err);
    else if (status == REEF_OK)
        print_matrix(&matrix, files);
    reef_matrix_release(&matrix);
    free(learned);
    return status;
}

// ---- the command --------------------------------------------------------------------------------

static reef_status check_kinds(const reef_cli_call *cli,
                               const reef_cli_pool *pool,
                               reef_error *err) {
    if (reef_cli_text(cli, "matrix") != NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "--kinds and --matrix are two answers: ask for one");
    if (pool->config.memory > 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "--kinds shows which context memories answer, and the pool has none");
}

static reef_status read_files(const reef_cli_call *cli, reef_cli_file *files, reef_error *err) {
    reef_status status = REEF_OK;
    for (size_t i = 0; i < cli->operand_count && status == REEF_OK; i++)
        status = reef_cli_text_read(&files[i], cli->operands[i], err);
    return status;
}

reef_status reef_cmd_eval(reef_cli_call *cli, reef_error *err) {
    reef_cli_pool pool = {0};
    reef_cli_file *files = reef_cli_alloc(cli->operand_count, sizeof(*files));
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    bool kinds = reef_cli_text(cli, "kinds") != NULL;
    if (status == REEF_OK && kinds) status = check_kinds(cli, &pool, err);
    if (status == REEF_OK) status = read_files(cli, files, err);
    // All files are read before the first is evaluated, so that a missing one is found at once.
    if (status == REEF_OK)
        status = reef_cli_text(cli, "matrix") != NULL ? eval_matrix(cli, &pool, files, err)
                                                      : eval_once(cli, &pool, files, err);
    for (size_t i = 0; i < cli->operand_count; i++) reef_cli_file_release(&files[i]);
    free(files);
    reef_cli_pool_close(&pool);
    return status;
}
