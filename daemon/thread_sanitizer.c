// Suppressions of the thread sanitizer. Only builds with it contain this file.
//
// libuv closes descriptors with a raw system call that the sanitizer does not intercept. When
// another thread opens a file and gets the number of a closed connection, the sanitizer reports a
// race of that open, or of its close, with what was done to the connection: accept4, epoll_ctl.
//
// The sanitizer calls this function by name.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);

const char *__tsan_default_suppressions(void) {
    return "race:accept4\nrace:epoll_ctl\n";
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
