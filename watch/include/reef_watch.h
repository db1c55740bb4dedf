// What is new in lines of logs, and what of that a person should hear of.
//
// Every line is judged by what came before it, and then learned. Its fields (the time at its head,
// the host, numbers, ids) are no news. What is left is its *type*. An *event* is something new of
// one sort: a type of line that never came, a word or a small number where always the same ones
// stood, a type that comes far more often than it ever did, one that came all the time and stops.
// The first line of it is the event, what follows is counted. Where most lines of a source are new
// that is one event, and they are none.
//
// A line that is indented, or has no time where the one before it has one, belongs to the record of
// that line, such as a stack trace: it is judged and learned, but a record is at most one event.
//
// Events less than a gap apart, over all sources, are one *incident*. It is named after its rarest
// event, stays open while its causes repeat, and *rings* where it is rarer than what the budget
// would have allowed on the days before. How rare something is, is said in bits: 10 are one chance
// in a thousand, by what the source did so far.
//
// Time is that at the head of lines: nothing depends on when they are read. A source whose lines
// have no time goes by those of the others, or by what the caller says.
//
// Threads: a watch belongs to one thread at a time.
#ifndef REEF_WATCH_H
#define REEF_WATCH_H

#include "reef_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REEF_WATCH_SOURCES_MAX 1024
#define REEF_WATCH_TYPES_MAX 8192       // of all sources; those that came last are kept
#define REEF_WATCH_LINE_BYTES_MAX 2048u // of a line that is looked at
#define REEF_WATCH_EVENTS_MAX 64        // of an incident; more are only counted
#define REEF_MUTE_S_MAX 31536000        // a year
#define REEF_WATCH_BUDGET_MAX 1e6       // incidents a day
#define REEF_WATCH_GAP_S_MAX 604800u    // that a person may choose: a week
#define REEF_WATCH_QUIET_S_MAX 86400u   // after a day a source is judged anyway
#define REEF_WATCH_FORGET_DAYS_MAX 3650u
#define REEF_WATCH_SHOWN_BYTES_MAX 512u // of a line that is kept to be shown
#define REEF_WATCH_FILE_BYTES_MAX 255u  // of a file's name

typedef struct reef_watch reef_watch;

/** Zeros: the defaults. */
typedef struct reef_watch_options {
    uint32_t gap_s;   // 60; events nearer to each other are one incident
    double budget;    // 5; incidents a day that may ring
    uint32_t quiet_s; // 3600; a source is judged once nothing new came for so long, or after a day
    int64_t near_ms;  // times without a year are near to it, before any line has another
    int64_t since_ms; // learn only until then, and judge all sources from then on; 0: see quiet_s
    uint32_t forget_days; // 30; what did not come for so long is new again
} reef_watch_options;

typedef enum reef_news {
    REEF_NEWS_TYPE,    // a type of line that never came
    REEF_NEWS_WORD,    // a word where always the same few stood
    REEF_NEWS_RATE,    // far more lines of a type than ever
    REEF_NEWS_SILENCE, // a type that came all the time does not come
    REEF_NEWS_AGAIN,   // an error that came seldom, and not for a day
    REEF_NEWS_NOISE,   // most lines of a source are new: none of them says anything
    REEF_NEWS_COUNT
} reef_news;

typedef enum reef_severity {
    REEF_SEVERITY_NONE,
    REEF_SEVERITY_WARNING,
    REEF_SEVERITY_ERROR,
    REEF_SEVERITY_CRITICAL
} reef_severity;

/** What a person said of a type of line. */
typedef enum reef_decision {
    REEF_DECISION_NONE,
    REEF_DECISION_NORMAL, // never an event again, and never forgotten
    REEF_DECISION_MUTE,   // no event until a time
    REEF_DECISION_FAULT,  // rings each time it comes, however often it came
    REEF_DECISION_COUNT
} reef_decision;

typedef struct reef_event {
    reef_news news;
    reef_severity severity;
    uint32_t source;
    uint64_t type;   // names the type of line, in every run
    uint64_t offset; // where its first line begins; of a silence the type's last one
    char *file;      // owned; that has the byte `offset`; NULL: its source has it
    int64_t first_ms, last_ms;
    uint64_t count; // lines
    double bits;
    char *line;    // owned; (line_bytes) the first one, cut; of a silence the first of its type
    char *nearest; // owned; (nearest_bytes) the first line of a type; NULL: none. Of a new type
                   // the one that is nearest; of a rate the one whose lines are only counted
    size_t line_bytes, nearest_bytes; // any bytes: NULs are no end. One NUL stands behind them
    size_t new_at, new_bytes; // what is new in it; nothing: all of it, how often it comes, or cut
} reef_event;

typedef struct reef_incident {
    uint64_t number; // from 1
    int64_t first_ms, last_ms;
    double bits;
    bool rings, is_open;
    bool lingers;       // it has ended, but what is new in its source may still belong to it
    bool said;          // it was heard of as it is
    reef_event *events; // owned; (event_count)
    size_t event_count, rarest;
    uint64_t more; // events that are not kept
} reef_incident;

typedef struct reef_watch_counts {
    uint64_t lines, usual, in_events, suppressed; // lines = usual + in_events + suppressed
    uint64_t learning; // of the usual ones: of sources that are not judged yet
    uint64_t events[REEF_NEWS_COUNT];
    uint64_t incidents, rung, open; // open: that ring and have not ended
    size_t types;
} reef_watch_counts;

