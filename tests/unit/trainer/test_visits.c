// Kinds of text that come back learn more, and earlier states do not change.
#include "kind_heads.h"
#include "lifelong.h"
#include "reef_snapshot.h"
#include "test.h"
#include "trainer_internal.h"

enum { LONG = 14000, SHORT = 12000 }; // each long enough to be known by

// How far a kind had come in a state; 0: it never came back.
static uint64_t learned_as_of(const lifelong *f, const char *as_of, uint32_t kind) {
    reef_as_of state;
    reef_kind_heads heads;
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_as_of_find(&state, txn, as_of, &why));
    must(reef_kind_heads_read(&heads, txn, &state, &why));
    const reef_visit_entry *found = reef_kind_heads_find(&heads, kind);
    uint64_t learned = found == NULL ? 0 : found->learned;
    reef_kind_heads_release(&heads);
    reef_txn_abort(txn);
    return learned;
}

static const reef_kind_head *head_of(const lifelong *f, uint32_t kind) {
    for (size_t i = 0; i < f->trainer->kinds.head_count; i++)
        if (f->trainer->kinds.heads[i].visit.kind == kind) return &f->trainer->kinds.heads[i];
    return NULL;
}

static lifelong_mould two; // kinds 0 and 1 have been learned

// A pool of memories alone that has learned two kinds; the second one's generation is open.
static void begin_with_two(lifelong *f) {
    choose(&f->config, "net_share", "0");
    if (two.dir[0] != '\0') {
        lifelong_copy(f, &two, 1);
        return;
    }
    make_pool(f, 1);
    feed_kind(f, 0, LONG, 1);
    feed_kind(f, 1, LONG, 2);
    commit(f);
    lifelong_keep(f, &two);
}

static int discard_two(void **state) {
    lifelong_discard(&two);
    return 0;
}

// A new pool learns `bytes` in pieces; with `restarts` it is opened again after
// every other one, and at the end. Returns the last commit.
static reef_commit learn(
    lifelong *f, const uint8_t *bytes, size_t count, size_t threads, size_t piece, bool restarts) {
    make_pool(f, threads);
    for (size_t at = 0; at < count; at += piece) {
        feed(f, bytes + at, count - at < piece ? count - at : piece);
        if (!restarts || (at / piece % 2 == 0 && at + piece < count)) continue;
        commit(f);
        open_again(f, threads);
    }
    return commit(f);
}

// bits_as_of for kinds 0 to `count` - 1 of one model: to open it costs more than to ask it.
static void bits_of_kinds(const lifelong *f, const char *as_of, int count, double *bits) {
    uint8_t probe[LIFELONG_PROBE_BYTES];
    reef_model *model = model_of(f->store, as_of);
    for (int kind = 0; kind < count; kind++) {
        reef_score score = {0};
        lifelong_text(probe, sizeof(probe), kind, 99);
        must(reef_model_score(model, probe, sizeof(probe), NULL, &score, NULL, NULL, &why));
        bits[kind] = score.bits;
    }
    reef_model_close(model);
}

LIFELONG_TEST(states_stay_what_they_were) {
    reef_snapshot snapshot;
    reef_restoration done;
    begin_with_two(f);
    feed_kind(f, 0, SHORT, 3);
    must(reef_trainer_snapshot(f->trainer, "early", &snapshot, &why));
    double early = bits_as_of(f, "early", 0);
    feed_kind(f, 0, SHORT, 4);
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    double sealed = bits_as_of(f, "1", 0);
    assert_true(bits_as_of(f, "early", 0) == early);
    feed_kind(f, 2, 3 * LONG, 5); // what was sealed by command knows its own text late
    feed_kind(f, 0, 2 * SHORT, 6);
    commit(f);
    double now = bits_as_of(f, "now", 0);
    assert_true(learned_as_of(f, "early", 0) < learned_as_of(f, "1", 0));
    assert_true(learned_as_of(f, "1", 0) < learned_as_of(f, "now", 0));
    for (int i = 0; i < 2; i++) {
        assert_true(bits_as_of(f, "early", 0) == early);
        assert_true(bits_as_of(f, "1", 0) == sealed);
        assert_true(bits_as_of(f, "now", 0) == now);
        open_again(f, 2);
    }
    assert_sound(f);
    // Restored, it goes on as it went on then.
    close_trainer(f);
    must(reef_pool_restore_in_place(f->store, "early", false, &done, &why));
    reef_store_close(f->store);
    open_pool(f, 1);
    assert_true(bits_as_of(f, "now", 0) == early);
    feed_kind(f, 0, SHORT, 4);
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    assert_true(bits_as_of(f, "1", 0) == sealed);
    assert_sound(f);
}

