// Texts coded by the context memories of a pool, as a buffer or as a file.
#include "lib.h"

#include "reef_archive.h"

#include <stdlib.h>
#include <string.h>

typedef struct coding {
    reef_coding_options options;
    reef_archive_options model;
} coding;

static bool on_progress(void *context, uint64_t done, uint64_t total) {
    const coding *c = context;
    return c->options.progress(c->options.context, done, total) == 0;
}

static reef_status take_options(coding *out,
                                const reef_pool *pool,
                                const reef_coding_options *options,
                                reef_error *err) {
    reef_status status =
        reef_lib_take(&out->options, sizeof(out->options), options, "reef_coding_options", err);
    if (status != REEF_OK) return status;
    out->model =
        (reef_archive_options){.piece_bytes = out->options.piece_bytes,
                               .threads = pool->model_options.threads,
                               .progress = out->options.progress != NULL ? on_progress : NULL,
                               .context = out};
    if (out->options.as_of == NULL) out->options.as_of = pool->as_of;
    return REEF_OK;
}

// ---- buffers ------------------------------------------------------------------------------------

static reef_status write_archive(reef_pool *pool,
                                 const coding *c,
                                 const uint8_t *text,
                                 size_t count,
                                 uint8_t **archive,
                                 size_t *archive_bytes,
                                 reef_error *err) {
    reef_status status = reef_lib_enter(pool, err);
    if (status != REEF_OK) return status;
    status = reef_archive_write(pool->store, c->options.as_of, text, count, &c->model, archive,
                                archive_bytes, err);
    reef_lib_leave(pool);
    return status;
}

static reef_status read_archive(reef_pool *pool,
                                const coding *c,
                                const uint8_t *archive,
                                size_t count,
                                uint64_t begin,
                                uint64_t end,
                                uint8_t *text,
                                reef_error *err) {
    reef_status status = reef_lib_enter(pool, err);
    if (status != REEF_OK) return status;
    status = reef_archive_read(pool->store, archive, count, begin, end, &c->model, text, err);
    reef_lib_leave(pool);
    return status;
}

reef_status reef_pool_compress(reef_pool *pool,
                               const void *text,
                               size_t count,
                               const reef_coding_options *options,
                               void **archive,
                               size_t *archive_bytes,
                               reef_error *err) {
    coding c;
    uint8_t *bytes = NULL;
    *archive = NULL;
    *archive_bytes = 0;
    reef_status status = take_options(&c, pool, options, err);
    if (status == REEF_OK)
        status = write_archive(pool, &c, text, count, &bytes, archive_bytes, err);
    *archive = bytes;
    return status;
}

void reef_archive_free(void *archive) {
    free(archive);
}

reef_status reef_archive_read_facts(const void *archive,
                                    size_t count,
                                    reef_archive_facts *out,
                                    reef_error *err) {
    reef_archive_info info;
    reef_status status = reef_archive_read_info(&info, archive, count, err);
    if (status != REEF_OK) return status;
    reef_archive_facts facts = {
        .snapshot = info.of_snapshot,
        .piece_bytes = info.piece_bytes,
        .pieces = info.piece_count,
        .raw_pieces = info.raw_count,
        .position = info.stream_bytes,
        .text_bytes = info.text_bytes,
        .archive_bytes = info.bytes,
    };
    _Static_assert(sizeof(facts.state) >= sizeof(info.state), "a name of any length");
    memcpy(facts.state, info.state, sizeof(info.state));
    memcpy(facts.pool, info.pool, sizeof(facts.pool));
    memcpy(facts.text_hash, info.text_hash, sizeof(facts.text_hash));
    reef_archive_info_release(&info);
    return reef_lib_give(out, &facts, sizeof(facts), "reef_archive_facts", err);
}

reef_status reef_pool_expand(reef_pool *pool,
                             const void *archive,
                             size_t count,
                             uint64_t begin,
                             uint64_t end,
                             const reef_coding_options *options,
                             void *text,
                             reef_error *err) {
    coding c;
    reef_status status = take_options(&c, pool, options, err);
    return status == REEF_OK ? read_archive(pool, &c, archive, count, begin, end, text, err)
                             : status;
}

// ---- files --------------------------------------------------------------------------------------

// What can be refused is refused before anything is computed.
static reef_status begin(coding *c,
                         reef_pool *pool,
                         const char *path,
                         const char *out,
                         const reef_coding_options *options,
                         uint8_t **bytes,
                         size_t *count,
                         reef_error *err) {
    reef_status status = take_options(c, pool, options, err);
    if (status == REEF_OK) status = reef_archive_file_check(out, c->options.replace != 0, err);
    return status == REEF_OK ? reef_archive_file_read(path, bytes, count, err) : status;
}

static reef_status give_facts(const uint8_t *archive,
                              size_t count,
                              reef_archive_facts *facts,
                              reef_error *err) {
    return facts != NULL ? reef_archive_read_facts(archive, count, facts, err) : REEF_OK;
}

reef_status reef_pool_compress_file(reef_pool *pool,
                                    const char *path,
                                    const char *out,
                                    const reef_coding_options *options,
                                    reef_archive_facts *facts,
                                    reef_error *err) {
    coding c;
    uint8_t *text = NULL, *archive = NULL;
    size_t count = 0, archive_bytes = 0;
    reef_status status = begin(&c, pool, path, out, options, &text, &count, err);
    if (status == REEF_OK)
        status = write_archive(pool, &c, text, count, &archive, &archive_bytes, err);
    if (status == REEF_OK) status = give_facts(archive, archive_bytes, facts, err);
    if (status == REEF_OK)
        status =
            reef_archive_file_write(out, c.options.replace != 0, archive, archive_bytes, NULL, err);
    free(archive);
    free(text);
    return status;
}

reef_status reef_pool_expand_file(reef_pool *pool,
                                  const char *path,
                                  const char *out,
                                  const reef_coding_options *options,
                                  reef_archive_facts *facts,
                                  reef_error *err) {
    coding c;
    reef_archive_facts own = {.size = sizeof(own)};
    uint8_t *text = NULL, *archive = NULL;
    size_t count = 0;
    reef_status status = begin(&c, pool, path, out, options, &archive, &count, err);
    if (status == REEF_OK) status = reef_archive_read_facts(archive, count, &own, err);
    if (status == REEF_OK) status = give_facts(archive, count, facts, err);
    // One more, so that no text is empty.
    if (status == REEF_OK && (text = malloc((size_t)own.text_bytes + 1)) == NULL)
        status = reef_fail(err, REEF_ERR_NO_MEMORY, "no memory for a text of %llu bytes",
                           (unsigned long long)own.text_bytes);
    if (status == REEF_OK)
        status = read_archive(pool, &c, archive, count, 0, own.text_bytes, text, err);
    if (status == REEF_OK)
        status = reef_archive_file_write(out, c.options.replace != 0, text, (size_t)own.text_bytes,
                                         NULL, err);
    free(text);
    free(archive);
    return status;
}
