// The net of a kind that comes back goes on learning, and earlier states do not change.
#include "lifelong_restore.h"
#include "net_return.h"
#include "reef_kinds.h"
#include "trainer_internal.h"

#include "damaged_record.h"
#include "test.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

// The first text of a kind, long enough to be known by, and what it learns before its net follows.
enum { FIRST = 16000, TURN = 10000, KINDS = 3, BYTES_MAX = KINDS * FIRST + 9 * TURN };

// Texts are short here.
static void follow_soon(reef_trainer *trainer) {
    trainer->kinds.return_bytes = 6000;
}

static int setup(void **state) {
    lifelong_setup_kinds(state);
    lifelong *f = *state;
    choose(&f->config, "net_share", "0.5");
    f->on_open = follow_soon;
    return 0;
}

// Three kinds, the first text of each, and then all of them in turns.
static size_t turns(uint8_t *bytes, int turn_count) {
    static const int ORDER[] = {0, 1, 2, 0, 1, 0, 2, 0, 1, 0, 2, 0};
    size_t count = 0;
    for (int i = 0; i < turn_count; i++) {
        size_t size = i < KINDS ? FIRST : TURN;
        lifelong_text(bytes + count, size, ORDER[i], (uint32_t)i + 1);
        count += size;
    }
    return count;
}

static void learn_turns(lifelong *f, int turn_count, size_t threads, size_t piece, bool restarts) {
    uint8_t *bytes = room(BYTES_MAX);
    size_t count = turns(bytes, turn_count);
    for (size_t at = 0; at < count; at += piece) {
        feed(f, bytes + at, count - at < piece ? count - at : piece);
        // After every other piece, and at the end.
        if (!restarts || (at / piece % 2 == 0 && at + piece < count)) continue;
        commit(f);
        open_again(f, threads);
    }
}

static size_t continuing(const lifelong *f, uint32_t kind) {
    size_t count = 0;
    for (uint32_t g = 0; g <= status_of(f).generation; g++)
        count += generation_of(f, g).continues == kind + 1;
    return count;
}

static lifelong_mould two;       // English and German have been learned
static lifelong_mould following; // and English again until its net follows

static void make_two(lifelong *f) {
    if (two.dir[0] != '\0') {
        lifelong_copy(f, &two, 1);
        return;
    }
    make_pool(f, 1);
    feed_kind(f, 0, FIRST, 1);
    feed_kind(f, 1, FIRST, 2);
    commit(f);
    lifelong_keep(f, &two);
}

static void make_following(lifelong *f) {
    if (following.dir[0] != '\0') {
        lifelong_copy(f, &following, 1);
        return;
    }
    make_two(f);
    feed_kind(f, 0, 2 * TURN, 3);
    commit(f);
    assert_int_equal(generation_of(f, 2).continues, 1);
    lifelong_keep(f, &following);
}

static int discard_moulds(void **state) {
    lifelong_discard(&two);
    lifelong_discard(&following);
    return 0;
}

#define FIXTURE_TEST(name) TEST_WITH(name, setup, lifelong_teardown, lifelong *f)

FIXTURE_TEST(a_net_follows_its_kind) {
    make_two(f);
    assert_int_equal(status_of(f).generation, 1);
    float *then = new_logits(), *now = new_logits();
    double bits = bits_as_of(f, "0", 0);
    logits_of(f->store, "0", 0, then);
    feed_kind(f, 0, 2 * TURN, 3);
    commit(f);
    assert_int_equal(status_of(f).generation, 2);
    assert_int_equal(status_of(f).kind, 0);
    assert_int_equal(status_of(f).kinds, 2);
    reef_generation_record open = generation_of(f, 2);
    assert_int_equal(open.continues, 1);
    assert_int_equal(open.parent, 0);
    assert_int_equal(times_said(f, "\"event\": \"return\""), 1);
    logits_of(f->store, "now", 0, now);
    assert_memory_not_equal(then, now, LIFELONG_LOGIT_BYTES);
    logits_of(f->store, "0", 0, now);
    assert_memory_equal(then, now, LIFELONG_LOGIT_BYTES);
    assert_true(bits_as_of(f, "0", 0) == bits);
    assert_sound(f);
    // What another kind learns while it is open is not of its net.
    feed_kind(f, 1, TURN / 2, 4);
    commit(f);
    assert_int_equal(status_of(f).generation, 2);
    assert_int_equal(status_of(f).kind, 1);
    assert_sound(f);
}

