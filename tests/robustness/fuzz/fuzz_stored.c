// Records whose checksums are right and whose payloads are not: what another program, or a later
// version, might have written. Input: changes of the golden pool's records, each which record
// (by its place in the pool), what to do (replace, patch or cut) and bytes. The changed pool is
// committed, then checked and scored, its history read and compacted, and training
// continues.
#include "fuzz.h"
#include "page_reader.h"
#include "reef_pool_check.h"
#include "reef_pool_json.h"
#include "reef_snapshot.h"
#include "reef_timeline_json.h"
#include "reef_trainer.h"
#include "reef_usage.h"
#include "store_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define RECORDS_MAX 4096
#define CHANGES_MAX 16
#define LAYERS 4
#define EXPERTS 64

typedef struct stored {
    reef_key key;
    char name[REEF_NAME_BYTES_MAX + 1];
} stored;

static struct {
    char *path, *data;
    uint8_t *bytes;
    size_t count;
    stored records[RECORDS_MAX];
    size_t record_count;
} golden;

static reef_status on_record(void *context,
                             const reef_key *key,
                             const reef_view *view,
                             reef_error *err) {
    (void)context;
    (void)view;
    (void)err;
    assert(golden.record_count < RECORDS_MAX);
    stored *record = &golden.records[golden.record_count++];
    record->key = *key;
    if (key->name == NULL) return REEF_OK;
    snprintf(record->name, sizeof(record->name), "%s", key->name);
    record->key.name = record->name;
    return REEF_OK;
}

static void list_records(void) {
    reef_error err;
    reef_store *store = NULL;
    reef_txn *txn = NULL;
    fuzz_must(reef_store_open(&store, golden.path, &(reef_store_options){0}, &err), &err);
    fuzz_must(reef_txn_begin(&txn, store, REEF_TXN_READ, &err), &err);
    for (int db = 0; db < REEF_DB_COUNT; db++)
        if (db != REEF_DB_SUMS)
            fuzz_must(reef_record_scan(txn, (reef_db)db, UINT32_MAX, on_record, NULL, &err), &err);
    reef_txn_abort(txn);
    reef_store_close(store);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    reef_error err;
    fuzz_must(reef_kernels_choose("scalar", &err), &err);
    char to[1024];
    golden.bytes = fuzz_unpack(REEF_TEST_DATA_DIR "/pool.mdb.gz", &golden.count);
    golden.path = fuzz_path("golden");
    snprintf(to, sizeof(to), "%s/" DATA_FILE, golden.path);
    golden.data = strdup(to);
    int made = mkdir(golden.path, 0700);
    assert(made == 0 && golden.data);
    fuzz_write(golden.data, golden.bytes, golden.count);
    list_records();
    return 0;
}

// ---- changing records ---------------------------------------------------------------------------

static void change_one(reef_txn *txn, const reef_key *key, fuzz_input *input) {
    static uint8_t payload[1 << 20];
    reef_error err;
    reef_view view = {0};
    uint8_t how = fuzz_u8(input);
    uint16_t place = fuzz_u16(input);
    size_t count = fuzz_u8(input), taken, bytes;
    const uint8_t *given = fuzz_take(input, count, &taken);
    if (reef_record_view(txn, key, &view, &err) != REEF_OK) return;
    if (view.bytes > sizeof(payload) - 256) return;
    if (view.bytes) memcpy(payload, view.data, view.bytes);
    bytes = view.bytes;
    if (how % 3 == 0) { // replace
        bytes = taken;
        if (taken) memcpy(payload, given, taken);
    } else if (how % 3 == 1 && bytes) { // patch
        size_t at = place % bytes;
        if (taken > bytes - at) taken = bytes - at;
        if (taken) memcpy(payload + at, given, taken);
    } else if (bytes) { // cut
        bytes = place % (bytes + 1);
    }
    (void)!reef_record_store(txn, key, view.dtype, payload, bytes, &err);
}

// Whether the changed pool was committed.
static bool change(fuzz_input *input) {
    reef_error err;
    reef_store *store = NULL;
    reef_txn *txn = NULL;
    reef_commit commit;
    reef_store_options options = {.write = true, .no_sync = true};
    fuzz_must(reef_store_open(&store, golden.path, &options, &err), &err);
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_WRITE, &err);
    if (status == REEF_OK) status = reef_commit_read(txn, &commit, &err);
    fuzz_must(status, &err);
    for (int i = 0; i < CHANGES_MAX && input->left; i++)
        change_one(txn, &golden.records[fuzz_u16(input) % golden.record_count].key, input);
    status = reef_txn_commit(txn, &commit, &err);
    if (status != REEF_OK) fuzz_failure(status, &err);
    reef_store_close(store);
    return status == REEF_OK;
}

