// reefd on live sources: a log that is rotated, and a Redis Stream. However often the daemon is killed, the server
// dies or the connection is cut, the pool ends with the root hash of a run in which nothing happened.
#include "reefd_run.h"
#include "temp_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define KILLS_FEW 25
#define KILLS_MANY 200
#define LINES_PER_KILL 40
#define ROTATE_LINES 97 // not a divisor of the above
#define ENTRIES 2500
#define PATIENCE_MS 120000

typedef struct world {
    sandbox box;
    char folder[200], log[220], source[300];
    uint64_t written; // bytes
    size_t line;
    pid_t reefd;
    // redis
    char redis_folder[200], redis_socket[240];
    pid_t redis, relay;
    int port;
    struct relay_orders {
        volatile long cut_after; // bytes from the server; less than 0: never
        volatile long cuts;
    } * orders;
} world;

static int setup(void **state) {
    world *w = calloc(1, sizeof(*w));
    sandbox_make(&w->box);
    sandbox_make_pool(&w->box);
    snprintf(w->folder, sizeof(w->folder), "%s/logs", w->box.directory);
    snprintf(w->log, sizeof(w->log), "%s/app.log", w->folder);
    snprintf(w->redis_folder, sizeof(w->redis_folder), "%s/redis", w->box.directory);
    snprintf(w->redis_socket, sizeof(w->redis_socket), "%s/redis.sock", w->redis_folder);
    assert_int_equal(mkdir(w->folder, 0755), 0);
    assert_int_equal(mkdir(w->redis_folder, 0755), 0);
    *state = w;
    return 0;
}

static void end_process(pid_t *pid, int signal) {
    if (*pid <= 0) return;
    kill(*pid, signal);
    waitpid(*pid, NULL, 0);
    *pid = 0;
}

static int teardown(void **state) {
    world *w = *state;
    end_process(&w->reefd, SIGKILL);
    end_process(&w->relay, SIGKILL);
    end_process(&w->redis, SIGKILL);
    if (w->orders) munmap(w->orders, sizeof(*w->orders));
    unsetenv("REEF_REDIS_PASSWORD");
    sandbox_remove(&w->box);
    free(w);
    return 0;
}

