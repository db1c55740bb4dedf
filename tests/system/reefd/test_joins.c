// Ranks that learn apart, each from sources of its own, and join: started by mpirun as people start
// them. Afterwards every rank knows what all have learned. The roots depend on the streams and on
// the bytes between joins alone, after any kill too; what does not fit together ends all ranks with
// one message, and nothing is lost. What does not fit is in unit/daemon/test_crew.c.
#include "ranks_run.h"
#include "reef_join.h"
#include "reef_kinds.h"

#define RANKS 3
#define BASE_BYTES 12000
#define EVERY_BYTES 16384
#define JOINING "--join-every 16K"
#define MEMORY_BYTES (4 << 20)
#define KILLS_FEW 3
#define KILLS_MANY 200

static void ok(reef_status status, const reef_error *err) {
    if (status != REEF_OK) fail_msg("%s", err->message);
}

// ---- text and pools -----------------------------------------------------------------------------

// Words of an alphabet of eight, in a random order. Kinds are told apart by their letters.
static void append_words(const char *path, int kind, size_t bytes, uint32_t seed) {
    static const char *const ALPHABETS[] = {"abcdefgh", "01234567", "QRSTUVWX", "ijklmnop",
                                            "!#$%&()*"};
    FILE *file = fopen(path, "ab");
    uint32_t state = seed * 2654435761u + 1u;
    size_t word = 0;
    assert_non_null(file);
    for (size_t i = 0; i < bytes; i++) {
        if (i % 4 == 0) {
            state = state * 1664525u + 1013904223u;
            word = state >> 27;
        }
        size_t letter = (word * 3 + i % 4 * (1 + word % 2)) % 8;
        fputc(i % 4 == 3 ? ' ' : ALPHABETS[kind][letter], file);
    }
    fputc('\n', file); // a live source gives whole lines
    assert_int_equal(fclose(file), 0);
}

// Each has kinds of its own; the first of rank 0 comes back there, and that of rank 1 on rank 0.
static void write_sources(const sandbox *box) {
    static const struct {
        size_t rank;
        int kind;
        size_t bytes;
    } PARTS[] = {{0, 1, 20000}, {0, 2, 20000}, {0, 1, 15000}, {0, 3, 9000},
                 {1, 3, 30000}, {1, 4, 30000}, {2, 0, 21000}};
    char path[256];
    for (size_t r = 0; r < RANKS; r++) (void)unlink(source_of(box, r, path));
    for (size_t i = 0; i < sizeof(PARTS) / sizeof(*PARTS); i++)
        append_words(source_of(box, PARTS[i].rank, path), PARTS[i].kind, PARTS[i].bytes,
                     (uint32_t)i + 10);
}

static void set(reef_config *config, const char *name, const char *value) {
    reef_error err;
    ok(reef_config_set(config, name, value, &err), &err);
}

// A pool that has learned a kind. With a net (`net_share` above 0) the model is tiny.
static void learn_base(const sandbox *box, const char *net_share) {
    reef_error err;
    reef_config config = tiny_config();
    reef_store *store = NULL;
    char path[256];
    size_t bytes;
    config.layers = 1;
    config.batch = 4;
    config.memory = MEMORY_BYTES;
    set(&config, "boundaries", "contexts");
    set(&config, "net_share", net_share);
    sandbox_make_pool_of(box, &config);
    snprintf(path, sizeof(path), "%s/base", box->directory);
    (void)unlink(path);
    append_words(path, 0, BASE_BYTES, 1);
    char *text = read_text(path, &bytes);
    reef_trainer *trainer = pool_train(box->pool, &store);
    ok(reef_trainer_feed(trainer, "base", (const uint8_t *)text, bytes, NULL, NULL, &err), &err);
    ok(reef_trainer_seal(trainer, NULL, NULL, &err), &err);
    pool_train_end(store, trainer);
}

static mould kept; // the base that every test begins with, and what its ranks come to

static void make_base(const sandbox *box, const char *net_share) {
    bool usual = strcmp(net_share, "0") == 0;
    if (usual && mould_is_made(&kept)) {
        mould_take(&kept, "pool");
        return;
    }
    learn_base(box, net_share);
    if (usual) mould_keep(&kept, "pool");
}

static int discard_mould(void **state) {
    mould_discard(&kept);
    return 0;
}

static int setup(void **state) {
    sandbox *box = *state = calloc(1, sizeof(*box));
    sandbox_make_again(box);
    make_base(box, "0");
    write_sources(box);
    return 0;
}

