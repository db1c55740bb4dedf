// Which files a journal has, who wrote them, and what became of them; see systemd_internal.h.
#include "systemd_internal.h"

#include "reef_system.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <systemd/sd-id128.h>
#include <unistd.h>

#define FOLDERS_MAX 2
#define LISTINGS_MAX 4 // of a folder that changes meanwhile

// ---- events -------------------------------------------------------------------------------------

void reef_systemd_report(reef_systemd *s, const char *event, const char *format, ...) {
    if (s->event_count == REEF_SYSTEMD_EVENTS_MAX) return;
    reef_systemd_event *queued = &s->events[s->event_count++];
    va_list arguments;
    snprintf(queued->event, sizeof(queued->event), "%s", event);
    va_start(arguments, format);
    vsnprintf(queued->text, sizeof(queued->text), format, arguments);
    va_end(arguments);
}

void reef_systemd_damaged(reef_systemd *s, reef_systemd_file *file, int code) {
    const uint64_t next = file->seen > 0 ? file->seen + 1 : file->header.head;
    reef_systemd_report(
        s, "source_broken",
        "'%.200s' is damaged (%s): its entries %" PRIu64 " to %" PRIu64 " are passed over",
        file->path,
        code == ENODATA || code == EBADMSG ? "what it counts cannot be found" : strerror(code),
        next, file->header.tail);
    reef_systemd_file_close(file);
    file->is_damaged = true;
}

static void report_denied(reef_systemd *s, const char *path, int code) {
    s->is_denied = true;
    if (s->reported_denied) return;
    s->reported_denied = true;
    reef_systemd_report(s, "source_denied", "cannot read '%.200s': %s; retrying", path,
                        strerror(code));
}

// ---- folders ------------------------------------------------------------------------------------

typedef struct folders {
    char paths[FOLDERS_MAX][PATH_MAX];
    bool are_volatile[FOLDERS_MAX];
    size_t count;
} folders;

static void find_folders(folders *out, const reef_systemd *s) {
    sd_id128_t machine;
    char id[SD_ID128_STRING_MAX];
    *out = (folders){0};
    if (s->spec.folder != NULL) {
        snprintf(out->paths[0], PATH_MAX, "%s", s->spec.folder);
        out->count = 1;
    } else if (sd_id128_get_machine(&machine) >= 0) {
        (void)sd_id128_to_string(machine, id);
        snprintf(out->paths[0], PATH_MAX, "/var/log/journal/%s", id);
        snprintf(out->paths[1], PATH_MAX, "/run/log/journal/%s", id);
        out->are_volatile[1] = true;
        out->count = 2;
    }
}

// ---- writers ------------------------------------------------------------------------------------

static bool has_files(const reef_systemd *s, size_t writer) {
    for (size_t i = 0; i < s->file_count; i++)
        if (s->files[i].writer == writer) return true;
    return (s->line.count > 0 && s->line_writer == writer) ||
           (s->half_bytes > 0 && s->half_writer == writer);
}

// Its index; one that has no file any more makes room. SIZE_MAX: there are too many.
static size_t find_writer(reef_systemd *s, const char *id, bool is_volatile) {
    size_t i = 0;
    while (i < s->writer_count && strcmp(s->writers[i].id, id) != 0) i++;
    if (i < s->writer_count) return i;
    if (i == REEF_SYSTEMD_WRITERS_MAX)
        for (i = 0; i < s->writer_count && has_files(s, i);) i++;
    if (i == REEF_SYSTEMD_WRITERS_MAX) return SIZE_MAX;
    s->writers[i] = (reef_systemd_writer){.is_volatile = is_volatile};
    snprintf(s->writers[i].id, sizeof(s->writers[i].id), "%s", id);
    if (i == s->writer_count) s->writer_count++;
    return i;
}

// ---- files --------------------------------------------------------------------------------------

static void remove_file(reef_systemd *s, size_t at) {
    reef_systemd_file_close(&s->files[at]);
    free(s->files[at].path);
    s->files[at] = s->files[--s->file_count];
}

static reef_systemd_file *known_file(reef_systemd *s, const char *id) {
    for (size_t i = 0; i < s->file_count; i++)
        if (strcmp(s->files[i].header.file, id) == 0) return &s->files[i];
    return NULL;
}

