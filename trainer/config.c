// The configuration of a pool: one table names every field of reef_config, its default, its bounds and
// its help; command line options, JSON keys and documents all come from it.
//
// What always holds: a value that came through reef_config_set or reef_config_parse lies within its
// field's bounds, and what parse returns has passed reef_config_check as a whole. Text of a
// configuration gives back the same bits. What the fields do is the business of the files that read
// them.
#include "reef_trainer.h"

#include "config.h"
#include "json_build.h"

#include <jansson.h>

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RECORD_BYTES_MAX (UINT32_C(1) << 30) // of the store
#define INTEGER_MAX 9007199254740991.0 // 2^53 - 1: every JSON reader and a double hold it exactly

// field, kind, since, default, lowest, highest, help. The order is the order of the JSON text and of help;
// a new field goes to the end of its group. LATER fields are newer than the first pools: a stored
// configuration may lack them, and their default, or what EARLIER says instead, is what those pools do.
#define CONFIG_TABLE(X)                                                                            \
    X(model, TEXT, FIRST, "lm", 0, 0,                                                              \
      "kind of model: lm, a language model over bytes or token ids; vector, classes of vectors; "  \
      "layer, one "                                                                                \
      "PEER layer by itself, for libreef")                                                         \
    X(seed, INTEGER, FIRST, "1", 0, INTEGER_MAX, "everything random follows from it")              \
    X(layers, INTEGER, FIRST, "4", 1, REEF_LAYER_COUNT_MAX, "transformer blocks")                  \
    X(d_model, INTEGER, FIRST, "128", 2, 4096, "width of a token")                                 \
    X(attention_heads, INTEGER, FIRST, "4", 1, 256, "heads of each block's attention")             \
    X(context, INTEGER, FIRST, "128", 2, 4096, "tokens in a window")                               \
    X(previous_bytes, INTEGER, FIRST, "3", 0, 16,                                                  \
      "tokens before it that a token embeds beside its own")                                       \
    X(batch, INTEGER, FIRST, "4", 1, 1024, "windows of the stream in a training step")             \
    X(rehearse, INTEGER, FIRST, "4", 0, 1024,                                                      \
      "windows beside them, of the open generation's own past")                                    \
    X(ffw, TEXT, FIRST, "p", 0, 0,                                                                 \
      "feed-forward of each block: p (PEER), k (product-key memory), m (mixture of experts), "     \
      "d (dense); one letter for all")                                                             \
    X(d_ffw, INTEGER, FIRST, "512", 1, 65536,                                                      \
      "hidden width of dense feed-forward networks, and of each expert of a mixture")              \
    X(heads, INTEGER, FIRST, "8", 1, 256, "retrieval heads of a layer of kind p or k")             \
    X(topk, INTEGER, FIRST, "16", 1, 1024, "experts that a head retrieves for a token")            \
    X(d_key, INTEGER, FIRST, "64", 2, 4096,                                                        \
      "width of a head's query; each half meets one table of sub-keys")                            \
    X(side, INTEGER, FIRST, "64", 1, 65536,                                                        \
      "sub-keys per side of the first generation; side * side experts")                            \
    X(side_new, INTEGER, FIRST, "64", 1, 65536, "sub-keys per side of later generations")          \
    X(adapters, INTEGER, FIRST, "96", 0, 4096,                                                     \
      "rank of later generations' corrections of attention and dense feed-forwards")               \
    X(adapt_ffw, BOOLEAN, LATER, "true", 0, 1, "correct dense feed-forward networks as well")      \
    X(adapt_position, BOOLEAN, LATER, "true", 0, 1,                                                \
      "correct the embedding of positions as well as that of bytes")                               \
    X(adapt_whole, BOOLEAN, LATER, "true", 0, 1,                                                   \
      "correct a matrix as a whole where low rank would save nothing")                             \
    X(weigh_older, BOOLEAN, LATER, "true", 0, 1,                                                   \
      "later generations weigh what older experts add, where they answer")                         \
    X(batch_norm, BOOLEAN, FIRST, "true", 0, 1, "batch norm on queries")                           \
    X(expert, TEXT, LATER, "gelu", 0, 0,                                                           \
      "what an expert is: gelu, relu, or glu (gated, a third vector)")                             \
    X(score, TEXT, LATER, "softmax", 0, 0,                                                         \
      "weight of an expert by its score: softmax, sigmoid or relu")                                \
    X(subkeys, TEXT, LATER, "shared", 0, 0,                                                        \
      "tables of sub-keys: shared by all heads, or head (tables for each)")                        \
    X(moe_experts, INTEGER, LATER, "8", 1, 1024, "experts of a mixture of experts")                \
    X(moe_capacity, NUMBER, LATER, "1", 0.001, 1024,                                               \
      "experts of a mixture that a token has on average: each takes its best tokens of a window")  \
    X(vocab, INTEGER, LATER, "256", 2, 65536,                                                      \
      "tokens that there are: 256 for bytes, else ids of two bytes each, little-endian")           \
    X(learning_rate, NUMBER, FIRST, "0.002", 0, 10,                                                \
      "Adam's rate for dense parameters after warm-up")                                            \
    X(expert_rate, NUMBER, FIRST, "6", 0, 1000, "factor on the learning rate for rows of experts") \
    X(warmup, INTEGER, FIRST, "80", 0, 1e9, "steps of each generation over which the rate rises")  \
    X(decay, INTEGER, FIRST, "400", 1, 1e9,                                                        \
      "steps; rate = learning_rate / sqrt(1 + steps / decay)")                                     \
    X(beta1, NUMBER, FIRST, "0.9", 0, 0.999999, "Adam: memory of the mean gradient")               \
    X(beta2, NUMBER, FIRST, "0.98", 0, 0.999999, "Adam: memory of the squared gradient")           \
    X(epsilon, NUMBER, FIRST, "1e-08", 1e-16, 1,                                                   \
      "Adam: added to the root of the squared gradient")                                           \
    X(clip, NUMBER, FIRST, "1", 0, 1e6, "bound on the norm of the dense gradient; 0 for none")     \
    X(bn_momentum, NUMBER, FIRST, "0.05", 0, 1,                                                    \
      "share of a batch in the running query statistics")                                          \
    X(average, NUMBER, LATER, "0.01", 0, 1,                                                        \
      "rate of the weights' running average, which is what is stored; 0: none; vector: none")      \
    X(boundaries, TEXT, LATER, "drift", 0, 0,                                                      \
      "where a generation ends: drift, given, budget or capacity")                                 \
    X(boundary_bytes, INTEGER, LATER, "1048576", 1, INTEGER_MAX,                                   \
      "budget: bytes from one boundary to the next, in whole batches")                             \
    X(boundary_mark, TEXT, LATER, "", 0, 0,                                                        \
      "a line of the stream that is exactly this text is a boundary; empty for none")              \
    X(capacity_uses, INTEGER, LATER, "10000", 1, INTEGER_MAX,                                      \
      "capacity: uses after which an expert counts as full")                                       \
    X(capacity_share, NUMBER, LATER, "0.9", 0.001, 1,                                              \
      "capacity: share of full experts that makes a boundary")                                     \
    X(growth, TEXT, LATER, "generation", 0, 0,                                                     \
      "what a boundary does: generation (seal, open the next) or in_place (enlarge)")              \
    X(size_new, TEXT, LATER, "fixed", 0, 0,                                                        \
      "side of later generations: fixed (side_new) or auto (half to twice, by distance)")          \
    X(experts_max, INTEGER, LATER, "0", 0, INTEGER_MAX,                                            \
      "bound on experts in all generations and layers together; 0 for none")                       \
    X(subkeys_new, TEXT, LATER, "random", 0, 0,                                                    \
      "first sub-keys of later generations: random, or queries of their own data")                 \
    X(copy_experts, INTEGER, LATER, "0", 0, 4294967295.0,                                          \
      "experts a layer whose w_down a new generation copies from those before it")                 \
    X(branch_new, TEXT, LATER, "never", 0, 0,                                                      \
      "a later generation begins as a copy of a sealed one: never, or trial (where that learns "   \
      "its "                                                                                       \
      "first data better)")                                                                        \
    X(recycle_after, INTEGER, LATER, "0", 0, INTEGER_MAX,                                          \
      "bytes trained without a use after which an expert begins anew; 0: never")                   \
    X(drift_z, NUMBER, FIRST, "6", 0, 1000, "robust z-score above which a batch is suspicious")    \
    X(drift_bits, NUMBER, FIRST, "0.35", 0, 64, "bits per byte above the median it needs as well") \
    X(drift_window, INTEGER, FIRST, "128", 4, 65536, "batches of history")                         \
    X(drift_confirm, INTEGER, FIRST, "40", 1, 4096, "suspicious batches that make a boundary")     \
    X(drift_share, NUMBER, LATER, "0.125", 0, 1,                                                   \
      "and at least this share of the batches that the generation has trained on")                 \
    X(drift_hold, INTEGER, LATER, "512", 1, 65536, "suspicious batches that are always enough")    \
    X(drift_warmup, INTEGER, FIRST, "96", 1, 1e9,                                                  \
      "batches of a generation before drift is looked for")                                        \
    X(leak_max, NUMBER, FIRST, "0.005", 0, 0.5, "share of old bytes on which a new gate may fire") \
    X(fire_max, INTEGER, FIRST, "1", 1, 65536,                                                     \
      "generations after the first that may fire on one byte, the newest first")                   \
    X(gate, TEXT, LATER, "ngram", 0, 0,                                                            \
      "what later generations fire on: ngram (bytes like their own), loss (as well, where "        \
      "n-grams are not enough, what older generations foresee badly), or off (all)")               \
    X(gate_decay, NUMBER, FIRST, "0", 0, 0.99999,                                                  \
      "memory of a gate's mean over the stream; 0: as short as the data allows")                   \
    X(gate_negatives, INTEGER, LATER, "0", 0, 64,                                                  \
      "times more that a gate is fitted on old windows like its own data")                         \
    X(reservoir_bytes, INTEGER, FIRST, "1048576", 32, 4294967295.0,                                \
      "sample of the past that gates are fitted on")                                               \
    X(reservoir_window, INTEGER, FIRST, "1024", 16, 1048576, "bytes in one sampled window")        \
    X(retain_weight, NUMBER, FIRST, "1", 0, 1000,                                                  \
      "weight of silence on old bytes that leak; 0 for none")                                      \
    X(seal_dtype, TEXT, LATER, "f32", 0, 0,                                                        \
      "rows of experts once sealed: f32, or bf16 at half the bytes")                               \
    X(strategy, TEXT, LATER, "generations", 0, 0,                                                  \
      "generations; or one for ever: finetune, replay, ewc, lwf, joint, sparse-memory, grid")      \
    X(replay_share, NUMBER, LATER, "0.25", 0, 0.9,                                                 \
      "replay: share of trained windows that are old data")                                        \
    X(ewc_weight, NUMBER, LATER, "3000", 0, 1e9, "ewc: weight of the penalty on change")           \
    X(lwf_weight, NUMBER, LATER, "4", 0, 1000,                                                     \
      "lwf: weight of the distillation from the model of the last boundary")                       \
    X(lwf_temperature, NUMBER, LATER, "2", 0.1, 100, "lwf: temperature of both softmaxes")         \
    X(sparse_slots, INTEGER, LATER, "1024", 1, 1e9,                                                \
      "sparse-memory: experts of a layer that one step changes")                                   \
    X(inputs, INTEGER, LATER, "0", 0, 32767, "vector: width of a vector; 0 for lm")                \
    X(memory, INTEGER, LATER, "500", 0, 1000000,                                                   \
      "vector: examples kept, with labels, as a sample of the past")                               \
    X(ridge, NUMBER, LATER, "0.05", 1e-8, 1e6,                                                     \
      "vector: penalty on w_up, in squared norms of a hidden vector")                              \
    X(vector_gate, TEXT, LATER, "ridge", 0, 0,                                                     \
      "vector: what tells generations apart: ridge, or off (the newest answers)")

