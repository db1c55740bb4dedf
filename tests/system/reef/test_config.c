// `reef config check`, and the configuration that `reef init` chooses, as a user runs them.
#include "tools_world.h"

#include <unistd.h>

// ---- mistakes -----------------------------------------------------------------------------------

WORLD_TEST(every_mistake_of_a_file_is_named_with_its_line) {
    char *file = path_in(w->directory, "mistakes.ini");
    write_file(file,
               "[reefd]\npool = p\ncomit-steps = 4\nnonsense\nstay = perhaps\nsource = pusch:web\n"
               "source = push:web?weight=0\nsource = redis://host/log?grup=a\n"
               "source = follow:\nsource = push:web\nhttp = "
               "x:y\n[reefe]\nquiet = yes\n");
    program p = reef("config", "check", file, "--json", NULL);
    assert_int_equal(p.code, 64);
    assert_int_equal(line_count(p.err), 1);
    assert_non_null(strstr(p.err, "has 9 mistakes"));
    json_t *document = json_of_text(p.out);
    static const struct {
        json_int_t line;
        const char *says;
    } WANTED[] = {{3, "did you mean commit-steps?"},
                  {4, "neither [SECTION] nor KEY = VALUE"},
                  {5, "neither yes nor no"},
                  {6, "unknown kind of source 'pusch'"},
                  {7, "a source's weight, '0'"},
                  {8, "'grup' is not an option"},
                  {9, "names nothing after its colon"},
                  {11, "'x:y' is not an address"},
                  {13, "did you mean [reefd]?"}};
    enum { COUNT = sizeof(WANTED) / sizeof(*WANTED) };
    const json_t *found = json_at(document, "mistakes");
    assert_int_equal(json_array_size(found), COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(integer(json_array_get(found, i), "line"), WANTED[i].line);
        assert_non_null(strstr(string(json_array_get(found, i), "message"), WANTED[i].says));
    }
    p = reef("config", "check", w->missing, NULL);
    assert_int_equal(p.code, 66);
}

WORLD_TEST(a_layer_is_reported_as_it_is_made) {
    char *pool = path_in(w->directory, "a-layer");
    program p;
    json_t *plan = reef_json("init", pool, "--model", "layer", "--d-model", "8", "--side", "5",
                             "--topk", "2", "--dry-run", NULL);
    assert_int_equal(integer(plan, "experts"), 25);
    json_t *made = reef_json("init", pool, "--model", "layer", "--d-model", "8", "--side", "5",
                             "--topk", "2", NULL);
    assert_true(json_equal(json_at(plan, "config"), json_at(made, "config")));
    assert_int_equal(integer(made, "config.layers"), 1);
    p = reef("timeline", pool, NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "stream row"));
    p = reef("status", pool, NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "0 rows\n"));
}

// ---- what init chooses --------------------------------------------------------------------------

// The budget is of all memories, however many generations there are.
WORLD_TEST(a_size_has_a_budget_that_is_counted_once) {
    static const char *const SIZES[] = {"small", "medium", "large"};
    for (size_t i = 0; i < 3; i++) {
        json_t *document = reef_json("init", w->missing, "--dry-run", "--size", SIZES[i], NULL);
        json_int_t budget = integer(document, "config.memory");
        assert_true(budget == (json_int_t)256 << 20 << 2 * i);
        assert_in_range(integer(document, "size.memory_bytes"), budget, budget + (200 << 20));
        assert_in_range(integer(document, "size.generation_bytes"), 0, 8 << 20);
    }
    assert_int_not_equal(access(w->missing, F_OK), 0);
}

WORLD_TEST(a_size_chooses_no_more_experts_than_a_given_side_has) {
    json_t *document =
        reef_json("init", w->missing, "--size", "medium", "--side", "24", "--dry-run", NULL);
    assert_int_equal(integer(document, "config.topk"), 24);
    program p = reef("init", w->missing, "--size", "medium", "--side", "24", "--topk", "25",
                     "--dry-run", NULL);
    assert_int_equal(p.code, 64);
    if (strstr(p.err, "topk 25 is more than the 24 sub-keys of side") == NULL)
        fail_msg("%s", p.err);
    assert_int_not_equal(access(w->missing, F_OK), 0);
}

WORLD_TEST(what_is_given_beside_a_size_wins_over_it) {
    json_t *document =
        reef_json("init", w->missing, TINY_OPTIONS, "--size", "large", "--dry-run", NULL);
    const json_t *config = json_at(document, "config");
    assert_int_equal(integer(config, "side"), TINY_SIDE);
    assert_int_equal(integer(config, "memory"), 4 << 20);
    // Medium is what a pool has without being asked.
    document = reef_json("init", w->missing, "--size", "medium", "--dry-run", NULL);
    json_t *plain = reef_json("init", w->missing, "--dry-run", NULL);
    assert_true(json_equal(json_at(document, "config"), json_at(plain, "config")));
}

RUN_TESTS_IN(world_make, world_remove)
