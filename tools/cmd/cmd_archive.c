// reef compress and reef expand: a file coded by the context memories of a pool, as of a state of
// it; and its text again, or a range of that.
#include "cli_pool.h"
#include "cli_progress.h"
#include "commands.h"
#include "reef_archive.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const reef_cli_option COMPRESS_OPTIONS[] = {
    {"as-of", "STATE",
     "a sealed generation, a snapshot, or a moment such as yesterday (default: the newest state)"},
    {"out", "PATH", "where to write; - is standard output (default: FILE.reef, or -)"},
    {"piece", "SIZE", "bytes that are coded together, 4K to 64M (default: 1M)"},
    {"force", NULL, "replace PATH where it exists"},
    {0},
};

const reef_cli_manual reef_compress_manual = {
    .about =
        "Writes an archive: FILE, or standard input, coded by what the pool has learned. The\n"
        "better it knows such texts, the smaller. `reef expand` needs the pool, or a copy of it,\n"
        "with the state of --as-of. A state as of a sealed generation or a snapshot never\n"
        "changes, and context memories compute in whole numbers alone. So an archive expands to\n"
        "the same bytes on every machine, whatever the pool learns later. Of an open generation\n"
        "first make a snapshot (`reef snapshot create`): its next commit would lose what the\n"
        "archive needs.\n"
        "\n"
        "The text is cut into pieces that are coded by themselves, each by the memory of the\n"
        "generation that takes least for its beginning. Larger ones make smaller archives;\n"
        "smaller ones use more threads, and ranges of them are read sooner (`reef expand\n"
        "--range`). A piece that no memory makes shorter is stored as it is. A dry run codes\n"
        "everything and writes nothing. FILE stays, and a daemon may run on the pool, which must\n"
        "be one of bytes with context memories.",
    .options = COMPRESS_OPTIONS,
    .example = "reef compress reef.pool notes.txt\n"
               "reef compress reef.pool --as-of 0 -o today.reef < today.txt",
};

static const reef_cli_option EXPAND_OPTIONS[] = {
    {"out", "PATH", "where to write; - is standard output (default: ARCHIVE without .reef, or -)"},
    {"range", "BEGIN-END", "only bytes BEGIN to END of the text, END not among them"},
    {"force", NULL, "replace PATH where it exists"},
    {0},
};

const reef_cli_manual reef_expand_manual = {
    .about =
        "Writes what `reef compress` was given, from an archive or from standard input. The pool\n"
        "must be the one of the archive, a copy of it, or another one in which the same was\n"
        "learned. It may have learned more since. Damage never goes unnoticed: every piece and\n"
        "the whole text have checksums, and nothing is written before they are right. A dry run\n"
        "checks all of it.\n"
        "\n"
        "With --range only the pieces are expanded in which the range lies, and it goes to\n"
        "standard output if --out names no file. END may be left out: the rest.",
    .options = EXPAND_OPTIONS,
    .example = "reef expand reef.pool notes.txt.reef -o again.txt\n"
               "reef expand reef.pool notes.txt.reef --range 100-200\n"
               "reef expand reef.pool < notes.txt.reef > copy.txt",
};

// ---- output -------------------------------------------------------------------------------------

#define ARCHIVE_SUFFIX ".reef"

typedef struct output {
    char *path; // on the heap; NULL: to standard output
    bool force;
} output;

