// `reef experts`: what it says of single experts is what the pool holds and what the model does.
#include "cli_pool.h"
#include "tools_world.h"

#include <inttypes.h>
#include <math.h>

#define EXPERTS_OLD (TINY_SIDE * TINY_SIDE)         // of generation 0, which is sealed
#define EXPERTS_NEW (TINY_SIDE_NEW * TINY_SIDE_NEW) // of generation 1, which is open
#define TOPK 2                                      // of one head

static void must(reef_status status, const reef_error *err) {
    if (status != REEF_OK) fail_msg("%s", err->message);
}

static const json_t *row(const json_t *document, size_t i) {
    return json_array_get(json_object_get(document, "experts"), i);
}

static size_t rows(const json_t *document) {
    return json_array_size(json_object_get(document, "experts"));
}

static json_int_t total_uses(const json_t *document) {
    json_int_t sum = 0;
    for (size_t i = 0; i < rows(document); i++) sum += integer(row(document, i), "uses");
    return sum;
}

// ---- lists --------------------------------------------------------------------------------------

static void all_experts_are_there_once_the_most_used_first(void **state) {
    world *w = *state;
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
        assert_string_equal(json_string_value(json_object_get(one, "state")),
                            g ? "open" : "sealed");
        assert_int_equal(
            reef_expert_id_of((uint32_t)integer(one, "row"), (uint32_t)integer(one, "column")), id);
        if (i > 0) assert_true(integer(row(all, i - 1), "uses") >= integer(one, "uses"));
    }
    json_decref(all);
    json_t *first = reef_json("experts", w->pool, "--generation", "1", "--top", "3", NULL);
    assert_int_equal(rows(first), 3);
    assert_int_equal(integer(first, "total"), EXPERTS_NEW);
    json_decref(first);
}

static void uses_are_those_of_reef_usage(void **state) {
    world *w = *state;
    for (int g = 0; g < 2; g++) {
        char name[2] = {(char)('0' + g), '\0'};
        json_t *list = reef_json("experts", w->pool, "--generation", name, "--top", "0", NULL);
        json_t *usage = reef_json("usage", w->pool, "--generation", name, NULL);
        const json_t *layer = json_array_get(json_object_get(usage, "layers"), 0);
        const json_t *top = json_array_get(json_object_get(layer, "top"), 0);
        assert_int_equal(total_uses(list), integer(layer, "selections"));
        assert_int_equal(integer(row(list, 0), "id"), integer(top, "expert"));
        assert_true(number(row(list, 0), "share") == number(top, "share"));
        double shares = 0;
        for (size_t i = 0; i < rows(list); i++) {
            const json_t *one = row(list, i);
            bool used = integer(one, "uses") > 0;
            shares += number(one, "share");
            assert_int_equal(json_is_null(json_object_get(one, "last_ms")), !used);
            // A softmax over two gives the better one half or more.
            if (used) assert_true(number(one, "weight") > 0 && number(one, "weight") < 1);
        }
        assert_true(fabs(shares - 1) < 1e-9);
        json_decref(list);
        json_decref(usage);
    }
    json_t *none = reef_json("experts", w->pool, "--since", "2099-01-01", "--top", "0", NULL);
    assert_int_equal(total_uses(none), 0);
    assert_int_equal(integer(row(none, 0), "generation"), 0); // equals stay in order
    assert_int_equal(integer(row(none, 0), "id"), 0);
    json_decref(none);
    json_t *all = reef_json("experts", w->pool, "--since", "1h", "--top", "0", NULL),
           *ever = reef_json("experts", w->pool, "--top", "0", NULL);
    assert_int_equal(total_uses(all), total_uses(ever)); // all of it was just now
    json_decref(all);
    json_decref(ever);
}

static double key(const json_t *one, const char *name) {
    const json_t *value = json_object_get(one, name);
    return json_is_null(value) ? -1 : json_number_value(value);
}

