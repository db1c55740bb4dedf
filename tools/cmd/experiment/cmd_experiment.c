// reef experiment: the paper's figures and tables on one's own machine and data.
#include "cli_format.h"
#include "commands.h"
#include "experiment.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define JOBS_MAX 64
#define ARGUMENTS_MAX 24

static const reef_cli_option OPTIONS[] = {
    {"work", "DIR", "pools and results are kept here (default: beside CONFIG.ini, as CONFIG.work)"},
    {"data", "DIR", "where the paths in the file begin (default: the file's own directory)"},
    {"jobs", "N", "models that are trained at a time, each on its share of the cores (default 1)"},
    {"quick", NULL, "with the section [quick] of the file: shapes, not results"},
    {"plan", NULL, "only print what is wanted and not done yet; also while it runs"},
    {"keep-pools", NULL, "keep the pool of every model, not of the best ones only"},
    {"cell", "ID", "train this one model; what the command starts itself with"},
    {0},
};

#define ABOUT_ALL                                                                                  \
    "\n"                                                                                           \
    "\n"                                                                                           \
    "Every model is trained by the trainer of reefd "                                              \
    "on the same text, which is read again and again,\n"                                           \
    "until its budget of FLOPs is spent, "                                                         \
    "and then measured on held-out text. The learning rate is\n"                                   \
    "chosen once for a system, at tune_size. "                                                     \
    "Finished models are kept in results.jsonl in the work\n"                                      \
    "directory; killed and run again, it continues, "                                              \
    "and ends with the same figures. Beside it are the\n"                                          \
    "table as CSV and the picture as SVG. "                                                        \
    "tools/bench/paper has the files, docs/PAPER.md what came out."

#define MANUAL(name, about_text, example_text)                                                     \
    const reef_cli_manual reef_##name##_manual = {                                                 \
        .about = about_text ABOUT_ALL, .options = OPTIONS, .example = example_text}

MANUAL(experiment_isoflop,
       "Perplexity over parameters at equal budgets (He 2024, "
       "figure 1): every [system] in every [size].\n"
       "The best size of each system is trained with all seeds.",
       "reef experiment isoflop tools/bench/paper/isoflop.ini --data data/text --jobs 2\n"
       "reef experiment isoflop tools/bench/paper/isoflop.ini --data data/text --quick --json\n"
       "reef experiment isoflop paper.ini --plan");
MANUAL(experiment_experts,
       "Perplexity over the number of experts, "
       "with as many of them active (He 2024, figure 3a): each\n"
       "of vary_side, squared. A system that retrieves "
       "nothing is the line that they are compared with.",
       "reef experiment experts tools/bench/paper/experts.ini --data data/text\n"
       "reef experiment experts paper.ini --plan");
MANUAL(experiment_active,
       "Perplexity over heads, a line for each number of "
       "active experts (He 2024, figure 3b): vary_heads\n"
       "and vary_active, their product.",
       "reef experiment active tools/bench/paper/active.ini --data data/text\n"
       "reef experiment active paper.ini --plan");
MANUAL(experiment_batchnorm,
       "With and without batch norm of queries, for each of vary_side: "
       "perplexity, the share of experts\n"
       "that held-out text uses, and how unevenly (He 2024, table 2).",
       "reef experiment batchnorm tools/bench/paper/batchnorm.ini --data data/text\n"
       "reef experiment batchnorm paper.ini --plan");
MANUAL(experiment_datasets,
       "Perplexity on each of [datasets] of the best model "
       "of every system and budget (He 2024, table 1).\n"
       "With the file of isoflop its models are taken as they are.",
       "reef experiment datasets tools/bench/paper/isoflop.ini --data data/text\n"
       "reef experiment datasets paper.ini --plan");

typedef struct run {
    reef_cli_call *cli;
    reef_experiment_kind kind;
    experiment e;
    reef_experiment_work work;
    reef_experiment_cells cells;
    json_t *results;
    char *csv, *svg;
    int lock;
    uint64_t jobs;
    const char *arguments[ARGUMENTS_MAX]; // for the processes of cells
    char threads[CLI_WORD_BYTES], memory[CLI_WORD_BYTES];
    bool stopped;
} run;

static const char *kind_name(const run *r) {
    return strchr(r->cli->command->name, ' ') + 1;
}

static char *work_directory(const reef_cli_call *cli) {
    const char *given = reef_cli_text(cli, "work"), *path = cli->operands[0];
    if (given != NULL) return reef_cli_format("%s", given);
    size_t length = strlen(path);
    if (length > 4 && strcmp(path + length - 4, ".ini") == 0) length -= 4;
    return reef_cli_format("%.*s.work", (int)length, path);
}

