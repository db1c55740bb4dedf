// See bench_ranks.h.
#include "bench_ranks.h"

#include "bench_program.h"
#include "cli_alloc.h"
#include "cli_format.h"

#include "reef_shard.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARGUMENTS_MAX 32
#define MPIRUN "mpirun"

// ---- a run --------------------------------------------------------------------------------------

static void remove_pool(const char *directory, size_t rank) {
    static const char *const FILES[] = {"data.mdb", "lock.mdb", "writer.lock", "reefd.sock", ""};
    for (size_t i = 0; i < sizeof(FILES) / sizeof(*FILES); i++) {
        char *path = reef_cli_format("%s/rank-%zu/%s", directory, rank, FILES[i]);
        (void)remove(path); // what is not there is gone
        free(path);
    }
}

static void remove_pools(const char *directory) {
    // The pools of the run before: names are ours, and the directory is the benchmark's own.
    for (size_t r = 0; r <= BENCH_RANKS_MAX; r++) remove_pool(directory, r);
}

// Of a pool that is removed again.
static reef_status make_shards(const reef_ranks_plan *plan, size_t ranks, reef_error *err) {
    char *whole = reef_cli_format("%s/rank-%zu", plan->directory, ranks);
    reef_store *store = NULL;
    reef_shard shard = {.count = (uint32_t)ranks, .divided = true};
    reef_shard_making made;
    reef_status status = reef_pool_init(whole, plan->config, err);
    if (status == REEF_OK)
        status = reef_store_open(&store, whole, &(reef_store_options){.write = true}, err);
    for (; status == REEF_OK && shard.rank < ranks; shard.rank++) {
        char *path = reef_cli_format("%s/rank-%" PRIu32, plan->directory, shard.rank);
        status = reef_shard_make(&store, 1, &shard, path, &made, err);
        free(path);
    }
    reef_store_close(store);
    remove_pool(plan->directory, ranks);
    free(whole);
    return status;
}

// Equal pools: everything in them follows from the configuration.
static reef_status make_pools(const reef_ranks_plan *plan, size_t ranks, reef_error *err) {
    reef_status status = REEF_OK;
    remove_pools(plan->directory);
    if (plan->divided && ranks > 1) return make_shards(plan, ranks, err);
    for (size_t r = 0; r < ranks && status == REEF_OK; r++) {
        char *path = reef_cli_format("%s/rank-%zu", plan->directory, r);
        status = reef_pool_init(path, plan->config, err);
        free(path);
    }
    return status;
}

// Its own line, and the object in it: of the last event of a name; NULL if it has not been.
static json_t *last_event(const char *text, const char *name) {
    json_t *found = NULL;
    for (const char *line = text; line != NULL && *line;) {
        const char *end = strchr(line, '\n');
        size_t length = end != NULL ? (size_t)(end - line) : strlen(line);
        json_t *event = json_loadb(line, length, 0, NULL);
        const char *is = json_string_value(json_object_get(event, "event"));
        if (is != NULL && strcmp(is, name) == 0) {
            json_decref(found);
            found = json_incref(event);
        }
        json_decref(event);
        line = end != NULL ? end + 1 : NULL;
    }
    return found;
}

static double number_of(const json_t *object, const char *name) {
    return json_number_value(json_object_get(object, name));
}

static reef_status read_run(const char *text, size_t ranks, reef_ranks_run *out, reef_error *err) {
    json_t *ended = last_event(text, "ended"), *figures = last_event(text, "ranks");
    const json_t *list = json_object_get(figures, "ranks"), *first = json_array_get(list, 0);
    const char *root = json_string_value(json_object_get(ended, "root"));
    double steps = number_of(figures, "steps");
    reef_status status = REEF_OK;
    if (root == NULL || json_array_size(list) != ranks || steps < 1)
        status = reef_fail(err, REEF_ERR_IO, "reefd did not say what its %zu ranks cost", ranks);
    if (status == REEF_OK) {
        // Times, bytes and exchanges are rank 0's: it waits for all others in every step. CPU time
        // is that of the busiest rank, since it sets the pace where each has a core.
        *out = (reef_ranks_run){.steps = (uint64_t)steps};
#define READ_TIME(name) out->seconds.name = number_of(first, #name "_s");
        REEF_RANKS_TIME_LIST(READ_TIME)
#undef READ_TIME
        out->step_seconds =
            (out->seconds.computing + out->seconds.packing + out->seconds.waiting) / steps;
        out->sent_bytes = number_of(first, "sent_bytes") / steps;
        out->exchanges = number_of(first, "exchanges") / steps;
        snprintf(out->root, sizeof(out->root), "%s", root);
        for (size_t r = 0; r < ranks; r++) {
            const json_t *one = json_array_get(list, r);
            double cpu = number_of(one, "cpu_s") / steps;
            out->memory_peak_bytes[r] = number_of(one, "memory_peak_bytes");
            if (cpu > out->cpu_seconds) out->cpu_seconds = cpu;
        }
    }
    json_decref(ended);
    json_decref(figures);
    return status;
}

