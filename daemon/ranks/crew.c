// See crew.h. What the ranks compare is crew_meet.c.
#include "ranks_internal.h"
#include "reef_system.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef REEF_MPI
#include "reef_mpi.h"
#endif

// What Open MPI's mpirun gives every process that it starts.
#define COUNT_VARIABLE "OMPI_COMM_WORLD_SIZE"

#define NEVER_SECONDS 1e9

static bool is_started_by_mpirun(void) {
    return getenv(COUNT_VARIABLE) != NULL;
}

reef_status reef_crew_check_alone(const char *pool, reef_error *err) {
    char path[PATH_BYTES_MAX];
    struct stat unused;
    snprintf(path, sizeof(path), "%s/data.mdb", pool);
    if (stat(path, &unused) == 0) return REEF_OK;
    size_t count = 0;
    for (; count < REEF_RANKS_MAX; count++) {
        snprintf(path, sizeof(path), "%s/rank-%zu/data.mdb", pool, count);
        if (stat(path, &unused) != 0) break;
    }
    if (count == 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "%.160s holds shards, rank-0 to rank-%zu: start mpirun -n %zu reefd --pool "
                     "%.160s",
                     pool, count - 1, count, pool);
}

static reef_status check_alone_options(const reef_options *options, reef_error *err) {
    if (options->join_every == 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "join-every is for several ranks: start mpirun -n R reefd --pool DIR, with "
                     "a pool in DIR/rank-0, DIR/rank-1 ..");
}

#ifdef REEF_MPI

static void on_end(void *context, const char *why) {
    reef_crew *crew = context;
    reef_report_error(crew->report, REEF_ERR_IO, why);
}

