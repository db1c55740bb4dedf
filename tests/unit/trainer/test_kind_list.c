// The kinds of a pool as people see them: names, visits and what each cost.
#include "lifelong_restore.h"
#include "reef_kinds.h"
#include "trainer_internal.h"
#include "visit_log.h"

#include "damaged_record.h"
#include "test.h"

#include <math.h>

enum { LONG = 16000, SHORT = 8000 };

static reef_status list_as_of(const lifelong *f, const char *as_of, reef_kind_list *out) {
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    reef_status status = reef_kind_list_read_as_of(txn, as_of, out, NULL);
    reef_txn_abort(txn);
    keep_kinds(out);
    return status;
}

// Three kinds; 0 and 1 come back. The last one stays the current one.
static void learn_turns(lifelong *f, size_t piece, bool restarts) {
    static const struct {
        int kind;
        size_t bytes;
    } TURNS[] = {{0, LONG}, {1, LONG}, {0, SHORT}, {2, LONG}, {1, SHORT}, {0, SHORT}};
    enum { COUNT = sizeof(TURNS) / sizeof(*TURNS) };
    uint8_t text[COUNT * LONG];
    size_t count = 0;
    for (size_t i = 0; i < COUNT; i++) {
        lifelong_text(text + count, TURNS[i].bytes, TURNS[i].kind, (uint32_t)i + 1);
        count += TURNS[i].bytes;
    }
    for (size_t at = 0; at < count; at += piece) {
        feed(f, text + at, count - at < piece ? count - at : piece);
        if (!restarts) continue;
        commit(f);
        open_again(f, 1);
    }
    commit(f);
}

KINDS_TEST(visits_are_where_kinds_learned) {
    static const uint32_t ORDER[] = {0, 1, 0, 2, 1, 0};
    static const uint64_t STARTS[] = {
        0, LONG, 2 * LONG, 2 * LONG + SHORT, 3 * LONG + SHORT, 3 * LONG + 2 * SHORT};
    make_pool(f, 1);
    learn_turns(f, 1 << 20, false);
    reef_kind_list list = kinds_of(f->store);
    assert_true(list.has_memories);
    assert_int_equal(list.count, 3);
    assert_int_equal(list.visit_count, 6);
    for (size_t i = 0; i < 6; i++) {
        const reef_kind_visit *visit = &list.visits[i];
        assert_int_equal(visit->kind, ORDER[i]);
        assert_int_equal(visit->count, 1);
        assert_in_range(visit->from + 2048, STARTS[i], STARTS[i] + 4096);
        if (i > 0) assert_int_equal(visit->from, list.visits[i - 1].to);
        assert_int_equal(visit->learned, visit->to - visit->from);
        double loss = reef_kind_visit_loss(visit);
        assert_true(loss > 0.5 && loss < 8.0);
    }
    assert_int_equal(list.visits[5].to, status_of(f).stream_bytes);
    static const uint64_t COUNTS[] = {3, 2, 1};
    for (uint32_t k = 0; k < 3; k++) {
        const reef_kind_facts *kind = &list.kinds[k];
        assert_int_equal(kind->kind, k);
        assert_string_equal(kind->name, "");
        assert_int_equal(kind->visit_count, COUNTS[k]);
        assert_int_equal(kind->is_open, k == 2);
        assert_int_equal(kind->is_current, k == 0);
        // The first byte of a visit that does not follow on is learned beside its batches.
        assert_in_range(kind->learned_bytes, kind->visited_bytes,
                        kind->visited_bytes + kind->visit_count + 1);
        assert_int_equal(kind->began_at, list.visits[k == 2 ? 3 : k].from);
        // It knows more when it comes back.
        if (k < 2)
            assert_true(kind->last_loss < kind->first_loss);
        else
            assert_true(kind->last_loss == kind->first_loss);
    }
    assert_int_equal(list.kinds[0].learned_at, list.visits[5].to + 1);
    reef_trainer_status status = status_of(f);
    assert_int_equal(status.kind, 0);
    assert_int_equal(status.kinds, 3);
}

