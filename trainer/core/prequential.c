// Losses before training by source; see prequential.h.
#include "prequential.h"

#include "trainer_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RECENT_BYTES 65536.0 // the recent loss forgets as fast as so much comes

void reef_prequential_release(reef_prequential *prequential) {
    free(prequential->spans);
    *prequential = (reef_prequential){0};
}

// Spans that end before the first byte that is still to be scored.
static void drop_old(reef_prequential *p, uint64_t position) {
    size_t old = 0;
    while (old + 1 < p->count && p->spans[old + 1].begin <= position) old++;
    if (old == 0) return;
    p->count -= old;
    memmove(p->spans, p->spans + old, p->count * sizeof(*p->spans));
}

reef_status reef_prequential_source(reef_trainer *trainer, size_t source, reef_error *err) {
    reef_prequential *p = &trainer->stream.prequential;
    // Consecutive pieces of one source extend its span; only a change of source costs an entry.
    if (p->count > 0 && p->spans[p->count - 1].source == source) return REEF_OK;
    // Spans before the stream's position are finished. Dropping them here bounds the list by the
    // sources within the pending bytes.
    drop_old(p, trainer->stream_bytes);
    if (p->count == p->capacity) {
        size_t capacity = 2 * p->capacity + 16;
        reef_span *spans = realloc(p->spans, capacity * sizeof(*spans));
        if (spans == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the spans of %zu sources",
                             trainer->stream.source_count);
        p->spans = spans;
        p->capacity = capacity;
    }
    p->spans[p->count++] = (reef_span){
        .begin = trainer->stream_bytes + trainer->stream.pending_bytes, .source = source};
    return REEF_OK;
}

static void add_losses(reef_source *source, double sum, uint64_t count, uint64_t bytes) {
    double kept = exp(-(double)bytes / RECENT_BYTES);
    source->recent_sum = kept * source->recent_sum + sum;
    source->recent_count = kept * source->recent_count + (double)count;
    source->loss.recent = source->recent_sum / source->recent_count;
    source->loss.sum += sum;
    source->loss.scored += count;
}

void reef_prequential_count(reef_trainer *trainer,
                            uint64_t begin,
                            size_t each,
                            const double *loss,
                            double scale,
                            size_t count) {
    reef_prequential *p = &trainer->stream.prequential;
    size_t i = 0;
    // A batch that is decided again after a restart was counted before; bytes up to `scored` are
    // not counted twice.
    while (i < count && begin + i * each < p->scored) i++;
    for (size_t s = 0; s < p->count && i < count; s++) {
        uint64_t end = s + 1 < p->count ? p->spans[s + 1].begin : UINT64_MAX, counted = 0;
        double sum = 0.0;
        size_t first = i;
        for (; i < count && begin + i * each < end; i++) {
            // A negative loss marks a token without a prediction, such as the first of a window.
            if (begin + i * each < p->spans[s].begin || loss[i] < 0.0) continue;
            sum += scale * loss[i];
            counted++;
        }
        if (counted > 0)
            add_losses(&trainer->stream.sources[p->spans[s].source], sum, counted,
                       (i - first) * each);
    }
    uint64_t scored = begin + count * each;
    if (scored > p->scored) p->scored = scored;
}

bool reef_trainer_source_loss(const reef_trainer *trainer,
                              const char *source,
                              reef_source_loss *out) {
    *out = (reef_source_loss){0};
    for (size_t i = 0; i < trainer->stream.source_count; i++)
        if (strcmp(trainer->stream.sources[i].name, source) == 0)
            *out = trainer->stream.sources[i].loss;
    return out->scored > 0;
}

// ---- the last batches ---------------------------------------------------------------------------

void reef_recent_losses_add(reef_recent_losses *recent, double bits) {
    recent->bits[recent->next] = bits;
    recent->next = (recent->next + 1) % REEF_RECENT_BATCHES;
    if (recent->count < REEF_RECENT_BATCHES) recent->count++;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Sorting a copy costs microseconds beside a training step.
double reef_recent_losses_median(const reef_recent_losses *recent) {
    double sorted[REEF_RECENT_BATCHES];
    uint32_t count = recent->count;
    if (count == 0) return (double)NAN;
    memcpy(sorted, recent->bits, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), ascending);
    return count % 2 ? sorted[count / 2] : 0.5 * (sorted[count / 2 - 1] + sorted[count / 2]);
}
