// reef bench kinds: many kinds of text in one stream, beside a memory for each that knows its kind.
#include "bench_kinds.h"
#include "cli_format.h"
#include "cli_table.h"
#include "commands.h"

#include <stdlib.h>

static const reef_cli_option OPTIONS[] = {
    {"memory", "SIZE", "what a kind's memory takes at most, 4M to 512M (default: 64M)"},
    {"train-bytes", "N", "bytes of each TRAIN at most (default: 1700000)"},
    {"piece", "N", "bytes of each piece of held-out text (default: 500)"},
    {"seed", "N", "of the orders in which kinds come (default: 1)"},
    {0},
};

const reef_cli_manual reef_bench_kinds_manual = {
    .about =
        "A new pool without a net (--boundaries contexts) learns all TRAIN as one stream, in a\n"
        "random order; nobody tells it where one ends. Then it learns three quarters of each HELD\n"
        "in another order. Before and after that it reads their last quarters, one by one. Beside\n"
        "it stand memories that learned one TRAIN each and know which text is whose. Printed are\n"
        "the bits per byte of both, and:\n"
        "\n"
        "changes: how many kinds began where a generation was opened, from 4 kB before to 8 kB\n"
        "behind, and how many generations were opened elsewhere.\n"
        "\n"
        "back: how much of these quarters was learned by kinds that were there, how much of it by\n"
        "the one that had learned most of that TRAIN, and how many kinds began among them.\n"
        "\n"
        "pieces: bits per byte of pieces of the last quarters in a random order, as one text and\n"
        "each by itself; the memories beside it know where one ends and whose the next one is.\n"
        "\n"
        "disk: what the pool takes, for each byte of the stream.",
    .options = OPTIONS,
    .example =
        "reef bench kinds notes.txt held.txt code.c held.c\n"
        "reef bench kinds $(for k in *.held.txt; do echo ${k%.held.txt}.txt $k; done) --memory 8M",
};

static reef_status read_plan(const reef_cli_call *cli, reef_kinds_plan *plan, reef_error *err) {
    *plan = (reef_kinds_plan){.paths = cli->operands,
                              .kind_count = cli->operand_count / 2,
                              .memory_bytes = cli->memory_bytes,
                              .train_bytes = 1700000,
                              .piece_bytes = 500,
                              .seed = 1,
                              .threads = cli->threads};
    if (cli->operand_count % 2 != 0)
        return reef_fail(err, REEF_ERR_INVALID,
                         "%zu files are no pairs of TRAIN and HELD: '%.120s' is left over",
                         cli->operand_count, cli->operands[cli->operand_count - 1]);
    reef_status status =
        reef_cli_integer(cli, "train-bytes", 1, BENCH_KINDS_TEXT_MAX, &plan->train_bytes, err);
    if (status == REEF_OK)
        status = reef_cli_integer(cli, "piece", 2, 65536, &plan->piece_bytes, err);
    if (status == REEF_OK) status = reef_cli_integer(cli, "seed", 0, UINT32_MAX, &plan->seed, err);
    return status;
}

// ---- for people ---------------------------------------------------------------------------------

static void print_kinds(const reef_kinds_findings *f) {
    static const char *const HEADING[] = {"kind", "begins at", "found", "own memory",
                                          "pool", "more",      "later", "forgotten"};
    reef_cli_table *table = reef_cli_table_new("<>>>>>>>", HEADING);
    char words[CLI_WORD_BYTES];
    for (size_t i = 0; i < f->kind_count; i++) {
        const reef_bench_kind *kind = &f->kinds[i];
        reef_cli_table_cell(table, "%s", kind->name);
        reef_cli_table_cell(table, "%s", reef_cli_count(kind->begins, words));
        // How late the boundary was; a kind that was not found has none.
        if (kind->is_found)
            reef_cli_table_cell(table, "%+lld", (long long)kind->late);
        else
            reef_cli_table_cell(table, "-");
        reef_cli_table_cell(table, "%.4f", kind->own);
        reef_cli_table_cell(table, "%.4f", kind->bits);
        reef_cli_table_cell(table, "%+.4f", kind->bits - kind->own);
        reef_cli_table_cell(table, "%.4f", kind->later);
        reef_cli_table_cell(table, "%+.4f", kind->later - kind->bits);
    }
    // The last row has no stream position of its own.
    reef_cli_table_cell(table, "mean");
    reef_cli_table_cell(table, "%s", "");
    reef_cli_table_cell(table, "%s", "");
    reef_cli_table_cell(table, "%.4f", f->own);
    reef_cli_table_cell(table, "%.4f", f->bits);
    reef_cli_table_cell(table, "%+.4f", f->bits - f->own);
    reef_cli_table_cell(table, "%.4f", f->later);
    reef_cli_table_cell(table, "%+.4f", f->later - f->bits);
    reef_cli_table_print(table, stdout);
    reef_cli_table_free(table);
}

static double per_s(uint64_t bytes, double seconds) {
    return seconds > 0.0 ? 1e-3 * (double)bytes / seconds : 0.0;
}

