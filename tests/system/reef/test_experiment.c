// `reef experiment` as a user runs it: which cells there are, that a killed run ends with the same
// figures, and what files come out. Models are tiny: shapes are tested here, not the paper's
// orders.
#include "cli_pool.h"
#include "tools_world.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TRAIN_BYTES 3000
#define VALID_BYTES 500
#define AWAIT_MS_MAX 120000
#define BUDGET 1.2e7
#define RSVG "/usr/bin/rsvg-convert"

#define EXPERIMENT                                                                                 \
    "[experiment]\n"                                                                               \
    "train = train.txt\n"                                                                          \
    "valid = valid.txt\n"                                                                          \
    "budgets = 1.2e7\n"                                                                            \
    "learning_rates = 0.001 0.01\n"                                                                \
    "tune_size = b\n"                                                                              \
    "seeds = 1 2\n"                                                                                \
    "vary_side = 4 8\n"                                                                            \
    "vary_heads = 1 2\n"                                                                           \
    "vary_active = 2 4\n"
#define MODEL                                                                                      \
    "[model]\n"                                                                                    \
    "context = 16\n"                                                                               \
    "batch = 2\n"                                                                                  \
    "attention_heads = 2\n"                                                                        \
    "heads = 2\n"                                                                                  \
    "topk = 2\n"                                                                                   \
    "d_key = 4\n"                                                                                  \
    "side = 8\n"                                                                                   \
    "moe_experts = 2\n"                                                                            \
    "layers = 3\n"
#define SIZES "[size a]\nd_model = 16\nd_ffw = 32\n[size b]\nd_model = 8\nd_ffw = 16\n"
#define SYSTEMS                                                                                    \
    "[system dense]\nmiddle = d\n[system moe]\nmiddle = m\n[system pkm]\nmiddle = k\n"             \
    "[system peer]\nmiddle = p\n"
#define SETS "[datasets]\nenglish = valid.txt\ncode = code.txt\n"

typedef struct place {
    char *directory, *config, *work;
    json_t *whole; // isoflop, never interrupted
} place;

static void write_kind(const place *p, const char *name, const char *kind, size_t bytes) {
    char *path = path_in(p->directory, name), *text = tiny_text(kind, bytes);
    write_file(path, text);
    free(text);
    free(path);
}

static json_t *experiment(const place *p, const char *kind, const char *work) {
    return reef_json("experiment", kind, p->config, "--work", work, "--jobs", "2", "--threads", "1",
                     NULL);
}

static int setup(void **state) {
    unsetenv("REEF_POOL");
    place *p = reef_cli_alloc(1, sizeof(*p));
    p->directory = test_directory_new();
    p->config = path_in(p->directory, "paper.ini");
    p->work = path_in(p->directory, "work");
    write_kind(p, "train.txt", "english", TRAIN_BYTES);
    write_kind(p, "valid.txt", "english", VALID_BYTES);
    write_kind(p, "code.txt", "c", VALID_BYTES);
    write_file(p->config, EXPERIMENT MODEL SIZES SYSTEMS SETS);
    p->whole = experiment(p, "isoflop", p->work);
    *state = p;
    return 0;
}

static int teardown(void **state) {
    place *p = *state;
    json_decref(p->whole);
    test_directory_remove(p->directory);
    free(p->config);
    free(p->work);
    free(p);
    return 0;
}

static const char *word(const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    assert_non_null(text);
    return text;
}