#define FIELD_TYPE_TEXT "text"
#define FIELD_TYPE_INTEGER "integer"
#define FIELD_TYPE_BOOLEAN "boolean"
#define FIELD_TYPE_NUMBER "number"

static const reef_config_field FIELDS[] = {
#define CONFIG_FIELD(field, kind, since, standard, low, high, help)                                \
    {#field,                                                                                       \
     FIELD_TYPE_##kind,                                                                            \
     help,                                                                                         \
     standard,                                                                                     \
     low,                                                                                          \
     high,                                                                                         \
     offsetof(reef_config, field),                                                                 \
     sizeof(((reef_config *)NULL)->field)},
    CONFIG_TABLE(CONFIG_FIELD)
#undef CONFIG_FIELD
};

// By field, beside FIELDS, which is public.
static const enum since {
    FIRST,
    LATER
} SINCE[] = {
#define CONFIG_SINCE(field, kind, since, standard, low, high, help) since,
    CONFIG_TABLE(CONFIG_SINCE)
#undef CONFIG_SINCE
};

#define FIELD_COUNT (sizeof(FIELDS) / sizeof(FIELDS[0]))
#define FIELD_NAME_BYTES_MAX 32 // with the final zero; longer names match none and suggest none

const reef_config_field *reef_config_fields(size_t *count) {
    *count = FIELD_COUNT;
    return FIELDS;
}

