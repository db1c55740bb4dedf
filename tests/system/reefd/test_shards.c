// Rows and memories divided over ranks, as people do it: reef shards, reefd by mpirun, and back to
// one pool. The root is that of one process whatever the number of ranks, after any kill of a rank
// or of reef shards; all shards are read as one pool; and shards that do not fit together end in
// one message.
#include "crew_internal.h"
#include "ranks_run.h"
#include "reef_trainer.h"

#include "damaged_record.h"
#include "pool_version.h"

// Ranks exchange messages at every step: as few steps as show something.
#define WORD_BYTES 4000
#define FIGURE_BYTES 5000
#define NOISE_BYTES 2500
#define KILLS_FEW 4
#define KILLS_MANY 200
#define RANKS 3

// Four blocks of rows in each table of generation 0, two in the later ones; steps of four windows.
static void make_pool(const sandbox *box) {
    reef_error err;
    reef_config config = tiny_config();
    config.batch = 4;
    config.side = 60;
    config.side_new = 36;
    config.learning_rate = 5e-3f;
    assert_int_equal(reef_config_set(&config, "ffw", "pp", &err), REEF_OK);
    without_memories(&config);
    sandbox_make_pool_of(box, &config);
}

#define MEMORY_BYTES "4194304"
#define KIND_BYTES 12000

// Kinds by their contexts, of which one comes back.
static void make_pool_of_memories(const sandbox *box) {
    sandbox_remove_pool(box);
    assert_int_equal(
        shell_of("%s init %s --layers 2 --ffw dp --d-model 16 --attention-heads 2 --context 16 "
                 "--batch 4 --heads 2 --topk 2 --d-key 8 --side 36 --side-new 34 "
                 "--context-memory " MEMORY_BYTES " >/dev/null",
                 REEF_BINARY, box->pool),
        0);
    write_text(box->text, KIND_BYTES, 1);
    assert_int_equal(shell_of("cp %s %s/words", box->text, box->directory), 0);
    append_figures(box->text, KIND_BYTES, 2);
    assert_int_equal(
        shell_of("cd %s && cat words >>text && tail -c 4000 text >sample", box->directory), 0);
}

static int setup(void **state) {
    sandbox *box = calloc(1, sizeof(*box));
    sandbox_make_again(box);
    make_pool(box);
    // Two boundaries.
    write_text(box->text, WORD_BYTES, 1);
    append_mark(box->text);
    append_figures(box->text, FIGURE_BYTES, 2);
    append_mark(box->text);
    append_noise(box->text, NOISE_BYTES, 3);
    *state = box;
    return 0;
}

static int teardown(void **state) {
    sandbox_remove(*state);
    free(*state);
    return 0;
}

// reef shards FROM NEW in the sandbox, where both have names.
static int divide(const sandbox *box, const char *from, const char *to, size_t count) {
    return shell_of("cd %s && %s shards %s %s --to %zu >made.txt 2>%s", box->directory, REEF_BINARY,
                    from, to, count, box->messages);
}

static void make_shards(const sandbox *box, size_t count) {
    assert_int_equal(shell_of("rm -rf %s/many", box->directory), 0);
    assert_int_equal(divide(box, box->pool, "many", count), 0);
}

static sandbox mould; // two shards that have learned the text; made when it is first asked for

static void learn_in_two(const sandbox *box) {
    if (mould.directory[0] == '\0') {
        sandbox_make(&mould);
        make_shards(box, 2);
        learn_by_ranks(box, 2, "");
        assert_int_equal(shell_of("cp -a %s/many %s", box->directory, mould.directory), 0);
    }
    assert_int_equal(
        shell_of("cd %s && rm -rf many && cp -a %s/many .", box->directory, mould.directory), 0);
}

static int discard_mould(void **state) {
    if (mould.directory[0] != '\0') sandbox_remove(&mould);
    return 0;
}

static void says(const sandbox *box, int code, const char *words) {
    char *text = read_text(box->messages, NULL);
    if (strstr(text, words) == NULL) fail_msg("\"%s\" is not in: %s", words, text);
    assert_int_not_equal(code, 0);
}

static void refuses(const sandbox *box, int code, const char *words) {
    says(box, code, words);
    assert_int_equal(times_said(box, "reef shards: "), 1);
}

