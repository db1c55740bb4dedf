// A connection to a Redis server on the loop, which comes back by itself.
//
//   open --> look up the host --> connect --> AUTH, SELECT --> on_ready ... on_lost --> pause --.
//                ^                                                                    (growing) |
//                '------------------------------------------------------------------------------'
//
// One warning says that the server went, or why it refuses, and one that it is back.
#ifndef REEF_REDIS_CONNECTION_H
#define REEF_REDIS_CONNECTION_H

#include "redis_url.h"

#include <hiredis/async.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

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

#endif
