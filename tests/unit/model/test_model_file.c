// A whole model as a file and back as a new pool: the same logits to the bit as of every state, for
// every kind of model; training continues; and a damaged file makes no pool.
#include "draw.h"
#include "lifelong.h"
#include "model_file.h"
#include "trainer_internal.h"
#include "whole_file.h"

#include <math.h>
#include <unistd.h>

#define TEXT_BYTES 3000

typedef struct two {
    lifelong *a, *b; // the pool that is written, and the one that is made of the file
    char file[TEMP_DIR_BYTES], other[TEMP_DIR_BYTES];
} two;

static two *learned; // one that has learned, for tests that only read it

static int setup(void **state) {
    two *t = calloc(1, sizeof(*t));
    assert_non_null(t);
    lifelong_setup((void **)&t->a);
    lifelong_setup((void **)&t->b);
    t->a->config.side_new = 5;
    t->a->config.gate_decay = 0.9f;
    choose(&t->a->config, "boundaries", "given");
    temp_dir_join(t->file, t->a->dir, "model.safetensors");
    temp_dir_join(t->other, t->a->dir, "other.safetensors");
    *state = t;
    return 0;
}

static int teardown(void **state) {
    two *t = *state;
    if (t == learned || learned == NULL || t->a != learned->a) lifelong_teardown((void **)&t->a);
    lifelong_teardown((void **)&t->b);
    free(t);
    return 0;
}

static void seal(lifelong *f) {
    reef_error err;
    ok(reef_trainer_seal(f->trainer, NULL, NULL, &err), &err);
}

// Two sealed generations, and a third that is open and has trained.
static void learn(two *t) {
    make_pool(t->a, 1);
    for (int kind = 0; kind < 3; kind++) {
        feed_kind(t->a, kind, TEXT_BYTES, 1);
        if (kind < 2)
            seal(t->a);
        else
            commit(t->a);
    }
}

static int learn_once(void **state) {
    setup((void **)&learned);
    learn(learned);
    (void)state;
    return 0;
}

static int forget(void **state) {
    (void)state;
    return teardown((void **)&learned);
}

static reef_model_file export_as_of(lifelong *f, const char *as_of, const char *path) {
    reef_error err;
    reef_model_file file;
    const reef_export_options options = {.force = true};
    ok(reef_model_export(f->store, as_of, path, &options, &file, &err), &err);
    return file;
}

// Take over the pool that all tests read, and its file; nothing may change it.
static void borrow(two *t) {
    lifelong *own = t->a;
    reef_error err;
    lifelong_teardown((void **)&own);
    t->a = learned->a;
    memcpy(t->file, learned->file, sizeof(t->file));
    memcpy(t->other, learned->other, sizeof(t->other));
    const reef_export_options options = {.force = true};
    if (access(t->file, F_OK) != 0)
        ok(reef_model_export(t->a->store, NULL, t->file, &options, NULL, &err), &err);
}

// Make the second pool of a file; what a dry run says of it is the same.
static reef_model_file import(two *t, const char *path) {
    reef_error err;
    reef_model_file planned, made;
    if (t->b->store != NULL) {
        close_pool(t->b);
        temp_dir_remove(t->b->pool);
    }
    ok(reef_pool_from_model(t->b->pool, path, NULL, true, &planned, &err), &err);
    assert_int_not_equal(access(t->b->pool, F_OK), 0);
    ok(reef_pool_from_model(t->b->pool, path, NULL, false, &made, &err), &err);
    assert_memory_equal(&planned.config, &made.config, sizeof(made.config));
    assert_int_equal(planned.tensor_count, made.tensor_count);
    assert_int_equal(planned.experts, made.experts);
    open_pool(t->b, 1);
    return made;
}

static void assert_same_logits(two *t, const char *as_of, const char *as_of_new) {
    float *x = new_logits(), *y = new_logits();
    for (int kind = 0; kind < 4; kind++) {
        logits_of(t->a->store, as_of, kind, x);
        logits_of(t->b->store, as_of_new, kind, y);
        assert_memory_equal(x, y, (size_t)LIFELONG_PROBE_BYTES * REEF_VOCAB * sizeof(*x));
    }
    free(x);
    free(y);
}

static void assert_same_usage(two *t, uint32_t generation, uint32_t layer) {
    reef_error err;
    reef_usage usage[2][64];
    uint8_t flags[2][64];
    uint64_t count = 0;
    uint32_t side = generation_of(t->a, generation).side;
    lifelong *const pools[] = {t->a, t->b};
    for (size_t i = 0; i < 2; i++) {
        reef_txn *txn = NULL;
        ok(reef_txn_begin(&txn, pools[i]->store, REEF_TXN_READ, &err), &err);
        ok(reef_usage_read(txn, generation, layer, side * side, usage[i], &err), &err);
        ok(reef_flags_read(txn, generation, layer, side * side, flags[i], &err), &err);
        reef_txn_abort(txn);
    }
    for (uint32_t n = 0; n < side * side; n++) count += usage[0][n].count;
    assert_true(count > 0);
    assert_memory_equal(usage[0], usage[1], side * side * sizeof(**usage));
    assert_memory_equal(flags[0], flags[1], side * side);
}