static uint64_t draw(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static void start(world *w) {
    w->reefd = reefd_start(&w->box, -1,
                           (const char *const[]){"--pool", w->box.pool, "--source", w->source,
                                                 "--threads", "2", "--commit-steps", "20", NULL});
}

static uint64_t cursor(const world *w) {
    json_t *status = reefd_ask(&w->box, "{\"command\": \"status\"}");
    json_t *source = json_array_get(json_object_get(status, "sources"), 0);
    uint64_t bytes = (uint64_t)json_integer_value(json_object_get(source, "cursor"));
    json_decref(status);
    return bytes;
}

// Until all that was written is accepted; then the daemon ends, and leaves the commit that is returned.
static reef_commit finish(world *w) {
    reefd_await(&w->box, w->reefd);
    unsigned waited = 0;
    while (cursor(w) < w->written && waited < PATIENCE_MS) {
        sleep_ms(50);
        waited += 50;
    }
    sleep_ms(200); // what must not come would come now
    assert_int_equal(cursor(w), w->written);
    kill(w->reefd, SIGTERM);
    pid_t pid = w->reefd;
    w->reefd = 0;
    assert_int_equal(reefd_wait(pid), 0);
    pool_check(&w->box);
    return pool_commit(&w->box);
}

static void assert_same(const reef_commit *a, const reef_commit *b) {
    assert_int_equal(a->stream_bytes, b->stream_bytes);
    assert_int_equal(a->step, b->step);
    assert_memory_equal(a->root, b->root, REEF_HASH_BYTES);
}

static void command(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void command(const char *format, ...) {
    char line[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    if (system(line) != 0) fail_msg("failed: %s", line);
}

static bool have(const char *program, const char *package) {
    char line[128];
    snprintf(line, sizeof(line), "command -v %s >/dev/null 2>&1", program);
    if (system(line) == 0) return true;
    print_message("skipped: no %s; install the package %s\n", program, package);
    return false;
}

// ---- a log ---------------------------------------------------------------------------------------

static void rotate(const world *w, const char *how) {
    char conf[260];
    snprintf(conf, sizeof(conf), "%s/rotate.conf", w->box.directory);
    FILE *file = fopen(conf, "w");
    assert_non_null(file);
    fprintf(file, "%s {\n    rotate 400\n    missingok\n    %s\n}\n", w->log, how);
    fclose(file);
    assert_int_equal(chmod(conf, 0644), 0);
    command("logrotate --force --state '%s/rotate.state' '%s'", w->box.directory, conf);
}

static void write_line(world *w, const char *how) {
    if (++w->line % ROTATE_LINES == 0) rotate(w, how);
    FILE *log = fopen(w->log, "a");
    assert_non_null(log);
    w->written += (uint64_t)fprintf(log, "%zu: request %zu took %zu ms\n", w->line,
                                    w->line * 7919 % 1000, w->line * 104729 % 97);
    fclose(log);
}

static void write_lines(world *w, size_t count, const char *how) {
    for (size_t i = 0; i < count; i++) write_line(w, how);
}

static void clear(world *w) {
    temp_dir_remove(w->folder);
    assert_int_equal(mkdir(w->folder, 0755), 0);
    sandbox_make_pool(&w->box);
    w->written = 0;
    w->line = 0;
}

static void kill_while_following(world *w, const char *how) {
    if (!have("logrotate", "logrotate")) skip();
    size_t kills = test_effort(KILLS_FEW, KILLS_MANY);
    uint64_t seed = 3;
    snprintf(w->source, sizeof(w->source), "follow:%s", w->log);
    start(w);
    write_lines(w, kills * LINES_PER_KILL, how);
    reef_commit whole = finish(w);
    uint64_t bytes = w->written;

    clear(w);
    for (size_t i = 0; i < kills; i++) {
        start(w);
        if (i % 2) reefd_await(&w->box, w->reefd);
        size_t alive =
            draw(&seed) % (LINES_PER_KILL + 1); // the others are written while nobody reads
        for (size_t k = 0; k < alive; k++) {
            write_line(w, how);
            if (draw(&seed) % 8 == 0) sleep_ms((unsigned)(draw(&seed) % 40));
        }
        if (i % 4 == 3) sleep_ms((unsigned)(draw(&seed) % 3000));
        end_process(&w->reefd, SIGKILL);
        write_lines(w, LINES_PER_KILL - alive, how);
    }
    start(w);
    reef_commit commit = finish(w);
    assert_int_equal(w->written, bytes);
    assert_same(&commit, &whole);
}

static void kills_leave_no_trace_in_a_log_that_is_renamed(void **state) {
    kill_while_following(*state, "create");
}

static void kills_leave_no_trace_in_a_log_that_is_packed(void **state) {
    kill_while_following(*state, "create\n    compress\n    delaycompress");
}

static void kills_leave_no_trace_in_a_log_that_is_copied(void **state) {
    kill_while_following(*state, "copytruncate");
}

static void a_folder_that_grows_is_read(void **state) {
    world *w = *state;
    snprintf(w->source, sizeof(w->source), "dir:%s/*.log", w->folder);
    start(w);
    reefd_await(&w->box, w->reefd);
    write_lines(w, 50, "");
    snprintf(w->log, sizeof(w->log), "%s/other.log", w->folder);
    write_lines(w, 40, "");
    snprintf(w->log, sizeof(w->log), "%s/other.txt", w->folder);
    uint64_t written = w->written;
    write_lines(w, 5, ""); // the pattern does not fit
    w->written = written;
    reef_commit commit = finish(w);
    assert_int_equal(commit.stream_bytes / 10, written / 10); // but for less than a batch
}

static void a_log_that_is_not_there_does_not_end_the_daemon(void **state) {
    world *w = *state;
    snprintf(w->source, sizeof(w->source), "follow:%s", w->log);
    start(w);
    reefd_await(&w->box, w->reefd);
    for (int i = 0; i < 100 && access(w->log, F_OK) != 0; i++) {
        char *said = read_text(w->box.messages, NULL);
        bool waits = strstr(said, "it is waited for");
        free(said);
        if (waits) write_lines(w, 60, "");
        sleep_ms(100);
    }
    (void)finish(w);
    assert_true(reefd_said(&w->box, "it is waited for"));
    assert_true(reefd_said(&w->box, "is there"));
}

// ---- Redis ---------------------------------------------------------------------------------------

static void redis_command(const world *w, const char *words) {
    command("redis-cli -s '%s' %s >/dev/null", w->redis_socket, words);
}

static void start_redis(world *w, const char *password) {
    w->redis = fork();
    assert_true(w->redis >= 0);
    if (w->redis == 0) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", w->redis_socket,
               "--dir", w->redis_folder, "--appendonly", "yes", "--appendfsync", "always", "--save",
               "", "--requirepass", password, (char *)NULL);
        _exit(127);
    }
    char ping[400];
    snprintf(ping, sizeof(ping), "redis-cli -s '%s' ping 2>&1 | grep -q 'PONG\\|NOAUTH'",
             w->redis_socket);
    for (int i = 0; i < 200 && system(ping) != 0; i++) sleep_ms(50);
    assert_int_equal(system(ping), 0);
}

// Entries first to last - 1, their ids given, so that a second run has the same.
static void add_entries(world *w, size_t first, size_t last) {
    char line[400];
    snprintf(line, sizeof(line), "redis-cli -s '%s' >/dev/null", w->redis_socket);
    FILE *cli = popen(line, "w");
    assert_non_null(cli);
    for (size_t i = first; i < last; i++) {
        char text[100];
        int bytes = snprintf(text, sizeof(text), "%zu: order %zu of %zu pieces", i, i * 7919 % 1000,
                             i * 104729 % 97);
        fprintf(cli, "XADD stream %zu-1 other x text \"%s\"\n", i + 1, text);
        w->written += (uint64_t)bytes + 1;
    }
    assert_int_equal(pclose(cli), 0);
}

static int redis_connection(const world *w) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof(to.sun_path), "%.100s", w->redis_socket);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

