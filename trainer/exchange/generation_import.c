// A sealed generation of another pool joins this one.
//
//   before   0 .. n-1 sealed   n open, has trained nothing
//   after    0 .. n-1 sealed   n the imported one, sealed   n+1 open, as new as n was
//
// Numbers are 0 to count - 1 and only the last may be open, so the imported one takes the open
// one's number. Moving a generation that has trained would mean rewriting its records, windows and
// history under another number; one that has not is simply made again. It is written like one that
// was sealed here: in memory first, and by the commit that follows.
//
// Nothing in the file is believed before it was checked: that it is of this configuration and on
// top of this backbone, that it has the tensors of such a generation and no others, and that its
// data has the root that it had in its pool.
#include "batch.h"
#include "boundary.h"
#include "checkpoint.h"
#include "commit.h"
#include "events.h"
#include "gate_refit.h"
#include "generation_file.h"
#include "kind_memories.h"
#include "recognition.h"
#include "reef_fail_point.h"
#include "room.h"
#include "trainer_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct importing {
    reef_trainer *trainer;
    const reef_import_options *options;
    double leak, leak_now;
    reef_safetensors file;
    reef_generation_origin origin;
    reef_generation_tensors parts;
    reef_generation *generation;  // the imported one; owned until the model has it
    reef_generation *next;        // the new open one; the same
    float gate[REEF_GATE_VALUES]; // as stored, of any length
    reef_memory_records memory;   // of `generation`, where it has one
} importing;

// ---- may it be here? ----------------------------------------------------------------------------

static reef_status check_trainer(const reef_trainer *trainer,
                                 const reef_import_options *options,
                                 reef_error *err) {
    const reef_generation *open = reef_open_generation(trainer);
    if (options->leak_max > 0.0 && trainer->network.config.gate == REEF_GATE_OFF)
        return reef_fail(err, REEF_ERR_INVALID,
                         "the pool was made with gate off: there is no threshold to raise");
    // An import becomes the generation after generation 0 at the earliest: its deltas correct a
    // backbone that must exist and be sealed.
    if (open->info.generation == 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "generation 0 of the pool is still open: what is imported was trained on "
                         "top of a sealed one");
    // Its number would be taken by the import and what it learned would be lost. Sealing first
    // gives it a number of its own.
    if (trainer->generation_step > 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "generation %" PRIu32 " is open and has trained %" PRIu64
                         " steps: what is imported takes the number of an open one that has not; "
                         "seal it first",
                         open->info.generation, trainer->generation_step);
    if (open->info.continues > 0 && !options->drop_branch)
        return reef_fail(err, REEF_ERR_INVALID,
                         "generation %" PRIu32 " is open and a branch of generation %" PRIu32
                         ", which would be lost: import first, and branch afterwards",
                         open->info.generation, open->info.parent);
    return REEF_OK;
}

// What decides the shapes of a generation, and what its numbers compute.
static const char *const SAME[] = {
    "model",          "layers",    "d_model",        "attention_heads", "context",
    "previous_bytes", "ffw",       "d_ffw",          "heads",           "topk",
    "d_key",          "adapters",  "score",          "subkeys",         "moe_experts",
    "moe_capacity",   "adapt_ffw", "adapt_position", "adapt_whole",     "weigh_older",
    "expert",         "fire_max",  "gate",
};

static json_t *config_json(const reef_config *config) {
    char *text = reef_config_format(config);
    json_t *object = text == NULL ? NULL : json_loads(text, 0, NULL);
    free(text);
    return object;
}

static reef_status differs(
    const char *path, const char *name, const json_t *theirs, const json_t *ours, reef_error *err) {
    // JSON_ENCODE_ANY: members are numbers or words, not whole documents.
    char *their_text = json_dumps(theirs, JSON_ENCODE_ANY);
    char *our_text = json_dumps(ours, JSON_ENCODE_ANY);
    // The first member that differs is reported with both values; more would not help to find the
    // right file.
    reef_status status = reef_fail(err, REEF_ERR_INVALID,
                                   "%.100s is of a pool with %s %.40s, this one was made with "
                                   "%.40s: they do not fit",
                                   path, name, their_text == NULL ? "" : their_text,
                                   our_text == NULL ? "" : our_text);
    free(their_text);
    free(our_text);
    return status;
}

