// Rows divided over ranks, as people do it: reef shards, reefd by mpirun, and back to
// one pool. The root is that of one process whatever the number of ranks, after any kill of a rank
// or of reef shards; all shards are read as one pool; and shards that do not fit together end in
// one message. What does not fit is in unit/daemon/test_crew.c.
#include "ranks_run.h"

#include "damaged_record.h"
#include "pool_version.h"

// Ranks exchange messages at every step: as few steps as show something.
#define WORD_BYTES 4000
#define FIGURE_BYTES 5000
#define NOISE_BYTES 2500
#define KILLS_FEW 3
#define KILLS_MANY 200
#define RANKS 3

#define MARK "=== another kind ===" // a line of the stream where a generation ends

static void append_mark(const char *path) {
    shell("printf '\\n" MARK "\\n' >>%s", path);
}

// Four blocks of rows in each table of generation 0, two in the later ones; steps of four windows.
static void make_pool(const sandbox *box) {
    reef_error err;
    reef_config config = tiny_config();
    config.batch = 4;
    config.side = 60;
    config.learning_rate = 5e-3f;
    assert_int_equal(reef_config_set(&config, "ffw", "pp", &err), REEF_OK);
    config.memory = 0;
    config.net_share = 1.0f;
    config.boundaries = REEF_BOUNDARIES_GIVEN;
    assert_int_equal(reef_config_set(&config, "boundary_mark", MARK, &err), REEF_OK);
    sandbox_make_pool_of(box, &config);
}

#define KIND_BYTES 12000
#define SIZES                                                                                      \
    "--layers 2 --ffw dp --d-model 16 --attention-heads 2 --context 16 --batch 4 --heads 2 "       \
    "--topk 2 --d-key 8 --memory 4M "

// Kinds by their contexts, of which one comes back.
static void make_pool_of_memories(const sandbox *box) {
    sandbox_remove_pool(box);
    shell("$REEF init pool " SIZES "--side 36 >/dev/null");
    write_text(box->text, KIND_BYTES, 1);
    shell("cp text words");
    append_figures(box->text, KIND_BYTES, 2);
    shell("cat words >>text && tail -c 4000 text >sample");
}

static int setup(void **state) {
    sandbox *box = *state = calloc(1, sizeof(*box));
    sandbox_make_again(box);
    make_pool(box);
    // Two boundaries.
    write_text(box->text, WORD_BYTES, 1);
    append_mark(box->text);
    append_figures(box->text, FIGURE_BYTES, 2);
    append_mark(box->text);
    append_noise(box->text, NOISE_BYTES, 3);
    return 0;
}

// reef shards FROM NEW in the sandbox, where both have names.
static int divide(const char *from, const char *to, size_t count) {
    return shell_of("$REEF shards %s %s --to %zu >made.txt 2>messages", from, to, count);
}

static void divides(const sandbox *box, const char *from, const char *to, size_t count) {
    goes_well(box, divide(from, to, count));
}

static void make_shards(const sandbox *box, size_t count) {
    shell("rm -rf many");
    divides(box, "pool", "many", count);
}

static mould learned; // two shards that have learned the text, and one pool that has

static void learn_in_two(const sandbox *box) {
    static bool done;
    if (!done) {
        make_shards(box, 2);
        learn_by_ranks(box, 2, "");
        mould_keep(&learned, "many");
        done = true;
    }
    mould_take(&learned, "many");
}

static int discard_mould(void **state) {
    mould_discard(&learned);
    return 0;
}

// One process learns the text, in a copy of the pool.
static reef_commit alone(const sandbox *box) {
    shell("rm -rf alone && cp -a pool alone");
    return learn_alone(box, "alone", box->text);
}

// The text that every test begins with.
static reef_commit alone_once(const sandbox *box) {
    static reef_commit commit;
    if (commit.number == 0) commit = alone(box);
    return commit;
}

static void same_root(const sandbox *box, const reef_commit *expected) {
    reef_commit found = pool_commit(box);
    assert_int_equal(found.stream_bytes, expected->stream_bytes);
    assert_memory_equal(found.root, expected->root, sizeof(found.root));
    pool_check(box);
}

