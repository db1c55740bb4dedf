// reef status: what a pool holds; and, when reefd runs on it, what the daemon is doing.
#include "commands.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const cli_manual status_manual = {
    .about = "Asks the daemon when one runs on the pool; otherwise reads the last commit.",
    .options = NULL,
    .example = "reef status reef.pool",
};

static json_t *pool_json(const cli_call *cli, const cli_pool *pool, const cli_points *points) {
    uint64_t experts = 0, experts_open = 0;
    for (uint32_t g = 0; g < pool->generation_count; g++) {
        uint64_t count = cli_generation_experts(pool, &pool->generations[g]);
        experts += count;
        if (!pool->generations[g].sealed) experts_open += count;
    }
    const reef_generation *open = &pool->generations[pool->generation_count - 1];
    json_t *last = points->count ? cli_real((double)points->points[points->count - 1].bits_per_byte)
                                 : json_null();
    bool vectors = reef_config_is_vector(&pool->config);
    json_t *object =
        json_pack("{s:o, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:o}", "pool",
                  cli_path(cli->pool), "state", "idle", "strategy", pool->config.strategy, "task",
                  (json_int_t)pool->tasks.task, "step", (json_int_t)pool->commit.step,
                  "stream_bytes", (json_int_t)pool->commit.stream_bytes, "generation",
                  (json_int_t)open->generation, "opened_at", (json_int_t)open->opened_at,
                  vectors ? "last_error_share" : "last_bits_per_byte", last, "experts",
                  (json_int_t)experts, "experts_open", (json_int_t)experts_open, "file_bytes",
                  (json_int_t)pool->file_bytes, "last_commit", cli_commit_json(&pool->commit));
    size_t record = vectors ? reef_vector_record_bytes(&pool->config) : 0;
    json_object_set_new(object, "record_bytes",
                        vectors ? json_integer((json_int_t)record) : json_null());
    return object;
}

static reef_status read_pool(const cli_call *cli, json_t **result, reef_error *err) {
    cli_pool pool;
    cli_points points = {0};
    reef_status status = cli_pool_open(&pool, cli, err);
    if (status == REEF_OK) status = cli_points_read(&points, &pool, err);
    if (status == REEF_OK) *result = pool_json(cli, &pool, &points);
    cli_points_release(&points);
    cli_pool_close(&pool);
    return status;
}

static uint64_t integer(const json_t *object, const char *name) {
    return (uint64_t)json_integer_value(json_object_get(object, name));
}

static void print_number(const json_t *object,
                         const char *name,
                         const char *label,
                         const char *unit) {
    const json_t *value = json_object_get(object, name);
    if (!json_is_number(value)) return; // the other side does not know
    printf("  %-14s%.3f %s\n", label, json_number_value(value), unit);
}

static void print_count(const json_t *object,
                        const char *name,
                        const char *label,
                        const char *unit) {
    char words[CLI_WORD_BYTES];
    if (!json_is_integer(json_object_get(object, name))) return;
    printf("  %-14s%s%s%s\n", label, cli_count(integer(object, name), words), unit[0] ? " " : "",
           unit);
}

// A part of the stream: bytes of text, or examples.
static void print_stream(const json_t *status,
                         const char *name,
                         const char *label,
                         const char *detail) {
    char words[CLI_WORD_BYTES];
    if (!json_is_integer(json_object_get(status, name))) return;
    uint64_t record = integer(status, "record_bytes"), bytes = integer(status, name);
    printf("  %-14s%s %s%s\n", label, cli_count(record ? bytes / record : bytes, words),
           record ? "examples" : "bytes", detail);
}

static void print_share(const json_t *object, const char *name, const char *label) {
    const json_t *value = json_object_get(object, name);
    if (json_is_number(value))
        printf("  %-14s%.1f %% told wrong before training on them\n", label,
               100 * json_number_value(value));
}

