// See eval_words.h.
#include "eval_words.h"
#include "cli_pool.h"
#include "cli_progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is_blank(uint8_t byte) {
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

uint64_t reef_eval_word_count(const uint8_t *bytes, size_t count) {
    uint64_t words = 0;
    for (size_t i = 0; i < count; i++)
        words += !is_blank(bytes[i]) && (i == 0 || is_blank(bytes[i - 1]));
    return words;
}

double reef_eval_word_perplexity(double bits, uint64_t words) {
    return words > 0 ? exp2(bits / (double)words) : NAN;
}

// ---- last words ---------------------------------------------------------------------------------

/** A passage: where its last word begins and ends. `word` 0: no word precedes it. */
typedef struct passage {
    const uint8_t *bytes;
    size_t word, end;
} passage;

static passage read_passage(const uint8_t *line, size_t bytes) {
    passage p = {.bytes = line, .end = bytes};
    while (p.end > 0 && is_blank(line[p.end - 1])) p.end--;
    p.word = p.end;
    while (p.word > 0 && !is_blank(line[p.word - 1])) p.word--;
    bool preceded = reef_eval_word_count(line, p.word) > 0;
    if (!preceded) p.word = 0;
    return p;
}

static size_t most_likely(const float *logits) {
    size_t best = 0;
    for (size_t v = 1; v < REEF_VOCAB; v++)
        if (logits[v] > logits[best]) best = v;
    return best;
}

static double bits_of(const float *logits, uint8_t byte) {
    double most = (double)logits[most_likely(logits)], sum = 0;
    for (size_t v = 0; v < REEF_VOCAB; v++) sum += exp((double)logits[v] - most);
    return (log(sum) + most - (double)logits[byte]) / log(2);
}

// Row i of the logits is about the byte after i.
static void judge_passage(const passage *p,
                          size_t first,
                          const float *logits,
                          reef_eval_last_words *out) {
    bool right = true;
    // Byte by byte: each is predicted with the true bytes before it.
    for (size_t at = p->word; at < p->end; at++) {
        // Row i of the window predicts the byte after position i.
        const float *row = logits + (at - 1 - first) * REEF_VOCAB;
        // The word counts only if each of its bytes is the most likely one.
        right = right && most_likely(row) == p->bytes[at];
        out->bits += bits_of(row, p->bytes[at]);
    }
    out->right += right;
    // The byte after the word: without it "the" would count where the model means "there".
    const float *after = logits + (p->end - 1 - first) * REEF_VOCAB;
    out->ended += right && is_blank((uint8_t)most_likely(after));
    out->passages++;
}

// Reads the last window of the passage. With more, the first bytes would be in a window of their
// own.
static reef_status predict_passage(reef_model *model,
                                   const passage *p,
                                   float *logits,
                                   reef_eval_last_words *out,
                                   reef_error *err) {
    size_t T = reef_model_config(model)->context;
    size_t first = p->end > T ? p->end - T : 0;
    // A word that begins at the edge of the window has nothing before it to be predicted from.
    if (p->word == 0 || p->word <= first) {
        // An empty line is not a passage; a word that is too long is counted as skipped.
        out->skipped += p->end > 0;
        return REEF_OK;
    }
    reef_status status = reef_model_logits(model, p->bytes + first, p->end - first, logits, err);
    if (status == REEF_OK) judge_passage(p, first, logits, out);
    return status;
}

reef_status reef_eval_last_words_measure(reef_model *model,
                                         const reef_cli_file *file,
                                         reef_cli_progress *progress,
                                         reef_eval_last_words *out,
                                         reef_error *err) {
    // One window of logits is used again for each passage.
    float *logits =
        reef_cli_alloc((size_t)reef_model_config(model)->context * REEF_VOCAB, sizeof(*logits));
    reef_status status = REEF_OK;
    *out = (reef_eval_last_words){0};
    for (size_t at = 0; status == REEF_OK && at < file->count;) {
        const uint8_t *line = file->bytes + at;
        const uint8_t *end = memchr(line, '\n', file->count - at);
        // The last line may lack its newline.
        size_t bytes = end != NULL ? (size_t)(end - line) : file->count - at;
        passage p = read_passage(line, bytes);
        status = predict_passage(model, &p, logits, out, err);
        at += bytes + 1;
        reef_cli_progress_show(progress, at);
    }
    // Done with this file: the bar continues from here for the next.
    progress->done_before += file->count;
    free(logits);
    // Probably not a file of passages; a table of zeros would look like a result.
    if (status == REEF_OK && out->passages == 0)
        status = reef_fail(err, REEF_ERR_INVALID,
                           "%.160s has no passage whose last word could be asked for: --last-word "
                           "wants one passage a line, of two words or more",
                           file->path);
    return status;
}
