// A configuration file of reefd, as `reefd --config FILE` reads it. Input: the file.
#include "fuzz.h"
#include "reef_settings.h"

#include <assert.h>
#include <jansson.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char *file;
    static reef_options options; // large
    reef_error err;
    if (file == NULL) file = fuzz_path("reefd.ini");
    fuzz_write(file, data, size);
    char *arguments[] = {"reefd", "--config", file, NULL};
    reef_status status = reef_options_parse(&options, 3, arguments, &err);
    if (status != REEF_OK) fuzz_failure(status, &err);
    // What was accepted has a value and an origin for every setting.
    for (size_t i = 0; status == REEF_OK && i < reef_setting_count(); i++) {
        json_t *value = reef_setting_value(&options, i);
        assert(value && reef_setting_name(i));
        json_decref(value);
    }
    reef_options_release(&options);
    return 0;
}
