// reef verify: check every byte of a pool, in a child process, so that a damaged file cannot take the
// tool down.
#include "commands.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define DAMAGE_SHOWN_MAX 1000 // lines; the count goes on

const cli_manual verify_manual = {
    .about =
        "Walks every record: checksums, commit numbers, root hashes of the last commit and of "
        "each\n"
        "sealed generation, and what snapshots refer to. Ends with 65 when something is damaged.",
    .options = NULL,
    .example = "reef verify reef.pool && echo sound",
};

typedef struct damage {
    json_t *lines;
    bool print;
} damage;

static void on_damage(void *context, const char *what) {
    damage *found = context;
    if (json_array_size(found->lines) >= DAMAGE_SHOWN_MAX) return;
    char *line = cli_printable((const uint8_t *)what, strlen(what), false);
    json_array_append_new(found->lines, json_string(line));
    if (found->print) fprintf(stderr, "damaged: %s\n", line);
    free(line);
}

static void print_report(const reef_check_report *report, double seconds) {
    char words[CLI_WORD_BYTES], root[2 * REEF_HASH_BYTES + 1];
    printf("records      %s", cli_count(report->records, words));
    printf(", %s\n", cli_bytes(report->bytes, words));
    printf("generations  %" PRIu64 "\n", report->generations);
    printf("snapshots    %" PRIu64 "\n", report->snapshots);
    printf("commits      %s\n", cli_count(report->commits, words));
    printf("file         %s, ", cli_bytes(report->file_bytes, words));
    printf("%s in use\n", cli_bytes(report->used_bytes, words));
    reef_hash_format(report->root, root);
    printf("root         %s\n", root);
    printf("checked in   %s\n", cli_duration(seconds, words));
    if (report->damaged == 0) printf("sound: nothing is damaged\n");
}

static json_t *report_json(const cli_call *cli,
                           const reef_check_report *report,
                           json_t *lines,
                           double seconds) {
    char root[2 * REEF_HASH_BYTES + 1];
    reef_hash_format(report->root, root);
    return json_pack("{s:o, s:b, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:o, s:O}", "pool",
                     cli_path(cli->pool), "sound", report->damaged == 0, "damaged",
                     (json_int_t)report->damaged, "records", (json_int_t)report->records, "bytes",
                     (json_int_t)report->bytes, "generations", (json_int_t)report->generations,
                     "snapshots", (json_int_t)report->snapshots, "commits",
                     (json_int_t)report->commits, "file_bytes", (json_int_t)report->file_bytes,
                     "used_bytes", (json_int_t)report->used_bytes, "root", root, "seconds",
                     cli_real(seconds), "damage", lines);
}

reef_status cmd_verify(cli_call *cli, reef_error *err) {
    reef_check_report report = {0};
    damage found = {.lines = json_array(), .print = !cli->json};
    double started = cli_clock();
    reef_status status = reef_store_verify(cli->pool, on_damage, &found, &report, err);
    double seconds = cli_clock() - started;
    if (status == REEF_OK && cli->json)
        status = cli_answer(cli, report_json(cli, &report, found.lines, seconds), err);
    else if (status == REEF_OK)
        print_report(&report, seconds);
    json_decref(found.lines);
    if (status == REEF_OK && report.damaged > 0)
        return reef_fail(err, REEF_CORRUPT, "%.160s is damaged: %" PRIu64 " of %" PRIu64 " records",
                         cli->pool, report.damaged, report.records);
    return status;
}