static void assert_same_file(const char *one, const char *other) {
    size_t bytes, again;
    char *x = whole_file_read(one, &bytes), *y = whole_file_read(other, &again);
    assert_int_equal(bytes, again);
    assert_memory_equal(x, y, bytes);
    free(x);
    free(y);
}

// ---- there and back -----------------------------------------------------------------------------

static void a_pool_of_a_file_is_the_same_to_the_bit(void **state) {
    two *t = *state;
    reef_error err;
    learn(t);
    const reef_freeze freeze = {.layer = 1, .first = 3, .last = 7};
    uint64_t changed;
    ok(reef_trainer_freeze(t->a->trainer, &freeze, &changed, &err), &err);
    reef_model_file file = export_as_of(t->a, NULL, t->file);
    assert_int_equal(file.generations, 3);
    assert_true(file.open);
    assert_int_equal(file.experts, 2 * (36 + 25 + 25));
    assert_int_equal(file.stream_bytes, status_of(t->a).stream_bytes);

    reef_model_file made = import(t, t->file);
    assert_int_equal(made.tensor_count, file.tensor_count);
    assert_int_equal(made.file_bytes, file.file_bytes);
    assert_same_logits(t, NULL, NULL);
    assert_same_logits(t, "0", "0");
    assert_same_logits(t, "1", "1");
    for (uint32_t g = 0; g < 3; g++) {
        assert_same_usage(t, g, 0);
        assert_same_usage(t, g, 1);
    }
    for (uint32_t g = 0; g < 2; g++) // the very same generations
        assert_memory_equal(generation_of(t->a, g).root, generation_of(t->b, g).root,
                            REEF_HASH_BYTES);
    assert_int_equal(status_of(t->b).step, status_of(t->a).step);
    assert_int_equal(status_of(t->b).generation_step, status_of(t->a).generation_step);
    assert_sound(t->b);
    export_as_of(t->b, NULL, t->other);
    assert_same_file(t->file, t->other);
}

static void as_of_a_sealed_generation_the_next_one_is_opened(void **state) {
    two *t = *state;
    learn(t);
    static const char *const STATES[] = {"0", "1"};
    for (uint32_t g = 0; g < 2; g++) {
        reef_model_file file = export_as_of(t->a, STATES[g], t->file);
        assert_int_equal(file.generations, g + 1);
        assert_false(file.open);
        import(t, t->file);
        assert_same_logits(t, STATES[g], STATES[g]);
        assert_same_logits(t, STATES[g], NULL); // the open one answers nothing yet
        assert_int_equal(status_of(t->b).generation, g + 1);
        assert_int_equal(status_of(t->b).generation_step, 0);
        assert_int_equal(status_of(t->b).stream_bytes, generation_of(t->a, g).sealed_at);
        export_as_of(t->b, STATES[g], t->other);
        assert_same_file(t->file, t->other);
    }
    // It learns what comes next, and keeps what it knew.
    feed_kind(t->b, 2, TEXT_BYTES, 1);
    seal(t->b);
    assert_same_logits(t, "1", "1");
    assert_sound(t->b);
}

static void training_goes_on(void **state) {
    two *t = *state;
    learn(t);
    export_as_of(t->a, NULL, t->file);
    import(t, t->file);
    reef_generation_record first = generation_of(t->b, 0);
    feed_kind(t->b, 3, TEXT_BYTES, 1);
    commit(t->b);
    double early = status_of(t->b).bits_per_byte;
    feed_kind(t->b, 3, 4 * TEXT_BYTES, 2);
    assert_true(status_of(t->b).bits_per_byte < early - 0.1);
    seal(t->b);
    assert_memory_equal(generation_of(t->b, 0).root, first.root, REEF_HASH_BYTES);
    assert_true(status_of(t->b).step > status_of(t->a).step);
    assert_sound(t->b);
}

// The history of losses is not in the file: until there is one again, nothing is a boundary; then a
// change is.
static void what_goes_on_is_no_boundary_and_a_change_is_one(void **state) {
    two *t = *state;
    choose(&t->a->config, "boundaries", "drift");
    make_pool(t->a, 1);
    feed_kind(t->a, 0, 4 * TEXT_BYTES, 1);
    commit(t->a);
    assert_true(status_of(t->a).step > t->a->config.drift_warmup);
    export_as_of(t->a, NULL, t->file);
    import(t, t->file);
    feed_kind(t->b, 0, 2 * TEXT_BYTES, 2);
    assert_int_equal(status_of(t->b).generation, 0);
    assert_true(status_of(t->b).step > status_of(t->a).step);
    feed_kind(t->b, 1, 2 * TEXT_BYTES, 1);
    assert_int_equal(status_of(t->b).generation, 1);
    seal(t->b);
    assert_sound(t->b);
}

