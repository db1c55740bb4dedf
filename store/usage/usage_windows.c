// Usage over time: what was used when, beside the totals of usage.
//
// Level 0, window 0 holds the totals, which training determines and the root hash covers. Each
// commit leaves what they grew by as a delta; compaction (usage_compact.c) makes hours and days of
// deltas:
//
//   level 1  deltas   window: the time of the commit
//   level 2  hours    window: the hour's beginning
//   level 3  days     window: the day's beginning (UTC)
//                     all in milliseconds since 1970
//
// Nothing else is stored: what no window has was used before them all, and is the total less the
// windows. So pools that were trained before there were windows need nothing, and dropping a day is
// deleting it.
//
// The payload of a window's record (bytes) begins with its extent,
//
//   first   ms from the window to the first delta that is in it
//   last    ms from the window to the last one
//
// and lists the used experts of its segment, in ascending order:
//
//   gap     how many experts are left out since the one before, or since the segment's first
//   count   how often it was chosen
//   score   its scores, summed, in the unit of the totals
//
// each as a little-endian base-128 number: seven bits a byte, the lowest first, the top bit of a
// byte set when more follow. Most experts of most commits are not used, and most numbers are small.
// The extent is there because a day or an hour may be merged before it has ended, when finer
// windows take too much space: then it says how far the coarse one reaches.
#include "usage_windows.h"
#include "reef_usage.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TOTAL_BYTES 16 // count u64, score u64, little-endian
#define NUMBER_BYTES_MAX 10
#define GAP_BYTES_MAX 3 // below 2^21
#define USE_BYTES_MAX (GAP_BYTES_MAX + 2 * NUMBER_BYTES_MAX)
#define CODE_BYTES_MAX(uses) (2 * NUMBER_BYTES_MAX + (size_t)(uses)*USE_BYTES_MAX)
#define SEGMENT_ROOM_MIN 64 // a full segment is this, doubled some times

static const reef_usage_extent NO_EXTENT = {.first_ms = UINT64_MAX};

uint64_t reef_usage_span_ms(uint32_t level) {
    return level == REEF_USAGE_DAYS ? USAGE_DAY_MS : level == REEF_USAGE_HOURS ? USAGE_HOUR_MS : 1;
}

// ---- the list of uses ---------------------------------------------------------------------------

static uint8_t *put_number(uint8_t *at, uint64_t value) {
    for (; value >= 0x80; value >>= 7) *at++ = (uint8_t)(value | 0x80);
    *at++ = (uint8_t)value;
    return at;
}

static uint8_t *put_use(uint8_t *at, uint64_t gap, uint64_t count, uint64_t score) {
    return put_number(put_number(put_number(at, gap), count), score);
}

// NULL when the bytes end too early or the number has more than 64 bits.
static const uint8_t *get_number(const uint8_t *at, const uint8_t *end, uint64_t *out) {
    uint64_t value = 0;
    for (unsigned shift = 0; at < end && shift < 64; shift += 7) {
        uint64_t bits = *at & 0x7f;
        if (shift == 63 && bits > 1) return NULL;
        value |= bits << shift;
        if ((*at++ & 0x80) != 0) continue;
        *out = value;
        return at;
    }
    return NULL;
}

static reef_status malformed(const reef_key *key, const char *what, reef_error *err) {
    char text[REEF_KEY_TEXT_BYTES];
    reef_key_format(key, text);
    return reef_fail(err, REEF_ERR_CORRUPT, "%s: %s", text, what);
}

// Read the extent; *at moves on to the first use.
static reef_status get_extent(const reef_key *key,
                              const uint8_t **at,
                              const uint8_t *end,
                              reef_usage_extent *out,
                              reef_error *err) {
    uint64_t first = 0, last = 0, span = reef_usage_span_ms(key->level);
    *out = NO_EXTENT;
    const uint8_t *next = get_number(*at, end, &first);
    if (next != NULL) next = get_number(next, end, &last);
    if (next == NULL || first > last || last >= span)
        return malformed(key, "the times of its first and last use are none of its window", err);
    *out = (reef_usage_extent){key->window + first, key->window + last};
    *at = next;
    return REEF_OK;
}

