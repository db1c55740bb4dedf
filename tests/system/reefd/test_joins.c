// Ranks that learn apart, each from sources of its own, and join: started by mpirun as people start
// them. Afterwards every rank knows what all have learned. The roots depend on the streams and on
// the bytes between joins alone, after any kill too; what does not fit together ends all ranks with
// one message, and nothing is lost.
#include "crew_internal.h"
#include "ranks_spawn.h"
#include "reef_join.h"
#include "reef_kinds.h"
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define RANKS 3
#define BASE_BYTES 12000
#define EVERY "16K"
#define EVERY_BYTES 16384
#define MEMORY_BYTES (4 << 20)
#define KILLS_FEW 4
#define KILLS_MANY 200
#define COMMAND_BYTES 8192
#define WAIT_MS 20
#define WAITS_MAX 3000 // a minute

// Ranks of one test share two cores with others.
#define QUICK "--quiet --commit-steps 10 --threads 1"

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

static char *source_of(const sandbox *box, size_t rank, char out[256]) {
    snprintf(out, 256, "%s/text-%zu", box->directory, rank);
    return out;
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
static void learn_base(const sandbox *box, const char *net_share, bool sealed) {
    reef_error err;
    reef_config config = tiny_config();
    reef_store *store = NULL;
    reef_trainer *trainer = NULL;
    char path[256];
    size_t bytes;
    config.layers = 1;
    config.batch = 4;
    config.context_memory = MEMORY_BYTES;
    set(&config, "boundaries", "contexts");
    set(&config, "net_share", net_share);
    sandbox_make_pool_of(box, &config);
    snprintf(path, sizeof(path), "%s/base", box->directory);
    (void)unlink(path);
    append_words(path, 0, BASE_BYTES, 1);
    char *text = read_text(path, &bytes);
    ok(reef_store_open(&store, box->pool, &(reef_store_options){.write = true}, &err), &err);
    ok(reef_trainer_open(&trainer, store, &(reef_trainer_options){.threads = 1}, &err), &err);
    ok(reef_trainer_feed(trainer, "base", (const uint8_t *)text, bytes, NULL, NULL, &err), &err);
    ok(sealed ? reef_trainer_seal(trainer, NULL, NULL, &err)
              : reef_trainer_commit(trainer, NULL, &err),
       &err);
    reef_trainer_close(trainer);
    reef_store_close(store);
}

static sandbox mould; // of the base that every test begins with, made when it is first asked for

static void make_base(const sandbox *box, const char *net_share, bool sealed) {
    bool usual = sealed && strcmp(net_share, "0") == 0;
    if (!usual || mould.directory[0] == '\0') learn_base(box, net_share, sealed);
    if (!usual) return;
    if (mould.directory[0] == '\0') {
        sandbox_make(&mould);
        assert_int_equal(shell_of("cp -a %s %s", box->pool, mould.pool), 0);
    }
    assert_int_equal(shell_of("rm -rf %s && cp -a %s %s", box->pool, mould.pool, box->pool), 0);
}

static int discard_mould(void **state) {
    if (mould.directory[0] != '\0') sandbox_remove(&mould);
    return 0;
}

static int setup(void **state) {
    sandbox *box = calloc(1, sizeof(*box));
    sandbox_make_again(box);
    make_base(box, "0", true);
    write_sources(box);
    *state = box;
    return 0;
}

static int teardown(void **state) {
    sandbox_remove(*state);
    free(*state);
    return 0;
}

// ---- running ------------------------------------------------------------------------------------

// What one rank runs beyond the others: `before` reefd, and after its options.
typedef struct special {
    size_t rank;
    const char *before, *more;
} special;

// The command of all ranks; each reads a file of its own.
static void command_of(const sandbox *box,
                       size_t count,
                       const char *every,
                       const special *one,
                       char out[COMMAND_BYTES]) {
    char source[256];
    int used = snprintf(out, COMMAND_BYTES, MPIRUN);
    for (size_t r = 0; r < count; r++) {
        bool is_it = one != NULL && one->rank == r;
        used +=
            snprintf(out + used, COMMAND_BYTES - (size_t)used,
                     "%s -n 1 %s %s --pool %s/many --source %s " QUICK " %s %s", r > 0 ? " :" : "",
                     is_it && one->before != NULL ? one->before : "", REEFD_PATH, box->directory,
                     source_of(box, r, source), every, is_it && one->more != NULL ? one->more : "");
        assert_in_range(used, 1, COMMAND_BYTES - 1);
    }
    used += snprintf(out + used, COMMAND_BYTES - (size_t)used, " 2>%s", box->messages);
    assert_in_range(used, 1, COMMAND_BYTES - 1);
}

static int run_special(const sandbox *box, size_t count, const special *one) {
    char command[COMMAND_BYTES];
    command_of(box, count, "--join-every " EVERY, one, command);
    return shell_of("%s", command);
}

static int run_ranks(const sandbox *box, size_t count) {
    return run_special(box, count, NULL);
}

static pid_t start_ranks(const sandbox *box, size_t count, const special *one) {
    char command[COMMAND_BYTES], all[COMMAND_BYTES + 8];
    command_of(box, count, "--join-every " EVERY, one, command);
    snprintf(all, sizeof(all), "exec %s", command);
    return ranks_spawn(box, count, all);
}

static pid_t rank_pid(const sandbox *box, size_t rank) {
    char path[256], text[32] = {0};
    snprintf(path, sizeof(path), "%s/many/rank-%zu/writer.lock", box->directory, rank);
    int fd = open(path, O_RDONLY);
    if (fd < 0) return 0;
    ssize_t got = read(fd, text, sizeof(text) - 1);
    close(fd);
    return got > 0 ? (pid_t)strtol(text, NULL, 10) : 0;
}

static pid_t await_rank(const sandbox *box, size_t rank, pid_t run) {
    for (int i = 0; i < WAITS_MAX; i++, sleep_ms(WAIT_MS)) {
        pid_t pid = rank_pid(box, rank);
        if (pid > 0) return pid;
        if (waitpid(run, NULL, WNOHANG | WNOWAIT) == run) break; // it ended before
    }
    return 0;
}

// A process that has just begun would simply end: wait until it catches SIGTERM, or has ended.
static void await_handler(pid_t pid) {
    char path[64], line[128];
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    for (int i = 0; i < WAITS_MAX; i++, sleep_ms(WAIT_MS)) {
        unsigned long long caught = 0;
        FILE *file = fopen(path, "r");
        if (file == NULL) return;
        while (fgets(line, sizeof(line), file) != NULL)
            if (strncmp(line, "SigCgt:", 7) == 0) caught = strtoull(line + 7, NULL, 16);
        fclose(file);
        if (caught >> (SIGTERM - 1) & 1) return;
    }
}

static int end_of(pid_t run) {
    int code = 0;
    assert_int_equal(waitpid(run, &code, 0), run);
    return WIFEXITED(code) ? WEXITSTATUS(code) : -1;
}

// ---- what came of it ----------------------------------------------------------------------------

static void check_code(const sandbox *box, int code) {
    if (code == 0) return;
    char *text = read_text(box->messages, NULL);
    fail_msg("exit code %d: %s", code, text);
}

// One message, which names the rank, and the end of all ranks.
static void ends_with(const sandbox *box, int code, const char *words) {
    size_t count = 0;
    char *text = read_text(box->messages, NULL);
    if (strstr(text, words) == NULL) fail_msg("\"%s\" is not in: %s", words, text);
    for (const char *at = text; (at = strstr(at, "reefd: ")) != NULL; at++) count++;
    if (count != 1) fail_msg("%zu messages: %s", count, text);
    assert_int_not_equal(code, 0);
}

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
    check_code(box, run_ranks(box, count));
    return outcome_of(box, count);
}

