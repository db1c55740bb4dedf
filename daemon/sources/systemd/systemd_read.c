// The next lines of a journal, and where reading continues; see systemd_internal.h.
#include "systemd_internal.h"

#include "reef_system.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TURN_ENTRIES 256 // so that a checkpoint stays small, and a turn short

// ---- which entry --------------------------------------------------------------------------------

static bool is_due(const reef_systemd *s, const reef_systemd_file *file) {
    return file->has_next &&
           (!file->is_listed || file->next.number <= s->writers[file->writer].bound);
}

static bool is_before(const reef_systemd *s,
                      const reef_systemd_file *a,
                      const reef_systemd_file *b) {
    if (a->writer == b->writer) return a->next.number < b->next.number;
    if (a->next.realtime_us != b->next.realtime_us)
        return a->next.realtime_us < b->next.realtime_us;
    return strcmp(s->writers[a->writer].id, s->writers[b->writer].id) < 0;
}

// Was it read already: another file has the same entries, or its writer's are copies?
static bool is_known(const reef_systemd *s, const reef_systemd_file *file) {
    const reef_systemd_place *next = &file->next;
    const reef_systemd_writer *own = &s->writers[file->writer];
    if (next->number <= own->last) return true;
    for (size_t i = 0; i < s->writer_count; i++) {
        const reef_systemd_writer *w = &s->writers[i];
        if (w->is_volatile != own->is_volatile && strcmp(w->boot, next->boot) == 0 &&
            next->monotonic_us <= w->monotonic_us)
            return true;
    }
    return false;
}

// The rest of an entry that was given in part comes first, be it of a copy.
static bool is_half(const reef_systemd *s, const reef_systemd_file *file) {
    if (s->half_bytes == 0) return false;
    return (file->writer == s->half_writer && file->next.number == s->half_number) ||
           (strcmp(file->next.boot, s->half_boot) == 0 &&
            file->next.monotonic_us == s->half_monotonic_us);
}

// Of each writer the entry with the lowest number, and of these the oldest; or NULL.
static reef_systemd_file *find_next(reef_systemd *s) {
    reef_systemd_file *best = NULL;
    for (size_t i = 0; i < s->file_count; i++) {
        reef_systemd_file *file = &s->files[i];
        reef_systemd_writer *own = &s->writers[file->writer];
        while (file->handle != NULL && !file->has_ended) {
            const int code = reef_systemd_file_next(file);
            if (code != 0) reef_systemd_damaged(s, file, code);
            if (!file->has_next || !is_known(s, file)) break;
            if (own->seen < file->next.number) own->seen = file->next.number;
            file->has_next = false;
        }
        if (is_due(s, file) && is_half(s, file)) return file;
    }
    // Of one writer's files the first by number stands for it, so that a clock that was set back
    // does not change the order of its entries.
    for (size_t i = 0; i < s->file_count; i++) {
        reef_systemd_file *file = &s->files[i];
        bool stands = is_due(s, file);
        for (size_t k = 0; k < s->file_count && stands; k++)
            stands = k == i || !is_due(s, &s->files[k]) || s->files[k].writer != file->writer ||
                     !is_before(s, &s->files[k], file);
        if (stands && (best == NULL || is_before(s, file, best))) best = file;
    }
    return best;
}

// ---- one entry after the other ------------------------------------------------------------------

static void finish_entry(reef_systemd *s) {
    reef_systemd_writer *w = &s->writers[s->line_writer];
    w->last = s->line_place.number;
    if (s->spec.folder == NULL) {
        w->monotonic_us = s->line_place.monotonic_us;
        memcpy(w->boot, s->line_place.boot, sizeof(w->boot));
    }
    s->line.count = s->line_at = 0;
}

// What was accepted of an entry before the process began is not given again.
static void skip_half(reef_systemd *s, const reef_systemd_file *file) {
    if (s->half_bytes == 0) return;
    if (is_half(s, file) && s->half_bytes < s->line.count)
        s->line_at = s->half_bytes;
    else
        reef_systemd_report(s, "source_loss",
                            "entry %" PRIu64 " of the journal %s was removed when %zu of its "
                            "bytes had been read",
                            s->half_number, s->writers[s->half_writer].id, s->half_bytes);
    s->half_bytes = 0;
}

