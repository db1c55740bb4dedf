// The gate of one generation: does this stream resemble the generation's data or older data? A
// linear score of hashed 1- to 4-grams, a causal mean over the stream, and a calibrated threshold.
//
// What always holds: a margin depends on the tokens of the stream up to it and on the gate, not on
// how the stream is cut into calls. A fit is a function of its arguments alone; which windows are
// old and which are new, and what happens when a gate fires, is the caller's business.
#include "reef_router.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Where the weight of an n-gram lies is part of the pool's format: a sealed gate reads the same for
// ever. In row n - 1 of the weights, with the newest token of the n-gram in the low bits of its
// key:
//
// clang-format off
//   n=1   key
//   n=2   key
//   n=3   top32(key * 2654435769)
//   n=4   top32(key * 2246822507)
// clang-format on
//
// top32: the upper 16 bits of the product modulo 2^32.

// The last four tokens of a stream, newest in the low bits, and how many of them are there.
typedef struct last_tokens {
    uint32_t tokens, count;
} last_tokens;

static void tokens_push(last_tokens *recent, uint32_t token) {
    recent->tokens = recent->tokens << 8 | token;
    // Before four tokens there are fewer orders, not n-grams padded with zeros.
    if (recent->count < REEF_GATE_ORDERS) recent->count++;
}

// Keys of at most 16 bits have a bucket for every value. Of longer ones the upper bits of a product
// with an odd constant (2^32 / golden ratio; the first multiplier of MurmurHash3's finaliser),
// which every bit of the key reaches.
static uint32_t tokens_buckets(const last_tokens *recent, uint32_t bucket[REEF_GATE_ORDERS]) {
    uint32_t bytes = recent->tokens;
    bucket[0] = bytes & 0xffu;
    bucket[1] = REEF_GATE_BUCKETS + (bytes & 0xffffu);
    bucket[2] = 2 * REEF_GATE_BUCKETS + ((bytes & 0xffffffu) * 2654435769u >> 16);
    bucket[3] = 3 * REEF_GATE_BUCKETS + (bytes * 2246822507u >> 16);
    return recent->count;
}

static float logit_of(const reef_gate *gate, const last_tokens *recent) {
    uint32_t bucket[REEF_GATE_ORDERS];
    uint32_t orders = tokens_buckets(recent, bucket);
    float logit = gate->bias;
    for (uint32_t n = 0; n < orders; n++) logit += gate->weights[bucket[n]];
    return logit;
}

// The start of a stream counts like this many tokens of old data. Over 14 pairs of held-out texts,
// decay 0.995, 64, 16 and 8 let the first 72, 20 and 10 bytes of a new text pass, 4 the first 5;
// over old texts cut into pieces of 1 KiB, each read from its start, they leak 0.002, 0.005, 0.011
// and 0.03 %.
#define PRIOR 8.0f

// The causal mean of a stream's logits on its way.
typedef struct gate_mean {
    float mean;
    uint32_t count; // tokens since the start, until the mean's memory is full
} gate_mean;

// Take one more logit in: as 1 of prior + tokens so far, later as 1 - decay.
static float mean_push(gate_mean *m, float prior, float memory, float logit) {
    // A mean over all tokens at first, later one that forgets: a stream may change.
    float share = 1.0f / (prior + (float)m->count + 1.0f);
    if (share > memory) m->count++; // still young; no need to count on
    m->mean += (share > memory ? share : memory) * (logit - m->mean);
    return m->mean;
}

// ---- scoring ------------------------------------------------------------------------------------

#define DECAY_DEFAULT 0.995f // also where nothing can be judged

reef_status reef_gate_init(reef_gate *gate, reef_error *err) {
    *gate = (reef_gate){.decay = DECAY_DEFAULT, .prior = PRIOR, .threshold = INFINITY};
    gate->weights = calloc(REEF_GATE_WEIGHTS, sizeof(*gate->weights));
    if (gate->weights != NULL) return REEF_OK;
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the %u weights of a gate",
                     REEF_GATE_WEIGHTS);
}

void reef_gate_release(reef_gate *gate) {
    free(gate->weights);
    *gate = (reef_gate){0};
}

