// A reefd that trains and answers HTTP: what the tests of HTTP begin with, and how they ask.
#ifndef HTTP_RUN_H
#define HTTP_RUN_H

#include "http_client.h"
#include "reefd_run.h"
#include "test.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEXT_BYTES 20000000 // more than any of these tests waits for
#define TOKEN "0123456789abcdef0123456789abcdef"
#define BEARER "Authorization: Bearer " TOKEN "\r\n"

typedef struct running {
    sandbox box;
    char token[192]; // file
    char address[64];
    pid_t pid;
} running;

static inline void write_file(const char *path, const char *text, mode_t mode) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(chmod(path, mode), 0);
}

// `commits`: NULL, or "--commit-seconds=0", which is without any.
static inline void run_start_with(running *run, const char *listen, const char *commits) {
    run->pid = reefd_start(
        &run->box, -1,
        (const char *const[]){"--pool", run->box.pool, "--source", run->box.text, "--http", listen,
                              "--http-token", run->token, "--threads", "1", commits,
                              commits != NULL ? "--commit-steps=0" : NULL, NULL});
    reefd_await(&run->box, run->pid);
    json_t *status = reefd_ask(&run->box, "{\"command\": \"status\"}");
    snprintf(run->address, sizeof(run->address), "%s",
             json_string_value(json_object_get(status, "http")));
}

static inline void run_start(running *run, const char *listen) {
    run_start_with(run, listen, NULL);
}

static inline int setup(void **state) {
    running *run = calloc(1, sizeof(*run));
    sandbox_make(&run->box);
    sandbox_make_pool(&run->box);
    write_text(run->box.text, TEXT_BYTES, 1);
    snprintf(run->token, sizeof(run->token), "%s/token", run->box.directory);
    write_file(run->token, TOKEN "\n", 0600);
    run_start(run, "0");
    *state = run;
    return 0;
}

static inline int teardown(void **state) {
    running *run = *state;
    if (run->pid) {
        kill(run->pid, SIGKILL);
        (void)reefd_wait(run->pid);
    }
    sandbox_remove(&run->box);
    free(run);
    return 0;
}

static inline void assert_trains_on_and_stops(running *run) {
    int64_t before = reefd_count(&run->box, "step");
    while (reefd_count(&run->box, "step") <= before) sleep_ms(2);
    kill(run->pid, SIGTERM);
    assert_int_equal(reefd_wait(run->pid), 0);
    run->pid = 0;
    pool_check(&run->box);
}

static inline http_answer get(const running *run, const char *target) {
    return http_ask(run->address, "GET", target, "", NULL, 0);
}

static inline http_answer post(const running *run,
                               const char *target,
                               const char *headers,
                               const char *body) {
    return http_ask(run->address, "POST", target, headers, body, strlen(body));
}

// The body of an answer with this code; kept.
static inline json_t *json_of(http_answer answer, int code) {
    if (answer.code != code) fail_msg("code %d, expected %d: %s", answer.code, code, answer.body);
    json_t *object = json_loads(answer.body, 0, NULL);
    assert_non_null(object);
    assert_non_null(strstr(answer.head, "application/json"));
    return keep(object);
}

static inline void assert_code(http_answer answer, int code) {
    if (answer.code != code) fail_msg("code %d, expected %d: %s", answer.code, code, answer.body);
}

#endif
