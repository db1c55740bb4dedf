// See as_of.h.
#include "as_of.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool parse_generation(const char *text, unsigned long *out) {
    char *end;
    if (text[0] < '0' || text[0] > '9') return false;
    errno = 0;
    *out = strtoul(text, &end, 10);
    return errno == 0 && *end == '\0';
}

uint32_t reef_as_of_records(const reef_as_of *as_of, uint32_t generation) {
    return as_of->of_snapshot ? reef_snapshot_records(&as_of->snapshot, generation) : generation;
}

// A consolidated generation names no state any more; the message names the later one.
static reef_status check_present(reef_txn *txn,
                                 uint32_t generation,
                                 uint32_t count,
                                 reef_error *err) {
    reef_generation_record info;
    // Walk up to the generation that has the content now: consolidation always merges into the last
    // number of a range.
    for (uint32_t g = generation; g < count; g++) {
        reef_status status = reef_generation_read(txn, g, &info, err);
        if (status != REEF_OK) return status;
        if (reef_generation_is_empty(&info)) continue;
        if (g == generation) return REEF_OK;
        return reef_fail(err, REEF_ERR_NOT_FOUND,
                         "no state as of generation %u: it was consolidated into generation %u and "
                         "given up; --as-of %u is the nearest",
                         generation, g, g);
    }
    return reef_fail(err, REEF_ERR_CORRUPT, "generation %u is empty, and none after it has content",
                     generation);
}

reef_status reef_as_of_find(reef_as_of *out, reef_txn *txn, const char *as_of, reef_error *err) {
    uint32_t count;
    *out = (reef_as_of){0};
    reef_status status = reef_generation_count(txn, &count, err);
    if (status != REEF_OK) return status;
    // Even a new pool has generation 0.
    if (count == 0) return reef_fail(err, REEF_ERR_CORRUPT, "the pool has no generation");
    unsigned long generation = count - 1;
    // A name that is not a number is a snapshot. "now" is the open generation, whichever that is.
    if (as_of != NULL && strcmp(as_of, "now") != 0 && !parse_generation(as_of, &generation)) {
        status = reef_snapshot_find(txn, as_of, &out->snapshot, err);
        out->of_snapshot = true;
        out->last = out->snapshot.open_generation;
        // Generations below shared_count lie under their own numbers; the snapshot's copies lie
        // elsewhere.
        out->own = out->snapshot.shared_count;
        return status;
    }
    if (generation >= count)
        return reef_fail(err, REEF_ERR_NOT_FOUND, "no generation %lu: the pool has 0 to %u",
                         generation, count - 1);
    out->last = out->own = (uint32_t)generation;
    return check_present(txn, (uint32_t)generation, count, err);
}
