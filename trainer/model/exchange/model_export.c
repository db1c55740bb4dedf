// A state of a pool as one file in the safetensors format, for other programs; nothing here reads
// it.
//
// Names are those of the pool's tensors, and "memory.RECORD" of a context memory's. Rows of experts
// are taken apart into w_down, w_up and w_gate, so that a program that knows nothing of pools finds
// matrices. Generations after the first have theirs under "generationG.".
//
//   metadata   format           reef.model
//              format_version   1
//              configuration    JSON, as in the pool
//              generations      JSON, a list: {"number", "parent", "side", "dtype", "sealed",
//                               "opened_step", ..., "root" of those that are sealed, "continues"
//                               of those that continue a kind}
//              step, generation_step, stream_bytes
//
// One read transaction for all of it: the open generation is of one commit. A writer can commit
// meanwhile, but cannot reuse pages that it frees.
#include "checkpoint.h"
#include "kind_heads.h"
#include "reef_json_build.h"
#include "reef_snapshot.h"
#include "safetensors.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_RECORD "text"
#define MEMORY_PREFIX "memory." // of its tensors, before the names of its records
#define FORMAT_NAME "reef.model"
#define FORMAT_VERSION 1u
#define NUMBER_BYTES 32

// One tensor of the file.
typedef struct tensor_group {
    reef_safetensor tensor;
    char record[REEF_NAME_BYTES_MAX + 1]; // its name without the generation
    uint32_t generation;                  // in the file
    // TENSORS: one record. MEMORY: one record of reef_memory_records. EXPERTS, FLAGS, USAGE: of
    // each row of a block `bytes` from `offset` on.
    reef_db db;
    uint32_t layer, block_rows;
    size_t row_bytes, offset, bytes;
} tensor_group;

typedef struct tensor_groups {
    size_t count, capacity;
    tensor_group *parts; // owned
} tensor_groups;

// One generation of the file.
typedef struct file_generation {
    reef_generation_record info; // parent, continues: in the file
    uint32_t number;             // in the pool it comes from, which its root is of
    uint32_t records;            // export: where its records lie
    bool has_root;
} file_generation;

// What the file is of.
typedef struct model_origin {
    reef_config config;
    uint32_t count;
    file_generation *generations; // (count) owned
    uint64_t step, generation_step, stream_bytes;
} model_origin;