// Everything that decides which tensors there are, each sealed once and open with some training.
static void all_kinds_of_models(void **state) {
    two *t = *state;
    static const char *const KINDS[][6] = {
        {"layers", "4", "ffw", "dmkp", "moe_experts", "3"},
        {"expert", "glu", "seal_dtype", "bf16", "score", "sigmoid"},
        {"ffw", "pk", "seal_dtype", "int8", "side_new", "6"},
        {"subkeys", "head", "batch_norm", "false", "average", "0"},
        {"ffw", "d", "adapt_whole", "true", "adapters", "40"},
        {"gate", "off", "fire_max", "3", "recycle_after", "512"},
        {"gate", "loss", "adapters", "0", "weigh_older", "false"},
    };
    const reef_config standard = t->a->config;
    for (size_t k = 0; k < sizeof(KINDS) / sizeof(*KINDS); k++) {
        t->a->config = standard;
        for (size_t i = 0; i < 6; i += 2) choose(&t->a->config, KINDS[k][i], KINDS[k][i + 1]);
        make_pool(t->a, 1);
        feed_kind(t->a, 0, 1000, 1);
        commit(t->a);
        export_as_of(t->a, NULL, t->file); // generation 0 is open, with its batch norm unfolded
        import(t, t->file);
        assert_same_logits(t, NULL, NULL);
        seal(t->a);
        feed_kind(t->a, 1, 1000, 1);
        commit(t->a);
        export_as_of(t->a, NULL, t->file);
        import(t, t->file);
        assert_same_logits(t, NULL, NULL);
        assert_same_logits(t, "0", "0");
        assert_sound(t->b);
        export_as_of(t->b, NULL, t->other);
        assert_same_file(t->file, t->other);
        close_pool(t->a);
        temp_dir_remove(t->a->pool);
    }
}

static void as_of_snapshots(void **state) {
    two *t = *state;
    reef_error err;
    reef_restoration restoration;
    learn(t);
    ok(reef_trainer_snapshot(t->a->trainer, "early", NULL, &err), &err);
    seal(t->a);
    feed_kind(t->a, 3, TEXT_BYTES, 1);
    commit(t->a);
    export_as_of(t->a, "early", t->file);
    import(t, t->file);
    assert_same_logits(t, "early", NULL);
    // Generation 2, which is sealed in it, lies in a copy once the pool has gone back.
    close_pool(t->a);
    ok(reef_store_open(&t->a->store, t->a->pool, &(reef_store_options){.write = true}, &err), &err);
    ok(reef_pool_restore_in_place(t->a->store, "early", false, &restoration, &err), &err);
    assert_int_equal(generation_of(t->a, 2).sealed, false);
    reef_model_file file = export_as_of(t->a, restoration.kept_as, t->file);
    assert_int_equal(file.generations, 4);
    import(t, t->file);
    assert_same_logits(t, restoration.kept_as, NULL);
    assert_sound(t->b);
}

// ---- with context memories ----------------------------------------------------------------------

static void assert_same_bits(two *t, const char *as_of, const char *as_of_new) {
    for (int kind = 0; kind < 4; kind++)
        assert_true(bits_as_of(t->a, as_of, kind) == bits_as_of(t->b, as_of_new, kind));
}

// Of sealed generations and the open one, whose tables are older than the last commit.
static void assert_memories_travel(two *t, const char *share) {
    reef_error err;
    remember(t->a);
    choose(&t->a->config, "net_share", share);
    learn(t);
    assert_true(reef_open_generation(t->a->trainer)->memory.tail_bytes > 0);
    ok(reef_trainer_snapshot(t->a->trainer, "early", NULL, &err), &err);
    reef_model_file file = export_as_of(t->a, NULL, t->file);
    reef_model_file made = import(t, t->file);
    assert_int_equal(made.tensor_count, file.tensor_count);
    assert_same_bits(t, NULL, NULL);
    assert_same_bits(t, "0", "0");
    assert_same_bits(t, "1", "1");
    for (uint32_t g = 0; g < 2; g++)
        assert_memory_equal(generation_of(t->a, g).root, generation_of(t->b, g).root,
                            REEF_HASH_BYTES);
    export_as_of(t->b, NULL, t->other);
    assert_same_file(t->file, t->other);
    assert_sound(t->b);
    // It learns on, with what it knows, also after a restart.
    close_pool(t->b);
    open_pool(t->b, 1);
    double before = bits_as_of(t->b, NULL, 3);
    feed_kind(t->b, 3, TEXT_BYTES, 1);
    commit(t->b);
    close_pool(t->b);
    open_pool(t->b, 1);
    const reef_memory *memory = reef_open_generation(t->b->trainer)->memory.memory;
    assert_true(reef_memory_learned_bytes(memory) > 2 * TEXT_BYTES - 2 * LIFELONG_BATCH);
    assert_true(bits_as_of(t->b, NULL, 3) < before);
    assert_same_bits(t, "1", "1");
    assert_sound(t->b);
    // As of a snapshot, whose open generation has learned on meanwhile.
    feed_kind(t->a, 3, TEXT_BYTES, 1);
    seal(t->a);
    export_as_of(t->a, "early", t->other);
    assert_same_file(t->file, t->other);
    export_as_of(t->a, "2", t->other);
    import(t, t->other);
    assert_same_bits(t, "2", "2");
    assert_same_bits(t, "2", NULL);
    assert_sound(t->b);
}

