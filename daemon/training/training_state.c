// What the loop and the training thread share under one lock: requests, the view that others read,
// the state.
#include "training_internal.h"

#include <stdlib.h>

void reef_training_append(reef_request **list, reef_request *request) {
    while (*list != NULL) list = &(*list)->next;
    request->next = NULL;
    *list = request;
}

reef_request *reef_training_take_first(reef_request **list) {
    reef_request *request = *list;
    *list = request->next;
    return request;
}

bool reef_training_is_drained(const reef_training *training, const reef_request *request) {
    for (size_t i = 0; i < training->schedule.queues.count; i++)
        if (training->schedule.queues.queues[i].ring.head < request->until[i]) return false;
    return true;
}

// One that has nothing to wait for any more: what it named is trained, or nothing is trained now.
static bool drain_is_due(const reef_training *training) {
    const reef_request *drain = training->drains;
    return drain != NULL &&
           (training->paused || training->stopping || reef_training_is_drained(training, drain));
}

reef_request *reef_training_take_request(reef_training *training, bool only_drains) {
    if (training->requests != NULL && !only_drains)
        return reef_training_take_first(&training->requests);
    return drain_is_due(training) ? reef_training_take_first(&training->drains) : NULL;
}

void reef_training_set_paused(reef_training *training, bool paused) {
    uv_mutex_lock(&training->lock);
    training->paused = paused;
    uv_mutex_unlock(&training->lock);
}

void reef_training_set_state(reef_training *training, reef_training_state state) {
    // Draining and ending are never taken back.
    if (training->view.state < REEF_STATE_DRAINING || state > training->view.state)
        training->view.state = state;
}

void reef_training_refresh(reef_training *training) {
    reef_trainer_status status;
    reef_trainer_status_read(training->options.trainer, &status);
    uv_mutex_lock(&training->lock);
    training->view.trainer = status;
    for (size_t i = 0; i < training->options.source_count; i++)
        (void)reef_trainer_source_loss(training->options.trainer, training->options.sources[i].name,
                                       &training->losses[i]);
    uv_mutex_unlock(&training->lock);
}

// For the watchdog: something was done, and not only tried.
void reef_training_advance(reef_training *training) {
    uv_mutex_lock(&training->lock);
    training->view.advances++;
    uv_mutex_unlock(&training->lock);
}
