// Real files of systemd's journal, written by systemd-journal-remote from its export format. A
// helper that cannot do its work fails the test.
#ifndef JOURNAL_FILE_H
#define JOURNAL_FILE_H

#include "test.h"

#include <inttypes.h>

typedef struct journal_file {
    FILE *remote; // what it reads
    uint64_t count;
    unsigned boot; // of what is added
} journal_file;

/** Add to a file, which is made if there is none. Its name ends with ".journal". */
static inline void journal_begin(journal_file *file, const char *path) {
    char line[700];
    snprintf(line, sizeof(line), "/lib/systemd/systemd-journal-remote -o '%s' - 2>/dev/null", path);
    file->remote = popen(line, "w");
    assert_non_null(file->remote);
}

/** One entry; `fields` are lines, NAME=VALUE, each with its newline. `message` may be NULL. */
static inline void journal_add(journal_file *file,
                               uint64_t realtime_us,
                               const char *fields,
                               const void *message,
                               size_t bytes) {
    uint8_t size[8];
    for (size_t i = 0; i < sizeof(size); i++) size[i] = (uint8_t)((uint64_t)bytes >> 8 * i);
    fprintf(file->remote,
            "__REALTIME_TIMESTAMP=%" PRIu64 "\n__MONOTONIC_TIMESTAMP=%" PRIu64
            "\n_BOOT_ID=%032x\n%s",
            realtime_us, ++file->count, file->boot + 1, fields);
    if (message != NULL && bytes == 0) { // the other form cannot have it
        fputs("MESSAGE=\n", file->remote);
    } else if (message != NULL) {
        fputs("MESSAGE\n", file->remote);
        fwrite(size, 1, sizeof(size), file->remote);
        fwrite(message, 1, bytes, file->remote);
        fputc('\n', file->remote);
    }
    fputc('\n', file->remote);
}

/** All of it is on the disk afterwards. */
static inline void journal_end(journal_file *file) {
    assert_int_equal(pclose(file->remote), 0);
}

#endif