reef_status reef_crew_begin(reef_crew **out,
                            const reef_options *options,
                            reef_report *report,
                            reef_error *err) {
    *out = NULL;
    if (!is_started_by_mpirun()) return check_alone_options(options, err);
    reef_crew *crew = calloc(1, sizeof(*crew));
    if (crew == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the ranks");
    reef_ranks_link link;
    crew->report = report;
    crew->join_every = options->join_every;
    crew->deadline_seconds = options->rank_deadline_seconds;
    if (crew->deadline_seconds == 0) crew->deadline_seconds = NEVER_SECONDS;
    reef_status status = reef_mpi_begin(&crew->mpi, crew->deadline_seconds, on_end, crew, err);
    if (status == REEF_OK) {
        reef_mpi_link(crew->mpi, &link);
        status = reef_ranks_new(&crew->ranks, &link, err);
    }
    if (status != REEF_OK) {
        reef_crew_end(crew);
        return status;
    }
    (void)pthread_mutex_init(&crew->lock, NULL);
    snprintf(crew->pool, sizeof(crew->pool), "%s/rank-%zu", options->pool,
             reef_ranks_rank(crew->ranks));
    *out = crew;
    return REEF_OK;
}

void reef_crew_end(reef_crew *crew) {
    if (crew == NULL) return;
    // Ranks that learn apart have agreed on the end.
    if (crew->met && !crew->ended && !crew->join_every && !reef_crew_follows(crew))
        reef_crew_tell(crew, (reef_crew_order){.kind = REEF_CREW_END}, NULL, 0);
    reef_ranks_free(crew->ranks);
    reef_mpi_end(crew->mpi);
    free(crew->figures);
    free(crew->shown);
    free(crew->payload);
    free(crew);
}

#else

reef_status reef_crew_begin(reef_crew **out,
                            const reef_options *options,
                            reef_report *report,
                            reef_error *err) {
    (void)report;
    *out = NULL;
    if (!is_started_by_mpirun()) return check_alone_options(options, err);
    return reef_fail(err, REEF_ERR_INVALID,
                     "this reefd was built without MPI: start it without mpirun, or build it with "
                     "REEF_MPI=ON");
}

void reef_crew_end(reef_crew *crew) {
    free(crew); // there is none
}

#endif

const char *reef_crew_pool(const reef_crew *crew) {
    return crew == NULL ? NULL : crew->pool;
}

bool reef_crew_follows(const reef_crew *crew) {
    return crew != NULL && crew->join_every == 0 && reef_ranks_rank(crew->ranks) > 0;
}

bool reef_crew_is_apart(const reef_crew *crew) {
    return crew != NULL && crew->join_every > 0;
}

size_t reef_crew_rank(const reef_crew *crew) {
    return crew == NULL ? 0 : reef_ranks_rank(crew->ranks);
}

reef_ranks *reef_crew_ranks(const reef_crew *crew) {
    return crew == NULL ? NULL : crew->ranks;
}

double reef_crew_patience(const reef_crew *crew) {
    return crew->deadline_seconds / 4;
}

void reef_crew_fail(reef_crew *crew, const reef_error *err) {
    char why[WHY_BYTES_MAX];
    snprintf(why, sizeof(why), "rank %zu: %s", reef_ranks_rank(crew->ranks), err->message);
    reef_ranks_end(crew->ranks, why);
}

// ---- orders -------------------------------------------------------------------------------------

void reef_crew_tell(reef_crew *crew, reef_crew_order order, const void *payload, size_t bytes) {
    if (crew == NULL || reef_ranks_count(crew->ranks) == 1) return;
    order.payload_bytes = bytes;
    reef_ranks_tell(crew->ranks, &order, sizeof(order));
    // Rank 0 only reads it.
    reef_ranks_tell(crew->ranks, (void *)(uintptr_t)payload, bytes);
    crew->ended = order.kind == REEF_CREW_END;
}

static void hear(reef_crew *crew, reef_crew_order *order) {
    static const reef_error no_memory = {REEF_ERR_NO_MEMORY, "no memory for what rank 0 says"};
    reef_ranks_tell(crew->ranks, order, sizeof(*order));
    if (order->payload_bytes > crew->payload_capacity) {
        free(crew->payload);
        crew->payload = malloc(order->payload_bytes);
        crew->payload_capacity = order->payload_bytes;
        if (crew->payload == NULL) reef_crew_fail(crew, &no_memory);
    }
    reef_ranks_tell(crew->ranks, crew->payload, order->payload_bytes);
}

// ---- figures ------------------------------------------------------------------------------------
//
// What each rank costs and waits for. Every rank counts for itself; at each commit all tell each
// other, so rank 0 has figures of one moment for people.

static double exchanging_seconds(const reef_crew *crew) {
    reef_ranks_traffic parts[REEF_RANKS_PARTS];
    double seconds = 0;
    reef_ranks_traffic_read(crew->ranks, parts);
    for (size_t i = 0; i < REEF_RANKS_PARTS; i++)
        seconds += parts[i].packing_seconds + parts[i].waiting_seconds;
    return seconds;
}

// ---- one rank's own -----------------------------------------------------------------------------

static uint64_t memory_peak_bytes(void) {
    char line[128];
    unsigned long kilobytes = 0;
    FILE *file = fopen("/proc/self/status", "r");
    if (file == NULL) return 0;
    while (fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "VmHWM: %lu kB", &kilobytes) == 1) break;
    fclose(file);
    return (uint64_t)kilobytes * 1024;
}

// Bytes that travelled for steps since the last time, by the time that passed.
static double sent_rate(reef_crew *crew, uint64_t sent_bytes) {
    double now = reef_seconds(), passed = now - crew->figured_at;
    double rate = passed > 0 ? (double)(sent_bytes - crew->figured_sent_bytes) / passed : 0;
    crew->figured_at = now;
    crew->figured_sent_bytes = sent_bytes;
    return rate;
}

static reef_crew_figures own_figures(reef_crew *crew, const reef_trainer *trainer) {
    reef_ranks_traffic parts[REEF_RANKS_PARTS];
    reef_trainer_status status;
    reef_trainer_status_read(trainer, &status);
    reef_ranks_traffic_read(crew->ranks, parts);
    const reef_ranks_traffic *step = &parts[REEF_RANKS_STEP], *tell = &parts[REEF_RANKS_TELL];
    reef_crew_figures figures = {
        .epoch = reef_trainer_epoch(trainer),
        .steps = status.step - crew->first_step,
        .sent_bytes = step->sent_bytes,
        .received_bytes = step->received_bytes,
        .exchanges = step->exchanges,
        .sent_bytes_per_s = sent_rate(crew, step->sent_bytes),
        .computing_seconds = crew->computing_seconds,
        .packing_seconds = step->packing_seconds,
        .waiting_seconds = step->waiting_seconds,
        .telling_seconds = tell->waiting_seconds,
        .committing_seconds = status.seconds_commit,
        .cpu_seconds = crew->cpu_seconds,
        .memory_peak_bytes = memory_peak_bytes(),
    };
    if (gethostname(figures.host, sizeof(figures.host) - 1) != 0) figures.host[0] = '\0';
    return figures;
}

