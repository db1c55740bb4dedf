// What a file is by its first bytes; see text_kind.h.
#include "text_kind.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES_MIN 64 // shorter first lines are not judged alone
// Control characters of which text has none: so many, and of so many bytes one.
#define CONTROLS_MIN 8
#define BYTES_PER_CONTROL 20

static const struct {
    const char *magic;
    size_t bytes;
    const char *kind;
} MAGIC[] = {
    {"\x1f\x8b", 2, "packed by gzip"},
    {"\x28\xb5\x2f\xfd", 4, "packed by zstd"},
    {"\xfd"
     "7zXZ\0",
     6, "packed by xz"},
    {"\x04\x22\x4d\x18", 4, "packed by lz4"},
    {"PK\x03\x04", 4, "a zip archive"},
    {"LPKSHHRH", 8, "a file of systemd's journal"},
    {"\x7f"
     "ELF",
     4, "a program"},
};

static bool is_bzip2(const uint8_t *bytes, size_t count) {
    return count >= 10 && memcmp(bytes, "BZh", 3) == 0 && memcmp(bytes + 4, "1AY&SY", 6) == 0;
}

static bool is_control(uint8_t byte) {
    // Tabs, ends of lines and pages, bells, and the escapes of terminals stand in logs.
    return (byte < 32 && strchr("\a\b\t\n\v\f\r\x1b", byte) == NULL) || byte == 127;
}

static size_t zeros_at(const uint8_t *bytes, size_t count) {
    size_t zeros = 0;
    while (zeros < count && !bytes[zeros]) zeros++;
    return zeros;
}

// Up to the first newline behind LINE_BYTES_MIN, or SIZE_MAX.
static size_t judged_bytes(const uint8_t *bytes, size_t count) {
    for (size_t i = LINE_BYTES_MIN; i < count; i++)
        if (bytes[i] == '\n') return i;
    return count >= REEF_TEXT_HEAD_BYTES ? REEF_TEXT_HEAD_BYTES : SIZE_MAX;
}

const char *reef_text_kind(const uint8_t *bytes, size_t count, bool whole, bool *decided) {
    *decided = true;
    for (size_t i = 0; i < sizeof(MAGIC) / sizeof(*MAGIC); i++)
        if (count >= MAGIC[i].bytes && memcmp(bytes, MAGIC[i].magic, MAGIC[i].bytes) == 0)
            return MAGIC[i].kind;
    if (is_bzip2(bytes, count)) return "packed by bzip2";
    size_t judged = judged_bytes(bytes, count), controls = 0;
    // Short lines that wait for no others are given as they come.
    *decided = whole || judged != SIZE_MAX || memchr(bytes, '\n', count) != NULL;
    if (judged == SIZE_MAX) judged = count;
    size_t others = 0;
    for (size_t i = 0, zeros; i < judged; i += zeros ? zeros : 1) {
        zeros = zeros_at(bytes + i, judged - i);
        if (zeros >= REEF_ZEROS_MIN) continue;
        if (zeros || is_control(bytes[i]))
            controls += zeros ? zeros : 1;
        else
            others++;
    }
    bool binary = controls >= CONTROLS_MIN && controls > others / BYTES_PER_CONTROL;
    return *decided && binary ? "no text" : NULL;
}

const char *reef_text_kind_of(const char *path) {
    uint8_t head[REEF_TEXT_HEAD_BYTES];
    bool decided = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return NULL;
    ssize_t count = pread(fd, head, sizeof(head), 0);
    close(fd);
    return count > 0 ? reef_text_kind(head, (size_t)count, true, &decided) : NULL;
}

const char *reef_text_advice(const char *name) {
    static const char *const LOGINS[] = {"wtmp", "btmp", "utmp", "lastlog"};
    const char *journal = "; --source journal: reads what it tells";
    for (size_t i = 0; i < sizeof(LOGINS) / sizeof(*LOGINS); i++)
        if (strncmp(name, LOGINS[i], strlen(LOGINS[i])) == 0) return journal;
    return strstr(name, ".journal") != NULL ? journal : "";
}
