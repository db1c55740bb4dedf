// A connection to Redis; see redis_internal.h.
//
// hiredis has an adapter for libuv of its own, which drops what libuv says of a connection that was
// refused: it would be waited for in vain. Hence the few lines here.
#include "redis_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICK_MS 1000

// The socket of one connection. It outlives the connection until libuv has released it.
typedef struct reef_redis_poll {
    uv_poll_t handle;
    redisAsyncContext *redis; // NULL once hiredis has freed it
    int events;
} reef_redis_poll;

struct reef_redis_link {
    reef_redis_link_options options;
    redisAsyncContext *redis;
    bool ready, closed;
    bool away;         // reported
    char refusal[256]; // last reported
    uv_timer_t pause, tick;
    uv_getaddrinfo_t lookup;
    // `attempt` modulo the number of addresses of the name is the index of the address to try.
    size_t attempt, address_count;
    bool resolving;
    unsigned pause_ms;
    uint64_t heard_ms; // when the last reply came, or the first command was sent after it
    size_t owed;       // replies
    int open_handles;
};

typedef struct reef_redis_call {
    reef_redis_link *link;
    reef_redis_on_reply on_reply;
} reef_redis_call;

// ---- the socket on the loop ---------------------------------------------------------------------

static void on_poll(uv_poll_t *handle, int code, int events) {
    reef_redis_poll *poll = handle->data;
    // An error of the socket is reported by reading it.
    if (poll->redis != NULL && (code < 0 || (events & UV_READABLE)))
        redisAsyncHandleRead(poll->redis);
    if (poll->redis != NULL && code == 0 && (events & UV_WRITABLE))
        redisAsyncHandleWrite(poll->redis);
}

static void poll_for(reef_redis_poll *poll, int events) {
    poll->events = events;
    if (events)
        (void)uv_poll_start(&poll->handle, events, on_poll);
    else
        (void)uv_poll_stop(&poll->handle);
}

static void add_read(void *data) {
    reef_redis_poll *poll = data;
    poll_for(poll, poll->events | UV_READABLE);
}

static void del_read(void *data) {
    reef_redis_poll *poll = data;
    poll_for(poll, poll->events & ~UV_READABLE);
}

static void add_write(void *data) {
    reef_redis_poll *poll = data;
    poll_for(poll, poll->events | UV_WRITABLE);
}

static void del_write(void *data) {
    reef_redis_poll *poll = data;
    poll_for(poll, poll->events & ~UV_WRITABLE);
}

static void on_poll_closed(uv_handle_t *handle) {
    free(handle->data);
}

static void clean_up(void *data) {
    reef_redis_poll *poll = data;
    poll->redis = NULL;
    uv_close((uv_handle_t *)&poll->handle, on_poll_closed);
}

static bool attach(redisAsyncContext *redis, uv_loop_t *loop) {
    reef_redis_poll *poll = calloc(1, sizeof(*poll));
    if (poll == NULL || uv_poll_init(loop, &poll->handle, redis->c.fd)) {
        free(poll);
        return false;
    }
    // hiredis brings its own event interface; these callbacks connect it to libuv.
    poll->redis = redis;
    poll->handle.data = poll;
    redis->ev.data = poll;
    redis->ev.addRead = add_read;
    redis->ev.delRead = del_read;
    redis->ev.addWrite = add_write;
    redis->ev.delWrite = del_write;
    redis->ev.cleanup = clean_up;
    return true;
}

// ---- going and coming back ----------------------------------------------------------------------

static void on_pause_over(uv_timer_t *timer);

// Drop the connection. What is left of it calls back no more, because it is not ours then.
static void drop_connection(reef_redis_link *link) {
    redisAsyncContext *redis = link->redis;
    bool was_ready = link->ready;
    link->redis = NULL;
    link->ready = false;
    link->owed = 0;
    if (redis != NULL) redisAsyncFree(redis);
    if (was_ready && !link->closed) link->options.on_lost(link->options.context);
}

static void try_later(reef_redis_link *link) {
    if (link->closed) return;
    drop_connection(link);
    if (!uv_is_active((uv_handle_t *)&link->pause))
        (void)uv_timer_start(&link->pause, on_pause_over, link->pause_ms, 0);
    unsigned longer = 2 * link->pause_ms;
    link->pause_ms = longer < REEF_REDIS_PAUSE_MS_MAX ? longer : REEF_REDIS_PAUSE_MS_MAX;
}

static void report_away(reef_redis_link *link, const char *why) {
    char text[512];
    snprintf(text, sizeof(text), "'%.200s': %.200s; retrying", link->options.url->clean, why);
    link->options.on_word(link->options.context, "source_away", text);
    link->away = true;
}

// An unreachable server shows in several ways; only the first is reported.
static void lose_connection(reef_redis_link *link, const char *why) {
    if (!link->away && !link->closed) report_away(link, why);
    try_later(link);
}

