// The text of a configuration, which gives back the same bits, and its record in a pool.
#include "config_internal.h"

#include "reef_json_build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FLOAT_DIGITS_MAX 9 // decimal digits that tell any two floats apart

// The double of the fewest digits that still rounds to `number`, so that 0.002f is written 0.002.
static double shortest(float number) {
    double value = (double)number;
    for (int digits = 1; digits <= FLOAT_DIGITS_MAX; digits++) {
        char text[32];
        snprintf(text, sizeof(text), "%.*g", digits, (double)number);
        value = strtod(text, NULL);
        if ((float)value == number) break;
    }
    return value;
}

static json_t *field_json(const reef_config *config, const reef_config_field *field) {
    if (reef_config_field_is(field, REEF_FIELD_INTEGER))
        return json_integer((json_int_t)reef_config_field_integer(config, field));
    if (reef_config_field_is(field, REEF_FIELD_NUMBER))
        return json_real(shortest(reef_config_field_number(config, field)));
    if (reef_config_field_is(field, REEF_FIELD_BOOLEAN))
        return json_boolean(reef_config_field_boolean(config, field));
    return json_string(reef_config_field_text(config, field));
}

char *reef_config_format(const reef_config *config) {
    size_t count;
    const reef_config_field *fields = reef_config_fields(&count);
    json_t *object = json_object();
    for (size_t i = 0; i < count; i++)
        reef_json_set(&object, fields[i].name, field_json(config, &fields[i]));
    char *text = json_dumps(object, JSON_REAL_PRECISION(FLOAT_DIGITS_MAX)); // NULL of NULL
    json_decref(object);
    return text;
}

static reef_status field_parse(reef_config *config,
                               const reef_config_field *field,
                               const json_t *value,
                               reef_error *err) {
    if (reef_config_field_is(field, REEF_FIELD_INTEGER) && json_is_integer(value)) {
        // Jansson's integers are signed; no field is negative.
        json_int_t integer = json_integer_value(value);
        if (integer < 0)
            return reef_fail(err, REEF_ERR_INVALID,
                             "%s is %" JSON_INTEGER_FORMAT ", but must be %.0f to %.0f",
                             field->name, integer, field->low, field->high);
        return reef_config_field_set_integer(config, field, (uint64_t)integer, err);
    }
    // Integers are valid numbers, numbers are not valid integers.
    if (reef_config_field_is(field, REEF_FIELD_NUMBER) && json_is_number(value))
        return reef_config_field_set_number(config, field, json_number_value(value), err);
    if (reef_config_field_is(field, REEF_FIELD_BOOLEAN) && json_is_boolean(value))
        return reef_config_field_set(config, field, json_is_true(value) ? "true" : "false", err);
    if (reef_config_field_is(field, REEF_FIELD_TEXT) && json_is_string(value))
        return reef_config_field_set_text(config, field, json_string_value(value), err);
    return reef_fail(err, REEF_ERR_INVALID, "%s in the configuration is not %s %s", field->name,
                     reef_config_field_is(field, REEF_FIELD_INTEGER) ? "an" : "a", field->type);
}

static reef_status object_parse(reef_config *config, json_t *object, reef_error *err) {
    const char *name;
    json_t *value;
    size_t count;
    const reef_config_field *fields = reef_config_fields(&count);
    json_object_foreach(object, name, value) {
        bool known = false;
        // An unknown member is a typo, or a setting of a newer version that this one would ignore:
        // both must be seen.
        for (size_t i = 0; i < count; i++) known |= strcmp(name, fields[i].name) == 0;
        if (!known) return reef_config_name_unknown(name, err);
    }
    for (size_t i = 0; i < count; i++) {
        value = json_object_get(object, fields[i].name);
        if (value == NULL)
            return reef_fail(err, REEF_ERR_INVALID, "the configuration does not set %s",
                             fields[i].name);
        reef_status status = field_parse(config, &fields[i], value, err);
        if (status != REEF_OK) return status;
    }
    return reef_config_check(config, err);
}

reef_status reef_config_parse(reef_config *config,
                              const char *json,
                              size_t bytes,
                              reef_error *err) {
    json_error_t fault;
    reef_config parsed;
    reef_config_default(&parsed); // padding too: equal configurations are equal bytes
    json_t *object = json_loadb(json, bytes, JSON_REJECT_DUPLICATES, &fault);
    // Running out of memory is not an error of the text.
    if (object == NULL && reef_json_no_memory(&fault))
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the configuration");
    if (object == NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "the configuration is not JSON: %s at line %d, column %d", fault.text,
                         fault.line, fault.column);
    reef_status status =
        json_is_object(object)
            ? object_parse(&parsed, object, err)
            : reef_fail(err, REEF_ERR_INVALID, "the configuration is not a JSON object");
    json_decref(object);
    reef_config_reduce(&parsed);
    if (status == REEF_OK) *config = parsed; // untouched on failure
    return status;
}

reef_status reef_config_read(reef_txn *txn, reef_config *config, reef_error *err) {
    reef_view view;
    reef_key key = {.db = REEF_DB_META, .name = REEF_CONFIG_RECORD};
    reef_status status = reef_record_view(txn, &key, &view, err);
    if (status != REEF_OK) return status;
    return reef_config_parse(config, view.data, view.bytes, err);
}

reef_status reef_config_put(reef_txn *txn, const reef_config *config, reef_error *err) {
    char *text = reef_config_format(config);
    if (text == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the configuration");
    reef_key key = {.db = REEF_DB_META, .name = REEF_CONFIG_RECORD};
    reef_status status = reef_record_put(txn, &key, REEF_JSON, text, strlen(text), err);
    free(text);
    return status;
}
