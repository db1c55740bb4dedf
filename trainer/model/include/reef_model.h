// What a pool computes from data, now and as of any earlier state. A reef_model is a read-only copy
// of some state of a pool. A short read transaction makes it; afterwards it lives without the pool.
#ifndef REEF_MODEL_H
#define REEF_MODEL_H

#include "reef_config.h"
#include "reef_context.h"
#include "reef_snapshot.h"
#include "reef_usage.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct reef_model reef_model;

typedef struct reef_model_options {
    size_t threads; // 0: one per core
    /**
     * What the process should hold at most; 0: what the machine has. If the rows of sealed
     * generations take more than half of it, they are not copied but read in place from the pool,
     * and released when the process grows beyond it.
     */
    uint64_t memory_bytes;
    reef_memory_reading reading; // as reef_model_set_reading
} reef_model_options;

/**
 * What people write for amounts of bytes: a whole number above 0, or with K, M, G or T (1024), in
 * either case.
 */
REEF_API REEF_MUST_CHECK reef_status reef_memory_parse(const char *text,
                                                       uint64_t *bytes,
                                                       reef_error *err);

/**
 * Copy a state of the pool into memory; for a pool larger than that, see reef_model_options: then a
 * read transaction is kept as long as the model, and checksums of rows are not verified.
 *
 * as_of    NULL or "now": the last commit, all generations. A number g:
 *          generations 0 .. g, exactly the function the model was when g was sealed. The name of a
 *          snapshot, or the beginning of only one. A moment such as "yesterday": reef_state_at
 * options  NULL for the defaults
 */
REEF_API REEF_MUST_CHECK reef_status reef_model_open(reef_model **out,
                                                     reef_store *store,
                                                     const char *as_of,
                                                     const reef_model_options *options,
                                                     reef_error *err);
/**
 * The same, in exchange for an older copy, `*model` (NULL: none), of this pool or one of the same
 * configuration; it is used up also on failure. Sealed generations that are the same are taken over
 * from it, so only the others are read.
 */
REEF_API REEF_MUST_CHECK reef_status reef_model_reopen(reef_model **model,
                                                       reef_store *store,
                                                       const char *as_of,
                                                       const reef_model_options *options,
                                                       reef_error *err);
/**
 * A later copy beside an older one, which may answer in another thread meanwhile. Sealed
 * generations that are the same are shared: the older one owns them until reef_model_inherit, and
 * must not end before that or before `*out` is closed.
 */
REEF_API REEF_MUST_CHECK reef_status reef_model_open_beside(reef_model **out,
                                                            reef_store *store,
                                                            const char *as_of,
                                                            const reef_model_options *options,
                                                            const reef_model *older,
                                                            reef_error *err);
/**
 * `newer`, which was opened beside `older`, owns from here on what they share. `older` answers
 * nothing any more: it is the caller's to close, in any thread and beside questions to `newer`.
 */
REEF_API void reef_model_inherit(reef_model *newer, reef_model *older);
/**
 * A second reader of the same state, for another thread: both may be asked at once, and answer to
 * the same bits. It shares everything that a pass does not change, and must be closed before
 * `model` is closed, inherited from or reopened. It computes with one thread.
 *
 * Errors: INVALID a model that is not shared, see reef_model_is_shared; NO_MEMORY.
 */
REEF_API REEF_MUST_CHECK reef_status reef_model_open_twin(reef_model **out,
                                                          const reef_model *model,
                                                          reef_error *err);
/**
 * Do now what the first score would have to do besides: count the words that lines are scored by,
 * and take the memory of a session. The session reads the last kilobyte that was learned, and
 * forgets it as it forgets every text: no later answer changes by a bit. Without context memories
 * it does nothing.
 *
 * Errors: NO_MEMORY. Threads: as of a question to the model.
 */
REEF_API REEF_MUST_CHECK reef_status reef_model_warm(reef_model *model, reef_error *err);
/** A kind of which a record is damaged: what it learned is lost in part, or all of it. */
typedef struct reef_lost_kind {
    uint32_t kind;
    uint64_t whole_to; // it answers as it was at this position in the stream; 0: not at all
    char what[256];    // the damage
} reef_lost_kind;

