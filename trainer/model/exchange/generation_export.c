// A sealed generation as a file that another pool can take in.
//
// Each record is read in a transaction of its own, so that a writer can commit meanwhile: sealed
// records do not change. If a restore gives it up in between all the same, the root of what was
// written shows it.
//
// Where the generation's kind came back, or goes on in it, the file has the kind's memory as of the
// last commit in place of the sealed one. That is not what the generation's root covers, so the
// data is read twice: once for the root that the header promises, and once to be written.
#include "checkpoint.h"
#include "generation_file.h"
#include "kind_heads.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct exporting {
    reef_store *store;
    reef_export_options options;
    reef_generation_origin origin;
    size_t gate_values;
    // What the file has: of the kind up to now, or as the generation was sealed. The latter is read
    // for the sizes of its parts, and refused if nobody could import it.
    reef_generation_memory memory;
    bool memory_is_sealed;
    uint64_t left_out_bytes; // of the kind, where it is
    reef_generation_tensors parts;
    reef_generation_hash *hash;        // of the file
    reef_generation_hash *sealed_hash; // of the generation, where they differ; else NULL
    reef_safetensors_writer *writer;   // NULL: nothing is written yet
} exporting;

// ---- what there is ------------------------------------------------------------------------------

static reef_status check_exportable(const exporting *e, uint32_t count, reef_error *err) {
    const reef_generation_record *info = &e->origin.info;
    if (reef_config_is_layer(&e->origin.config))
        return reef_fail(err, REEF_ERR_INVALID,
                         "a generation of a layer by itself is not exported on its own; export the "
                         "pool");
    // An open generation changes with the next step; its root does not exist yet.
    if (!info->sealed)
        return reef_fail(err, REEF_ERR_INVALID,
                         "generation %" PRIu32 " is open: seal it first, or export one of the "
                         "%" PRIu32 " before it",
                         info->generation, count - 1);
    if (info->continues > 0 && e->options.as_sealed)
        return reef_fail(err, REEF_ERR_INVALID,
                         "generation %" PRIu32 " continues kind %" PRIu32
                         " and was sealed without a context memory of its own; export it with that "
                         "of its kind, or the pool",
                         info->generation, info->continues - 1);
    return REEF_OK;
}

static reef_status read_gate(exporting *e, reef_txn *txn, reef_error *err) {
    float values[REEF_GATE_VALUES];
    reef_view view;
    reef_key key = {.db = REEF_DB_TENSORS, .generation = e->origin.info.generation, .name = "gate"};
    // Generation 0 has no gate.
    bool has_gate = key.generation > 0 && reef_config_has_gates(&e->origin.config);
    if (key.generation > 0) e->origin.base_count = 1;
    if (!has_gate) return REEF_OK;
    reef_status status = reef_record_view(txn, &key, &view, err);
    if (status == REEF_OK) status = reef_checkpoint_parse_gate(view.data, view.bytes, values, err);
    if (status != REEF_OK) return status;
    e->gate_values = view.bytes / sizeof(*values);
    bool all = reef_origin_needs_all(&e->origin.config);
    e->origin.base_count = all ? e->origin.info.generation : 1;
    return REEF_OK;
}

static reef_status read_base(exporting *e, reef_txn *txn, reef_error *err) {
    reef_generation_origin *origin = &e->origin;
    // One more than needed, since calloc(0) may be NULL.
    origin->base_roots = calloc(origin->base_count + 1, sizeof(*origin->base_roots));
    if (origin->base_roots == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY,
                         "no memory for the roots of %" PRIu32 " generations", origin->base_count);
    for (uint32_t g = 0; g < origin->base_count; g++) {
        reef_generation_record older;
        reef_status status = reef_generation_read(txn, g, &older, err);
        if (status != REEF_OK) return status;
        memcpy(origin->base_roots[g], older.root, REEF_HASH_BYTES);
    }
    return REEF_OK;
}

// What it went on to learn is in the other kind, and its own memory ends.
static reef_status fail_merged(const exporting *e, uint32_t kind, reef_error *err) {
    return reef_fail(err, REEF_ERR_INVALID,
                     "kind %" PRIu32 " of generation %" PRIu32
                     " was merged into another one: export that one (reef kind list), or this one "
                     "as it was sealed",
                     kind, e->origin.info.generation);
}

