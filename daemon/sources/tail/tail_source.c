// Followed files on the loop: follow:PATH and dir:PATH[/PATTERN]; tail.h says what they read.
//
// The reader (training/source_reader.c) fills the trainer's queue. It asks for bytes with `read`,
// lends `buffer` until reef_input_took, and keeps input->offset, the bytes that it was given. The
// pool stores our checkpoint with each commit; on restart `seek` gets it back (reef_tail_seek).
// input->bytes is the size of the stream as far as it is known, for the reported lag.
//
//   read --> worker thread: reef_tail_read --> bytes: took --> no read for a second: rescan, repeat
//     ^                                       '--> none: wait for a change, or for a second
//     |                                                             |
//     '-------------------------------------------------------------'
//
// took: reef_input_took hands the bytes to the reader, which advances the source's cursor.
//
// A worker also scans the folder while the queue is full and no read is pending, and during a
// long read pass. So files that are rotated away and deleted stay open, and the reported lag is
// current. One worker runs at a time; the timer runs while none does.
#include "tail.h"

#include <stdlib.h>

// Polling where inotify sees nothing: network file systems, links to other folders.
#define POLL_MS REEF_TAIL_SCAN_MS
// After a change, so that a file written line by line is not scanned for each line.
#define PACE_MS 50
#define FILES_PER_PACE_MS 4 // a large folder is scanned less often

typedef struct tail_source {
    reef_input *input;
    reef_tail *tail;
    bool handles_open;
    bool watched;      // inotify reports changes of the folder
    bool changed;      // one was reported since the last scan began
    bool working;      // a worker runs
    bool read_pending; // the reader waits for bytes
    bool reads;        // the worker reads; otherwise it rescans
    uv_work_t work;
    uv_timer_t timer;
    uv_fs_event_t watch;
    uint8_t *buffer; // (room) borrowed from the reader
    size_t room;
    // what the worker found
    reef_error error;
    size_t count, files;
    reef_tail_losses losses;
    char *checkpoint;
} tail_source;

