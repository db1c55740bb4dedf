/*
 * libreef: pools of tiny experts that grow in generations and do not forget, for programs of your
 * own.
 *
 * A pool is a directory. It holds a model of bytes, as `reefd` trains it, or a single PEER
 * layer, to stand in a network of yours. Exactly one generation is open and
 * learns; sealing it opens the next. A sealed generation never changes again: the function as of a
 * generation is the same for ever, to the bit.
 *
 * Everything that can fail returns a reef_status and, where `err` is not NULL, fills it with a
 * message that says what was tried, on what, and why it failed. Handles are opaque and end with the
 * function that their maker names; the library has no other state. Structs that may grow begin with
 * their size, `sizeof` of the struct you compiled with: a newer library reads and writes no more of
 * them. Fields that are zero mean the default.
 *
 * Errors: beside those that a function names, each one can fail with NO_MEMORY, IO, CORRUPT, and
 * INVALID: a struct whose size is not set, or training, sealing and committing in a pool that was
 * opened for reading. What commits can also fail with FULL, where the disk has no room.
 *
 * Threads: any number of pools at once, and one call at a time on each pool (further ones wait).
 * Results do not depend on how many threads compute them, nor on the locale, the rounding or the
 * handling of denormal numbers that the calling thread has set; afterwards it has them as before.
 *
 * Processes: a pool is of the process that opened it. To a child of fork() every call on it says
 * INVALID, and closing it does nothing; the child opens it itself, and so do the workers of a data
 * loader.
 */
#ifndef REEF_H
#define REEF_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- failure --------------------------------------------------------------------------------- */

#ifndef REEF_ERROR_H /* the library's own sources have these from reef_error.h */

#define REEF_API __attribute__((visibility("default")))
#define REEF_MUST_CHECK __attribute__((warn_unused_result))

typedef enum reef_status {
    REEF_OK = 0,
    REEF_ERR_INVALID = 1,   /* what was asked for makes no sense */
    REEF_ERR_NOT_FOUND = 2, /* no such pool, generation, snapshot */
    REEF_ERR_CORRUPT = 3,   /* the pool is damaged: `reef verify` */
    REEF_ERR_VERSION = 4,   /* the pool is of another format */
    REEF_ERR_FULL = 5,      /* the disk, or a bound of the pool */
    REEF_ERR_BUSY = 6,      /* another writer has it; try again */
    REEF_ERR_NO_MEMORY = 7,
    REEF_ERR_IO = 8
} reef_status;

typedef struct reef_error {
    reef_status status;
    char message[256]; /* lower case, no full stop */
} reef_error;

/** The status in words, such as "not found". */
REEF_API const char *reef_status_text(reef_status status);

#endif

/** Version of the library, such as "0.1.0". */
REEF_API const char *reef_library_version(void);

/* ---- pools ----------------------------------------------------------------------------------- */

typedef struct reef_pool reef_pool;

/** A PEER layer: side * side experts that all rows of d_model values choose from. */
typedef struct reef_layer_options {
    size_t size;            /* sizeof(reef_layer_options) */
    uint32_t d_model;       /* width of a row; has no default */
    uint32_t heads, topk;   /* retrieval heads, 8; experts that each retrieves for a row, 16 */
    uint32_t d_key;         /* width of a head's query, even; 64 */
    uint32_t side;          /* sub-keys a side that a generation begins with, 64 */
    const char *expert;     /* "gelu" (default), "relu" or "glu" */
    const char *score;      /* "softmax" (default), "sigmoid" or "relu" */
    const char *seal_dtype; /* of sealed rows: "f32" (default) or "int8" */
    int32_t no_batch_norm;  /* 1: queries as they are */
    uint64_t seed;          /* everything random follows from it; 1 */
    uint64_t experts_max;   /* of all generations together; 0: no bound */
    /* Adam. Experts learn expert_rate times as fast. clip bounds the norm of the router's gradient
     * and of each expert's; negative: none. */
    float learning_rate, expert_rate, beta1, beta2, epsilon, clip;
} reef_layer_options;

