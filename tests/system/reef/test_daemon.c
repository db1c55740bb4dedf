// `reef` beside a running reefd: reading continues, changes go through the daemon, and afterwards
// the tool does them itself.
#include "reefd_run.h"
#include "tools_world.h"

#define STREAM_BYTES 4000
#define LONG_STREAM_BYTES 8000000 // never trained to its end here
#define EVALUATIONS 3

static void write_stream(const char *path, size_t bytes) {
    char *text = tiny_text("english", STREAM_BYTES);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (size_t written = 0; written < bytes; written += STREAM_BYTES)
        assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int setup(void **state) {
    unsetenv("REEF_POOL");
    sandbox *box = sandbox_new(state, sizeof(*box));
    sandbox_remove_pool(box);
    make_pool(box->pool);
    write_stream(box->text, STREAM_BYTES);
    return 0;
}

// Until the daemon has trained so much: all that can be of the short stream, whose end waits to be
// judged with more.
static void start(sandbox *box, int64_t bytes) {
    START(box, "--source", box->text, "--stay", "--threads", "1");
    await_count(box, "stream_bytes", bytes);
}

static size_t generation_count(const sandbox *box) {
    return length(reef_json("generations", box->pool, NULL), "generations");
}

static void expect_verbose(const sandbox *box, const char *says) {
    program p = answers(0, says, "freeze", box->pool, "--dry-run", "--verbose", NULL);
    assert_ptr_equal(strstr(p.err, says), p.err); // nothing stands before it
}

BOX_TEST(changes_go_through_the_daemon_while_it_runs) {
    assert_false(is_true(reef_json("status", box->pool, NULL), "daemon"));
    expect_verbose(box, "reef: using the pool ");
    start(box, STREAM_BYTES / 2);

    expect_verbose(box, "reef: using the socket ");
    json_t *sealed = reef_json("seal", box->pool, "--seal-dtype=int8", NULL);
    assert_string_equal(string(sealed, "sealed.dtype"), "int8");
    assert_true(number(sealed, "loss_before") > 0.0);
    assert_true(number(sealed, "loss_after") > 0.0);
    assert_int_equal(generation_count(box), 2);
    assert_int_equal(integer(reef_json("freeze", box->pool, NULL), "changed"),
                     TINY_SIDE * TINY_SIDE);
    (void)reef_json("grow", box->pool, "--side=5", NULL);
    (void)reef_json("snapshot", "create", box->pool, "beside", NULL);

    reefd_end(box);
    assert_false(is_true(reef_json("status", box->pool, NULL), "daemon"));
    (void)reef_json("snapshot", "create", box->pool, "after", NULL);
    assert_int_equal(generation_count(box), 2);
}

BOX_TEST(reading_continues_beside_the_daemon) {
    start(box, STREAM_BYTES / 2);
    (void)reef_json("eval", box->pool, box->text, NULL);
    (void)reef_json("timeline", box->pool, NULL);
    (void)reef_json("plot", "loss", box->pool, NULL);
    assert_true(is_sound(box->pool));
    reefd_end(box);
}

BOX_TEST(a_snapshot_gives_the_same_bits_while_the_daemon_trains_on) {
    char *text = path_in(box->directory, "sample");
    write_stream(text, STREAM_BYTES);
    write_stream(box->text, LONG_STREAM_BYTES);
    start(box, 1000);
    (void)reef_json("snapshot", "create", box->pool, "running", NULL);
    json_t *first = reef_json("eval", box->pool, "--as-of", "running", text, NULL);
    for (size_t i = 0; i < EVALUATIONS; i++) {
        await_steps(box, 1); // it does continue
        json_t *again = reef_json("eval", box->pool, "--as-of", "running", text, NULL);
        assert_true(json_equal(first, again));
    }
    reefd_end(box);
}

static size_t snapshot_count(const sandbox *box) {
    return length(reef_json("snapshot", "list", box->pool, NULL), "snapshots");
}

BOX_TEST(snapshots_are_restored_and_removed_while_the_daemon_trains_on) {
    write_stream(box->text, LONG_STREAM_BYTES);
    start(box, 1000);
    (void)reef_json("snapshot", "create", box->pool, "one", NULL);
    (void)reef_json("snapshot", "create", box->pool, "two", NULL);
    (void)reef_json("snapshot", "create", box->pool, "three", NULL);
    char *out = path_in(box->directory, "restored");
    answers(0, "", "snapshot", "restore", box->pool, "on", out, NULL);
    answers(75, "stop it first", "snapshot", "restore", box->pool, "one", "--in-place", NULL);

    assert_int_equal(length(reef_json("snapshot", "remove", box->pool, "tw", NULL), "removed"), 1);
    assert_int_equal(snapshot_count(box), 2);
    (void)reef_json("snapshot", "prune", box->pool, "--keep-last=1", NULL);
    assert_int_equal(snapshot_count(box), 1);
    await_steps(box, 1); // it does continue
    reefd_end(box);
    assert_true(is_sound(out));
}

BOX_TEST(every_command_of_the_daemon_is_one_of_reef_and_says_that_it_waited) {
    static const char *const COMMANDS[][2] = {
        {"commit", NULL}, {"pause", NULL},  {"resume", NULL},        {"drain", NULL},
        {"seal", NULL},   {"reload", NULL}, {"freeze", "--first=0"}, {"thaw", NULL}};
    start(box, STREAM_BYTES / 2);
    for (size_t i = 0; i < sizeof(COMMANDS) / sizeof(*COMMANDS); i++)
        answers(0, "when the step under way was done", COMMANDS[i][0], box->pool, "--verbose",
                COMMANDS[i][1], NULL);
    static const char *const ASKED[] = {"commit", "pause", "resume", "drain", "reload", "stop"};
    for (size_t i = 0; i < sizeof(ASKED) / sizeof(*ASKED); i++) {
        json_t *plan = reef_json(ASKED[i], box->pool, "--dry-run", NULL);
        assert_false(is_true(plan, "done"));
        assert_int_equal(integer(plan, "pid"), box->pid);
        assert_string_equal(string(plan, "command"), ASKED[i]);
    }
    answers(0, "changed        nothing\nneeds restart  nothing\n", "reload", box->pool, "--verbose",
            NULL);
    reefd_end(box);
    answers(66, "", "reload", box->pool, NULL);
}

BOX_TEST(what_the_daemon_refuses_is_reported_as_its_own_error) {
    start(box, STREAM_BYTES / 2);
    program p = answers(64, "layer", "freeze", box->pool, "--layer", "1", NULL); // a dense block
    assert_int_equal(line_count(p.err), 1);
    reefd_end(box);
}

// Two columns in every line of `reef status` but the first: the label, and from column 17 on the
// value.
static void expect_two_columns(const sandbox *box, const char *last) {
    program p = answers(0, last, "status", box->pool, NULL); // all is known that can be
    for (const char *line = strchr(p.out, '\n'); line != NULL && line[1];
         line = strchr(line + 1, '\n'))
        if (strcspn(line + 1, "\n") < 17 || line[16] != ' ' || line[17] == ' ')
            fail_msg("no two columns in: %s", p.out);
}

BOX_TEST(the_columns_of_status_line_up) {
    start(box, STREAM_BYTES / 2);
    expect_two_columns(box, "bits per byte (median of recent batches)");
    reefd_end(box);
    expect_two_columns(box, "on disk");
}

RUN_TESTS