// ---- one field -----------------------------------------------------------------------------------

static bool is_type(const reef_config_field *field, const char *type) {
    return strcmp(field->type, type) == 0;
}

static char *field_at(reef_config *config, const reef_config_field *field) {
    return (char *)config + field->offset;
}

static const char *field_in(const reef_config *config, const reef_config_field *field) {
    return (const char *)config + field->offset;
}

static uint64_t integer_of(const reef_config *config, const reef_config_field *field) {
    uint32_t narrow;
    uint64_t wide;
    if (field->bytes == sizeof(narrow)) {
        memcpy(&narrow, field_in(config, field), sizeof(narrow));
        return narrow;
    }
    memcpy(&wide, field_in(config, field), sizeof(wide));
    return wide;
}

static float number_of(const reef_config *config, const reef_config_field *field) {
    float number;
    memcpy(&number, field_in(config, field), sizeof(number));
    return number;
}

static bool boolean_of(const reef_config *config, const reef_config_field *field) {
    bool boolean;
    memcpy(&boolean, field_in(config, field), sizeof(boolean));
    return boolean;
}

static reef_status integer_store(reef_config *config,
                                 const reef_config_field *field,
                                 uint64_t value,
                                 reef_error *err) {
    // INTEGER_MAX first, so that the conversion to double below is exact.
    if (value > (uint64_t)INTEGER_MAX || (double)value < field->low || (double)value > field->high)
        return reef_fail(err, REEF_INVALID, "%s is %" PRIu64 ", but must be %.0f to %.0f",
                         field->name, value, field->low, field->high);
    uint32_t narrow = (uint32_t)value;
    if (field->bytes == sizeof(narrow))
        memcpy(field_at(config, field), &narrow, sizeof(narrow));
    else
        memcpy(field_at(config, field), &value, sizeof(value));
    return REEF_OK;
}

static reef_status number_store(reef_config *config,
                                const reef_config_field *field,
                                double value,
                                reef_error *err) {
    // The bounds are compared as floats, so that a bound itself is inside after rounding. The negated
    // form refuses NaN too.
    float number = (float)value;
    if (!(number >= (float)field->low && number <= (float)field->high))
        return reef_fail(err, REEF_INVALID, "%s is %.9g, but must be %.9g to %.9g", field->name,
                         value, field->low, field->high);
    memcpy(field_at(config, field), &number, sizeof(number));
    return REEF_OK;
}

