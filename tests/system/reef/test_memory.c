// Context memories as a user of `reef` meets them: settings, what a pool holds, frozen memories.
#include "cli_format.h"
#include "tools_world.h"

#include <unistd.h>

#include "damaged_record.h"
#include "reefd_run.h"

#define MEMORY "--net-share", "1", "--boundaries", "given"

WORLD_TEST(what_cannot_be_is_refused_and_leaves_nothing) {
    char *pool = path_in(w->directory, "refused");
    static const char *const REFUSED[][5] = {
        {"this pool has no text", "--model", "layer", "--memory", "4M"},
        {"less than the 4194304 bytes", "--memory", "4194303"},
        {"set 4M or more, or 0 for none", "--memory", "1K"},
        {"must be 0 to 68719476736", "--memory", "65G"},
        {"must be 0 to 68719476736", "--memory", "68719476737"},
        {"with a unit, such as 64M", "--memory", "4MB"},
        {"with a unit, such as 64M", "--memory", "-4M"},
        {"must be an integer", "--layers", "4K"},
        {"there is none", "--memory", "0", "--net-share", "0.5"},
        {"net_share", "--memory", "4M", "--net-share", "1.5"},
    };
    for (size_t i = 0; i < sizeof(REFUSED) / sizeof(*REFUSED); i++) {
        const char *const *words = REFUSED[i];
        answers(64, words[0], "init", pool, words[1], words[2], words[3], words[4], NULL);
        assert_true(access(pool, F_OK) != 0);
    }
}

WORLD_TEST(sizes_count_it_and_units_are_read) {
    char *pool = path_in(w->directory, "sized");
    json_t *less = reef_json("init", pool, "--size", "small", "--dry-run", "--memory", "4M", NULL);
    json_t *more = reef_json("init", pool, "--size", "small", "--dry-run", NULL);
    const json_t *config = json_at(more, "config");
    assert_int_equal(integer(config, "memory"), 256 << 20);
    const json_t *was = json_at(less, "size"), *is = json_at(more, "size");
    assert_int_equal(integer(is, "memory_bytes") - integer(was, "memory_bytes"), 252 << 20);
    assert_int_equal(integer(is, "generation_bytes"), integer(was, "generation_bytes"));
    program p = answers(0, "up to 67.1 MB for memories of kinds", "init", pool, "--memory", "64m",
                        "--net-share", "0.5", "--dry-run", NULL);
    assert_non_null(strstr(p.out, "the net learns 50 % of the batches"));
    assert_non_null(strstr(p.out, "30 bytes for each byte of a kind"));
    p = answers(0, "--memory", "init", "--help", NULL);
    assert_non_null(strstr(p.out, "--net-share"));
    assert_non_null(strstr(p.out, "[1G]"));
    assert_non_null(strstr(p.out, "[0.5]"));
}

// As large as a pool was made for, since states that are kept learn again with that.
WORLD_TEST(a_budget_is_written_once) {
    char *pool = path_in(w->directory, "once");
    (void)reef_json("init", pool, TINY_OPTIONS, NULL);
    static const char *const SIZES[] = {"8M", "1M", "much"};
    for (size_t i = 0; i < 3; i++) {
        program p = answers(64, "written once, since states that are kept learn again with it",
                            "grow", pool, "--memory", SIZES[i], NULL);
        assert_non_null(strstr(p.err, formatted("reef init NEW --memory %s", SIZES[i])));
    }
}

// What `reef init` makes of these options, to its end: a memory and this share for the net, or no
// memory and all.
static void chooses(const world *w, double share, const char *option, const char *value) {
    char *pool = path_in(w->directory, "chosen");
    json_t *plan = reef_json("init", pool, "--dry-run", option, value, NULL);
    const json_t *config = json_at(plan, "config");
    const json_int_t memory = share == 1.0 ? 0 : share == 0.5 ? 1 << 30 : 256 << 20;
    assert_int_equal(integer(config, "memory"), memory);
    assert_true(number(config, "net_share") == share);
}

