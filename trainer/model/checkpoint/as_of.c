// See as_of.h.
#include "as_of.h"

#include "reef_json_build.h"
#include "reef_moment.h"
#include "reef_snapshot.h"
#include "reef_states.h"
#include "reef_system.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool parse_generation(const char *text, unsigned long *out) {
    char *end;
    if (text[0] < '0' || text[0] > '9') return false;
    errno = 0;
    *out = strtoul(text, &end, 10);
    return errno == 0 && *end == '\0';
}

// A snapshot, or else the state at a moment. A snapshot's name may look like a moment, but not the
// other way round: people who gave the name mean the snapshot.
static reef_status find_named(char name[REEF_NAME_BYTES_MAX + 1],
                              reef_txn *txn,
                              const char *as_of,
                              reef_error *err) {
    reef_snapshot snapshot;
    reef_moment moment;
    reef_status status = reef_snapshot_find(txn, as_of, &snapshot, err);
    if (status == REEF_OK) snprintf(name, REEF_NAME_BYTES_MAX + 1, "%s", snapshot.name);
    if (status == REEF_OK || status == REEF_ERR_CORRUPT) return status;
    if (!reef_moment_parse(as_of, reef_unix_ms(), &moment))
        return status != REEF_ERR_NOT_FOUND
                   ? status
                   : reef_fail(err, REEF_ERR_NOT_FOUND,
                               "there is no state '%.64s': a state is now, a generation's number, "
                               "a snapshot's name, or a moment such as 2024-05-01, '2024-05-01 "
                               "12:00', yesterday or 3h",
                               as_of);
    return reef_state_at(txn, moment.last, name, err);
}

reef_status reef_state_name(char name[REEF_NAME_BYTES_MAX + 1],
                            reef_txn *txn,
                            const char *as_of,
                            reef_error *err) {
    unsigned long generation;
    snprintf(name, REEF_NAME_BYTES_MAX + 1, "%s", as_of);
    if (strcmp(as_of, "now") == 0 || parse_generation(as_of, &generation)) return REEF_OK;
    return find_named(name, txn, as_of, err);
}

reef_status reef_as_of_find(reef_as_of *out, reef_txn *txn, const char *as_of, reef_error *err) {
    uint32_t count;
    char name[REEF_NAME_BYTES_MAX + 1];
    *out = (reef_as_of){0};
    reef_status status = reef_generation_count(txn, &count, err);
    if (status != REEF_OK) return status;
    // Even a new pool has generation 0.
    if (count == 0) return reef_fail(err, REEF_ERR_CORRUPT, "the pool has no generation");
    status = reef_state_name(name, txn, as_of != NULL ? as_of : "now", err);
    if (status != REEF_OK) return status;
    // "now" is the open generation, whichever that is. What is no number either is a snapshot.
    unsigned long generation = count - 1;
    if (strcmp(name, "now") != 0 && !parse_generation(name, &generation)) {
        reef_snapshot snapshot;
        status = reef_snapshot_read(txn, name, &snapshot, err);
        if (status == REEF_OK) *out = reef_as_of_snapshot(&snapshot);
        return status;
    }
    if (generation >= count)
        return reef_fail(err, REEF_ERR_NOT_FOUND, "no generation %lu: the pool has 0 to %u",
                         generation, count - 1);
    out->last = out->own = (uint32_t)generation;
    return REEF_OK;
}

// ---- the trainer's state ------------------------------------------------------------------------

reef_status reef_state_read(json_t **out, reef_txn *txn, uint32_t records, reef_error *err) {
    const reef_key key = reef_state_key(records, "state");
    json_error_t fault;
    reef_view view;
    *out = NULL;
    reef_status status = reef_record_view(txn, &key, &view, err);
    if (status != REEF_OK) return status;
    *out = json_loadb(view.data, view.bytes, 0, &fault);
    if (*out != NULL) return REEF_OK;
    if (reef_json_no_memory(&fault))
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the trainer's state");
    return reef_fail(err, REEF_ERR_CORRUPT, "the trainer's state of generation %u is not JSON",
                     records);
}

reef_status reef_state_position(reef_txn *txn,
                                uint32_t records,
                                uint64_t *step,
                                uint64_t *generation_step,
                                uint64_t *stream_bytes,
                                reef_error *err) {
    json_t *state;
    reef_status status = reef_state_read(&state, txn, records, err);
    if (status != REEF_OK) return status;
    // Read from the JSON instead of from the commit record: a snapshot's copy has its own state,
    // and no commit.
    *step = (uint64_t)json_integer_value(json_object_get(state, "step"));
    *generation_step = (uint64_t)json_integer_value(json_object_get(state, "generation_step"));
    *stream_bytes = (uint64_t)json_integer_value(json_object_get(state, "stream_bytes"));
    json_decref(state);
    return REEF_OK;
}
