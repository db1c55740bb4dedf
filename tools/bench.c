// See bench.h.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): POSIX owns the name.
#define _XOPEN_SOURCE 700 // nftw

#include "bench.h"

#include "cli.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Nothing to learn, but bytes as in text.
uint8_t *bench_text(size_t count) {
    static const char LETTERS[] = "etaoinshrdlucmfwypvbgk";
    uint8_t *text = cli_alloc(count, 1);
    uint64_t state = 1;
    size_t word = 0;
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u; // Knuth's MMIX generator
        uint64_t draw = state >> 33;
        bool end = word >= 2 && (draw % 5 == 0 || word == 9);
        text[i] = end ? ' ' : (uint8_t)LETTERS[draw / 5 % (sizeof(LETTERS) - 1)];
        word = end ? 0 : word + 1;
    }
    return text;
}

double bench_proc_bytes(const char *path, const char *field) {
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    char line[256];
    const size_t length = strlen(field);
    double kilobytes = 0;
    while (fgets(line, sizeof(line), file))
        if (strncmp(line, field, length) == 0 && sscanf(line + length, ": %lf kB", &kilobytes) == 1)
            break;
    fclose(file);
    return 1024 * kilobytes;
}

reef_status bench_wants_text(const reef_config *config, reef_error *err) {
    if (reef_token_bytes(config) != 1)
        return reef_fail(err, REEF_INVALID,
                         "this benchmark feeds text of bytes, which --vocab %u does not take: time "
                         "a run of reef train instead",
                         config->vocab);
    if (!reef_config_is_vector(config)) return REEF_OK;
    return reef_fail(err, REEF_INVALID,
                     "this benchmark feeds text, which --model vector does not take: time a run of "
                     "reefd --pool POOL --source idx:IMAGES,LABELS instead");
}

reef_status bench_directory_new(char **out, reef_error *err) {
    const char *parent = getenv("TMPDIR");
    *out = cli_format("%s/reef-bench-XXXXXX", parent && parent[0] ? parent : "/tmp");
    if (mkdtemp(*out)) return REEF_OK;
    reef_status status = reef_fail(err, REEF_IO,
                                   "cannot make %.160s: %s; set TMPDIR to a directory that can be "
                                   "written",
                                   *out, strerror(errno));
    free(*out);
    *out = NULL;
    return status;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk) {
    (void)info;
    (void)type;
    (void)walk;
    return remove(path);
}

void bench_directory_remove(char *path) {
    if (path) nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    free(path);
}
