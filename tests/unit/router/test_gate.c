// The gate: what it scores, how it is fitted and calibrated, and how well it separates real texts.
//
// Real texts are $REEF_DATA_DIR/text/NAME/train.txt and test.txt. If there are none, those tests
// are skipped.
#include "checked.h"
#include "reef_router.h"

#include <math.h>

#define KIB 1024u
enum { WINDOW = 1024, SETTLING = 256 };

static uint64_t random_state;

static uint32_t random_below(uint32_t bound) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 32) * bound >> 32);
}

// ---- texts and windows --------------------------------------------------------------------------

typedef struct text {
    uint8_t *bytes;
    size_t size;
} text;

// Words of a made-up language, in random order. Languages share the alphabet but few words.
static text synthetic(uint64_t language, uint64_t seed, size_t size) {
    enum { WORDS = 300 };
    char words[WORDS][12];
    text t = {room(size), size};
    random_state = language;
    for (size_t w = 0; w < WORDS; w++) {
        uint32_t letters = 2 + random_below(8);
        for (uint32_t i = 0; i < letters; i++) words[w][i] = (char)('a' + random_below(26));
        words[w][letters] = ' ';
        words[w][letters + 1] = '\0';
    }
    random_state = seed;
    for (size_t at = 0; at < size;) {
        const char *word = words[random_below(WORDS)];
        for (size_t i = 0; word[i] && at < size; i++) t.bytes[at++] = (uint8_t)word[i];
    }
    return t;
}

typedef struct window_set {
    reef_gate_windows view;
    const uint8_t **bytes;
    size_t *sizes;
} window_set;

// Windows number first, first + step, ... of `count` that lie evenly in the text.
static window_set windows_of(const text *t, size_t count, size_t first, size_t step) {
    window_set set = {.bytes = room((count + 1) * sizeof(*set.bytes)),
                      .sizes = room((count + 1) * sizeof(*set.sizes))};
    assert_true(t->size >= count * WINDOW);
    size_t kept = 0;
    for (size_t i = first; i < count; i += step) {
        set.bytes[kept] = t->bytes + (t->size - WINDOW) * i / count;
        set.sizes[kept++] = WINDOW;
    }
    set.view = (reef_gate_windows){kept, set.bytes, set.sizes};
    return set;
}

// ---- helpers ------------------------------------------------------------------------------------

typedef struct fixture {
    reef_gate gate;
    text old, new, new_start;
    window_set old_fit, old_calibrate, new_windows;
    reef_gate_fit fit;
} fixture;

static void fixture_train(fixture *f) {
    f->fit = (reef_gate_fit){.leak_max = 0.005f};
    if (reef_gate_train(&f->gate, &f->old_fit.view, &f->old_calibrate.view, &f->new_windows.view,
                        &f->fit, &why) != REEF_OK)
        fail_msg("%s", why.message);
}

// Takes over the texts. Half of the old windows fit, the other half calibrates; new windows are the
// beginning of the new text, as a stream delivers it.
static void fixture_init(fixture *f, text old, text new, size_t old_bytes, size_t new_bytes) {
    *f = (fixture){.old = old, .new = new, .new_start = {new.bytes, new_bytes}};
    must(reef_gate_init(&f->gate, &why));
    f->old_fit = windows_of(&f->old, old_bytes / WINDOW, 0, 2);
    f->old_calibrate = windows_of(&f->old, old_bytes / WINDOW, 1, 2);
    f->new_windows = windows_of(&f->new_start, new_bytes / WINDOW, 0, 1);
}

static void fixture_release(fixture *f) {
    reef_gate_release(&f->gate);
}

static int setup(void **state) {
    fixture *f = room(sizeof(*f));
    fixture_init(f, synthetic(1, 11, 64 * KIB), synthetic(2, 12, 24 * KIB), 64 * KIB, 24 * KIB);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    fixture_release(*state);
    return 0;
}

static float *margins_of(const reef_gate *gate, const text *t) {
    reef_gate_state state;
    float *margins = room(t->size * sizeof(*margins));
    reef_gate_reset(gate, &state);
    reef_gate_score(gate, &state, t->size, t->bytes, margins);
    return margins;
}

