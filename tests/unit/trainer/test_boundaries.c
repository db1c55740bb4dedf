// Boundaries stand at the byte where they should, whatever the cuts, commits and restarts; bounds
// on experts and kinds hold.
#include "lifelong.h"
#include "test.h"
#include "trainer_internal.h"

#include <math.h>

#define MARK "== END"
enum { BATCH = LIFELONG_BATCH };

static void feed_from(lifelong *f, const char *source, const uint8_t *bytes, size_t count) {
    size_t taken;
    must(reef_trainer_feed(f->trainer, source, bytes, count, &taken, NULL, &why));
    assert_int_equal(taken, count);
}

static void feed_line(lifelong *f, const char *text) {
    feed(f, (const uint8_t *)text, strlen(text));
}

// ---- the stream alone decides -------------------------------------------------------------------

// The root after `stream`, fed in cuts of `cut` bytes, committed after every `every` of them, and
// with `reopen` thrown away and taken up from the pool after every other commit.
static void root_of_run(const reef_config *config,
                        const uint8_t *stream,
                        size_t count,
                        size_t threads,
                        size_t cut,
                        size_t every,
                        bool reopen,
                        size_t *generation_count,
                        uint8_t root[REEF_HASH_BYTES]) {
    void *state = NULL;
    lifelong_setup(&state);
    lifelong *f = state;
    f->config = *config;
    make_pool(f, threads);
    size_t cuts = 0;
    for (size_t at = 0; at < count;) {
        size_t size = count - at < cut ? count - at : cut;
        feed(f, stream + at, size);
        at += size;
        if (++cuts % every != 0) continue;
        commit(f);
        if (!reopen || cuts / every % 2 == 0) continue;
        if (at < count) feed(f, stream + at, 1); // lost with the process: not committed
        open_again(f, threads);
        assert_int_equal(reef_trainer_cursor(f->trainer, "test"), at);
    }
    reef_commit last = commit(f);
    memcpy(root, last.root, REEF_HASH_BYTES);
    *generation_count = f->trainer->network.generation_count;
    lifelong_teardown(&state);
}

// generation_count  0: as many as there are, but more than one
static void assert_the_stream_decides(const reef_config *config,
                                      const uint8_t *stream,
                                      size_t count,
                                      size_t generation_count) {
    uint8_t expected[REEF_HASH_BYTES], root[REEF_HASH_BYTES];
    size_t found;
    root_of_run(config, stream, count, 1, count, 1, false, &found, expected);
    if (generation_count > 0)
        assert_int_equal(found, generation_count);
    else
        assert_true(found > 1);
    root_of_run(config, stream, count, 3, 1, 2900, true, &found, root); // byte after byte
    assert_memory_equal(expected, root, sizeof(root));
}

PLAIN_TEST(the_stream_alone_decides_where_kinds_begin) {
    static const struct run {
        const char *setting[2];
        size_t generation_count;
    } RUNS[] = {{{"net_share", "0.5"}, 3}, {{"net_share", "0"}, 3}, {{"experts_max", "144"}, 2}};
    enum { PART = 14000, TOTAL = 3 * PART };
    uint8_t stream[TOTAL];
    for (int kind = 0; kind < 3; kind++) lifelong_text(stream + kind * PART, PART, kind, 7);
    for (size_t i = 0; i < sizeof(RUNS) / sizeof(*RUNS); i++) {
        reef_config config = lifelong_config();
        choose(&config, RUNS[i].setting[0], RUNS[i].setting[1]);
        assert_the_stream_decides(&config, stream, TOTAL, RUNS[i].generation_count);
    }
}

// ---- marks --------------------------------------------------------------------------------------

