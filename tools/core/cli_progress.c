// See cli_progress.h.
#include "cli_progress.h"

#include "cli_format.h"
#include "reef_system.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

// ---- how far it is ------------------------------------------------------------------------------

#define BAR_CELLS 24
#define SHOW_AFTER_SECONDS 0.7 // by then the estimate of the whole is fair
#define SHOW_FROM_SECONDS 2.0  // estimated length of a job that gets a bar
#define REDRAW_SECONDS 0.1

void reef_cli_progress_start(reef_cli_progress *progress,
                             const char *label,
                             uint64_t total,
                             const char *unit) {
    *progress = (reef_cli_progress){.label = label,
                                    .total = total,
                                    .unit = unit,
                                    .started = reef_seconds(),
                                    .terminal = isatty(STDERR_FILENO) == 1};
}

static void draw_progress(const reef_cli_progress *progress,
                          double share,
                          double rate,
                          double left) {
    char bar[BAR_CELLS + 1];
    for (int i = 0; i < BAR_CELLS; i++) bar[i] = (double)i < share * BAR_CELLS ? '#' : '-';
    bar[BAR_CELLS] = '\0';
    char rate_text[CLI_WORD_BYTES];
    if (progress->unit[0] == 'B')
        reef_cli_bytes((uint64_t)rate, rate_text);
    else
        snprintf(rate_text, sizeof(rate_text), "%.1f %s", rate, progress->unit);
    // Clears the rest of the line, as texts get shorter.
    fprintf(stderr, "\r\033[K%s [%s] %3.0f %%  %s/s  %s left", progress->label, bar, 100 * share,
            rate_text, CLI_DURATION(left));
    fflush(stderr);
}

void reef_cli_progress_show(reef_cli_progress *progress, uint64_t done) {
    if (!progress->terminal || progress->total == 0) return;
    double now = reef_seconds(), passed = now - progress->started;
    // The first fraction of a second says nothing about the rate.
    if (passed < SHOW_AFTER_SECONDS || now - progress->drawn < REDRAW_SECONDS) return;
    uint64_t all = progress->done_before + done;
    if (all == 0) return;
    double share = (double)all / (double)progress->total;
    if (share > 1) share = 1;
    double rate = (double)all / passed, left = passed / share - passed;
    if (!progress->visible && passed + left < SHOW_FROM_SECONDS) return;
    progress->visible = true;
    progress->drawn = now;
    draw_progress(progress, share, rate, left);
}

void reef_cli_progress_end(reef_cli_progress *progress) {
    if (progress->visible) fputs("\r\033[K", stderr);
    progress->visible = false;
}

// ---- signals ------------------------------------------------------------------------------------

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
