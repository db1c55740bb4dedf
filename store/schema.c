// Making the databases of a pool, recognising one, and turning LMDB's codes into ours.
#include "pool_file.h"

#include "reef_byte_order.h"
#include "store_internal.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

// ---- codes --------------------------------------------------------------------------------------

static reef_status fail_full(const char *path,
                             uint64_t needed,
                             const char *doing,
                             reef_error *err) {
    return reef_fail(err, REEF_ERR_FULL,
                     "cannot %s in pool %s: the disk is full (%" PRIu64
                     " bytes free, about %" PRIu64 " needed)",
                     doing, path, reef_disk_free_bytes(path), needed);
}

// LMDB reports a short write as EIO: only the file system knows whether it was room that lacked.
// What the transaction itself had already taken of it is why the margin is generous.
static bool disk_is_full(const char *path, uint64_t needed) {
    const uint64_t margin_bytes = UINT64_C(1) << 20;
    uint64_t free_bytes = reef_disk_free_bytes(path);
    return free_bytes != UINT64_MAX && free_bytes < needed + margin_bytes;
}

reef_status reef_lmdb_fail(
    const char *path, int code, uint64_t bytes_needed, const char *doing, reef_error *err) {
    reef_status status = REEF_ERR_IO;
    switch (code) {
    case EACCES:
    case EPERM:
        return reef_pool_access_fail(path, doing, err);
    case ENOSPC:
    case EDQUOT:
        return fail_full(path, bytes_needed, doing, err);
    // Some file systems report a full disk as an I/O error.
    case EIO:
        if (disk_is_full(path, bytes_needed)) return fail_full(path, bytes_needed, doing, err);
        break;
    // The store grows the map before the next transaction, so trying again succeeds.
    case MDB_MAP_FULL:
        return reef_fail(err, REEF_ERR_FULL,
                         "cannot %s in pool %s: the map is full; begin again, it will be larger",
                         doing, path);
    case MDB_TXN_FULL:
        status = REEF_ERR_FULL;
        break;
    case MDB_NOTFOUND:
        status = REEF_ERR_NOT_FOUND;
        break;
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
        status = REEF_ERR_CORRUPT;
        break;
    case MDB_INVALID:
        status = REEF_ERR_INVALID;
        break;
    case MDB_VERSION_MISMATCH:
        status = REEF_ERR_VERSION;
        break;
    // The slots are taken by other processes: the message says what to do.
    case MDB_READERS_FULL:
        return reef_fail(err, REEF_ERR_BUSY,
                         "cannot %s in pool %s: all %d reader slots are taken by programs that "
                         "read it now; end some of them, or try again",
                         doing, path, REEF_READERS_MAX);
    case MDB_MAP_RESIZED:
    case EAGAIN:
    case EBUSY:
        status = REEF_ERR_BUSY;
        break;
    case ENOMEM:
        status = REEF_ERR_NO_MEMORY;
        break;
    // All else, and codes of later versions of LMDB, is an I/O error with LMDB's own text.
    default:
        break;
    }
    return reef_fail(err, status, "cannot %s in pool %s: %s", doing, path, mdb_strerror(code));
}

// ---- the format record --------------------------------------------------------------------------

#define DEVELOPMENT_FORMAT_LAST 3u // pools of versions before the first release
#define DEVELOPMENT_COMMIT "eef11647"

// meta "format": the version as u32. Its key, header and encoding stay the same in every version.
static const reef_key format_key = {.db = REEF_DB_META, .name = REEF_FORMAT_NAME};

// One of the two records of meta that decide whether a pool is opened. NOT_FOUND is silent.
static reef_status meta_read(const char *path,
                             MDB_txn *txn,
                             MDB_dbi meta,
                             const reef_key *record,
                             const char *doing,
                             reef_view *out,
                             reef_error *err) {
    reef_key_bytes encoded;
    uint8_t content[REEF_HASH_BYTES];
    reef_status status = reef_key_encode(record, &encoded, err);
    if (status != REEF_OK) return status;
    MDB_val key = {.mv_size = encoded.bytes, .mv_data = encoded.data};
    MDB_val value;
    int code = mdb_get(txn, meta, &key, &value);
    if (code == MDB_NOTFOUND) return REEF_ERR_NOT_FOUND;
    if (code != 0) return reef_lmdb_fail(path, code, 0, doing, err);
    return reef_record_parse(record, &encoded, value.mv_data, value.mv_size, out, content, err);
}

