// Running the real reefd in tests: a directory with a tiny pool and generated text, the process,
// its messages, and questions over its socket. A helper that cannot do its work fails the test.
#ifndef REEFD_RUN_H
#define REEFD_RUN_H

#include "reef_config.h"
#include "reef_store.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define REEFD_ARGUMENTS_MAX 600
// At most so many accepted bytes are not learned yet by the tiny model: a piece that is to be
// judged, and a batch, which needs one byte after it.
#define WAITING_BYTES (2048 + 2 * 32)
#define REEFD_SIGNALLED 1000 // added to the signal's number in what reefd_wait returns

typedef struct sandbox {
    char directory[128];
    char pool[160];
    char text[160];     // a file of generated text
    char messages[160]; // what the last reefd said on standard error
    // Of the pools that sandbox_make_pool makes; no context memory, and 1, unless a test sets them.
    uint64_t context_memory;
    float net_share;
} sandbox;

/** A fresh directory under TMPDIR; no pool and no text yet. */
void sandbox_make(sandbox *box);
void sandbox_remove(sandbox *box);
/** Two blocks of width 16 with 16 experts each, steps of two windows, no context memory. */
reef_config tiny_config(void);
/** Replace the pool by a new one; the same bits for the same settings. */
void sandbox_make_pool_of(const sandbox *box, const reef_config *config);
/** The same of the tiny model. */
void sandbox_make_pool(const sandbox *box);
void sandbox_remove_pool(const sandbox *box);

/** Sentences of made-up words; equal seeds give equal text. */
void write_text(const char *path, size_t bytes, uint64_t seed);
/** Add lines of another kind, made of digits and signs: where they begin, the domain changes. */
void append_figures(const char *path, size_t bytes, uint64_t seed);
/** The same of letters that nothing foretells, which a context memory never gets used to. */
void append_noise(const char *path, size_t bytes, uint64_t seed);
/** The whole file on the heap, with a final zero; `bytes` may be NULL. */
char *read_text(const char *path, size_t *bytes);

/** Start reefd with standard input from `input` (-1: /dev/null); arguments end with NULL. */
pid_t reefd_start(const sandbox *box, int input, const char *const *arguments);
/** Wait for the end: the exit code, or REEFD_SIGNALLED + signal. */
int reefd_wait(pid_t pid);
/** Start and wait. */
int reefd_run(const sandbox *box, int input, const char *const *arguments);
/** Whether the messages of the last reefd contain `text`. */
int reefd_said(const sandbox *box, const char *text);

/** The last commit of the pool, read by this process. */
reef_commit pool_commit(const sandbox *box);
/** How many generations the pool has. */
uint32_t pool_generations(const sandbox *box);
/** Walk the whole pool and fail when anything is damaged. */
void pool_check(const sandbox *box);

/** Wait until the daemon's socket answers. Fails when the daemon ends or a minute has passed. */
void reefd_await(const sandbox *box, pid_t pid);
/** One request; the result, which the caller releases. Fails the test when it is an error. */
json_t *reefd_ask(const sandbox *box, const char *request);
/** One request that must be refused; returns its status. */
reef_status reefd_refuses(const sandbox *box, const char *request);
/**
 * Push one batch of text; `source` and `id` may be NULL. `result`, unless NULL, is the caller's.
 */
reef_status reefd_push(const sandbox *box,
                       const char *source,
                       const char *id,
                       const void *text,
                       size_t bytes,
                       json_t **result,
                       reef_error *err);
/** The same of a text that must be taken. */
json_t *reefd_push_ok(const sandbox *box, const char *source, const char *id, const char *text);
/** Integer `key` of a fresh status. */
int64_t reefd_count(const sandbox *box, const char *key);

void sleep_ms(unsigned ms);
/** How much a test does: `few` usually, `many` when REEF_TEST_FULL is set in the environment. */
size_t test_effort(size_t few, size_t many);

#endif
