// The settings of reefd: their layers, bounds and help. Nothing here touches the file system but for the
// configuration file and to find the files that a pattern fits; whether a source can be read is for input.c to say.
//
// The layers are applied one over the other, the weakest first, so a mistake in a value is told even where a
// stronger layer would hide it.
#include "options.h"

#include "config_file.h"
#include "push.h"
#include "reef_trainer.h"
#include "reef_words.h"
#include "report.h"
#include "scrub.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <glob.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define COMMIT_STEPS_DEFAULT 50
#define COMMIT_SECONDS_DEFAULT 10
#define PATIENCE_SECONDS_DEFAULT 5
#define COMMIT_RETRIES_DEFAULT 5 // with pauses of 1, 2, 4, 8 and 16 seconds
#define COMMIT_RETRIES_MAX 10
#define COMMIT_SECONDS_MAX 86400.0
#define COMMIT_STEPS_MAX 1000000000u
#define SECTION "reefd"
#define LABEL_BYTES_MAX 200
#define NAME_BYTES_MAX 32

// ---- the settings --------------------------------------------------------------------------------

typedef enum setting_kind {
    KIND_TEXT,    // const char *
    KIND_SOURCE,  // one more of `sources`
    KIND_COUNT,   // uint64_t between low and high
    KIND_SECONDS, // double
    KIND_MEMORY,  // uint64_t, bytes
    KIND_RATE,    // uint64_t, bytes a second, or 0
    KIND_SWITCH   // bool
} setting_kind;

typedef struct setting {
    const char *name;
    setting_kind kind;
    size_t at;          // offset in reef_options
    bool live;          // may change while the daemon runs
    uint64_t low, high; // of a count
} setting;

#define AT(member) offsetof(reef_options, member)
static const setting SETTINGS[] = {
    {"pool", KIND_TEXT, AT(pool), false, 0, 0},
    {"source", KIND_SOURCE, AT(sources), false, 0, 0},
    {"threads", KIND_COUNT, AT(threads), false, 1, REEF_THREAD_COUNT_MAX},
    {"memory", KIND_MEMORY, AT(memory_bytes), false, 0, 0},
    {"commit-steps", KIND_COUNT, AT(commit_steps), true, 0, COMMIT_STEPS_MAX},
    {"commit-seconds", KIND_SECONDS, AT(commit_seconds), true, 0, 0},
    {"patience", KIND_SECONDS, AT(patience_seconds), false, 0, 0},
    {"commit-retries", KIND_COUNT, AT(commit_retries), true, 0, COMMIT_RETRIES_MAX},
    {"scrub-rate", KIND_RATE, AT(scrub_rate), true, 0, 0},
    {"journal", KIND_MEMORY, AT(journal_bytes), false, 0, 0},
    {"socket", KIND_TEXT, AT(socket), false, 0, 0},
    {"http", KIND_TEXT, AT(http), false, 0, 0},
    {"http-token", KIND_TEXT, AT(http_token), false, 0, 0},
    {"stay", KIND_SWITCH, AT(stay), false, 0, 0},
    {"json-log", KIND_SWITCH, AT(json_log), true, 0, 0},
    {"quiet", KIND_SWITCH, AT(quiet), true, 0, 0},
};
#define SETTING_COUNT (sizeof(SETTINGS) / sizeof(SETTINGS[0]))
_Static_assert(SETTING_COUNT <= REEF_SETTING_COUNT_MAX, "every setting has room for its origin");

struct reef_options_text {
    struct reef_options_text *next;
    char text[];
};

// The place of a setting's value. A struct's members lie where offsetof says.
static void *place(reef_options *options, const setting *one) {
    return (char *)options + one->at;
}

static const void *value_of(const reef_options *options, const setting *one) {
    return (const char *)options + one->at;
}

// ---- one value -----------------------------------------------------------------------------------

static reef_status parse_count(
    const setting *one, const char *label, const char *text, uint64_t *out, reef_error *err) {
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    // strtoull takes signs and leading blanks; a count starts with a digit.
    if (text[0] < '0' || text[0] > '9' || *end || errno || value < one->low || value > one->high)
        return reef_fail(err, REEF_INVALID, "%s '%.40s' is not a whole number from %llu to %llu",
                         label, text, (unsigned long long)one->low, (unsigned long long)one->high);
    *out = value;
    return REEF_OK;
}

