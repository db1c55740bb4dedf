// Copies of generations under pseudo-generations, and the way back.
//
// A copy holds all that training needs to continue from it. What the pool keeps by generation
// (tensors, experts, flags, moments, memory) is copied under the copy's number; usage, whose keys
// belong to the root hash whatever generation they name, lies among the copy's moments under a name
// of its own:
//
// clang-format off
//   usage of layer L, block b (level 0, window 0)  <->  moments snapshot.usage.L, block b
// clang-format on
//
// Copies of sealed generations, which only a restore in place makes, have no moments. One alone may
// also be copied into a pool of its own, for another one to take in.
#include "store_internal.h"

#include "reef_byte_order.h"
#include "reef_snapshot.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USAGE_NAME "snapshot.usage."
#define USAGE_PREFIX_BYTES 16 // level u32, window u64, generation u32

// A record lifted out of the map: a write may move small records within their page.
typedef struct lifted {
    uint8_t *data;
    size_t bytes, room;
} lifted;

static reef_status lift(lifted *out, const reef_view *view, reef_error *err) {
    if (out->room < view->bytes) {
        uint8_t *larger = realloc(out->data, view->bytes);
        if (larger == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY, "out of memory for a record of %zu bytes",
                             view->bytes);
        out->data = larger;
        out->room = view->bytes;
    }
    if (view->bytes > 0) memcpy(out->data, view->data, view->bytes);
    out->bytes = view->bytes;
    return REEF_OK;
}

// Destination of a record: its key is changed in place.
typedef struct destination {
    void (*move)(struct destination *to, reef_key *key); // NULL: it stays
    reef_txn *txn;                                       // NULL: the one that is read
    uint32_t generation;
    char name[REEF_NAME_BYTES_MAX + 1]; // backs key->name
} destination;

// Copy the records whose keys begin with a prefix. Each step seeks again behind the last key: the
// copies are written to the same tree, and cursors do not survive that.
static reef_status copy_records(reef_txn *txn,
                                reef_db db,
                                const uint8_t *prefix,
                                size_t prefix_bytes,
                                destination *to,
                                reef_error *err) {
    lifted payload = {0};
    reef_key_bytes from = {.bytes = prefix_bytes};
    if (prefix_bytes > 0) memcpy(from.data, prefix, prefix_bytes);
    reef_status status = REEF_OK;
    for (bool found = true; found && status == REEF_OK;) {
        reef_cursor cursor;
        reef_key key;
        reef_view view;
        char name[REEF_NAME_BYTES_MAX + 1];
        found = false;
        status = reef_cursor_open(&cursor, txn, db, from.data, from.bytes, err);
        if (status == REEF_OK && !cursor.done && cursor.key.mv_size >= prefix_bytes &&
            (prefix_bytes == 0 || memcmp(cursor.key.mv_data, prefix, prefix_bytes) == 0)) {
            found = true;
            status = reef_record_verify(txn, db, &cursor, &key, name, &view, err);
            // Lifted out of the map, because writing the copy moves pages.
            if (status == REEF_OK) status = lift(&payload, &view, err);
        }
        reef_cursor_close(&cursor);
        if (!found || status != REEF_OK) break;
        status = reef_key_encode(&key, &from, err);
        from.data[from.bytes++] = 0; // the least key that is greater
        if (to->move != NULL) to->move(to, &key);
        if (status == REEF_OK)
            status = reef_record_store(to->txn != NULL ? to->txn : txn, &key, view.dtype,
                                       payload.data, payload.bytes, err);
    }
    free(payload.data);
    return status;
}

static reef_status copy_generation(reef_txn *txn,
                                   uint32_t generation,
                                   destination *to,
                                   reef_error *err) {
    uint8_t prefix[4];
    reef_status status = REEF_OK;
    reef_put_be32(prefix, generation);
    for (reef_db db = 0; status == REEF_OK && db < REEF_DB_COUNT; db++)
        if (reef_db_in_generation(db))
            status = copy_records(txn, db, prefix, sizeof(prefix), to, err);
    return status;
}

// ---- into a copy --------------------------------------------------------------------------------

static void move_generation(destination *to, reef_key *key) {
    key->generation = to->generation;
}

static void usage_name(uint32_t layer, char out[REEF_NAME_BYTES_MAX + 1]) {
    snprintf(out, REEF_NAME_BYTES_MAX + 1, USAGE_NAME "%" PRIu32, layer);
}

