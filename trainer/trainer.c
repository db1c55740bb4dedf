// The one writer of a pool: the public handle over stream, steps and growth; how it is opened and
// closed, and its status.
#include "checkpoint.h"
#include "commit.h"
#include "divided.h"
#include "kind_heads.h"
#include "kind_memories.h"
#include "layer_internal.h"
#include "memory_lane.h"
#include "net_return.h"
#include "recognition.h"
#include "reef_kernels.h"
#include "reef_system.h"
#include "watching.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const reef_trainer_ops *const KINDS[] = {
    [REEF_MODEL_LM] = &reef_language_ops,
    [REEF_MODEL_LAYER] = &reef_layer_ops,
};

reef_status reef_trainer_allocate(reef_trainer *trainer, reef_error *err) {
    trainer->ops = KINDS[trainer->network.config.model];
    trainer->net.last_bits = (double)NAN;
    trainer->kinds.return_bytes = REEF_RETURN_BYTES;
    return trainer->ops->allocate(trainer, err);
}

// A shard that learned alone would be another pool than the rest. All of them together can only be
// read.
static reef_status check_shard(const reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    reef_shard shard;
    reef_error none;
    if (reef_store_part_count(trainer->store) > 1) return REEF_OK;
    if (trainer->options.shard.count > 0 || reef_shard_read(txn, &shard, &none) != REEF_OK)
        return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "pool %.120s is the shard of rank %" PRIu32 " of %" PRIu32
                     ": train it with mpirun -n %" PRIu32 " reefd --pool DIR, DIR being the "
                     "directory that holds it",
                     reef_store_path(trainer->store), shard.rank, shard.count, shard.count);
}

// What needs rows that lie elsewhere, in ways that are not divided.
static reef_status check_divided(const reef_trainer *trainer, reef_error *err) {
    const reef_shard *shard = &trainer->options.shard;
    const reef_config *config = &trainer->network.config;
    if (shard->count == 0) return REEF_OK;
    const char *what = NULL;
    if (config->model != REEF_MODEL_LM) what = "a layer by itself";
    if (shard->count != reef_ranks_count(trainer->options.ranks))
        what = "one rank of several alone";
    if (what == NULL) return REEF_OK;
    return reef_fail(
        err, REEF_ERR_INVALID,
        "pool %.120s is one of %" PRIu32
        " shards whose rows are divided, with which %s cannot be trained: make a whole "
        "pool of them with reef shards DIR NEW --to 1",
        reef_store_path(trainer->store), shard->count, what);
}

// To recover kinds it is read with the others.
static reef_status load_open_memory(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    reef_generation *open = reef_open_generation(trainer);
    reef_error reason;
    if (trainer->network.config.memory == 0 || trainer->options.recovers_kinds) return REEF_OK;
    reef_status status =
        reef_checkpoint_read_memory(txn, open->info.generation, &open->memory, &reason);
    if (status == REEF_OK) return REEF_OK;
    if (status != REEF_ERR_CORRUPT) return reef_fail(err, status, "%s", reason.message);
    return reef_kind_fail_damaged(open->info.generation, reason.message, err);
}

// What the ranks of a divided pool have to have alike, and what each has a part of. `status` is how
// this one fared until here.
static reef_status load_together(reef_trainer *trainer,
                                 reef_txn *txn,
                                 reef_status status,
                                 reef_error *err) {
    if (trainer->options.shard.count == 0)
        return status == REEF_OK ? load_open_memory(trainer, txn, err) : status;
    status = reef_divided_meet(trainer, status, err);
    if (status != REEF_OK || trainer->network.config.memory == 0) return status;
    reef_generation *open = reef_open_generation(trainer);
    status = reef_checkpoint_read_memory(txn, open->info.generation, &open->memory, err);
    if (status != REEF_OK) reef_divided_failed(trainer, err);
    return status;
}