WORLD_TEST(a_new_pool_of_bytes_has_one_unless_told_otherwise) {
    chooses(w, 0.5, NULL, NULL);
    chooses(w, 0.125, "--size", "small");
    chooses(w, 0.5, "--memory", "1G");
    chooses(w, 0.5, "--boundaries", "given");
    chooses(w, 1.0, "--memory", "0");
    chooses(w, 1.0, "--model", "layer");
}

// A pool that was trained on English and sealed, and then on C.
static char *trained(const world *w, const char *name) {
    char *pool = path_in(w->directory, name);
    program p = reef("init", pool, TINY_OPTIONS, MEMORY, NULL);
    if (p.code != 0) fail_msg("init: %s", p.err);
    (void)reef_json("train", pool, w->english, NULL);
    (void)reef_json("seal", pool, NULL);
    (void)reef_json("train", pool, w->code, NULL);
    return pool;
}

// A net alone, which has no kinds.
static char *without_memories(const world *w, const char *name) {
    char *pool = path_in(w->directory, name);
    (void)reef_json("init", pool, TINY_OPTIONS, "--memory", "0", NULL);
    (void)reef_json("train", pool, w->english, NULL);
    return pool;
}

WORLD_TEST(status_and_generations_tell_what_it_holds) {
    char *pool = trained(w, "told");
    json_t *status = reef_json("status", pool, NULL);
    const json_t *memory = json_at(status, "context_memory");
    // All but the last batch, which lacks the byte after it.
    assert_in_range(integer(memory, "learned_bytes"), 200, 300);
    assert_int_equal(integer(memory, "bytes_max"), 4 << 20);
    assert_true(is_null(memory, "inputs"));
    json_t *generations = reef_json("generations", pool, NULL);
    const json_t *list = json_at(generations, "generations");
    memory = json_at(list, "0.context_memory");
    assert_in_range(integer(memory, "learned_bytes"), 300, 400);
    assert_in_range(integer(memory, "bytes"), 1, 4 << 20);
    assert_in_range(integer(memory, "cells_used"), 100, integer(memory, "cells"));
    assert_true(number(memory, "used_share") > 0.0 && number(memory, "used_share") < 1.0);
    // The tables of the open one are so young that none were stored.
    memory = json_at(list, "1.context_memory");
    assert_in_range(integer(memory, "learned_bytes"), 200, 300);
    assert_int_equal(integer(memory, "bytes"), 0);
    assert_true(is_null(memory, "used_share"));

    answers(0, "of 4.2 MB;", "status", pool, NULL);
    answers(0, "filled %", "generations", pool, NULL);
    answers(0, "of 4.2 MB", "top", pool, "--once", NULL);
    // And of a pool without there is nothing to tell.
    char *plain = without_memories(w, "plain");
    program p = reef("generations", plain, NULL);
    assert_null(strstr(p.out, "filled %"));
    status = reef_json("status", plain, NULL);
    assert_true(is_null(status, "context_memory"));
}

static double loss_of(const json_t *document) {
    return number(document, "files.0.bits_per_byte");
}