LIFELONG_TEST(a_mark_is_a_boundary_at_exactly_its_place) {
    give_boundaries(f); // what is tested is that they stand at the marker lines
    choose(&f->config, "boundary_mark", MARK);
    make_pool(f, 1);
    feed_kind(f, 0, 1000, 3);
    feed_line(f, "\n" MARK "X\n" MARK MARK "\n " MARK "\n== EN\n\n"); // none of these
    uint64_t before = 1000 + 1 + 8 + 13 + 8 + 6 + 1, behind = before + 7;
    feed_line(f, MARK);
    assert_int_equal(status_of(f).generation, 0); // the line may continue
    feed_line(f, "\n");
    assert_int_equal(status_of(f).generation, 1);
    reef_trainer_status status = status_of(f);
    assert_int_equal(status.opened_at, behind);
    assert_int_equal(status.stream_bytes, behind);
    assert_int_equal(status.pending_bytes, 0);
    uint64_t trained = (before - 1) / BATCH * BATCH; // the last byte has no next one
    assert_int_equal(status.step * BATCH, trained);
    assert_int_equal(status.not_learned_bytes, behind - trained);
    assert_int_equal(times_said(f, "\"reason\": \"mark\""), 2);
    feed_kind(f, 1, BATCH + 1, 3);
    feed_line(f, "\n" MARK "\n");
    assert_int_equal(f->trainer->network.generation_count, 3);
}

// The sealed generation is the one that a command makes where the whole batches end.
LIFELONG_TEST(before_a_mark_whole_batches_are_trained_and_nothing_else) {
    reef_generation_record marked, commanded;
    reef_txn *txn = NULL;
    uint8_t text[1000];
    lifelong_text(text, sizeof(text), 0, 3);
    give_boundaries(f); // what is tested is that they stand at the marker lines
    choose(&f->config, "boundary_mark", MARK);
    for (int command = 0; command < 2; command++) {
        make_pool(f, 1);
        feed(f, text, sizeof(text));
        if (command)
            must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
        else
            feed_line(f, "\n" MARK "\n");
        commit(f);
        txn = pool_begin(f->store, REEF_TXN_READ);
        must(reef_generation_read(txn, 0, command ? &commanded : &marked, &why));
        reef_txn_abort(txn);
        remove_pool(f);
    }
    assert_true(marked.sealed && commanded.sealed);
    assert_memory_equal(marked.root, commanded.root, REEF_HASH_BYTES);
}

PLAIN_TEST(marks_do_not_depend_on_cuts_and_restarts) {
    enum { PART = 1500 };
    uint8_t stream[3 * PART + 200];
    size_t count = 0;
    for (int kind = 0; kind < 3; kind++) {
        lifelong_text(stream + count, PART, kind, 7);
        count += PART;
        const char *lines = kind == 1 ? "\n" MARK "\n" MARK "\n" MARK "!\n" : "\n" MARK "\n== E\n";
        memcpy(stream + count, lines, strlen(lines));
        count += strlen(lines);
    }
    for (int tiny = 0; tiny < 2; tiny++) {
        reef_config config = lifelong_config();
        choose(&config, "boundary_mark", MARK);
        if (tiny) { // several batches may hide in what looks like a marker
            config.batch = 1;
            config.context = 2;
            choose(&config, "boundaries", "given");
        }
        assert_the_stream_decides(&config, stream, count, 4);
    }
}

