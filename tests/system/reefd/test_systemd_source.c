// reefd on systemd's journal. However often the daemon is killed, and whatever systemd-journald
// does with its files, the pool ends with the root hash of a run in which nothing happened.
#define _GNU_SOURCE // for unshare

#include "draw.h"
#include "journal_file.h"
#include "live_run.h"
#include "temp_dir.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#define KILLS 10
#define ENTRIES 900

typedef struct world {
    live_run run;
    char folder[200];
    size_t line;
    pid_t journald;
} world;

static int setup(void **state) {
    world *w = (world *)sandbox_new(state, sizeof(*w));
    snprintf(w->folder, sizeof(w->folder), "%s/journal", w->run.box.directory);
    assert_int_equal(mkdir(w->folder, 0755), 0);
    snprintf(w->run.source, sizeof(w->run.source), "journal:dir=%s&identifier=reef-test",
             w->folder);
    return 0;
}

static int teardown(void **state) {
    world *w = *state;
    if (w->journald > 0) {
        kill(w->journald, SIGKILL);
        (void)waitpid(w->journald, NULL, 0);
    }
    return sandbox_teardown(state);
}

#define FIXTURE_TEST(name) TEST_WITH(name, setup, teardown, world *w)

// ---- files --------------------------------------------------------------------------------------

// Every third is of another program, and is not read.
static void write_entry(world *w, journal_file *file) {
    char message[100];
    const size_t i = w->line++;
    const bool is_ours = i % 3 != 2;
    const int bytes = snprintf(message, sizeof(message), "request %zu took %zu ms", i * 7919 % 1000,
                               i * 104729 % 97);
    journal_add(file, UINT64_C(1700000000000000) + i * 1000000,
                is_ours ? "SYSLOG_IDENTIFIER=reef-test\n" : "SYSLOG_IDENTIFIER=other\n", message,
                (size_t)bytes);
    if (is_ours) w->run.written += strlen("2023-11-14T22:13:20.000Z reef-test: \n") + (size_t)bytes;
}

FIXTURE_TEST(killed_while_entries_come_it_ends_with_the_same_root) {
    uint64_t seed = 3;
    char path[300];
    journal_file file = {0};
    snprintf(path, sizeof(path), "%s/a.journal", w->folder);
    live_start(&w->run); // in a folder without a file
    reefd_await(&w->run.box, w->run.box.pid);
    journal_begin(&file, path);
    for (size_t i = 0; i < KILLS; i++) {
        const size_t alive = draw_bits(&seed) % (ENTRIES / KILLS + 1);
        for (size_t k = 0; k < ENTRIES / KILLS; k++) {
            if (k == alive) {
                (void)fflush(file.remote);
                sleep_ms((unsigned)(draw_bits(&seed) % 1500));
                reefd_kill(&w->run.box);
            }
            write_entry(w, &file);
            if (draw_bits(&seed) % 8 == 0) (void)fflush(file.remote);
        }
        if (i % 2) { // the same file, renamed, is written on
            char other[300];
            journal_end(&file);
            snprintf(other, sizeof(other), "%s/%zu.journal", w->folder, i);
            assert_int_equal(rename(path, other), 0);
            strcpy(path, other);
            journal_begin(&file, path);
        }
        reefd_kill(&w->run.box);
        live_start(&w->run);
    }
    journal_end(&file);
    reef_commit commit = live_finish(&w->run);

    sandbox_make_pool(&w->run.box);
    live_start(&w->run);
    reef_commit whole = live_finish(&w->run);
    assert_same(&commit, &whole);
    assert_int_equal(times_said(&w->run.box, "source_"), 0);
}

