// What a rank remembers of joins: whose copies its kinds are, and where files of a join lie. See
// joins.h.
#include "joins_internal.h"

#include "reef_exchange.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t reef_joins_rank(const reef_joins *joins) {
    return reef_ranks_rank(joins->crew->ranks);
}

size_t reef_joins_count(const reef_joins *joins) {
    return reef_ranks_count(joins->crew->ranks);
}

reef_status reef_joins_fail_file(const char *doing, const char *what, reef_error *err) {
    int code = errno;
    bool full = code == ENOSPC || code == EDQUOT || code == EFBIG;
    return reef_fail(err, full ? REEF_ERR_FULL : REEF_ERR_IO, "cannot %s %.160s: %s", doing, what,
                     strerror(code));
}

void reef_joins_path(const reef_joins *joins,
                     uint64_t number,
                     size_t from,
                     char out[PATH_BYTES_MAX]) {
    snprintf(out, PATH_BYTES_MAX, "%.4000s/" JOINS_FOLDER "/%" PRIu64 ".%s-%zu", joins->crew->pool,
             number, from == reef_joins_rank(joins) ? "of" : "from", from);
}

// ---- kinds --------------------------------------------------------------------------------------

reef_status reef_joins_add_kind(reef_joins *joins, reef_join_kind kind, reef_error *err) {
    reef_join_kind *kinds = realloc(joins->kinds, (joins->kind_count + 1) * sizeof(*kinds));
    if (kinds == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for kinds of ranks");
    joins->kinds = kinds;
    kinds[joins->kind_count++] = kind;
    joins->kinds_changed = true;
    return REEF_OK;
}

bool reef_joins_find_kind(const reef_joins *joins, uint32_t owner, uint32_t kind, uint32_t *out) {
    for (size_t i = 0; i < joins->kind_count; i++) {
        const reef_join_kind *one = &joins->kinds[i];
        if (one->owner == owner && one->owner_kind == kind)
            return reef_trainer_kind_goes_on(joins->trainer, one->kind, out);
    }
    return false;
}

static bool has_kind(const reef_joins *joins, uint32_t owner, uint32_t kind) {
    for (size_t i = 0; i < joins->kind_count; i++)
        if (joins->kinds[i].owner == owner && joins->kinds[i].owner_kind == kind) return true;
    return false;
}

uint32_t reef_joins_open_generation(const reef_joins *joins) {
    reef_trainer_status status;
    reef_trainer_status_read(joins->trainer, &status);
    return status.generation;
}

// Kinds that all pools have had from the beginning are nobody's; what came since is this rank's.
reef_status reef_joins_add_own_kinds(reef_joins *joins, uint32_t owner, reef_error *err) {
    reef_status status = REEF_OK;
    uint32_t end = reef_joins_open_generation(joins);
    for (uint32_t kind = joins->record.own_from; status == REEF_OK && kind < end; kind++) {
        if (!has_kind(joins, owner, kind))
            status = reef_joins_add_kind(
                joins, (reef_join_kind){.kind = kind, .owner = owner, .owner_kind = kind}, err);
    }
    return status;
}

void reef_joins_note_returned(reef_joins *joins) {
    for (size_t i = 0; i < joins->kind_count; i++)
        joins->kinds[i].returned = reef_trainer_kind_returned(joins->trainer, joins->kinds[i].kind);
    joins->kinds_changed = true;
}
