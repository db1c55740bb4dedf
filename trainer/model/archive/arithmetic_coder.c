// An arithmetic coder of bits, in 32 bits and without carries, as in lpaq (Mahoney 2007).
//
// The range low .. high is split in proportion to the probabilities of both bits, and the part of
// the bit that came becomes the range. Bytes in which both ends agree are settled and leave it, so
// that a carry into them never happens. Where the ends stay on both sides of a byte's border the
// range becomes small, and a bit costs more than it should: rarely, and no bit is ever impossible.
//
// Behind the end of a code lie zeros: the encoder writes only what tells it from others, and the
// decoder reads nothing that is not there. Any bytes are a code of some bits.
#include "piece_coder.h"

#include <assert.h>

// The last value of a one's part. Outside of two bytes that agree the range is never empty, and a
// one's part is smaller than it: there is room for both bits.
static uint32_t split_of(uint32_t low, uint32_t high, uint32_t one) {
    assert(one >= 1 && one <= 65535);
    return low + (uint32_t)((uint64_t)(high - low) * one >> 16);
}

// ---- writing ------------------------------------------------------------------------------------

// NOLINTNEXTLINE(readability-non-const-parameter): it is written through the encoder
void reef_encoder_init(reef_encoder *encoder, uint8_t *bytes, size_t room) {
    *encoder = (reef_encoder){.high = UINT32_MAX, .bytes = bytes, .room = room};
}

static void give(reef_encoder *encoder, uint8_t byte) {
    if (encoder->count < encoder->room) encoder->bytes[encoder->count] = byte;
    encoder->count++;
}

void reef_encoder_put(reef_encoder *encoder, uint32_t one, int bit) {
    uint32_t split = split_of(encoder->low, encoder->high, one);
    if (bit)
        encoder->high = split;
    else
        encoder->low = split + 1;
    while (encoder->low >> 24 == encoder->high >> 24) {
        give(encoder, (uint8_t)(encoder->high >> 24));
        encoder->low <<= 8;
        encoder->high = encoder->high << 8 | 0xFF;
    }
}

void reef_encoder_end(reef_encoder *encoder) {
    // Any code within the range will do. Nothing at all is one, as zeros follow, if the range
    // begins with zero. Otherwise the ends differ in their first byte: that of the upper end, with
    // zeros behind it, lies between them.
    if (encoder->low > 0) give(encoder, (uint8_t)(encoder->high >> 24));
}

// ---- reading ------------------------------------------------------------------------------------

static uint8_t next(reef_decoder *decoder) {
    return decoder->at < decoder->count ? decoder->bytes[decoder->at++] : 0;
}

void reef_decoder_init(reef_decoder *decoder, const uint8_t *bytes, size_t count) {
    *decoder = (reef_decoder){.high = UINT32_MAX, .bytes = bytes, .count = count};
    for (int i = 0; i < 4; i++) decoder->code = decoder->code << 8 | next(decoder);
}

int reef_decoder_take(reef_decoder *decoder, uint32_t one) {
    uint32_t split = split_of(decoder->low, decoder->high, one);
    int bit = decoder->code <= split;
    if (bit)
        decoder->high = split;
    else
        decoder->low = split + 1;
    while (decoder->low >> 24 == decoder->high >> 24) {
        decoder->low <<= 8;
        decoder->high = decoder->high << 8 | 0xFF;
        decoder->code = decoder->code << 8 | next(decoder);
    }
    return bit;
}
