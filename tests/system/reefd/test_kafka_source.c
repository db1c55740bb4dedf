// reefd on a Kafka topic: each message once and in the order of its partition, whatever is killed;
// the pool ends with the root hash of a run in which nothing happened. The brokers are
// librdkafka's own, in this process.
#include "draw.h"
#include "live_run.h"
#include "reef_trainer.h"

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#define KILLS 8
#define TOPIC "logs"

typedef struct world {
    live_run run; // first: sandbox_teardown takes it for one
    rd_kafka_t *producer;
    rd_kafka_mock_cluster_t *cluster;
    size_t line;
} world;

static rd_kafka_t *new_producer(const char *brokers, const char *compression) {
    char why[200];
    rd_kafka_conf_t *settings = rd_kafka_conf_new();
    (void)rd_kafka_conf_set(settings, "log_level", "3", why, sizeof(why));
    if (brokers != NULL)
        (void)rd_kafka_conf_set(settings, "bootstrap.servers", brokers, why, sizeof(why));
    (void)rd_kafka_conf_set(settings, "compression.type", compression, why, sizeof(why));
    rd_kafka_t *made = rd_kafka_new(RD_KAFKA_PRODUCER, settings, why, sizeof(why));
    assert_non_null(made);
    return made;
}

static int setup(void **state) {
    world *w = (world *)sandbox_new(state, sizeof(*w));
    rd_kafka_t *host = new_producer(NULL, "none");
    w->cluster = rd_kafka_mock_cluster_new(host, 2);
    assert_non_null(w->cluster);
    w->producer = host;
    snprintf(w->run.source, sizeof(w->run.source), "kafka:%s/" TOPIC,
             rd_kafka_mock_cluster_bootstraps(w->cluster));
    return 0;
}

static int teardown(void **state) {
    world *w = *state;
    rd_kafka_mock_cluster_destroy(w->cluster);
    rd_kafka_destroy(w->producer);
    return sandbox_teardown(state);
}

#define FIXTURE_TEST(name) TEST_WITH(name, setup, teardown, world *w)

static void make_topic(world *w, int partitions) {
    assert_int_equal(rd_kafka_mock_topic_create(w->cluster, TOPIC, partitions, 1), 0);
}

// Messages of all partitions in turn, with timestamps that go up by one in each.
static void produce(world *w, size_t count, int partitions, const char *compression) {
    rd_kafka_t *producer = new_producer(rd_kafka_mock_cluster_bootstraps(w->cluster), compression);
    for (size_t i = 0; i < count; i++) {
        char text[100];
        const size_t line = w->line++;
        const int bytes = snprintf(text, sizeof(text), "request %zu took %zu ms%s",
                                   line * 7919 % 1000, line * 104729 % 97, line % 3 ? "" : "\n");
        while (rd_kafka_producev(producer, RD_KAFKA_V_TOPIC(TOPIC),
                                 RD_KAFKA_V_PARTITION((int32_t)(line % (size_t)partitions)),
                                 RD_KAFKA_V_TIMESTAMP((int64_t)(1700000000000 + line / 2)),
                                 RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                                 RD_KAFKA_V_VALUE(text, (size_t)bytes),
                                 RD_KAFKA_V_END) == RD_KAFKA_RESP_ERR__QUEUE_FULL)
            (void)rd_kafka_poll(producer, 100);
        w->run.written += (size_t)bytes + (line % 3 != 0);
    }
    assert_int_equal(rd_kafka_flush(producer, 60000), 0);
    rd_kafka_destroy(producer);
}

static reef_commit without_trouble(world *w) {
    sandbox_make_pool(&w->run.box);
    live_start(&w->run);
    return live_finish(&w->run);
}

// ---- tests --------------------------------------------------------------------------------------

FIXTURE_TEST(killed_while_messages_come_it_ends_with_the_same_root) {
    uint64_t seed = 3;
    make_topic(w, 1);
    live_start(&w->run);
    reefd_await(&w->run.box, w->run.box.pid);
    for (size_t i = 0; i < KILLS; i++) {
        produce(w, 1 + draw_bits(&seed) % 100, 1, i % 2 ? "gzip" : "none");
        sleep_ms((unsigned)(draw_bits(&seed) % 1500));
        reefd_kill(&w->run.box);
        produce(w, draw_bits(&seed) % 100, 1, "lz4");
        live_start(&w->run);
    }
    reef_commit commit = live_finish(&w->run);
    reef_commit whole = without_trouble(w);
    assert_same(&commit, &whole);
    assert_int_equal(times_said(&w->run.box, "source_"), 0);
}

FIXTURE_TEST(killed_among_partitions_it_ends_with_the_same_root) {
    uint64_t seed = 5;
    make_topic(w, 5);
    produce(w, 3000, 5, "snappy");
    for (size_t i = 0; i < KILLS; i++) {
        live_start(&w->run);
        reefd_await(&w->run.box, w->run.box.pid);
        await_count(&w->run.box, "sources.0.cursor", (int64_t)(w->run.written * i / (KILLS + 1)));
        sleep_ms((unsigned)(draw_bits(&seed) % 300));
        reefd_kill(&w->run.box);
    }
    live_start(&w->run);
    reef_commit commit = live_finish(&w->run);
    reef_commit whole = without_trouble(w);
    assert_same(&commit, &whole);
}

