// The state of a watch: all of it is written with a pool's commits.
#ifndef REEF_WATCH_INTERNAL_H
#define REEF_WATCH_INTERNAL_H

#include "incidents.h"
#include "line_types.h"

#define REEF_LAST_TYPES_MAX 4 // of a line: its type and three of its variants

/** A type in reef_line_types, as long as it has that name. */
typedef struct reef_named_type {
    uint32_t type;
    uint64_t name;
} reef_named_type;

typedef struct reef_watch_source {
    double lines, news, recent_news; // of late; of the last lines
    double severe[REEF_SEVERITY_CRITICAL + 1];
    int64_t day, first_ms, news_ms;
    uint64_t read;
    bool judged;
    bool noisy;              // most of its lines were new, not so long ago that this is forgotten
    int64_t noise_ms;        // when that was so last
    uint64_t noise_incident; // that says so
    uint32_t noise_event;    // of it
    reef_named_type last[REEF_LAST_TYPES_MAX]; // (last_count) types that its last line counted for
    uint32_t last_count;
    reef_severity last_severity;
    bool last_in_event; // of the first of them
    // The record that its last line belongs to: its first line has a time, it is in an event, a
    // person does not want to hear of it.
    bool record_timed, record_in_event, record_silenced;
    uint32_t record_lines; // that it has so far
    // The beginning of a line whose end has not come: (line_bytes), cut; where it begins.
    uint8_t line[REEF_WATCH_LINE_BYTES_MAX];
    uint32_t line_bytes;
    uint64_t line_at;
    char *file; // owned; it lies in, as reef_watch_bytes was told
} reef_watch_source;

struct reef_watch {
    reef_watch_options options;
    reef_watch_source *sources; // owned; (source_count)
    uint32_t source_count;
    reef_line_types types;
    reef_incidents incidents;
    int64_t now_ms, minute, day; // 0: no line had a time
    int64_t doubted_ms;          // of the last lines, (doubted) in a row: far from the present
    uint32_t doubted;
    reef_watch_counts counts;
};

/** The options have changed: let incidents know. */
void reef_watch_options_set(reef_watch *watch);

#endif
