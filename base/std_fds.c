// Standard input, output and error stay theirs.
//
// A process that was started without one of them gets its number for the next file that it opens.
// When that is a pool's data file, whatever prints a message writes it over the pool's first page.
#define _GNU_SOURCE // for O_PATH

#include "reef_std_fds.h"

#include <fcntl.h>
#include <unistd.h>

void reef_std_fds_reserve(void) {
    // The lowest free number is given; whoever reads or writes there gets EBADF, as if nothing were
    // open.
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0) (void)open("/", O_PATH);
}