// Text fields that are one of a few words.
static const struct choice {
    const char *name;
    const char *words[10]; // up to the first NULL
    const char *fault;
} CHOICES[] = {
    {"model", {"lm", "vector", "layer"}, "must be lm, vector or layer"},
    {"vector_gate", {"ridge", "off"}, "must be ridge or off"},
    {"expert", {"gelu", "relu", "glu"}, "must be gelu, relu or glu"},
    {"score", {"softmax", "sigmoid", "relu"}, "must be softmax, sigmoid or relu"},
    {"subkeys", {"shared", "head"}, "must be shared or head"},
    {"boundaries",
     {"drift", "given", "budget", "capacity"},
     "must be drift, given, budget or capacity"},
    {"growth", {"generation", "in_place"}, "must be generation or in_place"},
    {"size_new", {"fixed", "auto"}, "must be fixed or auto"},
    {"subkeys_new", {"random", "queries"}, "must be random or queries"},
    {"branch_new", {"never", "trial"}, "must be never or trial"},
    {"gate", {"ngram", "loss", "off"}, "must be ngram, loss or off"},
    {"seal_dtype", {"f32", "bf16"}, "must be f32 or bf16"},
    {"strategy",
     {"generations", "finetune", "replay", "ewc", "lwf", "joint", "sparse-memory", "grid"},
     "must be generations, finetune, replay, ewc, lwf, joint, sparse-memory or grid"},
};

static const struct choice *choice_of(const reef_config_field *field) {
    for (size_t i = 0; i < sizeof(CHOICES) / sizeof(CHOICES[0]); i++)
        if (strcmp(field->name, CHOICES[i].name) == 0) return &CHOICES[i];
    return NULL;
}

static bool is_choice(const struct choice *choice, const char *value) {
    for (size_t i = 0; choice->words[i]; i++)
        if (strcmp(value, choice->words[i]) == 0) return true;
    return false;
}

// Text is what one line can hold and every JSON reader takes.
static bool is_printable(const char *value) {
    for (; *value != '\0'; value++)
        if (*value < ' ' || *value > '~') return false;
    return true;
}

// What is wrong with the letters of a text field, or NULL. How the length of ffw meets the number of
// layers is for reef_config_check: fields are set one after the other.
static const char *text_fault(const reef_config_field *field, const char *value) {
    const struct choice *choice = choice_of(field);
    if (choice) return is_choice(choice, value) ? NULL : choice->fault;
    if (strcmp(field->name, "boundary_mark") == 0) return NULL; // any letters
    if (value[0] == '\0' || value[strspn(value, "pdmk")] != '\0')
        return "must be letters p (PEER), k (product-key memory), m (mixture of experts) or d "
               "(dense), one for all blocks or one per block";
    return NULL;
}

static reef_status text_store(reef_config *config,
                              const reef_config_field *field,
                              const char *value,
                              reef_error *err) {
    size_t bytes = strlen(value);
    if (!is_printable(value)) // nor can a message show it
        return reef_fail(err, REEF_INVALID, "%s must be one line of printable ASCII letters",
                         field->name);
    const char *fault = text_fault(field, value);
    if (fault)
        return reef_fail(err, REEF_INVALID, "%s is '%.64s', but %s", field->name, value, fault);
    if (bytes >= field->bytes)
        return reef_fail(err, REEF_INVALID, "%s is %.64s%s, but may have at most %zu letters",
                         field->name, value, bytes > 64 ? "..." : "", field->bytes - 1);
    // The whole field is written, so that equal configurations are equal bytes.
    memset(field_at(config, field), 0, field->bytes);
    memcpy(field_at(config, field), value, bytes);
    return REEF_OK;
}

static reef_status boolean_store(reef_config *config,
                                 const reef_config_field *field,
                                 const char *value,
                                 reef_error *err) {
    static const struct {
        const char *word;
        bool value;
    } WORDS[] = {{"true", true},   {"yes", true}, {"on", true},   {"1", true},
                 {"false", false}, {"no", false}, {"off", false}, {"0", false}};
    for (size_t i = 0; i < sizeof(WORDS) / sizeof(WORDS[0]); i++) {
        if (strcmp(value, WORDS[i].word) != 0) continue;
        memcpy(field_at(config, field), &WORDS[i].value, sizeof(bool));
        return REEF_OK;
    }
    return reef_fail(err, REEF_INVALID, "%s is '%.64s', but must be true or false", field->name,
                     value);
}

static reef_status integer_read(reef_config *config,
                                const reef_config_field *field,
                                const char *value,
                                reef_error *err) {
    // strtoull would take signs, blanks and the empty text.
    size_t digits = strspn(value, "0123456789");
    errno = 0;
    uint64_t integer = strtoull(value, NULL, 10);
    if (digits == 0 || value[digits] != '\0' || errno == ERANGE)
        return reef_fail(err, REEF_INVALID, "%s is '%.64s', but must be an integer, %.0f to %.0f",
                         field->name, value, field->low, field->high);
    return integer_store(config, field, integer, err);
}

