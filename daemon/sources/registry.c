// Every kind of source, and which of them a spec such as "redis://HOST:PORT/STREAM?weight=3" names.
#include "reef_source.h"

#include "push.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// "tcp:host:1" has a scheme, "./odd:name" and "data/a:b" are paths.
static size_t scheme_length(const char *spec) {
    size_t length = strcspn(spec, ":/");
    if (spec[length] != ':' || !length) return 0;
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)spec[i]) && spec[i] != '+' && spec[i] != '-') return 0;
    return length;
}

// A live source's share: "?weight=3" or "&weight=3" at the end of its spec, which is then `*bytes`
// long.
static reef_status take_weight(reef_input *input, size_t *bytes, reef_error *err) {
    static const char KEY[] = "weight=";
    // The digits at the end, and the key in front of them.
    size_t length = strlen(input->spec), digits = length;
    while (digits > 0 && isdigit((unsigned char)input->spec[digits - 1])) digits--;
    *bytes = length;
    size_t key = sizeof(KEY) - 1;
    if (digits < key + 1 || strncmp(input->spec + digits - key, KEY, key) != 0) return REEF_OK;
    // Without a '?' or '&' before it, "weight=3" is part of the path.
    char before = input->spec[digits - key - 1];
    if (before != '?' && before != '&') return REEF_OK;
    // More than four digits cannot be in range, and strtoul is spared them.
    unsigned long weight = length - digits > 4 ? 0 : strtoul(input->spec + digits, NULL, 10);
    if (weight < 1 || weight > REEF_INPUT_WEIGHT_MAX)
        return reef_fail(err, REEF_ERR_INVALID,
                         "a source's weight, '%.20s', is not a whole number from 1 to %d",
                         input->spec + digits, REEF_INPUT_WEIGHT_MAX);
    input->weight = (uint32_t)weight;
    *bytes = digits - key - 1;
    return REEF_OK;
}

static const reef_input_kind *const LIVE_KINDS[] = {
    &reef_follow_kind, &reef_dir_kind,   &reef_redis_kind, &reef_journal_kind,
    &reef_syslog_kind, &reef_kafka_kind, &reef_input_push, NULL};

static reef_status check_rest(reef_input *input, const char *rest, reef_error *err) {
    return input->kind->check_spec != NULL ? input->kind->check_spec(input, rest, err) : REEF_OK;
}

static const reef_input_kind *live_kind(const char *spec, size_t scheme) {
    for (size_t i = 0; LIVE_KINDS[i] != NULL; i++)
        if (strlen(LIVE_KINDS[i]->scheme) == scheme &&
            strncmp(LIVE_KINDS[i]->scheme, spec, scheme) == 0)
            return LIVE_KINDS[i];
    return NULL;
}

static reef_status read_live_spec(reef_input *input, size_t scheme, reef_error *err) {
    size_t bytes = 0;
    reef_status status = take_weight(input, &bytes, err);
    if (status != REEF_OK) return status;
    reef_source_name(input->name, REEF_INPUT_NAME_BYTES_MAX, input->spec, bytes);
    input->rest = strndup(input->spec + scheme + 1, bytes - scheme - 1);
    if (input->rest == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a source");
    if (!*input->rest && !input->kind->bare)
        return reef_fail(err, REEF_ERR_INVALID, "the source '%s' names nothing after its colon",
                         input->spec);
    return REEF_OK;
}

// Kind, name and weight; `*rest` is what the kind makes something of.
static reef_status read_spec(reef_input *input,
                             const char *spec,
                             const char **rest,
                             reef_error *err) {
    *input = (reef_input){.spec = spec, .label = spec, .weight = 1, .bytes = REEF_BYTES_UNKNOWN};
    // A scheme is the word before the first colon. A path may contain colons as well, so only known
    // schemes count.
    size_t scheme = scheme_length(spec);
    const reef_input_kind *live = live_kind(spec, scheme);
    *rest = spec;
    // A single dash is standard input, as for most commands.
    if (strcmp(spec, "-") == 0) {
        input->kind = &reef_input_stream;
        input->label = "standard input";
    } else if (live != NULL) {
        input->kind = live;
        reef_status status = read_live_spec(input, scheme, err);
        *rest = input->rest;
        return status;
    } else if (!scheme || (scheme == 4 && strncmp(spec, "file", 4) == 0)) {
        input->kind = &reef_input_file;
        input->label = *rest = scheme ? spec + 5 : spec;
    } else {
        return reef_fail(err, REEF_ERR_INVALID,
                         "unknown kind of source '%.*s': known are file:PATH, "
                         "- (standard input), follow:PATH, dir:PATH[/PATTERN], glob:PATTERN, "
                         "redis://HOST:PORT/STREAM, journal:, syslog:udp://ADDRESS:PORT, "
                         "kafka:HOST:PORT/TOPIC and push:NAME",
                         (int)(scheme < 40 ? scheme : 40),
                         spec); // the rest of it may be a password
    }
    if (!**rest) return reef_fail(err, REEF_ERR_INVALID, "the source '%s' names no file", spec);
    // The name is what the pool remembers; the label, printed in messages, may be shorter.
    reef_source_name(input->name, REEF_INPUT_NAME_BYTES_MAX, *rest, strlen(*rest));
    return REEF_OK;
}

reef_status reef_input_open(reef_input *input, const char *spec, reef_error *err) {
    const char *rest = NULL;
    reef_status status = read_spec(input, spec, &rest, err);
    if (status == REEF_OK) status = check_rest(input, rest, err);
    return status == REEF_OK ? input->kind->open(input, rest, err) : status;
}

reef_status reef_input_check_spec(const char *spec, reef_error *err) {
    reef_input input;
    const char *rest = NULL;
    reef_status status = read_spec(&input, spec, &rest, err);
    if (status == REEF_OK) status = check_rest(&input, rest, err);
    reef_input_close(&input);
    return status;
}

static const char *path_of(const reef_input *input) {
    if (input->kind == &reef_input_file) return input->label;
    return input->kind == &reef_follow_kind || input->kind == &reef_dir_kind ? input->rest : NULL;
}

static bool are_one_file(const reef_input *one, const reef_input *other) {
    struct stat first, second;
    const char *path = path_of(one), *another = path_of(other);
    return path != NULL && another != NULL && stat(path, &first) == 0 &&
           stat(another, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

static reef_status compare(const reef_input *one, const reef_input *other, reef_error *err) {
    if (strcmp(one->name, other->name) == 0)
        return reef_fail(err, REEF_ERR_INVALID, "the source '%s' is given twice; each is read once",
                         other->name);
    if (are_one_file(one, other))
        return reef_fail(err, REEF_ERR_INVALID,
                         "the sources '%.100s' and '%.100s' are one file, which is read once",
                         one->label, other->label);
    return REEF_OK;
}

reef_status reef_input_check_distinct(const char *const *specs, size_t count, reef_error *err) {
    reef_input *inputs = calloc(count + 1, sizeof(*inputs));
    reef_status status = inputs != NULL
                             ? REEF_OK
                             : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to compare sources");
    size_t read = 0;
    while (status == REEF_OK && read < count) {
        const char *rest = NULL;
        reef_input *one = &inputs[read];
        status = read_spec(one, specs[read++], &rest, err);
        if (status == REEF_OK) status = check_rest(one, rest, err);
        for (const reef_input *before = inputs; status == REEF_OK && before < one; before++)
            status = compare(before, one, err);
    }
    for (size_t i = 0; i < read; i++) reef_input_close(&inputs[i]);
    free(inputs);
    return status;
}
