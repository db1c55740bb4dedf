// Reading a configuration file; see reef_settings.h.
#include "reef_settings.h"

#include "reef_gone.h"

#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct reading {
    const char *path, *section;
    FILE *file;
    unsigned line; // that inih works on
    size_t bytes;
    reef_config_entry entry;
    void *context;
    reef_error first; // the first mistake
    unsigned first_line;
} reading;

// Where a mistake is reported: only the first one is kept.
static reef_error *mistake(reading *now) {
    if (now->first.status != REEF_OK) return NULL;
    now->first_line = now->line;
    return &now->first;
}

static void refuse_mistake(reading *now, const char *why) {
    (void)reef_fail(mistake(now), REEF_ERR_INVALID, "%.120s:%u: %s", now->path, now->line, why);
}

// Whether the line ends before what follows it in the file.
static bool is_whole(reading *now, const char *line, size_t length) {
    if (length > 0 && line[length - 1] == '\n') return true;
    int next = getc(now->file);
    if (next != EOF) (void)ungetc(next, now->file);
    return next == EOF;
}

// For inih, as fgets. It takes an indented line for more of the value above it, which would swallow
// a key.
static char *next_line(char *line, int room, void *stream) {
    reading *now = stream;
    // inih calls this instead of fgets.
    if (fgets(line, room, now->file) == NULL) return NULL;
    size_t length = strlen(line); // up to a zero byte, which is then no whole line
    now->line++;
    now->bytes += length;
    // inih would silently split a line that is too long into two.
    if (!is_whole(now, line, length)) {
        refuse_mistake(now,
                       "the line is too long, or holds a zero byte: about 200 bytes are read; a "
                       "longer source can be given with --source");
        return NULL;
    }
    // A binary file or a log named by mistake would otherwise be parsed to its end.
    if (now->bytes > REEF_CONFIG_FILE_BYTES_MAX) {
        refuse_mistake(now, "the file is longer than 1 MiB: this is no configuration");
        return NULL;
    }
    // Leading blanks are removed; inih treats an indented line as a continuation.
    size_t blanks = strspn(line, " \t");
    memmove(line, line + blanks, length - blanks + 1);
    return line;
}

static void refuse_section(reading *now, const char *section) {
    // A suggestion only where most letters agree.
    bool near = reef_edit_distance(section, now->section) <= strlen(section) / 2;
    if (*section == '\0')
        (void)reef_fail(mistake(now), REEF_ERR_INVALID,
                        "%.120s:%u: a key before any section: begin with [%s]", now->path,
                        now->line, now->section);
    else
        (void)reef_fail(mistake(now), REEF_ERR_INVALID,
                        "%.120s:%u: there is no section [%.40s]%s[%s]%s", now->path, now->line,
                        section, near ? "; did you mean " : "; the only one is ", now->section,
                        near ? "?" : "");
}

// Nonzero: inih may continue.
static int on_key(void *user, const char *section, const char *key, const char *value) {
    reading *now = user;
    if (strcmp(section, now->section) != 0)
        refuse_section(now, section);
    else
        (void)now->entry(now->context, key, value, now->line, mistake(now));
    return 1;
}

static reef_status open_file(reading *now, reef_error *err) {
    // O_NONBLOCK: a pipe under this name must not hang the start.
    int fd = open(now->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat info;
    if (fd < 0)
        return reef_fail(err, errno == ENOENT ? REEF_ERR_NOT_FOUND : REEF_ERR_IO,
                         "cannot read the configuration file '%.160s': %s", now->path,
                         strerror(errno));
    // Directories and devices are refused by kind, before a read.
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return reef_fail(err, REEF_ERR_INVALID,
                         "cannot read the configuration file '%.160s': it is not a regular file",
                         now->path);
    }
    now->file = fdopen(fd, "r");
    if (now->file != NULL) return REEF_OK;
    close(fd);
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to read the configuration file '%.160s'",
                     now->path);
}

// line  written: the first one that inih itself refuses, or 0
static reef_status read_file(reading *now, int *line, reef_error *err) {
    reef_status status = open_file(now, err);
    if (status != REEF_OK) return status;
    *line = ini_parse_stream(next_line, now, on_key, now);
    // ferror before fclose, and errno before anything else can change it.
    bool failed = ferror(now->file) != 0;
    int why = errno;
    fclose(now->file);
    if (failed)
        return reef_fail(err, REEF_ERR_IO, "cannot read the configuration file '%.160s': %s",
                         now->path, strerror(why));
    // inih's own signal for no memory.
    if (*line < 0)
        return reef_fail(err, REEF_ERR_NO_MEMORY,
                         "no memory to read the configuration file '%.160s'", now->path);
    return REEF_OK;
}

static reef_status refuse_line(const char *path, int line, reef_error *err) {
    return reef_fail(err, REEF_ERR_INVALID, "%.120s:%d: neither [SECTION] nor KEY = VALUE", path,
                     line);
}

// The first mistake, whoever made it, is the error.
reef_status reef_config_file_read(const char *path,
                                  const char *section,
                                  reef_config_entry entry,
                                  void *context,
                                  reef_error *err) {
    reading now = {.path = path, .section = section, .entry = entry, .context = context};
    int line = 0;
    reef_status status = read_file(&now, &line, err);
    if (status != REEF_OK) return status;
    // What inih itself refuses may stand before what the entries were refused for.
    if (line > 0 && (now.first.status == REEF_OK || (unsigned)line < now.first_line))
        return refuse_line(now.path, line, err);
    return now.first.status == REEF_OK ? REEF_OK
                                       : reef_fail(err, now.first.status, "%s", now.first.message);
}
