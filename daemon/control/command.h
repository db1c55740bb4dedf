// The commands of the control socket: from a line of JSON to what is to be done, and from what was
// done to a line of JSON. docs/PROTOCOL.md describes them; control_socket.c moves the lines.
#ifndef REEF_COMMAND_H
#define REEF_COMMAND_H

#include "push.h"
#include "reef_error.h"
#include "training_thread.h"

#include <jansson.h>
#include <stddef.h>

typedef enum reef_command_kind {
    REEF_COMMAND_STATUS,  // answered from a copy
    REEF_COMMAND_STOP,    // answered at once; the end follows
    REEF_COMMAND_TRAINER, // queued to the trainer, answered when done
    REEF_COMMAND_SERVICE, // handed to the service, answered when done
    REEF_COMMAND_INGEST,  // a batch for the journal, answered when it is there
} reef_command_kind;

typedef struct reef_command {
    reef_command_kind kind;
    reef_request request;   // of REEF_COMMAND_TRAINER and REEF_COMMAND_SERVICE
    reef_push_batch *batch; // of REEF_COMMAND_INGEST; the caller's after success
} reef_command;

/**
 * INVALID says what is wrong with the line; arguments that a command does not know are refused.
 * reef_request_release what it holds, after success.
 */
REEF_MUST_CHECK reef_status reef_command_parse(reef_command *command,
                                               const char *line,
                                               size_t bytes,
                                               reef_error *err);

/** The whole answer to a request that was served. */
json_t *reef_command_reply(const reef_request *request);

#endif