// In the pool that it made, a net that follows predicts its kind better than one that does not.
FIXTURE_TEST(it_learns_what_it_would_have_missed) {
    static const char *const NAMES[] = {"later", "soon"};
    double nats[2] = {0.0, 0.0};
    for (size_t i = 0; i < 2; i++) {
        f->on_open = i == 0 ? NULL : follow_soon;
        temp_dir_join(f->pool, f->dir, NAMES[i]);
        make_pool(f, 1);
        feed_kind(f, 0, FIRST, 1);
        feed_kind(f, 1, FIRST, 2);
        feed_kind(f, 0, 4 * TURN, 3);
        commit(f);
        uint8_t probe[LIFELONG_PROBE_BYTES];
        float *logits = new_logits();
        lifelong_text(probe, sizeof(probe), 0, 99);
        logits_of(f->store, i == 0 ? "0" : "now", 0, logits); // the newest net of the kind
        for (size_t t = 0; t + 1 < sizeof(probe); t++) {
            const float *row = logits + t * REEF_VOCAB;
            double sum = 0.0;
            for (size_t v = 0; v < REEF_VOCAB; v++) sum += exp((double)row[v]);
            nats[i] += log(sum) - (double)row[probe[t + 1]];
        }
        close_pool(f);
    }
    print_message("%.1f nats as sealed, %.1f where it follows\n", nats[0], nats[1]);
    assert_true(nats[1] < 0.95 * nats[0]);
}

FIXTURE_TEST(threads_commits_and_restarts_leave_no_trace) {
    static const struct {
        size_t threads, piece;
        bool restarts;
    } WAYS[] = {{1, BYTES_MAX, false}, {3, 5650, true}};
    reef_commit first = {0};
    for (size_t i = 0; i < sizeof(WAYS) / sizeof(*WAYS); i++) {
        char name[16];
        snprintf(name, sizeof(name), "way-%zu", i);
        temp_dir_join(f->pool, f->dir, name);
        make_pool(f, WAYS[i].threads);
        learn_turns(f, 12, WAYS[i].threads, WAYS[i].piece, WAYS[i].restarts);
        reef_commit end = commit(f);
        assert_int_equal(status_of(f).kinds, KINDS);
        assert_in_range(continuing(f, 0), 2, 4); // silent, and then a whole copy of that
        assert_in_range(continuing(f, 1), 1, 4);
        if (i == 0) first = end;
        assert_memory_equal(end.root, first.root, REEF_HASH_BYTES);
        assert_sound(f);
        close_pool(f);
    }
}

FIXTURE_TEST(they_are_no_kinds) {
    reef_kind_list list;
    make_pool(f, 1);
    learn_turns(f, 6, 1, BYTES_MAX, false);
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    uint32_t last = status_of(f).generation;
    assert_true(continuing(f, 0) > 0);
    list = kinds_of(f->store);
    for (uint32_t g = 0; g <= last; g++) {
        reef_generation_record info = generation_of(f, g);
        assert_true((reef_kind_list_find(&list, g) != NULL) == (info.continues == 0));
        if (info.continues == 0) continue;
        assert_int_equal(reef_trainer_kind_name(f->trainer, g, "english", false, &why),
                         REEF_ERR_NOT_FOUND);
    }
}

// Before anything is learned nothing of it is loaded.
FIXTURE_TEST(after_a_restart_the_status_has_the_memory_of_its_kind) {
    make_following(f);
    for (uint32_t kind = 0; kind < 2;
         kind++) { // the one that it continues is learned, then another one
        if (kind == 1) feed_kind(f, 1, TURN / 2, 4);
        commit(f);
        const uint64_t learned = status_of(f).memory.stats.learned_bytes;
        open_again(f, 2);
        const reef_trainer_status status = status_of(f);
        assert_int_equal(status.kind, kind);
        assert_int_equal(status.memory.stats.learned_bytes, learned);
        assert_in_range(status.memory.stats.bytes, 1, status.memory.stats.bytes_max);
        assert_in_range(status.memory.stats.cells_used, 1, status.memory.stats.cells);
    }
}

FIXTURE_TEST(while_one_is_open_its_kind_is_the_one_that_learns) {
    reef_kind_list list;
    make_following(f);
    list = kinds_of(f->store);
    assert_int_equal(list.count, 2);
    assert_true(list.kinds[0].is_current && !list.kinds[1].is_current);
    assert_false(list.kinds[0].is_open || list.kinds[1].is_open);
    assert_in_range(list.kinds[0].learned_bytes, FIRST + 2 * TURN - 2000, FIRST + 2 * TURN);
    assert_in_range(list.kinds[1].learned_bytes, FIRST - 2000, FIRST + 2000);
}

FIXTURE_TEST(a_snapshot_keeps_the_net_of_its_time) {
    float *then = new_logits(), *now = new_logits();
    make_following(f);
    (void)take(f, "then");
    logits_of(f->store, "then", 0, then);
    double bits = bits_as_of(f, "then", 0);
    feed_kind(f, 0, TURN, 4);
    feed_kind(f, 2, FIRST, 5);
    reef_commit end = commit(f);
    assert_int_equal(generation_of(f, 3).continues, 0);
    logits_of(f->store, "then", 0, now);
    assert_memory_equal(then, now, LIFELONG_LOGIT_BYTES);
    assert_true(bits_as_of(f, "then", 0) == bits);
    // Restored, it goes on as it did.
    go_back(f, "then");
    assert_int_equal(generation_of(f, 2).continues, 1);
    logits_of(f->store, "now", 0, now);
    assert_memory_equal(then, now, LIFELONG_LOGIT_BYTES);
    feed_kind(f, 0, TURN, 4);
    feed_kind(f, 2, FIRST, 5);
    assert_memory_equal(commit(f).root, end.root, REEF_HASH_BYTES);
    assert_sound(f);
}