// Of the base and sources that every test begins with: learned once, and copied afterwards.
static outcome undisturbed_once(const sandbox *box, size_t count) {
    static outcome found[RANKS + 1];
    static bool learned[RANKS + 1];
    if (learned[count]) {
        assert_int_equal(shell_of("rm -rf %s/many && cp -a %s/many-%zu %s/many", box->directory,
                                  mould.directory, count, box->directory),
                         0);
        return found[count];
    }
    found[count] = undisturbed(box, count);
    assert_int_equal(shell_of("cp -a %s/many %s/many-%zu", box->directory, mould.directory, count),
                     0);
    learned[count] = true;
    return found[count];
}

static void same_roots(const sandbox *box, size_t count, const outcome *expected) {
    outcome found = outcome_of(box, count);
    for (size_t r = 0; r < count; r++) {
        assert_int_equal(found.commits[r].stream_bytes, expected->commits[r].stream_bytes);
        assert_memory_equal(found.commits[r].root, expected->commits[r].root, REEF_HASH_BYTES);
    }
}

typedef struct joined {
    reef_join record;
    reef_join_kind *kinds;
    size_t count;
    reef_kind_list list;
} joined;

static joined joined_of(const sandbox *box, size_t rank) {
    sandbox one = shard_of(box, rank);
    reef_error err;
    reef_store *store = NULL;
    reef_txn *txn = NULL;
    joined out;
    ok(reef_store_open(&store, one.pool, NULL, &err), &err);
    ok(reef_txn_begin(&txn, store, REEF_TXN_READ, &err), &err);
    ok(reef_join_read(txn, &out.record, &err), &err);
    ok(reef_join_kinds_read(txn, &out.kinds, &out.count, &err), &err);
    ok(reef_kind_list_read(txn, &out.list, &err), &err);
    reef_txn_abort(txn);
    reef_store_close(store);
    return out;
}

