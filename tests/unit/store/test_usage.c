// Usage over time: deltas, windows, compaction. Sums against a plain list of what was used when.
#include "reef_store.h"
#include "reef_usage.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "data_file.h"
#include "pool.h"
#include "test.h"

#define MINUTE UINT64_C(60000)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)
#define START (UINT64_C(19723) * DAY) // 2024-01-01
#define EXPERTS 200
#define BLOCK_ROWS 64

// ---- helpers ------------------------------------------------------------------------------------

// Totals as a trainer has them: of one layer, growing.
typedef struct totals {
    uint64_t of[EXPERTS][2];
} totals;

static void use(totals *t, size_t expert, uint64_t count, uint64_t score) {
    t->of[expert][0] += count;
    t->of[expert][1] += score;
}

static reef_commit put_totals(reef_store *store, const totals *t, uint64_t unix_ms, uint64_t step) {
    reef_txn *txn = pool_begin(store, REEF_TXN_WRITE);
    must(reef_usage_put(txn, 0, 0, BLOCK_ROWS, EXPERTS, t->of[0], unix_ms, &why));
    return pool_commit(txn, step);
}

static void add(reef_store *store, const reef_usage_use *uses, size_t count, uint64_t unix_ms) {
    reef_txn *txn = pool_begin(store, REEF_TXN_WRITE);
    must(reef_usage_add(txn, 0, 0, count, uses, unix_ms, &why));
    pool_commit(txn, 1);
}

static reef_usage_range range_of(
    reef_store *store, uint64_t since, uint64_t until, size_t experts, uint64_t *sums) {
    reef_usage_range range = {.since_ms = since, .until_ms = until};
    reef_txn *txn = pool_begin(store, REEF_TXN_READ);
    memset(sums, 0, experts * 16);
    must(reef_usage_sum(txn, 0, 0, experts, &range, sums, &why));
    reef_txn_abort(txn);
    return range;
}

static reef_usage_stat survey(reef_store *store) {
    reef_usage_stat stat;
    reef_txn *txn = pool_begin(store, REEF_TXN_READ);
    must(reef_usage_survey(txn, &stat, &why));
    reef_txn_abort(txn);
    return stat;
}

static bool step_once(reef_store *store, uint64_t now) {
    reef_usage_compaction done;
    must(reef_store_compact(store, now, &done, NULL, &why));
    return done.merged > 0 || done.dropped > 0;
}

static size_t compact(reef_store *store, uint64_t now) {
    size_t steps = 0;
    while (step_once(store, now)) steps++;
    return steps;
}

static void assert_levels(reef_store *store, uint64_t deltas, uint64_t hours, uint64_t days) {
    reef_usage_stat stat = survey(store);
    assert_int_equal(stat.levels[REEF_USAGE_DELTAS].windows, deltas);
    assert_int_equal(stat.levels[REEF_USAGE_HOURS].windows, hours);
    assert_int_equal(stat.levels[REEF_USAGE_DAYS].windows, days);
}

// ---- deltas -------------------------------------------------------------------------------------

POOL_TEST(a_delta_is_what_the_totals_grew_by) {
    totals t = {0};
    uint64_t sums[EXPERTS][2], stored[BLOCK_ROWS][2];
    use(&t, 3, 2, 700);
    use(&t, 199, 1, 0);
    put_totals(f->store, &t, START, 1);
    use(&t, 3, 1, 50);
    use(&t, 64, 5, 5);
    put_totals(f->store, &t, START + 10, 2);
    put_totals(f->store, &t, START + 20, 3); // nothing was used: no delta
    assert_levels(f->store, 2, 0, 0);

    reef_usage_range range = range_of(f->store, START + 1, START + 11, EXPERTS, sums[0]);
    assert_int_equal(range.windows, 1);
    assert_true(range.from_ms == START + 10 && range.to_ms == START + 10);
    assert_true(range.known_ms == START);
    for (size_t i = 0; i < EXPERTS; i++) {
        assert_int_equal(sums[i][0], i == 3 ? 1 : i == 64 ? 5 : 0);
        assert_int_equal(sums[i][1], i == 3 ? 50 : i == 64 ? 5 : 0);
    }
    range_of(f->store, 0, UINT64_MAX, EXPERTS, sums[0]);
    assert_memory_equal(sums, t.of, sizeof(sums));
    // The totals stand as they always did, in blocks of the caller's, the last one shorter.
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    reef_key key = {.db = REEF_DB_USAGE, .block = 1};
    must(reef_record_read(txn, &key, stored, sizeof(stored), &why));
    assert_memory_equal(stored, t.of[64], sizeof(stored));
    key.block = 3;
    must(reef_record_read(txn, &key, stored, (EXPERTS - 192) * 16, &why));
    assert_int_equal(stored[7][0], 1);
    reef_txn_abort(txn);
    pool_check(f->store);
}