typedef struct large_visit {
    reef_commit end;
    double sealed, now; // bits of kind 0
} large_visit;

// Kind 0 comes back for so long that its memory is large; then its holder is sealed, some bytes
// behind the last commit, and it comes back again.
static large_visit visit_for_long(lifelong *f, const char *name, size_t pieces, bool restarts) {
    enum { ALL = 144000 };
    large_visit out;
    temp_dir_join(f->pool, f->dir, name);
    make_pool(f, 1);
    feed_kind(f, 0, LONG, 1);
    feed_kind(f, 1, LONG, 2);
    uint8_t *text = room(ALL);
    lifelong_text(text, ALL, 0, 3);
    for (size_t i = 0; i < pieces; i++) {
        feed(f, text + ALL / pieces * i, ALL / pieces);
        if (i + 1 < pieces) commit(f);
        if (restarts && i % 2 == 0) must(reef_trainer_rest(f->trainer, &why));
        if (restarts && i % 3 == 0) open_again(f, 1);
    }
    assert_true(pieces == 1 || head_of(f, 0)->visit.memory.slices != NULL);
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    feed_kind(f, 2, 3 * LONG, 9);
    feed_kind(f, 0, SHORT, 10);
    out.end = commit(f);
    if (restarts) open_again(f, 1);
    out.sealed = bits_as_of(f, "1", 0);
    out.now = bits_as_of(f, "now", 0);
    assert_sound(f);
    close_pool(f);
    return out;
}

LIFELONG_TEST(a_long_visit_of_a_large_memory_is_stored_slice_by_slice) {
    choose(&f->config, "net_share", "0");
    const large_visit once = visit_for_long(f, "once", 1, false),
                      often = visit_for_long(f, "often", 16, false),
                      again = visit_for_long(f, "again", 12, true);
    assert_true(often.sealed == once.sealed && again.sealed == once.sealed);
    assert_true(often.now == once.now && again.now == once.now);
    assert_memory_equal(often.end.root, once.end.root, sizeof(once.end.root));
    assert_memory_equal(again.end.root, once.end.root, sizeof(once.end.root));
}

// Long visits are stored as tables, of which later generations hold what was learned since.
LIFELONG_TEST(a_long_visit_is_stored_as_tables) {
    begin_with_two(f);
    double bits[4];
    for (uint32_t i = 0; i < 3; i++) {
        feed_kind(f, 0, 24000, 3 + i);
        commit(f);
        bits[i] = bits_as_of(f, "now", 0);
    }
    const reef_generation_memory *m = &head_of(f, 0)->visit.memory;
    assert_true(m->checkpoint_bytes > LONG + 100);
    uint64_t tables = m->checkpoint_bytes;
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    assert_true(bits_as_of(f, "1", 0) == bits[2]);
    feed_kind(f, 2, LONG, 9);
    feed_kind(f, 0, SHORT, 10);
    commit(f);
    bits[3] = bits_as_of(f, "now", 0);
    assert_int_equal(head_of(f, 0)->visit.memory.checkpoint_bytes, tables);
    open_again(f, 1);
    assert_true(bits_as_of(f, "1", 0) == bits[2]);
    assert_true(bits_as_of(f, "now", 0) == bits[3]);
    feed_kind(f, 0, SHORT, 11);
    commit(f);
    assert_true(bits_as_of(f, "now", 0) != bits[3]);
    assert_sound(f);
}

// A reader that is reopened reads again what learned since, and takes over the rest.
LIFELONG_TEST(a_reader_that_is_reopened_hears_of_it) {
    reef_model *model = NULL;
    uint8_t probe[LIFELONG_PROBE_BYTES];
    const reef_model_options options = {.threads = 1};
    lifelong_text(probe, sizeof(probe), 0, 99);
    begin_with_two(f);
    for (uint32_t i = 0; i < 4; i++) {
        // Every other time nothing came back.
        feed_kind(f, i % 2 == 0 ? 0 : 1, SHORT, 3 + i);
        commit(f);
        reef_score score = {0};
        must(reef_model_reopen(&model, f->store, "now", &options, &why));
        must(reef_model_score(model, probe, sizeof(probe), NULL, &score, NULL, NULL, &why));
        assert_true(score.bits == bits_as_of(f, "now", 0));
    }
    reef_model_close(model);
}

