// Where a Redis Stream is: redis://[[USER]:PASSWORD@]HOST[:PORT]/STREAM[?OPTIONS], or
// redis:///PATH/OF/SOCKET/STREAM.
//
//   field=NAME     the field of an entry that holds its text; without it "text"
//   db=N           the database; without it 0
//   group=NAME     a consumer group to acknowledge committed entries to; without it none
//   consumer=NAME  who that is in the group; without it "reefd"
//
// In user, password, and all of these names a "%" and two hex digits stand for a byte. Without a
// password in it REEF_REDIS_PASSWORD is used, where that is set: other people can read a command
// line.
#ifndef REEF_REDIS_URL_H
#define REEF_REDIS_URL_H

#include "reef_error.h"

#include <stdbool.h>

typedef struct reef_redis_url {
    char *host, *port;     // NULL for a socket
    char *socket;          // NULL for a host
    char *user, *password; // or NULL
    char *stream;
    char *field;            // or NULL
    char *group, *consumer; // or NULL: both or none
    unsigned db;
    // the URL without user, password, group and consumer: names what is read, in logs and pools
    char *clean;
} reef_redis_url;

/** `rest` is what follows "redis:". INVALID says what is wrong with it, never the password. */
REEF_MUST_CHECK reef_status reef_redis_url_parse(reef_redis_url *url,
                                                 const char *rest,
                                                 reef_error *err);
void reef_redis_url_release(reef_redis_url *url);
/**
 * A source with "***" for the password, if it has one. Of a Redis URL that cannot be parsed all is
 * masked, as the password may be anywhere in it. The caller's; NULL without memory.
 */
char *reef_redis_url_mask(const char *spec);

#endif
