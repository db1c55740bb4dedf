// The real `reef`, run as a user runs it: help, answers for programs, changes, and what goes wrong.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): POSIX owns the name.
#define _XOPEN_SOURCE 700 // nftw

#include "tools_world.h"

#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands.h"
#include "test.h"
#include "whole_file.h"

// ---- help ---------------------------------------------------------------------------------------

PLAIN_TEST(every_command_explains_itself_with_an_example) {
    size_t count;
    const reef_cli_command *commands = reef_cli_commands(&count);
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) {
        char *name = formatted("%s", commands[i].name);
        char *second = strchr(name, ' ');
        if (second != NULL) *second++ = '\0';
        program p;
        const char *argv[] = {REEF_BINARY, name, second ? second : "--help",
                              second ? "--help" : NULL, NULL};
        program_run(&p, argv, NULL);
        assert_int_equal(p.code, 0);
        assert_string_equal(p.err, "");
        char *synopsis = formatted("usage: reef %s", commands[i].name);
        assert_non_null(strstr(p.out, synopsis));
        assert_non_null(strstr(p.out, "\nexample:\n"));
        assert_non_null(strstr(strstr(p.out, "\nexample:\n"), "  $ "));
        assert_non_null(strstr(strstr(p.out, "\nexample:\n"), commands[i].name));
        assert_non_null(strstr(p.out, commands[i].summary));
    }
}

PLAIN_TEST(help_lists_every_command) {
    program bare, help;
    bare = reef(NULL);
    help = reef("help", NULL);
    assert_int_equal(bare.code, 0);
    assert_string_equal(bare.out, help.out);
    size_t group_count;
    const reef_cli_group *groups = reef_cli_groups(&group_count);
    assert_int_equal(group_count, 5);
    size_t count, grouped = 0;
    const reef_cli_command *commands = reef_cli_commands(&count);
    for (size_t g = 0; g < group_count; g++) {
        assert_non_null(strstr(help.out, groups[g].title));
        grouped += groups[g].count;
    }
    assert_int_equal(grouped, count);
    assert_in_range(count, 1, 45); // more of them are too many to find one's way
    for (size_t i = 0; i < count; i++) assert_non_null(strstr(help.out, commands[i].name));
}

PLAIN_TEST(the_first_word_of_several_commands_lists_them) {
    json_t *document = reef_json("help", "snapshot", NULL);
    size_t i, listed = 0, count;
    json_t *one;
    json_array_foreach(json_at(document, "commands"), i, one) listed +=
        strncmp(string(one, "name"), "snapshot ", 9) == 0;
    assert_int_equal(listed, length(document, "commands"));
    const reef_cli_command *commands = reef_cli_commands(&count);
    for (size_t k = 0; k < count; k++) listed -= strncmp(commands[k].name, "snapshot ", 9) == 0;
    assert_int_equal(listed, 0);
}

PLAIN_TEST(every_field_of_a_model_is_an_option_of_init) {
    program p, few;
    few = reef("init", "--help", NULL);
    size_t shown = 0, count;
    for (const char *line = few.out; line != NULL; line = strchr(line + 1, '\n'))
        shown += strncmp(line, "\n  --", 5) == 0;
    assert_int_equal(shown, 7);
    p = reef("init", "--help-all", NULL);
    const reef_config_field *fields = reef_config_fields(&count);
    for (size_t i = 0; i < count; i++) {
        char *option = formatted("--%s VALUE", fields[i].name);
        for (char *c = option; *c; c++)
            if (*c == '_') *c = '-';
        if ((strstr(p.out, option) == NULL) != fields[i].of_layers)
            fail_msg("%s in the help of init", option);
    }
}

// ---- answers for programs -----------------------------------------------------------------------

