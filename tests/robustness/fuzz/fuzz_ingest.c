// What clients push: text or JSON Lines. Input: the format, a byte; then the batch.
#include "fuzz.h"
#include "push.h"
#include "reef_push_journal.h"
#include "reef_store.h"

#include <assert.h>
#include <string.h>

// Lines with their ends, as many as are said.
static void check_text(const reef_ingested *got) {
    uint64_t lines = 0;
    assert(got->count > 0 && got->bytes[got->count - 1] == '\n');
    for (size_t i = 0; i < got->count; i++) lines += got->bytes[i] == '\n';
    assert(lines >= got->records); // a JSON text may hold more of them
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input = {data, size};
    reef_ingest_format format = fuzz_u8(&input) % 2;
    size_t bytes;
    const uint8_t *body = fuzz_take(&input, input.left, &bytes);
    reef_ingested got = {0}, again = {0};
    reef_error err;
    reef_status status = reef_ingest_parse(&got, format, body, bytes, &err);
    if (status != REEF_OK) {
        assert(got.bytes == NULL);
        fuzz_failure(status, &err);
        return 0;
    }
    assert(got.count <= REEF_JOURNAL_BATCH_BYTES_MAX);
    check_text(&got);
    assert(reef_ingest_parse(&again, format, body, bytes, &err) == REEF_OK);
    assert(again.count == got.count && memcmp(again.bytes, got.bytes, got.count) == 0);
    reef_ingested_release(&again);
    reef_ingested_release(&got);
    return 0;
}
