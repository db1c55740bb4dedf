// Messages of reefd; see reef_log.h. A line is put together in memory and written at once, so that
// lines of two processes on one terminal do not mix. That standard error is closed or full is
// nobody's concern here: training matters more than talking about it.
#include "reef_json_build.h"
#include "reef_log.h"
#include "reef_system.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_BYTES_MAX 2048 // a longer message is cut
#define COLUMNS_DEFAULT 80

static bool is_terminal(void) {
    const char *kind = getenv("TERM");
    return isatty(STDERR_FILENO) && kind != NULL && strcmp(kind, "dumb") != 0;
}

// systemd says which file is its journal; a program that was started with the variable but writes
// elsewhere must not add what only the journal takes away again.
static bool is_journal(void) {
    const char *stream = getenv("JOURNAL_STREAM");
    struct stat info;
    if (stream == NULL || fstat(STDERR_FILENO, &info) != 0) return false;
    char own[64];
    snprintf(own, sizeof(own), "%ju:%ju", (uintmax_t)info.st_dev, (uintmax_t)info.st_ino);
    return strcmp(own, stream) == 0;
}

void reef_report_init(reef_report *report, bool json, bool quiet) {
    *report = (reef_report){
        .json = json, .quiet = quiet, .terminal = is_terminal(), .journal = is_journal()};
    if (uv_mutex_init(&report->lock)) abort();
}

void reef_report_set(reef_report *report, bool json, bool quiet) {
    uv_mutex_lock(&report->lock);
    report->json = json;
    report->quiet = quiet;
    uv_mutex_unlock(&report->lock);
}

void reef_report_release(reef_report *report) {
    if (report->line_pending) (void)!write(STDERR_FILENO, "\n", 1);
    uv_mutex_destroy(&report->lock);
}

