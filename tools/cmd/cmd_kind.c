// reef kind list, name and recover: the kinds of text that a pool has learned, and those that are
// damaged.
#include "chart.h"
#include "cli_transport.h"
#include "commands.h"
#include "reef_pool_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static const reef_cli_option LIST_OPTIONS[] = {
    CLI_OPTION_AS_OF,
    {0},
};

static const reef_cli_option NAME_OPTIONS[] = {
    {"remove", NULL, "it has no name any more"},
    {0},
};

const reef_cli_manual reef_kind_list_manual = {
    .about =
        "A kind begins with a generation, and has its number. Where text of it comes back, its\n"
        "context memory goes on learning: that is a visit. Learned is what its memory learned in\n"
        "all; first and last are the bits per byte of its first and its last visit, before they\n"
        "were learned. Below it is drawn which kind learned what of the stream.\n"
        "\n"
        "The last 4,096 visits are known one by one; of those before them, each kind has a sum.\n"
        "As of an earlier state, kinds are as they were then. A snapshot has the names of its\n"
        "time; as of a generation they are those of now.\n"
        "\n"
        "With KIND, its name or its number: that one, with where in the stream its visits were,\n"
        "what was learned, and what that cost in bits per byte before it was learned.",
    .options = LIST_OPTIONS,
    .example = "reef kind list reef.pool\n"
               "reef kind list reef.pool 0\n"
               "reef kind list reef.pool --as-of 0",
};

const reef_cli_manual reef_kind_name_manual = {
    .about =
        "Names are for people: lists and pictures show them, and commands take them where they\n"
        "take a kind's number. They are part of the pool's state, so that a snapshot has those of\n"
        "its time.",
    .options = NAME_OPTIONS,
    .example = "reef kind name reef.pool 0 english\n"
               "reef kind name reef.pool english prose\n"
               "reef kind name reef.pool prose --remove",
};

const reef_cli_manual reef_kind_recover_manual = {
    .about =
        "Where a record of a kind is damaged, the pool can be read, and says so, but not trained\n"
        "on. This lets the kind go on as it was before what is damaged; one of which nothing is\n"
        "whole begins anew, with its number and its name. All other kinds stay as they are, to\n"
        "the bit, and so do earlier states. reef verify says first whether a snapshot has more.\n"
        "\n"
        "What is damaged stays in the file, and reef verify keeps reporting it. reef prune\n"
        "removes a damaged visit with the states of its time; a sealed memory stays.\n"
        "\n"
        "All damaged kinds are recovered at once. No daemon may run on the pool.",
    .options = NULL,
    .example = "reef kind recover kinds.pool --dry-run\n"
               "reef kind recover kinds.pool",
};

// ---- list ---------------------------------------------------------------------------------------

static void state_cell(reef_cli_table *table, const reef_kind_facts *kind) {
    if (kind->merged_into != REEF_KIND_NONE)
        reef_cli_table_cell(table, "in %" PRIu32, kind->merged_into);
    else
        reef_cli_table_cell(table, "%s",
                            kind->is_damaged   ? "damaged"
                            : kind->is_current ? "learning"
                            : kind->is_open    ? "open"
                                               : "");
}

static void print_table(const reef_kind_list *list) {
    static const char *const HEADINGS[] = {"kind",    "name",   "since byte",
                                           "learned", "visits", "last at byte",
                                           "first",   "last",   "state"};
    reef_cli_table *table = reef_cli_table_new("><>>>>>><", HEADINGS);
    for (size_t i = 0; i < list->count; i++) {
        const reef_kind_facts *kind = &list->kinds[i];
        reef_cli_table_cell(table, "%" PRIu32, kind->kind);
        reef_cli_table_cell(table, "%s", kind->name[0] == '\0' ? "-" : kind->name);
        reef_cli_table_cells(table, "%s\t%s\t%s\t%s", CLI_COUNT(kind->began_at),
                             list->has_memories ? CLI_BYTES(kind->learned_bytes) : "-",
                             CLI_COUNT(kind->visit_count), CLI_COUNT(kind->learned_at));
        reef_cli_table_real(table, 3, kind->first_loss, "-");
        reef_cli_table_real(table, 3, kind->last_loss, "-");
        state_cell(table, kind);
    }
    reef_cli_table_show(table);
}

