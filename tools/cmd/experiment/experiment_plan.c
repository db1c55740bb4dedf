// Which cells an experiment wants, given the results so far. Nothing here runs or writes anything.
//
// What always holds: the same file and results give the same cells in the same order, and more
// results never take a cell away that was wanted before.
#include "cli_tokens.h"
#include "experiment.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

typedef struct plan {
    const experiment *e;
    const json_t *results;
    reef_experiment_cells *cells;
} plan;

static double seed_of(const experiment *e, size_t i) {
    return e->seeds.values[i];
}

// ---- cells --------------------------------------------------------------------------------------

static void hash_text(const char *text, char out[EXPERIMENT_ID_BYTES]) {
    snprintf(out, EXPERIMENT_ID_BYTES, "%016" PRIx64, (uint64_t)XXH3_64bits(text, strlen(text)));
}

// Names a cell by all that decides its row: configuration with seed and rate, budget and texts.
static reef_status name_cell(const experiment *e, reef_experiment_cell *cell, reef_error *err) {
    char *config = reef_config_format(&cell->config);
    if (config == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a configuration");
    uint64_t valid = XXH3_64bits(e->valid_file.bytes, e->valid_file.count), sets = 0;
    // 17 digits give back the same double.
    char *trained = reef_cli_format("%s %.17g %016" PRIx64, config, cell->budget, e->train_hash);
    // The data sets are part of the row, not of the training.
    for (size_t i = 0; cell->sets && i < e->set_count; i++) {
        // Name and content: renaming a set renames a column.
        sets = XXH3_64bits_withSeed(e->sets[i].name, strlen(e->sets[i].name), sets);
        sets = XXH3_64bits_withSeed(&e->sets[i].hash, sizeof(e->sets[i].hash), sets);
    }
    char *all = reef_cli_format("%s %016" PRIx64 " %016" PRIx64, trained, valid, sets);
    // The pool depends on training only, so a cell that also wants data sets finds it again.
    hash_text(trained, cell->pool);
    // The row depends on everything.
    hash_text(all, cell->id);
    free(trained);
    free(all);
    free(config);
    return REEF_OK;
}

static reef_experiment_cell *find_cell(const reef_experiment_cells *cells, const char *id) {
    for (size_t i = 0; i < cells->count; i++)
        if (strcmp(cells->items[i].id, id) == 0) return &cells->items[i];
    return NULL;
}

// Adds a cell unless it is there already; *out is a copy.
static reef_status add_cell(plan *p,
                            reef_experiment_cell cell,
                            reef_experiment_cell *out,
                            reef_error *err) {
    reef_error reason;
    // There is no later generation.
    cell.config.side_new = cell.config.side;
    // Combinations of rates and varied sizes are new, so each is checked.
    if (reef_config_check(&cell.config, &reason) != REEF_OK)
        return reef_fail(err, REEF_ERR_INVALID, "%.100s: system %.30s in size %.30s: %.120s",
                         p->e->path, cell.system, cell.size, reason.message);
    reef_status status = name_cell(p->e, &cell, err);
    if (status != REEF_OK) return status;
    if (out != NULL) *out = cell;
    reef_experiment_cells *cells = p->cells;
    reef_experiment_cell *there = find_cell(cells, cell.id);
    if (there != NULL) {
        // A cell wanted for a result and for tuning is shown as a result.
        there->tuning = there->tuning && cell.tuning;
        return REEF_OK;
    }
    // Grown by doubling: an experiment has some hundred cells.
    if (cells->count == cells->capacity) {
        cells->capacity = 2 * cells->capacity + 16;
        reef_experiment_cell *grown = reef_cli_alloc(cells->capacity, sizeof(*grown));
        if (cells->count > 0) memcpy(grown, cells->items, cells->count * sizeof(*grown));
        free(cells->items);
        cells->items = grown;
    }
    cells->items[cells->count++] = cell;
    return REEF_OK;
}

void reef_experiment_cells_release(reef_experiment_cells *cells) {
    free(cells->items);
    *cells = (reef_experiment_cells){0};
}

double reef_experiment_figure(const json_t *results,
                              const reef_experiment_cell *cell,
                              const char *figure) {
    const json_t *value = json_object_get(json_object_get(results, cell->id), figure);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static double loss_of(const json_t *results, const reef_experiment_cell *cell) {
    return reef_experiment_figure(results, cell, reef_cli_bits_name(&cell->config));
}

const reef_experiment_cell *reef_experiment_best(const experiment *e,
                                                 const reef_experiment_cells *cells,
                                                 const json_t *results,
                                                 const char *system,
                                                 double budget) {
    const reef_experiment_cell *best = NULL;
    // Of the first seed only: further seeds are trained for the best size alone.
    for (size_t i = 0; i < cells->count; i++) {
        const reef_experiment_cell *cell = &cells->items[i];
        bool first = (double)cell->config.seed == seed_of(e, 0);
        bool same = cell->budget == budget && strcmp(cell->system, system) == 0;
        // Tuning cells are not results.
        if (cell->tuning || !first || !same) continue;
        double loss = loss_of(results, cell);
        // Not a number means that it is not trained yet, or that it diverged.
        if (!isnan(loss) && (best == NULL || loss < loss_of(results, best))) best = cell;
    }
    return best;
}

// ---- learning rates -----------------------------------------------------------------------------

static reef_experiment_cell cell_of(const reef_experiment_group *system,
                                    const reef_experiment_group *size,
                                    const reef_config *config,
                                    double budget,
                                    double rate,
                                    double seed) {
    reef_experiment_cell cell = {
        .system = system->name, .size = size->name, .budget = budget, .config = *config};
    cell.config.learning_rate = (float)rate;
    cell.config.seed = (uint64_t)seed;
    return cell;
}

// The rate with the least loss at tune_size, with the first budget and seed. Not a number while
// that is unknown.
static reef_status tune(plan *p,
                        const reef_experiment_group *system,
                        double *rate,
                        reef_error *err) {
    const experiment *e = p->e;
    const reef_experiment_list *rates = &e->learning_rates;
    *rate = rates->values[0];
    // A single rate needs no tuning.
    if (rates->count == 1) return REEF_OK;
    const reef_experiment_group *size = reef_experiment_size(e, e->tune_size);
    reef_config config;
    reef_status status = reef_experiment_config(e, system, size, &config, err);
    double least = INFINITY;
    bool known = true;
    for (size_t i = 0; status == REEF_OK && i < rates->count; i++) {
        // The smallest budget, as tuning should be cheap.
        reef_experiment_cell cell = cell_of(system, size, &config, e->budgets.values[0],
                                            rates->values[i], seed_of(e, 0)),
                             made;
        cell.tuning = true;
        status = add_cell(p, cell, &made, err);
        if (status != REEF_OK) break;
        double loss = loss_of(p->results, &made);
        // A row without a loss is known too: it diverged.
        known = known && json_object_get(p->results, made.id) != NULL;
        if (loss < least) {
            least = loss;
            *rate = rates->values[i];
        }
    }
    // Until all rates are known the least is not: the caller waits for the next stage.
    if (!known) *rate = NAN;
    return status;
}

// ---- the kinds ----------------------------------------------------------------------------------

// Plans all sizes with the first seed and, once those are known, the best size with every seed.
// *best is that size.
static reef_status isoflop_curve(plan *p,
                                 const reef_experiment_group *system,
                                 double budget,
                                 double rate,
                                 reef_experiment_cell *best,
                                 bool *known,
                                 reef_error *err) {
    const experiment *e = p->e;
    double least = INFINITY;
    *known = true;
    for (size_t z = 0; z < e->size_count; z++) {
        reef_config config;
        reef_experiment_cell made;
        reef_status status = reef_experiment_config(e, system, &e->sizes[z], &config, err);
        if (status == REEF_OK)
            status = add_cell(
                p, cell_of(system, &e->sizes[z], &config, budget, rate, seed_of(e, 0)), &made, err);
        if (status != REEF_OK) return status;
        double loss = loss_of(p->results, &made);
        *known = *known && json_object_get(p->results, made.id) != NULL;
        // The first is taken even if it diverged, so that *best is always defined.
        if (z == 0 || loss < least) {
            least = loss;
            *best = made;
        }
    }
    // More seeds only for the size that is reported: they show the spread.
    for (size_t s = 1; *known && s < e->seeds.count; s++) {
        // The configuration of the best, with another seed.
        reef_experiment_cell again = *best;
        again.config.seed = (uint64_t)seed_of(e, s);
        reef_status status = add_cell(p, again, NULL, err);
        if (status != REEF_OK) return status;
    }
    return REEF_OK;
}

static reef_status plan_isoflop(plan *p, bool sets, reef_error *err) {
    const experiment *e = p->e;
    reef_status status = REEF_OK;
    // Systems are independent: each is tuned and measured on its own.
    for (size_t i = 0; status == REEF_OK && i < e->system_count; i++) {
        double rate;
        status = tune(p, &e->systems[i], &rate, err);
        // Nothing is planned for a system until its rate is known.
        for (size_t b = 0; status == REEF_OK && !isnan(rate) && b < e->budgets.count; b++) {
            reef_experiment_cell best;
            bool known;
            status =
                isoflop_curve(p, &e->systems[i], e->budgets.values[b], rate, &best, &known, err);
            // Data sets are evaluated on the best model of each system and budget, as in the paper.
            if (status != REEF_OK || !sets || !known) continue;
            // The same cell with one more wish: its pool exists already.
            best.sets = true;
            status = add_cell(p, best, NULL, err);
        }
    }
    return status;
}

static reef_status add_seeds(plan *p, reef_experiment_cell cell, reef_error *err) {
    reef_status status = REEF_OK;
    for (size_t s = 0; status == REEF_OK && s < p->e->seeds.count; s++) {
        cell.config.seed = (uint64_t)seed_of(p->e, s);
        status = add_cell(p, cell, NULL, err);
    }
    return status;
}

/** What an ablation varies, of one system and budget. */
typedef reef_status (*ablation)(plan *p, reef_experiment_cell cell, reef_error *err);

// A system that retrieves nothing is one cell: the line that others are compared with.
static reef_status vary_side(plan *p, reef_experiment_cell cell, reef_error *err) {
    if (!reef_experiment_retrieves(&cell.config)) return add_seeds(p, cell, err);
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < p->e->vary_side.count; i++) {
        cell.config.side = (uint32_t)p->e->vary_side.values[i];
        status = add_seeds(p, cell, err);
    }
    return status;
}

// Varies heads and experts a head, whose product stays the same.
static reef_status vary_active(plan *p, reef_experiment_cell cell, reef_error *err) {
    const experiment *e = p->e;
    // A dense layer has nothing to vary: it is the line to compare with.
    if (!reef_experiment_retrieves(&cell.config)) return add_seeds(p, cell, err);
    reef_status status = REEF_OK;
    for (size_t a = 0; a < e->vary_active.count; a++)
        for (size_t h = 0; status == REEF_OK && h < e->vary_heads.count; h++) {
            uint32_t active = (uint32_t)e->vary_active.values[a];
            uint32_t heads = (uint32_t)e->vary_heads.values[h];
            // Only whole numbers of experts a head.
            if (active % heads != 0) continue;
            cell.config.heads = heads;
            cell.config.topk = active / heads;
            status = add_seeds(p, cell, err);
        }
    return status;
}

static reef_status vary_batch_norm(plan *p, reef_experiment_cell cell, reef_error *err) {
    reef_status status = REEF_OK;
    for (int with = 0; status == REEF_OK && with < 2; with++) {
        cell.config.batch_norm = with == 1;
        status = vary_side(p, cell, err);
    }
    return status;
}

static reef_status plan_ablation(plan *p, ablation vary, reef_error *err) {
    // Ablations are made at one size, as in the paper.
    const experiment *e = p->e;
    const reef_experiment_group *size = reef_experiment_size(e, e->tune_size);
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i < e->system_count; i++) {
        double rate;
        reef_config config;
        status = reef_experiment_config(e, &e->systems[i], size, &config, err);
        // Without product keys there are no queries to normalise.
        if (vary == vary_batch_norm && !reef_experiment_retrieves(&config)) continue; // it has none
        if (status == REEF_OK) status = tune(p, &e->systems[i], &rate, err);
        for (size_t b = 0; status == REEF_OK && !isnan(rate) && b < e->budgets.count; b++)
            // Each kind of ablation adds its own cells for one system and budget.
            status = vary(
                p,
                cell_of(&e->systems[i], size, &config, e->budgets.values[b], rate, seed_of(e, 0)),
                err);
    }
    return status;
}

reef_status reef_experiment_plan(const experiment *e,
                                 reef_experiment_kind kind,
                                 const json_t *results,
                                 reef_experiment_cells *out,
                                 reef_error *err) {
    // The plan holds no state: it is a function of file and results.
    plan p = {.e = e, .results = results, .cells = out};
    *out = (reef_experiment_cells){0};
    switch (kind) {
    case EXPERIMENT_EXPERTS:
        return plan_ablation(&p, vary_side, err);
    case EXPERIMENT_ACTIVE:
        return plan_ablation(&p, vary_active, err);
    case EXPERIMENT_BATCHNORM:
        return plan_ablation(&p, vary_batch_norm, err);
    // The data sets use the models of the isoFLOP curves.
    default:
        return plan_isoflop(&p, kind == EXPERIMENT_DATASETS, err);
    }
}