// Name of the table and the picture: CONFIG's own name if it is more specific than the kind, as in
// isoflop-norm.ini, so that two files of one kind can share a work directory.
static char *result_name(const run *r) {
    const char *path = r->cli->operands[0], *slash = strrchr(path, '/'), *kind = kind_name(r);
    const char *name = slash != NULL ? slash + 1 : path, *end = strrchr(name, '.');
    size_t length = end != NULL ? (size_t)(end - name) : strlen(name), prefix = strlen(kind);
    bool is_more_specific =
        length > prefix && name[prefix] == '-' && strncmp(name, kind, prefix) == 0;
    return is_more_specific ? reef_cli_format("%.*s", (int)length, name)
                            : reef_cli_format("%s", kind);
}

static size_t threads_of(const reef_cli_call *cli, size_t jobs) {
    size_t cores = (size_t)sysconf(_SC_NPROCESSORS_ONLN);
    if (cli->threads) return cli->threads;
    return cores > jobs ? cores / jobs : 1;
}

// The arguments of a cell's process: what it needs to make the same plan.
static void list_arguments(run *r) {
    const reef_cli_call *cli = r->cli;
    size_t count = 0;
    // Each cell runs in a process of its own, so that a crash costs one cell.
    r->arguments[count++] = "reef";
    r->arguments[count++] = "experiment";
    r->arguments[count++] = kind_name(r);
    r->arguments[count++] = cli->operands[0];
    r->arguments[count++] = "--work";
    r->arguments[count++] = r->work.directory;
    // The threads of one cell: the jobs share the cores.
    r->arguments[count++] = "--threads";
    r->arguments[count++] = r->threads;
    if (reef_cli_text(cli, "data") != NULL) {
        r->arguments[count++] = "--data";
        r->arguments[count++] = reef_cli_text(cli, "data");
    }
    if (reef_cli_text(cli, "quick") != NULL) r->arguments[count++] = "--quick";
    // As a number of bytes: a percentage would be of what is free at another moment.
    if (cli->memory_bytes > 0) {
        snprintf(r->memory, sizeof(r->memory), "%" PRIu64, cli->memory_bytes);
        r->arguments[count++] = "--memory";
        r->arguments[count++] = r->memory;
    }
    r->arguments[count] = NULL;
}

static reef_status read_request(run *r, reef_error *err) {
    reef_cli_call *cli = r->cli;
    // One cell at a time, unless the user says otherwise: timings are then undisturbed.
    r->jobs = 1;
    reef_status status = reef_cli_integer(cli, "jobs", 1, JOBS_MAX, &r->jobs, err);
    // The file is read and its data checked before anything is locked or trained.
    if (status == REEF_OK)
        status = reef_experiment_read(&r->e, cli->operands[0], reef_cli_text(cli, "data"),
                                      reef_cli_text(cli, "quick") != NULL, err);
    if (status == REEF_OK) status = reef_experiment_check(&r->e, r->kind, err);
    if (status != REEF_OK) return status;
    r->work = (reef_experiment_work){.directory = work_directory(cli),
                                     // Cores are divided by the number of jobs.
                                     .threads = threads_of(cli, (size_t)r->jobs),
                                     .memory_bytes = cli->memory_bytes,
                                     .keep_pools = reef_cli_text(cli, "keep-pools") != NULL,
                                     .arguments = r->arguments};
    snprintf(r->threads, sizeof(r->threads), "%zu", r->work.threads);
    // After the fields it points to are set.
    list_arguments(r);
    // Results of --quick have names of their own: they must not replace real ones.
    char *name = result_name(r);
    r->csv = reef_cli_format("%s/%s.csv", r->work.directory, name);
    // Data sets are shown as a table, which has no picture.
    if (r->kind != EXPERIMENT_DATASETS)
        r->svg = reef_cli_format("%s/%s.svg", r->work.directory, name);
    free(name);
    // A plan only reads, also beside a running experiment; a cell belongs to the run that holds the
    // lock.
    if (reef_cli_text(cli, "cell") == NULL && reef_cli_text(cli, "plan") == NULL)
        status = reef_experiment_lock(r->work.directory, &r->lock, err);
    return status == REEF_OK ? reef_experiment_results_read(r->work.directory, &r->results, err)
                             : status;
}

static size_t experiment_missing(const run *r) {
    size_t count = 0;
    for (size_t i = 0; i < r->cells.count; i++)
        count += json_object_get(r->results, r->cells.items[i].id) == NULL;
    return count;
}

static reef_status plan_experiment(run *r, reef_error *err) {
    reef_experiment_cells_release(&r->cells);
    return reef_experiment_plan(&r->e, r->kind, r->results, &r->cells, err);
}

static reef_status run_cell(run *r, reef_error *err) {
    const char *id = reef_cli_text(r->cli, "cell");
    for (size_t i = 0; i < r->cells.count; i++)
        if (strcmp(r->cells.items[i].id, id) == 0)
            return reef_experiment_cell_leave(&r->e, &r->work, &r->cells.items[i], err);
    return reef_fail(err, REEF_ERR_NOT_FOUND, "no model '%.40s' is wanted; see --plan --json", id);
}

