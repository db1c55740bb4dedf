// reef kind merge: two kinds whose memories predict each other become one; and which would?
#include "cli_format.h"
#include "cli_pool.h"
#include "cli_progress.h"
#include "cli_transport.h"
#include "commands.h"
#include "reef_client.h"
#include "reef_pool_json.h"

#include <inttypes.h>
#include <stdlib.h>

static const reef_cli_option OPTIONS[] = {
    {"near", NULL, "list the pairs of kinds that are alike, and what merging each would cost"},
    {"limit", "N", "with --near: so many pairs (default: 20)"},
    {0},
};

const reef_cli_manual reef_kind_merge_manual = {
    .about =
        "The memory of kind INTO learns what the memory of kind FROM keeps of its text: all of it\n"
        "where the kind is small, else the end. From then on FROM neither answers nor learns, and\n"
        "what comes of it is INTO's. States before that stay as they are, to the bit.\n"
        "\n"
        "What it costs is measured before, and alone with --dry-run: the bits per byte of the end\n"
        "of either text, by two memories that learned one text each and answer as kinds do, and\n"
        "by one that learned both. Kinds are named by number or name. A daemon does not train\n"
        "meanwhile, which takes seconds; a dry run stops none.\n"
        "\n"
        "--near takes the pairs of kinds whose texts share the most contexts, and changes\n"
        "nothing. `more` is the increase in bits per byte over both texts, weighted by what each\n"
        "kind has learned; a negative value is a gain. The kind of the open generation is left\n"
        "out, since it cannot be merged.",
    .options = OPTIONS,
    .example = "reef kind merge kinds.pool --near\n"
               "reef kind merge kinds.pool 1 0 --dry-run\n"
               "reef kind merge kinds.pool 1 0",
};

static reef_status read_kinds(reef_cli_call *cli, reef_kind_list *out, reef_error *err) {
    reef_cli_pool pool;
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    if (status == REEF_OK) status = reef_cli_kinds_read(&pool, out, err);
    reef_cli_pool_close(&pool);
    return status;
}

// ---- merge --------------------------------------------------------------------------------------

// By the last commit, so that no daemon waits for it.
static reef_status measure_merge(const reef_cli_call *cli,
                                 json_t *request,
                                 json_t **result,
                                 reef_error *err) {
    reef_cli_trainer own;
    reef_status status = reef_cli_trainer_open(&own, cli, false, err);
    if (status == REEF_OK) status = reef_command_run(own.trainer, request, result, err);
    reef_cli_trainer_close(&own);
    json_decref(request);
    return status;
}

static void add_row(reef_cli_table *table, const json_t *merging, const char *role) {
    char name[32];
    double bits[2];
    static const char *const HOW[] = {"apart", "together"};
    for (size_t i = 0; i < 2; i++) {
        snprintf(name, sizeof(name), "%s_%s", role, HOW[i]);
        bits[i] = reef_cli_real_of(merging, name);
    }
    snprintf(name, sizeof(name), "%s_bytes", role);
    reef_cli_table_cells(
        table, "%s\t%" PRIu64 "\t%s\t%.4f\t%.4f\t%+.4f", role, reef_cli_count_of(merging, role),
        CLI_BYTES(reef_cli_count_of(merging, name)), bits[0], bits[1], bits[1] - bits[0]);
}

static void print_merging(const reef_cli_call *cli, const json_t *merging) {
    static const char *const HEADING[] = {"", "kind", "learned", "apart", "together", "more"};
    reef_cli_table *table = reef_cli_table_new("<>>>>>", HEADING);
    add_row(table, merging, "from");
    add_row(table, merging, "into");
    reef_cli_table_show(table);
    printf("\nkind %" PRIu64 " %s %s of the text of kind %" PRIu64 ", which %s\n",
           reef_cli_count_of(merging, "into"), cli->dry_run ? "would learn" : "has learned",
           CLI_BYTES(reef_cli_count_of(merging, "text_bytes")), reef_cli_count_of(merging, "from"),
           cli->dry_run ? "would end" : "has ended");
}

// The result, with `done` instead of what a reply says beside it.
static json_t *done_json(const reef_cli_call *cli, json_t *merging) {
    json_object_del(merging, "dry_run");
    json_object_del(merging, "last_commit");
    json_object_del(merging, "waited_ms");
    json_object_set_new(merging, "done", json_boolean(!cli->dry_run));
    return merging;
}

// ---- near ---------------------------------------------------------------------------------------

