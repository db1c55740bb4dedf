// What the machine does at most, with one thread and with all: printed beside every benchmark.
#ifndef REEF_BENCH_MACHINE_H
#define REEF_BENCH_MACHINE_H

#include "bench_roofline.h"
#include "cli.h"
#include "cli_table.h"

typedef struct reef_bench_machine {
    size_t threads;
    reef_bench_rates one, all; // medians
} reef_bench_machine;

/**
 * Measure with a layer of this shape, or a smaller side where its rows would take more than 2 GiB
 * in f32: its products, reading in order, and gathering its rows. `threads` 0: one per core.
 */
REEF_MUST_CHECK reef_status reef_bench_machine_measure(const reef_router_shape *shape,
                                                       size_t tokens,
                                                       size_t threads,
                                                       reef_bench_machine *out,
                                                       reef_error *err);

/** Rates as `reef bench` answers them. */
json_t *reef_bench_rates_json(const reef_bench_rates *rates);
/** A list of two: `threads` and the rates. */
json_t *reef_bench_machine_json(const reef_bench_machine *machine);

/** The rates as lines of a table with the columns name, one thread, all threads. */
void reef_bench_rates_rows(reef_cli_table *table,
                           const reef_bench_rates *one,
                           const reef_bench_rates *all);
void reef_bench_machine_print(const reef_bench_machine *machine);

#endif
