// See reef_program.h. The environment is read here, by programs, never by libraries.
#include "reef_program.h"

#include "reef_kernels.h"
#include "reef_store.h"

#include <jansson.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROGRAM_BYTES_MAX 40
#define POOL_BYTES_MAX 1000

// ---- no memory -----------------------------------------------------------------------------------

static const char *program_name;

// At once, from whatever thread: nothing is flushed, so that no half of an answer gets out, and nothing that
// was committed is lost.
static void out_of_memory(void) {
    static const char WHY[] = ": out of memory; nothing that was committed is lost\n";
    ssize_t unused = write(STDERR_FILENO, program_name, strlen(program_name));
    unused = write(STDERR_FILENO, WHY, sizeof(WHY) - 1);
    (void)unused;
    _exit(reef_status_exit_code(REEF_NO_MEMORY));
}

// Without memory jansson leaves members out and takes cut words for other ones, and does not always say so.
static void *json_memory(size_t bytes) {
    void *memory = malloc(bytes);
    if (memory == NULL) out_of_memory();
    return memory;
}

void reef_program_begin(const char *name) {
    program_name = name;
    json_set_alloc_funcs(json_memory, free);
}

// ---- kernels -------------------------------------------------------------------------------------

reef_status reef_program_choose_kernels(reef_error *err) {
    const char *isa = getenv("REEF_ISA");
    return reef_kernels_choose(isa != NULL && *isa != '\0' ? isa : NULL, err);
}

// ---- damaged pages -------------------------------------------------------------------------------

// Put together beforehand: a handler may call write and _exit, and little else.
static char guard_line[PROGRAM_BYTES_MAX + 2 * POOL_BYTES_MAX + 250];
static size_t guard_bytes;

static void on_fault(int number) {
    // An assert of ours is ours: the handler returns, and abort() goes on.
    if (number == SIGABRT && !reef_store_gave_up()) return;
    (void)!write(STDERR_FILENO, guard_line, guard_bytes);
    _exit(reef_status_exit_code(REEF_CORRUPT));
}

// A terminal sees it: no control characters.
static void path_print(char *out, const char *path) {
    size_t i = 0;
    for (; path[i] != '\0' && i + 1 < POOL_BYTES_MAX; i++)
        out[i] = (unsigned char)path[i] < 0x20 || path[i] == 0x7f ? '?' : path[i];
    out[i] = '\0';
}

void reef_program_guard(const char *program, const char *pool) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    (void)program, (void)pool; // sanitizers have handlers of their own, which say more
    (void)on_fault, (void)path_print;
#else
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGABRT};
    static char path[POOL_BYTES_MAX];
    if (guard_bytes > 0) return;
    path_print(path, pool);
    int bytes =
        snprintf(guard_line, sizeof(guard_line),
                 "%.*s: stopped by a signal while it used pool %s: most likely a page of its "
                 "data.mdb is damaged; see what is lost with: reef verify %s (where that finds "
                 "nothing, this is a bug)\n",
                 PROGRAM_BYTES_MAX, program, path, path);
    guard_bytes = bytes < 0 ? 0 : (size_t)bytes;
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        (void)sigaction(signals[i], &(struct sigaction){.sa_handler = on_fault}, NULL);
#endif
}