static void joined_release(joined *one) {
    free(one->kinds);
    reef_kind_list_release(&one->list);
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
    for (size_t r = 0; r < count; r++) joined_release(&all[r]);
    return compared;
}

// ---- joins --------------------------------------------------------------------------------------

static void every_rank_knows_what_all_have_learned(void **state) {
    sandbox *box = *state;
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
    joined_release(&first);
    joined_release(&last);
    // Nothing is left to do, and nothing lies about.
    outcome before = outcome_of(box, RANKS);
    check_code(box, run_ranks(box, RANKS));
    same_roots(box, RANKS, &before);
    assert_int_equal(
        shell_of("test -z \"$(find %s/many -name '*.from-*' -o -name '*.part' -o -name item)\"",
                 box->directory),
        0);
}

static void with_a_net_too(void **state) {
    sandbox *box = *state;
    char path[256];
    make_base(box, "0.5", true);
    for (size_t r = 0; r < 2; r++) {
        (void)unlink(source_of(box, r, path));
        append_words(path, 1 + (int)r, 16000, 30);
        append_words(path, 3 + (int)r, 20000, 31);
    }
    outcome expected = undisturbed(box, 2);
    joined first = joined_of(box, 0);
    assert_true(first.record.joins >= 3 && first.record.kinds >= 1);
    joined_release(&first);
    make_ranks(box, 2);
    const special other = {.rank = 1, .more = "--threads 3 --commit-steps 2"};
    check_code(box, run_special(box, 2, &other));
    same_roots(box, 2, &expected);
}

static void neither_time_nor_threads_nor_commits_matter(void **state) {
    sandbox *box = *state;
    outcome expected = undisturbed_once(box, RANKS);
    make_ranks(box, RANKS);
    const special one = {.rank = 1, .more = "--threads 2 --commit-steps 3"};
    pid_t run = start_ranks(box, RANKS, &one);
    // A rank that is slow: the others wait for it.
    for (int i = 0; i < 4; i++) {
        pid_t pid = await_rank(box, (size_t)i % 2, run);
        if (pid == 0) break;
        sleep_ms(150);
        (void)kill(pid, SIGSTOP);
        sleep_ms(200);
        (void)kill(pid, SIGCONT);
    }
    check_code(box, end_of(run));
    same_roots(box, RANKS, &expected);
}

