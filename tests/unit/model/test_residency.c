// A pool that is larger than memory: sealed rows read in place from the map give the bits of rows
// that were copied, while the pool is trained on, grows, is evaluated and reopened.
#include "trainer_internal.h"

#include "pool.h"
#include "reef_push_journal.h"
#include "reef_snapshot.h"
#include "reef_usage.h"
#include "test.h"

// 2,304 experts of 64 floats are four blocks in the map and a shorter one that is copied.
enum { SIDE = 48, STEP_BYTES = 4 * 16, PROBE_BYTES = 300 };
#define MAP_BYTES (1u << 20) // the map must grow under a trainer that reads from it

typedef struct run {
    char directory[TEMP_DIR_BYTES], path[TEMP_DIR_BYTES];
    reef_store *store;
    reef_trainer *trainer;
    uint64_t memory_bytes;
} run;

static reef_config config_of(const char *seal_dtype) {
    reef_config config;
    reef_config_default(&config);
    static const char *const fields[][2] = {
        {"layers", "2"},         {"ffw", "pp"},
        {"d_model", "32"},       {"attention_heads", "2"},
        {"context", "16"},       {"batch", "4"},
        {"heads", "2"},          {"topk", "4"},
        {"d_key", "8"},          {"side", "48"},
        {"boundaries", "given"}, {"memory", "0"}, // what is in place or copied are rows of a net
        {"net_share", "1"},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
        must(reef_config_set(&config, fields[i][0], fields[i][1], &why));
    must(reef_config_set(&config, "seal_dtype", seal_dtype, &why));
    return config;
}

static void open_run(run *r) {
    must(reef_store_open(&r->store, r->path,
                         &(reef_store_options){.write = true, .map_bytes = MAP_BYTES}, &why));
    must(reef_trainer_open(&r->trainer, r->store,
                           &(reef_trainer_options){.threads = 2, .memory_bytes = r->memory_bytes},
                           &why));
}

static void close_run(run *r) {
    reef_trainer_close(r->trainer);
    reef_store_close(r->store);
    r->trainer = NULL;
    r->store = NULL;
}

static void make_run(run *r, const char *seal_dtype, uint64_t memory_bytes) {
    reef_config config = config_of(seal_dtype);
    *r = (run){.memory_bytes = memory_bytes};
    temp_dir_new(r->directory);
    temp_dir_join(r->path, r->directory, "pool");
    must(reef_pool_init(r->path, &config, &why));
    open_run(r);
}

static void end_run(run *r) {
    close_run(r);
    temp_dir_remove(r->directory);
}

static void write_text(uint8_t *out, size_t count, uint64_t seed, uint8_t first) {
    for (size_t i = 0; i < count; i++) out[i] = (uint8_t)(first + draw_int(&seed, 0, 7));
}

static void feed(run *r, size_t steps, uint64_t seed, uint8_t first) {
    size_t count = steps * STEP_BYTES, taken;
    uint8_t *bytes = room(count);
    write_text(bytes, count, seed, first);
    must(reef_trainer_feed(r->trainer, "test", bytes, count, &taken, NULL, &why));
    assert_int_equal(taken, count);
}

static void seal(run *r) {
    reef_status status = reef_trainer_seal(r->trainer, NULL, NULL, &why);
    // It is sealed in memory, and its rows are more than the map had room for: the map is larger
    // when the commit is begun again.
    for (int tries = 0; status == REEF_ERR_FULL && tries < 5; tries++)
        status = reef_trainer_commit(r->trainer, NULL, &why);
    must(status);
}

// Three domains, commits in between, and a stop half way.
static void train(run *r) {
    feed(r, 6, 1, 'a');
    seal(r);
    for (uint64_t n = 0; n < 4; n++) {
        feed(r, 2, 2 + n, 'A');
        must(reef_trainer_commit(r->trainer, NULL, &why));
    }
    must(reef_trainer_snapshot(r->trainer, "kept", NULL, &why));
    close_run(r);
    open_run(r);
    feed(r, 3, 6, 'A');
    seal(r);
    feed(r, 3, 7, '0');
    must(reef_trainer_commit(r->trainer, NULL, &why));
}

static void root_of(run *r, uint8_t root[REEF_HASH_BYTES]) {
    reef_commit commit;
    reef_txn *txn;
    must(reef_txn_begin(&txn, r->store, REEF_TXN_READ, &why));
    must(reef_commit_read(txn, &commit, &why));
    memcpy(root, commit.root, REEF_HASH_BYTES);
    reef_txn_abort(txn);
}

static bool is_in_place(const reef_trainer *trainer, size_t g) {
    return trainer->network.generations[g]->expert_tables[0].memory == NULL;
}

// Blocks that fill pages are read where they lie. A layer's last one may be short, and lies in the
// map at any even address: it is a copy.
static void assert_blocks_in_place(const reef_trainer *trainer, size_t g) {
    for (uint32_t l = 0; l < trainer->network.config.layers; l++) {
        const reef_expert_table *table = &trainer->network.generations[g]->expert_tables[l];
        for (size_t b = 0; b + 1 < table->block_count; b++)
            assert_int_equal((uintptr_t)table->rows.blocks[b] % 64, 0);
        assert_non_null(table->last_block);
        assert_ptr_equal(table->rows.blocks[table->block_count - 1], table->last_block);
    }
}

PLAIN_TEST(training_in_place_gives_the_bits_of_training_in_memory) {
    static const char *const dtypes[] = {"f32", "int8"};
    for (size_t n = 0; n < 2; n++) {
        run copied, in_place;
        uint8_t expected[REEF_HASH_BYTES], root[REEF_HASH_BYTES];
        make_run(&copied, dtypes[n], 0);
        make_run(&in_place, dtypes[n], 1);
        train(&copied);
        train(&in_place);
        for (size_t g = 0; g < 2; g++) {
            assert_false(is_in_place(copied.trainer, g));
            assert_true(is_in_place(in_place.trainer, g));
            assert_blocks_in_place(in_place.trainer, g);
        }
        assert_false(is_in_place(in_place.trainer, 2)); // the open one
        root_of(&copied, expected);
        root_of(&in_place, root);
        assert_memory_equal(root, expected, sizeof(root));
        end_run(&copied);
        end_run(&in_place);
    }
}

static void logits_of(run *r, const char *as_of, uint64_t memory_bytes, float *logits) {
    reef_model *model;
    uint8_t probe[PROBE_BYTES];
    write_text(probe, PROBE_BYTES / 2, 90, 'a');
    write_text(probe + PROBE_BYTES / 2, PROBE_BYTES / 2, 91, 'A');
    must(reef_model_open(&model, r->store, as_of,
                         &(reef_model_options){.threads = 2, .memory_bytes = memory_bytes}, &why));
    must(reef_model_logits(model, probe, PROBE_BYTES, logits, &why));
    reef_model_close(model);
}

static void assert_evaluation_in_place(const char *dtype) {
    static const char *const states[] = {NULL, "0", "1", "2", "kept"};
    const size_t count = PROBE_BYTES * REEF_VOCAB;
    float *expected = room(count * sizeof(*expected)), *logits = room(count * sizeof(*logits));
    run r;
    make_run(&r, dtype, 0);
    train(&r);
    for (size_t n = 0; n < sizeof(states) / sizeof(*states); n++) {
        logits_of(&r, states[n], 0, expected);
        logits_of(&r, states[n], 1, logits);
        assert_memory_equal(logits, expected, count * sizeof(*logits));
    }
    end_run(&r);
}

PLAIN_TEST(evaluation_in_place_gives_the_bits_of_a_copy) {
    assert_evaluation_in_place("f32");
    assert_evaluation_in_place("int8");
}

// A model that waits for questions ends its read, and answers the same afterwards, also after a
// commit.
PLAIN_TEST(a_model_at_rest_holds_no_read) {
    reef_model *model;
    reef_read_stat before, after;
    uint8_t probe[PROBE_BYTES];
    const size_t count = PROBE_BYTES * REEF_VOCAB;
    float *expected = room(count * sizeof(*expected)), *logits = room(count * sizeof(*logits));
    run r;
    make_run(&r, "int8", 0);
    train(&r);
    write_text(probe, PROBE_BYTES, 90, 'a');
    must(reef_model_open(&model, r.store, "1", &(reef_model_options){.memory_bytes = 1}, &why));
    must(reef_model_logits(model, probe, PROBE_BYTES, expected, &why));
    reef_store_read_stat(r.store, &before);
    reef_model_unpin(model);
    reef_store_read_stat(r.store, &after);
    assert_int_equal(after.count, before.count + 1);
    reef_model_unpin(model);
    feed(&r, 3, 8, '0');
    must(reef_trainer_commit(r.trainer, NULL, &why));
    must(reef_model_logits(model, probe, PROBE_BYTES, logits, &why));
    assert_memory_equal(logits, expected, count * sizeof(*logits));
    reef_model_close(model);
    end_run(&r);
}

// Pushed batches are in the journal once their commit is made, also if the rows in place are out of
// reach after it: the next training step reports that.
PLAIN_TEST(rows_out_of_reach_are_no_failure_of_the_journal) {
    run r;
    size_t taken;
    reef_journal_batch batch = {.source = "push:web",
                                .bytes_max = 1 << 20,
                                .bytes = (const uint8_t *)"once\n",
                                .count = 5,
                                .id = "a"};
    make_run(&r, "f32", 1);
    feed(&r, 3, 1, 'a');
    seal(&r);
    reef_generation_record *sealed = &r.trainer->network.generations[0]->info;
    sealed->generation = 99; // which the pool does not have
    must(reef_trainer_journal(r.trainer, &batch, 1, &why));
    assert_false(batch.duplicate);
    assert_int_equal(batch.position, 5);
    must_fail(reef_trainer_feed(r.trainer, "push:web", batch.bytes, 5, &taken, NULL, &why),
              REEF_ERR_NOT_FOUND, "generation 99");
    sealed->generation = 0;
    must(reef_trainer_feed(r.trainer, "push:web", batch.bytes, 5, &taken, NULL, &why));
    assert_int_equal(taken, 5);
    must(reef_trainer_journal(r.trainer, &batch, 1, &why));
    assert_true(batch.duplicate);
    end_run(&r);
}

static reef_status write_nothing(void *context, reef_txn *txn, reef_error *err) {
    return REEF_OK;
}

// So it is with all that is committed: told as a failure it would be done again.
PLAIN_TEST(rows_out_of_reach_are_no_failure_of_a_commit) {
    run r;
    size_t taken;
    reef_commit first, second;
    reef_snapshot snapshot;
    char name[1][REEF_NAME_BYTES_MAX + 1] = {"kept"};
    reef_usage_compaction compaction;
    make_run(&r, "f32", 1);
    feed(&r, 3, 1, 'a');
    seal(&r);
    must(reef_trainer_commit(r.trainer, &first, &why));
    reef_generation_record *sealed = &r.trainer->network.generations[0]->info;
    sealed->generation = 99; // which the pool does not have
    must(reef_trainer_commit(r.trainer, &second, &why));
    assert_int_equal(second.number, first.number + 1);
    must(reef_trainer_write(r.trainer, write_nothing, NULL, &why));
    must(reef_trainer_compact(r.trainer, &compaction, &why));
    must(reef_trainer_snapshot(r.trainer, "kept", &snapshot, &why));
    must(reef_trainer_snapshots_remove(r.trainer, name, 1, &why));
    must_fail(reef_trainer_feed(r.trainer, "text", (const uint8_t *)"on\n", 3, &taken, NULL, &why),
              REEF_ERR_NOT_FOUND, "generation 99");
    must_fail(reef_trainer_seal(r.trainer, NULL, NULL, &why), REEF_ERR_NOT_FOUND, "generation 99");
    sealed->generation = 0;
    feed(&r, 3, 1, 'b');
    seal(&r);
    end_run(&r);
}

// What does not fit half of the memory is not copied: 2 layers of 2,304 rows of 64 values and a
// scale.
PLAIN_TEST(what_fits_is_copied) {
    const uint64_t row_bytes = (uint64_t)2 * SIDE * SIDE * (REEF_I8_SCALE_BYTES + 64);
    run r;
    make_run(&r, "int8", 2 * row_bytes);
    feed(&r, 3, 1, 'a');
    seal(&r);
    assert_false(is_in_place(r.trainer, 0));
    feed(&r, 3, 2, 'A');
    seal(&r); // one generation more than there is room for
    assert_true(is_in_place(r.trainer, 0) && is_in_place(r.trainer, 1));
    feed(&r, 3, 3, '0');
    end_run(&r);
}

PLAIN_TEST(memory_is_read_as_people_write_it) {
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"1", 1},
                {"1000000", 1000000},
                {"3K", 3072},
                {"64M", (uint64_t)64 << 20},
                {"3k", 3072},
                {"64m", (uint64_t)64 << 20},
                {"2g", (uint64_t)2 << 30},
                {"1t", (uint64_t)1 << 40},
                {"2G", (uint64_t)2 << 30},
                {"16777215T", (uint64_t)16777215 << 40}};
    static const char *const bad[] = {
        "",     "0", "-1", " 1",  "+1", "2gb",       "2GB",
        "1.5G", "G", "x",  "1 G", "0K", "16777216t", "99999999999999999999"};
    uint64_t bytes;
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        must(reef_memory_parse(good[i].text, &bytes, &why));
        assert_true(bytes == good[i].bytes);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        must_fail(reef_memory_parse(bad[i], &bytes, &why), REEF_ERR_INVALID, "such as 2G");
}

RUN_TESTS
