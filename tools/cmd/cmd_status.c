// reef status: what a pool holds; and, when reefd runs on it, what the daemon is doing.
#include "cli_format.h"
#include "cli_pool.h"
#include "cli_transport.h"
#include "commands.h"
#include "reef_pool_check.h"
#include "reef_pool_json.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define INPUTS_SHOWN 6

const reef_cli_manual reef_status_manual = {
    .about =
        "Asks the daemon when one runs on the pool; otherwise reads the last commit.\n"
        "\n"
        "In a pool with context memories losses are those with their help, and lines say of the\n"
        "open generation's how much it has learned and how full it is: cells are contexts, trees\n"
        "what followed those with three bytes and more. Of a running daemon also what the inputs\n"
        "of its mixer were worth, by their parts of the log odds, and in which share of the bytes\n"
        "each had something to say. What is read from the pool is of when the tables were stored\n"
        "last, and estimated from a part of them.",
    .options = NULL,
    .example = "reef status reef.pool",
};

// ---- the document -------------------------------------------------------------------------------

// Of the last batch. Null before any loss, after a restore that removed it, and if the timeline is
// damaged.
static json_t *last_loss_json(reef_txn *txn, const reef_cli_points *points) {
    const reef_point *last = points->count ? &points->points[points->count - 1] : NULL;
    reef_lineage lineage = {0};
    bool known = last != NULL && reef_lineage_read(&lineage, txn, NULL) == REEF_OK &&
                 reef_lineage_knows_losses(&lineage, last->stream_bytes - 1, UINT64_MAX);
    reef_lineage_release(&lineage);
    return known ? reef_cli_real((double)last->bits_per_byte) : json_null();
}

// Null where the record that counts them is damaged.
static void set_passed(json_t *object, const reef_config *config, reef_txn *txn) {
    reef_passed passed = {0};
    bool known = reef_passed_read(txn, &passed, NULL) == REEF_OK;
    if (!reef_learns_all(config))
        json_object_set_new(object, "not_learned_bytes",
                            reef_cli_known(known, passed.not_learned_bytes));
    json_object_set_new(object, "visited_bytes", reef_cli_known(known, passed.visited_bytes));
}

// Null where the records that say so are damaged.
static void set_kinds(json_t *object, reef_txn *txn) {
    reef_kind_list list = {0};
    const reef_kind_facts *current = NULL;
    bool known = reef_kind_list_read(txn, &list, NULL) == REEF_OK;
    for (size_t i = 0; known && i < list.count; i++)
        if (list.kinds[i].is_current) current = &list.kinds[i];
    json_object_set_new(object, "kind",
                        current != NULL ? json_integer(current->kind) : json_null());
    json_object_set_new(object, "kind_name", reef_cli_name(current != NULL ? current->name : ""));
    json_object_set_new(object, "kinds", reef_cli_known(known, list.count));
    reef_kind_list_release(&list);
}

typedef reef_status (*stats_read)(reef_txn *txn,
                                  uint32_t number,
                                  reef_memory_stats *out,
                                  reef_error *err);

// Of a generation or a kind; null in a pool without context memories, and where the record is
// damaged. Inputs are counted by a running trainer alone.
static json_t *memory_json(const reef_config *config,
                           reef_txn *txn,
                           stats_read read,
                           uint32_t number) {
    reef_memory_stats stats;
    bool known = config->memory > 0 && read(txn, number, &stats, NULL) == REEF_OK;
    if (!known) return json_null();
    stats.bytes_max = config->memory;
    json_t *object = reef_memory_stats_json(&stats);
    json_object_set_new(object, "inputs", json_null());
    return object;
}

// What earlier daemons recorded. Where the record is damaged nothing is known of it: `reef verify`
// reports the damage, and the status must be shown in any case.
static json_t *scrub_json(reef_txn *txn) {
    reef_scrub scrub = {0};
    if (reef_scrub_read(txn, &scrub, NULL) != REEF_OK) scrub = (reef_scrub){0};
    return reef_scrub_json(&scrub);
}