POOL_TEST(a_layer_that_grows_keeps_its_deltas) {
    totals t = {0};
    uint64_t sums[EXPERTS][2];
    use(&t, 5, 1, 9);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    must(reef_usage_put(txn, 0, 0, BLOCK_ROWS, 70, t.of[0], START, &why));
    pool_commit(txn, 1);
    use(&t, 69, 4, 4);
    use(&t, 150, 2, 8);
    put_totals(f->store, &t, START + DAY, 2);
    range_of(f->store, START + 1, UINT64_MAX, EXPERTS, sums[0]);
    assert_int_equal(sums[5][0], 0);
    assert_int_equal(sums[69][0], 4);
    assert_int_equal(sums[150][1], 8);
    txn = pool_begin(f->store, REEF_TXN_WRITE);
    must_fail(reef_usage_put(txn, 0, 0, BLOCK_ROWS, 70, t.of[0], START, &why), REEF_ERR_INVALID,
              "cannot become that of 6");
    reef_txn_abort(txn);
}

POOL_TEST(commits_of_one_time_share_a_delta) {
    totals t = {0};
    uint64_t sums[EXPERTS][2];
    use(&t, 1, 1, 1);
    put_totals(f->store, &t, START, 1);
    use(&t, 1, 2, 3);
    use(&t, 0, 7, 7);
    put_totals(f->store, &t, START, 2);
    assert_levels(f->store, 1, 0, 0);
    range_of(f->store, START, START + 1, EXPERTS, sums[0]);
    assert_memory_equal(sums, t.of, sizeof(sums));
}

POOL_TEST(numbers_of_every_size_come_back) {
    enum { MANY = 2 * REEF_USAGE_SEGMENT + 5 };
    static const uint32_t ids[] = {0,
                                   1,
                                   127,
                                   128,
                                   129 + 127,
                                   20000,
                                   REEF_USAGE_SEGMENT - 1,
                                   REEF_USAGE_SEGMENT,
                                   2 * REEF_USAGE_SEGMENT,
                                   MANY - 1};
    static const uint64_t numbers[] = {
        1, 127, 128, 16383, 16384, UINT64_C(1) << 35, UINT64_MAX, 0, UINT64_C(1) << 63, UINT32_MAX};
    reef_usage_use uses[10];
    uint64_t *sums = room(MANY * 16);
    for (size_t i = 0; i < 10; i++)
        uses[i] =
            (reef_usage_use){.expert = ids[i], .count = numbers[i], .score = numbers[(i + 3) % 10]};
    add(f->store, uses, 10, START);
    assert_int_equal(survey(f->store).levels[REEF_USAGE_DELTAS].records, 3);
    compact(f->store, START + 5 * DAY); // read and written twice more
    assert_levels(f->store, 0, 0, 1);
    range_of(f->store, 0, UINT64_MAX, MANY, sums);
    uint64_t all = 0;
    for (size_t i = 0; i < MANY; i++) all += sums[2 * i] != 0 || sums[2 * i + 1] != 0;
    assert_int_equal(all, 10);
    for (size_t i = 0; i < 10; i++) {
        assert_true(sums[2 * (size_t)ids[i]] == uses[i].count);
        assert_true(sums[2 * (size_t)ids[i] + 1] == uses[i].score);
    }
    pool_check(f->store);
}

