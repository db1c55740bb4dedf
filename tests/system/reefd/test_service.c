// reefd as its operator meets it: a configuration that is read again as a whole or not at all,
// lines that say their level, and private files.
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
#define RELOAD "{\"command\": \"reload\"}"
#define OTHER "fedcba9876543210fedcba9876543210"
#define MARK "zyxwut" // a word of the text that no message may have

static char config[192]; // the file that reefd is started with

// Pool and source, and whatever else the configuration is to say.
static void configure(const sandbox *box, const char *more) {
    char text[2048];
    snprintf(text, sizeof(text), "[reefd]\npool = %s\nsource = %s\n%s", box->pool, box->text, more);
    write_mode(config, text, 0600);
}

static int setup(void **state) {
    sandbox *box = sandbox_new(state, sizeof(*box));
    write_text(box->text, TEXT_BYTES, 1);
    snprintf(config, sizeof(config), "%s/reefd.ini", box->directory);
    return 0;
}

static void start(sandbox *box) {
    START(box, "--config", config);
}

static json_int_t commits(const sandbox *box) {
    return reefd_count(box, "last_commit.number");
}

static void await_commits(const sandbox *box, json_int_t least) {
    await_count(box, "last_commit.number", least);
}

static bool has(const json_t *answer, const char *list, const char *name) {
    size_t i;
    json_t *one;
    json_array_foreach(json_at(answer, list), i,
                       one) if (strcmp(json_string_value(one), name) == 0) return true;
    return false;
}

// ---- reload -------------------------------------------------------------------------------------

#define NO_COMMITS "commit-steps = 0\ncommit-seconds = 0\n"

BOX_TEST(a_reload_changes_what_may_change_and_names_the_rest) {
    configure(box, NO_COMMITS "threads = 1\npool-max = 0\n");
    start(box);
    json_int_t before = commits(box);
    await_steps(box, 20);
    assert_int_equal(commits(box), before);
    configure(box, "commit-steps = 1\ncommit-seconds = 0\nthreads = 2\npool-max = 4G\n");
    json_t *answer = reefd_tell(box, "reload");
    assert_int_equal(length(answer, "changed"), 2);
    assert_true(has(answer, "changed", "commit-steps") && has(answer, "changed", "pool-max"));
    assert_int_equal(length(answer, "restart"), 1);
    assert_true(has(answer, "restart", "threads"));
    assert_string_equal(string(answer, "config"), config);
    assert_true(number(answer, "waited_ms") >= 0);
    assert_true(reefd_said(box, "what needs a restart: threads"));
    assert_int_equal(reefd_count(box, "threads"), 1);
    await_commits(box, before + 5);
    // What was taken over is what the next one is compared with.
    answer = reefd_tell(box, "reload");
    assert_int_equal(length(answer, "changed"), 0);
    assert_true(has(answer, "restart", "threads"));
    reefd_end(box);
}

BOX_TEST(a_hangup_is_a_reload) {
    configure(box, NO_COMMITS);
    start(box);
    json_int_t before = commits(box);
    configure(box, "commit-steps = 1\n");
    assert_int_equal(kill(box->pid, SIGHUP), 0);
    await_said(box, "reefd: reloaded: changed [\"commit-steps\",\"commit-seconds\"]");
    await_commits(box, before + 5);
    configure(box, "commit-steps = often\n");
    assert_int_equal(kill(box->pid, SIGHUP), 0);
    await_said(box, ":4: commit-steps 'often' is not a whole number");
    await_said(box, "the configuration stays as it was");
    await_commits(box, commits(box) + 5);
    reefd_end(box);
}

