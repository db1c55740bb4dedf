// The gate of one generation: does this stream look like the generation's data or like older data?
// A linear score of hashed 1- to 4-grams, a causal mean over the stream, a calibrated threshold.
//
// What always holds: a margin depends on the bytes of the stream up to it and on the gate, not on how
// the stream is cut into calls; training is a function of its arguments alone. Which windows are old
// and which are new, and what happens when a gate fires, is the caller's business.
#include "reef_router.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EPOCHS_DEFAULT 3
#define DECAY_DEFAULT 0.995f

// AdaGrad's rate: the first step of a weight is as large as this, later ones shrink as its squared
// gradients add up. Weights of n-grams that were never seen stay exactly 0.
#define RATE 0.5f

#define GRADIENT_MIN 1e-9f // of a token's logit; its square is still a normal float
#define NEW_QUANTILE 0.01  // of the settled means of new windows: where new data "is"

// ---- features ------------------------------------------------------------------------------------

// Where the weight of an n-gram lies is part of the pool's format: a sealed gate reads the same for
// ever. In row n - 1 of the weights, with the newest byte of the n-gram in the low byte of its key:
//
//   n = 1, 2   bucket = key
//   n = 3      bucket = upper 16 bits of key * 2654435769 (mod 2^32)
//   n = 4      bucket = upper 16 bits of key * 2246822507 (mod 2^32)

// The last four bytes of a stream, newest in the low byte, and how many of them are there.
typedef struct recent_bytes {
    uint32_t bytes;
    uint32_t count;
} recent_bytes;

static void recent_push(recent_bytes *recent, uint8_t byte) {
    recent->bytes = recent->bytes << 8 | byte;
    if (recent->count < REEF_GATE_ORDERS) recent->count++;
}

// Orders 1 and 2 have a bucket for every value. Orders 3 and 4 take the upper half of a product with an
// odd constant (2^32 / golden ratio; the first multiplier of MurmurHash3's finaliser), which every
// byte of the key reaches.
static uint32_t buckets_of(const recent_bytes *recent, uint32_t bucket[REEF_GATE_ORDERS]) {
    uint32_t bytes = recent->bytes;
    bucket[0] = bytes & 0xffu;
    bucket[1] = REEF_GATE_BUCKETS + (bytes & 0xffffu);
    bucket[2] = 2 * REEF_GATE_BUCKETS + ((bytes & 0xffffffu) * 2654435769u >> 16);
    bucket[3] = 3 * REEF_GATE_BUCKETS + (bytes * 2246822507u >> 16);
    return recent->count;
}

static float logit_of(const reef_gate *gate, const recent_bytes *recent) {
    uint32_t bucket[REEF_GATE_ORDERS];
    uint32_t orders = buckets_of(recent, bucket);
    float logit = gate->bias;
    for (uint32_t n = 0; n < orders; n++) logit += gate->weights[bucket[n]];
    return logit;
}

// ---- scoring -------------------------------------------------------------------------------------

reef_status reef_gate_init(reef_gate *gate, reef_error *err) {
    *gate = (reef_gate){.decay = DECAY_DEFAULT, .threshold = INFINITY};
    gate->weights = calloc(REEF_GATE_WEIGHTS, sizeof(*gate->weights));
    if (gate->weights) return REEF_OK;
    return reef_fail(err, REEF_NO_MEMORY, "no memory for the %u weights of a gate",
                     REEF_GATE_WEIGHTS);
}

void reef_gate_release(reef_gate *gate) {
    free(gate->weights);
    *gate = (reef_gate){0};
}

void reef_gate_reset(const reef_gate *gate, reef_gate_state *state) {
    *state = (reef_gate_state){.mean = gate->start};
}

static recent_bytes recent_from(const reef_gate_state *state) {
    recent_bytes recent = {0};
    for (size_t n = state->context_bytes; n > 0; n--) recent_push(&recent, state->context[n - 1]);
    return recent;
}

static void recent_keep(const recent_bytes *recent, reef_gate_state *state) {
    size_t kept = recent->count < sizeof(state->context) ? recent->count : sizeof(state->context);
    for (size_t n = 0; n < kept; n++) state->context[n] = (uint8_t)(recent->bytes >> 8 * n);
    state->context_bytes = (uint8_t)kept;
}

// The start of a stream counts like this many tokens of old data. Less than the mean's long memory, so
// that evidence in the first bytes tells early.
#define PRIOR_COUNT 64.0f

