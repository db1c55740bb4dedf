// Completion of command lines for shells, made of the table of commands and of reefd's options.
#ifndef REEF_COMPLETION_H
#define REEF_COMPLETION_H

#include <stdbool.h>
#include <stdio.h>

/** Write the script for "bash", "zsh" or "fish"; false for another shell. */
bool reef_completion_write(FILE *out, const char *shell);

#endif
