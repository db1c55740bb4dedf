// reef verify: check a pool, whole or in part, in a child process, so that a damaged file cannot
// take the tool down; and say what helps a damaged one.
#include "cli_format.h"
#include "commands.h"
#include "reef_pool_check.h"
#include "reef_pool_json.h"
#include "reef_system.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DAMAGE_SHOWN_MAX 1000 // lines; counting continues

static const reef_cli_option OPTIONS[] = {
    {"quick", NULL, "hash no payload of what is sealed; everything else as always"},
    {"sample", "P", "hash P percent of the sealed records, drawn by chance"},
    {"seed", "N", "draw the sample that an earlier run printed"},
    {0},
};

const reef_cli_manual reef_verify_manual = {
    .about =
        "Walks the pages of the file (each in one tree or free, once), then every record:\n"
        "checksums, commit numbers, sizes, root hashes of the last commit and of each sealed\n"
        "generation, what snapshots refer to, usage over time against its totals. What is sealed\n"
        "never changes, and may be left out in part: then of each record that is not hashed the\n"
        "header is compared with sums. Ends with 65 when something is damaged. Only reads; a\n"
        "daemon may run on the pool, whose pages are kept from reuse for a quarter of a second at\n"
        "most and while the pages are walked.",
    .options = OPTIONS,
    .example = "reef verify reef.pool && echo sound\n"
               "reef verify reef.pool --sample 5",
};

typedef struct findings {
    json_t *lines;
    bool print;
} findings;

static void add_line(findings *found, const char *what) {
    char *line = reef_cli_printable((const uint8_t *)what, strlen(what), false);
    json_array_append_new(found->lines, json_string(line));
    if (found->print) fprintf(stderr, "damaged: %s\n", line);
    free(line);
}

static void on_damage(void *context, const char *what) {
    findings *found = context;
    if (json_array_size(found->lines) < DAMAGE_SHOWN_MAX) add_line(found, what);
}

// ---- options ------------------------------------------------------------------------------------

static reef_status read_options(const reef_cli_call *cli,
                                reef_check_options *options,
                                double *percent,
                                reef_error *err) {
    *percent = 100;
    options->quick = reef_cli_text(cli, "quick") != NULL;
    // Another sample on each run, and a number short enough to be typed again.
    options->seed = (reef_unix_ms() ^ (uint64_t)getpid() << 20) & UINT32_MAX;
    if (options->quick && reef_cli_text(cli, "sample") != NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "--quick hashes nothing that is sealed and "
                         "--sample a part of it: give one of them");
    if (reef_cli_text(cli, "seed") != NULL && reef_cli_text(cli, "sample") == NULL)
        return reef_fail(err, REEF_ERR_INVALID, "--seed draws a sample: give --sample as well");
    reef_status status = reef_cli_number(cli, "sample", 0.001, 100, percent, err);
    if (status == REEF_OK)
        status = reef_cli_integer(cli, "seed", 0, INT64_MAX, &options->seed, err);
    options->sample = *percent / 100;
    return status;
}

// ---- answers ------------------------------------------------------------------------------------

static void print_hashed(const reef_cli_call *cli,
                         const reef_check_options *options,
                         const reef_check_report *report) {
    const char *all = CLI_COUNT(report->sealed_records);
    printf("hashed       everything that is not sealed");
    // Print what was left out, so that nobody takes a quick check for a full one.
    if (options->quick)
        printf("; of %s sealed records only the headers\n", all);
    else if (options->sample < 1)
        printf(", and %s of %s sealed records, %s\n", CLI_COUNT(report->hashed_records), all,
               CLI_BYTES(report->hashed_bytes));
    else
        printf(", and all %s sealed records, %s\n", all, CLI_BYTES(report->sealed_bytes));
    if (options->quick || options->sample >= 1) return;
    printf("             again with --sample %s --seed %" PRIu64 "\n", reef_cli_text(cli, "sample"),
           options->seed);
    printf("not hashed   %s\n", CLI_BYTES(report->sealed_bytes - report->hashed_bytes));
}

