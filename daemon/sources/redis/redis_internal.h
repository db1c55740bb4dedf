// The inside of a Redis source, shared by the files that make it up:
//
//   redis_source.c      the kind of source: the read position, reading on, giving, the connection
//   redis_ack.c         telling a consumer group what is committed; how far ahead the stream is
//   redis_connection.c  the connection, which comes back by itself
//
// An entry's text and a newline are its bytes. Only the pool stores the read position, in
// checkpoints:
//
//   {"after": "ID", "ordinal": N, "skip": N, "entries": [["ID", bytes], ...]}
//
// The byte that a checkpoint describes is byte `skip` of the first of `entries`, which come after
// entry `after`. That one was entry number `ordinal` that was ever added to the stream, or -1 where
// that is not known.
#ifndef REEF_REDIS_INTERNAL_H
#define REEF_REDIS_INTERNAL_H

#include "redis_url.h"
#include "reef_source.h"

#include <hiredis/async.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

// ---- redis_connection.c -------------------------------------------------------------------------
//
// A connection to a Redis server on the loop, which comes back by itself.
//
//   open --> look up the host --> connect --> AUTH, SELECT --> on_ready ... on_lost --> pause --.
//                ^                                                                    (growing) |
//                '------------------------------------------------------------------------------'
//
// One warning says that the server went, or why it refuses, and one that it is back.

#define REEF_REDIS_PAUSE_MS_MIN 100
#define REEF_REDIS_PAUSE_MS_MAX 10000
#define REEF_REDIS_SILENCE_MS 15000 // a server that owes an answer for so long is away

typedef struct reef_redis_link reef_redis_link;

typedef struct reef_redis_link_options {
    uv_loop_t *loop;
    const reef_redis_url *url; // outlives the link
    /** Commands may be sent. */
    void (*on_ready)(void *context);
    /** Answers that were awaited will not come. */
    void (*on_lost)(void *context);
    /** Once a second. */
    void (*on_tick)(void *context);
    void (*on_word)(void *context, const char *event, const char *text);
    void *context;
} reef_redis_link_options;

/** A reply, or NULL of a command that got none. The reply is gone when this returns. */
typedef void (*reef_redis_on_reply)(void *context, const redisReply *reply);

/** NULL when memory runs out. */
reef_redis_link *reef_redis_link_open(const reef_redis_link_options *options);
/** No callback comes any more; it frees itself on the loop. Accepts NULL. */
void reef_redis_link_close(reef_redis_link *link);
bool reef_redis_link_ready(const reef_redis_link *link);
/** Send a command, when ready. `on_reply` is not called once the connection is lost. */
void reef_redis_link_send(reef_redis_link *link,
                          reef_redis_on_reply on_reply,
                          int count,
                          const char **words);
/** The server answers, but not as it should: say why once, and try again after a pause. */
void reef_redis_link_refuse(reef_redis_link *link, const char *why);
/** The server answers as it should. */
void reef_redis_link_works(reef_redis_link *link);

// ---- redis_source.c -----------------------------------------------------------------------------

// the rest of a longer entry is dropped, which is reported
#define REEF_REDIS_ENTRY_BYTES_MAX ((size_t)16 << 20)
#define REDIS_ID_BYTES 48 // two numbers of 20 digits
// of one XREAD: small ones may be followed by large ones, and a reply is kept as a whole
#define REDIS_ENTRIES_MAX 16
#define REDIS_UNKNOWN (-1)

typedef struct reef_redis_entry {
    char id[REDIS_ID_BYTES];
    size_t bytes;
} reef_redis_entry;

/** The position of the pool's cursor within the stream. */
typedef struct reef_redis_position {
    char last[REDIS_ID_BYTES]; // the last entry that lies before it as a whole
    int64_t ordinal;           // of that among all entries that were ever added, or REDIS_UNKNOWN
    char half[REDIS_ID_BYTES]; // the entry that it lies in, if any,
    size_t half_bytes;         // and how many of its bytes lie before it
} reef_redis_position;

/** What a consumer group is sent. */
typedef struct reef_redis_group {
    bool there;                // the server has it
    bool asked;                // a command about acknowledgement is out
    bool due;                  // entries up to `upto` may wait to be acknowledged
    char upto[REDIS_ID_BYTES]; // the last entry that a commit has as a whole
    uint64_t acknowledged;     // since the process started
    bool reported;             // that it does not work
} reef_redis_group;

typedef struct reef_redis {
    reef_input *input;
    reef_redis_url url;
    reef_redis_link *link;
    // the next XREAD
    char last[REDIS_ID_BYTES]; // the last entry that was got
    int64_t ordinal;           // of it among all entries that were ever added, or REDIS_UNKNOWN
    size_t wanted;             // entries to ask for
    bool reading;              // XREAD is out
    bool asked;                // the reader waits for bytes
    uint8_t *at;
    size_t room;
    // what was got and not given
    reef_redis_entry entries[REDIS_ENTRIES_MAX];
    size_t entry_count, entry; // `entry` is the next to be given, from its byte `skip` on
    size_t skip;
    uint8_t *bytes;
    size_t byte_count, byte;    // `byte` is the next to be given
    char after[REDIS_ID_BYTES]; // the entry before `entry`
    int64_t after_ordinal;
    // of an entry that was accepted in part before the process began
    char half[REDIS_ID_BYTES];
    size_t half_bytes;
    char settled[REDIS_ID_BYTES]; // the last entry that a commit has as a whole
    // what the server says
    int64_t length, waiting; // entries; or REDIS_UNKNOWN
    char newest[REDIS_ID_BYTES];
    bool behind;    // reported
    uint64_t unfit; // entries that were passed over, since the process started
    reef_redis_group group;
} reef_redis;

/** False if the text is not an entry id. */
bool reef_redis_id_copy(char to[REDIS_ID_BYTES], const char *id);
/** Less than 0, 0 or more, as of strcmp. */
int reef_redis_id_compare(const char *a, const char *b);

// ---- redis_ack.c: each does nothing without a group ---------------------------------------------

/** The connection is new. */
void reef_redis_group_begin(reef_redis *redis);
/** Once a second. */
void reef_redis_group_tick(reef_redis *redis);
/** Entries were got, and wait for their commit. */
void reef_redis_group_claim(reef_redis *redis);
/** A commit contains everything up to this position. */
void reef_redis_group_settled(reef_redis *redis, const reef_redis_position *position);

/** Ask how far ahead the stream is, with or without a group. */
void reef_redis_info_request(reef_redis *redis);

#endif