/**
 * Make a pool of one PEER layer in directory `path`, drawn from the seed.
 * Errors: INVALID the path exists, or sizes do not fit together; FULL; IO; NO_MEMORY.
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_create_layer(const char *path,
                                                            const reef_layer_options *options,
                                                            reef_error *err);

/**
 * Make a pool by settings, as `reef init` does: a model of bytes unless "model" says otherwise.
 *
 * settings  "name=value" each, ended by NULL, names as in `reef init --help` ("d_model=128"); NULL:
 *           its defaults, so a model of bytes has context memories unless "memory=0"
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_create_model(const char *path,
                                                            const char *const *settings,
                                                            reef_error *err);

typedef struct reef_pool_options {
    size_t size;       /* sizeof(reef_pool_options) */
    int32_t write;     /* 1: to train; a pool has one writer at a time */
    const char *as_of; /* reading: "now" or NULL, a generation ("0"), or a snapshot's name */
    uint32_t threads;  /* that compute; 0: one per core */
    /* Bytes that the process may use; rows of larger pools are read in place. 0: the machine's */
    uint64_t memory_bytes;
    /* 0: context memories adapt to each text that is evaluated or continued, within it; 1: no count
     * and no weight changes, but matches find what the text said before; 2: nor do they, so that
     * what was learned alone answers. Pools without them read the same with each. */
    int32_t frozen;
} reef_pool_options;

/**
 * Open the pool in directory `path`, for reading where `options` is NULL. A state that was opened
 * for reading stays as it is whatever a writer does; a writer sees what it trained, committed or
 * not. While idle, it keeps no page of the file from reuse. A layer whose rows are read in place
 * does from its first call on, because locating them again may take longer than the call: close it
 * when it idles. Errors: NOT_FOUND; BUSY another process writes; VERSION; CORRUPT; INVALID; IO;
 * NO_MEMORY.
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_open(reef_pool **out,
                                                    const char *path,
                                                    const reef_pool_options *options,
                                                    reef_error *err);
/**
 * What was trained since the last commit is forgotten. It is the last call on a pool: no other may
 * be running or waiting in another thread. Accepts NULL. Tapes of the pool end before it.
 */
REEF_API void reef_pool_close(reef_pool *pool);

typedef struct reef_pool_info {
    size_t size;       /* sizeof(reef_pool_info), set by the caller */
    const char *model; /* "layer" or "lm"; as the next two good while the pool is open */
    const char *expert, *score;
    int32_t writing;
    uint32_t layers; /* blocks; 1 of a layer */
    uint32_t d_model, heads, topk, d_key;
    uint32_t generations; /* the last one is open, unless the state is as of an earlier one */
    uint64_t experts;     /* of all generations, in one layer */
    uint64_t commit;      /* number of the pool's last one */
    uint64_t step;        /* of training, of that commit or so far */
    /* Bytes of the stream that were dealt with; rows of a layer; so are all positions */
    uint64_t position;
    uint64_t collected; /* rows of a layer whose gradients wait for a step */
} reef_pool_info;
/** What a pool is, and how far it has come. `out` written; `size` must be set. */
REEF_API REEF_MUST_CHECK reef_status reef_pool_read_info(reef_pool *pool,
                                                         reef_pool_info *out,
                                                         reef_error *err);

typedef struct reef_generation_info {
    size_t size; /* sizeof(reef_generation_info), set by the caller */
    uint32_t generation, side;
    int32_t sealed;
    uint64_t experts;      /* side * side, in each layer */
    uint64_t first_expert; /* id of its first one in the pool */
    uint64_t opened_step, sealed_step;
    uint64_t opened_at, sealed_at; /* positions */
} reef_generation_info;
/** NOT_FOUND where the state has no such generation. */
REEF_API REEF_MUST_CHECK reef_status reef_pool_read_generation(reef_pool *pool,
                                                               uint32_t generation,
                                                               reef_generation_info *out,
                                                               reef_error *err);

/**
 * Everything trained so far onto the disk, as a whole or not at all. `commit` its number; may be
 * NULL. Errors: FULL, IO: nothing was written, and it can be called again.
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_commit(reef_pool *pool,
                                                      uint64_t *commit,
                                                      reef_error *err);
/**
 * Seal the open generation for good and open the next. Commits. What still waits for a whole batch
 * is the next one's.
 * side  of the next one; 0: as configured. Of a layer only.
 *
 * Errors: INVALID the generation has trained nothing yet (a model), gradients are collected (a
 * layer), or a side where it is not chosen; FULL experts_max, the disk.
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_seal(reef_pool *pool,
                                                    uint32_t side,
                                                    reef_error *err);
/**
 * More experts for the open generation, to side * side; old ones keep ids and values, new ones add
 * nothing. Commits. Errors: INVALID a side that is not larger, or a model that does not grow; FULL
 * experts_max, the disk.
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_grow(reef_pool *pool,
                                                    uint32_t side,
                                                    reef_error *err);
/**
 * Which experts of the open generation, and what becomes of them. All but `size` and `layer` zero:
 * all learn no more.
 */
