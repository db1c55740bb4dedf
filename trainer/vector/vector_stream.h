// What the stream of a vector model is made of: batches, and the drift test on them.
#ifndef REEF_VECTOR_STREAM_H
#define REEF_VECTOR_STREAM_H

#include "ridge_sums.h"
#include "trainer_internal.h"

// vector_batch.c

/**
 * Is a record, number `number` of the stream, one of D values? INVALID says what is wrong with it.
 */
REEF_MUST_CHECK reef_status reef_vector_record_check(const uint8_t *record,
                                                     size_t D,
                                                     uint64_t number,
                                                     reef_error *err);
/**
 * Has the pool room for the label of record `at`, beside those of the `at` records before it, which
 * wait? FULL where it would be a class too many: such a record is never accepted, for nothing could
 * be done with it later.
 */
REEF_MUST_CHECK reef_status reef_vector_label_check(const reef_vector_network *network,
                                                    const uint8_t *records,
                                                    size_t at,
                                                    reef_error *err);
/** Rows of the batch from the records at `bytes`, the last piece filled up with zeros. */
REEF_MUST_CHECK reef_status reef_vector_batch_read(reef_vector *vector,
                                                   const uint8_t *bytes,
                                                   size_t rows,
                                                   reef_error *err);
/**
 * Hidden units and scores of the batch by the open generation alone; draws its experts at first.
 */
void reef_vector_batch_score(reef_trainer *trainer, size_t rows);
/** Hidden units that the gate reads. */
void reef_vector_batch_gate(reef_trainer *trainer, size_t rows);

// vector_drift.c

/** Labels of a batch, and wrong answers to them. */
typedef struct reef_vector_tally {
    uint32_t labelled, wrong;      // of all
    uint32_t mature, mature_wrong; // of labels that are known well
} reef_vector_tally;

/** scores (rows, C) */
reef_vector_tally reef_vector_tally_count(const reef_vector *vector,
                                          size_t rows,
                                          size_t C,
                                          const float *scores);
/** Errors of a batch that was learned, for what is expected of the next. */
void reef_vector_tally_remember(reef_vector *vector, const reef_vector_tally *tally);
/** Error rate tolerated before drift is suspected; above 1 while drift is not tested. */
double reef_vector_errors_tolerated(const reef_vector *vector);
/**
 * The sum of errors beyond `limit` over a batch, from `excess` on; *zero is after which example it
 * was zero last, 0 when never.
 */
double reef_vector_excess(
    const reef_vector *vector, size_t rows, double limit, double excess, size_t *zero);
/**
 * Are the batch's errors no more than is to be expected when its domain is known to some
 * generation?
 */
REEF_MUST_CHECK reef_status reef_vector_is_in_range(reef_vector *vector,
                                                    size_t rows,
                                                    bool *out,
                                                    reef_error *err);

#endif