static double setting(const json_t *cell, const char *name) {
    const json_t *value = json_object_get(json_object_get(cell, "config"), name);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static bool is_of(const json_t *cell, const char *system, bool tuning) {
    return strcmp(word(cell, "system"), system) == 0 &&
           json_is_true(json_object_get(cell, "tuning")) == tuning;
}

static bool has(const json_t *object, const char *name) {
    return json_is_number(json_object_get(object, name));
}

// ---- isoFLOP ------------------------------------------------------------------------------------

static void a_cell_spends_its_budget_in_whole_steps(void **state) {
    const place *p = *state;
    size_t i;
    json_t *cell;
    json_array_foreach(json_object_get(p->whole, "cells"), i, cell) {
        assert_true(json_is_true(json_object_get(cell, "done")));
        double spent = number(cell, "spent"), steps = number(cell, "steps");
        assert_true(steps > 3 && spent <= BUDGET && spent + spent / steps > BUDGET);
        assert_true(
            fabs(number(cell, "perplexity_per_byte") - exp2(number(cell, "bits_per_byte"))) < 1e-9);
        assert_true(fabs(number(cell, "epochs") * TRAIN_BYTES - steps * 2 * 16) < 1e-6);
        bool retrieves = is_of(cell, "pkm", false) || is_of(cell, "peer", false) ||
                         is_of(cell, "pkm", true) || is_of(cell, "peer", true);
        assert_int_equal(has(cell, "usage_percent"), retrieves);
        assert_int_equal(has(cell, "unevenness"), retrieves);
    }
}

// Of every system: the other rate at the tuning size, both sizes, and the second seed at the better
// one.
static void every_system_is_tuned_and_its_best_size_has_all_seeds(void **state) {
    const place *p = *state;
    static const char *const SYSTEMS_OF[] = {"dense", "moe", "pkm", "peer"};
    const json_t *cells = json_object_get(p->whole, "cells");
    assert_true(json_is_true(json_object_get(p->whole, "finished")));
    assert_int_equal(json_array_size(cells), 4 * 4);
    for (size_t s = 0; s < 4; s++) {
        const char *best = NULL, *again = NULL;
        double least = INFINITY, tuned = NAN, rate = NAN, at_tuned_size = NAN;
        size_t grid = 0, i;
        json_t *cell;
        json_array_foreach(cells, i, cell) {
            if (is_of(cell, SYSTEMS_OF[s], true)) tuned = number(cell, "bits_per_byte");
            if (!is_of(cell, SYSTEMS_OF[s], false)) continue;
            if (setting(cell, "seed") == 2) {
                again = word(cell, "size");
                continue;
            }
            grid++;
            if (!isnan(rate)) assert_true(setting(cell, "learning_rate") == rate);
            rate = setting(cell, "learning_rate");
            double loss = number(cell, "bits_per_byte");
            if (strcmp(word(cell, "size"), "b") == 0) at_tuned_size = loss;
            if (loss >= least) continue;
            least = loss;
            best = word(cell, "size");
        }
        assert_int_equal(grid, 2);
        assert_true(at_tuned_size < tuned); // the rate that was not taken lost
        assert_non_null(again);
        assert_string_equal(best, again);
    }
}

static char *read_whole(const char *path) {
    reef_cli_file file = {0};
    reef_error err = {0};
    if (reef_cli_file_read(&file, path, &err) != REEF_OK) fail_msg("%s", err.message);
    char *text = reef_cli_format("%.*s", (int)file.count, (const char *)file.bytes);
    reef_cli_file_release(&file);
    return text;
}

static void csv_and_picture_show_every_cell(void **state) {
    const place *p = *state;
    char *csv = read_whole(word(p->whole, "csv")), *svg = read_whole(word(p->whole, "svg"));
    assert_int_equal(line_count(csv), 1 + 16);
    size_t commas = 0;
    for (const char *at = csv; *at; at++) commas += *at == ',';
    assert_int_equal(commas % 17, 0); // every line has as many
    assert_non_null(strstr(svg, "</svg>"));
    static const char *const NAMES[] = {">dense<", ">moe<", ">pkm<", ">peer<", ">1.2e+07 FLOPs<"};
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++)
        if (strstr(svg, NAMES[i]) == NULL) fail_msg("%s is not in the picture", NAMES[i]);
    size_t marks = 0; // a square for each point: two sizes of four systems
    for (const char *at = svg; (at = strstr(at, "width=\"8.00\" height=\"8.00\"")); at++) marks++;
    assert_int_equal(marks, 8);
    free(csv);
    free(svg);
}

