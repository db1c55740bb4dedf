// A file that is not what it says, or of a generation that does not belong there, changes nothing
// in a pool.
#include "draw.h"
#include "transfer.h"

#include <jansson.h>

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

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
    assert_int_equal(f->trainer->network.generation_count, status_of(f).generation + 1);
}

static void a_file_of_another_pool_is_refused(void **state) {
    pair *p = *state;
    start(p);
    assert_refused(p->b, p->other, REEF_ERR_NOT_FOUND, "No such file");
    assert_refused(p->b, p->a->dir, REEF_ERR_INVALID, "not a regular file");
    export_one(p->a, 0, p->other);
    assert_refused(p->b, p->other, REEF_ERR_INVALID, "copy the whole pool");

    feed_kind(p->b, 2, 1000, 1); // it has trained
    commit(p->b);
    assert_refused(p->b, p->file, REEF_ERR_INVALID, "seal it first");
    close_pool(p->b);
    temp_dir_remove(p->b->pool);

    p->b->config = p->a->config;
    make_pool(p->b, 1);
    assert_refused(p->b, p->file, REEF_ERR_INVALID, "generation 0 of the pool is still open");
    learn(p->b, 4); // the same configuration, another backbone
    assert_refused(p->b, p->file, REEF_ERR_INVALID, "does not have: only pools that were one");
    close_pool(p->b);
    temp_dir_remove(p->b->pool);

    choose(&p->b->config, "topk", "3");
    make_pool(p->b, 1);
    learn(p->b, 0);
    assert_refused(p->b, p->file, REEF_ERR_INVALID, "topk 2, this one was made with 3");
}

static void no_more_than_there_is_room_for(void **state) {
    pair *p = *state;
    p->a->config.experts_max = 2 * (36 + 25 + 25);
    start(p);
    learn(p->b, 2);
    assert_refused(p->b, p->file, REEF_ERR_FULL, "experts_max 172");
}

// ---- damaged files ------------------------------------------------------------------------------

static void refuse_cut_and_flipped(pair *p) {
    reef_error err;
    reef_import import;
    start(p);
    const reef_commit before = last_commit(p->b);
    size_t bytes;
    uint8_t *data = whole_file_read(p->file, &bytes);
    size_t header = 8 + header_bytes(data);
    const size_t cuts[] = {0, 1, 7, 8, 9, header - 1, header, header + 1, bytes / 2, bytes - 1};
    for (size_t i = 0; i < sizeof(cuts) / sizeof(*cuts); i++) {
        whole_file_write(p->other, data, cuts[i]);
        assert_refused(p->b, p->other, REEF_ERR_CORRUPT, "safetensors");
    }
    uint8_t *longer = calloc(bytes + 1, 1);
    memcpy(longer, data, bytes);
    whole_file_write(p->other, longer, bytes + 1);
    assert_refused(p->b, p->other, REEF_ERR_CORRUPT, "longer than its tensors");
    free(longer);
    // One bit anywhere: in a length, a name, a digit, a root, a weight. Spaces and member order
    // have some play.
    uint64_t draw = 5;
    for (int i = 0; i < 150; i++) {
        size_t place = (size_t)draw_bits(&draw) % (i % 2 == 0 ? header : bytes);
        uint8_t bit = (uint8_t)(1u << draw_bits(&draw) % 8);
        if (place >= 8 && place < header && data[place] == ' ') continue;
        data[place] ^= bit;
        whole_file_write(p->other, data, bytes);
        reef_status status = reef_trainer_import(p->b->trainer, p->other, &DRY, &import, &err);
        // Words about its past decide nothing.
        if (status == REEF_OK && place >= header) fail_msg("bit at %zu went unnoticed", place);
        if (status != REEF_OK) assert_true(strlen(err.message) > 0);
        data[place] ^= bit;
    }
    whole_file_write(p->other, data, bytes);
    assert_int_equal(last_commit(p->b).number, before.number);
    import_one(p->b, p->other);
    assert_true(same_logits(p->a->store, NULL, p->b->store, NULL, 1));
}

static void cut_and_flipped_files_are_refused(void **state) {
    pair *p = *state;
    forget_memories(p->a);
    refuse_cut_and_flipped(p);
}

static void and_where_they_have_a_memory(void **state) {
    pair *p = *state;
    refuse_cut_and_flipped(p);
}

// The file with another header before the same data.
static void write_header(const pair *p, const char *header) {
    size_t bytes, length = strlen(header);
    uint8_t *data = whole_file_read(p->file, &bytes);
    size_t at = 8 + header_bytes(data);
    uint8_t *out = calloc(8 + length + bytes - at, 1);
    assert_non_null(out);
    for (size_t i = 0; i < 8; i++) out[i] = (uint8_t)(length >> (8 * i));
    memcpy(out + 8, header, length);
    memcpy(out + 8 + length, data + at, bytes - at);
    whole_file_write(p->other, out, 8 + length + bytes - at);
    free(out);
}