// A whole pool of the shards has the root, and all records.
static void gathers_to(const sandbox *box, const char *from, const reef_commit *expected) {
    sandbox whole = *box;
    assert_int_equal(shell_of("rm -rf %s/whole", box->directory), 0);
    assert_int_equal(divide(box, from, "whole", 1), 0);
    snprintf(whole.pool, sizeof(whole.pool), "%.100s/whole", box->directory);
    reef_commit found = pool_commit(&whole);
    assert_int_equal(found.stream_bytes, expected->stream_bytes);
    assert_memory_equal(found.root, expected->root, sizeof(found.root));
    pool_check(&whole);
    assert_int_equal(shell_of("%s verify %s >/dev/null", REEF_BINARY, whole.pool), 0);
    assert_int_equal(shell_of("cd %s && head -c 2000 %s >part && %s eval %s part >/dev/null",
                              box->directory, box->text, REEF_BINARY, whole.pool),
                     0);
}

// Both say the same, to the last digit.
static void reads_alike(const sandbox *box, const char *command) {
    assert_int_equal(
        shell_of("cd %s && for pool in many whole; do %s %s >$pool.txt || exit 1; done "
                 "&& cmp many.txt whole.txt",
                 box->directory, REEF_BINARY, command),
        0);
}

// The directory that holds all shards is read as the whole pool that gathers_to left: copied, and
// in place; as of each state.
static void shards_are_read_as_the_pool(const sandbox *box, bool all) {
    reads_alike(box, "eval $pool text --json");
    if (!all) return;
    reads_alike(box, "eval $pool text --as-of 0 --memory 1M --threads 2 --json");
    reads_alike(box, "eval $pool text --as-of kept --memory 1M --json");
    reads_alike(box, "score $pool text");
    reads_alike(box, "generate $pool --prompt a --bytes 40 --seed 5");
    reads_alike(box, "generations $pool");
    reads_alike(box, "usage $pool");
    reads_alike(box, "timeline $pool");
    reads_alike(box, "experts $pool --top 0");
    assert_int_equal(shell_of("cd %s && %s verify many >/dev/null && %s status many >/dev/null",
                              box->directory, REEF_BINARY, REEF_BINARY),
                     0);
}

static void the_root_is_that_of_one_process(void **state) {
    sandbox *box = *state;
    reef_commit expected = alone(box);
    sandbox one = *box;
    snprintf(one.pool, sizeof(one.pool), "%.100s/alone", box->directory);
    assert_int_equal(pool_generations(&one), 3);
    for (size_t count = 2; count <= 4; count += 2) { // three are killed below
        make_shards(box, count);
        learn_by_ranks(box, count, count == 2 ? "--threads 2" : "--threads 1");
        same_roots(box, count, &expected);
        for (size_t r = 0; r < count; r++)
            assert_int_equal(
                shell_of("%s verify %s/many/rank-%zu >/dev/null", REEF_BINARY, box->directory, r),
                0);
        gathers_to(box, "many", &expected);
        shards_are_read_as_the_pool(box, false);
    }
}

// A snapshot, and what was learned after it, in three shards.
static void all_shards_are_read_as_one_pool(void **state) {
    sandbox *box = *state;
    assert_int_equal(shell_of("%s --pool %s --source %s " QUICK " && %s snapshot create %s kept",
                              REEFD_PATH, box->pool, box->text, REEF_BINARY, box->pool),
                     0);
    append_noise(box->text, NOISE_BYTES, 9);
    make_shards(box, RANKS);
    learn_by_ranks(box, RANKS, "");
    sandbox first = shard_of(box, 0);
    reef_commit expected = pool_commit(&first);
    gathers_to(box, "many", &expected);
    shards_are_read_as_the_pool(box, true);
    // A new pool cannot be made of one of them, and nothing is left of it.
    int code = shell_of("cd %s && %s snapshot restore many/rank-1 kept new 2>%s", box->directory,
                        REEF_BINARY, box->messages);
    says(box, code, "many/rank-1 is the shard of rank 1 of 3");
    assert_int_not_equal(shell_of("test -e %s/new", box->directory), 0);
}

typedef struct memory_blocks {
    size_t count; // of those that are divided
    reef_key last;
    char name[REEF_NAME_BYTES_MAX + 1];
} memory_blocks;

static reef_status on_memory(void *context,
                             const reef_key *key,
                             const reef_view *view,
                             reef_error *err) {
    memory_blocks *blocks = context;
    if (!reef_shard_divides(key)) return REEF_OK;
    blocks->count++;
    // The memory that generation 0 was sealed with.
    if (key->db != REEF_DB_MEMORY || key->generation != 0) return REEF_OK;
    blocks->last = *key;
    snprintf(blocks->name, sizeof(blocks->name), "%s", key->name);
    return REEF_OK;
}