void reef_gate_reset(const reef_gate *gate, reef_gate_state *state) {
    *state = (reef_gate_state){.mean = gate->start};
}

static last_tokens recent_from(const reef_gate_state *state) {
    last_tokens recent = {0};
    for (size_t n = state->context_tokens; n > 0; n--) tokens_push(&recent, state->context[n - 1]);
    return recent;
}

static void recent_keep(const last_tokens *recent, reef_gate_state *state) {
    // The longest n-gram of the next token takes one token less from here than it is long.
    size_t kept = recent->count < REEF_GATE_ORDERS ? recent->count : REEF_GATE_ORDERS - 1;
    for (size_t n = 0; n < kept; n++)
        // Newest first, as recent_from pushes them back.
        state->context[n] = (uint8_t)(recent->tokens >> 8 * n);
    state->context_tokens = (uint8_t)kept;
}

void reef_gate_score(const reef_gate *gate,
                     reef_gate_state *state,
                     size_t count,
                     const uint8_t *bytes,
                     float *margin) {
    if (gate->weights == NULL) { // of a generation without content
        for (size_t t = 0; t < count; t++) margin[t] = -INFINITY;
        return;
    }
    // The state carries over the edge of a call, so how the stream is cut changes no margin.
    last_tokens recent = recent_from(state);
    gate_mean mean = {state->mean, state->count};
    float memory = 1.0f - gate->decay;
    for (size_t t = 0; t < count; t++) {
        tokens_push(&recent, bytes[t]);
        margin[t] =
            mean_push(&mean, gate->prior, memory, logit_of(gate, &recent)) - gate->threshold;
    }
    state->mean = mean.mean;
    state->count = mean.count;
    recent_keep(&recent, state);
}

// ---- how long it remembers, and from which mean on it fires -------------------------------------
//
// A long memory averages odd passages away, and is slow: it takes as many bytes to notice that a
// stream has changed, and as many to notice that it has changed back. So the memory is as short as
// the two kinds of data allow, judged on data that was not fitted.

// Logits of windows, read in one of two ways. Apart, each from the start, as after a record
// boundary: this is what short records see. Chained into one stream, as if each continued the one
// before: windows are short against the memory of the mean, so only this shows the settled means
// that long streams live with.
typedef struct gate_reading {
    size_t count;
    float *logits;                  // (count)
    const reef_gate_windows *apart; // the windows; NULL when they are chained
} gate_reading;

// The data that calibration uses.
typedef struct gate_views {
    gate_reading old[2];    // apart and chained; never fitted
    gate_reading seen[2];   // new data that the gate was fitted to, in both readings
    gate_reading unseen[2]; // and other new data; counts 0 if there is none
    float *means;           // scratch, as long as the longest
} gate_views;

// How well a gate of one decay does, with its threshold half way from old to new data.
typedef struct gate_calibration {
    float decay;
    double share;  // see choose_decay; 0: the new data does not stay above the old
    double leak;   // share of old bytes that fire
    double detect; // share of unseen new bytes that fire
    bool separates;
} gate_calibration;

// Memories of 50, 100, 200 and 500 bytes. Three chains of domains (14 gates), held-out text; fixed
// memories were measured with windows in the order of domains, the last two rows with scattered
// ones:
//
//   decay      leak %   missed %   bytes to fire    bytes to fall silent
//                                  after a switch   after a switch back
//   0.96       0.128       3.0           21                 17
//   0.98       0.086       1.0           39                 35
//   0.99       0.016       0.55          74                 68
//   0.995      0.004       0.24         155                128
//   0.998      0.000       0.09         420                228
//   0.995      0.010       0.18         150                130
//   chosen     0.007       0.13         116                 72
//
// 0.96 is not among them: where it would do, 0.98 loses some ten bytes a switch, and keeps a
// distance.
static const float DECAYS[] = {0.98f, 0.99f, 0.995f, 0.998f};
#define DECAY_COUNT (sizeof(DECAYS) / sizeof(DECAYS[0]))