static reef_status open_tail(reef_input *input, const char *rest, bool folder, reef_error *err) {
    tail_source *source = calloc(1, sizeof(*source));
    if (source == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to follow '%s'", rest);
    reef_status status = reef_tail_open(&source->tail, rest, folder, err);
    if (status != REEF_OK) {
        free(source);
        return status;
    }
    source->input = input;
    input->state = source;
    return REEF_OK;
}

static reef_status on_open_path(reef_input *input, const char *rest, reef_error *err) {
    return open_tail(input, rest, false, err);
}

static reef_status on_open_folder(reef_input *input, const char *rest, reef_error *err) {
    return open_tail(input, rest, true, err);
}

static reef_status on_seek(reef_input *input, const reef_input_offset *offset, reef_error *err) {
    tail_source *source = input->state;
    return reef_tail_seek(source->tail, offset, err);
}

// ---- on a worker thread -------------------------------------------------------------------------

static void work(uv_work_t *request) {
    tail_source *source = request->data;
    if (source->reads)
        source->error.status = reef_tail_read(source->tail, source->buffer, source->room,
                                              &source->count, &source->checkpoint, &source->error);
    else
        source->error.status = reef_tail_rescan(source->tail, &source->error);
}

// ---- on the loop --------------------------------------------------------------------------------

static void begin_work(tail_source *source);

static void on_timer(uv_timer_t *timer) {
    tail_source *source = timer->data;
    begin_work(source);
}

static unsigned pace_ms(const tail_source *source) {
    size_t ms = source->files / FILES_PER_PACE_MS;
    return ms > PACE_MS ? (unsigned)ms : PACE_MS;
}

static void start_timer(tail_source *source, unsigned ms) {
    (void)uv_timer_start(&source->timer, on_timer, ms, 0); // cannot fail with a callback
}

static void on_change(uv_fs_event_t *watch, const char *name, int events, int code) {
    (void)name;
    (void)events;
    tail_source *source = watch->data;
    if (code) { // poll the folder, and watch it again when possible
        (void)uv_fs_event_stop(watch);
        source->watched = false;
    }
    if (source->read_pending && !source->working && !source->changed)
        start_timer(source, pace_ms(source));
    source->changed = true;
}

static void watch_folder(tail_source *source) {
    if (source->watched) return;
    source->watched =
        uv_fs_event_start(&source->watch, on_change, reef_tail_folder(source->tail), 0) == 0;
}

static void report_events(tail_source *source) {
    reef_tail_event event;
    while (reef_tail_event_take(source->tail, &event))
        reef_input_warn(source->input, event.event, "%s", event.text);
}

static void reply_read(tail_source *source, char *checkpoint) {
    source->read_pending = false;
    start_timer(source, POLL_MS); // unless the next read comes before
    source->input->file = reef_tail_place(source->tail, &source->input->file_offset);
    reef_input_took(source->input, source->count, checkpoint);
}

static void on_work_done(uv_work_t *request, int code) {
    tail_source *source = request->data;
    reef_input *input = source->input;
    char *checkpoint = source->checkpoint;
    // The worker's result belongs to the loop from here on.
    source->checkpoint = NULL;
    source->working = false;
    // Stopped while the worker ran: nobody waits for the bytes.
    if (input->stopped || code) {
        free(checkpoint);
        return;
    }
    report_events(source);
    source->files = reef_tail_count(source->tail);
    source->losses = reef_tail_losses_read(source->tail);
    // Known size: what was delivered, this piece, and what waits in the files.
    input->bytes = input->offset + source->count + reef_tail_unread(source->tail);
    if (source->error.status != REEF_OK)
        reef_input_failed(input, &source->error);
    else if (source->count)
        reply_read(source, checkpoint);
    else if (source->read_pending && !source->reads)
        begin_work(source); // a read was requested during the rescan
    else
        // Nothing new: wait for the folder to change, or poll, since network file systems report
        // nothing.
        start_timer(source, source->read_pending && source->changed ? pace_ms(source) : POLL_MS);
}

static void begin_work(tail_source *source) {
    // The watch is set before the scan, so that a change in between is not missed.
    watch_folder(source);
    (void)uv_timer_stop(&source->timer);
    // Cleared before the work: changes during it start another scan.
    source->changed = false;
    source->working = true;
    source->reads = source->read_pending;
    source->count = 0;
    int code = uv_queue_work(source->input->loop, &source->work, work, on_work_done);
    if (!code) return;
    reef_error err;
    source->working = false;
    (void)reef_fail(&err, REEF_ERR_IO, "following '%s': %s", source->input->spec,
                    uv_strerror(code));
    reef_input_failed(source->input, &err);
}

static int open_handles(tail_source *source) {
    int code = uv_timer_init(source->input->loop, &source->timer);
    if (!code) code = uv_fs_event_init(source->input->loop, &source->watch);
    source->handles_open = code == 0; // neither init fails half-way
    source->timer.data = source->watch.data = source->work.data = source;
    return code;
}

static void on_read(reef_input *input, uint8_t *buffer, size_t room) {
    tail_source *source = input->state;
    source->buffer = buffer;
    source->room = room;
    source->read_pending = true;
    if (!source->handles_open) (void)open_handles(source); // cannot fail on a loop that runs
    if (!source->working) begin_work(source);
}

static void on_stop(reef_input *input) {
    tail_source *source = input->state;
    if (!source->handles_open) return;
    uv_close((uv_handle_t *)&source->timer, NULL);
    uv_close((uv_handle_t *)&source->watch, NULL);
    source->handles_open = false;
}

static void on_close(reef_input *input) {
    tail_source *source = input->state;
    if (source == NULL) return;
    reef_tail_close(source->tail);
    free(source->checkpoint);
    free(source);
    input->state = NULL;
}

static void on_left(reef_input *input, uint64_t cursor) {
    tail_source *source = input->state;
    reef_tail_leave(source->tail, input->offset - cursor);
    report_events(source);
}

static json_t *on_status(const reef_input *input) {
    const tail_source *source = input->state;
    return json_pack("{s: I, s: I, s: I, s: I}", "files", (json_int_t)source->files, "zero_bytes",
                     (json_int_t)source->losses.zero_bytes, "lost_bytes",
                     (json_int_t)source->losses.lost_bytes, "files_refused",
                     (json_int_t)source->losses.refused);
}

bool reef_tail_losses_of(const reef_input *input, reef_tail_losses *losses) {
    if (input->kind != &reef_follow_kind && input->kind != &reef_dir_kind) return false;
    const tail_source *source = input->state;
    *losses = source->losses;
    return true;
}

// .live: the source has no end, so it has a queue of its own. .again: the same bytes can be read
// once more from a stored checkpoint.
const reef_input_kind reef_follow_kind = {.scheme = "follow",
                                          .live = true,
                                          .again = true,
                                          .open = on_open_path,
                                          .seek = on_seek,
                                          .read = on_read,
                                          .stop = on_stop,
                                          .left = on_left,
                                          .close = on_close,
                                          .status = on_status};

const reef_input_kind reef_dir_kind = {.scheme = "dir",
                                       .live = true,
                                       .again = true,
                                       .open = on_open_folder,
                                       .seek = on_seek,
                                       .read = on_read,
                                       .stop = on_stop,
                                       .left = on_left,
                                       .close = on_close,
                                       .status = on_status};
