// The value of one field of a configuration: where it lies, which values it may have, and how
// people write it, amounts of bytes among others.
#include "config_internal.h"
#include "reef_gone.h"
#include "reef_model.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS "0123456789"

bool reef_config_field_is(const reef_config_field *field, const char *type) {
    return strcmp(field->type, type) == 0;
}

static char *field_at(reef_config *config, const reef_config_field *field) {
    return (char *)config + field->offset;
}

static const char *field_view(const reef_config *config, const reef_config_field *field) {
    return (const char *)config + field->offset;
}

uint64_t reef_config_field_integer(const reef_config *config, const reef_config_field *field) {
    uint32_t narrow;
    uint64_t wide;
    if (field->bytes == sizeof(narrow)) {
        memcpy(&narrow, field_view(config, field), sizeof(narrow));
        return narrow;
    }
    memcpy(&wide, field_view(config, field), sizeof(wide));
    return wide;
}

float reef_config_field_number(const reef_config *config, const reef_config_field *field) {
    float number;
    memcpy(&number, field_view(config, field), sizeof(number));
    return number;
}

bool reef_config_field_boolean(const reef_config *config, const reef_config_field *field) {
    bool boolean;
    memcpy(&boolean, field_view(config, field), sizeof(boolean));
    return boolean;
}

reef_status reef_config_field_set_integer(reef_config *config,
                                          const reef_config_field *field,
                                          uint64_t value,
                                          reef_error *err) {
    // The upper bound first: it is at most 2^53 - 1, so that the conversion to double below is
    // exact.
    if (value > (uint64_t)field->high || (double)value < field->low)
        return reef_fail(err, REEF_ERR_INVALID, "%s is %" PRIu64 ", but must be %.0f to %.0f",
                         field->name, value, field->low, field->high);
    // Fields are 32 or 64 bits wide; `high` of a narrow one keeps its value in range.
    uint32_t narrow = (uint32_t)value;
    if (field->bytes == sizeof(narrow))
        memcpy(field_at(config, field), &narrow, sizeof(narrow));
    else
        memcpy(field_at(config, field), &value, sizeof(value));
    return REEF_OK;
}

reef_status reef_config_field_set_number(reef_config *config,
                                         const reef_config_field *field,
                                         double value,
                                         reef_error *err) {
    // The bounds are compared as floats, so that a bound itself is inside after rounding. The
    // negated form refuses NaN too.
    float number = (float)value;
    if (!(number >= (float)field->low && number <= (float)field->high))
        return reef_fail(err, REEF_ERR_INVALID, "%s is %.9g, but must be %.9g to %.9g", field->name,
                         value, field->low, field->high);
    // memcpy through the table's offset: fields differ in type, and the table is the only list of
    // them.
    memcpy(field_at(config, field), &number, sizeof(number));
    return REEF_OK;
}

// Text fields that are one of a few words, and an enum in reef_config.
static const struct choice {
    const char *name;
    const char *words[10]; // up to the first NULL
    const char *fault;
} CHOICES[] = {
    {"model", {"lm", "layer"}, "must be lm or layer"},
    {"expert", {"gelu", "relu", "glu"}, "must be gelu, relu or glu"},
    {"score", {"softmax", "sigmoid", "relu"}, "must be softmax, sigmoid or relu"},
    {"subkeys", {"shared", "head"}, "must be shared or head"},
    {"boundaries", {"contexts", "given"}, "must be contexts or given"},
    {"seal_dtype", {"f32", "int8"}, "must be f32 or int8"},
};

static const struct choice *choice_of(const reef_config_field *field) {
    for (size_t i = 0; i < sizeof(CHOICES) / sizeof(CHOICES[0]); i++)
        if (strcmp(field->name, CHOICES[i].name) == 0) return &CHOICES[i];
    return NULL;
}

// Index of the word, which is the enumerator; -1 where it is none.
static int choice_find(const struct choice *choice, const char *value) {
    for (int i = 0; choice->words[i] != NULL; i++)
        if (strcmp(value, choice->words[i]) == 0) return i;
    return -1;
}

const char *reef_config_field_text(const reef_config *config, const reef_config_field *field) {
    const struct choice *choice = choice_of(field);
    if (choice == NULL) return field_view(config, field);
    uint64_t value = reef_config_field_integer(config, field);
    // A configuration need not have passed reef_config_set: a value beyond the words has none.
    for (uint64_t i = 0; choice->words[i] != NULL; i++)
        if (i == value) return choice->words[i];
    return "";
}

// Text is what one line can hold and every JSON reader takes.
static bool is_printable(const char *value) {
    for (; *value != '\0'; value++)
        if (*value < ' ' || *value > '~') return false;
    return true;
}

