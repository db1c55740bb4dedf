// The dashboard's files; see dashboard.h. The arrays are made of daemon/dashboard/ by
// cmake/embed.cmake.
#include "dashboard.h"

#include "dashboard_files.h"

#include <string.h>

#define SCRIPT "text/javascript; charset=utf-8"
#define STYLE "text/css; charset=utf-8"

static const reef_page_file FILES[] = {
    {"/", "text/html; charset=utf-8", reef_page_index, &reef_page_index_bytes},
    {"/dashboard.css", STYLE, reef_page_style, &reef_page_style_bytes},
    {"/dashboard.js", SCRIPT, reef_page_script, &reef_page_script_bytes},
    {"/charts.js", SCRIPT, reef_page_charts, &reef_page_charts_bytes},
    {"/uplot.css", STYLE, reef_page_uplot_style, &reef_page_uplot_style_bytes},
    {"/uplot.js", SCRIPT, reef_page_uplot, &reef_page_uplot_bytes},
};

const reef_page_file *reef_page_find(const char *path) {
    for (size_t i = 0; i < sizeof(FILES) / sizeof(*FILES); i++)
        if (strcmp(path, FILES[i].path) == 0) return &FILES[i];
    return 0;
}
