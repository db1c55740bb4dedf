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
// The other pool is read as any pool is, by the same checks; and it must be of this configuration,
// on top of this backbone, and have the root that it was sealed with.
#include "batch.h"
#include "boundary.h"
#include "checkpoint.h"
#include "commit.h"
#include "events.h"
#include "kind_heads.h"
#include "kind_level.h"
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

enum { NAME_BYTES = 200 };

typedef struct importing {
    reef_trainer *trainer;
    const reef_import_options *options;
    reef_txn *from;              // a read of the other pool
    reef_config config;          // of it
    reef_generation_record info; // there
    char name[NAME_BYTES];       // what messages call it
    uint64_t trained_bytes;      // see reef_import
    reef_generation *generation; // the imported one; owned until the model has it
    reef_generation *next;       // the new open one; the same
} importing;

// ---- may it be here? ----------------------------------------------------------------------------

static reef_status check_trainer(const reef_trainer *trainer,
                                 const reef_import_options *options,
                                 reef_error *err) {
    const reef_generation *open = reef_open_generation(trainer);
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
    "model", "layers", "d_model", "attention_heads", "context", "ffw",         "d_ffw",
    "heads", "topk",   "d_key",   "score",           "subkeys", "moe_experts", "expert",
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
    json_t *theirs = config_json(&i->config);
    reef_status status = REEF_OK;
    if (ours == NULL || theirs == NULL)
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to compare configurations");
    // Only members that shape the computation are compared. Rates, thresholds and limits may differ
    // between the two pools.
    for (size_t k = 0; status == REEF_OK && k < sizeof(SAME) / sizeof(*SAME); k++) {
        const json_t *one = json_object_get(theirs, SAME[k]);
        const json_t *other = json_object_get(ours, SAME[k]);
        if (!json_equal(one, other)) status = differs(i->name, SAME[k], one, other, err);
    }
    json_decref(ours);
    json_decref(theirs);
    return status;
}

// How large context memories get may differ, and one that has learned keeps its bound. But a pool
// without any would answer as if this one had learned nothing, and one without a net would not ask
// it.
static reef_status check_memory(const importing *i, reef_error *err) {
    const reef_config *ours = &i->trainer->network.config, *theirs = &i->config;
    if (ours->memory == 0 && theirs->memory > 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%.100s has a context memory, and this pool was made with memory "
                         "0, to have none: they do not fit",
                         i->name);
    if ((ours->net_share > 0.0f) == (theirs->net_share > 0.0f)) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "%.100s is of a pool with net_share %g, this one was made with %g: only one "
                     "of them has a net that learns and answers, so they do not fit",
                     i->name, (double)theirs->net_share, (double)ours->net_share);
}

// Generation 0 must be the one that it was trained on top of.
static reef_status check_base(const importing *i, reef_txn *txn, reef_error *err) {
    reef_generation_record theirs, ours;
    char root[2 * REEF_HASH_BYTES + 1];
    if (i->info.generation == 0) return REEF_OK;
    reef_status status = reef_generation_read(i->from, 0, &theirs, err);
    if (status == REEF_OK) status = reef_generation_read(txn, 0, &ours, err);
    // Equal roots mean equal bits, so the import computes here what it computed there.
    if (status != REEF_OK || memcmp(ours.root, theirs.root, REEF_HASH_BYTES) == 0) return status;
    reef_hash_format(theirs.root, root);
    return reef_fail(err, REEF_ERR_INVALID,
                     "%.100s was trained on top of a generation 0 with root %.12s, which this pool "
                     "does not have: only pools that were one until then can exchange it",
                     i->name, root);
}

static reef_status check_new(const importing *i, reef_txn *txn, reef_error *err) {
    reef_generation_record ours;
    if (i->info.generation >= reef_open_generation(i->trainer)->info.generation) return REEF_OK;
    reef_status status = reef_generation_read(txn, i->info.generation, &ours, err);
    if (status != REEF_OK || memcmp(ours.root, i->info.root, REEF_HASH_BYTES) != 0) return status;
    return reef_fail(err, REEF_ERR_INVALID, "%.120s is generation %" PRIu32 " of this very pool",
                     i->name, i->info.generation);
}

