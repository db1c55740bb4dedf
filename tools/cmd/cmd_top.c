// reef top: what a daemon and its pool are doing, live.
//
//   the socket, once an interval --> status, never waited for: keys and resizing come first
//   the pool, after a commit     --> generations, usage, loss over the stream
//
// Without a daemon the last commit is shown, and one is waited for.
#include "cli_format.h"
#include "cli_pool.h"
#include "commands.h"
#include "reef_client.h"
#include "reef_system.h"
#include "top_view.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <termios.h>
#include <unistd.h>

#define COLUMNS_DEFAULT 80
#define COLUMNS_MAX 1000
#define POOL_SECONDS 5.0 // between two reads of the pool, beside commits
#define POOL_SECONDS_MIN 1.0
#define INTERVAL_MAX 3600.0

static const reef_cli_option OPTIONS[] = {
    {"once", NULL, "print what there is now and end; always so with --json"},
    {"interval", "S", "seconds between two refreshes (default: 1)"},
    {0},
};

const reef_cli_manual reef_top_manual = {
    .about =
        "Loss over the stream, throughput, commits, sources with what they lag behind,\n"
        "generations and how their experts are used, once a second. Says so when training or the\n"
        "daemon stands still; when the daemon goes away the last commit is shown, and a new\n"
        "daemon is waited for. q ends it, ^Z leaves it for a while.",
    .options = OPTIONS,
    .example = "reef top reef.pool\n"
               "reef top reef.pool --once",
};

// ---- the link -----------------------------------------------------------------------------------
//
// Asking a daemon for its status without ever waiting for it, so that a terminal stays alive while
// a daemon does not. One connection stays open as long as the daemon does.

#define READ_BYTES ((size_t)65536)

static const char REQUEST[] = "GET /v1/status HTTP/1.1\r\nHost: localhost\r\n\r\n";

typedef struct daemon_link {
    struct sockaddr_un address;
    int fd;     // -1: not connected
    bool asked; // and has not answered
    char *line; // what has come of the reply
    size_t used, room;
} daemon_link;

static reef_status link_init(daemon_link *link,
                             const char *pool,
                             const char *socket_path,
                             reef_error *err) {
    *link = (daemon_link){.fd = -1};
    return reef_address_init(&link->address, pool, socket_path, err);
}

static void link_close(daemon_link *link) {
    if (link->fd >= 0) close(link->fd);
    free(link->line);
    link->line = NULL;
    link->used = link->room = 0;
    link->fd = -1;
    link->asked = false;
}

static bool connect_now(daemon_link *link) {
    link->fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (link->fd < 0) return false;
    int flags = fcntl(link->fd, F_GETFL);
    bool good =
        fcntl(link->fd, F_SETFD, FD_CLOEXEC) == 0 &&
        fcntl(link->fd, F_SETFL, flags | O_NONBLOCK) == 0 &&
        connect(link->fd, (const struct sockaddr *)&link->address, sizeof(link->address)) == 0;
    if (!good) link_close(link);
    return good;
}

// Send a request unless a reply is due; connect first if not connected. False: no daemon listens.
static bool link_request(daemon_link *link) {
    if (link->asked) return true;
    if (link->fd < 0 && !connect_now(link)) return false;
    // The request is so short that it is sent as a whole, or not at all.
    ssize_t sent = send(link->fd, REQUEST, sizeof(REQUEST) - 1, MSG_NOSIGNAL);
    if (sent == (ssize_t)sizeof(REQUEST) - 1) {
        link->asked = true;
        return true;
    }
    link_close(link);
    return false;
}

static void make_room(daemon_link *link) {
    if (link->room - link->used > READ_BYTES) return;
    size_t room = link->used + 2 * READ_BYTES;
    char *grown = reef_cli_alloc(room, 1);
    if (link->used > 0) memcpy(grown, link->line, link->used);
    free(link->line);
    link->line = grown;
    link->room = room;
}

// The status in a whole reply, or NULL.
static json_t *parse_reply(const char *line, size_t bytes) {
    json_t *status = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(status)) return status;
    json_decref(status);
    return NULL;
}

// What follows the header of a reply; NULL before all of that is there.
static const char *behind_header(const daemon_link *link) {
    for (size_t i = 4; i <= link->used; i++)
        if (memcmp(link->line + i - 4, "\r\n\r\n", 4) == 0) return link->line + i;
    return NULL;
}

