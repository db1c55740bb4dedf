// The journal of pushed bytes: acknowledged batches stay until they are trained, come back in
// order, and are recognised by their id when they are sent again.
#include "journal.h"
#include "reef_byte_order.h"
#include "reef_fail_point.h"
#include "reef_pool_check.h"
#include "reef_push_journal.h"
#include "reef_store.h"

#include <signal.h>
#include <sys/wait.h>

#include "pool.h"
#include "test.h"

#define SOURCE "push:web"
#define LOTS (UINT64_C(1) << 40)

static reef_journal_batch batch_of(const char *id, const void *bytes, size_t count) {
    return (reef_journal_batch){.source = SOURCE,
                                .bytes_max = LOTS,
                                .bytes = bytes,
                                .count = count,
                                .id = id,
                                .unix_ms = 7};
}

static void append(reef_store *store, reef_journal_batch *batches, size_t count) {
    must(reef_journal_append(store, batches, count, NULL, &why));
}

static void accepted(const reef_journal_batch *batch) {
    why = batch->error;
    must(why.status);
}

static void refused(const reef_journal_batch *batch, reef_status status, const char *part) {
    why = batch->error;
    must_fail(why.status, status, part);
}

/** Append text, which must be accepted; the position after it. */
static uint64_t push(reef_store *store, const char *id, const char *text) {
    reef_journal_batch batch = batch_of(id, text, strlen(text));
    append(store, &batch, 1);
    accepted(&batch);
    assert_false(batch.duplicate);
    return batch.position;
}

static bool is_duplicate(reef_store *store, const char *id, const char *text, uint64_t *position) {
    reef_journal_batch batch = batch_of(id, text, strlen(text));
    append(store, &batch, 1);
    accepted(&batch);
    if (position != NULL) *position = batch.position;
    return batch.duplicate;
}

static void trim(reef_store *store, uint64_t cursor) {
    reef_txn *txn = pool_begin(store, REEF_TXN_WRITE);
    must(reef_journal_trim(txn, SOURCE, cursor, &why));
    pool_commit(txn, 1);
}

// A snapshot of a state that stands at `cursor`, whose copies have this number.
static reef_snapshot keep_state(reef_store *store, uint32_t copy, uint64_t cursor) {
    trim(store, cursor);
    reef_txn *txn = pool_begin(store, REEF_TXN_WRITE);
    must(reef_journal_ids_keep(txn, SOURCE, copy, &why));
    pool_commit(txn, 1);
    return (reef_snapshot){.copy = copy, .stream_bytes = cursor};
}

static void go_back(reef_store *store, const reef_snapshot *to) {
    reef_txn *txn = pool_begin(store, REEF_TXN_WRITE);
    must(reef_journal_move(txn, SOURCE, to, to->stream_bytes, &why));
    pool_commit(txn, 1);
}

static reef_journal_stat survey(reef_store *store) {
    reef_journal_stat stat;
    reef_txn *txn = pool_begin(store, REEF_TXN_READ);
    must(reef_journal_survey(txn, SOURCE, &stat, &why));
    reef_txn_abort(txn);
    return stat;
}

/** What waits from `position` on is exactly this text. */
static void assert_waits(reef_store *store, uint64_t position, const char *text) {
    uint8_t bytes[256];
    size_t count;
    must(reef_journal_read(store, SOURCE, position, bytes, sizeof(bytes), &count, &why));
    assert_int_equal(count, strlen(text));
    assert_memory_equal(bytes, text, count);
}

// ---- what comes back ----------------------------------------------------------------------------

POOL_TEST(an_empty_journal_has_nothing_at_any_position) {
    assert_waits(f->store, 0, "");
    assert_waits(f->store, 12345, "");
    reef_journal_stat stat = survey(f->store);
    assert_int_equal(stat.entries_known, 0);
    pool_check(f->store);
}

POOL_TEST(an_empty_journal_begins_where_the_trainer_stands) {
    reef_journal_batch batch = batch_of(NULL, "later\n", 6);
    batch.cursor = 1000;
    append(f->store, &batch, 1);
    assert_int_equal(batch.position, 1006);
    assert_waits(f->store, 1000, "later\n");
    assert_waits(f->store, 1006, "");
}