POOL_TEST(a_delta_has_the_bytes_that_the_format_says) {
    static const uint8_t expected[] = {0x00, 0x00, 0x03, 0x02, 0xac, 0x02, 0x01, 0x01, 0x00};
    static const uint8_t hour[] = {0x80, 0x7d, 0xfe, 0xa4, 0x01, // 16,000 and 21,118 ms
                                   0x03, 0x04, 0xd8, 0x04, 0x01, 0x02, 0x00};
    const reef_usage_use uses[] = {{3, 2, 300}, {4, 0, 0}, {5, 1, 0}};
    uint8_t stored[sizeof(hour)];
    reef_key key = {.db = REEF_DB_USAGE, .level = REEF_USAGE_DELTAS, .window = START + 16000};
    add(f->store, uses, 3, START + 16000);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_record_read(txn, &key, stored, sizeof(expected), &why));
    assert_memory_equal(stored, expected, sizeof(expected));
    reef_txn_abort(txn);
    add(f->store, uses, 3, START + 21118);
    compact(f->store, START + 5 * HOUR);
    key = (reef_key){.db = REEF_DB_USAGE, .level = REEF_USAGE_HOURS, .window = START};
    txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_record_read(txn, &key, stored, sizeof(hour), &why));
    assert_memory_equal(stored, hour, sizeof(hour));
    reef_txn_abort(txn);
}

// ---- windows ------------------------------------------------------------------------------------

POOL_TEST(windows_grow_coarser_with_age_and_days_end) {
    totals t = {0};
    uint64_t sums[EXPERTS][2];
    for (uint64_t minute = 0; minute < 300; minute += 10) { // 30 commits in five hours
        use(&t, minute % 7, 1, minute);
        put_totals(f->store, &t, START + minute * MINUTE, minute);
    }
    assert_int_equal(compact(f->store, START + HOUR - 1), 0);
    assert_levels(f->store, 30, 0, 0);
    compact(f->store, START + 3 * HOUR); // the first two hours are an hour old or more
    assert_levels(f->store, 18, 2, 0);
    reef_usage_range range = range_of(f->store, START + 1, START + 2, EXPERTS, sums[0]);
    assert_true(range.from_ms == START && range.to_ms == START + 50 * MINUTE); // as a whole
    assert_int_equal(sums[0][0] + sums[1][0] + sums[2][0] + sums[3][0] + sums[4][0] + sums[5][0] +
                         sums[6][0],
                     6);
    compact(f->store, START + 2 * DAY);
    assert_levels(f->store, 0, 5, 0);
    compact(f->store, START + 3 * DAY);
    assert_levels(f->store, 0, 0, 1);
    compact(f->store, START + 400 * DAY);
    assert_levels(f->store, 0, 0, 1);
    range_of(f->store, 0, UINT64_MAX, EXPERTS, sums[0]);
    assert_memory_equal(sums, t.of, sizeof(sums));
    compact(f->store, START + 401 * DAY);
    assert_levels(f->store, 0, 0, 0);
    range = range_of(f->store, 0, UINT64_MAX, EXPERTS, sums[0]);
    assert_int_equal(range.windows, 0);
    assert_true(range.known_ms == 0 && range.from_ms == 0);
    pool_check(f->store);
}

static void expect_last(reef_store *store, size_t expert, uint64_t ms) {
    uint64_t last[EXPERTS];
    reef_txn *txn = pool_begin(store, REEF_TXN_READ);
    memset(last, 0xff, sizeof(last)); // all of it is written
    must(reef_usage_last(txn, 0, 0, EXPERTS, last, &why));
    reef_txn_abort(txn);
    for (size_t i = 0; i < EXPERTS; i++)
        if (i != 3 && i != 199) assert_true(last[i] == 0);
    assert_true(last[expert] == ms);
}

