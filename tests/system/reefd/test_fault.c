// reefd when the world does not cooperate: a disk that is full, and a sender faster than training.
#include "http_client.h"
#include "reefd_run.h"

#include "scheduler.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "small_disk.h"
#include "test.h"

#define TEXT_BYTES 30000
#define FLOOD_BYTES (64u << 20)
#define PIPE_BYTES 65536 // what Linux keeps in a pipe

typedef struct small_disk {
    sandbox box;      // the text and the messages
    sandbox disk;     // a pool on a disk of its own
    char filler[192]; // takes what is left of it
} small_disk;

static int setup_disk(void **state) {
    small_disk *small = calloc(1, sizeof(*small));
    *state = small;
    sandbox_make(&small->box);
    write_text(small->box.text, TEXT_BYTES, 1);
    sandbox_make(&small->disk);
    if (!small_disk_mount(small->disk.directory, "8m")) {
        sandbox_remove(&small->disk);
        small->disk.directory[0] = 0;
        return 0;
    }
    sandbox_make_pool(&small->disk);
    snprintf(small->filler, sizeof(small->filler), "%s/filler", small->disk.directory);
    return 0;
}

static int teardown_disk(void **state) {
    small_disk *small = *state;
    if (small->disk.directory[0]) {
        small_disk_unmount(small->disk.directory);
        sandbox_remove(&small->disk);
    }
    sandbox_remove(&small->box);
    free(small);
    return 0;
}

static pid_t start_on(const small_disk *small, const char *retries) {
    assert_int_equal(setenv("REEF_TEST_COMMIT_RETRIES", retries, 1), 0);
    pid_t pid = reefd_start(&small->box, -1,
                            (const char *const[]){"--pool", small->disk.pool, "--source",
                                                  small->box.text, "--commit-steps", "50", NULL});
    assert_int_equal(unsetenv("REEF_TEST_COMMIT_RETRIES"), 0);
    return pid;
}

static reef_commit uninterrupted(const small_disk *small) {
    assert_int_equal(reefd_wait(start_on(small, "0")), 0);
    reef_commit commit = pool_commit(&small->disk);
    sandbox_make_pool(&small->disk);
    return commit;
}

#define FIXTURE_TEST(name) TEST_WITH(name, setup_disk, teardown_disk, small_disk *small)

FIXTURE_TEST(a_full_disk_ends_it_and_loses_nothing_committed) {
    if (!small->disk.directory[0]) skip();
    reef_commit whole = uninterrupted(small), before = pool_commit(&small->disk);
    small_disk_fill(small->filler);
    assert_int_equal(reefd_wait(start_on(small, "1")), 73);
    assert_true(reefd_said(&small->box, "trying again in 1 s (1 of 1)"));
    reef_commit after = pool_commit(&small->disk);
    assert_int_equal(after.number, before.number);
    assert_memory_equal(after.root, before.root, REEF_HASH_BYTES);
    pool_check(&small->disk);
    // With room again it continues, and the failure leaves no trace in the result.
    assert_int_equal(unlink(small->filler), 0);
    assert_int_equal(reefd_wait(start_on(small, "0")), 0);
    after = pool_commit(&small->disk);
    assert_memory_equal(after.root, whole.root, REEF_HASH_BYTES);
    pool_check(&small->disk);
}

// A daemon whose commits fail, and that tries for half a minute.
static pid_t start_on_a_full_disk(small_disk *small) {
    (void)pool_commit(&small->disk); // the first one to open a pool makes its lock file
    small_disk_fill(small->filler);
    pid_t pid = start_on(small, "5");
    reefd_await(&small->disk, pid);
    while (is_null(reefd_status(&small->disk), "commit_error")) sleep_ms(2); // it answers
    return pid;
}

FIXTURE_TEST(room_that_comes_back_in_time_saves_the_run) {
    if (!small->disk.directory[0]) skip();
    reef_commit whole = uninterrupted(small);
    pid_t pid = start_on_a_full_disk(small);
    assert_int_equal(unlink(small->filler), 0);
    assert_int_equal(reefd_wait(pid), 0);
    assert_true(reefd_said(&small->box, "the commit went through"));
    reef_commit after = pool_commit(&small->disk);
    assert_same(&after, &whole);
    pool_check(&small->disk);
}

// A followed log and a disk that is full for a while: probes hear of it at once, and the state that
// comes of it is that of a run without.
FIXTURE_TEST(a_full_disk_is_not_ready_and_leaves_no_trace) {
    char source[200];
    size_t bytes = 0;
    if (!small->disk.directory[0]) skip();
    char *text = read_text(small->box.text, &bytes);
    text[bytes - 1] = '\n'; // a followed line is given once it has its end
    snprintf(source, sizeof(source), "follow:%s", small->box.text);
    memcpy(small->disk.messages, small->box.messages, sizeof(small->disk.messages));
    reef_commit whole = {0};
    for (int full = 0; full < 2; full++) {
        sandbox_make_pool(&small->disk);
        write_mode(small->box.text, "", 0644);
        (void)pool_commit(&small->disk); // the first one to open a pool makes its lock file
        if (full) small_disk_fill(small->filler);
        START(&small->disk, "--source", source, "--commit-steps", "50", "--http", "127.0.0.1:0");
        write_mode(small->box.text, text, 0644);
        while (full && is_null(reefd_status(&small->disk), "commit_error")) sleep_ms(2);
        if (full) {
            http_answer answer = http_ask(small->disk.address, "GET", "/readyz", "", "", 0);
            assert_int_equal(answer.code, 503);
            assert_non_null(strstr(answer.body, "commits fail"));
            assert_int_equal(unlink(small->filler), 0);
            await_said(&small->disk, "the commit went through");
            assert_int_equal(http_ask(small->disk.address, "GET", "/readyz", "", "", 0).code, 200);
        }
        await_count(&small->disk, "sources.0.cursor", (int64_t)bytes);
        reefd_end(&small->disk);
        reef_commit commit = pool_commit(&small->disk);
        if (full)
            assert_same(&commit, &whole);
        else
            whole = commit;
    }
}

