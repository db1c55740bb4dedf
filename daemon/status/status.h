// Where training stands, for the socket's `status` and for the progress line. On the loop's thread.
#ifndef REEF_MONITOR_H
#define REEF_MONITOR_H

#include "reef_source.h"
#include "reef_settings.h"
#include "training_thread.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#define REEF_RATE_SAMPLES 20 // the rate is a mean over so many ticks

typedef struct reef_monitor {
    // set once
    const char *pool;
    size_t threads;
    size_t record_bytes; // of one example; 0 in a pool of text
    const reef_input *sources;
    size_t source_count;
    reef_training *training;
    reef_scrubber *scrubber;
    reef_progress *progress; // (source_count); the caller's
    uint64_t started_ns;
    const char *http; // where HTTP is answered, or NULL
    // its own
    struct {
        uint64_t ns, accepted;
        uint64_t cursors[REEF_INPUT_COUNT_MAX];
    } samples[REEF_RATE_SAMPLES];
    size_t sample_count; // taken so far; the last ones are kept
} reef_monitor;

/** Take a sample for the rate; call at a steady pace. */
void reef_monitor_sample(reef_monitor *monitor);
/** The result of `status`. */
json_t *reef_monitor_status(reef_monitor *monitor);
/** Of the pool's data file; NAN where that cannot be told. */
double reef_monitor_file_bytes(const reef_monitor *monitor);
/** Memory of this process that is resident; NAN as above. */
double reef_monitor_resident_bytes(void);
/** One line for people. */
void reef_monitor_line(reef_monitor *monitor, char *out, size_t room);

#endif
