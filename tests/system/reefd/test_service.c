// reefd as its operator meets it: a configuration that is read again as a whole or not at all, a
// status on demand, lines that say their level, private files, and a check of the pool that nothing
// waits for.
#include "http_client.h"
#include "reefd_run.h"

#include "reef_client.h"
#include "test.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEXT_BYTES 5000000 // more than any of these tests waits for
#define WAIT_MS_MAX 60000
#define RELOAD "{\"command\": \"reload\"}"
#define TOKEN "0123456789abcdef0123456789abcdef"
#define OTHER "fedcba9876543210fedcba9876543210"
#define MARK "zyxwut" // a word of the text that no message may have

typedef struct service {
    sandbox box;
    char config[192], token[192];
    pid_t pid;
} service;

static void write_file(const char *path, const char *text, mode_t mode) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, mode), 0);
}

// Pool and source, and whatever else the configuration is to say.
static void configure(const service *s, const char *more) {
    char text[2048];
    snprintf(text, sizeof(text), "[reefd]\npool = %s\nsource = %s\n%s", s->box.pool, s->box.text,
             more);
    write_file(s->config, text, 0600);
}

static int setup(void **state) {
    service *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    sandbox_make(&s->box);
    sandbox_make_pool(&s->box);
    write_text(s->box.text, TEXT_BYTES, 1);
    snprintf(s->config, sizeof(s->config), "%s/reefd.ini", s->box.directory);
    snprintf(s->token, sizeof(s->token), "%s/token", s->box.directory);
    *state = s;
    return 0;
}

static int teardown(void **state) {
    service *s = *state;
    if (s->pid) {
        kill(s->pid, SIGKILL);
        (void)reefd_wait(s->pid);
    }
    sandbox_remove(&s->box);
    free(s);
    return 0;
}

static void start(service *s) {
    s->pid = reefd_start(&s->box, -1, (const char *const[]){"--config", s->config, NULL});
    reefd_await(&s->box, s->pid);
}

static void stop(service *s) {
    kill(s->pid, SIGTERM);
    assert_int_equal(reefd_wait(s->pid), 0);
    s->pid = 0;
}

static void await_message(const service *s, const char *text) {
    char *messages = NULL;
    for (unsigned waited = 0;; waited += 5) {
        messages = read_text(s->box.messages, NULL);
        if (strstr(messages, text) != NULL) break;
        if (waited > WAIT_MS_MAX) fail_msg("no '%s' in: %s", text, messages);
        sleep_ms(5);
    }
}

// Number `key` of member `of` of a fresh status.
static json_int_t count_of(const service *s, const char *of, const char *key) {
    json_t *status = reefd_ask(&s->box, "{\"command\": \"status\"}");
    json_t *value = json_object_get(json_object_get(status, of), key);
    assert_true(json_is_integer(value));
    json_int_t count = json_integer_value(value);
    return count;
}

static json_int_t commits(const service *s) {
    return count_of(s, "last_commit", "number");
}

static void await_commits(const service *s, json_int_t least) {
    for (unsigned waited = 0; commits(s) < least; waited += 5) {
        if (waited > WAIT_MS_MAX) fail_msg("no commit number %d", (int)least);
        sleep_ms(5);
    }
}

static void await_steps(const service *s, int64_t more) {
    int64_t least = reefd_count(&s->box, "step") + more;
    for (unsigned waited = 0; reefd_count(&s->box, "step") < least; waited += 2) {
        if (waited > WAIT_MS_MAX) fail_msg("training stands still");
        sleep_ms(2);
    }
}

static bool has(const json_t *names, const char *name) {
    size_t i;
    json_t *one;
    json_array_foreach(names, i, one) if (strcmp(json_string_value(one), name) == 0) return true;
    return false;
}

// ---- reload -------------------------------------------------------------------------------------

#define NO_COMMITS "commit-steps = 0\ncommit-seconds = 0\n"