// ---- which kind learned what --------------------------------------------------------------------

#define CELLS 4096 // of the picture: equal parts of the stream

static uint64_t stream_end(const reef_kind_list *list) {
    uint64_t end = 0;
    for (size_t i = 0; i < list->visit_count; i++)
        if (list->visits[i].to > end) end = list->visits[i].to;
    return end;
}

// The kind that learned each cell's middle; NULL: no visit is known one by one.
static uint32_t *cells_of(const reef_kind_list *list, uint64_t end) {
    bool any = false;
    uint32_t *cells = reef_cli_alloc(CELLS, sizeof(*cells));
    for (size_t c = 0; c < CELLS; c++) cells[c] = REEF_KIND_NONE;
    for (size_t i = 0; i < list->visit_count; i++) {
        const reef_kind_visit *visit = &list->visits[i];
        if (visit->count > 1) continue;
        any = true;
        size_t c = (size_t)((double)visit->from / (double)end * CELLS);
        for (; c < CELLS && ((double)c + 0.5) * (double)end / CELLS < (double)visit->to; c++)
            if (((double)c + 0.5) * (double)end / CELLS >= (double)visit->from)
                cells[c] = visit->kind;
    }
    if (any) return cells;
    free(cells);
    return NULL;
}

static void draw_stream(const reef_kind_list *list) {
    uint64_t end = stream_end(list);
    uint32_t *cells = end > 0 ? cells_of(list, end) : NULL;
    if (cells == NULL) return;
    const reef_kinds_text text = {.answered = cells, .count = CELLS, .bytes = end, .kinds = list};
    printf("\n");
    reef_chart_kinds_print(stdout, &text);
    free(cells);
}

// ---- one kind -----------------------------------------------------------------------------------

static void print_visits(const reef_kind_list *list, uint32_t kind) {
    static const char *const HEADINGS[] = {"visit", "from byte", "to byte", "learned",
                                           "bits per byte"};
    uint64_t number = 0;
    reef_cli_table *table = reef_cli_table_new(">>>>>", HEADINGS);
    for (size_t i = 0; i < list->visit_count; i++) {
        const reef_kind_visit *visit = &list->visits[i];
        if (visit->kind != kind) continue;
        number += visit->count;
        if (visit->count == 1)
            reef_cli_table_cell(table, "%" PRIu64, number);
        else
            reef_cli_table_cell(table, "%" PRIu64 "-%" PRIu64, number - visit->count + 1, number);
        reef_cli_table_cells(table, "%s\t%s\t%s", CLI_COUNT(visit->from), CLI_COUNT(visit->to),
                             CLI_BYTES(visit->learned));
        reef_cli_table_real(table, 3, reef_kind_visit_loss(visit), "-");
    }
    if (number > 0) {
        printf("\n");
        reef_cli_table_print(table, stdout);
    }
    reef_cli_table_free(table);
}

static void print_kind(const reef_kind_list *list, const reef_kind_facts *kind) {
    printf("kind %" PRIu32 "%s%s%s%s\n", kind->kind, kind->name[0] ? ", " : "", kind->name,
           kind->is_current ? ", learning" : "", kind->is_open ? ", its generation is open" : "");
    if (kind->merged_into != REEF_KIND_NONE)
        printf("  merged into kind %" PRIu32 "\n", kind->merged_into);
    printf("  since       byte %s\n", CLI_COUNT(kind->began_at));
    if (!list->has_memories) {
        printf("  learned     not counted without context memories\n");
        return;
    }
    printf("  learned     %s, the last at byte %s\n", CLI_BYTES(kind->learned_bytes),
           CLI_COUNT(kind->learned_at));
    printf("  visits      %s", CLI_COUNT(kind->visit_count));
    // The first byte of a visit that does not follow on is learned beside it.
    if (kind->visited_bytes + kind->visit_count + 1 < kind->learned_bytes)
        printf(" known, of %s", CLI_BYTES(kind->visited_bytes));
    printf("\n");
    print_visits(list, kind->kind);
}

