// From what a client pushed to bytes of the stream that training reads: pure functions, on any
// thread.
//
// Lines of text, every one with its end. A batch is taken as a whole or refused as a whole.
#ifndef REEF_PUSH_PARSE_H
#define REEF_PUSH_PARSE_H

#include "reef_error.h"

#include <stddef.h>
#include <stdint.h>

typedef enum reef_ingest_format {
    REEF_INGEST_TEXT,  // any bytes; a record is a line
    REEF_INGEST_JSONL, // a record is a line: {"text": "..."}
} reef_ingest_format;

typedef struct reef_ingested {
    uint8_t *bytes; // on the heap, the caller's; at most REEF_JOURNAL_BATCH_BYTES_MAX
    size_t count;
    uint64_t records;
} reef_ingested;

/** Errors: INVALID names the line or record at fault, or the bound that was crossed; NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_ingest_parse(reef_ingested *out,
                                              reef_ingest_format format,
                                              const uint8_t *body,
                                              size_t bytes,
                                              reef_error *err);
void reef_ingested_release(reef_ingested *ingested); // accepts the zeroed one

#endif