// ---- reading the pool ---------------------------------------------------------------------------

static void read_usage(reef_txn *txn) {
    static uint64_t sums[2 * EXPERTS];
    static reef_usage usage[EXPERTS];
    static uint8_t flags[EXPERTS];
    reef_error err;
    reef_usage_stat stat;
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (uint32_t g = 0; g < 2; g++) {
            reef_usage_range range = {.until_ms = UINT64_MAX};
            (void)!reef_usage_sum(txn, g, layer, EXPERTS, &range, sums, &err);
            (void)!reef_usage_read(txn, g, layer, EXPERTS, usage, &err);
            (void)!reef_flags_read(txn, g, layer, EXPERTS, flags, &err);
        }
    (void)!reef_usage_survey(txn, &stat, &err);
}

static reef_status on_snapshot(void *context, const reef_snapshot *snapshot, reef_error *err) {
    (void)err;
    json_array_append_new(context, reef_snapshot_json(snapshot));
    return REEF_OK;
}

static reef_status on_point(void *context, const reef_point *point, reef_error *err) {
    (void)err;
    (*(uint64_t *)context) += point->step;
    return REEF_OK;
}

static void read_history(reef_txn *txn) {
    reef_error err;
    reef_passed passed;
    reef_scrub scrub;
    uint64_t steps = 0;
    json_t *list = json_array();
    (void)!reef_snapshot_scan(txn, on_snapshot, list, &err);
    (void)!reef_timeline_json(txn, list, &err);
    (void)!reef_series_scan(txn, on_point, &steps, &err);
    (void)!reef_passed_read(txn, &passed, &err);
    (void)!reef_scrub_read(txn, &scrub, &err);
    json_decref(list);
}

static void use_model(reef_store *store, const char *as_of) {
    static const uint8_t text[] = "the sea and a reef under slow water 0123456789 and light";
    reef_error err;
    reef_model *model = NULL;
    reef_score score = {0};
    uint8_t out[4];
    const reef_sampling sampling = {.temperature = 1};
    if (reef_model_open(&model, store, as_of, &(reef_model_options){.threads = 1}, &err) != REEF_OK)
        return;
    (void)!reef_model_score(model, text, sizeof(text), NULL, &score, NULL, NULL, &err);
    (void)!reef_model_generate(model, text, 5, sizeof(out), &sampling, out, &err);
    reef_model_close(model);
}

static void learn_on(reef_store *store) {
    static uint8_t stream[512];
    reef_error err;
    reef_trainer *trainer = NULL;
    reef_commit commit;
    reef_usage_compaction compaction;
    size_t taken;
    if (reef_trainer_open(&trainer, store, &(reef_trainer_options){.threads = 1}, &err) != REEF_OK)
        return;
    memset(stream, 'a', sizeof(stream));
    (void)!reef_trainer_feed(trainer, "fuzz", stream, sizeof(stream), &taken, NULL, &err);
    (void)!reef_trainer_commit(trainer, &commit, &err);
    (void)!reef_trainer_compact(trainer, &compaction, &err);
    reef_trainer_close(trainer);
}

static void use(void) {
    reef_error err;
    reef_store *store = NULL;
    reef_txn *txn = NULL;
    reef_check_report report;
    reef_config config;
    reef_store_options options = {.write = true, .no_sync = true};
    const reef_check_options check = {.also = reef_pool_check_sizes};
    if (reef_store_open(&store, golden.path, &options, &err) != REEF_OK) return;
    (void)!reef_store_check(store, &check, &report, &err);
    if (reef_txn_begin(&txn, store, REEF_TXN_READ, &err) == REEF_OK) {
        if (reef_config_read(txn, &config, &err) == REEF_OK)
            assert(reef_config_check(&config, &err) == REEF_OK);
        read_usage(txn);
        read_history(txn);
    }
    reef_txn_abort(txn);
    use_model(store, NULL);
    use_model(store, "0");
    use_model(store, "kept");
    learn_on(store);
    reef_store_close(store);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input = {data, size};
    if (change(&input)) use();
    fuzz_write(golden.data, golden.bytes, golden.count);
    return 0;
}
