// reefd on Redis Streams. However often the daemon is killed, the server
// dies or the connection is cut, and whatever becomes of a consumer group, the pool ends with the
// root hash of a run in which nothing happened.
#define _GNU_SOURCE // for unshare

#include "redis_server.h"
#include "reef_trainer.h"

#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "draw.h"
#include "live_run.h"
#include "stride.h"
#include "test.h"

#define ENTRIES 1500
#define GROUPED 900

typedef struct world {
    live_run run;
    redis_server redis;
} world;

static int setup(void **state) {
    world *w = (world *)sandbox_new(state, sizeof(*w));
    redis_server_init(&w->redis, w->run.box.directory);
    return 0;
}

static int teardown(void **state) {
    world *w = *state;
    redis_server_release(&w->redis);
    unsetenv("REEF_REDIS_PASSWORD");
    return sandbox_teardown(state);
}

// ---- text ---------------------------------------------------------------------------------------

// Entries first to last - 1, their ids given, so that a second run has the same.
static void add_entries(world *w, size_t first, size_t last) {
    char line[400];
    snprintf(line, sizeof(line), "redis-cli -s '%s' >/dev/null", w->redis.socket);
    FILE *cli = popen(line, "w");
    assert_non_null(cli);
    for (size_t i = first; i < last; i++) {
        char text[100];
        int bytes = snprintf(text, sizeof(text), "%zu: order %zu of %zu pieces", i, i * 7919 % 1000,
                             i * 104729 % 97);
        fprintf(cli, "XADD stream %zu-1 other x text \"%s\"\n", i + 1, text);
        w->run.written += (uint64_t)bytes + 1;
    }
    assert_int_equal(pclose(cli), 0);
}

static void empty(world *w) {
    redis_server_empty(&w->redis);
    sandbox_make_pool(&w->run.box);
    w->run.written = 0;
}

#define FIXTURE_TEST(name) TEST_WITH(name, setup, teardown, world *w)

FIXTURE_TEST(no_failure_of_redis_leaves_a_trace) {
    uint64_t seed = 5;
    redis_server_start(&w->redis, "");
    redis_relay_start(&w->redis, w->run.box.directory);
    snprintf(w->run.source, sizeof(w->run.source), "redis://127.0.0.1:%d/stream", w->redis.port);
    live_start(&w->run);
    add_entries(w, 0, ENTRIES);
    reef_commit whole = live_finish(&w->run);

    empty(w);
    redis_server_start(&w->redis, "");
    live_start(&w->run);
    const size_t parts = 15;
    for (size_t i = 0; i < parts; i++) {
        w->redis.orders->cut_after = (long)(draw_bits(&seed) % 6000); // mostly within a record
        add_entries(w, i * ENTRIES / parts, (i + 1) * ENTRIES / parts);
        sleep_ms((unsigned)(draw_bits(&seed) % 300));
        if (i % 5 == 2) {
            redis_server_kill(&w->redis);
            sleep_ms((unsigned)(draw_bits(&seed) % 300));
            redis_server_start(&w->redis, "");
        }
        if (i % 3 == 1) {
            reefd_kill(&w->run.box);
            live_start(&w->run);
        }
    }
    w->redis.orders->cut_after = -1;
    reef_commit commit = live_finish(&w->run);
    assert_true(w->redis.orders->cuts >= 5);
    assert_same(&commit, &whole);
}

FIXTURE_TEST(a_server_that_is_away_is_waited_for) {
    snprintf(w->run.source, sizeof(w->run.source), "redis://%s/stream", w->redis.socket);
    live_start(&w->run);
    await_said(&w->run.box, "retrying");
    sleep_ms(1000);
    redis_server_start(&w->redis, "");
    add_entries(w, 0, 200);
    (void)live_finish(&w->run);
    assert_int_equal(times_said(&w->run.box, "retrying"), 1);
    assert_true(reefd_said(&w->run.box, "is back"));
}

// Names of hosts as this test has them, for this process from here on: last in the list of tests.
static bool rename_hosts(const world *w, const char *hosts) {
    char file[200];
    snprintf(file, sizeof(file), "%s/hosts", w->run.box.directory);
    FILE *out = fopen(file, "w");
    assert_non_null(out);
    fputs(hosts, out);
    fclose(out);
    if (unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
        mount(file, "/etc/hosts", NULL, MS_BIND, NULL) == 0)
        return true;
    print_message("skipped: nothing can be mounted here\n");
    return false;
}

