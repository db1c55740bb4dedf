// See reefd_run.h. REEFD_PATH is the program under test; the build defines it.
#include "reefd_run.h"

#include "reef_client.h"
#include "reef_context.h"
#include "reef_pool_check.h"
#include "temp_dir.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define AWAIT_MS_MAX 60000
#define AWAIT_STEP_MS 5
#define BLOCK_BYTES 1000000
#define ROOT_BYTES_MAX 70 // of TMPDIR: below it a socket has to fit its path into 107 bytes

// ---- files --------------------------------------------------------------------------------------

void sandbox_make(sandbox *box) {
    const char *root = getenv("TMPDIR");
    *box = (sandbox){.input = -1, .memory = REEF_MEMORY_BYTES_MIN, .net_share = 0.5f};
    snprintf(box->directory, sizeof(box->directory), "%s/reefd_XXXXXX",
             root != NULL && strlen(root) < ROOT_BYTES_MAX ? root : "/tmp");
    assert_non_null(mkdtemp(box->directory));
    snprintf(box->pool, sizeof(box->pool), "%s/pool", box->directory);
    snprintf(box->text, sizeof(box->text), "%s/text", box->directory);
    snprintf(box->messages, sizeof(box->messages), "%s/messages", box->directory);
    snprintf(box->token, sizeof(box->token), "%s/token", box->directory);
    write_mode(box->token, TOKEN "\n", 0600);
}

void sandbox_remove(sandbox *box) {
    temp_dir_remove(box->directory);
}

void sandbox_remove_pool(const sandbox *box) {
    temp_dir_remove(box->pool);
}

reef_config tiny_config(void) {
    reef_config config;
    reef_config_default(&config);
    config.layers = 2;
    config.d_model = 16;
    config.attention_heads = 2;
    config.context = 16;
    config.batch = 2;
    config.heads = 2;
    config.topk = 2;
    config.d_key = 8;
    config.side = 4;
    config.memory = REEF_MEMORY_BYTES_MIN;
    return config;
}

void sandbox_make_pool_of(const sandbox *box, const reef_config *config) {
    reef_error err = {0};
    sandbox_remove_pool(box);
    reef_status status = reef_pool_init(box->pool, config, &err);
    if (status != REEF_OK) fail_msg("reef_pool_init: %s", err.message);
}

void sandbox_make_pool(const sandbox *box) {
    reef_config config = tiny_config();
    config.memory = box->memory;
    config.net_share = box->net_share;
    if (box->memory == 0) config.boundaries = REEF_BOUNDARIES_GIVEN;
    sandbox_make_pool_of(box, &config);
}

sandbox *sandbox_new(void **state, size_t bytes) {
    sandbox *box = *state = calloc(1, bytes);
    assert_non_null(box);
    sandbox_make(box);
    sandbox_make_pool(box);
    return box;
}

int sandbox_setup(void **state) {
    (void)sandbox_new(state, sizeof(sandbox));
    return 0;
}

int sandbox_teardown(void **state) {
    sandbox *box = *state;
    reefd_kill(box);
    sandbox_remove(box);
    free(box);
    return 0;
}

static uint64_t draw(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

// `make` writes the next word or line into a buffer of 32 bytes and returns how long it is. After
// BLOCK_BYTES the text repeats: no test reads so far, and many want more text than they read.
static void write_words(const char *path,
                        const char *mode,
                        size_t bytes,
                        uint64_t seed,
                        size_t (*make)(char *, uint64_t *)) {
    static char block[BLOCK_BYTES + 32];
    size_t made = 0, wanted = bytes < BLOCK_BYTES ? bytes : BLOCK_BYTES;
    FILE *file = fopen(path, mode);
    assert_non_null(file);
    while (made < wanted) made += make(block + made, &seed);
    for (size_t left = bytes, count; left > 0; left -= count) {
        count = left < wanted ? left : wanted;
        assert_int_equal(fwrite(block, 1, count, file), count);
    }
    assert_int_equal(fclose(file), 0);
}

static size_t make_word(char *word, uint64_t *seed) {
    static const char SYLLABLES[10][4] = {"ka", "lo",  "mi", "ren", "tu",
                                          "sa", "vel", "o",  "shi", "an"};
    char *at = word;
    for (uint64_t i = 0, count = 1 + draw(seed) % 3; i < count; i++)
        for (const char *from = SYLLABLES[draw(seed) % 10]; *from; from++) *at++ = *from;
    if (draw(seed) % 8 == 0)
        *at++ = '.', *at++ = '\n';
    else
        *at++ = ' ';
    return (size_t)(at - word);
}

static size_t make_figures(char *line, uint64_t *seed) {
    return (size_t)snprintf(line, 32, "{%03u: %04u};\n", (unsigned)(draw(seed) % 1000),
                            (unsigned)(draw(seed) % 10000));
}

static size_t make_noise(char *letters, uint64_t *seed) {
    for (size_t i = 0; i < 16; i++) letters[i] = (char)('0' + draw(seed) % 64);
    return 16;
}

void write_text(const char *path, size_t bytes, uint64_t seed) {
    write_words(path, "w", bytes, seed, make_word);
}

void append_figures(const char *path, size_t bytes, uint64_t seed) {
    write_words(path, "a", bytes, seed, make_figures);
}

void append_noise(const char *path, size_t bytes, uint64_t seed) {
    write_words(path, "a", bytes, seed, make_noise);
}

char *read_text(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long size = ftell(file);
    assert_true(size >= 0);
    rewind(file);
    char *text = keep(calloc((size_t)size + 1, 1));
    assert_non_null(text);
    size_t count = fread(text, 1, (size_t)size, file);
    assert_int_equal(fclose(file), 0);
    if (bytes != NULL) *bytes = count;
    return text;
}

void write_mode(const char *path, const char *text, mode_t mode) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, mode), 0);
}

