// The next bytes of a topic, and where they are; see kafka_internal.h.
#include "kafka_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TURN_MESSAGES 4096 // of one read

// ---- the read position --------------------------------------------------------------------------

static json_t *begin_checkpoint(const reef_kafka *k) {
    json_t *next = json_array();
    for (size_t i = 0; i < k->partition_count; i++)
        json_array_append_new(next, json_integer(k->partitions[i].next));
    return json_pack("{s: o, s: I, s: []}", "partitions", next, "skip", (json_int_t)k->byte,
                     "messages");
}

static void note_message(json_t *checkpoint, const reef_kafka *k) {
    json_array_append_new(json_object_get(checkpoint, "messages"),
                          json_pack("[I, I, I]", (json_int_t)k->partition, (json_int_t)k->offset,
                                    (json_int_t)k->byte_count));
}

static bool load_partitions(reef_kafka *k, const json_t *next) {
    const size_t count = json_array_size(next);
    if (!json_is_array(next) || count > REEF_KAFKA_PARTITIONS_MAX) return false;
    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_array_get(next, i);
        if (!json_is_integer(one) || json_integer_value(one) < REEF_KAFKA_NEXT_UNKNOWN)
            return false;
        k->partitions[i].next = json_integer_value(one);
    }
    return true;
}

// Up to the byte that is `ahead` of the one that the checkpoint describes.
static bool load_messages(reef_kafka *k, json_t *messages, uint64_t ahead) {
    json_t *item = NULL;
    size_t i = 0;
    if (!json_is_array(messages)) return false;
    json_array_foreach(messages, i, item) {
        json_int_t partition = 0, offset = 0, bytes = 0;
        if (json_unpack(item, "[I, I, I!]", &partition, &offset, &bytes) || partition < 0 ||
            partition >= REEF_KAFKA_PARTITIONS_MAX || offset < 0 || bytes < 1)
            return false;
        reef_kafka_partition *p = &k->partitions[partition];
        p->next = offset;
        if (ahead < (uint64_t)bytes) {
            k->half_bytes = (size_t)ahead;
            k->half_partition = (size_t)partition;
            k->half_offset = offset;
            return true;
        }
        ahead -= (uint64_t)bytes;
        p->next++;
    }
    return ahead == 0;
}

reef_status reef_kafka_seek(reef_kafka *k, const reef_input_offset *offset, reef_error *err) {
    json_int_t skip = 0;
    if (offset->cursor == 0) return REEF_OK;
    json_t *checkpoint =
        offset->checkpoint != NULL ? json_loads(offset->checkpoint, 0, NULL) : NULL;
    const bool good = checkpoint != NULL && json_unpack(checkpoint, "{s: I}", "skip", &skip) == 0 &&
                      skip >= 0 && load_partitions(k, json_object_get(checkpoint, "partitions")) &&
                      load_messages(k, json_object_get(checkpoint, "messages"),
                                    offset->cursor - offset->begin + (uint64_t)skip);
    json_decref(checkpoint);
    return good ? REEF_OK
                : reef_fail(err, REEF_ERR_CORRUPT,
                            "the pool has read %" PRIu64 " bytes of the topic '%.100s' and does "
                            "not know up to which offsets: name its brokers in another order, "
                            "which is another source",
                            offset->cursor, k->spec.topic);
}

// ---- messages -----------------------------------------------------------------------------------