// What helps, in one line; NULL where nothing is damaged. On the heap.
static char *remedy_text(const char *path, const reef_check_report *report) {
    const reef_remedy *remedy = &report->remedy;
    if (report->damaged == 0) return NULL;
    char *text = NULL, *pool = reef_cli_printable((const uint8_t *)path, strlen(path), false);
    switch (remedy->kind) {
    case REEF_REMEDY_NOTHING:
        text = reef_cli_format("none is needed: nothing computes with what is lost");
        break;
    case REEF_REMEDY_RESTORE:
        text = reef_cli_format("reef snapshot restore %s %s NEW; it trains on from byte %" PRIu64
                               " of the stream",
                               pool, remedy->name, remedy->stream_bytes);
        break;
    case REEF_REMEDY_RECOVER:
        text = reef_cli_format("reef kind recover %s; other kinds stay as they are", pool);
        break;
    case REEF_REMEDY_REMOVE:
        text = reef_cli_format("reef snapshot remove %s %s; the present state does not need it",
                               pool, remedy->name);
        break;
    case REEF_REMEDY_PUSH:
        text = reef_cli_format("push again what waited in %s, into a source of another name",
                               remedy->name);
        break;
    case REEF_REMEDY_COPY:
        text = reef_cli_format("a copy of the pool: nothing in it is whole without what is lost");
        break;
    }
    free(pool);
    return text;
}

static void print_report(const reef_cli_call *cli,
                         const reef_check_options *options,
                         const reef_check_report *report,
                         double seconds) {
    printf("records      %s, %s\n", CLI_COUNT(report->records), CLI_BYTES(report->bytes));
    print_hashed(cli, options, report);
    printf("generations  %" PRIu64 "\n", report->generations);
    printf("snapshots    %" PRIu64 "\n", report->snapshots);
    printf("commits      %s\n", CLI_COUNT(report->commits));
    printf("file         %s, %s in use\n", CLI_BYTES(report->file_bytes),
           CLI_BYTES(report->used_bytes));
    printf("pages        %s: %s used, %s free", CLI_COUNT(report->pages),
           CLI_COUNT(report->pages_used), CLI_COUNT(report->pages_free));
    // Pages that are neither used nor free are lost: a defect of the file.
    if (report->pages_lost) printf(", %s neither", CLI_COUNT(report->pages_lost));
    printf("\n");
    printf("root         %s\n", CLI_HASH(report->root));
    // The longest read matters to a daemon: it keeps freed pages from reuse.
    printf("checked in   %s, %s read%s, the longest kept pages from reuse for %s\n",
           CLI_DURATION(seconds), CLI_COUNT(report->reads), report->reads == 1 ? "" : "s",
           CLI_DURATION(report->longest_read_ms / 1e3));
    if (report->damaged > 0) {
        char *remedy = remedy_text(cli->pool, report);
        printf("remedy       %s\n", remedy);
        free(remedy);
        return;
    }
    printf("%s\n", options->quick        ? "sound, as far as a quick check looks"
                   : options->sample < 1 ? "sound, as far as the sample goes"
                                         : "sound: nothing is damaged");
}

static const char *mode_text(const reef_check_options *options) {
    return options->quick ? "quick" : options->sample < 1 ? "sample" : "whole";
}

// What was checked, in the words of the manual, and what was not.
static void set_scope(json_t *object, const reef_check_options *options) {
    json_t *not = json_array();
    // A reader must see what was not checked, so that a quick check is not taken for a full one.
    if (options->quick) json_array_append_new(not, json_string("payloads of sealed records"));
    if (!options->quick && options->sample < 1)
        json_array_append_new(not, json_string("payloads of sealed records outside the sample"));
    json_object_set_new(object, "looked_at",
                        json_pack("[s, s, s, s, s, s, s, s]", "pages", "free space", "records",
                                  "sums", "root hashes", "references", "sizes", "usage windows"));
    json_object_set_new(object, "not_looked_at", not );
}