BOX_TEST(with_a_mistake_nothing_at_all_changes) {
    char http[300];
    snprintf(http, sizeof(http), "http = 0\nhttp-token = %s\n", box->token);
    char text[1024];
    snprintf(text, sizeof(text), NO_COMMITS "%s", http);
    configure(box, text);
    start(box);
    json_int_t before = commits(box);
    static const char *const MISTAKES[] = {"comit-seconds = 3\n", "threads = 0\n", "stay = maybe\n",
                                           "nonsense\n", "quiet = yes\nquiet = no\n"};
    for (size_t i = 0; i < sizeof(MISTAKES) / sizeof(*MISTAKES); i++) {
        snprintf(text, sizeof(text), "commit-steps = 1\njson-log = yes\n%s%s", http, MISTAKES[i]);
        configure(box, text);
        assert_int_equal(reefd_refuses(box, RELOAD), REEF_ERR_INVALID);
    }
    // What needs a restart is looked at too: the restart that the answer asks for would fail.
    char far[128];
    snprintf(far, sizeof(far), "socket = /%0*d\n", 110, 0);
    const char *const starts[] = {"http = nowhere:1\n", "http = 0.0.0.0:0\n",
                                  "http = 0\nhttp-token = not-there\n", far};
    for (size_t i = 0; i < sizeof(starts) / sizeof(*starts); i++) {
        snprintf(text, sizeof(text), "commit-steps = 1\njson-log = yes\n%s", starts[i]);
        configure(box, text);
        reef_status status =
            strstr(starts[i], "not-there") != NULL ? REEF_ERR_NOT_FOUND : REEF_ERR_INVALID;
        assert_int_equal(reefd_refuses(box, RELOAD), status);
    }
    // A token that others can read is refused as at the start, and takes everything else with it.
    snprintf(text, sizeof(text), "commit-steps = 1\njson-log = yes\n%s", http);
    configure(box, text);
    write_mode(box->token, OTHER "\n", 0644);
    assert_int_equal(reefd_refuses(box, RELOAD), REEF_ERR_INVALID);
    assert_int_equal(unlink(config), 0);
    assert_int_equal(reefd_refuses(box, RELOAD), REEF_ERR_NOT_FOUND);
    assert_true(reefd_said(box, "did you mean commit-seconds?"));
    await_steps(box, 20);
    assert_int_equal(commits(box), before);
    char *messages = read_text(box->messages, NULL);
    for (char *line = strtok(messages, "\n"); line != NULL; line = strtok(NULL, "\n"))
        assert_int_equal(strncmp(line, "reefd: ", 7), 0); // no JSON yet
    reefd_end(box);
}

static int ask_with(const sandbox *box, const char *token) {
    char header[128];
    static const char BODY[] = "{\"command\": \"status\"}";
    snprintf(header, sizeof(header), "Authorization: Bearer %s\r\n", token);
    return http_ask(box->address, "POST", "/v1/command", header, BODY, sizeof(BODY) - 1).code;
}

BOX_TEST(a_new_token_counts_from_the_reload_on) {
    char more[300];
    snprintf(more, sizeof(more), "http = 0\nhttp-token = %s\n", box->token);
    configure(box, more);
    start(box);
    write_mode(box->token, OTHER "\n", 0600);
    assert_int_equal(ask_with(box, TOKEN), 200);
    assert_int_equal(ask_with(box, OTHER), 401);
    json_t *answer = reefd_tell(box, "reload");
    assert_true(has(answer, "changed", "token"));
    assert_int_equal(ask_with(box, TOKEN), 401);
    assert_int_equal(ask_with(box, OTHER), 200);
    reefd_end(box);
}

// Where others can reach it: over loopback streams need none.
BOX_TEST(with_a_new_token_streams_of_the_old_one_end) {
    static const char LISTEN[] = "GET /v1/events HTTP/1.1\r\nHost: localhost\r\n"
                                 "Authorization: Bearer " TOKEN "\r\n\r\n";
    char more[300], byte;
    snprintf(more, sizeof(more), "http = 0.0.0.0:0\nhttp-token = %s\n", box->token);
    configure(box, more);
    start(box);
    int fd = http_raw(box->address, LISTEN, sizeof(LISTEN) - 1);
    assert_int_equal(recv(fd, &byte, 1, 0), 1);
    http_answer answer;
    (void)reefd_tell(box, "reload"); // the same token
    assert_false(http_read_all(fd, 2, &answer));
    write_mode(box->token, OTHER "\n", 0600);
    (void)reefd_tell(box, "reload");
    assert_true(http_read_all(fd, 5, &answer));
    close(fd);
    assert_int_equal(ask_with(box, OTHER), 200);
    reefd_end(box);
}

