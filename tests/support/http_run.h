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

#define TEXT_BYTES 10000000 // more than any of these tests waits for
#define BEARER "Authorization: Bearer " TOKEN "\r\n"
/** What a reefd is started with that answers anywhere on this machine. */
#define HTTP(box) "--http", "127.0.0.1:0", "--http-token", (box)->token
/** A reefd that learns the sandbox's text, and answers. */
#define LEARN(box, ...) START(box, "--source", (box)->text, "--threads", "1", __VA_ARGS__)

static inline int setup(void **state) {
    sandbox *box = sandbox_new(state, sizeof(*box));
    write_text(box->text, TEXT_BYTES, 1);
    LEARN(box, HTTP(box));
    return 0;
}

static inline http_answer get(const sandbox *box, const char *target) {
    return http_ask(box->address, "GET", target, "", NULL, 0);
}

static inline http_answer post(const sandbox *box,
                               const char *target,
                               const char *headers,
                               const char *body) {
    return http_ask(box->address, "POST", target, headers, body, strlen(body));
}

// The body of an answer with this code; kept.
static inline json_t *json_of(http_answer answer, int code) {
    if (answer.code != code) fail_msg("code %d, expected %d: %s", answer.code, code, answer.body);
    assert_non_null(strstr(answer.head, "application/json"));
    return json_of_text(answer.body);
}

static inline void assert_code(http_answer answer, int code) {
    if (answer.code != code) fail_msg("code %d, expected %d: %s", answer.code, code, answer.body);
}

/** What Prometheus takes, where it is installed. */
static inline void assert_metrics(const sandbox *box, const char *text) {
    char path[256], line[320];
    snprintf(path, sizeof(path), "%s/metrics", box->directory);
    write_mode(path, text, 0600);
    snprintf(line, sizeof(line), "promtool check metrics <%s", path);
    if (system("command -v promtool >/dev/null 2>&1") == 0)
        assert_int_equal(system(line), 0);
    else
        print_message("promtool is not installed: what it would say is not checked\n");
}

/** /metrics once these stand in it: facts of the pool are read beside training. */
static inline char *await_metrics(const sandbox *box, const char *const *names, size_t count) {
    http_answer answer = {0};
    for (size_t found = 0; found < count; sleep_ms(20)) {
        answer = get(box, "/metrics");
        assert_int_equal(answer.code, 200);
        found = 0;
        for (size_t i = 0; i < count; i++) found += strstr(answer.body, names[i]) != NULL;
    }
    assert_metrics(box, answer.body);
    return answer.body;
}

#endif
