// reef kind merge: two kinds whose memories predict each other become one.
#include "cli_format.h"
#include "cli_kinds.h"
#include "cli_table.h"
#include "commands.h"

#include <inttypes.h>

const reef_cli_manual reef_kind_merge_manual = {
    .about =
        "The memory of kind INTO learns what the memory of kind FROM keeps of its text: all of\n"
        "it where the kind is small, else the end. From then on FROM neither answers nor learns,\n"
        "and what comes of it is INTO's. States before that stay as they are, to the bit.\n"
        "\n"
        "What it costs is measured before, and alone with --dry-run: the bits per byte of the end\n"
        "of either text, by two memories that learned one text each and answer as kinds do, and\n"
        "by one that learned both. Kinds are named by number or name. A daemon has to\n"
        "be stopped first; beside one --dry-run tells what it would cost.",
    .options = NULL,
    .example = "reef kind merge kinds.pool 1 0 --dry-run\n"
               "reef kind merge kinds.pool 1 0",
};

static reef_status find_kinds(reef_cli_call *cli, uint32_t out[2], reef_error *err) {
    reef_cli_pool pool;
    reef_kind_list list = {0};
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    if (status == REEF_OK) status = reef_cli_kinds_read(&pool, &list, err);
    for (size_t i = 0; status == REEF_OK && i < 2; i++)
        status = reef_kind_find(&list, cli->operands[i], &out[i], err);
    reef_kind_list_release(&list);
    reef_cli_pool_close(&pool);
    return status;
}

static reef_status run_merge(const reef_cli_call *cli,
                             const uint32_t kinds[2],
                             reef_kind_merging *m,
                             reef_error *err) {
    const reef_trainer_options options = {.threads = cli->threads,
                                          .memory_bytes = cli->memory_bytes};
    const reef_store_options access = {.write = !cli->dry_run};
    reef_store *store = NULL;
    reef_trainer *trainer = NULL;
    reef_error reason;
    reef_status status = reef_store_open(&store, cli->pool, &access, &reason);
    if (status == REEF_ERR_BUSY)
        return reef_fail(err, status, "%.180s; stop it first: merging needs the pool to itself",
                         reason.message);
    if (status != REEF_OK) return reef_fail(err, status, "%s", reason.message);
    status = reef_trainer_open(&trainer, store, &options, err);
    if (status == REEF_OK)
        status = reef_trainer_kind_merge(trainer, kinds[0], kinds[1], cli->dry_run, m, err);
    reef_trainer_close(trainer);
    reef_store_close(store);
    return status;
}

static void add_row(
    reef_cli_table *table, const char *role, uint32_t kind, uint64_t learned, double a, double b) {
    char words[CLI_WORD_BYTES];
    reef_cli_table_cell(table, "%s", role);
    reef_cli_table_cell(table, "%" PRIu32, kind);
    reef_cli_table_cell(table, "%s", reef_cli_bytes(learned, words));
    reef_cli_table_cell(table, "%.4f", a);
    reef_cli_table_cell(table, "%.4f", b);
    reef_cli_table_cell(table, "%+.4f", b - a);
}

static void print_merging(const reef_cli_call *cli, const reef_kind_merging *m) {
    static const char *const HEADING[] = {"", "kind", "learned", "apart", "together", "more"};
    char words[CLI_WORD_BYTES];
    reef_cli_table *table = reef_cli_table_new("<>>>>>", HEADING);
    add_row(table, "from", m->from, m->from_bytes, m->from_apart, m->from_together);
    add_row(table, "into", m->into, m->into_bytes, m->into_apart, m->into_together);
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
    printf("\nkind %" PRIu32 " %s %s of the text of kind %" PRIu32 ", which %s\n", m->into,
           cli->dry_run ? "would learn" : "has learned", reef_cli_bytes(m->text_bytes, words),
           m->from, cli->dry_run ? "would end" : "has ended");
}

static json_t *merging_json(const reef_cli_call *cli, const reef_kind_merging *m) {
    return json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "done", !cli->dry_run,
                     "from", (json_int_t)m->from, "into", (json_int_t)m->into, "from_bytes",
                     (json_int_t)m->from_bytes, "into_bytes", (json_int_t)m->into_bytes,
                     "text_bytes", (json_int_t)m->text_bytes, "from_apart",
                     reef_cli_real(m->from_apart), "from_together", reef_cli_real(m->from_together),
                     "into_apart", reef_cli_real(m->into_apart), "into_together",
                     reef_cli_real(m->into_together));
}

reef_status reef_cmd_kind_merge(reef_cli_call *cli, reef_error *err) {
    uint32_t kinds[2] = {0};
    reef_kind_merging m;
    reef_status status = find_kinds(cli, kinds, err);
    if (status == REEF_OK) status = run_merge(cli, kinds, &m, err);
    if (status != REEF_OK) return status;
    if (cli->json) return reef_cli_reply(cli, merging_json(cli, &m), err);
    print_merging(cli, &m);
    return REEF_OK;
}
