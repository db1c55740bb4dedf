// Lines on their way to the pool's journal; see syslog_internal.h. On the loop's thread.
//
//   add --> batches that wait --> journal: all there are, then all that have come meanwhile
//              ^                     '------> those that were refused, a little later
//              '--------------------------'
#include "syslog_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_MS 1000

bool reef_syslog_queue_is_full(const reef_syslog_queue *queue) {
    return queue->bytes >= REEF_SYSLOG_QUEUE_BYTES_MAX;
}

static void append(reef_push_batch **list, reef_push_batch *batch) {
    while (*list != NULL) list = &(*list)->next;
    *list = batch;
}

static void send_all(reef_syslog_queue *queue);

static void on_retry(uv_timer_t *timer) {
    send_all(timer->data);
}

// The bytes of a batch that was refused, in a batch of their own.
static void put_back(reef_syslog_queue *queue, reef_push_batch *refused) {
    // A line that is longer than the journal never fits.
    const bool is_over = queue->input->stopped || refused->error.status == REEF_ERR_INVALID;
    reef_push_batch *batch = is_over ? NULL : calloc(1, sizeof(*batch));
    if (batch == NULL) {
        queue->bytes -= refused->made.count;
        queue->dropped += refused->made.records;
        if (queue->input->stopped)
            reef_input_warn(queue->input, "source_loss",
                            "'%.150s': %" PRIu64 " messages were dropped at the end: %.80s",
                            queue->input->spec, refused->made.records, refused->error.message);
        return;
    }
    batch->made = refused->made;
    refused->made = (reef_ingested){0};
    append(&queue->refused, batch);
    queue->retry_ms = refused->retry_ms ? refused->retry_ms : RETRY_MS;
}

static void on_reply(reef_push_batch *batch) {
    reef_syslog_queue *queue = batch->owner;
    queue->out--;
    if (batch->error.status == REEF_OK)
        queue->bytes -= batch->made.count;
    else
        put_back(queue, batch);
    if (queue->out > 0 || queue->input->stopped) return;
    if (queue->refused != NULL) {
        append(&queue->refused, queue->first);
        queue->first = queue->refused;
        queue->refused = NULL;
        // Cannot fail with a callback.
        (void)uv_timer_start(queue->retry, on_retry, queue->retry_ms, 0);
    } else {
        send_all(queue);
    }
    if (!reef_syslog_queue_is_full(queue)) queue->on_room(queue->input);
}

static void send_all(reef_syslog_queue *queue) {
    reef_push_batch *batch = queue->first;
    queue->first = NULL;
    // Counted before any of them is answered.
    for (const reef_push_batch *at = batch; at != NULL; at = at->next) queue->out++;
    while (batch != NULL) {
        reef_push_batch *next = batch->next;
        batch->next = NULL;
        batch->input = queue->input;
        batch->owner = queue;
        batch->on_reply = on_reply;
        reef_push_submit_made(queue->input->pusher, batch);
        batch = next;
    }
}

// Two batches fit into a journal, so that one can wait for the other.
static bool has_room(const reef_syslog_queue *queue, const reef_push_batch *batch, size_t bytes) {
    const uint64_t half = queue->input->pusher->journal_bytes_max / 2;
    const size_t count = batch->made.count + bytes;
    return count <= REEF_JOURNAL_BATCH_BYTES_MAX && count + REEF_JOURNAL_ENTRY_BYTES <= half;
}

static reef_push_batch *new_batch(void) {
    reef_push_batch *batch = calloc(1, sizeof(*batch));
    if (batch != NULL) batch->made.bytes = malloc(REEF_JOURNAL_BATCH_BYTES_MAX);
    if (batch != NULL && batch->made.bytes != NULL) return batch;
    free(batch);
    return NULL;
}

void reef_syslog_queue_add(reef_syslog_queue *queue, const uint8_t *line, size_t bytes) {
    reef_push_batch *batch = queue->first;
    while (batch != NULL && batch->next != NULL) batch = batch->next;
    if (batch == NULL || !has_room(queue, batch, bytes)) {
        batch = new_batch();
        if (batch == NULL) {
            queue->dropped++;
            return;
        }
        append(&queue->first, batch);
    }
    memcpy(batch->made.bytes + batch->made.count, line, bytes);
    batch->made.count += bytes;
    batch->made.records++;
    queue->bytes += bytes;
    if (queue->out == 0 && !uv_is_active((uv_handle_t *)queue->retry)) send_all(queue);
}

void reef_syslog_queue_end(reef_syslog_queue *queue) {
    send_all(queue);
}

void reef_syslog_queue_release(reef_syslog_queue *queue) {
    append(&queue->refused, queue->first);
    queue->first = queue->refused;
    while (queue->first != NULL) {
        reef_push_batch *next = queue->first->next;
        reef_push_batch_free(queue->first);
        queue->first = next;
    }
}
