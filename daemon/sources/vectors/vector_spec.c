// See vector_spec.h. The text is cut where it lies: KIND:PATH[,PATH][?NAME=VALUE[&NAME=VALUE ...]].
#include "vector_spec.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const KINDS[] = {
#define KIND_TEXT(name, text) text,
    REEF_VECTOR_KIND_LIST(KIND_TEXT)
#undef KIND_TEXT
};

// Kinds that an option belongs to.
enum { ALL = 15, OF_NPY = 1 << REEF_VECTOR_NPY, OF_CSV = 1 << REEF_VECTOR_CSV };

reef_vector_kind reef_vector_kind_of(const char *text) {
    for (int kind = 0; kind < REEF_VECTOR_KIND_COUNT; kind++) {
        size_t length = strlen(KINDS[kind]);
        if (strncmp(text, KINDS[kind], length) == 0 && text[length] == ':')
            return (reef_vector_kind)kind;
    }
    return REEF_VECTOR_KIND_COUNT;
}

bool reef_vector_label(double value, int32_t *label) {
    if (!(value >= -1 && value <= INT32_MAX) || value != floor(value)) return false;
    *label = (int32_t)value;
    return true;
}

// ---- values of options --------------------------------------------------------------------------

static reef_status wrong(const reef_vector_spec *spec,
                         const char *name,
                         const char *value,
                         const char *wanted,
                         reef_error *err) {
    return reef_fail(err, REEF_ERR_INVALID, "'%s=%.60s' in '%.100s' is not %s", name, value,
                     spec->text, wanted);
}

static reef_status take_count(const reef_vector_spec *spec,
                              const char *name,
                              const char *value,
                              uint64_t *out,
                              reef_error *err) {
    size_t digits = strspn(value, "0123456789");
    errno = 0;
    *out = strtoull(value, NULL, 10);
    if (!digits || value[digits] || errno)
        return wrong(spec, name, value, "a whole number, 0 or more", err);
    return REEF_OK;
}

static bool parse_number(const char *text, char **end, double *out) {
    *out = strtod(text, end);
    return *end != text && isfinite(*out) && *out != 0;
}

// "0.5" or "1/255": a division at the end keeps what the fraction means exactly.
static reef_status take_scale(reef_vector_spec *spec,
                              const char *name,
                              const char *value,
                              reef_error *err) {
    char *end = NULL;
    bool good = parse_number(value, &end, &spec->scale);
    if (good && *end == '/') good = parse_number(end + 1, &end, &spec->divisor);
    spec->scaled = true;
    return good && !*end ? REEF_OK : wrong(spec, name, value, "a number or a fraction, not 0", err);
}

