// See bench_layer.h.
#include "bench_layer.h"

#include "scratch_pool.h"

#include <stdlib.h>

#define PIECE_TOKENS_MAX 128

size_t reef_bench_piece_tokens(size_t tokens) {
    size_t piece = tokens < PIECE_TOKENS_MAX ? tokens : PIECE_TOKENS_MAX;
    while (tokens % piece != 0) piece--;
    return piece;
}

reef_status reef_bench_shape_read(const reef_cli_call *cli,
                                  reef_router_shape *shape,
                                  size_t *tokens,
                                  reef_error *err) {
    const struct {
        const char *name;
        uint64_t high;
        size_t *value;
    } numbers[] = {
        {"d-model", REEF_WIDTH_MAX, &shape->d_model},
        {"heads", REEF_HEAD_COUNT_MAX, &shape->head_count},
        {"topk", BENCH_TOPK_MAX, &shape->topk},
        {"d-key", REEF_WIDTH_MAX, &shape->d_key},
        {"tokens", BENCH_TOKENS_MAX, tokens},
    };
    // The value given before the call is the default, which an absent option leaves as it is.
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        uint64_t value = *numbers[i].value;
        reef_status status =
            reef_cli_integer(cli, numbers[i].name, 1, numbers[i].high, &value, err);
        if (status != REEF_OK) return status;
        *numbers[i].value = (size_t)value;
    }
    return REEF_OK;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double reef_bench_median(const double *values, size_t count, size_t stride) {
    double *sorted = reef_cli_alloc(count, sizeof(*sorted));
    for (size_t i = 0; i < count; i++) sorted[i] = values[i * stride];
    qsort(sorted, count, sizeof(*sorted), by_size);
    double middle = count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
    free(sorted);
    return middle;
}

double reef_bench_seconds_sum(const reef_layer_seconds *seconds) {
    return seconds->retrieval + seconds->experts + seconds->loss + seconds->experts_backward +
           seconds->retrieval_backward + seconds->sort + seconds->experts_update +
           seconds->retrieval_update;
}

double reef_bench_available_bytes(void) {
    return reef_bench_proc_bytes("/proc/meminfo", "MemAvailable");
}

double reef_bench_cache_bytes(void) {
    // On some machines sysconf reports the sum over caches, also those that this core does not
    // reach.
    FILE *file = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r");
    unsigned long long kilobytes = 0;
    if (file == NULL) return 0;
    if (fscanf(file, "%lluK", &kilobytes) != 1) kilobytes = 0;
    fclose(file);
    return 1024.0 * (double)kilobytes;
}
