// Usage over time against the totals: the uses of an expert in windows are part of those in its
// totals, so their sum is never more. (It may be less: what was used before the oldest window is
// known in total only.)
//
// One segment of a layer at a time, which is what a record of a window covers, so that memory is
// bounded whatever the pool's size; and each in one turn of the check, since a commit changes
// windows and totals.
#include "check.h"

#include "reef_usage.h"
#include "usage_windows.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TOTAL_BYTES 16 // count u64, score u64

typedef struct segment_name {
    uint32_t generation, layer, segment;
} segment_name;

typedef struct segment_names {
    segment_name *names; // in order
    size_t count, capacity;
} segment_names;

static int compare_names(const segment_name *a, const segment_name *b) {
    if (a->generation != b->generation) return a->generation < b->generation ? -1 : 1;
    if (a->layer != b->layer) return a->layer < b->layer ? -1 : 1;
    return a->segment < b->segment ? -1 : a->segment > b->segment;
}

static segment_name name_of(const reef_key *key) {
    return (segment_name){key->generation, key->layer, key->block};
}

static reef_status add_name(segment_names *all, const segment_name *name, reef_error *err) {
    size_t low = 0, high = all->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare_names(&all->names[middle], name);
        if (order == 0) return REEF_OK;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (all->count == all->capacity) {
        size_t capacity = 2 * all->capacity + 64;
        segment_name *names = realloc(all->names, capacity * sizeof(*names));
        if (names == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to check usage");
        all->names = names;
        all->capacity = capacity;
    }
    // Kept sorted: windows are many, and each is looked up by bisection.
    memmove(all->names + low + 1, all->names + low, (all->count - low) * sizeof(*name));
    all->names[low] = *name;
    all->count++;
    return REEF_OK;
}

// Every segment that some window is of.
static reef_status find_segments(reef_check *c, segment_names *all, reef_error *err) {
    reef_cursor cursor;
    reef_key key = {.db = REEF_DB_USAGE, .level = REEF_USAGE_DELTAS};
    reef_status status = reef_usage_seek(&cursor, c->txn, &key, err);
    while (reef_usage_at(&cursor, &key, &status, err)) {
        const segment_name name = name_of(&key);
        c->report->usage_windows++;
        status = add_name(all, &name, err);
        if (status == REEF_OK) status = reef_cursor_next(&cursor, c->txn, err);
    }
    reef_cursor_close(&cursor);
    return status;
}

// Windows whose record is damaged were reported by the walk over all records: the sum is then of
// the rest.
static reef_status sum_windows(reef_check *c,
                               const segment_name *name,
                               reef_usage_segment *segment,
                               reef_error *err) {
    reef_cursor cursor;
    reef_key key = {.db = REEF_DB_USAGE, .level = REEF_USAGE_DELTAS};
    reef_usage_segment_clear(segment);
    reef_status status = reef_usage_seek(&cursor, c->txn, &key, err);
    while (reef_usage_at(&cursor, &key, &status, err)) {
        const segment_name other = name_of(&key);
        reef_view view;
        reef_error reason;
        char text[REEF_NAME_BYTES_MAX + 1];
        if (compare_names(&other, name) == 0 &&
            reef_record_verify(c->txn, REEF_DB_USAGE, &cursor, &key, text, &view, NULL) ==
                REEF_OK &&
            reef_usage_segment_add(segment, &key, &view, &reason) != REEF_OK)
            reef_check_unreadable(c, &key, &reason);
        status = reef_cursor_next(&cursor, c->txn, err);
    }
    reef_cursor_close(&cursor);
    return status;
}

static bool exceeds(const uint64_t sum[2], const uint64_t total[2]) {
    return sum[0] > total[0] || sum[1] > total[1];
}

static void report(reef_check *c,
                   const segment_name *name,
                   uint64_t expert,
                   const uint64_t sum[2]) {
    reef_check_damage(c, NULL,
                      "usage of generation %" PRIu32 ", layer %" PRIu32 ": windows say expert "
                      "%" PRIu64 " was chosen %" PRIu64 " times, which is more than its total",
                      name->generation, name->layer, expert, sum[0]);
}

// Compare the segment with the totals of its layer, which come in blocks of any size.
static reef_status compare_totals(reef_check *c,
                                  const segment_name *name,
                                  const reef_usage_segment *segment,
                                  reef_error *err) {
    static const uint64_t NONE[2] = {0, 0};
    const uint64_t first = (uint64_t)name->segment * REEF_USAGE_SEGMENT;
    uint64_t expert = 0; // of the layer, at the block's beginning
    bool known = true, more = false;
    reef_cursor cursor;
    reef_key key = {.db = REEF_DB_USAGE, .generation = name->generation, .layer = name->layer};
    reef_status status = reef_usage_seek(&cursor, c->txn, &key, err);
    while (known && !more && reef_usage_at(&cursor, &key, &status, err)) {
        reef_view view;
        char text[REEF_NAME_BYTES_MAX + 1];
        if (key.level != REEF_USAGE_TOTALS || key.generation != name->generation ||
            key.layer != name->layer || expert >= first + REEF_USAGE_SEGMENT)
            break;
        known =
            reef_record_verify(c->txn, REEF_DB_USAGE, &cursor, &key, text, &view, NULL) == REEF_OK;
        for (size_t i = 0; known && !more && i < view.bytes / TOTAL_BYTES; i++) {
            uint64_t total[2], at = expert + i - first;
            // Blocks of totals may begin before the segment or end after what was used of it.
            if (expert + i < first || at >= segment->experts) continue;
            memcpy(total, (const uint8_t *)view.data + i * TOTAL_BYTES, TOTAL_BYTES);
            more = exceeds(segment->sums + 2 * at, total);
            if (more) report(c, name, expert + i, segment->sums + 2 * at);
        }
        if (known) expert += view.bytes / TOTAL_BYTES;
        status = reef_cursor_next(&cursor, c->txn, err);
    }
    reef_cursor_close(&cursor);
    // Experts beyond the totals were never chosen.
    for (uint64_t e = expert < first ? first : expert;
         status == REEF_OK && known && !more && e < first + segment->experts; e++) {
        more = exceeds(segment->sums + 2 * (e - first), NONE);
        if (more) report(c, name, e, segment->sums + 2 * (e - first));
    }
    return status;
}

// Windows of a layer without totals are all that is known of it: there is nothing to compare them
// with.
static reef_status has_totals(reef_check *c, const segment_name *name, bool *out, reef_error *err) {
    reef_cursor cursor;
    reef_key key = {.db = REEF_DB_USAGE, .generation = name->generation, .layer = name->layer};
    *out = false;
    reef_status status = reef_usage_seek(&cursor, c->txn, &key, err);
    while (!*out && reef_usage_at(&cursor, &key, &status, err)) {
        if (key.level != REEF_USAGE_TOTALS || key.generation != name->generation ||
            key.layer != name->layer)
            break;
        // A record shorter than one total says nothing about any expert.
        *out = cursor.value.mv_size >= REEF_RECORD_HEADER_BYTES + TOTAL_BYTES;
        status = reef_cursor_next(&cursor, c->txn, err);
    }
    reef_cursor_close(&cursor);
    return status;
}

void reef_check_usage(reef_check *c) {
    reef_error reason;
    segment_names all = {0};
    reef_usage_segment segment = {0};
    bool renewed;
    if (!reef_check_release_reader(c, &renewed)) return;
    reef_status status = find_segments(c, &all, &reason);
    // The read is renewed between two segments, so a long check keeps no pages from reuse.
    for (size_t i = 0; status == REEF_OK && i < all.count && reef_check_release_reader(c, &renewed);
         i++) {
        bool known;
        status = has_totals(c, &all.names[i], &known, &reason);
        if (status != REEF_OK || !known) continue;
        status = sum_windows(c, &all.names[i], &segment, &reason);
        if (status == REEF_OK) status = compare_totals(c, &all.names[i], &segment, &reason);
    }
    reef_usage_segment_free(&segment);
    free(all.names);
    if (status != REEF_OK) reef_check_stop(c, &reason);
}