WORLD_TEST(frozen_memories_do_not_adapt) {
    char *pool = trained(w, "frozen");
    json_t *adapts = reef_json("eval", pool, w->code, "--as-of", "0", NULL);
    json_t *frozen = reef_json("eval", pool, w->code, "--as-of", "0", "--frozen", NULL);
    json_t *alone = reef_json("eval", pool, w->code, "--as-of", "0", "--frozen=alone", NULL);
    json_t *again = reef_json("eval", pool, w->code, "--as-of", "0", NULL);
    assert_true(loss_of(adapts) < loss_of(frozen));
    assert_true(loss_of(frozen) < loss_of(alone));
    assert_true(loss_of(adapts) == loss_of(again));
    assert_true(is_true(frozen, "frozen"));
    assert_false(is_true(adapts, "frozen"));
    assert_string_equal(string(alone, "frozen"), "alone");

    // What the inputs were worth, the net among them.
    const json_t *inputs = json_at(adapts, "files.0.inputs");
    double sum = 0.0, net = -1.0;
    size_t i;
    const json_t *one;
    json_array_foreach(inputs, i, one) {
        sum += number(one, "share");
        if (strcmp(string(one, "name"), "net") == 0) net = number(one, "share");
    }
    assert_true(sum > 0.999 && sum < 1.001);
    assert_true(net > 0.0 && net < 1.0);

    json_t *matrix = reef_json("eval", pool, "--matrix", w->code, NULL);
    json_t *stiff = reef_json("eval", pool, "--matrix", "--frozen", w->code, NULL);
    assert_false(json_equal(json_at(matrix, "matrix"), json_at(stiff, "matrix")));
    json_t *score = reef_json("score", pool, w->code, NULL);
    json_t *fixed = reef_json("score", pool, w->code, "--frozen", NULL);
    assert_true(number(score, "bits") < number(fixed, "bits"));
    // Lines are judged alone.
    alone = reef_json("eval", pool, w->code, "--frozen=alone", NULL);
    assert_true(number(fixed, "bits") == number(alone, "files.0.bits"));
    json_t *same_lines = reef_json("score", pool, w->code, "--frozen=alone", NULL);
    assert_true(json_equal(same_lines, fixed));
    (void)reef_json("generate", pool, "--prompt", "int ", "--bytes", "20", "--frozen", NULL);

    program p = answers(0, "share %", "eval", pool, w->code, "--verbose", NULL);
    assert_non_null(strstr(p.out, "\nnet "));
    // Nothing adapts in a pool without.
    char *bare = without_memories(w, "bare");
    json_t *plain = reef_json("eval", bare, w->code, NULL);
    json_t *same = reef_json("eval", bare, w->code, "--frozen", NULL);
    assert_true(json_equal(json_at(plain, "files"), json_at(same, "files")));
    assert_null(json_at(plain, "files.0.inputs"));
}

// ---- kinds --------------------------------------------------------------------------------------

// Two kinds of text that have no context in common: words in letters, or in digits.
static void write_kind(const char *path, bool digits, size_t count) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    uint32_t draw = digits ? 7 : 3;
    for (size_t i = 0; i < count; i++) {
        draw = draw * 1664525u + 1013904223u;
        char word[8] = "a bcdef";
        for (int k = 0; k < 6; k++)
            word[k] = (char)((digits ? '0' : 'a') + ((draw >> 24) % 5 + (uint32_t)k) % 8);
        fprintf(file, "%.6s%c", word, i % 9 == 8 ? '\n' : ' ');
    }
    assert_int_equal(fclose(file), 0);
}

// A pool without a net that has learned both, and a text that begins with one and ends with the
// other.
static char *two_kinds(const world *w, const char *name, char **mixed) {
    char *pool = path_in(w->directory, name), *letters = path_in(w->directory, "letters");
    char *digits = path_in(w->directory, "digits"), command[1024];
    *mixed = path_in(w->directory, "mixed");
    (void)reef_json("init", pool, "--net-share", "0", "--boundaries", "contexts", "--memory", "4M",
                    NULL);
    write_kind(letters, false, 4000);
    write_kind(digits, true, 4000);
    (void)reef_json("train", pool, letters, digits, NULL);
    snprintf(command, sizeof(command), "(head -c 2000 %s; head -c 1000 %s) > %s", letters, digits,
             *mixed);
    assert_int_equal(system(command), 0);
    return pool;
}

WORLD_TEST(a_pool_without_a_net_stores_next_to_none) {
    char *pool = path_in(w->directory, "alone");
    json_t *alone = reef_json("init", pool, "--net-share", "0", "--dry-run", NULL);
    const json_t *config = json_at(alone, "config");
    assert_string_equal(string(config, "ffw"), "d");
    assert_int_equal(integer(config, "layers"), 1);
    json_t *given = reef_json("init", pool, "--net-share", "0", "--layers", "3", "--dry-run", NULL);
    assert_int_equal(integer(given, "config.layers"), 3);
    answers(0, "context memories alone", "init", pool, "--net-share", "0", "--dry-run", NULL);
}