static void only_the_best_pools_are_kept(void **state) {
    const place *p = *state;
    DIR *directory = opendir(p->work);
    size_t pools = 0;
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        pools += strstr(entry->d_name, ".pool") != NULL;
    (void)closedir(directory);
    assert_int_equal(pools, 4); // one of each system
}

static void pictures_can_be_rendered(void **state) {
    const place *p = *state;
    if (access(RSVG, X_OK) != 0) {
        print_message("no %s: pictures are not rendered\n", RSVG);
        skip();
    }
    char *png = path_in(p->directory, "isoflop.png");
    program r;
    program_run(&r, (const char *const[]){RSVG, "-o", png, word(p->whole, "svg"), NULL}, NULL);
    if (r.code != 0) fail_msg("%s: %s", RSVG, r.err);
    struct stat info;
    assert_int_equal(stat(png, &info), 0);
    assert_true(info.st_size > 1000);
    program_release(&r);
    free(png);
}

// ---- going on -----------------------------------------------------------------------------------

static void what_is_finished_is_not_trained_again(void **state) {
    const place *p = *state;
    char *path = path_in(p->work, "results.jsonl"), *before = read_whole(path);
    json_t *again = experiment(p, "isoflop", p->work);
    char *after = read_whole(path);
    assert_string_equal(before, after);
    assert_true(json_equal(json_object_get(again, "cells"), json_object_get(p->whole, "cells")));
    json_decref(again);
    free(before);
    free(after);
    free(path);
}

static size_t rows_in(const char *work) {
    char *path = path_in(work, "results.jsonl");
    size_t rows = 0;
    if (access(path, F_OK) == 0) {
        char *text = read_whole(path);
        rows = line_count(text);
        free(text);
    }
    free(path);
    return rows;
}

