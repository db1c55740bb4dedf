// A new pool from the file of a whole model.
//
// The generations are made in memory and written by the pool's first commit. Sealed generations
// stay sealed, with their gates; the open one continues at its position in the stream, with a new
// optimiser state. A file of sealed generations alone gets an open one after them. What no file of
// tensors has is not there: the sample of the past, what came of single bytes, and the history.
//
// Nothing in the file is believed before it was checked: that it has the tensors of such a model
// and no others, that no weight is infinite or no number, and that the data of a sealed generation
// has the root that it had in its pool, where the file says which.
#include "boundary.h"
#include "branch.h"
#include "checkpoint.h"
#include "events.h"
#include "gate_refit.h"
#include "model_file.h"
#include "pool_init.h"
#include "trainer_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define COLUMN_BYTES ((size_t)1 << 20) // of a column that are read at a time

typedef struct importing {
    reef_safetensors file;
    reef_model_origin origin;
    reef_config config; // of the new pool
    reef_tensor_groups parts;
    size_t matched;              // tensors of the file that the parts have
    reef_trainer *trainer;       // while its generations are made
    reef_generation *generation; // the one that is being made; owned
    float gate[REEF_GATE_VALUES];
    uint64_t experts;
} importing;

// ---- which tensors ------------------------------------------------------------------------------

static bool same_shape(const reef_safetensor *one, const reef_safetensor *other) {
    return one->dtype == other->dtype && one->rank == other->rank &&
           memcmp(one->shape, other->shape, one->rank * sizeof(*one->shape)) == 0;
}

static const char *shape_text(const reef_safetensor *tensor, char out[128]) {
    static const char *const NAMES[] = {[REEF_BYTES] = "U8",
                                        [REEF_F32] = "F32",
                                        [REEF_BF16] = "BF16",
                                        [REEF_I8] = "I8",
                                        [REEF_U64] = "I64"};
    int at = snprintf(out, 128, "%s (", NAMES[tensor->dtype]);
    for (size_t i = 0; i < tensor->rank; i++)
        at +=
            snprintf(out + at, 128 - (size_t)at, "%s%" PRIu64, i > 0 ? ", " : "", tensor->shape[i]);
    snprintf(out + at, 128 - (size_t)at, ")");
    return out;
}

// The parts from `first` on get their offsets in the file; an optional one that it lacks gets none.
static reef_status match(importing *i, size_t first, reef_error *err) {
    // Only the parts of one generation: `first` is where its list begins.
    for (size_t k = first; k < i->parts.count; k++) {
        reef_tensor_group *part = &i->parts.parts[k];
        const reef_safetensor *found = reef_safetensors_find(&i->file, part->tensor.name);
        // begin == end marks an absent tensor; readers skip it and keep its initial value.
        if (found == NULL && part->optional) {
            part->tensor.end = part->tensor.begin;
            continue;
        }
        if (found == NULL)
            return reef_fail(err, REEF_ERR_CORRUPT, "%.140s lacks the tensor %s", i->file.path,
                             part->tensor.name);
        if (!same_shape(found, &part->tensor)) {
            char theirs[128], ours[128];
            return reef_fail(err, REEF_ERR_CORRUPT,
                             "%.60s: tensor %s is %.40s, but this configuration makes it %.40s",
                             i->file.path, part->tensor.name, shape_text(found, theirs),
                             shape_text(&part->tensor, ours));
        }
        part->tensor = *found;
        // Counted, so that a file with tensors nobody asked for can be refused at the end.
        i->matched++;
    }
    return REEF_OK;
}

static bool is_wanted(const importing *i, const char *name) {
    for (size_t k = 0; k < i->parts.count; k++)
        if (strcmp(i->parts.parts[k].tensor.name, name) == 0) return true;
    return false;
}

static reef_status refuse_unknown(const importing *i, reef_error *err) {
    for (size_t k = 0; i->matched < i->file.tensor_count && k < i->file.tensor_count; k++)
        if (!is_wanted(i, i->file.tensors[k].name))
            return reef_fail(err, REEF_ERR_CORRUPT,
                             "%.120s has a tensor %s, which a model of this configuration has no "
                             "place for",
                             i->file.path, i->file.tensors[k].name);
    return REEF_OK;
}

