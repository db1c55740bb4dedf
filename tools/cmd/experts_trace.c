// See experts_trace.h.
#include "experts_trace.h"
#include "cli_format.h"
#include "cli_model.h"
#include "cli_pool.h"
#include "cli_table.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BEFORE_BYTES 30 // of the context that is shown
#define AFTER_BYTES 15

// ---- reading ------------------------------------------------------------------------------------

static double strength_of(const reef_expert_use *use) {
    return fabs(use->score * use->activation);
}

// Insertion into the list of the strongest. Among equals the earlier comes first, because positions
// come in order.
static void on_use(void *context, size_t at, double score, double activation) {
    reef_experts_text *text = context;
    // Strength is the size of what the expert adds: score times activation.
    reef_expert_use use = {at, score, activation};
    double strength = strength_of(&use);
    text->chosen++;
    text->strength += strength;
    // By byte, which tells at a glance what an expert is for.
    text->by_byte[text->file.bytes[at]] += strength;
    size_t to = text->count;
    while (to > 0 && strength_of(&text->uses[to - 1]) < strength) to--;
    // Weaker than all in a full list.
    if (to == text->room) return;
    if (text->count < text->room) text->count++;
    memmove(&text->uses[to + 1], &text->uses[to], (text->count - 1 - to) * sizeof(*text->uses));
    text->uses[to] = use;
}

reef_status reef_experts_text_open(reef_cli_call *cli,
                                   reef_cli_pool *pool,
                                   size_t max_uses,
                                   reef_experts_text *out,
                                   reef_error *err) {
    // A fixed number of positions, so that memory does not grow with the text.
    out->room = max_uses;
    out->uses = reef_cli_alloc(max_uses, sizeof(*out->uses));
    // The text first: a missing file is found before the model is loaded.
    reef_status status = reef_cli_text_read(&out->file, reef_cli_text(cli, "text"), err);
    if (status == REEF_OK) status = reef_cli_as_of(cli, pool->store, out->as_of, err);
    if (status != REEF_OK) return status;
    return reef_cli_model_open(&out->model, cli, pool->store, out->as_of, err);
}

reef_status reef_experts_text_read(reef_experts_text *text,
                                   const reef_expert_row *row,
                                   reef_error *err) {
    return reef_model_expert_uses(text->model, row->generation, row->layer, row->id,
                                  text->file.bytes, text->file.count, on_use, text, err);
}

void reef_experts_text_release(reef_experts_text *text) {
    reef_model_close(text->model);
    reef_cli_file_release(&text->file);
    free(text->uses);
    *text = (reef_experts_text){0};
}

// ---- showing ------------------------------------------------------------------------------------

// `count` bytes from `from` on, as far as there are any. On the heap.
static char *shown(const reef_experts_text *text, size_t from, size_t count) {
    size_t left = from < text->file.count ? text->file.count - from : 0;
    return reef_cli_printable(text->file.bytes + from, count < left ? count : left, false);
}

typedef struct context {
    char *before, *byte, *after; // on the heap
} context;

static context context_of(const reef_experts_text *text, size_t at) {
    size_t before = at < BEFORE_BYTES ? at : BEFORE_BYTES;
    return (context){shown(text, at - before, before), shown(text, at, 1),
                     shown(text, at + 1, AFTER_BYTES)};
}

static void context_release(context *words) {
    free(words->before);
    free(words->byte);
    free(words->after);
}

// Fills `out` with the bytes of the largest shares; returns their number.
static size_t top_bytes(const reef_experts_text *text, uint8_t out[EXPERTS_TEXT_BYTES]) {
    size_t count = 0;
    for (size_t b = 0; b < 256; b++) {
        // Bytes that it never fires on are left out, even if the list is short.
        if (text->by_byte[b] <= 0.0) continue;
        size_t to = count;
        // Insertion again: at most a handful of bytes.
        while (to > 0 && text->by_byte[out[to - 1]] < text->by_byte[b]) to--;
        if (to == EXPERTS_TEXT_BYTES) continue;
        if (count < EXPERTS_TEXT_BYTES) count++;
        memmove(out + to + 1, out + to, count - 1 - to);
        out[to] = (uint8_t)b;
    }
    return count;
}

static void print_bytes(const reef_experts_text *text) {
    uint8_t top[EXPERTS_TEXT_BYTES];
    size_t count = top_bytes(text, top);
    printf("bytes        ");
    for (size_t i = 0; i < count; i++) {
        char *byte = reef_cli_printable(&top[i], 1, false);
        printf("%s'%s' %.0f %%", i ? ", " : "", byte, 100 * text->by_byte[top[i]] / text->strength);
        free(byte);
    }
    printf("%s\n", count ? " of its strength there" : "");
}

void reef_experts_text_print(const reef_experts_text *text) {
    static const char *const HEADING[] = {"byte", "weight", "activation", "strength", "context"};
    char words[CLI_WORD_BYTES], all[CLI_WORD_BYTES];
    // What share of the text chose it comes before where.
    printf("in the text  ");
    if (strcmp(text->as_of, "now") != 0) printf("as of %s ", text->as_of);
    printf("chosen by %s of %s bytes, %.2f %%\n", reef_cli_count(text->chosen, words),
           reef_cli_count(text->file.count, all),
           100 * (double)text->chosen / (double)text->file.count);
    // No table for an expert that this text does not use.
    if (text->chosen == 0) return;
    print_bytes(text);
    reef_cli_table *table = reef_cli_table_new(">>>><", HEADING);
    for (size_t i = 0; i < text->count; i++) {
        const reef_expert_use *use = &text->uses[i];
        context around = context_of(text, use->at);
        reef_cli_table_cell(table, "%zu", use->at);
        // Score and activation apart: a strong expert may be chosen rarely, and the reverse.
        reef_cli_table_cell(table, "%.4f", use->score);
        reef_cli_table_cell(table, "%+.4f", use->activation);
        reef_cli_table_cell(table, "%+.4f", use->score * use->activation);
        // The byte stands between guillemets, as it may be a blank.
        reef_cli_table_cell(table, "%s\xc2\xbb%s\xc2\xab%s", around.before, around.byte,
                            around.after);
        context_release(&around);
    }
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

json_t *reef_experts_text_json(const reef_experts_text *text) {
    // The same lists as in the table, with the shares as numbers.
    uint8_t top[EXPERTS_TEXT_BYTES];
    size_t count = top_bytes(text, top);
    json_t *bytes = json_array(), *uses = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(bytes,
                              json_pack("{s:I, s:o}", "byte", (json_int_t)top[i], "share",
                                        reef_cli_real(text->by_byte[top[i]] / text->strength)));
    for (size_t i = 0; i < text->count; i++) {
        const reef_expert_use *use = &text->uses[i];
        // Context before and after, printable, so that JSON takes it.
        context around = context_of(text, use->at);
        json_array_append_new(
            uses, json_pack("{s:I, s:o, s:o, s:s, s:s, s:s}", "at", (json_int_t)use->at, "weight",
                            reef_cli_real(use->score), "activation", reef_cli_real(use->activation),
                            "before", around.before, "byte", around.byte, "after", around.after));
        context_release(&around);
    }
    return json_pack("{s:o, s:s, s:I, s:I, s:o, s:o}", "file", reef_cli_path(text->file.path),
                     "as_of", text->as_of, "bytes", (json_int_t)text->file.count, "chosen",
                     (json_int_t)text->chosen, "by_byte", bytes, "places", uses);
}
