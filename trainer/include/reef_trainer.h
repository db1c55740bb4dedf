// How experts change: one training step, the lifelong policy, commits. Everything is a pure
// function of (configuration with seed, stream): thread count, commits and crashes leave no trace
// in the bits.
//
// A reef_trainer is the one writer of a pool. What is configured stands in reef_config.h, what
// reads a pool in reef_model.h; both come with this header.
//
// Threads: one at a time on a trainer and its store, in all functions of this header.
//
// Errors: whatever returns a status can also fail with NO_MEMORY, IO, or CORRUPT, which names the
// record; whatever commits also with FULL, where the disk has no room, and the pool is then as its
// last commit left it. After a step or a boundary that ended half way, feeding and committing fail
// as it did until the pool is opened again. Docstrings name the other errors.
#ifndef REEF_TRAINER_H
#define REEF_TRAINER_H

#include "reef_config.h"
#include "reef_model.h"
#include "reef_pool_check.h"
#include "reef_push_journal.h"
#include "reef_ranks.h"
#include "reef_shard.h"
#include "reef_snapshot.h"
#include "reef_usage.h"
#include "reef_watch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct reef_trainer reef_trainer;

/** Something worth telling that happened in training. `json` is also what the timeline holds. */
typedef void (*reef_trainer_on_event)(void *context, const char *json);

typedef struct reef_trainer_options {
    size_t threads; // 0: one per core
    // As in reef_model_options. Memories of kinds that rest have half of it, if that is more than
    // the pool's budget, and the pool is not divided. It changes no bit.
    uint64_t memory_bytes;
    // Open it although kinds are damaged, for reef_trainer_kinds_recover alone.
    bool recovers_kinds;
    uint64_t pool_max; // bytes that the pool may take, see reef_trainer_set_pool_max; 0: no bound
    // That share the net's steps, each with a trainer on its shard of one pool; NULL: this process
    // alone. All are given the same calls in the same order, and then hold the same bits as one
    // alone; commits are epochs, of all ranks together.
    reef_ranks *ranks;              // outlives the trainer
    reef_shard shard;               // with ranks: as it was read
    reef_trainer_on_event on_event; // called on the trainer's thread; may be NULL
    void *context;
} reef_trainer_options;

/**
 * Load the pool's last commit for training. The store must be open for writing and outlive the
 * trainer. Bytes that were accepted but not yet trained are part of the commit and are taken up
 * again.
 *
 * Errors: INVALID the pool is a shard, and no ranks were given.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_open(reef_trainer **out,
                                                       reef_store *store,
                                                       const reef_trainer_options *options,
                                                       reef_error *err);
/**
 * Bound what the pool takes, from the next commit on; 0: no bound. Where its records take more, a
 * commit gives up the oldest states as of generations, as reef_trainer_prune does, until they take
 * nine tenths of it. The present state, and what snapshots need, is never given up: if that is
 * more, an event `over` says so once. No root hash depends on it.
 */
REEF_API void reef_trainer_set_pool_max(reef_trainer *trainer, uint64_t bytes);
/**
 * The calling thread, which is to be the trainer's, its workers, and threads that a step starts
 * give way to other threads; see reef_thread_give_way. It changes no bit.
 */
REEF_API void reef_trainer_give_way(reef_trainer *trainer, int niceness);
/** Forget everything since the last commit. Accepts NULL. */
REEF_API void reef_trainer_close(reef_trainer *trainer);

/**
 * Bytes of the named source that have been accepted so far (in commits or since): read on from
 * here.
 */
REEF_API uint64_t reef_trainer_cursor(const reef_trainer *trainer, const char *source);
/**
 * Its index among the sources, which are in the order in which they were first read; SIZE_MAX if it
 * never was.
 */
REEF_API size_t reef_trainer_source_index(const reef_trainer *trainer, const char *source);

#define REEF_SOURCE_COUNT_MAX 1024 // that one pool may ever read from; each has a cursor
/**
 * Whether the pool can read from all of these sources, beside those that it has read from.
 *
 * Errors: INVALID they would be more than REEF_SOURCE_COUNT_MAX; reef_trainer_feed would end with
 * FULL at one of them.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_sources_fit(const reef_trainer *trainer,
                                                              const char *const *sources,
                                                              size_t count,
                                                              reef_error *err);

/** The loss on what a source gave, each token before it was trained on, since opening. */
typedef struct reef_source_loss {
    uint64_t scored; // tokens
    double sum;      // bits
    double recent;   // mean of about the last 65,536 bytes
} reef_source_loss;

/** False when nothing of it was scored yet. */
REEF_API bool reef_trainer_source_loss(const reef_trainer *trainer,
                                       const char *source,
                                       reef_source_loss *out);

