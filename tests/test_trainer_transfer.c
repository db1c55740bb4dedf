// Generations that leave one pool as a file and join another: what they compute stays the same to the bit,
// training goes on from there as from any commit, and a file that is not what it says changes nothing.
#include "draw.h"
#include "generation_file.h"
#include "learner.h"
#include "lifelong.h"
#include "small_disk.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define TEXT_BYTES 6000

static const reef_import_options DRY = {.dry_run = true};

// Two pools that were one until generation 0 was sealed.
typedef struct pair {
    lifelong *a, *b;
    char file[TEMP_DIR_BYTES], other[TEMP_DIR_BYTES]; // two places for files
} pair;

static reef_config tiny_config(void) {
    reef_config config = lifelong_config();
    config.side_new = 5;
    config.gate_decay = 0.9f;
    choose(&config, "boundaries", "given");
    return config;
}

static int setup(void **state) {
    pair *p = calloc(1, sizeof *p);
    assert_non_null(p);
    lifelong_setup((void **)&p->a);
    lifelong_setup((void **)&p->b);
    p->a->config = tiny_config();
    temp_dir_join(p->file, p->a->dir, "one.safetensors");
    temp_dir_join(p->other, p->a->dir, "two.safetensors");
    *state = p;
    return 0;
}

static int teardown(void **state) {
    pair *p = *state;
    lifelong_teardown((void **)&p->a);
    lifelong_teardown((void **)&p->b);
    free(p);
    return 0;
}

static void seal(lifelong *f) {
    reef_error err;
    ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
}

static void learn(lifelong *f, int kind) {
    feed_kind(f, kind, TEXT_BYTES, 1);
    seal(f);
}

static void export_one(lifelong *f, uint32_t generation, const char *path) {
    reef_error err;
    ok(reef_generation_export(f->store, generation, path, NULL, NULL, &err), &err);
}

static reef_import import_one(lifelong *f, const char *path) {
    reef_error err;
    reef_import import;
    ok(reef_trainer_import(f->trainer, path, NULL, &import, &err), &err);
    return import;
}

// Both know kind 0; a has learned kind 1 since, as generation 1, which is in the file. Both are open.
static void start(pair *p) {
    reef_error err;
    make_pool(p->a, 1);
    learn(p->a, 0);
    ok(reef_store_copy(p->a->store, p->b->pool, NULL, &err), &err);
    learn(p->a, 1);
    export_one(p->a, 1, p->file);
    open_pool(p->b, 1);
}

static reef_commit last_commit(lifelong *f) {
    reef_error err;
    reef_commit out;
    reef_txn *txn = NULL;
    ok(reef_txn_begin(&txn, f->store, REEF_TXN_READ, &err), &err);
    ok(reef_commit_read(txn, &out, &err), &err);
    reef_txn_abort(txn);
    return out;
}

static bool same_logits(
    reef_store *one, const char *one_as_of, reef_store *other, const char *other_as_of, int kind) {
    float *x = new_logits(), *y = new_logits();
    logits_of(one, one_as_of, kind, x);
    logits_of(other, other_as_of, kind, y);
    bool same = memcmp(x, y, (size_t)LIFELONG_PROBE_BYTES * REEF_VOCAB * sizeof *x) == 0;
    free(x);
    free(y);
    return same;
}

// Share of a kind's bytes on which a generation fires.
static double fires(lifelong *f, uint32_t generation, int kind) {
    reef_error err;
    reef_model *model = NULL;
    uint8_t text[2000];
    double shares[16] = {0};
    reef_score score = {.fire_share = shares};
    lifelong_text(text, sizeof text, kind, 77);
    ok(reef_model_open(&model, f->store, NULL, &(reef_model_options){.threads = 1}, &err), &err);
    assert_true(reef_model_generation_count(model) <= 16);
    ok(reef_model_score(model, text, sizeof text, NULL, &score, NULL, NULL, &err), &err);
    reef_model_close(model);
    return shares[generation];
}

// ---- the same bits -------------------------------------------------------------------------------

static void assert_imports_to_the_bit(pair *p) {
    start(p);
    assert_false(same_logits(p->a->store, NULL, p->b->store, NULL, 1));
    float *before = new_logits(), *after = new_logits();
    logits_of(p->b->store, "0", 0, before);
    const reef_generation open = generation_of(p->b, 1);
    assert_false(open.sealed);
    assert_true(times_said(p->b, "\"event\": \"import\"") == 0);

    reef_import import = import_one(p->b, p->file);
    assert_int_equal(import.generation, 1);
    assert_int_equal(import.open, 2);
    assert_int_equal(import.file.info.generation, 1);
    assert_int_equal(import.file.builds_on, 1);
    assert_true(times_said(p->b, "\"event\": \"import\"") == 1);
    assert_true(same_logits(p->a->store, NULL, p->b->store, NULL, 1));
    assert_true(same_logits(p->a->store, "1", p->b->store, "1", 1));
    assert_true(same_logits(p->a->store, NULL, p->b->store, NULL, 0));
    assert_true(fires(p->b, 1, 1) > 0.9);
    logits_of(p->b->store, "0", 0, after);
    assert_memory_equal(before, after, (size_t)LIFELONG_PROBE_BYTES * REEF_VOCAB * sizeof *before);
    free(before);
    free(after);

    const reef_generation theirs = generation_of(p->a, 1), ours = generation_of(p->b, 1);
    assert_memory_equal(ours.root, theirs.root, REEF_HASH_BYTES);
    assert_true(ours.sealed);
    assert_int_equal(ours.dtype, theirs.dtype);
    assert_int_equal(ours.side, theirs.side);
    assert_int_equal(ours.first_id, open.first_id);
    assert_int_equal(import.first_id, open.first_id);
    const reef_generation next = generation_of(p->b, 2);
    assert_false(next.sealed);
    assert_int_equal(next.parent, 1);
    assert_int_equal(next.side, open.side);
    assert_int_equal(next.first_id, ours.first_id + (uint64_t)ours.side * ours.side);
    assert_sound(p->b);
}

