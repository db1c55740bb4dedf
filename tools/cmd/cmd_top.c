// reef top: what a daemon and its pool are doing, live.
//
//   the daemon, once an interval --> status, which a thread waits for: keys and resizing come first
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
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
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

// ---- asking -------------------------------------------------------------------------------------
//
// A thread asks the daemon for its status, so that a terminal stays alive while a daemon does not.
// It lasts as long as the process: what it waits for may never come.

static struct {
    const char *pool, *socket; // words of the command line
    pthread_mutex_t lock;
    pthread_cond_t wanted;
    bool asked;      // and not answered yet
    json_t *answer;  // the last one, until it is taken; NULL: no daemon answered
    int answered[2]; // a pipe: a byte for each answer
} asking = {.lock = PTHREAD_MUTEX_INITIALIZER, .wanted = PTHREAD_COND_INITIALIZER};

static void *ask(void *context) {
    (void)context;
    for (;;) {
        char *reply = NULL;
        pthread_mutex_lock(&asking.lock);
        while (!asking.asked) pthread_cond_wait(&asking.wanted, &asking.lock);
        pthread_mutex_unlock(&asking.lock);
        // No daemon and none that answers are alike here: NULL.
        (void)!reef_daemon_call(asking.pool, asking.socket, "{\"command\": \"status\"}", &reply,
                                NULL);
        json_t *answer = reply != NULL ? json_loads(reply, 0, NULL) : NULL;
        free(reply);
        pthread_mutex_lock(&asking.lock);
        json_decref(asking.answer);
        asking.answer = answer;
        asking.asked = false;
        pthread_mutex_unlock(&asking.lock);
        while (write(asking.answered[1], "", 1) < 0 && errno == EINTR) continue;
    }
    return NULL;
}

static reef_status start_asking(const reef_cli_call *cli, reef_error *err) {
    pthread_t thread;
    asking.pool = cli->pool;
    asking.socket = reef_cli_text(cli, "socket");
    if (pipe(asking.answered) != 0 || reef_thread_start(&thread, ask, NULL) != 0)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "cannot start a thread that asks the daemon");
    pthread_detach(thread);
    return REEF_OK;
}

// ---- the pool -----------------------------------------------------------------------------------

typedef struct top {
    reef_cli_call *cli;
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
    t->commit = pool->commit.number;
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

static void request_status(void) {
    pthread_mutex_lock(&asking.lock);
    asking.asked = true;
    pthread_cond_signal(&asking.wanted);
    pthread_mutex_unlock(&asking.lock);
}

static void take_answer(top *t) {
    char byte;
    (void)!read(asking.answered[0], &byte, 1);
    pthread_mutex_lock(&asking.lock);
    json_t *status = asking.answer;
    asking.answer = NULL;
    pthread_mutex_unlock(&asking.lock);
    if (status != NULL)
        take_status(t, status);
    else
        take_absence(t);
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
        if (suspended || continued) come_back(t);
        double now = reef_seconds();
        // At fixed times: drawing and keys do not delay the figures.
        if (now >= next) {
            request_status();
            refresh_pool(t);
            next = now + t->interval;
        }
        draw_top(t);
        double wait = fmax(0, next - reef_seconds());
        struct pollfd events[] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                  {.fd = asking.answered[0], .events = POLLIN}};
        // Interrupted by a signal: a new size, or the end.
        if (poll(events, 2, (int)ceil(1000 * wait)) < 0) continue;
        if (events[0].revents) read_keys();
        if (events[1].revents) take_answer(t);
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
    reef_top_view(data, columns_wanted(), 0, NULL, on_plain_line, NULL);
    return REEF_OK;
}

static reef_status show_live(top *t, reef_error *err) {
    if (isatty(STDOUT_FILENO) != 1 || isatty(STDIN_FILENO) != 1)
        return reef_fail(err, REEF_ERR_INVALID,
                         "a live view wants a terminal; elsewhere use --once");
    reef_status status =
        read_pool(t, err); // an invalid pool is reported before the screen is taken
    if (status == REEF_OK) status = start_asking(t->cli, err);
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
    // The socket's name is checked even if no daemon runs.
    struct sockaddr_un socket;
    if (status == REEF_OK)
        status = reef_address_init(&socket, cli->pool, reef_cli_text(cli, "socket"), err);
    if (status == REEF_OK)
        status =
            cli->json || reef_cli_text(cli, "once") != NULL ? show_once(t, err) : show_live(t, err);
    release_pool(&t->data);
    json_decref(t->data.status);
    free(t);
    return status;
}