POOL_TEST(the_last_use_of_an_expert_is_known_as_well_as_its_window) {
    totals t = {0};
    use(&t, 3, 1, 1);
    use(&t, 199, 9, 9);
    put_totals(f->store, &t, START + 5, 1);
    use(&t, 3, 1, 1);
    put_totals(f->store, &t, START + MINUTE, 2);
    expect_last(f->store, 3, START + MINUTE);
    expect_last(f->store, 199, START + 5);
    // In one window of an hour both count up to its last commit.
    assert_true(compact(f->store, START + 3 * HOUR) > 0);
    assert_levels(f->store, 0, 1, 0);
    expect_last(f->store, 199, START + MINUTE);
    // A clock that went back: the latest time counts, not the latest commit.
    use(&t, 3, 1, 1);
    put_totals(f->store, &t, START - 2 * HOUR, 3);
    expect_last(f->store, 3, START + MINUTE);
}

POOL_TEST(a_clock_that_goes_back_loses_nothing) {
    totals t = {0};
    uint64_t sums[EXPERTS][2];
    use(&t, 1, 1, 10);
    put_totals(f->store, &t, START + 10 * DAY, 1);
    compact(f->store, START + 20 * DAY);
    assert_levels(f->store, 0, 0, 1);
    use(&t, 1, 1, 10); // into the hour, and then the day, that exists already
    use(&t, 2, 3, 30);
    put_totals(f->store, &t, START + 10 * DAY + 5, 2);
    use(&t, 2, 1, 1); // a day before all others
    put_totals(f->store, &t, START, 3);
    assert_int_equal(compact(f->store, START), 0); // now is long ago: nothing is old
    assert_levels(f->store, 2, 0, 1);
    assert_int_equal(compact(f->store, 5), 0);
    compact(f->store, START + 20 * DAY);
    assert_levels(f->store, 0, 0, 2);
    range_of(f->store, START + 10 * DAY, START + 11 * DAY, EXPERTS, sums[0]);
    assert_int_equal(sums[1][0], 2);
    assert_int_equal(sums[2][1], 30);
    range_of(f->store, 0, UINT64_MAX, EXPERTS, sums[0]);
    assert_memory_equal(sums, t.of, sizeof(sums));
}

// ---- against a list of what was used when -------------------------------------------------------

#define USES_MAX 4000

typedef struct used {
    uint64_t at, count, score;
    size_t expert;
} used;

typedef struct history {
    used list[USES_MAX];
    size_t count;
    totals totals;
} history;

static void expect_range(
    reef_store *store, const history *h, uint64_t since, uint64_t until, bool may_be_gone) {
    uint64_t sums[EXPERTS][2], expected[EXPERTS][2] = {{0}};
    reef_usage_range range = range_of(store, since, until, EXPERTS, sums[0]);
    if (range.windows == 0 && may_be_gone) return;
    for (size_t i = 0; i < h->count; i++) {
        if (h->list[i].at < since || h->list[i].at >= until) continue;
        expected[h->list[i].expert][0] += h->list[i].count;
        expected[h->list[i].expert][1] += h->list[i].score;
    }
    assert_memory_equal(sums, expected, sizeof(sums));
}

// Every day that is kept is what was used on it; a day that is gone is older than all that are
// kept.
static void expect_history(reef_store *store, const history *h, uint64_t first, uint64_t last) {
    uint64_t sums[EXPERTS][2];
    reef_usage_range all = range_of(store, 0, UINT64_MAX, EXPERTS, sums[0]);
    for (size_t i = 0; i < EXPERTS; i++) {
        assert_true(sums[i][0] <= h->totals.of[i][0]);
        assert_true(sums[i][1] <= h->totals.of[i][1]);
    }
    for (uint64_t day = first / DAY * DAY; day <= last; day += DAY)
        expect_range(store, h, day, day + DAY, day < all.known_ms);
    // What no window has is what was used before them, to the last selection.
    uint64_t before[EXPERTS][2] = {{0}};
    for (size_t i = 0; i < h->count; i++) {
        if (all.windows > 0 && h->list[i].at >= all.known_ms / DAY * DAY) continue;
        before[h->list[i].expert][0] += h->list[i].count;
        before[h->list[i].expert][1] += h->list[i].score;
    }
    for (size_t i = 0; i < EXPERTS; i++) {
        assert_true(h->totals.of[i][0] - sums[i][0] == before[i][0]);
        assert_true(h->totals.of[i][1] - sums[i][1] == before[i][1]);
    }
}

