// Records that lie in several shards, read by all ranks at once. Each gives the others those of the
// blocks asked for that it has, one after the other:
//
//   0   4   block
//   4   4   bytes
//   8       payload
#include "store_internal.h"

#include "reef_byte_order.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRY_BYTES = 8 };

#define BLOCKS_AT_ONCE 64u // 8 MiB at most, of which each rank sends its share

void reef_shard_gather_by(reef_txn *txn, reef_shard_exchange exchange, void *context) {
    txn->gather = exchange;
    txn->gather_context = context;
}

typedef struct gathering {
    reef_txn *txn;
    reef_key key; // of the present block
    uint32_t from, end;
    uint32_t visited;
    reef_record_visit visit;
    void *context;
    uint8_t *own; // owned: what this rank gives
    size_t own_bytes, own_capacity;
} gathering;

static reef_status append(
    gathering *g, uint32_t block, const void *data, size_t bytes, reef_error *err) {
    size_t needed = g->own_bytes + ENTRY_BYTES + bytes;
    if (needed > g->own_capacity) {
        uint8_t *larger = realloc(g->own, 2 * needed);
        if (larger == NULL)
            return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu bytes of a memory",
                             2 * needed);
        g->own = larger;
        g->own_capacity = 2 * needed;
    }
    uint8_t *at = g->own + g->own_bytes;
    reef_put_le32(at, block);
    reef_put_le32(at + 4, (uint32_t)bytes);
    if (bytes > 0) memcpy(at + ENTRY_BYTES, data, bytes);
    g->own_bytes = needed;
    return REEF_OK;
}

// Those that lie here are visited, and given to the others if only this rank has them.
static reef_status read_own(gathering *g, reef_error *err) {
    reef_status status = REEF_OK;
    for (uint32_t block = g->from; status == REEF_OK && block < g->end; block++) {
        reef_view view;
        g->key.block = block;
        if (g->txn->gather != NULL && reef_shard_is_elsewhere(g->txn, &g->key)) continue;
        status = reef_record_view(g->txn, &g->key, &view, err);
        if (status == REEF_OK && g->txn->gather != NULL && reef_shard_divides(&g->key))
            status = append(g, block, view.data, view.bytes, err);
        if (status == REEF_OK) status = g->visit(g->context, &g->key, &view, err);
        g->visited++;
    }
    return status;
}

// Is it what all ranks have agreed on?
static reef_status check_given(gathering *g, const reef_view *view, reef_error *err) {
    uint8_t content[REEF_HASH_BYTES], expected[REEF_HASH_BYTES];
    uint64_t commit;
    reef_key_bytes encoded;
    reef_status status = reef_key_encode(&g->key, &encoded, err);
    if (status == REEF_OK) status = reef_sum_read(g->txn, &g->key, &commit, expected, err);
    if (status != REEF_OK) return status;
    reef_record_content_hash(g->key.db, &encoded, view->dtype, view->data, view->bytes, content);
    if (memcmp(content, expected, sizeof(content)) == 0) return REEF_OK;
    char text[REEF_KEY_TEXT_BYTES];
    reef_key_format(&g->key, text);
    return reef_fail(err, REEF_ERR_CORRUPT, "%s came from rank %" PRIu32 " with other content",
                     text, reef_shard_owner(g->key.layer, g->key.block, g->txn->division_count));
}

static reef_status take(void *taker, const void *given, size_t bytes, reef_error *err) {
    gathering *g = taker;
    const uint8_t *at = given;
    reef_status status = REEF_OK;
    while (status == REEF_OK && bytes > 0) {
        size_t size = bytes < ENTRY_BYTES ? 0 : reef_get_le32(at + 4);
        uint32_t block = bytes < ENTRY_BYTES ? 0 : reef_get_le32(at);
        if (bytes < ENTRY_BYTES || size > bytes - ENTRY_BYTES)
            return reef_fail(err, REEF_ERR_CORRUPT, "what another rank gave of a memory is cut");
        const reef_view view = {.data = at + ENTRY_BYTES, .bytes = size, .dtype = REEF_BYTES};
        g->key.block = block;
        if (block < g->from || block >= g->end || !reef_shard_is_elsewhere(g->txn, &g->key))
            return reef_fail(
                err, REEF_ERR_CORRUPT,
                "another rank gave block %" PRIu32 " of a memory, which was not asked for", block);
        status = check_given(g, &view, err);
        if (status == REEF_OK) status = g->visit(g->context, &g->key, &view, err);
        g->visited++;
        at += ENTRY_BYTES + size;
        bytes -= ENTRY_BYTES + size;
    }
    return status;
}

static bool any_elsewhere(gathering *g) {
    for (g->key.block = g->from; g->key.block < g->end; g->key.block++)
        if (reef_shard_divides(&g->key)) return true;
    return false;
}

static reef_status gather_some(gathering *g, reef_error *err) {
    bool shared = g->txn->gather != NULL && any_elsewhere(g);
    g->own_bytes = 0;
    reef_status status = read_own(g, err);
    if (status == REEF_OK && shared)
        status = g->txn->gather(g->txn->gather_context, g->own, g->own_bytes, take, g, err);
    if (status != REEF_OK || g->visited == g->end) return status;
    return reef_fail(err, REEF_ERR_CORRUPT, "other ranks gave fewer blocks of a memory than all");
}

reef_status reef_records_gather(reef_txn *txn,
                                const reef_key *first,
                                uint32_t count,
                                reef_record_visit visit,
                                void *context,
                                reef_error *err) {
    gathering g = {.txn = txn,
                   .key = *first,
                   .end = first->block,
                   .visited = first->block,
                   .visit = visit,
                   .context = context};
    uint32_t end = first->block + count;
    reef_status status = REEF_OK;
    while (status == REEF_OK && g.end < end) {
        g.from = g.end;
        g.end = end - g.from < BLOCKS_AT_ONCE ? end : g.from + BLOCKS_AT_ONCE;
        status = gather_some(&g, err);
    }
    free(g.own);
    return status;
}
