// Records of the reservoir, all little-endian as this machine holds them:
//
//   slot  generation, size (uint32), stream offset (uint64), the bytes of the window
#include "checkpoint.h"

#include <stdlib.h>
#include <string.h>

#define SLOT_HEADER_BYTES 16

typedef struct windows_visit {
    reef_window_visit visit;
    void *context;
} windows_visit;

static reef_status visit_window(void *context,
                                const reef_key *key,
                                const reef_view *view,
                                reef_error *err) {
    const windows_visit *to = context;
    const uint8_t *payload = view->data;
    uint32_t generation, size;
    // Checked here so that the visitor may trust its pointer and size.
    if (view->bytes < SLOT_HEADER_BYTES)
        return reef_fail(err, REEF_ERR_CORRUPT, "slot %u of the reservoir has no header",
                         key->block);
    memcpy(&generation, payload, 4);
    memcpy(&size, payload + 4, 4);
    if (size > view->bytes - SLOT_HEADER_BYTES)
        return reef_fail(err, REEF_ERR_CORRUPT, "slot %u of the reservoir is cut", key->block);
    return to->visit(to->context, generation, payload + SLOT_HEADER_BYTES, size, err);
}

reef_status reef_reservoir_scan(reef_txn *txn,
                                reef_window_visit visit,
                                void *context,
                                reef_error *err) {
    windows_visit to = {visit, context};
    return reef_record_scan(txn, REEF_DB_RESERVOIR, UINT32_MAX, visit_window, &to, err);
}

reef_status reef_checkpoint_reservoir(reef_txn *txn,
                                      const reef_reservoir *reservoir,
                                      reef_error *err) {
    reef_status status = REEF_OK;
    // Header and window must be one value; they lie apart in memory.
    uint8_t *payload = malloc(SLOT_HEADER_BYTES + reservoir->window_bytes);
    if (payload == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a window of the reservoir");
    for (size_t slot = 0; status == REEF_OK && slot < reservoir->slots; slot++) {
        // The reservoir changes in a few slots per commit, and is megabytes large.
        if (!reservoir->dirty[slot]) continue;
        reef_key key = {.db = REEF_DB_RESERVOIR, .block = (uint32_t)slot};
        uint32_t size = reservoir->sizes[slot];
        // A slot that was emptied has no record: absent means empty.
        if (size == 0) {
            status = reef_record_delete(txn, &key, err);
            continue;
        }
        memcpy(payload, &reservoir->generations[slot], 4);
        memcpy(payload + 4, &size, 4);
        memcpy(payload + 8, &reservoir->offsets[slot], 8);
        memcpy(payload + SLOT_HEADER_BYTES, reservoir->bytes + slot * reservoir->window_bytes,
               size);
        status = reef_record_put(txn, &key, REEF_BYTES, payload, SLOT_HEADER_BYTES + size, err);
    }
    free(payload);
    return status;
}

static reef_status load_slot(void *context,
                             const reef_key *key,
                             const reef_view *view,
                             reef_error *err) {
    reef_reservoir *reservoir = context;
    const uint8_t *payload = view->data;
    size_t slot = key->block;
    uint32_t size = 0;
    if (view->bytes >= SLOT_HEADER_BYTES) memcpy(&size, payload + 4, 4);
    // A reservoir made smaller by another configuration does not happen; a slot beyond the end is
    // damage.
    if (slot >= reservoir->slots || size == 0 || size > reservoir->window_bytes ||
        view->bytes != SLOT_HEADER_BYTES + size)
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "reservoir slot %zu holds %zu bytes, which is not a window of this pool",
                         slot, view->bytes);
    reservoir->sizes[slot] = size;
    memcpy(&reservoir->generations[slot], payload, 4);
    memcpy(&reservoir->offsets[slot], payload + 8, 8);
    memcpy(reservoir->bytes + slot * reservoir->window_bytes, payload + SLOT_HEADER_BYTES, size);
    return REEF_OK;
}

reef_status reef_checkpoint_load_reservoir(reef_txn *txn,
                                           reef_reservoir *reservoir,
                                           reef_error *err) {
    return reef_record_scan(txn, REEF_DB_RESERVOIR, UINT32_MAX, load_slot, reservoir, err);
}
