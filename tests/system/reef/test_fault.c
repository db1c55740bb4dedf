// `reef` and `reefd` on pools that are damaged, are none, or are of another version, and on a full
// disk: one line that says so, an exit code of sysexits(3), never a signal, and nothing lost.
#include "reef_process.h"
#include "tools_world.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool_version.h"
#include "small_disk.h"
#include "test.h"
#include "whole_file.h"

#define DAMAGES 40
#define ROUNDS_MAX 200 // of filling a disk
#define POOL "POOL"    // stands for the pool's path
#define TEXT "TEXT"    // and for a text's

typedef struct faults {
    char *directory;
    char *pool, *text;
    char *original; // a sound data.mdb, to damage
    size_t original_bytes;
    bool mounted;
    char *disk, *filler; // a small file system, and what fills it
} faults;

static int setup(void **state) {
    unsetenv("REEF_POOL");
    faults *w = keep(reef_cli_alloc(1, sizeof(*w)));
    w->directory = test_directory_new();
    w->pool = path_in(w->directory, "pool");
    w->text = path_in(w->directory, "text");
    w->disk = path_in(w->directory, "disk");
    w->filler = path_in(w->disk, "filler");
    write_file(w->text, tiny_text("english", 500));
    assert_int_equal(mkdir(w->disk, 0700), 0);
    *state = w;
    return 0;
}

static int teardown(void **state) {
    faults *w = *state;
    if (w->mounted) small_disk_unmount(w->disk);
    test_directory_remove(w->directory);
    return 0;
}

static void train_pool(const faults *w) {
    make_pool(w->pool);
    tiny_pool_train(w->pool);
}

// ---- every command on a pool that cannot be used ------------------------------------------------

static const char *const COMMANDS[][ARGUMENTS_MAX] = {
    {REEF_BINARY, "status", POOL},
    {REEF_BINARY, "seal", POOL},
    {REEF_BINARY, "grow", POOL, "--side", "9"},
    {REEF_BINARY, "freeze", POOL},
    {REEF_BINARY, "thaw", POOL, "--dry-run"},
    {REEF_BINARY, "snapshot", "create", POOL, "new"},
    {REEF_BINARY, "snapshot", "list", POOL},
    {REEF_BINARY, "eval", POOL, TEXT},
    {REEF_BINARY, "eval", POOL, "--as-of", "kept", TEXT},
    {REEF_BINARY, "eval", POOL, "--matrix", TEXT},
    {REEF_BINARY, "score", POOL, TEXT},
    {REEF_BINARY, "generate", POOL},
    {REEF_BINARY, "generations", POOL},
    {REEF_BINARY, "usage", POOL},
    {REEF_BINARY, "timeline", POOL},
    {REEF_BINARY, "verify", POOL},
    {REEF_BINARY, "plot", "loss", POOL},
    {REEFD_BINARY, "--pool", POOL, "--source", TEXT},
};

static void run(const faults *w, program *p, const char *const *command) {
    const char *argv[ARGUMENTS_MAX + 1] = {NULL};
    for (size_t i = 0; command[i] != NULL; i++) {
        argv[i] = command[i];
        if (strcmp(command[i], POOL) == 0) argv[i] = w->pool;
        if (strcmp(command[i], TEXT) == 0) argv[i] = w->text;
    }
    program_run(p, argv, NULL);
}

static void every_command_refuses(const faults *w, int code, const char *says) {
    for (size_t i = 0; i < sizeof(COMMANDS) / sizeof(*COMMANDS); i++) {
        program p;
        run(w, &p, COMMANDS[i]);
        bool lists = strcmp(COMMANDS[i][1], "verify") == 0; // what is damaged, before its last line
        if (p.code != code || (line_count(p.err) != 1 && !lists) || !strstr(p.err, says) ||
            !strstr(p.err, w->pool))
            fail_msg("%s %s: exit %d, not %d with '%s': %s", COMMANDS[i][0], COMMANDS[i][1], p.code,
                     code, says, p.err);
        assert_string_equal(p.out, "");
    }
}

// A pool whose data.mdb holds these bytes and nothing else.
static void place(const faults *w, const void *bytes, size_t count) {
    char *data = path_in(w->pool, "data.mdb");
    (void)mkdir(w->pool, 0700);
    whole_file_write(data, bytes, count);
}

static void keep_original(faults *w) {
    train_pool(w);
    char *data = path_in(w->pool, "data.mdb");
    w->original = whole_file_read(data, &w->original_bytes);
}

#define FIXTURE_TEST(name) TEST_WITH(name, setup, teardown, faults *w)

FIXTURE_TEST(what_is_no_pool_is_refused_by_every_command) {
    every_command_refuses(w, 66, "there is no pool");
    assert_int_equal(mkdir(w->pool, 0700), 0);
    every_command_refuses(w, 64, "no data.mdb");
    static const char GARBAGE[20000] = "this is no database";
    place(w, GARBAGE, sizeof(GARBAGE));
    every_command_refuses(w, 64, "not an LMDB file");
    place(w, "", 0);
    every_command_refuses(w, 64, "not an LMDB file");
}

