// See cli_signals.h.
#include "cli_signals.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

static atomic_int caught; // its number; a signal may reach any thread

static void on_signal(int number) {
    caught = number;
}

void reef_cli_catch_signals(bool hangup) {
    static const int SIGNALS[] = {SIGINT, SIGTERM, SIGHUP};
    // The second signal finds the system's handler again. A write under way continues; poll ends
    // with EINTR all the same.
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND | SA_RESTART};
    sigemptyset(&action.sa_mask);
    size_t count = hangup ? 3 : 2;
    for (size_t i = 0; i < count; i++) {
        struct sigaction before;
        bool ignored = sigaction(SIGNALS[i], NULL, &before) != 0 || before.sa_handler == SIG_IGN;
        if (!hangup || !ignored) (void)sigaction(SIGNALS[i], &action, NULL);
    }
}

bool reef_cli_is_stopped(void) {
    return caught != 0;
}

void reef_cli_end_as_signalled(void) {
    if (caught == 0) return;
    (void)signal(caught, SIG_DFL);
    (void)raise(caught);
}
