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

static int setup(void **state) {
    sandbox *box = sandbox_new(state, sizeof(*box));
    write_text(box->text, TEXT_BYTES + MORE_BYTES, 1);
    return 0;
}

static void start(sandbox *box, const char *rate) {
    assert_int_equal(setenv("REEF_TEST_SCRUB_RATE", rate, 1), 0);
    START_PIPED(box, "--threads", "1");
    assert_int_equal(unsetenv("REEF_TEST_SCRUB_RATE"), 0);
}

static void send_text(const sandbox *box, size_t from, size_t count) {
    size_t bytes;
    char *text = read_text(box->text, &bytes);
    assert_true(from + count <= bytes);
    assert_int_equal(write(box->input, text + from, count), count);
}

// Train, seal, and leave a pool with a sealed generation.
static void make_sealed(sandbox *box, const char *rate) {
    start(box, rate);
    send_text(box, 0, TEXT_BYTES);
    // What has been given, of which the end waits to be a piece.
    while (reefd_count(box, "stream_bytes") + reefd_count(box, "carried_bytes") < TEXT_BYTES)
        sleep_ms(5);
    (void)reefd_tell(box, "drain");
    (void)reefd_tell(box, "seal");
}

static reef_scrub scrub_of(const sandbox *box) {
    reef_error err;
    reef_store *store;
    reef_scrub scrub;
    reef_txn *txn = pool_view(box->pool, &store);
    assert_int_equal(reef_scrub_read(txn, &scrub, &err), REEF_OK);
    pool_close(store, txn);
    return scrub;
}

BOX_TEST(a_pass_is_reported_and_kept_and_leaves_no_trace_in_the_result) {
    make_sealed(box, "0");
    send_text(box, TEXT_BYTES, MORE_BYTES);
    reefd_await_end(box);
    reef_commit without = pool_commit(box);
    assert_int_equal(scrub_of(box).passes, 0);

    sandbox_make_pool(box);
    make_sealed(box, "1073741824");
    await_count(box, "scrub.passes", 1);
    assert_true(reefd_count(box, "scrub.last_scrub") > 0);
    assert_true(reefd_count(box, "scrub.last_records") > 10);
    assert_int_equal(reefd_count(box, "scrub.last_damaged"), 0);
    assert_int_equal(reefd_count(box, "scrub.rate"), 1 << 30);
    send_text(box, TEXT_BYTES, MORE_BYTES);
    reefd_await_end(box);
    reef_commit with = pool_commit(box);
    assert_same(&with, &without);
    reef_scrub kept = scrub_of(box);
    assert_true(kept.passes >= 1 && kept.last_ms > 0 && kept.last_records > 10);

    start(box, "1073741824"); // the next one knows of it
    assert_true(reefd_count(box, "scrub.last_scrub") >= (json_int_t)kept.last_ms);
    reefd_await_end(box);
}

// Flip a bit of what a sealed record holds, in the file that the daemon has open.
static void damage(const sandbox *box) {
    reef_error err;
    reef_store *store;
    reef_view view;
    uint8_t begin[64];
    char path[TEMP_DIR_BYTES];
    reef_txn *txn = pool_view(box->pool, &store);
    const reef_key key = {.db = REEF_DB_EXPERTS, .generation = 0, .layer = 1};
    if (reef_record_view(txn, &key, &view, &err) != REEF_OK) fail_msg("%s", err.message);
    memcpy(begin, view.data, sizeof(begin));
    pool_close(store, txn);
    data_bytes file = data_file_load(box->pool);
    data_file_path(path, box->pool);
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

BOX_TEST(damage_is_reported_in_the_log_the_status_and_the_timeline) {
    reef_error err;
    reef_store *store;
    int events = 0;
    make_sealed(box, "1073741824");
    await_count(box, "scrub.passes", 1);
    damage(box);
    await_count(box, "scrub.damage_count", 1); // in the next pass,
    await_count(box, "scrub.last_damaged", 1); // which continues to its end
    const char *what = string(reefd_status(box), "scrub.damage");
    assert_non_null(
        strstr(what, "experts (generation 0, layer 1, block 0): the record's checksum"));
    assert_true(reefd_said(box, "is damaged: experts (generation 0, layer 1, block 0)"));
    assert_true(reefd_said(box, "see reef verify"));
    send_text(box, TEXT_BYTES, MORE_BYTES); // training continues
    kill(box->pid, SIGTERM);                // its pool stays damaged
    assert_int_equal(reefd_wait(box->pid), 0);
    box->pid = 0;

    reef_txn *txn = pool_view(box->pool, &store);
    assert_int_equal(reef_record_scan(txn, REEF_DB_TIMELINE, UINT32_MAX, on_event, &events, &err),
                     REEF_OK);
    assert_int_equal(events, 1); // once, however many passes there were
    pool_close(store, txn);
    assert_int_equal(scrub_of(box).last_damaged, 1);
}

RUN_TESTS