static reef_status load_trainer(reef_trainer *trainer, reef_error *err) {
    reef_txn *txn = NULL;
    // One read transaction for everything: generations and state are of the same commit.
    reef_status status = reef_txn_begin(&txn, trainer->store, REEF_TXN_READ, err);
    if (status != REEF_OK) return status;
    status = reef_config_read(txn, &trainer->network.config, err);
    // Kinds that take turns and do not fit are read again at each. Ranks must hold the same ones.
    uint64_t half = trainer->net.residency.memory_bytes / 2;
    trainer->kinds.room = trainer->network.config.memory;
    if (trainer->options.shard.count == 0 && half > trainer->kinds.room) trainer->kinds.room = half;
    if (status == REEF_OK) status = check_shard(trainer, txn, err);
    if (status == REEF_OK) status = check_divided(trainer, err);
    if (status == REEF_OK) status = reef_trainer_allocate(trainer, err);
    // The order is that of dependence: the state needs generations, and memories of kinds the
    // state.
    if (status == REEF_OK) status = reef_generations_load(trainer, txn, err);
    status = load_together(trainer, txn, status, err);
    if (status == REEF_OK) status = reef_state_load(trainer, txn, err);
    if (status == REEF_OK) reef_open_kind_refresh_stats(trainer);
    if (status == REEF_OK) reef_kind_read_facts(trainer, txn);
    if (status == REEF_OK && !trainer->options.recovers_kinds)
        status = reef_kinds_check(trainer, txn, err);
    if (status == REEF_OK) status = reef_commit_read(txn, &trainer->last_commit, err);
    // Other kernels give other last bits. That is reported as an event, not refused.
    if (status == REEF_OK) status = reef_kernels_compare(trainer, txn, err);
    // Short transactions: a long one keeps old pages from being reused.
    reef_txn_abort(txn);
    trainer->committed_step = trainer->step;
    return status == REEF_OK ? reef_trainer_repin(trainer, err) : status;
}

void reef_trainer_give_way(reef_trainer *trainer, int niceness) {
    reef_thread_give_way(niceness);
    reef_thread_pool_give_way(trainer->workers, niceness);
}

