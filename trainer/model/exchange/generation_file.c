// See generation_file.h.
#include "generation_file.h"

#include "gating.h"
#include "reef_json_build.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT_NAME "reef.generation"
#define NUMBER_BYTES 32

// ---- tensors ------------------------------------------------------------------------------------

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
        return 1 + (uint64_t)config->previous_bytes;
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

void reef_tensor_shape(reef_safetensor *tensor, const reef_config *config, uint32_t side) {
    const char *dot = strchr(tensor->name, '.');
    const char *name = dot == NULL ? tensor->name : dot + 1;
    size_t i = 0;
    while (i < sizeof(SHAPES) / sizeof(*SHAPES) && strcmp(SHAPES[i].name, name) != 0) i++;
    assert(i < sizeof(SHAPES) / sizeof(*SHAPES));
    for (const char *letter = SHAPES[i].shape; *letter != '\0'; letter++)
        tensor->shape[tensor->rank++] = size_of(*letter, config, side);
}

static reef_generation_tensor *add_tensor(reef_generation_tensors *parts,
                                          reef_db db,
                                          const char *name,
                                          reef_dtype dtype) {
    reef_generation_tensor *part = &parts->parts[parts->count++];
    *part = (reef_generation_tensor){.db = db, .tensor.dtype = dtype};
    snprintf(part->tensor.name, sizeof(part->tensor.name), "%s", name);
    return part;
}

static void add_flat(reef_generation_tensors *parts,
                     const char *name,
                     reef_dtype dtype,
                     uint64_t rows,
                     uint64_t columns) {
    reef_safetensor *tensor = &add_tensor(parts, REEF_DB_TENSORS, name, dtype)->tensor;
    tensor->shape[tensor->rank++] = rows;
    if (columns > 0) tensor->shape[tensor->rank++] = columns;
}

// The order of keys: names end with a zero byte there, too.
static int by_name(const void *a, const void *b) {
    return strcmp(((const reef_generation_tensor *)a)->tensor.name,
                  ((const reef_generation_tensor *)b)->tensor.name);
}

static void add_dense(reef_generation_tensors *parts,
                      const reef_config *config,
                      const reef_generation *generation,
                      size_t gate_values) {
    for (size_t i = 0; i < generation->tensor_count; i++) {
        reef_generation_tensor *part =
            add_tensor(parts, REEF_DB_TENSORS, generation->tensors[i].name, REEF_F32);
        // The layout counts the same tensors a second time; both must agree or no file could be
        // read back.
        reef_tensor_shape(&part->tensor, config, generation->info.side);
        assert(reef_safetensor_bytes(&part->tensor) ==
               generation->tensors[i].count * sizeof(float));
    }
    if (gate_values > 0) {
        add_flat(parts, "gate", REEF_F32, gate_values, 0);
        add_flat(parts, "gate_weights", REEF_F32, REEF_GATE_ORDERS, REEF_GATE_BUCKETS);
    }
    // Sorted by name, which is the order of the store's keys and so of the root.
    qsort(parts->parts, parts->count, sizeof(*parts->parts), by_name);
}

// Blocks are those of f32, whatever the type of the rows.
static void add_layers(reef_generation_tensors *parts,
                       const reef_config *config,
                       const reef_generation *generation,
                       reef_db db) {
    for (uint32_t l = 0; l < config->layers; l++) {
        const reef_expert_table *table = &generation->expert_tables[l];
        if (table->expert_count == 0) continue;
        bool rows = db == REEF_DB_EXPERTS;
        char name[REEF_NAME_BYTES_MAX + 1];
        snprintf(name, sizeof(name), "block%u.%s", l, rows ? "experts" : "flags");
        reef_generation_tensor *part =
            add_tensor(parts, db, name, rows ? generation->info.dtype : REEF_BYTES);
        part->layer = l;
        // Rows per block follow from f32 even for rounded rows: blocks of all kinds then hold the
        // same experts.
        part->block_rows = reef_block_rows(table->row_values * sizeof(float));
        part->row_bytes = rows ? reef_row_bytes(generation->info.dtype, table->row_values) : 1;
        part->tensor.shape[part->tensor.rank++] = table->expert_count;
        // Of int8 a row is its scale and its values.
        if (rows)
            part->tensor.shape[part->tensor.rank++] =
                table->row_values + (generation->info.dtype == REEF_I8 ? REEF_I8_SCALE_BYTES : 0);
    }
}

