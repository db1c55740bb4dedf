// A state of a pool read into a model: all its generations, or what an older copy of the model has
// of them, with the memories by which kinds answer as of that state.
#include "as_of.h"
#include "checkpoint.h"
#include "kind_heads.h"
#include "model_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool is_known(const reef_network *known,
                     const reef_generation_record *expected,
                     uint32_t g) {
    if (known == NULL || g >= known->generation_count || known->generations[g] == NULL)
        return false;
    const reef_generation_record *info = &known->generations[g]->info;
    return memcmp(info->root, expected->root, sizeof(expected->root)) == 0;
}

// Has its memory learned what the kind's has by now?
static bool is_at_head(const reef_generation *known, const reef_visit_entry *head) {
    if (head != NULL && head->merged)
        return known->memory.chain_is_known && known->memory.memory == NULL;
    return head == NULL ? !known->memory.chain_is_known
                        : memcmp(known->memory.chain, head->chain, REEF_HASH_BYTES) == 0;
}

static bool is_merged(const reef_kind_heads *heads, uint32_t kind) {
    const reef_visit_entry *newest = reef_kind_heads_find(heads, kind);
    return newest != NULL && newest->merged;
}

// A sealed generation does not change, and no open one has a root. What was merged with it stays
// right where the backbone, which is generation 0, is the same as well.
static bool take_known(reef_model *model,
                       const reef_kind_heads *heads,
                       const reef_generation_record *base,
                       const reef_generation_record *expected,
                       uint32_t g) {
    reef_network *known = model->residency.in_place ? NULL : model->known;
    if (!expected->sealed || !is_known(known, expected, g)) return false;
    if (reef_kind_heads_is_unlisted(heads, g)) return false;
    if (!is_at_head(known->generations[g], reef_kind_heads_find(heads, g))) return false;
    if (g > 0 && !is_known(known, base, 0)) return false;
    model->network.generations[g] = known->generations[g];
    if (model->shares)
        model->shared[g] = true;
    else
        known->generations[g] = NULL;
    return true;
}

// The memory that a kind answers by: where it came back not the one that was sealed with it. A
// damaged one is as of the newest generation for which it is whole.
static reef_status load_memory(reef_model *model,
                               reef_txn *txn,
                               const reef_kind_heads *heads,
                               uint32_t g,
                               reef_generation_memory *out,
                               reef_error *err) {
    reef_lost_kind lost;
    uint64_t bytes_max = model->network.config.memory;
    if (bytes_max == 0) return REEF_OK;
    reef_status status =
        reef_kind_heads_load_whole(heads, txn, g, bytes_max, model->careful, out, &lost, err);
    if (status != REEF_OK) return status;
    if (is_merged(heads, g)) out->chain_is_known = true;
    if (lost.what[0] == '\0') return REEF_OK;
    // A later copy of the model does not take what is left for the whole: see is_at_head.
    if (out->memory == NULL) out->chain_is_known = true;
    return reef_model_note_lost(model, &lost, err);
}

// One generation, which must still be what it was when the state was chosen. `head`: its memory,
// where its kind came back.
static reef_status load_generation(reef_model *model,
                                   reef_txn *txn,
                                   const reef_kind_heads *heads,
                                   const reef_generation_record *expected,
                                   reef_generation_memory *head,
                                   uint32_t g,
                                   reef_error *err) {
    reef_generation **generation = &model->network.generations[g];
    const reef_checkpoint_source source = {.number = g,
                                           .records = reef_as_of_records(heads->state, g),
                                           .in_place = model->residency.in_place,
                                           .memory_later = true};
    reef_status status =
        reef_checkpoint_load(generation, txn, &model->network.config, &source, NULL, err);
    if (status != REEF_OK) return status;
    if (reef_kind_heads_find(heads, g) != NULL)
        reef_generation_memory_move(&(*generation)->memory, head);
    else
        status = load_memory(model, txn, heads, g, &(*generation)->memory, err);
    if (status != REEF_OK) return status;
    if (memcmp((*generation)->info.root, expected->root, sizeof(expected->root)) == 0)
        return REEF_OK;
    return reef_fail(err, REEF_ERR_BUSY,
                     "generation %" PRIu32 " was given up while the model was read; try again", g);
}

