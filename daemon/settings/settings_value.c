// One value of a setting from its text; see settings_internal.h. A misspelt kind of source is
// reported here; whether the source can be read, when it is opened.
#include "settings_internal.h"

#include "kept_states.h"
#include "reef_client.h"
#include "reef_moment.h"
#include "reef_source.h"
#include "reef_trainer.h"
#include "text_kind.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SECONDS_MAX 86400.0

static reef_status parse_count(
    const setting *one, const char *label, const char *text, uint64_t *out, reef_error *err) {
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    // strtoull takes signs and leading blanks; a count starts with a digit.
    if (text[0] < '0' || text[0] > '9' || *end || errno || value < one->low || value > one->high)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%s '%.40s' is not a whole number from %llu to %llu", label, text,
                         (unsigned long long)one->low, (unsigned long long)one->high);
    *out = value;
    return REEF_OK;
}

static reef_status parse_seconds(const char *label,
                                 const char *text,
                                 double *out,
                                 reef_error *err) {
    char *end = NULL;
    double value = strtod(text, &end);
    // inf and nan are numbers to strtod.
    if (end == text || *end || !isfinite(value) || value < 0 || value > SECONDS_MAX)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%s '%.40s' is not a number of seconds from 0 to %.0f", label, text,
                         SECONDS_MAX);
    *out = value;
    return REEF_OK;
}

static reef_status parse_memory(const char *label,
                                const char *text,
                                uint64_t *out,
                                reef_error *err) {
    if (reef_memory_parse(text, out, NULL) == REEF_OK) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "%s '%.40s' is not an amount of memory: "
                     "a whole number of bytes, or with K, M, G or T, such as 2G",
                     label, text);
}

static reef_status parse_rate(const char *label, const char *text, uint64_t *out, reef_error *err) {
    *out = 0;
    // "0" turns the work off; reef_memory_parse wants at least 1.
    if (strcmp(text, "0") == 0) return REEF_OK;
    if (reef_memory_parse(text, out, NULL) == REEF_OK) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "%s '%.40s' is not a number of bytes a second: 0, or a whole number, or one "
                     "with K, M, G or T, such as 4M",
                     label, text);
}

static reef_status parse_period(const char *label,
                                const char *text,
                                uint64_t *out,
                                reef_error *err) {
    const char *rest;
    uint64_t seconds;
    *out = 0;
    if (strcmp(text, "0") == 0) return REEF_OK;
    if (reef_span_parse(text, &rest, &seconds) && *rest == '\0') *out = 1000u * seconds;
    if (*out > 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "%s '%.40s' is not a period: 0, or a whole number with s, m, h, d or w, such "
                     "as 1h",
                     label, text);
}

static reef_status parse_keep(const char *label,
                              const char *text,
                              const char **out,
                              reef_error *err) {
    // Parsed for the check alone: whoever starts training reads it again.
    reef_keep_policy policy;
    reef_error why;
    if (reef_keep_parse(&policy, text, &why) != REEF_OK)
        return reef_fail(err, REEF_ERR_INVALID, "%s %s", label, why.message);
    *out = text;
    return REEF_OK;
}

static reef_status parse_switch(const char *label, const char *text, bool *out, reef_error *err) {
    // The words of systemd's unit files, so that an operator need not learn others.
    static const char *const WORDS[][2] = {
        {"no", "yes"}, {"false", "true"}, {"off", "on"}, {"0", "1"}};
    for (size_t i = 0; i < sizeof(WORDS) / sizeof(*WORDS); i++)
        for (int k = 0; k < 2; k++)
            if (strcmp(text, WORDS[i][k]) == 0) {
                *out = k == 1;
                return REEF_OK;
            }
    return reef_fail(err, REEF_ERR_INVALID, "%s '%.40s' is neither yes nor no", label, text);
}

static reef_status parse_listen(const char *label,
                                const char *text,
                                const char **out,
                                reef_error *err) {
    // Parsed for the check alone: the listener resolves it again when it starts.
    struct sockaddr_storage address;
    reef_error why;
    if (reef_address_parse(&address, text, &why) != REEF_OK)
        return reef_fail(err, REEF_ERR_INVALID, "%s %s", label, why.message);
    *out = text;
    return REEF_OK;
}