static void a_reload_changes_what_may_change_and_names_the_rest(void **state) {
    service *s = *state;
    configure(s, NO_COMMITS "threads = 1\npool-max = 0\n");
    start(s);
    json_int_t before = commits(s);
    await_steps(s, 20);
    assert_int_equal(commits(s), before);
    configure(s, "commit-steps = 1\ncommit-seconds = 0\nthreads = 2\npool-max = 4G\n");
    json_t *answer = reefd_ask(&s->box, RELOAD);
    const json_t *changed = json_object_get(answer, "changed");
    assert_int_equal(json_array_size(changed), 2);
    assert_true(has(changed, "commit-steps") && has(changed, "pool-max"));
    assert_int_equal(json_array_size(json_object_get(answer, "restart")), 1);
    assert_true(has(json_object_get(answer, "restart"), "threads"));
    assert_string_equal(json_string_value(json_object_get(answer, "config")), s->config);
    assert_true(json_number_value(json_object_get(answer, "waited_ms")) >= 0);
    assert_true(reefd_said(&s->box, "what needs a restart: threads"));
    assert_int_equal(reefd_count(&s->box, "threads"), 1);
    await_commits(s, before + 5);
    // What was taken over is what the next one is compared with.
    answer = reefd_ask(&s->box, RELOAD);
    assert_int_equal(json_array_size(json_object_get(answer, "changed")), 0);
    assert_true(has(json_object_get(answer, "restart"), "threads"));
    stop(s);
    pool_check(&s->box);
}

static void a_hangup_is_a_reload(void **state) {
    service *s = *state;
    configure(s, NO_COMMITS);
    start(s);
    json_int_t before = commits(s);
    configure(s, "commit-steps = 1\n");
    assert_int_equal(kill(s->pid, SIGHUP), 0);
    await_message(s, "reefd: reloaded: changed [\"commit-steps\",\"commit-seconds\"]");
    await_commits(s, before + 5);
    configure(s, "commit-steps = often\n");
    assert_int_equal(kill(s->pid, SIGHUP), 0);
    await_message(s, ":4: commit-steps 'often' is not a whole number");
    await_message(s, "the configuration stays as it was");
    await_commits(s, commits(s) + 5);
    stop(s);
}

static void with_a_mistake_nothing_at_all_changes(void **state) {
    service *s = *state;
    write_file(s->token, TOKEN "\n", 0600);
    char http[300];
    snprintf(http, sizeof(http), "http = 0\nhttp-token = %s\n", s->token);
    char text[1024];
    snprintf(text, sizeof(text), NO_COMMITS "%s", http);
    configure(s, text);
    start(s);
    json_int_t before = commits(s);
    static const char *const MISTAKES[] = {"comit-seconds = 3\n", "threads = 0\n", "stay = maybe\n",
                                           "nonsense\n", "quiet = yes\nquiet = no\n"};
    for (size_t i = 0; i < sizeof(MISTAKES) / sizeof(*MISTAKES); i++) {
        snprintf(text, sizeof(text), "commit-steps = 1\njson-log = yes\n%s%s", http, MISTAKES[i]);
        configure(s, text);
        assert_int_equal(reefd_refuses(&s->box, RELOAD), REEF_ERR_INVALID);
    }
    // What needs a restart is looked at too: the restart that the answer asks for would fail.
    char far[128];
    snprintf(far, sizeof(far), "socket = /%0*d\n", 110, 0);
    const char *const starts[] = {"http = nowhere:1\n", "http = 0.0.0.0:0\n",
                                  "http = 0\nhttp-token = not-there\n", far};
    for (size_t i = 0; i < sizeof(starts) / sizeof(*starts); i++) {
        snprintf(text, sizeof(text), "commit-steps = 1\njson-log = yes\n%s", starts[i]);
        configure(s, text);
        reef_status status =
            strstr(starts[i], "not-there") != NULL ? REEF_ERR_NOT_FOUND : REEF_ERR_INVALID;
        assert_int_equal(reefd_refuses(&s->box, RELOAD), status);
    }
    // A token that others can read is refused as at the start, and takes everything else with it.
    snprintf(text, sizeof(text), "commit-steps = 1\njson-log = yes\n%s", http);
    configure(s, text);
    write_file(s->token, OTHER "\n", 0644);
    assert_int_equal(reefd_refuses(&s->box, RELOAD), REEF_ERR_INVALID);
    assert_int_equal(unlink(s->config), 0);
    assert_int_equal(reefd_refuses(&s->box, RELOAD), REEF_ERR_NOT_FOUND);
    assert_true(reefd_said(&s->box, "did you mean commit-seconds?"));
    await_steps(s, 20);
    assert_int_equal(commits(s), before);
    char *messages = read_text(s->box.messages, NULL);
    for (char *line = strtok(messages, "\n"); line != NULL; line = strtok(NULL, "\n"))
        assert_int_equal(strncmp(line, "reefd: ", 7), 0); // no JSON yet
    stop(s);
}

