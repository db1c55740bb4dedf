// `reef experts`: what it says of single experts is what the pool holds; and on a pool without a
// net the commands of experts say that there are none.
#include "cli_pool.h"
#include "tools_world.h"

#include <inttypes.h>
#include <math.h>

#define EXPERTS_OLD (TINY_SIDE * TINY_SIDE) // of generation 0, which is sealed
#define EXPERTS_NEW (TINY_SIDE * TINY_SIDE) // of generation 1, which is open

static void must(reef_status status, const reef_error *err) {
    if (status != REEF_OK) fail_msg("%s", err->message);
}

static const json_t *row(const json_t *document, size_t i) {
    return json_array_get(json_at(document, "experts"), i);
}

static size_t rows(const json_t *document) {
    return length(document, "experts");
}

static json_int_t total_uses(const json_t *document) {
    json_int_t sum = 0;
    for (size_t i = 0; i < rows(document); i++) sum += integer(row(document, i), "uses");
    return sum;
}

// ---- lists --------------------------------------------------------------------------------------

WORLD_TEST(all_experts_are_there_once_the_most_used_first) {
    json_t *all = reef_json("experts", w->pool, "--top", "0", NULL);
    bool seen[2][EXPERTS_OLD] = {{0}};
    assert_int_equal(rows(all), EXPERTS_OLD + EXPERTS_NEW);
    assert_int_equal(integer(all, "total"), EXPERTS_OLD + EXPERTS_NEW);
    for (size_t i = 0; i < rows(all); i++) {
        const json_t *one = row(all, i);
        json_int_t g = integer(one, "generation"), id = integer(one, "id");
        assert_false(seen[g][id]);
        seen[g][id] = true;
        assert_int_equal(integer(one, "layer"), 0); // the second block is dense
        assert_int_equal(integer(one, "pool_id"), id + (g ? EXPERTS_OLD : 0));
        assert_string_equal(string(one, "state"), g ? "open" : "sealed");
        assert_int_equal(
            reef_expert_id_of((uint32_t)integer(one, "row"), (uint32_t)integer(one, "column")), id);
        if (i > 0) assert_true(integer(row(all, i - 1), "uses") >= integer(one, "uses"));
    }
    json_t *first = reef_json("experts", w->pool, "--generation", "1", "--top", "3", NULL);
    assert_int_equal(rows(first), 3);
    assert_int_equal(integer(first, "total"), EXPERTS_NEW);
}

WORLD_TEST(uses_are_those_of_reef_usage) {
    for (int g = 0; g < 2; g++) {
        char name[2] = {(char)('0' + g), '\0'};
        json_t *list = reef_json("experts", w->pool, "--generation", name, "--top", "0", NULL);
        json_t *usage = reef_json("usage", w->pool, "--generation", name, NULL);
        const json_t *layer = json_at(usage, "layers.0");
        const json_t *top = json_at(layer, "top.0");
        assert_int_equal(total_uses(list), integer(layer, "selections"));
        assert_int_equal(integer(row(list, 0), "id"), integer(top, "expert"));
        assert_true(number(row(list, 0), "share") == number(top, "share"));
        double shares = 0;
        for (size_t i = 0; i < rows(list); i++) {
            const json_t *one = row(list, i);
            bool used = integer(one, "uses") > 0;
            shares += number(one, "share");
            assert_int_equal(json_is_null(json_at(one, "last_ms")), !used);
            // A softmax over two gives the better one half or more.
            if (used) assert_true(number(one, "weight") > 0 && number(one, "weight") < 1);
        }
        assert_true(fabs(shares - 1) < 1e-9);
    }
}

static json_int_t key(const json_t *one, const char *name) {
    const json_t *value = json_object_get(one, name);
    return json_is_null(value) ? 0 : json_integer_value(value);
}

WORLD_TEST(sorting_goes_by_what_was_asked_for) {
    static const char *const SORTS[][2] = {{"uses", "uses"}, {"last", "last_ms"}};
    for (size_t s = 0; s < sizeof(SORTS) / sizeof(SORTS[0]); s++) {
        json_t *list = reef_json("experts", w->pool, "--sort", SORTS[s][0], "--top", "0", NULL);
        json_t *back =
            reef_json("experts", w->pool, "--sort", SORTS[s][0], "--top", "0", "--reverse", NULL);
        const char *name = SORTS[s][1];
        for (size_t i = 1; i < rows(list); i++) {
            assert_true(key(row(list, i - 1), name) >= key(row(list, i), name));
            assert_true(key(row(back, i - 1), name) <= key(row(back, i), name));
        }
        assert_true(key(row(list, 0), name) > key(row(list, rows(list) - 1), name));
    }
    json_t *list = reef_json("experts", w->pool, "--sort", "id", "--top", "0", NULL);
    json_t *back = reef_json("experts", w->pool, "--sort", "id", "--top", "0", "--reverse", NULL);
    for (size_t i = 0, last = rows(list) - 1; i <= last; i++) {
        assert_int_equal(integer(row(list, i), "pool_id"), i);
        assert_int_equal(integer(row(back, i), "pool_id"), last - i);
    }
}

enum { D = 16 }; // of TINY_OPTIONS

