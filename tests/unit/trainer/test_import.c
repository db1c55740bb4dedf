// A generation that does not belong there, or is damaged, changes nothing in a pool.
#include "store_internal.h"
#include "transfer.h"

#include "damaged_record.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

static void refused(
    lifelong *f, reef_store *from, uint32_t generation, reef_status expected, const char *words) {
    reef_import import;
    const reef_commit before = last_commit(f);
    for (int dry = 0; dry < 2; dry++) {
        const reef_import_options options = {.dry_run = dry == 1, .as_sealed = true};
        reef_status status =
            reef_trainer_import(f->trainer, from, generation, &options, &import, &why);
        if (status != expected || strstr(why.message, words) == NULL)
            fail_msg("%s instead of %s, \"%s\": %s", reef_status_text(status),
                     reef_status_text(expected), words, why.message);
    }
    assert_int_equal(last_commit(f).number, before.number);
    assert_int_equal(f->trainer->network.generation_count, status_of(f).generation + 1);
}

// Generation 1 of the pool at `path`.
static void refused_at(lifelong *f, const char *path, reef_status expected, const char *words) {
    reef_store *from = pool_open(path, false, false);
    refused(f, from, 1, expected, words);
    reef_store_close(from);
}

#define FIXTURE_TEST(name) TEST_WITH(name, setup, teardown, pair *p)

FIXTURE_TEST(a_generation_of_another_pool_is_refused) {
    start(p);
    refused(p->b, p->a->store, 7, REEF_ERR_NOT_FOUND, "no generation 7");
    refused(p->b, p->a->store, 0, REEF_ERR_INVALID, "copy the whole pool");
    refused(p->b, p->a->store, 2, REEF_ERR_INVALID, "is open: seal it first");

    feed_kind(p->b, 2, 1000, 1); // it has trained
    commit(p->b);
    refused(p->b, p->a->store, 1, REEF_ERR_INVALID, "seal it first");
    close_pool(p->b);
    temp_dir_remove(p->b->pool);

    p->b->config = p->a->config;
    make_pool(p->b, 1);
    refused(p->b, p->a->store, 1, REEF_ERR_INVALID, "generation 0 of the pool is still open");
    learn(p->b, 4); // the same configuration, another backbone
    refused(p->b, p->a->store, 1, REEF_ERR_INVALID, "does not have: only pools that were one");
    close_pool(p->b);
    temp_dir_remove(p->b->pool);

    choose(&p->b->config, "topk", "3");
    make_pool(p->b, 1);
    learn(p->b, 0);
    refused(p->b, p->a->store, 1, REEF_ERR_INVALID, "topk 2, this one was made with 3");
}

FIXTURE_TEST(no_more_than_there_is_room_for) {
    p->a->config.experts_max = 2 * 3 * 36;
    start(p);
    learn(p->b, 2);
    refused(p->b, p->a->store, 1, REEF_ERR_FULL, "experts_max 216");
}

FIXTURE_TEST(only_what_is_sealed_is_extracted) {
    start(p);
    must_fail(reef_generation_extract(p->a->store, 2, p->other, &why), REEF_ERR_INVALID, "is open");
    assert_int_equal(reef_generation_extract(p->a->store, 7, p->other, &why), REEF_ERR_NOT_FOUND);
    assert_int_not_equal(access(p->other, F_OK), 0);
    assert_int_equal(reef_generation_extract(p->a->store, 1, p->one, &why), REEF_ERR_INVALID);
}

// A bit of one record of each kind; a record that is whole and of other content; and a file that
// ends early.
FIXTURE_TEST(what_is_damaged_is_refused) {
    static const reef_key keys[] = {
        {.db = REEF_DB_TENSORS, .generation = 1, .name = "delta_head"},
        {.db = REEF_DB_TENSORS, .generation = 1, .name = "delta_head"},
        {.db = REEF_DB_EXPERTS, .generation = 1, .layer = 1},
        {.db = REEF_DB_FLAGS, .generation = 1},
        {.db = REEF_DB_MEMORY, .generation = 1, .name = "header"},
        {.db = REEF_DB_GENERATIONS, .generation = 1},
        {.db = REEF_DB_META, .name = "config"},
    };
    start(p);
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
        extract(p->a, 1, p->other);
        record_damage(p->other, &keys[i]);
        refused_at(p->b, p->other, REEF_ERR_CORRUPT, "");
        temp_dir_remove(p->other);
    }
    static const uint8_t ones[36] = {1};
    reef_commit last = last_commit(p->a);
    extract(p->a, 1, p->other);
    reef_store *store = pool_open(p->other, false, true);
    reef_txn *txn = pool_begin(store, REEF_TXN_WRITE);
    must(reef_record_store(txn, &keys[3], REEF_BYTES, ones, sizeof(ones), &why));
    must(reef_txn_commit(txn, &last, &why));
    reef_store_close(store);
    refused_at(p->b, p->other, REEF_ERR_CORRUPT, "another root than it was sealed with");
    import_one(p->b, p->one); // as it is, it is taken
    assert_true(same_logits(p->a->store, "1", p->b->store, "1", 1));
}

// ---- disks --------------------------------------------------------------------------------------

FIXTURE_TEST(an_import_that_cannot_be_committed_changes_nothing) {
    reef_import import;
    struct rlimit limit, old;
    start(p);
    feed_kind(p->b, 2, 10, 1); // with what is left of before less than a batch: waits
    const reef_commit before = commit(p->b);
    const uint64_t carried = status_of(p->b).pending_bytes;
    assert_true(carried >= 10);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = old;
    limit.rlim_cur = 65536; // every write to the pool's file beyond it fails
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    reef_status status = import_of(p->b, p->one, NULL, &import, &why);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    if (status != REEF_ERR_IO && status != REEF_ERR_FULL)
        fail_msg("%s: %s", reef_status_text(status), why.message);
    assert_int_equal(status_of(p->b).generation, 1);
    assert_int_equal(p->b->trainer->unstored.event_count, 0);
    assert_memory_equal(commit(p->b).root, before.root, REEF_HASH_BYTES);
    assert_sound(p->b);
    import_one(p->b, p->one);
    assert_true(same_logits(p->a->store, "1", p->b->store, "1", 1));
    assert_int_equal(status_of(p->b).pending_bytes, carried);
}

RUN_TESTS