WORLD_TEST(every_json_answer_is_one_document_with_its_keys) {
    char *fresh = path_in(w->directory, "json-pool");
    expect_keys(reef_json("init", fresh, TINY_OPTIONS, NULL),
                "pool created parameters experts file_bytes config");
    expect_keys(reef_json("status", w->pool, NULL),
                "pool state step stream_bytes generation experts last_commit daemon");
    expect_keys(reef_json("eval", w->pool, w->english, w->code, NULL), "as_of files");
    expect_keys(reef_json("eval", w->pool, "--matrix", w->english, w->code, NULL),
                "files rows matrix forgetting");
    expect_keys(reef_json("score", w->pool, w->english, NULL), "bytes bits bits_per_byte lines");
    expect_keys(reef_json("generate", w->pool, "--bytes", "8", NULL),
                "as_of prompt text generated_hex");
    expect_keys(reef_json("generations", w->pool, NULL), "generations");
    expect_keys(reef_json("usage", w->pool, NULL), "generation layers");
    expect_keys(reef_json("timeline", w->pool, NULL), "events");
    expect_keys(reef_json("verify", w->pool, NULL), "sound damaged records root");
    expect_keys(reef_json("snapshot", "list", w->pool, NULL), "snapshots");
    expect_keys(reef_json("plot", "loss", w->pool, NULL), "points boundaries_found");
    expect_keys(reef_json("version", NULL), "version format kernels blas");
    expect_keys(reef_json("help", NULL), "commands");
    expect_keys(reef_json("help", "snapshot", "create", NULL), "name options example");
}

// ---- what the numbers mean ----------------------------------------------------------------------

static double eval_bits(world *w, const char *as_of, const char *file) {
    return number(reef_json("eval", w->pool, "--as-of", as_of, file, NULL),
                  "files.0.bits_per_byte");
}

static double cell(const json_t *document, size_t row, size_t column) {
    return json_real_value(
        json_array_get(json_array_get(json_at(document, "matrix"), row), column));
}

WORLD_TEST(the_matrix_holds_what_eval_says_state_by_state) {
    json_t *document = reef_json("eval", w->pool, "--matrix", w->english, w->code, NULL);
    assert_int_equal(length(document, "matrix"), 3);
    static const char *const STATES[] = {"0", "1", "now"};
    for (size_t row = 0; row < 3; row++) {
        assert_true(cell(document, row, 0) == eval_bits(w, STATES[row], w->english));
        assert_true(cell(document, row, 1) == eval_bits(w, STATES[row], w->code));
    }
    // Training on C left a trace, so as-of really evaluates another state.
    assert_true(cell(document, 0, 1) != cell(document, 2, 1));
}

WORLD_TEST(a_snapshot_is_evaluated_as_it_was) {
    assert_true(eval_bits(w, "kept", w->code) != eval_bits(w, "now", w->code));
    assert_true(isfinite(eval_bits(w, "kept", w->code)));
}

WORLD_TEST(lines_of_score_add_up_to_the_whole) {
    json_t *document = reef_json("score", w->pool, "--top", "0", w->english, NULL);
    double sum = 0;
    size_t index;
    json_t *line;
    json_array_foreach(json_at(document, "lines"), index, line) {
        assert_int_equal(integer(line, "line"), (json_int_t)index + 1);
        sum += number(line, "bits");
    }
    assert_int_equal(index, integer(document, "line_count"));
    // The first byte has nothing before it and counts 8 bits in its line only.
    assert_true(fabs(sum - 8 - number(document, "bits")) < 1e-3 * sum);
}

WORLD_TEST(the_most_surprising_lines_come_first) {
    json_t *document = reef_json("score", w->pool, "--top", "3", w->english, NULL);
    json_t *lines = json_at(document, "lines");
    assert_int_equal(json_array_size(lines), 3);
    for (size_t i = 1; i < 3; i++)
        assert_true(number(json_array_get(lines, i - 1), "score") >=
                    number(json_array_get(lines, i), "score"));
}

WORLD_TEST(one_line_is_a_line) {
    char *file = path_in(w->directory, "line");
    write_file(file, "the sea\n");
    program p = reef("score", w->pool, file, NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "line: 1 line, 7 bytes scored, "));
    assert_int_equal(unlink(file), 0);
}

