// Which of what happened led to the state that the pool has.
//
// A restore does not reset the number of commits. So commit n follows commit n - 1, unless it
// restored: then it follows the one that its snapshot is of, which its event names. Events behind
// that one, and all that they report, were undone:
//
//   1 - 2 - 3 - 4        commit 5 restored a snapshot of 2, and 7 one of 4: 1, 2, 3, 4 and 7 led
//                        here, 5 and 6 were
//        \       \       undone. The last that led both to 6 and to 4 is 2.
//         5 - 6   7
//
// Points of the loss are kept of one line only (loss_history.c). A restore leaves those that both
// lines share; of what lies between these and the state that it goes to they are missing from then
// on.
#include "reef_model.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

// ---- reading ------------------------------------------------------------------------------------

static reef_status add_restore(reef_lineage *d,
                               const struct reef_restored *restored,
                               reef_error *err) {
    struct reef_restored *restores =
        realloc(d->restores, (d->restore_count + 1) * sizeof(*restores));
    if (restores == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the restores of a pool");
    d->restores = restores;
    d->restores[d->restore_count++] = *restored;
    return REEF_OK;
}

static reef_status on_event(void *context,
                            const reef_key *key,
                            const reef_view *view,
                            reef_error *err) {
    json_t *event = json_loadb(view->data, view->bytes, JSON_ALLOW_NUL, NULL);
    // Only restores bend the line of states; all other events are passed over.
    const char *kind = json_string_value(json_object_get(event, "event"));
    json_int_t to = json_integer_value(json_object_get(event, "commit"));
    json_int_t at = json_integer_value(json_object_get(event, "stream_bytes"));
    bool restored = kind != NULL && strcmp(kind, "restore") == 0, is_json = event != NULL;
    json_decref(event);
    if (!is_json)
        return reef_fail(err, REEF_ERR_CORRUPT, "event %" PRIu64 " of the timeline is not JSON",
                         key->sequence);
    if (!restored) return REEF_OK;
    // A restore goes back. One that names a commit of the future, or none, was not written by us.
    if (to < 1 || (uint64_t)to >= view->commit || at < 0)
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "event %" PRIu64 " of the timeline restored no commit before its own",
                         key->sequence);
    return add_restore(context,
                       &(struct reef_restored){.commit = view->commit,
                                               .to = (uint64_t)to,
                                               .stream_bytes = (uint64_t)at},
                       err);
}

// ---- lines --------------------------------------------------------------------------------------

// Where the line of a commit stands as it is followed back.
typedef struct state_point {
    uint64_t commit, stream_bytes;
} state_point;

// The last commit that led both to `newest`, among the first `count` restores, and to `other`,
// which is not behind it.
static state_point last_shared(const reef_lineage *d,
                               size_t count,
                               uint64_t newest,
                               state_point other) {
    state_point line = {.commit = newest}; // its offset in the stream is not needed
    // Both walk back, the later one first, until they meet. Each step crosses one restore, so it
    // ends.
    while (line.commit != other.commit) {
        state_point *late = line.commit > other.commit ? &line : &other;
        const state_point *early = line.commit > other.commit ? &other : &line;
        size_t i = count;
        // The last restore at or before the later of the two.
        while (i > 0 && d->restores[i - 1].commit > late->commit) i--;
        if (i == 0 || d->restores[i - 1].commit <= early->commit)
            *late = *early; // nothing was restored between them
        else
            *late = (state_point){d->restores[i - 1].to, d->restores[i - 1].stream_bytes};
    }
    return other;
}

bool reef_lineage_has(const reef_lineage *d, uint64_t commit) {
    return last_shared(d, d->restore_count, UINT64_MAX, (state_point){.commit = commit}).commit ==
           commit;
}

uint64_t reef_lineage_shared(const reef_lineage *d, uint64_t commit, uint64_t stream_bytes) {
    return last_shared(d, d->restore_count, UINT64_MAX, (state_point){commit, stream_bytes})
        .stream_bytes;
}

// ---- losses -------------------------------------------------------------------------------------

// From restore to restore: what is missing after the shared state is as gone as the rest of that
// branch, and what leads from there to the restored state is missing now. Gaps are in order, so the
// last ones go.
static reef_status find_gaps(reef_lineage *d, reef_error *err) {
    if (d->restore_count == 0) return REEF_OK;
    d->gaps = calloc(d->restore_count, sizeof(*d->gaps));
    if (d->gaps == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the restores of a pool");
    for (size_t i = 0; i < d->restore_count; i++) {
        const struct reef_restored *one = &d->restores[i];
        // The state before the restore, and the one that was restored: what both share is still
        // true.
        uint64_t shared =
            last_shared(d, i, one->commit - 1, (state_point){one->to, one->stream_bytes})
                .stream_bytes;
        // Gaps behind the shared part belong to a line that is not the present's any more.
        while (d->gap_count > 0 && d->gaps[d->gap_count - 1].from >= shared) d->gap_count--;
        if (d->gap_count > 0 && d->gaps[d->gap_count - 1].to > shared)
            d->gaps[d->gap_count - 1].to = shared;
        // Losses between the shared part and the restored state were removed by the restore.
        if (one->stream_bytes > shared)
            d->gaps[d->gap_count++] = (struct reef_lineage_gap){shared, one->stream_bytes};
    }
    return REEF_OK;
}

bool reef_lineage_knows_losses(const reef_lineage *d, uint64_t from, uint64_t to) {
    for (size_t i = 0; i < d->gap_count; i++)
        if (d->gaps[i].from < to && d->gaps[i].to > from) return false;
    return true;
}

// ---- life ---------------------------------------------------------------------------------------

reef_status reef_lineage_read(reef_lineage *out, reef_txn *txn, reef_error *err) {
    *out = (reef_lineage){0};
    reef_status status = reef_record_scan(txn, REEF_DB_TIMELINE, UINT32_MAX, on_event, out, err);
    if (status == REEF_OK) status = find_gaps(out, err);
    if (status != REEF_OK) reef_lineage_release(out);
    return status;
}

void reef_lineage_release(reef_lineage *d) {
    free(d->restores);
    free(d->gaps);
    *d = (reef_lineage){0};
}
