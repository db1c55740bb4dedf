// See time_span.h.
#include "time_span.h"
#include "cli_format.h"
#include "reef_moment.h"
#include "reef_watch.h"

#include <stdlib.h>
#include <string.h>

#define SECONDS_MAX 315360000u // ten years

reef_status reef_time_span_parse(const char *what,
                                 const char *text,
                                 uint32_t *out,
                                 reef_error *err) {
    const char *rest;
    uint64_t seconds;
    if (reef_span_parse(text, &rest, &seconds) && *rest == '\0' && seconds > 0 &&
        seconds <= SECONDS_MAX) {
        *out = (uint32_t)seconds;
        return REEF_OK;
    }
    return reef_fail(err, REEF_ERR_INVALID,
                     "%s %s: expected a time above 0 such as 60s, 5m, 1h or 30d, at most 3650d",
                     what, text);
}

reef_status reef_time_span_read(const reef_cli_call *cli,
                                const char *option,
                                uint32_t *out,
                                reef_error *err) {
    const char *text = reef_cli_text(cli, option);
    if (text == NULL) return REEF_OK;
    char *what = reef_cli_format("--%s", option);
    reef_status status = reef_time_span_parse(what, text, out, err);
    free(what);
    return status;
}

reef_status reef_days_parse(const char *what, const char *text, uint32_t *out, reef_error *err) {
    uint32_t seconds = 0;
    reef_status status = reef_time_span_parse(what, text, &seconds, err);
    if (status == REEF_OK && seconds % 86400 != 0)
        status = reef_fail(err, REEF_ERR_INVALID, "%s %s: whole days, at least 1d", what, text);
    if (status == REEF_OK) *out = seconds / 86400;
    return status;
}

reef_status reef_budget_parse(const char *what, const char *text, double *out, reef_error *err) {
    char *end;
    const double value = strtod(text, &end);
    const bool a_day = *end == '\0' || strcmp(end, "/day") == 0;
    if (end == text || !a_day || !(value > 0.0 && value <= REEF_WATCH_BUDGET_MAX))
        return reef_fail(err, REEF_ERR_INVALID,
                         "%s %s: expected incidents a day above 0, such as 5/day", what, text);
    *out = value;
    return REEF_OK;
}