static json_t *pool_json(const reef_cli_call *cli,
                         const reef_cli_pool *pool,
                         const reef_cli_points *points,
                         reef_txn *txn) {
    uint64_t experts = 0, experts_open = 0;
    for (uint32_t g = 0; g < pool->generation_count; g++) {
        uint64_t count = reef_cli_generation_experts(pool, &pool->generations[g]);
        experts += count;
        if (!pool->generations[g].sealed) experts_open += count;
    }
    const reef_generation_record *open = &pool->generations[pool->generation_count - 1];
    // The name of the last loss carries the unit, so that no reader mistakes one for another.
    json_t *object = json_pack(
        "{s:o, s:s, s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:o}", "pool", reef_cli_path(cli->pool),
        "state", "idle", "step", (json_int_t)pool->commit.step, "stream_bytes",
        (json_int_t)pool->commit.stream_bytes, "generation", (json_int_t)open->generation,
        "opened_at", (json_int_t)open->opened_at, "last_bits_per_byte", last_loss_json(txn, points),
        "experts", (json_int_t)experts, "experts_open", (json_int_t)experts_open, "file_bytes",
        (json_int_t)pool->file_bytes, "last_commit", reef_commit_json(&pool->commit));
    set_passed(object, &pool->config, txn);
    set_kinds(object, txn);
    json_object_set_new(object, "context_memory",
                        memory_json(&pool->config, txn, reef_memory_stats_read, open->generation));
    const json_t *kind = json_object_get(object, "kind");
    json_object_set_new(object, "kind_memory",
                        json_is_integer(kind)
                            ? memory_json(&pool->config, txn, reef_kind_memory_stats_read,
                                          (uint32_t)json_integer_value(kind))
                            : json_null());
    json_object_set_new(object, "stream_unit", json_string(reef_cli_stream_unit(&pool->config)));
    json_object_set_new(object, "scrub", scrub_json(txn));
    return object;
}

// The present readers of the pool, reefd's own threads included; NULL if the lock file cannot be
// read.
static json_t *readers_json(const reef_cli_call *cli) {
    reef_store *store = NULL;
    reef_readers readers = {0};
    reef_status status = reef_store_open(&store, cli->pool, &(reef_store_options){0}, NULL);
    if (status == REEF_OK) status = reef_store_readers(store, &readers, NULL);
    reef_store_close(store);
    if (status != REEF_OK) return json_null();
    json_t *pid = reef_cli_known(readers.oldest_pid, readers.oldest_pid);
    return json_pack("{s:I, s:I, s:o}", "count", (json_int_t)readers.count, "commits_behind",
                     (json_int_t)readers.behind, "oldest_pid", pid);
}

static reef_status read_pool(const reef_cli_call *cli, json_t **result, reef_error *err) {
    reef_cli_pool pool;
    reef_cli_points points = {0};
    reef_txn *txn = NULL;
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    if (status == REEF_OK) status = reef_cli_points_read(&points, &pool, err);
    if (status == REEF_OK) status = reef_txn_begin(&txn, pool.store, REEF_TXN_READ, err);
    if (status == REEF_OK) *result = pool_json(cli, &pool, &points, txn);
    reef_txn_abort(txn);
    reef_cli_points_release(&points);
    reef_cli_pool_close(&pool);
    return status;
}

// ---- kind and ranks in words --------------------------------------------------------------------

char *reef_kind_words(const json_t *status) {
    const char *name = json_string_value(json_object_get(status, "kind_name"));
    uint64_t kinds = reef_cli_count_of(status, "kinds");
    if (!json_is_integer(json_object_get(status, "kind")) || (kinds < 2 && name == NULL))
        return NULL;
    return reef_cli_format("%" PRIu64 "%s%s, of %" PRIu64, reef_cli_count_of(status, "kind"),
                           name != NULL ? ", " : "", name != NULL ? name : "", kinds);
}

// The one that others waited for longest.
static char *behind_words(const json_t *list) {
    double longest = 0;
    size_t slowest = 0, r;
    const json_t *rank;
    json_array_foreach(list, r, rank) {
        if (reef_cli_real_of(rank, "lag_s") <= longest) continue;
        longest = reef_cli_real_of(rank, "lag_s");
        slowest = r;
    }
    if (longest == 0) return reef_cli_format("%s", "");
    return reef_cli_format("; rank %zu is the slowest, by %s", slowest, CLI_DURATION(longest));
}