static void sorting_goes_by_what_was_asked_for(void **state) {
    world *w = *state;
    static const char *const SORTS[][2] = {{"uses", "uses"},      {"share", "share"},
                                           {"weight", "weight"},  {"last", "last_ms"},
                                           {"down", "norm_down"}, {"up", "norm_up"}};
    for (size_t s = 0; s < sizeof(SORTS) / sizeof(SORTS[0]); s++) {
        json_t *list = reef_json("experts", w->pool, "--sort", SORTS[s][0], "--top", "0", NULL);
        json_t *back =
            reef_json("experts", w->pool, "--sort", SORTS[s][0], "--top", "0", "--reverse", NULL);
        const char *name = SORTS[s][1];
        for (size_t i = 1; i < rows(list); i++) {
            assert_true(key(row(list, i - 1), name) >= key(row(list, i), name));
            double before = key(row(back, i - 1), name), after = key(row(back, i), name);
            assert_true(after == -1 || before <= after);
        }
        assert_true(key(row(list, 0), name) > key(row(list, rows(list) - 1), name));
        json_decref(list);
        json_decref(back);
    }
    json_t *list = reef_json("experts", w->pool, "--sort", "id", "--top", "0", NULL);
    json_t *back = reef_json("experts", w->pool, "--sort", "id", "--top", "0", "--reverse", NULL);
    for (size_t i = 0, last = rows(list) - 1; i <= last; i++) {
        assert_int_equal(integer(row(list, i), "pool_id"), i);
        assert_int_equal(integer(row(back, i), "pool_id"), last - i);
    }
    json_decref(list);
    json_decref(back);
}

enum { D = 16 }; // of TINY_OPTIONS

// What lies on disk, read by hand: one block, [w_down, w_up] a row.
static void norms_are_those_of_the_rows(void **state) {
    world *w = *state;
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
        assert_true(json_is_null(json_object_get(row(few, i), "norm_gate")));
    }
    json_decref(few);
    json_decref(all);
}

static void frozen_ones_are_distinguished_from_those_that_learn(void **state) {
    world *w = *state;
    char *pool = path_in(w->directory, "frozen");
    make_pool(pool);
    tiny_pool_train(pool);
    json_decref(reef_json("freeze", pool, "--first", "2", "--last", "4", NULL));
    static const struct {
        const char *name;
        json_int_t count;
    } STATES[] = {{"frozen", 3}, {"open", EXPERTS_NEW - 3}, {"sealed", EXPERTS_OLD}};
    for (size_t i = 0; i < 3; i++) {
        json_t *list = reef_json("experts", pool, "--state", STATES[i].name, "--sort", "id", NULL);
        assert_int_equal(integer(list, "total"), STATES[i].count);
        for (size_t k = 0; k < rows(list); k++)
            assert_string_equal(json_string_value(json_object_get(row(list, k), "state")),
                                STATES[i].name);
        if (i == 0) assert_int_equal(integer(row(list, 0), "id"), 2);
        json_decref(list);
    }
    // Sealed in a coarser type an expert is nearly what it was.
    json_t *before = reef_json("experts", pool, "--generation", "1", "--sort", "id", NULL);
    json_decref(reef_json("seal", pool, "--seal-dtype", "bf16", NULL));
    json_t *after = reef_json("experts", pool, "--generation", "1", "--sort", "id", NULL);
    for (size_t i = 0; i < EXPERTS_NEW; i++) {
        double down = number(row(before, i), "norm_down"), up = number(row(before, i), "norm_up");
        assert_true(fabs(number(row(after, i), "norm_down") - down) < 0.004 * down);
        assert_true(fabs(number(row(after, i), "norm_up") - up) <= 0.004 * up);
        assert_int_equal(integer(row(after, i), "uses"), integer(row(before, i), "uses"));
        assert_string_equal(json_string_value(json_object_get(row(after, i), "state")), "sealed");
    }
    json_decref(before);
    json_decref(after);
    free(pool);
}

// ---- one ----------------------------------------------------------------------------------------

