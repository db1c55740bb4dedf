// The context memory of a generation: learned with the stream, kept by commits, asked by every
// reader.
#include "checkpoint_internal.h"
#include "draw_text.h"
#include "generation_memory.h"
#include "lifelong.h"
#include "memory_internal.h"
#include "reef_snapshot.h"
#include "test.h"
#include "trainer_internal.h"

#include <math.h>

enum { STREAM = 40 * 1024, TURN = 200 * LIFELONG_BATCH };

static double bits_read(const lifelong *f,
                        const char *as_of,
                        int kind,
                        reef_memory_reading reading) {
    reef_model *model = NULL;
    reef_score score = {0};
    uint8_t probe[LIFELONG_PROBE_BYTES];
    lifelong_text(probe, sizeof(probe), kind, 99);
    const reef_model_options options = {.threads = 1, .reading = reading};
    must(reef_model_open(&model, f->store, as_of, &options, &why));
    must(reef_model_score(model, probe, sizeof(probe), NULL, &score, NULL, NULL, &why));
    reef_model_close(model);
    return score.bits;
}

static const reef_generation_memory *memory_of(const lifelong *f) {
    return &reef_open_generation(f->trainer)->memory;
}

LIFELONG_TEST(a_pool_with_a_memory_knows_more_than_one_without) {
    double bits[2];
    for (int with = 1; with >= 0; with--) {
        snprintf(f->pool, sizeof(f->pool), "%.200s/pool%d", f->dir, with);
        if (!with) forget_memories(f);
        make_pool(f, 1);
        feed_kind(f, 0, TURN, 1);
        commit(f);
        bits[with] = bits_as_of(f, NULL, 0);
        assert_true((memory_of(f)->memory != NULL) == (with == 1));
        assert_sound(f);
        close_pool(f);
    }
    print_message("%.3f bits without, %.3f with\n", bits[0], bits[1]);
    assert_true(bits[1] < bits[0]);
}

// Trains on one stream, in the given way, and returns the root.
static reef_commit train(lifelong *f, const char *name, size_t threads, size_t piece, bool reopen) {
    uint8_t *bytes = room(STREAM);
    for (int turn = 0; turn < 4; turn++)
        lifelong_text(bytes + turn * (STREAM / 4), STREAM / 4, turn / 2, (uint32_t)turn);
    temp_dir_join(f->pool, f->dir, name);
    make_pool(f, threads);
    for (size_t at = 0; at < STREAM; at += piece) {
        feed(f, bytes + at, STREAM - at < piece ? STREAM - at : piece);
        if (!reopen) continue;
        commit(f);
        open_again(f, threads);
    }
    reef_commit out = commit(f);
    return out;
}

static void leave_no_trace(lifelong *f, const char *share) {
    static const struct {
        size_t threads, piece;
        bool reopen;
    } WAYS[] = {{1, STREAM, false}, {3, 1000, false}, {2, 12000, true}};
    reef_commit first = {0};
    double bits = 0.0;
    choose(&f->config, "net_share", share);
    for (size_t i = 0; i < sizeof(WAYS) / sizeof(WAYS[0]); i++) {
        char name[32];
        snprintf(name, sizeof(name), "share-%s-%zu", share, i);
        reef_commit end = train(f, name, WAYS[i].threads, WAYS[i].piece, WAYS[i].reopen);
        double now = bits_as_of(f, NULL, 0);
        if (i == 0) {
            first = end;
            bits = now;
            // The second kind of text is another generation's.
            assert_int_equal(f->trainer->network.generation_count, 2);
        }
        assert_memory_equal(end.root, first.root, sizeof(first.root));
        assert_true(now == bits);
        assert_sound(f);
        close_pool(f);
    }
}

LIFELONG_TEST(threads_commits_and_restarts_leave_no_trace) {
    leave_no_trace(f, "1");
}