// What is wrong with the letters of a text field, or NULL. How the length of ffw meets the number
// of layers is for reef_config_check: fields are set one after the other.
static const char *text_fault(const reef_config_field *field, const char *value) {
    const struct choice *choice = choice_of(field);
    if (choice != NULL) return choice_find(choice, value) >= 0 ? NULL : choice->fault;
    if (strcmp(field->name, "boundary_mark") == 0) return NULL; // any letters
    if (value[0] == '\0' || value[strspn(value, "pdmk")] != '\0')
        return "must be letters p (PEER), k (product-key memory), m (mixture of experts) or d "
               "(dense), one for all blocks or one per block";
    return NULL;
}

reef_status reef_config_field_set_text(reef_config *config,
                                       const reef_config_field *field,
                                       const char *value,
                                       reef_error *err) {
    size_t bytes = strlen(value);
    // A message that repeats a control character could move the cursor of a terminal.
    if (!is_printable(value))
        return reef_fail(err, REEF_ERR_INVALID, "%s must be one line of printable ASCII letters",
                         field->name);
    const char *fault = text_fault(field, value);
    if (fault != NULL)
        return reef_fail(err, REEF_ERR_INVALID, "%s is '%.64s', but %s", field->name, value, fault);
    // Choices are stored as their number; the word exists only here and in JSON.
    if (choice_of(field) != NULL) {
        uint32_t word = (uint32_t)choice_find(choice_of(field), value);
        memcpy(field_at(config, field), &word, sizeof(word));
        return REEF_OK;
    }
    if (bytes >= field->bytes)
        return reef_fail(err, REEF_ERR_INVALID, "%s is %.64s%s, but may have at most %zu letters",
                         field->name, value, bytes > 64 ? "..." : "", field->bytes - 1);
    // The whole field is written, so that equal configurations are equal bytes.
    memset(field_at(config, field), 0, field->bytes);
    memcpy(field_at(config, field), value, bytes);
    return REEF_OK;
}

static reef_status boolean_read(reef_config *config,
                                const reef_config_field *field,
                                const char *value,
                                reef_error *err) {
    static const struct {
        const char *word;
        bool value;
    } WORDS[] = {{"true", true},   {"yes", true}, {"on", true},   {"1", true},
                 {"false", false}, {"no", false}, {"off", false}, {"0", false}};
    // The words of YAML, of flags and of environment variables.
    for (size_t i = 0; i < sizeof(WORDS) / sizeof(WORDS[0]); i++) {
        if (strcmp(value, WORDS[i].word) != 0) continue;
        memcpy(field_at(config, field), &WORDS[i].value, sizeof(bool));
        return REEF_OK;
    }
    return reef_fail(err, REEF_ERR_INVALID, "%s is '%.64s', but must be true or false", field->name,
                     value);
}

reef_status reef_memory_parse(const char *text, uint64_t *bytes, reef_error *err) {
    static const char UNITS[] = "KMGTkmgt";
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    const char *unit = *end != '\0' ? strchr(UNITS, *end) : NULL;
    // A unit's position among the four is its power of 1024, minus one.
    unsigned shift = unit != NULL ? 10 * (unsigned)((unit - UNITS) % 4 + 1) : 0;
    // strtoull takes signs and leading blanks; a number starts with a digit.
    bool good = text[0] >= '0' && text[0] <= '9' && errno == 0 && value > 0 &&
                end[unit != NULL] == '\0' && value <= UINT64_MAX >> shift;
    if (!good)
        return reef_fail(
            err, REEF_ERR_INVALID,
            "'%.64s' is not an amount of memory: a whole number of bytes, or with K, M, G "
            "or T, such as 2G",
            text);
    *bytes = (uint64_t)value << shift;
    return REEF_OK;
}

// An amount of bytes, which may be written with a unit.
static bool counts_bytes(const reef_config_field *field) {
    return strcmp(field->name, "memory") == 0;
}

static reef_status integer_read(reef_config *config,
                                const reef_config_field *field,
                                const char *value,
                                reef_error *err) {
    // strtoull would take signs, blanks and the empty text.
    size_t digits = strspn(value, DIGITS);
    errno = 0;
    uint64_t integer = strtoull(value, NULL, 10), bytes;
    if (counts_bytes(field) && reef_memory_parse(value, &bytes, NULL) == REEF_OK)
        return reef_config_field_set_integer(config, field, bytes, err);
    if (digits == 0 || value[digits] != '\0' || errno == ERANGE)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%s is '%.64s', but must be an integer, %.0f to %.0f%s", field->name,
                         value, field->low, field->high,
                         counts_bytes(field) ? ", or with a unit, such as 64M" : "");
    return reef_config_field_set_integer(config, field, integer, err);
}