#define LEAK_SHARE 0.02 // a memory is long enough when this share of leak_max leaks, half way,
#define MISS_MAX 0.002 // and of unseen new data, once a stream has settled in it, no more is missed
#define NEW_QUANTILE 0.01 // of the settled means of new windows: where new data "is"
#define HALF_WAY 0.5

// The reading that a gate sees; `logits` has room for every byte of the windows.
static gate_reading read_windows(const reef_gate *gate,
                                 const reef_gate_windows *windows,
                                 bool chained,
                                 float *logits) {
    last_tokens recent = {0};
    size_t count = 0;
    for (size_t i = 0; i < windows->count; i++) {
        // Windows read apart start without context, as a stream does.
        if (!chained) recent = (last_tokens){0};
        for (size_t t = 0; t < windows->sizes[i]; t++) {
            uint32_t token = windows->bytes[i][t];
            tokens_push(&recent, token);
            logits[count++] = logit_of(gate, &recent);
        }
    }
    return (gate_reading){.count = count, .logits = logits, .apart = chained ? NULL : windows};
}

static void stream_means(
    const reef_gate *gate, const gate_reading *reading, size_t at, size_t end, float *means) {
    gate_mean mean = {gate->start, 0};
    float memory = 1.0f - gate->decay;
    for (size_t t = at; t < end; t++)
        means[t] = mean_push(&mean, gate->prior, memory, reading->logits[t]);
}

// means (count) is written: the causal mean after each byte, as reef_gate_score has it.
static void gate_means(const reef_gate *gate, const gate_reading *reading, float *means) {
    if (reading->apart == NULL) {
        stream_means(gate, reading, 0, reading->count, means);
        return;
    }
    size_t at = 0;
    for (size_t i = 0; i < reading->apart->count; i++) {
        stream_means(gate, reading, at, at + reading->apart->sizes[i], means);
        at += reading->apart->sizes[i];
    }
}

// ---- quantiles ----------------------------------------------------------------------------------

static void swap_floats(float *a, float *b) {
    float kept = *a;
    *a = *b;
    *b = kept;
}

