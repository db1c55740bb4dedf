// See posterior.h. Chosen on pieces of 60 to 2,000 bytes of five kinds (docs/LEARNING.md).
#include "posterior.h"

#include <math.h>
#include <string.h>

#define SHARE (1.0 / 150) // dealt out again with each byte
#define UNLIKELY 0.003    // a kind of less weight is dropped,
#define SHARES_LEAST 1.3  // and one of less than what a kind that knows nothing of the text gets
#define AWAKE 24          // bytes in which a woken kind has to gain weight
#define USUAL_BYTES 64    // over which surprise is averaged
#define USUAL_MORE 0.5    // bits a byte beyond that are no excess
#define PATIENCE_MIN 2.0  // bits of excess: less than a change costs by itself
#define PATIENCE_MAX 24.0
#define PATIENCE_MORE 1.1 // times, where none of the others was it
#define CHANGE_MORE 1.0   // bits a byte beyond the usual that are no sign of a change
#define CHANGE_BITS 16.0  // bits beyond that are one

static void end_kind(reef_posterior *p, size_t i) {
    p->running--;
    memmove(p->kinds + i, p->kinds + i + 1, (p->running - i) * sizeof(*p->kinds));
    memmove(p->weights + i, p->weights + i + 1, (p->running - i) * sizeof(*p->weights));
}

static void normalise(reef_posterior *p) {
    double sum = 0.0;
    for (size_t i = 0; i < p->running; i++) sum += p->weights[i];
    for (size_t i = 0; i < p->running; i++) p->weights[i] /= sum;
}

uint64_t reef_posterior_awake(const reef_posterior *p) {
    return p->length - p->woken;
}

// Raise the patience when waking others was in vain: a text whose kind is often surprised wakes
// them less often.
static void learn_patience(reef_posterior *p) {
    uint32_t likeliest = p->kinds[reef_posterior_likeliest(p)];
    double excess = fmin((PATIENCE_MIN + p->patience) * PATIENCE_MORE, PATIENCE_MAX);
    bool in_vain = false;
    for (size_t i = 0; i < p->ran; i++) in_vain |= p->before[i] == likeliest;
    p->patience = in_vain ? excess - PATIENCE_MIN : 0.0;
}

static double unlikely(const reef_posterior *p) {
    return fmax(UNLIKELY, SHARES_LEAST * SHARE / (double)p->running);
}

// Others are woken: is it because the text changes? Until those had their chance it still does.
static void note_change(reef_posterior *p, bool found) {
    p->changes = found || (p->changes && p->length < p->changed_at + AWAKE);
    if (!found) return;
    p->changed_at = p->length;
    p->changed_from = p->change_from;
    p->change = 0.0;
}

bool reef_posterior_begin_byte(reef_posterior *p) {
    if (p->running == 0) return false;
    if (reef_posterior_awake(p) == AWAKE && p->woken > 0) learn_patience(p);
    for (size_t i = p->running; i-- > 0 && reef_posterior_awake(p) >= AWAKE;)
        if (p->weights[i] < unlikely(p) && p->running > 1) end_kind(p, i);
    normalise(p);
    bool changes = p->change > CHANGE_BITS;
    if (!changes && p->excess <= PATIENCE_MIN + p->patience) return false;
    note_change(p, changes);
    p->excess = 0.0;
    p->woken = p->length;
    p->ran = p->running;
    memcpy(p->before, p->kinds, sizeof(p->before));
    return true;
}

bool reef_posterior_runs(const reef_posterior *p, uint32_t kind) {
    for (size_t i = 0; i < p->running; i++)
        if (p->kinds[i] == kind) return true;
    return false;
}

size_t reef_posterior_likeliest(const reef_posterior *p) {
    size_t best = 0;
    for (size_t i = 1; i < p->running; i++)
        if (p->weights[i] > p->weights[best]) best = i;
    return best;
}

void reef_posterior_join(reef_posterior *p, uint32_t kind, const float *bits, size_t count) {
    double share = SHARE / (double)(p->running + 1);
    // One that reads all of the text has what it would have if it had begun with the others.
    double weight = count == 0 ? share : 0.0;
    if (count == p->length) weight = p->length == 0 ? 1.0 : 1.0 / (double)p->began;
    // With each byte it would have got its share, and won or lost against the mean.
    for (size_t i = 0; i < count; i++) {
        double answered = p->bits[(p->length - count + i) % REEF_REPLAY];
        weight = (weight * (1.0 - SHARE) + share) * exp2(answered - (double)bits[i]);
    }
    if (p->running == REEF_RUNNING_MAX) {
        size_t least = 0;
        for (size_t i = 1; i < p->running; i++)
            if (p->weights[i] < p->weights[least]) least = i;
        end_kind(p, least);
    }
    p->kinds[p->running] = kind;
    p->weights[p->running++] = weight;
}

void reef_posterior_joined(reef_posterior *p) {
    normalise(p);
    if (p->length == 0) p->began = p->running;
}

double reef_posterior_read(reef_posterior *p, const float *bits) {
    double chance = 0.0, share = p->running > 1 ? SHARE : 0.0;
    for (size_t i = 0; i < p->running; i++) chance += p->weights[i] * exp2(-(double)bits[i]);
    for (size_t i = 0; i < p->running; i++) {
        double weight = p->weights[i] * exp2(-(double)bits[i]) / chance;
        p->weights[i] = weight * (1.0 - share) + share / (double)p->running;
    }
    double surprise = -log2(chance);
    p->bits[p->length++ % REEF_REPLAY] = (float)surprise;
    if (p->change <= 0.0) p->change_from = p->length - 1;
    p->change = fmax(p->change + surprise - p->usual - CHANGE_MORE, 0.0);
    p->excess = fmax(p->excess + surprise - p->usual - USUAL_MORE, 0.0);
    p->usual += (surprise - p->usual) / (double)(p->length < USUAL_BYTES ? p->length : USUAL_BYTES);
    return surprise;
}