FIXTURE_TEST(it_goes_on_after_a_kill) {
    make_following(f);
    feed_kind(f, 0, TURN, 4);
    feed_kind(f, 1, TURN / 2, 5);
    feed_kind(f, 1, TURN, 6);
    reef_commit whole = commit(f);
    uint32_t last = status_of(f).generation;
    close_pool(f);
    temp_dir_join(f->pool, f->dir, "killed");
    make_following(f);
    close_pool(f);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        open_pool(f, 2);
        feed_kind(f, 0, TURN, 4);
        feed_kind(f, 1, TURN / 2, 5);
        commit(f);                // what German has learned without its net is of the state
        feed_kind(f, 1, TURN, 6); // in which German's net follows; lost with the process
        raise(SIGKILL);
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    open_pool(f, 1);
    assert_int_equal(status_of(f).generation, 2);
    feed_kind(f, 1, TURN, 6);
    assert_memory_equal(commit(f).root, whole.root, REEF_HASH_BYTES);
    assert_int_equal(status_of(f).generation, last);
    assert_int_equal(generation_of(f, last).continues, 2);
    assert_sound(f);
}

// Elsewhere it is a kind of its own, with its net and all that its kind has learned.
FIXTURE_TEST(elsewhere_it_has_the_memory_of_its_kind) {
    reef_import joined;
    lifelong other = *f;
    temp_dir_join(other.pool, f->dir, "other");
    make_two(f);
    must(reef_store_copy(f->store, other.pool, NULL, &why));
    feed_kind(f, 0, 2 * TURN, 3);
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    assert_int_equal(generation_of(f, 2).continues, 1);
    open_pool(&other, 1);
    must(reef_trainer_seal(other.trainer, NULL, NULL, &why));
    const reef_import_options as_sealed = {.as_sealed = true};
    must_fail(reef_trainer_import(other.trainer, f->store, 2, &as_sealed, NULL, &why),
              REEF_ERR_INVALID, "continues kind");
    must(reef_trainer_import(other.trainer, f->store, 2, NULL, &joined, &why));
    assert_in_range(joined.trained_bytes, FIRST + 2 * TURN - 4000, FIRST + 2 * TURN);
    assert_int_equal(generation_of(&other, joined.generation).continues, 0);
    assert_sound(&other);
    close_pool(&other);
}

static void keep_damage(void *context, const char *what) {
    lifelong_on_event(context, what);
}

FIXTURE_TEST(its_damage_is_named) {
    reef_check_report report;
    make_following(f);
    close_pool(f);
    record_damage(f->pool,
                  &(reef_key){.db = REEF_DB_EXPERTS, .generation = 2, .layer = 1, .block = 0});
    f->said[0] = '\0';
    must(reef_store_open(&f->store, f->pool, &(reef_store_options){.write = false}, &why));
    must(reef_store_check(f->store, &(reef_check_options){.on_damage = keep_damage, .context = f},
                          &report, &why));
    assert_true(report.damaged > 0);
    assert_true(times_said(f, "experts (generation 2, layer 1") > 0);
    // What was sealed before answers as it did.
    assert_true(isfinite(bits_as_of(f, "1", 0)));
}

FIXTURE_TEST(where_there_is_no_room_none_follows) {
    // Two layers of twice 36 experts, and none more.
    choose(&f->config, "experts_max", "144");
    make_pool(f, 1);
    feed_kind(f, 0, FIRST, 1);
    feed_kind(f, 1, FIRST, 2);
    feed_kind(f, 0, 2 * TURN, 3);
    commit(f);
    assert_int_equal(status_of(f).generation, 1);
    assert_true(status_of(f).visited_bytes > TURN);
}

// The open generation is then not the one that the last kind began with.
FIXTURE_TEST(where_no_kind_may_begin_the_last_one_takes_what_is_strange) {
    choose(&f->config, "kinds_max", "2");
    make_pool(f, 1);
    feed_kind(f, 0, FIRST, 1);
    feed_kind(f, 1, FIRST, 2);
    feed_kind(f, 0, 2 * TURN, 3);
    commit(f);
    assert_int_equal(generation_of(f, 2).continues, 1);
    feed_kind(f, 2, FIRST, 4);
    for (int i = 0; i < 2; i++) {
        commit(f);
        assert_int_equal(status_of(f).kinds, 2);
        assert_int_equal(status_of(f).kind, 1);
        open_again(f, 1);
    }
    assert_sound(f);
}

FIXTURE_TEST(it_needs_a_net) {
    choose(&f->config, "net_share", "0");
    make_pool(f, 1);
    feed_kind(f, 0, FIRST, 1);
    feed_kind(f, 1, FIRST, 2);
    feed_kind(f, 0, 2 * TURN, 3);
    assert_int_equal(status_of(f).generation, 1);
}

RUN_TESTS_IN(NULL, discard_moulds)
