// People at a terminal: what they can be asked and shown.
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool cli_colours(void) {
    const char *none = getenv("NO_COLOR"), *kind = getenv("TERM");
    return isatty(STDOUT_FILENO) == 1 && !(none && none[0]) && kind && strcmp(kind, "dumb") != 0;
}

reef_status cli_confirm(const cli_call *cli, const char *what, reef_error *err) {
    char line[16] = "";
    if (cli->json || cli_text(cli, "yes")) return REEF_OK;
    if (isatty(STDIN_FILENO) != 1 || isatty(STDERR_FILENO) != 1) return REEF_OK;
    fprintf(stderr, "%s. Type yes to go on: ", what);
    if (fgets(line, sizeof(line), stdin) != NULL && strcmp(line, "yes\n") == 0) return REEF_OK;
    return reef_fail(err, REEF_ERR_INVALID, "not confirmed; nothing was changed");
}
