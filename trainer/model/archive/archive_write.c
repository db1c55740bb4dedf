// A text becomes an archive.
//
// Memories are loaded one after the other, first to see which takes least for the beginning of each
// piece, then to code the pieces of each. All is counted in whole bytes of code, so the choice is
// the same on every machine.
#include "archive_format.h"
#include "piece_coder.h"
#include "pool_memory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define TRIAL_BYTES (16u << 10) // of the beginning of a piece

typedef struct writing {
    reef_store *store;
    const uint8_t *text;
    reef_archive_state state;
    reef_archive_header header;
    reef_piece_work work;
    bool works;                    // `work` is to be released
    size_t loaded;                 // which of the sources `memory` is of
    reef_generation_memory memory; // empty: none is loaded
    uint32_t *choice;              // (pieces) index of the memory of each
    size_t *cost;                  // (pieces) bytes that it takes for the beginning
    uint32_t *list;                // (pieces) those of the run under way
    uint8_t **codes;               // (pieces) owned; NULL: stored as it is
} writing;

static const uint8_t *text_of(const writing *w, size_t piece) {
    return w->text + piece * w->header.piece_bytes;
}

static size_t trial_bytes(const writing *w, uint32_t piece) {
    size_t bytes = reef_archive_piece_text_bytes(&w->header, piece);
    return bytes < TRIAL_BYTES ? bytes : TRIAL_BYTES;
}

static reef_status load(writing *w, size_t index, reef_error *err) {
    if (w->memory.memory != NULL && w->loaded == index) return REEF_OK;
    reef_generation_memory_release(&w->memory);
    w->loaded = index;
    return reef_memory_source_load(&w->memory, w->store, &w->state.sources[index],
                                   w->header.memory_bytes_max, err);
}

// ---- which memory -------------------------------------------------------------------------------

static reef_status try_piece(void *context, reef_piece_work *work, size_t piece, reef_error *err) {
    writing *w = context;
    reef_memory_session *session = NULL;
    reef_encoder encoder;
    reef_encoder_init(&encoder, NULL, 0);
    reef_status status =
        reef_memory_session_open(&session, w->memory.memory, REEF_READ_ADAPTING, err);
    if (status == REEF_OK)
        status = reef_piece_encode(session, text_of(w, piece), trial_bytes(w, (uint32_t)piece),
                                   &encoder, work, err);
    reef_memory_session_close(session);
    if (status != REEF_OK) return status;
    // The older one among equals.
    if (w->loaded == 0 || encoder.count < w->cost[piece]) {
        w->cost[piece] = encoder.count;
        w->choice[piece] = (uint32_t)w->loaded;
    }
    return REEF_OK;
}

static reef_status choose(writing *w, reef_error *err) {
    reef_status status = REEF_OK;
    if (w->state.count == 1) return status;
    for (uint32_t p = 0; p < w->header.piece_count; p++) w->list[p] = p;
    for (size_t i = 0; status == REEF_OK && i < w->state.count; i++) {
        status = load(w, i, err);
        if (status == REEF_OK)
            status =
                reef_piece_work_run(&w->work, w->header.piece_count, w->list, try_piece, w, err);
    }
    return status;
}

// ---- coding -------------------------------------------------------------------------------------