static memory_blocks blocks_of_memories(const char *pool) {
    reef_error err;
    reef_store *store = NULL;
    reef_txn *txn = NULL;
    memory_blocks blocks = {0};
    static const reef_db databases[] = {REEF_DB_MEMORY, REEF_DB_VISITS};
    reef_status status = reef_store_open(&store, pool, NULL, &err);
    if (status == REEF_OK) status = reef_txn_begin(&txn, store, REEF_TXN_READ, &err);
    for (size_t i = 0; status == REEF_OK && i < 2; i++)
        status = reef_record_scan(txn, databases[i], UINT32_MAX, on_memory, &blocks, &err);
    if (status != REEF_OK) fail_msg("%s", err.message);
    reef_txn_abort(txn);
    reef_store_close(store);
    return blocks;
}

// Kinds that come back, while ranks are killed and their number changes: each block of a memory
// lies in one shard, and the root is that of one process.
static void memories_are_divided(void **state) {
    sandbox *box = *state;
    make_pool_of_memories(box);
    reef_commit expected = alone(box);
    make_shards(box, 2);
    for (unsigned i = 0; i < KILLS_FEW / 2; i++) {
        pid_t run = start_ranks(box, 2, "");
        pid_t pid = await_rank(box, i % 2, run);
        sleep_ms(400 + 700 * i);
        if (pid > 0) (void)kill(pid, SIGKILL);
        assert_int_equal(waitpid(run, NULL, 0), run);
    }
    learn_by_ranks(box, 2, "");
    same_roots(box, 2, &expected);
    assert_int_equal(divide(box, "many", "whole", 1), 0);
    sandbox whole = *box;
    snprintf(whole.pool, sizeof(whole.pool), "%.100s/whole", box->directory);
    assert_in_range(pool_generations(&whole), 2, 9);
    reef_commit gathered = pool_commit(&whole);
    assert_memory_equal(gathered.root, expected.root, sizeof(gathered.root));
    assert_int_equal(shell_of("%s verify %s >/dev/null", REEF_BINARY, whole.pool), 0);
    size_t all = blocks_of_memories(whole.pool).count, sum = 0;
    for (size_t r = 0; r < 2; r++) {
        sandbox shard = shard_of(box, r);
        size_t blocks = blocks_of_memories(shard.pool).count;
        assert_in_range(blocks, all / 4, all - all / 4);
        sum += blocks;
    }
    assert_true(all > 0);
    assert_int_equal(sum, all);
    reads_alike(box, "eval $pool sample --json");
    reads_alike(box, "compress $pool sample -o $pool.reef --as-of 0 >/dev/null; cat $pool.reef");
    // With three ranks from here on, and a kind that comes back.
    assert_int_equal(shell_of("cd %s && mv many two", box->directory), 0);
    assert_int_equal(divide(box, "two", "many", RANKS), 0);
    append_figures(box->text, KIND_BYTES, 4);
    expected = alone_goes_on(box);
    // A memory that one rank cannot read ends all; its shard is as it was before.
    sandbox second = shard_of(box, 1);
    memory_blocks there = blocks_of_memories(second.pool);
    there.last.name = there.name;
    assert_int_equal(shell_of("cp -a %s %s/kept", second.pool, box->directory), 0);
    record_damage(second.pool, &there.last);
    int code = run_ranks(box, RANKS, "");
    ends_with(box, code,
              "rank 1: kind 0 is damaged; reef verify says what helps: memory "
              "(generation 0");
    assert_int_equal(shell_of("cd %s && cp kept/data.mdb many/rank-1/", box->directory), 0);
    learn_by_ranks(box, RANKS, "");
    same_roots(box, RANKS, &expected);
    assert_int_equal(shell_of("%s verify %s/many >/dev/null", REEF_BINARY, box->directory), 0);
}

static uint64_t read_epoch(reef_store *store) {
    reef_error err;
    reef_txn *txn = NULL;
    reef_shard shard = {0};
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_READ, &err);
    if (status == REEF_OK) status = reef_shard_read(txn, &shard, &err);
    if (status != REEF_OK) fail_msg("%s", err.message);
    reef_txn_abort(txn);
    return shard.epoch;
}