static reef_status check_config(const importing *i, reef_error *err) {
    json_t *ours = config_json(&i->trainer->network.config);
    json_t *theirs = config_json(&i->origin.config);
    reef_status status = REEF_OK;
    if (ours == NULL || theirs == NULL)
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to compare configurations");
    // Only members that shape the computation are compared. Rates, thresholds and limits may differ
    // between the two pools.
    for (size_t k = 0; status == REEF_OK && k < sizeof(SAME) / sizeof(*SAME); k++) {
        const json_t *one = json_object_get(theirs, SAME[k]);
        const json_t *other = json_object_get(ours, SAME[k]);
        if (!json_equal(one, other)) status = differs(i->file.path, SAME[k], one, other, err);
    }
    json_decref(ours);
    json_decref(theirs);
    return status;
}

// How large context memories get may differ, and one that has learned keeps its bound. But a pool
// without any would answer as if this one had learned nothing, and one without a net would not ask
// it.
static reef_status check_memory(const importing *i, reef_error *err) {
    const reef_config *ours = &i->trainer->network.config, *theirs = &i->origin.config;
    if (ours->context_memory == 0 && reef_memory_is_in_file(&i->file, REEF_MEMORY_PREFIX))
        return reef_fail(err, REEF_ERR_INVALID,
                         "%.100s has a context memory, and this pool was made with context_memory "
                         "0, to have none: they do not fit",
                         i->file.path);
    if ((ours->net_share > 0.0f) == (theirs->net_share > 0.0f)) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "%.100s is of a pool with net_share %g, this one was made with %g: only one "
                     "of them has a net that learns and answers, so they do not fit",
                     i->file.path, (double)theirs->net_share, (double)ours->net_share);
}

// Generations 0 .. base_count - 1 must be those that it was trained on top of.
static reef_status check_base(const importing *i, reef_txn *txn, reef_error *err) {
    const reef_generation_origin *origin = &i->origin;
    uint32_t number = reef_open_generation(i->trainer)->info.generation;
    for (uint32_t g = 0; g < origin->base_count; g++) {
        reef_generation_record ours = {0};
        // Reading stops at the open generation: what comes after it does not exist here, and the
        // message below names the root that is missing.
        reef_status status = g < number ? reef_generation_read(txn, g, &ours, err) : REEF_OK;
        if (status != REEF_OK) return status;
        // Equal roots mean equal bits, so the import computes here what it computed there.
        if (g < number && memcmp(ours.root, origin->base_roots[g], REEF_HASH_BYTES) == 0) continue;
        char root[2 * REEF_HASH_BYTES + 1];
        reef_hash_format(origin->base_roots[g], root);
        return reef_fail(err, REEF_ERR_INVALID,
                         "%.100s was trained on top of a generation %" PRIu32
                         " with root %.12s, which this pool does not have: only pools that were "
                         "one until then can exchange it",
                         i->file.path, g, root);
    }
    // With several generations firing on a token, one in between would change its input.
    if (origin->base_count > 1 && number != origin->info.generation)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%.100s was trained directly on top of generation %" PRIu32
                         "; here it would be on top of generation %" PRIu32
                         ", and with this configuration that changes what it computes",
                         i->file.path, origin->info.generation - 1, number - 1);
    return REEF_OK;
}

static reef_status check_new(const importing *i, reef_txn *txn, reef_error *err) {
    const reef_generation_record *info = &i->origin.info;
    reef_generation_record ours;
    if (info->generation >= reef_open_generation(i->trainer)->info.generation) return REEF_OK;
    reef_status status = reef_generation_read(txn, info->generation, &ours, err);
    if (status != REEF_OK || memcmp(ours.root, i->origin.sealed_root, REEF_HASH_BYTES) != 0)
        return status;
    return reef_fail(err, REEF_ERR_INVALID, "%.120s is generation %" PRIu32 " of this very pool",
                     i->file.path, info->generation);
}

