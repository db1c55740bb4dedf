// What clients and log shippers push: text, JSON of several forms, packed or not. Input: the format,
// and in the upper half of the byte the packing and whether streams choose among sources; then the
// body.
#include "fuzz.h"
#include "push.h"
#include "reef_store.h"

#include <assert.h>
#include <string.h>

#define PARTS 3

// Lines with their ends, as many as are said.
static void check_text(const reef_ingested *got) {
    uint64_t lines = 0;
    if (got->count == 0) return;
    assert(got->count <= REEF_PUSH_UNPACKED_BYTES_MAX && got->bytes[got->count - 1] == '\n');
    for (size_t i = 0; i < got->count; i++) lines += got->bytes[i] == '\n';
    assert(lines >= got->records); // a JSON text may hold more of them
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const SOURCES[PARTS] = {"web", "", "loki"};
    fuzz_input input = {data, size};
    const uint8_t how = fuzz_u8(&input);
    reef_ingest_form form = {.format = how % 5,
                             .packing = (how >> 4) % 3,
                             .field = how & 0x80 ? "msg" : NULL,
                             .sources = SOURCES,
                             .other = 2};
    if (form.format >= REEF_INGEST_LOKI && how & 0x40) form.source_count = PARTS;
    size_t bytes;
    const uint8_t *body = fuzz_take(&input, input.left, &bytes);
    reef_ingested got[PARTS] = {0}, again[PARTS] = {0};
    reef_ingest_notes notes, also;
    reef_error err;
    reef_status status = reef_ingest_parse(got, &notes, &form, body, bytes, &err);
    if (status != REEF_OK) {
        for (size_t i = 0; i < PARTS; i++) assert(got[i].bytes == NULL);
        fuzz_failure(status, &err);
        return 0;
    }
    assert(form.format >= REEF_INGEST_LOKI || got[0].count > 0);
    assert(reef_ingest_parse(again, &also, &form, body, bytes, &err) == REEF_OK);
    assert(memcmp(notes.hash, also.hash, sizeof(notes.hash)) == 0);
    for (size_t i = 0; i < PARTS; i++) {
        check_text(&got[i]);
        assert(again[i].count == got[i].count);
        assert(got[i].count == 0 || memcmp(again[i].bytes, got[i].bytes, got[i].count) == 0);
        reef_ingested_release(&again[i]);
        reef_ingested_release(&got[i]);
    }
    return 0;
}
