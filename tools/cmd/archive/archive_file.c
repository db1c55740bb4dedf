// See archive_file.h.
#include "archive_file.h"
#include "cli_format.h"
#include "cli_pool.h"
#include "cli_progress.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// ---- output -------------------------------------------------------------------------------------

reef_status reef_cli_output_choose(reef_cli_output *out,
                                   const reef_cli_call *cli,
                                   char *otherwise,
                                   reef_error *err) {
    const char *given = reef_cli_text(cli, "out");
    *out = (reef_cli_output){.path = otherwise, .force = reef_cli_text(cli, "force") != NULL};
    if (given != NULL) {
        free(otherwise);
        out->path = strcmp(given, "-") == 0 ? NULL : reef_cli_format("%s", given);
    }
    if (out->path != NULL) return reef_archive_file_check(out->path, out->force, err);
    if (cli->json && !cli->dry_run)
        return reef_fail(err, REEF_ERR_INVALID,
                         "--json and the data would both go to standard output: "
                         "name a file with --out");
    return REEF_OK;
}

reef_status reef_cli_output_write(const reef_cli_output *out,
                                  const uint8_t *bytes,
                                  size_t count,
                                  reef_error *err) {
    if (out->path != NULL)
        return reef_archive_file_write(out->path, out->force, bytes, count, reef_cli_is_stopped,
                                       err);
    if (fwrite(bytes, 1, count, stdout) == count && fflush(stdout) == 0) return REEF_OK;
    int code = errno;
    clearerr(stdout); // reported once, here
    return reef_cli_write_failed("standard output", code, err);
}

void reef_cli_output_release(reef_cli_output *out) {
    free(out->path);
    *out = (reef_cli_output){0};
}

// ---- progress -----------------------------------------------------------------------------------

static struct {
    reef_cli_progress bar;
    const char *label;
    bool started;
} shown;

static bool on_progress(void *context, uint64_t done, uint64_t total) {
    (void)context;
    if (!shown.started) reef_cli_progress_start(&shown.bar, shown.label, total, "B");
    shown.started = true;
    reef_cli_progress_show(&shown.bar, done);
    return true;
}

reef_archive_options reef_archive_options_of(const reef_cli_call *cli, const char *label) {
    shown.label = label;
    return (reef_archive_options){
        .threads = cli->threads, .stopped = reef_cli_is_stopped, .progress = on_progress};
}

void reef_archive_progress_end(void) {
    reef_cli_progress_end(&shown.bar);
}

// ---- description --------------------------------------------------------------------------------

json_t *reef_archive_json(const reef_archive_info *info, const char *path) {
    char pool[2 * REEF_HASH_BYTES + 1], hash[2 * REEF_HASH_BYTES + 1];
    json_t *generations = json_array();
    reef_hash_format(info->pool, pool);
    reef_hash_format(info->text_hash, hash);
    for (size_t i = 0; i < info->share_count; i++) {
        const reef_archive_share *share = &info->shares[i];
        json_array_append_new(generations, json_pack("{s:I, s:I, s:I, s:I}", "generation",
                                                     (json_int_t)share->generation, "pieces",
                                                     (json_int_t)share->piece_count, "text_bytes",
                                                     (json_int_t)share->text_bytes, "bytes",
                                                     (json_int_t)share->bytes));
    }
    return json_pack("{s:o, s:I, s:I, s:s, s:s, s:b, s:I, s:s, s:I, s:I, s:I, s:o}", "archive",
                     path != NULL ? reef_cli_path(path) : json_null(), "archive_bytes",
                     (json_int_t)info->bytes, "text_bytes", (json_int_t)info->text_bytes,
                     "text_hash", hash, "as_of", info->state, "snapshot", info->of_snapshot,
                     "stream_bytes", (json_int_t)info->stream_bytes, "pool", pool, "piece_bytes",
                     (json_int_t)info->piece_bytes, "pieces", (json_int_t)info->piece_count,
                     "raw_pieces", (json_int_t)info->raw_count, "generations", generations);
}

void reef_archive_print(const reef_archive_info *info, const char *path) {
    char words[CLI_WORD_BYTES], text[CLI_WORD_BYTES];
    printf("archive   %s, %s of %s", path != NULL ? path : "standard output",
           reef_cli_bytes(info->bytes, words), reef_cli_bytes(info->text_bytes, text));
    if (info->text_bytes > 0)
        printf(": %.1f %%, %.3f bits per byte",
               100.0 * (double)info->bytes / (double)info->text_bytes,
               8.0 * (double)info->bytes / (double)info->text_bytes);
    printf("\nas of     %s%s, %s bytes into the stream\n",
           info->of_snapshot ? "snapshot " : "generation ", info->state,
           reef_cli_count(info->stream_bytes, words));
    for (size_t i = 0; i < info->share_count; i++) {
        const reef_archive_share *share = &info->shares[i];
        printf("coded by  generation %" PRIu32 ": %" PRIu32 " %s, %s in %s\n", share->generation,
               share->piece_count, share->piece_count == 1 ? "piece" : "pieces",
               reef_cli_bytes(share->text_bytes, text), reef_cli_bytes(share->bytes, words));
    }
    if (info->raw_count > 0)
        printf("as it is  %" PRIu32 " %s, which no memory makes shorter\n", info->raw_count,
               info->raw_count == 1 ? "piece" : "pieces");
}
