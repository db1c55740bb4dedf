// The kind of source "push:NAME": its bytes are read from the journal, and a read waits until there
// are some. What it read is trimmed in the commit that takes the trainer's cursor past it.
#include "push.h"
#include "reef_push_journal.h"
#include "reef_store.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES_MAX (REEF_NAME_BYTES_MAX - (sizeof(REEF_PUSH_PREFIX) - 1))
#define READ_BYTES_MAX (256u << 10) // in one read transaction
#define BUSY_ATTEMPTS_MAX 20        // each waits a second itself

static bool is_name(const char *name) {
    static const char SIGNS[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return name[0] && strspn(name, SIGNS) == strlen(name) && strlen(name) <= NAME_BYTES_MAX;
}

static reef_status push_check_spec(reef_input *input, const char *rest, reef_error *err) {
    if (is_name(rest)) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "'%.80s' cannot be pushed into: "
                     "a name has 1 to %zu letters, digits, and signs of '._-'",
                     input->spec, (size_t)NAME_BYTES_MAX);
}

static reef_status push_open(reef_input *input, const char *rest, reef_error *err) {
    (void)rest;
    reef_push_source *source = calloc(1, sizeof(*source));
    if (source == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a source");
    input->state = source;
    return REEF_OK;
}

reef_status reef_push_seek(reef_input *input, const reef_input_offset *offset, reef_error *err) {
    reef_txn *txn = NULL;
    reef_journal_stat stat;
    reef_status status = reef_txn_begin(&txn, input->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_journal_survey(txn, input->name, &stat, err);
    reef_txn_abort(txn);
    if (status != REEF_OK) return status;
    // Where the journal's entries are known its end is the source's length; otherwise nothing
    // waits.
    input->bytes = stat.entries_known ? stat.end : offset->cursor;
    ((reef_push_source *)input->state)->committed = offset->cursor;
    // Pool and journal are of one file and one transaction; if they disagree, records were lost.
    if (offset->cursor > input->bytes || (stat.entries && offset->cursor < stat.begin))
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "the pool has read %s up to byte %" PRIu64
                         ", but its journal holds %" PRIu64 " to %" PRIu64
                         ": see reef verify, or restore a snapshot",
                         input->name, offset->cursor, stat.begin, stat.end);
    return REEF_OK;
}

// ---- reading ------------------------------------------------------------------------------------

// On a thread of libuv's. The pool may have to be mapped again, which waits for all readers.
static void read_journal(uv_work_t *work) {
    reef_input *input = work->data;
    reef_push_source *source = input->state;
    size_t room = source->room < READ_BYTES_MAX ? source->room : READ_BYTES_MAX;
    for (int attempt = 0; attempt < BUSY_ATTEMPTS_MAX; attempt++) {
        source->error.status = reef_journal_read(input->store, input->name, input->offset,
                                                 source->at, room, &source->count, &source->error);
        if (source->error.status != REEF_ERR_BUSY) break;
    }
}

static void on_read(uv_work_t *work, int code) {
    reef_input *input = work->data;
    reef_push_source *source = input->state;
    // uv's own error, such as a cancelled request.
    if (code) (void)reef_fail(&source->error, REEF_ERR_IO, "%s", uv_strerror(code));
    if (source->error.status != REEF_OK) {
        reef_input_failed(input, &source->error);
    } else if (source->count > 0) {
        reef_input_took(input, source->count, NULL);
        // The journal promised these bytes when it acknowledged them to a client.
    } else {
        reef_error err;
        (void)reef_fail(&err, REEF_ERR_CORRUPT,
                        "the journal of %s ends at byte %" PRIu64 " instead of %" PRIu64,
                        input->name, input->offset, input->bytes);
        reef_input_failed(input, &err);
    }
}

static void start_read(reef_input *input) {
    reef_push_source *source = input->state;
    source->awaited = false;
    source->work.data = input;
    int code = uv_queue_work(input->loop, &source->work, read_journal, on_read);
    if (code) on_read(&source->work, code);
}

void reef_push_read(reef_input *input, uint8_t *at, size_t room) {
    reef_push_source *source = input->state;
    source->at = at;
    source->room = room;
    if (input->offset < input->bytes)
        start_read(input);
    else
        source->awaited = true;
}

void reef_push_grew(reef_input *input, uint64_t end) {
    reef_push_source *source = input->state;
    if (end > input->bytes) input->bytes = end;
    if (source->awaited && input->offset < input->bytes) start_read(input);
}

void reef_push_stop(reef_input *input) {
    ((reef_push_source *)input->state)->awaited = false;
}

reef_status reef_push_committed(reef_input *input,
                                reef_txn *txn,
                                uint64_t cursor,
                                reef_error *err) {
    return reef_journal_trim(txn, input->name, cursor, err);
}

void reef_push_settled(reef_input *input, const reef_input_offset *offset) {
    ((reef_push_source *)input->state)->committed = offset->cursor;
}

static void push_close(reef_input *input) {
    free(input->state);
}

// ---- status -------------------------------------------------------------------------------------

const char *const reef_push_refusal_names[] = {"malformed", "denied", "no_source", "too_large",
                                               "type",      "busy",   "failed"};

void reef_push_count(reef_input *input, const reef_push_batch *batch) {
    reef_push_counts *counts = &((reef_push_source *)input->state)->counts;
    if (batch->duplicate) {
        counts->duplicates++;
    } else {
        counts->batches++;
        counts->records += batch->record_count;
    }
}

void reef_push_count_refused(reef_pusher *pusher, const char *name, bool busy) {
    reef_input *found = NULL;
    size_t count = 0;
    for (size_t i = 0; i < pusher->input_count; i++) {
        reef_input *input = &pusher->inputs[i];
        if (input->kind != &reef_input_push) continue;
        if (*name && strcmp(input->name + strlen(REEF_PUSH_PREFIX), name) != 0) continue;
        found = input;
        count++;
    }
    if (count != 1) return;
    reef_push_counts *counts = &((reef_push_source *)found->state)->counts;
    counts->refused++;
    counts->busy += busy;
}

bool reef_push_counts_read(const reef_input *input, reef_push_counts *out) {
    if (input->kind->committed != reef_push_committed) return false;
    const reef_push_source *source = input->state;
    *out = source->counts;
    out->journal_bytes = input->bytes > source->committed ? input->bytes - source->committed : 0;
    return true;
}

static json_t *push_status(const reef_input *input) {
    reef_push_counts counts = {0};
    (void)reef_push_counts_read(input, &counts);
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "batches", (json_int_t)counts.batches,
                     "records", (json_int_t)counts.records, "duplicates",
                     (json_int_t)counts.duplicates, "refused", (json_int_t)counts.refused, "busy",
                     (json_int_t)counts.busy, "journal_bytes", (json_int_t)counts.journal_bytes);
}

const reef_input_kind reef_input_push = {.scheme = "push",
                                         .live = true,
                                         .again = true,
                                         .promised = true,
                                         .check_spec = push_check_spec,
                                         .open = push_open,
                                         .seek = reef_push_seek,
                                         .read = reef_push_read,
                                         .stop = reef_push_stop,
                                         .committed = reef_push_committed,
                                         .settled = reef_push_settled,
                                         .close = push_close,
                                         .status = push_status};
