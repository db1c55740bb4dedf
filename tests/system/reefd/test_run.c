// reefd from start to end: what it reads, what it leaves in the pool, and what it ends with.
#include "reefd_run.h"

#include "reef_trainer.h"
#include "test.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEXT_BYTES 12007 // not a multiple of a batch
#define BATCH_BYTES 32

// The sandbox's text, or what it reads from standard input, to the end.
#define LEARN(box, ...) assert_int_equal(RUN(box, "--source", (box)->text, __VA_ARGS__), 0)

static void learn_from(const sandbox *box, int input, int code) {
    assert_int_equal(reefd_run(box, input, (const char *const[]){"--source", "-", NULL}), code);
}

// With these arguments and no other.
#define BARE(box, ...) reefd_wait(reefd_start(box, -1, (const char *const[]){__VA_ARGS__, NULL}))

static int setup(void **state) {
    sandbox *box = sandbox_new(state, sizeof(*box));
    write_text(box->text, TEXT_BYTES, 1);
    return 0;
}

// The last line of a --json-log; every line must be an object.
static json_t *last_event(const sandbox *box) {
    char *text = read_text(box->messages, NULL);
    json_t *event = NULL;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        event = json_of_text(line);
        (void)string(event, "event");
        (void)integer(event, "unix_ms");
    }
    return event;
}

// ---- the stream ---------------------------------------------------------------------------------

BOX_TEST(a_file_is_accepted_to_its_last_byte) {
    LEARN(box, "--json-log");
    json_t *event = last_event(box);
    assert_string_equal(string(event, "event"), "ended");
    assert_int_equal(integer(event, "stream_bytes") + integer(event, "carried_bytes"), TEXT_BYTES);
    reef_commit commit = pool_commit(box);
    assert_int_equal(integer(event, "commit"), commit.number);
    char root[2 * REEF_HASH_BYTES + 1];
    reef_hash_format(commit.root, root);
    assert_string_equal(string(event, "root"), root);
    assert_in_range(commit.stream_bytes, TEXT_BYTES - WAITING_BYTES, TEXT_BYTES);
    assert_int_equal(commit.step, commit.stream_bytes / BATCH_BYTES);
    pool_check(box);
}

BOX_TEST(running_again_with_nothing_new_changes_nothing) {
    LEARN(box, NULL);
    reef_commit first = pool_commit(box);
    LEARN(box, NULL);
    reef_commit second = pool_commit(box);
    assert_int_equal(first.number, second.number);
    assert_same(&first, &second);
}

BOX_TEST(a_file_that_grew_is_read_on) {
    LEARN(box, NULL);
    reef_commit whole = pool_commit(box);

    assert_int_equal(truncate(box->text, 6345), 0);
    sandbox_make_pool(box);
    LEARN(box, NULL);
    reef_commit part = pool_commit(box);
    assert_true(part.stream_bytes < whole.stream_bytes);
    write_text(box->text, TEXT_BYTES, 1); // begins with the same bytes
    LEARN(box, NULL);
    reef_commit rest = pool_commit(box);
    assert_same(&whole, &rest);
}

BOX_TEST(threads_and_commits_leave_no_trace) {
    LEARN(box, "--threads", "1");
    reef_commit one = pool_commit(box);
    static const char *const OTHERS[][6] = {
        {"--threads", "2", "--commit-steps", "7", "--commit-seconds", "0"},
        {"--threads", "3", "--commit-steps", "0", "--commit-seconds", "0.05"},
        {"--threads", "2", "--commit-steps", "0", "--commit-seconds", "0"},
    };
    for (size_t i = 0; i < sizeof(OTHERS) / sizeof(*OTHERS); i++) {
        sandbox_make_pool(box);
        const char *const *more = OTHERS[i];
        assert_int_equal(
            RUN(box, "--source", box->text, more[0], more[1], more[2], more[3], more[4], more[5]),
            0);
        reef_commit other = pool_commit(box);
        assert_same(&one, &other);
    }
}

BOX_TEST(several_sources_follow_each_other) {
    char second[192];
    snprintf(second, sizeof(second), "file:%s/second", box->directory);
    write_text(second + strlen("file:"), 5001, 2);
    assert_int_equal(RUN(box, "--source", box->text, "--source", second, "--json-log"), 0);
    json_t *event = last_event(box);
    assert_int_equal(integer(event, "stream_bytes") + integer(event, "carried_bytes"),
                     TEXT_BYTES + 5001);
    reef_commit together = pool_commit(box);
    // The same in two runs: the end of a run is not a boundary of the stream.
    sandbox_make_pool(box);
    LEARN(box, NULL);
    assert_int_equal(RUN(box, "--source", second), 0);
    reef_commit apart = pool_commit(box);
    assert_same(&together, &apart);
}

