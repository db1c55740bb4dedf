// A folder in which logs are written and rotated, and its reader: all bytes given, each checkpoint
// on the way, and the events. A helper that cannot do its work fails the test.
#ifndef TAIL_WORLD_H
#define TAIL_WORLD_H

#include "tail.h"
#include "tail_internal.h"
#include "temp_dir.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MARKS_MAX 4096

typedef struct text {
    char *bytes;
    size_t count, size; // of `size` bytes allocated
} text;

typedef struct kept_mark {
    uint64_t begin;
    char *json;
} kept_mark;

typedef struct world {
    char folder[TEMP_DIR_BYTES], path[TEMP_DIR_BYTES]; // path: app.log in the folder
    reef_tail *set;
    text given, expected;
    kept_mark marks[MARKS_MAX];
    size_t mark_count;
    char words[4096]; // the events, each followed by a space
    size_t room;      // bytes asked for at once
} world;

/** Setup and teardown of a cmocka test. */
int world_new(void **state);
int world_remove(void **state);

void add(text *to, const char *bytes, size_t count);

// ---- reading ----

/** What was given after the cursor is forgotten, as by a process that died. */
void open_at(world *w, const char *path, bool folder, uint64_t cursor);
/** app.log, or the whole folder, from where reading ended. */
void follow(world *w);
void follow_folder(world *w);
void stop(world *w);

size_t pull_once(world *w);
/** Until there is nothing more now. Returns how much came. */
size_t pull(world *w);
/** Until as much came as is expected, and no more. */
void pull_all(world *w);
/** Some of it, and by far not all. */
void pull_some(world *w);
void assert_nothing_for(world *w, unsigned ms);
size_t count_words(const world *w, const char *event);
/** Wherever a process ended, the next one gives the same bytes from there on. */
void assert_same_from_anywhere(world *w, bool folder, const char *path);

// ---- writing ----

/** Add bytes to a file, which is created if it does not exist. */
void write_to(const char *path, const char *bytes, size_t count);
/** Add `line` to the file `name` of the folder. */
void write_name(const world *w, const char *name, const char *line);
/** Numbered lines, which are expected: one that comes twice or not at all is seen. */
void write_lines(world *w, const char *name, size_t count);
void move(const world *w, const char *from, const char *to);
void delete (const world *w, const char *name);
/** In a shell; it must succeed. */
void command(const char *format, ...) __attribute__((format(printf, 1, 2)));
/** The follower's clock goes on by so much; nobody waits. */
void pause_ms(unsigned ms);
/** Really wait, for files and names that are to have other times. */
void await_other_time(unsigned ms);

#endif