static void print_commit(const json_t *commit) {
    if (!json_is_object(commit)) return;
    char when[CLI_WORD_BYTES];
    const char *root = json_string_value(json_object_get(commit, "root"));
    printf("  %-14s%" PRIu64 " at step %" PRIu64 ", %s, root %.12s\n", "last commit",
           integer(commit, "number"), integer(commit, "step"),
           cli_time(integer(commit, "unix_ms"), when), root ? root : "");
}

static void print_daemon(const json_t *status) {
    char words[CLI_WORD_BYTES];
    const char *state = json_string_value(json_object_get(status, "state"));
    printf("reefd %" PRIu64 " runs on this pool: %s, up %s\n", integer(status, "pid"),
           state ? state : "in an unknown state",
           cli_duration(json_number_value(json_object_get(status, "uptime_s")), words));
    const json_t *rate = json_object_get(status, "bytes_per_s"),
                 *eta = json_object_get(status, "eta_s");
    if (json_is_number(rate)) {
        printf("  %-14s%s/s", "speed", cli_bytes((uint64_t)json_number_value(rate), words));
        if (json_is_number(eta)) printf(", %s left", cli_duration(json_number_value(eta), words));
        printf("\n");
    }
    size_t index;
    const json_t *source;
    json_array_foreach(json_object_get(status, "sources"), index, source) {
        char cursor[CLI_WORD_BYTES], size[CLI_WORD_BYTES];
        const char *name = json_string_value(json_object_get(source, "name"));
        printf("  %-14s%s: %s", index ? "" : "sources", name ? name : "",
               cli_bytes(integer(source, "cursor"), cursor));
        if (json_is_integer(json_object_get(source, "bytes")))
            printf(" of %s", cli_bytes(integer(source, "bytes"), size));
        printf("%s\n", json_is_true(json_object_get(source, "ended")) ? ", ended" : "");
    }
}

static void print_strategy(const json_t *status) {
    const char *strategy = json_string_value(json_object_get(status, "strategy"));
    if (strategy == NULL || strcmp(strategy, "generations") == 0) return;
    printf("  %-14s%s, which keeps one generation; %" PRIu64 " boundaries so far\n", "strategy",
           strategy, integer(status, "task"));
}

static void print_status(const json_t *status, bool daemon) {
    if (daemon)
        print_daemon(status);
    else
        printf("no daemon runs on this pool; as of its last commit:\n");
    print_count(status, "step", "step", "");
    print_stream(status, "stream_bytes", "trained", "");
    print_stream(status, "carried_bytes", "waiting", "");
    print_stream(status, "skipped_bytes", "recognised", " of older domains, not trained");
    print_count(status, "generation", "generation", "is open");
    print_strategy(status);
    print_count(status, "experts", "experts", "in all layers and generations");
    print_count(status, "experts_open", "", "of them in the open generation");
    print_number(status, "bits_per_byte", "loss", "bits per byte (median of recent batches)");
    print_number(status, "last_bits_per_byte", "last batch", "bits per byte");
    print_share(status, "error_share", "recent batches");
    print_share(status, "last_error_share", "last batch");
    if (json_is_integer(json_object_get(status, "file_bytes"))) {
        char words[CLI_WORD_BYTES];
        printf("  %-14s%s\n", "on disk", cli_bytes(integer(status, "file_bytes"), words));
    }
    print_commit(json_object_get(status, "last_commit"));
}

reef_status cmd_status(cli_call *cli, reef_error *err) {
    json_t *result = NULL;
    reef_status status = cli_daemon_status(cli, &result, err);
    bool daemon = status == REEF_OK;
    if (status == REEF_NOT_FOUND) status = read_pool(cli, &result, err);
    if (status != REEF_OK) return status;
    if (!result) return reef_fail(err, REEF_NO_MEMORY, "the status could not be built");
    if (cli->json) {
        json_object_set_new(result, "daemon", json_boolean(daemon));
        return cli_answer(cli, result, err);
    }
    print_status(result, daemon);
    json_decref(result);
    return REEF_OK;
}