// DIR/many/rank-0 .. of the sandbox's pool as it is now.
static void make_ranks(const sandbox *box, size_t count) {
    shell("rm -rf many; mkdir many");
    for (size_t r = 0; r < count; r++) shell("cp -a %s many/rank-%zu", box->pool, r);
}

// A process that has just begun would simply end: wait until it catches SIGTERM, or has ended.
static void await_handler(pid_t pid) {
    char path[64], line[128];
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    for (int i = 0; i < RANKS_WAITS_MAX; i++, sleep_ms(RANKS_WAIT_MS)) {
        unsigned long long caught = 0;
        FILE *file = fopen(path, "r");
        if (file == NULL) return;
        while (fgets(line, sizeof(line), file) != NULL)
            if (strncmp(line, "SigCgt:", 7) == 0) caught = strtoull(line + 7, NULL, 16);
        fclose(file);
        if (caught >> (SIGTERM - 1) & 1) return;
    }
}

// ---- what came of it ----------------------------------------------------------------------------

typedef struct outcome {
    reef_commit commits[RANKS];
} outcome;

static outcome outcome_of(const sandbox *box, size_t count) {
    outcome out = {0};
    for (size_t r = 0; r < count; r++) {
        sandbox one = shard_of(box, r);
        out.commits[r] = pool_commit(&one);
        pool_check(&one);
    }
    return out;
}

// What they come to when nothing disturbs them.
static outcome undisturbed(const sandbox *box, size_t count) {
    make_ranks(box, count);
    learn_by_ranks(box, count, JOINING);
    return outcome_of(box, count);
}

// Of the base and sources that every test begins with: learned once, and copied afterwards.
static outcome undisturbed_once(const sandbox *box, size_t count) {
    static outcome found[RANKS + 1];
    static bool learned[RANKS + 1];
    char name[32];
    snprintf(name, sizeof(name), "many-%zu", count);
    if (!learned[count]) {
        found[count] = undisturbed(box, count);
        shell("cp -a many %s", name);
        mould_keep(&kept, name);
        learned[count] = true;
    } else {
        mould_take(&kept, name);
        shell("rm -rf many && mv %s many", name);
    }
    return found[count];
}

static void same_roots(const sandbox *box, size_t count, const outcome *expected) {
    outcome found = outcome_of(box, count);
    for (size_t r = 0; r < count; r++) assert_same(&found.commits[r], &expected->commits[r]);
}

typedef struct joined {
    reef_join record;
    reef_join_kind *kinds;
    size_t count;
    reef_kind_list list;
} joined;

static joined joined_of(const sandbox *box, size_t rank) {
    reef_error err;
    reef_store *store;
    joined out;
    reef_txn *txn = pool_view(shard_of(box, rank).pool, &store);
    ok(reef_join_read(txn, &out.record, &err), &err);
    ok(reef_join_kinds_read(txn, &out.kinds, &out.count, &err), &err);
    ok(reef_kind_list_read(txn, &out.list, &err), &err);
    pool_close(store, txn);
    keep(out.kinds);
    keep(out.list.kinds);
    keep(out.list.visits);
    return out;
}

static const reef_kind_facts *copy_of(const joined *one, uint32_t owner, uint32_t kind) {
    for (size_t i = 0; i < one->count; i++)
        if (one->kinds[i].owner == owner && one->kinds[i].owner_kind == kind)
            return reef_kind_list_find(&one->list, one->kinds[i].kind);
    return NULL;
}

// Every kind of every rank has a copy on every other one, which has learned as many bytes.
static size_t all_know_all(const sandbox *box, size_t count) {
    joined all[RANKS];
    size_t compared = 0;
    for (size_t r = 0; r < count; r++) all[r] = joined_of(box, r);
    for (size_t r = 0; r < count; r++)
        for (size_t i = 0; i < all[r].count; i++) {
            const reef_join_kind *kind = &all[r].kinds[i];
            const reef_kind_facts *here = reef_kind_list_find(&all[r].list, kind->kind);
            if (here == NULL || here->learned_bytes == 0) continue; // it was sealed empty
            for (size_t other = 0; other < count; other++) {
                const reef_kind_facts *there = copy_of(&all[other], kind->owner, kind->owner_kind);
                assert_non_null(there);
                assert_int_equal(there->learned_bytes, here->learned_bytes);
                compared++;
            }
        }
    return compared;
}

