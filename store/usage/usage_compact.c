// Compaction of usage over time: bounded space, and a bounded piece of work a step.
//
//   deltas --- an hour old, or over their bytes ---> hours --- two days old, or over ---> days
//                                                                                          |
//                       what no window has, known in total only  <--- 400 days old, or over
//
// A step merges the oldest windows of one level, segment by segment: all of a segment's deltas of
// one hour (or hours of one day) are added up in memory and written once. Source and target change
// in one transaction, so sums are conserved whenever the process dies. The clock only chooses
// windows: when it jumps, windows become coarser earlier or later, and the sums stay.
//
// The bytes of each level are counted by a walk over keys, not kept in a record of their own: there
// are at most some ten thousand, and what is not stored cannot be wrong.
#include "reef_fail_point.h"
#include "reef_usage.h"
#include "usage_windows.h"

#include <inttypes.h>

// What a record takes beside its payload: header, key, entry in sums with its key, two nodes of
// LMDB.
#define RECORD_COST_BYTES (REEF_RECORD_HEADER_BYTES + 24 + (25 + 24) + 2 * 8)
#define TOTAL_BYTES 16

// At most so long in a level, and at most so many bytes of it. The bytes are what makes the whole
// bounded: 32 MiB and 12 bytes an expert, beside the 16 of its totals. A day in which every expert
// was used takes 7 to 12 bytes an expert, so that one day can be kept of a pool of any size.
#define DELTAS_KEPT_MS USAGE_HOUR_MS
#define HOURS_KEPT_MS (2 * USAGE_DAY_MS)
#define DAYS_KEPT_MS (400 * USAGE_DAY_MS)
#define DELTAS_BYTES_MAX (UINT64_C(8) << 20)
#define HOURS_BYTES_MAX (UINT64_C(8) << 20)
#define DAYS_BYTES_MAX (UINT64_C(16) << 20)
#define DAYS_EXPERT_BYTES_MAX 12

// One step: payload read and written, and keys looked at as if they had so many bytes. Some 10 ms.
#define STEP_BYTES (UINT64_C(1) << 20)
#define STEP_KEY_BYTES 64
#define STEP_SOURCES_MAX 1024 // records merged into one
#define STEP_DROPS_MAX 4096   // records

// ---- how much there is --------------------------------------------------------------------------

static void count_record(reef_usage_stat *stat, const reef_key *key, size_t value_bytes) {
    reef_usage_level_stat *level = &stat->levels[key->level];
    size_t header = REEF_RECORD_HEADER_BYTES;
    size_t payload = value_bytes < header ? 0 : value_bytes - header;
    if (key->level == REEF_USAGE_TOTALS) stat->experts += payload / TOTAL_BYTES;
    if (level->records == 0) level->first_ms = key->window;
    if (level->records == 0 || level->last_ms != key->window) level->windows++;
    level->last_ms = key->window; // keys are in the order of windows
    level->records++;
    level->bytes += payload + RECORD_COST_BYTES;
}

reef_status reef_usage_survey(reef_txn *txn, reef_usage_stat *out, reef_error *err) {
    reef_cursor cursor;
    reef_key key = {.db = REEF_DB_USAGE};
    *out = (reef_usage_stat){0};
    reef_status status = reef_usage_seek(&cursor, txn, &key, err);
    while (reef_usage_at(&cursor, &key, &status, err)) {
        count_record(out, &key, cursor.value.mv_size);
        status = reef_cursor_next(&cursor, txn, err);
    }
    reef_cursor_close(&cursor);
    return status;
}

uint64_t reef_usage_bytes_max(uint32_t level, uint64_t experts) {
    switch (level) {
    case REEF_USAGE_DELTAS:
        return DELTAS_BYTES_MAX;
    case REEF_USAGE_HOURS:
        return HOURS_BYTES_MAX;
    case REEF_USAGE_DAYS:
        return DAYS_BYTES_MAX + DAYS_EXPERT_BYTES_MAX * experts;
    default:
        return UINT64_MAX;
    }
}

// Windows of a level that begin before this are old enough to be merged or dropped. Whole windows
// of the next level at a time: an hour is compacted once.
static uint64_t horizon_ms(uint32_t level, uint64_t now_ms) {
    uint64_t kept = level == REEF_USAGE_DELTAS  ? DELTAS_KEPT_MS
                    : level == REEF_USAGE_HOURS ? HOURS_KEPT_MS
                                                : DAYS_KEPT_MS;
    uint64_t span = reef_usage_span_ms(level == REEF_USAGE_DAYS ? level : level + 1);
    if (now_ms < kept) return 0;
    return (now_ms - kept) / span * span;
}