// The value that would stand at `rank` if `values` were sorted upwards; reorders them (Hoare's
// FIND).
static float value_at_rank(size_t count, float *values, size_t rank) {
    size_t low = 0, high = count - 1;
    while (low < high) {
        size_t i = low, j = high;
        // The middle value, so that sorted input takes linear time too.
        float pivot = values[low + (high - low) / 2];
        while (i <= j) {
            while (values[i] < pivot) i++;
            while (values[j] > pivot) j--;
            if (i > j) break;
            swap_floats(&values[i++], &values[j]);
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
    // Rounded down: never more than `share` of the values lie above the result.
    size_t above = (size_t)((double)count * share);
    return value_at_rank(count, values, above < count ? count - 1 - above : 0);
}

static double share_above(size_t count, const float *values, float threshold) {
    size_t above = 0;
    for (size_t i = 0; i < count; i++) above += values[i] > threshold;
    return count > 0 ? (double)above / (double)count : 0;
}

// ---- calibration --------------------------------------------------------------------------------

// The threshold that old data asks for.
static float leak_threshold(const reef_gate *gate, const gate_views *views, float leak_max) {
    float most = -INFINITY;
    for (size_t i = 0; i < 2; i++) {
        gate_means(gate, &views->old[i], views->means);
        // Read apart and chained; the threshold must hold in both, so the higher bound counts.
        float bound = upper_quantile(views->old[i].count, views->means, (double)leak_max);
        if (bound > most) most = bound;
    }
    return most;
}

static double leak_of(const reef_gate *gate, const gate_views *views) {
    double most = 0;
    for (size_t i = 0; i < 2; i++) {
        gate_means(gate, &views->old[i], views->means);
        double leak = share_above(views->old[i].count, views->means, gate->threshold);
        if (leak > most) most = leak;
    }
    return most;
}

// The means of a reading where the stream has settled in it: after two time constants of the mean,
// or in the later half of a window that is shorter. Moved to the front of `means`; returns how many
// they are.
static size_t settled_means(const reef_gate *gate, const gate_reading *reading, float *means) {
    size_t settling = (size_t)ceil(2.0 / (1.0 - (double)gate->decay)), kept = 0, at = 0;
    gate_means(gate, reading, means);
    if (reading->apart == NULL) {
        kept = reading->count > settling ? reading->count - settling : 0;
        // A chained reading settles once, at its start.
        memmove(means, means + (reading->count - kept), kept * sizeof(*means));
        return kept;
    }
    for (size_t i = 0; i < reading->apart->count; i++) {
        size_t size = reading->apart->sizes[i], first = size / 2 < settling ? size / 2 : settling;
        memmove(means + kept, means + at + first, (size - first) * sizeof(*means));
        kept += size - first;
        at += size;
    }
    return kept;
}

// The mean that all but 1 % of the tokens of new data exceed, once a stream has settled in it, in
// the reading in which it is lower. -INFINITY when the windows do not reach so far.
static float settled_mean(const reef_gate *gate, const gate_reading new[2], float *means) {
    float least = INFINITY;
    for (size_t i = 0; i < 2; i++) {
        size_t count = settled_means(gate, &new[i], means);
        float low = count > 0 ? upper_quantile(count, means, 1.0 - NEW_QUANTILE) : -INFINITY;
        if (low < least) least = low;
    }
    return least;
}

// The share of new data that the gate misses once a stream has settled in it.
static double missed_share(const reef_gate *gate, const gate_reading new[2], float *means) {
    double most = 0;
    for (size_t i = 0; i < 2; i++) {
        size_t count = settled_means(gate, &new[i], means);
        double missed = 1.0 - share_above(count, means, gate->threshold);
        if (missed > most) most = missed;
    }
    return most;
}

// The share is how far new data that was not fitted stays above old data, of what the fitted
// windows show. Fitted windows flatter: with 24 KiB of Python after Wikipedia the distance on other
// Python files is 0.29 of it. One pass over the first half, judged on the second, comes out at 0.6
// there, and between 0.4 and 1 for other pairs.
static gate_calibration try_decay(reef_gate *gate,
                                  const gate_views *views,
                                  float decay,
                                  float leak_max) {
    gate_calibration calibration = {.decay = decay};
    gate->decay = decay;
    // Old data bounds the threshold from below; the rest of this function looks for room above it.
    float old = leak_threshold(gate, views, leak_max);
    float seen = settled_mean(gate, views->seen, views->means);
    float unseen = settled_mean(gate, views->unseen, views->means);
    // No room: new data does not stay above old data. The share stays 0.
    if (!(unseen > old) || !(seen > old)) return calibration;
    calibration.share =
        unseen < seen ? ((double)unseen - (double)old) / ((double)seen - (double)old) : 1;
    gate->threshold = old + (float)(HALF_WAY * calibration.share * ((double)seen - (double)old));
    calibration.leak = leak_of(gate, views);
    double missed = missed_share(gate, views->unseen, views->means);
    calibration.separates = calibration.leak <= LEAK_SHARE * (double)leak_max && missed <= MISS_MAX;
    gate_means(gate, &views->unseen[1], views->means);
    calibration.detect = share_above(views->unseen[1].count, views->means, gate->threshold);
    return calibration;
}

// The decay of a gate that was fitted to a part of the new data: the shortest memory that separates
// old data from unseen new data. gate->decay is written.
static gate_calibration choose_decay(reef_gate *gate, const gate_views *views, float leak_max) {
    gate_calibration best = {.decay = DECAY_DEFAULT};
    // Ascending, so the first that separates is the shortest memory.
    for (size_t i = 0; i < DECAY_COUNT && !best.separates; i++) {
        gate_calibration calibration = try_decay(gate, views, DECAYS[i], leak_max);
        if (calibration.share > 0) best = calibration; // the longest, when none of them will do
    }
    gate->decay = best.decay;
    return best;
}

// The threshold of a gate that was fitted to all of the new data (views->seen) for its decay;
// returns the share of old bytes that fire, in the reading in which more do.
static double calibrate(reef_gate *gate, const gate_views *views, double share, float leak_max) {
    gate->threshold = leak_threshold(gate, views, leak_max);
    float settled = settled_mean(gate, views->seen, views->means);
    // Half way to where new data really is. What the reservoir did not sample scores a little
    // higher than what it did: a domain that is 8 KiB of a reservoir of 1 MiB leaks 0.1 % half way,
    // 1.2 % a quarter of the way (Python beside Wikipedia, the gate of Shakespeare, leak_max 0.5
    // %).
    if (share > 0 && settled > gate->threshold)
        gate->threshold += (float)(HALF_WAY * share * ((double)settled - (double)gate->threshold));
    return leak_of(gate, views);
}

// ---- fitting: logistic regression of n-grams between windows of old and of new data -------------

#define EPOCHS 3

// AdaGrad's rate: the first step of a weight is as large as this, later ones shrink as its squared
// gradients add up. Weights of n-grams that were never seen stay exactly 0.
#define RATE 0.5f

#define GRADIENT_MIN 1e-9f // of a token's logit; its square is still a normal float

static size_t windows_tokens(const reef_gate_windows *windows) {
    size_t tokens = 0;
    for (size_t i = 0; i < windows->count; i++) tokens += windows->sizes[i];
    return tokens;
}

// A reader that goes round and round through a set of windows, token by token. n-grams do not reach
// over the edge of a window. The windows come in a scattered order: weights drift towards what was
// read last, and a list of windows often has one domain after the other.
typedef struct cursor {
    const reef_gate *gate;
    const reef_gate_windows *windows;
    size_t window, at, step;
    last_tokens recent;
} cursor;

static size_t common_divisor(size_t a, size_t b) {
    return b == 0 ? a : common_divisor(b, a % b);
}

// Steps of about the golden section of the list, without a common divisor: every window is drawn.
static cursor cursor_at_start(const reef_gate *gate, const reef_gate_windows *windows) {
    size_t step = (size_t)(0.618 * (double)windows->count);
    while (step > 1 && common_divisor(windows->count, step) > 1) step--;
    return (cursor){.gate = gate, .windows = windows, .step = step > 0 ? step : 1, .recent = {0}};
}

static void cursor_next(cursor *c) {
    // A loop, not a condition: windows may be empty.
    while (c->at == c->windows->sizes[c->window]) {
        c->window = (c->window + c->step) % c->windows->count;
        c->at = 0;
        c->recent = (last_tokens){0};
    }
    tokens_push(&c->recent, c->windows->bytes[c->window][c->at++]);
}

// A weight and the sum of its squared gradients, side by side: one cache line for both.
typedef struct fitted {
    float weight, squares;
} fitted;

static void fitted_step(fitted *f, float gradient) {
    f->squares += gradient * gradient;
    // AdaGrad (Duchi et al. 2011), without an epsilon: squares has this gradient in it already.
    f->weight -= RATE * gradient / sqrtf(f->squares);
}

// One step of logistic regression on the newest token of a cursor; `label` is 1 for new.
static void fit_token(fitted *weights, fitted *bias, const cursor *c, float label) {
    uint32_t bucket[REEF_GATE_ORDERS];
    uint32_t orders = tokens_buckets(&c->recent, bucket);
    float logit = bias->weight;
    for (uint32_t n = 0; n < orders; n++) logit += weights[bucket[n]].weight;
    // The derivative of the cross-entropy by the logit.
    float gradient = 1.0f / (1.0f + expf(-logit)) - label;
    // A token whose side is settled beyond the precision of a float has nothing to teach; its
    // square would be 0 as well, and 0 / 0 no number.
    if (fabsf(gradient) < GRADIENT_MIN) return;
    fitted_step(bias, gradient);
    for (uint32_t n = 0; n < orders; n++) fitted_step(&weights[bucket[n]], gradient);
}

// Old and new tokens alternate, and the smaller set is repeated more often: the classes have equal
// weight however unequal the sets are.
static void fit_alternating(const reef_gate *gate,
                            fitted *weights,
                            fitted *bias,
                            const reef_gate_windows *old,
                            const reef_gate_windows *new,
                            uint32_t epochs) {
    size_t old_tokens = windows_tokens(old), new_tokens = windows_tokens(new);
    size_t steps = (old_tokens > new_tokens ? old_tokens : new_tokens) * epochs;
    cursor old_cursor = cursor_at_start(gate, old), new_cursor = cursor_at_start(gate, new);
    for (size_t i = 0; i < steps; i++) {
        cursor_next(&old_cursor);
        fit_token(weights, bias, &old_cursor, 0.0f);
        cursor_next(&new_cursor);
        fit_token(weights, bias, &new_cursor, 1.0f);
    }
}

// Always from zero, so that a refreshed gate is the gate that a first fit on the same windows
// gives.
static void fit_weights(reef_gate *gate,
                        fitted *weights,
                        const reef_gate_windows *old,
                        const reef_gate_windows *new,
                        uint32_t epochs) {
    fitted bias = {0};
    memset(weights, 0, REEF_GATE_WEIGHTS * sizeof(*weights));
    fit_alternating(gate, weights, &bias, old, new, epochs);
    for (size_t i = 0; i < REEF_GATE_WEIGHTS; i++) gate->weights[i] = weights[i].weight;
    gate->bias = bias.weight;
}

// ---- lists of windows ---------------------------------------------------------------------------

// Windows that were put together here; the bytes are the caller's.
typedef struct window_list {
    reef_gate_windows view;
    const uint8_t **bytes; // owned
    size_t *sizes;         // owned
} window_list;

static void list_release(window_list *list) {
    free(list->bytes);
    free(list->sizes);
    *list = (window_list){0};
}

static bool list_init(window_list *list, size_t count_max) {
    *list = (window_list){.bytes = calloc(count_max, sizeof(*list->bytes)),
                          .sizes = calloc(count_max, sizeof(*list->sizes))};
    list->view = (reef_gate_windows){.bytes = list->bytes, .sizes = list->sizes};
    if (list->bytes != NULL && list->sizes != NULL) return true;
    list_release(list);
    return false;
}

static void list_add(window_list *list, const uint8_t *bytes, size_t size) {
    list->bytes[list->view.count] = bytes;
    list->sizes[list->view.count++] = size;
}

// The first and the second half of a set of windows; a window over the middle is cut.
static bool halves_init(window_list half[2], const reef_gate_windows *windows) {
    if (!list_init(&half[0], windows->count) || !list_init(&half[1], windows->count)) return false;
    size_t left = windows_tokens(windows) / 2; // of the first half
    for (size_t i = 0; i < windows->count; i++) {
        size_t size = windows->sizes[i], first = size < left ? size : left;
        list_add(&half[0], windows->bytes[i], first);
        // Empty for a window of the first half: views of both halves keep the order of the whole.
        list_add(&half[1], windows->bytes[i] + first, size - first);
        left -= first;
    }
    return true;
}

// ---- training -----------------------------------------------------------------------------------

typedef struct training {
    reef_gate *gate;
    const reef_gate_windows *old_fit, *old_calibrate, *new_windows;
    fitted *weights;
    window_list half[2]; // of the new windows
    float *logits[4];    // old apart, old chained, new apart, new chained
    float *means;
} training;

static void training_release(training *t) {
    free(t->weights);
    list_release(&t->half[0]);
    list_release(&t->half[1]);
    for (size_t i = 0; i < 4; i++) free(t->logits[i]);
    free(t->means);
}

static reef_status training_init(training *t, reef_error *err) {
    size_t old_tokens = windows_tokens(t->old_calibrate),
           new_tokens = windows_tokens(t->new_windows);
    size_t longest = old_tokens > new_tokens ? old_tokens : new_tokens;
    t->weights = calloc(REEF_GATE_WEIGHTS, sizeof(*t->weights));
    t->logits[0] = calloc(old_tokens, sizeof(float));
    t->logits[1] = calloc(old_tokens, sizeof(float));
    t->logits[2] = calloc(new_tokens, sizeof(float));
    t->logits[3] = calloc(new_tokens, sizeof(float));
    t->means = calloc(longest, sizeof(float));
    bool listed = halves_init(t->half, t->new_windows);
    bool held = t->logits[0] != NULL && t->logits[1] != NULL && t->logits[2] != NULL &&
                t->logits[3] != NULL;
    if (t->weights == NULL || t->means == NULL || !held || !listed)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to fit a gate on %zu tokens",
                         windows_tokens(t->old_fit) + old_tokens + new_tokens);
    return REEF_OK;
}

// What a token of the calibration windows scores on average.
static void set_start(training *t) {
    gate_reading old = read_windows(t->gate, t->old_calibrate, false, t->logits[0]);
    double sum = 0;
    for (size_t i = 0; i < old.count; i++) sum += (double)old.logits[i];
    t->gate->start = (float)(sum / (double)old.count);
}

static gate_views views_of(training *t,
                           const reef_gate_windows *seen,
                           const reef_gate_windows *unseen) {
    gate_views views = {.means = t->means};
    views.old[0] = read_windows(t->gate, t->old_calibrate, false, t->logits[0]);
    views.old[1] = read_windows(t->gate, t->old_calibrate, true, t->logits[1]);
    for (size_t i = 0; i < 2; i++) {
        views.seen[i] = read_windows(t->gate, seen, i == 1, t->logits[2 + i]);
        if (unseen == NULL) continue;
        // Unseen tokens follow the seen ones.
        size_t seen_tokens = views.seen[i].count;
        views.unseen[i] = read_windows(t->gate, unseen, i == 1, t->logits[2 + i] + seen_tokens);
    }
    return views;
}

// One pass over the first half of the new data, for judging on the second half how well such a gate
// does on data that it was not fitted to.
static gate_calibration fit_on_half(training *t, reef_gate_fit *fit) {
    const reef_gate_windows *half = &t->half[0].view;
    if (windows_tokens(half) == 0) half = t->new_windows; // a single token; nothing stays unseen
    fit_weights(t->gate, t->weights, t->old_fit, half, 1);
    set_start(t);
    gate_views views = views_of(t, half, half == t->new_windows ? NULL : &t->half[1].view);
    gate_calibration calibration = choose_decay(t->gate, &views, fit->leak_max);
    fit->separates = calibration.separates;
    return calibration;
}

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
        // Means and quantiles of each set are taken; an empty one has none.
        if (windows_tokens(sets[i].windows) == 0)
            return reef_fail(err, REEF_ERR_INVALID, "the %s of a gate hold no tokens",
                             sets[i].name);
    }
    // Negated, so that NaN is refused as well.
    if (!(fit->leak_max >= 0.0f && fit->leak_max <= 1.0f))
        return reef_fail(err, REEF_ERR_INVALID, "the leak_max of a gate is %g, but must be 0 to 1",
                         (double)fit->leak_max);
    return REEF_OK;
}