static void another_pool_computes_the_same_bits(void **state) {
    assert_imports_to_the_bit(*state);
}

// Rows of bf16 with a third vector, dense blocks with corrections of their own.
static void and_with_every_kind_of_tensor(void **state) {
    pair *p = *state;
    choose(&p->a->config, "ffw", "pd");
    choose(&p->a->config, "d_ffw", "24");
    choose(&p->a->config, "expert", "glu");
    choose(&p->a->config, "seal_dtype", "bf16");
    choose(&p->a->config, "adapt_ffw", "true");
    assert_imports_to_the_bit(p);
    export_one(p->a, 0, p->other); // whose tensors are those of the backbone
}

// A grid that is smaller than that of the open generation leaves no block of it behind.
static void an_imported_generation_may_be_smaller_than_the_open_one(void **state) {
    pair *p = *state;
    p->a->config.side_new = 3;
    start(p);
    close_pool(p->b);
    open_pool(p->b, 1);
    reef_error err;
    ok(reef_trainer_grow(p->b->trainer, 70, &err), &err); // of several blocks
    reef_import import = import_one(p->b, p->file);
    assert_int_equal(import.file.info.side, 3);
    assert_int_equal(generation_of(p->b, 2).side, 70);
    assert_memory_equal(generation_of(p->b, 1).root, import.file.info.root, REEF_HASH_BYTES);
    assert_true(same_logits(p->a->store, NULL, p->b->store, NULL, 1));
    assert_sound(p->b);
}

static uint8_t *load(const char *path, size_t *bytes) {
    struct stat info;
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(stat(path, &info), 0);
    uint8_t *data = malloc((size_t)info.st_size + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)info.st_size, file), info.st_size);
    fclose(file);
    *bytes = (size_t)info.st_size;
    return data;
}

static void save(const char *path, const void *data, size_t bytes) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static size_t header_bytes(const uint8_t *data) {
    size_t bytes = 0;
    for (size_t i = 8; i > 0; i--) bytes = bytes << 8 | data[i - 1];
    return bytes;
}

// Where the pool has learned something itself: another number, the same content.
static void under_another_number_it_is_the_same_generation(void **state) {
    pair *p = *state;
    start(p);
    learn(p->b, 2);
    reef_import import = import_one(p->b, p->file);
    assert_int_equal(import.generation, 2);
    assert_int_equal(import.open, 3);
    assert_true(fires(p->b, 2, 1) > 0.9);
    export_one(p->b, 2, p->other);
    size_t first, second;
    uint8_t *one = load(p->file, &first), *two = load(p->other, &second);
    size_t one_at = 8 + header_bytes(one), two_at = 8 + header_bytes(two);
    assert_int_equal(first - one_at, second - two_at);
    assert_memory_equal(one + one_at, two + two_at, first - one_at);
    free(one);
    free(two);
    assert_sound(p->b);
    // And so it comes home again: to the pool that it was made in, as another one.
    reef_error err;
    assert_int_equal(reef_trainer_import(p->a->trainer, p->file, &DRY, &import, &err),
                     REEF_INVALID);
    assert_non_null(strstr(err.message, "of this very pool"));
}

// Its gate was fitted on kinds 0 and 1, and takes kind 2 for the newer: here that would be in the way.
static void a_stricter_gate_leaves_what_the_pool_has_learned(void **state) {
    pair *p = *state;
    reef_error err;
    reef_import import;
    start(p);
    learn(p->b, 2);
    float *before = new_logits(), *after = new_logits();
    logits_of(p->b->store, NULL, 2, before);
    ok(reef_trainer_import(p->b->trainer, p->file, &DRY, &import, &err), &err);
    assert_true(import.leak > 0.2);
    assert_true(import.leak_now == import.leak);
    const reef_import_options strict = {.leak_max = 0.01};
    ok(reef_trainer_import(p->b->trainer, p->file, &strict, &import, &err), &err);
    assert_true(import.leak > 0.2);
    assert_true(import.leak_now <= 0.01);
    assert_true(times_said(p->b, "\"leak_now\": 0.00") == 1);
    assert_true(fires(p->b, 2, 1) > 0.9);
    assert_true(fires(p->b, 2, 2) < 0.1);
    assert_true(fires(p->b, 2, 0) < 0.1);
    assert_memory_not_equal(generation_of(p->b, 2).root, import.file.info.root, REEF_HASH_BYTES);
    logits_of(p->b->store, "1", 2, after);
    assert_memory_equal(before, after, (size_t)LIFELONG_PROBE_BYTES * REEF_VOCAB * sizeof *before);
    free(before);
    free(after);
    assert_sound(p->b);
}

