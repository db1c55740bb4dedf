// What a service manager hears of reefd, over a real datagram socket as NOTIFY_SOCKET: that it is
// ready, reloads and stops, how it stands, and that training lives; and that a trainer that gets
// nowhere feeds no watchdog.
#include "reefd_run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "small_disk.h"
#include "test.h"

#define TEXT_BYTES 5000000 // more than any of these tests waits for
#define WATCHDOG_US "1000000"
#define QUIET_MS 3000 // three watchdogs long; a fed one is fed within one
#define WAIT_MS 60000
#define MESSAGES_MAX 400 // a minute and a half of them

typedef struct manager {
    sandbox box;
    int fd;         // NOTIFY_SOCKET
    char disk[200]; // a small one; empty: none
} manager;

static int setup(void **state) {
    manager *m = (manager *)sandbox_new(state, sizeof(*m));
    write_text(m->box.text, TEXT_BYTES, 1);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%.90s/notify", m->box.directory);
    m->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_true(m->fd >= 0);
    assert_int_equal(bind(m->fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(setenv("NOTIFY_SOCKET", address.sun_path, 1), 0);
    assert_int_equal(setenv("WATCHDOG_USEC", WATCHDOG_US, 1), 0);
    return 0;
}

static int teardown(void **state) {
    manager *m = *state;
    assert_int_equal(unsetenv("NOTIFY_SOCKET"), 0);
    assert_int_equal(unsetenv("WATCHDOG_USEC"), 0);
    reefd_kill(&m->box);
    close(m->fd);
    if (m->disk[0]) small_disk_unmount(m->disk);
    return sandbox_teardown(state);
}

// The next message, or false when none comes in time.
static bool hear(const manager *m, int wait_ms, char message[1024]) {
    struct pollfd wait = {.fd = m->fd, .events = POLLIN};
    int ready = poll(&wait, 1, wait_ms);
    if (ready <= 0) return false;
    ssize_t bytes = recv(m->fd, message, 1023, 0);
    assert_true(bytes > 0);
    message[bytes] = '\0';
    return true;
}

// Wait for a message that begins with `begin` and has `word` in it.
static void await_word(const manager *m, const char *begin, const char *word, char message[1024]) {
    for (size_t heard = 0; heard < MESSAGES_MAX; heard++) {
        if (!hear(m, WAIT_MS, message)) break;
        if (strncmp(message, begin, strlen(begin)) == 0 && strstr(message, word) != NULL) return;
    }
    fail_msg("'%s' with '%s' was never sent", begin, word);
}

static void await(const manager *m, const char *begin, char message[1024]) {
    await_word(m, begin, "", message);
}

static void forget(const manager *m) {
    char message[1024];
    while (hear(m, 0, message)) continue;
}

// Whether the watchdog is fed within some of its times.
static bool is_fed(const manager *m) {
    char message[1024];
    for (int left = QUIET_MS; left > 0; left -= 100) {
        while (hear(m, 0, message))
            if (strcmp(message, "WATCHDOG=1") == 0) return true;
        sleep_ms(100);
    }
    return false;
}

// With standard input open, without waiting for it.
static void start(manager *m, const char *source) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(fcntl(ends[1], F_SETFD, FD_CLOEXEC), 0);
    m->box.pid = reefd_start(
        &m->box, ends[0], (const char *const[]){"--pool", m->box.pool, "--source", source, NULL});
    close(ends[0]);
    m->box.input = ends[1];
}

// Wait for its end and listen: a manager that does not makes its sender wait.
static void await_end(manager *m) {
    char message[1024];
    int state = 0;
    await(m, "STOPPING=1", message);
    for (pid_t ended = 0; ended == 0; ended = waitpid(m->box.pid, &state, WNOHANG))
        while (hear(m, 20, message)) assert_null(strstr(message, "STOPPING")); // said once
    m->box.pid = 0;
    assert_true(WIFEXITED(state));
    assert_int_equal(WEXITSTATUS(state), 0);
}

static void stop(manager *m) {
    assert_int_equal(kill(m->box.pid, SIGTERM), 0);
    await_end(m);
}

#define FIXTURE_TEST(name) TEST_WITH(name, setup, teardown, manager *m)

FIXTURE_TEST(the_manager_hears_of_every_change) {
    char message[1024];
    start(m, m->box.text);
    assert_true(hear(m, WAIT_MS, message));
    assert_ptr_equal(strstr(message, "STATUS="), message); // a line from the first moment
    assert_non_null(strstr(message, "generation 0, "));
    assert_true(hear(m, WAIT_MS, message));
    assert_string_equal(message, "READY=1"); // and then the socket answers
    assert_true(reefd_count(&m->box, "pid") == m->box.pid);
    await(m, "WATCHDOG=1", message);
    (void)reefd_tell(&m->box, "reload");
    await(m, "RELOADING=1\nMONOTONIC_USEC=", message);
    await(m, "READY=1", message);
    assert_int_equal(kill(m->box.pid, SIGHUP), 0);
    await(m, "RELOADING=1", message);
    await(m, "READY=1", message);
    await(m, "WATCHDOG=1", message); // continues
    stop(m);
}

FIXTURE_TEST(the_end_of_the_sources_is_reported_as_well) {
    char message[1024];
    write_text(m->box.text, 5000, 1);
    start(m, m->box.text);
    await(m, "READY=1", message);
    await_end(m);
}

FIXTURE_TEST(waiting_for_bytes_or_paused_it_lives) {
    char message[1024];
    start(m, "-");
    await(m, "STATUS=waiting", message);
    assert_non_null(strstr(message, "no loss yet"));
    for (int i = 0; i < 3; i++) await(m, "WATCHDOG=1", message);
    (void)reefd_tell(&m->box, "pause");
    await(m, "STATUS=paused", message);
    for (int i = 0; i < 3; i++) await(m, "WATCHDOG=1", message);
    stop(m);
}

FIXTURE_TEST(a_process_that_is_held_is_not_fed) {
    char message[1024];
    start(m, m->box.text);
    await(m, "WATCHDOG=1", message);
    assert_int_equal(kill(m->box.pid, SIGSTOP), 0);
    sleep_ms(100); // a stop is not at once
    forget(m);
    assert_false(is_fed(m));
    assert_int_equal(kill(m->box.pid, SIGCONT), 0);
    await(m, "WATCHDOG=1", message);
    stop(m);
}

static bool commits_fail(const manager *m) {
    return !is_null(reefd_status(&m->box), "commit_error");
}

// The loop lives and answers all the time; it is training that gets nowhere.
FIXTURE_TEST(a_trainer_whose_commits_fail_is_not_fed) {
    char message[1024], filler[220];
    snprintf(m->disk, sizeof(m->disk), "%s", m->box.pool);
    if (!small_disk_mount(m->disk, "2m")) {
        m->disk[0] = '\0';
        skip();
    }
    snprintf(m->box.pool, sizeof(m->box.pool), "%s/pool/pool", m->box.directory);
    snprintf(filler, sizeof(filler), "%s/filler", m->disk);
    sandbox_make_pool(&m->box);
    (void)pool_commit(&m->box); // the first one to open a pool makes its lock file
    small_disk_fill(filler);
    start(m, m->box.text);
    await(m, "READY=1", message);
    for (; !commits_fail(m); sleep_ms(5)) forget(m);
    sleep_ms(300); // what was sent before the failure is under way no more
    forget(m);
    assert_false(is_fed(m));
    assert_true(commits_fail(m));
    assert_int_equal(unlink(filler), 0);
    await(m, "WATCHDOG=1", message); // with room again it trains on
    assert_false(commits_fail(m));
    stop(m);
    pool_check(&m->box);
}

FIXTURE_TEST(without_a_watchdog_or_a_manager_nothing_is_fed) {
    char message[1024];
    assert_int_equal(unsetenv("WATCHDOG_USEC"), 0);
    start(m, m->box.text);
    await(m, "READY=1", message);
    assert_false(is_fed(m));
    stop(m);
    reefd_kill(&m->box); // its pipe, too
    forget(m);
    assert_int_equal(unsetenv("NOTIFY_SOCKET"), 0);
    START(&m->box, "--source", m->box.text);
    reefd_end(&m->box);
    assert_false(hear(m, 0, message));
}

RUN_TESTS