static void same_roots(const sandbox *box, size_t count, const reef_commit *expected) {
    for (size_t r = 0; r < count; r++) {
        sandbox shard = shard_of(box, r);
        same_root(&shard, expected);
    }
}

static void says(const sandbox *box, int code, const char *words) {
    assert_true(reefd_said(box, words));
    assert_int_not_equal(code, 0);
}

// What a command, up to its redirections, says.
static void command_says(const sandbox *box, const char *command, const char *words) {
    says(box, shell_of("%s >out.txt 2>messages", command), words);
}

static void refuses(
    const sandbox *box, const char *from, const char *to, size_t count, const char *words) {
    says(box, divide(from, to, count), words);
    assert_int_equal(times_said(box, "reef shards: "), 1);
    is_not_there("no");
    is_not_there("no.unfinished");
}

// A whole pool of the shards has the root, and all records.
static void gathers_to(const sandbox *box, const char *from, const reef_commit *expected) {
    sandbox whole = pool_in(box, "whole");
    shell("rm -rf whole");
    divides(box, from, "whole", 1);
    same_root(&whole, expected);
    shell("$REEF verify whole >/dev/null && head -c 2000 text >part && "
          "$REEF eval whole part >/dev/null");
}

// Both say the same, to the last digit.
static void reads_alike(const char *command) {
    shell("for pool in many whole; do $REEF %s >$pool.txt || exit 1; done && "
          "cmp many.txt whole.txt",
          command);
}

TEST_WITH(the_root_is_that_of_one_process, setup, sandbox_teardown, void *made) {
    sandbox *box = made, one = pool_in(box, "alone");
    reef_commit expected = alone(box);
    assert_int_equal(pool_generations(&one), 3);
    for (size_t count = 2; count <= 4; count += 2) { // three are killed below
        make_shards(box, count);
        learn_by_ranks(box, count, count == 2 ? "--threads 2" : "--threads 1");
        same_roots(box, count, &expected);
        shell("$REEF verify many/rank-1 >/dev/null");
        gathers_to(box, "many", &expected);
        reads_alike("eval $pool text --json");
    }
}

// A snapshot, and what was learned after it, in three shards: the directory that holds them is read
// as the whole pool, copied and in place, as of each state.
BOX_TEST(all_shards_are_read_as_one_pool) {
    (void)learn_alone(box, "pool", box->text);
    shell("$REEF snapshot create pool kept >/dev/null");
    append_noise(box->text, NOISE_BYTES, 9);
    make_shards(box, RANKS);
    learn_by_ranks(box, RANKS, "");
    sandbox first = shard_of(box, 0);
    reef_commit expected = pool_commit(&first);
    gathers_to(box, "many", &expected);
    static const char *const COMMANDS[] = {
        "eval $pool text --json",
        "eval $pool text --as-of 0 --rows-memory 1M --threads 2 --json",
        "eval $pool text --as-of kept --rows-memory 1M --json",
        "score $pool text",
        "generate $pool --prompt a --bytes 40 --seed 5",
        "generations $pool",
        "usage $pool",
        "timeline $pool",
        "experts $pool --top 0",
    };
    for (size_t i = 0; i < sizeof(COMMANDS) / sizeof(*COMMANDS); i++) reads_alike(COMMANDS[i]);
    shell("$REEF verify many >/dev/null && $REEF status many >/dev/null");
    // A new pool cannot be made of one of them, and nothing is left of it.
    command_says(box, "$REEF snapshot restore many/rank-1 kept new",
                 "many/rank-1 is the shard of rank 1 of 3");
    is_not_there("new");
}

static reef_status count_record(void *context,
                                const reef_key *key,
                                const reef_view *view,
                                reef_error *err) {
    (void)key, (void)view, (void)err;
    ++*(size_t *)context;
    return REEF_OK;
}