static void memories_travel_with_a_model(void **state) {
    assert_memories_travel(*state, "1");
}

static void and_where_there_is_no_net(void **state) {
    assert_memories_travel(*state, "0");
}

// ---- what a file holds --------------------------------------------------------------------------

static json_t *header_of(const char *path, size_t *data_at) {
    size_t bytes, length = 0;
    char *data = whole_file_read(path, &bytes);
    for (size_t i = 8; i > 0; i--) length = length << 8 | (uint8_t)data[i - 1];
    json_t *header = json_loadb(data + 8, length, 0, NULL);
    assert_non_null(header);
    *data_at = 8 + length;
    free(data);
    return header;
}

static void assert_tensor(const json_t *header,
                          const char *name,
                          const char *type,
                          const char *shape) {
    const json_t *tensor = json_object_get(header, name);
    if (tensor == NULL) fail_msg("no tensor %s", name);
    char *text = json_dumps(json_object_get(tensor, "shape"), JSON_COMPACT);
    assert_string_equal(json_string_value(json_object_get(tensor, "dtype")), type);
    assert_string_equal(text, shape);
    free(text);
}

static void tensors_have_names_and_shapes(void **state) {
    two *t = *state;
    size_t at, bytes;
    borrow(t);
    json_t *header = header_of(t->file, &at);
    assert_tensor(header, "embedding", "F32", "[2,256,16]");
    assert_tensor(header, "head", "F32", "[16,256]");
    assert_tensor(header, "block0.w_qkv", "F32", "[16,48]");
    assert_tensor(header, "block1.w_down", "F32", "[36,16]");
    assert_tensor(header, "block1.w_up", "F32", "[36,16]");
    assert_tensor(header, "block1.sub_keys_a", "F32", "[6,4]");
    assert_tensor(header, "block1.query_bias", "F32", "[16]"); // it is sealed
    assert_tensor(header, "block1.usage_count", "I64", "[36]");
    assert_tensor(header, "block1.frozen", "U8", "[36]");
    assert_tensor(header, "generation1.delta_head", "F32", "[16,256]");
    assert_tensor(header, "generation1.gate_weights", "F32", "[4,65536]");
    assert_tensor(header, "generation2.block0.bn_mean", "F32", "[16]"); // it is open
    // The rows of the pool, taken apart.
    reef_error err;
    reef_view view;
    reef_txn *txn = NULL;
    const reef_key key = {.db = REEF_DB_EXPERTS, .generation = 0, .layer = 1};
    json_int_t down = 0, up = 0, end;
    assert_int_equal(json_unpack(header, "{s:{s:[I, I]}, s:{s:[I, I]}}", "block1.w_down",
                                 "data_offsets", &down, &end, "block1.w_up", "data_offsets", &up,
                                 &end),
                     0);
    char *data = whole_file_read(t->file, &bytes);
    ok(reef_txn_begin(&txn, t->a->store, REEF_TXN_READ, &err), &err);
    ok(reef_record_view(txn, &key, &view, &err), &err);
    assert_int_equal(view.bytes, 36 * 32 * sizeof(float));
    for (size_t n = 0; n < 36; n++) {
        const char *row = (const char *)view.data + n * 128;
        assert_memory_equal(data + at + (size_t)down + n * 64, row, 64);
        assert_memory_equal(data + at + (size_t)up + n * 64, row + 64, 64);
    }
    reef_txn_abort(txn);
    free(data);
    json_decref(header);
}

// ---- what is refused ----------------------------------------------------------------------------

static void assert_refused(two *t, const char *path, reef_status expected, const char *words) {
    reef_error err = {0};
    for (int dry = 0; dry < 2; dry++) {
        reef_status status = reef_pool_from_model(t->b->pool, path, NULL, dry == 1, NULL, &err);
        if (status != expected || strstr(err.message, words) == NULL)
            fail_msg("%s instead of %s, \"%s\": %s", reef_status_text(status),
                     reef_status_text(expected), words, err.message);
        assert_int_not_equal(access(t->b->pool, F_OK), 0);
    }
}

// The file with another header before the same data, or what `change` makes of that.
static void write_changed(two *t, const json_t *header, const char *data, size_t bytes) {
    char *text = json_dumps(header, JSON_COMPACT);
    size_t length = strlen(text);
    char *out = malloc(8 + length + bytes);
    assert_non_null(out);
    for (size_t i = 0; i < 8; i++) out[i] = (char)(length >> (8 * i));
    memcpy(out + 8, text, length);
    memcpy(out + 8 + length, data, bytes);
    whole_file_write(t->other, out, 8 + length + bytes);
    free(out);
    free(text);
}