// The file of --out, or else `otherwise` (taken over; NULL: standard output), and whether it can be
// written, as far as that shows now.
static reef_status choose_output(output *out,
                                 const reef_cli_call *cli,
                                 char *otherwise,
                                 reef_error *err) {
    const char *given = reef_cli_text(cli, "out");
    *out = (output){.path = otherwise, .force = reef_cli_text(cli, "force") != NULL};
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

// A file appears under its name only when it is whole and on the disk; after an error nothing is
// left.
static reef_status write_output(const output *out,
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

static reef_archive_options archive_options(const reef_cli_call *cli, const char *label) {
    shown.label = label;
    return (reef_archive_options){
        .threads = cli->threads, .stopped = reef_cli_is_stopped, .progress = on_progress};
}

static void end_progress(void) {
    reef_cli_progress_end(&shown.bar);
}

// ---- description --------------------------------------------------------------------------------

static json_t *archive_json(const reef_archive_info *info, const char *path) {
    json_t *generations = json_array();
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
                     "text_hash", CLI_HASH(info->text_hash), "as_of", info->state, "snapshot",
                     info->of_snapshot, "stream_bytes", (json_int_t)info->stream_bytes, "pool",
                     CLI_HASH(info->pool), "piece_bytes", (json_int_t)info->piece_bytes, "pieces",
                     (json_int_t)info->piece_count, "raw_pieces", (json_int_t)info->raw_count,
                     "generations", generations);
}

static void print_archive(const reef_archive_info *info, const char *path) {
    printf("archive   %s, %s of %s", path != NULL ? path : "standard output",
           CLI_BYTES(info->bytes), CLI_BYTES(info->text_bytes));
    if (info->text_bytes > 0)
        printf(": %.1f %%, %.3f bits per byte",
               100.0 * (double)info->bytes / (double)info->text_bytes,
               8.0 * (double)info->bytes / (double)info->text_bytes);
    printf("\nas of     %s%s, %s bytes into the stream\n",
           info->of_snapshot ? "snapshot " : "generation ", info->state,
           CLI_COUNT(info->stream_bytes));
    for (size_t i = 0; i < info->share_count; i++) {
        const reef_archive_share *share = &info->shares[i];
        printf("coded by  generation %" PRIu32 ": %" PRIu32 " %s, %s in %s\n", share->generation,
               share->piece_count, share->piece_count == 1 ? "piece" : "pieces",
               CLI_BYTES(share->text_bytes), CLI_BYTES(share->bytes));
    }
    if (info->raw_count > 0)
        printf("as it is  %" PRIu32 " %s, which no memory makes shorter\n", info->raw_count,
               info->raw_count == 1 ? "piece" : "pieces");
}

// ---- compress -----------------------------------------------------------------------------------

typedef struct compression {
    const char *as_of;
    uint32_t piece_bytes;
    reef_cli_file text;
    output out;
} compression;

static reef_status read_piece(const reef_cli_call *cli, uint32_t *out, reef_error *err) {
    const char *text = reef_cli_text(cli, "piece");
    uint64_t bytes = 0;
    if (text == NULL) return REEF_OK;
    if (reef_memory_parse(text, &bytes, NULL) != REEF_OK || bytes < REEF_ARCHIVE_PIECE_BYTES_MIN ||
        bytes > REEF_ARCHIVE_PIECE_BYTES_MAX)
        return reef_fail(err, REEF_ERR_INVALID,
                         "--piece is '%.64s', but must be a number of bytes, 4K to 64M", text);
    *out = (uint32_t)bytes;
    return REEF_OK;
}

static reef_status read_compression(const reef_cli_call *cli, compression *r, reef_error *err) {
    const char *path = cli->operand_count > 0 ? cli->operands[0] : "-";
    bool file = strcmp(path, "-") != 0;
    char *beside = file ? reef_cli_format("%s" ARCHIVE_SUFFIX, path) : NULL;
    r->as_of = reef_cli_text(cli, "as-of");
    reef_status status = choose_output(&r->out, cli, beside, err);
    if (status == REEF_OK) status = read_piece(cli, &r->piece_bytes, err);
    if (status == REEF_OK && r->out.path == NULL && !cli->dry_run && isatty(STDOUT_FILENO) == 1)
        status = reef_fail(err, REEF_ERR_INVALID,
                           "an archive is nothing to look at: name a file with "
                           "--out, or send standard output somewhere");
    return status == REEF_OK ? reef_cli_file_read(&r->text, path, err) : status;
}

// Who named no state learns which one it was, if the pool has gone on since.
static reef_status print_state(reef_store *store, const reef_archive_info *info, reef_error *err) {
    reef_commit commit;
    reef_status status = reef_store_read_commit(store, &commit, err);
    if (status == REEF_OK && commit.stream_bytes > info->stream_bytes)
        fprintf(stderr,
                "reef compress: as of %s %s; "
                "the %s bytes since are not used (reef snapshot create keeps them)\n",
                info->of_snapshot ? "snapshot" : "generation", info->state,
                CLI_COUNT(commit.stream_bytes - info->stream_bytes));
    return status;
}

static reef_status reply_compression(reef_cli_call *cli,
                                     const reef_archive_info *info,
                                     const output *out,
                                     reef_error *err) {
    if (cli->json) {
        json_t *document = archive_json(info, out->path);
        json_object_set_new(document, "done", json_boolean(!cli->dry_run));
        return reef_cli_reply(cli, document, err);
    }
    if (out->path == NULL && !cli->dry_run) return REEF_OK; // the archive is there
    if (cli->dry_run) printf("would write:\n");
    print_archive(info, out->path);
    return REEF_OK;
}

static reef_status compress(reef_cli_call *cli,
                            const compression *r,
                            reef_archive_info *info,
                            reef_error *err) {
    reef_store *store = NULL;
    uint8_t *archive = NULL;
    size_t count = 0;
    reef_status status = reef_store_open(&store, cli->pool, &(reef_store_options){0}, err);
    if (status != REEF_OK) return status;
    reef_archive_options options = archive_options(cli, "compressing");
    options.piece_bytes = r->piece_bytes;
    status = reef_archive_write(store, r->as_of, r->text.bytes, r->text.count, &options, &archive,
                                &count, err);
    end_progress();
    if (status == REEF_OK) status = reef_archive_read_info(info, archive, count, err);
    if (status == REEF_OK && !cli->dry_run) status = write_output(&r->out, archive, count, err);
    // Programs read it in the answer.
    if (status == REEF_OK && r->as_of == NULL && !cli->json) status = print_state(store, info, err);
    reef_store_close(store);
    free(archive);
    return status;
}

reef_status reef_cmd_compress(reef_cli_call *cli, reef_error *err) {
    compression r = {0};
    reef_archive_info info = {0};
    // All that can be refused without reading, and before the pool is opened.
    reef_status status = read_compression(cli, &r, err);
    if (status == REEF_OK) reef_cli_catch_signals(true);
    if (status == REEF_OK) status = compress(cli, &r, &info, err);
    if (status == REEF_OK) status = reply_compression(cli, &info, &r.out, err);
    reef_archive_info_release(&info);
    reef_cli_file_release(&r.text);
    free(r.out.path);
    // Busy is also what a signal leaves behind: end by that signal, so that a shell's loop stops.
    if (status == REEF_ERR_BUSY) reef_cli_end_as_signalled();
    return status;
}

// ---- expand -------------------------------------------------------------------------------------

typedef struct expansion {
    uint64_t begin, end; // UINT64_MAX: to the end
    reef_cli_file archive;
    output out;
} expansion;

static reef_status read_range(const reef_cli_call *cli, expansion *r, reef_error *err) {
    const char *text = reef_cli_text(cli, "range");
    r->end = UINT64_MAX;
    if (text == NULL) return REEF_OK;
    char *rest;
    size_t digits = strspn(text, "0123456789");
    bool good = digits > 0 && text[digits] == '-';
    const char *second = text + digits + good;
    errno = 0;
    r->begin = strtoull(text, NULL, 10);
    // A sign or a blank would be taken by strtoull.
    if (good && second[0] >= '0' && second[0] <= '9') {
        r->end = strtoull(second, &rest, 10);
        good = *rest == '\0';
    } else {
        good = good && second[0] == '\0';
    }
    if (good && errno == 0 && r->begin <= r->end) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "--range is '%.64s', but must be BEGIN-END or BEGIN-, "
                     "two numbers of bytes in their order",
                     text);
}