static json_t *report_json(const reef_cli_call *cli,
                           const reef_check_options *options,
                           const reef_check_report *report,
                           const findings *found,
                           double percent,
                           double seconds) {
    json_t *object = json_object();
    json_object_set_new(object, "pool", reef_cli_path(cli->pool));
    json_object_set_new(object, "sound", json_boolean(report->damaged == 0));
    // The mode is part of the result: "sound" covers only what was checked.
    json_object_set_new(object, "mode", json_string(mode_text(options)));
    reef_json_set_root(object, report->root);
    json_object_set_new(object, "seconds", reef_cli_real(seconds));
    json_object_set(object, "damage", found->lines);
    // A sampled check can be repeated with its percentage and seed.
    bool sample = strcmp(mode_text(options), "sample") == 0;
    json_object_set_new(object, "sample_percent", sample ? reef_cli_real(percent) : json_null());
    json_object_set_new(object, "seed", reef_cli_known(sample, options->seed));
    set_scope(object, options);
// Member and field have the same name, so one macro writes both.
#define SET_COUNT(field)                                                                           \
    json_object_set_new(object, #field, json_integer((json_int_t)report->field))
    SET_COUNT(damaged);
    SET_COUNT(records);
    SET_COUNT(bytes);
    SET_COUNT(sealed_records);
    SET_COUNT(sealed_bytes);
    SET_COUNT(hashed_records);
    SET_COUNT(hashed_bytes);
    SET_COUNT(usage_windows);
    SET_COUNT(generations);
    SET_COUNT(snapshots);
    SET_COUNT(commits);
    SET_COUNT(file_bytes);
    SET_COUNT(used_bytes);
    SET_COUNT(pages);
    SET_COUNT(pages_used);
    SET_COUNT(pages_free);
    SET_COUNT(pages_lost);
    SET_COUNT(reads);
#undef SET_COUNT
    json_object_set_new(object, "longest_read_ms", reef_cli_real(report->longest_read_ms));
    char *remedy = remedy_text(cli->pool, report);
    json_object_set_new(object, "remedy", remedy != NULL ? json_string(remedy) : json_null());
    free(remedy);
    return object;
}

reef_status reef_cmd_verify(reef_cli_call *cli, reef_error *err) {
    reef_check_report report = {0};
    findings found = {.lines = json_array(), .print = !cli->json};
    reef_check_options options = {
        .also = reef_pool_check_sizes, .on_damage = on_damage, .context = &found};
    double percent, started = reef_seconds();
    reef_status status = read_options(cli, &options, &percent, err);
    if (status == REEF_OK) status = reef_store_verify(cli->pool, &options, &report, err);
    double seconds = reef_seconds() - started;
    // The scan could not continue, but the document has all that was found until then.
    if (status == REEF_ERR_CORRUPT && cli->json) {
        reef_error reason;
        add_line(&found, err->message);
        report.damaged++;
        report.remedy.kind = REEF_REMEDY_COPY;
        if (reef_cli_reply(cli, report_json(cli, &options, &report, &found, percent, seconds),
                           &reason) != REEF_OK)
            // A failure to write replaces the finding: the exit code must not be taken for a whole
            // report.
            status = reef_fail(err, reason.status, "%s", reason.message);
    } else if (status == REEF_OK && cli->json) {
        status =
            reef_cli_reply(cli, report_json(cli, &options, &report, &found, percent, seconds), err);
    } else if (status == REEF_OK) {
        print_report(cli, &options, &report, seconds);
    }
    json_decref(found.lines);
    if (status == REEF_OK && report.damaged > 0)
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "%.160s is damaged: %" PRIu64 " of %" PRIu64 " records", cli->pool,
                         report.damaged, report.records);
    return status;
}
