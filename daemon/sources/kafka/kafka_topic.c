// The topic of a Kafka source: its partitions, and their messages one by one; see kafka_internal.h.
#include "kafka_internal.h"

#include "reef_system.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_MS 10000  // new partitions are found after so long,
#define RETRY_MS 1000  // and after so long while there is none
#define ANSWER_MS 1000 // for which a broker is waited
#define STALL_MS 5000  // others do not wait longer for a partition

void reef_kafka_report(reef_kafka *k, const char *event, const char *format, ...) {
    if (k->event_count == REEF_KAFKA_EVENTS_MAX) return;
    reef_kafka_event *queued = &k->events[k->event_count++];
    va_list arguments;
    snprintf(queued->event, sizeof(queued->event), "%s", event);
    va_start(arguments, format);
    vsnprintf(queued->text, sizeof(queued->text), format, arguments);
    va_end(arguments);
}

static uint64_t now_ms(void) {
    return (uint64_t)(reef_seconds() * 1000.0) + 1;
}

// ---- whether brokers answer ---------------------------------------------------------------------

static void report_away(reef_kafka *k, const char *why) {
    k->figures.is_connected = false;
    if (k->is_away) return;
    k->is_away = true;
    reef_kafka_report(k, "source_away", "'kafka:%.160s/%.80s': %.100s; retrying", k->spec.brokers,
                      k->spec.topic, why);
}

static void report_back(reef_kafka *k) {
    k->figures.is_connected = true;
    if (!k->is_away) return;
    k->is_away = false;
    reef_kafka_report(k, "source_back", "'kafka:%.160s/%.80s' is back", k->spec.brokers,
                      k->spec.topic);
}

static void on_error(rd_kafka_t *client, int code, const char *why, void *context) {
    (void)client;
    // One broker of several may be away, and nothing is missed.
    if (code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN || code == RD_KAFKA_RESP_ERR__AUTHENTICATION ||
        code == RD_KAFKA_RESP_ERR__RESOLVE || code == RD_KAFKA_RESP_ERR__SSL)
        report_away(context, why);
}

static void on_log(const rd_kafka_t *client, int level, const char *facility, const char *text) {
    (void)client, (void)level, (void)facility, (void)text; // what matters comes by on_error
}

// ---- partitions ---------------------------------------------------------------------------------

static void begin(reef_kafka *k, size_t index) {
    reef_kafka_partition *p = &k->partitions[index];
    const int64_t from = p->next == REEF_KAFKA_NEXT_UNKNOWN ? RD_KAFKA_OFFSET_BEGINNING : p->next;
    p->is_open = rd_kafka_consume_start(k->topic, (int32_t)index, from) == 0;
    p->has_ended = false;
    p->waited_ms = 0;
}

static void drop_fetched(reef_kafka_partition *p) {
    for (; p->at < p->count; p->at++) rd_kafka_message_destroy(p->fetched[p->at]);
    p->at = p->count = 0;
}

static void end(reef_kafka *k, size_t index) {
    reef_kafka_partition *p = &k->partitions[index];
    drop_fetched(p);
    if (p->is_open) (void)rd_kafka_consume_stop(k->topic, (int32_t)index);
    p->is_open = false;
}

static void list(reef_kafka *k) {
    const struct rd_kafka_metadata *found = NULL;
    const rd_kafka_resp_err_t code = rd_kafka_metadata(k->client, 0, k->topic, &found, ANSWER_MS);
    const rd_kafka_metadata_topic_t *topic =
        code == 0 && found->topic_cnt == 1 ? &found->topics[0] : NULL;
    if (topic == NULL || topic->err != 0) {
        report_away(k, rd_kafka_err2str(topic != NULL ? topic->err : code));
    } else {
        size_t count = (size_t)topic->partition_cnt;
        report_back(k);
        if (count > REEF_KAFKA_PARTITIONS_MAX && !k->is_denied)
            reef_kafka_report(k, "source_full", "'%.100s' has %zu partitions: %d of them are read",
                              k->spec.topic, count, REEF_KAFKA_PARTITIONS_MAX);
        k->is_denied = count > REEF_KAFKA_PARTITIONS_MAX;
        if (k->is_denied) count = REEF_KAFKA_PARTITIONS_MAX;
        if (count > k->partition_count) k->partition_count = count;
        for (size_t i = 0; i < count; i++)
            if (!k->partitions[i].is_open) begin(k, i);
    }
    if (code == 0) rd_kafka_metadata_destroy(found);
    k->figures.partitions = k->partition_count;
}

void reef_kafka_serve(reef_kafka *k) {
    (void)rd_kafka_poll(k->client, 0);
    const uint64_t now = now_ms();
    const uint64_t pause = k->figures.partitions > 0 && !k->is_away ? LIST_MS : RETRY_MS;
    if (k->listed_ms == 0 || now >= k->listed_ms + pause) {
        list(k);
        k->listed_ms = now_ms();
    }
    k->figures.waiting = 0;
    k->waits = false;
    for (size_t i = 0; i < k->partition_count; i++) {
        int64_t low = 0, high = 0;
        const int64_t next = k->partitions[i].next;
        k->partitions[i].is_asked = false;
        if (rd_kafka_get_watermark_offsets(k->client, k->spec.topic, (int32_t)i, &low, &high) ==
                0 &&
            high > (next > low ? next : low))
            k->figures.waiting += (uint64_t)(high - (next > low ? next : low));
    }
}