static reef_status check_room(const importing *i, reef_error *err) {
    const reef_config *config = &i->trainer->network.config;
    uint64_t more = reef_origin_experts(config, i->origin.info.side);
    uint64_t now = reef_room_experts(i->trainer);
    if (config->kinds_max > 0 && reef_room_kinds(i->trainer) >= config->kinds_max)
        return reef_room_fail(i->trainer, err);
    if (config->experts_max == 0 || now + more <= config->experts_max) return REEF_OK;
    return reef_fail(err, REEF_ERR_FULL,
                     "%.80s has %" PRIu64 " experts, the pool %" PRIu64
                     ", and it was made for experts_max %" PRIu64,
                     i->file.path, more, now, config->experts_max);
}

static reef_status check_origin(const importing *i, reef_error *err) {
    const reef_config *config = &i->trainer->network.config;
    uint32_t side = i->origin.info.side;
    reef_txn *txn = NULL;
    // Generation 0 is a whole model, not a correction.
    if (i->origin.info.generation == 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%.120s is generation 0, the backbone of its pool: copy the whole pool "
                         "instead",
                         i->file.path);
    reef_status status = check_config(i, err);
    if (status == REEF_OK) status = check_memory(i, err);
    if (status == REEF_OK) status = reef_txn_begin(&txn, i->trainer->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = check_new(i, txn, err);
    if (status == REEF_OK) status = check_base(i, txn, err);
    reef_txn_abort(txn);
    if (status == REEF_OK) status = check_room(i, err);
    if (status != REEF_OK) return status;
    // Before memory is made for such a side: each expert has a flag in the file.
    uint64_t experts = reef_origin_experts(config, side);
    if (experts > 0 && (side < config->topk || experts > i->file.data_bytes))
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "%.120s has no room for the %" PRIu64 " experts that it says it has",
                         i->file.path, experts);
    return REEF_OK;
}

// ---- what is in it ------------------------------------------------------------------------------

static bool same_shape(const reef_safetensor *one, const reef_safetensor *other) {
    return one->dtype == other->dtype && one->rank == other->rank &&
           memcmp(one->shape, other->shape, one->rank * sizeof(*one->shape)) == 0;
}

// Its tensors are those of the list, wherever they lie in the file: the list gets their offsets.
static reef_status match_parts(importing *i, reef_error *err) {
    // The list was made for a generation of this shape by this build. A file with more or fewer
    // tensors was written for another architecture, even if every name is known.
    for (size_t k = 0; k < i->parts.count; k++) {
        reef_safetensor *wanted = &i->parts.parts[k].tensor;
        const reef_safetensor *found = reef_safetensors_find(&i->file, wanted->name);
        if (found == NULL)
            return reef_fail(err, REEF_ERR_CORRUPT, "%.120s lacks the tensor %s", i->file.path,
                             wanted->name);
        if (!same_shape(found, wanted))
            return reef_fail(err, REEF_ERR_CORRUPT,
                             "%.100s: tensor %s has another type or shape than this "
                             "configuration gives it",
                             i->file.path, wanted->name);
        *wanted = *found;
    }
    if (i->file.tensor_count == i->parts.count) return REEF_OK;
    return reef_fail(err, REEF_ERR_CORRUPT, "%.120s has %zu tensors, such a generation has %zu",
                     i->file.path, i->file.tensor_count, i->parts.count);
}

