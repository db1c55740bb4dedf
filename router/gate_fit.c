// Fitting a gate: logistic regression of hashed n-grams between windows of old and of new data.
//
// Training is a function of its arguments alone. Which windows are old and which are new is the
// caller's business; from the logits on, gate_calibrate.c decides.
#include "gate_internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EPOCHS_DEFAULT 3

// AdaGrad's rate: the first step of a weight is as large as this, later ones shrink as its squared
// gradients add up. Weights of n-grams that were never seen stay exactly 0.
#define RATE 0.5f

#define GRADIENT_MIN 1e-9f // of a token's logit; its square is still a normal float

static size_t windows_tokens(const reef_gate_windows *windows) {
    size_t tokens = 0;
    for (size_t i = 0; i < windows->count; i++) tokens += windows->sizes[i];
    return tokens;
}

// ---- regression ---------------------------------------------------------------------------------

// A reader that goes round and round through a set of windows, token by token. n-grams do not reach
// over the edge of a window. The windows come in a scattered order: weights drift towards what was
// read last, and a list of windows often has one domain after the other.
typedef struct cursor {
    const reef_gate *gate;
    const reef_gate_windows *windows;
    size_t window, at, step;
    reef_recent recent;
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
        c->recent = (reef_recent){0};
    }
    reef_recent_push(&c->recent, c->windows->bytes[c->window][c->at++]);
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
    uint32_t orders = reef_recent_buckets(&c->recent, bucket);
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
    reef_gate_reading old = reef_gate_read(t->gate, t->old_calibrate, false, t->logits[0]);
    double sum = 0;
    for (size_t i = 0; i < old.count; i++) sum += (double)old.logits[i];
    t->gate->start = (float)(sum / (double)old.count);
}

static reef_gate_views views_of(training *t,
                                const reef_gate_windows *seen,
                                const reef_gate_windows *unseen) {
    reef_gate_views views = {.means = t->means};
    views.old[0] = reef_gate_read(t->gate, t->old_calibrate, false, t->logits[0]);
    views.old[1] = reef_gate_read(t->gate, t->old_calibrate, true, t->logits[1]);
    for (size_t i = 0; i < 2; i++) {
        views.seen[i] = reef_gate_read(t->gate, seen, i == 1, t->logits[2 + i]);
        if (unseen == NULL) continue;
        // Unseen tokens follow the seen ones.
        size_t seen_tokens = views.seen[i].count;
        views.unseen[i] = reef_gate_read(t->gate, unseen, i == 1, t->logits[2 + i] + seen_tokens);
    }
    return views;
}

// One pass over the first half of the new data, for judging on the second half how well such a gate
// does on data that it was not fitted to.
static reef_gate_calibration fit_on_half(training *t, reef_gate_fit *fit) {
    const reef_gate_windows *half = &t->half[0].view;
    if (windows_tokens(half) == 0) half = t->new_windows; // a single token; nothing stays unseen
    fit_weights(t->gate, t->weights, t->old_fit, half, 1);
    set_start(t);
    reef_gate_views views = views_of(t, half, half == t->new_windows ? NULL : &t->half[1].view);
    reef_gate_calibration calibration = reef_gate_try(t->gate, &views, fit->leak_max);
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
    gate->prior = REEF_GATE_PRIOR;
    reef_gate_calibration calibration = fit_on_half(&t, fit);
    // The half has chosen decay and share. The weights that stay are fitted to all new windows:
    // every n-gram of them is evidence.
    fit_weights(gate, t.weights, old_fit, new_windows, fit->epochs ? fit->epochs : EPOCHS_DEFAULT);
    set_start(&t);
    reef_gate_views views = views_of(&t, new_windows, NULL);
    fit->leak = (float)reef_gate_calibrate(gate, &views, calibration.share, fit->leak_max);
    reef_gate_means(gate, &views.seen[1], t.means);
    double detect = reef_share_above(views.seen[1].count, t.means, gate->threshold);
    // Measured on data that the weights had not seen, where the halves allowed that.
    fit->detect = (float)(calibration.share > 0 ? calibration.detect : detect);

cleanup:
    training_release(&t);
    return status;
}