// ---- messages -----------------------------------------------------------------------------------

// Every line is an object with an event, a level and a time; returns whether `event` was among
// them.
static bool all_lines_are_json(const sandbox *box, const char *event) {
    char *text = read_text(box->messages, NULL);
    bool found = false;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        json_t *object = json_of_text(line);
        const char *level = string(object, "level"), *name = string(object, "event");
        (void)integer(object, "unix_ms");
        assert_true(strcmp(level, "error") == 0 || strcmp(level, "warning") == 0 ||
                    strcmp(level, "info") == 0);
        assert_int_equal(strcmp(name, "error") == 0, strcmp(level, "error") == 0);
        found |= strcmp(name, event) == 0;
    }
    return found;
}

BOX_TEST(the_form_of_messages_changes_with_a_reload) {
    configure(box, "");
    start(box);
    configure(box, "json-log = yes\n");
    (void)reefd_tell(box, "reload");
    await_said(box, "{\"event\":\"reloaded\"");
    configure(box, "quiet = yes\n");
    (void)reefd_tell(box, "reload");
    reefd_end(box);
    char *text = read_text(box->messages, NULL);
    assert_int_equal(strncmp(text, "reefd: started: ", 16), 0);
    assert_null(strstr(text, "ended"));    // quiet
    assert_null(strstr(text, "stopping")); // quiet
}

BOX_TEST(every_line_of_the_json_log_has_a_level_and_a_time) {
    static const char *const WRONG[][6] = {{"--json-log", "--threads", "0"},
                                           {"--json-log", "--frobnicate"},
                                           {"--json-log", "stray"},
                                           {"--json-log"},
                                           {"--pool", "none", "--stay", "--json-log"},
                                           {"--config", "none", "--json-log"}};
    for (size_t i = 0; i < sizeof(WRONG) / sizeof(*WRONG); i++) {
        assert_int_not_equal(reefd_wait(reefd_start(box, -1, WRONG[i])), 0);
        assert_true(all_lines_are_json(box, "error"));
    }
    configure(box, "json-log = yes\ncommit-steps = 5\n");
    start(box);
    await_steps(box, 20);
    (void)reefd_tell(box, "seal");
    configure(box, "json-log = yes\nbogus = 5\n");
    (void)reefd_refuses(box, RELOAD);
    reefd_end(box);
    assert_true(all_lines_are_json(box, "started"));
    assert_true(all_lines_are_json(box, "error"));
    assert_true(all_lines_are_json(box, "ended"));
}

BOX_TEST(no_message_has_a_word_of_the_text) {
    FILE *file = fopen(box->text, "w");
    for (int i = 0; i < 2000; i++) fputs(MARK " ", file);
    assert_int_equal(fclose(file), 0);
    for (int json = 0; json < 2; json++) {
        configure(box, json ? "json-log = yes\nstay = yes\n" : "stay = yes\n");
        sandbox_make_pool(box);
        start(box);
        await_steps(box, 20);
        (void)reefd_tell(box, "seal");
        reefd_end(box);
        char *text = read_text(box->messages, NULL);
        assert_null(strstr(text, "zyxw"));
    }
}

BOX_TEST(a_signal_for_others_does_no_harm) {
    configure(box, "");
    start(box);
    assert_int_equal(kill(box->pid, SIGUSR1), 0);
    await_steps(box, 5);
    reefd_end(box);
}

