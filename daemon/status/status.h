// Where training stands, for the socket's `status` and for the progress line. On the loop's thread.
#ifndef REEF_STATUS_H
#define REEF_STATUS_H

#include "push.h"
#include "reef_settings.h"
#include "reef_source.h"
#include "training_thread.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#define REEF_RATE_SAMPLES 20 // the rate is a mean over so many ticks

typedef struct reef_status_view {
    // set once
    const char *pool;
    size_t threads;
    const reef_input *sources;
    size_t source_count;
    reef_training *training;
    reef_scrubber *scrubber;
    struct reef_alarms *alarms; // NULL: none are sent
    struct reef_crew *crew;     // NULL: no ranks
    struct reef_joins *joins;   // NULL: none that learn apart
    reef_progress *progress;    // (source_count); the caller's
    uint64_t started_ns;
    const char *http;                           // where HTTP is answered, or NULL
    uint64_t push_refusals[REEF_PUSH_REFUSALS]; // counted by who answers them
    // its own
    struct {
        uint64_t ns, accepted;
        uint64_t cursors[REEF_INPUT_COUNT_MAX];
    } samples[REEF_RATE_SAMPLES];
    size_t sample_count; // taken so far; the last ones are kept
} reef_status_view;

/** Take a sample for the rate; call at a steady pace. */
void reef_status_view_sample(reef_status_view *monitor);
/** A commit as it appears in answers. */
json_t *reef_commit_view_json(const reef_commit_view *view);
/** The result of `status`. */
json_t *reef_status_view_status(reef_status_view *monitor);
/** Of the pool's data file; NAN if it cannot be read. */
double reef_status_view_file_bytes(const reef_status_view *monitor);
/** Memory of this process that is resident; NAN as above. */
double reef_status_view_resident_bytes(void);
/** One line for people. */
void reef_status_view_line(reef_status_view *monitor, char *out, size_t room);

// ---- prometheus.c -------------------------------------------------------------------------------
//
// Where training stands, in the text format of Prometheus (version 0.0.4). On the loop's thread.

/**
 * On the heap, the caller's; NULL without memory.
 *
 * replies  (6) HTTP replies by hundreds of their code
 * stats    of reef_query_stats, or NULL before the first were read
 */
char *reef_prometheus_text(reef_status_view *monitor,
                           size_t connections,
                           const uint64_t replies[6],
                           json_t *stats);

#endif
