// Commands: reef_command_parse, and the answers built from what it made.
#include "fuzz.h"
#include "reef_pool_json.h"
#include "routes.h"

#include <assert.h>
#include <stdlib.h>

// Whatever was quoted, an answer is JSON.
static void check_answer(json_t *answer) {
    char *text = json_dumps(answer, JSON_COMPACT);
    json_t *again = text != NULL ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    assert(json_is_object(again));
    json_decref(again);
    json_decref(answer);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    reef_command command;
    reef_error err;
    reef_status status = reef_command_parse(&command, (const char *)data, size, &err);
    if (status != REEF_OK) {
        assert(status == REEF_ERR_INVALID);
        fuzz_failure(status, &err);
        check_answer(reef_reply_error(&err));
        return 0;
    }
    assert(command.request.name_count == 0 || command.request.names);
    if (command.kind == REEF_COMMAND_TRAINER) check_answer(reef_command_result(&command.request));
    reef_request_release(&command.request);
    return 0;
}
