// See daemon_world.h.
#include "daemon_world.h"

#include "http_server.h"
#include "push.h"
#include "query_thread.h"
#include "reef_client.h"
#include "routes.h"
#include "status.h"
#include "training_thread.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_ROOM_FIRST (1u << 16)
#define SETTLE_TURNS 4 // of the loop, to accept a connection and to read what came
#define PORT_TRIES 700
#define PORT_PAUSE_NS 100000000 // while all ports are taken; they are free again after a minute
#define DEADLINE_MS 60000       // far beyond what any request may take

static struct {
    uv_loop_t loop;
    uv_async_t wake;
    uv_timer_t deadline;
    reef_store *store;
    reef_trainer *trainer;
    reef_report report;
    reef_scrubber *scrubber; // never started
    reef_training *training;
    reef_status_view monitor;
    reef_pusher pusher; // without sources
    reef_query_thread *queries;
    reef_routes routes;
    reef_http *http;
    struct sockaddr_un address;
    struct sockaddr_in http_address;
    // of the client
    uv_poll_t poll;
    int fd;
    const uint8_t *bytes;
    size_t left;
    char *answer;
    size_t used, room;
    bool sent, done;
} world;

// ---- the daemon ---------------------------------------------------------------------------------

static void on_wake(uv_async_t *handle) {
    (void)handle;
    reef_training_reply(world.training);
    reef_routes_reply(&world.routes);
}

static void on_stop(void *context) {
    (void)context; // the world continues
}

static reef_status on_request(void *context, reef_request *request, reef_error *err) {
    (void)context;
    (void)request;
    return reef_fail(err, REEF_ERR_BUSY, "no service here");
}

static void make_pool(char *pool) {
    reef_error err;
    size_t count;
    char to[1024];
    int made = mkdir(pool, 0700);
    assert(made == 0);
    uint8_t *bytes = fuzz_unpack(REEF_TEST_DATA_DIR "/pool.mdb.gz", &count);
    snprintf(to, sizeof(to), "%s/data.mdb", pool);
    fuzz_write(to, bytes, count);
    free(bytes);
    fuzz_must(reef_store_open(&world.store, pool, &(reef_store_options){.write = true}, &err),
              &err);
    fuzz_must(
        reef_trainer_open(&world.trainer, world.store, &(reef_trainer_options){.threads = 1}, &err),
        &err);
}

static void join_training(void) {
    reef_training_join(world.training);
}

// The world lasts as long as the process, and commands find that training has ended.
static void start_training(void) {
    reef_error err;
    reef_training_view view = {0};
    reef_training_options options = {.store = world.store,
                                     .trainer = world.trainer,
                                     .commits = {.steps = 1000},
                                     .report = &world.report,
                                     .wake = &world.wake};
    fuzz_must(reef_scrubber_new(&world.scrubber, world.store, 0, &world.report, &err), &err);
    options.scrubber = world.monitor.scrubber = world.scrubber;
    fuzz_must(reef_training_start(&world.training, &options, &err), &err);
    int code = atexit(join_training);
    assert(code == 0);
    reef_training_stop(world.training);
    while (!view.ended) {
        (void)uv_run(&world.loop, UV_RUN_ONCE);
        reef_training_view_read(world.training, &view, NULL);
    }
}

static void open_http(void) {
    reef_error err;
    char *token = fuzz_path("token");
    fuzz_write(token, DAEMON_WORLD_TOKEN, strlen(DAEMON_WORLD_TOKEN));
    fuzz_must(reef_http_open(&world.http,
                             &(reef_http_options){.loop = &world.loop,
                                                  .socket = &world.address,
                                                  .listen = "127.0.0.1:0",
                                                  .token_file = token,
                                                  .begin = reef_routes_begin,
                                                  .handle = reef_routes_handle,
                                                  .forget = reef_routes_forget,
                                                  .hung_up = reef_routes_hung_up,
                                                  .replied = reef_routes_replied,
                                                  .context = &world.routes},
                             &err),
              &err);
    reef_query_thread_options options = {.store = world.store, .threads = 1, .wake = &world.wake};
    fuzz_must(reef_query_thread_start(&world.queries, &options, &err), &err);
    world.monitor.http = reef_http_address(world.http);
    const char *port = strrchr(world.monitor.http, ':') + 1;
    world.http_address = (struct sockaddr_in){.sin_family = AF_INET,
                                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                              .sin_port = htons((uint16_t)strtoul(port, NULL, 10))};
}

