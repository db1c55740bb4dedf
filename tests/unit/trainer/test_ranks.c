// Ranks that share the net's steps hold what one process alone holds, to the bit. Every rank runs
// this program (mpirun).
#include "lifelong.h"
#include "reef_mpi.h"
#include "split.h"

enum { PIECE = 5000, FIRST = 12000, AGAIN = 12000, DEADLINE_SECONDS = 120 };

static reef_mpi *mpi;
static reef_ranks *ranks;

static void learn(lifelong *f, reef_ranks *with, size_t threads, reef_commit *out) {
    reef_error err;
    reef_trainer_options options = {
        .threads = threads, .ranks = with, .on_event = lifelong_on_event, .context = f};
    ok(reef_pool_init(f->pool, &f->config, &err), &err);
    ok(reef_store_open(&f->store, f->pool, &(reef_store_options){.write = true}, &err), &err);
    ok(reef_trainer_open(&f->trainer, f->store, &options, &err), &err);
    // Two boundaries, and the first kind again: known by its contexts, where there are memories.
    bool given = f->config.boundaries == REEF_BOUNDARIES_GIVEN;
    for (int kind = 0; kind < 3; kind++) {
        if (given && kind > 0) next_kind(f);
        feed_kind(f, kind, given ? PIECE : FIRST, 3 + (uint32_t)kind);
    }
    feed_kind(f, 0, PIECE, 6);
    *out = commit(f);
    assert_sound(f);
}

// Without memories where the settings give none.
static void begin(lifelong **f, const char *const *settings) {
    lifelong_setup((void **)f);
    (*f)->config = lifelong_quick_gates();
    forget_memories(*f);
    for (; settings[0] != NULL; settings += 2) choose(&(*f)->config, settings[0], settings[1]);
}

// What rank 0 has when it trains alone; the others only hear of it.
static reef_commit root_alone(const char *const *settings) {
    lifelong *f = NULL;
    reef_commit one = {0};
    if (reef_ranks_rank(ranks) == 0) {
        begin(&f, settings);
        learn(f, NULL, 1, &one);
        lifelong_teardown((void **)&f);
    }
    reef_ranks_tell(ranks, one.root, sizeof(one.root));
    return one;
}

static reef_trainer_status same_root(const char *const *settings,
                                     const reef_commit *one,
                                     size_t threads) {
    lifelong *f = NULL;
    reef_commit many;
    reef_ranks_traffic before[REEF_RANKS_PARTS], after[REEF_RANKS_PARTS];
    begin(&f, settings);
    reef_ranks_traffic_read(ranks, before);
    learn(f, ranks, threads, &many);
    reef_ranks_traffic_read(ranks, after);
    reef_trainer_status status = status_of(f);
    uint64_t sent = after[REEF_RANKS_STEP].sent_bytes - before[REEF_RANKS_STEP].sent_bytes;
    if (reef_ranks_rank(ranks) == 0)
        print_message("%zu ranks, %zu threads, generation %u, %llu steps: %.0f bytes sent a step\n",
                      reef_ranks_count(ranks), threads, status.generation,
                      (unsigned long long)status.step, (double)sent / (double)status.step);
    assert_memory_equal(many.root, one->root, sizeof(one->root));
    // Shared, not done by everyone: something has travelled.
    if (reef_ranks_count(ranks) > 1) assert_true(sent > 0);
    lifelong_teardown((void **)&f);
    return status;
}

static void same_root_as_alone(const char *const *settings, size_t threads) {
    reef_commit one = root_alone(settings);
    same_root(settings, &one, threads);
}

#define SETTINGS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void experts_with_boundaries(void **state) {
    (void)state;
    const char *const *settings = SETTINGS("ffw", "pp");
    reef_commit one = root_alone(settings);
    reef_trainer_status status = same_root(settings, &one, 1);
    assert_int_equal(status.generation, 2);
    same_root(settings, &one, 2);
}

// One number of ranks stands for others where one setting after another is tried.
static void only_of(size_t count) {
    if (reef_ranks_count(ranks) != count) skip();
}

static void dense_networks_and_experts(void **state) {
    (void)state;
    only_of(2);
    same_root_as_alone(SETTINGS("ffw", "dp", "adapt_ffw", "true"), 2);
    same_root_as_alone(SETTINGS("ffw", "pd", "fire_max", "3"), 1);
}

static void mixtures(void **state) {
    (void)state;
    only_of(4);
    same_root_as_alone(SETTINGS("ffw", "mp"), 2);
}

static void memories_beside_the_net(void **state) {
    (void)state;
    if (reef_ranks_count(ranks) == 2) same_root_as_alone(SETTINGS("context_memory", "4194304"), 2);
    const char *const *settings =
        SETTINGS("context_memory", "4194304", "boundaries", "contexts", "net_share", "0.5");
    reef_commit one = root_alone(settings);
    reef_trainer_status status = same_root(settings, &one, 1);
    assert_int_equal(status.kinds, 3);
}

