// What it costs that one context memory takes the place of several: in pools without a net the only
// cost there is. It is measured before anything changes, on the ends of the texts that the memories
// keep, and so without the windows of the reservoir that the new one learns besides.
#include "distil.h"

#include "memory_texts.h"
#include "posterior.h"

#include <stdlib.h>

#define TEXTS_MAX ((size_t)8 << 20) // bytes that memories for measuring learn, twice
#define TEXT_MAX ((size_t)1 << 20)  // of them of one memory's text

// Of one generation with a text; those without are left out.
typedef struct measured {
    uint32_t generation;
    reef_kept_text text;        // owned
    reef_kept_text end;         // a view
    reef_generation_memory own; // has learned what precedes the end
} measured;

typedef struct measuring {
    measured *all; // (count) owned
    size_t count;
    reef_generation_memory both; // has learned that of all of them
} measuring;

static void release(measuring *m) {
    for (size_t i = 0; m->all != NULL && i < m->count; i++) {
        free(m->all[i].text.bytes);
        reef_generation_memory_release(&m->all[i].own);
    }
    free(m->all);
    reef_generation_memory_release(&m->both);
}

static reef_status read_texts(
    measuring *m, const reef_trainer *trainer, uint32_t first, uint32_t last, reef_error *err) {
    reef_status status = REEF_OK;
    m->all = calloc((size_t)last - first + 1, sizeof(*m->all));
    if (m->all == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to measure memories");
    for (uint32_t g = first; status == REEF_OK && g <= last; g++) {
        measured *one = &m->all[m->count++];
        uint64_t from;
        one->generation = g;
        status = reef_distil_read_text(&one->text, &from, trainer, g, err);
        if (status == REEF_OK && one->text.count / 4 > 0) continue;
        free(one->text.bytes);
        *one = (measured){0};
        m->count--;
    }
    return status;
}

static reef_status learn_beginnings(measuring *m, uint64_t bytes_max, reef_error *err) {
    size_t max = m->count > 0 && TEXTS_MAX / m->count < TEXT_MAX ? TEXTS_MAX / m->count : TEXT_MAX;
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < m->count; i++) {
        measured *one = &m->all[i];
        reef_kept_text begin;
        const reef_kept_text last = reef_kept_text_last(&one->text, max);
        reef_kept_text_split(&last, &begin, &one->end);
        status = reef_kept_text_learn(&one->own, bytes_max, &begin, err);
        if (status == REEF_OK) status = reef_kept_text_learn(&m->both, bytes_max, &begin, err);
    }
    return status;
}

// Its own memory and the next ones, as many as answer at a time.
static reef_status measure(const measuring *m,
                           size_t which,
                           reef_consolidation_memory *out,
                           reef_error *err) {
    const reef_memory *memories[REEF_RUNNING_MAX];
    const measured *one = &m->all[which];
    size_t count = m->count < REEF_RUNNING_MAX ? m->count : REEF_RUNNING_MAX;
    double bytes = (double)one->end.count, apart, together = 0.0;
    for (size_t k = 0; k < count; k++) memories[k] = m->all[(which + k) % m->count].own.memory;
    reef_status status = reef_kept_text_apart(memories, count, &one->end, &apart, err);
    if (status == REEF_OK)
        status = reef_kept_text_together(m->both.memory, &one->end, &together, err);
    *out = (reef_consolidation_memory){.generation = one->generation,
                                       .bytes = one->end.count,
                                       .apart = apart / bytes,
                                       .together = together / bytes};
    return status;
}

reef_status reef_distil_memory_costs(const reef_trainer *trainer,
                                     uint32_t first,
                                     uint32_t last,
                                     reef_consolidation *report,
                                     reef_error *err) {
    measuring m = {0};
    reef_status status = read_texts(&m, trainer, first, last, err);
    if (status == REEF_OK)
        status = learn_beginnings(&m, trainer->network.config.context_memory, err);
    if (status == REEF_OK) {
        report->memories = calloc(m.count + 1, sizeof(*report->memories));
        if (report->memories == NULL)
            status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the costs of %zu memories",
                               m.count);
    }
    for (size_t i = 0; status == REEF_OK && i < m.count; i++)
        status = measure(&m, i, &report->memories[report->memory_count++], err);
    release(&m);
    return status;
}