// Equal text makes equal generations: each rank keeps one.
static void what_two_ranks_learned_alike_is_one_kind(void **state) {
    sandbox *box = *state;
    char one[256], other[256];
    (void)unlink(source_of(box, 1, other));
    (void)unlink(source_of(box, 0, one));
    append_words(one, 1, 20000, 3);
    append_words(one, 2, 20000, 4);
    assert_int_equal(shell_of("cp %s %s", one, other), 0);
    (void)undisturbed(box, 2);
    joined first = joined_of(box, 0);
    assert_int_equal(first.record.kinds, 0);
    assert_true(copy_of(&first, 1, 1) == copy_of(&first, 0, 1));
    joined_release(&first);
    assert_true(all_know_all(box, 2) > 0);
}

// ---- kills --------------------------------------------------------------------------------------

static void killed_ranks_go_on(void **state) {
    sandbox *box = *state;
    outcome expected = undisturbed_once(box, RANKS);
    make_ranks(box, RANKS);
    size_t kills = test_effort(KILLS_FEW, KILLS_MANY);
    unsigned seed = 7;
    for (size_t i = 0; i < kills; i++) {
        seed = seed * 1664525u + 1013904223u;
        size_t victim = (seed >> 8) % RANKS;
        pid_t run = start_ranks(box, RANKS, NULL);
        pid_t pid = await_rank(box, victim, run);
        sleep_ms((seed >> 16) % 700);
        if (pid > 0) (void)kill(pid, SIGKILL);
        (void)end_of(run);
        (void)outcome_of(box, RANKS); // sound
    }
    check_code(box, run_ranks(box, RANKS));
    same_roots(box, RANKS, &expected);
    assert_true(all_know_all(box, RANKS) > 0);
}

// A rank dies at a point of a join, and all are started again; so at three points, one after the
// other, of which the last ones are in later joins.
static void a_join_that_was_cut_off_is_begun_again(void **state) {
#ifdef REEF_FAIL_POINTS
    static const char *const POINTS[][3] = {
        {"join.sealed", "import.read", "import.joined"},
        {"join.packed", "join.exchanged", "join.item"},
        {"join.finished", "join.packed:2", "join.exchanged:2"},
        {"import.cleared:2", "join.item:4", "commit.before_sync"},
    };
    sandbox *box = *state;
    outcome expected = undisturbed_once(box, RANKS);
    for (size_t i = 0; i < sizeof(POINTS) / sizeof(*POINTS); i++) {
        make_ranks(box, RANKS);
        for (size_t j = 0; j < 3; j++) {
            char before[128];
            snprintf(before, sizeof(before), "-x REEF_FAIL_POINT=%s", POINTS[i][j]);
            const special one = {.rank = (i + j) % RANKS, .before = before};
            int code = run_special(box, RANKS, &one);
            if (code == 0) fail_msg("%s was not reached", POINTS[i][j]);
        }
        check_code(box, run_ranks(box, RANKS));
        same_roots(box, RANKS, &expected);
    }
#else
    print_message("skipped: this build has no fail points\n");
    skip();
#endif
}

static void stop(const sandbox *box, size_t rank) {
    sandbox one = shard_of(box, rank);
    (void)reefd_ask(&one, "{\"command\": \"stop\"}");
}

// A live source: its rank would never end by itself, and the others wait for it.
static pid_t start_with_live_source(const sandbox *box, char path[256]) {
    static char more[400];
    snprintf(path, 256, "%s/live", box->directory);
    (void)unlink(path);
    append_words(path, 4, 9000, 5);
    snprintf(more, sizeof(more), "--source follow:%s", path);
    static special one;
    one = (special){.rank = 1, .more = more};
    pid_t run = start_ranks(box, RANKS, &one);
    for (size_t r = 0; r < RANKS; r++) {
        sandbox at = shard_of(box, r);
        reefd_await(&at, run);
    }
    return run;
}