// Whole numbers up to `most`, with commas between them.
static reef_status take_list(const reef_vector_spec *spec,
                             const char *name,
                             const char *value,
                             uint64_t most,
                             const char *wanted,
                             reef_vector_list *list,
                             reef_error *err) {
    // Commas plus one is the number of items.
    size_t room = 1;
    for (const char *at = value; *at; at++) room += *at == ',';
    list->items = calloc(room, sizeof(*list->items));
    if (list->items == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a list of %zu", room);
    for (const char *at = value;; at++) {
        size_t digits = strspn(at, "0123456789");
        // strtoull would take signs; digits are counted first.
        errno = 0;
        uint64_t item = strtoull(at, NULL, 10);
        if (!digits || errno || item > most || (at[digits] && at[digits] != ','))
            return wrong(spec, name, value, wanted, err);
        list->items[list->count++] = item;
        at += digits;
        // The list ends with the text.
        if (!*at) return REEF_OK;
    }
}

static reef_status take_header(reef_vector_spec *spec,
                               const char *name,
                               const char *value,
                               reef_error *err) {
    bool yes = strcmp(value, "yes") == 0;
    if (!yes && strcmp(value, "no") != 0) return wrong(spec, name, value, "yes or no", err);
    spec->header = yes ? REEF_HEADER_YES : REEF_HEADER_NO;
    return REEF_OK;
}

// ---- options ------------------------------------------------------------------------------------

// name, kinds that take it
#define OPTION_LIST(X)                                                                             \
    X(label, OF_NPY | OF_CSV)                                                                      \
    X(names, OF_CSV)                                                                               \
    X(header, OF_CSV)                                                                              \
    X(scale, ALL)                                                                                  \
    X(classes, ALL)                                                                                \
    X(shuffle, ALL)                                                                                \
    X(skip, ALL)                                                                                   \
    X(first, ALL)                                                                                  \
    X(permute, ALL)

#define OPTION_ENUM(name, kinds) OPTION_##name,
enum { OPTION_LIST(OPTION_ENUM) OPTION_COUNT };

static const char *const OPTION_NAMES[] = {
#define OPTION_TEXT(name, kinds) #name,
    OPTION_LIST(OPTION_TEXT)
#undef OPTION_TEXT
};
static const unsigned OPTION_KINDS[] = {
#define OPTION_OF(name, kinds) (kinds),
    OPTION_LIST(OPTION_OF)
#undef OPTION_OF
};

// Read the value of an option. The table of options has said which kinds know it.
static reef_status take_value(
    reef_vector_spec *spec, int option, const char *name, const char *value, reef_error *err) {
    switch (option) {
    case OPTION_label:
        spec->label = value;
        break;
    case OPTION_names:
        spec->names = value;
        break;
    case OPTION_header:
        return take_header(spec, name, value, err);
    case OPTION_scale:
        return take_scale(spec, name, value, err);
    case OPTION_classes:
        return take_list(spec, name, value, INT32_MAX, "a list of labels such as 0,1",
                         &spec->classes, err);
    // shuffle without a seed would not be repeatable, so it takes one.
    case OPTION_shuffle:
        spec->shuffled = true;
        return take_count(spec, name, value, &spec->shuffle, err);
    case OPTION_skip:
        return take_count(spec, name, value, &spec->skip, err);
    case OPTION_first:
        return take_count(spec, name, value, &spec->first, err);
    case OPTION_permute:
        return take_list(spec, name, value, UINT64_MAX, "a seed, or a list such as 1,2,3",
                         &spec->permutes, err);
    }
    return REEF_OK;
}

static reef_status take_option(reef_vector_spec *spec,
                               char *option,
                               unsigned *given,
                               reef_error *err) {
    // Options have the form of a query: name=value.
    char *value = strchr(option, '=');
    if (value != NULL) *value++ = '\0';
    int found = 0;
    while (found < OPTION_COUNT && strcmp(option, OPTION_NAMES[found]) != 0) found++;
    if (found == OPTION_COUNT)
        return reef_fail(
            err, REEF_ERR_INVALID,
            "unknown option '%.40s' in '%.80s': known are label, names, header, scale, "
            "classes, shuffle, skip, first and permute",
            option, spec->text);
    // Options that do not apply are refused, not ignored.
    if (!(OPTION_KINDS[found] >> spec->kind & 1u))
        return reef_fail(err, REEF_ERR_INVALID, "'%s' in '%.120s' is not an option of %s files",
                         option, spec->text, KINDS[spec->kind]);
    // A bit per option.
    if (*given >> found & 1u)
        return reef_fail(err, REEF_ERR_INVALID, "'%s' is given twice in '%.160s'", option,
                         spec->text);
    *given |= 1u << found;
    if (value == NULL || !*value)
        return reef_fail(err, REEF_ERR_INVALID, "'%s' in '%.120s' needs a value: %s=...", option,
                         spec->text, option);
    return take_value(spec, found, option, value, err);
}

static reef_status take_options(reef_vector_spec *spec, char *options, reef_error *err) {
    unsigned given = 0;
    while (options != NULL) {
        char *next = strchr(options, '&');
        if (next != NULL) *next++ = '\0';
        reef_status status = take_option(spec, options, &given, err);
        if (status != REEF_OK) return status;
        options = next;
    }
    return REEF_OK;
}

// ---- paths --------------------------------------------------------------------------------------

static reef_status take_paths(reef_vector_spec *spec, char *paths, reef_error *err) {
    spec->path = paths;
    // Only arrays keep labels in a file of their own.
    bool pair = spec->kind == REEF_VECTOR_IDX || spec->kind == REEF_VECTOR_NPY;
    char *comma = pair ? strchr(paths, ',') : NULL;
    if (comma != NULL) {
        *comma = '\0';
        spec->labels = comma + 1;
        if (strchr(spec->labels, ',') != NULL)
            return reef_fail(err, REEF_ERR_INVALID,
                             "'%.160s' names more than two files: %s: "
                             "takes the vectors and, after a comma, their labels",
                             spec->text, KINDS[spec->kind]);
    }
    if (!*spec->path || (spec->labels != NULL && !*spec->labels))
        return reef_fail(err, REEF_ERR_INVALID, "'%.160s' names no file%s", spec->text,
                         comma != NULL ? " before or after its comma" : "");
    // A label column and a file of labels contradict each other.
    if (spec->labels != NULL && spec->label != NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "'%.160s' has labels twice: in a file of their own and in a column",
                         spec->text);
    return REEF_OK;
}

reef_status reef_vector_spec_parse(reef_vector_spec *spec, const char *text, reef_error *err) {
    *spec = (reef_vector_spec){
        .kind = reef_vector_kind_of(text), .scale = 1, .divisor = 1, .first = UINT64_MAX};
    if (spec->kind == REEF_VECTOR_KIND_COUNT)
        return reef_fail(err, REEF_ERR_INVALID,
                         "'%.120s' names no vectors: give idx:IMAGES,LABELS, "
                         "npy:X.npy,Y.npy, csv:FILE or jsonl:FILE",
                         text);
    // Two copies: one is shown in messages, one is cut into words.
    spec->text = strdup(text);
    spec->words = strdup(text + strlen(KINDS[spec->kind]) + 1);
    reef_status status = REEF_OK;
    if (spec->text == NULL || spec->words == NULL) {
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the name of a source");
    } else {
        // The last '?', because a path may contain one.
        char *options = strrchr(spec->words, '?');
        if (options != NULL) *options++ = '\0';
        status = take_options(spec, options, err);
        if (status == REEF_OK) status = take_paths(spec, spec->words, err);
    }
    if (status != REEF_OK) reef_vector_spec_release(spec);
    return status;
}

void reef_vector_spec_release(reef_vector_spec *spec) {
    free(spec->text);
    free(spec->words);
    free(spec->classes.items);
    free(spec->permutes.items);
    *spec = (reef_vector_spec){0};
}
