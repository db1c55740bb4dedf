// Pools of token ids as a user has them: made, trained and measured with `reef`, in tokens; and
// every command that is about bytes of text says so.
#include "cli_pool.h"
#include "tools_world.h"

#include <math.h>

#define IDS "300"
#define TRAIN_TOKENS 3000
#define HELD_TOKENS 400
#define REFUSED 64 // sysexits: EX_USAGE, what REEF_ERR_INVALID ends with

// Two domains of ids in two bytes each, and held-out files of both.
typedef struct files {
    char *directory, *pool, *low, *high, *held_low, *held_high, *odd, *bad;
} files;

static void write_ids(const char *path, unsigned first, size_t tokens, unsigned seed) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (size_t t = 0; t < tokens; t++) {
        if (t % 4 == 0) seed = seed * 1664525u + 1013904223u; // words of four
        unsigned id = first + (seed / 65536 % 8 * 3 + (unsigned)t % 4 * 5) % 37;
        assert_true(fputc((int)(id & 255), file) != EOF && fputc((int)(id >> 8), file) != EOF);
    }
    assert_int_equal(fclose(file), 0);
}

static void append_byte(const char *path, int byte) {
    FILE *file = fopen(path, "ab");
    assert_non_null(file);
    assert_true(fputc(byte, file) != EOF);
    assert_int_equal(fclose(file), 0);
}

static void make(const char *path, const char *boundaries) {
    program p;
    reef(&p, "init", path, TINY_OPTIONS, "--boundaries", boundaries, "--vocab", IDS, NULL);
    if (p.code != 0) fail_msg("init: %s", p.err);
    assert_non_null(strstr(p.out, "ids below 300"));
    assert_non_null(strstr(p.out, "next: reef train"));
    program_release(&p);
}

static int setup(void **state) {
    unsetenv("REEF_POOL");
    files *f = reef_cli_alloc(1, sizeof(*f));
    f->directory = test_directory_new();
    f->pool = path_in(f->directory, "pool");
    f->low = path_in(f->directory, "low.u16");
    f->high = path_in(f->directory, "high.u16");
    f->held_low = path_in(f->directory, "held_low.u16");
    f->held_high = path_in(f->directory, "held_high.u16");
    f->odd = path_in(f->directory, "odd.u16");
    f->bad = path_in(f->directory, "bad.u16");
    write_ids(f->low, 0, TRAIN_TOKENS, 1);
    write_ids(f->high, 260, TRAIN_TOKENS, 2);
    write_ids(f->held_low, 0, HELD_TOKENS, 3);
    write_ids(f->held_high, 260, HELD_TOKENS, 4);
    write_ids(f->odd, 0, HELD_TOKENS, 5);
    append_byte(f->odd, 7);
    write_ids(f->bad, 0, HELD_TOKENS, 5);
    append_byte(f->bad, 0x2c); // 300
    append_byte(f->bad, 0x01);
    append_byte(f->bad, 1);
    append_byte(f->bad, 0);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    files *f = *state;
    test_directory_remove(f->directory);
    char *const paths[] = {f->pool, f->low, f->high, f->held_low, f->held_high, f->odd, f->bad};
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) free(paths[i]);
    free(f);
    return 0;
}

// reef must end with REFUSED, say this in one line, and print no answer.
static void refused(const char *says, ...) {
    program p;
    va_list arguments;
    va_start(arguments, says);
    reef_va(&p, arguments);
    va_end(arguments);
    if (p.code != REFUSED || strstr(p.err, says) == NULL)
        fail_msg("exit %d, or no '%s' in: %s", p.code, says, p.err);
    assert_int_equal(line_count(p.err), 1);
    assert_string_equal(p.out, "");
    program_release(&p);
}

static char *root_of(const files *f) {
    json_t *status = reef_json("status", f->pool, NULL);
    char *root = reef_cli_format(
        "%s", json_string_value(json_object_get(json_object_get(status, "last_commit"), "root")));
    json_decref(status);
    return root;
}