static int ask_with(const char *address, const char *token) {
    char header[128];
    static const char BODY[] = "{\"command\": \"status\"}";
    snprintf(header, sizeof(header), "Authorization: Bearer %s\r\n", token);
    http_answer answer = http_ask(address, "POST", "/v1/command", header, BODY, sizeof(BODY) - 1);
    int code = answer.code;
    return code;
}

static void a_new_token_counts_from_the_reload_on(void **state) {
    service *s = *state;
    char more[300], address[64];
    write_file(s->token, TOKEN "\n", 0600);
    snprintf(more, sizeof(more), "http = 0\nhttp-token = %s\n", s->token);
    configure(s, more);
    start(s);
    json_t *status = reefd_ask(&s->box, "{\"command\": \"status\"}");
    snprintf(address, sizeof(address), "%s", json_string_value(json_object_get(status, "http")));
    write_file(s->token, OTHER "\n", 0600);
    assert_int_equal(ask_with(address, TOKEN), 200);
    assert_int_equal(ask_with(address, OTHER), 401);
    json_t *answer = reefd_ask(&s->box, RELOAD);
    assert_true(has(json_object_get(answer, "changed"), "token"));
    assert_int_equal(ask_with(address, TOKEN), 401);
    assert_int_equal(ask_with(address, OTHER), 200);
    stop(s);
}

// Where others can reach it: over loopback streams need none.
static void with_a_new_token_streams_of_the_old_one_end(void **state) {
    service *s = *state;
    static const char LISTEN[] = "GET /v1/events HTTP/1.1\r\nHost: localhost\r\n"
                                 "Authorization: Bearer " TOKEN "\r\n\r\n";
    char more[300], address[64], byte;
    write_file(s->token, TOKEN "\n", 0600);
    snprintf(more, sizeof(more), "http = 0.0.0.0:0\nhttp-token = %s\n", s->token);
    configure(s, more);
    start(s);
    json_t *status = reefd_ask(&s->box, "{\"command\": \"status\"}");
    snprintf(address, sizeof(address), "%s", json_string_value(json_object_get(status, "http")));
    int fd = http_connect(address);
    assert_int_equal(send(fd, LISTEN, sizeof(LISTEN) - 1, MSG_NOSIGNAL), sizeof(LISTEN) - 1);
    assert_int_equal(recv(fd, &byte, 1, 0), 1);
    http_answer answer;
    json_decref(reefd_ask(&s->box, RELOAD)); // the same token
    assert_false(http_read_all(fd, 2, &answer));
    write_file(s->token, OTHER "\n", 0600);
    (void)reefd_ask(&s->box, RELOAD);
    assert_true(http_read_all(fd, 5, &answer));
    close(fd);
    assert_int_equal(ask_with(address, OTHER), 200);
    stop(s);
}

// ---- messages -----------------------------------------------------------------------------------

// Every line is an object with an event, a level and a time; returns whether `event` was among
// them.
static bool all_lines_are_json(const service *s, const char *event) {
    char *text = read_text(s->box.messages, NULL);
    bool found = false;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        if (!json_is_object(object)) fail_msg("no JSON object: %s", line);
        const char *level = json_string_value(json_object_get(object, "level"));
        const char *name = json_string_value(json_object_get(object, "event"));
        if (name == NULL || level == NULL || !json_is_integer(json_object_get(object, "unix_ms")))
            fail_msg("event, level or time is missing: %s", line);
        assert_true(strcmp(level, "error") == 0 || strcmp(level, "warning") == 0 ||
                    strcmp(level, "info") == 0);
        assert_int_equal(strcmp(name, "error") == 0, strcmp(level, "error") == 0);
        found |= strcmp(name, event) == 0;
        json_decref(object);
    }
    return found;
}