LIFELONG_TEST(a_mark_before_anything_was_trained_is_only_taken_out) {
    uint8_t roots[2][REEF_HASH_BYTES];
    give_boundaries(f); // what is tested is that they stand at the marker lines
    choose(&f->config, "boundary_mark", MARK);
    uint8_t text[40 * BATCH];
    lifelong_text(text, sizeof(text), 0, 3);
    make_pool(f, 1);
    feed_line(f, MARK "\n");
    feed(f, text, 20);
    feed_line(f, "\n" MARK "\n" MARK "\n");
    assert_int_equal(status_of(f).pending_bytes, 21);
    assert_int_equal(status_of(f).not_learned_bytes, 21);
    feed(f, text, 10 * BATCH);
    assert_int_equal(status_of(f).generation, 0);
    assert_int_equal(times_said(f, "mark"), 0);
    // The model is that of the stream without the marks.
    float *with = room(LIFELONG_PROBE_BYTES * REEF_VOCAB * sizeof(*with));
    float *without = room(LIFELONG_PROBE_BYTES * REEF_VOCAB * sizeof(*without));
    memcpy(roots[0], commit(f).root, REEF_HASH_BYTES);
    logits_of(f->store, "now", 0, with);
    remove_pool(f);
    make_pool(f, 1);
    feed(f, text, 20);
    feed_line(f, "\n");
    feed(f, text, 10 * BATCH);
    commit(f);
    logits_of(f->store, "now", 0, without);
    assert_memory_equal(with, without, LIFELONG_PROBE_BYTES * REEF_VOCAB * sizeof(*with));
}

LIFELONG_TEST(the_end_of_a_source_ends_its_last_line) {
    give_boundaries(f); // what is tested is that they stand at the marker lines
    choose(&f->config, "boundary_mark", MARK);
    make_pool(f, 1);
    uint8_t text[300];
    lifelong_text(text, sizeof(text), 0, 3);
    feed_from(f, "one", text, sizeof(text));
    feed_from(f, "one", (const uint8_t *)"\n" MARK, 7);
    feed_from(f, "two", text, 0); // no byte of it yet
    assert_int_equal(status_of(f).generation, 0);
    commit(f);
    open_again(f, 1);
    feed_from(f, "two", text, sizeof(text));
    assert_int_equal(status_of(f).generation, 1);
    assert_int_equal(status_of(f).opened_at, 307);
    // The beginning of a marker is text if the source ends in it, and does not continue in the
    // next.
    feed_from(f, "two", (const uint8_t *)"\n== ", 4);
    feed_from(f, "three", (const uint8_t *)"END\n", 4);
    assert_int_equal(status_of(f).generation, 1);
    assert_int_equal(status_of(f).stream_bytes + status_of(f).pending_bytes, 300 + 7 + 300 + 8);
}

// ---- size ---------------------------------------------------------------------------------------

LIFELONG_TEST(a_mark_ends_what_is_deferred_with_its_kind) {
    choose(&f->config, "boundary_mark", MARK);
    make_pool(f, 1);
    feed_kind(f, 0, 10000, 3);
    feed_kind(f, 1, 4000, 3); // too little to tell
    assert_int_equal(status_of(f).generation, 0);
    assert_true(f->trainer->stream.deferred_batches > 0);
    feed_line(f, "\n" MARK "\n");
    assert_int_equal(f->trainer->stream.deferred_batches, 0);
    assert_int_equal(status_of(f).step, 14000 / BATCH);
    assert_int_equal(status_of(f).generation, 1);
    assert_int_equal(status_of(f).opened_at, 14000 + 8);
}

// ---- bounds -------------------------------------------------------------------------------------

LIFELONG_TEST(no_more_experts_are_made_than_the_bound_allows) {
    choose(&f->config, "experts_max", "200"); // 2 layers of 36, twice
    choose(&f->config, "boundary_mark", MARK);
    make_pool(f, 1);
    for (int kind = 0; kind < 4; kind++) {
        feed_kind(f, kind, 20 * BATCH, 3);
        feed_line(f, "\n" MARK "\n");
    }
    assert_int_equal(f->trainer->network.generation_count, 2);
    assert_int_equal(status_of(f).experts, 144);
    assert_int_equal(times_said(f, "\"event\": \"full\""), 3);
    assert_int_equal(times_said(f, "\"experts\": 144, \"experts_max\": 200"), 3);
    assert_int_equal(status_of(f).step, 80); // it continues to learn
    must_fail(reef_trainer_seal(f->trainer, NULL, NULL, &why), REEF_ERR_FULL, "144 experts");
    must_fail(reef_trainer_grow(f->trainer, 9, &why), REEF_ERR_FULL, "experts_max 200");
    assert_int_equal(status_of(f).experts, 144);
}