// Read what has come. *status is the caller's once a reply is whole, otherwise NULL. False: the
// daemon went away.
static bool link_read(daemon_link *link, json_t **status) {
    *status = NULL;
    if (link->fd < 0) return false;
    make_room(link);
    ssize_t count = recv(link->fd, link->line + link->used, READ_BYTES, 0);
    // Nothing there yet is not a lost connection.
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return true;
    if (count > 0) link->used += (size_t)count;
    // Behind its header a reply is one line.
    const char *head = behind_header(link), *end = NULL;
    if (count > 0 && head != NULL)
        end = memchr(head, '\n', link->used - (size_t)(head - link->line));
    if (end != NULL) {
        *status = parse_reply(head, (size_t)(end - head));
        // One request at a time, so nothing follows the line.
        link->used = 0;
        link->asked = false;
    }
    // Too long or not JSON: this is not a reefd, or not of this version.
    bool gone =
        count <= 0 || link->used > REEF_REQUEST_BYTES_MAX || (end != NULL && *status == NULL);
    if (gone) link_close(link);
    return !gone;
}

// ---- the pool -----------------------------------------------------------------------------------

typedef struct top {
    reef_cli_call *cli;
    daemon_link link;
    reef_top_data data;
    double interval;
    double heard;      // when the last reply came
    double advanced;   // when training had advanced last
    uint64_t position; // where it was then
    uint64_t commit;   // that the pool's part of the view is of
    double read_at;    // when the pool was read last
    bool seen;         // a daemon has answered
    bool colours;
} top;

static void release_pool(reef_top_data *data) {
    free(data->generations);
    free(data->usage);
    free(data->points);
    data->generations = NULL;
    data->usage = NULL;
    data->points = NULL;
    data->generation_count = 0;
    data->point_count = 0;
}

static reef_status take_pool(top *t, reef_cli_pool *pool, reef_error *err) {
    reef_top_data *data = &t->data;
    reef_cli_points points = {0};
    // Read into a copy first: a failure leaves the view as it was.
    reef_usage_summary *usage = reef_cli_alloc(pool->generation_count, sizeof(*usage));
    reef_status status = reef_cli_points_read(&points, pool, err);
    for (uint32_t g = 0; status == REEF_OK && g < pool->generation_count; g++)
        status = reef_cli_usage_summary(pool, &pool->generations[g], &usage[g], err);
    // Old figures are better than none.
    if (status != REEF_OK) {
        reef_cli_points_release(&points);
        free(usage);
        return status;
    }
    release_pool(data);
    data->config = pool->config;
    data->generations = pool->generations;
    data->generation_count = pool->generation_count;
    data->usage = usage;
    data->points = points.points;
    data->point_count = points.count;
    // The next commit is read only if its number differs.
    t->commit = pool->commit.number;
    // The view owns the generations now.
    pool->generations = NULL;
    return REEF_OK;
}

// Opened for a moment only, so that a view that stays for days keeps no page from reuse.
static reef_status read_pool(top *t, reef_error *err) {
    reef_cli_pool pool;
    reef_status status = reef_cli_pool_open(&pool, t->cli, err);
    if (status == REEF_OK) {
        status = take_pool(t, &pool, err);
        reef_cli_pool_close(&pool);
    }
    t->read_at = reef_seconds();
    return status;
}

// ---- the daemon ---------------------------------------------------------------------------------

static void note_speed(reef_top_data *data) {
    if (data->speed_count == TOP_HISTORY) {
        memmove(data->speed, data->speed + 1, (TOP_HISTORY - 1) * sizeof(*data->speed));
        data->speed_count--;
    }
    const json_t *rate = json_object_get(data->status, "bytes_per_s");
    data->speed[data->speed_count++] = json_is_number(rate) ? json_number_value(rate) : NAN;
}

// All that moves while a daemon gets on: what is read, deferred, recognised or trained.
static uint64_t position_of(const json_t *status) {
    uint64_t sum = reef_cli_count_of(status, "step") + reef_cli_count_of(status, "stream_bytes") +
                   reef_cli_count_of(status, "carried_bytes") +
                   reef_cli_count_of(status, "not_learned_bytes") +
                   reef_cli_count_of(json_object_get(status, "last_commit"), "number");
    size_t i;
    json_t *source;
    json_array_foreach(json_object_get(status, "sources"), i, source) sum +=
        reef_cli_count_of(source, "cursor");
    return sum;
}

static void take_status(top *t, json_t *status) {
    const char *state = json_string_value(json_object_get(status, "state"));
    uint64_t position = position_of(status);
    // A daemon that waits for its source is not stuck.
    bool has_work = state != NULL && strcmp(state, "training") == 0;
    json_decref(t->data.status);
    t->data.status = status;
    t->data.daemon = true;
    t->data.trouble = NULL;
    // Tells "has gone" from "was never there".
    t->seen = true;
    t->heard = reef_seconds();
    // Time since training moved on, for the alarm about a stall.
    if (!has_work || position != t->position) t->advanced = t->heard;
    t->position = position;
    note_speed(&t->data);
}

