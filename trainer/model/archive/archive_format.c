// See archive_format.h. Nothing is taken from bytes before their checksum is right, and no memory
// is asked for that the length of the archive does not bear out.
#include "archive_format.h"

#include "reef_byte_order.h"

#include <xxhash.h>

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC "REEFARCH"
#define MAGIC_BYTES 8
#define VERSION_END 12 // the first bytes, which every version has
#define FIXED_BYTES 128
#define MEMORY_BYTES 48
#define PIECE_BYTES 24
#define SUM_BYTES 8

uint64_t reef_archive_sum(const void *bytes, size_t count) {
    return XXH3_64bits(bytes, count);
}

void reef_archive_hash(const void *bytes, size_t count, uint8_t out[REEF_HASH_BYTES]) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, count));
    memcpy(out, canonical.digest, REEF_HASH_BYTES);
}

void reef_archive_header_release(reef_archive_header *header) {
    free(header->memories);
    free(header->pieces);
    *header = (reef_archive_header){0};
}

size_t reef_archive_piece_text_bytes(const reef_archive_header *header, uint32_t piece) {
    uint64_t begin = (uint64_t)piece * header->piece_bytes, left = header->text_bytes - begin;
    return left < header->piece_bytes ? (size_t)left : header->piece_bytes;
}

static size_t bytes_of(size_t name_bytes, size_t memory_count, size_t piece_count) {
    return FIXED_BYTES + name_bytes + MEMORY_BYTES * memory_count + PIECE_BYTES * piece_count +
           SUM_BYTES;
}

size_t reef_archive_header_bytes(const reef_archive_header *header) {
    return bytes_of(strlen(header->state), header->memory_count, header->piece_count);
}

// ---- writing ------------------------------------------------------------------------------------

void reef_archive_header_write(const reef_archive_header *header, uint8_t *out) {
    size_t name_bytes = strlen(header->state), all = reef_archive_header_bytes(header);
    memset(out, 0, FIXED_BYTES);
    memcpy(out, MAGIC, MAGIC_BYTES); // NOLINT(bugprone-not-null-terminated-result): eight letters
    reef_put_le32(out + 8, REEF_ARCHIVE_VERSION);
    reef_put_le32(out + 12, (uint32_t)all);
    reef_put_le32(out + 16, REEF_ARCHIVE_MODE_MEMORY);
    reef_put_le32(out + 20, REEF_ARCHIVE_CODER);
    memcpy(out + 24, header->pool, REEF_HASH_BYTES);
    reef_put_le64(out + 40, header->pool_made_ms);
    reef_put_le64(out + 48, header->memory_bytes_max);
    reef_put_le32(out + 56, header->of_snapshot);
    reef_put_le32(out + 60, (uint32_t)name_bytes);
    reef_put_le64(out + 64, header->stream_bytes);
    memcpy(out + 72, header->root, REEF_HASH_BYTES);
    reef_put_le64(out + 88, header->text_bytes);
    memcpy(out + 96, header->text_hash, REEF_HASH_BYTES);
    reef_put_le32(out + 112, header->piece_bytes);
    reef_put_le32(out + 116, header->piece_count);
    reef_put_le32(out + 120, header->memory_count);
    uint8_t *at = out + FIXED_BYTES;
    memcpy(at, header->state, name_bytes);
    at += name_bytes;
    for (uint32_t m = 0; m < header->memory_count; m++, at += MEMORY_BYTES) {
        const reef_archive_memory *memory = &header->memories[m];
        reef_put_le32(at, memory->generation);
        reef_put_le32(at + 4, memory->sealed);
        reef_put_le64(at + 8, memory->learned_bytes);
        memcpy(at + 16, memory->chain, REEF_HASH_BYTES);
        memcpy(at + 32, memory->root, REEF_HASH_BYTES);
    }
    for (uint32_t p = 0; p < header->piece_count; p++, at += PIECE_BYTES) {
        const reef_archive_piece *piece = &header->pieces[p];
        reef_put_le32(at, piece->bytes);
        reef_put_le32(at + 4, piece->memory);
        reef_put_le64(at + 8, piece->sum);
        reef_put_le64(at + 16, piece->text_sum);
    }
    reef_put_le64(at, reef_archive_sum(out, all - SUM_BYTES));
    assert(at + SUM_BYTES == out + all);
}