// The name without .reef. Any other name needs --out.
static reef_status name_of_text(const reef_cli_call *cli,
                                const char *path,
                                char **out,
                                reef_error *err) {
    size_t length = strlen(path), suffix = strlen(ARCHIVE_SUFFIX);
    *out = NULL;
    bool asked = reef_cli_text(cli, "out") != NULL || reef_cli_text(cli, "range") != NULL;
    if (asked || strcmp(path, "-") == 0) return REEF_OK;
    if (length <= suffix || strcmp(path + length - suffix, ARCHIVE_SUFFIX) != 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%.120s does not end in " ARCHIVE_SUFFIX
                         ": say with --out where its text is to go",
                         path);
    *out = reef_cli_format("%.*s", (int)(length - suffix), path);
    return REEF_OK;
}

static reef_status read_expansion(const reef_cli_call *cli, expansion *r, reef_error *err) {
    const char *path = cli->operand_count > 0 ? cli->operands[0] : "-";
    char *otherwise = NULL;
    reef_status status = read_range(cli, r, err);
    if (status == REEF_OK) status = name_of_text(cli, path, &otherwise, err);
    if (status == REEF_OK) status = choose_output(&r->out, cli, otherwise, err);
    return status == REEF_OK ? reef_cli_file_read(&r->archive, path, err) : status;
}

