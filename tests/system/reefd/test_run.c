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

#define TEXT_BYTES 20007 // not a multiple of a batch
#define BATCH_BYTES 32

#define RUN(box, input, ...) reefd_run(box, input, (const char *const[]){__VA_ARGS__, NULL})

static int setup(void **state) {
    sandbox *box = calloc(1, sizeof(*box));
    sandbox_make(box);
    sandbox_make_pool(box);
    write_text(box->text, TEXT_BYTES, 1);
    *state = box;
    return 0;
}

static int teardown(void **state) {
    sandbox_remove(*state);
    free(*state);
    return 0;
}

static void assert_same_root(const reef_commit *a, const reef_commit *b) {
    assert_memory_equal(a->root, b->root, REEF_HASH_BYTES);
}

// The last line of a --json-log; every line must be an object.
static json_t *last_event(const sandbox *box) {
    char *text = read_text(box->messages, NULL);
    json_t *event = NULL;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        json_decref(event);
        event = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        if (!json_is_object(event)) fail_msg("no JSON object: %s", line);
        assert_true(json_is_string(json_object_get(event, "event")));
        assert_true(json_is_integer(json_object_get(event, "unix_ms")));
    }
    assert_non_null(event);
    return keep(event);
}

static int64_t count_in(const json_t *object, const char *key) {
    assert_true(json_is_integer(json_object_get(object, key)));
    return json_integer_value(json_object_get(object, key));
}

// ---- the stream ---------------------------------------------------------------------------------

static void a_file_is_accepted_to_its_last_byte(void **state) {
    const sandbox *box = *state;
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", box->text, "--json-log"), 0);
    json_t *event = last_event(box);
    assert_string_equal(json_string_value(json_object_get(event, "event")), "ended");
    assert_int_equal(count_in(event, "stream_bytes") + count_in(event, "carried_bytes"),
                     TEXT_BYTES);
    reef_commit commit = pool_commit(box);
    assert_int_equal(count_in(event, "commit"), commit.number);
    char root[2 * REEF_HASH_BYTES + 1];
    reef_hash_format(commit.root, root);
    assert_string_equal(json_string_value(json_object_get(event, "root")), root);
    assert_in_range(commit.stream_bytes, TEXT_BYTES - WAITING_BYTES, TEXT_BYTES);
    assert_int_equal(commit.step, commit.stream_bytes / BATCH_BYTES);
    pool_check(box);
}

static void running_again_with_nothing_new_changes_nothing(void **state) {
    const sandbox *box = *state;
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", box->text), 0);
    reef_commit first = pool_commit(box);
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", box->text), 0);
    reef_commit second = pool_commit(box);
    assert_int_equal(first.number, second.number);
    assert_same_root(&first, &second);
}

static void a_file_that_grew_is_read_on(void **state) {
    const sandbox *box = *state;
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", box->text), 0);
    reef_commit whole = pool_commit(box);

    assert_int_equal(truncate(box->text, 12345), 0);
    sandbox_make_pool(box);
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", box->text), 0);
    reef_commit part = pool_commit(box);
    assert_true(part.stream_bytes < whole.stream_bytes);
    write_text(box->text, TEXT_BYTES, 1); // begins with the same bytes
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", box->text), 0);
    reef_commit rest = pool_commit(box);
    assert_same_root(&whole, &rest);
}

static void threads_and_commits_leave_no_trace(void **state) {
    const sandbox *box = *state;
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", box->text, "--threads", "1"), 0);
    reef_commit one = pool_commit(box);
    static const char *const OTHERS[][6] = {
        {"--threads", "2", "--commit-steps", "7", "--commit-seconds", "0"},
        {"--threads", "3", "--commit-steps", "0", "--commit-seconds", "0.05"},
        {"--threads", "2", "--commit-steps", "0", "--commit-seconds", "0"},
    };
    for (size_t i = 0; i < sizeof(OTHERS) / sizeof(*OTHERS); i++) {
        sandbox_make_pool(box);
        const char *const *more = OTHERS[i];
        assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", box->text, more[0], more[1],
                             more[2], more[3], more[4], more[5]),
                         0);
        reef_commit other = pool_commit(box);
        assert_same_root(&one, &other);
        assert_int_equal(one.step, other.step);
    }
}

