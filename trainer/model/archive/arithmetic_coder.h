// An arithmetic coder of bits, in 32 bits and without carries, as in lpaq (Mahoney 2007).
//
// The range low .. high is split in proportion to the probabilities of both bits, and the part of
// the bit that came becomes the range. Bytes in which both ends agree are settled and leave it, so
// that a carry into them never happens. Where the ends stay on both sides of a byte's border the
// range becomes small, and a bit costs more than it should: rarely, and no bit is ever impossible.
//
// Behind the end of a code lie zeros: the encoder writes only what tells it from others, and the
// decoder reads nothing that is not there. Any bytes are a code of some bits.
#ifndef REEF_ARITHMETIC_CODER_H
#define REEF_ARITHMETIC_CODER_H

#include <stddef.h>
#include <stdint.h>

/** The bytes that do not fit into `room` are counted, and lost. */
typedef struct reef_encoder {
    uint32_t low, high; // both inclusive
    uint8_t *bytes;     // (room) the caller's; NULL with a room of 0: only the size is asked for
    size_t count, room;
} reef_encoder;

typedef struct reef_decoder {
    uint32_t low, high;
    uint32_t code;        // the bytes of the code that lie in the range
    const uint8_t *bytes; // (count) lent
    size_t at, count;
} reef_decoder;

void reef_encoder_init(reef_encoder *encoder, uint8_t *bytes, size_t room);
/** `one`: probability that the bit is 1, in units of 1/65536, 1 to 65535. */
void reef_encoder_put(reef_encoder *encoder, uint32_t one, int bit);
/** Writes the end. The code has `count` bytes then; if that is above `room`, it is not whole. */
void reef_encoder_end(reef_encoder *encoder);

void reef_decoder_init(reef_decoder *decoder, const uint8_t *bytes, size_t count);
/** The bit that was put with the same probability. */
int reef_decoder_take(reef_decoder *decoder, uint32_t one);

#endif