static void tensors_that_do_not_fit_are_named(void **state) {
    two *t = *state;
    size_t at, bytes;
    static const struct {
        const char *name, *renamed, *shape, *words;
    } cases[] = {
        {"block0.w_qkv", "block0.w_qkv2", NULL, "lacks the tensor block0.w_qkv"},
        {"generation1.gate", "generation1.gait", NULL, "lacks the tensor generation1.gate"},
        {"generation2.block1.bn_var", "x", NULL, "lacks the tensor generation2.block1.bn_var"},
        {"block1.frozen", "block1.thawed", NULL, "has a tensor block1.thawed, which"},
        {"block1.w_up", "block1.w_up", "[16,36]",
         "tensor block1.w_up is F32 (16, 36), but this configuration makes it F32 (36, 16)"},
        {"head", "head", "[4096]", "tensor head is F32 (4096), but"},
    };
    borrow(t);
    char *data = whole_file_read(t->file, &bytes);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        json_t *header = header_of(t->file, &at);
        json_t *tensor = json_incref(json_object_get(header, cases[i].name));
        assert_non_null(tensor);
        if (cases[i].shape != NULL)
            json_object_set_new(tensor, "shape", json_loads(cases[i].shape, 0, NULL));
        json_object_del(header, cases[i].name);
        json_object_set_new(header, cases[i].renamed, tensor);
        write_changed(t, header, data + at, bytes - at);
        assert_refused(t, t->other, REEF_ERR_CORRUPT, cases[i].words);
        json_decref(header);
    }
    free(data);
}

static void metadata_that_lies_is_refused(void **state) {
    two *t = *state;
    size_t at, bytes;
    static const struct {
        const char *name, *value;
        reef_status status;
        const char *words;
    } lies[] = {
        {"format", NULL, REEF_ERR_INVALID, "but not of a model"},
        {"format", "reef.generation", REEF_ERR_INVALID, "but not of a model"},
        {"format_version", "2", REEF_ERR_VERSION, "format version 2"},
        {"configuration", NULL, REEF_ERR_CORRUPT, "lacks configuration"},
        {"configuration", "{}", REEF_ERR_CORRUPT, "does not set"},
        {"step", "-1", REEF_ERR_CORRUPT, "lacks step"},
        {"stream_bytes", "99999999999999999999999", REEF_ERR_CORRUPT, "lacks stream_bytes"},
        {"generations", "[]", REEF_ERR_CORRUPT, "lacks generations"},
        {"generations", "{", REEF_ERR_CORRUPT, "lacks generations"},
        {"generations", "[{\"number\": 0}]", REEF_ERR_CORRUPT, "lacks generations"},
    };
    borrow(t);
    char *data = whole_file_read(t->file, &bytes);
    for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++) {
        json_t *header = header_of(t->file, &at);
        json_t *metadata = json_object_get(header, "__metadata__");
        json_object_del(metadata, lies[i].name);
        if (lies[i].value != NULL)
            json_object_set_new(metadata, lies[i].name, json_string(lies[i].value));
        write_changed(t, header, data + at, bytes - at);
        assert_refused(t, t->other, lies[i].status, lies[i].words);
        json_decref(header);
    }
    free(data);
}

// A change of one generation in the metadata: member `name` becomes `value` (JSON; NULL: it goes).
static void change_generation(two *t,
                              uint32_t generation,
                              const char *name,
                              const char *value,
                              const char *data,
                              size_t bytes) {
    size_t at;
    json_t *header = header_of(t->file, &at);
    json_t *metadata = json_object_get(header, "__metadata__");
    json_t *list = json_loads(json_string_value(json_object_get(metadata, "generations")), 0, NULL);
    json_t *one = json_array_get(list, generation);
    json_object_del(one, name);
    if (value != NULL) json_object_set_new(one, name, json_loads(value, JSON_DECODE_ANY, NULL));
    char *text = json_dumps(list, JSON_COMPACT);
    json_object_set_new(metadata, "generations", json_string(text));
    write_changed(t, header, data + at, bytes - at);
    free(text);
    json_decref(list);
    json_decref(header);
}

