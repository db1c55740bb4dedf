// reef score: how surprising each line of a text is, and which lines stand out.
#include "cli_pool.h"
#include "cli_progress.h"
#include "commands.h"
#include "matrix.h"
#include "score_parts.h"

#include <stdlib.h>
#include <string.h>

#define TOP_DEFAULT 10

static const reef_cli_option OPTIONS[] = {
    {"as-of", "STATE",
     "a generation, a snapshot, a moment such as yesterday, or now (default: now)"},
    CLI_OPTION_FROZEN,
    {"top", "N", "show the N most surprising lines (default: 10; 0: all, in order)"},
    {"by", "WHAT", "what --top goes by: surplus or score (default: surplus)"},
    {"session", "REGEX", "score sessions: lines with the same match of REGEX, or of its group"},
    {"alarms", "P%", "show what exceeds the score that P % of the learned lines exceed"},
    {"explain", NULL, "mark the bytes that were surprising, and show the nearest learned line"},
    {"follow", NULL,
     "print each line as it is written, across rotation of FILE; until interrupted"},
    {"outliers", NULL, "with --follow: only lines that stand out"},
    {"threshold", "X", "with --follow: how far above the usual a line stands out (default: 5)"},
    {"window", "N", "with --follow: reference lines, which show what is usual (default: 200)"},
    {"last", "N", "with --follow: begin with the last N lines of FILE, or with all (default: 10)"},
    {0},
};

const reef_cli_manual reef_score_manual = {
    .about =
        "The most surprising lines are those with the most bits above what a line of their length\n"
        "has on average in this text. FILE - is standard input.\n"
        "\n"
        "The score of a line is its bits per byte, and the greater of these: how surprising bytes "
        "of its\n"
        "words are, and how rare its words are in the learned lines that the pool keeps. --alarms "
        "and\n"
        "--session go by it. REGEX is a POSIX extended regular expression. A session is all lines "
        "with the\n"
        "same match of it, or of its first group; its score is the mean of its five worst lines. "
        "Lines in\n"
        "which nothing matches are left out. For --alarms the last fifth of the learned lines is "
        "scored by\n"
        "a memory that learned the others, which takes some seconds for each megabyte. --explain "
        "marks\n"
        "bytes that had a chance of at most 1 in 16, and shows the learned line that is most like "
        "this one.\n"
        "\n"
        "With --follow every line is printed as it comes, "
        "with its bits per byte, each byte predicted from\n"
        "what came before it, and how far that lies above the median of the last lines, in robust\n"
        "standard deviations (1.4826 times the median distance from the median); "
        "! marks those that stand\n"
        "out. A file is followed by its name, as by tail "
        "-F. Commits of a daemon are read as they come.\n"
        "--json writes a document a line. SIGINT ends it with a summary.",
    .options = OPTIONS,
    .example = "reef score reef.pool --top 5 server.log\n"
               "reef score reef.pool --frozen --alarms 1% --explain server.log\n"
               "reef score reef.pool --session 'from ([0-9.]+)' server.log\n"
               "journalctl -n 500 | reef score reef.pool -\n"
               "reef score reef.pool --follow --frozen --outliers /var/log/syslog",
};

// What the options ask for, beside the text.
typedef struct wishes {
    size_t top;
    bool by_score, by_session, by_alarm, explains;
    regex_t pattern; // of sessions
    reef_alarm alarm;
} wishes;

static reef_status read_wishes(wishes *out, const reef_cli_call *cli, reef_error *err) {
    *out = (wishes){.explains = reef_cli_text(cli, "explain") != NULL};
    const char *session = reef_cli_text(cli, "session"), *by = reef_cli_text(cli, "by");
    reef_status status = reef_alarm_read(&out->alarm, &out->by_alarm, cli, err);
    // All alarms are of interest, unless fewer are asked for.
    uint64_t top = out->by_alarm ? 0 : TOP_DEFAULT;
    if (status == REEF_OK) status = reef_cli_integer(cli, "top", 0, UINT32_MAX, &top, err);
    out->top = (size_t)top;
    out->by_score = out->by_alarm || (by != NULL && strcmp(by, "score") == 0);
    if (status == REEF_OK && by != NULL && strcmp(by, "score") != 0 && strcmp(by, "surplus") != 0)
        status =
            reef_fail(err, REEF_ERR_INVALID, "--by is '%.64s', but must be surplus or score", by);
    if (status != REEF_OK || session == NULL) return status;
    status = reef_session_pattern_read(&out->pattern, session, err);
    out->by_session = status == REEF_OK;
    return status;
}

