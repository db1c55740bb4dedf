// A Kafka topic on the loop: kafka:BROKERS/TOPIC; see kafka_internal.h.
//
//   read --> worker thread: reef_kafka_read --> bytes: took
//     ^                                    '--> none: wait a little --.
//     '---------------------------------------------------------------'
#include "kafka_internal.h"

#include <stdlib.h>
#include <string.h>

#define POLL_MS 50 // where nothing is new
#define WAIT_MS 5  // where something is on its way

typedef struct kafka_source {
    reef_input *input;
    reef_kafka *kafka;
    bool timer_open;
    uv_work_t work;
    uv_timer_t timer;
    uint8_t *at; // (room) borrowed from the reader
    size_t room;
    // what the worker found
    reef_error error;
    size_t count;
    reef_kafka_figures figures;
    char *checkpoint;
} kafka_source;

static reef_status on_check_spec(reef_input *input, const char *rest, reef_error *err) {
    reef_kafka_spec spec;
    reef_status status = reef_kafka_spec_parse(&spec, rest, err);
    if (status != REEF_OK) return status;
    // The name leaves out ?config=: other credentials do not make another source.
    reef_source_name(input->name, REEF_INPUT_NAME_BYTES_MAX, input->spec,
                     strlen("kafka:") + spec.place_bytes);
    reef_kafka_spec_release(&spec);
    return REEF_OK;
}

static void on_close(reef_input *input) {
    kafka_source *source = input->state;
    reef_kafka_close(source->kafka);
    free(source->checkpoint);
    free(source);
}

static reef_status on_open(reef_input *input, const char *rest, reef_error *err) {
    kafka_source *source = calloc(1, sizeof(*source));
    if (source == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a source");
    source->input = input;
    input->state = source;
    return reef_kafka_open(&source->kafka, rest, err);
}

static reef_status on_seek(reef_input *input, const reef_input_offset *offset, reef_error *err) {
    kafka_source *source = input->state;
    return reef_kafka_seek(source->kafka, offset, err);
}

// ---- on a worker thread -------------------------------------------------------------------------

static void work(uv_work_t *request) {
    kafka_source *source = request->data;
    source->error.status = reef_kafka_read(source->kafka, source->at, source->room, &source->count,
                                           &source->checkpoint, &source->error);
}

// ---- on the loop --------------------------------------------------------------------------------

static void begin_work(kafka_source *source);

static void on_timer(uv_timer_t *timer) {
    begin_work(timer->data);
}

static void on_work_done(uv_work_t *request, int code) {
    kafka_source *source = request->data;
    char *checkpoint = source->checkpoint;
    source->checkpoint = NULL;
    // Stopped while the worker ran: nobody waits for the bytes.
    if (source->input->stopped || code) {
        free(checkpoint);
        return;
    }
    reef_kafka *kafka = source->kafka;
    source->figures = kafka->figures;
    for (size_t i = 0; i < kafka->event_count; i++)
        reef_input_warn(source->input, kafka->events[i].event, "%s", kafka->events[i].text);
    kafka->event_count = 0;
    if (source->error.status != REEF_OK)
        reef_input_failed(source->input, &source->error);
    else if (source->count > 0)
        reef_input_took(source->input, source->count, checkpoint);
    else
        (void)uv_timer_start(&source->timer, on_timer, kafka->waits ? WAIT_MS : POLL_MS,
                             0); // cannot fail with a callback
}

static void begin_work(kafka_source *source) {
    reef_error err;
    source->error = (reef_error){0};
    const int code = uv_queue_work(source->input->loop, &source->work, work, on_work_done);
    if (!code) return;
    (void)reef_fail(&err, REEF_ERR_IO, "reading '%.160s': %s", source->input->spec,
                    uv_strerror(code));
    reef_input_failed(source->input, &err);
}

static void on_read(reef_input *input, uint8_t *at, size_t room) {
    kafka_source *source = input->state;
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
    kafka_source *source = input->state;
    if (source->timer_open) uv_close((uv_handle_t *)&source->timer, NULL);
    source->timer_open = false;
}

static json_t *on_status(const reef_input *input) {
    const reef_kafka_figures *figures = &((const kafka_source *)input->state)->figures;
    return json_pack("{s:b, s:I, s:I, s:I, s:I, s:I}", "connected", figures->is_connected,
                     "partitions", (json_int_t)figures->partitions, "messages",
                     (json_int_t)figures->messages, "messages_waiting",
                     (json_int_t)figures->waiting, "messages_unfit", (json_int_t)figures->unfit,
                     "messages_lost", (json_int_t)figures->lost);
}

const reef_input_kind reef_kafka_kind = {.scheme = "kafka",
                                         .live = true,
                                         .again = true,
                                         .check_spec = on_check_spec,
                                         .open = on_open,
                                         .seek = on_seek,
                                         .read = on_read,
                                         .stop = on_stop,
                                         .close = on_close,
                                         .status = on_status};