static void report_full(reef_systemd *s) {
    if (s->reported_full) return;
    s->reported_full = true;
    reef_systemd_report(s, "source_full",
                        "the journal has over %d files or %d writers: not all are read",
                        REEF_SYSTEMD_FILES_MAX, REEF_SYSTEMD_WRITERS_MAX);
}

static reef_status add_file(reef_systemd *s,
                            const reef_systemd_header *header,
                            bool is_volatile,
                            reef_systemd_file **out,
                            reef_error *err) {
    *out = NULL;
    const size_t writer = find_writer(s, header->writer, is_volatile);
    if (writer == SIZE_MAX || s->file_count == REEF_SYSTEMD_FILES_MAX) {
        report_full(s);
        return REEF_OK;
    }
    if (s->file_count == s->file_capacity) {
        const size_t capacity = 2 * s->file_capacity + 16;
        reef_systemd_file *grown = realloc(s->files, capacity * sizeof(*grown));
        if (grown == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a journal");
        s->files = grown;
        s->file_capacity = capacity;
    }
    *out = &s->files[s->file_count++];
    **out = (reef_systemd_file){.writer = writer, .is_volatile = is_volatile};
    return REEF_OK;
}

static reef_status note_file(
    reef_systemd *s, int folder, const char *path, bool is_volatile, reef_error *err) {
    reef_systemd_header header = {0};
    int code = reef_systemd_header_read(&header, folder, strrchr(path, '/') + 1);
    if (code == ENOENT || code == ESTALE) return REEF_OK; // it is being removed, or made
    if (code != 0 && code != ENODATA) {
        report_denied(s, path, code);
        return REEF_OK;
    }
    s->readable_count++;
    // A file without a header goes by the end of its path, and is reported once.
    const size_t bytes = strlen(path), kept = bytes < 31 ? bytes : 31;
    if (code == ENODATA) snprintf(header.file, sizeof(header.file), "?%s", path + bytes - kept);
    reef_systemd_file *file = known_file(s, header.file);
    if (file == NULL) {
        reef_status status = add_file(s, &header, is_volatile, &file, err);
        if (status != REEF_OK || file == NULL) return status;
    } else if (file->is_listed) {
        return REEF_OK; // a copy of it
    }
    file->is_listed = true;
    file->header = header;
    if (file->path == NULL || strcmp(file->path, path) != 0) {
        char *copy = strdup(path);
        if (copy == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a journal");
        free(file->path);
        file->path = copy;
    }
    if (code != 0 && !file->is_damaged) reef_systemd_damaged(s, file, code);
    return REEF_OK;
}

static bool ends_with(const char *text, const char *suffix) {
    const size_t bytes = strlen(text), end = strlen(suffix);
    return bytes > end && strcmp(text + bytes - end, suffix) == 0;
}

// Below a folder for several machines each has one that is named by its id.
static bool is_machine(const char *name) {
    size_t digits = 0;
    while (isxdigit((unsigned char)name[digits])) digits++;
    return digits == 32 && name[digits] == '\0';
}

static bool is_changed(DIR *folder, struct timespec *modified) {
    struct stat st = {0};
    (void)fstat(dirfd(folder), &st);
    const bool is_same =
        st.st_mtim.tv_sec == modified->tv_sec && st.st_mtim.tv_nsec == modified->tv_nsec;
    *modified = st.st_mtim;
    return !is_same;
}

// A file that is renamed meanwhile may be listed under neither name, and reading past its entries
// would lose them, so what changes is listed again.
static reef_status list_folder(
    reef_systemd *s, const char *path, bool is_volatile, bool deeper, reef_error *err) {
    char file[PATH_MAX];
    struct timespec modified = {0};
    reef_status status = REEF_OK;
    DIR *folder = opendir(path);
    if (folder == NULL) {
        if (errno != ENOENT) report_denied(s, path, errno);
        return REEF_OK;
    }
    for (size_t i = 0; i < LISTINGS_MAX && is_changed(folder, &modified); i++) {
        rewinddir(folder);
        for (const struct dirent *entry = readdir(folder); entry != NULL && status == REEF_OK;
             entry = readdir(folder)) {
            if (snprintf(file, sizeof(file), "%s/%s", path, entry->d_name) >= PATH_MAX) continue;
            if (ends_with(entry->d_name, ".journal") || ends_with(entry->d_name, ".journal~"))
                status = note_file(s, dirfd(folder), file, is_volatile, err);
            else if (deeper && is_machine(entry->d_name))
                status = list_folder(s, file, is_volatile, false, err);
        }
    }
    (void)closedir(folder);
    return status;
}

// ---- a scan -------------------------------------------------------------------------------------

// Its handle keeps a file that was removed until all of it is read.
static bool is_over(const reef_systemd_file *file) {
    return !file->is_listed && (file->handle == NULL || file->has_ended);
}

// What was removed before it was read. Who may not read all files does not know what there is.
static void count_lost(reef_systemd *s, reef_systemd_writer *w) {
    const size_t writer = (size_t)(w - s->writers);
    uint64_t head = UINT64_MAX;
    for (size_t i = 0; i < s->file_count; i++)
        if (s->files[i].writer == writer && s->files[i].header.head > 0 &&
            s->files[i].header.head < head)
            head = s->files[i].header.head;
    if (w->seen < w->last) w->seen = w->last;
    if (w->last == 0 || head == UINT64_MAX || head <= w->seen + 1) return;
    if (!s->is_denied)
        reef_systemd_report(s, "source_loss",
                            "%s%" PRIu64 " entries, %" PRIu64 " to %" PRIu64
                            " of the journal %s, were removed before they were read",
                            s->spec.match_count > 0 ? "up to " : "", head - 1 - w->seen,
                            w->seen + 1, head - 1, w->id);
    w->seen = head - 1;
}

// An entry is counted in the header before it can be read, so to have ended once is not enough.
static void note_end(reef_systemd *s, reef_systemd_file *file) {
    reef_systemd_writer *w = &s->writers[file->writer];
    const uint64_t tail = file->has_ended ? file->ended : 0;
    const bool is_sure = tail > 0 && (tail == file->ended_before || w->last >= tail);
    if (is_sure && s->spec.match_count == 0 && file->seen < tail && !file->is_damaged)
        reef_systemd_damaged(s, file, ENODATA);
    if (is_sure) file->read = tail;
    if (is_sure && w->seen < tail) w->seen = tail;
    file->ended_before = tail;
    file->has_ended = false;
}

static int compare_age(const void *a, const void *b) {
    const reef_systemd_file *one = a, *other = b;
    return (one->header.head > other->header.head) - (one->header.head < other->header.head);
}

static bool has_unread(const reef_systemd *s, const reef_systemd_file *file) {
    return !file->is_damaged && file->header.tail != file->read &&
           file->header.tail > s->writers[file->writer].last;
}

// The oldest first. What must wait for its turn bounds the pass: later entries wait for it.
static void open_files(reef_systemd *s) {
    size_t open = 0;
    if (s->file_count > 0) qsort(s->files, s->file_count, sizeof(*s->files), compare_age);
    for (size_t i = 0; i < s->file_count; i++) {
        reef_systemd_file *file = &s->files[i];
        reef_systemd_writer *w = &s->writers[file->writer];
        if (!file->is_listed) continue;
        const bool wanted = has_unread(s, file), waits = wanted && open == REEF_SYSTEMD_OPEN_MAX;
        int code = waits ? EMFILE : 0;
        if (!wanted || waits)
            reef_systemd_file_close(file);
        else if (file->handle == NULL)
            code = reef_systemd_file_open(file, &s->spec, w->last);
        open += file->handle != NULL;
        if (code == ENOENT)
            file->is_listed = false;
        else if (code == EACCES || code == EPERM)
            report_denied(s, file->path, code);
        else if (code != 0 && code != EMFILE && code != ENFILE && code != ENOMEM)
            reef_systemd_damaged(s, file, code);
        if (wanted && file->handle == NULL && !file->is_damaged && w->bound >= file->header.head)
            w->bound = file->header.head - 1;
    }
}

static void report_missing(reef_systemd *s) {
    if (s->missing_count == 0) return;
    reef_systemd_report(s, "source_loss",
                        "%" PRIu64 " entries of the journal cannot be read, the first of them "
                        "number %s: they are damaged or were removed",
                        s->missing_count, s->missing_from);
    s->missing_count = 0;
}

reef_status reef_systemd_scan(reef_systemd *s, reef_error *err) {
    folders places;
    reef_status status = REEF_OK;
    report_missing(s);
    s->is_denied = false;
    s->readable_count = 0;
    for (size_t i = 0; i < s->file_count; i++) s->files[i].is_listed = false;
    find_folders(&places, s);
    for (size_t i = 0; i < places.count && status == REEF_OK; i++)
        status =
            list_folder(s, places.paths[i], places.are_volatile[i], s->spec.folder != NULL, err);
    if (status != REEF_OK) return status;
    for (size_t i = s->file_count; i > 0; i--)
        if (is_over(&s->files[i - 1])) remove_file(s, i - 1);
    for (size_t i = 0; i < s->writer_count; i++) count_lost(s, &s->writers[i]);
    for (size_t i = 0; i < s->file_count; i++) {
        reef_systemd_file *file = &s->files[i];
        note_end(s, file);
        if (s->writers[file->writer].bound < file->header.tail)
            s->writers[file->writer].bound = file->header.tail;
    }
    open_files(s);
    if (!s->is_denied) s->reported_denied = false;
    s->scanned_ms = (uint64_t)(reef_seconds() * 1000.0) + 1;
    return REEF_OK;
}

void reef_systemd_forget(reef_systemd *s) {
    while (s->file_count > 0) remove_file(s, s->file_count - 1);
    s->writer_count = s->event_count = 0;
    s->scanned_ms = s->missing_count = 0;
    s->reported_denied = s->reported_full = false;
}

// ---- opening -------------------------------------------------------------------------------

static reef_status check_folders(reef_systemd *s, reef_error *err) {
    folders places;
    struct stat st;
    size_t there = 0;
    int code = ENOENT;
    find_folders(&places, s);
    for (size_t i = 0; i < places.count; i++) {
        const bool is_there = stat(places.paths[i], &st) == 0;
        if (!is_there && errno != ENOENT) code = errno;
        if (is_there && !S_ISDIR(st.st_mode)) code = ENOTDIR;
        there += is_there && S_ISDIR(st.st_mode);
    }
    if (there == 0 && s->spec.folder != NULL)
        return reef_fail(err, REEF_ERR_NOT_FOUND, "cannot read the journal in '%.200s': %s",
                         s->spec.folder, strerror(code));
    if (there == 0)
        return reef_fail(err, REEF_ERR_NOT_FOUND,
                         "this machine has no journal: neither '%.100s' nor one below /run",
                         places.count > 0 ? places.paths[0] : "/var/log/journal");
    reef_status status = reef_systemd_scan(s, err);
    if (status == REEF_OK && s->is_denied && s->readable_count == 0)
        status = reef_fail(err, REEF_ERR_NOT_FOUND,
                           "%.200s: this user may read no file of it; the group systemd-journal "
                           "may",
                           places.paths[0]);
    reef_systemd_forget(s); // reading begins where the checkpoint says
    return status;
}

reef_status reef_systemd_open(reef_systemd **out, const char *rest, reef_error *err) {
    *out = NULL;
    reef_systemd *s = calloc(1, sizeof(*s));
    if (s != NULL) s->writers = calloc(REEF_SYSTEMD_WRITERS_MAX, sizeof(*s->writers));
    reef_status status = s != NULL && s->writers != NULL
                             ? reef_systemd_spec_parse(&s->spec, rest, err)
                             : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a journal");
    if (status == REEF_OK) status = check_folders(s, err);
    if (status == REEF_OK)
        *out = s;
    else
        reef_systemd_close(s);
    return status;
}

void reef_systemd_close(reef_systemd *s) {
    if (s == NULL) return;
    reef_systemd_forget(s);
    free(s->files);
    free(s->writers);
    free(s->line.bytes);
    reef_systemd_spec_release(&s->spec);
    free(s);
}