static reef_status parse_seconds(const char *label,
                                 const char *text,
                                 double *out,
                                 reef_error *err) {
    char *end = NULL;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value < 0 || value > COMMIT_SECONDS_MAX)
        return reef_fail(err, REEF_INVALID, "%s '%.40s' is not a number of seconds from 0 to %.0f",
                         label, text, COMMIT_SECONDS_MAX);
    *out = value;
    return REEF_OK;
}

static reef_status parse_memory(const char *label,
                                const char *text,
                                uint64_t *out,
                                reef_error *err) {
    if (reef_memory_parse(text, out, NULL) == REEF_OK) return REEF_OK;
    return reef_fail(err, REEF_INVALID,
                     "%s '%.40s' is no amount of memory: a whole number of bytes, or with K, M, G "
                     "or T, such as 2G",
                     label, text);
}

static reef_status parse_rate(const char *label, const char *text, uint64_t *out, reef_error *err) {
    *out = 0;
    if (!strcmp(text, "0")) return REEF_OK;
    if (reef_memory_parse(text, out, NULL) == REEF_OK) return REEF_OK;
    return reef_fail(err, REEF_INVALID,
                     "%s '%.40s' is no number of bytes a second: 0, or a whole number, or one "
                     "with K, M, G or T, such as 4M",
                     label, text);
}

static reef_status parse_switch(const char *label, const char *text, bool *out, reef_error *err) {
    static const char *const WORDS[][2] = {
        {"no", "yes"}, {"false", "true"}, {"off", "on"}, {"0", "1"}};
    for (size_t i = 0; i < sizeof(WORDS) / sizeof(*WORDS); i++)
        for (int k = 0; k < 2; k++)
            if (!strcmp(text, WORDS[i][k])) {
                *out = k == 1;
                return REEF_OK;
            }
    return reef_fail(err, REEF_INVALID, "%s '%.40s' is neither yes nor no", label, text);
}

// A layer's first source takes the place of all sources of the layers below.
static reef_status add_source(reef_options *options,
                              const char *text,
                              bool first,
                              reef_error *err) {
    if (first) options->source_count = 0;
    if (options->source_count == REEF_INPUT_COUNT_MAX)
        return reef_fail(err, REEF_INVALID, "more than %d sources", REEF_INPUT_COUNT_MAX);
    options->sources[options->source_count++] = text;
    return REEF_OK;
}

static const char *keep_text(reef_options *options, const char *text) {
    size_t bytes = strlen(text) + 1;
    struct reef_options_text *kept = malloc(sizeof(*kept) + bytes);
    if (!kept) return NULL;
    memcpy(kept->text, text, bytes);
    kept->next = options->texts;
    options->texts = kept;
    return kept->text;
}

// The files that a pattern fits now, each a source of its own.
static reef_status add_files(reef_options *options, const glob_t *found, reef_error *err) {
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < found->gl_pathc; i++) {
        char source[sizeof("file:") + PATH_MAX];
        struct stat state;
        if (stat(found->gl_pathv[i], &state) != 0 || !S_ISREG(state.st_mode)) continue;
        snprintf(source, sizeof(source), "file:%s", found->gl_pathv[i]);
        const char *kept = keep_text(options, source);
        status = kept ? add_source(options, kept, false, err)
                      : reef_fail(err, REEF_NO_MEMORY, "no memory for sources");
    }
    return status;
}

static reef_status add_pattern(reef_options *options,
                               const char *pattern,
                               bool first,
                               reef_error *err) {
    glob_t found = {0};
    if (first) options->source_count = 0;
    size_t before = options->source_count;
    int code = glob(pattern, 0, NULL, &found); // sorted
    reef_status status = code == GLOB_NOSPACE
                             ? reef_fail(err, REEF_NO_MEMORY, "no memory for sources")
                             : add_files(options, &found, err);
    globfree(&found);
    if (status != REEF_OK || options->source_count > before) return status;
    return reef_fail(err, REEF_NOT_FOUND,
                     "no file fits '%.150s': check the pattern, and quote it, or the shell "
                     "expands it",
                     pattern);
}