// Share of the tokens after the first `skip` of a stream that fire.
static double fire_share(const reef_gate *gate, const text *t, size_t skip) {
    float *margins = margins_of(gate, t);
    size_t fired = 0;
    for (size_t i = skip; i < t->size; i++) fired += margins[i] > 0;
    return (double)fired / (double)(t->size - skip);
}

// ---- scoring ------------------------------------------------------------------------------------

PLAIN_TEST(a_fresh_gate_never_fires) {
    reef_gate gate;
    must(reef_gate_init(&gate, &why));
    text t = synthetic(1, 1, 5000);
    float *margins = margins_of(&gate, &t);
    for (size_t i = 0; i < t.size; i++) assert_true(margins[i] == -INFINITY);
    reef_gate_release(&gate);
}

// Where a weight lies is part of the pool's format: a sealed gate must read the same for ever.
static size_t bucket_of(size_t order, const uint8_t *newest) {
    uint32_t key = 0;
    for (size_t n = 0; n < order; n++) key |= (uint32_t) * (newest - n) << 8 * n;
    if (order == 3) key = key * 2654435769u >> 16;
    if (order == 4) key = key * 2246822507u >> 16;
    return (order - 1) * REEF_GATE_BUCKETS + key;
}

PLAIN_TEST(margins_equal_the_plain_definition) {
    reef_gate gate;
    must(reef_gate_init(&gate, &why));
    random_state = 5;
    for (size_t i = 0; i < REEF_GATE_WEIGHTS; i++)
        gate.weights[i] = (float)random_below(2001) / 1000.0f - 1.0f;
    gate.bias = 0.25f;
    gate.start = -0.5f;
    gate.threshold = 0.125f;
    text t = {room(3000), 3000};
    for (size_t i = 0; i < t.size; i++) t.bytes[i] = (uint8_t)random_below(256);
    // A short memory, one that the start does not fill, and how the first stored gates were read.
    const float decays[] = {0.9f, 0.995f, 0.995f}, priors[] = {8, 8, 64};
    for (size_t d = 0; d < 3; d++) {
        gate.decay = decays[d];
        gate.prior = priors[d];
        float *margins = margins_of(&gate, &t);
        double mean = -0.5;
        for (size_t i = 0; i < t.size; i++) {
            double logit = 0.25;
            for (size_t order = 1; order <= REEF_GATE_ORDERS && order <= i + 1; order++)
                logit += (double)gate.weights[bucket_of(order, t.bytes + i)];
            double young = 1.0 / ((double)priors[d] + 1.0 + (double)i);
            mean += fmax(1.0 - (double)decays[d], young) * (logit - mean);
            assert_true(fabs((double)margins[i] - (mean - 0.125)) < 1e-5);
        }
    }
    reef_gate_release(&gate);
}

#define FIXTURE_TEST(name) TEST_WITH(name, setup, teardown, fixture *f)

FIXTURE_TEST(how_a_stream_is_cut_does_not_change_one_bit) {
    fixture_train(f);
    float *whole = margins_of(&f->gate, &f->new), *cut = room(f->new.size * sizeof(*cut));
    reef_gate_state carried;
    reef_gate_reset(&f->gate, &carried);
    for (size_t at = 0; at < f->new.size;) {
        size_t count = random_below(7); // 0 too; often shorter than an n-gram
        if (count > f->new.size - at) count = f->new.size - at;
        reef_gate_score(&f->gate, &carried, count, f->new.bytes + at, cut + at);
        at += count;
    }
    assert_memory_equal(whole, cut, f->new.size * sizeof(*whole));

    reef_gate_reset(&f->gate, &carried); // and a reset forgets all of it
    reef_gate_score(&f->gate, &carried, f->new.size, f->new.bytes, cut);
    assert_memory_equal(whole, cut, f->new.size * sizeof(*whole));
}

// ---- training -----------------------------------------------------------------------------------