static void one_expert_has_its_rank(void **state) {
    world *w = *state;
    json_t *list = reef_json("experts", w->pool, "--generation", "1", "--top", "0", NULL);
    for (size_t i = 0; i < EXPERTS_NEW; i += 4) {
        char *id = reef_cli_format("%d", (int)integer(row(list, i), "id"));
        json_t *one = reef_json("experts", w->pool, "--id", id, NULL); // of the open generation
        assert_int_equal(integer(one, "rank"), i + 1);
        assert_int_equal(integer(one, "experts"), EXPERTS_NEW);
        json_object_del(one, "rank");
        json_object_del(one, "experts");
        assert_true(json_equal(one, row(list, i)));
        json_decref(one);
        free(id);
    }
    json_decref(list);
}

typedef struct tally {
    reef_usage usage;
    size_t last, calls;
    double low, high; // of the activation
} tally;

static void on_use(void *context, size_t at, double score, double activation) {
    tally *t = context;
    if (t->calls > 0) assert_true(at > t->last);
    t->last = at;
    t->calls++;
    t->usage.count++;
    t->usage.score += (uint64_t)(score * REEF_USAGE_SCORE_ONE + 0.5);
    t->low = fmin(t->low, activation);
    t->high = fmax(t->high, activation);
}

// As of generation 0 there is one block that retrieves: the model's own count of a text is the
// oracle.
static void places_of_a_text_are_where_the_model_chose_the_expert(void **state) {
    world *w = *state;
    reef_error err;
    reef_store *store = NULL;
    reef_model *model = NULL;
    reef_usage usage[EXPERTS_OLD] = {{0}};
    char *text = tiny_text("c", 300);
    const uint8_t *bytes = (const uint8_t *)text;
    must(reef_store_open(&store, w->pool, NULL, &err), &err);
    must(reef_model_open(&model, store, "0", &(reef_model_options){.threads = 1}, &err), &err);
    must(reef_model_usage(model, bytes, 300, EXPERTS_OLD, usage, &err), &err);
    bool moved = false;
    for (uint32_t n = 0; n < EXPERTS_OLD; n++) {
        tally t = {0};
        must(reef_model_expert_uses(model, 0, 0, n, bytes, 300, on_use, &t, &err), &err);
        assert_int_equal(t.usage.count, usage[n].count);
        assert_true(t.usage.score == usage[n].score);
        assert_true(t.low > -0.1701); // the least that a GELU says
        moved |= t.high > t.low;
    }
    assert_true(moved);
    tally none = {0};
    assert_int_equal(
        reef_model_expert_uses(model, 0, 0, EXPERTS_OLD, bytes, 300, on_use, &none, &err),
        REEF_ERR_NOT_FOUND);
    assert_int_equal(reef_model_expert_uses(model, 1, 0, 0, bytes, 300, on_use, &none, &err),
                     REEF_ERR_NOT_FOUND);
    assert_int_equal(reef_model_expert_uses(model, 0, 1, 0, bytes, 300, on_use, &none, &err),
                     REEF_ERR_NOT_FOUND); // a dense one
    assert_int_equal(none.calls, 0);
    reef_model_close(model);
    reef_store_close(store);
    free(text);
}

static void read_floats(reef_txn *txn, const char *name, float *out, size_t count) {
    reef_error err;
    const reef_key where = {.db = REEF_DB_TENSORS, .name = name};
    must(reef_record_read(txn, &where, out, count * sizeof(*out), &err), &err);
}

static void norm(const float *x, const float *scale, const float *shift, float *out) {
    double mean = 0, squares = 0;
    for (size_t d = 0; d < D; d++) mean += (double)x[d] / D;
    for (size_t d = 0; d < D; d++) squares += ((double)x[d] - mean) * ((double)x[d] - mean) / D;
    for (size_t d = 0; d < D; d++)
        out[d] = (float)(((double)x[d] - mean) / sqrt(squares + 1e-5)) * scale[d] + shift[d];
}

static double gelu(double v) {
    return 0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
}

