// Logits of a pool as another process computes them: the same test program, run again.
#ifndef LIFELONG_PROCESS_H
#define LIFELONG_PROCESS_H

#include "lifelong.h"

#include <sys/wait.h>
#include <unistd.h>

static const char *program; // this test; main sets it

// Another process: open the pool, write the logits as of a generation to a file.
static inline int write_logits(const char *pool,
                               const char *as_of,
                               const char *kind,
                               const char *path) {
    reef_store *store = NULL;
    float *logits = calloc(LIFELONG_PROBE_BYTES * REEF_VOCAB, sizeof(*logits));
    if (reef_store_open(&store, pool, &(reef_store_options){0}, &why) != REEF_OK) return 1;
    logits_of(store, as_of, atoi(kind), logits);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(logits, 1, LIFELONG_LOGIT_BYTES, file) != LIFELONG_LOGIT_BYTES ||
        fclose(file) != 0)
        return 1;
    reef_store_close(store);
    free(logits);
    return 0;
}

static inline void logits_in_new_process(const lifelong *f,
                                         const char *as_of,
                                         int kind,
                                         float *out) {
    char path[TEMP_DIR_BYTES], kind_text[8];
    temp_dir_join(path, f->dir, "logits");
    snprintf(kind_text, sizeof(kind_text), "%d", kind);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        execl(program, program, "logits", f->pool, as_of, kind_text, path, (char *)NULL);
        _exit(127);
    }
    int result;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result) && WEXITSTATUS(result) == 0);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(out, 1, LIFELONG_LOGIT_BYTES, file), LIFELONG_LOGIT_BYTES);
    fclose(file);
}

/** For the beginning of main: is this the other process? Then *result is what main returns. */
static inline bool lifelong_is_other_process(int argc, char **argv, int *result) {
    program = argv[0];
    if (argc != 6 || strcmp(argv[1], "logits") != 0) return false;
    *result = write_logits(argv[2], argv[3], argv[4], argv[5]);
    return true;
}

#endif
