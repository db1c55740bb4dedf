// Files that grow, rotate, and come and go, as one stream of whole lines.
//
//   follow: PATH and what it was renamed to: PATH.1, PATH.2.gz, PATH-20260131, PATH.old
//   folder: all files of a folder, or those that a pattern fits
//
// All known files stand in a table, in the order in which they are read. A look at the folder finds
// new ones, and what became of those known; then comes a *round*: of each file the whole lines that
// it had at that look, one file after the other. So a mark, which is the table as a round began,
// describes all bytes of the round.
//
//   look --> table --> round: part 1, part 2, ... --> look --> ...
//
// Everything here waits for the disk: it is called on a thread of its own, one call at a time.
#ifndef REEF_FOLLOWED_H
#define REEF_FOLLOWED_H

#include "reef_error.h"
#include "reef_source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REEF_DIR_FILES_MAX 4096
#define REEF_FOLDER_NAMES_MAX 65536 // a folder with more is too large to be looked at every second
#define REEF_SETTLE_MS                                                                             \
    2000 // a file that was left alone for so long is not being written, copied or packed

#define REEF_LOOK_MS                                                                               \
    1000 // a look is older than that: another one, in the middle of a long round too

typedef struct reef_tail reef_tail;

/** What people should know. */
typedef struct reef_tail_word {
    char event[24];
    char text[384];
} reef_tail_word;

/**
 * `path` may be absent by now. INVALID when it can never be followed, such as a folder for a file.
 */
REEF_MUST_CHECK reef_status reef_tail_open(reef_tail **out,
                                           const char *path,
                                           bool folder,
                                           reef_error *err);
void reef_tail_close(reef_tail *set); // accepts NULL
/** Begin where `place` says. INVALID when its mark is none of ours. */
REEF_MUST_CHECK reef_status reef_tail_seek(reef_tail *set,
                                           const reef_input_place *place,
                                           reef_error *err);
/**
 * The next bytes, or none when there are no more whole lines now. Takes a glance, see below, where
 * the last look is REEF_LOOK_MS old: a round may take a slow reader hours.
 *
 * at    (room) written
 * mark  on the heap, where the first of them lies; NULL when that follows from the mark before
 *
 * Errors: NO_MEMORY. Troubles with files are words, see below, and pass or do not.
 */
REEF_MUST_CHECK reef_status reef_tail_read(
    reef_tail *set, uint8_t *at, size_t room, size_t *count, char **checkpoint, reef_error *err);
/**
 * Look at the folder while nothing is read: what is new is opened, so that it outlives its
 * deletion.
 */
REEF_MUST_CHECK reef_status reef_tail_glance(reef_tail *set, reef_error *err);
/** Bytes that are there and were not given, as of the last look. */
uint64_t reef_tail_unread(const reef_tail *set);
/** Files in the table. */
size_t reef_tail_count(const reef_tail *set);
/** The folder that should be watched. */
const char *reef_tail_folder(const reef_tail *set);
/** The next thing that was noticed; false when there is none. */
bool reef_tail_word_take(reef_tail *set, reef_tail_word *word);

#endif