static void it_may_stay_where_it_lies_in_the_map(void **state) {
    pair *p = *state;
    reef_error err;
    start(p);
    close_pool(p->b);
    ok(reef_store_open(&p->b->store, p->b->pool, &(reef_store_options){.write = true}, &err), &err);
    const reef_trainer_options small = {.threads = 1, .memory_bytes = 1};
    ok(reef_trainer_open(&p->b->trainer, p->b->store, &small, &err), &err);
    import_one(p->b, p->file);
    feed_kind(p->b, 2, TEXT_BYTES, 1);
    reef_commit in_place = commit(p->b);

    reef_trainer_close(p->b->trainer);
    p->b->trainer = NULL;
    assert_true(same_logits(p->a->store, "1", p->b->store, "1", 1));
    reef_store_close(p->b->store);
    p->b->store = NULL;
    temp_dir_remove(p->b->pool);
    // The same again, all in memory.
    close_pool(p->a);
    temp_dir_remove(p->a->pool);
    p->a->said[0] = '\0';
    make_pool(p->a, 1);
    learn(p->a, 0);
    import_one(p->a, p->file);
    feed_kind(p->a, 2, TEXT_BYTES, 1);
    assert_memory_equal(commit(p->a).root, in_place.root, REEF_HASH_BYTES);
}

// With more than one generation at a time it was trained on top of older ones as well.
static void where_several_fire_all_older_ones_must_be_there(void **state) {
    pair *p = *state;
    reef_error err;
    reef_import import;
    p->a->config.fire_max = 2;
    start(p);
    learn(p->a, 2);
    export_one(p->a, 2, p->other);
    assert_int_equal(reef_trainer_import(p->b->trainer, p->other, NULL, &import, &err),
                     REEF_INVALID);
    assert_non_null(strstr(err.message, "does not have"));
    assert_int_equal(import_one(p->b, p->file).file.builds_on, 1);
    assert_int_equal(import_one(p->b, p->other).file.builds_on, 2);
    for (int kind = 0; kind < 3; kind++)
        assert_true(same_logits(p->a->store, NULL, p->b->store, NULL, kind));
    assert_sound(p->b);
}

static void one_in_between_is_refused_where_it_would_count(void **state) {
    pair *p = *state;
    reef_error err;
    reef_import import;
    p->a->config.fire_max = 2;
    start(p);
    learn(p->a, 2);
    export_one(p->a, 2, p->other);
    import_one(p->b, p->file);
    learn(p->b, 3);
    assert_int_equal(reef_trainer_import(p->b->trainer, p->other, NULL, &import, &err),
                     REEF_INVALID);
    assert_non_null(strstr(err.message, "directly on top of generation 1"));
}

// ---- training goes on ----------------------------------------------------------------------------

static void training_goes_on_as_from_any_commit(void **state) {
    pair *p = *state;
    reef_error err;
    start(p);
    close_pool(p->a);
    temp_dir_remove(p->a->pool);
    ok(reef_store_copy(p->b->store, p->a->pool, NULL, &err), &err); // two that import
    p->a->said[0] = '\0';
    open_pool(p->a, 1);
    import_one(p->a, p->file);
    import_one(p->b, p->file);
    assert_memory_equal(last_commit(p->a).root, last_commit(p->b).root, REEF_HASH_BYTES);
    feed_kind(p->a, 2, TEXT_BYTES, 1);
    seal(p->a);
    feed_kind(p->a, 3, 1000, 1);

    close_pool(p->b); // this one with a restart after each, and other threads
    open_pool(p->b, 2);
    feed_kind(p->b, 2, TEXT_BYTES, 1);
    commit(p->b);
    close_pool(p->b);
    open_pool(p->b, 1);
    seal(p->b);
    feed_kind(p->b, 3, 1000, 1);
    assert_memory_equal(commit(p->a).root, commit(p->b).root, REEF_HASH_BYTES);
    assert_int_equal(status_of(p->b).generation, 3);
    assert_sound(p->b);
}

// ---- what a file holds ---------------------------------------------------------------------------

typedef struct sum {
    const uint8_t *data;
    size_t at;
} sum;

static reef_status on_record(void *context,
                             const reef_key *key,
                             const reef_view *view,
                             reef_error *err) {
    (void)key, (void)err;
    sum *s = context;
    assert_memory_equal(s->data + s->at, view->data, view->bytes);
    s->at += view->bytes;
    return REEF_OK;
}