// What the experts of the first block see of a text's first byte: it attends to nothing but itself.
static void first_token(reef_txn *txn, uint8_t byte, float out[D]) {
    static float embedding[4 * 256 * D], position[16 * D], w_qkv[D * 3 * D], w_out[D * D];
    float scale[D], shift[D], normed[D], value[D] = {0}, x[D];
    read_floats(txn, "embedding", embedding, 4 * 256 * D); // its own byte, and three before it
    read_floats(txn, "position", position, 16 * D);
    read_floats(txn, "block0.w_qkv", w_qkv, D * 3 * D);
    read_floats(txn, "block0.w_out", w_out, D * D);
    for (size_t d = 0; d < D; d++) x[d] = position[d] + embedding[byte * D + d];
    read_floats(txn, "block0.norm1_scale", scale, D);
    read_floats(txn, "block0.norm1_shift", shift, D);
    norm(x, scale, shift, normed);
    for (size_t i = 0; i < D; i++)
        for (size_t d = 0; d < D; d++) value[d] += normed[i] * w_qkv[i * 3 * D + 2 * D + d];
    for (size_t i = 0; i < D; i++)
        for (size_t d = 0; d < D; d++) x[d] += value[i] * w_out[i * D + d];
    read_floats(txn, "block0.norm2_scale", scale, D);
    read_floats(txn, "block0.norm2_shift", shift, D);
    norm(x, scale, shift, out);
}

static void on_first(void *context, size_t at, double score, double activation) {
    double *said = context;
    (void)score;
    if (at == 0) *said = activation;
}

// By hand from what lies on disk, for every byte that a text may begin with.
static void activations_are_what_the_neuron_says(void **state) {
    world *w = *state;
    reef_error err;
    reef_store *store = NULL;
    reef_model *model = NULL;
    reef_txn *txn = NULL;
    float rows_of[EXPERTS_OLD][2][D], x[D];
    const reef_key where = {.db = REEF_DB_EXPERTS};
    size_t chosen = 0;
    must(reef_store_open(&store, w->pool, NULL, &err), &err);
    must(reef_model_open(&model, store, "0", &(reef_model_options){.threads = 1}, &err), &err);
    must(reef_txn_begin(&txn, store, REEF_TXN_READ, &err), &err);
    must(reef_record_read(txn, &where, rows_of, sizeof(rows_of), &err), &err);
    for (unsigned byte = 'a'; byte <= 'h'; byte++) {
        const uint8_t text[2] = {(uint8_t)byte, ' '};
        first_token(txn, text[0], x);
        for (uint32_t n = 0; n < EXPERTS_OLD; n++) {
            double said = NAN, sum = 0;
            must(reef_model_expert_uses(model, 0, 0, n, text, 2, on_first, &said, &err), &err);
            if (isnan(said)) continue;
            for (size_t d = 0; d < D; d++) sum += (double)rows_of[n][0][d] * (double)x[d];
            if (!(fabs(said - gelu(sum)) < 1e-4))
                fail_msg("expert %u at '%c': %f, by hand %f", n, byte, said, gelu(sum));
            chosen++;
        }
    }
    assert_int_equal(chosen, 8 * TOPK);
    reef_txn_abort(txn);
    reef_model_close(model);
    reef_store_close(store);
}

// A later generation is used only where its gate fires, and there by each token TOPK times.
static void a_silent_generation_uses_no_expert(void **state) {
    world *w = *state;
    reef_error err;
    reef_store *store = NULL;
    reef_model *model = NULL;
    double share[2];
    reef_score score = {.fire_share = share};
    const struct {
        const char *kind;
        size_t count;
    } TEXTS[] = {{"english", 400}, {"c", 2000}};
    must(reef_store_open(&store, w->pool, NULL, &err), &err);
    must(reef_model_open(&model, store, NULL, &(reef_model_options){.threads = 1}, &err), &err);
    for (size_t i = 0; i < 2; i++) {
        char *text = tiny_text(TEXTS[i].kind, TEXTS[i].count);
        size_t count = TEXTS[i].count;
        tally t = {0};
        must(reef_model_score(model, (const uint8_t *)text, count, NULL, &score, NULL, NULL, &err),
             &err);
        for (uint32_t n = 0; n < EXPERTS_NEW; n++) {
            t.calls = 0;
            must(reef_model_expert_uses(model, 1, 0, n, (const uint8_t *)text, count, on_use, &t,
                                        &err),
                 &err);
        }
        // The score leaves the last byte out, which has nothing to predict.
        double fired = share[1] * (double)(count - 1);
        assert_true(fabs((double)t.usage.count / TOPK - fired) < 1.01);
        free(text);
    }
    assert_true(share[1] > 0); // or nothing was seen
    reef_model_close(model);
    reef_store_close(store);
}

