// Pools and texts as the commands read them.
//
// Every transaction here is short: what is read is copied, so that a long evaluation never keeps
// the daemon from reusing pages.
#include "cli_pool.h"

#include "cli.h"
#include "cli_format.h"
#include "reef_moment.h"
#include "reef_pool_json.h"
#include "reef_states.h"
#include "reef_system.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define READ_BYTES 65536

// ---- pools --------------------------------------------------------------------------------------

const char *reef_cli_stream_unit(const reef_config *config) {
    // Of a layer every row of a backward that trained counts one.
    return reef_config_is_layer(config) ? "row" : "byte";
}

uint64_t reef_cli_pool_bytes(const char *pool) {
    struct stat info;
    char *path = reef_cli_format("%s/data.mdb", pool);
    uint64_t bytes = stat(path, &info) == 0 ? (uint64_t)info.st_size : 0;
    free(path);
    return bytes;
}

// Of the pool, or of all its shards.
static uint64_t store_bytes(const reef_store *store) {
    uint64_t bytes = 0;
    uint32_t count = reef_store_part_count(store);
    if (count == 1) return reef_cli_pool_bytes(reef_store_path(store));
    for (uint32_t rank = 0; rank < count; rank++) {
        char *path = reef_cli_format("%s/rank-%" PRIu32, reef_store_path(store), rank);
        bytes += reef_cli_pool_bytes(path);
        free(path);
    }
    return bytes;
}

static reef_status read_generations(reef_cli_pool *pool, reef_txn *txn, reef_error *err) {
    uint32_t count;
    reef_status status = reef_generation_count(txn, &count, err);
    if (status != REEF_OK) return status;
    free(pool->generations);
    pool->generations = reef_cli_alloc(count, sizeof(*pool->generations));
    pool->generation_count = count;
    for (uint32_t g = 0; g < count && status == REEF_OK; g++)
        status = reef_generation_read(txn, g, &pool->generations[g], err);
    return status;
}

