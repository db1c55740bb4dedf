// The text of a stream, which matches and the line above are read from.
//
// Positions count the bytes of the stream. They lie in blocks of a fixed size, which begin at its
// multiples. A block that is full never changes: its name is the XXH3-128 of its bytes, and it may
// be lent by who stores it. The newest bytes are kept, up to a bound: when a new block would exceed
// it, the oldest is dropped.
//
//   begin                                          end
//   | block | block | block | block | the one that is written
//     lent    lent    lent    own     own
//
// A view continues the text of another one in blocks of its own.
#ifndef REEF_TEXT_H
#define REEF_TEXT_H

#include "reef_context.h"

typedef struct reef_text_block {
    const uint8_t *bytes; // (REEF_TEXT_BLOCK_BYTES)
    uint8_t *own;         // the same, owned; NULL: they are lent
} reef_text_block;

typedef struct reef_text {
    reef_text_block *blocks; // owned: (count), the first has `begin`
    uint8_t *names;          // owned: (count * REEF_TEXT_NAME_BYTES) of full ones; NULL in a view
    size_t count, capacity;
    uint64_t bound;               // bytes that are kept, a multiple of a block
    uint64_t begin, end;          // positions that are here
    const struct reef_text *base; // of a view: what came before
    uint64_t base_end;            // of a view: where it began
} reef_text;

/** A text of no bytes. `bound`: at least two blocks. */
void reef_text_init(reef_text *text, uint64_t bound);
/** A view: `base` neither changes nor ends before it. */
void reef_text_init_view(reef_text *view, const reef_text *base);
void reef_text_release(reef_text *text); // accepts zeros
/** A view as it was at first; some of its memory is kept. */
void reef_text_reset(reef_text *view);

/** Where a text of `end` bytes begins that keeps `bound` of them. */
uint64_t reef_text_begin(uint64_t end, uint64_t bound);
/** The text is `end` bytes long, of a text of none: its blocks have no bytes yet. NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_text_announce(reef_text *text, uint64_t end, reef_error *err);
/** The bytes of a block that is full stay as long as the text does, or are copied: NO_MEMORY. */
void reef_text_lend(reef_text *text, size_t block, const uint8_t *bytes);
REEF_MUST_CHECK reef_status reef_text_copy(reef_text *text,
                                           size_t block,
                                           const uint8_t *bytes,
                                           reef_error *err);
/** The last block where it is not full, to be filled: end % REEF_TEXT_BLOCK_BYTES bytes. */
uint8_t *reef_text_last(const reef_text *text);
/** Bytes of memory that it takes. */
uint64_t reef_text_bytes(const reef_text *text);
/** How many blocks are full. */
static inline size_t reef_text_full(const reef_text *text) {
    return (size_t)(text->end / REEF_TEXT_BLOCK_BYTES - text->begin / REEF_TEXT_BLOCK_BYTES);
}

/** Room for `count` bytes more, of one block at most. */
REEF_MUST_CHECK reef_status reef_text_reserve(reef_text *text, uint64_t count, reef_error *err);
/** Name a block that is full. */
void reef_text_name(reef_text *text, size_t block);

static inline void reef_text_push(reef_text *text, uint8_t byte) {
    size_t block =
        (size_t)(text->end / REEF_TEXT_BLOCK_BYTES) - (size_t)(text->begin / REEF_TEXT_BLOCK_BYTES);
    text->blocks[block].own[text->end % REEF_TEXT_BLOCK_BYTES] = byte;
    text->end++;
    if (text->end % REEF_TEXT_BLOCK_BYTES == 0) reef_text_name(text, block);
}

/** Where the byte at a position is; NULL: it is forgotten, or not there yet. */
static inline const uint8_t *reef_text_find(const reef_text *text, uint64_t position) {
    if (position - text->begin >= text->end - text->begin) {
        text = text->base;
        if (text == NULL || position - text->begin >= text->end - text->begin) return NULL;
    }
    size_t block =
        (size_t)(position / REEF_TEXT_BLOCK_BYTES) - (size_t)(text->begin / REEF_TEXT_BLOCK_BYTES);
    return text->blocks[block].bytes + position % REEF_TEXT_BLOCK_BYTES;
}

/** The byte at a position; *known is 0 where it is forgotten or not there yet. */
static inline uint8_t reef_text_at(const reef_text *text, uint64_t position, int *known) {
    const uint8_t *byte = reef_text_find(text, position);
    *known = byte != NULL;
    return byte != NULL ? *byte : 0;
}

/** Ask for the byte at a position, wherever it is. */
static inline void reef_text_prefetch(const reef_text *text, uint64_t position) {
    const uint8_t *byte = reef_text_find(text, position);
    if (byte != NULL) __builtin_prefetch(byte);
}

#endif
