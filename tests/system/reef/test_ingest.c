// `reef ingest`: lines reach a running daemon batch by batch, each is trained once however often it
// is sent, and who sends them waits out a full journal and a daemon that ends.
#include "program.h"
#include "reef_client.h"
#include "reefd_run.h"

#include "reef_trainer.h"
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define LINES 400
#define LINE_BYTES 14 // of "record 000001\n"
#define LINES_BYTES ((size_t)LINES * LINE_BYTES)

typedef struct running {
    sandbox box;
    pid_t pid;
} running;

static void write_bytes(const char *path, const char *mode, const void *bytes, size_t count) {
    FILE *file = fopen(path, mode);
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static int setup(void **state) {
    running *run = calloc(1, sizeof(*run));
    assert_non_null(run);
    sandbox_make(&run->box);
    sandbox_make_pool(&run->box);
    write_bytes(run->box.text, "w", "", 0);
    for (size_t i = 1; i <= LINES; i++) {
        char line[LINE_BYTES + 1];
        snprintf(line, sizeof(line), "record %06zu\n", i);
        write_bytes(run->box.text, "a", line, LINE_BYTES);
    }
    *state = run;
    return 0;
}

static int teardown(void **state) {
    running *run = *state;
    if (run->pid) {
        kill(run->pid, SIGKILL);
        (void)reefd_wait(run->pid);
    }
    sandbox_remove(&run->box);
    free(run);
    return 0;
}

static void start(running *run, const char *journal) {
    run->pid =
        reefd_start(&run->box, -1,
                    (const char *const[]){"--pool", run->box.pool, "--source", "push:web",
                                          "--journal", journal != NULL ? journal : "1M", NULL});
    reefd_await(&run->box, run->pid);
}

/** Run `reef ingest POOL` with up to four more words; what it said in `p`. */
static void ingest(const running *run, program *p, const char *input, const char *const words[4]) {
    const char *argv[8] = {REEF_BINARY, "ingest", run->box.pool};
    for (size_t i = 0; i < 4 && words[i] != NULL; i++) argv[3 + i] = words[i];
    program_run(p, argv, input);
}

static json_t *ingest_json(const running *run, const char *input, const char *const words[3]) {
    program p;
    const char *all[4] = {"--json"};
    for (size_t i = 0; i < 3 && words[i] != NULL; i++) all[1 + i] = words[i];
    ingest(run, &p, input, all);
    if (p.code != 0) fail_msg("exit %d: %s", p.code, p.err);
    json_t *answer = json_loads(p.out, 0, NULL);
    assert_non_null(answer);
    return keep(answer);
}

static void ingest_fails(
    const running *run, const char *input, const char *const words[4], int code, const char *part) {
    program p;
    ingest(run, &p, input, words);
    if (p.code != code || strstr(p.err, part) == NULL)
        fail_msg("exit %d instead of %d, or \"%s\" is not in: %s", p.code, code, part, p.err);
}

static int64_t count_of(const json_t *answer, const char *key) {
    assert_true(json_is_integer(json_object_get(answer, key)));
    return json_integer_value(json_object_get(answer, key));
}

static int64_t source_count(const running *run, const char *key) {
    json_t *status = reefd_ask(&run->box, "{\"command\": \"status\"}");
    int64_t value = count_of(json_array_get(json_object_get(status, "sources"), 0), key);
    return value;
}

static void ask(const running *run, const char *request) {
    (void)reefd_ask(&run->box, request);
}

static void a_file_comes_in_batches_and_a_second_time_not_at_all(void **state) {
    running *run = *state;
    start(run, NULL);
    for (int again = 0; again < 2; again++) {
        char prefix[] = "--id-prefix=corpus", batch[] = "--batch=150";
        json_t *answer =
            ingest_json(run, NULL, (const char *const[]){run->box.text, prefix, batch});
        assert_int_equal(count_of(answer, "batches"), 3);
        assert_int_equal(count_of(answer, "duplicates"), again ? 3 : 0);
        assert_int_equal(count_of(answer, "records"), LINES);
        assert_int_equal(count_of(answer, "accepted_bytes"), LINES_BYTES);
        assert_int_equal(count_of(answer, "end"), LINES_BYTES);
        assert_int_equal(count_of(answer, "position"), LINES_BYTES);
        json_decref(answer);
        ask(run, "{\"command\": \"drain\"}");
        assert_int_equal(source_count(run, "cursor"), LINES_BYTES);
    }
    // Cut otherwise, the same ids stand for other bytes: that would lose some.
    ingest_fails(run, NULL,
                 (const char *const[]){run->box.text, "--id-prefix=corpus", "--batch=200", NULL},
                 64, "other bytes");
    json_t *rest =
        ingest_json(run, NULL, (const char *const[]){run->box.text, "--skip=5586", "--batch=1"});
    assert_int_equal(count_of(rest, "accepted_bytes"), LINE_BYTES);
    json_decref(rest);
}

static void every_byte_of_standard_input_comes_through(void **state) {
    running *run = *state;
    start(run, NULL);
    json_t *answer = ingest_json(run, "a\xff\tb\n\nc", (const char *const[]){"-", NULL, NULL});
    assert_int_equal(count_of(answer, "records"), 3);
    assert_int_equal(count_of(answer, "accepted_bytes"), 8); // a line end was added
    answer = ingest_json(run, "", (const char *const[]){NULL, NULL, NULL});
    assert_int_equal(count_of(answer, "batches"), 0);
    assert_true(json_is_null(json_object_get(answer, "position")));
    ask(run, "{\"command\": \"drain\"}");
    assert_int_equal(source_count(run, "cursor"), 8);
    assert_int_equal(
        reefd_count(&run->box, "carried_bytes") + reefd_count(&run->box, "stream_bytes"), 8);
}

static void json_lines_are_records_and_a_bad_one_is_named(void **state) {
    running *run = *state;
    start(run, NULL);
    json_t *answer = ingest_json(run, "{\"text\": \"a\"}\n\n{\"text\": \"b\\nc\"}\n",
                                 (const char *const[]){"--jsonl", NULL, NULL});
    assert_int_equal(count_of(answer, "records"), 2);
    assert_int_equal(count_of(answer, "accepted_bytes"), 6);
    ingest_fails(run, "{\"text\": \"a\"}\n\n{\"text\": \n",
                 (const char *const[]){"--jsonl", NULL, NULL, NULL}, 64, "line 3: no JSON");
    ingest_fails(run, "{\"text\": \"a\"}\n{\"words\": 1}\n",
                 (const char *const[]){"--jsonl", NULL, NULL, NULL}, 64, "line 2: no \"text\"");
    assert_int_equal(source_count(run, "bytes"), 6);
    // The message gives what was accepted, and how to continue, however long the prefix is.
    char prefix[] = "--id-prefix=a-name-that-is-as-long-as-one-may-be-and-would-not-fit-beside-it-"
                    "but-has-to-be-the-same-again-0";
    ingest_fails(run, "{\"text\": \"a\"}\n{\"words\": 1}\n",
                 (const char *const[]){"--jsonl", "--batch=1", prefix, NULL}, 64,
                 "acknowledged up to byte 14, to continue: the same with --skip 14\n");
}

// A batch has fewer bytes, but a line that the daemon takes is sent by itself.
static void a_long_line_goes_by_itself(void **state) {
    running *run = *state;
    const size_t bytes = 700000, too_many = REEF_REQUEST_BYTES_MAX + 1;
    char *line = calloc(too_many + 2, 1);
    assert_non_null(line);
    start(run, "4M");
    memset(line, 'x', bytes);
    memcpy(line, "a\n", 2);
    line[bytes - 2] = line[bytes] = '\n';
    line[bytes - 1] = 'b';
    json_t *answer = ingest_json(run, line, (const char *const[3]){"-"});
    assert_int_equal(count_of(answer, "batches"), 3);
    assert_int_equal(count_of(answer, "accepted_bytes"), bytes + 1);
    memset(line, 'x', too_many);
    ingest_fails(run, line, (const char *const[4]){"-"}, 64, "line 1 has more");
    memcpy(line, "{\"text\": \"", 10);
    memcpy(line + bytes - 2, "\"}", 3);
    answer = ingest_json(run, line, (const char *const[3]){"-", "--jsonl"});
    assert_int_equal(count_of(answer, "batches"), 1);
    free(line);
}

static void what_cannot_be_sent_is_reported(void **state) {
    running *run = *state;
    ingest_fails(run, "a\n", (const char *const[]){NULL, NULL, NULL, NULL}, 66, "no daemon");
    start(run, NULL);
    ingest_fails(run, "a\n", (const char *const[]){"--source=app", NULL, NULL, NULL}, 66,
                 "no source push:app");
    ingest_fails(run, NULL, (const char *const[]){"no-such-file", NULL, NULL, NULL}, 66,
                 "cannot open");
    ingest_fails(run, NULL, (const char *const[]){run->box.directory, NULL, NULL, NULL}, 66,
                 "directory");
    ingest_fails(run, "a\n", (const char *const[]){"--skip=3", NULL, NULL, NULL}, 64, "to skip");
    ingest_fails(run, "a\n", (const char *const[]){"--id-prefix=a\xff", NULL, NULL, NULL}, 64,
                 "printable ASCII");
    ingest_fails(run, "a\n", (const char *const[]){"--source=a b", NULL, NULL, NULL}, 66,
                 "no source push:a b");
    const size_t too_many = REEF_REQUEST_BYTES_MAX + 1;
    char *line = calloc(too_many + 1, 1);
    assert_non_null(line);
    memset(line, 'x', too_many);
    ingest_fails(run, line, (const char *const[]){NULL, NULL, NULL, NULL}, 64, "line 1 has more");
    free(line);
    assert_int_equal(source_count(run, "bytes"), 0);
}

static pid_t ingest_beside(const running *run, const char *batch) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int out = open("/dev/null", O_WRONLY);
        if (out < 0 || dup2(out, STDOUT_FILENO) < 0) _exit(126);
        execl(REEF_BINARY, "reef", "ingest", run->box.pool, run->box.text, "--batch", batch,
              (char *)NULL);
        _exit(127);
    }
    return pid;
}