// means[t] = causal mean of the logits after byte t.
static void score_means(const reef_gate *gate,
                        reef_gate_state *state,
                        size_t count,
                        const uint8_t *bytes,
                        float *means) {
    recent_bytes recent = recent_from(state);
    float mean = state->mean, memory = 1.0f - gate->decay;
    for (size_t t = 0; t < count; t++) {
        recent_push(&recent, bytes[t]);
        float share = 1.0f / (PRIOR_COUNT + (float)state->count + 1.0f);
        if (share > memory) state->count++; // still young; no need to count on
        mean += (share > memory ? share : memory) * (logit_of(gate, &recent) - mean);
        means[t] = mean;
    }
    state->mean = mean;
    recent_keep(&recent, state);
}

void reef_gate_score(const reef_gate *gate,
                     reef_gate_state *state,
                     size_t count,
                     const uint8_t *bytes,
                     float *margin) {
    score_means(gate, state, count, bytes, margin);
    for (size_t t = 0; t < count; t++) margin[t] -= gate->threshold;
}

// ---- fitting -------------------------------------------------------------------------------------

static size_t windows_bytes(const reef_gate_windows *windows) {
    size_t bytes = 0;
    for (size_t i = 0; i < windows->count; i++) bytes += windows->sizes[i];
    return bytes;
}

// A reader that goes round and round through a set of windows, byte by byte. n-grams do not reach over
// the edge of a window: its neighbours in the set are not its neighbours in the stream.
typedef struct cursor {
    const reef_gate_windows *windows;
    size_t window, at;
    recent_bytes recent;
} cursor;

static void cursor_next(cursor *c) {
    while (c->at == c->windows->sizes[c->window]) {
        c->window = (c->window + 1) % c->windows->count;
        c->at = 0;
        c->recent = (recent_bytes){0};
    }
    recent_push(&c->recent, c->windows->bytes[c->window][c->at++]);
}

// A weight and the sum of its squared gradients, side by side: one cache line for both.
typedef struct fitted {
    float weight, squares;
} fitted;

static void fitted_step(fitted *f, float gradient) {
    f->squares += gradient * gradient;
    f->weight -= RATE * gradient / sqrtf(f->squares);
}

// One step of logistic regression on the newest token of a cursor; `label` is 1 for new.
static void fit_token(fitted *weights, fitted *bias, const cursor *c, float label) {
    uint32_t bucket[REEF_GATE_ORDERS];
    uint32_t orders = buckets_of(&c->recent, bucket);
    float logit = bias->weight;
    for (uint32_t n = 0; n < orders; n++) logit += weights[bucket[n]].weight;
    float gradient = 1.0f / (1.0f + expf(-logit)) - label;
    // A token whose side is settled beyond the precision of a float has nothing to teach; its square
    // would be 0 as well, and 0 / 0 no number.
    if (fabsf(gradient) < GRADIENT_MIN) return;
    fitted_step(bias, gradient);
    for (uint32_t n = 0; n < orders; n++) fitted_step(&weights[bucket[n]], gradient);
}

// Old and new take turns token by token, and the smaller set goes round more often: the classes weigh
// the same however unequal the sets are.
static void fit_turns(fitted *weights,
                      fitted *bias,
                      const reef_gate_windows *old,
                      const reef_gate_windows *new,
                      uint32_t epochs) {
    size_t old_bytes = windows_bytes(old), new_bytes = windows_bytes(new);
    size_t turns = (old_bytes > new_bytes ? old_bytes : new_bytes) * epochs;
    cursor old_cursor = {.windows = old}, new_cursor = {.windows = new};
    for (size_t i = 0; i < turns; i++) {
        cursor_next(&old_cursor);
        fit_token(weights, bias, &old_cursor, 0.0f);
        cursor_next(&new_cursor);
        fit_token(weights, bias, &new_cursor, 1.0f);
    }
}

// Always from zero, so that a refreshed gate is the gate that a first fit on the same windows gives.
static void fit_weights(reef_gate *gate,
                        fitted *weights,
                        const reef_gate_windows *old,
                        const reef_gate_windows *new,
                        uint32_t epochs) {
    fitted bias = {0};
    memset(weights, 0, REEF_GATE_WEIGHTS * sizeof(*weights));
    fit_turns(weights, &bias, old, new, epochs);
    for (size_t i = 0; i < REEF_GATE_WEIGHTS; i++) gate->weights[i] = weights[i].weight;
    gate->bias = bias.weight;
}

// What a token of these windows scores on average.
static float mean_logit(const reef_gate *gate, const reef_gate_windows *windows) {
    size_t bytes = windows_bytes(windows);
    cursor c = {.windows = windows};
    double sum = 0;
    for (size_t i = 0; i < bytes; i++) {
        cursor_next(&c);
        sum += (double)logit_of(gate, &c.recent);
    }
    return (float)(sum / (double)bytes);
}