// ---- messages -----------------------------------------------------------------------------------

// The offset that is wanted is not there any more, or not yet.
static void find_offset(reef_kafka *k, size_t index) {
    reef_kafka_partition *p = &k->partitions[index];
    int64_t low = 0, high = 0;
    const rd_kafka_resp_err_t code = rd_kafka_query_watermark_offsets(
        k->client, k->spec.topic, (int32_t)index, &low, &high, ANSWER_MS);
    if (code != 0) {
        report_away(k, rd_kafka_err2str(code));
    } else if (p->next != REEF_KAFKA_NEXT_UNKNOWN && p->next < low) {
        k->figures.lost += (uint64_t)(low - p->next);
        reef_kafka_report(k, "source_loss",
                          "%" PRId64 " messages of '%.100s', partition %zu, from offset %" PRId64
                          " on, were removed before they were read",
                          low - p->next, k->spec.topic, index, p->next);
        p->next = low;
    } else if (p->next > high) {
        reef_kafka_report(k, "source_behind",
                          "'%.100s', partition %zu, ends at offset %" PRId64 ", but %" PRId64
                          " was read: it was cut or recreated; reading continues at its end",
                          k->spec.topic, index, high, p->next);
        p->next = high;
    }
    end(k, index);
    begin(k, index);
}

// An event among messages.
static void take_event(reef_kafka *k, size_t index, const rd_kafka_message_t *event) {
    const rd_kafka_resp_err_t code = event->err;
    if (code == RD_KAFKA_RESP_ERR__PARTITION_EOF)
        k->partitions[index].has_ended = true;
    else if (code == RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET ||
             code == RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE)
        find_offset(k, index);
    else
        report_away(k, rd_kafka_message_errstr(event));
}

static bool fetch(reef_kafka *k, size_t index) {
    reef_kafka_partition *p = &k->partitions[index];
    p->at = p->count = 0;
    if (!p->is_open || p->is_asked) return false;
    const ssize_t count =
        rd_kafka_consume_batch(k->topic, (int32_t)index, 0, p->fetched, REEF_KAFKA_FETCHED_MAX);
    if (count > 0) p->count = (size_t)count;
    p->is_asked = count <= 0;
    return count > 0;
}

const rd_kafka_message_t *reef_kafka_peek(reef_kafka *k, size_t index) {
    reef_kafka_partition *p = &k->partitions[index];
    while (p->at < p->count || fetch(k, index)) {
        rd_kafka_message_t *message = p->fetched[p->at];
        if (message->err == 0) {
            p->has_ended = false;
            p->waited_ms = 0;
            if (message->offset >= p->next) return message;
            reef_kafka_drop(k, index); // of a batch that begins before what was asked for
            continue;
        }
        p->at++;
        if (message->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) report_back(k);
        take_event(k, index, message);
        rd_kafka_message_destroy(message);
    }
    if (p->has_ended) return NULL;
    if (p->waited_ms == 0) p->waited_ms = now_ms();
    if (now_ms() < p->waited_ms + STALL_MS) k->waits = true;
    return NULL;
}

void reef_kafka_drop(reef_kafka *k, size_t index) {
    reef_kafka_partition *p = &k->partitions[index];
    rd_kafka_message_destroy(p->fetched[p->at++]);
}

// ---- opening ------------------------------------------------------------------------------------

reef_status reef_kafka_open(reef_kafka **out, const char *rest, reef_error *err) {
    char why[200] = "";
    rd_kafka_conf_t *settings = NULL;
    reef_kafka *k = *out = calloc(1, sizeof(*k));
    if (k == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a source");
    k->partitions = calloc(REEF_KAFKA_PARTITIONS_MAX, sizeof(*k->partitions));
    if (k->partitions == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a source");
    for (size_t i = 0; i < REEF_KAFKA_PARTITIONS_MAX; i++)
        k->partitions[i].next = REEF_KAFKA_NEXT_UNKNOWN;
    reef_status status = reef_kafka_spec_parse(&k->spec, rest, err);
    if (status == REEF_OK) status = reef_kafka_spec_settings(&k->spec, &settings, err);
    if (status != REEF_OK) return status;
    rd_kafka_conf_set_error_cb(settings, on_error);
    rd_kafka_conf_set_log_cb(settings, on_log);
    rd_kafka_conf_set_opaque(settings, k);
    k->client = rd_kafka_new(RD_KAFKA_CONSUMER, settings, why, sizeof(why));
    if (k->client == NULL) {
        rd_kafka_conf_destroy(settings);
        return reef_fail(err, REEF_ERR_INVALID, "kafka: %.160s", why);
    }
    k->topic = rd_kafka_topic_new(k->client, k->spec.topic, NULL);
    return k->topic != NULL ? REEF_OK : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a topic");
}

void reef_kafka_close(reef_kafka *k) {
    if (k == NULL) return;
    for (size_t i = 0; k->topic != NULL && i < k->partition_count; i++) end(k, i);
    if (k->topic != NULL) rd_kafka_topic_destroy(k->topic);
    if (k->client != NULL) rd_kafka_destroy(k->client);
    reef_kafka_spec_release(&k->spec);
    free(k->partitions);
    free(k->bytes);
    free(k);
}