static reef_status take_bytes(reef_kafka *k, const rd_kafka_message_t *message, reef_error *err) {
    const size_t most = REEF_KAFKA_MESSAGE_BYTES_MAX;
    const uint8_t *text = message->payload;
    const size_t count = message->len < most ? message->len : most;
    const bool ended = count > 0 && text[count - 1] == '\n';
    if (count + 1 > k->capacity) {
        uint8_t *grown = realloc(k->bytes, count + 1);
        if (grown == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a message");
        k->bytes = grown;
        k->capacity = count + 1;
    }
    if (count > 0) memcpy(k->bytes, text, count);
    if (!ended) k->bytes[count] = '\n';
    k->byte_count = count + !ended;
    if (message->len > most)
        reef_kafka_report(k, "source_loss",
                          "offset %" PRId64 " of '%.100s', partition %zu, has %zu bytes: those "
                          "after %zu are left out",
                          k->offset, k->spec.topic, k->partition, message->len, most);
    return REEF_OK;
}

static void report_half(reef_kafka *k) {
    reef_kafka_report(k, "source_loss",
                      "offset %" PRId64 " of '%.100s', partition %zu, was removed when %zu of its "
                      "bytes had been read",
                      k->half_offset, k->spec.topic, k->half_partition, k->half_bytes);
    k->half_bytes = 0;
}

// Some of it was accepted by a process that ended then.
static void skip_half(reef_kafka *k) {
    if (k->half_bytes == 0 || k->partition != k->half_partition) return;
    if (k->offset != k->half_offset) {
        report_half(k);
        return;
    }
    k->byte = k->half_bytes < k->byte_count ? k->half_bytes : k->byte_count;
    k->half_bytes = 0;
}

static reef_status take_message(reef_kafka *k,
                                size_t partition,
                                const rd_kafka_message_t *message,
                                reef_error *err) {
    k->partition = partition;
    k->offset = message->offset;
    k->byte = k->byte_count = 0;
    if (message->payload != NULL || message->len > 0) {
        reef_status status = take_bytes(k, message, err);
        if (status != REEF_OK) return status;
        k->figures.messages++;
    } else if (k->figures.unfit++ == 0) {
        reef_kafka_report(k, "source_unfit",
                          "offset %" PRId64 " of '%.100s', partition %zu, is passed over, as all "
                          "such: it has no value",
                          k->offset, k->spec.topic, partition);
    }
    skip_half(k);
    reef_kafka_drop(k, partition);
    return REEF_OK;
}

static bool is_before(const rd_kafka_message_t *a, const rd_kafka_message_t *b) {
    rd_kafka_timestamp_type_t kind;
    return rd_kafka_message_timestamp(a, &kind) < rd_kafka_message_timestamp(b, &kind);
}

// The partition whose message is next, and the message; NULL: none is there, or one may come that
// belongs before those that are.
static const rd_kafka_message_t *find_next(reef_kafka *k, size_t *partition) {
    const rd_kafka_message_t *next = NULL;
    if (k->half_bytes > 0 && k->half_partition < k->partition_count) {
        *partition = k->half_partition;
        next = reef_kafka_peek(k, *partition);
        // While it is there nothing else may come.
        if (next != NULL || k->partitions[*partition].next == k->half_offset) return next;
        report_half(k);
    }
    for (size_t i = 0; i < k->partition_count; i++) {
        const rd_kafka_message_t *head = reef_kafka_peek(k, i);
        if (head == NULL || (next != NULL && !is_before(head, next))) continue;
        next = head;
        *partition = i;
    }
    return k->waits ? NULL : next;
}

// ---- reading ------------------------------------------------------------------------------------

reef_status reef_kafka_read(
    reef_kafka *k, uint8_t *at, size_t room, size_t *count, char **checkpoint, reef_error *err) {
    reef_status status = REEF_OK;
    size_t taken = 0;
    *count = 0;
    *checkpoint = NULL;
    reef_kafka_serve(k);
    json_t *json = begin_checkpoint(k);
    if (k->byte < k->byte_count) note_message(json, k); // the rest of it
    while (status == REEF_OK && *count < room) {
        if (k->byte == k->byte_count) {
            size_t partition = 0;
            const rd_kafka_message_t *next =
                taken < TURN_MESSAGES ? find_next(k, &partition) : NULL;
            if (next == NULL) break;
            taken++;
            status = take_message(k, partition, next, err);
            if (status != REEF_OK) break;
            if (*count == 0 && k->byte < k->byte_count)
                json_object_set_new(json, "skip", json_integer((json_int_t)k->byte));
            if (k->byte < k->byte_count) note_message(json, k);
        }
        const size_t left = k->byte_count - k->byte, free_bytes = room - *count;
        const size_t bytes = left < free_bytes ? left : free_bytes;
        if (bytes > 0) memcpy(at + *count, k->bytes + k->byte, bytes);
        *count += bytes;
        k->byte += bytes;
        if (k->byte == k->byte_count) k->partitions[k->partition].next = k->offset + 1;
    }
    if (status == REEF_OK && *count > 0) *checkpoint = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    return status == REEF_OK && *count > 0 && *checkpoint == NULL
               ? reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a checkpoint")
               : status;
}