char *reef_ranks_words(const json_t *status) {
    const json_t *ranks = json_object_get(status, "ranks"), *list = json_object_get(ranks, "ranks"),
                 *first = json_array_get(list, 0);
    if (!json_is_object(first)) return NULL;
    double waits = reef_cli_real_of(first, "packing_s") + reef_cli_real_of(first, "waiting_s");
    double all = waits + reef_cli_real_of(first, "computing_s") +
                 reef_cli_real_of(first, "telling_s") + reef_cli_real_of(first, "committing_s");
    char *behind = behind_words(list);
    char *line = reef_cli_format(
        "%zu, epoch %" JSON_INTEGER_FORMAT "; rank 0 sends %s/s, exchanges %.0f %% of the time%s",
        json_array_size(list), json_integer_value(json_object_get(ranks, "epoch")),
        CLI_BYTES((uint64_t)reef_cli_real_of(first, "sent_bytes_per_s")),
        all > 0 ? 100 * waits / all : 0.0, behind);
    free(behind);
    return line;
}

// "; waits for 1, 2"
static char *missing_words(const json_t *joins) {
    const json_t *rank;
    size_t i;
    char *words = reef_cli_format("%s", "");
    json_array_foreach(json_object_get(joins, "waits_for"), i, rank)
        reef_cli_append(&words, "%s%" JSON_INTEGER_FORMAT, i == 0 ? "; waits for rank " : ", ",
                        json_integer_value(rank));
    return words;
}

char *reef_joins_words(const json_t *status) {
    const json_t *joins = json_object_get(status, "joins");
    if (!json_is_object(joins)) return NULL;
    char *missing = missing_words(joins);
    char *line = reef_cli_format(
        "rank %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT ", %" JSON_INTEGER_FORMAT
        " done; %s of %s to the next; %s sent, %s received%s",
        json_integer_value(json_object_get(joins, "rank")),
        json_integer_value(json_object_get(joins, "ranks")),
        json_integer_value(json_object_get(joins, "count")),
        CLI_BYTES((uint64_t)reef_cli_real_of(joins, "since_bytes")),
        CLI_BYTES((uint64_t)reef_cli_real_of(joins, "every_bytes")),
        CLI_BYTES((uint64_t)reef_cli_real_of(joins, "sent_bytes")),
        CLI_BYTES((uint64_t)reef_cli_real_of(joins, "received_bytes")), missing);
    free(missing);
    return line;
}

// ---- for people ---------------------------------------------------------------------------------

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
    if (!json_is_integer(json_object_get(object, name))) return;
    printf("  %-14s%s%s%s\n", label, CLI_COUNT(reef_cli_count_of(object, name)), unit[0] ? " " : "",
           unit);
}

// A part of the stream: bytes of text, or rows of a layer by itself, which no daemon trains.
static void print_part(const json_t *status,
                       uint64_t bytes,
                       const char *label,
                       const char *detail) {
    const char *unit = json_string_value(json_object_get(status, "stream_unit"));
    printf("  %-14s%s %ss%s\n", label, CLI_COUNT(bytes), unit != NULL ? unit : "byte", detail);
}

// How far the stream has come: what was dealt with is trained or, in some pools, recognised.
static void print_stream(const json_t *status) {
    uint64_t recognised = reef_cli_count_of(status, "not_learned_bytes"),
             visited = reef_cli_count_of(status, "visited_bytes");
    bool known = !json_is_null(json_object_get(status, "not_learned_bytes"));
    print_part(status, reef_cli_count_of(status, "stream_bytes") - recognised, "trained",
               known ? "" : " or recognised");
    if (json_is_integer(json_object_get(status, "carried_bytes")))
        print_part(status, reef_cli_count_of(status, "carried_bytes"), "waiting", "");
    if (visited > 0)
        print_part(status, visited, "returned", " of that, learned by kinds that came back");
    if (recognised > 0)
        print_part(status, recognised, "recognised",
                   " of older domains or at marker lines, not trained");
}

static void print_commit(const json_t *commit) {
    if (!json_is_object(commit)) return;
    printf("  %-14s%" PRIu64 " at step %" PRIu64 ", %s, root %.12s\n", "last commit",
           reef_cli_count_of(commit, "number"), reef_cli_count_of(commit, "step"),
           CLI_TIME(reef_cli_count_of(commit, "unix_ms")), reef_cli_text_of(commit, "root"));
}