/**
 * Kinds that do not answer as the state has them, since their records are damaged; all others do,
 * to the bit. Valid as long as the model. NULL: there are none.
 */
REEF_API const reef_lost_kind *reef_model_lost_kinds(const reef_model *model, size_t *count);

/** Would a copy beside this one share its sealed generations? Not where rows are in place. */
REEF_API bool reef_model_is_shared(const reef_model *model);
REEF_API void reef_model_close(reef_model *model); // accepts NULL
/**
 * While the model is idle: if rows are read in place, end the read transaction, which would keep
 * the writer from reusing pages. The next question begins another. BUSY from it: open the model
 * again.
 */
REEF_API void reef_model_unpin(reef_model *model);
/**
 * What context memories take from the texts that they read from now on, each for its own length.
 * Within a text that is read piece by piece a change makes a new text begin. Without context
 * memories there is no difference: the net is a function of its window. Threads: one at a time on a
 * model.
 */
REEF_API void reef_model_set_reading(reef_model *model, reef_memory_reading reading);
REEF_API const reef_config *reef_model_config(const reef_model *model);
/**
 * The commit that was the last one when the state was read; the state itself may be an earlier one.
 */
REEF_API const reef_commit *reef_model_commit(const reef_model *model);
REEF_API uint32_t reef_model_generation_count(const reef_model *model);
REEF_API uint64_t reef_model_parameter_count(const reef_model *model);

#define REEF_ANSWERS_MAX 8u // kinds that answer a token

/** Which kinds answer each token of a text, and how likely each was before the token was read. */
typedef struct reef_answers {
    size_t width;    // of each token, 1 to REEF_ANSWERS_MAX; the others were less likely
    uint32_t *kinds; // (tokens, width) the likeliest first; UINT32_MAX where fewer answered
    float *weights;  // (tokens, width) or NULL; 0 where fewer answered
} reef_answers;

typedef struct reef_score {
    uint64_t bytes;       // tokens scored (all but the first): bytes
    double bits;          // total
    double bits_per_byte; // per token
    // (generation count) or NULL: caller's; share of tokens that each kind answered
    double *fire_share;
    // Caller's, or zeros: not asked for. Where no context memory answers, there is one candidate.
    reef_answers answers;
} reef_score;

/**
 * Loss of a text, read as one stream in windows of the model's context. Context memories adapt to
 * it as they read, or as reef_model_set_reading says, and forget it afterwards.
 * bytes  (count) whole tokens: here as in all questions to a model
 * bits   (tokens) or NULL: written; the surprise of each token given those before it in its window;
 *        bits[0] is 8: nothing came before.
 * progress  may be NULL; called with bytes done from the calling thread
 *
 * Errors: INVALID no language model.
 */
REEF_API REEF_MUST_CHECK reef_status reef_model_score(reef_model *model,
                                                      const uint8_t *bytes,
                                                      size_t count,
                                                      float *bits,
                                                      reef_score *score,
                                                      void (*progress)(void *context, size_t done),
                                                      void *context,
                                                      reef_error *err);

/**
 * Copy the newest `count` bytes that the context memory of a generation keeps of what it learned,
 * or all of them where they are fewer, the oldest first. Returns how many, 0 without a memory;
 * `out` NULL only asks how many it keeps.
 */
REEF_API size_t reef_model_text(const reef_model *model,
                                uint32_t generation,
                                uint8_t *out,
                                size_t count);
/** The whole lines among the newest `most` bytes of that text; returns how many bytes they have. */
REEF_API size_t reef_model_lines(const reef_model *model,
                                 uint32_t generation,
                                 uint8_t *out,
                                 size_t most);

// ---- does it know a text? -----------------------------------------------------------------------

#define REEF_KNOWN_BYTES 4096u // so much of a text is compared
#define REEF_COST_UNKNOWN 0.90 // from here on no kind of the pool knows the text

/**
 * What the beginning of a text costs, while memories adapt to it, over what learning it from
 * nothing costs: by the measure that tells kinds apart, docs/LEARNING.md. 1: no memory has learned
 * anything; 0: the pool has none.
 *
 * text  (count) at least two bytes
 *
 * Errors: those of reef_model_score.
 */