/**
 * Accept the next `count` bytes of a source and train as far as whole batches reach. Deterministic
 * in the concatenated stream: how it is cut into calls does not matter.
 *
 * When `steps` is not NULL the call returns once batches were trained: a piece of the stream, or
 * all deferred ones that a decision lets it learn. *taken is how many bytes were accepted (possibly
 * fewer than `count`), *steps how many steps ran; call again with the rest.
 *
 * Errors: INVALID a new source whose name is not UTF-8; what was accepted before stays. INVALID
 * training diverged: the loss or a query is not finite; NO_MEMORY: where a step ended half way by
 * them, nothing since the last commit is kept, and feed, commit and seal fail alike until the pool
 * is opened again.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_feed(reef_trainer *trainer,
                                                       const char *source,
                                                       const uint8_t *bytes,
                                                       size_t count,
                                                       size_t *taken,
                                                       size_t *steps,
                                                       reef_error *err);
/**
 * The same of bytes that lie in one of a source's files, where it has several: incidents then name
 * that, and the byte of it.
 *
 * file    at most REEF_WATCH_FILE_BYTES_MAX; NULL: none
 * offset  of the first byte, in the file
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_feed_file(reef_trainer *trainer,
                                                            const char *source,
                                                            const char *file,
                                                            uint64_t offset,
                                                            const uint8_t *bytes,
                                                            size_t count,
                                                            size_t *taken,
                                                            size_t *steps,
                                                            reef_error *err);

/**
 * Write everything that changed, in one LMDB transaction. When commits happen changes no result.
 *
 * out  written; may be NULL
 *
 * Errors: FULL, IO: nothing was written, and the commit can be repeated.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_commit(reef_trainer *trainer,
                                                         reef_commit *out,
                                                         reef_error *err);

/**
 * The process is about to end: write what would take whoever opens the pool next long to learn
 * again, up to all tables of its memories. That takes a commit for each 32 MB, mostly none. Without
 * it nothing is lost, and the next opening takes some seconds more.
 *
 * Errors: those of reef_trainer_commit, of which nothing is lost either.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_rest(reef_trainer *trainer, reef_error *err);

/**
 * Writes records inside a transaction that is not its own: journal records, which the root hash
 * leaves out.
 */
typedef reef_status (*reef_trainer_writer)(void *context, reef_txn *txn, reef_error *err);

/**
 * Call `writer` inside every commit from now on, after all that training wrote: what it writes and
 * the cursors of that commit are in the pool together, or not at all. Its failure is the commit's.
 * NULL: none any more.
 */
REEF_API void reef_trainer_on_commit(reef_trainer *trainer,
                                     reef_trainer_writer writer,
                                     void *context);

/**
 * A transaction of its own for records beside training, such as journal records. Nothing that was
 * trained since the last commit is in it, and the root hash stays as it is.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_write(reef_trainer *trainer,
                                                        reef_trainer_writer writer,
                                                        void *context,
                                                        reef_error *err);

/**
 * One bounded step of compacting usage over time, a transaction of its own that leaves the root
 * hash as it is. Call it after a commit until `out` is zero; between two calls training may
 * continue.
 *
 * Errors: FULL, IO: nothing was written; it can be called again.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_compact(reef_trainer *trainer,
                                                          reef_usage_compaction *out,
                                                          reef_error *err);

/**
 * reef_journal_append beside training: a transaction of its own, between two steps. Batches need no
 * `cursor`. Nothing of what was accepted since the last commit is written.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_journal(reef_trainer *trainer,
                                                          reef_journal_batch *batches,
                                                          size_t batch_count,
                                                          reef_error *err);

/**
 * Keep how far the check of sealed records has come with the next commit. Not part of the root
 * hash.
 */
REEF_API void reef_trainer_set_scrub(reef_trainer *trainer, const reef_scrub *scrub);
/** Damage that such a check found: an event for the timeline, reported as all events are. */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_note_damage(reef_trainer *trainer,
                                                              const char *what,
                                                              reef_error *err);

/** What sealing did, and what the type of the sealed rows cost. */
typedef struct reef_sealing {
    uint32_t generation; // that was sealed
    reef_dtype dtype;    // of its rows of experts from now on: REEF_F32 or REEF_I8
    uint64_t loss_bytes; // tokens scored, of what it learned last; 0 without a memory
    double loss_before;  // bits per token with the generation as it was evaluated while open,
    double loss_after;   // and as it is sealed; NaN where none was scored
} reef_sealing;

