// Where training stands, in the text format of Prometheus (version 0.0.4). On the loop's thread.
#ifndef REEF_PROMETHEUS_H
#define REEF_PROMETHEUS_H

#include "status.h"

#include <stddef.h>
#include <stdint.h>

/**
 * On the heap, the caller's; NULL without memory.
 *
 * replies  (6) HTTP replies by hundreds of their code
 * stats    of reef_query_stats, or NULL before the first were read
 */
char *reef_prometheus_text(reef_status_view *monitor,
                           size_t connections,
                           const uint64_t replies[6],
                           const json_t *stats);

#endif