static json_t *header_of(const pair *p) {
    size_t bytes;
    uint8_t *data = whole_file_read(p->file, &bytes);
    json_t *json = json_loadb((const char *)data + 8, header_bytes(data), 0, NULL);
    assert_non_null(json);
    return keep(json);
}

// Each a change of the header: set tensor or metadata `name` to `value` (NULL: remove it).
static void headers_that_lie_are_refused(void **state) {
    pair *p = *state;
    static const struct {
        const char *where, *name, *value;
        reef_status status;
        const char *words;
    } lies[] = {
        {"gate", "data_offsets", "[0, 28]", REEF_ERR_CORRUPT, "overlaps"},
        {"gate", "data_offsets", "[-28, 0]", REEF_ERR_CORRUPT, "outside"},
        {"gate", "data_offsets", "[28, 0]", REEF_ERR_CORRUPT, "outside"},
        {"gate", "data_offsets", "[0, 99999999999]", REEF_ERR_CORRUPT, "outside"},
        {"gate", "data_offsets", "[0]", REEF_ERR_CORRUPT, "more or less"},
        {"gate", "data_offsets", "[0, 28, 3]", REEF_ERR_CORRUPT, "more or less"},
        {"gate", "dtype", "\"F64\"", REEF_ERR_CORRUPT, "none of F32"},
        {"gate", "dtype", "7", REEF_ERR_CORRUPT, "more or less"},
        {"gate", "shape", "[8]", REEF_ERR_CORRUPT, "another size"},
        {"gate", "shape", "[-7]", REEF_ERR_CORRUPT, "no known shape"},
        {"gate", "shape", "7", REEF_ERR_CORRUPT, "no known shape"},
        {"gate", "shape", "[1, 1, 1, 1, 7]", REEF_ERR_CORRUPT, "no known shape"},
        {"gate", "shape", "[4294967296, 4294967296]", REEF_ERR_CORRUPT, "another size"},
        {"gate", "shape", "[7, 1]", REEF_ERR_CORRUPT, "another type or shape"},
        {"gate", "more", "1", REEF_ERR_CORRUPT, "more or less"},
        {"gate", "shape", NULL, REEF_ERR_CORRUPT, "more or less"},
        {"block0.flags", "dtype", "\"F32\"", REEF_ERR_CORRUPT, "another size"},
        {"block1.experts", "shape", "[32, 25]", REEF_ERR_CORRUPT, "another type or shape"},
        {NULL, "gate", NULL, REEF_ERR_CORRUPT, "gap"},
        {NULL, "block1.flags", NULL, REEF_ERR_CORRUPT, "longer than its tensors"},
        {NULL, "extra", "{\"dtype\": \"U8\", \"shape\": [0], \"data_offsets\": [0, 0]}",
         REEF_ERR_CORRUPT, "tensors, such a generation has"},
        {NULL, "", "{\"dtype\": \"U8\", \"shape\": [0], \"data_offsets\": [0, 0]}",
         REEF_ERR_CORRUPT, "no name"},
        {NULL, "gate", "[]", REEF_ERR_CORRUPT, "more or less"},
        {NULL, "__metadata__", "[]", REEF_ERR_CORRUPT, "not an object of texts"},
        {NULL, "__metadata__", "{\"a\": 1}", REEF_ERR_CORRUPT, "not an object of texts"},
        {NULL, "__metadata__", NULL, REEF_ERR_INVALID, "not of a generation"},
        {"__metadata__", "format", "\"pt\"", REEF_ERR_INVALID, "not of a generation"},
        {"__metadata__", "format_version", "\"2\"", REEF_ERR_VERSION, "format version 2"},
        {"__metadata__", "format_version", "\"x\"", REEF_ERR_CORRUPT, "lacks format_version"},
        {"__metadata__", "generation", "\"0\"", REEF_ERR_CORRUPT, "builds_on"},
        {"__metadata__", "generation", "\"2\"", REEF_ERR_CORRUPT, "another root"},
        {"__metadata__", "generation", "\"65536\"", REEF_ERR_CORRUPT, "lacks generation"},
        {"__metadata__", "generation", "\"-1\"", REEF_ERR_CORRUPT, "lacks generation"},
        {"__metadata__", "side", "\"0\"", REEF_ERR_CORRUPT, "lacks side"},
        {"__metadata__", "side", "\"1\"", REEF_ERR_CORRUPT, "no room"},
        {"__metadata__", "side", "\"6\"", REEF_ERR_CORRUPT, "another type or shape"},
        {"__metadata__", "side", "\"65535\"", REEF_ERR_CORRUPT, "no room"},
        {"__metadata__", "side", "\"99999999999999999999999\"", REEF_ERR_CORRUPT, "lacks side"},
        {"__metadata__", "dtype", "\"f16\"", REEF_ERR_CORRUPT, "lacks dtype"},
        {"__metadata__", "dtype", "\"int8\"", REEF_ERR_CORRUPT, "another type or shape"},
        {"__metadata__", "sealed_at", NULL, REEF_ERR_CORRUPT, "lacks sealed_at"},
        {"__metadata__", "root", "\"00\"", REEF_ERR_CORRUPT, "lacks root"},
        {"__metadata__", "root", "\"00000000000000000000000000000000\"", REEF_ERR_CORRUPT,
         "another root"},
        {"__metadata__", "builds_on", "\"[]\"", REEF_ERR_CORRUPT, "builds_on"},
        {"__metadata__", "builds_on", "\"[1]\"", REEF_ERR_CORRUPT, "builds_on"},
        {"__metadata__", "builds_on", "\"no\"", REEF_ERR_CORRUPT, "builds_on"},
        {"__metadata__", "builds_on", "\"[\\\"00000000000000000000000000000000\\\"]\"",
         REEF_ERR_INVALID, "does not have"},
        {"__metadata__", "configuration", "\"{}\"", REEF_ERR_CORRUPT, "configuration"},
        {"__metadata__", "configuration", NULL, REEF_ERR_CORRUPT, "lacks configuration"},
    };
    forget_memories(p->a); // the last tensor is block1.flags then
    start(p);
    for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++) {
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
        assert_refused(p->b, p->other, lies[i].status, lies[i].words);
    }
    write_header(p, "no json");
    assert_refused(p->b, p->other, REEF_ERR_CORRUPT, "JSON");
    write_header(p, "[]");
    assert_refused(p->b, p->other, REEF_ERR_CORRUPT, "not a JSON object");
    write_header(p, "{\"a\": {}, \"a\": {}}");
    assert_refused(p->b, p->other, REEF_ERR_CORRUPT, "duplicate");
    whole_file_write(p->other, "\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10);
    assert_refused(p->b, p->other, REEF_ERR_CORRUPT, "larger than");
    import_one(p->b, p->file); // as it is, it is taken
}