typedef struct reef_freeze_options {
    size_t size;           /* sizeof(reef_freeze_options) */
    int32_t layer;         /* of a model's blocks, 0 of a layer; -1: all */
    int32_t thaw;          /* 1: let them learn again */
    uint64_t first, count; /* local ids from `first` on, so many; count 0: to the end */
    /* In (0, 1): only those that are used more than this quantile; 0: all */
    double usage_above;
} reef_freeze_options;
/**
 * Let single experts of the open generation stay as they are, or learn again: they take part as
 * before, but the optimiser passes them by. Commits.
 *
 * options  NULL: freeze all
 * changed  how many were not so before; may be NULL
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_freeze(reef_pool *pool,
                                                      const reef_freeze_options *options,
                                                      uint64_t *changed,
                                                      reef_error *err);

/**
 * Commit, and keep the state under a name that as_of takes. Errors: INVALID the name exists
 * already, or is none.
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_snapshot(reef_pool *pool,
                                                        const char *name,
                                                        reef_error *err);
/** Commit, and give a snapshot up. NOT_FOUND if no snapshot has exactly that name. */
REEF_API REEF_MUST_CHECK reef_status reef_pool_remove_snapshot(reef_pool *pool,
                                                               const char *name,
                                                               reef_error *err);

typedef struct reef_snapshot_info {
    size_t size; /* sizeof(reef_snapshot_info), set by the caller */
    char name[72];
    uint64_t commit, step, position, unix_ms;
    uint32_t generations;
} reef_snapshot_info;
/**
 * Snapshot number `index` from 0 on, in the order of names; NOT_FOUND after the last. CORRUPT when
 * its record is damaged: the others can still be read.
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_read_snapshot(reef_pool *pool,
                                                             size_t index,
                                                             reef_snapshot_info *out,
                                                             reef_error *err);

/* ---- kinds of text --------------------------------------------------------------------------- */

/** A kind of text: see docs/LEARNING.md, "A kind that comes back". */
typedef struct reef_kind_info {
    size_t size;            /* sizeof(reef_kind_info), set by the caller */
    uint32_t kind;          /* the number of the generation that it began with */
    char name[72];          /* "": none was given */
    int32_t open;           /* that generation is open */
    int32_t learning;       /* what comes next is its, unless it is another's */
    uint64_t began_at;      /* position */
    uint64_t learned_bytes; /* by its context memory, in all */
    uint64_t learned_at;    /* position behind the last of them */
    uint64_t visits;        /* how often it learned without another kind in between */
    double first_loss;   /* bits per byte of its first visit, before they were learned; NaN: not */
    double last_loss;    /* known. And of its last visit */
    int64_t merged_into; /* the kind that it was merged into; -1: it was not */
    /* When it began, ms since 1970, by the machine's clock; 0: not known, such as for an
     * imported kind */
    uint64_t began_ms;
} reef_kind_info;
/**
 * Kind number `index` from 0 on, in the order of their numbers; NOT_FOUND after the last. The kinds
 * are those of the state that was opened; opened as of now, or for writing, of the last commit. As
 * of a sealed generation they have the names of now, as of a snapshot those of its time.
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_read_kind(reef_pool *pool,
                                                         size_t index,
                                                         reef_kind_info *out,
                                                         reef_error *err);

/** What a kind learned of the stream without another kind in between. */
typedef struct reef_visit_info {
    size_t size;            /* sizeof(reef_visit_info), set by the caller */
    uint64_t visits;        /* 1; more: of the kind's oldest ones only their sum is known */
    uint64_t begin, end;    /* positions in the stream: of its first byte, and behind its last */
    uint64_t learned_bytes; /* of the stream's, by the kind's context memory */
    double loss;            /* bits per byte, before they were learned */
} reef_visit_info;
/**
 * Visit number `index` from 0 on of a kind, the oldest first, of the state that reef_pool_read_kind
 * is of. A visit that continues past that state is cut there, at its mean loss; so are sums.
 *
 * Errors: NOT_FOUND after the last, no such kind. Pools without context memories know no visits.
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_read_visit(
    reef_pool *pool, uint32_t kind, size_t index, reef_visit_info *out, reef_error *err);
/**
 * Commit, and give a kind a name: 1 to 64 letters, digits, and after the first also . _ - but no
 * number. Earlier states keep their names.
 *
 * name  NULL: it has none any more
 *
 * Errors: INVALID no such name, or another kind has it; NOT_FOUND no such kind.
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_name_kind(reef_pool *pool,
                                                         uint32_t kind,
                                                         const char *name,
                                                         reef_error *err);

/** What giving up old states does. */
typedef struct reef_prune_info {
    size_t size;     /* sizeof(reef_prune_info), set by the caller */
    uint64_t states; /* that as_of could name, and cannot any more */
    uint64_t visits; /* of kinds, whose records go */
    uint64_t bytes;  /* of these records, which commits use again */
} reef_prune_info;
/**
 * Give up the states as of all generations but the newest `keep_last`, the open one counted. What
 * these and snapshots are read from stays, and no later answer changes. Commits if there is
 * something to give up.
 *
 * dry_run  1: only say what it would do
 * out      written, but for its size; may be NULL
 *
 * Errors: INVALID keep_last is 0, or a snapshot's record is damaged; those of a commit.
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_prune(
    reef_pool *pool, uint32_t keep_last, int32_t dry_run, reef_prune_info *out, reef_error *err);

/* ---- use of experts -------------------------------------------------------------------------- */