// Started, and killed when there are so many rows.
static void kill_at(const place *p, const char *work, size_t rows) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const char *argv[] = {REEF_BINARY, "experiment", "isoflop",   p->config, "--work", work,
                              "--jobs",    "2",          "--threads", "1",       NULL};
        int none = open("/dev/null", O_WRONLY);
        if (none < 0 || dup2(none, STDOUT_FILENO) < 0 || dup2(none, STDERR_FILENO) < 0) _exit(126);
        execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    for (unsigned waited = 0; rows_in(work) < rows; waited++) {
        assert_true(waited < AWAIT_MS_MAX);
        assert_int_equal(waitpid(child, NULL, WNOHANG), 0); // it is at work
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

// What a row says but for how long it took.
static json_t *without_seconds(const json_t *cells) {
    json_t *copy = json_deep_copy(cells);
    size_t i;
    json_t *cell;
    json_array_foreach(copy, i, cell) json_object_del(cell, "seconds");
    return copy;
}

static void killed_at_any_time_it_ends_with_the_same_figures(void **state) {
    const place *p = *state;
    char *work = path_in(p->directory, "killed");
    kill_at(p, work, 1);
    kill_at(p, work, 5);
    kill_at(p, work, 12);
    json_t *rest = experiment(p, "isoflop", work);
    json_t *whole = without_seconds(json_object_get(p->whole, "cells"));
    json_t *killed = without_seconds(json_object_get(rest, "cells"));
    assert_true(json_is_true(json_object_get(rest, "finished")));
    assert_true(json_equal(whole, killed));
    json_decref(whole);
    json_decref(killed);
    json_decref(rest);
    free(work);
}

static void one_experiment_at_a_time_works_in_a_directory(void **state) {
    const place *p = *state;
    char *lock = path_in(p->work, "lock");
    int fd = open(lock, O_RDWR);
    assert_true(fd >= 0);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    assert_int_equal(fcntl(fd, F_SETLK, &whole), 0);
    program r;
    reef(&r, "experiment", "isoflop", p->config, "--work", p->work, NULL);
    assert_int_equal(r.code, 75);
    assert_non_null(strstr(r.err, "another experiment"));
    program_release(&r);
    // What is wanted can be asked for beside it.
    json_t *plan = reef_json("experiment", "isoflop", p->config, "--work", p->work, "--plan", NULL);
    assert_int_equal(json_array_size(json_object_get(plan, "wanted")), 0);
    json_decref(plan);
    (void)close(fd);
    free(lock);
}

static void a_damaged_row_is_named(void **state) {
    const place *p = *state;
    char *work = path_in(p->directory, "damaged"),
         *path = reef_cli_format("%s/results.jsonl", work);
    assert_int_equal(mkdir(work, 0700), 0);
    write_file(path, "{\"id\":\"0\"}\n{\"id\":\n");
    program r;
    reef(&r, "experiment", "isoflop", p->config, "--work", work, NULL);
    assert_int_equal(r.code, 65);
    assert_non_null(strstr(r.err, "results.jsonl:2: no row"));
    program_release(&r);
    free(path);
    free(work);
}

// ---- the other kinds ----------------------------------------------------------------------------

static size_t count_of(const json_t *document,
                       const char *system,
                       const char *field,
                       double value) {
    size_t count = 0, i;
    json_t *cell;
    json_array_foreach(json_object_get(document, "cells"), i, cell) {
        if (is_of(cell, system, false)) count += setting(cell, field) == value;
    }
    return count;
}

static void experts_vary_their_number_and_nothing_else(void **state) {
    const place *p = *state;
    json_t *document = experiment(p, "experts", p->work);
    assert_int_equal(count_of(document, "peer", "side", 4), 2); // two seeds
    assert_int_equal(count_of(document, "peer", "side", 8), 2);
    assert_int_equal(count_of(document, "peer", "topk", 2), 4);
    assert_int_equal(count_of(document, "dense", "seed", 1), 1); // one line
    char *svg = read_whole(word(document, "svg"));
    assert_non_null(strstr(svg, "stroke-dasharray"));
    free(svg);
    json_decref(document);
}

static void active_varies_heads_and_their_product(void **state) {
    const place *p = *state;
    json_t *document = experiment(p, "active", p->work);
    size_t i, products = 0;
    json_t *cell;
    assert_int_equal(count_of(document, "peer", "heads", 1), 4); // 2 and 4 of one head, two seeds
    assert_int_equal(count_of(document, "peer", "heads", 2), 4);
    json_array_foreach(json_object_get(document, "cells"), i, cell) {
        if (is_of(cell, "peer", false))
            products += setting(cell, "heads") * setting(cell, "topk") == 4;
    }
    assert_int_equal(products, 4);
    json_decref(document);
}

static void batch_norm_is_on_and_off(void **state) {
    const place *p = *state;
    json_t *document = experiment(p, "batchnorm", p->work);
    size_t i, with = 0, without = 0;
    json_t *cell;
    json_array_foreach(json_object_get(document, "cells"), i, cell) {
        assert_true(strcmp(word(cell, "system"), "dense") != 0);
        if (!is_of(cell, "peer", false)) continue;
        assert_true(number(cell, "usage_percent") > 0 && number(cell, "unevenness") >= 0);
        bool on = json_is_true(json_object_get(json_object_get(cell, "config"), "batch_norm"));
        with += on;
        without += !on;
    }
    assert_int_equal(with, 4);
    assert_int_equal(without, 4);
    json_decref(document);
}

// The best models of isoflop, as `reef eval` would measure them: on its own text the same as
// before.
static void data_sets_are_measured_on_the_best_models(void **state) {
    const place *p = *state;
    json_t *document = experiment(p, "datasets", p->work);
    size_t i, measured = 0;
    json_t *cell;
    json_array_foreach(json_object_get(document, "cells"), i, cell) {
        const json_t *sets = json_object_get(cell, "datasets");
        if (sets == NULL) continue;
        measured++;
        double english = number(json_object_get(sets, "english"), "bits_per_byte");
        double code = number(json_object_get(sets, "code"), "bits_per_byte");
        assert_true(english == number(cell, "bits_per_byte"));
        assert_true(code > english); // it has never seen any
    }
    assert_int_equal(measured, 4);
    assert_true(json_is_null(json_object_get(document, "svg")));
    json_decref(document);
}

// ---- configurations -----------------------------------------------------------------------------

static void quick_replaces_other_settings(void **state) {
    const place *p = *state;
    char *config = path_in(p->directory, "quick.ini"), *work = path_in(p->directory, "quick");
    write_file(config,
               EXPERIMENT MODEL SIZES SYSTEMS "[quick]\nbudgets = 1\nseeds = 3\ntopk = 1\n");
    json_t *document =
        reef_json("experiment", "isoflop", config, "--work", work, "--quick", "--plan", NULL);
    assert_true(real(document, "flops") == 8); // two rates of four systems
    json_decref(document);
    assert_int_equal(access(work, F_OK), -1); // nothing was made for that
    char *odd = path_in(p->directory, "\xff");
    document = reef_json("experiment", "isoflop", config, "--work", odd, "--quick", "--plan", NULL);
    assert_non_null(strstr(word(document, "work"), "/\\xff"));
    json_decref(document);
    free(odd);
    document = reef_json("experiment", "isoflop", config, "--work", work, "--quick", NULL);
    size_t i;
    json_t *cell;
    json_array_foreach(json_object_get(document, "cells"), i, cell) {
        assert_int_equal(integer(cell, "steps"), 1); // one step at least
        assert_true(setting(cell, "topk") == 1 && setting(cell, "seed") == 3);
    }
    json_decref(document);
    free(config);
    free(work);
}

typedef struct fault {
    const char *text, *says;
} fault;

static void mistakes_are_reported_with_their_line(void **state) {
    const place *p = *state;
    static const fault FAULTS[] = {
        {"[experiment]\ntrain = train.txt\nbudget = 1e9\n",
         ":3: [experiment] knows no 'budget'; did you mean budgets?"},
        {"[experiment]\nbudgets = 1e9 x\n", ":2: budgets is '1e9 x'"},
        {"[experiment]\nseeds = 1.5\n", ":2: seeds is '1.5', but must be whole numbers"},
        {"[experiment]\nbudgets = -1\n", ":2: budgets"},
        {"[experiment]\nvalid_bytes = many\n", ":2: valid_bytes is 'many'"},
        {"[model]\nd_modell = 8\n", ":2: [model] knows no 'd_modell'; did you mean d_model?"},
        {"[model]\n\nd_model = 0\n", ":3: "},
        {"[system peer]\nmiddle = q\n", ":2: middle is 'q'"},
        {"[sizes a]\nlayers = 1\n", ":2: there is no section [sizes a]"},
        {"layers = 1\n", ":1: there is no section []"},
        {"[quick]\nnothing = 1\n", ":2: [quick] knows no 'nothing'"},
        {"[datasets]\na = x\na = y\n", ":3: a is given twice"},
        {"[system p\xf6]\nmiddle = p\n", ":2: the name 'system p\\xf6' is not UTF-8"},
        {"[datasets]\na = x\n\xf6 = y\n", ":3: the name '\\xf6' is not UTF-8"},
        {"[experiment]\ntrain\n", ":2: neither [SECTION] nor KEY = VALUE"},
        {MODEL SIZES SYSTEMS, ": there is no train in [experiment]"},
        {EXPERIMENT MODEL SYSTEMS, ": there is no section [size NAME]"},
        {EXPERIMENT "[size c]\nd_model = 8\n" SYSTEMS,
         "tune_size is 'b', but there is no [size b]"},
        {EXPERIMENT MODEL SIZES "[system peer]\nmiddle = p\ntopk = 9\n", "system peer in size"},
    };
    char *config = path_in(p->directory, "wrong.ini"), *work = path_in(p->directory, "wrong");
    for (size_t i = 0; i < sizeof(FAULTS) / sizeof(FAULTS[0]); i++) {
        write_file(config, FAULTS[i].text);
        program r;
        reef(&r, "experiment", "isoflop", config, "--work", work, NULL);
        if (r.code != 64 || strstr(r.err, FAULTS[i].says) == NULL)
            fail_msg("exit %d, and no '%s' in: %s", r.code, FAULTS[i].says, r.err);
        assert_int_equal(line_count(r.err), 1);
        program_release(&r);
    }
    free(config);
    free(work);
}

static void what_a_kind_needs_is_asked_for(void **state) {
    const place *p = *state;
    static const char *const KINDS[] = {"experts", "active", "batchnorm", "datasets"};
    static const char *const SAYS[] = {"vary_side", "vary_heads", "vary_side", "[datasets]"};
    char *config = path_in(p->directory, "bare.ini"), *work = path_in(p->directory, "bare");
    write_file(
        config,
        "[experiment]\ntrain = train.txt\nvalid = valid.txt\nbudgets = 1e7\n" MODEL SIZES SYSTEMS);
    for (size_t i = 0; i < 4; i++) {
        program r;
        reef(&r, "experiment", KINDS[i], config, "--work", work, NULL);
        if (r.code != 64 || strstr(r.err, SAYS[i]) == NULL) fail_msg("%s: %s", KINDS[i], r.err);
        program_release(&r);
    }
    free(config);
    free(work);
}

// What is committed can be run: every system fits every size, with and without --quick.
static void the_papers_files_are_sound(void **state) {
    const place *p = *state;
    static const char *const FILES[][2] = {
        {"isoflop", "isoflop"},    {"isoflop", "isoflop-small"}, {"isoflop", "isoflop-norm"},
        {"datasets", "isoflop"},   {"experts", "experts"},       {"active", "active"},
        {"batchnorm", "batchnorm"}};
    static const char *const TEXTS[] = {"wikitext2", "lambada", "shakespeare", "python", "german"};
    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) {
        char *directory = path_in(p->directory, TEXTS[i]);
        assert_int_equal(mkdir(directory, 0700), 0);
        static const char *const PARTS[] = {"train.txt", "valid.txt", "test.txt"};
        for (size_t k = 0; k < 3; k++) {
            char *name = reef_cli_format("%s/%s", TEXTS[i], PARTS[k]);
            write_kind(p, name, "english", VALID_BYTES);
            free(name);
        }
        free(directory);
    }
    char *work = path_in(p->directory, "papers");
    for (size_t i = 0; i < sizeof(FILES) / sizeof(FILES[0]); i++) {
        char *config = reef_cli_format("%s/%s.ini", REEF_EXPERIMENTS_DIR, FILES[i][1]);
        json_t *full = reef_json("experiment", FILES[i][0], config, "--data", p->directory,
                                 "--work", work, "--plan", NULL);
        json_t *quick = reef_json("experiment", FILES[i][0], config, "--data", p->directory,
                                  "--work", work, "--plan", "--quick", NULL);
        assert_true(real(full, "flops") > 1e11);
        assert_true(real(quick, "flops") < 1e11);
        json_decref(full);
        json_decref(quick);
        free(config);
    }
    free(work);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cell_spends_its_budget_in_whole_steps),
        cmocka_unit_test(every_system_is_tuned_and_its_best_size_has_all_seeds),
        cmocka_unit_test(csv_and_picture_show_every_cell),
        cmocka_unit_test(only_the_best_pools_are_kept),
        cmocka_unit_test(pictures_can_be_rendered),
        cmocka_unit_test(what_is_finished_is_not_trained_again),
        cmocka_unit_test(killed_at_any_time_it_ends_with_the_same_figures),
        cmocka_unit_test(one_experiment_at_a_time_works_in_a_directory),
        cmocka_unit_test(a_damaged_row_is_named),
        cmocka_unit_test(experts_vary_their_number_and_nothing_else),
        cmocka_unit_test(active_varies_heads_and_their_product),
        cmocka_unit_test(batch_norm_is_on_and_off),
        cmocka_unit_test(data_sets_are_measured_on_the_best_models),
        cmocka_unit_test(quick_replaces_other_settings),
        cmocka_unit_test(mistakes_are_reported_with_their_line),
        cmocka_unit_test(what_a_kind_needs_is_asked_for),
        cmocka_unit_test(the_papers_files_are_sound),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