static void print_findings(const reef_kinds_plan *plan, const reef_kinds_findings *f) {
    char words[CLI_WORD_BYTES], more[CLI_WORD_BYTES];
    print_kinds(f);
    printf("\nchanges  %zu of %zu found, %zu generations opened elsewhere\n", f->found,
           f->kind_count - 1, f->invented);
    printf("back     %.1f %% of %s learned by kinds that were there, %.1f %% by their own; %zu "
           "began\n",
           100.0 * (1.0 - (double)f->strange_bytes / (double)f->back_bytes),
           reef_cli_bytes(f->back_bytes, words),
           100.0 * (double)f->same_bytes / (double)f->back_bytes, f->back_generations);
    printf("pieces   of %llu bytes: %.4f bits per byte, %+.4f more than knowing the kind\n",
           (unsigned long long)plan->piece_bytes, f->pieces_bits, f->pieces_bits - f->pieces_own);
    printf("         each a text by itself: %.4f, %+.4f more\n", f->alone_bits,
           f->alone_bits - f->alone_own);
    printf("learned  at %.0f kB/s, beside %.0f of one memory after the other\n",
           per_s(f->stream_bytes, f->learn_seconds), per_s(f->stream_bytes, f->own_learn_seconds));
    printf("read     at %.0f kB/s, beside %.0f\n", per_s(f->read_bytes, f->read_seconds),
           per_s(f->read_bytes, f->own_read_seconds));
    printf("disk     %s for %s of text: %.1f bytes for each\n",
           reef_cli_bytes(f->pool_bytes, words), reef_cli_bytes(f->stream_bytes, more),
           (double)f->pool_bytes / (double)f->stream_bytes);
}

// ---- for programs -------------------------------------------------------------------------------

static json_t *kind_json(const reef_bench_kind *kind) {
    return json_pack("{s:o, s:I, s:o, s:o, s:o, s:o}", "name", reef_cli_path(kind->name),
                     "begins_at", (json_int_t)kind->begins, "found_bytes_later",
                     kind->is_found ? json_integer((json_int_t)kind->late) : json_null(),
                     "own_bits_per_byte", reef_cli_real(kind->own), "bits_per_byte",
                     reef_cli_real(kind->bits), "later_bits_per_byte", reef_cli_real(kind->later));
}

static json_t *findings_json(const reef_kinds_plan *plan, const reef_kinds_findings *f) {
    json_t *kinds = json_array();
    for (size_t i = 0; i < f->kind_count; i++)
        json_array_append_new(kinds, kind_json(&f->kinds[i]));
    json_t *object = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "seed", (json_int_t)plan->seed,
        "stream_bytes", (json_int_t)f->stream_bytes, "changes", (json_int_t)(f->kind_count - 1),
        "found", (json_int_t)f->found, "invented", (json_int_t)f->invented, "back_bytes",
        (json_int_t)f->back_bytes, "strange_bytes", (json_int_t)f->strange_bytes, "same_bytes",
        (json_int_t)f->same_bytes, "back_generations", (json_int_t)f->back_generations,
        "pool_bytes", (json_int_t)f->pool_bytes);
    // Groups, because their members have equal names.
    json_t *means =
        json_pack("{s:o, s:o, s:o, s:o}", "own_bits_per_byte", reef_cli_real(f->own),
                  "bits_per_byte", reef_cli_real(f->bits), "later_bits_per_byte",
                  reef_cli_real(f->later), "forgetting_max", reef_cli_real(f->forgetting_max));
    json_t *pieces = json_pack(
        "{s:I, s:I, s:o, s:o, s:o, s:o}", "piece_bytes", (json_int_t)plan->piece_bytes, "bytes",
        (json_int_t)f->pieces_bytes, "own_bits_per_byte", reef_cli_real(f->pieces_own),
        "bits_per_byte", reef_cli_real(f->pieces_bits), "alone_own_bits_per_byte",
        reef_cli_real(f->alone_own), "alone_bits_per_byte", reef_cli_real(f->alone_bits));
    json_t *seconds = json_pack(
        "{s:o, s:o, s:o, s:o, s:I}", "learn", reef_cli_real(f->learn_seconds), "own_learn",
        reef_cli_real(f->own_learn_seconds), "read", reef_cli_real(f->read_seconds), "own_read",
        reef_cli_real(f->own_read_seconds), "read_bytes", (json_int_t)f->read_bytes);
    json_object_set_new(object, "means", means);
    json_object_set_new(object, "pieces", pieces);
    json_object_set_new(object, "seconds", seconds);
    json_object_set_new(object, "kinds", kinds);
    return object;
}

reef_status reef_cmd_bench_kinds(reef_cli_call *cli, reef_error *err) {
    reef_kinds_plan plan;
    reef_kinds_findings f = {0};
    reef_status status = read_plan(cli, &plan, err);
    if (status == REEF_OK) status = reef_bench_kinds_run(&plan, &f, err);
    if (status == REEF_OK && cli->json)
        status = reef_cli_reply(cli, findings_json(&plan, &f), err);
    else if (status == REEF_OK)
        print_findings(&plan, &f);
    reef_bench_kinds_release(&f);
    return status;
}
