// reef consolidate: several sealed generations into one, so that the cost of a byte stays bounded.
//
// States as of those generations are lost for good, so it requires --yes, or a typed yes on a
// terminal after the plan was shown. It never goes through a daemon: distilling takes minutes.
#include "cli_format.h"
#include "cli_progress.h"
#include "cli_table.h"
#include "commands.h"
#include "reef_clock.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const reef_cli_option OPTIONS[] = {
    {"generations", "A-B",
     "sealed generations to consolidate, such as 1-3; B is the number it keeps"},
    {"side", "N", "sub-keys per side of the new one (default: the largest of theirs)"},
    {"steps", "N", "steps of distillation (default: 8 times through the text, 200 to 4000)"},
    {"drop-snapshots", NULL, "remove snapshots that need one of the generations"},
    {0},
};

const reef_cli_manual reef_consolidate_manual = {
    .about = "A new generation learns, from the reservoir's text, "
             "to compute what the named ones compute,\n"
             "and takes the place of the last of them. "
             "What the pool was before the first of them stays to\n"
             "the bit. What it was as of each of them, "
             "and exactly as of later ones, is given up for good:\n"
             "look with --dry-run first. Where a daemon runs on the pool, stop it before.",
    .options = OPTIONS,
    .example = "reef consolidate reef.pool --generations 1-3 --dry-run\n"
               "reef consolidate reef.pool --generations 1-3 --yes",
};

static reef_status parse_range(const reef_cli_call *cli,
                               uint32_t *first,
                               uint32_t *last,
                               reef_error *err) {
    const char *text = reef_cli_text(cli, "generations");
    if (text == NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "--generations A-B is missing: which ones to consolidate, such as 1-3");
    // Digits only, five at most: "%u" would accept a sign and wrap on overflow.
    char a[6], b[6];
    int read = 0;
    // %n shows where the match ended: anything after the range is a typing mistake.
    if (sscanf(text, "%5[0-9]-%5[0-9]%n", a, b, &read) != 2 || text[read] != '\0')
        return reef_fail(err, REEF_ERR_INVALID,
                         "--generations '%.64s' is not a range of two numbers, such as 1-3", text);
    *first = (uint32_t)strtoul(a, NULL, 10);
    *last = (uint32_t)strtoul(b, NULL, 10);
    return REEF_OK;
}

static reef_status parse_options(const reef_cli_call *cli,
                                 reef_consolidation_options *options,
                                 reef_error *err) {
    // Zero means "not given": the trainer then chooses side and steps from the sizes.
    uint64_t side = 0;
    *options = (reef_consolidation_options){
        .drop_snapshots = reef_cli_text(cli, "drop-snapshots") != NULL,
    };
    reef_status status = parse_range(cli, &options->first, &options->last, err);
    if (status == REEF_OK) status = reef_cli_integer(cli, "side", 1, REEF_SIDE_MAX, &side, err);
    if (status == REEF_OK)
        // The upper bound only catches typing mistakes; it is years of work.
        status = reef_cli_integer(cli, "steps", 1, 100000000, &options->steps, err);
    // Within REEF_SIDE_MAX, which fits.
    options->side = (uint32_t)side;
    return status;
}

// ---- the reply ----------------------------------------------------------------------------------

static json_t *losses_json(const reef_consolidation *report) {
    json_t *array = json_array();
    for (size_t i = 0; i < report->loss_count; i++) {
        const reef_consolidation_loss *loss = &report->losses[i];
        json_array_append_new(
            array, json_pack("{s:I, s:I, s:o, s:o}", "generation", (json_int_t)loss->generation,
                             "bytes", (json_int_t)loss->bytes, "before",
                             reef_cli_real(loss->before), "after", reef_cli_real(loss->after)));
    }
    return array;
}