static void generations_that_cannot_be_are_refused(void **state) {
    two *t = *state;
    size_t bytes;
    static const struct {
        uint32_t generation;
        const char *name, *value, *words;
    } lies[] = {
        {0, "side", "0", "lacks generations"},
        {0, "side", "70000", "lacks generations"},
        {0, "side", "60000", "has no room for"},
        {1, "side", "1", "has no room for"}, // fewer sub-keys than topk
        {1, "side", "4", "but this configuration makes it"},
        {0, "sealed", "false", "lacks generations"}, // only the last may be open
        {2, "sealed", "true", "query_bias"},         // it has none
        {1, "dtype", "\"f16\"", "lacks generations"},
        {1, "dtype", "\"bf16\"", "but this configuration makes it"},
        {1, "parent", "1", "lacks generations"},
        {2, "parent", "7", "lacks generations"},
        {1, "continues", "1", "lacks generations"},
        {1, "continues", "-1", "lacks generations"},
        {1, "root", "\"00\"", "lacks generations"},
        {1, "root", "\"00000000000000000000000000000000\"", "has another root than it says"},
        {2, "root", "\"00000000000000000000000000000000\"", "lacks generations"}, // it is open
    };
    borrow(t);
    char *data = whole_file_read(t->file, &bytes);
    for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++) {
        change_generation(t, lies[i].generation, lies[i].name, lies[i].value, data, bytes);
        assert_refused(t, t->other, REEF_ERR_CORRUPT, lies[i].words);
    }
    free(data);
}

// A generation may continue one that begins a kind, and none that continues another.
static void a_chain_of_two_steps_is_refused(void **state) {
    two *t = *state;
    size_t bytes, changed_bytes;
    borrow(t);
    char *data = whole_file_read(t->file, &bytes);
    change_generation(t, 1, "continues", "0", data, bytes);
    char *changed = whole_file_read(t->other, &changed_bytes);
    whole_file_write(t->file, changed, changed_bytes);
    change_generation(t, 2, "continues", "1", changed, changed_bytes);
    assert_refused(t, t->other, REEF_ERR_CORRUPT, "lacks generations");
    whole_file_write(t->file, data, bytes);
    free(changed);
    free(data);
}

static void cut_files_are_refused(void **state) {
    two *t = *state;
    size_t bytes, at;
    borrow(t);
    char *data = whole_file_read(t->file, &bytes);
    json_decref(header_of(t->file, &at));
    const size_t cuts[] = {0, 1, 7, 8, 9, at - 1, at, at + 1, bytes / 2, bytes - 1};
    for (size_t i = 0; i < sizeof(cuts) / sizeof(*cuts); i++) {
        whole_file_write(t->other, data, cuts[i]);
        assert_refused(t, t->other, REEF_ERR_CORRUPT, "safetensors");
    }
    free(data);
    assert_refused(t, "/nowhere/at/all", REEF_ERR_NOT_FOUND, "No such file");
}

// Where a tensor's data begins in the file.
static size_t place_of(const char *path, const char *name) {
    size_t at;
    json_t *header = header_of(path, &at);
    json_int_t begin = -1;
    assert_int_equal(json_unpack(header, "{s:{s:[I, *]}}", name, "data_offsets", &begin), 0);
    json_decref(header);
    return at + (size_t)begin;
}

static void values_that_cannot_be_are_refused(void **state) {
    two *t = *state;
    size_t bytes;
    const float nan = NAN, infinite = INFINITY;
    const int64_t negative = -1;
    const uint8_t no_flag = 2;
    const struct {
        const char *name;
        const void *value;
        size_t value_bytes;
        const char *words;
    } cases[] = {
        {"generation2.delta_head", &nan, sizeof(nan),
         "generation2.delta_head has a value that is not finite"},
        {"generation2.block1.w_up", &infinite, sizeof(infinite),
         "w_up has a value that is not finite"},
        {"generation2.block0.usage_count", &negative, sizeof(negative), "is negative: it counts"},
        {"generation2.block0.frozen", &no_flag, sizeof(no_flag), "is neither 0 nor 1"},
        {"block0.w_out", &(float){0.5f}, sizeof(nan), "generation 0 has another root"},
        {"generation1.block1.w_down", &(float){0.5f}, sizeof(nan), "generation 1 has another root"},
        {"generation1.gate", &(float){0.5f}, sizeof(nan), "generation 1 has another root"},
    };
    borrow(t);
    char *data = whole_file_read(t->file, &bytes);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        size_t place = place_of(t->file, cases[i].name);
        char before[8];
        memcpy(before, data + place, cases[i].value_bytes);
        memcpy(data + place, cases[i].value, cases[i].value_bytes);
        whole_file_write(t->other, data, bytes);
        assert_refused(t, t->other, REEF_ERR_CORRUPT, cases[i].words);
        memcpy(data + place, before, cases[i].value_bytes);
    }
    // A test that changes a sealed generation takes its root out.
    memcpy(data + place_of(t->file, "block0.w_out"), &(float){0.5f}, sizeof(float));
    change_generation(t, 0, "root", NULL, data, bytes);
    import(t, t->other);
    assert_memory_not_equal(generation_of(t->a, 0).root, generation_of(t->b, 0).root,
                            REEF_HASH_BYTES);
    assert_sound(t->b);
    free(data);
}

