// Commands and their answers; see routes.h. Parsing is strict: a misspelt argument that was
// silently ignored could freeze the wrong experts for good.
#include "reef_client.h"
#include "reef_pool_json.h"
#include "reef_watch_json.h"
#include "routes.h"
#include "status.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef reef_status (*argument_reader)(reef_request *request, json_t *object, reef_error *err);

// All members beside the command's name, as of json_unpack. Strict: an argument that is not known
// is a mistake of the caller, not something to ignore.
static reef_status take(json_t *object, reef_error *err, const char *format, ...) {
    json_error_t why;
    json_t *name = json_incref(json_object_get(object, "command"));
    (void)json_object_del(object, "command");
    va_list arguments;
    va_start(arguments, format);
    int failed = json_vunpack_ex(object, &why, JSON_STRICT, format, arguments);
    va_end(arguments);
    reef_status status = failed ? reef_fail(err, REEF_ERR_INVALID, "command '%s': %s",
                                            json_string_value(name), why.text)
                                : REEF_OK;
    json_decref(name);
    return status;
}

static reef_status read_nothing(reef_request *request, json_t *object, reef_error *err) {
    (void)request;
    return take(object, err, "{}");
}

static reef_status read_seal(reef_request *request, json_t *object, reef_error *err) {
    const char *dtype = NULL;
    reef_status status = take(object, err, "{s?s}", "seal_dtype", &dtype);
    if (status != REEF_OK || dtype == NULL) return status;
    // The word is checked against the field's own list, so there is one list of types.
    reef_config config; // only to learn whether it is a value of the field
    reef_config_default(&config);
    status = reef_config_set(&config, "seal_dtype", dtype, err);
    // The request keeps the canonical form of the word.
    if (status == REEF_OK)
        snprintf(request->order.seal_dtype, sizeof(request->order.seal_dtype), "%s",
                 reef_config_word(&config, "seal_dtype"));
    return status;
}

static reef_status read_grow(reef_request *request, json_t *object, reef_error *err) {
    json_int_t side = 0;
    reef_status status = take(object, err, "{s:I}", "side", &side);
    if (status != REEF_OK) return status;
    if (side < 1 || side > UINT32_MAX)
        return reef_fail(err, REEF_ERR_INVALID, "side %" JSON_INTEGER_FORMAT " is out of bounds",
                         side);
    request->order.number = (uint32_t)side;
    return REEF_OK;
}

static reef_status read_freeze(reef_request *request, json_t *object, reef_error *err) {
    // Defaults mean all layers and all experts.
    json_int_t layer = -1, first = 0, last = REEF_FREEZE_TO_END;
    double quantile = 0;
    int thaw = 0, dry_run = 0;
    reef_status status =
        take(object, err, "{s?I, s?I, s?I, s?F, s?b, s?b}", "layer", &layer, "first", &first,
             "last", &last, "usage_above", &quantile, "thaw", &thaw, "dry_run", &dry_run);
    if (status != REEF_OK) return status;
    if (layer < -1 || layer >= REEF_LAYER_COUNT_MAX)
        return reef_fail(err, REEF_ERR_INVALID, "there is no layer %" JSON_INTEGER_FORMAT, layer);
    if (first < 0 || last < first)
        return reef_fail(err, REEF_ERR_INVALID,
                         "ids %" JSON_INTEGER_FORMAT " to %" JSON_INTEGER_FORMAT " is not a range",
                         first, last);
    // Negated, so that NaN is refused too.
    if (!(quantile >= 0 && quantile < 1))
        return reef_fail(err, REEF_ERR_INVALID, "usage_above %g is not in [0, 1)", quantile);
    request->order.freeze = (reef_freeze){.layer = (int32_t)layer,
                                          .first = (uint64_t)first,
                                          .last = (uint64_t)last,
                                          .usage_above = quantile,
                                          .thaw = thaw != 0,
                                          .dry_run = dry_run != 0};
    return REEF_OK;
}

static reef_status read_thaw(reef_request *request, json_t *object, reef_error *err) {
    reef_status status = read_freeze(request, object, err);
    request->order.freeze.thaw = true;
    return status;
}

static reef_status keep_name(reef_request *request,
                             const char *whose,
                             const char *name,
                             reef_error *err) {
    if (strlen(name) > REEF_NAME_BYTES_MAX)
        return reef_fail(err, REEF_ERR_INVALID,
                         "the %s's name has %zu bytes, at most %d are allowed", whose, strlen(name),
                         REEF_NAME_BYTES_MAX);
    snprintf(request->order.name, sizeof(request->order.name), "%s", name);
    return REEF_OK;
}