// Add the uses to `sums` (experts, 2), which begins at the segment's first expert, where it is
// given, and say how many experts there must be, where that is asked.
static reef_status add_uses(const reef_key *key,
                            const uint8_t *at,
                            const uint8_t *end,
                            size_t experts,
                            uint64_t *sums,
                            size_t *needed,
                            reef_error *err) {
    for (uint64_t expert = 0; at < end; expert++) {
        uint64_t gap = 0, count = 0, score = 0;
        at = get_number(at, end, &gap);
        if (at != NULL) at = get_number(at, end, &count);
        if (at != NULL) at = get_number(at, end, &score);
        if (at == NULL) return malformed(key, "the list of uses ends within a use", err);
        // Both tests, since a damaged gap near 2^64 would wrap the sum.
        if (gap >= experts || expert + gap >= experts)
            return malformed(key, "it names an expert that the layer does not have", err);
        expert += gap;
        if (needed != NULL) *needed = (size_t)expert + 1;
        if (sums == NULL) continue;
        sums[2 * expert] += count;
        sums[2 * expert + 1] += score;
    }
    return REEF_OK;
}

// ---- a segment in memory ------------------------------------------------------------------------

void reef_usage_segment_free(reef_usage_segment *segment) {
    free(segment->sums);
    free(segment->code);
    *segment = (reef_usage_segment){0};
}

void reef_usage_segment_clear(reef_usage_segment *segment) {
    if (segment->experts > 0) memset(segment->sums, 0, segment->experts * TOTAL_BYTES);
    segment->extent = NO_EXTENT;
}

