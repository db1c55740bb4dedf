// See replay_files.h.
#include "replay_files.h"

#include "cli_format.h"
#include "reef_watch.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#define LINE_BYTES_MAX ((size_t)1 << 20) // a longer line is cut into such
#define PROBED_LINES 200                 // of a file, for the time of its first line
#define BUFFER_BYTES (LINE_BYTES_MAX + ((size_t)256 << 10))

/** A file of which lines are read; what is compressed is unpacked. */
typedef struct line_file {
    gzFile file;
    const char *path;
    uint8_t *buffer; // owned; (BUFFER_BYTES)
    size_t at, end;  // of what was read and is not passed
    size_t taken;    // bytes of the line that was lent
    uint64_t offset; // of `at`, in the unpacked text
    bool has_ended;
} line_file;

typedef struct log_file {
    char *path; // owned
    dev_t device;
    ino_t inode;
    uint64_t bytes;
    bool is_binary;
    int64_t first_ms, modified_ms; // of its first line that has a time; when it was written last
} log_file;

typedef struct log_source {
    char *name;      // owned
    log_file *files; // owned; (file_count) in the order of their times
    size_t file_count, capacity, at;
    line_file file;
    uint64_t done; // bytes of files before it
    const uint8_t *line;
    size_t count;
    int64_t time_ms;
    bool any, has_times;
} log_source;

struct reef_replay {
    log_source *sources; // owned
    size_t count, capacity;
    size_t last; // whose line was lent; SIZE_MAX: none
};

// ---- names --------------------------------------------------------------------------------------

static bool cut_suffix(const char *name, size_t *length, const char *suffix) {
    size_t count = strlen(suffix);
    if (*length <= count || memcmp(name + *length - count, suffix, count) != 0) return false;
    *length -= count;
    return true;
}

// ".1", "-20261130", ".2026-11-30"
static void cut_number(const char *name, size_t *length) {
    size_t at = *length;
    while (at > 0 && (isdigit((unsigned char)name[at - 1]) || name[at - 1] == '-')) at--;
    size_t end = at > 0 && name[at - 1] == '.' ? at - 1 : at;
    bool date = *length - at >= 8 && name[at] == '-';
    if (end > 0 && at < *length && (end < at || date)) *length = end;
}

// The path of the log that a file was rotated from. On the heap.
static char *source_name(const char *path) {
    size_t length = strlen(path);
    while (cut_suffix(path, &length, ".gz")) {
    }
    cut_number(path, &length);
    return reef_cli_format("%.*s", (int)length, path);
}

// ---- files --------------------------------------------------------------------------------------

static reef_status open_file(line_file *out, const char *path, reef_error *err) {
    uint8_t *buffer = out->buffer != NULL ? out->buffer : reef_cli_alloc(BUFFER_BYTES, 1);
    *out = (line_file){.path = path, .buffer = buffer};
    errno = 0;
    out->file = gzopen(path, "rb");
    if (out->file != NULL) return REEF_OK;
    return reef_fail(err, REEF_ERR_IO, "cannot read %s: %s", path,
                     strerror(errno != 0 ? errno : ENOMEM));
}

static void close_file(line_file *f) {
    if (f->file != NULL) gzclose(f->file);
    f->file = NULL;
}

static reef_status read_more(line_file *f, reef_error *err) {
    memmove(f->buffer, f->buffer + f->at, f->end - f->at);
    f->end -= f->at;
    f->at = 0;
    int code, count = gzread(f->file, f->buffer + f->end, (unsigned)(BUFFER_BYTES - f->end));
    if (count < 0)
        return reef_fail(err, REEF_ERR_IO, "cannot read %s: %s", f->path, gzerror(f->file, &code));
    f->end += (size_t)count;
    f->has_ended = count == 0;
    (void)gzerror(f->file, &code);
    if (f->has_ended && code == Z_BUF_ERROR)
        return reef_fail(err, REEF_ERR_IO, "cannot read %s: what was compressed has no end",
                         f->path);
    return REEF_OK;
}