size_t times_in(const char *text, const char *words) {
    size_t count = 0;
    assert_true(*words != '\0');
    for (const char *at = text; (at = strstr(at, words)) != NULL; at += strlen(words)) count++;
    return count;
}

// ---- the process --------------------------------------------------------------------------------

// In the child: nothing but system calls.
static void become_reefd(const char *messages, int input, char *const *arguments) {
    int in = input >= 0 ? input : open("/dev/null", O_RDONLY);
    int out = open(messages, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (in < 0 || out < 0 || dup2(in, STDIN_FILENO) < 0 || dup2(out, STDERR_FILENO) < 0) _exit(126);
    for (int fd = 3; fd < 256; fd++) close(fd);
    execv(REEFD_PATH, arguments);
    _exit(127);
}

pid_t reefd_start(const sandbox *box, int input, const char *const *arguments) {
    char *list[REEFD_ARGUMENTS_MAX + 2] = {(char *)(uintptr_t)REEFD_PATH};
    for (size_t i = 0; arguments[i] != NULL; i++) {
        assert_true(i < REEFD_ARGUMENTS_MAX);
        list[i + 1] = (char *)(uintptr_t)arguments[i];
    }
    // Emptied here already: what an earlier reefd said must not be taken for this one's words.
    int messages = open(box->messages, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(messages >= 0);
    close(messages);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) become_reefd(box->messages, input, list);
    return pid;
}

int reefd_wait(pid_t pid) {
    int state = 0;
    while (waitpid(pid, &state, 0) < 0) assert_int_equal(errno, EINTR);
    return WIFEXITED(state) ? WEXITSTATUS(state) : REEFD_SIGNALLED + WTERMSIG(state);
}

// With the pool before the others.
static pid_t start_on_pool(const sandbox *box, int input, const char *const *arguments) {
    const char *all[REEFD_ARGUMENTS_MAX + 1] = {"--pool", box->pool};
    for (size_t i = 0; arguments[i] != NULL; i++) {
        assert_true(i + 3 < REEFD_ARGUMENTS_MAX);
        all[i + 2] = arguments[i];
    }
    return reefd_start(box, input, all);
}

int reefd_run(const sandbox *box, int input, const char *const *arguments) {
    return reefd_wait(start_on_pool(box, input, arguments));
}

static void begin_from(sandbox *box, int input, const char *const *arguments) {
    assert_int_equal(box->pid, 0);
    box->pid = start_on_pool(box, input, arguments);
    if (input >= 0) close(input);
    reefd_await(box, box->pid);
    const char *address = json_string_value(json_at(reefd_status(box), "http"));
    snprintf(box->address, sizeof(box->address), "%s", address != NULL ? address : "");
}

void reefd_begin(sandbox *box, const char *const *arguments) {
    begin_from(box, -1, arguments);
}

void reefd_begin_piped(sandbox *box, const char *const *arguments) {
    const char *all[REEFD_ARGUMENTS_MAX + 1] = {"--source", "-"};
    int ends[2];
    for (size_t i = 0; arguments[i] != NULL; i++) all[i + 2] = arguments[i];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(fcntl(ends[1], F_SETFD, FD_CLOEXEC), 0);
    box->input = ends[1];
    begin_from(box, ends[0], all);
}

static void close_input(sandbox *box) {
    if (box->input >= 0) close(box->input);
    box->input = -1;
}

void reefd_await_end(sandbox *box) {
    close_input(box);
    int code = reefd_wait(box->pid);
    box->pid = 0;
    if (code != 0) fail_msg("reefd ended with %d: %s", code, read_text(box->messages, NULL));
    pool_check(box);
}

void reefd_end(sandbox *box) {
    assert_int_equal(kill(box->pid, SIGTERM), 0);
    reefd_await_end(box);
}

void reefd_kill(sandbox *box) {
    if (box->pid > 0) {
        kill(box->pid, SIGKILL);
        (void)reefd_wait(box->pid);
    }
    box->pid = 0;
    close_input(box);
}

void reefd_discard(sandbox *box) {
    reefd_kill(box);
    sandbox_make_pool(box);
}

int sandbox_stop(void **state) {
    (void)reefd_tell(*state, "resume"); // a test that failed may have left it paused
    assert_trains_on_and_stops(*state);
    return sandbox_teardown(state);
}

void assert_trains_on_and_stops(sandbox *box) {
    await_steps(box, 1);
    assert_string_equal(string(reefd_tell(box, "stop"), "state"), "draining");
    reefd_await_end(box);
}

size_t times_said(const sandbox *box, const char *text) {
    return times_in(read_text(box->messages, NULL), text);
}

int reefd_said(const sandbox *box, const char *text) {
    bool found = times_said(box, text) > 0;
    if (!found) print_message("looked for '%s' in:\n%s", text, read_text(box->messages, NULL));
    return found;
}

void await_said(const sandbox *box, const char *text) {
    for (unsigned waited = 0; times_said(box, text) == 0; waited += AWAIT_STEP_MS) {
        if (waited > AWAIT_MS_MAX) assert_true(reefd_said(box, text));
        sleep_ms(AWAIT_STEP_MS);
    }
}

// ---- the pool -----------------------------------------------------------------------------------

static void must(reef_status status, const reef_error *err) {
    if (status != REEF_OK) fail_msg("%s: %s", reef_status_text(status), err->message);
}

reef_txn *pool_view(const char *pool, reef_store **store) {
    reef_error err;
    reef_txn *txn = NULL;
    must(reef_store_open(store, pool, NULL, &err), &err);
    must(reef_txn_begin(&txn, *store, REEF_TXN_READ, &err), &err);
    return txn;
}

void pool_close(reef_store *store, reef_txn *txn) {
    reef_txn_abort(txn);
    reef_store_close(store);
}

reef_commit pool_commit(const sandbox *box) {
    reef_error err;
    reef_store *store;
    reef_commit commit;
    reef_txn *txn = pool_view(box->pool, &store);
    must(reef_commit_read(txn, &commit, &err), &err);
    pool_close(store, txn);
    return commit;
}

uint32_t pool_generations(const sandbox *box) {
    reef_error err;
    reef_store *store;
    uint32_t count;
    reef_txn *txn = pool_view(box->pool, &store);
    must(reef_generation_count(txn, &count, &err), &err);
    pool_close(store, txn);
    return count;
}

static void on_damage(void *context, const char *what) {
    print_message("damage: %s\n", what);
}

void pool_check(const sandbox *box) {
    reef_error err;
    reef_store *store = NULL;
    reef_check_report report = {0};
    must(reef_store_open(&store, box->pool, NULL, &err), &err);
    must(reef_store_check(store, &(reef_check_options){.on_damage = on_damage}, &report, &err),
         &err);
    reef_store_close(store);
    assert_int_equal(report.damaged, 0);
}

void assert_same(const reef_commit *a, const reef_commit *b) {
    assert_int_equal(a->stream_bytes, b->stream_bytes);
    assert_int_equal(a->step, b->step);
    assert_memory_equal(a->root, b->root, REEF_HASH_BYTES);
}

reef_trainer *pool_train(const char *pool, reef_store **store) {
    reef_error err;
    reef_trainer *trainer = NULL;
    must(reef_store_open(store, pool, &(reef_store_options){.write = true}, &err), &err);
    must(reef_trainer_open(&trainer, *store, &(reef_trainer_options){.threads = 1}, &err), &err);
    return trainer;
}

void pool_train_end(reef_store *store, reef_trainer *trainer) {
    reef_trainer_close(trainer);
    reef_store_close(store);
}

reef_score pool_score(
    const char *pool, const char *as_of, const char *text, size_t bytes, float *bits) {
    reef_error err;
    reef_store *store = NULL;
    reef_model *model = NULL;
    reef_score score = {0};
    must(reef_store_open(&store, pool, NULL, &err), &err);
    must(reef_model_open(&model, store, as_of, &(reef_model_options){.threads = 1}, &err), &err);
    must(reef_model_score(model, (const uint8_t *)text, bytes, bits, &score, NULL, NULL, &err),
         &err);
    reef_model_close(model);
    reef_store_close(store);
    return score;
}

// ---- questions ----------------------------------------------------------------------------------

void sleep_ms(unsigned ms) {
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&pause, &pause) != 0 && errno == EINTR) {
    }
}

