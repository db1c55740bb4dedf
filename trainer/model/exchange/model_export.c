// A state of a pool as a file that other programs can read.
//
// One read transaction for all of it: the open generation is of one commit. A writer can commit
// meanwhile, but cannot reuse pages that it frees.
#include "checkpoint.h"
#include "kind_heads.h"
#include "model_file.h"
#include "reef_snapshot.h"
#include "stream_position.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct exporting {
    reef_export_options options;
    reef_txn *txn;
    reef_as_of state;
    reef_kind_heads heads;
    reef_model_origin origin;
    reef_tensor_groups parts;
    uint64_t experts;
    reef_safetensors_writer *writer;
    reef_generation_memory memory; // of generation `memory_of` of the file, while it is written
    uint32_t memory_of;
} exporting;

// ---- what there is ------------------------------------------------------------------------------

static reef_status read_generations(exporting *e, const reef_as_of *as_of, reef_error *err) {
    reef_model_origin *origin = &e->origin;
    origin->generations = calloc((size_t)as_of->last + 1, sizeof(*origin->generations));
    if (origin->generations == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %" PRIu32 " generations",
                         as_of->last);
    for (uint32_t g = 0; g <= as_of->last; g++) {
        reef_file_generation *one = &origin->generations[g];
        *one = (reef_file_generation){.number = g, .records = reef_as_of_records(as_of, g)};
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
    reef_model_origin *origin = &e->origin;
    const reef_file_generation *last = &origin->generations[origin->count - 1];
    origin->step = last->info.sealed_step;
    origin->stream_bytes = last->info.sealed_at;
    if (last->info.sealed) return REEF_OK;
    return reef_state_position(e->txn, last->records, &origin->step, &origin->generation_step,
                               &origin->stream_bytes, err);
}

// As of this state, with the visits of its kind. The memory of an open one learns its tail again.
static reef_status read_memory(const exporting *e,
                               const reef_file_generation *of,
                               reef_generation_memory *out,
                               reef_error *err) {
    uint64_t bytes_max = e->origin.config.context_memory;
    if (bytes_max == 0) return REEF_OK;
    size_t unused;
    reef_status status = reef_kind_heads_load(&e->heads, e->txn, of->number, out, &unused, err);
    if (status == REEF_OK) status = reef_generation_memory_catch_up(out, bytes_max, err);
    // The bytes that wait in the pool are not in the file: what comes next does not follow on.
    if (!of->info.sealed) out->next = 0;
    return status;
}

static reef_status list_parts(exporting *e, reef_error *err) {
    const reef_model_origin *origin = &e->origin;
    reef_status status = REEF_OK;
    for (uint32_t g = 0; status == REEF_OK && g < origin->count; g++) {
        const reef_file_generation *one = &origin->generations[g];
        // A generation without data, made only for its list of tensors and their shapes.
        reef_generation *generation = NULL;
        status = reef_generation_new(&generation, &origin->config, &one->info, err);
        if (status == REEF_OK) status = read_memory(e, one, &generation->memory, err);
        if (status == REEF_OK)
            status = reef_tensor_groups_add(&e->parts, &origin->config, generation, g, err);
        e->experts += reef_config_retrieving_layers(&origin->config) *
                      ((uint64_t)one->info.side * one->info.side);
        reef_generation_free(generation);
    }
    return status;
}

static reef_status read_state(exporting *e, const char *as_of, reef_error *err) {
    reef_status status = reef_config_read(e->txn, &e->origin.config, err);
    if (status == REEF_OK) status = reef_model_check_kind(&e->origin.config, err);
    if (status == REEF_OK) status = reef_as_of_find(&e->state, e->txn, as_of, err);
    if (status == REEF_OK) status = reef_kind_heads_read(&e->heads, e->txn, &e->state, err);
    if (status == REEF_OK) status = read_generations(e, &e->state, err);
    if (status == REEF_OK) status = read_position(e, err);
    return status == REEF_OK ? list_parts(e, err) : status;
}

// ---- writing ------------------------------------------------------------------------------------

static reef_status begin_file(exporting *e, const char *path, reef_error *err) {
    json_t *metadata = reef_model_metadata(&e->origin);
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

static reef_status wrong_size(const reef_tensor_group *part, size_t have, reef_error *err) {
    return reef_fail(err, REEF_ERR_CORRUPT, "a record of %s has %zu bytes, which is not its size",
                     part->tensor.name, have);
}

static reef_status write_tensor(exporting *e,
                                const reef_tensor_group *part,
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
                              const reef_tensor_group *part,
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

static reef_status write_block(exporting *e,
                               const reef_tensor_group *part,
                               const reef_view *view,
                               size_t rows,
                               reef_error *err) {
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
                                const reef_tensor_group *part,
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

// One memory at a time: those of all generations may be more than there is room for.
static reef_status write_memory(exporting *e, const reef_tensor_group *part, reef_error *err) {
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
    reef_generation_memory_list(&e->memory, &list);
    const reef_memory_part *record =
        reef_memory_records_find(&list, part->record + strlen(REEF_MEMORY_PREFIX));
    return reef_safetensors_write(e->writer, record->data, record->bytes, err);
}

static reef_status write_part(exporting *e,
                              const reef_tensor_group *part,
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
        const reef_tensor_group *part = &e->parts.parts[i];
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
    reef_tensor_groups_release(&e.parts);
    reef_model_origin_release(&e.origin);
    return status;
}
