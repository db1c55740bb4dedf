// An archive becomes a text, or a range of it.
//
// Nothing of it is trusted. Checksums of the header and of the pieces come before any memory is
// loaded; those of the text say in the end whether the memories were the same.
#include "archive_format.h"
#include "piece_coder.h"
#include "pool_memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct reading {
    const uint8_t *archive;
    reef_archive_header header;
    uint64_t begin, end;
    uint32_t first, last; // pieces in which they lie: first .. last - 1
    uint8_t *text;
    reef_generation_memory memory; // of the pieces of the run under way
} reading;

// ---- info ---------------------------------------------------------------------------------------

static void add_shares(reef_archive_info *out, const reef_archive_header *header) {
    for (uint32_t m = 0; m < header->memory_count; m++)
        out->shares[m].generation = header->memories[m].generation;
    for (uint32_t p = 0; p < header->piece_count; p++) {
        const reef_archive_piece *piece = &header->pieces[p];
        if (piece->memory == REEF_ARCHIVE_RAW) {
            out->raw_count++;
            continue;
        }
        reef_archive_share *share = &out->shares[piece->memory];
        share->piece_count++;
        share->text_bytes += reef_archive_piece_text_bytes(header, p);
        share->bytes += piece->bytes;
    }
}

reef_status reef_archive_read_info(reef_archive_info *out,
                                   const uint8_t *archive,
                                   size_t count,
                                   reef_error *err) {
    reef_archive_header header;
    *out = (reef_archive_info){0};
    reef_status status = reef_archive_header_parse(&header, archive, count, err);
    if (status != REEF_OK) return status;
    memcpy(out->state, header.state, sizeof(out->state));
    memcpy(out->pool, header.pool, sizeof(out->pool));
    memcpy(out->text_hash, header.text_hash, sizeof(out->text_hash));
    out->of_snapshot = header.of_snapshot;
    out->stream_bytes = header.stream_bytes;
    out->pool_made_ms = header.pool_made_ms;
    out->text_bytes = header.text_bytes;
    out->bytes = count;
    out->piece_bytes = header.piece_bytes;
    out->piece_count = header.piece_count;
    out->share_count = header.memory_count;
    // One more than needed: calloc of nothing may return NULL.
    out->shares = calloc((size_t)header.memory_count + 1, sizeof(*out->shares));
    if (out->shares == NULL)
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for facts of an archive");
    else
        add_shares(out, &header);
    reef_archive_header_release(&header);
    if (status != REEF_OK) *out = (reef_archive_info){0};
    return status;
}

void reef_archive_info_release(reef_archive_info *info) {
    free(info->shares);
    *info = (reef_archive_info){0};
}

// ---- pieces -------------------------------------------------------------------------------------

// Copies what of a piece lies in the range.
static void keep(reading *r, uint32_t piece, const uint8_t *text) {
    uint64_t at = (uint64_t)piece * r->header.piece_bytes,
             end = at + reef_archive_piece_text_bytes(&r->header, piece);
    uint64_t from = at > r->begin ? at : r->begin, to = end < r->end ? end : r->end;
    memcpy(r->text + (from - r->begin), text + (from - at), (size_t)(to - from));
}

static reef_status check_pieces(reading *r, reef_error *err) {
    for (uint32_t p = r->first; p < r->last; p++) {
        const reef_archive_piece *piece = &r->header.pieces[p];
        if (reef_archive_sum(r->archive + piece->at, piece->bytes) != piece->sum)
            return reef_fail(err, REEF_ERR_CORRUPT,
                             "the archive is damaged: piece %" PRIu32 ", bytes %" PRIu64
                             " to %" PRIu64 " of the file, does not have its checksum",
                             p, piece->at, piece->at + piece->bytes);
    }
    return REEF_OK;
}

static reef_status expand(reading *r,
                          reef_piece_work *work,
                          uint32_t number,
                          uint8_t *text,
                          size_t bytes,
                          reef_error *err) {
    const reef_archive_piece *piece = &r->header.pieces[number];
    reef_memory_session *session = NULL;
    reef_decoder decoder;
    reef_decoder_init(&decoder, r->archive + piece->at, piece->bytes);
    reef_status status =
        reef_memory_session_open(&session, r->memory.memory, REEF_READ_ADAPTING, err);
    if (status == REEF_OK) status = reef_piece_decode(session, text, bytes, &decoder, work, err);
    reef_memory_session_close(session);
    if (status != REEF_OK || reef_archive_sum(text, bytes) == piece->text_sum) return status;
    return reef_fail(err, REEF_ERR_CORRUPT,
                     "piece %" PRIu32 " expands to another text: its code is as it was written, so "
                     "the memory that was loaded, or this program, is not the one that coded it",
                     number);
}

