// What `reef train` measures while it trains: when, what came out, and the document that is made of
// it.
#ifndef REEF_TRAIN_RECORD_H
#define REEF_TRAIN_RECORD_H

#include "cli.h"
#include "cli_pool.h"
#include "eval_set.h"
#include "train_stream.h"

/** One moment at which every domain is measured, now and task-free. */
typedef struct reef_train_point {
    bool row;       // before the first file, or after a whole one; otherwise a point inside a file
    size_t file;    // of a row how many files were trained; otherwise the file that it lies in
    uint64_t at;    // position in the stream of these files
    bool done;      // it was measured; not so when the pool was already beyond it
    double seconds; // of training until then
    reef_eval_score *scores; // (domains)
} reef_train_point;

/**
 * One sealed generation: every domain as of it, at the first point after it was sealed and at the
 * end.
 */
typedef struct reef_train_sealed {
    uint32_t generation;
    uint64_t at;        // the point, as a position in the stream
    double *then, *now; // (domains); NaN where not measured
} reef_train_sealed;

typedef struct reef_train_record {
    size_t domain_count;
    // in the order of the stream; a row precedes a point at the same offset
    reef_train_point *points;
    size_t point_count;
    reef_train_sealed *sealed; // by generation, which is counted from `first_generation`
    size_t sealed_count;
    uint64_t pool_unix_ms;     // when the pool was made, which identifies it; 0: unknown
    uint32_t first_generation; // that was open when training began
    uint64_t stream_base;      // where the files begin in the pool's stream, and
    // the position in them from which on that is known: 0 or where a run continued
    uint64_t placed_from;
    double seconds;     // of training, measuring excluded, in earlier runs too
    double cpu_seconds; // the same, of all threads together
    double seconds_measuring;
} reef_train_record;

/** Plan the points: before, after each file, and `offsets` bytes after each file's beginning. */
void reef_train_record_init(reef_train_record *record,
                            const reef_train_stream *stream,
                            size_t domain_count,
                            const uint64_t *offsets, // rising
                            size_t offset_count);
void reef_train_record_release(reef_train_record *record); // accepts the zeroed record
/** Room for one more sealed generation. */
reef_train_sealed *reef_train_record_add_sealed(reef_train_record *record,
                                                uint32_t generation,
                                                uint64_t at);

/**
 * What was measured, for reading back: {"first_generation", "seconds", ..., "points", "sealed"}.
 */
json_t *reef_train_record_json(const reef_train_record *record);
/** Take up what an earlier run measured. INVALID when it does not fit the plan. */
REEF_MUST_CHECK reef_status reef_train_record_restore(reef_train_record *record,
                                                      const json_t *measured,
                                                      reef_error *err);
/**
 * Now that the pool's position is known: assign the files their offsets in its stream. What was
 * read before this run directly precedes what comes, unless other files have been trained since;
 * then its offset is unknown.
 */
void reef_train_record_position(reef_train_record *record, const reef_train_stream *stream);

/** The whole document; see `reef train --help`. */
typedef struct reef_train_outcome {
    bool finished;
    double cost_ratio, us_per_byte_now, us_per_byte_first; // NaN when not measured
    size_t threads;
    uint64_t optimiser_bytes, peak_memory_bytes;
    reef_trainer_status trainer;
    json_t *events; // of the timeline
    reef_lineage lineage;
    reef_cli_points points;
} reef_train_outcome;

/** What the run was made of; two runs with the same object measure the same. */
json_t *reef_train_plan_json(const reef_train_stream *stream,
                             const reef_eval_set *set,
                             const reef_train_record *record);
json_t *reef_train_document(const reef_train_record *record,
                            const reef_train_stream *stream,
                            const reef_eval_set *set,
                            const reef_cli_pool *pool,
                            const reef_train_outcome *outcome);
/** The document's tables, for people. */
void reef_train_print(const json_t *document, const reef_config *config);

#endif
