// The record of the last commit: which it was, where in the stream it stands, and its root hash.
#include "store_internal.h"

#include "reef_byte_order.h"

#include <string.h>

// meta "commit", 56 bytes, little-endian:
//   0 number u64   8 step u64   16 stream bytes u64   24 wall clock ms u64   32 bytes written u64
//   40 root hash, 16 bytes

const reef_key reef_commit_key = {.db = REEF_DB_META, .name = REEF_COMMIT_NAME};

void reef_commit_encode(const reef_commit *commit, uint8_t out[REEF_COMMIT_BYTES]) {
    reef_put_le64(out, commit->number);
    reef_put_le64(out + 8, commit->step);
    reef_put_le64(out + 16, commit->stream_bytes);
    reef_put_le64(out + 24, commit->unix_ms);
    reef_put_le64(out + 32, commit->bytes_written);
    memcpy(out + 40, commit->root, REEF_HASH_BYTES);
}

static void commit_decode(const uint8_t in[REEF_COMMIT_BYTES], reef_commit *out) {
    *out = (reef_commit){.number = reef_get_le64(in),
                         .step = reef_get_le64(in + 8),
                         .stream_bytes = reef_get_le64(in + 16),
                         .unix_ms = reef_get_le64(in + 24),
                         .bytes_written = reef_get_le64(in + 32)};
    memcpy(out->root, in + 40, REEF_HASH_BYTES);
}

reef_status reef_commit_read(reef_txn *txn, reef_commit *out, reef_error *err) {
    uint8_t bytes[REEF_COMMIT_BYTES];
    reef_status status = reef_record_read(txn, &reef_commit_key, bytes, sizeof(bytes), err);
    if (status == REEF_ERR_NOT_FOUND)
        return reef_fail(err, REEF_ERR_NOT_FOUND, "pool %s has no commit yet", txn->store->path);
    if (status == REEF_OK) commit_decode(bytes, out);
    return status;
}

reef_status reef_store_read_commit(reef_store *store, reef_commit *out, reef_error *err) {
    reef_txn *txn = NULL;
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_commit_read(txn, out, err);
    reef_txn_abort(txn);
    return status;
}
