// A real Redis server of a test's own, on a Unix socket, and a relay before it on a port, which
// cuts connections on order. A helper that cannot do its work fails the test.
#ifndef REDIS_SERVER_H
#define REDIS_SERVER_H

#include <stdbool.h>
#include <sys/types.h>

struct relay_orders {
    volatile long cut_after; // bytes from the server; less than 0: never
    volatile long cuts;
};

typedef struct redis_server {
    char folder[200], socket[240];
    pid_t server, relay;
    int port; // the relay's
    struct relay_orders *orders;
} redis_server;

/** Begin with an empty folder below `directory`; nothing runs yet. */
void redis_server_init(redis_server *redis, const char *directory);
/** Start it, with what it had written before. */
void redis_server_start(redis_server *redis, const char *password);
/** SIGKILL. */
void redis_server_kill(redis_server *redis);
/** Kill it and remove what it had written. */
void redis_server_empty(redis_server *redis);
/** Start the relay, whose file lies in `directory`; no order to cut is given. */
void redis_relay_start(redis_server *redis, const char *directory);
void redis_server_release(redis_server *redis);

/** Run `redis-cli` with words as of a shell; fails the test when it fails. */
void redis_command(const redis_server *redis, const char *words);
/** The same, and the first `room` - 1 bytes of what it printed. */
void redis_answer(const redis_server *redis, const char *words, char *out, size_t room);

#endif