// A child writes the file into a pipe in pieces of changing, odd sizes.
static int start_feeder(const char *path, size_t piece_max, pid_t *feeder) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    *feeder = fork();
    assert_true(*feeder >= 0);
    if (*feeder == 0) {
        char piece[65536];
        uint64_t seed = piece_max;
        close(ends[0]);
        int file = open(path, O_RDONLY);
        ssize_t count = 0;
        do {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            count = read(file, piece, 1 + (size_t)(seed >> 33) % piece_max);
        } while (count > 0 && write(ends[1], piece, (size_t)count) == count);
        _exit(count == 0 ? 0 : 1);
    }
    close(ends[1]);
    return ends[0];
}

BOX_TEST(standard_input_is_the_same_however_it_is_cut) {
    int file = open(box->text, O_RDONLY);
    learn_from(box, file, 0);
    close(file);
    reef_commit whole = pool_commit(box);
    assert_in_range(whole.stream_bytes, TEXT_BYTES - WAITING_BYTES, TEXT_BYTES);
    static const size_t PIECES[] = {13, 4099, 65536};
    for (size_t i = 0; i < sizeof(PIECES) / sizeof(*PIECES); i++) {
        sandbox_make_pool(box);
        pid_t feeder = 0;
        int input = start_feeder(box->text, PIECES[i], &feeder);
        learn_from(box, input, 0);
        close(input);
        assert_int_equal(reefd_wait(feeder), 0);
        reef_commit cut = pool_commit(box);
        assert_same(&whole, &cut);
    }
}

BOX_TEST(standard_input_continues_the_stream) {
    int file = open(box->text, O_RDONLY);
    learn_from(box, file, 0);
    reef_commit whole = pool_commit(box);
    sandbox_make_pool(box);
    char head[192];
    snprintf(head, sizeof(head), "%s/head", box->directory);
    write_text(head, 5001, 1); // the first bytes of the same text
    int first = open(head, O_RDONLY);
    learn_from(box, first, 0);
    close(first);
    assert_int_equal(lseek(file, 5001, SEEK_SET), 5001);
    learn_from(box, file, 0);
    close(file);
    reef_commit rest = pool_commit(box);
    assert_same(&whole, &rest);
}

// The same bytes from a file and from standard input differ in the name of the cursor only.
BOX_TEST(a_file_and_standard_input_teach_the_same) {
    char *text = read_text(box->text, NULL);
    reef_score scores[2];
    for (size_t i = 0; i < 2; i++) {
        int file = open(box->text, O_RDONLY);
        sandbox_make_pool(box);
        const char *const arguments[] = {"--source", i ? "-" : box->text, NULL};
        assert_int_equal(reefd_run(box, file, arguments), 0);
        close(file);
        scores[i] = pool_score(box->pool, NULL, text, 2000, NULL);
    }
    assert_true(scores[0].bits > 0 && scores[0].bits == scores[1].bits);
}

BOX_TEST(bytes_that_fill_no_batch_are_kept) {
    write_text(box->text, 5, 1);
    LEARN(box, "--json-log");
    json_t *event = last_event(box);
    assert_int_equal(integer(event, "step"), 0);
    assert_int_equal(integer(event, "carried_bytes"), 5);
    const char *next = string(event, "next");
    assert_non_null(strstr(next, "less than a step learns from, and waits"));
    assert_int_equal(integer(event, "commit"), pool_commit(box).number);
}

BOX_TEST(any_bytes_are_text) {
    FILE *file = fopen(box->text, "w");
    for (uint64_t seed = 9, i = 0; i < 3000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        fputc((int)(seed >> 40 & 0xff), file);
    }
    fclose(file);
    LEARN(box, NULL);
    pool_check(box);
}

BOX_TEST(odd_paths_have_cursors_too) {
    char part[201], path[512];
    memset(part, 'x', 200);
    part[200] = 0;
    snprintf(path, sizeof(path), "%s/%s", box->directory, part);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/%s/odd\xff%.60s", box->directory, part, part);
    write_text(path, 3000, 1);
    assert_int_equal(RUN(box, "--source", path, "--json-log"), 0);
    reef_commit first = pool_commit(box);
    assert_true(first.step > 0);
    assert_int_equal(RUN(box, "--source", path), 0);
    assert_int_equal(pool_commit(box).number, first.number); // it knew where it was
}

// ---- what is refused ----------------------------------------------------------------------------