// Batches of any size, also several in one transaction, read in pieces of any size, trimmed now and
// then and opened again: the same bytes as in a plain array.
#define WALK_BYTES 300000
POOL_TEST(a_long_walk_gives_every_byte_once_and_in_order) {
    static uint8_t all[WALK_BYTES], got[WALK_BYTES];
    uint64_t seed = 11, cursor = 0;
    size_t written = 0;
    fill(all, sizeof(all), 5);
    while (cursor < WALK_BYTES) {
        reef_journal_batch batches[3];
        size_t count = draw_bits(&seed) % 4;
        for (size_t i = 0; i < count; i++) {
            size_t room = WALK_BYTES - written, bytes = 1 + draw_bits(&seed) % 9000;
            if (bytes > room) bytes = room;
            if (bytes == 0) {
                count = i;
                break;
            }
            batches[i] = batch_of(NULL, all + written, bytes);
            written += bytes;
        }
        append(f->store, batches, count);
        for (size_t i = 0; i < count; i++) accepted(&batches[i]);
        if (count > 0) assert_int_equal(batches[count - 1].position, written);

        size_t read, room = 1 + draw_bits(&seed) % 12000;
        if (room > WALK_BYTES - cursor) room = (size_t)(WALK_BYTES - cursor);
        must(reef_journal_read(f->store, SOURCE, cursor, got + cursor, room, &read, &why));
        assert_int_equal(read, written - cursor < room ? written - cursor : room);
        cursor += read;
        if (draw_bits(&seed) % 3 == 0) trim(f->store, cursor);
        if (draw_bits(&seed) % 8 == 0) pool_reopen(f);
        if (draw_bits(&seed) % 8 == 0) pool_check(f->store);
    }
    assert_memory_equal(all, got, WALK_BYTES);
    trim(f->store, cursor);
    assert_int_equal(survey(f->store).entries, 0);
    assert_int_equal(survey(f->store).end, WALK_BYTES);
    pool_check(f->store);
}

POOL_TEST(sources_are_apart) {
    uint8_t bytes[64];
    size_t count;
    reef_journal_batch batches[] = {batch_of("1", "one", 3), batch_of("1", "other", 5),
                                    batch_of("2", "two", 3)};
    batches[1].source = "push:we"; // a beginning of the other one's name
    append(f->store, batches, 3);
    for (size_t i = 0; i < 3; i++) assert_false(batches[i].duplicate);
    assert_int_equal(batches[1].position, 5);
    assert_int_equal(batches[2].position, 6);
    assert_waits(f->store, 0, "onetwo");
    must(reef_journal_read(f->store, "push:we", 0, bytes, sizeof(bytes), &count, &why));
    assert_int_equal(count, 5);
    trim(f->store, 6);
    must(reef_journal_read(f->store, "push:we", 2, bytes, sizeof(bytes), &count, &why));
    assert_memory_equal(bytes, "her", 3);
    pool_check(f->store);
}

// A live source of another kind has its position under sequence 0.
POOL_TEST(sequence_0_is_no_entry) {
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_put(txn, &(reef_key){.db = REEF_DB_JOURNAL, .name = SOURCE}, "{}", 2);
    pool_put(txn, &(reef_key){.db = REEF_DB_JOURNAL, .name = "follow:/var/log"}, "{}", 2);
    pool_commit(txn, 1);
    assert_int_equal(push(f->store, NULL, "abc"), 3);
    assert_waits(f->store, 1, "bc");
    trim(f->store, 3);
    pool_check(f->store);
}

POOL_TEST(the_root_hash_is_not_changed) {
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_open_generation(txn, 0);
    reef_commit before = pool_commit(txn, 3), after;
    reef_journal_batch batch = batch_of("a", "abc", 3);
    must(reef_journal_append(f->store, &batch, 1, &after, &why));
    assert_int_equal(after.number, before.number + 1);
    assert_int_equal(after.step, before.step);
    assert_int_equal(after.stream_bytes, before.stream_bytes);
    assert_memory_equal(after.root, before.root, REEF_HASH_BYTES);
    pool_check(f->store);
}