void reefd_await(const sandbox *box, pid_t pid) {
    for (unsigned waited = 0; waited < AWAIT_MS_MAX; waited += AWAIT_STEP_MS) {
        char *result = NULL;
        reef_status status =
            reef_daemon_call(box->pool, NULL, "{\"command\": \"status\"}", &result, NULL);
        free(result);
        if (status == REEF_OK) return;
        if (waitpid(pid, NULL, WNOHANG) != 0) break;
        sleep_ms(AWAIT_STEP_MS);
    }
    char *messages = read_text(box->messages, NULL);
    fail_msg("reefd does not answer; it said: %s", messages);
}

json_t *reefd_ask(const sandbox *box, const char *request) {
    reef_error err = {0};
    char *text = NULL;
    reef_status status = reef_daemon_call(box->pool, NULL, request, &text, &err);
    if (status != REEF_OK) fail_msg("%s: %s", request, err.message);
    json_t *result = json_of_text(text);
    free(text);
    return result;
}

json_t *reefd_tell(const sandbox *box, const char *command) {
    char request[128];
    snprintf(request, sizeof(request), "{\"command\": \"%s\"}", command);
    return reefd_ask(box, request);
}

void reefd_snapshot(const sandbox *box, const char *name) {
    char request[256];
    snprintf(request, sizeof(request), "{\"command\": \"snapshot\", \"name\": \"%s\"}", name);
    (void)reefd_ask(box, request);
}

