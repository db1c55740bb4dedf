// Bit histories, log odds in tables and chances that learn, each against its definition.
#include "bit_history.h"
#include "logistic.h"

#include "draw.h"
#include "plain_mixer.h"
#include "test.h"

#include <math.h>

// ---- bit histories ------------------------------------------------------------------------------

PLAIN_TEST(every_state_is_reached_from_none) {
    const reef_histories *table = reef_histories_table();
    bool reached[256] = {true};
    uint8_t queue[256] = {REEF_HISTORY_NONE};
    size_t end = 1;
    for (size_t i = 0; i < end; i++)
        for (int bit = 0; bit < 2; bit++) {
            uint8_t next = table->next[queue[i]][bit];
            assert_true(next < table->count);
            if (reached[next]) continue;
            reached[next] = true;
            queue[end++] = next;
        }
    assert_int_equal(end, table->count);
    assert_true(table->count < 255); // 255 says "trees" in a cell
}

// No other state is entered again as "never seen", and what came last is never forgotten.
PLAIN_TEST(a_state_has_seen_the_bit_that_led_to_it) {
    const reef_histories *table = reef_histories_table();
    for (size_t h = 0; h < table->count; h++) {
        assert_int_equal(table->visits[h], table->zeros[h] + table->ones[h]);
        assert_int_equal(table->visits[h] == 0, h == REEF_HISTORY_NONE);
        uint8_t zero = table->next[h][0], one = table->next[h][1];
        assert_true(table->zeros[zero] > 0 && table->ones[one] > 0);
        // A bit adds at most one to its own count and never adds to the other.
        assert_true(table->zeros[zero] <= table->zeros[h] + 1);
        assert_true(table->ones[zero] <= table->ones[h]);
        assert_true(table->ones[one] <= table->ones[h] + 1);
        assert_true(table->zeros[one] <= table->zeros[h]);
        // A kind of bit that was seen once stays known: pairs of bytes rely on it.
        assert_int_equal(table->ones[zero] > 0, table->ones[h] > 0);
        assert_int_equal(table->zeros[one] > 0, table->zeros[h] > 0);
    }
}

PLAIN_TEST(the_first_three_bits_are_kept_in_their_order) {
    const reef_histories *table = reef_histories_table();
    bool taken[256] = {false};
    for (uint32_t length = 0; length <= 3; length++)
        for (uint32_t bits = 0; bits < 1u << length; bits++) {
            uint8_t h = REEF_HISTORY_NONE;
            uint32_t ones = 0;
            for (uint32_t i = length; i-- > 0; ones += bits >> i & 1)
                h = table->next[h][bits >> i & 1];
            assert_int_equal(table->ones[h], ones);
            assert_int_equal(table->visits[h], length);
            assert_false(taken[h]);
            taken[h] = true;
        }
}

PLAIN_TEST(a_run_counts_its_bits) {
    const reef_histories *table = reef_histories_table();
    for (int bit = 0; bit < 2; bit++) {
        uint8_t h = REEF_HISTORY_NONE;
        for (int n = 0; n <= REEF_HISTORY_RUN_MAX; n++) {
            assert_int_equal(table->run[n][bit], h);
            assert_int_equal(bit ? table->ones[h] : table->zeros[h], n);
            assert_int_equal(bit ? table->zeros[h] : table->ones[h], 0);
            h = table->next[h][bit];
        }
        assert_int_equal(h, table->run[REEF_HISTORY_RUN_MAX][bit]); // it counts no further
    }
}

PLAIN_TEST(the_mirror_is_an_involution_and_commutes_with_next) {
    const reef_histories *table = reef_histories_table();
    for (size_t h = 0; h < table->count; h++) {
        uint8_t mirror = table->mirror[h];
        assert_int_equal(table->mirror[mirror], h);
        assert_int_equal(table->zeros[mirror], table->ones[h]);
        assert_int_equal(table->ones[mirror], table->zeros[h]);
        for (int bit = 0; bit < 2; bit++)
            assert_int_equal(table->next[mirror][!bit], table->mirror[table->next[h][bit]]);
    }
}