LIFELONG_TEST(nor_where_the_net_learns_a_share_of_the_batches) {
    leave_no_trace(f, "0.3");
}

LIFELONG_TEST(nor_where_there_is_no_net) {
    leave_no_trace(f, "0");
}

// Of the bytes that a memory learned, the part that a net had predicted for it.
static double heard_of_net(const reef_memory *memory) {
    double shares[REEF_MEMORY_INPUTS_MAX], hits[REEF_MEMORY_INPUTS_MAX];
    size_t net = 0;
    reef_memory_inputs(memory, shares, hits);
    while (strcmp(reef_memory_input_name(net), "net") != 0) net++;
    return hits[net];
}

LIFELONG_TEST(the_net_learns_its_share_and_the_memory_all) {
    choose(&f->config, "boundaries", "given");
    choose(&f->config, "net_share", "0.25");
    make_pool(f, 1);
    feed_kind(f, 0, 4 * TURN, 1);
    uint64_t batches = f->trainer->step, first = 96; // see pending.c
    assert_in_range(f->trainer->generation_step, first + (batches - first) / 4 - 1,
                    first + (batches - first) / 4 + 1);
    assert_int_equal(reef_memory_learned_bytes(memory_of(f)->memory), batches * LIFELONG_BATCH + 1);
    double share = (double)f->trainer->generation_step / (double)batches;
    assert_true(fabs(heard_of_net(memory_of(f)->memory) - share) < 0.02);
}

KINDS_TEST(tables_are_written_rarely_and_the_tail_is_learned_again) {
    choose(&f->config, "boundaries", "given");
    choose(&f->config, "memory", "256M");
    make_pool(f, 1);
    size_t checkpoints = 0;
    uint64_t last = 0;
    for (int i = 0; i < 40; i++) {
        feed_kind(f, 0, 32 * LIFELONG_BATCH, (uint32_t)i);
        commit(f);
        checkpoints += memory_of(f)->checkpoint_bytes != last;
        last = memory_of(f)->checkpoint_bytes;
    }
    assert_in_range(checkpoints, 1, 4);
    assert_true(memory_of(f)->tail_bytes > 0);
    uint8_t chain[REEF_HASH_BYTES];
    uint64_t learned = reef_memory_learned_bytes(memory_of(f)->memory);
    memcpy(chain, memory_of(f)->chain, sizeof(chain));
    open_again(f, 1);
    assert_int_equal(reef_memory_learned_bytes(memory_of(f)->memory), learned);
    assert_memory_equal(memory_of(f)->chain, chain, sizeof(chain));
}

static reef_status fails(void *context, reef_txn *txn, reef_error *err) {
    (void)context;
    (void)txn;
    return reef_fail(err, REEF_ERR_IO, "as the test wants it");
}

// A commit that fails when all was put, and leaves what is stored as it was.
static void fail_to_commit(lifelong *f) {
    reef_trainer_on_commit(f->trainer, fails, NULL);
    assert_int_equal(reef_trainer_commit(f->trainer, NULL, &why), REEF_ERR_IO);
    reef_trainer_on_commit(f->trainer, NULL, NULL);
}

// As before the process ends: no table is old then, whatever failed before.
static void rest(lifelong *f) {
    const reef_generation_memory *m = memory_of(f);
    const uint64_t learned = reef_memory_learned_bytes(m->memory);
    reef_commit before, after;
    must(reef_store_read_commit(f->store, &before, &why));
    fail_to_commit(f);
    must(reef_trainer_rest(f->trainer, &why));
    if (reef_memory_slices_in_turns(m->slices))
        assert_true(learned - reef_memory_slices_oldest(m->slices) <
                    reef_generation_memory_rest_bytes(m));
    else
        assert_true(learned - m->checkpoint_bytes < reef_generation_memory_rest_bytes(m));
    must(reef_store_read_commit(f->store, &after, &why));
    assert_memory_equal(after.root, before.root, sizeof(after.root));
    // A second time there is nothing to write.
    must(reef_trainer_rest(f->trainer, &why));
    must(reef_store_read_commit(f->store, &before, &why));
    assert_int_equal(before.number, after.number);
}

