// reef watch: what is new in logs, as incidents.
#include "cli.h"
#include "cli_progress.h"
#include "commands.h"
#include "incident_view.h"
#include "live_watch.h"
#include "reef_system.h"
#include "reef_watch_json.h"
#include "replay_files.h"
#include "time_span.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const reef_cli_option OPTIONS[] = {
    {"replay", NULL, "judge past logs by the times at the head of their lines"},
    {"budget", "N/day", "incidents a day that may ring (5/day); a pool keeps it"},
    {"gap", "TIME", "events nearer to each other are one incident (60s); a pool keeps it"},
    {"learn-until-quiet", "TIME",
     "a source is judged once nothing new came for so long (1h), or after a day; a pool keeps it"},
    {"since", "TIME", "with --replay: learn what is before, and judge what comes then"},
    {"forget-after", "TIME", "what did not come for so long is new again (30d); a pool keeps it"},
    {"all", NULL, "with --replay: also show incidents that the budget keeps from ringing"},
    {"pool", "DIR", "where what was learned is kept (watch.pool); made where there is none"},
    {"exec", "COMMAND",
     "run it when an incident begins to ring and when it ends, as JSON on its input"},
    {"hook", "URL", "send the same to Alertmanager, or to a receiver of its web hooks"},
    {NULL, NULL, NULL}};

const reef_cli_manual reef_watch_manual = {
    .about =
        "Reads logs line by line, each judged by those before it and then learned, and says what "
        "was\n"
        "new: a type of line that never came, another word where always the same ones stood, far\n"
        "more lines of a type than ever, lines that stopped. What is near to each other in time "
        "is\n"
        "one incident. Times, numbers, ids and hosts are no news. Files that logrotate made of "
        "one\n"
        "log are one source.\n"
        "\n"
        "Logs, directories and quoted patterns are followed as they are written, by a reefd that "
        "is\n"
        "started for it; - is standard input, and journal: systemd's journal, or what matches of "
        "it:\n"
        "journal:unit=nginx.service (`reefd --help`). Without paths it shows what rings in a pool "
        "that\n"
        "a daemon trains already. With --replay it tells at once what past logs would have rung: "
        "that\n"
        "needs no pool and writes nothing.\n"
        "\n"
        "With --json each incident is one object a line: when it rings, and when it has ended. "
        "The\n"
        "last line of --replay is the summary.",
    .options = OPTIONS,
    .example = "reef watch --replay 'app/*.log*'\n"
               "reef watch --replay app --budget 2/day --json\n"
               "reef watch /var/log/nginx 'app/*.log' --pool watch.pool\n"
               "reef watch journal:priority=warning\n"
               "reef watch app --hook http://localhost:9093/api/v2/alerts",
};

typedef struct watching {
    const reef_cli_call *cli;
    reef_replay *replay;
    reef_watch *watch;
    bool all, colours;
    reef_status status; // of what was printed
    reef_error *err;
    int64_t first_ms, last_ms;
} watching;

// ---- options ------------------------------------------------------------------------------------

static reef_status read_budget(const reef_cli_call *cli, double *out, reef_error *err) {
    const char *text = reef_cli_text(cli, "budget");
    return text == NULL ? REEF_OK : reef_budget_parse("--budget", text, out, err);
}

static reef_status read_options(const reef_cli_call *cli,
                                reef_watch_options *out,
                                reef_error *err) {
    const char *forget = reef_cli_text(cli, "forget-after");
    *out = (reef_watch_options){0};
    reef_status status = read_budget(cli, &out->budget, err);
    if (status == REEF_OK) status = reef_time_span_read(cli, "gap", &out->gap_s, err);
    if (status == REEF_OK)
        status = reef_time_span_read(cli, "learn-until-quiet", &out->quiet_s, err);
    if (status == REEF_OK && forget != NULL)
        status = reef_days_parse("--forget-after", forget, &out->forget_days, err);
    uint64_t since = 0;
    if (status == REEF_OK)
        status = reef_cli_time_read(cli, "since", (uint64_t)reef_unix_ms(), &since, err);
    out->since_ms = (int64_t)since;
    return status;
}

// ---- an incident --------------------------------------------------------------------------------

#define EVENTS_SHOWN 4

static void find_place(const void *context, uint32_t source, reef_line_place *out) {
    const watching *w = context;
    out->source = reef_replay_source_name(w->replay, source);
    out->file = reef_replay_file(w->replay, source, out->offset, &out->offset);
}

static void on_incident(void *context, const reef_incident *incident) {
    watching *w = context;
    // Each once, when all of it is known.
    if (incident->is_open || incident->lingers || (!incident->rings && !w->all)) return;
    json_t *json = reef_incident_json(incident, find_place, w);
    if (w->cli->json) {
        json_object_set_new(json, "event", json_string("incident"));
        json_dumpf(json, stdout, JSON_COMPACT);
        putchar('\n');
    } else {
        reef_incident_print(json, EVENTS_SHOWN, w->colours);
    }
    json_decref(json);
}

// ---- the end ------------------------------------------------------------------------------------

