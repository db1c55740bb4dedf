// What a check has found: damaged records, once each, and why a check ended early.
#include "check.h"

#include "reef_byte_order.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void keep_damaged_key(reef_check *c, const reef_key *key, const char *what) {
    if (c->damaged_count == REEF_DAMAGED_MAX) return;
    reef_damaged *d = &c->damaged[c->damaged_count++];
    *d = (reef_damaged){.key = *key};
    if (key->name != NULL) {
        snprintf(d->name, sizeof(d->name), "%s", key->name);
        d->key.name = d->name;
    }
    snprintf(d->what, sizeof(d->what), "%s", what);
}

void reef_check_damage(reef_check *c, const reef_key *key, const char *format, ...) {
    char what[sizeof(((reef_error *)0)->message)];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    c->report->damaged++;
    if (key != NULL) keep_damaged_key(c, key, what);
    if (c->options->on_damage != NULL) c->options->on_damage(c->options->context, what);
}

void reef_check_stop(reef_check *c, const reef_error *reason) {
    if (reason->status != REEF_ERR_NO_MEMORY) reef_check_damage(c, NULL, "%s", reason->message);
    if (c->stopped.status == REEF_OK) c->stopped = *reason;
}

static bool is_same_record(const reef_key *a, const reef_key *b) {
    reef_key_bytes one, other;
    return a->db == b->db && reef_key_encode(a, &one, NULL) == REEF_OK &&
           reef_key_encode(b, &other, NULL) == REEF_OK && one.bytes == other.bytes &&
           memcmp(one.data, other.data, one.bytes) == 0;
}

// A record already found damaged is not reported again.
bool reef_check_is_reported(const reef_check *c, const reef_key *key) {
    for (size_t i = 0; key != NULL && i < c->damaged_count; i++)
        if (is_same_record(key, &c->damaged[i].key)) return true;
    return false;
}

void reef_check_unreadable(reef_check *c, const reef_key *key, const reef_error *reason) {
    if (reason->status == REEF_ERR_NO_MEMORY)
        reef_check_stop(c, reason);
    else if (!reef_check_is_reported(c, key))
        reef_check_damage(c, key, "%s", reason->message);
}

void reef_check_unreadable_generation(reef_check *c,
                                      uint32_t generation,
                                      const reef_error *reason) {
    const reef_key key = {.db = REEF_DB_GENERATIONS, .generation = generation};
    reef_check_unreadable(c, &key, reason);
}

// What the commit of the step stores about itself. Damage of its record is reported once.
void reef_check_read_commit(reef_check *c, bool first) {
    static const reef_key commit_key = {.db = REEF_DB_META, .name = REEF_COMMIT_NAME};
    reef_error reason;
    reef_status status = reef_commit_read(c->txn, &c->commit, &reason);
    c->committed = status == REEF_OK;
    if (!c->committed) c->commit = (reef_commit){0};
    // With a damaged record no commit number can be called too new.
    c->last_commit = c->committed || status == REEF_ERR_NOT_FOUND ? c->commit.number : UINT64_MAX;
    if (first && status != REEF_OK && status != REEF_ERR_NOT_FOUND)
        reef_check_unreadable(c, &commit_key, &reason);
    status = reef_txn_generations_load(c->txn, &reason);
    if (first && status != REEF_OK && c->txn->generation_count > 0)
        reef_check_unreadable_generation(c, c->txn->generation_count - 1, &reason);
    else if (first && status != REEF_OK)
        reef_check_unreadable(c, NULL, &reason);
}

bool reef_check_release_reader(reef_check *c, bool *renewed) {
    reef_error reason;
    *renewed = false;
    if (c->ended.status != REEF_OK) return false;
    if (reef_txn_renew(c->txn, renewed, &reason) != REEF_OK) {
        c->ended = reason;
        return false;
    }
    // Another commit from here on: what is compared with it is read again.
    if (*renewed) reef_check_read_commit(c, false);
    return true;
}
