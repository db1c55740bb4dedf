// Where a Redis Stream is: redis://[[USER]:PASSWORD@]HOST[:PORT]/STREAM[?OPTIONS], or redis:///PATH/OF/SOCKET/STREAM.
//
//   field=NAME  the field of an entry that holds its text; without it "text"
//   db=N        the database; without it 0
//
// In user, password, stream and field a "%" and two hex digits stand for a byte. Without a password in it
// REEF_REDIS_PASSWORD is used, where that is set: other people can read a command line.
#ifndef REEF_REDIS_URL_H
#define REEF_REDIS_URL_H

#include "reef_error.h"

#define REEF_REDIS_PORT "6379"

typedef struct reef_redis_url {
    char *host, *port;     // NULL for a socket
    char *socket;          // NULL for a host
    char *user, *password; // or NULL
    char *stream, *field;
    char *clean; // the URL without user and password: what may be said and stored
    unsigned db;
} reef_redis_url;

/** `rest` is what follows "redis:". INVALID says what is wrong with it, never the password. */
REEF_MUST_CHECK reef_status reef_redis_url_parse(reef_redis_url *url,
                                                 const char *rest,
                                                 reef_error *err);
void reef_redis_url_release(reef_redis_url *url);

#endif
