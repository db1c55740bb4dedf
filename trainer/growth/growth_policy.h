// When and by how much a pool grows, as the configuration asks for it.
//
//   boundaries  contexts: by_contexts.c asks the memories. drift: stream.c asks drift_test.c.
//               given: marker lines (marker_line.c) and commands only. budget: every
//               boundary_bytes of the stream, counted from the last boundary.
//               capacity: once capacity_share of the open generation's experts, of all layers
//               together, were used capacity_uses times each; checked every REEF_POLICY_STEPS
//               steps.
//   growth      a boundary seals the open generation and opens the next, or enlarges it in place by
//               as many experts as the next would have.
//   size_new    the side of the next: side_new, or between half and twice of it by the distance of
//               the new data from what is known.
//   experts_max what all of it together may not exceed: then the smallest side is tried, and if
//               that is too much as well, the open generation continues to train.
//   kinds_max   how many generations there may be: the last one continues to train.
#ifndef REEF_GROWTH_POLICY_H
#define REEF_GROWTH_POLICY_H

#include "enlarge.h"
#include "trainer_internal.h"

#define REEF_POLICY_STEPS 32 // steps of training from one check of the usage to the next
// deferred batches that a measurement passes through the model, at most
#define REEF_PROBE_BATCHES 8

/** Why the batch that was just trained ends at a boundary, or NULL. */
const char *reef_policy_due(const reef_trainer *trainer);

/**
 * Decide how large the next generation is. `fresh` are whole batches of its data, in the stream
 * from the first pending byte on and followed by one byte more, or none: then its distance is
 * unknown. out->side is 0 where there is no room.
 */
REEF_MUST_CHECK reef_status reef_policy_size(reef_trainer *trainer,
                                             const char *reason,
                                             const uint8_t *fresh,
                                             size_t fresh_bytes,
                                             reef_opening *out,
                                             reef_error *err);

/** A boundary of the stream, in memory: grow, or write an event that says that no room is left. */
REEF_MUST_CHECK reef_status reef_policy_boundary(reef_trainer *trainer,
                                                 const char *reason,
                                                 const uint8_t *fresh,
                                                 size_t fresh_bytes,
                                                 reef_error *err);

/** Was a boundary refused for want of room, and is there none still? */
bool reef_policy_is_full(const reef_trainer *trainer);

/** FULL when the open generation with `side` sub-keys a side would exceed experts_max. */
REEF_MUST_CHECK reef_status reef_policy_check_side(const reef_trainer *trainer,
                                                   uint32_t side,
                                                   reef_error *err);

/** FULL, with what leaves no room for another generation. */
reef_status reef_policy_fail_full(const reef_trainer *trainer, reef_error *err);

/** Generations with which kinds began. */
uint32_t reef_policy_kinds(const reef_trainer *trainer);

/** Experts in all generations and layers. */
uint64_t reef_policy_experts(const reef_trainer *trainer);

/** Called after a batch's forward pass in training mode. `number`: how many were before it. */
typedef void (*reef_probe_visit)(void *context, size_t number, double bits);

/** How many of that many fresh batches a walk probes. */
size_t reef_probe_count(size_t batches);

/**
 * Walk over whole fresh batches, as reef_policy_size has them, probing some of them, evenly spaced.
 * unclaimed  written: share of their bytes on which no gate fires; may be NULL
 */
REEF_MUST_CHECK reef_status reef_probe_walk(reef_trainer *trainer,
                                            const uint8_t *fresh,
                                            size_t batches,
                                            reef_probe_visit visit,
                                            void *context,
                                            double *unclaimed,
                                            reef_error *err);

/** The smallest side with at least as many new experts as a generation of `side_new` would have. */
uint32_t reef_grid_side(uint32_t side, uint32_t side_new);

/** Experts that a boundary with `side_new` adds to each layer; UINT64_MAX: it cannot be. */
uint64_t reef_growth_added_experts(const reef_trainer *trainer, uint32_t side_new);

/** Does experts_max leave room for so many more experts in each layer? */
bool reef_growth_has_experts(const reef_trainer *trainer, uint64_t experts);

/** Is there room for another generation, and so many more experts in each layer? */
bool reef_growth_has_room(const reef_trainer *trainer, uint64_t experts);

/** The smallest side that a boundary may open a generation with. */
uint32_t reef_growth_smallest_side(const reef_config *config);

#endif
