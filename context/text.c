// See text.h.
#include "text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static_assert(REEF_TEXT_NAME_BYTES == sizeof(XXH128_canonical_t), "a name is an XXH3-128");

// ---- from beginning to end ----------------------------------------------------------------------

void reef_text_init(reef_text *text, uint64_t bound) {
    assert(bound % REEF_TEXT_BLOCK_BYTES == 0 && bound >= 2 * REEF_TEXT_BLOCK_BYTES);
    *text = (reef_text){.bound = bound};
}

void reef_text_init_view(reef_text *view, const reef_text *base) {
    assert(base->base == NULL);
    *view = (reef_text){.bound = base->bound,
                        .begin = base->end,
                        .end = base->end,
                        .base = base,
                        .base_end = base->end};
}

static void release_blocks(reef_text *text, size_t from) {
    for (size_t i = from; i < text->count; i++) free(text->blocks[i].own);
    if (text->count > from) text->count = from;
}

void reef_text_release(reef_text *text) {
    release_blocks(text, 0);
    free(text->blocks);
    free(text->names);
    *text = (reef_text){0};
}

void reef_text_reset(reef_text *view) {
    release_blocks(view, 1);
    view->begin = view->end = view->base_end;
}

// ---- blocks -------------------------------------------------------------------------------------

static reef_status fail_no_memory(uint64_t bytes, reef_error *err) {
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %" PRIu64 " bytes of text", bytes);
}

static reef_status reserve_blocks(reef_text *text, size_t count, reef_error *err) {
    size_t capacity = text->capacity > 0 ? text->capacity : 4;
    if (count <= text->capacity) return REEF_OK;
    while (capacity < count) capacity *= 2;
    reef_text_block *blocks = realloc(text->blocks, capacity * sizeof(*blocks));
    if (blocks == NULL) return fail_no_memory(capacity * sizeof(*blocks), err);
    text->blocks = blocks;
    if (text->base == NULL) {
        uint8_t *names = realloc(text->names, capacity * REEF_TEXT_NAME_BYTES);
        if (names == NULL) return fail_no_memory(capacity * REEF_TEXT_NAME_BYTES, err);
        text->names = names;
    }
    text->capacity = capacity;
    return REEF_OK;
}

// The oldest block goes.
static void forget_block(reef_text *text) {
    free(text->blocks[0].own);
    text->count--;
    memmove(text->blocks, text->blocks + 1, text->count * sizeof(*text->blocks));
    if (text->names != NULL)
        memmove(text->names, text->names + REEF_TEXT_NAME_BYTES,
                text->count * REEF_TEXT_NAME_BYTES);
    text->begin = (text->begin / REEF_TEXT_BLOCK_BYTES + 1) * REEF_TEXT_BLOCK_BYTES;
}

static reef_status add_block(reef_text *text, reef_error *err) {
    reef_status status = reserve_blocks(text, text->count + 1, err);
    if (status != REEF_OK) return status;
    uint8_t *own = malloc(REEF_TEXT_BLOCK_BYTES);
    if (own == NULL) return fail_no_memory(REEF_TEXT_BLOCK_BYTES, err);
    text->blocks[text->count++] = (reef_text_block){own, own};
    if (text->count * REEF_TEXT_BLOCK_BYTES > text->bound) forget_block(text);
    return REEF_OK;
}

reef_status reef_text_reserve(reef_text *text, uint64_t count, reef_error *err) {
    uint64_t first = text->begin / REEF_TEXT_BLOCK_BYTES,
             last = (text->end + count - 1) / REEF_TEXT_BLOCK_BYTES;
    reef_status status = REEF_OK;
    assert(count <= REEF_TEXT_BLOCK_BYTES);
    for (; status == REEF_OK && first + text->count <= last;
         first = text->begin / REEF_TEXT_BLOCK_BYTES)
        status = add_block(text, err);
    return status;
}

void reef_text_name(reef_text *text, size_t block) {
    XXH128_canonical_t canonical;
    if (text->names == NULL) return;
    XXH128_canonicalFromHash(&canonical,
                             XXH3_128bits(text->blocks[block].bytes, REEF_TEXT_BLOCK_BYTES));
    memcpy(text->names + block * REEF_TEXT_NAME_BYTES, canonical.digest, REEF_TEXT_NAME_BYTES);
}

// ---- to restore one -----------------------------------------------------------------------------

static uint64_t block_count(uint64_t bytes) {
    return (bytes + REEF_TEXT_BLOCK_BYTES - 1) / REEF_TEXT_BLOCK_BYTES;
}

uint64_t reef_text_begin(uint64_t end, uint64_t bound) {
    uint64_t blocks = block_count(end), kept = bound / REEF_TEXT_BLOCK_BYTES;
    return blocks > kept ? (blocks - kept) * REEF_TEXT_BLOCK_BYTES : 0;
}

reef_status reef_text_announce(reef_text *text, uint64_t end, reef_error *err) {
    text->begin = reef_text_begin(end, text->bound);
    text->end = end;
    size_t count = (size_t)block_count(end - text->begin);
    reef_status status = reserve_blocks(text, count, err);
    if (status != REEF_OK) return status;
    if (count > 0) {
        memset(text->blocks, 0, count * sizeof(*text->blocks));
        memset(text->names, 0, count * REEF_TEXT_NAME_BYTES);
    }
    text->count = count;
    if (reef_text_full(text) == count) return REEF_OK;
    reef_text_block *last = &text->blocks[count - 1];
    last->bytes = last->own = malloc(REEF_TEXT_BLOCK_BYTES);
    return last->own != NULL ? REEF_OK : fail_no_memory(REEF_TEXT_BLOCK_BYTES, err);
}

void reef_text_lend(reef_text *text, size_t block, const uint8_t *bytes) {
    assert(block < reef_text_full(text));
    free(text->blocks[block].own);
    text->blocks[block] = (reef_text_block){bytes, NULL};
}

reef_status reef_text_copy(reef_text *text, size_t block, const uint8_t *bytes, reef_error *err) {
    uint8_t *own = malloc(REEF_TEXT_BLOCK_BYTES);
    assert(block < reef_text_full(text));
    if (own == NULL) return fail_no_memory(REEF_TEXT_BLOCK_BYTES, err);
    memcpy(own, bytes, REEF_TEXT_BLOCK_BYTES);
    free(text->blocks[block].own);
    text->blocks[block] = (reef_text_block){own, own};
    return REEF_OK;
}

uint8_t *reef_text_last(const reef_text *text) {
    return text->end % REEF_TEXT_BLOCK_BYTES == 0 ? NULL : text->blocks[reef_text_full(text)].own;
}

uint64_t reef_text_bytes(const reef_text *text) {
    uint64_t bytes = text->capacity * (sizeof(*text->blocks) + REEF_TEXT_NAME_BYTES);
    for (size_t i = 0; i < text->count; i++)
        bytes += text->blocks[i].own != NULL ? REEF_TEXT_BLOCK_BYTES : 0;
    return bytes;
}