static void a_file_holds_the_records_and_nothing_else(void **state) {
    pair *p = *state;
    reef_error err;
    start(p);
    size_t bytes;
    uint8_t *data = load(p->file, &bytes);
    size_t header = header_bytes(data), at = 0;
    assert_int_equal(header % 8, 0);
    json_t *json = json_loadb((const char *)data + 8, header, 0, NULL);
    assert_non_null(json);
    const char *name;
    json_t *tensor;
    json_object_foreach(json, name, tensor) {
        json_int_t begin, end;
        if (strcmp(name, "__metadata__") == 0) continue;
        assert_int_equal(
            json_unpack(json_object_get(tensor, "data_offsets"), "[I, I]", &begin, &end), 0);
        assert_int_equal(begin, at);
        at = (size_t)end;
    }
    assert_int_equal(8 + header + at, bytes);

    // Two layers of 25 experts with w_down and w_up of 16.
    json_int_t rows, columns;
    const char *dtype;
    assert_int_equal(json_unpack(json_object_get(json, "block1.experts"), "{s:s, s:[I, I]}",
                                 "dtype", &dtype, "shape", &rows, &columns),
                     0);
    assert_string_equal(dtype, "F32");
    assert_int_equal(rows, 25);
    assert_int_equal(columns, 32);
    const json_t *metadata = json_object_get(json, "__metadata__");
    const char *const texts[][2] = {{"format", "reef.generation"},
                                    {"format_version", "1"},
                                    {"generation", "1"},
                                    {"parent", "0"},
                                    {"side", "5"},
                                    {"dtype", "f32"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_string_equal(json_string_value(json_object_get(metadata, texts[i][0])), texts[i][1]);
    char root[2 * REEF_HASH_BYTES + 1];
    reef_hash_format(generation_of(p->a, 1).root, root);
    assert_string_equal(json_string_value(json_object_get(metadata, "root")), root);
    reef_hash_format(generation_of(p->a, 0).root, root);
    assert_non_null(strstr(json_string_value(json_object_get(metadata, "builds_on")), root));

    static const reef_db parts[] = {REEF_DB_TENSORS, REEF_DB_EXPERTS, REEF_DB_FLAGS};
    sum s = {.data = data + 8 + header};
    reef_txn *txn = NULL;
    ok(reef_txn_begin(&txn, p->a->store, REEF_TXN_READ, &err), &err);
    for (size_t i = 0; i < 3; i++)
        ok(reef_record_scan(txn, parts[i], 1, on_record, &s, &err), &err);
    reef_txn_abort(txn);
    assert_int_equal(8 + header + s.at, bytes);
    json_decref(json);
    free(data);
}

// ---- what is refused -----------------------------------------------------------------------------

static void assert_refused(lifelong *f, const char *path, reef_status expected, const char *words) {
    reef_error err = {0};
    reef_import import;
    const reef_commit before = last_commit(f);
    for (int dry = 0; dry < 2; dry++) {
        reef_status status =
            reef_trainer_import(f->trainer, path, dry == 1 ? &DRY : NULL, &import, &err);
        if (status != expected || strstr(err.message, words) == NULL)
            fail_msg("%s instead of %s, \"%s\": %s", reef_status_text(status),
                     reef_status_text(expected), words, err.message);
    }
    assert_int_equal(last_commit(f).number, before.number);
    assert_int_equal(f->trainer->net.gen_count, status_of(f).generation + 1);
}

static void a_file_of_another_pool_is_refused(void **state) {
    pair *p = *state;
    start(p);
    assert_refused(p->b, p->other, REEF_NOT_FOUND, "No such file");
    assert_refused(p->b, p->a->dir, REEF_INVALID, "no file");
    export_one(p->a, 0, p->other);
    assert_refused(p->b, p->other, REEF_INVALID, "copy the whole pool");

    feed_kind(p->b, 2, 1000, 1); // it has trained
    commit(p->b);
    assert_refused(p->b, p->file, REEF_INVALID, "seal it first");
    close_pool(p->b);
    temp_dir_remove(p->b->pool);

    p->b->config = p->a->config;
    make_pool(p->b, 1);
    assert_refused(p->b, p->file, REEF_INVALID, "generation 0 of the pool is still open");
    learn(p->b, 4); // the same configuration, another backbone
    assert_refused(p->b, p->file, REEF_INVALID, "does not have: only pools that were one");
    close_pool(p->b);
    temp_dir_remove(p->b->pool);

    choose(&p->b->config, "topk", "3");
    make_pool(p->b, 1);
    learn(p->b, 0);
    assert_refused(p->b, p->file, REEF_INVALID, "topk 2, this one was made with 3");
}

static void no_more_than_there_is_room_for(void **state) {
    pair *p = *state;
    p->a->config.experts_max = 2 * (36 + 25 + 25);
    start(p);
    learn(p->b, 2);
    assert_refused(p->b, p->file, REEF_FULL, "experts_max 172");
}

static void other_strategies_import_nothing(void **state) {
    pair *p = *state;
    start(p);
    close_pool(p->b);
    temp_dir_remove(p->b->pool);
    p->b->config = p->a->config;
    choose(&p->b->config, "strategy", "finetune");
    make_pool(p->b, 1);
    assert_refused(p->b, p->file, REEF_INVALID, "keeps one generation");
}

static void what_cannot_be_exported_is_named(void **state) {
    pair *p = *state;
    reef_error err;
    const struct {
        uint32_t generation;
        const char *path;
        reef_status status;
        const char *words;
    } cases[] = {
        {2, p->other, REEF_INVALID, "is open"},
        {3, p->other, REEF_NOT_FOUND, "no generation 3"},
        {1, p->file, REEF_INVALID, "--force"},
        {1, p->a->dir, REEF_INVALID, "no file"},
        {1, "/nowhere/at/all", REEF_NOT_FOUND, "No such file"},
    };
    start(p);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        reef_status status = reef_generation_export(p->a->store, cases[i].generation, cases[i].path,
                                                    NULL, NULL, &err);
        if (status != cases[i].status || strstr(err.message, cases[i].words) == NULL)
            fail_msg("%zu: %s: %s", i, reef_status_text(status), err.message);
    }
    assert_int_not_equal(access(p->other, F_OK), 0);
    char part[TEMP_DIR_BYTES + 8];
    snprintf(part, sizeof part, "%s.part", p->other);
    save(part, "rest", 4); // short enough to be the beginning of one
    ok(reef_generation_export(p->a->store, 1, p->other, NULL, NULL, &err), &err);
    assert_int_not_equal(access(part, F_OK), 0);
    save(p->other, "old", 3);
    ok(reef_generation_export(p->a->store, 1, p->other, &(reef_export_options){.force = true}, NULL,
                              &err),
       &err);
    import_one(p->b, p->other);
    assert_int_not_equal(access(part, F_OK), 0);
}

static char *read_file(const char *path, size_t *bytes) {
    struct stat info;
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &info), 0);
    char *data = malloc((size_t)info.st_size);
    assert_non_null(data);
    *bytes = fread(data, 1, (size_t)info.st_size, file);
    assert_int_equal(*bytes, info.st_size);
    assert_int_equal(fclose(file), 0);
    return data;
}