static void add_memory(reef_generation_tensors *parts, const reef_generation *generation) {
    reef_memory_records list;
    if (generation->memory.memory == NULL) return;
    reef_generation_memory_list(&generation->memory, &list);
    for (size_t i = 0; i < list.count; i++) {
        char name[REEF_NAME_BYTES_MAX + 1];
        snprintf(name, sizeof(name), REEF_MEMORY_PREFIX "%s", list.records[i].name);
        reef_generation_tensor *part = add_tensor(parts, REEF_DB_MEMORY, name, REEF_BYTES);
        part->block_rows = REEF_BLOCK_BYTES_MAX;
        part->row_bytes = 1;
        part->tensor.shape[part->tensor.rank++] = list.records[i].bytes;
    }
}

reef_status reef_generation_tensors_init(reef_generation_tensors *parts,
                                         const reef_config *config,
                                         const reef_generation *generation,
                                         size_t gate_values,
                                         reef_error *err) {
    *parts = (reef_generation_tensors){0};
    // Dense tensors, three of the gate, rows and flags of every layer, and the memory.
    size_t most =
        generation->tensor_count + 3 + 2 * (size_t)config->layers + REEF_MEMORY_RECORDS_MAX;
    parts->parts = calloc(most, sizeof(*parts->parts));
    if (parts->parts == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the tensors of a generation");
    add_dense(parts, config, generation, gate_values);
    add_layers(parts, config, generation, REEF_DB_EXPERTS);
    add_layers(parts, config, generation, REEF_DB_FLAGS);
    add_memory(parts, generation);
    // Data offsets follow each other without gaps, as the format demands.
    uint64_t at = 0;
    for (size_t i = 0; i < parts->count; i++) {
        reef_safetensor *tensor = &parts->parts[i].tensor;
        tensor->begin = at;
        tensor->end = at += reef_safetensor_bytes(tensor);
    }
    return REEF_OK;
}

void reef_generation_tensors_release(reef_generation_tensors *parts) {
    free(parts->parts);
    *parts = (reef_generation_tensors){0};
}

bool reef_tensor_record_at(const reef_generation_tensor *part,
                           uint32_t generation,
                           uint32_t index,
                           reef_tensor_record *out) {
    *out = (reef_tensor_record){.key = {.db = part->db, .generation = generation}};
    if (part->db == REEF_DB_TENSORS) {
        // A tensor is one record.
        out->key.name = part->tensor.name;
        out->bytes = part->tensor.end - part->tensor.begin;
        return index == 0;
    }
    uint64_t first = (uint64_t)index * part->block_rows, rows = part->tensor.shape[0];
    if (first >= rows) return false;
    uint64_t left = rows - first;
    if (part->db == REEF_DB_MEMORY) out->key.name = part->tensor.name + strlen(REEF_MEMORY_PREFIX);
    out->key.layer = part->layer;
    out->key.block = index;
    out->offset = first * part->row_bytes;
    // The last block is short.
    out->bytes = (left < part->block_rows ? left : part->block_rows) * part->row_bytes;
    return true;
}

// ---- memory -------------------------------------------------------------------------------------

reef_status reef_generation_allocate_tables(reef_generation *generation, reef_error *err) {
    reef_status status = reef_generation_allocate_rows(generation, err);
    for (uint32_t l = 0; status == REEF_OK && l < REEF_LAYER_COUNT_MAX; l++) {
        reef_expert_table *table = &generation->expert_tables[l];
        if (table->expert_count == 0) continue;
        table->flags = calloc(table->expert_count, 1);
        // Everything is dirty: it is all new to this pool.
        table->dirty = malloc(table->expert_count);
        table->usage = calloc(table->expert_count, sizeof(*table->usage)); // none here so far
        if (table->flags == NULL || table->dirty == NULL || table->usage == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu experts",
                             table->expert_count);
        memset(table->dirty, 1, table->expert_count);
    }
    return status;
}

// ---- the context memory -------------------------------------------------------------------------

typedef struct memory_tensors {
    const reef_safetensors *file;
    const char *prefix;
} memory_tensors;

static const reef_safetensor *find_memory(const memory_tensors *in, const char *record) {
    char name[REEF_NAME_BYTES_MAX + 1];
    snprintf(name, sizeof(name), "%s%s", in->prefix, record);
    return reef_safetensors_find(in->file, name);
}

static reef_status fetch_memory(
    void *context, const char *record, void *into, size_t bytes, reef_error *err) {
    const memory_tensors *in = context;
    const reef_safetensor *found = find_memory(in, record);
    if (found == NULL)
        return reef_fail(err, REEF_ERR_CORRUPT, "it lacks the tensor %s%s", in->prefix, record);
    if (found->dtype != REEF_BYTES || found->rank != 1 || found->shape[0] != bytes)
        return reef_fail(err, REEF_ERR_CORRUPT, "tensor %s is not %zu bytes, as of such a memory",
                         found->name, bytes);
    return reef_safetensors_read(in->file, found->begin, into, bytes, err);
}

bool reef_memory_is_in_file(const reef_safetensors *file, const char *prefix) {
    const memory_tensors in = {file, prefix};
    return find_memory(&in, REEF_MEMORY_POSITION_NAME) != NULL;
}

reef_status reef_memory_from_file(reef_generation_memory *memory,
                                  const reef_safetensors *file,
                                  const char *prefix,
                                  reef_error *err) {
    memory_tensors in = {file, prefix};
    reef_error reason;
    if (!reef_memory_is_in_file(file, prefix)) return REEF_OK;
    reef_status status = reef_generation_memory_restore(memory, fetch_memory, &in, &reason);
    return status == REEF_OK ? REEF_OK
                             : reef_fail(err, status, "%.80s: %.160s", file->path, reason.message);
}

// ---- where it comes from ------------------------------------------------------------------------

bool reef_origin_needs_all(const reef_config *config) {
    return reef_fire_max(config) > 1;
}

uint64_t reef_origin_trained_bytes(const reef_generation_record *info,
                                   const reef_generation_memory *memory) {
    return memory->memory != NULL ? reef_memory_learned_bytes(memory->memory)
                                  : info->sealed_at - info->opened_at;
}

uint64_t reef_origin_experts(const reef_config *config, uint32_t side) {
    uint64_t layers = 0;
    for (uint32_t l = 0; l < config->layers; l++) layers += reef_layer_retrieves(config, l);
    return layers * side * side;
}

static void set_number(json_t *metadata, const char *name, uint64_t value) {
    char text[NUMBER_BYTES];
    snprintf(text, sizeof(text), "%" PRIu64, value);
    json_object_set_new(metadata, name, json_string(text));
}

static void set_owned(json_t *metadata, const char *name, char *text) {
    if (text != NULL) json_object_set_new(metadata, name, json_string(text));
    free(text);
}

// The metadata of a safetensors file is strings; numbers are written as text.
json_t *reef_origin_metadata(const reef_generation_origin *origin) {
    const reef_generation_record *info = &origin->info;
    char root[2 * REEF_HASH_BYTES + 1];
    json_t *metadata = json_object(), *roots = json_array();
    for (uint32_t g = 0; g < origin->base_count; g++) {
        reef_hash_format(origin->base_roots[g], root);
        reef_json_append(&roots, json_string(root));
    }
    json_object_set_new(metadata, "format", json_string(FORMAT_NAME));
    set_number(metadata, "format_version", REEF_GENERATION_FILE_VERSION);
    set_number(metadata, "generation", info->generation);
    set_number(metadata, "parent", info->parent);
    set_number(metadata, "side", info->side);
    json_object_set_new(metadata, "dtype", json_string(reef_rows_dtype_text(info->dtype)));
    set_number(metadata, "opened_step", info->opened_step);
    set_number(metadata, "sealed_step", info->sealed_step);
    set_number(metadata, "opened_at", info->opened_at);
    set_number(metadata, "sealed_at", info->sealed_at);
    reef_hash_format(info->root, root);
    json_object_set_new(metadata, "root", json_string(root));
    bool differs = memcmp(origin->sealed_root, info->root, sizeof(info->root)) != 0;
    reef_hash_format(origin->sealed_root, root);
    if (differs) json_object_set_new(metadata, "sealed_root", json_string(root));
    set_owned(metadata, "builds_on", json_dumps(roots, JSON_COMPACT));
    set_owned(metadata, "configuration", reef_config_format(&origin->config));
    json_decref(roots);
    // Counted instead of checked one by one: json_object_set_new refuses a NULL value.
    if (json_object_size(metadata) == 13 + (size_t)differs) return metadata;
    json_decref(metadata); // a member found no memory
    return NULL;
}

static reef_status file_lacking(const reef_safetensors *file, const char *name, reef_error *err) {
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "%.120s: its metadata lacks %s, or has something else in its place",
                     file->path, name);
}

