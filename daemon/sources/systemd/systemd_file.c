// One file of a journal; see systemd_internal.h.
//
// libsystemd reads entries. It does not tell who wrote a file and up to which number before it is
// opened and searched, so that is read from the header here, as systemd.io/JOURNAL_FILE_FORMAT has
// it. Numbers are little-endian.
//
//    0   8  "LPKSHHRH"
//   24  16  the file's id
//   72  16  the id of who numbers its entries
//  152   8  how many entries it has
//  160   8  number of the last one
//  168   8  number of the first one
#include "systemd_internal.h"

#include "reef_byte_order.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEADER_BYTES 208 // of the oldest version

static void write_id(char out[REEF_SYSTEMD_ID_BYTES], const uint8_t bytes[16]) {
    for (size_t i = 0; i < 16; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

int reef_systemd_header_read(reef_systemd_header *out, int folder, const char *name) {
    uint8_t bytes[HEADER_BYTES];
    const int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return errno;
    const ssize_t count = pread(fd, bytes, sizeof(bytes), 0);
    const int code = errno;
    (void)close(fd);
    if (count < 0) return code;
    if (count == 0) return ESTALE;
    if (count < HEADER_BYTES || memcmp(bytes, "LPKSHHRH", 8) != 0) return ENODATA;
    *out = (reef_systemd_header){0};
    write_id(out->file, bytes + 24);
    write_id(out->writer, bytes + 72);
    if (reef_get_le64(bytes + 152) > 0) {
        out->tail = reef_get_le64(bytes + 160);
        out->head = reef_get_le64(bytes + 168);
    }
    return 0;
}

int reef_systemd_file_open(reef_systemd_file *file, const reef_systemd_spec *spec, uint64_t last) {
    const char *const paths[] = {file->path, NULL};
    char cursor[80];
    int code = sd_journal_open_files(&file->handle, (const char **)(uintptr_t)paths, 0);
    if (code < 0) file->handle = NULL;
    for (size_t i = 0; code >= 0 && i < spec->match_count; i++)
        code = sd_journal_add_match(file->handle, spec->matches[i], strlen(spec->matches[i]));
    if (code >= 0)
        code = sd_journal_set_data_threshold(file->handle, REEF_SYSTEMD_MESSAGE_BYTES_MAX + 16);
    snprintf(cursor, sizeof(cursor), "s=%s;i=%" PRIx64, file->header.writer, last + 1);
    if (code >= 0) code = sd_journal_seek_cursor(file->handle, cursor);
    if (code < 0) reef_systemd_file_close(file);
    return code < 0 ? -code : 0;
}

void reef_systemd_file_close(reef_systemd_file *file) {
    if (file->handle != NULL) sd_journal_close(file->handle);
    file->handle = NULL;
    file->has_next = false;
}

// "s=ID;i=NUMBER;b=BOOT;m=MONOTONIC;t=REALTIME;x=HASH", numbers in hexadecimal digits
static bool read_place(reef_systemd_place *out, sd_journal *handle) {
    char *cursor = NULL;
    if (sd_journal_get_cursor(handle, &cursor) < 0) return false;
    const bool good =
        sscanf(cursor, "s=%*32[0-9a-f];i=%" SCNx64 ";b=%32[0-9a-f];m=%" SCNx64 ";t=%" SCNx64,
               &out->number, out->boot, &out->monotonic_us, &out->realtime_us) == 4;
    free(cursor);
    return good;
}

int reef_systemd_file_next(reef_systemd_file *file) {
    uint64_t bytes = 0;
    if (file->has_next || file->has_ended) return 0;
    const int code = sd_journal_next(file->handle);
    if (code < 0) return -code;
    if (code == 0) {
        // libsystemd drops a damaged file without a word, and its handle has no file any more.
        if (sd_journal_get_usage(file->handle, &bytes) >= 0 && bytes == 0) return EBADMSG;
        file->has_ended = true;
        file->ended = file->header.tail;
        return 0;
    }
    file->has_next = read_place(&file->next, file->handle);
    if (file->has_next) file->seen = file->next.number;
    return file->has_next ? 0 : EBADMSG;
}