static void what_a_killed_export_left_is_written_over_and_nothing_else(void **state) {
    pair *p = *state;
    reef_error err;
    size_t bytes, again;
    char part[TEMP_DIR_BYTES + 8];
    start(p);
    snprintf(part, sizeof part, "%s.part", p->other);
    char *whole = read_file(p->file, &bytes);
    whole = realloc(whole, 2 * bytes); // a longer one of another generation
    assert_non_null(whole);
    memcpy(whole + bytes, whole, bytes);
    const size_t lengths[] = {0, 1, 8, 9, 20, bytes / 2, bytes, 2 * bytes};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        save(part, whole, lengths[i]);
        ok(reef_generation_export(p->a->store, 1, p->other, NULL, NULL, &err), &err);
        char *written = read_file(p->other, &again);
        assert_int_equal(again, bytes);
        assert_memory_equal(written, whole, bytes);
        assert_int_not_equal(access(part, F_OK), 0);
        assert_int_equal(unlink(p->other), 0);
        free(written);
    }
    // Somebody else's file, and one that is being written.
    save(part, "a letter to somebody", 20);
    assert_int_equal(reef_generation_export(p->a->store, 1, p->other, NULL, NULL, &err),
                     REEF_INVALID);
    assert_non_null(strstr(err.message, "was not left by an export"));
    save(part, whole, 100);
    int fd = open(part, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && flock(fd, LOCK_EX) == 0);
    assert_int_equal(reef_generation_export(p->a->store, 1, p->other, NULL, NULL, &err),
                     REEF_INVALID);
    assert_non_null(strstr(err.message, "another export is writing"));
    char *kept = read_file(part, &again);
    assert_int_equal(again, 100);
    close(fd);
    assert_int_equal(unlink(part), 0);
    assert_int_equal(symlink(p->file, part), 0);
    assert_true(reef_generation_export(p->a->store, 1, p->other, NULL, NULL, &err) != REEF_OK);
    free(kept);
    kept = read_file(p->file, &again);
    assert_int_equal(again, bytes);
    assert_int_equal(unlink(part), 0);
    free(kept);
    free(whole);
}

static int records_until_stop;

static bool stop_soon(void) {
    return records_until_stop-- == 0;
}

static void a_stopped_export_leaves_nothing(void **state) {
    pair *p = *state;
    reef_error err;
    char part[TEMP_DIR_BYTES + 8];
    start(p);
    snprintf(part, sizeof part, "%s.part", p->other);
    for (int records = 0; records < 6; records++) {
        records_until_stop = records;
        assert_int_equal(reef_generation_export(p->a->store, 1, p->other,
                                                &(reef_export_options){.stopped = stop_soon}, NULL,
                                                &err),
                         REEF_BUSY);
        assert_int_not_equal(access(part, F_OK), 0);
        assert_int_not_equal(access(p->other, F_OK), 0);
    }
}