// No daemon replies, so the last commit is shown.
static void take_absence(top *t) {
    json_t *status = NULL;
    bool daemon = false;
    t->data.trouble = t->seen ? "the daemon has gone; waiting for one to come back"
                              : "no daemon runs; waiting for one";
    // Nothing changes until a daemon runs again.
    if (!t->data.daemon && t->data.status != NULL) return;
    // A daemon may have started in between; the next poll asks it.
    if (reef_status_read(t->cli, &status, &daemon, NULL) != REEF_OK || daemon) {
        json_decref(status);
        return;
    }
    json_decref(t->data.status);
    t->data.status = status;
    t->data.daemon = false;
}

static void request_status(top *t) {
    if (!link_request(&t->link)) take_absence(t);
}

static void listen_to(top *t) {
    json_t *status;
    bool there = link_read(&t->link, &status);
    if (status != NULL) take_status(t, status);
    if (!there) take_absence(t);
}

// ---- the terminal -------------------------------------------------------------------------------

static atomic_int ended, suspended, continued; // a signal may reach any thread

static void on_signal(int number) {
    if (number == SIGTSTP)
        suspended = 1;
    else if (number == SIGCONT)
        continued = 1;
    else if (number != SIGWINCH)
        ended = 1;
}

// All of them end a wait: so that a new size is drawn at once. A screen that a slow terminal has
// not taken yet is written on after those that end nothing.
static void listen_to_signals(void) {
    static const int SIGNALS[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP, SIGCONT};
    for (size_t i = 0; i < sizeof(SIGNALS) / sizeof(SIGNALS[0]); i++)
        sigaction(SIGNALS[i],
                  &(struct sigaction){.sa_handler = on_signal, .sa_flags = i < 3 ? 0 : SA_RESTART},
                  NULL);
}

static struct termios terminal_before; // as it is left

// In the background this stops until the shell brings the program to the front, which a signal
// reports.
static void terminal_set(const struct termios *modes) {
    while (tcsetattr(STDIN_FILENO, TCSANOW, modes) != 0 && errno == EINTR) continue;
}

static void terminal_take(void) {
    struct termios raw = terminal_before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    terminal_set(&raw);
    fputs("\033[?1049h\033[?25l", stdout); // a screen of its own, without a cursor
}

static void terminal_end(void) {
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    terminal_set(&terminal_before);
}

// ^Z: give the terminal back, and stop as if the signal had never been caught.
static void suspend_program(void) {
    suspended = 0;
    terminal_end();
    sigaction(SIGTSTP, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    raise(SIGTSTP); // returns when the shell continues it
    listen_to_signals();
    terminal_take();
}

static void terminal_size(size_t *columns, size_t *rows) {
    struct winsize size;
    *columns = COLUMNS_DEFAULT;
    *rows = 24;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
        return;
    *columns = size.ws_col;
    *rows = size.ws_row;
}

static const char *const STYLES[] = {"", "\033[1m", "\033[2m", "\033[1;31m"};

typedef struct screen {
    const top *owner;
    bool first;
} screen;

static void on_screen_line(void *context, top_style style, const char *text) {
    screen *s = context;
    const char *on = s->owner->colours ? STYLES[style] : "";
    printf("%s%s%s%s\033[K", s->first ? "" : "\n", on, text, *on ? "\033[0m" : "");
    s->first = false;
}

static void draw_top(top *t) {
    size_t columns, rows;
    double now = reef_seconds();
    screen s = {t, true};
    terminal_size(&columns, &rows);
    t->data.age = now - t->heard;
    t->data.still = now - t->advanced;
    fputs("\033[H", stdout);
    reef_top_view(&t->data, columns, rows, "q: quit", on_screen_line, &s);
    fputs("\033[J", stdout);
    fflush(stdout);
}

static void read_keys(void) {
    char keys[16];
    ssize_t count = read(STDIN_FILENO, keys, sizeof(keys));
    if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN)) ended = 1;
    for (ssize_t i = 0; i < count; i++)
        if (keys[i] == 'q' || keys[i] == 'Q') ended = 1;
}

static void refresh_pool(top *t) {
    uint64_t number = reef_cli_count_of(json_object_get(t->data.status, "last_commit"), "number");
    double passed = reef_seconds() - t->read_at;
    if (passed > POOL_SECONDS || (number != t->commit && passed > POOL_SECONDS_MIN))
        (void)!read_pool(t, NULL);
}