// A kind, another, and the first again until its net goes on learning, and then the other.
static void learn_and_return(lifelong *f, reef_ranks *with, reef_commit *out) {
    reef_error err;
    reef_trainer_options options = {
        .threads = 1, .ranks = with, .on_event = lifelong_on_event, .context = f};
    choose(&f->config, "net_share", "0.5");
    choose(&f->config, "return_bytes", "4000");
    ok(reef_pool_init(f->pool, &f->config, &err), &err);
    ok(reef_store_open(&f->store, f->pool, &(reef_store_options){.write = true}, &err), &err);
    ok(reef_trainer_open(&f->trainer, f->store, &options, &err), &err);
    feed_kind(f, 0, FIRST, 1);
    feed_kind(f, 1, FIRST, 2);
    feed_kind(f, 0, AGAIN, 3);
    feed_kind(f, 1, PIECE, 4);
    *out = commit(f);
    assert_sound(f);
    assert_int_equal(status_of(f).kinds, 2);
    assert_int_equal(status_of(f).generation, 2);
    assert_int_equal(times_said(f, "\"event\": \"return\""), 1);
}

static void nets_that_follow_their_kinds(void **state) {
    (void)state;
    lifelong *f = NULL;
    reef_commit one = {0}, many;
    only_of(2);
    if (reef_ranks_rank(ranks) == 0) {
        lifelong_setup_kinds((void **)&f);
        learn_and_return(f, NULL, &one);
        lifelong_teardown((void **)&f);
    }
    reef_ranks_tell(ranks, one.root, sizeof(one.root));
    lifelong_setup_kinds((void **)&f);
    learn_and_return(f, ranks, &many);
    assert_memory_equal(many.root, one.root, sizeof(one.root));
    lifelong_teardown((void **)&f);
}

static void more_ranks_than_windows(void **state) {
    (void)state;
    lifelong *f = NULL;
    reef_error err;
    lifelong_setup((void **)&f);
    choose(&f->config, "batch", "1");
    choose(&f->config, "rehearse", "0");
    ok(reef_pool_init(f->pool, &f->config, &err), &err);
    ok(reef_store_open(&f->store, f->pool, &(reef_store_options){.write = true}, &err), &err);
    reef_status status = reef_trainer_open(
        &f->trainer, f->store, &(reef_trainer_options){.threads = 1, .ranks = ranks}, &err);
    if (reef_ranks_count(ranks) > 1) {
        assert_int_equal(status, REEF_ERR_INVALID);
        assert_non_null(strstr(err.message, "ranks are more than the 1 windows of a batch"));
    } else
        ok(status, &err);
    lifelong_teardown((void **)&f);
}

// A rank that fails in its share of a step must not leave the others waiting for it.
static void a_failure_of_one_rank_is_that_of_all(void **state) {
    (void)state;
    reef_error err = {.status = REEF_OK};
    reef_status own = REEF_OK;
    char named[32];
    size_t last = reef_ranks_count(ranks) - 1, rank = reef_ranks_rank(ranks);
    snprintf(named, sizeof(named), "rank %zu failed", last);
    if (rank == last) own = reef_fail(&err, REEF_ERR_NO_MEMORY, "its own words");
    assert_int_equal(reef_split_agree(ranks, own, &err), REEF_ERR_NO_MEMORY);
    assert_int_equal(err.status, REEF_ERR_NO_MEMORY);
    assert_non_null(strstr(err.message, rank == last ? "its own words" : named));
    assert_int_equal(reef_split_agree(ranks, REEF_OK, &err), REEF_OK);
}

static void say(void *context, const char *why) {
    (void)context;
    print_error("%s\n", why);
}

int main(void) {
    reef_error err;
    reef_ranks_link link;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_with_boundaries),
        cmocka_unit_test(dense_networks_and_experts),
        cmocka_unit_test(mixtures),
        cmocka_unit_test(memories_beside_the_net),
        cmocka_unit_test(nets_that_follow_their_kinds),
        cmocka_unit_test(more_ranks_than_windows),
        cmocka_unit_test(a_failure_of_one_rank_is_that_of_all),
    };
    if (reef_mpi_begin(&mpi, DEADLINE_SECONDS, say, NULL, &err) != REEF_OK) {
        print_error("%s\n", err.message);
        return EXIT_FAILURE;
    }
    reef_mpi_link(mpi, &link);
    if (reef_ranks_new(&ranks, &link, &err) != REEF_OK) return EXIT_FAILURE;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    // The others would wait for a rank that gave up half way.
    if (failed > 0) reef_ranks_end(ranks, "a test failed on a rank");
    reef_ranks_free(ranks);
    reef_mpi_end(mpi);
    return failed;
}