// Its bits are those of its own bytes: it has no line end to predict.
WORLD_TEST(a_line_without_an_end_has_the_rate_of_its_bytes) {
    char *file = path_in(w->directory, "endless");
    for (int last = 0; last < 2; last++) {
        write_file(file, last ? "the sea\nhello" : "hello");
        json_t *document = reef_json("score", w->pool, "--top", "0", file, NULL);
        json_t *lines = json_at(document, "lines");
        const json_t *line = json_array_get(lines, json_array_size(lines) - 1);
        assert_int_equal(integer(line, "bytes"), 5);
        assert_true(fabs(number(line, "bits_per_byte") - number(line, "bits") / 5) < 1e-9);
        line = json_at(lines, "0");
        if (last)
            assert_true(fabs(number(line, "bits_per_byte") - number(line, "bits") / 8) < 1e-9);
    }
    assert_int_equal(unlink(file), 0);
}

// Dry or not, it is refused with the same words.
static void both_refuse(int code, const char *says, const char *const *words) {
    char *told = NULL;
    for (int dry = 1; dry >= 0; dry--) {
        const char *argv[ARGUMENTS_MAX] = {REEF_BINARY};
        size_t count = 1;
        while (words[count - 1] != NULL) {
            argv[count] = words[count - 1];
            count++;
        }
        if (dry) argv[count] = "--dry-run";
        program p;
        program_run(&p, argv, NULL);
        if (p.code != code || strstr(p.err, says) == NULL)
            fail_msg("%s %s%s: exit %d: %s%s", words[0], words[1], dry ? " dry" : "", p.code, p.out,
                     p.err);
        if (dry)
            told = formatted("%s", p.err);
        else
            assert_string_equal(p.err, told);
    }
}

#define BOTH_REFUSE(code, says, ...)                                                               \
    both_refuse(code, says, (const char *const[]){__VA_ARGS__, NULL})

WORLD_TEST(a_dry_run_refuses_what_the_command_refuses) {
    char *fresh = path_in(w->directory, "fresh"), *full = path_in(w->directory, "full");
    char *layer = path_in(w->directory, "layer");
    char long_name[101] = {0};
    memset(long_name, 'a', 100);
    make_pool(fresh);
    (void)reef_json("init", full, TINY_OPTIONS, "--experts-max", "20", NULL);
    (void)reef_json("init", layer, "--model", "layer", "--d-model", "8", "--side", "4", "--topk",
                    "2", "--experts-max", "20", NULL);
    BOTH_REFUSE(64, "not a name for a snapshot", "snapshot", "create", fresh, "a b");
    BOTH_REFUSE(64, "not a name for a snapshot", "snapshot", "create", fresh, long_name);
    BOTH_REFUSE(64, "it names the last commit", "snapshot", "create", fresh, "now");
    BOTH_REFUSE(64, "there is nothing to seal", "seal", fresh);
    BOTH_REFUSE(73, "side 40 would make", "grow", full, "--side", "40");
    BOTH_REFUSE(73, "experts_max 20", "seal", layer);
    BOTH_REFUSE(64, "a layer by itself", "train", layer, w->english);
}

WORLD_TEST(the_same_seed_generates_the_same_text) {
    json_t *first =
        reef_json("generate", w->pool, "--prompt", "the", "--bytes", "40", "--seed", "5", NULL);
    json_t *same =
        reef_json("generate", w->pool, "--prompt", "the", "--bytes", "40", "--seed", "5", NULL);
    json_t *other =
        reef_json("generate", w->pool, "--prompt", "the", "--bytes", "40", "--seed", "6", NULL);
    assert_true(json_equal(first, same));
    assert_false(json_equal(first, other));
    assert_int_equal(strlen(string(first, "generated_hex")), 80);
}