static reef_status read_kind_name(reef_request *request, json_t *object, reef_error *err) {
    const char *name = NULL;
    json_int_t kind = 0;
    int dry_run = 0;
    reef_status status =
        take(object, err, "{s:I, s:s, s?b}", "kind", &kind, "name", &name, "dry_run", &dry_run);
    request->order.dry_run = dry_run != 0;
    if (status != REEF_OK) return status;
    if (kind < 0 || kind >= REEF_GENERATION_COUNT_MAX)
        return reef_fail(err, REEF_ERR_INVALID, "there is no kind %" JSON_INTEGER_FORMAT, kind);
    request->order.number = (uint32_t)kind;
    return keep_name(request, "kind", name, err);
}

static reef_status read_decide(reef_request *request, json_t *object, reef_error *err) {
    const char *decision = NULL;
    json_int_t incident = 0, for_s = 0;
    reef_crew_order *order = &request->order;
    reef_status status = take(object, err, "{s:I, s:s, s?I}", "incident", &incident, "decision",
                              &decision, "for_s", &for_s);
    if (status != REEF_OK) return status;
    if (incident < 1)
        return reef_fail(err, REEF_ERR_INVALID, "there is no incident %" JSON_INTEGER_FORMAT,
                         incident);
    status = reef_decision_read(&order->decision, decision, for_s, err);
    if (status != REEF_OK) return status;
    order->incident = (uint64_t)incident;
    order->for_s = (uint64_t)for_s;
    return REEF_OK;
}

// What is out of its bounds is refused by the watch.
static reef_status read_watch(reef_request *request, json_t *object, reef_error *err) {
    reef_watch_options *watch = &request->order.watch;
    json_int_t whole[3] = {0};
    uint32_t *const to[] = {&watch->gap_s, &watch->quiet_s, &watch->forget_days};
    reef_status status = take(object, err, "{s?F, s?I, s?I, s?I}", "budget", &watch->budget,
                              "gap_s", &whole[0], "quiet_s", &whole[1], "forget_days", &whole[2]);
    for (size_t i = 0; status == REEF_OK && i < 3; i++) {
        *to[i] = (uint32_t)whole[i];
        if (whole[i] < 0 || whole[i] > UINT32_MAX)
            status = reef_fail(err, REEF_ERR_INVALID, "%" JSON_INTEGER_FORMAT " is out of bounds",
                               whole[i]);
    }
    return status;
}

static reef_status read_prune(reef_request *request, json_t *object, reef_error *err) {
    json_int_t keep_last = 0;
    int dry_run = 0;
    reef_status status =
        take(object, err, "{s:I, s?b}", "keep_last", &keep_last, "dry_run", &dry_run);
    if (status != REEF_OK) return status;
    if (keep_last < 1 || keep_last > REEF_GENERATION_COUNT_MAX)
        return reef_fail(err, REEF_ERR_INVALID,
                         "command 'prune': keep_last %" JSON_INTEGER_FORMAT " is not 1 to %u",
                         keep_last, REEF_GENERATION_COUNT_MAX);
    request->order.number = (uint32_t)keep_last;
    request->order.dry_run = dry_run != 0;
    return REEF_OK;
}

static reef_status read_snapshot(reef_request *request, json_t *object, reef_error *err) {
    const char *name = NULL;
    reef_status status = take(object, err, "{s:s}", "name", &name);
    return status == REEF_OK ? keep_name(request, "snapshot", name, err) : status;
}

