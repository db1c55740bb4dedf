// The history of the loss: it takes bounded space, loses no stretch of the stream, and does not
// enter the root hash.
#include "lifelong.h"
#include "loss_history.h"
#include "reef_pool_check.h"
#include "trainer_internal.h"

#include <math.h>

#define POINT_STREAM_BYTES 10u // between two points

static double loss_of(uint64_t index) {
    return (double)(index % 7);
}

// As if a batch had been trained, but without the work.
static void add_points(lifelong *f, uint64_t *index, size_t count) {
    for (size_t i = 0; i < count; i++, ++*index) {
        f->trainer->step = *index;
        f->trainer->stream_bytes = (*index + 1) * POINT_STREAM_BYTES;
        must(reef_series_add(f->trainer, *index, f->trainer->stream_bytes, loss_of(*index), &why));
    }
}

typedef struct seen {
    uint64_t batches, stream_bytes;
    size_t count, levels[REEF_SERIES_LEVELS];
    uint32_t level;
} seen;

// Each point stands for the batches since the one before it.
static reef_status see(void *context, const reef_point *point, reef_error *err) {
    seen *all = context;
    uint64_t batches = 1;
    double sum = 0;
    for (uint32_t l = 0; l < point->level; l++) batches *= REEF_SERIES_FOLD;
    for (uint64_t i = 0; i < batches; i++) sum += loss_of(all->batches + i);
    assert_true(all->count == 0 || point->level <= all->level);
    assert_int_equal(point->step, all->batches + batches - 1);
    assert_int_equal(point->stream_bytes, (point->step + 1) * POINT_STREAM_BYTES);
    assert_true(fabs((double)point->bits_per_byte - sum / (double)batches) < 1e-5);
    all->batches += batches;
    all->stream_bytes = point->stream_bytes;
    all->level = point->level;
    all->levels[point->level]++;
    all->count++;
    return REEF_OK;
}

static seen look(lifelong *f) {
    seen all = {0};
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_series_scan(txn, see, &all, &why));
    reef_txn_abort(txn);
    return all;
}

LIFELONG_TEST(a_long_history_takes_bounded_space_and_has_no_gap) {
    uint64_t index = 0;
    make_pool(f, 1);
    enum { COMMITS = 120, EACH = 1013 };
    for (size_t i = 0; i < COMMITS; i++) {
        add_points(f, &index, EACH);
        commit(f);
        if (i % 17 == 0) { // a new trainer starts counting
            close_trainer(f);
            reef_trainer_options options = {.threads = 1};
            must(reef_trainer_open(&f->trainer, f->store, &options, &why));
        }
        seen all = look(f);
        assert_int_equal(all.batches, index);
        for (uint32_t l = 0; l < REEF_SERIES_LEVELS; l++)
            assert_true(all.levels[l] <= REEF_SERIES_POINTS_MAX);
    }
    seen all = look(f);
    assert_true(all.levels[1] > 0 && all.levels[2] > 0);
    assert_true(all.levels[0] >= REEF_SERIES_POINTS_MAX / 2);
    reef_check_report report;
    must(reef_store_check(f->store, NULL, &report, &why));
    assert_int_equal(report.damaged, 0);
}

LIFELONG_TEST(what_comes_after_a_position_is_forgotten_to_the_point) {
    uint64_t index = 0;
    make_pool(f, 1);
    for (size_t i = 0; i < 6; i++) {
        add_points(f, &index, 1000);
        commit(f);
    }
    seen all = look(f);
    assert_true(all.levels[1] > 0);
    // First within the raw points and within a record, then within the means, whose last one may
    // then not count.
    const uint64_t positions[] = {5500 * POINT_STREAM_BYTES, 1000 * POINT_STREAM_BYTES};
    for (size_t i = 0; i < 2; i++) {
        reef_commit committed = {.step = 1, .stream_bytes = positions[i], .unix_ms = 1};
        reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
        must(reef_series_forget_after(txn, positions[i], &why));
        must(reef_txn_commit(txn, &committed, &why));
        all = look(f);
        assert_true(all.stream_bytes <= positions[i]);
        assert_true(all.stream_bytes + (i == 0 ? 1 : REEF_SERIES_FOLD) * POINT_STREAM_BYTES >
                    positions[i]);
    }
}

RUN_TESTS
