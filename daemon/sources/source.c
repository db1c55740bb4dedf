// Sources by their kinds, and the reader on the loop; see input.h.
//
// The free space of a lane's queue is lent to the read itself, so bytes of files are never copied on the way:
//
//   resume --> reef_training_space --> read --> reef_input_took --> reef_training_fill --> resume
//                                         '---> reef_input_ended --> the lane's next source
#include "reef_source.h"

#include "push.h"
#include "redis_source.h"
#include "source_name.h"
#include "tail_source.h"
#include "training_thread.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- specs ---------------------------------------------------------------------------------------

// "tcp:host:1" has a scheme, "./odd:name" and "data/a:b" are paths.
static size_t scheme_length(const char *spec) {
    size_t length = strcspn(spec, ":/");
    if (spec[length] != ':' || !length) return 0;
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)spec[i]) && spec[i] != '+' && spec[i] != '-') return 0;
    return length;
}

// A live source's share: "?weight=3" or "&weight=3" at the end of its spec, which is then `*bytes` long.
static reef_status take_weight(reef_input *input, size_t *bytes, reef_error *err) {
    static const char KEY[] = "weight=";
    size_t length = strlen(input->spec), digits = length;
    while (digits > 0 && isdigit((unsigned char)input->spec[digits - 1])) digits--;
    *bytes = length;
    size_t key = sizeof(KEY) - 1;
    if (digits < key + 1 || strncmp(input->spec + digits - key, KEY, key) != 0) return REEF_OK;
    char before = input->spec[digits - key - 1];
    if (before != '?' && before != '&') return REEF_OK;
    unsigned long weight = length - digits > 4 ? 0 : strtoul(input->spec + digits, NULL, 10);
    if (weight < 1 || weight > REEF_INPUT_WEIGHT_MAX)
        return reef_fail(err, REEF_ERR_INVALID,
                         "a source's weight, '%.20s', is not a whole number from 1 to %d",
                         input->spec + digits, REEF_INPUT_WEIGHT_MAX);
    input->weight = (uint32_t)weight;
    *bytes = digits - key - 1;
    return REEF_OK;
}

static const reef_input_kind *const LIVE_KINDS[] = {&reef_follow_kind, &reef_dir_kind,
                                                    &reef_redis_kind, &reef_input_push, NULL};

static const reef_input_kind *live_kind(const char *spec, size_t scheme) {
    for (size_t i = 0; LIVE_KINDS[i]; i++)
        if (strlen(LIVE_KINDS[i]->scheme) == scheme &&
            !strncmp(LIVE_KINDS[i]->scheme, spec, scheme))
            return LIVE_KINDS[i];
    return NULL;
}

static reef_status read_live_spec(reef_input *input, size_t scheme, reef_error *err) {
    size_t bytes = 0;
    reef_status status = take_weight(input, &bytes, err);
    if (status != REEF_OK) return status;
    reef_source_name(input->name, REEF_INPUT_NAME_BYTES_MAX, input->spec, bytes);
    input->rest = strndup(input->spec + scheme + 1, bytes - scheme - 1);
    if (!input->rest) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a source");
    if (!*input->rest)
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
    size_t scheme = scheme_length(spec);
    const reef_input_kind *live = live_kind(spec, scheme);
    *rest = spec;
    if (!strcmp(spec, "-")) {
        input->kind = &reef_input_stream;
        input->label = "standard input";
    } else if (reef_input_vectors_is_spec(spec)) {
        input->kind = &reef_input_vectors;
    } else if (live) {
        input->kind = live;
        reef_status status = read_live_spec(input, scheme, err);
        *rest = input->rest;
        return status;
    } else if (!scheme || (scheme == 4 && !strncmp(spec, "file", 4))) {
        input->kind = &reef_input_file;
        input->label = *rest = scheme ? spec + 5 : spec;
    } else {
        return reef_fail(
            err, REEF_ERR_INVALID,
            "unknown kind of source '%.*s': known are file:PATH, - (standard input), "
            "follow:PATH, dir:PATH[/PATTERN], glob:PATTERN, redis://HOST:PORT/STREAM and "
            "push:NAME, and for "
            "vectors idx:, npy:, csv: and jsonl:",
            (int)(scheme < 40 ? scheme : 40), spec); // the rest of it may be a password
    }
    if (!**rest) return reef_fail(err, REEF_ERR_INVALID, "the source '%s' names no file", spec);
    reef_source_name(input->name, REEF_INPUT_NAME_BYTES_MAX, *rest, strlen(*rest));
    return REEF_OK;
}

