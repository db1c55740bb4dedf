// For tests whose children start threads: under the thread sanitizer they would end there. One file
// of a program includes it.
#ifndef TSAN_FORK_H
#define TSAN_FORK_H

#ifdef __SANITIZE_THREAD__
// OpenBLAS, too, makes its threads again in a child.
// NOLINTNEXTLINE(bugprone-reserved-identifier): the sanitizer's name
__attribute__((visibility("default"))) const char *__tsan_default_options(void);
// NOLINTNEXTLINE(bugprone-reserved-identifier)
const char *__tsan_default_options(void) {
    return "die_after_fork=0";
}
#endif

#endif
