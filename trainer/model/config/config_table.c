// The configuration of a pool: one table names every field of reef_config, its default, its bounds
// and its help; command line options, JSON keys and documents all come from it.
#include "config_internal.h"

#include <assert.h>
#include <string.h>

#define INTEGER_MAX 9007199254740991.0 // 2^53 - 1: every JSON reader and a double hold it exactly

// field, kind, default, lowest, highest, help. The order is the order of the JSON text and
// of help; a new field goes to the end of its group. What nobody turns is a constant beside the
// code that reads it, and no field. Defaults are what a model of bytes is made with: a context
// memory, and beside it a small net, since one that learns much of the stream once is worth more
// than a large one that learns little of it (docs/LEARNING.md).
#define CONFIG_TABLE(X)                                                                            \
    X(model, CHOICE, "lm", 0, 0,                                                                   \
      "kind of model: lm, a language model over bytes; layer, one PEER layer by itself, for "      \
      "libreef")                                                                                   \
    X(seed, INTEGER, "1", 0, INTEGER_MAX, "everything random follows from it")                     \
    X(layers, INTEGER, "1", 1, REEF_LAYER_COUNT_MAX, "transformer blocks")                         \
    X(d_model, INTEGER, "64", 2, 4096, "width of a token")                                         \
    X(attention_heads, INTEGER, "2", 1, 256, "heads of each block's attention")                    \
    X(context, INTEGER, "128", 2, 4096, "tokens in a window")                                      \
    X(batch, INTEGER, "4", 1, 1024, "windows of the stream in a training step")                    \
    X(ffw, TEXT, "p", 0, 0,                                                                        \
      "feed-forward of each block: p (PEER), k (product-key memory), m (mixture of experts), "     \
      "d (dense); one letter for all")                                                             \
    X(d_ffw, INTEGER, "256", 1, 65536,                                                             \
      "hidden width of dense feed-forward networks, and of each expert of a mixture")              \
    X(heads, INTEGER, "1", 1, 256, "retrieval heads of a layer of kind p or k")                    \
    X(topk, INTEGER, "64", 1, 1024, "experts that a head retrieves for a token")                   \
    X(d_key, INTEGER, "32", 2, 4096,                                                               \
      "width of a head's query; each half meets one table of sub-keys")                            \
    X(side, INTEGER, "64", 1, 65536,                                                               \
      "sub-keys per side of the first generation; side * side experts")                            \
    X(batch_norm, BOOLEAN, "true", 0, 1, "batch norm on queries")                                  \
    X(expert, CHOICE, "gelu", 0, 0,                                                                \
      "what an expert is: gelu, relu, or glu (gated, a third vector)")                             \
    X(score, CHOICE, "softmax", 0, 0,                                                              \
      "weight of an expert by its score: softmax, sigmoid or relu")                                \
    X(subkeys, CHOICE, "shared", 0, 0,                                                             \
      "tables of sub-keys: shared by all heads, or head (tables for each)")                        \
    X(moe_experts, INTEGER, "8", 1, 1024, "experts of a mixture of experts")                       \
    X(learning_rate, NUMBER, "0.004", 0, REEF_LEARNING_RATE_MAX,                                   \
      "Adam's rate for dense parameters after warm-up")                                            \
    X(boundaries, CHOICE, "contexts", 0, 0,                                                        \
      "where a kind of text begins: contexts (its memories say so), or given (marker lines, and "  \
      "by command)")                                                                               \
    X(boundary_mark, TEXT, "", 0, 0,                                                               \
      "a line of the stream that is exactly this text is a boundary; empty for none")              \
    X(experts_max, INTEGER, "0", 0, INTEGER_MAX,                                                   \
      "bound on experts in all generations and layers together; 0 for none")                       \
    X(kinds_max, INTEGER, "0", 0, 65536,                                                           \
      "bound on generations, each of which begins a kind of text; 0 for none")                     \
    X(memory, INTEGER, "1G", 0, 68719476736,                                                       \
      "bytes that memories of kinds take in a process that trains, such as 1G, from 4M on; 0: "    \
      "there are none")                                                                            \
    X(net_share, NUMBER, "0.5", 0, 1,                                                              \
      "share of the batches that the net learns beside a context memory; 0: no net at all")        \
    X(seal_dtype, CHOICE, "f32", 0, 0,                                                             \
      "rows of experts once sealed: f32, or int8 at a quarter of the bytes")                       \
    X(watch, BOOLEAN, "false", 0, 1,                                                               \
      "judge the lines of the stream, which are those of logs, before they are learned: what is "  \
      "new is told as incidents")

// Numbers of Adam that a layer by itself may be made with; every model learns with these.
#define LAYER_TABLE(X)                                                                             \
    X(expert_rate, NUMBER, "6", 0, 1000, "factor on the learning rate for rows of experts")        \
    X(beta1, NUMBER, "0.9", 0, 0.999999, "Adam: memory of the mean gradient")                      \
    X(beta2, NUMBER, "0.98", 0, 0.999999, "Adam: memory of the squared gradient")                  \
    X(epsilon, NUMBER, "1e-08", 1e-16, 1, "Adam: added to the root of the squared gradient")       \
    X(clip, NUMBER, "1", 0, 1e6, "bound on the norm of the dense gradient; 0 for none")

static const reef_config_field FIELDS[] = {
#define ANY_FIELD(field, kind, standard, low, high, help, of_layers)                               \
    {#field,                                                                                       \
     REEF_FIELD_##kind,                                                                            \
     help,                                                                                         \
     standard,                                                                                     \
     low,                                                                                          \
     high,                                                                                         \
     offsetof(reef_config, field),                                                                 \
     sizeof(((reef_config *)NULL)->field),                                                         \
     of_layers},
#define CONFIG_FIELD(...) ANY_FIELD(__VA_ARGS__, false)
#define LAYER_FIELD(...) ANY_FIELD(__VA_ARGS__, true)
    CONFIG_TABLE(CONFIG_FIELD) LAYER_TABLE(LAYER_FIELD)
#undef LAYER_FIELD
#undef CONFIG_FIELD
#undef ANY_FIELD
};

#define FIELD_COUNT (sizeof(FIELDS) / sizeof(FIELDS[0]))

const reef_config_field *reef_config_fields(size_t *count) {
    *count = FIELD_COUNT;
    return FIELDS;
}

void reef_config_default(reef_config *config) {
    memset(config, 0, sizeof(*config)); // padding too: equal configurations are equal bytes
    size_t count;
    const reef_config_field *fields = reef_config_fields(&count);
    for (size_t i = 0; i < count; i++) {
        reef_status status = reef_config_field_set(config, &fields[i], fields[i].standard, NULL);
        assert(status == REEF_OK);
        (void)status;
    }
}