static reef_status expand_piece(void *context,
                                reef_piece_work *work,
                                size_t piece,
                                reef_error *err) {
    reading *r = context;
    uint32_t number = (uint32_t)piece;
    size_t bytes = reef_archive_piece_text_bytes(&r->header, number);
    uint64_t at = (uint64_t)number * r->header.piece_bytes;
    // Most pieces lie in the range as a whole.
    if (at >= r->begin && at + bytes <= r->end)
        return expand(r, work, number, r->text + (at - r->begin), bytes, err);
    uint8_t *text = malloc(bytes);
    if (text == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a piece of %zu bytes", bytes);
    reef_status status = expand(r, work, number, text, bytes, err);
    if (status == REEF_OK) keep(r, number, text);
    free(text);
    return status;
}

// The pieces that are coded by one memory; *count says how many.
static void list_pieces(const reading *r, uint32_t memory, uint32_t *list, size_t *count) {
    *count = 0;
    for (uint32_t p = r->first; p < r->last; p++)
        if (r->header.pieces[p].memory == memory) list[(*count)++] = p;
}

static reef_status expand_with(reading *r,
                               reef_store *store,
                               uint32_t memory,
                               reef_piece_work *work,
                               uint32_t *list,
                               reef_error *err) {
    size_t count;
    reef_memory_source source;
    list_pieces(r, memory, list, &count);
    if (count == 0) return REEF_OK;
    reef_status status =
        reef_memory_source_find(&source, store, &r->header, &r->header.memories[memory], err);
    if (status == REEF_OK)
        status =
            reef_memory_source_load(&r->memory, store, &source, r->header.memory_bytes_max, err);
    if (status == REEF_OK) status = reef_piece_work_run(work, count, list, expand_piece, r, err);
    reef_generation_memory_release(&r->memory);
    return status;
}

static uint64_t coded_bytes(const reading *r) {
    uint64_t sum = 0;
    for (uint32_t p = r->first; p < r->last; p++)
        if (r->header.pieces[p].memory != REEF_ARCHIVE_RAW)
            sum += reef_archive_piece_text_bytes(&r->header, p);
    return sum;
}

static reef_status expand_all(reading *r,
                              reef_store *store,
                              const reef_archive_options *options,
                              reef_error *err) {
    reef_piece_work work;
    uint32_t *list = calloc((size_t)(r->last - r->first) + 1, sizeof(*list));
    if (list == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a list of pieces");
    reef_status status = reef_piece_work_init(&work, options, coded_bytes(r), err);
    if (status == REEF_OK) {
        for (uint32_t m = 0; status == REEF_OK && m < r->header.memory_count; m++)
            status = expand_with(r, store, m, &work, list, err);
        reef_piece_work_release(&work);
    }
    free(list);
    for (uint32_t p = r->first; status == REEF_OK && p < r->last; p++)
        if (r->header.pieces[p].memory == REEF_ARCHIVE_RAW)
            keep(r, p, r->archive + r->header.pieces[p].at);
    return status;
}

static reef_status check_range(reading *r, reef_error *err) {
    if (r->begin > r->end || r->end > r->header.text_bytes)
        return reef_fail(err, REEF_ERR_INVALID,
                         "bytes %" PRIu64 " to %" PRIu64 " are no range of a text of %" PRIu64
                         " bytes",
                         r->begin, r->end, r->header.text_bytes);
    r->first = (uint32_t)(r->begin / r->header.piece_bytes);
    r->last = (uint32_t)((r->end + r->header.piece_bytes - 1) / r->header.piece_bytes);
    if (r->begin == r->end) r->last = r->first;
    return REEF_OK;
}

static reef_status check_text(const reading *r, reef_error *err) {
    uint8_t hash[REEF_HASH_BYTES];
    if (r->begin > 0 || r->end < r->header.text_bytes) return REEF_OK; // pieces have sums
    reef_archive_hash(r->text, (size_t)r->end, hash);
    return memcmp(hash, r->header.text_hash, sizeof(hash)) == 0
               ? REEF_OK
               : reef_fail(err, REEF_ERR_CORRUPT,
                           "the text of the archive does not have the hash that it had");
}

reef_status reef_archive_read(reef_store *store,
                              const uint8_t *archive,
                              size_t count,
                              uint64_t begin,
                              uint64_t end,
                              const reef_archive_options *options,
                              uint8_t *text, // NOLINT(readability-non-const-parameter): written
                              reef_error *err) {
    reading r = {.archive = archive, .begin = begin, .end = end, .text = text};
    reef_status status = reef_archive_header_parse(&r.header, archive, count, err);
    if (status != REEF_OK) return status;
    status = check_range(&r, err);
    if (status == REEF_OK) status = check_pieces(&r, err);
    if (status == REEF_OK) status = expand_all(&r, store, options, err);
    if (status == REEF_OK) status = check_text(&r, err);
    reef_archive_header_release(&r.header);
    return status;
}