BOX_TEST(what_cannot_be_read_ends_before_training) {
    reef_commit before = pool_commit(box);
    char path[192];
    snprintf(path, sizeof(path), "file:%s/absent", box->directory);
    assert_int_equal(RUN(box, "--source", box->text, "--source", path), 66);
    assert_true(reefd_said(box, "reefd: cannot read '") &&
                reefd_said(box, "absent': No such file"));
    snprintf(path, sizeof(path), "file:%s", box->directory);
    assert_int_equal(RUN(box, "--source", path), 66);
    assert_true(reefd_said(box, "it is a directory"));
    snprintf(path, sizeof(path), "file:%s/fifo", box->directory);
    assert_int_equal(mkfifo(path + strlen("file:"), 0600), 0);
    assert_int_equal(RUN(box, "--source", path), 66);
    assert_true(reefd_said(box, "not a regular file"));
    int directory = open(box->directory, O_RDONLY);
    learn_from(box, directory, 66);
    close(directory);
    assert_true(reefd_said(box, "standard input is a directory"));
    assert_int_equal(pool_commit(box).number, before.number);
}

BOX_TEST(what_was_asked_for_wrongly_is_a_usage_error) {
    char twice[192], socket[256] = "/tmp/";
    snprintf(twice, sizeof(twice), "file:%s", box->text);
    memset(socket + 5, 's', 200);
    assert_int_equal(RUN(box, "--source", "tcp:localhost:1"), 64);
    assert_true(reefd_said(box, "unknown kind of source 'tcp'"));
    assert_int_equal(RUN(box, "--source", "file:"), 64);
    assert_int_equal(RUN(box, "--source", box->text, "--source", twice), 64);
    assert_true(reefd_said(box, "given twice"));
    assert_int_equal(RUN(box, "--source", box->text, "--frobnicate"), 64);
    assert_true(reefd_said(box, "'--frobnicate'") && reefd_said(box, "reefd --help"));
    assert_int_equal(BARE(box, "--source", box->text), 64);
    assert_int_equal(RUN(box, "--source", box->text, "--socket", socket), 64);
    assert_true(reefd_said(box, "205 bytes") && reefd_said(box, "--socket"));
    assert_int_equal(RUN(box, "--source", box->text, "--socket", "/nonexistent/socket"), 66);
    assert_true(reefd_said(box, "directory '/nonexistent' does not exist"));
    setenv("REEF_ISA", "abacus", 1);
    assert_int_equal(RUN(box, "--source", box->text), 64);
    unsetenv("REEF_ISA");
    assert_true(reefd_said(box, "abacus"));
}

// A pool that has read a byte of so many sources, named 0, 1, and so on.
static void know_sources(const sandbox *box, size_t count) {
    reef_error err;
    reef_store *store = NULL;
    reef_commit commit;
    reef_trainer *trainer = pool_train(box->pool, &store);
    for (size_t i = 0; i < count; i++) {
        char name[24];
        snprintf(name, sizeof(name), "%zu", i);
        assert_int_equal(
            reef_trainer_feed(trainer, name, (const uint8_t *)"x", 1, NULL, NULL, &err), REEF_OK);
    }
    assert_int_equal(reef_trainer_commit(trainer, &commit, &err), REEF_OK);
    pool_train_end(store, trainer);
}

// Found while it trains, the same would look like a full disk, and be retried for ever.
BOX_TEST(more_sources_than_a_pool_can_have_are_refused_at_once) {
    char other[192];
    snprintf(other, sizeof(other), "%s/other", box->directory);
    write_text(other, 1000, 2);
    know_sources(box, REEF_SOURCE_COUNT_MAX - 1);
    reef_commit before = pool_commit(box);
    assert_int_equal(RUN(box, "--source", box->text, "--source", other), 64);
    assert_true(reefd_said(box, "2 of the sources are new") && reefd_said(box, "dir:PATH"));
    assert_int_equal(pool_commit(box).number, before.number);
    LEARN(box, NULL); // the last one
    LEARN(box, NULL); // is known
    assert_int_equal(RUN(box, "--source", other), 64);
}

BOX_TEST(a_missing_pool_is_not_found) {
    char path[192];
    snprintf(path, sizeof(path), "%s/nowhere", box->directory);
    assert_int_equal(BARE(box, "--pool", path, "--source", box->text), 66);
    assert_true(reefd_said(box, "nowhere"));
    assert_int_not_equal(BARE(box, "--pool", box->directory, "--source", box->text), 0);
}

BOX_TEST(an_empty_stream_is_an_error) {
    assert_int_equal(RUN(box, "--source", "-"), 66);
    assert_true(reefd_said(box, "the stream is empty: nothing to train on in standard input"));
    assert_int_equal(truncate(box->text, 0), 0);
    assert_int_equal(RUN(box, "--source", box->text, "--source", "-"), 66);
    assert_true(reefd_said(box, box->text) && reefd_said(box, "and the others"));
    write_text(box->text, 100, 1);
    LEARN(box, "--source", "-");
}