// libsystemd passes over single entries that are damaged without a word, but numbers have no gaps.
static void count_missing(reef_systemd *s, const reef_systemd_file *file) {
    const reef_systemd_writer *w = &s->writers[file->writer];
    const uint64_t before = w->seen > w->last ? w->seen : w->last, number = file->next.number;
    if (s->spec.match_count > 0 || s->is_denied || before == 0 || number <= before + 1) return;
    if (s->missing_count == 0)
        snprintf(s->missing_from, sizeof(s->missing_from), "%" PRIu64 " of %s", before + 1, w->id);
    s->missing_count += number - before - 1;
}

static reef_status take_entry(reef_systemd *s, reef_systemd_file *file, reef_error *err) {
    count_missing(s, file);
    s->line_writer = file->writer;
    s->line_place = file->next;
    s->line_at = 0;
    if (!reef_systemd_entry_write(&s->line, file->handle, file->next.realtime_us))
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for an entry of the journal");
    file->has_next = false;
    skip_half(s, file);
    if (s->line.count > 0) return REEF_OK;
    if (!s->reported_unfit)
        reef_systemd_report(s, "source_unfit",
                            "entry %" PRIu64 " of '%.200s' is passed over, as all such: it has no "
                            "MESSAGE that can be read",
                            s->line_place.number, file->path);
    s->reported_unfit = true;
    finish_entry(s);
    return REEF_OK;
}

// ---- checkpoints --------------------------------------------------------------------------------

static json_t *writers_json(const reef_systemd *s) {
    json_t *list = json_array();
    for (size_t i = 0; i < s->writer_count; i++) {
        const reef_systemd_writer *w = &s->writers[i];
        json_array_append_new(list,
                              json_pack("[s, I, s, I, b]", w->id, (json_int_t)w->last, w->boot,
                                        (json_int_t)w->monotonic_us, w->is_volatile));
    }
    return list;
}

static json_t *begin_checkpoint(const reef_systemd *s) {
    return json_pack("{s: o, s: I, s: []}", "writers", writers_json(s), "skip",
                     (json_int_t)s->line_at, "entries");
}

static void note_entry(json_t *checkpoint, const reef_systemd *s) {
    const reef_systemd_place *place = &s->line_place;
    const char *boot = s->spec.folder != NULL ? "" : place->boot;
    if (strcmp(boot, s->writers[s->line_writer].boot) == 0) boot = "";
    json_array_append_new(json_object_get(checkpoint, "entries"),
                          json_pack("[I, I, I, s, I]", (json_int_t)s->line_writer,
                                    (json_int_t)place->number, (json_int_t)s->line.count, boot,
                                    (json_int_t)place->monotonic_us));
}

static bool load_writers(reef_systemd *s, json_t *list) {
    json_t *item = NULL;
    size_t i = 0;
    if (!json_is_array(list) || json_array_size(list) > REEF_SYSTEMD_WRITERS_MAX) return false;
    json_array_foreach(list, i, item) {
        reef_systemd_writer *w = &s->writers[i];
        const char *id = NULL, *boot = NULL;
        json_int_t last = 0, monotonic = 0;
        int is_volatile = 0;
        if (json_unpack(item, "[s, I, s, I, b!]", &id, &last, &boot, &monotonic, &is_volatile) ||
            last < 0 || strlen(id) >= sizeof(w->id) || strlen(boot) >= sizeof(w->boot))
            return false;
        *w = (reef_systemd_writer){.last = (uint64_t)last,
                                   .monotonic_us = (uint64_t)monotonic,
                                   .is_volatile = is_volatile != 0};
        strcpy(w->id, id);
        strcpy(w->boot, boot);
    }
    s->writer_count = json_array_size(list);
    return true;
}