static reef_status number_read(reef_config *config,
                               const reef_config_field *field,
                               const char *value,
                               reef_error *err) {
    // Only what a decimal number consists of: strtod alone would take blanks, hexadecimal and "nan".
    char *end = NULL;
    double number = strtod(value, &end);
    if (end == value || *end != '\0' || value[strspn(value, "0123456789+-.eE")] != '\0')
        return reef_fail(err, REEF_INVALID, "%s is '%.64s', but must be a number, %.9g to %.9g",
                         field->name, value, field->low, field->high);
    return number_store(config, field, number, err);
}

static reef_status field_read(reef_config *config,
                              const reef_config_field *field,
                              const char *value,
                              reef_error *err) {
    if (is_type(field, FIELD_TYPE_INTEGER)) return integer_read(config, field, value, err);
    if (is_type(field, FIELD_TYPE_NUMBER)) return number_read(config, field, value, err);
    if (is_type(field, FIELD_TYPE_BOOLEAN)) return boolean_store(config, field, value, err);
    return text_store(config, field, value, err);
}

void reef_config_default(reef_config *config) {
    memset(config, 0, sizeof(*config)); // padding too: equal configurations are equal bytes
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        reef_status status = field_read(config, &FIELDS[i], FIELDS[i].standard, NULL);
        assert(status == REEF_OK);
        (void)status;
    }
}

// ---- names ---------------------------------------------------------------------------------------

// d-model and d_model are the same name.
static char name_letter(char letter) {
    return letter == '-' ? '_' : letter;
}

static const reef_config_field *field_find(const char *name) {
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        size_t at = 0;
        while (name[at] != '\0' && name_letter(name[at]) == FIELDS[i].name[at]) at++;
        if (name[at] == '\0' && FIELDS[i].name[at] == '\0') return &FIELDS[i];
    }
    return NULL;
}

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

// Letters to insert, remove or replace to get from one name to the other (Levenshtein).
static size_t name_distance(const char *name, const char *other) {
    size_t row[FIELD_NAME_BYTES_MAX];
    size_t columns = strlen(other);
    assert(columns < FIELD_NAME_BYTES_MAX);
    for (size_t j = 0; j <= columns; j++) row[j] = j;
    for (size_t i = 0; name[i] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < columns; j++) {
            size_t replace = diagonal + (name_letter(name[i]) == other[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = least(replace, least(row[j], diagonal) + 1);
        }
    }
    return row[columns];
}

static reef_status unknown_name(const char *name, reef_error *err) {
    const reef_config_field *closest = NULL;
    size_t distance_min = SIZE_MAX;
    for (size_t i = 0; i < FIELD_COUNT && strlen(name) < FIELD_NAME_BYTES_MAX; i++) {
        size_t distance = name_distance(name, FIELDS[i].name);
        if (distance >= distance_min) continue;
        distance_min = distance;
        closest = &FIELDS[i];
    }
    // A suggestion that shares less than half of the letters is no help.
    if (!closest || distance_min > (strlen(name) + 1) / 2)
        return reef_fail(err, REEF_INVALID, "no setting is called '%.64s'", name);
    return reef_fail(err, REEF_INVALID, "no setting is called '%.64s'; did you mean %s?", name,
                     closest->name);
}

reef_status reef_config_set(reef_config *config,
                            const char *name,
                            const char *value,
                            reef_error *err) {
    const reef_config_field *field = field_find(name);
    if (!field) return unknown_name(name, err);
    return field_read(config, field, value, err);
}

// ---- the whole -----------------------------------------------------------------------------------

// A configuration need not have come through reef_config_set.
static reef_status bounds_check(const reef_config *config, reef_error *err) {
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        const reef_config_field *field = &FIELDS[i];
        reef_config copy = *config;
        reef_status status = REEF_OK;
        if (is_type(field, FIELD_TYPE_INTEGER))
            status = integer_store(&copy, field, integer_of(config, field), err);
        else if (is_type(field, FIELD_TYPE_NUMBER))
            status = number_store(&copy, field, (double)number_of(config, field), err);
        else if (is_type(field, FIELD_TYPE_TEXT)) {
            if (!memchr(field_in(config, field), '\0', field->bytes))
                return reef_fail(err, REEF_INVALID, "%s has no end", field->name);
            status = text_store(&copy, field, field_in(config, field), err);
        }
        if (status != REEF_OK) return status;
    }
    return REEF_OK;
}

// Ids have no lines, and a window of the reservoir holds whole ones.
static reef_status vocab_check(const reef_config *c, reef_error *err) {
    double bytes = 3.0 * sizeof(float) * (1.0 + c->previous_bytes) * c->vocab * c->d_model;
    if (bytes > (double)RECORD_BYTES_MAX)
        return reef_fail(err, REEF_INVALID,
                         "vocab %" PRIu32 " * d_model %" PRIu32 " * (1 + previous_bytes %" PRIu32
                         ") are more values than a pool keeps of one embedding, %d; lower "
                         "previous_bytes or d_model",
                         c->vocab, c->d_model, c->previous_bytes,
                         (int)(RECORD_BYTES_MAX / (3 * sizeof(float))));
    if (reef_token_bytes(c) == 1) return REEF_OK;
    if (c->boundary_mark[0] != '\0')
        return reef_fail(err, REEF_INVALID,
                         "boundary_mark is a line of text, but with vocab %" PRIu32
                         " the stream is token ids; leave it out",
                         c->vocab);
    if (c->reservoir_window % 2 != 0)
        return reef_fail(err, REEF_INVALID,
                         "reservoir_window %" PRIu32 " is odd, but with vocab %" PRIu32
                         " a token takes two bytes; make it even",
                         c->reservoir_window, c->vocab);
    return REEF_OK;
}