// `label` is how the layer calls the setting, for messages.
static reef_status take(reef_options *options,
                        size_t index,
                        reef_origin origin,
                        const char *label,
                        const char *text,
                        reef_error *err) {
    const setting *one = &SETTINGS[index];
    bool first = options->origins[index].kind != origin.kind;
    void *to = place(options, one);
    options->origins[index] = origin;
    switch (one->kind) {
    case KIND_TEXT:
        *(const char **)to = text;
        return REEF_OK;
    case KIND_SOURCE:
        return strncmp(text, "glob:", 5) == 0 ? add_pattern(options, text + 5, first, err)
                                              : add_source(options, text, first, err);
    case KIND_COUNT:
        return parse_count(one, label, text, to, err);
    case KIND_SECONDS:
        return parse_seconds(label, text, to, err);
    case KIND_MEMORY:
        return parse_memory(label, text, to, err);
    case KIND_RATE:
        return parse_rate(label, text, to, err);
    case KIND_SWITCH:
        return parse_switch(label, text, to, err);
    }
    return REEF_OK;
}

// ---- the file ------------------------------------------------------------------------------------

void reef_options_release(reef_options *options) {
    while (options->texts) {
        struct reef_options_text *next = options->texts->next;
        free(options->texts);
        options->texts = next;
    }
}

// commit_steps is commit-steps.
static bool is_key(const char *key, const char *name) {
    for (; *key && *name; key++, name++)
        if (*key != *name && !(*key == '_' && *name == '-')) return false;
    return *key == *name;
}

static reef_status refuse_key(const reef_options *options,
                              const char *key,
                              unsigned line,
                              reef_error *err) {
    const char *guess = NULL;
    size_t nearest = strlen(key) / 2 + 1; // what shares less than half of the letters is no help
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        size_t distance = reef_word_distance(key, SETTINGS[i].name);
        if (distance >= nearest) continue;
        nearest = distance;
        guess = SETTINGS[i].name;
    }
    return reef_fail(err, REEF_INVALID, "%.120s:%u: unknown key '%.40s'%s%s%s", options->config,
                     line, key, guess ? "; did you mean " : "; see reefd --help",
                     guess ? guess : "", guess ? "?" : "");
}

static reef_status on_entry(
    void *context, const char *key, const char *value, unsigned line, reef_error *err) {
    reef_options *options = context;
    size_t i = 0;
    while (i < SETTING_COUNT && !is_key(key, SETTINGS[i].name)) i++;
    if (i == SETTING_COUNT) return refuse_key(options, key, line, err);
    if (*value == '\0')
        return reef_fail(err, REEF_INVALID, "%.120s:%u: %s needs a value", options->config, line,
                         SETTINGS[i].name);
    if (SETTINGS[i].kind != KIND_SOURCE && options->origins[i].kind == REEF_ORIGIN_FILE)
        return reef_fail(err, REEF_INVALID, "%.120s:%u: %s stands on line %u already",
                         options->config, line, SETTINGS[i].name, options->origins[i].line);
    char label[LABEL_BYTES_MAX];
    snprintf(label, sizeof(label), "%.120s:%u: %s", options->config, line, SETTINGS[i].name);
    const char *kept = keep_text(options, value);
    if (!kept) return reef_fail(err, REEF_NO_MEMORY, "no memory for the configuration");
    return take(options, i, (reef_origin){REEF_ORIGIN_FILE, line}, label, kept, err);
}

static reef_status take_file(reef_options *options, reef_error *err) {
    if (!options->config) return REEF_OK;
    return reef_config_file_read(options->config, SECTION, on_entry, options, err);
}

// ---- the environment -----------------------------------------------------------------------------

static const char *variable_name(const char *name, char out[NAME_BYTES_MAX]) {
    int length = snprintf(out, NAME_BYTES_MAX, "REEF_%s", name);
    for (int i = 5; i < length && out[i]; i++)
        out[i] = out[i] == '-' ? '_' : (char)toupper((unsigned char)out[i]);
    return out;
}

// Programs read the environment; an empty variable is as good as none.
static const char *variable(const char *name) {
    char full[NAME_BYTES_MAX];
    const char *text = getenv(variable_name(name, full));
    return text && *text ? text : NULL;
}

static reef_status take_environment(reef_options *options, reef_error *err) {
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < SETTING_COUNT; i++) {
        const char *text = variable(SETTINGS[i].name);
        char label[NAME_BYTES_MAX];
        if (text)
            status = take(options, i, (reef_origin){REEF_ORIGIN_ENVIRONMENT, 0},
                          variable_name(SETTINGS[i].name, label), text, err);
    }
    return status;
}

// ---- the command line ----------------------------------------------------------------------------

// What getopt_long returns: a setting's number, the same for its opposite, or one of these.
enum { OPT_SETTING = 256, OPT_OPPOSITE = 512, OPT_CONFIG = 768, OPT_CHECK, OPT_HELP, OPT_VERSION };

