// See model_file.h.
#include "model_file.h"

#include "reef_json_build.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES 32

// Shapes by name, after "blockN." if present; one letter per dimension, see size_of. lay_out of
// generation_layout.c has the sizes, in the order of memory.
static const struct {
    const char *name, *shape;
} SHAPES[] = {
    {"embedding", "PVD"},    {"delta_embedding", "PVD"},
    {"head", "DV"},          {"delta_head", "DV"},
    {"position", "TD"},      {"delta_position", "TD"},
    {"delta_older", "D"},    {"norm_scale", "D"},
    {"norm_shift", "D"},     {"norm1_scale", "D"},
    {"norm1_shift", "D"},    {"norm2_scale", "D"},
    {"norm2_shift", "D"},    {"w_qkv", "D3"},
    {"w_moe_router", "DE"},  {"w_moe_in", "EDF"},
    {"w_moe_out", "EFD"},    {"moe_threshold", "E"},
    {"w_out", "DD"},         {"w_ffw_in", "DF"},
    {"w_ffw_out", "FD"},     {"qkv_down", "DR"},
    {"qkv_up", "R3"},        {"out_down", "DR"},
    {"out_up", "RD"},        {"ffw_in_down", "DR"},
    {"ffw_in_up", "RF"},     {"ffw_out_down", "FR"},
    {"ffw_out_up", "RD"},    {"delta_qkv", "D3"},
    {"delta_out", "DD"},     {"delta_ffw_in", "DF"},
    {"delta_ffw_out", "FD"}, {"w_query", "DQ"},
    {"query_bias", "Q"},     {"sub_keys_a", "SK"},
    {"sub_keys_b", "SK"},    {"bn_scale", "Q"},
    {"bn_shift", "Q"},       {"bn_mean", "Q"},
    {"bn_var", "Q"},
};

static uint64_t size_of(char letter, const reef_config *config, uint32_t side) {
    switch (letter) {
    case 'P':
        return reef_embedding_tables(config);
    case 'V':
        return REEF_VOCAB;
    case 'D':
        return config->d_model;
    case '3':
        return 3 * (uint64_t)config->d_model;
    case 'T':
        return config->context;
    case 'F':
        return config->d_ffw;
    case 'R':
        return config->adapters;
    case 'Q':
        return (uint64_t)config->heads * config->d_key;
    case 'E':
        return config->moe_experts;
    // A letter per dimension: the shapes of all tensors are strings in the table above.
    case 'K': { // a row of a table, of all heads' where each has its own
        reef_router_shape shape = reef_generation_shape(config, side);
        return reef_router_key_row(&shape);
    }
    default:
        assert(letter == 'S');
        return side;
    }
}

static void set_shape(reef_safetensor *tensor, const reef_config *config, uint32_t side) {
    const char *dot = strchr(tensor->name, '.');
    const char *name = dot == NULL ? tensor->name : dot + 1;
    size_t i = 0;
    while (i < sizeof(SHAPES) / sizeof(*SHAPES) && strcmp(SHAPES[i].name, name) != 0) i++;
    assert(i < sizeof(SHAPES) / sizeof(*SHAPES));
    for (const char *letter = SHAPES[i].shape; *letter != '\0'; letter++)
        tensor->shape[tensor->rank++] = size_of(*letter, config, side);
}

// ---- tensors ------------------------------------------------------------------------------------

static reef_tensor_group *add_group(reef_tensor_groups *parts,
                                    uint32_t generation,
                                    const char *record) {
    // The number of tensors is known only at the end; growing doubles.
    if (parts->count == parts->capacity) {
        size_t capacity = 2 * parts->capacity + 64;
        reef_tensor_group *grown = realloc(parts->parts, capacity * sizeof(*grown));
        if (grown == NULL) return NULL;
        parts->parts = grown;
        parts->capacity = capacity;
    }
    reef_tensor_group *part = &parts->parts[parts->count++];
    *part = (reef_tensor_group){
        .generation = generation, .db = REEF_DB_TENSORS, .tensor.dtype = REEF_F32};
    snprintf(part->record, sizeof(part->record), "%s", record);
    // For now the record's name, by which the shape is looked up; name_tensor gives it its
    // full name.
    snprintf(part->tensor.name, sizeof(part->tensor.name), "%s",
             record); // whose shape is asked for
    return part;
}

const char *reef_tensor_prefix(uint32_t generation, char out[REEF_NAME_BYTES_MAX + 1]) {
    out[0] = '\0';
    if (generation > 0) snprintf(out, REEF_NAME_BYTES_MAX, "generation%" PRIu32 ".", generation);
    return out;
}