// Shapes by name, after "blockN." if present; one letter per dimension, see size_of. lay_out of
// generation_layout.c has the sizes, in the order of memory.
static const struct {
    const char *name, *shape;
} SHAPES[] = {
    {"embedding", "PVD"},   {"delta_embedding", "PVD"},
    {"head", "DV"},         {"delta_head", "DV"},
    {"position", "TD"},     {"delta_position", "TD"},
    {"norm_scale", "D"},    {"norm_shift", "D"},
    {"norm1_scale", "D"},   {"norm1_shift", "D"},
    {"norm2_scale", "D"},   {"norm2_shift", "D"},
    {"w_qkv", "D3"},        {"w_moe_router", "DE"},
    {"w_moe_in", "EDF"},    {"w_moe_out", "EFD"},
    {"moe_threshold", "E"}, {"w_out", "DD"},
    {"w_ffw_in", "DF"},     {"w_ffw_out", "FD"},
    {"delta_qkv", "D3"},    {"delta_out", "DD"},
    {"delta_ffw_in", "DF"}, {"delta_ffw_out", "FD"},
    {"w_query", "DQ"},      {"query_bias", "Q"},
    {"sub_keys_a", "SK"},   {"sub_keys_b", "SK"},
    {"bn_scale", "Q"},      {"bn_shift", "Q"},
    {"bn_mean", "Q"},       {"bn_var", "Q"},
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

static tensor_group *add_group(tensor_groups *parts, uint32_t generation, const char *record) {
    // The number of tensors is known only at the end; growing doubles.
    if (parts->count == parts->capacity) {
        size_t capacity = 2 * parts->capacity + 64;
        tensor_group *grown = realloc(parts->parts, capacity * sizeof(*grown));
        if (grown == NULL) return NULL;
        parts->parts = grown;
        parts->capacity = capacity;
    }
    tensor_group *part = &parts->parts[parts->count++];
    *part =
        (tensor_group){.generation = generation, .db = REEF_DB_TENSORS, .tensor.dtype = REEF_F32};
    snprintf(part->record, sizeof(part->record), "%s", record);
    // For now the record's name, by which the shape is looked up; name_tensor gives it its
    // full name.
    snprintf(part->tensor.name, sizeof(part->tensor.name), "%s",
             record); // whose shape is asked for
    return part;
}

// Its name in the file, and where its data lies, now that it has a shape.
static void name_tensor(const tensor_groups *parts, tensor_group *part) {
    reef_safetensor *tensor = &part->tensor;
    char prefix[REEF_NAME_BYTES_MAX + 1] = "";
    if (part->generation > 0)
        snprintf(prefix, sizeof(prefix), "generation%" PRIu32 ".", part->generation);
    snprintf(tensor->name, sizeof(tensor->name), "%.20s%.40s", prefix, part->record);
    tensor->begin = part == parts->parts ? 0 : part[-1].tensor.end;
    tensor->end = tensor->begin + reef_safetensor_bytes(tensor);
}

static bool add_dense(tensor_groups *parts,
                      const reef_config *config,
                      const reef_generation *generation,
                      uint32_t number) {
    for (size_t i = 0; i < generation->tensor_count; i++) {
        tensor_group *part = add_group(parts, number, generation->tensors[i].name);
        if (part == NULL) return false;
        set_shape(&part->tensor, config, generation->info.side);
        name_tensor(parts, part);
    }
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

static bool add_column(tensor_groups *parts,
                       const reef_generation *generation,
                       uint32_t number,
                       uint32_t layer,
                       const column *of) {
    char name[REEF_NAME_BYTES_MAX + 1];
    const reef_expert_table *table = &generation->expert_tables[layer];
    snprintf(name, sizeof(name), "block%" PRIu32 ".%s", layer, of->name);
    tensor_group *part = add_group(parts, number, name);
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

static bool add_layer(tensor_groups *parts,
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

static bool add_record(tensor_groups *parts, uint32_t number, const char *record, uint64_t bytes) {
    char name[REEF_NAME_BYTES_MAX + 1];
    snprintf(name, sizeof(name), MEMORY_PREFIX "%s", record);
    tensor_group *part = add_group(parts, number, name);
    if (part == NULL) return false;
    part->db = REEF_DB_MEMORY;
    part->tensor.dtype = REEF_BYTES;
    part->tensor.shape[part->tensor.rank++] = bytes;
    name_tensor(parts, part);
    return true;
}

// Of its text all that it keeps, and not the names of blocks.
static bool is_text(const char *record) {
    return strcmp(record, TEXT_RECORD) == 0 || strcmp(record, REEF_TEXT_LIST) == 0;
}

static bool add_memory(tensor_groups *parts, const reef_generation *generation, uint32_t number) {
    reef_memory_records list;
    if (generation->memory.memory == NULL) return true;
    reef_generation_memory_list(&generation->memory, &list);
    for (size_t i = 0; i < list.count; i++)
        if (!is_text(list.records[i].name) &&
            !add_record(parts, number, list.records[i].name, list.records[i].bytes))
            return false;
    return add_record(parts, number, TEXT_RECORD,
                      reef_memory_text(generation->memory.memory, NULL, 0));
}

static reef_status add_generation(tensor_groups *parts,
                                  const reef_config *config,
                                  const reef_generation *generation,
                                  uint32_t number,
                                  reef_error *err) {
    bool ok = add_dense(parts, config, generation, number);
    for (uint32_t l = 0; ok && l < config->layers; l++)
        if (generation->expert_tables[l].expert_count > 0)
            ok = add_layer(parts, config, generation, number, l);
    ok = ok && add_memory(parts, generation, number);
    return ok ? REEF_OK
              : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the tensors of a model");
}

// ---- metadata -----------------------------------------------------------------------------------

static json_t *generation_json(const file_generation *of) {
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

static json_t *make_metadata(const model_origin *origin) {
    json_t *metadata = json_object(), *list = json_array();
    for (uint32_t g = 0; g < origin->count; g++)
        reef_json_append(&list, generation_json(&origin->generations[g]));
    // 17 digits bring every double back bit for bit.
    char *generations =
        list == NULL ? NULL : json_dumps(list, JSON_COMPACT | JSON_REAL_PRECISION(17));
    char *config = reef_config_format(&origin->config);
    reef_json_set(&metadata, "format", json_string(FORMAT_NAME));
    set_number(&metadata, "format_version", FORMAT_VERSION);
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

typedef struct exporting {
    reef_export_options options;
    reef_txn *txn;
    reef_as_of state;
    reef_kind_heads heads;
    model_origin origin;
    tensor_groups parts;
    uint64_t experts;
    reef_safetensors_writer *writer;
    reef_generation_memory memory; // of generation `memory_of` of the file, while it is written
    uint32_t memory_of;
} exporting;

// ---- what there is ------------------------------------------------------------------------------

static reef_status read_generations(exporting *e, const reef_as_of *as_of, reef_error *err) {
    model_origin *origin = &e->origin;
    origin->generations = calloc((size_t)as_of->last + 1, sizeof(*origin->generations));
    if (origin->generations == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %" PRIu32 " generations",
                         as_of->last);
    for (uint32_t g = 0; g <= as_of->last; g++) {
        file_generation *one = &origin->generations[g];
        *one = (file_generation){.number = g, .records = reef_as_of_records(as_of, g)};
        reef_status status = reef_generation_read(e->txn, one->records, &one->info, err);
        if (status != REEF_OK) return status;
        // The root of a snapshot's copy is that of its own number.
        // One whose memory has learned more since is not what was sealed.
        one->has_root =
            one->info.sealed && one->records == g && reef_kind_heads_find(&e->heads, g) == NULL;
        one->info.generation = g; // also of a snapshot's copy
        origin->count++;
    }
    return REEF_OK;
}

// Where training continues: of an open generation its present position, of a sealed one its end.
static reef_status read_position(exporting *e, reef_error *err) {
    model_origin *origin = &e->origin;
    const file_generation *last = &origin->generations[origin->count - 1];
    origin->step = last->info.sealed_step;
    origin->stream_bytes = last->info.sealed_at;
    if (last->info.sealed) return REEF_OK;
    return reef_state_position(e->txn, last->records, &origin->step, &origin->generation_step,
                               &origin->stream_bytes, err);
}

// As of this state, with the visits of its kind. The memory of an open one learns its tail again.
static reef_status read_memory(const exporting *e,
                               const file_generation *of,
                               reef_generation_memory *out,
                               reef_error *err) {
    uint64_t bytes_max = e->origin.config.memory;
    if (bytes_max == 0) return REEF_OK;
    size_t unused;
    reef_status status = reef_kind_heads_load(&e->heads, e->txn, of->number, out, &unused, err);
    if (status == REEF_OK) status = reef_generation_memory_catch_up(out, bytes_max, NULL, err);
    // The bytes that wait in the pool are not in the file: what comes next does not follow on.
    if (!of->info.sealed) out->next = 0;
    return status;
}

static reef_status list_parts(exporting *e, reef_error *err) {
    const model_origin *origin = &e->origin;
    reef_status status = REEF_OK;
    for (uint32_t g = 0; status == REEF_OK && g < origin->count; g++) {
        const file_generation *one = &origin->generations[g];
        // A generation without data, made only for its list of tensors and their shapes.
        reef_generation *generation = NULL;
        status = reef_generation_new(&generation, &origin->config, &one->info,
                                     (reef_row_division){0}, err);
        if (status == REEF_OK) status = read_memory(e, one, &generation->memory, err);
        if (status == REEF_OK)
            status = add_generation(&e->parts, &origin->config, generation, g, err);
        e->experts += reef_config_retrieving_layers(&origin->config) *
                      ((uint64_t)one->info.side * one->info.side);
        reef_generation_free(generation);
    }
    return status;
}

static reef_status read_state(exporting *e, const char *as_of, reef_error *err) {
    reef_status status = reef_config_read(e->txn, &e->origin.config, err);
    if (status == REEF_OK && reef_config_is_layer(&e->origin.config))
        status = reef_fail(err, REEF_ERR_INVALID,
                           "a layer by itself is no file of a model: export the pool");
    if (status == REEF_OK) status = reef_as_of_find(&e->state, e->txn, as_of, err);
    if (status == REEF_OK) status = reef_kind_heads_read(&e->heads, e->txn, &e->state, err);
    if (status == REEF_OK) status = read_generations(e, &e->state, err);
    if (status == REEF_OK) status = read_position(e, err);
    return status == REEF_OK ? list_parts(e, err) : status;
}

// ---- writing ------------------------------------------------------------------------------------

static reef_status begin_file(exporting *e, const char *path, reef_error *err) {
    json_t *metadata = make_metadata(&e->origin);
    reef_safetensor *tensors = calloc(e->parts.count, sizeof(*tensors));
    reef_status status = REEF_OK;
    if (metadata == NULL || tensors == NULL) {
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the header of %.160s", path);
    } else {
        for (size_t i = 0; i < e->parts.count; i++) tensors[i] = e->parts.parts[i].tensor;
        status = reef_safetensors_create(&e->writer, path, e->options.force, metadata,
                                         e->parts.count, tensors, err);
    }
    free(tensors);
    json_decref(metadata);
    return status;
}

static reef_status wrong_size(const tensor_group *part, size_t have, reef_error *err) {
    return reef_fail(err, REEF_ERR_CORRUPT, "a record of %s has %zu bytes, which is not its size",
                     part->tensor.name, have);
}

static reef_status write_tensor(exporting *e,
                                const tensor_group *part,
                                uint32_t records,
                                reef_error *err) {
    reef_view view;
    reef_key key = {.db = REEF_DB_TENSORS, .generation = records, .name = part->record};
    reef_status status = reef_record_view(e->txn, &key, &view, err);
    if (status != REEF_OK) return status;
    if (view.bytes != part->tensor.end - part->tensor.begin)
        return wrong_size(part, view.bytes, err);
    return reef_safetensors_write(e->writer, view.data, view.bytes, err);
}

// Usage is missing where a snapshot's copy has none: nothing was used as far as is known.
static reef_status view_block(exporting *e,
                              const tensor_group *part,
                              uint32_t records,
                              uint32_t block,
                              reef_view *out,
                              reef_error *err) {
    reef_key key = {.db = part->db, .generation = records, .layer = part->layer, .block = block};
    *out = (reef_view){0};
    if (part->db != REEF_DB_USAGE) return reef_record_view(e->txn, &key, out, err);
    reef_status status = reef_snapshot_usage_view(e->txn, records, part->layer, block, out, err);
    return status == REEF_ERR_NOT_FOUND ? REEF_OK : status;
}

static reef_status write_block(
    exporting *e, const tensor_group *part, const reef_view *view, size_t rows, reef_error *err) {
    // Usage of a block that was never used has no record and reads as zeros; its largest value is
    // eight bytes.
    static const uint64_t nothing = 0;
    reef_status status = REEF_OK;
    // The header has promised a size.
    if (view->data != NULL && view->bytes != rows * part->row_bytes)
        return wrong_size(part, view->bytes, err);
    for (size_t n = 0; status == REEF_OK && n < rows; n++) {
        const char *row = view->data == NULL
                              // Columns: value `offset` of each row. A row of the store holds
                              // several tensors of the file side by side.
                              ? (const char *)&nothing
                              : (const char *)view->data + n * part->row_bytes + part->offset;
        status = reef_safetensors_write(e->writer, row, part->bytes, err);
    }
    return status;
}

static reef_status write_column(exporting *e,
                                const tensor_group *part,
                                uint32_t records,
                                reef_error *err) {
    uint64_t left = part->tensor.shape[0];
    for (uint32_t block = 0; left > 0; block++) {
        reef_view view;
        size_t rows = left < part->block_rows ? (size_t)left : part->block_rows;
        // Asked between blocks, so that a signal stops an export within milliseconds.
        if (e->options.stopped != NULL && e->options.stopped())
            return reef_fail(err, REEF_ERR_BUSY, "stopped; nothing of the file is left");
        reef_status status = view_block(e, part, records, block, &view, err);
        if (status == REEF_OK) status = write_block(e, part, &view, rows, err);
        if (status != REEF_OK) return status;
        left -= rows;
    }
    return REEF_OK;
}

static reef_status write_text(exporting *e, reef_error *err) {
    const reef_memory *memory = e->memory.memory;
    const uint8_t *bytes, *name;
    uint8_t rest[REEF_TEXT_BLOCK_BYTES];
    reef_status status = REEF_OK;
    for (size_t i = 0;
         status == REEF_OK && (bytes = reef_memory_text_block(memory, i, &name)) != NULL; i++)
        status = reef_safetensors_write(e->writer, bytes, REEF_TEXT_BLOCK_BYTES, err);
    size_t left = reef_memory_text(memory, NULL, 0) % REEF_TEXT_BLOCK_BYTES;
    (void)reef_memory_text(memory, rest, left);
    return status == REEF_OK ? reef_safetensors_write(e->writer, rest, left, err) : status;
}

// One memory at a time: those of all generations may be more than there is room for.
static reef_status write_memory(exporting *e, const tensor_group *part, reef_error *err) {
    reef_memory_records list;
    reef_status status = REEF_OK;
    if (e->options.stopped != NULL && e->options.stopped())
        return reef_fail(err, REEF_ERR_BUSY, "stopped; nothing of the file is left");
    if (e->memory.memory == NULL || e->memory_of != part->generation) {
        reef_generation_memory_release(&e->memory);
        e->memory_of = part->generation;
        status = read_memory(e, &e->origin.generations[part->generation], &e->memory, err);
    }
    if (status != REEF_OK) return status;
    if (is_text(part->record + strlen(MEMORY_PREFIX))) return write_text(e, err);
    reef_generation_memory_list(&e->memory, &list);
    const reef_memory_part *record =
        reef_memory_records_find(&list, part->record + strlen(MEMORY_PREFIX));
    return reef_safetensors_write(e->writer, record->data, record->bytes, err);
}

static reef_status write_part(exporting *e,
                              const tensor_group *part,
                              uint32_t records,
                              reef_error *err) {
    if (part->db == REEF_DB_TENSORS) return write_tensor(e, part, records, err);
    return part->db == REEF_DB_MEMORY ? write_memory(e, part, err)
                                      : write_column(e, part, records, err);
}

static reef_status write_file(exporting *e,
                              const char *path,
                              uint64_t *file_bytes,
                              reef_error *err) {
    reef_status status = begin_file(e, path, err);
    for (size_t i = 0; status == REEF_OK && i < e->parts.count; i++) {
        const tensor_group *part = &e->parts.parts[i];
        uint32_t records = e->origin.generations[part->generation].records;
        // Tensors are written in the order of the header: the writer never seeks.
        status = write_part(e, part, records, err);
    }
    if (status != REEF_OK) return status;
    status = reef_safetensors_finish(e->writer, file_bytes, err);
    e->writer = NULL;
    return status;
}

reef_status reef_model_export(reef_store *store,
                              const char *as_of,
                              const char *path,
                              const reef_export_options *options,
                              reef_model_file *out,
                              reef_error *err) {
    exporting e = {0};
    reef_model_file unused;
    if (options != NULL) e.options = *options;
    if (out == NULL) out = &unused;
    *out = (reef_model_file){0};
    // One transaction for the whole export: the open generation must be of one commit.
    reef_status status = reef_txn_begin(&e.txn, store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = read_state(&e, as_of, err);
    if (status == REEF_OK && !e.options.dry_run)
        status = write_file(&e, path, &out->file_bytes, err);
    reef_txn_abort(e.txn);
    if (status == REEF_OK) {
        out->config = e.origin.config;
        out->generations = e.origin.count;
        out->open = !e.origin.generations[e.origin.count - 1].info.sealed;
        out->experts = e.experts;
        out->tensor_count = e.parts.count;
        out->step = e.origin.step;
        out->stream_bytes = e.origin.stream_bytes;
    }
    reef_safetensors_abandon(e.writer);
    reef_generation_memory_release(&e.memory);
    reef_kind_heads_release(&e.heads);
    free(e.parts.parts);
    free(e.origin.generations);
    return status;
}
