// reef kind merge: two kinds whose memories predict each other become one. reef kind near: which?
#include "cli_alloc.h"
#include "cli_format.h"
#include "cli_kinds.h"
#include "cli_progress.h"
#include "cli_table.h"
#include "commands.h"

#include <inttypes.h>
#include <stdlib.h>

static const reef_cli_option NEAR_OPTIONS[] = {
    {"limit", "N", "so many pairs of kinds (default: 10)"},
    {0},
};

const reef_cli_manual reef_kind_near_manual = {
    .about =
        "Pairs of kinds of which each one's memory knows contexts of the other one's text, the\n"
        "nearest ones, and what merging them would cost (reef kind merge --dry-run): bits per\n"
        "byte of both texts more, by how much each kind has learned. Below zero it would be a\n"
        "gain. Kinds that are open cannot be merged and are left out. Nothing is changed, and\n"
        "a daemon may run.",
    .options = NEAR_OPTIONS,
    .example = "reef kind near kinds.pool\n"
               "reef kind near kinds.pool --limit 3 --json",
};

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

static reef_status read_kinds(reef_cli_call *cli, reef_kind_list *out, reef_error *err) {
    reef_cli_pool pool;
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    if (status == REEF_OK) status = reef_cli_kinds_read(&pool, out, err);
    reef_cli_pool_close(&pool);
    return status;
}

typedef struct opened {
    reef_store *store;
    reef_trainer *trainer;
} opened;

static void close_trainer(opened *o) {
    reef_trainer_close(o->trainer);
    reef_store_close(o->store);
}

static reef_status open_trainer(const reef_cli_call *cli, bool write, opened *o, reef_error *err) {
    const reef_trainer_options options = {.threads = cli->threads,
                                          .memory_bytes = cli->memory_bytes};
    const reef_store_options access = {.write = write};
    reef_error reason;
    *o = (opened){0};
    reef_status status = reef_store_open(&o->store, cli->pool, &access, &reason);
    if (status == REEF_ERR_BUSY)
        return reef_fail(err, status, "%.180s; stop it first: merging needs the pool to itself",
                         reason.message);
    if (status != REEF_OK) return reef_fail(err, status, "%s", reason.message);
    status = reef_trainer_open(&o->trainer, o->store, &options, err);
    if (status != REEF_OK) close_trainer(o);
    return status;
}

// ---- merge --------------------------------------------------------------------------------------

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
    reef_kind_list list = {0};
    reef_kind_merging m;
    opened o;
    reef_status status = read_kinds(cli, &list, err);
    for (size_t i = 0; status == REEF_OK && i < 2; i++)
        status = reef_kind_find(&list, cli->operands[i], &kinds[i], err);
    reef_kind_list_release(&list);
    if (status == REEF_OK) status = open_trainer(cli, !cli->dry_run, &o, err);
    if (status != REEF_OK) return status;
    status = reef_trainer_kind_merge(o.trainer, kinds[0], kinds[1], cli->dry_run, &m, err);
    close_trainer(&o);
    if (status != REEF_OK) return status;
    if (cli->json) return reef_cli_reply(cli, merging_json(cli, &m), err);
    print_merging(cli, &m);
    return REEF_OK;
}

// ---- near ---------------------------------------------------------------------------------------

typedef struct near_pair {
    reef_near_kinds kinds;
    reef_kind_merging merging;
    double more; // bits per byte of both texts, if they were one kind
} near_pair;

static double cost_of(const reef_kind_merging *m) {
    double from = (double)m->from_bytes, into = (double)m->into_bytes;
    return (from * (m->from_together - m->from_apart) + into * (m->into_together - m->into_apart)) /
           (from + into);
}

static int cheapest_first(const void *a, const void *b) {
    double x = ((const near_pair *)a)->more, y = ((const near_pair *)b)->more;
    return (x > y) - (x < y);
}