// Another program may have written the same tensors in another order.
static void the_order_of_tensors_does_not_matter(void **state) {
    pair *p = *state;
    start(p);
    size_t bytes;
    uint8_t *data = whole_file_read(p->file, &bytes);
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
    whole_file_write(p->file, data, bytes);
    char *text = json_dumps(turned, JSON_INDENT(1));
    write_header(p, text);
    import_one(p->b, p->other);
    assert_true(same_logits(p->a->store, NULL, p->b->store, NULL, 1));
    free(text);
    free(moved);
    json_decref(turned);
}

// ---- disks --------------------------------------------------------------------------------------

static void an_import_that_cannot_be_committed_changes_nothing(void **state) {
    pair *p = *state;
    reef_error err;
    reef_import import;
    struct rlimit limit, old;
    start(p);
    feed_kind(p->b, 2, 10, 1); // with what is left of before less than a batch: waits
    const reef_commit before = commit(p->b);
    const uint64_t carried = status_of(p->b).pending_bytes;
    assert_true(carried >= 10);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    limit = old;
    limit.rlim_cur = 65536; // every write to the pool's file beyond it fails
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    reef_status status = reef_trainer_import(p->b->trainer, p->file, NULL, &import, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    if (status != REEF_ERR_IO && status != REEF_ERR_FULL)
        fail_msg("%s: %s", reef_status_text(status), err.message);
    assert_int_equal(status_of(p->b).generation, 1);
    assert_int_equal(p->b->trainer->event_count, 0);
    assert_memory_equal(commit(p->b).root, before.root, REEF_HASH_BYTES);
    assert_sound(p->b);
    import_one(p->b, p->file);
    assert_true(same_logits(p->a->store, NULL, p->b->store, NULL, 1));
    assert_int_equal(status_of(p->b).pending_bytes, carried);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        SET_UP(a_file_of_another_pool_is_refused),
        SET_UP(no_more_than_there_is_room_for),
        SET_UP(cut_and_flipped_files_are_refused),
        SET_UP(and_where_they_have_a_memory),
        SET_UP(headers_that_lie_are_refused),
        SET_UP(the_order_of_tensors_does_not_matter),
        SET_UP(an_import_that_cannot_be_committed_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
