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

// Ranks that have learned a text, and stay.
static int start_ranks(void **state) {
    ranks_run *run = reef_cli_alloc(1, sizeof(*run));
    run->directory = test_directory_new();
    char *many = path_in(run->directory, "many");
    run->pool = path_in(many, "rank-0");
    char *text = path_in(run->directory, "text"), words[4001];
    for (size_t i = 0; i < sizeof(words) - 1; i++)
        words[i] = (char)(i % 6 == 5 ? ' ' : 'a' + (i * i + i / 7) % 17);
    words[sizeof(words) - 1] = '\0';
    write_file(text, words);
    program p = reef("init", many, "--ranks", "2", "--layers", "1", "--d-model", "16", "--context",
                     "16", "--batch", "4", "--heads", "1", "--topk", "2", "--d-key", "8", "--side",
                     "4", "--side-new", "4", "--attention-heads", "2", "--context-memory", "0",
                     "--boundaries", "given", NULL);
    if (p.code != 0) fail_msg("%s", p.err);
    char *command = formatted(
        "cd %s && exec " MPIRUN_PATH
        " --oversubscribe --allow-run-as-root --bind-to none -n %d " REEFD_BINARY
        " --pool many --source text --threads 1 --quiet --stay --commit-steps 5 --http 0 2>log",
        run->directory, RANKS);
    run->pid = fork();
    if (run->pid == 0) {
        (void)execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    *state = run;
    return run->pid < 0;
}

static int stop_ranks(void **state) {
    ranks_run *run = *state;
    int code = 0;
    program p = reef("stop", run->pool, NULL);
    if (p.code != 0) (void)kill(run->pid, SIGTERM);
    bool ended = waitpid(run->pid, &code, 0) == run->pid && code == 0;
    test_directory_remove(run->directory);
    free(run->pool);
    free(run);
    return !ended;
}

// Once the last commit has all of the text.
static json_t *await_status(const ranks_run *run) {
    for (int i = 0; i < WAITS_MAX;
         i++, (void)nanosleep(&(struct timespec){.tv_nsec = WAIT_MS * 1000000L}, NULL)) {
        program p = reef("status", run->pool, "--json", NULL);
        json_t *status = p.code == 0 ? json_loads(p.out, 0, NULL) : NULL;
        const json_t *sources = json_object_get(status, "sources");
        if (json_is_true(json_object_get(json_array_get(sources, 0), "ended")) &&
            integer(status, "dirty_since_step") == 0)
            return status;
        json_decref(status);
    }
    fail_msg("the ranks have not learned the text within a minute");
    return NULL;
}

static void status_has_every_rank(void **state) {
    const ranks_run *run = *state;
    json_t *status = await_status(run);
    const json_t *ranks = json_object_get(status, "ranks");
    const json_t *list = json_object_get(ranks, "ranks"), *rank;
    size_t r;
    double least_lag = 1e9;
    assert_int_equal(integer(ranks, "count"), RANKS);
    assert_int_equal(json_array_size(list), RANKS);
    assert_int_equal(integer(ranks, "steps"), integer(status, "step"));
    // The first commits made the shards; each one since then is an epoch.
    const json_t *commit = json_object_get(status, "last_commit");
    assert_true(integer(ranks, "epoch") > 0);
    assert_in_range(integer(commit, "number") - integer(ranks, "epoch"), 1, 3);
    json_array_foreach(list, r, rank) {
        assert_int_equal(integer(rank, "rank"), r);
        assert_true(json_string_length(json_object_get(rank, "host")) > 0);
        assert_true(integer(rank, "sent_bytes") > 0 && integer(rank, "exchanges") > 0);
        // With two ranks what one sends the other receives.
        assert_int_equal(integer(rank, "sent_bytes"),
                         integer(json_array_get(list, 1 - r), "received_bytes"));
        assert_true(real(rank, "computing_s") > 0 && real(rank, "waiting_s") > 0);
        assert_true(real(rank, "committing_s") > 0 && real(rank, "cpu_s") > 0);
        assert_true(integer(rank, "memory_peak_bytes") > 1000000);
        if (real(rank, "lag_s") < least_lag) least_lag = real(rank, "lag_s");
    }
    assert_true(least_lag == 0); // of the one that waited longest
    json_decref(status);
}

static void shows(const ranks_run *run, const char *command, const char *words) {
    program p = reef(command, run->pool, strcmp(command, "top") == 0 ? "--once" : NULL, NULL);
    if (p.code != 0) fail_msg("%s", p.err);
    if (strstr(p.out, words) == NULL) fail_msg("\"%s\" is not in: %s", words, p.out);
}

static void people_see_a_line(void **state) {
    const ranks_run *run = *state;
    json_decref(await_status(run));
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
    json_t *status = await_status(run);
    const json_t *first =
        json_array_get(json_object_get(json_object_get(status, "ranks"), "ranks"), 0);
    http_answer answer = http_ask(json_string_value(json_object_get(status, "http")), "GET",
                                  "/metrics", "", NULL, 0);
    assert_int_equal(answer.code, 200);
    for (size_t i = 0; i < sizeof(LINES) / sizeof(*LINES); i++)
        if (strstr(answer.body, LINES[i]) == NULL) fail_msg("no line%s", LINES[i]);
    char *sent = formatted("\nreef_rank_sent_bytes_total{rank=\"0\"} %" JSON_INTEGER_FORMAT "\n",
                           integer(first, "sent_bytes"));
    assert_non_null(strstr(answer.body, sent));
    json_decref(status);
}

// ---- ranks that learn apart ---------------------------------------------------------------------

// Rank 1 has a live source without text, so rank 0 waits for it at its first join.
static int start_apart(void **state) {
    ranks_run *run = reef_cli_alloc(1, sizeof(*run));
    run->directory = test_directory_new();
    run->pool = path_in(run->directory, "rank-0");
    char *text = path_in(run->directory, "text"), words[20001];
    for (size_t i = 0; i < sizeof(words) - 1; i++)
        words[i] = (char)(i % 6 == 5 ? ' ' : 'a' + (i * i + i / 7) % 17);
    words[sizeof(words) - 1] = '\0';
    write_file(text, words);
    char *command = formatted(
        "cd %s && (%s init rank-0 --layers 1 --context 16 --batch 4 --net-share 0 "
        "--context-memory 4M && head -c 9000 text >base && %s --pool rank-0 --source base --quiet "
        "&& %s seal rank-0) >/dev/null && cp -a rank-0 rank-1 && : >live && exec " MPIRUN_PATH
        " --oversubscribe --allow-run-as-root --bind-to none -n 1 %s --pool . --source text "
        "--join-every 8K --threads 1 --quiet --http 0 : -n 1 %s --pool . --source follow:live "
        "--join-every 8K --threads 1 --quiet 2>log",
        run->directory, REEF_BINARY, REEFD_BINARY, REEF_BINARY, REEFD_BINARY, REEFD_BINARY);
    run->pid = fork();
    if (run->pid == 0) {
        (void)execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    *state = run;
    return run->pid < 0;
}

static json_t *await_waiting(const ranks_run *run) {
    for (int i = 0; i < WAITS_MAX;
         i++, (void)nanosleep(&(struct timespec){.tv_nsec = WAIT_MS * 1000000L}, NULL)) {
        program p = reef("status", run->pool, "--json", NULL);
        json_t *status = p.code == 0 ? json_loads(p.out, 0, NULL) : NULL;
        const json_t *joins = json_object_get(status, "joins");
        const char *now = json_string_value(json_object_get(joins, "state"));
        if (now != NULL && strcmp(now, "waiting") == 0) return status;
        json_decref(status);
    }
    fail_msg("rank 0 does not wait within a minute");
    return NULL;
}

static void who_is_waited_for_is_shown(void **state) {
    const ranks_run *run = *state;
    json_t *status = await_waiting(run);
    shows(run, "status", "joins         rank 0 of 2, 0 done; ");
    shows(run, "status", "; waits for rank 1");
    shows(run, "top", "joins      rank 0 of 2, 0 done; ");
    http_answer answer = http_ask(json_string_value(json_object_get(status, "http")), "GET",
                                  "/metrics", "", NULL, 0);
    assert_int_equal(answer.code, 200);
    static const char *const LINES[] = {"\nreef_joins_total 0\n", "\nreef_join_missing_ranks 1\n",
                                        "\nreef_join_sent_bytes_total 0\n",
                                        "\nreef_join_waiting_seconds_total "};
    for (size_t i = 0; i < sizeof(LINES) / sizeof(*LINES); i++)
        if (strstr(answer.body, LINES[i]) == NULL) fail_msg("no line%s", LINES[i]);
    json_decref(status);
}

int main(void) {
    const struct CMUnitTest apart[] = {cmocka_unit_test(who_is_waited_for_is_shown)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_has_every_rank),
        cmocka_unit_test(people_see_a_line),
        cmocka_unit_test(metrics_have_every_rank),
    };
    // MPI's own leaks are none of ours.
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
    setenv("TSAN_OPTIONS", "detect_deadlocks=0", 1);
    int failed = cmocka_run_group_tests_name("tools ranks shown", tests, start_ranks, stop_ranks);
    return failed + cmocka_run_group_tests_name("apart", apart, start_apart, stop_ranks);
}
