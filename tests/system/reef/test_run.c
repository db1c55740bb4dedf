// `reef run`: finds reefd, becomes it, and keeps what it says and how it ends.
#include "cli_format.h"
#include "reef_clock.h"
#include "tools_world.h"

#include <libgen.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DEADLINE_SECONDS 60

// PATH is where reefd was built, and nothing else: `reef` was built in another directory.
static int path_set(void **state) {
    char *daemon = reef_cli_format("%s", REEFD_BINARY);
    assert_int_equal(setenv("PATH", dirname(daemon), 1), 0);
    free(daemon);
    return world_make(state);
}

// Whole batches; the last byte has no next one to predict.
static json_int_t trained(const char *pool) {
    json_t *status = reef_json("status", pool, NULL);
    json_int_t bytes = integer(status, "stream_bytes");
    json_decref(status);
    return bytes;
}

static char *fresh_pool(const world *w, const char *name) {
    char *pool = path_in(w->directory, name);
    make_pool(pool);
    return pool;
}

// ---- what runs ----------------------------------------------------------------------------------

static void run_trains_to_the_end_of_its_source(void **state) {
    world *w = *state;
    char *pool = fresh_pool(w, "trained");
    program p;
    reef(&p, "run", pool, "--source", w->english, "--threads", "1", "--verbose", NULL);
    assert_int_equal(p.code, 0);
    assert_string_equal(p.out, "");
    assert_non_null(strstr(p.err, "reef: running " REEFD_BINARY " --pool="));
    assert_non_null(strstr(p.err, "reefd: started"));
    assert_non_null(strstr(p.err, "reefd: ended"));
    assert_in_range(trained(pool), 300, 399);
    program_release(&p);
    free(pool);
}

static void what_reads_standard_input_gets_it(void **state) {
    world *w = *state;
    char *pool = fresh_pool(w, "piped"), *text = tiny_text("english", 300);
    program p;
    const char *argv[] = {REEF_BINARY, "run", pool, "--source", "-", "--quiet", NULL};
    program_run(&p, argv, text);
    assert_int_equal(p.code, 0);
    assert_string_equal(p.err, "");
    assert_in_range(trained(pool), 200, 299);
    program_release(&p);
    free(text);
    free(pool);
}

static void with_json_every_line_of_standard_output_is_an_event(void **state) {
    world *w = *state;
    char *pool = fresh_pool(w, "events");
    program p;
    reef(&p, "run", pool, "--source", w->english, "--json", NULL);
    assert_int_equal(p.code, 0);
    assert_string_equal(p.err, "");
    bool started = false, ended = false;
    char *rest = NULL;
    for (char *line = strtok_r(p.out, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        json_t *event = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        const char *name = json_string_value(json_object_get(event, "event"));
        assert_non_null(name);
        started |= strcmp(name, "started") == 0;
        ended |= strcmp(name, "ended") == 0;
        json_decref(event);
    }
    assert_true(started && ended);
    program_release(&p);
    free(pool);
}

static void a_signal_ends_it_with_a_commit(void **state) {
    world *w = *state;
    char *pool = fresh_pool(w, "stays");
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        execl(REEF_BINARY, "reef", "run", pool, "--source", w->english, "--stay", "--quiet",
              (char *)NULL);
        _exit(127);
    }
    double deadline = reef_seconds() + DEADLINE_SECONDS;
    for (bool ended = false; !ended;) {
        assert_true(reef_seconds() < deadline);
        assert_int_equal(waitpid(child, NULL, WNOHANG), 0);
        json_t *status = reef_json("status", pool, NULL);
        if (json_is_true(json_object_get(status, "daemon"))) {
            assert_int_equal(integer(status, "pid"), child); // no process between
            const json_t *source = json_array_get(json_object_get(status, "sources"), 0);
            ended = json_is_true(json_object_get(source, "ended"));
        }
        json_decref(status);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    // A second one is refused with the daemon's own words and code.
    program p;
    reef(&p, "run", pool, "--stay", NULL);
    assert_int_equal(p.code, 75);
    assert_int_equal(strncmp(p.err, "reefd: ", 7), 0);
    program_release(&p);
    assert_int_equal(kill(child, SIGINT), 0);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_in_range(trained(pool), 300, 399);
    free(pool);
}

// ---- what is given ------------------------------------------------------------------------------

static const json_t *setting(const json_t *document, const char *name) {
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(document, "settings"), i, one) {
        if (strcmp(json_string_value(json_object_get(one, "name")), name) == 0) return one;
    }
    fail_msg("there is no setting %s", name);
    return NULL;
}

static const json_t *value(const json_t *document, const char *name) {
    return json_object_get(setting(document, name), "value");
}

static void options_reach_the_daemon_as_they_were_given(void **state) {
    world *w = *state;
    char *file = path_in(w->directory, "run.ini");
    write_file(file, "[reefd]\npool = elsewhere\nstay = yes\npatience = 3\n");
    json_t *document =
        reef_json("run", "--dry-run", "--config", file, "--source", "a", "--source=-", "--no-stay",
                  "--http", "0", "--commit-seconds", "2.5", NULL);
    assert_string_equal(json_string_value(value(document, "pool")), "elsewhere");
    assert_int_equal(json_array_size(value(document, "source")), 2);
    assert_string_equal(json_string_value(json_array_get(value(document, "source"), 1)), "-");
    assert_true(json_is_false(value(document, "stay")));
    assert_true(json_number_value(value(document, "commit-seconds")) == 2.5);
    assert_true(json_number_value(value(document, "patience")) == 3);
    assert_string_equal(json_string_value(json_object_get(setting(document, "stay"), "origin")),
                        "--stay");
    json_decref(document);
    // A pool that is named wins over that of the file.
    document = reef_json("run", w->pool, "--dry-run", "--config", file, NULL);
    assert_string_equal(json_string_value(value(document, "pool")), w->pool);
    json_decref(document);
    assert_int_not_equal(access("elsewhere", F_OK), 0);
    free(file);
}