static json_t *await_joins(const sandbox *box, size_t rank, const char *member, const char *word) {
    sandbox one = shard_of(box, rank);
    for (int i = 0; i < WAITS_MAX; i++, sleep_ms(WAIT_MS)) {
        json_t *status = reefd_ask(&one, "{\"command\": \"status\"}");
        json_t *joins = json_incref(json_object_get(status, "joins"));
        assert_non_null(joins);
        const char *found = json_string_value(json_object_get(joins, member));
        if (found != NULL && strcmp(found, word) == 0) return joins;
        json_decref(joins);
    }
    fail_msg("%s is not %s within a minute", member, word);
    return NULL;
}

static void a_rank_that_is_waited_for_is_shown_and_one_stop_ends_all(void **state) {
    sandbox *box = *state;
    char path[256];
    make_ranks(box, RANKS);
    pid_t run = start_with_live_source(box, path);
    // Rank 2 has ended; rank 0 waits at a join for which rank 1 lacks bytes.
    json_t *joins = NULL;
    for (int i = 0; i < WAITS_MAX; i++, sleep_ms(WAIT_MS)) {
        joins = await_joins(box, 2, "state", "waiting");
        const json_t *list = json_object_get(joins, "waits_for");
        if (json_array_size(list) == 1 && json_integer_value(json_array_get(list, 0)) == 1 &&
            json_integer_value(json_object_get(joins, "count")) >= 4)
            break;
        json_decref(joins);
        joins = NULL;
    }
    assert_non_null(joins);
    assert_int_equal(json_integer_value(json_object_get(joins, "every_bytes")), EVERY_BYTES);
    assert_true(json_number_value(json_object_get(joins, "waiting_s")) > 0);
    assert_true(json_integer_value(json_object_get(joins, "received_bytes")) > 0);
    const json_t *last = json_object_get(joins, "last");
    assert_true(json_integer_value(json_object_get(last, "unix_ms")) > 0);
    json_decref(joins);
    // More bytes come, so they join once more; then one of them is asked to stop.
    joined before = joined_of(box, 0);
    append_words(path, 4, 2 * EVERY_BYTES, 6);
    for (int i = 0; i < WAITS_MAX; i++, sleep_ms(WAIT_MS)) {
        joined now = joined_of(box, 0);
        bool more = now.record.joins > before.record.joins;
        joined_release(&now);
        if (more) break;
    }
    joined_release(&before);
    stop(box, 0);
    check_code(box, end_of(run));
    (void)outcome_of(box, RANKS);
}

// Asked to stop anywhere, all end in good order, and come to the same when they go on.
static void stopped_ranks_go_on(void **state) {
    sandbox *box = *state;
    outcome expected = undisturbed_once(box, RANKS);
    make_ranks(box, RANKS);
    for (size_t i = 0; i < 4; i++) {
        pid_t run = start_ranks(box, RANKS, NULL);
        pid_t pid = await_rank(box, i % RANKS, run);
        if (pid > 0) await_handler(pid);
        sleep_ms(100 + 120 * (unsigned)i);
        if (pid > 0) (void)kill(pid, SIGTERM);
        check_code(box, end_of(run));
    }
    check_code(box, run_ranks(box, RANKS));
    same_roots(box, RANKS, &expected);
}

// ---- what does not fit together -----------------------------------------------------------------

static void swap_pools(const sandbox *box) {
    assert_int_equal(
        shell_of("cd %s/many && mv rank-0 x && mv rank-1 rank-0 && mv x rank-1", box->directory),
        0);
}

