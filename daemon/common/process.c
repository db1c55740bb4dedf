// See reef_process.h. The environment is read here, by programs, never by libraries.
#include "reef_process.h"

#include "reef_kernels.h"
#include "reef_log.h"
#include "reef_pool_check.h"
#include "reef_store.h"
#include "reef_system.h"

#include <jansson.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROGRAM_BYTES_MAX 40
#define POOL_BYTES_MAX 1000

// ---- last words ---------------------------------------------------------------------------------

static bool log_json, log_journal;

void reef_program_log(bool json, bool journal) {
    log_json = json;
    log_journal = journal;
}

// From a signal handler and without memory: write(2) and little else.
static void write_stderr(const char *text, size_t bytes) {
    (void)!write(STDERR_FILENO, text, bytes);
}

static void put_text(const char *text) {
    write_stderr(text, strlen(text));
}

// A JSON object, complete but for the time, which comes last: `{"a": 1`.
static void put_json(const char *open) {
    // This runs in a signal handler. It may use neither printf nor malloc, so digits are written by
    // hand.
    char digits[24], line[24 + 16] = ",\"unix_ms\":";
    uint64_t ms = reef_unix_ms();
    size_t count = 0, at = strlen(line);
    // The digits come out backwards.
    for (; ms > 0; ms /= 10) digits[count++] = (char)('0' + ms % 10);
    while (count > 0) line[at++] = digits[--count];
    line[at++] = '}';
    line[at++] = '\n';
    put_text(open);
    write_stderr(line, at);
}

// ---- no memory ----------------------------------------------------------------------------------

static const char *program_name;

// At once, from whatever thread: nothing is flushed, so that no half of an answer gets out, and
// nothing that was committed is lost.
static void out_of_memory(void) {
    if (log_json) {
        put_json("{\"event\":\"error\",\"level\":\"error\",\"status\":\"no memory\","
                 "\"message\":\"out of memory; nothing that was committed is lost\"");
    } else {
        if (log_journal) put_text("<3>");
        put_text(program_name);
        put_text(": out of memory; nothing that was committed is lost\n");
    }
    _exit(reef_status_exit_code(REEF_ERR_NO_MEMORY));
}

// Without memory jansson leaves members out and takes cut words for other ones, and does not always
// say so.
static void *json_memory(size_t bytes) {
    void *memory = malloc(bytes);
    if (memory == NULL) out_of_memory();
    return memory;
}

void reef_program_begin(const char *name) {
    program_name = name;
    reef_std_fds_reserve();
    json_set_alloc_funcs(json_memory, free);
}

// ---- kernels ------------------------------------------------------------------------------------

reef_status reef_program_choose_kernels(reef_error *err) {
    const char *isa = getenv("REEF_ISA");
    return reef_kernels_choose(isa != NULL && *isa != '\0' ? isa : NULL, err);
}

// ---- damaged pages ------------------------------------------------------------------------------

// Put together beforehand: a handler may call write and _exit, and little else.
static char guard_line[PROGRAM_BYTES_MAX + 2 * POOL_BYTES_MAX + 250];
static char *guard_json; // all but the time

static void on_fault(int number) {
    // LMDB aborts when it finds its file damaged. That is an error of the file and gets a message.
    // An assert of ours, or the abort that a watchdog sends, keeps its core dump.
    if (number == SIGABRT && !reef_store_lmdb_aborted()) {
        (void)signal(SIGABRT, SIG_DFL);
        (void)raise(SIGABRT);
        return;
    }
    // Two threads may read pages that are not there; one reports it, and ends the other.
    static atomic_flag reported = ATOMIC_FLAG_INIT;
    while (atomic_flag_test_and_set(&reported)) (void)pause();
    // The text was prepared before the signal: formatting is not safe here.
    if (log_json && guard_json != NULL) {
        put_json(guard_json);
    } else {
        if (log_journal) put_text("<3>");
        put_text(guard_line);
    }
    // _exit, because handlers of exit could touch the broken state again.
    _exit(reef_status_exit_code(REEF_ERR_CORRUPT));
}

// A terminal sees it: no control characters.
static void path_print(char *out, const char *path) {
    size_t i = 0;
    for (; path[i] != '\0' && i + 1 < POOL_BYTES_MAX; i++)
        out[i] = (unsigned char)path[i] < 0x20 || path[i] == 0x7f ? '?' : path[i];
    out[i] = '\0';
}

// The line without its end as a JSON object without its end.
static char *guard_as_json(void) {
    char message[sizeof(guard_line)];
    snprintf(message, sizeof(message), "%s", guard_line + strcspn(guard_line, ":") + 2);
    message[strcspn(message, "\n")] = '\0';
    json_t *object =
        json_pack("{s:s, s:s, s:s, s:o}", "event", "error", "level", "error", "status",
                  reef_status_text(REEF_ERR_CORRUPT), "message", reef_json_text(message));
    char *text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    if (text != NULL) text[strlen(text) - 1] = '\0';
    return text;
}

void reef_program_guard(const char *program, const char *pool) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    (void)program, (void)pool; // sanitizers have handlers of their own, which say more
    (void)on_fault, (void)path_print, (void)guard_as_json;
#else
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGABRT};
    static char path[POOL_BYTES_MAX];
    // The first caller names the pool; a second guard changes nothing.
    if (guard_line[0]) return;
    path_print(path, pool);
    snprintf(guard_line, sizeof(guard_line),
             "%.*s: stopped by a signal while it used pool %s: "
             "most likely a page of its data.mdb is damaged; see what is lost with: "
             "reef verify %s (where that finds nothing, this is a bug)\n",
             PROGRAM_BYTES_MAX, program, path, path);
    // Both forms are built now, while memory may still be allocated.
    guard_json = guard_as_json();
    // A fault in the handler itself ends the process.
    struct sigaction action = {.sa_handler = on_fault};
    (void)sigfillset(&action.sa_mask);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        (void)sigaction(signals[i], &action, NULL);
#endif
}
