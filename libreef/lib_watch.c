// Lines of logs judged without a pool: sources have names, and incidents wait as JSON until they
// are taken.
#include "lib.h"
#include "reef_system.h"
#include "reef_watch_json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TIME_MS_MAX INT64_C(253402300799999) // the year 9999

typedef struct named_source {
    char *name;
    uint64_t offset; // of its next line
} named_source;

struct reef_watcher {
    reef_watch *watch;
    named_source *sources; // (source_count) by the watch's numbers
    uint32_t source_count;
    json_t *heard; // incidents that nobody has taken yet
    bool has_lost; // one found no memory; told by the call during which it was heard
};

// ---- incidents ----------------------------------------------------------------------------------

static void find_place(const void *context, uint32_t source, reef_line_place *out) {
    const reef_watcher *watcher = context;
    out->source = watcher->sources[source].name;
}

static void on_incident(void *context, const reef_incident *incident) {
    reef_watcher *watcher = context;
    if (!incident->rings || incident->event_count == 0 || incident->lingers) return;
    json_t *json = reef_incident_json(incident, find_place, watcher);
    // Appending NULL fails as well.
    if (json_array_append_new(watcher->heard, json) != 0) watcher->has_lost = true;
}

static reef_status check_heard(reef_watcher *watcher, reef_error *err) {
    if (!watcher->has_lost) return REEF_OK;
    watcher->has_lost = false;
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for an incident");
}

// ---- make and end -------------------------------------------------------------------------------

reef_status reef_watcher_new(reef_watcher **out,
                             const reef_watcher_options *options,
                             reef_error *err) {
    reef_watcher_options own;
    *out = NULL;
    reef_status status = reef_lib_take(&own, sizeof(own), options, "reef_watcher_options", err);
    if (status != REEF_OK) return status;
    if (own.near_ms < 0 || own.near_ms > TIME_MS_MAX || own.since_ms < 0 ||
        own.since_ms > TIME_MS_MAX)
        return reef_fail(err, REEF_ERR_INVALID,
                         "near_ms %" PRId64 ", since_ms %" PRId64
                         ": they are milliseconds since 1970, to the year 9999",
                         own.near_ms, own.since_ms);
    const reef_watch_options inside = {
        .gap_s = own.gap_s,
        .budget = own.budget,
        .quiet_s = own.quiet_s,
        .near_ms = own.near_ms != 0 ? own.near_ms : (int64_t)reef_unix_ms(),
        .since_ms = own.since_ms,
        .forget_days = own.forget_days,
    };
    reef_watcher *watcher = calloc(1, sizeof(*watcher));
    if (watcher == NULL || (watcher->heard = json_array()) == NULL)
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to watch lines");
    if (status == REEF_OK)
        status = reef_watch_new(&watcher->watch, &inside, on_incident, watcher, err);
    if (status == REEF_OK) {
        *out = watcher;
        watcher = NULL; // the caller owns it now
    }
    reef_watcher_free(watcher);
    return status;
}

void reef_watcher_free(reef_watcher *watcher) {
    if (watcher == NULL) return;
    reef_watch_free(watcher->watch);
    for (uint32_t i = 0; i < watcher->source_count; i++) free(watcher->sources[i].name);
    free(watcher->sources);
    json_decref(watcher->heard);
    free(watcher);
}

// ---- lines --------------------------------------------------------------------------------------

// Names appear in JSON, which must be UTF-8.
static reef_status check_name(const char *name, reef_error *err) {
    json_t *text = json_string(name);
    json_decref(text);
    if (name[0] != '\0' && text != NULL) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID, "a source's name of %zu bytes is %s", strlen(name),
                     name[0] == '\0' ? "empty" : "no UTF-8");
}

static reef_status add_source(reef_watcher *watcher,
                              const char *name,
                              uint32_t *number,
                              reef_error *err) {
    reef_status status = check_name(name, err);
    if (status != REEF_OK) return status;
    named_source *sources =
        realloc(watcher->sources, (watcher->source_count + 1) * sizeof(*sources));
    if (sources != NULL) watcher->sources = sources;
    char *copy = sources == NULL ? NULL : strdup(name);
    status = copy != NULL ? reef_watch_add_source(watcher->watch, number, err)
                          : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a source");
    if (status == REEF_OK)
        watcher->sources[watcher->source_count++] = (named_source){.name = copy};
    else
        free(copy);
    return status;
}