WORLD_TEST(usage_counts_every_selection_of_every_layer) {
    json_t *document = reef_json("usage", w->pool, "--generation", "0", NULL);
    json_t *layers = json_at(document, "layers");
    assert_int_equal(json_array_size(layers), 1); // the second block is dense
    json_t *layer = json_at(layers, "0");
    assert_int_equal(integer(layer, "experts"), TINY_SIDE * TINY_SIDE);
    assert_int_equal(integer(layer, "used") + integer(layer, "dead"), TINY_SIDE * TINY_SIDE);
    assert_true(integer(layer, "selections") > 0);
    json_int_t experts = 0;
    size_t index;
    json_t *bucket;
    json_array_foreach(json_at(layer, "histogram"), index, bucket) experts +=
        integer(bucket, "experts");
    assert_int_equal(experts, TINY_SIDE * TINY_SIDE);
}

// A terminal obeys some bytes of a name, and JSON does not bear all of them.
WORLD_TEST(names_of_any_bytes_are_shown_as_text) {
    char *file = path_in(w->directory, "e\033[31mx\xff");
    assert_int_equal(link(w->english, file), 0);
    program shown[3];
    shown[0] = reef("eval", w->pool, file, NULL);
    shown[1] = reef("score", w->pool, file, NULL);
    shown[2] = reef("eval", w->pool, "--matrix", file, NULL);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(shown[i].code, 0);
        assert_non_null(strstr(shown[i].out, "e\\x1b[31mx\\xff"));
        assert_null(strpbrk(shown[i].out, "\033\xff"));
    }
}

// ---- changes ------------------------------------------------------------------------------------

static json_int_t generation_count(const char *pool) {
    json_t *document = reef_json("generations", pool, NULL);
    return (json_int_t)length(document, "generations");
}

static char *root_of(const char *pool) {
    json_t *document = reef_json("verify", pool, NULL);
    assert_true(is_true(document, "sound"));
    return formatted("%s", string(document, "root"));
}

WORLD_TEST(dry_runs_change_nothing) {
    char *before = root_of(w->pool);
    (void)reef_json("seal", w->pool, "--dry-run", NULL);
    (void)reef_json("grow", w->pool, "--side", "9", "--dry-run", NULL);
    (void)reef_json("freeze", w->pool, "--dry-run", NULL);
    (void)reef_json("thaw", w->pool, "--dry-run", NULL);
    (void)reef_json("snapshot", "create", w->pool, "new", "--dry-run", NULL);
    (void)reef_json("init", w->missing, "--dry-run", NULL);
    json_t *plan = reef_json("train", w->pool, w->english, w->code, "--dry-run", NULL);
    assert_int_equal(integer(plan, "files"), 2);
    assert_int_equal(integer(plan, "stream_bytes"), 400 + 300);
    (void)reef_json("export", "pool", w->pool, w->missing, "--dry-run", NULL);
    assert_int_not_equal(access(w->missing, F_OK), 0);
    char *after = root_of(w->pool);
    assert_string_equal(before, after);
    assert_int_equal(generation_count(w->pool), 2);
}

WORLD_TEST(seal_grow_freeze_and_snapshot_do_what_they_say) {
    char *pool = trained_pool(w, "changed");
    json_t *grown = reef_json("grow", pool, "--side", "6", NULL);
    assert_int_equal(integer(grown, "experts_added"), 6 * 6 - TINY_SIDE * TINY_SIDE);

    json_t *frozen = reef_json("freeze", pool, "--layer", "0", "--first", "3", "--last", "9", NULL);
    assert_int_equal(integer(frozen, "changed"), 7);
    json_t *rest = reef_json("freeze", pool, NULL);
    assert_int_equal(integer(rest, "changed"), 6 * 6 - 7);
    json_t *thawed = reef_json("thaw", pool, "--first", "30", NULL);
    assert_int_equal(integer(thawed, "changed"), 6);

    (void)reef_json("snapshot", "create", pool, "one", NULL);
    json_t *list = reef_json("snapshot", "list", pool, NULL);
    assert_int_equal(length(list, "snapshots"), 2);

    json_t *sealed = reef_json("seal", pool, NULL);
    assert_true(is_true(sealed, "sealed.sealed"));
    assert_int_equal(integer(sealed, "opened.side"), TINY_SIDE);
    assert_true(integer(sealed, "loss_bytes") > 0);
    assert_true(number(sealed, "loss_before") > 0.0);
    assert_true(number(sealed, "loss_before") == number(sealed, "loss_after"));
    assert_int_equal(generation_count(pool), 3);
    program again; // a generation that has trained nothing is not sealed
    program_run(&again, (const char *const[]){REEF_BINARY, "seal", pool, NULL}, NULL);
    assert_int_equal(again.code, 64);
    assert_non_null(strstr(again.err, "generation 2 is open and has trained nothing yet"));
    assert_true(is_sound(pool));
}

