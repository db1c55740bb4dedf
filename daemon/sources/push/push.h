// Sources that clients push into: "push:NAME".
//
//   client --- batch ---> submit --- libuv's thread: push_source.c ---> waiting
//                                                                     |  trainer's thread
//   client <-- reply ---- loop <--- one transaction for all <---------'  (reef_trainer_journal)
//
// A batch is acknowledged after the commit of the journal that has it. Training reads it from
// there, on the loop's side as any source (push_source.c), and the commit that takes the cursor
// past it trims it. What waits for the journal is bounded, and so is each journal; beyond that a
// batch is refused as busy.
#ifndef REEF_PUSH_H
#define REEF_PUSH_H

#include "reef_error.h"
#include "reef_push_journal.h"
#include "reef_source.h"
#include "reef_store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

// ---- push_records.c: a batch from its bytes -----------------------------------------------------
//
// From what a client pushed to bytes of the stream that training reads: pure functions, on any
// thread. Every record is a line or more, with its end. A body is taken as a whole or refused as a
// whole; docs/PROTOCOL.md says what becomes of it.

#define REEF_PUSH_UNPACKED_BYTES_MAX (4u << 20) // of a body that comes packed, and of its lines

typedef enum reef_ingest_format {
    REEF_INGEST_TEXT,  // any bytes; a record is a line
    REEF_INGEST_JSONL, // a record is a line, an object
    REEF_INGEST_JSON,  // records are objects, by themselves or in arrays
    REEF_INGEST_LOKI,  // Loki's push API: streams, each with its labels
    REEF_INGEST_OTLP,  // logs of OpenTelemetry: resources, each with its attributes
} reef_ingest_format;

typedef enum reef_packing { REEF_PACKING_NONE, REEF_PACKING_GZIP, REEF_PACKING_ZSTD } reef_packing;

/** How a body is to be read. */
typedef struct reef_ingest_form {
    reef_ingest_format format;
    reef_packing packing;
    const char *field; // of a record, its text; NULL: the first there is of the usual ones
    // Of LOKI and OTLP: a stream whose labels name one of these goes there.
    const char *const *sources; // (source_count)
    size_t source_count;        // 0: all goes into one
    size_t other; // of these, for all other streams; beyond them: such a stream is refused
} reef_ingest_form;

/** What goes to one source. */
typedef struct reef_ingested {
    uint8_t *bytes; // on the heap, the caller's; at most REEF_PUSH_UNPACKED_BYTES_MAX
    size_t count;
    uint64_t records;
} reef_ingested;

typedef struct reef_ingest_notes {
    bool too_large;   // why it was refused: fewer at once would be taken
    uint64_t empty;   // records of OTLP without a body, which were left out
    bool all_timed;   // LOKI, OTLP: every record says when it was; so no two bodies are alike
    uint64_t hash[2]; // of the body, unpacked, where that is so
} reef_ingest_notes;

/**
 * out  (source_count, at least 1) zeroed, written; those of LOKI and OTLP may stay empty, also all
 *
 * Errors (nothing is in `out`): INVALID names the line or record at fault, or the bound that was
 * crossed; NOT_FOUND a stream is of no source; NO_MEMORY.
 */
REEF_MUST_CHECK reef_status reef_ingest_parse(reef_ingested *out,
                                              reef_ingest_notes *notes,
                                              const reef_ingest_form *form,
                                              const uint8_t *body,
                                              size_t bytes,
                                              reef_error *err);
void reef_ingested_release(reef_ingested *ingested); // accepts the zeroed one

/**
 * push_unpack.c: a body that came as gzip or zstd, of one piece or several.
 *
 * out  on the heap, the caller's; NULL after an error
 *
 * Errors: INVALID it is damaged or ends too early, or has more than REEF_PUSH_UNPACKED_BYTES_MAX
 * bytes, and *too_large is true then; NO_MEMORY.
 */
REEF_MUST_CHECK reef_status reef_push_unpack(uint8_t **out,
                                             size_t *count,
                                             bool *too_large,
                                             reef_packing packing,
                                             const uint8_t *body,
                                             size_t bytes,
                                             reef_error *err);

// ---- the source ---------------------------------------------------------------------------------

// as they came in, of all batches on their way to the journal
#define REEF_PUSH_WAITING_BYTES_MAX (4u << 20)
// of one source's journal, unless --journal says otherwise
#define REEF_PUSH_JOURNAL_BYTES ((uint64_t)256 << 20)
#define REEF_PUSH_RETRY_MS 200       // hint to who is refused because many wait,
#define REEF_PUSH_RETRY_FULL_MS 1000 // and because the journal is full