// ---- ids ----------------------------------------------------------------------------------------

POOL_TEST(a_batch_sent_again_is_written_once) {
    uint64_t position;
    reef_commit commit = {.number = 77};
    assert_int_equal(push(f->store, "a", "first\n"), 6);
    assert_int_equal(push(f->store, "b", "second\n"), 13);
    assert_true(is_duplicate(f->store, "a", "first\n", &position));
    assert_int_equal(position, 6);
    assert_waits(f->store, 0, "first\nsecond\n");
    // and nothing was committed for it
    reef_journal_batch again = batch_of("b", "second\n", 7);
    must(reef_journal_append(f->store, &again, 1, &commit, &why));
    assert_true(again.duplicate);
    assert_int_equal(commit.number, 77);
}

POOL_TEST(ids_outlive_training_and_restarts) {
    push(f->store, "a", "first\n");
    push(f->store, "b", "second\n");
    trim(f->store, 13);
    assert_waits(f->store, 13, "");
    pool_reopen(f);
    uint64_t position;
    assert_true(is_duplicate(f->store, "a", "first\n", &position));
    assert_int_equal(position, 6);
    assert_int_equal(push(f->store, "c", "third\n"), 19);
    assert_waits(f->store, 13, "third\n");
    pool_check(f->store);
}

POOL_TEST(a_batch_twice_in_one_group_is_written_once) {
    reef_journal_batch batches[] = {batch_of("a", "abc", 3), batch_of("a", "abc", 3),
                                    batch_of("b", "abc", 3)};
    append(f->store, batches, 3);
    assert_false(batches[0].duplicate);
    assert_true(batches[1].duplicate);
    assert_false(batches[2].duplicate);
    assert_int_equal(batches[1].position, 3);
    assert_waits(f->store, 0, "abcabc");
}

POOL_TEST(an_id_of_other_bytes_is_refused) {
    push(f->store, "a", "first\n");
    reef_journal_batch batches[] = {batch_of("a", "other\n", 6), batch_of("a", "first\nmore\n", 11),
                                    batch_of("b", "first\n", 6)};
    append(f->store, batches, 3);
    refused(&batches[0], REEF_ERR_INVALID, "other bytes");
    refused(&batches[1], REEF_ERR_INVALID, "other bytes");
    accepted(&batches[2]);
    assert_waits(f->store, 0, "first\nfirst\n");
}

POOL_TEST(batches_without_an_id_are_never_duplicates) {
    push(f->store, NULL, "x");
    push(f->store, NULL, "x");
    push(f->store, "", "x");
    assert_waits(f->store, 0, "xxx");
}

POOL_TEST(the_last_1024_ids_are_known_and_no_more) {
    static reef_journal_batch batches[REEF_JOURNAL_IDS_MAX + 10];
    static char ids[REEF_JOURNAL_IDS_MAX + 10][16];
    size_t count = sizeof(batches) / sizeof(*batches);
    for (size_t i = 0; i < count; i++) {
        snprintf(ids[i], sizeof(ids[i]), "%zu", i);
        batches[i] = batch_of(ids[i], "ab", 2);
    }
    append(f->store, batches, count);
    uint64_t end = batches[count - 1].position;
    assert_int_equal(end, 2 * count);
    for (int trimmed = 0; trimmed < 2; trimmed++) {
        assert_true(is_duplicate(f->store, ids[10], "ab", NULL));
        assert_true(is_duplicate(f->store, ids[count - 1], "ab", NULL));
        trim(f->store, end);
        assert_int_equal(survey(f->store).entries_known, REEF_JOURNAL_IDS_MAX);
        pool_check(f->store);
    }
    assert_false(is_duplicate(f->store, ids[9], "ab", NULL));
    assert_false(is_duplicate(f->store, ids[10], "ab", NULL)); // one more came since
    assert_true(is_duplicate(f->store, ids[12], "ab", NULL));
    // Also where the one that is too many comes in the same group.
    reef_journal_batch group[] = {batch_of("new", "ab", 2), batch_of(ids[12], "ab", 2)};
    append(f->store, group, 2);
    assert_false(group[0].duplicate);
    assert_false(group[1].duplicate);
}

