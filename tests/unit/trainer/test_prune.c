// States as of older generations are given up, and nothing else of a pool changes.
#include "lifelong_restore.h"
#include "reef_kinds.h"
#include "test.h"

enum { LONG = 20000, VISIT = 70000, KINDS = 4 };

// Kind 0 comes back while each later generation is open:
//
//   generation   1   2   3 (open)      T: its tables
//   kind 0       T   T   T
//
// The snapshot `early` has, of generation 2, a tail of the visit: it is read from generation 1 on.
static void learn(lifelong *f) {
    make_pool(f, 1);
    feed_kind(f, 0, LONG, 1);
    for (int kind = 1; kind < KINDS; kind++) {
        feed_kind(f, kind, LONG, (uint32_t)kind + 1);
        if (kind == 2) {
            feed_kind(f, 0, LONG / 2, 30);
            take(f, "early");
        }
        // Half of what it has learned, or more, is stored as tables.
        feed_kind(f, 0, kind == 3 ? 2 * VISIT : VISIT, (uint32_t)kind + 10);
        commit(f);
    }
    assert_int_equal(status_of(f).generation, KINDS - 1);
}

static void remove_early(lifelong *f) {
    char names[1][REEF_NAME_BYTES_MAX + 1] = {"early"};
    must(reef_trainer_snapshots_remove(f->trainer, names, 1, &why));
}

static reef_pruning prune(lifelong *f, uint32_t keep_last, bool dry_run) {
    reef_pruning done;
    must(reef_trainer_prune(f->trainer, keep_last, dry_run, &done, &why));
    return done;
}

// Which states can be asked, as digits; their bits on a text of each kind are those of `bits`.
static void kept_are(lifelong *f, const char *expected, double bits[KINDS][KINDS], bool first) {
    bool *kept;
    uint32_t count;
    char found[KINDS + 1] = "";
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_states_kept(txn, &kept, &count, &why));
    reef_txn_abort(txn);
    assert_int_equal(count, KINDS);
    for (uint32_t g = 0; g < count; g++) {
        char as_of[2] = {(char)('0' + g), '\0'};
        reef_model *model = NULL;
        reef_status status = reef_model_open(&model, f->store, as_of, NULL, &why);
        reef_model_close(model);
        assert_int_equal(status, kept[g] ? REEF_OK : REEF_ERR_NOT_FOUND);
        if (!kept[g]) {
            assert_non_null(strstr(why.message, "given up when the pool was pruned"));
            continue;
        }
        strcat(found, as_of);
        for (int kind = 0; kind < KINDS; kind++) {
            double now = bits_as_of(f, as_of, kind);
            if (first) bits[g][kind] = now;
            assert_true(now == bits[g][kind]);
        }
    }
    free(kept);
    assert_string_equal(found, expected);
}

KINDS_TEST(what_later_states_need_stays) {
    double bits[KINDS][KINDS];
    learn(f);
    kept_are(f, "0123", bits, true);
    double early = bits_as_of(f, "early", 0), now = bits_as_of(f, "now", 0);
    reef_commit before = commit(f);
    // The state as of 1 needs what `early` needs as well.
    assert_int_equal(prune(f, 2, false).visits, 0);
    assert_int_equal(commit(f).number, before.number + 1);
    // Only told.
    reef_pruning would = prune(f, 1, true);
    assert_int_equal(would.states, 1);
    kept_are(f, "0123", bits, false);
    reef_pruning done = prune(f, 1, false);
    assert_memory_equal(&done, &would, sizeof(done));
    assert_int_equal(done.visits, 1);
    assert_in_range(done.bytes, 100000, 100000000);
    kept_are(f, "013", bits, false);
    for (int i = 0; i < 2; i++) {
        assert_true(bits_as_of(f, "early", 0) == early);
        assert_true(bits_as_of(f, "now", 0) == now);
        assert_sound(f);
        open_again(f, 2);
    }
    remove_early(f);
    assert_int_equal(prune(f, 1, false).states, 1);
    kept_are(f, "03", bits, false);
    assert_true(bits_as_of(f, "now", 0) == now);
    assert_non_null(strstr(f->said, "\"event\": \"prune\""));
    assert_memory_equal(commit(f).root, before.root, sizeof(before.root));
    assert_sound(f);
}

static reef_commit go_on(lifelong *f) {
    feed_kind(f, 0, VISIT, 40);
    feed_kind(f, 2, LONG, 41);
    return commit(f);
}

KINDS_TEST(training_goes_on_to_the_same_bits) {
    learn(f);
    reef_commit whole = go_on(f);
    double bits = bits_as_of(f, "now", 0);
    close_pool(f);
    temp_dir_join(f->pool, f->dir, "pruned");
    learn(f);
    prune(f, 1, false);
    reef_commit pruned = go_on(f);
    assert_memory_equal(pruned.root, whole.root, sizeof(whole.root));
    assert_true(bits_as_of(f, "now", 0) == bits);
    // Back at the snapshot, whose visits were kept for it.
    double early = bits_as_of(f, "early", 0);
    go_back(f, "early");
    assert_true(bits_as_of(f, "now", 0) == early);
    go_on(f);
    assert_sound(f);
}

KINDS_TEST(what_cannot_be_pruned) {
    reef_pruning done;
    learn(f);
    assert_int_equal(reef_trainer_prune(f->trainer, 0, false, &done, &why), REEF_ERR_INVALID);
    assert_string_equal(why.message, "the present state cannot be given up: keep 1");
    // More states than there are.
    done = prune(f, 100, false);
    assert_int_equal(done.visits, 0);
}

RUN_TESTS