// Both ways until one side ends, or the order to cut comes due: then the last bytes pass, and no more.
static void pass_on(struct relay_orders *orders, int client, int server) {
    struct pollfd ends[2] = {{.fd = client, .events = POLLIN}, {.fd = server, .events = POLLIN}};
    char bytes[4096];
    for (;;) {
        if (poll(ends, 2, -1) < 0) return;
        for (int i = 0; i < 2; i++) {
            if (!ends[i].revents) continue;
            ssize_t count = read(ends[i].fd, bytes, sizeof(bytes));
            if (count <= 0) return;
            bool cut = i == 1 && orders->cut_after >= 0 && orders->cut_after < count;
            if (cut) count = orders->cut_after;
            if (i == 1 && orders->cut_after >= 0) orders->cut_after -= count;
            if (write(ends[1 - i].fd, bytes, (size_t)count) != count) return;
            if (cut) {
                orders->cut_after = -1;
                orders->cuts++;
                return;
            }
        }
    }
}

// Between reefd and the server, on a port of its own.
static void start_relay(world *w) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(at);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(listener >= 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(listener, 5), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &bytes), 0);
    w->port = ntohs(at.sin_port);
    char shared[260];
    snprintf(shared, sizeof(shared), "%s/orders", w->box.directory);
    int fd = open(shared, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, sizeof(*w->orders)), 0);
    w->orders = mmap(NULL, sizeof(*w->orders), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    assert_true(w->orders != MAP_FAILED);
    w->orders->cut_after = -1;
    w->relay = fork();
    assert_true(w->relay >= 0);
    if (w->relay == 0) {
        (void)signal(SIGPIPE, SIG_IGN);
        for (;;) {
            int client = accept(listener, NULL, NULL), server = redis_connection(w);
            if (client >= 0 && server >= 0) pass_on(w->orders, client, server);
            if (client >= 0) close(client);
            if (server >= 0) close(server);
        }
    }
    close(listener);
}

static void empty_redis(world *w) {
    end_process(&w->redis, SIGKILL);
    temp_dir_remove(w->redis_folder);
    assert_int_equal(mkdir(w->redis_folder, 0755), 0);
    sandbox_make_pool(&w->box);
    w->written = 0;
}

static void no_failure_of_redis_leaves_a_trace(void **state) {
    world *w = *state;
    if (!have("redis-server", "redis-server")) skip();
    uint64_t seed = 5;
    start_redis(w, "");
    start_relay(w);
    snprintf(w->source, sizeof(w->source), "redis://127.0.0.1:%d/stream", w->port);
    start(w);
    add_entries(w, 0, ENTRIES);
    reef_commit whole = finish(w);

    empty_redis(w);
    start_redis(w, "");
    start(w);
    const size_t parts = 25;
    for (size_t i = 0; i < parts; i++) {
        w->orders->cut_after = (long)(draw(&seed) % 6000); // mostly within a record
        add_entries(w, i * ENTRIES / parts, (i + 1) * ENTRIES / parts);
        sleep_ms((unsigned)(draw(&seed) % 500));
        if (i % 5 == 2) {
            end_process(&w->redis, SIGKILL);
            sleep_ms((unsigned)(draw(&seed) % 300));
            start_redis(w, "");
        }
        if (i % 3 == 1) {
            end_process(&w->reefd, SIGKILL);
            start(w);
        }
    }
    w->orders->cut_after = -1;
    reef_commit commit = finish(w);
    assert_true(w->orders->cuts >= 5);
    assert_same(&commit, &whole);
}