WORLD_TEST(kinds_are_drawn_where_they_answered) {
    char *mixed, *pool = two_kinds(w, "drawn", &mixed);
    json_t *document = reef_json("eval", pool, mixed, "--kinds", NULL);
    const json_t *file = json_at(document, "files.0");
    const json_t *shares = json_at(file, "fire_share");
    assert_int_equal(json_array_size(shares), 2);
    assert_true(number(shares, "0") > 0.6);
    assert_true(number(shares, "1") > 0.25);
    // From some byte behind the change on it is the other kind for good. The first one adapts to
    // what comes, and so simple a text it soon foresees as well.
    const json_t *kinds = json_at(file, "kinds");
    const json_t *runs = json_at(kinds, "runs"), *most = json_at(kinds, "most");
    const json_t *last = json_array_get(runs, json_array_size(runs) - 1);
    assert_int_equal(integer(runs, "0.from"), 0);
    double weight = number(last, "weight");
    assert_true(weight > 0.5 && weight <= 1.0);
    assert_int_equal(integer(last, "kind"), 1);
    assert_in_range(integer(last, "from"), 2000, 2300);
    assert_int_equal(integer(most, "0.kind"), 0);
    assert_int_equal(integer(most, "0.bytes") + integer(most, "1.bytes"), 3000);
    program p = answers(0, "answered % by kind", "eval", pool, mixed, "--kinds", NULL);
    assert_non_null(strstr(p.out, "kind 1 "));
    assert_non_null(strstr(p.out, "█"));
}

// Of generation 1, which is open, and of kind 0, which has come back.
WORLD_TEST(the_memory_of_a_kind_that_came_back_is_shown) {
    char *mixed, *pool = two_kinds(w, "back", &mixed), *letters = path_in(w->directory, "more");
    json_t *before = reef_json("status", pool, NULL);
    assert_int_equal(integer(before, "kind"), 1);
    assert_true(json_equal(json_at(before, "kind_memory"), json_at(before, "context_memory")));
    write_kind(letters, false, 3000);
    (void)reef_json("train", pool, letters, NULL);
    json_t *status = reef_json("status", pool, NULL);
    const json_t *memory = json_at(status, "kind_memory");
    assert_int_equal(integer(status, "kind"), 0);
    assert_int_equal(integer(status, "generation"), 1);
    assert_in_range(integer(memory, "learned_bytes"), 7 * 7000 - 4096, 7 * 7000 + 4096);
    assert_in_range(integer(memory, "bytes"), 1, 4 << 20);
    assert_in_range(integer(status, "context_memory.learned_bytes"),
                    integer(before, "context_memory.learned_bytes"), 32000);
    char words[CLI_WORD_BYTES],
        *line = formatted("%s learned, ",
                          reef_cli_bytes((uint64_t)integer(memory, "learned_bytes"), words));
    answers(0, line, "status", pool, NULL);
    answers(0, line, "top", pool, "--once", NULL);
}

