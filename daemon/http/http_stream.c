// Answers that are sent as they come to be; see http_server.h.
//
//   send --- bytes that wait (bounded) --- on_read, asked by MHD ---> client
//
// While nothing waits the connection is suspended and costs nothing. Waiting output has to be taken
// within the time that any reply has. A client that reads too slowly is disconnected, and never
// makes the sender wait.
#include "http_internal.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES 16384 // what MHD asks for at once

struct reef_http_stream {
    reef_http *http;
    struct MHD_Connection *connection; // NULL once the request is over
    reef_http_connection *peer;
    uint8_t *bytes;    // on the heap
    size_t begin, end; // of those that wait
    size_t room;
    bool suspended;   // the connection, until there is something to send
    bool ended;       // no more will come
    unsigned holders; // the request, and MHD's response
    void (*on_gone)(void *owner);
    void *owner; // NULL: nobody feeds it any more
};

static void release_stream(reef_http_stream *stream) {
    if (--stream->holders > 0) return;
    stream->http->stream_count--;
    free(stream->bytes);
    free(stream);
}

static void suspend_stream(reef_http_stream *stream) {
    stream->suspended = true;
    if (stream->peer != NULL) stream->peer->waits_for_us = true;
    MHD_suspend_connection(stream->connection);
}

static void resume(reef_http_stream *stream) {
    if (!stream->suspended) return;
    stream->suspended = false;
    if (stream->peer != NULL) stream->peer->waits_for_us = false;
    MHD_resume_connection(stream->connection);
}

static ssize_t on_read(void *context, uint64_t position, char *out, size_t room) {
    reef_http_stream *stream = context;
    (void)position;
    // MHD asks when the socket can take more; what is buffered goes out first.
    size_t count = stream->end - stream->begin;
    if (count > room) count = room;
    if (count > 0) {
        memcpy(out, stream->bytes + stream->begin, count);
        stream->begin += count;
        return (ssize_t)count;
    }
    if (stream->ended) return MHD_CONTENT_READER_END_OF_STREAM;
    // Nothing to send now: the connection sleeps until reef_http_stream_send.
    suspend_stream(stream);
    return 0;
}

static void on_response_freed(void *context) {
    release_stream(context);
}

reef_http_stream *reef_http_stream_begin(reef_http_request *request,
                                         const char *type,
                                         void (*on_gone)(void *owner),
                                         void *owner) {
    // Streams are few: each keeps a connection and a buffer for as long as the client likes.
    if (request->http->stream_count == REEF_HTTP_STREAMS_MAX) return NULL;
    reef_http_stream *stream = calloc(1, sizeof(*stream));
    struct MHD_Response *response =
        stream != NULL ? MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, on_read,
                                                           stream, on_response_freed)
                       : NULL;
    if (response == NULL) {
        free(stream);
        return NULL;
    }
    request->http->stream_count++;
    stream->http = request->http;
    stream->connection = request->connection;
    stream->peer = request->peer;
    // Two holders: the producer and MHD. The last one to release it frees it.
    stream->holders = 2;
    stream->on_gone = on_gone;
    stream->owner = owner;
    request->stream = stream;
    if (request->peer != NULL) request->peer->stream = stream;
    reef_http_respond(request, MHD_HTTP_OK, type, response);
    return stream;
}

// What is sent at once may be of any size: it is whole or nothing, and nothing for ever would be no
// stream.
static bool make_room(reef_http_stream *stream, size_t bytes) {
    if (bytes > REEF_HTTP_STREAM_BYTES_MAX && stream->end > 0) return false;
    if (bytes <= stream->room) return true;
    uint8_t *grown = realloc(stream->bytes, bytes);
    if (grown == NULL) return false;
    stream->bytes = grown;
    stream->room = bytes;
    return true;
}

void reef_http_stream_send(reef_http_stream *stream, const char *bytes, size_t count) {
    // Sent bytes are dropped before the buffer grows.
    if (stream->begin > 0) {
        memmove(stream->bytes, stream->bytes + stream->begin, stream->end - stream->begin);
        stream->end -= stream->begin;
        stream->begin = 0;
    }
    // A client that does not read fills its buffer, and misses this.
    if (!make_room(stream, stream->end + count)) return;
    // The time to take a reply begins when there is one; a byte now and then buys no more of it.
    if (stream->end == 0 && stream->peer != NULL)
        stream->peer->since_ms = reef_http_now_ms(stream->http);
    memcpy(stream->bytes + stream->end, bytes, count);
    stream->end += count;
    resume(stream);
    reef_http_run(stream->http);
}

bool reef_http_stream_is_idle(const reef_http_stream *stream) {
    return stream->begin == stream->end && !stream->ended;
}

void reef_http_stream_release(reef_http_stream *stream) {
    stream->ended = true;
    resume(stream);
}

void reef_http_stream_gone(reef_http_stream *stream) {
    if (stream == NULL) return;
    stream->connection = NULL;
    if (stream->peer != NULL) stream->peer->stream = NULL;
    stream->peer = NULL;
    void *owner = stream->owner;
    stream->owner = NULL;
    if (owner != NULL) stream->on_gone(owner);
    release_stream(stream);
}
