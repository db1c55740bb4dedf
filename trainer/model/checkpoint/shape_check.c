// Do the records of a pool have the sizes that its configuration gives them?
//
// The store checks bytes against checksums, and knows nothing of models. Here each generation,
// sealed, open or copied for a snapshot, must have all blocks of its experts and their flags, and
// no block may be longer or shorter than its share of side * side experts. Where rows are divided
// over ranks, those of the others are in their shards. Of a context memory with
// tables all parts must be there, as long as its header says. Nothing of another payload is read.
#include "config_internal.h"

#include "checkpoint_internal.h"
#include "reef_snapshot.h"

#include <stdlib.h>
#include <string.h>

#define REPORTED_MAX 1000 // blocks of one layer; a wrong side makes all of them wrong

typedef struct sizes {
    reef_txn *txn;
    reef_config config;
    void (*on_damage)(void *context, const reef_key *key, const char *what);
    void *context;
} sizes;

typedef struct part {
    reef_db db;
    size_t value_bytes; // of one expert
    bool optional;      // a generation may have none of it
} part;

static void check_blocks(const sizes *s,
                         const reef_generation_record *info,
                         uint32_t records,
                         uint32_t layer,
                         const part *p) {
    reef_checkpoint_blocks all = reef_checkpoint_blocks_of(&s->config, records, layer,
                                                           (size_t)info->side * info->side, NULL);
    reef_key key = {.db = p->db, .generation = records, .layer = layer};
    // An optional table is either there as a whole or not at all.
    if (p->optional && !reef_checkpoint_is_stored(s->txn, &key)) return;
    // A table of the wrong size is wrong in every block; a few reports say it.
    size_t reported = 0;
    for (reef_checkpoint_block b;
         reported < REPORTED_MAX && reef_checkpoint_block_next(&all, &b);) {
        const void *ignored;
        reef_error reason;
        key = reef_checkpoint_block_key(&b, p->db);
        // reef_record_locate checks presence and size without reading the data.
        if (reef_record_locate(s->txn, &key, b.rows * p->value_bytes, &ignored, &reason) == REEF_OK)
            continue;
        if (reef_shard_is_elsewhere(s->txn, &key)) continue;
        s->on_damage(s->context, &key, reason.message);
        reported++;
    }
}

static void check_layer(const sizes *s,
                        const reef_generation_record *info,
                        uint32_t records,
                        uint32_t layer,
                        size_t row_values) {
    size_t row_bytes = reef_row_bytes(info->dtype, row_values);
    const part experts = {REEF_DB_EXPERTS, row_bytes, false};
    const part flags = {REEF_DB_FLAGS, 1, false};
    const part usage = {REEF_DB_USAGE, sizeof(reef_usage), true};
    check_blocks(s, info, records, layer, &experts);
    check_blocks(s, info, records, layer, &flags);
    // A snapshot's copy has no usage of its own.
    if (records == info->generation && info->generation < REEF_GENERATION_COUNT_MAX)
        check_blocks(s, info, records, layer, &usage);
}

// ---- the context memory -------------------------------------------------------------------------

typedef struct memory_parts {
    const sizes *s;
    uint32_t records;
    reef_memory_slices *slices;
} memory_parts;

// The walk over all records has reported damaged ones.
static void check_slice(const sizes *s, uint64_t number, void *into, size_t bytes) {
    const reef_key key = reef_block_key(number);
    reef_view view;
    reef_error reason;
    if (reef_record_view(s->txn, &key, &view, NULL) == REEF_ERR_CORRUPT) return;
    if (reef_checkpoint_read_slice(s->txn, number, into, bytes, &reason) != REEF_OK)
        s->on_damage(s->context, &key, reason.message);
}

// What reef_memory_restore asks for is what the header announces: it gets zeros, and the records
// are looked at.
static reef_status check_part(
    void *context, const char *name, void *into, size_t bytes, reef_error *err) {
    const memory_parts *parts = context;
    const sizes *s = parts->s;
    int table = reef_checkpoint_table(name);
    reef_key key = {.db = REEF_DB_MEMORY, .generation = parts->records, .name = name};
    if (strcmp(name, "header") == 0)
        return reef_checkpoint_read_packed(s->txn, &key, into, bytes, err);
    for (size_t at = 0; at < bytes; at += REEF_BLOCK_BYTES_MAX, key.block++) {
        size_t size = bytes - at < REEF_BLOCK_BYTES_MAX ? bytes - at : REEF_BLOCK_BYTES_MAX;
        reef_view view;
        reef_error reason;
        if (table >= 0) {
            check_slice(s, parts->slices->numbers[table][key.block], (uint8_t *)into + at, size);
            continue;
        }
        if (reef_record_view(s->txn, &key, &view, NULL) == REEF_ERR_CORRUPT) continue;
        if (reef_checkpoint_read_block(s->txn, &key, (uint8_t *)into + at, size, &reason) !=
            REEF_OK)
            s->on_damage(s->context, &key, reason.message);
    }
    // Names of blocks of text are needed, to look for these.
    if (strcmp(name, REEF_TEXT_LIST) != 0) memset(into, 0, bytes);
    return REEF_OK;
}

