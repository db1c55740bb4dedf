// One expert of a layer as floats, wherever and in whichever type its row lies.
#ifndef REEF_PEER_ROW_H
#define REEF_PEER_ROW_H

#include "generation.h"

/** out[0 .. count - 1]: values from `from` on of row n, which is in reach (see residency.h). */
void reef_peer_row_read(const reef_peer *peer, size_t n, size_t from, size_t count, float *out);

#endif