/**
 * How often each expert was chosen in training, up to the last commit. In a range of time as far as
 * it is known: to the commit for an hour, to the hour for two days, to the day for 400. A commit,
 * hour or day that touches the range counts as a whole. What is older is known in total only, and
 * counts where since_ms is 0.
 *
 * layer               of a model's blocks; 0 of a layer
 * since_ms, until_ms  milliseconds since 1970, since <= t < until; until 0: now. Both 0: ever
 * counts              (count) written, by local id
 * scores              (count) sums of the weights it was chosen with; may be NULL
 * count               experts of the generation; INVALID where they are not so many
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_usage(reef_pool *pool,
                                                     uint32_t generation,
                                                     uint32_t layer,
                                                     uint64_t since_ms,
                                                     uint64_t until_ms,
                                                     uint64_t *counts,
                                                     double *scores,
                                                     size_t count,
                                                     reef_error *err);

/* ---- a layer --------------------------------------------------------------------------------- */

/**
 * What one forward leaves for its backward. Its memory is kept for the next forward, of whichever
 * layer.
 */
typedef struct reef_tape reef_tape;
/** A tape, for any layer; empty until a forward fills it. Used by one thread at a time. */
REEF_API REEF_MUST_CHECK reef_status reef_tape_new(reef_tape **out, reef_error *err);
REEF_API void reef_tape_free(reef_tape *tape); /* accepts NULL */

/**
 * Which part of the layer a forward computes, and how. All but `size` zero: all of it, as it is
 * evaluated.
 */
typedef struct reef_layer_call {
    size_t size;          /* sizeof(reef_layer_call) */
    uint32_t generations; /* the first so many, as of generation `generations - 1`; 0: all */
    int32_t train; /* 1: the open one uses the batch's statistics, and learns from the backward */
    /* (generations, rows) or NULL: where 0, that generation takes no part in that row */
    const uint8_t *mask;
} reef_layer_call;

/**
 * y = the sum of what the chosen generations add at x (without the residual: add x yourself).
 *
 * call  NULL: all generations, evaluated
 * x     (rows, d_model) row-major floats; read in place
 * y     (rows, d_model) written; no part of it may be the memory of x
 * tape  filled; NULL where no backward follows (train needs one)
 *
 * What is evaluated has, for a row, the same bits whatever other rows are beside it. Errors:
 * INVALID x has values that are not finite, or in training one so far out that the variance of
 * queries is none of a float; x and y overlap; no such generation; training a pool open for
 * reading.
 */
REEF_API REEF_MUST_CHECK reef_status reef_layer_forward(reef_pool *pool,
                                                        const reef_layer_call *call,
                                                        size_t rows,
                                                        const float *x,
                                                        float *y,
                                                        reef_tape *tape,
                                                        reef_error *err);
/**
 * d_x (written; no part of it may be the memory of d_y or x) from d_y, both (rows, d_model), with
 * the x of the tape's forward; uses the tape's content up. After a forward that trains, gradients
 * of the open generation are collected until reef_layer_step: nothing changes before it, and many
 * batches give the step of one. The choice of experts is held fixed.
 *
 * Errors: INVALID the tape has no forward, or a step or boundary has come between; d_y has values
 * that are not finite, or d_x overlaps: the tape is then as it was, and nothing is collected; FULL
 * too many rows wait.
 */
