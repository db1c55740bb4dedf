// See archive_file.h.
#include "archive_file.h"
#include "cli_format.h"
#include "cli_pool.h"
#include "cli_progress.h"
#include "commands.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- output -------------------------------------------------------------------------------------

static reef_status check_path(const char *path, bool force, reef_error *err) {
    struct stat info;
    reef_status status = reef_store_check_output(path, err);
    if (status != REEF_OK || stat(path, &info) != 0) return status; // or creating says why not
    if (!S_ISREG(info.st_mode))
        return reef_fail(err, REEF_ERR_INVALID, "%.160s exists and is not a regular file", path);
    return force ? REEF_OK
                 : reef_fail(err, REEF_ERR_INVALID, "%.160s exists; --force replaces it", path);
}

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
    if (out->path != NULL) return check_path(out->path, out->force, err);
    if (cli->json && !cli->dry_run)
        return reef_fail(err, REEF_ERR_INVALID,
                         "--json and the data would both go to standard output: name a file with "
                         "--out");
    return REEF_OK;
}

static reef_status write_all(int fd, const uint8_t *bytes, size_t count) {
    for (size_t at = 0; at < count;) {
        size_t piece = count - at < (1u << 20) ? count - at : 1u << 20;
        ssize_t written = reef_export_is_stopped() ? 0 : write(fd, bytes + at, piece);
        if (reef_export_is_stopped()) return REEF_ERR_BUSY;
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return REEF_ERR_IO;
        at += (size_t)written;
    }
    return REEF_OK;
}

static int sync_parent(const char *path) {
    char *copy = reef_cli_format("%s", path); // dirname may cut it
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    // Some file systems refuse to sync a directory (EINVAL): then there is nothing to be done.
    int failed = fd < 0 || (fsync(fd) != 0 && errno != EINVAL);
    if (fd >= 0) close(fd);
    free(copy);
    return failed;
}

static reef_status write_file(const reef_cli_output *out,
                              const char *part,
                              const uint8_t *bytes,
                              size_t count,
                              reef_error *err) {
    reef_status status = check_path(out->path, out->force, err);
    if (status != REEF_OK) return status;
    int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EEXIST)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%.160s exists: another command is writing it, or one was killed while it "
                         "did; remove it in the second case",
                         part);
    bool missing = errno == ENOENT || errno == ENOTDIR || errno == EACCES;
    if (fd < 0 && missing)
        return reef_fail(err, REEF_ERR_NOT_FOUND, "cannot create %.160s: %s", part,
                         strerror(errno));
    if (fd < 0) return reef_cli_write_failed(part, errno, err);
    status = write_all(fd, bytes, count);
    // Data on the disk before the name: a crash leaves the old file or the new one, never a part.
    if (status == REEF_OK && fsync(fd) != 0) status = REEF_ERR_IO;
    int code = errno;
    if (close(fd) != 0 && status == REEF_OK) {
        status = REEF_ERR_IO;
        code = errno;
    }
    if (status == REEF_OK && rename(part, out->path) != 0) {
        status = REEF_ERR_IO;
        code = errno;
    }
    if (status == REEF_OK && sync_parent(out->path) == 0) return REEF_OK;
    if (status == REEF_OK) return reef_cli_write_failed(out->path, errno, err);
    (void)unlink(part);
    if (status == REEF_ERR_BUSY)
        return reef_fail(err, status, "stopped; nothing of the file is left");
    return reef_cli_write_failed(out->path, code, err);
}

reef_status reef_cli_output_write(const reef_cli_output *out,
                                  const uint8_t *bytes,
                                  size_t count,
                                  reef_error *err) {
    if (out->path != NULL) {
        char *part = reef_cli_format("%s.part", out->path);
        reef_status status = write_file(out, part, bytes, count, err);
        free(part);
        return status;
    }
    if (fwrite(bytes, 1, count, stdout) == count && fflush(stdout) == 0) return REEF_OK;
    int code = errno;
    clearerr(stdout); // said once, here
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

static void on_progress(void *context, uint64_t done, uint64_t total) {
    (void)context;
    if (!shown.started) reef_cli_progress_start(&shown.bar, shown.label, total, "B");
    shown.started = true;
    reef_cli_progress_show(&shown.bar, done);
}

reef_archive_options reef_archive_options_of(const reef_cli_call *cli, const char *label) {
    shown.label = label;
    return (reef_archive_options){
        .threads = cli->threads, .stopped = reef_export_is_stopped, .progress = on_progress};
}

void reef_archive_progress_end(void) {
    reef_cli_progress_end(&shown.bar);
}

// ---- facts --------------------------------------------------------------------------------------

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