static void print_summary(const watching *w) {
    reef_watch_counts c;
    reef_watch_read_counts(w->watch, &c);
    double days = (double)(w->last_ms - w->first_ms) / 86400000.0;
    double a_day = days > 0.0 ? (double)c.rung / (days < 1.0 ? 1.0 : days) : 0.0;
    if (w->cli->json) {
        json_t *json = json_pack(
            "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "event", "summary", "lines",
            (json_int_t)c.lines, "usual", (json_int_t)c.usual, "in_events", (json_int_t)c.in_events,
            "learning", (json_int_t)c.learning, "types", (json_int_t)c.types, "incidents",
            (json_int_t)c.incidents, "rung", (json_int_t)c.rung, "first_time",
            (double)w->first_ms / 1000.0, "last_time", (double)w->last_ms / 1000.0);
        json_dumpf(json, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(json);
        return;
    }
    const size_t sources = reef_replay_source_count(w->replay);
    printf("%s lines of %zu source%s, %.16s to %.16s\n", CLI_COUNT(c.lines), sources,
           sources == 1 ? "" : "s", CLI_TIME((uint64_t)w->first_ms),
           CLI_TIME((uint64_t)w->last_ms));
    printf("%s incident%s rang, %.1f a day; %s more were less rare than the budget asks for\n",
           CLI_COUNT(c.rung), c.rung == 1 ? "" : "s", a_day, CLI_COUNT(c.incidents - c.rung));
    printf(
        "%s types of lines; %s lines are usual, %s are in incidents; %s were read while learning\n",
        CLI_COUNT(c.types), CLI_COUNT(c.usual), CLI_COUNT(c.in_events), CLI_COUNT(c.learning));
}

static void tell_times(const watching *w) {
    for (size_t i = 0; i < reef_replay_source_count(w->replay); i++) {
        if (!reef_replay_source_lacks_times(w->replay, i)) continue;
        const char *name = reef_replay_source_name(w->replay, i);
        char *shown = reef_cli_printable((const uint8_t *)name, strlen(name), false);
        fprintf(stderr,
                "reef watch: no line of %s has a time that is understood: its lines count as "
                "of the time when it was written last\n",
                shown);
        free(shown);
    }
}

// ---- reading ------------------------------------------------------------------------------------

static reef_status add_sources(watching *w, reef_error *err) {
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < reef_replay_source_count(w->replay); i++) {
        uint32_t number;
        status = reef_watch_add_source(w->watch, &number, err);
    }
    return status;
}

static reef_status read_lines(watching *w, reef_error *err) {
    reef_replay_line line;
    bool any = true;
    reef_status status = REEF_OK;
    while (status == REEF_OK && any && !reef_cli_is_stopped()) {
        status = reef_replay_next(w->replay, &line, &any, err);
        if (status != REEF_OK || !any) break;
        if (w->first_ms == 0) w->first_ms = line.time_ms;
        if (line.time_ms > w->last_ms) w->last_ms = line.time_ms;
        status = reef_watch_line(w->watch, line.source, line.bytes, line.count, line.offset,
                                 line.time_ms, err);
    }
    return status;
}

// What is given for nothing is a mistake.
static reef_status check_options(const reef_cli_call *cli, bool replay, reef_error *err) {
    static const char *const PAST[] = {"since", "all"}, *const LIVE[] = {"pool", "exec", "hook"};
    for (size_t i = 0; !replay && i < sizeof(PAST) / sizeof(*PAST); i++)
        if (reef_cli_text(cli, PAST[i]) != NULL)
            return reef_fail(err, REEF_ERR_INVALID, "--%s goes with --replay", PAST[i]);
    for (size_t i = 0; replay && i < sizeof(LIVE) / sizeof(*LIVE); i++)
        if (reef_cli_text(cli, LIVE[i]) != NULL)
            return reef_fail(err, REEF_ERR_INVALID, "--%s does not go with --replay", LIVE[i]);
    return !replay || cli->operand_count > 0
               ? REEF_OK
               : reef_fail(err, REEF_ERR_INVALID, "--replay needs the paths of past logs");
}

static reef_status replay(reef_cli_call *cli, reef_error *err) {
    reef_watch_options options;
    watching w = {
        .cli = cli, .all = reef_cli_text(cli, "all") != NULL, .colours = reef_cli_colours()};
    reef_status status = read_options(cli, &options, err);
    if (status == REEF_OK)
        status = reef_replay_open(&w.replay, cli->operands, cli->operand_count, err);
    if (status == REEF_OK) status = reef_watch_new(&w.watch, &options, on_incident, &w, err);
    if (status == REEF_OK) status = add_sources(&w, err);
    if (status == REEF_OK) {
        reef_cli_catch_signals(false);
        status = read_lines(&w, err);
    }
    if (status == REEF_OK) {
        reef_watch_finish(w.watch);
        tell_times(&w);
        print_summary(&w);
        if (fflush(stdout) != 0)
            status =
                reef_fail(err, REEF_ERR_IO, "cannot write standard output: %s", strerror(errno));
    }
    reef_watch_free(w.watch);
    reef_replay_close(w.replay);
    return status;
}

reef_status reef_cmd_watch(reef_cli_call *cli, reef_error *err) {
    const bool past = reef_cli_text(cli, "replay") != NULL;
    reef_status status = check_options(cli, past, err);
    if (status != REEF_OK) return status;
    return past ? replay(cli, err) : reef_watch_live(cli, err);
}