WORLD_TEST(a_dry_seal_names_the_size_that_is_opened) {
    program p;
    char *pool = trained_pool(w, "dry");
    p = reef("seal", pool, "--dry-run", NULL);
    assert_int_equal(p.code, 0);
    if (strstr(p.out, "would open generation 2 (4 x 4 experts in each PEER layer)") == NULL)
        fail_msg("%s", p.out);
    json_t *sealed = reef_json("seal", pool, NULL);
    assert_int_equal(integer(sealed, "opened.side"), TINY_SIDE);
}

WORLD_TEST(seal_rounds_when_asked_for) {
    char *pool = trained_pool(w, "rounded");
    program refused, said;
    program_run(&refused,
                (const char *const[]){REEF_BINARY, "seal", pool, "--seal-dtype", "f16", NULL},
                NULL);
    assert_int_equal(refused.code, 64);
    assert_non_null(strstr(refused.err, "must be f32 or int8"));
    assert_int_equal(generation_count(pool), 2);

    json_t *dry = reef_json("seal", pool, "--seal-dtype", "int8", "--dry-run", NULL);
    assert_string_equal(string(dry, "seal_dtype"), "int8");
    assert_true(is_null(dry, "loss_before"));
    program_run(&said,
                (const char *const[]){REEF_BINARY, "seal", pool, "--seal-dtype", "int8", NULL},
                NULL);
    assert_int_equal(said.code, 0);
    assert_non_null(strstr(said.out, "with rows of int8"));
    assert_non_null(strstr(said.out, "bits per byte before"));

    json_t *document = reef_json("generations", pool, NULL);
    const json_t *list = json_at(document, "generations");
    static const char *const DTYPES[] = {"f32", "int8", "f32"};
    assert_int_equal(json_array_size(list), 3);
    for (size_t g = 0; g < 3; g++)
        assert_string_equal(string(json_array_get(list, g), "dtype"), DTYPES[g]);
    assert_true(is_sound(pool));
}

WORLD_TEST(init_takes_an_empty_directory) {
    char *pool = path_in(w->directory, "mounted");
    assert_int_equal(mkdir(pool, 0700), 0);
    make_pool(pool);
    assert_int_equal(generation_count(pool), 1);
}

WORLD_TEST(a_path_need_not_be_utf8) {
    char *pool = path_in(w->directory, "p\351");
    json_t *made = reef_json("init", pool, TINY_OPTIONS, NULL);
    assert_non_null(strstr(string(made, "pool"), "p\\xe9"));
    (void)reef_json("status", pool, NULL);
    (void)reef_json("verify", pool, NULL);
}

WORLD_TEST(the_pool_may_be_named_in_three_ways) {
    json_t *first = reef_json("eval", w->pool, w->english, NULL);
    json_t *option = reef_json("eval", "--pool", w->pool, w->english, NULL);
    assert_int_equal(setenv("REEF_POOL", w->pool, 1), 0);
    json_t *environment = reef_json("eval", w->english, NULL);
    // A directory that stands first is meant, whatever the environment says.
    assert_int_equal(setenv("REEF_POOL", w->missing, 1), 0);
    json_t *over = reef_json("eval", w->pool, w->english, NULL);
    assert_int_equal(unsetenv("REEF_POOL"), 0);
    assert_true(json_equal(first, option));
    assert_true(json_equal(first, environment));
    assert_true(json_equal(first, over));
}

// ---- what goes wrong ----------------------------------------------------------------------------

// Names of all files below a directory, to see that nothing was made or lost.
static size_t file_count;