// The next line, or as much of it as is looked at: (count) at *line, without its end.
static reef_status read_line(
    line_file *f, const uint8_t **line, size_t *count, bool *any, reef_error *err) {
    const uint8_t *newline = NULL;
    reef_status status = REEF_OK;
    f->offset += f->taken;
    f->at += f->taken;
    f->taken = 0;
    while (status == REEF_OK) {
        newline = memchr(f->buffer + f->at, '\n', f->end - f->at);
        if (newline != NULL || f->has_ended || f->end - f->at >= LINE_BYTES_MAX) break;
        status = read_more(f, err);
    }
    *line = f->buffer + f->at;
    *count = newline != NULL ? (size_t)(newline - *line) : f->end - f->at;
    *any = status == REEF_OK && (newline != NULL || *count > 0);
    f->taken = *count + (newline != NULL);
    return status;
}

static reef_status probe(log_file *file, line_file *f, reef_error *err) {
    bool any = true;
    reef_status status = open_file(f, file->path, err);
    file->first_ms = file->modified_ms;
    for (size_t i = 0; status == REEF_OK && any && i < PROBED_LINES; i++) {
        const uint8_t *line;
        size_t count;
        status = read_line(f, &line, &count, &any, err);
        file->is_binary |= any && memchr(line, '\0', count) != NULL;
        if (!any || !reef_line_time(line, count, file->modified_ms, &file->first_ms)) continue;
        file->is_binary = false;
        break;
    }
    close_file(f);
    return status;
}

static bool is_known(const reef_replay *r, const struct stat *st) {
    for (size_t s = 0; s < r->count; s++)
        for (size_t f = 0; f < r->sources[s].file_count; f++)
            if (r->sources[s].files[f].device == st->st_dev &&
                r->sources[s].files[f].inode == st->st_ino)
                return true;
    return false;
}

static log_source *source_of(reef_replay *r, const char *path) {
    char *name = source_name(path);
    for (size_t i = 0; i < r->count; i++)
        if (strcmp(r->sources[i].name, name) == 0) {
            free(name);
            return &r->sources[i];
        }
    r->sources = reef_cli_grown(r->sources, r->count, &r->capacity, sizeof(*r->sources));
    r->sources[r->count] = (log_source){.name = name};
    return &r->sources[r->count++];
}

static reef_status add_file(reef_replay *r,
                            const char *path,
                            const struct stat *st,
                            reef_error *err) {
    if (is_known(r, st)) return REEF_OK; // named twice
    log_source *source = source_of(r, path);
    log_file file = {.path = reef_cli_format("%s", path),
                     .device = st->st_dev,
                     .inode = st->st_ino,
                     .bytes = (uint64_t)st->st_size,
                     .modified_ms = (int64_t)st->st_mtime * 1000};
    source->files =
        reef_cli_grown(source->files, source->file_count, &source->capacity, sizeof(file));
    source->files[source->file_count++] = file;
    log_file *added = &source->files[source->file_count - 1];
    reef_status status = probe(added, &source->file, err);
    if (status != REEF_OK || !added->is_binary) return status;
    fprintf(stderr, "reef watch: %s is no text, and is not read\n", path);
    free(added->path);
    source->file_count--;
    return REEF_OK;
}

static reef_status add_directory(reef_replay *r, const char *path, reef_error *err) {
    struct dirent **entries;
    int count = scandir(path, &entries, NULL, alphasort);
    if (count < 0) return reef_fail(err, REEF_ERR_IO, "cannot read %s: %s", path, strerror(errno));
    reef_status status = REEF_OK;
    for (int i = 0; i < count; i++) {
        char *file = reef_cli_format("%s/%s", path, entries[i]->d_name);
        struct stat st;
        if (status == REEF_OK && entries[i]->d_name[0] != '.' && stat(file, &st) == 0 &&
            S_ISREG(st.st_mode))
            status = add_file(r, file, &st, err);
        free(file);
        free(entries[i]);
    }
    free(entries);
    return status;
}

static reef_status add_path(reef_replay *r, const char *path, reef_error *err) {
    struct stat st;
    if (stat(path, &st) == 0) {
        if (S_ISDIR(st.st_mode)) return add_directory(r, path, err);
        if (S_ISREG(st.st_mode)) return add_file(r, path, &st, err);
        return reef_fail(err, REEF_ERR_INVALID, "%s is no file and no directory", path);
    }
    glob_t found;
    reef_status status = REEF_OK;
    if (glob(path, 0, NULL, &found) != 0)
        return reef_fail(err, REEF_ERR_NOT_FOUND, "no file %s", path);
    for (size_t i = 0; status == REEF_OK && i < found.gl_pathc; i++)
        if (stat(found.gl_pathv[i], &st) == 0 && S_ISREG(st.st_mode))
            status = add_file(r, found.gl_pathv[i], &st, err);
    globfree(&found);
    return status;
}

