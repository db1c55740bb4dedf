// Slots, sampling and the lists that gates are fitted on. Every draw is a function of the seed and
// of how many windows were offered before, so that a restart continues the same sample.
//
// Its records, all little-endian as this machine holds them:
//
//   slot  generation, size (uint32), stream offset (uint64), the bytes of the window
#include "reservoir.h"
#include "architecture.h"

#include "reef_random.h"

#include <stdlib.h>
#include <string.h>

enum { STREAM_OLD = 101, STREAM_YOUNG = 102 };

// What gates are fitted on: enough to tell kinds apart, and nothing beside a context memory.
// Windows are of a few hundred bytes, so that many places of the stream are in it; see
// window_bytes.
#define RESERVOIR_BYTES (1 << 20)
#define WINDOW_BYTES 1024
#define OLD_TO_YOUNG 4 // old slots to one young slot

#define SLOT_HEADER_BYTES 16

// Longer than the context, so that a whole window of tokens has its targets, and at most a batch,
// which is what a pass reads.
static size_t window_bytes(const reef_config *config) {
    size_t context = config->context, batch_bytes = config->batch * context;
    size_t window = WINDOW_BYTES > context ? WINDOW_BYTES : 2 * context;
    return window < batch_bytes ? window : batch_bytes;
}

reef_status reef_reservoir_init(reef_reservoir *reservoir,
                                const reef_config *config,
                                reef_error *err) {
    size_t window = window_bytes(config), old_slots = RESERVOIR_BYTES / window;
    // One slot in five is the young sample's: enough to fit a gate on, while the old sample keeps
    // its length.
    size_t young_slots = old_slots / OLD_TO_YOUNG;
    *reservoir = (reef_reservoir){
        .seed = config->seed,
        .window_bytes = window,
        .old_slots = old_slots,
        .slots = old_slots + young_slots,
    };
    size_t slots = reservoir->slots;
    // Zeroed: a slot of size 0 is empty.
    reservoir->bytes = calloc(slots, window);
    reservoir->sizes = calloc(slots, sizeof(*reservoir->sizes));
    reservoir->generations = calloc(slots, sizeof(*reservoir->generations));
    reservoir->offsets = calloc(slots, sizeof(*reservoir->offsets));
    reservoir->dirty = calloc(slots, 1);
    if (reservoir->bytes != NULL && reservoir->sizes != NULL && reservoir->generations != NULL &&
        reservoir->offsets != NULL && reservoir->dirty != NULL)
        return REEF_OK;
    reef_reservoir_release(reservoir);
    return reef_fail(err, REEF_ERR_NO_MEMORY,
                     "no memory for a reservoir of %zu windows of %zu bytes", slots, window);
}

void reef_reservoir_release(reef_reservoir *reservoir) {
    free(reservoir->bytes);
    free(reservoir->sizes);
    free(reservoir->generations);
    free(reservoir->offsets);
    free(reservoir->dirty);
    *reservoir = (reef_reservoir){0};
}

// Algorithm R: the n-th offer (from 0) takes slot n while there is room, then a random one of n +
// 1.
static bool draw_slot(uint64_t seed, uint64_t stream, uint64_t n, size_t slots, size_t *slot) {
    uint64_t drawn = n < slots ? n : reef_random_below(seed, stream, n, n + 1);
    *slot = (size_t)drawn;
    return drawn < slots;
}

static void fill_slot(reef_reservoir *reservoir,
                      size_t slot,
                      uint32_t generation,
                      uint64_t offset,
                      const uint8_t *bytes,
                      size_t size) {
    memcpy(reservoir->bytes + slot * reservoir->window_bytes, bytes, size);
    reservoir->sizes[slot] = (uint32_t)size;
    reservoir->generations[slot] = generation;
    reservoir->offsets[slot] = offset;
    reservoir->dirty[slot] = 1;
}

void reef_reservoir_offer(reef_reservoir *reservoir,
                          uint32_t generation,
                          uint64_t offset,
                          const uint8_t *bytes,
                          size_t count) {
    size_t size = reservoir->window_bytes, slot;
    for (size_t at = 0; at + size <= count; at += size) {
        // `seen` counts every window that was ever offered, so each has the same chance to be in
        // the sample (Vitter 1985, algorithm R).
        if (draw_slot(reservoir->seed, STREAM_OLD, reservoir->seen++, reservoir->old_slots, &slot))
            fill_slot(reservoir, slot, generation, offset + at, bytes + at, size);
        // The young sample's draws depend on the generation too: its count restarts each time.
        uint64_t stream = STREAM_YOUNG + ((uint64_t)generation << 8);
        size_t young = reservoir->slots - reservoir->old_slots;
        if (draw_slot(reservoir->seed, stream, reservoir->young_seen++, young, &slot))
            fill_slot(reservoir, reservoir->old_slots + slot, generation, offset + at, bytes + at,
                      size);
    }
}

void reef_reservoir_clear_sample(reef_reservoir *reservoir) {
    reservoir->young_seen = 0;
    for (size_t slot = reservoir->old_slots; slot < reservoir->slots; slot++) {
        if (reservoir->sizes[slot] == 0) continue;
        reservoir->sizes[slot] = 0;
        reservoir->dirty[slot] = 1;
    }
}

reef_status reef_reservoir_lists_init(reef_reservoir_lists *lists,
                                      const reef_reservoir *reservoir,
                                      uint32_t generation,
                                      const bool *own,
                                      reef_error *err) {
    size_t slots = reservoir->slots;
    *lists = (reef_reservoir_lists){
        // One allocation, cut into three lists of the greatest possible length.
        .bytes = calloc(3 * slots, sizeof(*lists->bytes)),
        .sizes = calloc(3 * slots, sizeof(*lists->sizes)),
    };
    if (lists->bytes == NULL || lists->sizes == NULL) {
        reef_reservoir_lists_release(lists);
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to list %zu windows", slots);
    }
    reef_gate_windows *list[] = {&lists->old_fit, &lists->old_calibrate, &lists->young};
    for (size_t i = 0; i < 3; i++)
        *list[i] = (reef_gate_windows){.bytes = lists->bytes + i * slots,
                                       .sizes = lists->sizes + i * slots};
    for (size_t slot = 0, old = 0; slot < slots; slot++) {
        if (reservoir->sizes[slot] == 0) continue;
        bool young = slot >= reservoir->old_slots;
        // A generation's own windows are not old to it, even in the old sample.
        if (!young && reservoir->generations[slot] >= generation) continue;
        young = young || (own != NULL && own[reservoir->generations[slot]]);
        // Every other old window calibrates: fitting and calibrating on the same text would hide
        // the leak.
        size_t which = young ? 2 : old++ % 2;
        size_t at = which * slots + list[which]->count++;
        lists->bytes[at] = reservoir->bytes + slot * reservoir->window_bytes;
        lists->sizes[at] = reservoir->sizes[slot];
    }
    return REEF_OK;
}

void reef_reservoir_lists_release(reef_reservoir_lists *lists) {
    free(lists->bytes);
    free(lists->sizes);
    *lists = (reef_reservoir_lists){0};
}

// ---- records ------------------------------------------------------------------------------------

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

reef_status reef_reservoir_put(reef_txn *txn, const reef_reservoir *reservoir, reef_error *err) {
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

reef_status reef_reservoir_load(reef_txn *txn, reef_reservoir *reservoir, reef_error *err) {
    return reef_record_scan(txn, REEF_DB_RESERVOIR, UINT32_MAX, load_slot, reservoir, err);
}
