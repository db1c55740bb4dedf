// What syslog writes in place of lines that are equal to the one before.
//
//   web1 last message repeated 5 times
//   web1 app[12]: message repeated 5 times: [ the line]
#ifndef REEF_REPEAT_LINE_H
#define REEF_REPEAT_LINE_H

#include "line_tokens.h"

#define REEF_REPEATS_MAX 1000000000u

/** For how many lines it stands, at most REEF_REPEATS_MAX; 0: it is none of these. */
uint32_t reef_line_repeats(const uint8_t *line, size_t count, const reef_line_tokens *tokens);

#endif