static void memories_that_cannot_be_are_refused(void **state) {
    two *t = *state;
    size_t at, bytes;
    reef_error err;
    const struct {
        const char *name;
        size_t place; // of the byte that is changed
        reef_status status;
        const char *words;
    } cases[] = {
        {"memory.header", 0, REEF_ERR_CORRUPT, "not one of a memory"},
        {"generation1.memory.header", 4, REEF_ERR_VERSION, "part header of a memory: version"},
        {"generation2.memory.header", 24, REEF_ERR_CORRUPT, "sizes outside their bounds"},
        {"generation2.memory.header", 107, REEF_ERR_CORRUPT, NULL}, // a word: anything may be
        {"generation2.memory.header", 111, REEF_ERR_CORRUPT, "a mixer of another size"},
        {"generation2.memory.header", 191, REEF_ERR_CORRUPT, "bytes that must be zero"},
        {"generation2.memory.cells", 63, REEF_ERR_CORRUPT, "a cell that cannot be"},
        {"memory.text", 5, REEF_ERR_CORRUPT, "generation 0 has another root"},
        {"memory.mark", 5, REEF_ERR_CORRUPT, "generation 0 has another root"},
        {"generation1.memory.mixer", 5, REEF_ERR_CORRUPT, "generation 1 has another root"},
        {"generation2.memory.text", 5, REEF_ERR_CORRUPT, NULL}, // it has no root
    };
    remember(t->a);
    learn(t);
    export_as_of(t->a, NULL, t->file);
    char *data = whole_file_read(t->file, &bytes);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        size_t place = place_of(t->file, cases[i].name) + cases[i].place;
        data[place] ^= 0x40;
        whole_file_write(t->other, data, bytes);
        if (cases[i].words == NULL)
            ok(reef_pool_from_model(t->b->pool, t->other, NULL, true, NULL, &err), &err);
        else
            assert_refused(t, t->other, cases[i].status, cases[i].words);
        data[place] ^= 0x40;
    }
    static const struct {
        const char *name, *shape, *words;
    } lies[] = {
        {"generation1.memory.cells", NULL, "lacks the tensor generation1.memory.cells"},
        {"memory.header", NULL, "lacks the tensor memory.header"},
        {"generation2.memory.mark", NULL, "has a tensor generation2.memory.cells, which"},
        {"memory.mark", "[24, 1]", "memory.mark is not 24 bytes"},
    };
    for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++) {
        json_t *header = header_of(t->file, &at);
        json_t *tensor = json_incref(json_object_get(header, lies[i].name));
        if (lies[i].shape != NULL)
            json_object_set_new(tensor, "shape", json_loads(lies[i].shape, 0, NULL));
        json_object_del(header, lies[i].name);
        json_object_set_new(header, lies[i].shape != NULL ? lies[i].name : "zzz", tensor);
        write_changed(t, header, data + at, bytes - at);
        assert_refused(t, t->other, REEF_ERR_CORRUPT, lies[i].words);
        json_decref(header);
    }
    // A pool that makes none does not take them; one that makes larger ones does.
    reef_config config;
    ok(reef_model_file_config(t->file, &config, &err), &err);
    choose(&config, "context_memory", "0");
    assert_int_equal(reef_pool_from_model(t->b->pool, t->file, &config, true, NULL, &err),
                     REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "context_memory 0 has none"));
    choose(&config, "context_memory", "8388608");
    ok(reef_pool_from_model(t->b->pool, t->file, &config, false, NULL, &err), &err);
    open_pool(t->b, 1);
    assert_same_bits(t, NULL, NULL);
    free(data);
}

// What only a pool knows: a program that writes weights need not.
static void usage_and_flags_need_not_be_there(void **state) {
    two *t = *state;
    size_t at, bytes, kept = 0;
    make_pool(t->a, 1);
    feed_kind(t->a, 0, 1000, 1);
    commit(t->a);
    export_as_of(t->a, NULL, t->file);
    json_t *header = header_of(t->file, &at), *fewer = json_object(), *tensor;
    const char *name;
    char *data = whole_file_read(t->file, &bytes), *rest = malloc(bytes);
    assert_non_null(rest);
    json_object_foreach(header, name, tensor) {
        json_int_t begin, end;
        json_t *copy = json_deep_copy(tensor);
        if (strstr(name, "usage_") != NULL || strstr(name, "frozen") != NULL) {
            json_decref(copy);
            continue;
        }
        if (json_unpack(copy, "{s:[I, I]}", "data_offsets", &begin, &end) == 0) {
            memcpy(rest + kept, data + at + begin, (size_t)(end - begin));
            json_object_set_new(
                copy, "data_offsets",
                json_pack("[I, I]", (json_int_t)kept, (json_int_t)kept + end - begin));
            kept += (size_t)(end - begin);
        }
        json_object_set_new(fewer, name, copy);
    }
    write_changed(t, fewer, rest, kept);
    reef_model_file made = import(t, t->other);
    assert_int_equal(made.tensor_count, json_object_size(header) - 1 - 2 * 3);
    assert_same_logits(t, NULL, NULL);
    reef_usage usage[36];
    reef_error err;
    reef_txn *txn = NULL;
    ok(reef_txn_begin(&txn, t->b->store, REEF_TXN_READ, &err), &err);
    ok(reef_usage_read(txn, 0, 1, 36, usage, &err), &err);
    reef_txn_abort(txn);
    for (size_t n = 0; n < 36; n++) assert_int_equal(usage[n].count, 0);
    free(rest);
    free(data);
    json_decref(header);
    json_decref(fewer);
}