static void pools_that_do_not_fit_are_named(void **state) {
    sandbox *box = *state;
    char command[COMMAND_BYTES];
    outcome expected = undisturbed_once(box, 2);
    // Other numbers of ranks, other bytes, none.
    ends_with(box, run_ranks(box, 1), "rank 0: its pool is one of 2, and 1 ranks were started");
    command_of(box, 2, "--join-every 32K", NULL, command);
    ends_with(box, shell_of("%s", command),
              "rank 0: its pool joins others every 16384 bytes, not 32768");
    command_of(box, 2, "", NULL, command);
    ends_with(box, shell_of("%s", command),
              "rank 0: its pool learns apart and joins the others: start all with --join-every");
    const special alone = {.rank = 1, .more = "--join-every 0"};
    ends_with(box, run_special(box, 2, &alone),
              "rank 1: it was started with join-every 0, rank 0 with 16384");
    // In the wrong places; a pool that has not joined; one that is older.
    swap_pools(box);
    ends_with(box, run_ranks(box, 2), "rank 0: its pool is that of rank 1");
    swap_pools(box);
    assert_int_equal(
        shell_of("cd %s/many && mv rank-1 ../kept && cp -a %s rank-1", box->directory, box->pool),
        0);
    ends_with(box, run_ranks(box, 2), "rank 1: its pool has not joined others");
    assert_int_equal(shell_of("cd %s/many && rm -r rank-1 && cp -a ../kept rank-1", box->directory),
                     0);
    same_roots(box, 2, &expected);
    char path[256];
    append_words(source_of(box, 0, path), 2, 3 * EVERY_BYTES, 77);
    check_code(box, run_ranks(box, 2));
    assert_int_equal(shell_of("cd %s/many && rm -r rank-1 && mv ../kept rank-1", box->directory),
                     0);
    ends_with(box, run_ranks(box, 2), "it is an older copy");
}

static void pools_that_cannot_begin_are_named(void **state) {
    sandbox *box = *state;
    // Not equal.
    make_ranks(box, 2);
    sandbox second = shard_of(box, 1);
    char path[256];
    assert_int_equal(shell_of("%s --pool %s --source %s " QUICK, REEFD_PATH, second.pool,
                              source_of(box, 1, path)),
                     0);
    ends_with(box, run_ranks(box, 2), "rank 1: its pool is not equal to rank 0's");
    // Another configuration.
    make_base(box, "0.5", true);
    assert_int_equal(
        shell_of("cd %s/many && rm -r rank-1 && cp -a %s rank-1", box->directory, box->pool), 0);
    ends_with(box, run_ranks(box, 2), "rank 1: its pool has another configuration than rank 0's");
    // Nothing that they have in common.
    make_base(box, "0", false);
    make_ranks(box, 2);
    ends_with(box, run_ranks(box, 2), "rank 0: generation 0 of its pool is open");
    // A pool that is missing, a source that is, and standard input.
    make_base(box, "0", true);
    make_ranks(box, 2);
    ends_with(box, run_ranks(box, 3), "rank 2: there is no pool at");
    const special missing = {.rank = 1, .more = "--source none/such"};
    ends_with(box, run_special(box, 2, &missing), "rank 1: ");
    const special input = {.rank = 1, .more = "--source -"};
    ends_with(box, run_special(box, 2, &input), "rank 1: standard input cannot be a source");
    // Two daemons on one socket.
    const special socket = {.rank = 1, .more = "--http 1.2.3.4:1"};
    ends_with(box, run_special(box, 2, &socket), "rank 1: ");
    // All of it was said before anything was learned.
    check_code(box, run_ranks(box, 2));
    assert_true(all_know_all(box, 2) > 0);
}

