// The inside of the source `journal:`, shared by the files that make it up:
//
//   systemd_spec.c     what is asked for: a folder, and matches
//   systemd_entry.c    an entry as a line of text
//   systemd_file.c     one file of the journal: its header, its next entry
//   systemd_table.c    which files there are, and who wrote them
//   systemd_read.c     the next lines of all files, and the read position
//   systemd_source.c   the kind of source, on the loop
//
// "Journal" is systemd's in this folder; what waits in a pool for training has that name elsewhere.
//
// Whoever writes a journal numbers its entries 1, 2, 3 across all of its files: those of the
// system and of users, the present and the rotated ones. So the read position is one number for
// each writer. Order by time alone would not do: another host's entries may come hours late. A
// number is given before its entry can be read, and one after the other. So when one was seen in
// the header of a file (a writer's bound), all entries below it can be read, in whichever file.
//
//   scan: headers --> bounds --> pass: all entries up to them, the oldest first --> scan --> ...
//
// systemd-journald copies what it wrote below /run into files below /var, with other numbers, once
// it can. A copy is known by its boot and the time since that, and is passed over.
//
// Only the pool stores the read position, in checkpoints:
//
//   {"writers": [["ID", last, "BOOT", monotonic, volatile], ...], "skip": N,
//    "entries": [[writer, number, bytes, "BOOT", monotonic], ...]}
//
// The byte that a checkpoint describes is byte `skip` of the first of `entries`, before which the
// writers were read up to entry `last`. An entry without BOOT has that of its writer's entry before
// it; in a folder that was named nothing is a copy, and none has one.
#ifndef REEF_SYSTEMD_INTERNAL_H
#define REEF_SYSTEMD_INTERNAL_H

#include "reef_error.h"
#include "reef_source.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <systemd/sd-journal.h>

// ---- systemd_spec.c -----------------------------------------------------------------------------

typedef struct reef_systemd_spec {
    char *folder;   // owned; NULL: the journal of this machine
    char **matches; // owned; (match_count) "FIELD=VALUE": any of one field, each of several
    size_t match_count;
} reef_systemd_spec;

/** `rest` is what follows "journal:". INVALID says what is wrong with it; NO_MEMORY. */
REEF_MUST_CHECK reef_status reef_systemd_spec_parse(reef_systemd_spec *out,
                                                    const char *rest,
                                                    reef_error *err);
void reef_systemd_spec_release(reef_systemd_spec *spec); // accepts the zeroed one

// ---- systemd_entry.c ----------------------------------------------------------------------------

#define REEF_SYSTEMD_MESSAGE_BYTES_MAX ((size_t)1 << 20) // the rest of a longer one is left out

typedef struct reef_systemd_line {
    uint8_t *bytes; // on the heap
    size_t count, capacity;
} reef_systemd_line;

/**
 * The entry at which a journal stands, with its newline; none where it has no MESSAGE.
 * `realtime_us` since 1970 is that of the entry. False: out of memory.
 */
bool reef_systemd_entry_write(reef_systemd_line *out, sd_journal *journal, uint64_t realtime_us);

// ---- systemd_file.c -----------------------------------------------------------------------------

#define REEF_SYSTEMD_ID_BYTES 33 // 32 hexadecimal digits

/** Where an entry is. */
typedef struct reef_systemd_place {
    uint64_t number;       // of its writer's entries
    uint64_t realtime_us;  // since 1970, when it was written
    uint64_t monotonic_us; // since its boot
    char boot[REEF_SYSTEMD_ID_BYTES];
} reef_systemd_place;

/** What the header of a file says. */
typedef struct reef_systemd_header {
    char file[REEF_SYSTEMD_ID_BYTES];   // stays when it is renamed
    char writer[REEF_SYSTEMD_ID_BYTES]; // who numbers its entries
    uint64_t head, tail;                // numbers of its first and last entry; 0: it has none
} reef_systemd_header;

typedef struct reef_systemd_file {
    reef_systemd_header header;
    char *path;                   // owned
    size_t writer;                // index in the table
    bool is_volatile;             // below /run
    bool is_listed;               // by the last scan
    bool is_damaged;              // and reported; it is not read any more
    bool has_next;                // `next` is an entry that was not taken
    bool has_ended;               // there was no further entry since the last scan
    uint64_t ended, ended_before; // tails at which it had ended in this pass and in the one before
    uint64_t
        read; // tail at which it had ended twice: what its header counts does not come any more
    uint64_t seen;      // number of the last entry that was found
    sd_journal *handle; // of this file alone, or NULL
    reef_systemd_place next;
} reef_systemd_file;

