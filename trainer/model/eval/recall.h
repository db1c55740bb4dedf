// What the context memories of a model predict of a text, with its net as one more input.
//
// A few kinds answer a byte together, each by how well it predicted so far (posterior.h). Their
// memories predict the byte and, in a session, learn it; for the other memories the byte passes by.
// All sessions are reset for each text, so that predictions are a function of the state and the
// text.
#ifndef REEF_RECALL_H
#define REEF_RECALL_H

#include "generation.h"
#include "posterior.h"
#include "reef_kind_vote.h"
#include "reef_model.h"

/** Least weight of a kind that learns of a text which several kinds answer, what it may. */
#define REEF_RECALL_ADAPT_WEIGHT 0.02

typedef struct reef_recall {
    reef_memory_reading reading; // what memories take from a text
    size_t generation_count;
    reef_memory_session **sessions; // (generation_count) NULL: none, or not asked yet
    bool *begun;                    // (generation_count) the text; else another one was its last
    uint64_t *read;                 // (generation_count) bytes of the text that each has met
    double *answered;               // (generation_count) of these, bytes that it predicted
    uint64_t length;                // of the text so far
    uint8_t *text;                  // owned: of it the last `kept` bytes
    size_t kept;
    reef_posterior posterior;
    bool net_is_chosen; // the kind that the net answers with: see reef_recall_net
    uint32_t net_kind;
    uint64_t chosen_for;                  // byte that the running kinds were chosen for, from 1 on
    reef_kind_vote *vote;                 // owned; NULL: not needed yet
    reef_net_prediction net[REEF_REPLAY]; // of byte i of the text at i % REEF_REPLAY
} reef_recall;

/** Bytes of a text, and what is known of them. */
typedef struct reef_recall_piece {
    const uint8_t *bytes; // (count)
    size_t count;
    const reef_net_prediction *net; // (count) of the net; NULL: it has not been asked
    reef_answers answers;           // zeros, or (count): written; which kinds answered byte i
} reef_recall_piece;

/** One kind alone answers bytes `from` to `to` - 1; nothing where that was not asked for. */
void reef_answers_set(const reef_answers *out, size_t from, size_t to, uint32_t kind);

/** A text begins. Errors: NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_recall_begin(reef_recall *recall,
                                              const reef_network *network,
                                              reef_error *err);
void reef_recall_release(reef_recall *recall); // accepts zeros

/** From the next text on; what was read is forgotten. */
void reef_recall_set_reading(reef_recall *recall, reef_memory_reading reading);

/**
 * What each input of the mixers was worth in the text so far, over all memories that answered.
 *
 * shares, hits  (reef_memory_input_count()) written; zeros where none has
 *
 * Returns whether one has.
 */
bool reef_recall_inputs(const reef_recall *recall, double *shares, double *hits);

/**
 * Which part of the text each generation's memory answered.
 *
 * shares  (generation_count) written; zeros before the first byte
 */
void reef_recall_shares(const reef_recall *recall, double *shares);

/** Is there a memory to ask? */
bool reef_recall_answers(const reef_network *network);

/**
 * The generation that the net answers what comes next with: the newest of the kind that was
 * likeliest where it was chosen last, behind 32 bytes of the text, and 512, 1024, ...: however the
 * text is cut into calls. 0 before that; the newest of all where no memory answers.
 */
size_t reef_recall_net(const reef_recall *recall, const reef_network *network);

/** How many bytes it answers with that generation from here on, at most. */
size_t reef_recall_net_left(const reef_recall *recall);

/**
 * Read more of the text.
 *
 * losses  (piece->count) in: of the net, in nats; out: with a memory's help where one answers
 *
 * Errors: NO_MEMORY.
 */
REEF_MUST_CHECK reef_status reef_recall_read(reef_recall *recall,
                                             const reef_network *network,
                                             const reef_recall_piece *piece,
                                             double *losses,
                                             reef_error *err);

/**
 * Probabilities of the byte after all that was read, and what they are without a memory otherwise.
 *
 * tokens  that the net has in its window
 * p       (256) in: of the net; out: with the memory's help
 */
REEF_MUST_CHECK reef_status reef_recall_distribution(
    reef_recall *recall, const reef_network *network, uint16_t tokens, float *p, reef_error *err);

#endif
