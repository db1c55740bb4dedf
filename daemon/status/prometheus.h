// Where training stands, in the text format of Prometheus (version 0.0.4). On the loop's thread.
#ifndef REEF_METRICS_H
#define REEF_METRICS_H

#include "status.h"

#include <stddef.h>
#include <stdint.h>

/**
 * On the heap, the caller's; NULL without memory.
 *
 * answers  (6) HTTP answers by hundreds of their code
 * facts    of reef_job_facts, or NULL before the first are there
 */
char *reef_prometheus_text(reef_status_view *monitor,
                           size_t connections,
                           const uint64_t replies[6],
                           const json_t *stats);

#endif
