// The one writer of a pool: the public handle over stream, steps and growth.
#include "config.h"
#include "layer.h"
#include "learner.h"
#include "policy.h"
#include "reef_fail_point.h"
#include "vector.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KERNELS_BYTES 64

// ---- a new pool ----------------------------------------------------------------------------------

// Everything the trainer needs that the configuration decides.
static reef_status allocate(reef_trainer *trainer, reef_error *err) {
    const reef_config *config = &trainer->net.config;
    if (reef_config_is_vector(config)) return reef_vector_start(trainer, err);
    if (reef_config_is_layer(config)) {
        reef_status made = reef_workers_new(&trainer->workers, trainer->options.threads, err);
        return made == REEF_OK ? reef_layer_new(&trainer->layer, err) : made;
    }
    size_t windows = reef_step_windows(config), rows = windows * config->context;
    trainer->strategy.kind = reef_strategy_kind_of(config);
    trainer->tokens = calloc(rows, reef_token_bytes(config));
    trainer->targets = calloc(rows, reef_token_bytes(config));
    trainer->weight = calloc(rows, sizeof *trainer->weight);
    if (!trainer->tokens || !trainer->targets || !trainer->weight)
        return reef_fail(err, REEF_NO_MEMORY, "no memory for a batch of %zu tokens", rows);
    reef_status status = reef_workers_new(&trainer->workers, trainer->options.threads, err);
    if (status == REEF_OK) status = reef_pass_init(&trainer->pass, config, windows, true, err);
    if (status == REEF_OK) status = reef_reservoir_init(&trainer->reservoir, config, err);
    if (status == REEF_OK) status = reef_drift_init(&trainer->drift, config->drift_window, err);
    return status;
}

static reef_status start_firing(reef_trainer *trainer, reef_error *err) {
    if (trainer->vector != NULL || trainer->layer != NULL) return REEF_OK;
    reef_status status = reef_step_reserve(trainer, trainer->net.gen_count, err);
    if (status == REEF_OK) status = reef_firing_init(&trainer->firing, &trainer->net, err);
    return status;
}

static reef_status put_generations(reef_trainer *trainer,
                                   reef_txn *txn,
                                   uint64_t unix_ms,
                                   reef_error *err) {
    const reef_net *net = &trainer->net;
    for (size_t g = 0; g + 1 < net->gen_count; g++) {
        if (net->gens[g]->stored) continue;
        reef_status status = reef_state_delete(txn, net->gens[g]->info.generation, err);
        if (status == REEF_OK)
            status = reef_persist_sealed(txn, &net->config, net->gens[g], unix_ms, err);
        if (status != REEF_OK) return status;
    }
    return reef_persist_open(txn, &net->config, reef_open_generation(trainer), unix_ms, err);
}

// What a new pool begins with where nothing else does.
static reef_status first_generation(void *context, reef_trainer *trainer, reef_error *err) {
    const reef_config *config = &trainer->net.config;
    reef_gen *gen = NULL;
    reef_generation info = {.side = config->side, .dtype = REEF_F32};
    (void)context;
    reef_status status = trainer->vector != NULL ? reef_vector_open_generation(trainer, err)
                                                 : reef_gen_new(&gen, config, &info, err);
    if (gen != NULL) {
        reef_gen_initialise(gen, config, NULL);
        status = reef_net_append(&trainer->net, gen, err);
    }
    if (status != REEF_OK) return status;
    return reef_state_event(trainer, err, "init", "\"side\": %u", config->side);
}

// In a pool that is not in place yet: there is none without a configuration and a first commit.
static reef_status write_first_commit(void *context, reef_store *store, reef_error *err) {
    reef_trainer *trainer = context;
    reef_txn *txn = NULL;
    reef_commit commit = {
        .step = trainer->step, .stream_bytes = trainer->stream_bytes, .unix_ms = reef_unix_ms()};
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_WRITE, err);
    if (status == REEF_OK) status = reef_config_put(txn, &trainer->net.config, err);
    if (status == REEF_OK)
        status = trainer->vector != NULL ? reef_vector_put(trainer, txn, err)
                                         : put_generations(trainer, txn, commit.unix_ms, err);
    if (status == REEF_OK) status = reef_state_put(trainer, txn, err);
    if (status == REEF_OK) status = reef_state_put_history(trainer, txn, err);
    if (status != REEF_OK) {
        reef_txn_abort(txn);
        return status;
    }
    return reef_txn_commit(txn, &commit, err);
}