// How many floats the gate has was found out by the file alone.
static size_t gate_values(const importing *i, uint32_t g) {
    char name[REEF_NAME_BYTES_MAX + 1];
    snprintf(name, sizeof(name), "generation%" PRIu32 ".gate", g);
    const reef_safetensor *gate = g == 0 ? NULL : reef_safetensors_find(&i->file, name);
    uint64_t bytes = gate == NULL ? 0 : gate->end - gate->begin;
    bool has_gate = g > 0 && reef_config_has_gates(&i->config);
    if (has_gate && bytes < sizeof(float))
        bytes = sizeof(float); // it lacks one, which match() says
    return (size_t)(bytes < sizeof(i->gate) ? bytes : sizeof(i->gate)) / sizeof(float);
}

// Before memory is made for a generation of such a side: its rows are in the file.
static reef_status check_room(const importing *i,
                              const reef_generation_record *info,
                              reef_error *err) {
    uint64_t experts = reef_origin_experts(&i->config, info->side);
    if (experts == 0 || (info->side >= i->config.topk && experts <= i->file.data_bytes))
        return REEF_OK;
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "%.120s has no room for the %" PRIu64 " experts that generation %" PRIu32
                     " says it has",
                     i->file.path, experts, info->generation);
}

// ---- what is in them ----------------------------------------------------------------------------

// Exponents that are all ones are those of infinities and NaN.
static bool is_finite(reef_dtype dtype, const void *data, size_t bytes) {
    // Bit patterns instead of isfinite: the data may not be aligned, and bf16 has no C type.
    if (dtype == REEF_F32) {
        for (size_t at = 0; at < bytes; at += sizeof(uint32_t)) {
            uint32_t bits;
            memcpy(&bits, (const char *)data + at, sizeof(bits));
            if ((bits & 0x7f800000u) == 0x7f800000u) return false;
        }
    } else if (dtype == REEF_BF16) {
        for (size_t at = 0; at < bytes; at += sizeof(uint16_t)) {
            uint16_t bits;
            memcpy(&bits, (const char *)data + at, sizeof(bits));
            if ((bits & 0x7f80u) == 0x7f80u) return false;
        }
    }
    return true;
}

// Counts that are negative there, and flags that are neither 0 nor 1, are none.
static bool is_count(reef_dtype dtype, const void *data, size_t bytes) {
    const uint8_t *byte = data;
    for (size_t at = 0; dtype == REEF_U64 && at < bytes; at += sizeof(uint64_t))
        if (byte[at + 7] > INT8_MAX) return false;
    for (size_t at = 0; dtype == REEF_BYTES && at < bytes; at++)
        if (byte[at] > 1) return false;
    return true;
}

static reef_status check_values(const importing *i,
                                const reef_tensor_group *part,
                                const void *data,
                                size_t bytes,
                                reef_error *err) {
    // Counts and flags are integers with their own rules; a float of any other tensor must be
    // finite, or one NaN would spread through every pass.
    // A gate that never fires has an infinite threshold.
    bool right = strcmp(part->record, "gate") == 0 || (is_finite(part->tensor.dtype, data, bytes) &&
                                                       is_count(part->tensor.dtype, data, bytes));
    if (right) return REEF_OK;
    return reef_fail(err, REEF_ERR_CORRUPT, "%.120s: tensor %s has a value that %s", i->file.path,
                     part->tensor.name,
                     part->db == REEF_DB_USAGE   ? "is negative: it counts"
                     : part->db == REEF_DB_FLAGS ? "is neither 0 nor 1"
                                                 : "is not finite");
}

static void *dense_memory(importing *i, const reef_tensor_group *part) {
    if (strcmp(part->record, "gate") == 0) return i->gate;
    if (strcmp(part->record, "gate_weights") == 0) return i->generation->gate.weights;
    return reef_generation_find(i->generation, part->record)->data;
}

static char *row_memory(importing *i, const reef_tensor_group *part) {
    const reef_expert_table *table = &i->generation->expert_tables[part->layer];
    if (part->db == REEF_DB_FLAGS) return (char *)table->flags;
    return part->db == REEF_DB_USAGE ? (char *)table->usage : table->memory;
}

static reef_status read_dense(importing *i, const reef_tensor_group *part, reef_error *err) {
    void *memory = dense_memory(i, part);
    size_t bytes = (size_t)(part->tensor.end - part->tensor.begin);
    reef_status status = reef_safetensors_read(&i->file, part->tensor.begin, memory, bytes, err);
    return status == REEF_OK ? check_values(i, part, memory, bytes, err) : status;
}