static reef_status read_kind(exporting *e,
                             const reef_kind_heads *heads,
                             reef_txn *txn,
                             reef_error *err) {
    reef_error reason;
    size_t unused;
    const reef_generation_record *info = &e->origin.info;
    const uint32_t kind = reef_generation_kind(info);
    const reef_visit_entry *newest = reef_kind_heads_find(heads, kind);
    e->memory_is_sealed = e->options.as_sealed || (newest == NULL && info->continues == 0 &&
                                                   !reef_kind_heads_is_unlisted(heads, kind));
    if (!e->memory_is_sealed && newest != NULL && newest->merged) return fail_merged(e, kind, err);
    if (!e->memory_is_sealed) {
        reef_status status = reef_kind_heads_load(heads, txn, kind, &e->memory, &unused, &reason);
        // Damage there does not keep the generation from being saved.
        return status == REEF_OK
                   ? REEF_OK
                   : reef_fail(err, status, "%.180s (without it: --as-sealed)", reason.message);
    }
    reef_status status = reef_checkpoint_read_memory(txn, info->generation, &e->memory, &reason);
    if (status == REEF_ERR_CORRUPT) return reef_kind_fail_damaged(kind, reason.message, err);
    if (status != REEF_OK) return reef_fail(err, status, "%s", reason.message);
    uint64_t sealed = e->memory.memory != NULL ? reef_memory_learned_bytes(e->memory.memory) : 0;
    if (newest != NULL && newest->learned > sealed) e->left_out_bytes = newest->learned - sealed;
    return status;
}

// In one transaction, as of one commit.
static reef_status read_memory(exporting *e, reef_txn *txn, reef_error *err) {
    reef_as_of now;
    reef_kind_heads heads = {0};
    e->memory_is_sealed = true;
    if (e->origin.config.context_memory == 0) return REEF_OK;
    reef_status status = reef_as_of_find(&now, txn, NULL, err);
    if (status == REEF_OK) status = reef_kind_heads_read(&heads, txn, &now, err);
    if (status == REEF_OK) status = read_kind(e, &heads, txn, err);
    reef_kind_heads_release(&heads);
    return status;
}

