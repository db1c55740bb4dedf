// See reef_join.h. The record `join` in `meta`, little-endian:
//
//   0   16  training            40  8  since              72  8  sent_bytes
//   16  4   rank                48  8  accepted           80  8  received_bytes
//   20  4   count               56  4  step               88  8  left_out_bytes
//   24  8   every               60  4  own_from           96  8  kinds
//   32  8   joins               64  8  joined_ms
//
// and the record `join_kinds`, 24 bytes a kind:
//
//   0  4  kind    4  4  owner    8  4  owner_kind    12  4  (zero)    16  8  returned
#include "reef_join.h"

#include "reef_byte_order.h"

#include <stdlib.h>
#include <string.h>

enum { JOIN_BYTES = 104, KIND_BYTES = 24 };

static const reef_key join_key = {.db = REEF_DB_META, .name = "join"};
static const reef_key kinds_key = {.db = REEF_DB_META, .name = "join_kinds"};

reef_status reef_join_read(reef_txn *txn, reef_join *out, reef_error *err) {
    uint8_t bytes[JOIN_BYTES];
    *out = (reef_join){0};
    reef_status status = reef_record_read(txn, &join_key, bytes, sizeof(bytes), err);
    if (status != REEF_OK) return status;
    memcpy(out->training, bytes, sizeof(out->training));
    out->rank = reef_get_le32(bytes + 16);
    out->count = reef_get_le32(bytes + 20);
    out->every = reef_get_le64(bytes + 24);
    out->joins = reef_get_le64(bytes + 32);
    out->since = reef_get_le64(bytes + 40);
    out->accepted = reef_get_le64(bytes + 48);
    out->step = reef_get_le32(bytes + 56);
    out->own_from = reef_get_le32(bytes + 60);
    out->joined_ms = reef_get_le64(bytes + 64);
    out->sent_bytes = reef_get_le64(bytes + 72);
    out->received_bytes = reef_get_le64(bytes + 80);
    out->left_out_bytes = reef_get_le64(bytes + 88);
    out->kinds = reef_get_le64(bytes + 96);
    return REEF_OK;
}

reef_status reef_join_put(reef_txn *txn, const reef_join *join, reef_error *err) {
    uint8_t bytes[JOIN_BYTES] = {0};
    memcpy(bytes, join->training, sizeof(join->training));
    reef_put_le32(bytes + 16, join->rank);
    reef_put_le32(bytes + 20, join->count);
    reef_put_le64(bytes + 24, join->every);
    reef_put_le64(bytes + 32, join->joins);
    reef_put_le64(bytes + 40, join->since);
    reef_put_le64(bytes + 48, join->accepted);
    reef_put_le32(bytes + 56, join->step);
    reef_put_le32(bytes + 60, join->own_from);
    reef_put_le64(bytes + 64, join->joined_ms);
    reef_put_le64(bytes + 72, join->sent_bytes);
    reef_put_le64(bytes + 80, join->received_bytes);
    reef_put_le64(bytes + 88, join->left_out_bytes);
    reef_put_le64(bytes + 96, join->kinds);
    return reef_record_put(txn, &join_key, REEF_BYTES, bytes, sizeof(bytes), err);
}

reef_status reef_join_kinds_read(reef_txn *txn,
                                 reef_join_kind **out,
                                 size_t *count,
                                 reef_error *err) {
    reef_view view;
    *out = NULL;
    *count = 0;
    reef_status status = reef_record_view(txn, &kinds_key, &view, err);
    if (status == REEF_ERR_NOT_FOUND) return REEF_OK;
    if (status != REEF_OK) return status;
    if (view.bytes % KIND_BYTES != 0)
        return reef_fail(err, REEF_ERR_CORRUPT, "meta (name join_kinds) is malformed");
    *out = calloc(view.bytes / KIND_BYTES + 1, sizeof(**out));
    if (*out == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for the kinds of other ranks");
    *count = view.bytes / KIND_BYTES;
    for (size_t i = 0; i < *count; i++) {
        const uint8_t *at = (const uint8_t *)view.data + i * KIND_BYTES;
        (*out)[i] = (reef_join_kind){.kind = reef_get_le32(at),
                                     .owner = reef_get_le32(at + 4),
                                     .owner_kind = reef_get_le32(at + 8),
                                     .returned = reef_get_le64(at + 16)};
    }
    return REEF_OK;
}

reef_status reef_join_kinds_put(reef_txn *txn,
                                const reef_join_kind *kinds,
                                size_t count,
                                reef_error *err) {
    uint8_t *bytes = calloc(count + 1, KIND_BYTES);
    if (bytes == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu kinds of ranks", count);
    for (size_t i = 0; i < count; i++) {
        uint8_t *at = bytes + i * KIND_BYTES;
        reef_put_le32(at, kinds[i].kind);
        reef_put_le32(at + 4, kinds[i].owner);
        reef_put_le32(at + 8, kinds[i].owner_kind);
        reef_put_le64(at + 16, kinds[i].returned);
    }
    reef_status status =
        reef_record_put(txn, &kinds_key, REEF_BYTES, bytes, count * KIND_BYTES, err);
    free(bytes);
    return status;
}