// Records of memories, and the blocks that they name.
static size_t records_of_memories(const char *pool) {
    reef_error err;
    reef_store *store;
    size_t count = 0;
    static const reef_db databases[] = {REEF_DB_MEMORY, REEF_DB_VISITS};
    reef_txn *txn = pool_view(pool, &store);
    for (size_t i = 0; i < sizeof(databases) / sizeof(*databases); i++)
        if (reef_record_scan(txn, databases[i], UINT32_MAX, count_record, &count, &err) != REEF_OK)
            fail_msg("%s", err.message);
    pool_close(store, txn);
    return count;
}

// Kinds that come back, while ranks are killed and their number changes: each shard has the
// memories, and the root is that of one process.
BOX_TEST(memories_are_in_every_shard) {
    make_pool_of_memories(box);
    reef_commit expected = alone(box);
    make_shards(box, 2);
    for (unsigned i = 0; i < 2; i++) {
        pid_t run = start_ranks(box, 2, "", NULL);
        signal_rank(box, i % 2, run, 400 + 700 * i, SIGKILL);
        (void)end_of(run);
    }
    learn_by_ranks(box, 2, "");
    same_roots(box, 2, &expected);
    divides(box, "many", "whole", 1);
    sandbox whole = pool_in(box, "whole");
    assert_in_range(pool_generations(&whole), 2, 9);
    same_root(&whole, &expected);
    shell("$REEF verify whole >/dev/null");
    size_t all = records_of_memories(whole.pool);
    assert_true(all > 10);
    for (size_t r = 0; r < 2; r++) {
        sandbox shard = shard_of(box, r);
        assert_int_equal(records_of_memories(shard.pool), all);
    }
    reads_alike("eval $pool sample --json");
    reads_alike("compress $pool sample -o $pool.reef --as-of 0 >/dev/null; cat $pool.reef");
    // With three ranks from here on, and a kind that comes back.
    shell("mv many two");
    divides(box, "two", "many", RANKS);
    append_figures(box->text, KIND_BYTES, 4);
    expected = learn_alone(box, "alone", box->text);
    // A memory that one rank cannot read ends all; its shard is as it was before.
    sandbox second = shard_of(box, 1);
    shell("cp -a many/rank-1 kept");
    record_damage(second.pool, &(reef_key){.db = REEF_DB_MEMORY, .name = "mixer"});
    ends_with(box, run_ranks(box, RANKS, ""),
              "rank 1: kind 0 is damaged; reef verify says what helps: memory (generation 0");
    shell("cp kept/data.mdb many/rank-1/");
    learn_by_ranks(box, RANKS, "");
    same_roots(box, RANKS, &expected);
    shell("$REEF verify many >/dev/null");
}

