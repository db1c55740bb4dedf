// See cli_daemon.h.
#include "cli_daemon.h"

#include "cli_alloc.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_program(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

static char *beside_this(void) {
    char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (length <= 0) return NULL;
    path[length] = '\0';
    char *slash = strrchr(path, '/');
    return slash != NULL ? reef_cli_format("%.*s/" CLI_DAEMON_NAME, (int)(slash - path), path)
                         : NULL;
}

char *reef_cli_daemon_path(void) {
    // Beside this program first: a build tree must not start the installed daemon.
    char *path = beside_this();
    if (path != NULL && is_program(path)) return path;
    free(path);
    // execvp() would search too, but the path is also printed and checked before.
    for (const char *at = getenv("PATH"); at != NULL && *at;) {
        size_t length = strcspn(at, ":");
        // An empty element of PATH is the current directory (POSIX).
        path = reef_cli_format("%.*s%s/" CLI_DAEMON_NAME, (int)length, at, length ? "" : ".");
        if (is_program(path)) return path;
        free(path);
        at += length;
        // Skips the colon, if the end is not reached yet.
        at += *at == ':';
    }
    return NULL;
}