typedef struct flag_table {
    struct option flags[2 * SETTING_COUNT + 5];
    char opposites[SETTING_COUNT][NAME_BYTES_MAX];
} flag_table;

static void flag_table_init(flag_table *table) {
    size_t count = 0;
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        bool is_switch = SETTINGS[i].kind == KIND_SWITCH;
        table->flags[count++] =
            (struct option){SETTINGS[i].name, is_switch ? no_argument : required_argument, NULL,
                            OPT_SETTING + (int)i};
        if (!is_switch) continue;
        snprintf(table->opposites[i], NAME_BYTES_MAX, "no-%s", SETTINGS[i].name);
        table->flags[count++] =
            (struct option){table->opposites[i], no_argument, NULL, OPT_OPPOSITE + (int)i};
    }
    table->flags[count++] = (struct option){"config", required_argument, NULL, OPT_CONFIG};
    table->flags[count++] = (struct option){"check", no_argument, NULL, OPT_CHECK};
    table->flags[count++] = (struct option){"help", no_argument, NULL, OPT_HELP};
    table->flags[count++] = (struct option){"version", no_argument, NULL, OPT_VERSION};
    table->flags[count] = (struct option){NULL, 0, NULL, 0};
}

static int next_flag(const flag_table *table, int argc, char **argv, bool first) {
    opterr = 0; // the messages are ours
    if (first) optind = 1;
    return getopt_long(argc, argv, ":", table->flags, NULL);
}

// `given` is the argument just read, except in the middle of a cluster of letters.
static reef_status fail_unknown(const char *given, reef_error *err) {
    if (optopt > 0 && optopt < OPT_SETTING)
        return reef_fail(err, REEF_INVALID, "unknown option '-%c'; see reefd --help", optopt);
    if (optopt >= OPT_SETTING)
        return reef_fail(err, REEF_INVALID, "option '%s' takes no value; see reefd --help", given);
    return reef_fail(err, REEF_INVALID, "unknown option '%s'; see reefd --help", given);
}

// First look: what is to be done, where the file is, and whether all options exist. Goes on after a mistake,
// because the file may say how to tell it.
static reef_status scan_flags(
    reef_options *options, const flag_table *table, int argc, char **argv, reef_error *err) {
    reef_status status = REEF_OK;
    for (int which, first = 1; (which = next_flag(table, argc, argv, first)) != -1; first = 0) {
        reef_error *here = status == REEF_OK ? err : NULL;
        if (which == OPT_CONFIG) options->config = optarg;
        if (which == OPT_CHECK) options->action = REEF_ACTION_CHECK;
        if (which == ':')
            status = reef_fail(here, REEF_INVALID, "option '%s' needs a value; see reefd --help",
                               argv[optind - 1]);
        if (which == '?') status = fail_unknown(argv[optind - 1], here);
        if (status != REEF_OK || (which != OPT_HELP && which != OPT_VERSION)) continue;
        options->action = which == OPT_HELP ? REEF_ACTION_HELP : REEF_ACTION_VERSION;
        return REEF_OK;
    }
    if (status == REEF_OK && optind < argc)
        status = reef_fail(err, REEF_INVALID, "unexpected argument '%s'; see reefd --help",
                           argv[optind]);
    return status;
}

static reef_status take_flags(
    reef_options *options, const flag_table *table, int argc, char **argv, reef_error *err) {
    reef_status status = REEF_OK;
    for (int which, first = 1;
         status == REEF_OK && (which = next_flag(table, argc, argv, first)) != -1; first = 0) {
        if (which < OPT_SETTING || which >= OPT_CONFIG) continue;
        bool opposite = which >= OPT_OPPOSITE;
        size_t i = (size_t)(which - (opposite ? OPT_OPPOSITE : OPT_SETTING));
        char label[NAME_BYTES_MAX];
        snprintf(label, sizeof(label), "--%s", SETTINGS[i].name);
        status = take(options, i, (reef_origin){REEF_ORIGIN_FLAG, 0}, label,
                      optarg     ? optarg
                      : opposite ? "no"
                                 : "yes",
                      err);
    }
    return status;
}

// ---- all of it -----------------------------------------------------------------------------------

