// The inside of the source `syslog:`, shared by the files that make it up:
//
//   syslog_spec.c     what is asked for: where to listen, and to whom
//   syslog_frame.c    messages in the bytes of a TCP connection
//   syslog_message.c  a message as a line of text
//   syslog_queue.c    lines on their way to the pool's journal
//   syslog_source.c   the kind of source: sockets on the loop
//
//   socket --> message --> line --> queue --> journal (push.h) --> training
//
// A message counts as accepted once the journal has it. While the queue is full nothing is read: a
// TCP client and a local socket's wait, and of UDP the system drops what its buffer cannot hold,
// and counts it.
#ifndef REEF_SYSLOG_INTERNAL_H
#define REEF_SYSLOG_INTERNAL_H

#include "push.h"
#include "reef_error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define REEF_SYSLOG_MESSAGE_BYTES_MAX ((size_t)1 << 16) // the rest of a longer one is left out

// ---- syslog_spec.c ------------------------------------------------------------------------------

#define REEF_SYSLOG_SENDERS_MAX 64
#define REEF_SYSLOG_ADDRESS_BYTES 16

typedef enum reef_syslog_transport {
    REEF_SYSLOG_UDP,
    REEF_SYSLOG_TCP,
    REEF_SYSLOG_UNIX, // datagrams
} reef_syslog_transport;

/** Addresses that begin alike. An IPv4 address is one of IPv6 (::ffff:192.0.2.1). */
typedef struct reef_syslog_sender {
    uint8_t address[REEF_SYSLOG_ADDRESS_BYTES];
    unsigned bits;
} reef_syslog_sender;

typedef struct reef_syslog_spec {
    reef_syslog_transport transport;
    struct sockaddr_storage address; // to listen on; of all transports
    reef_syslog_sender senders[REEF_SYSLOG_SENDERS_MAX];
    size_t sender_count;
    size_t place_bytes; // of the text, without options: what the source goes by
} reef_syslog_spec;

/** `rest` is what follows "syslog:". INVALID says what is wrong with it. */
REEF_MUST_CHECK reef_status reef_syslog_spec_parse(reef_syslog_spec *out,
                                                   const char *rest,
                                                   reef_error *err);
/** Whether this address may send; of a local socket everyone may. */
bool reef_syslog_may_send(const reef_syslog_spec *spec, const struct sockaddr_storage *from);

// ---- syslog_frame.c -----------------------------------------------------------------------------

/** Where a connection is in its bytes, beside those that were not used yet. Zeroed at first. */
typedef struct reef_syslog_frames {
    size_t skip_bytes; // of a counted message that was too long
    bool skip_line;    // what is left of a line that was too long
    uint64_t cut;      // messages that were given in part
} reef_syslog_frames;

/**
 * The next message in `bytes`: RFC 6587 with a count before it, or a line. Returns how many bytes
 * are done with, 0 when there are more to come. `*message_bytes` is 0 where they had no message.
 *
 * ended  no more come: what there is of a message is one
 */
size_t reef_syslog_frame_next(reef_syslog_frames *frames,
                              const uint8_t *bytes,
                              size_t count,
                              bool ended,
                              const uint8_t **message,
                              size_t *message_bytes);

// ---- syslog_message.c ---------------------------------------------------------------------------

#define REEF_SYSLOG_HEAD_BYTES_MAX 512
// of a line: its head, and of each byte of a message one that is made five
#define REEF_SYSLOG_LINE_BYTES_MAX                                                                 \
    (REEF_SYSLOG_HEAD_BYTES_MAX + 5 * REEF_SYSLOG_MESSAGE_BYTES_MAX + 1)

/** The last minute of the local zone that was looked up, which takes long. Zeroed at first. */
typedef struct reef_syslog_minute {
    int64_t named; // month, day, hour and minute
    int64_t today; // days since 1970: when it was
    int64_t ms;    // since 1970: what it is
} reef_syslog_minute;

/**
 * The line of a message, with its newline; its length. 0: it has no text.
 *
 * out          (REEF_SYSLOG_LINE_BYTES_MAX)
 * message      of at most REEF_SYSLOG_MESSAGE_BYTES_MAX bytes
 * from         who sent it, for messages that do not say; "": not known
 * received_ms  since 1970: the time of messages that have none, and what decides the year of those
 *              that have none. Theirs is of the local zone
 * minute       for one call at a time
 */
size_t reef_syslog_line_write(uint8_t *out,
                              const uint8_t *message,
                              size_t bytes,
                              const char *from,
                              uint64_t received_ms,
                              reef_syslog_minute *minute);

// ---- syslog_queue.c -----------------------------------------------------------------------------

#define REEF_SYSLOG_QUEUE_BYTES_MAX ((size_t)8 << 20) // of lines that are not journalled

/** Lines keep their order. */
typedef struct reef_syslog_queue {
    reef_input *input;
    reef_push_batch *first;   // of those that wait; the last one is being filled
    reef_push_batch *refused; // of those that were out
    size_t out;               // batches that are on their way
    size_t bytes;             // of all of them
    unsigned retry_ms;
    uint64_t dropped;  // lines that found no memory, or no journal at the end
    uv_timer_t *retry; // the owner's; for a full journal
    void (*on_room)(reef_input *input);
} reef_syslog_queue;

bool reef_syslog_queue_is_full(const reef_syslog_queue *queue);
void reef_syslog_queue_add(reef_syslog_queue *queue, const uint8_t *line, size_t bytes);
/** The source stops: everything goes to the journal now. */
void reef_syslog_queue_end(reef_syslog_queue *queue);
void reef_syslog_queue_release(reef_syslog_queue *queue);

#endif
