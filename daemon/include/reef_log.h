// Messages of reefd on standard error: one line a message, each starting with "reefd: ", or one
// JSON object a line. On a terminal a progress line is rewritten below them.
//
// Every line has a level: in JSON as "level", and where standard error is the journal of systemd as
// the prefix that it knows ("<3>"), otherwise not shown.
//
// Any thread may call; a lock keeps lines whole.
#ifndef REEF_LOG_H
#define REEF_LOG_H

#include "reef_error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

// name on the wire, priority of syslog(3)
#define REEF_LEVEL_LIST(X)                                                                         \
    X(ERROR, "error", 3)                                                                           \
    X(WARNING, "warning", 4)                                                                       \
    X(INFO, "info", 6)

typedef enum reef_log_level {
#define REEF_LEVEL_ENUM(name, text, priority) REEF_LEVEL_##name,
    REEF_LEVEL_LIST(REEF_LEVEL_ENUM)
#undef REEF_LEVEL_ENUM
} reef_log_level;

typedef struct reef_report {
    bool terminal, journal; // what standard error is
    uv_mutex_t lock;        // protects what follows, and the order of lines
    bool json, quiet;
    bool line_pending; // a progress line stands on the terminal without a newline
} reef_report;

/** The descriptor is standard error. Without a lock to be had, the process aborts. */
void reef_report_init(reef_report *report, bool json, bool quiet);
/** Change the form of the messages that follow. */
void reef_report_set(reef_report *report, bool json, bool quiet);
void reef_report_release(reef_report *report);

/** An error; logged even when quiet. */
void reef_report_error(reef_report *report, reef_status status, const char *message);
/** A warning, such as of a retry; logged even when quiet. `event` names it in JSON. */
void reef_report_warning(reef_report *report, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** An event to log, as a JSON object with at least "event"; takes the reference. */
void reef_report_event(reef_report *report, json_t *event);
/** The same, from text. Text that is not an object is logged as it is. */
void reef_report_event_text(reef_report *report, const char *json);
/** Where things stand, `line` for people and `object` for programs; takes the reference. */
void reef_report_progress(reef_report *report, const char *line, json_t *object);

/** Only spaces, tabs and carriage returns? Such a line holds no request and no record. */
bool reef_line_is_blank(const char *line, size_t bytes);
/** Bytes of the well-formed UTF-8 character that begins here (Unicode table 3-7), or 0. */
size_t reef_character_bytes(const uint8_t *bytes, size_t count);
/**
 * A string value; bytes that are part of no UTF-8 character become '?', since JSON cannot hold
 * them.
 */
json_t *reef_json_text(const char *text);
/** A count; and one that is known or null. */
json_t *reef_json_count(uint64_t value);
json_t *reef_json_known(bool known, uint64_t value);
/** A number, or null when it is not finite, which JSON cannot hold. */
json_t *reef_json_number(double value);

#endif