reef_status reef_pool_init_with(const char *path,
                                const reef_config *config,
                                reef_pool_fill fill,
                                void *context,
                                reef_error *err) {
    reef_config own = *config;
    reef_config_reduce(&own);
    reef_status status = reef_config_check(&own, err);
    if (status == REEF_OK) status = reef_ffw_check_new(&own, err);
    if (status != REEF_OK) return status;
    reef_trainer *trainer = calloc(1, sizeof *trainer);
    if (trainer == NULL) return reef_fail(err, REEF_NO_MEMORY, "no memory for a pool");
    trainer->net.config = own;
    trainer->options.threads = 1;
    status = allocate(trainer, err);
    if (status == REEF_OK) status = fill(context, trainer, err);
    if (status == REEF_OK) status = start_firing(trainer, err);
    if (status == REEF_OK && path != NULL)
        status = reef_store_create(path, write_first_commit, trainer, err);
    reef_trainer_close(trainer);
    return status;
}

reef_status reef_pool_init(const char *path, const reef_config *config, reef_error *err) {
    return reef_pool_init_with(path, config, first_generation, NULL, err);
}

// ---- which arithmetic ----------------------------------------------------------------------------

// Bits depend on the kernels: of ours and of the matrix products. The pool remembers which it was
// trained with last; not part of the root hash.
static const reef_key kernels_key = {.db = REEF_DB_META, .name = "kernels"};

static void kernels_text(char out[KERNELS_BYTES]) {
    snprintf(out, KERNELS_BYTES, "%s %s", reef_kernels_name(), reef_gemm_name());
}

static reef_status put_kernels(reef_txn *txn, reef_error *err) {
    char text[KERNELS_BYTES];
    kernels_text(text);
    return reef_record_put(txn, &kernels_key, REEF_BYTES, text, strlen(text), err);
}

// Say so when another kind of CPU goes on with a pool: what follows is right, but not the same bits.
static reef_status compare_kernels(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    char now[KERNELS_BYTES];
    reef_view before;
    reef_status status = reef_record_view(txn, &kernels_key, &before, err);
    if (status != REEF_OK) return status == REEF_NOT_FOUND ? REEF_OK : status;
    kernels_text(now);
    if (before.bytes == strlen(now) && memcmp(before.data, now, before.bytes) == 0) return REEF_OK;
    return reef_state_event(trainer, err, "kernels", "\"before\": \"%.*s\", \"now\": \"%s\"",
                            (int)before.bytes, (const char *)before.data, now);
}

// ---- open and close ------------------------------------------------------------------------------

static reef_status load_generations(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    if (trainer->vector != NULL) return reef_vector_load(trainer, txn, err);
    uint32_t count;
    reef_status status = reef_generation_count(txn, &count, err);
    if (status == REEF_OK)
        status = reef_residency_decide(&trainer->residency, txn, &trainer->net.config, count, err);
    for (uint32_t g = 0; status == REEF_OK && g < count; g++) {
        reef_gen *gen;
        status = reef_persist_load(&gen, txn, &trainer->net.config, g, g, true,
                                   trainer->residency.in_place, trainer->workers, err);
        if (status == REEF_OK) status = reef_net_append(&trainer->net, gen, err);
    }
    if (status != REEF_OK) return status;
    if (count == 0 || !reef_open_generation(trainer)->open ||
        reef_generation_is_empty(&reef_open_generation(trainer)->info) ||
        reef_generation_is_empty(&trainer->net.gens[0]->info))
        return reef_fail(err, REEF_CORRUPT, "pool %s has no open generation",
                         reef_store_path(trainer->store));
    return REEF_OK;
}