static json_t *memories_json(const reef_consolidation *report) {
    json_t *array = json_array();
    for (size_t i = 0; i < report->memory_count; i++) {
        const reef_consolidation_memory *memory = &report->memories[i];
        json_array_append_new(array, json_pack("{s:I, s:I, s:o, s:o}", "generation",
                                               (json_int_t)memory->generation, "bytes",
                                               (json_int_t)memory->bytes, "apart",
                                               reef_cli_real(memory->apart), "together",
                                               reef_cli_real(memory->together)));
    }
    return array;
}

static json_t *snapshots_json(const reef_consolidation *report) {
    json_t *array = json_array();
    for (size_t i = 0; i < report->snapshot_count; i++)
        json_array_append_new(array, json_string(report->snapshots[i]));
    return array;
}

static json_t *report_json(const reef_consolidation *report, bool done, double seconds) {
    // The plan and the result share these members, so a dry run can be compared with the run.
    json_t *object = json_pack(
        "{s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "done", done, "first",
        (json_int_t)report->first, "last", (json_int_t)report->last, "merged",
        (json_int_t)report->merged, "later", (json_int_t)report->later, "side",
        (json_int_t)report->side, "steps", (json_int_t)report->steps, "taught_bytes",
        (json_int_t)report->taught_bytes, "experts_before", (json_int_t)report->experts_before,
        "experts_after", (json_int_t)report->experts_after, "bytes_before",
        (json_int_t)report->bytes_before);
    // Not known before the rows are written: null, not a guess.
    json_object_set_new(object, "bytes_after",
                        done ? json_integer((json_int_t)report->bytes_after) : json_null());
    // How many generations fire for each byte is what a reader pays at evaluation.
    json_object_set_new(object, "fired_before", reef_cli_real(report->fired_before));
    json_object_set_new(object, "fired_after", reef_cli_real(report->fired_after));
    json_object_set_new(object, "gate_leak", reef_cli_real(report->gate_leak));
    json_object_set_new(object, "gate_detect", reef_cli_real(report->gate_detect));
    json_object_set_new(object, "losses", losses_json(report));
    json_object_set_new(object, "memories", memories_json(report));
    // Snapshots that would be lost are listed in both cases: they are why one asks first.
    json_object_set_new(object, "snapshots", snapshots_json(report));
    json_object_set_new(object, "seconds", reef_cli_real(seconds));
    return object;
}

static const char *unit_of(const reef_consolidation *report) {
    return report->token_bytes == 1 ? "byte" : "token";
}

static void print_losses(const reef_consolidation *report, bool done, FILE *out) {
    const char *unit = unit_of(report);
    const char *const heading[] = {
        // Vector models never come here; models of ids have two bytes a token.
        "text of generation", report->token_bytes == 1 ? "bytes" : "tokens", "before", "after"};
    reef_cli_table *table = reef_cli_table_new(done ? ">>>>" : ">>>", heading);
    char words[CLI_WORD_BYTES];
    for (size_t i = 0; i < report->loss_count; i++) {
        const reef_consolidation_loss *loss = &report->losses[i];
        // A generation without held-out text in the reservoir has nothing to compare.
        if (loss->bytes == 0) continue;
        reef_cli_table_cell(table, "%" PRIu32, loss->generation);
        reef_cli_table_cell(table, "%s", reef_cli_count(loss->bytes, words));
        // Before is today's pool; after is the student on the same bytes.
        reef_cli_table_cell(table, "%.4f", loss->before);
        if (done) reef_cli_table_cell(table, "%.4f", loss->after);
    }
    // Held out from distillation, so that the table does not flatter the student.
    fprintf(out, "bits per %s on text of the reservoir that nothing is taught from:\n", unit);
    reef_cli_table_print(table, out);
    reef_cli_table_free(table);
}

