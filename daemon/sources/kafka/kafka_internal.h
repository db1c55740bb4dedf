// The inside of a Kafka source, shared by the files that make it up:
//
//   kafka_spec.c     what is asked for: brokers, a topic, a file of librdkafka's properties
//   kafka_topic.c    the topic's partitions: finding them, fetching, what is gone
//   kafka_read.c     the next bytes of all partitions, and the read position
//   kafka_source.c   the kind of source, on the loop
//
// A message's value is its bytes, and a newline where it does not end in one. Of the messages that
// are there the one with the lowest timestamp comes first, then that of the lowest partition; each
// partition keeps its order. So messages that were already in the topic always come in the same
// order, whichever checkpoint reading continues from.
//
// No group is used: only the pool stores the read position, in checkpoints:
//
//   {"partitions": [next, ...], "skip": N, "messages": [[partition, offset, bytes], ...]}
//
// The byte that a checkpoint describes is byte `skip` of the first of `messages`, before which each
// partition was read up to offset `next`, -1 of one that has given none.
#ifndef REEF_KAFKA_INTERNAL_H
#define REEF_KAFKA_INTERNAL_H

#include "reef_error.h"
#include "reef_source.h"

#include <librdkafka/rdkafka.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---- kafka_spec.c -------------------------------------------------------------------------------

typedef struct reef_kafka_spec {
    char *brokers, *topic; // owned
    char *config;          // owned path, or NULL
    size_t place_bytes;    // of the text, without options: what the source goes by
} reef_kafka_spec;

/** `rest` is what follows "kafka:". INVALID says what is wrong with it; NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_kafka_spec_parse(reef_kafka_spec *out,
                                                  const char *rest,
                                                  reef_error *err);
void reef_kafka_spec_release(reef_kafka_spec *spec); // accepts the zeroed one
/**
 * librdkafka's settings: those of the file, and ours. The caller's.
 *
 * Errors: NOT_FOUND the file cannot be read; INVALID names its line.
 */
REEF_MUST_CHECK reef_status reef_kafka_spec_settings(const reef_kafka_spec *spec,
                                                     rd_kafka_conf_t **out,
                                                     reef_error *err);

// ---- kafka_topic.c ------------------------------------------------------------------------------

#define REEF_KAFKA_PARTITIONS_MAX 256
#define REEF_KAFKA_FETCHED_MAX 256 // messages of a partition that are taken from librdkafka at once
#define REEF_KAFKA_EVENTS_MAX 16
#define REEF_KAFKA_NEXT_UNKNOWN (-1)

typedef struct reef_kafka_partition {
    bool is_open;   // it is fetched
    bool has_ended; // as far as is known there is nothing after what was fetched
    int64_t next;   // offset of the next message to give; or REEF_KAFKA_NEXT_UNKNOWN: the first one
    uint64_t waited_ms; // since when nothing came, not even its end; 0: it does not wait
    bool is_asked;      // in this turn, without a message
    rd_kafka_message_t *fetched[REEF_KAFKA_FETCHED_MAX]; // owned, from `at` on
    size_t count, at;
} reef_kafka_partition;

/** A message for the operator. */
typedef struct reef_kafka_event {
    char event[24];
    char text[384];
} reef_kafka_event;

typedef struct reef_kafka_figures {
    bool is_connected;
    uint64_t partitions, messages, unfit, lost;
    uint64_t waiting; // messages that are known and not given
} reef_kafka_figures;

typedef struct reef_kafka {
    reef_kafka_spec spec;
    rd_kafka_t *client;
    rd_kafka_topic_t *topic;
    reef_kafka_partition *partitions; // owned; (REEF_KAFKA_PARTITIONS_MAX)
    size_t partition_count;
    uint64_t listed_ms; // when partitions were asked for last; 0: never
    bool is_away;       // reported
    bool is_denied;     // the same: more partitions than we take
    reef_kafka_figures figures;
    bool waits; // this turn ended because of a partition that may have a message
    // the message that is given
    uint8_t *bytes; // owned
    size_t capacity, byte_count, byte;
    size_t partition;
    int64_t offset;
    // of a message that was accepted in part before the process began
    size_t half_bytes, half_partition;
    int64_t half_offset;
    reef_kafka_event events[REEF_KAFKA_EVENTS_MAX];
    size_t event_count;
} reef_kafka;

/** `rest` is what follows "kafka:". The caller's: for reef_kafka_close, also after an error. */
REEF_MUST_CHECK reef_status reef_kafka_open(reef_kafka **out, const char *rest, reef_error *err);
void reef_kafka_close(reef_kafka *k); // accepts NULL
/** Further ones are dropped until those there are were taken. */
void reef_kafka_report(reef_kafka *k, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/**
 * Begin a turn: serve librdkafka's events and ask for new partitions when that is due. Waits at most
 * a second.
 */
void reef_kafka_serve(reef_kafka *k);
/** The next message of a partition, which stays its own; NULL: none, or `waits` is set. */
const rd_kafka_message_t *reef_kafka_peek(reef_kafka *k, size_t partition);
/** The message that was peeked is done with. */
void reef_kafka_drop(reef_kafka *k, size_t partition);

// ---- kafka_read.c -------------------------------------------------------------------------------

#define REEF_KAFKA_MESSAGE_BYTES_MAX ((size_t)16 << 20) // the rest of a longer one is left out

/**
 * The next bytes, up to `room`, on any thread, one call at a time. None when nothing new is there.
 *
 * checkpoint  on the heap; locates the first byte
 *
 * Errors: NO_MEMORY. Trouble with brokers is an event.
 */
REEF_MUST_CHECK reef_status reef_kafka_read(
    reef_kafka *k, uint8_t *at, size_t room, size_t *count, char **checkpoint, reef_error *err);
/** Continue where an earlier process stopped. CORRUPT: the checkpoint is not one of ours. */
REEF_MUST_CHECK reef_status reef_kafka_seek(reef_kafka *k,
                                            const reef_input_offset *offset,
                                            reef_error *err);

#endif
