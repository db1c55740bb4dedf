// reef shards: the rows and memories of a pool, divided over ranks, or brought together again.
#include "cli_format.h"
#include "commands.h"
#include "reef_pool_json.h"
#include "reef_shard.h"
#include "reef_system.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const reef_cli_option OPTIONS[] = {
    {"to", "RANKS", "how many ranks the pool is to be divided over; 1: a whole pool"},
    {0},
};

const reef_cli_manual reef_shards_manual = {
    .about =
        "Divides the rows of experts of a pool, their moments and the tables of context memories\n"
        "over the ranks of `mpirun -n RANKS reefd --pool NEW`: NEW/rank-K gets the blocks that\n"
        "rank K owns, and all else. FROM is a pool, a directory that holds rank-0 and so on, or\n"
        "the directory of each shard. With --to 1 NEW becomes a whole pool again, with the same\n"
        "root. FROM is not changed, and nobody may train it meanwhile. NEW appears only when all\n"
        "of it is on the disk and has the root of FROM.\n"
        "\n"
        "What only reads takes the directory with all shards for a pool, also while it is\n"
        "trained: eval, score, generate, compress, expand, generations, experts, usage, timeline,\n"
        "plot, kind list, snapshot list, export model, verify, status, top; import with\n"
        "--dry-run. With a daemon, stop, commit, seal and so on reach that of rank 0. Without\n"
        "one, what changes or copies a pool is refused: it needs the whole pool.",
    .options = OPTIONS,
    .example = "reef shards reef.pool many --to 2\n"
               "reef eval many notes.txt\n"
               "reef shards many reef-again.pool --to 1",
};

// ---- where from ---------------------------------------------------------------------------------

typedef struct source {
    reef_store *store;
    reef_shard shard; // zero in an ordinary pool
} source;

typedef struct sources {
    source *all;         // (REEF_RANKS_MAX)
    reef_store **stores; // of `all`, in the order of their ranks
    size_t count;
} sources;

