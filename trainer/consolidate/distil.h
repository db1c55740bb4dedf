// Several sealed generations into one: a new generation learns to compute what they computed.
//
// The teacher is the present model, the student the same with a new generation instead of those;
// the text is that of the reservoir (Hinton et al. 2015). The pool's generations are only read, and
// the open one as it was last committed, which is as it is evaluated; the result belongs to no pool
// yet.
#ifndef REEF_DISTIL_H
#define REEF_DISTIL_H

#include "memory_texts.h"
#include "trainer_internal.h"

/** One window of the reservoir, as a consolidation sees it. */
typedef struct reef_sample {
    size_t slot;
    uint32_t generation; // whose text it is
    bool taught;         // one of the consolidated generations fires on most of it, or it is theirs
    bool held_out;       // only ever measured on
} reef_sample;

/** Is anything taught from it? Not where it is held out, or no longer than the context. */
static inline bool reef_sample_is_used(const reef_sample *sample, const reef_trainer *trainer) {
    const reef_reservoir *reservoir = &trainer->reservoir;
    size_t tokens = reservoir->sizes[sample->slot] / reservoir->token_bytes;
    return !sample->held_out && tokens > trainer->network.config.context;
}

typedef struct reef_distil {
    // Its model, reservoir, workers and pass; nothing stored changes. The open generation's weights
    // are its averages.
    reef_trainer *trainer;
    uint32_t first, last; // the generations that are consolidated
    uint32_t side;
    reef_dtype dtype;
    uint64_t steps;
    const reef_sample *samples; // (sample_count) enough to fit a gate on
    size_t sample_count;
    void (*progress)(void *context, uint64_t step, uint64_t steps, double bits); // may be NULL
    void *context;
} reef_distil;

/** The present owner of a number: itself, or the generation that it was consolidated into. */
uint32_t reef_distil_owner(const reef_network *network, uint32_t generation);

/**
 * Teach and seal a generation `last` of `side`. It has the gate that fires where one of the old
 * ones did.
 * out  the caller's
 * Errors: INVALID the router's queries are not finite; NO_MEMORY.
 */
REEF_MUST_CHECK reef_status reef_distil_run(const reef_distil *distil,
                                            reef_generation **out,
                                            reef_error *err);

// distil_memory.c

/**
 * The context memory of the new generation, in a pool that has such memories: it learns what is
 * left of the text that the old ones learned. Its net says nothing of it.
 *
 * First, in the order of the stream, the windows that are taught and in none of their texts; then
 * the text that each old memory keeps, the oldest generation's first.
 *
 * Errors: CORRUPT; NO_MEMORY; IO. Release `out`, after an error too.
 */
REEF_MUST_CHECK reef_status reef_distil_memory(const reef_distil *distil,
                                               reef_generation_memory *out,
                                               reef_error *err);

/**
 * What the memory of a sealed generation keeps of its kind's text; the caller frees `bytes`.
 * Nothing where it has no memory.
 * from  written: where it would begin in the stream, had nothing been left out
 * Errors: CORRUPT; NO_MEMORY; IO.
 */
REEF_MUST_CHECK reef_status reef_distil_read_text(reef_kept_text *out,
                                                  uint64_t *from,
                                                  const reef_trainer *trainer,
                                                  uint32_t generation,
                                                  reef_error *err);

// memory_cost.c

/**
 * What it will cost that one memory takes the place of several, into `memories` of the report.
 * Errors: CORRUPT; NO_MEMORY; IO.
 */
REEF_MUST_CHECK reef_status reef_distil_memory_costs(const reef_trainer *trainer,
                                                     uint32_t first,
                                                     uint32_t last,
                                                     reef_consolidation *report,
                                                     reef_error *err);

// distil_init.c

/**
 * First values of the student: rows, sub-keys, deltas and adapters of those it replaces. Its query
 * networks are already those of the generation it was initialised from.
 */
REEF_MUST_CHECK reef_status reef_distil_start(const reef_distil *distil,
                                              reef_generation *student,
                                              reef_error *err);

#endif
