// One delivery over HTTP, by libcurl; see alarms_internal.h.
//
// A URL that ends as Alertmanager's own does gets alerts as Prometheus sends them; every other gets
// what Alertmanager sends to receivers of web hooks.
#include "alarms_internal.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALERTS_PATH "/api/v2/alerts"
#define SAID_BYTES 120
#define ANSWER_BYTES_MAX (1u << 20) // a longer answer is not read to its end

typedef struct answer {
    char said[SAID_BYTES]; // its beginning
    size_t said_bytes, bytes;
} answer;

static bool is_alertmanager(const char *url) {
    const size_t bytes = strcspn(url, "?#"), suffix = strlen(ALERTS_PATH);
    return bytes >= suffix && memcmp(url + bytes - suffix, ALERTS_PATH, suffix) == 0;
}

static size_t on_answer(char *data, size_t size, size_t count, void *context) {
    answer *a = context;
    const size_t bytes = size * count, room = SAID_BYTES - 1 - a->said_bytes;
    memcpy(a->said + a->said_bytes, data, bytes < room ? bytes : room);
    a->said_bytes += bytes < room ? bytes : room;
    a->bytes += bytes;
    return a->bytes <= ANSWER_BYTES_MAX ? bytes : 0; // 0 ends it
}

static int on_progress(
    void *context, curl_off_t to_come, curl_off_t came, curl_off_t to_go, curl_off_t went) {
    const alarm_delivery *delivery = context;
    (void)to_come, (void)came, (void)to_go, (void)went;
    return delivery->give_up != NULL && delivery->give_up(delivery->context); // not 0 ends it
}

// What it says of a request that it does not take, and will not take later either.
static bool is_refused(long code) {
    return code == 400 || code == 413 || code == 422;
}

static reef_status outcome(CURLcode code, long http, answer *a, const char *why, reef_error *err) {
    if (code == CURLE_ABORTED_BY_CALLBACK)
        return reef_fail(err, REEF_ERR_BUSY, "the alarm hook was stopped");
    // With a code of success the alarm was taken, however long the answer is.
    if (http >= 200 && http < 300) return REEF_OK;
    if (code != CURLE_OK && code != CURLE_WRITE_ERROR)
        return reef_fail(err, REEF_ERR_IO, "the alarm hook cannot be reached: %s",
                         why[0] != '\0' ? why : curl_easy_strerror(code));
    a->said[a->said_bytes] = '\0';
    a->said[strcspn(a->said, "\r\n")] = '\0';
    return reef_fail(err, is_refused(http) ? REEF_ERR_INVALID : REEF_ERR_IO,
                     "the alarm hook answered %ld%s%s", http, a->said[0] != '\0' ? ": " : "",
                     a->said);
}

static struct curl_slist *headers_of(const alarm_delivery *delivery) {
    char key[96];
    // A receiver can tell by it what it has already.
    snprintf(key, sizeof(key), "Idempotency-Key: reef-%" PRIu64, delivery->sequence);
    struct curl_slist *list = curl_slist_append(NULL, "Content-Type: application/json");
    struct curl_slist *more = list != NULL ? curl_slist_append(list, key) : NULL;
    if (more == NULL) curl_slist_free_all(list);
    return more;
}

static void set_up(CURL *curl, const alarm_delivery *delivery, const char *body, answer *a) {
    (void)curl_easy_setopt(curl, CURLOPT_URL, delivery->to);
    (void)curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)strlen(body));
    (void)curl_easy_setopt(curl, CURLOPT_USERAGENT, "reefd");
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L); // other threads run
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)ALARM_ATTEMPT_SECONDS);
    (void)curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)ALARM_ATTEMPT_SECONDS / 3);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_answer);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, a);
    (void)curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    (void)curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    (void)curl_easy_setopt(curl, CURLOPT_XFERINFODATA, (void *)(uintptr_t)delivery);
}

reef_status alarm_hook(const alarm_delivery *delivery, reef_error *err) {
    char why[CURL_ERROR_SIZE] = "";
    answer a = {.said_bytes = 0};
    long http = 0;
    json_t *json = alert_json(delivery, !is_alertmanager(delivery->to));
    char *body = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
    struct curl_slist *headers = headers_of(delivery);
    CURL *curl = curl_easy_init();
    reef_status status;
    if (body == NULL || headers == NULL || curl == NULL) {
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for an alarm");
    } else {
        set_up(curl, delivery, body, &a);
        (void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
        (void)curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
        CURLcode code = curl_easy_perform(curl);
        (void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &http);
        status = outcome(code, http, &a, why, err);
    }
    curl_easy_cleanup(curl);
    curl_slist_free_all(headers);
    free(body);
    json_decref(json);
    return status;
}