// ---- bounds -------------------------------------------------------------------------------------

POOL_TEST(what_is_too_much_is_refused_alone) {
    static uint8_t large[REEF_JOURNAL_BATCH_BYTES_MAX + 1];
    char id[REEF_JOURNAL_ID_BYTES_MAX + 2];
    memset(id, 'i', sizeof(id) - 1);
    id[sizeof(id) - 1] = 0;
    reef_journal_batch batches[] = {batch_of(NULL, large, sizeof(large)),
                                    batch_of(NULL, "", 0),
                                    batch_of(id, "abc", 3),
                                    batch_of(id + 1, large, sizeof(large) - 1),
                                    batch_of(NULL, "abc", 3),
                                    batch_of(NULL, "abc", 3),
                                    batch_of(NULL, "abc", 3)};
    batches[4].source = "web";
    batches[5].source = "push:";
    batches[6].bytes_max = 10;
    append(f->store, batches, 7);
    refused(&batches[0], REEF_ERR_INVALID, "send several");
    refused(&batches[1], REEF_ERR_INVALID, "empty");
    refused(&batches[2], REEF_ERR_INVALID, "129 bytes");
    accepted(&batches[3]);
    refused(&batches[4], REEF_ERR_INVALID, "not a name");
    refused(&batches[5], REEF_ERR_INVALID, "not a name");
    refused(&batches[6], REEF_ERR_INVALID, "may hold");
    assert_int_equal(batches[3].position, sizeof(large) - 1);
    pool_check(f->store);
}

POOL_TEST(a_full_journal_is_busy_until_training_has_taken_some) {
    uint8_t bytes[1000] = {1};
    reef_journal_batch batches[4];
    for (size_t i = 0; i < 4; i++) {
        batches[i] = batch_of(NULL, bytes, sizeof(bytes));
        batches[i].bytes_max = 3 * (1000 + REEF_JOURNAL_ENTRY_BYTES);
    }
    append(f->store, batches, 4);
    for (size_t i = 0; i < 3; i++) accepted(&batches[i]);
    refused(&batches[3], REEF_ERR_BUSY, "3000 bytes");
    trim(f->store, 999); // not one of them wholly
    append(f->store, batches + 3, 1);
    refused(&batches[3], REEF_ERR_BUSY, "3000 bytes");
    trim(f->store, 1000);
    append(f->store, batches + 3, 1);
    accepted(&batches[3]);
    assert_int_equal(batches[3].position, 4000);
    append(f->store, batches + 3, 1);
    assert_int_equal(batches[3].error.status, REEF_ERR_BUSY);
}

POOL_TEST(a_small_batch_does_not_overtake_one_that_was_refused) {
    uint8_t bytes[1000] = {1};
    reef_journal_batch batches[4];
    for (size_t i = 0; i < 4; i++) {
        batches[i] = batch_of(NULL, bytes, i < 2 ? sizeof(bytes) : 1);
        batches[i].bytes_max = 2000 + REEF_JOURNAL_ENTRY_BYTES;
    }
    batches[3].source = REEF_PUSH_PREFIX "another";
    append(f->store, batches, 4);
    accepted(&batches[0]);
    refused(&batches[1], REEF_ERR_BUSY, "1000 bytes");
    refused(&batches[2], REEF_ERR_BUSY, "1000 bytes");
    accepted(&batches[3]);
    append(f->store, batches + 2, 1); // it is the first one now
    accepted(&batches[2]);
}

