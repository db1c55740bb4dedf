// Records of the journal with right checksums and any payloads. Input: records, each its sequence
// (a byte; 255: the last one there can be; 254: the ids that a snapshot keeps), the length of its
// payload (two bytes) and the payload. Then the journal is surveyed, read, moved, appended to,
// trimmed and checked.
#include "fuzz.h"
#include "reef_pool_check.h"
#include "reef_push_journal.h"
#include "reef_snapshot.h"
#include "reef_store.h"
#include "temp_dir.h"

#include <assert.h>

#define SOURCE REEF_PUSH_PREFIX "x"
#define RECORDS_MAX 32

static char *pool;
static const reef_snapshot kept = {.name = "kept", .copy = 1u << 31};

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    pool = fuzz_path("pool");
    return 0;
}

static void ok_or_said(reef_status status, const reef_error *err) {
    if (status != REEF_OK) fuzz_failure(status, err);
}

static void put_records(reef_txn *txn, fuzz_input *input) {
    reef_error err;
    for (int i = 0; i < RECORDS_MAX && input->left; i++) {
        uint8_t sequence = fuzz_u8(input);
        size_t bytes = fuzz_u16(input), taken;
        const uint8_t *payload = fuzz_take(input, bytes, &taken);
        reef_key key = {.db = REEF_DB_JOURNAL,
                        .name = SOURCE,
                        .sequence = sequence == 255 ? UINT64_MAX : sequence};
        if (sequence == 254)
            key = (reef_key){.db = REEF_DB_JOURNAL, .name = "ids:x", .sequence = kept.copy};
        fuzz_must(reef_record_put(txn, &key, REEF_BYTES, payload, taken, &err), &err);
    }
}

static void commit(reef_txn *txn) {
    reef_error err;
    reef_commit record = {.unix_ms = 1};
    fuzz_must(reef_txn_commit(txn, &record, &err), &err);
}

static void on_damage(void *context, const char *what) {
    assert(what && *what);
    ++*(size_t *)context;
}

// Positions come back as they were given, however much is asked for at once.
static void read_journal(reef_store *store, uint64_t position) {
    static uint8_t bytes[1 << 16];
    reef_error err;
    size_t count = 0, less = 0;
    reef_status status =
        reef_journal_read(store, SOURCE, position, bytes, sizeof(bytes), &count, &err);
    ok_or_said(status, &err);
    if (status != REEF_OK || count == 0) return;
    uint8_t first = bytes[0];
    assert(count <= sizeof(bytes));
    assert(reef_journal_read(store, SOURCE, position, bytes, 1, &less, &err) == REEF_OK);
    assert(less == 1 && bytes[0] == first);
}

static void survey(reef_store *store, reef_journal_stat *stat) {
    reef_error err;
    reef_txn *txn = NULL;
    fuzz_must(reef_txn_begin(&txn, store, REEF_TXN_READ, &err), &err);
    *stat = (reef_journal_stat){0};
    ok_or_said(reef_journal_survey(txn, SOURCE, stat, &err), &err);
    reef_txn_abort(txn);
}

static void append(reef_store *store, uint64_t cursor) {
    reef_error err;
    reef_journal_batch batch = {.source = SOURCE,
                                .cursor = cursor,
                                .bytes_max = 1 << 20,
                                .bytes = (const uint8_t *)"more\n",
                                .count = 5,
                                .id = "an id",
                                .unix_ms = 1};
    ok_or_said(reef_journal_append(store, &batch, 1, NULL, &err), &err);
}

static void trim_or_move(reef_store *store, bool moves, uint64_t to) {
    reef_error err;
    reef_txn *txn = NULL;
    fuzz_must(reef_txn_begin(&txn, store, REEF_TXN_WRITE, &err), &err);
    reef_status status = moves ? reef_journal_move(txn, SOURCE, &kept, to, &err)
                               : reef_journal_trim(txn, SOURCE, to, &err);
    ok_or_said(status, &err);
    if (status == REEF_OK)
        commit(txn);
    else
        reef_txn_abort(txn);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input = {data, size};
    reef_error err;
    reef_store *store = NULL;
    reef_txn *txn = NULL;
    reef_journal_stat stat;
    reef_check_report report;
    size_t findings = 0;
    reef_store_options options = {.create = true, .write = true, .no_sync = true};
    fuzz_must(reef_store_open(&store, pool, &options, &err), &err);
    fuzz_must(reef_txn_begin(&txn, store, REEF_TXN_WRITE, &err), &err);
    put_records(txn, &input);
    commit(txn);
    ok_or_said(reef_store_check(store,
                                &(reef_check_options){.on_damage = on_damage, .context = &findings},
                                &report, &err),
               &err);
    survey(store, &stat);
    read_journal(store, stat.begin);
    read_journal(store, stat.begin + 1);
    append(store, stat.begin);
    trim_or_move(store, true, stat.begin / 2);
    survey(store, &stat);
    read_journal(store, stat.begin);
    trim_or_move(store, false, stat.end);
    ok_or_said(reef_store_check(store,
                                &(reef_check_options){.on_damage = on_damage, .context = &findings},
                                &report, &err),
               &err);
    reef_store_close(store);
    temp_dir_remove(pool);
    return 0;
}
