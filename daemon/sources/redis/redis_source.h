// Live sources that are Redis Streams: redis://HOST:PORT/STREAM; redis_url.h has all of it.
//
// An entry's text and a newline are its bytes. Only the pool stores the read position, in
// checkpoints:
//
//   {"after": "ID", "ordinal": N, "skip": N, "entries": [["ID", bytes], ...]}
//
// The byte that a checkpoint describes is byte `skip` of the first of `entries`, which come after
// entry `after`. That one was entry number `ordinal` that was ever added to the stream, or -1 where
// that is not known.
#ifndef REEF_REDIS_SOURCE_H
#define REEF_REDIS_SOURCE_H

#include "reef_source.h"

// the rest of a longer entry is dropped, which is reported
#define REEF_REDIS_ENTRY_BYTES_MAX ((size_t)16 << 20)

extern const reef_input_kind reef_redis_kind;

#endif