KINDS_TEST(commits_and_restarts_make_no_other_visits) {
    make_pool(f, 1);
    learn_turns(f, 1 << 20, false);
    reef_kind_list whole = kinds_of(f->store);
    close_pool(f);
    temp_dir_join(f->pool, f->dir, "pieces");
    make_pool(f, 1);
    learn_turns(f, 1777, true);
    reef_kind_list pieces = kinds_of(f->store);
    assert_int_equal(pieces.visit_count, whole.visit_count);
    for (size_t i = 0; i < whole.visit_count; i++) {
        assert_int_equal(pieces.visits[i].kind, whole.visits[i].kind);
        assert_int_equal(pieces.visits[i].from, whole.visits[i].from);
        assert_int_equal(pieces.visits[i].to, whole.visits[i].to);
        assert_true(fabs(pieces.visits[i].bits - whole.visits[i].bits) < 1e-3);
    }
}

static reef_status name_kind(lifelong *f, uint32_t kind, const char *name, reef_error *err) {
    return reef_trainer_kind_name(f->trainer, kind, name, false, err);
}

static uint64_t last_commit(const lifelong *f) {
    reef_commit last;
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_commit_read(txn, &last, &why));
    reef_txn_abort(txn);
    return last.number;
}

KINDS_TEST(kinds_have_names) {
    uint32_t kind;
    make_pool(f, 1);
    learn_turns(f, 1 << 20, false);
    must(name_kind(f, 1, "digits", &why));
    must(name_kind(f, 0, "a.b-c_9", &why));
    uint64_t commits = last_commit(f);
    must(name_kind(f, 0, "a.b-c_9", &why)); // as it is called already
    assert_int_equal(last_commit(f), commits);
    assert_int_equal(name_kind(f, 2, "digits", &why), REEF_ERR_INVALID);
    assert_string_equal(why.message, "kind 1 is called digits already");
    assert_int_equal(name_kind(f, 3, "more", &why), REEF_ERR_NOT_FOUND);
    static const char *const BAD[] = {"7", "a b", "a\"b", ".a", "\xc3\xa4"};
    for (size_t i = 0; i < sizeof(BAD) / sizeof(*BAD); i++)
        assert_int_equal(name_kind(f, 2, BAD[i], &why), REEF_ERR_INVALID);
    must(reef_trainer_kind_name(f->trainer, 2, "tried", true, &why));
    assert_string_equal(status_of(f).kind_name, "a.b-c_9");
    open_again(f, 1);
    reef_kind_list list = kinds_of(f->store);
    assert_string_equal(list.kinds[0].name, "a.b-c_9");
    assert_string_equal(list.kinds[1].name, "digits");
    assert_string_equal(list.kinds[2].name, "");
    must(reef_kind_find(&list, "digits", &kind, &why));
    assert_int_equal(kind, 1);
    must(reef_kind_find(&list, "2", &kind, &why));
    assert_int_equal(kind, 2);
    assert_int_equal(reef_kind_find(&list, "3", &kind, &why), REEF_ERR_NOT_FOUND);
    assert_int_equal(reef_kind_find(&list, "digit", &kind, &why), REEF_ERR_NOT_FOUND);
    // One name goes on to another kind.
    must(name_kind(f, 1, "", &why));
    must(name_kind(f, 2, "digits", &why));
    list = kinds_of(f->store);
    assert_string_equal(list.kinds[1].name, "");
    assert_string_equal(list.kinds[2].name, "digits");
    assert_int_equal(times_said(f, "\"event\": \"kind_name\""), 4);
    assert_sound(f);
}

KINDS_TEST(a_state_has_the_names_and_visits_of_its_time) {
    make_pool(f, 1);
    feed_kind(f, 0, LONG, 1);
    feed_kind(f, 1, LONG, 2);
    must(name_kind(f, 0, "before", &why));
    (void)take(f, "then");
    uint64_t position = status_of(f).stream_bytes;
    feed_kind(f, 2, LONG, 3);
    feed_kind(f, 0, SHORT, 4);
    must(name_kind(f, 0, "after", &why));
    must(name_kind(f, 2, "new", &why));
    go_back(f, "then");
    reef_kind_list list = kinds_of(f->store);
    assert_int_equal(list.count, 2);
    assert_string_equal(list.kinds[0].name, "before");
    assert_int_equal(list.visit_count, 2);
    assert_int_equal(list.visits[1].to, position);
    // It goes on from there.
    feed_kind(f, 1, SHORT, 5);
    commit(f);
    list = kinds_of(f->store);
    assert_int_equal(list.visit_count, 2);
    assert_int_equal(list.visits[1].to, status_of(f).stream_bytes);
    assert_int_equal(list.visits[1].learned, list.visits[1].to - list.visits[1].from);
}