static uint64_t experts_of(const importing *i) {
    return reef_config_retrieving_layers(&i->config) * ((uint64_t)i->info.side * i->info.side);
}

static reef_status check_room(const importing *i, reef_error *err) {
    const reef_config *config = &i->trainer->network.config;
    if (config->kinds_max > 0 && reef_room_kinds(i->trainer) >= config->kinds_max)
        return reef_room_fail(i->trainer, err);
    if (reef_room_for_experts(i->trainer, (uint64_t)i->info.side * i->info.side)) return REEF_OK;
    return reef_fail(err, REEF_ERR_FULL,
                     "%.80s has %" PRIu64 " experts, the pool %" PRIu64
                     ", and it was made for experts_max %" PRIu64,
                     i->name, experts_of(i), reef_room_experts(i->trainer), config->experts_max);
}

static reef_status check_origin(const importing *i, reef_error *err) {
    reef_txn *txn = NULL;
    // Generation 0 is a whole model, not a correction.
    if (i->info.generation == 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%.120s is the backbone of its pool: copy the whole pool instead",
                         i->name);
    if (!i->info.sealed)
        return reef_fail(err, REEF_ERR_INVALID, "%.120s is open: seal it first", i->name);
    if (i->info.continues > 0 && i->options->as_sealed)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%.120s continues kind %" PRIu32
                         " and was sealed without a context memory of its own",
                         i->name, i->info.continues - 1);
    reef_status status = check_config(i, err);
    if (status == REEF_OK) status = check_memory(i, err);
    if (status == REEF_OK) status = reef_txn_begin(&txn, i->trainer->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = check_new(i, txn, err);
    if (status == REEF_OK) status = check_base(i, txn, err);
    reef_txn_abort(txn);
    return status == REEF_OK ? check_room(i, err) : status;
}

// ---- what is in it ------------------------------------------------------------------------------

static reef_status read_origin(importing *i,
                               reef_store *from,
                               uint32_t generation,
                               reef_error *err) {
    snprintf(i->name, sizeof(i->name), "generation %" PRIu32 " of %.160s", generation,
             reef_store_path(from));
    reef_status status = reef_txn_begin(&i->from, from, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_config_read(i->from, &i->config, err);
    return status == REEF_OK ? reef_generation_read(i->from, generation, &i->info, err) : status;
}

// What it went on to learn is in the other kind, and its own memory ends.
static reef_status fail_merged(const importing *i, uint32_t kind, reef_error *err) {
    return reef_fail(err, REEF_ERR_INVALID,
                     "kind %" PRIu32 " of %.120s was merged into another one: take that one "
                     "(reef kind list)",
                     kind, i->name);
}

// Of its kind as of the last commit there, with all that it learned when it came back.
static reef_status read_kind(const importing *i, reef_generation_memory *out, reef_error *err) {
    const uint32_t kind = reef_generation_kind(&i->info);
    reef_as_of now;
    reef_kind_heads heads = {0};
    size_t unused;
    reef_status status = reef_as_of_find(&now, i->from, NULL, err);
    if (status == REEF_OK) status = reef_kind_heads_read(&heads, i->from, &now, err);
    const reef_visit_entry *newest = status == REEF_OK ? reef_kind_heads_find(&heads, kind) : NULL;
    if (newest != NULL && newest->merged)
        status = fail_merged(i, kind, err);
    else if (status == REEF_OK)
        status = reef_kind_heads_load(&heads, i->from, kind, out, &unused, err);
    reef_kind_heads_release(&heads);
    return status;
}

static reef_status read_memory(importing *i, reef_generation_memory *out, reef_error *err) {
    reef_status status = REEF_OK;
    if (i->config.memory > 0)
        status = i->options->as_sealed
                     ? reef_checkpoint_read_memory(i->from, i->info.generation, out, err)
                     : read_kind(i, out, err);
    if (status == REEF_OK)
        status = reef_generation_memory_catch_up(out, i->config.memory, NULL, err);
    // The other pool may be closed before the memory is.
    if (status == REEF_OK && out->memory != NULL) status = reef_memory_text_copy(out->memory, err);
    out->adopted = true; // its slices and its text are in blocks of the other pool
    out->text_lent = 0;
    i->trained_bytes = out->memory != NULL ? reef_memory_learned_bytes(out->memory)
                                           : i->info.sealed_at - i->info.opened_at;
    return status;
}

// Its records are those that it was sealed with: each was compared with its sum as it was read, and
// the sums have its root.
static reef_status check_root(const importing *i, reef_error *err) {
    uint8_t root[REEF_HASH_BYTES];
    reef_status status = reef_generation_root(i->from, i->info.generation, root, err);
    if (status != REEF_OK || memcmp(root, i->info.root, sizeof(root)) == 0) return status;
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "%.120s is damaged: its records have another root than it was sealed with",
                     i->name);
}