REEF_API REEF_MUST_CHECK reef_status
reef_model_cost(reef_model *model, const uint8_t *text, size_t count, double *out, reef_error *err);

// ---- how unusual a line is ----------------------------------------------------------------------

// Of the text that context memories keep, the newest of each: what scores of lines go by.
#define REEF_SCORED_TEXT_BYTES_MAX ((size_t)4 << 20)

/**
 * What it takes to score lines: in how many learned lines each word is. A word lies between spaces,
 * and has a letter and no digit.
 *
 *   score  = max(surprise, rarity) + bits a byte of the line
 *   surprise  mean bits of the 3 most surprising bytes of the line's words
 *   rarity    mean of log2((N + 1) / (n + 1)) of its 4 rarest words, where n of N learned lines
 *             have a word
 *
 * Where a line has fewer bytes or words than that, the others count as 0. So a line is unusual by
 * what the model did not expect, by words that are rare however well they were expected, or,
 * without any word, by its bits alone.
 */
typedef struct reef_line_scorer reef_line_scorer;

/** Without learned lines: rarity is 0. Errors: NO_MEMORY. */
REEF_API REEF_MUST_CHECK reef_status reef_line_scorer_new(reef_line_scorer **out, reef_error *err);
REEF_API void reef_line_scorer_free(reef_line_scorer *scorer); // accepts NULL
/** Count the words of the lines of `text` (count). Errors: NO_MEMORY. */
REEF_API REEF_MUST_CHECK reef_status reef_line_scorer_learn(reef_line_scorer *scorer,
                                                            const uint8_t *text,
                                                            size_t count,
                                                            reef_error *err);
/**
 * The scorer of the lines that a model's context memories keep: of the newest
 * REEF_SCORED_TEXT_BYTES_MAX of text, an equal share of each memory. Without memories there are
 * none. Counted when it is asked for first.
 *
 * out  written: lent, good until the model ends
 *
 * Errors: NO_MEMORY. Threads: one at a time on a model.
 */
REEF_API REEF_MUST_CHECK reef_status reef_model_line_scorer(reef_model *model,
                                                            const reef_line_scorer **out,
                                                            reef_error *err);
/** The score of a line: its bytes and their bits (count), with the line end where it has one. */
REEF_API double reef_line_score(const reef_line_scorer *scorer,
                                const uint8_t *line,
                                const float *bits,
                                size_t count);

/**
 * What each input of the mixers of context memories was worth in the text that was scored or
 * generated last, over all memories that answered, "net" among them: see
 * reef_memory_session_inputs.
 *
 * shares, hits  (reef_memory_input_count()) written; zeros where no memory answered
 *
 * Returns whether one did. Threads: one at a time on a model.
 */
REEF_API bool reef_model_inputs(const reef_model *model, double *shares, double *hits);

/**
 * Facts of the context memory of a generation, without reading its tables: a few milliseconds.
 *
 * out  written; zeros where the generation has none. `learned_bytes` is of the last commit, the
 *      rest of the last one that stored the tables (zeros before the first). What is in use is
 *      estimated from a part of them.
 *
 * Errors: CORRUPT, VERSION, IO; NO_MEMORY.
 */
REEF_API REEF_MUST_CHECK reef_status reef_memory_stats_read(reef_txn *txn,
                                                            uint32_t generation,
                                                            reef_memory_stats *out,
                                                            reef_error *err);

/**
 * The same of a kind's memory, with what it learned when it came back. Zeros where it was merged
 * into another kind. Errors: those of reef_memory_stats_read.
 */
REEF_API REEF_MUST_CHECK reef_status reef_kind_memory_stats_read(reef_txn *txn,
                                                                 uint32_t kind,
                                                                 reef_memory_stats *out,
                                                                 reef_error *err);

/** The first of these facts alone, without a look at the tables: bytes learned, as committed. */
REEF_API REEF_MUST_CHECK reef_status reef_memory_learned_read(reef_txn *txn,
                                                              uint32_t generation,
                                                              uint64_t *out,
                                                              reef_error *err);

