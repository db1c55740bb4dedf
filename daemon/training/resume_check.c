// See resume_check.h.
#include "resume_check.h"

#include <stdlib.h>

static reef_status check_count(const reef_trainer *trainer,
                               const reef_input *sources,
                               size_t count,
                               reef_error *err) {
    const char **names = calloc(count + 1, sizeof(*names));
    if (names == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the names of %zu sources", count);
    for (size_t i = 0; i < count; i++) names[i] = sources[i].name;
    reef_status status = reef_trainer_sources_fit(trainer, names, count, err);
    free(names);
    return status;
}

// The source whose record was cut, unless another one with something left is read before it.
// Sources that end are read one after another; a live one goes first when it has such a rest
// (scheduler.c).
static bool has_rest_of_record(const reef_input *sources, size_t count, size_t record_bytes) {
    bool later = false;
    for (size_t i = 0; i < count; i++) {
        bool live = sources[i].kind->live;
        if (sources[i].offset % record_bytes != 0 && (live || !later)) return true;
        later |= !live && sources[i].offset < sources[i].bytes;
    }
    return false;
}

// The bytes of another source would continue in the middle of the record, and shift all records
// after it.
static reef_status check_record(const reef_trainer *trainer,
                                const reef_input *sources,
                                size_t count,
                                size_t record_bytes,
                                reef_error *err) {
    reef_trainer_status status;
    reef_trainer_status_read(trainer, &status);
    if (!record_bytes || status.pending_bytes % record_bytes == 0 ||
        has_rest_of_record(sources, count, record_bytes))
        return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "the pool stopped inside a record, %llu bytes after its beginning, "
                     "and other sources would come before the other %llu: "
                     "give the source that it is of again, as the first one",
                     (unsigned long long)(status.pending_bytes % record_bytes),
                     (unsigned long long)(record_bytes - status.pending_bytes % record_bytes));
}

reef_status reef_sources_fit(const reef_trainer *trainer,
                             const reef_input *sources,
                             size_t count,
                             size_t record_bytes,
                             reef_error *err) {
    reef_status status = check_count(trainer, sources, count, err);
    if (status == REEF_OK) status = check_record(trainer, sources, count, record_bytes, err);
    return status;
}
