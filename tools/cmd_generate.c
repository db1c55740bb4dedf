// reef generate: let the model continue a text.
#include "commands.h"

#include <stdlib.h>
#include <string.h>

#define BYTES_DEFAULT 256
#define BYTES_MAX (1u << 20)

static const cli_option OPTIONS[] = {
    {"prompt", "TEXT", "what to continue (default: a line end)"},
    {"bytes", "N", "bytes to generate (default: 256)"},
    {"temperature", "X", "0: always the most likely byte; 1: as learned (default: 0.8)"},
    {"top-p", "P", "draw from the likeliest bytes that hold this share (default: 0.95)"},
    {"seed", "N", "another seed, another text (default: 1)"},
    {"as-of", "STATE", "a generation, a snapshot, or now (default: now)"},
    {0},
};

const cli_manual generate_manual = {
    .about = "Prints the prompt and its continuation. Bytes that are not UTF-8 are written as "
             "\\xNN. The\n"
             "same seed gives the same text.",
    .options = OPTIONS,
    .example = "reef generate reef.pool --prompt 'The sea' --bytes 200\n"
               "reef generate reef.pool --prompt '#include' --as-of 1 --temperature 0.5",
};

typedef struct request {
    const char *prompt;
    uint64_t bytes, seed;
    double temperature, top_p;
} request;

static reef_status read_request(const cli_call *cli, request *r, reef_error *err) {
    *r = (request){.prompt = cli_text(cli, "prompt"),
                   .bytes = BYTES_DEFAULT,
                   .seed = 1,
                   .temperature = 0.8,
                   .top_p = 0.95};
    reef_status status = cli_integer(cli, "bytes", 1, BYTES_MAX, &r->bytes, err);
    if (status == REEF_OK) status = cli_integer(cli, "seed", 0, UINT64_MAX, &r->seed, err);
    if (status == REEF_OK) status = cli_number(cli, "temperature", 0, 100, &r->temperature, err);
    if (status == REEF_OK) status = cli_number(cli, "top-p", 1e-6, 1, &r->top_p, err);
    if (status == REEF_OK && r->prompt && r->prompt[0] == '\0')
        return reef_fail(err, REEF_INVALID,
                         "--prompt is empty: the model needs a byte to start from");
    if (!r->prompt) r->prompt = "\n";
    return status;
}

static reef_status answer(cli_call *cli, const request *r, const uint8_t *out, reef_error *err) {
    size_t prompt_bytes = strlen(r->prompt), count = (size_t)r->bytes;
    // Together, so that a character that the prompt begins and the model ends stays whole.
    uint8_t *all = cli_alloc(prompt_bytes + count, 1);
    memcpy(all, r->prompt, prompt_bytes);
    memcpy(all + prompt_bytes, out, count);
    char *text = cli_printable(all, prompt_bytes + count, true);
    free(all);
    reef_status status = REEF_OK;
    if (cli->json) {
        char *hex = cli_alloc(2 * count + 1, 1);
        for (size_t i = 0; i < count; i++) snprintf(hex + 2 * i, 3, "%02x", out[i]);
        char *prompt = cli_printable((const uint8_t *)r->prompt, prompt_bytes, true);
        const char *as_of = cli_text(cli, "as-of") ? cli_text(cli, "as-of") : "now";
        status =
            cli_answer(cli,
                       json_pack("{s:s, s:s, s:s, s:s, s:I}", "as_of", as_of, "prompt", prompt,
                                 "text", text, "generated_hex", hex, "bytes", (json_int_t)count),
                       err);
        free(prompt);
        free(hex);
    } else {
        puts(text);
    }
    free(text);
    return status;
}

reef_status cmd_generate(cli_call *cli, reef_error *err) {
    request r;
    cli_pool pool = {0};
    reef_model *model = NULL;
    uint8_t *out = NULL;

    reef_status status = read_request(cli, &r, err);
    if (status == REEF_OK) status = cli_pool_open(&pool, cli, err);
    if (status == REEF_OK)
        status = reef_model_open(&model, pool.store, cli_text(cli, "as-of"), cli->threads, err);
    if (status != REEF_OK) goto cleanup;

    out = cli_alloc((size_t)r.bytes, 1);
    reef_sampling sampling = {
        .seed = r.seed, .temperature = (float)r.temperature, .top_p = (float)r.top_p};
    status = reef_model_generate(model, (const uint8_t *)r.prompt, strlen(r.prompt),
                                 (size_t)r.bytes, &sampling, out, err);
    if (status == REEF_OK) status = answer(cli, &r, out, err);

cleanup:
    free(out);
    reef_model_close(model);
    cli_pool_close(&pool);
    return status;
}