// Number, ids and stream positions are those of the pool that it joins: where it joined its stream.
static void take_place(importing *i) {
    const reef_trainer *trainer = i->trainer;
    const reef_generation_record *open = &reef_open_generation(trainer)->info;
    i->generation->info = (reef_generation_record){
        .generation = open->generation,
        .parent = open->parent,
        .side = i->info.side,
        .first_id = open->first_id,
        .dtype = i->info.dtype,
        .sealed = true,
        .opened_step = open->opened_step,
        .sealed_step = trainer->step,
        .opened_at = open->opened_at,
        .sealed_at = trainer->stream_bytes,
    };
}

static reef_status read_generation(importing *i, reef_error *err) {
    const reef_checkpoint_source source = {
        .number = i->info.generation, .records = i->info.generation, .memory_later = true};
    reef_generation_memory memory = {0};
    reef_status status = read_memory(i, &memory, err);
    if (status == REEF_OK)
        status = reef_checkpoint_load(&i->generation, i->from, &i->config, &source,
                                      i->trainer->workers, err);
    if (status == REEF_OK) status = reef_checkpoint_load_tables(i->generation, i->from, err);
    if (status == REEF_OK) status = check_root(i, err);
    if (status != REEF_OK) {
        reef_generation_memory_release(&memory);
        return status;
    }
    reef_generation_memory_move(&i->generation->memory, &memory);
    take_place(i);
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
    const reef_generation_record *info = &i->info;
    char root[2 * REEF_HASH_BYTES + 1];
    reef_hash_format(info->root, root);
    return reef_state_event(i->trainer, err, "import",
                            "\"imported\": %" PRIu32 ", \"from\": %" PRIu32 ", \"side\": %" PRIu32
                            ", \"first_id\": %" PRIu64 ", \"root\": \"%s\", \"trained_bytes\": "
                            "%" PRIu64,
                            i->generation->info.generation, info->generation, info->side,
                            i->generation->info.first_id, root, i->trained_bytes);
}

// What is known of its kind beside the generation: both are of the same commit.
static reef_status describe_kind(const importing *i, reef_error *err) {
    reef_trainer *trainer = i->trainer;
    const char *name = i->options->name;
    uint32_t kind = i->generation->info.generation;
    reef_status status = REEF_OK;
    bool taken = name == NULL;
    for (size_t k = 0; !taken && k < trainer->kinds.names.count; k++)
        taken = strcmp(trainer->kinds.names.all[k].text, name) == 0;
    if (!taken) status = reef_kind_names_set(&trainer->kinds.names, kind, name, err);
    if (status == REEF_OK && i->options->level != NULL)
        status = reef_kind_level_set(trainer, kind, i->options->level, err);
    return status;
}