json_t *reefd_status(const sandbox *box) {
    return reefd_tell(box, "status");
}

reef_status reefd_refuses(const sandbox *box, const char *request) {
    reef_error err = {0};
    char *text = NULL;
    reef_status status = reef_daemon_call(box->pool, NULL, request, &text, &err);
    if (status == REEF_OK) fail_msg("%s was accepted: %s", request, text);
    assert_null(text);
    assert_true(err.message[0] != 0);
    return status;
}

reef_status reefd_push(const sandbox *box,
                       const char *source,
                       const char *id,
                       const void *text,
                       size_t bytes,
                       json_t **result,
                       reef_error *err) {
    const reef_daemon_batch batch = {
        .source = source, .id = id, .type = "text/plain", .bytes = text, .count = bytes};
    unsigned retry_ms = 0;
    char *reply = NULL;
    reef_status status = reef_daemon_push(box->pool, NULL, &batch, &reply, &retry_ms, err);
    if (status == REEF_OK && result != NULL) *result = json_of_text(reply);
    free(reply);
    return status;
}

json_t *reefd_push_ok(const sandbox *box, const char *source, const char *id, const char *text) {
    reef_error err = {0};
    json_t *result = NULL;
    if (reefd_push(box, source, id, text, strlen(text), &result, &err) != REEF_OK)
        fail_msg("%s", err.message);
    return result;
}

int64_t reefd_count(const sandbox *box, const char *path) {
    return integer(reefd_status(box), path);
}

void await_count(const sandbox *box, const char *path, int64_t least) {
    for (unsigned waited = 0; reefd_count(box, path) < least; waited += AWAIT_STEP_MS) {
        if (waited > AWAIT_MS_MAX) fail_msg("%s does not become %lld", path, (long long)least);
        sleep_ms(AWAIT_STEP_MS);
    }
}

void await_steps(const sandbox *box, int64_t more) {
    await_count(box, "step", reefd_count(box, "step") + more);
}

void await_text(const sandbox *box, const char *path, const char *text) {
    for (unsigned waited = 0;; waited += AWAIT_STEP_MS) {
        const char *found = json_string_value(json_at(reefd_status(box), path));
        if (found != NULL && strcmp(found, text) == 0) return;
        if (waited > AWAIT_MS_MAX) fail_msg("%s is %s, not %s", path, found, text);
        sleep_ms(AWAIT_STEP_MS);
    }
}

size_t test_effort(size_t few, size_t many) {
    return getenv("REEF_TEST_FULL") != NULL ? many : few;
}
