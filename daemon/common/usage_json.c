// Usage of one layer; see reef_pool_json.h.
#include "reef_pool_json.h"

#include "reef_log.h"
#include "reef_usage.h"

#include <stdlib.h>

// ---- summing up ---------------------------------------------------------------------------------

static size_t bucket_of(uint64_t count) {
    size_t bucket = 0;
    while (count > 0 && bucket + 1 < REEF_USAGE_BUCKETS_MAX) {
        count >>= 1;
        bucket++;
    }
    return bucket;
}

// Insertion into the short list; among equals the lower id comes first because ids come in order.
static void note_top(reef_usage_layer *layer, const reef_usage *usage, uint32_t id) {
    if (usage[id].count == 0) return;
    size_t at = layer->top_count;
    while (at > 0 && usage[layer->top[at - 1]].count < usage[id].count) at--;
    if (at == REEF_USAGE_TOP) return;
    if (layer->top_count < REEF_USAGE_TOP) layer->top_count++;
    for (size_t i = layer->top_count - 1; i > at; i--) layer->top[i] = layer->top[i - 1];
    layer->top[at] = id;
}

static void summarise(reef_usage_layer *layer, const reef_usage *usage, size_t expert_count) {
    reef_usage_summarise(expert_count, usage, &layer->summary);
    // One pass over the experts gathers everything: a layer may have a million of them.
    for (size_t id = 0; id < expert_count; id++) {
        size_t bucket = bucket_of(usage[id].count);
        // Buckets are powers of two, so that a histogram of any layer fits on a screen.
        layer->buckets[bucket]++;
        if (bucket >= layer->bucket_count) layer->bucket_count = bucket + 1;
        note_top(layer, usage, (uint32_t)id);
        // Only the first unused experts are listed; their number is in the summary.
        if (bucket == 0 && layer->dead_count < REEF_USAGE_DEAD)
            layer->dead[layer->dead_count++] = (uint32_t)id;
    }
    // Shares are computed last, when the total is known.
    for (size_t i = 0; i < layer->top_count; i++)
        layer->top_share[i] =
            (double)usage[layer->top[i]].count / (double)layer->summary.selections;
}

reef_status reef_usage_layer_read(reef_txn *txn,
                                  const reef_generation_record *generation,
                                  uint32_t layer,
                                  const reef_usage_range *range,
                                  reef_usage_layer *out,
                                  reef_error *err) {
    size_t expert_count = (size_t)generation->side * generation->side;
    *out = (reef_usage_layer){0};
    // A range needs windows; without one the totals are the answer, which cost a single read.
    if (range != NULL) out->range = *range;
    reef_usage *usage = calloc(expert_count, sizeof(*usage));
    if (usage == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the usage of a layer");
    reef_status status =
        reef_usage_range_read(txn, generation->generation, layer, expert_count,
                              range != NULL ? &out->range : NULL, usage, &out->before, err);
    if (status == REEF_OK) summarise(out, usage, expert_count);
    free(usage);
    return status;
}

// ---- for others ---------------------------------------------------------------------------------

json_t *reef_usage_layer_json(uint32_t index, const reef_usage_layer *layer, bool ranged) {
    const reef_usage_summary *s = &layer->summary;
    json_t *top = json_array(), *dead = json_array(), *histogram = json_array();
    for (size_t i = 0; i < layer->top_count; i++)
        json_array_append_new(top, json_pack("{s:I, s:o}", "expert", (json_int_t)layer->top[i],
                                             "share", reef_json_number(layer->top_share[i])));
    for (size_t i = 0; i < layer->dead_count; i++)
        json_array_append_new(dead, reef_json_count(layer->dead[i]));
    for (size_t b = 0; b < layer->bucket_count; b++) {
        // Bucket b holds counts from 2^(b-1) to 2^b - 1; bucket 0 those that were never used.
        json_int_t low = b ? (json_int_t)1 << (b - 1) : 0, high = b ? 2 * low - 1 : 0;
        json_array_append_new(histogram, json_pack("{s:I, s:I, s:I}", "low", low, "high", high,
                                                   "experts", (json_int_t)layer->buckets[b]));
    }
    json_t *document = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "layer", (json_int_t)index, "experts",
        (json_int_t)s->expert_count, "used", (json_int_t)s->used_count, "dead",
        (json_int_t)(s->expert_count - s->used_count), "selections", (json_int_t)s->selections,
        "used_percent", reef_json_number(s->used_percent), "unevenness",
        reef_json_number(s->unevenness), "top", top, "dead_first", dead, "histogram", histogram);
    // Members about time only where a time was asked for.
    if (!ranged) return document;
    const reef_usage_range *range = &layer->range;
    // No window lies in the range: then it has no first and no last moment.
    bool any = range->windows > 0;
    json_object_set_new(document, "windows", reef_json_count(range->windows));
    json_object_set_new(document, "from_ms", reef_json_known(any, range->from_ms));
    json_object_set_new(document, "to_ms", reef_json_known(any, range->to_ms));
    json_object_set_new(document, "known_since_ms",
                        reef_json_known(range->known_ms > 0, range->known_ms));
    json_object_set_new(document, "selections_before", reef_json_count(layer->before));
    return document;
}
