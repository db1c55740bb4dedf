// What one expert answers to in a text.
#ifndef REEF_EXPERTS_TEXT_H
#define REEF_EXPERTS_TEXT_H

#include "experts_list.h"

#define EXPERTS_TEXT_BYTES 5 // most frequent bytes that are shown

/** One byte of the text that chose the expert. */
typedef struct experts_place {
    size_t at;
    double score, activation; // their product is what orders places, by its size
} experts_place;

typedef struct experts_text {
    cli_file file;
    const char *as_of;     // which state reads it
    reef_model *model;     // that state; NULL without --text
    uint64_t chosen;       // bytes that chose the expert
    double strength;       // sum over them of |score * activation|
    double by_byte[256];   // the same by the byte
    experts_place *places; // (count) the strongest first
    size_t count, room;
} experts_text;

/** Read the file of --text, and the model of --as-of. Release it, also after an error. */
REEF_MUST_CHECK reef_status
experts_text_open(cli_call *cli, cli_pool *pool, size_t places, experts_text *out, reef_error *err);
/** Where it uses an expert; once. NOT_FOUND when the state does not have it. */
REEF_MUST_CHECK reef_status experts_text_read(experts_text *text,
                                              const expert_row *row,
                                              reef_error *err);
void experts_text_release(experts_text *text); // accepts the zeroed one
void experts_text_print(const experts_text *text);
json_t *experts_text_json(const experts_text *text);

#endif