FIXTURE_TEST(a_truncated_pool_is_refused_by_every_command) {
    keep_original(w);
    place(w, w->original, w->original_bytes / 2 / 4096 * 4096);
    every_command_refuses(w, 65, "truncated");
    place(w, w->original, 4096);
    every_command_refuses(w, 65, "damaged");
    place(w, w->original, w->original_bytes); // whole again, nothing was lost
    program p;
    run(w, &p, (const char *const[]){REEF_BINARY, "verify", POOL, NULL});
    assert_int_equal(p.code, 0);
}

FIXTURE_TEST(a_pool_of_another_version_is_refused_by_every_command) {
    train_pool(w);
    put_format(w->pool, 8, true);
    every_command_refuses(w, 65, "has format 8, this program reads format 7");
}

// Bytes are changed all over the file, in pages of LMDB's trees as well, which LMDB trusts: `reef
// verify` says what it finds and ends by itself all the same.
FIXTURE_TEST(no_damage_ends_verify_with_a_signal) {
    keep_original(w);
    char *bytes = keep(reef_cli_alloc(w->original_bytes, 1));
    uint64_t draw = 7;
    size_t found = 0;
    for (size_t i = 0; i < DAMAGES; i++) {
        memcpy(bytes, w->original, w->original_bytes);
        for (size_t k = 0; k < 300; k++) {
            draw = draw * 6364136223846793005u + 1442695040888963407u; // Knuth's MMIX generator
            bytes[(draw >> 20) % w->original_bytes] ^= (char)(1 + (draw >> 60));
        }
        place(w, bytes, w->original_bytes);
        program p;
        run(w, &p, (const char *const[]){REEF_BINARY, "verify", POOL, NULL});
        if (p.code != 0 && p.code != 64 && p.code != 65)
            fail_msg("damage %zu: exit %d: %s", i, p.code, p.err);
        found += p.code != 0 && strlen(p.err) > 0;
    }
    assert_int_equal(found, DAMAGES); // 300 bytes are never all in free pages
}

// One leaf after the other is called a branch, until a command meets a page at which LMDB cannot
// continue: it ends the process, which still reports what happened, and to which pool.
FIXTURE_TEST(a_page_that_ends_lmdb_is_one_line_and_no_signal) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); // signals are the sanitizer's there
#else
    keep_original(w);
    bool met = false;
    for (size_t at = 2 * 4096; at + 4096 <= w->original_bytes && !met; at += 4096) {
        char kind = w->original[at + 10];
        if (kind != 2 || w->original[at + 11] != 0) continue; // no leaf
        w->original[at + 10] = 1;
        place(w, w->original, w->original_bytes);
        w->original[at + 10] = kind;
        program p;
        run(w, &p, (const char *const[]){REEF_BINARY, "snapshot", "create", POOL, "new", NULL});
        if (p.code >= 128) fail_msg("page %zu: a signal: %s", at / 4096, p.err);
        met = strstr(p.err, "stopped by a signal") != NULL;
        if (met) {
            assert_int_equal(p.code, 65);
            assert_int_equal(line_count(p.err), 1);
            assert_non_null(strstr(p.err, "reef snapshot create: "));
            assert_non_null(strstr(p.err, w->pool));
            assert_non_null(strstr(p.err, "reef verify"));
        }
    }
    assert_true(met);
#endif
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// In a child: rows of the pool are read in place when its file loses all but the first pages. Never
// returns.
static void lose_pages_below_rows(const char *pool, const char *says) {
    reef_store *store = NULL;
    reef_model *model = NULL;
    static uint8_t text[256];
    static float logits[sizeof(text) * REEF_VOCAB];
    char *data = formatted("%s/data.mdb", pool);
    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0});
    if (freopen(says, "w", stderr) == NULL) _exit(90);
    reef_program_guard("reef test", pool);
    const reef_model_options little = {.threads = 2, .memory_bytes = 1}; // nothing is copied
    if (reef_store_open(&store, pool, NULL, NULL) != REEF_OK ||
        reef_model_open(&model, store, "0", &little, NULL) != REEF_OK ||
        reef_model_logits(model, text, sizeof(text), logits, NULL) != REEF_OK)
        _exit(91);
    if (truncate(data, 4 * 4096) != 0) _exit(92);
    (void)!reef_model_logits(model, text, sizeof(text), logits, NULL);
    _exit(93); // a loss, whatever it says, of rows that are not there
}
#endif

