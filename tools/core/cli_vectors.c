// Labelled vectors as the commands hold them: in memory, as the records that a trainer would be
// fed.
#include "cli_vectors.h"
#include "cli_pool.h"
#include "cli_progress.h"
#include "cli_tokens.h"

#include "reef_vectors.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EXAMPLES_AT_ONCE 512

reef_status reef_cli_vectors_read(reef_cli_file *file,
                                  const char *spec,
                                  const reef_config *config,
                                  reef_error *err) {
    *file = (reef_cli_file){.path = spec};
    // A plain file name would leave the format to be guessed.
    if (!reef_vectors_is_spec(spec))
        return reef_fail(err, REEF_ERR_INVALID,
                         "'%.100s' is read as text, but the pool has a vector model: give "
                         "idx:IMAGES,LABELS, npy:X.npy,Y.npy, csv:FILE or jsonl:FILE",
                         spec);
    reef_vectors *vectors = NULL;
    reef_status status =
        reef_vectors_open(&vectors, spec, config->inputs, config->image_columns, err);
    if (status != REEF_OK) return status;
    // The size after conversion to records, not that of the file.
    uint64_t bytes = reef_vectors_stream_bytes(vectors);
    if (bytes > CLI_FILE_BYTES_MAX)
        status =
            reef_fail(err, REEF_ERR_INVALID,
                      "'%.100s' makes %" PRIu64 " bytes of vectors, more than the %zu that fit: "
                      "take a part with ?first=N or ?skip=N",
                      spec, bytes, CLI_FILE_BYTES_MAX);
    // Read as a whole: evaluation goes over it more than once.
    if (status == REEF_OK) {
        file->bytes = reef_cli_alloc((size_t)bytes, 1);
        status = reef_vectors_read_bytes(vectors, 0, file->bytes, (size_t)bytes, &file->count, err);
    }
    reef_vectors_close(vectors);
    if (status != REEF_OK) reef_cli_file_release(file);
    return status;
}

reef_status reef_cli_examples_read(reef_cli_file *file,
                                   const char *path,
                                   const reef_config *config,
                                   reef_error *err) {
    // Vectors are named by format, texts by path.
    if (reef_config_is_vector(config)) return reef_cli_vectors_read(file, path, config, err);
    if (!reef_vectors_is_spec(path)) {
        reef_status status = reef_cli_text_read(file, path, err);
        return status == REEF_OK ? reef_cli_tokens_check(file, config, err) : status;
    }
    *file = (reef_cli_file){0};
    // A layer model takes its input from a program.
    if (reef_config_is_layer(config))
        return reef_fail(err, REEF_ERR_INVALID,
                         "'%.100s' holds vectors, but the pool " CLI_IS_LAYER, path);
    return reef_fail(
        err, REEF_ERR_INVALID,
        "'%.100s' holds vectors, but the pool has a language model: give the path of a "
        "text file, or a pool made with --model vector",
        path);
}

// ---- records ------------------------------------------------------------------------------------