// The model with both new generations, and back to the state before if that cannot be committed.
static reef_status commit_joined(importing *i, reef_generation *old, reef_error *err) {
    reef_trainer *trainer = i->trainer;
    reef_network *network = &trainer->network;
    size_t n = network->generation_count - 1;
    uint32_t number = i->generation->info.generation;
    network->generations[n] = i->generation;
    network->generations[n + 1] = i->next;
    network->generation_count++;
    // The tapes under number n were those of the open generation, of another shape.
    reef_activations_forget_generation(&trainer->net.acts, n);
    bool was_current = trainer->kinds.current == n;
    if (was_current) trainer->kinds.current++; // the open one
    reef_kind_names_shift(&trainer->kinds.names, (uint32_t)n, 1);
    size_t events = trainer->unstored.event_count;
    reef_status status = describe_kind(i, err);
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
    reef_state_drop_events(trainer, events);
    network->generations[n] = old;
    network->generation_count--;
    if (was_current) trainer->kinds.current--;
    (void)!reef_kind_names_set(&trainer->kinds.names, number, "", NULL); // taking one away
    reef_kind_level_forget(trainer, number);
    reef_kind_names_shift(&trainer->kinds.names, (uint32_t)n + 1, -1);
    reef_activations_forget_generation(&trainer->net.acts, n);
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
    if (status == REEF_OK) status = reef_network_reserve(&trainer->network, count, err);
    // What older kinds have learned since the last boundary is held by the open generation, and
    // goes with it to its next number.
    if (status == REEF_OK) status = reef_kinds_write_all_next(trainer, err);
    if (status != REEF_OK) return status;
    // Deferred batches stay pending and are tested again, with the imported generation. What was
    // decided about them is not part of a commit; deciding again costs a pass.
    trainer->stream.deferred_batches = 0;
    status = commit_joined(i, old, err);
    if (status == REEF_OK) (void)!reef_trainer_pin(trainer, NULL); // as in commit.c
    return status;
}

static void describe_result(const importing *i, reef_import *out) {
    *out = (reef_import){
        .info = i->info,
        .trained_bytes = i->trained_bytes,
        .experts = experts_of(i),
        .generation = i->generation->info.generation,
        .first_id = i->generation->info.first_id,
        .open = i->generation->info.generation + 1,
    };
}

// Was a generation sealed since the last commit? It has no root before the next one.
static bool has_unstored(const reef_trainer *trainer) {
    for (size_t g = 0; g + 1 < trainer->network.generation_count; g++)
        if (!trainer->network.generations[g]->stored) return true;
    return false;
}

reef_status reef_trainer_import(reef_trainer *trainer,
                                reef_store *from,
                                uint32_t generation,
                                const reef_import_options *options,
                                reef_import *out,
                                reef_error *err) {
    const reef_import_options standard = {0};
    if (options == NULL) options = &standard;
    importing i = {.trainer = trainer, .options = options};
    reef_import unused;
    reef_status status = reef_kind_allows(trainer->ops->no_import, err);
    if (status == REEF_OK) status = check_trainer(trainer, options, err);
    // The network must match the pool before n + 1 is committed next to it.
    if (status == REEF_OK && !options->dry_run && has_unstored(trainer))
        status = reef_trainer_commit(trainer, NULL, err);
    if (status == REEF_OK) status = read_origin(&i, from, generation, err);
    if (status == REEF_OK) status = check_origin(&i, err);
    if (status == REEF_OK) status = read_generation(&i, err);
    reef_txn_abort(i.from);
    REEF_FAIL_POINT(IMPORT_READ);
    if (status == REEF_OK) describe_result(&i, out == NULL ? &unused : out);
    if (status == REEF_OK && !options->dry_run) status = join_network(&i, err);
    // Whatever was handed over is NULL by now.
    reef_generation_free(i.generation);
    reef_generation_free(i.next);
    return status;
}