FIXTURE_TEST(rows_in_place_that_cannot_be_read_are_one_line_and_no_signal) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); // signals are the sanitizer's there
#else
    char *pool = formatted("%s/large", w->directory), *says = formatted("%s/says", w->directory);
    // 2,304 experts: two blocks and a quarter; the last one is always copied.
    const char *const commands[][32] = {
        {REEF_BINARY, "init",
         pool,        "--layers",
         "1",         "--ffw",
         "p",         "--d-model",
         "16",        "--attention-heads",
         "2",         "--context",
         "16",        "--batch",
         "2",         "--heads",
         "1",         "--topk",
         "8",         "--d-key",
         "8",         "--side",
         "48",        "--boundaries",
         "given",     "--memory",
         "0"},
        {REEF_BINARY, "train", pool, w->text, "--threads", "1"},
        {REEF_BINARY, "seal", pool, "--threads", "1"},
    };
    for (size_t i = 0; i < 3; i++) {
        program p;
        program_run(&p, commands[i], NULL);
        if (p.code != 0) fail_msg("%s: %s", commands[i][1], p.err);
    }
    int how = 0;
    pid_t child = fork();
    if (child == 0) lose_pages_below_rows(pool, says);
    assert_int_equal(waitpid(child, &how, 0), child);
    if (!WIFEXITED(how) || WEXITSTATUS(how) != 65) fail_msg("wait status %x", (unsigned)how);
    size_t bytes;
    char *line = whole_file_read(says, &bytes);
    assert_true(bytes > 20 && memcmp(line, "reef test: stopped by a", 23) == 0);
    assert_ptr_equal(memchr(line, '\n', bytes), line + bytes - 1);
#endif
}

// With --json too there is one document, which has what was found until LMDB ended the check.
FIXTURE_TEST(what_was_found_stands_in_the_document) {
    keep_original(w);
    size_t found = 0;
    for (size_t at = 2 * 4096; at + 4096 <= w->original_bytes && found < 5; at += 4096) {
        if (w->original[at + 10] != 2 || w->original[at + 11] != 0) continue;
        w->original[at + 10] = 1;
        place(w, w->original, w->original_bytes);
        w->original[at + 10] = 2;
        program p;
        run(w, &p, (const char *const[]){REEF_BINARY, "verify", POOL, "--json", NULL});
        json_t *document = json_of_text(p.out);
        if (p.code != 0) {
            assert_int_equal(p.code, 65);
            assert_false(is_true(document, "sound"));
            assert_true(length(document, "damage") > 0);
            found++;
        }
    }
    assert_int_equal(found, 5);
}

// ---- a full disk --------------------------------------------------------------------------------

static char *root_of(const faults *w) {
    program p;
    run(w, &p, (const char *const[]){REEF_BINARY, "verify", POOL, "--json", NULL});
    if (p.code != 0) fail_msg("verify: %s", p.err);
    json_t *document = json_of_text(p.out);
    assert_true(is_true(document, "sound"));
    char *root = formatted("%s", string(document, "root"));
    return keep(root);
}

// Pages that are free inside the file let the first few through.
static void repeat_until_full(const faults *w, const char *const *command) {
    for (size_t round = 0; round < ROUNDS_MAX; round++) {
        const char *argv[ARGUMENTS_MAX + 1] = {NULL};
        char *name = formatted("s-%s-%zu", command[1], round), *before = root_of(w);
        size_t count = 0;
        for (; command[count] != NULL; count++) argv[count] = command[count];
        if (strcmp(command[1], "snapshot") == 0) argv[count] = name;
        program p;
        run(w, &p, argv);
        char *after = root_of(w);
        bool full = p.code == 73;
        if (full) {
            assert_int_equal(line_count(p.err), 1);
            assert_non_null(strstr(p.err, "the disk is full"));
            assert_string_equal(before, after);
        } else if (p.code != 0) {
            fail_msg("%s: exit %d: %s", command[1], p.code, p.err);
        }
        if (full) return;
    }
    fail_msg("%s never filled the disk", command[1]);
}

FIXTURE_TEST(a_full_disk_stops_a_change_and_loses_nothing) {
    w->mounted = small_disk_mount(w->disk, "24m");
    if (!w->mounted) skip();
    w->pool = formatted("%s/pool", w->disk);
    train_pool(w);
    small_disk_fill(w->filler);

    repeat_until_full(w, (const char *const[]){REEF_BINARY, "snapshot", "create", POOL, NULL});
    repeat_until_full(w, (const char *const[]){REEF_BINARY, "grow", POOL, "--side", "99", NULL});
    repeat_until_full(w, (const char *const[]){REEF_BINARY, "seal", POOL, NULL});
    program p;
    char *other = formatted("%s/other", w->disk);
    run(w, &p, (const char *const[]){REEF_BINARY, "init", other, NULL});
    assert_int_equal(p.code, 73);
    assert_int_equal(line_count(p.err), 1);
    assert_int_not_equal(access(other, F_OK), 0); // no half of a pool is left
    run(w, &p, (const char *const[]){REEF_BINARY, "eval", POOL, "--as-of", "kept", TEXT, NULL});
    assert_int_equal(p.code, 0); // reading needs no room

    assert_int_equal(unlink(w->filler), 0);
    run(w, &p, (const char *const[]){REEF_BINARY, "seal", POOL, NULL});
    if (p.code != 0) fail_msg("seal: %s", p.err);
    (void)root_of(w);
}

RUN_TESTS
