// reefd takes syslog: from logger and rsyslog, in every form; what it has journalled is learned
// once, whatever is killed, and what it could not take is counted.
#include "http_client.h"
#include "reef_push_journal.h"
#include "reefd_run.h"
#include "test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define KILLS 8
#define JOURNAL_BYTES_MAX ((size_t)1 << 22)

typedef struct world {
    sandbox box; // first: sandbox_teardown takes it for one
    int port;
    char udp[100], tcp[100], local[300]; // sources
    char path[200];                      // of the local socket
    char *journal;
    pid_t rsyslog;
} world;

// One that nobody listens on, of either kind.
static int free_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t bytes = sizeof(address);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    close(fd);
    return ntohs(address.sin_port);
}

static int setup(void **state) {
    world *w = (world *)sandbox_new(state, sizeof(*w));
    w->port = free_port();
    snprintf(w->path, sizeof(w->path), "%s/log", w->box.directory);
    snprintf(w->udp, sizeof(w->udp), "syslog:udp://127.0.0.1:%d", w->port);
    snprintf(w->tcp, sizeof(w->tcp), "syslog:tcp://127.0.0.1:%d", w->port);
    snprintf(w->local, sizeof(w->local), "syslog:unix:%s", w->path);
    return 0;
}

static int teardown(void **state) {
    world *w = *state;
    if (w->rsyslog > 0) {
        kill(w->rsyslog, SIGKILL);
        (void)waitpid(w->rsyslog, NULL, 0);
    }
    return sandbox_teardown(state);
}

#define FIXTURE_TEST(name) TEST_WITH(name, setup, teardown, world *w)

static void shell(const char *format, ...) {
    char line[800];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    if (system(line) != 0) fail_msg("failed: %s", line);
}

// ---- what the journal has -----------------------------------------------------------------------

static const char *name_of(const char *source) {
    char *name = room(REEF_NAME_BYTES_MAX + 100);
    snprintf(name, REEF_NAME_BYTES_MAX + 100, "push:%s", source);
    return name;
}

/** What the journal of a source has held so far; what was trained meanwhile is known from before. */
static const char *journalled(world *w, const char *source) {
    reef_store *store = NULL;
    reef_txn *txn = pool_view(w->box.pool, &store);
    reef_journal_stat stat;
    size_t got = 1;
    reef_error err = {0};
    if (w->journal == NULL) w->journal = room(JOURNAL_BYTES_MAX + 1);
    assert_int_equal(reef_journal_survey(txn, name_of(source), &stat, &err), REEF_OK);
    reef_txn_abort(txn);
    for (uint64_t at = stat.begin; at < stat.end && got > 0; at += got)
        if (reef_journal_read(store, name_of(source), at, (uint8_t *)w->journal + at,
                              JOURNAL_BYTES_MAX - at, &got, &err) != REEF_OK)
            fail_msg("%s", err.message);
    reef_store_close(store);
    return w->journal;
}

// It journals what comes, and learns nothing but what waited before it was paused, which no commit
// trims.
static void start_paused(world *w, const char *source) {
    START(&w->box, "--source", source, "--commit-steps", "0", "--commit-seconds", "3600");
    (void)reefd_tell(&w->box, "pause");
}

static void await_records(const world *w, int64_t count) {
    await_count(&w->box, "sources.0.records", count);
}

// ---- tests --------------------------------------------------------------------------------------

FIXTURE_TEST(every_form_of_logger_is_a_line) {
    static const char *const WAYS[] = {"--rfc3164", "--rfc5424", "--rfc5424=notime,nohost"};
    static const char *const TCP[] = {"", "--octet-count"};
    start_paused(w, w->udp);
    for (size_t i = 0; i < 3; i++)
        shell("logger -n 127.0.0.1 -P %d --udp %s -t app --id=77 'hello %zu'", w->port, WAYS[i], i);
    await_records(w, 3);
    const char *text = journalled(w, w->udp);
    assert_int_equal(times_in(text, "\n"), 3);
    for (size_t i = 0; i < 3; i++) {
        char wanted[40];
        snprintf(wanted, sizeof(wanted), " app[77]: hello %zu\n", i);
        assert_int_equal(times_in(text, wanted), 1);
    }
    assert_int_equal(times_in(text, "Z 127.0.0.1 app[77]: hello 2"), 1);
    assert_int_equal(times_in(text, "<13>"), 0);
    reefd_discard(&w->box);
    w->journal = NULL;

    start_paused(w, w->tcp);
    for (size_t i = 0; i < 4; i++)
        shell("logger -n 127.0.0.1 -P %d --tcp %s %s -t app --id=77 'hello'", w->port, WAYS[i % 2],
              TCP[i / 2]);
    await_records(w, 4);
    assert_int_equal(times_in(journalled(w, w->tcp), " app[77]: hello\n"), 4);
    reefd_discard(&w->box);
    w->journal = NULL;

    start_paused(w, w->local);
    shell("logger -u %s -t app --id=77 hello", w->path);
    await_records(w, 1);
    assert_int_equal(times_in(journalled(w, w->local), "Z app[77]: hello\n"), 1);
}

