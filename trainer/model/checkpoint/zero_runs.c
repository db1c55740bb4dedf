// Bytes with runs of zeros left out: tables that are half empty take little more than half on disk.
//
// A byte c below 128 says that c + 1 bytes follow as they are, one from 128 on that c - 125 zeros
// come (3 to 130). The same bytes are always packed the same way, so that records of equal tables
// are equal; a general compressor promises that within one version only.
#include "checkpoint_internal.h"

#include <string.h>

#define LITERALS_MAX 128
#define ZEROS_MIN 3
#define ZEROS_MAX 130

size_t reef_zero_runs_bound(size_t bytes) {
    return bytes + bytes / LITERALS_MAX + 1;
}

static size_t zeros_from(const uint8_t *in, size_t at, size_t bytes) {
    size_t end = at;
    while (end < bytes && end - at < ZEROS_MAX && in[end] == 0) end++;
    return end - at;
}

static size_t put_literals(uint8_t *out, const uint8_t *in, size_t count) {
    size_t used = 0;
    while (count > 0) {
        size_t some = count < LITERALS_MAX ? count : LITERALS_MAX;
        out[used++] = (uint8_t)(some - 1);
        memcpy(out + used, in, some);
        used += some;
        in += some;
        count -= some;
    }
    return used;
}

size_t reef_zero_runs_pack(uint8_t *out, const uint8_t *in, size_t bytes) {
    size_t used = 0, literals = 0; // bytes before `at` that wait to be put
    for (size_t at = 0; at < bytes;) {
        size_t zeros = in[at] == 0 ? zeros_from(in, at, bytes) : 0;
        if (zeros < ZEROS_MIN) { // one or two zeros cost less as they are
            size_t some = zeros > 0 ? zeros : 1;
            literals += some;
            at += some;
            continue;
        }
        used += put_literals(out + used, in + at - literals, literals);
        literals = 0;
        out[used++] = (uint8_t)(LITERALS_MAX + zeros - ZEROS_MIN);
        at += zeros;
    }
    return used + put_literals(out + used, in + bytes - literals, literals);
}

// Bytes that a token stands for.
static size_t token_length(uint8_t c) {
    return c < LITERALS_MAX ? (size_t)c + 1 : (size_t)c - LITERALS_MAX + ZEROS_MIN;
}

size_t reef_zero_runs_length(const uint8_t *in, size_t in_bytes) {
    size_t length = 0;
    for (size_t at = 0; at < in_bytes;) {
        length += token_length(in[at]);
        at += in[at] < LITERALS_MAX ? 1 + token_length(in[at]) : 1;
    }
    return length;
}

bool reef_zero_runs_unpack(uint8_t *out, size_t bytes, const uint8_t *in, size_t in_bytes) {
    size_t done = 0;
    for (size_t at = 0; at < in_bytes;) {
        uint8_t c = in[at++];
        size_t count = token_length(c);
        if (count > bytes - done) return false;
        if (c < LITERALS_MAX) {
            if (count > in_bytes - at) return false;
            memcpy(out + done, in + at, count);
            at += count;
        } else {
            memset(out + done, 0, count);
        }
        done += count;
    }
    return done == bytes;
}
