// What a pool may take: room for memories and pool_max change no bit, kinds_max stops new kinds.
#include "lifelong_restore.h"
#include "reef_kinds.h"
#include "test.h"
#include "trainer_internal.h"

enum { LONG = 20000, VISIT = 50000, KINDS = 4 };

// Opens it again with bounds. A room of 0 is the pool's budget.
static void bound(lifelong *f, uint64_t room, uint64_t pool_max) {
    const reef_trainer_options options = {
        .threads = 1, .pool_max = pool_max, .on_event = lifelong_on_event, .context = f};
    reef_trainer_close(f->trainer);
    must(reef_trainer_open(&f->trainer, f->store, &options, &why));
    assert_true(f->trainer->kinds.room >= f->config.memory);
    f->trainer->kinds.room = room > 0 ? room : f->config.memory;
}

// A commit after each so many bytes: then all that was learned is stored, and may be given up while
// pieces are held.
static void feed_and_commit(lifelong *f, int kind, uint32_t seed, size_t each) {
    uint8_t bytes[VISIT];
    lifelong_text(bytes, sizeof(bytes), kind, seed);
    for (size_t at = 0; at < sizeof(bytes); at += each) {
        feed(f, bytes + at, sizeof(bytes) - at < each ? sizeof(bytes) - at : each);
        commit(f);
    }
}

// All kinds come back while each later one's generation is open. Returns the last commit.
static reef_commit learn(lifelong *f, const char *name, uint64_t room, uint64_t pool_max) {
    temp_dir_join(f->pool, f->dir, name);
    f->said[0] = '\0';
    make_pool(f, 1);
    bound(f, room, pool_max);
    for (int kind = 0; kind < KINDS; kind++) {
        feed_kind(f, kind, LONG, (uint32_t)kind + 1);
        for (int back = 0; back < kind; back++)
            feed_and_commit(f, back, (uint32_t)(10 * kind + back), room == 1 ? 3000 : VISIT);
    }
    return commit(f);
}

KINDS_TEST(bounds_change_no_bit) {
    double bits[KINDS];
    reef_commit free_of_bounds = learn(f, "free", UINT64_MAX, 0);
    assert_null(strstr(f->said, "\"event\": \"prune\""));
    for (int kind = 0; kind < KINDS; kind++) bits[kind] = bits_as_of(f, "now", kind);
    close_pool(f);
    static const struct {
        const char *name;
        uint64_t room; // 1: memories are read as often as can be
        uint64_t pool_max;
    } BOUNDS[] = {{"few", 1, 0}, {"budget", 0, 0}, {"small", UINT64_MAX, 1}, {"both", 1, 4 << 20}};
    for (size_t i = 0; i < sizeof(BOUNDS) / sizeof(*BOUNDS); i++) {
        reef_commit bounded = learn(f, BOUNDS[i].name, BOUNDS[i].room, BOUNDS[i].pool_max);
        assert_memory_equal(bounded.root, free_of_bounds.root, sizeof(bounded.root));
        for (int kind = 0; kind < KINDS; kind++)
            assert_true(bits_as_of(f, "now", kind) == bits[kind]);
        bool prunes = BOUNDS[i].pool_max > 0;
        assert_true((strstr(f->said, "\"event\": \"prune\"") != NULL) == prunes);
        assert_sound(f);
        close_pool(f);
    }
}

static size_t count_events(const lifelong *f, const char *event) {
    size_t count = 0;
    for (const char *at = f->said; (at = strstr(at, event)) != NULL; at++) count++;
    return count;
}

