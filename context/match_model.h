// The longest earlier occurrence of the last bytes, and the byte that followed it.
//
// An index has, for a hash of the last `shortest` bytes, the lower 32 bits of the position behind
// their last occurrence; 0: none. The text keeps fewer bytes than these tell apart. A candidate is
// compared byte by byte, so it is what it seems. It is followed as long as it is right, and for
// some bytes after it was wrong: in logs one number differs and the rest agrees.
//
// Of a long match every eighth place or so is in the index, and the others are not looked up: a
// match is as good some bytes later. Fewer are entered as the text outgrows its index. So what is
// entered stays, far back in the text.
//
// Entry and candidate are two misses, one after the other. So a byte is followed in three steps,
// with other work between them.
#ifndef REEF_MATCH_MODEL_H
#define REEF_MATCH_MODEL_H

#include "lines.h"
#include "text.h"

#include <stdbool.h>

#define REEF_MATCHES 2 // one over the last 6 bytes, one over the last 20
static const uint32_t REEF_MATCH_SHORTEST[REEF_MATCHES] = {6, 20};
#define REEF_MATCH_LONG 12 // bytes from which on a match is a long one
#define REEF_MATCH_SAMPLED 8
#define REEF_MATCH_MISSES 8 // wrong bytes in a row of reading after which a match is given up
#define REEF_MATCH_LENGTH_MAX 65535
#define REEF_MATCH_STATES (32 * 4)

typedef struct reef_match {
    bool follows;    // there is a candidate
    uint32_t length; // bytes in agreement since the last wrong one
    uint32_t misses; // wrong ones since it was found
    uint64_t at;     // position of the byte that it expects
    uint64_t found;  // position behind an occurrence that was not compared yet; 0: none
    uint64_t hash;   // of about the last `shortest` bytes: older ones are shifted out
} reef_match;

/**
 * The text has one byte more, `byte`, at its end: follow the match, and ask for the entry of the
 * index that the last bytes have. `remembers`: false follows none into a session's own text.
 */
void reef_match_step(reef_match *match,
                     const reef_lines *index,
                     const reef_text *text,
                     uint32_t shortest,
                     uint8_t byte,
                     bool remembers);
/** Read that entry, ask for the text there and, where it `remembers`, enter the position. */
void reef_match_look_up(
    reef_match *match, reef_lines *index, const reef_text *text, uint32_t shortest, bool remembers);
/** Follow what was found, where it agrees in `shortest` bytes and the present match does not. */
void reef_match_take(reef_match *match, const reef_text *text, uint32_t shortest);

/** The hash after one byte more. */
static inline uint64_t reef_match_hash(uint64_t hash, uint32_t shortest, uint8_t byte) {
    // Every byte is shifted by 64 / shortest bits a step, so it is gone after `shortest` of them.
    return hash * (UINT64_C(0x2F0B4C47) << 64 / shortest) + byte + 1;
}
/** The entry that a hash has in the index, of a text that ends there; false: it is not entered. */
bool reef_match_entry(
    const reef_lines *index, uint64_t hash, uint32_t shortest, uint64_t end, size_t *entry);
#define REEF_MATCH_ENTRIES (REEF_LINE_BYTES / sizeof(uint32_t)) // a line

/** Entries of an index in one of twice the lines. `to`: zeros. */
void reef_match_index_double(reef_lines *to, const reef_lines *from);

/** The byte that it expects; -1: none. */
int reef_match_expected(const reef_match *match, const reef_text *text);

/** What the trust in a match depends on: 0 .. REEF_MATCH_STATES - 1. */
uint32_t reef_match_state(const reef_match *match);
/** 0 .. 31, growing with the length. */
uint32_t reef_match_length_class(uint32_t length);

#endif