BOX_TEST(a_file_shorter_than_its_cursor_is_an_error) {
    LEARN(box, NULL);
    reef_commit before = pool_commit(box);
    assert_int_equal(truncate(box->text, 100), 0);
    assert_int_equal(RUN(box, "--source", box->text), 65);
    assert_true(reefd_said(box, "has 100 bytes") && reefd_said(box, "already read 12007"));
    assert_int_equal(pool_commit(box).number, before.number);
}

BOX_TEST(a_second_daemon_is_refused_with_the_pid_of_the_first) {
    START(box, "--stay");
    char socket[192], number[32];
    snprintf(socket, sizeof(socket), "%s/other.sock", box->directory);
    assert_int_equal(RUN(box, "--source", box->text), 75);
    snprintf(number, sizeof(number), "%d", (int)box->pid);
    assert_true(reefd_said(box, number));
    assert_int_equal(RUN(box, "--source", box->text, "--socket", socket), 75);
    (void)reefd_tell(box, "stop"); // the first one still answers
    reefd_await_end(box);
}

// Threads of a process whose niceness is that much above its own.
static size_t threads_nicer_by(pid_t pid, int niceness) {
    char path[64];
    size_t found = 0;
    int own = getpriority(PRIO_PROCESS, (id_t)pid);
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    assert_non_null(tasks);
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        id_t thread = (id_t)strtoul(task->d_name, NULL, 10);
        found += thread > 0 && getpriority(PRIO_PROCESS, thread) - own == niceness;
    }
    closedir(tasks);
    return found;
}

BOX_TEST(training_gives_way_to_replies) {
    // Under nice all threads of the daemon begin with that niceness, and there is less to see.
    if (getpriority(PRIO_PROCESS, 0) > 0) skip();
    START(box, "--source", box->text, "--stay", "--threads", "2");
    // The trainer's own thread, and once they have worked its worker and that of its memory.
    for (int i = 0; i < 1000 && threads_nicer_by(box->pid, 5) < 3; i++) sleep_ms(10);
    assert_int_equal(threads_nicer_by(box->pid, 5), 3);
    assert_in_range(threads_nicer_by(box->pid, 0), 2, 100); // the loop and queries
    reefd_end(box);
}

BOX_TEST(quiet_says_nothing_and_others_say_where_they_are) {
    LEARN(box, "--quiet");
    assert_string_equal(read_text(box->messages, NULL), "");
    sandbox_make_pool(box);
    LEARN(box, NULL);
    assert_true(reefd_said(box, "reefd: started: ") && reefd_said(box, "reefd: ended: step "));
    assert_true(reefd_said(box, ", next reef score POOL FILE"));
    assert_int_equal(RUN(box, "--source", "absent", "--quiet"), 66);
    assert_true(reefd_said(box, "reefd: cannot read 'absent'"));
}

BOX_TEST(help_and_version_end_with_0) {
    assert_int_equal(BARE(box, "--help"), 0);
    assert_int_equal(BARE(box, "--version"), 0);
}

// What stays as it was is not told again: an idle daemon fills no journal.
BOX_TEST(an_idle_daemon_says_nothing) {
    assert_int_equal(setenv("REEF_TEST_PROGRESS", "0.1", 1), 0);
    START(box, "--source", "push:web");
    assert_int_equal(unsetenv("REEF_TEST_PROGRESS"), 0);
    await_said(box, "waiting, generation 0");
    sleep_ms(2000); // what comes twice a second, if it comes
    assert_int_equal(times_said(box, "waiting, generation 0"), 1);
    char text[3001];
    memset(text, 'a', sizeof(text) - 1);
    text[3000] = 0;
    (void)reefd_push_ok(box, NULL, NULL, text); // and its speed is no news later
    (void)reefd_tell(box, "drain");
    sleep_ms(1000);
    size_t said = times_said(box, "waiting, generation 0");
    sleep_ms(3000);
    reefd_end(box);
    assert_int_equal(times_said(box, "waiting, generation 0"), said);
}

BOX_TEST(one_file_under_two_names_is_refused) {
    char other[300], followed[400];
    sandbox_make_pool(box);
    snprintf(other, sizeof(other), "%s/./%s", box->directory, strrchr(box->text, '/') + 1);
    snprintf(followed, sizeof(followed), "follow:%s/linked", box->directory);
    write_text(box->text, 3000, 1);
    assert_int_equal(link(box->text, followed + strlen("follow:")), 0);
    const char *const names[] = {other, followed};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(RUN(box, "--source", box->text, "--source", names[i]), 64);
        assert_true(reefd_said(box, "are one file, which is read once"));
    }
    assert_int_equal(unlink(followed + strlen("follow:")), 0);
}

RUN_TESTS