static bool is_same_directory(const char *one, const char *other) {
    struct stat a, b;
    return stat(one, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

static reef_status add_source(sources *s, const char *path, reef_error *err) {
    reef_txn *txn = NULL;
    if (s->count == REEF_RANKS_MAX)
        return reef_fail(err, REEF_ERR_INVALID, "these are more than %d shards", REEF_RANKS_MAX);
    for (size_t i = 0; i < s->count; i++)
        if (is_same_directory(reef_store_path(s->all[i].store), path))
            return reef_fail(err, REEF_ERR_INVALID, "%.200s is given twice", path);
    source *one = &s->all[s->count];
    *one = (source){0};
    // For writing: a daemon would leave the shards at different commits.
    reef_status status =
        reef_store_open(&one->store, path, &(reef_store_options){.write = true}, err);
    if (status != REEF_OK) return status;
    s->count++;
    status = reef_txn_begin(&txn, one->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_shard_read(txn, &one->shard, err);
    reef_txn_abort(txn);
    return status == REEF_ERR_NOT_FOUND ? REEF_OK : status;
}

// A pool, or all shards that a directory holds.
static reef_status add_path(sources *s, const char *path, reef_error *err) {
    if (reef_cli_pool_bytes(path) > 0) return add_source(s, path, err);
    reef_status status = REEF_OK;
    size_t rank = 0;
    for (; status == REEF_OK; rank++) {
        char *shard = reef_cli_format("%s/rank-%zu", path, rank);
        bool there = reef_cli_pool_bytes(shard) > 0;
        if (there) status = add_source(s, shard, err);
        free(shard);
        if (!there) break;
    }
    if (status != REEF_OK || rank > 0) return status;
    return reef_fail(err, REEF_ERR_NOT_FOUND, "there is no pool at %.160s, and no rank-0 in it",
                     path);
}

static int by_rank(const void *a, const void *b) {
    const source *x = a, *y = b;
    return (x->shard.rank > y->shard.rank) - (x->shard.rank < y->shard.rank);
}

static reef_status open_sources(sources *s, const reef_cli_call *cli, reef_error *err) {
    reef_status status = REEF_OK;
    s->all = reef_cli_alloc(REEF_RANKS_MAX, sizeof(*s->all));
    for (size_t i = 0; status == REEF_OK && i + 1 < cli->operand_count; i++)
        status = add_path(s, cli->operands[i], err);
    if (status != REEF_OK) return status;
    qsort(s->all, s->count, sizeof(*s->all), by_rank);
    s->stores = reef_cli_alloc(s->count, sizeof(reef_store *));
    for (size_t i = 0; i < s->count; i++) s->stores[i] = s->all[i].store;
    return REEF_OK;
}

static void close_sources(sources *s) {
    for (size_t i = 0; i < s->count; i++) reef_store_close(s->all[i].store);
    free(s->all);
    free(s->stores);
}

// ---- the report ---------------------------------------------------------------------------------

typedef struct report {
    uint32_t count;
    reef_shard_making *made; // (count)
    reef_commit commit;
    double seconds;
} report;

static void print_report(const reef_cli_call *cli, const report *r) {
    printf("%s %s\n", cli->dry_run ? "would make" : "made      ",
           cli->operands[cli->operand_count - 1]);
    printf("root       %s\n", CLI_HASH(r->commit.root));
    for (uint32_t rank = 0; rank < r->count; rank++) {
        char *name = r->count == 1 ? reef_cli_format("pool") : reef_cli_format("rank-%u", rank);
        printf("%-10s %s, from elsewhere %s\n", name, CLI_BYTES(r->made[rank].bytes),
               CLI_BYTES(r->made[rank].moved_bytes));
        free(name);
    }
    if (!cli->dry_run) printf("took       %s\n", CLI_DURATION(r->seconds));
}

static json_t *report_json(const reef_cli_call *cli, const report *r) {
    json_t *ranks = json_array();
    for (uint32_t rank = 0; rank < r->count; rank++)
        (void)json_array_append_new(ranks,
                                    json_pack("{s:I, s:I, s:I, s:I}", "rank", (json_int_t)rank,
                                              "records", (json_int_t)r->made[rank].records, "bytes",
                                              (json_int_t)r->made[rank].bytes, "moved_bytes",
                                              (json_int_t)r->made[rank].moved_bytes));
    return json_pack("{s:b, s:o, s:o, s:o, s:o}", "done", !cli->dry_run, "pool",
                     reef_cli_path(cli->operands[cli->operand_count - 1]), "commit",
                     reef_commit_json(&r->commit), "ranks", ranks, "seconds",
                     reef_cli_real(cli->dry_run ? (double)NAN : r->seconds));
}

// ---- the command --------------------------------------------------------------------------------

static reef_status parse_count(const reef_cli_call *cli, uint32_t *out, reef_error *err) {
    uint64_t ranks = 0;
    if (reef_cli_text(cli, "to") == NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "say over how many ranks: reef shards FROM... NEW --to RANKS");
    reef_status status = reef_cli_integer(cli, "to", 1, REEF_RANKS_MAX, &ranks, err);
    *out = (uint32_t)ranks;
    return status;
}

// What cannot be trained so is said before anything is made.
static reef_status check_divides(reef_store *store, uint32_t count, reef_error *err) {
    reef_txn *txn = NULL;
    reef_config config;
    reef_error reason;
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_config_read(txn, &config, err);
    reef_txn_abort(txn);
    if (status != REEF_OK) return status;
    status = reef_config_check_divides(&config, count, &reason);
    if (status == REEF_OK) return REEF_OK;
    return reef_fail(err, status, "cannot divide pool %.120s: %s", reef_store_path(store),
                     reason.message);
}

reef_status reef_cmd_shards(reef_cli_call *cli, reef_error *err) {
    sources s = {0};
    report r = {0};
    double started = reef_seconds();
    reef_status status = parse_count(cli, &r.count, err);
    if (status != REEF_OK) return status;
    r.made = reef_cli_alloc(r.count, sizeof(*r.made));
    status = open_sources(&s, cli, err);
    if (status == REEF_OK) status = reef_store_read_commit(s.stores[0], &r.commit, err);
    if (status == REEF_OK) status = check_divides(s.stores[0], r.count, err);
    if (status == REEF_OK)
        status = reef_shards_make(s.stores, s.count, r.count, cli->operands[cli->operand_count - 1],
                                  cli->dry_run, r.made, err);
    r.seconds = reef_seconds() - started;
    if (status == REEF_OK && cli->json)
        status = reef_cli_reply(cli, report_json(cli, &r), err);
    else if (status == REEF_OK)
        print_report(cli, &r);
    close_sources(&s);
    free(r.made);
    return status;
}