REEF_API REEF_MUST_CHECK reef_status reef_layer_backward(reef_pool *pool,
                                                         reef_tape *tape,
                                                         const float *x,
                                                         const float *d_y,
                                                         float *d_x,
                                                         reef_error *err);
/**
 * One step of the pool's optimiser on what was collected. Nothing happens where nothing was.
 * learning_rate  0: the pool's own; at most 10
 *
 * Errors: INVALID the rate; or the gradient is not finite, or so large (1e19) that its square is
 * none of a float: nothing has changed, and it waits until reef_layer_discard.
 */
REEF_API REEF_MUST_CHECK reef_status reef_layer_step(reef_pool *pool,
                                                     float learning_rate,
                                                     reef_error *err);
/** Forget what was collected. */
REEF_API REEF_MUST_CHECK reef_status reef_layer_discard(reef_pool *pool, reef_error *err);

/**
 * Parameters by name, row-major: "w_down", "w_up" and with glu "w_gate" (experts, d_model), by
 * local id; "w_query" (d_model, heads * d_key); "sub_keys_a", "sub_keys_b" (side, d_key / 2). An
 * open generation with batch norm also has "bn_scale", "bn_shift", "bn_mean", "bn_var" (heads *
 * d_key); a sealed one has that folded into w_query and "query_bias" (heads * d_key).
 *
 * count  values in the array; INVALID if the array has another number
 */
REEF_API REEF_MUST_CHECK reef_status reef_layer_read(reef_pool *pool,
                                                     uint32_t generation,
                                                     const char *name,
                                                     float *out,
                                                     size_t count,
                                                     reef_error *err);
/**
 * Set a parameter of the open generation; its moments are reset. INVALID: values not finite, a
 * variance below 0.
 */
REEF_API REEF_MUST_CHECK reef_status reef_layer_write(
    reef_pool *pool, const char *name, const float *values, size_t count, reef_error *err);
/** The gradient of a parameter of the open generation that waits for the step. */
REEF_API REEF_MUST_CHECK reef_status
reef_layer_gradient(reef_pool *pool, const char *name, float *out, size_t count, reef_error *err);

/** Local id of the expert whose key is row i of sub_keys_a and row j of sub_keys_b, and back. */
REEF_API uint32_t reef_expert_id_of(uint32_t i, uint32_t j);
REEF_API void reef_expert_pair_of(uint32_t id, uint32_t *i, uint32_t *j);

/* ---- a model of bytes ------------------------------------------------------------------------ */

/**
 * Train on the next `count` bytes of a stream, as far as whole batches reach; the rest waits for
 * the next call. How the stream is cut into calls changes nothing. A boundary that is found on the
 * way seals by itself.
 * source  names the stream in UTF-8: reef_pool_cursor says how many of its bytes were taken
 *
 * Errors: INVALID a name that is not UTF-8; training diverged, as its loss is not finite;
 * NO_MEMORY. Where a step ended half way nothing since the last commit is kept: training, commits
 * and seals fail alike until the pool is closed and opened again.
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_train(
    reef_pool *pool, const char *source, const void *bytes, size_t count, reef_error *err);
/**
 * How many bytes of a source a writer has accepted. 0: none yet. INVALID in a pool that was opened
 * for reading.
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_cursor(reef_pool *pool,
                                                      const char *source,
                                                      uint64_t *bytes,
                                                      reef_error *err);

typedef struct reef_training_info {
    size_t size;             /* sizeof(reef_training_info), set by the caller */
    uint64_t step, position; /* position: bytes of the stream that were dealt with */
    uint64_t waiting;        /* accepted since: they wait for a whole batch, or a boundary */
    uint32_t generation;     /* the open one */
    /* Before training on it, since the pool was opened; NaN: none so far. */
    double bits_per_byte;      /* median of the open generation's last batches */
    double last_bits_per_byte; /* of the last one */
    double learning_rate;
} reef_training_info;
REEF_API REEF_MUST_CHECK reef_status reef_pool_read_training(reef_pool *pool,
                                                             reef_training_info *out,
                                                             reef_error *err);