static void the_strongest_places_come_first_with_their_context(void **state) {
    world *w = *state;
    json_t *one = reef_json("experts", w->pool, "--generation", "0", "--id", "3", "--text",
                            w->english, "--places", "400", NULL);
    const json_t *text = json_object_get(one, "text");
    const json_t *places = json_object_get(text, "places");
    char *bytes = tiny_text("english", 400);
    double before = INFINITY;
    assert_int_equal(integer(text, "bytes"), 400);
    assert_int_equal(integer(text, "chosen"), json_array_size(places));
    assert_true(json_array_size(places) > 3);
    size_t i;
    json_t *place;
    json_array_foreach(places, i, place) {
        double strength = fabs(number(place, "weight") * number(place, "activation"));
        assert_true(strength <= before);
        before = strength;
        json_int_t at = integer(place, "at");
        assert_int_equal(json_string_value(json_object_get(place, "byte"))[0], bytes[at]);
        const char *after = json_string_value(json_object_get(place, "after"));
        if (at < 399) assert_int_equal(after[0], bytes[at + 1]);
    }
    json_t *three = reef_json("experts", w->pool, "--generation", "0", "--id", "3", "--text",
                              w->english, "--places", "3", NULL);
    const json_t *first = json_object_get(json_object_get(three, "text"), "places");
    assert_int_equal(json_array_size(first), 3);
    for (i = 0; i < 3; i++)
        assert_true(json_equal(json_array_get(first, i), json_array_get(places, i)));
    double shares = 0;
    json_array_foreach(json_object_get(text, "by_byte"), i, place) {
        shares += number(place, "share");
        assert_non_null(strchr(bytes, (int)integer(place, "byte")));
    }
    assert_true(i > 0 && shares > 0 && shares < 1 + 1e-9);
    json_decref(one);
    json_decref(three);
    free(bytes);
}

// What the state that was asked for chooses, not the one of now.
static void a_text_is_read_as_of_an_earlier_state(void **state) {
    world *w = *state;
    static const char *const STATES[] = {"0", "now"};
    reef_error err;
    reef_store *store = NULL;
    tally t[2][EXPERTS_OLD];
    memset(t, 0, sizeof(t));
    reef_cli_file code = {0};
    must(reef_cli_file_read(&code, w->code, &err), &err);
    must(reef_store_open(&store, w->pool, NULL, &err), &err);
    for (size_t s = 0; s < 2; s++) {
        reef_model *model = NULL;
        must(reef_model_open(&model, store, STATES[s], &(reef_model_options){.threads = 1}, &err),
             &err);
        for (uint32_t n = 0; n < EXPERTS_OLD; n++)
            must(reef_model_expert_uses(model, 0, 0, n, code.bytes, code.count, on_use, &t[s][n],
                                        &err),
                 &err);
        reef_model_close(model);
    }
    reef_store_close(store);
    reef_cli_file_release(&code);
    uint32_t n = 0; // one that distinguishes the states
    while (n < EXPERTS_OLD && t[0][n].calls == t[1][n].calls) n++;
    assert_true(n < EXPERTS_OLD);
    char *id = reef_cli_format("%" PRIu32, n);
    for (size_t s = 0; s < 2; s++) {
        json_t *one = reef_json("experts", w->pool, "--generation", "0", "--id", id, "--text",
                                w->code, "--as-of", STATES[s], NULL);
        const json_t *text = json_object_get(one, "text");
        assert_string_equal(json_string_value(json_object_get(text, "as_of")), STATES[s]);
        assert_int_equal(integer(text, "chosen"), t[s][n].calls);
        json_decref(one);
    }
    // The last generation is that of the state.
    json_t *then =
        reef_json("experts", w->pool, "--id", id, "--text", w->code, "--as-of", "0", NULL);
    assert_int_equal(integer(then, "generation"), 0);
    json_decref(then);
    program p;
    reef(&p, "experts", w->pool, "--id", id, "--text", w->code, "--as-of", "0", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "in the text  as of 0 chosen by "));
    program_release(&p);
    free(id);
}