static void people_read_tokens(void **state) {
    files *f = *state;
    static const char *const WORDS[] = {"bits/token", "bits per token", "bits per token"};
    make(f->pool, "given");
    json_decref(reef_json("train", f->pool, f->low, NULL));
    json_decref(reef_json("seal", f->pool, NULL));
    program p[3];
    reef(&p[0], "eval", f->pool, f->held_low, NULL);
    reef(&p[1], "eval", f->pool, "--matrix", f->held_low, NULL);
    reef(&p[2], "status", f->pool, NULL);
    for (size_t i = 0; i < 3; i++) {
        if (p[i].code != 0 || strstr(p[i].out, WORDS[i]) == NULL ||
            strstr(p[i].out, "per byte") != NULL)
            fail_msg("exit %d, or no '%s' in: %s%s", p[i].code, WORDS[i], p[i].out, p[i].err);
        program_release(&p[i]);
    }
}

// ---- what is no id ------------------------------------------------------------------------------

static void bad_files_are_refused_before_anything_is_trained(void **state) {
    files *f = *state;
    static const char ODD[] = "odd.u16 ends within a token, after byte 801";
    static const char BAD[] = "bad.u16 has the id 300 as token 400, at byte 800, but the pool's "
                              "vocab is 300: ids are 0 to 299";
    make(f->pool, "given");
    json_decref(reef_json("train", f->pool, f->low, NULL));
    char *before = root_of(f);
    refused(ODD, "train", f->pool, f->low, f->odd, NULL);
    refused(BAD, "train", f->pool, f->low, f->bad, NULL);
    refused(ODD, "eval", f->pool, f->odd, NULL);
    refused(BAD, "eval", f->pool, f->bad, NULL);
    refused(BAD, "eval", f->pool, "--matrix", f->bad, NULL);
    char *after = root_of(f);
    assert_string_equal(before, after);
    json_decref(reef_json("train", f->pool, f->low, f->high, NULL));
    free(before);
    free(after);
}

static void what_is_about_text_is_refused(void **state) {
    files *f = *state;
    static const char IDS_SAY[] = "has token ids (vocab 300), which have no lines or words";
    char *domain = reef_cli_format("low=%s", f->held_low), *out = path_in(f->directory, "report");
    char *other = path_in(f->directory, "other");
    make(f->pool, "given");
    refused(IDS_SAY, "score", f->pool, f->held_low, NULL);
    refused(IDS_SAY, "score", f->pool, "--follow", f->held_low, NULL);
    refused(IDS_SAY, "generate", f->pool, NULL);
    refused(IDS_SAY, "report", f->pool, "--out", out, "--domain", domain, NULL);
    refused("boundary_mark is a line of text", "init", other, "--vocab", IDS, "--boundary-mark",
            "---", NULL);
    refused("vocab is 1, but must be 2 to 65536", "init", other, "--vocab", "1", NULL);
    free(domain);
    free(out);
    free(other);
}

static void a_daemon_is_refused_at_its_start(void **state) {
    files *f = *state;
    make(f->pool, "given");
    char *source = reef_cli_format("file:%s", f->low);
    const char *const SOURCES[] = {source, "push:web", "-"};
    for (size_t i = 0; i < 3; i++) {
        program p;
        program_run(
            &p, (const char *const[]){REEFD_PATH, "--pool", f->pool, "--source", SOURCES[i], NULL},
            NULL);
        if (p.code != REFUSED || strstr(p.err, "train it with reef train") == NULL)
            fail_msg("exit %d: %s", p.code, p.err);
        program_release(&p);
    }
    free(source);
}

static void a_size_is_measured_on_ids(void **state) {
    files *f = *state;
    json_t *bytes = reef_json("init", f->pool, "--memory", "4G", "--dry-run", NULL);
    json_t *ids =
        reef_json("init", f->pool, "--memory", "4G", "--vocab", "50000", "--dry-run", NULL);
    const json_t *small = json_object_get(bytes, "size"), *large = json_object_get(ids, "size");
    assert_true(integer(large, "memory_bytes") > integer(small, "memory_bytes") ||
                strcmp(json_string_value(json_object_get(large, "name")),
                       json_string_value(json_object_get(small, "name"))) != 0);
    json_decref(bytes);
    json_decref(ids);
    expect_keys(reef_json("init", f->pool, "--size", "small", "--vocab", IDS, "--d-model", "16",
                          "--layers", "1", NULL),
                "size parameters");
}

int main(void) {
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(people_read_tokens),
        TEST(bad_files_are_refused_before_anything_is_trained),
        TEST(what_is_about_text_is_refused),
        TEST(a_daemon_is_refused_at_its_start),
        TEST(a_size_is_measured_on_ids),
#undef TEST
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