// Sealed rows into reach of the next passes.
static reef_status hold_rows(reef_trainer *trainer, reef_error *err) {
    if (trainer->vector != NULL) return REEF_OK; // all in memory
    reef_status status = reef_residency_hold(&trainer->residency, &trainer->net, err);
    trainer->pass.pager = trainer->residency.pager;
    return status;
}

static reef_status load_language(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    reef_status status = reef_strategy_load(trainer, txn, err);
    if (status == REEF_OK) status = reef_firing_copy(&trainer->ahead, &trainer->firing, err);
    if (status == REEF_OK) status = reef_persist_load_reservoir(txn, &trainer->reservoir, err);
    if (status == REEF_OK)
        status = reef_reservoir_check(&trainer->reservoir, &trainer->net.config, err);
    return status;
}

static reef_status load(reef_trainer *trainer, reef_error *err) {
    reef_txn *txn = NULL;
    reef_status status = reef_txn_begin(&txn, trainer->store, REEF_TXN_READ, err);
    if (status != REEF_OK) return status;
    status = reef_config_read(txn, &trainer->net.config, err);
    if (status == REEF_OK) status = allocate(trainer, err);
    if (status == REEF_OK) status = load_generations(trainer, txn, err);
    if (status == REEF_OK) status = start_firing(trainer, err);
    if (status == REEF_OK) status = reef_state_load(trainer, txn, err);
    if (status == REEF_OK && trainer->vector == NULL && trainer->layer == NULL)
        status = load_language(trainer, txn, err);
    if (trainer->layer != NULL) trainer->layer->fold_is_stale = true;
    if (status == REEF_OK) status = reef_commit_read(txn, &trainer->last_commit, err);
    if (status == REEF_OK) status = compare_kernels(trainer, txn, err);
    reef_txn_abort(txn);
    trainer->committed_step = trainer->step;
    return status == REEF_OK ? hold_rows(trainer, err) : status;
}

reef_status reef_trainer_open(reef_trainer **out,
                              reef_store *store,
                              const reef_trainer_options *options,
                              reef_error *err) {
    *out = NULL;
    reef_trainer *trainer = calloc(1, sizeof *trainer);
    if (trainer == NULL) return reef_fail(err, REEF_NO_MEMORY, "no memory for a trainer");
    trainer->store = store;
    if (options != NULL) trainer->options = *options;
    reef_residency_init(&trainer->residency, store, trainer->options.memory_bytes);
    reef_status status = load(trainer, err);
    if (status == REEF_OK) {
        *out = trainer;
        return REEF_OK;
    }
    reef_trainer_close(trainer);
    return status;
}

void reef_trainer_close(reef_trainer *trainer) {
    if (trainer == NULL) return;
    reef_state_forget_history(trainer);
    reef_pass_release(&trainer->pass);
    reef_reservoir_release(&trainer->reservoir);
    reef_drift_release(&trainer->drift);
    reef_strategy_release(&trainer->strategy);
    reef_firing_release(&trainer->firing);
    reef_firing_release(&trainer->ahead);
    reef_firing_release(&trainer->before);
    reef_residency_release(&trainer->residency);
    reef_vector_free(trainer->vector);
    reef_layer_free(trainer->layer);
    reef_net_release(&trainer->net);
    reef_workers_free(trainer->workers);
    free(trainer->sources);
    free(trainer->carry);
    free(trainer->held_bits);
    reef_prequential_release(&trainer->prequential);
    free(trainer->tokens);
    free(trainer->targets);
    free(trainer->fire);
    free(trainer->weight);
    free(trainer->margins);
    free(trainer->reading);
    free(trainer->points);
    free(trainer->events);
    free(trainer);
}

// ---- the stream ----------------------------------------------------------------------------------

static reef_source *find_source(const reef_trainer *trainer, const char *name) {
    for (size_t i = 0; i < trainer->source_count; i++)
        if (strcmp(trainer->sources[i].name, name) == 0) return &trainer->sources[i];
    return NULL;
}

