// Private to the module: see reef_lineage in reef_model.h.
#ifndef REEF_LINEAGE_H
#define REEF_LINEAGE_H

#include "reef_model.h"

/**
 * Where the stream stood in the last state that led both to the present one and to that of an older
 * commit.
 */
uint64_t reef_lineage_shared(const reef_lineage *lineage, uint64_t commit, uint64_t stream_bytes);

#endif
