// The smallest program that uses an installed Reef: the loss of a text as of now.
#include <reef_trainer.h>

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    reef_error err = {.message = "usage: loss POOL TEXT"};
    reef_store *store = NULL;
    reef_model *model = NULL;
    reef_score score = {0};
    reef_status status = argc == 3 ? REEF_OK : REEF_INVALID;
    if (status == REEF_OK)
        status = reef_store_open(&store, argv[1], &(reef_store_options){0}, &err);
    if (status == REEF_OK)
        status = reef_model_open(&model, store, NULL, &(reef_model_options){.threads = 1}, &err);
    if (status == REEF_OK)
        status = reef_model_score(model, (const uint8_t *)argv[2], strlen(argv[2]), NULL, &score,
                                  NULL, NULL, &err);
    if (status == REEF_OK)
        printf("%.3f bits per byte\n", score.bits_per_byte);
    else
        fprintf(stderr, "loss: %s\n", err.message);
    reef_model_close(model);
    reef_store_close(store);
    return reef_status_exit_code(status);
}