// After a stop of unknown length: another program may have used the terminal, and no request was
// sent.
static void come_back(top *t) {
    if (suspended)
        suspend_program();
    else
        terminal_take();
    continued = 0;
    t->heard = t->advanced = reef_seconds();
}

static void run_top(top *t) {
    double next = reef_seconds();
    listen_to_signals();
    tcgetattr(STDIN_FILENO, &terminal_before); // show_live has seen that it is one
    terminal_take();
    while (!ended) {
        // After a stop by Ctrl-Z the screen must be set up again.
        if (suspended || continued) come_back(t);
        double now = reef_seconds();
        // At fixed times: drawing and keys do not delay the figures.
        if (now >= next) {
            request_status(t);
            refresh_pool(t);
            next = now + t->interval;
        }
        draw_top(t);
        double wait = fmax(0, next - reef_seconds());
        struct pollfd events[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                  {.fd = t->link.fd, .events = POLLIN}};
        // Interrupted by a signal: a new size, or the end.
        if (poll(events, 2, (int)ceil(1000 * wait)) < 0) continue;
        if (events[0].revents) read_keys();
        if (events[1].revents) listen_to(t);
    }
    terminal_end();
}

// ---- once ---------------------------------------------------------------------------------------

static void on_plain_line(void *context, top_style style, const char *text) {
    (void)context;
    (void)style;
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] == ' ') length--;
    printf("%.*s\n", (int)length, text);
}

static size_t columns_wanted(void) {
    size_t columns, rows;
    const char *text = getenv("COLUMNS");
    unsigned long given = text != NULL ? strtoul(text, NULL, 10) : 0;
    terminal_size(&columns, &rows);
    return given > 0 && given < COLUMNS_MAX ? (size_t)given : columns;
}

static json_t *usage_json(const reef_top_data *data) {
    json_t *list = json_array();
    for (uint32_t g = 0; g < data->generation_count; g++)
        json_array_append_new(list,
                              json_pack("{s:I, s:b, s:I, s:I, s:o, s:o, s:I}", "generation",
                                        (json_int_t)g, "sealed", data->generations[g].sealed,
                                        "side", (json_int_t)data->generations[g].side, "opened_at",
                                        (json_int_t)data->generations[g].opened_at, "used_percent",
                                        reef_cli_real(data->usage[g].used_percent), "unevenness",
                                        reef_cli_real(data->usage[g].unevenness), "selections",
                                        (json_int_t)data->usage[g].selections));
    return list;
}

static reef_status show_once(top *t, reef_error *err) {
    reef_top_data *data = &t->data;
    reef_status status = reef_status_read(t->cli, &data->status, &data->daemon, err);
    if (status == REEF_OK) status = read_pool(t, err);
    if (status != REEF_OK) return status;
    if (t->cli->json)
        return reef_cli_reply(
            t->cli,
            json_pack("{s:O, s:o}", "status", data->status, "generations", usage_json(data)), err);
    if (!data->daemon) data->trouble = "no daemon runs";
    // No limit of rows: plain output is piped.
    reef_top_view(data, columns_wanted(), 0, NULL, on_plain_line, NULL);
    return REEF_OK;
}

static reef_status show_live(top *t, reef_error *err) {
    if (isatty(STDOUT_FILENO) != 1 || isatty(STDIN_FILENO) != 1)
        return reef_fail(err, REEF_ERR_INVALID,
                         "a live view wants a terminal; elsewhere use --once");
    reef_status status =
        read_pool(t, err); // an invalid pool is reported before the screen is taken
    if (status != REEF_OK) return status;
    t->heard = t->advanced = reef_seconds();
    run_top(t);
    return REEF_OK;
}

reef_status reef_cmd_top(reef_cli_call *cli, reef_error *err) {
    // On the heap, because the buffers of the view are large.
    top *t = reef_cli_alloc(1, sizeof(*t));
    t->cli = cli;
    t->interval = 1;
    t->data.pool = cli->pool;
    t->colours = reef_cli_colours();
    reef_status status = reef_cli_number(cli, "interval", 0.1, INTERVAL_MAX, &t->interval, err);
    if (status == REEF_OK)
        // The socket's name is checked even if no daemon runs.
        status = link_init(&t->link, cli->pool, reef_cli_text(cli, "socket"), err);
    if (status == REEF_OK)
        status =
            cli->json || reef_cli_text(cli, "once") != NULL ? show_once(t, err) : show_live(t, err);
    link_close(&t->link);
    release_pool(&t->data);
    json_decref(t->data.status);
    free(t);
    return status;
}