// What is refused then can be taken after a commit of training, and without one never.
POOL_TEST(a_journal_that_is_full_of_trained_bytes_says_so) {
    uint8_t bytes[1000] = {1};
    reef_journal_batch first = batch_of(NULL, bytes, sizeof(bytes)), second = first;
    first.bytes_max = second.bytes_max = 2000;
    append(f->store, &first, 1);
    accepted(&first);
    assert_false(first.trained);
    second.cursor = 999;
    append(f->store, &second, 1);
    assert_int_equal(second.error.status, REEF_ERR_BUSY);
    assert_false(second.trained);
    second.cursor = 1000;
    append(f->store, &second, 1);
    assert_int_equal(second.error.status, REEF_ERR_BUSY);
    assert_true(second.trained);
    trim(f->store, 1000);
    append(f->store, &second, 1);
    accepted(&second);
    assert_false(second.trained);
}

POOL_TEST(small_batches_count_for_more_than_their_bytes) {
    reef_journal_batch batches[3];
    for (size_t i = 0; i < 3; i++) {
        batches[i] = batch_of(NULL, "x", 1);
        batches[i].bytes_max = 2 * (1 + REEF_JOURNAL_ENTRY_BYTES);
    }
    append(f->store, batches, 3);
    assert_int_equal(batches[1].error.status, REEF_OK);
    assert_int_equal(batches[2].error.status, REEF_ERR_BUSY);
}

// ---- trimming, crashes --------------------------------------------------------------------------

POOL_TEST(what_lies_before_the_cursor_goes_with_its_commit_only) {
    push(f->store, "a", "first\n");
    push(f->store, "b", "second\n");
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    must(reef_journal_trim(txn, SOURCE, 8, &why));
    reef_txn_abort(txn);
    assert_waits(f->store, 0, "first\nsecond\n");
    trim(f->store, 8);
    uint8_t bytes[8];
    size_t count;
    must_fail(reef_journal_read(f->store, SOURCE, 5, bytes, 8, &count, &why), REEF_ERR_CORRUPT,
              "later bytes only");
    assert_waits(f->store, 8, "cond\n");
    assert_waits(f->store, 6, "second\n"); // the entry in which the cursor lies is whole
    reef_journal_stat stat = survey(f->store);
    assert_int_equal(stat.entries, 1);
    assert_int_equal(stat.begin, 6);
    assert_int_equal(stat.end, 13);
    assert_int_equal(stat.entries_known, 2);
    assert_int_equal(stat.last_ms, 7);
}

POOL_TEST(a_cursor_beyond_the_journal_is_damage) {
    uint8_t bytes[8];
    size_t count;
    push(f->store, NULL, "abc");
    must_fail(reef_journal_read(f->store, SOURCE, 4, bytes, 8, &count, &why), REEF_ERR_CORRUPT,
              "ends before");
}