/**
 * Seal the open generation and open the next one. Commits.
 *
 * seal_dtype  what the rows of its experts become, "f32" or "int8"; NULL for what the
 *             configuration says
 * out         written; may be NULL
 *
 * Errors: INVALID if the generation has trained nothing yet, or the type does not exist.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_seal(reef_trainer *trainer,
                                                       const char *seal_dtype,
                                                       reef_sealing *out,
                                                       reef_error *err);
/**
 * What reef_trainer_seal would refuse, without sealing, and the `side` of the generation that it
 * would open; the pool may be open for reading only.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_seal_check(reef_trainer *trainer,
                                                             const char *seal_dtype,
                                                             uint32_t *side,
                                                             reef_error *err);
/**
 * Grow the open generation in place to `side` (shell order: no id changes). Commits.
 *
 * Errors: INVALID the model or its layers have nothing that grows, or the side is not
 * a larger one that the pool can have; FULL experts_max, the disk.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_grow(reef_trainer *trainer,
                                                       uint32_t side,
                                                       reef_error *err);
/** What reef_trainer_grow would refuse, without growing; the pool may be open for reading only. */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_grow_check(const reef_trainer *trainer,
                                                             uint32_t side,
                                                             reef_error *err);

// as `last`, and so is what lies beyond: to the end of the layer
#define REEF_FREEZE_TO_END INT64_MAX

typedef struct reef_freeze {
    int32_t layer;        // PEER layer, -1 for all
    uint64_t first, last; // local ids, inclusive
    double usage_above;   // quantile in (0, 1): only experts whose count lies above it; 0: all
    bool thaw;
    bool dry_run;
} reef_freeze;
/**
 * Freeze or thaw experts of the open generation; *changed counts flags that changed. Commits if
 * there are any.
 *
 * Errors: NOT_FOUND no such layer; INVALID a pool without a net, a model without experts that learn
 * one by one, a range that is empty or outside the layer, a quantile outside 0 to 1.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_freeze(reef_trainer *trainer,
                                                         const reef_freeze *freeze,
                                                         uint64_t *changed,
                                                         reef_error *err);
/**
 * A person has decided about an incident, see reef_watch_decide. Commits, and is an event of the
 * timeline.
 *
 * types  written: how many types of lines it is about
 *
 * Errors: INVALID the pool watches no lines; NOT_FOUND no such incident; FULL, IO: it stands, and
 * the next commit writes it.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_decide(reef_trainer *trainer,
                                                         uint64_t incident,
                                                         reef_decision decision,
                                                         uint64_t for_s,
                                                         size_t *types,
                                                         reef_error *err);

/**
 * A person has changed how the pool watches, see reef_watch_change. Commits, and is an event of the
 * timeline.
 *
 * out  written: the options as they are now
 *
 * Errors: INVALID the pool watches no lines, or as of reef_watch_change; FULL, IO: it stands, and
 * the next commit writes it.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_watch_change(reef_trainer *trainer,
                                                               const reef_watch_options *change,
                                                               reef_watch_options *out,
                                                               reef_error *err);

/**
 * Commit, and keep the state under a name.
 *
 * Errors: those of reef_snapshot_create: INVALID a name that exists already, or is none.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_snapshot(reef_trainer *trainer,
                                                           const char *name,
                                                           reef_snapshot *out,
                                                           reef_error *err);

/**
 * Commit, and remove snapshots, all of them in one transaction. `names` are exact, and only read.
 *
 * Errors: NOT_FOUND one does not exist; none is removed then. After an error everything is as
 * before.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_snapshots_remove(
    reef_trainer *trainer, char (*names)[REEF_NAME_BYTES_MAX + 1], size_t count, reef_error *err);

/** What going back to a snapshot did, or would do. */
typedef struct reef_restoration {
    reef_restore_plan plan;                // the snapshot, and what goes
    reef_commit commit;                    // of the restored state; zero where nothing was done
    char kept_as[REEF_NAME_BYTES_MAX + 1]; // in place: the snapshot of the state before
} reef_restoration;

/**
 * Make a new pool in directory `to` whose state is a snapshot's: what was sealed later is absent,
 * and training continues from the snapshot's offset in the stream; if it is exact, to the same bits
 * as it did then. Snapshots that need what is gone are not in the new pool. The directory becomes a
 * pool only when all is done.
 *
 * name  a snapshot, or the only one that begins so
 * to    NULL: only plan
 *
 * Errors: those of reef_snapshot_find; INVALID the directory is not empty, or the snapshot does not
 * hold what learning needs; FULL; IO.
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_restore(
    reef_store *store, const char *name, const char *to, reef_restoration *out, reef_error *err);

/**
 * The same within the pool, which `store` has open for writing, in one transaction. The state
 * before it is kept as a snapshot. No trainer may be open on the store.
 *
 * Errors: as well INVALID a snapshot needs what would go.
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_restore_in_place(
    reef_store *store, const char *name, bool dry_run, reef_restoration *out, reef_error *err);

/** What its own text was to a kind before it learned it: by this kinds are told apart. */
typedef struct reef_kind_level {
    uint64_t pieces;        // of its text whose familiarity was counted
    double mean, deviation; // of that, and the mean of how far they were from it
    uint64_t batches;       // of its text whose bits were counted
    double bits;            // a byte of the last of them, the mean
    double bits_deviation;  // of the mean of a short text, `recent_bits`, from that
    double recent_bits;
} reef_kind_level;

