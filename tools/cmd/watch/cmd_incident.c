// reef incident: what rang in the logs that a pool watches, and what a person says of it.
#include "cli.h"
#include "cli_pool.h"
#include "cli_transport.h"
#include "commands.h"
#include "incident_view.h"
#include "reef_timeline_json.h"
#include "reef_watch.h"
#include "time_span.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LIST_EVENTS 2
#define LIST_DEFAULT 20

static const reef_cli_option OPTIONS[] = {
    {"last", "N", "list so many of the last ones (20)"},
    {"for", "TIME", "with mute: for so long (7d), by the times of lines"},
    {NULL, NULL, NULL}};

const reef_cli_manual reef_incident_manual = {
    .about =
        "A pool that was made with --watch true judges each line before it is learned. What was "
        "new\n"
        "and rare enough rang: `list` has the last ones, `show` one with all that is kept of it.\n"
        "\n"
        "normal  what it shows is as it should be: its types of lines never ring again\n"
        "mute    they do not ring for a while\n"
        "fault   they ring each time they come, however often they came\n"
        "\n"
        "budget  so many incidents a day may ring from now on (5/day), such as 2/day\n"
        "gap     events nearer to each other are one incident (60s), such as 5m\n"
        "quiet   a source is judged once nothing new came for so long (1h), or after a day\n"
        "forget  what did not come for so long is new again (30d), such as 8w\n"
        "\n"
        "What is said last holds. It is part of the pool's state, and an event of its timeline.",
    .options = OPTIONS,
    .example = "reef incident logs.pool list\n"
               "reef incident logs.pool show 1\n"
               "reef incident logs.pool mute 1 --for 3d\n"
               "reef incident logs.pool normal 1\n"
               "reef incident logs.pool budget 2/day",
};