FIXTURE_TEST(training_depends_on_nothing_but_its_arguments) {
    fixture_train(f);
    size_t bytes = REEF_GATE_WEIGHTS * sizeof(float);
    float *weights = copied(f->gate.weights, bytes);
    reef_gate first = f->gate;
    reef_gate_fit fit = f->fit;

    // Something else in between must leave no trace.
    window_set other = windows_of(&f->old, 16, 0, 1);
    window_set kept = f->new_windows;
    f->new_windows = other;
    fixture_train(f);
    assert_memory_not_equal(weights, f->gate.weights, bytes);
    f->new_windows = kept;
    fixture_train(f);
    assert_memory_equal(weights, f->gate.weights, bytes);
    assert_memory_equal(&first, &f->gate, sizeof(first));
    assert_memory_equal(&fit, &f->fit, sizeof(fit));
}

FIXTURE_TEST(weights_of_unseen_n_grams_stay_zero) {
    fixture_train(f);
    bool seen[256] = {false};
    for (size_t i = 0; i < f->old.size; i++) seen[f->old.bytes[i]] = true;
    for (size_t i = 0; i < f->new.size; i++) seen[f->new.bytes[i]] = true;
    size_t moved = 0;
    for (size_t byte = 0; byte < 256; byte++) {
        if (!seen[byte]) assert_true(f->gate.weights[byte] == 0);
        moved += f->gate.weights[byte] != 0;
    }
    assert_true(moved > 20); // the alphabet
    for (size_t i = 0; i < REEF_GATE_WEIGHTS; i++) assert_true(fabsf(f->gate.weights[i]) < 20);
}

// One byte in each window that no other window has: a weight that stays 0 is a window that was not
// read.
FIXTURE_TEST(every_window_is_read_in_every_pass) {
    for (size_t count = 1; count <= 24; count++) {
        uint8_t windows[24][40];
        const uint8_t *bytes[24];
        size_t sizes[24];
        for (size_t i = 0; i < count; i++) {
            memset(windows[i], '.', sizeof(windows[i]));
            windows[i][20] = (uint8_t)(1 + i);
            bytes[i] = windows[i];
            sizes[i] = sizeof(windows[i]);
        }
        reef_gate_windows old = {count, bytes, sizes}, new = {1, f->new_windows.view.bytes, sizes};
        reef_gate_fit fit = {.leak_max = 0.01f};
        must(reef_gate_train(&f->gate, &old, &old, &new, &fit, &why));
        for (size_t i = 0; i < count; i++) assert_true(f->gate.weights[1 + i] < 0);
    }
}

// Text in which each word is of the first language with this chance, otherwise of the second.
static text mixed(uint64_t first, uint64_t second, uint32_t percent, uint64_t seed, size_t size) {
    text a = synthetic(first, seed, size), b = synthetic(second, seed + 1, size);
    text t = {room(size), 0};
    size_t at[2] = {0, 0};
    random_state = seed;
    while (t.size < size) {
        size_t which = random_below(100) < percent ? 0 : 1;
        const text *from = which == 0 ? &a : &b;
        for (bool word = true; word && t.size < size; at[which]++) {
            t.bytes[t.size++] = from->bytes[at[which]];
            word = from->bytes[at[which]] != ' ';
        }
    }
    return t;
}

FIXTURE_TEST(a_memory_is_as_long_as_the_pair_needs) {
    fixture close;
    fixture_train(f);
    assert_true(f->gate.decay == 0.98f); // languages with few words in common
    fixture_init(&close, mixed(1, 2, 75, 51, 256 * KIB), mixed(1, 2, 25, 61, 128 * KIB), 256 * KIB,
                 128 * KIB);
    fixture_train(&close); // the same words in another proportion
    assert_true(close.gate.decay > 0.98f);
    text old = mixed(1, 2, 75, 71, 64 * KIB), new = mixed(1, 2, 25, 81, 64 * KIB);
    double leak = fire_share(&close.gate, &old, 0), detect = fire_share(&close.gate, &new, 1000);
    printf("a close pair: decay %.3f, leak %.4f, detection %.4f\n", (double)close.gate.decay, leak,
           detect);
    assert_true(leak <= 0.005 && detect >= 0.99);
    fixture_release(&close);
}