// ---- joins --------------------------------------------------------------------------------------

BOX_TEST(every_rank_knows_what_all_have_learned) {
    (void)undisturbed_once(box, RANKS);
    // The first one, two of rank 0, two of rank 1, and one of rank 2, each on three ranks.
    assert_int_equal(all_know_all(box, RANKS), 9 * 6);
    joined first = joined_of(box, 0), last = joined_of(box, 2);
    assert_int_equal(first.record.joins, 64000 / EVERY_BYTES + 1);
    assert_int_equal(first.record.joins, last.record.joins);
    assert_int_equal(first.record.count, RANKS);
    assert_int_equal(first.record.left_out_bytes, 0);
    assert_int_equal(first.record.since, 0);
    assert_true(first.record.sent_bytes > 0 && last.record.received_bytes > 0);
    // Named by the rank that has it. A kind that was learned on two ranks is two.
    const reef_kind_facts *theirs = copy_of(&first, 1, 1), *own = copy_of(&first, 0, 1);
    assert_memory_equal(theirs->name, "rank-1.", 7);
    assert_string_equal(own->name, "");
    // Rank 0 has met a kind that rank 1 began, and what it learned of it all know.
    assert_true(copy_of(&first, 1, 1)->learned_bytes > 30000 + 7000);
    // Nothing is left to do, and nothing lies about.
    outcome before = outcome_of(box, RANKS);
    learn_by_ranks(box, RANKS, JOINING);
    same_roots(box, RANKS, &before);
    shell("test -z \"$(find many -name '*.from-*' -o -name '*.part' -o -name item)\"");
}

BOX_TEST(with_a_net_too) {
    char path[256];
    make_base(box, "0.5");
    for (size_t r = 0; r < 2; r++) {
        (void)unlink(source_of(box, r, path));
        append_words(path, 1 + (int)r, 9000, 30);
        append_words(path, 3 + (int)r, 12000, 31);
    }
    outcome expected = undisturbed(box, 2);
    joined first = joined_of(box, 0);
    assert_true(first.record.joins >= 2 && first.record.kinds >= 1);
    make_ranks(box, 2);
    const special other = {.rank = 1, .more = "--threads 3 --commit-steps 2"};
    goes_well(box, run_special(box, 2, JOINING, &other));
    same_roots(box, 2, &expected);
}

BOX_TEST(neither_time_nor_threads_nor_commits_matter) {
    outcome expected = undisturbed_once(box, RANKS);
    make_ranks(box, RANKS);
    const special one = {.rank = 1, .more = "--threads 2 --commit-steps 3"};
    pid_t run = start_ranks(box, RANKS, JOINING, &one);
    // A rank that is slow: the others wait for it.
    for (int i = 0; i < 4; i++) {
        pid_t pid = await_rank(box, (size_t)i % 2, run);
        if (pid == 0) break;
        sleep_ms(150);
        (void)kill(pid, SIGSTOP);
        sleep_ms(200);
        (void)kill(pid, SIGCONT);
    }
    goes_well(box, end_of(run));
    same_roots(box, RANKS, &expected);
}

// Equal text makes equal generations: each rank keeps one.
BOX_TEST(what_two_ranks_learned_alike_is_one_kind) {
    char one[256], other[256];
    (void)unlink(source_of(box, 1, other));
    (void)unlink(source_of(box, 0, one));
    append_words(one, 1, 20000, 3);
    append_words(one, 2, 20000, 4);
    shell("cp %s %s", one, other);
    (void)undisturbed(box, 2);
    joined first = joined_of(box, 0);
    assert_int_equal(first.record.kinds, 0);
    assert_true(copy_of(&first, 1, 1) == copy_of(&first, 0, 1));
    assert_true(all_know_all(box, 2) > 0);
}

// ---- kills --------------------------------------------------------------------------------------

BOX_TEST(killed_ranks_go_on) {
    outcome expected = undisturbed_once(box, RANKS);
    make_ranks(box, RANKS);
    size_t kills = test_effort(KILLS_FEW, KILLS_MANY);
    unsigned seed = 7;
    for (size_t i = 0; i < kills; i++) {
        seed = seed * 1664525u + 1013904223u;
        pid_t run = start_ranks(box, RANKS, JOINING, NULL);
        signal_rank(box, (seed >> 8) % RANKS, run, (seed >> 16) % 700, SIGKILL);
        (void)end_of(run);
        (void)outcome_of(box, RANKS); // sound
    }
    learn_by_ranks(box, RANKS, JOINING);
    same_roots(box, RANKS, &expected);
    assert_true(all_know_all(box, RANKS) > 0);
}