static void several_sources_follow_each_other(void **state) {
    const sandbox *box = *state;
    char second[192];
    snprintf(second, sizeof(second), "file:%s/second", box->directory);
    write_text(second + strlen("file:"), 5001, 2);
    assert_int_equal(
        RUN(box, -1, "--pool", box->pool, "--source", box->text, "--source", second, "--json-log"),
        0);
    json_t *event = last_event(box);
    assert_int_equal(count_in(event, "stream_bytes") + count_in(event, "carried_bytes"),
                     TEXT_BYTES + 5001);
    reef_commit together = pool_commit(box);
    // The same in two runs: the end of a run is not a boundary of the stream.
    sandbox_make_pool(box);
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", box->text), 0);
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", second), 0);
    reef_commit apart = pool_commit(box);
    assert_same_root(&together, &apart);
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

static void standard_input_is_the_same_however_it_is_cut(void **state) {
    const sandbox *box = *state;
    int file = open(box->text, O_RDONLY);
    assert_int_equal(RUN(box, file, "--pool", box->pool, "--source", "-"), 0);
    close(file);
    reef_commit whole = pool_commit(box);
    assert_in_range(whole.stream_bytes, TEXT_BYTES - WAITING_BYTES, TEXT_BYTES);
    static const size_t PIECES[] = {13, 4099, 65536};
    for (size_t i = 0; i < sizeof(PIECES) / sizeof(*PIECES); i++) {
        sandbox_make_pool(box);
        pid_t feeder = 0;
        int input = start_feeder(box->text, PIECES[i], &feeder);
        pid_t daemon = reefd_start(
            box, input, (const char *const[]){"--pool", box->pool, "--source", "-", NULL});
        close(input);
        assert_int_equal(reefd_wait(daemon), 0);
        assert_int_equal(reefd_wait(feeder), 0);
        reef_commit cut = pool_commit(box);
        assert_same_root(&whole, &cut);
    }
}

static void standard_input_continues_the_stream(void **state) {
    const sandbox *box = *state;
    int file = open(box->text, O_RDONLY);
    assert_int_equal(RUN(box, file, "--pool", box->pool, "--source", "-"), 0);
    reef_commit whole = pool_commit(box);
    sandbox_make_pool(box);
    char head[192];
    snprintf(head, sizeof(head), "%s/head", box->directory);
    write_text(head, 10001, 1); // the first bytes of the same text
    int first = open(head, O_RDONLY);
    assert_int_equal(RUN(box, first, "--pool", box->pool, "--source", "-"), 0);
    close(first);
    assert_int_equal(lseek(file, 10001, SEEK_SET), 10001);
    assert_int_equal(RUN(box, file, "--pool", box->pool, "--source", "-"), 0);
    close(file);
    reef_commit rest = pool_commit(box);
    assert_same_root(&whole, &rest);
}

// The same bytes from a file and from standard input differ in the name of the cursor only.
static void a_file_and_standard_input_teach_the_same(void **state) {
    const sandbox *box = *state;
    size_t bytes = 0;
    char *text = read_text(box->text, &bytes);
    reef_score scores[2] = {{0}, {0}};
    for (size_t i = 0; i < 2; i++) {
        reef_error err = {0};
        reef_store *store = NULL;
        reef_model *model = NULL;
        int file = open(box->text, O_RDONLY);
        sandbox_make_pool(box);
        assert_int_equal(RUN(box, file, "--pool", box->pool, "--source", i ? "-" : box->text), 0);
        close(file);
        assert_int_equal(reef_store_open(&store, box->pool, &(reef_store_options){0}, &err),
                         REEF_OK);
        assert_int_equal(
            reef_model_open(&model, store, NULL, &(reef_model_options){.threads = 1}, &err),
            REEF_OK);
        assert_int_equal(reef_model_score(model, (const uint8_t *)text, 2000, NULL, &scores[i],
                                          NULL, NULL, &err),
                         REEF_OK);
        reef_model_close(model);
        reef_store_close(store);
    }
    assert_true(scores[0].bits > 0 && scores[0].bits == scores[1].bits);
}

static void bytes_that_fill_no_batch_are_kept(void **state) {
    const sandbox *box = *state;
    write_text(box->text, 5, 1);
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", box->text, "--json-log"), 0);
    json_t *event = last_event(box);
    assert_int_equal(count_in(event, "step"), 0);
    assert_int_equal(count_in(event, "carried_bytes"), 5);
    const char *next = json_string_value(json_object_get(event, "next"));
    assert_non_null(strstr(next, "less than a step learns from, and waits"));
    assert_int_equal(count_in(event, "commit"), pool_commit(box).number);
}

static void any_bytes_are_text(void **state) {
    const sandbox *box = *state;
    FILE *file = fopen(box->text, "w");
    for (uint64_t seed = 9, i = 0; i < 3000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        fputc((int)(seed >> 40 & 0xff), file);
    }
    fclose(file);
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", box->text), 0);
    pool_check(box);
}

static void odd_paths_have_cursors_too(void **state) {
    const sandbox *box = *state;
    char part[201], path[512];
    memset(part, 'x', 200);
    part[200] = 0;
    snprintf(path, sizeof(path), "%s/%s", box->directory, part);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/%s/odd\xff%.60s", box->directory, part, part);
    write_text(path, 3000, 1);
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", path, "--json-log"), 0);
    reef_commit first = pool_commit(box);
    assert_true(first.step > 0);
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", path), 0);
    assert_int_equal(pool_commit(box).number, first.number); // it knew where it was
}

// ---- what is refused ----------------------------------------------------------------------------

static void what_cannot_be_read_ends_before_training(void **state) {
    const sandbox *box = *state;
    reef_commit before = pool_commit(box);
    char path[192];
    snprintf(path, sizeof(path), "file:%s/absent", box->directory);
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", box->text, "--source", path),
                     66);
    assert_true(reefd_said(box, "reefd: cannot read '") &&
                reefd_said(box, "absent': No such file"));
    snprintf(path, sizeof(path), "file:%s", box->directory);
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", path), 66);
    assert_true(reefd_said(box, "it is a directory"));
    snprintf(path, sizeof(path), "file:%s/fifo", box->directory);
    assert_int_equal(mkfifo(path + strlen("file:"), 0600), 0);
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", path), 66);
    assert_true(reefd_said(box, "not a regular file"));
    int directory = open(box->directory, O_RDONLY);
    assert_int_equal(RUN(box, directory, "--pool", box->pool, "--source", "-"), 66);
    close(directory);
    assert_true(reefd_said(box, "standard input is a directory"));
    assert_int_equal(pool_commit(box).number, before.number);
}

