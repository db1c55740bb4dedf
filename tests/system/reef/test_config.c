// The configuration that `reef init` chooses, as a user runs it.
#include "tools_world.h"

#include <unistd.h>

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