static void the_form_of_messages_changes_with_a_reload(void **state) {
    service *s = *state;
    configure(s, "");
    start(s);
    configure(s, "json-log = yes\n");
    (void)reefd_ask(&s->box, RELOAD);
    await_message(s, "{\"event\":\"reloaded\"");
    configure(s, "quiet = yes\n");
    (void)reefd_ask(&s->box, RELOAD);
    stop(s);
    char *text = read_text(s->box.messages, NULL);
    assert_int_equal(strncmp(text, "reefd: started: ", 16), 0);
    assert_null(strstr(text, "ended"));    // quiet
    assert_null(strstr(text, "stopping")); // quiet
}

static void every_line_of_the_json_log_has_a_level_and_a_time(void **state) {
    service *s = *state;
    static const char *const WRONG[][6] = {{"--json-log", "--threads", "0"},
                                           {"--json-log", "--frobnicate"},
                                           {"--json-log", "stray"},
                                           {"--json-log"},
                                           {"--pool", "none", "--stay", "--json-log"},
                                           {"--config", "none", "--json-log"}};
    for (size_t i = 0; i < sizeof(WRONG) / sizeof(*WRONG); i++) {
        assert_int_not_equal(reefd_run(&s->box, -1, WRONG[i]), 0);
        assert_true(all_lines_are_json(s, "error"));
    }
    configure(s, "json-log = yes\ncommit-steps = 5\n");
    start(s);
    await_steps(s, 20);
    (void)reefd_ask(&s->box, "{\"command\": \"seal\"}");
    configure(s, "json-log = yes\nbogus = 5\n");
    (void)reefd_refuses(&s->box, RELOAD);
    assert_int_equal(kill(s->pid, SIGUSR1), 0);
    await_message(s, "\"event\":\"status\"");
    stop(s);
    assert_true(all_lines_are_json(s, "started"));
    assert_true(all_lines_are_json(s, "error"));
    assert_true(all_lines_are_json(s, "ended"));
}

static void no_message_has_a_word_of_the_text(void **state) {
    service *s = *state;
    FILE *file = fopen(s->box.text, "w");
    for (int i = 0; i < 2000; i++) fputs(MARK " ", file);
    assert_int_equal(fclose(file), 0);
    for (int json = 0; json < 2; json++) {
        configure(s, json ? "json-log = yes\nstay = yes\n" : "stay = yes\n");
        sandbox_make_pool(&s->box);
        start(s);
        await_steps(s, 20);
        (void)reefd_ask(&s->box, "{\"command\": \"seal\"}");
        assert_int_equal(kill(s->pid, SIGUSR1), 0);
        await_message(s, json ? "\"event\":\"status\"" : "stream bytes");
        stop(s);
        char *text = read_text(s->box.messages, NULL);
        assert_null(strstr(text, "zyxw"));
    }
}

static void a_signal_shows_the_status_also_when_quiet(void **state) {
    service *s = *state;
    configure(s, "quiet = yes\n");
    start(s);
    await_steps(s, 5);
    assert_int_equal(kill(s->pid, SIGUSR1), 0);
    await_message(s, "reefd: scrub "); // comes last
    char *text = read_text(s->box.messages, NULL);
    static const char *const WANTED[] = {"reefd: state ", "reefd: step ", "reefd: sources ",
                                         "reefd: last_commit ", "number "};
    for (size_t i = 0; i < sizeof(WANTED) / sizeof(*WANTED); i++)
        if (strstr(text, WANTED[i]) == NULL) fail_msg("no '%s' in: %s", WANTED[i], text);
    configure(s, "quiet = yes\njson-log = yes\n");
    (void)reefd_ask(&s->box, RELOAD);
    assert_int_equal(kill(s->pid, SIGUSR1), 0);
    await_message(s, "\"event\":\"status\"");
    stop(s);
}