static reef_status check_range(expansion *r, const reef_archive_info *info, reef_error *err) {
    if (r->end == UINT64_MAX && r->begin <= info->text_bytes) r->end = info->text_bytes;
    if (r->end <= info->text_bytes) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "--range goes beyond the text, which has %" PRIu64 " bytes", info->text_bytes);
}

static reef_status reply_expansion(reef_cli_call *cli,
                                   const expansion *r,
                                   const reef_archive_info *info,
                                   reef_error *err) {
    if (cli->json) {
        const char *path = cli->operand_count > 0 ? cli->operands[0] : "-";
        json_t *document = archive_json(info, strcmp(path, "-") == 0 ? NULL : path);
        json_object_set_new(document, "path",
                            r->out.path != NULL ? reef_cli_path(r->out.path) : json_null());
        json_object_set_new(document, "begin", json_integer((json_int_t)r->begin));
        json_object_set_new(document, "end", json_integer((json_int_t)r->end));
        json_object_set_new(document, "done", json_boolean(!cli->dry_run));
        return reef_cli_reply(cli, document, err);
    }
    if (r->out.path == NULL && !cli->dry_run) return REEF_OK; // the text is there
    printf("%s%s, %s\n", cli->dry_run ? "would write " : "",
           r->out.path != NULL ? r->out.path : "to standard output", CLI_BYTES(r->end - r->begin));
    return REEF_OK;
}

static reef_status expand(reef_cli_call *cli,
                          expansion *r,
                          reef_archive_info *info,
                          reef_error *err) {
    reef_store *store = NULL;
    reef_status status = reef_archive_read_info(info, r->archive.bytes, r->archive.count, err);
    if (status == REEF_OK) status = check_range(r, info, err);
    if (status == REEF_OK)
        status = reef_store_open(&store, cli->pool, &(reef_store_options){0}, err);
    if (status != REEF_OK) return status;
    size_t count = (size_t)(r->end - r->begin);
    uint8_t *text = reef_cli_alloc(count + 1, 1);
    const reef_archive_options options = archive_options(cli, "expanding");
    status = reef_archive_read(store, r->archive.bytes, r->archive.count, r->begin, r->end,
                               &options, text, err);
    end_progress();
    reef_store_close(store);
    if (status == REEF_OK && !cli->dry_run) status = write_output(&r->out, text, count, err);
    free(text);
    return status;
}

reef_status reef_cmd_expand(reef_cli_call *cli, reef_error *err) {
    expansion r = {0};
    reef_archive_info info = {0};
    reef_status status = read_expansion(cli, &r, err);
    if (status == REEF_OK) reef_cli_catch_signals(true);
    if (status == REEF_OK) status = expand(cli, &r, &info, err);
    if (status == REEF_OK) status = reply_expansion(cli, &r, &info, err);
    reef_archive_info_release(&info);
    reef_cli_file_release(&r.archive);
    free(r.out.path);
    if (status == REEF_ERR_BUSY) reef_cli_end_as_signalled();
    return status;
}