LIFELONG_TEST(a_full_pool_learns_what_would_have_begun_a_kind) {
    choose(&f->config, "experts_max", "72");
    make_pool(f, 1);
    feed_kind(f, 0, 12000, 3);
    feed_kind(f, 1, 12000, 3);
    assert_int_equal(status_of(f).generation, 0);
    assert_int_equal(times_said(f, "\"event\": \"full\""), 1);
    assert_int_equal(status_of(f).not_learned_bytes, 0);
    commit(f);
    open_again(f, 1);
    feed_kind(f, 2, 12000, 3);
    assert_int_equal(times_said(f, "\"event\": \"full\""), 1); // it is still known
    assert_int_equal(status_of(f).generation, 0);
}

LIFELONG_TEST(a_generation_without_training_is_not_sealed) {
    make_pool(f, 1);
    assert_int_equal(reef_trainer_seal(f->trainer, NULL, NULL, &why), REEF_ERR_INVALID);
    feed_kind(f, 0, 4000, 3);
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    assert_int_equal(reef_trainer_seal(f->trainer, NULL, NULL, &why), REEF_ERR_INVALID);
    assert_int_equal(status_of(f).generation, 1);
}

// What was thought of deferred pieces is in no commit; growing changes what is sealed with them.
LIFELONG_TEST(growing_judges_deferred_pieces_again) {
    reef_commit last[2];
    for (size_t i = 0; i < 2; i++) {
        make_pool(f, 1);
        feed_kind(f, 0, 10000, 1);
        feed_kind(f, 1, 4000, 1);
        assert_int_equal(status_of(f).generation, 0);
        assert_true(f->trainer->stream.deferred_batches > 0);
        must(reef_trainer_grow(f->trainer, f->config.side + 2, &why));
        assert_int_equal(f->trainer->stream.deferred_batches, 0);
        if (i == 1) open_again(f, 1); // as after a crash
        feed_kind(f, 1, 12000, 2);
        assert_int_equal(status_of(f).generation, 1);
        last[i] = commit(f);
        remove_pool(f);
    }
    assert_memory_equal(last[0].root, last[1].root, sizeof(last[0].root));
}

// ---- held bytes ---------------------------------------------------------------------------------

static void seal_of(lifelong *f,
                    const uint8_t *stream,
                    size_t count,
                    reef_generation_record sealed[2]) {
    make_pool(f, 1);
    feed(f, stream, count);
    commit(f);
    assert_int_equal(status_of(f).generation, 2);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    for (uint32_t g = 0; g < 2; g++) must(reef_generation_read(txn, g, &sealed[g], &why));
    reef_txn_abort(txn);
    remove_pool(f);
}

// However much is deferred when a boundary is found, the sealed generation is the same to the bit.
LIFELONG_TEST(a_sealed_generation_has_never_seen_deferred_bytes) {
    enum { PART = 14000 };
    uint8_t stream[3 * PART];
    reef_generation_record found[2], other[2];
    for (int kind = 0; kind < 3; kind++) lifelong_text(stream + kind * PART, PART, kind, 7);
    seal_of(f, stream, sizeof(stream), found);
    for (int g = 1; g >= 0; g--) {
        // Other text of the same kind, from the byte after the last batch's last target on.
        size_t end = (size_t)found[g].sealed_at,
               from = end + 1 > (size_t)(g + 1) * PART ? end + 1 : (size_t)(g + 1) * PART;
        lifelong_text(stream + from, (size_t)(g + 2) * PART - from, g + 1, 8);
        seal_of(f, stream, sizeof(stream), other);
        assert_int_equal(other[g].sealed_at, end);
        assert_memory_equal(found[g].root, other[g].root, REEF_HASH_BYTES);
        if (g == 0) assert_memory_not_equal(found[1].root, other[1].root, REEF_HASH_BYTES);
    }
}

RUN_TESTS