// ---- numbered messages over one connection ------------------------------------------------------

static int connect_to(const world *w) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)w->port)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

// False when the other end has gone.
static bool send_number(int fd, size_t number) {
    char text[100];
    const int bytes =
        snprintf(text, sizeof(text), "<13>Nov 30 12:00:01 web1 app: n=%06zu\n", number);
    return send(fd, text, (size_t)bytes, MSG_NOSIGNAL) == bytes;
}

FIXTURE_TEST(what_was_journalled_outlives_kills_and_comes_once) {
    uint64_t sent = 0;
    int64_t sure = 0, before = 0;
    for (size_t i = 0; i < KILLS; i++) {
        start_paused(w, w->tcp);
        const int fd = connect_to(w);
        for (size_t k = 0; k < 400; k++) (void)send_number(fd, sent++);
        await_records(w, 100 + (int64_t)i * 30);
        for (size_t k = 0; k < 400; k++) (void)send_number(fd, sent++);
        sure = before + reefd_count(&w->box, "sources.0.records");
        reefd_kill(&w->box);
        close(fd);
        before = (int64_t)times_in(journalled(w, w->tcp), "\n");
        assert_true(before >= sure);
    }
    int64_t last = -1;
    for (const char *at = strstr(journalled(w, w->tcp), "n="); at != NULL;
         at = strstr(at + 1, "n=")) {
        const int64_t number = strtol(at + 2, NULL, 10);
        assert_true(number > last); // in their order, and none twice
        last = number;
    }
    START(&w->box, "--source", w->tcp);
    (void)reefd_tell(&w->box, "drain");
    assert_int_equal(reefd_count(&w->box, "sources.0.cursor"),
                     reefd_count(&w->box, "sources.0.bytes"));
    reefd_end(&w->box);
}

FIXTURE_TEST(a_stop_keeps_what_was_sent) {
    start_paused(w, w->local);
    shell("for i in $(seq 500); do echo \"line $i\"; done | logger -u %s -t app", w->path);
    reefd_end(&w->box);
    assert_int_equal(times_in(journalled(w, w->local), "\n"), 500);
    assert_int_equal(access(w->path, F_OK), -1);
}

FIXTURE_TEST(a_full_journal_holds_up_a_tcp_client_and_loses_nothing) {
    const size_t count = 800000;
    START(&w->box, "--source", w->tcp, "--journal", "100000");
    (void)reefd_tell(&w->box, "pause");
    const int fd = connect_to(w);
    (void)fcntl(fd, F_SETFL, O_NONBLOCK);
    size_t sent = 0, tries = 0;
    while (sent < count && tries < 200) { // until it does not take more
        tries = send_number(fd, sent) ? 0 : tries + 1;
        sent += tries == 0;
        if (tries > 0) sleep_ms(10);
    }
    assert_true(sent < count);
    assert_true(reefd_count(&w->box, "sources.0.journal_bytes") <= 100000);
    (void)reefd_tell(&w->box, "resume");
    const int64_t records = reefd_count(&w->box, "sources.0.records");
    await_count(&w->box, "sources.0.records", records + 1000);
    assert_int_equal(reefd_count(&w->box, "sources.0.dropped"), 0);
    close(fd);
    reefd_end(&w->box);
}

FIXTURE_TEST(whom_nobody_named_is_refused_and_counted) {
    char source[200];
    snprintf(source, sizeof(source), "%s?from=10.0.0.0/8", w->udp);
    START(&w->box, "--source", source, "--source", w->tcp, "--http", "127.0.0.1:0", "--http-token",
          w->box.token);
    shell("logger -n 127.0.0.1 -P %d --udp hello", w->port);
    await_count(&w->box, "sources.0.denied", 1);
    await_said(&w->box, "were refused, the last from 127.0.0.1");
    assert_int_equal(reefd_count(&w->box, "sources.0.records"), 0);
    // A client of another system that sends nothing whole.
    const int fd = connect_to(w);
    assert_int_equal(send(fd, "12 <13>x", 8, 0), 8);
    await_count(&w->box, "sources.1.connections", 1);
    const http_answer metrics =
        http_ask(w->box.address, "GET", "/metrics", "Authorization: Bearer " TOKEN "\r\n", NULL, 0);
    char wanted[300];
    snprintf(wanted, sizeof(wanted), "reef_syslog_denied_total{source=\"%s\"} 1\n",
             name_of(w->udp));
    assert_int_equal(times_in(metrics.body, wanted), 1);
    snprintf(wanted, sizeof(wanted), "reef_syslog_connections{source=\"%s\"} 1\n", name_of(w->tcp));
    assert_int_equal(times_in(metrics.body, wanted), 1);
    close(fd);
    await_count(&w->box, "sources.1.records", 1);
    await_count(&w->box, "sources.1.connections", 0);
    reefd_end(&w->box);
}