WORLD_TEST(kinds_are_listed_and_named) {
    char *mixed, *pool = two_kinds(w, "kinds", &mixed);
    (void)reef_json("snapshot", "create", pool, "unnamed", NULL);
    (void)reef_json("kind", "name", pool, "1", "digits", NULL);
    json_t *list = reef_json("kind", "list", pool, NULL);
    const json_t *kinds = json_at(list, "kinds"), *digits = json_at(kinds, "1");
    assert_int_equal(json_array_size(kinds), 2);
    assert_true(is_null(kinds, "0.name"));
    assert_string_equal(string(digits, "name"), "digits");
    assert_true(is_true(digits, "learning"));
    json_t *shown = reef_json("kind", "list", pool, "digits", NULL);
    assert_int_equal(length(shown, "kinds"), 1);
    const json_t *only = json_at(shown, "kinds.0");
    const json_t *visits = json_at(only, "visit_list");
    assert_int_equal(json_array_size(visits), 1);
    assert_int_equal(integer(visits, "0.from"), integer(only, "began_at"));
    assert_int_equal(integer(visits, "0.learned_bytes"), integer(only, "visited_bytes"));
    json_t *first = reef_json("kind", "list", pool, "--as-of", "0", NULL);
    assert_int_equal(length(first, "kinds"), 1);
    assert_string_equal(string(first, "as_of"), "0");
    static const struct {
        const char *const words[5];
        const char *said;
    } SHOWN[] = {
        {{"kind", "list"}, "digits "},
        {{"kind", "list"}, "█"},
        {{"kind", "list", "0"}, "bits per byte"},
        {{"kind", "list", "0"}, "visits      1\n"},
        {{"kind", "list", "--as-of", "0"}, "0  -"},
        {{"kind", "list", "digits", "--as-of", "now"}, "kind 1, digits, learning"},
        {{"kind", "list", "1", "--as-of", "unnamed"}, "kind 1, learning"},
        {{"status"}, "1, digits, of 2, is being learned"},
        {{"top", "--once"}, "1, digits, of 2"},
        {{"generations"}, "digits"},
        {{"timeline"}, "kind=1 name=digits"},
        {{"kind", "name", "digits", "--remove", "--dry-run"}, "would be without a name"},
        {{"kind", "name", "digits", "numbers"}, "kind 1, so far digits, is called numbers"},
        {{"kind", "name", "numbers", "numbers"}, "kind 1 is called numbers already"},
    };
    for (size_t i = 0; i < sizeof(SHOWN) / sizeof(*SHOWN); i++) {
        const char *const *words = SHOWN[i].words;
        bool one = words[1] == NULL || words[1][0] == '-';
        if (one)
            answers(0, SHOWN[i].said, words[0], pool, words[1], NULL);
        else
            answers(0, SHOWN[i].said, words[0], words[1], pool, words[2], words[3], words[4], NULL);
    }
    answers(0, "numbers  ", "eval", pool, mixed, "--kinds", NULL);
}

WORLD_TEST(names_that_cannot_be_are_refused) {
    char *pool = path_in(w->directory, "kinds"); // of the test before
    static const struct {
        const char *kind, *name;
        int code;
        const char *said;
    } REFUSED[] = {
        {"0", "numbers", 64, "kind 1 is called numbers already"},
        {"0", "12", 64, "numbers name the kinds themselves"},
        {"0", "two words", 64, "is not a name for a kind"},
        {"0", NULL, 64, "give a name, or --remove"},
        {"9", "nine", 66, "there is no kind 9"},
        {"letters", "a", 66, "no kind is called letters"},
    };
    for (size_t i = 0; i < sizeof(REFUSED) / sizeof(*REFUSED); i++) {
        const char *const said = REFUSED[i].said;
        answers(REFUSED[i].code, said, "kind", "name", pool, REFUSED[i].kind, REFUSED[i].name,
                NULL);
    }
    answers(66, "no kind is called digits", "kind", "list", pool, "digits", "--as-of", "unnamed",
            NULL);
    program p = reef("kind", "list", pool, "--as-of", "nowhere", NULL);
    assert_int_equal(p.code, 66);
    json_t *list = reef_json("kind", "list", pool, NULL);
    const json_t *first = json_at(list, "kinds.0");
    assert_true(is_null(first, "name"));
}

