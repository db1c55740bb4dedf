// See eval_kinds.h.
#include "eval_kinds.h"
#include "cli_pool.h"
#include "svg.h"

#include <stdlib.h>

reef_status reef_eval_kinds_check(const reef_cli_call *cli,
                                  const reef_cli_pool *pool,
                                  reef_error *err) {
    static const char *const OTHERS[] = {"matrix", "gates"};
    for (size_t i = 0; i < sizeof(OTHERS) / sizeof(*OTHERS); i++)
        if (reef_cli_text(cli, OTHERS[i]) != NULL)
            return reef_fail(err, REEF_ERR_INVALID, "--kinds and --%s are two answers: ask for one",
                             OTHERS[i]);
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

typedef struct text_list {
    const reef_kinds_text *texts;
    size_t count;
} text_list;

static void draw(FILE *out, const void *context) {
    const text_list *list = context;
    reef_chart_kinds_svg(out, list->texts, list->count);
}

reef_status reef_eval_kinds_draw(const reef_cli_call *cli,
                                 const reef_kinds_text *texts,
                                 size_t count,
                                 reef_error *err) {
    const char *path = reef_cli_text(cli, "svg");
    return path == NULL ? REEF_OK : reef_svg_write(path, draw, &(text_list){texts, count}, err);
}

void reef_eval_kinds_print(const reef_cli_call *cli, const reef_kinds_text *texts, size_t count) {
    const char *path = reef_cli_text(cli, "svg");
    for (size_t i = 0; i < count; i++) {
        printf("\n%s:\n", texts[i].name);
        reef_chart_kinds_print(stdout, &texts[i]);
    }
    if (path != NULL) printf("\nwrote %s\n", path);
}