FIXTURE_TEST(evidence_starts_at_what_old_windows_score) {
    fixture_train(f);
    reef_gate plain = f->gate; // borrows the weights
    plain.decay = plain.prior = plain.threshold = 0;
    double sum = 0;
    for (size_t i = 0; i < f->old_calibrate.view.count; i++) {
        float logits[WINDOW];
        reef_gate_state fresh;
        reef_gate_reset(&plain, &fresh);
        reef_gate_score(&plain, &fresh, WINDOW, f->old_calibrate.bytes[i], logits);
        for (size_t t = 0; t < WINDOW; t++) sum += (double)logits[t];
    }
    double mean = sum / (double)(f->old_calibrate.view.count * WINDOW);
    assert_true(fabs((double)f->gate.start - mean) < 1e-5 * fabs(mean));
}

FIXTURE_TEST(unlike_texts_are_distinguished_on_unseen_text) {
    fixture_train(f);
    text old = synthetic(1, 21, 64 * KIB), new = synthetic(2, 22, 64 * KIB);
    assert_true(fire_share(&f->gate, &old, 0) <= 0.005);
    assert_true(fire_share(&f->gate, &new, SETTLING) >= 0.995);
    assert_true(f->fit.leak <= 0.005f);
    assert_true(f->fit.detect >= 0.98f);
}

FIXTURE_TEST(a_stream_is_recognised_again_after_each_change) {
    fixture_train(f);
    text parts[6];
    reef_gate_state carried;
    reef_gate_reset(&f->gate, &carried);
    for (size_t i = 0; i < 6; i++) {
        float margins[4 * KIB];
        parts[i] = synthetic(1 + i % 2, 30 + i, 4 * KIB);
        reef_gate_score(&f->gate, &carried, 4 * KIB, parts[i].bytes, margins);
    }
}

// How many tokens of a set of windows fire, or would if the threshold were any lower; read apart
// and chained, whichever is more.
static void count_fired(const reef_gate *gate,
                        const reef_gate_windows *windows,
                        size_t *fired,
                        size_t *nearly) {
    *fired = *nearly = 0;
    for (int chained = 0; chained < 2; chained++) {
        size_t above = 0, at_least = 0;
        reef_gate_state state;
        reef_gate_reset(gate, &state);
        for (size_t i = 0; i < windows->count; i++) {
            float margins[WINDOW];
            if (!chained) reef_gate_reset(gate, &state);
            reef_gate_score(gate, &state, windows->sizes[i], windows->bytes[i], margins);
            for (size_t t = 0; t < windows->sizes[i]; t++) {
                above += margins[t] > 0;
                at_least += margins[t] >= 0;
            }
        }
        if (above > *fired) *fired = above;
        if (at_least > *nearly) *nearly = at_least;
    }
}

PLAIN_TEST(texts_that_are_alike_get_the_smallest_threshold_that_keeps_the_bound) {
    static const float LEAKS[] = {0, 0.001f, 0.02f, 0.3f};
    fixture f;
    fixture_init(&f, synthetic(1, 11, 64 * KIB), synthetic(1, 12, 24 * KIB), 64 * KIB, 24 * KIB);
    for (size_t i = 0; i < sizeof(LEAKS) / sizeof(LEAKS[0]); i++) {
        reef_gate_fit fit = {.leak_max = LEAKS[i]};
        must(reef_gate_train(&f.gate, &f.old_fit.view, &f.old_calibrate.view, &f.new_windows.view,
                             &fit, &why));
        size_t fired, nearly, bytes = f.old_calibrate.view.count * WINDOW;
        count_fired(&f.gate, &f.old_calibrate.view, &fired, &nearly);
        double allowed = (double)LEAKS[i] * (double)bytes;
        assert_true((double)fired <= allowed);
        assert_true((double)nearly > allowed);
        assert_true(fabs((double)fit.leak - (double)fired / (double)bytes) < 1e-6);
    }
    fixture_release(&f);
}