// Each read is of one epoch, which may be later than the last; rank 0 answers for all.
static void shards_are_read_while_they_are_trained(void **state) {
    sandbox *box = *state;
    char many[RANKS_COMMAND_BYTES];
    reef_error err;
    reef_store *store = NULL;
    make_shards(box, 2);
    append_figures(box->text, 3 * FIGURE_BYTES, 4); // it shall not end before it is asked to
    snprintf(many, sizeof(many), "%.100s/many", box->directory);
    pid_t run = start_ranks(box, 2, "--commit-steps 1");
    assert_true(await_rank(box, 0, run) > 0 && await_rank(box, 1, run) > 0);
    if (reef_store_open(&store, many, NULL, &err) != REEF_OK) fail_msg("%s", err.message);
    uint64_t first = read_epoch(store), last = first;
    for (int ms = 0; ms < RANKS_WAITS_MAX * RANKS_WAIT_MS && last < first + 20; ms++, sleep_ms(1)) {
        uint64_t epoch = read_epoch(store);
        assert_true(epoch >= last);
        last = epoch;
    }
    assert_true(last >= first + 20);
    reef_store_close(store);
    assert_int_equal(shell_of("cd %s && %s eval many text >/dev/null && %s status many | "
                              "grep -q ranks && %s stop many >/dev/null",
                              box->directory, REEF_BINARY, REEF_BINARY, REEF_BINARY),
                     0);
    assert_int_equal(waitpid(run, NULL, 0), run);
    assert_int_equal(shell_of("%s verify %s >/dev/null", REEF_BINARY, many), 0);
}

// reef init makes the shards one by one, and nobody holds all rows.
static void a_new_pool_begins_as_shards(void **state) {
    sandbox *box = *state;
    static const char sizes[] = "--layers 2 --ffw dp --d-model 16 --attention-heads 2 --context 16 "
                                "--batch 4 --heads 2 --topk 2 --d-key 8 --side 60 --side-new 36 "
                                "--context-memory " MEMORY_BYTES;
    sandbox one = *box;
    snprintf(one.pool, sizeof(one.pool), "%.100s/one", box->directory);
    assert_int_equal(shell_of("cd %s && %s init one %s >/dev/null && %s init many --ranks 3 %s "
                              ">made.txt",
                              box->directory, REEF_BINARY, sizes, REEF_BINARY, sizes),
                     0);
    reef_commit expected = pool_commit(&one);
    same_roots(box, 3, &expected);
    assert_int_equal(
        shell_of("cd %s && grep -q 'mpirun -n 3 reefd --pool many' made.txt", box->directory), 0);
    learn_by_ranks(box, 3, "");
    assert_int_equal(shell_of("%s --pool %s --source %s " QUICK, REEFD_PATH, one.pool, box->text),
                     0);
    expected = pool_commit(&one);
    same_roots(box, 3, &expected);
    gathers_to(box, "many", &expected);
    // What is in the way stays, and nothing is left.
    assert_int_not_equal(shell_of("cd %s && %s init many --ranks 2 %s >/dev/null 2>&1",
                                  box->directory, REEF_BINARY, sizes),
                         0);
    assert_int_not_equal(shell_of("cd %s && %s init no --ranks 5 %s >/dev/null 2>%s",
                                  box->directory, REEF_BINARY, sizes, box->messages),
                         0);
    assert_int_equal(times_said(box, "5 ranks are more than the 4 windows of a step"), 1);
    assert_int_not_equal(
        shell_of("test -e %s/no -o -e %s/no.unfinished", box->directory, box->directory), 0);
    same_roots(box, 3, &expected);
}

// Two ranks, then three, then one.
static void another_number_of_ranks_goes_on(void **state) {
    sandbox *box = *state;
    learn_in_two(box);
    append_figures(box->text, FIGURE_BYTES / 2, 7);
    assert_int_equal(shell_of("cd %s && mv many two", box->directory), 0);
    assert_int_equal(divide(box, "two", "many", 3), 0);
    learn_by_ranks(box, 3, "");
    append_noise(box->text, NOISE_BYTES, 9);
    assert_int_equal(shell_of("cd %s && mv many three", box->directory), 0);
    // Each shard by itself, in any order.
    assert_int_equal(divide(box, "three/rank-2 three/rank-0 three/rank-1", "last", 1), 0);
    sandbox last = *box;
    snprintf(last.pool, sizeof(last.pool), "%.100s/last", box->directory);
    assert_int_equal(shell_of("%s --pool %s --source %s " QUICK, REEFD_PATH, last.pool, box->text),
                     0);
    reef_commit found = pool_commit(&last), expected = alone(box);
    assert_int_equal(found.stream_bytes, expected.stream_bytes);
    assert_memory_equal(found.root, expected.root, sizeof(found.root));
    pool_check(&last);
}

// A bound of the pool's size is that of rank 0, and the largest shard is what it bounds.
static void bounds_that_differ_are_those_of_rank_0(void **state) {
    sandbox *box = *state;
    reef_commit expected = alone_once(box);
    make_shards(box, 2);
    assert_int_equal(shell_of(MPIRUN " -n 1 %s --pool %s/many --source %s --pool-max 1M " QUICK
                                     " : -n 1 %s --pool %s/many --source %s " QUICK,
                              REEFD_PATH, box->directory, box->text, REEFD_PATH, box->directory,
                              box->text),
                     0);
    same_roots(box, 2, &expected);
}

