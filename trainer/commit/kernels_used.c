// Which arithmetic a pool was trained with last, of our kernels and of the matrix products: bits depend on it. Not
// part of the root hash.
#include "trainer_internal.h"

#include <stdio.h>
#include <string.h>

#define KERNELS_BYTES 64

static const reef_key kernels_key = {.db = REEF_DB_META, .name = "kernels"};

static void kernels_text(char out[KERNELS_BYTES]) {
    snprintf(out, KERNELS_BYTES, "%s %s", reef_kernels_name(), reef_gemm_name());
}

reef_status reef_kernels_put(reef_txn *txn, reef_error *err) {
    char text[KERNELS_BYTES];
    kernels_text(text);
    return reef_record_put(txn, &kernels_key, REEF_BYTES, text, strlen(text), err);
}

reef_status reef_kernels_compare(reef_trainer *trainer, reef_txn *txn, reef_error *err) {
    char now[KERNELS_BYTES];
    reef_view before;
    reef_status status = reef_record_view(txn, &kernels_key, &before, err);
    // Damaged it is as good as not there: every commit writes it anew, and reef verify tells of it.
    if (status == REEF_ERR_NOT_FOUND || status == REEF_ERR_CORRUPT) return REEF_OK;
    if (status != REEF_OK) return status;
    kernels_text(now);
    if (before.bytes == strlen(now) && memcmp(before.data, now, before.bytes) == 0) return REEF_OK;
    return reef_state_event(trainer, err, "kernels", "\"before\": \"%.*s\", \"now\": \"%s\"",
                            (int)before.bytes, (const char *)before.data, now);
}
