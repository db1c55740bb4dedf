// `reef ingest`: lines reach a running daemon batch by batch, each is trained once however often it
// is sent, and who sends them waits out a full journal and a daemon that ends.
#include "reef_client.h"
#include "reefd_run.h"
#include "tools_world.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINES 400
#define LINE_BYTES 14 // of "record 000001\n"
#define LINES_BYTES ((size_t)LINES * LINE_BYTES)

static int setup(void **state) {
    sandbox *box = sandbox_new(state, sizeof(*box));
    FILE *file = fopen(box->text, "w");
    for (size_t i = 1; i <= LINES; i++) fprintf(file, "record %06zu\n", i);
    assert_int_equal(fclose(file), 0);
    return 0;
}

static void start(sandbox *box, const char *journal) {
    START(box, "--source", "push:web", "--journal", journal);
}

/** Run `reef ingest POOL` with up to four more words; what it said in `p`. */
static void ingest(const sandbox *box, program *p, const char *input, const char *const words[4]) {
    const char *argv[8] = {REEF_BINARY, "ingest", box->pool};
    for (size_t i = 0; i < 4 && words[i] != NULL; i++) argv[3 + i] = words[i];
    program_run(p, argv, input);
}

static json_t *ingest_json(const sandbox *box, const char *input, const char *const words[4]) {
    program p;
    const char *all[4] = {"--json"};
    for (size_t i = 0; i < 3 && words[i] != NULL; i++) all[1 + i] = words[i];
    ingest(box, &p, input, all);
    if (p.code != 0) fail_msg("exit %d: %s", p.code, p.err);
    return json_of_text(p.out);
}

static void ingest_fails(
    const sandbox *box, const char *input, const char *const words[4], int code, const char *part) {
    program p;
    ingest(box, &p, input, words);
    if (p.code != code || strstr(p.err, part) == NULL)
        fail_msg("exit %d instead of %d, or \"%s\" is not in: %s", p.code, code, part, p.err);
}

BOX_TEST(a_file_comes_in_batches_and_a_second_time_not_at_all) {
    start(box, "1M");
    for (int again = 0; again < 2; again++) {
        char prefix[] = "--id-prefix=corpus", batch[] = "--batch=150";
        json_t *answer = ingest_json(box, NULL, (const char *const[4]){box->text, prefix, batch});
        assert_int_equal(integer(answer, "batches"), 3);
        assert_int_equal(integer(answer, "duplicates"), again ? 3 : 0);
        assert_int_equal(integer(answer, "records"), LINES);
        assert_int_equal(integer(answer, "accepted_bytes"), LINES_BYTES);
        assert_int_equal(integer(answer, "end"), LINES_BYTES);
        assert_int_equal(integer(answer, "position"), LINES_BYTES);
        (void)reefd_tell(box, "drain");
        assert_int_equal(reefd_count(box, "sources.0.cursor"), LINES_BYTES);
    }
    // Cut otherwise, the same ids stand for other bytes: that would lose some.
    ingest_fails(box, NULL, (const char *const[4]){box->text, "--id-prefix=corpus", "--batch=200"},
                 64, "other bytes");
    json_t *rest =
        ingest_json(box, NULL, (const char *const[4]){box->text, "--skip=5586", "--batch=1"});
    assert_int_equal(integer(rest, "accepted_bytes"), LINE_BYTES);
}

BOX_TEST(every_byte_of_standard_input_comes_through) {
    start(box, "1M");
    json_t *answer = ingest_json(box, "a\xff\tb\n\nc", (const char *const[4]){"-"});
    assert_int_equal(integer(answer, "records"), 3);
    assert_int_equal(integer(answer, "accepted_bytes"), 8); // a line end was added
    answer = ingest_json(box, "", (const char *const[4]){NULL});
    assert_int_equal(integer(answer, "batches"), 0);
    assert_true(is_null(answer, "position"));
    (void)reefd_tell(box, "drain");
    assert_int_equal(reefd_count(box, "sources.0.cursor"), 8);
    assert_int_equal(reefd_count(box, "carried_bytes") + reefd_count(box, "stream_bytes"), 8);
}

BOX_TEST(json_lines_are_records_and_a_bad_one_is_named) {
    start(box, "1M");
    json_t *answer = ingest_json(box, "{\"text\": \"a\"}\n\n{\"text\": \"b\\nc\"}\n",
                                 (const char *const[4]){"--jsonl"});
    assert_int_equal(integer(answer, "records"), 2);
    assert_int_equal(integer(answer, "accepted_bytes"), 6);
    ingest_fails(box, "{\"text\": \"a\"}\n\n{\"text\": \n", (const char *const[4]){"--jsonl"}, 64,
                 "line 3: no JSON");
    ingest_fails(box, "{\"text\": \"a\"}\n{\"words\": 1}\n", (const char *const[4]){"--jsonl"}, 64,
                 "line 2: no \"message\"");
    assert_int_equal(reefd_count(box, "sources.0.bytes"), 6);
    // The message gives what was accepted, and how to continue, however long the prefix is.
    char prefix[] = "--id-prefix=a-name-that-is-as-long-as-one-may-be-and-would-not-fit-beside-it-"
                    "but-has-to-be-the-same-again-0";
    ingest_fails(box, "{\"text\": \"a\"}\n{\"words\": 1}\n",
                 (const char *const[4]){"--jsonl", "--batch=1", prefix}, 64,
                 "acknowledged up to byte 14, to continue: the same with --skip 14\n");
}