static reef_status check_rest(const reef_input *input, const char *rest, reef_error *err) {
    return input->kind->check_spec ? input->kind->check_spec(input, rest, err) : REEF_OK;
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

void reef_input_close(reef_input *input) {
    if (input->kind && input->state) input->kind->close(input);
    input->state = NULL;
    free(input->rest);
    input->rest = NULL;
}

reef_status reef_input_check_text(const reef_input *input,
                                  const reef_config *config,
                                  reef_error *err) {
    if (!reef_config_is_vector(config)) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "'%.100s' is text, but the pool has a vector model: give "
                     "idx:IMAGES,LABELS, npy:X.npy,Y.npy, csv:FILE or jsonl:FILE",
                     input->label);
}

reef_status reef_input_seek(reef_input *input, const reef_input_place *place, reef_error *err) {
    input->offset = place->cursor;
    return input->kind->seek(input, place, err);
}

// ---- answers -------------------------------------------------------------------------------------

// Whether somebody waits for the answer. After a stop nobody does.
static bool is_awaited(reef_input *input) {
    assert(input->busy);
    input->busy = false;
    return !input->stopped;
}

void reef_input_took(reef_input *input, size_t count, char *mark) {
    if (!is_awaited(input)) {
        free(mark);
        return;
    }
    uint64_t begin = input->offset;
    input->offset += count;
    if (input->bytes != REEF_BYTES_UNKNOWN && input->bytes < input->offset)
        input->bytes = input->offset;
    reef_training_fill(input->reader->training, (size_t)(input - input->reader->sources), count,
                       begin, mark);
    reef_reader_resume(input->reader);
}

void reef_input_ended(reef_input *input) {
    if (!is_awaited(input)) return;
    reef_training_source_end(input->reader->training, (size_t)(input - input->reader->sources));
    reef_reader_resume(input->reader);
}

void reef_input_failed(reef_input *input, const reef_error *err) {
    if (!is_awaited(input)) return;
    reef_reader *reader = input->reader;
    reef_reader_stop(reader);
    reader->on_error(reader->context, err);
}

void reef_input_warn(reef_input *input, const char *event, const char *format, ...) {
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    reef_report_warning(input->report, event, "%s", text);
}

// ---- reading -------------------------------------------------------------------------------------

// On a thread of libuv's: a disk may be slow, and unpacking may take longer than the loop should wait.
static void read_now(uv_work_t *request) {
    reef_input *input = request->data;
    input->work.error.status =
        input->kind->read_now(input, input->offset, input->work.at, input->work.room,
                              &input->work.count, &input->work.error);
}

static void on_read_now(uv_work_t *request, int code) {
    reef_input *input = request->data;
    if (code)
        (void)reef_fail(&input->work.error, REEF_ERR_IO, "reading '%.160s': %s", input->label,
                        uv_strerror(code));
    if (input->work.error.status != REEF_OK)
        reef_input_failed(input, &input->work.error);
    else if (input->work.count > 0)
        reef_input_took(input, input->work.count, NULL);
    else
        reef_input_ended(input);
}

static void read_by_worker(reef_input *input, uint8_t *at, size_t room) {
    input->work.at = at;
    input->work.room = room;
    input->work.error = (reef_error){.status = REEF_OK};
    input->work.request.data = input;
    int code = uv_queue_work(input->loop, &input->work.request, read_now, on_read_now);
    if (code) on_read_now(&input->work.request, code);
}

static void read_on(reef_reader *reader, size_t source) {
    reef_input *input = &reader->sources[source];
    size_t room = 0;
    uint8_t *at = NULL;
    if (input->busy || !reef_training_space(reader->training, source, &at, &room)) return;
    input->reader = reader;
    input->loop = reader->loop;
    input->report = reader->report;
    input->busy = true;
    if (input->kind->read_now)
        read_by_worker(input, at, room);
    else
        input->kind->read(input, at, room);
}

void reef_reader_resume(reef_reader *reader) {
    reader->again = true;
    if (reader->resuming) return;
    reader->resuming = true;
    while (reader->again && !reader->stopped) {
        reader->again = false;
        for (size_t i = 0; i < reader->count && !reader->stopped; i++) read_on(reader, i);
    }
    reader->resuming = false;
}

void reef_reader_settle(reef_reader *reader) {
    for (size_t i = 0; i < reader->count && !reader->stopped; i++) {
        reef_input *input = &reader->sources[i];
        reef_input_place place;
        char *mark = NULL;
        if (!input->kind->settled || !reef_training_settled(reader->training, i, &place, &mark))
            continue;
        input->kind->settled(input, &place);
        free(mark);
    }
}

void reef_reader_stop(reef_reader *reader) {
    if (reader->stopped) return;
    reader->stopped = true;
    for (size_t i = 0; i < reader->count; i++) {
        reef_input *input = &reader->sources[i];
        input->stopped = true;
        if (input->loop && input->kind->stop) input->kind->stop(input);
    }
}
