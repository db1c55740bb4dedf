// Followed files on the loop; see tail_source.h.
//
//   read --> worker thread: reef_tail_read --> bytes: took --> no read for a second: rescan, repeat
//     ^                                       '--> none: wait for a change, or for a second
//     |                                                             |
//     '-------------------------------------------------------------'
//
// A worker also scans the folder while the queue is full and no read is asked for, and during a
// long read pass. So files that are rotated away and deleted stay open, and the reported lag is
// current. One worker runs at a time; the timer runs while none does.
#include "tail_source.h"

#include "tail.h"

#include <stdlib.h>
#include <string.h>

// Polling where inotify sees nothing: network file systems, links to other folders.
#define POLL_MS REEF_TAIL_SCAN_MS
// After a change, so that a file written line by line is not scanned for each line.
#define PACE_MS 50
#define FILES_PER_PACE_MS 4 // a large folder is scanned less often

typedef struct reef_follow {
    reef_input *input;
    reef_tail *tail;
    bool begun;          // the handles are open
    bool watched;        // inotify reports changes of the folder
    bool changed;        // it did, since the last scan
    bool working, asked; // a worker runs; a read waits for its answer
    bool reads;          // the worker reads; otherwise it rescans
    uv_work_t work;
    uv_timer_t timer;
    uv_fs_event_t watch;
    uint8_t *at; // borrowed from the reader
    size_t room;
    // what the worker found
    reef_error error;
    size_t count, files;
    char *checkpoint;
} reef_follow;

