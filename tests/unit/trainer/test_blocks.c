// Blocks of memories: stored once and shared by all states, given up with the last one that names
// them; a block of text is left out where it is damaged.
#include "damaged_record.h"
#include "lifelong_restore.h"
#include "reef_kinds.h"
#include "store_internal.h"
#include "test.h"
#include "kind_memories.h"
#include "trainer_internal.h"

enum { BLOCK = REEF_TEXT_BLOCK_BYTES, LONG = 3 * BLOCK + 9000, SHORT = BLOCK + 5000 };

typedef struct found {
    size_t count;
    char first[REEF_NAME_BYTES_MAX + 1];
} found;

static found find(const lifelong *f, reef_db db) {
    found out = {0};
    reef_walk walk = {.db = db};
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    for (;; out.count++) {
        must(reef_walk_next(&walk, txn, &why));
        if (walk.done) break;
        if (db != REEF_DB_TEXT) continue;
        assert_in_range(walk.bytes, BLOCK, BLOCK + 100);
        if (out.count == 0) snprintf(out.first, sizeof(out.first), "%s", walk.key.name);
    }
    reef_txn_abort(txn);
    return out;
}

static found blocks_of(const lifelong *f) {
    return find(f, REEF_DB_TEXT);
}

// Of tables and logs.
static size_t slices_of(const lifelong *f) {
    return find(f, REEF_DB_BLOCKS).count;
}

static void make_given(lifelong *f) {
    choose(&f->config, "boundaries", "given");
    choose(&f->config, "net_share", "0");
    make_pool(f, 1);
}

static void learn(lifelong *f, int kind, size_t count, uint32_t seed) {
    for (size_t at = 0, some; at < count; at += some) {
        some = count - at < 30000 ? count - at : 30000;
        feed_kind(f, kind, some, seed + (uint32_t)at);
        commit(f);
    }
}

// Returns what the state before is kept as.
static reef_restoration restore(lifelong *f, const char *name) {
    reef_restoration done;
    close_trainer(f);
    must(reef_pool_restore_in_place(f->store, name, false, &done, &why));
    open_again(f, 1);
    return done;
}

static size_t lent(const lifelong *f) {
    const reef_memory *memory = reef_open_generation(f->trainer)->memory.memory;
    const uint8_t *name;
    size_t count = 0;
    for (size_t i = 0; reef_memory_text_block(memory, i, &name) != NULL; i++)
        count += reef_memory_text_is_lent(memory, i);
    return count;
}

KINDS_TEST(states_and_snapshots_share_the_blocks) {
    make_given(f);
    learn(f, 0, LONG, 1);
    size_t stored = blocks_of(f).count;
    assert_in_range(stored, 1, LONG / BLOCK);
    take(f, "early");
    take(f, "again");
    double early = bits_as_of(f, "early", 0);
    assert_int_equal(blocks_of(f).count, stored);
    learn(f, 0, SHORT, 7);
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    // All that is full, and no more.
    assert_int_equal(blocks_of(f).count, (LONG + SHORT) / BLOCK);
    double sealed = bits_as_of(f, "0", 0);
    assert_true(bits_as_of(f, "early", 0) == early);
    assert_sound(f);
    open_again(f, 1);
    assert_true(bits_as_of(f, "early", 0) == early && bits_as_of(f, "0", 0) == sealed);
}

// Most of it needs no memory beside the pool.
KINDS_TEST(the_pool_lends_what_it_has) {
    make_given(f);
    learn(f, 0, LONG, 1);
    size_t before = lent(f);
    assert_in_range(before, 1, LONG / BLOCK);
    learn(f, 0, SHORT, 5);
    assert_true(lent(f) > before);
    double bits = bits_as_of(f, NULL, 0);
    open_again(f, 1);
    assert_true(lent(f) >= before);
    assert_true(bits_as_of(f, NULL, 0) == bits);
}

KINDS_TEST(another_text_after_a_restore_is_a_text_of_its_own) {
    reef_pruning done;
    make_given(f);
    learn(f, 0, LONG, 1);
    take(f, "early");
    double early = bits_as_of(f, "early", 0);
    learn(f, 0, LONG, 3);
    reef_commit goal = commit(f);
    double later = bits_as_of(f, NULL, 0);
    const reef_restoration first = restore(f, "early");
    assert_true(bits_as_of(f, NULL, 0) == early);
    learn(f, 1, LONG, 5);
    assert_true(bits_as_of(f, first.kept_as, 0) == later);
    assert_true(bits_as_of(f, "early", 0) == early);
    assert_sound(f);
    // The same text again has the same blocks, and leads to the same root.
    const reef_restoration second = restore(f, "early");
    learn(f, 0, LONG, 3);
    assert_memory_equal(commit(f).root, goal.root, sizeof(goal.root));
    assert_true(bits_as_of(f, NULL, 0) == later);
    size_t all = blocks_of(f).count;
    // What only the states had that are given up goes with them.
    char names[3][REEF_NAME_BYTES_MAX + 1] = {"early"};
    memcpy(names[1], first.kept_as, sizeof(names[1]));
    memcpy(names[2], second.kept_as, sizeof(names[2]));
    must(reef_trainer_snapshots_remove(f->trainer, names, 3, &why));
    size_t left = blocks_of(f).count;
    assert_true(left < all && left <= 2 * LONG / BLOCK);
    must(reef_trainer_prune(f->trainer, 1, false, &done, &why));
    assert_int_equal(done.bytes, 0);
    assert_true(bits_as_of(f, NULL, 0) == later);
    open_again(f, 1);
    assert_true(bits_as_of(f, NULL, 0) == later);
    assert_sound(f);
}