static reef_status read_incidents(const reef_cli_call *cli, json_t *list, reef_error *err) {
    reef_cli_pool pool;
    reef_txn *txn = NULL;
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    if (status == REEF_OK) status = reef_txn_begin(&txn, pool.store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_incidents_json(txn, list, err);
    reef_txn_abort(txn);
    if (status == REEF_OK && !pool.config.watch)
        status = reef_fail(
            err, REEF_ERR_INVALID,
            "pool %s watches no lines: reef init POOL --watch true makes one that does", cli->pool);
    reef_cli_pool_close(&pool);
    return status;
}

static reef_status list_incidents(reef_cli_call *cli, reef_error *err) {
    uint64_t last = LIST_DEFAULT;
    json_t *list = json_array();
    reef_status status = reef_cli_integer(cli, "last", 1, 100000, &last, err);
    if (status == REEF_OK) status = read_incidents(cli, list, err);
    const size_t count = json_array_size(list), from = count > last ? count - (size_t)last : 0;
    json_t *shown = json_array();
    for (size_t i = from; i < count; i++) json_array_append(shown, json_array_get(list, i));
    if (status == REEF_OK && cli->json) {
        status = reef_cli_reply(cli, json_pack("{s:O}", "incidents", shown), err);
    } else if (status == REEF_OK) {
        for (size_t i = from; i < count; i++)
            reef_incident_print(json_array_get(list, i), LIST_EVENTS, reef_cli_colours());
        if (count == 0) printf("nothing has rung\n");
        if (from > 0)
            printf("%s earlier %s: --last %zu shows all\n", CLI_COUNT(from),
                   from == 1 ? "one" : "ones", count);
    }
    json_decref(shown);
    json_decref(list);
    return status;
}

static reef_status read_number(const reef_cli_call *cli, json_int_t *out, reef_error *err) {
    const char *text = cli->operand_count > 1 ? cli->operands[1] : "";
    char *end;
    errno = 0;
    *out = strtoll(text[0] == '#' ? text + 1 : text, &end, 10);
    if (errno == 0 && end != text && *end == '\0' && *out > 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID, "%s needs the number of an incident, such as 7",
                     cli->operands[0]);
}

static reef_status show_incident(reef_cli_call *cli, reef_error *err) {
    json_int_t number;
    size_t index;
    json_t *one, *found = NULL, *list = json_array();
    reef_status status = read_number(cli, &number, err);
    if (status == REEF_OK) status = read_incidents(cli, list, err);
    json_array_foreach(list, index, one) if (json_integer_value(json_object_get(one, "incident")) ==
                                             number) found = one;
    if (status == REEF_OK && found == NULL)
        status =
            reef_fail(err, REEF_ERR_NOT_FOUND, "no incident %" JSON_INTEGER_FORMAT " rang", number);
    else if (status == REEF_OK && cli->json)
        status = reef_cli_reply(cli, json_incref(found), err);
    else if (status == REEF_OK)
        reef_incident_print(found, SIZE_MAX, reef_cli_colours());
    json_decref(list);
    return status;
}

static reef_status decide(reef_cli_call *cli, reef_error *err) {
    const char *decision = cli->operands[0];
    const bool mutes = strcmp(decision, "mute") == 0;
    json_int_t number;
    json_t *result = NULL;
    uint32_t for_s = mutes ? 7 * 86400 : 0;
    reef_status status = read_number(cli, &number, err);
    if (status == REEF_OK && !mutes && reef_cli_text(cli, "for") != NULL)
        status = reef_fail(err, REEF_ERR_INVALID, "--for goes with mute");
    if (status == REEF_OK) status = reef_time_span_read(cli, "for", &for_s, err);
    if (status != REEF_OK) return status;
    json_t *request = json_pack("{s:s, s:I, s:s}", "command", "incident", "incident", number,
                                "decision", decision);
    if (mutes) json_object_set_new(request, "for_s", json_integer(for_s));
    status = reef_cli_change(cli, request, &result, err);
    if (status == REEF_OK && cli->json)
        status = reef_cli_reply(cli,
                                json_pack("{s:b, s:I, s:s, s:I, s:I}", "done", 1, "incident",
                                          number, "decision", decision, "for_s", (json_int_t)for_s,
                                          "types", (json_int_t)reef_cli_count_of(result, "types")),
                                err);
    else if (status == REEF_OK)
        printf("incident %" JSON_INTEGER_FORMAT " is %s: %s of its types of lines\n", number,
               mutes ? "muted" : decision, CLI_COUNT(reef_cli_count_of(result, "types")));
    json_decref(result);
    return status;
}

static reef_status read_seconds(
    const char *what, const char *text, uint32_t most, json_t *request, reef_error *err) {
    uint32_t seconds = 0;
    reef_status status = reef_time_span_parse(what, text, &seconds, err);
    if (status == REEF_OK && seconds > most)
        status = reef_fail(err, REEF_ERR_INVALID, "%s %s: at most %ud", what, text, most / 86400);
    char *member = reef_cli_format("%s_s", what);
    json_object_set_new(request, member, json_integer(seconds));
    free(member);
    return status;
}

static reef_status read_change(const char *what,
                               const char *text,
                               json_t *request,
                               reef_error *err) {
    double budget = 0.0;
    uint32_t days = 0;
    reef_status status = REEF_OK;
    if (strcmp(what, "gap") == 0)
        return read_seconds(what, text, REEF_WATCH_GAP_S_MAX, request, err);
    if (strcmp(what, "quiet") == 0)
        return read_seconds(what, text, REEF_WATCH_QUIET_S_MAX, request, err);
    if (strcmp(what, "forget") == 0) {
        status = reef_days_parse(what, text, &days, err);
        json_object_set_new(request, "forget_days", json_integer(days));
        return status;
    }
    status = reef_budget_parse(what, text, &budget, err);
    json_object_set_new(request, "budget", json_real(budget));
    return status;
}

static reef_status reply_changed(reef_cli_call *cli, const json_t *result, reef_error *err) {
    static const char *const MEMBERS[] = {"budget", "gap_s", "quiet_s", "forget_days"};
    json_t *reply = json_pack("{s:b}", "done", 1);
    for (size_t i = 0; i < sizeof(MEMBERS) / sizeof(*MEMBERS); i++)
        json_object_set(reply, MEMBERS[i], json_object_get(result, MEMBERS[i]));
    return reef_cli_reply(cli, reply, err);
}

static reef_status change_watch(reef_cli_call *cli, reef_error *err) {
    json_t *result = NULL, *request = json_pack("{s:s}", "command", "watch");
    reef_status status =
        read_change(cli->operands[0], cli->operand_count > 1 ? cli->operands[1] : "", request, err);
    if (status == REEF_OK && reef_cli_text(cli, "for") != NULL)
        status = reef_fail(err, REEF_ERR_INVALID, "--for goes with mute");
    if (status != REEF_OK) {
        json_decref(request);
        return status;
    }
    status = reef_cli_change(cli, request, &result, err);
    const double budget = reef_cli_real_of(result, "budget");
    const uint64_t days = reef_cli_count_of(result, "forget_days");
    if (status == REEF_OK && cli->json)
        status = reply_changed(cli, result, err);
    else if (status == REEF_OK)
        printf("%g incident%s a day may ring; events less than %s apart are one\n"
               "a source is judged once nothing new came for %s; what did not come for %s day%s is "
               "new again\n",
               budget, budget == 1.0 ? "" : "s", CLI_DURATION(reef_cli_real_of(result, "gap_s")),
               CLI_DURATION(reef_cli_real_of(result, "quiet_s")), CLI_COUNT(days),
               days == 1 ? "" : "s");
    json_decref(result);
    return status;
}

reef_status reef_cmd_incident(reef_cli_call *cli, reef_error *err) {
    const char *verb = cli->operand_count > 0 ? cli->operands[0] : "list";
    if (strcmp(verb, "list") == 0) return list_incidents(cli, err);
    if (strcmp(verb, "show") == 0) return show_incident(cli, err);
    if (strcmp(verb, "normal") == 0 || strcmp(verb, "mute") == 0 || strcmp(verb, "fault") == 0)
        return decide(cli, err);
    if (strcmp(verb, "budget") == 0 || strcmp(verb, "gap") == 0 || strcmp(verb, "quiet") == 0 ||
        strcmp(verb, "forget") == 0)
        return change_watch(cli, err);
    return reef_fail(err, REEF_ERR_INVALID,
                     "%s is none of list, show, normal, mute, fault, budget, gap, quiet and forget",
                     verb);
}
