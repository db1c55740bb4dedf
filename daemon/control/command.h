// The commands of POST /v1/command: from JSON to what is to be done, and from what was done to JSON.
// docs/PROTOCOL.md describes them.
#ifndef REEF_COMMAND_H
#define REEF_COMMAND_H

#include "reef_error.h"
#include "training_thread.h"

#include <jansson.h>
#include <stddef.h>

typedef enum reef_command_kind {
    REEF_COMMAND_STATUS,  // answered from a copy
    REEF_COMMAND_STOP,    // answered at once; the end follows
    REEF_COMMAND_TRAINER, // queued to the trainer, answered when done
    REEF_COMMAND_SERVICE, // handed to the service, answered when done
} reef_command_kind;

typedef struct reef_command {
    reef_command_kind kind;
    reef_request request; // of REEF_COMMAND_TRAINER and REEF_COMMAND_SERVICE
} reef_command;

/**
 * INVALID says what is wrong with the text; arguments that a command does not know are refused.
 * reef_request_release what it holds, after success.
 */
REEF_MUST_CHECK reef_status reef_command_parse(reef_command *command,
                                               const char *text,
                                               size_t bytes,
                                               reef_error *err);

/** What a request that was served without an error is answered with. */
json_t *reef_command_result(const reef_request *request);

#endif