// ---- kills --------------------------------------------------------------------------------------

static void killed_ranks_go_on(void **state) {
    sandbox *box = *state;
    reef_commit expected = alone_once(box);
    make_shards(box, RANKS);
    size_t kills = test_effort(KILLS_FEW, KILLS_MANY);
    unsigned seed = 11;
    for (size_t i = 0; i < kills; i++) {
        seed = seed * 1664525u + 1013904223u;
        size_t victim = (seed >> 8) % RANKS;
        pid_t run = start_ranks(box, RANKS, "");
        pid_t pid = await_rank(box, victim, run);
        sleep_ms((seed >> 16) % 800);
        if (pid > 0) (void)kill(pid, SIGKILL);
        assert_int_equal(waitpid(run, NULL, 0), run);
        for (size_t r = 0; r < RANKS; r++) {
            sandbox shard = shard_of(box, r);
            pool_check(&shard);
        }
    }
    learn_by_ranks(box, RANKS, "");
    same_roots(box, RANKS, &expected);
    gathers_to(box, "many", &expected);
}

#ifdef REEF_FAIL_POINTS

// Rank 0 dies between the others' commits and its own: they are an epoch ahead, and go back.
static void ranks_that_are_ahead_step_back(void **state) {
    sandbox *box = *state;
    reef_commit expected = alone_once(box);
    make_shards(box, 2);
    assert_int_not_equal(run_two(box, "-x REEF_FAIL_POINT=commit.before_sync:4", ""), 0);
    assert_int_equal(epoch_of(box, 1), epoch_of(box, 0) + 1);
    // Nobody knows whether it will count: reef shards leaves that to the ranks.
    int code = divide(box, "many", "other", 1);
    refuses(box, code, "if it is one ahead, start all ranks once");
    code = shell_of("cd %s && %s eval many text 2>%s", box->directory, REEF_BINARY, box->messages);
    says(box, code, "rank-1 is of epoch");
    // Rank 1 dies when it has gone back and not committed again: its shard is whole.
    uint64_t counts = epoch_of(box, 0);
    assert_int_not_equal(run_two(box, "", "-x REEF_FAIL_POINT=commit.before_sync:1"), 0);
    sandbox second = shard_of(box, 1);
    assert_int_equal(epoch_of(box, 1), counts);
    pool_check(&second);
    learn_by_ranks(box, 2, "");
    assert_int_equal(epoch_of(box, 1), epoch_of(box, 0));
    same_roots(box, 2, &expected);
    gathers_to(box, "many", &expected);
}

// reef shards dies at each of its points: what there was is there, and it can be started again.
static void killed_reef_shards_begins_again(void **state) {
    sandbox *box = *state;
    static const char *const points[] = {"make.begun",   "make.filled",  "make.moved",
                                         "shard.made:1", "shard.made:2", "shards.made"};
    learn_in_two(box);
    sandbox first = shard_of(box, 0);
    reef_commit expected = pool_commit(&first);
    for (size_t i = 0; i < sizeof(points) / sizeof(*points); i++) {
        assert_int_not_equal(shell_of("cd %s && REEF_FAIL_POINT=%s %s shards many three --to 3 "
                                      ">/dev/null 2>&1",
                                      box->directory, points[i], REEF_BINARY),
                             0);
        assert_int_not_equal(shell_of("test -e %s/three", box->directory), 0);
        same_roots(box, 2, &expected);
        assert_int_equal(divide(box, "many", "three", 3), 0);
        assert_int_not_equal(shell_of("test -e %s/three.unfinished", box->directory), 0);
        gathers_to(box, "three", &expected);
        assert_int_equal(shell_of("rm -r %s/three", box->directory), 0);
    }
}

#else

static void ranks_that_are_ahead_step_back(void **state) {
    (void)epoch_of;
    print_message("skipped: this build has no fail points\n");
    skip();
}

static void killed_reef_shards_begins_again(void **state) {
    print_message("skipped: this build has no fail points\n");
    skip();
}

#endif