POOL_TEST(a_process_that_dies_before_the_commit_has_journalled_nothing) {
#ifdef REEF_FAIL_POINTS
    push(f->store, "a", "first\n");
    pool_close(f);
    pid_t child = fork();
    if (child == 0) {
        reef_store *store = NULL;
        reef_journal_batch batch = batch_of("b", "second\n", 7);
        setenv("REEF_FAIL_POINT", "journal.written", 1);
        if (reef_store_open(&store, f->path, &(reef_store_options){.write = true}, NULL) != REEF_OK)
            _exit(1);
        _exit(reef_journal_append(store, &batch, 1, NULL, NULL) == REEF_OK ? 2 : 3);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    f->store = pool_open(f->path, false, true);
    assert_waits(f->store, 0, "first\n");
    assert_false(is_duplicate(f->store, "b", "second\n", NULL));
    pool_check(f->store);
#else
    (void)f;
    skip();
#endif
}

// ---- going back to a snapshot -------------------------------------------------------------------

POOL_TEST(what_waited_still_waits_after_going_back) {
    push(f->store, "a", "aaaa\n");
    push(f->store, "b", "bbbb\n");
    reef_snapshot kept = keep_state(f->store, 1, 7); // in the middle of it
    push(f->store, "c", "cccc\n");
    push(f->store, "d", "dddd\n"); // training has come to 17, in it
    push(f->store, "e", "eeee\n");
    trim(f->store, 17);
    go_back(f->store, &kept);
    assert_waits(f->store, 7, "dddd\neeee\n"); // all of d: the state has nothing of it
    reef_journal_stat stat = survey(f->store);
    assert_int_equal(stat.end, 17);
    // What the restored state has not learned may be pushed again, what it has not.
    uint64_t position;
    assert_true(is_duplicate(f->store, "a", "aaaa\n", &position));
    assert_true(position <= 7); // of trained batches only the range is known
    assert_true(is_duplicate(f->store, "d", "dddd\n", &position));
    assert_int_equal(position, 12);
    assert_true(is_duplicate(f->store, "e", "eeee\n", &position));
    assert_int_equal(position, 17);
    assert_int_equal(push(f->store, "c", "cccc\n"), 22);
    assert_int_equal(push(f->store, "b", "bbbb\n"), 27); // a part of which it has learned
    trim(f->store, 14);
    assert_waits(f->store, 14, "ee\ncccc\nbbbb\n");
    trim(f->store, 27);
    assert_int_equal(survey(f->store).entries, 0);
    pool_reopen(f);
    pool_check(f->store);
}

// Less of the batch was learned at the snapshot than after it: the journal still has all of it.
POOL_TEST(a_batch_of_which_more_was_trained_still_waits_after_going_back) {
    push(f->store, "a", "0123456789");
    reef_snapshot kept = keep_state(f->store, 1, 3);
    trim(f->store, 8);
    go_back(f->store, &kept);
    reef_journal_stat stat = survey(f->store);
    assert_int_equal(stat.entries, 1);
    assert_int_equal(stat.begin, 0);
    assert_int_equal(stat.end, 10);
    assert_waits(f->store, 3, "3456789");
    assert_true(is_duplicate(f->store, "a", "0123456789", NULL));
    pool_check(f->store);
}

POOL_TEST(going_back_and_forth_loses_nothing_that_waits) {
    push(f->store, NULL, "0123456789");
    push(f->store, NULL, "abcdefghij");
    reef_snapshot kept = keep_state(f->store, 1, 4), before = keep_state(f->store, 2, 12);
    go_back(f->store, &kept);
    assert_waits(f->store, 4, "abcdefghij");
    trim(f->store, 9); // 5 bytes more
    for (int i = 0; i < 2; i++) {
        go_back(f->store, &before); // forth to how it was
        assert_waits(f->store, 12, "cdefghij");
    }
    assert_int_equal(push(f->store, NULL, "K"), 21);
    trim(f->store, 21);
    pool_check(f->store);
}

POOL_TEST(going_where_nothing_was_is_damage) {
    reef_snapshot kept = {.copy = 1};
    push(f->store, NULL, "0123456789");
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    must_fail(reef_journal_move(txn, SOURCE, &kept, 11, &why), REEF_ERR_CORRUPT, "never read");
    must(reef_journal_move(txn, "push:none", &kept, 5, &why));
    reef_txn_abort(txn);
}

// ---- the check ----------------------------------------------------------------------------------

typedef struct findings {
    size_t count;
    char last[300];
} findings;

static void on_damage(void *context, const char *what) {
    findings *found = context;
    found->count++;
    snprintf(found->last, sizeof(found->last), "%s", what);
}

static void put_entry(
    reef_store *store, uint64_t sequence, uint64_t begin, const char *text, bool trimmed) {
    uint8_t payload[128] = {0};
    size_t bytes = strlen(text);
    reef_put_le64(payload, begin);
    reef_put_le64(payload + 8, bytes);
    reef_put_le64(payload + 24, reef_journal_content((const uint8_t *)text, bytes));
    memcpy(payload + REEF_JOURNAL_HEAD_BYTES, text, bytes);
    reef_txn *txn = pool_begin(store, REEF_TXN_WRITE);
    pool_put(txn, &(reef_key){.db = REEF_DB_JOURNAL, .name = SOURCE, .sequence = sequence}, payload,
             REEF_JOURNAL_HEAD_BYTES + (trimmed ? 0 : bytes));
    pool_commit(txn, 1);
}

static void assert_found(reef_store *store, size_t count, const char *part) {
    reef_check_report report;
    findings found = {0};
    must(reef_store_check(store, &(reef_check_options){.on_damage = on_damage, .context = &found},
                          &report, &why));
    if (found.count != count || strstr(found.last, part) == NULL)
        fail_msg("%zu findings instead of %zu, the last: %s", found.count, count, found.last);
}

POOL_TEST(the_check_finds_what_does_not_fit_together) {
    put_entry(f->store, 3, 10, "abc", true);
    put_entry(f->store, 4, 13, "defg", false);
    assert_found(f->store, 0, "");
    put_entry(f->store, 4, 14, "defg", false);
    assert_found(f->store, 1, "begins at byte 14, the one before ends at 13");
    put_entry(f->store, 4, 13, "defg", false);
    put_entry(f->store, 6, 17, "h", false);
    assert_found(f->store, 1, "the entry before it is 4");
    put_entry(f->store, 5, 17, "", true); // of no bytes
    assert_found(f->store, 1, "is not an entry");
    put_entry(f->store, 5, 17, "h", true);
    put_entry(f->store, 6, 18, "i", false);
    assert_found(f->store, 1, "was trimmed, the one before it was not");
}

POOL_TEST(a_gap_is_never_read_over) {
    uint8_t bytes[16];
    size_t count;
    put_entry(f->store, 1, 0, "abc", false);
    put_entry(f->store, 2, 4, "efg", false);
    must_fail(reef_journal_read(f->store, SOURCE, 0, bytes, sizeof(bytes), &count, &why),
              REEF_ERR_CORRUPT, "has a gap");
    assert_int_equal(count, 0);
    must(reef_journal_read(f->store, SOURCE, 0, bytes, 3, &count, &why));
    assert_int_equal(count, 3);
}

POOL_TEST(the_check_finds_bytes_that_are_not_what_was_accepted) {
    uint8_t payload[REEF_JOURNAL_HEAD_BYTES + 3] = {0};
    reef_put_le64(payload + 8, 3);
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    pool_put(txn, &(reef_key){.db = REEF_DB_JOURNAL, .name = SOURCE, .sequence = 1}, payload,
             sizeof(payload));
    pool_put(txn, &(reef_key){.db = REEF_DB_JOURNAL, .name = SOURCE, .sequence = UINT64_MAX},
             payload, 7);
    pool_commit(txn, 1);
    assert_found(f->store, 2, "the shift");
}

static void put_ids(reef_store *store, const uint8_t *payload, size_t bytes) {
    reef_txn *txn = pool_begin(store, REEF_TXN_WRITE);
    pool_put(txn, &(reef_key){.db = REEF_DB_JOURNAL, .name = "ids:web", .sequence = 1}, payload,
             bytes);
    pool_commit(txn, 1);
}

POOL_TEST(the_check_finds_lists_of_ids_that_are_none) {
    enum { ENTRY = REEF_JOURNAL_HEAD_BYTES + 1, ALL = 8 + 2 * ENTRY };
    uint8_t payload[ALL] = {0};
    for (size_t i = 0; i < 2; i++) {
        uint8_t *entry = payload + 8 + i * ENTRY;
        reef_put_le64(entry, 3 * i);
        reef_put_le64(entry + 8, 3);
        reef_put_le32(entry + 32, 1);
        entry[REEF_JOURNAL_HEAD_BYTES] = 'a';
    }
    put_ids(f->store, payload, ALL);
    assert_found(f->store, 0, "");
    put_ids(f->store, payload, 8); // of none
    assert_found(f->store, 0, "");
    for (size_t bytes = 0; bytes < ALL; bytes++) {
        if (bytes == 8 || bytes == 8 + ENTRY) continue;
        put_ids(f->store, payload, bytes);
        assert_found(f->store, 1, "is not a list of ids");
    }
    reef_put_le64(payload + 8 + ENTRY, 2); // inside the one before
    put_ids(f->store, payload, ALL);
    assert_found(f->store, 1, "is not a list of ids");
}

RUN_TESTS