static int earlier_first(const void *a, const void *b) {
    const log_file *x = a, *y = b;
    if (x->first_ms != y->first_ms) return x->first_ms < y->first_ms ? -1 : 1;
    return strcmp(y->path, x->path); // LOG.2 before LOG.1
}

// ---- lines --------------------------------------------------------------------------------------

// The next line of a source that is not empty.
static reef_status advance(log_source *s, reef_error *err) {
    reef_status status = REEF_OK;
    s->any = false;
    while (status == REEF_OK && !s->any && s->at < s->file_count) {
        const log_file *file = &s->files[s->at];
        if (s->file.file == NULL) {
            status = open_file(&s->file, file->path, err);
            if (s->time_ms < file->first_ms) s->time_ms = file->first_ms;
        }
        if (status == REEF_OK) status = read_line(&s->file, &s->line, &s->count, &s->any, err);
        if (status != REEF_OK) return status;
        if (!s->any) {
            close_file(&s->file);
            s->done += file->bytes;
            s->at++;
            continue;
        }
        if (s->count > 0 && s->line[s->count - 1] == '\r') s->count--;
        s->any = s->count > 0;
    }
    if (s->any && reef_line_time(s->line, s->count, s->time_ms, &s->time_ms)) s->has_times = true;
    return status;
}

reef_status reef_replay_open(reef_replay **out, char *const *paths, size_t count, reef_error *err) {
    reef_replay *r = reef_cli_alloc(1, sizeof(*r));
    reef_status status = REEF_OK;
    *out = r;
    r->last = SIZE_MAX;
    for (size_t i = 0; status == REEF_OK && i < count; i++) status = add_path(r, paths[i], err);
    size_t files = 0;
    for (size_t i = 0; i < r->count; i++) files += r->sources[i].file_count;
    if (status == REEF_OK && files == 0)
        status = reef_fail(err, REEF_ERR_NOT_FOUND, "no file of text in %s", paths[0]);
    for (size_t i = 0; status == REEF_OK && i < r->count; i++) {
        log_source *s = &r->sources[i];
        qsort(s->files, s->file_count, sizeof(*s->files), earlier_first);
        status = advance(s, err);
    }
    return status;
}

void reef_replay_close(reef_replay *r) {
    if (r == NULL) return;
    for (size_t i = 0; i < r->count; i++) {
        log_source *s = &r->sources[i];
        close_file(&s->file);
        free(s->file.buffer);
        for (size_t f = 0; f < s->file_count; f++) free(s->files[f].path);
        free(s->files);
        free(s->name);
    }
    free(r->sources);
    free(r);
}

size_t reef_replay_source_count(const reef_replay *r) {
    return r->count;
}

const char *reef_replay_source_name(const reef_replay *r, size_t source) {
    return r->sources[source].name;
}

bool reef_replay_source_lacks_times(const reef_replay *r, size_t source) {
    return r->sources[source].file_count > 0 && !r->sources[source].has_times;
}

uint64_t reef_replay_bytes(const reef_replay *r, uint64_t *read) {
    uint64_t all = 0;
    *read = 0;
    for (size_t i = 0; i < r->count; i++) {
        const log_source *s = &r->sources[i];
        for (size_t f = 0; f < s->file_count; f++) all += s->files[f].bytes;
        *read += s->done + (s->file.file != NULL ? (uint64_t)gzoffset(s->file.file) : 0);
    }
    return all;
}

reef_status reef_replay_next(reef_replay *r, reef_replay_line *out, bool *any, reef_error *err) {
    reef_status status = r->last == SIZE_MAX ? REEF_OK : advance(&r->sources[r->last], err);
    r->last = SIZE_MAX;
    for (size_t i = 0; i < r->count; i++)
        if (r->sources[i].any &&
            (r->last == SIZE_MAX || r->sources[i].time_ms < r->sources[r->last].time_ms))
            r->last = i;
    *any = status == REEF_OK && r->last != SIZE_MAX;
    if (!*any) return status;
    const log_source *s = &r->sources[r->last];
    *out = (reef_replay_line){
        (uint32_t)r->last, s->files[s->at].path, s->file.offset, s->line, s->count, s->time_ms};
    return REEF_OK;
}
