// See live_watch.h.
#define _GNU_SOURCE // prctl
#include "live_watch.h"

#include "cli_pool.h"
#include "cli_progress.h"
#include "incident_view.h"
#include "live_sources.h"
#include "reef_process.h"
#include "reef_timeline_json.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define POOL_DEFAULT "watch.pool"
#define COMMIT_SECONDS "2" // what is committed is told, and not before
#define LOOK_MS 200
#define SEEK_LOOKS 50 // new logs are looked for every 10 s
#define EVENTS_SHOWN 4
#define FLAGS_MAX 16 // of reefd, beside sources

typedef struct live {
    reef_cli_call *cli;
    const char *pool;
    reef_live_sources sources;
    pid_t daemon; // 0: none was started here
    bool has_ended;
    int outcome; // of waitpid, once it has
    reef_store *store;
    uint64_t next; // event of the timeline
    bool colours;
} live;

// ---- programs -----------------------------------------------------------------------------------

// A program beside this one or, in a build tree, in `folder` beside its folder; else one of PATH.
static char *program_path(const char *name, const char *folder) {
    char self[PATH_MAX];
    const ssize_t bytes = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (bytes <= 0) return reef_cli_format("%s", name);
    self[bytes] = '\0';
    *strrchr(self, '/') = '\0';
    char *path = reef_cli_format("%s/%s", self, name);
    if (access(path, X_OK) == 0) return path;
    free(path);
    path = reef_cli_format("%s/../%s/%s", self, folder, name);
    if (access(path, X_OK) == 0) return path;
    free(path);
    return reef_cli_format("%s", name);
}

// In a process group of its own: a ^C on the terminal is for this program, which passes it on. It
// ends with this program, whatever ends that. -1: it could not be started.
static pid_t start_program(const char *const *arguments, bool silent) {
    const pid_t parent = getpid(), pid = fork();
    if (pid != 0) return pid;
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(0); // it ended before that
    if (silent && freopen("/dev/null", "w", stdout) == NULL) _exit(127);
    execvp(arguments[0], (char *const *)(uintptr_t)arguments);
    fprintf(stderr, "reef watch: cannot start %s: %s\n", arguments[0], strerror(errno));
    _exit(127);
}

// ---- the pool -----------------------------------------------------------------------------------

static bool has_pool(const char *path) {
    char *file = reef_cli_format("%s/data.mdb", path);
    bool is_there = access(file, F_OK) == 0;
    free(file);
    return is_there;
}

// As a command that people would type: reef with these arguments, up to a NULL.
static reef_status run_reef(const char *const *arguments, const char *failed, reef_error *err) {
    const char *all[FLAGS_MAX] = {NULL};
    int outcome = 0;
    char *reef = program_path("reef", "tools");
    all[0] = reef;
    for (size_t i = 0; arguments[i] != NULL; i++) all[i + 1] = arguments[i];
    pid_t pid = start_program(all, true);
    while (pid > 0 && waitpid(pid, &outcome, 0) < 0 && errno == EINTR) {
    }
    free(reef);
    if (pid < 0) return reef_fail(err, REEF_ERR_IO, "cannot start a process: %s", strerror(errno));
    return WIFEXITED(outcome) && WEXITSTATUS(outcome) == 0
               ? REEF_OK
               : reef_fail(err, REEF_ERR_INVALID, "%s", failed);
}

static reef_status make_pool(const live *l, reef_error *err) {
    // Without a net lines are learned several times as fast, and judged the same; nor does it take
    // much memory to judge them.
    const char *const arguments[] = {"init", l->pool,    "--watch", "true", "--net-share",
                                     "0",    "--memory", "128M",    NULL};
    reef_status status = run_reef(arguments, "no pool was made", err);
    if (status == REEF_OK) fprintf(stderr, "reef watch: made the pool %s\n", l->pool);
    return status;
}

// The pool's own, from now on.
static reef_status set_options(const live *l, reef_error *err) {
    static const char *const NAMES[][2] = {{"budget", "budget"},
                                           {"gap", "gap"},
                                           {"learn-until-quiet", "quiet"},
                                           {"forget-after", "forget"}};
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < sizeof(NAMES) / sizeof(*NAMES); i++) {
        const char *value = reef_cli_text(l->cli, NAMES[i][0]);
        const char *const arguments[] = {"incident", l->pool, NAMES[i][1], value, NULL};
        if (value != NULL) status = run_reef(arguments, "the pool was not changed", err);
    }
    return status;
}