static reef_status add_source(reef_trainer *trainer,
                              const char *name,
                              reef_source **out,
                              reef_error *err) {
    if (name[0] == '\0' || strlen(name) >= sizeof trainer->sources->name)
        return reef_fail(err, REEF_INVALID, "a source's name has %zu bytes; it needs 1 to %zu",
                         strlen(name), sizeof trainer->sources->name - 1);
    if (trainer->source_count >= REEF_SOURCE_COUNT_MAX)
        return reef_fail(err, REEF_FULL, "the pool has read from %d sources, the most there can be",
                         REEF_SOURCE_COUNT_MAX);
    reef_source *sources = realloc(trainer->sources, (trainer->source_count + 1) * sizeof *sources);
    if (sources == NULL) return reef_fail(err, REEF_NO_MEMORY, "no memory for source %s", name);
    trainer->sources = sources;
    *out = &sources[trainer->source_count++];
    **out = (reef_source){0};
    memcpy((*out)->name, name, strlen(name));
    return REEF_OK;
}

uint64_t reef_trainer_cursor(const reef_trainer *trainer, const char *source) {
    const reef_source *found = find_source(trainer, source);
    return found == NULL ? 0 : found->cursor;
}

reef_status reef_trainer_feed(reef_trainer *trainer,
                              const char *source,
                              const uint8_t *bytes,
                              size_t count,
                              size_t *taken,
                              size_t *steps,
                              reef_error *err) {
    size_t accepted = 0, done = 0;
    if (trainer->layer != NULL)
        return reef_fail(
            err, REEF_INVALID,
            "the pool holds a layer by itself, which has no stream; a program that uses "
            "it through libreef trains it");
    reef_status status = reef_trainer_hold(trainer, err);
    reef_source *from = find_source(trainer, source);
    if (status == REEF_OK && from == NULL) status = add_source(trainer, source, &from, err);
    if (status == REEF_OK && count > 0)
        reef_mark_source(&trainer->mark, trainer->net.config.boundary_mark,
                         (size_t)(from - trainer->sources));
    if (status == REEF_OK && count > 0)
        status = reef_prequential_source(trainer, (size_t)(from - trainer->sources), err);
    while (status == REEF_OK) {
        size_t took, ran;
        status = trainer->vector != NULL ? reef_vector_push(trainer, bytes + accepted,
                                                            count - accepted, &took, &ran, err)
                                         : reef_stream_push(trainer, from, bytes + accepted,
                                                            count - accepted, &took, &ran, err);
        accepted += took;
        from->cursor += took;
        done += ran;
        if ((took == 0 && ran == 0 && accepted == count) || (steps != NULL && ran > 0)) break;
        if (accepted == count && ran == 0) break;
    }
    if (taken != NULL) *taken = accepted;
    if (steps != NULL) *steps = done;
    return status;
}

// ---- commit and commands -------------------------------------------------------------------------

// The state of the trainer as one transaction, not yet ended.
static reef_status write_model(reef_trainer *trainer,
                               reef_txn *txn,
                               uint64_t unix_ms,
                               reef_error *err) {
    if (trainer->vector != NULL) return reef_vector_put(trainer, txn, err);
    reef_status status = put_generations(trainer, txn, unix_ms, err);
    if (trainer->layer != NULL) return status;
    if (status == REEF_OK) status = reef_persist_reservoir(txn, &trainer->reservoir, err);
    if (status == REEF_OK) status = reef_strategy_put(trainer, txn, err);
    return status;
}

static reef_status write_all(reef_trainer *trainer,
                             reef_txn *txn,
                             uint64_t unix_ms,
                             reef_error *err) {
    reef_status status = write_model(trainer, txn, unix_ms, err);
    REEF_FAIL_POINT(COMMIT_MODEL);
    if (status == REEF_OK) status = reef_state_put(trainer, txn, err);
    REEF_FAIL_POINT(COMMIT_STATE);
    if (status == REEF_OK) status = reef_state_put_history(trainer, txn, err);
    if (status == REEF_OK) status = put_kernels(txn, err);
    if (status == REEF_OK && trainer->scrub_known)
        status = reef_scrub_put(txn, &trainer->scrub, err);
    return status;
}