POOL_TEST(sums_are_those_of_a_plain_list_whatever_was_compacted_when) {
    history *h = room(sizeof(*h));
    uint64_t draw = 11, now = START, dropped = 0;
    for (uint64_t n = 0; n < 400; n++) {
        // Mostly minutes pass, sometimes days, sometimes the clock goes back by up to two hours.
        int kind = draw_int(&draw, 0, 9);
        if (kind < 6)
            now += (uint64_t)draw_int(&draw, 1, 1800000);
        else if (kind < 8)
            now += (uint64_t)draw_int(&draw, 1, 8) * DAY * 3 / 2;
        else
            now -= (uint64_t)draw_int(&draw, 0, 2 * (int)HOUR);
        if (now < START) now = START;
        for (int uses = draw_int(&draw, 0, 9); uses > 0; uses--) {
            used *u = &h->list[h->count++];
            *u = (used){.at = now,
                        .count = (uint64_t)draw_int(&draw, 1, 300),
                        .score = draw_bits(&draw) >> draw_int(&draw, 20, 60),
                        .expert = (size_t)draw_int(&draw, 0, EXPERTS - 1)};
            use(&h->totals, u->expert, u->count, u->score);
        }
        reef_commit before = put_totals(f->store, &h->totals, now, n);
        for (int steps = draw_int(&draw, 0, 3); steps > 0; steps--) {
            reef_commit after = before;
            reef_usage_compaction done;
            must(reef_store_compact(f->store, now, &done, &after, &why));
            dropped += done.dropped;
            // Another commit, the same training.
            assert_memory_equal(after.root, before.root, REEF_HASH_BYTES);
            assert_true(after.step == before.step && after.stream_bytes == before.stream_bytes);
        }
        if (n % 20 == 19) expect_history(f->store, h, START, now + DAY);
    }
    compact(f->store, now);
    expect_history(f->store, h, START, now + DAY);
    assert_true(dropped > 0); // the walk was long enough for days to end
    pool_check(f->store);
}

// ---- bounded space, bounded steps ---------------------------------------------------------------

POOL_TEST(a_day_that_was_begun_early_reaches_as_far_as_it_does) {
    totals t = {0};
    uint64_t sums[EXPERTS][2];
    for (uint64_t hour = 0; hour < 6; hour++) {
        use(&t, hour, 1, 1);
        put_totals(f->store, &t, START + hour * HOUR + MINUTE, hour);
    }
    // The clock was days ahead for a moment: the hours so far are a day now.
    compact(f->store, START + 3 * DAY);
    use(&t, 50, 9, 9);
    put_totals(f->store, &t, START + 20 * HOUR, 9);
    reef_usage_range range = range_of(f->store, START + 10 * HOUR, START + DAY, EXPERTS, sums[0]);
    assert_int_equal(range.windows, 1); // the day reaches to the sixth hour only
    assert_true(range.from_ms == START + 20 * HOUR && range.to_ms == START + 20 * HOUR);
    assert_int_equal(sums[50][0], 9);
    assert_int_equal(sums[5][0], 0);
    range = range_of(f->store, START + 5 * HOUR, START + 6 * HOUR, EXPERTS, sums[0]);
    assert_int_equal(range.windows, 1);
    assert_true(range.from_ms == START + MINUTE && range.to_ms == START + 5 * HOUR + MINUTE);
    compact(f->store, START + 3 * DAY);
    range = range_of(f->store, START + 10 * HOUR, START + DAY, EXPERTS, sums[0]);
    assert_true(range.from_ms == START + MINUTE && range.to_ms == START + 20 * HOUR);
}