// ---- reading ------------------------------------------------------------------------------------

static reef_status damaged(reef_error *err, const char *what) {
    return reef_fail(err, REEF_ERR_CORRUPT, "the archive is damaged: %s", what);
}

static reef_status cut_off(reef_error *err, uint64_t have, uint64_t all) {
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "the archive is cut off: it has %" PRIu64 " of %s%" PRIu64 " bytes", have,
                     have < FIXED_BYTES ? "more than " : "", all);
}

// What all versions have in common, and that this is one of ours.
static reef_status check_beginning(const uint8_t *archive, size_t count, reef_error *err) {
    size_t letters = count < MAGIC_BYTES ? count : MAGIC_BYTES;
    if (count == 0 || memcmp(archive, MAGIC, letters) != 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "it is no archive: those of reef compress begin with " MAGIC);
    if (count < VERSION_END) return cut_off(err, count, FIXED_BYTES);
    uint32_t version = reef_get_le32(archive + 8);
    if (version > REEF_ARCHIVE_VERSION)
        return reef_fail(
            err, REEF_ERR_VERSION,
            "the archive has format version %" PRIu32
            ", and this program reads up to %u: a newer one wrote it, or it is damaged",
            version, REEF_ARCHIVE_VERSION);
    if (version == 0) return damaged(err, "there is no format version 0");
    if (count < FIXED_BYTES) return cut_off(err, count, FIXED_BYTES);
    uint32_t all = reef_get_le32(archive + 12);
    if (all < bytes_of(1, 0, 0) || all > REEF_ARCHIVE_HEADER_BYTES_MAX)
        return damaged(err, "the length of its header makes no sense");
    if (count < all) return cut_off(err, count, all);
    if (reef_get_le64(archive + all - SUM_BYTES) != reef_archive_sum(archive, all - SUM_BYTES))
        return damaged(err, "the checksum of its header is wrong");
    return REEF_OK;
}

static reef_status check_coder(const uint8_t *archive, reef_error *err) {
    uint32_t mode = reef_get_le32(archive + 16), coder = reef_get_le32(archive + 20);
    if (mode != REEF_ARCHIVE_MODE_MEMORY)
        return reef_fail(err, REEF_ERR_VERSION,
                         "the archive is coded in mode %" PRIu32
                         ", and this program knows %u alone",
                         mode, REEF_ARCHIVE_MODE_MEMORY);
    if (coder != REEF_ARCHIVE_CODER)
        return reef_fail(err, REEF_ERR_VERSION,
                         "the archive is coded by context memories of version %" PRIu32
                         ", and those of this program have version %u",
                         coder, REEF_ARCHIVE_CODER);
    return REEF_OK;
}

static reef_status read_fixed(reef_archive_header *out,
                              const uint8_t *archive,
                              size_t *name_bytes,
                              reef_error *err) {
    memcpy(out->pool, archive + 24, REEF_HASH_BYTES);
    out->pool_made_ms = reef_get_le64(archive + 40);
    out->memory_bytes_max = reef_get_le64(archive + 48);
    out->of_snapshot = reef_get_le32(archive + 56) != 0;
    *name_bytes = reef_get_le32(archive + 60);
    out->stream_bytes = reef_get_le64(archive + 64);
    memcpy(out->root, archive + 72, REEF_HASH_BYTES);
    out->text_bytes = reef_get_le64(archive + 88);
    memcpy(out->text_hash, archive + 96, REEF_HASH_BYTES);
    out->piece_bytes = reef_get_le32(archive + 112);
    out->piece_count = reef_get_le32(archive + 116);
    out->memory_count = reef_get_le32(archive + 120);
    if (*name_bytes < 1 || *name_bytes > REEF_NAME_BYTES_MAX)
        return damaged(err, "the name of its state has no length that names have");
    if (out->text_bytes > REEF_ARCHIVE_TEXT_BYTES_MAX)
        return damaged(err, "its text would have more bytes than fit into an archive");
    if (out->piece_bytes < REEF_ARCHIVE_PIECE_BYTES_MIN ||
        out->piece_bytes > REEF_ARCHIVE_PIECE_BYTES_MAX)
        return damaged(err, "its pieces have no length that pieces have");
    // Both factors were bounded, so that nothing overflows from here on.
    if (out->piece_count != (out->text_bytes + out->piece_bytes - 1) / out->piece_bytes)
        return damaged(err, "the number of its pieces is not that of its text");
    if (out->memory_count > out->piece_count)
        return damaged(err, "it has more memories than pieces");
    if (reef_get_le32(archive + 12) != bytes_of(*name_bytes, out->memory_count, out->piece_count))
        return damaged(err, "the length of its header is not that of its parts");
    return REEF_OK;
}