static reef_status parse_hook(const char *label,
                              const char *text,
                              const char **out,
                              reef_error *err) {
    const size_t scheme = strncmp(text, "http://", 7) == 0    ? 7
                          : strncmp(text, "https://", 8) == 0 ? 8
                                                              : 0;
    // The text itself may hold a password.
    if (scheme == 0 || strcspn(text + scheme, "/?#") == 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%s: expected http://HOST/PATH or https://HOST/PATH", label);
    *out = text;
    return REEF_OK;
}

static reef_status parse_value(
    const setting *one, const char *label, const char *text, void *to, reef_error *err) {
    // Every kind has one parser, whatever layer the value came from.
    switch (one->kind) {
    case SETTING_COUNT:
        return parse_count(one, label, text, to, err);
    case SETTING_SECONDS:
        return parse_seconds(label, text, to, err);
    case SETTING_MEMORY:
        return parse_memory(label, text, to, err);
    case SETTING_RATE:
        return parse_rate(label, text, to, err);
    case SETTING_PERIOD:
        return parse_period(label, text, to, err);
    case SETTING_KEEP:
        return parse_keep(label, text, to, err);
    case SETTING_SWITCH:
        return parse_switch(label, text, to, err);
    case SETTING_ADDRESS:
        return parse_listen(label, text, to, err);
    case SETTING_HOOK:
        return parse_hook(label, text, to, err);
    case SETTING_TEXT:
        // Text needs no check; sources are parsed with their own grammar.
        *(const char **)to = text;
        break;
    case SETTING_SOURCE:
        break;
    }
    return REEF_OK;
}

// ---- sources ------------------------------------------------------------------------------------

struct reef_options_text {
    struct reef_options_text *next;
    char text[];
};

void reef_options_release(reef_options *options) {
    while (options->texts != NULL) {
        struct reef_options_text *next = options->texts->next;
        free(options->texts);
        options->texts = next;
    }
}

// A layer's first source replaces all sources of the layers below.
static reef_status add_source(reef_options *options,
                              const char *text,
                              bool first,
                              reef_error *err) {
    if (first) options->source_count = 0;
    if (options->source_count == REEF_INPUT_COUNT_MAX)
        return reef_fail(err, REEF_ERR_INVALID, "more than %d sources", REEF_INPUT_COUNT_MAX);
    options->sources[options->source_count++] = text;
    return REEF_OK;
}

const char *reef_option_keep(reef_options *options, const char *text) {
    size_t bytes = strlen(text) + 1;
    struct reef_options_text *kept = malloc(sizeof(*kept) + bytes);
    if (kept == NULL) return NULL;
    memcpy(kept->text, text, bytes);
    kept->next = options->texts;
    options->texts = kept;
    return kept->text;
}

// Is it one of the files that a pattern fits before this one, by a link?
static bool is_again(const glob_t *found, size_t at, const struct stat *state) {
    struct stat before;
    for (size_t i = 0; i < at; i++)
        if (stat(found->gl_pathv[i], &before) == 0 && before.st_ino == state->st_ino &&
            before.st_dev == state->st_dev)
            return true;
    return false;
}

// Keeps those that are text, each once: the others are packed, or no log at all. The last of them
// is named.
static bool keep_text(reef_options *options, const char *pattern, glob_t *found, size_t *files) {
    size_t kept = 0, refused = 0, again = 0;
    char text[2 * PATH_MAX] = "";
    for (size_t i = 0; i < found->gl_pathc; i++) {
        struct stat state;
        char *path = found->gl_pathv[i];
        // Directories and sockets that match a pattern are not text.
        if (stat(path, &state) != 0 || !S_ISREG(state.st_mode)) continue;
        const char *kind = reef_text_kind_of(path);
        const char *slash = strrchr(path, '/');
        bool twice = kind == NULL && is_again(found, i, &state);
        if (kind != NULL)
            snprintf(text, sizeof(text), "'%s' is %s%s", path, kind,
                     reef_text_advice(slash != NULL ? slash + 1 : path));
        refused += kind != NULL;
        if (twice && !refused) snprintf(text, sizeof(text), "'%s' is another name", path);
        again += twice;
        if (kind != NULL || twice) continue;
        found->gl_pathv[i] = found->gl_pathv[kept]; // globfree frees it there
        found->gl_pathv[kept++] = path;
    }
    *files = kept;
    if (refused + again == 0) return true;
    char line[3 * PATH_MAX];
    snprintf(line, sizeof(line),
             "glob:%s fits %zu files that are no text and %zu names of files that it has already, "
             "and these are not read; %s",
             pattern, refused, again, text);
    return (options->passed_over = reef_option_keep(options, line)) != NULL;
}

// The files that a pattern fits now, each a source of its own.
static reef_status add_files(reef_options *options,
                             const char *pattern,
                             glob_t *found,
                             reef_error *err) {
    reef_status status = REEF_OK;
    size_t files = 0;
    if (!keep_text(options, pattern, found, &files))
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for sources");
    // The bound is checked before any is added, so that a pattern adds all of its files or none.
    if (files > REEF_INPUT_COUNT_MAX - options->source_count)
        return reef_fail(err, REEF_ERR_INVALID,
                         "'glob:%.100s' fits %zu files, and reefd takes at most %d sources in all: "
                         "dir:PATH/PATTERN takes more files, as one source that does not end",
                         pattern, files, REEF_INPUT_COUNT_MAX);
    for (size_t i = 0; status == REEF_OK && i < files; i++) {
        char source[sizeof("file:") + PATH_MAX];
        snprintf(source, sizeof(source), "file:%s", found->gl_pathv[i]);
        const char *kept = reef_option_keep(options, source);
        status = kept != NULL ? add_source(options, kept, false, err)
                              : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for sources");
    }
    return status;
}

static reef_status add_pattern(reef_options *options,
                               const char *pattern,
                               bool first,
                               reef_error *err) {
    glob_t found = {0};
    // Sources of a stronger layer replace those of a weaker one, they do not add to them.
    if (first) options->source_count = 0;
    size_t before = options->source_count;
    const char *said = options->passed_over;
    // glob sorts, so the order of files is the same on every start.
    int code = glob(pattern, 0, NULL, &found); // sorted
    reef_status status = code == GLOB_NOSPACE
                             ? reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for sources")
                             : add_files(options, pattern, &found, err);
    globfree(&found);
    if (status != REEF_OK || options->source_count > before) return status;
    // A pattern without a file is refused: a daemon that reads nothing looks as if it worked.
    if (options->passed_over != said)
        return reef_fail(err, REEF_ERR_NOT_FOUND, "%.200s", options->passed_over);
    return reef_fail(err, REEF_ERR_NOT_FOUND,
                     "no file fits '%.150s': check the pattern, "
                     "and quote it, or the shell expands it",
                     pattern);
}

static reef_status take_spec(reef_options *options, const char *text, bool first, reef_error *err) {
    if (strncmp(text, "glob:", 5) == 0) return add_pattern(options, text + 5, first, err);
    reef_status status = reef_input_check_spec(text, err);
    return status == REEF_OK ? add_source(options, text, first, err) : status;
}

// A mistake in a file is reported with its line.
static reef_status take_source(reef_options *options,
                               const reef_option_origin *origin,
                               const char *text,
                               bool first,
                               reef_error *err) {
    reef_error why = {.status = REEF_OK};
    reef_status status = take_spec(options, text, first, &why);
    if (status == REEF_OK) return REEF_OK;
    if (origin->kind != REEF_ORIGIN_FILE) return reef_fail(err, status, "%s", why.message);
    return reef_fail(err, status, "%.120s:%u: %s", options->config, origin->line, why.message);
}

reef_status reef_option_take(reef_options *options,
                             size_t index,
                             reef_option_origin origin,
                             const char *label,
                             const char *text,
                             reef_error *err) {
    const setting *one = &reef_settings[index];
    // The first source of a layer replaces those of weaker layers.
    bool first = options->origins[index].kind != origin.kind;
    options->origins[index] = origin;
    if (one->kind == SETTING_SOURCE) return take_source(options, &origin, text, first, err);
    return parse_value(one, label, text, reef_setting_field(options, one), err);
}