// Room for the segment's first `experts` experts; what is in it stays. Errors: NO_MEMORY.
static reef_status segment_reserve(reef_usage_segment *segment, size_t experts, reef_error *err) {
    size_t before = segment->experts, room = before > 0 ? before : SEGMENT_ROOM_MIN;
    // Growing: in a small pool the room for a full segment would be most of a commit's time.
    while (room < experts) room *= 2;
    if (room == before) return REEF_OK;
    uint64_t *sums = realloc(segment->sums, room * TOTAL_BYTES);
    if (sums != NULL) segment->sums = sums;
    uint8_t *code = sums == NULL ? NULL : realloc(segment->code, CODE_BYTES_MAX(room));
    if (code == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the usage of %zu experts", room);
    memset(sums + 2 * before, 0, (room - before) * TOTAL_BYTES);
    segment->code = code;
    segment->experts = room;
    return REEF_OK;
}

reef_status reef_usage_segment_add(reef_usage_segment *segment,
                                   const reef_key *key,
                                   const reef_view *view,
                                   reef_error *err) {
    const uint8_t *at = view->data, *end = at + view->bytes;
    reef_usage_extent extent;
    reef_status status = get_extent(key, &at, end, &extent, err);
    size_t needed = 0;
    if (status == REEF_OK) status = add_uses(key, at, end, REEF_USAGE_SEGMENT, NULL, &needed, err);
    if (status == REEF_OK) status = segment_reserve(segment, needed, err);
    if (status == REEF_OK)
        status = add_uses(key, at, end, segment->experts, segment->sums, NULL, err);
    if (status != REEF_OK) return status;
    if (extent.first_ms < segment->extent.first_ms) segment->extent.first_ms = extent.first_ms;
    if (extent.last_ms > segment->extent.last_ms) segment->extent.last_ms = extent.last_ms;
    return REEF_OK;
}

size_t reef_usage_segment_encode(reef_usage_segment *segment, uint64_t window) {
    uint8_t *at = put_number(segment->code, segment->extent.first_ms - window);
    at = put_number(at, segment->extent.last_ms - window);
    const uint8_t *uses = at;
    uint64_t next = 0; // the expert after the last one that was written
    for (uint64_t expert = 0; expert < segment->experts; expert++) {
        uint64_t count = segment->sums[2 * expert], score = segment->sums[2 * expert + 1];
        if (count == 0 && score == 0) continue;
        at = put_use(at, expert - next, count, score);
        next = expert + 1;
    }
    return at > uses ? (size_t)(at - segment->code) : 0;
}

// ---- writing ------------------------------------------------------------------------------------

// Two commits may share a millisecond, and the clock may go back to that of an earlier one: then
// the delta that is there is added to.
static reef_status put_delta(
    reef_txn *txn, const reef_key *key, const uint8_t *code, size_t bytes, reef_error *err) {
    reef_view before;
    reef_usage_segment segment = {.extent = NO_EXTENT};
    reef_status status = reef_record_view(txn, key, &before, err);
    if (status == REEF_ERR_NOT_FOUND)
        return reef_record_put(txn, key, REEF_BYTES, code, bytes, err);
    // Both are decoded and added, because two lists of gaps cannot be joined.
    const reef_view now = {.data = code, .bytes = bytes};
    if (status == REEF_OK) status = reef_usage_segment_add(&segment, key, &before, err);
    if (status == REEF_OK) status = reef_usage_segment_add(&segment, key, &now, err);
    if (status == REEF_OK)
        status = reef_record_put(txn, key, REEF_BYTES, segment.code,
                                 reef_usage_segment_encode(&segment, key->window), err);
    reef_usage_segment_free(&segment);
    return status;
}

static reef_status check_time(uint64_t unix_ms, reef_error *err) {
    if (unix_ms <= INT64_MAX) return REEF_OK; // so that no window ends beyond 64 bits
    return reef_fail(err, REEF_ERR_INVALID, "usage cannot be of %" PRIu64 " ms since 1970",
                     unix_ms);
}

static reef_status check_uses(size_t count, const reef_usage_use *uses, reef_error *err) {
    for (size_t i = 1; i < count; i++)
        if (uses[i].expert <= uses[i - 1].expert)
            return reef_fail(err, REEF_ERR_INVALID,
                             "uses of experts are not in order: %" PRIu32 " after %" PRIu32,
                             uses[i].expert, uses[i - 1].expert);
    return REEF_OK;
}

reef_status reef_usage_add(reef_txn *txn,
                           uint32_t generation,
                           uint32_t layer,
                           size_t count,
                           const reef_usage_use *uses,
                           uint64_t unix_ms,
                           reef_error *err) {
    reef_status status = check_time(unix_ms, err);
    if (status == REEF_OK) status = check_uses(count, uses, err);
    uint8_t *code = status == REEF_OK && count > 0 ? malloc(CODE_BYTES_MAX(count)) : NULL;
    if (status == REEF_OK && count > 0 && code == NULL)
        status =
            reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the usage of %zu experts", count);
    for (size_t i = 0; status == REEF_OK && i < count;) {
        reef_key key = {.db = REEF_DB_USAGE,
                        .level = REEF_USAGE_DELTAS,
                        .window = unix_ms,
                        .generation = generation,
                        .layer = layer,
                        .block = uses[i].expert / REEF_USAGE_SEGMENT};
        // Gaps count from the first expert of the segment.
        uint64_t next = (uint64_t)key.block * REEF_USAGE_SEGMENT;
        uint8_t *at = put_number(put_number(code, 0), 0); // a delta is of one moment
        const uint8_t *none = at;
        for (; i < count && uses[i].expert / REEF_USAGE_SEGMENT == key.block; i++) {
            if (uses[i].count == 0 && uses[i].score == 0) continue;
            at = put_use(at, uses[i].expert - next, uses[i].count, uses[i].score);
            next = (uint64_t)uses[i].expert + 1;
        }
        if (at > none) status = put_delta(txn, &key, code, (size_t)(at - code), err);
    }
    free(code);
    return status;
}

// What the totals of one block grew by, into `grown`.
static reef_status block_growth(reef_txn *txn,
                                const reef_key *key,
                                size_t experts,
                                const uint64_t *totals,
                                uint64_t *grown,
                                reef_error *err) {
    reef_view stored = {0};
    reef_status status = reef_record_view(txn, key, &stored, err);
    // What a damaged record held is lost; the new one mends it. Uses since then cannot be dated.
    // They count as before the windows, because no window has them.
    if (status == REEF_ERR_CORRUPT) return REEF_OK;
    if (status != REEF_OK && status != REEF_ERR_NOT_FOUND) return status;
    size_t known = stored.bytes / TOTAL_BYTES;
    if (known > experts)
        return reef_fail(err, REEF_ERR_INVALID,
                         "usage of generation %" PRIu32 ", layer %" PRIu32 ", block %" PRIu32
                         " is of %zu experts; it cannot become that of %zu",
                         key->generation, key->layer, key->block, known, experts);
    for (size_t i = 0; i < experts; i++) {
        uint64_t old[2] = {0};
        if (i < known) memcpy(old, (const uint8_t *)stored.data + i * TOTAL_BYTES, TOTAL_BYTES);
        if (totals[2 * i] < old[0] || totals[2 * i + 1] < old[1])
            return reef_fail(err, REEF_ERR_INVALID,
                             "usage of generation %" PRIu32 ", layer %" PRIu32 ", block %" PRIu32
                             ", expert %zu of it cannot fall from %" PRIu64 " to %" PRIu64,
                             key->generation, key->layer, key->block, i, old[0], totals[2 * i]);
        grown[2 * i] = totals[2 * i] - old[0];
        grown[2 * i + 1] = totals[2 * i + 1] - old[1];
    }
    return REEF_OK;
}

static reef_status put_segment(reef_txn *txn,
                               reef_key key,
                               uint32_t block_rows,
                               size_t experts,
                               const uint64_t *totals,
                               uint64_t unix_ms,
                               reef_usage_segment *segment,
                               reef_error *err) {
    uint32_t index = key.block / (REEF_USAGE_SEGMENT / block_rows);
    reef_usage_segment_clear(segment);
    reef_status room = segment_reserve(segment, experts, err);
    if (room != REEF_OK) return room;
    for (size_t first = 0; first < experts; first += block_rows, key.block++) {
        size_t rows = experts - first < block_rows ? experts - first : block_rows;
        const uint64_t *block = totals + 2 * first;
        // The growth first: storing the totals replaces what it is measured from.
        reef_status status = block_growth(txn, &key, rows, block, segment->sums + 2 * first, err);
        if (status == REEF_OK)
            status = reef_record_put(txn, &key, REEF_U64, block, rows * TOTAL_BYTES, err);
        if (status != REEF_OK) return status;
    }
    segment->extent = (reef_usage_extent){unix_ms, unix_ms};
    size_t bytes = reef_usage_segment_encode(segment, unix_ms);
    // An empty delta would cost a record in every commit.
    if (bytes == 0) return REEF_OK;
    // Totals are stored by block of rows, deltas by segment.
    key.level = REEF_USAGE_DELTAS;
    key.window = unix_ms;
    key.block = index;
    return put_delta(txn, &key, segment->code, bytes, err);
}

reef_status reef_usage_put(reef_txn *txn,
                           uint32_t generation,
                           uint32_t layer,
                           uint32_t block_rows,
                           size_t expert_count,
                           const uint64_t *totals,
                           uint64_t unix_ms,
                           reef_error *err) {
    reef_usage_segment segment = {0};
    // Otherwise a block would lie in two segments, and its growth in two records.
    if (block_rows == 0 || REEF_USAGE_SEGMENT % block_rows != 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "blocks of usage of %" PRIu32 " experts do not fill %u", block_rows,
                         REEF_USAGE_SEGMENT);
    reef_status status = check_time(unix_ms, err);
    for (size_t first = 0; status == REEF_OK && first < expert_count; first += REEF_USAGE_SEGMENT) {
        size_t left = expert_count - first;
        const reef_key key = {.db = REEF_DB_USAGE,
                              .generation = generation,
                              .layer = layer,
                              .block = (uint32_t)(first / block_rows)};
        status =
            put_segment(txn, key, block_rows, left < REEF_USAGE_SEGMENT ? left : REEF_USAGE_SEGMENT,
                        totals + 2 * first, unix_ms, &segment, err);
    }
    reef_usage_segment_free(&segment);
    return status;
}

// ---- reading ------------------------------------------------------------------------------------

reef_status reef_usage_seek(reef_cursor *cursor,
                            reef_txn *txn,
                            const reef_key *key,
                            reef_error *err) {
    reef_key_bytes encoded;
    *cursor = (reef_cursor){.done = true};
    reef_status status = reef_key_encode(key, &encoded, err);
    return status == REEF_OK
               ? reef_cursor_open(cursor, txn, REEF_DB_USAGE, encoded.data, encoded.bytes, err)
               : status;
}

bool reef_usage_at(const reef_cursor *cursor, reef_key *key, reef_status *status, reef_error *err) {
    char name[REEF_NAME_BYTES_MAX + 1];
    if (*status != REEF_OK || cursor->done) return false;
    *status =
        reef_key_decode(REEF_DB_USAGE, cursor->key.mv_data, cursor->key.mv_size, key, name, err);
    return *status == REEF_OK && key->level < REEF_USAGE_LEVELS;
}

// Add one record to the sums when what is in it touches the range.
static reef_status add_window(reef_txn *txn,
                              const reef_cursor *cursor,
                              reef_key *key,
                              size_t expert_count,
                              reef_usage_range *range,
                              uint64_t *sums,
                              reef_error *err) {
    char name[REEF_NAME_BYTES_MAX + 1];
    reef_view view;
    reef_usage_extent extent;
    // Noted of every window, in range or not: it is how far back usage is known.
    if (range->known_ms == 0 || key->window < range->known_ms) range->known_ms = key->window;
    // The key rules most windows out, which spares hashing their records.
    if (key->window >= range->until_ms ||
        key->window + reef_usage_span_ms(key->level) <= range->since_ms)
        return REEF_OK;
    reef_status status = reef_record_verify(txn, REEF_DB_USAGE, cursor, key, name, &view, err);
    if (status != REEF_OK) return status;
    const uint8_t *at = view.data, *end = at + view.bytes;
    status = get_extent(key, &at, end, &extent, err);
    // The extent may be narrower than the window, so it decides.
    if (status != REEF_OK || extent.first_ms >= range->until_ms || extent.last_ms < range->since_ms)
        return status;
    size_t first = (size_t)key->block * REEF_USAGE_SEGMENT;
    size_t left = first < expert_count ? expert_count - first : 0;
    status = add_uses(key, at, end, left < REEF_USAGE_SEGMENT ? left : REEF_USAGE_SEGMENT,
                      left > 0 ? sums + 2 * first : NULL, NULL, err);
    if (status != REEF_OK) return status;
    if (range->windows == 0 || extent.first_ms < range->from_ms) range->from_ms = extent.first_ms;
    if (extent.last_ms > range->to_ms) range->to_ms = extent.last_ms;
    range->windows++;
    return REEF_OK;
}

reef_status reef_usage_sum(reef_txn *txn,
                           uint32_t generation,
                           uint32_t layer,
                           size_t expert_count,
                           reef_usage_range *range,
                           uint64_t *sums,
                           reef_error *err) {
    reef_cursor cursor;
    reef_key key = {.db = REEF_DB_USAGE, .level = REEF_USAGE_DELTAS};
    *range = (reef_usage_range){.since_ms = range->since_ms, .until_ms = range->until_ms};
    reef_status status = reef_usage_seek(&cursor, txn, &key, err);
    while (reef_usage_at(&cursor, &key, &status, err)) {
        if (key.generation == generation && key.layer == layer)
            status = add_window(txn, &cursor, &key, expert_count, range, sums, err);
        if (status == REEF_OK) status = reef_cursor_next(&cursor, txn, err);
    }
    reef_cursor_close(&cursor);
    return status;
}

// Experts that the record under the cursor names were used up to its last commit.
static reef_status note_last(reef_txn *txn,
                             const reef_cursor *cursor,
                             reef_key *key,
                             uint64_t *sums,
                             size_t expert_count,
                             uint64_t *last_ms,
                             reef_error *err) {
    char name[REEF_NAME_BYTES_MAX + 1];
    reef_view view;
    reef_usage_extent extent;
    reef_status status = reef_record_verify(txn, REEF_DB_USAGE, cursor, key, name, &view, err);
    if (status != REEF_OK) return status;
    const uint8_t *at = view.data, *end = at + view.bytes;
    size_t first = (size_t)key->block * REEF_USAGE_SEGMENT;
    size_t left = first < expert_count ? expert_count - first : 0;
    if (left > REEF_USAGE_SEGMENT) left = REEF_USAGE_SEGMENT;
    // One buffer serves all windows, so each begins with zeros.
    memset(sums, 0, left * TOTAL_BYTES);
    status = get_extent(key, &at, end, &extent, err);
    if (status == REEF_OK) status = add_uses(key, at, end, left, sums, NULL, err);
    for (size_t i = 0; status == REEF_OK && i < left; i++)
        // Windows are not in order of time across levels, so the latest is kept.
        if (sums[2 * i] > 0 && last_ms[first + i] < extent.last_ms)
            last_ms[first + i] = extent.last_ms;
    return status;
}

reef_status reef_usage_last(reef_txn *txn,
                            uint32_t generation,
                            uint32_t layer,
                            size_t expert_count,
                            uint64_t *last_ms,
                            reef_error *err) {
    reef_cursor cursor;
    reef_key key = {.db = REEF_DB_USAGE, .level = REEF_USAGE_DELTAS};
    size_t segment = expert_count < REEF_USAGE_SEGMENT ? expert_count : REEF_USAGE_SEGMENT;
    // One more than needed: calloc of nothing may return NULL.
    uint64_t *sums = calloc(segment + 1, TOTAL_BYTES);
    if (sums == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the usage of %zu experts",
                         segment);
    memset(last_ms, 0, expert_count * sizeof(*last_ms));
    reef_status status = reef_usage_seek(&cursor, txn, &key, err);
    while (reef_usage_at(&cursor, &key, &status, err)) {
        if (key.generation == generation && key.layer == layer)
            status = note_last(txn, &cursor, &key, sums, expert_count, last_ms, err);
        if (status == REEF_OK) status = reef_cursor_next(&cursor, txn, err);
    }
    reef_cursor_close(&cursor);
    free(sums);
    return status;
}
