// An incident in Alertmanager's words; see alarms_internal.h.
//
// Labels are the same when an incident begins and when it has ended, as they name the alert. What
// is shown of it may change.
#include "alarms_internal.h"

#include "reef_json_build.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FIRING_SECONDS 604800 // an alert whose end never comes is over after so long
#define NEVER "0001-01-01T00:00:00Z"

static const char *text_of(const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : "";
}

static json_t *time_json(double seconds) {
    char text[sizeof("2026-11-30T17:20:00Z") + 16] = NEVER;
    time_t whole = (time_t)seconds;
    struct tm utc;
    if (gmtime_r(&whole, &utc) != NULL)
        (void)strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
    return json_string(text);
}

static json_t *labels_json(const alarm_delivery *delivery) {
    char host[256] = "", number[32];
    (void)gethostname(host, sizeof(host) - 1);
    snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT,
             json_integer_value(json_object_get(delivery->incident, "incident")));
    return json_pack("{s:s, s:s, s:s, s:s, s:s}", "alertname", "ReefIncident", "incident", number,
                     "instance", host, "pool", text_of(delivery->incident, "pool"), "severity",
                     delivery->severity);
}

// "word in shop.log, 3 lines; and 2 more"
static json_t *annotations_json(const json_t *incident) {
    const json_t *events = json_object_get(incident, "events"), *first = json_array_get(events, 0);
    const json_int_t lines = json_integer_value(json_object_get(first, "count")),
                     more = (json_int_t)json_array_size(events) - 1 +
                            json_integer_value(json_object_get(incident, "more_events"));
    char what[64], rest[48] = "";
    const char *file = text_of(first, "file"), *source = text_of(first, "source");
    snprintf(what, sizeof(what), ", %" JSON_INTEGER_FORMAT " line%s", lines, lines == 1 ? "" : "s");
    if (more > 0) snprintf(rest, sizeof(rest), "; and %" JSON_INTEGER_FORMAT " more", more);
    return json_pack("{s:s, s:s++++, s:s}", "summary", text_of(incident, "title"), "description",
                     text_of(first, "sort"), " in ", file[0] != '\0' ? file : source, what, rest,
                     "source", source);
}

static bool has_ended(const json_t *incident) {
    return strcmp(text_of(incident, "state"), "open") != 0;
}

static json_t *alert_of(const alarm_delivery *delivery) {
    const json_t *incident = delivery->incident;
    const double first = json_number_value(json_object_get(incident, "first_time"));
    const double last = json_number_value(json_object_get(incident, "last_time"));
    return json_pack("{s:o, s:o, s:o, s:o}", "labels", labels_json(delivery), "annotations",
                     annotations_json(incident), "startsAt", time_json(first), "endsAt",
                     time_json(has_ended(incident) ? last : (double)time(NULL) + FIRING_SECONDS));
}

// As template.Data of Alertmanager, which its documents call the web hook's version 4.
static json_t *receivers_json(const alarm_delivery *delivery) {
    const char *status = has_ended(delivery->incident) ? "resolved" : "firing";
    char group[80], fingerprint[24];
    const json_int_t number = json_integer_value(json_object_get(delivery->incident, "incident"));
    snprintf(group, sizeof(group),
             "{}:{alertname=\"ReefIncident\", incident=\"%" JSON_INTEGER_FORMAT "\"}", number);
    snprintf(fingerprint, sizeof(fingerprint), "%016" JSON_INTEGER_FORMAT, number);
    json_t *alert = alert_of(delivery);
    reef_json_set(&alert, "status", json_string(status));
    reef_json_set(&alert, "generatorURL", json_string(""));
    reef_json_set(&alert, "fingerprint", json_string(fingerprint));
    if (!has_ended(delivery->incident)) reef_json_set(&alert, "endsAt", json_string(NEVER));
    json_t *labels = json_object_get(alert, "labels");
    return json_pack("{s:s, s:s, s:i, s:s, s:s, s:{s:s}, s:O, s:O, s:s, s:[o]}", "version", "4",
                     "groupKey", group, "truncatedAlerts", 0, "status", status, "receiver", "reef",
                     "groupLabels", "alertname", "ReefIncident", "commonLabels", labels,
                     "commonAnnotations", json_object_get(alert, "annotations"), "externalURL", "",
                     "alerts", alert);
}

json_t *alert_json(const alarm_delivery *delivery, bool for_receiver) {
    return for_receiver ? receivers_json(delivery) : json_pack("[o]", alert_of(delivery));
}