static void assert_same_kind(const reef_kind_facts *a, const reef_kind_facts *b) {
    assert_int_equal(a->kind, b->kind);
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->is_open, b->is_open);
    assert_int_equal(a->is_current, b->is_current);
    assert_int_equal(a->merged_into, b->merged_into);
    assert_int_equal(a->began_at, b->began_at);
    assert_int_equal(a->learned_bytes, b->learned_bytes);
    assert_int_equal(a->learned_at, b->learned_at);
    assert_int_equal(a->visit_count, b->visit_count);
    assert_int_equal(a->visited_bytes, b->visited_bytes);
    assert_true(a->first_loss == b->first_loss && a->last_loss == b->last_loss);
}

static void assert_same_list(const reef_kind_list *a, const reef_kind_list *b) {
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) assert_same_kind(&a->kinds[i], &b->kinds[i]);
    assert_int_equal(a->visit_count, b->visit_count);
    for (size_t i = 0; i < a->visit_count; i++)
        assert_memory_equal(&a->visits[i], &b->visits[i], sizeof(*a->visits));
}

KINDS_TEST(a_snapshot_lists_the_kinds_of_its_time) {
    make_pool(f, 1);
    feed_kind(f, 0, LONG, 1);
    feed_kind(f, 1, LONG, 2);
    feed_kind(f, 0, SHORT, 3);
    must(name_kind(f, 0, "before", &why));
    (void)take(f, "then");
    reef_kind_list before = kinds_of(f->store), then, now;
    assert_int_equal(before.count, 2);
    assert_true(before.kinds[0].is_current && before.kinds[1].is_open);
    feed_kind(f, 0, SHORT, 4); // what the last visit has learned goes on
    feed_kind(f, 2, LONG, 5);
    feed_kind(f, 1, SHORT, 6);
    must(name_kind(f, 0, "after", &why));
    open_again(f, 1);
    assert_int_equal(list_as_of(f, "then", &then), REEF_OK);
    assert_int_equal(then.visits[2].to, before.visits[2].to);
    // Of a visit that goes on behind the state, the loss is its mean.
    then.visits[2].bits = before.visits[2].bits;
    then.kinds[0].last_loss = before.kinds[0].last_loss;
    assert_same_list(&then, &before);
    assert_int_equal(list_as_of(f, "now", &now), REEF_OK);
    reef_kind_list last = kinds_of(f->store);
    assert_same_list(&now, &last);
    assert_int_equal(list_as_of(f, "never", &now), REEF_ERR_NOT_FOUND);
    assert_int_equal(now.count, 0);
}

KINDS_TEST(a_sealed_generation_lists_the_kinds_that_there_were) {
    reef_kind_list list;
    make_pool(f, 1);
    learn_turns(f, 1 << 20, false);
    must(name_kind(f, 1, "digits", &why));
    reef_kind_list now = kinds_of(f->store);
    assert_int_equal(list_as_of(f, "0", &list), REEF_OK);
    assert_int_equal(list.count, 1);
    assert_int_equal(list.visit_count, 1);
    assert_memory_equal(&list.visits[0], &now.visits[0], sizeof(list.visits[0]));
    assert_int_equal(list.kinds[0].visit_count, 1);
    assert_in_range(list.kinds[0].learned_bytes, LONG - 4096, LONG + 4096);
    assert_false(list.kinds[0].is_open || list.kinds[0].is_current);
    // Generation 1 was open while kind 0 came back.
    assert_int_equal(list_as_of(f, "1", &list), REEF_OK);
    assert_int_equal(list.count, 2);
    assert_int_equal(list.visit_count, 3);
    assert_memory_equal(list.visits, now.visits, 3 * sizeof(*list.visits));
    assert_int_equal(list.kinds[0].visit_count, 2);
    assert_in_range(list.kinds[0].learned_bytes, list.kinds[0].visited_bytes,
                    list.kinds[0].visited_bytes + 3);
    assert_in_range(list.kinds[0].learned_at, now.visits[2].to, now.visits[2].to + 1);
    assert_true(list.kinds[0].last_loss == reef_kind_visit_loss(&now.visits[2]));
    assert_string_equal(list.kinds[1].name, "digits");    // names are those of now
    assert_int_equal(list_as_of(f, "2", &list), REEF_OK); // which is open
    assert_same_list(&list, &now);
}

