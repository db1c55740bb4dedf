// The journal against itself: what the walk over single records cannot see. Layout and terms:
// journal.c.
#include "check.h"
#include "journal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/** The entry before, of the same source. */
typedef struct neighbour {
    char source[REEF_NAME_BYTES_MAX + 1]; // "": none
    uint64_t sequence, end;
    bool whole;
} neighbour;

static bool is_pushed(const char *source) {
    return strncmp(source, REEF_PUSH_PREFIX, strlen(REEF_PUSH_PREFIX)) == 0;
}

static void check_order(reef_check *c,
                        const reef_key *key,
                        const char *text,
                        const reef_journal_entry *entry,
                        const neighbour *before) {
    if (strcmp(before->source, key->name) != 0) return; // the first of its source
    if (entry->sequence != before->sequence + 1)
        reef_check_damage(c, key, "%s: the entry before it is %" PRIu64, text, before->sequence);
    else if (entry->begin != before->end)
        reef_check_damage(c, key,
                          "%s: it begins at byte %" PRIu64 ", the one before ends at %" PRIu64,
                          text, entry->begin, before->end);
    else if (entry->bytes == NULL && before->whole)
        reef_check_damage(c, key, "%s: it was trimmed, the one before it was not", text);
}

static void check_entry(reef_check *c,
                        const reef_key *key,
                        const reef_view *view,
                        neighbour *before) {
    char text[REEF_KEY_TEXT_BYTES];
    reef_journal_entry entry;
    reef_key_format(key, text);
    // A reserved sequence, which holds the shift and is not an entry.
    if (key->sequence == REEF_JOURNAL_SHIFT_SEQUENCE) {
        if (view->bytes != 8) reef_check_damage(c, key, "%s: the shift has not 8 bytes", text);
        return;
    }
    if (!reef_journal_entry_parse(&entry, key->sequence, view->data, view->bytes)) {
        reef_check_damage(c, key, "%s: is not an entry of a journal", text);
        // What follows cannot be compared with an entry whose end is not known.
        *before = (neighbour){0};
        return;
    }
    if (entry.bytes != NULL &&
        reef_journal_content(entry.bytes, (size_t)entry.length) != entry.content)
        reef_check_damage(c, key, "%s: its bytes are not those that were accepted", text);
    check_order(c, key, text, &entry, before);
    *before = (neighbour){
        .sequence = entry.sequence, .end = reef_journal_end(&entry), .whole = entry.bytes != NULL};
    snprintf(before->source, sizeof(before->source), "%s", key->name);
}

static void check_ids(reef_check *c, const reef_key *key, const reef_view *view) {
    char text[REEF_KEY_TEXT_BYTES];
    reef_key_format(key, text);
    if (!reef_journal_ids_are_sound(view->data, view->bytes))
        reef_check_damage(c, key, "%s: is not a list of ids", text);
}

void reef_check_journal(reef_check *c) {
    reef_cursor cursor;
    reef_error reason;
    neighbour before = {0};
    reef_status status = reef_cursor_open(&cursor, c->txn, REEF_DB_JOURNAL, NULL, 0, &reason);
    while (status == REEF_OK && !cursor.done) {
        reef_key key;
        reef_view view;
        char name[REEF_NAME_BYTES_MAX + 1];
        // Damage of the record itself was reported by the walk over all records. Sequence 0 is not
        // an entry.
        bool sound = reef_record_verify(c->txn, REEF_DB_JOURNAL, &cursor, &key, name, &view,
                                        NULL) == REEF_OK;
        if (!sound)
            before = (neighbour){0};
        else if (is_pushed(name) && key.sequence > 0)
            check_entry(c, &key, &view, &before);
        else if (strncmp(name, REEF_JOURNAL_IDS_PREFIX, strlen(REEF_JOURNAL_IDS_PREFIX)) == 0)
            check_ids(c, &key, &view);
        status = reef_cursor_next(&cursor, c->txn, &reason);
    }
    reef_cursor_close(&cursor);
    if (status != REEF_OK) reef_check_stop(c, &reason);
}
