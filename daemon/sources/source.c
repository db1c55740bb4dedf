// Sources by their kinds, and the reader on the loop; see reef_source.h.
//
// The free space of a queue is lent to the read itself, so bytes of files are never copied
// on the way:
//
//   resume --> reef_training_space --> read --> reef_input_took --> reef_training_fill --> resume
//                                         '---> reef_input_ended --> the queue's next source
#include "reef_source.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

// ---- specs --------------------------------------------------------------------------------------

void reef_input_close(reef_input *input) {
    if (input->kind != NULL && input->state != NULL) input->kind->close(input);
    input->state = NULL;
    free(input->rest);
    input->rest = NULL;
}

reef_status reef_input_seek(reef_input *input, const reef_input_offset *offset, reef_error *err) {
    input->offset = offset->cursor;
    return input->kind->seek(input, offset, err);
}

// ---- answers ------------------------------------------------------------------------------------

// Whether a client waits for the reply. After a stop nobody does.
static bool is_awaited(reef_input *input) {
    assert(input->busy);
    input->busy = false;
    return !input->stopped;
}

void reef_input_took(reef_input *input, size_t count, char *checkpoint) {
    if (!is_awaited(input)) {
        free(checkpoint);
        return;
    }
    uint64_t begin = input->offset;
    input->offset += count;
    if (input->bytes != REEF_BYTES_UNKNOWN && input->bytes < input->offset)
        input->bytes = input->offset;
    input->sink->took(input, count, begin, checkpoint);
}

void reef_input_ended(reef_input *input) {
    if (is_awaited(input)) input->sink->ended(input);
}

void reef_input_failed(reef_input *input, const reef_error *err) {
    if (is_awaited(input)) input->sink->failed(input, err);
}

void reef_input_warn(reef_input *input, const char *event, const char *format, ...) {
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    reef_report_warning(input->report, event, "%s", text);
}

// ---- reading ------------------------------------------------------------------------------------