static void lines_for_the_journal_have_their_priority(void **state) {
    service *s = *state;
    struct stat info;
    char stream[64];
    write_file(s->box.messages, "", 0600); // reefd_start keeps the file
    assert_int_equal(stat(s->box.messages, &info), 0);
    snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)info.st_dev, (uintmax_t)info.st_ino);
    assert_int_equal(setenv("JOURNAL_STREAM", stream, 1), 0);
    configure(s, "");
    start(s);
    configure(s, "threads = 1\n");
    (void)reefd_ask(&s->box, RELOAD);
    configure(s, "threads = 0\n");
    (void)reefd_refuses(&s->box, RELOAD);
    stop(s);
    assert_true(reefd_said(&s->box, "<6>reefd: started: "));
    assert_true(reefd_said(&s->box, "<4>reefd: the configuration differs"));
    assert_true(reefd_said(&s->box, "<3>reefd: "));
    // A log that is another file has no prefixes, although the variable was inherited.
    assert_int_equal(setenv("JOURNAL_STREAM", "1:1", 1), 0);
    configure(s, "");
    start(s);
    stop(s);
    assert_int_equal(unsetenv("JOURNAL_STREAM"), 0);
    char *text = read_text(s->box.messages, NULL);
    assert_null(strstr(text, "<6>"));
}

// ---- --check ------------------------------------------------------------------------------------

static void a_check_ends_without_touching_the_pool(void **state) {
    service *s = *state;
    configure(s, "");
    const char *const check[] = {"--config", s->config, "--check", NULL};
    sandbox_remove_pool(&s->box);
    assert_int_equal(reefd_run(&s->box, -1, check), 0);
    assert_int_not_equal(access(s->box.pool, F_OK), 0);
    configure(s, "threads = many\n");
    assert_int_equal(reefd_run(&s->box, -1, check), 64);
    assert_true(reefd_said(&s->box, ":4: threads 'many'"));
    write_file(s->token, TOKEN "\n", 0644);
    char more[300];
    snprintf(more, sizeof(more), "http = 0\nhttp-token = %s\n", s->token);
    configure(s, more);
    assert_int_equal(reefd_run(&s->box, -1, check), 64);
    configure(s, "http = nowhere:1\n");
    assert_int_equal(reefd_run(&s->box, -1, check), 64);
    configure(s, "source = push:web\nsource = push:web?weight=2\n");
    assert_int_equal(reefd_run(&s->box, -1, check), 64);
    assert_true(reefd_said(&s->box, "the source 'push:web' is given twice"));
    char text[600];
    write_text(s->box.text, 3000, 1);
    snprintf(text, sizeof(text), "source = follow:%s\nsource = file:%s\n", s->box.text,
             s->box.text);
    configure(s, text);
    assert_int_equal(reefd_run(&s->box, -1, check), 64);
    assert_true(reefd_said(&s->box, "are one file, which is read once"));
}

// ---- files --------------------------------------------------------------------------------------

static void what_it_makes_is_for_its_own_user_alone(void **state) {
    service *s = *state;
    mode_t before = umask(0);
    sandbox_make_pool(&s->box);
    configure(s, "commit-steps = 1\n");
    start(s);
    await_steps(s, 5);
    (void)reefd_ask(&s->box, "{\"command\": \"snapshot\", \"name\": \"one\"}");
    size_t seen = 0;
    DIR *directory = opendir(s->box.pool);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        struct stat info;
        char name[512];
        if (strcmp(entry->d_name, "..") == 0) continue;
        snprintf(name, sizeof(name), "%s/%s", s->box.pool, entry->d_name);
        assert_int_equal(stat(name, &info), 0);
        if (info.st_mode & 077) fail_msg("%s has mode %o", entry->d_name, (unsigned)info.st_mode);
        seen++;
    }
    closedir(directory);
    umask(before);
    assert_true(seen >= 4); // itself, data, lock, socket
    // And whatever a library should come to make.
    char path[64], *text;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)s->pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text = calloc(1, 8192);
    assert_true(fread(text, 1, 8191, file) > 0);
    assert_int_equal(fclose(file), 0);
    assert_non_null(strstr(text, "Umask:\t0077"));
    free(text);
    stop(s);
}

// ---- verify -------------------------------------------------------------------------------------

// Whether the process is the other life already. Before, the daemon waits for its exec.
static bool is_checker(pid_t pid) {
    char path[64], text[256] = "";
    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) return false;
    size_t bytes = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    return bytes > 6 && strncmp(text + 6, "--verify", 8) == 0; // after "reefd" and its zero
}