LIFELONG_TEST(a_damaged_visit_is_named) {
    reef_txn *txn = NULL;
    reef_view view;
    reef_model *model = NULL;
    size_t lost_count;
    begin_with_two(f);
    feed_kind(f, 0, SHORT, 3);
    reef_commit last = commit(f);
    // Another tail than the one that leads to the chain, and a list that is cut.
    for (int i = 0; i < 2; i++) {
        const reef_key key = {
            .db = REEF_DB_VISITS, .generation = 1, .name = i == 0 ? "tail" : "kinds"};
        txn = pool_begin(f->store, REEF_TXN_WRITE);
        must(reef_record_view(txn, &key, &view, &why));
        uint8_t *bytes = room(view.bytes);
        size_t count = view.bytes - (i == 0 ? 0 : 1);
        memcpy(bytes, view.data, view.bytes);
        if (i == 0) bytes[20] ^= 1;
        must(reef_record_put(txn, &key, REEF_BYTES, bytes, count, &why));
        last.step++;
        must(reef_txn_commit(txn, &last, &why));
        must(reef_model_open(&model, f->store, "now", NULL, &why));
        const reef_lost_kind *lost = reef_model_lost_kinds(model, &lost_count);
        assert_int_equal(lost_count, 1);
        assert_int_equal(lost->kind, 0);
        assert_in_range(lost->whole_to, LONG - 64, LONG + 64);
        assert_non_null(strstr(lost->what, i == 0
                                               ? "is not what it is said to be"
                                               : "visits (generation 1, name kinds) is malformed"));
        reef_model_close(model);
        must(reef_model_open(&model, f->store, "0", NULL, &why));
        reef_model_close(model);
    }
}

LIFELONG_TEST(a_chain_that_is_no_hash_is_damage) {
    begin_with_two(f);
    feed_kind(f, 0, SHORT, 3);
    (void)commit(f);
    close_trainer(f);
    damage_hash_in_state(f->store, 1, "\"kinds\"");
    must_fail(reef_trainer_open(&f->trainer, f->store, NULL, &why), REEF_ERR_CORRUPT,
              "malformed kind");
}

// ---- turns --------------------------------------------------------------------------------------

// Kinds in turns, the first of each long enough to be known by. Four begin before one returns: in
// which order their memories are read then depends on restarts, and nothing else may.
enum { FIRST = 14000, TURN = 8000, TURNS_MAX = 12, TURNS_BYTES_MAX = 4 * FIRST + 8 * TURN };

static size_t turns(uint8_t *bytes, int turn_count, size_t turn) {
    static const int KINDS[TURNS_MAX] = {0, 1, 2, 3, 1, 0, 2, 0, 3, 1, 2, 0};
    size_t count = 0;
    for (int i = 0; i < turn_count; i++) {
        size_t size = i < 4 ? FIRST : turn;
        lifelong_text(bytes + count, size, KINDS[i], (uint32_t)i + 1);
        count += size;
    }
    return count;
}

static reef_commit run_turns(lifelong *f,
                             const char *name,
                             int turn_count,
                             size_t turn,
                             size_t threads,
                             size_t piece,
                             bool restarts) {
    uint8_t *bytes = room(TURNS_BYTES_MAX);
    size_t count = turns(bytes, turn_count, turn);
    temp_dir_join(f->pool, f->dir, name);
    return learn(f, bytes, count, threads, piece, restarts);
}

LIFELONG_TEST(contexts_tell_kinds_apart_and_know_them_again) {
    static const char *const SHARES[] = {"0", "1"}; // of both there is a run below
    for (size_t i = 0; i < 2; i++) {
        // Beside a net, which takes long, until each has come back.
        int turn_count = i == 0 ? TURNS_MAX : 8;
        size_t visits = i == 0 ? 7 : 4;
        choose(&f->config, "net_share", SHARES[i]);
        (void)run_turns(f, SHARES[i], turn_count, TURN, 1, TURNS_BYTES_MAX, false);
        reef_trainer_status status = status_of(f);
        assert_int_equal(status.generation, 3);
        assert_int_equal(status.not_learned_bytes, 0);
        // What of it is another's is less than a piece at each end of a turn.
        assert_in_range(status.visited_bytes, visits * (TURN - 4096), visits * (TURN + 4096));
        for (uint32_t kind = 0; kind < 3; kind++) {
            assert_in_range(generation_of(f, kind).sealed_at, FIRST - 2048, 4 * FIRST + 4 * TURN);
            assert_true(learned_as_of(f, "now", kind) > FIRST);
        }
        for (int kind = 0; kind < 4; kind++)
            assert_true(bits_as_of(f, "now", kind) < 0.2 * 8 * LIFELONG_PROBE_BYTES);
        assert_sound(f);
        close_pool(f);
    }
}

// The history of the loss, in one number.
typedef struct history {
    uint64_t points;
    double bits;
    bool in_order;
} history;