static reef_status read_origin(exporting *e, uint32_t generation, reef_error *err) {
    // One transaction for everything that describes the generation. Its data is read later, block
    // by block; the root ties both together.
    uint32_t count = 0;
    reef_txn *txn = NULL;
    reef_status status = reef_txn_begin(&txn, e->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_config_read(txn, &e->origin.config, err);
    if (status == REEF_OK) status = reef_generation_count(txn, &count, err);
    if (status == REEF_OK) status = reef_generation_read(txn, generation, &e->origin.info, err);
    if (status == REEF_OK) status = check_exportable(e, count, err);
    if (status == REEF_OK) status = read_gate(e, txn, err);
    if (status == REEF_OK) status = read_base(e, txn, err);
    if (status == REEF_OK) status = read_memory(e, txn, err);
    reef_txn_abort(txn);
    memcpy(e->origin.sealed_root, e->origin.info.root, sizeof(e->origin.sealed_root));
    // Learned behind the transaction, which others may wait for.
    if (status == REEF_OK)
        status = reef_generation_memory_catch_up(&e->memory, e->origin.config.context_memory, err);
    return status;
}

static reef_status list_parts(exporting *e, reef_error *err) {
    reef_generation *generation = NULL; // for its list of tensors; rows have no memory in it
    reef_status status = reef_generation_new(&generation, &e->origin.config, &e->origin.info, err);
    if (status != REEF_OK) return status;
    reef_generation_memory_move(&generation->memory, &e->memory);
    status =
        reef_generation_tensors_init(&e->parts, &e->origin.config, generation, e->gate_values, err);
    reef_generation_memory_move(&e->memory, &generation->memory);
    reef_generation_free(generation);
    return status;
}

// ---- writing ------------------------------------------------------------------------------------

static reef_status begin_file(exporting *e, const char *path, reef_error *err) {
    json_t *metadata = reef_origin_metadata(&e->origin);
    reef_safetensor *tensors = calloc(e->parts.count, sizeof(*tensors));
    reef_status status = REEF_OK;
    if (metadata == NULL || tensors == NULL) {
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the header of %.160s", path);
    } else {
        // The header needs all tensors at once, in the order in which their data follows.
        for (size_t i = 0; i < e->parts.count; i++) tensors[i] = e->parts.parts[i].tensor;
        status = reef_safetensors_create(&e->writer, path, e->options.force, metadata,
                                         e->parts.count, tensors, err);
    }
    free(tensors);
    json_decref(metadata);
    return status;
}

// A block of a memory, as the file has it.
static reef_status unpack(reef_txn *txn,
                          const reef_tensor_record *record,
                          uint8_t **unpacked,
                          reef_view *view,
                          reef_error *err) {
    *unpacked = malloc(record->bytes + 1);
    if (*unpacked == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a block of %zu bytes",
                         record->bytes);
    *view = (reef_view){.data = *unpacked, .bytes = record->bytes, .dtype = REEF_BYTES};
    return reef_checkpoint_read_packed(txn, &record->key, *unpacked, record->bytes, err);
}

// Hashed while it passes, so the file is checked without being read again.
static reef_status hash_record(exporting *e,
                               const reef_key *key,
                               const reef_view *view,
                               reef_error *err) {
    reef_status status =
        reef_generation_hash_add(e->hash, key, view->dtype, view->data, view->bytes, err);
    if (status != REEF_OK || e->sealed_hash == NULL) return status;
    return reef_generation_hash_add(e->sealed_hash, key, view->dtype, view->data, view->bytes, err);
}

static reef_status copy_record(exporting *e,
                               const reef_generation_tensor *part,
                               const reef_tensor_record *record,
                               reef_error *err) {
    // A transaction per block: an export of gigabytes must not keep a writer from reusing pages.
    reef_txn *txn = NULL;
    reef_view view;
    uint8_t *unpacked = NULL;
    reef_status status = reef_txn_begin(&txn, e->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_record_view(txn, &record->key, &view, err);
    if (status == REEF_OK) status = hash_record(e, &record->key, &view, err);
    if (status == REEF_OK && part->db == REEF_DB_MEMORY)
        status = unpack(txn, record, &unpacked, &view, err);
    // Sizes were promised in the header; a block of another size would shift everything behind it.
    if (status == REEF_OK && (view.bytes != record->bytes || view.dtype != part->tensor.dtype))
        status = reef_fail(err, REEF_ERR_CORRUPT,
                           "%s of generation %" PRIu32 " has a block of %zu bytes, not of %zu",
                           part->tensor.name, e->origin.info.generation, view.bytes, record->bytes);
    if (status == REEF_OK && e->writer != NULL)
        status = reef_safetensors_write(e->writer, view.data, view.bytes, err);
    reef_txn_abort(txn);
    free(unpacked);
    return status;
}

// A block of the kind's memory, which was read before.
static reef_status copy_of_kind(exporting *e, const reef_tensor_record *record, reef_error *err) {
    reef_memory_records list;
    reef_generation_memory_list(&e->memory, &list);
    const uint8_t *data = reef_memory_records_find(&list, record->key.name)->data;
    data += record->offset;
    reef_status status =
        reef_checkpoint_hash_packed(e->hash, &record->key, data, record->bytes, err);
    if (status != REEF_OK || e->writer == NULL) return status;
    return reef_safetensors_write(e->writer, data, record->bytes, err);
}

// All of the file, in its order: hashed, and written where there is a writer.
static reef_status copy_parts(exporting *e, uint8_t root[REEF_HASH_BYTES], reef_error *err) {
    reef_tensor_record record;
    reef_generation_hash_free(e->hash);
    reef_status status = reef_generation_hash_new(&e->hash, err);
    for (size_t i = 0; status == REEF_OK && i < e->parts.count; i++) {
        const reef_generation_tensor *part = &e->parts.parts[i];
        bool of_kind = part->db == REEF_DB_MEMORY && !e->memory_is_sealed;
        for (uint32_t b = 0; status == REEF_OK &&
                             reef_tensor_record_at(part, e->origin.info.generation, b, &record);
             b++) {
            // Asked between blocks, so that a signal stops an export within milliseconds.
            if (e->options.stopped != NULL && e->options.stopped())
                return reef_fail(err, REEF_ERR_BUSY, "stopped; nothing of the file is left");
            status = of_kind ? copy_of_kind(e, &record, err) : copy_record(e, part, &record, err);
        }
    }
    if (status == REEF_OK) reef_generation_hash_root(e->hash, root);
    return status;
}

static reef_status check_root(const exporting *e,
                              const uint8_t read[REEF_HASH_BYTES],
                              const uint8_t expected[REEF_HASH_BYTES],
                              reef_error *err) {
    if (memcmp(read, expected, REEF_HASH_BYTES) == 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "generation %" PRIu32 " of pool %.120s has another root than was recorded, or "
                     "was given up meanwhile: check the pool with reef verify",
                     e->origin.info.generation, reef_store_path(e->store));
}

// Read as a whole, since records of a divided pool lie in several shards.
static reef_status hash_sealed_memory(exporting *e, reef_error *err) {
    uint32_t generation = e->origin.info.generation;
    reef_generation_memory sealed = {0};
    reef_memory_records list = {0};
    reef_txn *txn = NULL;
    reef_status status = reef_txn_begin(&txn, e->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_checkpoint_read_memory(txn, generation, &sealed, err);
    reef_txn_abort(txn);
    if (status == REEF_OK && sealed.memory != NULL) reef_generation_memory_list(&sealed, &list);
    for (size_t i = 0; i < list.count; i++) {
        const reef_memory_part *part = &list.records[i];
        reef_key key = {.db = REEF_DB_MEMORY, .generation = generation, .name = part->name};
        for (size_t at = 0; status == REEF_OK && at < part->bytes; key.block++) {
            size_t left = part->bytes - at;
            size_t size = left < REEF_BLOCK_BYTES_MAX ? left : REEF_BLOCK_BYTES_MAX;
            status = reef_checkpoint_hash_packed(e->sealed_hash, &key,
                                                 (const uint8_t *)part->data + at, size, err);
            at += size;
        }
    }
    reef_generation_memory_release(&sealed);
    return status;
}

// The root of a file with the memory of the kind, and whether the rest is what was sealed.
static reef_status find_root(exporting *e, reef_error *err) {
    uint8_t sealed[REEF_HASH_BYTES];
    reef_status status = reef_generation_hash_new(&e->sealed_hash, err);
    if (status == REEF_OK) status = copy_parts(e, e->origin.info.root, err);
    // Last in the order of a root, as in the file.
    if (status == REEF_OK) status = hash_sealed_memory(e, err);
    if (status == REEF_OK) {
        reef_generation_hash_root(e->sealed_hash, sealed);
        status = check_root(e, sealed, e->origin.sealed_root, err);
    }
    reef_generation_hash_free(e->sealed_hash);
    e->sealed_hash = NULL;
    return status;
}

static reef_status write_file(exporting *e,
                              const char *path,
                              uint64_t *file_bytes,
                              reef_error *err) {
    uint8_t root[REEF_HASH_BYTES];
    reef_status status = begin_file(e, path, err);
    if (status == REEF_OK) status = copy_parts(e, root, err);
    // The last thing before the file gets its name: what was read is what it says.
    if (status == REEF_OK) status = check_root(e, root, e->origin.info.root, err);
    if (status != REEF_OK) return status;
    // finish consumes the writer, also on failure.
    status = reef_safetensors_finish(e->writer, file_bytes, err);
    e->writer = NULL;
    return status;
}

static void describe_file(const exporting *e, uint64_t file_bytes, reef_generation_file *out) {
    *out = (reef_generation_file){
        .info = e->origin.info,
        .trained_bytes = reef_origin_trained_bytes(&e->origin.info, &e->memory),
        .left_out_bytes = e->left_out_bytes,
        .builds_on = e->origin.base_count,
        .experts = reef_origin_experts(&e->origin.config, e->origin.info.side),
        .tensor_count = e->parts.count,
        .file_bytes = file_bytes,
    };
}

reef_status reef_generation_export(reef_store *store,
                                   uint32_t generation,
                                   const char *path,
                                   const reef_export_options *options,
                                   reef_generation_file *out,
                                   reef_error *err) {
    exporting e = {.store = store};
    if (options != NULL) e.options = *options;
    uint64_t file_bytes = 0;
    reef_status status = read_origin(&e, generation, err);
    if (status == REEF_OK) status = list_parts(&e, err);
    // Of a dry run too, which has then checked everything that can be known without writing.
    if (status == REEF_OK && !e.memory_is_sealed) status = find_root(&e, err);
    if (status == REEF_OK && !e.options.dry_run) status = write_file(&e, path, &file_bytes, err);
    if (status == REEF_OK && out != NULL) describe_file(&e, file_bytes, out);
    reef_safetensors_abandon(e.writer);
    reef_generation_hash_free(e.hash);
    reef_generation_tensors_release(&e.parts);
    reef_generation_memory_release(&e.memory);
    reef_origin_release(&e.origin);
    return status;
}