// The child of the daemon, or 0.
static pid_t child_of(pid_t pid) {
    char path[64], text[32] = "";
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
    FILE *file = fopen(path, "r");
    if (file == NULL) return 0;
    bool found = fgets(text, sizeof(text), file) != NULL;
    fclose(file);
    pid_t child = found ? (pid_t)strtol(text, NULL, 10) : 0;
    return child > 0 && is_checker(child) ? child : 0;
}

// Ask for a check over a connection of its own; returns it.
static int ask_for_check(const service *s) {
    static const char REQUEST[] =
        "POST /v1/command HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        "Content-Length: 21\r\n\r\n{\"command\": \"verify\"}";
    struct sockaddr_un address;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    reef_error err;
    assert_int_equal(reef_address_init(&address, s->box.pool, NULL, &err), REEF_OK);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(write(fd, REQUEST, sizeof(REQUEST) - 1), sizeof(REQUEST) - 1);
    return fd;
}

// Ask for a check and hold its process. Nothing else is held: that is what is to be seen.
static pid_t hold_check(const service *s, int *fd) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)s->pid, (int)s->pid);
    if (access(path, R_OK) != 0) return 0;
    for (unsigned tries = 0; tries < 100; tries++) {
        *fd = ask_for_check(s);
        pid_t child = 0;
        for (unsigned waited = 0; child == 0 && waited < 1000; waited++) {
            child = child_of(s->pid);
            if (child == 0) sleep_ms(1);
        }
        if (child > 0 && kill(child, SIGSTOP) == 0 && child_of(s->pid) == child) return child;
        close(*fd); // it was faster
    }
    fail_msg("no check was ever seen");
    return 0;
}

static json_t *read_answer(int fd) {
    static char text[1 << 20];
    size_t used = 0;
    for (ssize_t count = 1; count != 0; used += count > 0 ? (size_t)count : 0) {
        count = read(fd, text + used, sizeof(text) - used - 1);
        assert_true(count >= 0 || errno == EINTR);
    }
    text[used] = 0;
    const char *body = strstr(text, "\r\n\r\n");
    assert_non_null(body);
    json_t *answer = json_loads(body, 0, NULL);
    assert_non_null(answer);
    return keep(answer);
}

static void nothing_waits_for_a_check(void **state) {
    service *s = *state;
    int fd = -1;
    configure(s, "commit-steps = 5\n");
    start(s);
    await_steps(s, 10);
    pid_t child = hold_check(s, &fd);
    if (child == 0) {
        print_message("skipped: this kernel does not tell the children of a process\n");
        skip();
    }
    await_steps(s, 50); // training continues, and so do
    await_commits(s, commits(s) + 5);
    (void)reefd_ask(&s->box, "{\"command\": \"seal\"}");
    (void)reefd_ask(&s->box, RELOAD);
    assert_int_equal(reefd_refuses(&s->box, "{\"command\": \"verify\"}"), REEF_ERR_BUSY);
    assert_int_equal(kill(child, SIGCONT), 0);
    json_t *answer = read_answer(fd);
    close(fd);
    assert_true(json_is_true(json_object_get(answer, "sound")));
    assert_true(json_integer_value(json_object_get(answer, "records")) > 0);
    assert_true(json_integer_value(json_object_get(answer, "pages")) > 0);
    assert_null(json_object_get(answer, "waited_ms"));
    stop(s);
}

static void the_end_does_not_wait_for_a_check(void **state) {
    service *s = *state;
    int fd = -1;
    configure(s, "");
    start(s);
    pid_t child = hold_check(s, &fd);
    if (child == 0) {
        print_message("skipped: this kernel does not tell the children of a process\n");
        skip();
    }
    stop(s);
    assert_int_equal(kill(child, 0), -1); // it went along
    assert_int_equal(errno, ESRCH);
    close(fd);
}

// Ask until the check of the client that left is over.
static json_t *check_when_free(const service *s, const char *request) {
    char *text = NULL;
    reef_error err = {.status = REEF_ERR_BUSY};
    for (unsigned waited = 0; err.status == REEF_ERR_BUSY; waited += 5) {
        assert_true(waited < WAIT_MS_MAX);
        err.status = reef_daemon_call(s->box.pool, NULL, request, &text, &err);
        sleep_ms(5);
    }
    assert_int_equal(err.status, REEF_OK);
    json_t *result = json_loads(text, 0, NULL);
    free(text);
    return keep(result);
}

