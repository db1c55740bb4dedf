// The windows that a trainer puts together for one pass, and the gates' decisions about them.
#ifndef REEF_BATCH_H
#define REEF_BATCH_H

#include "trainer_internal.h"

/** Put the T tokens at `bytes`, and the one after them, into window `window` of the batch. */
void reef_batch_place(reef_trainer *trainer, size_t window, const uint8_t *bytes);

/** The most windows that a training batch can have. */
size_t reef_batch_windows(const reef_config *config);

/**
 * Place the batch at `bytes` and let every gate decide about it: `fire` and `margins`. `gating`
 * moves on.
 */
void reef_batch_decide(reef_trainer *trainer, const uint8_t *bytes, reef_gating *gating);

/**
 * Let the model's gates decide about a text of `size` tokens (at most a batch), read from its
 * start, beside the batch that is being assembled: into `reading` and `margins`. `out` is that
 * text, for a forward pass; the last token has no loss, as nothing follows it.
 */
REEF_MUST_CHECK reef_status reef_batch_read(reef_trainer *trainer,
                                            const reef_network *network,
                                            const uint8_t *bytes,
                                            size_t size,
                                            reef_batch *out,
                                            reef_error *err);

/** (windows * T) of generation g in `reading`. */
uint8_t *reef_batch_read_fire(const reef_trainer *trainer, size_t g);

/** Make room in `fire`, `margins` and `reading` for that many generations. */
REEF_MUST_CHECK reef_status reef_batch_reserve(reef_trainer *trainer,
                                               size_t generation_count,
                                               reef_error *err);

/** The windows that lie in the trainer, as a batch; with `gradient` their weights too. */
reef_batch reef_batch_make(reef_trainer *trainer,
                           size_t windows,
                           size_t retain_windows,
                           bool gradient);

/** Tokens of all windows there is room for: from one generation's firing to the next one's. */
size_t reef_batch_stride(const reef_trainer *trainer);

#endif
