// Descriptors 0, 1 and 2 stay those of standard input, output and error.
#ifndef REEF_STD_FDS_H
#define REEF_STD_FDS_H

#include "reef_error.h"

/**
 * Hold the numbers of standard input, output and error, where one of them is closed: no file that
 * is opened later gets them, and with them what others print. Reading and writing there still fail
 * with EBADF. Every opening of a pool does it; a program that opens other files does it first.
 * Nothing else may open files meanwhile.
 */
REEF_API void reef_std_fds_reserve(void);

#endif