static uint32_t read_u32(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void unpack_vectors(
    const uint8_t *records, size_t count, size_t inputs, int32_t *labels, float *vectors) {
    for (size_t i = 0; i < count; i++) {
        labels[i] = (int32_t)read_u32(records);
        records += REEF_VECTOR_LABEL_BYTES;
        for (size_t k = 0; k < inputs; k++, records += sizeof(float)) {
            uint32_t bits = read_u32(records);
            memcpy(&vectors[i * inputs + k], &bits, sizeof(bits));
        }
    }
}

// Everything that the prediction of some examples at once needs.
typedef struct piece {
    float *vectors, *scores;
    int32_t *labels, *given, *classes;
    uint32_t *generations;
    size_t class_count;
} piece;

static void piece_init(piece *p, const reef_model *model, size_t inputs) {
    *p = (piece){.class_count = reef_model_class_count(model)};
    p->vectors = reef_cli_alloc(EXAMPLES_AT_ONCE * inputs, sizeof(*p->vectors));
    p->scores = reef_cli_alloc(EXAMPLES_AT_ONCE * p->class_count, sizeof(*p->scores));
    p->labels = reef_cli_alloc(EXAMPLES_AT_ONCE, sizeof(*p->labels));
    p->given = reef_cli_alloc(EXAMPLES_AT_ONCE, sizeof(*p->given));
    p->classes = reef_cli_alloc(p->class_count, sizeof(*p->classes));
    p->generations = reef_cli_alloc(EXAMPLES_AT_ONCE, sizeof(*p->generations));
    reef_model_classes(model, p->classes);
}

static void piece_release(piece *p) {
    free(p->vectors);
    free(p->scores);
    free(p->labels);
    free(p->given);
    free(p->classes);
    free(p->generations);
}

// The score of the class that was chosen; NaN while the model knows none.
static double score_of(const piece *p, size_t example) {
    for (size_t c = 0; c < p->class_count; c++)
        if (p->classes[c] == p->labels[example])
            return (double)p->scores[example * p->class_count + c];
    return NAN;
}

reef_status reef_cli_predict(reef_model *model,
                             const reef_cli_file *file,
                             reef_cli_progress *progress,
                             reef_cli_on_prediction visit,
                             void *context,
                             reef_error *err) {
    const reef_config *config = reef_model_config(model);
    // A record is a label and a vector.
    size_t record = reef_vector_record_bytes(config), total = file->count / record;
    piece p;
    piece_init(&p, model, config->inputs);
    reef_status status = REEF_OK;
    for (size_t done = 0; done < total && status == REEF_OK;) {
        // In pieces, so that memory does not grow with the file.
        size_t count = total - done < EXAMPLES_AT_ONCE ? total - done : EXAMPLES_AT_ONCE;
        unpack_vectors(file->bytes + done * record, count, config->inputs, p.given, p.vectors);
        status =
            reef_model_predict(model, count, p.vectors, p.labels, p.scores, p.generations, err);
        for (size_t i = 0; i < count && status == REEF_OK; i++)
            // Results are handed over one by one, in the order of the file.
            visit(context, &(reef_cli_prediction){.label = p.labels[i],
                                                  .given = p.given[i],
                                                  .score = score_of(&p, i),
                                                  .generation = p.generations[i]});
        done += count;
        reef_cli_progress_show(progress, done * record);
    }
    // Done with this file: the bar continues from here for the next.
    progress->done_before += file->count;
    piece_release(&p);
    return status;
}

// ---- accuracy -----------------------------------------------------------------------------------

typedef struct tally {
    reef_cli_accuracy *out;
    uint64_t *answered; // (generation_count)
} tally;

static void on_prediction(void *context, const reef_cli_prediction *one) {
    tally *t = context;
    t->out->examples++;
    t->answered[one->generation]++;
    if (one->given < 0) return;
    t->out->labelled++;
    t->out->right += one->label == one->given;
}

reef_status reef_cli_accuracy_measure(reef_model *model,
                                      const reef_cli_file *file,
                                      reef_cli_progress *progress,
                                      reef_cli_accuracy *out,
                                      reef_error *err) {
    uint32_t generations = reef_model_generation_count(model);
    *out = (reef_cli_accuracy){.accuracy = NAN};
    out->answered_share = reef_cli_alloc(generations, sizeof(*out->answered_share));
    tally t = {.out = out, .answered = reef_cli_alloc(generations, sizeof(*t.answered))};
    reef_status status = reef_cli_predict(model, file, progress, on_prediction, &t, err);
    // Not a number without labels.
    if (out->labelled) out->accuracy = (double)out->right / (double)out->labelled;
    // All shares are zero for an empty file.
    for (uint32_t g = 0; g < generations && out->examples; g++)
        out->answered_share[g] = (double)t.answered[g] / (double)out->examples;
    free(t.answered);
    return status;
}
