// Experience replay: a share of the windows of every step is raw data of earlier tasks, from the
// uniform reservoir (Robins 1995; Rolnick et al. 2019), which `reservoir_bytes` bounds. They
// replace rehearsal windows, so that a step has as many windows as with any other strategy while
// these are enough.
#include "batch.h"
#include "reef_random.h"
#include "strategy.h"
#include "trainer_internal.h"

static bool is_old(const reef_trainer *trainer, size_t slot) {
    const reef_reservoir *reservoir = &trainer->reservoir;
    return reservoir->sizes[slot] > 0 && reservoir->generations[slot] < trainer->strategy.task;
}

// The n-th slot of earlier tasks.
static size_t old_slot(const reef_trainer *trainer, size_t n) {
    size_t slot = 0;
    while (!is_old(trainer, slot) || n-- > 0) slot++;
    return slot;
}

size_t reef_replay_add(reef_trainer *trainer) {
    const reef_config *config = &trainer->network.config;
    const reef_reservoir *reservoir = &trainer->reservoir;
    if (trainer->strategy.kind != REEF_STRATEGY_REPLAY) return 0;
    size_t windows = reef_replay_windows(config, trainer->step), old = 0;
    // Counted in each step: the reservoir changes meanwhile. Twenty thousand slots, of 10 MB, take
    // some microseconds, and a pass milliseconds.
    for (size_t slot = 0; slot < reservoir->old_slots; slot++) old += is_old(trainer, slot);
    if (old == 0) return 0;
    size_t each = reservoir->token_bytes;
    size_t starts = reservoir->window_bytes / each - config->context;
    for (size_t i = 0; i < windows; i++) {
        // Numbered by step and window: a restart replays the same windows.
        uint64_t counter = 2 * (trainer->step * reef_replay_windows_max(config) + i);
        uint64_t n = reef_random_below(config->seed, REEF_STREAM_REPLAY, counter, old);
        size_t slot = old_slot(trainer, (size_t)n);
        size_t at =
            (size_t)reef_random_below(config->seed, REEF_STREAM_REPLAY, counter + 1, starts);
        reef_step_place(trainer, config->batch + i,
                        reservoir->bytes + slot * reservoir->window_bytes + at * each);
    }
    return windows;
}