static reef_status model_check(const reef_config *c, reef_error *err) {
    if (c->d_model % c->attention_heads != 0)
        return reef_fail(err, REEF_INVALID,
                         "d_model %" PRIu32 " is not a multiple of attention_heads %" PRIu32
                         "; make each head's width a whole number",
                         c->d_model, c->attention_heads);
    size_t letters = strlen(c->ffw);
    if (letters != 1 && letters != c->layers)
        return reef_fail(err, REEF_INVALID,
                         "ffw '%s' has %zu letters for %" PRIu32
                         " layers; give one letter for all or one per layer",
                         c->ffw, letters, c->layers);
    // One record of the store holds the moments of a tensor, and with `average` what training moves.
    double bytes = 3.0 * sizeof(float) * c->moe_experts * c->d_model * c->d_ffw;
    if (strchr(c->ffw, 'm') != NULL && bytes > (double)RECORD_BYTES_MAX)
        return reef_fail(err, REEF_INVALID,
                         "moe_experts %" PRIu32 " * d_model %" PRIu32 " * d_ffw %" PRIu32
                         " are more values than a pool keeps of one mixture, %d; make the experts "
                         "fewer or narrower",
                         c->moe_experts, c->d_model, c->d_ffw,
                         (int)(RECORD_BYTES_MAX / (3 * sizeof(float))));
    return REEF_OK;
}

static reef_status side_check(const reef_config *c,
                              const char *name,
                              uint32_t side,
                              reef_error *err) {
    if (c->topk > side)
        return reef_fail(err, REEF_INVALID,
                         "topk %" PRIu32 " is more than the %" PRIu32
                         " sub-keys of %s; lower topk or raise %s",
                         c->topk, side, name, name);
    // The router may have bounds of its own.
    reef_router_shape shape = {.d_model = c->d_model,
                               .head_count = c->heads,
                               .topk = c->topk,
                               .d_key = c->d_key,
                               .side = side,
                               .batch_norm = c->batch_norm};
    return reef_router_shape_check(&shape, err);
}

static reef_status peer_check(const reef_config *c, reef_error *err) {
    if (c->d_key % 2 != 0)
        return reef_fail(err, REEF_INVALID,
                         "d_key %" PRIu32 " is odd; each half of a query meets one table of "
                         "sub-keys, so make it even",
                         c->d_key);
    reef_status status = side_check(c, "side", c->side, err);
    if (status != REEF_OK) return status;
    status = side_check(c, "side_new", c->side_new, err);
    if (status != REEF_OK) return status;
    // The update pass numbers (token, expert) pairs with 32 bits.
    double pairs = (double)c->batch * c->context * c->heads * c->topk;
    if (pairs > (double)UINT32_MAX)
        return reef_fail(err, REEF_INVALID,
                         "batch %" PRIu32 " * context %" PRIu32 " * heads %" PRIu32
                         " * topk %" PRIu32 " is more than 2^32; make the batch smaller",
                         c->batch, c->context, c->heads, c->topk);
    return REEF_OK;
}

static reef_status policy_check(const reef_config *c, reef_error *err) {
    if (c->reservoir_bytes / c->reservoir_window < 2)
        return reef_fail(err, REEF_INVALID,
                         "reservoir_bytes %" PRIu32 " holds fewer than two windows of "
                         "reservoir_window %" PRIu32 ": one fits gates, one calibrates them",
                         c->reservoir_bytes, c->reservoir_window);
    uint64_t first = (uint64_t)reef_config_retrieving_layers(c) * c->side * c->side;
    if (c->experts_max > 0 && c->experts_max < first)
        return reef_fail(err, REEF_INVALID,
                         "experts_max %" PRIu64 " is less than the %" PRIu64
                         " experts of the first generation; raise it, or lower side",
                         c->experts_max, first);
    return REEF_OK;
}

