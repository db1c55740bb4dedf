// See live_sources.h.
#define _XOPEN_SOURCE 700 // realpath
#include "live_sources.h"

#include "cli_format.h"
#include "reef_settings.h"
#include "reef_source.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define PROBED_BYTES 4096 // of a file, for bytes that no text has

// ---- names --------------------------------------------------------------------------------------

static bool is_file(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static bool ends_with(const char *text, const char *suffix) {
    const size_t bytes = strlen(text), end = strlen(suffix);
    return bytes > end && strcmp(text + bytes - end, suffix) == 0;
}

static bool is_compressed(const char *path) {
    return ends_with(path, ".gz") || ends_with(path, ".xz") || ends_with(path, ".zst") ||
           ends_with(path, ".bz2");
}

// Is it read with a log that is there? As `follow:` finds rotated names.
static bool is_rotated(const char *path) {
    const char *name = strrchr(path, '/');
    bool found = false;
    name = name != NULL ? name + 1 : path;
    for (const char *at = name + 1; name[0] != '\0' && *at != '\0' && !found; at++) {
        const bool number = strchr(".-_", *at) != NULL && isdigit((unsigned char)at[1]);
        if (!number && strncmp(at, ".old", 4) != 0) continue;
        char *log = reef_cli_format("%.*s", (int)(at - path), path);
        found = is_file(log);
        free(log);
    }
    return found;
}

static bool is_text(const char *path) {
    char bytes[PROBED_BYTES];
    FILE *file = fopen(path, "re");
    if (file == NULL) return false;
    const size_t count = fread(bytes, 1, sizeof(bytes), file);
    (void)fclose(file);
    return memchr(bytes, '\0', count) == NULL;
}

// ---- finding ------------------------------------------------------------------------------------

static reef_status add_spec(reef_live_sources *s, char *spec, reef_error *err) {
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->specs[i], spec) == 0) {
            free(spec);
            return REEF_OK;
        }
    s->specs = reef_cli_grown(s->specs, s->count, &s->capacity, sizeof(*s->specs));
    s->specs[s->count++] = spec;
    return s->count <= REEF_INPUT_COUNT_MAX
               ? REEF_OK
               : reef_fail(err, REEF_ERR_INVALID, "more than %d logs: name fewer",
                           REEF_INPUT_COUNT_MAX);
}

// The pool knows a source by its name, wherever the command is given.
static reef_status add_log(reef_live_sources *s, const char *path, reef_error *err) {
    char absolute[PATH_MAX];
    if (realpath(path, absolute) == NULL)
        return reef_fail(err, REEF_ERR_IO, "cannot find %s: %s", path, strerror(errno));
    return add_spec(s, reef_cli_format("follow:%s", absolute), err);
}

static reef_status add_named(reef_live_sources *s, const char *path, reef_error *err) {
    if (is_rotated(path)) return REEF_OK;
    if (is_compressed(path) || !is_text(path)) {
        fprintf(stderr, "reef watch: %s is no text, and is not followed\n", path);
        return REEF_OK;
    }
    return add_log(s, path, err);
}

static reef_status add_directory(reef_live_sources *s, const char *path, reef_error *err) {
    struct dirent **entries;
    int count = scandir(path, &entries, NULL, alphasort);
    if (count < 0) return reef_fail(err, REEF_ERR_IO, "cannot read %s: %s", path, strerror(errno));
    reef_status status = REEF_OK;
    for (int i = 0; i < count; i++) {
        char *file = reef_cli_format("%s/%s", path, entries[i]->d_name);
        if (status == REEF_OK && entries[i]->d_name[0] != '.' && is_file(file) &&
            !is_rotated(file) && !is_compressed(file) && is_text(file))
            status = add_log(s, file, err);
        free(file);
        free(entries[i]);
    }
    free(entries);
    return status;
}

static reef_status add_pattern(reef_live_sources *s, const char *pattern, reef_error *err) {
    glob_t found = {0};
    reef_status status = REEF_OK;
    int code = glob(pattern, 0, NULL, &found);
    if (code != 0) status = reef_fail(err, REEF_ERR_NOT_FOUND, "no file %s", pattern);
    for (size_t i = 0; status == REEF_OK && i < found.gl_pathc; i++)
        if (is_file(found.gl_pathv[i]) && !is_rotated(found.gl_pathv[i]) &&
            !is_compressed(found.gl_pathv[i]) && is_text(found.gl_pathv[i]))
            status = add_log(s, found.gl_pathv[i], err);
    globfree(&found);
    return status;
}

static reef_status add_path(reef_live_sources *s, const char *path, reef_error *err) {
    struct stat st;
    if (strcmp(path, "-") == 0) return add_spec(s, reef_cli_format("-"), err);
    if (strncmp(path, "journal:", 8) == 0) {
        reef_status status = reef_input_check_spec(path, err);
        return status == REEF_OK ? add_spec(s, reef_cli_format("%s", path), err) : status;
    }
    if (stat(path, &st) != 0) return add_pattern(s, path, err);
    if (S_ISDIR(st.st_mode)) return add_directory(s, path, err);
    if (S_ISREG(st.st_mode)) return add_named(s, path, err);
    return reef_fail(err, REEF_ERR_INVALID, "%s is no file and no directory", path);
}

reef_status reef_live_sources_find(reef_live_sources *out,
                                   char *const *paths,
                                   size_t count,
                                   reef_error *err) {
    reef_status status = REEF_OK;
    *out = (reef_live_sources){0};
    for (size_t i = 0; status == REEF_OK && i < count; i++) status = add_path(out, paths[i], err);
    if (status == REEF_OK && out->count == 0)
        status = reef_fail(err, REEF_ERR_NOT_FOUND, "no file of text in %s", paths[0]);
    // It ends, and the others do not.
    bool input = false;
    for (size_t i = 0; i < out->count; i++) input |= strcmp(out->specs[i], "-") == 0;
    if (status == REEF_OK && input && out->count > 1)
        status = reef_fail(err, REEF_ERR_INVALID, "standard input (-) stands alone");
    return status;
}

void reef_live_sources_release(reef_live_sources *sources) {
    for (size_t i = 0; i < sources->count; i++) free(sources->specs[i]);
    free(sources->specs);
    *sources = (reef_live_sources){0};
}

bool reef_live_sources_equal(const reef_live_sources *a, const reef_live_sources *b) {
    bool equal = a->count == b->count;
    for (size_t i = 0; equal && i < a->count; i++) equal = strcmp(a->specs[i], b->specs[i]) == 0;
    return equal;
}