// Where there is no net: what the plan costs.
static void print_memories(const reef_consolidation *report, FILE *out) {
    static const char *const HEADING[] = {"text of generation", "bytes", "apart", "together",
                                          "more"};
    reef_cli_table *table = reef_cli_table_new(">>>>>", HEADING);
    char words[CLI_WORD_BYTES];
    for (size_t i = 0; i < report->memory_count; i++) {
        const reef_consolidation_memory *memory = &report->memories[i];
        reef_cli_table_cell(table, "%" PRIu32, memory->generation);
        reef_cli_table_cell(table, "%s", reef_cli_count(memory->bytes, words));
        reef_cli_table_cell(table, "%.4f", memory->apart);
        reef_cli_table_cell(table, "%.4f", memory->together);
        reef_cli_table_cell(table, "%+.4f", memory->together - memory->apart);
    }
    fprintf(out, "bits per byte of the end of each memory's text, by memories of each text before "
                 "that, and by one of all:\n");
    reef_cli_table_print(table, out);
    reef_cli_table_free(table);
}

static uint64_t measured_bytes(const reef_consolidation *report) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < report->loss_count; i++) bytes += report->losses[i].bytes;
    return bytes;
}

static void print_cost(const reef_consolidation *report, bool done, FILE *out) {
    if (measured_bytes(report) > 0)
        print_losses(report, done, out);
    else if (report->memory_count > 0)
        print_memories(report, out);
    else
        fprintf(out, "what it costs cannot be told: there is no text to measure it on\n");
}

static void print_given_up(const reef_consolidation *report, const char *verb, FILE *out) {
    fprintf(out,
            "%s as of %" PRIu32 " to %" PRIu32 " (as of %" PRIu32 " names the distilled model)",
            verb, report->first, report->last, report->last);
    if (report->later > 0)
        fprintf(out, "; exactness of the %" PRIu32 " sealed after that", report->later);
    for (size_t i = 0; i < report->snapshot_count; i++)
        fprintf(out, "%s%s", i == 0 ? "; snapshots " : ", ", report->snapshots[i]);
    fprintf(out, "\n");
}

static void print_report(const reef_consolidation *report, bool done, FILE *out) {
    char before[CLI_WORD_BYTES], after[CLI_WORD_BYTES], taught[CLI_WORD_BYTES];
    // Only this line is in the future tense for a plan; the rest describes the present.
    fprintf(out,
            "%s %" PRIu32 " generations, %" PRIu32 " to %" PRIu32 ", into generation %" PRIu32
            " of %" PRIu32 " x %" PRIu32 " experts in each PEER layer\n",
            done ? "consolidated" : "would consolidate", report->merged, report->first,
            report->last, report->last, report->side, report->side);
    // Distillation reads the reservoir, never the original stream, which is gone.
    fprintf(out, "%" PRIu64 " steps of distillation on %s of the reservoir\n", report->steps,
            reef_cli_bytes(report->taught_bytes, taught));
    fprintf(out, "experts: %s before, %s after\n", reef_cli_count(report->experts_before, before),
            reef_cli_count(report->experts_after, after));
    // A plan does not know the compressed size of rows that do not exist.
    if (done)
        fprintf(out, "their bytes in the pool: %s before, %s after\n",
                reef_cli_bytes(report->bytes_before, before),
                reef_cli_bytes(report->bytes_after, after));
    // Fewer firing generations is the gain in speed that consolidation promises.
    fprintf(out, "generations after the first that fire per %s: %.3f before, %.3f %s\n",
            unit_of(report), report->fired_before, report->fired_after,
            done ? "after" : "expected");
    // The gate of the merged generation is new, so its errors are reported.
    if (done)
        fprintf(out, "the new gate fires on %.2f %% of their text, %.2f %% of other text\n",
                100 * report->gate_detect, 100 * report->gate_leak);
    // Last before the losses, because this is what cannot be undone.
    print_given_up(report, done ? "given up:" : "would give up:", out);
    print_cost(report, done, out);
}

// ---- doing it -----------------------------------------------------------------------------------

static void on_progress(void *context, uint64_t step, uint64_t steps, double bits) {
    reef_cli_progress *progress = context;
    (void)bits;
    progress->total = steps;
    reef_cli_progress_show(progress, step);
}