typedef struct reef_evaluation {
    size_t size;    /* sizeof(reef_evaluation), set by the caller */
    uint64_t bytes; /* scored: all but the first */
    double bits, bits_per_byte;
} reef_evaluation;
/**
 * Loss of a text under the state that was opened; a writer commits first.
 * bits  (count) or NULL: written; the surprise of each byte
 *
 * Errors: INVALID the pool has no model of bytes.
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_evaluate(reef_pool *pool,
                                                        const void *bytes,
                                                        size_t count,
                                                        float *bits,
                                                        reef_evaluation *out,
                                                        reef_error *err);

/** What the lines of a text cost: the figures of `reef score`. */
typedef struct reef_lines reef_lines;

typedef struct reef_line_info {
    size_t size;          /* sizeof(reef_line_info), set by the caller */
    uint64_t line;        /* its number in the text, from 1 */
    uint64_t offset;      /* of its first byte in the text */
    uint64_t bytes;       /* without its end */
    double bits;          /* of all its bytes and of its end, which is predicted too */
    double bits_per_byte; /* its end counted */
    double score;         /* how unusual it is: docs/LEARNING.md, "The score of a line" */
    /* The kind that was the likeliest to answer most of its bytes; of equals the lower one. -1: no
     * kind of this pool knows the text: its first 4 kB cost what learning them from nothing does */
    int64_t kind;
} reef_line_info;
/**
 * Score the lines of a text under the state that was opened; a writer commits first. The text is
 * read as one stream, as of reef_pool_evaluate, and cut at each newline; the last line may lack
 * its end.
 *
 * text   (count) any bytes
 * out    written: ended by reef_lines_free; NULL after an error
 * total  the loss of the text; may be NULL
 *
 * Errors: INVALID less than two bytes, or the pool has no model of bytes; NO_MEMORY: 8 bytes for
 * each byte of the text, and some words for each line.
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_score_lines(reef_pool *pool,
                                                           const void *text,
                                                           size_t count,
                                                           reef_lines **out,
                                                           reef_evaluation *total,
                                                           reef_error *err);
/** Line `index` from 0 on; NOT_FOUND after the last. Any number of threads may read at once. */
REEF_API REEF_MUST_CHECK reef_status reef_lines_read(const reef_lines *lines,
                                                     size_t index,
                                                     reef_line_info *out,
                                                     reef_error *err);
REEF_API void reef_lines_free(reef_lines *lines); /* accepts NULL */

#define REEF_CANDIDATES 8 /* kinds that answer a byte, at most */

/**
 * Which kinds answer a text under the state that was opened; a writer commits first. A byte is
 * predicted by a few candidates, each with the weight that it has by its predictions so far: the
 * posterior before the byte. Without memories it is one kind with weight 1.
 *
 * width    candidates of each byte, 1 to REEF_CANDIDATES; less likely ones are left out
 * kinds    (count, width) written: the likeliest first; UINT32_MAX where there are fewer
 * weights  (count, width) or NULL: written; 0 where there are fewer. With all candidates a row's
 *          sum is 1
 * out      the loss, as of reef_pool_evaluate; may be NULL
 *
 * Errors: INVALID the pool has no context memories, or no such width; those of reef_pool_evaluate.
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_evaluate_kinds(reef_pool *pool,
                                                              const void *bytes,
                                                              size_t count,
                                                              uint32_t width,
                                                              uint32_t *kinds,
                                                              float *weights,
                                                              reef_evaluation *out,
                                                              reef_error *err);

typedef struct reef_generate_options {
    size_t size;       /* sizeof(reef_generate_options) */
    uint64_t seed;     /* everything random follows from it */
    float temperature; /* 0: the most likely byte each time */
    float top_p;       /* draw from the likeliest bytes of this probability in all; 0: from all */
} reef_generate_options;
/**
 * Continue a text under the state that was opened; a writer commits first.
 * options  NULL: the most likely bytes
 * out      (count) written
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_generate(reef_pool *pool,
                                                        const void *prompt,
                                                        size_t prompt_bytes,
                                                        const reef_generate_options *options,
                                                        void *out,
                                                        size_t count,
                                                        reef_error *err);

/* ---- archives: texts coded by what was learned ----------------------------------------------- */

/* A text becomes the smaller, the better the pool's context memories know such texts. Expanding
 * needs the pool, or a copy, with the state that the archive was made as of. That is a sealed
 * generation or a snapshot, which never changes. So an archive expands to the same bytes on every
 * machine, whatever the pool has learned since. It is the same archive that `reef compress` writes.
 */