static void another_configuration_must_fit(void **state) {
    two *t = *state;
    reef_error err;
    reef_config config;
    borrow(t);
    ok(reef_model_file_config(t->file, &config, &err), &err);
    assert_memory_equal(&config, &t->a->config, sizeof(config));
    choose(&config, "d_ffw", "77"); // of no layer that it has
    choose(&config, "learning_rate", "0.001");
    ok(reef_pool_from_model(t->b->pool, t->file, &config, false, NULL, &err), &err);
    open_pool(t->b, 1);
    assert_memory_equal(&t->b->trainer->network.config, &config, sizeof(config));
    assert_same_logits(t, NULL, NULL);
    // No tensor has its shape from it, but it would be the pool's for good.
    reef_config side = config;
    choose(&side, "side", "9");
    assert_int_equal(reef_pool_from_model(t->b->pool, t->file, &side, true, NULL, &err),
                     REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "side is 9, but generation 0 in"));
    choose(&config, "d_key", "6");
    assert_int_equal(reef_pool_from_model(t->b->pool, t->file, &config, true, NULL, &err),
                     REEF_ERR_CORRUPT);
    assert_non_null(strstr(err.message, "w_query is F32 (16, 16), but this configuration makes it "
                                        "F32 (16, 12)"));
}

static void what_cannot_be_written_is_named(void **state) {
    two *t = *state;
    reef_error err;
    static const struct {
        const char *name, *value, *words;
    } kinds[] = {{"model", "layer", "reef.interchange"}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        reef_config_default(&t->b->config);
        choose(&t->b->config, kinds[i].name, kinds[i].value);
        t->b->config.side = 16;
        make_pool(t->b, 1);
        assert_int_equal(reef_model_export(t->b->store, NULL, t->file, NULL, NULL, &err),
                         REEF_ERR_INVALID);
        if (strstr(err.message, kinds[i].words) == NULL) fail_msg("%s", err.message);
        close_pool(t->b);
        temp_dir_remove(t->b->pool);
    }
    borrow(t);
    (void)unlink(t->other);
    assert_int_equal(reef_model_export(t->a->store, "7", t->file, NULL, NULL, &err),
                     REEF_ERR_NOT_FOUND);
    assert_int_equal(reef_model_export(t->a->store, "none", t->file, NULL, NULL, &err),
                     REEF_ERR_NOT_FOUND);
    assert_int_not_equal(access(t->other, F_OK), 0);
    assert_int_equal(reef_model_export(t->a->store, NULL, t->file, NULL, NULL, &err),
                     REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "--force"));
    // An existing pool is not overwritten, and the file is not a generation.
    reef_import import;
    assert_int_equal(reef_pool_from_model(t->a->pool, t->file, NULL, false, NULL, &err),
                     REEF_ERR_INVALID);
    assert_int_equal(reef_trainer_import(t->a->trainer, t->file, NULL, &import, &err),
                     REEF_ERR_INVALID);
}

static int blocks_until_stop;

static bool stop_soon(void) {
    return blocks_until_stop-- == 0;
}

static void a_stopped_export_leaves_nothing(void **state) {
    two *t = *state;
    reef_error err;
    borrow(t);
    (void)unlink(t->other);
    for (int blocks = 0; blocks < 5; blocks++) {
        blocks_until_stop = blocks;
        const reef_export_options options = {.stopped = stop_soon};
        assert_int_equal(reef_model_export(t->a->store, NULL, t->other, &options, NULL, &err),
                         REEF_ERR_BUSY);
        assert_int_not_equal(access(t->other, F_OK), 0);
    }
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_pool_of_a_file_is_the_same_to_the_bit),
        TEST(as_of_a_sealed_generation_the_next_one_is_opened),
        TEST(training_goes_on),
        TEST(what_goes_on_is_no_boundary_and_a_change_is_one),
        TEST(all_kinds_of_models),
        TEST(as_of_snapshots),
        TEST(memories_travel_with_a_model),
        TEST(and_where_there_is_no_net),
        TEST(tensors_have_names_and_shapes),
        TEST(tensors_that_do_not_fit_are_named),
        TEST(metadata_that_lies_is_refused),
        TEST(generations_that_cannot_be_are_refused),
        TEST(a_chain_of_two_steps_is_refused),
        TEST(cut_files_are_refused),
        TEST(values_that_cannot_be_are_refused),
        TEST(memories_that_cannot_be_are_refused),
        TEST(usage_and_flags_need_not_be_there),
        TEST(another_configuration_must_fit),
        TEST(what_cannot_be_written_is_named),
        TEST(a_stopped_export_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, learn_once, forget);
}