POOL_TEST(space_is_bounded_when_every_expert_is_used) {
    enum { ALL = REEF_USAGE_SEGMENT };
    reef_usage_use *uses = room(ALL * sizeof(*uses));
    uint64_t *sums = room(ALL * 16);
    for (uint32_t i = 0; i < ALL; i++)
        uses[i] = (reef_usage_use){.expert = i, .count = 1 + i % 200, .score = 100000 + i};
    for (uint64_t n = 0; n < 60; n++) { // within one hour, so that age alone merges nothing
        add(f->store, uses, ALL, START + n * 1000);
        compact(f->store, START + n * 1000);
        reef_usage_stat stat = survey(f->store);
        for (uint32_t l = REEF_USAGE_DELTAS; l < REEF_USAGE_LEVELS; l++)
            assert_true(stat.levels[l].bytes <= reef_usage_bytes_max(l, stat.experts));
    }
    reef_usage_stat stat = survey(f->store);
    assert_int_equal(stat.levels[REEF_USAGE_HOURS].windows, 1);
    assert_in_range(stat.levels[REEF_USAGE_DELTAS].windows, 1, 59);
    range_of(f->store, 0, UINT64_MAX, ALL, sums);
    for (uint32_t i = 0; i < ALL; i++) {
        assert_true(sums[2 * (size_t)i] == 60 * uses[i].count);
        assert_true(sums[2 * (size_t)i + 1] == 60 * uses[i].score);
    }
}

POOL_TEST(days_beyond_their_bytes_go_as_a_whole) {
    enum { LAYERS = 3, DAYS_PUT = 16 };
    reef_usage_use *uses = room(REEF_USAGE_SEGMENT * sizeof(*uses));
    for (uint32_t i = 0; i < REEF_USAGE_SEGMENT; i++)
        uses[i] = (reef_usage_use){.expert = i, .count = 1 + i, .score = UINT64_C(1) << 40};
    for (uint64_t day = 0; day < DAYS_PUT; day++) { // some 2 MiB a day
        reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
        for (uint32_t layer = 0; layer < LAYERS; layer++)
            must(reef_usage_add(txn, 0, layer, REEF_USAGE_SEGMENT, uses, START + day * DAY, &why));
        pool_commit(txn, day);
        compact(f->store, START + (day + 4) * DAY);
    }
    reef_usage_level_stat days = survey(f->store).levels[REEF_USAGE_DAYS];
    assert_in_range(days.windows, 2, DAYS_PUT - 1);
    assert_true(days.bytes <= reef_usage_bytes_max(REEF_USAGE_DAYS, 0));
    assert_int_equal(days.records, LAYERS * days.windows);
    assert_true(days.first_ms == START + (DAYS_PUT - days.windows) * DAY); // the oldest went
}

POOL_TEST(steps_are_small_and_many) {
    enum { COUNT = 8192, COMMITS = 120 };
    reef_usage_use uses[COUNT];
    for (uint32_t i = 0; i < COUNT; i++)
        uses[i] = (reef_usage_use){.expert = 8 * i, .count = 1, .score = UINT64_C(1) << 30};
    for (uint64_t n = 0; n < COMMITS; n++) add(f->store, uses, COUNT, START + n);
    reef_usage_compaction done;
    uint64_t merged = 0, steps = 0;
    for (;; steps++) {
        must(reef_store_compact(f->store, START + 4 * HOUR, &done, NULL, &why));
        if (done.merged == 0) break;
        assert_true(done.merged < COMMITS / 2); // a megabyte at a time
        merged += done.merged;
    }
    assert_int_equal(merged, COMMITS);
    assert_true(steps > 2);
    assert_levels(f->store, 0, 1, 0);
}

// ---- the process ends between and within steps --------------------------------------------------

