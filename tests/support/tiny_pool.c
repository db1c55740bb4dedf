// See tiny_pool.h.
#include "tiny_pool.h"

#include "reef_snapshot.h"
#include "reef_trainer.h"
#include "test.h"

#define ENGLISH_BYTES 3000
#define C_BYTES 3000

char *tiny_text(const char *kind, size_t count) {
    static const char *const ENGLISH[] = {"the sea", "a reef",     "grows",
                                          "under",   "slow water", "and light"};
    static const char *const CODE[] = {"int i = 0;", "return x;", "if (a)",
                                       "{ }",        "x += 1;",   "for (;;)"};
    const char *const *words = strcmp(kind, "c") == 0 ? CODE : ENGLISH;
    char *text = keep(calloc(count + 16, 1));
    assert_non_null(text);
    unsigned draw = 7;
    for (size_t at = 0; at < count; at = strlen(text)) {
        draw = draw * 1103515245u + 12345u; // the generator of the C standard's example
        const char *word = words[draw / 65536 % 6];
        snprintf(text + at, count + 16 - at, "%s%c", word, draw / 65536 % 7 == 0 ? '\n' : ' ');
    }
    text[count] = '\0';
    return text;
}

static void check(reef_status status, const reef_error *err) {
    if (status != REEF_OK) fail_msg("%s", err->message);
}

static void feed(reef_trainer *trainer, const char *kind, size_t count) {
    reef_error err = {0};
    size_t taken = 0;
    char *text = tiny_text(kind, count);
    check(reef_trainer_feed(trainer, "test", (const uint8_t *)text, count, &taken, NULL, &err),
          &err);
    assert_int_equal(taken, count);
}

void tiny_pool_train(const char *path) {
    reef_error err = {0};
    reef_store *store = NULL;
    reef_trainer *trainer = NULL;
    reef_snapshot snapshot;
    reef_commit commit;
    reef_store_options options = {.write = true};
    reef_trainer_options trainer_options = {.threads = 1};
    check(reef_store_open(&store, path, &options, &err), &err);
    check(reef_trainer_open(&trainer, store, &trainer_options, &err), &err);
    feed(trainer, "english", ENGLISH_BYTES);
    check(reef_trainer_seal(trainer, NULL, NULL, &err), &err);
    feed(trainer, "c", C_BYTES);
    check(reef_trainer_snapshot(trainer, "kept", &snapshot, &err), &err);
    feed(trainer, "c", C_BYTES);
    check(reef_trainer_commit(trainer, &commit, &err), &err);
    reef_trainer_close(trainer);
    reef_store_close(store);
}