FIXTURE_TEST(what_cannot_be_read_is_refused) {
    static const struct {
        const char *source;
        reef_status status;
        const char *told;
    } CASES[] = {
        {"journal:unit=", REEF_ERR_INVALID, "unit needs a value"},
        {"journal:unti=nginx", REEF_ERR_INVALID, "does not know 'unti'"},
        {"journal:nginx", REEF_ERR_INVALID, "takes NAME=VALUE"},
        {"journal:priority=high", REEF_ERR_INVALID, "priority 'high' is none"},
        {"journal:dir=here", REEF_ERR_INVALID, "is not an absolute path"},
        {"journal:dir=/nowhere/x", REEF_ERR_NOT_FOUND, "No such file or directory"},
        {"journal:dir=/etc/passwd&unit=x", REEF_ERR_NOT_FOUND, "Not a directory"},
        {"journal:?weight=0", REEF_ERR_INVALID, "a source's weight"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(*CASES); i++) {
        assert_int_equal(RUN(&w->run.box, "--source", CASES[i].source),
                         reef_status_exit_code(CASES[i].status));
        if (!reefd_said(&w->run.box, CASES[i].told)) fail_msg("%s", CASES[i].source);
    }
    assert_int_equal(RUN(&w->run.box, "--source", w->run.source, "--source", w->run.source),
                     reef_status_exit_code(REEF_ERR_INVALID));
    assert_true(reefd_said(&w->run.box, "is given twice"));
}

// ---- a real systemd-journald, which these tests have a /run and a /var/log of their own for -----

static bool make_places(void) {
    static bool are_made;
    if (are_made) return true;
    are_made = access("/etc/machine-id", R_OK) == 0 && unshare(CLONE_NEWNS) == 0 &&
               mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
               mount("none", "/run", "tmpfs", 0, NULL) == 0 &&
               mount("none", "/var/log", "tmpfs", 0, NULL) == 0;
    if (!are_made) print_message("skipped: nothing can be mounted here\n");
    return are_made;
}

static void shell(const char *line) {
    if (system(line) != 0) fail_msg("failed: %s", line);
}

static void start_journald(world *w) {
    shell("rm -rf /run/log /var/log/journal /run/systemd && mkdir -p /run/systemd/journal");
    w->journald = fork();
    assert_true(w->journald >= 0);
    if (w->journald == 0) {
        const int none = open("/dev/null", O_RDWR);
        for (int fd = 0; fd < 3; fd++) (void)dup2(none, fd);
        execl("/lib/systemd/systemd-journald", "systemd-journald", (char *)NULL);
        _exit(127);
    }
    for (int i = 0; access("/run/systemd/journal/socket", F_OK) != 0; i++, sleep_ms(100))
        assert_true(i < 300);
    snprintf(w->run.source, sizeof(w->run.source), "journal:identifier=reef-test");
}

static void log_lines(world *w, size_t count) {
    for (size_t i = 0; i < count; i++) {
        char message[100], head[100];
        const size_t line = w->line++;
        const int bytes = snprintf(message, sizeof(message), "MESSAGE=request %zu took %zu ms",
                                   line * 7919 % 1000, line * 104729 % 97);
        const int head_bytes =
            snprintf(head, sizeof(head), "2023-11-14T22:13:20.000Z reef-test[%d]: ", (int)getpid());
        assert_int_equal(sd_journal_send(message, "SYSLOG_IDENTIFIER=reef-test", NULL), 0);
        w->run.written += (size_t)head_bytes + (size_t)bytes - strlen("MESSAGE=") + 1;
    }
}

// To the disk that stays, as where the machine has just begun.
static void flush(void) {
    shell("mkdir -p \"/var/log/journal/$(cat /etc/machine-id)\" && journalctl --flush");
}

FIXTURE_TEST(rotation_and_a_flush_change_nothing) {
    uint64_t seed = 5;
    if (!make_places()) skip();
    start_journald(w);
    log_lines(w, 50);
    for (size_t i = 0; i < KILLS; i++) {
        live_start(&w->run);
        if (i % 2) live_await(&w->run);
        for (size_t k = 0; k < 4; k++) {
            log_lines(w, 1 + draw_bits(&seed) % 20);
            if (draw_bits(&seed) % 3 == 0) shell("journalctl --rotate");
            if (i == 5 && k == 2) flush();
            sleep_ms((unsigned)(draw_bits(&seed) % 400));
        }
        reefd_kill(&w->run.box);
        log_lines(w, draw_bits(&seed) % 20);
    }
    live_start(&w->run);
    reef_commit commit = live_finish(&w->run);
    assert_int_equal(times_said(&w->run.box, "source_"), 0);

    sandbox_make_pool(&w->run.box);
    live_start(&w->run);
    reef_commit whole = live_finish(&w->run);
    assert_same(&commit, &whole);
}

FIXTURE_TEST(entries_that_were_removed_unread_are_reported_once) {
    if (!make_places()) skip();
    start_journald(w);
    log_lines(w, 50);
    live_start(&w->run);
    (void)live_finish(&w->run);
    const uint64_t read = w->run.written;
    log_lines(w, 100);
    shell("journalctl --sync && journalctl --rotate && rm /run/log/journal/*/*@*.journal");
    w->run.written = read;
    log_lines(w, 40);
    live_start(&w->run);
    live_await(&w->run);
    await_said(&w->run.box, "were removed before they were read");
    shell("journalctl --rotate");
    log_lines(w, 40);
    live_await(&w->run);
    shell("journalctl --rotate");
    sleep_ms(3000); // until it has also seen what is not chosen
    shell("rm /run/log/journal/*/*@*.journal");
    log_lines(w, 40); // nothing is lost by that
    (void)live_finish(&w->run);
    assert_int_equal(times_said(&w->run.box, "were removed"), 1);
}

RUN_TESTS