/** One batch. On the heap; the pusher's from when it was handed over until it was answered. */
typedef struct reef_push_batch {
    char source[REEF_NAME_BYTES_MAX + 1]; // NAME; "": the only one there is, or as its streams say
    char id[REEF_JOURNAL_ID_BYTES_MAX + 1]; // "": none
    char field[REEF_NAME_BYTES_MAX + 1];    // with the text of a record; "": the usual ones
    reef_ingest_format format;
    reef_packing packing;
    uint8_t *body; // on the heap, the batch's
    size_t body_bytes;
    // the reply
    reef_error error;
    unsigned retry_ms; // of REEF_ERR_BUSY
    bool duplicate;
    bool too_large;
    uint64_t accepted_bytes, record_count, position;
    uint64_t empty_count; // records that were left out
    // who waits; on the loop
    void *owner; // NULL when they went away
    void (*on_reply)(struct reef_push_batch *batch);
    // the pusher's
    struct reef_pusher *pusher;
    reef_input *input; // of one with streams of several sources: the last of its parts
    uv_work_t work;
    reef_ingested made;
    reef_ingested *parts;          // (input_count) of those sources, until they are batches
    struct reef_push_batch *whole; // that it is part of, or NULL
    size_t part_count;             // that are not answered yet
    size_t answered_count;
    size_t weight; // bytes that count as waiting
    struct reef_push_batch *next;
} reef_push_batch;

void reef_push_batch_free(reef_push_batch *batch); // accepts NULL

/** Takes batches for all sources of a daemon. */
typedef struct reef_pusher {
    // set by the caller before reef_pusher_init
    uv_loop_t *loop;
    struct reef_training *training; // may be set later, before the loop runs
    reef_input *inputs;
    size_t input_count;
    uint64_t journal_bytes_max;
    // its own
    size_t waiting_bytes; // the loop's
    uv_mutex_t lock;      // protects what follows
    reef_push_batch *waiting, *done;
    bool asked; // the trainer has a request to take `waiting`
} reef_pusher;

void reef_pusher_init(reef_pusher *pusher);
/** After the loop and the training have ended. */
void reef_pusher_release(reef_pusher *pusher);

/**
 * Hand a batch over; `on_reply` is called later, and the batch is freed after it. On the loop's
 * thread.
 *
 * Errors (the batch is still the caller's): INVALID no such source; BUSY too much waits, or the
 * daemon ends; `retry_ms` is a hint then.
 */
REEF_MUST_CHECK reef_status reef_push_submit(reef_pusher *pusher,
                                             reef_push_batch *batch,
                                             reef_error *err);
/**
 * The same of a batch from inside the daemon, whose `input` and `made` are set: whole lines. It is
 * not bounded here, and is taken also while the source stops. It is always answered, at once where
 * the training has ended.
 */
void reef_push_submit_made(reef_pusher *pusher, reef_push_batch *batch);

// ---- push_source.c: the kind of source ----------------------------------------------------------

extern const reef_input_kind reef_input_push;

/** Its journal reaches to `end` now. */
void reef_push_grew(reef_input *input, uint64_t end);
/** What came of the batches of a source, since the process started. */
typedef struct reef_push_counts {
    uint64_t batches, records; // journalled
    uint64_t duplicates;       // batches that were there already
    uint64_t refused;          // batches, for whatever reason
    uint64_t busy;             // of these, because too much waited, or the daemon ended
    uint64_t journal_bytes;    // that wait in the journal for the commit that has trained them: now
} reef_push_counts;

/** Why a push was refused; of all of them, also those whose source is not known. */
typedef enum reef_push_refusal {
    REEF_PUSH_MALFORMED, // not what it says it is
    REEF_PUSH_DENIED,    // no token
    REEF_PUSH_NO_SOURCE,
    REEF_PUSH_TOO_LARGE,
    REEF_PUSH_TYPE, // its Content-Type or Content-Encoding is not taken
    REEF_PUSH_BUSY,
    REEF_PUSH_FAILED, // a full disk, or another failure here
} reef_push_refusal;
#define REEF_PUSH_REFUSALS (REEF_PUSH_FAILED + 1)

extern const char *const reef_push_refusal_names[REEF_PUSH_REFUSALS];

/**
 * A source that reads its journal. Another kind whose bytes go through one has this as the first
 * member of its state, and the functions below; its name begins with REEF_PUSH_PREFIX.
 */
typedef struct reef_push_source {
    uv_work_t work;
    uint8_t *at; // lent space of the pending read
    size_t room, count;
    bool awaited; // a read waits for bytes to come
    reef_error error;
    uint64_t committed;      // what lies before it is trimmed
    reef_push_counts counts; // but for `journal_bytes`
} reef_push_source;

REEF_MUST_CHECK reef_status reef_push_seek(reef_input *input,
                                           const reef_input_offset *offset,
                                           reef_error *err);
void reef_push_read(reef_input *input, uint8_t *at, size_t room);
void reef_push_stop(reef_input *input);
REEF_MUST_CHECK reef_status reef_push_committed(reef_input *input,
                                                reef_txn *txn,
                                                uint64_t cursor,
                                                reef_error *err);
void reef_push_settled(reef_input *input, const reef_input_offset *offset);

/** Count a batch that was taken. */
void reef_push_count(reef_input *input, const reef_push_batch *batch);
/** Count one that was not, where its source is known; `name` is "" for the only one there is. */
void reef_push_count_refused(reef_pusher *pusher, const char *name, bool busy);
/** False if the source has no journal. */
bool reef_push_counts_read(const reef_input *input, reef_push_counts *out);

#endif