FIXTURE_TEST(windows_may_be_empty_or_shorter_than_an_n_gram) {
    const uint8_t *bytes[] = {f->new.bytes, f->new.bytes + 5, f->new.bytes, f->new.bytes + 9};
    const size_t sizes[] = {0, 2, 0, 3000};
    reef_gate_windows odd = {4, bytes, sizes};
    reef_gate_fit fit = {.leak_max = 0.01f};
    must(reef_gate_train(&f->gate, &f->old_fit.view, &f->old_calibrate.view, &odd, &fit, &why));
    must(reef_gate_train(&f->gate, &odd, &odd, &f->new_windows.view, &fit, &why));
    odd = (reef_gate_windows){2, bytes, sizes}; // two bytes in all
    must(reef_gate_train(&f->gate, &odd, &odd, &odd, &fit, &why));
    assert_true(isfinite(f->gate.threshold));
}

FIXTURE_TEST(nothing_to_learn_from_is_refused) {
    const uint8_t *bytes[] = {f->new.bytes};
    const size_t sizes[] = {0};
    const reef_gate_windows none = {0, NULL, NULL}, hollow = {1, bytes, sizes};
    const reef_gate_windows *some = &f->new_windows.view;
    reef_gate_fit fit = {.leak_max = 0.01f};
    must_fail(reef_gate_train(&f->gate, &none, some, some, &fit, &why), REEF_ERR_INVALID,
              "old windows to fit");
    must_fail(reef_gate_train(&f->gate, some, &hollow, some, &fit, &why), REEF_ERR_INVALID,
              "old windows to calibrate");
    must_fail(reef_gate_train(&f->gate, some, some, &none, &fit, &why), REEF_ERR_INVALID,
              "new windows");
    fit = (reef_gate_fit){.leak_max = NAN};
    assert_int_equal(reef_gate_train(&f->gate, some, some, some, &fit, &why), REEF_ERR_INVALID);
    assert_true(f->gate.threshold == INFINITY); // and the gate still never fires
}

// ---- real texts ---------------------------------------------------------------------------------

static bool text_read(text *t, const char *domain, const char *part) {
    char path[1024];
    const char *data = getenv("REEF_DATA_DIR");
    if (data == NULL) return false;
    snprintf(path, sizeof(path), "%s/text/%s/%s.txt", data, domain, part);
    FILE *file = fopen(path, "rb");
    if (file == NULL) return false;
    const size_t size_max = 4096 * KIB;
    *t = (text){room(size_max), 0};
    t->size = fread(t->bytes, 1, size_max, file);
    fclose(file);
    return t->size > 0;
}

// Leak and detection on the test parts, which the gate never saw, each read as one stream.
static void assert_told_apart(const char *old_domain,
                              const char *new_domain,
                              size_t old_kib,
                              size_t new_kib) {
    text old = {0}, new = {0}, old_test = {0}, new_test = {0};
    bool found = text_read(&old, old_domain, "train") && text_read(&new, new_domain, "train") &&
                 text_read(&old_test, old_domain, "test") &&
                 text_read(&new_test, new_domain, "test");
    if (!found) {
        printf("skipped: no texts %s and %s; set REEF_DATA_DIR\n", old_domain, new_domain);
        skip();
    }
    fixture f;
    fixture_init(&f, old, new, old_kib * KIB, new_kib * KIB);
    fixture_train(&f);
    double leak = fire_share(&f.gate, &old_test, 0);
    double detect = fire_share(&f.gate, &new_test, SETTLING);
    printf("%s -> %s, %zu KiB old, %zu KiB new: leak %.4f (calibrated %.4f), detection %.4f "
           "(fitted %.4f)\n",
           old_domain, new_domain, old_kib, new_kib, leak, (double)f.fit.leak, detect,
           (double)f.fit.detect);
    fixture_release(&f);
    assert_true(leak <= 0.02);
    assert_true(detect >= 0.98);
}

PLAIN_TEST(german_and_french_are_distinguished) {
    assert_told_apart("german", "french", 256, 24);
    assert_told_apart("german", "french", 1024, 256);
}

PLAIN_TEST(encyclopedia_and_python_are_distinguished) {
    assert_told_apart("wikitext2", "python", 256, 24);
    assert_told_apart("wikitext2", "python", 1024, 256);
}

PLAIN_TEST(plays_and_encyclopedia_are_distinguished) {
    assert_told_apart("shakespeare", "wikitext2", 256, 24);
    assert_told_apart("shakespeare", "wikitext2", 980, 256);
}

RUN_TESTS