// As where "localhost" is ::1 as well, and the server listens on 127.0.0.1 only.
FIXTURE_TEST(every_address_of_a_name_is_tried) {
    redis_server_start(&w->redis, "");
    redis_relay_start(&w->redis, w->run.box.directory);
    add_entries(w, 0, 200);
    if (!rename_hosts(w, "127.0.0.1 reef-test\n::1 reef-test\n")) skip();
    snprintf(w->run.source, sizeof(w->run.source), "redis://reef-test:%d/stream", w->redis.port);
    live_start(&w->run);
    (void)live_finish(&w->run);
    assert_false(reefd_said(&w->run.box, "retrying"));
    (void)umount("/etc/hosts");
}

FIXTURE_TEST(a_wrong_password_or_key_is_reported_without_it) {
    redis_server_start(&w->redis, "geheim");
    snprintf(w->run.source, sizeof(w->run.source), "redis://:falsch@%s/stream", w->redis.socket);
    live_start(&w->run);
    await_said(&w->run.box, "WRONGPASS");
    reefd_kill(&w->run.box);
    assert_int_equal(times_said(&w->run.box, "falsch"), 0);

    snprintf(w->run.source, sizeof(w->run.source), "redis://%s/stream", w->redis.socket);
    setenv("REEF_REDIS_PASSWORD", "geheim", 1);
    setenv("REDISCLI_AUTH", "geheim", 1);
    redis_command(&w->redis, "SET stream x");
    live_start(&w->run);
    await_said(&w->run.box, "WRONGTYPE");
    redis_command(&w->redis, "DEL stream");
    add_entries(w, 0, 200);
    (void)live_finish(&w->run);
    unsetenv("REDISCLI_AUTH");
    assert_true(reefd_said(&w->run.box, "is back"));
}

FIXTURE_TEST(entries_that_were_trimmed_unread_are_reported) {
    snprintf(w->run.source, sizeof(w->run.source), "redis://%s/stream", w->redis.socket);
    redis_server_start(&w->redis, "");
    add_entries(w, 0, 200);
    live_start(&w->run);
    (void)live_finish(&w->run);
    uint64_t read = w->run.written;
    redis_command(&w->redis, "XTRIM stream MAXLEN 5"); // all were read: no loss
    add_entries(w, 200, 300);
    redis_command(&w->redis, "XTRIM stream MAXLEN 0");
    w->run.written = read;
    add_entries(w, 300, 400);
    live_start(&w->run);
    (void)live_finish(&w->run);
    assert_true(reefd_said(&w->run.box, "100 entries of"));
}

FIXTURE_TEST(bad_urls_are_refused) {
    const char *const urls[] = {"redis:stream",           "redis://host",
                                "redis://host/",          "redis://:1/stream",
                                "redis://h:x/stream",     "redis://h:70000/s",
                                "redis://h/s?db=x",       "redis://h/s?fiel=x",
                                "redis://h/a/b",          "redis://u:geheim%zz@h/s",
                                "redis:///stream",        "redis://[::1/s",
                                "redis://h/s?format=f64", "redis://h/s?consumer=a",
                                "redis://h/s?group=",     "rediss://:geheim@h/s",
                                "redis://u:geheim/s",     "redis://h/s?password=geheim"};
    for (size_t i = 0; i < sizeof(urls) / sizeof(*urls); i++) {
        assert_int_equal(RUN(&w->run.box, "--source", urls[i]),
                         reef_status_exit_code(REEF_ERR_INVALID));
        assert_int_equal(times_said(&w->run.box, "geheim"), 0);
    }
}

// ---- a consumer group ---------------------------------------------------------------------------

static void start_committing(world *w) {
    START(&w->run.box, "--source", w->run.source, "--threads", "2", "--commit-steps", "20",
          "--commit-seconds", "0.2");
}

static void start_without_commits(world *w) {
    START(&w->run.box, "--source", w->run.source, "--commit-steps", "0", "--commit-seconds", "0");
}

