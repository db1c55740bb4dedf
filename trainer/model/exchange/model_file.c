// See model_file.h.
#include "model_file.h"

#include "reef_json_build.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER_BYTES 32

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
        reef_tensor_shape(&part->tensor, config, generation->info.side);
        name_tensor(parts, part);
    }
    return true;
}

static bool add_gate(reef_tensor_groups *parts, uint32_t generation, size_t values) {
    reef_tensor_group *part = add_group(parts, generation, "gate");
    if (part == NULL) return false;
    part->tensor.rank = 1;
    part->tensor.shape[0] = values;
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
    // Flags and usage may be missing in files of other programs: experts then start unfrozen and
    // unused.
    part->optional = of->db != REEF_DB_EXPERTS;
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
                                   size_t gate_values,
                                   reef_error *err) {
    // A gate is listed only if it exists; an importer takes a missing one for a gate that never
    // fires.
    bool ok = add_dense(parts, config, generation, number);
    if (ok && gate_values > 0) ok = add_gate(parts, number, gate_values);
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
                         "a layer by itself is written and read by Python's reef.interchange "
                         "(docs/LIBRARY.md), or export the pool");
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
    // JSON has no NaN or infinity: a generation that measured no loss has no reference here.
    if (isfinite(of->reference_median))
        reef_json_set(&one, "reference", json_real(of->reference_median));
    if (isfinite(of->reference_spread))
        reef_json_set(&one, "reference_spread", json_real(of->reference_spread));
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

static const char *text_of(const reef_safetensors *file, const char *name) {
    return json_string_value(json_object_get(file->metadata, name));
}

static reef_status model_file_lacking(const reef_safetensors *file,
                                      const char *name,
                                      reef_error *err) {
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "%.120s: its metadata lacks %s, or has something else in its place",
                     file->path, name);
}

static reef_status number_of(const reef_safetensors *file,
                             const char *name,
                             uint64_t *out,
                             reef_error *err) {
    const char *text = text_of(file, name);
    if (text == NULL || *text == '\0' || text[strspn(text, "0123456789")] != '\0')
        return model_file_lacking(file, name, err);
    errno = 0;
    *out = strtoull(text, NULL, 10);
    return errno == 0 ? REEF_OK : model_file_lacking(file, name, err);
}

static reef_status kind_check(const reef_safetensors *file, reef_error *err) {
    uint64_t version = 0;
    const char *format = text_of(file, "format");
    if (format == NULL || strcmp(format, REEF_MODEL_FORMAT) != 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%.120s is a safetensors file, but not of a model: its metadata has no "
                         "format " REEF_MODEL_FORMAT "; reef export model writes such files",
                         file->path);
    reef_status status = number_of(file, "format_version", &version, err);
    if (status == REEF_OK && version != REEF_MODEL_FILE_VERSION)
        return reef_fail(err, REEF_ERR_VERSION,
                         "%.120s has format version %" PRIu64 ", this program reads version %u",
                         file->path, version, REEF_MODEL_FILE_VERSION);
    return status;
}

