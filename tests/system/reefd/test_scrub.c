// Sealed records are read again while reefd runs: the time is reported and kept, damage is reported
// everywhere, and the result of training is the same without it.
#include "reefd_run.h"

#include "reef_pool_check.h"
#include "reef_store.h"
#include "scrubber.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "data_file.h"
#include "test.h"

#define TEXT_BYTES 3000
#define MORE_BYTES 2000
#define WAIT_MS_MAX 60000

typedef struct feed {
    sandbox box;
    int to; // the daemon's standard input
    pid_t pid;
} feed;

static int setup(void **state) {
    feed *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    sandbox_make(&f->box);
    sandbox_make_pool(&f->box);
    write_text(f->box.text, TEXT_BYTES + MORE_BYTES, 1);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    feed *f = *state;
    sandbox_remove(&f->box);
    free(f);
    return 0;
}

static void start(feed *f, const char *rate) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(fcntl(ends[1], F_SETFD, FD_CLOEXEC), 0);
    f->to = ends[1];
    assert_int_equal(setenv("REEF_TEST_SCRUB_RATE", rate, 1), 0);
    f->pid = reefd_start(
        &f->box, ends[0],
        (const char *const[]){"--pool", f->box.pool, "--source", "-", "--threads", "1", NULL});
    assert_int_equal(unsetenv("REEF_TEST_SCRUB_RATE"), 0);
    close(ends[0]);
    reefd_await(&f->box, f->pid);
}

static void send_text(const feed *f, size_t from, size_t count) {
    size_t bytes;
    char *text = read_text(f->box.text, &bytes);
    assert_true(from + count <= bytes);
    assert_int_equal(write(f->to, text + from, count), count);
}

static void finish(feed *f) {
    close(f->to);
    assert_int_equal(reefd_wait(f->pid), 0);
}

// What the trainer has been given, of which the end waits to be a piece.
static int64_t read_bytes(const feed *f) {
    int64_t learned = reefd_count(&f->box, "stream_bytes");
    return learned + reefd_count(&f->box, "carried_bytes");
}

// Train, seal, and leave a pool with a sealed generation.
static void make_sealed(feed *f, const char *rate) {
    start(f, rate);
    send_text(f, 0, TEXT_BYTES);
    for (unsigned waited = 0; read_bytes(f) < TEXT_BYTES; waited += 5) {
        assert_true(waited < WAIT_MS_MAX);
        sleep_ms(5);
    }
    (void)reefd_ask(&f->box, "{\"command\": \"drain\"}");
    (void)reefd_ask(&f->box, "{\"command\": \"seal\"}");
}

// A member of "scrub" in a fresh status.
static json_int_t scrub_count(const feed *f, const char *name) {
    json_t *status = reefd_ask(&f->box, "{\"command\": \"status\"}");
    json_t *value = json_object_get(json_object_get(status, "scrub"), name);
    assert_true(json_is_integer(value));
    json_int_t count = json_integer_value(value);
    return count;
}

static void await_scrub(const feed *f, const char *name, json_int_t least) {
    for (unsigned waited = 0; scrub_count(f, name) < least; waited += 20) {
        if (waited > WAIT_MS_MAX) fail_msg("scrub.%s does not become %lld", name, (long long)least);
        sleep_ms(20);
    }
}

static reef_scrub scrub_of(const feed *f) {
    reef_error err;
    reef_store *store = NULL;
    reef_txn *txn = NULL;
    reef_scrub scrub;
    assert_int_equal(reef_store_open(&store, f->box.pool, NULL, &err), REEF_OK);
    assert_int_equal(reef_txn_begin(&txn, store, REEF_TXN_READ, &err), REEF_OK);
    assert_int_equal(reef_scrub_read(txn, &scrub, &err), REEF_OK);
    reef_txn_abort(txn);
    reef_store_close(store);
    return scrub;
}

static void a_pass_is_reported_and_kept_and_leaves_no_trace_in_the_result(void **state) {
    feed *f = *state;
    make_sealed(f, "0");
    send_text(f, TEXT_BYTES, MORE_BYTES);
    finish(f);
    reef_commit without = pool_commit(&f->box);
    assert_int_equal(scrub_of(f).passes, 0);

    sandbox_make_pool(&f->box);
    make_sealed(f, "1073741824");
    await_scrub(f, "passes", 1);
    assert_true(scrub_count(f, "last_scrub") > 0);
    assert_true(scrub_count(f, "last_records") > 10);
    assert_int_equal(scrub_count(f, "last_damaged"), 0);
    assert_int_equal(scrub_count(f, "rate"), 1 << 30);
    send_text(f, TEXT_BYTES, MORE_BYTES);
    finish(f);
    reef_commit with = pool_commit(&f->box);
    assert_memory_equal(with.root, without.root, REEF_HASH_BYTES);
    assert_int_equal(with.step, without.step);
    reef_scrub kept = scrub_of(f);
    assert_true(kept.passes >= 1 && kept.last_ms > 0 && kept.last_records > 10);
    pool_check(&f->box);

    start(f, "1073741824"); // the next one knows of it
    assert_true(scrub_count(f, "last_scrub") >= (json_int_t)kept.last_ms);
    finish(f);
}