PLAIN_TEST(other_bits_shorten_a_long_run) {
    const reef_histories *table = reef_histories_table();
    for (int bit = 0; bit < 2; bit++) {
        uint8_t h = table->run[REEF_HISTORY_RUN_MAX][bit];
        h = table->next[h][!bit];
        assert_true((bit ? table->ones[h] : table->zeros[h]) < REEF_HISTORY_RUN_MAX / 2);
        for (int n = 0; n < REEF_HISTORY_RUN_MAX; n++) h = table->next[h][!bit];
        assert_true((bit ? table->zeros[h] : table->ones[h]) >
                    (bit ? table->ones[h] : table->zeros[h]));
    }
}

// ---- log odds -----------------------------------------------------------------------------------

PLAIN_TEST(squash_is_monotone_symmetrical_and_logistic) {
    const reef_logistic *t = reef_logistic_tables();
    assert_int_equal(reef_squash(t, 0), 32768);
    for (int32_t odds = -REEF_ODDS_MAX; odds <= REEF_ODDS_MAX; odds++) {
        uint32_t p = reef_squash(t, odds);
        assert_true(p >= 1 && p <= 65535);
        assert_int_equal(p + reef_squash(t, -odds), 65536);
        if (odds > -REEF_ODDS_MAX) assert_true(p >= reef_squash(t, odds - 1));
        double exact = 65536.0 / (1.0 + exp(-odds / 256.0));
        assert_true(fabs(p - exact) < 1.0);
    }
}

PLAIN_TEST(clipped_odds_stay_in_the_tables) {
    assert_int_equal(reef_odds_clip(INT32_MAX), REEF_ODDS_MAX);
    assert_int_equal(reef_odds_clip(INT32_MIN), -REEF_ODDS_MAX);
    for (int32_t odds = -REEF_ODDS_MAX; odds <= REEF_ODDS_MAX; odds++)
        assert_int_equal(reef_odds_clip(odds), odds);
    assert_int_equal(reef_odds_clip(REEF_ODDS_MAX + 1), REEF_ODDS_MAX);
    assert_int_equal(reef_odds_clip(-REEF_ODDS_MAX - 1), -REEF_ODDS_MAX);
}

PLAIN_TEST(stretch_is_odd_and_monotone) {
    const reef_logistic *t = reef_logistic_tables();
    for (uint32_t p = 0; p < 65536; p++) {
        int32_t odds = reef_stretch(t, p);
        assert_true(odds >= -REEF_ODDS_MAX && odds <= REEF_ODDS_MAX);
        assert_int_equal(odds, -reef_stretch(t, 65535 - p));
        if (p > 0) assert_true(odds >= reef_stretch(t, p - 1));
    }
}

// Stretch keeps the upper 12 bits, so it knows a cell of 16 probabilities and means its middle;
// it names whole log odds, whose probabilities may lie further apart than a cell.
PLAIN_TEST(stretch_inverts_squash_within_a_cell) {
    const reef_logistic *t = reef_logistic_tables();
    for (uint32_t p = 32768; p < 65536; p++) {
        int32_t odds = reef_stretch(t, p);
        uint32_t middle = p / 16 * 16 + 8;
        if (odds < REEF_ODDS_MAX) assert_true(reef_squash(t, odds) >= middle);
        if (odds > 0) assert_true(reef_squash(t, odds - 1) < middle);
    }
    for (int32_t odds = -REEF_ODDS_MAX; odds <= REEF_ODDS_MAX; odds++) {
        uint32_t p = reef_squash(t, odds);
        int32_t back = reef_stretch(t, p);
        uint32_t near = reef_squash(t, back), step = 0;
        if (back > -REEF_ODDS_MAX) step = near - reef_squash(t, back - 1);
        assert_true((near > p ? near - p : p - near) <= 16 + step);
    }
}

// ---- chances ------------------------------------------------------------------------------------

static uint32_t count_of(reef_chance chance) {
    return chance & REEF_CHANCE_LIMIT;
}

