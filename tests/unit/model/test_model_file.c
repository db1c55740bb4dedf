// A whole model as a file for other programs: names, shapes, rows of experts taken apart. That its
// numbers compute what the pool does is checked by research/torch/check.
#include "draw.h"
#include "lifelong.h"
#include "small_disk.h"
#include "trainer_internal.h"
#include "whole_file.h"

#include <math.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT_BYTES 3000

typedef struct two {
    lifelong *a, *b; // the pool that is written, and the one that is made of the file
    char file[TEMP_DIR_BYTES], other[TEMP_DIR_BYTES];
} two;

static two *learned; // one that has learned, for tests that only read it

static int setup(void **state) {
    two *t = room(sizeof(*t));
    lifelong_setup((void **)&t->a);
    lifelong_setup((void **)&t->b);
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
    return 0;
}

static void seal(lifelong *f) {
    must(reef_trainer_seal(f->trainer, NULL, NULL, &why));
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
    return 0;
}

static int forget(void **state) {
    return teardown((void **)&learned);
}

// Take over the pool that all tests read, and its file; nothing may change it.
static void borrow(two *t) {
    lifelong *own = t->a;
    lifelong_teardown((void **)&own);
    t->a = learned->a;
    memcpy(t->file, learned->file, sizeof(t->file));
    memcpy(t->other, learned->other, sizeof(t->other));
    const reef_export_options options = {.force = true};
    if (access(t->file, F_OK) != 0)
        must(reef_model_export(t->a->store, NULL, t->file, &options, NULL, &why));
}