static reef_status read_snapshot_remove(reef_request *request, json_t *object, reef_error *err) {
    json_t *names = NULL, *item;
    size_t i;
    reef_status status = take(object, err, "{s:o}", "names", &names);
    if (status != REEF_OK) return status;
    if (json_array_size(names) == 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "command 'snapshot_remove': names is not a list of snapshots' names");
    // All names are checked before memory is made or anything is removed.
    json_array_foreach(names, i, item) {
        size_t bytes = json_string_length(item); // 0 if it is not text
        if (bytes == 0 || bytes > REEF_NAME_BYTES_MAX)
            return reef_fail(err, REEF_ERR_INVALID,
                             "command 'snapshot_remove': name %zu is not a text of 1 to %d bytes",
                             i + 1, REEF_NAME_BYTES_MAX);
    }
    // Names travel by value: the request outlives this JSON object.
    request->names = calloc(json_array_size(names), sizeof(*request->names));
    if (request->names == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the request");
    json_array_foreach(names, i, item)
        snprintf(request->names[i], sizeof(*request->names), "%s", json_string_value(item));
    request->name_count = json_array_size(names);
    return REEF_OK;
}

static const struct {
    const char *name;
    reef_command_kind kind;
    reef_request_kind request; // of REEF_COMMAND_TRAINER and REEF_COMMAND_SERVICE
    reef_crew_kind order;      // of REEF_REQUEST_ORDER
    argument_reader read;
} COMMANDS[] = {
#define ORDER REEF_COMMAND_TRAINER, REEF_REQUEST_ORDER
    {"status", REEF_COMMAND_STATUS, 0, 0, read_nothing},
    {"commit", REEF_COMMAND_TRAINER, REEF_REQUEST_COMMIT, 0, read_nothing},
    {"seal", ORDER, REEF_CREW_SEAL, read_seal},
    {"grow", ORDER, REEF_CREW_GROW, read_grow},
    {"freeze", ORDER, REEF_CREW_FREEZE, read_freeze},
    {"thaw", ORDER, REEF_CREW_FREEZE, read_thaw},
    {"kind_name", ORDER, REEF_CREW_KIND_NAME, read_kind_name},
    {"incident", ORDER, REEF_CREW_DECIDE, read_decide},
    {"watch", ORDER, REEF_CREW_WATCH, read_watch},
    {"prune", ORDER, REEF_CREW_PRUNE, read_prune},
    {"snapshot", ORDER, REEF_CREW_SNAPSHOT, read_snapshot},
    {"snapshot_remove", ORDER, REEF_CREW_SNAPSHOT_REMOVE, read_snapshot_remove},
    {"pause", REEF_COMMAND_TRAINER, REEF_REQUEST_PAUSE, 0, read_nothing},
    {"resume", REEF_COMMAND_TRAINER, REEF_REQUEST_RESUME, 0, read_nothing},
    {"drain", REEF_COMMAND_TRAINER, REEF_REQUEST_DRAIN, 0, read_nothing},
    {"reload", REEF_COMMAND_SERVICE, REEF_REQUEST_RELOAD, 0, read_nothing},
    {"stop", REEF_COMMAND_STOP, 0, 0, read_nothing},
#undef ORDER
};

static reef_status fail_unknown(const char *name, reef_error *err) {
    char known[sizeof(err->message)];
    size_t used = 0;
    // The message is cut where it does not fit an error; the list of today does.
    for (size_t i = 0; i < sizeof(COMMANDS) / sizeof(*COMMANDS) && used < sizeof(known); i++)
        used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", i > 0 ? ", " : "",
                                 COMMANDS[i].name);
    return reef_fail(err, REEF_ERR_INVALID, "unknown command '%.40s': known are %s", name, known);
}

static reef_status parse_object(reef_command *command, json_t *object, reef_error *err) {
    const char *name = json_string_value(json_object_get(object, "command"));
    if (name == NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "the request names no command: {\"command\": \"status\"}");
    for (size_t i = 0; i < sizeof(COMMANDS) / sizeof(*COMMANDS); i++) {
        if (strcmp(name, COMMANDS[i].name) != 0) continue;
        command->kind = COMMANDS[i].kind;
        command->request.kind = COMMANDS[i].request;
        command->request.order.kind = COMMANDS[i].order;
        return COMMANDS[i].read(&command->request, object, err);
    }
    return fail_unknown(name, err);
}

reef_status reef_command_parse(reef_command *command,
                               const char *text,
                               size_t bytes,
                               reef_error *err) {
    *command = (reef_command){0};
    json_error_t why;
    // Duplicate keys are refused: which of the two counted would be a guess.
    json_t *object = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
    reef_status status = REEF_OK;
    if (object == NULL)
        status = reef_fail(err, REEF_ERR_INVALID, "the request is not JSON: %s", why.text);
    else if (!json_is_object(object))
        status = reef_fail(err, REEF_ERR_INVALID, "the request is not a JSON object");
    else
        status = parse_object(command, object, err);
    // Parsers copy what they keep.
    json_decref(object);
    return status;
}

// ---- answers ------------------------------------------------------------------------------------

static json_t *removal_json(const reef_request *request) {
    json_t *names = json_array();
    for (size_t i = 0; i < request->name_count; i++)
        json_array_append_new(names, reef_json_text(request->names[i]));
    return json_pack("{s:o}", "removed", names);
}

