// reef generate: let the model continue a text.
#include "cli_format.h"
#include "cli_pool.h"
#include "commands.h"

#include <stdlib.h>
#include <string.h>

#define BYTES_DEFAULT 256
#define BYTES_MAX (1u << 20)
#define SHOWN_BYTES_MAX 200 // of a prompt that is a file

static const reef_cli_option OPTIONS[] = {
    {"prompt", "TEXT", "what to continue (default: a line end)"},
    {"prompt-file", "FILE", "continue this file instead; its last line is shown"},
    {"bytes", "N", "bytes to generate (default: 256)"},
    {"temperature", "X", "0: always the most likely byte; 1: as learned (default: 0.8)"},
    {"top-p", "P", "draw from the likeliest bytes that hold this share (default: 0.95)"},
    {"seed", "N", "another seed, another text (default: 1)"},
    CLI_OPTION_AS_OF,
    CLI_OPTION_FROZEN,
    {0},
};

const reef_cli_manual reef_generate_manual = {
    .about =
        "Prints the prompt and its continuation. Bytes that are not UTF-8 are written as \\xNN.\n"
        "The same seed gives the same text.",
    .options = OPTIONS,
    .example = "reef generate reef.pool --prompt 'The sea' --bytes 200\n"
               "reef generate reef.pool --prompt-file main.c --as-of 1 --temperature 0.5",
};

typedef struct request {
    reef_cli_file prompt;
    size_t shown; // from here on the prompt is printed
    uint64_t bytes, seed;
    double temperature, top_p;
    char as_of[REEF_NAME_BYTES_MAX + 1];
} request;

// The last line of a prompt, or its end where that line is long.
static size_t last_line(const reef_cli_file *prompt) {
    size_t at = prompt->count;
    while (at > 0 && prompt->count - at < SHOWN_BYTES_MAX &&
           (prompt->bytes[at - 1] != '\n' || at == prompt->count))
        at--;
    while (at < prompt->count && (prompt->bytes[at] & 0xc0) == 0x80) at++; // not inside a character
    return at;
}

static reef_status read_prompt(const reef_cli_call *cli, request *r, reef_error *err) {
    const char *text = reef_cli_text(cli, "prompt"), *path = reef_cli_text(cli, "prompt-file");
    if (text != NULL && path != NULL)
        return reef_fail(err, REEF_ERR_INVALID, "--prompt and --prompt-file exclude each other");
    if (path != NULL) {
        reef_status status = reef_cli_file_read(&r->prompt, path, err);
        if (status != REEF_OK) return status;
        // Only the prompt's last line is shown again; a long one would hide the answer.
        r->shown = last_line(&r->prompt);
    } else {
        // A model needs one byte to predict from: a newline is the most neutral.
        if (text == NULL) text = "\n";
        r->prompt = (reef_cli_file){.path = "--prompt", .count = strlen(text)};
        r->prompt.bytes = reef_cli_alloc(r->prompt.count, 1);
        memcpy(r->prompt.bytes, text, r->prompt.count);
    }
    if (r->prompt.count == 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%.160s is empty: the model needs a byte to start from", r->prompt.path);
    return REEF_OK;
}

static reef_status read_request(const reef_cli_call *cli, request *r, reef_error *err) {
    *r = (request){.bytes = BYTES_DEFAULT, .seed = 1, .temperature = 0.8, .top_p = 0.95};
    reef_status status = reef_cli_integer(cli, "bytes", 1, BYTES_MAX, &r->bytes, err);
    if (status == REEF_OK) status = reef_cli_integer(cli, "seed", 0, UINT64_MAX, &r->seed, err);
    if (status == REEF_OK)
        status = reef_cli_number(cli, "temperature", 0, 100, &r->temperature, err);
    if (status == REEF_OK) status = reef_cli_number(cli, "top-p", 1e-6, 1, &r->top_p, err);
    return status == REEF_OK ? read_prompt(cli, r, err) : status;
}

static reef_status reply_generate(reef_cli_call *cli,
                                  const request *r,
                                  const uint8_t *out,
                                  reef_error *err) {
    size_t shown = r->prompt.count - r->shown, count = (size_t)r->bytes;
    // One buffer, so that a character begun by the prompt and ended by the model stays whole.
    uint8_t *all = reef_cli_alloc(shown + count, 1);
    memcpy(all, r->prompt.bytes + r->shown, shown);
    memcpy(all + shown, out, count);
    char *text = reef_cli_printable(all, shown + count, true);
    free(all);
    if (!cli->json) {
        puts(text);
        free(text);
        return REEF_OK;
    }
    // Hexadecimal beside the text, in which \xNN may stand for itself.
    char *hex = reef_cli_alloc(2 * count + 1, 1);
    for (size_t i = 0; i < count; i++) snprintf(hex + 2 * i, 3, "%02x", out[i]);
    char *prompt = reef_cli_printable(r->prompt.bytes + r->shown, shown, true);
    json_t *document = json_pack("{s:s, s:s, s:s, s:s, s:I}", "as_of", r->as_of, "prompt", prompt,
                                 "text", text, "generated_hex", hex, "bytes", (json_int_t)count);
    free(prompt);
    free(hex);
    free(text);
    return reef_cli_reply(cli, document, err);
}

reef_status reef_cmd_generate(reef_cli_call *cli, reef_error *err) {
    request r = {0};
    reef_cli_pool pool = {0};
    reef_model *model = NULL;
    uint8_t *out = NULL;

    // Options are checked before the pool is opened: a typing mistake costs nothing.
    reef_status status = read_request(cli, &r, err);
    if (status == REEF_OK) status = reef_cli_pool_open(&pool, cli, err);
    if (status == REEF_OK) status = reef_cli_as_of(cli, pool.store, r.as_of, err);
    if (status == REEF_OK)
        // Its own read transaction: a commit of the daemon does not change the model while it runs.
        status = reef_cli_model_open(&model, cli, pool.store, r.as_of, err);
    if (status != REEF_OK) goto cleanup;

    out = reef_cli_alloc((size_t)r.bytes, 1);
    reef_sampling sampling = {
        .seed = r.seed, .temperature = (float)r.temperature, .top_p = (float)r.top_p};
    status = reef_model_generate(model, r.prompt.bytes, r.prompt.count, (size_t)r.bytes, &sampling,
                                 out, err);
    if (status == REEF_OK) status = reply_generate(cli, &r, out, err);

cleanup:
    free(out);
    reef_model_close(model);
    reef_cli_file_release(&r.prompt);
    reef_cli_pool_close(&pool);
    return status;
}