BOX_TEST(lines_for_the_journal_have_their_priority) {
    struct stat info;
    char stream[64];
    write_mode(box->messages, "", 0600); // reefd_start keeps the file
    assert_int_equal(stat(box->messages, &info), 0);
    snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)info.st_dev, (uintmax_t)info.st_ino);
    assert_int_equal(setenv("JOURNAL_STREAM", stream, 1), 0);
    configure(box, "");
    start(box);
    configure(box, "threads = 1\n");
    (void)reefd_tell(box, "reload");
    configure(box, "threads = 0\n");
    (void)reefd_refuses(box, RELOAD);
    reefd_end(box);
    assert_true(reefd_said(box, "<6>reefd: started: "));
    assert_true(reefd_said(box, "<4>reefd: the configuration differs"));
    assert_true(reefd_said(box, "<3>reefd: "));
    // A log that is another file has no prefixes, although the variable was inherited.
    assert_int_equal(setenv("JOURNAL_STREAM", "1:1", 1), 0);
    configure(box, "");
    start(box);
    reefd_end(box);
    assert_int_equal(unsetenv("JOURNAL_STREAM"), 0);
    char *text = read_text(box->messages, NULL);
    assert_null(strstr(text, "<6>"));
}

// ---- --check ------------------------------------------------------------------------------------

static int checked(const sandbox *box) {
    return reefd_wait(
        reefd_start(box, -1, (const char *const[]){"--config", config, "--check", NULL}));
}

BOX_TEST(a_check_ends_without_touching_the_pool) {
    configure(box, "");
    sandbox_remove_pool(box);
    assert_int_equal(checked(box), 0);
    assert_int_not_equal(access(box->pool, F_OK), 0);
    configure(box, "threads = many\n");
    assert_int_equal(checked(box), 64);
    assert_true(reefd_said(box, ":4: threads 'many'"));
    write_mode(box->token, TOKEN "\n", 0644);
    char more[300];
    snprintf(more, sizeof(more), "http = 0\nhttp-token = %s\n", box->token);
    configure(box, more);
    assert_int_equal(checked(box), 64);
    configure(box, "http = nowhere:1\n");
    assert_int_equal(checked(box), 64);
    configure(box, "source = push:web\nsource = push:web?weight=2\n");
    assert_int_equal(checked(box), 64);
    assert_true(reefd_said(box, "the source 'push:web' is given twice"));
    char text[600];
    write_text(box->text, 3000, 1);
    snprintf(text, sizeof(text), "source = follow:%s\nsource = file:%s\n", box->text, box->text);
    configure(box, text);
    assert_int_equal(checked(box), 64);
    assert_true(reefd_said(box, "are one file, which is read once"));
}

// ---- files --------------------------------------------------------------------------------------

BOX_TEST(what_it_makes_is_for_its_own_user_alone) {
    mode_t before = umask(0);
    sandbox_make_pool(box);
    configure(box, "commit-steps = 1\n");
    start(box);
    await_steps(box, 5);
    reefd_snapshot(box, "one");
    size_t seen = 0;
    DIR *directory = opendir(box->pool);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        struct stat info;
        char name[512];
        if (strcmp(entry->d_name, "..") == 0) continue;
        snprintf(name, sizeof(name), "%s/%s", box->pool, entry->d_name);
        assert_int_equal(stat(name, &info), 0);
        if (info.st_mode & 077) fail_msg("%s has mode %o", entry->d_name, (unsigned)info.st_mode);
        seen++;
    }
    closedir(directory);
    umask(before);
    assert_true(seen >= 4); // itself, data, lock, socket
    // And whatever a library should come to make.
    char path[64];
    snprintf(path, sizeof(path), "grep -q 'Umask:.0077' /proc/%d/status", (int)box->pid);
    assert_int_equal(system(path), 0);
    reefd_end(box);
}

// ---- answers ------------------------------------------------------------------------------------

BOX_TEST(answers_say_how_long_they_waited_for_a_step) {
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
    write_text(box->text, 20000, 1); // a drain is to end soon
    configure(box, "stay = yes\n");
    start(box);
    await_steps(box, 5);
    for (size_t i = 0; i < sizeof(COMMANDS) / sizeof(*COMMANDS); i++) {
        assert_true(number(reefd_ask(box, COMMANDS[i]), "waited_ms") >= 0);
    }
    reefd_end(box);
}

RUN_TESTS