FIXTURE_TEST(brokers_that_are_away_are_waited_for) {
    make_topic(w, 2);
    produce(w, 100, 2, "none");
    live_start(&w->run);
    live_await(&w->run);
    for (int32_t i = 1; i <= 2; i++) rd_kafka_mock_broker_set_down(w->cluster, i);
    await_said(&w->run.box, "; retrying");
    for (int i = 0; is_true(json_at(reefd_status(&w->run.box), "sources.0"), "connected"); i++) {
        assert_true(i < 300);
        sleep_ms(100);
    }
    for (int32_t i = 1; i <= 2; i++) rd_kafka_mock_broker_set_up(w->cluster, i);
    produce(w, 100, 2, "none");
    (void)live_finish(&w->run);
    assert_true(reefd_said(&w->run.box, "is back"));
}

FIXTURE_TEST(a_topic_that_is_not_there_yet_is_waited_for_with_settings_of_a_file) {
    char config[200], source[400];
    strcpy(source, w->run.source);
    snprintf(config, sizeof(config), "%s/kafka.properties", w->run.box.directory);
    write_mode(config,
               "# of librdkafka\n\n client.id = other \ntopic.metadata.refresh.interval.ms=500\n",
               0600);
    assert_true((size_t)snprintf(w->run.source, sizeof(w->run.source), "%.150s?config=%s&weight=3",
                                 source, config) < sizeof(w->run.source));
    make_topic(w, 3);
    rd_kafka_mock_topic_set_error(w->cluster, TOPIC, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
    live_start(&w->run);
    await_said(&w->run.box, "Unknown topic or partition; retrying");
    rd_kafka_mock_topic_set_error(w->cluster, TOPIC, RD_KAFKA_RESP_ERR_NO_ERROR);
    produce(w, 100, 3, "none");
    (void)live_finish(&w->run);
}

FIXTURE_TEST(messages_that_were_removed_unread_are_counted) {
    make_topic(w, 1);
    produce(w, 1000, 1, "none");
    live_start(&w->run);
    (void)live_finish(&w->run);
    const uint64_t read = w->run.written;
    // The brokers keep the newest 5 MiB of a partition.
    for (int i = 0; i < 3; i++) produce(w, 100000, 1, "none");
    live_start(&w->run);
    await_said(&w->run.box, "were removed before they were read");
    reefd_await(&w->run.box, w->run.box.pid);
    const int64_t lost = reefd_count(&w->run.box, "sources.0.messages_lost");
    assert_in_range(lost, 1, 300000);
    await_count(&w->run.box, "sources.0.cursor", (int64_t)read + 10000);
    reefd_end(&w->run.box);
    pool_check(&w->run.box);
}

FIXTURE_TEST(what_names_no_topic_is_refused) {
    static const struct {
        const char *source;
        reef_status status;
        const char *told;
    } CASES[] = {
        {"kafka:localhost:9092", REEF_ERR_INVALID, "is not kafka:HOST:PORT"},
        {"kafka:/logs", REEF_ERR_INVALID, "is not kafka:HOST:PORT"},
        {"kafka:localhost:9092/", REEF_ERR_INVALID, "is not kafka:HOST:PORT"},
        {"kafka:localhost:9092/a/b", REEF_ERR_INVALID, "is not kafka:HOST:PORT"},
        {"kafka:user@localhost/a", REEF_ERR_INVALID, "is not kafka:HOST:PORT"},
        {"kafka:localhost:9092/a?group=x", REEF_ERR_INVALID, "does not know 'group=x'"},
        {"kafka:localhost:9092/a?config=x", REEF_ERR_INVALID, "an absolute path"},
        {"kafka:localhost:9092/a?config=/nowhere/x", REEF_ERR_NOT_FOUND, "No such file"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(*CASES); i++) {
        assert_int_equal(RUN(&w->run.box, "--source", CASES[i].source),
                         reef_status_exit_code(CASES[i].status));
        if (!reefd_said(&w->run.box, CASES[i].told)) fail_msg("%s", CASES[i].source);
    }
    static const char *const LINES[] = {"sasl.passwort=secret\n", "secret\n",
                                        "session.timeout.ms=secret\n"};
    for (size_t i = 0; i < 3; i++) {
        char source[400], config[200], text[200];
        snprintf(config, sizeof(config), "%s/kafka.properties", w->run.box.directory);
        snprintf(source, sizeof(source), "%.150s?config=%s", w->run.source, config);
        snprintf(text, sizeof(text), "# a comment\n%s", LINES[i]);
        write_mode(config, text, 0600);
        assert_int_equal(RUN(&w->run.box, "--source", source),
                         reef_status_exit_code(REEF_ERR_INVALID));
        assert_true(reefd_said(&w->run.box, "line 2: no setting"));
        assert_false(reefd_said(&w->run.box, "secret"));
    }
}

RUN_TESTS
