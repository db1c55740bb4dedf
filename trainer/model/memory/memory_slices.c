// See memory_slices.h.
#include "memory_slices.h"

#include <stdlib.h>
#include <string.h>

void reef_memory_slices_free(reef_memory_slices *slices) {
    if (slices == NULL) return;
    for (size_t t = 0; t < REEF_MEMORY_TABLES; t++) free(slices->learned[t]);
    for (size_t i = 0; slices->unread != NULL && i < slices->block_count; i++)
        free(slices->unread[i].bytes);
    free(slices->unread);
    free(slices->begins);
    free(slices);
}

static reef_status fail_no_memory(reef_error *err) {
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the slices of a memory");
}

reef_status reef_memory_slices_resize(
    reef_memory_slices *slices, size_t table, size_t bytes, uint64_t learned, reef_error *err) {
    size_t count = reef_slices_of(bytes);
    uint64_t *all = realloc(slices->learned[table], (count + 1) * sizeof(*all));
    if (all == NULL) return fail_no_memory(err);
    for (size_t i = 0; i < count; i++) all[i] = learned;
    slices->learned[table] = all;
    slices->count[table] = count;
    slices->bytes[table] = bytes;
    return REEF_OK;
}

reef_status reef_memory_slices_add_block(reef_memory_slices *slices,
                                         uint64_t begin,
                                         reef_error *err) {
    uint64_t *begins = realloc(slices->begins, (slices->block_count + 1) * sizeof(*slices->begins));
    if (begins == NULL) return fail_no_memory(err);
    begins[slices->block_count++] = begin;
    slices->begins = begins;
    return REEF_OK;
}

reef_status reef_memory_slices_copy(reef_memory_slices **out,
                                    const reef_memory_slices *of,
                                    reef_error *err) {
    reef_memory_slices *copy = calloc(1, sizeof(*copy));
    *out = NULL;
    if (copy == NULL) return fail_no_memory(err);
    reef_status status = REEF_OK;
    for (size_t t = 0; status == REEF_OK && t < REEF_MEMORY_TABLES; t++) {
        status = reef_memory_slices_resize(copy, t, of->bytes[t], 0, err);
        if (status == REEF_OK && of->count[t] > 0)
            memcpy(copy->learned[t], of->learned[t], of->count[t] * sizeof(*of->learned[t]));
    }
    for (size_t i = 0; status == REEF_OK && i < of->block_count; i++)
        status = reef_memory_slices_add_block(copy, of->begins[i], err);
    copy->next = of->next;
    copy->stored = of->stored;
    copy->first = of->first;
    copy->open = of->open;
    if (status != REEF_OK) {
        reef_memory_slices_free(copy);
        return status;
    }
    *out = copy;
    return REEF_OK;
}

size_t reef_memory_slices_count(const reef_memory_slices *slices) {
    size_t count = 0;
    for (size_t t = 0; t < REEF_MEMORY_TABLES; t++) count += slices->count[t];
    return count;
}

uint64_t reef_memory_slices_oldest(const reef_memory_slices *slices) {
    uint64_t oldest = UINT64_MAX;
    for (size_t t = 0; t < REEF_MEMORY_TABLES; t++)
        for (size_t i = 0; i < slices->count[t]; i++)
            if (slices->learned[t][i] < oldest) oldest = slices->learned[t][i];
    return oldest;
}