void reef_redis_link_refuse(reef_redis_link *link, const char *why) {
    if (strncmp(why, link->refusal, sizeof(link->refusal) - 1) != 0) report_away(link, why);
    snprintf(link->refusal, sizeof(link->refusal), "%s", why);
    try_later(link);
}

void reef_redis_link_works(reef_redis_link *link) {
    link->pause_ms = REEF_REDIS_PAUSE_MS_MIN;
    if (!link->away) return;
    char text[512];
    link->away = false;
    link->refusal[0] = 0;
    snprintf(text, sizeof(text), "'%.200s' is back", link->options.url->clean);
    link->options.on_word(link->options.context, "source_back", text);
}

// ---- commands -----------------------------------------------------------------------------------

bool reef_redis_link_ready(const reef_redis_link *link) {
    return link->ready;
}

static void on_redis_reply(redisAsyncContext *redis, void *reply, void *data) {
    reef_redis_call *call = data;
    reef_redis_link *link = call->link;
    reef_redis_on_reply on_reply = call->on_reply;
    free(call);
    if (reply == NULL || redis->data != link || link->redis != redis)
        return; // lost: on_lost says so
    link->heard_ms = uv_now(link->options.loop);
    if (link->owed) link->owed--;
    on_reply(link->options.context, reply);
}

static void send_words(reef_redis_link *link,
                       reef_redis_on_reply on_reply,
                       int count,
                       const char **words) {
    reef_redis_call *call = malloc(sizeof(*call));
    // Each command has its own callback context, freed by its reply.
    if (call != NULL) *call = (reef_redis_call){.link = link, .on_reply = on_reply};
    if (call == NULL ||
        redisAsyncCommandArgv(link->redis, on_redis_reply, call, count, words, NULL) != REDIS_OK) {
        free(call);
        lose_connection(link, "a command cannot be sent");
        return;
    }
    // The silence clock starts with the first reply that is owed, not with the last command.
    if (!link->owed++) link->heard_ms = uv_now(link->options.loop);
}

void reef_redis_link_send(reef_redis_link *link,
                          reef_redis_on_reply on_reply,
                          int count,
                          const char **words) {
    if (link->ready) send_words(link, on_reply, count, words);
}

static void on_greeted(redisAsyncContext *redis, void *data, void *context) {
    reef_redis_link *link = context;
    const redisReply *reply = data;
    if (reply == NULL || link->redis != redis) return;
    if (link->owed) link->owed--;
    if (reply->type == REDIS_REPLY_ERROR) reef_redis_link_refuse(link, reply->str);
}

// What comes back refers to the connection, not to what the owner asked.
static bool greet(reef_redis_link *link, int count, const char **words) {
    link->owed++;
    return redisAsyncCommandArgv(link->redis, on_greeted, link, count, words, NULL) == REDIS_OK;
}

static void authenticate(reef_redis_link *link) {
    const reef_redis_url *url = link->options.url;
    char db[16];
    snprintf(db, sizeof(db), "%u", url->db);
    const char *named[] = {"AUTH", url->user, url->password}, *plain[] = {"AUTH", url->password};
    const char *select[] = {"SELECT", db};
    bool sent = true;
    link->owed = 0;
    link->heard_ms = uv_now(link->options.loop);
    // AUTH and SELECT are sent without waiting; Redis answers in order, and a refusal ends the
    // connection.
    if (url->password != NULL)
        sent = url->user != NULL ? greet(link, 3, named) : greet(link, 2, plain);
    if (sent && url->db) sent = greet(link, 2, select);
    if (!sent) {
        lose_connection(link, "a command cannot be sent");
        return;
    }
    // Commands may be sent from here on; replies to the greeting come first.
    link->ready = true;
    link->options.on_ready(link->options.context);
}

// ---- connecting ---------------------------------------------------------------------------------

static void connect_to(reef_redis_link *link);

static void on_connected(const redisAsyncContext *redis, int code) {
    reef_redis_link *link = redis->data;
    // The context of an attempt that was abandoned meanwhile.
    if (link == NULL || link->redis != redis) return;
    if (code == REDIS_OK) {
        authenticate(link);
        return;
    }
    link->redis = NULL; // hiredis frees it
    // A name may have several addresses: all are tried before the failure is reported and the pause
    // begins.
    if (++link->attempt % link->address_count)
        connect_to(link); // before the callback is called
    else
        lose_connection(link, redis->errstr);
}

static void on_disconnected(const redisAsyncContext *redis, int code) {
    reef_redis_link *link = redis->data;
    if (link == NULL || link->redis != redis) return;
    link->redis = NULL; // hiredis frees it
    bool was_ready = link->ready;
    link->ready = false;
    link->owed = 0;
    if (was_ready) link->options.on_lost(link->options.context);
    lose_connection(link, code == REDIS_OK ? "the connection was closed" : redis->errstr);
}