static void what_was_asked_for_wrongly_is_a_usage_error(void **state) {
    const sandbox *box = *state;
    char twice[192], socket[256] = "/tmp/";
    snprintf(twice, sizeof(twice), "file:%s", box->text);
    memset(socket + 5, 's', 200);
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", "tcp:localhost:1"), 64);
    assert_true(reefd_said(box, "unknown kind of source 'tcp'"));
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", "file:"), 64);
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", box->text, "--source", twice),
                     64);
    assert_true(reefd_said(box, "given twice"));
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", box->text, "--frobnicate"), 64);
    assert_true(reefd_said(box, "'--frobnicate'") && reefd_said(box, "reefd --help"));
    assert_int_equal(RUN(box, -1, "--source", box->text), 64);
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", box->text, "--socket", socket),
                     64);
    assert_true(reefd_said(box, "205 bytes") && reefd_said(box, "--socket"));
    assert_int_equal(
        RUN(box, -1, "--pool", box->pool, "--source", box->text, "--socket", "/nonexistent/socket"),
        66);
    assert_true(reefd_said(box, "there is no directory '/nonexistent'"));
    setenv("REEF_ISA", "abacus", 1);
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", box->text), 64);
    unsetenv("REEF_ISA");
    assert_true(reefd_said(box, "abacus"));
}