static reef_status open_pool(live *l, reef_error *err) {
    reef_cli_pool pool;
    reef_txn *txn = NULL;
    reef_status status = reef_cli_pool_open(&pool, l->cli, err);
    l->store = pool.store;
    pool.store = NULL;
    if (status == REEF_OK && !pool.config.watch)
        status = reef_fail(err, REEF_ERR_INVALID,
                           "pool %s watches no lines: reef init POOL --watch true makes one that "
                           "does",
                           l->pool);
    reef_cli_pool_close(&pool);
    if (status == REEF_OK) status = reef_txn_begin(&txn, l->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_timeline_next(txn, &l->next, err);
    reef_txn_abort(txn);
    return status;
}

// ---- incidents ----------------------------------------------------------------------------------

// Once it rings, all that is known of it; when it has ended, that.
static void print_incident(const live *l, json_t *event) {
    const bool ended = strcmp(reef_cli_text_of(event, "state"), "open") != 0;
    if (l->cli->json) {
        json_dumpf(event, stdout, JSON_COMPACT);
        putchar('\n');
    } else if (ended) {
        const double first = reef_cli_real_of(event, "first_time"),
                     last = reef_cli_real_of(event, "last_time");
        if (last - first < 1.0) return; // all was said when it rang
        printf("%.16s  #%s has ended, after %s\n\n", CLI_TIME((uint64_t)(last * 1000.0)),
               CLI_COUNT(reef_cli_count_of(event, "incident")), CLI_DURATION(last - first));
    } else {
        reef_incident_print(event, EVENTS_SHOWN, l->colours);
    }
    (void)fflush(stdout);
}

// What was committed since the last look.
static reef_status print_new(live *l, reef_error *err) {
    reef_txn *txn = NULL;
    json_t *event = NULL;
    reef_status status = reef_txn_begin(&txn, l->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_incident_change(txn, &l->next, &event, err);
    while (status == REEF_OK && event != NULL) {
        print_incident(l, event);
        json_decref(event);
        l->next++;
        status = reef_incident_change(txn, &l->next, &event, err);
    }
    reef_txn_abort(txn);
    return status;
}

// ---- reefd --------------------------------------------------------------------------------------

static reef_status start_daemon(live *l, reef_error *err) {
    const char *const exec = reef_cli_text(l->cli, "exec"), *const hook =
                                                                reef_cli_text(l->cli, "hook");
    char *reefd = program_path("reefd", "daemon");
    const char **arguments = reef_cli_alloc(FLAGS_MAX + 2 * l->sources.count, sizeof(*arguments));
    size_t count = 0;
    const char *const flags[] = {reefd,          "--pool", l->pool, "--commit-seconds",
                                 COMMIT_SECONDS, "--quiet"};
    for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++) arguments[count++] = flags[i];
    if (exec != NULL) arguments[count++] = "--alarm-exec";
    if (exec != NULL) arguments[count++] = exec;
    if (hook != NULL) arguments[count++] = "--alarm-hook";
    if (hook != NULL) arguments[count++] = hook;
    for (size_t i = 0; i < l->sources.count; i++) {
        arguments[count++] = "--source";
        arguments[count++] = l->sources.specs[i];
    }
    (void)fflush(stdout);
    l->daemon = start_program(arguments, false);
    l->has_ended = false;
    free(arguments);
    free(reefd);
    return l->daemon > 0
               ? REEF_OK
               : reef_fail(err, REEF_ERR_IO, "cannot start a process: %s", strerror(errno));
}

static bool daemon_has_ended(live *l) {
    if (!l->has_ended) l->has_ended = waitpid(l->daemon, &l->outcome, WNOHANG) == l->daemon;
    return l->has_ended;
}

static void pause_a_look(void) {
    (void)nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
}

// What it has read is committed, and told, before it ends.
static reef_status stop_daemon(live *l, reef_error *err) {
    reef_status status = REEF_OK;
    if (l->daemon <= 0) return REEF_OK;
    if (!daemon_has_ended(l)) (void)kill(l->daemon, SIGTERM);
    while (!daemon_has_ended(l)) pause_a_look();
    if (l->store != NULL) status = print_new(l, err);
    return status;
}

// It said why, and this program ends as it did.
static reef_status daemon_outcome(const live *l, reef_error *err) {
    static const reef_status KNOWN[] = {REEF_ERR_INVALID, REEF_ERR_NOT_FOUND, REEF_ERR_CORRUPT,
                                        REEF_ERR_FULL,    REEF_ERR_BUSY,      REEF_ERR_NO_MEMORY};
    reef_status status = REEF_ERR_IO;
    if (!WIFEXITED(l->outcome))
        return reef_fail(err, status, "reefd was ended by signal %d", WTERMSIG(l->outcome));
    const int code = WEXITSTATUS(l->outcome);
    for (size_t i = 0; i < sizeof(KNOWN) / sizeof(*KNOWN); i++)
        if (code == reef_status_exit_code(KNOWN[i])) status = KNOWN[i];
    return code == 0 ? REEF_OK : reef_fail(err, status, "reefd ended with %d", code);
}

// Logs that are new since reefd began: it begins again, where it has stopped.
static reef_status follow_new(live *l, reef_error *err) {
    reef_live_sources now;
    reef_error none;
    reef_status status =
        reef_live_sources_find(&now, l->cli->operands, l->cli->operand_count, &none);
    if (status != REEF_OK || reef_live_sources_equal(&now, &l->sources)) {
        reef_live_sources_release(&now); // a directory may be away for a moment
        return REEF_OK;
    }
    reef_live_sources_release(&l->sources);
    l->sources = now;
    fprintf(stderr, "reef watch: %zu logs now\n", now.count);
    status = stop_daemon(l, err);
    if (status == REEF_OK) status = daemon_outcome(l, err);
    return status == REEF_OK ? start_daemon(l, err) : status;
}

static reef_status look_on(live *l, reef_error *err) {
    const bool input = l->sources.count == 1 && strcmp(l->sources.specs[0], "-") == 0;
    reef_status status = REEF_OK;
    for (unsigned looks = 1; status == REEF_OK && !reef_cli_is_stopped(); looks++) {
        if (l->daemon > 0 && daemon_has_ended(l)) break;
        pause_a_look();
        status = print_new(l, err);
        if (status == REEF_OK && l->daemon > 0 && !input && looks % SEEK_LOOKS == 0)
            status = follow_new(l, err);
    }
    reef_error ending;
    const reef_status stopped = stop_daemon(l, &ending);
    if (status == REEF_OK && stopped != REEF_OK)
        status = reef_fail(err, stopped, "%s", ending.message);
    return status == REEF_OK && l->daemon > 0 ? daemon_outcome(l, err) : status;
}

// ---- the whole ----------------------------------------------------------------------------------

static reef_status prepare(live *l, reef_error *err) {
    const bool follows = l->cli->operand_count > 0;
    reef_status status = REEF_OK;
    if (!follows &&
        (reef_cli_text(l->cli, "exec") != NULL || reef_cli_text(l->cli, "hook") != NULL))
        return reef_fail(err, REEF_ERR_INVALID,
                         "--exec and --hook go with the paths of logs; a daemon that runs has "
                         "--alarm-exec and --alarm-hook");
    if (follows)
        status = reef_live_sources_find(&l->sources, l->cli->operands, l->cli->operand_count, err);
    if (status == REEF_OK && follows && !has_pool(l->pool)) status = make_pool(l, err);
    if (status == REEF_OK && follows) status = set_options(l, err);
    if (status == REEF_OK) status = open_pool(l, err);
    return status;
}

reef_status reef_watch_live(reef_cli_call *cli, reef_error *err) {
    const char *pool = reef_cli_text(cli, "pool");
    live l = {
        .cli = cli, .pool = pool != NULL ? pool : POOL_DEFAULT, .colours = reef_cli_colours()};
    cli->pool = l.pool;
    reef_program_guard("reef watch", l.pool);
    reef_status status = prepare(&l, err);
    if (status == REEF_OK) {
        reef_cli_catch_signals(false);
        if (l.sources.count > 0) status = start_daemon(&l, err);
    }
    if (status == REEF_OK) {
        if (l.sources.count > 0)
            fprintf(stderr,
                    "reef watch: follows %zu %s; what rings is shown here, and by reef "
                    "incident %s\n",
                    l.sources.count, l.sources.count == 1 ? "log" : "logs", l.pool);
        status = look_on(&l, err);
    }
    reef_store_close(l.store);
    reef_live_sources_release(&l.sources);
    return status;
}
