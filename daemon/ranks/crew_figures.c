// What each rank costs and waits for; see crew.h. Every rank counts for itself; at each commit all
// tell each other, so rank 0 has figures of one moment for people.
#include "crew_internal.h"

#include "reef_system.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static double exchanging_seconds(const reef_crew *crew) {
    reef_ranks_traffic parts[REEF_RANKS_PARTS];
    double seconds = 0;
    reef_ranks_traffic_read(crew->ranks, parts);
    for (size_t i = 0; i < REEF_RANKS_PARTS; i++)
        seconds += parts[i].packing_seconds + parts[i].waiting_seconds;
    return seconds;
}

reef_status reef_crew_feed(reef_crew *crew,
                           reef_trainer *trainer,
                           const char *source,
                           const uint8_t *bytes,
                           size_t count,
                           size_t *taken,
                           size_t *steps,
                           reef_error *err) {
    if (crew == NULL) return reef_trainer_feed(trainer, source, bytes, count, taken, steps, err);
    double began = reef_seconds(), exchanged = exchanging_seconds(crew);
    double cpu = reef_process_cpu_seconds();
    reef_status status = reef_trainer_feed(trainer, source, bytes, count, taken, steps, err);
    crew->computing_seconds += reef_seconds() - began - (exchanging_seconds(crew) - exchanged);
    crew->cpu_seconds += reef_process_cpu_seconds() - cpu;
    return status;
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
    reef_crew_gather_figures(crew, trainer);
}

void reef_crew_gather_figures(reef_crew *crew, const reef_trainer *trainer) {
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

size_t reef_crew_figures_read(reef_crew *crew, reef_crew_figures **out) {
    *out = NULL;
    if (crew == NULL || crew->shown == NULL) return 0;
    size_t count = reef_ranks_count(crew->ranks);
    *out = calloc(count, sizeof(**out));
    if (*out == NULL) return 0;
    pthread_mutex_lock(&crew->lock);
    memcpy(*out, crew->shown, count * sizeof(**out));
    pthread_mutex_unlock(&crew->lock);
    return count;
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
    reef_crew_figures *figures;
    size_t count = reef_crew_figures_read(crew, &figures);
    if (count == 0) return NULL;
    json_t *list = json_array();
    for (size_t r = 0; r < count; r++) json_array_append_new(list, one_json(r, &figures[r]));
    json_t *object = json_pack("{s:I, s:I, s:I, s:o}", "count", (json_int_t)count, "epoch",
                               (json_int_t)figures[0].epoch, "steps", (json_int_t)figures[0].steps,
                               "ranks", list);
    free(figures);
    return object;
}
