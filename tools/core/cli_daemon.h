// Where reefd is.
#ifndef REEF_CLI_DAEMON_H
#define REEF_CLI_DAEMON_H

#define CLI_DAEMON_NAME "reefd"

/** Its path, on the heap: beside this program, else in PATH; NULL if there is none. */
char *reef_cli_daemon_path(void);

#endif