static void a_rank_that_hangs_is_named(void **state) {
    sandbox *box = *state;
    reef_commit expected = alone_once(box);
    make_shards(box, 2);
    assert_int_equal(setenv("REEF_TEST_RANK_DEADLINE", "3", 1), 0);
    pid_t run = start_ranks(box, 2, "--threads 2");
    assert_int_equal(unsetenv("REEF_TEST_RANK_DEADLINE"), 0);
    pid_t pid = await_rank(box, 1, run);
    assert_true(pid > 0);
    sleep_ms(700);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    int code = 0;
    assert_int_equal(waitpid(run, &code, 0), run);
    ends_with(box, code, "rank 1 has not answered for 3 seconds");
    learn_by_ranks(box, 2, "");
    same_roots(box, 2, &expected);
}

// All stand still for longer than the deadline, as on a machine that sleeps: nobody hangs.
static void a_pause_of_all_ranks_is_not_silence(void **state) {
    sandbox *box = *state;
    reef_commit expected = alone_once(box);
    make_shards(box, 2);
    assert_int_equal(setenv("REEF_TEST_RANK_DEADLINE", "1", 1), 0);
    pid_t run = start_ranks(box, 2, "--threads 2");
    assert_int_equal(unsetenv("REEF_TEST_RANK_DEADLINE"), 0);
    pid_t pids[] = {await_rank(box, 0, run), await_rank(box, 1, run)};
    assert_true(pids[0] > 0 && pids[1] > 0);
    sleep_ms(700);
    for (int r = 0; r < 2; r++) assert_int_equal(kill(pids[r], SIGSTOP), 0);
    sleep_ms(2500);
    for (int r = 0; r < 2; r++) assert_int_equal(kill(pids[r], SIGCONT), 0);
    int code = 0;
    assert_int_equal(waitpid(run, &code, 0), run);
    assert_int_equal(code, 0);
    same_roots(box, 2, &expected);
}

// ---- what does not fit together -----------------------------------------------------------------

static void shards_that_do_not_fit_are_named(void **state) {
    sandbox *box = *state;
    learn_in_two(box);
    refuses(box, divide(box, "many/rank-1", "no", 1),
            "rank-1 is one of 2 shards, and 1 were given: all are needed");
    refuses(box, divide(box, "many/rank-1 many/rank-1", "no", 1), "rank-1 is given twice");
    assert_int_equal(shell_of("cp -a %s/many/rank-1 %s/kept", box->directory, box->directory), 0);
    refuses(box, divide(box, "many/rank-1 kept", "no", 1),
            "is the shard of rank 1, and stands where that of rank 0 is needed");
    refuses(box, divide(box, "many many", "no", 1), "is given twice");
    // A backup, while the others went on.
    append_noise(box->text, NOISE_BYTES, 9);
    learn_by_ranks(box, 2, "");
    refuses(box, divide(box, "many/rank-0 kept", "no", 1), "kept is of epoch");
    int code = shell_of("cd %s/many && mv rank-1 ../new && cp -a ../kept rank-1", box->directory);
    assert_int_equal(code, 0);
    code = run_ranks(box, 2, "");
    ends_with(box, code, "rank 1: its shard is stale, of epoch");
    // Of another division of the same pool.
    assert_int_equal(divide(box, box->pool, "again", 2), 0);
    refuses(box, divide(box, "again/rank-0 kept", "no", 1), "kept is a shard of another pool");
    refuses(box, divide(box, "again/rank-0 pool", "no", 1), "is not a shard with a part of the");
    assert_int_equal(
        shell_of("cd %s && rm -r many/rank-1 && cp -a again/rank-1 many/rank-1", box->directory),
        0);
    code = run_ranks(box, 2, "");
    ends_with(box, code, "rank 1: its shard is of another pool than rank 0's");
    assert_int_not_equal(
        shell_of("test -e %s/no -o -e %s/no.unfinished", box->directory, box->directory), 0);
}

// Ranks train no pool that is whole: what divides it is said.
static void a_whole_pool_is_not_trained_by_ranks(void **state) {
    sandbox *box = *state;
    assert_int_equal(shell_of("mkdir %s/many && cp -a %s %s/many/rank-0 && cp -a %s %s/many/rank-1",
                              box->directory, box->pool, box->directory, box->pool, box->directory),
                     0);
    int code = run_ranks(box, 2, "");
    assert_int_equal(code, 64);
    ends_with(box, code,
              "rank 0: its pool is whole, and ranks train one that is divided: reef "
              "shards POOL DIR --to 2 makes it so; or let each learn from sources of "
              "its own (--join-every)");
    says(box, divide(box, "many", "no", 1), "is not a shard with a part of the rows");
    code = shell_of("cd %s && %s eval many text 2>%s", box->directory, REEF_BINARY, box->messages);
    says(box, code, "many holds whole pools of several ranks: give one of them, many/rank-0");
    // One among shards.
    learn_in_two(box);
    assert_int_equal(
        shell_of("cd %s/many && rm -r rank-1 && cp -a %s rank-1", box->directory, box->pool), 0);
    code = run_ranks(box, 2, "");
    ends_with(box, code, "rank 1: its pool is not a shard, but rank 0's is");
    code = run_ranks(box, 1, "");
    ends_with(box, code, "rank 0: its shard is one of 2, and 1 ranks were started");
    code = run_ranks(box, 3, "");
    ends_with(box, code, "rank 2: there is no pool at");
    assert_int_equal(shell_of("cd %s/many && rm -r rank-1 && cp -a rank-0 rank-1", box->directory),
                     0);
    code = run_ranks(box, 2, "");
    ends_with(box, code, "rank 1: its pool is the shard of rank 0");
}