// ---- all of them --------------------------------------------------------------------------------

// Whoever waited least was waited for: by so much it is behind the one that waited most.
static void set_lags(reef_crew_figures *figures, size_t count) {
    double longest = 0;
    for (size_t r = 0; r < count; r++)
        if (figures[r].waiting_seconds > longest) longest = figures[r].waiting_seconds;
    for (size_t r = 0; r < count; r++)
        figures[r].lag_seconds = longest - figures[r].waiting_seconds;
}

static void gather_figures(reef_crew *crew, const reef_trainer *trainer) {
    if (crew == NULL) return;
    size_t count = reef_ranks_count(crew->ranks);
    crew->figures[reef_ranks_rank(crew->ranks)] = own_figures(crew, trainer);
    const reef_ranks_array each = {crew->figures, sizeof(*crew->figures), sizeof(*crew->figures)};
    reef_ranks_set_part(crew->ranks, REEF_RANKS_COMMIT);
    reef_ranks_gather(crew->ranks, count, 1, &each);
    reef_ranks_set_part(crew->ranks, REEF_RANKS_STEP);
    set_lags(crew->figures, count);
    pthread_mutex_lock(&crew->lock);
    memcpy(crew->shown, crew->figures, count * sizeof(*crew->shown));
    pthread_mutex_unlock(&crew->lock);
}

void reef_crew_begin_figures(reef_crew *crew, const reef_trainer *trainer) {
    reef_trainer_status status;
    if (crew == NULL) return;
    reef_trainer_status_read(trainer, &status);
    crew->first_step = status.step;
    crew->figured_at = reef_seconds();
    crew->figures = calloc(reef_ranks_count(crew->ranks), sizeof(*crew->figures));
    crew->shown = calloc(reef_ranks_count(crew->ranks), sizeof(*crew->shown));
    if (crew->figures == NULL || crew->shown == NULL)
        reef_ranks_end(crew->ranks, "no memory for figures of the ranks");
    gather_figures(crew, trainer);
}

static json_t *one_json(size_t rank, const reef_crew_figures *of) {
    return json_pack(
        "{s:I, s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:I}", "rank",
        (json_int_t)rank, "host", of->host, "sent_bytes", (json_int_t)of->sent_bytes,
        "received_bytes", (json_int_t)of->received_bytes, "exchanges", (json_int_t)of->exchanges,
        "sent_bytes_per_s", of->sent_bytes_per_s, "computing_s", of->computing_seconds, "packing_s",
        of->packing_seconds, "waiting_s", of->waiting_seconds, "telling_s", of->telling_seconds,
        "committing_s", of->committing_seconds, "lag_s", of->lag_seconds, "cpu_s", of->cpu_seconds,
        "memory_peak_bytes", (json_int_t)of->memory_peak_bytes);
}

json_t *reef_crew_json(reef_crew *crew) {
    if (crew == NULL || crew->shown == NULL) return NULL;
    json_t *list = json_array();
    size_t count = reef_ranks_count(crew->ranks);
    pthread_mutex_lock(&crew->lock);
    for (size_t r = 0; r < count; r++) json_array_append_new(list, one_json(r, &crew->shown[r]));
    json_t *object = json_pack("{s:I, s:I, s:I, s:o}", "count", (json_int_t)count, "epoch",
                               (json_int_t)crew->shown[0].epoch, "steps",
                               (json_int_t)crew->shown[0].steps, "ranks", list);
    pthread_mutex_unlock(&crew->lock);
    return object;
}

// ---- what all ranks do --------------------------------------------------------------------------

static reef_status commit(reef_crew *crew,
                          reef_trainer *trainer,
                          reef_commit *out,
                          reef_error *err) {
    reef_status status = reef_trainer_commit(trainer, out, err);
    if (status == REEF_OK) gather_figures(crew, trainer);
    return status;
}

