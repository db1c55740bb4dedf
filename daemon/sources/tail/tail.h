// Files that grow, rotate, and come and go, as one stream of whole lines.
//
//   follow: PATH and what it was renamed to: PATH.1, PATH.2.gz, PATH-20260131, PATH.old
//   folder: all files of a folder, or those that a pattern fits
//
// A table holds all known files in reading order. A scan of the folder finds new files, and what
// became of the known ones. A read pass then returns the whole lines that each file had at that
// scan, one file after the other. A checkpoint is the table as a pass began, so it describes all
// bytes of the pass.
//
//   scan --> table --> read pass: file 1, file 2, ... --> scan --> ...
//
// All functions here wait for the disk. They run on a worker thread, one call at a time.
#ifndef REEF_TAIL_H
#define REEF_TAIL_H

#include "reef_error.h"
#include "reef_source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REEF_DIR_FILES_MAX 4096
#define REEF_FOLDER_NAMES_MAX 65536 // a folder with more is too large to scan every second
// A file without a write for this time is settled: it is not written, copied or compressed now.
#define REEF_SETTLE_MS 2000

// A scan is stale after this time, also in the middle of a long read pass.
#define REEF_TAIL_SCAN_MS 1000

typedef struct reef_tail reef_tail;

/** A message for the operator; tail_source.c reports it. */
typedef struct reef_tail_event {
    char event[24];
    char text[384];
} reef_tail_event;

/** What was not given since the source was opened. */
typedef struct reef_tail_losses {
    uint64_t zero_bytes; // in runs of NUL, which were passed over
    uint64_t lost_bytes; // seen in files that went before they were read
    uint64_t refused;    // files that are no text, now
} reef_tail_losses;

/**
 * Follow one path, or with `folder` all files of a folder. A followed path may be absent.
 *
 * Errors: INVALID a path that can never be followed, such as a folder where one file is followed;
 * NOT_FOUND with `folder`: the folder does not exist, or the path is a file; NO_MEMORY.
 */
REEF_MUST_CHECK reef_status reef_tail_open(reef_tail **out,
                                           const char *path,
                                           bool folder,
                                           reef_error *err);
void reef_tail_close(reef_tail *tail); // accepts NULL
/**
 * Continue where an earlier process stopped. The pool holds the first offset->cursor bytes of the
 * stream. offset->checkpoint is one that reef_tail_read returned, for byte offset->begin; so the
 * first cursor - begin bytes of its read pass are skipped. A cursor of 0 is a first start.
 *
 * Errors: CORRUPT the checkpoint is NULL or not one of ours; NO_MEMORY.
 */
REEF_MUST_CHECK reef_status reef_tail_seek(reef_tail *tail,
                                           const reef_input_offset *offset,
                                           reef_error *err);
/**
 * The next bytes, or none if no further whole line is there. Rescans when the last scan is
 * REEF_TAIL_SCAN_MS old, because a slow reader may spend hours on one pass.
 *
 * buffer      (room) receives the bytes
 * checkpoint  on the heap; locates the first byte; NULL when the checkpoint before implies it
 *
 * Errors: NO_MEMORY. Trouble with a file is an event, see below, and reading continues.
 */
REEF_MUST_CHECK reef_status reef_tail_read(reef_tail *tail,
                                           uint8_t *buffer,
                                           size_t room,
                                           size_t *count,
                                           char **checkpoint,
                                           reef_error *err);
/**
 * The file that has the bytes of the last read, by its name when it was found first, behind the
 * folder as it was given; lent until the next read. That name does not depend on when a byte is
 * read, and so on kills: it is part of a watching pool's state. Of a path that is too long, its end.
 *
 * offset  written: of the first byte in the file, unpacked
 */
const char *reef_tail_place(const reef_tail *tail, uint64_t *offset);
/**
 * Scan the folder. New files are opened, so that their bytes survive deletion: REEF_TAIL_OPEN_MAX
 * at most, and none that may be a partial copy.
 */
REEF_MUST_CHECK reef_status reef_tail_rescan(reef_tail *tail, reef_error *err);
/**
 * Nothing will be read any more, and the last `dropped` bytes that were returned are in no pool:
 * scan once more, and report the files without a name of which anything was not kept, for the next
 * start cannot open them.
 */
void reef_tail_leave(reef_tail *tail, uint64_t dropped);
/** Bytes that exist and were not returned yet, as of the last scan. */
uint64_t reef_tail_unread(const reef_tail *tail);
/** Files in the table. */
size_t reef_tail_count(const reef_tail *tail);
reef_tail_losses reef_tail_losses_read(const reef_tail *tail);
/** The same of an open source, on the loop; false of a kind that follows no files. */
bool reef_tail_losses_of(const reef_input *input, reef_tail_losses *losses);
/** The folder to watch for changes. */
const char *reef_tail_folder(const reef_tail *tail);
/** Take the oldest event; false if none is left. Dropped events are counted in a last one. */
bool reef_tail_event_take(reef_tail *tail, reef_tail_event *out);

#endif