// A pool that has read a byte of so many sources, named 0, 1, and so on.
static void know_sources(const sandbox *box, size_t count) {
    reef_error err;
    reef_store *store = NULL;
    reef_trainer *trainer = NULL;
    reef_commit commit;
    assert_int_equal(reef_store_open(&store, box->pool, &(reef_store_options){.write = true}, &err),
                     REEF_OK);
    assert_int_equal(
        reef_trainer_open(&trainer, store, &(reef_trainer_options){.threads = 1}, &err), REEF_OK);
    for (size_t i = 0; i < count; i++) {
        char name[24];
        snprintf(name, sizeof(name), "%zu", i);
        assert_int_equal(
            reef_trainer_feed(trainer, name, (const uint8_t *)"x", 1, NULL, NULL, &err), REEF_OK);
    }
    assert_int_equal(reef_trainer_commit(trainer, &commit, &err), REEF_OK);
    reef_trainer_close(trainer);
    reef_store_close(store);
}

// Found while it trains, the same would look like a full disk, and be retried for ever.
static void more_sources_than_a_pool_can_have_are_refused_at_once(void **state) {
    const sandbox *box = *state;
    char other[192];
    snprintf(other, sizeof(other), "%s/other", box->directory);
    write_text(other, 1000, 2);
    know_sources(box, REEF_SOURCE_COUNT_MAX - 1);
    reef_commit before = pool_commit(box);
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", box->text, "--source", other),
                     64);
    assert_true(reefd_said(box, "2 of the sources are new") && reefd_said(box, "dir:PATH"));
    assert_int_equal(pool_commit(box).number, before.number);
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", box->text), 0); // the last one
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", box->text), 0); // is known
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", other), 64);
}

static void a_missing_pool_is_not_found(void **state) {
    const sandbox *box = *state;
    char path[192];
    snprintf(path, sizeof(path), "%s/nowhere", box->directory);
    assert_int_equal(RUN(box, -1, "--pool", path, "--source", box->text), 66);
    assert_true(reefd_said(box, "nowhere"));
    assert_int_not_equal(RUN(box, -1, "--pool", box->directory, "--source", box->text), 0);
}

static void an_empty_stream_is_an_error(void **state) {
    const sandbox *box = *state;
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", "-"), 66);
    assert_true(reefd_said(box, "the stream is empty: nothing to train on in standard input"));
    assert_int_equal(truncate(box->text, 0), 0);
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", box->text, "--source", "-"), 66);
    assert_true(reefd_said(box, box->text) && reefd_said(box, "and the others"));
    write_text(box->text, 100, 1);
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", box->text, "--source", "-"), 0);
}

static void a_file_shorter_than_its_cursor_is_an_error(void **state) {
    const sandbox *box = *state;
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", box->text), 0);
    reef_commit before = pool_commit(box);
    assert_int_equal(truncate(box->text, 100), 0);
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", box->text), 65);
    assert_true(reefd_said(box, "has 100 bytes") && reefd_said(box, "already read 20007"));
    assert_int_equal(pool_commit(box).number, before.number);
}

static void a_second_daemon_is_refused_with_the_pid_of_the_first(void **state) {
    const sandbox *box = *state;
    pid_t first = reefd_start(box, -1, (const char *const[]){"--pool", box->pool, "--stay", NULL});
    reefd_await(box, first);
    char socket[192], number[32];
    snprintf(socket, sizeof(socket), "%s/other.sock", box->directory);
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", box->text), 75);
    snprintf(number, sizeof(number), "%d", (int)first);
    assert_true(reefd_said(box, number));
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", box->text, "--socket", socket),
                     75);
    json_decref(reefd_ask(box, "{\"command\": \"stop\"}")); // the first one still answers
    assert_int_equal(reefd_wait(first), 0);
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

static void training_gives_way_to_replies(void **state) {
    // Under nice all threads of the daemon begin with that niceness, and there is less to see.
    if (getpriority(PRIO_PROCESS, 0) > 0) skip();
    const sandbox *box = *state;
    const char *const arguments[] = {"--pool", box->pool,   "--source", box->text,
                                     "--stay", "--threads", "2",        NULL};
    pid_t pid = reefd_start(box, -1, arguments);
    reefd_await(box, pid);
    // The trainer's own thread, and once they have worked its worker and that of its memory.
    for (int i = 0; i < 1000 && threads_nicer_by(pid, 5) < 3; i++) sleep_ms(10);
    assert_int_equal(threads_nicer_by(pid, 5), 3);
    assert_in_range(threads_nicer_by(pid, 0), 2, 100); // the loop and queries
    (void)reefd_ask(box, "{\"command\": \"stop\"}");
    assert_int_equal(reefd_wait(pid), 0);
}

