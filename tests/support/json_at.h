// JSON by paths of names and numbers, "files.0.bits". What is asked for and is not there, or is of
// another kind, fails the test.
#ifndef JSON_AT_H
#define JSON_AT_H

#include "test.h"

#include <jansson.h>

/** What stands at the path; NULL where nothing does. */
static inline json_t *json_at(const json_t *json, const char *path) {
    char name[128], *end;
    while (json != NULL && *path) {
        size_t length = strcspn(path, ".");
        assert_true(length < sizeof(name));
        memcpy(name, path, length);
        name[length] = '\0';
        size_t index = strtoul(name, &end, 10);
        json = json_is_array(json) && !*end ? json_array_get(json, index)
                                            : json_object_get(json, name);
        path += length + (path[length] == '.');
    }
    return (json_t *)(uintptr_t)json;
}

static inline json_int_t integer(const json_t *json, const char *path) {
    const json_t *value = json_at(json, path);
    if (!json_is_integer(value)) fail_msg("%s is not an integer", path);
    return json_integer_value(value);
}

static inline double number(const json_t *json, const char *path) {
    const json_t *value = json_at(json, path);
    if (!json_is_number(value)) fail_msg("%s is not a number", path);
    return json_number_value(value);
}

static inline const char *string(const json_t *json, const char *path) {
    const char *text = json_string_value(json_at(json, path));
    if (text == NULL) fail_msg("%s is not a string", path);
    return text;
}

static inline bool is_true(const json_t *json, const char *path) {
    const json_t *value = json_at(json, path);
    if (!json_is_boolean(value)) fail_msg("%s is neither true nor false", path);
    return json_is_true(value);
}

static inline bool is_null(const json_t *json, const char *path) {
    const json_t *value = json_at(json, path);
    if (value == NULL) fail_msg("%s is missing", path);
    return json_is_null(value);
}

/** Of an array. */
static inline size_t length(const json_t *json, const char *path) {
    const json_t *value = json_at(json, path);
    if (!json_is_array(value)) fail_msg("%s is not an array", path);
    return json_array_size(value);
}

/** One document, and nothing behind it; kept. */
static inline json_t *json_of_text(const char *text) {
    json_error_t fault;
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &fault);
    if (json == NULL) fail_msg("%s in: %s", fault.text, text);
    return keep(json);
}

#endif