static void print_daemon(const json_t *status) {
    // Members may be missing: the daemon may be of another version.
    const char *state = json_string_value(json_object_get(status, "state"));
    printf("reefd %" PRIu64 " runs on this pool: %s, up %s\n", reef_cli_count_of(status, "pid"),
           state != NULL ? state : "in an unknown state",
           CLI_DURATION(reef_cli_real_of(status, "uptime_s")));
    // Not known in the first seconds, and never for an endless stream.
    const json_t *rate = json_object_get(status, "bytes_per_s"),
                 *eta = json_object_get(status, "eta_s");
    if (json_is_number(rate)) {
        printf("  speed         %s/s", CLI_BYTES((uint64_t)json_number_value(rate)));
        if (json_is_number(eta)) printf(", %s left", CLI_DURATION(json_number_value(eta)));
        printf("\n");
    }
    size_t index;
    const json_t *source;
    json_array_foreach(json_object_get(status, "sources"), index, source) {
        // Names come from the configuration and may hold anything: made printable.
        const char *name = reef_cli_text_of(source, "name");
        char *shown = reef_cli_printable((const uint8_t *)name, strlen(name), false);
        printf("  %-14s%s: %s", index ? "" : "sources", shown,
               CLI_BYTES(reef_cli_count_of(source, "cursor")));
        free(shown);
        // Only a file has a size; a pipe or a socket is endless.
        if (json_is_integer(json_object_get(source, "bytes")))
            printf(" of %s", CLI_BYTES(reef_cli_count_of(source, "bytes")));
        printf("%s\n", json_is_true(json_object_get(source, "ended")) ? ", ended" : "");
    }
}

static double memory_share(const json_t *memory, const char *used, const char *all) {
    uint64_t count = reef_cli_count_of(memory, all);
    return count > 0 ? 100 * (double)reef_cli_count_of(memory, used) / (double)count : 0.0;
}

// Those with the largest shares.
static void print_inputs(const json_t *inputs) {
    double shares[REEF_MEMORY_INPUTS_MAX] = {0};
    size_t order[REEF_MEMORY_INPUTS_MAX], count = reef_memory_input_count(), i;
    const json_t *one;
    // A daemon of another version may have other inputs.
    if (json_array_size(inputs) != count) return;
    json_array_foreach(inputs, i, one) shares[i] = reef_cli_real_of(one, "share");
    reef_cli_input_order(shares, order);
    if (shares[order[0]] <= 0) return; // nothing was counted yet
    printf("  inputs        ");
    for (i = 0; i < INPUTS_SHOWN; i++) {
        const json_t *input = json_array_get(inputs, order[i]);
        printf("%s%s %.1f %% (%.0f %% of bytes)", i > 0 && i != INPUTS_SHOWN / 2 ? ", " : "",
               json_string_value(json_object_get(input, "name")), 100 * shares[order[i]],
               100 * reef_cli_real_of(input, "hits"));
        if (i == INPUTS_SHOWN / 2 - 1) printf(",\n  %-14s", "");
    }
    printf("\n");
}

// Of the kind that is being learned.
static void print_memory(const json_t *status) {
    const json_t *memory = json_object_get(status, "kind_memory");
    if (!json_is_object(memory)) return;
    printf("  memory        %s learned, %s of %s",
           CLI_BYTES(reef_cli_count_of(memory, "learned_bytes")),
           CLI_BYTES(reef_cli_count_of(memory, "bytes")),
           CLI_BYTES(reef_cli_count_of(memory, "bytes_max")));
    printf("; %.1f %% of cells and %.1f %% of trees in use\n",
           memory_share(memory, "cells_used", "cells"),
           memory_share(memory, "trees_used", "trees"));
    print_inputs(json_object_get(memory, "inputs"));
}

// A line in words (taken over), where there are any.
static void print_words(const char *label, char *words, const char *more) {
    if (words != NULL) printf("  %-14s%s%s\n", label, words, more);
    free(words);
}

