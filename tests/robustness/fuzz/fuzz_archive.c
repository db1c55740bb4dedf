// Archives that `reef expand` is given. The pool and a good archive are made at the start. Input: a
// byte, and, where its lowest bit is not set, the file; otherwise changes of the good archive, each
// place, bytes to remove, bytes to insert. With the second bit set the checksum of the header is
// made right afterwards, with the third also those of the pieces, so that what is behind them is
// reached.
#include "archive_format.h"
#include "fuzz.h"
#include "reef_byte_order.h"
#include "reef_trainer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES (2 * REEF_ARCHIVE_PIECE_BYTES_MIN + 300)
#define EXPANDED_BYTES_MAX (4 * TEXT_BYTES) // longer ones only take longer
#define CHANGES_MAX 64

static reef_store *store;
static uint8_t text[TEXT_BYTES];
static uint8_t *good, *changed; // the archive; room for it with more bytes
static size_t good_bytes;

static void choose(reef_config *config) {
    static const char *const FIELDS[][2] = {
        {"layers", "1"},         {"d_model", "4"},      {"attention_heads", "1"},
        {"context", "8"},        {"batch", "2"},        {"heads", "1"},
        {"topk", "1"},           {"d_key", "2"},        {"side", "2"},
        {"boundaries", "given"}, {"memory", "4194304"},
    };
    reef_error err;
    reef_config_default(config);
    for (size_t i = 0; i < sizeof(FIELDS) / sizeof(*FIELDS); i++)
        fuzz_must(reef_config_set(config, FIELDS[i][0], FIELDS[i][1], &err), &err);
}

static void fill(const char *words, uint8_t *out, size_t count) {
    size_t length = strlen(words);
    for (size_t i = 0; i < count; i++) out[i] = (uint8_t)words[(i + i / 97) % length];
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    reef_error err;
    reef_config config;
    reef_trainer *trainer = NULL;
    size_t taken;
    char *pool = fuzz_path("pool");
    choose(&config);
    fuzz_must(reef_kernels_choose("scalar", &err), &err);
    fuzz_must(reef_pool_init(pool, &config, &err), &err);
    reef_store_options writing = {.write = true, .no_sync = true};
    fuzz_must(reef_store_open(&store, pool, &writing, &err), &err);
    fuzz_must(reef_trainer_open(&trainer, store, &(reef_trainer_options){.threads = 1}, &err),
              &err);
    for (int g = 0; g < 2; g++) {
        fill(g ? "0123 4567 " : "a reef grows ", text, 1024);
        fuzz_must(reef_trainer_feed(trainer, "text", text, 1024, &taken, NULL, &err), &err);
        fuzz_must(reef_trainer_seal(trainer, NULL, NULL, &err), &err);
    }
    reef_trainer_close(trainer);
    fill("a reef grows ", text, TEXT_BYTES / 2);
    fill("0123 4567 ", text + TEXT_BYTES / 2, TEXT_BYTES - TEXT_BYTES / 2);
    const reef_archive_options options = {.threads = 1,
                                          .piece_bytes = REEF_ARCHIVE_PIECE_BYTES_MIN};
    fuzz_must(reef_archive_write(store, "1", text, TEXT_BYTES, &options, &good, &good_bytes, &err),
              &err);
    changed = malloc(good_bytes + CHANGES_MAX * UINT8_MAX);
    assert(changed);
    return 0;
}

static void make_sums_right(uint8_t how, size_t bytes) {
    reef_error err;
    reef_archive_header header;
    size_t all = bytes > 16 ? reef_get_le32(changed + 12) : 0;
    if (!(how & 2) || all < 16 || all > bytes) return;
    reef_put_le64(changed + all - 8, reef_archive_sum(changed, all - 8));
    if (!(how & 4) || reef_archive_header_parse(&header, changed, bytes, &err) != REEF_OK) return;
    for (uint32_t p = 0; p < header.piece_count; p++)
        header.pieces[p].sum =
            reef_archive_sum(changed + header.pieces[p].at, header.pieces[p].bytes);
    reef_archive_header_write(&header, changed);
    reef_archive_header_release(&header);
}

// The good archive with changes; returns its length.
static size_t change(uint8_t how, fuzz_input *input) {
    size_t bytes = good_bytes;
    memcpy(changed, good, bytes);
    for (int i = 0; i < CHANGES_MAX && input->left; i++) {
        size_t place = fuzz_u16(input) % (bytes + 1), gone = fuzz_u8(input), count = fuzz_u8(input);
        const uint8_t *given = fuzz_take(input, count, &count);
        if (gone > bytes - place) gone = bytes - place;
        memmove(changed + place + count, changed + place + gone, bytes - place - gone);
        if (count) memcpy(changed + place, given, count);
        bytes = bytes - gone + count;
    }
    make_sums_right(how, bytes);
    return bytes;
}

// The whole text, then a part of it, which must be the same.
static void expand(const uint8_t *archive, size_t bytes, const reef_archive_info *info) {
    static uint8_t whole[EXPANDED_BYTES_MAX], part[EXPANDED_BYTES_MAX];
    reef_error err;
    uint8_t hash[REEF_HASH_BYTES];
    const reef_archive_options options = {.threads = 1};
    size_t count = (size_t)info->text_bytes;
    reef_status status = reef_archive_read(store, archive, bytes, 0, count, &options, whole, &err);
    if (status != REEF_OK) {
        fuzz_failure(status, &err);
        return;
    }
    reef_archive_hash(whole, count, hash);
    assert(memcmp(hash, info->text_hash, sizeof(hash)) == 0);
    fuzz_must(reef_archive_read(store, archive, bytes, count / 3, count / 2, &options, part, &err),
              &err);
    assert(memcmp(part, whole + count / 3, count / 2 - count / 3) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    reef_error err;
    reef_archive_info info;
    fuzz_input input = {data, size};
    uint8_t how = fuzz_u8(&input);
    size_t bytes = how & 1 ? change(how, &input) : input.left;
    uint8_t *exact = malloc(bytes + !bytes);
    assert(exact);
    if (bytes) memcpy(exact, how & 1 ? changed : input.at, bytes);
    reef_status status = reef_archive_read_info(&info, exact, bytes, &err);
    if (status != REEF_OK) {
        fuzz_failure(status, &err);
    } else {
        uint64_t coded = 0, pieces = info.raw_count;
        for (size_t i = 0; i < info.share_count; i++) {
            coded += info.shares[i].text_bytes;
            pieces += info.shares[i].piece_count;
            assert(info.shares[i].bytes <= bytes);
        }
        assert(coded <= info.text_bytes && pieces == info.piece_count && info.bytes == bytes);
        if (info.text_bytes <= EXPANDED_BYTES_MAX) expand(exact, bytes, &info);
    }
    reef_archive_info_release(&info);
    free(exact);
    return 0;
}