// ---- kinds of experts ---------------------------------------------------------------------------

static char *trained(const world *w, const char *name, const char *option, const char *value) {
    char *pool = path_in(w->directory, name);
    program p;
    reef(&p, "init", pool, "--layers", "1", "--d-model", "16", "--attention-heads", "2",
         "--context", "16", "--batch", "2", "--heads", "1", "--topk", "2", "--d-key", "8", "--side",
         "4", "--side-new", "3", "--context-memory", "0", option, value, NULL);
    assert_int_equal(p.code, 0);
    program_release(&p);
    json_decref(reef_json("train", pool, w->english, "--cost-repeats", "0", NULL));
    return pool;
}

static void every_kind_says_what_it_has(void **state) {
    world *w = *state;
    static const struct {
        const char *option, *value;
        bool down, gate;
        double low, high; // of activations
    } KINDS[] = {{"--ffw", "k", false, false, 1, 1},
                 {"--expert", "relu", true, false, 0, INFINITY},
                 {"--expert", "glu", true, true, -INFINITY, INFINITY}};
    for (size_t i = 0; i < 3; i++) {
        char *pool = trained(w, KINDS[i].value, KINDS[i].option, KINDS[i].value);
        json_t *list = reef_json("experts", pool, "--top", "1", NULL);
        assert_int_equal(json_is_number(json_object_get(row(list, 0), "norm_down")), KINDS[i].down);
        assert_int_equal(json_is_number(json_object_get(row(list, 0), "norm_gate")), KINDS[i].gate);
        assert_true(number(row(list, 0), "norm_up") > 0);
        char *id = reef_cli_format("%d", (int)integer(row(list, 0), "id"));
        json_t *one = reef_json("experts", pool, "--id", id, "--text", w->english, NULL);
        const json_t *places = json_object_get(json_object_get(one, "text"), "places");
        assert_true(json_array_size(places) > 0);
        size_t k;
        json_t *place;
        json_array_foreach(places, k, place) {
            double activation = number(place, "activation");
            assert_true(activation >= KINDS[i].low && activation <= KINDS[i].high);
        }
        json_decref(one);
        json_decref(list);
        free(id);
        free(pool);
    }
}

static void units_of_a_vector_model_have_a_class_and_no_uses(void **state) {
    world *w = *state;
    char *pool = path_in(w->directory, "vectors"), *file = path_in(w->directory, "xor.csv"),
         *spec = reef_cli_format("csv:%s", file);
    FILE *out = fopen(file, "w");
    assert_non_null(out);
    fputs("a,b,class\n", out);
    for (int i = 0; i < 256; i++) fprintf(out, "%d,%d,%d\n", i % 7, i % 5, 4 + 3 * (i % 7 > 3));
    assert_int_equal(fclose(out), 0);
    json_decref(reef_json("init", pool, "--model", "vector", "--inputs", "2", "--side", "4",
                          "--memory", "50", NULL));
    json_decref(reef_json("train", pool, spec, "--cost-repeats", "0", NULL));
    json_t *list = reef_json("experts", pool, "--top", "5", NULL);
    assert_string_equal(json_string_value(json_object_get(list, "sort")), "up");
    assert_int_equal(integer(list, "total"), 16);
    assert_int_equal(rows(list), 5);
    for (size_t i = 0; i < 5; i++) {
        json_int_t class = integer(row(list, i), "class");
        assert_true(class == 4 || class == 7);
        assert_true(number(row(list, i), "norm_down") > 0);
        assert_true(json_is_number(json_object_get(row(list, i), "bias")));
        assert_true(json_is_null(json_object_get(row(list, i), "uses")));
        if (i > 0)
            assert_true(number(row(list, i - 1), "norm_up") >= number(row(list, i), "norm_up"));
    }
    program p;
    reef(&p, "experts", pool, "--id", "3", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "which it speaks for most"));
    assert_null(strstr(p.out, "uses"));
    program_release(&p);
    static const char *const WRONG[][5] = {
        {"--sort", "uses", NULL, NULL, "sort by down, up or id"},
        {"--since", "3h", NULL, NULL, "sort by down, up or id"},
        {"--id", "1", "--text", "x", "--id alone shows one's norms and class"}};
    for (size_t i = 0; i < 3; i++) {
        reef(&p, "experts", pool, WRONG[i][0], WRONG[i][1], WRONG[i][2], WRONG[i][3], NULL);
        assert_int_equal(p.code, 64);
        assert_non_null(strstr(p.err, "every expert sees every input"));
        assert_non_null(strstr(p.err, WRONG[i][4]));
        program_release(&p);
    }
    json_decref(list);
    free(pool);
    free(file);
    free(spec);
}