static double reference_of(const json_t *one, const char *name) {
    const json_t *value = json_object_get(one, name);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

// 1 + the kind that it continues; 0: none. Files of models whose nets never followed have no such
// member.
static bool continues_parse(const json_t *one, uint32_t g, uint32_t *out) {
    const json_t *value = json_object_get(one, "continues");
    json_int_t kind = json_integer_value(value);
    *out = value == NULL ? 0 : (uint32_t)kind + 1;
    return value == NULL || (json_is_integer(value) && kind >= 0 && kind < (json_int_t)g);
}

// What it continues must itself begin a kind: one step and no chain.
static bool continues_a_later_part(const reef_file_generation *all,
                                   const reef_generation_record *one) {
    return one->continues > 0 && all[one->continues - 1].info.continues > 0;
}

// Numbers are 0, 1, 2, ... in the file. Only the last may be open.
static bool generation_parse(
    reef_file_generation *out, const json_t *one, uint32_t g, uint32_t count, uint64_t first_id) {
    // All members at once; a missing one or one of another type makes unpack fail.
    json_int_t number = 0, parent = 0, side = 0, opened_step = 0, sealed_step = 0, opened_at = 0,
               sealed_at = 0;
    const char *dtype = NULL, *root = json_string_value(json_object_get(one, "root"));
    int sealed = 0;
    uint32_t continues;
    if (json_unpack((json_t *)one, "{s:I, s:I, s:I, s:s, s:b, s:I, s:I, s:I, s:I}", "number",
                    &number, "parent", &parent, "side", &side, "dtype", &dtype, "sealed", &sealed,
                    "opened_step", &opened_step, "sealed_step", &sealed_step, "opened_at",
                    &opened_at, "sealed_at", &sealed_at) != 0)
        return false;
    reef_dtype rows;
    // Rows of an open generation are always f32.
    if (!reef_rows_dtype_parse(dtype, &rows) || (rows != REEF_F32 && sealed == 0)) return false;
    // Numbers only grow: the file leaves empty generations out.
    if (number < g || number >= REEF_GENERATION_COUNT_MAX || side < 1 || side > REEF_SIDE_MAX)
        return false;
    // A parent comes before its child; generation 0 is its own.
    if (parent < 0 || parent > g || (parent == g && g > 0)) return false;
    if (opened_step < 0 || sealed_step < 0 || opened_at < 0 || sealed_at < 0) return false;
    if (!continues_parse(one, g, &continues)) return false;
    // Only the last can be open.
    if (sealed == 0 && g + 1 < count) return false;
    *out = (reef_file_generation){.number = (uint32_t)number,
                                  .has_root = root != NULL,
                                  .reference_median = reference_of(one, "reference"),
                                  .reference_spread = reference_of(one, "reference_spread")};
    out->info = (reef_generation_record){.generation = g,
                                         .parent = (uint32_t)parent,
                                         .continues = continues,
                                         .side = (uint32_t)side,
                                         .first_id = first_id,
                                         .dtype = rows,
                                         .sealed = sealed != 0,
                                         .opened_step = (uint64_t)opened_step,
                                         .sealed_step = (uint64_t)sealed_step,
                                         .opened_at = (uint64_t)opened_at,
                                         .sealed_at = (uint64_t)sealed_at};
    return root == NULL || (sealed != 0 && reef_hash_parse(root, out->info.root));
}

static reef_status generations_parse(reef_model_origin *origin,
                                     const reef_safetensors *file,
                                     reef_error *err) {
    const char *text = text_of(file, "generations");
    json_t *list = text == NULL ? NULL : json_loads(text, 0, NULL);
    size_t count = json_array_size(list);
    uint64_t first_id = 0;
    bool right = count > 0 && count < REEF_GENERATION_COUNT_MAX;
    // Bounded before it sizes an array.
    if (right) origin->generations = calloc(count, sizeof(*origin->generations));
    for (uint32_t g = 0; right && origin->generations != NULL && g < count; g++) {
        reef_file_generation *one = &origin->generations[g];
        right = generation_parse(one, json_array_get(list, g), g, (uint32_t)count, first_id) &&
                !continues_a_later_part(origin->generations, &one->info);
        // Ids are assigned again, since gaps of empty generations are closed.
        first_id += (uint64_t)one->info.side * one->info.side;
    }
    json_decref(list);
    if (!right) return model_file_lacking(file, "generations", err);
    if (origin->generations == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu generations", count);
    origin->count = (uint32_t)count;
    return REEF_OK;
}

reef_status reef_model_origin_parse(reef_model_origin *origin,
                                    const reef_safetensors *file,
                                    reef_error *err) {
    reef_error reason;
    *origin = (reef_model_origin){0};
    reef_status status = kind_check(file, err);
    if (status == REEF_OK) status = generations_parse(origin, file, err);
    if (status == REEF_OK) status = number_of(file, "step", &origin->step, err);
    if (status == REEF_OK)
        status = number_of(file, "generation_step", &origin->generation_step, err);
    if (status == REEF_OK) status = number_of(file, "stream_bytes", &origin->stream_bytes, err);
    if (status != REEF_OK) return status;
    const char *config = text_of(file, "configuration");
    if (config == NULL) return model_file_lacking(file, "configuration", err);
    // The configuration is checked like one from a pool, so that everything after it may trust it.
    status = reef_config_parse(&origin->config, config, strlen(config), &reason);
    if (status != REEF_OK)
        return reef_fail(err, status == REEF_ERR_INVALID ? REEF_ERR_CORRUPT : status,
                         "%.80s: %.160s", file->path, reason.message);
    return reef_model_check_kind(&origin->config, err);
}

void reef_model_origin_release(reef_model_origin *origin) {
    free(origin->generations);
    *origin = (reef_model_origin){0};
}
