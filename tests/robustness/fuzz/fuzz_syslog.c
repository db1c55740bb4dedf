// What a TCP client of syslog sends. Input: after how many bytes each piece ends, a byte; then the
// connection's bytes. In whichever pieces they come, the lines are the same.
#include "fuzz.h"
#include "syslog_internal.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define RECEIVED_MS UINT64_C(1796126400000)

static uint8_t line[REEF_SYSLOG_LINE_BYTES_MAX];

static uint64_t hash_lines(const uint8_t *bytes, size_t count, size_t step) {
    reef_syslog_frames frames = {0};
    reef_syslog_minute minute = {0};
    uint64_t hash = 0xcbf29ce484222325u;
    size_t at = 0, there = 0;
    while (there < count) {
        there = count - there < step ? count : there + step;
        for (;;) {
            const uint8_t *message = NULL;
            size_t length = 0;
            const size_t used = reef_syslog_frame_next(&frames, bytes + at, there - at,
                                                       there == count, &message, &length);
            assert(used <= there - at && length <= REEF_SYSLOG_MESSAGE_BYTES_MAX);
            if (used == 0) break;
            assert(length == 0 || (message >= bytes + at && message + length <= bytes + at + used));
            at += used;
            const size_t got =
                reef_syslog_line_write(line, message, length, "::1", RECEIVED_MS, &minute);
            assert(got <= sizeof(line) && (got == 0 || line[got - 1] == '\n'));
            for (size_t i = 0; i < got; i++) {
                // A further line of a message is indented: it is no line of its own.
                assert(line[i] != '\n' || i + 1 == got || memcmp(line + i + 1, "    ", 4) == 0);
                hash = (hash ^ line[i]) * 0x100000001b3u;
            }
        }
        assert(there < count || at == count);
    }
    return hash;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input = {data, size};
    const size_t step = (size_t)fuzz_u8(&input) + 1;
    size_t count;
    const uint8_t *bytes = fuzz_take(&input, input.left, &count);
    (void)setenv("TZ", "UTC", 1);
    if (count > 0) assert(hash_lines(bytes, count, step) == hash_lines(bytes, count, count));
    return 0;
}
