// Pools as handles: the frame of every call (the caller's locale and arithmetic, structs of any
// version, one call on a pool at a time); make, open, close, commit, boundaries.
#include "lib.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The numbers are part of the ABI: programs that were built long ago compare with them.
_Static_assert(REEF_OK == 0 && REEF_ERR_INVALID == 1 && REEF_ERR_NOT_FOUND == 2 &&
                   REEF_ERR_CORRUPT == 3 && REEF_ERR_VERSION == 4 && REEF_ERR_FULL == 5 &&
                   REEF_ERR_BUSY == 6 && REEF_ERR_NO_MEMORY == 7 && REEF_ERR_IO == 8,
               "as in reef/reef.h");
_Static_assert(sizeof(reef_error) == sizeof(reef_status) + 256, "as in reef/reef.h");

const char *reef_library_version(void) {
    return REEF_VERSION_TEXT;
}

// ---- the frame of every call --------------------------------------------------------------------

static locale_t plain; // made once, for as long as the process lives

static void make_plain(void) {
    plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

// A program may have chosen another locale, in which numbers in text have no point, or left another
// arithmetic (which rounds otherwise, takes small values for zero, or traps): what is stored and
// computed would be other bits. For the thread's time in the library both are those that programs
// begin with, and the threads that it makes have them too.
void reef_lib_take_caller(reef_lib_caller *out) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, make_plain);
    out->locale = uselocale(plain); // without memory for it: none, which changes nothing
    (void)fegetenv(&out->arithmetic);
    (void)fesetenv(FE_DFL_ENV);
}

void reef_lib_give_back(const reef_lib_caller *caller) {
    (void)uselocale(caller->locale);
    (void)fesetenv(&caller->arithmetic);
}

static reef_status size_of(const void *theirs, const char *name, size_t *out, reef_error *err) {
    memcpy(out, theirs, sizeof(*out)); // the first field of all of them
    if (*out >= sizeof(size_t) && *out < 65536) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID, "%s has size %zu; set it to sizeof(%s)", name, *out,
                     name);
}

reef_status reef_lib_take(
    void *own, size_t own_bytes, const void *theirs, const char *name, reef_error *err) {
    size_t bytes;
    memset(own, 0, own_bytes);
    if (theirs == NULL) return REEF_OK;
    reef_status status = size_of(theirs, name, &bytes, err);
    // A caller built with an older header has fewer fields; the rest stays zero.
    if (status == REEF_OK) memcpy(own, theirs, bytes < own_bytes ? bytes : own_bytes);
    return status;
}

reef_status reef_lib_give(
    void *theirs, const void *own, size_t own_bytes, const char *name, reef_error *err) {
    size_t bytes, first = sizeof(bytes);
    reef_status status = size_of(theirs, name, &bytes, err);
    if (status != REEF_OK) return status;
    size_t shared = bytes < own_bytes ? bytes : own_bytes;
    memcpy((char *)theirs + first, (const char *)own + first, shared - first);
    // Fields that a newer header has and this library does not know are zero.
    if (bytes > shared) memset((char *)theirs + shared, 0, bytes - shared);
    return REEF_OK;
}

// A child of fork() has a copy of the handle, but not its threads; and LMDB is only for the process
// that opened it.
static bool is_inherited(const reef_pool *pool) {
    return pool->pid != getpid();
}

reef_status reef_lib_enter(reef_pool *pool, reef_error *err) {
    if (is_inherited(pool))
        return reef_fail(
            err, REEF_ERR_INVALID,
            "pool %.120s was opened by process %ld, from which this one was forked: open "
            "it here as well",
            reef_store_path(pool->store), (long)pool->pid);
    // One call at a time: the trainer and the model are not for several threads.
    pthread_mutex_lock(&pool->lock);
    reef_lib_take_caller(&pool->caller);
    reef_gemm_claim();
    return REEF_OK;
}

void reef_lib_leave(reef_pool *pool) {
    reef_gemm_give_back();
    reef_lib_give_back(&pool->caller);
    pthread_mutex_unlock(&pool->lock);
}

