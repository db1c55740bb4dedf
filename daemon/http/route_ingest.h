// POST /v1/ingest and /v1/ingest/NAME: from a request to a batch (push.h).
#ifndef REEF_ROUTE_INGEST_H
#define REEF_ROUTE_INGEST_H

#include "http_server.h"
#include "push.h"

#define REEF_HTTP_INGEST_PATH "/v1/ingest"

/**
 * The batch that a request contains, with its body. What is wrong goes into `code` and `err`.
 *
 * Errors: INVALID with 400, or 415 for a Content-Type that is not known; NO_MEMORY with 500.
 */
REEF_MUST_CHECK reef_status reef_http_ingest(reef_push_batch **out,
                                             reef_http_request *request,
                                             unsigned *code,
                                             reef_error *err);

#endif