static int count_one(const char *path, const struct stat *info, int type, struct FTW *walk) {
    (void)path;
    (void)info;
    (void)type;
    (void)walk;
    file_count++;
    return 0;
}

static size_t count_files(const char *directory) {
    file_count = 0;
    assert_int_equal(nftw(directory, count_one, 8, FTW_PHYS), 0);
    return file_count;
}

typedef struct mistake {
    const char *argv[ARGUMENTS_MAX];
    int code;
    const char *says; // part of the message
} mistake;

static void expect_mistake(const world *w, const mistake *m) {
    const char *argv[ARGUMENTS_MAX + 2] = {REEF_BINARY};
    size_t count = 1, files = count_files(w->directory);
    for (; m->argv[count - 1] != NULL; count++) argv[count] = m->argv[count - 1];
    program p;
    program_run(&p, argv, NULL);
    if (p.code != m->code || line_count(p.err) != 1 || strstr(p.err, m->says) == NULL)
        fail_msg("reef %s %s: exit %d, not %d with '%s': %s", argv[1], argv[2] ? argv[2] : "",
                 p.code, m->code, m->says, p.err);
    assert_string_equal(p.out, "");

    // The same for programs: the same code, and a document that says why. (An option that lacks its
    // value would take --json for it.)
    if (strstr(m->says, "needs a value") != NULL) return;
    argv[count] = "--json";
    program_run(&p, argv, NULL);
    assert_int_equal(p.code, m->code);
    json_t *document = json_of_text(p.out);
    assert_true(json_is_string(json_at(document, "error.message")));
    assert_int_equal(line_count(p.out), 1); // as those who read line by line expect
    assert_int_equal(count_files(w->directory), files);
}

WORLD_TEST(mistakes_are_named_in_one_line_and_leave_everything_as_it_was) {
    char *root = root_of(w->pool);
    const mistake mistakes[] = {
        {{"evl"}, 64, "did you mean eval?"},
        {{"frob"}, 64, "unknown command 'frob'; see reef help"},
        {{"snapshot"}, 64, "create, list, restore, remove, prune"},
        {{"snapshot", "lst"}, 64, "unknown command 'snapshot lst'; did you mean snapshot list?"},
        {{"snapshot", "zzzzzzzz"}, 64, "snapshot needs one of: create, list"},
        {{"snapsot"}, 64, "did you mean snapshot?"},
        {{"snapsot", "lst"}, 64, "unknown command 'snapsot lst'; did you mean snapshot list?"},
        {{"stauts", "list"}, 64, "unknown command 'stauts'; did you mean status?"},
        {{"stat"}, 64, "did you mean status?"},
        {{"snap"}, 64, "did you mean snapshot?"},
        {{"--jsn", "status"}, 64, "unknown option '--jsn': options come after the command"},
        {{"status", w->pool, "--jsn"}, 64, "did you mean --json?"},
        {{"status", w->pool, "-q"}, 64, "unknown option '-q'"},
        {{"status", w->pool, "--json=1"}, 64, "takes no value"},
        {{"eval", w->pool, w->english, "--as-of"}, 64, "needs a value"},
        {{"eval", w->pool, w->english, "--frozen=all"}, 64, "must be alone or nothing"},
        {{"status"}, 64, "no pool given"},
        {{"status", w->pool, "more"}, 64, "unexpected argument 'more'"},
        {{"eval", w->pool}, 64, "FILE"},
        {{"init", w->missing, "--d-key", "7"}, 64, "d_key"},
        {{"init", w->missing, "--topk", "65"}, 64, "topk"},
        {{"init", w->missing, "--heads", "0"}, 64, "heads"},
        {{"init", w->missing, "--d-modle", "7"}, 64, "did you mean --d-model?"},
        {{"init", w->missing, "--layers", "many"}, 64, "layers"},
        {{"init", w->missing, "--growth", "up"}, 64, "'--growth' is gone: reef grow"},
        {{"init", w->missing, "--boundaries", "all"}, 64, "must be contexts or given"},
        {{"init", w->missing, "--experts-max", "9"}, 64, "experts_max 9 is less than"},
        {{"init", w->pool}, 64, "exists; choose"},
        {{"init", w->empty}, 64, "exists"},
        {{"status", w->missing}, 66, w->missing},
        {{"status", w->not_a_pool}, 64, w->not_a_pool},
        {{"verify", w->missing}, 66, w->missing},
        {{"seal", w->missing}, 66, w->missing},
        {{"eval", w->pool, w->missing}, 66, w->missing},
        {{"eval", w->pool, w->not_a_pool}, 66, w->not_a_pool},
        {{"eval", w->pool, w->empty}, 64, w->empty},
        {{"score", w->pool, w->empty}, 64, w->empty},
        {{"eval", w->pool, "--as-of", "nothing", w->english}, 66, "nothing"},
        {{"eval", w->pool, "--as-of", "7", w->english}, 66, "7"},
        {{"usage", w->pool, "--generation", "7"}, 66, "7"},
        {{"snapshot", "remove", w->pool, "nothing"}, 66, "nothing"},
        {{"snapshot", "create", w->pool, "kept"}, 64, "kept exists; choose"},
        {{"snapshot", "create", w->pool, "a/b"}, 64, "a/b"},
        {{"grow", w->pool}, 64, "--side"},
        {{"grow", w->pool, "--side", "2"}, 64, "--side"},
        {{"freeze", w->pool, "--layer", "1"}, 64, "layer"},
        {{"freeze", w->pool, "--layer", "2"}, 66, "there is no layer 2"},
        {{"freeze", w->pool, "--first", "5", "--last", "4"}, 64, "--last"},
        {{"freeze", w->pool, "--usage-above", "2"}, 64, "--usage-above"},
        {{"generate", w->pool, "--prompt", ""}, 64, "empty"},
        {{"generate", w->pool, "--temperature", "warm"}, 64, "--temperature"},
        {{"generate", w->pool, "--top-p", "0"}, 64, "--top-p"},
        {{"report", w->pool}, 64, "'report' is gone: reef eval --matrix"},
        {{"plot", "loss", w->pool, "--svg", "a"}, 64, "'plot loss --svg' is gone"},
        {{"help", "evl"}, 64, "did you mean eval?"},
        {{"help", "snapsot", "lst"}, 64, "did you mean snapshot list?"},
    };
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++)
        expect_mistake(w, &mistakes[i]);
    char *after = root_of(w->pool);
    assert_string_equal(root, after);
}