typedef struct near_pair {
    double distance, more; // more: bits per byte of both texts, if they were one kind
    reef_kind_merging merging;
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

static reef_status measure(
    reef_trainer *trainer, near_pair *pairs, size_t limit, size_t *count, reef_error *err) {
    reef_cli_progress progress;
    reef_near_kinds *kinds = reef_cli_alloc(limit, sizeof(*kinds));
    reef_status status = reef_trainer_near_kinds(trainer, kinds, limit, count, err);
    reef_cli_progress_start(&progress, "merging", *count, "pairs");
    for (size_t i = 0; status == REEF_OK && i < *count; i++) {
        status = reef_trainer_kind_merge(trainer, kinds[i].from, kinds[i].into, true,
                                         &pairs[i].merging, err);
        pairs[i].distance = kinds[i].distance;
        pairs[i].more = cost_of(&pairs[i].merging);
        reef_cli_progress_show(&progress, i + 1);
    }
    reef_cli_progress_end(&progress);
    free(kinds);
    return status;
}

static reef_status find_near(const reef_cli_call *cli,
                             size_t limit,
                             json_t **result,
                             reef_error *err) {
    size_t count = 0;
    reef_cli_trainer own;
    near_pair *pairs = reef_cli_alloc(limit, sizeof(*pairs));
    reef_status status = reef_cli_trainer_open(&own, cli, false, err);
    if (status == REEF_OK) status = measure(own.trainer, pairs, limit, &count, err);
    reef_cli_trainer_close(&own);
    json_t *list = json_array();
    qsort(pairs, count, sizeof(*pairs), cheapest_first);
    for (size_t i = 0; i < count; i++) {
        json_t *pair = reef_kind_merging_json(&pairs[i].merging);
        json_object_del(pair, "text_bytes");
        json_object_set_new(pair, "distance", reef_cli_real(pairs[i].distance));
        json_object_set_new(pair, "more", reef_cli_real(pairs[i].more));
        json_array_append_new(list, pair);
    }
    *result = json_pack("{s:o}", "pairs", list);
    free(pairs);
    return status;
}

static void kind_cells(reef_cli_table *table,
                       const reef_kind_list *list,
                       uint64_t kind,
                       uint64_t learned) {
    const char *name = reef_kind_list_name(list, (uint32_t)kind);
    reef_cli_table_cell(table, "%" PRIu64, kind);
    reef_cli_table_cell(table, "%s", name[0] == '\0' ? "-" : name);
    reef_cli_table_cell(table, "%s", CLI_BYTES(learned));
}

static void print_pairs(const reef_kind_list *list, const json_t *pairs) {
    static const char *const HEADING[] = {"from",    "name",     "learned",   "into",      "name",
                                          "learned", "distance", "from more", "into more", "more"};
    if (json_array_size(pairs) == 0) {
        printf("no two kinds are near each other\n");
        return;
    }
    reef_cli_table *table = reef_cli_table_new("><>><>>>>>", HEADING);
    for (size_t i = 0; i < json_array_size(pairs); i++) {
        const json_t *pair = json_array_get(pairs, i);
        kind_cells(table, list, reef_cli_count_of(pair, "from"),
                   reef_cli_count_of(pair, "from_bytes"));
        kind_cells(table, list, reef_cli_count_of(pair, "into"),
                   reef_cli_count_of(pair, "into_bytes"));
        reef_cli_table_cells(
            table, "%.2f\t%+.4f\t%+.4f\t%+.4f", reef_cli_real_of(pair, "distance"),
            reef_cli_real_of(pair, "from_together") - reef_cli_real_of(pair, "from_apart"),
            reef_cli_real_of(pair, "into_together") - reef_cli_real_of(pair, "into_apart"),
            reef_cli_real_of(pair, "more"));
    }
    reef_cli_table_show(table);
}

static reef_status list_near(reef_cli_call *cli, reef_error *err) {
    uint64_t limit = 20;
    reef_kind_list list = {0};
    json_t *result = NULL;
    reef_status status = reef_cli_integer(cli, "limit", 1, 1000000, &limit, err);
    if (status == REEF_OK) status = read_kinds(cli, &list, err);
    if (status == REEF_OK) status = find_near(cli, (size_t)limit, &result, err);
    if (status == REEF_OK && cli->json)
        status = reef_cli_reply(cli, json_incref(result), err);
    else if (status == REEF_OK)
        print_pairs(&list, json_object_get(result, "pairs"));
    json_decref(result);
    reef_kind_list_release(&list);
    return status;
}

// ---- the command --------------------------------------------------------------------------------

reef_status reef_cmd_kind_merge(reef_cli_call *cli, reef_error *err) {
    uint32_t kinds[2] = {0};
    reef_kind_list list = {0};
    json_t *result = NULL;
    if (reef_cli_text(cli, "near") != NULL) return list_near(cli, err);
    if (cli->operand_count != 2)
        return reef_fail(err, REEF_ERR_INVALID,
                         "which kinds? give FROM and INTO, or --near to see which are alike");
    reef_status status = read_kinds(cli, &list, err);
    for (size_t i = 0; status == REEF_OK && i < 2; i++)
        status = reef_kind_find(&list, cli->operands[i], &kinds[i], err);
    reef_kind_list_release(&list);
    if (status != REEF_OK) return status;
    json_t *request =
        json_pack("{s:s, s:I, s:I, s:b}", "command", "kind_merge", "from", (json_int_t)kinds[0],
                  "into", (json_int_t)kinds[1], "dry_run", cli->dry_run);
    status = cli->dry_run ? measure_merge(cli, request, &result, err)
                          : reef_cli_change(cli, request, &result, err);
    if (status != REEF_OK) return status;
    if (cli->json) return reef_cli_reply(cli, done_json(cli, result), err);
    print_merging(cli, result);
    json_decref(result);
    return REEF_OK;
}
