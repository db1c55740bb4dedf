// A body that came packed; see push.h. What it unpacks to is bounded while it is unpacked.
#include "push.h"

#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#define ROOM_FIRST 65536
#define GZIP_WINDOW (15 + 16) // the largest, and gzip's own header
#define ZSTD_WINDOW_LOG 23    // 8 MiB: what the format asks of every reader

typedef struct unpacking {
    uint8_t *bytes;
    size_t count, room;
    bool too_large;
} unpacking;

static reef_status no_memory(reef_error *err) {
    return reef_fail(err, REEF_ERR_NO_MEMORY, "no memory to unpack a body");
}

// Space for more bytes; one beyond the bound shows that it is crossed.
static reef_status make_space(unpacking *u, reef_error *err) {
    if (u->count > REEF_PUSH_UNPACKED_BYTES_MAX) {
        u->too_large = true;
        return reef_fail(err, REEF_ERR_INVALID,
                         "the body has more than %u bytes once it is unpacked: send less at once",
                         REEF_PUSH_UNPACKED_BYTES_MAX);
    }
    if (u->count < u->room) return REEF_OK;
    size_t room = u->room > 0 ? 2 * u->room : ROOM_FIRST;
    if (room > REEF_PUSH_UNPACKED_BYTES_MAX) room = REEF_PUSH_UNPACKED_BYTES_MAX + 1;
    uint8_t *grown = realloc(u->bytes, room);
    if (grown == NULL) return no_memory(err);
    u->bytes = grown;
    u->room = room;
    return REEF_OK;
}

static reef_status ends_early(const char *packing, reef_error *err) {
    return reef_fail(err, REEF_ERR_INVALID, "the body ends in the middle of its %s", packing);
}

static reef_status unpack_gzip(unpacking *u, const uint8_t *body, size_t bytes, reef_error *err) {
    z_stream z = {.next_in = (uint8_t *)(uintptr_t)body, .avail_in = (unsigned)bytes};
    reef_status status = REEF_OK;
    if (inflateInit2(&z, GZIP_WINDOW) != Z_OK) return no_memory(err);
    for (int code = Z_OK; status == REEF_OK && (code != Z_STREAM_END || z.avail_in > 0);) {
        status = make_space(u, err);
        if (status != REEF_OK) break;
        if (code == Z_STREAM_END) (void)inflateReset(&z); // several may stand in a row
        z.next_out = u->bytes + u->count;
        z.avail_out = (unsigned)(u->room - u->count);
        code = inflate(&z, Z_NO_FLUSH);
        u->count = u->room - z.avail_out;
        if (code == Z_BUF_ERROR || (code == Z_OK && z.avail_in == 0 && z.avail_out > 0))
            status = ends_early("gzip", err);
        else if (code == Z_MEM_ERROR)
            status = no_memory(err);
        else if (code != Z_OK && code != Z_STREAM_END)
            status = reef_fail(err, REEF_ERR_INVALID, "the body is not valid gzip: %.100s",
                               z.msg != NULL ? z.msg : "damaged");
    }
    (void)inflateEnd(&z);
    return status;
}

static reef_status unpack_zstd(unpacking *u, const uint8_t *body, size_t bytes, reef_error *err) {
    ZSTD_DCtx *context = ZSTD_createDCtx();
    ZSTD_inBuffer in = {.src = body, .size = bytes};
    reef_status status = REEF_OK;
    if (context == NULL ||
        ZSTD_isError(ZSTD_DCtx_setParameter(context, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG))) {
        (void)ZSTD_freeDCtx(context);
        return no_memory(err);
    }
    for (size_t left = 1; status == REEF_OK && (left > 0 || in.pos < in.size);) {
        status = make_space(u, err);
        if (status != REEF_OK) break;
        ZSTD_outBuffer out = {.dst = u->bytes, .size = u->room, .pos = u->count};
        left = ZSTD_decompressStream(context, &out, &in);
        u->count = out.pos;
        if (ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation)
            status = no_memory(err);
        else if (ZSTD_isError(left))
            status = reef_fail(err, REEF_ERR_INVALID, "the body is no zstd that is taken: %.100s",
                               ZSTD_getErrorName(left));
        else if (left > 0 && in.pos == in.size && out.pos < out.size)
            status = ends_early("zstd", err);
    }
    (void)ZSTD_freeDCtx(context);
    return status;
}

reef_status reef_push_unpack(uint8_t **out,
                             size_t *count,
                             bool *too_large,
                             reef_packing packing,
                             const uint8_t *body,
                             size_t bytes,
                             reef_error *err) {
    unpacking u = {0};
    reef_status status = packing == REEF_PACKING_GZIP ? unpack_gzip(&u, body, bytes, err)
                                                      : unpack_zstd(&u, body, bytes, err);
    if (status == REEF_OK && u.count > REEF_PUSH_UNPACKED_BYTES_MAX) status = make_space(&u, err);
    if (status != REEF_OK) free(u.bytes);
    *out = status == REEF_OK ? u.bytes : NULL;
    *count = u.count;
    *too_large = u.too_large;
    return status;
}