static reef_status find_source(reef_watcher *watcher,
                               const char *name,
                               uint32_t *number,
                               reef_error *err) {
    for (*number = 0; *number < watcher->source_count; ++*number)
        if (strcmp(watcher->sources[*number].name, name) == 0) return REEF_OK;
    return add_source(watcher, name, number, err);
}

// A line without its end, and its time or 0.
static reef_status judge(reef_watcher *watcher,
                         uint32_t source,
                         const uint8_t *line,
                         size_t count,
                         int64_t time_ms,
                         reef_error *err) {
    const uint64_t offset = watcher->sources[source].offset;
    if (time_ms != 0) {
        if (count > 0 && line[count - 1] == '\r') count--;
        return count == 0
                   ? REEF_OK
                   : reef_watch_line(watcher->watch, source, line, count, offset, time_ms, err);
    }
    // As a piece of a file, which goes by the times that are at the head of lines.
    reef_status status = reef_watch_bytes(watcher->watch, source, NULL, offset, line, count, err);
    return status != REEF_OK ? status
                             : reef_watch_bytes(watcher->watch, source, NULL, offset + count,
                                                (const uint8_t *)"\n", 1, err);
}

reef_status reef_watcher_line(reef_watcher *watcher,
                              const char *source,
                              const void *line,
                              size_t count,
                              int64_t time_ms,
                              reef_error *err) {
    reef_lib_caller caller;
    uint32_t number;
    const uint8_t *bytes = line;
    const size_t ended = count > 0 && bytes[count - 1] == '\n';
    const uint8_t *inside = count > ended ? memchr(bytes, '\n', count - ended) : NULL;
    if (inside != NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "a line of %zu bytes has a newline behind byte %zu: give one line a call",
                         count, (size_t)(inside - bytes));
    if (time_ms < 0 || time_ms > TIME_MS_MAX)
        return reef_fail(err, REEF_ERR_INVALID,
                         "time_ms is %" PRId64 ": it is milliseconds since 1970, to the year 9999",
                         time_ms);
    reef_lib_take_caller(&caller);
    reef_status status = find_source(watcher, source, &number, err);
    if (status == REEF_OK) {
        status = judge(watcher, number, bytes, count - ended, time_ms, err);
        watcher->sources[number].offset += count - ended + 1;
    }
    if (status == REEF_OK) status = check_heard(watcher, err);
    reef_lib_give_back(&caller);
    return status;
}

reef_status reef_watcher_finish(reef_watcher *watcher, reef_error *err) {
    reef_lib_caller caller;
    reef_lib_take_caller(&caller);
    reef_watch_finish(watcher->watch);
    reef_lib_give_back(&caller);
    return check_heard(watcher, err);
}

reef_status reef_watcher_take(reef_watcher *watcher, char **incidents, reef_error *err) {
    reef_lib_caller caller;
    *incidents = NULL;
    if (json_array_size(watcher->heard) == 0) return REEF_OK;
    reef_lib_take_caller(&caller);
    reef_status status = reef_lib_incidents_text(watcher->heard, incidents, err);
    if (status == REEF_OK) (void)json_array_clear(watcher->heard);
    reef_lib_give_back(&caller);
    return status;
}

reef_status reef_watcher_read_counts(const reef_watcher *watcher,
                                     reef_watcher_counts *out,
                                     reef_error *err) {
    reef_watch_counts all;
    reef_watch_read_counts(watcher->watch, &all);
    const reef_watcher_counts counts = {
        .lines = all.lines,
        .usual = all.usual,
        .in_events = all.in_events,
        .suppressed = all.suppressed,
        .learning = all.learning,
        .incidents = all.incidents,
        .rung = all.rung,
        .open = all.open,
        .types = all.types,
    };
    return reef_lib_give(out, &counts, sizeof(counts), "reef_watcher_counts", err);
}
