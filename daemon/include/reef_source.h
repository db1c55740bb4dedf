// What the stream is read from: kinds of sources behind one small interface, and the reader that
// asks them for bytes on the loop's thread.
//
//   reader --- read(at, room) ---> kind --- reef_input_took / ended / failed ---> reader
//
// Sources that end (files, standard input) are read one after another, in the order given:
// they share one queue. A live source, which grows while it is read, has a queue of its own. While
// a queue is full its source is not read, and so its sender waits. stride.h decides which queue is
// trained next.
#ifndef REEF_SOURCE_H
#define REEF_SOURCE_H

#include "reef_error.h"
#include "reef_log.h"
#include "reef_store.h"
#include "reef_trainer.h"

#include <jansson.h>
#include <stdbool.h>
#include <uv.h>

#define REEF_BYTES_UNKNOWN UINT64_MAX
#define REEF_INPUT_NAME_BYTES_MAX 255 // what a trainer keeps of a source's name
#define REEF_INPUT_WEIGHT_MAX 1000

typedef struct reef_input reef_input;

/** Where reading begins. */
typedef struct reef_input_offset {
    uint64_t cursor;        // bytes of the source that the pool has accepted: the next byte to give
    uint64_t begin;         // at most `cursor`: the byte that `checkpoint` describes
    const char *checkpoint; // as it was given to reef_input_took, or NULL: nothing of it is known
} reef_input_offset;

/**
 * A kind of source. `open`, `check`, `seek` and `close` are called without the loop, before and
 * after it runs.
 */
typedef struct reef_input_kind {
    const char *scheme; // before the colon of a spec
    bool live;          // a queue of its own: it has no end, and others need not wait for it
    bool again;         // can be read again from a checkpoint; what cannot is trained before a stop
    bool bare;          // its spec may end after the colon
    bool promised;      // all up to `bytes` was acknowledged to its sender: a drain waits for it
    /**
     * `rest` is the spec after the colon, without a weight; borrowed from the command line. Sets
     * `state`.
     */
    reef_status (*open)(reef_input *input, const char *rest, reef_error *err);
    /**
     * INVALID when `rest` can name nothing, whatever there is: it is looked at alone. Sets the name
     * where that is not the text. NULL: any text will do.
     */
    reef_status (*check_spec)(reef_input *input, const char *rest, reef_error *err);
    /** Sets `offset` and, where it is known, `bytes`. CORRUPT when what it had is gone. */
    reef_status (*seek)(reef_input *input, const reef_input_offset *offset, reef_error *err);
    /**
     * Put the next bytes at `at`, at most `room` (1 or more), and reply exactly once - at once or
     * much later - by reef_input_took, reef_input_ended (not of live ones) or reef_input_failed.
     * The next call comes after the reply. The space stays lent until then. The same bytes must be
     * delivered when the source is opened again from any earlier position. Live sources
     * give whole lines, over any number of calls. Troubles that may pass (a server that is away)
     * are waited out inside, with reef_input_warn.
     */
    void (*read)(reef_input *input, uint8_t *at, size_t room);
    /**
     * Of kinds that read from files and never wait, instead of `read` and `stop`: the bytes from
     * `offset` on, at most `room`; none at the end. On any thread. CORRUPT where there were some
     * when it was opened.
     */
    reef_status (*read_now)(reef_input *input,
                            uint64_t offset,
                            uint8_t *at,
                            size_t room,
                            size_t *count,
                            reef_error *err);
    /**
     * Nothing will be read any more: close handles of the loop; a read under way is not answered.
     */
    void (*stop)(reef_input *input);
    /**
     * In the commit that has the trainer's cursor at `cursor`, on the trainer's thread; may be
     * NULL.
     */
    reef_status (*committed)(reef_input *input, reef_txn *txn, uint64_t cursor, reef_error *err);
    /**
     * After a commit, on the loop: it contains everything up to `position`, whose checkpoint, if
     * any, is borrowed. Only the last of several commits may be reported. May be NULL.
     */
    void (*settled)(reef_input *input, const reef_input_offset *offset);
    /**
     * The daemon ends, and the pool has the bytes up to `cursor`: warn of what the next start will
     * not find. After the loop; may be NULL.
     */
    void (*left)(reef_input *input, uint64_t cursor);
    /** Free `state`; the loop is gone. */
    void (*close)(reef_input *input);
    /** Members for `status`, a new reference, or NULL; the function may be NULL. */
    json_t *(*status)(const reef_input *input);
} reef_input_kind;