static long pending(const world *w, const char *group) {
    char words[200], answer[64];
    snprintf(words, sizeof(words), "--raw XPENDING stream %s | head -1", group);
    redis_answer(&w->redis, words, answer, sizeof(answer));
    return strtol(answer, NULL, 10);
}

static void await_pending(const world *w, const char *group, long count) {
    for (int i = 0; i < 600 && pending(w, group) != count; i++) sleep_ms(100);
    assert_int_equal(pending(w, group), count);
}

// Until all is trained, committed and acknowledged.
static reef_commit finish_acknowledged(world *w, const char *group) {
    live_await(&w->run);
    await_pending(w, group, 0);
    return live_finish(&w->run);
}

FIXTURE_TEST(what_is_committed_is_acknowledged_and_no_more) {
    redis_server_start(&w->redis, "");
    snprintf(w->run.source, sizeof(w->run.source), "redis://%s/stream?group=reef&consumer=one",
             w->redis.socket);
    add_entries(
        w, 0,
        600); // more than one XACK has; before the group, which takes what is read once it is there
    start_without_commits(w);
    live_await(&w->run);
    await_pending(w, "reef", 600); // read, and in no commit
    assert_int_equal(reefd_count(&w->run.box, "sources.0.entries_acknowledged"), 0);
    (void)reefd_tell(&w->run.box, "commit");
    await_pending(w, "reef", 0);
    assert_int_equal(reefd_count(&w->run.box, "sources.0.entries_acknowledged"), 600);
    char answer[200];
    redis_answer(&w->redis, "--raw XINFO GROUPS stream | grep -A1 last-delivered-id | tail -1",
                 answer, sizeof(answer));
    assert_string_equal(answer, "600-1\n");
    // A commit acknowledges what it has, not what was read ahead of it.
    (void)reefd_tell(&w->run.box, "pause");
    add_entries(w, 600, 650);
    await_pending(w, "reef", 50);
    reefd_snapshot(&w->run.box, "one");
    sleep_ms(2500); // what must not be acknowledged would be now
    assert_int_equal(pending(w, "reef"), 50);
    (void)reefd_tell(&w->run.box, "resume");
    live_await(&w->run);
    (void)reefd_tell(&w->run.box, "commit");
    await_pending(w, "reef", 0);
    // What the commit at the end takes along is acknowledged by the next run.
    add_entries(w, 650, 750);
    live_await(&w->run);
    await_pending(w, "reef", 100);
    (void)live_finish(&w->run);
    assert_int_equal(pending(w, "reef"), 100);
    live_start(&w->run);
    reefd_await(&w->run.box, w->run.box.pid);
    await_pending(w, "reef", 0);
    (void)live_finish(&w->run);
}

// The file's text once `words` stand in it so often, on the heap.
static char *await_times(const char *file, const char *words, size_t times) {
    for (int i = 0;; i++, sleep_ms(100)) {
        char *text = read_text(file, NULL);
        if (times_in(text, words) >= times) return text;
        if (i == 300) fail_msg("not %zu times '%s' in: %s", times, words, text);
    }
}

// What the server receives from here on goes to `file`, a line a command; it ends with the server.
static void begin_monitor(const world *w, const char *file) {
    char line[900];
    snprintf(line, sizeof(line), ": >'%s'; redis-cli -s '%s' monitor >>'%s' &", file,
             w->redis.socket, file);
    assert_int_equal(system(line), 0);
    (void)await_times(file, "OK", 1);
}

// On the one connection a reading that waits for entries would make every XPENDING and XACK wait as
// long.
FIXTURE_TEST(nothing_is_waited_for_between_acknowledgements) {
    const size_t sweeps = (GROUPED + 255) / 256;
    redis_server_start(&w->redis, "");
    snprintf(w->run.source, sizeof(w->run.source), "redis://%s/stream?group=reef", w->redis.socket);
    add_entries(w, 0, GROUPED);
    start_without_commits(w);
    live_await(&w->run);
    await_pending(w, "reef", GROUPED);
    char file[240];
    snprintf(file, sizeof(file), "%s/told", w->run.box.directory);
    begin_monitor(w, file);
    (void)reefd_tell(&w->run.box, "commit");
    await_pending(w, "reef", 0);
    char *told = await_times(file, "\"XACK\"", sweeps), *first = strstr(told, "\"XACK\"");
    char *last = first;
    for (char *at = first; at != NULL; at = strstr(at + 1, "\"XACK\"")) last = at;
    *last = '\0';
    assert_true(times_in(first, "\"XREAD\"") >= 1); // reading continues
    assert_int_equal(times_in(first, "\"BLOCK\""), 0);
    (void)live_finish(&w->run);
}