static reef_status make_generation(importing *i, reef_error *err) {
    const reef_trainer *trainer = i->trainer;
    const reef_generation_record *open = &reef_open_generation(trainer)->info;
    // The record belongs to this pool: number, ids and stream positions are those of the pool that
    // it joins. The file's own record stays in `origin` for the report.
    const reef_generation_record info = {
        .generation = open->generation,
        .parent = open->parent,
        .side = i->origin.info.side,
        .first_id = open->first_id,
        .dtype = i->origin.info.dtype,
        .sealed = true,
        // Where it joined this pool's stream; the file has where it was in its own.
        .opened_step = open->opened_step,
        .sealed_step = trainer->step,
        .opened_at = open->opened_at,
        .sealed_at = trainer->stream_bytes,
    };
    const reef_safetensor *gate = reef_safetensors_find(&i->file, "gate");
    // Clamped before it sizes an array; a longer tensor is refused by match_parts.
    uint64_t gate_bytes = gate == NULL ? 0 : gate->end - gate->begin;
    if (gate_bytes > sizeof(i->gate)) gate_bytes = sizeof(i->gate);
    bool has_gate = reef_config_has_gates(&trainer->network.config);
    if (gate != NULL && !has_gate)
        return reef_fail(err, REEF_ERR_INVALID,
                         "the generation has a gate, and those of this pool have none: with "
                         "boundaries contexts and no net, memories alone say who answers");
    if (gate == NULL && has_gate) gate_bytes = sizeof(float); // it lacks one, which is found below
    reef_status status = reef_generation_new(&i->generation, &trainer->network.config, &info, err);
    if (status == REEF_OK)
        status = reef_memory_from_file(&i->generation->memory, &i->file, REEF_MEMORY_PREFIX, err);
    if (status == REEF_OK && i->generation->memory.memory != NULL)
        reef_generation_memory_list(&i->generation->memory, &i->memory);
    if (status == REEF_OK)
        status = reef_generation_tensors_init(&i->parts, &trainer->network.config, i->generation,
                                              gate_bytes / sizeof(float), err);
    return status == REEF_OK ? match_parts(i, err) : status;
}

// Where a part goes.
static void *memory_of(importing *i, const reef_generation_tensor *part) {
    const char *name = part->tensor.name;
    // Only ever read: the memory was restored from it, and is what will be written.
    if (part->db == REEF_DB_MEMORY)
        return (void *)(uintptr_t)reef_memory_records_find(&i->memory,
                                                           name + strlen(REEF_MEMORY_PREFIX))
            ->data;
    if (part->db == REEF_DB_EXPERTS) return i->generation->expert_tables[part->layer].memory;
    if (part->db == REEF_DB_FLAGS) return i->generation->expert_tables[part->layer].flags;
    if (strcmp(name, "gate") == 0) return i->gate;
    if (strcmp(name, "gate_weights") == 0) return i->generation->gate.weights;
    return reef_generation_find(i->generation, name)->data;
}

static reef_status read_part(importing *i,
                             const reef_generation_tensor *part,
                             reef_generation_hash *hash,
                             reef_error *err) {
    reef_tensor_record record;
    char *memory = memory_of(i, part);
    // A tensor is hashed in the same records in which the store will write it, so the root that
    // comes out is the root that its pool had.
    for (uint32_t b = 0; reef_tensor_record_at(part, i->origin.info.generation, b, &record); b++) {
        reef_status status = REEF_OK;
        // Read into place: no second copy of the data exists.
        if (part->db != REEF_DB_MEMORY)
            status = reef_safetensors_read(&i->file, part->tensor.begin + record.offset,
                                           memory + record.offset, record.bytes, err);
        if (status == REEF_OK && part->db == REEF_DB_MEMORY)
            status = reef_checkpoint_hash_packed(hash, &record.key, memory + record.offset,
                                                 record.bytes, err);
        else if (status == REEF_OK)
            status = reef_generation_hash_add(hash, &record.key, part->tensor.dtype,
                                              memory + record.offset, record.bytes, err);
        if (status != REEF_OK) return status;
    }
    return REEF_OK;
}

