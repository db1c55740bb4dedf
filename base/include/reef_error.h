// The vocabulary of failure that every module shares.
//
// Expected failures return a status and, for people, fill a reef_error on the caller's stack.
// Mistakes in our own code are an assert. The layer that knows the most writes the message; layers
// above pass it on untouched.
#ifndef REEF_ERROR_H
#define REEF_ERROR_H

#define REEF_API __attribute__((visibility("default")))
#define REEF_MUST_CHECK __attribute__((warn_unused_result))

// name, text, sysexits(3) code that a program ends with
#define REEF_STATUS_LIST(X)                                                                        \
    X(REEF_OK, "ok", 0)                                                                            \
    X(REEF_ERR_INVALID, "invalid", 64)                                                             \
    X(REEF_ERR_NOT_FOUND, "not found", 66)                                                         \
    X(REEF_ERR_CORRUPT, "corrupt", 65)                                                             \
    X(REEF_ERR_VERSION, "version", 65)                                                             \
    X(REEF_ERR_FULL, "full", 73)                                                                   \
    X(REEF_ERR_BUSY, "busy", 75)                                                                   \
    X(REEF_ERR_NO_MEMORY, "no memory", 71)                                                         \
    X(REEF_ERR_IO, "io", 74)

typedef enum reef_status {
#define REEF_STATUS_ENUM(name, text, code) name,
    REEF_STATUS_LIST(REEF_STATUS_ENUM)
#undef REEF_STATUS_ENUM
} reef_status;

typedef struct reef_error {
    reef_status status;
    char message[256]; // what was tried, on what, why it failed; lower case, no full stop
} reef_error;

/** Fill `err` (ignored when NULL) and return `status`, so that a failing path is one line. */
REEF_API reef_status reef_fail(reef_error *err, reef_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#ifdef __clang_analyzer__
// The analyser reads one file at a time: without this it cannot know that reef_fail returns an
// error, and follows the success path after it.
#define reef_fail(err, status, ...) ((void)reef_fail(err, status, __VA_ARGS__), (status))
#endif

/** The status in words, such as "not found". */
REEF_API const char *reef_status_text(reef_status status);

/** The exit code of sysexits(3) that a program ends with after this status. */
REEF_API int reef_status_exit_code(reef_status status);

#endif