FIXTURE_TEST(what_cannot_be_listened_on_is_said) {
    assert_int_equal(RUN(&w->box, "--source", "syslog:udp://127.0.0.1"),
                     reef_status_exit_code(REEF_ERR_INVALID));
    assert_true(reefd_said(&w->box, "syslog: listens on"));
    assert_int_equal(RUN(&w->box, "--source", "syslog:udp://192.0.2.1:514"),
                     reef_status_exit_code(REEF_ERR_IO));
    assert_true(reefd_said(&w->box, "Cannot assign requested address"));
    char other[200];
    snprintf(other, sizeof(other), "%s?from=::1", w->udp);
    assert_int_equal(RUN(&w->box, "--source", w->udp, "--source", other),
                     reef_status_exit_code(REEF_ERR_INVALID));
    // What a killed one left is taken over; what one listens on is not.
    START(&w->box, "--source", w->local);
    reefd_kill(&w->box);
    START(&w->box, "--source", w->local);
    const pid_t first = w->box.pid;
    char pool[200];
    strcpy(pool, w->box.pool);
    snprintf(w->box.pool, sizeof(w->box.pool), "%s/other", w->box.directory);
    sandbox_make_pool(&w->box);
    assert_int_equal(RUN(&w->box, "--source", w->local), reef_status_exit_code(REEF_ERR_BUSY));
    strcpy(w->box.pool, pool);
    w->box.pid = first;
    reefd_end(&w->box);
}

// ---- rsyslog ------------------------------------------------------------------------------------

FIXTURE_TEST(rsyslog_forwards_while_reefd_comes_and_goes) {
    char *config = room(2000), *path = room(300), *input = room(300), *pid_file = room(300);
    snprintf(path, 300, "%s/rsyslog.conf", w->box.directory);
    snprintf(input, 300, "%s/dev-log", w->box.directory);
    snprintf(pid_file, 300, "%s/rsyslog.pid", w->box.directory);
    snprintf(
        config, 2000,
        "global(workDirectory=\"%s\")\n"
        "module(load=\"imuxsock\" SysSock.Use=\"off\")\n"
        "input(type=\"imuxsock\" Socket=\"%s\")\n"
        "*.* action(type=\"omfwd\" target=\"127.0.0.1\" port=\"%d\" protocol=\"tcp\"\n"
        "  TCP_Framing=\"octet-counted\" template=\"RSYSLOG_SyslogProtocol23Format\"\n"
        "  action.resumeRetryCount=\"-1\" action.resumeInterval=\"1\" queue.type=\"linkedList\")\n",
        w->box.directory, input, w->port);
    write_mode(path, config, 0600);
    start_paused(w, w->tcp);
    w->rsyslog = fork();
    assert_true(w->rsyslog >= 0);
    if (w->rsyslog == 0) {
        execlp("rsyslogd", "rsyslogd", "-n", "-f", path, "-i", pid_file, (char *)NULL);
        _exit(127);
    }
    for (int i = 0; access(input, F_OK) != 0; i++, sleep_ms(100)) assert_true(i < 300);
    shell("for i in $(seq 200); do echo \"first $i\"; done | logger -u %s -t app", input);
    await_records(w, 200);
    (void)journalled(w, w->tcp); // what a stop trims is known
    reefd_end(&w->box);
    shell("for i in $(seq 200); do echo \"second $i\"; done | logger -u %s -t app", input);
    start_paused(w, w->tcp);
    shell("for i in $(seq 200); do echo \"third $i\"; done | logger -u %s -t app", input);
    for (int i = 0; times_in(journalled(w, w->tcp), " app: third ") < 200; i++, sleep_ms(500))
        assert_true(i < 120);
    const char *text = journalled(w, w->tcp);
    assert_int_equal(times_in(text, " app: first "), 200);
    // rsyslog does not know that the connection has ended before it has written to it once.
    assert_in_range(times_in(text, " app: second "), 150, 200);
}

RUN_TESTS
