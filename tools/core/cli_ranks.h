// The ranks of a daemon that trains with others, in words.
#ifndef REEF_CLI_RANKS_H
#define REEF_CLI_RANKS_H

#include <jansson.h>

/** One line about the member `ranks` of a status, on the heap; NULL where there is none. */
char *reef_cli_ranks_words(const json_t *status);
/** The same about the member `joins`, of a rank that learns apart. */
char *reef_cli_joins_words(const json_t *status);

#endif
