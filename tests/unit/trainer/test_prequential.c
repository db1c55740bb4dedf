// The loss before training, by source: the same losses as the series of the whole stream, told
// apart.
#include "lifelong.h"

#include <math.h>

enum { PIECE = 100, PIECES = 60 };

static int setup(void **state) {
    int code = lifelong_setup(state);
    lifelong *f = *state;
    choose(&f->config, "boundaries", "given");
    make_pool(f, 1);
    return code;
}

static void feed_from(lifelong *f, const char *source, const uint8_t *bytes, size_t count) {
    size_t taken = 0;
    must(reef_trainer_feed(f->trainer, source, bytes, count, &taken, NULL, &why));
    assert_int_equal(taken, count);
}

static void feed_by_turns(lifelong *f, size_t pieces) {
    uint8_t words[PIECE], letters[PIECE];
    memset(letters, 'a', sizeof(letters));
    for (size_t i = 0; i < pieces; i++) {
        lifelong_text(words, sizeof(words), 1, (uint32_t)i);
        feed_from(f, "words", words, sizeof(words));
        feed_from(f, "letters", letters, sizeof(letters));
    }
}

static reef_status add_point(void *context, const reef_point *point, reef_error *err) {
    *(double *)context += (double)point->bits_per_byte * LIFELONG_BATCH;
    return REEF_OK;
}

static double series_bits(lifelong *f) {
    double sum = 0.0;
    (void)commit(f);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_series_scan(txn, add_point, &sum, &why));
    reef_txn_abort(txn);
    return sum;
}

#define FIXTURE_TEST(name) TEST_WITH(name, setup, lifelong_teardown, lifelong *f)

FIXTURE_TEST(losses_are_distinguished_and_add_up) {
    reef_source_loss words, letters;
    feed_by_turns(f, PIECES);
    assert_true(reef_trainer_source_loss(f->trainer, "words", &words));
    assert_true(reef_trainer_source_loss(f->trainer, "letters", &letters));
    assert_true(letters.sum / (double)letters.scored < 0.8 * words.sum / (double)words.scored);
    assert_true(letters.recent < words.recent);
    reef_trainer_status now = status_of(f);
    assert_int_equal(words.scored + letters.scored, now.stream_bytes);
    // The first byte of all is not a target; half of the bytes are of each.
    assert_in_range(words.scored, now.stream_bytes / 2 - PIECE, now.stream_bytes / 2 + PIECE);
    double all = series_bits(f);
    assert_true(fabs(words.sum + letters.sum - all) < 1e-3 * all);
    assert_false(reef_trainer_source_loss(f->trainer, "nobody", &words));
    assert_int_equal(words.scored, 0);
}

// The first batch weighs no more than any other: while little has come, the recent loss is nearly
// the mean.
FIXTURE_TEST(the_recent_loss_does_not_hang_on_the_first_batch) {
    reef_source_loss words;
    feed_by_turns(f, PIECES);
    assert_true(reef_trainer_source_loss(f->trainer, "words", &words));
    double mean = words.sum / (double)words.scored;
    if (!(fabs(words.recent - mean) < 0.05 * mean))
        fail_msg("recent %g, mean %g", words.recent, mean);
}

// Bytes that were accepted before have an unknown source: they are in no figure.
FIXTURE_TEST(after_a_restart_counting_restarts) {
    reef_source_loss loss;
    feed_by_turns(f, 3);
    (void)commit(f);
    reef_trainer_status before = status_of(f);
    assert_in_range(before.pending_bytes, 2, LIFELONG_BATCH);
    open_again(f, 1);
    assert_false(reef_trainer_source_loss(f->trainer, "words", &loss));
    feed_by_turns(f, 4);
    reef_trainer_status after = status_of(f);
    reef_source_loss words, letters;
    assert_true(reef_trainer_source_loss(f->trainer, "words", &words));
    assert_true(reef_trainer_source_loss(f->trainer, "letters", &letters));
    assert_int_equal(words.scored + letters.scored,
                     after.stream_bytes + 1 - before.stream_bytes - before.pending_bytes);
}

RUN_TESTS