// All of its data, which must have the root that it had in its pool.
static reef_status read_parts(importing *i, reef_error *err) {
    uint8_t root[REEF_HASH_BYTES];
    float values[REEF_GATE_VALUES];
    reef_generation_hash *hash = NULL;
    size_t gate_bytes = 0;
    reef_status status = reef_generation_allocate_tables(i->generation, err);
    if (status == REEF_OK) status = reef_generation_hash_new(&hash, err);
    for (size_t k = 0; status == REEF_OK && k < i->parts.count; k++) {
        const reef_generation_tensor *part = &i->parts.parts[k];
        if (strcmp(part->tensor.name, "gate") == 0)
            gate_bytes = part->tensor.end - part->tensor.begin;
        status = read_part(i, part, hash, err);
    }
    if (status == REEF_OK) {
        reef_generation_hash_root(hash, root);
        // Compared before anything else is believed. A file that was cut, edited or damaged
        // anywhere in its data ends here.
        if (memcmp(root, i->origin.info.root, sizeof(root)) != 0)
            status = reef_fail(err, REEF_ERR_CORRUPT,
                               "%.120s is damaged: its data has another root than it says",
                               i->file.path);
    }
    reef_generation_hash_free(hash);
    if (status != REEF_OK || gate_bytes == 0) return status;
    status = reef_checkpoint_parse_gate(i->gate, gate_bytes, values, err);
    if (status != REEF_OK) return status;
    // The gate's values are checked as those of a checkpoint are: a threshold may be infinite,
    // nothing may be NaN.
    reef_checkpoint_set_gate(i->generation, values);
    return REEF_OK;
}

// ---- its gate against what this pool remembers --------------------------------------------------

// Margins over the windows of the reservoir that one generation was trained on, in the order of
// their slots: chained, since evidence takes longer to add up than a window is long.
static size_t score_generation(const reef_reservoir *reservoir,
                               const reef_gate *gate,
                               uint32_t generation,
                               float *margins) {
    size_t count = 0;
    reef_gate_state state;
    reef_gate_reset(gate, &state);
    for (size_t slot = 0; slot < reservoir->old_slots; slot++) {
        size_t size = reservoir->sizes[slot];
        // Slots of other generations are skipped without resetting the gate: text of the same
        // generation is read as one stream.
        if (size == 0 || reservoir->generations[slot] != generation) continue;
        reef_gate_score(gate, &state, size, reservoir->bytes + slot * reservoir->window_bytes,
                        margins + count);
        count += size;
    }
    return count;
}

static size_t score_all(const reef_reservoir *reservoir,
                        const reef_generation *generation,
                        float *margins) {
    size_t count = 0;
    for (uint32_t g = 0; g < generation->info.generation; g++)
        count += score_generation(reservoir, &generation->gate, g, margins + count);
    return count;
}

static double share_above(size_t count, const float *margins, float bound) {
    size_t fired = 0;
    for (size_t t = 0; t < count; t++) fired += margins[t] > bound;
    return (double)fired / (double)count; // NaN without a measurement
}

static int descending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

