// Types of lines: what is the same in lines that a program writes with different values.
//
// As in Drain (He et al. 2017) a line is of the type of equal length, of its source, with which it
// shares most words. A place of a type has a few words that stood there, or is open: then any may
// stand. So one word at a place where always the same ones stood is found, and names of users or
// hosts are not news for long.
#ifndef REEF_LINE_TYPES_H
#define REEF_LINE_TYPES_H

#include "line_tokens.h"
#include "type_rhythm.h"

#define REEF_PLACE_WORDS_MAX 8     // different ones; then it is open
#define REEF_PLACE_STATUSES_MAX 20 // where they are numbers of three digits

typedef struct reef_place {
    uint32_t words[REEF_PLACE_STATUSES_MAX]; // (count) hashes
    uint8_t count;
    bool is_open;
    uint32_t values; // lines that had a value there
} reef_place;

/** A type of line, or its lines with one number at a place. */
typedef struct reef_line_type {
    uint64_t name; // hash of its source and first line's tokens; 0: free
    bool is_variant;
    uint32_t of; // of a variant: its type, as long as that has the name `of_name`
    uint64_t of_name;
    uint32_t source;
    uint32_t place_count;
    uint64_t lines;
    reef_place *places; // owned; (place_count)
    char *sample;       // owned; (sample_bytes) its first line, cut
    size_t sample_bytes;
    uint64_t offset; // of its last line
    char *file;      // owned; that has it; NULL: the source
    reef_rhythm rhythm;
    uint64_t incident; // whose event `event` is of this type; by number
    uint32_t event;
    bool is_rate; // it came too often
    reef_decision decision;
    int64_t muted_ms;    // of MUTE: until then
    int32_t event_token; // of that event's lines: this one is `event_word`; -1: any line
    uint32_t event_word;
    uint32_t next; // of the same source and length; UINT32_MAX: none
} reef_line_type;

typedef struct reef_line_types {
    reef_line_type *types; // owned; (capacity)
    uint32_t count, capacity, variant_count;
    uint32_t free_count, free_from; // below count: so many, and none before this one
    uint32_t *heads;                // owned; by source and length
    uint64_t *cached;               // owned; of lines whose type was found: hashes, of this epoch
    uint32_t *answers;              // owned; their types
    uint64_t epoch;                 // so often something changed that an answer may depend on
} reef_line_types;

typedef struct reef_type_match {
    uint32_t type;    // UINT32_MAX: none
    uint32_t nearest; // the one that has most in common; UINT32_MAX: none
    int news;         // token whose word never stood there, the rarest; -1: none
    double bits;      // how rare that is, by the lines of the type
} reef_type_match;

REEF_MUST_CHECK reef_status reef_line_types_init(reef_line_types *types, reef_error *err);
void reef_line_types_release(reef_line_types *types);

/** Do values stand there in most lines, so that a small number is one of them? */
bool reef_place_is_value(const reef_line_type *type, size_t place);

/** The type of a line, which has learned its words. */
void reef_line_types_find(reef_line_types *types,
                          uint32_t source,
                          const reef_line_tokens *tokens,
                          reef_type_match *out);

/**
 * The lines of a type that have this number at a place, such as a status: they have a rhythm of
 * their own. UINT32_MAX: the type has few lines yet, or there are too many of them.
 *
 * Errors: as below.
 */
REEF_MUST_CHECK reef_status reef_line_types_variant(reef_line_types *types,
                                                    uint32_t type,
                                                    size_t place,
                                                    uint32_t word,
                                                    uint32_t *out,
                                                    reef_error *err);

/**
 * A new type of this line. Where there is no room, a sixteenth goes that came least recently, but
 * none that a person decided about.
 *
 * Errors: NO_MEMORY: nothing has changed.
 */
REEF_MUST_CHECK reef_status reef_line_types_add(reef_line_types *types,
                                                uint32_t source,
                                                const reef_line_tokens *tokens,
                                                const uint8_t *line,
                                                size_t count,
                                                uint32_t *out,
                                                reef_error *err);

/** The type of a variant; NULL: it is none, or its type was forgotten. */
const reef_line_type *reef_line_types_of(const reef_line_types *types, uint32_t variant);

/** The types were read back: link those that lines are compared with. */
void reef_line_types_linked(reef_line_types *types);

/** Forget a type. */
void reef_line_types_remove(reef_line_types *types, uint32_t type);

/** A copy of a line to be shown, cut; NULL: no memory. */
char *reef_line_copy(const uint8_t *line, size_t count);

/** Make *to, which is owned, a copy of the name of a file or NULL. False: no memory. */
bool reef_file_copy(char **to, const char *file);

#endif