// Its name in the file, and where its data lies, now that it has a shape.
static void name_tensor(const reef_tensor_groups *parts, reef_tensor_group *part) {
    reef_safetensor *tensor = &part->tensor;
    char prefix[REEF_NAME_BYTES_MAX + 1];
    reef_tensor_prefix(part->generation, prefix);
    snprintf(tensor->name, sizeof(tensor->name), "%.20s%.40s", prefix, part->record);
    tensor->begin = part == parts->parts ? 0 : part[-1].tensor.end;
    tensor->end = tensor->begin + reef_safetensor_bytes(tensor);
}

static bool add_dense(reef_tensor_groups *parts,
                      const reef_config *config,
                      const reef_generation *generation,
                      uint32_t number) {
    for (size_t i = 0; i < generation->tensor_count; i++) {
        reef_tensor_group *part = add_group(parts, number, generation->tensors[i].name);
        if (part == NULL) return false;
        set_shape(&part->tensor, config, generation->info.side);
        name_tensor(parts, part);
    }
    return true;
}

static bool add_gate(reef_tensor_groups *parts, uint32_t generation) {
    reef_tensor_group *part = add_group(parts, generation, "gate");
    if (part == NULL) return false;
    part->tensor.rank = 1;
    part->tensor.shape[0] = REEF_GATE_VALUES;
    name_tensor(parts, part);
    part = add_group(parts, generation, "gate_weights");
    if (part == NULL) return false;
    part->tensor.rank = 2;
    part->tensor.shape[0] = REEF_GATE_ORDERS;
    part->tensor.shape[1] = REEF_GATE_BUCKETS;
    name_tensor(parts, part);
    return true;
}

// What a layer's blocks hold of each expert, and which part of it is a tensor.
typedef struct column {
    const char *name;
    reef_db db;
    reef_dtype dtype;
    uint64_t width; // 0: one number
    size_t row_bytes, offset, bytes;
} column;

static bool add_column(reef_tensor_groups *parts,
                       const reef_generation *generation,
                       uint32_t number,
                       uint32_t layer,
                       const column *of) {
    char name[REEF_NAME_BYTES_MAX + 1];
    const reef_expert_table *table = &generation->expert_tables[layer];
    snprintf(name, sizeof(name), "block%" PRIu32 ".%s", layer, of->name);
    reef_tensor_group *part = add_group(parts, number, name);
    if (part == NULL) return false;
    part->db = of->db;
    part->layer = layer;
    // Blocks are cut as if rows were f32, whatever their type.
    part->block_rows = reef_block_rows(table->row_values * sizeof(float));
    part->row_bytes = of->row_bytes;
    part->offset = of->offset;
    part->bytes = of->bytes;
    part->tensor.dtype = of->dtype;
    part->tensor.shape[part->tensor.rank++] = table->expert_count;
    if (of->width > 0) part->tensor.shape[part->tensor.rank++] = of->width;
    name_tensor(parts, part);
    return true;
}

static bool add_layer(reef_tensor_groups *parts,
                      const reef_config *config,
                      const reef_generation *generation,
                      uint32_t number,
                      uint32_t layer) {
    static const char *const VECTORS[] = {"w_down", "w_up", "w_gate"};
    // Three columns beside the vectors: their own tables in the store, one tensor each in the file.
    const column others[] = {
        {"frozen", REEF_DB_FLAGS, REEF_BYTES, 0, 1, 0, 1},
        {"usage_count", REEF_DB_USAGE, REEF_U64, 0, sizeof(reef_usage), 0, sizeof(uint64_t)},
        {"usage_score", REEF_DB_USAGE, REEF_U64, 0, sizeof(reef_usage), sizeof(uint64_t),
         sizeof(uint64_t)},
    };
    reef_expert_shape shape = reef_generation_expert_shape(config, layer);
    const reef_dtype dtype = generation->info.dtype;
    const size_t vectors = reef_expert_vectors(&shape);
    const size_t row_bytes = reef_row_bytes(dtype, vectors * shape.D);
    // Of int8 rows the scale comes first, and is a column by itself.
    const size_t head = dtype == REEF_I8 ? REEF_I8_SCALE_BYTES : 0;
    const size_t vector_bytes = (row_bytes - head) / vectors;
    const column scale = {"scale", REEF_DB_EXPERTS, REEF_F32, 0, row_bytes, 0, head};
    bool ok = head == 0 || add_column(parts, generation, number, layer, &scale);
    for (size_t v = 0; ok && v < vectors; v++) {
        const column vector = {
            // A value expert has only w_up, which is the second name.
            VECTORS[vectors == 1 ? 1 : v], REEF_DB_EXPERTS, dtype, shape.D, row_bytes,
            head + v * vector_bytes,       vector_bytes};
        ok = add_column(parts, generation, number, layer, &vector);
    }
    for (size_t i = 0; ok && i < sizeof(others) / sizeof(*others); i++)
        ok = add_column(parts, generation, number, layer, &others[i]);
    return ok;
}