PLAIN_TEST(an_unknown_instruction_set_is_refused) {
    program p;
    assert_int_equal(setenv("REEF_ISA", "abacus", 1), 0);
    p = reef("version", NULL);
    assert_int_equal(unsetenv("REEF_ISA"), 0);
    assert_int_equal(p.code, 64);
    assert_non_null(strstr(p.err, "abacus"));
}

WORLD_TEST(a_damaged_pool_is_reported_and_ends_with_65) {
    char *pool = path_in(w->directory, "damaged");
    make_pool(pool);
    char *data = path_in(pool, "data.mdb");
    int file = open(data, O_RDWR);
    assert_true(file >= 0);
    struct stat info;
    assert_int_equal(fstat(file, &info), 0);
    // Every page from the fifth on loses a few bytes in its middle: some of them belong to records.
    for (off_t at = 5 * 4096 + 2000; at < info.st_size; at += 4096)
        assert_int_equal(pwrite(file, "damage", 6, at), 6);
    close(file);
    program p = reef("verify", pool, NULL);
    assert_int_equal(p.code, 65);
    assert_non_null(strstr(p.err, "damaged"));
}

WORLD_TEST(output_that_cannot_be_written_is_an_error) {
    if (access("/dev/full", W_OK) != 0) skip();
    program p;
    const char *argv[] = {"/bin/sh", "-c", "exec " REEF_BINARY " help > /dev/full", NULL};
    program_run(&p, argv, NULL);
    assert_int_equal(p.code, 74);
    assert_non_null(strstr(p.err, "standard output"));
}

int main(void) {
    reef_cmd_install();
    return test_run(world_make, world_remove);
}