static void vectors_stay_where_they_are(void **state) {
    pair *p = *state;
    reef_error err;
    reef_import import;
    reef_config config;
    start(p);
    close_pool(p->b);
    temp_dir_remove(p->b->pool);
    reef_config_default(&config);
    choose(&config, "model", "vector");
    choose(&config, "inputs", "4");
    choose(&config, "side", "4");
    p->b->config = config;
    make_pool(p->b, 1);
    assert_int_equal(reef_generation_export(p->b->store, 0, p->other, NULL, NULL, &err),
                     REEF_INVALID);
    assert_non_null(strstr(err.message, "vector model"));
    assert_int_equal(reef_trainer_import(p->b->trainer, p->file, NULL, &import, &err),
                     REEF_INVALID);
    assert_non_null(strstr(err.message, "vector model"));
}

// ---- damaged files -------------------------------------------------------------------------------

static void cut_and_flipped_files_are_refused(void **state) {
    pair *p = *state;
    reef_error err;
    reef_import import;
    start(p);
    const reef_commit before = last_commit(p->b);
    size_t bytes;
    uint8_t *data = load(p->file, &bytes);
    size_t header = 8 + header_bytes(data);
    const size_t cuts[] = {0, 1, 7, 8, 9, header - 1, header, header + 1, bytes / 2, bytes - 1};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        save(p->other, data, cuts[i]);
        assert_refused(p->b, p->other, REEF_CORRUPT, "safetensors");
    }
    uint8_t *longer = calloc(bytes + 1, 1);
    memcpy(longer, data, bytes);
    save(p->other, longer, bytes + 1);
    assert_refused(p->b, p->other, REEF_CORRUPT, "longer than its tensors");
    free(longer);
    // One bit anywhere: in a length, a name, a digit, a root, a weight. Spaces and member order have some play.
    uint64_t draw = 5;
    for (int i = 0; i < 150; i++) {
        size_t place = (size_t)draw_bits(&draw) % (i % 2 == 0 ? header : bytes);
        uint8_t bit = (uint8_t)(1u << draw_bits(&draw) % 8);
        if (place >= 8 && place < header && data[place] == ' ') continue;
        data[place] ^= bit;
        save(p->other, data, bytes);
        reef_status status = reef_trainer_import(p->b->trainer, p->other, &DRY, &import, &err);
        // Words about its past decide nothing.
        if (status == REEF_OK && place >= header) fail_msg("bit at %zu went unnoticed", place);
        if (status != REEF_OK) assert_true(strlen(err.message) > 0);
        data[place] ^= bit;
    }
    save(p->other, data, bytes);
    free(data);
    assert_int_equal(last_commit(p->b).number, before.number);
    import_one(p->b, p->other);
    assert_true(same_logits(p->a->store, NULL, p->b->store, NULL, 1));
}

// The file with another header before the same data.
static void write_header(const pair *p, const char *header) {
    size_t bytes, length = strlen(header);
    uint8_t *data = load(p->file, &bytes);
    size_t at = 8 + header_bytes(data);
    uint8_t *out = calloc(8 + length + bytes - at, 1);
    assert_non_null(out);
    for (size_t i = 0; i < 8; i++) out[i] = (uint8_t)(length >> (8 * i));
    memcpy(out + 8, header, length);
    memcpy(out + 8 + length, data + at, bytes - at);
    save(p->other, out, 8 + length + bytes - at);
    free(out);
    free(data);
}

static json_t *header_of(const pair *p) {
    size_t bytes;
    uint8_t *data = load(p->file, &bytes);
    json_t *json = json_loadb((const char *)data + 8, header_bytes(data), 0, NULL);
    free(data);
    assert_non_null(json);
    return json;
}

