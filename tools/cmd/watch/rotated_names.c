// See rotated_names.h.
#include "rotated_names.h"

#include <string.h>

#define NUMBER_DIGITS_MAX 3 // logrotate keeps so many files at most, in practice

static bool is_digit(char byte) {
    return byte >= '0' && byte <= '9';
}

static uint64_t value_of(const char *text, size_t count) {
    uint64_t value = 0;
    for (size_t i = 0; i < count; i++)
        if (is_digit(text[i])) value = value * 10 + (uint64_t)(text[i] - '0');
    return value;
}

static bool is_date(uint64_t year, uint64_t month, uint64_t day) {
    return year >= 1990 && year <= 2199 && month >= 1 && month <= 12 && day >= 1 && day <= 31;
}

// 20261130, 2026113014, 2026-11-30, 2026-11-30-14, 1796040000
static bool is_moment(const char *text, size_t count) {
    const bool dashes = count >= 10 && text[4] == '-' && text[7] == '-';
    const size_t day_end = dashes ? 10 : 8;
    for (size_t i = 0; i < count; i++) {
        const bool may_be_dash = dashes ? i == 4 || i == 7 || i == 10 : i == 8;
        if (!is_digit(text[i]) && !may_be_dash) return false;
    }
    if (count == 10 && !dashes && text[0] == '1' && is_digit(text[8])) return true; // since 1970
    if (count != day_end && count != day_end + 2 && count != day_end + 3) return false;
    return is_date(value_of(text, 4), value_of(text + (dashes ? 5 : 4), 2),
                   value_of(text + (dashes ? 8 : 6), 2));
}

size_t reef_path_without_gz(const char *path) {
    size_t count = strlen(path);
    while (count > 3 && memcmp(path + count - 3, ".gz", 3) == 0 && path[count - 4] != '/')
        count -= 3;
    return count;
}

reef_rotation reef_rotation_read(const char *path) {
    const size_t end = reef_path_without_gz(path);
    const reef_rotation none = {REEF_ROTATION_NONE, end, 0};
    // A date may have dashes: the longest that is one.
    for (size_t bytes = 13; bytes >= 8; bytes--) {
        if (end < bytes + 2) continue;
        const size_t at = end - bytes;
        if ((path[at - 1] == '-' || path[at - 1] == '.') && path[at - 2] != '/' &&
            is_moment(path + at, bytes))
            return (reef_rotation){REEF_ROTATION_DATE, at - 1, value_of(path + at, bytes)};
    }
    size_t at = end;
    while (at > 0 && is_digit(path[at - 1])) at--;
    if (at == end || end - at > NUMBER_DIGITS_MAX || at < 2 || path[at - 1] != '.' ||
        path[at - 2] == '/' || (path[at] == '0' && end - at > 1))
        return none;
    return (reef_rotation){REEF_ROTATION_NUMBER, at - 1, value_of(path + at, end - at)};
}

bool reef_rotation_can_be_of(const char *path, size_t name_bytes) {
    return name_bytes > 0 && !is_digit(path[name_bytes - 1]);
}
