// See time_span.h.
#include "time_span.h"

#include <errno.h>
#include <stdlib.h>

#define SECONDS_MAX 315360000u // ten years

reef_status reef_time_span_read(const reef_cli_call *cli,
                                const char *option,
                                uint32_t *out,
                                reef_error *err) {
    static const struct {
        char unit;
        uint32_t seconds;
    } UNITS[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}, {'w', 604800}};
    const char *text = reef_cli_text(cli, option);
    if (text == NULL) return REEF_OK;
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    for (size_t i = 0; i < sizeof(UNITS) / sizeof(*UNITS); i++)
        if (end != text && *end == UNITS[i].unit && end[1] == '\0' && errno == 0 && *text != '-' &&
            value > 0 && value <= SECONDS_MAX / UNITS[i].seconds) {
            *out = (uint32_t)value * UNITS[i].seconds;
            return REEF_OK;
        }
    return reef_fail(err, REEF_ERR_INVALID,
                     "--%s %s: expected a time above 0 such as 60s, 5m, 1h or 30d", option, text);
}
