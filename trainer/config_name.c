// A field of a configuration by its name, or the one that was probably meant.
#include "config.h"

#include <assert.h>
#include <string.h>

#define NAME_BYTES_MAX 32 // with the final zero; longer names match none and suggest none

// d-model and d_model are the same name.
static char name_letter(char letter) {
    return letter == '-' ? '_' : letter;
}

static const reef_config_field *find(const char *name) {
    size_t count;
    const reef_config_field *fields = reef_config_fields(&count);
    for (size_t i = 0; i < count; i++) {
        size_t at = 0;
        while (name[at] != '\0' && name_letter(name[at]) == fields[i].name[at]) at++;
        if (name[at] == '\0' && fields[i].name[at] == '\0') return &fields[i];
    }
    return NULL;
}

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

// Letters to insert, remove or replace to get from one name to the other (Levenshtein).
static size_t name_distance(const char *name, const char *other) {
    size_t row[NAME_BYTES_MAX];
    size_t columns = strlen(other);
    assert(columns < NAME_BYTES_MAX);
    for (size_t j = 0; j <= columns; j++) row[j] = j;
    for (size_t i = 0; name[i] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < columns; j++) {
            size_t replace = diagonal + (name_letter(name[i]) == other[j] ? 0 : 1);
            diagonal = row[j + 1];
            row[j + 1] = least(replace, least(row[j], diagonal) + 1);
        }
    }
    return row[columns];
}

reef_status reef_config_name_unknown(const char *name, reef_error *err) {
    size_t count, distance_min = SIZE_MAX;
    const reef_config_field *fields = reef_config_fields(&count), *closest = NULL;
    for (size_t i = 0; i < count && strlen(name) < NAME_BYTES_MAX; i++) {
        size_t distance = name_distance(name, fields[i].name);
        if (distance >= distance_min) continue;
        distance_min = distance;
        closest = &fields[i];
    }
    // A suggestion that shares less than half of the letters is no help.
    if (!closest || distance_min > (strlen(name) + 1) / 2)
        return reef_fail(err, REEF_INVALID, "no setting is called '%.64s'", name);
    return reef_fail(err, REEF_INVALID, "no setting is called '%.64s'; did you mean %s?", name,
                     closest->name);
}

reef_status reef_config_set(reef_config *config,
                            const char *name,
                            const char *value,
                            reef_error *err) {
    const reef_config_field *field = find(name);
    if (!field) return reef_config_name_unknown(name, err);
    return reef_config_field_set(config, field, value, err);
}