// Learns the text in pieces, a commit after each, some of which fail, and now and then it rests,
// or goes on from the pool.
static reef_commit learn_in_slices(
    lifelong *f, const char *name, const uint8_t *text, size_t count, size_t piece, size_t reopen) {
    temp_dir_join(f->pool, f->dir, name);
    make_pool(f, 1);
    for (size_t at = 0, i = 1; at < count; at += piece, i++) {
        feed(f, text + at, count - at < piece ? count - at : piece);
        if (i % 3 == 0) fail_to_commit(f);
        commit(f);
        const reef_memory_slices *slices = memory_of(f)->slices;
        // No slice is much older than a round of text.
        if (slices != NULL)
            assert_true(slices->stored - reef_memory_slices_oldest(slices) <
                        reef_generation_memory_round(memory_of(f)) * 3 / 2 + 2 * piece);
        if (i % reopen == 0) rest(f);
        if (i % (2 * reopen) == 0) open_again(f, 1);
    }
    assert_non_null(memory_of(f)->slices);
    return commit(f);
}

KINDS_TEST(a_large_memory_is_stored_slice_by_slice) {
    enum { COUNT = 260000, PIECE = 3000 };
    uint8_t *text = room(COUNT);
    uint64_t seed = 41;
    draw_text(&seed, COUNT, text);
    choose(&f->config, "boundaries", "given");
    choose(&f->config, "net_share", "0");
    const reef_commit once = learn_in_slices(f, "once", text, COUNT, PIECE, COUNT);
    double bits = bits_as_of(f, NULL, 0);
    // Blocks of the log that no slice needs are gone.
    assert_true(memory_of(f)->slices->begins[0] > COUNT / 2);
    assert_true(memory_of(f)->slices->log_count < 8);
    assert_sound(f);
    close_pool(f);
    const reef_commit often = learn_in_slices(f, "often", text, COUNT, 2 * PIECE, 4);
    assert_true(bits_as_of(f, NULL, 0) == bits);
    assert_memory_equal(often.root, once.root, sizeof(once.root));
    assert_sound(f);
    // Sealed it stays as it is stored, whenever that was.
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    assert_true(bits_as_of(f, "0", 0) == bits);
    assert_sound(f);
    const reef_commit sealed = commit(f);
    snprintf(f->pool, sizeof(f->pool), "%.200s/once", f->dir);
    open_again(f, 1);
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    assert_memory_equal(commit(f).root, sealed.root, sizeof(sealed.root));
}

LIFELONG_TEST(a_sealed_state_reads_a_text_to_the_same_bits_for_ever) {
    reef_snapshot snapshot;
    choose(&f->config, "boundaries", "given");
    make_pool(f, 1);
    feed_kind(f, 0, TURN, 1);
    must(reef_trainer_snapshot(f->trainer, "early", &snapshot, &why));
    double early = bits_as_of(f, "early", 0);
    feed_kind(f, 0, TURN, 2);
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    double sealed = bits_as_of(f, "0", 0), frozen = bits_read(f, "0", 0, REEF_READ_FROZEN);
    assert_true(sealed < frozen); // it learns from what it reads
    for (int turn = 3; turn < 6; turn++) {
        feed_kind(f, turn % 3, TURN, (uint32_t)turn);
        commit(f);
        assert_true(bits_as_of(f, "0", 0) == sealed);
        assert_true(bits_read(f, "0", 0, REEF_READ_FROZEN) == frozen);
        assert_true(bits_as_of(f, "early", 0) == early);
    }
    open_again(f, 1);
    assert_true(bits_as_of(f, "0", 0) == sealed);
    assert_true(bits_as_of(f, "early", 0) == early);
    assert_sound(f);
}