static reef_status vector_check(const reef_config *c, reef_error *err) {
    static const char *const STRATEGIES[] = {"generations", "finetune", "replay", "joint"};
    bool known = false;
    if (c->inputs == 0)
        return reef_fail(err, REEF_INVALID,
                         "a vector model needs inputs, the width of a vector; it is 0");
    for (size_t i = 0; i < sizeof(STRATEGIES) / sizeof(STRATEGIES[0]); i++)
        known |= strcmp(c->strategy, STRATEGIES[i]) == 0;
    if (!known)
        return reef_fail(err, REEF_INVALID,
                         "strategy %s is for language models; with vectors choose generations, "
                         "finetune, replay or joint",
                         c->strategy);
    if (strcmp(c->strategy, "replay") == 0 && c->memory == 0)
        return reef_fail(err, REEF_INVALID,
                         "strategy replay needs a memory to replay from; it is 0");
    if (strcmp(c->boundaries, "drift") != 0 && strcmp(c->boundaries, "given") != 0)
        return reef_fail(err, REEF_INVALID,
                         "boundaries %s is for language models; with vectors choose drift or given",
                         c->boundaries);
    const struct {
        const char *name;
        bool set;
    } policies[] = {
        {"boundary_mark", c->boundary_mark[0] != '\0'},
        {"growth in_place", strcmp(c->growth, "generation") != 0},
        {"size_new auto", strcmp(c->size_new, "fixed") != 0},
        {"experts_max", c->experts_max > 0},
        {"copy_experts", c->copy_experts > 0},
        {"recycle_after", c->recycle_after > 0},
        {"ffw with letters k or m", strpbrk(c->ffw, "km") != NULL},
        {"subkeys head", strcmp(c->subkeys, "shared") != 0},
        {"vocab", c->vocab != REEF_VOCAB},
    };
    for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++)
        if (policies[i].set)
            return reef_fail(err, REEF_INVALID,
                             "%s is for language models; leave it out with vectors",
                             policies[i].name);
    if (c->side > REEF_VECTOR_SIDE_MAX)
        return reef_fail(err, REEF_INVALID,
                         "side %" PRIu32 " is too large for a vector model, which solves for all "
                         "side * side experts at once; choose at most %d",
                         c->side, REEF_VECTOR_SIDE_MAX);
    return REEF_OK;
}

// The fields that reef_config_reduce sets may be anything.
static reef_status layer_check(const reef_config *c, reef_error *err) {
    if (strcmp(c->strategy, "generations") != 0)
        return reef_fail(err, REEF_INVALID,
                         "strategy %s is for language models; a layer by itself has generations",
                         c->strategy);
    return peer_check(c, err);
}

// Rivals that learn from old data read windows of T tokens, and their targets, out of the reservoir's.
static reef_status strategy_check(const reef_config *c, reef_error *err) {
    const char *const keepers[] = {"ewc", "lwf", "sparse-memory", "grid"};
    for (size_t i = 0; i < sizeof(keepers) / sizeof(keepers[0]); i++)
        if (strcmp(c->strategy, keepers[i]) == 0 && c->recycle_after > 0)
            return reef_fail(err, REEF_INVALID,
                             "recycle_after %" PRIu64 " does not go with strategy %s, which keeps "
                             "what experts were at a boundary; leave it at 0",
                             c->recycle_after, c->strategy);
    const char *const readers[] = {"replay", "ewc", "sparse-memory"};
    uint64_t each = reef_token_bytes(c), batch_bytes = (uint64_t)c->batch * c->context * each;
    uint64_t window = c->reservoir_window < batch_bytes ? c->reservoir_window : batch_bytes;
    for (size_t i = 0; i < sizeof(readers) / sizeof(readers[0]); i++)
        if (strcmp(c->strategy, readers[i]) == 0 && window <= c->context * each)
            return reef_fail(err, REEF_INVALID,
                             "strategy %s reads %" PRIu32
                             " tokens and the next one out of the reservoir's windows of %" PRIu64
                             " bytes; raise reservoir_window above context, and batch to 2 or more",
                             c->strategy, c->context, window);
    return REEF_OK;
}

void reef_config_reduce(reef_config *config) {
    if (!reef_config_is_layer(config)) return;
    config->layers = config->attention_heads = 1;
    config->ffw[0] = 'p';
    config->ffw[1] = '\0';
    config->adapters = 0;
    config->vocab = REEF_VOCAB;
    config->average = 0.0f;
    config->recycle_after = 0;
    config->copy_experts = 0;
}

reef_status reef_config_check(const reef_config *config, reef_error *err) {
    reef_status status = bounds_check(config, err);
    // The fields of the other kind of model are not looked at: their bounds are all that they have to meet.
    if (status == REEF_OK && reef_config_is_vector(config)) return vector_check(config, err);
    if (status == REEF_OK && config->inputs != 0)
        return reef_fail(err, REEF_INVALID,
                         "inputs %" PRIu32 " is for vector models; with lm it must be 0",
                         config->inputs);
    if (status == REEF_OK && reef_config_is_layer(config)) return layer_check(config, err);
    if (status == REEF_OK) status = model_check(config, err);
    if (status == REEF_OK) status = vocab_check(config, err);
    if (status == REEF_OK) status = peer_check(config, err);
    if (status == REEF_OK) status = policy_check(config, err);
    if (status == REEF_OK) status = strategy_check(config, err);
    return status;
}

// ---- JSON ----------------------------------------------------------------------------------------

#define FLOAT_DIGITS_MAX 9 // decimal digits that tell any two floats apart

// The double of the fewest digits that still rounds to `number`, so that 0.002f is written 0.002.
static double shortest(float number) {
    double value = (double)number;
    for (int digits = 1; digits <= FLOAT_DIGITS_MAX; digits++) {
        char text[32];
        snprintf(text, sizeof(text), "%.*g", digits, (double)number);
        value = strtod(text, NULL);
        if ((float)value == number) break;
    }
    return value;
}

static json_t *field_json(const reef_config *config, const reef_config_field *field) {
    if (is_type(field, FIELD_TYPE_INTEGER))
        return json_integer((json_int_t)integer_of(config, field));
    if (is_type(field, FIELD_TYPE_NUMBER)) return json_real(shortest(number_of(config, field)));
    if (is_type(field, FIELD_TYPE_BOOLEAN)) return json_boolean(boolean_of(config, field));
    return json_string(field_in(config, field));
}

