// Priorities inside reefd. A client waits for its reply, so the loop and queries have the priority
// of the process. Training, and what makes a newer state ready to answer, come after
// them. Checks of what is stored come last.
#ifndef REEF_NICENESS_H
#define REEF_NICENESS_H

#define REEF_NICENESS_TRAINING 5
#define REEF_NICENESS_CHECK 10

#endif