LIFELONG_TEST(a_restored_snapshot_learns_on_to_the_same_root) {
    reef_snapshot snapshot;
    choose(&f->config, "boundaries", "given");
    make_pool(f, 1);
    feed_kind(f, 0, 3 * TURN, 1);
    must(reef_trainer_snapshot(f->trainer, "here", &snapshot, &why));
    feed_kind(f, 1, 2 * TURN, 2);
    reef_commit first = commit(f);
    double bits = bits_as_of(f, NULL, 1);
    close_pool(f);
    f->store = pool_open(f->pool, false, true);
    reef_restoration done;
    must(reef_pool_restore_in_place(f->store, "here", false, &done, &why));
    open_again(f, 1);
    feed_kind(f, 1, 2 * TURN, 2);
    reef_commit again = commit(f);
    assert_memory_equal(again.root, first.root, sizeof(first.root));
    assert_true(bits_as_of(f, NULL, 1) == bits);
}

// The net's part of growing is not exact; the memory does not notice.
LIFELONG_TEST(growing_in_place_keeps_the_memory) {
    reef_commit ends[2];
    choose(&f->config, "boundaries", "given");
    for (int reopen = 0; reopen < 2; reopen++) {
        make_pool(f, 1);
        feed_kind(f, 0, TURN, 1);
        const reef_memory *before = memory_of(f)->memory;
        must(reef_trainer_grow(f->trainer, 8, &why));
        assert_ptr_equal(memory_of(f)->memory, before);
        if (reopen == 1) open_again(f, 1);
        feed_kind(f, 0, TURN, 2);
        must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
        ends[reopen] = commit(f);
        assert_sound(f);
        remove_pool(f);
    }
    assert_memory_equal(ends[0].root, ends[1].root, sizeof(ends[0].root));
}

typedef struct damage {
    size_t count;
    char what[256];
} damage;

static void on_damage(void *context, const reef_key *key, const char *what) {
    damage *d = context;
    d->count++;
    const char *name = key->db == REEF_DB_BLOCKS ? "slice" : key->name;
    snprintf(d->what, sizeof(d->what), "%s %u: %s", name, key->block, what);
}

// Remove a record of the open generation's memory, or replace it by another; look; and forget that.
static damage look_without(const lifelong *f, const char *name, uint32_t block, size_t bytes) {
    damage d = {0};
    reef_key key = {.db = REEF_DB_MEMORY, .name = name, .block = block};
    if (strcmp(name, "slice") == 0) key = reef_block_key(memory_of(f)->slices->numbers[0][block]);
    uint8_t *zeros = room(bytes + 1), *packed = room(reef_zero_runs_bound(bytes));
    size_t stored = reef_zero_runs_pack(packed, zeros, bytes);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    must(reef_record_delete(txn, &key, &why));
    if (bytes > 0) must(reef_record_put(txn, &key, REEF_BYTES, packed, stored, &why));
    must(reef_pool_check_sizes(txn, on_damage, &d, &why));
    reef_txn_abort(txn);
    return d;
}

KINDS_TEST(parts_that_are_missing_or_too_long_are_found) {
    choose(&f->config, "boundaries", "given");
    make_pool(f, 1);
    feed_kind(f, 0, 4 * TURN, 1); // enough for tables to be written
    commit(f);
    assert_true(memory_of(f)->checkpoint_bytes > 0);
    assert_int_equal(look_without(f, "tail", 77, 0).count, 0);
    const struct {
        const char *name;
        uint32_t block;
        size_t bytes;
        const char *words;
    } CASES[] = {
        {"text", 0, 0, "text 0: "},           {"slice", 1, 0, "slice 0: "},
        {"mixer", 7, 5, "mixer 7: "},         {"header", 0, 0, "header 0: "},
        {"header", 0, 216, "not one of a m"}, {"mark", 0, 23, "mark 0: "},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        damage d = look_without(f, CASES[i].name, CASES[i].block, CASES[i].bytes);
        assert_int_equal(d.count, 1);
        if (strstr(d.what, CASES[i].words) == NULL) fail_msg("%s", d.what);
    }
}

