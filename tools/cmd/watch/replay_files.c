// See replay_files.h.
#include "replay_files.h"

#include "cli_format.h"
#include "reef_watch.h"
#include "rotated_names.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#define LINE_BYTES_MAX ((size_t)1 << 20) // a longer line is cut into such
#define PROBED_LINES 200                 // of a file, for the time of its first line
#define TAIL_BYTES (64L << 10)           // of a file, for the time of its last line
#define OVERLAP_MS 3600000               // lines are in the order of their times, about
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
    reef_rotation rotation;
    bool is_rotated; // it is of the log that has the name without what its end says
    bool is_decided; // that
    uint64_t begin;  // where its text begins in that of the source; known once it is opened
} log_file;

typedef struct log_source {
    char *name;      // owned
    log_file *files; // owned; (file_count) in the order of their times
    size_t file_count, capacity, at;
    line_file file;
    uint64_t done;     // bytes of files before it, as they lie on the disk
    uint64_t unpacked; // of their text
    const uint8_t *line;
    size_t count;
    int64_t time_ms;
    bool any, has_times;
} log_source;

struct reef_replay {
    log_file *files; // owned; (file_count) that were found, until they are sources'
    size_t file_count, file_capacity;
    line_file probed;
    log_source *sources; // owned
    size_t count, capacity;
    size_t last; // whose line was lent; SIZE_MAX: none
};

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
    for (size_t i = 0; i < r->file_count; i++)
        if (r->files[i].device == st->st_dev && r->files[i].inode == st->st_ino) return true;
    return false;
}