static reef_chance checked_after(reef_chance chance, int bit) {
    reef_chance next = reef_chance_after(chance, bit, reef_chance_rates());
    uint32_t before = chance >> 10, after = next >> 10;
    if (bit ? after < before : after > before)
        fail_msg("from %u after %u updates a %d leads to %u", before, count_of(chance), bit, after);
    uint32_t counted = count_of(chance) + (count_of(chance) < REEF_CHANCE_LIMIT);
    assert_int_equal(count_of(next), counted);
    return next;
}

PLAIN_TEST(rates_fall_and_stay_positive) {
    const int32_t *rates = reef_chance_rates();
    for (int n = 0; n <= REEF_CHANCE_LIMIT; n++) {
        assert_true(rates[n] > 0 && rates[n] < 32768);
        if (n > 0) assert_true(rates[n] <= rates[n - 1]);
    }
}

PLAIN_TEST(a_chance_begins_as_the_probability_that_it_is_given) {
    for (uint32_t p = 0; p < 65536; p++) {
        assert_int_equal(reef_chance_p(reef_chance_of(p)), p);
        assert_int_equal(count_of(reef_chance_of(p)), 0);
    }
}

PLAIN_TEST(a_chance_is_that_of_the_plain_arithmetic) {
    uint64_t seed = 9;
    for (int i = 0; i < 300000; i++) {
        const uint32_t extremes[] = {0, 1, 63, 64, 65, 1u << 21, (1u << 22) - 65, (1u << 22) - 1};
        uint32_t n = (uint32_t)draw_int(&seed, 0, REEF_CHANCE_LIMIT);
        uint32_t p = i % 3 == 0 ? extremes[draw_int(&seed, 0, 7)]
                                : (uint32_t)draw_int(&seed, 0, REEF_CHANCE_MAX);
        int bit = draw_int(&seed, 0, 1);
        assert_int_equal(reef_chance_after(p << 10 | n, bit, reef_chance_rates()),
                         plain_chance_after(p << 10 | n, bit, reef_chance_rates()));
    }
}

PLAIN_TEST(a_chance_moves_towards_the_bit_from_every_start) {
    for (uint32_t p = 0; p < 65536; p++)
        for (int bit = 0; bit < 2; bit++) {
            reef_chance chance = reef_chance_of(p);
            for (int n = 0; n < 80; n++) chance = checked_after(chance, bit);
        }
}

PLAIN_TEST(a_chance_stays_in_range_after_any_bits) {
    uint64_t seed = 3;
    for (int repeat = 0; repeat < 3000; repeat++) {
        reef_chance chance = reef_chance_of((uint32_t)draw_int(&seed, 0, 65535));
        int length = draw_int(&seed, 1, 2500), ones = draw_int(&seed, 0, 8); // of eight bits
        for (int n = 0; n < length; n++)
            chance = checked_after(chance, draw_int(&seed, 0, 7) < ones);
    }
}

PLAIN_TEST(a_chance_that_sees_one_kind_alone_becomes_nearly_certain) {
    for (int bit = 0; bit < 2; bit++) {
        reef_chance chance = reef_chance_of(32768);
        for (int n = 0; n < 100000; n++) chance = checked_after(chance, bit);
        assert_true(bit ? reef_chance_p(chance) > 65500 : reef_chance_p(chance) < 36);
        chance = checked_after(chance, !bit);
        assert_true(bit ? reef_chance_p(chance) < 65535 : reef_chance_p(chance) > 0);
    }
}

PLAIN_TEST(a_chance_becomes_the_share_of_ones) {
    uint64_t seed = 5;
    for (int ones = 1; ones < 16; ones++) {
        reef_chance chance = reef_chance_of(32768);
        double sum = 0.0;
        for (int n = 0; n < 20000; n++) {
            chance = checked_after(chance, draw_int(&seed, 0, 15) < ones);
            if (n >= 10000) sum += reef_chance_p(chance) / 65536.0;
        }
        assert_true(fabs(sum / 10000 - ones / 16.0) < 0.02);
    }
}

RUN_TESTS