static void one_process_joins_nobody(void **state) {
    sandbox *box = *state;
    char path[256];
    int code = shell_of("%s --pool %s --source %s " QUICK " --join-every 16K 2>%s", REEFD_PATH,
                        box->pool, source_of(box, 0, path), box->messages);
    ends_with(box, code, "join-every is for several ranks: start mpirun -n R");
    // A pool may go on alone, and joins no more then.
    (void)undisturbed_once(box, 2);
    append_words(path, 2, 5000, 78);
    sandbox first = shard_of(box, 0);
    assert_int_equal(shell_of("%s --pool %s --source %s " QUICK, REEFD_PATH, first.pool, path), 0);
    ends_with(box, run_ranks(box, 2), "rank 0: its pool was at byte");
    // Copies of it start over.
    make_base(box, "0", true);
    assert_int_equal(shell_of("cd %s/many && rm -r rank-1 && cp -a rank-0 rank-1", box->directory),
                     0);
    char command[COMMAND_BYTES];
    command_of(box, 2, "--join-every 16K", NULL, command);
    check_code(box, shell_of("%s", command));
    joined again = joined_of(box, 1);
    assert_int_equal(again.record.rank, 1);
    joined_release(&again);
}

// A disk that is full on one rank, within a join: its files may not grow.
static void a_full_disk_on_one_rank(void **state) {
    sandbox *box = *state;
    outcome expected = undisturbed_once(box, 2);
    make_ranks(box, 2);
    const special full = {
        .rank = 1,
        .before = "sh -c 'ulimit -f 300; trap \"\" XFSZ; exec \"$@\"' --",
    };
    int code = run_special(box, 2, &full);
    ends_with(box, code, "rank 1: ");
    check_code(box, run_ranks(box, 2));
    same_roots(box, 2, &expected);
}

// Rank 1 has done a join that rank 0 has not, and what it gave is damaged, or gone.
static void what_others_still_need_is_checked(void **state) {
#ifdef REEF_FAIL_POINTS
    sandbox *box = *state;
    make_ranks(box, 2);
    const special dies = {.rank = 0, .before = "-x REEF_FAIL_POINT=join.item"};
    assert_int_not_equal(run_special(box, 2, &dies), 0);
    // Both have to have finished the first one for one to be ahead: else it is packed again.
    joined other = joined_of(box, 1);
    bool ahead = other.record.joins == 1;
    joined_release(&other);
    if (!ahead) {
        print_message("rank 1 was not ahead\n");
        skip();
    }
    assert_int_equal(shell_of("cd %s/many/rank-1/joins && cp 1.of-1 ../../kept && printf x | dd "
                              "of=1.of-1 bs=1 seek=500 conv=notrunc 2>/dev/null",
                              box->directory),
                     0);
    ends_with(box, run_ranks(box, 2), "rank 1: the file of rank 1 for join 1 is damaged");
    assert_int_equal(shell_of("rm %s/many/rank-1/joins/1.of-1", box->directory), 0);
    ends_with(box, run_ranks(box, 2), "rank 1: its file of join 1");
    assert_int_equal(
        shell_of("mv %s/many/kept %s/many/rank-1/joins/1.of-1", box->directory, box->directory), 0);
    check_code(box, run_ranks(box, 2));
    outcome found = outcome_of(box, 2);
    (void)undisturbed_once(box, 2);
    same_roots(box, 2, &found);
#else
    print_message("skipped: this build has no fail points\n");
    skip();
#endif
}

int main(void) {
    // Leaks of MPI's own are not ours.
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
    setenv("TSAN_OPTIONS", "detect_deadlocks=0", 1);
    const struct CMUnitTest tests[] = {
        SET_UP(every_rank_knows_what_all_have_learned),
        SET_UP(with_a_net_too),
        SET_UP(neither_time_nor_threads_nor_commits_matter),
        SET_UP(what_two_ranks_learned_alike_is_one_kind),
        SET_UP(killed_ranks_go_on),
        SET_UP(a_join_that_was_cut_off_is_begun_again),
        SET_UP(a_rank_that_is_waited_for_is_shown_and_one_stop_ends_all),
        SET_UP(stopped_ranks_go_on),
        SET_UP(pools_that_do_not_fit_are_named),
        SET_UP(pools_that_cannot_begin_are_named),
        SET_UP(one_process_joins_nobody),
        SET_UP(a_full_disk_on_one_rank),
        SET_UP(what_others_still_need_is_checked),
    };
    return cmocka_run_group_tests_name("reefd joins", tests, NULL, discard_mould);
}