static void a_full_journal_is_waited_for(void **state) {
    running *run = *state;
    start(run, "1500");
    ask(run, "{\"command\": \"pause\"}");
    pid_t pid = ingest_beside(run, "20");
    while (source_count(run, "refused") == 0) sleep_ms(5);
    assert_true(source_count(run, "bytes") < (int64_t)LINES_BYTES);
    ask(run, "{\"command\": \"resume\"}");
    // What fits the journal has to be committed before there is room: every 50 steps, or as asked
    // here.
    int how = 0;
    while (waitpid(pid, &how, WNOHANG) == 0) ask(run, "{\"command\": \"drain\"}");
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
    ask(run, "{\"command\": \"drain\"}");
    assert_int_equal(source_count(run, "cursor"), LINES_BYTES);
}

static void a_daemon_that_was_killed_is_waited_for_and_nothing_comes_twice(void **state) {
    running *run = *state;
    start(run, NULL);
    pid_t pid = ingest_beside(run, "4");
    while (source_count(run, "bytes") < (int64_t)LINES_BYTES / 4) sleep_ms(1);
    assert_int_equal(kill(run->pid, SIGKILL), 0);
    assert_int_equal(reefd_wait(run->pid), REEFD_SIGNALLED + SIGKILL);
    start(run, NULL);
    int how = 0;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
    ask(run, "{\"command\": \"drain\"}");
    assert_int_equal(source_count(run, "cursor"), LINES_BYTES);
}

TESTS(SET_UP(a_file_comes_in_batches_and_a_second_time_not_at_all),
      SET_UP(every_byte_of_standard_input_comes_through),
      SET_UP(json_lines_are_records_and_a_bad_one_is_named),
      SET_UP(a_long_line_goes_by_itself),
      SET_UP(what_cannot_be_sent_is_reported),
      SET_UP(a_full_journal_is_waited_for),
      SET_UP(a_daemon_that_was_killed_is_waited_for_and_nothing_comes_twice))
