// See kind_names.h.
#include "kind_names.h"

#include "reef_json_build.h"
#include "reef_snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void reef_kind_names_release(reef_kind_names *names) {
    free(names->all);
    *names = (reef_kind_names){0};
}

const char *reef_kind_names_of(const reef_kind_names *names, uint32_t kind) {
    for (size_t i = 0; i < names->count; i++)
        if (names->all[i].kind == kind) return names->all[i].text;
    return "";
}

static void remove_at(reef_kind_names *names, size_t at) {
    names->count--;
    memmove(names->all + at, names->all + at + 1, (names->count - at) * sizeof(*names->all));
}

static reef_status insert(reef_kind_names *names,
                          uint32_t kind,
                          const char *text,
                          reef_error *err) {
    size_t at = 0;
    reef_kind_name *all = realloc(names->all, (names->count + 1) * sizeof(*all));
    if (all == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a kind's name");
    names->all = all;
    while (at < names->count && all[at].kind < kind) at++;
    memmove(all + at + 1, all + at, (names->count - at) * sizeof(*all));
    names->count++;
    all[at].kind = kind;
    snprintf(all[at].text, sizeof(all[at].text), "%s", text);
    return REEF_OK;
}

reef_status reef_kind_names_copy(reef_kind_names *out,
                                 const reef_kind_names *names,
                                 reef_error *err) {
    reef_status status = REEF_OK;
    *out = (reef_kind_names){0};
    for (size_t i = 0; status == REEF_OK && i < names->count; i++)
        status = insert(out, names->all[i].kind, names->all[i].text, err);
    if (status != REEF_OK) reef_kind_names_release(out);
    return status;
}

reef_status reef_kind_names_set(reef_kind_names *names,
                                uint32_t kind,
                                const char *text,
                                reef_error *err) {
    for (size_t i = names->count; i-- > 0;)
        if (names->all[i].kind == kind) remove_at(names, i);
    return text[0] == '\0' ? REEF_OK : insert(names, kind, text, err);
}

void reef_kind_names_shift(reef_kind_names *names, uint32_t kind, int by) {
    for (size_t i = 0; i < names->count; i++)
        if (names->all[i].kind >= kind) names->all[i].kind += (uint32_t)by;
}

// ---- the state ----------------------------------------------------------------------------------

void reef_kind_names_set_state(const reef_kind_names *names, json_t **state) {
    if (names->count == 0) return;
    json_t *list = json_array();
    for (size_t i = 0; i < names->count; i++)
        reef_json_append(&list,
                         json_pack("[I, s]", (json_int_t)names->all[i].kind, names->all[i].text));
    reef_json_set(state, "kind_names", list);
}

reef_status reef_kind_names_load(reef_kind_names *out, const json_t *state, reef_error *err) {
    const json_t *list = json_object_get(state, "kind_names");
    reef_status status = REEF_OK;
    *out = (reef_kind_names){0};
    for (size_t i = 0; status == REEF_OK && i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        json_int_t kind = json_integer_value(json_array_get(item, 0));
        const char *text = json_string_value(json_array_get(item, 1));
        if (kind < 0 || kind >= REEF_GENERATION_COUNT_MAX ||
            reef_kind_name_check(text, NULL) != REEF_OK)
            status = reef_fail(err, REEF_ERR_CORRUPT,
                               "the trainer's state has a malformed name of a kind");
        else
            status = insert(out, (uint32_t)kind, text, err);
    }
    if (status != REEF_OK) reef_kind_names_release(out);
    return status;
}

// ---- names --------------------------------------------------------------------------------------

reef_status reef_kind_name_check(const char *name, reef_error *err) {
    return reef_name_check(name, "a kind", "the kinds themselves", err);
}