char *reef_config_format(const reef_config *config) {
    char *text = NULL;
    json_t *object = json_object();
    if (!object) return NULL;
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        // Takes over the value, and refuses NULL.
        if (json_object_set_new(object, FIELDS[i].name, field_json(config, &FIELDS[i])) != 0)
            goto cleanup;
    }
    text = json_dumps(object, JSON_REAL_PRECISION(FLOAT_DIGITS_MAX));

cleanup:
    json_decref(object);
    return text;
}

static reef_status field_parse(reef_config *config,
                               const reef_config_field *field,
                               const json_t *value,
                               reef_error *err) {
    if (is_type(field, FIELD_TYPE_INTEGER) && json_is_integer(value)) {
        json_int_t integer = json_integer_value(value);
        if (integer < 0)
            return reef_fail(err, REEF_INVALID,
                             "%s is %" JSON_INTEGER_FORMAT ", but must be %.0f to %.0f",
                             field->name, integer, field->low, field->high);
        return integer_store(config, field, (uint64_t)integer, err);
    }
    if (is_type(field, FIELD_TYPE_NUMBER) && json_is_number(value))
        return number_store(config, field, json_number_value(value), err);
    if (is_type(field, FIELD_TYPE_BOOLEAN) && json_is_boolean(value))
        return boolean_store(config, field, json_is_true(value) ? "true" : "false", err);
    if (is_type(field, FIELD_TYPE_TEXT) && json_is_string(value))
        return text_store(config, field, json_string_value(value), err);
    return reef_fail(err, REEF_INVALID, "%s in the configuration is not %s %s", field->name,
                     is_type(field, FIELD_TYPE_INTEGER) ? "an" : "a", field->type);
}

// What pools did before a LATER field existed, where that is not the default of new ones.
static const struct earlier {
    const char *name, *value;
} EARLIER[] = {
    {"adapt_ffw", "false"}, {"adapt_position", "false"}, {"adapt_whole", "false"},
    {"average", "0"},       {"drift_share", "0"},        {"weigh_older", "false"},
};

static void default_of_older_pools(reef_config *config) {
    reef_config_default(config);
    for (size_t i = 0; i < sizeof(EARLIER) / sizeof(EARLIER[0]); i++) {
        reef_status status = reef_config_set(config, EARLIER[i].name, EARLIER[i].value, NULL);
        assert(status == REEF_OK);
        (void)status;
    }
}

// The first pools said "drift": true or false for what is "boundaries": "drift" or "given" today.
static reef_status translate_drift(json_t *object, reef_error *err) {
    json_t *drift = json_object_get(object, "drift");
    if (!json_is_boolean(drift)) return REEF_OK;
    json_t *boundaries = json_string(json_is_true(drift) ? "drift" : "given");
    if (json_object_set_new(object, "boundaries", boundaries) != 0)
        return reef_fail(err, REEF_NO_MEMORY, "no memory for the configuration");
    json_object_del(object, "drift");
    return REEF_OK;
}

static reef_status object_parse(reef_config *config, json_t *object, reef_error *err) {
    const char *name;
    json_t *value;
    reef_status translated = translate_drift(object, err);
    if (translated != REEF_OK) return translated;
    json_object_foreach(object, name, value) {
        bool known = false;
        for (size_t i = 0; i < FIELD_COUNT; i++) known |= strcmp(name, FIELDS[i].name) == 0;
        if (!known) return unknown_name(name, err);
    }
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        value = json_object_get(object, FIELDS[i].name);
        if (!value && SINCE[i] == LATER) continue; // as older pools did, from reef_config_parse
        if (!value)
            return reef_fail(err, REEF_INVALID, "the configuration does not set %s",
                             FIELDS[i].name);
        reef_status status = field_parse(config, &FIELDS[i], value, err);
        if (status != REEF_OK) return status;
    }
    return reef_config_check(config, err);
}

reef_status reef_config_parse(reef_config *config,
                              const char *json,
                              size_t bytes,
                              reef_error *err) {
    json_error_t fault;
    reef_config parsed;
    default_of_older_pools(&parsed);
    json_t *object = json_loadb(json, bytes, JSON_REJECT_DUPLICATES, &fault);
    if (!object && reef_json_no_memory(&fault))
        return reef_fail(err, REEF_NO_MEMORY, "no memory for the configuration");
    if (!object)
        return reef_fail(err, REEF_INVALID,
                         "the configuration is not JSON: %s at line %d, column %d", fault.text,
                         fault.line, fault.column);
    reef_status status = json_is_object(object)
                             ? object_parse(&parsed, object, err)
                             : reef_fail(err, REEF_INVALID, "the configuration is no JSON object");
    json_decref(object);
    reef_config_reduce(&parsed);
    if (status == REEF_OK) *config = parsed; // untouched on failure
    return status;
}

reef_status reef_config_read(reef_txn *txn, reef_config *config, reef_error *err) {
    reef_view view;
    reef_key key = {.db = REEF_DB_META, .name = REEF_CONFIG_RECORD};
    reef_status status = reef_record_view(txn, &key, &view, err);
    if (status != REEF_OK) return status;
    return reef_config_parse(config, view.data, view.bytes, err);
}
