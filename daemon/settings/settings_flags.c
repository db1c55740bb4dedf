// The command line of reefd; see settings_internal.h.
#include "settings_internal.h"

#include "reef_gone.h"
#include "reef_settings.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// What getopt_long returns: a setting's number, the same for its opposite, or one of these.
enum { OPT_SETTING = 256, OPT_OPPOSITE = 512, OPT_CONFIG = 768, OPT_CHECK, OPT_HELP, OPT_VERSION };

void reef_option_flags_init(reef_option_flags *table) {
    size_t count = 0;
    // Flags are made from the table of settings, so that every setting is a flag and a key.
    for (size_t i = 0; i < reef_setting_count(); i++) {
        bool is_switch = reef_settings[i].kind == SETTING_SWITCH;
        table->flags[count++] =
            (struct option){reef_settings[i].name, is_switch ? no_argument : required_argument,
                            NULL, OPT_SETTING + (int)i};
        // A switch can be turned off on the command line although the file turns it on.
        if (!is_switch) continue;
        snprintf(table->opposites[i], OPTION_NAME_BYTES_MAX, "no-%s", reef_settings[i].name);
        table->flags[count++] =
            (struct option){table->opposites[i], no_argument, NULL, OPT_OPPOSITE + (int)i};
    }
    table->flags[count++] = (struct option){"config", required_argument, NULL, OPT_CONFIG};
    table->flags[count++] = (struct option){"check", no_argument, NULL, OPT_CHECK};
    table->flags[count++] = (struct option){"help", no_argument, NULL, OPT_HELP};
    table->flags[count++] = (struct option){"version", no_argument, NULL, OPT_VERSION};
    table->flags[count] = (struct option){NULL, 0, NULL, 0};
}

static int next_flag(const reef_option_flags *table, int argc, char **argv, bool first) {
    opterr = 0; // the messages are ours
    if (first) optind = 1;
    return getopt_long(argc, argv, ":", table->flags, NULL);
}

// `given` is the argument just read, except in the middle of a cluster of letters.
static reef_status fail_unknown(const reef_option_flags *table,
                                const char *given,
                                reef_error *err) {
    // getopt reports a single letter in optopt, and long options by their number.
    if (optopt > 0 && optopt < OPT_SETTING)
        return reef_fail(err, REEF_ERR_INVALID, "unknown option '-%c'; see reefd --help", optopt);
    if (optopt >= OPT_SETTING)
        return reef_fail(err, REEF_ERR_INVALID, "option '%s' takes no value; see reefd --help",
                         given);
    // Dashes and values are not part of the name.
    char name[OPTION_NAME_BYTES_MAX];
    snprintf(name, sizeof(name), "%s", given + strspn(given, "-"));
    name[strcspn(name, "=")] = '\0';
    if (reef_gone_report("reefd", name, err)) return REEF_ERR_INVALID;
    const char *guess = NULL;
    for (const struct option *flag = table->flags; flag->name != NULL; flag++)
        reef_guess(name, flag->name, &guess);
    if (guess != NULL)
        return reef_fail(err, REEF_ERR_INVALID, "unknown option '%.64s'; did you mean --%s?", given,
                         guess);
    return reef_fail(err, REEF_ERR_INVALID, "unknown option '%s'; see reefd --help", given);
}

reef_status reef_option_flags_scan(
    reef_options *options, const reef_option_flags *table, int argc, char **argv, reef_error *err) {
    reef_status status = REEF_OK;
    // All arguments are scanned, also after an error: --help must win over a typo.
    for (int which, first = 1; (which = next_flag(table, argc, argv, first)) != -1; first = 0) {
        reef_error *here = status == REEF_OK ? err : NULL;
        // Only these matter in the first pass; values are taken in the second.
        if (which == OPT_CONFIG) options->config = optarg;
        if (which == OPT_CHECK) options->action = REEF_ACTION_CHECK;
        if (which == ':')
            status = reef_fail(here, REEF_ERR_INVALID,
                               "option '%s' needs a value; see reefd --help", argv[optind - 1]);
        if (which == '?') status = fail_unknown(table, argv[optind - 1], here);
        if (status != REEF_OK || (which != OPT_HELP && which != OPT_VERSION)) continue;
        options->action = which == OPT_HELP ? REEF_ACTION_HELP : REEF_ACTION_VERSION;
        return REEF_OK;
    }
    if (status == REEF_OK && optind < argc)
        status = reef_fail(err, REEF_ERR_INVALID, "unexpected argument '%s'; see reefd --help",
                           argv[optind]);
    return status;
}