// Some days of commits with everything that compaction does ahead of them.
static uint64_t put_some_days(reef_store *store, totals *t) {
    uint64_t now = START;
    for (uint64_t n = 0; n < 60; n++, now += 3 * HOUR) {
        use(t, n % EXPERTS, n + 1, n);
        use(t, (7 * n) % EXPERTS, 1, 1000);
        put_totals(store, t, now, n);
    }
    return now + 399 * DAY; // half of the days are to be dropped
}

POOL_TEST(a_step_that_is_not_committed_changes_nothing) {
    totals t = {0};
    uint64_t now = put_some_days(f->store, &t), before[EXPERTS][2], after[EXPERTS][2];
    size_t steps = 0;
    do {
        reef_usage_compaction done;
        reef_usage_stat stat = survey(f->store);
        range_of(f->store, 0, UINT64_MAX, EXPERTS, before[0]);
        reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
        must(reef_usage_compact(txn, now, &done, &why));
        reef_txn_abort(txn);
        pool_reopen(f);
        reef_usage_stat again = survey(f->store);
        assert_memory_equal(&stat, &again, sizeof(stat));
        range_of(f->store, 0, UINT64_MAX, EXPERTS, after[0]);
        assert_memory_equal(before, after, sizeof(before));
        pool_check(f->store);
        if (done.dropped > 0) break; // from here on sums become smaller
        assert_memory_equal(before, t.of, sizeof(before));
        steps++;
    } while (step_once(f->store, now));
    assert_true(steps >= 2); // deltas, hours; then the days that end
    compact(f->store, now);
    assert_int_equal(survey(f->store).levels[REEF_USAGE_DELTAS].records, 0);
    assert_int_equal(survey(f->store).levels[REEF_USAGE_HOURS].records, 0);
}

// Compacts until there is nothing left; used in a child.
static int child_compacts(const char *path, uint64_t now) {
    reef_store *store = NULL;
    reef_usage_compaction done = {.merged = 1};
    if (reef_store_open(&store, path, &(reef_store_options){.write = true}, &why) != REEF_OK)
        return 1;
    while (done.merged > 0 || done.dropped > 0)
        if (reef_store_compact(store, now, &done, NULL, &why) != REEF_OK) return 2;
    reef_store_close(store);
    return 0;
}

POOL_TEST(sums_survive_kills_at_any_moment) {
    enum { COUNT = 8192 };
    reef_usage_use uses[COUNT];
    uint64_t *sums = room((size_t)8 * COUNT * 16);
    bool finished = false;
    for (uint32_t i = 0; i < COUNT; i++)
        uses[i] = (reef_usage_use){.expert = 8 * i, .count = 2, .score = UINT64_C(1) << 30};
    for (uint64_t n = 0; n < 90; n++) add(f->store, uses, COUNT, START + n * HOUR / 2);
    pool_close(f);
    for (long us = 500; !finished; us += us / 2) { // at last it gets through
        int how = 0;
        pid_t child = fork();
        if (child == 0) _exit(child_compacts(f->path, START + 10 * DAY));
        nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000}, NULL);
        kill(child, SIGKILL);
        while (waitpid(child, &how, 0) < 0 && errno == EINTR) {
        }
        finished = WIFEXITED(how);
        if (finished) assert_int_equal(WEXITSTATUS(how), 0);
        f->store = pool_open(f->path, false, true);
        range_of(f->store, 0, UINT64_MAX, (size_t)8 * COUNT, sums);
        for (size_t i = 0; i < (size_t)8 * COUNT; i++) {
            assert_true(sums[2 * i] == (i % 8 == 0 ? 180 : 0));
            assert_true(sums[2 * i + 1] == (i % 8 == 0 ? UINT64_C(90) << 30 : 0));
        }
        pool_check(f->store);
        pool_close(f);
    }
    f->store = pool_open(f->path, false, true);
    assert_levels(f->store, 0, 0, 2);
}

// ---- generations, damage, mistakes --------------------------------------------------------------