FIXTURE_TEST(a_group_that_others_disturb_changes_nothing) {
    uint64_t seed = 11;
    redis_server_start(&w->redis, "");
    redis_relay_start(&w->redis, w->run.box.directory);
    snprintf(w->run.source, sizeof(w->run.source), "redis://127.0.0.1:%d/stream", w->redis.port);
    add_entries(w, 0, GROUPED);
    live_start(&w->run);
    reef_commit whole = live_finish(&w->run);

    // The same with a group, which is not part of the source's name.
    empty(w);
    redis_server_start(&w->redis, "");
    snprintf(w->run.source, sizeof(w->run.source),
             "redis://127.0.0.1:%d/stream?consumer=one&group=reef&weight=1", w->redis.port);
    start_committing(w);
    const size_t parts = 15;
    for (size_t i = 0; i < parts; i++) {
        w->redis.orders->cut_after = i % 2 ? (long)(draw_bits(&seed) % 9000) : -1;
        add_entries(w, i * GROUPED / parts, (i + 1) * GROUPED / parts);
        sleep_ms((unsigned)(draw_bits(&seed) % 300));
        if (i == 3) redis_command(&w->redis, "XGROUP DESTROY stream reef");
        if (i == 4) redis_command(&w->redis, "'XGROUP' CREATE stream other '$'");
        if (i == 5) redis_command(&w->redis, "XREADGROUP GROUP other two STREAMS stream '>'");
        if (i % 5 == 2) {
            redis_server_kill(&w->redis);
            redis_server_start(&w->redis, "");
        }
        if (i % 3 == 1) {
            reefd_kill(&w->run.box);
            // Acknowledged by another client, before and after we would.
            if (i % 2) redis_command(&w->redis, "XACK stream reef 1-1 2-1 900-1 1000-1 1400-1");
            start_committing(w);
        }
    }
    w->redis.orders->cut_after = -1;
    reef_commit commit = finish_acknowledged(w, "reef");
    assert_true(w->redis.orders->cuts >= 4);
    assert_same(&commit, &whole);
    assert_true(pending(w, "other") > 0); // not ours
}

FIXTURE_TEST(a_group_that_may_not_be_acknowledged_is_reported_and_reading_continues) {
    redis_server_start(&w->redis, "");
    redis_command(&w->redis, "ACL SETUSER reader on '>geheim' '~*' +xread +xinfo +select");
    snprintf(w->run.source, sizeof(w->run.source), "redis://reader:geheim@%s/stream?group=reef",
             w->redis.socket);
    add_entries(w, 0, 300);
    live_start(&w->run);
    (void)live_finish(&w->run);
    assert_true(reefd_said(&w->run.box, "cannot be acknowledged"));
}

// The group can be made and asked each second, and every acknowledgement is refused.
FIXTURE_TEST(a_group_that_may_be_made_and_not_acknowledged_is_reported_once) {
    redis_server_start(&w->redis, "");
    redis_command(&w->redis, "ACL SETUSER reader on '>geheim' '~*' +xread +xinfo +select +xgroup "
                             "+xclaim +xpending");
    snprintf(w->run.source, sizeof(w->run.source), "redis://reader:geheim@%s/stream?group=reef",
             w->redis.socket);
    add_entries(w, 0, 300);
    start_committing(w);
    live_await(&w->run);
    await_said(&w->run.box, "cannot be acknowledged");
    sleep_ms(2500); // more than one poll
    assert_int_equal(times_said(&w->run.box, "cannot be acknowledged"), 1);
    redis_command(&w->redis, "ACL SETUSER reader +xack");
    (void)finish_acknowledged(w, "reef");
}