reef_status reef_option_flags_take(
    reef_options *options, const reef_option_flags *table, int argc, char **argv, reef_error *err) {
    reef_status status = REEF_OK;
    for (int which, first = 1;
         status == REEF_OK && (which = next_flag(table, argc, argv, first)) != -1; first = 0) {
        // Options without a setting were handled by the scan.
        if (which < OPT_SETTING || which >= OPT_CONFIG) continue;
        bool opposite = which >= OPT_OPPOSITE;
        size_t i = (size_t)(which - (opposite ? OPT_OPPOSITE : OPT_SETTING));
        char label[OPTION_NAME_BYTES_MAX];
        snprintf(label, sizeof(label), "--%s", reef_settings[i].name);
        status = reef_option_take(options, i, (reef_option_origin){REEF_ORIGIN_FLAG, 0}, label,
                                  optarg != NULL ? optarg
                                  : opposite     ? "no"
                                                 : "yes",
                                  err);
    }
    return status;
}

// ---- --help -------------------------------------------------------------------------------------
//
// reefd.8 is made of it.

#define COLUMNS 100
#define TEXT_COLUMN 24 // where the explanation of an option begins

static const struct {
    const char *usage, *about, *sources, *layers, *signals, *codes, *example;
} MANUAL = {
    .usage = "reefd --pool DIR --source SOURCE [--source SOURCE ...] [options]",
    .about = "Trains the pool in DIR on a stream and commits as it goes. Killed at any moment, it "
             "continues from "
             "the last commit and ends with the same bits. Ends when the last source has ended.",
    .sources =
        "Sources are read in the order given, each from where the pool has got to:\n"
        "  file:PATH or PATH     a regular file\n"
        "  glob:PATTERN          the files that it fits now, in the order of their names; quote "
        "it\n"
        "  -                     standard input; what comes in continues the stream\n"
        "Live sources have no end and are read beside those:\n"
        "  follow:PATH           a file that grows, through rotation, truncation and compression\n"
        "  dir:PATH[/PATTERN]    all files of a directory, or those that the pattern fits\n"
        "  redis://HOST:PORT/STREAM or redis:///PATH/OF/SOCKET/STREAM\n"
        "                        a Redis Stream; the password in REEF_REDIS_PASSWORD;\n"
        "                        ?field=NAME, db=N, group=NAME to acknowledge to\n"
        "  journal:              systemd's journal: all of this machine's, or what matches, such "
        "as\n"
        "                        journal:unit=nginx.service&priority=warning (identifier=NAME,\n"
        "                        FIELD=VALUE), or files in a directory: journal:dir=PATH\n"
        "  syslog:udp://ADDRESS:PORT, syslog:tcp://ADDRESS:PORT, syslog:unix:PATH\n"
        "                        messages of syslog; ?from=ADDRESS[/BITS],... who may send, else\n"
        "                        this machine alone\n"
        "  kafka:HOST:PORT[,HOST:PORT...]/TOPIC\n"
        "                        a Kafka topic; ?config=FILE of librdkafka's settings\n"
        "  push:NAME             what clients send: 'reef ingest', POST /v1/ingest\n"
        "  ?weight=N after one of these is its share (1 to 1000; default 1).\n",
    .layers = "Switches have an opposite, such as --no-stay. Options win over the file. "
              "REEF_ISA=scalar|avx2|avx512 in the environment chooses the kernels.",
    .signals =
        "SIGTERM and SIGINT finish what was read, commit and end with 0; a second one ends at "
        "once. SIGHUP "
        "reads the configuration and the token again: commit-*, pool-max, json-log and "
        "quiet change "
        "between two steps, the rest with a restart.",
    .codes = "Exit codes: 0 done; 64 usage; 65 damaged pool, or a file that shrank; 66 no such "
             "pool or source, or "
             "nothing in any source; 71 memory; 73 disk full; 74 input or output; 75 pool in use.",
    .example = "reef init reef.pool && reefd --pool reef.pool --source file:corpus.txt\n",
};

