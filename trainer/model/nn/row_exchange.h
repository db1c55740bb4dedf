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

#endif