struct reef_input {
    const reef_input_kind *kind;
    const char *spec;                         // as given
    const char *label;                        // what people call it; part of the spec
    char name[REEF_INPUT_NAME_BYTES_MAX + 1]; // what the pool's cursor goes by
    char *rest;                               // of the spec, what `open` got; a live source's
    uint32_t weight;                          // share of a live source among the queues
    uint64_t offset;      // position of the next byte to give; kept by the reader
    uint64_t bytes;       // how much there is, as far as is known; REEF_BYTES_UNKNOWN
    const char *file;     // that has what a reply gives, where a source has several; for `took`
    uint64_t file_offset; // of its first byte, in that file
    void *state;          // the kind's own
    reef_store *store;    // set before `seek`
    uv_loop_t *loop;      // set before `read`
    reef_report *report;  // set before `read`
    struct reef_pusher *pusher; // set before `read`; for kinds that journal what they get
    // the reader's
    struct reef_reader *reader;
    const struct reef_input_sink *sink; // of the reader
    bool busy;                          // a read was asked for and is not answered
    bool stopped;
    struct {
        uv_work_t request;
        uint8_t *at;
        size_t room, count;
        reef_error error;
    } work; // of read_now
};

/** What a reader does with the reply to a read. */
typedef struct reef_input_sink {
    /**
     * `count` bytes from offset `begin` of the source lie in the lent space; takes `checkpoint`.
     */
    void (*took)(reef_input *input, size_t count, uint64_t begin, char *checkpoint);
    void (*ended)(reef_input *input);
    void (*failed)(reef_input *input, const reef_error *err);
} reef_input_sink;

/**
 * `count` bytes (1 or more) are in the lent space. `checkpoint`: JSON text on the heap that locates
 * the first of them, or NULL where the checkpoint before implies it; taken.
 */
void reef_input_took(reef_input *input, size_t count, char *checkpoint);
/** The source has ended. */
void reef_input_ended(reef_input *input);
/** It cannot continue: the daemon ends with this error, and loses nothing that was committed. */
void reef_input_failed(reef_input *input, const reef_error *err);
/** Log a warning, and continue. `event` is a word for logs, such as "source_waits". */
void reef_input_warn(reef_input *input, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/**
 * Open what `spec` names: "file:PATH", "PATH", "-", or a live source. `spec` is kept.
 *
 * Errors: INVALID an unknown kind of source; those of the kind's `open`: NOT_FOUND it cannot be
 * read. reef_input_close also after an error.
 */
REEF_MUST_CHECK reef_status reef_input_open(reef_input *input, const char *spec, reef_error *err);
/** What reef_input_open says of the text alone: nothing is opened. */
REEF_MUST_CHECK reef_status reef_input_check_spec(const char *spec, reef_error *err);
/**
 * INVALID two of the specs, which are right by themselves, are one source: by their names, which
 * would share a cursor, or as one file, which would be learned twice.
 */
REEF_MUST_CHECK reef_status reef_input_check_distinct(const char *const *specs,
                                                      size_t count,
                                                      reef_error *err);
/** Continue after `position`; see reef_input_kind. */
REEF_MUST_CHECK reef_status reef_input_seek(reef_input *input,
                                            const reef_input_offset *offset,
                                            reef_error *err);
void reef_input_close(reef_input *input);

// The kinds there are.
extern const reef_input_kind reef_input_file;   // file_source.c
extern const reef_input_kind reef_input_stream; // file_source.c
extern const reef_input_kind reef_follow_kind;  // tail_source.c
extern const reef_input_kind reef_dir_kind;     // tail_source.c
extern const reef_input_kind reef_redis_kind;   // redis_source.c
extern const reef_input_kind reef_journal_kind; // systemd_source.c
extern const reef_input_kind reef_kafka_kind;   // kafka_source.c
extern const reef_input_kind reef_syslog_kind;  // syslog_source.c

/**
 * What a source goes by in the pool: its text as given, or where that is too long or no JSON text,
 * a hash of it and as much of its end as fits. Writes at most `max` bytes (at least 32) and a final
 * zero.
 */
void reef_source_name(char *out, size_t max, const char *text, size_t bytes);

#endif
