// How the files of a join travel: the next chunk of every rank's to all others at once, until the
// longest one has ended. See joins.h.
#include "joins_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES ((size_t)1 << 20)      // of a file, in one exchange
#define CHUNKS_BYTES_MAX ((size_t)1 << 28) // of all ranks together

typedef struct travel {
    FILE **files;    // (count) this rank's own is read, the others' are written
    uint64_t *bytes; // (count) of each
    size_t *sizes;   // (count) of the exchange under way
    size_t chunk;
} travel;

static reef_status open_files(reef_joins *joins, travel *t, uint64_t number, reef_error *err) {
    char path[PATH_BYTES_MAX];
    for (size_t r = 0; r < reef_joins_count(joins); r++) {
        reef_joins_path(joins, number, r, path);
        t->files[r] = fopen(path, r == reef_joins_rank(joins) ? "rb" : "wb");
        if (t->files[r] == NULL) return reef_joins_fail_file("open", path, err);
    }
    return REEF_OK;
}

static size_t part_of(const travel *t, size_t rank, uint64_t at) {
    uint64_t left = t->bytes[rank] > at ? t->bytes[rank] - at : 0;
    return left < t->chunk ? (size_t)left : t->chunk;
}

// The next chunk of every rank's file to all others at once.
static reef_status exchange_chunks(reef_joins *joins, travel *t, uint64_t at, reef_error *err) {
    reef_ranks *ranks = joins->crew->ranks;
    size_t count = reef_joins_count(joins), own = reef_joins_rank(joins);
    memset(t->sizes, 0, count * sizeof(*t->sizes));
    t->sizes[own] = part_of(t, own, at);
    reef_ranks_message *send = reef_ranks_room(ranks, false, t->sizes);
    if (fread(send[own].bytes, 1, t->sizes[own], t->files[own]) != t->sizes[own])
        return reef_joins_fail_file("read", "its file of the join", err);
    for (size_t r = 0; r < count; r++) send[r] = send[own]; // all get the same bytes
    for (size_t r = 0; r < count; r++) t->sizes[r] = r == own ? 0 : part_of(t, r, at);
    reef_ranks_message *receive = reef_ranks_room(ranks, true, t->sizes);
    reef_ranks_exchange(ranks);
    for (size_t r = 0; r < count; r++)
        if (r != own && fwrite(receive[r].bytes, 1, t->sizes[r], t->files[r]) != t->sizes[r])
            return reef_joins_fail_file("write", "what another rank sent", err);
    return REEF_OK;
}

static reef_status close_files(reef_joins *joins, travel *t, reef_status status, reef_error *err) {
    for (size_t r = 0; r < reef_joins_count(joins); r++)
        if (t->files[r] != NULL && fclose(t->files[r]) != 0 && status == REEF_OK)
            status = reef_joins_fail_file("write", "what another rank sent", err);
    return status;
}

reef_status reef_joins_exchange(
    reef_joins *joins, uint64_t number, uint64_t own_bytes, uint64_t *received, reef_error *err) {
    size_t count = reef_joins_count(joins), own = reef_joins_rank(joins);
    travel t = {.files = calloc(count, sizeof(FILE *)),
                .bytes = calloc(count, sizeof(uint64_t)),
                .sizes = calloc(count, sizeof(size_t)),
                .chunk = CHUNKS_BYTES_MAX / count < CHUNK_BYTES ? CHUNKS_BYTES_MAX / count
                                                                : CHUNK_BYTES};
    reef_status status = REEF_OK;
    uint64_t longest = 0;
    *received = 0;
    if (t.files == NULL || t.bytes == NULL || t.sizes == NULL)
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to join %zu ranks", count);
    if (status == REEF_OK) status = open_files(joins, &t, number, err);
    if (status == REEF_OK) {
        t.bytes[own] = own_bytes;
        const reef_ranks_array each = {t.bytes, sizeof(*t.bytes), sizeof(*t.bytes)};
        reef_ranks_gather(joins->crew->ranks, count, 1, &each);
    }
    for (size_t r = 0; status == REEF_OK && r < count; r++) {
        if (t.bytes[r] > longest) longest = t.bytes[r];
        if (r != own) *received += t.bytes[r];
    }
    for (uint64_t at = 0; status == REEF_OK && count > 1 && at < longest; at += t.chunk)
        status = exchange_chunks(joins, &t, at, err);
    if (t.files != NULL) status = close_files(joins, &t, status, err);
    free(t.files);
    free(t.bytes);
    free(t.sizes);
    return status;
}
