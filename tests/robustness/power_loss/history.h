// What happened to one data file, read from the events of watched programs, and what of it the disk
// could hold after a power loss.
#ifndef HISTORY_H
#define HISTORY_H

#include "event.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ROOT_BYTES 16

typedef struct event {
    event_kind kind;
    uint64_t file, offset;
    const uint8_t *payload; // in the history's memory
    size_t bytes;
} event;

typedef struct history {
    uint8_t *memory;
    event *events;
    size_t count;
} history;

/** Read all events. False, after saying so on standard error, when they make no sense. */
bool history_load(history *h, const char *path);
void history_release(history *h);

/** Bytes of a file. */
typedef struct content {
    uint8_t *data;
    size_t bytes, room;
} content;

void content_copy(content *to, const content *from);
void content_release(content *c);

/**
 * A file on its way through the events: what is durable, and what the disk may or may not hold.
 *
 *   durable    all writes up to a sync, and those that were durable by themselves
 *   pending    events after that, in order; NULL-terminated by pending_count
 */
typedef struct disk_file {
    uint64_t file;
    content durable;
    const event **pending;
    size_t pending_count, pending_room;
} disk_file;

/** The next event has happened; one of another file changes nothing. */
void disk_file_advance(disk_file *disk, const event *e);
void disk_file_release(disk_file *disk);

/**
 * A state that the disk could be in if the power failed now: all that is durable, and of what is
 * pending a choice of sectors. `in_flight` (may be NULL) is a write that has begun.
 *
 * random  state of the generator of draws
 * out     written; its memory is used again
 */
void disk_file_cut(const disk_file *disk, const event *in_flight, uint64_t *random, content *out);

#endif