static void read_memory(reef_archive_memory *memory, const uint8_t *at) {
    memory->generation = reef_get_le32(at);
    memory->sealed = reef_get_le32(at + 4) != 0;
    memory->learned_bytes = reef_get_le64(at + 8);
    memcpy(memory->chain, at + 16, REEF_HASH_BYTES);
    memcpy(memory->root, at + 32, REEF_HASH_BYTES);
}

static reef_status read_piece(reef_archive_header *out,
                              uint32_t number,
                              const uint8_t *at,
                              uint64_t *offset,
                              reef_error *err) {
    size_t text = reef_archive_piece_text_bytes(out, number);
    reef_archive_piece *piece = &out->pieces[number];
    *piece = (reef_archive_piece){.bytes = reef_get_le32(at),
                                  .memory = reef_get_le32(at + 4),
                                  .sum = reef_get_le64(at + 8),
                                  .text_sum = reef_get_le64(at + 16),
                                  .at = *offset};
    *offset += piece->bytes;
    if (piece->memory == REEF_ARCHIVE_RAW)
        return piece->bytes == text
                   ? REEF_OK
                   : damaged(err, "a piece that is stored as it is has another length");
    if (piece->memory >= out->memory_count)
        return damaged(err, "a piece is coded by a memory that it does not list");
    return piece->bytes < text ? REEF_OK : damaged(err, "a coded piece is longer than its text");
}

static reef_status read_parts(reef_archive_header *out,
                              const uint8_t *archive,
                              size_t count,
                              size_t name_bytes,
                              reef_error *err) {
    const uint8_t *at = archive + FIXED_BYTES;
    memcpy(out->state, at, name_bytes);
    if (strlen(out->state) != name_bytes)
        return damaged(err, "the name of its state has a zero byte");
    at += name_bytes;
    out->memories = calloc((size_t)out->memory_count + 1, sizeof(*out->memories));
    out->pieces = calloc((size_t)out->piece_count + 1, sizeof(*out->pieces));
    if (out->memories == NULL || out->pieces == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY,
                         "no memory for the %" PRIu32 " pieces of an archive", out->piece_count);
    // Counts were checked against the header's length, so both lists lie within it. Pieces follow
    // each other without gaps, and the last one ends with the archive.
    for (uint32_t m = 0; m < out->memory_count; m++, at += MEMORY_BYTES)
        read_memory(&out->memories[m], at);
    uint64_t offset = reef_get_le32(archive + 12);
    for (uint32_t p = 0; p < out->piece_count; p++, at += PIECE_BYTES) {
        reef_status status = read_piece(out, p, at, &offset, err);
        if (status != REEF_OK) return status;
    }
    if (count < offset) return cut_off(err, count, offset);
    if (count > offset)
        return reef_fail(err, REEF_ERR_CORRUPT,
                         "the archive is damaged: %" PRIu64 " bytes follow behind its end",
                         count - offset);
    return REEF_OK;
}

reef_status reef_archive_header_parse(reef_archive_header *out,
                                      const uint8_t *archive,
                                      size_t count,
                                      reef_error *err) {
    size_t name_bytes = 0;
    *out = (reef_archive_header){0};
    reef_status status = check_beginning(archive, count, err);
    if (status == REEF_OK) status = check_coder(archive, err);
    if (status == REEF_OK) status = read_fixed(out, archive, &name_bytes, err);
    if (status == REEF_OK) status = read_parts(out, archive, count, name_bytes, err);
    if (status != REEF_OK) reef_archive_header_release(out);
    return status;
}