// A block that is damaged is left out: the kind is whole but for its matches.
KINDS_TEST(a_kind_is_whole_without_a_block_of_its_text) {
    make_given(f);
    learn(f, 0, LONG, 1);
    const found before = blocks_of(f);
    double bits = bits_as_of(f, NULL, 0);
    close_pool(f);
    record_damage(f->pool, &(reef_key){.db = REEF_DB_TEXT, .name = before.first});
    f->store = pool_open(f->pool, false, true);
    reef_model *model = model_of(f->store, NULL);
    size_t count = 0;
    const reef_lost_kind *lost = reef_model_lost_kinds(model, &count);
    assert_int_equal(count, 1);
    assert_non_null(strstr(lost[0].what, "text"));
    assert_true(lost[0].whole_to > LONG - 40000);
    reef_model_close(model);
    double without = bits_as_of(f, NULL, 0);
    print_message("%.1f bits, %.1f without a block\n", bits, without);
    assert_true(without < 1.2 * bits);
    reef_trainer *trainer = NULL;
    reef_trainer_options options = {.threads = 1};
    must_fail(reef_trainer_open(&trainer, f->store, &options, &why), REEF_ERR_CORRUPT, "damaged");
    options.recovers_kinds = true;
    reef_kind_recovery *all = NULL;
    must(reef_trainer_open(&trainer, f->store, &options, &why));
    must(reef_trainer_kinds_recover(trainer, false, &all, &count, &why));
    assert_int_equal(count, 1);
    assert_true(all[0].learned > LONG - 40000);
    free(all);
    reef_trainer_close(trainer);
    assert_true(bits_as_of(f, NULL, 0) == without);
    open_again(f, 1);
    learn(f, 0, SHORT, 9);
    assert_sound(f);
}

// ---- slices -------------------------------------------------------------------------------------

static void remove_snapshot(lifelong *f, const char *name) {
    char names[1][REEF_NAME_BYTES_MAX + 1] = {""};
    snprintf(names[0], sizeof(names[0]), "%s", name);
    must(reef_trainer_snapshots_remove(f->trainer, names, 1, &why));
}

// A snapshot has the slices that the memory has; those that are written later are others.
KINDS_TEST(a_snapshot_copies_no_slice) {
    enum { MUCH = 260000, FEW = 20000 };
    make_given(f);
    learn(f, 0, MUCH, 1);
    size_t before = slices_of(f);
    assert_true(reef_memory_slices_in_turns(reef_open_generation(f->trainer)->memory.slices));
    take(f, "early");
    assert_int_equal(slices_of(f), before);
    double early = bits_as_of(f, "early", 0);
    learn(f, 0, FEW, 3);
    size_t after = slices_of(f);
    assert_true(after < 2 * before);
    take(f, "later");
    assert_int_equal(slices_of(f), after);
    double later = bits_as_of(f, "later", 0);
    for (int i = 0; i < 3; i++) {
        learn(f, 0, MUCH / 4, 11 * (uint32_t)i + 5);
        open_again(f, 1);
        assert_true(bits_as_of(f, "early", 0) == early && bits_as_of(f, "later", 0) == later);
    }
    assert_sound(f);
    // One by one they go, and leave what the others have.
    size_t all = slices_of(f);
    remove_snapshot(f, "early");
    assert_true(slices_of(f) < all && bits_as_of(f, "later", 0) == later);
    remove_snapshot(f, "later");
    size_t alone = slices_of(f);
    double now = bits_as_of(f, NULL, 0);
    learn(f, 0, FEW, 7);
    assert_in_range(slices_of(f), alone, alone + 2); // none is left behind
    // A seal is the same state.
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    assert_in_range(slices_of(f), alone, alone + 4);
    assert_true(bits_as_of(f, "0", 0) < 1.1 * now);
    assert_sound(f);
}

// A kind that comes back goes on with the slices that it had, and every state stays as it was.
KINDS_TEST(a_visit_begins_with_the_slices_of_its_kind) {
    enum { MUCH = 150000, LESS = 40000 };
    static const char *const STATES[] = {"0", "1", "2"};
    double bits[3];
    make_pool(f, 1);
    learn(f, 0, MUCH, 1);
    learn(f, 1, LESS, 2);
    learn(f, 0, LESS, 40);
    size_t once = slices_of(f);
    const reef_kind_head *head = reef_kind_head_find(f->trainer, 0);
    assert_true(head != NULL && reef_memory_slices_in_turns(head->visit.memory.slices));
    learn(f, 2, LESS, 3);
    assert_int_equal(status_of(f).generation, 2);
    learn(f, 0, LESS, 50);
    bits[0] = bits_as_of(f, "0", 0);
    bits[1] = bits_as_of(f, "1", 0);
    // Two holders have it, with the slices that differ.
    assert_true(slices_of(f) < 3 * once);
    for (int i = 0; i < 3; i++) {
        learn(f, i, LESS, 60 + (uint32_t)i);
        if (i % 2) open_again(f, 1);
        for (int s = 0; s < 2; s++) assert_true(bits_as_of(f, STATES[s], 0) == bits[s]);
    }
    learn(f, 0, 2 * MUCH, 70);
    for (int s = 0; s < 2; s++) assert_true(bits_as_of(f, STATES[s], 0) == bits[s]);
    assert_sound(f);
    size_t all = slices_of(f);
    reef_pruning done;
    must(reef_trainer_prune(f->trainer, 1, false, &done, &why));
    bits[2] = bits_as_of(f, NULL, 0);
    assert_true(slices_of(f) < all);
    open_again(f, 1);
    assert_true(bits_as_of(f, NULL, 0) == bits[2]);
    assert_sound(f);
}

RUN_TESTS