// Nothing is dirty any more.
static void settle(reef_trainer *trainer, const reef_commit *commit) {
    if (trainer->vector != NULL) {
        reef_vector_settle(trainer);
    } else {
        for (size_t g = 0; g < trainer->net.gen_count; g++)
            if (!trainer->net.gens[g]->stored) reef_persist_clean(trainer->net.gens[g]);
        if (trainer->reservoir.slots > 0)
            memset(trainer->reservoir.dirty, 0, trainer->reservoir.slots);
    }
    trainer->strategy.dirty = false;
    reef_state_forget_history(trainer);
    trainer->committed_step = trainer->step;
    trainer->last_commit = *commit;
}

static reef_status write_commit(reef_trainer *trainer,
                                reef_commit_prelude prelude,
                                void *context,
                                const char *snapshot_name,
                                reef_snapshot *snapshot,
                                reef_commit *out,
                                reef_error *err) {
    double start = reef_seconds();
    reef_txn *txn = NULL;
    reef_commit commit = {
        .step = trainer->step, .stream_bytes = trainer->stream_bytes, .unix_ms = reef_unix_ms()};
    reef_status status = reef_txn_begin(&txn, trainer->store, REEF_TXN_WRITE, err);
    if (status != REEF_OK) return status;
    REEF_FAIL_POINT(COMMIT_BEGUN);
    if (prelude != NULL) status = prelude(context, txn, err);
    if (status == REEF_OK) status = write_all(trainer, txn, commit.unix_ms, err);
    if (status == REEF_OK && snapshot_name != NULL)
        status = reef_snapshot_create(txn, snapshot_name, snapshot, err);
    if (status == REEF_OK && trainer->on_commit != NULL)
        status = trainer->on_commit(trainer->commit_context, txn, err);
    if (status != REEF_OK) {
        reef_txn_abort(txn);
        return status;
    }
    status = reef_txn_commit(txn, &commit, err);
    trainer->seconds_commit += reef_seconds() - start;
    if (status != REEF_OK) return status;
    settle(trainer, &commit);
    if (out != NULL) *out = commit;
    return REEF_OK;
}

// No transaction of ours may hold the map while the writer needs to enlarge it.
static reef_status commit_with(reef_trainer *trainer,
                               const char *snapshot_name,
                               reef_snapshot *snapshot,
                               reef_commit *out,
                               reef_error *err) {
    reef_residency_let_go(&trainer->residency);
    reef_status status = write_commit(trainer, NULL, NULL, snapshot_name, snapshot, out, err);
    // After a failure the rows are looked for again before the next batch.
    return status == REEF_OK ? hold_rows(trainer, err) : status;
}

reef_status reef_trainer_commit_after(reef_trainer *trainer,
                                      reef_commit_prelude prelude,
                                      void *context,
                                      reef_error *err) {
    reef_residency_let_go(&trainer->residency);
    return write_commit(trainer, prelude, context, NULL, NULL, NULL, err);
}

reef_status reef_trainer_hold(reef_trainer *trainer, reef_error *err) {
    return reef_residency_is_held(&trainer->residency) ? REEF_OK : hold_rows(trainer, err);
}

reef_status reef_trainer_commit(reef_trainer *trainer, reef_commit *out, reef_error *err) {
    return commit_with(trainer, NULL, NULL, out, err);
}

reef_status reef_trainer_snapshot(reef_trainer *trainer,
                                  const char *name,
                                  reef_snapshot *out,
                                  reef_error *err) {
    reef_snapshot unused;
    // The snapshot is of the commit before it plus what is dirty: first bring both together, so that
    // the commit it names is the state it holds.
    reef_status status = reef_trainer_commit(trainer, NULL, err);
    if (status == REEF_OK)
        status = commit_with(trainer, name, out == NULL ? &unused : out, NULL, err);
    if (status != REEF_OK) return status;
    REEF_FAIL_POINT(SNAPSHOT_COMMITTED);
    // Told only now: a name that was refused is no event.
    status = reef_state_event(trainer, err, "snapshot", "\"name\": \"%s\"", name);
    return status == REEF_OK ? reef_trainer_commit(trainer, NULL, err) : status;
}

typedef struct removal {
    char (*names)[REEF_NAME_BYTES_MAX + 1];
    size_t count;
} removal;

