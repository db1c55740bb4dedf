// The serving thread; see serving.h. One job at a time, first come first served: a job is bounded by the
// size of what may be asked.
#include "query_thread.h"

#include "query_forgetting.h"
#include "query_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void reef_job_free(reef_job *job) {
    if (!job) return;
    free(job->body);
    free(job->pending);
    json_decref(job->arguments);
    json_decref(job->result);
    free(job->text);
    free(job);
}

static void append(reef_job **list, reef_job *job) {
    while (*list) list = &(*list)->next;
    job->next = NULL;
    *list = job;
}

static void free_all(reef_job *list) {
    while (list) {
        reef_job *next = list->next;
        reef_job_free(list);
        list = next;
    }
}

// ---- the thread ----------------------------------------------------------------------------------

bool reef_serving_emit(reef_serving *serving, reef_job *job, const char *bytes, size_t count) {
    if (atomic_load(&job->abandoned)) return false;
    uv_mutex_lock(&serving->lock);
    bool fits = job->pending_room - job->pending_bytes >= count;
    if (!fits) {
        size_t room = 2 * job->pending_room + count;
        char *pending = realloc(job->pending, room);
        fits = pending != NULL;
        if (fits) {
            job->pending = pending;
            job->pending_room = room;
        }
    }
    if (fits) {
        memcpy(job->pending + job->pending_bytes, bytes, count);
        job->pending_bytes += count;
    }
    uv_mutex_unlock(&serving->lock);
    (void)uv_async_send(serving->options.wake);
    return fits;
}

static reef_job *next_job(reef_serving *serving) {
    uv_mutex_lock(&serving->lock);
    while (!serving->waiting && !serving->stopping) uv_cond_wait(&serving->changed, &serving->lock);
    reef_job *job = serving->stopping ? NULL : serving->waiting;
    if (job) {
        serving->waiting = job->next;
        serving->waiting_count--;
    }
    serving->current = job;
    uv_mutex_unlock(&serving->lock);
    return job;
}

// An answer may be megabytes: it is written here, and the loop only sends it.
static void write_text(reef_job *job) {
    if (job->error.status == REEF_OK) {
        job->text = json_dumps(job->result, JSON_COMPACT | JSON_REAL_PRECISION(12));
        if (!job->text)
            job->error.status =
                reef_fail(&job->error, REEF_ERR_NO_MEMORY, "no memory for the answer");
    }
    json_decref(job->result);
    job->result = NULL;
}

static void serving_main(void *argument) {
    reef_serving *serving = argument;
    for (reef_job *job; (job = next_job(serving)) != NULL;) {
        job->error.status =
            atomic_load(&job->unwanted)
                ? reef_fail(&job->error, REEF_ERR_BUSY,
                            "the connection was closed by its client before the question's turn "
                            "came; leave it open until the answer")
                : job->run(serving, job, &job->error);
        if (!job->on_done) write_text(job);
        uv_mutex_lock(&serving->lock);
        serving->current = NULL;
        append(&serving->done, job);
        bool idle = !serving->waiting;
        uv_mutex_unlock(&serving->lock);
        (void)uv_async_send(serving->options.wake);
        reef_serving_rest(serving, idle ? NULL : serving->used);
        serving->used = NULL;
    }
    for (size_t i = 0; i < REEF_SERVED_MODELS; i++) reef_model_close(serving->models[i].model);
    reef_forgetting_free(serving->forgetting);
}

// ---- the loop's side -----------------------------------------------------------------------------

reef_status reef_serving_submit(reef_serving *serving, reef_job *job, reef_error *err) {
    uv_mutex_lock(&serving->lock);
    bool full = serving->waiting_count == REEF_SERVING_QUEUE_MAX;
    if (!full) {
        append(&serving->waiting, job);
        serving->waiting_count++;
        uv_cond_signal(&serving->changed);
    }
    uv_mutex_unlock(&serving->lock);
    if (!full) return REEF_OK;
    return reef_fail(err, REEF_ERR_BUSY, "%d questions wait already; try again",
                     REEF_SERVING_QUEUE_MAX);
}

reef_job *reef_serving_answered(reef_serving *serving) {
    uv_mutex_lock(&serving->lock);
    reef_job *list = serving->done;
    serving->done = NULL;
    uv_mutex_unlock(&serving->lock);
    return list;
}

char *reef_serving_emitted(reef_serving *serving, reef_job **job, size_t *bytes) {
    char *pending = NULL;
    uv_mutex_lock(&serving->lock);
    *job = serving->current;
    if (*job && (*job)->pending_bytes) {
        pending = (*job)->pending;
        *bytes = (*job)->pending_bytes;
        (*job)->pending = NULL;
        (*job)->pending_bytes = (*job)->pending_room = 0;
    }
    uv_mutex_unlock(&serving->lock);
    return pending;
}

reef_status reef_serving_start(reef_serving **out,
                               const reef_serving_options *options,
                               reef_error *err) {
    *out = NULL;
    reef_serving *serving = calloc(1, sizeof(*serving));
    if (!serving) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for serving");
    serving->options = *options;
    serving->forgetting_rest = reef_forgetting_rest;
    if (uv_mutex_init(&serving->lock) || uv_cond_init(&serving->changed))
        abort(); // out of kernel memory
    int code = uv_thread_create(&serving->thread, serving_main, serving);
    if (!code) {
        *out = serving;
        return REEF_OK;
    }
    uv_cond_destroy(&serving->changed);
    uv_mutex_destroy(&serving->lock);
    free(serving);
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no thread for serving: %s", uv_strerror(code));
}

void reef_serving_stop(reef_serving *serving) {
    if (!serving) return;
    uv_mutex_lock(&serving->lock);
    serving->stopping = true;
    uv_cond_signal(&serving->changed);
    uv_mutex_unlock(&serving->lock);
    (void)uv_thread_join(&serving->thread);
    free_all(serving->waiting);
    free_all(serving->done);
    uv_cond_destroy(&serving->changed);
    uv_mutex_destroy(&serving->lock);
    free(serving);
}