// A memory that has outgrown what a reader accepts, as no growth may lead to.
KINDS_TEST(what_could_not_be_read_back_is_not_committed) {
    choose(&f->config, "boundaries", "given");
    make_pool(f, 1);
    feed_kind(f, 0, 4 * TURN, 1); // enough for tables to be written
    const reef_commit before = commit(f);
    assert_true(memory_of(f)->checkpoint_bytes > 0);
    feed_kind(f, 0, 4 * TURN, 2);
    assert_true(reef_generation_memory_is_due(memory_of(f)));
    memory_of(f)->memory->bytes_max = REEF_MEMORY_BYTES_MIN / 2;
    must_fail(reef_trainer_commit(f->trainer, NULL, &why), REEF_ERR_CORRUPT,
              "could not be read back: part header");
    close_pool(f);
    // What the last commit had is still there.
    open_pool(f, 1);
    assert_sound(f);
    const reef_commit after = commit(f);
    assert_memory_equal(after.root, before.root, sizeof(after.root));
}

LIFELONG_TEST(a_text_that_is_read_again_has_the_same_bits) {
    reef_score score = {0};
    uint8_t text[LIFELONG_PROBE_BYTES];
    float bits[2][LIFELONG_PROBE_BYTES];
    lifelong_text(text, sizeof(text), 0, 77);
    make_pool(f, 1);
    feed_kind(f, 0, TURN, 1);
    commit(f);
    reef_model *model = model_of(f->store, NULL);
    for (size_t i = 0; i < 2; i++)
        must(reef_model_score(model, text, sizeof(text), bits[i], &score, NULL, NULL, &why));
    assert_memory_equal(bits[0], bits[1], sizeof(*bits));
    reef_model_close(model);
}

LIFELONG_TEST(what_is_generated_is_what_the_memory_foresees) {
    uint8_t learned[TURN], out[2][60];
    lifelong_text(learned, sizeof(learned), 0, 1);
    make_pool(f, 1);
    feed(f, learned, sizeof(learned));
    commit(f);
    reef_model *model = model_of(f->store, NULL);
    const reef_sampling sampling = {.seed = 1, .temperature = 0.0f};
    for (int i = 0; i < 2; i++)
        must(reef_model_generate(model, learned, 4000, sizeof(out[i]), &sampling, out[i], &why));
    assert_memory_equal(out[0], out[1], sizeof(out[0]));
    // The prompt is what was learned, so its continuation is too.
    assert_memory_equal(out[0], learned + 4000, sizeof(out[0]));
    reef_model_close(model);
}

static double bits_now(reef_model *model, reef_memory_reading reading) {
    reef_score score = {0};
    uint8_t probe[LIFELONG_PROBE_BYTES];
    lifelong_text(probe, sizeof(probe), 0, 99);
    reef_model_set_reading(model, reading);
    must(reef_model_score(model, probe, sizeof(probe), NULL, &score, NULL, NULL, &why));
    return score.bits;
}

