// The settings of reefd, one row each; see settings_internal.h.
#include "settings_internal.h"

#include "redis_url.h"
#include "reef_log.h"
#include "reef_trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMMIT_STEPS_MAX 1000000000u
#define ORIGIN_BYTES_MAX 300

#define AT(member) offsetof(reef_options, member)
const setting reef_settings[] = {
    {"pool", SETTING_TEXT, AT(pool), false, 0, 0},
    {"source", SETTING_SOURCE, AT(sources), false, 0, 0},
    {"threads", SETTING_COUNT, AT(threads), false, 1, REEF_THREAD_COUNT_MAX},
    {"rows-memory", SETTING_MEMORY, AT(memory_bytes), false, 0, 0},
    {"pool-max", SETTING_RATE, AT(pool_max), true, 0, 0},
    {"snapshot-every", SETTING_PERIOD, AT(snapshot_every_ms), true, 0, 0},
    {"keep", SETTING_KEEP, AT(keep), true, 0, 0},
    {"commit-steps", SETTING_COUNT, AT(commit_steps), true, 0, COMMIT_STEPS_MAX},
    {"commit-seconds", SETTING_SECONDS, AT(commit_seconds), true, 0, 0},
    {"join-every", SETTING_RATE, AT(join_every), false, 0, 0},
    {"journal", SETTING_MEMORY, AT(journal_bytes), false, 0, 0},
    {"socket", SETTING_TEXT, AT(socket), false, 0, 0},
    {"http", SETTING_ADDRESS, AT(http), false, 0, 0},
    {"http-token", SETTING_TEXT, AT(http_token), false, 0, 0},
    {"alarm-exec", SETTING_TEXT, AT(alarm_exec), false, 0, 0},
    {"alarm-hook", SETTING_HOOK, AT(alarm_hook), false, 0, 0},
    {"stay", SETTING_SWITCH, AT(stay), false, 0, 0},
    {"json-log", SETTING_SWITCH, AT(json_log), true, 0, 0},
    {"quiet", SETTING_SWITCH, AT(quiet), true, 0, 0},
};
#define COUNT (sizeof(reef_settings) / sizeof(reef_settings[0]))
_Static_assert(COUNT <= REEF_SETTING_COUNT_MAX, "every setting has room for its origin");

// A struct's members lie where offsetof says.
void *reef_setting_field(reef_options *options, const setting *one) {
    return (char *)options + one->at;
}

static const void *value_of(const reef_options *options, const setting *one) {
    return (const char *)options + one->at;
}

size_t reef_setting_count(void) {
    return COUNT;
}

const char *reef_setting_name(size_t index) {
    return reef_settings[index].name;
}

bool reef_setting_is_live(size_t index) {
    return reef_settings[index].live;
}

static json_t *sources_json(const reef_options *options) {
    json_t *list = json_array();
    for (size_t i = 0; i < options->source_count; i++)
        json_array_append_new(list, reef_json_text(options->sources[i]));
    return list;
}

json_t *reef_setting_value(const reef_options *options, size_t index) {
    // The table stores offsets; the kind says what lies there.
    const setting *one = &reef_settings[index];
    const void *value = value_of(options, one);
    switch (one->kind) {
    case SETTING_TEXT:
    case SETTING_ADDRESS:
    case SETTING_HOOK:
    case SETTING_KEEP:
        return *(const char *const *)value != NULL ? reef_json_text(*(const char *const *)value)
                                                   : json_null();
    case SETTING_SOURCE:
        return sources_json(options);
    case SETTING_SECONDS:
        return reef_json_number(*(const double *)value);
    case SETTING_PERIOD: // in seconds as well
        return reef_json_count(*(const uint64_t *)value / 1000u);
    case SETTING_SWITCH:
        return json_boolean(*(const bool *)value);
    default:
        return reef_json_count(*(const uint64_t *)value);
    }
}

const char *reef_setting_origin(const reef_options *options, size_t index, char *out, size_t room) {
    // People ask where a value comes from: file and line, or flag.
    switch (options->origins[index].kind) {
    case REEF_ORIGIN_FILE:
        snprintf(out, room, "%s:%u", options->config, options->origins[index].line);
        break;
    case REEF_ORIGIN_FLAG:
        snprintf(out, room, "--%s", reef_settings[index].name);
        break;
    default:
        snprintf(out, room, "default");
    }
    return out;
}

// Who knows the path may send to many a receiver, so it is shown like a password.
static json_t *masked_hook(const char *url) {
    const char *host = strstr(url, "://");
    host = host != NULL ? host + 3 : url;
    const char *end = host + strcspn(host, "/?#"), *user = memchr(host, '@', (size_t)(end - host));
    if (user != NULL) host = user + 1;
    return json_sprintf("%.*s://%.*s/***", (int)strcspn(url, ":"), url, (int)(end - host), host);
}

static json_t *shown_value(const reef_options *options, size_t index) {
    json_t *value = reef_setting_value(options, index);
    if (reef_settings[index].kind == SETTING_HOOK && json_is_string(value)) {
        json_t *shown = masked_hook(json_string_value(value));
        json_decref(value);
        return shown;
    }
    for (size_t i = 0; i < json_array_size(value); i++) { // of sources only
        char *shown = reef_redis_url_mask(json_string_value(json_array_get(value, i)));
        json_array_set_new(value, i, shown != NULL ? json_string(shown) : json_null());
        free(shown);
    }
    return value;
}

json_t *reef_settings_json(const reef_options *options) {
    json_t *list = json_array();
    for (size_t i = 0; i < reef_setting_count(); i++) {
        char origin[ORIGIN_BYTES_MAX];
        json_array_append_new(
            list, json_pack("{s:s, s:o, s:o, s:b}", "name", reef_setting_name(i), "value",
                            shown_value(options, i), "origin",
                            reef_json_text(reef_setting_origin(options, i, origin, sizeof(origin))),
                            "live", reef_setting_is_live(i)));
    }
    return list;
}

static size_t kind_bytes(setting_kind kind) {
    return kind == SETTING_SWITCH ? sizeof(bool) : sizeof(uint64_t);
}
_Static_assert(sizeof(double) == sizeof(uint64_t), "a setting that may change has 8 bytes, or 1");

void reef_options_take_live(reef_options *options, const reef_options *from) {
    for (size_t i = 0; i < COUNT; i++) {
        if (!reef_settings[i].live) continue;
        memcpy(reef_setting_field(options, &reef_settings[i]), value_of(from, &reef_settings[i]),
               kind_bytes(reef_settings[i].kind));
        options->origins[i] = from->origins[i];
    }
}