// The longest pauses between two attempts are minutes: a request does not wait for them.
FIXTURE_TEST(commands_are_answered_while_commits_fail) {
    static const char COMMIT[] = "{\"command\": \"commit\"}";
    if (!small->disk.directory[0]) skip();
    reef_commit whole = uninterrupted(small);
    pid_t pid = start_on_a_full_disk(small);
    assert_int_equal(reefd_refuses(&small->disk, COMMIT), REEF_ERR_FULL);
    assert_int_equal(reefd_refuses(&small->disk, "{\"command\": \"pause\"}"), REEF_ERR_FULL);
    (void)reefd_tell(&small->disk, "resume");
    assert_false(reefd_said(&small->box, "the commit went through"));
    // Once there is room a request for a commit ends the pause.
    assert_int_equal(unlink(small->filler), 0);
    (void)reefd_ask(&small->disk, COMMIT);
    assert_int_equal(reefd_wait(pid), 0);
    assert_true(reefd_said(&small->box, "the commit went through"));
    assert_memory_equal(pool_commit(&small->disk).root, whole.root, REEF_HASH_BYTES);
    pool_check(&small->disk);
}

// A client that got a failure would never think of ending it.
FIXTURE_TEST(a_pause_that_cannot_commit_pauses_nothing) {
    static const char PAUSE[] = "{\"command\": \"pause\"}", DRAIN[] = "{\"command\": \"drain\"}";
    size_t bytes = 0;
    if (!small->disk.directory[0]) skip();
    char *text = read_text(small->box.text, &bytes);
    (void)pool_commit(&small->disk); // the first one to open a pool makes its lock file
    small_disk_fill(small->filler);
    memcpy(small->disk.messages, small->box.messages, sizeof(small->disk.messages));
    START_PIPED(&small->disk, "--commit-steps", "0", "--commit-seconds", "0");
    int to = small->disk.input;
    assert_int_equal(write(to, text, bytes / 2), bytes / 2);
    while (reefd_count(&small->disk, "step") == 0) sleep_ms(2);
    assert_int_equal(reefd_refuses(&small->disk, PAUSE), REEF_ERR_FULL);
    // What comes now is trained as well, which a pause would refuse to wait for: only its commit
    // fails.
    assert_int_equal(write(to, text + bytes / 2, bytes - bytes / 2), bytes - bytes / 2);
    assert_int_equal(reefd_refuses(&small->disk, DRAIN), REEF_ERR_FULL);
    assert_int_equal(unlink(small->filler), 0);
    (void)reefd_ask(&small->disk, PAUSE);
    assert_int_equal(pool_commit(&small->disk).step, reefd_count(&small->disk, "step"));
    (void)reefd_tell(&small->disk, "stop");
    reefd_await_end(&small->disk);
}

// ---- back-pressure ------------------------------------------------------------------------------

static long resident_kb(pid_t pid) {
    char path[64], line[256];
    long kb = -1;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, "VmRSS:", 6) == 0) kb = strtol(line + 6, NULL, 10);
    fclose(file);
    assert_true(kb > 0);
    return kb;
}

// Push as long as the daemon takes it; returns the bytes sent so far.
static uint64_t push(int fd, uint64_t sent) {
    static const char BLOCK[65536] = "the sender is faster than the trainer ";
    while (sent < FLOOD_BYTES) {
        ssize_t count = write(fd, BLOCK, sizeof(BLOCK));
        if (count < 0 && errno == EAGAIN) break;
        assert_true(count > 0);
        sent += (uint64_t)count;
    }
    return sent;
}

NEW_BOX_TEST(a_fast_sender_has_to_wait) {
    // With its sanitizer the daemon keeps what it freed, and more the longer this takes.
    const char *was = getenv("ASAN_OPTIONS");
    char options[256];
    snprintf(options, sizeof(options), "%s:quarantine_size_mb=4", was != NULL ? was : "");
    setenv("ASAN_OPTIONS", options, 1);
    START_PIPED(box, NULL);
    int to = box->input;
    assert_int_equal(fcntl(to, F_SETFL, O_NONBLOCK), 0);
    long before_kb = resident_kb(box->pid);
    uint64_t sent = 0;
    size_t full = 0; // how often the queue was seen at its mark
    while (full < 50) {
        sent = push(to, sent);
        int64_t waiting = reefd_count(box, "queue_bytes");
        assert_true(waiting <= REEF_QUEUE_BYTES_HIGH + REEF_READ_BYTES_MAX);
        full += waiting > REEF_QUEUE_BYTES_HIGH / 2 && sent == push(to, sent);
    }
    // What was sent is trained, in the queue or in the pipe, and nowhere else.
    json_t *status = reefd_status(box);
    json_t *source = json_at(status, "sources.0");
    int64_t taken = integer(source, "cursor") + integer(status, "queue_bytes");
    assert_true(sent < FLOOD_BYTES);
    assert_true((int64_t)sent - taken <= PIPE_BYTES);
    assert_true(resident_kb(box->pid) - before_kb < (long)(FLOOD_BYTES / 1024 / 2));
    reefd_kill(box);
    pool_check(box);
}

RUN_TESTS
