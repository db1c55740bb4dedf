// What ranks make of each other's cards: the first rank that does not fit is named, and why. That
// all ranks end with that message is proved by those that mpirun starts (system/reefd).
#include "ranks_internal.h"
#include "test.h"

enum { RANKS = 3, EVERY = 16384 };

// Shards of one pool, all as of one epoch.
static void divided(reef_crew_card *cards, size_t count) {
    for (size_t r = 0; r < count; r++)
        cards[r] = (reef_crew_card){
            .card_bytes = sizeof(*cards),
            .version = "1.0.0",
            .kernels = "avx2",
            .shard = {.pool = {7}, .rank = (uint32_t)r, .count = (uint32_t)count, .epoch = 4},
        };
}

// Copies of a pool that have joined four times since, or not yet.
static void joined(reef_crew_card *cards, size_t count) {
    for (size_t r = 0; r < count; r++) {
        cards[r] = (reef_crew_card){
            .card_bytes = sizeof(*cards),
            .version = "1.0.0",
            .root = {(uint8_t)r},
            .join_every = EVERY,
            .has_joined = 1,
            .join = {.rank = (uint32_t)r, .count = (uint32_t)count, .every = EVERY, .joins = 4},
        };
        cards[r].kernels[0] = (char)('a' + r); // each learns with those that its CPU has
    }
}

static void apart(reef_crew_card *cards, size_t count) {
    joined(cards, count);
    for (size_t r = 0; r < count; r++)
        cards[r].has_joined = 0, cards[r].root[0] = 0, cards[r].join = (reef_join){0};
}

static void expect(const reef_crew_card *cards, size_t count, const char *words) {
    reef_error err = {0};
    bool back[RANKS], anew;
    reef_status status = reef_crew_judge(cards, count, back, &anew, &err);
    if (words == NULL && status != REEF_OK) fail_msg("%s", err.message);
    if (words != NULL && (status == REEF_OK || strstr(err.message, words) == NULL))
        fail_msg("\"%s\" is not in: %s", words, status == REEF_OK ? "nothing" : err.message);
}

// `make` gives cards that fit; with the change these words are said of them.
#define NAMES(make, words, ...)                                                                    \
    do {                                                                                           \
        reef_crew_card c[RANKS];                                                                   \
        make(c, RANKS);                                                                            \
        expect(c, RANKS, NULL);                                                                    \
        __VA_ARGS__;                                                                               \
        expect(c, RANKS, words);                                                                   \
    } while (0)

PLAIN_TEST(programs_that_differ_are_named) {
    // What another version says of its pool may mean something else: it is not read.
    NAMES(divided, "rank 2: it runs reefd 9.9.9, rank 0 runs 1.0.0", strcpy(c[2].version, "9.9.9"),
          c[2].shard.count = 9);
    NAMES(divided, "rank 1: it computes with kernels scalar, rank 0 with avx2",
          strcpy(c[1].kernels, "scalar"));
    NAMES(divided, "rank 1: no pool", c[1].status = REEF_ERR_NOT_FOUND,
          strcpy(c[1].message, "no pool"));
    NAMES(joined, "rank 1: it was started with join-every 0, rank 0 with 16384",
          c[1].join_every = 0);
}

PLAIN_TEST(shards_that_do_not_fit_are_named) {
    NAMES(divided,
          "rank 0: its pool is whole, and ranks train one that is divided: reef shards "
          "POOL DIR --to 3 makes it so; or let each learn from sources of its own "
          "(--join-every)",
          c[0].shard = (reef_shard){0});
    NAMES(divided, "rank 1: its pool is not a shard, but rank 0's is",
          c[1].shard = (reef_shard){0});
    NAMES(divided,
          "rank 1: its pool learns apart and joins the others: start all with "
          "--join-every 5",
          c[1].has_joined = 1, c[1].join.every = 5);
    NAMES(divided, "rank 1: its shard is of another pool than rank 0's", c[1].shard.pool[0] = 8);
    NAMES(divided, "rank 1: its pool is the shard of rank 0", c[1].shard.rank = 0);
    NAMES(divided, "rank 0: its shard is one of 2, and 3 ranks were started", c[0].shard.count = 2);
    NAMES(divided, "rank 1: its shard is stale, of epoch 3", c[1].shard.epoch = 3);
    // Two commits ahead cannot be: rank 0's was put back from a backup.
    NAMES(divided, "rank 1: its shard is of epoch 6, and rank 0's is stale", c[1].shard.epoch = 6);
    NAMES(divided, "rank 1: its pool has another configuration", c[1].config = 1);
    NAMES(divided, "rank 1: the root of its pool is", c[1].root[0] = 1);
}

PLAIN_TEST(a_shard_that_is_one_epoch_ahead_steps_back) {
    reef_error err;
    reef_crew_card cards[RANKS];
    bool back[RANKS], anew;
    divided(cards, RANKS);
    cards[1].shard.epoch = 5;
    cards[1].root[0] = 1;
    assert_int_equal(reef_crew_judge(cards, RANKS, back, &anew, &err), REEF_OK);
    assert_true(back[1] && !back[0] && !back[2]);
}

PLAIN_TEST(pools_that_learn_apart_and_do_not_fit_are_named) {
    NAMES(joined, "rank 1: its pool has another configuration", c[1].config = 1);
    NAMES(joined, "rank 1: its pool is a shard of one training", c[1].shard.count = 2);
    NAMES(joined, "rank 0: generation 0 of its pool is open", c[0].base_is_open = 1);
    NAMES(joined, "rank 1: generation 0 of its pool is not that of rank 0's",
          c[1].base_root[0] = 1);
    NAMES(joined, "rank 1: its pool has not joined others", c[1].has_joined = 0);
    NAMES(joined, "rank 0: its pool has not joined others, but that of rank 1 has",
          c[0].has_joined = 0);
    NAMES(joined, "rank 1: its pool joins others than rank 0's does", c[1].join.training[0] = 1);
    NAMES(joined, "rank 0: its pool is that of rank 1", c[0].join.rank = 1, c[1].join.rank = 0);
    NAMES(joined, "rank 0: its pool is one of 2, and 3 ranks were started", c[0].join.count = 2);
    NAMES(joined, "rank 0: its pool joins others every 32768 bytes, not 16384",
          c[0].join.every = 32768);
    NAMES(joined, "rank 2: its pool has done 2 joins, and another one 4: it is an older copy",
          c[2].join.joins = 2);
    NAMES(joined, NULL, c[2].join.joins = 3); // it was cut off in its last one
    NAMES(apart, "rank 1: its pool is not equal to rank 0's: at step 9", c[1].root[0] = 1,
          c[1].step = 9);
}

// Copies of one pool begin, also copies of one that had joined others; other pools go on.
PLAIN_TEST(equal_copies_start_over) {
    reef_error err;
    reef_crew_card cards[RANKS];
    bool back[RANKS], anew;
    apart(cards, RANKS);
    assert_int_equal(reef_crew_judge(cards, RANKS, back, &anew, &err), REEF_OK);
    assert_true(anew);
    joined(cards, RANKS);
    assert_int_equal(reef_crew_judge(cards, RANKS, back, &anew, &err), REEF_OK);
    assert_false(anew);
    cards[1] = cards[2] = cards[0];
    assert_int_equal(reef_crew_judge(cards, RANKS, back, &anew, &err), REEF_OK);
    assert_true(anew);
}

RUN_TESTS