LIFELONG_TEST(each_question_says_what_memories_take_from_its_text) {
    double shares[REEF_MEMORY_INPUTS_MAX], hits[REEF_MEMORY_INPUTS_MAX], sum = 0.0;
    make_pool(f, 1);
    feed_kind(f, 0, TURN, 1);
    commit(f);
    double expected[REEF_READ_ALONE + 1];
    for (reef_memory_reading reading = 0; reading <= REEF_READ_ALONE; reading++)
        expected[reading] = bits_read(f, NULL, 0, reading);
    print_message("%.1f bits, frozen %.1f, alone %.1f\n", expected[0], expected[1], expected[2]);
    assert_true(expected[REEF_READ_ADAPTING] < expected[REEF_READ_FROZEN]);
    assert_true(expected[REEF_READ_FROZEN] < expected[REEF_READ_ALONE]);
    reef_model *model = model_of(f->store, NULL);
    assert_false(reef_model_inputs(model, shares, hits)); // nothing was asked yet
    static const reef_memory_reading ASKED[] = {REEF_READ_FROZEN,   REEF_READ_ALONE,
                                                REEF_READ_ADAPTING, REEF_READ_ADAPTING,
                                                REEF_READ_ALONE,    REEF_READ_FROZEN};
    for (size_t i = 0; i < sizeof(ASKED) / sizeof(*ASKED); i++)
        assert_true(bits_now(model, ASKED[i]) == expected[ASKED[i]]);
    assert_true(reef_model_inputs(model, shares, hits));
    for (size_t i = 0; i < reef_memory_input_count(); i++) sum += shares[i];
    assert_true(sum > 0.999 && sum < 1.001);
    reef_model_close(model);
}

LIFELONG_TEST(the_status_tells_what_the_memory_holds) {
    reef_trainer_status status;
    reef_memory_stats exact;
    choose(&f->config, "boundaries", "given");
    make_pool(f, 1);
    reef_trainer_status_read(f->trainer, &status);
    assert_int_equal(status.memory.stats.bytes_max, 4194304);
    assert_int_equal(status.memory.stats.learned_bytes, 0);
    assert_true(isnan(status.bits_per_byte) && isnan(status.last_bits_per_byte));
    feed_kind(f, 0, 2 * TURN, 1);
    reef_trainer_status_read(f->trainer, &status);
    reef_memory_read_stats(memory_of(f)->memory, &exact);
    assert_int_equal(status.memory.stats.learned_bytes, exact.learned_bytes);
    assert_true(status.memory.stats.cells_used > 0);
    assert_true(status.memory.stats.cells_used <= exact.cells_used);
    // Losses are those with the memory's help, below the net's own.
    double sum = 0.0;
    assert_true(status.bits_per_byte < f->trainer->net.last_bits);
    assert_true(status.last_bits_per_byte == f->trainer->memory.last_bits);
    for (size_t i = 0; i < reef_memory_input_count(); i++) sum += status.memory.shares[i];
    assert_true(sum > 0.999 && sum < 1.001);
    // And after a restart they are known as before, but for what was counted.
    commit(f);
    open_again(f, 1);
    reef_trainer_status_read(f->trainer, &status);
    assert_int_equal(status.memory.stats.learned_bytes, exact.learned_bytes);
    assert_int_equal(status.memory.stats.cells_used, exact.cells_used);
    assert_true(isnan(status.bits_per_byte));
}

KINDS_TEST(facts_are_read_without_the_tables) {
    reef_txn *txn = NULL;
    reef_memory_stats facts, exact;
    choose(&f->config, "boundaries", "given");
    make_pool(f, 1);
    feed_kind(f, 0, 4 * TURN, 1);
    reef_memory_read_stats(memory_of(f)->memory, &exact);
    commit(f);
    for (int sealed = 0; sealed < 2; sealed++) {
        if (sealed) must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
        txn = pool_begin(f->store, REEF_TXN_READ);
        must(reef_memory_stats_read(txn, 0, &facts, &why));
        assert_int_equal(facts.learned_bytes, exact.learned_bytes);
        if (sealed) {
            assert_int_equal(facts.bytes, exact.bytes);
            assert_int_equal(facts.cells, exact.cells);
            double share = (double)facts.cells_used / (double)exact.cells_used;
            assert_true(share > 0.9 && share < 1.1);
        }
        must(reef_memory_stats_read(txn, (uint32_t)sealed + 1, &facts, &why));
        assert_int_equal(facts.learned_bytes, 0);
        reef_txn_abort(txn);
    }
    assert_sound(f);
}

