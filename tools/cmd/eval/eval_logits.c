// See eval_logits.h.
#include "eval_logits.h"

#include "cli_pool.h"
#include "npy_file.h"

#include <stdlib.h>

#define LOGITS_MAX ((size_t)1 << 28) // 1 GiB: of 1 MiB of bytes

static reef_status check_size(const reef_cli_call *cli,
                              const reef_cli_file *files,
                              reef_error *err) {
    // Bounded, because the array is kept in memory: 256 floats a byte.
    size_t most = LOGITS_MAX / REEF_VOCAB;
    // One array has one axis of tokens.
    if (cli->operand_count != 1)
        return reef_fail(err, REEF_ERR_INVALID,
                         "--logits is of one text, and %zu were given; name one of them",
                         cli->operand_count);
    if (files[0].count <= most) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "%.120s has %zu bytes, and --logits is of at most %zu; take its beginning",
                     files[0].path, files[0].count, most);
}

reef_status reef_eval_logits_write(const reef_cli_call *cli,
                                   reef_model *model,
                                   const reef_cli_file *files,
                                   reef_error *err) {
    const char *path = reef_cli_text(cli, "logits");
    reef_npy_file npy = {0};
    if (path == NULL) return REEF_OK;
    reef_status status = check_size(cli, files, err);
    if (status != REEF_OK) return status;
    size_t tokens = files[0].count, values = tokens * REEF_VOCAB;
    // A row for each token: the prediction made before it was read.
    float *logits = reef_cli_alloc(values, sizeof(*logits));
    const uint64_t shape[] = {tokens, REEF_VOCAB};
    status = reef_model_logits(model, files[0].bytes, files[0].count, logits, err);
    // 32-bit little-endian floats: the precision in which the model computes.
    if (status == REEF_OK) status = reef_npy_create(&npy, path, false, "<f4", 2, shape, err);
    if (status == REEF_OK) status = reef_npy_write(&npy, logits, values * sizeof(*logits), err);
    if (status == REEF_OK) status = reef_npy_finish(&npy, err);
    // Removes the incomplete file after a failure, and does nothing after success.
    reef_npy_abandon(&npy);
    free(logits);
    return status;
}
