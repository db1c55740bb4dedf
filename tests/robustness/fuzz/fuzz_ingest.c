// What clients push: text, JSON Lines or .npy. Input: the format, the width of the pool's vectors
// (0: a language model) and where a label stands, a byte each; then the batch.
#include "fuzz.h"
#include "push_parse.h"
#include "reef_push_journal.h"
#include "reef_store.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define LABEL_BYTES 4
#define VALUE_BYTES 4

// Lines with their ends, as many as are said.
static void check_text(const reef_ingested *got) {
    uint64_t lines = 0;
    assert(got->count > 0 && got->bytes[got->count - 1] == '\n');
    for (size_t i = 0; i < got->count; i++) lines += got->bytes[i] == '\n';
    assert(lines >= got->records); // a JSON text may hold more of them
}

// Whole records of finite values.
static void check_vectors(const reef_ingested *got, uint32_t inputs) {
    size_t each = LABEL_BYTES + VALUE_BYTES * (size_t)inputs;
    assert(got->records > 0 && got->count == got->records * each);
    for (uint64_t i = 0; i < got->records; i++) {
        const uint8_t *record = got->bytes + i * each;
        int32_t label;
        memcpy(&label, record, sizeof(label));
        assert(label >= -1);
        for (uint32_t k = 0; k < inputs; k++) {
            float value;
            memcpy(&value, record + LABEL_BYTES + VALUE_BYTES * (size_t)k, sizeof(value));
            assert(isfinite(value));
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const LABELS[] = {NULL, "first", "last", "none"};
    static const uint32_t WIDTHS[] = {0, 1, 3, 16};
    fuzz_input input = {data, size};
    reef_ingest_format format = fuzz_u8(&input) % 3;
    uint32_t inputs = WIDTHS[fuzz_u8(&input) % 4];
    const char *label = LABELS[fuzz_u8(&input) % 4];
    size_t bytes;
    const uint8_t *body = fuzz_take(&input, input.left, &bytes);
    reef_ingested got = {0}, again = {0};
    reef_error err;
    reef_status status = reef_ingest_parse(&got, format, inputs, label, body, bytes, &err);
    if (status != REEF_OK) {
        assert(got.bytes == NULL);
        fuzz_failure(status, &err);
        return 0;
    }
    assert(got.count <= REEF_JOURNAL_BATCH_BYTES_MAX);
    if (inputs)
        check_vectors(&got, inputs);
    else
        check_text(&got);
    assert(reef_ingest_parse(&again, format, inputs, label, body, bytes, &err) == REEF_OK);
    assert(again.count == got.count && memcmp(again.bytes, got.bytes, got.count) == 0);
    reef_ingested_release(&again);
    reef_ingested_release(&got);
    return 0;
}