reef_status reef_bench_ranks_run(const reef_ranks_plan *plan,
                                 size_t ranks,
                                 reef_ranks_run *out,
                                 reef_error *err) {
    char *arguments[ARGUMENTS_MAX] = {MPIRUN, "--oversubscribe", "--bind-to", "none"};
    char *count = reef_cli_format("%zu", ranks), *text = NULL;
    char *commits = reef_cli_format("%llu", (unsigned long long)plan->commit_steps);
    size_t n = 4;
    // Containers often have no other user; Open MPI wants to be told that this is meant.
    if (geteuid() == 0) arguments[n++] = "--allow-run-as-root";
    // Commits by steps alone, so that each run makes the same ones.
    char *const more[] = {"-n",
                          count,
                          (char *)(uintptr_t)plan->reefd,
                          "--pool",
                          (char *)(uintptr_t)plan->directory,
                          "--source",
                          (char *)(uintptr_t)plan->text,
                          "--threads",
                          "1",
                          "--json-log",
                          "--scrub-rate",
                          "0",
                          "--commit-seconds",
                          "0",
                          "--commit-steps",
                          commits};
    memcpy(arguments + n, more, sizeof(more));
    reef_status status = make_pools(plan, ranks, err);
    if (status == REEF_OK) status = reef_bench_program_run(&text, MPIRUN, arguments, err);
    if (status == REEF_ERR_NOT_FOUND)
        (void)reef_fail(err, status, "there is no " MPIRUN ", which the package openmpi-bin has");
    if (status == REEF_OK) status = read_run(text, ranks, out, err);
    free(text);
    free(commits);
    free(count);
    return status;
}

// ---- the least that travels ---------------------------------------------------------------------

typedef struct weight {
    double in, out;
} weight;

// A part of `area` values of the gradient x^T d_y of a weight needs p columns of x and q of d_y,
// with p * q at least `area`: fewest where they are equal.
static double columns_for(weight of, double area) {
    double side = sqrt(area);
    if (side > of.in) return of.in + area / of.in;
    if (side > of.out) return of.out + area / of.out;
    return 2 * side;
}

// Gradients that are shared out together: each rank makes an equal part of all their values. Half
// of two products costs more columns than one of them whole, so all but one are whole or not there.
static double gradients_least(const weight *weights, size_t count, double ranks, double own_rows) {
    double all = 0, fewest = INFINITY;
    for (size_t i = 0; i < count; i++) all += weights[i].in * weights[i].out;
    for (size_t whole = 0; whole < (size_t)1 << count; whole++)
        for (size_t part = 0; part < count; part++) {
            double columns = 0, left = all / ranks;
            for (size_t i = 0; i < count; i++) {
                if (i == part || !(whole >> i & 1)) continue;
                columns += weights[i].in + weights[i].out;
                left -= weights[i].in * weights[i].out;
            }
            if (left < 0 || left > weights[part].in * weights[part].out) continue;
            columns += columns_for(weights[part], left);
            if (columns < fewest) fewest = columns;
        }
    // To each other rank the columns that it needs, and the values that this one made.
    return (ranks - 1) * (own_rows * fewest + all / ranks);
}

static double experts_least(const reef_config *config, double ranks, double own_rows) {
    double vectors = config->expert == REEF_EXPERT_GLU     ? 3
                     : config->expert == REEF_EXPERT_VALUE ? 1
                                                           : 2;
    double pairs = (double)config->heads * config->topk;
    // For every other rank: the router's input, the gradient of the output, and of each pair its
    // number, gate, gradient of the gate, and factors.
    double row = 2.0 * config->d_model + pairs * (3 + vectors);
    return (ranks - 1) * own_rows * row;
}

double reef_bench_ranks_least_bytes(const reef_config *config, size_t ranks) {
    double R = (double)ranks, D = config->d_model, F = config->d_ffw, T = config->context;
    double windows = (double)config->batch + config->rehearse, floats = 0;
    double rows = floor(windows / R) * T; // rank 0 never has more than others
    const weight attention[] = {{D, D}, {D, 3 * D}}, dense[] = {{F, D}, {D, F}},
                 head = {D, config->vocab};
    for (uint32_t l = 0; l < config->layers; l++) {
        reef_ffw ffw = reef_layer_ffw(config, l);
        if (ffw == REEF_FFW_MOE) return (double)NAN;
        // With the gradients of layer norms, of each window.
        floats += gradients_least(attention, 2, R, rows) + (R - 1) * rows / T * 4 * D;
        floats += ffw == REEF_FFW_DENSE ? gradients_least(dense, 2, R, rows)
                                        : experts_least(config, R, rows);
    }
    // The head, its layer norm, the gradient of embedded tokens, and a loss of 8 bytes a token.
    floats += gradients_least(&head, 1, R, rows) + (R - 1) * rows * (2 * D / T + D + 2);
    return sizeof(float) * floats;
}
