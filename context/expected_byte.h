// The expected byte: the one that most of what is known expects, and how sure that is.
//
// Each context has a favourite, mostly the only byte that ever followed it, and each match expects
// a byte. They vote, by what came of such favourites before. Whether the winner comes is one
// question, which a mixer answers from all contexts and matches.
//
// Where the answer is sure enough, the byte is trusted: its eight bits are predicted from that one
// probability, and no tree of histories is read or written. The first bit that contradicts ends
// the trust. At which bit a wrong byte contradicts is learned:
//
//   escape       probability that the byte is another one, given the bits so far
//   divergence   of those that are, the part that contradicts in this bit
//   P(bit)       1 - escape * divergence
//
// After it the trees learn the bits so far, and predict the rest. In a byte that is not trusted the
// answer is one more input of its bits.
#ifndef REEF_EXPECTED_BYTE_H
#define REEF_EXPECTED_BYTE_H

#include "predictor.h"

/** The state before anything was learned. */
void reef_expected_state_init(reef_expected_state *state);

/** A byte begins, its cells and matches are found: which one is expected, and is it trusted? */
void reef_expected_find(reef_predictor *p);

/** The bit of the expected byte, while the bits so far agree with it; -1: none. */
static inline int reef_expected_bit(const reef_predictor *p) {
    int byte = p->expected_byte.byte;
    if (byte < 0 || (uint32_t)(byte | 256) >> (8 - p->bit) != p->bits) return -1;
    return byte >> (7 - p->bit) & 1;
}

/** What the answer is worth for the bit in hand of a byte that is not trusted. */
static inline reef_chance *reef_expected_chance(const reef_predictor *p) {
    return &p->state->expected.bits[p->bit][p->expected_byte.probability >> 11];
}

/** Probability of a one as the next bit of a trusted byte, 16 bits, 1 .. 65535. */
uint32_t reef_expected_predict(const reef_predictor *p);

/** That bit came; p->bit is still its number. Returns false where it ends the trust. */
bool reef_expected_update(reef_predictor *p, int bit);

/**
 * Read all bits of the trusted byte at once, before any was read: the same as calling
 * reef_expected_predict and reef_expected_update for each, and faster. Returns the product
 * of their probabilities.
 */
double reef_expected_read(reef_predictor *p);

/** The byte came: the answer learns it. */
void reef_expected_learn(reef_predictor *p, uint8_t byte);

#endif