/** How to import. All-zero fields mean the default. */
typedef struct reef_import_options {
    bool dry_run; // check everything, all of its records included, and change nothing
    // Without what its kind learned when it came back; then one that continues a kind is refused,
    // which has no memory of its own.
    bool as_sealed;
    // What its kind is called from then on; NULL, or another kind has that name: nothing.
    const char *name;
    const reef_kind_level *level; // what its own pool knew of it; NULL: it is not known
    // An open generation that began as a copy of another one, and has trained nothing, is replaced
    // by one that is new. It is refused otherwise.
    bool drop_branch;
} reef_import_options;

/** What an import did, or would do. */
typedef struct reef_import {
    reef_generation_record info; // in the other pool
    // What its kind has learned of the memory that came with it; without one, the length of its
    // part of the stream.
    uint64_t trained_bytes;
    uint64_t experts;    // in all layers
    uint32_t generation; // its number in this pool
    uint64_t first_id;   // pool-wide id of its first expert here
    uint32_t open;       // the generation that is open afterwards
} reef_import;

/**
 * Take in a sealed generation of another pool, which has the same generation 0, and commit: one
 * transaction. It gets the number of the open generation, which must have trained nothing yet and
 * is opened again with the next number. On text where no other generation of this pool fires it
 * computes what it computed there, to the bit.
 *
 * from        the other pool, which may be trained meanwhile; or one of reef_generation_extract
 * generation  its number there
 * options     NULL for the defaults
 * out         written; may be NULL
 *
 * Errors: INVALID another configuration or backbone, the open generation has trained, it is open
 * there or its kind was merged, a layer by itself; NOT_FOUND; CORRUPT; FULL experts_max, the disk;
 * IO; NO_MEMORY. After an error pool and trainer are as before.
 */
REEF_API REEF_MUST_CHECK reef_status reef_trainer_import(reef_trainer *trainer,
                                                         reef_store *from,
                                                         uint32_t generation,
                                                         const reef_import_options *options,
                                                         reef_import *out,
                                                         reef_error *err);

/**
 * Does a pool learn every byte of its stream? Not one with marker lines, which are taken out of it.
 */
static inline bool reef_learns_all(const reef_config *config) {
    return config->boundary_mark[0] == '\0';
}

/** A context memory. */
typedef struct reef_memory_status {
    /**
     * `learned_bytes` is of now, the rest was looked up within the last MiB of the stream. Without
     * context memories `bytes_max` is 0.
     */
    reef_memory_stats stats;
    // What each input of its mixer was worth (reef_memory_inputs) since the trainer was opened, or
    // the generation, or the memory was read again; 0 before the first bytes.
    double shares[REEF_MEMORY_INPUTS_MAX], hits[REEF_MEMORY_INPUTS_MAX];
} reef_memory_status;

typedef struct reef_trainer_status {
    uint64_t step, stream_bytes; // dealt with: learned, or `not_learned_bytes`
    uint64_t pending_bytes;      // accepted, not yet trained (part of a batch, or deferred)
    // Dealt with, but not learned: marker lines, each with the rest before it that filled no batch.
    uint64_t not_learned_bytes;
    bool learns_all;        // reef_learns_all: there is nothing of them
    uint64_t visited_bytes; // learned by memories of kinds that came back
    uint32_t generation;    // the open one
    uint64_t generation_step;
    uint32_t kind; // that is being learned: the number of the generation that it began with
    char kind_name[REEF_NAME_BYTES_MAX + 1]; // "": it has none
    uint32_t kinds;                          // generations with which kinds began
    uint64_t opened_at;                      // stream position where it was opened
    // Prequential loss: median over the last batches that the open generation learned, and of the
    // last one. With context memories both are what the net and a memory say together. NaN while
    // there was none since the trainer was opened.
    double bits_per_byte;
    double last_bits_per_byte;
    double learning_rate;
    uint64_t experts, experts_open; // in all layers
    uint64_t dirty_since_step;      // steps since the last commit
    reef_memory_status memory;      // of the open generation
    reef_memory_status kind_memory; // of `kind`: another one, where that came back
    double seconds_forward, seconds_backward, seconds_router, seconds_experts, seconds_update,
        seconds_commit;
    bool watches; // lines are judged
    reef_watch_counts watch;
    reef_watch_options watch_options; // as they are now
} reef_trainer_status;
REEF_API void reef_trainer_status_read(const reef_trainer *trainer, reef_trainer_status *out);
/** Commits of all ranks so far; 0 without shards. */
REEF_API uint64_t reef_trainer_epoch(const reef_trainer *trainer);

#endif