// When sealed records were last read as a whole, and how far the current pass has come.
static void print_scrub(const json_t *scrub) {
    const char *damage = json_string_value(json_object_get(scrub, "damage"));
    // Damage stands first and in capitals: it is why someone looks here.
    if (damage != NULL) printf("  DAMAGED       %s\n", damage);
    if (json_is_integer(json_object_get(scrub, "last_scrub"))) {
        uint64_t damaged = reef_cli_count_of(scrub, "last_damaged");
        printf("  last scrub    %s, %s sealed records, %s: %s\n",
               CLI_TIME(reef_cli_count_of(scrub, "last_scrub")),
               CLI_COUNT(reef_cli_count_of(scrub, "last_records")),
               CLI_BYTES(reef_cli_count_of(scrub, "last_bytes")),
               damaged ? "damage was found, see reef verify" : "all sound");
    }
    if (reef_cli_count_of(scrub, "records") > 0)
        printf("  scrub so far  %s records, %s\n", CLI_COUNT(reef_cli_count_of(scrub, "records")),
               CLI_BYTES(reef_cli_count_of(scrub, "bytes")));
}

// Worth a line only if a reader keeps pages from reuse.
static void print_readers(const json_t *readers) {
    if (reef_cli_count_of(readers, "commits_behind") == 0) return;
    printf("  %-14s%s; process %" PRIu64
           " reads what was %s commits ago, and no page given up since is used again\n",
           "readers", CLI_COUNT(reef_cli_count_of(readers, "count")),
           reef_cli_count_of(readers, "oldest_pid"),
           CLI_COUNT(reef_cli_count_of(readers, "commits_behind")));
}

static void print_status(const json_t *status, bool daemon) {
    if (daemon)
        print_daemon(status);
    else
        printf("no daemon runs on this pool; as of its last commit:\n");
    // Lines whose member is missing are left out: one order serves both documents.
    print_count(status, "step", "step", "");
    print_stream(status);
    print_count(status, "generation", "generation", "is open");
    print_words("kind", reef_kind_words(status), ", is being learned");
    if (reef_cli_count_of(status, "experts") > 0) {
        print_count(status, "experts", "experts", "in all layers and generations");
        print_count(status, "experts_open", "", "of them in the open generation");
    } else {
        printf("  %-13s none: this pool has no net\n", "experts");
    }
    // A daemon knows recent batches, an idle pool only the last one.
    print_number(status, "bits_per_byte", "loss", "bits per byte (median of recent batches)");
    print_number(status, "last_bits_per_byte", "last batch", "bits per byte");
    print_memory(status);
    if (json_is_integer(json_object_get(status, "file_bytes")))
        printf("  on disk       %s\n", CLI_BYTES(reef_cli_count_of(status, "file_bytes")));
    // The age of the last commit is what would be lost by a crash.
    print_commit(json_object_get(status, "last_commit"));
    print_words("ranks", reef_ranks_words(status), "");
    print_words("joins", reef_joins_words(status), "");
    print_scrub(json_object_get(status, "scrub"));
    // Old readers keep pages from reuse, so they are shown last as a warning.
    print_readers(json_object_get(status, "readers"));
}

reef_status reef_status_read(const reef_cli_call *cli,
                             json_t **result,
                             bool *daemon,
                             reef_error *err) {
    *result = NULL;
    // A daemon is asked first: it knows what is not committed yet.
    reef_status status = reef_cli_daemon_request(cli, "status", result, err);
    *daemon = status == REEF_OK;
    // No daemon is no error: the pool itself is read. Any other failure is one.
    if (status == REEF_ERR_NOT_FOUND) status = read_pool(cli, result, err);
    if (status != REEF_OK) return status;
    if (*result == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "the status could not be built");
    json_object_set_new(*result, "readers", readers_json(cli));
    json_object_set_new(*result, "daemon", json_boolean(*daemon));
    return REEF_OK;
}

reef_status reef_cmd_status(reef_cli_call *cli, reef_error *err) {
    json_t *result = NULL;
    bool daemon;
    reef_status status = reef_status_read(cli, &result, &daemon, err);
    if (status != REEF_OK) return status;
    if (cli->json) return reef_cli_reply(cli, result, err);
    print_status(result, daemon);
    json_decref(result);
    return REEF_OK;
}