static reef_status last_event(void *context,
                              const reef_key *key,
                              const reef_view *view,
                              reef_error *err) {
    *(uint64_t *)context = key->sequence;
    return REEF_OK;
}

static reef_status read_dates(const lifelong *f, reef_kind_list *list, uint64_t *event) {
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_kind_list_read(txn, list, &why));
    if (event != NULL)
        must(reef_record_scan(txn, REEF_DB_TIMELINE, UINT32_MAX, last_event, event, &why));
    reef_status status = reef_kind_list_date(list, txn, NULL);
    reef_txn_abort(txn);
    keep_kinds(list);
    return status;
}

// A boundary that was undone is not when the kind that has its number now began.
KINDS_TEST(the_timeline_has_when_kinds_began) {
    reef_kind_list list;
    uint64_t last = 0, before;
    make_pool(f, 1);
    feed_kind(f, 0, LONG, 1);
    (void)take(f, "then");
    feed_kind(f, 1, LONG, 2);
    commit(f);
    assert_int_equal(read_dates(f, &list, NULL), REEF_OK);
    assert_int_equal(list.count, 2);
    assert_true(list.kinds[0].began_ms > 0);
    assert_true(list.kinds[1].began_ms >= list.kinds[0].began_ms);
    before = list.kinds[1].began_ms;
    go_back(f, "then");
    assert_int_equal(read_dates(f, &list, NULL), REEF_OK);
    assert_int_equal(list.count, 1);
    feed_kind(f, 1, LONG, 2); // at the same position
    commit(f);
    assert_int_equal(read_dates(f, &list, &last), REEF_OK);
    assert_int_equal(list.count, 2);
    assert_true(list.kinds[1].began_ms > before);
    close_pool(f);
    record_damage(f->pool, &(reef_key){.db = REEF_DB_TIMELINE, .sequence = last});
    f->store = pool_open(f->pool, false, false);
    assert_int_equal(read_dates(f, &list, NULL), REEF_ERR_CORRUPT);
    assert_int_equal(list.count, 2);
}

KINDS_TEST(the_status_has_the_memory_of_the_kind_that_is_learned) {
    make_pool(f, 1);
    feed_kind(f, 0, LONG, 1);
    feed_kind(f, 1, LONG, 2);
    reef_trainer_status status = status_of(f);
    assert_int_equal(status.kind, 1);
    assert_memory_equal(&status.kind_memory, &status.memory, sizeof(status.memory));
    uint64_t of_one = status.memory.stats.learned_bytes;
    feed_kind(f, 0, SHORT, 3);
    commit(f);
    for (int i = 0; i < 3; i++) {
        status = status_of(f);
        const reef_memory_stats *seen = &status.kind_memory.stats;
        assert_int_equal(status.kind, 0);
        assert_int_equal(status.generation, 1);
        assert_in_range(seen->learned_bytes, LONG + SHORT - 4096, LONG + SHORT + 4096);
        assert_in_range(seen->bytes, 1, seen->bytes_max);
        assert_in_range(seen->cells_used, 1, seen->cells);
        assert_in_range(status.memory.stats.learned_bytes, of_one, of_one + 4096);
        // As it is stored, and as it was read to be learned on.
        if (i == 0) {
            open_again(f, 1);
        } else if (i == 1) {
            feed_kind(f, 0, 1000, 4);
        }
    }
    feed_kind(f, 1, SHORT, 5);
    status = status_of(f);
    assert_int_equal(status.kind, 1);
    assert_true(status.memory.stats.learned_bytes > of_one);
    assert_memory_equal(&status.kind_memory, &status.memory, sizeof(status.memory));
}

