// See merge_small.h.
#include "merge_small.h"
#include "events.h"
#include "kind_level.h"
#include "kind_memories.h"
#include "kind_names.h"
#include "recognition.h"
#include "text_verdict.h"

#include <inttypes.h>
#include <stdlib.h>

#define SMALL_MAX ((uint64_t)256 << 10) // bytes that it learned

// `into` learns the text of `from`, which has no memory from here on.
static reef_status merge_text(reef_trainer *trainer,
                              uint32_t from,
                              uint32_t into,
                              const uint8_t *text,
                              size_t count,
                              reef_error *err) {
    reef_status status = reef_recognition_learn_text(trainer, into, text, count, err);
    if (status == REEF_OK) status = reef_kind_mark_merged(trainer, from, into, err);
    if (status == REEF_OK)
        status = reef_state_event(trainer, err, "kind_merge",
                                  "\"reason\": \"contexts\", \"from\": %" PRIu32
                                  ", \"into\": %" PRIu32 ", \"text_bytes\": %zu",
                                  from, into, count);
    // Half of it must not be committed.
    if (status != REEF_OK) {
        reef_trainer_break(trainer, status);
        return status;
    }
    if (trainer->kinds.current == from) trainer->kinds.current = into;
    reef_kind_level_forget(trainer, from);
    return REEF_OK;
}

static reef_status merge_where_larger(
    reef_trainer *trainer, uint32_t kind, const uint8_t *text, size_t count, reef_error *err) {
    uint32_t into = 0;
    bool found = false;
    reef_status status = reef_text_find_larger(trainer, kind, text, count, &into, &found, err);
    return status == REEF_OK && found ? merge_text(trainer, kind, into, text, count, err) : status;
}

reef_status reef_kind_merge_small(reef_trainer *trainer, uint32_t kind, reef_error *err) {
    const uint64_t batch = reef_batch_bytes(&trainer->network.config);
    const reef_memory *memory = NULL;
    if (kind == reef_open_generation(trainer)->info.generation ||
        !reef_recognises_by_contexts(trainer) || !reef_is_kind(trainer, kind) ||
        reef_kind_is_merged(trainer, kind, NULL) ||
        reef_kind_names_of(&trainer->kinds.names, kind)[0] != '\0')
        return REEF_OK;
    // A large one is not read for this.
    if (kind >= trainer->kinds.level_count ||
        trainer->kinds.levels[kind].batches > SMALL_MAX / batch)
        return REEF_OK;
    reef_status status = reef_kind_load_memory(trainer, kind, &memory, err);
    if (status != REEF_OK || memory == NULL) return status;
    const uint64_t learned = reef_memory_learned_bytes(memory);
    if (learned == 0 || learned > SMALL_MAX) return REEF_OK;
    uint8_t *text = malloc(learned);
    if (text == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the text of kind %" PRIu32, kind);
    if (reef_memory_text(memory, text, learned) == learned)
        status = merge_where_larger(trainer, kind, text, learned, err);
    free(text);
    return status;
}