static reef_status check_text(void *context,
                              size_t block,
                              const uint8_t *name,
                              const uint8_t **out,
                              bool *lent,
                              reef_error *err) {
    const memory_parts *parts = context;
    static const uint8_t zeros[REEF_TEXT_BLOCK_BYTES];
    char hex[REEF_TEXT_HEX_BYTES];
    const reef_key key = reef_text_key(name, hex);
    const void *unused;
    reef_error reason;
    (void)block, (void)err;
    *out = zeros;
    *lent = true;
    // Those of a list that is damaged were not read.
    if (memcmp(name, zeros, REEF_TEXT_NAME_BYTES) != 0 &&
        reef_record_locate(parts->s->txn, &key, REEF_TEXT_BLOCK_BYTES, &unused, &reason) != REEF_OK)
        parts->s->on_damage(parts->s->context, &key, reason.message);
    return REEF_OK;
}

static reef_status read_slices(const memory_parts *parts, reef_error *err) {
    const reef_key prefix = {.db = REEF_DB_MEMORY, .generation = parts->records};
    return reef_checkpoint_read_sizes(parts->s->txn, &prefix, parts->slices, err);
}

static void check_memory(const sizes *s, uint32_t records) {
    reef_key position = {
        .db = REEF_DB_MEMORY, .generation = records, .name = REEF_MEMORY_POSITION_NAME};
    reef_key header = position, list = position;
    header.name = "header";
    list.name = REEF_SLICE_LIST;
    memory_parts parts = {s, records, calloc(1, sizeof(*parts.slices))};
    const reef_memory_reader reader = {check_part, check_text, &parts};
    reef_view view;
    reef_generation_memory memory = {0};
    reef_error reason;
    // Without a mark there are no tables: the memory is young, or there is none. The walk over all
    // records has reported a damaged header or list.
    reef_status status = parts.slices != NULL ? REEF_OK : REEF_ERR_NO_MEMORY;
    bool there = reef_checkpoint_is_stored(s->txn, &position) &&
                 reef_record_view(s->txn, &header, &view, NULL) != REEF_ERR_CORRUPT &&
                 reef_record_view(s->txn, &list, &view, NULL) != REEF_ERR_CORRUPT;
    if (there && status == REEF_OK) status = read_slices(&parts, &reason);
    if (there && status == REEF_OK)
        status = reef_generation_memory_restore(&memory, &reader, &reason);
    if (status != REEF_OK && status != REEF_ERR_NO_MEMORY)
        s->on_damage(s->context, &header, reason.message);
    reef_generation_memory_release(&memory);
    reef_memory_slices_free(parts.slices);
}

static void check_generation(const sizes *s, uint32_t records) {
    reef_generation_record info;
    // The walk over all records has reported a damaged record.
    if (reef_generation_read(s->txn, records, &info, NULL) != REEF_OK) return;
    for (uint32_t l = 0; l < s->config.layers; l++) {
        reef_expert_shape shape = reef_generation_expert_shape(&s->config, l);
        if (reef_layer_retrieves(&s->config, l))
            check_layer(s, &info, records, l, reef_expert_row_values(&shape));
    }
    if (s->config.memory > 0) check_memory(s, records);
}

static reef_status on_snapshot(void *context, const reef_snapshot *snapshot, reef_error *err) {
    (void)err;
    for (uint32_t g = snapshot->shared_count; g < snapshot->sealed_count; g++)
        check_generation(context, reef_snapshot_records(snapshot, g));
    if (snapshot->copy != 0) check_generation(context, snapshot->copy);
    return REEF_OK;
}

reef_status reef_pool_check_sizes(reef_txn *txn,
                                  void (*on_damage)(void *context,
                                                    const reef_key *key,
                                                    const char *what),
                                  void *context,
                                  reef_error *err) {
    sizes s = {.txn = txn, .on_damage = on_damage, .context = context};
    uint32_t count = 0;
    static const reef_key config_key = {.db = REEF_DB_META, .name = REEF_CONFIG_RECORD};
    // Files that some other program wrote into the store have no model.
    if (!reef_checkpoint_is_stored(txn, &config_key))
        return REEF_OK; // not made by reef_pool_init: no sizes are known
    reef_status status = reef_config_read(txn, &s.config, err);
    if (status == REEF_OK) status = reef_generation_count(txn, &count, err);
    for (uint32_t g = 0; status == REEF_OK && g < count; g++) check_generation(&s, g);
    // A key that it ends at was reported.
    if (status == REEF_OK) (void)!reef_snapshot_scan(txn, on_snapshot, &s, NULL);
    return status;
}