static json_t *list_json(const reef_kind_list *list,
                         const reef_kind_facts *kind,
                         const char *as_of) {
    json_t *kinds = kind == NULL ? reef_kind_list_json(list) : json_array();
    if (kind != NULL) {
        json_t *one = reef_kind_json(kind);
        json_object_set_new(one, "visit_list", reef_kind_visits_json(list, kind->kind));
        json_array_append_new(kinds, one);
    }
    return json_pack("{s:s, s:o}", "as_of", as_of, "kinds", kinds);
}

static reef_status read_as_of(const reef_cli_call *cli,
                              reef_cli_pool *pool,
                              char name[REEF_NAME_BYTES_MAX + 1],
                              reef_kind_list *out,
                              reef_error *err) {
    reef_txn *txn = NULL;
    *out = (reef_kind_list){0};
    reef_status status = reef_cli_as_of(cli, pool->store, name, err);
    if (status == REEF_OK) status = reef_txn_begin(&txn, pool->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_kind_list_read_as_of(txn, name, out, err);
    reef_txn_abort(txn);
    return status;
}

// All kinds in the state that --as-of names, and the one that the command names, or NULL; the list
// is the caller's, even after an error.
static reef_status read_kinds(reef_cli_call *cli,
                              char as_of[REEF_NAME_BYTES_MAX + 1],
                              reef_kind_list *list,
                              const reef_kind_facts **out,
                              reef_error *err) {
    uint32_t kind = 0;
    reef_cli_pool pool;
    *list = (reef_kind_list){0};
    *out = NULL;
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    if (status == REEF_OK) status = read_as_of(cli, &pool, as_of, list, err);
    if (status == REEF_OK && cli->operand_count > 0) {
        status = reef_kind_find(list, cli->operands[0], &kind, err);
        if (status == REEF_OK) *out = reef_kind_list_find(list, kind);
    }
    reef_cli_pool_close(&pool);
    return status;
}

reef_status reef_cmd_kind_list(reef_cli_call *cli, reef_error *err) {
    char as_of[REEF_NAME_BYTES_MAX + 1];
    const reef_kind_facts *kind;
    reef_kind_list list;
    reef_status status = read_kinds(cli, as_of, &list, &kind, err);
    if (status == REEF_OK && cli->json) {
        status = reef_cli_reply(cli, list_json(&list, kind, as_of), err);
    } else if (status == REEF_OK && kind != NULL) {
        print_kind(&list, kind);
    } else if (status == REEF_OK) {
        print_table(&list);
        draw_stream(&list);
    }
    reef_kind_list_release(&list);
    return status;
}

// ---- name ---------------------------------------------------------------------------------------

static reef_status reply_name(reef_cli_call *cli,
                              const reef_kind_facts *kind,
                              const char *name,
                              reef_error *err) {
    if (cli->json)
        return reef_cli_reply(cli,
                              json_pack("{s:b, s:I, s:o, s:o}", "done", !cli->dry_run, "kind",
                                        (json_int_t)kind->kind, "name", reef_cli_name(name),
                                        "before", reef_cli_name(kind->name)),
                              err);
    const char *is = cli->dry_run ? "would be" : "is";
    printf("kind %" PRIu32, kind->kind);
    if (name[0] != '\0' && strcmp(kind->name, name) == 0) {
        printf(" is called %s already\n", name);
        return REEF_OK;
    }
    if (kind->name[0] != '\0') printf(", so far %s,", kind->name);
    if (name[0] != '\0')
        printf(" %s called %s\n", is, name);
    else
        printf(" %s without a name\n", is);
    return REEF_OK;
}

reef_status reef_cmd_kind_name(reef_cli_call *cli, reef_error *err) {
    bool removes = reef_cli_text(cli, "remove") != NULL;
    const char *name = cli->operand_count > 1 ? cli->operands[1] : "";
    char as_of[REEF_NAME_BYTES_MAX + 1]; // now
    const reef_kind_facts *kind;
    reef_kind_list list;
    json_t *result = NULL;
    if (removes == (cli->operand_count > 1))
        return reef_fail(err, REEF_ERR_INVALID, "give a name, or --remove");
    // Found here, since the daemon's message would speak of members.
    reef_status status = removes ? REEF_OK : reef_kind_name_check(name, err);
    if (status != REEF_OK) return status;
    status = read_kinds(cli, as_of, &list, &kind, err);
    if (status == REEF_OK) {
        json_t *request = json_pack("{s:s, s:I, s:s, s:b}", "command", "kind_name", "kind",
                                    (json_int_t)kind->kind, "name", name, "dry_run", cli->dry_run);
        status = reef_cli_change(cli, request, &result, err);
    }
    json_decref(result);
    if (status == REEF_OK) status = reply_name(cli, kind, name, err);
    reef_kind_list_release(&list);
    return status;
}

// ---- recover ------------------------------------------------------------------------------------

static void print_recovery(const reef_cli_call *cli,
                           const reef_kind_list *list,
                           const reef_kind_recovery *kind) {
    const char *name = reef_kind_list_name(list, kind->lost.kind);
    const char *verb = cli->dry_run ? "would " : "", *s = cli->dry_run ? "" : "s";
    printf("kind %" PRIu32 "%s%s%s ", kind->lost.kind, name[0] != '\0' ? " (" : "", name,
           name[0] != '\0' ? ")" : "");
    if (kind->lost.whole_to > 0) {
        printf("%sgo%s on as it was at byte %s of the stream, with the %s that it had learned by "
               "then\n",
               verb, cli->dry_run ? "" : "es", CLI_COUNT(kind->lost.whole_to),
               CLI_BYTES(kind->learned));
    } else {
        printf("%sbegin%s anew: nothing that it learned is whole\n", verb, s);
    }
    printf("  %s\n", kind->lost.what);
}

static json_t *recovery_json(const reef_kind_list *list, const reef_kind_recovery *kind) {
    const char *name = reef_kind_list_name(list, kind->lost.kind);
    return json_pack("{s:I, s:o, s:I, s:I, s:s}", "kind", (json_int_t)kind->lost.kind, "name",
                     reef_cli_name(name), "whole_to", (json_int_t)kind->lost.whole_to,
                     "learned_bytes", (json_int_t)kind->learned, "what", kind->lost.what);
}

static reef_status reply_recovery(reef_cli_call *cli,
                                  const reef_kind_list *list,
                                  const reef_kind_recovery *kinds,
                                  size_t count,
                                  reef_error *err) {
    if (cli->json) {
        json_t *array = json_array();
        for (size_t i = 0; i < count; i++)
            json_array_append_new(array, recovery_json(list, &kinds[i]));
        return reef_cli_reply(
            cli, json_pack("{s:b, s:o}", "done", !cli->dry_run && count > 0, "kinds", array), err);
    }
    for (size_t i = 0; i < count; i++) print_recovery(cli, list, &kinds[i]);
    if (count == 0) printf("no kind is damaged\n");
    return REEF_OK;
}

// A dry run only reads the pool; free *out.
static reef_status recover(const reef_cli_call *cli,
                           reef_kind_recovery **out,
                           size_t *count,
                           reef_error *err) {
    reef_store *store = NULL;
    reef_trainer *trainer = NULL;
    const reef_trainer_options options = {
        .threads = cli->threads, .memory_bytes = cli->memory_bytes, .recovers_kinds = true};
    *out = NULL;
    *count = 0;
    reef_status status =
        reef_store_open(&store, cli->pool, &(reef_store_options){.write = !cli->dry_run}, err);
    if (status == REEF_OK) status = reef_trainer_open(&trainer, store, &options, err);
    if (status == REEF_OK)
        status = reef_trainer_kinds_recover(trainer, cli->dry_run, out, count, err);
    reef_trainer_close(trainer);
    if (store != NULL) reef_store_close(store);
    return status;
}

reef_status reef_cmd_kind_recover(reef_cli_call *cli, reef_error *err) {
    reef_cli_pool pool;
    reef_kind_list list = {0};
    reef_kind_recovery *kinds = NULL;
    size_t count = 0;
    reef_status status = reef_cli_pool_open(&pool, cli, err);
    if (status == REEF_OK) status = reef_cli_kinds_read(&pool, &list, err);
    reef_cli_pool_close(&pool);
    if (status == REEF_OK) status = recover(cli, &kinds, &count, err);
    if (status == REEF_OK) status = reply_recovery(cli, &list, kinds, count, err);
    free(kinds);
    reef_kind_list_release(&list);
    return status;
}