// ---- the history by itself ----------------------------------------------------------------------

static void put_all(lifelong *f, reef_visit_log *log) {
    reef_commit commit = {0};
    reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
    must(reef_visit_log_put(log, txn, &why));
    must(reef_txn_commit(txn, &commit, &why));
    reef_visit_log_settle(log);
}

static reef_kind_visit *read_all(lifelong *f, size_t *count) {
    reef_kind_visit *visits;
    reef_txn *txn = pool_begin(f->store, REEF_TXN_READ);
    must(reef_visit_log_read(txn, &visits, count, &why));
    reef_txn_abort(txn);
    return visits;
}

static reef_status keep_last(void *context,
                             const reef_key *key,
                             const reef_view *view,
                             reef_error *err) {
    reef_key *last = context;
    if (strcmp(key->name, last->name) == 0) last->sequence = key->sequence;
    return REEF_OK;
}

static reef_key last_of_history(reef_store *store, const char *name) {
    reef_key key = {.db = REEF_DB_SERIES, .name = name};
    reef_txn *txn = pool_begin(store, REEF_TXN_READ);
    must(reef_record_scan(txn, REEF_DB_SERIES, UINT32_MAX, keep_last, &key, &why));
    reef_txn_abort(txn);
    return key;
}

static void keep_event(void *context, const char *json) {
    if (strstr(json, "history_damaged") != NULL) *(bool *)context = true;
}

// People lose a part of a history by it, which is said; the next commit succeeds.
KINDS_TEST(a_damaged_history_does_not_end_learning) {
    static const char *const NAMES[] = {"visits", "loss"};
    for (size_t i = 0; i < 2; i++) {
        bool was_said = false;
        temp_dir_join(f->pool, f->dir, NAMES[i]);
        make_pool(f, 1);
        feed_kind(f, 0, SHORT, 1);
        commit(f);
        const reef_key damaged = last_of_history(f->store, NAMES[i]);
        close_pool(f);
        record_damage(f->pool, &damaged);
        f->store = pool_open(f->pool, false, true);
        const reef_trainer_options options = {
            .threads = 1, .on_event = keep_event, .context = &was_said};
        must(reef_trainer_open(&f->trainer, f->store, &options, &why));
        feed_kind(f, 0, SHORT, 2);
        commit(f);
        assert_true(was_said);
        assert_sound(f);
        reef_kind_list list = kinds_of(f->store);
        assert_int_equal(list.visit_count, 1);
        assert_true((list.visits[0].from > 0) == (i == 0)); // the first one is lost
        was_said = false;
        feed_kind(f, 0, SHORT, 3);
        commit(f);
        assert_false(was_said);
        close_pool(f);
    }
}

enum { KINDS = 3, VISITS = 9001 };

// Visit i is of kind i % KINDS, as long as i and some more.
static uint64_t length_of(size_t i) {
    return 64 * (i % 7 + 1);
}

static uint64_t learn_every(lifelong *f, size_t commit_every, bool restarts) {
    reef_visit_log log = {0};
    uint64_t at = 0;
    for (size_t i = 0; i < VISITS; i++) {
        for (uint64_t part = 0; part < length_of(i); part += 64) {
            at += 64;
            must(reef_visit_log_add(&log, (uint32_t)(i % KINDS), at, 64, 64.0 * (double)(i % 5),
                                    &why));
            if ((at / 64) % commit_every != 0) continue;
            put_all(f, &log);
            if (restarts) reef_visit_log_release(&log);
        }
    }
    put_all(f, &log);
    reef_visit_log_release(&log);
    return at;
}