reef_status reef_format_check(const char *path, MDB_txn *txn, MDB_dbi meta, reef_error *err) {
    reef_view view;
    uint8_t number[4];
    reef_status status =
        meta_read(path, txn, meta, &format_key, "read the format version", &view, err);
    if (status == REEF_ERR_NOT_FOUND) // the databases are ours, so it had one
        return reef_fail(err, REEF_ERR_CORRUPT, "pool %s: its format version is lost", path);
    if (status != REEF_OK) return status;
    if (view.bytes < sizeof(number))
        return reef_fail(err, REEF_ERR_CORRUPT, "pool %s: the format version is cut short", path);
    memcpy(number, view.data, sizeof(number));
    uint32_t version = reef_get_le32(number);
    if (version == REEF_FORMAT_VERSION) return REEF_OK;
    if (version >= 1 && version <= DEVELOPMENT_FORMAT_LAST)
        return reef_fail(err, REEF_ERR_VERSION,
                         "pool %s has format %" PRIu32 ", of a development version: the program of "
                         "commit " DEVELOPMENT_COMMIT " reads it, this one reads format %u",
                         path, version, REEF_FORMAT_VERSION);
    return reef_fail(err, REEF_ERR_VERSION,
                     "pool %s has format %" PRIu32 ", this program reads format %u", path, version,
                     REEF_FORMAT_VERSION);
}

// The record of the last commit says what everything else is of: without it nothing can be
// believed.
static reef_status commit_check(const char *path, MDB_txn *txn, MDB_dbi meta, reef_error *err) {
    reef_error reason;
    reef_view view;
    reef_status status =
        meta_read(path, txn, meta, &reef_commit_key, "read the last commit", &view, &reason);
    if (status == REEF_ERR_NOT_FOUND) return REEF_OK; // nothing was committed yet
    if (status == REEF_OK && view.bytes != REEF_COMMIT_BYTES)
        status =
            reef_fail(&reason, REEF_ERR_CORRUPT, "meta (name commit) has %zu bytes instead of %d",
                      view.bytes, REEF_COMMIT_BYTES);
    if (status == REEF_OK) return REEF_OK;
    return reef_fail(err, status, "pool %s: %.140s; 'reef verify' says what is left", path,
                     reason.message);
}

reef_status reef_last_commit_check(const char *path, MDB_env *lmdb, MDB_dbi meta, reef_error *err) {
    MDB_txn *txn = NULL;
    int code = mdb_txn_begin(lmdb, NULL, MDB_RDONLY, &txn);
    if (code != 0) return reef_lmdb_fail(path, code, 0, "begin a transaction", err);
    reef_status status = commit_check(path, txn, meta, err);
    mdb_txn_abort(txn);
    return status;
}

int reef_meta_put(MDB_txn *txn,
                  const MDB_dbi dbis[REEF_DB_COUNT],
                  const reef_key *key,
                  reef_dtype dtype,
                  uint64_t commit,
                  const void *payload,
                  size_t bytes) {
    reef_key_bytes encoded;
    uint8_t record[REEF_RECORD_HEADER_BYTES + REEF_COMMIT_BYTES];
    uint8_t sum_key[REEF_SUM_KEY_BYTES_MAX] = {REEF_DB_META}, sum[REEF_SUM_BYTES];
    reef_status status = reef_key_encode(key, &encoded, NULL);
    assert(status == REEF_OK && bytes <= REEF_COMMIT_BYTES);
    reef_put_le64(sum, commit);
    reef_record_content_hash(REEF_DB_META, &encoded, dtype, payload, bytes, sum + 8);
    reef_record_header_write(record, key, &encoded, dtype, commit, bytes, sum + 8);
    memcpy(record + REEF_RECORD_HEADER_BYTES, payload, bytes);
    memcpy(sum_key + 1, encoded.data, encoded.bytes);
    MDB_val name = {encoded.bytes, encoded.data}, its_sum = {sizeof(sum), sum};
    MDB_val value = {REEF_RECORD_HEADER_BYTES + bytes, record},
            name_of_sum = {1 + encoded.bytes, sum_key};
    int code = mdb_put(txn, dbis[REEF_DB_META], &name, &value, 0);
    return code == 0 ? mdb_put(txn, dbis[REEF_DB_SUMS], &name_of_sum, &its_sum, 0) : code;
}

int reef_format_write(MDB_txn *txn, const MDB_dbi dbis[REEF_DB_COUNT]) {
    uint8_t version[4];
    reef_put_le32(version, REEF_FORMAT_VERSION);
    return reef_meta_put(txn, dbis, &format_key, REEF_U32, 0, version, sizeof(version));
}
