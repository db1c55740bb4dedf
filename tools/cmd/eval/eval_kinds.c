// See eval_kinds.h.
#include "eval_kinds.h"
#include "cli_pool.h"

reef_status reef_eval_kinds_check(const reef_cli_call *cli,
                                  const reef_cli_pool *pool,
                                  reef_error *err) {
    if (reef_cli_text(cli, "matrix") != NULL)
        return reef_fail(err, REEF_ERR_INVALID,
                         "--kinds and --matrix are two answers: ask for one");
    if (pool->config.context_memory > 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID,
                     "--kinds shows which context memories answer, and the pool has none");
}

json_t *reef_eval_kinds_json(const reef_kinds_text *text) {
    reef_kinds_row rows[REEF_KINDS_ROWS_MAX];
    size_t count = reef_kinds_rows(text, rows);
    json_t *kinds = json_array(), *runs = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(kinds, json_pack("{s:I, s:I}", "kind", (json_int_t)rows[i].kind,
                                               "bytes", (json_int_t)rows[i].parts));
    for (size_t from = 0, end; from < text->count; from = end) {
        double weight = 0.0;
        for (end = from; end < text->count && text->answered[end] == text->answered[from]; end++)
            weight += (double)text->weights[end];
        json_array_append_new(runs, json_pack("{s:I, s:I, s:f}", "from", (json_int_t)from, "kind",
                                              (json_int_t)text->answered[from], "weight",
                                              weight / (double)(end - from)));
    }
    return json_pack("{s:o, s:o}", "most", kinds, "runs", runs);
}
