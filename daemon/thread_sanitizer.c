// What the thread sanitizer must not take for a race; only part of builds with it.
//
// libuv closes descriptors by a system call of its own, which the sanitizer does not see. The number
// of a connection that was closed is then still the connection's to it, and a file that another
// thread opens under the same number looks like a race with accept4.
//
// The sanitizer's library looks for it by this name.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);

const char *__tsan_default_suppressions(void) {
    return "race:accept4\n";
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