// A batch has fewer bytes, but a line that the daemon takes is sent by itself.
BOX_TEST(a_long_line_goes_by_itself) {
    const size_t bytes = 700000, too_many = REEF_REQUEST_BYTES_MAX + 1;
    char *line = calloc(too_many + 2, 1);
    assert_non_null(line);
    start(box, "4M");
    memset(line, 'x', bytes);
    memcpy(line, "a\n", 2);
    line[bytes - 2] = line[bytes] = '\n';
    line[bytes - 1] = 'b';
    json_t *answer = ingest_json(box, line, (const char *const[4]){"-"});
    assert_int_equal(integer(answer, "batches"), 3);
    assert_int_equal(integer(answer, "accepted_bytes"), bytes + 1);
    memset(line, 'x', too_many);
    ingest_fails(box, line, (const char *const[4]){"-"}, 64, "line 1 has more");
    memcpy(line, "{\"text\": \"", 10);
    memcpy(line + bytes - 2, "\"}", 3);
    answer = ingest_json(box, line, (const char *const[4]){"-", "--jsonl"});
    assert_int_equal(integer(answer, "batches"), 1);
    free(line);
}

BOX_TEST(what_cannot_be_sent_is_reported) {
    ingest_fails(box, "a\n", (const char *const[4]){NULL}, 66, "no daemon");
    start(box, "1M");
    ingest_fails(box, "a\n", (const char *const[4]){"--source=app"}, 66, "no source push:app");
    ingest_fails(box, NULL, (const char *const[4]){"no-such-file"}, 66, "cannot open");
    ingest_fails(box, NULL, (const char *const[4]){box->directory}, 66, "directory");
    ingest_fails(box, "a\n", (const char *const[4]){"--skip=3"}, 64, "to skip");
    ingest_fails(box, "a\n", (const char *const[4]){"--id-prefix=a\xff"}, 64, "printable ASCII");
    ingest_fails(box, "a\n", (const char *const[4]){"--source=a b"}, 66, "no source push:a b");
    const size_t too_many = REEF_REQUEST_BYTES_MAX + 1;
    char *line = calloc(too_many + 1, 1);
    assert_non_null(line);
    memset(line, 'x', too_many);
    ingest_fails(box, line, (const char *const[4]){NULL}, 64, "line 1 has more");
    free(line);
    assert_int_equal(reefd_count(box, "sources.0.bytes"), 0);
}

static pid_t ingest_beside(const sandbox *box, const char *batch) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int out = open("/dev/null", O_WRONLY);
        if (out < 0 || dup2(out, STDOUT_FILENO) < 0) _exit(126);
        execl(REEF_BINARY, "reef", "ingest", box->pool, box->text, "--batch", batch, (char *)NULL);
        _exit(127);
    }
    return pid;
}

BOX_TEST(a_full_journal_is_waited_for) {
    start(box, "1500");
    (void)reefd_tell(box, "pause");
    pid_t pid = ingest_beside(box, "20");
    while (reefd_count(box, "sources.0.refused") == 0) sleep_ms(5);
    assert_true(reefd_count(box, "sources.0.bytes") < (int64_t)LINES_BYTES);
    (void)reefd_tell(box, "resume");
    // What fits the journal has to be committed before there is room: every 50 steps, or as asked
    // here.
    int how = 0;
    while (waitpid(pid, &how, WNOHANG) == 0) (void)reefd_tell(box, "drain");
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
    (void)reefd_tell(box, "drain");
    assert_int_equal(reefd_count(box, "sources.0.cursor"), LINES_BYTES);
}

BOX_TEST(a_daemon_that_was_killed_is_waited_for_and_nothing_comes_twice) {
    start(box, "1M");
    pid_t pid = ingest_beside(box, "4");
    while (reefd_count(box, "sources.0.bytes") < (int64_t)LINES_BYTES / 4) sleep_ms(1);
    reefd_kill(box);
    start(box, "1M");
    assert_int_equal(reefd_wait(pid), 0);
    (void)reefd_tell(box, "drain");
    assert_int_equal(reefd_count(box, "sources.0.cursor"), LINES_BYTES);
}

RUN_TESTS