static reef_status open_pool(const reef_cli_call *cli,
                             bool write,
                             reef_store **store,
                             reef_trainer **trainer,
                             reef_error *err) {
    reef_error reason;
    // Consolidation rewrites generations, so it needs the pool to itself.
    reef_status status =
        reef_store_open(store, cli->pool, &(reef_store_options){.write = write}, &reason);
    if (status == REEF_ERR_BUSY)
        // The lock's own message does not name the remedy.
        return reef_fail(err, status,
                         "%.180s; stop it first: consolidating needs the pool to itself",
                         reason.message);
    if (status != REEF_OK) return reef_fail(err, status, "%s", reason.message);
    const reef_trainer_options options = {.threads = cli->threads,
                                          .memory_bytes = cli->memory_bytes};
    return reef_trainer_open(trainer, *store, &options, err);
}

static reef_status run_consolidate(const reef_cli_call *cli,
                                   const reef_consolidation_options *options,
                                   reef_consolidation *report,
                                   reef_error *err) {
    reef_store *store = NULL;
    reef_trainer *trainer = NULL;
    // A plan only reads, so it can be had beside a daemon.
    reef_status status = open_pool(cli, !options->dry_run, &store, &trainer, err);
    if (status == REEF_OK) status = reef_trainer_consolidate(trainer, options, report, err);
    reef_trainer_close(trainer);
    if (store != NULL) reef_store_close(store);
    return status;
}

// Shows the plan and waits for a yes. Only if a person can be asked.
static reef_status confirm_consolidate(const reef_cli_call *cli,
                                       const reef_consolidation_options *options,
                                       reef_error *err) {
    char line[16] = "";
    // --yes is for scripts; a terminal is asked.
    if (reef_cli_text(cli, "yes") != NULL) return REEF_OK;
    // Not asked in JSON mode either: a question would spoil the document.
    if (cli->json || isatty(STDIN_FILENO) != 1 || isatty(STDERR_FILENO) != 1)
        return reef_fail(
            err, REEF_ERR_INVALID,
            "consolidating gives up for good what the pool was as of generations %" PRIu32
            " to %" PRIu32 ": see --dry-run, then add --yes",
            options->first, options->last);
    // The plan is made with the very options of the run, except that it writes nothing.
    reef_consolidation_options dry = *options;
    reef_consolidation plan = {0};
    dry.dry_run = true;
    reef_status status = run_consolidate(cli, &dry, &plan, err);
    if (status == REEF_OK) {
        // On standard error: standard output stays for the result.
        print_report(&plan, false, stderr);
        fprintf(stderr, "type yes to continue: ");
        // The whole word, as fsck and friends ask where data is lost: a stray y is not enough.
        if (fgets(line, sizeof(line), stdin) == NULL || strcmp(line, "yes\n") != 0)
            status = reef_fail(err, REEF_ERR_INVALID, "not confirmed; nothing was changed");
    }
    reef_consolidation_release(&plan);
    return status;
}

reef_status reef_cmd_consolidate(reef_cli_call *cli, reef_error *err) {
    reef_consolidation_options options;
    reef_consolidation report = {0};
    reef_cli_progress progress;
    reef_status status = parse_options(cli, &options, err);
    // Asked before the progress line starts, which would overwrite the question.
    if (status == REEF_OK && !cli->dry_run) status = confirm_consolidate(cli, &options, err);
    if (status != REEF_OK) return status;
    options.dry_run = cli->dry_run;
    options.progress = on_progress;
    options.context = &progress;
    double start = reef_seconds();
    // The number of steps is known only to the trainer: on_progress sets the total.
    reef_cli_progress_start(&progress, "distilling", 0, "steps");
    status = run_consolidate(cli, &options, &report, err);
    // Ended on failure too, so that an error message begins on a fresh line.
    reef_cli_progress_end(&progress);
    if (status == REEF_OK && cli->json)
        status =
            reef_cli_reply(cli, report_json(&report, !cli->dry_run, reef_seconds() - start), err);
    else if (status == REEF_OK)
        print_report(&report, !cli->dry_run, stdout);
    // Releasing an empty report is safe after a failure.
    reef_consolidation_release(&report);
    return status;
}
