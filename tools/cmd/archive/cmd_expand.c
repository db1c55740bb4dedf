// reef expand: the text of an archive, or a range of it.
#include "archive_file.h"
#include "cli_format.h"
#include "cli_pool.h"
#include "cli_progress.h"
#include "commands.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const reef_cli_option OPTIONS[] = {
    {"out", "PATH", "where to write; - is standard output (default: ARCHIVE without .reef, or -)"},
    {"range", "BEGIN-END", "only bytes BEGIN to END of the text, END not among them"},
    {"force", NULL, "replace PATH where it exists"},
    {0},
};

const reef_cli_manual reef_expand_manual = {
    .about = "Writes what `reef compress` was given, "
             "from an archive or from standard input. The pool must be the\n"
             "one of the archive, a copy of it, or another one "
             "in which the same was learned. It may have learned\n"
             "more since. Damage never goes unnoticed: "
             "every piece and the whole text have checksums, and nothing is\n"
             "written before they are right. A dry run checks all of it.\n"
             "\n"
             "With --range only the pieces are expanded in which "
             "the range lies, and it goes to standard output if\n"
             "--out names no file. END may be left out: the rest.",
    .options = OPTIONS,
    .example = "reef expand reef.pool notes.txt.reef -o again.txt\n"
               "reef expand reef.pool notes.txt.reef --range 100-200\n"
               "reef expand reef.pool < notes.txt.reef > copy.txt",
};

typedef struct request {
    uint64_t begin, end; // UINT64_MAX: to the end
    reef_cli_file archive;
    reef_cli_output out;
} request;

static reef_status read_range(const reef_cli_call *cli, request *r, reef_error *err) {
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

static reef_status read_request(const reef_cli_call *cli, request *r, reef_error *err) {
    const char *path = cli->operand_count > 0 ? cli->operands[0] : "-";
    char *otherwise = NULL;
    reef_status status = read_range(cli, r, err);
    if (status == REEF_OK) status = name_of_text(cli, path, &otherwise, err);
    if (status == REEF_OK) status = reef_cli_output_choose(&r->out, cli, otherwise, err);
    return status == REEF_OK ? reef_cli_file_read(&r->archive, path, err) : status;
}

static reef_status check_range(request *r, const reef_archive_info *info, reef_error *err) {
    if (r->end == UINT64_MAX && r->begin <= info->text_bytes) r->end = info->text_bytes;
    if (r->end <= info->text_bytes) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "--range goes beyond the text, which has %" PRIu64 " bytes", info->text_bytes);
}

static reef_status reply(reef_cli_call *cli,
                         const request *r,
                         const reef_archive_info *info,
                         reef_error *err) {
    char words[CLI_WORD_BYTES];
    if (cli->json) {
        const char *path = cli->operand_count > 0 ? cli->operands[0] : "-";
        json_t *document = reef_archive_json(info, strcmp(path, "-") == 0 ? NULL : path);
        json_object_set_new(document, "path",
                            r->out.path != NULL ? reef_cli_path(r->out.path) : json_null());
        json_object_set_new(document, "begin", json_integer((json_int_t)r->begin));
        json_object_set_new(document, "end", json_integer((json_int_t)r->end));
        json_object_set_new(document, "done", json_boolean(!cli->dry_run));
        return reef_cli_reply(cli, document, err);
    }
    if (r->out.path == NULL && !cli->dry_run) return REEF_OK; // the text is there
    printf("%s%s, %s\n", cli->dry_run ? "would write " : "",
           r->out.path != NULL ? r->out.path : "to standard output",
           reef_cli_bytes(r->end - r->begin, words));
    return REEF_OK;
}

static reef_status expand(reef_cli_call *cli,
                          request *r,
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
    const reef_archive_options options = reef_archive_options_of(cli, "expanding");
    status = reef_archive_read(store, r->archive.bytes, r->archive.count, r->begin, r->end,
                               &options, text, err);
    reef_archive_progress_end();
    reef_store_close(store);
    if (status == REEF_OK && !cli->dry_run)
        status = reef_cli_output_write(&r->out, text, count, err);
    free(text);
    return status;
}

reef_status reef_cmd_expand(reef_cli_call *cli, reef_error *err) {
    request r = {0};
    reef_archive_info info = {0};
    reef_status status = read_request(cli, &r, err);
    if (status == REEF_OK) reef_cli_catch_signals(true);
    if (status == REEF_OK) status = expand(cli, &r, &info, err);
    if (status == REEF_OK) status = reply(cli, &r, &info, err);
    reef_archive_info_release(&info);
    reef_cli_file_release(&r.archive);
    reef_cli_output_release(&r.out);
    if (status == REEF_ERR_BUSY) reef_cli_end_as_signalled();
    return status;
}