LIFELONG_TEST(a_memory_is_refused_where_there_are_no_bytes) {
    static const struct {
        const char *name, *value, *memory, *words;
    } CASES[] = {
        {"seed", "1", "1000", "less than the 4194304 bytes"},
        {"net_share", "0.5", "0", "there is none"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        f->config = lifelong_config();
        choose(&f->config, CASES[i].name, CASES[i].value);
        choose(&f->config, "memory", CASES[i].memory);
        must_fail(reef_pool_init(f->pool, &f->config, &why), REEF_ERR_INVALID, CASES[i].words);
    }
    // A layer has no text: what is for texts is left out of a new pool, and wrong in one that is
    // there.
    f->config = lifelong_config();
    choose(&f->config, "model", "layer");
    choose(&f->config, "memory", "4194304");
    must_fail(reef_config_check(&f->config, &why), REEF_ERR_INVALID, "no text");
    reef_config_reduce(&f->config);
    assert_int_equal(f->config.memory, 0);
    must(reef_config_check(&f->config, &why));
}

PLAIN_TEST(a_tail_that_is_cut_is_damage) {
    reef_generation_memory whole = {0}, m = {0};
    uint8_t text[40];
    reef_net_prediction net[40] = {{.tokens = 3}};
    lifelong_text(text, sizeof(text), 0, 1);
    must(reef_generation_memory_learn(&whole, 0, 0, text, 1, NULL, NULL, &why));
    must(reef_generation_memory_learn(&whole, 0, 1, text + 1, 39, net, NULL, &why));
    for (size_t cut = 0; cut <= whole.tail_bytes; cut++) {
        m.unlearned = malloc(cut + 1);
        assert_non_null(m.unlearned);
        memcpy(m.unlearned, whole.tail, cut);
        m.unlearned_bytes = cut;
        reef_status status = reef_generation_memory_catch_up(&m, 0, NULL, &why);
        // Between two segments it is a shorter tail, which the chain of the commit would notice.
        if (cut == 0 || cut == 13 || cut == whole.tail_bytes)
            must(status);
        else
            assert_int_equal(status, REEF_ERR_CORRUPT);
        if (cut == whole.tail_bytes) assert_memory_equal(m.chain, whole.chain, sizeof(m.chain));
        reef_generation_memory_release(&m);
    }
    reef_generation_memory_release(&whole);
}

PLAIN_TEST(zeros_are_left_out_and_come_back) {
    enum { MOST = 2000 };
    uint32_t draw = 1;
    uint8_t in[MOST], out[MOST], *packed = room(reef_zero_runs_bound(MOST));
    for (int trial = 0; trial < 3000; trial++) {
        size_t bytes = (size_t)trial % MOST, density = 1 + (size_t)trial % 9;
        for (size_t i = 0; i < bytes; i++) {
            draw = draw * 1664525u + 1013904223u;
            // Runs of both kinds, from one byte to longer than a token's reach.
            bool same = i > 0 && (draw >> 8) % (trial % 3 == 0 ? 200 : 3) != 0;
            in[i] = same ? in[i - 1] : (draw >> 20) % density == 0 ? (uint8_t)(draw >> 12) : 0;
        }
        size_t used = reef_zero_runs_pack(packed, in, bytes);
        assert_true(used <= reef_zero_runs_bound(bytes));
        assert_true(reef_zero_runs_unpack(out, bytes, packed, used));
        if (bytes > 0) assert_memory_equal(in, out, bytes);
        // Of another length, or cut, it is refused.
        assert_false(reef_zero_runs_unpack(out, bytes + 1, packed, used));
        if (used > 0) assert_false(reef_zero_runs_unpack(out, bytes, packed, used - 1));
        if (bytes > 0) assert_false(reef_zero_runs_unpack(out, bytes - 1, packed, used));
    }
    memset(in, 0, sizeof(in));
    assert_int_equal(reef_zero_runs_pack(packed, in, 1300), 10);
}

RUN_TESTS
