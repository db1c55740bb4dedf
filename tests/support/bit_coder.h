// An arithmetic coder for bits, in 32 bits and without carries.
//
// The range low .. high is split in proportion to the two probabilities, and the part of the bit
// that came becomes the range. Bytes in which both ends agree are settled and leave it, so a carry
// into them never happens. Where the ends stay on both sides of a byte's border the range becomes
// small and a bit costs more than it should: rarely, and never below one unit for either bit.
#ifndef BIT_CODER_H
#define BIT_CODER_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bit_coder {
    uint32_t low, high; // both inclusive
    uint32_t code;      // of a decoder: the bytes that lie in the range
    uint8_t *bytes;     // written by an encoder, read by a decoder
    size_t count, room; // used of them, and how many there are
} bit_coder;

static inline uint8_t bit_coder_take(bit_coder *coder) {
    // Behind the end of a code zeros follow: bit_encode_end writes what tells it from others.
    return coder->count < coder->room ? coder->bytes[coder->count++] : 0;
}

static inline bit_coder bit_encoder(uint8_t *bytes, size_t room) {
    return (bit_coder){.high = UINT32_MAX, .bytes = bytes, .room = room};
}

static inline bit_coder bit_decoder(uint8_t *bytes, size_t count) {
    bit_coder coder = {.high = UINT32_MAX, .bytes = bytes, .room = count};
    for (int i = 0; i < 4; i++) coder.code = coder.code << 8 | bit_coder_take(&coder);
    return coder;
}

/** The last value of a one's part. `one`: its probability in 1/65536, 1 .. 65535. */
static inline uint32_t bit_coder_split(const bit_coder *coder, uint32_t one) {
    uint64_t range = (uint64_t)coder->high - coder->low;
    assert(one >= 1 && one <= 65535);
    return coder->low + (uint32_t)(range * one >> 16);
}

static inline void bit_coder_narrow(bit_coder *coder, uint32_t split, int bit) {
    if (bit)
        coder->high = split;
    else
        coder->low = split + 1;
}

static inline void bit_encode(bit_coder *coder, uint32_t one, int bit) {
    bit_coder_narrow(coder, bit_coder_split(coder, one), bit);
    while (coder->low >> 24 == coder->high >> 24) {
        assert(coder->count < coder->room);
        coder->bytes[coder->count++] = (uint8_t)(coder->high >> 24);
        coder->low <<= 8;
        coder->high = coder->high << 8 | 0xFF;
    }
}

/** The bytes that remain; returns how many there are in all. */
static inline size_t bit_encode_end(bit_coder *coder) {
    // Any code within the range will do. The ends differ in the first byte: the first byte of the
    // upper end with zeros behind it lies between them.
    assert(coder->count < coder->room);
    coder->bytes[coder->count++] = (uint8_t)(coder->high >> 24);
    return coder->count;
}

static inline int bit_decode(bit_coder *coder, uint32_t one) {
    uint32_t split = bit_coder_split(coder, one);
    int bit = coder->code <= split;
    bit_coder_narrow(coder, split, bit);
    while (coder->low >> 24 == coder->high >> 24) {
        coder->low <<= 8;
        coder->high = coder->high << 8 | 0xFF;
        coder->code = coder->code << 8 | bit_coder_take(coder);
    }
    return bit;
}

#endif