static const reef_option_text TEXTS[] = {
    {"pool", "DIR", "the pool, made by 'reef init'"},
    {"source", "SOURCE", "something to read; may be given several times"},
    {"threads", "N", "threads for arithmetic (default: one per core); never changes the result"},
    {"rows-memory", "SIZE",
     "memory to count on, such as 2G (default: all there is): rows of sealed experts beyond half "
     "of it are read where they lie in the pool, memories of kinds that rest beyond the other half "
     "when their text comes"},
    {"pool-max", "SIZE",
     "what the pool's records may take, such as 20G (default 0: no bound): beyond it the oldest "
     "states are given up, as by 'reef prune'; the present one and snapshots never are"},
    {"snapshot-every", "PERIOD",
     "keep a state so often, such as 1h or 1d (default 0: not), as the snapshot auto-...; "
     "'--as-of yesterday' of other commands finds it"},
    {"keep", "RULES",
     "which of these states stay: the last one of so many hours, days and weeks that have one "
     "(default hourly=24,daily=30,weekly=52)"},
    {"commit-steps", "N", "commit after N training steps (default 50; 0: not by steps)"},
    {"commit-seconds", "S", "commit after S seconds (default 10; 0: not by time)"},
    {"join-every", "SIZE",
     "under mpirun: each rank learns from sources of its own, and they exchange what they know "
     "after so many bytes, such as 64M (default 0: they train one divided pool)"},
    {"journal", "SIZE",
     "what may wait in the pool for training, of each push:NAME; more is refused as busy (default "
     "256M)"},
    {"socket", "PATH", "control socket (default: reefd.sock in the pool's directory)"},
    {"http", "[ADDRESS:]PORT",
     "answer HTTP: status, metrics, scores (default: not; ADDRESS 127.0.0.1; port 0: any that is "
     "free; `reef "
     "status` says which)"},
    {"http-token", "FILE",
     "who sends this token may change things; needed where other machines can reach ADDRESS"},
    {"alarm-exec", "COMMAND",
     "run COMMAND in a shell when an incident begins to ring, and when it has ended: the incident "
     "is JSON on its standard input"},
    {"alarm-hook", "URL",
     "send the same to Alertmanager (a URL that ends in /api/v2/alerts), or to a receiver of its "
     "web hooks"},
    {"stay", NULL, "keep serving the socket after the last source has ended"},
    {"json-log", NULL, "messages, events and progress as one JSON object a line"},
    {"quiet", NULL, "only errors and warnings"},
    {"config", "FILE",
     "read settings from FILE: section [reefd], keys as the options above without dashes in front "
     "(commit-seconds = 5); 'source' may stand several times, switches take yes or no; options win "
     "over it"},
    {"check", NULL, "print every setting and where it comes from, and end"},
    {"help", NULL, "this text"},
    {"version", NULL, "the version"},
};

const reef_option_text *reef_option_texts(size_t *count) {
    *count = sizeof(TEXTS) / sizeof(TEXTS[0]);
    return TEXTS;
}

// ---- the text of --help -------------------------------------------------------------------------

typedef struct page {
    char text[8192];
    size_t used;
} page;

static void add_help(page *out, const char *text, size_t bytes) {
    if (bytes >= sizeof(out->text) - out->used) bytes = sizeof(out->text) - out->used - 1;
    memcpy(out->text + out->used, text, bytes);
    out->used += bytes;
}

static void add_text(page *out, const char *text) {
    add_help(out, text, strlen(text));
}

// Words up to the last column; `at` is the column reached, `indent` that of every further line.
static void add_wrapped(page *out, const char *text, size_t at, size_t indent) {
    bool first = true;
    // Words are kept whole; a word longer than the line stands alone.
    while (*text) {
        size_t word = strcspn(text, " ");
        if (!first && at + 1 + word > COLUMNS) {
            char line[TEXT_COLUMN + 2];
            snprintf(line, sizeof(line), "\n%*s", (int)indent, "");
            add_text(out, line);
            at = indent;
        } else if (!first) {
            add_text(out, " ");
            at++;
        }
        add_help(out, text, word);
        at += word;
        first = false;
        text += word;
        text += strspn(text, " ");
    }
    add_text(out, "\n");
}

static void add_option(page *out, const reef_option_text *option) {
    char left[80];
    int length =
        snprintf(left, sizeof(left), "  --%s%s%s", option->name, option->value != NULL ? " " : "",
                 option->value != NULL ? option->value : "");
    add_text(out, left);
    // A long name leaves no room: its text begins on the next line.
    if (length + 2 > TEXT_COLUMN) add_text(out, "\n");
    size_t blanks = length + 2 > TEXT_COLUMN ? TEXT_COLUMN : (size_t)(TEXT_COLUMN - length);
    for (size_t i = 0; i < blanks; i++) add_text(out, " ");
    add_wrapped(out, option->help, TEXT_COLUMN, TEXT_COLUMN);
}

static void add_example(page *out) {
    const char *line = MANUAL.example;
    add_text(out, "\nExample:\n");
    while (*line) {
        // With its newline, so that lines stay as they are written.
        size_t bytes = strcspn(line, "\n") + 1;
        add_text(out, "  ");
        add_help(out, line, bytes);
        line += bytes;
    }
}

const char *reef_options_help(void) {
    // One static page: help is printed once and the program ends.
    static page out;
    out.used = 0;
    add_text(&out, "Usage: ");
    add_text(&out, MANUAL.usage);
    add_text(&out, "\n\n");
    add_wrapped(&out, MANUAL.about, 0, 0);
    add_text(&out, "\n");
    add_text(&out, MANUAL.sources);
    add_text(&out, "\nOptions:\n");
    // Help is printed from the table, in its order.
    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) add_option(&out, &TEXTS[i]);
    add_text(&out, "\n");
    add_wrapped(&out, MANUAL.layers, 0, 0);
    add_text(&out, "\n");
    add_wrapped(&out, MANUAL.signals, 0, 0);
    add_text(&out, "\n");
    add_wrapped(&out, MANUAL.codes, 0, 0);
    add_example(&out);
    out.text[out.used] = '\0';
    return out.text;
}
