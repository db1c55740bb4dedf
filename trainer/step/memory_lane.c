// See memory_lane.h.
#include "memory_lane.h"

#include "reef_system.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// Batches at once: two pieces that recognition reads, at the default sizes. More would only wait.
#define JOBS_MAX 8

struct reef_memory_lane {
    const reef_config *config;      // not owned
    reef_generation_memory *memory; // not owned
    reef_memory_job jobs[JOBS_MAX];
    pthread_t thread;
    bool has_thread; // from the first start on, until the lane is freed
    pthread_mutex_t mutex;
    pthread_cond_t changed; // one of the following
    size_t count, learned;  // batches
    bool runs, ends;        // the thread may learn; it has to end
    // Of the one that learns: the thread while it runs, else the trainer's.
    reef_status status;
    reef_error error;
};

static bool make_room(reef_memory_lane *lane) {
    size_t tokens = reef_batch_bytes(lane->config);
    size_t size = reef_batch_bytes(lane->config) + 1;
    bool has_room = true;
    for (size_t i = 0; i < JOBS_MAX; i++) {
        reef_memory_job *job = &lane->jobs[i];
        job->bytes = malloc(size);
        job->predictions = malloc(tokens * sizeof(*job->predictions));
        job->bits = malloc(tokens * sizeof(*job->bits));
        has_room &= job->bytes != NULL && job->predictions != NULL && job->bits != NULL;
    }
    return has_room;
}

reef_status reef_memory_lane_new(reef_memory_lane **out,
                                 const reef_config *config,
                                 reef_error *err) {
    reef_memory_lane *lane = calloc(1, sizeof(*lane));
    *out = NULL;
    if (lane == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a memory's batches");
    lane->config = config;
    pthread_mutex_init(&lane->mutex, NULL);
    pthread_cond_init(&lane->changed, NULL);
    if (!make_room(lane)) {
        reef_memory_lane_free(lane);
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a memory's batches");
    }
    *out = lane;
    return REEF_OK;
}

void reef_memory_lane_free(reef_memory_lane *lane) {
    if (lane == NULL) return;
    if (lane->has_thread) {
        pthread_mutex_lock(&lane->mutex);
        lane->ends = true;
        pthread_cond_broadcast(&lane->changed);
        pthread_mutex_unlock(&lane->mutex);
        (void)pthread_join(lane->thread, NULL);
    }
    for (size_t i = 0; i < JOBS_MAX; i++) {
        free(lane->jobs[i].bytes);
        free(lane->jobs[i].predictions);
        free(lane->jobs[i].bits);
    }
    pthread_cond_destroy(&lane->changed);
    pthread_mutex_destroy(&lane->mutex);
    free(lane);
}

size_t reef_memory_lane_count(const reef_memory_lane *lane) {
    return lane->count; // only the trainer's thread changes it
}

bool reef_memory_lane_is_empty(const reef_memory_lane *lane) {
    return lane->count == 0;
}

bool reef_memory_lane_is_full(const reef_memory_lane *lane) {
    return lane->count == JOBS_MAX;
}

const reef_memory_job *reef_memory_lane_job(const reef_memory_lane *lane, size_t i) {
    return &lane->jobs[i];
}

void reef_memory_lane_open(reef_memory_lane *lane, reef_generation_memory *memory) {
    assert(reef_memory_lane_is_empty(lane));
    lane->memory = memory;
}

void reef_memory_lane_add(reef_memory_lane *lane,
                          uint64_t begin,
                          uint64_t step,
                          const uint8_t *bytes,
                          const reef_net_prediction *predictions) {
    reef_memory_job *job = &lane->jobs[lane->count];
    assert(!reef_memory_lane_is_full(lane));
    job->begin = begin;
    job->step = step;
    job->has_net = predictions != NULL;
    memcpy(job->bytes, bytes, reef_batch_bytes(lane->config) + 1);
    if (job->has_net)
        memcpy(job->predictions, predictions,
               reef_batch_bytes(lane->config) * sizeof(*job->predictions));
    pthread_mutex_lock(&lane->mutex);
    lane->count++;
    pthread_cond_broadcast(&lane->changed);
    pthread_mutex_unlock(&lane->mutex);
}

static void learn(reef_memory_lane *lane, reef_memory_job *job) {
    if (lane->status != REEF_OK) return;
    lane->status =
        reef_memory_learn_batch(lane->config, lane->memory, job->bytes, job->begin,
                                job->has_net ? job->predictions : NULL, job->bits, &lane->error);
}

static void *run(void *context) {
    reef_memory_lane *lane = context;
    pthread_mutex_lock(&lane->mutex);
    while (!lane->ends) {
        if (!lane->runs || lane->learned == lane->count) {
            pthread_cond_wait(&lane->changed, &lane->mutex);
            continue;
        }
        reef_memory_job *job = &lane->jobs[lane->learned];
        pthread_mutex_unlock(&lane->mutex);
        learn(lane, job);
        pthread_mutex_lock(&lane->mutex);
        lane->learned++;
        pthread_cond_broadcast(&lane->changed);
    }
    pthread_mutex_unlock(&lane->mutex);
    return NULL;
}

void reef_memory_lane_start(reef_memory_lane *lane, size_t threads) {
    if (lane->runs || threads < 2) return;
    if (!lane->has_thread) lane->has_thread = reef_thread_start(&lane->thread, run, lane) == 0;
    if (!lane->has_thread) return; // learned by whoever waits, then
    pthread_mutex_lock(&lane->mutex);
    lane->runs = true;
    pthread_cond_broadcast(&lane->changed);
    pthread_mutex_unlock(&lane->mutex);
}

reef_status reef_memory_lane_wait(reef_memory_lane *lane, reef_error *err) {
    pthread_mutex_lock(&lane->mutex);
    while (lane->runs && lane->learned < lane->count)
        pthread_cond_wait(&lane->changed, &lane->mutex);
    lane->runs = false;
    pthread_mutex_unlock(&lane->mutex);
    for (; lane->learned < lane->count; lane->learned++) learn(lane, &lane->jobs[lane->learned]);
    reef_status status = lane->status;
    lane->status = REEF_OK;
    return status == REEF_OK ? REEF_OK : reef_fail(err, status, "%s", lane->error.message);
}

void reef_memory_lane_clear(reef_memory_lane *lane) {
    lane->count = lane->learned = 0; // the thread does not run
}
