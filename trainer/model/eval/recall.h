// What the context memories of a model say of a text, with what its net says as one more input.
//
// Of each byte the generation answers that its gates chose: the newest that fires, else the first.
// Its memory predicts the byte and, in a session, learns it; for the other memories the byte passes
// by. All sessions begin anew with each text, so that what is said of it is a function of the state
// and the text.
#ifndef REEF_RECALL_H
#define REEF_RECALL_H

#include "generation.h"

typedef struct reef_recall {
    bool frozen; // memories do not adapt to what they read
    size_t generation_count;
    reef_memory_session **sessions; // (generation_count) NULL: none, or not asked yet
    uint64_t *read;                 // (generation_count) bytes of the text that each has met
    uint64_t *answered;             // (generation_count) of these, bytes that it predicted
    uint64_t length;                // of the text so far
    uint8_t *text;                  // owned: of it the last `kept` bytes
    size_t kept;
    float *bits; // (REEF_RECALL_PIECE) scratch
} reef_recall;

/** A text begins. Errors: NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_recall_begin(reef_recall *recall,
                                              const reef_network *network,
                                              reef_error *err);
void reef_recall_release(reef_recall *recall); // accepts zeros

/** From the next text on; what was read is forgotten. */
void reef_recall_freeze(reef_recall *recall, bool frozen);

/**
 * What each input of the mixers was worth in the text so far, over all memories that answered.
 *
 * shares, hits  (reef_memory_input_count()) written; zeros where none has
 *
 * Returns whether one has.
 */
bool reef_recall_inputs(const reef_recall *recall, double *shares, double *hits);

/** Is there a memory to ask? */
bool reef_recall_answers(const reef_network *network);

/**
 * Read `count` bytes more.
 *
 * fire         (generations, stride) which fire on byte i: fire[g * stride + i]; NULL: the first
 *              answers all
 * predictions  (count) of the net; NULL: it has not been asked
 * losses       (count) in: of the net, in nats; out: with a memory's help where one answers
 *
 * Errors: NO_MEMORY.
 */
REEF_MUST_CHECK reef_status reef_recall_read(reef_recall *recall,
                                             const reef_network *network,
                                             const uint8_t *bytes,
                                             size_t count,
                                             const uint8_t *fire,
                                             size_t stride,
                                             const reef_net_prediction *predictions,
                                             double *losses,
                                             reef_error *err);

/**
 * Probabilities of the byte after all that was read, and what they are without a memory otherwise.
 *
 * generation  that answers
 * p           (256) in: of the net; out: with the memory's help
 * tokens      that the net has in its window
 */
REEF_MUST_CHECK reef_status reef_recall_distribution(reef_recall *recall,
                                                     const reef_network *network,
                                                     size_t generation,
                                                     uint16_t tokens,
                                                     float *p,
                                                     reef_error *err);

/** The generation that answers where `fire` (generations, stride) says who fires on byte i. */
size_t reef_recall_generation(const reef_network *network,
                              const uint8_t *fire,
                              size_t stride,
                              size_t i);

#endif