void daemon_world_start(void) {
    reef_error err;
    char *pool = fuzz_path("pool");
    (void)signal(SIGPIPE, SIG_IGN);
    fuzz_must(reef_kernels_choose("scalar", &err), &err);
    reef_report_init(&world.report, false, true);
    make_pool(pool);
    int code = uv_loop_init(&world.loop);
    if (!code) code = uv_async_init(&world.loop, &world.wake, on_wake);
    if (!code) code = uv_timer_init(&world.loop, &world.deadline);
    assert(code == 0);
    fuzz_must(reef_address_init(&world.address, pool, NULL, &err), &err);
    open_http();
    world.monitor.pool = pool;
    world.monitor.threads = 1;
    world.monitor.started_ns = uv_hrtime();
    world.pusher.loop = &world.loop;
    reef_pusher_init(&world.pusher);
    world.routes = (reef_routes){.monitor = &world.monitor,
                                 .queries = world.queries,
                                 .pusher = &world.pusher,
                                 .report = &world.report,
                                 .on_stop = on_stop,
                                 .on_request = on_request};
    start_training();
    world.pusher.training = world.training;
    world.routes.training = world.monitor.training = world.training;
}

// ---- the client ---------------------------------------------------------------------------------

static void on_deadline(uv_timer_t *timer) {
    (void)timer;
    fprintf(stderr, "fuzz: the daemon has not closed the connection in %d s\n", DEADLINE_MS / 1000);
    abort();
}

static void receive(void) {
    if (world.room - world.used < ANSWER_ROOM_FIRST / 2) {
        world.room = world.room ? 2 * world.room : ANSWER_ROOM_FIRST;
        world.answer = realloc(world.answer, world.room);
        assert(world.answer != NULL);
    }
    ssize_t got = recv(world.fd, world.answer + world.used, world.room - world.used - 1, 0);
    if (got > 0) world.used += (size_t)got;
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) world.done = true;
}

static void on_client(uv_poll_t *poll, int status, int events) {
    if (events & UV_READABLE || status < 0) receive();
    if (!(events & UV_WRITABLE)) return;
    ssize_t sent = world.left ? send(world.fd, world.bytes, world.left, 0) : 0;
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (sent > 0) {
        world.bytes += sent;
        world.left -= (size_t)sent;
    }
    if (world.left && sent > 0) return;
    world.sent = true;
    (void)uv_poll_start(poll, UV_READABLE, on_client);
}

static void on_client_closed(uv_handle_t *handle) {
    *(bool *)handle->data = true;
}

// libFuzzer's alarm clock rings every few seconds, and a signal ends a connect that waits; Linux
// takes it up again.
static int connect_whole(const struct sockaddr *address, socklen_t bytes) {
    int code;
    do code = connect(world.fd, address, bytes);
    while (code && errno == EINTR);
    return code;
}

static void connect_to(bool by_port) {
    const struct sockaddr *address = by_port ? (const struct sockaddr *)&world.http_address
                                             : (const struct sockaddr *)&world.address;
    socklen_t bytes = by_port ? sizeof(world.http_address) : sizeof(world.address);
    world.fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert(world.fd >= 0);
    // Closed without a farewell, or the ports of a machine would wait for one, all of them, after
    // some ten thousand.
    const struct linger linger = {.l_onoff = 1};
    int code = setsockopt(world.fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
    if (!by_port) code = 0; // a Unix socket has none
    if (!code) code = connect_whole(address, bytes);
    for (int i = 0; code && errno == EADDRNOTAVAIL && i < PORT_TRIES; i++) {
        (void)nanosleep(&(struct timespec){.tv_nsec = PORT_PAUSE_NS}, NULL);
        code = connect_whole(address, bytes);
    }
    if (code) fprintf(stderr, "fuzz: cannot connect to the daemon: %s\n", strerror(errno));
    assert(code == 0);
    code = fcntl(world.fd, F_SETFL, O_NONBLOCK);
    assert(code == 0);
}

const char *daemon_world_ask(bool by_port, const uint8_t *bytes, size_t count, size_t *answered) {
    bool closed = false;
    world.bytes = bytes;
    world.left = count;
    world.used = 0;
    world.sent = world.done = false;
    connect_to(by_port);
    (void)uv_poll_init(&world.loop, &world.poll, world.fd);
    world.poll.data = &closed;
    (void)uv_poll_start(&world.poll, UV_READABLE | UV_WRITABLE, on_client);
    (void)uv_timer_start(&world.deadline, on_deadline, DEADLINE_MS, 0);
    while (!world.sent && !world.done) (void)uv_run(&world.loop, UV_RUN_ONCE);
    // The end must not come along with the last bytes: libmicrohttpd would take no notice of it
    // before its time for a header is up.
    for (int i = 0; i < SETTLE_TURNS && !world.done; i++) (void)uv_run(&world.loop, UV_RUN_NOWAIT);
    (void)shutdown(world.fd, SHUT_WR);
    while (!world.done) (void)uv_run(&world.loop, UV_RUN_ONCE);
    (void)uv_timer_stop(&world.deadline);
    uv_close((uv_handle_t *)&world.poll, on_client_closed);
    while (!closed) (void)uv_run(&world.loop, UV_RUN_NOWAIT);
    // Reset instead of an orderly end: thousands of connections would else wait out their time.
    struct linger reset = {.l_onoff = 1};
    (void)setsockopt(world.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    close(world.fd);
    world.answer[world.used] = 0;
    *answered = world.used;
    return world.answer;
}