static reef_status code_piece(void *context, reef_piece_work *work, size_t piece, reef_error *err) {
    writing *w = context;
    reef_archive_piece *out = &w->header.pieces[piece];
    size_t bytes = reef_archive_piece_text_bytes(&w->header, (uint32_t)piece);
    const uint8_t *text = text_of(w, piece);
    reef_memory_session *session = NULL;
    reef_encoder encoder;
    out->text_sum = reef_archive_sum(text, bytes);
    // A code of as many bytes would be no gain.
    uint8_t *code = malloc(bytes);
    if (code == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu bytes", bytes);
    reef_encoder_init(&encoder, code, bytes - 1);
    reef_status status =
        reef_memory_session_open(&session, w->memory.memory, REEF_READ_ADAPTING, err);
    if (status == REEF_OK) status = reef_piece_encode(session, text, bytes, &encoder, work, err);
    reef_memory_session_close(session);
    if (status != REEF_OK || encoder.count > encoder.room) {
        free(code);
        out->bytes = (uint32_t)bytes;
        out->memory = REEF_ARCHIVE_RAW;
        out->sum = out->text_sum;
        return status;
    }
    uint8_t *smaller = realloc(code, encoder.count + 1);
    w->codes[piece] = smaller != NULL ? smaller : code;
    out->bytes = (uint32_t)encoder.count;
    out->memory = (uint32_t)w->loaded;
    out->sum = reef_archive_sum(w->codes[piece], encoder.count);
    return REEF_OK;
}

static reef_status code(writing *w, reef_error *err) {
    reef_status status = REEF_OK;
    // The last one is loaded already where all were tried.
    for (size_t i = w->state.count; status == REEF_OK && i-- > 0;) {
        size_t count = 0;
        for (uint32_t p = 0; p < w->header.piece_count; p++)
            if (w->choice[p] == i) w->list[count++] = p;
        if (count == 0) continue;
        status = load(w, i, err);
        if (status == REEF_OK)
            status = reef_piece_work_run(&w->work, count, w->list, code_piece, w, err);
    }
    return status;
}

// The memories that some piece needs, in the order of generations.
static reef_status list_memories(writing *w, reef_error *err) {
    reef_archive_header *header = &w->header;
    header->memories = calloc(w->state.count, sizeof(*header->memories));
    if (header->memories == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a list of generations");
    for (uint32_t i = 0; i < w->state.count; i++) {
        bool used = false;
        for (uint32_t p = 0; p < header->piece_count; p++) {
            reef_archive_piece *piece = &header->pieces[p];
            // Numbers only become smaller, so none is met twice.
            if (piece->memory != i) continue;
            piece->memory = header->memory_count;
            used = true;
        }
        if (used) header->memories[header->memory_count++] = w->state.sources[i].id;
    }
    return REEF_OK;
}

static reef_status assemble(writing *w, uint8_t **archive, size_t *archive_bytes, reef_error *err) {
    reef_status status = list_memories(w, err);
    if (status != REEF_OK) return status;
    size_t all = reef_archive_header_bytes(&w->header), at = all;
    for (uint32_t p = 0; p < w->header.piece_count; p++) all += w->header.pieces[p].bytes;
    uint8_t *out = malloc(all);
    if (out == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for an archive of %zu bytes", all);
    reef_archive_header_write(&w->header, out);
    for (uint32_t p = 0; p < w->header.piece_count; p++) {
        const uint8_t *from = w->codes[p] != NULL ? w->codes[p] : text_of(w, p);
        memcpy(out + at, from, w->header.pieces[p].bytes);
        at += w->header.pieces[p].bytes;
    }
    *archive = out;
    *archive_bytes = all;
    return REEF_OK;
}

// ---- all of it ----------------------------------------------------------------------------------

static reef_status begin(writing *w,
                         size_t count,
                         const reef_archive_options *options,
                         reef_error *err) {
    uint32_t piece_bytes = REEF_ARCHIVE_PIECE_BYTES_DEFAULT;
    if (options != NULL && options->piece_bytes != 0) piece_bytes = options->piece_bytes;
    if (piece_bytes < REEF_ARCHIVE_PIECE_BYTES_MIN || piece_bytes > REEF_ARCHIVE_PIECE_BYTES_MAX)
        return reef_fail(err, REEF_ERR_INVALID, "pieces of %" PRIu32 " bytes: they have %u to %u",
                         piece_bytes, REEF_ARCHIVE_PIECE_BYTES_MIN, REEF_ARCHIVE_PIECE_BYTES_MAX);
    if (count > REEF_ARCHIVE_TEXT_BYTES_MAX)
        return reef_fail(err, REEF_ERR_INVALID,
                         "a text of %zu bytes: an archive has room for %" PRIu64, count,
                         REEF_ARCHIVE_TEXT_BYTES_MAX);
    uint32_t pieces = (uint32_t)((count + piece_bytes - 1) / piece_bytes);
    w->header = w->state.header;
    w->header.text_bytes = count;
    w->header.piece_bytes = piece_bytes;
    w->header.piece_count = pieces;
    reef_archive_hash(w->text, count, w->header.text_hash);
    // One more of each, so that none is empty.
    w->header.pieces = calloc((size_t)pieces + 1, sizeof(*w->header.pieces));
    w->choice = calloc((size_t)pieces + 1, sizeof(*w->choice));
    w->cost = calloc((size_t)pieces + 1, sizeof(*w->cost));
    w->list = calloc((size_t)pieces + 1, sizeof(*w->list));
    w->codes = calloc((size_t)pieces + 1, sizeof(*w->codes));
    if (w->header.pieces == NULL || w->choice == NULL || w->cost == NULL || w->list == NULL ||
        w->codes == NULL)
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %" PRIu32 " pieces", pieces);
    uint64_t total = count;
    for (uint32_t p = 0; w->state.count > 1 && p < pieces; p++)
        total += trial_bytes(w, p) * w->state.count;
    reef_status status = reef_piece_work_init(&w->work, options, total, err);
    w->works = status == REEF_OK;
    return status;
}

static void release(writing *w) {
    for (uint32_t p = 0; w->codes != NULL && p < w->header.piece_count; p++) free(w->codes[p]);
    free(w->codes);
    free(w->list);
    free(w->cost);
    free(w->choice);
    if (w->works) reef_piece_work_release(&w->work);
    reef_generation_memory_release(&w->memory);
    reef_archive_header_release(&w->header);
    reef_archive_state_release(&w->state);
}

reef_status reef_archive_write(reef_store *store,
                               const char *as_of,
                               const uint8_t *text,
                               size_t count,
                               const reef_archive_options *options,
                               uint8_t **archive,
                               size_t *archive_bytes,
                               reef_error *err) {
    writing w = {.store = store, .text = text};
    *archive = NULL;
    *archive_bytes = 0;
    reef_status status = reef_archive_state_find(&w.state, store, as_of, err);
    if (status == REEF_OK) status = begin(&w, count, options, err);
    if (status == REEF_OK) status = choose(&w, err);
    if (status == REEF_OK) status = code(&w, err);
    if (status == REEF_OK) status = assemble(&w, archive, archive_bytes, err);
    release(&w);
    return status;
}