static void check_filled(const reef_kind_visit *visits, size_t count) {
    uint64_t learned[KINDS] = {0}, expected[KINDS] = {0}, visited[KINDS] = {0}, at = 0;
    double bits = 0.0, expected_bits = 0.0;
    assert_in_range(count, REEF_VISITS_MAX - 128, REEF_VISITS_MAX + KINDS);
    for (size_t i = 0; i < VISITS; i++) {
        expected[i % KINDS] += length_of(i);
        expected_bits += (double)length_of(i) * (double)(i % 5);
    }
    for (size_t i = 0; i < count; i++) {
        learned[visits[i].kind] += visits[i].learned;
        visited[visits[i].kind] += visits[i].count;
        bits += visits[i].bits;
        if (i < KINDS) {
            assert_int_equal(visits[i].kind, i);
            assert_true(visits[i].count > 1000);
            continue;
        }
        size_t number = VISITS - count + i;
        assert_int_equal(visits[i].count, 1);
        assert_int_equal(visits[i].kind, number % KINDS);
        assert_int_equal(visits[i].learned, length_of(number));
        if (i > KINDS) assert_int_equal(visits[i].from, at);
        at = visits[i].to;
    }
    for (int k = 0; k < KINDS; k++) {
        assert_int_equal(learned[k], expected[k]);
        assert_int_equal(visited[k], VISITS / KINDS + ((size_t)k < VISITS % KINDS));
    }
    assert_true(fabs(bits - expected_bits) < 1.0);
}

KINDS_TEST(of_older_visits_sums_are_kept) {
    static const size_t COMMITS[] = {1 << 20, 5000, 37};
    for (size_t c = 0; c < 3; c++) {
        size_t count;
        char name[8];
        snprintf(name, sizeof(name), "%zu", c);
        temp_dir_join(f->pool, f->dir, name);
        make_pool(f, 1);
        (void)learn_every(f, COMMITS[c], c == 2);
        reef_kind_visit *visits = read_all(f, &count);
        check_filled(visits, count);
        free(visits);
        close_pool(f);
    }
}

// Such as behind a marker line, which nobody learns.
KINDS_TEST(what_does_not_follow_on_is_another_visit) {
    reef_visit_log log = {0};
    size_t count;
    make_pool(f, 1);
    must(reef_visit_log_add(&log, 0, 64, 64, 64.0, &why));
    must(reef_visit_log_add(&log, 0, 128, 64, 64.0, &why));
    must(reef_visit_log_add(&log, 0, 256, 64, 64.0, &why));
    put_all(f, &log);
    reef_visit_log_release(&log);
    reef_kind_visit *visits = read_all(f, &count);
    assert_int_equal(count, 2);
    assert_int_equal(visits[0].to, 128);
    assert_int_equal(visits[0].learned, 128);
    assert_int_equal(visits[1].from, 192);
    free(visits);
}

KINDS_TEST(what_lies_behind_is_forgotten) {
    size_t count;
    make_pool(f, 1);
    uint64_t end = learn_every(f, 5000, false);
    // Within the last record, some records before, and before the first single visit.
    const uint64_t positions[] = {end - 1000, end / 2 + end / 4, end / 4, 0};
    for (size_t p = 0; p < 4; p++) {
        reef_commit commit = {0};
        uint64_t last = 0, learned = 0;
        reef_txn *txn = pool_begin(f->store, REEF_TXN_WRITE);
        must(reef_visit_log_forget_after(txn, positions[p], &why));
        must(reef_txn_commit(txn, &commit, &why));
        reef_kind_visit *visits = read_all(f, &count);
        for (size_t i = 0; i < count; i++) {
            assert_true(visits[i].from < positions[p] && visits[i].to <= positions[p]);
            if (visits[i].to > last) last = visits[i].to;
            learned += visits[i].learned;
        }
        assert_int_equal(last, positions[p]);
        // Of sums that are cut it is a part, and not to the byte.
        if (p < 2)
            assert_int_equal(learned, positions[p]);
        else
            assert_in_range(learned, positions[p] / 10 * 9, positions[p] / 10 * 11);
        free(visits);
    }
    // What is learned then follows on.
    (void)learn_every(f, 5000, false);
    reef_kind_visit *visits = read_all(f, &count);
    check_filled(visits, count);
    free(visits);
}

RUN_TESTS