reef_status reef_gate_train(reef_gate *gate,
                            const reef_gate_windows *old_fit,
                            const reef_gate_windows *old_calibrate,
                            const reef_gate_windows *new_windows,
                            reef_gate_fit *fit,
                            reef_error *err) {
    training t = {.gate = gate,
                  .old_fit = old_fit,
                  .old_calibrate = old_calibrate,
                  .new_windows = new_windows};
    assert(gate->weights != NULL);

    reef_status status = train_check(old_fit, old_calibrate, new_windows, fit, err);
    if (status == REEF_OK) status = training_init(&t, err);
    if (status != REEF_OK) goto cleanup;
    // A gate that is fitted again starts from the same values as a new one.
    gate->prior = PRIOR;
    gate_calibration calibration = fit_on_half(&t, fit);
    // The half has chosen decay and share. The weights that stay are fitted to all new windows:
    // every n-gram of them is evidence.
    fit_weights(gate, t.weights, old_fit, new_windows, EPOCHS);
    set_start(&t);
    gate_views views = views_of(&t, new_windows, NULL);
    fit->leak = (float)calibrate(gate, &views, calibration.share, fit->leak_max);
    gate_means(gate, &views.seen[1], t.means);
    double detect = share_above(views.seen[1].count, t.means, gate->threshold);
    // Measured on data that the weights had not seen, where the halves allowed that.
    fit->detect = (float)(calibration.share > 0 ? calibration.detect : detect);

cleanup:
    training_release(&t);
    return status;
}