static const char *text_of(const reef_safetensors *file, const char *name) {
    return json_string_value(json_object_get(file->metadata, name));
}

static reef_status number_of(
    const reef_safetensors *file, const char *name, uint64_t most, uint64_t *out, reef_error *err) {
    const char *text = text_of(file, name);
    if (text == NULL || *text == '\0' || text[strspn(text, "0123456789")] != '\0')
        return file_lacking(file, name, err);
    errno = 0;
    *out = strtoull(text, NULL, 10);
    return errno == 0 && *out <= most ? REEF_OK : file_lacking(file, name, err);
}

static reef_status kind_check(const reef_safetensors *file, reef_error *err) {
    uint64_t version = 0;
    const char *format = text_of(file, "format");
    if (format == NULL || strcmp(format, FORMAT_NAME) != 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%.120s is a safetensors file, but not of a generation: its metadata has "
                         "no format " FORMAT_NAME,
                         file->path);
    reef_status status = number_of(file, "format_version", UINT32_MAX, &version, err);
    // Another version may mean another layout; guessing would import noise.
    if (status == REEF_OK && version != REEF_GENERATION_FILE_VERSION)
        return reef_fail(err, REEF_ERR_VERSION,
                         "%.120s has format version %" PRIu64 ", this program reads version %u",
                         file->path, version, REEF_GENERATION_FILE_VERSION);
    return status;
}