// A column goes back among the others of its rows.
static reef_status read_column(importing *i,
                               const reef_tensor_group *part,
                               char *buffer,
                               reef_error *err) {
    char *to = row_memory(i, part) + part->offset;
    // Columns of rows are stored as one tensor each (w_down of all experts, then w_up ...), which
    // is what other libraries expect. In memory a row holds its vectors side by side.
    for (uint64_t at = part->tensor.begin; at < part->tensor.end;) {
        uint64_t left = part->tensor.end - at;
        // A whole number of values at a time, so that no row is cut between two reads.
        size_t most = COLUMN_BYTES / part->bytes * part->bytes;
        size_t bytes = left < most ? (size_t)left : most;
        reef_status status = reef_safetensors_read(&i->file, at, buffer, bytes, err);
        if (status == REEF_OK) status = check_values(i, part, buffer, bytes, err);
        if (status != REEF_OK) return status;
        for (size_t n = 0; n < bytes; n += part->bytes, to += part->row_bytes)
            memcpy(to, buffer + n, part->bytes);
        at += bytes;
    }
    return REEF_OK;
}

// The memory of generation `g` of the file, before its tensors are listed: they follow from it.
static reef_status read_memory(importing *i, uint32_t g, reef_error *err) {
    char prefix[REEF_NAME_BYTES_MAX + 1], name[2 * REEF_NAME_BYTES_MAX];
    snprintf(name, sizeof(name), "%s" REEF_MEMORY_PREFIX, reef_tensor_prefix(g, prefix));
    if (i->config.context_memory == 0 && reef_memory_is_in_file(&i->file, name))
        return reef_fail(err, REEF_ERR_INVALID,
                         "generation %" PRIu32 " in %.100s has a context memory, and a pool with "
                         "context_memory 0 has none: leave the setting out",
                         g, i->file.path);
    return reef_memory_from_file(&i->generation->memory, &i->file, name, err);
}