static void move_usage(destination *to, reef_key *key) {
    usage_name(key->layer, to->name);
    *key = (reef_key){
        .db = REEF_DB_MOMENTS, .generation = to->generation, .name = to->name, .block = key->block};
}

static reef_status copy_usage(reef_txn *txn,
                              uint32_t generation,
                              destination *to,
                              reef_error *err) {
    uint8_t prefix[USAGE_PREFIX_BYTES] = {0};
    reef_put_be32(prefix + 12, generation);
    return copy_records(txn, REEF_DB_USAGE, prefix, sizeof(prefix), to, err);
}

reef_status reef_generation_copy(reef_txn *txn,
                                 uint32_t generation,
                                 uint32_t copy,
                                 reef_error *err) {
    destination to = {.move = move_generation, .generation = copy};
    destination usage = {.move = move_usage, .generation = copy};
    reef_generation_record record;
    reef_status status = reef_generation_read(txn, generation, &record, err);
    if (status == REEF_OK) status = copy_generation(txn, generation, &to, err);
    if (status == REEF_OK) status = copy_usage(txn, generation, &usage, err);
    // Taken over the copy itself, so that a check needs nothing else.
    if (status == REEF_OK) status = reef_generation_root(txn, copy, record.root, err);
    if (status != REEF_OK) return status;
    record.generation = copy;
    return reef_generation_store(txn, &record, err);
}

reef_status reef_snapshot_usage_view(reef_txn *txn,
                                     uint32_t records,
                                     uint32_t layer,
                                     uint32_t block,
                                     reef_view *out,
                                     reef_error *err) {
    char name[REEF_NAME_BYTES_MAX + 1];
    reef_key key = {.db = REEF_DB_USAGE, .generation = records, .layer = layer, .block = block};
    if (records >= REEF_SNAPSHOT_GENERATION) {
        usage_name(layer, name);
        key =
            (reef_key){.db = REEF_DB_MOMENTS, .generation = records, .name = name, .block = block};
    }
    return reef_record_view(txn, &key, out, err);
}

// ---- and back -----------------------------------------------------------------------------------

static void move_back(destination *to, reef_key *key) {
    const char *name = key->name;
    if (name != NULL && strncmp(name, USAGE_NAME, strlen(USAGE_NAME)) == 0)
        *key = (reef_key){.db = REEF_DB_USAGE,
                          .generation = to->generation,
                          .layer = (uint32_t)strtoul(name + strlen(USAGE_NAME), NULL, 10),
                          .block = key->block};
    else
        key->generation = to->generation;
}

reef_status reef_generation_copy_back(reef_txn *txn,
                                      uint32_t copy,
                                      uint32_t generation,
                                      reef_error *err) {
    destination to = {.move = move_back, .generation = generation};
    reef_generation_record record;
    reef_status status = reef_generation_read(txn, copy, &record, err);
    if (status == REEF_OK) status = copy_generation(txn, copy, &to, err);
    if (status != REEF_OK) return status;
    record.generation = generation;
    memset(record.root, 0, sizeof(record.root)); // of an open one
    // Recomputed over what now lies in the pool, not carried over from the copy.
    if (record.sealed) status = reef_generation_root(txn, generation, record.root, err);
    return status == REEF_OK ? reef_generation_store(txn, &record, err) : status;
}

// ---- into a pool of its own ---------------------------------------------------------------------

reef_status reef_generation_copy_into(reef_txn *from,
                                      uint32_t generation,
                                      reef_txn *into,
                                      reef_error *err) {
    static const reef_db parts[] = {REEF_DB_TENSORS, REEF_DB_EXPERTS, REEF_DB_FLAGS,
                                    REEF_DB_MEMORY};
    destination to = {.txn = into};
    uint8_t prefix[4];
    reef_put_be32(prefix, generation);
    reef_status status = REEF_OK;
    for (uint32_t g = 0; status == REEF_OK && g <= generation; g++) {
        reef_generation_record record;
        status = reef_generation_read(from, g, &record, err);
        if (status == REEF_OK) status = reef_generation_store(into, &record, err);
    }
    for (size_t i = 0; status == REEF_OK && i < sizeof(parts) / sizeof(parts[0]); i++)
        status = copy_records(from, parts[i], prefix, sizeof(prefix), &to, err);
    return status == REEF_OK ? reef_blocks_copy_into(from, generation, into, err) : status;
}
