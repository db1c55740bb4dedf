// A Kafka topic as one stream of bytes: the same whatever the pieces it is read in, and from any
// byte on. The brokers are librdkafka's own, in this process.
#include "kafka_internal.h"
#include "test.h"

#include <librdkafka/rdkafka_mock.h>
#include <time.h>

#define TOPIC "logs"
#define PARTITIONS 3
#define MARKS_MAX 4096

typedef struct world {
    rd_kafka_t *host;
    rd_kafka_mock_cluster_t *cluster;
    reef_kafka *kafka;
    char rest[200];
    char *given;
    size_t given_count, mark_count;
    struct {
        uint64_t begin;
        char *json;
    } marks[MARKS_MAX];
} world;

static rd_kafka_t *new_producer(const char *brokers) {
    char why[200];
    rd_kafka_conf_t *settings = rd_kafka_conf_new();
    (void)rd_kafka_conf_set(settings, "log_level", "3", why, sizeof(why));
    if (brokers != NULL)
        (void)rd_kafka_conf_set(settings, "bootstrap.servers", brokers, why, sizeof(why));
    rd_kafka_t *made = rd_kafka_new(RD_KAFKA_PRODUCER, settings, why, sizeof(why));
    assert_non_null(made);
    return made;
}

static int setup(void **state) {
    world *w = *state = calloc(1, sizeof(*w));
    w->host = new_producer(NULL);
    w->cluster = rd_kafka_mock_cluster_new(w->host, 1);
    assert_non_null(w->cluster);
    assert_int_equal(rd_kafka_mock_topic_create(w->cluster, TOPIC, PARTITIONS, 1), 0);
    snprintf(w->rest, sizeof(w->rest), "%s/" TOPIC, rd_kafka_mock_cluster_bootstraps(w->cluster));
    w->given = calloc(1, 1 << 20);
    return 0;
}

static int teardown(void **state) {
    world *w = *state;
    reef_kafka_close(w->kafka);
    rd_kafka_mock_cluster_destroy(w->cluster);
    rd_kafka_destroy(w->host);
    for (size_t i = 0; i < w->mark_count; i++) free(w->marks[i].json);
    free(w->given);
    free(w);
    return 0;
}

#define KAFKA_TEST(name) TEST_WITH(name, setup, teardown, world *w)

