// What a consolidated generation's context memory learns.
//
// Tables of two memories cannot be made one: a cell says which bytes followed a context, and not
// when, or how often. But each memory keeps the end of its own stream as text, and a generation
// that learned no more than fits there is learned again whole. Of longer ones there are the windows
// of the reservoir besides, but for those that a text has: nothing is learned twice.
//
// Their bytes tell which those are. Where in the stream a text lies is not stored: a kind that came
// back, or that another one was merged into, keeps one text of several places. The history of
// visits knows more, but is for people, and bounded.
#include "distil.h"

#include "kind_memories.h"

#include <stdlib.h>
#include <string.h>

typedef struct window {
    uint64_t offset; // in the stream
    size_t slot;
    uint64_t key; // of its first bytes
    bool kept;    // in one of the texts
} window;

typedef struct kept_text {
    reef_kept_text text; // owned
    uint64_t from;       // where it would begin in the stream, had nothing been left out
} kept_text;

typedef struct learning {
    const reef_distil *distil;
    reef_generation_memory *out;
    kept_text *texts; // (last - first + 1)
    window *windows;
    size_t window_count;
} learning;

reef_status reef_distil_read_text(reef_kept_text *out,
                                  uint64_t *from,
                                  const reef_trainer *trainer,
                                  uint32_t generation,
                                  reef_error *err) {
    const reef_generation *sealed = trainer->network.generations[generation];
    reef_generation_memory old = {0};
    *out = (reef_kept_text){0};
    *from = 0;
    reef_status status = reef_kinds_copy(&old, trainer, sealed, err);
    if (status == REEF_OK && old.memory != NULL) {
        status = reef_kept_text_read(out, old.memory, err);
        *from = old.next > out->count ? old.next - out->count : 0;
    }
    reef_generation_memory_release(&old);
    return status;
}

static reef_status read_texts(const learning *l, reef_error *err) {
    const reef_distil *d = l->distil;
    reef_status status = REEF_OK;
    for (uint32_t g = d->first; status == REEF_OK && g <= d->last; g++) {
        kept_text *one = &l->texts[g - d->first];
        status = reef_distil_read_text(&one->text, &one->from, d->trainer, g, err);
    }
    return status;
}

// The first bytes of a text, zeros behind its end.
static uint64_t key_of(const uint8_t *bytes, size_t count) {
    uint64_t key = 0;
    memcpy(&key, bytes, count < sizeof(key) ? count : sizeof(key));
    return key;
}

static int by_key(const void *a, const void *b) {
    const window *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

static int by_offset(const void *a, const void *b) {
    const window *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (x->slot > y->slot) - (x->slot < y->slot);
}

// Of windows in the order of their keys: the first with this one, or a greater one.
static size_t find_key(const learning *l, uint64_t key) {
    size_t low = 0, high = l->window_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (l->windows[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void mark_kept(learning *l, const reef_kept_text *text) {
    const reef_reservoir *reservoir = &l->distil->trainer->reservoir;
    for (size_t at = 0; at < text->count; at++) {
        size_t left = text->count - at;
        uint64_t key = key_of(text->bytes + at, left);
        for (size_t i = find_key(l, key); i < l->window_count && l->windows[i].key == key; i++) {
            window *one = &l->windows[i];
            size_t size = reservoir->sizes[one->slot];
            if (!one->kept && size <= left)
                one->kept = memcmp(reservoir->bytes + one->slot * reservoir->window_bytes,
                                   text->bytes + at, size) == 0;
        }
    }
}

static void list_windows(learning *l) {
    const reef_distil *d = l->distil;
    const reef_reservoir *reservoir = &d->trainer->reservoir;
    for (size_t i = 0; i < d->sample_count; i++) {
        const reef_sample *sample = &d->samples[i];
        size_t slot = sample->slot;
        if (!sample->taught || !reef_sample_is_used(sample, d->trainer)) continue;
        l->windows[l->window_count++] =
            (window){.offset = reservoir->offsets[slot],
                     .slot = slot,
                     .key = key_of(reservoir->bytes + slot * reservoir->window_bytes,
                                   reservoir->sizes[slot])};
    }
    qsort(l->windows, l->window_count, sizeof(*l->windows), by_key);
    for (uint32_t g = 0; g <= d->last - d->first; g++) mark_kept(l, &l->texts[g].text);
    qsort(l->windows, l->window_count, sizeof(*l->windows), by_offset);
}

static reef_status learn(
    const learning *l, uint64_t begin, const uint8_t *bytes, size_t count, reef_error *err) {
    uint64_t bytes_max = l->distil->trainer->network.config.context_memory;
    return reef_generation_memory_learn(l->out, bytes_max, begin, bytes, count, NULL, NULL, err);
}

static reef_status learn_all(const learning *l, reef_error *err) {
    const reef_reservoir *reservoir = &l->distil->trainer->reservoir;
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < l->window_count; i++) {
        const window *one = &l->windows[i];
        if (one->kept) continue;
        status = learn(l, one->offset, reservoir->bytes + one->slot * reservoir->window_bytes,
                       reservoir->sizes[one->slot], err);
    }
    for (uint32_t g = 0; status == REEF_OK && g <= l->distil->last - l->distil->first; g++) {
        const kept_text *one = &l->texts[g];
        if (one->text.count > 0)
            status = learn(l, one->from, one->text.bytes, one->text.count, err);
    }
    return status;
}

reef_status reef_distil_memory(const reef_distil *distil,
                               reef_generation_memory *out,
                               reef_error *err) {
    uint32_t count = distil->last - distil->first + 1;
    learning l = {.distil = distil, .out = out};
    reef_status status = REEF_OK;
    if (distil->trainer->network.config.context_memory == 0) return REEF_OK;
    l.texts = calloc(count, sizeof(*l.texts));
    l.windows = calloc(distil->sample_count + 1, sizeof(*l.windows));
    if (l.texts == NULL || l.windows == NULL)
        status =
            reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the text of %u generations", count);
    if (status == REEF_OK) status = read_texts(&l, err);
    if (status == REEF_OK) {
        list_windows(&l);
        status = learn_all(&l, err);
    }
    for (uint32_t g = 0; l.texts != NULL && g < count; g++) free(l.texts[g].text.bytes);
    free(l.texts);
    free(l.windows);
    return status;
}
