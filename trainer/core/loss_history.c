// The history of the loss, for people: no part of the root hash, and written with a commit only.
//
// A record holds the points of one commit, or later a run of means, oldest first:
//
//   offset  0  step u64          8  stream position u64      16  bits per byte f32      20
//           generation u32
//
// It takes bounded space. When a level has more than REEF_SERIES_POINTS_MAX points, its older half
// is folded: each REEF_SERIES_FOLD of them become one point of the next level, their mean, at the
// position of the last. So the levels follow each other in time without a gap, the coarsest first,
// and the last one alone forgets.
#include "loss_history.h"
#include "trainer_internal.h"

#include <stdlib.h>
#include <string.h>

#define SERIES_NAME "loss"
#define POINT_BYTES 24
#define RECORD_POINTS_MAX 256 // of means

// ---- points in memory ---------------------------------------------------------------------------

static reef_status add_point(reef_points *to, const reef_point *point, reef_error *err) {
    if (to->count == to->room) {
        size_t room = to->room * 2 + 64;
        reef_point *all = realloc(to->all, room * sizeof(*all));
        if (all == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu points of the loss", room);
        to->all = all;
        to->room = room;
    }
    to->all[to->count++] = *point;
    return REEF_OK;
}

static void encode(const reef_point *point, uint8_t at[POINT_BYTES]) {
    memcpy(at, &point->step, 8);
    memcpy(at + 8, &point->stream_bytes, 8);
    memcpy(at + 16, &point->bits_per_byte, 4);
    memcpy(at + 20, &point->generation, 4);
}

static reef_point decode_point(const uint8_t at[POINT_BYTES], uint32_t level) {
    reef_point point = {.level = level};
    memcpy(&point.step, at, 8);
    memcpy(&point.stream_bytes, at + 8, 8);
    memcpy(&point.bits_per_byte, at + 16, 4);
    memcpy(&point.generation, at + 20, 4);
    return point;
}

reef_status reef_series_add(
    reef_trainer *trainer, uint64_t step, uint64_t stream_bytes, double bits, reef_error *err) {
    const reef_point point = {.step = step,
                              .stream_bytes = stream_bytes,
                              .bits_per_byte = (float)bits,
                              .generation = reef_open_generation(trainer)->info.generation};
    return add_point(&trainer->unstored.points, &point, err);
}

// ---- records ------------------------------------------------------------------------------------

// What a scan finds: all points, of one level or of all, and the records that they stand in.
typedef struct found {
    reef_points points; // levels in rising order, within one oldest first
    uint32_t level;     // only this one, or UINT32_MAX
    struct found_record {
        uint32_t level;
        uint64_t sequence;
        size_t count; // of its points
    } * records;      // on the heap
    size_t record_count, record_room;
} found;

static void found_release(found *f) {
    free(f->points.all);
    free(f->records);
    *f = (found){0};
}

static reef_status on_record(void *context,
                             const reef_key *key,
                             const reef_view *view,
                             reef_error *err) {
    found *f = context;
    if (strcmp(key->name, SERIES_NAME) != 0) return REEF_OK;
    // UINT32_MAX asks for every level at once.
    if (f->level != UINT32_MAX && f->level != key->level) return REEF_OK;
    // Record addresses are kept beside their points: what is read here may be deleted or cut in the
    // same transaction.
    if (f->record_count == f->record_room) {
        size_t room = f->record_room * 2 + 64;
        struct found_record *records = realloc(f->records, room * sizeof(*records));
        if (records == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the loss");
        f->records = records;
        f->record_room = room;
    }
    size_t count = view->bytes / POINT_BYTES;
    f->records[f->record_count++] = (struct found_record){key->level, key->sequence, count};
    for (size_t i = 0; i < count; i++) {
        reef_point point = decode_point((const uint8_t *)view->data + i * POINT_BYTES, key->level);
        reef_status status = add_point(&f->points, &point, err);
        if (status != REEF_OK) return status;
    }
    return REEF_OK;
}

static reef_status find_level(reef_txn *txn, uint32_t level, found *out, reef_error *err) {
    *out = (found){.level = level};
    return reef_record_scan(txn, REEF_DB_SERIES, UINT32_MAX, on_record, out, err);
}

static reef_key key_of(uint32_t level, uint64_t sequence) {
    return (reef_key){
        .db = REEF_DB_SERIES, .name = SERIES_NAME, .level = level, .sequence = sequence};
}

// One record of all the points, which are of one level.
static reef_status put_record(
    reef_txn *txn, uint32_t level, const reef_point *all, size_t count, reef_error *err) {
    reef_key key = key_of(level, all[0].stream_bytes);
    uint8_t *payload = malloc(count * POINT_BYTES);
    if (payload == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu points of the loss", count);
    for (size_t i = 0; i < count; i++) encode(&all[i], payload + i * POINT_BYTES);
    reef_status status = reef_record_put(txn, &key, REEF_BYTES, payload, count * POINT_BYTES, err);
    free(payload);
    return status;
}

// ---- making it coarser --------------------------------------------------------------------------

static reef_point mean_of(const reef_point *all, uint32_t level) {
    reef_point mean = all[REEF_SERIES_FOLD - 1];
    double sum = 0;
    for (size_t i = 0; i < REEF_SERIES_FOLD; i++) sum += (double)all[i].bits_per_byte;
    mean.bits_per_byte = (float)(sum / REEF_SERIES_FOLD);
    mean.level = level;
    return mean;
}

// The means of `count` points, a multiple of REEF_SERIES_FOLD, as records of the next level.
static reef_status put_means(
    reef_txn *txn, uint32_t level, const reef_point *all, size_t count, reef_error *err) {
    reef_point means[RECORD_POINTS_MAX];
    reef_status status = REEF_OK;
    for (size_t at = 0; status == REEF_OK && at < count;) {
        size_t filled = 0;
        for (; filled < RECORD_POINTS_MAX && at < count; at += REEF_SERIES_FOLD)
            means[filled++] = mean_of(all + at, level + 1);
        status = put_record(txn, level + 1, means, filled, err);
    }
    return status;
}

// Remove the first `count` points of the level that was found; the record that it ends within is
// cut.
static reef_status remove_first(reef_txn *txn, const found *f, size_t count, reef_error *err) {
    reef_status status = REEF_OK;
    for (size_t r = 0, at = 0; status == REEF_OK && at < count; r++) {
        const struct found_record *record = &f->records[r];
        reef_key key = key_of(record->level, record->sequence);
        size_t end = at + record->count;
        // The whole record goes; if the cut lies inside it, its tail is written back under the same
        // level with a new sequence number.
        status = reef_record_delete(txn, &key, err);
        if (status == REEF_OK && end > count)
            status = put_record(txn, record->level, f->points.all + count, end - count, err);
        at = end;
    }
    return status;
}

// `left`: points of the level after it.
static reef_status fold_level(reef_txn *txn, uint32_t level, size_t *left, reef_error *err) {
    found f;
    reef_status status = find_level(txn, level, &f, err);
    *left = f.points.count;
    if (status == REEF_OK && *left > REEF_SERIES_POINTS_MAX) {
        // Half of the limit stays, so that a fold happens once per thousands of points and not at
        // every commit. The count is a whole number of folds: no mean is made of fewer points than
        // the others.
        size_t count = *left - REEF_SERIES_POINTS_MAX / 2;
        count -= count % REEF_SERIES_FOLD;
        // The last level has no coarser one; its oldest points are forgotten.
        if (level + 1 < REEF_SERIES_LEVELS)
            status = put_means(txn, level, f.points.all, count, err);
        if (status == REEF_OK) status = remove_first(txn, &f, count, err);
        *left -= count;
    }
    found_release(&f);
    return status;
}

// The points are counted once, when a trainer commits for the first time; from then on it knows.
reef_status reef_series_put(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    size_t count = trainer->unstored.points.count;
    trainer->unstored.series_points_put = trainer->unstored.series_points;
    if (count == 0) return REEF_OK;
    reef_status status = put_record(txn, 0, trainer->unstored.points.all, count, err);
    // The count is stored plus 1, so that 0 can mean that it is not known yet.
    size_t raw = trainer->unstored.series_points + count;
    if (status != REEF_OK) return status;
    // Folding level 0 may overfill level 1, and so on: all levels are looked at, the finest first.
    if (trainer->unstored.series_points == 0 || raw > REEF_SERIES_POINTS_MAX + 1) {
        size_t left = 0;
        for (uint32_t level = 0; status == REEF_OK && level < REEF_SERIES_LEVELS; level++) {
            status = fold_level(txn, level, &left, err);
            if (level == 0) raw = left + 1;
        }
    }
    // Becomes the trainer's count only when the transaction is durable; see reef_series_settle.
    trainer->unstored.series_points_put = raw;
    return status;
}

void reef_series_settle(reef_trainer *trainer) {
    trainer->unstored.points.count = 0;
    trainer->unstored.series_points = trainer->unstored.series_points_put;
}

// ---- going back ---------------------------------------------------------------------------------

reef_status reef_series_forget_after(reef_txn *txn, uint64_t stream_bytes, reef_error *err) {
    found f;
    reef_status status = find_level(txn, UINT32_MAX, &f, err);
    const reef_point *at = f.points.all;
    for (size_t r = 0; status == REEF_OK && r < f.record_count; r++) {
        const struct found_record *record = &f.records[r];
        reef_key key = key_of(record->level, record->sequence);
        size_t kept = 0;
        // Points of a record are in stream order, so what stays is a prefix.
        while (kept < record->count && at[kept].stream_bytes <= stream_bytes) kept++;
        if (kept < record->count) status = reef_record_delete(txn, &key, err);
        // Deleted first and then written again shorter: records are immutable, their sequence
        // number gives their age.
        if (status == REEF_OK && kept > 0 && kept < record->count)
            status = put_record(txn, record->level, at, kept, err);
        at += record->count;
    }
    found_release(&f);
    return status;
}

// ---- reading ------------------------------------------------------------------------------------

// Records are found level by level, the finest first; time runs the other way round.
reef_status reef_series_scan(reef_txn *txn,
                             reef_point_visit visit,
                             void *context,
                             reef_error *err) {
    found f;
    reef_status status = find_level(txn, UINT32_MAX, &f, err);
    const reef_point *all = f.points.all;
    for (size_t end = f.points.count, first; status == REEF_OK && end > 0; end = first) {
        // A run of equal levels is one stretch of time. Runs are visited from the last found to the
        // first, and within a run forwards: oldest point first.
        for (first = end - 1; first > 0 && all[first - 1].level == all[end - 1].level;) first--;
        for (size_t i = first; status == REEF_OK && i < end; i++)
            status = visit(context, &all[i], err);
    }
    found_release(&f);
    return status;
}