static bool add_memory(reef_tensor_groups *parts,
                       const reef_generation *generation,
                       uint32_t number) {
    reef_memory_records list;
    if (generation->memory.memory == NULL) return true;
    reef_generation_memory_list(&generation->memory, &list);
    for (size_t i = 0; i < list.count; i++) {
        char name[REEF_NAME_BYTES_MAX + 1];
        snprintf(name, sizeof(name), REEF_MEMORY_PREFIX "%s", list.records[i].name);
        reef_tensor_group *part = add_group(parts, number, name);
        if (part == NULL) return false;
        part->db = REEF_DB_MEMORY;
        part->tensor.dtype = REEF_BYTES;
        part->tensor.shape[part->tensor.rank++] = list.records[i].bytes;
        name_tensor(parts, part);
    }
    return true;
}

reef_status reef_tensor_groups_add(reef_tensor_groups *parts,
                                   const reef_config *config,
                                   const reef_generation *generation,
                                   uint32_t number,
                                   reef_error *err) {
    bool ok = add_dense(parts, config, generation, number);
    if (ok && number > 0 && generation->gate.weights != NULL) ok = add_gate(parts, number);
    for (uint32_t l = 0; ok && l < config->layers; l++)
        if (generation->expert_tables[l].expert_count > 0)
            ok = add_layer(parts, config, generation, number, l);
    ok = ok && add_memory(parts, generation, number);
    return ok ? REEF_OK
              : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the tensors of a model");
}

void reef_tensor_groups_release(reef_tensor_groups *parts) {
    free(parts->parts);
    *parts = (reef_tensor_groups){0};
}

// ---- metadata -----------------------------------------------------------------------------------

reef_status reef_model_check_kind(const reef_config *config, reef_error *err) {
    // Each refusal says what to use instead.
    if (reef_config_is_layer(config))
        return reef_fail(err, REEF_ERR_INVALID,
                         "a layer by itself is no file of a model: export the pool");
    return REEF_OK;
}

static json_t *generation_json(const reef_file_generation *of) {
    const reef_generation_record *info = &of->info;
    json_t *one = json_pack("{s:I, s:I, s:I, s:s, s:b, s:I, s:I, s:I, s:I}", "number",
                            (json_int_t)of->number, "parent", (json_int_t)info->parent, "side",
                            (json_int_t)info->side, "dtype", reef_rows_dtype_text(info->dtype),
                            "sealed", info->sealed, "opened_step", (json_int_t)info->opened_step,
                            "sealed_step", (json_int_t)info->sealed_step, "opened_at",
                            (json_int_t)info->opened_at, "sealed_at", (json_int_t)info->sealed_at);
    if (info->continues > 0)
        reef_json_set(&one, "continues", json_integer((json_int_t)info->continues - 1));
    char root[2 * REEF_HASH_BYTES + 1];
    reef_hash_format(info->root, root);
    if (of->has_root) reef_json_set(&one, "root", json_string(root));
    return one;
}

static void set_number(json_t **metadata, const char *name, uint64_t value) {
    char text[NUMBER_BYTES];
    snprintf(text, sizeof(text), "%" PRIu64, value);
    reef_json_set(metadata, name, json_string(text));
}

json_t *reef_model_metadata(const reef_model_origin *origin) {
    json_t *metadata = json_object(), *list = json_array();
    for (uint32_t g = 0; g < origin->count; g++)
        reef_json_append(&list, generation_json(&origin->generations[g]));
    // 17 digits bring every double back bit for bit.
    char *generations =
        list == NULL ? NULL : json_dumps(list, JSON_COMPACT | JSON_REAL_PRECISION(17));
    char *config = reef_config_format(&origin->config);
    reef_json_set(&metadata, "format", json_string(REEF_MODEL_FORMAT));
    set_number(&metadata, "format_version", REEF_MODEL_FILE_VERSION);
    reef_json_set(&metadata, "configuration", config == NULL ? NULL : json_string(config));
    reef_json_set(&metadata, "generations", generations == NULL ? NULL : json_string(generations));
    set_number(&metadata, "step", origin->step);
    set_number(&metadata, "generation_step", origin->generation_step);
    set_number(&metadata, "stream_bytes", origin->stream_bytes);
    free(generations);
    free(config);
    json_decref(list);
    return metadata;
}

void reef_model_origin_release(reef_model_origin *origin) {
    free(origin->generations);
    *origin = (reef_model_origin){0};
}