// ---- what goes wrong ----------------------------------------------------------------------------

static void mistakes_are_reported(void **state) {
    world *w = *state;
    const struct {
        const char *words[8], *says;
        int code;
    } WRONG[] = {
        {{"--generation", "2"}, "the pool has 0 to 1", 66},
        {{"--layer", "1"}, "no experts that are retrieved", 64},
        {{"--layer", "2"}, "the model has 0 to 1", 66},
        {{"--sort", "size"}, "must be uses, share", 64},
        {{"--state", "dead"}, "open, sealed or frozen", 64},
        {{"--since", "1h", "--until", "2h"}, "is not before", 64},
        {{"--id", "9"}, "it has 0 to 8", 66},
        {{"--id", "0", "--top", "3"}, "--top is for lists", 64},
        {{"--text", "x"}, "say which with --id", 64},
        {{"--id", "0", "--places", "3"}, "--places without --text", 64},
        {{"--id", "0", "--text", "/nonexistent"}, "/nonexistent", 66},
        {{"--id", "0", "--as-of", "0"}, "--as-of is for --text", 64},
        {{"--as-of", "0"}, "--as-of is for --text", 64},
        {{"--id", "0", "--text", w->code, "--as-of", "noon"}, "noon", 66},
        {{"--id", "0", "--text", w->code, "--as-of", "0", "--generation", "1"},
         "no expert 0 in layer 0 of generation 1",
         66},
    };
    for (size_t i = 0; i < sizeof(WRONG) / sizeof(WRONG[0]); i++) {
        program p;
        const char *const *word = WRONG[i].words;
        reef(&p, "experts", w->pool, word[0], word[1], word[2], word[3], word[4], word[5], word[6],
             word[7], NULL);
        if (p.code != WRONG[i].code || strstr(p.err, WRONG[i].says) == NULL)
            fail_msg("%s %s: exit %d: %s", WRONG[i].words[0], WRONG[i].words[1], p.code, p.err);
        program_release(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_experts_are_there_once_the_most_used_first),
        cmocka_unit_test(uses_are_those_of_reef_usage),
        cmocka_unit_test(sorting_goes_by_what_was_asked_for),
        cmocka_unit_test(norms_are_those_of_the_rows),
        cmocka_unit_test(frozen_ones_are_distinguished_from_those_that_learn),
        cmocka_unit_test(one_expert_has_its_rank),
        cmocka_unit_test(places_of_a_text_are_where_the_model_chose_the_expert),
        cmocka_unit_test(activations_are_what_the_neuron_says),
        cmocka_unit_test(a_silent_generation_uses_no_expert),
        cmocka_unit_test(the_strongest_places_come_first_with_their_context),
        cmocka_unit_test(a_text_is_read_as_of_an_earlier_state),
        cmocka_unit_test(every_kind_says_what_it_has),
        cmocka_unit_test(units_of_a_vector_model_have_a_class_and_no_uses),
        cmocka_unit_test(mistakes_are_reported),
    };
    return cmocka_run_group_tests(tests, world_make, world_remove);
}
