// What `reef status`, `reef top` and /metrics say of several ranks, while the real ones train.
#include "http_client.h"
#include "tools_world.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 50
#define WAITS_MAX 1200 // a minute
#define RANKS 2

typedef struct ranks_run {
    char *directory, *pool; // pool: rank 0's
    pid_t pid;
} ranks_run;

#define MPIRUN MPIRUN_PATH " --oversubscribe --allow-run-as-root --bind-to none"

// A directory with a text.
static ranks_run *new_run(void **state, size_t bytes) {
    ranks_run *run = *state = keep(reef_cli_alloc(1, sizeof(*run)));
    char *words = keep(reef_cli_alloc(bytes + 1, 1));
    for (size_t i = 0; i < bytes; i++)
        words[i] = (char)(i % 60 == 59 ? '\n' : i % 6 == 5 ? ' ' : 'a' + (i * i + i / 7) % 17);
    run->directory = test_directory_new();
    write_file(path_in(run->directory, "text"), words);
    return run;
}

static int start_by(ranks_run *run, const char *command) {
    run->pid = fork();
    if (run->pid == 0) {
        (void)execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    return run->pid < 0;
}

// Ranks that have learned a text, and stay.
static int start_ranks(void **state) {
    ranks_run *run = new_run(state, 4000);
    char *many = path_in(run->directory, "many");
    run->pool = path_in(many, "rank-0");
    answers(0, "", "init", many, "--ranks", "2", "--layers", "1", "--d-model", "16", "--context",
            "16", "--batch", "4", "--heads", "1", "--topk", "2", "--d-key", "8", "--side", "4",
            "--attention-heads", "2", "--memory", "0", "--boundaries", "given", NULL);
    return start_by(run, formatted("cd %s && exec " MPIRUN " -n %d " REEFD_BINARY
                                   " --pool many --source text --threads 1 --quiet --stay "
                                   "--commit-steps 5 --http 0 2>log",
                                   run->directory, RANKS));
}

static void stop(ranks_run *run) {
    int code = 0;
    program p = reef("stop", run->pool, NULL);
    if (p.code != 0) (void)kill(run->pid, SIGTERM);
    assert_int_equal(waitpid(run->pid, &code, 0), run->pid);
    run->pid = 0;
    assert_int_equal(code, 0);
}

static int stop_ranks(void **state) {
    ranks_run *run = *state;
    if (run->pid > 0) stop(run);
    test_directory_remove(run->directory);
    return 0;
}

// Once it is so; NULL: not within a minute.
static json_t *await_status(const ranks_run *run, bool (*is_so)(const json_t *status)) {
    for (int i = 0; i < WAITS_MAX; i++) {
        program p = reef("status", run->pool, "--json", NULL);
        json_t *status = p.code == 0 ? json_of_text(p.out) : NULL;
        if (status != NULL && is_so(status)) return status;
        (void)nanosleep(&(struct timespec){.tv_nsec = WAIT_MS * 1000000L}, NULL);
    }
    fail_msg("it is not so within a minute");
    return NULL;
}

// The last commit has all of the text.
static bool has_learned(const json_t *status) {
    return json_is_true(json_at(status, "sources.0.ended")) &&
           integer(status, "dirty_since_step") == 0;
}

static void status_has_every_rank(void **state) {
    const ranks_run *run = *state;
    json_t *status = await_status(run, has_learned);
    const json_t *ranks = json_at(status, "ranks");
    const json_t *list = json_at(ranks, "ranks"), *rank;
    size_t r;
    double least_lag = 1e9;
    assert_int_equal(integer(ranks, "count"), RANKS);
    assert_int_equal(json_array_size(list), RANKS);
    assert_int_equal(integer(ranks, "steps"), integer(status, "step"));
    // The first commits made the shards; each one since then is an epoch.
    const json_t *commit = json_at(status, "last_commit");
    assert_true(integer(ranks, "epoch") > 0);
    assert_in_range(integer(commit, "number") - integer(ranks, "epoch"), 1, 3);
    json_array_foreach(list, r, rank) {
        assert_int_equal(integer(rank, "rank"), r);
        assert_true(json_string_length(json_at(rank, "host")) > 0);
        assert_true(integer(rank, "sent_bytes") > 0 && integer(rank, "exchanges") > 0);
        // With two ranks what one sends the other receives.
        assert_int_equal(integer(rank, "sent_bytes"),
                         integer(json_array_get(list, 1 - r), "received_bytes"));
        assert_true(number(rank, "computing_s") > 0 && number(rank, "waiting_s") > 0);
        assert_true(number(rank, "committing_s") > 0 && number(rank, "cpu_s") > 0);
        assert_true(integer(rank, "memory_peak_bytes") > 1000000);
        if (number(rank, "lag_s") < least_lag) least_lag = number(rank, "lag_s");
    }
    assert_true(least_lag == 0); // of the one that waited longest
}

static void shows(const ranks_run *run, const char *command, const char *words) {
    program p = reef(command, run->pool, strcmp(command, "top") == 0 ? "--once" : NULL, NULL);
    if (p.code != 0) fail_msg("%s", p.err);
    if (strstr(p.out, words) == NULL) fail_msg("\"%s\" is not in: %s", words, p.out);
}

static void people_see_a_line(void **state) {
    const ranks_run *run = *state;
    (void)await_status(run, has_learned);
    shows(run, "status", "ranks         2, epoch ");
    shows(run, "top", "ranks      2, epoch ");
    shows(run, "top", "; rank 0 sends ");
}

static void metrics_have_every_rank(void **state) {
    const ranks_run *run = *state;
    static const char *const LINES[] = {
        "\nreef_ranks 2\n",
        "\nreef_epoch_number_total ",
        "\nreef_rank_sent_bytes_total{rank=\"1\"} ",
        "\nreef_rank_waiting_seconds_total{rank=\"0\"} ",
        "\nreef_rank_lag_seconds{rank=\"1\"} ",
        "\nreef_rank_peak_memory_bytes{rank=\"0\"} ",
    };
    json_t *status = await_status(run, has_learned);
    const json_t *first = json_at(status, "ranks.ranks.0");
    http_answer answer = http_ask(string(status, "http"), "GET", "/metrics", "", NULL, 0);
    assert_int_equal(answer.code, 200);
    for (size_t i = 0; i < sizeof(LINES) / sizeof(*LINES); i++)
        if (strstr(answer.body, LINES[i]) == NULL) fail_msg("no line%s", LINES[i]);
    char *sent = formatted("\nreef_rank_sent_bytes_total{rank=\"0\"} %" JSON_INTEGER_FORMAT "\n",
                           integer(first, "sent_bytes"));
    assert_non_null(strstr(answer.body, sent));
}

static void they_are_one_pool_again(void **state) {
    ranks_run *run = *state;
    char *many = path_in(run->directory, "many"), *whole = path_in(run->directory, "whole");
    (void)await_status(run, has_learned);
    stop(run);
    answers(0, "", "shards", many, whole, "--to", "1", NULL);
    assert_true(is_sound(whole));
}

// ---- ranks that learn apart ---------------------------------------------------------------------

// Rank 1 has a live source without text, so rank 0 waits for it at its first join.
static int start_apart(void **state) {
    ranks_run *run = new_run(state, 20000);
    run->pool = path_in(run->directory, "rank-0");
    return start_by(
        run, formatted("cd %s && (%s init rank-0 --layers 1 --context 16 --batch 4 --net-share 0 "
                       "--memory 4M && head -c 9000 text >base && %s --pool rank-0 "
                       "--source base --quiet && %s seal rank-0) >/dev/null && "
                       "cp -a rank-0 rank-1 && : >live && exec " MPIRUN
                       " -n 1 %s --pool . --source text --join-every 8K --threads 1 --quiet "
                       "--http 0 : -n 1 %s --pool . --source follow:live --join-every 8K "
                       "--threads 1 --quiet 2>log",
                       run->directory, REEF_BINARY, REEFD_BINARY, REEF_BINARY, REEFD_BINARY,
                       REEFD_BINARY));
}

static bool waits(const json_t *status) {
    const char *now = json_string_value(json_at(status, "joins.state"));
    return now != NULL && strcmp(now, "waiting") == 0;
}

static bool has_joined(const json_t *status) {
    return integer(status, "joins.count") > 0;
}

static void who_is_waited_for_is_shown(void **state) {
    const ranks_run *run = *state;
    json_t *status = await_status(run, waits);
    shows(run, "status", "joins         rank 0 of 2, 0 done; ");
    shows(run, "status", "; waits for rank 1");
    shows(run, "top", "joins      rank 0 of 2, 0 done; ");
    http_answer answer = http_ask(string(status, "http"), "GET", "/metrics", "", NULL, 0);
    assert_int_equal(answer.code, 200);
    static const char *const LINES[] = {"\nreef_joins_total 0\n", "\nreef_join_missing_ranks 1\n",
                                        "\nreef_join_sent_bytes_total 0\n",
                                        "\nreef_join_waiting_seconds_total "};
    for (size_t i = 0; i < sizeof(LINES) / sizeof(*LINES); i++)
        if (strstr(answer.body, LINES[i]) == NULL) fail_msg("no line%s", LINES[i]);
    // With more text they join.
    assert_int_equal(system(formatted("cd %s && head -c 9000 text >>live", run->directory)), 0);
    (void)await_status(run, has_joined);
    shows(run, "status", ", 1 done; ");
}

int main(void) {
    const struct CMUnitTest apart[] = {cmocka_unit_test(who_is_waited_for_is_shown)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_has_every_rank),
        cmocka_unit_test(people_see_a_line),
        cmocka_unit_test(metrics_have_every_rank),
        cmocka_unit_test(they_are_one_pool_again),
    };
    // MPI's own leaks are none of ours.
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
    setenv("TSAN_OPTIONS", "detect_deadlocks=0", 1);
    int failed = cmocka_run_group_tests_name("tools ranks shown", tests, start_ranks, stop_ranks);
    return failed + cmocka_run_group_tests_name("apart", apart, start_apart, stop_ranks);
}
