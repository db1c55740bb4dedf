// What `journal:` names: nothing, or options joined by '&'; see systemd_internal.h.
//
//   dir=PATH          files of this folder, such as those of other hosts
//   unit=NAME         _SYSTEMD_UNIT; ".service" is added to a name without a dot
//   identifier=NAME   SYSLOG_IDENTIFIER
//   priority=LEVEL    PRIORITY: this one (0 to 7, or its name) and the graver ones
//   FIELD=VALUE       any field by its own name, which is in capitals
#include "systemd_internal.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MATCHES_MAX 64
#define FIELD_BYTES_MAX 64 // of systemd

static const char *const LEVELS[] = {"emerg",   "alert",  "crit", "err",
                                     "warning", "notice", "info", "debug"};

static reef_status add_match(reef_systemd_spec *spec,
                             const char *field,
                             const char *value,
                             const char *end,
                             reef_error *err) {
    if (spec->match_count >= MATCHES_MAX)
        return reef_fail(err, REEF_ERR_INVALID, "journal: has more than %d matches", MATCHES_MAX);
    const size_t bytes = strlen(field) + strlen(value) + strlen(end) + 2;
    char *match = malloc(bytes);
    if (match == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a source");
    snprintf(match, bytes, "%s=%s%s", field, value, end);
    spec->matches[spec->match_count++] = match;
    return REEF_OK;
}

static reef_status add_levels(reef_systemd_spec *spec, const char *name, reef_error *err) {
    static const char *const DIGITS[] = {"0", "1", "2", "3", "4", "5", "6", "7"};
    const size_t count = sizeof(LEVELS) / sizeof(*LEVELS);
    size_t level = 0;
    while (level < count && strcmp(name, LEVELS[level]) != 0 && strcmp(name, DIGITS[level]) != 0)
        level++;
    if (level == count)
        return reef_fail(err, REEF_ERR_INVALID,
                         "priority '%.40s' is none: 0 to 7, or emerg, alert, crit, err, warning, "
                         "notice, info, debug",
                         name);
    reef_status status = REEF_OK;
    for (size_t i = 0; status == REEF_OK && i <= level; i++)
        status = add_match(spec, "PRIORITY", DIGITS[i], "", err);
    return status;
}

static reef_status set_folder(reef_systemd_spec *spec, const char *path, reef_error *err) {
    if (spec->folder != NULL)
        return reef_fail(err, REEF_ERR_INVALID, "journal: takes one dir, not several");
    // The pool knows a source by its text, wherever the daemon is started.
    if (path[0] != '/')
        return reef_fail(err, REEF_ERR_INVALID, "journal:dir='%.200s' is not an absolute path",
                         path);
    spec->folder = strdup(path);
    return spec->folder != NULL ? REEF_OK
                                : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a source");
}

static bool is_field(const char *name) {
    for (const char *at = name; *at; at++)
        if (!isupper((unsigned char)*at) && *at != '_' &&
            (at == name || !isdigit((unsigned char)*at)))
            return false;
    return *name && strlen(name) <= FIELD_BYTES_MAX;
}

static reef_status take_option(reef_systemd_spec *spec, char *option, reef_error *err) {
    char *value = strchr(option, '=');
    if (value == NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "journal: takes NAME=VALUE, such as unit=nginx.service, and not '%.80s'",
                         option);
    *value++ = '\0';
    if (!*value) return reef_fail(err, REEF_ERR_INVALID, "journal: %.80s needs a value", option);
    if (strcmp(option, "dir") == 0) return set_folder(spec, value, err);
    if (strcmp(option, "unit") == 0)
        return add_match(spec, "_SYSTEMD_UNIT", value, strchr(value, '.') ? "" : ".service", err);
    if (strcmp(option, "identifier") == 0)
        return add_match(spec, "SYSLOG_IDENTIFIER", value, "", err);
    if (strcmp(option, "priority") == 0) return add_levels(spec, value, err);
    if (is_field(option)) return add_match(spec, option, value, "", err);
    return reef_fail(err, REEF_ERR_INVALID,
                     "journal: does not know '%.80s': there are dir, unit, identifier, priority, "
                     "and fields by their own names, such as _UID=0",
                     option);
}

reef_status reef_systemd_spec_parse(reef_systemd_spec *out, const char *rest, reef_error *err) {
    *out = (reef_systemd_spec){.matches = calloc(MATCHES_MAX, sizeof(*out->matches))};
    char *text = strdup(rest), *option = text;
    reef_status status = text != NULL && out->matches != NULL
                             ? REEF_OK
                             : reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a source");
    while (status == REEF_OK && option != NULL && *text) {
        char *next = strchr(option, '&');
        if (next != NULL) *next++ = '\0';
        status = take_option(out, option, err);
        option = next;
    }
    free(text);
    if (status != REEF_OK) reef_systemd_spec_release(out);
    return status;
}

void reef_systemd_spec_release(reef_systemd_spec *spec) {
    for (size_t i = 0; i < spec->match_count; i++) free(spec->matches[i]);
    free(spec->matches);
    free(spec->folder);
    *spec = (reef_systemd_spec){0};
}
