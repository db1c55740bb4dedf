// See config_template.h. The settings and their explanations are those of reefd --help.
// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): POSIX owns the name.
#define _XOPEN_SOURCE 700 // realpath

#include "config_template.h"

#include "cli_pool.h"
#include "reef_settings.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COLUMNS 100
#define POOL_BYTES_MAX 180 // with its key; reefd reads lines of about 200

static void put_comment(FILE *out, const char *text) {
    // The column after "#".
    size_t at = 1;
    fputc('#', out);
    // Wrapped by words; a word longer than a line keeps a line of its own.
    while (*text) {
        size_t word = strcspn(text, " ");
        if (at > 1 && at + 1 + word > COLUMNS) {
            fputs("\n#", out);
            at = 1;
        }
        // A blank before each word, so the first is "# word".
        fprintf(out, " %.*s", (int)word, text);
        at += word + 1;
        text += word;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

static void put_lines(FILE *out, const char *lines) {
    while (*lines) {
        size_t bytes = strcspn(lines, "\n");
        fprintf(out, "#%s%.*s\n", bytes ? " " : "", (int)bytes, lines);
        lines += bytes;
        lines += *lines == '\n';
    }
}

static bool is_live(const char *name) {
    for (size_t i = 0; i < reef_setting_count(); i++)
        if (strcmp(reef_setting_name(i), name) == 0) return reef_setting_is_live(i);
    return false;
}

static void put_setting(FILE *out, const reef_option_text *option, const char *pool) {
    fputc('\n', out);
    put_comment(out, option->help);
    if (is_live(option->name)) put_comment(out, "May change while it runs: reef reload.");
    if (strcmp(option->name, "pool") == 0)
        fprintf(out, "pool = %s\n", pool);
    else if (strcmp(option->name, "stay") == 0) // so that it can be started before it has a source
        fprintf(out, "stay = yes\n");
    else
        fprintf(out, ";%s = %s\n", option->name, option->sample);
}

static void put_all(FILE *out, const char *path, const char *pool, const char *about) {
    // All options are written, as comments: the file is also their reference.
    size_t count;
    const reef_option_text *options = reef_option_texts(&count);
    // The first line tells how to use the file.
    fprintf(out, "# reefd --config %s; check it: reef config check %s\n", path, path);
    put_comment(out, "A line that begins with ; is a setting with a value to begin with: "
                     "take the ; away, and change it. An option of reefd, "
                     "or REEF_NAME in the environment, wins over what stands here.");
    if (about[0]) fputs("#\n", out);
    put_lines(out, about);
    // One section, as reefd reads it.
    fputs("\n[reefd]", out);
    for (size_t i = 0; i < count; i++)
        // Options without a sample make no sense in a file.
        if (options[i].sample != NULL) put_setting(out, &options[i], pool);
}

static reef_status fail_write(const char *path, int code, reef_error *err) {
    if (code == EEXIST)
        return reef_fail(err, REEF_ERR_INVALID,
                         "cannot write %.140s: it exists; choose another name", path);
    if (code != ENOENT) return reef_cli_write_failed(path, code, err);
    return reef_fail(err, REEF_ERR_NOT_FOUND, "cannot write %.160s: %s", path, strerror(code));
}

// White space at the end of a line is none of the value.
static reef_status check_pool(const char *full, reef_error *err) {
    size_t bytes = strlen(full);
    bool ends = bytes > 0 && !isspace((unsigned char)full[bytes - 1]);
    if (ends && bytes <= POOL_BYTES_MAX && strpbrk(full, "\n;") == NULL) return REEF_OK;
    return reef_fail(
        err, REEF_ERR_INVALID,
        "the path %.120s does not fit into a configuration file; give it as reefd --pool", full);
}

// The folder of a path, as it was given: "." where it names none. The caller's.
static char *folder_of(const char *path) {
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    while (end > 0 && path[end - 1] != '/') end--;
    while (end > 1 && path[end - 1] == '/') end--;
    return end > 0 ? reef_cli_format("%.*s", (int)end, path) : reef_cli_format(".");
}

// Absolute path of a file that does not exist yet, in a directory that does; false if that is not
// so.
static bool real_path_of(const char *path, char real_path[2 * PATH_MAX]) {
    // realpath() fails on a missing file, so it is applied to the directory.
    char full[PATH_MAX], *folder = folder_of(path);
    bool found = realpath(folder, full) != NULL;
    size_t end = strlen(path);
    // Slashes at the end are not part of the last name.
    while (end > 1 && path[end - 1] == '/') end--;
    size_t begin = end;
    while (begin > 0 && path[begin - 1] != '/') begin--;
    if (found)
        // The root directory has its slash already.
        snprintf(real_path, (size_t)2 * PATH_MAX, "%s/%.*s", strcmp(full, "/") == 0 ? "" : full,
                 (int)(end - begin), path + begin);
    free(folder);
    return found;
}

reef_status reef_config_text_check(const char *path, const char *pool, reef_error *err) {
    char real_path[2 * PATH_MAX], beside[2 * PATH_MAX], *folder = folder_of(path);
    reef_status status = REEF_OK;
    bool resolved =
        real_path_of(pool, real_path); // otherwise the pool cannot be made, and that error
                                       // reports it
    if (resolved) status = check_pool(real_path, err);
    // The pool's own directory will be there.
    bool inside = resolved && real_path_of(folder, beside) && strcmp(real_path, beside) == 0;
    if (status == REEF_OK && !inside && access(folder, W_OK | X_OK) != 0)
        status = fail_write(path, errno, err);
    free(folder);
    return status;
}

reef_status reef_config_text_write(const char *path,
                                   const char *pool,
                                   const char *about,
                                   reef_error *err) {
    char full[PATH_MAX];
    // Absolute, because the daemon may be started from anywhere.
    if (realpath(pool, full) == NULL) return fail_write(pool, errno, err);
    reef_status status = check_pool(full, err);
    if (status != REEF_OK) return status;
    // O_EXCL: a file that appeared since the check is not overwritten.
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return fail_write(path, errno, err);
    FILE *out = fdopen(fd, "w");
    // The descriptor is ours until fdopen() has it.
    if (out == NULL) {
        close(fd);
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to write %.160s", path);
    }
    put_all(out, path, full, about);
    // Write errors are reported at the latest by fclose().
    bool failed = ferror(out) != 0;
    failed |= fclose(out) != 0;
    return failed ? fail_write(path, errno, err) : REEF_OK;
}
