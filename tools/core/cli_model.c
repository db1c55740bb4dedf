// See cli_model.h.
#include "cli_model.h"
#include "cli_format.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

reef_status reef_cli_kinds_read(reef_cli_pool *pool, reef_kind_list *out, reef_error *err) {
    reef_txn *txn = NULL;
    *out = (reef_kind_list){0};
    reef_status status = reef_txn_begin(&txn, pool->store, REEF_TXN_READ, err);
    if (status == REEF_OK) status = reef_kind_list_read(txn, out, err);
    reef_txn_abort(txn);
    return status;
}

reef_status reef_cli_kinds_read_as_of(const reef_cli_call *cli,
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

// A command that opens a state again and again says it once.
static bool is_told(const reef_cli_call *cli, const json_t *lost) {
    size_t i;
    json_t *told;
    json_array_foreach(cli->lost_kinds, i, told) if (json_equal(told, lost)) return true;
    return false;
}

static void tell(const reef_cli_call *cli,
                 const char *as_of,
                 const char *name,
                 const reef_lost_kind *lost) {
    char words[CLI_WORD_BYTES];
    json_t *entry =
        json_pack("{s:s, s:I, s:o, s:I, s:s}", "as_of", as_of, "kind", (json_int_t)lost->kind,
                  "name", name[0] != '\0' ? json_string(name) : json_null(), "whole_to",
                  (json_int_t)lost->whole_to, "what", lost->what);
    bool told = is_told(cli, entry);
    if (!told) json_array_append(cli->lost_kinds, entry);
    json_decref(entry);
    if (told) return;
    char *pool = reef_cli_printable((const uint8_t *)cli->pool, strlen(cli->pool), false);
    bool is_now = strcmp(as_of, "now") == 0, has_name = name[0] != '\0';
    fprintf(stderr, "reef: %s%s%skind %" PRIu32 "%s%s%s is damaged, and ", is_now ? "" : "as of ",
            is_now ? "" : as_of, is_now ? "" : " ", lost->kind, has_name ? " (" : "", name,
            has_name ? ")" : "");
    if (lost->whole_to > 0)
        fprintf(stderr, "answers as it was at byte %s of the stream",
                reef_cli_count(lost->whole_to, words));
    else
        fprintf(stderr, "does not answer");
    fprintf(stderr, ": %s; reef verify %s says what helps\n", lost->what, pool);
    free(pool);
}

reef_status reef_cli_model_open(reef_model **out,
                                const reef_cli_call *cli,
                                reef_store *store,
                                const char *as_of,
                                reef_error *err) {
    const reef_model_options options = reef_cli_model_options(cli);
    reef_kind_list kinds = {0};
    reef_cli_pool pool = {.store = store};
    size_t count;
    reef_status status = reef_model_open(out, store, as_of, &options, err);
    if (status != REEF_OK) return status;
    const reef_lost_kind *lost = reef_model_lost_kinds(*out, &count);
    // Without the list they have no names, which is no reason to say nothing.
    if (count > 0 && reef_cli_kinds_read(&pool, &kinds, NULL) != REEF_OK)
        kinds = (reef_kind_list){0};
    for (size_t i = 0; i < count; i++)
        tell(cli, as_of == NULL ? "now" : as_of, reef_kind_list_name(&kinds, lost[i].kind),
             &lost[i]);
    reef_kind_list_release(&kinds);
    return REEF_OK;
}