static reef_status reserve_generations(reef_model *model, size_t count, reef_error *err) {
    reef_network *network = &model->network;
    // All slots are reserved first, so that a load which fails half way can be released as a whole.
    reef_status status = reef_network_reserve(network, count, err);
    if (status != REEF_OK) return status;
    memset(network->generations, 0, count * sizeof(*network->generations)); // NULL can be freed
    network->generation_count = count;
    if (!model->shares) return REEF_OK;
    model->shared = calloc(count, sizeof(*model->shared));
    return model->shared != NULL ? REEF_OK
                                 : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a model");
}

// Only generations between the backbone's and the last one may have given way to a later one.
static reef_status read_records(reef_generation_record *expected,
                                reef_txn *txn,
                                const reef_as_of *chosen,
                                reef_error *err) {
    reef_status status = REEF_OK;
    for (uint32_t g = 0; status == REEF_OK && g <= chosen->last; g++)
        status = reef_generation_read(txn, reef_as_of_records(chosen, g), &expected[g], err);
    return status;
}

// Memories of kinds that came back. What the open generation holds of them changes with commits, so
// they are read before the reader is renewed.
static reef_status load_heads(reef_generation_memory *out,
                              reef_model *model,
                              reef_txn *txn,
                              const reef_kind_heads *heads,
                              reef_error *err) {
    reef_status status = REEF_OK;
    for (uint32_t g = 0; status == REEF_OK && g < heads->state->last; g++)
        if (model->network.generations[g] == NULL && reef_kind_heads_find(heads, g) != NULL)
            status = load_memory(model, txn, heads, g, &out[g], err);
    return status;
}

// The last generation first, which may be open: it belongs to the same commit as the list of
// generations. Then what older kinds learned meanwhile, and the sealed ones downwards.
static reef_status load_all(reef_model *model,
                            reef_txn *txn,
                            const reef_as_of *chosen,
                            const reef_kind_heads *heads,
                            reef_generation_record *expected,
                            reef_generation_memory *memories,
                            reef_error *err) {
    reef_network *network = &model->network;
    uint32_t last = chosen->last;
    reef_status status = reserve_generations(model, (size_t)last + 1, err);
    // The records are read first: they say which generations an older copy has already.
    if (status == REEF_OK) status = read_records(expected, txn, chosen, err);
    // Downwards: of the others it matters that the backbone is still there.
    for (uint32_t g = last + 1; status == REEF_OK && g-- > 0;)
        (void)take_known(model, heads, &expected[0], &expected[g], g);
    if (status == REEF_OK && network->generations[last] == NULL)
        status = load_generation(model, txn, heads, &expected[last], &memories[last], last, err);
    if (status == REEF_OK) status = load_heads(memories, model, txn, heads, err);
    for (uint32_t g = last; status == REEF_OK && g-- > 0;)
        if (network->generations[g] == NULL)
            status = load_generation(model, txn, heads, &expected[g], &memories[g], g, err);
    return status;
}

static reef_status load_generations(reef_model *model,
                                    reef_txn *txn,
                                    const reef_as_of *chosen,
                                    reef_error *err) {
    size_t count = (size_t)chosen->last + 1;
    reef_kind_heads heads = {0};
    reef_generation_record *expected = calloc(count, sizeof(*expected));
    reef_generation_memory *memories = calloc(count, sizeof(*memories));
    reef_status status = REEF_OK;
    if (expected == NULL || memories == NULL)
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a model");
    if (status == REEF_OK) status = reef_kind_heads_read(&heads, txn, chosen, err);
    if (status == REEF_OK) status = load_all(model, txn, chosen, &heads, expected, memories, err);
    for (size_t g = 0; memories != NULL && g < count; g++)
        reef_generation_memory_release(&memories[g]);
    reef_kind_heads_release(&heads);
    free(memories);
    free(expected);
    return status;
}

reef_status reef_model_read_state(reef_model *model,
                                  reef_txn *txn,
                                  const reef_as_of *chosen,
                                  reef_error *err) {
    reef_status status =
        reef_residency_decide(&model->residency, txn, &model->network.config, chosen->own, err);
    return status == REEF_OK ? load_generations(model, txn, chosen, err) : status;
}
