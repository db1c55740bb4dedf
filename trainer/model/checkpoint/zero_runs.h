// Bytes with runs of zeros left out: tables that are half empty take little more than half on disk.
//
// A byte c below 128 says that c + 1 bytes follow as they are, one from 128 on that c - 125 zeros
// come (3 to 130). The same bytes are always packed the same way, so that records of equal tables
// are equal; a general compressor promises that within one version only.
#ifndef REEF_ZERO_RUNS_H
#define REEF_ZERO_RUNS_H

#include "reef_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The most that `bytes` bytes can become. */
size_t reef_zero_runs_bound(size_t bytes);

/** out  (reef_zero_runs_bound(bytes)) written. Returns how many. */
size_t reef_zero_runs_pack(uint8_t *out, const uint8_t *in, size_t bytes);

/** How many bytes `in` becomes; at most 128 times as many as it has. */
size_t reef_zero_runs_length(const uint8_t *in, size_t in_bytes);

/** out  (bytes) written. False unless `in` is what becomes exactly so many. */
REEF_MUST_CHECK bool reef_zero_runs_unpack(uint8_t *out,
                                           size_t bytes,
                                           const uint8_t *in,
                                           size_t in_bytes);

#endif
