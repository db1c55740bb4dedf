// What the wider kernels save: this program runs itself with those of a processor that has AVX2 but
// not AVX-512, ours and OpenBLAS's, at the same sizes; see bench_peer.h.
#include "bench_peer.h"
#include "reef_clock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROGRAM "/proc/self/exe"
#define REPEAT_MAX 3
#define SECONDS_MAX 1800.0 // then it is stopped
#define POLL_NS 20000000
#define ARGUMENTS_MAX 32

extern char **environ;

static const char *const SETTINGS[] = {"REEF_ISA=avx2", "OPENBLAS_CORETYPE=Haswell"};
#define SETTING_COUNT (sizeof(SETTINGS) / sizeof(SETTINGS[0]))

// ---- the process --------------------------------------------------------------------------------

static bool is_setting(const char *variable) {
    for (size_t i = 0; i < SETTING_COUNT; i++) {
        size_t name = (size_t)(strchr(SETTINGS[i], '=') - SETTINGS[i]) + 1;
        if (strncmp(variable, SETTINGS[i], name) == 0) return true;
    }
    return false;
}

// Our environment with the settings in it; the array is on the heap, its texts are not.
static char **environment_new(void) {
    size_t count = 0, kept = 0;
    while (environ[count] != NULL) count++;
    char **variables = reef_cli_alloc(count + SETTING_COUNT + 1, sizeof(*variables));
    for (size_t i = 0; i < count; i++)
        if (!is_setting(environ[i])) variables[kept++] = environ[i];
    for (size_t i = 0; i < SETTING_COUNT; i++) variables[kept++] = (char *)SETTINGS[i];
    return variables;
}

// Standard output goes into the file; standard error is ours, so that a bar and a mistake are seen.
static int spawn_with_avx2(pid_t *child, char **arguments, int out) {
    posix_spawn_file_actions_t actions;
    int error = posix_spawn_file_actions_init(&actions);
    if (error) return error;
    char **variables = environment_new();
    error = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!error) error = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    if (!error) error = posix_spawn(child, PROGRAM, &actions, NULL, arguments, variables);
    posix_spawn_file_actions_destroy(&actions);
    free(variables);
    return error;
}

// False when it did not end by itself with code 0.
static bool wait_for_child(pid_t child) {
    double deadline = reef_seconds() + SECONDS_MAX;
    const struct timespec pause = {.tv_nsec = POLL_NS};
    int end = 0;
    pid_t got;
    while ((got = waitpid(child, &end, WNOHANG)) == 0 || (got < 0 && errno == EINTR)) {
        if (reef_seconds() > deadline) kill(child, SIGKILL);
        nanosleep(&pause, NULL);
    }
    return got == child && WIFEXITED(end) && WEXITSTATUS(end) == 0;
}

// The document that the program answers; on failure NULL, with the reason in `why`.
static json_t *answer_of(char **arguments, reef_error *why) {
    json_t *document = NULL;
    json_error_t mistake;
    pid_t child;
    // A temporary file rather than a pipe: it need not be read while the child runs.
    FILE *out = tmpfile();
    int error = out != NULL ? spawn_with_avx2(&child, arguments, fileno(out)) : errno;
    if (error) {
        reef_fail(why, REEF_ERR_IO, "cannot run this program again: %s", strerror(error));
    } else if (!wait_for_child(child)) {
        reef_fail(why, REEF_ERR_IO, "this program failed with the kernels of avx2");
    } else {
        // The child has written through its own copy of the descriptor; here reading begins at the
        // start.
        rewind(out);
        document = json_loadf(out, 0, &mistake);
        if (document == NULL)
            reef_fail(why, REEF_ERR_IO, "this program answered no JSON: %.100s", mistake.text);
    }
    if (out != NULL) fclose(out);
    return document;
}

// ---- the measurement ----------------------------------------------------------------------------

static void add_number(char **arguments, size_t *count, const char *option, uint64_t value) {
    arguments[(*count)++] = reef_cli_format("--%s", option);
    arguments[(*count)++] = reef_cli_format("%llu", (unsigned long long)value);
}

static json_t *run_child(const reef_peer_plan *plan, reef_error *why) {
    char *arguments[ARGUMENTS_MAX] = {NULL};
    // Only the layer is measured: the other parts do not depend on the kernels.
    static const char *const WORDS[] = {PROGRAM, "bench", "peer", "--json", "--only", "layer"};
    size_t count = 0;
    // The words are copied as well, so that all arguments can be freed in one loop.
    for (; count < sizeof(WORDS) / sizeof(WORDS[0]); count++)
        arguments[count] = reef_cli_format("%s", WORDS[count]);
    add_number(arguments, &count, "side", plan->shape.side);
    add_number(arguments, &count, "d-model", plan->shape.d_model);
    add_number(arguments, &count, "heads", plan->shape.head_count);
    add_number(arguments, &count, "topk", plan->shape.topk);
    add_number(arguments, &count, "d-key", plan->shape.d_key);
    add_number(arguments, &count, "tokens", plan->tokens);
    add_number(arguments, &count, "threads", plan->threads);
    // Fewer rounds than the main run, as this one repeats all of it in a second process.
    add_number(arguments, &count, "repeat", plan->repeat < REPEAT_MAX ? plan->repeat : REPEAT_MAX);
    json_t *document = answer_of(arguments, why);
    for (size_t i = 0; i < count; i++) free(arguments[i]);
    return document;
}

void reef_peer_avx2_measure(const reef_peer_plan *plan, reef_peer_avx2 *out) {
    *out = (reef_peer_avx2){0};
    // The comparison has a meaning only where the CPU has AVX-512 and it is in use.
    if (strcmp(reef_kernels_name(), "avx512") != 0) {
        reef_fail(&out->missing, REEF_ERR_INVALID,
                  "the kernels in use are %s, not avx512: nothing to compare", reef_kernels_name());
        return;
    }
    json_t *document = run_child(plan, &out->missing);
    // The reason is already in `missing`.
    if (document == NULL) return;
    const char *kernels = json_string_value(json_object_get(document, "kernels"));
    const char *blas = json_string_value(json_object_get(document, "blas"));
    out->forward_tokens_per_s =
        json_number_value(json_object_get(document, "forward_tokens_per_s"));
    out->step_tokens_per_s = json_number_value(json_object_get(document, "step_tokens_per_s"));
    // Which kernels OpenBLAS chose is part of the result, as they matter as much as ours.
    snprintf(out->blas, sizeof(out->blas), "%s", blas != NULL ? blas : "");
    // An answer of other kernels would compare a thing with itself, so it is refused.
    if (kernels == NULL || strcmp(kernels, "avx2") != 0 || !(out->forward_tokens_per_s > 0) ||
        !(out->step_tokens_per_s > 0))
        reef_fail(&out->missing, REEF_ERR_IO, "this program answered without figures of avx2");
    json_decref(document);
}