// Which cells are wanted depends on results, so the plan is made again after each stage.
static reef_status run_stages(run *r, reef_error *err) {
    reef_status status = plan_experiment(r, err);
    while (status == REEF_OK && experiment_missing(r) > 0 && !r->stopped) {
        status = reef_experiment_run(&r->e, &r->work, &r->cells, (size_t)r->jobs, r->results,
                                     &r->stopped, err);
        if (status == REEF_OK) status = plan_experiment(r, err);
    }
    // Written after an interrupt too: what is known is worth a table.
    if (status == REEF_OK)
        status = reef_experiment_write_csv(r->csv, &r->e, &r->cells, r->results, err);
    if (status == REEF_OK && r->svg != NULL)
        status = reef_experiment_write_svg(r->svg, &r->e, r->kind, &r->cells, r->results, err);
    return status;
}

// ---- answers ------------------------------------------------------------------------------------

static reef_status reply_plan(run *r, reef_error *err) {
    json_t *wanted = json_array();
    double flops = 0;
    for (size_t i = 0; i < r->cells.count; i++) {
        const reef_experiment_cell *cell = &r->cells.items[i];
        // Done in an earlier run.
        if (json_object_get(r->results, cell->id) != NULL) continue;
        // The sum tells how long it will take, from the rate of this machine.
        flops += cell->budget;
        json_array_append_new(wanted,
                              json_pack("{s:s, s:s, s:s, s:o, s:b}", "id", cell->id, "system",
                                        cell->system, "size", cell->size, "budget",
                                        reef_cli_real(cell->budget), "tuning", cell->tuning));
    }
    if (r->cli->json)
        return reef_cli_reply(r->cli,
                              json_pack("{s:o, s:o, s:o}", "work", reef_cli_path(r->work.directory),
                                        "wanted", wanted, "flops", reef_cli_real(flops)),
                              err);
    // Tuning decides which cells come next, so the number is not final.
    printf("%zu models are wanted now, for %.3g FLOPs; what they say may want more\n",
           json_array_size(wanted), flops);
    json_decref(wanted);
    return REEF_OK;
}

static reef_status reply_experiment(run *r, reef_error *err) {
    // On standard error, so that a document on standard output stays whole.
    if (r->stopped)
        fprintf(stderr,
                "reef %s: stopped; %zu models are still wanted, "
                "and the same command continues from here\n",
                r->cli->command->name, experiment_missing(r));
    if (r->cli->json)
        // An unfinished run has a document too; `finished` tells them apart.
        return reef_cli_reply(r->cli,
                              json_pack("{s:s, s:b, s:o, s:o, s:o, s:o}", "experiment",
                                        kind_name(r), "finished", !r->stopped, "work",
                                        reef_cli_path(r->work.directory), "csv",
                                        reef_cli_path(r->csv), "svg",
                                        r->svg != NULL ? reef_cli_path(r->svg) : json_null(),
                                        "cells", reef_experiment_json(&r->cells, r->results)),
                              err);
    reef_experiment_print(&r->e, r->kind, &r->cells, r->results);
    printf("wrote %s%s%s\n", r->csv, r->svg != NULL ? " and " : "", r->svg != NULL ? r->svg : "");
    return REEF_OK;
}

static reef_status run_experiment(reef_cli_call *cli, reef_experiment_kind kind, reef_error *err) {
    run r = {.cli = cli, .kind = kind, .lock = -1};
    reef_status status = read_request(&r, err);
    // --plan and --cell make the plan once; only a run repeats it.
    bool only_plan = reef_cli_text(cli, "plan") != NULL,
         one_cell = reef_cli_text(cli, "cell") != NULL;
    if (status == REEF_OK)
        status = only_plan || one_cell ? plan_experiment(&r, err) : run_stages(&r, err);
    if (status == REEF_OK)
        status = only_plan  ? reply_plan(&r, err)
                 : one_cell ? run_cell(&r, err)
                            : reply_experiment(&r, err);
    reef_experiment_cells_release(&r.cells);
    json_decref(r.results);
    reef_experiment_release(&r.e);
    free(r.work.directory);
    free(r.csv);
    free(r.svg);
    // Closing the file releases the lock.
    if (r.lock >= 0) (void)close(r.lock);
    return status;
}

reef_status reef_cmd_experiment_isoflop(reef_cli_call *cli, reef_error *err) {
    return run_experiment(cli, EXPERIMENT_ISOFLOP, err);
}

reef_status reef_cmd_experiment_experts(reef_cli_call *cli, reef_error *err) {
    return run_experiment(cli, EXPERIMENT_EXPERTS, err);
}

reef_status reef_cmd_experiment_active(reef_cli_call *cli, reef_error *err) {
    return run_experiment(cli, EXPERIMENT_ACTIVE, err);
}

reef_status reef_cmd_experiment_batchnorm(reef_cli_call *cli, reef_error *err) {
    return run_experiment(cli, EXPERIMENT_BATCHNORM, err);
}

reef_status reef_cmd_experiment_datasets(reef_cli_call *cli, reef_error *err) {
    return run_experiment(cli, EXPERIMENT_DATASETS, err);
}