static reef_status open_follow(reef_input *input, const char *rest, bool folder, reef_error *err) {
    reef_follow *follow = calloc(1, sizeof(*follow));
    if (follow == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to follow '%s'", rest);
    reef_status status = reef_tail_open(&follow->tail, rest, folder, err);
    if (status != REEF_OK) {
        free(follow);
        return status;
    }
    follow->input = input;
    input->state = follow;
    return REEF_OK;
}

static reef_status on_open_path(reef_input *input, const char *rest, reef_error *err) {
    return open_follow(input, rest, false, err);
}

static reef_status on_open_folder(reef_input *input, const char *rest, reef_error *err) {
    return open_follow(input, rest, true, err);
}

static reef_status on_check(reef_input *input, const reef_config *config, reef_error *err) {
    return reef_input_check_text(input, config, err);
}

static reef_status on_seek(reef_input *input, const reef_input_offset *offset, reef_error *err) {
    reef_follow *follow = input->state;
    return reef_tail_seek(follow->tail, offset, err);
}

// ---- on a worker thread -------------------------------------------------------------------------

static void work(uv_work_t *request) {
    reef_follow *follow = request->data;
    if (follow->reads)
        follow->error.status = reef_tail_read(follow->tail, follow->at, follow->room,
                                              &follow->count, &follow->checkpoint, &follow->error);
    else
        follow->error.status = reef_tail_rescan(follow->tail, &follow->error);
}

// ---- on the loop --------------------------------------------------------------------------------

static void begin_work(reef_follow *follow);

static void on_timer(uv_timer_t *timer) {
    reef_follow *follow = timer->data;
    begin_work(follow);
}

static unsigned pace_ms(const reef_follow *follow) {
    size_t large = follow->files / FILES_PER_PACE_MS;
    return large > PACE_MS ? (unsigned)large : PACE_MS;
}

static void start_timer(reef_follow *follow, unsigned ms) {
    (void)uv_timer_start(&follow->timer, on_timer, ms, 0); // cannot fail with a callback
}

static void on_change(uv_fs_event_t *watch, const char *name, int events, int code) {
    (void)name;
    (void)events;
    reef_follow *follow = watch->data;
    if (code) { // poll the folder, and watch it again when possible
        (void)uv_fs_event_stop(watch);
        follow->watched = false;
    }
    if (follow->asked && !follow->working && !follow->changed) start_timer(follow, pace_ms(follow));
    follow->changed = true;
}

static void watch_folder(reef_follow *follow) {
    if (follow->watched) return;
    follow->watched =
        uv_fs_event_start(&follow->watch, on_change, reef_tail_folder(follow->tail), 0) == 0;
}

static void report_events(reef_follow *follow) {
    reef_tail_event event;
    while (reef_tail_event_take(follow->tail, &event))
        reef_input_warn(follow->input, event.event, "%s", event.text);
}

static void reply_read(reef_follow *follow, char *checkpoint) {
    follow->asked = false;
    start_timer(follow, POLL_MS); // unless the next read comes before
    reef_input_took(follow->input, follow->count, checkpoint);
}

static void on_worked(uv_work_t *request, int code) {
    reef_follow *follow = request->data;
    reef_input *input = follow->input;
    char *checkpoint = follow->checkpoint;
    // The worker's result belongs to the loop from here on.
    follow->checkpoint = NULL;
    follow->working = false;
    // Stopped while the worker ran: nobody waits for the bytes.
    if (input->stopped || code) {
        free(checkpoint);
        return;
    }
    report_events(follow);
    follow->files = reef_tail_count(follow->tail);
    // Known size: what was delivered, this piece, and what waits in the files.
    input->bytes = input->offset + follow->count + reef_tail_unread(follow->tail);
    if (follow->error.status != REEF_OK)
        reef_input_failed(input, &follow->error);
    else if (follow->count)
        reply_read(follow, checkpoint);
    else if (follow->asked && !follow->reads)
        begin_work(follow); // a read was asked for during the rescan
    else
        // Nothing new: wait for the folder to change, or poll, since network file systems report
        // nothing.
        start_timer(follow, follow->asked && follow->changed ? pace_ms(follow) : POLL_MS);
}

static void begin_work(reef_follow *follow) {
    // The watch is set before the scan, so that a change in between is not missed.
    watch_folder(follow);
    (void)uv_timer_stop(&follow->timer);
    // Cleared before the work: changes during it start another scan.
    follow->changed = false;
    follow->working = true;
    follow->reads = follow->asked;
    follow->count = 0;
    int code = uv_queue_work(follow->input->loop, &follow->work, work, on_worked);
    if (!code) return;
    reef_error err;
    follow->working = false;
    (void)reef_fail(&err, REEF_ERR_IO, "following '%s': %s", follow->input->spec,
                    uv_strerror(code));
    reef_input_failed(follow->input, &err);
}

static int open_handles(reef_follow *follow) {
    int code = uv_timer_init(follow->input->loop, &follow->timer);
    if (!code) code = uv_fs_event_init(follow->input->loop, &follow->watch);
    follow->begun = code == 0; // neither init fails half-way
    follow->timer.data = follow->watch.data = follow->work.data = follow;
    return code;
}

static void on_read(reef_input *input, uint8_t *at, size_t room) {
    reef_follow *follow = input->state;
    follow->at = at;
    follow->room = room;
    follow->asked = true;
    if (!follow->begun) (void)open_handles(follow); // cannot fail on a loop that runs
    if (!follow->working) begin_work(follow);
}

static void on_stop(reef_input *input) {
    reef_follow *follow = input->state;
    if (!follow->begun) return;
    uv_close((uv_handle_t *)&follow->timer, NULL);
    uv_close((uv_handle_t *)&follow->watch, NULL);
    follow->begun = false;
}

static void on_close(reef_input *input) {
    reef_follow *follow = input->state;
    if (follow == NULL) return;
    reef_tail_close(follow->tail);
    free(follow->checkpoint);
    free(follow);
    input->state = NULL;
}

static json_t *on_status(const reef_input *input) {
    const reef_follow *follow = input->state;
    return json_pack("{s: I}", "files", (json_int_t)follow->files);
}

const reef_input_kind reef_follow_kind = {.scheme = "follow",
                                          .live = true,
                                          .again = true,
                                          .open = on_open_path,
                                          .check = on_check,
                                          .seek = on_seek,
                                          .read = on_read,
                                          .stop = on_stop,
                                          .close = on_close,
                                          .status = on_status};

const reef_input_kind reef_dir_kind = {.scheme = "dir",
                                       .live = true,
                                       .again = true,
                                       .open = on_open_folder,
                                       .check = on_check,
                                       .seek = on_seek,
                                       .read = on_read,
                                       .stop = on_stop,
                                       .close = on_close,
                                       .status = on_status};
