// See bench_text.h.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): POSIX owns the name.
#define _XOPEN_SOURCE 700 // realpath

#include "bench_text.h"

#include "cli_alloc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

reef_status reef_bench_text_read(
    const char *path, uint64_t limit, uint8_t **bytes, size_t *count, reef_error *err) {
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return reef_fail(err, REEF_ERR_NOT_FOUND, "cannot open %.160s: %s", path, strerror(errno));
    // The limit and not the size of the file, as a pipe has none; the system hands out its pages
    // only where something is read into them.
    *bytes = reef_cli_alloc((size_t)limit, 1);
    *count = fread(*bytes, 1, (size_t)limit, file);
    int code = ferror(file) ? errno : 0;
    fclose(file);
    if (code)
        return reef_fail(err, code == EISDIR ? REEF_ERR_NOT_FOUND : REEF_ERR_IO,
                         "cannot read %.160s: %s", path, strerror(code));
    if (*count > 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_NOT_FOUND, "%.160s is empty: a loss needs a byte to predict",
                     path);
}

char *reef_bench_text_name(const char *path) {
    const char *slash = strrchr(path, '/');
    const char *file = slash != NULL ? slash + 1 : path;
    char *folder =
        slash != NULL ? reef_cli_format("%.*s/", (int)(slash - path), path) : reef_cli_format(".");
    char *full = realpath(folder, NULL);
    const char *parent = full != NULL ? strrchr(full, '/') + 1 : "";
    // The root has no name, and what is no folder has no path.
    char *name = reef_cli_format("%s/%s", parent[0] ? parent : ".", file);
    free(full);
    free(folder);
    return name;
}