static bool level_is_due(const reef_usage_stat *stat, uint32_t level, uint64_t now_ms) {
    const reef_usage_level_stat *have = &stat->levels[level];
    return have->records > 0 && (have->first_ms < horizon_ms(level, now_ms) ||
                                 have->bytes > reef_usage_bytes_max(level, stat->experts));
}

// The finest level that is due, or REEF_USAGE_LEVELS.
static uint32_t due_level(const reef_usage_stat *stat, uint64_t now_ms) {
    uint32_t level = REEF_USAGE_DELTAS;
    while (level < REEF_USAGE_LEVELS && !level_is_due(stat, level, now_ms)) level++;
    return level;
}

// ---- one step -----------------------------------------------------------------------------------

typedef struct step {
    reef_txn *txn;
    reef_usage_segment segment;
    uint32_t level;
    uint64_t horizon, bytes_max;
    uint64_t bytes; // of the level, as it shrinks
    uint64_t work;  // so far, as STEP_BYTES counts it
    reef_usage_compaction *done;
} step;

// The oldest record of the step's level and the bytes of its payload; *found is false if the level
// is empty.
static reef_status oldest(step *s, reef_key *key, size_t *payload, bool *found, reef_error *err) {
    reef_cursor cursor;
    *key = (reef_key){.db = REEF_DB_USAGE, .level = s->level};
    reef_status status = reef_usage_seek(&cursor, s->txn, key, err);
    *found = reef_usage_at(&cursor, key, &status, err) && key->level == s->level;
    *payload = 0;
    if (*found && cursor.value.mv_size > REEF_RECORD_HEADER_BYTES)
        *payload = cursor.value.mv_size - REEF_RECORD_HEADER_BYTES;
    reef_cursor_close(&cursor);
    return status;
}

static bool is_due(const step *s, const reef_key *key) {
    return key->window < s->horizon || s->bytes > s->bytes_max;
}

static void note_removed(step *s, size_t payload) {
    uint64_t bytes = payload + RECORD_COST_BYTES;
    s->bytes -= bytes < s->bytes ? bytes : s->bytes;
    s->work += payload;
}

// Add up the records of `first`'s segment with windows from its own to `end`, as far as one step
// goes.
static reef_status gather_windows(step *s,
                                  const reef_key *first,
                                  uint64_t end,
                                  uint64_t windows[STEP_SOURCES_MAX],
                                  size_t *count,
                                  reef_error *err) {
    reef_cursor cursor;
    reef_key key = *first;
    uint64_t gathered = 0;
    *count = 0;
    reef_status status = reef_usage_seek(&cursor, s->txn, first, err);
    // A step has bounds of work, of records and of bytes: a commit waits for it.
    while (gathered < STEP_BYTES && *count < STEP_SOURCES_MAX &&
           reef_usage_at(&cursor, &key, &status, err) && key.level == s->level &&
           key.window < end) {
        // Records of other blocks cost time too, even if they are passed over.
        s->work += STEP_KEY_BYTES;
        if (key.generation == first->generation && key.layer == first->layer &&
            key.block == first->block) {
            char name[REEF_NAME_BYTES_MAX + 1];
            reef_view view;
            // Verified here: a damaged window must not be merged into a good one.
            status = reef_record_verify(s->txn, REEF_DB_USAGE, &cursor, &key, name, &view, err);
            if (status == REEF_OK) status = reef_usage_segment_add(&s->segment, &key, &view, err);
            if (status != REEF_OK) break;
            windows[(*count)++] = key.window;
            gathered += view.bytes;
            note_removed(s, view.bytes);
        }
        status = reef_cursor_next(&cursor, s->txn, err);
    }
    reef_cursor_close(&cursor);
    return status;
}

static reef_status write_target(step *s, const reef_key *target, reef_error *err) {
    reef_view before;
    reef_status status = reef_record_view(s->txn, target, &before, err);
    if (status == REEF_OK) status = reef_usage_segment_add(&s->segment, target, &before, err);
    if (status != REEF_OK && status != REEF_ERR_NOT_FOUND) return status;
    size_t bytes = reef_usage_segment_encode(&s->segment, target->window);
    s->work += bytes;
    return reef_record_put(s->txn, target, REEF_BYTES, s->segment.code, bytes, err);
}