static reef_status feed(reef_crew *crew,
                        reef_trainer *trainer,
                        const reef_crew_order *order,
                        const void *bytes,
                        size_t count,
                        reef_crew_result *out,
                        reef_error *err) {
    const char *file = order->file[0] != '\0' ? order->file : NULL;
    if (crew == NULL)
        return reef_trainer_feed_file(trainer, order->name, file, order->file_offset, bytes, count,
                                      &out->taken, &out->steps, err);
    double began = reef_seconds(), exchanged = exchanging_seconds(crew);
    double cpu = reef_process_cpu_seconds();
    reef_status status = reef_trainer_feed_file(trainer, order->name, file, order->file_offset,
                                                bytes, count, &out->taken, &out->steps, err);
    crew->computing_seconds += reef_seconds() - began - (exchanging_seconds(crew) - exchanged);
    crew->cpu_seconds += reef_process_cpu_seconds() - cpu;
    return status;
}

static reef_status carry_out(reef_crew *crew,
                             reef_trainer *trainer,
                             const reef_crew_order *order,
                             const void *payload,
                             size_t bytes,
                             reef_crew_result *out,
                             reef_error *err) {
    switch (order->kind) {
    case REEF_CREW_FEED:
        return feed(crew, trainer, order, payload, bytes, out, err);
    case REEF_CREW_COMMIT:
        return commit(crew, trainer, &out->commit, err);
    case REEF_CREW_SEAL:
        return reef_trainer_seal(trainer, order->seal_dtype[0] ? order->seal_dtype : NULL,
                                 &out->sealing, err);
    case REEF_CREW_GROW:
        return reef_trainer_grow(trainer, order->number, err);
    case REEF_CREW_FREEZE:
        return reef_trainer_freeze(trainer, &order->freeze, &out->changed, err);
    case REEF_CREW_KIND_NAME:
        return reef_trainer_kind_name(trainer, order->number, order->name, order->dry_run, err);
    case REEF_CREW_DECIDE:
        return reef_trainer_decide(trainer, order->incident, order->decision, order->for_s,
                                   &out->types, err);
    case REEF_CREW_WATCH:
        return reef_trainer_watch_change(trainer, &order->watch, &out->watch, err);
    case REEF_CREW_PRUNE:
        return reef_trainer_prune(trainer, order->number, order->dry_run, &out->pruning, err);
    case REEF_CREW_SNAPSHOT:
        return reef_trainer_snapshot(trainer, order->name, &out->snapshot, err);
    case REEF_CREW_SNAPSHOT_REMOVE:
        return reef_trainer_snapshots_remove(trainer, (void *)(uintptr_t)payload, // only read
                                             bytes / (REEF_NAME_BYTES_MAX + 1), err);
    case REEF_CREW_POOL_MAX:
        reef_trainer_set_pool_max(trainer, order->pool_max);
        return REEF_OK;
    case REEF_CREW_COMPACT:
        return reef_trainer_compact(trainer, &out->compaction, err);
    case REEF_CREW_STILL_HERE:
    case REEF_CREW_END:
        break;
    }
    return REEF_OK;
}

reef_status reef_crew_do(reef_crew *crew,
                         reef_trainer *trainer,
                         const reef_crew_order *order,
                         const void *payload,
                         size_t bytes,
                         reef_crew_result *out,
                         reef_error *err) {
    reef_crew_tell(crew, *order, payload, bytes);
    return carry_out(crew, trainer, order, payload, bytes, out, err);
}

void reef_crew_follow(reef_crew *crew, reef_trainer *trainer) {
    reef_error err = {.status = REEF_OK};
    reef_crew_order order;
    reef_crew_result unused;
    reef_crew_begin_figures(crew, trainer);
    do {
        hear(crew, &order);
        reef_status status =
            carry_out(crew, trainer, &order, crew->payload, order.payload_bytes, &unused, &err);
        // What the model or a name rules out failed on rank 0 as well, which tells whoever asked.
        bool own = status == REEF_ERR_IO || status == REEF_ERR_NO_MEMORY ||
                   status == REEF_ERR_CORRUPT || status == REEF_ERR_VERSION;
        if (own) reef_crew_fail(crew, &err);
    } while (order.kind != REEF_CREW_END);
}