// What cannot go is said once, and snapshots are not touched.
KINDS_TEST(what_is_needed_is_more_than_the_bound) {
    learn(f, "over", 0, 0);
    take(f, "kept");
    double bits = bits_as_of(f, "kept", 0);
    bound(f, 0, 1);
    for (uint32_t i = 0; i < 3; i++) {
        feed_kind(f, 1, LONG, 50 + i);
        commit(f);
    }
    assert_int_equal(count_events(f, "\"event\": \"over\""), 1);
    assert_true(bits_as_of(f, "kept", 0) == bits);
    // Said again where the bound is another one.
    reef_trainer_set_pool_max(f->trainer, 2);
    commit(f);
    assert_int_equal(count_events(f, "\"event\": \"over\""), 2);
    reef_trainer_set_pool_max(f->trainer, 0);
    feed_kind(f, 1, LONG, 60);
    commit(f);
    assert_int_equal(count_events(f, "\"event\": \"over\""), 2);
    assert_sound(f);
}

// Memories of older kinds that are in memory, and their bytes with those of the open one.
static size_t count_held(const lifelong *f, uint64_t *bytes) {
    const reef_trainer_kinds *kinds = &f->trainer->kinds;
    size_t count = 0;
    *bytes = reef_memory_bytes(reef_open_generation(f->trainer)->memory.memory);
    for (size_t i = 0; i < kinds->head_count; i++) {
        const reef_memory *memory = kinds->heads[i].visit.memory.memory;
        if (memory == NULL) continue;
        count++;
        *bytes += reef_memory_bytes(memory);
    }
    return count;
}

// All older kinds come back, with room for `room` bytes of memories. Returns how many were
// held at most.
static size_t hold(lifelong *f, uint64_t room, uint32_t seed) {
    uint8_t text[VISIT / 10];
    uint64_t bytes;
    size_t held = 0, most = 0;
    bound(f, room, 0);
    for (int kind = 0; kind < KINDS; kind++) {
        lifelong_text(text, sizeof(text), kind, seed);
        for (size_t at = 0; at < sizeof(text); at += 1000) {
            size_t before = held;
            feed(f, text + at, 1000);
            commit(f);
            held = count_held(f, &bytes);
            assert_true(held <= 2 || bytes <= room);
            assert_true(held >= before || held >= 2);
            assert_true(held >= before || room < UINT32_MAX); // none goes while there is room
            if (held > most) most = held;
        }
    }
    return most;
}

KINDS_TEST(memories_are_held_while_there_is_room) {
    uint64_t bytes;
    choose(&f->config, "kinds_max", "5"); // the last one stays open
    make_pool(f, 1);
    for (int kind = 0; kind <= KINDS; kind++) feed_kind(f, kind, LONG, (uint32_t)kind + 1);
    commit(f);
    assert_int_equal(hold(f, UINT64_C(1) << 40, 11), KINDS);
    assert_int_equal(count_held(f, &bytes), KINDS);
    assert_int_equal(hold(f, bytes - 1, 12), KINDS - 1);
    assert_int_equal(hold(f, 1, 13), 2); // a boundary needs both
}

// The last one that began takes what is strange, and the others stay as they are.
KINDS_TEST(beyond_kinds_max_no_kind_begins) {
    choose(&f->config, "kinds_max", "3");
    make_pool(f, 1);
    for (int kind = 0; kind < 5; kind++) feed_kind(f, kind, LONG, (uint32_t)kind + 1);
    feed_kind(f, 0, LONG, 10);
    feed_kind(f, 3, LONG, 11);
    commit(f);
    assert_int_equal(status_of(f).generation, 2);
    assert_int_equal(count_events(f, "\"event\": \"full\""), 1);
    assert_non_null(strstr(f->said, "\"kinds\": 3, \"kinds_max\": 3"));
    reef_kind_list list = kinds_of(f->store);
    assert_int_equal(list.count, 3);
    assert_in_range(list.kinds[0].learned_bytes, 2 * LONG - 4096, 2 * LONG + 4096);
    assert_in_range(list.kinds[1].learned_bytes, LONG - 4096, LONG + 4096);
    assert_in_range(list.kinds[2].learned_bytes, 4 * LONG - 8192, 4 * LONG + 4096);
    must_fail(reef_trainer_seal(f->trainer, NULL, NULL, &why), REEF_ERR_FULL,
              "the pool has 3 kinds and was made for kinds_max 3");
    assert_sound(f);
}

RUN_TESTS