static void write_all(const char *text, size_t bytes) {
    while (bytes) {
        ssize_t written = write(STDERR_FILENO, text, bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return;
        text += written;
        bytes -= (size_t)written;
    }
}

static const char *level_text(reef_log_level level) {
    static const char *const TEXTS[] = {
#define LEVEL_TEXT(name, text, priority) text,
        REEF_LEVEL_LIST(LEVEL_TEXT)
#undef LEVEL_TEXT
    };
    return TEXTS[level];
}

static const char *level_prefix(const reef_report *report, reef_log_level level) {
    static const char *const PREFIXES[] = {
#define LEVEL_PREFIX(name, text, priority) "<" #priority ">reefd: ",
        REEF_LEVEL_LIST(LEVEL_PREFIX)
#undef LEVEL_PREFIX
    };
    return PREFIXES[level] + (report->journal ? 0 : strlen("<3>"));
}

// One message, in one line whatever it holds; it replaces a progress line that stands on the
// terminal.
static void write_line(reef_report *report, reef_log_level level, const char *text) {
    char line[LINE_BYTES_MAX];
    // A progress line stands on the terminal without a newline: go to its start and erase it first.
    const char *erase = report->line_pending ? "\r\033[K" : "";
    int bytes =
        snprintf(line, sizeof(line) - 1, "%s%s%s", erase, level_prefix(report, level), text);
    if (bytes < 0) return;
    // A message that is too long is cut; a line that is not ended would swallow the next one.
    size_t length = (size_t)bytes < sizeof(line) - 2 ? (size_t)bytes : sizeof(line) - 2;
    // Control characters in a file name could rewrite the terminal or forge a second log line.
    for (size_t i = strlen(erase); i < length; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?'; // a name may hold anything
    line[length] = '\n';
    // One write, so that lines of several threads do not mix.
    write_all(line, length + 1);
    report->line_pending = false;
}

static void write_json(reef_report *report, const json_t *object) {
    char *text = json_dumps(object, JSON_COMPACT | REEF_JSON_DIGITS);
    size_t bytes = text != NULL ? strlen(text) : 0;
    if (bytes) {
        if (report->line_pending) write_all("\r\033[K", 4);
        report->line_pending = false;
        text[bytes] = '\n'; // overwrites the final zero, so that it is one write
        write_all(text, bytes + 1);
    }
    free(text);
}

bool reef_line_is_blank(const char *line, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') return false;
    return true;
}

size_t reef_character_bytes(const uint8_t *bytes, size_t count) {
    uint8_t first = bytes[0];
    if (first < 0x80) return 1;
    size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || length > count) return 0;
    uint8_t low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    uint8_t high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (bytes[1] < low || bytes[1] > high) return 0;
    for (size_t i = 2; i < length; i++)
        if (bytes[i] < 0x80 || bytes[i] > 0xbf) return 0;
    return length;
}

json_t *reef_json_text(const char *text) {
    // Jansson takes UTF-8 only; paths and names need not be.
    json_t *value = json_string(text);
    if (value != NULL) return value;
    char *copy = strdup(text);
    if (copy == NULL) return json_null();
    // Each byte that starts no valid character becomes a question mark; the rest stays readable.
    for (size_t at = 0, end = strlen(copy); at < end;) {
        size_t bytes = reef_character_bytes((const uint8_t *)copy + at, end - at);
        if (!bytes) copy[at] = '?';
        at += bytes ? bytes : 1;
    }
    value = json_string(copy);
    free(copy);
    return value;
}

json_t *reef_json_count(uint64_t value) {
    return json_integer((json_int_t)value);
}

json_t *reef_json_known(bool known, uint64_t value) {
    return known ? reef_json_count(value) : json_null();
}

json_t *reef_json_number(double value) {
    json_t *number = json_real(value);
    return number != NULL ? number : json_null();
}

static void set_stamp(json_t *object, reef_log_level level) {
    if (json_object_get(object, "unix_ms") == NULL)
        json_object_set_new(object, "unix_ms", reef_json_count(reef_unix_ms()));
    json_object_set_new(object, "level", json_string(level_text(level)));
}

static void write_log(reef_report *report,
                      reef_log_level level,
                      const char *event,
                      const char *status,
                      const char *message) {
    // Messages come from the loop, the training thread and the query thread.
    uv_mutex_lock(&report->lock);
    if (report->json) {
        json_t *object = json_object();
        json_object_set_new(object, "event", json_string(event));
        set_stamp(object, level);
        if (status != NULL) json_object_set_new(object, "status", json_string(status));
        json_object_set_new(object, "message", reef_json_text(message));
        write_json(report, object);
        json_decref(object);
    } else {
        write_line(report, level, message);
    }
    uv_mutex_unlock(&report->lock);
}

void reef_report_error(reef_report *report, reef_status status, const char *message) {
    write_log(report, REEF_LEVEL_ERROR, "error", reef_status_text(status), message);
}

void reef_report_warning(reef_report *report, const char *event, const char *format, ...) {
    char message[LINE_BYTES_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    write_log(report, REEF_LEVEL_WARNING, event, NULL, message);
}

// One field of an event for people: "generation_step": 3 reads "generation step 3".
static size_t format_field(char *out, size_t room, const char *key, const json_t *value) {
    char *text = json_is_string(value)
                     ? NULL
                     : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(4));
    int bytes = snprintf(out, room, "%s %s", key, text != NULL ? text : json_string_value(value));
    free(text);
    for (char *at = out; *at && *at != ' '; at++)
        if (*at == '_') *at = ' ';
    if (bytes < 0) return 0;
    return (size_t)bytes < room ? (size_t)bytes : room - 1;
}

// The members of an event in a row, "number 5, step 9", behind what `out` has; but for those that
// are shown already, or mean nothing to people.
static void append_members(char *out, size_t room, const char *separator, const json_t *event) {
    size_t used = strlen(out);
    const char *key = NULL;
    json_t *value = NULL;
    // jansson's foreach walks by iterator without changing the object, but wants it without const.
    json_object_foreach((json_t *)(uintptr_t)event, key, value) {
        if (strcmp(key, "event") == 0 || strcmp(key, "message") == 0 || strcmp(key, "unix_ms") == 0)
            continue;
        // No room for another member and its separator.
        if (used + 4 >= room) break;
        used += (size_t)snprintf(out + used, room - used, "%s", separator);
        used += format_field(out + used, room - used, key, value);
        separator = ", ";
    }
}

static bool is_event(const json_t *event, const char *name) {
    const char *own = json_string_value(json_object_get(event, "event"));
    return own != NULL && strcmp(own, name) == 0;
}

static bool is_open(const json_t *incident) {
    const char *state = json_string_value(json_object_get(incident, "state"));
    return state != NULL && strcmp(state, "open") == 0;
}

static const char *text_of(const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : "";
}

// What rings is for people: which line, and where. Its other members are for programs.
static void format_incident(char *out, size_t room, const json_t *event) {
    const json_t *rarest = json_array_get(json_object_get(event, "events"), 0);
    const char *file = text_of(rarest, "file"), *severity = text_of(rarest, "severity");
    snprintf(out, room, "incident %" JSON_INTEGER_FORMAT " %s: %s%s%s: %s",
             json_integer_value(json_object_get(event, "incident")),
             is_open(event) ? "rings" : "has ended", strcmp(severity, "none") == 0 ? "" : severity,
             strcmp(severity, "none") == 0 ? "" : " in ", *file ? file : text_of(rarest, "source"),
             text_of(event, "title"));
}

// The timeline's JSON in one line for people: the event, its message, then its other members.
static void format_event(char *out, size_t room, const json_t *event) {
    if (is_event(event, "incident")) {
        format_incident(out, room, event);
        return;
    }
    const char *name = json_string_value(json_object_get(event, "event"));
    const char *message = json_string_value(json_object_get(event, "message"));
    snprintf(out, room, "%s%s%s", name != NULL ? name : "event", message != NULL ? ": " : "",
             message != NULL ? message : "");
    append_members(out, room, message != NULL ? "; " : ": ", event);
}

// Damage, and what rings, are not only worth telling.
static reef_log_level event_level(const json_t *event) {
    const bool warns = is_event(event, "damage") || (is_event(event, "incident") && is_open(event));
    return warns ? REEF_LEVEL_WARNING : REEF_LEVEL_INFO;
}

void reef_report_event(reef_report *report, json_t *event) {
    uv_mutex_lock(&report->lock);
    // Events are JSON already; only a stamp is added.
    if (!report->quiet && report->json) {
        set_stamp(event, event_level(event));
        write_json(report, event);
    } else if (!report->quiet) {
        char line[LINE_BYTES_MAX] = "";
        format_event(line, sizeof(line), event);
        write_line(report, event_level(event), line);
    }
    uv_mutex_unlock(&report->lock);
    // The report takes the event over, whatever it printed.
    json_decref(event);
}

void reef_report_event_text(reef_report *report, const char *json) {
    json_t *event = json_loads(json, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    if (!json_is_object(event)) {
        json_decref(event);
        event = json_pack("{s:s, s:o}", "event", "event", "message", reef_json_text(json));
    }
    reef_report_event(report, event);
}

// The line is cut at the terminal's width: a wrapped one could not be taken back by a carriage
// return.
static void rewrite_line(reef_report *report, const char *line) {
    struct winsize size = {0};
    int columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col
                                                                                  : COLUMNS_DEFAULT;
    char text[LINE_BYTES_MAX];
    int bytes = snprintf(text, sizeof(text), "\r\033[Kreefd: %.*s", columns - 8, line);
    if (bytes > 0) write_all(text, (size_t)bytes < sizeof(text) ? (size_t)bytes : sizeof(text) - 1);
    report->line_pending = true;
}

void reef_report_progress(reef_report *report, const char *line, json_t *object) {
    uv_mutex_lock(&report->lock);
    if (!report->quiet && report->json) {
        // One object per progress report, so that a script can follow it.
        json_object_set_new(object, "event", json_string("progress"));
        set_stamp(object, REEF_LEVEL_INFO);
        write_json(report, object);
        // On a terminal the line is rewritten in place; in a file each report is a line of its own.
    } else if (!report->quiet && report->terminal) {
        rewrite_line(report, line);
    } else if (!report->quiet) {
        write_line(report, REEF_LEVEL_INFO, line);
    }
    uv_mutex_unlock(&report->lock);
    json_decref(object);
}
