// See reef_ranks.h. Messages are packed by piece, each array after the other; the room for them
// grows to what the largest exchange needs and is kept.
#include "reef_ranks.h"

#include "reef_system.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

typedef struct room {
    unsigned char *bytes;
    size_t capacity;
    reef_ranks_message *messages; // (count) views of it
} room;

struct reef_ranks {
    reef_ranks_link link;
    room send, receive;
    size_t *sizes; // (count) of the gather under way
    reef_ranks_part part;
    reef_ranks_traffic traffic[REEF_RANKS_PARTS];
};

reef_status reef_ranks_new(reef_ranks **out, const reef_ranks_link *link, reef_error *err) {
    *out = NULL;
    if (link->count == 0 || link->count > REEF_RANKS_MAX || link->rank >= link->count)
        return reef_fail(err, REEF_ERR_INVALID, "rank %zu of %zu; choose at most %d ranks",
                         link->rank, link->count, REEF_RANKS_MAX);
    reef_ranks *ranks = calloc(1, sizeof(*ranks));
    if (ranks == NULL) return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for ranks");
    ranks->link = *link;
    ranks->send.messages = calloc(link->count, sizeof(*ranks->send.messages));
    ranks->receive.messages = calloc(link->count, sizeof(*ranks->receive.messages));
    ranks->sizes = calloc(link->count, sizeof(*ranks->sizes));
    if (ranks->send.messages == NULL || ranks->receive.messages == NULL || ranks->sizes == NULL) {
        reef_ranks_free(ranks);
        return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for %zu ranks", link->count);
    }
    *out = ranks;
    return REEF_OK;
}

void reef_ranks_free(reef_ranks *ranks) {
    if (ranks == NULL) return;
    free(ranks->send.bytes);
    free(ranks->send.messages);
    free(ranks->receive.bytes);
    free(ranks->receive.messages);
    free(ranks->sizes);
    free(ranks);
}

size_t reef_ranks_rank(const reef_ranks *ranks) {
    return ranks == NULL ? 0 : ranks->link.rank;
}

size_t reef_ranks_count(const reef_ranks *ranks) {
    return ranks == NULL ? 1 : ranks->link.count;
}

void reef_ranks_share(
    const reef_ranks *ranks, size_t rank, size_t pieces, size_t *first, size_t *end) {
    size_t count = reef_ranks_count(ranks);
    *first = rank * pieces / count;
    *end = (rank + 1) * pieces / count;
}

void reef_ranks_end(reef_ranks *ranks, const char *why) {
    ranks->link.end(ranks->link.context, why);
    abort(); // a link's end does not return
}

reef_ranks_message *reef_ranks_room(reef_ranks *ranks, bool receive, const size_t *sizes) {
    room *of = receive ? &ranks->receive : &ranks->send;
    size_t bytes = 0, at = 0;
    for (size_t r = 0; r < ranks->link.count; r++) bytes += sizes[r];
    if (bytes > of->capacity) {
        free(of->bytes);
        of->bytes = malloc(bytes);
        of->capacity = of->bytes == NULL ? 0 : bytes;
        // The others wait for this message: nobody can go on.
        if (of->bytes == NULL) reef_ranks_end(ranks, "no memory for an exchange between ranks");
    }
    for (size_t r = 0; r < ranks->link.count; at += sizes[r++])
        of->messages[r] = (reef_ranks_message){of->bytes + at, sizes[r]};
    return of->messages;
}

void reef_ranks_exchange(reef_ranks *ranks) {
    reef_ranks_traffic *traffic = &ranks->traffic[ranks->part];
    double start = reef_seconds();
    ranks->link.exchange(ranks->link.context, ranks->send.messages, ranks->receive.messages);
    for (size_t r = 0; r < ranks->link.count; r++) {
        if (r == ranks->link.rank) continue;
        traffic->sent_bytes += ranks->send.messages[r].size;
        traffic->received_bytes += ranks->receive.messages[r].size;
    }
    traffic->exchanges++;
    traffic->waiting_seconds += reef_seconds() - start;
}

void reef_ranks_set_part(reef_ranks *ranks, reef_ranks_part part) {
    ranks->part = part;
}