static uint64_t epoch_now(reef_store *store) {
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
BOX_TEST(shards_are_read_while_they_are_trained) {
    reef_error err;
    reef_store *store = NULL;
    make_shards(box, 2);
    append_figures(box->text, 3 * FIGURE_BYTES, 4); // it shall not end before it is asked to
    pid_t run = start_ranks(box, 2, "--commit-steps 1", NULL);
    assert_true(await_rank(box, 0, run) > 0 && await_rank(box, 1, run) > 0);
    if (reef_store_open(&store, "many", NULL, &err) != REEF_OK) fail_msg("%s", err.message);
    uint64_t first = epoch_now(store), last = first;
    for (int ms = 0; ms < RANKS_WAITS_MAX * RANKS_WAIT_MS && last < first + 20; ms++, sleep_ms(1)) {
        uint64_t epoch = epoch_now(store);
        assert_true(epoch >= last);
        last = epoch;
    }
    assert_true(last >= first + 20);
    reef_store_close(store);
    shell("$REEF eval many text >/dev/null && $REEF status many | grep -q ranks && "
          "$REEF stop many >/dev/null");
    goes_well(box, end_of(run));
    shell("$REEF verify many >/dev/null");
}

// reef init makes the shards one by one, and nobody holds all rows.
TEST_WITH(a_new_pool_begins_as_shards, setup, sandbox_teardown, void *made) {
    sandbox *box = made, one = pool_in(box, "one");
    shell("$REEF init one " SIZES "--side 60 >/dev/null && "
          "$REEF init many --ranks 3 " SIZES "--side 60 >made.txt");
    reef_commit expected = pool_commit(&one);
    same_roots(box, 3, &expected);
    shell("grep -q 'mpirun -n 3 reefd --pool many' made.txt");
    learn_by_ranks(box, 3, "");
    expected = learn_alone(box, "one", box->text);
    same_roots(box, 3, &expected);
    gathers_to(box, "many", &expected);
    // What is in the way stays, and nothing is left.
    command_says(box, "$REEF init many --ranks 2 " SIZES, "many");
    command_says(box, "$REEF init no --ranks 5 " SIZES,
                 "5 ranks are more than the 4 windows of a step");
    is_not_there("no");
    is_not_there("no.unfinished");
    same_roots(box, 3, &expected);
}

// Two ranks, then three, then one.
BOX_TEST(another_number_of_ranks_goes_on) {
    learn_in_two(box);
    append_figures(box->text, FIGURE_BYTES / 2, 7);
    shell("mv many two");
    divides(box, "two", "many", 3);
    learn_by_ranks(box, 3, "");
    append_noise(box->text, NOISE_BYTES, 9);
    shell("mv many three");
    // Each shard by itself, in any order.
    divides(box, "three/rank-2 three/rank-0 three/rank-1", "last", 1);
    (void)learn_alone(box, "last", box->text);
    sandbox last = pool_in(box, "last");
    reef_commit expected = alone(box);
    same_root(&last, &expected);
}

// A bound of the pool's size is that of rank 0, and the largest shard is what it bounds.
BOX_TEST(bounds_that_differ_are_those_of_rank_0) {
    reef_commit expected = alone_once(box);
    make_shards(box, 2);
    const special bound = {.rank = 0, .more = "--pool-max 1M"};
    goes_well(box, run_special(box, 2, "", &bound));
    same_roots(box, 2, &expected);
}

// ---- kills --------------------------------------------------------------------------------------

BOX_TEST(killed_ranks_go_on) {
    reef_commit expected = alone_once(box);
    make_shards(box, RANKS);
    size_t kills = test_effort(KILLS_FEW, KILLS_MANY);
    unsigned seed = 11;
    for (size_t i = 0; i < kills; i++) {
        seed = seed * 1664525u + 1013904223u;
        pid_t run = start_ranks(box, RANKS, "", NULL);
        signal_rank(box, (seed >> 8) % RANKS, run, (seed >> 16) % 800, SIGKILL);
        (void)end_of(run);
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

static uint64_t epoch_of(const sandbox *box, size_t rank) {
    reef_error err;
    reef_store *store = NULL;
    if (reef_store_open(&store, shard_of(box, rank).pool, NULL, &err) != REEF_OK)
        fail_msg("%s", err.message);
    uint64_t epoch = epoch_now(store);
    reef_store_close(store);
    return epoch;
}

static void dies(const sandbox *box, size_t rank, const char *before) {
    const special one = {.rank = rank, .before = before};
    assert_int_not_equal(run_special(box, 2, "", &one), 0);
}

// Rank 0 dies between the others' commits and its own: they are an epoch ahead, and go back.
BOX_TEST(ranks_that_are_ahead_step_back) {
    reef_commit expected = alone_once(box);
    make_shards(box, 2);
    dies(box, 0, "-x REEF_FAIL_POINT=commit.before_sync:4");
    assert_int_equal(epoch_of(box, 1), epoch_of(box, 0) + 1);
    // Nobody knows whether it will count: reef shards leaves that to the ranks.
    refuses(box, "many", "no", 1, "if it is one ahead, start all ranks once");
    command_says(box, "$REEF eval many text", "rank-1 is of epoch");
    // Rank 1 dies when it has gone back and not committed again: its shard is whole.
    uint64_t counts = epoch_of(box, 0);
    dies(box, 1, "-x REEF_FAIL_POINT=commit.before_sync:1");
    sandbox second = shard_of(box, 1);
    assert_int_equal(epoch_of(box, 1), counts);
    pool_check(&second);
    learn_by_ranks(box, 2, "");
    assert_int_equal(epoch_of(box, 1), epoch_of(box, 0));
    same_roots(box, 2, &expected);
    gathers_to(box, "many", &expected);
}

// reef shards dies at each of its points: what there was is there, and it can be started again.
BOX_TEST(killed_reef_shards_begins_again) {
    static const char *const points[] = {"make.begun",   "make.filled",  "make.moved",
                                         "shard.made:1", "shard.made:2", "shards.made"};
    learn_in_two(box);
    sandbox first = shard_of(box, 0);
    reef_commit expected = pool_commit(&first);
    for (size_t i = 0; i < sizeof(points) / sizeof(*points); i++) {
        assert_int_not_equal(
            shell_of("REEF_FAIL_POINT=%s $REEF shards many three --to 3 >/dev/null 2>&1",
                     points[i]),
            0);
        is_not_there("three");
        same_roots(box, 2, &expected);
        divides(box, "many", "three", 3);
        is_not_there("three.unfinished");
        gathers_to(box, "three", &expected);
        shell("rm -r three");
    }
}

#else

static void ranks_that_are_ahead_step_back(void **state) {
    print_message("skipped: this build has no fail points\n");
    skip();
}

static void killed_reef_shards_begins_again(void **state) {
    print_message("skipped: this build has no fail points\n");
    skip();
}

#endif

static pid_t start_with_deadline(const sandbox *box, const char *seconds) {
    make_shards(box, 2);
    assert_int_equal(setenv("REEF_TEST_RANK_DEADLINE", seconds, 1), 0);
    pid_t run = start_ranks(box, 2, "--threads 2", NULL);
    assert_int_equal(unsetenv("REEF_TEST_RANK_DEADLINE"), 0);
    return run;
}

BOX_TEST(a_rank_that_hangs_is_named) {
    reef_commit expected = alone_once(box);
    pid_t run = start_with_deadline(box, "3");
    signal_rank(box, 1, run, 700, SIGSTOP);
    ends_with(box, end_of(run), "rank 1 has not answered for 3 seconds");
    learn_by_ranks(box, 2, "");
    same_roots(box, 2, &expected);
}

// All stand still for longer than the deadline, as on a machine that sleeps: nobody hangs.
BOX_TEST(a_pause_of_all_ranks_is_not_silence) {
    reef_commit expected = alone_once(box);
    pid_t run = start_with_deadline(box, "1");
    pid_t pids[] = {await_rank(box, 0, run), await_rank(box, 1, run)};
    assert_true(pids[0] > 0 && pids[1] > 0);
    sleep_ms(700);
    for (int r = 0; r < 2; r++) assert_int_equal(kill(pids[r], SIGSTOP), 0);
    sleep_ms(2500);
    for (int r = 0; r < 2; r++) assert_int_equal(kill(pids[r], SIGCONT), 0);
    goes_well(box, end_of(run));
    same_roots(box, 2, &expected);
}

// ---- what does not fit together -----------------------------------------------------------------

BOX_TEST(shards_that_do_not_fit_are_named) {
    learn_in_two(box);
    refuses(box, "many/rank-1", "no", 1,
            "rank-1 is one of 2 shards, and 1 were given: all are needed");
    refuses(box, "many/rank-1 many/rank-1", "no", 1, "rank-1 is given twice");
    shell("cp -a many/rank-1 kept");
    refuses(box, "many/rank-1 kept", "no", 1,
            "is the shard of rank 1, and stands where that of rank 0 is needed");
    refuses(box, "many many", "no", 1, "is given twice");
    // A backup, while the others went on.
    append_noise(box->text, NOISE_BYTES, 9);
    learn_by_ranks(box, 2, "");
    refuses(box, "many/rank-0 kept", "no", 1, "kept is of epoch");
    shell("cd many && mv rank-1 ../new && cp -a ../kept rank-1");
    ends_with(box, run_ranks(box, 2, ""), "rank 1: its shard is stale, of epoch");
    // Of another division of the same pool.
    divides(box, "pool", "again", 2);
    refuses(box, "again/rank-0 kept", "no", 1, "kept is a shard of another pool");
    refuses(box, "again/rank-0 pool", "no", 1, "is not a shard with a part of the");
}

// Ranks train no pool that is whole: what divides it is said.
BOX_TEST(a_whole_pool_is_not_trained_by_ranks) {
    shell("mkdir many && cp -a pool many/rank-0 && cp -a pool many/rank-1");
    int code = run_ranks(box, 2, "");
    assert_int_equal(code, 64);
    ends_with(box, code, "rank 0: its pool is whole, and ranks train one that is divided");
    refuses(box, "many", "no", 1, "is not a shard with a part of the rows");
    command_says(box, "$REEF eval many text",
                 "many holds whole pools of several ranks: give one of them, many/rank-0");
}

BOX_TEST(programs_that_differ_are_named) {
    make_shards(box, 2);
    const special other = {.rank = 1, .before = "-x REEF_ISA=scalar"};
    ends_with(box, run_special(box, 2, "", &other), "rank 1: it computes with kernels scalar");
}

BOX_TEST(what_cannot_be_divided) {
    refuses(box, "pool", "no", 5, "5 ranks are more than the 4 windows of a step");
    refuses(box, "pool", "no", 0, "must be an integer, 1 to");
    refuses(box, "nothing", "no", 2, "there is no pool at nothing, and no rank-0");
    refuses(box, "pool", "pool/in", 2, "the directory above it is a pool");
    shell("$REEF init memories --net-share 0 >made.txt && cp -a pool old");
    refuses(box, "memories", "no", 2, "it is not a model of text with experts");
    put_format("old", 3, true);
    refuses(box, "old", "no", 2, "old has format 3");
}

// Whoever needs all rows says which command brings them together.
BOX_TEST(a_shard_is_not_used_alone) {
    learn_in_two(box);
    command_says(box, "$REEF eval many/rank-1 text", "reef shards");
    command_says(box, "$REEF score many/rank-1 text", "reef shards");
    command_says(box, "$REEF export model many/rank-1 model.safetensors", "reef shards");
    command_says(box, "$REEFD --pool many/rank-1 --source text " QUICK,
                 "is the shard of rank 1 of 2: train it with mpirun -n 2");
    shell("$REEF generations many/rank-1 >/dev/null"); // what reads no rows works
}

// All shards together are read; what would change them says what to use instead.
BOX_TEST(shards_together_are_not_changed) {
    make_shards(box, 2);
    command_says(box, "$REEF seal many", "or a whole pool (reef shards DIR NEW --to 1)");
    command_says(box, "$REEF export pool many new",
                 "reef shards many NEW --to 1 makes a whole pool of them");
    command_says(box, "$REEF snapshot create many now-and-then", "which can be read so");
    command_says(box, "$REEFD --pool many --source text",
                 "holds shards, rank-0 to rank-1: start mpirun -n 2 reefd");
    shell("mv many/rank-1 away");
    command_says(box, "$REEF eval many text",
                 "the shard of rank 1 is missing: there is no pool at many/rank-1");
}

// A disk that is full: files may not grow beyond half of a shard.
BOX_TEST(a_full_disk_leaves_nothing) {
    command_says(box, "(ulimit -f 1000; trap '' XFSZ; exec $REEF shards pool many --to 2)",
                 "reef shards: ");
    is_not_there("many");
    is_not_there("many.unfinished");
    pool_check(box);
}

// A disk that is full, on one rank: its files may not grow.
BOX_TEST(a_full_disk_on_one_rank) {
    make_shards(box, 2);
    const special full = {
        .rank = 1,
        .before = "sh -c 'ulimit -f 1500; trap \"\" XFSZ; exec \"$@\"' --",
    };
    ends_with(box, run_special(box, 2, "", &full), "rank 1: its commit failed");
    reef_commit expected = alone_once(box);
    learn_by_ranks(box, 2, "");
    same_roots(box, 2, &expected);
}

int main(void) {
    leave_mpi_to_itself();
    return test_run(NULL, discard_mould);
}