static reef_status number_read(reef_config *config,
                               const reef_config_field *field,
                               const char *value,
                               reef_error *err) {
    // Only what a decimal number consists of: strtod alone would take blanks, hexadecimal and
    // "nan".
    char *end = NULL;
    double number = strtod(value, &end);
    if (end == value || *end != '\0' || value[strspn(value, "0123456789+-.eE")] != '\0')
        return reef_fail(err, REEF_ERR_INVALID, "%s is '%.64s', but must be a number, %.9g to %.9g",
                         field->name, value, field->low, field->high);
    return reef_config_field_set_number(config, field, number, err);
}

reef_status reef_config_field_set(reef_config *config,
                                  const reef_config_field *field,
                                  const char *value,
                                  reef_error *err) {
    if (reef_config_field_is(field, REEF_FIELD_INTEGER))
        return integer_read(config, field, value, err);
    if (reef_config_field_is(field, REEF_FIELD_NUMBER))
        return number_read(config, field, value, err);
    if (reef_config_field_is(field, REEF_FIELD_BOOLEAN))
        return boolean_read(config, field, value, err);
    return reef_config_field_set_text(config, field, value, err);
}

reef_status reef_config_field_check(const reef_config *config,
                                    const reef_config_field *field,
                                    reef_error *err) {
    // Setting a field on a copy runs all of its checks; the original keeps its value.
    reef_config copy = *config;
    if (reef_config_field_is(field, REEF_FIELD_INTEGER))
        return reef_config_field_set_integer(&copy, field, reef_config_field_integer(config, field),
                                             err);
    if (reef_config_field_is(field, REEF_FIELD_NUMBER))
        return reef_config_field_set_number(&copy, field,
                                            (double)reef_config_field_number(config, field), err);
    if (reef_config_field_is(field, REEF_FIELD_BOOLEAN)) return REEF_OK;
    const char *text = reef_config_field_text(config, field);
    // A text field read from disk may lack its end.
    if (choice_of(field) == NULL && memchr(text, '\0', field->bytes) == NULL)
        return reef_fail(err, REEF_ERR_INVALID, "%s has no end", field->name);
    return reef_config_field_set_text(&copy, field, text, err);
}

// ---- config name --------------------------------------------------------------------------------
//
// A field of a configuration by its name, or the one that was probably meant.

#define NAME_BYTES_MAX 32 // with the final zero; longer names match none and suggest none

// d-model and d_model are the same name; fields are written with the second. False when it is too
// long for one.
static bool write_as_field(const char *name, char out[NAME_BYTES_MAX]) {
    size_t bytes = strlen(name);
    if (bytes >= NAME_BYTES_MAX) return false;
    for (size_t i = 0; i <= bytes; i++) out[i] = name[i] == '-' ? '_' : name[i];
    return true;
}

static const reef_config_field *find_field(const char *name) {
    size_t count;
    const reef_config_field *fields = reef_config_fields(&count);
    char written[NAME_BYTES_MAX];
    if (!write_as_field(name, written)) return NULL;
    for (size_t i = 0; i < count; i++)
        if (strcmp(written, fields[i].name) == 0) return &fields[i];
    return NULL;
}

reef_status reef_config_name_unknown(const char *name, reef_error *err) {
    if (reef_gone_report(NULL, name, err)) return REEF_ERR_INVALID;
    // A name that differs in more than a third does not help.
    size_t count, nearest = strlen(name) / 3 + 1;
    const reef_config_field *fields = reef_config_fields(&count), *closest = NULL;
    char written[NAME_BYTES_MAX];
    bool fits = write_as_field(name, written);
    for (size_t i = 0; fits && i < count; i++) {
        size_t distance = reef_edit_distance(written, fields[i].name);
        if (distance >= nearest) continue;
        nearest = distance;
        closest = &fields[i];
    }
    if (closest == NULL)
        return reef_fail(err, REEF_ERR_INVALID, "no setting is called '%.64s'", name);
    return reef_fail(err, REEF_ERR_INVALID, "no setting is called '%.64s'; did you mean %s?", name,
                     closest->name);
}

reef_status reef_config_set(reef_config *config,
                            const char *name,
                            const char *value,
                            reef_error *err) {
    const reef_config_field *field = find_field(name);
    if (field == NULL) return reef_config_name_unknown(name, err);
    return reef_config_field_set(config, field, value, err);
}

const char *reef_config_word(const reef_config *config, const char *name) {
    size_t count;
    const reef_config_field *fields = reef_config_fields(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(fields[i].name, name) == 0 && reef_config_field_is(&fields[i], REEF_FIELD_TEXT))
            return reef_config_field_text(config, &fields[i]);
    return "";
}