// A rank dies at a point of a join, and all are started again; so at three points, one after the
// other, of which the last ones are in later joins.
BOX_TEST(a_join_that_was_cut_off_is_begun_again) {
#ifdef REEF_FAIL_POINTS
    static const char *const POINTS[][3] = {
        {"join.sealed", "import.read", "import.joined"},
        {"join.packed", "join.exchanged", "join.item"},
        {"join.finished", "join.packed:2", "join.exchanged:2"},
        {"import.cleared:2", "join.item:4", "commit.before_sync"},
    };
    outcome expected = undisturbed_once(box, RANKS);
    for (size_t i = 0; i < sizeof(POINTS) / sizeof(*POINTS); i++) {
        make_ranks(box, RANKS);
        for (size_t j = 0; j < sizeof(*POINTS) / sizeof(**POINTS); j++) {
            char before[128];
            snprintf(before, sizeof(before), "-x REEF_FAIL_POINT=%s", POINTS[i][j]);
            const special one = {.rank = (i + j) % RANKS, .before = before};
            if (run_special(box, RANKS, JOINING, &one) == 0)
                fail_msg("%s was not reached", POINTS[i][j]);
        }
        learn_by_ranks(box, RANKS, JOINING);
        same_roots(box, RANKS, &expected);
    }
#else
    print_message("skipped: this build has no fail points\n");
    skip();
#endif
}

// A live source: its rank would never end by itself, and the others wait for it.
static pid_t start_with_live_source(const sandbox *box, char path[256]) {
    char more[300];
    snprintf(path, 256, "%s/live", box->directory);
    append_words(path, 4, 9000, 5);
    snprintf(more, sizeof(more), "--source follow:%s", path);
    const special one = {.rank = 1, .more = more};
    pid_t run = start_ranks(box, RANKS, JOINING, &one);
    for (size_t r = 0; r < RANKS; r++) {
        sandbox at = shard_of(box, r);
        reefd_await(&at, run);
    }
    return run;
}

BOX_TEST(a_rank_that_is_waited_for_is_shown_and_one_stop_ends_all) {
    sandbox at;
    char path[256];
    make_ranks(box, RANKS);
    pid_t run = start_with_live_source(box, path);
    // Rank 2 has ended; rank 0 waits at a join for which rank 1 lacks bytes.
    at = shard_of(box, 2);
    json_t *status = NULL;
    for (int i = 0, waits = 0; !waits; i++, sleep_ms(RANKS_WAIT_MS)) {
        assert_true(i < RANKS_WAITS_MAX);
        status = reefd_status(&at);
        waits = strcmp(string(status, "joins.state"), "waiting") == 0 &&
                integer(status, "joins.count") >= 4 && length(status, "joins.waits_for") == 1 &&
                integer(status, "joins.waits_for.0") == 1;
    }
    assert_int_equal(integer(status, "joins.every_bytes"), EVERY_BYTES);
    assert_true(number(status, "joins.waiting_s") > 0);
    assert_true(integer(status, "joins.received_bytes") > 0);
    assert_true(integer(status, "joins.last.unix_ms") > 0);
    // More bytes come, so they join once more; then one of them is asked to stop.
    at = shard_of(box, 0);
    int64_t before = (int64_t)joined_of(box, 0).record.joins;
    append_words(path, 4, 2 * EVERY_BYTES, 6);
    await_count(&at, "joins.count", before + 1);
    (void)reefd_tell(&at, "stop");
    goes_well(box, end_of(run));
    (void)outcome_of(box, RANKS);
}

// Asked to stop anywhere, all end in good order, and come to the same when they go on.
BOX_TEST(stopped_ranks_go_on) {
    outcome expected = undisturbed_once(box, RANKS);
    make_ranks(box, RANKS);
    for (size_t i = 0; i < RANKS; i++) {
        pid_t run = start_ranks(box, RANKS, JOINING, NULL);
        pid_t pid = await_rank(box, i, run);
        if (pid > 0) await_handler(pid);
        signal_rank(box, i, run, 100 + 120 * (unsigned)i, SIGTERM);
        goes_well(box, end_of(run));
    }
    learn_by_ranks(box, RANKS, JOINING);
    same_roots(box, RANKS, &expected);
}

// ---- what does not fit together -----------------------------------------------------------------