static json_t *freeze_json(const reef_request *request) {
    const reef_freeze *asked = &request->order.freeze;
    return json_pack("{s:I, s:b, s:b}", "changed", (json_int_t)request->done.changed, "thaw",
                     asked->thaw, "dry_run", asked->dry_run);
}

static json_t *kind_name_json(const reef_crew_order *asked) {
    return json_pack("{s:I, s:s?, s:b}", "kind", (json_int_t)asked->number, "name",
                     asked->name[0] ? asked->name : NULL, "dry_run", asked->dry_run);
}

static json_t *decide_json(const reef_request *request) {
    return json_pack("{s:I, s:s, s:I}", "incident", (json_int_t)request->order.incident, "decision",
                     reef_decision_name(request->order.decision), "types",
                     (json_int_t)request->done.types);
}

static json_t *prune_json(const reef_request *request) {
    const reef_pruning *done = &request->done.pruning;
    return json_pack("{s:I, s:I, s:I, s:b}", "states", (json_int_t)done->states, "visits",
                     (json_int_t)done->visits, "bytes", (json_int_t)done->bytes, "dry_run",
                     request->order.dry_run);
}

static void set_sealing(json_t *object, const reef_sealing *sealing) {
    json_object_set_new(object, "sealed", reef_json_count(sealing->generation));
    json_object_set_new(object, "dtype", json_string(reef_rows_dtype_text(sealing->dtype)));
    json_object_set_new(object, "loss_bytes", reef_json_count(sealing->loss_bytes));
    json_object_set_new(object, "loss_before", reef_json_number(sealing->loss_before));
    json_object_set_new(object, "loss_after", reef_json_number(sealing->loss_after));
}

static json_t *generation_json(const reef_request *request) {
    json_t *object = json_pack("{s:I}", "generation", (json_int_t)request->trainer.generation);
    if (request->order.kind == REEF_CREW_GROW)
        json_object_set_new(object, "side", reef_json_count(request->order.number));
    if (request->order.kind == REEF_CREW_SEAL) set_sealing(object, &request->done.sealing);
    json_object_set_new(object, "experts", reef_json_count(request->trainer.experts));
    json_object_set_new(object, "experts_open", reef_json_count(request->trainer.experts_open));
    return object;
}

static json_t *order_json(const reef_request *request) {
    switch (request->order.kind) {
    case REEF_CREW_SNAPSHOT_REMOVE:
        return removal_json(request);
    case REEF_CREW_FREEZE:
        return freeze_json(request);
    case REEF_CREW_KIND_NAME:
        return kind_name_json(&request->order);
    case REEF_CREW_DECIDE:
        return decide_json(request);
    case REEF_CREW_WATCH:
        return reef_watch_options_json(&request->done.watch);
    case REEF_CREW_PRUNE:
        return prune_json(request);
    default:
        return generation_json(request);
    }
}

static json_t *result_json(const reef_request *request) {
    // Built by the service; the reply takes a reference of its own.
    if (request->kind == REEF_REQUEST_RELOAD) return json_incref(request->result);
    if (request->kind != REEF_REQUEST_ORDER) return reef_commit_view_json(&request->last);
    if (request->order.kind == REEF_CREW_SNAPSHOT)
        return reef_snapshot_json(&request->done.snapshot);
    json_t *object = order_json(request);
    json_object_set_new(object, "last_commit", reef_commit_view_json(&request->last));
    return object;
}

json_t *reef_command_result(const reef_request *request) {
    json_t *result = result_json(request);
    json_object_set_new(result, "waited_ms", reef_json_number(request->waited_ms));
    return result;
}

// ---- without a daemon ---------------------------------------------------------------------------

reef_status reef_command_run(reef_trainer *trainer,
                             json_t *object,
                             json_t **result,
                             reef_error *err) {
    reef_command command = {0};
    reef_request *request = &command.request;
    *result = NULL;
    reef_status status = parse_object(&command, object, err);
    if (status == REEF_OK && request->kind != REEF_REQUEST_ORDER)
        status = reef_fail(err, REEF_ERR_INVALID, "only a daemon can do that");
    if (status == REEF_OK)
        status = reef_crew_do(NULL, trainer, &request->order, request->names,
                              request->name_count * sizeof(*request->names), &request->done, err);
    if (status == REEF_OK) {
        reef_trainer_status_read(trainer, &request->trainer);
        *result = result_json(request);
        if (*result == NULL) status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a reply");
    }
    reef_request_release(request);
    return status;
}