static void a_client_that_leaves_its_check_does_no_harm(void **state) {
    service *s = *state;
    int fd = -1;
    configure(s, "");
    start(s);
    pid_t child = hold_check(s, &fd);
    close(fd);
    if (child == 0) {
        print_message("skipped: this kernel does not tell the children of a process\n");
        skip();
    }
    await_steps(s, 20);
    assert_int_equal(kill(child, SIGCONT), 0);
    json_t *result = check_when_free(s, "{\"command\": \"verify\", \"quick\": true}");
    assert_true(json_is_true(json_object_get(result, "sound")));
    assert_string_equal(json_string_value(json_object_get(result, "mode")), "quick");
    result = reefd_ask(&s->box, "{\"command\": \"verify\", \"sample\": 50, \"seed\": 7}");
    assert_string_equal(json_string_value(json_object_get(result, "mode")), "sample");
    assert_int_equal(json_integer_value(json_object_get(result, "seed")), 7);
    static const char *const WRONG[] = {"{\"command\": \"verify\", \"quick\": true, \"sample\": 5}",
                                        "{\"command\": \"verify\", \"sample\": 0}",
                                        "{\"command\": \"verify\", \"sample\": 101}",
                                        "{\"command\": \"verify\", \"seed\": 1}",
                                        "{\"command\": \"verify\", \"seed\": -1}",
                                        "{\"command\": \"verify\", \"fast\": true}",
                                        "{\"command\": \"reload\", \"now\": true}"};
    for (size_t i = 0; i < sizeof(WRONG) / sizeof(*WRONG); i++)
        assert_int_equal(reefd_refuses(&s->box, WRONG[i]), REEF_ERR_INVALID);
    stop(s);
}

static void answers_say_how_long_they_waited_for_a_step(void **state) {
    service *s = *state;
    static const char *const COMMANDS[] = {
        "{\"command\": \"commit\"}",
        "{\"command\": \"seal\"}",
        "{\"command\": \"grow\", \"side\": 5}",
        "{\"command\": \"freeze\", \"first\": 0, \"last\": 1}",
        "{\"command\": \"thaw\"}",
        "{\"command\": \"snapshot\", \"name\": \"one\"}",
        "{\"command\": \"snapshot_remove\", \"names\": [\"one\"]}",
        "{\"command\": \"drain\"}",
        "{\"command\": \"pause\"}",
        "{\"command\": \"resume\"}",
        RELOAD};
    write_text(s->box.text, 20000, 1); // a drain is to end soon
    configure(s, "stay = yes\n");
    start(s);
    await_steps(s, 5);
    for (size_t i = 0; i < sizeof(COMMANDS) / sizeof(*COMMANDS); i++) {
        json_t *result = reefd_ask(&s->box, COMMANDS[i]);
        const json_t *waited = json_object_get(result, "waited_ms");
        if (!json_is_real(waited) || json_real_value(waited) < 0)
            fail_msg("%s does not say how long it waited", COMMANDS[i]);
    }
    stop(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SET_UP(a_reload_changes_what_may_change_and_names_the_rest),
        SET_UP(a_hangup_is_a_reload),
        SET_UP(with_a_mistake_nothing_at_all_changes),
        SET_UP(a_new_token_counts_from_the_reload_on),
        SET_UP(with_a_new_token_streams_of_the_old_one_end),
        SET_UP(the_form_of_messages_changes_with_a_reload),
        SET_UP(every_line_of_the_json_log_has_a_level_and_a_time),
        SET_UP(no_message_has_a_word_of_the_text),
        SET_UP(a_signal_shows_the_status_also_when_quiet),
        SET_UP(lines_for_the_journal_have_their_priority),
        SET_UP(a_check_ends_without_touching_the_pool),
        SET_UP(what_it_makes_is_for_its_own_user_alone),
        SET_UP(nothing_waits_for_a_check),
        SET_UP(the_end_does_not_wait_for_a_check),
        SET_UP(a_client_that_leaves_its_check_does_no_harm),
        SET_UP(answers_say_how_long_they_waited_for_a_step),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
