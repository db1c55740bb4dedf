// The windows that a trainer puts together for one pass.
#ifndef REEF_BATCH_H
#define REEF_BATCH_H

#include "trainer_internal.h"

/** Put the T tokens at `bytes`, and the one after them, into window `window` of the batch. */
void reef_batch_place(reef_trainer *trainer, size_t window, const uint8_t *bytes);

/** Fill windows with a text, side by side, as many as there are whole ones. Returns how many. */
size_t reef_batch_place_text(reef_trainer *trainer, const uint8_t *bytes, size_t count);

/** The first `windows` that lie in the trainer, as a batch; with `gradient` their weights too. */
reef_batch reef_batch_make(reef_trainer *trainer, size_t windows, size_t fires, bool gradient);

#endif