static json_t *header_of(const char *path, size_t *data_at) {
    size_t bytes, length = 0;
    char *data = whole_file_read(path, &bytes);
    for (size_t i = 8; i > 0; i--) length = length << 8 | (uint8_t)data[i - 1];
    json_t *header = json_loadb(data + 8, length, 0, NULL);
    assert_non_null(header);
    *data_at = 8 + length;
    return keep(header);
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

#define FIXTURE_TEST(name) TEST_WITH(name, setup, teardown, two *t)

FIXTURE_TEST(tensors_have_names_and_shapes) {
    size_t at, bytes;
    borrow(t);
    json_t *header = header_of(t->file, &at);
    assert_tensor(header, "embedding", "F32", "[4,256,16]");
    assert_tensor(header, "head", "F32", "[16,256]");
    assert_tensor(header, "block0.w_qkv", "F32", "[16,48]");
    assert_tensor(header, "block1.w_down", "F32", "[36,16]");
    assert_tensor(header, "block1.w_up", "F32", "[36,16]");
    assert_tensor(header, "block1.sub_keys_a", "F32", "[6,4]");
    assert_tensor(header, "block1.query_bias", "F32", "[16]"); // it is sealed
    assert_tensor(header, "block1.usage_count", "I64", "[36]");
    assert_tensor(header, "block1.frozen", "U8", "[36]");
    assert_tensor(header, "generation1.delta_head", "F32", "[16,256]");
    assert_tensor(header, "generation2.block0.bn_mean", "F32", "[16]"); // it is open
    // The rows of the pool, taken apart.
    reef_view view;
    const reef_key key = {.db = REEF_DB_EXPERTS, .generation = 0, .layer = 1};
    json_int_t down = 0, up = 0, end;
    assert_int_equal(json_unpack(header, "{s:{s:[I, I]}, s:{s:[I, I]}}", "block1.w_down",
                                 "data_offsets", &down, &end, "block1.w_up", "data_offsets", &up,
                                 &end),
                     0);
    char *data = whole_file_read(t->file, &bytes);
    reef_txn *txn = pool_begin(t->a->store, REEF_TXN_READ);
    must(reef_record_view(txn, &key, &view, &why));
    assert_int_equal(view.bytes, 36 * 32 * sizeof(float));
    for (size_t n = 0; n < 36; n++) {
        const char *row = (const char *)view.data + n * 128;
        assert_memory_equal(data + at + (size_t)down + n * 64, row, 64);
        assert_memory_equal(data + at + (size_t)up + n * 64, row + 64, 64);
    }
    reef_txn_abort(txn);
}

// ---- what is refused ----------------------------------------------------------------------------

FIXTURE_TEST(what_cannot_be_written_is_named) {
    static const struct {
        const char *name, *value, *words;
    } kinds[] = {{"model", "layer", "layer by itself"}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        reef_config_default(&t->b->config);
        choose(&t->b->config, kinds[i].name, kinds[i].value);
        t->b->config.side = t->b->config.topk = 16;
        make_pool(t->b, 1);
        must_fail(reef_model_export(t->b->store, NULL, t->file, NULL, NULL, &why), REEF_ERR_INVALID,
                  kinds[i].words);
        close_pool(t->b);
        temp_dir_remove(t->b->pool);
    }
    borrow(t);
    (void)unlink(t->other);
    assert_int_equal(reef_model_export(t->a->store, "7", t->file, NULL, NULL, &why),
                     REEF_ERR_NOT_FOUND);
    assert_int_equal(reef_model_export(t->a->store, "none", t->file, NULL, NULL, &why),
                     REEF_ERR_NOT_FOUND);
    assert_int_not_equal(access(t->other, F_OK), 0);
    must_fail(reef_model_export(t->a->store, NULL, t->file, NULL, NULL, &why), REEF_ERR_INVALID,
              "--force");
}

static int blocks_until_stop;

static bool stop_soon(void) {
    return blocks_until_stop-- == 0;
}

FIXTURE_TEST(a_stopped_export_leaves_nothing) {
    borrow(t);
    (void)unlink(t->other);
    for (int blocks = 0; blocks < 5; blocks++) {
        blocks_until_stop = blocks;
        const reef_export_options options = {.stopped = stop_soon};
        assert_int_equal(reef_model_export(t->a->store, NULL, t->other, &options, NULL, &why),
                         REEF_ERR_BUSY);
        assert_int_not_equal(access(t->other, F_OK), 0);
    }
}

FIXTURE_TEST(what_a_killed_export_left_is_written_over_and_nothing_else) {
    size_t bytes, again;
    char part[TEMP_DIR_BYTES + 8];
    borrow(t);
    (void)unlink(t->other);
    snprintf(part, sizeof(part), "%s.part", t->other);
    const char *once = whole_file_read(t->file, &bytes);
    char *whole = keep(malloc(2 * bytes)); // a longer one of another state
    assert_non_null(whole);
    memcpy(whole, once, bytes);
    memcpy(whole + bytes, once, bytes);
    const size_t lengths[] = {0, 8, 20, 2 * bytes};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
        whole_file_write(part, whole, lengths[i]);
        must(reef_model_export(t->a->store, NULL, t->other, NULL, NULL, &why));
        char *written = whole_file_read(t->other, &again);
        assert_int_equal(again, bytes);
        assert_memory_equal(written, whole, bytes);
        assert_int_not_equal(access(part, F_OK), 0);
        assert_int_equal(unlink(t->other), 0);
    }
    // Somebody else's file, and one that is being written.
    whole_file_write(part, "a letter to somebody", 20);
    must_fail(reef_model_export(t->a->store, NULL, t->other, NULL, NULL, &why), REEF_ERR_INVALID,
              "was not left by an export");
    whole_file_write(part, whole, 100);
    int fd = open(part, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && flock(fd, LOCK_EX) == 0);
    must_fail(reef_model_export(t->a->store, NULL, t->other, NULL, NULL, &why), REEF_ERR_INVALID,
              "another export is writing");
    close(fd);
    assert_int_equal(unlink(part), 0);
    assert_int_equal(symlink(t->file, part), 0);
    assert_true(reef_model_export(t->a->store, NULL, t->other, NULL, NULL, &why) != REEF_OK);
    (void)whole_file_read(t->file, &again);
    assert_int_equal(again, bytes);
    assert_int_equal(unlink(part), 0);
}

FIXTURE_TEST(on_a_full_disk_no_file_is_left) {
    char small[TEMP_DIR_BYTES], path[TEMP_DIR_BYTES];
    borrow(t);
    temp_dir_join(small, t->a->dir, "small");
    temp_dir_join(path, small, "file");
    assert_int_equal(mkdir(small, 0700), 0);
    if (!small_disk_mount(small, "256k")) skip();
    reef_status status = reef_model_export(t->a->store, NULL, path, NULL, NULL, &why);
    bool empty = rmdir(small) != 0 && errno == EBUSY && access(path, F_OK) != 0;
    strcat(path, ".part");
    empty = empty && access(path, F_OK) != 0;
    small_disk_unmount(small);
    assert_int_equal(status, REEF_ERR_FULL);
    assert_non_null(strstr(why.message, "No space left"));
    assert_true(empty);
}

RUN_TESTS_IN(learn_once, forget)
