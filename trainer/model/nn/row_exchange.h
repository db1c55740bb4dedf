// Rows of experts that other ranks own, fetched for one pass.
//
// A sum over experts is taken in the order in which they were chosen, so its bits need the rows
// themselves: what their owners could add up would be sums in another order. So rows travel to the
// tokens, each once to every rank that chose it.
#ifndef REEF_ROW_EXCHANGE_H
#define REEF_ROW_EXCHANGE_H

#include "activations.h"

/**
 * Fetch what generation g chose in layer l for the active windows first .. end - 1, and is not
 * here. Every rank that the rows are divided over calls it at once, each for its own windows, which
 * may be all. What was fetched before into the same tape goes.
 *
 * Nothing happens where all rows are here. A rank without memory for them ends all ranks.
 */
void reef_rows_fetch(reef_activations *acts,
                     const reef_network *network,
                     const reef_batch *batch,
                     size_t g,
                     uint32_t l,
                     size_t first,
                     size_t end);

/** A row and where it is to be copied to; both tables are divided alike. */
typedef struct reef_row_copy {
    const reef_expert_table *from;
    size_t from_expert;
    reef_expert_table *to; // of floats
    size_t to_expert;
} reef_row_copy;

/**
 * Copy values `at` .. `at` + `count` - 1 of each row, in this order, between ranks where its owners
 * differ. Every rank calls it with the same list. `ranks` may be NULL where rows are not divided.
 */
void reef_rows_copy(
    reef_ranks *ranks, size_t copies, const reef_row_copy *copy, size_t at, size_t count);

#endif
