// One read after another from each source, as long as its queue has space.
//
//   resume --> reef_training_space --> kind->read --> reef_input_took --> reef_training_fill --.
//     ^                                                                                      |
//     '--------------------------------------------------------------------------------------'
#include "training_thread.h"

#include <stdlib.h>

// On a thread of libuv's: a disk may be slow, and unpacking may take longer than the loop should
// wait.
static void read_now(uv_work_t *request) {
    reef_input *input = request->data;
    input->work.error.status =
        input->kind->read_now(input, input->offset, input->work.at, input->work.room,
                              &input->work.count, &input->work.error);
}

static void on_read_now(uv_work_t *request, int code) {
    reef_input *input = request->data;
    // A code of libuv's means that the work was cancelled.
    if (code)
        (void)reef_fail(&input->work.error, REEF_ERR_IO, "reading '%.160s': %s", input->label,
                        uv_strerror(code));
    if (input->work.error.status != REEF_OK) reef_input_failed(input, &input->work.error);
    // Nothing read and no error is the end of the source.
    else if (input->work.count > 0)
        reef_input_took(input, input->work.count, NULL);
    else
        reef_input_ended(input);
}

static void read_by_worker(reef_input *input, uint8_t *at, size_t room) {
    input->work.at = at;
    input->work.room = room;
    input->work.error = (reef_error){.status = REEF_OK};
    input->work.request.data = input;
    int code = uv_queue_work(input->loop, &input->work.request, read_now, on_read_now);
    if (code) on_read_now(&input->work.request, code);
}

static void on_took(reef_input *input, size_t count, uint64_t begin, char *checkpoint) {
    reef_reader *reader = input->reader;
    reef_training_fill(reader->training, (size_t)(input - reader->sources), count, begin,
                       checkpoint);
    reef_reader_resume(reader);
}

static void on_ended(reef_input *input) {
    reef_reader *reader = input->reader;
    reef_training_source_end(reader->training, (size_t)(input - reader->sources));
    reef_reader_resume(reader);
}

static void on_failed(reef_input *input, const reef_error *err) {
    reef_reader *reader = input->reader;
    reef_reader_stop(reader);
    reader->on_error(reader->context, err);
}

static void read_source(reef_reader *reader, size_t source) {
    static const reef_input_sink sink = {on_took, on_ended, on_failed};
    reef_input *input = &reader->sources[source];
    size_t room = 0;
    uint8_t *at = NULL;
    // One read at a time for each source, and only into free space of its queue.
    if (input->busy || !reef_training_space(reader->training, source, &at, &room)) return;
    input->reader = reader;
    input->sink = &sink;
    input->loop = reader->loop;
    input->report = reader->report;
    input->busy = true;
    // Files are read by libuv's threads; sockets and pipes by the loop.
    if (input->kind->read_now != NULL)
        read_by_worker(input, at, room);
    else
        input->kind->read(input, at, room);
}

void reef_reader_resume(reef_reader *reader) {
    // A source that fails or ends calls this again from inside: the flag makes it another pass of
    // the loop and not a recursion. In the order of the settings, which is also that of the queues.
    reader->again = true;
    if (reader->resuming) return;
    reader->resuming = true;
    while (reader->again && !reader->stopped) {
        reader->again = false;
        for (size_t i = 0; i < reader->count && !reader->stopped; i++) read_source(reader, i);
    }
    reader->resuming = false;
}

void reef_reader_settle(reef_reader *reader) {
    for (size_t i = 0; i < reader->count && !reader->stopped; i++) {
        reef_input *input = &reader->sources[i];
        reef_input_offset offset;
        char *checkpoint = NULL;
        // Commits are reported only to sources that acknowledge, such as redis.
        if (input->kind->settled == NULL ||
            !reef_training_settled(reader->training, i, &offset, &checkpoint))
            continue;
        input->kind->settled(input, &offset);
        free(checkpoint);
    }
}

void reef_reader_stop(reef_reader *reader) {
    if (reader->stopped) return;
    reader->stopped = true;
    for (size_t i = 0; i < reader->count; i++) {
        reef_input *input = &reader->sources[i];
        input->stopped = true;
        if (input->loop != NULL && input->kind->stop != NULL) input->kind->stop(input);
    }
}