reef_status reef_trainer_open(reef_trainer **out,
                              reef_store *store,
                              const reef_trainer_options *options,
                              reef_error *err) {
    *out = NULL;
    reef_trainer *trainer = calloc(1, sizeof(*trainer));
    if (trainer == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a trainer");
    trainer->store = store;
    if (options != NULL) trainer->options = *options;
    reef_residency_init(&trainer->net.residency, store, trainer->options.memory_bytes);
    reef_status status = load_trainer(trainer, err);
    if (status == REEF_OK) {
        *out = trainer;
        return REEF_OK;
    }
    // Also frees a trainer that was opened only in part.
    reef_trainer_close(trainer);
    return status;
}

void reef_trainer_close(reef_trainer *trainer) {
    if (trainer == NULL) return;
    reef_state_forget_history(trainer);
    // Each accepts zeros: of a layer most were never made, and opening may have failed anywhere.
    reef_memory_lane_free(trainer->memory.lane); // its thread learns a generation's memory
    reef_activations_release(&trainer->net.acts);
    reef_kinds_release(trainer);
    reef_recognition_release(trainer);
    reef_layer_free(trainer->layer);
    free(trainer->batch.tokens);
    free(trainer->batch.targets);
    free(trainer->batch.weight);
    free(trainer->memory.bits);
    free(trainer->memory.losses);
    reef_residency_release(&trainer->net.residency);
    reef_network_release(&trainer->network);
    reef_thread_pool_free(trainer->workers);
    free(trainer->stream.sources);
    free(trainer->stream.pending);
    reef_prequential_release(&trainer->stream.prequential);
    reef_watching_release(trainer);
    reef_kind_names_release(&trainer->kinds.names);
    reef_visit_log_release(&trainer->unstored.visit_log);
    free(trainer->unstored.points.all);
    free(trainer->unstored.events);
    free(trainer);
}

// ---- status -------------------------------------------------------------------------------------

// What was seen of a memory, and of now what costs nothing. memory  NULL: it is not loaded
static void describe_memory(reef_memory_status *out,
                            const reef_memory *memory,
                            const reef_memory_stats *seen,
                            uint64_t bytes_max) {
    *out = (reef_memory_status){.stats = *seen};
    if (memory != NULL) {
        out->stats.learned_bytes = reef_memory_learned_bytes(memory);
        reef_memory_inputs(memory, out->shares, out->hits);
    }
    out->stats.bytes_max = bytes_max;
}

// Of a kind that came back nothing is loaded before it is learned, by a daemon that began just now
// for example.
static void describe_kind(const reef_trainer *trainer, uint32_t kind, reef_memory_status *out) {
    reef_memory_stats seen = trainer->memory.stats;
    const reef_memory *memory =
        kind == reef_open_kind(trainer) ? reef_open_kind_memory(trainer) : NULL;
    if (memory == NULL) memory = reef_kind_view_loaded(trainer, kind, &seen);
    describe_memory(out, memory, &seen, trainer->network.config.memory);
}

static uint64_t experts_of(const reef_trainer *trainer, const reef_generation *generation) {
    uint64_t count = 0;
    for (uint32_t l = 0; l < trainer->network.config.layers; l++)
        count += generation->expert_tables[l].expert_count;
    return count;
}

void reef_trainer_status_read(const reef_trainer *trainer, reef_trainer_status *out) {
    const reef_generation *open = reef_open_generation(trainer);
    *out = (reef_trainer_status){
        .step = trainer->step,
        .stream_bytes = trainer->stream_bytes,
        .pending_bytes = trainer->stream.pending_bytes,
        .not_learned_bytes = trainer->stream.not_learned_bytes,
        .learns_all = trainer->store != NULL && reef_learns_all(&trainer->network.config),
        .visited_bytes = trainer->kinds.visited_bytes,
        .generation = open->info.generation,
        .generation_step = trainer->generation_step,
        .opened_at = open->info.opened_at,
        .bits_per_byte = reef_recent_losses_median(&trainer->stream.recent),
        .last_bits_per_byte = trainer->net.last_bits,
        .learning_rate = (double)trainer->net.learning_rate,
        .dirty_since_step = trainer->step - trainer->committed_step,
        .seconds_forward = trainer->seconds.forward,
        .seconds_backward = trainer->seconds.backward,
        .seconds_router = trainer->net.acts.seconds_router,
        .seconds_experts = trainer->net.acts.seconds_experts,
        .seconds_update = trainer->seconds.update + trainer->net.acts.seconds_update,
        .seconds_commit = trainer->seconds.commit,
        .watches = trainer->watching.watch != NULL,
    };
    if (out->watches) reef_watch_read_counts(trainer->watching.watch, &out->watch);
    if (out->watches) reef_watch_read_options(trainer->watching.watch, &out->watch_options);
    out->kind =
        reef_recognises_by_contexts(trainer) ? trainer->kinds.current : open->info.generation;
    snprintf(out->kind_name, sizeof(out->kind_name), "%s",
             reef_kind_names_of(&trainer->kinds.names, out->kind));
    // Counted instead of kept: generations come, go and grow.
    for (size_t g = 0; g < trainer->network.generation_count; g++) {
        out->kinds += reef_generation_begins_kind(&trainer->network.generations[g]->info);
        out->experts += experts_of(trainer, trainer->network.generations[g]);
    }
    out->experts_open = experts_of(trainer, open);
    if (trainer->network.config.memory == 0) return;
    describe_kind(trainer, reef_open_kind(trainer), &out->memory);
    out->kind_memory = out->memory;
    if (out->kind != reef_open_kind(trainer)) describe_kind(trainer, out->kind, &out->kind_memory);
    // What people see are losses with the memory's help.
    out->last_bits_per_byte =
        trainer->stream.recent.count > 0 ? trainer->memory.last_bits : (double)NAN;
}