static void use(reef_redis_link *link, redisAsyncContext *redis) {
    // A context with an error must be freed by us; after attaching, hiredis frees it.
    if (redis == NULL || redis->err) {
        char why[160];
        snprintf(why, sizeof(why), "%s", redis != NULL ? redis->errstr : "no memory");
        if (redis != NULL) redisAsyncFree(redis);
        lose_connection(link, why);
        return;
    }
    redis->data = link;
    if (!attach(redis, link->options.loop)) {
        redisAsyncFree(redis);
        lose_connection(link, "no memory for a connection");
        return;
    }
    link->redis = redis;
    // Until the connection answers, silence counts.
    link->owed = 1;
    link->heard_ms = uv_now(link->options.loop);
    (void)redisAsyncSetConnectCallback(redis, on_connected);
    (void)redisAsyncSetDisconnectCallback(redis, on_disconnected);
}

static void free_when_closed(reef_redis_link *link) {
    if (--link->open_handles == 0 && !link->resolving) free(link);
}

// A server may listen on one of them only: where "localhost" is ::1 first, maybe on 127.0.0.1.
static const struct addrinfo *next_address(reef_redis_link *link, const struct addrinfo *found) {
    link->address_count = 0;
    for (const struct addrinfo *at = found; at != NULL; at = at->ai_next) link->address_count++;
    for (size_t i = link->attempt % link->address_count; i > 0; i--) found = found->ai_next;
    return found;
}

static void on_resolved(uv_getaddrinfo_t *request, int code, struct addrinfo *found) {
    reef_redis_link *link = request->data;
    char address[64] = "";
    link->resolving = false;
    // Addresses are tried in a cycle, so that one dead address does not block the source.
    const struct addrinfo *next = code == 0 ? next_address(link, found) : NULL;
    if (next != NULL && next->ai_family == AF_INET6)
        code = uv_ip6_name((struct sockaddr_in6 *)(void *)next->ai_addr, address, sizeof(address));
    else if (next != NULL)
        code = uv_ip4_name((struct sockaddr_in *)(void *)next->ai_addr, address, sizeof(address));
    uv_freeaddrinfo(found);
    // The link was closed while the name was looked up; this was the last reference.
    if (link->closed) {
        if (!link->open_handles) free(link);
    } else if (code) {
        lose_connection(link, uv_strerror(code));
    } else {
        use(link, redisAsyncConnect(address, atoi(link->options.url->port)));
    }
}

static void connect_to(reef_redis_link *link) {
    const reef_redis_url *url = link->options.url;
    if (url->socket != NULL) {
        use(link, redisAsyncConnectUnix(url->socket));
        return;
    }
    // Resolved in libuv's thread pool: getaddrinfo blocks for seconds when DNS does not answer.
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    link->lookup.data = link;
    int code = uv_getaddrinfo(link->options.loop, &link->lookup, on_resolved, url->host, url->port,
                              &hints);
    link->resolving = code == 0;
    if (code) lose_connection(link, uv_strerror(code));
}

static void on_pause_over(uv_timer_t *timer) {
    connect_to(timer->data);
}

static void on_tick(uv_timer_t *timer) {
    reef_redis_link *link = timer->data;
    bool silent = link->redis != NULL && link->owed &&
                  uv_now(link->options.loop) - link->heard_ms > REEF_REDIS_SILENCE_MS;
    if (silent && !link->ready) link->attempt++;
    if (silent) lose_connection(link, "no answer");
    if (link->ready) link->options.on_tick(link->options.context);
}

reef_redis_link *reef_redis_link_open(const reef_redis_link_options *options) {
    reef_redis_link *link = calloc(1, sizeof(*link));
    if (link == NULL) return NULL;
    link->options = *options;
    link->pause_ms = REEF_REDIS_PAUSE_MS_MIN;
    link->address_count = 1; // a socket's
    // uv_timer_init cannot fail; both handles are closed together.
    (void)uv_timer_init(options->loop, &link->pause);
    (void)uv_timer_init(options->loop, &link->tick);
    link->pause.data = link->tick.data = link;
    link->open_handles = 2;
    (void)uv_timer_start(&link->tick, on_tick, TICK_MS, TICK_MS);
    // The first attempt is made by the pause timer with no delay, so there is one way to connect.
    (void)uv_timer_start(&link->pause, on_pause_over, 0, 0);
    return link;
}

static void on_timer_closed(uv_handle_t *handle) {
    free_when_closed(handle->data);
}

void reef_redis_link_close(reef_redis_link *link) {
    if (link == NULL) return;
    link->closed = true;
    drop_connection(link);
    if (link->resolving) (void)uv_cancel((uv_req_t *)&link->lookup); // or it ends by itself
    uv_close((uv_handle_t *)&link->pause, on_timer_closed);
    uv_close((uv_handle_t *)&link->tick, on_timer_closed);
}