static reef_status add_file(reef_replay *r,
                            const char *path,
                            const struct stat *st,
                            reef_error *err) {
    if (is_known(r, st)) return REEF_OK; // named twice
    r->files = reef_cli_grown(r->files, r->file_count, &r->file_capacity, sizeof(*r->files));
    log_file *added = &r->files[r->file_count++];
    *added = (log_file){.path = reef_cli_format("%s", path),
                        .device = st->st_dev,
                        .inode = st->st_ino,
                        .bytes = (uint64_t)st->st_size,
                        .modified_ms = (int64_t)st->st_mtime * 1000,
                        .rotation = reef_rotation_read(path)};
    reef_status status = probe(added, &r->probed, err);
    if (status != REEF_OK || !added->is_binary) return status;
    char *shown = reef_cli_printable((const uint8_t *)path, strlen(path), false);
    fprintf(stderr, "reef watch: %s is no text, and is not read\n", shown);
    free(shown);
    free(added->path);
    r->file_count--;
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
    if (strncmp(path, "journal:", 8) == 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%s: --replay reads files: write one with journalctl -o short-iso -u UNIT "
                         "> FILE",
                         path);
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

// ---- which files are one log --------------------------------------------------------------------

// The time of the last line that has one; of what is compressed that of the first.
static int64_t last_time(const log_file *file) {
    uint8_t *text = reef_cli_alloc((size_t)TAIL_BYTES, 1);
    int64_t last_ms = file->first_ms;
    FILE *f = fopen(file->path, "rb");
    size_t count = 0;
    if (f != NULL && fread(text, 1, 2, f) == 2 && memcmp(text, "\x1f\x8b", 2) != 0 &&
        fseek(f, (long)file->bytes > TAIL_BYTES ? (long)file->bytes - TAIL_BYTES : 0L, SEEK_SET) ==
            0)
        count = fread(text, 1, (size_t)TAIL_BYTES, f);
    if (f != NULL) fclose(f);
    for (size_t at = 0; at < count;) {
        const uint8_t *end = memchr(text + at, '\n', count - at);
        const size_t bytes = end != NULL ? (size_t)(end - text) - at : count - at;
        int64_t ms;
        if (reef_line_time(text + at, bytes, file->modified_ms, &ms) && ms > last_ms) last_ms = ms;
        at += bytes + 1;
    }
    free(text);
    return last_ms;
}

static bool is_of_family(const log_file *a, const log_file *b) {
    return a->rotation.sort == b->rotation.sort &&
           a->rotation.name_bytes == b->rotation.name_bytes &&
           memcmp(a->path, b->path, a->rotation.name_bytes) == 0;
}

static int older_first(const void *a, const void *b) {
    const log_file *x = *(log_file *const *)a, *y = *(log_file *const *)b;
    if (x->rotation.number == y->rotation.number) return 0;
    const bool less = x->rotation.number < y->rotation.number;
    return less == (x->rotation.sort == REEF_ROTATION_DATE) ? -1 : 1;
}

// Could logrotate have made them of one log, of which they are the older files? Numbers have no
// gap, and each file ends before the next begins.
static bool is_sequence(log_file *const *files, size_t count) {
    const reef_rotation *rotation = &files[0]->rotation;
    const bool numbers = rotation->sort == REEF_ROTATION_NUMBER;
    if (count < 2 || (numbers && !reef_rotation_can_be_of(files[0]->path, rotation->name_bytes)))
        return false;
    for (size_t i = 0; i + 1 < count; i++) {
        const uint64_t older = files[i]->rotation.number, younger = files[i + 1]->rotation.number;
        if (older == younger || (numbers && older != younger + 1)) return false;
        if (last_time(files[i]) > files[i + 1]->first_ms + OVERLAP_MS) return false;
    }
    return true;
}

static bool has_log(const log_file *file) {
    struct stat st;
    char *name = reef_cli_format("%.*s", (int)file->rotation.name_bytes, file->path);
    const bool has = stat(name, &st) == 0 && S_ISREG(st.st_mode);
    free(name);
    return has;
}

static void decide_rotated(reef_replay *r) {
    log_file **family = reef_cli_alloc(r->file_count + 1, sizeof(log_file *));
    for (size_t i = 0; i < r->file_count; i++) {
        size_t count = 0;
        log_file *file = &r->files[i];
        if (file->is_decided || file->rotation.sort == REEF_ROTATION_NONE) continue;
        for (size_t k = i; k < r->file_count; k++)
            if (is_of_family(file, &r->files[k])) family[count++] = &r->files[k];
        qsort(family, count, sizeof(log_file *), older_first);
        const bool is_rotated = has_log(file) || is_sequence(family, count);
        for (size_t k = 0; k < count; k++) {
            family[k]->is_decided = true;
            family[k]->is_rotated = is_rotated;
        }
    }
    free(family);
}

static int earlier_first(const void *a, const void *b) {
    const log_file *x = a, *y = b;
    if (x->first_ms != y->first_ms) return x->first_ms < y->first_ms ? -1 : 1;
    // LOG.10, LOG.2 and LOG, of which none has a time.
    if (x->is_rotated != y->is_rotated) return x->is_rotated ? -1 : 1;
    if (x->rotation.sort == y->rotation.sort && x->rotation.number != y->rotation.number)
        return older_first(&x, &y);
    return strcmp(y->path, x->path);
}

static log_source *source_of(reef_replay *r, const char *path, size_t name_bytes) {
    for (size_t i = 0; i < r->count; i++)
        if (strlen(r->sources[i].name) == name_bytes &&
            memcmp(r->sources[i].name, path, name_bytes) == 0)
            return &r->sources[i];
    r->sources = reef_cli_grown(r->sources, r->count, &r->capacity, sizeof(*r->sources));
    r->sources[r->count] = (log_source){.name = reef_cli_format("%.*s", (int)name_bytes, path)};
    return &r->sources[r->count++];
}

// The files become those of sources.
static void make_sources(reef_replay *r) {
    decide_rotated(r);
    for (size_t i = 0; i < r->file_count; i++) {
        const log_file *file = &r->files[i];
        const size_t whole = reef_path_without_gz(file->path);
        log_source *s =
            source_of(r, file->path, file->is_rotated ? file->rotation.name_bytes : whole);
        s->files = reef_cli_grown(s->files, s->file_count, &s->capacity, sizeof(*s->files));
        s->files[s->file_count++] = *file;
    }
    r->file_count = 0;
    for (size_t i = 0; i < r->count; i++)
        qsort(r->sources[i].files, r->sources[i].file_count, sizeof(log_file), earlier_first);
}

// ---- lines --------------------------------------------------------------------------------------

// The next line of a source that is not empty.
static reef_status advance(log_source *s, reef_error *err) {
    reef_status status = REEF_OK;
    s->any = false;
    while (status == REEF_OK && !s->any && s->at < s->file_count) {
        log_file *file = &s->files[s->at];
        if (s->file.file == NULL) {
            status = open_file(&s->file, file->path, err);
            file->begin = s->unpacked;
            if (s->time_ms < file->first_ms) s->time_ms = file->first_ms;
        }
        if (status == REEF_OK) status = read_line(&s->file, &s->line, &s->count, &s->any, err);
        if (status != REEF_OK) return status;
        if (!s->any) {
            close_file(&s->file);
            s->unpacked += s->file.offset;
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
    if (status == REEF_OK && r->file_count == 0)
        status = reef_fail(err, REEF_ERR_NOT_FOUND, "no file of text in %s", paths[0]);
    if (status == REEF_OK) make_sources(r);
    for (size_t i = 0; status == REEF_OK && i < r->count; i++)
        status = advance(&r->sources[i], err);
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
    for (size_t f = 0; f < r->file_count; f++) free(r->files[f].path);
    free(r->files);
    free(r->probed.buffer);
    free(r->sources);
    free(r);
}

size_t reef_replay_source_count(const reef_replay *r) {
    return r->count;
}

const char *reef_replay_source_name(const reef_replay *r, size_t source) {
    return r->sources[source].name;
}

const char *reef_replay_file(const reef_replay *r, size_t source, uint64_t offset, uint64_t *at) {
    const log_source *s = &r->sources[source];
    size_t f = s->at < s->file_count ? s->at : s->file_count - 1;
    while (f > 0 && (s->files[f].begin > offset || (f == s->at && s->file.file == NULL))) f--;
    *at = offset - s->files[f].begin;
    return s->files[f].path;
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
    *out = (reef_replay_line){(uint32_t)r->last, s->unpacked + s->file.offset, s->line, s->count,
                              s->time_ms};
    return REEF_OK;
}
