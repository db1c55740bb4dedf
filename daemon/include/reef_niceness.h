// Niceness of the threads of reefd. A client waits for its reply, so the loop and queries keep that
// of the process. Training, and opening a newer state for queries, give way to them. Checks of what
// is stored give way to all others.
#ifndef REEF_NICENESS_H
#define REEF_NICENESS_H

#define REEF_NICENESS_TRAINING 5
#define REEF_NICENESS_CHECK 10

#endif
