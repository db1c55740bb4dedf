// A generation as a file: its records and nothing else; whatever keeps it from being written leaves
// nothing of it.
#include "transfer.h"
#include "zero_runs.h"

#include <jansson.h>

#include "small_disk.h"

#include <sys/file.h>
#include <sys/stat.h>

typedef struct sum {
    const uint8_t *data;
    size_t at;
} sum;

static reef_status on_record(void *context,
                             const reef_key *key,
                             const reef_view *view,
                             reef_error *err) {
    (void)err;
    sum *s = context;
    // Blocks of a memory are packed in the pool, and in the file as they are.
    size_t bytes =
        key->db == REEF_DB_MEMORY ? reef_zero_runs_length(view->data, view->bytes) : view->bytes;
    uint8_t *data = malloc(bytes + 1);
    assert_non_null(data);
    if (key->db == REEF_DB_MEMORY)
        assert_true(reef_zero_runs_unpack(data, bytes, view->data, view->bytes));
    else
        memcpy(data, view->data, bytes);
    assert_memory_equal(s->data + s->at, data, bytes);
    s->at += bytes;
    free(data);
    return REEF_OK;
}

static void expect_records_and_nothing_else(pair *p) {
    reef_error err;
    start(p);
    size_t bytes;
    uint8_t *data = whole_file_read(p->file, &bytes);
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
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        assert_string_equal(json_string_value(json_object_get(metadata, texts[i][0])), texts[i][1]);
    char root[2 * REEF_HASH_BYTES + 1];
    reef_hash_format(generation_of(p->a, 1).root, root);
    assert_string_equal(json_string_value(json_object_get(metadata, "root")), root);
    reef_hash_format(generation_of(p->a, 0).root, root);
    assert_non_null(strstr(json_string_value(json_object_get(metadata, "builds_on")), root));

    static const reef_db parts[] = {REEF_DB_TENSORS, REEF_DB_EXPERTS, REEF_DB_FLAGS,
                                    REEF_DB_MEMORY};
    sum s = {.data = data + 8 + header};
    reef_txn *txn = NULL;
    ok(reef_txn_begin(&txn, p->a->store, REEF_TXN_READ, &err), &err);
    for (size_t i = 0; i < 4; i++)
        ok(reef_record_scan(txn, parts[i], 1, on_record, &s, &err), &err);
    reef_txn_abort(txn);
    assert_int_equal(8 + header + s.at, bytes);
    json_decref(json);
}

static void a_file_holds_the_records_and_nothing_else(void **state) {
    expect_records_and_nothing_else(*state);
}

static void and_those_of_a_memory(void **state) {
    pair *p = *state;
    expect_records_and_nothing_else(p);
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
        {2, p->other, REEF_ERR_INVALID, "is open"},
        {3, p->other, REEF_ERR_NOT_FOUND, "no generation 3"},
        {1, p->file, REEF_ERR_INVALID, "--force"},
        {1, p->a->dir, REEF_ERR_INVALID, "not a regular file"},
        {1, "/nowhere/at/all", REEF_ERR_NOT_FOUND, "No such file"},
    };
    start(p);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        reef_status status = reef_generation_export(p->a->store, cases[i].generation, cases[i].path,
                                                    NULL, NULL, &err);
        if (status != cases[i].status || strstr(err.message, cases[i].words) == NULL)
            fail_msg("%zu: %s: %s", i, reef_status_text(status), err.message);
    }
    assert_int_not_equal(access(p->other, F_OK), 0);
    char part[TEMP_DIR_BYTES + 8];
    snprintf(part, sizeof(part), "%s.part", p->other);
    whole_file_write(part, "rest", 4); // short enough to be the beginning of one
    ok(reef_generation_export(p->a->store, 1, p->other, NULL, NULL, &err), &err);
    assert_int_not_equal(access(part, F_OK), 0);
    whole_file_write(p->other, "old", 3);
    ok(reef_generation_export(p->a->store, 1, p->other, &(reef_export_options){.force = true}, NULL,
                              &err),
       &err);
    import_one(p->b, p->other);
    assert_int_not_equal(access(part, F_OK), 0);
}

static void what_a_killed_export_left_is_written_over_and_nothing_else(void **state) {
    pair *p = *state;
    reef_error err;
    size_t bytes, again;
    char part[TEMP_DIR_BYTES + 8];
    start(p);
    snprintf(part, sizeof(part), "%s.part", p->other);
    char *whole = whole_file_read(p->file, &bytes);
    whole = realloc(whole, 2 * bytes); // a longer one of another generation
    assert_non_null(whole);
    memcpy(whole + bytes, whole, bytes);
    const size_t lengths[] = {0, 1, 8, 9, 20, bytes / 2, bytes, 2 * bytes};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
        whole_file_write(part, whole, lengths[i]);
        ok(reef_generation_export(p->a->store, 1, p->other, NULL, NULL, &err), &err);
        char *written = whole_file_read(p->other, &again);
        assert_int_equal(again, bytes);
        assert_memory_equal(written, whole, bytes);
        assert_int_not_equal(access(part, F_OK), 0);
        assert_int_equal(unlink(p->other), 0);
    }
    // Somebody else's file, and one that is being written.
    whole_file_write(part, "a letter to somebody", 20);
    assert_int_equal(reef_generation_export(p->a->store, 1, p->other, NULL, NULL, &err),
                     REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "was not left by an export"));
    whole_file_write(part, whole, 100);
    int fd = open(part, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && flock(fd, LOCK_EX) == 0);
    assert_int_equal(reef_generation_export(p->a->store, 1, p->other, NULL, NULL, &err),
                     REEF_ERR_INVALID);
    assert_non_null(strstr(err.message, "another export is writing"));
    (void)whole_file_read(part, &again);
    assert_int_equal(again, 100);
    close(fd);
    assert_int_equal(unlink(part), 0);
    assert_int_equal(symlink(p->file, part), 0);
    assert_true(reef_generation_export(p->a->store, 1, p->other, NULL, NULL, &err) != REEF_OK);
    (void)whole_file_read(p->file, &again);
    assert_int_equal(again, bytes);
    assert_int_equal(unlink(part), 0);
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
    snprintf(part, sizeof(part), "%s.part", p->other);
    for (int records = 0; records < 6; records++) {
        records_until_stop = records;
        assert_int_equal(reef_generation_export(p->a->store, 1, p->other,
                                                &(reef_export_options){.stopped = stop_soon}, NULL,
                                                &err),
                         REEF_ERR_BUSY);
        assert_int_not_equal(access(part, F_OK), 0);
        assert_int_not_equal(access(p->other, F_OK), 0);
    }
}

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
    assert_int_equal(status, REEF_ERR_FULL);
    assert_non_null(strstr(err.message, "No space left"));
    assert_true(empty);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SET_UP(a_file_holds_the_records_and_nothing_else),
        SET_UP(and_those_of_a_memory),
        SET_UP(what_cannot_be_exported_is_named),
        SET_UP(what_a_killed_export_left_is_written_over_and_nothing_else),
        SET_UP(a_stopped_export_leaves_nothing),
        SET_UP(on_a_full_disk_no_file_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