/** 0 or an errno: ENODATA where the file is not a journal, ESTALE while it is being created. */
int reef_systemd_header_read(reef_systemd_header *out, int folder, const char *name);
/** Open it, before the first match with a number above `last`. 0 or an errno. */
int reef_systemd_file_open(reef_systemd_file *file, const reef_systemd_spec *spec, uint64_t last);
void reef_systemd_file_close(reef_systemd_file *file); // its handle
/** Find the next entry, unless it is found. 0, or an errno when the file is damaged. */
int reef_systemd_file_next(reef_systemd_file *file);

// ---- systemd_table.c ----------------------------------------------------------------------------

#define REEF_SYSTEMD_FILES_MAX 4096
#define REEF_SYSTEMD_WRITERS_MAX 1024
#define REEF_SYSTEMD_OPEN_MAX 128 // files with unread entries that are open at once
#define REEF_SYSTEMD_EVENTS_MAX 16
#define REEF_SYSTEMD_SCAN_MS 500 // a scan is stale after this time

typedef struct reef_systemd_writer {
    char id[REEF_SYSTEMD_ID_BYTES];
    char boot[REEF_SYSTEMD_ID_BYTES]; // of the last entry that was taken; "": none was
    uint64_t monotonic_us;            // of that
    uint64_t last;                    // number of the last entry that was taken
    uint64_t seen;                    // up to here nothing is lost, or it was said
    uint64_t bound;                   // of the entries of this pass
    bool is_volatile;
} reef_systemd_writer;

/** A message for the operator. */
typedef struct reef_systemd_event {
    char event[24];
    char text[384];
} reef_systemd_event;

typedef struct reef_systemd {
    reef_systemd_spec spec;
    reef_systemd_file *files; // owned; (file_count)
    size_t file_count, file_capacity;
    reef_systemd_writer *writers; // owned; (REEF_SYSTEMD_WRITERS_MAX)
    size_t writer_count;
    uint64_t scanned_ms;    // by a clock that only moves forward; 0: never
    uint64_t missing_count; // entries that were not found since the last scan,
    char missing_from[REEF_SYSTEMD_ID_BYTES + 32]; // the first of them
    size_t readable_count;                         // files that the last scan could read
    bool is_denied;                                // the last scan could not read all
    bool reported_denied, reported_full, reported_unfit;
    // the entry that is given
    reef_systemd_line line;
    size_t line_at; // bytes of it that were given
    size_t line_writer;
    reef_systemd_place line_place;
    // of an entry that was accepted in part before the process began
    size_t half_bytes, half_writer;
    uint64_t half_number;
    char half_boot[REEF_SYSTEMD_ID_BYTES]; // "": it has no copy
    uint64_t half_monotonic_us;
    reef_systemd_event events[REEF_SYSTEMD_EVENTS_MAX];
    size_t event_count;
} reef_systemd;

/**
 * `rest` is what follows "journal:". The caller's: for reef_systemd_close.
 *
 * Errors: INVALID it names nothing; NOT_FOUND no folder of a journal is there, or none of its files
 * may be read; NO_MEMORY.
 */
REEF_MUST_CHECK reef_status reef_systemd_open(reef_systemd **out,
                                              const char *rest,
                                              reef_error *err);
void reef_systemd_close(reef_systemd *s); // accepts NULL
/** Further ones are dropped until those there are were taken. */
void reef_systemd_report(reef_systemd *s, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** The files as they are now, opened as far as they have unread entries. Waits for the disk. */
REEF_MUST_CHECK reef_status reef_systemd_scan(reef_systemd *s, reef_error *err);
/** All files, who wrote them and how far they were read. */
void reef_systemd_forget(reef_systemd *s);
/** The file is damaged: what it has from here on is not read. */
void reef_systemd_damaged(reef_systemd *s, reef_systemd_file *file, int code);

// ---- systemd_read.c -----------------------------------------------------------------------------

/**
 * The next bytes, up to `room`, on any thread, one call at a time. None, when nothing new is there
 * or `*more`: a turn has a bound on its entries, and this one's had no text.
 *
 * checkpoint  on the heap; locates the first byte
 *
 * Errors: NO_MEMORY. Trouble with files is an event.
 */
REEF_MUST_CHECK reef_status reef_systemd_read(reef_systemd *s,
                                              uint8_t *at,
                                              size_t room,
                                              size_t *count,
                                              bool *more,
                                              char **checkpoint,
                                              reef_error *err);
/** Continue where an earlier process stopped. CORRUPT: the checkpoint is not one of ours. */
REEF_MUST_CHECK reef_status reef_systemd_seek(reef_systemd *s,
                                              const reef_input_offset *offset,
                                              reef_error *err);

#endif