/**
 * Logits (tokens, 256) of every position by the net alone, with the newest generation: for tests
 * and tools.
 */
REEF_API REEF_MUST_CHECK reef_status reef_model_logits(
    reef_model *model, const uint8_t *bytes, size_t count, float *logits, reef_error *err);

typedef struct reef_sampling {
    uint64_t seed;
    float temperature; // 0: the most likely byte
    float top_p;       // in (0, 1]; 0 means 1
    /**
     * NULL, or called with every byte as soon as there is one; false ends the text there, without
     * an error.
     */
    bool (*on_byte)(void *context, uint8_t byte);
    void *context;
} reef_sampling;

/**
 * Continue `prompt` by `count` bytes. `out` (count) is written.
 */
REEF_API REEF_MUST_CHECK reef_status reef_model_generate(reef_model *model,
                                                         const uint8_t *prompt,
                                                         size_t prompt_bytes,
                                                         size_t count,
                                                         const reef_sampling *sampling,
                                                         uint8_t *out,
                                                         reef_error *err);

/**
 * Usage of one PEER layer of one generation, from the pool. `usage` (side*side) is the caller's.
 */
REEF_API REEF_MUST_CHECK reef_status reef_usage_read(reef_txn *txn,
                                                     uint32_t generation,
                                                     uint32_t layer,
                                                     size_t expert_count,
                                                     reef_usage *usage,
                                                     reef_error *err);
/**
 * The same in a range of time (reef_usage.h; NULL: ever). What is known in total only counts where
 * the range has no beginning; *before (may be NULL) is written: how many selections that are.
 *
 * Errors: those of reef_usage_sum; CORRUPT also where windows have more than the total; NO_MEMORY.
 */
REEF_API REEF_MUST_CHECK reef_status reef_usage_range_read(reef_txn *txn,
                                                           uint32_t generation,
                                                           uint32_t layer,
                                                           size_t expert_count,
                                                           reef_usage_range *range,
                                                           reef_usage *usage,
                                                           uint64_t *before,
                                                           reef_error *err);
REEF_API REEF_MUST_CHECK reef_status reef_flags_read(reef_txn *txn,
                                                     uint32_t generation,
                                                     uint32_t layer,
                                                     size_t expert_count,
                                                     uint8_t *flags,
                                                     reef_error *err);

/** What the row of one expert is like; NaN what its kind has none of. Norms are Euclidean. */
typedef struct reef_expert_stats {
    double down, up, gate; // norms of w_down, w_up and w_gate
} reef_expert_stats;

/**
 * Facts of experts of one layer of one generation, from the pool.
 *
 * ids  (count) local ids; NULL: 0 .. count - 1
 * out  (count) written
 *
 * Errors: NOT_FOUND no such generation or expert; INVALID the layer retrieves nothing.
 */
REEF_API REEF_MUST_CHECK reef_status reef_expert_stats_read(reef_txn *txn,
                                                            uint32_t generation,
                                                            uint32_t layer,
                                                            size_t count,
                                                            const uint32_t *ids,
                                                            reef_expert_stats *out,
                                                            reef_error *err);

// ---- what a pool records of itself and of its history -------------------------------------------

/**
 * Do the records of a pool have the sizes that its configuration gives them? For
 * reef_check_options.also. Nothing is checked where the pool has no configuration. Errors: those of
 * reading it.
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_check_sizes(reef_txn *txn,
                                                           void (*on_damage)(void *context,
                                                                             const reef_key *key,
                                                                             const char *what),
                                                           void *context,
                                                           reef_error *err);

/** Name of a type of rows, "f32" or "int8", as in `seal_dtype`. */
REEF_API const char *reef_rows_dtype_text(reef_dtype dtype);

/** How to export. All-zero fields mean the default. */
typedef struct reef_export_options {
    bool force;            // replace a file of that name
    bool dry_run;          // write nothing; file_bytes is then 0
    bool (*stopped)(void); // asked for between records: true ends it, and leaves nothing
} reef_export_options;