// Flip a bit of what a sealed record holds, in the file that the daemon has open.
static void damage(const feed *f) {
    reef_error err;
    reef_store *store = NULL;
    reef_txn *txn = NULL;
    reef_view view;
    uint8_t begin[64];
    char path[TEMP_DIR_BYTES];
    assert_int_equal(reef_store_open(&store, f->box.pool, NULL, &err), REEF_OK);
    assert_int_equal(reef_txn_begin(&txn, store, REEF_TXN_READ, &err), REEF_OK);
    const reef_key key = {.db = REEF_DB_EXPERTS, .generation = 0, .layer = 1};
    if (reef_record_view(txn, &key, &view, &err) != REEF_OK) fail_msg("%s", err.message);
    memcpy(begin, view.data, sizeof(begin));
    reef_txn_abort(txn);
    reef_store_close(store);
    data_bytes file = data_file_load(f->box.pool);
    data_file_path(path, f->box.pool);
    int fd = open(path, O_WRONLY);
    size_t flipped = 0;
    for (size_t at = 0; (at = data_file_find(&file, at, begin, sizeof(begin))) != SIZE_MAX; at++) {
        const uint8_t other = file.data[at + 9] ^ 4;
        assert_int_equal(pwrite(fd, &other, 1, (off_t)(at + 9)), 1);
        flipped++;
    }
    assert_true(flipped > 0);
    close(fd);
    free(file.data);
}

static reef_status on_event(void *context,
                            const reef_key *key,
                            const reef_view *view,
                            reef_error *err) {
    json_t *event = json_loadb(view->data, view->bytes, 0, NULL);
    (void)key, (void)err;
    const char *name = json_string_value(json_object_get(event, "event"));
    const char *what = json_string_value(json_object_get(event, "what"));
    if (name != NULL && strcmp(name, "damage") == 0 && what != NULL &&
        strstr(what, "experts (generation 0, layer 1") != NULL)
        ++*(int *)context;
    json_decref(event);
    return REEF_OK;
}

static void damage_is_reported_in_the_log_the_status_and_the_timeline(void **state) {
    feed *f = *state;
    reef_error err;
    reef_store *store = NULL;
    reef_txn *txn = NULL;
    int events = 0;
    make_sealed(f, "1073741824");
    await_scrub(f, "passes", 1);
    damage(f);
    await_scrub(f, "damage_count", 1); // in the next pass,
    await_scrub(f, "last_damaged", 1); // which continues to its end
    json_t *status = reefd_ask(&f->box, "{\"command\": \"status\"}");
    const char *what =
        json_string_value(json_object_get(json_object_get(status, "scrub"), "damage"));
    assert_non_null(what);
    assert_non_null(
        strstr(what, "experts (generation 0, layer 1, block 0): the record's checksum"));
    assert_true(reefd_said(&f->box, "is damaged: experts (generation 0, layer 1, block 0)"));
    assert_true(reefd_said(&f->box, "see reef verify"));
    json_t *check = reefd_ask(&f->box, "{\"command\": \"verify\"}");
    assert_true(json_is_false(json_object_get(check, "sound")));
    assert_non_null(strstr(json_string_value(json_array_get(json_object_get(check, "damage"), 0)),
                           "experts (generation 0, layer 1, block 0)"));
    send_text(f, TEXT_BYTES, MORE_BYTES); // training continues
    finish(f);

    assert_int_equal(reef_store_open(&store, f->box.pool, NULL, &err), REEF_OK);
    assert_int_equal(reef_txn_begin(&txn, store, REEF_TXN_READ, &err), REEF_OK);
    assert_int_equal(reef_record_scan(txn, REEF_DB_TIMELINE, UINT32_MAX, on_event, &events, &err),
                     REEF_OK);
    assert_int_equal(events, 1); // once, however many passes there were
    reef_txn_abort(txn);
    reef_store_close(store);
    assert_int_equal(scrub_of(f).last_damaged, 1);
}

TESTS(SET_UP(a_pass_is_reported_and_kept_and_leaves_no_trace_in_the_result),
      SET_UP(damage_is_reported_in_the_log_the_status_and_the_timeline))