static void programs_that_differ_are_named(void **state) {
    sandbox *box = *state;
    make_shards(box, 2);
    int code = run_two(box, "", "-x REEF_ISA=scalar");
    ends_with(box, code, "rank 1: it computes with kernels scalar");
}

static void what_cannot_be_divided(void **state) {
    sandbox *box = *state;
    refuses(box, divide(box, "pool", "no", 5), "5 ranks are more than the 4 windows of a step");
    refuses(box, divide(box, "pool", "no", 0), "must be an integer, 1 to");
    refuses(box, divide(box, "nothing", "no", 2), "there is no pool at nothing, and no rank-0");
    refuses(box, divide(box, "pool", "pool/in", 2), "");
    assert_int_equal(
        shell_of("cd %s && %s init memories --net-share 0 >made.txt", box->directory, REEF_BINARY),
        0);
    refuses(box, divide(box, "memories", "no", 2), "it is not a model of text with experts");
    assert_int_equal(shell_of("cp -a %s %s/old", box->pool, box->directory), 0);
    snprintf(box->pool, sizeof(box->pool), "%.100s/old", box->directory);
    put_format(box->pool, 3, true);
    refuses(box, divide(box, "old", "no", 2), "old has format 3");
}

// Whoever needs all rows says which command brings them together.
static void a_shard_is_not_used_alone(void **state) {
    sandbox *box = *state;
    static const char *const commands[] = {"eval %s/many/rank-1 %s", "score %s/many/rank-1 %s",
                                           "export model %s/many/rank-1 model.safetensors"};
    learn_in_two(box);
    for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
        char arguments[RANKS_COMMAND_BYTES];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(arguments, sizeof(arguments), commands[i], box->directory, box->text);
#pragma GCC diagnostic pop
        int code = shell_of("cd %s && %s %s >/dev/null 2>%s", box->directory, REEF_BINARY,
                            arguments, box->messages);
        char *text = read_text(box->messages, NULL);
        if (strstr(text, "reef shards") == NULL && strstr(text, "mpirun -n 2") == NULL)
            fail_msg("%s: %s", arguments, text);
        assert_int_not_equal(code, 0);
    }
    // What reads no rows works.
    assert_int_equal(
        shell_of("%s generations %s/many/rank-1 >/dev/null", REEF_BINARY, box->directory), 0);
    int code = shell_of("%s --pool %s/many/rank-1 --source %s " QUICK " 2>%s", REEFD_PATH,
                        box->directory, box->text, box->messages);
    ends_with(box, code, "is the shard of rank 1 of 2: train it with mpirun -n 2");
}

// All shards together are read; what would change them says what to use instead.
static void shards_together_are_not_changed(void **state) {
    sandbox *box = *state;
    static const char *const cases[][2] = {
        {"seal many", "or a whole pool (reef shards DIR NEW --to 1)"},
        {"export pool many new", "reef shards many NEW --to 1 makes a whole pool of them"},
        {"snapshot create many now-and-then", "which can be read so"},
    };
    make_shards(box, 2);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        says(box,
             shell_of("cd %s && %s %s >/dev/null 2>%s", box->directory, REEF_BINARY, cases[i][0],
                      box->messages),
             cases[i][1]);
    int code = shell_of("%s --pool %s/many --source %s 2>%s", REEFD_PATH, box->directory, box->text,
                        box->messages);
    ends_with(box, code, "holds shards, rank-0 to rank-1: start mpirun -n 2 reefd");
    code = shell_of("cd %s && mv many/rank-1 away && %s eval many text 2>%s", box->directory,
                    REEF_BINARY, box->messages);
    says(box, code, "the shard of rank 1 is missing: there is no pool at many/rank-1");
}