static reef_status check_complete(const reef_options *options, reef_error *err) {
    if (!options->pool || !*options->pool)
        return reef_fail(err, REEF_INVALID, "which pool? give --pool DIR; see reefd --help");
    if (!options->source_count && !options->stay)
        return reef_fail(
            err, REEF_INVALID,
            "nothing to read: give --source file:PATH or --source -; see reefd --help");
    if (options->http_token && !options->http)
        return reef_fail(err, REEF_INVALID,
                         "--http-token without --http: say where to listen; see reefd --help");
    return REEF_OK;
}

// A mistake is told in the form that was asked for, wherever that was; the file has had its say already.
static void find_log_form(reef_options *options, int argc, char **argv) {
    const char *text = variable("json-log");
    if (text) (void)!parse_switch("", text, &options->json_log, NULL);
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--json-log") || !strcmp(argv[i], "--no-json-log"))
            options->json_log = argv[i][2] == 'j';
}

reef_status reef_options_parse(reef_options *options, int argc, char **argv, reef_error *err) {
    flag_table table;
    flag_table_init(&table);
    *options = (reef_options){.commit_steps = COMMIT_STEPS_DEFAULT,
                              .commit_seconds = COMMIT_SECONDS_DEFAULT,
                              .journal_bytes = REEF_PUSH_JOURNAL_BYTES,
                              .patience_seconds = PATIENCE_SECONDS_DEFAULT,
                              .commit_retries = COMMIT_RETRIES_DEFAULT,
                              .scrub_rate = REEF_SCRUB_RATE_DEFAULT,
                              .config = variable("config")};
    reef_status status = scan_flags(options, &table, argc, argv, err);
    if (options->action == REEF_ACTION_HELP || options->action == REEF_ACTION_VERSION)
        return REEF_OK;
    reef_status of_file = take_file(options, status == REEF_OK ? err : NULL);
    if (status == REEF_OK) status = of_file;
    if (status == REEF_OK) status = take_environment(options, err);
    if (status == REEF_OK) status = take_flags(options, &table, argc, argv, err);
    if (status == REEF_OK) status = check_complete(options, err);
    if (status != REEF_OK) find_log_form(options, argc, argv);
    return status;
}

// ---- the settings one by one ---------------------------------------------------------------------

size_t reef_setting_count(void) {
    return SETTING_COUNT;
}

const char *reef_setting_name(size_t index) {
    return SETTINGS[index].name;
}

bool reef_setting_is_live(size_t index) {
    return SETTINGS[index].live;
}

static json_t *sources_json(const reef_options *options) {
    json_t *list = json_array();
    for (size_t i = 0; i < options->source_count; i++)
        json_array_append_new(list, reef_json_text(options->sources[i]));
    return list;
}

json_t *reef_setting_value(const reef_options *options, size_t index) {
    const setting *one = &SETTINGS[index];
    const void *value = value_of(options, one);
    switch (one->kind) {
    case KIND_TEXT:
        return *(const char *const *)value ? reef_json_text(*(const char *const *)value)
                                           : json_null();
    case KIND_SOURCE:
        return sources_json(options);
    case KIND_SECONDS:
        return reef_json_number(*(const double *)value);
    case KIND_SWITCH:
        return json_boolean(*(const bool *)value);
    default:
        return json_integer((json_int_t) * (const uint64_t *)value);
    }
}

const char *reef_setting_origin(const reef_options *options, size_t index, char *out, size_t room) {
    char name[NAME_BYTES_MAX];
    switch (options->origins[index].kind) {
    case REEF_ORIGIN_FILE:
        snprintf(out, room, "%s:%u", options->config, options->origins[index].line);
        break;
    case REEF_ORIGIN_ENVIRONMENT:
        snprintf(out, room, "%s", variable_name(SETTINGS[index].name, name));
        break;
    case REEF_ORIGIN_FLAG:
        snprintf(out, room, "--%s", SETTINGS[index].name);
        break;
    default:
        snprintf(out, room, "default");
    }
    return out;
}

static size_t kind_bytes(setting_kind kind) {
    return kind == KIND_SWITCH ? sizeof(bool) : sizeof(uint64_t);
}
_Static_assert(sizeof(double) == sizeof(uint64_t), "a setting that may change has 8 bytes, or 1");

void reef_options_take_live(reef_options *options, const reef_options *from) {
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        if (!SETTINGS[i].live) continue;
        memcpy(place(options, &SETTINGS[i]), value_of(from, &SETTINGS[i]),
               kind_bytes(SETTINGS[i].kind));
        options->origins[i] = from->origins[i];
    }
}