static reef_status info_parse(reef_generation_record *info,
                              const reef_safetensors *file,
                              reef_error *err) {
    uint64_t generation = 0, parent = 0, side = 0;
    // All numbers in one table, each with its bound.
    const struct {
        const char *name;
        uint64_t most, *out;
    } numbers[] = {
        {"generation", REEF_GENERATION_COUNT_MAX - 1, &generation},
        {"parent", REEF_GENERATION_COUNT_MAX - 1, &parent},
        {"side", REEF_SIDE_MAX, &side},
        {"opened_step", UINT64_MAX, &info->opened_step},
        {"sealed_step", UINT64_MAX, &info->sealed_step},
        {"opened_at", UINT64_MAX, &info->opened_at},
        {"sealed_at", UINT64_MAX, &info->sealed_at},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        reef_status status = number_of(file, numbers[i].name, numbers[i].most, numbers[i].out, err);
        if (status != REEF_OK) return status;
    }
    const char *dtype = text_of(file, "dtype");
    // No other type of rows exists in a sealed generation.
    if (dtype == NULL || !reef_rows_dtype_parse(dtype, &info->dtype))
        return file_lacking(file, "dtype", err);
    if (side == 0) return file_lacking(file, "side", err);
    if (!reef_hash_parse(text_of(file, "root"), info->root)) return file_lacking(file, "root", err);
    info->generation = (uint32_t)generation;
    info->parent = (uint32_t)parent;
    info->side = (uint32_t)side;
    info->sealed = true;
    return REEF_OK;
}

// Only a file whose kind has learned more since has one.
static reef_status sealed_root_parse(reef_generation_origin *origin,
                                     const reef_safetensors *file,
                                     reef_error *err) {
    memcpy(origin->sealed_root, origin->info.root, sizeof(origin->sealed_root));
    if (json_object_get(file->metadata, "sealed_root") == NULL ||
        reef_hash_parse(text_of(file, "sealed_root"), origin->sealed_root))
        return REEF_OK;
    return file_lacking(file, "sealed_root", err);
}

static reef_status base_parse(reef_generation_origin *origin,
                              const reef_safetensors *file,
                              reef_error *err) {
    const char *text = text_of(file, "builds_on");
    json_t *roots = text == NULL ? NULL : json_loads(text, 0, NULL);
    size_t count = json_array_size(roots), most = origin->info.generation;
    // All before it, or only the first.
    bool right = json_is_array(roots) && (count == most || (count == 1 && most > 0));
    if (right) origin->base_roots = calloc(count + 1, sizeof(*origin->base_roots));
    for (size_t g = 0; right && origin->base_roots != NULL && g < count; g++)
        right = reef_hash_parse(json_string_value(json_array_get(roots, g)), origin->base_roots[g]);
    json_decref(roots);
    if (!right) return file_lacking(file, "builds_on", err);
    if (origin->base_roots == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the roots of %zu generations",
                         count);
    origin->base_count = (uint32_t)count;
    return REEF_OK;
}

reef_status reef_origin_parse(reef_generation_origin *origin,
                              const reef_safetensors *file,
                              reef_error *err) {
    reef_error reason;
    *origin = (reef_generation_origin){0};
    reef_status status = kind_check(file, err);
    if (status == REEF_OK) status = info_parse(&origin->info, file, err);
    if (status == REEF_OK) status = sealed_root_parse(origin, file, err);
    if (status == REEF_OK) status = base_parse(origin, file, err);
    if (status != REEF_OK) return status;
    const char *config = text_of(file, "configuration");
    if (config == NULL) return file_lacking(file, "configuration", err);
    status = reef_config_parse(&origin->config, config, strlen(config), &reason);
    return status == REEF_OK
               ? REEF_OK
               : reef_fail(err, status == REEF_ERR_INVALID ? REEF_ERR_CORRUPT : status,
                           "%.80s: %.160s", file->path, reason.message);
}

void reef_origin_release(reef_generation_origin *origin) {
    free(origin->base_roots);
    *origin = (reef_generation_origin){0};
}