// What lies on disk, read by hand: one block, [w_down, w_up] a row.
WORLD_TEST(norms_are_those_of_the_rows) {
    reef_error err;
    reef_store *store = NULL;
    reef_txn *txn = NULL;
    float values[EXPERTS_OLD][2][D];
    const reef_key where = {.db = REEF_DB_EXPERTS};
    must(reef_store_open(&store, w->pool, NULL, &err), &err);
    must(reef_txn_begin(&txn, store, REEF_TXN_READ, &err), &err);
    must(reef_record_read(txn, &where, values, sizeof(values), &err), &err);
    reef_txn_abort(txn);
    reef_store_close(store);
    // Read one by one, and all at once.
    json_t *few = reef_json("experts", w->pool, "--generation", "0", "--top", "16", NULL);
    json_t *all = reef_json("experts", w->pool, "--generation", "0", "--top", "0", NULL);
    assert_int_equal(rows(few), EXPERTS_OLD);
    for (size_t i = 0; i < EXPERTS_OLD; i++) {
        assert_true(json_equal(row(few, i), row(all, i)));
        json_int_t id = integer(row(few, i), "id");
        double down = 0, up = 0;
        for (size_t d = 0; d < D; d++) {
            down += (double)values[id][0][d] * (double)values[id][0][d];
            up += (double)values[id][1][d] * (double)values[id][1][d];
        }
        assert_true(fabs(number(row(few, i), "norm_down") - sqrt(down)) < 1e-9);
        assert_true(fabs(number(row(few, i), "norm_up") - sqrt(up)) < 1e-9);
    }
}

WORLD_TEST(frozen_ones_are_distinguished_from_those_that_learn) {
    char *pool = trained_pool(w, "frozen");
    (void)reef_json("freeze", pool, "--first", "2", "--last", "4", NULL);
    static const struct {
        const char *name;
        json_int_t count;
    } STATES[] = {{"frozen", 3}, {"open", EXPERTS_NEW - 3}, {"sealed", EXPERTS_OLD}};
    for (size_t i = 0; i < 3; i++) {
        json_t *list = reef_json("experts", pool, "--state", STATES[i].name, "--sort", "id", NULL);
        assert_int_equal(integer(list, "total"), STATES[i].count);
        for (size_t k = 0; k < rows(list); k++)
            assert_string_equal(string(row(list, k), "state"), STATES[i].name);
        if (i == 0) assert_int_equal(integer(row(list, 0), "id"), 2);
    }
    // Sealed in a coarser type an expert is nearly what it was.
    json_t *before = reef_json("experts", pool, "--generation", "1", "--sort", "id", NULL);
    (void)reef_json("seal", pool, "--seal-dtype", "int8", NULL);
    json_t *after = reef_json("experts", pool, "--generation", "1", "--sort", "id", NULL);
    for (size_t i = 0; i < EXPERTS_NEW; i++) {
        double down = number(row(before, i), "norm_down"), up = number(row(before, i), "norm_up");
        assert_true(fabs(number(row(after, i), "norm_down") - down) < 0.01 * down);
        assert_true(fabs(number(row(after, i), "norm_up") - up) <= 0.01 * up);
        assert_int_equal(integer(row(after, i), "uses"), integer(row(before, i), "uses"));
        assert_string_equal(string(row(after, i), "state"), "sealed");
    }
}

WORLD_TEST(without_a_net_the_commands_of_experts_say_so) {
    char *pool = path_in(w->directory, "no-net");
    (void)reef_json("init", pool, "--net-share", "0", NULL);
    static const char *const COMMANDS[][3] = {
        {"experts"}, {"usage"}, {"freeze"}, {"thaw"}, {"grow", "--side", "80"}};
    for (size_t i = 0; i < sizeof(COMMANDS) / sizeof(COMMANDS[0]); i++) {
        const char *const *c = COMMANDS[i];
        program p = reef(c[0], pool, c[1], c[2], NULL);
        if (p.code != 64 || strstr(p.err, "pool has no net, and so no experts") == NULL ||
            line_count(p.err) != 1 || p.out[0] != '\0')
            fail_msg("reef %s: exit %d: %s%s", c[0], p.code, p.err, p.out);
    }
    program p = reef("generations", pool, NULL);
    assert_int_equal(p.code, 0);
    assert_null(strstr(p.out, "experts"));
    assert_null(strstr(p.out, "64 x 64"));
    assert_null(strstr(p.out, "used %"));
    assert_non_null(strstr(p.out, "learned"));
    static const char *const SAY[][3] = {{"status", NULL, "none: this pool has no net"},
                                         {"top", "--once", "no net, and so no experts"}};
    for (size_t i = 0; i < 2; i++) {
        answers(0, SAY[i][2], SAY[i][0], pool, SAY[i][1], NULL);
    }
}

static json_int_t commits_of(const char *pool) {
    return integer(reef_json("status", pool, NULL), "last_commit.number");
}

WORLD_TEST(a_freeze_that_changes_nothing_is_no_event) {
    json_int_t before = commits_of(w->pool);
    json_t *thawed = reef_json("thaw", w->pool, NULL);
    assert_int_equal(integer(thawed, "changed"), 0);
    assert_int_equal(commits_of(w->pool), before);
    assert_null(strstr(reef("timeline", w->pool, "--json", NULL).out, "thaw"));
}

RUN_TESTS_IN(world_make, world_remove)
