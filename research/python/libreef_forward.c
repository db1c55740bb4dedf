// The forward of a layer called from C, for research/python/libreef_forward.py: opens a pool,
// and for every line of standard input runs one pass over the same rows that the script has, and
// prints its milliseconds. usage: forward POOL ROWS THREADS
#include <reef/reef.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

// The script draws its rows the same way.
static float value_of(size_t i) {
    return (float)(i * 2654435761u % 2001) / 1000.0f - 1.0f;
}

int main(int argc, char **argv) {
    reef_error err = {.message = "usage: forward POOL ROWS THREADS"};
    reef_pool *pool = NULL;
    reef_pool_info info = {.size = sizeof(info)};
    reef_pool_options options = {.size = sizeof(options)};
    float *x = NULL, *y = NULL;
    size_t rows = argc == 4 ? strtoull(argv[2], NULL, 10) : 0;
    // The pool is opened with the threads asked for, so that the measurement is of libreef's own
    // workers and not of the caller's.
    if (argc == 4) options.threads = (uint32_t)strtoul(argv[3], NULL, 10);
    if (argc != 4 || reef_pool_open(&pool, argv[1], &options, &err) != REEF_OK ||
        reef_pool_read_info(pool, &info, &err) != REEF_OK)
        goto failed;
    x = malloc(rows * info.d_model * sizeof(*x));
    y = malloc(rows * info.d_model * sizeof(*y));
    if (x == NULL || y == NULL) goto failed;
    // The input is a fixed function of the index: the PyTorch side of the benchmark computes the
    // same values, and the last output is compared.
    for (size_t i = 0; i < rows * info.d_model; i++) x[i] = value_of(i);
    // One line on standard input starts one measured call. The caller alternates between this
    // program and its baseline, so neither keeps the caches to itself.
    while (getchar() == '\n') {
        double start = now_ms();
        if (reef_layer_forward(pool, NULL, rows, x, y, NULL, &err) != REEF_OK) goto failed;
        // The last output value is printed with the time, which also keeps the compiler from
        // dropping the call.
        printf("%.6f %.9g\n", now_ms() - start, (double)y[rows * info.d_model - 1]);
        fflush(stdout);
    }
    free(x);
    free(y);
    reef_pool_close(pool);
    return 0;

failed:
    fprintf(stderr, "forward: %s\n", err.message);
    return 1;
}
