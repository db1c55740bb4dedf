// See reef_exchange.h.
#include "reef_exchange.h"

#include "checkpoint.h"
#include "commit.h"
#include "events.h"
#include "kind_memories.h"
#include "recognition.h"
#include "trainer_internal.h"

#include <inttypes.h>
#include <stdlib.h>

#define PIECE_BYTES 2048 // learned at a time; recognition takes its own

reef_status reef_trainer_exchange_check(const reef_trainer *trainer, reef_error *err) {
    reef_status status = reef_kind_allows(trainer->ops->no_import, err);
    if (status != REEF_OK) return status;
    if (reef_open_generation(trainer)->info.generation > 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "generation 0 is open: what is exchanged builds on a sealed one that all have "
                     "in common; let one pool learn something, seal it (reef seal), and copy it");
}

uint64_t reef_trainer_accepted(const reef_trainer *trainer) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < trainer->stream.source_count; i++)
        bytes += trainer->stream.sources[i].cursor;
    return bytes;
}

// ---- before -------------------------------------------------------------------------------------

// What deferred batches allow depends on the stream alone; when a commit or a restart came between
// must not be seen.
static reef_status learn_pending(reef_trainer *trainer, reef_error *err) {
    reef_status status = REEF_OK;
    size_t taken, steps = trainer->stream.source_count > 0 ? 1 : 0;
    while (status == REEF_OK && steps > 0)
        status = reef_trainer_feed(trainer, trainer->stream.sources[0].name, (const uint8_t *)"", 0,
                                   &taken, &steps, err);
    return status;
}

reef_status reef_trainer_exchange_seal(reef_trainer *trainer, reef_error *err) {
    reef_status status = learn_pending(trainer, err);
    if (status != REEF_OK) return status;
    if (trainer->generation_step == 0) return reef_trainer_commit(trainer, NULL, err);
    // The stream goes on in the same kind, unless its next piece says otherwise.
    trainer->kinds.keeps = reef_recognises_by_contexts(trainer);
    status = reef_trainer_seal(trainer, NULL, NULL, err);
    trainer->kinds.keeps = false;
    return status;
}

// ---- what a kind has learned --------------------------------------------------------------------

bool reef_trainer_kind_goes_on(const reef_trainer *trainer, uint32_t kind, uint32_t *out) {
    const uint32_t open = reef_open_generation(trainer)->info.generation;
    // A chain of mergings has an end, but what is read from a pool may not.
    for (uint32_t i = 0; i <= open; i++) {
        if (kind >= open || !reef_is_kind(trainer, kind)) return false;
        *out = kind;
        if (!reef_kind_is_merged(trainer, kind, &kind)) return true;
    }
    return false;
}

uint64_t reef_trainer_kind_returned(const reef_trainer *trainer, uint32_t kind) {
    return reef_kind_is_merged(trainer, kind, NULL) ? 0 : reef_kind_bytes_learned(trainer, kind);
}

reef_status reef_trainer_kind_sealed_bytes(const reef_trainer *trainer,
                                           uint32_t kind,
                                           uint64_t *out,
                                           reef_error *err) {
    reef_generation_memory memory = {0};
    reef_txn *txn = NULL;
    *out = 0;
    if (trainer->network.config.memory == 0) return REEF_OK;
    reef_status status = reef_txn_begin(&txn, trainer->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_checkpoint_read_memory(txn, kind, &memory, err);
    reef_txn_abort(txn);
    if (status == REEF_OK && memory.memory != NULL) *out = reef_memory_learned_bytes(memory.memory);
    reef_generation_memory_release(&memory);
    return status;
}

reef_status reef_trainer_kind_is_empty(const reef_trainer *trainer,
                                       uint32_t kind,
                                       bool *out,
                                       reef_error *err) {
    uint64_t bytes = 0;
    *out = false; // without memories what it has learned cannot be told
    if (trainer->network.config.memory == 0) return REEF_OK;
    reef_status status = reef_trainer_kind_sealed_bytes(trainer, kind, &bytes, err);
    *out = bytes == 0;
    return status;
}

bool reef_trainer_kind_level(const reef_trainer *trainer, uint32_t kind, reef_kind_level *out) {
    if (kind >= trainer->kinds.level_count || trainer->kinds.levels[kind].pieces == 0) return false;
    *out = trainer->kinds.levels[kind];
    return true;
}

const char *reef_trainer_kind_name_of(const reef_trainer *trainer, uint32_t kind) {
    return reef_kind_names_of(&trainer->kinds.names, kind);
}

reef_status reef_trainer_kind_text(reef_trainer *trainer,
                                   uint32_t kind,
                                   uint64_t count,
                                   uint8_t **out,
                                   size_t *got,
                                   reef_error *err) {
    const reef_memory *memory = NULL;
    *out = NULL;
    *got = 0;
    reef_status status = reef_kind_load_memory(trainer, kind, &memory, err);
    if (status != REEF_OK || memory == NULL) return status;
    size_t kept = reef_memory_text(memory, NULL, 0);
    if (count < kept) kept = (size_t)count;
    *out = malloc(kept + 1);
    if (*out == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu bytes of text", kept);
    *got = reef_memory_text(memory, *out, kept);
    return REEF_OK;
}

// ---- learning that of others --------------------------------------------------------------------

static reef_status learn_text(
    reef_trainer *trainer, uint32_t kind, const uint8_t *bytes, size_t count, reef_error *err) {
    reef_status status = REEF_OK;
    if (reef_recognises_by_contexts(trainer))
        return reef_recognition_learn_text(trainer, kind, bytes, count, err);
    for (size_t at = 0; status == REEF_OK && at < count; at += PIECE_BYTES)
        status = reef_kind_learn_text(trainer, kind, bytes + at,
                                      count - at < PIECE_BYTES ? count - at : PIECE_BYTES, err);
    return status;
}

reef_status reef_trainer_kind_learn(reef_trainer *trainer,
                                    uint32_t kind,
                                    const uint8_t *bytes,
                                    size_t count,
                                    const char *origin,
                                    reef_error *err) {
    reef_status status = reef_trainer_check_whole(trainer, err);
    // What was deferred is tested again, against what the kind knows then.
    if (status == REEF_OK) trainer->stream.deferred_batches = 0;
    if (status == REEF_OK) status = learn_text(trainer, kind, bytes, count, err);
    if (status == REEF_OK)
        status = reef_state_event(trainer, err, "kind_text",
                                  "\"kind\": %" PRIu32 ", \"bytes\": %zu, \"from\": \"%s\"", kind,
                                  count, origin);
    if (status != REEF_OK) {
        reef_trainer_break(trainer, status); // half of it must not be committed
        return status;
    }
    reef_recognition_forget(trainer);
    return reef_trainer_commit(trainer, NULL, err);
}