// ---- calibration ---------------------------------------------------------------------------------

// Windows are read in two ways. Apart, each from the start, as after a record boundary: this is what
// short records see. Chained into one stream, as if each continued the one before: windows are short
// against the memory of the mean (200 bytes at 0.995), so only this shows the settled means that long
// streams live with.
typedef enum reading { APART, CHAINED } reading;

// means (bytes of the windows) is written.
static size_t read_means(const reef_gate *gate,
                         const reef_gate_windows *windows,
                         reading how,
                         float *means) {
    reef_gate_state state;
    size_t count = 0;
    reef_gate_reset(gate, &state);
    for (size_t i = 0; i < windows->count; i++) {
        if (how == APART) reef_gate_reset(gate, &state);
        score_means(gate, &state, windows->sizes[i], windows->bytes[i], means + count);
        count += windows->sizes[i];
    }
    return count;
}

static void swap(float *a, float *b) {
    float kept = *a;
    *a = *b;
    *b = kept;
}

// The value that would stand at `rank` if `values` were sorted upwards; reorders them (Hoare's FIND).
static float value_at_rank(size_t count, float *values, size_t rank) {
    size_t low = 0, high = count - 1;
    while (low < high) {
        size_t i = low, j = high;
        float pivot = values[low + (high - low) / 2];
        while (i <= j) {
            while (values[i] < pivot) i++;
            while (values[j] > pivot) j--;
            if (i > j) break;
            swap(&values[i++], &values[j]);
            if (j == 0) break; // i is beyond it now
            j--;
        }
        if (rank <= j)
            high = j;
        else if (rank >= i)
            low = i;
        else
            break; // between the parts: equal to the pivot
    }
    return values[rank];
}

// The smallest value that at most `share` of the values exceed; reorders them.
static float upper_quantile(size_t count, float *values, double share) {
    size_t above = (size_t)((double)count * share);
    return value_at_rank(count, values, above < count ? count - 1 - above : 0);
}

// The threshold that old data asks for.
static float leak_threshold(const reef_gate *gate,
                            const reef_gate_windows *old,
                            float leak_max,
                            float *means) {
    size_t count = read_means(gate, old, APART, means);
    float apart = upper_quantile(count, means, (double)leak_max);
    read_means(gate, old, CHAINED, means);
    float chained = upper_quantile(count, means, (double)leak_max);
    return apart > chained ? apart : chained;
}

// The mean that all but 1 % of the tokens of new data exceed, once a stream has settled in it: after
// two time constants of the mean. -INFINITY when the windows do not reach so far.
static float settled_mean(const reef_gate *gate, const reef_gate_windows *new, float *means) {
    size_t count = read_means(gate, new, CHAINED, means);
    size_t settling = (size_t)ceil(2.0 / (1.0 - (double)gate->decay));
    if (count <= settling) return -INFINITY;
    return upper_quantile(count - settling, means + settling, 1.0 - NEW_QUANTILE);
}

// The first and the second half of a set of windows; a window over the middle is cut.
typedef struct halves {
    reef_gate_windows half[2];
    const uint8_t **bytes; // (2, count) owned
    size_t *sizes;         // (2, count) owned
} halves;

static void halves_release(halves *h) {
    free(h->bytes);
    free(h->sizes);
    *h = (halves){0};
}

static bool halves_init(halves *h, const reef_gate_windows *windows) {
    *h = (halves){0};
    h->bytes = calloc(2 * windows->count, sizeof(*h->bytes));
    h->sizes = calloc(2 * windows->count, sizeof(*h->sizes));
    if (!h->bytes || !h->sizes) {
        halves_release(h);
        return false;
    }
    size_t left = windows_bytes(windows) / 2; // of the first half
    for (size_t i = 0; i < windows->count; i++) {
        size_t size = windows->sizes[i], first = size < left ? size : left;
        h->bytes[i] = windows->bytes[i];
        h->sizes[i] = first;
        h->bytes[windows->count + i] = windows->bytes[i] + first;
        h->sizes[windows->count + i] = size - first;
        left -= first;
    }
    h->half[0] = (reef_gate_windows){windows->count, h->bytes, h->sizes};
    h->half[1] =
        (reef_gate_windows){windows->count, h->bytes + windows->count, h->sizes + windows->count};
    return true;
}