static reef_status remove_snapshots(void *context, reef_txn *txn, reef_error *err) {
    const removal *r = context;
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < r->count; i++)
        status = reef_snapshot_remove(txn, r->names[i], err);
    return status;
}

reef_status reef_trainer_snapshots_remove(reef_trainer *trainer,
                                          char (*names)[REEF_NAME_BYTES_MAX + 1],
                                          size_t count,
                                          reef_error *err) {
    removal r = {.names = names, .count = count};
    reef_status status = reef_trainer_commit_after(trainer, remove_snapshots, &r, err);
    // Told only now, as of a snapshot that was made.
    for (size_t i = 0; status == REEF_OK && i < count; i++)
        status = reef_state_event(trainer, err, "snapshot_remove", "\"name\": \"%s\"", names[i]);
    reef_status held = reef_trainer_hold(trainer, status == REEF_OK ? err : NULL);
    if (status == REEF_OK) status = held;
    return status == REEF_OK ? reef_trainer_commit(trainer, NULL, err) : status;
}

// A generation of a vector model has nothing in bf16, and is measured by its errors as they come.
static reef_status seal_vector(reef_trainer *trainer,
                               const char *seal_dtype,
                               reef_sealing *out,
                               reef_error *err) {
    uint32_t generation = reef_open_generation(trainer)->info.generation;
    if (seal_dtype != NULL && strcmp(seal_dtype, "f32") != 0)
        return reef_fail(err, REEF_INVALID,
                         "rows of a vector model stay f32 when they are sealed; not %.16s",
                         seal_dtype);
    reef_status status = reef_vector_boundary(trainer, "command", err);
    if (status == REEF_OK) status = reef_trainer_commit(trainer, NULL, err);
    if (status == REEF_OK && out != NULL)
        *out = (reef_sealing){.generation = generation,
                              .dtype = REEF_F32,
                              .loss_before = (double)NAN,
                              .loss_after = (double)NAN};
    return status;
}

reef_status reef_trainer_seal(reef_trainer *trainer,
                              const char *seal_dtype,
                              reef_sealing *out,
                              reef_error *err) {
    if (trainer->vector != NULL) return seal_vector(trainer, seal_dtype, out, err);
    if (trainer->layer != NULL) return reef_trainer_layer_seal(trainer, 0, seal_dtype, out, err);
    const reef_gen *open = reef_open_generation(trainer);
    reef_config config = trainer->net.config; // the pool's own stays as it is
    reef_sealing sealing;
    reef_status status = REEF_OK;
    if (seal_dtype != NULL) status = reef_config_set(&config, "seal_dtype", seal_dtype, err);
    if (status != REEF_OK) return status;
    if (reef_task_step(trainer) == 0)
        return reef_fail(err, REEF_INVALID,
                         "generation %" PRIu32
                         " is open and has trained nothing yet; there is nothing to seal",
                         open->info.generation);
    reef_opening opening;
    status = reef_policy_size(trainer, "command", NULL, 0, &opening, err);
    if (status != REEF_OK) return status;
    if (opening.side == 0)
        return reef_fail(err, REEF_FULL,
                         "the pool has %" PRIu64 " experts and was made for experts_max %" PRIu64
                         ": there is no room for another generation",
                         reef_policy_experts(trainer), config.experts_max);
    // Held batches wait in the carry and are looked at again, as the new generation's first.
    trainer->held_batches = 0;
    trainer->suspicious = 0;
    status = reef_firing_copy(&trainer->ahead, &trainer->firing, err);
    if (status == REEF_OK)
        status =
            reef_growth_boundary(trainer, &opening, reef_gen_seal_dtype(&config), &sealing, err);
    if (status == REEF_OK) status = reef_trainer_commit(trainer, NULL, err);
    if (status == REEF_OK && out != NULL) *out = sealing;
    return status;
}

// Experts of a vector model are drawn once, and their head is solved for all of them together.
static reef_status refuse_vector(const reef_trainer *trainer, const char *what, reef_error *err) {
    if (trainer->vector == NULL) return REEF_OK;
    return reef_fail(err, REEF_INVALID,
                     "experts of a vector model cannot be %s: they are drawn once and stay as they "
                     "are; seal the generation to open another",
                     what);
}