reef_status reef_lib_enter_writer(reef_pool *pool, const char *what, reef_error *err) {
    reef_status status = reef_lib_enter(pool, err);
    if (status == REEF_OK) pool->is_committed = false;
    if (status != REEF_OK || pool->trainer != NULL) return status;
    reef_lib_leave(pool);
    return reef_fail(err, REEF_ERR_INVALID,
                     "cannot %s: pool %.120s was opened for reading; open it with write set", what,
                     reef_store_path(pool->store));
}

void reef_lib_unpin(reef_pool *pool) {
    if (pool->model != NULL) reef_model_unpin(pool->model);
}

// ---- make ---------------------------------------------------------------------------------------

static void set_number(uint32_t *field, uint32_t value) {
    if (value > 0) *field = value;
}

static void set_rate(float *field, float value) {
    if (value != 0.0f) *field = value;
}

static reef_status set_word(reef_config *config,
                            const char *name,
                            const char *value,
                            reef_error *err) {
    return value == NULL ? REEF_OK : reef_config_set(config, name, value, err);
}

static reef_status layer_config(reef_config *config,
                                const reef_layer_options *options,
                                reef_error *err) {
    reef_config_default(config);
    reef_status status = reef_config_set(config, "model", "layer", err);
    reef_config_fit(config);
    if (status == REEF_OK) status = set_word(config, "expert", options->expert, err);
    if (status == REEF_OK) status = set_word(config, "score", options->score, err);
    if (status == REEF_OK) status = set_word(config, "seal_dtype", options->seal_dtype, err);
    if (status == REEF_OK && options->d_model == 0)
        status =
            reef_fail(err, REEF_ERR_INVALID, "a layer needs d_model, the width of a row; it is 0");
    config->d_model = options->d_model;
    set_number(&config->heads, options->heads);
    set_number(&config->topk, options->topk);
    set_number(&config->d_key, options->d_key);
    set_number(&config->side, options->side);
    config->batch_norm = options->no_batch_norm == 0;
    if (options->seed > 0) config->seed = options->seed;
    config->experts_max = options->experts_max;
    set_rate(&config->learning_rate, options->learning_rate);
    set_rate(&config->expert_rate, options->expert_rate);
    set_rate(&config->beta1, options->beta1);
    set_rate(&config->beta2, options->beta2);
    set_rate(&config->epsilon, options->epsilon);
    set_rate(&config->clip, options->clip);
    if (config->clip < 0.0f) config->clip = 0.0f; // which is none
    return status;
}

reef_status reef_pool_create_layer(const char *path,
                                   const reef_layer_options *options,
                                   reef_error *err) {
    reef_layer_options own;
    reef_config config;
    reef_lib_caller caller;
    reef_lib_take_caller(&caller);
    reef_status status = reef_lib_take(&own, sizeof(own), options, "reef_layer_options", err);
    if (status == REEF_OK) status = layer_config(&config, &own, err);
    if (status == REEF_OK) status = reef_pool_init(path, &config, err);
    reef_lib_give_back(&caller);
    return status;
}

static reef_status set_text(reef_config *config, const char *setting, reef_error *err) {
    char name[64];
    const char *equals = strchr(setting, '=');
    if (equals == NULL || equals == setting || (size_t)(equals - setting) >= sizeof(name))
        return reef_fail(err, REEF_ERR_INVALID, "'%.64s' is not a setting of the form name=value",
                         setting);
    memcpy(name, setting, (size_t)(equals - setting));
    name[equals - setting] = '\0';
    return reef_config_set(config, name, equals + 1, err);
}

static reef_status set_texts(reef_config *config, const char *const *settings, reef_error *err) {
    reef_status status = REEF_OK;
    for (; status == REEF_OK && settings != NULL && *settings != NULL; settings++)
        status = set_text(config, *settings, err);
    return status;
}

reef_status reef_pool_create_model(const char *path, const char *const *settings, reef_error *err) {
    reef_config config;
    reef_lib_caller caller;
    reef_lib_take_caller(&caller);
    reef_config_default(&config);
    reef_status status = set_texts(&config, settings, err);
    reef_config_fit(&config);
    if (status == REEF_OK) status = set_texts(&config, settings, err);
    if (status == REEF_OK) status = reef_pool_init(path, &config, err);
    reef_lib_give_back(&caller);
    return status;
}