/** What the file of a whole model has. */
typedef struct reef_model_file {
    reef_config config;
    uint32_t generations;
    bool open;        // the last of them
    uint64_t experts; // of all generations and layers
    size_t tensor_count;
    uint64_t file_bytes;
    uint64_t step, stream_bytes; // where the state stands in its stream
} reef_model_file;

/**
 * Write a state of a pool to a file in the safetensors format: all generations with their weights,
 * batch norm statistics, gates, experts, flags and usage, and as metadata the configuration
 * (docs/FORMAT.md). Of an open generation the weights are those that it is evaluated by. A writer
 * can commit meanwhile. The file is written as PATH.part, synced, and renamed; whatever goes wrong
 * leaves nothing of it, and what a killed process left is written over by the next.
 *
 * as_of  as in reef_model_open
 * out    written; may be NULL
 *
 * Errors: NOT_FOUND no such state or directory; INVALID a layer by itself, or the file
 * exists; BUSY it was stopped; CORRUPT; FULL; IO; NO_MEMORY.
 */
REEF_API REEF_MUST_CHECK reef_status reef_model_export(reef_store *store,
                                                       const char *as_of,
                                                       const char *path,
                                                       const reef_export_options *options,
                                                       reef_model_file *out,
                                                       reef_error *err);

/** What the trainer counts in all, as in reef_trainer_status. */
typedef struct reef_passed {
    uint64_t not_learned_bytes, visited_bytes;
} reef_passed;
REEF_API REEF_MUST_CHECK reef_status reef_passed_read(reef_txn *txn,
                                                      reef_passed *out,
                                                      reef_error *err);

// The history of the loss takes bounded space: each level keeps at most
// REEF_SERIES_POINTS_MAX points. A point of level l + 1 is the mean of the REEF_SERIES_FOLD oldest
// points of level l, and replaces them.
#define REEF_SERIES_LEVELS 6
#define REEF_SERIES_FOLD 16
#define REEF_SERIES_POINTS_MAX 4096

/** Steps and losses for `reef plot`, kept in `series`. */
typedef struct reef_point {
    uint64_t step, stream_bytes; // of the last batch: its step, and the position after it
    float bits_per_byte;         // the mean over its batches
    uint32_t generation;         // of the last batch
    uint32_t level;              // REEF_SERIES_FOLD to the power of this are its batches
} reef_point;
typedef reef_status (*reef_point_visit)(void *context, const reef_point *point, reef_error *err);
/** Visit the points, oldest first. */
REEF_API REEF_MUST_CHECK reef_status reef_series_scan(reef_txn *txn,
                                                      reef_point_visit visit,
                                                      void *context,
                                                      reef_error *err);

/** Restores of a pool, in their order, and what follows from them; see reef_lineage_read. */
typedef struct reef_lineage {
    struct reef_restored {
        uint64_t commit;       // that restored
        uint64_t to;           // the commit that its snapshot is of
        uint64_t stream_bytes; // of that one
    } * restores;
    size_t restore_count;
    // Of the present stream: losses with from < position <= to are not in the series.
    struct reef_lineage_gap {
        uint64_t from, to;
    } * gaps;
    size_t gap_count;
} reef_lineage;

/** Read from the timeline how the pool came to its state. CORRUPT where an event cannot be read. */
REEF_API REEF_MUST_CHECK reef_status reef_lineage_read(reef_lineage *out,
                                                       reef_txn *txn,
                                                       reef_error *err);
REEF_API void reef_lineage_release(reef_lineage *lineage);
/** Did this commit lead to the present state, or was it undone by a restore? */
REEF_API bool reef_lineage_has(const reef_lineage *lineage, uint64_t commit);
/**
 * Has the series the losses with from < position <= to, or did a restore take some of them away?
 */
REEF_API bool reef_lineage_knows_losses(const reef_lineage *lineage, uint64_t from, uint64_t to);
/**
 * Where the stream stood in the last state that led both to the present one and to that of an older
 * commit, which had `stream_bytes`.
 */
uint64_t reef_lineage_shared(const reef_lineage *lineage, uint64_t commit, uint64_t stream_bytes);

#endif
