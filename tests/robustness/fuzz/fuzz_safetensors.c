// Files of generations, as ranks send them and `reef import` makes them. The pool that would take it in is made at the start, and a
// file that it would take; nothing is ever imported (dry run), but everything is checked, the data
// against its root included. Input: a byte, and, where its lowest bit is not set, the file;
// otherwise changes of the header of that good file, each place, bytes to remove, bytes to insert.
// With the second bit set a byte of the data is changed, too.
#include "fuzz.h"
#include "generation_file.h"
#include "reef_trainer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES 1024
#define CHANGES_MAX 64
#define HEADER_LENGTH_BYTES 8

static reef_store *store;
static reef_trainer *trainer;
static char *file;
static uint8_t *good, *changed; // the whole file; room for it with a longer header
static size_t good_bytes, header_bytes;

// Small, and the same on every machine but for rounding.
static void choose(reef_config *config) {
    static const char *const FIELDS[][2] = {
        {"layers", "1"},
        {"d_model", "4"},
        {"attention_heads", "1"},
        {"context", "8"},
        {"previous_bytes", "0"},
        {"batch", "2"},
        {"rehearse", "0"},
        {"heads", "1"},
        {"topk", "1"},
        {"d_key", "2"},
        {"side", "2"},
        {"side_new", "2"},
        {"adapters", "1"},
        {"reservoir_bytes", "1024"},
        {"reservoir_window", "64"},
        {"boundaries", "given"},
        {"gate_decay", "0.9"},
        {"context_memory", "4194304"},
    };
    reef_error err;
    reef_config_default(config);
    for (size_t i = 0; i < sizeof(FIELDS) / sizeof(*FIELDS); i++)
        fuzz_must(reef_config_set(config, FIELDS[i][0], FIELDS[i][1], &err), &err);
}

static void learn(const char *words) {
    reef_error err;
    uint8_t text[TEXT_BYTES];
    size_t taken, length = strlen(words);
    for (size_t i = 0; i < sizeof(text); i++) text[i] = (uint8_t)words[i % length];
    fuzz_must(reef_trainer_feed(trainer, "text", text, sizeof(text), &taken, NULL, &err), &err);
    fuzz_must(reef_trainer_seal(trainer, NULL, NULL, &err), &err);
}

static void open_pool(const char *pool) {
    reef_error err;
    reef_store_options options = {.write = true, .no_sync = true};
    fuzz_must(reef_store_open(&store, pool, &options, &err), &err);
    fuzz_must(reef_trainer_open(&trainer, store, &(reef_trainer_options){.threads = 1}, &err),
              &err);
}

// A pool that learns a second generation and gives it away; its copy, from before, could take it.
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    reef_error err;
    reef_config config;
    char *pool = fuzz_path("pool"), *copy = fuzz_path("copy");
    file = fuzz_path("generation.safetensors");
    choose(&config);
    fuzz_must(reef_kernels_choose("scalar", &err), &err);
    fuzz_must(reef_pool_init(pool, &config, &err), &err);
    open_pool(pool);
    learn("a reef grows ");
    fuzz_must(reef_store_copy(store, copy, NULL, &err), &err);
    learn("0123 4567 ");
    fuzz_must(reef_generation_export(store, 1, file, false, NULL, &err), &err);
    reef_trainer_close(trainer);
    reef_store_close(store);
    open_pool(copy);
    good = fuzz_unpack(file, &good_bytes);
    for (size_t i = HEADER_LENGTH_BYTES; i-- > 0;) header_bytes = header_bytes << 8 | good[i];
    changed = malloc(good_bytes + CHANGES_MAX * UINT8_MAX);
    assert(changed && HEADER_LENGTH_BYTES + header_bytes < good_bytes);
    return 0;
}

// The good file with changes; returns its length.
static size_t change(uint8_t how, fuzz_input *input) {
    uint8_t *header = changed + HEADER_LENGTH_BYTES;
    size_t bytes = header_bytes, data = good_bytes - HEADER_LENGTH_BYTES - header_bytes;
    memcpy(header, good + HEADER_LENGTH_BYTES, bytes);
    size_t flipped = how & 2 ? fuzz_u16(input) : 0;
    for (int i = 0; i < CHANGES_MAX && input->left; i++) {
        size_t place = fuzz_u16(input) % (bytes + 1), gone = fuzz_u8(input), count = fuzz_u8(input);
        const uint8_t *given = fuzz_take(input, count, &count);
        if (gone > bytes - place) gone = bytes - place;
        memmove(header + place + count, header + place + gone, bytes - place - gone);
        if (count) memcpy(header + place, given, count);
        bytes = bytes - gone + count;
    }
    for (size_t i = 0; i < HEADER_LENGTH_BYTES; i++) changed[i] = (uint8_t)(bytes >> 8 * i);
    memcpy(header + bytes, good + HEADER_LENGTH_BYTES + header_bytes, data);
    if (how & 2) header[bytes + flipped % data] ^= 1;
    return HEADER_LENGTH_BYTES + bytes + data;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    reef_error err;
    reef_safetensors opened;
    reef_generation_origin origin = {0};
    reef_import import;
    fuzz_input input = {data, size};
    uint8_t how = fuzz_u8(&input);
    size_t bytes = how & 1 ? change(how, &input) : input.left;
    fuzz_write(file, how & 1 ? changed : input.at, bytes);
    reef_status status = reef_safetensors_open(&opened, file, &err);
    if (status != REEF_OK) {
        fuzz_failure(status, &err);
        return 0;
    }
    uint64_t at = 0;
    for (size_t i = 0; i < opened.tensor_count; i++) { // no gap, no overlap
        assert(opened.tensors[i].begin == at && opened.tensors[i].end >= at);
        assert(reef_safetensor_bytes(&opened.tensors[i]) == opened.tensors[i].end - at);
        at = opened.tensors[i].end;
    }
    assert(at == opened.data_bytes && opened.data_at + at == bytes);
    status = reef_origin_parse(&origin, &opened, &err);
    if (status != REEF_OK) fuzz_failure(status, &err);
    reef_origin_release(&origin);
    reef_safetensors_close(&opened);
    const reef_import_options dry = {.dry_run = true, .leak_max = 0.01};
    status = reef_trainer_import(trainer, file, &dry, &import, &err);
    if (status != REEF_OK) fuzz_failure(status, &err);
    return 0;
}