/**
 * An incident begins to ring, or ends: then `is_open` is false. One that lingers is heard of once
 * more when nothing can belong to it any more, `said` where nothing came. It is lent.
 */
typedef void reef_incident_heard(void *context, const reef_incident *incident);

/** Errors: NO_MEMORY, INVALID options. */
REEF_MUST_CHECK reef_status reef_watch_new(reef_watch **out,
                                           const reef_watch_options *options,
                                           reef_incident_heard *heard,
                                           void *context,
                                           reef_error *err);
void reef_watch_free(reef_watch *watch);

/** A source of lines; its number, from 0. Errors: NO_MEMORY, FULL. */
REEF_MUST_CHECK reef_status reef_watch_add_source(reef_watch *watch,
                                                  uint32_t *out,
                                                  reef_error *err);

/**
 * Judge and learn the next line of a source. Lines come in the order of their times, about: what is
 * late counts for the present.
 *
 * line     (count) without its end
 * offset   of its first byte in the source
 * time_ms  since 1970; of the line, or of what came before it
 *
 * Errors: NO_MEMORY: the line is not learned, and reading may go on.
 */
REEF_MUST_CHECK reef_status reef_watch_line(reef_watch *watch,
                                            uint32_t source,
                                            const uint8_t *line,
                                            size_t count,
                                            uint64_t offset,
                                            int64_t time_ms,
                                            reef_error *err);

/**
 * The next bytes of a source: every line that they end is judged. What is behind the last one waits
 * for its end. A line that has no time counts as of those before it.
 *
 * source  the number of any source; those up to it are added
 * file    that the bytes lie in, at most REEF_WATCH_FILE_BYTES_MAX; NULL: a source of one file
 * offset  of the first of them in that file; without one in the source
 *
 * Errors: as above; FULL too many sources.
 */
REEF_MUST_CHECK reef_status reef_watch_bytes(reef_watch *watch,
                                             uint32_t source,
                                             const char *file,
                                             uint64_t offset,
                                             const uint8_t *bytes,
                                             size_t count,
                                             reef_error *err);

/** Nothing comes any more: an open incident ends. */
void reef_watch_finish(reef_watch *watch);

/** Takes part `number` of a state, lent. Its failure is that of reef_watch_write. */
typedef reef_status reef_watch_put(
    void *context, uint32_t number, const uint8_t *bytes, size_t count, reef_error *err);
/** Lends part `number` of a state. */
typedef reef_status reef_watch_get(
    void *context, uint32_t number, const uint8_t **bytes, size_t *count, reef_error *err);

/**
 * All that the watch knows, in parts that are numbered from 0: types of lines that did not come are
 * in parts that do not change. Of its options budget, gap, quiet and forget are among it.
 *
 * parts  written: how many there are
 *
 * Errors: NO_MEMORY.
 */
REEF_MUST_CHECK reef_status reef_watch_write(
    reef_watch *watch, reef_watch_put *put, void *context, uint32_t *parts, reef_error *err);

/**
 * Take up a state that was written, in a new watch, with the options that are in it in place of
 * those that the watch was made with. Errors: NO_MEMORY, CORRUPT.
 */
REEF_MUST_CHECK reef_status reef_watch_read(reef_watch *watch,
                                            reef_watch_get *get,
                                            void *context,
                                            reef_error *err);

/**
 * A person has decided about the types of lines of an incident: one of the last 256 that rang. A
 * decision replaces those before it.
 *
 * for_s  of MUTE: for so long from the present on, by the times of lines
 * types  written: how many types of lines it is about
 * until_ms  written: when a MUTE ends, by the times of lines; 0: it is none, or no line has a time
 *
 * Errors: NOT_FOUND no such incident is known any more; INVALID no such decision.
 */
REEF_MUST_CHECK reef_status reef_watch_decide(reef_watch *watch,
                                              uint64_t incident,
                                              reef_decision decision,
                                              uint64_t for_s,
                                              size_t *types,
                                              int64_t *until_ms,
                                              reef_error *err);

/**
 * A person has chosen other options: from the next line on. What is judged already stays so.
 *
 * change  its budget, gap, quiet and forget; 0: stays as it is
 *
 * Errors: INVALID one of them is out of its bounds, or all are 0: nothing has changed.
 */
REEF_MUST_CHECK reef_status reef_watch_change(reef_watch *watch,
                                              const reef_watch_options *change,
                                              reef_error *err);
/** The options as they are, with their defaults. */
void reef_watch_read_options(const reef_watch *watch, reef_watch_options *out);

const char *reef_decision_name(reef_decision decision);

/**
 * A decision by its word.
 *
 * for_s  of "mute" 1 to REEF_MUTE_S_MAX, of the others 0
 *
 * Errors: INVALID no such word, or no such time.
 */
REEF_MUST_CHECK reef_status reef_decision_read(reef_decision *out,
                                               const char *word,
                                               int64_t for_s,
                                               reef_error *err);

void reef_watch_read_counts(const reef_watch *watch, reef_watch_counts *out);

/**
 * The time at the head of a line: ISO 8601, syslog, Apache, epoch, fields of JSON, and the forms
 * of common programs. A syslog time has no year: it is of the one that makes it nearest to
 * `near_ms`. False: there is none.
 */
bool reef_line_time(const uint8_t *line, size_t count, int64_t near_ms, int64_t *out_ms);

/** Where the text of a line begins behind the time at its head; 0: it has none there. */
size_t reef_line_text_at(const uint8_t *line, size_t count);

const char *reef_news_name(reef_news news);
const char *reef_severity_name(reef_severity severity);

#endif
