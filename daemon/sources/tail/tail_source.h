// Live sources that are files: follow:PATH and dir:PATH[/PATTERN]; tail.h says what they read.
#ifndef REEF_TAIL_SOURCE_H
#define REEF_TAIL_SOURCE_H

#include "reef_source.h"

extern const reef_input_kind reef_follow_kind;
extern const reef_input_kind reef_dir_kind;

#endif