static reef_status read_parts(importing *i, size_t first, reef_error *err) {
    char *buffer = malloc(COLUMN_BYTES);
    reef_status status = REEF_OK;
    if (buffer == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to read a model");
    for (size_t k = first; status == REEF_OK && k < i->parts.count; k++) {
        const reef_tensor_group *part = &i->parts.parts[k];
        if (part->db == REEF_DB_MEMORY) continue; // read_memory has read it
        status = part->db == REEF_DB_TENSORS ? read_dense(i, part, err)
                                             : read_column(i, part, buffer, err);
    }
    free(buffer);
    return status;
}

// ---- a sealed generation's root -----------------------------------------------------------------

static const char *record_memory(importing *i,
                                 const reef_generation_tensor *part,
                                 const reef_memory_records *memory,
                                 const double reference[2]) {
    if (part->db == REEF_DB_MEMORY)
        return reef_memory_records_find(memory, part->tensor.name + strlen(REEF_MEMORY_PREFIX))
            ->data;
    const reef_expert_table *table = &i->generation->expert_tables[part->layer];
    if (part->db == REEF_DB_EXPERTS) return table->memory;
    if (part->db == REEF_DB_FLAGS) return (const char *)table->flags;
    if (strcmp(part->tensor.name, "reference") == 0) return (const char *)reference;
    if (strcmp(part->tensor.name, "gate") == 0) return (const char *)i->gate;
    if (strcmp(part->tensor.name, "gate_weights") == 0)
        return (const char *)i->generation->gate.weights;
    return (const char *)reef_generation_find(i->generation, part->tensor.name)->data;
}

static reef_status hash_parts(importing *i,
                              const reef_file_generation *of,
                              const reef_generation_tensors *parts,
                              reef_generation_hash *hash,
                              reef_error *err) {
    const double reference[2] = {of->reference_median, of->reference_spread};
    reef_tensor_record record;
    reef_memory_records list = {0};
    if (i->generation->memory.memory != NULL)
        reef_generation_memory_list(&i->generation->memory, &list);
    // A model file has no root of its own layout. The root is computed over the records that the
    // store would write.
    for (size_t k = 0; k < parts->count; k++) {
        const reef_generation_tensor *part = &parts->parts[k];
        const char *memory = record_memory(i, part, &list, reference);
        for (uint32_t b = 0; reef_tensor_record_at(part, of->number, b, &record); b++) {
            const char *data = memory + record.offset;
            reef_status status =
                part->db == REEF_DB_MEMORY
                    ? reef_checkpoint_hash_packed(hash, &record.key, data, record.bytes, err)
                    : reef_generation_hash_add(hash, &record.key, part->tensor.dtype, data,
                                               record.bytes, err);
            if (status != REEF_OK) return status;
        }
    }
    return REEF_OK;
}

static reef_status check_root(importing *i, const reef_file_generation *of, reef_error *err) {
    uint8_t root[REEF_HASH_BYTES];
    reef_generation_tensors parts = {0};
    reef_generation_hash *hash = NULL;
    // Exports of older versions have none; then there is nothing to compare.
    if (!of->has_root) return REEF_OK;
    reef_status status =
        reef_generation_tensors_init(&parts, &i->config, i->generation, of->gate_values, err);
    if (status == REEF_OK) status = reef_generation_hash_new(&hash, err);
    if (status == REEF_OK) status = hash_parts(i, of, &parts, hash, err);
    if (status == REEF_OK) {
        // After numbering: the root does not cover the generation's number.
        reef_generation_hash_root(hash, root);
        if (memcmp(root, of->info.root, sizeof(root)) != 0)
            status =
                reef_fail(err, REEF_ERR_CORRUPT,
                          "%.100s: the data of generation %" PRIu32
                          " has another root than it says: the file is damaged, or was changed "
                          "without taking the root out of its metadata",
                          i->file.path, of->info.generation);
    }
    reef_generation_hash_free(hash);
    reef_generation_tensors_release(&parts);
    return status;
}

// ---- generations --------------------------------------------------------------------------------

static reef_status set_gate(importing *i, const reef_file_generation *of, reef_error *err) {
    float values[REEF_GATE_VALUES];
    i->generation->reference_median = of->reference_median;
    i->generation->reference_spread = of->reference_spread;
    if (of->gate_values == 0) return REEF_OK;
    reef_status status =
        reef_checkpoint_parse_gate(i->gate, of->gate_values * sizeof(*values), values, err);
    if (status == REEF_OK) reef_checkpoint_set_gate(i->generation, values);
    return status;
}

// Its moments begin at zero, its averages at the weights.
static void begin_training(reef_generation *generation, const reef_config *config) {
    for (uint32_t l = 0; l < config->layers; l++)
        if (generation->expert_tables[l].expert_count > 0)
            memset(generation->expert_tables[l].dirty, 1,
                   generation->expert_tables[l].expert_count);
    reef_generation_average_reset(generation);
    reef_generation_fold(generation, config);
}

static reef_status make_generation(importing *i, uint32_t g, reef_error *err) {
    reef_file_generation *of = &i->origin.generations[g];
    reef_generation_record info = of->info;
    memset(info.root, 0, sizeof(info.root)); // of its new number: the store finds it
    size_t first = i->parts.count;
    of->gate_values = gate_values(i, g);
    reef_status status = check_room(i, &info, err);
    // A generation is built in the order in which a failure says most: room, shape, data, gate,
    // root.
    if (status == REEF_OK) status = reef_generation_new(&i->generation, &i->config, &info, err);
    if (status == REEF_OK) status = read_memory(i, g, err);
    if (status == REEF_OK)
        status =
            reef_tensor_groups_add(&i->parts, &i->config, i->generation, g, of->gate_values, err);
    if (status == REEF_OK) status = match(i, first, err);
    // Open generations have memory for rows and moments from reef_generation_new on; sealed ones
    // get theirs here.
    if (status == REEF_OK && info.sealed)
        status = reef_generation_allocate_tables(i->generation, err);
    if (status == REEF_OK) status = read_parts(i, first, err);
    if (status == REEF_OK) status = set_gate(i, of, err);
    if (status == REEF_OK) status = check_root(i, of, err);
    if (status != REEF_OK) return status;
    // It trains on from here: moments start at zero, averages at the weights.
    if (!info.sealed) begin_training(i->generation, &i->config);
    i->experts += reef_origin_experts(&i->config, info.side);
    status = reef_network_append(&i->trainer->network, i->generation, err);
    if (status == REEF_OK) i->generation = NULL; // the model owns it now
    return status;
}

// After sealed generations alone: the next one. Its query networks begin as the last one's, which
// are folded.
static reef_status open_next(importing *i, reef_error *err) {
    reef_trainer *trainer = i->trainer;
    const reef_generation *last =
        trainer->network.generations[trainer->network.generation_count - 1];
    // Only sealed generations came: something must be open to train on. A new one needs unfolded
    // queries, so the last one is unfolded into a temporary twin.
    reef_generation_record info = last->info;
    reef_generation *twin = NULL, *next = NULL; // the last one as if it were open
    info.sealed = false;
    info.dtype = REEF_F32;
    reef_status status = reef_generation_new(&twin, &i->config, &info, err);
    if (status != REEF_OK) return status;
    for (uint32_t l = 0; l < i->config.layers; l++) {
        const float *w_query = last->weights.routers[l].w_query;
        // A layer that does not retrieve has no query.
        if (w_query != NULL)
            memcpy(twin->weights.routers[l].w_query, w_query,
                   (size_t)i->config.d_model * i->config.heads * i->config.d_key *
                       sizeof(*w_query));
    }
    // Statistics as if raw queries had mean 0 and variance 1: the twin serves as a start, it is
    // never evaluated.
    reef_branch_unfold(twin, last, &i->config);
    status = reef_growth_next(&next, trainer, &last->info, twin, i->config.side_new, err);
    reef_generation_free(twin);
    // Nothing to fit it on: only a gate that is off for good is opened by this.
    if (status == REEF_OK) status = reef_growth_fit_gate(trainer, next, NULL, 0, err);
    if (status == REEF_OK) status = reef_network_append(&trainer->network, next, err);
    return status;
}

static reef_status fill_pool(void *context, reef_trainer *trainer, reef_error *err) {
    importing *i = context;
    reef_status status = REEF_OK;
    i->trainer = trainer;
    // Counters continue where the exported pool stood: learning rates and event positions follow
    // from them.
    trainer->step = i->origin.step;
    trainer->stream_bytes = i->origin.stream_bytes;
    trainer->generation_step = i->origin.generation_step;
    for (uint32_t g = 0; status == REEF_OK && g < i->origin.count; g++)
        status = make_generation(i, g, err);
    // Tensors that no generation asked for mean that the file is of a newer or foreign layout.
    if (status == REEF_OK) status = refuse_unknown(i, err);
    if (status != REEF_OK) return status;
    if (i->origin.generations[i->origin.count - 1].info.sealed) {
        trainer->generation_step = 0;
        status = open_next(i, err);
    }
    if (status != REEF_OK) return status;
    trainer->boundary_at = reef_open_generation(trainer)->info.opened_at;
    return reef_state_event(trainer, err, "init",
                            "\"side\": %" PRIu32 ", \"from_generations\": %" PRIu32
                            ", \"from_experts\": %" PRIu64,
                            reef_open_generation(trainer)->info.side, i->origin.count, i->experts);
}

static void describe_file(const importing *i, reef_model_file *out) {
    *out = (reef_model_file){
        .config = i->config,
        .generations = i->origin.count,
        .open = !i->origin.generations[i->origin.count - 1].info.sealed,
        .experts = i->experts,
        .tensor_count = i->file.tensor_count,
        .file_bytes = i->file.data_at + i->file.data_bytes,
        .step = i->origin.step,
        .stream_bytes = i->origin.stream_bytes,
    };
}

reef_status reef_model_file_config(const char *path, reef_config *config, reef_error *err) {
    reef_safetensors file = {.fd = -1};
    reef_model_origin origin = {0};
    reef_status status = reef_safetensors_open(&file, path, err);
    if (status == REEF_OK) status = reef_model_origin_parse(&origin, &file, err);
    if (status == REEF_OK) *config = origin.config;
    reef_model_origin_release(&origin);
    reef_safetensors_close(&file);
    return status;
}

// Sides of generations are in the file, so a tensor of another shape would not tell.
static reef_status check_side(const importing *i, reef_error *err) {
    uint32_t side = i->origin.generations[0].info.side;
    if (i->config.side == i->origin.config.side || i->config.side == side) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "side is %" PRIu32 ", but generation 0 in %.120s has %" PRIu32 " x %" PRIu32
                     " experts a layer: leave it out",
                     i->config.side, i->file.path, side, side);
}

reef_status reef_pool_from_model(const char *pool,
                                 const char *path,
                                 const reef_config *config,
                                 bool dry_run,
                                 reef_model_file *out,
                                 reef_error *err) {
    importing i = {.file.fd = -1};
    reef_status status = reef_safetensors_open(&i.file, path, err);
    if (status == REEF_OK) status = reef_model_origin_parse(&i.origin, &i.file, err);
    if (status == REEF_OK) {
        i.config = config == NULL ? i.origin.config : *config;
        status = reef_model_check_kind(&i.config, err);
    }
    if (status == REEF_OK) status = check_side(&i, err);
    if (status == REEF_OK)
        status = reef_pool_init_with(dry_run ? NULL : pool, &i.config, fill_pool, &i, err);
    if (status == REEF_OK && out != NULL) describe_file(&i, out);
    reef_generation_free(i.generation);
    reef_tensor_groups_release(&i.parts);
    reef_model_origin_release(&i.origin);
    reef_safetensors_close(&i.file);
    return status;
}