static void await_words(const world *w, const char *words) {
    for (int i = 0; i < 300; i++) {
        char *said = read_text(w->box.messages, NULL);
        bool found = strstr(said, words);
        free(said);
        if (found) return;
        sleep_ms(100);
    }
    assert_true(reefd_said(&w->box, words));
}

static void a_server_that_is_away_is_waited_for(void **state) {
    world *w = *state;
    if (!have("redis-server", "redis-server")) skip();
    snprintf(w->source, sizeof(w->source), "redis://%s/stream", w->redis_socket);
    start(w);
    await_words(w, "it is tried again");
    sleep_ms(1000);
    start_redis(w, "");
    add_entries(w, 0, 200);
    (void)finish(w);
    char *said = read_text(w->box.messages, NULL);
    assert_ptr_equal(strstr(strstr(said, "tried again") + 1, "tried again"), NULL); // told once
    free(said);
    assert_true(reefd_said(&w->box, "is back"));
}

static void a_wrong_password_or_key_is_told_and_no_password(void **state) {
    world *w = *state;
    if (!have("redis-server", "redis-server")) skip();
    start_redis(w, "geheim");
    snprintf(w->source, sizeof(w->source), "redis://:falsch@%s/stream", w->redis_socket);
    start(w);
    await_words(w, "WRONGPASS");
    end_process(&w->reefd, SIGKILL);
    char *said = read_text(w->box.messages, NULL);
    assert_null(strstr(said, "falsch"));
    free(said);

    snprintf(w->source, sizeof(w->source), "redis://%s/stream", w->redis_socket);
    setenv("REEF_REDIS_PASSWORD", "geheim", 1);
    setenv("REDISCLI_AUTH", "geheim", 1);
    redis_command(w, "SET stream x");
    start(w);
    await_words(w, "WRONGTYPE");
    redis_command(w, "DEL stream");
    add_entries(w, 0, 200);
    (void)finish(w);
    unsetenv("REDISCLI_AUTH");
    assert_true(reefd_said(&w->box, "is back"));
}

static void entries_that_were_trimmed_unread_are_told(void **state) {
    world *w = *state;
    if (!have("redis-server", "redis-server")) skip();
    snprintf(w->source, sizeof(w->source), "redis://%s/stream", w->redis_socket);
    start_redis(w, "");
    add_entries(w, 0, 200);
    start(w);
    (void)finish(w);
    uint64_t read = w->written;
    redis_command(w, "XTRIM stream MAXLEN 5"); // all were read: no loss
    add_entries(w, 200, 300);
    redis_command(w, "XTRIM stream MAXLEN 0");
    w->written = read;
    add_entries(w, 300, 400);
    start(w);
    (void)finish(w);
    assert_true(reefd_said(&w->box, "100 entries of"));
}

static void bad_urls_are_refused(void **state) {
    world *w = *state;
    const char *const urls[] = {"redis:stream",       "redis://host",
                                "redis://host/",      "redis://:1/stream",
                                "redis://h:x/stream", "redis://h:70000/s",
                                "redis://h/s?db=x",   "redis://h/s?fiel=x",
                                "redis://h/a/b",      "redis://u:geheim%zz@h/s",
                                "redis:///stream",    "redis://[::1/s"};
    for (size_t i = 0; i < sizeof(urls) / sizeof(*urls); i++) {
        int code = reefd_run(
            &w->box, -1, (const char *const[]){"--pool", w->box.pool, "--source", urls[i], NULL});
        assert_int_equal(code, reef_status_exit_code(REEF_INVALID));
        char *said = read_text(w->box.messages, NULL);
        assert_null(strstr(said, "geheim"));
        free(said);
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_log_that_is_not_there_does_not_end_the_daemon),
        TEST(a_folder_that_grows_is_read),
        TEST(kills_leave_no_trace_in_a_log_that_is_renamed),
        TEST(kills_leave_no_trace_in_a_log_that_is_packed),
        TEST(kills_leave_no_trace_in_a_log_that_is_copied),
        TEST(bad_urls_are_refused),
        TEST(a_server_that_is_away_is_waited_for),
        TEST(a_wrong_password_or_key_is_told_and_no_password),
        TEST(entries_that_were_trimmed_unread_are_told),
        TEST(no_failure_of_redis_leaves_a_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
