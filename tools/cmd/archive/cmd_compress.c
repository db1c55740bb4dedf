// reef compress: a file coded by the context memories of a pool, as of a state of it.
#include "archive_file.h"
#include "cli_format.h"
#include "cli_pool.h"
#include "cli_progress.h"
#include "commands.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const reef_cli_option OPTIONS[] = {
    {"as-of", "STATE",
     "a sealed generation, a snapshot, or a moment such as yesterday (default: the newest state)"},
    {"out", "PATH", "where to write; - is standard output (default: FILE.reef, or -)"},
    {"piece", "SIZE", "bytes that are coded together, 4K to 64M (default: 1M)"},
    {"force", NULL, "replace PATH where it exists"},
    {0},
};

const reef_cli_manual reef_compress_manual = {
    .about = "Writes an archive: FILE, or standard input, "
             "coded by what the pool has learned. The better it knows\n"
             "such texts, the smaller. `reef expand` needs the pool, "
             "or a copy of it, with the state of --as-of.\n"
             "A state as of a sealed generation or a snapshot never changes, "
             "and context memories compute in whole\n"
             "numbers alone. So an archive expands to the same "
             "bytes on every machine, whatever the pool learns\n"
             "later. Of an open generation first make a snapshot "
             "(`reef snapshot create`): its next commit would\n"
             "lose what the archive needs.\n"
             "\n"
             "The text is cut into pieces that are coded by themselves, "
             "each by the memory of the generation that\n"
             "takes least for its beginning. Larger ones make smaller archives; "
             "smaller ones use more threads, and\n"
             "ranges of them are read sooner (`reef expand "
             "--range`). A piece that no memory makes shorter is\n"
             "stored as it is. A dry run codes everything and writes nothing. "
             "FILE stays, and a daemon may run on\n"
             "the pool, which must be one of bytes with context memories.",
    .options = OPTIONS,
    .example = "reef compress reef.pool notes.txt\n"
               "reef compress reef.pool --as-of 0 -o today.reef < today.txt",
};

typedef struct request {
    const char *as_of;
    uint32_t piece_bytes;
    reef_cli_file text;
    reef_cli_output out;
} request;

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

static reef_status read_request(const reef_cli_call *cli, request *r, reef_error *err) {
    const char *path = cli->operand_count > 0 ? cli->operands[0] : "-";
    bool file = strcmp(path, "-") != 0;
    char *beside = file ? reef_cli_format("%s" ARCHIVE_SUFFIX, path) : NULL;
    r->as_of = reef_cli_text(cli, "as-of");
    reef_status status = reef_cli_output_choose(&r->out, cli, beside, err);
    if (status == REEF_OK) status = read_piece(cli, &r->piece_bytes, err);
    if (status == REEF_OK && r->out.path == NULL && !cli->dry_run && isatty(STDOUT_FILENO) == 1)
        status = reef_fail(err, REEF_ERR_INVALID,
                           "an archive is nothing to look at: name a file with "
                           "--out, or send standard output somewhere");
    return status == REEF_OK ? reef_cli_file_read(&r->text, path, err) : status;
}

// Who named no state learns which one it was, if the pool has gone on since.
static reef_status print_state(reef_store *store, const reef_archive_info *info, reef_error *err) {
    reef_txn *txn = NULL;
    reef_commit commit = {0};
    char words[CLI_WORD_BYTES];
    reef_status status = reef_txn_begin(&txn, store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_commit_read(txn, &commit, err);
    reef_txn_abort(txn);
    if (status == REEF_OK && commit.stream_bytes > info->stream_bytes)
        fprintf(stderr,
                "reef compress: as of %s %s; "
                "the %s bytes since are not used (reef snapshot create keeps them)\n",
                info->of_snapshot ? "snapshot" : "generation", info->state,
                reef_cli_count(commit.stream_bytes - info->stream_bytes, words));
    return status;
}

static reef_status reply(reef_cli_call *cli,
                         const reef_archive_info *info,
                         const reef_cli_output *out,
                         reef_error *err) {
    if (cli->json) {
        json_t *document = reef_archive_json(info, out->path);
        json_object_set_new(document, "done", json_boolean(!cli->dry_run));
        return reef_cli_reply(cli, document, err);
    }
    if (out->path == NULL && !cli->dry_run) return REEF_OK; // the archive is there
    if (cli->dry_run) printf("would write:\n");
    reef_archive_print(info, out->path);
    return REEF_OK;
}

static reef_status compress(reef_cli_call *cli,
                            const request *r,
                            reef_archive_info *info,
                            reef_error *err) {
    reef_store *store = NULL;
    uint8_t *archive = NULL;
    size_t count = 0;
    reef_status status = reef_store_open(&store, cli->pool, &(reef_store_options){0}, err);
    if (status != REEF_OK) return status;
    reef_archive_options options = reef_archive_options_of(cli, "compressing");
    options.piece_bytes = r->piece_bytes;
    status = reef_archive_write(store, r->as_of, r->text.bytes, r->text.count, &options, &archive,
                                &count, err);
    reef_archive_progress_end();
    if (status == REEF_OK) status = reef_archive_read_info(info, archive, count, err);
    if (status == REEF_OK && !cli->dry_run)
        status = reef_cli_output_write(&r->out, archive, count, err);
    // Programs read it in the answer.
    if (status == REEF_OK && r->as_of == NULL && !cli->json) status = print_state(store, info, err);
    reef_store_close(store);
    free(archive);
    return status;
}

reef_status reef_cmd_compress(reef_cli_call *cli, reef_error *err) {
    request r = {0};
    reef_archive_info info = {0};
    // All that can be refused without reading, and before the pool is opened.
    reef_status status = read_request(cli, &r, err);
    // From here on an interrupt must leave nothing.
    if (status == REEF_OK) reef_cli_catch_signals(true);
    if (status == REEF_OK) status = compress(cli, &r, &info, err);
    if (status == REEF_OK) status = reply(cli, &info, &r.out, err);
    reef_archive_info_release(&info);
    reef_cli_file_release(&r.text);
    reef_cli_output_release(&r.out);
    // Busy is also what a signal leaves behind: end by that signal, so that a shell's loop stops.
    if (status == REEF_ERR_BUSY) reef_cli_end_as_signalled();
    return status;
}
