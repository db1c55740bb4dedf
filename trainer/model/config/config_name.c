// A field of a configuration by its name, or the one that was probably meant.
#include "config_internal.h"
#include "reef_edit_distance.h"

#include <string.h>

#define NAME_BYTES_MAX 32 // with the final zero; longer names match none and suggest none

// d-model and d_model are the same name; fields are written with the second. False when it is too long for one.
static bool write_as_field(const char *name, char out[NAME_BYTES_MAX]) {
    size_t bytes = strlen(name);
    if (bytes >= NAME_BYTES_MAX) return false;
    for (size_t i = 0; i <= bytes; i++) out[i] = name[i] == '-' ? '_' : name[i];
    return true;
}

static const reef_config_field *find(const char *name) {
    size_t count;
    const reef_config_field *fields = reef_config_fields(&count);
    char written[NAME_BYTES_MAX];
    if (!write_as_field(name, written)) return NULL;
    for (size_t i = 0; i < count; i++)
        if (strcmp(written, fields[i].name) == 0) return &fields[i];
    return NULL;
}

reef_status reef_config_name_unknown(const char *name, reef_error *err) {
    // A suggestion that shares less than half of the letters is no help.
    size_t count, nearest = (strlen(name) + 1) / 2 + 1;
    const reef_config_field *fields = reef_config_fields(&count), *closest = NULL;
    char written[NAME_BYTES_MAX];
    bool fits = write_as_field(name, written);
    for (size_t i = 0; fits && i < count; i++) {
        size_t distance = reef_word_distance(written, fields[i].name);
        if (distance >= nearest) continue;
        nearest = distance;
        closest = &fields[i];
    }
    if (!closest) return reef_fail(err, REEF_ERR_INVALID, "no setting is called '%.64s'", name);
    return reef_fail(err, REEF_ERR_INVALID, "no setting is called '%.64s'; did you mean %s?", name,
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
