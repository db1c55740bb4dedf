// reef branch: the open generation begins as a copy of a sealed one.
#include "cli_format.h"
#include "cli_transport.h"
#include "commands.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

const reef_cli_manual reef_branch_manual = {
    .about =
        "The open generation, which must have trained "
        "nothing yet (seal it first), begins as a copy of a\n"
        "sealed one: its experts, sub-keys, queries and corrections. "
        "The sealed one stays as it is, and so\n"
        "does what the pool computes, to the bit, "
        "until the copy has learned something. Where one byte may\n"
        "be answered by several generations the copy begins silent, so that nothing counts twice.",
    .options = NULL,
    .example = "reef seal reef.pool\n"
               "reef branch reef.pool 2 --dry-run\n"
               "reef branch reef.pool 2",
};

static reef_status branch(reef_trainer *trainer,
                          json_t *arguments,
                          json_t **result,
                          reef_error *err) {
    reef_branch made;
    // The request was made by this program, so its members are there and have their types.
    uint32_t from = (uint32_t)json_integer_value(json_object_get(arguments, "from"));
    bool dry_run = json_is_true(json_object_get(arguments, "dry_run"));
    reef_status status = reef_trainer_branch(trainer, from, dry_run, &made, err);
    if (status == REEF_OK) // as the daemon answers
        // The same members as the daemon's reply, because reply_branch reads both.
        *result =
            json_pack("{s:I, s:I, s:I, s:b, s:I}", "from", (json_int_t)made.from, "generation",
                      (json_int_t)made.generation, "side", (json_int_t)made.side, "whole",
                      made.whole, "experts", (json_int_t)made.experts);
    return status;
}

static reef_status read_number(const char *text, uint32_t *out, reef_error *err) {
    char *end = NULL;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    bool number = text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0;
    *out = (uint32_t)value;
    if (number && value < REEF_GENERATION_COUNT_MAX) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "'%.40s' is not a generation; reef generations lists them, such as 0", text);
}

static reef_status reply_branch(reef_cli_call *cli, const json_t *result, reef_error *err) {
    static const char *const MEMBERS[] = {"from", "generation", "side", "whole", "experts"};
    json_int_t numbers[5];
    // A member is passed on as it came, so that both ways give one document.
    json_t *document = json_pack("{s:b}", "done", !cli->dry_run);
    for (size_t i = 0; i < 5; i++) {
        json_t *member = json_object_get(result, MEMBERS[i]);
        numbers[i] = json_integer_value(member);
        json_object_set(document, MEMBERS[i], member);
    }
    bool whole = json_is_true(json_object_get(result, "whole"));
    if (cli->json) return reef_cli_reply(cli, document, err);
    json_decref(document);
    char words[CLI_WORD_BYTES];
    const char *begins = cli->dry_run ? "would begin" : "begins";
    // The side is that of each PEER layer; the count is over all of them.
    printf("generation %" JSON_INTEGER_FORMAT " %s as a copy of generation %" JSON_INTEGER_FORMAT
           ": %s experts, %" JSON_INTEGER_FORMAT " x %" JSON_INTEGER_FORMAT " in each PEER layer\n",
           numbers[1], begins, numbers[0], reef_cli_count((uint64_t)numbers[4], words), numbers[2],
           numbers[2]);
    // A whole copy would add to every byte that its source answers, so it waits until it has
    // trained. A silent one adds zero until it learns.
    printf("%s\n", whole ? "it continues from what that one computes, "
                           "and answers nothing before it has trained"
                         : "it begins silent, with w_up = 0: both may answer the same byte");
    return REEF_OK;
}

reef_status reef_cmd_branch(reef_cli_call *cli, reef_error *err) {
    uint32_t from;
    json_t *result = NULL;
    reef_status status = read_number(cli->operands[0], &from, err);
    if (status != REEF_OK) return status;
    json_t *request = json_pack("{s:s, s:I, s:b}", "command", "branch", "from", (json_int_t)from,
                                "dry_run", cli->dry_run);
    status = reef_cli_change(cli, request, branch, &result, err);
    if (status == REEF_OK) status = reply_branch(cli, result, err);
    json_decref(result);
    return status;
}