// ---- open and close -----------------------------------------------------------------------------

// A moment such as "yesterday" may be another state later, and so may a snapshot's short name: what
// was opened is kept by the name that it has always.
static reef_status name_state(reef_pool *pool, const char *as_of, reef_error *err) {
    char name[REEF_NAME_BYTES_MAX + 1];
    reef_txn *txn = NULL;
    if (as_of == NULL || strcmp(as_of, "now") == 0) return REEF_OK;
    reef_status status = reef_txn_begin(&txn, pool->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_state_name(name, txn, as_of, err);
    reef_txn_abort(txn);
    if (status != REEF_OK) return status;
    pool->as_of = strcmp(name, "now") == 0 ? NULL : strdup(name);
    if (pool->as_of != NULL || strcmp(name, "now") == 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a pool");
}

reef_status reef_lib_check_kinds(const reef_model *model, reef_error *err) {
    size_t count;
    const reef_lost_kind *lost = reef_model_lost_kinds(model, &count);
    if (count == 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "kind %" PRIu32 " is damaged; reef verify says what helps: "
                     "%.150s",
                     lost->kind, lost->what);
}

static reef_status load_pool(reef_pool *pool,
                             const char *path,
                             const reef_pool_options *options,
                             reef_error *err) {
    const reef_trainer_options training = {.threads = options->threads,
                                           .memory_bytes = options->memory_bytes};
    reef_status status = reef_store_open(&pool->store, path,
                                         &(reef_store_options){.write = options->write != 0}, err);
    if (status != REEF_OK) return status;
    // A writer opens a model at the first question only (reef_lib_catch_up).
    if (options->write) {
        status = reef_trainer_open(&pool->trainer, pool->store, &training, err);
        if (status == REEF_OK) pool->config = *reef_trainer_config(pool->trainer);
        return status;
    }
    status = name_state(pool, options->as_of, err);
    if (status == REEF_OK)
        status = reef_model_open(&pool->model, pool->store, pool->as_of, &pool->model_options, err);
    if (status == REEF_OK) status = reef_lib_check_kinds(pool->model, err);
    if (status == REEF_OK) pool->config = *reef_model_config(pool->model);
    return status;
}

reef_status reef_pool_open(reef_pool **out,
                           const char *path,
                           const reef_pool_options *options,
                           reef_error *err) {
    reef_pool_options own;
    *out = NULL;
    reef_status status = reef_lib_take(&own, sizeof(own), options, "reef_pool_options", err);
    if (status != REEF_OK) return status;
    // The trainer continues from the last commit and from no other state.
    if (own.write && own.as_of != NULL && strcmp(own.as_of, "now") != 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "pool %.100s cannot be opened for writing as of %.40s: earlier states are "
                         "for reading, and only `reef snapshot restore` goes back to one",
                         path, own.as_of);
    if (own.frozen < REEF_READ_ADAPTING || own.frozen > REEF_READ_ALONE)
        return reef_fail(err, REEF_ERR_INVALID, "frozen is %d, but must be 0, 1 or 2", own.frozen);
    reef_pool *pool = calloc(1, sizeof(*pool));
    if (pool == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a pool");
    pthread_mutex_init(&pool->lock, NULL);
    pool->pid = getpid();
    pool->model_options = (reef_model_options){.threads = own.threads,
                                               .memory_bytes = own.memory_bytes,
                                               .reading = (reef_memory_reading)own.frozen};
    reef_lib_caller caller;
    // Loading computes as well, so it needs the same locale and arithmetic as a call.
    reef_lib_take_caller(&caller);
    reef_gemm_claim();
    status = load_pool(pool, path, &own, err);
    // Between calls no transaction stays open: it would keep pages from reuse.
    reef_lib_unpin(pool);
    reef_gemm_give_back();
    reef_lib_give_back(&caller);
    if (status == REEF_OK) {
        *out = pool;
        pool = NULL; // the caller owns it now
    }
    reef_pool_close(pool);
    return status;
}

void reef_pool_close(reef_pool *pool) {
    if (pool == NULL || is_inherited(pool)) return; // what a child has of it ends with the child
    // Without it the next one to open the pool learns more of it again.
    if (pool->is_committed) (void)!reef_trainer_rest(pool->trainer, NULL);
    reef_trainer_close(pool->trainer);
    reef_model_close(pool->model);
    if (pool->store != NULL) reef_store_close(pool->store);
    reef_kind_list_release(&pool->kinds);
    pthread_mutex_destroy(&pool->lock);
    free(pool->as_of);
    free(pool);
}

// ---- commit and boundaries ----------------------------------------------------------------------

reef_status reef_pool_commit(reef_pool *pool, uint64_t *commit, reef_error *err) {
    reef_commit done = {0};
    reef_status status = reef_lib_enter_writer(pool, "commit", err);
    if (status != REEF_OK) return status;
    status = reef_trainer_commit(pool->trainer, &done, err);
    pool->is_committed = status == REEF_OK;
    if (status == REEF_OK && commit != NULL) *commit = done.number;
    reef_lib_leave(pool);
    return status;
}

reef_status reef_pool_seal(reef_pool *pool, uint32_t side, reef_error *err) {
    reef_status status = reef_lib_enter_writer(pool, "seal", err);
    if (status != REEF_OK) return status;
    if (reef_config_is_layer(&pool->config))
        status = reef_trainer_layer_seal(pool->trainer, side, NULL, NULL, err);
    else if (side > 0)
        status = reef_fail(err, REEF_ERR_INVALID,
                           "side %u: the next generation of a model begins with its side", side);
    else
        status = reef_trainer_seal(pool->trainer, NULL, NULL, err);
    reef_lib_leave(pool);
    return status;
}

reef_status reef_pool_grow(reef_pool *pool, uint32_t side, reef_error *err) {
    reef_status status = reef_lib_enter_writer(pool, "grow", err);
    if (status != REEF_OK) return status;
    status = reef_trainer_grow(pool->trainer, side, err);
    reef_lib_leave(pool);
    return status;
}

reef_status reef_pool_snapshot(reef_pool *pool, const char *name, reef_error *err) {
    reef_status status = reef_lib_enter_writer(pool, "make a snapshot", err);
    if (status != REEF_OK) return status;
    status = reef_trainer_snapshot(pool->trainer, name, NULL, err);
    reef_lib_leave(pool);
    return status;
}

reef_status reef_pool_remove_snapshot(reef_pool *pool, const char *name, reef_error *err) {
    char names[1][REEF_NAME_BYTES_MAX + 1];
    if (strlen(name) > REEF_NAME_BYTES_MAX)
        return reef_fail(err, REEF_ERR_NOT_FOUND, "no snapshot has the name %.100s: it is too long",
                         name);
    strcpy(names[0], name);
    reef_status status = reef_lib_enter_writer(pool, "remove a snapshot", err);
    if (status != REEF_OK) return status;
    status = reef_trainer_snapshots_remove(pool->trainer, names, 1, err);
    reef_lib_leave(pool);
    return status;
}

// ---- single experts -----------------------------------------------------------------------------

reef_status reef_pool_freeze(reef_pool *pool,
                             const reef_freeze_options *options,
                             uint64_t *changed,
                             reef_error *err) {
    reef_freeze_options own;
    uint64_t count = 0;
    reef_status status = reef_lib_take(&own, sizeof(own), options, "reef_freeze_options", err);
    if (status != REEF_OK) return status;
    // A count of zero means all from the first; a sum that would wrap means the same.
    bool ends = own.count > 0 && own.first <= UINT64_MAX - own.count;
    uint64_t last = ends ? own.first + own.count - 1 : UINT64_MAX;
    const reef_freeze freeze = {.layer = options == NULL ? -1 : own.layer,
                                .first = own.first,
                                .last = last,
                                .usage_above = own.usage_above,
                                .thaw = own.thaw != 0};
    status = reef_lib_enter_writer(pool, own.thaw ? "thaw experts" : "freeze experts", err);
    if (status != REEF_OK) return status;
    status = reef_trainer_freeze(pool->trainer, &freeze, &count, err);
    reef_lib_leave(pool);
    if (status == REEF_OK && changed != NULL) *changed = count;
    return status;
}
