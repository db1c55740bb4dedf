// See kind_level.h.
#include "kind_level.h"
#include "recognition.h"
#include "reef_json_build.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NAT REEF_FAMILIARITY_PER_NAT
#define SPREAD_MIN 55.0  // 0.15 nats; the spread of a level, since real text varies more
#define SPREAD_YOUNG NAT // uncertainty of a level after one piece; falls as 1/sqrt(pieces)
#define UNKNOWN_LEVEL (-6.0 * NAT) // level of a kind before its first piece is counted
#define UNKNOWN_SPREAD (2.0 * NAT) // and its spread

// A level is taken over the last quarter of a kind's pieces, at most sixteen: a young kind's own
// text grows familiar quickly.
#define LEVEL_YOUNG 2.0
#define LEVEL_SHARE 4
#define LEVEL_RATE 16
#define LEVEL_CLIP 4.0 // mean deviations; a piece further off moves the level by no more than this

// Usual bits are the mean of the last half of what a kind learned, of so many bytes at most. How
// much they vary is seen in means of what is short against that.
#define BITS_SHARE 2
#define BITS_BYTES ((size_t)8 << 20)
#define BITS_SHORT ((size_t)96 << 10)

reef_status reef_kind_levels_reserve(reef_trainer *trainer, reef_error *err) {
    size_t count = trainer->network.generation_count;
    if (count > trainer->kinds.level_count) {
        reef_kind_level *levels = realloc(trainer->kinds.levels, count * sizeof(*levels));
        if (levels != NULL) {
            memset(levels + trainer->kinds.level_count, 0,
                   (count - trainer->kinds.level_count) * sizeof(*levels));
            trainer->kinds.levels = levels;
            trainer->kinds.level_count = count;
        }
    }
    return trainer->kinds.level_count >= count
               ? REEF_OK
               : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the levels of %zu kinds", count);
}

reef_status reef_kind_level_set(reef_trainer *trainer,
                                uint32_t kind,
                                const reef_kind_level *level,
                                reef_error *err) {
    if (!reef_recognises_by_contexts(trainer)) return REEF_OK;
    reef_status status = reef_kind_levels_reserve(trainer, err);
    if (status == REEF_OK) trainer->kinds.levels[kind] = *level;
    return status;
}

void reef_kind_level_forget(reef_trainer *trainer, uint32_t kind) {
    if (kind < trainer->kinds.level_count) trainer->kinds.levels[kind] = (reef_kind_level){0};
}

double reef_kind_level_deviation(const reef_kind_level *level, double familiarity) {
    if (level->pieces == 0) return (familiarity - UNKNOWN_LEVEL) / UNKNOWN_SPREAD;
    double spread = 1.25 * level->deviation; // of a normal distribution
    if (spread < SPREAD_MIN) spread = SPREAD_MIN;
    double young = SPREAD_YOUNG * SPREAD_YOUNG / (double)level->pieces;
    return (familiarity - level->mean) / sqrt(spread * spread + young);
}

void reef_kind_level_count(reef_kind_level *level, double familiarity) {
    level->pieces++;
    if (level->pieces == 1) {
        level->mean = familiarity;
        level->deviation = SPREAD_YOUNG / 2;
        return;
    }
    double rate = 1.0 / fmin(LEVEL_YOUNG + (double)level->pieces / LEVEL_SHARE, LEVEL_RATE);
    double off = familiarity - level->mean;
    double most = LEVEL_CLIP * (level->deviation > SPREAD_MIN ? level->deviation : SPREAD_MIN);
    if (level->pieces > LEVEL_RATE / 2 && fabs(off) > most) off = off < 0.0 ? -most : most;
    level->mean += off * rate;
    level->deviation += (fabs(off) - level->deviation) * rate;
}

reef_status reef_kind_level_count_bits(reef_trainer *trainer,
                                       uint32_t kind,
                                       double bits,
                                       reef_error *err) {
    if (!reef_recognises_by_contexts(trainer)) return REEF_OK;
    reef_status status = reef_kind_levels_reserve(trainer, err);
    if (status != REEF_OK) return status;
    reef_kind_level *level = &trainer->kinds.levels[kind];
    const double batch = (double)reef_batch_bytes(&trainer->network.config);
    level->batches++;
    double last_half = fmax((double)level->batches / BITS_SHARE, 1.0);
    double rate = 1.0 / fmin(last_half, (double)BITS_BYTES / batch);
    level->recent_bits += (bits - level->recent_bits) / fmin(last_half, (double)BITS_SHORT / batch);
    level->bits += (bits - level->bits) * rate;
    level->bits_deviation +=
        (fabs(level->recent_bits - level->bits) - level->bits_deviation) * rate;
    return REEF_OK;
}

uint64_t reef_kind_level_learned(const reef_trainer *trainer, uint32_t kind) {
    return trainer->kinds.levels[kind].batches * reef_batch_bytes(&trainer->network.config);
}

json_t *reef_kind_levels_to_json(const reef_trainer *trainer) {
    json_t *list = json_array();
    for (size_t g = 0; g < trainer->kinds.level_count; g++) {
        const reef_kind_level *level = &trainer->kinds.levels[g];
        if (level->pieces == 0 && level->batches == 0) continue;
        reef_json_append(&list, json_pack("[I, I, f, f, I, f, f, f]", (json_int_t)g,
                                          (json_int_t)level->pieces, level->mean, level->deviation,
                                          (json_int_t)level->batches, level->bits,
                                          level->bits_deviation, level->recent_bits));
    }
    return list;
}

reef_status reef_kind_levels_from_json(reef_trainer *trainer,
                                       const json_t *levels,
                                       reef_error *err) {
    reef_status status = reef_kind_levels_reserve(trainer, err);
    if (status != REEF_OK) return status;
    for (size_t i = 0; i < json_array_size(levels); i++) {
        const json_t *item = json_array_get(levels, i);
        json_int_t kind = json_integer_value(json_array_get(item, 0));
        if (kind < 0 || (size_t)kind >= trainer->kinds.level_count)
            return reef_fail(err, REEF_ERR_CORRUPT, "the trainer's state has a malformed level");
        trainer->kinds.levels[kind] =
            (reef_kind_level){.pieces = (uint64_t)json_integer_value(json_array_get(item, 1)),
                              .mean = json_real_value(json_array_get(item, 2)),
                              .deviation = json_real_value(json_array_get(item, 3)),
                              .batches = (uint64_t)json_integer_value(json_array_get(item, 4)),
                              .bits = json_real_value(json_array_get(item, 5)),
                              .bits_deviation = json_real_value(json_array_get(item, 6)),
                              .recent_bits = json_real_value(json_array_get(item, 7))};
    }
    return REEF_OK;
}

void reef_kind_levels_release(reef_trainer *trainer) {
    free(trainer->kinds.levels);
    trainer->kinds.levels = NULL;
    trainer->kinds.level_count = 0;
}