// Merge what belongs to the segment and the coarser window of `first`.
static reef_status merge(step *s, const reef_key *first, reef_error *err) {
    uint64_t windows[STEP_SOURCES_MAX];
    size_t count;
    uint64_t span = reef_usage_span_ms(s->level + 1);
    reef_key target = *first, source = *first;
    target.level = s->level + 1;
    target.window = first->window / span * span;
    reef_usage_segment_clear(&s->segment);
    reef_status status = gather_windows(s, first, target.window + span, windows, &count, err);
    if (status == REEF_OK && count == 0) // a key that no commit can have written
        status =
            reef_fail(err, REEF_ERR_CORRUPT, "usage has a window at %" PRIu64 " ms", first->window);
    REEF_FAIL_POINT(COMPACT_GATHERED);
    if (status == REEF_OK) status = write_target(s, &target, err);
    REEF_FAIL_POINT(COMPACT_MERGED);
    // In the transaction of the target: a crash can neither lose uses nor count them twice.
    for (size_t i = 0; status == REEF_OK && i < count; i++) {
        source.window = windows[i];
        status = reef_record_delete(s->txn, &source, err);
    }
    REEF_FAIL_POINT(COMPACT_REMOVED);
    if (status == REEF_OK) s->done->merged += count;
    return status;
}

static reef_status merge_level(step *s, reef_error *err) {
    reef_status status = REEF_OK;
    while (status == REEF_OK && s->work < STEP_BYTES) {
        reef_key key;
        size_t payload;
        bool found;
        status = oldest(s, &key, &payload, &found, err);
        if (status != REEF_OK || !found || !is_due(s, &key)) break;
        status = merge(s, &key, err);
    }
    reef_usage_segment_free(&s->segment);
    return status;
}

// Whole days: half a day would be known as a day in which less was used.
static reef_status drop_days(step *s, reef_error *err) {
    uint64_t dropping = UINT64_MAX; // the day that was begun
    while (s->done->dropped < STEP_DROPS_MAX) {
        reef_key key;
        size_t payload;
        bool found;
        reef_status status = oldest(s, &key, &payload, &found, err);
        // A day that was begun is finished, even if the level is small enough by now.
        if (status != REEF_OK || !found || (key.window != dropping && !is_due(s, &key)))
            return status;
        status = reef_record_delete(s->txn, &key, err);
        if (status != REEF_OK) return status;
        note_removed(s, payload);
        dropping = key.window;
        s->done->dropped++;
    }
    return REEF_OK;
}

reef_status reef_usage_compact(reef_txn *txn,
                               uint64_t unix_ms,
                               reef_usage_compaction *out,
                               reef_error *err) {
    reef_usage_stat stat;
    *out = (reef_usage_compaction){0};
    reef_status status = reef_txn_writable(txn, err);
    if (status == REEF_OK) status = reef_usage_survey(txn, &stat, err);
    if (status != REEF_OK) return status;
    // The finest level that is due comes first, as its windows flow into the next.
    uint32_t level = due_level(&stat, unix_ms);
    if (level == REEF_USAGE_LEVELS) return REEF_OK;
    step s = {.txn = txn,
              .level = level,
              .horizon = horizon_ms(level, unix_ms),
              .bytes = stat.levels[level].bytes,
              .bytes_max = reef_usage_bytes_max(level, stat.experts),
              .done = out};
    return level == REEF_USAGE_DAYS ? drop_days(&s, err) : merge_level(&s, err);
}

// ---- a step as a commit -------------------------------------------------------------------------

reef_status reef_store_compact_due(reef_store *store,
                                   uint64_t unix_ms,
                                   bool *out,
                                   reef_error *err) {
    reef_txn *txn = NULL;
    reef_usage_stat stat;
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_usage_survey(txn, &stat, err);
    reef_txn_abort(txn);
    *out = status == REEF_OK && due_level(&stat, unix_ms) != REEF_USAGE_LEVELS;
    return status;
}

reef_status reef_store_compact(reef_store *store,
                               uint64_t unix_ms,
                               reef_usage_compaction *out,
                               reef_commit *commit,
                               reef_error *err) {
    bool due;
    reef_txn *txn = NULL;
    *out = (reef_usage_compaction){0};
    reef_status status = reef_store_compact_due(store, unix_ms, &due, err);
    if (status != REEF_OK || !due) return status;
    // Only after a read has found work: an idle pool takes no write transaction.
    status = reef_txn_begin(&txn, store, REEF_TXN_WRITE, err);
    if (status != REEF_OK) return status;
    reef_commit made = {0}; // step, position and time stay those of what was committed last
    status = reef_commit_read(txn, &made, err);
    if (status == REEF_ERR_NOT_FOUND) status = REEF_OK;
    if (status == REEF_OK) status = reef_usage_compact(txn, unix_ms, out, err);
    if (status != REEF_OK) {
        reef_txn_abort(txn);
        *out = (reef_usage_compaction){0};
        return status;
    }
    status = reef_txn_commit(txn, &made, err);
    if (status == REEF_OK && commit != NULL) *commit = made;
    if (status != REEF_OK) *out = (reef_usage_compaction){0};
    return status;
}