FIXTURE_TEST(a_stream_that_may_be_asked_about_and_not_read_is_reported_once) {
    redis_server_start(&w->redis, "");
    redis_command(&w->redis, "ACL SETUSER reader on '>geheim' '~*' +xinfo +select");
    snprintf(w->run.source, sizeof(w->run.source), "redis://reader:geheim@%s/stream",
             w->redis.socket);
    add_entries(w, 0, 300);
    live_start(&w->run);
    await_said(&w->run.box, "retrying");
    sleep_ms(2000); // several tries
    assert_int_equal(times_said(&w->run.box, "retrying"), 1);
    assert_int_equal(times_said(&w->run.box, "is back"), 0);
    redis_command(&w->redis, "ACL SETUSER reader +xread");
    (void)live_finish(&w->run);
    assert_int_equal(times_said(&w->run.box, "is back"), 1);
}

// ---- what may be trimmed ------------------------------------------------------------------------

FIXTURE_TEST(what_may_be_trimmed_is_what_a_commit_has) {
    redis_server_start(&w->redis, "");
    snprintf(w->run.source, sizeof(w->run.source), "redis://%s/stream", w->redis.socket);
    start_without_commits(w);
    add_entries(w, 0, 300);
    live_await(&w->run);
    await_text(&w->run.box, "sources.0.last_id", "300-1");
    await_text(&w->run.box, "sources.0.committed_id", "0-0");
    (void)reefd_tell(&w->run.box, "commit");
    await_text(&w->run.box, "sources.0.committed_id", "300-1");
    // Read ahead of a commit, they are not in it.
    (void)reefd_tell(&w->run.box, "pause");
    add_entries(w, 300, 350);
    await_text(&w->run.box, "sources.0.last_id", "350-1");
    reefd_snapshot(&w->run.box, "one");
    sleep_ms(500);
    await_text(&w->run.box, "sources.0.committed_id", "300-1");
    redis_command(&w->redis, "XTRIM stream MINID 300-2"); // as the protocol allows
    reefd_kill(&w->run.box);
    start_without_commits(w);
    live_await(&w->run);
    await_text(&w->run.box, "sources.0.last_id", "350-1");
    await_text(&w->run.box, "sources.0.committed_id", "300-1"); // known from the start
    (void)live_finish(&w->run);
    assert_int_equal(times_said(&w->run.box, "were removed"), 0);
}

// ---- an entry that was cut ----------------------------------------------------------------------

typedef struct cut_place {
    const char *name;
    char *mark;
} cut_place;

static reef_status write_cut_place(void *context, reef_txn *txn, reef_error *err) {
    const cut_place *place = context;
    return reef_source_checkpoint_write(txn, place->name, 0, place->mark, err);
}

// A pool as of a daemon that ended when the first bytes of the stream's entry 2-1 were in a commit.
static void feed_half(const world *w, const char *half, size_t entry_bytes) {
    reef_error err;
    reef_store *store = NULL;
    reef_commit commit;
    char mark[200];
    snprintf(mark, sizeof(mark),
             "{\"after\":\"0-0\",\"ordinal\":0,\"skip\":0,\"entries\":[[\"2-1\",%zu]]}",
             entry_bytes);
    cut_place place = {.name = w->run.source, .mark = mark};
    reef_trainer *trainer = pool_train(w->run.box.pool, &store);
    assert_int_equal(reef_trainer_feed(trainer, w->run.source, (const uint8_t *)half, strlen(half),
                                       NULL, NULL, &err),
                     REEF_OK);
    reef_trainer_on_commit(trainer, write_cut_place, &place);
    assert_int_equal(reef_trainer_commit(trainer, &commit, &err), REEF_OK);
    pool_train_end(store, trainer);
}

FIXTURE_TEST(an_entry_that_was_removed_half_read_is_reported) {
    redis_server_start(&w->redis, "");
    snprintf(w->run.source, sizeof(w->run.source), "redis://%s/stream", w->redis.socket);
    add_entries(w, 1, 2);
    size_t entry_bytes = (size_t)w->run.written;
    feed_half(w, "1: order 919", entry_bytes);
    redis_command(&w->redis, "XDEL stream 2-1");
    add_entries(w, 2, 301);
    w->run.written -= entry_bytes - strlen("1: order 919"); // that never come
    live_start(&w->run);
    (void)live_finish(&w->run);
    assert_true(reefd_said(&w->run.box, "entry 2-1 of"));
    assert_true(reefd_said(&w->run.box, "was removed when 12 of its bytes had been read"));
}

RUN_TESTS