reef_status reef_cli_pool_refresh(reef_cli_pool *pool, reef_error *err) {
    reef_txn *txn = NULL;
    reef_status status = reef_txn_begin(&txn, pool->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_config_read(txn, &pool->config, err);
    if (status == REEF_OK) status = reef_commit_read(txn, &pool->commit, err);
    if (status == REEF_OK) status = read_generations(pool, txn, err);
    reef_txn_abort(txn); // a read has nothing to commit
    pool->file_bytes = store_bytes(pool->store);
    return status;
}

reef_status reef_cli_store_open(
    reef_store **out, const reef_cli_call *cli, bool write, const char *busy, reef_error *err) {
    reef_error reason;
    reef_status status =
        reef_store_open(out, cli->pool, &(reef_store_options){.write = write}, &reason);
    if (status == REEF_ERR_BUSY) return reef_fail(err, status, "%.160s; %s", reason.message, busy);
    return status == REEF_OK ? REEF_OK : reef_fail(err, status, "%s", reason.message);
}

reef_status reef_cli_pool_open(reef_cli_pool *pool, const reef_cli_call *cli, reef_error *err) {
    *pool = (reef_cli_pool){0};
    reef_store_options options = {0};
    reef_status status = reef_store_open(&pool->store, cli->pool, &options, err);
    if (status == REEF_OK) status = reef_cli_pool_refresh(pool, err);
    if (status != REEF_OK) reef_cli_pool_close(pool);
    return status;
}

reef_status reef_cli_as_of(const reef_cli_call *cli,
                           reef_store *store,
                           char name[REEF_NAME_BYTES_MAX + 1],
                           reef_error *err) {
    const char *as_of = reef_cli_text(cli, "as-of") != NULL ? reef_cli_text(cli, "as-of") : "now";
    reef_txn *txn = NULL;
    reef_moment moment;
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_state_name(name, txn, as_of, err);
    reef_txn_abort(txn);
    if (status == REEF_OK && !cli->json && strcmp(name, as_of) != 0 &&
        reef_moment_parse(as_of, reef_unix_ms(), &moment))
        fprintf(stderr, "reef: '%s' is the state '%s'\n", as_of, name);
    return status;
}

void reef_cli_input_order(const double *shares, size_t order[REEF_MEMORY_INPUTS_MAX]) {
    // By insertion: there are some twenty, and equals keep their order.
    for (size_t i = 0, at; i < reef_memory_input_count(); i++) {
        for (at = i; at > 0 && shares[order[at - 1]] < shares[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
}

void reef_cli_pool_close(reef_cli_pool *pool) {
    if (pool->store != NULL) reef_store_close(pool->store);
    free(pool->generations);
    *pool = (reef_cli_pool){0};
}

bool reef_cli_has_net(const reef_config *config) {
    return config->memory == 0 || config->net_share > 0.0f;
}

reef_status reef_cli_pool_has_net(const reef_cli_pool *pool, reef_error *err) {
    if (reef_cli_has_net(&pool->config)) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "this pool has no net, and so no experts: its context memories learn all of "
                     "the stream (net_share 0)");
}

uint64_t reef_cli_generation_experts(const reef_cli_pool *pool,
                                     const reef_generation_record *generation) {
    return reef_generation_experts(generation, reef_config_retrieving_layers(&pool->config));
}

reef_status reef_cli_states_kept(const reef_cli_pool *pool, bool **kept, reef_error *err) {
    reef_txn *txn = NULL;
    bool *now = NULL;
    uint32_t count = 0;
    *kept = NULL;
    reef_status status = reef_txn_begin(&txn, pool->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_states_kept(txn, &now, &count, err);
    reef_txn_abort(txn);
    if (status != REEF_OK) return status;
    // Generations that were opened since the pool was read are not asked about.
    *kept = reef_cli_alloc(pool->generation_count, sizeof(**kept));
    for (uint32_t g = 0; g < pool->generation_count && g < count; g++) (*kept)[g] = now[g];
    free(now);
    return REEF_OK;
}

// ---- texts --------------------------------------------------------------------------------------

reef_status reef_cli_read_failed(const char *path, const char *action, int code, reef_error *err) {
    bool missing = code == ENOENT || code == ENOTDIR || code == EACCES || code == EISDIR;
    return reef_fail(err, missing ? REEF_ERR_NOT_FOUND : REEF_ERR_IO, "cannot %s %.160s: %s",
                     action, path, strerror(code));
}

static reef_status read_all(reef_cli_file *file, FILE *input, reef_error *err) {
    size_t capacity = READ_BYTES;
    file->bytes = reef_cli_alloc(capacity, 1);
    for (;;) {
        file->bytes = reef_cli_grown(file->bytes, file->count, &capacity, 1);
        size_t got = fread(file->bytes + file->count, 1, capacity - file->count, input);
        file->count += got;
        // An error after a partial read must not look like the end.
        if (got == 0 && ferror(input)) return reef_cli_read_failed(file->path, "read", errno, err);
        if (got == 0) return REEF_OK;
        if (file->count > CLI_FILE_BYTES_MAX)
            return reef_fail(err, REEF_ERR_INVALID, "%.160s has more than the %zu bytes that fit",
                             file->path, CLI_FILE_BYTES_MAX);
    }
}

reef_status reef_cli_file_read(reef_cli_file *file, const char *path, reef_error *err) {
    bool standard = strcmp(path, "-") == 0;
    *file = (reef_cli_file){.path = standard ? "standard input" : path};
    FILE *input = standard ? stdin : fopen(path, "rb");
    if (input == NULL) return reef_cli_read_failed(path, "open", errno, err);
    reef_status status = read_all(file, input, err);
    if (!standard) fclose(input);
    if (status != REEF_OK) reef_cli_file_release(file);
    return status;
}

reef_status reef_cli_text_read(reef_cli_file *file, const char *path, reef_error *err) {
    reef_status status = reef_cli_file_read(file, path, err);
    if (status != REEF_OK) return status;
    if (file->count >= 2) return REEF_OK;
    status = reef_fail(err, REEF_ERR_INVALID,
                       "%.160s has %zu bytes: a loss needs a byte to predict and one before it",
                       file->path, file->count);
    reef_cli_file_release(file);
    return status;
}

reef_status reef_cli_write_failed(const char *path, int code, reef_error *err) {
    return reef_fail(err, code == ENOSPC ? REEF_ERR_FULL : REEF_ERR_IO, "cannot write %.160s: %s",
                     path, strerror(code));
}

void reef_cli_file_release(reef_cli_file *file) {
    free(file->bytes);
    *file = (reef_cli_file){0};
}

// ---- history and usage --------------------------------------------------------------------------

static reef_status on_point(void *context, const reef_point *point, reef_error *err) {
    (void)err;
    reef_cli_points *points = context;
    points->points =
        reef_cli_grown(points->points, points->count, &points->capacity, sizeof(*points->points));
    points->points[points->count++] = *point;
    return REEF_OK;
}

reef_status reef_cli_points_read(reef_cli_points *points, reef_cli_pool *pool, reef_error *err) {
    *points = (reef_cli_points){0};
    reef_txn *txn = NULL;
    reef_status status = reef_txn_begin(&txn, pool->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_series_scan(txn, on_point, points, err);
    reef_txn_abort(txn);
    if (status != REEF_OK) reef_cli_points_release(points);
    return status;
}

uint64_t reef_cli_point_batches(const reef_point *point) {
    uint64_t batches = 1;
    for (uint32_t level = 0; level < point->level; level++) batches *= REEF_SERIES_FOLD;
    return batches;
}

void reef_cli_points_release(reef_cli_points *points) {
    free(points->points);
    *points = (reef_cli_points){0};
}

reef_status reef_cli_usage_summary(reef_cli_pool *pool,
                                   const reef_generation_record *generation,
                                   reef_usage_summary *out,
                                   reef_error *err) {
    uint32_t layers = reef_config_retrieving_layers(&pool->config);
    size_t count = (size_t)generation->side * generation->side;
    reef_usage *usage = reef_cli_alloc(count, sizeof(*usage));
    reef_status status = REEF_OK;
    *out = (reef_usage_summary){0};
    for (uint32_t layer = 0; status == REEF_OK && layer < pool->config.layers; layer++) {
        if (!reef_layer_retrieves(&pool->config, layer)) continue;
        reef_txn *txn = NULL;
        reef_usage_summary one;
        status = reef_txn_begin(&txn, pool->store, REEF_TXN_READ, err);
        if (status == REEF_OK)
            status = reef_usage_read(txn, generation->generation, layer, count, usage, err);
        reef_txn_abort(txn);
        if (status != REEF_OK) break;
        reef_usage_summarise(count, usage, &one);
        out->expert_count += one.expert_count;
        out->used_count += one.used_count;
        out->selections += one.selections;
        // The mean over layers: each chooses equally often.
        out->unevenness += one.unevenness / layers;
    }
    if (out->expert_count > 0)
        out->used_percent = 100.0 * (double)out->used_count / (double)out->expert_count;
    free(usage);
    return status;
}

// ---- kinds and models ---------------------------------------------------------------------------

reef_status reef_cli_kinds_read(reef_cli_pool *pool, reef_kind_list *out, reef_error *err) {
    reef_txn *txn = NULL;
    *out = (reef_kind_list){0};
    reef_status status = reef_txn_begin(&txn, pool->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_kind_list_read(txn, out, err);
    reef_txn_abort(txn);
    return status;
}

// A command that opens a state again and again says it once.
static bool is_told(const reef_cli_call *cli, const json_t *lost) {
    size_t i;
    json_t *told;
    json_array_foreach(cli->lost_kinds, i, told) if (json_equal(told, lost)) return true;
    return false;
}

static void tell(const reef_cli_call *cli,
                 const char *as_of,
                 const char *name,
                 const reef_lost_kind *lost) {
    json_t *entry =
        json_pack("{s:s, s:I, s:o, s:I, s:s}", "as_of", as_of, "kind", (json_int_t)lost->kind,
                  "name", name[0] != '\0' ? json_string(name) : json_null(), "whole_to",
                  (json_int_t)lost->whole_to, "what", lost->what);
    bool told = is_told(cli, entry);
    if (!told) json_array_append(cli->lost_kinds, entry);
    json_decref(entry);
    if (told) return;
    char *pool = reef_cli_printable((const uint8_t *)cli->pool, strlen(cli->pool), false);
    bool is_now = strcmp(as_of, "now") == 0, has_name = name[0] != '\0';
    fprintf(stderr, "reef: %s%s%skind %" PRIu32 "%s%s%s is damaged, and ", is_now ? "" : "as of ",
            is_now ? "" : as_of, is_now ? "" : " ", lost->kind, has_name ? " (" : "", name,
            has_name ? ")" : "");
    if (lost->whole_to > 0)
        fprintf(stderr, "answers as it was at byte %s of the stream", CLI_COUNT(lost->whole_to));
    else
        fprintf(stderr, "does not answer");
    fprintf(stderr, ": %s; reef verify %s says what helps\n", lost->what, pool);
    free(pool);
}

static reef_status read_frozen(const reef_cli_call *cli,
                               reef_memory_reading *out,
                               reef_error *err) {
    const char *text = reef_cli_text(cli, "frozen");
    *out = text == NULL ? REEF_READ_ADAPTING : text[0] == '\0' ? REEF_READ_FROZEN : REEF_READ_ALONE;
    if (*out != REEF_READ_ALONE || strcmp(text, "alone") == 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID, "--frozen is '%.64s', but must be alone or nothing",
                     text);
}

reef_status reef_cli_model_open(reef_model **out,
                                const reef_cli_call *cli,
                                reef_store *store,
                                const char *as_of,
                                reef_error *err) {
    reef_model_options options = {.threads = cli->threads, .memory_bytes = cli->memory_bytes};
    reef_kind_list kinds = {0};
    reef_cli_pool pool = {.store = store};
    size_t count;
    reef_status status = read_frozen(cli, &options.reading, err);
    if (status == REEF_OK) status = reef_model_open(out, store, as_of, &options, err);
    if (status != REEF_OK) return status;
    const reef_lost_kind *lost = reef_model_lost_kinds(*out, &count);
    // Without the list they have no names, which is no reason to say nothing.
    if (count > 0) (void)!reef_cli_kinds_read(&pool, &kinds, NULL);
    for (size_t i = 0; i < count; i++)
        tell(cli, as_of == NULL ? "now" : as_of, reef_kind_list_name(&kinds, lost[i].kind),
             &lost[i]);
    reef_kind_list_release(&kinds);
    return REEF_OK;
}
