// What the kind of an older generation learned when it came back.
//
// A generation's memory is sealed with it, so that every state that has it stays exact. When its
// kind of text comes back, a copy of that memory continues to learn. What it learns is kept with
// the generation that is open meanwhile, the *holder*, and sealed with that one:
//
//   generation 0   memory: 400 kB of English                                       sealed
//   generation 1   memory: German       visits of kind 0: 20 kB more of English    sealed
//   generation 2   memory: Python       visits of kind 0: 90 kB more; of kind 1: 5 kB
//
// As of generation 1 the memory of kind 0 is that of generation 0 and the visit that generation 1
// holds; now it is both visits more. A visit is stored as what was learned, and as tables once that
// is long, so that few bytes are learned again when it is read.
//
// A kind that was merged into another one has a last visit without either, in the generation that
// was open then: from there on it has no memory, and before it states are as they were.
#ifndef REEF_VISIT_H
#define REEF_VISIT_H

#include "generation_memory.h"

typedef struct reef_visit {
    uint32_t kind;                  // the generation that began it
    uint64_t learned;               // bytes, of all its memory has learned
    uint64_t next;                  // position in the stream behind the last of them
    uint8_t chain[REEF_HASH_BYTES]; // of all of them: see generation_memory.h
    reef_generation_memory memory;  // owned; without tables where it is not loaded
    bool merged;                    // the kind ends here: another one learns its text
} reef_visit;

/** What of them is stored in the record `kinds` of a holder. */
#define REEF_VISIT_BYTES 56

#endif