typedef struct reef_coding_options {
    size_t size; /* sizeof(reef_coding_options) */
    /* Compressing: a sealed generation ("0") or a snapshot's name. NULL: what the pool was opened
     * as of, or else the newest of them. Not used for expanding: the archive names its state. */
    const char *as_of;
    uint32_t piece_bytes; /* compressing: bytes coded together, 4 KiB to 64 MiB; 0: 1 MiB */
    int32_t replace;      /* 1: files: an output that exists is replaced */
    /* NULL, or called in the calling thread now and then, of short texts perhaps never: bytes of
     * text read so far, and in all. Non-zero ends the call with BUSY. It must not use the pool. */
    int32_t (*progress)(void *context, uint64_t done, uint64_t total);
    void *context;
} reef_coding_options;

/** What an archive says of itself. */
typedef struct reef_archive_facts {
    size_t size;    /* sizeof(reef_archive_facts), set by the caller */
    char state[72]; /* what it was made as of: a generation's number, or a snapshot's name */
    int32_t snapshot;
    uint32_t piece_bytes, pieces;
    uint32_t raw_pieces; /* stored as they are, because no memory makes them shorter */
    uint64_t position;   /* where the state stands in its pool's stream */
    uint64_t text_bytes, archive_bytes;
    uint8_t pool[16], text_hash[16]; /* identity of the pool; XXH3-128 of the text */
} reef_archive_facts;

/**
 * Code a text.
 *
 * text     (count) up to 1 GiB
 * options  NULL: all-zero
 * archive  written: (*archive_bytes), ended by reef_archive_free; NULL after an error
 *
 * Errors: NOT_FOUND no such state; INVALID the pool has no context memories, or the state is one
 * that still changes; BUSY the progress function ended it, or another program changed the state
 * meanwhile; CORRUPT; NO_MEMORY; IO.
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_compress(reef_pool *pool,
                                                        const void *text,
                                                        size_t count,
                                                        const reef_coding_options *options,
                                                        void **archive,
                                                        size_t *archive_bytes,
                                                        reef_error *err);
REEF_API void reef_archive_free(void *archive); /* accepts NULL */

/**
 * Facts of a whole archive, without its pool. Errors: INVALID it is none; VERSION a newer program
 * wrote it; CORRUPT damaged or cut off; NO_MEMORY.
 */
REEF_API REEF_MUST_CHECK reef_status reef_archive_read_facts(const void *archive,
                                                             size_t count,
                                                             reef_archive_facts *out,
                                                             reef_error *err);

/**
 * Bytes begin to end - 1 of an archive's text; all of it are 0 to text_bytes. Only the pieces in
 * which they lie are expanded. The whole text, and each piece, is checked against its checksum.
 *
 * archive  (count)
 * options  NULL: all-zero
 * text     (end - begin) written; unspecified after an error
 *
 * Errors: those of reading facts; INVALID it is no range of the text, or the archive is of another
 * pool; NOT_FOUND the pool has the state no more; BUSY as above; IO.
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_expand(reef_pool *pool,
                                                      const void *archive,
                                                      size_t count,
                                                      uint64_t begin,
                                                      uint64_t end,
                                                      const reef_coding_options *options,
                                                      void *text,
                                                      reef_error *err);

/**
 * The same from file to file. The output appears under its name only when it is whole and on the
 * disk; after an error nothing of it is left, and a file that was there is as it was.
 *
 * facts  of the archive, written; may be NULL
 *
 * Errors: as above; INVALID the output exists and options do not replace it, or lies in a pool;
 * NOT_FOUND no such file or directory; FULL; IO.
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_compress_file(reef_pool *pool,
                                                             const char *path,
                                                             const char *out,
                                                             const reef_coding_options *options,
                                                             reef_archive_facts *facts,
                                                             reef_error *err);
REEF_API REEF_MUST_CHECK reef_status reef_pool_expand_file(reef_pool *pool,
                                                           const char *path,
                                                           const char *out,
                                                           const reef_coding_options *options,
                                                           reef_archive_facts *facts,
                                                           reef_error *err);

/* ---- incidents: what was new in lines of logs ----------------------------------------------- */

/* A pool that was made with watch=true judges each line that it is trained on before it learns it.
 * What was new and rare enough rings. Incidents are told as JSON text: {"incidents": [...]}, each
 * with the members that docs/PROTOCOL.md has under "Incidents".
 */

/** End a text that the library made. Accepts NULL. */
REEF_API void reef_text_free(char *text);