// A disk that is full: files may not grow beyond half of a shard.
static void a_full_disk_leaves_nothing(void **state) {
    sandbox *box = *state;
    int code = shell_of("cd %s && (ulimit -f 1000; trap '' XFSZ; exec %s shards pool many --to 2) "
                        ">/dev/null 2>%s",
                        box->directory, REEF_BINARY, box->messages);
    refuses(box, code, "reef shards: ");
    assert_int_not_equal(
        shell_of("test -e %s/many -o -e %s/many.unfinished", box->directory, box->directory), 0);
    pool_check(box);
}

// A disk that is full, on one rank: its files may not grow.
static void a_full_disk_on_one_rank(void **state) {
    sandbox *box = *state;
    make_shards(box, 2);
    int code = shell_of(MPIRUN " -n 1 %s --pool %s/many --source %s " QUICK
                               " : -n 1 sh -c 'ulimit -f 1500; trap \"\" XFSZ; exec %s --pool "
                               "%s/many --source %s " QUICK "' 2>%s",
                        REEFD_PATH, box->directory, box->text, REEFD_PATH, box->directory,
                        box->text, box->messages);
    ends_with(box, code, "rank 1: its commit failed");
    reef_commit expected = alone_once(box);
    learn_by_ranks(box, 2, "");
    same_roots(box, 2, &expected);
}

// ---- the judgement by itself: what two builds are needed for ------------------------------------

static void versions_that_differ_are_named(void **state) {
    (void)state;
    reef_error err;
    bool back[3], anew;
    reef_crew_card cards[3] = {{.card_bytes = sizeof(reef_crew_card)}};
    for (size_t r = 0; r < 3; r++) {
        cards[r] = cards[0];
        strcpy(cards[r].version, r == 2 ? "9.9.9" : "1.0.0");
        cards[r].stream_bytes = r == 2 ? 5 : 0; // of a version that may mean something else
    }
    assert_int_equal(reef_crew_judge(cards, 3, back, &anew, &err), REEF_ERR_VERSION);
    assert_non_null(strstr(err.message, "rank 2: it runs reefd 9.9.9, rank 0 runs 1.0.0"));
    strcpy(cards[2].version, "1.0.0");
    cards[2].stream_bytes = 0;
    // Two commits ahead cannot be: rank 0's was put back from a backup.
    for (size_t r = 0; r < 3; r++) {
        cards[r].shard = (reef_shard){.rank = (uint32_t)r, .count = 3, .epoch = r == 1 ? 6 : 4};
    }
    assert_int_equal(reef_crew_judge(cards, 3, back, &anew, &err), REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "rank 1: its shard is of epoch 6, and rank 0's is stale"));
    cards[1].shard.epoch = 5;
    cards[1].root[0] = 1;
    assert_int_equal(reef_crew_judge(cards, 3, back, &anew, &err), REEF_OK);
    assert_false(back[0] || back[2]);
    assert_true(back[1]);
    cards[1].shard.epoch = 4;
    assert_int_equal(reef_crew_judge(cards, 3, back, &anew, &err), REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "rank 1: the root of its pool is"));
    cards[1].config = 1;
    assert_int_equal(reef_crew_judge(cards, 3, back, &anew, &err), REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "rank 1: its pool has another configuration"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SET_UP(the_root_is_that_of_one_process),
        SET_UP(all_shards_are_read_as_one_pool),
        SET_UP(memories_are_divided),
        SET_UP(shards_are_read_while_they_are_trained),
        SET_UP(a_new_pool_begins_as_shards),
        SET_UP(another_number_of_ranks_goes_on),
        SET_UP(bounds_that_differ_are_those_of_rank_0),
        SET_UP(killed_ranks_go_on),
        SET_UP(ranks_that_are_ahead_step_back),
        SET_UP(killed_reef_shards_begins_again),
        SET_UP(a_rank_that_hangs_is_named),
        SET_UP(a_pause_of_all_ranks_is_not_silence),
        SET_UP(shards_that_do_not_fit_are_named),
        SET_UP(a_whole_pool_is_not_trained_by_ranks),
        SET_UP(programs_that_differ_are_named),
        SET_UP(what_cannot_be_divided),
        SET_UP(a_shard_is_not_used_alone),
        SET_UP(shards_together_are_not_changed),
        SET_UP(a_full_disk_leaves_nothing),
        SET_UP(a_full_disk_on_one_rank),
        cmocka_unit_test(versions_that_differ_are_named),
    };
    // MPI's own leaks, and the order of its locks, are none of ours.
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
    setenv("TSAN_OPTIONS", "detect_deadlocks=0", 1);
    return cmocka_run_group_tests(tests, NULL, discard_mould);
}