void reef_ranks_note_packing(reef_ranks *ranks, double seconds) {
    ranks->traffic[ranks->part].packing_seconds += seconds;
}

// ---- gather -------------------------------------------------------------------------------------

static size_t piece_bytes(size_t count, const reef_ranks_array *arrays) {
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) bytes += arrays[i].bytes;
    return bytes;
}

// Between the arrays and the bytes of a message that holds pieces first .. end - 1.
static void copy_pieces(unsigned char *message,
                        bool into_arrays,
                        size_t first,
                        size_t end,
                        size_t count,
                        const reef_ranks_array *arrays) {
    for (size_t i = 0; i < count; i++) {
        unsigned char *base = arrays[i].base;
        size_t bytes = arrays[i].bytes, stride = arrays[i].stride;
        for (size_t piece = first; piece < end; piece++, message += bytes)
            if (into_arrays)
                memcpy(base + piece * stride, message, bytes);
            else
                memcpy(message, base + piece * stride, bytes);
    }
}

void reef_ranks_gather(reef_ranks *ranks,
                       size_t pieces,
                       size_t count,
                       const reef_ranks_array *arrays) {
    size_t each = piece_bytes(count, arrays), first, end;
    if (reef_ranks_count(ranks) == 1 || each == 0) return;
    size_t own = ranks->link.rank, ranks_count = ranks->link.count;
    double start = reef_seconds();
    reef_ranks_share(ranks, own, pieces, &first, &end);
    // Every peer gets the same bytes, which are packed once.
    memset(ranks->sizes, 0, ranks_count * sizeof(*ranks->sizes));
    ranks->sizes[own] = (end - first) * each;
    reef_ranks_message *send = reef_ranks_room(ranks, false, ranks->sizes);
    copy_pieces(send[own].bytes, false, first, end, count, arrays);
    for (size_t r = 0; r < ranks_count; r++) send[r] = send[own];
    for (size_t r = 0; r < ranks_count; r++) {
        reef_ranks_share(ranks, r, pieces, &first, &end);
        ranks->sizes[r] = r == own ? 0 : (end - first) * each;
    }
    reef_ranks_message *receive = reef_ranks_room(ranks, true, ranks->sizes);
    reef_ranks_note_packing(ranks, reef_seconds() - start);
    reef_ranks_exchange(ranks);
    start = reef_seconds();
    for (size_t r = 0; r < ranks_count; r++) {
        if (r == own) continue;
        reef_ranks_share(ranks, r, pieces, &first, &end);
        copy_pieces(receive[r].bytes, true, first, end, count, arrays);
    }
    reef_ranks_note_packing(ranks, reef_seconds() - start);
}

void reef_ranks_tell(reef_ranks *ranks, void *bytes, size_t size) {
    if (reef_ranks_count(ranks) == 1 || size == 0) return;
    bool speaks = ranks->link.rank == 0;
    reef_ranks_part part = ranks->part;
    for (size_t r = 0; r < ranks->link.count; r++) {
        ranks->send.messages[r] = (reef_ranks_message){bytes, speaks ? size : 0};
        ranks->receive.messages[r] = (reef_ranks_message){bytes, !speaks && r == 0 ? size : 0};
    }
    ranks->part = REEF_RANKS_TELL;
    reef_ranks_exchange(ranks);
    ranks->part = part;
}

void reef_ranks_notify(reef_ranks *ranks, uint8_t what) {
    if (reef_ranks_count(ranks) > 1) ranks->link.notify(ranks->link.context, what);
}

bool reef_ranks_heard(reef_ranks *ranks, size_t rank, uint8_t *what) {
    if (reef_ranks_count(ranks) == 1 || rank == ranks->link.rank) return false;
    return ranks->link.heard(ranks->link.context, rank, what);
}

void reef_ranks_traffic_read(const reef_ranks *ranks, reef_ranks_traffic out[REEF_RANKS_PARTS]) {
    static const reef_ranks_traffic NOTHING[REEF_RANKS_PARTS] = {0};
    memcpy(out, ranks == NULL ? NOTHING : ranks->traffic, sizeof(NOTHING));
}