// Letters come back while each of two generations is open, so long that new tables are stored.
WORLD_TEST(old_states_are_given_up) {
    char *mixed, *pool = two_kinds(w, "pruned", &mixed), *more = path_in(w->directory, "more");
    static const size_t WORDS[] = {14000, 40000};
    for (size_t i = 0; i < 2; i++) {
        if (i == 1) (void)reef_json("seal", pool, NULL);
        write_kind(more, false, WORDS[i]);
        (void)reef_json("train", pool, more, "--pool-max", "1G", NULL);
    }
    program p = reef("eval", pool, "--as-of", "1", mixed, NULL);
    assert_int_equal(p.code, 0);
    answers(0, "would give up 1 state: 1 visit of kinds, ", "prune", pool, "--keep-last", "1",
            "--dry-run", NULL);
    answers(0, "gave up 1 state: 1 visit of kinds, ", "prune", pool, "--keep-last", "1", "--yes",
            NULL);
    p = reef("prune", pool, "--keep-last", "1", NULL);
    assert_string_equal(p.out, "nothing to give up\n");
    answers(66, "no state as of generation 1: what kind 0 had learned by then", "eval", pool,
            "--as-of", "1", mixed, NULL);
    json_t *matrix = reef_json("eval", pool, "--matrix", mixed, NULL);
    const json_t *rows = json_at(matrix, "matrix");
    assert_int_equal(json_array_size(rows), 4);
    for (size_t row = 0; row < 4; row++)
        assert_int_equal(json_is_null(json_at(json_array_get(rows, row), "0")), row == 1);
    json_t *list = reef_json("generations", pool, NULL);
    for (size_t g = 0; g < 3; g++) {
        const json_t *one = json_array_get(json_at(list, "generations"), g);
        assert_int_equal(json_is_true(json_at(one, "pruned")), g == 1);
    }
    static const struct {
        const char *words[4];
        const char *said;
    } REFUSED[] = {
        {{"prune"}, "how many states should stay? give --keep-last N"},
        {{"prune", "--keep-last", "0"}, "--keep-last"},
        {{"train", "missing", "--pool-max", "much"}, "--pool-max much is not a size such as 20G"},
    };
    for (size_t i = 0; i < sizeof(REFUSED) / sizeof(*REFUSED); i++) {
        const char *const *words = REFUSED[i].words;
        answers(64, REFUSED[i].said, words[0], pool, words[1], words[2], words[3], NULL);
    }
}

WORLD_TEST(a_damaged_kind_is_told_and_recovered) {
    char *mixed, *pool = two_kinds(w, "damaged", &mixed);
    const reef_key key = {.db = REEF_DB_MEMORY, .name = "mixer"};
    record_damage(pool, &key);
    program p = answers(0, "kind 0 is damaged, and does not answer: memory (generation 0", "eval",
                        pool, mixed, NULL);
    assert_non_null(strstr(p.err, "reef verify"));
    p = reef("score", pool, mixed, "--json", NULL);
    json_t *document = json_of_text(p.out);
    const json_t *lost = json_at(document, "lost_kinds");
    assert_int_equal(json_array_size(lost), 1);
    assert_int_equal(integer(lost, "0.kind"), 0);
    assert_int_equal(integer(lost, "0.whole_to"), 0);
    answers(65, "kind 0 is damaged, and must not learn on", "train", pool, mixed, NULL);
    answers(65, "reef kind recover ", "verify", pool, NULL);
    answers(0, "kind 0 begins anew: nothing that it learned is whole", "kind", "recover", pool,
            NULL);
    p = reef("kind", "recover", pool, NULL);
    assert_string_equal(p.out, "no kind is damaged\n");
    (void)reef_json("train", pool, mixed, NULL);
    p = reef("eval", pool, mixed, NULL);
    assert_string_equal(p.err, "");
}

WORLD_TEST(kinds_are_of_memories) {
    char *plain = without_memories(w, "no-kinds");
    static const char *const REFUSED[][3] = {
        {"--kinds", NULL, "the pool has none"},
        {"--kinds", "--matrix", "--kinds and --matrix are two answers"},
    };
    for (size_t i = 0; i < sizeof(REFUSED) / sizeof(*REFUSED); i++) {
        answers(64, REFUSED[i][2], "eval", plain, w->code, REFUSED[i][0], REFUSED[i][1], NULL);
    }
}

RUN_TESTS_IN(world_make, world_remove)