// How far new data that was not fitted stays above old data, as a share of what the fitted windows
// show. Fitted windows flatter: with 24 KiB of Python after Wikipedia the distance on other Python
// files is 0.29 of it. One pass over the first half, judged on the second, comes out at 0.6 there,
// and between 0.4 and 1 for other pairs.
static double fitted_share(reef_gate *gate,
                           fitted *weights,
                           const reef_gate_windows *old_fit,
                           const reef_gate_windows *old_calibrate,
                           const halves *new,
                           float leak_max,
                           float *means) {
    if (windows_bytes(&new->half[0]) == 0) return 0;
    fit_weights(gate, weights, old_fit, &new->half[0], 1);
    gate->start = mean_logit(gate, old_calibrate);
    float old = leak_threshold(gate, old_calibrate, leak_max, means);
    float seen = settled_mean(gate, &new->half[0], means);
    float unseen = settled_mean(gate, &new->half[1], means);
    if (!(unseen > old) || !(seen > old)) return 0;
    return unseen < seen ? ((double)unseen - (double)old) / ((double)seen - (double)old) : 1;
}

static float fired_share(const reef_gate *gate,
                         const reef_gate_windows *windows,
                         reading how,
                         float *means) {
    size_t count = read_means(gate, windows, how, means), fired = 0;
    for (size_t i = 0; i < count; i++) fired += means[i] > gate->threshold;
    return (float)((double)fired / (double)count);
}

// ---- training ------------------------------------------------------------------------------------

static reef_status train_check(const reef_gate_windows *old_fit,
                               const reef_gate_windows *old_calibrate,
                               const reef_gate_windows *new_windows,
                               const reef_gate_fit *fit,
                               reef_error *err) {
    const struct {
        const char *name;
        const reef_gate_windows *windows;
    } sets[] = {{"old windows to fit", old_fit},
                {"old windows to calibrate", old_calibrate},
                {"new windows", new_windows}};
    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++) {
        if (windows_bytes(sets[i].windows) == 0)
            return reef_fail(err, REEF_INVALID, "the %s of a gate hold no bytes", sets[i].name);
    }
    if (!(fit->decay >= 0.0f && fit->decay < 1.0f))
        return reef_fail(err, REEF_INVALID, "the decay of a gate is %g, but must be 0 to below 1",
                         (double)fit->decay);
    if (!(fit->leak_max >= 0.0f && fit->leak_max <= 1.0f))
        return reef_fail(err, REEF_INVALID, "the leak_max of a gate is %g, but must be 0 to 1",
                         (double)fit->leak_max);
    return REEF_OK;
}

reef_status reef_gate_train(reef_gate *gate,
                            const reef_gate_windows *old_fit,
                            const reef_gate_windows *old_calibrate,
                            const reef_gate_windows *new_windows,
                            reef_gate_fit *fit,
                            reef_error *err) {
    fitted *weights = NULL;
    float *means = NULL;
    halves new_halves = {0};
    assert(gate->weights);

    reef_status status = train_check(old_fit, old_calibrate, new_windows, fit, err);
    if (status != REEF_OK) goto cleanup;
    size_t old_bytes = windows_bytes(old_calibrate), new_bytes = windows_bytes(new_windows);
    weights = calloc(REEF_GATE_WEIGHTS, sizeof(*weights));
    means = calloc(old_bytes > new_bytes ? old_bytes : new_bytes, sizeof(*means));
    if (!weights || !means || !halves_init(&new_halves, new_windows)) {
        status = reef_fail(err, REEF_NO_MEMORY, "no memory to fit a gate on %zu bytes",
                           windows_bytes(old_fit) + old_bytes + new_bytes);
        goto cleanup;
    }

    gate->decay = fit->decay > 0.0f ? fit->decay : DECAY_DEFAULT;
    double share =
        fitted_share(gate, weights, old_fit, old_calibrate, &new_halves, fit->leak_max, means);
    fit_weights(gate, weights, old_fit, new_windows, fit->epochs ? fit->epochs : EPOCHS_DEFAULT);
    gate->start = mean_logit(gate, old_calibrate);
    gate->threshold = leak_threshold(gate, old_calibrate, fit->leak_max, means);
    float settled = settled_mean(gate, new_windows, means);
    // Half way to where new data really is. What the reservoir did not sample scores a little higher
    // than what it did: a domain that is 8 KiB of a reservoir of 1 MiB leaks 0.1 % half way, 1.2 % a
    // quarter of the way (Python beside Wikipedia, the gate of Shakespeare, leak_max 0.5 %).
    if (share > 0 && settled > gate->threshold)
        gate->threshold += (float)(0.5 * share * ((double)settled - (double)gate->threshold));

    float apart = fired_share(gate, old_calibrate, APART, means);
    float chained = fired_share(gate, old_calibrate, CHAINED, means);
    fit->leak = apart > chained ? apart : chained;
    fit->detect = fired_share(gate, new_windows, CHAINED, means);

cleanup:
    halves_release(&new_halves);
    free(means);
    free(weights);
    return status;
}
