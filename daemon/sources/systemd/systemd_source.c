// The journal of systemd on the loop: journal:[OPTIONS]; see systemd_internal.h.
//
//   read --> worker thread: reef_systemd_read --> bytes: took
//     ^                                      '--> none: wait a second --.
//     '-----------------------------------------------------------------'
#include "systemd_internal.h"

#include <stdlib.h>

#define POLL_MS (2 * REEF_SYSTEMD_SCAN_MS)

typedef struct systemd_source {
    reef_input *input;
    reef_systemd *journal;
    bool timer_open;
    uv_work_t work;
    uv_timer_t timer;
    uint8_t *at; // (room) borrowed from the reader
    size_t room;
    // what the worker found
    reef_error error;
    size_t count;
    bool more;
    size_t files;
    char *checkpoint;
} systemd_source;

static reef_status on_check_spec(reef_input *input, const char *rest, reef_error *err) {
    reef_systemd_spec spec;
    (void)input;
    reef_status status = reef_systemd_spec_parse(&spec, rest, err);
    if (status == REEF_OK) reef_systemd_spec_release(&spec);
    return status;
}

static void on_close(reef_input *input) {
    systemd_source *source = input->state;
    if (source == NULL) return;
    reef_systemd_close(source->journal);
    free(source->checkpoint);
    free(source);
    input->state = NULL;
}

static reef_status on_open(reef_input *input, const char *rest, reef_error *err) {
    systemd_source *source = calloc(1, sizeof(*source));
    if (source == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a source");
    source->input = input;
    input->state = source;
    return reef_systemd_open(&source->journal, rest, err);
}

static reef_status on_seek(reef_input *input, const reef_input_offset *offset, reef_error *err) {
    systemd_source *source = input->state;
    return reef_systemd_seek(source->journal, offset, err);
}

// ---- on a worker thread -------------------------------------------------------------------------

static void work(uv_work_t *request) {
    systemd_source *source = request->data;
    source->error.status =
        reef_systemd_read(source->journal, source->at, source->room, &source->count, &source->more,
                          &source->checkpoint, &source->error);
}

// ---- on the loop --------------------------------------------------------------------------------

static void begin_work(systemd_source *source);

static void on_timer(uv_timer_t *timer) {
    systemd_source *source = timer->data;
    begin_work(source);
}

static void report_events(systemd_source *source) {
    for (size_t i = 0; i < source->journal->event_count; i++)
        reef_input_warn(source->input, source->journal->events[i].event, "%s",
                        source->journal->events[i].text);
    source->journal->event_count = 0;
}

static void on_work_done(uv_work_t *request, int code) {
    systemd_source *source = request->data;
    char *checkpoint = source->checkpoint;
    source->checkpoint = NULL;
    // Stopped while the worker ran: nobody waits for the bytes.
    if (source->input->stopped || code) {
        free(checkpoint);
        return;
    }
    report_events(source);
    source->files = source->journal->file_count;
    if (source->error.status != REEF_OK)
        reef_input_failed(source->input, &source->error);
    else if (source->count > 0)
        reef_input_took(source->input, source->count, checkpoint);
    else if (source->more)
        begin_work(source);
    else
        (void)uv_timer_start(&source->timer, on_timer, POLL_MS, 0); // cannot fail with a callback
}

static void begin_work(systemd_source *source) {
    reef_error err;
    source->error = (reef_error){0};
    const int code = uv_queue_work(source->input->loop, &source->work, work, on_work_done);
    if (!code) return;
    (void)reef_fail(&err, REEF_ERR_IO, "reading '%.160s': %s", source->input->spec,
                    uv_strerror(code));
    reef_input_failed(source->input, &err);
}

static void on_read(reef_input *input, uint8_t *at, size_t room) {
    systemd_source *source = input->state;
    source->at = at;
    source->room = room;
    if (!source->timer_open) {
        (void)uv_timer_init(input->loop, &source->timer); // cannot fail
        source->timer.data = source->work.data = source;
        source->timer_open = true;
    }
    begin_work(source);
}

static void on_stop(reef_input *input) {
    systemd_source *source = input->state;
    if (source->timer_open) uv_close((uv_handle_t *)&source->timer, NULL);
    source->timer_open = false;
}

static json_t *on_status(const reef_input *input) {
    const systemd_source *source = input->state;
    return json_pack("{s: I}", "files", (json_int_t)source->files);
}

const reef_input_kind reef_journal_kind = {.scheme = "journal",
                                           .live = true,
                                           .again = true,
                                           .bare = true,
                                           .check_spec = on_check_spec,
                                           .open = on_open,
                                           .seek = on_seek,
                                           .read = on_read,
                                           .stop = on_stop,
                                           .close = on_close,
                                           .status = on_status};
