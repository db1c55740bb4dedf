// Messages in the bytes of a connection, as RFC 6587 has them: "COUNT MESSAGE", or a message and a
// newline. Which one is decided for each message: only a counted one begins with digits, a space
// and the "<" of its priority.
#include "syslog_internal.h"

#include <string.h>

#define COUNT_DIGITS_MAX 7

// Bytes before the message, with `*bytes` of it. 0: it is not counted. Where that cannot be told
// yet, `*unsure`.
static size_t read_count(const uint8_t *at, size_t count, size_t *bytes, bool *unsure) {
    size_t i = 0;
    *bytes = 0;
    *unsure = false;
    for (; i < count && i <= COUNT_DIGITS_MAX && at[i] >= '0' && at[i] <= '9'; i++)
        *bytes = 10 * *bytes + (size_t)(at[i] - '0');
    if (count > 0 && (i == 0 || i > COUNT_DIGITS_MAX || at[0] == '0')) return 0;
    if (i == count || (at[i] == ' ' && i + 1 == count)) {
        *unsure = true;
        return 0;
    }
    return at[i] == ' ' && at[i + 1] == '<' ? i + 1 : 0;
}

// What is not wanted of the bytes; all of them, or up to the next message.
static size_t skip(reef_syslog_frames *frames, const uint8_t *bytes, size_t count) {
    if (frames->skip_bytes > 0) {
        const size_t skipped = frames->skip_bytes < count ? frames->skip_bytes : count;
        frames->skip_bytes -= skipped;
        return skipped;
    }
    const uint8_t *end = memchr(bytes, '\n', count);
    frames->skip_line = end == NULL;
    return end != NULL ? (size_t)(end - bytes) + 1 : count;
}

static size_t next_line(reef_syslog_frames *frames,
                        const uint8_t *bytes,
                        size_t count,
                        bool ended,
                        size_t *message_bytes) {
    const size_t most = REEF_SYSLOG_MESSAGE_BYTES_MAX;
    const bool is_long = count > most;
    const uint8_t *end = memchr(bytes, '\n', is_long ? most + 1 : count);
    if (end == NULL && !is_long && !ended) return 0;
    *message_bytes = end != NULL ? (size_t)(end - bytes) : is_long ? most : count;
    frames->skip_line = end == NULL && is_long;
    frames->cut += frames->skip_line;
    return end != NULL ? *message_bytes + 1 : *message_bytes;
}

size_t reef_syslog_frame_next(reef_syslog_frames *frames,
                              const uint8_t *bytes,
                              size_t count,
                              bool ended,
                              const uint8_t **message,
                              size_t *message_bytes) {
    size_t counted = 0;
    bool unsure = false;
    *message = bytes;
    *message_bytes = 0;
    if (count == 0) return 0;
    if (frames->skip_bytes > 0 || frames->skip_line) return skip(frames, bytes, count);
    const size_t head = read_count(bytes, count, &counted, &unsure);
    if (unsure && !ended) return 0;
    if (head == 0) return next_line(frames, bytes, count, ended, message_bytes);
    const size_t most = REEF_SYSLOG_MESSAGE_BYTES_MAX, there = count - head;
    const size_t wanted = counted < most ? counted : most;
    if (there < wanted && !ended) return 0;
    *message = bytes + head;
    *message_bytes = there < wanted ? there : wanted;
    frames->skip_bytes = counted - *message_bytes;
    frames->cut += frames->skip_bytes > 0;
    return head + *message_bytes;
}