// Up to the byte that is `ahead` of the one that the checkpoint describes.
static bool load_entries(reef_systemd *s, json_t *list, uint64_t ahead) {
    json_t *item = NULL;
    size_t i = 0;
    if (!json_is_array(list)) return false;
    json_array_foreach(list, i, item) {
        const char *boot = NULL;
        json_int_t writer = 0, number = 0, bytes = 0, monotonic = 0;
        if (json_unpack(item, "[I, I, I, s, I!]", &writer, &number, &bytes, &boot, &monotonic) ||
            writer < 0 || (size_t)writer >= s->writer_count || number < 0 || bytes < 0 ||
            strlen(boot) >= REEF_SYSTEMD_ID_BYTES)
            return false;
        reef_systemd_writer *w = &s->writers[writer];
        if (!*boot) boot = w->boot;
        if (ahead < (uint64_t)bytes) {
            strcpy(s->half_boot, boot);
            s->half_monotonic_us = (uint64_t)monotonic;
            s->half_writer = (size_t)writer;
            s->half_number = (uint64_t)number;
            s->half_bytes = (size_t)ahead;
            return true;
        }
        ahead -= (uint64_t)bytes;
        w->last = (uint64_t)number;
        w->monotonic_us = (uint64_t)monotonic;
        if (boot != w->boot) strcpy(w->boot, boot);
    }
    return ahead == 0;
}

reef_status reef_systemd_seek(reef_systemd *s, const reef_input_offset *offset, reef_error *err) {
    json_int_t skip = 0;
    if (offset->cursor == 0) return REEF_OK;
    json_t *checkpoint =
        offset->checkpoint != NULL ? json_loads(offset->checkpoint, 0, NULL) : NULL;
    const bool good = checkpoint != NULL && json_unpack(checkpoint, "{s: I}", "skip", &skip) == 0 &&
                      skip >= 0 && load_writers(s, json_object_get(checkpoint, "writers")) &&
                      load_entries(s, json_object_get(checkpoint, "entries"),
                                   offset->cursor - offset->begin + (uint64_t)skip);
    json_decref(checkpoint);
    return good ? REEF_OK
                : reef_fail(err, REEF_ERR_CORRUPT,
                            "the pool has read %" PRIu64 " bytes of the journal and does not know "
                            "after which entry: give the source other matches, which is another "
                            "name",
                            offset->cursor);
}

// ---- reading ------------------------------------------------------------------------------------

static bool is_stale(const reef_systemd *s) {
    return (uint64_t)(reef_seconds() * 1000.0) >= s->scanned_ms + REEF_SYSTEMD_SCAN_MS;
}

reef_status reef_systemd_read(reef_systemd *s,
                              uint8_t *at,
                              size_t room,
                              size_t *count,
                              bool *more,
                              char **checkpoint,
                              reef_error *err) {
    reef_status status = is_stale(s) ? reef_systemd_scan(s, err) : REEF_OK;
    json_t *json = begin_checkpoint(s);
    size_t taken = 0;
    *count = 0;
    *checkpoint = NULL;
    if (status == REEF_OK && s->line.count > 0) note_entry(json, s); // the rest of it
    while (status == REEF_OK && *count < room) {
        if (s->line.count == 0) {
            reef_systemd_file *file = taken < TURN_ENTRIES ? find_next(s) : NULL;
            if (file == NULL) break;
            taken++;
            status = take_entry(s, file, err);
            if (status != REEF_OK || s->line.count == 0) continue;
            if (*count == 0)
                json_object_set_new(json, "skip", json_integer((json_int_t)s->line_at));
            note_entry(json, s);
        }
        const size_t left = s->line.count - s->line_at, free_bytes = room - *count;
        const size_t bytes = left < free_bytes ? left : free_bytes;
        memcpy(at + *count, s->line.bytes + s->line_at, bytes);
        *count += bytes;
        s->line_at += bytes;
        if (s->line_at == s->line.count) finish_entry(s);
    }
    *more = taken == TURN_ENTRIES;
    if (status == REEF_OK && *count > 0) *checkpoint = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    return status == REEF_OK && *count > 0 && *checkpoint == NULL
               ? reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a checkpoint")
               : status;
}