// What is judged when they meet, and what a rank finds before and after that: one message.
BOX_TEST(what_does_not_fit_ends_all_before_anything_is_learned) {
    make_ranks(box, 2);
    const special once = {.rank = 1, .more = "--join-every 0"};
    ends_with(box, run_special(box, 2, JOINING, &once),
              "rank 1: it was started with join-every 0, rank 0 with 16384");
    ends_with(box, run_ranks(box, 3, JOINING), "rank 2: there is no pool at");
    const special missing = {.rank = 1, .more = "--source none/such"};
    ends_with(box, run_special(box, 2, JOINING, &missing), "rank 1: ");
    const special input = {.rank = 1, .more = "--source -"};
    ends_with(box, run_special(box, 2, JOINING, &input),
              "rank 1: standard input cannot be a source");
    learn_by_ranks(box, 2, JOINING);
    assert_true(all_know_all(box, 2) > 0);
}

// A backup that was put back, where the others have gone on.
BOX_TEST(an_older_copy_is_named) {
    char path[256];
    (void)undisturbed_once(box, 2);
    shell("cp -a many/rank-1 kept");
    append_words(source_of(box, 0, path), 2, 3 * EVERY_BYTES, 77);
    learn_by_ranks(box, 2, JOINING);
    shell("cd many && rm -r rank-1 && mv ../kept rank-1");
    ends_with(box, run_ranks(box, 2, JOINING), "it is an older copy");
}

BOX_TEST(one_process_joins_nobody) {
    char path[256];
    int code = shell_of("$REEFD --pool pool --source %s " QUICK " " JOINING " 2>messages",
                        source_of(box, 0, path));
    ends_with(box, code, "join-every is for several ranks: start mpirun -n R");
    // A pool may go on alone, and joins no more then.
    (void)undisturbed_once(box, 2);
    append_words(path, 2, 5000, 78);
    (void)learn_alone(box, "many/rank-0", path);
    ends_with(box, run_ranks(box, 2, JOINING), "rank 0: its pool was at byte");
    // Copies of it start over.
    shell("cd many && rm -r rank-1 && cp -a rank-0 rank-1");
    learn_by_ranks(box, 2, JOINING " --json-log");
    assert_non_null(strstr(read_text(box->messages, NULL), "joins_anew"));
    assert_int_equal(joined_of(box, 1).record.rank, 1);
}

// A disk that is full on one rank, within a join: its files may not grow.
BOX_TEST(a_full_disk_on_one_rank) {
    outcome expected = undisturbed_once(box, 2);
    make_ranks(box, 2);
    const special full = {
        .rank = 1,
        .before = "sh -c 'ulimit -f 300; trap \"\" XFSZ; exec \"$@\"' --",
    };
    ends_with(box, run_special(box, 2, JOINING, &full), "rank 1: ");
    learn_by_ranks(box, 2, JOINING);
    same_roots(box, 2, &expected);
}

// Rank 1 has done a join that rank 0 has not, and what it gave is damaged, or gone.
BOX_TEST(what_others_still_need_is_checked) {
#ifdef REEF_FAIL_POINTS
    make_ranks(box, 2);
    const special dies = {.rank = 0, .before = "-x REEF_FAIL_POINT=join.item"};
    assert_int_not_equal(run_special(box, 2, JOINING, &dies), 0);
    // Both have to have finished the first one for one to be ahead: else it is packed again.
    if (joined_of(box, 1).record.joins != 1) {
        print_message("rank 1 was not ahead\n");
        skip();
    }
    shell("cd many/rank-1/joins && cp 1.of-1 ../../kept && printf x | dd of=1.of-1 bs=1 "
          "seek=500 conv=notrunc 2>/dev/null");
    ends_with(box, run_ranks(box, 2, JOINING), "rank 1: the file of rank 1 for join 1 is damaged");
    shell("rm many/rank-1/joins/1.of-1");
    ends_with(box, run_ranks(box, 2, JOINING), "rank 1: its file of join 1");
    shell("mv many/kept many/rank-1/joins/1.of-1");
    learn_by_ranks(box, 2, JOINING);
    outcome found = outcome_of(box, 2);
    (void)undisturbed_once(box, 2);
    same_roots(box, 2, &found);
#else
    print_message("skipped: this build has no fail points\n");
    skip();
#endif
}

int main(void) {
    ranks_are_apart = true;
    leave_mpi_to_itself();
    return test_run(NULL, discard_mould);
}