/**
 * Incidents that rang, in the order in which they began, each as it is after the last commit.
 *
 * last       at most so many, the last ones; 0: all
 * incidents  written: JSON, ended by reef_text_free; NULL after an error
 *
 * Errors: INVALID the pool watches no lines.
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_incidents(reef_pool *pool,
                                                         uint64_t last,
                                                         char **incidents,
                                                         reef_error *err);
/**
 * Say what an incident is, one of the last 256 that rang, and commit. It holds for its types of
 * lines, and replaces what was said of them before.
 *
 * decision  "normal" (they never ring again), "mute" (not for a while) or "fault" (each time)
 * for_s     of "mute": seconds from the present on, by the times of lines, 1 to a year; else 0
 * types     written: how many types of lines it is about; may be NULL
 *
 * Errors: INVALID no such decision or time, or the pool watches no lines; NOT_FOUND no such
 * incident; those of a commit.
 */
REEF_API REEF_MUST_CHECK reef_status reef_pool_decide(reef_pool *pool,
                                                      uint64_t incident,
                                                      const char *decision,
                                                      int64_t for_s,
                                                      uint64_t *types,
                                                      reef_error *err);

/** Judges lines without a pool, as `reef watch --replay` does. Used by one thread at a time. */
typedef struct reef_watcher reef_watcher;

/** All but `size` zero: the defaults. */
typedef struct reef_watcher_options {
    size_t size;          /* sizeof(reef_watcher_options) */
    double budget;        /* incidents a day that may ring, up to a million; 5 */
    uint32_t gap_s;       /* events nearer to each other are one incident; 60 */
    uint32_t quiet_s;     /* a source is judged once nothing new came for so long; 3600 */
    uint32_t forget_days; /* what did not come for so long is new again; 30 */
    /* Milliseconds since 1970: times without a year are near to it, before any line has another;
     * the present */
    int64_t near_ms;
    int64_t since_ms; /* learn only until then, and judge all sources from then on; 0: by quiet_s */
} reef_watcher_options;

/**
 * A watcher that has read nothing; ended by reef_watcher_free.
 *
 * options  NULL: the defaults
 *
 * Errors: INVALID a budget that is none, or a time before 1970 or behind the year 9999.
 */
REEF_API REEF_MUST_CHECK reef_status reef_watcher_new(reef_watcher **out,
                                                      const reef_watcher_options *options,
                                                      reef_error *err);
REEF_API void reef_watcher_free(reef_watcher *watcher); /* accepts NULL */

/**
 * Judge and learn the next line of a source. Lines come in the order of their times, about: what is
 * late counts for the present. Empty lines are passed over.
 *
 * source   its name in UTF-8; up to 1024 of them, added as they come
 * line     (count) any bytes, with or without the newline at its end
 * time_ms  since 1970; 0: that at its head, or else as the line before it
 *
 * Errors: INVALID a newline within the line, no such time, or a name that is empty or no UTF-8;
 * FULL too many sources; NO_MEMORY: the line is not learned, and reading may go on.
 */
REEF_API REEF_MUST_CHECK reef_status reef_watcher_line(reef_watcher *watcher,
                                                       const char *source,
                                                       const void *line,
                                                       size_t count,
                                                       int64_t time_ms,
                                                       reef_error *err);
/** Nothing comes any more: what is open ends. */
REEF_API REEF_MUST_CHECK reef_status reef_watcher_finish(reef_watcher *watcher, reef_error *err);
/**
 * What began to ring ("state" is "open") or ended since the last call.
 *
 * incidents  written: JSON, ended by reef_text_free; NULL: nothing, or after an error
 */
REEF_API REEF_MUST_CHECK reef_status reef_watcher_take(reef_watcher *watcher,
                                                       char **incidents,
                                                       reef_error *err);

typedef struct reef_watcher_counts {
    size_t size; /* sizeof(reef_watcher_counts), set by the caller */
    uint64_t lines, usual, in_events, suppressed; /* lines = usual + in_events + suppressed */
    uint64_t learning;              /* of the usual ones: of sources that are not judged yet */
    uint64_t incidents, rung, open; /* open: that ring and have not ended */
    uint64_t types;                 /* of lines, that are known */
} reef_watcher_counts;
REEF_API REEF_MUST_CHECK reef_status reef_watcher_read_counts(const reef_watcher *watcher,
                                                              reef_watcher_counts *out,
                                                              reef_error *err);

#ifdef __cplusplus
}
#endif

#endif