reef_status reef_trainer_grow(reef_trainer *trainer, uint32_t side, reef_error *err) {
    const reef_config *config = &trainer->net.config;
    reef_status refused = refuse_vector(trainer, "added", err);
    if (refused != REEF_OK) return refused;
    if (reef_config_retrieving_layers(config) == 0)
        return reef_fail(err, REEF_INVALID,
                         "the pool cannot grow to side %" PRIu32 ": its layers are of ffw %s, and "
                         "only those of kind p and k have experts that grow",
                         side, config->ffw);
    if (reef_trainer_layer_collected(trainer) > 0)
        return reef_fail(err, REEF_INVALID,
                         "gradients are collected; take the step or discard them before it grows");
    const reef_opening opening = {.reason = "command", .gap = NAN, .distance = NAN};
    reef_status status = reef_policy_check_side(trainer, side, err);
    if (status == REEF_OK) status = reef_growth_enlarge(trainer, side, &opening, err);
    if (status == REEF_OK && trainer->layer != NULL) {
        trainer->layer->fold_is_stale = true;
        trainer->layer->version++;
    }
    return status == REEF_OK ? reef_trainer_commit(trainer, NULL, err) : status;
}

// ---- freezing ------------------------------------------------------------------------------------

static int ascending_counts(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

// The count that a share `quantile` of the layer's experts do not exceed.
static reef_status usage_quantile(const reef_peer *peer,
                                  double quantile,
                                  uint64_t *out,
                                  reef_error *err) {
    uint64_t *counts = malloc(peer->expert_count * sizeof *counts);
    if (counts == NULL)
        return reef_fail(err, REEF_NO_MEMORY, "no memory to sort %zu experts", peer->expert_count);
    for (size_t i = 0; i < peer->expert_count; i++) counts[i] = peer->usage[i].count;
    qsort(counts, peer->expert_count, sizeof *counts, ascending_counts);
    *out = counts[(size_t)(quantile * (double)(peer->expert_count - 1))];
    free(counts);
    return REEF_OK;
}

static reef_status freeze_layer(reef_peer *peer,
                                const reef_freeze *freeze,
                                uint64_t *changed,
                                reef_error *err) {
    uint64_t above = 0;
    if (freeze->usage_quantile > 0.0) {
        reef_status status = usage_quantile(peer, freeze->usage_quantile, &above, err);
        if (status != REEF_OK) return status;
    }
    uint8_t flag = !freeze->thaw;
    for (uint64_t i = freeze->first; i <= freeze->last && i < peer->expert_count; i++) {
        if (freeze->usage_quantile > 0.0 && peer->usage[i].count <= above) continue;
        *changed += peer->flags[i] != flag;
        if (!freeze->dry_run) peer->flags[i] = flag;
    }
    return REEF_OK;
}

static reef_status check_freeze(const reef_trainer *trainer,
                                const reef_freeze *freeze,
                                reef_error *err) {
    const reef_config *config = &trainer->net.config;
    const reef_gen *open = reef_open_generation(trainer);
    uint64_t count = (uint64_t)open->info.side * open->info.side;
    if (freeze->layer < -1 || freeze->layer >= (int32_t)config->layers)
        return reef_fail(err, REEF_INVALID, "layer %d is outside the model's 0 to %u",
                         freeze->layer, config->layers - 1);
    if (freeze->layer >= 0 && !reef_layer_retrieves(config, (uint32_t)freeze->layer))
        return reef_fail(
            err, REEF_INVALID, "layer %d is of kind %s: it has no experts that are retrieved",
            freeze->layer, reef_ffw_text(reef_layer_ffw(config, (uint32_t)freeze->layer)));
    if (freeze->first > freeze->last)
        return reef_fail(err, REEF_INVALID, "experts %" PRIu64 " to %" PRIu64 " are no range",
                         freeze->first, freeze->last);
    if (freeze->first >= count)
        return reef_fail(err, REEF_INVALID,
                         "expert %" PRIu64 " is not in the open generation's 0 to %" PRIu64,
                         freeze->first, count - 1);
    if (!(freeze->usage_quantile >= 0.0 && freeze->usage_quantile < 1.0))
        return reef_fail(err, REEF_INVALID, "usage quantile %g is not in 0 to 1",
                         freeze->usage_quantile);
    return REEF_OK;
}

reef_status reef_trainer_freeze(reef_trainer *trainer,
                                const reef_freeze *freeze,
                                uint64_t *changed,
                                reef_error *err) {
    *changed = 0;
    reef_gen *open = reef_open_generation(trainer);
    reef_status status = refuse_vector(trainer, "frozen or thawed", err);
    if (status == REEF_OK) status = check_freeze(trainer, freeze, err);
    for (uint32_t l = 0; status == REEF_OK && l < trainer->net.config.layers; l++) {
        if (open->peers[l].expert_count == 0 ||
            (freeze->layer >= 0 && (uint32_t)freeze->layer != l))
            continue;
        status = freeze_layer(&open->peers[l], freeze, changed, err);
    }
    if (status != REEF_OK || freeze->dry_run) return status;
    status = reef_state_event(trainer, err, freeze->thaw ? "thaw" : "freeze", "\"experts\": %llu",
                              (unsigned long long)*changed);
    return status == REEF_OK ? reef_trainer_commit(trainer, NULL, err) : status;
}

// ---- status --------------------------------------------------------------------------------------

static void status_of_vector(const reef_trainer *trainer, reef_trainer_status *out) {
    out->suspicious = trainer->vector->held_batches;
    out->bits_per_byte = reef_vector_expected_errors(trainer->vector);
    if (isnan(out->bits_per_byte)) out->bits_per_byte = trainer->last_bits; // too few so far
    out->experts_open = trainer->vector->net.gens[0]->expert_count;
    out->experts = out->experts_open * trainer->vector->net.gen_count;
}

void reef_trainer_status_read(const reef_trainer *trainer, reef_trainer_status *out) {
    const reef_gen *open = reef_open_generation(trainer);
    double median, spread;
    reef_drift_level(&trainer->drift, &median, &spread);
    *out = (reef_trainer_status){
        .step = trainer->step,
        .stream_bytes = trainer->stream_bytes,
        .carried_bytes = trainer->carry_bytes,
        .skipped_bytes = trainer->skipped_bytes,
        .recycled_experts = trainer->recycled_experts,
        .generation = open->info.generation,
        .generation_step = trainer->generation_step,
        .task = trainer->strategy.task,
        .opened_at = open->info.opened_at,
        .suspicious = trainer->suspicious,
        .bits_per_byte = median,
        .last_bits_per_byte = trainer->last_bits,
        .learning_rate = (double)trainer->learning_rate,
        .dirty_since_step = trainer->step - trainer->committed_step,
        .seconds_forward = trainer->seconds_forward,
        .seconds_backward = trainer->seconds_backward,
        .seconds_router = trainer->pass.seconds_router,
        .seconds_experts = trainer->pass.seconds_experts,
        .seconds_update = trainer->seconds_update + trainer->pass.seconds_update,
        .seconds_commit = trainer->seconds_commit,
    };
    snprintf(out->strategy, sizeof out->strategy, "%s", trainer->net.config.strategy);
    for (size_t g = 0; g < trainer->net.gen_count; g++)
        for (uint32_t l = 0; l < trainer->net.config.layers; l++)
            out->experts += trainer->net.gens[g]->peers[l].expert_count;
    for (uint32_t l = 0; l < trainer->net.config.layers; l++)
        out->experts_open += open->peers[l].expert_count;
    out->drift = out->drift_limit = (double)NAN;
    if (trainer->vector != NULL) {
        status_of_vector(trainer, out);
    } else if (trainer->drift.count > 0) {
        out->drift_limit = reef_drift_limit(median, spread, &trainer->net.config);
        if (spread > 0 && trainer->last_bits > 0) // there has been a batch since the start
            out->drift = (trainer->last_bits - median) / spread;
    }
}
