// See memory_slices.h.
#include "memory_slices.h"

#include <stdlib.h>
#include <string.h>

void reef_memory_slices_free(reef_memory_slices *slices) {
    if (slices == NULL) return;
    for (size_t t = 0; t < REEF_MEMORY_TABLES; t++) {
        free(slices->learned[t]);
        free(slices->numbers[t]);
    }
    for (size_t i = 0; slices->unread != NULL && i < slices->log_count; i++)
        free(slices->unread[i].bytes);
    free(slices->unread);
    free(slices->begins);
    free(slices->log_numbers);
    free(slices);
}

static reef_status fail_no_memory(reef_error *err) {
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the slices of a memory");
}

static reef_status resize(uint64_t **all, size_t count, reef_error *err) {
    uint64_t *larger = realloc(*all, (count + 1) * sizeof(**all));
    if (larger == NULL) return fail_no_memory(err);
    *all = larger;
    return REEF_OK;
}

reef_status reef_memory_slices_resize(reef_memory_slices *slices,
                                      size_t table,
                                      size_t bytes,
                                      reef_error *err) {
    size_t count = reef_slices_of(bytes);
    reef_status status = resize(&slices->learned[table], count, err);
    if (status == REEF_OK) status = resize(&slices->numbers[table], count, err);
    if (status != REEF_OK) return status;
    memset(slices->learned[table], 0, count * sizeof(uint64_t));
    memset(slices->numbers[table], 0, count * sizeof(uint64_t));
    slices->count[table] = count;
    slices->bytes[table] = bytes;
    return REEF_OK;
}

reef_status reef_memory_slices_add_log(reef_memory_slices *slices,
                                       uint64_t begin,
                                       uint64_t number,
                                       reef_error *err) {
    reef_status status = resize(&slices->begins, slices->log_count + 1, err);
    if (status == REEF_OK) status = resize(&slices->log_numbers, slices->log_count + 1, err);
    if (status != REEF_OK) return status;
    slices->begins[slices->log_count] = begin;
    slices->log_numbers[slices->log_count++] = number;
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
        status = reef_memory_slices_resize(copy, t, of->bytes[t], err);
        if (status != REEF_OK || of->count[t] == 0) continue;
        memcpy(copy->learned[t], of->learned[t], of->count[t] * sizeof(uint64_t));
        memcpy(copy->numbers[t], of->numbers[t], of->count[t] * sizeof(uint64_t));
    }
    for (size_t i = 0; status == REEF_OK && i < of->log_count; i++)
        status = reef_memory_slices_add_log(copy, of->begins[i], of->log_numbers[i], err);
    copy->next = of->next;
    copy->stored = of->stored;
    copy->since = of->since;
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