static void release_wishes(wishes *w) {
    if (w->by_session) regfree(&w->pattern);
}

static reef_status reply_score(reef_cli_call *cli,
                               wishes *w,
                               reef_model *model,
                               reef_store *store,
                               const reef_score_reply *scored,
                               reef_error *err) {
    reef_score_reply reply = *scored;
    reef_sessions sessions = {0};
    reef_learned_text learned = {0};
    const regex_t *pattern = w->by_session ? &w->pattern : NULL;
    reef_status status = REEF_OK;
    if (w->by_session) {
        status = reef_sessions_find(&sessions, pattern, reply.lines, err);
        reply.sessions = &sessions;
    }
    if (status == REEF_OK && w->by_alarm) {
        status = reef_alarm_set(&w->alarm, cli, model, store, pattern, err);
        reply.alarm = &w->alarm;
    }
    if (status == REEF_OK && w->explains) {
        status = reef_learned_text_read(&learned, model, store, err);
        if (status == REEF_OK) reply.nearest = reef_nearest_new(learned.bytes, learned.count);
    }
    if (status == REEF_OK) status = reef_score_reply_write(&reply, cli, err);
    reef_nearest_free(reply.nearest);
    reef_learned_text_release(&learned);
    reef_sessions_release(&sessions);
    return status;
}

reef_status reef_cmd_score(reef_cli_call *cli, reef_error *err) {
    reef_cli_pool pool = {0};
    reef_cli_file file = {0};
    reef_model *model = NULL;
    float *bits = NULL;
    reef_score score = {0};
    const reef_line_scorer *scorer;
    reef_scored_lines lines = {0};
    wishes w;
    char as_of[REEF_NAME_BYTES_MAX + 1];

    reef_status status = reef_score_follow_check(cli, err);
    if (status != REEF_OK) return status;
    // Following is another program: it has no end and keeps a stream.
    if (reef_cli_text(cli, "follow") != NULL) return reef_score_follow(cli, err);
    status = read_wishes(&w, cli, err);
    if (status == REEF_OK) status = reef_cli_pool_open(&pool, cli, err);
    if (status == REEF_OK) status = reef_cli_text_read(&file, cli->operands[0], err);
    if (status == REEF_OK) status = reef_cli_as_of(cli, pool.store, as_of, err);
    if (status == REEF_OK) status = reef_cli_model_open(&model, cli, pool.store, as_of, err);
    if (status != REEF_OK) goto cleanup;

    // One value per byte: lines are cut afterwards, so that windows do not depend on them.
    bits = reef_cli_alloc(file.count, sizeof(*bits));
    reef_cli_progress progress;
    reef_cli_progress_start(&progress, "scoring", file.count, "B");
    status = reef_score_file(model, &file, &progress, bits, &score, err);
    reef_cli_progress_end(&progress);
    if (status == REEF_OK) status = reef_model_line_scorer(model, &scorer, err);
    if (status != REEF_OK) goto cleanup;

    // Cut with the mean of this very text: a surplus compares lines of one file.
    reef_scored_lines_init(&lines, scorer, file.bytes, bits, file.count, score.bits_per_byte);
    const reef_score_reply reply = {.file = &file,
                                    .score = &score,
                                    .lines = &lines,
                                    .top = w.top,
                                    .by_score = w.by_score,
                                    .explains = w.explains};
    status = reply_score(cli, &w, model, pool.store, &reply, err);

cleanup:
    release_wishes(&w);
    reef_scored_lines_release(&lines);
    free(bits);
    reef_model_close(model);
    reef_cli_file_release(&file);
    reef_cli_pool_close(&pool);
    return status;
}
