// People at a terminal: what they can be asked and shown.
#include "cli_terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool reef_cli_colours(void) {
    const char *none = getenv("NO_COLOR"), *kind = getenv("TERM");
    return isatty(STDOUT_FILENO) == 1 && !(none != NULL && none[0]) && kind != NULL &&
           strcmp(kind, "dumb") != 0;
}

size_t reef_cli_columns(FILE *out) {
    struct winsize size;
    if (isatty(fileno(out)) != 1 || ioctl(fileno(out), TIOCGWINSZ, &size) != 0) return 0;
    return size.ws_col;
}