// On what share of the reservoir's bytes does the gate fire, read as one text a generation? Fitted
// in another pool, it has never met what was learned here since the pools parted. With a `leak_max`
// above 0 its threshold is raised until it fires on no more than that.
//
// gen     its gate's threshold and gate_leak are changed where it is raised
// before  written; NaN while the reservoir is empty
// after   written: the same with the threshold as it is now
static reef_status measure_gate(const reef_reservoir *reservoir,
                                reef_generation *generation,
                                double leak_max,
                                double *before,
                                double *after,
                                reef_error *err) {
    float *margins = calloc(reservoir->old_slots * reservoir->window_bytes + 1, sizeof(*margins));
    if (margins == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to measure the gate of a generation");
    size_t count = score_all(reservoir, generation, margins);
    *before = *after = share_above(count, margins, 0.0f);
    if (leak_max > 0.0 && *before > leak_max) {
        // The threshold is raised to the margin that a share of `leak_max` exceeds. Sorted in
        // descending order, that margin stands at index leak_max * count.
        qsort(margins, count, sizeof(*margins), descending);
        float raise = margins[(size_t)(leak_max * (double)count)];
        *after = share_above(count, margins, raise);
        // Margins are measured from the old threshold, so the raise is added to it. Detection falls
        // as leaking does; the caller reports both.
        generation->gate.threshold += raise;
        generation->gate_leak = (float)*after;
    }
    free(margins);
    return REEF_OK;
}

// ---- joining ------------------------------------------------------------------------------------

// In the transaction of the commit: what an earlier one holds of the open generation.
static reef_status clear_open(void *context, reef_txn *txn, reef_error *err) {
    reef_status status = reef_generation_clear(txn, *(const uint32_t *)context, err);
    REEF_FAIL_POINT(IMPORT_CLEARED);
    return status;
}

static reef_status add_event(const importing *i, reef_error *err) {
    const reef_generation_record *info = &i->origin.info;
    char root[2 * REEF_HASH_BYTES + 1], leaks[96] = "";
    reef_hash_format(info->root, root);
    // A leak is measured only where the reservoir has text of other generations.
    if (!isnan(i->leak))
        snprintf(leaks, sizeof(leaks), ", \"leak\": %.5f, \"leak_now\": %.5f", i->leak,
                 i->leak_now);
    return reef_state_event(i->trainer, err, "import",
                            "\"imported\": %" PRIu32 ", \"from\": %" PRIu32 ", \"side\": %" PRIu32
                            ", \"first_id\": %" PRIu64 ", \"root\": \"%s\", \"trained_bytes\": "
                            "%" PRIu64 "%s",
                            i->generation->info.generation, info->generation, info->side,
                            i->generation->info.first_id, root,
                            reef_origin_trained_bytes(info, &i->generation->memory), leaks);
}

// What is known of its kind beside the generation: both are of the same commit.
static reef_status describe_kind(const importing *i, reef_error *err) {
    reef_trainer *trainer = i->trainer;
    const char *name = i->options->name;
    uint32_t kind = i->generation->info.generation;
    reef_status status = REEF_OK;
    bool taken = name == NULL;
    for (size_t k = 0; !taken && k < trainer->kind_names.count; k++)
        taken = strcmp(trainer->kind_names.all[k].text, name) == 0;
    if (!taken) status = reef_kind_names_set(&trainer->kind_names, kind, name, err);
    if (status == REEF_OK && i->options->level != NULL)
        status = reef_recognition_set_level(trainer, kind, i->options->level, err);
    return status;
}

// The model with both new generations, and back to the state before if that cannot be committed.
static reef_status commit_joined(importing *i, reef_generation *old, reef_error *err) {
    reef_trainer *trainer = i->trainer;
    reef_network *network = &trainer->network;
    size_t n = network->generation_count - 1;
    // Kept for the way back: joining resets the state of the gate under this number.
    reef_gate_state before = trainer->gating.states[n];
    uint32_t number = i->generation->info.generation;
    network->generations[n] = i->generation;
    network->generations[n + 1] = i->next;
    network->generation_count++;
    // The tapes under number n were those of the open generation, of another shape.
    reef_activations_forget_generation(&trainer->acts, n);
    bool was_current = trainer->current_kind == n;
    if (was_current) trainer->current_kind++; // the open one
    reef_kind_names_shift(&trainer->kind_names, (uint32_t)n, 1);
    reef_gate_reset(&i->generation->gate,
                    &trainer->gating.states[n]); // it begins to read the stream here
    reef_status status = reef_growth_extend_gating(&trainer->gating, network, err);
    size_t events = trainer->event_count;
    if (status == REEF_OK) status = describe_kind(i, err);
    if (status == REEF_OK) status = add_event(i, err);
    // A test kills the process here: nothing is on disk yet, and the pool opens as it was.
    REEF_FAIL_POINT(IMPORT_JOINED);
    if (status == REEF_OK) status = reef_trainer_commit_after(trainer, clear_open, &number, err);
    if (status == REEF_OK) {
        i->generation = i->next = NULL; // the model owns them now
        reef_generation_free(old);
        return REEF_OK;
    }
    // Undo in memory, in the reverse order, so that training continues as if nothing had been
    // tried.
    while (trainer->event_count > events) free(trainer->events[--trainer->event_count]);
    network->generations[n] = old;
    network->generation_count--;
    if (was_current) trainer->current_kind--;
    (void)!reef_kind_names_set(&trainer->kind_names, number, "", NULL); // taking one away
    reef_recognition_forget_level(trainer, number);
    reef_kind_names_shift(&trainer->kind_names, (uint32_t)n + 1, -1);
    reef_activations_forget_generation(&trainer->acts, n);
    trainer->gating.states[n] = before;
    trainer->gating.generation_count = network->generation_count;
    return status;
}

static reef_status join_network(importing *i, reef_error *err) {
    reef_trainer *trainer = i->trainer;
    reef_generation *old = reef_open_generation(trainer);
    size_t count = trainer->network.generation_count + 1;
    // The open generation is replaced by the import and opened again after it. It has trained
    // nothing, so only its number changes.
    reef_status status =
        reef_growth_next(&i->next, trainer, &i->generation->info, old, old->info.side, err);
    // Nothing to fit it on yet: only a gate that is off for good is opened by this.
    if (status == REEF_OK) status = reef_growth_fit_gate(trainer, i->next, NULL, 0, err);
    if (status == REEF_OK) status = reef_network_reserve(&trainer->network, count, err);
    if (status == REEF_OK) status = reef_step_reserve(trainer, count, err);
    // What older kinds have learned since the last boundary is held by the open generation, and
    // goes with it to its next number.
    if (status == REEF_OK) status = reef_kinds_write_all_next(trainer, err);
    if (status != REEF_OK) return status;
    // Deferred batches stay pending and are tested again, with the imported generation. What was
    // decided about them is not part of a commit; deciding again costs a pass.
    trainer->deferred_batches = 0;
    status = commit_joined(i, old, err);
    if (status == REEF_OK) (void)!reef_trainer_pin(trainer, NULL); // as in commit.c
    return status;
}

static void describe_result(const importing *i, reef_import *out) {
    *out = (reef_import){
        .file = {.info = i->origin.info,
                 .trained_bytes =
                     reef_origin_trained_bytes(&i->origin.info, &i->generation->memory),
                 .builds_on = i->origin.base_count,
                 .experts = reef_origin_experts(&i->origin.config, i->origin.info.side),
                 .tensor_count = i->file.tensor_count,
                 .file_bytes = i->file.data_at + i->file.data_bytes},
        .generation = i->generation->info.generation,
        .first_id = i->generation->info.first_id,
        .open = i->generation->info.generation + 1,
        .leak = i->leak,
        .leak_now = i->leak_now,
    };
}

// What people know of a file that only carries a generation from pool to pool.
static reef_status call_file(importing *i, const char *name, reef_error *err) {
    char *own = strdup(name);
    if (own == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %.100s", name);
    free(i->file.path);
    i->file.path = own;
    return REEF_OK;
}

reef_status reef_trainer_import(reef_trainer *trainer,
                                const char *path,
                                const reef_import_options *options,
                                reef_import *out,
                                reef_error *err) {
    const reef_import_options standard = {0};
    if (options == NULL) options = &standard;
    // fd -1: reef_safetensors_close accepts it when opening failed.
    importing i = {.trainer = trainer, .options = options, .file.fd = -1};
    reef_import unused;
    reef_status status = reef_kind_allows(trainer->ops->no_import, err);
    if (status == REEF_OK) status = check_trainer(trainer, options, err);
    // The network must match the pool before n + 1 is committed next to it.
    if (status == REEF_OK && !options->dry_run && reef_trainer_has_unstored(trainer))
        status = reef_trainer_commit(trainer, NULL, err);
    if (status == REEF_OK) status = reef_safetensors_open(&i.file, path, err);
    if (status == REEF_OK && options->called != NULL) status = call_file(&i, options->called, err);
    if (status == REEF_OK) status = reef_origin_parse(&i.origin, &i.file, err);
    if (status == REEF_OK) status = check_origin(&i, err);
    if (status == REEF_OK) status = make_generation(&i, err);
    if (status == REEF_OK) status = read_parts(&i, err);
    REEF_FAIL_POINT(IMPORT_READ);
    // Leaking is measured on this pool's own text, which the file knows nothing of.
    if (status == REEF_OK)
        status = measure_gate(&trainer->reservoir, i.generation, options->leak_max, &i.leak,
                              &i.leak_now, err);
    if (status == REEF_OK) describe_result(&i, out == NULL ? &unused : out);
    if (status == REEF_OK && !options->dry_run) status = join_network(&i, err);
    // Whatever was handed over is NULL by now.
    reef_generation_free(i.generation);
    reef_generation_free(i.next);
    reef_generation_tensors_release(&i.parts);
    reef_origin_release(&i.origin);
    reef_safetensors_close(&i.file);
    return status;
}
