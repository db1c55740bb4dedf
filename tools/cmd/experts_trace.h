// What one expert answers to in a text.
#ifndef REEF_EXPERTS_TRACE_H
#define REEF_EXPERTS_TRACE_H

#include "cli_pool.h"
#include "experts_list.h"

#define EXPERTS_TEXT_BYTES 5 // most frequent bytes that are shown

/** One byte of the text that chose the expert. */
typedef struct reef_expert_use {
    size_t at;
    double score, activation; // their product orders uses, by its size
} reef_expert_use;

typedef struct reef_experts_text {
    reef_cli_file file;
    char as_of[REEF_NAME_BYTES_MAX + 1]; // which state reads it
    reef_model *model;                   // that state; NULL without --text
    uint64_t chosen;                     // bytes that chose the expert
    double strength;                     // sum over them of |score * activation|
    double by_byte[256];                 // the same by the byte
    reef_expert_use *uses;               // (count) the strongest first
    size_t count, room;
} reef_experts_text;

/** Read the file of --text, and the model of --as-of. Release it, also after an error. */
REEF_MUST_CHECK reef_status reef_experts_text_open(reef_cli_call *cli,
                                                   reef_cli_pool *pool,
                                                   size_t max_uses,
                                                   reef_experts_text *out,
                                                   reef_error *err);
/** Where it uses an expert; once. NOT_FOUND when the state does not have it. */
REEF_MUST_CHECK reef_status reef_experts_text_read(reef_experts_text *text,
                                                   const reef_expert_row *row,
                                                   reef_error *err);
void reef_experts_text_release(reef_experts_text *text); // accepts the zeroed one
void reef_experts_text_print(const reef_experts_text *text);
json_t *reef_experts_text_json(const reef_experts_text *text);

#endif