static void quiet_says_nothing_and_others_say_where_they_are(void **state) {
    const sandbox *box = *state;
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", box->text, "--quiet"), 0);
    size_t bytes = 1;
    free(read_text(box->messages, &bytes));
    assert_int_equal(bytes, 0);
    sandbox_make_pool(box);
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", box->text), 0);
    assert_true(reefd_said(box, "reefd: started: ") && reefd_said(box, "reefd: ended: step "));
    assert_true(reefd_said(box, ", next reef score POOL FILE"));
    assert_int_equal(RUN(box, -1, "--pool", box->pool, "--source", "absent", "--quiet"), 66);
    assert_true(reefd_said(box, "reefd: cannot read 'absent'"));
}

static void help_and_version_end_with_0(void **state) {
    const sandbox *box = *state;
    assert_int_equal(RUN(box, -1, "--help"), 0);
    assert_int_equal(RUN(box, -1, "--version"), 0);
}

// What stays as it was is not told again: an idle daemon fills no journal.
static void an_idle_daemon_says_nothing(void **state) {
    const sandbox *box = *state;
    sandbox_make_pool(box);
    pid_t pid = reefd_start(
        box, -1, (const char *const[]){"--pool", box->pool, "--source", "push:web", NULL});
    reefd_await(box, pid);
    sleep_ms(32000); // three times as long as between two lines
    assert_int_equal(kill(pid, SIGTERM), 0);
    assert_int_equal(reefd_wait(pid), 0);
    char *said = read_text(box->messages, NULL);
    const char *first = strstr(said, "waiting, generation 0");
    assert_non_null(first);
    assert_null(strstr(first + 1, "waiting, generation 0"));
}

static void one_file_under_two_names_is_refused(void **state) {
    const sandbox *box = *state;
    char other[300], followed[400];
    sandbox_make_pool(box);
    snprintf(other, sizeof(other), "%s/./%s", box->directory, strrchr(box->text, '/') + 1);
    snprintf(followed, sizeof(followed), "follow:%s/linked", box->directory);
    write_text(box->text, 3000, 1);
    assert_int_equal(link(box->text, followed + strlen("follow:")), 0);
    const char *const names[] = {other, followed};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(reefd_run(box, -1,
                                   (const char *const[]){"--pool", box->pool, "--source", box->text,
                                                         "--source", names[i], NULL}),
                         64);
        assert_true(reefd_said(box, "are one file, which is read once"));
    }
    assert_int_equal(unlink(followed + strlen("follow:")), 0);
}

TESTS(SET_UP(a_file_is_accepted_to_its_last_byte),
      SET_UP(running_again_with_nothing_new_changes_nothing),
      SET_UP(a_file_that_grew_is_read_on),
      SET_UP(threads_and_commits_leave_no_trace),
      SET_UP(several_sources_follow_each_other),
      SET_UP(standard_input_is_the_same_however_it_is_cut),
      SET_UP(standard_input_continues_the_stream),
      SET_UP(a_file_and_standard_input_teach_the_same),
      SET_UP(bytes_that_fill_no_batch_are_kept),
      SET_UP(any_bytes_are_text),
      SET_UP(odd_paths_have_cursors_too),
      SET_UP(what_cannot_be_read_ends_before_training),
      SET_UP(what_was_asked_for_wrongly_is_a_usage_error),
      SET_UP(more_sources_than_a_pool_can_have_are_refused_at_once),
      SET_UP(a_missing_pool_is_not_found),
      SET_UP(an_empty_stream_is_an_error),
      SET_UP(a_file_shorter_than_its_cursor_is_an_error),
      SET_UP(a_second_daemon_is_refused_with_the_pid_of_the_first),
      SET_UP(training_gives_way_to_replies),
      SET_UP(quiet_says_nothing_and_others_say_where_they_are),
      SET_UP(an_idle_daemon_says_nothing),
      SET_UP(one_file_under_two_names_is_refused),
      SET_UP(help_and_version_end_with_0))