// Each a change of the header: set tensor or metadata `name` to `value` (NULL: remove it).
static void headers_that_lie_are_refused(void **state) {
    pair *p = *state;
    static const struct {
        const char *where, *name, *value;
        reef_status status;
        const char *words;
    } lies[] = {
        {"gate", "data_offsets", "[0, 28]", REEF_CORRUPT, "overlaps"},
        {"gate", "data_offsets", "[-28, 0]", REEF_CORRUPT, "outside"},
        {"gate", "data_offsets", "[28, 0]", REEF_CORRUPT, "outside"},
        {"gate", "data_offsets", "[0, 99999999999]", REEF_CORRUPT, "outside"},
        {"gate", "data_offsets", "[0]", REEF_CORRUPT, "more or less"},
        {"gate", "data_offsets", "[0, 28, 3]", REEF_CORRUPT, "more or less"},
        {"gate", "dtype", "\"F64\"", REEF_CORRUPT, "none of F32"},
        {"gate", "dtype", "7", REEF_CORRUPT, "more or less"},
        {"gate", "shape", "[8]", REEF_CORRUPT, "another size"},
        {"gate", "shape", "[-7]", REEF_CORRUPT, "no known shape"},
        {"gate", "shape", "7", REEF_CORRUPT, "no known shape"},
        {"gate", "shape", "[1, 1, 1, 1, 7]", REEF_CORRUPT, "no known shape"},
        {"gate", "shape", "[4294967296, 4294967296]", REEF_CORRUPT, "another size"},
        {"gate", "shape", "[7, 1]", REEF_CORRUPT, "another type or shape"},
        {"gate", "more", "1", REEF_CORRUPT, "more or less"},
        {"gate", "shape", NULL, REEF_CORRUPT, "more or less"},
        {"block0.flags", "dtype", "\"F32\"", REEF_CORRUPT, "another size"},
        {"block1.experts", "shape", "[32, 25]", REEF_CORRUPT, "another type or shape"},
        {NULL, "gate", NULL, REEF_CORRUPT, "gap"},
        {NULL, "block1.flags", NULL, REEF_CORRUPT, "longer than its tensors"},
        {NULL, "extra", "{\"dtype\": \"U8\", \"shape\": [0], \"data_offsets\": [0, 0]}",
         REEF_CORRUPT, "tensors, such a generation has"},
        {NULL, "", "{\"dtype\": \"U8\", \"shape\": [0], \"data_offsets\": [0, 0]}", REEF_CORRUPT,
         "no name"},
        {NULL, "gate", "[]", REEF_CORRUPT, "more or less"},
        {NULL, "__metadata__", "[]", REEF_CORRUPT, "no object of texts"},
        {NULL, "__metadata__", "{\"a\": 1}", REEF_CORRUPT, "no object of texts"},
        {NULL, "__metadata__", NULL, REEF_INVALID, "not of a generation"},
        {"__metadata__", "format", "\"pt\"", REEF_INVALID, "not of a generation"},
        {"__metadata__", "format_version", "\"2\"", REEF_VERSION, "format version 2"},
        {"__metadata__", "format_version", "\"x\"", REEF_CORRUPT, "lacks format_version"},
        {"__metadata__", "generation", "\"0\"", REEF_CORRUPT, "builds_on"},
        {"__metadata__", "generation", "\"2\"", REEF_CORRUPT, "another root"},
        {"__metadata__", "generation", "\"65536\"", REEF_CORRUPT, "lacks generation"},
        {"__metadata__", "generation", "\"-1\"", REEF_CORRUPT, "lacks generation"},
        {"__metadata__", "side", "\"0\"", REEF_CORRUPT, "lacks side"},
        {"__metadata__", "side", "\"1\"", REEF_CORRUPT, "no room"},
        {"__metadata__", "side", "\"6\"", REEF_CORRUPT, "another type or shape"},
        {"__metadata__", "side", "\"65535\"", REEF_CORRUPT, "no room"},
        {"__metadata__", "side", "\"99999999999999999999999\"", REEF_CORRUPT, "lacks side"},
        {"__metadata__", "dtype", "\"f16\"", REEF_CORRUPT, "lacks dtype"},
        {"__metadata__", "dtype", "\"bf16\"", REEF_CORRUPT, "another type or shape"},
        {"__metadata__", "sealed_at", NULL, REEF_CORRUPT, "lacks sealed_at"},
        {"__metadata__", "root", "\"00\"", REEF_CORRUPT, "lacks root"},
        {"__metadata__", "root", "\"00000000000000000000000000000000\"", REEF_CORRUPT,
         "another root"},
        {"__metadata__", "builds_on", "\"[]\"", REEF_CORRUPT, "builds_on"},
        {"__metadata__", "builds_on", "\"[1]\"", REEF_CORRUPT, "builds_on"},
        {"__metadata__", "builds_on", "\"no\"", REEF_CORRUPT, "builds_on"},
        {"__metadata__", "builds_on", "\"[\\\"00000000000000000000000000000000\\\"]\"",
         REEF_INVALID, "does not have"},
        {"__metadata__", "configuration", "\"{}\"", REEF_CORRUPT, "configuration"},
        {"__metadata__", "configuration", NULL, REEF_CORRUPT, "lacks configuration"},
    };
    start(p);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        json_t *header = header_of(p);
        json_t *where = lies[i].where == NULL ? header : json_object_get(header, lies[i].where);
        assert_non_null(where);
        if (lies[i].value == NULL) {
            assert_int_equal(json_object_del(where, lies[i].name), 0);
        } else {
            json_t *value = json_loads(lies[i].value, JSON_DECODE_ANY, NULL);
            assert_non_null(value);
            assert_int_equal(json_object_set_new(where, lies[i].name, value), 0);
        }
        char *text = json_dumps(header, 0);
        write_header(p, text);
        free(text);
        json_decref(header);
        assert_refused(p->b, p->other, lies[i].status, lies[i].words);
    }
    write_header(p, "no json");
    assert_refused(p->b, p->other, REEF_CORRUPT, "no JSON");
    write_header(p, "[]");
    assert_refused(p->b, p->other, REEF_CORRUPT, "no JSON object");
    write_header(p, "{\"a\": {}, \"a\": {}}");
    assert_refused(p->b, p->other, REEF_CORRUPT, "duplicate");
    save(p->other, "\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10);
    assert_refused(p->b, p->other, REEF_CORRUPT, "larger than");
    import_one(p->b, p->file); // as it is, it is taken
}

