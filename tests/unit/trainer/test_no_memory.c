// Memory that runs out while a trainer learns: every allocation fails once. What comes after is
// either as if nothing had happened, or refused until the pool is opened again, and then as if
// nothing had happened.
#include "lifelong.h"
#include "test.h"
#include "trainer_internal.h"

// ---- allocations that fail ----------------------------------------------------------------------

enum { PLACES_MAX = 512 };

// Where memory is asked for, told by its caller, and the first and the last time.
typedef struct place {
    const void *caller;
    size_t first, last;
} place;

static place places[PLACES_MAX];
static size_t place_count, allocations,
    failing; // failing: number of the allocation that does, from 1; 0: none
static bool counting, failed;

static void note_place(const void *caller) {
    size_t i = 0;
    while (i < place_count && places[i].caller != caller) i++;
    if (i == place_count) {
        if (place_count == PLACES_MAX) abort();
        places[place_count++] = (place){.caller = caller, .first = allocations};
    }
    places[i].last = allocations;
}

static bool fails(const void *caller) {
    if (!counting) return false;
    allocations++;
    if (failing == 0) note_place(caller);
    failed = failed || allocations == failing;
    return allocations == failing;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);

void *__wrap_malloc(size_t bytes) {
    return fails(__builtin_return_address(0)) ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes) {
    return fails(__builtin_return_address(0)) ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *old, size_t bytes) {
    return fails(__builtin_return_address(0)) ? NULL : __real_realloc(old, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
    return fails(__builtin_return_address(0)) ? NULL : __real_aligned_alloc(alignment, bytes);
}

// From now on allocation number `number` fails; with 0 none does, and call sites are noted.
static void count_from_here(size_t number) {
    if (number == 0) place_count = 0;
    allocations = 0;
    failing = number;
    failed = false;
    counting = true;
}

// ---- a stream -----------------------------------------------------------------------------------

// A pool with a commit, and what it reads next.
typedef struct world {
    lifelong *f;
    char base[TEMP_DIR_BYTES];
    const uint8_t *bytes;
    size_t count;
    uint8_t root[sizeof((reef_commit *)NULL)->root]; // after all of it
} world;

// Read on where the source was left.
static reef_status read_on(const world *w) {
    uint64_t at = reef_trainer_cursor(w->f->trainer, "next");
    return reef_trainer_feed(w->f->trainer, "next", w->bytes + at, w->count - at, NULL, NULL, &why);
}

static void copy_base(world *w) {
    reef_store *base = pool_open(w->base, false, false);
    must(reef_store_copy(base, w->f->pool, NULL, &why));
    reef_store_close(base);
    open_pool(w->f, 1);
}

static void expect_root(world *w) {
    reef_commit now = commit(w->f);
    assert_memory_equal(now.root, w->root, sizeof(now.root));
    remove_pool(w->f);
}

static void fail_one(world *w, size_t number) {
    copy_base(w);
    count_from_here(number);
    reef_status status = read_on(w);
    counting = false;
    assert_true(failed);
    if (status != REEF_OK) {
        assert_int_equal(status, REEF_ERR_NO_MEMORY);
        status = read_on(w);
    }
    if (status != REEF_OK) { // it says so, and keeps nothing
        must_fail(status, REEF_ERR_NO_MEMORY, "close the pool and open it again");
        assert_int_equal(reef_trainer_commit(w->f->trainer, NULL, &why), REEF_ERR_NO_MEMORY);
        assert_int_equal(reef_trainer_seal(w->f->trainer, NULL, NULL, &why), REEF_ERR_NO_MEMORY);
        open_again(w->f, 1);
        must(read_on(w));
    }
    expect_root(w);
}

// The trainer's last commit is where every try begins.
static void fail_everywhere(lifelong *f, const uint8_t *bytes, size_t count) {
    world w = {.f = f, .bytes = bytes, .count = count};
    close_pool(f);
    temp_dir_join(w.base, f->dir, "base");
    assert_int_equal(rename(f->pool, w.base), 0);
    copy_base(&w);
    count_from_here(0);
    must(read_on(&w));
    counting = false;
    reef_commit whole = commit(f);
    memcpy(w.root, whole.root, sizeof(w.root));
    expect_root(&w);
    assert_true(place_count > 5);
    for (size_t i = 0; i < place_count; i++) {
        fail_one(&w, places[i].first);
        if (places[i].last != places[i].first) fail_one(&w, places[i].last);
    }
}

LIFELONG_TEST(a_language_model_goes_on_exactly_or_not_at_all) {
    enum { OLD = 640, MARK = 4, NEW = 2560 };
    uint8_t bytes[OLD + MARK + NEW];
    give_boundaries(f); // at a marker line, since a change that is found takes kilobytes
    choose(&f->config, "boundary_mark", "==");
    make_pool(f, 1);
    feed_kind(f, 0, 1600, 1);
    commit(f);
    lifelong_text(bytes, OLD, 0, 2);
    memcpy(bytes + OLD, "\n==\n", MARK);
    lifelong_text(bytes + OLD + MARK, NEW, 1, 3);
    fail_everywhere(f, bytes, sizeof(bytes));
    assert_true(times_said(f, "\"event\": \"open\"") > 0); // a boundary
}

// What a pass has for a generation is there as a whole or not at all.
LIFELONG_TEST(a_pass_that_could_not_be_prepared_is_prepared_again) {
    make_pool(f, 1);
    reef_activations *pass = &f->trainer->net.acts;
    const reef_generation *generation = reef_open_generation(f->trainer);
    must(reef_activations_prepare_generation(pass, generation, 0, &why));
    for (size_t n = 1;; n++) {
        reef_activations_forget_generation(pass, 0);
        count_from_here(n);
        reef_status status = reef_activations_prepare_generation(pass, generation, 0, &why);
        counting = false;
        if (!failed) break;
        assert_int_equal(status, REEF_ERR_NO_MEMORY);
        must(reef_activations_prepare_generation(pass, generation, 0, &why));
        assert_non_null(pass->pairs.sorted);
        assert_int_equal(pass->pairs.expert_count, generation->info.side * generation->info.side);
    }
}

RUN_TESTS