static reef_status measure_pairs(
    reef_trainer *trainer, near_pair *pairs, size_t limit, size_t *count, reef_error *err) {
    reef_cli_progress progress;
    reef_near_kinds *kinds = reef_cli_alloc(limit, sizeof(*kinds));
    reef_status status = reef_trainer_near_kinds(trainer, kinds, limit, count, err);
    if (status != REEF_OK) *count = 0;
    reef_cli_progress_start(&progress, "merging", *count, "pairs");
    for (size_t i = 0; status == REEF_OK && i < *count; i++) {
        pairs[i].kinds = kinds[i];
        status = reef_trainer_kind_merge(trainer, kinds[i].from, kinds[i].into, true,
                                         &pairs[i].merging, err);
        pairs[i].more = cost_of(&pairs[i].merging);
        reef_cli_progress_show(&progress, i + 1);
    }
    reef_cli_progress_end(&progress);
    qsort(pairs, *count, sizeof(*pairs), cheapest_first);
    free(kinds);
    return status;
}

static void kind_cells(reef_cli_table *table,
                       const reef_kind_list *list,
                       uint32_t kind,
                       uint64_t learned) {
    char words[CLI_WORD_BYTES];
    const char *name = kind < list->count ? list->kinds[kind].name : "";
    reef_cli_table_cell(table, "%" PRIu32, kind);
    reef_cli_table_cell(table, "%s", name[0] == '\0' ? "-" : name);
    reef_cli_table_cell(table, "%s", reef_cli_bytes(learned, words));
}

static void print_pairs(const reef_kind_list *list, const near_pair *pairs, size_t count) {
    static const char *const HEADING[] = {"from",    "name",     "learned",   "into",      "name",
                                          "learned", "distance", "from more", "into more", "more"};
    if (count == 0) {
        printf("no two kinds are near each other\n");
        return;
    }
    reef_cli_table *table = reef_cli_table_new("><>><>>>>>", HEADING);
    for (size_t i = 0; i < count; i++) {
        const reef_kind_merging *m = &pairs[i].merging;
        kind_cells(table, list, m->from, m->from_bytes);
        kind_cells(table, list, m->into, m->into_bytes);
        reef_cli_table_cell(table, "%.2f", pairs[i].kinds.distance);
        reef_cli_table_cell(table, "%+.4f", m->from_together - m->from_apart);
        reef_cli_table_cell(table, "%+.4f", m->into_together - m->into_apart);
        reef_cli_table_cell(table, "%+.4f", pairs[i].more);
    }
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

static json_t *pairs_json(const near_pair *pairs, size_t count) {
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        const reef_kind_merging *m = &pairs[i].merging;
        json_array_append_new(
            list, json_pack("{s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "from",
                            (json_int_t)m->from, "into", (json_int_t)m->into, "from_bytes",
                            (json_int_t)m->from_bytes, "into_bytes", (json_int_t)m->into_bytes,
                            "distance", reef_cli_real(pairs[i].kinds.distance), "from_apart",
                            reef_cli_real(m->from_apart), "from_together",
                            reef_cli_real(m->from_together), "into_apart",
                            reef_cli_real(m->into_apart), "into_together",
                            reef_cli_real(m->into_together), "more", reef_cli_real(pairs[i].more)));
    }
    return json_pack("{s:o}", "pairs", list);
}

reef_status reef_cmd_kind_near(reef_cli_call *cli, reef_error *err) {
    uint64_t limit = 10;
    size_t count = 0;
    reef_kind_list list = {0};
    opened o;
    reef_status status = reef_cli_integer(cli, "limit", 1, 1000000, &limit, err);
    if (status == REEF_OK) status = read_kinds(cli, &list, err);
    if (status == REEF_OK) status = open_trainer(cli, false, &o, err);
    if (status != REEF_OK) {
        reef_kind_list_release(&list);
        return status;
    }
    near_pair *pairs = reef_cli_alloc((size_t)limit, sizeof(*pairs));
    status = measure_pairs(o.trainer, pairs, (size_t)limit, &count, err);
    close_trainer(&o);
    if (status == REEF_OK && cli->json)
        status = reef_cli_reply(cli, pairs_json(pairs, count), err);
    else if (status == REEF_OK)
        print_pairs(&list, pairs, count);
    free(pairs);
    reef_kind_list_release(&list);
    return status;
}
