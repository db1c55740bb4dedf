// A kind is named on command.
#include "commit.h"
#include "events.h"
#include "kind_names.h"
#include "reef_kinds.h"
#include "trainer_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static reef_status check_name(const reef_trainer *trainer,
                              uint32_t kind,
                              const char *name,
                              reef_error *err) {
    reef_status status = reef_check_kind(trainer, kind, err);
    if (status == REEF_OK && name[0] != '\0') status = reef_kind_name_check(name, err);
    for (size_t i = 0; status == REEF_OK && i < trainer->kinds.names.count; i++) {
        const reef_kind_name *other = &trainer->kinds.names.all[i];
        if (other->kind != kind && strcmp(other->text, name) == 0)
            status = reef_fail(err, REEF_ERR_INVALID, "kind %" PRIu32 " is called %s already",
                               other->kind, name);
    }
    return status;
}

#define QUOTED_BYTES (REEF_NAME_BYTES_MAX + 3)

// As JSON, which the characters of a name allow.
static const char *quoted(const char *name, char out[QUOTED_BYTES]) {
    if (name[0] == '\0')
        snprintf(out, QUOTED_BYTES, "null");
    else
        snprintf(out, QUOTED_BYTES, "\"%s\"", name);
    return out;
}

reef_status reef_trainer_kind_name(
    reef_trainer *trainer, uint32_t kind, const char *name, bool dry_run, reef_error *err) {
    reef_kind_names before = trainer->kinds.names, after;
    char now[QUOTED_BYTES], was[QUOTED_BYTES];
    size_t events = trainer->unstored.event_count;
    reef_status status = check_name(trainer, kind, name, err);
    bool is_so = strcmp(reef_kind_names_of(&before, kind), name) == 0;
    if (status != REEF_OK || dry_run || is_so) return status;
    // A copy takes the new name: a commit that fails leaves the old list as it was.
    status = reef_kind_names_copy(&after, &before, err);
    if (status == REEF_OK) status = reef_kind_names_set(&after, kind, name, err);
    if (status == REEF_OK)
        status = reef_state_event(
            trainer, err, "kind_name", "\"kind\": %" PRIu32 ", \"name\": %s, \"before\": %s", kind,
            quoted(name, now), quoted(reef_kind_names_of(&before, kind), was));
    if (status == REEF_OK) {
        trainer->kinds.names = after;
        status = reef_trainer_commit(trainer, NULL, err);
    }
    if (status == REEF_OK) {
        reef_kind_names_release(&before);
        return REEF_OK;
    }
    trainer->kinds.names = before;
    reef_kind_names_release(&after);
    reef_state_drop_events(trainer, events);
    return status;
}
