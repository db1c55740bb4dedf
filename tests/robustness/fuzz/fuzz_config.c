// The configuration of a pool: as JSON, the way it lies in a pool (input begins with '{'), or as
// lines NAME=VALUE, the way it is given as options.
#include "fuzz.h"
#include "reef_trainer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES_MAX 4096

// What was accepted lies within bounds, and its text gives back the same bits.
static void check_accepted(const reef_config *config) {
    reef_error err;
    assert(reef_config_check(config, &err) == REEF_OK);
    char *text = reef_config_format(config), *same;
    reef_config again;
    assert(text != NULL);
    assert(reef_config_parse(&again, text, strlen(text), &err) == REEF_OK);
    same = reef_config_format(&again);
    assert(same && strcmp(text, same) == 0);
    free(same);
    free(text);
}

static void parse(const uint8_t *data, size_t size) {
    reef_config config;
    reef_error err;
    reef_status status = reef_config_parse(&config, (const char *)data, size, &err);
    if (status == REEF_OK)
        check_accepted(&config);
    else
        fuzz_failure(status, &err);
}

static void set_line(reef_config *config, char *line) {
    reef_error err;
    char *equals = strchr(line, '=');
    if (equals == NULL) return;
    *equals = 0;
    reef_status status = reef_config_set(config, line, equals + 1, &err);
    if (status != REEF_OK) fuzz_failure(status, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size && data[0] == '{') {
        parse(data, size);
        return 0;
    }
    reef_config config;
    reef_error err;
    char line[LINE_BYTES_MAX];
    reef_config_default(&config);
    for (size_t at = 0; at < size;) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        size_t bytes = end != NULL ? (size_t)(end - data) - at : size - at;
        if (bytes < sizeof(line)) {
            memcpy(line, data + at, bytes);
            line[bytes] = 0;
            set_line(&config, line);
        }
        at += bytes + 1;
    }
    if (reef_config_check(&config, &err) == REEF_OK) check_accepted(&config);
    return 0;
}
