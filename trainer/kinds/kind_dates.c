// When kinds began, by the timeline: positions in the stream are exact, and this is for people.
#include "reef_kinds.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

typedef struct dating {
    reef_kind_list *list;
    const reef_lineage *lineage;
} dating;

// The pool was made, or the next generation was opened. A number alone says nothing: an import
// gives the open generation another one, and a restore undoes what came after it.
static void date(const dating *d, const char *event, uint64_t at, json_int_t g, uint64_t unix_ms) {
    if (strcmp(event, "init") != 0 && strcmp(event, "open") != 0) return;
    for (size_t i = 0; i < d->list->count; i++) {
        reef_kind_facts *kind = &d->list->kinds[i];
        if (kind->kind == g && kind->began_at == at) kind->began_ms = unix_ms;
    }
}

static reef_status on_event(void *context,
                            const reef_key *key,
                            const reef_view *view,
                            reef_error *err) {
    const dating *d = context;
    const char *name = NULL;
    json_int_t g = -1, at = -1, unix_ms = -1;
    json_t *event = json_loadb(view->data, view->bytes, 0, NULL);
    if (event == NULL)
        return reef_fail(err, REEF_ERR_CORRUPT, "event %" PRIu64 " of the timeline is not JSON",
                         key->sequence);
    if (reef_lineage_has(d->lineage, view->commit) &&
        json_unpack(event, "{s:s, s:I, s:I, s:I}", "event", &name, "generation", &g, "stream_bytes",
                    &at, "unix_ms", &unix_ms) == 0)
        date(d, name, (uint64_t)at, g, (uint64_t)unix_ms);
    json_decref(event);
    return REEF_OK;
}

reef_status reef_kind_list_date(reef_kind_list *list, reef_txn *txn, reef_error *err) {
    reef_lineage lineage = {0};
    reef_status status = reef_lineage_read(&lineage, txn, err);
    if (status == REEF_OK)
        status = reef_record_scan(txn, REEF_DB_TIMELINE, UINT32_MAX, on_event,
                                  &(dating){list, &lineage}, err);
    reef_lineage_release(&lineage);
    return status;
}