// Another program may have written the same tensors in another order.
static void the_order_of_tensors_does_not_matter(void **state) {
    pair *p = *state;
    start(p);
    size_t bytes;
    uint8_t *data = load(p->file, &bytes);
    size_t at = 8 + header_bytes(data), to = 0;
    json_t *header = header_of(p), *turned = json_object(), *tensor;
    uint8_t *moved = malloc(bytes);
    assert_non_null(moved);
    const char *names[64], *name;
    size_t count = 0;
    json_object_foreach(header, name, tensor) {
        assert_true(count < 64);
        names[count++] = name;
    }
    while (count-- > 0) { // the last first
        json_int_t begin, end;
        tensor = json_object_get(header, names[count]);
        if (strcmp(names[count], "__metadata__") != 0) {
            assert_int_equal(json_unpack(tensor, "{s:[I, I]}", "data_offsets", &begin, &end), 0);
            memcpy(moved + to, data + at + begin, (size_t)(end - begin));
            json_object_set_new(
                tensor, "data_offsets",
                json_pack("[I, I]", (json_int_t)to, (json_int_t)(to + end - begin)));
            to += (size_t)(end - begin);
        }
        json_object_set(turned, names[count], tensor);
    }
    assert_int_equal(to, bytes - at);
    memcpy(data + at, moved, to);
    save(p->file, data, bytes);
    char *text = json_dumps(turned, JSON_INDENT(1));
    write_header(p, text);
    import_one(p->b, p->other);
    assert_true(same_logits(p->a->store, NULL, p->b->store, NULL, 1));
    free(text);
    free(moved);
    free(data);
    json_decref(header);
    json_decref(turned);
}

// ---- disks ---------------------------------------------------------------------------------------

static void on_a_full_disk_no_file_is_left(void **state) {
    pair *p = *state;
    reef_error err;
    char small[TEMP_DIR_BYTES], path[TEMP_DIR_BYTES];
    start(p);
    temp_dir_join(small, p->a->dir, "small");
    temp_dir_join(path, small, "file");
    assert_int_equal(mkdir(small, 0700), 0);
    if (!small_disk_mount(small, "256k")) skip();
    reef_status status = reef_generation_export(p->a->store, 1, path, NULL, NULL, &err);
    bool empty = rmdir(small) != 0 && errno == EBUSY && access(path, F_OK) != 0;
    strcat(path, ".part");
    empty = empty && access(path, F_OK) != 0;
    small_disk_unmount(small);
    assert_int_equal(status, REEF_FULL);
    assert_non_null(strstr(err.message, "No space left"));
    assert_true(empty);
}

static void an_import_that_cannot_be_committed_changes_nothing(void **state) {
    pair *p = *state;
    reef_error err;
    reef_import import;
    struct rlimit limit, old;
    start(p);
    feed_kind(p->b, 2, 10, 1); // with what is left of before less than a batch: waits
    const reef_commit before = commit(p->b);
    const uint64_t carried = status_of(p->b).carried_bytes;
    assert_true(carried >= 10);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = old;
    limit.rlim_cur = 65536; // every write to the pool's file beyond it fails
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    reef_status status = reef_trainer_import(p->b->trainer, p->file, NULL, &import, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    if (status != REEF_IO && status != REEF_FULL)
        fail_msg("%s: %s", reef_status_text(status), err.message);
    assert_int_equal(status_of(p->b).generation, 1);
    assert_int_equal(p->b->trainer->event_count, 0);
    assert_memory_equal(commit(p->b).root, before.root, REEF_HASH_BYTES);
    assert_sound(p->b);
    import_one(p->b, p->file);
    assert_true(same_logits(p->a->store, NULL, p->b->store, NULL, 1));
    assert_int_equal(status_of(p->b).carried_bytes, carried);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(another_pool_computes_the_same_bits),
        TEST(and_with_every_kind_of_tensor),
        TEST(an_imported_generation_may_be_smaller_than_the_open_one),
        TEST(under_another_number_it_is_the_same_generation),
        TEST(a_stricter_gate_leaves_what_the_pool_has_learned),
        TEST(it_may_stay_where_it_lies_in_the_map),
        TEST(where_several_fire_all_older_ones_must_be_there),
        TEST(one_in_between_is_refused_where_it_would_count),
        TEST(training_goes_on_as_from_any_commit),
        TEST(a_file_holds_the_records_and_nothing_else),
        TEST(a_file_of_another_pool_is_refused),
        TEST(no_more_than_there_is_room_for),
        TEST(other_strategies_import_nothing),
        TEST(what_cannot_be_exported_is_named),
        TEST(what_a_killed_export_left_is_written_over_and_nothing_else),
        TEST(a_stopped_export_leaves_nothing),
        TEST(vectors_stay_where_they_are),
        TEST(cut_and_flipped_files_are_refused),
        TEST(headers_that_lie_are_refused),
        TEST(the_order_of_tensors_does_not_matter),
        TEST(on_a_full_disk_no_file_is_left),
        TEST(an_import_that_cannot_be_committed_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
