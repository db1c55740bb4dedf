// Running the real reefd in tests: a directory with a tiny pool and generated text, the process,
// its messages, and questions over its socket. A helper that cannot do its work fails the test.
#ifndef REEFD_RUN_H
#define REEFD_RUN_H

#include "json_at.h"
#include "reef_store.h"
#include "reef_trainer.h"

#include <sys/types.h>

#define REEFD_ARGUMENTS_MAX 600
// At most so many accepted bytes are not learned yet by the tiny model: a piece that is to be
// judged, and a batch, which needs one byte after it.
#define WAITING_BYTES (2048 + 2 * 32)
#define REEFD_SIGNALLED 1000 // added to the signal's number in what reefd_wait returns

#define TOKEN "0123456789abcdef0123456789abcdef"

typedef struct sandbox {
    char directory[128];
    char pool[160];
    char text[160];     // a file of generated text
    char messages[160]; // what the last reefd said on standard error
    char token[160];    // a file with TOKEN
    char address[64];   // where the reefd that runs answers HTTP
    pid_t pid;          // of the reefd that runs; 0: none
    int input;          // the other end of its standard input; -1: it has none
    // Of the pools that sandbox_make_pool makes; a test may set them.
    uint64_t memory;
    float net_share;
} sandbox;

/** A fresh directory under TMPDIR, with a token; no pool and no text yet. */
void sandbox_make(sandbox *box);
void sandbox_remove(sandbox *box);
/** Two blocks of width 16 with 16 experts each, steps of two windows, a small context memory. */
reef_config tiny_config(void);
/** Replace the pool by a new one; the same bits for the same settings. */
void sandbox_make_pool_of(const sandbox *box, const reef_config *config);
/** The same of the tiny model. */
void sandbox_make_pool(const sandbox *box);
void sandbox_remove_pool(const sandbox *box);

/**
 * The setup and teardown of a cmocka test: the state is a sandbox with a pool, or something of
 * `bytes` that begins with one. The teardown kills what runs.
 */
sandbox *sandbox_new(void **state, size_t bytes);
int sandbox_setup(void **state);
int sandbox_teardown(void **state);
/** For several tests of one daemon, which each leaves training: it stops, and its pool is sound. */
int sandbox_stop(void **state);
/** A test in a sandbox that `setup` of its file, or another one, has made. */
#define BOX_TEST_OF(name, setup) TEST_WITH(name, setup, sandbox_teardown, sandbox *box)
#define BOX_TEST(name) BOX_TEST_OF(name, setup)
#define NEW_BOX_TEST(name) BOX_TEST_OF(name, sandbox_setup)
/** The same in a list, of files with a second list. */
#define BOX_OF(test, setup) cmocka_unit_test_setup_teardown(test, setup, sandbox_teardown)
#define BOX(test) BOX_OF(test, setup)

/** Sentences of made-up words; equal seeds give equal text. */
void write_text(const char *path, size_t bytes, uint64_t seed);
/** Add lines of another kind, made of digits and signs: where they begin, the domain changes. */
void append_figures(const char *path, size_t bytes, uint64_t seed);
/** The same of letters that nothing foretells, which a context memory never gets used to. */
void append_noise(const char *path, size_t bytes, uint64_t seed);
/** The whole file, with a final zero; `bytes` may be NULL. Kept, as all that comes from here. */
char *read_text(const char *path, size_t *bytes);
/** Make or replace a file. */
void write_mode(const char *path, const char *text, mode_t mode);
size_t times_in(const char *text, const char *words);

// ---- the process ----

/** Start reefd with standard input from `input` (-1: /dev/null); arguments end with NULL. */
pid_t reefd_start(const sandbox *box, int input, const char *const *arguments);
/** Wait for the end: the exit code, or REEFD_SIGNALLED + signal. */
int reefd_wait(pid_t pid);
/** Start on the sandbox's pool, to its end: the exit code. */
int reefd_run(const sandbox *box, int input, const char *const *arguments);
#define RUN(box, ...) reefd_run(box, -1, (const char *const[]){__VA_ARGS__, NULL})

/** Start on the sandbox's pool with arguments up to a NULL, and wait until it answers. */
void reefd_begin(sandbox *box, const char *const *arguments);
#define START(box, ...) reefd_begin(box, (const char *const[]){__VA_ARGS__, NULL})
/** The same with standard input from a pipe, whose other end is box->input; --source - is given. */
void reefd_begin_piped(sandbox *box, const char *const *arguments);
#define START_PIPED(box, ...) reefd_begin_piped(box, (const char *const[]){__VA_ARGS__, NULL})
/** Ask it to stop, which goes well and leaves a sound pool. */
void reefd_end(sandbox *box);
/** Wait for an end that comes by itself, and goes well. */
void reefd_await_end(sandbox *box);
/** SIGKILL, if it runs. */
void reefd_kill(sandbox *box);
/** Kill it, if it runs, and begin with a new pool. */
void reefd_discard(sandbox *box);
/** After whatever a test did, the daemon trains on, and a stop still works. */
void assert_trains_on_and_stops(sandbox *box);

/** Whether the messages of the last reefd contain `text`, and how often. */
int reefd_said(const sandbox *box, const char *text);
size_t times_said(const sandbox *box, const char *text);
/** Until they do. */
void await_said(const sandbox *box, const char *text);

// ---- the pool ----

/** A view of the pool of this process; `store` is closed by pool_close. */
reef_txn *pool_view(const char *pool, reef_store **store);
void pool_close(reef_store *store, reef_txn *txn);
/** The last commit of the pool, read by this process. */
reef_commit pool_commit(const sandbox *box);
/** How many generations the pool has. */
uint32_t pool_generations(const sandbox *box);
/** Walk the whole pool and fail when anything is damaged. */
void pool_check(const sandbox *box);
/** Both have the same stream, steps and root. */
void assert_same(const reef_commit *a, const reef_commit *b);
/** The pool open to learn. */
reef_trainer *pool_train(const char *pool, reef_store **store);
void pool_train_end(reef_store *store, reef_trainer *trainer);
/** What a text costs as of a state; bits (bytes), or NULL. */
reef_score pool_score(
    const char *pool, const char *as_of, const char *text, size_t bytes, float *bits);

// ---- questions ----

/** Wait until the daemon's socket answers. Fails when the daemon ends or a minute has passed. */
void reefd_await(const sandbox *box, pid_t pid);
/** One request; the result. Fails the test when it is an error. */
json_t *reefd_ask(const sandbox *box, const char *request);
/** The same of a command without members. */
json_t *reefd_tell(const sandbox *box, const char *command);
void reefd_snapshot(const sandbox *box, const char *name);
json_t *reefd_status(const sandbox *box);
/** One request that must be refused; returns its status. */
reef_status reefd_refuses(const sandbox *box, const char *request);
/**
 * Push one batch of text; `source` and `id` may be NULL. `result`, unless NULL, is kept.
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
/** The integer at a path of a fresh status, "sources.0.cursor". */
int64_t reefd_count(const sandbox *box, const char *path);
/** Until it is as much. */
void await_count(const sandbox *box, const char *path, int64_t least);
/** Until so many steps more are trained. */
void await_steps(const sandbox *box, int64_t more);
/** Until this stands there. */
void await_text(const sandbox *box, const char *path, const char *text);

void sleep_ms(unsigned ms);
/** How much a test does: `few` usually, `many` when REEF_TEST_FULL is set in the environment. */
size_t test_effort(size_t few, size_t many);

#endif