static void pause_shortly(void) {
    (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

/** A value that is NULL has none. */
typedef struct sent {
    int32_t partition;
    int64_t timestamp;
    const char *value;
} sent;

static void send_all(const world *w, const sent *messages, size_t count) {
    rd_kafka_t *producer = new_producer(rd_kafka_mock_cluster_bootstraps(w->cluster));
    for (size_t i = 0; i < count; i++)
        assert_int_equal(
            rd_kafka_producev(producer, RD_KAFKA_V_TOPIC(TOPIC),
                              RD_KAFKA_V_PARTITION(messages[i].partition),
                              RD_KAFKA_V_TIMESTAMP(messages[i].timestamp),
                              RD_KAFKA_V_VALUE((void *)(uintptr_t)messages[i].value,
                                               messages[i].value ? strlen(messages[i].value) : 0),
                              RD_KAFKA_V_END),
            0);
    assert_int_equal(rd_kafka_flush(producer, 60000), 0);
    rd_kafka_destroy(producer);
}

// What was given after the cursor is forgotten, as by a process that died.
static void open_at(world *w, uint64_t cursor) {
    reef_error err = {0};
    reef_input_offset offset = {.cursor = cursor};
    reef_kafka_close(w->kafka);
    if (reef_kafka_open(&w->kafka, w->rest, &err) != REEF_OK) fail_msg("%s", err.message);
    while (w->mark_count > 0 && w->marks[w->mark_count - 1].begin > cursor)
        free(w->marks[--w->mark_count].json);
    if (w->mark_count > 0 && cursor > 0) {
        offset.begin = w->marks[w->mark_count - 1].begin;
        offset.checkpoint = w->marks[w->mark_count - 1].json;
    }
    if (reef_kafka_seek(w->kafka, &offset, &err) != REEF_OK) fail_msg("%s", err.message);
    w->given_count = cursor;
}

static void pull(world *w, size_t room_bytes, size_t least) {
    reef_error err = {0};
    for (int i = 0; w->given_count < least && i < 3000; i++) {
        size_t count = 0;
        char *checkpoint = NULL;
        assert_int_equal(reef_kafka_read(w->kafka, (uint8_t *)w->given + w->given_count, room_bytes,
                                         &count, &checkpoint, &err),
                         REEF_OK);
        assert_true((checkpoint != NULL) == (count > 0));
        if (count > 0) {
            assert_true(w->mark_count < MARKS_MAX);
            w->marks[w->mark_count].begin = w->given_count;
            w->marks[w->mark_count++].json = checkpoint;
            w->given_count += count;
        } else {
            pause_shortly();
        }
    }
    w->given[w->given_count] = '\0';
}

static bool said(const world *w, const char *text) {
    for (size_t i = 0; i < w->kafka->event_count; i++)
        if (strstr(w->kafka->events[i].text, text) != NULL) return true;
    return false;
}

static const sent MESSAGES[] = {
    {0, 5, "five"}, {0, 9, "ni\nne"},    {1, 4, "four"}, {1, 5, "five of 1\n"},
    {1, 6, NULL},   {1, 2, "two, late"}, {2, 1, ""},     {2, 9, "nine of 2"},
};
#define MESSAGE_COUNT (sizeof(MESSAGES) / sizeof(*MESSAGES))
// By their times, but in the order of each partition.
static const char TEXT[] = "\nfour\nfive\nfive of 1\ntwo, late\nni\nne\nnine of 2\n";

KAFKA_TEST(messages_are_lines_in_the_order_of_their_times) {
    send_all(w, MESSAGES, MESSAGE_COUNT);
    for (size_t step = 1; step < 70; step += step < 8 ? 1 : 20) {
        open_at(w, 0);
        pull(w, step, strlen(TEXT));
        assert_string_equal(w->given, TEXT);
        assert_int_equal(w->kafka->figures.messages, MESSAGE_COUNT - 1);
        assert_int_equal(w->kafka->figures.unfit, 1);
        assert_int_equal(w->kafka->figures.partitions, PARTITIONS);
        assert_true(said(w, "is passed over, as all such: it has no value"));
    }
}

KAFKA_TEST(it_continues_from_any_byte) {
    static const size_t STEPS[] = {1, 7, 1000};
    send_all(w, MESSAGES, MESSAGE_COUNT);
    for (size_t i = 0; i < sizeof(STEPS) / sizeof(*STEPS); i++) {
        open_at(w, 0);
        pull(w, STEPS[i], strlen(TEXT));
        for (uint64_t cursor = strlen(TEXT) - 1; cursor > 0; cursor -= 2) {
            open_at(w, cursor);
            memset(w->given + cursor, 'x', strlen(TEXT) - cursor);
            pull(w, STEPS[i], strlen(TEXT));
            assert_string_equal(w->given, TEXT);
            if (cursor < 2) break;
        }
    }
}

static void seek_to(world *w, const char *checkpoint, reef_status wanted) {
    reef_error err = {0};
    reef_kafka_close(w->kafka);
    assert_int_equal(reef_kafka_open(&w->kafka, w->rest, &err), REEF_OK);
    const reef_input_offset offset = {.cursor = 100, .begin = 100, .checkpoint = checkpoint};
    assert_int_equal(reef_kafka_seek(w->kafka, &offset, &err), wanted);
    w->given_count = 0;
}

KAFKA_TEST(a_topic_that_ends_before_what_was_read_is_read_from_there) {
    send_all(w, MESSAGES, MESSAGE_COUNT);
    seek_to(w, "{\"partitions\":[50,4],\"skip\":0,\"messages\":[]}", REEF_OK);
    pull(w, 1000, strlen("\nnine of 2\n"));
    assert_string_equal(w->given, "\nnine of 2\n");
    for (int i = 0; i < 300 && !said(w, "but 50 was read"); i++) {
        pull(w, 1000, w->given_count + 1);
        pause_shortly();
    }
    assert_true(said(w, "ends at offset 2, but 50 was read"));
    static const sent MORE[] = {{0, 20, "more"}};
    send_all(w, MORE, 1);
    pull(w, 1000, strlen("\nnine of 2\nmore\n"));
    assert_string_equal(w->given, "\nnine of 2\nmore\n");
}

KAFKA_TEST(a_checkpoint_that_is_not_ours_is_refused) {
    static const char *const BAD[] = {
        "",
        "[]",
        "{\"partitions\":[1],\"messages\":[]}",
        "{\"partitions\":[1],\"skip\":-1,\"messages\":[]}",
        "{\"partitions\":[-2],\"skip\":0,\"messages\":[]}",
        "{\"partitions\":[\"1\"],\"skip\":0,\"messages\":[]}",
        "{\"partitions\":{},\"skip\":0,\"messages\":[]}",
        "{\"partitions\":[1],\"skip\":0,\"messages\":{}}",
        "{\"partitions\":[1],\"skip\":1,\"messages\":[]}",
        "{\"partitions\":[1],\"skip\":0,\"messages\":[[256,1,1]]}",
        "{\"partitions\":[1],\"skip\":0,\"messages\":[[0,-1,1]]}",
        "{\"partitions\":[1],\"skip\":0,\"messages\":[[0,1,0]]}",
        "{\"partitions\":[1],\"skip\":0,\"messages\":[[0,1]]}",
    };
    for (size_t i = 0; i < sizeof(BAD) / sizeof(*BAD); i++) seek_to(w, BAD[i], REEF_ERR_CORRUPT);
    seek_to(w, NULL, REEF_ERR_CORRUPT);
}

RUN_TESTS