POOL_TEST(what_is_no_list_of_uses_is_named) {
    static const uint8_t cut[] = {0, 0, 3, 1}, beyond[] = {0, 0, 200, 1, 1, 1}; // expert 200
    static const uint8_t huge[] = {0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2, 1};
    static const uint8_t late[] = {0, 1, 0, 1, 1}; // a delta has one time
    static const struct {
        const uint8_t *bytes;
        size_t count;
        const char *says;
    } payloads[] = {{cut, sizeof(cut), "ends within a use"},
                    {huge, sizeof(huge), "ends within a use"},
                    {beyond, sizeof(beyond), "an expert that the layer does not have"},
                    {late, sizeof(late), "none of its window"},
                    {late, 1, "none of its window"}};
    for (size_t i = 0; i < sizeof(payloads) / sizeof(payloads[0]); i++) {
        reef_usage_range range = {.until_ms = UINT64_MAX};
        uint64_t sums[EXPERTS][2] = {{0}};
        const reef_key key = {.db = REEF_DB_USAGE, .level = REEF_USAGE_DELTAS, .window = START};
        reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
        pool_put(txn, &key, payloads[i].bytes, payloads[i].count);
        must_fail(reef_usage_sum(txn, 0, 0, EXPERTS, &range, sums[0], &why), REEF_ERR_CORRUPT,
                  payloads[i].says);
        assert_non_null(strstr(why.message, "level 1"));
        must_fail(reef_usage_last(txn, 0, 0, EXPERTS, sums[0], &why), REEF_ERR_CORRUPT,
                  payloads[i].says);
        reef_txn_abort(txn);
    }
}

POOL_TEST(a_damaged_total_is_mended_and_its_delta_left_out) {
    totals t = {0};
    uint64_t sums[EXPERTS][2];
    const uint64_t mark = UINT64_C(0x1122334455667788);
    use(&t, 3, 2, mark);
    use(&t, 100, 1, 1);
    put_totals(f->store, &t, START, 1);
    pool_close(f);
    data_bytes file = data_file_load(f->path);
    // The mark itself stands in the total only: a delta holds it seven bits a byte.
    for (size_t at = 0; (at = data_file_find(&file, at, &mark, sizeof(mark))) != SIZE_MAX; at++)
        file.data[at] ^= 1;
    data_file_replace(f->path, &file);
    f->store = pool_open(f->path, false, true);
    use(&t, 3, 5, 5);
    use(&t, 100, 4, 4);
    put_totals(f->store, &t, START + 10, 2);
    pool_check(f->store);
    range_of(f->store, START + 1, UINT64_MAX, EXPERTS, sums[0]);
    assert_int_equal(sums[3][0], 0); // its block's growth is not known
    assert_int_equal(sums[100][0], 4);
}

POOL_TEST(mistakes_are_refused) {
    totals t = {0};
    const reef_usage_use backwards[] = {{.expert = 4, .count = 1}, {.expert = 4, .count = 1}};
    reef_usage_compaction done;
    use(&t, 9, 5, 5);
    put_totals(f->store, &t, START, 1);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    t.of[9][0] = 4;
    must_fail(reef_usage_put(txn, 0, 0, BLOCK_ROWS, EXPERTS, t.of[0], START, &why),
              REEF_ERR_INVALID, "cannot fall from 5 to 4");
    must_fail(reef_usage_put(txn, 0, 0, 48, EXPERTS, t.of[0], START, &why), REEF_ERR_INVALID, "48");
    must_fail(reef_usage_put(txn, 0, 0, 0, EXPERTS, t.of[0], START, &why), REEF_ERR_INVALID,
              "0 experts");
    must_fail(reef_usage_put(txn, 0, 0, 64, EXPERTS, t.of[0], UINT64_MAX, &why), REEF_ERR_INVALID,
              "since 1970");
    must_fail(reef_usage_add(txn, 0, 0, 2, backwards, START, &why), REEF_ERR_INVALID, "4 after 4");
    reef_txn_abort(txn);
    txn = pool_begin(f->store, REEF_TXN_READ);
    must_fail(reef_usage_compact(txn, START, &done, &why), REEF_ERR_INVALID, "cannot write");
    reef_txn_abort(txn);
}

RUN_TESTS