// Whether help lists this option, by itself or behind its letter: "-h, --help".
static bool help_has(const char *help, const char *option) {
    char *alone = reef_cli_format("\n  %s ", option),
         *behind = reef_cli_format("\n  -%c, %s ", option[2], option);
    bool has = strstr(help, alone) != NULL || strstr(help, behind) != NULL;
    free(alone);
    free(behind);
    return has;
}

static void help_has_every_option_of_the_daemon(void **state) {
    (void)state;
    program daemon, tool;
    program_run(&daemon, (const char *const[]){REEFD_BINARY, "--help", NULL}, NULL);
    reef(&tool, "run", "--help", NULL);
    size_t seen = 0;
    char *rest = NULL;
    for (char *line = strtok_r(daemon.out, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        if (strncmp(line, "  --", 4) != 0) continue;
        char *option = reef_cli_format("%.*s", (int)strcspn(line + 2, " "), line + 2);
        if (strcmp(option, "--check") != 0 && strcmp(option, "--version") != 0) {
            seen++;
            if (!help_has(tool.out, option)) fail_msg("%s is not in the help of run", option);
        }
        free(option);
    }
    assert_true(seen > 15);
    program_release(&daemon);
    program_release(&tool);
}

// ---- what goes wrong ----------------------------------------------------------------------------

static void expect(const char *words, int code, program *p) {
    if (p->code != code || strstr(p->err, words) == NULL)
        fail_msg("exit %d, wanted %d and '%s': %s", p->code, code, words, p->err);
    program_release(p);
}

static void mistakes_are_reported_before_anything_runs(void **state) {
    world *w = *state;
    program p;
    reef(&p, "run", w->pool, "--sorce", "a", NULL);
    expect("reef run: unknown option '--sorce'; did you mean --source?", 64, &p);
    reef(&p, "run", w->pool, "--source", "a", "--commit-seconds", "soon", NULL);
    expect("reef run: --commit-seconds", 64, &p);
    reef(&p, "run", w->pool, NULL);
    expect("nothing to read", 64, &p);
    reef(&p, "run", "--stay", NULL);
    expect("which pool?", 64, &p);
    reef(&p, "run", w->pool, "second", "--stay", NULL);
    expect("unexpected argument 'second'", 64, &p);
    // The daemon's own: it has its name before it.
    reef(&p, "run", w->missing, "--stay", NULL);
    expect("reefd: ", 66, &p);
    reef(&p, "run", w->pool, "--source", w->missing, NULL);
    expect("reefd: ", 66, &p);
}

static void without_reefd_it_says_so_and_beside_it_is_found_first(void **state) {
    world *w = *state;
    char *path = reef_cli_format("%s", getenv("PATH")), *folder = path_in(w->directory, "bin"),
         *copy = path_in(folder, "reef"), *daemon = path_in(folder, "reefd"),
         *other = path_in(w->not_a_pool, "reefd");
    program p;
    // Neither a directory of that name nor a file that is none of ours to run is a program.
    assert_int_equal(mkdir(other, 0700), 0);
    assert_int_equal(setenv("PATH", w->not_a_pool, 1), 0);
    reef(&p, "run", w->pool, "--stay", NULL);
    expect("there is no program reefd, neither beside this one nor in PATH", 66, &p);
    assert_int_equal(rmdir(other), 0);

    assert_int_equal(mkdir(folder, 0700), 0);
    program_run(&p, (const char *const[]){"/bin/cp", REEF_BINARY, copy, NULL}, NULL);
    assert_int_equal(p.code, 0);
    program_release(&p);
    assert_int_equal(symlink(REEFD_BINARY, daemon), 0);
    const char *argv[] = {copy, "run", w->pool, "--stay", "--dry-run", "--verbose", NULL};
    assert_int_equal(setenv("PATH", path, 1), 0);
    program_run(&p, argv, NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "commit-seconds"));
    char *wanted = reef_cli_format("reef: running %s --pool=%s --stay --check\n", daemon, w->pool);
    assert_string_equal(p.err, wanted);
    program_release(&p);
    free(wanted);
    free(path);
    free(folder);
    free(copy);
    free(daemon);
    free(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(run_trains_to_the_end_of_its_source),
        cmocka_unit_test(what_reads_standard_input_gets_it),
        cmocka_unit_test(with_json_every_line_of_standard_output_is_an_event),
        cmocka_unit_test(a_signal_ends_it_with_a_commit),
        cmocka_unit_test(options_reach_the_daemon_as_they_were_given),
        cmocka_unit_test(help_has_every_option_of_the_daemon),
        cmocka_unit_test(mistakes_are_reported_before_anything_runs),
        cmocka_unit_test(without_reefd_it_says_so_and_beside_it_is_found_first),
    };
    return cmocka_run_group_tests(tests, path_set, world_remove);
}