static reef_status add_point(void *context, const reef_point *point, reef_error *err) {
    history *sum = context;
    // One for each batch, in their order. A kind that came back has made its step already.
    sum->in_order &= point->step == sum->points || point->step == sum->points + 1;
    sum->points++;
    sum->in_order &= point->stream_bytes == sum->points * LIFELONG_BATCH;
    sum->bits = 0.5 * sum->bits + (double)point->bits_per_byte;
    return REEF_OK;
}

static history history_of(const lifelong *f) {
    history out = {.in_order = true};
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_series_scan(txn, add_point, &out, &why));
    reef_txn_abort(txn);
    assert_true(out.in_order);
    return out;
}

LIFELONG_TEST(nor_do_they_where_contexts_decide) {
    static const char *const SHARES[] = {"0", "0.3"};
    static const struct {
        size_t threads, piece;
        bool restarts;
    } WAYS[] = {{1, TURNS_BYTES_MAX, false}, {3, 4150, true}};
    for (size_t s = 0; s < 2; s++) {
        reef_commit first = {0};
        history past = {0};
        double bits[4];
        choose(&f->config, "net_share", SHARES[s]);
        for (size_t i = 0; i < sizeof(WAYS) / sizeof(*WAYS); i++) {
            char name[32];
            snprintf(name, sizeof(name), "share-%s-%zu", SHARES[s], i);
            // Nine turns: each kind has come back.
            reef_commit end =
                run_turns(f, name, 9, 6000, WAYS[i].threads, WAYS[i].piece, WAYS[i].restarts);
            if (i == 0) {
                first = end;
                past = history_of(f);
            }
            assert_memory_equal(end.root, first.root, sizeof(first.root));
            assert_int_equal(status_of(f).generation, 3);
            history found = history_of(f);
            assert_int_equal(found.points, f->trainer->step);
            assert_int_equal(found.points, past.points);
            assert_true(found.bits == past.bits);
            double now[4];
            bits_of_kinds(f, "now", 4, now);
            if (i == 0) memcpy(bits, now, sizeof(now));
            assert_memory_equal(now, bits, sizeof(now));
            assert_sound(f);
            close_pool(f);
        }
    }
}

LIFELONG_TEST(text_within_a_kind_begins_none) {
    choose(&f->config, "net_share", "0");
    make_pool(f, 1);
    // Much of it, and a passage of another kind that is too short to be one.
    for (uint32_t i = 0; i < 8; i++) feed_kind(f, 0, LONG, i);
    feed_kind(f, 1, 2000, 1);
    for (uint32_t i = 8; i < 12; i++) feed_kind(f, 0, LONG, i);
    assert_int_equal(status_of(f).generation, 0);
    assert_int_equal(status_of(f).visited_bytes, 0);
    // What is not too short is one.
    feed_kind(f, 2, 3 * LONG, 2);
    assert_int_equal(status_of(f).generation, 1);
}

// Of 530 pieces a hundredth are five. It has learned 40, and the others are counted.
LIFELONG_TEST(the_more_a_kind_has_learned_the_longer_others_may_be) {
    choose(&f->config, "net_share", "0");
    make_pool(f, 1);
    for (uint32_t i = 0; i < 6; i++) feed_kind(f, 0, LONG, i);
    f->trainer->kinds.levels[0].pieces = 530;
    feed_kind(f, 1, 3 * 2048, 1);
    feed_kind(f, 0, LONG, 33);
    assert_int_equal(status_of(f).generation, 0);
    feed_kind(f, 2, 3 * LONG, 2);
    assert_int_equal(status_of(f).generation, 1);
}

LIFELONG_TEST(marker_lines_and_seals_end_what_is_held) {
    choose(&f->config, "net_share", "0");
    choose(&f->config, "boundary_mark", "----");
    make_pool(f, 1);
    feed_kind(f, 0, LONG, 1);
    feed_kind(f, 1, 1500, 1); // not clear yet
    feed(f, (const uint8_t *)"\n----\n", 6);
    feed_kind(f, 1, 100, 2);
    reef_trainer_status status = status_of(f);
    assert_int_equal(status.generation, 1);
    assert_true(status.not_learned_bytes < LIFELONG_BATCH + 8);
    feed_kind(f, 1, LONG, 3);
    feed_kind(f, 0, 3000, 4);
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
    assert_int_equal(status_of(f).generation, 2);
    feed_kind(f, 0, LONG, 5);
    assert_sound(f);
}

LIFELONG_TEST(contexts_need_memories) {
    choose(&f->config, "net_share", "1");
    choose(&f->config, "memory", "0");
    must_fail(reef_pool_init(f->pool, &f->config, &why), REEF_ERR_INVALID,
              "boundaries contexts are found by context memories");
}

RUN_TESTS_IN(NULL, discard_two)
